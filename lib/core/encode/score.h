/* Scores that the host computes itself, in float64, from the operands as the kernel saw them.
 *
 * A query is converted once for all keys that it is scored with, a key that is scored with many queries once for all of them.
 * The coordinates of biases take part, those of codes never do: what a row is asked about it sees. */
#ifndef TWH_CORE_ENCODE_SCORE_H
#define TWH_CORE_ENCODE_SCORE_H

#include "core/encode/operand.h"

enum { TWH__SCORE_PIECE = 256 }; /* dimensions that are converted beforehand; what lies beyond is read as it is needed */

typedef struct twh__score_query {
  int64_t      row;                        /* placed row */
  const float *value;                      /* its first dimensions */
  float        piece[TWH__SCORE_PIECE];
} twh__score_query;

typedef struct twh__score_key {
  int64_t at;                              /* slot position */
  double  value[TWH__SCORE_PIECE];
} twh__score_key;

/* <query, key>: eight sums at once, added in a fixed order: fast, and the same on every machine. */
static inline double twh__score_dot(const float *query, const double *key, int64_t n)
{
  double  sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, rest = 0;
  int64_t i = 0;

  for (; i + 8 <= n; i += 8) {
    for (int64_t t = 0; t < 8; ++t) sum[t] += (double)query[i + t] * key[i + t];
  }
  for (; i < n; ++i) rest += (double)query[i] * key[i];
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])) + rest;
}

/* The same for two rows of f32. */
double twh__score_dot_rows(const float *query, const float *key, int64_t n);

/* Dimensions that scores are made of. */
static inline int64_t twh__score_dim(const twh__result *result)
{
  return result->shape->qk_dim + result->lowering->bias_parts;
}

/* What the kernel makes of <q, k>, before the mask. */
double twh__score_of(const twh__lowering *lowering, double product);

void twh__score_read_query(const twh__result *result, int64_t i, twh__score_query *query);
void twh__score_read_key(const twh__result *result, int64_t at, twh__score_key *key);

/* Whether the row sees the key, and if so its score: scaled, capped, biased as the kernel does it. */
int twh__score(const twh__result *result, const twh__score_query *query, const twh__score_key *key, double *score);
/* The same for a key that is scored once. */
int twh__score_at(const twh__result *result, const twh__score_query *query, int64_t at, double *score);

/* A sum of exponentials, term by term: sum e^largest. Kept as two numbers, because beside a bias of -FLT_MAX the logarithm of
 * a sum is lost even in float64. */
typedef struct twh__exp_sum {
  double largest, sum; /* empty: -inf, 0 */
} twh__exp_sum;

void twh__exp_sum_add(twh__exp_sum *sum, double term);

/* Where a leaf's outputs lie. Rows of a tile that the host computes become NaN. */
void twh__decode_place(const twh__result *result, twh__state *leaf);

/* What a row's encoded biases leave out, added to the states of the tile's rows [first, last). */
void twh__decode_shift(const twh__result *result, twh__state *leaf, int64_t first, int64_t last);

#endif
