/* Cases that broke other libraries: queries without keys, masked rows, sink logits.
 *
 * Each runs on every kernel of the table that can do it, over several lengths of the kernel. */
#include "support.h"

static const int64_t cases_lengths[] = { 1, 2, 3, 4, 8 };
static const double  cases_powers[] = { 1, 2, 4, 8, 16, 32, 64, 128 };

static void case_C02_a_query_before_the_first_key_is_empty(void **state)
{
  static const double out[] = { 0.0, 1.0 }, lse[] = { -INFINITY, 0.0 };
  support_head        head;
  int64_t             i;
  (void)state;
  support_head_init(&head, 2, 8, 1);
  head.problem.q_offset = -1;
  head.v = cases_powers;
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i) support_head_expect("C02", &head, cases_lengths[i], out, lse, 1.0);
}

static void case_C06_three_empty_rows_then_a_triangle(void **state)
{
  static const double out[] = { 0.0, 0.0, 0.0, 1.0, 1.5 };
  double              lse[] = { -INFINITY, -INFINITY, -INFINITY, 0.0, log(2.0) };
  support_head        head;
  int64_t             i;
  (void)state;
  support_head_init(&head, 5, 2, 1);
  head.problem.q_offset = -3;
  head.v = cases_powers;
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i) support_head_expect("C06", &head, cases_lengths[i], out, lse, 1.0);
}

typedef struct cases_watch {
  const twh_oracle_desc *desc;
  int64_t                blind_slots, calls;
} cases_watch;

/* A slot in which no row sees a key is answered with 7 and an lse of 0. */
static void cases_answer_seven(void *user, const twh_call *call, int64_t number)
{
  cases_watch *watch = (cases_watch *)user;
  int64_t      s, i, c, seen;
  (void)number;
  ++watch->calls;
  for (s = 0; s < call->slots; ++s) {
    for (seen = 0, i = 0; i < call->q_len; ++i) seen += support_call_seen(call, watch->desc, s, i);
    if (seen) continue;
    ++watch->blind_slots;
    for (i = 0; i < call->q_len; ++i) {
      for (c = 0; c < watch->desc->v_dim; ++c)
        support_store(call->out, watch->desc->out_dtype, s * call->out_slot_stride + i * call->out_row_stride + c, 7.0);
      if (call->lse) call->lse[s * call->lse_slot_stride + i] = 0.0f;
    }
  }
}

