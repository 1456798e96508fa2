/* What the tests of estimated errors share: a sampled problem on a kernel that watches the library, with room for the bounds of
 * its rows, and how often those bounds must hold. */
#ifndef TWH_TESTS_SUPPORT_ESTIMATE_H
#define TWH_TESTS_SUPPORT_ESTIMATE_H

#include "support.h"

typedef struct support_estimate {
  /* Set by init; tests change what they need before begin. */
  twh_problem      problem; /* points at pattern: never copy the struct */
  twh_pattern      pattern;
  twh_oracle_desc  desc;
  twh_plan_options options;
  support_fill     fill;
  double           key_bias, slope; /* standard deviation; slope of ALiBi in head 0, and minus that in head 1 */
  int              tensor_flags;    /* SUPPORT_LSE, SUPPORT_SINKS */
  /* Set by begin. */
  support_oracle   oracle;
  twh_plan        *plan;
  twh_plan_info    info;
  support_tensors  tensors; /* all.error points at the next */
  twh_tensor       error;
  double          *bounds; /* (batch, q_heads, q_rows) */
  int64_t          rows;   /* of those */
  twh_run_stats    stats;  /* of the last execute */
} support_estimate;

/* One head of `length` rows and keys, dims 8 and v_dim; a kernel of m rows and keys, f32, unmasked or causal, with one value column
 * to spare; one sample, SAMPLED, DOUBLED; logits of standard deviation 1. */
void support_estimate_init(support_estimate *s, int64_t length, int64_t m, int64_t v_dim);
/* The kernel, the plan and the tensors. context: NULL = defaults. seed: of the data and of the draws. */
void support_estimate_begin(support_estimate *s, const twh_context *context, uint64_t seed);
/* Execute; what fails, or breaks the contract with the kernel, fails the test. The bounds are NaN before. */
void support_estimate_execute(support_estimate *s);
void support_estimate_end(support_estimate *s);

/* |out - R|_2 and |R|_2 of each row, R in float64. lengths may be NULL. */
void support_estimate_compare(const support_estimate *s, double *errors, double *lengths);

/* Over a table of data and kernels: of the rows with drawn keys 87 to 99.7% keep their bounds. Returns how many rows of the table the
 * estimate is for. */
int64_t support_estimate_covers(int32_t estimate);

#endif
