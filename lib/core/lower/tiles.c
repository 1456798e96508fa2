/* Tiles of a patch: where rows and keys stand in a slot.
 *
 * On a kernel whose causal mask cannot be switched off, a rectangle is a lower triangle in natural order and the strict upper
 * one with its keys reversed (Theorem 3.5): row t stands at position keys - 2 - t there and sees the keys after its own
 * number. If rows and keys together fit one slot, the rows stand behind all keys instead, and one tile does it. An upper
 * triangle is a lower one with its keys reversed. On a kernel without masks a triangle is a staircase. */
#include <string.h>

#include "core/lower/lower.h"

static const twh__edge tiles_zero = { 0, 0, 1, 1 };

static void tiles_edge(twh__edge *edge, int64_t start, int64_t step)
{
  edge->start = start;
  edge->step = step;
  edge->quantum = edge->unit = 1;
}

/* A rectangle on a causal-only kernel that needs one slot only. */
static int tiles_is_single(const twh__lowering *lowering, const twh__patch *patch)
{
  return patch->keys == 1 || patch->rows + patch->keys <= lowering->grid.k_block + 1;
}

static int32_t tiles_mode(const twh__lowering *lowering, const twh__patch *patch)
{
  if (patch->shape == TWH_SHAPE_FULL) return lowering->full_mode;
  if (patch->shape == TWH_SHAPE_BAND && lowering->cut_mode != TWH_MASK_TENSOR) return TWH__MODE_HOST;
  return lowering->cut_mode;
}

static int tiles_is_stair(const twh__lowering *lowering, const twh__patch *patch)
{
  return patch->shape != TWH_SHAPE_FULL && tiles_mode(lowering, patch) == TWH_MASK_NONE;
}

int twh__lower_fits(const twh__lowering *lowering, const twh__patch *patch)
{
  int32_t kind = patch->shape == TWH_SHAPE_FULL ? TWH__SPAN_FULL : TWH__SPAN_CAUSAL;

  if (patch->rows > twh__grid_rows(&lowering->grid, kind) || patch->keys > twh__grid_keys(&lowering->grid, kind) || patch->lead) {
    return 0;
  }
  /* the causal mask puts a row behind the keys it sees, and rows that see all keys behind those */
  return patch->shape != TWH_SHAPE_LOWER || lowering->cut_mode != TWH_MASK_CAUSAL ||
         patch->seen.start + patch->rows - 1 <= lowering->grid.k_block;
}

/* Triangles of a staircase at one level. */
static int64_t tiles_triangles(const twh__lowering *lowering, const twh__patch *patch, int32_t level)
{
  return twh__ceil_div(patch->keys, lowering->stair_size[level]);
}

int64_t twh__lower_count(const twh__lowering *lowering, const twh__patch *patch)
{
  int64_t count = 2; /* of a staircase: the leaves, and rows beyond all keys */

  if (tiles_is_stair(lowering, patch)) {
    for (int32_t l = 0; l < lowering->stairs; ++l) count += tiles_triangles(lowering, patch, l);
    return count;
  }
  if (patch->shape != TWH_SHAPE_FULL || lowering->full_mode != TWH_MASK_CAUSAL) return 1;
  return tiles_is_single(lowering, patch) ? 1 : 2;
}

/* A part of a triangle in the order that makes it a lower one: row i sees the first i + first keys, at most all. */
typedef struct tiles_part {
  int64_t   row, rows, key, keys;
  twh__edge from, seen; /* from `row` and `key` on */
  int32_t   mode, shape, cuts;
} tiles_part;

/* The stairs of triangle x of a level: row blocks from the second on, steps but the last. */
static int tiles_stairs(const twh__lowering *lowering, const twh__patch *patch, int64_t first, int32_t level, int64_t x,
                        tiles_part *part)
{
  int64_t size = lowering->stair_size[level], step = lowering->stair_size[level + 1], begin = x * size;
  int64_t inside = twh__min(size, patch->keys - begin), until = patch->rows, least, most;

  if (begin + size < patch->keys) until = twh__min(until, begin + size - first + 1);
  part->row = twh__max(0, begin + step - first + 1);
  part->rows = until - part->row;
  if (inside <= step || part->rows <= 0) return 0;
  least = twh__min((first - 1 + part->row - begin) / step, (inside - 1) / step);
  most = twh__min((first - 1 + until - 1 - begin) / step, (inside - 1) / step);
  part->key = begin;
  part->keys = most * step;
  part->from = tiles_zero;
  tiles_edge(&part->seen, first - 1 + part->row - begin, 1);
  part->seen.quantum = part->seen.unit = step;
  part->cuts = (int32_t)(most - 1);
  part->shape = TWH_SHAPE_LOWER;
  part->mode = TWH_MASK_NONE;
  if (least == most) {
    tiles_edge(&part->seen, part->keys, 0);
    part->shape = TWH_SHAPE_FULL;
    part->cuts = 0;
  }
  return 1;
}

