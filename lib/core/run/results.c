/* The results of a wave: decoding, merging, and writing what is complete.
 *
 * Decoding is parallel over tiles. Merging is decided first (which state goes into which, by the trees) and then done for
 * independent ranges of rows. */
#include <math.h>
#include <string.h>

#include "core/run/run.h"

void twh__run_result(const twh__run *run, const twh__bundle *bundle, const twh__attention *attention, int64_t b, int64_t s,
                     int64_t t, const twh__source *source, twh__result *result)
{
  const twh__kernel     *kernel = twh__run_kernel(run, bundle);
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  int64_t                item = twh__dtype_bytes(desc->out_dtype);

  memset(result, 0, sizeof *result);
  result->lowering = &kernel->lowering;
  result->shape = source->shape;
  result->source = source;
  result->slot = &attention->slot;
  result->tile = &attention->tiles[t];
  result->q = attention->q.block;
  result->k = attention->k.block;
  if (source->centres) result->centre = source->centres + t * TWH__CENTRE(run->plan->shape.v_dim);
  result->lift = attention->v.note ? *attention->v.note : 1;
  if (run->has_mask && attention->mask.block.data) {
    result->mask = attention->mask.block;
    result->any = attention->mask.block.data + kernel->sizes.mask_any;
  }
  result->out = run->work.buffers[b].out + s * desc->out_slot_stride * item;
  result->out_row_bytes = desc->out_row_stride * item;
  if (attention->out) { /* of the host's, not of a buffer */
    result->out = attention->out;
    result->out_row_bytes = run->out.row_stride;
  }
  result->slice_bytes = kernel->sizes.out_bytes;
  if (desc->flags & TWH_ORACLE_LSE) result->lse = (const float *)(const void *)run->work.buffers[b].lse + s * desc->q_len;
}

const char *twh__run_buckets(const twh__run *run, const twh__bundle *bundle, int64_t b, int64_t s)
{
  const twh__kernel     *kernel = twh__run_kernel(run, bundle);
  const twh_oracle_desc *desc = &kernel->oracle->desc;

  return run->work.buffers[b].out + kernel->lowering.values_parts * kernel->sizes.out_bytes +
         s * desc->out_slot_stride * twh__dtype_bytes(desc->out_dtype);
}

/* Where the leaf of a tile keeps what is read: the slot's part of the bundle's buffers. */
static twh__state *results_leaf(twh__run *run, const twh__bundle *bundle, int64_t s, int64_t t)
{
  const twh__layout  *layout = &run->plan->layout;
  const twh__buffers *buffers = &run->work.buffers[bundle->buffers];
  twh__placement     *place = &bundle->slots[s].places[t];
  int64_t             b = bundle->buffers % layout->bundles; /* within its wave: one is decoded at a time */
  twh__state         *leaf;

  place->leaf = (int32_t)((b * layout->slots + s) * layout->slot_tiles + t);
  leaf = &run->work.states[place->leaf];
  leaf->m = buffers->m + s * layout->rows;
  leaf->a = buffers->a + s * layout->rows;
  leaf->factor = buffers->factor + s * layout->rows;
  leaf->b = NULL;
  return leaf;
}

/* Whether a tile's rows that could not be read are worth a bucket call: more than the host computes in the time of a slot. */
static int results_is_repairable(const twh__run *run, const twh__bundle *bundle, const twh__tile *tile, int64_t rows)
{
  int32_t reading = twh__run_reading(run, bundle);

  if (tile->host || (reading != TWH__READ_ANCHOR && reading != TWH__READ_ANCHOR_SHARE)) return 0;
  return tile->mode != TWH__MODE_HOST && rows * TWH__HOST_COST > twh__run_kernel(run, bundle)->lowering.q_len;
}

