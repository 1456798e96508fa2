/* What a plan costs for any length, and what a decode step costs: one query over many keys, with a plan of its own. */
#include <stdlib.h>

#include "tests/bench/bench.h"

enum { PLAN_TIMES = 200, DECODE_KEYS = 8192 };

/* Memory of a context that is counted. */
typedef struct plan_memory {
  int64_t calls, bytes, most; /* allocations, and bytes that are allocated now and were at most */
} plan_memory;

static void *plan_allocate(void *user, size_t bytes, size_t alignment)
{
  plan_memory *memory = (plan_memory *)user;
  void        *at = NULL;

  if (posix_memalign(&at, alignment < sizeof at ? sizeof at : alignment, bytes ? bytes : 1) != 0) return NULL;
  ++memory->calls;
  memory->bytes += (int64_t)bytes;
  if (memory->bytes > memory->most) memory->most = memory->bytes;
  return at;
}

static void plan_release(void *user, void *at, size_t bytes)
{
  ((plan_memory *)user)->bytes -= (int64_t)bytes;
  free(at);
}

/* A kernel that does nothing: whatever time remains is the library's. */
static int32_t plan_nothing(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user;
  (void)calls;
  (void)n;
  return 0;
}

static twh_oracle *plan_oracle(const bench_case *it)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle = NULL;

  bench_describe(&desc, it);
  desc.run = plan_nothing;
  desc.alignment = 4;
  if (twh_oracle_create(NULL, &desc, &oracle, NULL) < 0) bench_fail(it, "no kernel");
  return oracle;
}

static twh_context *plan_context(const bench_case *it, plan_memory *memory)
{
  twh_context_desc desc;
  twh_context     *context = NULL;

  twh_context_desc_init(&desc);
  desc.allocate = plan_allocate;
  desc.release = plan_release;
  desc.user = memory;
  if (twh_context_create(&desc, &context, NULL) < 0) bench_fail(it, "no context");
  return context;
}

static void plan_problem(const bench_case *it, twh_problem *problem, twh_pattern *pattern)
{
  twh_problem_init(problem);
  twh_pattern_init(pattern);
  pattern->flags = it->pattern == BENCH_FULL ? 0 : it->pattern == BENCH_CAUSAL ? TWH_CAUSAL : TWH_CAUSAL | TWH_LEFT;
  pattern->left = it->pattern == BENCH_WINDOW ? BENCH_LEFT : 0;
  problem->pattern = pattern;
  problem->batch = problem->q_heads = problem->kv_heads = 1;
  problem->q_len = problem->k_len = it->n;
  problem->qk_dim = problem->v_dim = it->dim;
}

/* Make a plan and destroy it many times. Memory, allocations and the workspace are of one plan. */
typedef struct plan_figures {
  double      seconds;
  plan_memory memory;
  int64_t     workspace;
} plan_figures;

static int plan_measure(const bench_case *it, const twh_problem *problem, plan_figures *figures)
{
  plan_memory   memory = { 0, 0, 0 };
  twh_oracle   *oracle = plan_oracle(it);
  twh_context  *context = plan_context(it, &memory);
  twh_problem   step = *problem;
  twh_plan_info info;
  twh_plan     *plan = NULL;
  double        begin;
  const int64_t before = memory.calls, bytes = memory.bytes;
  int           failed = !oracle || !context;

  begin = bench_thread_time();
  for (int i = 0; i < PLAN_TIMES && !failed; ++i) {
    if (step.q_len == 1) {
      step.k_len = problem->k_len + i;
      step.q_offset = step.k_len - 1;
    }
    failed = twh_plan_create(context, &step, &oracle, 1, NULL, &plan, NULL) < 0;
    if (i == 0 && !failed) {
      twh_plan_info_init(&info);
      failed = twh_plan_get_info(plan, &info, NULL) < 0;
      figures->workspace = info.workspace_bytes;
    }
    twh_plan_destroy(plan);
  }
  figures->seconds = (bench_thread_time() - begin) / PLAN_TIMES;
  figures->memory.calls = (memory.calls - before) / PLAN_TIMES;
  figures->memory.most = memory.most - bytes;
  twh_context_destroy(context);
  twh_oracle_destroy(oracle);
  return failed ? bench_fail(it, "no plan") : 0;
}

static int plan_figure(const bench_case *it, plan_figures *figures)
{
  twh_problem problem;
  twh_pattern pattern;

  plan_problem(it, &problem, &pattern);
  return plan_measure(it, &problem, figures);
}

static int plan_time(const bench_case *it, double *figure)
{
  plan_figures figures = { 0, { 0, 0, 0 }, 0 };
  int          failed = plan_figure(it, &figures);

  *figure = 1e6 * figures.seconds;
  return failed;
}

