/* The cursor: six nested loops that can be left and entered again between any two tiles. */
#include <string.h>

#include "core/plan/plan.h"

int64_t twh__plan_units(const twh_plan *plan, const twh__span *span)
{
  return twh__cover_units(span, plan->shape.group, plan->lowering.q_block) * plan->shape.kv_heads;
}

void twh__cursor_begin(twh__cursor *cursor, const twh_plan *plan)
{
  memset(cursor, 0, sizeof *cursor);
  cursor->plan = plan;
}

static void cursor_unit(const twh__cursor *cursor, int64_t number, twh__unit *unit)
{
  const twh_plan *plan = cursor->plan;
  unit->span = cursor->span;
  unit->kv_head = cursor->kv_head;
  twh__cover_unit(&plan->spans[cursor->span], plan->shape.group, plan->lowering.q_block, number, unit);
}

/* Key blocks of the panel: those of the unit that sees most. */
static int64_t cursor_blocks(const twh__cursor *cursor, int64_t units)
{
  int64_t   most = 0;
  twh__unit unit;

  for (int64_t u = 0; u < units; ++u) {
    cursor_unit(cursor, cursor->panel + u, &unit);
    most = twh__max(most, twh__cover_blocks(&cursor->plan->spans[cursor->span], &unit, cursor->plan->lowering.k_block));
  }
  return most;
}

/* The tile at the cursor, if there is one. */
static int cursor_tile(const twh__cursor *cursor, int64_t units_per_head, twh__tile *tile)
{
  const twh_plan      *plan = cursor->plan;
  const twh__span     *span = &plan->spans[cursor->span];
  const twh__lowering *lowering = &plan->lowering;
  twh__patch           patch;

  cursor_unit(cursor, cursor->panel + cursor->unit, &tile->unit);
  if (cursor->block >= twh__cover_blocks(span, &tile->unit, lowering->k_block)) return 0;
  twh__cover_patch(span, &tile->unit, lowering->k_block, cursor->block, &patch);
  if (cursor->number >= twh__lower_count(lowering, &patch)) return 0;
  twh__lower_tile(lowering, &patch, cursor->number, tile);
  tile->unit_index = plan->first_unit[cursor->span] + cursor->kv_head * units_per_head + cursor->panel + cursor->unit;
  return 1;
}

int twh__cursor_next(twh__cursor *cursor, twh__tile *tile)
{
  const twh_plan *plan = cursor->plan;

  for (; cursor->span < plan->spans_count; ++cursor->span, cursor->kv_head = 0) {
    int64_t units = twh__cover_units(&plan->spans[cursor->span], plan->shape.group, plan->lowering.q_block);
    for (; cursor->kv_head < plan->shape.kv_heads; ++cursor->kv_head, cursor->panel = 0) {
      for (; cursor->panel < units; cursor->panel += plan->layout.panel, cursor->block = 0) {
        int64_t in_panel = twh__min(plan->layout.panel, units - cursor->panel), blocks = cursor_blocks(cursor, in_panel);
        for (; cursor->block < blocks; ++cursor->block, cursor->number = 0) {
          for (; cursor->number < 2; ++cursor->number, cursor->unit = 0) {
            while (cursor->unit < in_panel) {
              int found = cursor_tile(cursor, units, tile);
              ++cursor->unit;
              if (found) return 1;
            }
          }
        }
      }
    }
  }
  return 0;
}
