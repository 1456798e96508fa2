/* The product for hosts that give none: a piece of a column of b in float64, against a few rows of a at a time. */
#include "core/base/base.h"

enum { GEMM_ROWS = 64, GEMM_PIECE = 256 };

/* Elements p0 .. p0 + n - 1 of column j. */
static void gemm_column(const twh_gemm *gemm, int64_t j, int64_t p0, int64_t n, double *to)
{
  const int64_t at = p0 * gemm->b_row_stride + j * gemm->b_col_stride;
  const char   *from = (const char *)gemm->b + at * twh__dtype_bytes(gemm->b_dtype);

  if (gemm->b_row_stride == 1) {
    twh__convert(to, TWH_F64, from, gemm->b_dtype, n);
  } else {
    for (int64_t p = 0; p < n; ++p) to[p] = twh__load(from, gemm->b_dtype, p * gemm->b_row_stride);
  }
}

int32_t twh_gemm_plain(void *user, const twh_gemm *gemm)
{
  double column[GEMM_PIECE], sums[GEMM_ROWS];
  (void)user;

  for (int64_t i0 = 0; i0 < gemm->m; i0 += GEMM_ROWS) {
    const int64_t rows = twh__min(GEMM_ROWS, gemm->m - i0);
    for (int64_t j = 0; j < gemm->n; ++j) {
      for (int64_t i = 0; i < rows; ++i) sums[i] = 0;
      for (int64_t p0 = 0; p0 < gemm->k; p0 += GEMM_PIECE) {
        const int64_t n = twh__min(GEMM_PIECE, gemm->k - p0);
        gemm_column(gemm, j, p0, n, column);
        for (int64_t i = 0; i < rows; ++i) {
          const float *a = gemm->a + (i0 + i) * gemm->a_row_stride + p0;
          for (int64_t p = 0; p < n; ++p) sums[i] += (double)a[p] * column[p];
        }
      }
      for (int64_t i = 0; i < rows; ++i) gemm->c[(i0 + i) * gemm->c_row_stride + j] = (float)sums[i];
    }
  }
  return 0;
}