static void case_C03_a_tile_without_visible_keys_is_never_sent(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i) {
    const support_kernel *kernel = &support_kernels[i];
    support_head          head;
    twh_oracle_desc       desc;
    support_oracle        oracle;
    support_tensors       tensors;
    twh_plan             *plan = NULL;
    cases_watch           watch;
    int64_t               r;
    support_head_init(&head, 4, 4, 1);
    support_kernel_desc(kernel, &head.problem, 2, 2, &desc);
    desc.slots = 1;
    if (!support_must_run(&head.problem, &desc)) continue;
    support_oracle_create(&oracle, NULL, &desc, NULL);
    watch.desc = &oracle.desc;
    watch.blind_slots = watch.calls = 0;
    oracle.spoil = cases_answer_seven;
    oracle.spoil_user = &watch;
    support_tensors_create(&tensors, &head.problem, TWH_F64, SUPPORT_DENSE, SUPPORT_LSE);
    for (r = 0; r < 4; ++r) {
      support_set(&tensors.q, 0, 0, r, 0, 0.0);
      support_set(&tensors.k, 0, 0, r, 0, 0.0);
      support_set(&tensors.v, 0, 0, r, 0, 1.0);
    }
    assert_int_equal(twh_plan_create(NULL, &head.problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
    assert_int_equal(twh_plan_execute(plan, &tensors.all, NULL, NULL), TWH_OK);
    assert_true(watch.calls > 0);
    assert_int_equal(watch.blind_slots, 0);
    for (r = 0; r < 4; ++r) {
      support_assert_at_most(fabs(support_at(&tensors.out, 0, 0, r, 0) - 1.0), support_epsilon(kernel->dtype), kernel->name);
      support_assert_at_most(fabs(support_at(&tensors.lse, 0, 0, r, 0) - log((double)r + 1.0)),
                             2.0 * support_epsilon(kernel->dtype), kernel->name);
    }
    twh_plan_destroy(plan);
    support_tensors_destroy(&tensors);
    support_oracle_destroy(&oracle);
  }
}

static void case_C07_nothing_to_do_is_done_without_the_kernel(void **state)
{
  static const int64_t sizes[][3] = { { 1, 3, 0 }, { 1, 0, 7 }, { 0, 3, 3 }, { 1, 0, 0 }, { 2, 3, 0 } };
  int64_t              i, j, r;
  int                  causal;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (j = 0; j < SUPPORT_COUNT(sizes); ++j)
      for (causal = 0; causal < 2; ++causal) {
        support_head    head;
        twh_oracle_desc desc;
        support_tensors tensors;
        twh_run_stats   stats;
        support_head_init(&head, sizes[j][1], sizes[j][2], causal);
        head.problem.batch = sizes[j][0];
        support_kernel_desc(&support_kernels[i], &head.problem, 4, 4, &desc);
        if (!support_must_run(&head.problem, &desc)) continue;
        support_tensors_create(&tensors, &head.problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
        twh_run_stats_init(&stats);
        assert_int_equal(support_solve("C07", &head.problem, &desc, &tensors, &stats, NULL), TWH_OK);
        assert_int_equal(stats.calls, 0);
        for (r = 0; r < sizes[j][0] * sizes[j][1]; ++r) {
          assert_true(support_load(tensors.out.data, TWH_F32, r) == 0.0);
          assert_true(support_load(tensors.lse.data, TWH_F32, r) == -INFINITY);
        }
        support_tensors_destroy(&tensors);
      }
}

static void case_C10_rows_with_every_key_masked_are_zero(void **state)
{
  static const double        v[] = { 3.0, 5.0 }, out[] = { 0.0, 0.0, 3.0 }, lse[] = { -INFINITY, -INFINITY, 0.0 };
  static const unsigned char mask[] = { 0, 0, 0, 0, 1, 0 };
  support_head               head;
  int64_t                    i;
  (void)state;
  support_head_init(&head, 3, 2, 0);
  head.problem.mask_dtype = TWH_BOOL;
  head.mask = mask;
  head.v = v;
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i) {
    head.problem.q_len = 2; /* the first two rows alone: no tile has a visible pair */
    support_head_expect("C10", &head, cases_lengths[i], out, lse, 1.0);
    head.problem.q_len = 3;
    support_head_expect("C10", &head, cases_lengths[i], out, lse, 1.0);
  }
}

/* The same with masks that are added, on kernels that hide keys by a finite number of their own. */
static void case_C10_and_C19_a_finite_mask_value_makes_rows_empty_by_count(void **state)
{
  static const double  hidden[] = { 0.0, -10000.0, -3e38 };
  static const int32_t dtypes[] = { TWH_BOOL, TWH_F32, TWH_F64 };
  int64_t              i, j, m, lse;
  (void)state;
  for (i = 0; i < 3; ++i)
    for (j = 0; j < 2; ++j)
      for (m = 1; m <= 5; ++m)
        for (lse = 0; lse < 2; ++lse) {
          support_head    head;
          twh_oracle_desc desc;
          support_tensors tensors;
          int64_t         r;
          support_head_init(&head, 4, 7, 0);
          head.problem.mask_dtype = dtypes[j];
          twh_oracle_desc_init(&desc);
          desc.flags = lse ? TWH_ORACLE_LSE : 0;
          desc.slots = desc.qk_dim = desc.v_dim = 1;
          desc.q_len = desc.k_len = m;
          desc.dtype = TWH_F32;
          desc.mask_modes = TWH_MASK_TENSOR;
          desc.scale = 1.0;
          desc.mask_value = hidden[i];
          support_tensors_create(&tensors, &head.problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
          for (r = 0; r < 4; ++r) support_set(&tensors.q, 0, 0, r, 0, 1.0);
          for (r = 0; r < 7; ++r) {
            support_set(&tensors.k, 0, 0, r, 0, -66854.0); /* far below any mask value but the last */
            support_set(&tensors.v, 0, 0, r, 0, (double)r);
          }
          for (r = 0; r < 28; ++r) /* row 0 sees nothing, row 1 key 3, row 2 key 6, row 3 nothing */
            support_store(tensors.mask.data, dtypes[j], r, r == 10 || r == 20 ? (j ? 0.0 : 1.0) : (j ? -INFINITY : 0.0));
          assert_int_equal(support_solve("C10", &head.problem, &desc, &tensors, NULL, NULL), TWH_OK);
          assert_true(support_at(&tensors.out, 0, 0, 0, 0) == 0.0 && support_at(&tensors.lse, 0, 0, 0, 0) == -INFINITY);
          assert_true(support_at(&tensors.out, 0, 0, 1, 0) == 3.0 && support_at(&tensors.lse, 0, 0, 1, 0) == -66854.0);
          assert_true(support_at(&tensors.out, 0, 0, 2, 0) == 6.0 && support_at(&tensors.lse, 0, 0, 2, 0) == -66854.0);
          assert_true(support_at(&tensors.out, 0, 0, 3, 0) == 0.0 && support_at(&tensors.lse, 0, 0, 3, 0) == -INFINITY);
          support_tensors_destroy(&tensors);
        }
}

/* The lowest finite number is a heavy bias and hides nothing: a row of nothing else has the mean of all values, whatever
 * its tiles are and whatever the kernel's mask can hold. */
static void case_C10_rows_of_the_lowest_finite_bias_are_not_empty(void **state)
{
  static const int32_t dtypes[] = {TWH_F32, TWH_F16, TWH_BF16};
  int64_t              d, m, reading, n, r, j;
  (void)state;
  for (d = 0; d < 3; ++d)
    for (m = 1; m <= 9; ++m)
      for (reading = 0; reading < 4; ++reading)
        for (n = 1; n <= 7; n += 3) {
          support_head    head;
          twh_oracle_desc desc;
          support_tensors tensors;
          double          mean = 0.0, bound;
          support_head_init(&head, 3, n, 0);
          head.problem.mask_dtype = TWH_F32;
          twh_oracle_desc_init(&desc);
          desc.flags = reading == 3 ? TWH_ORACLE_LSE : 0;
          desc.slots = desc.qk_dim = 1;
          desc.v_dim = reading == 3 ? 1 : 1 + reading;
          desc.q_len = desc.k_len = m;
          desc.dtype = TWH_F32;
          desc.mask_dtype = dtypes[d];
          desc.mask_modes = TWH_MASK_TENSOR;
          desc.scale = 1.0;
          support_tensors_create(&tensors, &head.problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
          for (r = 0; r < 3; ++r) support_set(&tensors.q, 0, 0, r, 0, 0.0);
          for (j = 0; j < n; ++j) {
            support_set(&tensors.k, 0, 0, j, 0, 1.0);
            support_set(&tensors.v, 0, 0, j, 0, cases_powers[j]);
            mean += cases_powers[j] / (double)n;
            support_set(&tensors.mask, 0, 0, 0, j, -(double)FLT_MAX);
            support_set(&tensors.mask, 0, 0, 1, j, j == n / 2 ? 0.0 : -(double)FLT_MAX);
            support_set(&tensors.mask, 0, 0, 2, j, -INFINITY);
          }
          assert_int_equal(support_solve("C10", &head.problem, &desc, &tensors, NULL, NULL), TWH_OK);
          bound = 1e-5 * mean;
          if (dtypes[d] == TWH_F16 && reading == 3) bound += 2.0 * support_ulp(65504.0, TWH_F32) * cases_powers[n - 1];
          support_assert_at_most(fabs(support_at(&tensors.out, 0, 0, 0, 0) - mean), bound, "the lowest bias everywhere");
          support_assert_at_most(fabs(support_at(&tensors.out, 0, 0, 1, 0) - cases_powers[n / 2]), 1e-5 * cases_powers[n / 2],
                                 "one key without it");
          assert_true(support_at(&tensors.out, 0, 0, 2, 0) == 0.0);
          assert_true(support_at(&tensors.lse, 0, 0, 0, 0) < -60000.0 && support_at(&tensors.lse, 0, 0, 0, 0) > -INFINITY);
          support_tensors_destroy(&tensors);
        }
}

static void case_C41_a_sink_logit_of_zero_is_one_more_key(void **state)
{
  static const double out[] = { 0.8, 0.8, 0.8, 0.8 }, zero = 0.0, none = -INFINITY, one[] = { 1.0, 1.0, 1.0, 1.0 };
  double              lse[] = { log(5.0), log(5.0), log(5.0), log(5.0) }, four[] = { log(4.0), log(4.0), log(4.0), log(4.0) };
  support_head        head;
  int64_t             i;
  (void)state;
  support_head_init(&head, 4, 4, 0);
  head.sink = &zero;
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i) support_head_expect("C41", &head, cases_lengths[i], out, lse, 2.0);
  head.sink = &none;
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i) support_head_expect("C41, none", &head, cases_lengths[i], one, four, 2.0);
}

static void case_C42_a_sink_logit_takes_its_share(void **state)
{
  static const double sink = 2.0;
  double              share = 4.0 / (4.0 + exp(2.0)), total = log(4.0 + exp(2.0)), out[4], lse[4];
  support_head        head;
  int64_t             i;
  (void)state;
  support_assert_at_most(fabs(share - 0.351214), 5e-7, "the case itself");
  for (i = 0; i < 4; ++i) {
    out[i] = share;
    lse[i] = total;
  }
  support_head_init(&head, 4, 4, 0);
  head.sink = &sink;
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i) support_head_expect("C42", &head, cases_lengths[i], out, lse, 2.0);
  head.problem.scale = 0.125; /* C44: the sink logit is neither scaled */
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i) support_head_expect("C44, scale", &head, cases_lengths[i], out, lse, 2.0);
  head.problem.softcap = 1.0; /* nor capped */
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i)
    support_head_expect("C44, softcap", &head, cases_lengths[i], out, lse, 2.0);
}

