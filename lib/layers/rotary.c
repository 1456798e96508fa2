/* Rotary positions: angles in float64, so that a position of a million still has its digits.
 *
 * A pair's cosine and sine are those of all heads of a row, and its frequency that of all rows: each is computed once, some
 * pairs at a time, so that a few numbers on the stack are all that it takes. */
#include "layers/layers.h"

#include <math.h>

enum { ROTARY_PAIRS = 64 };

/* Turn pairs first .. first + n - 1 of all heads of a row. */
static void rotary_row(const twh_rotary *rotary, float *x, int64_t n_heads, int64_t head_dim, int64_t half, double position,
                       const double *frequencies, int64_t first, int64_t n)
{
  const int64_t step = rotary->pairing == TWH_ROTARY_HALVES ? 1 : 2, apart = rotary->pairing == TWH_ROTARY_HALVES ? half : 1;

  for (int64_t i = 0; i < n; ++i) {
    const double angle = position * frequencies[i], c = cos(angle), s = sin(angle);
    for (int64_t h = 0; h < n_heads; ++h) {
      float       *pair = x + h * head_dim + (first + i) * step;
      const double a = pair[0], b = pair[apart];
      pair[0] = (float)(a * c - b * s);
      pair[apart] = (float)(a * s + b * c);
    }
  }
}

void twh_rotary_apply(const twh_rotary *rotary, float *x, int64_t rows, int64_t n_heads, int64_t head_dim, int64_t stride,
                      const int64_t *positions)
{
  const int64_t dims = rotary->dims != 0 ? rotary->dims : head_dim, half = dims / 2;
  const double  base = rotary->base != 0 ? rotary->base : 10000;
  double        frequencies[ROTARY_PAIRS];

  for (int64_t first = 0; first < half; first += ROTARY_PAIRS) {
    const int64_t n = half - first < ROTARY_PAIRS ? half - first : ROTARY_PAIRS;
    for (int64_t i = 0; i < n; ++i) {
      if (rotary->frequencies != NULL) {
        frequencies[i] = rotary->frequencies[first + i];
      } else {
        frequencies[i] = pow(base, -2.0 * (double)(first + i) / (double)dims);
      }
    }
    for (int64_t r = 0; r < rows; ++r)
      rotary_row(rotary, x + r * stride, n_heads, head_dim, half, (double)positions[r], frequencies, first, n);
  }
}