static void results_decode(twh__run *run, const twh__bundle *bundle, int64_t s, int64_t t, const twh__source *source)
{
  twh__placement  *place = &bundle->slots[s].places[t];
  const twh__tile *tile = &bundle->slots[s].tiles[t];
  twh__state      *leaf = results_leaf(run, bundle, s, t);
  twh__result      result;

  twh__run_result(run, bundle, &bundle->slots[s], bundle->buffers, s, t, source, &result);
  if (tile->mode != TWH__MODE_HOST && twh__run_reading(run, bundle) == TWH__READ_BUCKET) {
    result.buckets = twh__run_buckets(run, bundle, bundle->buffers, s);
  }
  place->flagged = 0;
  place->nan_row = -1;
  if (tile->host || tile->mode == TWH__MODE_HOST) {
    twh__decode_all_host(&result, source, leaf);
    place->flagged = tile->rows;
    return;
  }
  if (run->checked) place->nan_row = twh__decode_find_nan(&result, &place->nan_part);
  if (place->nan_row >= 0) return;
  place->flagged = twh__decode(&result, leaf);
  /* a chain's rows wait until all of its results are decoded */
  if (place->flagged == 0 || bundle->slots[s].followers > 0 || results_is_repairable(run, bundle, tile, place->flagged)) return;
  twh__decode_host(&result, source, leaf);
}

/* Another bundle's results are those of this one too. */
static void results_follow(twh__placement *place)
{
  place->leaf = TWH__MISSING;
  place->flagged = 0;
  place->nan_row = -1;
}

/* Rows that could not be read from the results of a chain: the host computes them, of each of its tiles, which has a state again. */
static void results_break_chain(twh__wave *wave, twh__bundle *leader)
{
  twh__run       *run = wave->run;
  twh__attention *leading = &leader->slots[0];
  twh__state     *all = &run->work.states[leading->places[0].leaf];
  twh__source     source;
  twh__result     result;

  twh__run_source(run, leader, &source);
  for (int64_t b = 0; b < wave->count; ++b) {
    twh__bundle    *bundle = wave->bundles[b];
    twh__attention *attention = &bundle->slots[0];
    if (attention->chain != leader) continue;
    twh__run_result(run, bundle, attention, bundle->buffers, 0, 0, &source, &result);
    attention->places[0].flagged = twh__decode_some_host(&result, &source, all, results_leaf(run, bundle, 0, 0));
  }
  twh__run_result(run, leader, leading, leader->buffers, 0, 0, &source, &result);
  twh__decode_host(&result, &source, all);
}

static void results_decode_task(void *arg, int64_t i)
{
  const twh__wave *wave = (const twh__wave *)arg;
  twh__run        *run = wave->run;
  int64_t          s;
  twh__bundle     *bundle;
  twh__attention  *slot = twh__wave_attention(wave, i, &bundle, &s);
  twh__source      source;

  if (!slot) return;
  if (slot->chain) {
    results_follow(&slot->places[0]);
    return;
  }
  twh__run_source(run, bundle, &source);
  source.centres = twh__run_centres(run, bundle, bundle->buffers, s);
  for (int64_t t = 0; t < slot->slot.count; ++t) results_decode(run, bundle, s, t, &source);
}

twh_status twh__run_nan(const twh__placement *place, const twh__tile *tile, int64_t call, int64_t s, twh_error *error)
{
  int64_t    row = tile->at + place->nan_row * tile->at_step;
  twh_status status = twh__fail(error, TWH_E_RESULT, "oracle: call %lld, slot %lld, row %lld: the kernel returned a NaN",
                                (long long)call, (long long)s, (long long)row);

  if (error && error->struct_size >= sizeof *error) {
    error->call = call;
    error->slot = (int32_t)s;
    error->row = row;
  }
  return status;
}

/* What decoding a slot has found: an error, or rows to be repaired. */
static twh_status results_collect(twh__run *run, const twh__bundle *bundle, int64_t s, twh_error *error)
{
  twh__attention *attention = &bundle->slots[s];

  attention->repair = 0;
  for (int64_t t = 0; t < attention->slot.count; ++t) {
    const twh__placement *place = &attention->places[t];
    if (place->nan_row >= 0) {
      return twh__run_nan(place, &attention->tiles[t], bundle->first_call + place->nan_part, s, error);
    }
    if (place->flagged == 0) continue;
    if (results_is_repairable(run, bundle, &attention->tiles[t], place->flagged)) {
      attention->repair = 1;
      run->stats.repaired_rows += place->flagged;
    } else {
      run->stats.host_rows += place->flagged;
    }
  }
  return TWH_OK;
}

