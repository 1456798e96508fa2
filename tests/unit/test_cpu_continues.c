/* Calls of the CPU kernel that continue others, with every instruction set that this one has: chains against one attention over
 * all of their keys in float64, as one batch, one call at a time, and the first alone; and what a chain must not depend on. */
#include "support_cpu_chain.h"

enum { F = TWH_F32, H = TWH_F16, BF = TWH_BF16, GAPS = TILE_GAPS };
#define ALL 0, 0, 1

static const chain_case chain_cases[] = {
  { "two, full", 0, 1, 70, 64, 65, 0, F, F, GAPS, 0, 1, 0, 2, { { NONE, 150, ALL }, { NONE, 130, ALL } } },
  { "five, full", BASE2, 2, 133, 16, 17, 0, F, F, GAPS, 0, 2, 0, 5,
    { { NONE, 100, ALL }, { NONE, 1, ALL }, { NONE, 128, ALL }, { NONE, 7, ALL }, { NONE, 129, ALL } } },
  { "several groups of blocks", 0, 1, 600, 80, 72, 0, F, F, GAPS, 0, 1, 0, 2, { { NONE, 33, ALL }, { NONE, 20, ALL } } },
  { "causal first", 0, 2, 140, 24, 9, 0, F, F, GAPS, 0, 1, 0, 3,
    { { CAUSAL, 140, ALL }, { NONE, 50, ALL }, { NONE, 60, ALL } } },
  { "causal last", 0, 2, 140, 24, 9, -3, F, F, GAPS, 0, 1, 0, 3,
    { { NONE, 50, ALL }, { NONE, 60, ALL }, { CAUSAL, 150, ALL } } },
  { "early rows see nothing", POS_INF, 2, 140, 8, 5, -70, F, F, GAPS, 0, 1, 0, 3,
    { { CAUSAL, 150, ALL }, { CAUSAL, 100, ALL }, { NONE, 30, ALL } } },
  { "some rows never see anything", BASE2 | POS_INF, 2, 140, 8, 5, -70, F, F, GAPS, 0, 1, 0, 2,
    { { CAUSAL, 150, ALL }, { CAUSAL, 100, ALL } } },
  { "masks, with rows that they hide", 0, 2, 70, 16, 8, 0, F, F, GAPS, 0, 1, 1, 3,
    { { TENSOR, 90, ALL }, { TENSOR, 140, ALL }, { NONE, 20, ALL } } },
  { "nothing but masks", POS_INF, 2, 70, 16, 8, 0, F, F, GAPS, 0, 1, 1, 2, { { TENSOR, 90, ALL }, { TENSOR, 140, ALL } } },
  { "capped", 0, 2, 70, 16, 8, -9, F, F, GAPS, 3, 4, 0.5, 3, { { CAUSAL, 90, ALL }, { TENSOR, 30, ALL }, { NONE, 20, ALL } } },
  { "fewer rows", 0, 2, 140, 16, 8, 0, F, F, GAPS, 0, 1, 0, 4,
    { { NONE, 50, ALL }, { CAUSAL, 40, 20, 100, 1 }, { NONE, 40, 139, 1, 1 }, { NONE, 20, 0, 3, 1 } } },
  { "the same number of rows elsewhere", 0, 2, 140, 16, 8, 0, F, F, GAPS, 0, 1, 0, 5,
    { { NONE, 50, ALL }, { NONE, 40, 0, 99, 1 }, { NONE, 30, 0, 99, 1 }, { NONE, 40, 20, 99, 1 }, { NONE, 40, 41, 99, 1 } } },
  { "backwards", BASE2, 2, 140, 16, 8, -4, F, F, GAPS, 0, 1, 0, 4,
    { { CAUSAL, 140, ALL }, { CAUSAL, 140, 139, 140, -1 }, { CAUSAL, 40, 120, 100, -1 }, { NONE, 40, 139, 140, -1 } } },
  { "backwards, few rows, then forwards", 0, 1, 140, 16, 8, 0, F, F, GAPS, 0, 1, 0, 4,
    { { NONE, 40, ALL }, { CAUSAL, 20, 70, 3, -1 }, { NONE, 30, ALL }, { NONE, 30, ALL } } },
  { "one row", 0, 3, 1, 64, 65, 0, F, F, GAPS, 0, 1, 0, 4,
    { { NONE, 300, ALL }, { NONE, 1, ALL }, { NONE, 128, ALL }, { NONE, 129, ALL } } },
  { "four rows, causal", BASE2 | POS_INF, 2, 4, 17, 33, -2, F, F, GAPS, 0, 1, 1, 4,
    { { CAUSAL, 9, ALL }, { CAUSAL, 9, 3, 4, -1 }, { TENSOR, 40, ALL }, { CAUSAL, 9, ALL } } },
  { "scores of 10^4", 0, 1, 70, 64, 17, 0, F, F, GAPS, 0, 3000, 0, 3,
    { { NONE, 50, ALL }, { CAUSAL, 70, ALL }, { NONE, 60, ALL } } },
  { "scores of 10^4, one row", BASE2, 1, 1, 64, 17, 0, F, F, GAPS, 0, 3000, 0, 3,
    { { NONE, 50, ALL }, { NONE, 70, ALL }, { NONE, 60, ALL } } },
  { "scores of 10^30", 0, 1, 70, 64, 17, 0, F, F, GAPS, 0, 1e30, 0, 3,
    { { NONE, 50, ALL }, { NONE, 70, ALL }, { NONE, 60, ALL } } },
  { "bf16", 0, 2, 70, 80, 65, 0, BF, F, GAPS, 0, 1, 0, 3, { { NONE, 150, ALL }, { CAUSAL, 70, ALL }, { NONE, 20, ALL } } },
  { "bf16 out", 0, 2, 70, 64, 67, 0, BF, BF, GAPS, 0, 1, 0.5, 3,
    { { NONE, 50, ALL }, { TENSOR, 70, ALL }, { NONE, 80, ALL } } },
  { "f16", BASE2, 2, 70, 80, 65, -8, H, F, GAPS, 0, 1, 0, 3, { { CAUSAL, 150, ALL }, { NONE, 70, ALL }, { NONE, 20, ALL } } },
  { "f16 out", 0, 2, 70, 64, 67, 0, H, H, GAPS, 0, 1, 0, 3,
    { { NONE, 50, ALL }, { CAUSAL, 70, ALL }, { NONE, 80, 69, 70, -1 } } },
  { "f16 out, one row", 0, 2, 1, 64, 67, 0, H, H, GAPS, 0, 1, 0, 2, { { NONE, 50, ALL }, { NONE, 70, ALL } } },
};

