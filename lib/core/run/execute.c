/* Executing a plan: tensors are checked, tiles are placed into bundles, full waves are computed. */
#include <math.h>
#include <string.h>

#include "core/run/run.h"

static twh_status execute_view(twh__view *view, const twh_tensor *tensor, int64_t batch, int64_t heads, int64_t rows,
                               int64_t dim, const char *name, twh_error *error)
{
  const int64_t dims[4] = { batch, heads, rows, dim };
  twh_status    status = twh__view_make(view, tensor, dims, name, error);

  if (!TWH__FAILED(status) && view->dtype == TWH_BOOL) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s.dtype is TWH_BOOL; only masks may be", name);
  }
  return status;
}

static twh_status execute_mask(twh__run *run, const twh_tensor *mask, twh_error *error)
{
  const twh_plan *plan = run->plan;
  const int64_t   dims[4] = { plan->batch, plan->shape.q_heads, plan->q_rows, plan->k_rows };
  twh_status      status;

  if (plan->shape.mask_dtype == 0) {
    return mask ? twh__fail(error, TWH_E_ARGUMENT, "tensors.mask is given; the problem declares no mask_dtype") : TWH_OK;
  }
  status = twh__view_make(&run->mask, mask, dims, "tensors.mask", error);
  if (TWH__FAILED(status)) return status;
  if (run->mask.dtype != plan->shape.mask_dtype) {
    return twh__fail(error, TWH_E_ARGUMENT, "tensors.mask.dtype is %s, problem.mask_dtype %s", twh__dtype_name(run->mask.dtype),
                     twh__dtype_name(plan->shape.mask_dtype));
  }
  run->has_mask = 1;
  return TWH_OK;
}

/* A bias tensor is given exactly when the problem declares it, and holds finite numbers. */
static twh_status execute_bias_view(twh__view *view, const twh_tensor *tensor, int declared, const int64_t dims[4],
                                    const char *name, const char *flag, twh_error *error)
{
  twh_status status;

  if (!declared) {
    return tensor ? twh__fail(error, TWH_E_ARGUMENT, "%s is given; the problem's flags lack %s", name, flag) : TWH_OK;
  }
  status = execute_view(view, tensor, dims[0], dims[1], dims[2], dims[3], name, error);
  if (TWH__FAILED(status)) return status;
  for (int64_t b = 0; b < (view->batch_stride == 0 ? twh__min(1, dims[0]) : dims[0]); ++b) {
    for (int64_t h = 0; h < (view->head_stride == 0 ? twh__min(1, dims[1]) : dims[1]); ++h) {
      for (int64_t r = 0; r < (view->row_stride == 0 ? twh__min(1, dims[2]) : dims[2]); ++r) {
        if (isfinite(twh__load(twh__view_row(view, b, h, r), view->dtype, 0))) continue;
        return twh__fail(error, TWH_E_ARGUMENT, "%s: batch %lld, head %lld, row %lld is not finite", name, (long long)b,
                         (long long)h, (long long)r);
      }
    }
  }
  return TWH_OK;
}

static twh_status execute_bias(twh__run *run, const twh_tensors *own, twh_error *error)
{
  const twh_plan *plan = run->plan;
  const int64_t   keys[4] = { plan->batch, plan->shape.q_heads, plan->k_rows, 1 }, heads[4] = { 1, plan->shape.q_heads, 1, 1 };
  twh_status      status = execute_bias_view(&run->key_bias, own->key_bias, plan->shape.key_bias, keys, "tensors.key_bias",
                                             "TWH_PROBLEM_KEY_BIAS", error);

  if (TWH__FAILED(status)) return status;
  return execute_bias_view(&run->alibi, own->alibi_slopes, plan->shape.alibi, heads, "tensors.alibi_slopes",
                           "TWH_PROBLEM_ALIBI", error);
}

static twh_status execute_error_view(twh__run *run, const twh_tensor *tensor, twh_error *error)
{
  const twh_plan *plan = run->plan;
  twh_status      status;

  if (!plan->estimate) return twh__fail(error, TWH_E_ARGUMENT, "tensors.error is given; the plan's options have no estimate");
  status = execute_view(&run->error, tensor, plan->batch, plan->shape.q_heads, plan->q_rows, 1, "tensors.error", error);
  if (!TWH__FAILED(status) && run->error.dtype != TWH_F32 && run->error.dtype != TWH_F64) {
    return twh__fail(error, TWH_E_ARGUMENT, "tensors.error.dtype is %s; it must be f32 or f64",
                     twh__dtype_name(run->error.dtype));
  }
  run->has_error = 1;
  return status;
}

