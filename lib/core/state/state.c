/* The arithmetic of partial states.
 *
 *     m = max m_i,  w_i = a_i e^(m_i - m),  a = (w_0 + w_1) + (w_2 + w_3),  b = (w_0 b_0 + w_1 b_1) + (w_2 b_2 + w_3 b_3), w over a
 *
 * Always in this order, whichever state came first and whichever buffer takes the result, so that the bits are the same; the
 * compiler must not fuse a multiplication with an addition. */
#include <math.h>
#include <string.h>

#include "core/state/state.h"

/* A leaf's factor comes first: so a leaf has the same bits whether it is merged at once, or becomes a node before. */
TWH__CLONES void twh__state_read(double *to, const twh__state *from, int64_t at, double w, int64_t first, int64_t n,
                                 int64_t dim)
{
  const char *row;
  float       piece[TWH__STATE_PIECE];
  double      factor;

  if (from->b) {
    const double *wide = from->b + at * dim + first;
    for (int64_t c = 0; c < n; ++c) to[c] = w * wide[c];
    return;
  }
  row = from->out + at * from->row_bytes;
  factor = from->factor[at];
  for (int64_t done = 0, count; done < n; done += count) { /* slice by slice */
    int64_t     column = first + done, inside = column % from->slice_dim;
    const char *values = row + column / from->slice_dim * from->slice_bytes + inside * twh__dtype_bytes(from->dtype);
    count = twh__min(n - done, from->slice_dim - inside);
    if (from->dtype == TWH_F32) {
      const float *narrow = (const float *)(const void *)values;
      for (int64_t c = 0; c < count; ++c) to[done + c] = w * (factor * (double)narrow[c]);
    } else {
      twh__to_f32(piece, values, from->dtype, count);
      for (int64_t c = 0; c < count; ++c) to[done + c] = w * (factor * (double)piece[c]);
    }
  }
}

/* Most of the work of most executes: a row of four leaves in f32, in one pass. */
TWH__CLONES static void state_add_leaves(double *to, const float *const b[TWH__FAN], const double w[TWH__FAN],
                                         const double f[TWH__FAN], int64_t n)
{
  const float *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];
  double       w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3], f0 = f[0], f1 = f[1], f2 = f[2], f3 = f[3];

  for (int64_t c = 0; c < n; ++c) {
    to[c] = (w0 * (f0 * (double)b0[c]) + w1 * (f1 * (double)b1[c])) + (w2 * (f2 * (double)b2[c]) + w3 * (f3 * (double)b3[c]));
  }
}

/* The same for four nodes; one of them may be the result. */
TWH__CLONES static void state_add_nodes(double *to, const double *const b[TWH__FAN], const double w[TWH__FAN], int64_t n)
{
  const double *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];
  double        w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];

  for (int64_t c = 0; c < n; ++c) to[c] = (w0 * b0[c] + w1 * b1[c]) + (w2 * b2[c] + w3 * b3[c]);
}

/* What the four states are alike in: 1 leaves whose outputs lie together in f32, 2 nodes, 0 nothing. */
static int state_kind(const twh__state *const from[TWH__FAN], int64_t dim)
{
  int leaves = 0, nodes = 0;

  for (int i = 0; i < TWH__FAN; ++i) {
    if (!from[i]) return 0;
    nodes += from[i]->b != NULL;
    leaves += !from[i]->b && from[i]->dtype == TWH_F32 && from[i]->slice_dim >= dim;
  }
  return leaves == TWH__FAN ? 1 : nodes == TWH__FAN ? 2 : 0;
}

static void state_merge_leaves(double *to, const twh__state *const from[TWH__FAN], const int64_t at[TWH__FAN],
                               const double w[TWH__FAN], int64_t dim)
{
  const float *b[TWH__FAN];
  double       factor[TWH__FAN];

  for (int i = 0; i < TWH__FAN; ++i) {
    b[i] = (const float *)(const void *)(from[i]->out + at[i] * from[i]->row_bytes);
    factor[i] = from[i]->factor[at[i]];
  }
  state_add_leaves(to, b, w, factor, dim);
}

static void state_merge_nodes(double *to, const twh__state *const from[TWH__FAN], int64_t r, const double w[TWH__FAN],
                              int64_t dim)
{
  const double *b[TWH__FAN];

  for (int i = 0; i < TWH__FAN; ++i) b[i] = from[i]->b + r * dim;
  state_add_nodes(to, b, w, dim);
}

