/* Encoding of values: slices of the host's columns, the columns that a reading needs, and the buckets.
 *
 * The columns are numbered through the slices: the host's first, then the anchor column (1 at the anchors, else 0), then for
 * tiles with copies the share column (1 at first copies, else 0); without an anchor column the share column takes its place.
 * All tiles of a slot share the anchor column, for a row gives weight to its own anchors only. Everything that belongs to first
 * copies is scaled by a power of two, which lifts the weights of keys that share a slot with many copies of themselves off the
 * dtype's floor and cancels when the columns are divided. */
#include <math.h>
#include <string.h>

#include "core/encode/operand.h"

enum { VALUES_PIECE = 64 };

typedef struct values_block {
  char                *to;
  int64_t              row_bytes, slice_bytes;
  const twh__lowering *lowering;
} values_block;

static double values_lift(const values_block *block, const twh__tile *tile)
{
  const twh__lowering *lowering = block->lowering;
  double               largest = 1, lift = 1, limit = twh__dtype_max(lowering->dtype);

  for (int64_t s = 0; s < lowering->values_parts; ++s) {
    for (int64_t j = 0; j < twh__tile_used(tile); ++j) {
      const char *row = block->to + s * block->slice_bytes + j * block->row_bytes;
      for (int64_t c = 0; c < lowering->v_dim; ++c) {
        double value = fabs(twh__load(row, lowering->dtype, c));
        if (value > largest) largest = value;
      }
    }
  }
  while (2 * lift <= (double)tile->slot_keys / (double)twh__tile_used(tile) && 2 * lift * largest <= limit) lift *= 2;
  return lift;
}

/* Returns the lift. */
static double values_lift_all(const values_block *block, const twh__tile *tile)
{
  const twh__lowering *lowering = block->lowering;
  double               lift = values_lift(block, tile);

  for (int64_t s = 0; s < lowering->values_parts; ++s) {
    for (int64_t j = 0; j < twh__tile_used(tile); ++j) {
      char *row = block->to + s * block->slice_bytes + j * block->row_bytes;
      for (int64_t c = 0; c < lowering->v_dim; ++c) {
        twh__store(row, lowering->dtype, c, lift * twh__load(row, lowering->dtype, c));
      }
    }
  }
  return lift;
}

static void values_put(const values_block *block, int64_t at, int64_t column, double value)
{
  char *slice = block->to + column / block->lowering->v_dim * block->slice_bytes;
  twh__store(slice + at * block->row_bytes, block->lowering->dtype, column % block->lowering->v_dim, value);
}

static void values_clear(const values_block *block, int64_t first, int64_t last)
{
  size_t used = (size_t)(block->lowering->v_dim * twh__dtype_bytes(block->lowering->dtype));

  for (int64_t s = 0; s < block->lowering->values_parts; ++s) {
    for (int64_t j = first; j < last; ++j) memset(block->to + s * block->slice_bytes + j * block->row_bytes, 0, used);
  }
}

/* The keys again, with their values, as often as they fit. Returns where the copies end. */
static int64_t values_repeat(const values_block *block, const twh__tile *tile)
{
  size_t  used = (size_t)(block->lowering->v_dim * twh__dtype_bytes(block->lowering->dtype));
  int64_t keys = twh__tile_used(tile), copied = tile->slot_keys / keys * keys;

  for (int64_t s = 0; s < block->lowering->values_parts; ++s) {
    char *slice = block->to + s * block->slice_bytes;
    twh__repeat_rows(slice, block->row_bytes, (int64_t)used, keys, copied);
  }
  return copied;
}

/* The columns of squares of one key. */
static void values_squares(const values_block *block, const twh__source *source, const double *centre, int64_t at,
                           const char *from)
{
  int64_t dim = source->shape->v_dim;
  double  part[VALUES_PIECE];

  for (int64_t c = 0; c < block->lowering->values_parts * block->lowering->v_dim; ++c) values_put(block, at, c, 0);
  for (int64_t done = 0; done < dim; done += VALUES_PIECE) {
    int64_t n = twh__min(VALUES_PIECE, dim - done);
    twh__squares_read(part, source, centre, from, done, n);
    for (int64_t c = 0; c < n; ++c) values_put(block, at, done + c, part[c]);
  }
}

