/* Encoding of queries and keys: from the host's rows to the kernel's bytes. */
#include <math.h>
#include <string.h>

#include "core/encode/encode.h"

void twh__unit_row(const twh__unit *unit, const twh__span *span, int64_t r, int64_t *head, int64_t *row)
{
  int64_t number = unit->first + r;
  *head = unit->q_head;
  if (number >= span->q_len) {
    *head += number / span->q_len;
    number %= span->q_len;
  }
  *row = span->q_begin + number;
}

/* to = from * factor, rounded once to f32 and once to the kernel's dtype. */
static void encode_scaled(char *to, int32_t to_dtype, const char *from, int32_t from_dtype, double factor, int64_t n)
{
  float part[64];

  for (int64_t done = 0; done < n; done += 64) {
    int64_t count = twh__min(64, n - done);
    if (from_dtype == TWH_F64) {
      for (int64_t i = 0; i < count; ++i) part[i] = (float)(((const double *)from)[done + i] * factor);
    } else {
      twh__to_f32(part, from + done * twh__dtype_bytes(from_dtype), from_dtype, count);
      for (int64_t i = 0; i < count; ++i) part[i] = (float)(part[i] * factor);
    }
    twh__from_f32(to + done * twh__dtype_bytes(to_dtype), to_dtype, part, count);
  }
}

void twh__encode_queries(char *to, int64_t row_bytes, const twh__source *source, const twh__tile *tile)
{
  const twh__lowering *lowering = source->lowering;
  const twh__view     *q = source->q;
  int64_t              dim = source->shape->qk_dim, item = twh__dtype_bytes(lowering->dtype);
  int                  whole = tile->rows == tile->slot_rows && lowering->qk_dim == dim;

  if (!whole) memset(to, 0, (size_t)((tile->slot_rows - 1) * row_bytes + lowering->qk_dim * item));
  for (int64_t i = 0; i < tile->rows; ++i) {
    char       *row = to + (tile->at + i * tile->at_step) * row_bytes;
    const char *from;
    int64_t     head, number;
    twh__unit_row(&tile->unit, source->span, tile->row + i, &head, &number);
    from = twh__view_row(q, source->span->batch, head, number);
    if (lowering->q_factor == 1) {
      twh__convert(row, lowering->dtype, from, q->dtype, dim);
    } else {
      encode_scaled(row, lowering->dtype, from, q->dtype, lowering->q_factor, dim);
    }
    if (lowering->dead != 0) twh__store(row, lowering->dtype, dim, -lowering->dead);
  }
}

/* The mean of the first `keys` rows, column by column in float64. */
static void encode_mean_key(char *to, const char *block, int64_t row_bytes, int64_t keys, int64_t dim, int32_t dtype)
{
  for (int64_t c = 0; c < dim; ++c) {
    double sum = 0;
    for (int64_t j = 0; j < keys; ++j) sum += twh__load(block + j * row_bytes, dtype, c);
    twh__store(to, dtype, c, sum / (double)keys);
  }
}

static void encode_pad_keys(char *to, int64_t row_bytes, const twh__source *source, const twh__tile *tile)
{
  const twh__lowering *lowering = source->lowering;
  int64_t              used = lowering->qk_dim * twh__dtype_bytes(lowering->dtype), keys = tile->keys, j = keys;

  if (tile->pads == TWH__PAD_MEAN || tile->pads == TWH__PAD_COPIES || tile->pads == TWH__PAD_MASKED) {
    int64_t copied = tile->pads == TWH__PAD_MEAN ? tile->slot_keys / keys * keys : tile->slot_keys;
    for (; j < copied; ++j) memcpy(to + j * row_bytes, to + (j - keys) * row_bytes, (size_t)used);
    for (; j < tile->slot_keys; ++j) {
      memset(to + j * row_bytes, 0, (size_t)used);
      if (j == copied) {
        encode_mean_key(to + j * row_bytes, to, row_bytes, keys, source->shape->qk_dim, lowering->dtype);
      } else {
        memcpy(to + j * row_bytes, to + copied * row_bytes, (size_t)used);
      }
    }
    return;
  }
  for (; j < tile->slot_keys; ++j) {
    memset(to + j * row_bytes, 0, (size_t)used);
    if (tile->pads == TWH__PAD_DEAD) {
      twh__store(to + j * row_bytes, lowering->dtype, source->shape->qk_dim,
                 lowering->kernel_scale < 0 ? -lowering->dead : lowering->dead);
    }
  }
}

void twh__encode_keys(char *to, int64_t row_bytes, const twh__source *source, const twh__tile *tile)
{
  const twh__lowering *lowering = source->lowering;
  int64_t              dim = source->shape->qk_dim, item = twh__dtype_bytes(lowering->dtype);

  for (int64_t j = 0; j < tile->keys; ++j) {
    int64_t     number = source->span->k_begin + (tile->reversed ? tile->key + tile->keys - 1 - j : tile->key + j);
    const char *from = twh__view_row(source->k, source->span->batch, tile->unit.kv_head, number);
    char       *row = to + j * row_bytes;
    twh__convert(row, lowering->dtype, from, source->k->dtype, dim);
    if (lowering->qk_dim > dim) memset(row + dim * item, 0, (size_t)((lowering->qk_dim - dim) * item));
  }
  encode_pad_keys(to, row_bytes, source, tile);
}