static twh_status execute_read_tensors(twh__run *run, const twh_tensors *tensors, twh_error *error)
{
  const twh_plan   *plan = run->plan;
  const twh__shape *shape = &plan->shape;
  twh_tensors       own;
  twh_status        status;

  if (!tensors) return twh__fail(error, TWH_E_ARGUMENT, "tensors is NULL");
  status = twh__struct_read(&own, sizeof own, sizeof own, tensors, "tensors", error);
  if (TWH__FAILED(status)) return status;
  if (own.flags != 0) return twh__fail(error, TWH_E_VERSION, "tensors.flags has unknown bits: 0x%x", (unsigned)own.flags);
  status = execute_view(&run->q, own.q, plan->batch, shape->q_heads, plan->q_rows, shape->qk_dim, "tensors.q", error);
  if (!TWH__FAILED(status)) {
    status = execute_view(&run->k, own.k, plan->batch, shape->kv_heads, plan->k_rows, shape->qk_dim, "tensors.k", error);
  }
  if (!TWH__FAILED(status)) {
    status = execute_view(&run->v, own.v, plan->batch, shape->kv_heads, plan->k_rows, shape->v_dim, "tensors.v", error);
  }
  if (!TWH__FAILED(status)) {
    status = execute_view(&run->out, own.out, plan->batch, shape->q_heads, plan->q_rows, shape->v_dim, "tensors.out", error);
  }
  if (!TWH__FAILED(status) && own.lse) {
    run->has_lse = 1;
    status = execute_view(&run->lse, own.lse, plan->batch, shape->q_heads, plan->q_rows, 1, "tensors.lse", error);
    if (!TWH__FAILED(status) && run->lse.dtype != TWH_F32 && run->lse.dtype != TWH_F64) {
      status =
        twh__fail(error, TWH_E_ARGUMENT, "tensors.lse.dtype is %s; it must be f32 or f64", twh__dtype_name(run->lse.dtype));
    }
  }
  if (!TWH__FAILED(status) && own.error) status = execute_error_view(run, own.error, error);
  if (!TWH__FAILED(status) && own.sink_logits) {
    run->has_sinks = 1;
    status = execute_view(&run->sinks, own.sink_logits, 1, shape->q_heads, 1, 1, "tensors.sink_logits", error);
  }
  if (!TWH__FAILED(status)) status = execute_bias(run, &own, error);
  return TWH__FAILED(status) ? status : execute_mask(run, own.mask, error);
}

twh_status twh__run_prepare(twh__run *run, twh__wave *wave, twh_error *error)
{
  double     begun = twh__now();
  twh_status status = TWH_OK;
  int        full = 0;

  while (!TWH__FAILED(status) && !full && !run->placed) {
    if (!run->waiting && !twh__cursor_next(&run->cursor, &run->tile)) {
      run->placed = 1;
      break;
    }
    run->waiting = !twh__place_fits(run, wave);
    if (run->waiting) break;
    status = twh__place_tile(run, wave, &full, error);
  }
  if (run->placed) twh__place_flush(run, wave);
  if (TWH__FAILED(status) || wave->count == 0) return status;
  wave->number = ++run->waves;
  status = twh__wave_encode(wave, error);
  twh__run_trace(run, TWH_TRACE_ENCODE, wave->number, begun);
  return status;
}

twh_status twh__run_complete(twh__run *run, twh__wave *wave, twh_error *error)
{
  double     begun = twh__now();
  twh_status status = twh__wave_decode(wave, error);

  if (!TWH__FAILED(status)) status = twh__wave_repair(wave, error);
  if (TWH__FAILED(status)) return status;
  twh__run_trace(run, TWH_TRACE_DECODE, wave->number, begun);
  begun = twh__now();
  if (wave->batch_count == 0) {
    pthread_mutex_lock(run->lock);
    twh__run_progress(run);
    pthread_mutex_unlock(run->lock);
    status = twh__wave_wait(wave, error);
    if (TWH__FAILED(status)) return status;
  }
  status = twh__wave_merge(wave, error);
  if (TWH__FAILED(status)) return status;
  twh__run_trace(run, TWH_TRACE_MERGE, wave->number, begun);
  twh__place_recycle(run, wave);
  return TWH_OK;
}

