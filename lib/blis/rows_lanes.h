/* The row functions for one width of register; rows.c includes this file once for each.
 *
 * ROWS_WIDTH: floats in a vector. ROWS_NAME(x): x with the width appended. ROWS_TARGET: attributes that every function needs.
 * ROWS_CHAINS vectors go through each step together: a step waits for the one before it, and several chains keep the units
 * busy.
 *
 * e^t, t <= 0: t = n ln 2 + r, |r| <= ln(2) / 2, with ln 2 in two parts so that n ln 2 is exact to more than f32; e^r by a
 * minimax polynomial (its own relative error is 4e-9, that of the whole below 2^-23); 2^n goes into the exponent. Adding
 * 1.5 2^23 rounds to an integer and leaves it in the low bits: no conversion, so no undefined value for -inf and NaN. Below
 * -87 the result is 0 instead of a denormal number, which the matrix product would be slow on. A NaN stays one. */

typedef float    ROWS_NAME(rows_vector) __attribute__((vector_size(4 * ROWS_WIDTH)));
typedef uint32_t ROWS_NAME(rows_bits) __attribute__((vector_size(4 * ROWS_WIDTH)));

#define VECTOR ROWS_NAME(rows_vector)
#define BITS   ROWS_NAME(rows_bits)
#define EACH   for (int i = 0; i < ROWS_CHAINS; i++)

/* t[i] = e^t[i] */
ROWS_TARGET static inline __attribute__((always_inline)) void ROWS_NAME(rows_exp)(VECTOR *t)
{
  VECTOR shifted[ROWS_CHAINS], r[ROWS_CHAINS], square[ROWS_CHAINS], low[ROWS_CHAINS], high[ROWS_CHAINS];
  EACH shifted[i] = t[i] * 1.44269504f + 12582912.0f;
  EACH low[i] = shifted[i] - 12582912.0f;
  EACH r[i] = (t[i] - low[i] * 0.693359375f) - low[i] * -2.12194440e-4f;
  EACH square[i] = r[i] * r[i];
  EACH low[i] = r[i] * 0.04166853f + 0.16666509f;
  EACH high[i] = r[i] * 0.00138117f + 0.00837013f;
  EACH high[i] = high[i] * square[i] + low[i];
  EACH low[i] = r[i] * 0.49999994f + 1.0f;
  EACH high[i] = (high[i] * square[i] + low[i]) * r[i] + 1.0f;
  EACH high[i] = high[i] * (VECTOR)(((BITS)shifted[i] << 23) + 0x3f800000u);
  EACH t[i] = (VECTOR)((BITS)high[i] & ~(BITS)(t[i] < -87.0f));
}

ROWS_TARGET static float ROWS_NAME(rows_max)(const float *x, int64_t n)
{
  const VECTOR *from = (const VECTOR *)(const void *)x;
  VECTOR        most[ROWS_CHAINS];
  float         result = -INFINITY;
  EACH most[i] = from[i];
  for (int64_t j = ROWS_CHAINS; j < n / ROWS_WIDTH; j += ROWS_CHAINS) {
    EACH {
      const BITS larger = (BITS)(from[j + i] > most[i]);
      most[i] = (VECTOR)(((BITS)from[j + i] & larger) | ((BITS)most[i] & ~larger));
    }
  }
  EACH for (int lane = 0; lane < ROWS_WIDTH; lane++) result = most[i][lane] > result ? most[i][lane] : result;
  return result;
}

ROWS_TARGET static double ROWS_NAME(rows_weights)(float *x, int64_t n, float max, float scale)
{
  enum { ROW = TWH__BLIS_ROW, BLOCK = 16 * ROW };
  double total = 0.0;
  for (int64_t at = 0; at < n; at += BLOCK) { /* f32 lanes add up no more than BLOCK / 16 weights each */
    const int64_t end = n - at < BLOCK ? n : at + BLOCK;
    VECTOR        sum[16 / ROWS_WIDTH], zero = {0};
    for (int i = 0; i < 16 / ROWS_WIDTH; i++) sum[i] = zero;
    for (int64_t j = at; j < end; j += ROWS_CHAINS * ROWS_WIDTH) {
      VECTOR *to = (VECTOR *)(void *)(x + j);
      VECTOR  t[ROWS_CHAINS];
      EACH t[i] = (to[i] - max) * scale;
      ROWS_NAME(rows_exp)(t);
      EACH to[i] = t[i];
      EACH sum[i % (16 / ROWS_WIDTH)] += t[i];
    }
    for (int i = 0; i < 16 / ROWS_WIDTH; i++)
      for (int lane = 0; lane < ROWS_WIDTH; lane++) total += (double)sum[i][lane];
  }
  return total;
}

/* tanh: an odd minimax polynomial where 1 - e^(-2u) would cancel, else 1 - 2 / (e^(2u) + 1); both on |u|, the sign put back. */
ROWS_TARGET static void ROWS_NAME(rows_cap)(float *x, int64_t n, float factor, float cap)
{
  for (int64_t j = 0; j < n; j += ROWS_CHAINS * ROWS_WIDTH) {
    VECTOR *to = (VECTOR *)(void *)(x + j);
    VECTOR  u[ROWS_CHAINS], e[ROWS_CHAINS], near[ROWS_CHAINS], square[ROWS_CHAINS];
    BITS    sign[ROWS_CHAINS], is_near;
    EACH u[i] = to[i] * factor;
    EACH sign[i] = (BITS)u[i] & 0x80000000u;
    EACH u[i] = (VECTOR)((BITS)u[i] ^ sign[i]);
    EACH e[i] = u[i] * -2.0f;
    ROWS_NAME(rows_exp)(e);
    EACH square[i] = u[i] * u[i];
    EACH near[i] = square[i] * -0.00627424f + 0.02107168f;
    EACH near[i] = near[i] * square[i] - 0.05385231f;
    EACH near[i] = near[i] * square[i] + 0.13332586f;
    EACH near[i] = near[i] * square[i] - 0.33333318f;
    EACH near[i] = near[i] * square[i] * u[i] + u[i];
    EACH {
      is_near = (BITS)(u[i] < 0.55f);
      e[i] = 1.0f - (e[i] + e[i]) / (e[i] + 1.0f);
      to[i] = (VECTOR)((((BITS)near[i] & is_near) | ((BITS)e[i] & ~is_near)) ^ sign[i]) * cap;
    }
  }
}

static const twh__blis_rows ROWS_NAME(rows_table) = {ROWS_NAME(rows_max), ROWS_NAME(rows_weights), ROWS_NAME(rows_cap)};

#undef VECTOR
#undef BITS
#undef EACH
#undef ROWS_NAME
#undef ROWS_WIDTH
#undef ROWS_CHAINS
#undef ROWS_TARGET
