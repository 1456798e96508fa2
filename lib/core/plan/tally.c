/* Counting: how many tiles, calls and host operations a lowering takes.
 *
 * Heads are alike, and within a unit all whole key blocks are; so one head's units are walked, and of each unit the blocks at
 * both ends and one that stands for those between. Time O(length / q_block), no memory. */
#include <string.h>

#include "core/plan/plan.h"

enum { TALLY_MAX_UNITS = 1 << 24 }; /* of one head: beyond it a plan would take seconds */

typedef struct tally_count {
  const twh_plan      *plan;
  const twh__lowering *lowering;
  twh__tally          *tally;
  int                  overflow;
} tally_count;

static void tally_add(tally_count *count, int64_t *figure, int64_t times)
{
  if (!twh__add(*figure, times, figure)) count->overflow = 1;
}

/* `times` patches like this one. */
static int64_t tally_patch(tally_count *count, const twh__span *span, const twh__unit *unit, int64_t index, int64_t times)
{
  const twh__lowering *lowering = count->lowering;
  twh__tally          *tally = count->tally;
  twh__patch           patch;
  twh__tile            tile;
  int64_t              tiles;

  memset(&tile, 0, sizeof tile);
  tile.unit = *unit;
  twh__cover_patch(span, unit, lowering->k_block, index, &patch);
  tiles = twh__lower_count(lowering, &patch);
  for (int64_t number = 0; number < tiles; ++number) {
    double rows;
    twh__lower_tile(lowering, &patch, number, &tile);
    rows = (double)tile.rows * (double)times;
    tally_add(count, &tally->tiles[twh__class_of(tile.mode, tile.reading)], times);
    tally_add(count, &tally->all_tiles, times);
    tally_add(count, tile.shape == TWH_SHAPE_FULL ? &tally->full_tiles : tile.shape == TWH_SHAPE_LOWER ? &tally->lower_tiles :
              &tally->upper_tiles, times);
    if (tile.keys < lowering->k_len) tally_add(count, &tally->short_tiles, times);
    if (tile.keys < lowering->k_len && (tile.pads == TWH__PAD_UNSEEN || tile.pads == TWH__PAD_MASKED))
      tally_add(count, &tally->unseen_tiles, times);
    tally->host_pairs += (double)twh__lower_host_pairs(lowering, &tile) * (double)times;
    tally->host_flops += rows * (3 * (double)count->plan->shape.v_dim);
  }
  return tiles;
}

/* Returns the unit's tiles. */
static int64_t tally_unit(tally_count *count, const twh__span *span, const twh__unit *unit, int64_t times)
{
  int64_t blocks = twh__cover_blocks(span, unit, count->lowering->k_block), whole, tiles = 0, scaled;

  count->tally->max_blocks = twh__max(count->tally->max_blocks, blocks);
  if (blocks == 0) return 0;
  whole = twh__min(twh__cover_whole(span, unit, count->lowering->k_block), blocks - 1);
  tiles += tally_patch(count, span, unit, 0, times);
  if (whole > 0) {
    if (!twh__multiply(whole, times, &scaled)) count->overflow = 1;
    tiles += whole * tally_patch(count, span, unit, 1, scaled);
  }
  for (int64_t index = 1 + whole; index < blocks; ++index) tiles += tally_patch(count, span, unit, index, times);
  count->tally->max_unit_tiles = twh__max(count->tally->max_unit_tiles, tiles);
  return tiles;
}

int64_t twh__plan_unit_tiles(const twh__lowering *lowering, const twh__span *span, const twh__unit *unit)
{
  int64_t    blocks = twh__cover_blocks(span, unit, lowering->k_block), whole, tiles = 0;
  twh__patch patch;

  if (blocks == 0) return 0;
  whole = twh__min(twh__cover_whole(span, unit, lowering->k_block), blocks - 1);
  for (int64_t index = 0; index < blocks; ++index) {
    int64_t like = index == 1 && whole > 0 ? whole : 1;
    twh__cover_patch(span, unit, lowering->k_block, index, &patch);
    tiles += like * twh__lower_count(lowering, &patch);
    index += like - 1;
  }
  return tiles;
}

static void tally_span(tally_count *count, const twh__span *span)
{
  const twh__shape *shape = &count->plan->shape;
  int64_t           units = twh__cover_units(span, shape->group, count->lowering->q_block);
  int64_t           times = shape->kv_heads * (span->stacked ? 1 : shape->group), here, all;
  twh__unit         unit;

  count->tally->max_units = twh__max(count->tally->max_units, units);
  if (!twh__multiply(units, shape->kv_heads, &all)) count->overflow = 1;
  if (!count->overflow) tally_add(count, &count->tally->units, all);
  here = span->stacked ? units : units / shape->group; /* of one head */
  if (here > TALLY_MAX_UNITS) count->overflow = 1;
  unit.span = 0;
  unit.kv_head = 0;
  for (int64_t u = 0; u < here && !count->overflow; ++u) {
    twh__cover_unit(span, shape->group, count->lowering->q_block, u, &unit);
    tally_unit(count, span, &unit, times);
  }
}

twh_status twh__plan_count(const twh_plan *plan, const twh__lowering *lowering, twh__tally *tally, twh_error *error)
{
  tally_count count = { plan, lowering, tally, 0 };

  memset(tally, 0, sizeof *tally);
  for (int64_t s = 0; s < plan->spans_count && !count.overflow; ++s) tally_span(&count, &plan->spans[s]);
  for (int32_t c = 0; c < TWH__CLASSES && !count.overflow; ++c) {
    int32_t reading = c % TWH__READINGS;
    int64_t bundles = twh__ceil_div(tally->tiles[c], lowering->slots), calls;
    if (bundles == 0) continue;
    ++tally->classes;
    if (!twh__multiply(bundles, twh__lower_parts(lowering, reading), &calls)) count.overflow = 1;
    if (!count.overflow) tally_add(&count, &tally->calls, calls);
    if (reading == TWH__READ_ANCHOR || reading == TWH__READ_ANCHOR_SHARE) tally_add(&count, &tally->repair_calls_max, bundles);
  }
  if (count.overflow || tally->host_pairs > 9e18) {
    return twh__fail(error, TWH_E_OVERFLOW,
                     "problem: the number of tiles does not fit; q_len and k_len are too large for this kernel");
  }
  return TWH_OK;
}
