/* What the encoders of one slot share: its real keys piece by piece, codes, biases, and rows in the kernel's dtype. */
#ifndef TWH_CORE_ENCODE_OPERAND_H
#define TWH_CORE_ENCODE_OPERAND_H

#include "core/encode/encode.h"

static inline const twh__span *twh__source_span(const twh__source *source, const twh__tile *tile)
{
  return &source->spans[tile->unit.span];
}

/* No kernel's results are read for such a tile. */
static inline int twh__tile_is_host(const twh__tile *tile)
{
  return tile->host || tile->mode == TWH__MODE_HOST;
}

/* Neither its rows nor its keys are placed, for the sake of the other tiles in its slot. One that is alone has nobody to spoil,
 * and its blocks may serve other slots: it is encoded like any other. */
static inline int twh__tile_is_blank(const twh__slot *slot, const twh__tile *tile)
{
  return tile->mode == TWH__MODE_HOST || (tile->host && slot->count > 1);
}

/* ---- real keys, in the order of their positions: piece 0 is the lead, piece t + 1 has the keys of tile t ---- */

static inline const twh__tile *twh__piece_tile(const twh__slot *slot, int64_t piece)
{
  return &slot->tiles[piece > 0 ? piece - 1 : 0];
}

/* The number of keys in a piece, the first at slot position *at. */
static inline int64_t twh__piece_keys(const twh__slot *slot, int64_t piece, int64_t *at)
{
  const twh__tile *tile = twh__piece_tile(slot, piece);
  *at = piece > 0 ? tile->key_at : 0;
  return piece == 0 ? tile->lead : twh__tile_is_blank(slot, tile) ? 0 : tile->keys;
}

/* The row of the tensors with key j of a piece. */
static inline int64_t twh__piece_row(const twh__source *source, const twh__slot *slot, int64_t piece, int64_t j)
{
  const twh__tile *tile = twh__piece_tile(slot, piece);
  const twh__span *span = twh__source_span(source, tile);
  return piece > 0 ? twh__tile_key_row(span, tile, twh__tile_key(tile, j)) : twh__span_key(span, span->sink_key + j);
}

/* Keys that copies repeat: those of a slot with one tile, the lead included. */
static inline int64_t twh__tile_used(const twh__tile *tile)
{
  return tile->lead + tile->keys;
}

/* ---- rows ---- */

/* Of `rows` rows with `used` bytes each, repeat the first `first` ones over and over behind them. */
void twh__repeat_rows(char *to, int64_t row_bytes, int64_t used, int64_t first, int64_t rows);

/* to = from * factor, rounded as the kernel will see it: once to f32 and once to its dtype, or once if the factor is 1. */
void twh__encode_row(char *to, int32_t to_dtype, const char *from, int32_t from_dtype, double factor, int64_t n);

/* ---- codes: the coordinates behind the problem's and the biases' ---- */

/* The code of the slot's first tile, and of the tile behind one with `code`: a set of isolation coordinates. */
uint32_t twh__code_first(const twh__slot *slot);
uint32_t twh__code_next(const twh__slot *slot, uint32_t code);

/* Write the codes of a tile's row i or key j, or of a pad, into a query or key row that is zero there. */
void twh__code_query(char *row, const twh__source *source, const twh__slot *slot, const twh__tile *tile, uint32_t code,
                     int64_t i);
void twh__code_key(char *row, const twh__source *source, const twh__slot *slot, const twh__tile *tile, uint32_t code,
                   int64_t j);
void twh__code_pad(char *row, const twh__source *source, const twh__slot *slot);

/* ---- biases ---- */

/* The slope of a head; 0 without ALiBi. */
double twh__bias_slope(const twh__source *source, int64_t head);

/* What is added to the scores of a key: its own bias and, by its distance from the position `ref`, ALiBi's. */
double twh__bias_of(const twh__source *source, const twh__span *span, int64_t head, int64_t row, int64_t ref);

/* The position that the encoded biases of a tile's keys are relative to. */
int64_t twh__bias_ref(const twh__span *span, const twh__tile *tile);

/* Write a bias into the coordinates that carry it; what is too large for them is cut. */
void twh__bias_put(char *row, const twh__source *source, double bias);

/* ---- masks ---- */

/* Whether the host's mask, of which `from` is a row, lets it see a key, and what it adds to the score. */
int twh__mask_read(const twh__source *source, const char *from, int64_t key, double *bias);

#endif
