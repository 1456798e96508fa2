/* Executing a plan: tensors are checked, tiles are placed into bundles, full waves are computed. */
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
  if (!TWH__FAILED(status) && own.sink_logits) {
    run->has_sinks = 1;
    status = execute_view(&run->sinks, own.sink_logits, 1, shape->q_heads, 1, 1, "tensors.sink_logits", error);
  }
  return TWH__FAILED(status) ? status : execute_mask(run, own.mask, error);
}

/* The entry of a tile's unit; a new one for its first tile. */
static int32_t execute_unit(twh__run *run, const twh__tile *tile)
{
  int32_t free_entry = -1, count = (int32_t)run->plan->layout.units;

  for (int32_t i = 0; i < count; ++i) {
    const twh__unit_entry *entry = &run->work.units[i];
    if (entry->tiles_left < 0) {
      free_entry = i;
    } else if (entry->index == tile->unit_index) {
      return i;
    }
  }
  if (free_entry >= 0) {
    twh__unit_entry *entry = &run->work.units[free_entry];
    entry->index = tile->unit_index;
    entry->unit = tile->unit;
    entry->tiles_left = twh__plan_unit_tiles(&run->plan->lowering, &run->plan->spans[tile->unit.span], &tile->unit);
    entry->tree.count = 0;
    entry->tree.rows = tile->unit.rows;
  }
  return free_entry;
}

/* Put a tile into its class's open bundle; a bundle that is full joins the wave. */
static twh_status execute_place(twh__run *run, const twh__tile *tile, twh_error *error)
{
  int32_t         class_number = twh__class_of(tile->mode, tile->reading), *open = &run->open[class_number];
  int64_t         call, slot, parts = twh__lower_parts(&run->plan->lowering, tile->reading);
  twh__bundle    *bundle;
  twh__placement *place;
  int             full = twh__pack_put(&run->pack, class_number, parts, &call, &slot);

  if (slot == 0) *open = run->work.free_bundles[--run->free_bundles];
  bundle = &run->work.bundles[*open];
  bundle->class_number = class_number;
  bundle->first_call = call;
  bundle->filled = slot + 1;
  place = &bundle->places[slot];
  place->tile = *tile;
  place->unit = execute_unit(run, tile);
  if (place->unit < 0) return twh__fail(error, TWH_E_MEMORY, "workspace: too many units in flight (a defect of the library)");
  if (full) {
    run->work.wave[run->wave_bundles++] = *open;
    *open = -1;
  }
  return TWH_OK;
}

/* Compute the wave. */
static twh_status execute_wave(twh__run *run, const twh_run_options *options, twh_error *error)
{
  int64_t    repairs = 0;
  twh_status status;

  if (run->wave_bundles == 0) return TWH_OK;
  ++run->waves;
  status = twh__wave_encode(run, error);
  if (!TWH__FAILED(status)) status = twh__wave_call(run, 0, error);
  if (!TWH__FAILED(status)) status = twh__wave_decode(run, &repairs, error);
  if (!TWH__FAILED(status)) status = twh__wave_repair(run, repairs, error);
  if (!TWH__FAILED(status)) status = twh__wave_merge(run, error);
  if (TWH__FAILED(status)) return status;
  for (int64_t b = 0; b < run->wave_bundles; ++b) run->work.free_bundles[run->free_bundles++] = run->work.wave[b];
  run->wave_bundles = 0;
  if (options->progress &&
      options->progress(options->user, run->stats.calls - run->stats.repair_calls, run->plan->tally.calls) != 0) {
    return twh__fail(error, TWH_E_CANCELLED, "options.progress asked to stop after %lld calls", (long long)run->stats.calls);
  }
  return TWH_OK;
}

static twh_status execute_all(twh__run *run, const twh_run_options *options, twh_error *error)
{
  const twh_plan *plan = run->plan;
  twh_status      status = TWH_OK;
  twh__cursor     cursor;
  twh__tile       tile;

  twh__run_write_empty(run);
  twh__cursor_begin(&cursor, plan);
  while (!TWH__FAILED(status) && twh__cursor_next(&cursor, &tile)) {
    status = execute_place(run, &tile, error);
    if (!TWH__FAILED(status) && run->wave_bundles == plan->layout.bundles) status = execute_wave(run, options, error);
  }
  for (int32_t c = 0; c < TWH__CLASSES && !TWH__FAILED(status); ++c) {
    if (run->open[c] < 0) continue;
    run->work.wave[run->wave_bundles++] = run->open[c];
    if (run->wave_bundles == plan->layout.bundles) status = execute_wave(run, options, error);
  }
  return TWH__FAILED(status) ? status : execute_wave(run, options, error);
}

static void execute_begin(twh__run *run)
{
  const twh_plan *plan = run->plan;

  twh__cache_begin(&run->work.q);
  twh__cache_begin(&run->work.k);
  twh__cache_begin(&run->work.v);
  twh__cache_begin(&run->work.buckets);
  twh__cache_begin(&run->work.mask);
  twh__pack_begin(&run->pack, plan->lowering.slots);
  for (int32_t c = 0; c < TWH__CLASSES; ++c) run->open[c] = -1;
  for (int64_t i = plan->layout.bundles + plan->tally.classes; i > 0; --i) {
    run->work.free_bundles[run->free_bundles++] = (int32_t)(i - 1);
  }
  for (int64_t i = plan->layout.nodes; i > 0; --i) {
    run->work.agenda.free_nodes[run->work.agenda.free_count++] = (int32_t)(plan->layout.leaves + i - 1);
  }
  run->parallel_rows = twh__max(1, twh__min(plan->context->desc.parallelism, plan->lowering.q_block / 16));
}

static twh_status execute_in_workspace(twh__run *run, const twh_run_options *options, twh_error *error)
{
  const twh_plan *plan = run->plan;
  size_t          bytes = (size_t)plan->layout.bytes;
  char           *memory = (char *)options->workspace;
  twh_status      status;
  int64_t         used;

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
  (void)twh__workspace_lay_out(plan, memory, &run->work, &used);
  execute_begin(run);
  status = execute_all(run, options, error);
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
