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
TWH__CLONES void twh__state_read(double *to, const twh__state *from, int64_t at, int64_t first, int64_t n, int64_t dim)
{
  const char *row;
  float       piece[TWH__STATE_PIECE];
  double      factor;

  if (from->b) {
    const double *wide = from->b + at * dim + first;
    for (int64_t c = 0; c < n; ++c) to[c] = wide[c];
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
      for (int64_t c = 0; c < count; ++c) to[done + c] = factor * (double)narrow[c];
    } else {
      twh__to_f32(piece, values, from->dtype, count);
      for (int64_t c = 0; c < count; ++c) to[done + c] = factor * (double)piece[c];
    }
  }
}

/* Rows that follow each other of one of the states: in f32 as a kernel wrote them, or a node's. */
typedef struct state_rows {
  const char *first; /* NULL: the state is missing */
  int64_t     row_bytes;
  int         narrow;
} state_rows;

static const float *state_narrow(const state_rows *rows, int64_t r)
{
  return (const float *)(const void *)(rows->first + r * rows->row_bytes);
}

static const double *state_wide(const state_rows *rows, int64_t r)
{
  return (const double *)(const void *)(rows->first + r * rows->row_bytes);
}

/* Most of the work of most executes: four leaves. */
TWH__CLONES static void state_add_leaves(double *to, const state_rows from[TWH__FAN], const twh__weights *weights, int64_t rows,
                                         int64_t dim)
{
  for (int64_t r = 0; r < rows; ++r, to += dim) {
    const float *b0 = state_narrow(&from[0], r), *b1 = state_narrow(&from[1], r), *b2 = state_narrow(&from[2], r),
                *b3 = state_narrow(&from[3], r);
    double w0 = weights->w[0][r], w1 = weights->w[1][r], w2 = weights->w[2][r], w3 = weights->w[3][r];
    TWH__INDEPENDENT
    for (int64_t c = 0; c < dim; ++c) {
      to[c] = (w0 * (double)b0[c] + w1 * (double)b1[c]) + (w2 * (double)b2[c] + w3 * (double)b3[c]);
    }
  }
}

/* Four nodes; one of them may be the result. */
TWH__CLONES static void state_add_nodes(double *to, const state_rows from[TWH__FAN], const twh__weights *weights, int64_t rows,
                                        int64_t dim)
{
  for (int64_t r = 0; r < rows; ++r, to += dim) {
    const double *b0 = state_wide(&from[0], r), *b1 = state_wide(&from[1], r), *b2 = state_wide(&from[2], r),
                 *b3 = state_wide(&from[3], r);
    double w0 = weights->w[0][r], w1 = weights->w[1][r], w2 = weights->w[2][r], w3 = weights->w[3][r];
    TWH__INDEPENDENT
    for (int64_t c = 0; c < dim; ++c) to[c] = (w0 * b0[c] + w1 * b1[c]) + (w2 * b2[c] + w3 * b3[c]);
  }
}

/* One half of the sum, x and y or x alone, is added to what stands there, or with `first` set: `zero` is then what a missing other
 * half adds, -0.0 if there is one still to come. */
#define STATE_HALF(half) \
  if (first) { \
    TWH__INDEPENDENT \
    for (int64_t c = 0; c < dim; ++c) to[c] = (half) + zero; \
  } else { \
    TWH__INDEPENDENT \
    for (int64_t c = 0; c < dim; ++c) to[c] = to[c] + (half); \
  }

TWH__CLONES static void state_add_pair(double *to, const state_rows *x, const double *wx, const state_rows *y, const double *wy,
                                       int first, double zero, int64_t rows, int64_t dim)
{
  for (int64_t r = 0; r < rows; ++r, to += dim) {
    const state_rows *other = y->first ? y : x;
    const float      *nx = state_narrow(x, r), *ny = state_narrow(other, r);
    const double     *dx = state_wide(x, r), *dy = state_wide(other, r), w0 = wx[r], w1 = wy[r];
    if (!y->first) {
      if (x->narrow) {
        STATE_HALF(w0 * (double)nx[c] + 0.0)
      } else {
        STATE_HALF(w0 * dx[c] + 0.0)
      }
    } else if (x->narrow && y->narrow) {
      STATE_HALF(w0 * (double)nx[c] + w1 * (double)ny[c])
    } else if (x->narrow) {
      STATE_HALF(w0 * (double)nx[c] + w1 * dy[c])
    } else if (y->narrow) {
      STATE_HALF(w0 * dx[c] + w1 * (double)ny[c])
    } else {
      STATE_HALF(w0 * dx[c] + w1 * dy[c])
    }
  }
}

TWH__CLONES static void state_copy_leaf(double *to, const state_rows *from, int64_t rows, int64_t dim)
{
  for (int64_t r = 0; r < rows; ++r, to += dim) {
    const float *b = state_narrow(from, r);
    for (int64_t c = 0; c < dim; ++c) to[c] = (double)b[c];
  }
}

