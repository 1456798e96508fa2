/* Encoding of queries and keys: from the host's rows to the kernel's bytes. */
#include <math.h>
#include <string.h>

#include "core/encode/operand.h"

void twh__unit_row(const twh__unit *unit, const twh__span *span, int64_t r, int64_t *head, int64_t *row)
{
  int64_t number = unit->first + r;
  *head = unit->q_head;
  if (number >= span->q_len) {
    *head += number / span->q_len;
    number %= span->q_len;
  }
  *row = twh__span_row(span, number);
}

void twh__repeat_rows(char *to, int64_t row_bytes, int64_t used, int64_t first, int64_t rows)
{
  for (int64_t j = first, n; j < rows; j += n) {
    n = row_bytes == used ? twh__min(j - j % first, rows - j) : 1; /* all that is there, as long as the rows are dense */
    memcpy(to + j * row_bytes, to + (n > 1 ? 0 : (j - first) * row_bytes), (size_t)(n * used));
  }
}

void twh__encode_row(char *to, int32_t to_dtype, const char *from, int32_t from_dtype, double factor, int64_t n)
{
  float part[64];

  if (factor == 1) {
    twh__convert(to, to_dtype, from, from_dtype, n);
    return;
  }
  for (int64_t done = 0; done < n; done += 64) {
    int64_t count = twh__min(64, n - done);
    if (from_dtype == TWH_F64) {
      for (int64_t i = 0; i < count; ++i) part[i] = (float)(((const double *)(const void *)from)[done + i] * factor);
    } else {
      twh__to_f32(part, from + done * twh__dtype_bytes(from_dtype), from_dtype, count);
      for (int64_t i = 0; i < count; ++i) part[i] = (float)(part[i] * factor);
    }
    twh__from_f32(to + done * twh__dtype_bytes(to_dtype), to_dtype, part, count);
  }
}

static void encode_tile_queries(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot,
                                const twh__tile *tile, uint32_t code)
{
  const twh__lowering *lowering = source->lowering;
  const twh__view     *q = source->q;
  const twh__span     *span = twh__source_span(source, tile);
  int64_t              dim = source->shape->qk_dim;

  for (int64_t i = 0; i < tile->rows; ++i) {
    char   *row = to + (tile->at + i * tile->at_step) * row_bytes;
    int64_t head, number;
    twh__unit_row(&tile->unit, span, tile->row + i, &head, &number);
    twh__encode_row(row, lowering->dtype, twh__view_row(q, span->batch, head, number), q->dtype, lowering->q_factor, dim);
    for (int64_t p = 0; p < lowering->bias_parts; ++p) twh__store(row, lowering->dtype, dim + p, lowering->power);
    twh__code_query(row, source, slot, tile, code, i);
  }
}

void twh__encode_queries(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot)
{
  const twh__lowering *lowering = source->lowering;
  const twh__tile     *first = slot->tiles;
  int64_t              item = twh__dtype_bytes(lowering->dtype), rows = 0;
  uint32_t             code = twh__code_first(slot);

  for (int64_t t = 0; t < slot->count; ++t) rows += twh__tile_is_blank(slot, &slot->tiles[t]) ? 0 : slot->tiles[t].rows;
  if (rows != first->slot_rows || lowering->qk_dim != source->shape->qk_dim) {
    memset(to, 0, (size_t)((first->slot_rows - 1) * row_bytes + lowering->qk_dim * item));
  }
  for (int64_t t = 0; t < slot->count; ++t) {
    if (!twh__tile_is_blank(slot, &slot->tiles[t])) encode_tile_queries(to, row_bytes, source, slot, &slot->tiles[t], code);
    code = twh__code_next(slot, code);
  }
}