/* In one batch, one by one, and the first one alone. */
static const unsigned chain_cuts[] = { 0, ~0u, 1 };

static void chains_are_one_attention(void **state)
{
  int32_t isa;
  int64_t n, m;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(chain_cases); ++n) {
    chain  made;
    double unit;
    chain_create(&made, &chain_cases[n], (uint64_t)n);
    unit = chain_unit(&made);
    for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
      chain_use(&made, isa);
      for (m = 0; m < SUPPORT_COUNT(chain_cuts); ++m) {
        chain_run(&made, chain_cuts[m]);
        chain_compare(&made, unit, chain_writes(&chain_cases[n], chain_cuts[m]), twh_cpu_isa_name(isa));
        chain_gaps_are_untouched(&made);
      }
    }
    chain_destroy(&made);
  }
}

static const chain_case chain_diagonals[] = {
  { "poison in the first call", 0, 2, 140, 19, 7, 0, F, F, GAPS, 0, 1, 0, 3,
    { { CAUSAL, 140, ALL }, { NONE, 50, ALL }, { NONE, 60, ALL } } },
  { "poison in the last call", 0, 2, 140, 19, 7, 0, F, F, GAPS, 0, 1, 0, 3,
    { { NONE, 50, ALL }, { NONE, 60, ALL }, { CAUSAL, 140, ALL } } },
  { "poison, four rows", 0, 2, 4, 19, 7, 0, F, F, GAPS, 0, 1, 0, 2, { { NONE, 50, ALL }, { CAUSAL, 4, ALL } } },
};

