/* Kernels in the back of the host: several batches in flight, host threads beside a kernel, two executes on one kernel, stopping and
 * failing with batches in flight. No clock is read: what is to happen at the same time waits for each other. */
#include "support_queue.h"

enum { ASYNC_STEP = SUPPORT_SANITIZED ? 15 : 9, ASYNC_REPEAT = SUPPORT_SANITIZED ? 12 : 40 };

typedef struct async_case {
  twh_problem     problem;
  twh_pattern     pattern;
  twh_oracle_desc desc;
  support_tensors want; /* inputs, and the result of a plain run */
} async_case;

/* Pointers point into the struct. 0: the kernel cannot do it. */
static int async_begin(async_case *made, const support_kernel *kernel, int64_t length, double logit_std)
{
  support_random random = support_random_at(support_seed(606), (uint64_t)length);
  support_fill   fill;
  memset(made, 0, sizeof *made);
  memset(&fill, 0, sizeof fill);
  fill.logit_std = logit_std;
  twh_problem_init(&made->problem);
  twh_pattern_init(&made->pattern);
  made->pattern.flags = length % 2 ? TWH_CAUSAL : 0;
  made->problem.pattern = &made->pattern;
  made->problem.batch = 1;
  made->problem.q_heads = made->problem.kv_heads = 2;
  made->problem.q_len = made->problem.k_len = length;
  made->problem.qk_dim = made->problem.v_dim = 4;
  support_kernel_desc(kernel, &made->problem, 8, 8, &made->desc);
  if (!support_must_run(&made->problem, &made->desc)) return 0;
  support_tensors_create(&made->want, &made->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(&made->want, &made->problem, &fill, &random);
  assert_int_equal(support_solve(kernel->name, &made->problem, &made->desc, &made->want, NULL, NULL), TWH_OK);
  return 1;
}

static void async_end(async_case *made)
{
  support_tensors_destroy(&made->want);
}

static void async_tensors(const async_case *made, support_tensors *tensors)
{
  int i;
  support_tensors_create(tensors, &made->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  for (i = 0; i < 3; ++i) memcpy(tensors->memory[i], made->want.memory[i], made->want.bytes[i]);
}

static void async_compare(const async_case *made, const support_tensors *tensors, const char *name)
{
  if (memcmp(made->want.out.data, tensors->out.data, tensors->bytes[3]) == 0 &&
      memcmp(made->want.lse.data, tensors->lse.data, tensors->bytes[4]) == 0)
    return;
  print_error("%s: other bits\n", name);
  fail();
}

static twh_plan *async_plan(const async_case *made, const twh_context *context, queue_kernel *kernel, int64_t per_batch)
{
  twh_plan_options options;
  twh_plan_info    info;
  twh_plan        *plan = NULL;
  twh_plan_options_init(&options);
  twh_plan_info_init(&info);
  options.max_calls_per_batch = per_batch;
  assert_int_equal(twh_plan_create(context, &made->problem, &kernel->oracle, 1, &options, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  kernel->planned = info.calls;
  return plan;
}

/* Without threads, on the host's hook, on the context's own. */
typedef struct async_threads {
  int64_t hook, parallelism;
} async_threads;

static const async_threads async_contexts[] = { { 0, 1 }, { 2, 2 }, { 4, 4 }, { 0, 2 }, { 0, 4 }, { 1, 4 } };

static void results_have_the_same_bits_however_many_batches_are_in_flight(void **state)
{
  static const int64_t lengths[] = { 37, 40 };
  int64_t              i, c, limit, l, repairs = 0, beside = 0;
  int                  mode;
  (void)state;
  for (i = 0; i < support_kernel_count; i += ASYNC_STEP)
    for (l = 0; l < 2; ++l) {
      async_case made;
      if (!async_begin(&made, &support_kernels[i], lengths[l], l ? 40.0 : 1.0)) continue;
      for (mode = 0; mode < QUEUE_MODES; ++mode)
        for (c = 0; c < SUPPORT_COUNT(async_contexts); ++c)
          for (limit = 1; limit <= 4; ++limit) {
            support_memory  memory;
            twh_context    *context = support_context(&memory, async_contexts[c].hook, async_contexts[c].parallelism);
            static queue_kernel kernel;
            support_tensors tensors;
            twh_run_options options;
            twh_run_stats   stats;
            twh_plan       *plan;
            made.desc.max_concurrent_batches = limit;
            queue_create(&kernel, &made.desc, mode);
            plan = async_plan(&made, context, &kernel, 1 + (limit + c) % 3);
            async_tensors(&made, &tensors);
            twh_run_options_init(&options);
            twh_run_stats_init(&stats);
            options.stats = &stats;
            assert_int_equal(twh_plan_execute(plan, &tensors.all, &options, NULL), TWH_OK);
            async_compare(&made, &tensors, support_kernels[i].name);
            assert_int_equal(stats.calls, kernel.calls);
            assert_int_equal(stats.batches, kernel.begun);
            if (mode != QUEUE_RUN) {
              assert_int_equal(kernel.runs, 0);
              assert_true(kernel.most >= (limit < 2 || kernel.begun < 2 ? 1 : 2));
              beside += kernel.beside;
            }
            repairs += stats.repair_calls;
            support_tensors_destroy(&tensors);
            twh_plan_destroy(plan);
            queue_destroy(&kernel);
            twh_context_destroy(context);
            assert_int_equal(memory.live_blocks, 0);
            assert_int_equal(memory.wrong_releases, 0);
          }
      async_end(&made);
    }
  assert_true(repairs > 0);
  assert_true(beside > 0); /* repairs of one wave while another one was in flight */
}

/* The host's work in the trace, and what the kernel was doing then. */
typedef struct async_watch {
  queue_kernel *kernel;
  int64_t       encoded, idle; /* waves; those that were encoded while nothing was in flight, the first one apart */
} async_watch;

static void async_watch_trace(void *user, const twh_trace_event *event)
{
  async_watch *watch = (async_watch *)user;
  if (event->kind != TWH_TRACE_ENCODE) return;
  ++watch->encoded;
  if (event->wave > 1 && queue_running(watch->kernel) == 0) ++watch->idle;
  if (event->wave == 2) queue_open(watch->kernel);
}

/* The first batch is not done before the second wave is encoded; no wave but the first is encoded while the kernel has nothing. */
static void the_host_works_while_the_kernel_does(void **state)
{
  int64_t c, limit;
  int     mode;
  (void)state;
  for (mode = 0; mode < QUEUE_MODES; ++mode)
    for (c = 0; c < SUPPORT_COUNT(async_contexts); ++c)
      for (limit = 1; limit <= 4; ++limit) {
        support_memory  memory;
        twh_context    *context;
        async_case      made;
        async_watch     watch;
        static queue_kernel kernel;
        support_tensors tensors;
        twh_run_options options;
        twh_plan       *plan;
        if (mode == QUEUE_RUN && (limit >= async_contexts[c].parallelism || async_contexts[c].hook == 1)) continue;
        assert_true(async_begin(&made, &support_kernels[0], 80, 1.0));
        context = support_context(&memory, async_contexts[c].hook, async_contexts[c].parallelism);
        made.desc.max_concurrent_batches = limit;
        queue_create(&kernel, &made.desc, mode);
        kernel.gate = INT64_MAX;
        plan = async_plan(&made, context, &kernel, 2);
        async_tensors(&made, &tensors);
        twh_run_options_init(&options);
        memset(&watch, 0, sizeof watch);
        watch.kernel = &kernel;
        options.trace = async_watch_trace;
        options.user = &watch;
        assert_int_equal(twh_plan_execute(plan, &tensors.all, &options, NULL), TWH_OK);
        async_compare(&made, &tensors, "host beside kernel");
        assert_true(watch.encoded > 4);
        assert_int_equal(kernel.waited, 0);
        if (mode != QUEUE_RUN) assert_int_equal(watch.idle, 0);
        support_tensors_destroy(&tensors);
        twh_plan_destroy(plan);
        queue_destroy(&kernel);
        twh_context_destroy(context);
        async_end(&made);
      }
}

/* The first batch is not done before a second one has begun. */
static void a_kernel_that_allows_two_batches_gets_two(void **state)
{
  int64_t c;
  int     mode;
  (void)state;
  for (mode = 0; mode < QUEUE_MODES; ++mode)
    for (c = 0; c < SUPPORT_COUNT(async_contexts); ++c) {
      support_memory  memory;
      twh_context    *context;
      async_case      made;
      static queue_kernel kernel;
      support_tensors tensors;
      twh_plan       *plan;
      if (mode == QUEUE_RUN && (async_contexts[c].parallelism < 2 || async_contexts[c].hook == 1)) continue;
      assert_true(async_begin(&made, &support_kernels[0], 80, 1.0));
      context = support_context(&memory, async_contexts[c].hook, async_contexts[c].parallelism);
      made.desc.max_concurrent_batches = 2;
      queue_create(&kernel, &made.desc, mode);
      kernel.gate = 2;
      plan = async_plan(&made, context, &kernel, 2);
      async_tensors(&made, &tensors);
      assert_int_equal(twh_plan_execute(plan, &tensors.all, NULL, NULL), TWH_OK);
      async_compare(&made, &tensors, "two batches");
      assert_int_equal(kernel.waited, 0);
      assert_int_equal(kernel.most, 2);
      support_tensors_destroy(&tensors);
      twh_plan_destroy(plan);
      queue_destroy(&kernel);
      twh_context_destroy(context);
      async_end(&made);
    }
}

/* ---- two executes on one kernel ---- */

typedef struct async_client {
  const twh_plan  *plan;
  support_tensors *tensors;
  int64_t          stop_at; /* calls after which progress asks to stop; -1: never */
  twh_status       status;
} async_client;

static int32_t async_client_progress(void *user, int64_t done, int64_t planned)
{
  const async_client *client = (const async_client *)user;
  (void)planned;
  return client->stop_at >= 0 && done >= client->stop_at;
}

static void *async_client_run(void *arg)
{
  async_client   *client = (async_client *)arg;
  twh_run_options options;
  twh_run_options_init(&options);
  options.progress = async_client_progress;
  options.user = client;
  client->status = twh_plan_execute(client->plan, &client->tensors->all, &options, NULL);
  return NULL;
}

static void executes_that_share_a_kernel_do_not_wait_for_each_other_forever(void **state)
{
  int64_t limit, time, i;
  int     mode;
  (void)state;
  for (mode = 0; mode < QUEUE_MODES; ++mode)
    for (limit = 1; limit <= 3; ++limit) {
      support_memory  memory;
      twh_context    *context = support_context(&memory, 0, 1 + limit);
      async_case      made;
      static queue_kernel kernel;
      support_tensors tensors[3];
      twh_plan       *plan;
      assert_true(async_begin(&made, &support_kernels[5], 37, 40.0)); /* with repairs */
      made.desc.max_concurrent_batches = limit;
      queue_create(&kernel, &made.desc, mode);
      plan = async_plan(&made, context, &kernel, 3);
      for (i = 0; i < 3; ++i) async_tensors(&made, &tensors[i]);
      for (time = 0; time < ASYNC_REPEAT; ++time) {
        async_client clients[3];
        pthread_t    threads[3];
        for (i = 0; i < 3; ++i) {
          clients[i].plan = plan;
          clients[i].tensors = &tensors[i];
          clients[i].stop_at = i == 2 ? time % 20 : -1; /* the third one gives up */
          support_tensors_clear(&tensors[i]);
          assert_int_equal(pthread_create(&threads[i], NULL, async_client_run, &clients[i]), 0);
        }
        for (i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
        for (i = 0; i < 2; ++i) {
          assert_int_equal(clients[i].status, TWH_OK);
          async_compare(&made, &tensors[i], "shared kernel");
        }
        assert_int_equal(clients[2].status, TWH_E_CANCELLED);
        assert_int_equal(queue_running(&kernel), 0);
      }
      for (i = 0; i < 3; ++i) support_tensors_destroy(&tensors[i]);
      twh_plan_destroy(plan);
      queue_destroy(&kernel);
      twh_context_destroy(context);
      assert_int_equal(memory.live_blocks, 0);
      async_end(&made);
    }
}

/* ---- stopping and failing ---- */

typedef struct async_stop {
  queue_kernel *kernel;
  int64_t       stop_at, done, planned, after; /* after: calls of progress after it has asked to stop */
  int           asked;
} async_stop;

static int32_t async_stop_progress(void *user, int64_t done, int64_t planned)
{
  async_stop *stop = (async_stop *)user;
  stop->after += stop->asked;
  stop->planned = planned;
  assert_true(done >= stop->done);
  stop->done = done;
  if (done < stop->stop_at) return 0;
  stop->asked = 1;
  pthread_mutex_lock(&stop->kernel->lock);
  stop->kernel->over = stop->kernel->desc.max_concurrent_batches > 0; /* with one thread that calls it nothing is on its way */
  pthread_mutex_unlock(&stop->kernel->lock);
  return 1;
}

/* A run-only kernel on several threads may have batches that passed the gate when progress asks: they have begun. */
static void async_stop_once(const async_case *made, int mode, const async_threads *threads, int64_t limit, int64_t at)
{
  support_memory  memory;
  twh_context    *context = support_context(&memory, threads->hook, threads->parallelism);
  static queue_kernel kernel;
  support_tensors tensors;
  async_stop      stop;
  twh_run_options options;
  twh_run_stats   stats;
  twh_plan       *plan;
  twh_oracle_desc desc = made->desc;
  int64_t         live;
  int             single = mode != QUEUE_RUN || limit == 1 || threads->parallelism == 1;
  desc.max_concurrent_batches = limit;
  queue_create(&kernel, &desc, mode);
  plan = async_plan(made, context, &kernel, 2);
  async_tensors(made, &tensors);
  memset(&stop, 0, sizeof stop);
  stop.kernel = &kernel;
  stop.stop_at = at;
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  options.progress = async_stop_progress;
  options.user = &stop;
  live = memory.live_blocks;
  assert_int_equal(twh_plan_execute(plan, &tensors.all, &options, NULL), TWH_E_CANCELLED);
  assert_int_equal(stop.after, 0);
  if (single) assert_int_equal(kernel.late, 0);
  assert_true(kernel.late < limit);
  assert_int_equal(queue_running(&kernel), 0);
  assert_int_equal(stats.calls, kernel.calls);
  assert_int_equal(stats.batches, kernel.begun);
  assert_true(stats.calls <= stop.done + 2 * limit + 2 * kernel.late + stats.repair_calls); /* what was in flight */
  assert_int_equal(memory.live_blocks, live);
  assert_true(stats.oracle_s >= 0.0 && stats.oracle_s <= stats.wall_s);
  kernel.over = 0; /* everything is fit for use again */
  kernel.late = 0;
  assert_int_equal(twh_plan_execute(plan, &tensors.all, NULL, NULL), TWH_OK);
  async_compare(made, &tensors, "after a stop");
  support_tensors_destroy(&tensors);
  twh_plan_destroy(plan);
  queue_destroy(&kernel);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
}

static void a_stopped_execute_begins_no_further_batch_and_waits_for_those_in_flight(void **state)
{
  int64_t i, c, limit, at;
  int     mode;
  (void)state;
  for (i = 0; i < 6; i += 5) { /* with lse, and with buckets and repairs */
    async_case made;
    assert_true(async_begin(&made, &support_kernels[i], 37, i ? 40.0 : 1.0));
    for (mode = 0; mode < QUEUE_MODES; ++mode)
      for (c = 0; c < SUPPORT_COUNT(async_contexts); ++c)
        for (limit = 1; limit <= 4; limit += 1 + (limit > 1))
          for (at = 0; at < 40; at += SUPPORT_SANITIZED ? 13 : 6)
            async_stop_once(&made, mode, &async_contexts[c], limit, at);
    async_end(&made);
  }
}

static void async_fail_once(const async_case *made, int mode, const async_threads *threads, int64_t limit, int64_t at, int submit)
{
  support_memory  memory;
  twh_context    *context = support_context(&memory, threads->hook, threads->parallelism);
  static queue_kernel kernel;
  support_tensors tensors;
  twh_run_options options;
  twh_run_stats   stats;
  twh_error       error;
  twh_plan       *plan;
  twh_oracle_desc desc = made->desc;
  int64_t         live;
  desc.max_concurrent_batches = limit;
  queue_create(&kernel, &desc, mode);
  kernel.fail_at = at;
  kernel.fail_submit = submit;
  plan = async_plan(made, context, &kernel, 2);
  async_tensors(made, &tensors);
  twh_error_init(&error);
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  live = memory.live_blocks;
  support_assert_status(twh_plan_execute(plan, &tensors.all, &options, &error), TWH_E_ORACLE, &error, NULL);
  assert_int_equal(error.oracle_code, QUEUE_CODE);
  assert_int_equal(kernel.failed, 1);
  assert_true(kernel.late <= (mode == QUEUE_RUN ? limit - 1 : 0));
  assert_int_equal(queue_running(&kernel), 0);
  assert_int_equal(stats.calls, kernel.calls);
  assert_int_equal(stats.batches, kernel.begun);
  assert_int_equal(memory.live_blocks, live);
  support_tensors_destroy(&tensors);
  twh_plan_destroy(plan);
  queue_destroy(&kernel);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
}

static void a_batch_that_fails_ends_the_execute_with_others_in_flight(void **state)
{
  int64_t i, c, limit, at;
  int     mode, submit;
  (void)state;
  for (i = 0; i < 6; i += 5) {
    async_case made;
    assert_true(async_begin(&made, &support_kernels[i], 37, i ? 40.0 : 1.0));
    for (mode = 0; mode < QUEUE_MODES; ++mode)
      for (submit = 0; submit < (mode == QUEUE_RUN ? 1 : 2); ++submit)
        for (c = 0; c < SUPPORT_COUNT(async_contexts); ++c)
          for (limit = 1; limit <= 4; limit += 1 + (limit > 1))
            for (at = 0; at < 12; at += SUPPORT_SANITIZED ? 5 : 2)
              async_fail_once(&made, mode, &async_contexts[c], limit, at, submit);
    async_end(&made);
  }
}

/* A kernel that is submitted to and one that is run, in one plan: the first whole blocks, the second what is left. */
static void kernels_of_both_kinds_serve_one_plan(void **state)
{
  int64_t c, limit;
  int     turned;
  (void)state;
  for (turned = 0; turned < 2; ++turned)
    for (c = 0; c < SUPPORT_COUNT(async_contexts); ++c)
      for (limit = 1; limit <= 3; ++limit) {
        support_memory   memory;
        twh_context     *context = support_context(&memory, async_contexts[c].hook, async_contexts[c].parallelism);
        async_case       made;
        static queue_kernel kernels[2];
        twh_oracle      *oracles[2];
        support_tensors  tensors[2];
        twh_plan_options options;
        twh_plan        *plan = NULL;
        int              k;
        assert_true(async_begin(&made, &support_kernels[0], 61, 1.0));
        twh_plan_options_init(&options);
        options.max_calls_per_batch = 2;
        for (k = 0; k < 2; ++k) {
          twh_oracle_desc desc = made.desc;
          desc.max_concurrent_batches = limit;
          if (k) {
            desc.mask_modes = TWH_MASK_CAUSAL;
            desc.cost_per_call = 0.9;
          }
          queue_create(&kernels[k], &desc, k == turned ? QUEUE_SUBMIT : QUEUE_RUN);
          oracles[k] = kernels[k].oracle;
        }
        assert_int_equal(twh_plan_create(context, &made.problem, oracles, 2, &options, &plan, NULL), TWH_OK);
        for (k = 0; k < 2; ++k) async_tensors(&made, &tensors[k]);
        for (k = 0; k < 2; ++k) assert_int_equal(twh_plan_execute(plan, &tensors[k].all, NULL, NULL), TWH_OK);
        assert_true(kernels[0].calls > 0 && kernels[1].calls > 0);
        assert_memory_equal(tensors[0].out.data, tensors[1].out.data, tensors[0].bytes[3]);
        for (k = 0; k < 2; ++k) support_tensors_destroy(&tensors[k]);
        twh_plan_destroy(plan);
        for (k = 0; k < 2; ++k) queue_destroy(&kernels[k]);
        twh_context_destroy(context);
        assert_int_equal(memory.live_blocks, 0);
        async_end(&made);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_have_the_same_bits_however_many_batches_are_in_flight),
    cmocka_unit_test(the_host_works_while_the_kernel_does),
    cmocka_unit_test(a_kernel_that_allows_two_batches_gets_two),
    cmocka_unit_test(executes_that_share_a_kernel_do_not_wait_for_each_other_forever),
    cmocka_unit_test(a_stopped_execute_begins_no_further_batch_and_waits_for_those_in_flight),
    cmocka_unit_test(a_batch_that_fails_ends_the_execute_with_others_in_flight),
    cmocka_unit_test(kernels_of_both_kinds_serve_one_plan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
