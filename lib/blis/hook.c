/* twh_blis_gemm: products with the host's weights, as twh_gemm_hook.
 *
 * Weights of f16 and bf16 are copied to f32, a piece of columns at a time: k is never cut, so that an element of c is the same
 * sum whatever the pieces are. */
#include "blis/gemm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Floats of a piece, and its fewest columns. */
enum { HOOK_FLOATS = 1 << 20, HOOK_COLUMNS = 32 };

/* All bits set, or none. */
static uint32_t hook_mask(int condition)
{
  return (uint32_t)-condition;
}

/* With masks for conditions, which compilers make vectors of: three times faster. */
static void hook_from_f16(float *to, const char *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    uint16_t half;
    uint32_t size, bits, tiny;
    float    number;
    memcpy(&half, from + 2 * i, sizeof half);
    size = half & 0x7fffu;
    number = (float)(int32_t)size * 0x1p-24f; /* where the exponent is 0: a multiple of the smallest number */
    memcpy(&tiny, &number, sizeof tiny);
    bits = (size << 13) + (112u << 23) + ((112u << 23) & hook_mask(size >= 0x7c00)); /* infinite and NaN stay so */
    bits = (tiny & hook_mask(size < 0x400)) | (bits & ~hook_mask(size < 0x400)) | (half & 0x8000u) << 16;
    memcpy(to + i, &bits, sizeof bits);
  }
}

static void hook_from_bf16(float *to, const char *from, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    uint16_t half;
    uint32_t bits;
    memcpy(&half, from + 2 * i, sizeof half);
    bits = (uint32_t)half << 16;
    memcpy(to + i, &bits, sizeof bits);
  }
}

/* Pieces keep b's orientation: runs of elements that lie side by side are copied, of its columns or of its rows. */
static int32_t hook_pieces(const twh_gemm *gemm)
{
  const void   *kernels = twh__blis_kernels();
  const int64_t k = gemm->k;
  const int     columns = gemm->b_col_stride != 1;
  const char   *b = (const char *)gemm->b;
  void        (*convert)(float *, const char *, int64_t) = gemm->b_dtype == TWH_F16 ? hook_from_f16 : hook_from_bf16;
  int64_t       width = HOOK_FLOATS / k;
  float        *piece;
  width = width < HOOK_COLUMNS ? HOOK_COLUMNS : width / HOOK_COLUMNS * HOOK_COLUMNS;
  if (width > gemm->n) width = gemm->n;
  if ((uint64_t)k > (uint64_t)PTRDIFF_MAX / sizeof(float) / (uint64_t)width) return ENOMEM;
  piece = (float *)malloc((size_t)k * (size_t)width * sizeof(float));
  if (piece == NULL) return ENOMEM;
  for (int64_t j = 0; j < gemm->n; j += width) {
    const int64_t n = gemm->n - j < width ? gemm->n - j : width;
    if (columns)
      for (int64_t c = 0; c < n; c++) convert(piece + c * k, b + 2 * (j + c) * gemm->b_col_stride, k);
    else
      for (int64_t p = 0; p < k; p++) convert(piece + p * n, b + 2 * (p * gemm->b_row_stride + j), n);
    twh__blis_multiply_packed(kernels, gemm->m, n, k, gemm->a, gemm->a_row_stride, piece, columns ? 1 : n, columns ? k : 1,
                              0.0f, gemm->c + j, gemm->c_row_stride);
  }
  free(piece);
  return 0;
}

int32_t twh_blis_gemm(void *user, const twh_gemm *gemm)
{
  const int64_t m = gemm->m, n = gemm->n, k = gemm->k;
  (void)user;
  if (m == 0 || n == 0) return 0;
  if (k == 0) {
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) gemm->c[i * gemm->c_row_stride + j] = 0.0f;
    return 0;
  }
  if (gemm->b_dtype != TWH_F32) return hook_pieces(gemm);
  twh__blis_multiply_packed(twh__blis_kernels(), m, n, k, gemm->a, gemm->a_row_stride, (const float *)gemm->b,
                            gemm->b_row_stride, gemm->b_col_stride, 0.0f, gemm->c, gemm->c_row_stride);
  return 0;
}
