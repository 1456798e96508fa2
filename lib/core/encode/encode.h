/* A slot's bytes, and what its results mean.
 *
 * Encoding writes the operands of one slot from the host's tensors in the kernel's dtype: queries at their positions, keys in
 * natural or reversed order with whatever stands between and behind them, values with the columns that the reading needs. A
 * slot holds one tile or several that codes or a mask keep apart, and before their keys the sinks that all of them see.
 * Decoding turns the kernel's output for one tile of the slot into a partial state per row. Both sides of the trade are in this
 * folder, because each reading is an agreement between them (docs/theory.md, "Reading a partial state"). */
#ifndef TWH_CORE_ENCODE_H
#define TWH_CORE_ENCODE_H

#include "core/base/base.h"
#include "core/records.h"
#include "core/view/view.h"

/* One slot's operand in memory: row r at data + r * row_bytes. */
typedef struct twh__block {
  const char *data;
  int64_t     row_bytes;
} twh__block;

/* What encoding reads. mask, key_bias and alibi are NULL where the problem has none. */
typedef struct twh__source {
  const twh__lowering *lowering;
  const twh__shape    *shape;
  const twh__span     *spans;   /* of the plan: a tile's is spans[tile->unit.span] */
  const twh__view     *q, *k, *v, *mask, *key_bias, *alibi;
  double              *centres; /* of the slot's tiles one after the other, TWH__CENTRE each, where the lowering is one of squares */
} twh__source;

/* The host's row of a unit's row r: its head, and its row in the tensors. */
void twh__unit_row(const twh__unit *unit, const twh__span *span, int64_t r, int64_t *head, int64_t *row);

/* (slot_rows, qk_dim), (slot_keys, qk_dim): rows of row_bytes, everything in them written. */
void twh__encode_queries(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot);
void twh__encode_keys(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot);

/* values_parts slices of (slot_keys, v_dim), `slice_bytes` apart. Returns the lift: the power of two that everything of first
 * copies is multiplied with (TWH__PAD_COPIES; else 1). */
double twh__encode_values(char *to, int64_t row_bytes, int64_t slice_bytes, const twh__source *source, const twh__slot *slot);

/* Of a lowering of squares: find the centres of the slot's tiles, before anything of the slot is encoded. */
void twh__encode_centres(const twh__source *source, const twh__slot *slot);

/* n columns from `first` on of such a value row: (v - c) s, and behind them their square. */
void twh__squares_read(double *to, const twh__source *source, const double *centre, const char *from, int64_t first, int64_t n);

/* The lift of a bucket call, which needs no regard for the size of values. */
double twh__bucket_lift(const twh__tile *tile);

/* The values of a bucket call, (slot_keys, v_dim): the key at slot position j has a 1 in column j mod v_dim. */
void twh__encode_buckets(char *to, int64_t row_bytes, const twh__source *source, const twh__slot *slot);

/* The mask operand (slot_rows, slot_keys) of mask_dtype, and for each row that a tile places one byte at
 * to[any_at + slot position]: whether it sees a key. */
void twh__encode_mask(char *to, int64_t row_bytes, int64_t any_at, const twh__source *source, const twh__slot *slot);

/* 1: something in the tile's rows, keys or values would spoil other tiles of its slot or defeat codes: a number that is not
 * finite in the kernel's dtype, a row or key that might outweigh a code, a bias beyond what its parts can hold. */
int twh__encode_spoils(const twh__source *source, const twh__tile *tile);

/* 1: the mask tensor hides every pair of the tile. Only spans and mask of the source are used. */
int twh__mask_hides_all(const twh__source *source, const twh__tile *tile);

/* What decoding reads: the operands as the kernel saw them, and what it returned, all of one slot. */
typedef struct twh__result {
  const twh__lowering *lowering;
  const twh__shape    *shape;
  const twh__source   *source;           /* of the operands; may be NULL if the problem has no ALiBi */
  const twh__slot     *slot;             /* NULL for tiles that have none */
  const twh__tile     *tile;             /* one of the slot's */
  twh__block           q, k, mask;       /* mask.data NULL unless a mask tensor is part of the problem */
  double               lift;             /* of the values */
  const double        *centre;           /* of squares: the tile's */
  const char          *any;              /* with mask: by slot position, which rows see a key */
  char                *out;              /* value slices `slice_bytes` apart; out_row_bytes per row */
  const char          *buckets;          /* output of the bucket call, or NULL */
  int64_t              out_row_bytes, slice_bytes;
  const float         *lse;
} twh__result;

/* Fill m, a and factor of a leaf at the slot positions of the tile's rows, and nowhere else: rows that see no key become
 * neutral; rows whose sum cannot be read get m = NaN. Returns how many of those. The leaf's place of outputs is filled too. Of
 * a tile that the host computes no row can be read. */
int64_t twh__decode(const twh__result *result, twh__state *leaf);

/* Read the rows with m = NaN from the bucket call. Returns how many are still NaN. */
int64_t twh__decode_repair(const twh__result *result, twh__state *leaf);

/* Compute the rows with m = NaN on the host, in float64, from the host's tensors with their numbers rounded as encoding rounds
 * them; outputs are written over the kernel's. */
void twh__decode_host(const twh__result *result, const twh__source *source, twh__state *leaf);

/* All rows of a tile in that way, without a call: of `result` only lowering, shape, tile, out and its strides are used. */
void twh__decode_all_host(const twh__result *result, const twh__source *source, twh__state *leaf);

/* Likewise, but only those rows that have m = NaN in `of`, which has all of the tile's: returns how many. The leaf is neutral for
 * all others. */
int64_t twh__decode_some_host(const twh__result *result, const twh__source *source, const twh__state *of, twh__state *leaf);

/* What row `row` of a tile scores with all keys that it sees, or might see; -inf where the mask tensor hides one. */
void twh__host_scores(const twh__source *source, const twh__tile *tile, int64_t row, double *scores);

/* The first placed row (number within the tile) with a NaN among what the kernel returned for it, or -1; `part` is the call
 * that returned it: a value slice, or behind them the buckets. */
int64_t twh__decode_find_nan(const twh__result *result, int64_t *part);

#endif
