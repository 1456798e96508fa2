/* target_error where something goes wrong, or nearly: a workspace of just the right size, an execute that is cancelled or whose kernel
 * fails in the further rounds, results that are no numbers, several kernels, and bad targets. */
#include "support_target.h"

/* Both rounds stay within what the plan says, and allocate nothing. */
static void a_workspace_is_large_enough_for_both_rounds(void **state)
{
  int c;
  (void)state;
  for (c = 0; c < (int)support_target_count; ++c) {
    static support_target_setup t;
    support_memory              memory;
    twh_context                *context = support_context(&memory, 0, 1);
    twh_run_options             options;
    twh_error                   error;
    size_t                      bytes, alignment;
    void                       *workspace = NULL;
    int64_t                     allocations;
    twh_error_init(&error);
    twh_run_options_init(&options);
    twh_run_stats_init(&t.with.stats);
    support_target_begin(&t, &support_target_cases[c], 0, context, 90 + (uint64_t)c);
    bytes = (size_t)t.with.info.workspace_bytes;
    alignment = (size_t)t.with.info.workspace_alignment;
    assert_int_equal(posix_memalign(&workspace, alignment, bytes), 0); /* nothing behind it */
    memset(workspace, SUPPORT_POISON, bytes);
    options.workspace = workspace;
    options.workspace_bytes = bytes;
    twh_run_stats_init(&t.with.stats);
    options.stats = &t.with.stats;
    allocations = memory.allocations;
    support_assert_status(twh_plan_execute(t.with.plan, &t.with.tensors.all, &options, &error), TWH_OK, &error, NULL);
    assert_int_equal(memory.allocations, allocations);
    (void)support_target_check_rows(&t, c);
    options.workspace_bytes = bytes - 1;
    support_assert_status(twh_plan_execute(t.with.plan, &t.with.tensors.all, &options, &error), TWH_E_MEMORY, &error,
                          "workspace");
    free(workspace);
    support_target_end(&t);
    twh_context_destroy(context);
  }
}

typedef struct target_progress {
  int64_t calls, stop_after, last, planned;
  int     wrong;
} target_progress;

static int32_t target_watch(void *user, int64_t done, int64_t planned)
{
  target_progress *progress = (target_progress *)user;
  ++progress->calls;
  progress->wrong |= done < progress->last || done > planned || planned < progress->planned;
  progress->last = done;
  progress->planned = planned;
  return done > progress->stop_after;
}

static void progress_goes_on_and_may_cancel_in_the_further_rounds(void **state)
{
  static support_target_setup t;
  target_progress             progress;
  twh_run_options             options;
  twh_run_stats               stats;
  twh_error                   error;
  int64_t                     all;
  (void)state;
  twh_error_init(&error);
  support_target_begin(&t, &support_target_cases[0], 0, NULL, 3);
  support_estimate_end(&t.with);
  support_target_init(&t.with, &support_target_cases[0]);
  t.with.options.target_error = 0.01;
  t.with.desc.max_concurrent_batches = 1;
  t.with.options.max_calls_per_batch = 2;
  support_estimate_begin(&t.with, NULL, 3);
  memset(&progress, 0, sizeof progress);
  progress.stop_after = INT64_MAX;
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.progress = target_watch;
  options.user = &progress;
  options.stats = &stats;
  support_assert_status(twh_plan_execute(t.with.plan, &t.with.tensors.all, &options, &error), TWH_OK, &error, NULL);
  assert_false(progress.wrong);
  assert_int_equal(progress.last, stats.calls - stats.repair_calls);
  assert_true(2 * stats.batches >= stats.calls); /* as the options say, in all rounds */
  assert_true(progress.last > t.with.info.calls && progress.planned >= progress.last);
  all = progress.last;
  memset(&progress, 0, sizeof progress);
  progress.stop_after = t.with.info.calls;
  support_oracle_reset(&t.with.oracle);
  support_assert_status(twh_plan_execute(t.with.plan, &t.with.tensors.all, &options, &error), TWH_E_CANCELLED, &error,
                        "progress");
  assert_int_equal(stats.calls, t.with.oracle.calls);
  assert_true(stats.calls > t.with.info.calls && stats.calls < all);
  assert_int_equal(stats.assumption, TWH_ASSUMPTION_UNCHECKED); /* not after a failure */
  support_target_end(&t);
}