/* Any mixture of leaves and nodes, some of them missing. */
static void state_add_mixed(double *to, const state_rows from[TWH__FAN], const twh__weights *weights, int64_t rows, int64_t dim)
{
  const state_rows *pair[2][2];
  const double     *w[2][2];
  int               there[2], begin;

  for (int i = 0; i < 2; ++i) {
    int swap = !from[2 * i].first;
    for (int j = 0; j < 2; ++j) {
      pair[i][j] = &from[2 * i + (j ^ swap)];
      w[i][j] = weights->w[2 * i + (j ^ swap)];
    }
    there[i] = pair[i][0]->first != NULL;
  }
  /* the half that the result is part of, before it is overwritten */
  begin = from[2].first == (const char *)to || from[3].first == (const char *)to || !there[0];
  for (int i = 0; i < 2; ++i) {
    int half = i ^ begin;
    if (!there[half]) continue;
    state_add_pair(to, pair[half][0], w[half][0], pair[half][1], w[half][1], i == 0, there[!half] ? -0.0 : 0.0, rows, dim);
  }
}

/* Set what a state has of the rows [first, first + n); what it says nothing about, and all other rows, is neutral. Returns whether all
 * of the rows lie where `rows` says, to be added as they are. */
static int state_set_weights(twh__weights *weights, int i, const twh__state *from, int64_t first, int64_t n, int64_t dim,
                             state_rows *rows)
{
  double *a = weights->a[i], *m = weights->m[i];
  int     known = from && (from->b || from->role != TWH__DRAWN_SQUARES), plain = 1;
  int64_t at, step;

  rows->first = NULL;
  rows->row_bytes = 0;
  rows->narrow = 0;
  if (!known || n < TWH__STATE_ROWS || (!from->b && (first < from->row || first + n > from->row + from->rows))) {
    for (int64_t r = 0; r < TWH__STATE_ROWS; ++r) {
      at = known && r < n ? twh__state_at(from, first + r) : -1;
      a[r] = at < 0 ? 0 : from->a[at];
      m[r] = at < 0 ? 0 : from->m[at];
    }
    return !from;
  }
  at = twh__state_at(from, first);
  step = from->b ? 1 : from->at_step;
  if (step == 1) {
    memcpy(a, from->a + at, sizeof weights->a[i]);
    memcpy(m, from->m + at, sizeof weights->m[i]);
  } else {
    for (int r = 0; r < TWH__STATE_ROWS; ++r) a[r] = from->a[at + r * step];
    for (int r = 0; r < TWH__STATE_ROWS; ++r) m[r] = from->m[at + r * step];
  }
  for (int r = 0; r < TWH__STATE_ROWS; ++r) plain &= a[r] != 0;
  if (from->b) {
    rows->first = (const char *)(from->b + at * dim);
    rows->row_bytes = dim * (int64_t)sizeof(double);
    return plain;
  }
  for (int r = 0; r < TWH__STATE_ROWS; ++r) plain &= from->factor[at + r * step] == 1;
  rows->first = from->out + at * from->row_bytes;
  rows->row_bytes = step * from->row_bytes;
  rows->narrow = 1;
  return plain && from->dtype == TWH_F32 && from->slice_dim >= dim;
}

/* Whether a weight is 0, as no e^x of numbers nearby is: it must not meet whatever stands there. */
static int state_has_zero(const twh__weights *weights, const state_rows from[TWH__FAN])
{
  int zero = 0;

  for (int i = 0; i < TWH__FAN; ++i) {
    for (int r = 0; r < TWH__STATE_ROWS && from[i].first; ++r) zero |= weights->w[i][r] == 0;
  }
  return zero;
}

/* A block of rows that all states have which are there at all. */
static void state_merge_block(const twh__state *into, const state_rows from[TWH__FAN], const twh__weights *weights,
                              int64_t first, int64_t dim)
{
  int64_t at = twh__state_at(into, first);
  double *to = into->b + at * dim;
  int     count = 0, narrow = 0, only = 0;

  for (int i = 0; i < TWH__FAN; ++i) {
    if (!from[i].first) continue;
    only = i;
    ++count;
    narrow += from[i].narrow;
  }
  memcpy(into->m + at, weights->largest, sizeof weights->largest);
  memcpy(into->a + at, weights->sum, sizeof weights->sum);
  if (count == 1 && narrow == 1) {
    state_copy_leaf(to, &from[only], TWH__STATE_ROWS, dim);
  } else if (count == 1) {
    if (from[only].first != (const char *)to) memcpy(to, from[only].first, (size_t)(TWH__STATE_ROWS * dim) * sizeof *to);
  } else if (narrow == TWH__FAN) {
    state_add_leaves(to, from, weights, TWH__STATE_ROWS, dim);
  } else if (narrow == 0 && count == TWH__FAN) {
    state_add_nodes(to, from, weights, TWH__STATE_ROWS, dim);
  } else {
    state_add_mixed(to, from, weights, TWH__STATE_ROWS, dim);
  }
}

