/* What an execute tells of itself: every batch and tile once, in an order that can be, and in agreement with the statistics. */
#include "support_queue.h"

enum { TRACE_EVENTS = 4000, TRACE_TILES = 6000, TRACE_STEP = SUPPORT_SANITIZED ? 5 : 1 };

typedef struct trace_log {
  const twh_plan *plan;
  twh_trace_event events[TRACE_EVENTS];
  int64_t         count, tiles, progress; /* no lock: callbacks never come by two threads at once, which a sanitizer sees */
  twh_tile_info   tile[TRACE_TILES];
} trace_log;

static trace_log trace_shared;

static void trace_read(void *user, const twh_trace_event *event)
{
  trace_log    *log = (trace_log *)user;
  twh_tile_info tile;
  int64_t       i;
  assert_true(event->struct_size == sizeof *event);
  assert_true(log->count < TRACE_EVENTS && log->tiles + event->tiles <= TRACE_TILES);
  log->events[log->count] = *event;
  log->events[log->count++].inside = NULL;
  twh_tile_info_init(&tile);
  assert_int_equal(twh_trace_tile(event, -1, &tile, NULL), TWH_E_ARGUMENT);
  assert_int_equal(twh_trace_tile(event, event->tiles, &tile, NULL), TWH_E_ARGUMENT);
  for (i = 0; i < event->tiles; ++i) {
    tile.struct_size = (uint32_t)sizeof tile;
    assert_int_equal(twh_trace_tile(event, i, &tile, NULL), TWH_OK);
    assert_int_equal(tile.calls, 1);
    assert_int_equal(tile.oracle, event->oracle);
    log->tile[log->tiles++] = tile;
  }
}

static int32_t trace_progress(void *user, int64_t done, int64_t planned)
{
  trace_log *log = (trace_log *)user;
  (void)done;
  (void)planned;
  ++log->progress;
  return 0;
}

/* ---- tiles ---- */

static int trace_compare(const void *a, const void *b)
{
  const twh_tile_info *x = (const twh_tile_info *)a, *y = (const twh_tile_info *)b;
  if (x->call != y->call) return x->call < y->call ? -1 : 1;
  if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1;
  if (x->q_at != y->q_at) return x->q_at < y->q_at ? -1 : 1;
  if (x->k_at != y->k_at) return x->k_at < y->k_at ? -1 : 1;
  return memcmp(x, y, sizeof *x);
}

typedef struct trace_plan {
  twh_tile_info tile[TRACE_TILES];
  int64_t       count;
} trace_plan;

static trace_plan trace_planned;

static int32_t trace_visit(void *user, const twh_tile_info *tile)
{
  trace_plan *planned = (trace_plan *)user;
  int64_t     c;
  for (c = 0; tile->mask_mode != 0 && c < tile->calls; ++c) {
    assert_true(planned->count < TRACE_TILES);
    planned->tile[planned->count] = *tile;
    planned->tile[planned->count].calls = 1;
    planned->tile[planned->count++].call = tile->call + c;
  }
  return 0;
}

/* Every tile of the plan in every call that carries it; what is left over are repairs, whose calls come behind the planned ones. */
static void trace_check_tiles(const char *name, const twh_plan *plan, trace_log *log, const twh_plan_info *info, int64_t repairs)
{
  int64_t i, more = 0, last = -1;
  trace_planned.count = 0;
  assert_int_equal(twh_plan_visit(plan, trace_visit, &trace_planned, NULL), TWH_OK);
  qsort(trace_planned.tile, (size_t)trace_planned.count, sizeof(twh_tile_info), trace_compare);
  qsort(log->tile, (size_t)log->tiles, sizeof(twh_tile_info), trace_compare);
  assert_true(log->tiles >= trace_planned.count);
  for (i = 0; i < trace_planned.count; ++i)
    if (memcmp(&log->tile[i], &trace_planned.tile[i], sizeof(twh_tile_info)) != 0) {
      print_error("%s: tile %lld, of call %lld, slot %lld, is not the plan's, of call %lld, slot %lld\n", name, (long long)i,
                  (long long)log->tile[i].call, (long long)log->tile[i].slot, (long long)trace_planned.tile[i].call,
                  (long long)trace_planned.tile[i].slot);
      fail();
    }
  for (; i < log->tiles; ++i) {
    assert_true(log->tile[i].call >= info->calls);
    more += log->tile[i].call != last;
    last = log->tile[i].call;
  }
  assert_int_equal(more, repairs);
}

/* ---- events ---- */