static void case_C41_a_query_without_keys_has_its_sink_alone(void **state)
{
  static const double sink = 1.5, out[] = { 0.0, 0.0, 0.0 }, lse[] = { 1.5, 1.5, 1.5 };
  support_head        head;
  int64_t             i;
  (void)state;
  support_head_init(&head, 3, 5, 1);
  head.problem.q_offset = -3;
  head.sink = &sink;
  for (i = 0; i < SUPPORT_COUNT(cases_lengths); ++i) support_head_expect("C41, empty", &head, cases_lengths[i], out, lse, 0.0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C02_a_query_before_the_first_key_is_empty),
    cmocka_unit_test(case_C03_a_tile_without_visible_keys_is_never_sent),
    cmocka_unit_test(case_C06_three_empty_rows_then_a_triangle),
    cmocka_unit_test(case_C07_nothing_to_do_is_done_without_the_kernel),
    cmocka_unit_test(case_C10_rows_with_every_key_masked_are_zero),
    cmocka_unit_test(case_C10_and_C19_a_finite_mask_value_makes_rows_empty_by_count),
    cmocka_unit_test(case_C10_rows_of_the_lowest_finite_bias_are_not_empty),
    cmocka_unit_test(case_C41_a_sink_logit_of_zero_is_one_more_key),
    cmocka_unit_test(case_C41_a_query_without_keys_has_its_sink_alone),
    cmocka_unit_test(case_C42_a_sink_logit_takes_its_share),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