/* The last keys of the causal call hold `key` and `value`: rows that do not see them are right, those that do are what follows
 * from it. */
static void chain_poison(const chain_case *from, double key, double value)
{
  chain   made;
  int32_t isa;
  double  lse;
  int64_t s, j, c, m, row, n = from->links[0].mode == CAUSAL ? 0 : from->n - 1;
  int64_t clean = from->q_len - (from->q_len > 20 ? 10 : 1);
  chain_create(&made, from, 31);
  for (s = 0; s < from->slots; ++s)
    for (j = clean; j < from->q_len; ++j) {
      for (c = 0; c < from->qk_dim; ++c) *chain_element(&made.tiles[n].call.k, s, j, c) = (float)key;
      for (c = 0; c < from->v_dim; ++c) *chain_element(&made.tiles[n].call.v, s, j, c) = (float)value;
    }
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
    chain_use(&made, isa);
    for (m = 0; m < SUPPORT_COUNT(chain_cuts); ++m) {
      chain_run(&made, chain_cuts[m]);
      for (s = 0; s < from->slots; ++s)
        for (row = 0; row < from->q_len; ++row) {
          const double *out = made.want.out + (s * from->q_len + row) * from->v_dim;
          for (c = 0; c < from->v_dim; ++c) {
            if (row < clean) support_assert_at_most(fabs(chain_out(&made, s, row, c) - out[c]), 3e-6, from->name);
            else if (isnan(key) || isnan(value)) assert_true(isnan(chain_out(&made, s, row, c)));
          }
          lse = chain_lse(&made, s, row);
          if (row < clean) support_assert_at_most(fabs(lse - made.want.lse[s * from->q_len + row]), 4e-6, from->name);
          else if (isnan(key)) assert_true(isnan(lse));
        }
    }
  }
  chain_destroy(&made);
}

static void poison_behind_the_diagonal_harms_no_one(void **state)
{
  static const double things[][2] = { { NAN, 1 }, { 1, NAN }, { INFINITY, 1 }, { 1, -INFINITY }, { 3e38, 3e38 } };
  int64_t             n, m;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(chain_diagonals); ++n)
    for (m = 0; m < SUPPORT_COUNT(things); ++m) chain_poison(&chain_diagonals[n], things[m][0], things[m][1]);
}

static const chain_case chain_large[] = {
  { "large values", POS_INF, 1, 60, 16, 7, -5, F, F, GAPS, 0, 1, 0, 3,
    { { CAUSAL, 70, ALL }, { NONE, 50, ALL }, { NONE, 60, ALL } } },
  { "large values, one row", BASE2, 1, 1, 16, 7, 0, F, F, GAPS, 0, 1, 0, 2, { { NONE, 50, ALL }, { NONE, 60, ALL } } },
  { "large values, fewer rows", BASE2 | POS_INF, 1, 60, 16, 7, 0, F, F, GAPS, 0, 1, 0, 2,
    { { NONE, 50, ALL }, { NONE, 60, 40, 30, -1 } } },
};