typedef struct trace_wave {
  int64_t kinds[5];
  double  encoded, begun, done, decode, decoded, merge; /* begun, done: of its planned batches, the earliest and the latest */
} trace_wave;

/* What stands in one event, and what its wave has come to. */
static void trace_check_event(const twh_trace_event *event, const twh_plan_info *info, trace_wave *wave, char *seen)
{
  ++wave->kinds[event->kind];
  assert_true(event->begin_s >= 0.0 && event->begin_s <= event->end_s);
  if (event->kind != TWH_TRACE_BATCH) {
    assert_int_equal(event->batch, -1);
    assert_int_equal(event->oracle, -1);
    assert_int_equal(event->first_call, -1);
    assert_int_equal(event->calls, 0);
    assert_int_equal(event->tiles, 0);
    if (event->kind == TWH_TRACE_ENCODE) wave->encoded = event->end_s;
    if (event->kind == TWH_TRACE_DECODE) wave->decode = event->begin_s;
    if (event->kind == TWH_TRACE_DECODE) wave->decoded = event->end_s;
    if (event->kind == TWH_TRACE_MERGE) wave->merge = event->begin_s;
    return;
  }
  assert_true(event->batch >= 0 && event->batch < TRACE_EVENTS);
  assert_int_equal(seen[event->batch], 0);
  seen[event->batch] = 1;
  assert_true(event->calls >= 1 && event->tiles >= 1 && event->first_call >= 0);
  if (event->first_call >= info->calls) return;
  if (!(wave->begun <= event->begin_s)) wave->begun = event->begin_s;
  if (!(wave->done >= event->end_s)) wave->done = event->end_s;
}

static int trace_by_begin(const void *a, const void *b)
{
  const twh_trace_event *x = (const twh_trace_event *)a, *y = (const twh_trace_event *)b;
  return x->begin_s < y->begin_s ? -1 : x->begin_s > y->begin_s;
}

/* Seconds during which some batch was running. */
static double trace_union(trace_log *log)
{
  double  total = 0.0, end = 0.0;
  int64_t i;
  qsort(log->events, (size_t)log->count, sizeof(twh_trace_event), trace_by_begin);
  for (i = 0; i < log->count; ++i) {
    const twh_trace_event *event = &log->events[i];
    if (event->kind != TWH_TRACE_BATCH || event->end_s <= end) continue;
    total += event->end_s - (event->begin_s > end ? event->begin_s : end);
    end = event->end_s;
  }
  return total;
}

static void trace_check_events(trace_log *log, const twh_plan_info *info, const twh_run_stats *stats)
{
  static trace_wave waves[TRACE_EVENTS];
  static char       seen[TRACE_EVENTS];
  int64_t           i, calls = 0, last = 0;
  memset(waves, 0, sizeof waves);
  memset(seen, 0, sizeof seen);
  for (i = 0; i < TRACE_EVENTS; ++i) waves[i].begun = waves[i].done = NAN;
  for (i = 0; i < log->count; ++i) {
    const twh_trace_event *event = &log->events[i];
    assert_true(event->wave >= 1 && event->wave < TRACE_EVENTS);
    if (event->wave > last) last = event->wave;
    trace_check_event(event, info, &waves[event->wave], seen);
    assert_true(event->end_s <= stats->wall_s);
    calls += event->calls;
  }
  assert_int_equal(calls, stats->calls);
  for (i = 0; i < stats->batches; ++i) assert_int_equal(seen[i], 1); /* numbered without gaps */
  for (; i < TRACE_EVENTS; ++i) assert_int_equal(seen[i], 0);
  for (i = 1; i <= last; ++i) {
    const trace_wave *wave = &waves[i];
    assert_true(wave->kinds[TWH_TRACE_ENCODE] == 1 && wave->kinds[TWH_TRACE_DECODE] == 1 && wave->kinds[TWH_TRACE_MERGE] == 1);
    assert_true(wave->decoded <= wave->merge && wave->encoded <= wave->decode);
    if (isnan(wave->begun)) continue;
    assert_true(wave->encoded <= wave->begun && wave->done <= wave->decode);
  }
  for (i = 0; i < log->count; ++i) { /* a repair is part of the decoding of its own wave */
    const twh_trace_event *event = &log->events[i];
    if (event->kind != TWH_TRACE_BATCH || event->first_call < info->calls) continue;
    assert_true(waves[event->wave].decode <= event->begin_s && event->end_s <= waves[event->wave].decoded);
  }
}

/* ---- runs ---- */

typedef struct trace_way {
  int     mode;
  int64_t limit, hook, parallelism;
} trace_way;

