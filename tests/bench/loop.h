/* The loop that one would write by hand over a kernel of one length that returns the log-sum-exp: what the library is compared
 * with. */
#ifndef BENCH_LOOP_H
#define BENCH_LOOP_H

#include <stdint.h>

#include "twoheads.h"

/* q, k, v, out: (heads, n, dim), dense f32; n a multiple of the kernel's length m. Returns non-zero when it fails. */
TWH_API int loop_attention(const twh_oracle *oracle, const float *q, const float *k, const float *v, float *out, int64_t heads,
                           int64_t n, int64_t dim, int64_t m, int causal, int threads);

#endif