/* Sums of values that f32 cannot hold, though what becomes of them it can. */
static void sums_may_overflow(void **state)
{
  int32_t isa;
  int64_t n, i, r, c, m;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(chain_large); ++n) {
    chain made;
    chain_create(&made, &chain_large[n], 41);
    for (i = 0; i < made.made->n; ++i)
      for (r = 0; r < made.tiles[i].call.k_len; ++r)
        for (c = 0; c < made.made->v_dim; ++c) {
          float *v = chain_element(&made.tiles[i].call.v, 0, r, c);
          *v = c == 0 ? 3.4e38f : 1e38f * (*v > 3 ? 3 : *v < -3 ? -3 : *v);
        }
    chain_want_again(&made);
    for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
      chain_use(&made, isa);
      for (m = 0; m < SUPPORT_COUNT(chain_cuts); ++m) {
        chain_run(&made, chain_cuts[m]);
        for (r = 0; r < made.made->q_len; ++r) {
          double lse = made.want.lse[r];
          assert_true(chain_lse(&made, 0, r) == lse || fabs(chain_lse(&made, 0, r) - lse) < 3e-6);
          for (c = 0; c < made.made->v_dim; ++c) {
            double want = made.want.out[r * made.made->v_dim + c];
            support_assert_at_most(fabs(chain_out(&made, 0, r, c) - want), 1e33, made.made->name);
          }
        }
      }
    }
    chain_destroy(&made);
  }
}

/* What may stand in memory before: lse, and the numbers of out, NAN for any. */
typedef struct chain_before {
  double lse, out;
} chain_before;

enum { BEFORE_HOLE = 2 };

static const chain_before chain_befores[] = {
  { -INFINITY, NAN }, /* nothing, and no matter what stands there */
  { NAN, 1 },         /* a NaN stays one */
  { 2, NAN },         /* here in one column */
  { INFINITY, 0.5 },  /* more than f32 can say */
  { 1e30, 0.5 },  { 3e38, 0.5 }, { -1e30, 0.5 }, { -3e38, 0.5 }, { 1.3e30, 0.5 }, { 1.7e30, 0.5 }, { 1.9e30, 0.5 },
  { 2.3e30, 0.5 }, { 4, 3e38 }, { 2, 0.5 }, { -2, 0.25 }, { 1e4, 0.5 },
};

static const chain_case chain_continued[] = {
  { "before", 0, 1, 60, 16, 7, 0, F, F, GAPS, 0, 1, 0, 2, { { NONE, 30, ALL }, { NONE, 20, ALL } } },
  { "before, base 2", BASE2, 1, 60, 16, 7, 0, F, F, GAPS, 0, 1, 0, 2, { { NONE, 30, ALL }, { NONE, 20, ALL } } },
  { "before, bf16", 0, 1, 60, 16, 7, 0, BF, BF, GAPS, 0, 1, 0, 2, { { NONE, 30, ALL }, { NONE, 20, ALL } } },
  { "before, empty is +inf", POS_INF, 3, 4, 16, 7, 0, F, F, GAPS, 0, 1, 0, 2, { { NONE, 30, ALL }, { NONE, 20, ALL } } },
  { "before, lone rows", 0, 3, 4, 16, 7, 0, F, F, GAPS, 0, 1, 0, 2, { { NONE, 30, ALL }, { NONE, 20, ALL } } },
};

/* Write what stands before a row, and merge it into what is wanted; empty rows are wanted as they are. */
static void chain_put_before(chain *made, int64_t row)
{
  const twh_call     *call = &made->tiles[0].call;
  const chain_before *before = &chain_befores[row % SUPPORT_COUNT(chain_befores)];
  int64_t             s = row / call->q_len, i = row % call->q_len, c, dim = made->desc.v_dim;
  double              numbers[8], lse = before->lse;
  if (made->desc.flags & POS_INF && isinf(lse)) lse = INFINITY;
  made->lse[s * call->lse_slot_stride + i] = (float)lse;
  for (c = 0; c < dim; ++c) {
    double out = before == &chain_befores[BEFORE_HOLE] && c != 2 ? 0.5 : before->out;
    support_store(made->out, made->desc.out_dtype, s * call->out_slot_stride + i * call->out_row_stride + c, out);
    numbers[c] = support_load(made->out, made->desc.out_dtype, s * call->out_slot_stride + i * call->out_row_stride + c);
  }
  if (isinf(lse) && !chain_is_empty(made, lse)) {
    lse = 1e300; /* f32 makes infinity of it */
    made->want.lse[row] = lse;
    for (c = 0; c < dim; ++c) made->want.out[row * dim + c] = numbers[c];
  } else if (isnan(lse)) {
    made->want.lse[row] = NAN;
    for (c = 0; c < dim; ++c) made->want.out[row * dim + c] = NAN;
  } else
    chain_merge(made, made->want.out + row * dim, &made->want.lse[row], numbers, lse);
}

