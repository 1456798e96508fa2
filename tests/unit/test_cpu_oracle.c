/* The kernel on the CPU, with every instruction set that this one has: against the contract's formula in float64 over shapes,
 * data types, masks, scales and magnitudes; against one another; and by twh_oracle_check. */
#include "support_cpu.h"

enum { B = TWH_BOOL, F = TWH_F32, H = TWH_F16, BF = TWH_BF16 };

typedef struct cpu_case {
  const char *name;
  uint32_t    flags, mask_mode;
  int64_t     slots, q_len, k_len, qk_dim, v_dim, causal_offset;
  int32_t     dtype, out_dtype, mask_dtype, layout;
  double      scale, softcap, logit_std, hidden;
} cpu_case;

static const cpu_case cpu_cases[] = {
  /* shapes: 1, odd, on both sides of a register, of a block of 48, 24 or 12 rows, and of a tile of 128 keys */
  { "one pair", LSE, NONE, 1, 1, 1, 1, 1, 0, F, F, B, TILE_DECLARED, 0.5, 0, 1, 0 },
  { "one key", LSE, NONE, 2, 5, 1, 3, 2, 0, F, F, B, TILE_DECLARED, 0.5, 0, 1, 0 },
  { "one row", LSE, NONE, 2, 1, 300, 64, 65, 0, F, F, B, TILE_DECLARED, 0.125, 0, 1, 0 },
  { "one column", LSE, NONE, 2, 33, 31, 1, 1, 0, F, F, B, TILE_DECLARED, 1, 0, 1, 0 },
  { "odd", LSE, NONE, 3, 17, 33, 7, 5, 0, F, F, B, TILE_DECLARED, 0.3, 0, 1, 0 },
  { "47 rows, 127 keys", LSE, NONE, 1, 47, 127, 16, 16, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "49 rows, 129 keys", LSE, NONE, 1, 49, 129, 17, 31, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "97 rows, 256 keys", LSE, NONE, 1, 97, 256, 64, 66, 0, F, F, B, TILE_DECLARED, 0.125, 0, 1, 0 },
  { "more rows than are packed at once", LSE, NONE, 1, 600, 33, 80, 72, 0, F, F, B, TILE_DECLARED, 0.1, 0, 1, 0 },
  { "16500 keys", LSE, NONE, 1, 7, 16500, 4, 5, 0, F, F, B, TILE_DECLARED, 0.5, 0, 1, 0 },
  { "256", LSE, NONE, 1, 256, 256, 64, 65, 0, F, F, B, TILE_DECLARED, 0.125, 0, 1, 0 },
  { "wide", LSE, NONE, 1, 40, 70, 576, 519, 0, F, F, B, TILE_DECLARED, 0.06, 0, 1, 0 },
  /* data types */
  { "bf16", LSE, NONE, 2, 70, 300, 80, 65, 0, BF, F, B, TILE_DECLARED, 0.1, 0, 1, 0 },
  { "bf16 out", LSE, CAUSAL, 2, 70, 90, 64, 67, 0, BF, BF, B, TILE_DECLARED, 0.125, 0, 1, 0 },
  { "bf16 mask", LSE, TENSOR, 2, 70, 90, 64, 67, 0, BF, BF, BF, TILE_DECLARED, 0.125, 0, 1, 0.5 },
  { "bf16, reversed", LSE | BACKWARDS, TENSOR, 2, 70, 90, 33, 19, 0, BF, F, B, TILE_REVERSED, 0.125, 0, 1, 0.5 },
  { "f16", LSE, NONE, 2, 70, 300, 80, 65, 0, H, F, B, TILE_DECLARED, 0.1, 0, 1, 0 },
  { "f16 out", LSE, CAUSAL, 2, 70, 90, 64, 67, 0, H, H, B, TILE_DECLARED, 0.125, 0, 1, 0 },
  { "f16 mask", LSE, TENSOR, 2, 70, 90, 64, 67, 0, H, H, H, TILE_DECLARED, 0.125, 0, 1, 0.5 },
  { "f16, f32 mask, overlap", LSE | BACKWARDS, TENSOR, 2, 70, 90, 33, 19, 0, H, F, F, TILE_OVERLAP, 0.125, 0, 1, 0.5 },
  /* causal */
  { "causal", LSE, CAUSAL, 2, 200, 200, 16, 17, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, 512", LSE, CAUSAL, 1, 512, 512, 8, 8, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, fewer keys than rows", LSE, CAUSAL, 1, 150, 40, 16, 5, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, empty rows", LSE, CAUSAL, 2, 140, 150, 8, 5, -5, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, empty registers", LSE, CAUSAL, 2, 140, 150, 8, 5, -33, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, empty blocks", LSE | POS_INF, CAUSAL, 2, 300, 300, 8, 5, -270, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, offset 37", LSE | BASE2, CAUSAL, 1, 90, 150, 8, 5, 37, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, offset 149", LSE, CAUSAL, 1, 90, 150, 8, 5, 149, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal without lse", 0, CAUSAL, 1, 129, 129, 8, 5, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  /* mask operands */
  { "bool mask", LSE, TENSOR, 2, 70, 290, 16, 8, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0.5 },
  { "bool mask, few hidden", LSE, TENSOR, 2, 70, 290, 16, 8, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0.02 },
  { "bool mask, one key in 30", LSE, TENSOR, 2, 70, 90, 16, 8, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0.97 },
  { "bool mask, empty rows", LSE, TENSOR, 2, 70, 91, 16, 8, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 1 },
  { "f32 mask", LSE, TENSOR, 2, 70, 291, 16, 8, 0, F, F, F, TILE_DECLARED, 0.25, 0, 1, 0.5 },
  { "f32 mask, empty rows", LSE | POS_INF | BASE2, TENSOR, 2, 70, 90, 16, 8, 0, F, F, F, TILE_DECLARED, 0.25, 0, 1, 1 },
  /* scores */
  { "softcap", LSE, NONE, 1, 70, 90, 16, 8, 0, F, F, B, TILE_DECLARED, 0.25, 3, 4, 0 },
  { "softcap, causal", LSE, CAUSAL, 1, 70, 90, 16, 8, 0, F, F, B, TILE_DECLARED, 0.25, 1, 4, 0 },
  { "softcap, saturated, causal", LSE, CAUSAL, 1, 70, 90, 16, 8, 0, F, F, B, TILE_DECLARED, 0.25, 50, 1000, 0 },
  { "softcap, nearly linear", LSE, TENSOR, 1, 70, 90, 16, 8, 0, F, F, F, TILE_DECLARED, -0.25, 1000, 1, 0.5 },
  { "softcap, bool mask", LSE, TENSOR, 1, 70, 90, 16, 8, 0, F, F, B, TILE_DECLARED, -0.25, 5, 1, 0.5 },
  { "negative scale", LSE, NONE, 1, 70, 90, 16, 8, 0, F, F, B, TILE_DECLARED, -0.7, 0, 4, 0 },
  { "negative scale, bool mask", LSE | BASE2, TENSOR, 1, 70, 90, 16, 8, 0, F, F, B, TILE_DECLARED, -0.7, 0, 4, 0.5 },
  { "scale per call", LSE | PER_CALL, CAUSAL, 1, 70, 90, 16, 8, 0, F, F, B, TILE_DECLARED, 0, 0, 4, 0 },
  { "std 0.1", LSE, NONE, 1, 130, 256, 64, 65, 0, F, F, B, TILE_DECLARED, 0.125, 0, 0.1, 0 },
  { "std 10", LSE, NONE, 1, 130, 256, 64, 65, 0, F, F, B, TILE_DECLARED, 0.125, 0, 10, 0 },
  { "std 100", LSE, CAUSAL, 1, 130, 256, 64, 65, 0, F, F, B, TILE_DECLARED, 0.125, 0, 100, 0 },
  { "std 1000", LSE, NONE, 1, 130, 256, 64, 65, 0, F, F, B, TILE_DECLARED, 0.125, 0, 1000, 0 },
  { "std 1000, f32 mask", LSE, TENSOR, 1, 130, 256, 64, 65, 0, F, F, F, TILE_DECLARED, 0.125, 0, 1000, 0.5 },
  /* few rows, which go one at a time */
  { "1 row, bf16", LSE, NONE, 3, 1, 257, 80, 65, 0, BF, F, B, TILE_DECLARED, 0.1, 0, 1, 0 },
  { "1 row, f16 out", LSE, NONE, 2, 1, 130, 31, 129, 0, H, H, B, TILE_DECLARED, 0.1, 0, 1, 0 },
  { "2 rows, wide", LSE | BASE2, NONE, 1, 2, 200, 576, 519, 0, F, F, B, TILE_DECLARED, 0.06, 0, 1, 0 },
  { "4 rows, causal, offset 200", LSE, CAUSAL, 2, 4, 300, 17, 33, 200, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "4 rows, causal, empty rows", LSE | POS_INF, CAUSAL, 2, 4, 9, 17, 33, -2, F, F, B, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "3 rows, bool mask, empty rows", LSE, TENSOR, 2, 3, 140, 16, 8, 0, F, F, B, TILE_DECLARED, 0.25, 0, 1, 1 },
  { "4 rows, f16 mask, reversed", LSE | BACKWARDS, TENSOR, 2, 4, 140, 19, 11, 0, H, F, H, TILE_REVERSED, 0.25, 0, 1, 0.5 },
  { "4 rows, softcap, f32 mask", LSE, TENSOR, 2, 4, 140, 19, 11, 0, F, F, F, TILE_DECLARED, -0.25, 5, 4, 0.5 },
  { "1 row, std 100", LSE, NONE, 1, 1, 256, 64, 65, 0, F, F, B, TILE_DECLARED, 0.125, 0, 100, 0 },
  /* strides */
  { "gaps", LSE | STRIDED, TENSOR, 3, 70, 90, 16, 8, 0, F, F, F, TILE_GAPS, 0.25, 0, 1, 0.5 },
  { "gaps, causal", LSE | STRIDED, CAUSAL, 3, 170, 190, 16, 8, 0, F, F, B, TILE_GAPS, 0.25, 0, 1, 0 },
  { "reversed", LSE | BACKWARDS, TENSOR, 3, 170, 90, 16, 8, 0, F, F, B, TILE_REVERSED, 0.25, 0, 1, 0.5 },
  { "reversed, causal", LSE | BACKWARDS, CAUSAL, 3, 170, 190, 16, 9, -3, F, F, B, TILE_REVERSED, 0.25, 0, 1, 0 },
  { "overlap, causal", LSE | BACKWARDS, CAUSAL, 2, 170, 190, 16, 9, 2, F, F, B, TILE_OVERLAP, 0.25, 0, 1, 0 },
};

static void cpu_case_desc(const cpu_case *made, twh_oracle_desc *desc)
{
  cpu_desc(desc, made->slots, made->q_len, made->k_len, made->qk_dim, made->v_dim);
  desc->flags = made->flags;
  desc->dtype = made->dtype;
  desc->out_dtype = made->out_dtype;
  desc->causal_offset = made->causal_offset;
  desc->mask_dtype = made->mask_dtype;
  desc->scale = made->scale;
  desc->softcap = made->softcap;
}

/* In units of 2^-24, and with values of standard deviation 1: a score is off by a small part of the sum of its terms, a weight
 * by as much relative to itself; the power and the value product add a few units. Outputs of 16 bits are rounded once. */
static void cpu_case_compare(const cpu_case *made, int32_t isa, const support_tile *tile, const tile_result *want, double unit)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  tile_result     got;
  double          rounding = made->out_dtype == F ? 0.0 : made->out_dtype == H ? 1.0 / 2048.0 : 1.0 / 256.0;
  int64_t         n;
  cpu_case_desc(made, &desc);
  oracle = cpu_oracle(&desc, isa);
  tile_run(&got, tile, oracle);
  for (n = 0; n < want->rows * want->dim; ++n) {
    double bound = 3.0 * unit + rounding * (fabs(want->out[n]) + 1e-4);
    if (!(fabs(got.out[n] - want->out[n]) <= bound))
      fail_msg("%s, %s: out[%lld] is %.9g, not %.9g", made->name, twh_cpu_isa_name(isa), (long long)n, got.out[n],
               want->out[n]);
  }
  if (made->flags & LSE) support_assert_at_most(tile_lse_error(&got, want), 4.0 * unit, made->name);
  tile_result_destroy(&got);
  twh_oracle_destroy(oracle);
}