static const trace_way trace_ways[] = {
  { QUEUE_RUN, 1, 0, 1 },    { QUEUE_RUN, 1, 0, 2 },  { QUEUE_RUN, 2, 3, 3 },    { QUEUE_RUN, 3, 3, 3 },
  { QUEUE_SUBMIT, 1, 0, 1 }, { QUEUE_BOTH, 2, 0, 1 }, { QUEUE_SUBMIT, 4, 2, 2 }, { QUEUE_SUBMIT, 3, 0, 3 },
};

static void trace_run(const char *name, const twh_problem *problem, const twh_oracle_desc *given, support_tensors *tensors,
                      const trace_way *way)
{
  support_memory   memory;
  twh_context     *context = support_context(&memory, way->hook, way->parallelism);
  trace_log       *log = &trace_shared;
  twh_oracle_desc  desc = *given;
  twh_plan_options plan_options;
  twh_run_options  options;
  twh_run_stats    stats;
  twh_plan_info    info;
  twh_plan        *plan = NULL;
  static queue_kernel kernel;
  desc.max_concurrent_batches = way->limit;
  queue_create(&kernel, &desc, way->mode);
  twh_plan_options_init(&plan_options);
  plan_options.max_calls_per_batch = 2;
  assert_int_equal(twh_plan_create(context, problem, &kernel.oracle, 1, &plan_options, &plan, NULL), TWH_OK);
  twh_plan_info_init(&info);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  log->plan = plan;
  log->count = log->tiles = log->progress = 0;
  options.stats = &stats;
  options.trace = trace_read;
  options.progress = trace_progress;
  options.user = log;
  assert_int_equal(twh_plan_execute(plan, &tensors->all, &options, NULL), TWH_OK);
  assert_true(log->progress >= stats.batches);
  trace_check_events(log, &info, &stats);
  trace_check_tiles(name, plan, log, &info, stats.repair_calls);
  /* one thread reads the clock for both */
  if (way->mode != QUEUE_RUN) support_assert_at_most(fabs(trace_union(log) - stats.oracle_s), 1e-9, "spans against oracle_s");
  twh_plan_destroy(plan);
  queue_destroy(&kernel);
  twh_context_destroy(context);
}

static void a_trace_tells_every_batch_and_every_tile(void **state)
{
  int64_t i, w;
  (void)state;
  for (i = 0; i < support_kernel_count; i += TRACE_STEP) {
    support_random  random = support_random_at(support_seed(607), (uint64_t)i);
    support_fill    fill;
    support_tensors tensors;
    twh_oracle_desc desc;
    twh_problem     problem;
    twh_pattern     pattern;
    twh_problem_init(&problem);
    twh_pattern_init(&pattern);
    memset(&fill, 0, sizeof fill);
    fill.logit_std = i % 2 ? 1.0 : 40.0; /* without and with repairs */
    pattern.flags = i % 3 == 0 ? TWH_CAUSAL : i % 3 == 1 ? TWH_CAUSAL | TWH_LEFT : 0;
    pattern.left = 5;
    problem.pattern = &pattern;
    problem.batch = 2;
    problem.q_heads = 4;
    problem.kv_heads = 2;
    problem.q_len = problem.k_len = 29;
    problem.qk_dim = problem.v_dim = 5;
    support_kernel_desc(&support_kernels[i], &problem, 8, 8, &desc);
    if (!support_must_run(&problem, &desc)) continue;
    support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
    support_tensors_fill(&tensors, &problem, &fill, &random);
    for (w = 0; w < SUPPORT_COUNT(trace_ways); ++w)
      trace_run(support_kernels[i].name, &problem, &desc, &tensors, &trace_ways[w]);
    support_tensors_destroy(&tensors);
  }
}

static void what_is_no_batch_has_no_tiles(void **state)
{
  twh_trace_event event;
  twh_tile_info   tile;
  twh_error       error;
  (void)state;
  twh_trace_event_init(&event);
  twh_tile_info_init(&tile);
  twh_error_init(&error);
  support_assert_status(twh_trace_tile(&event, 0, &tile, &error), TWH_E_ARGUMENT, &error, "0 tiles");
  support_assert_status(twh_trace_tile(NULL, 0, &tile, &error), TWH_E_ARGUMENT, &error, "event");
  support_assert_status(twh_trace_tile(&event, 0, NULL, &error), TWH_E_ARGUMENT, &error, "out");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_trace_tells_every_batch_and_every_tile),
    cmocka_unit_test(what_is_no_batch_has_no_tiles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