static void chain_compare_before(const chain *made, const tile_result *want)
{
  double  rounding = made->desc.out_dtype == F ? 1e-6 : 0.01;
  int64_t row, c, q_len = made->made->q_len, dim = made->desc.v_dim;
  for (row = 0; row < want->rows; ++row) {
    double got = chain_lse(made, row / q_len, row % q_len), lse = (double)(float)want->lse[row];
    if (isnan(lse)) assert_true(isnan(got));
    else assert_true(got == lse || fabs(got - lse) <= 4e-6 + 3e-7 * fabs(lse));
    for (c = 0; c < dim; ++c) {
      double out = want->out[row * dim + c];
      got = chain_out(made, row / q_len, row % q_len, c);
      if (isnan(out) ? !isnan(got) : !(fabs(got - out) <= 4e-6 + rounding * (1.0 + fabs(out))))
        fail_msg("%s: row %lld, column %lld is %.9g, not %.9g", made->made->name, (long long)row, (long long)c, got, out);
    }
  }
}

static void anything_may_stand_before(void **state)
{
  int32_t isa;
  int64_t n, m, row;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(chain_continued); ++n)
    for (m = 0; m < 2; ++m) {
      chain made;
      chain_create(&made, &chain_continued[n], 51);
      made.tiles[0].call.flags = TWH_CALL_CONTINUES;
      made.tiles[0].call.lse_row_stride = 1;
      for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
        chain_want_again(&made);
        for (row = 0; row < made.want.rows; ++row) chain_put_before(&made, row);
        chain_use(&made, isa);
        chain_run(&made, chain_cuts[m]);
        chain_compare_before(&made, &made.want);
      }
      chain_destroy(&made);
    }
}

static const chain_case chain_unseen[] = {
  { "unseen rows", 0, 2, 140, 16, 7, -70, F, F, GAPS, 0, 1, 0, 2, { { CAUSAL, 140, ALL }, { CAUSAL, 100, ALL } } },
  { "unseen rows, bf16", BASE2, 2, 140, 16, 7, -70, BF, BF, GAPS, 0, 1, 0, 2, { { CAUSAL, 140, ALL }, { CAUSAL, 100, ALL } } },
  { "unseen rows, f16", POS_INF, 2, 140, 16, 7, -70, H, H, GAPS, 0, 1, 0, 2, { { CAUSAL, 140, ALL }, { CAUSAL, 100, ALL } } },
  { "unseen lone rows", 0, 2, 4, 16, 7, -2, F, F, GAPS, 0, 1, 0, 2, { { CAUSAL, 140, ALL }, { CAUSAL, 100, ALL } } },
};