static void a_kernel_may_fail_in_the_further_rounds(void **state)
{
  int c;
  (void)state;
  for (c = 0; c < (int)support_target_count; ++c) {
    static support_target_setup t;
    twh_run_options             options;
    twh_run_stats               stats;
    twh_error                   error;
    twh_error_init(&error);
    twh_run_options_init(&options);
    twh_run_stats_init(&stats);
    options.stats = &stats;
    support_target_begin(&t, &support_target_cases[c], 0, NULL, 30 + (uint64_t)c);
    support_estimate_execute(&t.with);
    support_oracle_reset(&t.with.oracle);
    t.with.oracle.fail_at = t.without.stats.calls + (t.with.stats.calls - t.without.stats.calls) / 2;
    t.with.oracle.fail_code = 77;
    support_assert_status(twh_plan_execute(t.with.plan, &t.with.tensors.all, &options, &error), TWH_E_ORACLE, &error, NULL);
    assert_int_equal(error.oracle_code, 77);
    assert_int_equal(error.call, t.with.oracle.failed_index);
    assert_true(error.call >= t.without.stats.calls && error.call < t.with.stats.calls); /* numbers go on */
    assert_int_equal(t.with.oracle.calls_after_failure, 0);
    assert_true(stats.calls >= t.with.info.calls && stats.calls <= t.with.stats.calls);
    t.with.oracle.fail_at = -1; /* and the plan is as good as before */
    support_estimate_execute(&t.with);
    (void)support_target_check_rows(&t, c);
    support_target_end(&t);
  }
}

/* A kernel that returns a NaN in the first round, in a result or in what is only for the estimate. */
static void target_spoil(void *user, const twh_call *call, int64_t number)
{
  const int64_t *at = (const int64_t *)user;
  if (number == at[0]) support_store(call->out, TWH_F32, 3 * call->out_row_stride + 2, (double)NAN);
}

static void what_is_not_a_number_is_computed_again(void **state)
{
  int64_t which;
  (void)state;
  for (which = 0; which < 2; ++which) {
    static support_target_setup t;
    support_target_case         mild = support_target_cases[0];
    int64_t                     at, r, exact = 0;
    mild.std = 0.5;
    support_target_begin(&t, &mild, 0.5, NULL, 1);
    support_estimate_end(&t.with);
    support_target_init(&t.with, &mild);
    t.with.options.target_error = 1e6;
    support_estimate_begin(&t.with, NULL, 1);
    at = which ? t.with.info.calls - 1 : 0;
    t.with.oracle.spoil = target_spoil;
    t.with.oracle.spoil_user = &at;
    support_estimate_execute(&t.with);
    for (r = 0; r < t.rows; ++r) {
      int again = t.with.bounds[r] == 0;
      exact += again;
      assert_true(again || t.with.bounds[r] == t.without.bounds[r]);
      assert_true(support_target_is_same(&t.with, again ? &t.exact : &t.without, r));
    }
    assert_int_equal(exact, t.with.stats.exact_rows);
    assert_true(exact > 0 && exact <= SUPPORT_TARGET_M);
    support_target_end(&t);
  }
}

