/* Estimated errors of sampled attention: how often the bound holds, beside the true error in float64; where it is zero; what is
 * refused; and the quantiles it is made of. */
#include "support.h"

#include "core/plan/problem.h"
#include "reference/reference.h"

typedef struct estimate_case {
  int32_t dtype;
  int64_t v_dim, samples;
  double  std, mean;
  int     causal, hybrid, lse;
} estimate_case;

static const estimate_case estimate_cases[] = {
  {TWH_F32, 8, 2, 0.3, 0, 0, 0, 0},  {TWH_F32, 8, 2, 1.0, 10, 0, 0, 1},  {TWH_F32, 64, 2, 0.3, 10, 0, 0, 0},
  {TWH_F32, 64, 2, 1.0, 0, 0, 0, 0}, {TWH_BF16, 8, 2, 0.3, 10, 0, 0, 0}, {TWH_BF16, 8, 3, 1.0, 0, 0, 0, 1},
  {TWH_BF16, 64, 2, 1.0, 10, 0, 0, 0}, {TWH_F32, 8, 4, 1.0, 0, 1, 0, 0}, {TWH_F32, 64, 2, 1.0, 10, 1, 0, 1},
  {TWH_F32, 8, 3, 0.5, 0, 1, 1, 0},  {TWH_F32, 8, 2, 0.5, 10, 0, 1, 0},
};

enum { ESTIMATE_M = 16, ESTIMATE_ROWS = 1024, ESTIMATE_DIM = 8 };

typedef struct estimate_run {
  twh_problem     problem;
  twh_pattern     pattern;
  support_tensors tensors;
  twh_oracle     *oracle;
  twh_plan       *plan;
  twh_tensor      error;
  double         *bounds;
} estimate_run;

static void estimate_begin(estimate_run *run, const estimate_case *c, uint64_t seed)
{
  support_fill     fill;
  support_random   random = support_random_at(seed, 9);
  twh_oracle_desc  desc;
  twh_plan_options options;
  memset(run, 0, sizeof *run);
  memset(&fill, 0, sizeof fill);
  fill.logit_std = c->std;
  fill.value_mean = c->mean;
  twh_pattern_init(&run->pattern);
  run->pattern.flags = c->causal ? TWH_CAUSAL : 0;
  twh_problem_init(&run->problem);
  run->problem.batch = 1;
  run->problem.q_heads = run->problem.kv_heads = 1;
  run->problem.q_len = run->problem.k_len = ESTIMATE_ROWS;
  run->problem.qk_dim = ESTIMATE_DIM;
  run->problem.v_dim = c->v_dim;
  run->problem.pattern = &run->pattern;
  twh_oracle_desc_init(&desc);
  desc.slots = 1;
  desc.q_len = desc.k_len = ESTIMATE_M;
  desc.qk_dim = ESTIMATE_DIM;
  desc.v_dim = c->v_dim + 1;
  desc.dtype = c->dtype;
  desc.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
  desc.flags = c->lse ? TWH_ORACLE_LSE : 0;
  desc.scale = 0.3;
  twh_plan_options_init(&options);
  options.method = c->hybrid ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
  options.estimate = TWH_ESTIMATE_REPLICATES;
  options.samples = c->samples;
  options.seed = seed;
  assert_int_equal(twh_reference_oracle_create(NULL, &desc, NULL, &run->oracle, NULL), TWH_OK);
  assert_int_equal(twh_plan_create(NULL, &run->problem, &run->oracle, 1, &options, &run->plan, NULL), TWH_OK);
  support_tensors_create(&run->tensors, &run->problem, TWH_F32, SUPPORT_DENSE, 0);
  support_tensors_fill(&run->tensors, &run->problem, &fill, &random);
  run->bounds = calloc(ESTIMATE_ROWS, sizeof *run->bounds);
  assert_non_null(run->bounds);
  twh_tensor_dense(&run->error, TWH_F64, run->bounds, 1, ESTIMATE_ROWS, 1);
  run->tensors.all.error = &run->error;
  assert_int_equal(twh_plan_execute(run->plan, &run->tensors.all, NULL, NULL), TWH_OK);
}

static void estimate_end(estimate_run *run)
{
  free(run->bounds);
  support_tensors_destroy(&run->tensors);
  twh_plan_destroy(run->plan);
  twh_oracle_destroy(run->oracle);
}