static void cpu_equals_the_formula(void **state)
{
  int32_t isa;
  int64_t n;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(cpu_cases); ++n) {
    const cpu_case *made = &cpu_cases[n];
    support_random  random = support_random_at(7, (uint64_t)n);
    tile_shape      shape = { made->mask_mode, 0, 0, 0, made->layout, made->logit_std, made->hidden };
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    support_tile    tile;
    tile_result     want;
    double          unit;
    cpu_case_desc(made, &desc);
    oracle = cpu_oracle(&desc, TWH_CPU_ISA_BEST);
    tile_create(&tile, oracle, &shape, &random);
    tile_truth(&want, &tile);
    unit = (tile_largest_score(&tile) + 4.0) / 16777216.0;
    for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) cpu_case_compare(made, isa, &tile, &want, unit);
    tile_result_destroy(&want);
    tile_destroy(&tile);
    twh_oracle_destroy(oracle);
  }
}

/* All but the portable one fuse multiplication and addition; tiles and the order of sums are the same. */
static void cpu_instruction_sets_agree(void **state)
{
  static const uint32_t modes[] = { NONE, CAUSAL, TENSOR };
  int32_t               isa;
  int64_t               n;
  (void)state;
  for (n = 0; n < 3; ++n) {
    support_random  random = support_random_at(13, (uint64_t)n);
    tile_shape      shape = { modes[n], 0, 0, 0, TILE_DECLARED, 2.0, 0.3 };
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    support_tile    tile;
    tile_result     first, other;
    cpu_desc(&desc, 2, 133, 150, 64, 65);
    oracle = cpu_oracle(&desc, TWH_CPU_ISA_PORTABLE);
    tile_create(&tile, oracle, &shape, &random);
    tile_run(&first, &tile, oracle);
    twh_oracle_destroy(oracle);
    for (isa = TWH_CPU_ISA_PORTABLE; isa; isa = cpu_next_isa(isa)) {
      oracle = cpu_oracle(&desc, isa);
      tile_run(&other, &tile, oracle);
      support_assert_at_most(tile_out_error(&first, &other), 2e-6, twh_cpu_isa_name(isa));
      support_assert_at_most(tile_lse_error(&first, &other), 4e-6, twh_cpu_isa_name(isa));
      tile_result_destroy(&other);
      twh_oracle_destroy(oracle);
    }
    tile_result_destroy(&first);
    tile_destroy(&tile);
  }
}

