/* A tile's bytes, and what its results mean.
 *
 * Encoding writes the operands of one slot from the host's tensors in the kernel's dtype: queries at their positions, keys in
 * natural or reversed order with whatever stands behind a short block, values with the columns that the reading needs. Decoding
 * turns the kernel's output for that slot into a partial state per row. Both sides of the trade are in this folder, because
 * each reading is an agreement between them (docs/theory.md, "Reading a partial state"). */
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

/* What encoding reads. `kernel` decides shapes, `mask` is NULL without a mask tensor. */
typedef struct twh__source {
  const twh__lowering *lowering;
  const twh__shape    *shape;
  const twh__span     *span;   /* of the tile */
  const twh__view     *q, *k, *v, *mask;
} twh__source;

/* The host's row of a unit's row r: its head, and its row in the tensors. */
void twh__unit_row(const twh__unit *unit, const twh__span *span, int64_t r, int64_t *head, int64_t *row);

/* (slot_rows, qk_dim), (slot_keys, qk_dim): rows of row_bytes, everything in them written. */
void twh__encode_queries(char *to, int64_t row_bytes, const twh__source *source, const twh__tile *tile);
void twh__encode_keys(char *to, int64_t row_bytes, const twh__source *source, const twh__tile *tile);

/* values_parts slices of (slot_keys, v_dim), `slice_bytes` apart. Returns the lift: the power of two that everything of first
 * copies is multiplied with (TWH__PAD_COPIES; else 1). */
double twh__encode_values(char *to, int64_t row_bytes, int64_t slice_bytes, const twh__source *source, const twh__tile *tile);

/* The lift of a bucket call, which needs no regard for the size of values. */
double twh__bucket_lift(const twh__tile *tile);

/* The values of a bucket call, (slot_keys, v_dim): key position j has a 1 in column j mod v_dim. */
void twh__encode_buckets(char *to, int64_t row_bytes, const twh__lowering *lowering, const twh__tile *tile);

/* The mask operand (slot_rows, slot_keys) of mask_dtype, and behind it, at to + any_at, one byte per placed row: whether it
 * sees a key. */
void twh__encode_mask(char *to, int64_t row_bytes, int64_t any_at, const twh__source *source, const twh__tile *tile);

/* What decoding reads: the operands as the kernel saw them, and what it returned, all of one slot. */
typedef struct twh__result {
  const twh__lowering *lowering;
  const twh__shape    *shape;
  const twh__tile     *tile;
  twh__block           q, k, mask;       /* mask.data NULL unless a mask tensor is part of the problem */
  double               lift;             /* of the values */
  const char          *any;              /* with mask: which placed rows see a key */
  char                *out;              /* value slices `slice_bytes` apart; out_row_bytes per row */
  const char          *buckets;          /* output of the bucket call, or NULL */
  int64_t              out_row_bytes, slice_bytes;
  const float         *lse;
} twh__result;

/* Fill m, a and factor of a leaf: rows of the unit that the tile does not place, or that see no key, become neutral; rows whose
 * sum cannot be read get m = NaN. Returns how many of those. The leaf's place of outputs is filled too. */
int64_t twh__decode(const twh__result *result, twh__state *leaf);

/* Read the rows with m = NaN from the bucket call. Returns how many are still NaN. */
int64_t twh__decode_repair(const twh__result *result, twh__state *leaf);

/* Compute the rows with m = NaN on the host, in float64, from the operands and the host's values; their outputs are written
 * over the kernel's. */
void twh__decode_host(const twh__result *result, const twh__source *source, twh__state *leaf);

/* The first placed row (number within the tile) with a NaN among what the kernel returned for it, or -1; `part` is the call
 * that returned it: a value slice, or behind them the buckets. */
int64_t twh__decode_find_nan(const twh__result *result, int64_t *part);

#endif
