/* Several kernels in one plan: which one computes what, that the result does not depend on it, and kernels whose cost is
 * measured.
 *
 * Costs are declared, so that what is cheapest is arithmetic; where they are measured, only what must hold at any speed is
 * tested. */
#include "support.h"

enum { KERNELS_MOST = 7 };

typedef struct kernels_setup {
  twh_problem     problem;
  twh_pattern     pattern;
  twh_sequence    sequences[8];
  twh_oracle_desc desc[KERNELS_MOST];
  support_oracle  oracles[KERNELS_MOST];
  twh_oracle     *list[KERNELS_MOST];
  int64_t         count;
  twh_plan       *plan;
  twh_plan_info   info;
} kernels_setup;

static void kernels_problem(kernels_setup *s, int64_t n, uint32_t pattern)
{
  memset(s, 0, sizeof *s);
  twh_problem_init(&s->problem);
  twh_pattern_init(&s->pattern);
  s->pattern.flags = pattern;
  s->problem.pattern = &s->pattern;
  s->problem.batch = s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.q_len = s->problem.k_len = n;
  s->problem.qk_dim = s->problem.v_dim = 4;
}

static twh_oracle_desc *kernels_add(kernels_setup *s, int64_t q_len, int64_t k_len, uint32_t modes, double cost)
{
  twh_oracle_desc *desc = &s->desc[s->count++];
  twh_oracle_desc_init(desc);
  desc->slots = 1;
  desc->q_len = q_len;
  desc->k_len = k_len;
  desc->qk_dim = desc->v_dim = 4;
  desc->flags = TWH_ORACLE_LSE;
  desc->dtype = TWH_F32;
  desc->mask_modes = modes;
  desc->scale = 0.5;
  desc->cost_per_call = cost;
  return desc;
}