/* Set what a state has of the rows [first, first + n); what it says nothing about, and all other rows, is neutral. */
static void state_set_weights(twh__weights *weights, int i, const twh__state *from, int64_t first, int64_t n)
{
  double *a = weights->a[i], *m = weights->m[i];
  int     known = from && (from->b || from->role != TWH__DRAWN_SQUARES);

  if (known && n == TWH__STATE_ROWS &&
      (from->b || (from->at_step == 1 && first >= from->row && first + n <= from->row + from->rows))) {
    const double *own_a = from->a + twh__state_at(from, first), *own_m = from->m + twh__state_at(from, first);
    for (int r = 0; r < TWH__STATE_ROWS; ++r) a[r] = own_a[r];
    for (int r = 0; r < TWH__STATE_ROWS; ++r) m[r] = own_m[r];
    return;
  }
  for (int64_t r = 0; r < TWH__STATE_ROWS; ++r) {
    int64_t at = known && r < n ? twh__state_at(from, first + r) : -1;
    a[r] = at < 0 ? 0 : from->a[at];
    m[r] = at < 0 ? 0 : from->m[at];
  }
}

/* Any mixture of nodes and leaves, some of them missing, piece by piece. */
static void state_merge_any(double *to, const twh__state *const from[TWH__FAN], const int64_t at[TWH__FAN],
                            const double w[TWH__FAN], int64_t dim)
{
  static const double zeros[TWH__STATE_PIECE] = { 0 };
  double              memory[TWH__FAN][TWH__STATE_PIECE];
  const double       *part[TWH__FAN];

  for (int64_t done = 0; done < dim; done += TWH__STATE_PIECE) {
    int64_t n = twh__min(TWH__STATE_PIECE, dim - done);
    for (int i = 0; i < TWH__FAN; ++i) {
      part[i] = zeros;
      if (w[i] == 0) continue; /* neutral, or nothing beside the others */
      part[i] = from[i]->b ? from[i]->b + at[i] * dim + done : memory[i];
      if (!from[i]->b) twh__state_read(memory[i], from[i], at[i], 1, done, n, dim);
    }
    state_add_nodes(to + done, part, w, n);
  }
}

/* Row r, with the weights of row `t` of `weights`. */
static void state_merge_row(const twh__state *into, const twh__state *const from[TWH__FAN], const twh__weights *weights,
                            int64_t t, int64_t r, int kind, int64_t dim)
{
  double  w[TWH__FAN], *to = into->b + r * dim;
  int64_t at[TWH__FAN];
  int     only = 0, count = 0, all = 1;

  for (int i = 0; i < TWH__FAN; ++i) {
    w[i] = weights->a[i][t] == 0 ? 0 : weights->w[i][t]; /* a NaN of the others is none of its business */
    at[i] = from[i] ? twh__state_at(from[i], r) : -1;
    all &= w[i] != 0;
    if (weights->a[i][t] == 0) continue;
    only = i;
    ++count;
  }
  if (into->spread) twh__spread_merge(into, from, r, dim); /* before anything of `into` changes */
  into->m[r] = weights->largest[t];
  into->a[r] = count == 0 ? 0 : weights->sum[t];
  if (count == 0 || (count == 1 && from[only] == into)) return;
  if (count == 1) {
    for (int64_t c = 0; c < dim; c += TWH__STATE_PIECE) {
      twh__state_read(to + c, from[only], at[only], 1, c, twh__min(TWH__STATE_PIECE, dim - c), dim);
    }
  } else if (kind == 0 || !all) {
    state_merge_any(to, from, at, w, dim); /* a weight of 0 must not meet whatever stands there */
  } else if (kind == 1) {
    state_merge_leaves(to, from, at, w, dim);
  } else {
    state_merge_nodes(to, from, r, w, dim);
  }
}

void twh__state_merge(const twh__state *into, const twh__state *const from[TWH__FAN], int64_t first, int64_t last, int64_t dim)
{
  int          kind = state_kind(from, dim);
  twh__weights weights;

  for (int64_t r = first, n; r < last; r += n) {
    n = twh__min(TWH__STATE_ROWS, last - r);
    for (int i = 0; i < TWH__FAN; ++i) state_set_weights(&weights, i, from[i], r, n);
    twh__weights_set(&weights);
    for (int64_t t = 0; t < n; ++t) state_merge_row(into, from, &weights, t, r + t, kind, dim);
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