static int plan_bytes(const bench_case *it, double *figure)
{
  plan_figures figures = { 0, { 0, 0, 0 }, 0 };
  int          failed = plan_figure(it, &figures);

  *figure = (double)figures.memory.most / 1024;
  return failed;
}

static int plan_workspace(const bench_case *it, double *figure)
{
  plan_figures figures = { 0, { 0, 0, 0 }, 0 };
  int          failed = plan_figure(it, &figures);

  *figure = (double)figures.workspace / 1024;
  return failed;
}

void bench_plan_cases(bench_list *list)
{
  static const char *units[] = { "us", "KiB", "KiB workspace" };
  int (*const measures[])(const bench_case *, double *) = { plan_time, plan_bytes, plan_workspace };

  for (int what = 0; what < 3; ++what) {
    for (int32_t pattern = BENCH_CAUSAL; pattern <= BENCH_WINDOW; ++pattern) {
      for (int64_t n = 1024; n <= 1 << 20; n *= 4) {
        bench_case it;

        bench_case_init(&it, "plan", units[what], measures[what]);
        it.m = 512;
        it.n = n;
        it.dim = 64;
        it.pattern = pattern;
        bench_add(list, &it, "M 512, N %d, d 64, %s", (int)n, bench_pattern_name(pattern));
      }
    }
  }
}

/* ---- decode: the number of keys changes at every step ------------------------------------------------------------------- */

static void decode_problem(const bench_case *it, twh_problem *problem, twh_pattern *pattern)
{
  plan_problem(it, problem, pattern);
  problem->q_len = 1;
  problem->q_offset = it->n - 1;
}

static int decode_plan(const bench_case *it, double *figure)
{
  plan_figures figures = { 0, { 0, 0, 0 }, 0 };
  twh_problem  problem;
  twh_pattern  pattern;
  int          failed;

  decode_problem(it, &problem, &pattern);
  failed = plan_measure(it, &problem, &figures);
  *figure = it->unit[0] == 'u' ? 1e6 * figures.seconds : (double)figures.memory.calls;
  return failed;
}

/* The library's time in one execute, for each call: all but the kernel's. */
static int decode_execute(const bench_case *it, double *figure)
{
  twh_oracle     *oracle = it->spare ? plan_oracle(it) : bench_oracle(it);
  twh_problem     problem;
  twh_pattern     pattern;
  twh_plan       *plan = NULL;
  twh_plan_info   info;
  twh_tensor      q, k, v, out;
  twh_tensors     tensors;
  twh_run_options options;
  twh_run_stats   stats;
  double          library = 0;
  int64_t         calls = 0;
  int             failed;

  decode_problem(it, &problem, &pattern);
  failed = !oracle || twh_plan_create(NULL, &problem, &oracle, 1, NULL, &plan, NULL) < 0;
  twh_plan_info_init(&info);
  failed = failed || twh_plan_get_info(plan, &info, NULL) < 0;
  twh_tensor_dense(&q, TWH_F32, bench_data(0), 1, 1, it->dim);
  twh_tensor_dense(&k, TWH_F32, bench_data(1), 1, it->n, it->dim);
  twh_tensor_dense(&v, TWH_F32, bench_data(2), 1, it->n, it->dim);
  twh_tensor_dense(&out, TWH_F32, bench_data(3), 1, 1, it->dim);
  twh_tensors_init(&tensors);
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.out = &out;
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  options.workspace_bytes = (size_t)info.workspace_bytes;
  failed = failed || posix_memalign(&options.workspace, 64, options.workspace_bytes + 64) != 0;
  for (int i = 0; i < PLAN_TIMES && !failed; ++i) {
    failed = twh_plan_execute(plan, &tensors, &options, NULL) < 0;
    library += stats.wall_s - stats.oracle_s;
    calls += stats.calls;
  }
  *figure = 1e6 * library / (double)(calls ? calls : 1);
  free(options.workspace);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  return failed ? bench_fail(it, "the step failed") : 0;
}

void bench_decode_cases(bench_list *list)
{
  bench_case it;

  bench_case_init(&it, "decode step", "us of library per call", decode_execute);
  it.m = 512;
  it.n = DECODE_KEYS;
  it.dim = 64;
  it.pattern = BENCH_CAUSAL;
  it.sense = BENCH_AT_MOST;
  it.wanted = 2;
  bench_add(list, &it, "1 query, %d keys, M 512, d 64, lse", DECODE_KEYS);
  it.measure = decode_plan;
  it.unit = "us of plan";
  it.wanted = 10;
  bench_add(list, &it, "create and destroy, the number of keys changing");
  it.unit = "allocations of plan";
  it.wanted = 2;
  bench_add(list, &it, "create and destroy, the number of keys changing");
}
