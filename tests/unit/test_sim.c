/* The simulated accelerator: right results, batches one behind the other, the time that they take, and its figures. Times are
 * compared with each other, from below: a machine may be late, never early. */
#include "support.h"

#include "tools/sim.h"

static void sim_problem(twh_problem *problem, twh_oracle_desc *desc)
{
  twh_problem_init(problem);
  problem->batch = 1;
  problem->q_heads = problem->kv_heads = 2;
  problem->q_len = problem->k_len = 40;
  problem->qk_dim = problem->v_dim = 4;
  support_kernel_desc(&support_kernels[0], problem, 8, 8, desc);
}

/* inner: 1: the reference computes. */
static twh_oracle *sim_device(const twh_oracle_desc *desc, const sim_parameters *given, int inner)
{
  sim_parameters parameters = *given;
  twh_oracle    *oracle = NULL;
  if (inner) assert_int_equal(twh_reference_oracle_create(NULL, desc, NULL, &parameters.inner, NULL), TWH_OK);
  assert_int_equal(sim_create(NULL, desc, &parameters, &oracle, NULL), TWH_OK);
  return oracle;
}

static void results_are_those_of_the_kernel_that_computes(void **state)
{
  static const int64_t depths[] = { 0, 1, 2, 5, 64 };
  int64_t              i, d;
  (void)state;
  for (i = 0; i < support_kernel_count; i += 4)
    for (d = 0; d < SUPPORT_COUNT(depths); ++d) {
      support_random   random = support_random_at(support_seed(608), (uint64_t)i);
      support_fill     fill;
      support_tensors  want, got;
      sim_parameters   parameters = { 30.0, 5.0, 1.0, 0, NULL };
      sim_figures      figures;
      twh_problem      problem;
      twh_oracle_desc  desc;
      twh_oracle      *oracle;
      twh_plan_options options;
      twh_run_options  how;
      twh_run_stats    stats;
      twh_plan        *plan = NULL;
      int              t;
      sim_problem(&problem, &desc);
      support_kernel_desc(&support_kernels[i], &problem, 8, 8, &desc);
      if (!support_must_run(&problem, &desc)) continue;
      memset(&fill, 0, sizeof fill);
      fill.logit_std = 40.0;
      support_tensors_create(&want, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
      support_tensors_fill(&want, &problem, &fill, &random);
      support_tensors_create(&got, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
      for (t = 0; t < 3; ++t) memcpy(got.memory[t], want.memory[t], want.bytes[t]);
      assert_int_equal(support_solve(support_kernels[i].name, &problem, &desc, &want, NULL, NULL), TWH_OK);
      parameters.depth = depths[d];
      desc.max_concurrent_batches = 0;
      oracle = sim_device(&desc, &parameters, 1);
      twh_plan_options_init(&options);
      options.max_calls_per_batch = 3;
      assert_int_equal(twh_plan_create(NULL, &problem, &oracle, 1, &options, &plan, NULL), TWH_OK);
      twh_run_options_init(&how);
      twh_run_stats_init(&stats);
      how.stats = &stats;
      assert_int_equal(twh_plan_execute(plan, &got.all, &how, NULL), TWH_OK);
      assert_memory_equal(want.out.data, got.out.data, want.bytes[3]);
      assert_memory_equal(want.lse.data, got.lse.data, want.bytes[4]);
      sim_stats(oracle, &figures);
      assert_int_equal(figures.calls, stats.calls);
      assert_int_equal(figures.batches, stats.batches);
      assert_true(figures.busy_s >= 1e-6 * (30.0 * (double)stats.batches + 5.0 * (double)stats.calls) - 1e-9);
      assert_true(stats.wall_s >= figures.busy_s + figures.idle_s - 1e-9);
      twh_plan_destroy(plan);
      twh_oracle_destroy(oracle);
      support_tensors_destroy(&want);
      support_tensors_destroy(&got);
    }
}

enum { SIM_CALLS = 6 };

typedef struct sim_calls {
  twh_oracle_desc desc;
  twh_call        call[SIM_CALLS];
  const twh_call *list[SIM_CALLS];
  float           data[64], out[SIM_CALLS][64], lse[SIM_CALLS][8];
} sim_calls;

/* Pointers point into the struct. Calls of one slot, 8 x 8, of 4 dimensions. */
static void sim_make_calls(sim_calls *calls, const twh_oracle *oracle)
{
  int i;
  memset(calls, 0, sizeof *calls);
  twh_oracle_desc_init(&calls->desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &calls->desc, NULL), TWH_OK);
  for (i = 0; i < SIM_CALLS; ++i) {
    twh_call *call = &calls->call[i];
    twh_call_init(call);
    call->mask_mode = TWH_MASK_NONE;
    call->slots = 1;
    call->q_len = call->k_len = 8;
    call->q.data = call->k.data = call->v.data = calls->data;
    call->q.row_stride = call->k.row_stride = call->v.row_stride = call->out_row_stride = 4;
    call->scale = calls->desc.scale;
    call->out = calls->out[i];
    call->lse = calls->lse[i];
    calls->list[i] = call;
    memset(calls->out[i], SUPPORT_POISON, sizeof calls->out[i]);
  }
}

/* Batches that wait in the queue follow each other without a gap, and their times add up to the last bit but rounding. */
static void batches_follow_each_other(void **state)
{
  const sim_parameters parameters = { 400.0, 100.0, 0.0, 3, NULL };
  twh_problem          problem;
  twh_oracle_desc      desc;
  twh_oracle          *oracle;
  sim_calls            calls;
  sim_figures          figures;
  uint64_t             tickets[3];
  int                  i, c;
  (void)state;
  sim_problem(&problem, &desc);
  desc.max_concurrent_batches = 0;
  oracle = sim_device(&desc, &parameters, 0);
  sim_make_calls(&calls, oracle);
  assert_int_equal(calls.desc.max_concurrent_batches, 3);
  support_assert_at_most(fabs(calls.desc.cost_per_call - 1e-4), 1e-12, "cost_per_call");
  support_assert_at_most(fabs(calls.desc.cost_per_batch - 4e-4), 1e-12, "cost_per_batch");
  assert_true(!calls.desc.run && calls.desc.submit && calls.desc.wait);
  for (i = 0; i < 3; ++i) assert_int_equal(calls.desc.submit(calls.desc.user, calls.list + 2 * i, 1 + (i > 0), &tickets[i]), 0);
  for (i = 2; i >= 0; --i) assert_int_equal(calls.desc.wait(calls.desc.user, tickets[i]), 0); /* in any order */
  sim_stats(oracle, &figures);
  assert_int_equal(figures.batches, 3);
  assert_int_equal(figures.calls, 5);
  support_assert_at_most(fabs(figures.busy_s - 1e-6 * (3 * 400.0 + 5 * 100.0)), 1e-7, "busy");
  assert_true(figures.last_end_s - figures.first_begin_s >= figures.busy_s - 1e-7);
  for (i = 0; i < SIM_CALLS; ++i)
    for (c = 0; c < 32; ++c) /* zeros, but for the call that was not made, and nothing beyond the rows */
      assert_true(i == 1 ? isnan(calls.out[i][c]) : calls.out[i][c] == 0.0f);
  for (i = 0; i < SIM_CALLS; ++i) assert_true(isnan(calls.out[i][32]));
  assert_int_not_equal(calls.desc.wait(calls.desc.user, 1000), 0); /* no such ticket */
  sim_reset(oracle);
  sim_stats(oracle, &figures);
  assert_true(figures.batches == 0 && figures.calls == 0 && figures.busy_s == 0.0 && figures.idle_s == 0.0);
  twh_oracle_destroy(oracle);
}

/* q, k and v of 8 x 4 floats, out the same, lse of 8: 544 bytes a call. */
static void transfers_take_time(void **state)
{
  const sim_parameters parameters = { 0.0, 0.0, 1e-3, 1, NULL };
  twh_problem          problem;
  twh_oracle_desc      desc;
  twh_oracle          *oracle;
  sim_calls            calls;
  sim_figures          figures;
  uint64_t             ticket;
  (void)state;
  sim_problem(&problem, &desc);
  desc.max_concurrent_batches = 0;
  oracle = sim_device(&desc, &parameters, 0);
  sim_make_calls(&calls, oracle);
  assert_int_equal(calls.desc.submit(calls.desc.user, calls.list, 2, &ticket), 0);
  assert_int_equal(calls.desc.wait(calls.desc.user, ticket), 0);
  sim_stats(oracle, &figures);
  support_assert_at_most(fabs(figures.busy_s - 2.0 * 544.0 / 1e6), 1e-7, "busy");
  twh_oracle_destroy(oracle);
}

static void wrong_parameters_are_refused(void **state)
{
  static const struct {
    sim_parameters parameters;
    const char    *word;
  } wrong[] = {
    { { -1.0, 0.0, 0.0, 1, NULL }, "batch_us" },  { { (double)NAN, 0.0, 0.0, 1, NULL }, "batch_us" },
    { { 0.0, -1.0, 0.0, 1, NULL }, "call_us" },   { { 0.0, (double)INFINITY, 0.0, 1, NULL }, "call_us" },
    { { 0.0, 0.0, -1.0, 1, NULL }, "gbps" },      { { 0.0, 0.0, (double)NAN, 1, NULL }, "gbps" },
    { { 0.0, 0.0, 0.0, -1, NULL }, "depth" },     { { 0.0, 0.0, 0.0, 65, NULL }, "depth" },
  };
  twh_problem     problem;
  twh_oracle_desc desc;
  twh_oracle     *oracle = NULL;
  twh_error       error;
  sim_parameters  good = { 1.0, 1.0, 0.0, 1, NULL };
  int64_t         i;
  (void)state;
  sim_problem(&problem, &desc);
  for (i = 0; i < SUPPORT_COUNT(wrong); ++i) {
    twh_error_init(&error);
    support_assert_status(sim_create(NULL, &desc, &wrong[i].parameters, &oracle, &error), TWH_E_ARGUMENT, &error, wrong[i].word);
    assert_null(oracle);
  }
  desc.max_concurrent_batches = 65;
  twh_error_init(&error);
  support_assert_status(sim_create(NULL, &desc, &good, &oracle, &error), TWH_E_ARGUMENT, &error, "max_concurrent_batches");
  desc.max_concurrent_batches = 0;
  desc.qk_dim = 0; /* refused by the library: nothing is left behind */
  support_assert_status(sim_create(NULL, &desc, &good, &oracle, &error), TWH_E_ARGUMENT, &error, "qk_dim");
  assert_null(oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_are_those_of_the_kernel_that_computes),
    cmocka_unit_test(batches_follow_each_other),
    cmocka_unit_test(transfers_take_time),
    cmocka_unit_test(wrong_parameters_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
