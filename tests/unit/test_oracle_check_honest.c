/* The check of a kernel against its own description finds nothing untrue in honest ones: every data type, mask mode and
 * capability, shapes down to 1, and with all the rounding that kernels do. */
#include "support_liar.h"

typedef struct honest_shape {
  int64_t slots, q_len, k_len, qk_dim, v_dim;
} honest_shape;

static const honest_shape honest_shapes[] = {
  { 2, 20, 24, 8, 5 }, { 1, 1, 1, 1, 1 }, { 3, 5, 40, 2, 1 }, { 1, 33, 7, 1, 4 }, { 4, 1, 17, 16, 3 }, { 2, 2, 2, 3, 2 },
};

static const honest_shape honest_long_shape = { 1, 12, 1000, 4, 3 };

static void honest_assert(const twh_oracle_desc *desc, liar_lie manner, const char *name)
{
  liar     it;
  verdicts all;
  int64_t  untrue;
  liar_create(&it, desc, manner);
  untrue = verdicts_get(&all, it.oracle);
  twh_oracle_destroy(it.oracle);
  if (untrue == 0) return;
  print_error("%s: %s %lld slots, %lld x %lld, dims %lld, %lld, modes %u, flags 0x%x, softcap %g, scale %g: %s\n%s\n", name,
              desc->dtype == TWH_F32 ? "f32" : desc->dtype == TWH_F16 ? "f16" : "bf16", (long long)desc->slots,
              (long long)desc->q_len, (long long)desc->k_len, (long long)desc->qk_dim, (long long)desc->v_dim,
              (unsigned)desc->mask_modes, (unsigned)desc->flags, desc->softcap, desc->scale, all.untrue, all.details);
  fail();
}

static void oracle_check_honest_kernels_have_nothing_untrue(void **state)
{
  static const int32_t  dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  static const uint32_t lse[] = { 0, TWH_ORACLE_LSE, TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES,
                                  TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES | TWH_ORACLE_LSE_BASE2 | TWH_ORACLE_EMPTY_LSE_POS_INF };
  (void)state;
  for (int64_t shape = 0; shape < SUPPORT_COUNT(honest_shapes); ++shape)
    for (int64_t dtype = 0; dtype < 3; ++dtype)
      for (uint32_t modes = 1; modes < 8; ++modes)
        for (int64_t l = 0; l < SUPPORT_COUNT(lse); ++l) {
          const honest_shape *size = &honest_shapes[shape];
          twh_oracle_desc     desc;
          liar_desc(&desc);
          desc.slots = size->slots;
          desc.q_len = size->q_len;
          desc.k_len = size->k_len;
          desc.qk_dim = size->qk_dim;
          desc.v_dim = size->v_dim;
          desc.scale = 1 / sqrt((double)size->qk_dim);
          desc.dtype = dtypes[dtype];
          desc.mask_modes = modes;
          desc.flags = lse[l];
          honest_assert(&desc, (shape + l) % 2 ? ROUNDS_EVERYTHING : HONEST, "plain");
        }
}