static void cpu_report(void *user, const char *promise, int32_t verdict, const char *detail)
{
  if (verdict == TWH_CHECK_UNTRUE) print_message("%s: %s: %s\n", (const char *)user, promise, detail);
}

static const cpu_case cpu_checked[] = {
  { "everything", LSE | STRIDED | FEWER, NONE | CAUSAL | TENSOR, 2, 100, 150, 64, 65, 0, F, F, F, 0, 0.125, 0, 0, 0 },
  { "square", LSE, NONE | CAUSAL, 1, 128, 128, 64, 64, 0, F, F, B, 0, 0.125, 0, 0, 0 },
  { "no lse, offset", 0, CAUSAL, 3, 65, 65, 20, 21, -1, F, F, B, 0, 0.3, 0, 0, 0 },
  { "base 2", LSE | BASE2 | POS_INF | FEWER, NONE | CAUSAL | TENSOR, 2, 60, 60, 32, 33, -2, F, F, B, 0, 0.3, 0, 0, 0 },
  { "softcap", LSE | FEWER, NONE | TENSOR | CAUSAL, 2, 60, 60, 32, 33, 0, F, F, F, 0, 0.3, 20, 0, 0 },
  { "scale per call", LSE | PER_CALL | STRIDED, NONE, 2, 60, 60, 32, 33, 0, F, F, B, 0, 0, 0, 0, 0 },
  { "bf16", LSE | STRIDED | FEWER, NONE | CAUSAL | TENSOR, 2, 60, 140, 64, 65, 0, BF, BF, BF, 0, 0.125, 0, 0, 0 },
  { "bf16 to f32", LSE, NONE | CAUSAL | TENSOR, 2, 60, 140, 64, 65, 0, BF, F, F, 0, 0.125, 0, 0, 0 },
  { "f16", LSE | STRIDED | FEWER, NONE | CAUSAL | TENSOR, 2, 60, 140, 64, 65, 0, H, H, H, 0, 0.125, 0, 0, 0 },
  { "continues", LSE | BACKWARDS | FEWER | TWH_ORACLE_CONTINUES, NONE | CAUSAL | TENSOR, 2, 100, 150, 64, 65, 0, F, F, F, 0, 0.125, 0,
    0, 0 },
  { "continues, base 2", LSE | BASE2 | POS_INF | TWH_ORACLE_CONTINUES, NONE | CAUSAL, 2, 60, 60, 32, 33, -2, BF, BF, B, 0, 0.3, 0, 0,
    0 },
  { "f16 to f32", LSE | BASE2, NONE | CAUSAL | TENSOR, 2, 60, 140, 64, 65, 0, H, F, B, 0, 0.125, 30, 0, 0 },
};

