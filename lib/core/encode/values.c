/* Encoding of values: slices of the host's columns, the columns that a reading needs, and the buckets.
 *
 * The columns are numbered through the slices: the host's first, then the anchor column (1 at the anchors, else 0), then for
 * tiles with copies the share column (1 at first copies, else 0); without an anchor column the share column takes its place.
 * Everything that belongs to first copies is scaled by a power of two, which lifts the weights of keys that share a slot with
 * many copies of themselves off the dtype's floor and cancels when the columns are divided. */
#include <math.h>
#include <string.h>

#include "core/encode/encode.h"

static double values_lift(const char *to, int64_t row_bytes, int64_t slice_bytes, const twh__source *source,
                          const twh__tile *tile)
{
  const twh__lowering *lowering = source->lowering;
  double               largest = 1, lift = 1, limit = twh__dtype_max(lowering->dtype);

  for (int64_t s = 0; s < lowering->values_parts; ++s) {
    for (int64_t j = 0; j < tile->keys; ++j) {
      for (int64_t c = 0; c < lowering->v_dim; ++c) {
        double value = fabs(twh__load(to + s * slice_bytes + j * row_bytes, lowering->dtype, c));
        if (value > largest) largest = value;
      }
    }
  }
  while (2 * lift <= (double)tile->slot_keys / (double)tile->keys && 2 * lift * largest <= limit) lift *= 2;
  return lift;
}

/* One column of the first copies; the copies behind them follow suit. */
static void values_put(char *to, int64_t row_bytes, int64_t slice_bytes, const twh__lowering *lowering, int64_t j,
                       int64_t column)
{
  char *slice = to + column / lowering->v_dim * slice_bytes;
  twh__store(slice + j * row_bytes, lowering->dtype, column % lowering->v_dim, 1);
}

/* Returns the lift. */
static double values_lift_all(char *to, int64_t row_bytes, int64_t slice_bytes, const twh__source *source,
                              const twh__tile *tile)
{
  const twh__lowering *lowering = source->lowering;
  double               lift = values_lift(to, row_bytes, slice_bytes, source, tile);

  for (int64_t s = 0; s < lowering->values_parts; ++s) {
    for (int64_t j = 0; j < tile->keys; ++j) {
      char *row = to + s * slice_bytes + j * row_bytes;
      for (int64_t c = 0; c < lowering->v_dim; ++c) {
        twh__store(row, lowering->dtype, c, lift * twh__load(row, lowering->dtype, c));
      }
    }
  }
  return lift;
}

double twh__encode_values(char *to, int64_t row_bytes, int64_t slice_bytes, const twh__source *source, const twh__tile *tile)
{
  const twh__lowering *lowering = source->lowering;
  int64_t              dim = source->shape->v_dim, item = twh__dtype_bytes(lowering->dtype), width = lowering->v_dim;
  int                  anchor = tile->reading == TWH__READ_ANCHOR || tile->reading == TWH__READ_ANCHOR_SHARE;
  int                  share = tile->reading == TWH__READ_LSE_SHARE || tile->reading == TWH__READ_ANCHOR_SHARE;
  double               lift = 1;

  for (int64_t s = 0; s < lowering->values_parts; ++s) {
    int64_t count = twh__min(width, dim - s * width);
    for (int64_t j = 0; j < tile->keys; ++j) {
      int64_t     number = source->span->k_begin + (tile->reversed ? tile->key + tile->keys - 1 - j : tile->key + j);
      const char *from = twh__view_row(source->v, source->span->batch, tile->unit.kv_head, number);
      char       *row = to + s * slice_bytes + j * row_bytes;
      twh__convert(row, lowering->dtype, from + s * width * source->v->item, source->v->dtype, count);
      if (count < width) memset(row + count * item, 0, (size_t)((width - count) * item));
      if (share && s * width <= dim + anchor && dim + anchor < (s + 1) * width) {
        values_put(to, row_bytes, slice_bytes, lowering, j, dim + anchor);
      }
    }
  }
  for (int64_t a = 0; anchor && a < lowering->anchors; ++a) {
    values_put(to, row_bytes, slice_bytes, lowering, twh__anchor_at(tile->keys, lowering->anchors, a), dim);
  }
  if (tile->pads == TWH__PAD_COPIES) lift = values_lift_all(to, row_bytes, slice_bytes, source, tile);
  for (int64_t s = 0; s < lowering->values_parts; ++s) {
    int64_t j = tile->keys, copied = tile->pads == TWH__PAD_MEAN ? tile->slot_keys / j * j : j;
    char   *slice = to + s * slice_bytes;
    for (; j < copied; ++j) memcpy(slice + j * row_bytes, slice + (j - tile->keys) * row_bytes, (size_t)(width * item));
    for (; j < tile->slot_keys; ++j) memset(slice + j * row_bytes, 0, (size_t)(width * item));
  }
  return lift;
}

double twh__bucket_lift(const twh__tile *tile)
{
  double lift = 1;

  if (tile->pads == TWH__PAD_COPIES) {
    while (2 * lift <= (double)tile->slot_keys / (double)tile->keys) lift *= 2;
  }
  return lift;
}

void twh__encode_buckets(char *to, int64_t row_bytes, const twh__lowering *lowering, const twh__tile *tile)
{
  int64_t item = twh__dtype_bytes(lowering->dtype), copied = tile->keys;
  double  one = twh__bucket_lift(tile);

  if (tile->pads == TWH__PAD_MEAN) copied = tile->slot_keys / tile->keys * tile->keys;
  for (int64_t j = 0; j < tile->slot_keys; ++j) {
    memset(to + j * row_bytes, 0, (size_t)(lowering->v_dim * item));
    if (j < copied) twh__store(to + j * row_bytes, lowering->dtype, j % tile->keys % lowering->v_dim, one);
  }
}
