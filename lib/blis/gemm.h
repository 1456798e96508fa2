/* The two matrix products of an attention tile, on BLIS; the only stage that sees blis.h.
 *
 * Also decides which of BLIS's kernel sets they run on (include/twoheads_blis.h says why that is a question). */
#ifndef TWH_BLIS_GEMM_H
#define TWH_BLIS_GEMM_H

#include "twoheads_blis.h"

/* BLIS's context with the kernels to use; NULL = those that BLIS has picked. Initialises BLIS. */
const void *twh__blis_kernels(void);

/* "0.9.0". */
const char *twh__blis_version(void);

/* scores (q_len, k_len) = alpha q (q_len, dim) k^T (k_len, dim). Row strides in elements, at least a row's length. */
void twh__blis_scores(const void *kernels, int64_t q_len, int64_t k_len, int64_t dim, float alpha, const float *q,
                      int64_t q_stride, const float *k, int64_t k_stride, float *scores, int64_t scores_stride);

/* out (q_len, dim) = weights (q_len, k_len) v (k_len, dim). */
void twh__blis_values(const void *kernels, int64_t q_len, int64_t k_len, int64_t dim, const float *weights,
                      int64_t weights_stride, const float *v, int64_t v_stride, float *out, int64_t out_stride);

#endif
