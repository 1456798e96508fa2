/* The arithmetic of partial states.
 *
 *     m = max(m1, m2),  w_i = a_i e^(m_i - m),  a = w1 + w2,  b = (w1 b1 + w2 b2) / a
 *
 * Symmetric in its operands to the last bit, as long as the compiler fuses no multiplication with an addition. */
#include <math.h>
#include <string.h>

#include "core/state/state.h"

enum { STATE_PIECE = 128 };

/* to[c] = w from[c], or to[c] += w from[c]. */
static inline void state_put_f64(double *to, const double *from, double w, int add, int64_t n)
{
  if (add) {
    for (int64_t c = 0; c < n; ++c) to[c] += w * from[c];
  } else {
    for (int64_t c = 0; c < n; ++c) to[c] = w * from[c];
  }
}

static inline void state_put_f32(double *to, const float *from, double w, int add, int64_t n)
{
  if (add) {
    for (int64_t c = 0; c < n; ++c) to[c] += w * (double)from[c];
  } else {
    for (int64_t c = 0; c < n; ++c) to[c] = w * (double)from[c];
  }
}

/* The same with the outputs of row r of a node or a leaf. */
static inline void state_put_row(double *to, const twh__state *from, int64_t r, double w, int add, int64_t dim)
{
  const char *row;

  if (from->b) {
    state_put_f64(to, from->b + r * dim, w, add, dim);
    return;
  }
  row = from->out + (from->at + (r - from->row) * from->at_step) * from->row_bytes;
  w *= from->factor[r];
  for (int64_t first = 0; first < dim; first += from->slice_dim, row += from->slice_bytes) {
    int64_t count = twh__min(from->slice_dim, dim - first);
    if (from->dtype == TWH_F32) {
      state_put_f32(to + first, (const float *)(const void *)row, w, add, count);
      continue;
    }
    for (int64_t done = 0; done < count; done += STATE_PIECE) {
      int64_t n = twh__min(STATE_PIECE, count - done);
      float   piece[STATE_PIECE];
      twh__to_f32(piece, row + done * twh__dtype_bytes(from->dtype), from->dtype, n);
      state_put_f32(to + first + done, piece, w, add, n);
    }
  }
}

TWH__CLONES void twh__state_merge(const twh__state *into, const twh__state *x, const twh__state *y, int64_t first, int64_t last,
                                  int64_t dim)
{
  for (int64_t r = first; r < last; ++r) {
    double *to = into->b + r * dim;

    if (!y || y->a[r] == 0 || x->a[r] == 0) { /* one of them is neutral */
      const twh__state *only = !y || y->a[r] == 0 ? x : y;
      into->m[r] = only->m[r];
      into->a[r] = only->a[r];
      if (only != into && only->a[r] != 0) state_put_row(to, only, r, 1, 0, dim);
    } else {
      double m = x->m[r] >= y->m[r] ? x->m[r] : y->m[r]; /* NaN in, NaN out */
      double w1 = x->a[r] * (x->m[r] == m ? 1 : exp(x->m[r] - m)), w2 = y->a[r] * (y->m[r] == m ? 1 : exp(y->m[r] - m));
      double a = w1 + w2;
      /* in place first, so that nothing is read after it was written */
      state_put_row(to, y == into ? y : x, r, (y == into ? w2 : w1) / a, 0, dim);
      state_put_row(to, y == into ? x : y, r, (y == into ? w1 : w2) / a, 1, dim);
      into->m[r] = m;
      into->a[r] = a;
    }
  }
}

void twh__state_add_sink(const twh__state *state, int64_t row, double sink, int64_t dim)
{
  double *m = &state->m[row], *a = &state->a[row], own;

  if (sink == -(double)INFINITY) return;
  if (*a == 0) {
    *m = sink;
    *a = 1;
    memset(state->b + row * dim, 0, (size_t)dim * sizeof *state->b);
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
  for (int64_t c = 0; c < dim; ++c) state->b[row * dim + c] *= own / *a;
}

void twh__state_write(const twh__state *state, int64_t row, int64_t dim, char *out, int32_t out_dtype, char *lse,
                      int32_t lse_dtype)
{
  if (state->a[row] == 0) memset(state->b + row * dim, 0, (size_t)dim * sizeof *state->b);
  twh__convert(out, out_dtype, state->b + row * dim, TWH_F64, dim);
  if (lse) twh__store(lse, lse_dtype, 0, state->a[row] == 0 ? -(double)INFINITY : state->m[row] + log(state->a[row]));
}