static void cpu_check_finds_nothing_untrue(void **state)
{
  int32_t isa;
  int64_t n, untrue;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa))
    for (n = 0; n < SUPPORT_COUNT(cpu_checked); ++n) {
      twh_oracle_desc desc;
      twh_oracle     *oracle;
      char            name[80];
      cpu_case_desc(&cpu_checked[n], &desc);
      desc.mask_modes = cpu_checked[n].mask_mode;
      if (!(desc.mask_modes & TENSOR)) desc.mask_dtype = 0;
      snprintf(name, sizeof name, "%s, %s", cpu_checked[n].name, twh_cpu_isa_name(isa));
      oracle = cpu_oracle(&desc, isa);
      untrue = -1;
      assert_int_equal(twh_oracle_check(NULL, oracle, cpu_report, name, &untrue, NULL), TWH_OK);
      if (untrue != 0) fail_msg("%s: %lld promises are untrue", name, (long long)untrue);
      twh_oracle_destroy(oracle);
    }
}

/* The best is one of the others, and the first of them that there is. */
static void cpu_best_is_there(void **state)
{
  int32_t best = twh_cpu_isa_best();
  (void)state;
  assert_true(best > TWH_CPU_ISA_BEST && best <= TWH_CPU_ISA_NEON);
  assert_string_equal(twh_cpu_isa_name(TWH_CPU_ISA_BEST), twh_cpu_isa_name(best));
  assert_string_equal(twh_cpu_isa_name(TWH_CPU_ISA_PORTABLE), "portable");
  if (twh_cpu_isa_name(TWH_CPU_ISA_AVX512)) assert_int_equal(best, TWH_CPU_ISA_AVX512);
  else if (twh_cpu_isa_name(TWH_CPU_ISA_AVX2)) assert_int_equal(best, TWH_CPU_ISA_AVX2);
  assert_null(twh_cpu_isa_name(-1));
  assert_null(twh_cpu_isa_name(TWH_CPU_ISA_NEON + 1));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(cpu_equals_the_formula),
    cmocka_unit_test(cpu_instruction_sets_agree),
    cmocka_unit_test(cpu_check_finds_nothing_untrue),
    cmocka_unit_test(cpu_best_is_there),
  };
  cpu_say_isas();
  return cmocka_run_group_tests_name("kernel on the CPU", tests, NULL, NULL);
}
