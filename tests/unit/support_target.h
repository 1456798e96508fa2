/* What the tests of target_error share: a problem with a target beside the same without one and computed exactly, and what must hold of
 * the three. */
#ifndef TWH_TESTS_SUPPORT_TARGET_H
#define TWH_TESTS_SUPPORT_TARGET_H

#include "support_estimate.h"

enum { SUPPORT_TARGET_M = 16, SUPPORT_TARGET_DIM = 8, SUPPORT_TARGET_ROWS = 2000 };

typedef struct support_target_case {
  int32_t  estimate, dtype;
  double   std;
  int      causal, hybrid, ragged;
  uint32_t masks, flags;
  int64_t  spare, slots, q_heads, kv_heads, length, coordinates;
  uint32_t problem_flags;
  int64_t  m, samples, batch_calls, limit; /* 0: 16; as few as the estimate takes; the defaults */
} support_target_case;

/* Kernels, estimates and problems of all kinds, with logits that cannot be sampled (standard deviation 4). */
extern const support_target_case support_target_cases[];
extern const int64_t             support_target_count;

/* A problem with a target, without one, and exact, on the same data. */
typedef struct support_target_setup {
  support_estimate with, without, exact;
  double           relative[SUPPORT_TARGET_ROWS]; /* bounds of `without`, by |out| */
  int64_t          block[SUPPORT_TARGET_ROWS];    /* of rows that are computed exactly together: the least of them */
  int64_t          rows;
} support_target_setup;

/* What is planned with a target, without the target itself. */
void support_target_init(support_estimate *s, const support_target_case *c);
/* All three on the same data; those without a target are executed. quantile > 0: the target leaves that share of the sampled rows alone;
 * 0: it is 0.01. context: of the plan with a target. */
void support_target_begin(support_target_setup *t, const support_target_case *c, double quantile, const twh_context *context,
                          uint64_t seed);
void support_target_end(support_target_setup *t);

/* Whether row `at` of out and lse has the same bits in both. */
int     support_target_is_same(const support_estimate *a, const support_estimate *b, int64_t at);
/* After `with` was executed: blocks with a row beyond the target must be the exact plan's, others the sampled one's. Returns how many
 * rows were recomputed. */
int64_t support_target_check_rows(const support_target_setup *t, int number);
void    support_target_check_calls(const support_target_setup *t, int number, int64_t exact_rows);

#endif
