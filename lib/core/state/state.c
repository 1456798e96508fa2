/* The arithmetic of partial states.
 *
 *     m = max(m1, m2),  w_i = a_i e^(m_i - m),  a = w1 + w2,  b = (w1 b1 + w2 b2) / a
 *
 * Symmetric in its operands to the last bit, as long as the compiler fuses no multiplication with an addition. */
#include <math.h>
#include <string.h>

#include "core/state/state.h"

TWH__CLONES void twh__state_merge(const twh__state *into, const twh__state *from, int64_t first, int64_t last, int64_t dim)
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
    w1 *= into->a[r];
    w2 *= from->a[r];
    into->a[r] = w1 + w2;
    f1 = (float)(w1 / into->a[r]);
    f2 = (float)(w2 / into->a[r]);
    for (int64_t c = 0; c < dim; ++c) b1[c] = b1[c] * f1 + b2[c] * f2;
  }
}

void twh__state_add_sink(const twh__state *state, int64_t row, double sink, int64_t dim)
{
  double *m = &state->m[row], *a = &state->a[row], own;

  if (sink == -(double)INFINITY) return;
  if (*a == 0) {
    *m = sink;
    *a = 1;
    return;
  }
  own = *a; /* a key without a value: the output shrinks by its own part of the sum */
  if (*m >= sink) {
    *a += exp(sink - *m);
  } else {
    own *= exp(*m - sink);
    *a = own + 1;
    *m = sink;
  }
  for (int64_t c = 0; c < dim; ++c) state->b[row * dim + c] *= (float)(own / *a);
}

void twh__state_write(const twh__state *state, int64_t row, int64_t dim, char *out, int32_t out_dtype, char *lse,
                      int32_t lse_dtype)
{
  twh__convert(out, out_dtype, state->b + row * dim, TWH_F32, dim);
  if (lse) twh__store(lse, lse_dtype, 0, state->a[row] == 0 ? -(double)INFINITY : state->m[row] + log(state->a[row]));
}