twh_status twh__wave_decode(twh__wave *wave, twh_error *error)
{
  twh__run  *run = wave->run;
  twh_status status = TWH_OK;

  twh__run_parallel(run, wave->count * run->plan->layout.slots, results_decode_task, wave);
  for (int64_t b = 0; b < wave->count; ++b) {
    twh__bundle *bundle = wave->bundles[b];
    if (bundle->slots[0].followers > 0 && bundle->slots[0].places[0].flagged > 0) results_break_chain(wave, bundle);
  }
  for (int64_t b = 0; b < wave->count; ++b) {
    const twh__bundle *bundle = wave->bundles[b];
    for (int64_t s = 0; s < bundle->filled && !TWH__FAILED(status); ++s) status = results_collect(run, bundle, s, error);
  }
  return status;
}

/* The bound of a row's error. */
static double results_error(const twh__run *run, const twh__unit *unit, const twh__state *state, int64_t at)
{
  const twh_plan  *plan = run->plan;
  const twh__span *span = &plan->spans[unit->span];
  int64_t          keys, drawn = twh__cover_drawn(span, unit, &plan->kernels[span->kernel].lowering.grid, &keys);
  int64_t          count = plan->estimate == TWH_ESTIMATE_DOUBLED ? drawn : span->sampling.samples;

  if (drawn == 0) return 0;
  return plan->error_quantile * twh__spread_error(state, at, count, (double)drawn / (double)keys, plan->shape.v_dim);
}

/* Row `row` of a head of the tensors. */
static void results_write_error(const twh__run *run, const twh__unit *unit, const twh__state *state, int64_t at, int64_t head,
                                int64_t row)
{
  const twh_plan  *plan = run->plan;
  const twh__span *span = &plan->spans[unit->span];
  double           error = results_error(run, unit, state, at), squares = 0;

  if (run->has_error) twh__store(twh__view_row(&run->error, span->batch, head, row), run->error.dtype, 0, error);
  if (!run->row_flags || error == 0) return;
  for (int64_t c = 0; c < plan->shape.v_dim; ++c)
    squares += state->b[at * plan->shape.v_dim + c] * state->b[at * plan->shape.v_dim + c];
  if (error <= plan->target_error * sqrt(squares)) return;
  run->row_flags[(span->batch * plan->shape.q_heads + head) * plan->q_rows + row] = 1;
}

/* Write row r of a unit from row `at` of a state, the sink logit of its head included. */
static void results_write(const twh__run *run, const twh__unit *unit, const twh__state *state, int64_t at, int64_t r)
{
  const twh__span *span = &run->plan->spans[unit->span];
  int64_t          head, row, dim = run->plan->shape.v_dim;
  char            *lse = NULL;

  twh__unit_row(unit, span, r, &head, &row);
  if (run->has_sinks) {
    twh__state_add_sink(state, at, twh__load(twh__view_row(&run->sinks, 0, head, 0), run->sinks.dtype, 0), dim);
  }
  if (run->has_error || run->row_flags) results_write_error(run, unit, state, at, head, row);
  if (run->has_lse) lse = twh__view_row(&run->lse, span->batch, head, row);
  twh__state_write(state, at, dim, twh__view_row(&run->out, span->batch, head, row), run->out.dtype, lse, run->lse.dtype);
}

static twh__state *results_state(const twh__run *run, twh__state *passing, int32_t number)
{
  const twh__agenda *agenda = &run->work.agenda;

  if (number < 0) return NULL;
  return number < agenda->leaves + agenda->nodes ? &run->work.states[number]
                                                 : &passing[number - agenda->leaves - agenda->nodes];
}

/* All of the wave's work on a lot of rows: what one merge writes is still in the cache when the next one reads it. */
static void results_rows(const twh__run *run, twh__state *passing, int64_t first, int64_t last)
{
  for (int i = 0; i < TWH__PASSING; ++i) passing[i].row = first;
  for (int64_t w = 0; w < run->work.agenda.count; ++w) {
    const twh__merge *work = &run->work.agenda.work[w];
    const twh__state *from[TWH__FAN];
    int64_t           end = twh__min(last, work->rows);
    for (int i = 0; i < TWH__FAN; ++i) from[i] = results_state(run, passing, work->from[i]);
    if (work->into >= 0) {
      twh__state_merge(results_state(run, passing, work->into), from, first, end, run->plan->shape.v_dim);
    } else {
      for (int64_t r = first; r < end; ++r)
        results_write(run, &run->work.units[work->unit].unit, from[0], twh__state_at(from[0], r), r);
    }
  }
}

