/* Errors of sampled attention estimated from replicates: how often the bound holds, beside the true error in float64; where it is
 * zero; what is refused; and the quantiles it is made of. */
#include "support_estimate.h"

#include "core/plan/problem.h"

enum { ESTIMATE_M = 16, ESTIMATE_ROWS = 1024 };

static void estimate_begin(support_estimate *s, int64_t v_dim, int64_t samples, double std, int causal, uint64_t seed)
{
  support_estimate_init(s, ESTIMATE_ROWS, ESTIMATE_M, v_dim);
  s->pattern.flags = causal ? TWH_CAUSAL : 0;
  s->fill.logit_std = std;
  s->options.estimate = TWH_ESTIMATE_REPLICATES;
  s->options.samples = samples;
  support_estimate_begin(s, NULL, seed);
  support_estimate_execute(s);
}

static void bounds_hold_as_often_as_they_say(void **state)
{
  (void)state;
  assert_true(support_estimate_covers(TWH_ESTIMATE_REPLICATES) >= 20);
}

/* Where all keys are computed nothing is estimated: the first blocks of causal rows, and samples that are as many as the keys. */
static void what_is_exact_has_no_error(void **state)
{
  support_estimate s;
  int64_t          r;
  (void)state;
  estimate_begin(&s, 8, 3, 1, 1, 5);
  for (r = 0; r < ESTIMATE_ROWS; ++r) assert_true((s.bounds[r] == 0) == (r < 4 * ESTIMATE_M));
  support_estimate_end(&s);
  estimate_begin(&s, 8, 64, 1, 0, 5);
  for (r = 0; r < ESTIMATE_ROWS; ++r) assert_true(s.bounds[r] == 0);
  support_estimate_end(&s);
}

/* Larger logits, larger errors, and more samples, smaller ones: by as much as they must. */
static void bounds_follow_the_errors(void **state)
{
  static const struct {
    int64_t samples;
    double  std;
  } cases[3] = { { 2, 0.5 }, { 8, 0.5 }, { 2, 1.5 } };
  double           mean[3] = { 0, 0, 0 };
  support_estimate s;
  int64_t          i, r;
  (void)state;
  for (i = 0; i < 3; ++i) {
    estimate_begin(&s, 16, cases[i].samples, cases[i].std, 0, 6);
    for (r = 0; r < ESTIMATE_ROWS; ++r) mean[i] += s.bounds[r] / ESTIMATE_ROWS;
    support_estimate_end(&s);
  }
  assert_true(mean[1] < 0.5 * mean[0] &&
              mean[1] > 0.25 * mean[0]); /* four times the keys: half the error, and a better quantile */
  assert_true(mean[2] > 1.5 * mean[0]);
}

/* An estimate from samples that are there anyway takes no call and changes no bit. */
static void replicates_take_no_calls(void **state)
{
  support_estimate with, without;
  (void)state;
  estimate_begin(&with, 8, 3, 1, 1, 5);
  support_estimate_init(&without, ESTIMATE_ROWS, ESTIMATE_M, 8);
  without.pattern.flags = TWH_CAUSAL;
  without.options.estimate = TWH_ESTIMATE_NONE;
  without.options.samples = 3;
  support_estimate_begin(&without, NULL, 5);
  support_estimate_execute(&without);
  assert_int_equal(with.info.calls, without.info.calls);
  assert_int_equal(with.info.estimate_calls, 0);
  assert_memory_equal(with.tensors.memory[3], without.tensors.memory[3], with.tensors.bytes[3]);
  support_estimate_end(&with);
  support_estimate_end(&without);
}

static void estimates_are_refused_where_there_can_be_none(void **state)
{
  support_estimate s;
  twh_plan        *plan;
  twh_oracle      *oracle = NULL;
  twh_error        error;
  (void)state;
  twh_error_init(&error);
  support_estimate_init(&s, 100, 8, 4);
  s.desc.mask_modes = TWH_MASK_CAUSAL;
  assert_int_equal(twh_reference_oracle_create(NULL, &s.desc, NULL, &oracle, NULL), TWH_OK);
  s.options.estimate = TWH_ESTIMATE_REPLICATES;
  s.options.method = TWH_METHOD_EXACT;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_ARGUMENT, &error,
                        "estimate");
  s.options.method = TWH_METHOD_SAMPLED;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_ARGUMENT, &error,
                        "samples");
  s.options.samples = s.options.strata = 2;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_ARGUMENT, &error,
                        "strata");
  s.options.strata = 1;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_UNSUPPORTED, &error,
                        "unmasked");
  s.options.estimate = 99;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_VERSION, &error,
                        "estimate");
  s.options.estimate = -1;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_VERSION, &error,
                        "estimate");
  twh_oracle_destroy(oracle);
}