/* One row of any states, piece by piece. */
static void state_merge_any(double *to, const twh__state *const from[TWH__FAN], const int64_t at[TWH__FAN],
                            const double w[TWH__FAN], int64_t dim)
{
  static const double zeros[TWH__STATE_PIECE] = { 0 };
  double              memory[TWH__FAN][TWH__STATE_PIECE];
  twh__weights        weights;
  state_rows          part[TWH__FAN];

  for (int i = 0; i < TWH__FAN; ++i) weights.w[i][0] = w[i];
  for (int64_t done = 0; done < dim; done += TWH__STATE_PIECE) {
    int64_t n = twh__min(TWH__STATE_PIECE, dim - done);
    for (int i = 0; i < TWH__FAN; ++i) {
      const double *wide = zeros;
      if (w[i] != 0)
        wide = from[i]->b ? from[i]->b + at[i] * dim + done : memory[i]; /* 0: neutral, or nothing beside the others */
      if (wide == memory[i]) twh__state_read(memory[i], from[i], at[i], done, n, dim);
      part[i].first = (const char *)wide;
      part[i].row_bytes = 0;
    }
    state_add_nodes(to + done, part, &weights, 1, n);
  }
}

/* Row r, with the weights of row `t` of `weights`. */
static void state_merge_row(const twh__state *into, const twh__state *const from[TWH__FAN], const twh__weights *weights,
                            int64_t t, int64_t r, int64_t dim)
{
  int64_t at[TWH__FAN], own = twh__state_at(into, r);
  double  w[TWH__FAN], *to = into->b + own * dim;
  int     only = 0, count = 0;

  for (int i = 0; i < TWH__FAN; ++i) {
    w[i] = weights->a[i][t] == 0 ? 0 : weights->w[i][t]; /* a NaN of the others is none of its business */
    at[i] = from[i] ? twh__state_at(from[i], r) : -1;
    if (weights->a[i][t] == 0) continue;
    only = i;
    ++count;
  }
  into->m[own] = weights->largest[t];
  into->a[own] = count == 0 ? 0 : weights->sum[t];
  if (count == 0 || (count == 1 && from[only] == into)) return;
  if (count > 1) {
    state_merge_any(to, from, at, w, dim);
    return;
  }
  for (int64_t c = 0; c < dim; c += TWH__STATE_PIECE) {
    twh__state_read(to + c, from[only], at[only], c, twh__min(TWH__STATE_PIECE, dim - c), dim);
  }
}

void twh__state_merge(const twh__state *into, const twh__state *const from[TWH__FAN], int64_t first, int64_t last, int64_t dim)
{
  twh__weights weights;
  state_rows   rows[TWH__FAN];

  for (int64_t r = first, n; r < last; r += n) {
    int plain = 1;
    n = twh__min(TWH__STATE_ROWS, last - r);
    for (int i = 0; i < TWH__FAN; ++i) plain &= state_set_weights(&weights, i, from[i], r, n, dim, &rows[i]);
    twh__weights_set(&weights);
    for (int64_t t = 0; t < n && into->spread; ++t) twh__spread_merge(into, from, r + t, dim); /* before `into` changes */
    if (plain && n == TWH__STATE_ROWS && !state_has_zero(&weights, rows)) {
      state_merge_block(into, rows, &weights, r, dim);
    } else {
      for (int64_t t = 0; t < n; ++t) state_merge_row(into, from, &weights, t, r + t, dim);
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

/* A leaf's row, in the dtype of the kernel or of the result. */
static void state_write_leaf(const twh__state *leaf, int64_t at, int64_t dim, char *out, int32_t out_dtype)
{
  const char *row = leaf->out + at * leaf->row_bytes;
  double      piece[TWH__STATE_PIECE];

  if (leaf->factor[at] == 1 && leaf->slice_dim >= dim) {
    if (row != out) twh__convert(out, out_dtype, row, leaf->dtype, dim);
    return;
  }
  for (int64_t c = 0; c < dim; c += TWH__STATE_PIECE) {
    int64_t n = twh__min(TWH__STATE_PIECE, dim - c);
    twh__state_read(piece, leaf, at, c, n, dim);
    twh__convert(out + c * twh__dtype_bytes(out_dtype), out_dtype, piece, TWH_F64, n);
  }
}

void twh__state_write(const twh__state *state, int64_t at, int64_t dim, char *out, int32_t out_dtype, char *lse,
                      int32_t lse_dtype)
{
  int empty = at < 0 || state->a[at] == 0;

  if (empty) {
    memset(out, 0, (size_t)(dim * twh__dtype_bytes(out_dtype))); /* zeros of any dtype */
  } else if (state->b) {
    twh__convert(out, out_dtype, state->b + at * dim, TWH_F64, dim);
  } else {
    state_write_leaf(state, at, dim, out, out_dtype);
  }
  if (lse) twh__store(lse, lse_dtype, 0, empty ? -(double)INFINITY : state->m[at] + log(state->a[at]));
}