/* What the stairs of all levels leave: small triangles along the diagonal, and the last keys for rows beyond them. */
static int tiles_leaves(const twh__lowering *lowering, const twh__patch *patch, int64_t first, int tail, tiles_part *part)
{
  int64_t leaf = lowering->stair_size[lowering->stairs], inside = twh__min(patch->rows, patch->keys - first + 1);

  part->cuts = 0;
  part->from = tiles_zero;
  if (tail) {
    part->row = twh__max(0, inside);
    part->rows = patch->rows - part->row;
    part->key = (patch->keys - 1) / leaf * leaf;
    part->keys = patch->keys - part->key;
    part->mode = lowering->full_mode;
    part->shape = TWH_SHAPE_FULL;
    tiles_edge(&part->seen, part->keys, 0);
    return part->rows > 0;
  }
  part->row = 0;
  part->rows = inside;
  part->key = 0;
  part->keys = twh__min(patch->keys, first + inside - 1);
  part->mode = TWH__MODE_HOST;
  part->shape = TWH_SHAPE_BAND;
  tiles_edge(&part->from, first - 1, 1);
  part->from.quantum = part->from.unit = leaf;
  tiles_edge(&part->seen, first, 1);
  return part->rows > 0;
}

static int tiles_place_stair(const twh__lowering *lowering, const twh__patch *patch, int64_t number, twh__tile *tile)
{
  int        upper = patch->shape == TWH_SHAPE_UPPER, found;
  int64_t    first = upper ? patch->keys - patch->from.start - (patch->rows - 1) : patch->seen.start;
  int32_t    level = 0;
  tiles_part part;

  for (; level < lowering->stairs && number >= tiles_triangles(lowering, patch, level); ++level) {
    number -= tiles_triangles(lowering, patch, level);
  }
  if (level < lowering->stairs) {
    found = tiles_stairs(lowering, patch, first, level, number, &part);
  } else {
    found = tiles_leaves(lowering, patch, first, number == 1, &part);
  }
  if (!found) return 0;
  tile->mode = part.mode;
  tile->shape = part.shape;
  tile->cut = part.cuts > 0 ? TWH__CUT_STAIR : TWH__CUT_NONE;
  tile->cuts = part.cuts;
  tile->from = part.from;
  tile->seen = part.seen;
  tile->row = patch->row + part.row;
  tile->rows = part.rows;
  tile->key = patch->key + part.key;
  tile->keys = part.keys;
  if (upper) { /* count rows and keys from the other end */
    tile->reversed = 1;
    tile->row = patch->row + patch->rows - part.row - part.rows;
    tile->key = patch->key + patch->keys - part.key - part.keys;
    tile->from.start += tile->from.step * (part.rows - 1);
    tile->from.step = -tile->from.step;
    tile->seen.start += tile->seen.step * (part.rows - 1);
    tile->seen.step = -tile->seen.step;
    if (tile->shape == TWH_SHAPE_LOWER) tile->shape = TWH_SHAPE_UPPER;
  }
  return 1;
}

static void tiles_place_causal(const twh__lowering *lowering, const twh__patch *patch, int64_t number, twh__tile *tile)
{
  if (patch->shape == TWH_SHAPE_LOWER) {
    tile->cut = patch->from.unit > 1 || patch->from.step > 0 ? TWH__CUT_CORNER : TWH__CUT_NONE;
    tile->cuts = tile->cut != TWH__CUT_NONE;
    if (tile->cuts > 0) tile->shape = TWH_SHAPE_BAND;
  } else if (patch->shape == TWH_SHAPE_UPPER) {
    tile->reversed = 1;
    tile->from = tiles_zero;
    tiles_edge(&tile->seen, patch->keys - patch->from.start, -1);
  } else if (patch->keys > 1 && patch->rows + patch->keys <= lowering->grid.k_block + 1) {
    tiles_edge(&tile->seen, patch->keys, 1);
  } else if (number == 0) {
    tile->shape = patch->keys == 1 ? TWH_SHAPE_FULL : TWH_SHAPE_LOWER;
    tiles_edge(&tile->seen, 1, 1);
  } else {
    tile->shape = TWH_SHAPE_UPPER;
    tile->reversed = 1;
    tile->rows = twh__min(patch->rows, patch->keys - 1);
    tiles_edge(&tile->seen, patch->keys - 1, -1);
  }
  tile->at = lowering->shift + tile->seen.start - 1;
  tile->at_step = tile->seen.step;
}

int twh__lower_tile(const twh__lowering *lowering, const twh__patch *patch, int64_t number, twh__tile *tile)
{
  tile->level = twh__lower_count(lowering, patch) == 1;
  tile->ordinal = tile->level ? patch->block : 2 * patch->block + number;
  tile->row = patch->row;
  tile->rows = patch->rows;
  tile->key = patch->key;
  tile->keys = patch->keys;
  tile->key_at = tile->lead = 0;
  tile->from = patch->from;
  tile->seen = patch->seen;
  tile->shape = patch->shape;
  tile->reversed = tile->host = 0;
  tile->cut = TWH__CUT_NONE;
  tile->cuts = 0;
  tile->at = 0;
  tile->at_step = 1;
  tile->mode = tiles_mode(lowering, patch);
  tile->sample = patch->sample;
  if (tiles_is_stair(lowering, patch)) return tiles_place_stair(lowering, patch, number, tile);
  if (tile->mode == TWH_MASK_CAUSAL) tiles_place_causal(lowering, patch, number, tile);
  return 1;
}
