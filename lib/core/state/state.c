/* The arithmetic of partial states.
 *
 *     m = max(m1, m2),  a = a1 e^(m1 - m) + a2 e^(m2 - m),  b likewise
 *
 * Symmetric in its operands to the last bit, as long as the compiler fuses no multiplication with an addition. */
#include <math.h>
#include <string.h>

#include "core/state/state.h"

void twh__state_merge(const twh__state *into, const twh__state *from, int64_t first, int64_t last, int64_t dim)
{
  for (int64_t r = first; r < last; ++r) {
    double       m1 = into->m[r], m2 = from->m[r], w1 = 1, w2 = 1;
    float       *b1 = into->b + r * dim;
    const float *b2 = from->b + r * dim;
    float        f1, f2;

    if (from->a[r] == 0) continue; /* neutral */
    if (into->a[r] == 0) {
      into->m[r] = m2;
      into->a[r] = from->a[r];
      memcpy(b1, b2, (size_t)dim * sizeof *b1);
      continue;
    }
    if (m1 >= m2) {
      w2 = exp(m2 - m1);
    } else {
      w1 = exp(m1 - m2); /* NaN too */
      into->m[r] = m2;
    }
    into->a[r] = into->a[r] * w1 + from->a[r] * w2;
    f1 = (float)w1;
    f2 = (float)w2;
    for (int64_t c = 0; c < dim; ++c) b1[c] = b1[c] * f1 + b2[c] * f2;
  }
}

void twh__state_add_sink(const twh__state *state, int64_t row, double sink, int64_t dim)
{
  double *m = &state->m[row], *a = &state->a[row];

  if (sink == -(double)INFINITY) return;
  if (*a == 0) {
    *m = sink;
    *a = 1;
  } else if (*m >= sink) {
    *a += exp(sink - *m);
  } else {
    double weight = exp(*m - sink);
    *a = *a * weight + 1;
    *m = sink;
    for (int64_t c = 0; c < dim; ++c) state->b[row * dim + c] *= (float)weight;
  }
}

void twh__state_write(const twh__state *state, int64_t row, int64_t dim, char *out, int32_t out_dtype, char *lse, int32_t lse_dtype)
{
  float *b = state->b + row * dim;

  if (state->a[row] != 0 && state->a[row] != 1) {
    double factor = 1 / state->a[row];
    for (int64_t c = 0; c < dim; ++c) b[c] = (float)(b[c] * factor);
  }
  twh__convert(out, out_dtype, b, TWH_F32, dim);
  if (lse) {
    double value = -(double)INFINITY;
    if (state->a[row] != 0) value = state->a[row] == 1 ? state->m[row] : state->m[row] + log(state->a[row]);
    twh__store(lse, lse_dtype, 0, value);
  }
}
