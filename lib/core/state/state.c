/* The arithmetic of partial states.
 *
 *     m = max(m1, m2),  w_i = a_i e^(m_i - m),  a = w1 + w2,  b = (w1 b1 + w2 b2) / a
 *
 * Symmetric in its operands to the last bit, as long as the compiler fuses no multiplication with an addition. */
#include <math.h>
#include <string.h>

#include "core/state/state.h"

enum { STATE_PIECE = 128 };

/* Outputs of one row that lie together: float64 of a node, or f32 of a leaf whose values are not in slices. */
typedef struct state_row {
  const double *wide;
  const float  *narrow;
} state_row;

static const char *state_leaf_row(const twh__state *leaf, int64_t r)
{
  return leaf->out + (leaf->at + (r - leaf->row) * leaf->at_step) * leaf->row_bytes;
}

/* to[c] = w from[c], or to[c] += w from[c], with the outputs of row r of any state. */
TWH__CLONES static void state_put(double *to, const twh__state *from, int64_t r, double w, int add, int64_t dim)
{
  const char *row;

  if (from->b) {
    for (int64_t c = 0; c < dim; ++c) to[c] = (add ? to[c] : 0) + w * from->b[r * dim + c];
    return;
  }
  row = state_leaf_row(from, r);
  w *= from->factor[r];
  for (int64_t first = 0; first < dim; first += from->slice_dim, row += from->slice_bytes) {
    int64_t count = twh__min(from->slice_dim, dim - first);
    for (int64_t done = 0; done < count; done += STATE_PIECE) {
      int64_t n = twh__min(STATE_PIECE, count - done);
      float   piece[STATE_PIECE];
      double *at = to + first + done;
      twh__to_f32(piece, row + done * twh__dtype_bytes(from->dtype), from->dtype, n);
      for (int64_t c = 0; c < n; ++c) at[c] = (add ? at[c] : 0) + w * (double)piece[c];
    }
  }
}

/* The row where it lies, and its weight with the leaf's factor; 0 if it lies in pieces. */
static int state_lies_together(const twh__state *from, int64_t r, int64_t dim, state_row *row, double *w)
{
  row->wide = from->b ? from->b + r * dim : NULL;
  row->narrow = NULL;
  if (from->b) return 1;
  if (from->dtype != TWH_F32 || from->slice_dim < dim) return 0;
  row->narrow = (const float *)(const void *)state_leaf_row(from, r);
  *w *= from->factor[r];
  return 1;
}

/* to = w1 x + w2 y in one pass. */
TWH__CLONES static void state_pair(double *to, state_row x, double w1, state_row y, double w2, int64_t dim)
{
  if (x.wide && y.wide) {
    for (int64_t c = 0; c < dim; ++c) to[c] = w1 * x.wide[c] + w2 * y.wide[c];
  } else if (x.wide) {
    for (int64_t c = 0; c < dim; ++c) to[c] = w1 * x.wide[c] + w2 * (double)y.narrow[c];
  } else if (y.wide) {
    for (int64_t c = 0; c < dim; ++c) to[c] = w1 * (double)x.narrow[c] + w2 * y.wide[c];
  } else {
    for (int64_t c = 0; c < dim; ++c) to[c] = w1 * (double)x.narrow[c] + w2 * (double)y.narrow[c];
  }
}

static void state_combine(const twh__state *into, const twh__state *x, double w1, const twh__state *y, double w2, int64_t r,
                          int64_t dim)
{
  double   *to = into->b + r * dim, f1 = w1, f2 = w2;
  state_row left, right;

  if (state_lies_together(x, r, dim, &left, &f1) && state_lies_together(y, r, dim, &right, &f2)) {
    state_pair(to, left, f1, right, f2, dim);
  } else {
    /* in place first, so that nothing is read after it was written */
    state_put(to, y == into ? y : x, r, y == into ? w2 : w1, 0, dim);
    state_put(to, y == into ? x : y, r, y == into ? w1 : w2, 1, dim);
  }
}

void twh__state_merge(const twh__state *into, const twh__state *x, const twh__state *y, int64_t first, int64_t last, int64_t dim)
{
  for (int64_t r = first; r < last; ++r) {
    if (!y || y->a[r] == 0 || x->a[r] == 0) { /* one of them is neutral */
      const twh__state *only = !y || y->a[r] == 0 ? x : y;
      into->m[r] = only->m[r];
      into->a[r] = only->a[r];
      if (only != into && only->a[r] != 0) state_put(into->b + r * dim, only, r, 1, 0, dim);
    } else {
      double m = x->m[r] >= y->m[r] ? x->m[r] : y->m[r]; /* NaN in, NaN out */
      double w1 = x->a[r] * (x->m[r] == m ? 1 : exp(x->m[r] - m)), w2 = y->a[r] * (y->m[r] == m ? 1 : exp(y->m[r] - m));
      double a = w1 + w2, part = 1 / a;
      state_combine(into, x, w1 * part, y, w2 * part, r, dim);
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
