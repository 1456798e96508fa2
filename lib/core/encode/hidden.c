/* Tiles that a mask tensor hides altogether. */
#include <math.h>

#include "core/encode/operand.h"

/* Whether the row's mask shows one of n keys from number `key` on. */
static int hidden_shows(const twh__source *source, const twh__span *span, int64_t head, int64_t row, int64_t key, int64_t n)
{
  const twh__view *mask = source->mask;
  const char      *from = twh__view_row(mask, span->batch, head, row);

  for (int64_t j = 0; j < n; ++j) {
    double bias = twh__load(from + twh__span_key(span, key + j) * mask->item, mask->dtype, 0);
    if (mask->dtype == TWH_BOOL ? bias != 0 : bias != -(double)INFINITY) return 1;
  }
  return 0;
}

int twh__mask_hides_all(const twh__source *source, const twh__tile *tile)
{
  const twh__span *span = twh__source_span(source, tile);

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t head, row, from = twh__tile_from(tile, i), seen = twh__tile_seen(tile, i);
    int64_t first = tile->reversed ? tile->key + tile->keys - seen : tile->key + from;
    twh__unit_row(&tile->unit, span, tile->row + i, &head, &row);
    if (hidden_shows(source, span, head, row, first, seen - from)) return 0;
    if (tile->lead > 0 && hidden_shows(source, span, head, row, span->sink_key, tile->lead)) return 0;
  }
  return 1;
}