/* On several kernels the exact rounds take those that an exact plan takes. */
static void exact_rounds_use_all_kernels(void **state)
{
  support_estimate s;
  twh_oracle_desc  longer, shorter;
  twh_oracle      *oracles[2] = { NULL, NULL };
  twh_plan        *plan = NULL, *exact = NULL;
  twh_plan_options options;
  twh_plan_info    info, exact_info;
  twh_run_options  run;
  twh_run_stats    stats;
  float           *want;
  (void)state;
  support_estimate_init(&s, 410, SUPPORT_TARGET_M, SUPPORT_TARGET_DIM);
  s.fill.logit_std = 4;
  s.options.target_error = 1e-6;
  s.options.samples = 2;
  support_estimate_begin(&s, NULL, 5);
  shorter = longer = s.desc;
  longer.q_len = longer.k_len = 64;
  longer.cost_per_call = 6;
  shorter.cost_per_call = 1;
  assert_int_equal(twh_reference_oracle_create(NULL, &shorter, NULL, &oracles[0], NULL), TWH_OK);
  assert_int_equal(twh_reference_oracle_create(NULL, &longer, NULL, &oracles[1], NULL), TWH_OK);
  assert_int_equal(twh_plan_create(NULL, &s.problem, oracles, 2, &s.options, &plan, NULL), TWH_OK);
  twh_plan_options_init(&options);
  assert_int_equal(twh_plan_create(NULL, &s.problem, oracles, 2, &options, &exact, NULL), TWH_OK);
  twh_plan_info_init(&info);
  twh_plan_info_init(&exact_info);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  assert_int_equal(twh_plan_get_info(exact, &exact_info, NULL), TWH_OK);
  assert_int_equal(info.exact_calls_max, exact_info.calls + exact_info.repair_calls_max);
  twh_run_options_init(&run);
  twh_run_stats_init(&stats);
  run.stats = &stats;
  s.tensors.all.error = NULL;
  assert_int_equal(twh_plan_execute(exact, &s.tensors.all, NULL, NULL), TWH_OK);
  want = (float *)malloc(s.tensors.bytes[3]);
  assert_non_null(want);
  memcpy(want, s.tensors.memory[3], s.tensors.bytes[3]);
  support_tensors_clear(&s.tensors);
  s.tensors.all.error = &s.error;
  assert_int_equal(twh_plan_execute(plan, &s.tensors.all, &run, NULL), TWH_OK);
  assert_int_equal(stats.exact_rows, 410);
  assert_int_equal(stats.calls - stats.repair_calls, info.calls + exact_info.calls);
  assert_memory_equal(want, s.tensors.memory[3], s.tensors.bytes[3]);
  free(want);
  twh_plan_destroy(exact);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracles[0]);
  twh_oracle_destroy(oracles[1]);
  support_estimate_end(&s);
}

static void bad_targets_are_refused_by_name(void **state)
{
  static const struct {
    double     target;
    int32_t    method, estimate;
    twh_status status;
  } rows[] = { { -0.1, TWH_METHOD_SAMPLED, TWH_ESTIMATE_DOUBLED, TWH_E_ARGUMENT },
               { (double)NAN, TWH_METHOD_SAMPLED, TWH_ESTIMATE_DOUBLED, TWH_E_ARGUMENT },
               { (double)INFINITY, TWH_METHOD_HYBRID, TWH_ESTIMATE_DOUBLED, TWH_E_ARGUMENT },
               { 0.1, TWH_METHOD_SAMPLED, TWH_ESTIMATE_NONE, TWH_E_ARGUMENT },
               { 0.1, TWH_METHOD_EXACT, TWH_ESTIMATE_NONE, TWH_E_ARGUMENT },
               { 1e-300, TWH_METHOD_SAMPLED, TWH_ESTIMATE_DOUBLED, TWH_OK },
               { 1e300, TWH_METHOD_HYBRID, TWH_ESTIMATE_DOUBLED, TWH_OK } };
  twh_oracle *oracle = NULL;
  twh_plan   *plan = NULL;
  twh_error   error;
  int64_t     i;
  (void)state;
  twh_error_init(&error);
  for (i = 0; i < SUPPORT_COUNT(rows); ++i) {
    support_estimate s;
    support_estimate_init(&s, 100, SUPPORT_TARGET_M, SUPPORT_TARGET_DIM);
    s.options.method = rows[i].method;
    s.options.estimate = rows[i].estimate;
    s.options.target_error = rows[i].target;
    assert_int_equal(twh_reference_oracle_create(NULL, &s.desc, NULL, &oracle, NULL), TWH_OK);
    support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), rows[i].status, &error,
                          rows[i].status == TWH_OK ? NULL : "options.target_error");
    twh_plan_destroy(plan);
    twh_oracle_destroy(oracle);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_workspace_is_large_enough_for_both_rounds),
    cmocka_unit_test(progress_goes_on_and_may_cancel_in_the_further_rounds),
    cmocka_unit_test(a_kernel_may_fail_in_the_further_rounds),
    cmocka_unit_test(what_is_not_a_number_is_computed_again),
    cmocka_unit_test(exact_rounds_use_all_kernels),
    cmocka_unit_test(bad_targets_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