/* The host's work beside a wave that the kernel computes: it finishes the one before, and fills it anew. */
typedef struct execute_beside {
  twh__run  *run;
  twh__wave *wave;
  twh_error *error;
  twh_status status;
} execute_beside;

static void execute_host(void *arg)
{
  execute_beside *beside = (execute_beside *)arg;

  beside->status = TWH_OK;
  if (beside->wave->count > 0) beside->status = twh__run_complete(beside->run, beside->wave, beside->error);
  if (!TWH__FAILED(beside->status)) beside->status = twh__run_prepare(beside->run, beside->wave, beside->error);
  if (TWH__FAILED(beside->status)) twh__run_stop(beside->run);
}

/* One wave after the other. */
static twh_status execute_alone(twh__run *run, twh_error *error)
{
  twh__wave *wave = &run->work.waves[0];
  twh_status status = twh__run_prepare(run, wave, error);

  while (!TWH__FAILED(status) && wave->count > 0) {
    twh__wave_begin(wave);
    twh__wave_call(wave, NULL, NULL);
    status = twh__wave_wait(wave, error);
    if (!TWH__FAILED(status)) status = twh__run_complete(run, wave, error);
    if (!TWH__FAILED(status)) status = twh__run_prepare(run, wave, error);
  }
  return status;
}

/* Two waves in turn: kernels that can be left alone compute one while the host works on the other. */
static twh_status execute_overlapped(twh__run *run, twh_error *error)
{
  twh__wave *now = &run->work.waves[0];
  twh_status status = twh__run_prepare(run, now, error);

  if (TWH__FAILED(status) || now->count == 0) return status;
  twh__wave_begin(now);
  for (;;) {
    twh__wave     *next = now == &run->work.waves[0] ? &run->work.waves[1] : &run->work.waves[0];
    execute_beside beside = { run, next, error, TWH_OK };
    twh__wave_call(now, execute_host, &beside);
    if (!TWH__FAILED(beside.status) && next->count > 0) twh__wave_begin(next); /* the kernel need not wait for us */
    status = twh__wave_wait(now, TWH__FAILED(beside.status) ? NULL : error);
    if (TWH__FAILED(beside.status) || TWH__FAILED(status)) {
      (void)twh__wave_wait(next, NULL);
      return TWH__FAILED(beside.status) ? beside.status : status;
    }
    if (next->count == 0) return twh__run_complete(run, now, error);
    now = next;
  }
}

static int execute_leaves_alone(const twh_plan *plan)
{
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    if (plan->kernels[k].oracle->desc.submit) return 1;
  }
  return 0;
}

static twh_status execute_all(twh__run *run, twh_error *error)
{
  twh_status status;

  if (!run->cursor.units) twh__run_write_empty(run);
  if (run->plan->layout.waves == 1) {
    status = execute_alone(run, error);
  } else {
    status = execute_leaves_alone(run->plan) ? execute_overlapped(run, error) : twh__run_crew(run, error);
  }
  /* units whose last tiles a mask tensor hides */
  return TWH__FAILED(status) || !run->has_mask ? status : twh__wave_merge(&run->work.waves[0], error);
}

static void execute_begin(twh__run *run, const uint8_t *units)
{
  const twh_plan *plan = run->plan;
  const int64_t   waves = plan->layout.waves;

  twh__cache_begin(&run->work.q, waves);
  twh__cache_begin(&run->work.k, waves);
  twh__cache_begin(&run->work.v, waves);
  twh__cache_begin(&run->work.buckets, waves);
  twh__cache_begin(&run->work.mask, waves);
  for (int64_t w = 0; w < waves; ++w) run->work.waves[w].run = run;
  run->work.repairs.run = run;
  for (int32_t k = 0; k < plan->kernel_count; ++k) run->number[k] = twh__oracle_begin(plan->kernels[k].oracle);
  twh__cursor_begin(&run->cursor, plan);
  run->cursor.units = units;
  twh__place_begin(run);
}

