/* The results of a wave: decoding, repairs, merging, and writing what is complete.
 *
 * Decoding is parallel over tiles. Merging is decided first (which state goes into which, by the trees) and then done for
 * independent ranges of rows. */
#include <math.h>
#include <string.h>

#include "core/run/run.h"

enum { RESULTS_ROWS = 16 }; /* merged together */

static void results_begin(const twh__run *run, int64_t b, int64_t s, int buckets, twh__result *result)
{
  const twh_oracle_desc *desc = &run->plan->oracle->desc;
  const twh__layout     *layout = &run->plan->layout;
  const twh__placement  *place = &twh__run_bundle(run, b)->places[s];
  int64_t                item = twh__dtype_bytes(desc->out_dtype), values = run->plan->lowering.values_parts;

  memset(result, 0, sizeof *result);
  result->lowering = &run->plan->lowering;
  result->shape = &run->plan->shape;
  result->tile = &place->tile;
  result->q = place->q.block;
  result->k = place->k.block;
  result->lift = place->v.note ? *place->v.note : 1;
  if (run->has_mask) {
    result->mask = place->mask.block;
    result->any = place->mask.block.data + layout->mask_any;
  }
  result->out = run->work.buffers[b].out + s * desc->out_slot_stride * item;
  if (buckets) result->buckets = result->out + values * layout->out_bytes;
  result->out_row_bytes = desc->out_row_stride * item;
  result->slice_bytes = layout->out_bytes;
  if (desc->flags & TWH_ORACLE_LSE) result->lse = (const float *)(const void *)run->work.buffers[b].lse + s * desc->q_len;
}

static int results_is_anchor(const twh__tile *tile)
{
  return tile->reading == TWH__READ_ANCHOR || tile->reading == TWH__READ_ANCHOR_SHARE;
}

static void results_host(const twh__run *run, const twh__placement *place, const twh__result *result)
{
  twh__source source;
  twh__run_source(run, place, &source);
  twh__decode_host(result, &source, &run->work.states[place->leaf]);
}

static void results_decode_task(void *arg, int64_t i)
{
  twh__run       *run = (twh__run *)arg;
  int64_t         b = i / run->plan->lowering.slots, s = i % run->plan->lowering.slots;
  twh__placement *place = &twh__run_bundle(run, b)->places[s];
  twh__result     result;

  if (s >= twh__run_bundle(run, b)->filled) return;
  place->leaf = (int32_t)i;
  results_begin(run, b, s, place->tile.reading == TWH__READ_BUCKET, &result);
  place->flagged = 0;
  place->nan_row = run->checked ? twh__decode_find_nan(&result, &place->nan_part) : -1;
  if (place->nan_row >= 0) return;
  place->flagged = twh__decode(&result, &run->work.states[place->leaf]);
  if (place->flagged > 0 && !results_is_anchor(&place->tile)) results_host(run, place, &result);
}

static twh_status results_nan(const twh__run *run, const twh__bundle *bundle, int64_t s, twh_error *error)
{
  const twh__placement *place = &bundle->places[s];
  int64_t               call = bundle->first_call + place->nan_part;
  int64_t               row = place->tile.at + place->nan_row * place->tile.at_step;
  twh_status            status;

  if (bundle->repair && place->nan_part == run->plan->lowering.values_parts) call = bundle->repair_call;
  status = twh__fail(error, TWH_E_RESULT, "oracle: call %lld, slot %lld, row %lld: the kernel returned a NaN", (long long)call,
                     (long long)s, (long long)row);
  if (error && error->struct_size >= sizeof *error) {
    error->call = call;
    error->slot = (int32_t)s;
    error->row = row;
  }
  return status;
}

/* After a parallel step: errors in the order of slots, and the statistics. */
static twh_status results_collect(twh__run *run, int64_t *repairs, twh_error *error)
{
  *repairs = 0;
  for (int64_t b = 0; b < run->wave_bundles; ++b) {
    twh__bundle *bundle = twh__run_bundle(run, b);
    bundle->repair = 0;
    for (int64_t s = 0; s < bundle->filled; ++s) {
      const twh__placement *place = &bundle->places[s];
      if (place->nan_row >= 0) return results_nan(run, bundle, s, error);
      if (place->flagged == 0) continue;
      if (results_is_anchor(&place->tile)) {
        bundle->repair = 1;
        run->stats.repaired_rows += place->flagged;
      } else {
        run->stats.host_rows += place->flagged;
      }
    }
    *repairs += bundle->repair;
  }
  return TWH_OK;
}

twh_status twh__wave_decode(twh__run *run, int64_t *repairs, twh_error *error)
{
  twh__parallel_for(run->plan->context, run->wave_bundles * run->plan->lowering.slots, results_decode_task, run);
  return results_collect(run, repairs, error);
}

static void results_repair_task(void *arg, int64_t i)
{
  twh__run       *run = (twh__run *)arg;
  int64_t         b = i / run->plan->lowering.slots, s = i % run->plan->lowering.slots;
  twh__bundle    *bundle = twh__run_bundle(run, b);
  twh__placement *place = &bundle->places[s];
  twh__result     result;

  if (!bundle->repair || s >= bundle->filled || place->flagged == 0) return;
  results_begin(run, b, s, 1, &result);
  if (run->checked) place->nan_row = twh__decode_find_nan(&result, &place->nan_part);
  if (place->nan_row >= 0) return;
  place->flagged = twh__decode_repair(&result, &run->work.states[place->leaf]);
  if (place->flagged > 0) results_host(run, place, &result);
}