/* The mean of the first `keys` rows, column by column in float64; of biases the mean of their sums. */
static void encode_mean_key(char *to, const char *block, int64_t row_bytes, int64_t keys, const twh__source *source)
{
  enum { ENCODE_PIECE = 64 };
  int64_t dim = source->shape->qk_dim, parts = source->lowering->bias_parts, item = twh__dtype_bytes(source->lowering->dtype);
  int32_t dtype = source->lowering->dtype;
  double  bias = 0;

  for (int64_t first = 0, n; first < dim + parts; first += n) {
    double sum[ENCODE_PIECE] = { 0 };
    float  part[ENCODE_PIECE];
    n = twh__min(ENCODE_PIECE, dim + parts - first);
    for (int64_t j = 0; j < keys; ++j) {
      twh__to_f32(part, block + j * row_bytes + first * item, dtype, n);
      for (int64_t c = 0; c < n; ++c) sum[c] += (double)part[c];
    }
    for (int64_t c = 0; c < n; ++c) {
      if (first + c < dim) {
        twh__store(to, dtype, first + c, sum[c] / (double)keys);
      } else {
        bias += sum[c] / (double)keys;
      }
    }
  }
  if (parts > 0) twh__bias_put(to, source, bias * source->lowering->kernel_scale);
}

/* What stands in a slot of one tile behind its keys, which are repeated. */
static void encode_copied_keys(char *to, int64_t row_bytes, const twh__source *source, const twh__tile *tile)
{
  int64_t used = source->lowering->qk_dim * twh__dtype_bytes(source->lowering->dtype), keys = twh__tile_used(tile);
  int64_t copied = tile->pads == TWH__PAD_MEAN ? tile->slot_keys / keys * keys : tile->slot_keys;

  twh__repeat_rows(to, row_bytes, used, keys, copied);
  for (int64_t j = copied; j < tile->slot_keys; ++j) {
    if (j == copied) {
      memset(to + j * row_bytes, 0, (size_t)used);
      encode_mean_key(to + j * row_bytes, to, row_bytes, keys, source);
    } else {
      memcpy(to + j * row_bytes, to + copied * row_bytes, (size_t)used);
    }
  }
}

static void encode_pad_keys(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot, int64_t first,
                            int64_t last)
{
  for (int64_t j = first; j < last; ++j) {
    memset(to + j * row_bytes, 0, (size_t)(source->lowering->qk_dim * twh__dtype_bytes(source->lowering->dtype)));
    twh__code_pad(to + j * row_bytes, source, slot);
  }
}

/* One piece's keys from row `to` on. */
static void encode_piece_keys(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot, int64_t piece,
                              int64_t keys, uint32_t code)
{
  const twh__lowering *lowering = source->lowering;
  const twh__tile     *tile = twh__piece_tile(slot, piece);
  const twh__span     *span = twh__source_span(source, tile);
  int64_t              dim = source->shape->qk_dim, item = twh__dtype_bytes(lowering->dtype), ref = twh__bias_ref(span, tile);

  for (int64_t j = 0; j < keys; ++j) {
    int64_t     number = twh__piece_row(source, slot, piece, j);
    const char *from = twh__view_row(source->k, span->batch, tile->unit.kv_head, number);
    char       *row = to + j * row_bytes;
    twh__convert(row, lowering->dtype, from, source->k->dtype, dim);
    if (lowering->qk_dim > dim) memset(row + dim * item, 0, (size_t)((lowering->qk_dim - dim) * item));
    if (lowering->bias_parts > 0) twh__bias_put(row, source, twh__bias_of(source, span, tile->unit.q_head, number, ref));
    if (piece > 0) twh__code_key(row, source, slot, tile, code, j);
  }
}

static int encode_is_copied(const twh__tile *tile)
{
  return tile->pads == TWH__PAD_MEAN || tile->pads == TWH__PAD_COPIES || tile->pads == TWH__PAD_MASKED;
}

void twh__encode_keys(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot)
{
  const twh__tile *first = slot->tiles;
  uint32_t         code = twh__code_first(slot);
  int64_t          at, end = 0;

  for (int64_t piece = 0; piece <= slot->count; ++piece) {
    int64_t keys = twh__piece_keys(slot, piece, &at);
    if (keys > 0) {
      encode_pad_keys(to, row_bytes, source, slot, end, at);
      encode_piece_keys(to + at * row_bytes, row_bytes, source, slot, piece, keys, code);
      end = at + keys;
    }
    if (piece > 0) code = twh__code_next(slot, code);
  }
  if (slot->count == 1 && encode_is_copied(first) && !twh__tile_is_blank(slot, first)) {
    encode_copied_keys(to, row_bytes, source, first);
  } else {
    encode_pad_keys(to, row_bytes, source, slot, end, first->slot_keys);
  }
}