/* The host's columns of one key. */
static void values_row(const values_block *block, const twh__source *source, int64_t at, const char *from)
{
  int64_t dim = source->shape->v_dim, width = block->lowering->v_dim, item = twh__dtype_bytes(block->lowering->dtype);

  for (int64_t s = 0; s < block->lowering->values_parts; ++s) {
    int64_t count = twh__min(width, dim - s * width);
    char   *row = block->to + s * block->slice_bytes + at * block->row_bytes;
    twh__convert(row, block->lowering->dtype, from + s * width * source->v->item, source->v->dtype, count);
    if (count < width) memset(row + count * item, 0, (size_t)((width - count) * item));
  }
}

static void values_anchors(const values_block *block, const twh__slot *slot, int64_t column)
{
  if (slot->tiles[0].lead > 0) values_put(block, 0, column, 1);
  for (int64_t t = 0; t < slot->count; ++t) {
    const twh__tile *tile = &slot->tiles[t];
    if (twh__tile_is_blank(slot, tile)) continue;
    for (int64_t j = 0; j < tile->keys; j += tile->anchor_step) values_put(block, tile->key_at + j, column, 1);
    if (tile->anchor_last) values_put(block, tile->key_at + tile->keys - 1, column, 1);
  }
}

double twh__encode_values(char *to, int64_t row_bytes, int64_t slice_bytes, const twh__source *source, const twh__slot *slot)
{
  const twh__tile *first = slot->tiles;
  values_block     block = { to, row_bytes, slice_bytes, source->lowering };
  int64_t          dim = source->shape->v_dim, at, end = 0;
  int              anchor = first->reading == TWH__READ_ANCHOR || first->reading == TWH__READ_ANCHOR_SHARE;
  int              share = first->reading == TWH__READ_LSE_SHARE || first->reading == TWH__READ_ANCHOR_SHARE;
  int              only = slot->count == 1 && !twh__tile_is_blank(slot, first);
  double           lift = 1;

  for (int64_t piece = 0; piece <= slot->count; ++piece) {
    const twh__tile *tile = twh__piece_tile(slot, piece);
    int64_t          keys = twh__piece_keys(slot, piece, &at), batch = twh__source_span(source, tile)->batch;
    if (keys == 0) continue;
    values_clear(&block, end, at);
    for (int64_t j = 0; j < keys; ++j) {
      int64_t     number = twh__piece_row(source, slot, piece, j);
      const char *from = twh__view_row(source->v, batch, tile->unit.kv_head, number);
      if (source->centres) {
        values_squares(&block, source, source->centres + (tile - slot->tiles) * TWH__CENTRE(dim - 1), at + j, from);
      } else {
        values_row(&block, source, at + j, from);
      }
      if (share) values_put(&block, at + j, dim + anchor, 1);
    }
    end = at + keys;
  }
  if (anchor) values_anchors(&block, slot, dim);
  if (only && first->pads == TWH__PAD_COPIES) lift = values_lift_all(&block, first);
  if (only && first->pads == TWH__PAD_MEAN) end = values_repeat(&block, first);
  values_clear(&block, end, first->slot_keys);
  return lift;
}

double twh__bucket_lift(const twh__tile *tile)
{
  double lift = 1;

  if (tile->pads == TWH__PAD_COPIES) {
    while (2 * lift <= (double)tile->slot_keys / (double)twh__tile_used(tile)) lift *= 2;
  }
  return lift;
}

void twh__encode_buckets(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot)
{
  const twh__lowering *lowering = source->lowering;
  const twh__tile     *first = slot->tiles;
  int64_t              used = twh__tile_used(first), at;
  double               one = slot->count == 1 ? twh__bucket_lift(first) : 1;

  for (int64_t j = 0; j < first->slot_keys; ++j) {
    memset(to + j * row_bytes, 0, (size_t)(lowering->v_dim * twh__dtype_bytes(lowering->dtype)));
  }
  for (int64_t piece = 0; piece <= slot->count; ++piece) {
    int64_t keys = twh__piece_keys(slot, piece, &at);
    for (int64_t j = at; j < at + keys; ++j) twh__store(to + j * row_bytes, lowering->dtype, j % lowering->v_dim, one);
  }
  if (slot->count > 1 || first->pads != TWH__PAD_MEAN || twh__tile_is_blank(slot, first)) return;
  for (int64_t j = used; j < first->slot_keys / used * used; ++j) {
    twh__store(to + j * row_bytes, lowering->dtype, j % used % lowering->v_dim, one);
  }
}