static void oracle_check_honest_kernels_with_every_capability_have_nothing_untrue(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 }, masks[] = { TWH_BOOL, TWH_F32, TWH_F16, TWH_BF16, TWH_F64 };
  static const double  scales[] = { 0.125, 1, -0.25, 3, 0.01, 1e-3 }, caps[] = { 0, 5, 0, 50 };
  (void)state;
  for (int64_t i = 0; i < 120; ++i) {
    support_random      random = support_random_at(support_seed(7), (uint64_t)i);
    const honest_shape *size = &honest_shapes[support_below(&random, SUPPORT_COUNT(honest_shapes))];
    twh_oracle_desc     desc;
    liar_desc(&desc);
    desc.slots = size->slots;
    desc.q_len = size->q_len;
    desc.k_len = size->k_len;
    desc.qk_dim = size->qk_dim;
    desc.v_dim = size->v_dim;
    desc.dtype = dtypes[support_below(&random, 3)];
    desc.out_dtype = support_one_in(&random, 3) ? dtypes[support_below(&random, 3)] : 0;
    desc.mask_modes = (uint32_t)support_between(&random, 1, 7);
    desc.mask_dtype = masks[support_below(&random, SUPPORT_COUNT(masks))];
    desc.flags = TWH_ORACLE_STRIDED | TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_FEWER_SLOTS;
    if (i % 3 != 0) desc.flags |= TWH_ORACLE_BACKWARDS;
    if (support_one_in(&random, 2)) desc.flags |= TWH_ORACLE_LSE | (i % 4 ? TWH_ORACLE_CONTINUES : 0);
    if (support_one_in(&random, 3)) desc.flags |= TWH_ORACLE_SCALE_PER_CALL;
    if ((desc.flags & TWH_ORACLE_LSE) && support_one_in(&random, 2)) desc.flags |= TWH_ORACLE_LSE_BASE2;
    desc.scale = scales[support_below(&random, SUPPORT_COUNT(scales))];
    desc.softcap = caps[support_below(&random, SUPPORT_COUNT(caps))];
    if (desc.mask_modes & TWH_MASK_CAUSAL) desc.causal_offset = support_between(&random, 1 - desc.q_len, desc.k_len - 1);
    if ((desc.mask_modes & TWH_MASK_TENSOR) && desc.mask_dtype != TWH_BOOL && support_one_in(&random, 3))
      desc.mask_value = -1e4;
    if (desc.q_len % 5 == 0) desc.q_len_step = 5;
    if (desc.k_len > 3) desc.k_len_min = 3;
    desc.alignment = (int64_t)1 << support_below(&random, 8);
    honest_assert(&desc, support_one_in(&random, 2) ? ROUNDS_EVERYTHING : HONEST, "everything");
  }
}

/* Small weights in narrow types: the bounds must know them. */
static void oracle_check_honest_kernels_of_many_keys_have_nothing_untrue(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  (void)state;
  for (int64_t i = 0; i < 3; ++i) {
    twh_oracle_desc desc;
    liar_desc(&desc);
    desc.slots = honest_long_shape.slots;
    desc.q_len = honest_long_shape.q_len;
    desc.k_len = honest_long_shape.k_len;
    desc.qk_dim = honest_long_shape.qk_dim;
    desc.v_dim = honest_long_shape.v_dim;
    desc.dtype = dtypes[i];
    desc.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL | TWH_MASK_TENSOR;
    desc.flags = TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES;
    honest_assert(&desc, ROUNDS_EVERYTHING, "many keys, everything rounded");
    honest_assert(&desc, HONEST, "many keys");
  }
}

static void oracle_check_declared_f16_scores_are_allowed_for(void **state)
{
  twh_oracle_desc desc;
  (void)state;
  liar_desc(&desc);
  desc.flags = TWH_ORACLE_F16_SCORES | TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES;
  honest_assert(&desc, SCORES_IN_F16, "f16 scores");
}

static void oracle_check_pointers_are_aligned_to_no_more_than_declared(void **state)
{
  twh_oracle_desc desc;
  verdicts        all;
  liar            it;
  (void)state;
  liar_desc(&desc);
  desc.alignment = 256;
  liar_create(&it, &desc, HONEST);
  assert_int_equal(verdicts_get(&all, it.oracle), 0);
  assert_int_equal(it.aligned_twice, 0);
  assert_true(it.calls > 0);
  twh_oracle_destroy(it.oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(oracle_check_honest_kernels_have_nothing_untrue),
    cmocka_unit_test(oracle_check_honest_kernels_with_every_capability_have_nothing_untrue),
    cmocka_unit_test(oracle_check_honest_kernels_of_many_keys_have_nothing_untrue),
    cmocka_unit_test(oracle_check_declared_f16_scores_are_allowed_for),
    cmocka_unit_test(oracle_check_pointers_are_aligned_to_no_more_than_declared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
