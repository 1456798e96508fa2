/* The tiles of a plan one by one, as the caller counts rows and keys. */
#include <string.h>

#include "core/plan/plan.h"
#include "core/view/view.h"

/* Drawn keys are numbers of their order. Spans that are sampled are not mirrored. */
static void visit_draw(const twh__span *span, const twh__tile *tile, twh_tile_info *info)
{
  const twh__sample *sample = &tile->sample;

  info->flags = TWH_TILE_DRAWN | (sample->role == TWH__DRAWN_SQUARES ? (uint32_t)TWH_TILE_DOUBLED : 0);
  info->log_weight = sample->log_weight;
  info->k_begin = tile->key;
  info->reversed = tile->reversed;
  info->visible[8] = tile->reversed ? tile->key + tile->keys - 1 : tile->key;
  info->visible[9] = tile->reversed ? -1 : 1;
  memcpy(&info->drawn[0], &sample->seed, sizeof sample->seed);
  info->drawn[1] = sample->stratum;
  info->drawn[2] = sample->first;
  info->drawn[3] = sample->skip;
  info->drawn[4] = sample->gap;
  info->drawn[5] = sample->gap_keys;
  info->drawn[6] = twh__span_key(span, 0) - span->k_first;
}

/* Where a tile's rows and keys lie within its sequence, counted upwards whatever the span and the slot do. */
static void visit_fill(const twh_plan *plan, const twh__tile *tile, twh_tile_info *info)
{
  const twh__span *span = &plan->spans[tile->unit.span];
  int64_t          first = twh__span_key(span, twh__tile_key(tile, 0)) - span->k_first;
  int64_t          last = twh__span_key(span, twh__tile_key(tile, tile->keys - 1)) - span->k_first;
  int64_t          row = tile->unit.first + tile->row, back = span->mirrored ? tile->rows - 1 : 0;
  const twh__edge *edges[2] = { &tile->from, &tile->seen };

  info->sequence = span->sequence;
  info->q_head = tile->unit.q_head;
  info->q_begin =
    span->mirrored ? twh__span_row(span, row + tile->rows - 1) - span->q_first : row + span->q_begin - span->q_first;
  info->q_len = tile->rows;
  info->k_begin = twh__min(first, last);
  info->k_len = tile->keys;
  info->sink_len = tile->lead;
  info->sink_begin =
    tile->lead == 0
      ? 0
      : twh__min(twh__span_key(span, span->sink_key), twh__span_key(span, span->sink_key + tile->lead - 1)) - span->k_first;
  info->q_at = twh__min(tile->at, tile->at + (tile->rows - 1) * tile->at_step);
  info->k_at = tile->key_at;
  info->shape = twh__plan_shape(span, tile);
  info->reversed = last < first;
  for (int e = 0; e < 2; ++e) {
    info->visible[4 * e] = edges[e]->start + back * edges[e]->step;
    info->visible[4 * e + 1] = span->mirrored ? -edges[e]->step : edges[e]->step;
    info->visible[4 * e + 2] = edges[e]->quantum;
    info->visible[4 * e + 3] = edges[e]->unit;
  }
  info->visible[8] = first;
  info->visible[9] = last < first ? -1 : 1;
  info->flags = 0;
  info->log_weight = 0;
  memset(info->drawn, 0, sizeof info->drawn);
  if (tile->sample.stratum > 0) visit_draw(span, tile, info);
}

int64_t twh_tile_drawn_key(const twh_tile_info *tile, int64_t t)
{
  const int64_t *drawn = tile->drawn;
  twh__sample    sample;

  memcpy(&sample.seed, &drawn[0], sizeof sample.seed);
  sample.stratum = drawn[1];
  sample.first = drawn[2];
  sample.skip = drawn[3];
  sample.gap = drawn[4];
  sample.gap_keys = drawn[5];
  sample.log_weight = 0;
  sample.role = TWH__DRAWN_PLAIN;
  return drawn[6] + twh__sample_key(&sample, tile->k_begin + t);
}

void twh_tile_keys(const twh_tile_info *tile, int64_t t, int64_t *k_begin, int64_t *k_len)
{
  const int64_t  *v = tile->visible;
  const twh__edge from = { v[0], v[1], v[2], v[3] }, seen = { v[4], v[5], v[6], v[7] };
  int64_t         begin = twh__edge_at(&from, t, tile->k_len), end = twh__edge_at(&seen, t, tile->k_len);

  *k_len = twh__max(0, end - begin);
  *k_begin = v[9] > 0 ? v[8] + begin : v[8] - end + 1;
}

void twh__plan_tell(const twh_plan *plan, const twh__tile *tile, int64_t call, int64_t slot, twh_tile_info *info)
{
  visit_fill(plan, tile, info);
  info->mask_mode = (uint32_t)tile->mode;
  info->oracle = plan->kernels[tile->kernel].index;
  info->call = info->slot = -1;
  info->calls = 0;
  if (tile->mode == TWH__MODE_HOST) return;
  info->call = call;
  info->slot = slot;
  info->calls = twh__lower_parts(&plan->kernels[tile->kernel].lowering, tile->reading);
}

twh_status twh_plan_visit(const twh_plan *plan, int32_t (*visit)(void *user, const twh_tile_info *tile), void *user,
                          twh_error *error)
{
  twh__cursor   cursor;
  twh__tile     tile;
  twh_tile_info info;

  if (!plan || !visit) return twh__fail(error, TWH_E_ARGUMENT, "%s is NULL", plan ? "visit" : "plan");
  twh__cursor_begin(&cursor, plan);
  twh_tile_info_init(&info);
  memset(&tile, 0, sizeof tile);
  while (twh__cursor_next(&cursor, &tile)) {
    twh__place place;
    twh__cursor_place(&cursor, &tile, &place);
    twh__plan_tell(plan, &tile, place.call, place.slot, &info);
    if (visit(user, &info) != 0) break;
  }
  return TWH_OK;
}
