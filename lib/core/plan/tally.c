/* Counting: how many tiles, calls and host operations a problem takes.
 *
 * Tiles that stand alone in their slots need no place to be counted: heads are alike, and within a unit all whole key blocks
 * are; so one head's units are walked, and of each unit the blocks at both ends and one that stands for those between. Tiles
 * that share slots are placed as an execute would place them. Time O(length / rows of a unit), no memory. */
#include <math.h>
#include <string.h>

#include "core/plan/plan.h"

enum { TALLY_MAX_UNITS = 1 << 24 }; /* beyond it a plan would take seconds */

typedef struct tally_count {
  const twh_plan *plan;
  twh__tally     *tally;
  int64_t         epoch, calls;
  twh__pack       pack[TWH__MAX_KERNELS];
  int             overflow;
} tally_count;

static void tally_add(tally_count *count, int64_t *figure, int64_t times)
{
  if (!twh__add(*figure, times, figure)) count->overflow = 1;
}

static int64_t *tally_shape(twh__tally *tally, const twh__span *span, const twh__tile *tile)
{
  switch (twh__plan_shape(span, tile)) {
  case TWH_SHAPE_FULL: return &tally->full_tiles;
  case TWH_SHAPE_LOWER: return &tally->lower_tiles;
  case TWH_SHAPE_UPPER: return &tally->upper_tiles;
  default: return &tally->band_tiles;
  }
}

/* A tile takes the next place of those that share slots. */
static void tally_place(tally_count *count, const twh__span *span, twh__tile tile)
{
  twh__tally *tally = count->tally;
  twh__place  place;

  tile.epoch = count->epoch;
  twh__pack_put(&count->pack[tile.kernel], &count->plan->kernels[tile.kernel].lowering, 1, span->sequence, &tile, &count->calls,
                &place);
  tally->slot_tiles = twh__max(tally->slot_tiles, place.tile + 1);
  tally->slot_units = twh__max(tally->slot_units, place.units);
}

/* `times` tiles like this one, `like` of them in one unit; those that share slots are placed for one head. */
static void tally_tile(tally_count *count, const twh__span *span, const twh__tile *tile, int64_t like, int64_t times)
{
  const twh__lowering *lowering = &count->plan->kernels[tile->kernel].lowering;
  twh__tally          *tally = count->tally;
  int32_t              class_number = twh__class_of(tile);

  if (tile->alone) {
    tally_add(count, &tally->slots[tile->kernel][class_number], times);
  } else {
    for (int64_t i = 0; i < like; ++i) tally_place(count, span, *tile);
  }
  tally->kernel_shares[tile->kernel] += twh__plan_share(lowering, tile) * (double)times;
  tally_add(count, &tally->all_tiles, times);
  tally_add(count, tally_shape(tally, span, tile), times);
  if (tile->mode == TWH__MODE_HOST) {
    tally_add(count, &tally->host_tiles, times);
    tally->host_tile_pairs += twh__lower_host_pairs(lowering, tile) * (double)times;
  } else if (tile->lead + tile->keys < lowering->k_len && tile->alone) {
    tally_add(count, &tally->short_tiles, times);
    if (tile->pads == TWH__PAD_UNSEEN || tile->pads == TWH__PAD_MASKED) tally_add(count, &tally->unseen_tiles, times);
  }
  tally->host_pairs += twh__lower_host_pairs(lowering, tile) * (double)times;
  tally->host_flops += (double)tile->rows * (double)times * (3 * (double)count->plan->shape.v_dim);
  if (tile->sample.role == TWH__DRAWN_SQUARES) return;
  if (span->sampling.samples > 0) tally->sampled_pairs += twh__lower_visible(tile) * (double)times;
  if (tile->sample.stratum > 0) {
    int64_t keys = 0, second = tile->level == 0 && tile->ordinal % 2 == 1; /* of a rectangle in two triangles: the same keys */
    if (!twh__multiply(second ? 0 : tile->keys, times, &keys)) count->overflow = 1;
    tally_add(count, &tally->drawn_tiles, times);
    tally_add(count, &tally->drawn_keys, keys);
  }
}

/* Returns the unit's tiles. */
static int64_t tally_unit(tally_count *count, const twh__span *span, const twh__unit *unit, int64_t times)
{
  const twh__grid *grid = &count->plan->kernels[span->kernel].lowering.grid;
  int64_t          patches = twh__cover_patches(span, unit, grid), whole = twh__cover_whole(span, unit, grid), tiles = 0;
  twh__patch       patch;
  twh__tile        tile;

  memset(&tile, 0, sizeof tile);
  tile.unit = *unit;
  count->tally->max_blocks = twh__max(count->tally->max_blocks, patches);
  for (int64_t index = 0, like; index < patches; index += like) {
    int64_t scaled, n = 0;
    like = index == 1 && whole > 0 ? twh__min(whole, patches - 1) : 1;
    if (!twh__cover_patch(span, unit, grid, index, &patch)) continue;
    if (!twh__multiply(like, times, &scaled)) count->overflow = 1;
    for (int64_t all = twh__plan_patch_tiles(count->plan, span, &patch); n < all && !count->overflow; ++n) {
      if (!twh__plan_tile(count->plan, span, &patch, n, &tile)) continue;
      tally_tile(count, span, &tile, like, scaled);
      tiles += like;
    }
  }
  return tiles;
}