/* Rows that see no key keep every bit, whatever it says. */
static void unseen_rows_keep_what_they_have(void **state)
{
  int32_t isa;
  int64_t n, m, i, s, at;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(chain_unseen); ++n)
    for (m = 0; m < 2; ++m) {
      chain           made;
      support_random  random = support_random_at(61, 0);
      const twh_call *call = &made.tiles[0].call;
      unsigned char  *out;
      float          *lse;
      int64_t         item, bytes;
      chain_create(&made, &chain_unseen[n], 61);
      item = support_bytes(made.desc.out_dtype);
      bytes = made.out_numbers * item;
      out = (unsigned char *)malloc((size_t)bytes);
      lse = (float *)malloc((size_t)made.lse_numbers * sizeof(float));
      assert_true(out && lse);
      made.tiles[0].call.flags = TWH_CALL_CONTINUES;
      made.tiles[0].call.lse_row_stride = 1;
      for (i = 0; i < made.out_numbers; ++i) support_store(out, made.desc.out_dtype, i, support_normal(&random));
      for (i = 0; i < made.lse_numbers; ++i) lse[i] = (float)(5.0 * support_normal(&random));
      for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
        chain_use(&made, isa);
        memcpy(made.out, out, (size_t)bytes);
        memcpy(made.lse, lse, (size_t)made.lse_numbers * sizeof(float));
        chain_run(&made, chain_cuts[m]);
        for (s = 0; s < made.made->slots; ++s)
          for (i = 0; i < made.made->q_len; ++i) {
            at = s * call->out_slot_stride + i * call->out_row_stride;
            if (i < -made.made->causal_offset) {
              assert_memory_equal(made.out + at * item, out + at * item, (size_t)(made.desc.v_dim * item));
              assert_true(made.lse[s * call->lse_slot_stride + i] == lse[s * call->lse_slot_stride + i]);
            } else
              assert_true(memcmp(made.out + at * item, out + at * item, (size_t)(made.desc.v_dim * item)) != 0);
          }
      }
      free(out);
      free(lse);
      chain_destroy(&made);
    }
}

/* A chain between others, and between calls that are none: the same bits. */
static void bits_do_not_depend_on_other_chains(void **state)
{
  static const chain_case from = { "bits", 0, 2, 133, 24, 25, 0, F, F, GAPS, 0, 1, 0, 3,
                                   { { CAUSAL, 150, ALL }, { NONE, 129, ALL }, { NONE, 40, ALL } } };
  int32_t                 isa;
  int64_t                 n;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
    const twh_call *calls[9];
    unsigned char  *out;
    float          *lse;
    chain           made, other;
    size_t          bytes, lse_bytes;
    chain_create(&made, &from, 71);
    chain_create(&other, &from, 72);
    chain_use(&made, isa);
    bytes = (size_t)made.out_numbers * 4;
    lse_bytes = (size_t)made.lse_numbers * 4;
    chain_run(&made, 0);
    out = (unsigned char *)malloc(bytes);
    lse = (float *)malloc(lse_bytes);
    assert_true(out && lse);
    memcpy(out, made.out, bytes);
    memcpy(lse, made.lse, lse_bytes);
    memset(made.out, SUPPORT_POISON, bytes);
    memset(made.lse, SUPPORT_POISON, lse_bytes);
    for (n = 0; n < 9; ++n) calls[n] = n / 3 == 1 ? &made.tiles[n % 3].call : &other.tiles[n % 3].call;
    assert_int_equal(made.desc.run(made.desc.user, calls, 9), 0);
    assert_memory_equal(made.out, out, bytes);
    assert_memory_equal(made.lse, lse, lse_bytes);
    free(out);
    free(lse);
    chain_destroy(&made);
    chain_destroy(&other);
  }
}

/* However large the calls are. */
static void batches_have_room_for_chains(void **state)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  (void)state;
  cpu_desc(&desc, 1, 4096, 4096, 4, 4);
  desc.flags |= CONTINUES;
  oracle = cpu_oracle(&desc, TWH_CPU_ISA_BEST);
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  assert_int_equal(desc.max_calls_per_batch, 16);
  twh_oracle_destroy(oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(chains_are_one_attention),
    cmocka_unit_test(poison_behind_the_diagonal_harms_no_one),
    cmocka_unit_test(sums_may_overflow),
    cmocka_unit_test(anything_may_stand_before),
    cmocka_unit_test(unseen_rows_keep_what_they_have),
    cmocka_unit_test(bits_do_not_depend_on_other_chains),
    cmocka_unit_test(batches_have_room_for_chains),
  };
  cpu_say_isas();
  return cmocka_run_group_tests_name("calls that continue others", tests, NULL, NULL);
}
