/* The cursor: nested loops that can be left and entered again between any two tiles. */
#include <string.h>

#include "core/plan/plan.h"

void twh__cursor_begin(twh__cursor *cursor, const twh_plan *plan)
{
  memset(cursor, 0, sizeof *cursor);
  cursor->plan = plan;
  for (int32_t k = 0; k < plan->kernel_count; ++k) twh__pack_begin(&cursor->pack[k], plan->tally.slot_tiles);
}

static const twh__grid *cursor_grid(const twh__cursor *cursor)
{
  return &cursor->plan->kernels[cursor->plan->spans[cursor->span].kernel].lowering.grid;
}

static void cursor_unit(const twh__cursor *cursor, int64_t number, twh__unit *unit)
{
  unit->span = cursor->span;
  unit->kv_head = cursor->kv_head;
  twh__cover_unit(&cursor->plan->spans[cursor->span], cursor->plan->shape.group, cursor_grid(cursor), number, unit);
}

/* Patches of the panel: those of the unit that has most. */
static int64_t cursor_blocks(const twh__cursor *cursor, int64_t units)
{
  int64_t   most = 0;
  twh__unit unit;

  for (int64_t u = 0; u < units; ++u) {
    cursor_unit(cursor, cursor->panel + u, &unit);
    most = twh__max(most, twh__cover_patches(&cursor->plan->spans[cursor->span], &unit, cursor_grid(cursor)));
  }
  return most;
}

/* Tiles that patches with this number have at most: two, but for staircases. */
static int64_t cursor_numbers(const twh__cursor *cursor)
{
  const twh__span *span = &cursor->plan->spans[cursor->span];
  twh__patch       patch;
  twh__unit        unit;

  if (!span->streamed) return 2;
  cursor_unit(cursor, cursor->panel, &unit);
  if (!twh__cover_patch(span, &unit, cursor_grid(cursor), cursor->group + cursor->block, &patch)) return 0;
  return twh__plan_patch_tiles(cursor->plan, span, &patch);
}

/* The tile at the cursor, if there is one. */
static int cursor_tile(twh__cursor *cursor, int64_t units, twh__tile *tile)
{
  const twh_plan  *plan = cursor->plan;
  const twh__span *span = &plan->spans[cursor->span];
  int64_t          block = cursor->group + cursor->block;
  twh__patch       patch;

  tile->unit_index = span->first_unit + cursor->kv_head * units + cursor->panel + cursor->unit;
  if (cursor->units && !cursor->units[tile->unit_index]) return 0;
  cursor_unit(cursor, cursor->panel + cursor->unit, &tile->unit);
  if (block >= twh__cover_patches(span, &tile->unit, cursor_grid(cursor))) return 0;
  if (!twh__cover_patch(span, &tile->unit, cursor_grid(cursor), block, &patch)) return 0;
  if (!twh__plan_tile(plan, span, &patch, cursor->number, tile)) return 0;
  tile->epoch = cursor->epoch;
  if (span->streamed) { /* a unit's tiles come together: numbers without gaps keep its tree small */
    tile->ordinal = cursor->ordinal++;
    tile->level = 1;
  }
  return 1;
}

/* Heads that are packed apart, and whatever comes after them, begin a new epoch. */
static void cursor_enter(twh__cursor *cursor, int64_t units)
{
  const twh_plan *plan = cursor->plan;
  int             apart = twh__plan_heads_apart(plan, &plan->spans[cursor->span]);
  int64_t         per_head = plan->spans[cursor->span].stacked ? units : units / plan->shape.group;

  if (cursor->panel == 0 && cursor->kv_head == 0 && cursor->span > 0 &&
      twh__plan_heads_apart(plan, &plan->spans[cursor->span - 1])) {
    ++cursor->epoch;
  } else if (apart && cursor->panel % per_head == 0) {
    ++cursor->epoch;
  }
  cursor->ordinal = 0;
  cursor->entered = 1;
}

/* A group of `blocks` patches: all of one unit, then those of the next. */
static int cursor_next_of_group(twh__cursor *cursor, int64_t units, int64_t in_panel, int64_t blocks, twh__tile *tile)
{
  for (; cursor->unit < in_panel; ++cursor->unit, cursor->block = 0) {
    for (; cursor->block < blocks; ++cursor->block, cursor->number = 0) {
      int64_t numbers = cursor_numbers(cursor);
      while (cursor->number < numbers) {
        int found = cursor_tile(cursor, units, tile);
        ++cursor->number;
        if (found) return 1;
      }
    }
  }
  return 0;
}

int twh__cursor_next(twh__cursor *cursor, twh__tile *tile)
{
  const twh_plan *plan = cursor->plan;

  for (; cursor->span < plan->spans_count; ++cursor->span, cursor->kv_head = 0) {
    const twh__span *span = &plan->spans[cursor->span];
    int64_t          units = twh__cover_units(span, plan->shape.group, cursor_grid(cursor)),
            panel = span->streamed ? 1 : plan->layout.panel;
    for (; cursor->kv_head < plan->shape.kv_heads; ++cursor->kv_head, cursor->panel = 0) {
      for (; cursor->panel < units; cursor->panel += panel, cursor->group = 0, cursor->entered = 0) {
        int64_t in_panel = twh__min(panel, units - cursor->panel), blocks = cursor_blocks(cursor, in_panel);
        if (!cursor->entered) cursor_enter(cursor, units);
        for (; cursor->group < blocks; cursor->group += plan->layout.chain, cursor->unit = 0) {
          if (cursor_next_of_group(cursor, units, in_panel, twh__min(plan->layout.chain, blocks - cursor->group), tile))
            return 1;
        }
      }
    }
  }
  return 0;
}

void twh__cursor_place(twh__cursor *cursor, twh__tile *tile, twh__place *place)
{
  const twh_plan      *plan = cursor->plan;
  const twh__lowering *lowering = &plan->kernels[tile->kernel].lowering;
  int32_t              class_number = twh__class_of(tile);
  int64_t              parts = twh__lower_parts(lowering, twh__class_reading(lowering, class_number));

  if (twh__class_is_host(class_number)) parts = 0;
  twh__pack_put(&cursor->pack[tile->kernel], lowering, parts, plan->spans[tile->unit.span].sequence, tile, &cursor->calls,
                place);
}