static void results_rows_task(void *arg, int64_t i)
{
  const twh__run *run = (const twh__run *)arg;
  int64_t         parts = run->plan->layout.row_parts, lots = twh__ceil_div(run->plan->layout.node_rows, TWH__LOT);
  int64_t         last = lots * (i + 1) / parts;

  for (int64_t lot = lots * i / parts; lot < last; ++lot) {
    results_rows(run, run->work.passing + i * TWH__PASSING, lot * TWH__LOT, (lot + 1) * TWH__LOT);
  }
}

/* Plan what becomes of the state of one tile. */
static int results_plan(twh__run *run, const twh__tile *tile, const twh__placement *place)
{
  twh__agenda     *agenda = &run->work.agenda;
  twh__unit_entry *entry = &run->work.units[place->unit];

  if (!twh__tree_push(&entry->tree, tile->level, tile->ordinal, place->leaf, agenda)) return 0;
  if (--entry->tiles_left > 0) return 1;
  return twh__tree_finish(&entry->tree, place->unit, agenda);
}

/* Units whose last tiles were left out have all their states. */
static int results_finish_skipped(twh__run *run)
{
  for (int64_t u = 0; run->has_mask && u < run->plan->layout.units; ++u) {
    twh__unit_entry *entry = &run->work.units[u];
    if (entry->tiles_left == 0 && entry->tree.count > 0 && !twh__tree_finish(&entry->tree, (int32_t)u, &run->work.agenda)) {
      return 0;
    }
  }
  return 1;
}

/* What every slot's tiles add to the agenda; then leaves that are still waiting become nodes. */
static int results_plan_all(const twh__wave *wave)
{
  twh__run *run = wave->run;

  for (int64_t b = 0; b < wave->count; ++b) {
    const twh__bundle *bundle = wave->bundles[b];
    for (int64_t s = 0; s < bundle->filled; ++s) {
      const twh__attention *slot = &bundle->slots[s];
      for (int64_t t = 0; t < slot->slot.count; ++t) {
        if (!results_plan(run, &slot->tiles[t], &slot->places[t])) return 0;
      }
    }
  }
  for (int64_t b = 0; b < wave->count; ++b) {
    const twh__bundle *bundle = wave->bundles[b];
    for (int64_t s = 0; s < bundle->filled; ++s) {
      const twh__attention *slot = &bundle->slots[s];
      for (int64_t t = 0; t < slot->slot.count; ++t) {
        twh__unit_entry *entry = &run->work.units[slot->places[t].unit];
        if (entry->tiles_left > 0 && !twh__tree_keep(&entry->tree, &run->work.agenda)) return 0;
      }
    }
  }
  return 1;
}

twh_status twh__wave_merge(twh__wave *wave, twh_error *error)
{
  twh__run    *run = wave->run;
  twh__agenda *agenda = &run->work.agenda;

  agenda->count = 0;
  agenda->leaf_results = !run->has_sinks && !run->plan->estimate; /* what those change is a node's */
  if (!results_finish_skipped(run) || !results_plan_all(wave)) {
    return twh__fail(error, TWH_E_MEMORY, "workspace: too few states (a defect of the library)");
  }
  twh__agenda_pass_on(agenda);
  twh__run_parallel(run, run->plan->layout.row_parts, results_rows_task, run);
  for (int64_t w = 0; w < agenda->count; ++w) {
    if (agenda->work[w].into < 0) twh__place_free_unit(run, agenda->work[w].unit);
  }
  return TWH_OK;
}

void twh__run_write_neutral(const twh__run *run, const twh__unit *unit)
{
  for (int64_t r = 0; r < unit->rows; ++r) {
    run->work.neutral.m[0] = -(double)INFINITY;
    run->work.neutral.a[0] = 0;
    results_write(run, unit, &run->work.neutral, 0, r);
  }
}

void twh__run_write_empty(twh__run *run)
{
  const twh_plan *plan = run->plan;
  twh__unit       unit;

  for (unit.span = 0; unit.span < plan->spans_count; ++unit.span) {
    const twh__span *span = &plan->spans[unit.span];
    const twh__grid *grid = &plan->kernels[span->kernel].lowering.grid;
    if (span->k_len > 0) continue;
    for (unit.kv_head = 0; unit.kv_head < plan->shape.kv_heads; ++unit.kv_head) {
      for (int64_t u = 0; u < twh__cover_units(span, plan->shape.group, grid); ++u) {
        twh__cover_unit(span, plan->shape.group, grid, u, &unit);
        twh__run_write_neutral(run, &unit);
      }
    }
  }
}
