/* The same bits whatever the threads, batches and memory, and plans that many threads use at once. */
#include "support.h"

enum { REPEAT_FULL, REPEAT_CAUSAL, REPEAT_WINDOW, REPEAT_RAGGED, REPEAT_KINDS };
enum { REPEAT_STEP = SUPPORT_SANITIZED ? 12 : 1 }; /* through the table of kernels */

typedef struct repeat_setup {
  twh_problem     problem;
  twh_pattern     pattern;
  twh_sequence    sequences[9];
  twh_oracle_desc desc;
  support_tensors want; /* inputs, and the result of a plain run */
} repeat_setup;

/* Many short sequences, which share slots where the kernel can keep them apart. */
static void repeat_requests(repeat_setup *s)
{
  int64_t b, rows = 0;
  for (b = 0; b < SUPPORT_COUNT(s->sequences); ++b) {
    s->sequences[b].q_begin = s->sequences[b].k_begin = rows;
    s->sequences[b].q_len = s->sequences[b].k_len = 1 + b * 3 % 5;
    rows += s->sequences[b].q_len;
  }
  s->problem.batch = SUPPORT_COUNT(s->sequences);
  s->problem.sequences = s->sequences;
  s->problem.q_len = s->problem.k_len = 0;
}

static int repeat_begin(repeat_setup *s, const support_kernel *kernel, int kind, int64_t n)
{
  support_random random = support_random_at(support_seed(85), (uint64_t)n);
  support_fill   fill;
  memset(s, 0, sizeof *s);
  memset(&fill, 0, sizeof fill);
  fill.logit_std = n % 2 ? 1.0 : 30.0; /* without and with repairs */
  twh_problem_init(&s->problem);
  twh_pattern_init(&s->pattern);
  s->pattern.flags = (kind != REPEAT_FULL ? TWH_CAUSAL : 0) | (kind == REPEAT_WINDOW ? TWH_LEFT : 0);
  s->pattern.left = 5;
  s->pattern.sink_tokens = kind == REPEAT_WINDOW ? 2 : 0;
  s->problem.pattern = &s->pattern;
  s->problem.batch = 2;
  s->problem.q_heads = 4;
  s->problem.kv_heads = 2;
  s->problem.q_len = s->problem.k_len = n;
  s->problem.qk_dim = s->problem.v_dim = 5;
  if (kind == REPEAT_RAGGED) repeat_requests(s);
  support_kernel_desc(kernel, &s->problem, 8, 8, &s->desc);
  if (!support_must_run(&s->problem, &s->desc)) return 0;
  support_tensors_create(&s->want, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(&s->want, &s->problem, &fill, &random);
  assert_int_equal(support_solve(kernel->name, &s->problem, &s->desc, &s->want, NULL, NULL), TWH_OK);
  return 1;
}

/* Tensors with the inputs of s->want and memory of their own for the result. */
static void repeat_tensors(const repeat_setup *s, support_tensors *tensors)
{
  int i;
  support_tensors_create(tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  for (i = 0; i < 3; ++i) memcpy(tensors->memory[i], s->want.memory[i], tensors->bytes[i]);
}

static void repeat_compare(const repeat_setup *s, const support_tensors *tensors, const char *name, const char *how,
                           int64_t value)
{
  if (memcmp(s->want.out.data, tensors->out.data, tensors->bytes[3]) == 0 &&
      memcmp(s->want.lse.data, tensors->lse.data, tensors->bytes[4]) == 0)
    return;
  print_error("%s: other bits with %s %lld\n", name, how, (long long)value);
  fail();
}

typedef struct repeat_way {
  int64_t threads, parallelism, concurrent, per_batch, limit;
  int     own_workspace;
} repeat_way;

static void repeat_run(const repeat_setup *s, const char *name, const repeat_way *way, const char *how, int64_t value)
{
  support_memory   memory;
  twh_context     *context = support_context(&memory, way->threads, way->parallelism);
  twh_oracle_desc  desc = s->desc;
  support_oracle   oracle;
  twh_plan_options plan_options;
  twh_plan_info    info;
  twh_run_options  options;
  twh_plan        *plan = NULL;
  support_tensors  tensors;
  void            *workspace = NULL;
  desc.max_concurrent_batches = way->concurrent;
  support_oracle_create(&oracle, context, &desc, NULL);
  twh_plan_options_init(&plan_options);
  plan_options.max_calls_per_batch = way->per_batch;
  plan_options.workspace_limit = way->limit;
  assert_int_equal(twh_plan_create(context, &s->problem, &oracle.oracle, 1, &plan_options, &plan, NULL), TWH_OK);
  twh_run_options_init(&options);
  if (way->own_workspace) {
    twh_plan_info_init(&info);
    assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
    assert_int_equal(posix_memalign(&workspace, (size_t)(info.workspace_alignment < 8 ? 8 : info.workspace_alignment),
                                    (size_t)info.workspace_bytes + 64),
                     0);
    memset(workspace, SUPPORT_POISON, (size_t)info.workspace_bytes + 64);
    options.workspace = workspace;
    options.workspace_bytes = (size_t)info.workspace_bytes;
  }
  repeat_tensors(s, &tensors);
  assert_int_equal(twh_plan_execute(plan, &tensors.all, &options, NULL), TWH_OK);
  if (oracle.broken[0]) print_error("%s\n", oracle.broken);
  assert_int_equal(oracle.broken[0], 0);
  repeat_compare(s, &tensors, name, how, value);
  if (workspace) {
    int i;
    for (i = 0; i < 64; ++i)
      assert_int_equal(((unsigned char *)workspace)[(size_t)info.workspace_bytes + (size_t)i], SUPPORT_POISON);
  }
  free(workspace);
  support_tensors_destroy(&tensors);
  twh_plan_destroy(plan);
  support_oracle_destroy(&oracle);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
}

static void results_have_the_same_bits_however_they_are_computed(void **state)
{
  static const int64_t threads[] = { 1, 2, 8 }, batches[] = { 1, 2, 3, 7 }, hints[] = { 1, 2, 3, 8, 100 },
                       limits[] = { 1, 3000, 20000, (int64_t)1 << 30 };
  int64_t i, j, n;
  int     kind;
  (void)state;
  for (i = 0; i < support_kernel_count; i += REPEAT_STEP)
    for (kind = 0; kind < REPEAT_KINDS; ++kind)
      for (n = 37 + 11 * (kind % 2); n < 50; n += 100) { /* without and with repairs */
        const char  *name = support_kernels[i].name;
        repeat_setup s;
        repeat_way   way;
        if (kind >= REPEAT_WINDOW && (i + kind) % 3) continue; /* they take many waves, and most of the time is the threads' */
        if (!repeat_begin(&s, &support_kernels[i], kind, n)) continue;
        for (j = 0; j < SUPPORT_COUNT(threads); ++j) {
          memset(&way, 0, sizeof way);
          way.threads = way.parallelism = way.concurrent = threads[j];
          repeat_run(&s, name, &way, "threads", threads[j]);
          way.concurrent = 1;
          way.own_workspace = 1;
          repeat_run(&s, name, &way, "threads on one batch at a time", threads[j]);
        }
        for (j = 0; j < SUPPORT_COUNT(hints); ++j) {
          memset(&way, 0, sizeof way);
          way.parallelism = hints[j];
          way.concurrent = 1 + j;
          repeat_run(&s, name, &way, "a parallelism of", hints[j]);
        }
        memset(&way, 0, sizeof way);
        way.threads = 4;
        way.parallelism = way.concurrent = 32; /* so many do each step of a wave together */
        repeat_run(&s, name, &way, "a parallelism of", way.parallelism);
        for (j = 0; j < SUPPORT_COUNT(batches); ++j) {
          memset(&way, 0, sizeof way);
          way.per_batch = batches[j];
          way.threads = j % 2 ? 3 : 0;
          way.concurrent = 2;
          repeat_run(&s, name, &way, "calls per batch", batches[j]);
        }
        for (j = 0; j < SUPPORT_COUNT(limits); ++j) {
          memset(&way, 0, sizeof way);
          way.limit = limits[j];
          way.own_workspace = (int)(j % 2);
          repeat_run(&s, name, &way, "a workspace limit of", limits[j]);
        }
        support_tensors_destroy(&s.want);
      }
}

/* Kernels so long that their rows merge in several lots: on one thread, on some that take what is next, on many that do each
 * step together. */
static void long_kernels_have_the_same_bits_on_any_threads(void **state)
{
  static const int64_t threads[] = { 1, 2, 5, 32 };
  const support_fill   fill = { 1, 0, 0, 0, 0, 0 };
  (void)state;
  for (int causal = 0; causal < 2; ++causal) {
    support_random random = support_random_at(85, 7);
    repeat_setup   s;
    memset(&s, 0, sizeof s);
    twh_problem_init(&s.problem);
    twh_pattern_init(&s.pattern);
    s.pattern.flags = causal ? TWH_CAUSAL : 0;
    s.problem.pattern = &s.pattern;
    s.problem.batch = s.problem.kv_heads = 1;
    s.problem.q_heads = 2;
    s.problem.q_len = s.problem.k_len = 1500;
    s.problem.qk_dim = s.problem.v_dim = 5;
    twh_oracle_desc_init(&s.desc);
    s.desc.slots = 1;
    s.desc.q_len = s.desc.k_len = 250; /* three lots of 64 rows and a part of one */
    s.desc.qk_dim = s.desc.v_dim = 5;
    s.desc.dtype = TWH_F32;
    s.desc.flags = TWH_ORACLE_LSE;
    s.desc.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
    s.desc.scale = 0.5;
    support_tensors_create(&s.want, &s.problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
    support_tensors_fill(&s.want, &s.problem, &fill, &random);
    assert_int_equal(support_solve("long", &s.problem, &s.desc, &s.want, NULL, NULL), TWH_OK);
    for (int64_t i = 0; i < SUPPORT_COUNT(threads); ++i) {
      repeat_way way = { 0, 0, 0, 0, 0, 1 };
      way.threads = threads[i] < 5 ? threads[i] : 5;
      way.parallelism = way.concurrent = threads[i];
      repeat_run(&s, "long kernel", &way, "threads", threads[i]);
    }
    support_tensors_destroy(&s.want);
  }
}

/* ---- many threads on one plan ---- */

typedef struct repeat_job {
  const repeat_setup *setup;
  const twh_plan     *plan;
  const char         *name;
  int64_t             runs, number, wrong;
  twh_status          status;
} repeat_job;

static void *repeat_work(void *arg)
{
  repeat_job     *job = (repeat_job *)arg;
  support_tensors tensors;
  twh_run_options options;
  twh_run_stats   stats;
  twh_plan_info   info;
  void           *workspace = NULL;
  int64_t         i;
  twh_plan_info_init(&info);
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  (void)twh_plan_get_info(job->plan, &info, NULL);
  if (job->number % 2) {
    if (posix_memalign(&workspace, (size_t)(info.workspace_alignment < 8 ? 8 : info.workspace_alignment),
                       (size_t)info.workspace_bytes))
      abort();
    options.workspace = workspace;
    options.workspace_bytes = (size_t)info.workspace_bytes;
  }
  repeat_tensors(job->setup, &tensors);
  for (i = 0; i < job->runs && !job->wrong; ++i) {
    support_tensors_clear(&tensors);
    if (workspace && i % 5 == 0) memset(workspace, SUPPORT_POISON, (size_t)info.workspace_bytes);
    job->status = twh_plan_execute(job->plan, &tensors.all, &options, NULL);
    job->wrong = job->status < 0 || memcmp(job->setup->want.out.data, tensors.out.data, tensors.bytes[3]) != 0 ||
                 memcmp(job->setup->want.lse.data, tensors.lse.data, tensors.bytes[4]) != 0 ||
                 stats.calls != info.calls + stats.repair_calls;
  }
  support_tensors_destroy(&tensors);
  free(workspace);
  return NULL;
}

static void case_C85_and_C91_many_threads_execute_one_plan(void **state)
{
  int64_t i, j, concurrent;
  int     kind;
  (void)state;
  for (i = 0; i < support_kernel_count; i += SUPPORT_SANITIZED ? 15 : 5)
    for (kind = 0; kind < REPEAT_KINDS; ++kind)
      for (concurrent = 1; concurrent <= 8; concurrent += 7) {
        repeat_setup   s;
        support_oracle oracle;
        support_memory memory;
        twh_context   *context;
        twh_plan      *plan = NULL;
        repeat_job     jobs[8];
        pthread_t      threads[8];
        if (kind >= REPEAT_WINDOW && i % 15 != 0) continue;
        if (!repeat_begin(&s, &support_kernels[i], kind, 20 + concurrent)) continue;
        context = support_context(&memory, concurrent > 1 ? 2 : 0, 2);
        s.desc.max_concurrent_batches = concurrent;
        support_oracle_create(&oracle, context, &s.desc, NULL);
        assert_int_equal(twh_plan_create(context, &s.problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
        for (j = 0; j < 8; ++j) {
          memset(&jobs[j], 0, sizeof jobs[j]);
          jobs[j].setup = &s;
          jobs[j].plan = plan;
          jobs[j].runs = 25;
          jobs[j].number = j;
          assert_int_equal(pthread_create(&threads[j], NULL, repeat_work, &jobs[j]), 0);
        }
        for (j = 0; j < 8; ++j) pthread_join(threads[j], NULL);
        for (j = 0; j < 8; ++j) assert_int_equal(jobs[j].wrong, 0);
        if (oracle.broken[0]) print_error("%s\n", oracle.broken);
        assert_int_equal(oracle.broken[0], 0);
        assert_true(oracle.most_running <= concurrent);
        twh_plan_destroy(plan);
        support_oracle_destroy(&oracle);
        twh_context_destroy(context);
        assert_int_equal(memory.live_blocks, 0);
        support_tensors_destroy(&s.want);
      }
}

/* ---- from thread to thread ---- */

typedef struct repeat_travel {
  repeat_setup    setup;
  support_memory  memory;
  twh_context    *context;
  support_oracle  oracle;
  twh_plan       *plan;
  support_tensors tensors;
  twh_status      status;
} repeat_travel;

static void *repeat_create_all(void *arg)
{
  repeat_travel *travel = (repeat_travel *)arg;
  travel->status =
    twh_plan_create(travel->context, &travel->setup.problem, &travel->oracle.oracle, 1, NULL, &travel->plan, NULL);
  return NULL;
}

static void *repeat_execute(void *arg)
{
  repeat_travel *travel = (repeat_travel *)arg;
  travel->status = twh_plan_execute(travel->plan, &travel->tensors.all, NULL, NULL);
  return NULL;
}

static void *repeat_destroy_all(void *arg)
{
  repeat_travel *travel = (repeat_travel *)arg;
  twh_plan_destroy(travel->plan);
  twh_oracle_destroy(travel->oracle.oracle);
  travel->oracle.oracle = NULL;
  travel->status = TWH_OK;
  return NULL;
}

static void repeat_in_a_thread(void *(*work)(void *), repeat_travel *travel)
{
  pthread_t thread;
  travel->status = TWH_E_ARGUMENT;
  assert_int_equal(pthread_create(&thread, NULL, work, travel), 0);
  pthread_join(thread, NULL);
  assert_int_equal(travel->status, TWH_OK);
}

static void case_C94_created_used_and_destroyed_on_three_threads(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < support_kernel_count; i += 5) {
    repeat_travel travel;
    memset(&travel, 0, sizeof travel);
    if (!repeat_begin(&travel.setup, &support_kernels[i], REPEAT_FULL, 21)) continue;
    travel.setup.problem.pattern = NULL; /* it lies where it was; the problem means the same without it */
    travel.context = support_context(&travel.memory, 2, 2);
    support_oracle_create(&travel.oracle, travel.context, &travel.setup.desc, NULL);
    repeat_tensors(&travel.setup, &travel.tensors);
    repeat_in_a_thread(repeat_create_all, &travel);
    repeat_in_a_thread(repeat_execute, &travel);
    repeat_compare(&travel.setup, &travel.tensors, support_kernels[i].name, "threads", 3);
    repeat_in_a_thread(repeat_destroy_all, &travel);
    support_tensors_destroy(&travel.tensors);
    support_tensors_destroy(&travel.setup.want);
    support_oracle_destroy(&travel.oracle);
    twh_context_destroy(travel.context);
    assert_int_equal(travel.memory.live_blocks, 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_have_the_same_bits_however_they_are_computed),
    cmocka_unit_test(long_kernels_have_the_same_bits_on_any_threads),
    cmocka_unit_test(case_C85_and_C91_many_threads_execute_one_plan),
    cmocka_unit_test(case_C94_created_used_and_destroyed_on_three_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
