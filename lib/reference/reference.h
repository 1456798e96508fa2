/* A kernel that does whatever its description says, slowly and in float64: for tests, and for the command.
 *
 * Inputs are read in the declared data type, everything inside is float64, outputs are rounded once. So it gives the answer
 * that a kernel with this description should be close to, and stands in for kernels of narrow types that are not at hand. A
 * row's arithmetic depends on its own slot only: fewer rows, slots or calls in a batch never change a bit. */
#ifndef TWH_REFERENCE_H
#define TWH_REFERENCE_H

#include "twoheads.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct twh_reference_options {
  uint32_t struct_size;
  int32_t  round_weights; /* 1: round the weights e^(s - max) to dtype before the value product, as GPU kernels do, but not
                             before they are added up; 0: do not */
} twh_reference_options;

TWH_DEFINE_INIT(twh_reference_options)

/* Create the kernel and register it.
 * context: NULL = defaults; must outlive the oracle. desc: the shape and the capabilities wanted, copied; run, submit, wait,
 *   release and user must be zero. All data types, mask modes and flags are supported; max_concurrent_batches 0 = 1024.
 * options: NULL = defaults. out: receives the oracle; the caller destroys it. NULL on failure.
 * With TWH_ORACLE_F16_SCORES scale <q, k>, capped, is rounded to f16, and then the mask is added. A row that sees no key, or
 * only keys with an additive mask of -inf, gets out 0. A call that continues (TWH_ORACLE_CONTINUES) merges in float64 what stands in
 * out and lse, as rounded there. The kernel's own error code is ENOMEM.
 * Returns: all of twh_oracle_create. Threads: any. */
TWH_MUST_USE twh_status twh_reference_oracle_create(const twh_context *context, const twh_oracle_desc *desc,
                                                    const twh_reference_options *options, twh_oracle **out, twh_error *error);

/* The same for a small transformer (twh_oracle_from_transformer): any weights, any dtype. desc: copied; load, run, release and
 * user must be zero. max_concurrent_batches 0 = 1024. The kernel's own error code is ENOMEM.
 * Projections, what a head gives and x after each layer are rounded to dtype; sums beyond f32 are infinite.
 * Returns: all of twh_oracle_from_transformer. Threads: any. */
TWH_MUST_USE twh_status twh_reference_transformer_create(const twh_context *context, const twh_transformer_oracle_desc *desc,
                                                         twh_oracle **out, twh_error *error);

/* The kernel of it, as a twh_transformer_oracle_desc.run, for those who want to stand in between. user: a const
 * twh_transformer_oracle_desc * with the shape, dtype and scale. Returns 0; ENOMEM. Threads: any. */
int32_t twh_reference_transformer_run(void *user, const twh_transformer_call *const *calls, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
