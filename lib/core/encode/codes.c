/* Codes: masks in spare coordinates (docs/theory.md).
 *
 * In each coordinate some queries carry -B, some keys +B, everything else 0. A pair of both gets a score of -|scale| B^2 and
 * with it a weight of exactly 0, every other pair exactly nothing. Cuts hide a part of a tile from some of its rows. Isolation
 * gives every tile a set of coordinates: its keys carry the code there, its rows in all the others; so a row is kept from the
 * keys of each tile whose set is not within its own, and from the pads, which carry the code everywhere. Sets of one size are
 * never within each other; a causal slot, whose rows see earlier keys only, can use all sets, the larger ones first. */
#include "core/encode/operand.h"

static int codes_size(uint32_t code)
{
  int size = 0;
  for (; code; code &= code - 1) ++size;
  return size;
}

static uint32_t codes_smallest(int size)
{
  return ((uint32_t)1 << size) - 1;
}

uint32_t twh__code_first(const twh__slot *slot)
{
  uint32_t full = codes_smallest(slot->isolation);

  if (slot->count == 1 || slot->isolation == 0) return 0;
  if (slot->tiles[0].mode != TWH_MASK_CAUSAL) return codes_smallest(slot->isolation / 2);
  return slot->exposed ? twh__code_next(slot, full) : full; /* only the full set does not hide pads */
}

/* The next number with as many bits; behind the last one the first with one bit fewer. */
uint32_t twh__code_next(const twh__slot *slot, uint32_t code)
{
  uint32_t low = code & (~code + 1), carried, next;

  if (code == 0) return 0;
  carried = code + low;
  next = carried | ((carried ^ code) / low) >> 2;
  return next >> slot->isolation ? codes_smallest(codes_size(code) - 1) : next;
}

static int codes_is_off(const twh__source *source, const twh__slot *slot)
{
  return source->lowering->code == 0 || slot->tiles[0].mode == TWH_MASK_TENSOR;
}

static void codes_put(char *row, const twh__source *source, int64_t coordinate, double sign)
{
  int64_t column = source->shape->qk_dim + source->lowering->bias_parts + coordinate;
  twh__store(row, source->lowering->dtype, column, sign * source->lowering->code);
}

/* The isolation coordinates in a set. */
static void codes_put_set(char *row, const twh__source *source, const twh__slot *slot, uint32_t set, double sign)
{
  for (int32_t c = 0; c < slot->isolation; ++c) {
    if (set >> c & 1) codes_put(row, source, slot->cuts + c, sign);
  }
}

void twh__code_query(char *row, const twh__source *source, const twh__slot *slot, const twh__tile *tile, uint32_t code,
                     int64_t i)
{
  if (codes_is_off(source, slot)) return;
  if (tile->cut == TWH__CUT_CORNER && twh__tile_from(tile, i) > 0) codes_put(row, source, 0, -1);
  if (tile->cut == TWH__CUT_STAIR) {
    int64_t steps = twh__ceil_div(twh__tile_seen(tile, i), tile->seen.unit);
    for (int64_t t = twh__max(0, steps - 1); t < tile->cuts; ++t) codes_put(row, source, t, -1);
  }
  codes_put_set(row, source, slot, ~code, -1);
}

static double codes_key_sign(const twh__source *source)
{
  return source->lowering->kernel_scale < 0 ? -1 : 1;
}

void twh__code_key(char *row, const twh__source *source, const twh__slot *slot, const twh__tile *tile, uint32_t code, int64_t j)
{
  if (codes_is_off(source, slot)) return;
  if (tile->cut == TWH__CUT_CORNER && j < tile->from.unit) codes_put(row, source, 0, codes_key_sign(source));
  if (tile->cut == TWH__CUT_STAIR) {
    int64_t step = j / tile->seen.unit;
    if (step > 0 && step <= tile->cuts) codes_put(row, source, step - 1, codes_key_sign(source));
  }
  codes_put_set(row, source, slot, code, codes_key_sign(source));
}

void twh__code_pad(char *row, const twh__source *source, const twh__slot *slot)
{
  if (!codes_is_off(source, slot)) codes_put_set(row, source, slot, ~(uint32_t)0, codes_key_sign(source));
}
