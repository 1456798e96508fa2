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

/* Compute the wave. */
static twh_status execute_wave(twh__run *run, const twh_run_options *options, twh_error *error)
{
  twh_status status;

  ++run->waves;
  status = twh__wave_encode(run, error);
  if (!TWH__FAILED(status)) status = twh__wave_call(run, error);
  if (!TWH__FAILED(status)) status = twh__wave_decode(run, error);
  if (!TWH__FAILED(status)) status = twh__wave_repair(run, error);
  if (!TWH__FAILED(status)) status = twh__wave_merge(run, error);
  if (TWH__FAILED(status)) return status;
  twh__place_recycle(run);
  if (options->progress &&
      options->progress(options->user, run->done_calls + run->stats.calls - run->stats.repair_calls, run->planned_calls) != 0) {
    return twh__fail(error, TWH_E_CANCELLED, "options.progress asked to stop after %lld calls", (long long)run->stats.calls);
  }
  return TWH_OK;
}

static twh_status execute_all(twh__run *run, const twh_run_options *options, twh_error *error)
{
  twh_status status = TWH_OK;
  twh__tile  tile;
  int64_t    left = 1;

  if (!run->cursor.units) twh__run_write_empty(run);
  memset(&tile, 0, sizeof tile);
  while (!TWH__FAILED(status) && twh__cursor_next(&run->cursor, &tile)) {
    int full;
    status = twh__place_tile(run, &tile, &full, error);
    if (!TWH__FAILED(status) && full) status = execute_wave(run, options, error);
  }
  while (!TWH__FAILED(status) && left > 0) {
    left = twh__place_flush(run);
    if (run->wave_bundles > 0 || run->has_mask) status = execute_wave(run, options, error);
  }
  return status;
}

static void execute_begin(twh__run *run, const uint8_t *units)
{
  const twh_plan *plan = run->plan;

  twh__cache_begin(&run->work.q);
  twh__cache_begin(&run->work.k);
  twh__cache_begin(&run->work.v);
  twh__cache_begin(&run->work.buckets);
  twh__cache_begin(&run->work.mask);
  for (int32_t k = 0; k < plan->kernel_count; ++k) run->number[k] = twh__oracle_begin(plan->kernels[k].oracle);
  twh__cursor_begin(&run->cursor, plan);
  run->cursor.units = units;
  twh__place_begin(run);
  run->parallel_rows = twh__max(1, twh__min(plan->context->desc.parallelism, plan->layout.node_rows / 16));
}

twh_status twh__run_units(twh__run *run, char *workspace, const uint8_t *units, const twh_run_options *options,
                          twh_error *error)
{
  int64_t used;

  (void)twh__workspace_lay_out(run->plan, workspace, &run->work, &used);
  execute_begin(run, units);
  return execute_all(run, options, error);
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
  status = twh__run_units(run, memory + plan->layout.flag_bytes, NULL, options, error);
  if (!TWH__FAILED(status) && plan->exact) status = twh__run_exact(run, memory + plan->layout.flag_bytes, options, error);
  if (!TWH__FAILED(status) && options->stats) twh__run_check_assumption(run);
  if (!options->workspace) twh__release(plan->context, memory, bytes);
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
  run.checked = (own.flags & TWH_RUN_CHECKED) != 0;
  status = execute_read_tensors(&run, tensors, error);
  if (!TWH__FAILED(status)) status = execute_in_workspace(&run, &own, error);
  run.stats.wall_s = twh__now() - begun;
  if (own.stats) {
    twh_status written = twh__struct_write(own.stats, &run.stats, sizeof run.stats, sizeof run.stats, "options.stats",
                                           TWH__FAILED(status) ? NULL : error);
    if (!TWH__FAILED(status)) status = written;
  }
  return status;
}