twh_status twh__run_units(twh__run *run, char *workspace, const uint8_t *units, twh_error *error)
{
  int64_t    used;
  twh_status status;

  (void)twh__workspace_lay_out(run->plan, workspace, &run->work, &used);
  execute_begin(run, units);
  status = execute_all(run, error);
  for (int32_t k = 0; k < run->plan->kernel_count; ++k) {
    run->stats.calls += run->ledger[k].calls;
    run->stats.batches += run->ledger[k].batches;
  }
  return status;
}
static twh_status execute_in_workspace(twh__run *run, const twh_run_options *options, twh_error *error)
{
  const twh_plan *plan = run->plan;
  size_t          bytes = (size_t)plan->layout.bytes;
  char           *memory = (char *)options->workspace;
  twh_status      status;

  if (memory) {
    if (options->workspace_bytes < bytes) {
      return twh__fail(error, TWH_E_MEMORY, "options.workspace_bytes is %zu; the plan needs %zu", options->workspace_bytes,
                       bytes);
    }
    if ((uintptr_t)memory % (uintptr_t)plan->layout.alignment != 0) {
      return twh__fail(error, TWH_E_ARGUMENT, "options.workspace is not aligned to %lld bytes",
                       (long long)plan->layout.alignment);
    }
  } else {
    memory = (char *)twh__allocate_raw(plan->context, bytes, (size_t)plan->layout.alignment, error);
    if (!memory) return TWH_E_MEMORY;
  }
  run->planned_calls = plan->tally.calls;
  if (plan->exact) {
    run->row_flags = (uint8_t *)memory;
    memset(memory, 0, (size_t)plan->layout.flag_bytes);
  }
  status = twh__run_units(run, memory + plan->layout.flag_bytes, NULL, error);
  if (!TWH__FAILED(status) && plan->exact) status = twh__run_exact(run, memory + plan->layout.flag_bytes, error);
  if (!TWH__FAILED(status) && options->stats) twh__run_check_assumption(run);
  if (!options->workspace) twh__release(plan->context, memory, bytes);
  return status;
}

static twh_status execute_locked(twh__run *run, const twh_run_options *options, twh_error *error)
{
  pthread_mutex_t lock;
  twh_status      status;

  if (pthread_mutex_init(&lock, NULL) != 0) return twh__fail(error, TWH_E_MEMORY, "the system has no room for another lock");
  run->lock = &lock;
  run->options = options;
  status = execute_in_workspace(run, options, error);
  pthread_mutex_destroy(&lock);
  return status;
}

static twh_status execute_read_options(twh_run_options *own, const twh_run_options *options, twh_error *error)
{
  twh_run_options_init(own);
  if (options) {
    twh_status status = twh__struct_read(own, sizeof *own, sizeof *own, options, "options", error);
    if (TWH__FAILED(status)) return status;
  }
  if (own->flags & ~(uint32_t)TWH_RUN_CHECKED) {
    return twh__fail(error, TWH_E_VERSION, "options.flags has unknown bits: 0x%x", (unsigned)own->flags);
  }
  return TWH_OK;
}

twh_status twh_plan_execute(const twh_plan *plan, const twh_tensors *tensors, const twh_run_options *options, twh_error *error)
{
  twh__run        run;
  twh_run_options own;
  twh_status      status;
  double          begun = twh__now();

  if (!plan) return twh__fail(error, TWH_E_ARGUMENT, "plan is NULL");
  status = execute_read_options(&own, options, error);
  if (TWH__FAILED(status)) return status;
  memset(&run, 0, sizeof run);
  twh_run_stats_init(&run.stats);
  run.plan = plan;
  run.begun = begun;
  run.checked = (own.flags & TWH_RUN_CHECKED) != 0;
  status = execute_read_tensors(&run, tensors, error);
  if (!TWH__FAILED(status)) status = execute_locked(&run, &own, error);
  run.stats.wall_s = twh__now() - begun;
  if (own.stats) {
    twh_status written = twh__struct_write(own.stats, &run.stats, sizeof run.stats, sizeof run.stats, "options.stats",
                                           TWH__FAILED(status) ? NULL : error);
    if (!TWH__FAILED(status)) status = written;
  }
  return status;
}
