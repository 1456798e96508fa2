/* Encoding of mask operands: what a row sees by the pattern, and what the host's mask tensor takes away or adds.
 *
 * A finite bias stays finite in a narrower dtype: it is clamped, for -FLT_MAX is a heavy bias and not a hidden key. */
#include <math.h>
#include <string.h>

#include "core/encode/operand.h"

typedef struct mask_writer {
  int32_t dtype;
  double  hidden;
} mask_writer;

static void mask_put(const mask_writer *writer, char *row, int64_t j, int visible, double bias)
{
  if (writer->dtype == TWH_BOOL) {
    row[j] = (char)visible;
  } else {
    twh__store(row, writer->dtype, j, visible ? bias : writer->hidden);
  }
}

int twh__mask_read(const twh__source *source, const char *from, int64_t key, double *bias)
{
  double  value = twh__load(from, source->mask->dtype, key), largest;
  int32_t dtype = source->lowering->mask_dtype;

  *bias = 0;
  if (source->mask->dtype == TWH_BOOL) return value != 0;
  if (value == -(double)INFINITY) return 0;
  if (dtype == TWH_BOOL || dtype == 0) return 1;
  largest = twh__dtype_max(dtype);
  if (isfinite(value)) value = fmax(-largest, fmin(largest, value));
  *bias = value;
  return 1;
}

/* Rows that no query stands on see every key, so that kernels have no empty rows to stumble over. */
static void mask_open_rows(char *to, int64_t row_bytes, const mask_writer *writer, const twh__slot *slot)
{
  const twh__tile *first = slot->tiles;
  int64_t          at, keys, real = 0;

  for (int64_t piece = 0; piece <= slot->count; ++piece) real += twh__piece_keys(slot, piece, &at);
  for (int64_t j = 0; j < first->slot_keys; ++j) mask_put(writer, to, j, real == 0, 0);
  for (int64_t piece = 0; piece <= slot->count; ++piece) {
    keys = twh__piece_keys(slot, piece, &at);
    for (int64_t j = at; j < at + keys; ++j) mask_put(writer, to, j, 1, 0);
  }
  for (int64_t r = 1; r < first->slot_rows; ++r) {
    memcpy(to + r * row_bytes, to, (size_t)(first->slot_keys * twh__dtype_bytes(writer->dtype)));
  }
}

/* Nothing is seen: one value, doubled until the row is full. */
static void mask_hide_row(const mask_writer *writer, char *row, int64_t keys)
{
  int64_t item = twh__dtype_bytes(writer->dtype), done = 1;

  mask_put(writer, row, 0, 0, 0);
  for (; done < keys; done += twh__min(done, keys - done)) {
    memcpy(row + done * item, row, (size_t)(twh__min(done, keys - done) * item));
  }
}

/* Every value of a row the same: zeros are zeros in every float type, and a boolean is a byte. */
static void mask_fill(const mask_writer *writer, char *row, int64_t first, int64_t last)
{
  int64_t item = twh__dtype_bytes(writer->dtype);
  if (last > first) memset(row + first * item, writer->dtype == TWH_BOOL, (size_t)((last - first) * item));
}

/* A row may see the keys first .. last - 1 of one piece; `from` is the host's row or NULL. Returns whether it sees any. */
static int mask_piece(const mask_writer *writer, char *row, const twh__source *source, const twh__slot *slot, int64_t piece,
                      int64_t first, int64_t last, const char *from)
{
  int64_t at;
  int     any = 0;

  (void)twh__piece_keys(slot, piece, &at);
  if (!from) {
    mask_fill(writer, row, at + first, at + last);
    return last > first;
  }
  for (int64_t j = first; j < last; ++j) {
    double bias = 0;
    int    visible = twh__mask_read(source, from, twh__piece_row(source, slot, piece, j), &bias);
    any |= visible;
    mask_put(writer, row, at + j, visible, bias);
  }
  return any;
}

void twh__encode_mask(char *to, int64_t row_bytes, int64_t any_at, const twh__source *source, const twh__slot *slot)
{
  mask_writer writer;

  writer.dtype = source->lowering->mask_dtype;
  writer.hidden = source->lowering->mask_value != 0 ? source->lowering->mask_value : -(double)INFINITY;
  mask_open_rows(to, row_bytes, &writer, slot);
  for (int64_t t = 0; t < slot->count; ++t) {
    const twh__tile *tile = &slot->tiles[t];
    const twh__span *span = twh__source_span(source, tile);
    for (int64_t i = 0; i < tile->rows && !twh__tile_is_blank(slot, tile); ++i) {
      int64_t     position = tile->at + i * tile->at_step, head, number;
      char       *row = to + position * row_bytes;
      const char *from = NULL;
      int         any;
      twh__unit_row(&tile->unit, span, tile->row + i, &head, &number);
      if (source->mask) from = twh__view_row(source->mask, span->batch, head, number);
      mask_hide_row(&writer, row, tile->slot_keys);
      any = mask_piece(&writer, row, source, slot, 0, 0, tile->lead, from);
      any |= mask_piece(&writer, row, source, slot, t + 1, twh__tile_from(tile, i), twh__tile_seen(tile, i), from);
      to[any_at + position] = (char)any;
    }
  }
}
