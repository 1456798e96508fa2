/* Scores that the host computes itself, in float64, from the operands as the kernel saw them. */
#ifndef TWH_CORE_ENCODE_SCORE_H
#define TWH_CORE_ENCODE_SCORE_H

#include "core/encode/encode.h"

/* Whether placed row i sees the key at slot position `at`, and if so its score: scaled, capped, biased as the kernel does it. */
int twh__score(const twh__result *result, int64_t i, int64_t at, double *score);

/* ln of a sum of exponentials, term by term. */
typedef struct twh__log_sum {
  double largest, sum; /* sum of e^(term - largest); empty: -inf, 0 */
} twh__log_sum;

void   twh__log_sum_add(twh__log_sum *sum, double term);
double twh__log_sum_value(const twh__log_sum *sum); /* -inf when empty */

#endif