/* Share of the rows with drawn keys whose true error keeps the bound: rows of a block share their draw, and there are 64 blocks. */
static void bounds_hold_as_often_as_they_say(void **state)
{
  int64_t i, r, c;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(estimate_cases); ++i) {
    const estimate_case *row = &estimate_cases[i];
    estimate_run         run;
    support_answer       truth, got;
    int64_t              kept = 0, counted = 0;
    double               covered;
    estimate_begin(&run, row, 40 + (uint64_t)i);
    support_answer_truth(&truth, &run.problem, &run.tensors);
    support_answer_read(&got, &run.problem, &run.tensors);
    for (r = 0; r < ESTIMATE_ROWS; ++r) {
      double squares = 0;
      for (c = 0; c < row->v_dim; ++c) {
        double want = truth.out[r * row->v_dim + c], error = got.out[r * row->v_dim + c] - want;
        squares += error * error;
      }
      assert_true(run.bounds[r] >= 0);
      if (run.bounds[r] == 0) continue;
      ++counted;
      kept += sqrt(squares) <= run.bounds[r];
    }
    covered = (double)kept / (double)counted;
    assert_true(counted >= (row->causal ? 900 : 1024));
    if (!(covered >= 0.87 && covered <= 0.997))
      fail_msg("case %d: %.1f%% of %d rows keep their bounds", (int)i, 100 * covered, (int)counted);
    support_answer_destroy(&got);
    support_answer_destroy(&truth);
    estimate_end(&run);
  }
}

/* Where all keys are computed nothing is estimated: the first blocks of causal rows, and samples that are as many as the keys. */
static void what_is_exact_has_no_error(void **state)
{
  static const estimate_case causal = {TWH_F32, 8, 3, 1.0, 0, 1, 0, 0}, all = {TWH_F32, 8, 64, 1.0, 0, 0, 0, 0};
  estimate_run               run;
  int64_t                    r;
  (void)state;
  estimate_begin(&run, &causal, 5);
  for (r = 0; r < ESTIMATE_ROWS; ++r) assert_true((run.bounds[r] == 0) == (r < 4 * ESTIMATE_M));
  estimate_end(&run);
  estimate_begin(&run, &all, 5);
  for (r = 0; r < ESTIMATE_ROWS; ++r) assert_true(run.bounds[r] == 0);
  estimate_end(&run);
}

/* Larger logits, larger errors, and more samples, smaller ones: by as much as they must. */
static void bounds_follow_the_errors(void **state)
{
  static const estimate_case cases[3] = {{TWH_F32, 16, 2, 0.5, 0, 0, 0, 0}, {TWH_F32, 16, 8, 0.5, 0, 0, 0, 0},
                                         {TWH_F32, 16, 2, 1.5, 0, 0, 0, 0}};
  double       mean[3] = {0, 0, 0};
  estimate_run run;
  int64_t      i, r;
  (void)state;
  for (i = 0; i < 3; ++i) {
    estimate_begin(&run, &cases[i], 6);
    for (r = 0; r < ESTIMATE_ROWS; ++r) mean[i] += run.bounds[r] / ESTIMATE_ROWS;
    estimate_end(&run);
  }
  assert_true(mean[1] < 0.5 * mean[0] && mean[1] > 0.25 * mean[0]); /* four times the keys: half the error, and a better quantile */
  assert_true(mean[2] > 1.5 * mean[0]);
}

static void estimates_are_refused_where_there_can_be_none(void **state)
{
  twh_problem      problem;
  twh_oracle_desc  desc;
  twh_plan_options options;
  twh_plan        *plan;
  twh_oracle      *oracle = NULL;
  twh_error        error;
  (void)state;
  twh_error_init(&error);
  twh_problem_init(&problem);
  problem.batch = problem.q_heads = problem.kv_heads = 1;
  problem.q_len = problem.k_len = 100;
  problem.qk_dim = problem.v_dim = 4;
  twh_oracle_desc_init(&desc);
  desc.slots = 1;
  desc.q_len = desc.k_len = 8;
  desc.qk_dim = 4;
  desc.v_dim = 5;
  desc.dtype = TWH_F32;
  desc.mask_modes = TWH_MASK_CAUSAL;
  desc.scale = 0.5;
  assert_int_equal(twh_reference_oracle_create(NULL, &desc, NULL, &oracle, NULL), TWH_OK);
  twh_plan_options_init(&options);
  options.estimate = TWH_ESTIMATE_REPLICATES;
  support_assert_status(twh_plan_create(NULL, &problem, &oracle, 1, &options, &plan, &error), TWH_E_ARGUMENT, &error, "estimate");
  options.method = TWH_METHOD_SAMPLED;
  support_assert_status(twh_plan_create(NULL, &problem, &oracle, 1, &options, &plan, &error), TWH_E_ARGUMENT, &error, "samples");
  options.samples = options.strata = 2;
  support_assert_status(twh_plan_create(NULL, &problem, &oracle, 1, &options, &plan, &error), TWH_E_ARGUMENT, &error, "strata");
  options.strata = 1;
  support_assert_status(twh_plan_create(NULL, &problem, &oracle, 1, &options, &plan, &error), TWH_E_UNSUPPORTED, &error, "unmasked");
  options.estimate = 99;
  support_assert_status(twh_plan_create(NULL, &problem, &oracle, 1, &options, &plan, &error), TWH_E_VERSION, &error, "estimate");
  twh_oracle_destroy(oracle);
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
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_exact_has_no_error),
    cmocka_unit_test(bounds_follow_the_errors),
    cmocka_unit_test(estimates_are_refused_where_there_can_be_none),
    cmocka_unit_test(quantiles_are_those_of_the_f_distribution),
    cmocka_unit_test(bounds_hold_as_often_as_they_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