static void kernels_plan(kernels_setup *s)
{
  twh_error error;
  int64_t   i;
  twh_error_init(&error);
  twh_plan_info_init(&s->info);
  for (i = 0; i < s->count; ++i) {
    support_oracle_create(&s->oracles[i], NULL, &s->desc[i], NULL);
    s->list[i] = s->oracles[i].oracle;
  }
  support_assert_status(twh_plan_create(NULL, &s->problem, s->list, s->count, NULL, &s->plan, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_plan_get_info(s->plan, &s->info, &error), TWH_OK, &error, NULL);
}

static void kernels_end(kernels_setup *s)
{
  int64_t i;
  twh_plan_destroy(s->plan);
  for (i = 0; i < s->count; ++i) support_oracle_destroy(&s->oracles[i]);
}

/* Cover, execute, compare with the definition; the kernels' calls add up to the plan's. */
static void kernels_check(kernels_setup *s, const char *name)
{
  support_random  random = support_random_at(support_seed(3), 0);
  support_fill    fill;
  support_tensors tensors;
  support_answer  truth, one_call, got;
  support_cover   cover;
  twh_run_options options;
  twh_run_stats   stats;
  twh_error       error;
  const char     *wrong;
  int64_t         i, calls = 0;
  twh_error_init(&error);
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1.0;
  support_tensors_create(&tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(&tensors, &s->problem, &fill, &random);
  wrong = support_cover_check(&cover, &s->problem, s->plan, s->desc, s->count);
  if (wrong) print_error("%s: %s\n", name, wrong);
  assert_null(wrong);
  support_assert_status(twh_plan_execute(s->plan, &tensors.all, &options, &error), TWH_OK, &error, NULL);
  for (i = 0; i < s->count; ++i) {
    if (s->oracles[i].broken[0]) print_error("%s: kernel %lld: %s\n", name, (long long)i, s->oracles[i].broken);
    assert_int_equal(s->oracles[i].broken[0], 0);
    calls += s->oracles[i].calls;
  }
  assert_int_equal(calls, s->info.calls + stats.repair_calls);
  support_answer_truth(&truth, &s->problem, &tensors);
  support_answer_one_call(&one_call, &s->problem, &tensors, &s->desc[0], NULL);
  support_answer_read(&got, &s->problem, &tensors);
  support_assert_at_most(support_answer_out_error(&got, &truth), support_out_bound(&one_call, &truth, &s->desc[0], 1), name);
  support_assert_at_most(support_answer_lse_error(&got, &truth), support_lse_bound(&one_call, &truth, &s->desc[0]), name);
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  support_answer_destroy(&got);
  support_tensors_destroy(&tensors);
}

typedef struct kernels_use {
  int64_t tiles[2][KERNELS_MOST], small; /* by sequence and kernel; small: tiles of at most 8 rows on other kernels than 1 */
} kernels_use;

static int32_t kernels_count(void *user, const twh_tile_info *tile)
{
  kernels_use *use = (kernels_use *)user;
  use->tiles[tile->sequence][tile->oracle] += 1;
  use->small += tile->q_len <= 8 && tile->oracle != 1;
  return 0;
}

static kernels_use kernels_look(const kernels_setup *s)
{
  kernels_use use;
  memset(&use, 0, sizeof use);
  assert_int_equal(twh_plan_visit(s->plan, kernels_count, &use, NULL), TWH_OK);
  return use;
}

/* A decode step and a prompt in one batch: each goes to the kernel that was made for it. */
static void a_decode_step_and_a_prompt_take_different_kernels(void **state)
{
  kernels_setup s;
  kernels_use   use;
  int           order;
  (void)state;
  for (order = 0; order < 2; ++order) {
    int64_t wide = order, narrow = 1 - order;
    kernels_problem(&s, 0, TWH_CAUSAL);
    s.problem.batch = 2;
    s.problem.sequences = s.sequences;
    s.sequences[0].q_len = 1;
    s.sequences[0].k_len = 640;
    s.sequences[0].q_offset = 639;
    s.sequences[1].q_begin = 1;
    s.sequences[1].k_begin = 640;
    s.sequences[1].q_len = s.sequences[1].k_len = 128;
    if (order) kernels_add(&s, 4, 64, TWH_MASK_NONE, 0.05);
    kernels_add(&s, 64, 64, TWH_MASK_NONE | TWH_MASK_CAUSAL, 1.0);
    if (!order) kernels_add(&s, 4, 64, TWH_MASK_NONE, 0.05);
    kernels_plan(&s);
    use = kernels_look(&s);
    assert_int_equal(use.tiles[0][narrow], 10);
    assert_int_equal(use.tiles[0][wide], 0);
    assert_true(use.tiles[1][wide] >= 2); /* at least the triangles, which the narrow one could only do in pieces */
    assert_int_equal(s.info.oracle, narrow);
    kernels_check(&s, "decode and prompt");
    kernels_end(&s);
  }
}

/* 130 rows: two blocks of 64, and two rows that do not pay for a wide call. */
static void the_last_rows_take_a_kernel_of_few_rows(void **state)
{
  kernels_setup s;
  kernels_use   use;
  double        alone;
  (void)state;
  kernels_problem(&s, 130, 0);
  kernels_add(&s, 64, 64, TWH_MASK_NONE, 1.0);
  kernels_plan(&s);
  alone = s.info.cost;
  kernels_end(&s);
  kernels_problem(&s, 130, 0);
  kernels_add(&s, 64, 64, TWH_MASK_NONE, 1.0);
  kernels_add(&s, 8, 64, TWH_MASK_NONE, 0.2);
  kernels_plan(&s);
  use = kernels_look(&s);
  assert_int_equal(use.small, 0);
  assert_true(use.tiles[0][0] > 0 && use.tiles[0][1] > 0);
  assert_true(s.info.cost < alone);
  kernels_check(&s, "the last rows");
  kernels_end(&s);
}

static void kernels_that_cannot_do_the_problem_are_passed_over(void **state)
{
  kernels_setup s;
  kernels_use   use;
  twh_plan     *plan = NULL;
  twh_error     error;
  (void)state;
  twh_error_init(&error);
  kernels_problem(&s, 40, TWH_CAUSAL);
  kernels_add(&s, 16, 16, TWH_MASK_CAUSAL, 0.001)->qk_dim = 3;
  kernels_add(&s, 16, 16, TWH_MASK_CAUSAL, 0.001)->softcap = 5.0;
  kernels_add(&s, 16, 16, TWH_MASK_CAUSAL, 0.001)->causal_offset = 2;
  kernels_add(&s, 16, 16, TWH_MASK_CAUSAL, 1.0);
  kernels_plan(&s);
  use = kernels_look(&s);
  assert_int_equal(use.tiles[0][0] + use.tiles[0][1] + use.tiles[0][2], 0);
  assert_int_equal(s.info.oracle, 3);
  assert_int_equal(s.oracles[0].calls + s.oracles[1].calls + s.oracles[2].calls, 0);
  /* none of the first three: the first one's reason is told */
  support_assert_status(twh_plan_create(NULL, &s.problem, s.list, 3, NULL, &plan, &error), TWH_E_UNSUPPORTED, &error, "qk_dim");
  assert_null(plan);
  s.list[1] = NULL;
  support_assert_status(twh_plan_create(NULL, &s.problem, s.list, 4, NULL, &plan, &error), TWH_E_ARGUMENT, &error, "oracles");
  kernels_end(&s);
}

/* Eight sequences of 8 tokens share one call of a long kernel, which is cheaper than eight calls of a short one up to eight times
 * its cost, though for one sequence alone it would not be. */
static void short_sequences_share_a_dear_kernel(void **state)
{
  int dear;
  (void)state;
  for (dear = 0; dear < 2; ++dear) {
    kernels_setup s;
    int64_t       b;
    kernels_problem(&s, 0, TWH_CAUSAL);
    s.problem.batch = 8;
    s.problem.sequences = s.sequences;
    for (b = 0; b < 8; ++b) {
      s.sequences[b].q_begin = s.sequences[b].k_begin = 8 * b;
      s.sequences[b].q_len = s.sequences[b].k_len = 8;
    }
    kernels_add(&s, 8, 8, TWH_MASK_CAUSAL, 1.0);
    kernels_add(&s, 64, 64, TWH_MASK_CAUSAL, dear ? 9.0 : 7.0)->qk_dim = 4 + 4;
    kernels_plan(&s);
    assert_int_equal(s.info.oracle, dear ? 0 : 1);
    assert_int_equal(s.info.calls, dear ? 8 : 1);
    kernels_check(&s, "short sequences");
    kernels_end(&s);
  }
}

/* More kernels than any plan needs, the same one twice, lengths from 8 to 64, with and without masks. */
static void many_kernels_in_one_plan(void **state)
{
  static const uint32_t patterns[] = { 0, TWH_CAUSAL, TWH_CAUSAL | TWH_LEFT, TWH_LEFT | TWH_RIGHT };
  int64_t               p;
  (void)state;
  for (p = 0; p < SUPPORT_COUNT(patterns); ++p) {
    kernels_setup s;
    double        least = (double)INFINITY, cost;
    int64_t       i;
    twh_plan     *plan = NULL;
    twh_plan_info info;
    kernels_problem(&s, 150, patterns[p]);
    s.pattern.left = 20;
    s.pattern.right = 5;
    s.problem.q_heads = 3;
    kernels_add(&s, 64, 64, TWH_MASK_NONE, 1.0);
    kernels_add(&s, 32, 32, TWH_MASK_CAUSAL, 0.3);
    kernels_add(&s, 8, 64, TWH_MASK_NONE, 0.15);
    kernels_add(&s, 16, 16, TWH_MASK_TENSOR, 0.1);
    kernels_add(&s, 32, 32, TWH_MASK_CAUSAL, 0.3);
    kernels_add(&s, 8, 8, TWH_MASK_NONE | TWH_MASK_CAUSAL, 0.02)->qk_dim = 12;
    kernels_add(&s, 64, 16, TWH_MASK_NONE, 0.3)->slots = 3;
    kernels_plan(&s);
    kernels_check(&s, "many kernels");
    twh_plan_info_init(&info);
    for (i = 0; i < s.count; ++i) { /* no kernel alone is much cheaper, but for what the host is given to do */
      assert_int_equal(twh_plan_create(NULL, &s.problem, s.list + i, 1, NULL, &plan, NULL), TWH_OK);
      assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
      cost = info.host_tiles > s.info.host_tiles ? (double)INFINITY : info.cost;
      least = cost < least ? cost : least;
      twh_plan_destroy(plan);
    }
    support_assert_at_most(s.info.cost, 1.02 * least, "cost of all kernels together");
    kernels_end(&s);
  }
}

/* ---- measured costs ---- */

static void a_measured_plan_is_as_right_as_any(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i) {
    kernels_setup    s;
    twh_plan_options options;
    twh_error        error;
    int64_t          measured;
    twh_error_init(&error);
    twh_plan_options_init(&options);
    options.flags = TWH_PLAN_MEASURE;
    kernels_problem(&s, 20, TWH_CAUSAL);
    s.count = 2;
    support_kernel_desc(&support_kernels[i], &s.problem, 8, 8, &s.desc[0]);
    support_kernel_desc(&support_kernels[i], &s.problem, 5, 5, &s.desc[1]);
    if (!support_must_run(&s.problem, &s.desc[0])) continue;
    s.desc[1].max_calls_per_batch = 1;
    kernels_plan(&s);
    twh_plan_destroy(s.plan);
    s.plan = NULL;
    support_assert_status(twh_plan_create(NULL, &s.problem, s.list, 2, &options, &s.plan, &error), TWH_OK, &error, NULL);
    assert_int_equal(twh_plan_get_info(s.plan, &s.info, NULL), TWH_OK);
    measured = s.oracles[0].calls + s.oracles[1].calls;
    assert_true(s.oracles[0].calls > 0 && s.oracles[1].calls > 0 && measured < 100);
    assert_true(s.info.cost >= 0.0 && s.info.cost < (double)INFINITY);
    assert_int_equal(s.oracles[0].broken[0], 0);
    assert_int_equal(s.oracles[1].broken[0], 0);
    support_oracle_reset(&s.oracles[0]);
    support_oracle_reset(&s.oracles[1]);
    kernels_check(&s, support_kernels[i].name);
    kernels_end(&s);
  }
}

static void a_kernel_that_fails_while_it_is_measured(void **state)
{
  kernels_setup    s;
  twh_plan_options options;
  twh_plan        *plan = NULL;
  twh_error        error;
  int64_t          at;
  (void)state;
  twh_error_init(&error);
  twh_plan_options_init(&options);
  options.flags = TWH_PLAN_MEASURE;
  kernels_problem(&s, 20, TWH_CAUSAL);
  kernels_add(&s, 8, 8, TWH_MASK_CAUSAL, 1.0);
  kernels_plan(&s);
  for (at = 0; at < 4; ++at) {
    support_oracle_reset(&s.oracles[0]);
    s.oracles[0].fail_at = at;
    s.oracles[0].fail_code = -31;
    support_assert_status(twh_plan_create(NULL, &s.problem, s.list, 1, &options, &plan, &error), TWH_E_ORACLE, &error, "-31");
    assert_int_equal(error.oracle_code, -31);
    assert_int_equal(s.oracles[0].calls_after_failure, 0);
    assert_null(plan);
  }
  s.oracles[0].fail_at = -1;
  support_oracle_reset(&s.oracles[0]);
  support_assert_status(twh_plan_create(NULL, &s.problem, s.list, 1, &options, &plan, &error), TWH_OK, &error, NULL);
  twh_plan_destroy(plan);
  kernels_end(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_decode_step_and_a_prompt_take_different_kernels),
    cmocka_unit_test(the_last_rows_take_a_kernel_of_few_rows),
    cmocka_unit_test(kernels_that_cannot_do_the_problem_are_passed_over),
    cmocka_unit_test(short_sequences_share_a_dear_kernel),
    cmocka_unit_test(many_kernels_in_one_plan),
    cmocka_unit_test(a_measured_plan_is_as_right_as_any),
    cmocka_unit_test(a_kernel_that_fails_while_it_is_measured),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