/* Where nothing is drawn any kernel will do, and the cheapest is taken. */
static void short_problems_are_not_refused(void **state)
{
  int64_t length, m;
  (void)state;
  for (m = 1; m <= 6; ++m)
    for (length = 0; length <= 2 * m; ++length) {
      support_estimate s;
      int64_t          r;
      support_estimate_init(&s, length, m, 4);
      s.options.estimate = TWH_ESTIMATE_REPLICATES;
      s.options.samples = 2;
      support_estimate_begin(&s, NULL, 1);
      assert_int_equal(s.info.drawn_tiles, 0);
      support_estimate_execute(&s);
      for (r = 0; r < length; ++r) assert_true(s.bounds[r] == 0);
      support_estimate_end(&s);
    }
}

/* One sample that outweighs the others by so much that nothing can be said of those: the bound is infinite, not next to 0. */
static void one_sample_that_outweighs_the_others_leaves_all_open(void **state)
{
  static const double by[] = { 0, 30, 500 };
  int64_t             i, r;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(by); ++i) {
    support_estimate s;
    int64_t          infinite = 0;
    support_estimate_init(&s, ESTIMATE_ROWS, ESTIMATE_M, 8);
    s.problem.flags = TWH_PROBLEM_KEY_BIAS;
    s.desc.qk_dim += 16;
    s.options.estimate = TWH_ESTIMATE_REPLICATES;
    s.options.samples = 2;
    support_estimate_begin(&s, NULL, 5);
    for (r = 0; r < ESTIMATE_ROWS; ++r) support_set(&s.tensors.key_bias, 0, 0, r, 0, r % 64 == 5 ? by[i] : 0);
    support_estimate_execute(&s);
    for (r = 0; r < ESTIMATE_ROWS; ++r) {
      assert_true(s.bounds[r] > 0);
      infinite += isinf(s.bounds[r]) != 0;
    }
    if (!(i == 0 ? infinite == 0 : infinite > ESTIMATE_ROWS / 8)) fail_msg("by %g: %d rows", by[i], (int)infinite);
    support_estimate_end(&s);
  }
}

/* From tables. */
static void quantiles_are_those_of_the_f_distribution(void **state)
{
  (void)state;
  assert_true(fabs(twh__f_quantile(0.95, 1, 1) - 161.4476) < 1e-3);
  assert_true(fabs(twh__f_quantile(0.95, 8, 8) - 3.438101) < 1e-5);
  assert_true(fabs(twh__f_quantile(0.95, 64, 64) - 1.513296) < 1e-3);
  assert_true(fabs(twh__f_quantile(0.95, 5, 20) - 2.710890) < 1e-5);
  assert_true(fabs(twh__f_quantile(0.5, 10, 10) - 1.0) < 1e-9);
  assert_true(fabs(twh__f_quantile(0.95, 128, 100000) - 1.21) < 0.01);
  assert_true(fabs(twh__f_quantile(0.95, 1, 1e6) - 3.841459) < 1e-4); /* chi square, for doubled queries */
  assert_true(fabs(twh__f_quantile(0.95, 8, 1 << 20) - 15.50731 / 8) < 1e-4);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_exact_has_no_error),
    cmocka_unit_test(bounds_follow_the_errors),
    cmocka_unit_test(replicates_take_no_calls),
    cmocka_unit_test(estimates_are_refused_where_there_can_be_none),
    cmocka_unit_test(short_problems_are_not_refused),
    cmocka_unit_test(one_sample_that_outweighs_the_others_leaves_all_open),
    cmocka_unit_test(quantiles_are_those_of_the_f_distribution),
    cmocka_unit_test(bounds_hold_as_often_as_they_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
