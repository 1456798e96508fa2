/* Encoding of mask operands: what a row sees by the pattern, and what the host's mask tensor takes away or adds.
 *
 * A finite bias stays finite in a narrower dtype: it is clamped, for -FLT_MAX is a heavy bias and not a hidden key. */
#include <math.h>
#include <string.h>

#include "core/encode/encode.h"

typedef struct mask_writer {
  int32_t dtype;
  double  hidden, largest;
} mask_writer;

static void mask_put(const mask_writer *writer, char *row, int64_t j, int visible, double bias)
{
  if (writer->dtype == TWH_BOOL) {
    row[j] = (char)visible;
  } else if (!visible) {
    twh__store(row, writer->dtype, j, writer->hidden);
  } else {
    if (isfinite(bias)) bias = fmax(-writer->largest, fmin(writer->largest, bias));
    twh__store(row, writer->dtype, j, bias);
  }
}

/* Rows that no query stands on see every key, so that kernels have no empty rows to stumble over. */
static void mask_open_rows(char *to, int64_t row_bytes, const mask_writer *writer, const twh__tile *tile)
{
  for (int64_t r = 0; r < tile->slot_rows; ++r) {
    for (int64_t j = 0; j < tile->slot_keys; ++j) mask_put(writer, to + r * row_bytes, j, j < tile->keys, 0);
  }
}

void twh__encode_mask(char *to, int64_t row_bytes, int64_t any_at, const twh__source *source, const twh__tile *tile)
{
  const twh__view *mask = source->mask;
  const twh__span *span = source->span;
  mask_writer      writer;

  writer.dtype = source->lowering->mask_dtype;
  writer.hidden = source->lowering->mask_value != 0 ? source->lowering->mask_value : -(double)INFINITY;
  writer.largest = twh__dtype_max(writer.dtype);
  mask_open_rows(to, row_bytes, &writer, tile);
  for (int64_t i = 0; i < tile->rows; ++i) {
    char       *row = to + (tile->at + i * tile->at_step) * row_bytes;
    int64_t     seen = twh__tile_seen(tile, i), head, number;
    const char *from = NULL;
    int         any = 0;

    twh__unit_row(&tile->unit, span, tile->row + i, &head, &number);
    if (mask) from = twh__view_row(mask, span->batch, head, number) + (span->k_begin + tile->key) * mask->item;
    for (int64_t j = 0; j < tile->keys; ++j) {
      int    visible = j < seen;
      double bias = 0;
      if (visible && from) {
        bias = twh__load(from, mask->dtype, tile->reversed ? tile->keys - 1 - j : j);
        visible = mask->dtype == TWH_BOOL ? bias != 0 : bias != -(double)INFINITY;
        if (mask->dtype == TWH_BOOL) bias = 0;
      }
      any |= visible;
      mask_put(&writer, row, j, visible, bias);
    }
    to[any_at + i] = (char)any;
  }
}
