/* Matrix products on BLIS: the two of an attention tile, and those with weights; the only stage that sees blis.h.
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

/* c (m, n) = a (m, k) b (k, n), for a few columns or rows. Row strides as above. May read up to 16 bytes behind the last
 * element of c, nothing else. An element's bits depend on m and n. */
void twh__blis_multiply(const void *kernels, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_stride, const float *b,
                        int64_t b_stride, float *c, int64_t c_stride);

/* c (m, n) = a (m, k) b (k, n) + beta c, with a and b packed first, so that any strides of theirs will do. BLIS does not
 * promise it, but an element's bits are then the same whatever m and n are and however b lies, with every kernel set of BLIS
 * 0.9 that was tried (generic, sandybridge, haswell, zen2, zen3, skx). m, n, k >= 1. */
void twh__blis_multiply_packed(const void *kernels, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_stride,
                               const float *b, int64_t b_row_stride, int64_t b_col_stride, float beta, float *c,
                               int64_t c_stride);

#endif