/* Units [0, units) of one kv head, `times` of them alike. */
static void tally_units(tally_count *count, const twh__span *span, int64_t kv_head, int64_t units, int64_t times)
{
  const twh_plan *plan = count->plan;
  twh__tally     *tally = count->tally;
  twh__unit       unit;

  unit.span = span - plan->spans;
  unit.kv_head = kv_head;
  for (int64_t u = 0; u < units && !count->overflow; ++u) {
    int64_t tiles;
    twh__cover_unit(span, plan->shape.group, &plan->kernels[span->kernel].lowering.grid, u, &unit);
    tiles = tally_unit(count, span, &unit, times);
    if (span->streamed) {
      tally->stream_tiles = twh__max(tally->stream_tiles, tiles);
      tally->stream_rows = twh__max(tally->stream_rows, unit.rows);
    } else {
      tally->max_unit_tiles = twh__max(tally->max_unit_tiles, tiles);
    }
  }
}

/* One head of a streamed span stands for all: its slots are counted as often as there are heads. */
static void tally_apart(tally_count *count, const twh__span *span, int64_t units, int64_t heads)
{
  int64_t before[TWH__MAX_KERNELS][TWH__CLASSES];

  ++count->epoch;
  for (int32_t k = 0; k < count->plan->kernel_count; ++k) memcpy(before[k], count->pack[k].slots, sizeof before[k]);
  tally_units(count, span, 0, units, heads);
  for (int32_t k = 0; k < count->plan->kernel_count; ++k) {
    for (int32_t c = 0; c < TWH__CLASSES; ++c) {
      int64_t more = count->pack[k].slots[c] - before[k][c], all = 0;
      if (!twh__multiply(more, heads - 1, &all)) count->overflow = 1;
      tally_add(count, &count->tally->slots[k][c], all);
    }
  }
  ++count->epoch;
}

static void tally_span(tally_count *count, const twh__span *span)
{
  const twh_plan   *plan = count->plan;
  const twh__shape *shape = &plan->shape;
  int64_t           units = twh__cover_units(span, shape->group, &plan->kernels[span->kernel].lowering.grid), all;
  int64_t           heads = span->stacked ? shape->kv_heads : shape->q_heads, per_head = units * shape->kv_heads / heads;

  if (!twh__multiply(units, shape->kv_heads, &all)) count->overflow = 1;
  if (!count->overflow) tally_add(count, &count->tally->units, all);
  if (per_head > TALLY_MAX_UNITS) count->overflow = 1;
  if (span->sampling.samples > 0) count->tally->pattern_pairs += twh__span_pairs(span) * (double)shape->q_heads;
  if (count->overflow) return;
  if (!span->streamed) {
    count->tally->max_units = twh__max(count->tally->max_units, units);
    tally_units(count, span, 0, per_head, heads);
  } else if (twh__plan_heads_apart(plan, span)) {
    tally_apart(count, span, per_head, heads);
  } else {
    for (int64_t kv = 0; kv < shape->kv_heads; ++kv) tally_units(count, span, kv, units, 1);
  }
}

/* Calls from slots. */
static void tally_calls(tally_count *count)
{
  const twh_plan *plan = count->plan;
  twh__tally     *tally = count->tally;

  for (int32_t k = 0; k < plan->kernel_count && !count->overflow; ++k) {
    const twh__lowering *lowering = &plan->kernels[k].lowering;
    for (int32_t c = 0; c < TWH__CLASSES && !count->overflow; ++c) {
      int32_t  reading = twh__class_reading(lowering, c);
      int64_t *slots = &tally->slots[k][c], bundles, calls;
      tally_add(count, slots, count->pack[k].slots[c]);
      if (*slots == 0) continue;
      ++tally->classes;
      if (count->pack[k].slots[c] > 0) ++tally->stream_classes;
      if (twh__class_is_host(c)) continue;
      tally_add(count, &tally->slots_used, *slots);
      bundles = twh__ceil_div(*slots, lowering->slots);
      if (!twh__multiply(bundles, twh__lower_parts(lowering, reading), &calls)) count->overflow = 1;
      if (!count->overflow) tally_add(count, &tally->kernel_calls[k], calls);
      if (reading == TWH__READ_ANCHOR || reading == TWH__READ_ANCHOR_SHARE) {
        tally_add(count, &tally->repair_calls_max, bundles);
      }
    }
    tally_add(count, &tally->calls, tally->kernel_calls[k]);
    if (lowering->power == 2) tally->square_calls = tally->kernel_calls[k];
  }
}

twh_status twh__plan_count(const twh_plan *plan, int64_t first, int64_t last, twh__tally *tally, twh_error *error)
{
  tally_count count;

  memset(tally, 0, sizeof *tally);
  memset(&count, 0, sizeof count);
  tally->slot_tiles = 1;
  count.plan = plan;
  count.tally = tally;
  for (int32_t k = 0; k < plan->kernel_count; ++k) twh__pack_begin(&count.pack[k], INT64_MAX);
  for (int64_t s = first; s < last && !count.overflow; ++s) tally_span(&count, &plan->spans[s]);
  tally_calls(&count);
  if (count.overflow || tally->host_pairs > 9e18) {
    return twh__fail(error, TWH_E_OVERFLOW,
                     "problem: the number of tiles does not fit; q_len and k_len are too large for this kernel");
  }
  return TWH_OK;
}

double twh__plan_cost(const twh_plan *plan, const twh__tally *tally)
{
  double cost = 0;

  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    const twh__kernel *kernel = &plan->kernels[k];
    double             calls = (double)tally->kernel_calls[k];
    cost += calls * kernel->cost_call + ceil(calls / (double)kernel->calls_per_batch) * kernel->cost_batch;
  }
  return cost;
}