twh_status twh__wave_repair(twh__run *run, int64_t repairs, twh_error *error)
{
  twh_status status;

  if (repairs == 0) return TWH_OK;
  status = twh__wave_encode_repairs(run, error);
  if (!TWH__FAILED(status)) status = twh__wave_call(run, 1, error);
  if (TWH__FAILED(status)) return status;
  twh__parallel_for(run->plan->context, run->wave_bundles * run->plan->lowering.slots, results_repair_task, run);
  for (int64_t b = 0; b < run->wave_bundles; ++b) {
    const twh__bundle *bundle = twh__run_bundle(run, b);
    for (int64_t s = 0; bundle->repair && s < bundle->filled; ++s) {
      if (bundle->places[s].nan_row >= 0) return results_nan(run, bundle, s, error);
      run->stats.host_rows += bundle->places[s].flagged;
      run->stats.repaired_rows -= bundle->places[s].flagged;
    }
  }
  return TWH_OK;
}

/* Write row r of a unit from its state, the sink logit of its head included. */
static void results_write(const twh__run *run, const twh__unit *unit, const twh__state *state, int64_t r)
{
  const twh__span *span = &run->plan->spans[unit->span];
  int64_t          head, row, dim = run->plan->shape.v_dim;
  char            *lse = NULL;

  twh__unit_row(unit, span, r, &head, &row);
  if (run->has_sinks) {
    twh__state_add_sink(state, r, twh__load(twh__view_row(&run->sinks, 0, head, 0), run->sinks.dtype, 0), dim);
  }
  if (run->has_lse) lse = twh__view_row(&run->lse, span->batch, head, row);
  twh__state_write(state, r, dim, twh__view_row(&run->out, span->batch, head, row), run->out.dtype, lse, run->lse.dtype);
}

/* All of the wave's work on a few rows: what one merge writes is still in the cache when the next one reads it. */
static void results_rows(const twh__run *run, int64_t first, int64_t last)
{
  for (int64_t w = 0; w < run->work.agenda.count; ++w) {
    const twh__merge *work = &run->work.agenda.work[w];
    const twh__state *from[TWH__FAN];
    int64_t           end = twh__min(last, work->rows);
    for (int i = 0; i < TWH__FAN; ++i) from[i] = work->from[i] < 0 ? NULL : &run->work.states[work->from[i]];
    if (work->into >= 0) {
      twh__state_merge(&run->work.states[work->into], from, first, end, run->plan->shape.v_dim);
    } else {
      for (int64_t r = first; r < end; ++r) results_write(run, &run->work.units[work->unit].unit, from[0], r);
    }
  }
}

static void results_rows_task(void *arg, int64_t i)
{
  const twh__run *run = (const twh__run *)arg;
  int64_t         block = run->plan->lowering.q_block, last = block * (i + 1) / run->parallel_rows;

  for (int64_t first = block * i / run->parallel_rows; first < last; first += RESULTS_ROWS) {
    results_rows(run, first, twh__min(last, first + RESULTS_ROWS));
  }
}

/* Plan what becomes of the states of one tile's unit. */
static int results_plan(twh__run *run, const twh__placement *place)
{
  twh__agenda     *agenda = &run->work.agenda;
  twh__unit_entry *entry = &run->work.units[place->unit];

  if (!twh__tree_push(&entry->tree, place->tile.level, place->tile.ordinal, place->leaf, agenda)) return 0;
  if (--entry->tiles_left > 0) return 1;
  entry->tiles_left = -1;
  return twh__tree_finish(&entry->tree, place->unit, agenda);
}

twh_status twh__wave_merge(twh__run *run, twh_error *error)
{
  twh__agenda *agenda = &run->work.agenda;
  int          fits = 1;

  agenda->count = 0;
  for (int64_t b = 0; b < run->wave_bundles; ++b) {
    twh__bundle *bundle = twh__run_bundle(run, b);
    for (int64_t s = 0; s < bundle->filled && fits; ++s) fits = results_plan(run, &bundle->places[s]);
  }
  for (int64_t b = 0; b < run->wave_bundles; ++b) {
    twh__bundle *bundle = twh__run_bundle(run, b);
    for (int64_t s = 0; s < bundle->filled && fits; ++s) {
      twh__unit_entry *entry = &run->work.units[bundle->places[s].unit];
      if (entry->tiles_left > 0) fits = twh__tree_keep(&entry->tree, agenda);
    }
  }
  if (!fits) return twh__fail(error, TWH_E_MEMORY, "workspace: too few states (a defect of the library)");
  twh__parallel_for(run->plan->context, run->parallel_rows, results_rows_task, run);
  return TWH_OK;
}

void twh__run_write_empty(twh__run *run)
{
  const twh_plan *plan = run->plan;
  twh__state     *state = &run->work.states[plan->layout.leaves]; /* a node; none is in use yet */
  twh__unit       unit;

  for (unit.span = 0; unit.span < plan->spans_count; ++unit.span) {
    const twh__span *span = &plan->spans[unit.span];
    int64_t          units = twh__cover_units(span, plan->shape.group, plan->lowering.q_block);
    if (!span->causal && span->k_len > 0) continue;
    for (unit.kv_head = 0; unit.kv_head < plan->shape.kv_heads; ++unit.kv_head) {
      for (int64_t u = 0; u < units; ++u) {
        twh__cover_unit(span, plan->shape.group, plan->lowering.q_block, u, &unit);
        if (twh__cover_blocks(span, &unit, plan->lowering.k_block) > 0) continue;
        for (int64_t r = 0; r < unit.rows; ++r) {
          state->m[r] = -(double)INFINITY;
          state->a[r] = 0;
          results_write(run, &unit, state, r);
        }
      }
    }
  }
}
