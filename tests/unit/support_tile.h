/* One call of a kernel, with its operands: for tests that call a kernel directly, without a plan.
 *
 * A tile has one set of inputs and as many outputs as kernels are to be compared. Whatever lies between the rows and slots
 * of an operand or output is poison, and the memory of each ends with its last element. */
#ifndef TWH_TESTS_SUPPORT_TILE_H
#define TWH_TESTS_SUPPORT_TILE_H

#include "support.h"

/* How operands lie: as the description says; for kernels with TWH_ORACLE_STRIDED also with gaps, with rows in reverse order and
 * keys shared by all slots, and with rows that overlap or are the same. */
enum { TILE_DECLARED = 0, TILE_GAPS = 1, TILE_REVERSED = 2, TILE_OVERLAP = 3 };

/* What to make. Zero lengths are the description's. */
typedef struct tile_shape {
  uint32_t mask_mode;
  int64_t  slots, q_len, k_len;
  int32_t  layout;
  double   logit_std, hidden; /* hidden: share of hidden pairs in a mask operand; 1 = all of every other row */
} tile_shape;

typedef struct support_tile {
  twh_oracle_desc desc;      /* with defaults filled in */
  twh_call        call;      /* out and lse are set by tile_run */
  void           *memory[4]; /* q, k, v, mask */
} support_tile;

typedef struct tile_result {
  int64_t rows, dim;
  double *out, *lse; /* (slots * q_len, v_dim), (slots * q_len) */
} tile_result;

/* Random operands for a call of `oracle`, or of any other kernel with the same description but for out_dtype. */
void tile_create(support_tile *tile, const twh_oracle *oracle, const tile_shape *shape, support_random *random);
void tile_destroy(support_tile *tile);

/* Run a kernel on the tile. Fails the test if it returns non-zero or writes outside its rows. */
void tile_run(tile_result *result, const support_tile *tile, const twh_oracle *oracle);
/* The contract's formula, row by row, in float64, unrounded. */
void tile_truth(tile_result *result, const support_tile *tile);
/* What rounding works on: the largest sum of the absolute terms of a visible pair's score, |scale| sum |q_c k_c|. */
double tile_largest_score(const support_tile *tile);
void tile_result_destroy(tile_result *result);

/* Largest differences; INFINITY where one is NaN, or infinite and the other is not the same. */
double tile_out_error(const tile_result *got, const tile_result *want);
double tile_lse_error(const tile_result *got, const tile_result *want);

#endif
