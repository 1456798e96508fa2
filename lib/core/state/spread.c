/* How far the drawn keys of a row differ, and what that says of the error of its result.
 *
 * Drawn are j = 1 .. n, each with a sum a_j and an output o_j: samples of several keys that the kernel was called for, or single keys,
 * whose squares a second tile brings. With Z_j = a_j (o_j - R) the error of the row's result R is about the sum of Z_j over its own sum.
 * What is needed of them are sums, which add up along the tree as the results do, with an exponent of their own. */
#include <math.h>
#include <string.h>

#include "core/state/state.h"

#define SPREAD_MOST 0.9 /* x */

enum { SPREAD_BASE, SPREAD_SUM, SPREAD_SQUARES, SPREAD_NORMS, SPREAD_COLUMNS };

/* What one of the states adds. A leaf is made a node's sums first, and only then weighed: so that it has the same bits whether it merges at
 * once, or becomes a node before. */
typedef struct spread_part {
  const twh__state *leaf; /* NULL: a node, or nothing */
  const double     *own;  /* of a node */
  int64_t           at;
  double            sums[SPREAD_COLUMNS]; /* base -inf: it adds nothing */
  double            factor;
} spread_part;

static void spread_begin_leaf(spread_part *part, const twh__state *leaf)
{
  double a = leaf->a[part->at];

  part->leaf = leaf;
  part->sums[SPREAD_BASE] = leaf->m[part->at];
  part->sums[SPREAD_SUM] = a;
  part->sums[SPREAD_SQUARES] = leaf->role == TWH__DRAWN_SAMPLE ? a * a : 0;
  if (leaf->role != TWH__DRAWN_SQUARES) return;
  part->sums[SPREAD_BASE] /= 2;
  part->sums[SPREAD_SUM] = 0;
  part->sums[SPREAD_SQUARES] = a;
}

static void spread_begin(spread_part *part, const twh__state *from, int64_t row, int64_t dim)
{
  memset(part, 0, sizeof *part);
  part->sums[SPREAD_BASE] = -(double)INFINITY;
  if (!from) return;
  part->at = twh__state_at(from, row);
  if (from->b) {
    part->own = from->spread + part->at * TWH__SPREAD(dim);
    memcpy(part->sums, part->own, sizeof part->sums);
  } else if (part->at >= 0 && from->role != TWH__DRAWN_PLAIN && from->a[part->at] != 0) {
    spread_begin_leaf(part, from);
  }
}

/* n columns of a leaf, from `first` on: sums of first powers and of squares. */
static void spread_read(spread_part *part, int64_t first, int64_t n, int64_t dim, double *one, double *two)
{
  const double *centre = part->leaf->centre, a = part->leaf->a[part->at];
  double        output[TWH__STATE_PIECE], norms = 0;

  twh__state_read(output, part->leaf, part->at, first, n, dim);
  for (int64_t c = 0; c < n; ++c) {
    one[c] = a * output[c];
    two[c] = part->sums[SPREAD_SQUARES] * output[c];
    norms += output[c] * output[c];
  }
  for (int64_t c = 0; c < n && part->leaf->role == TWH__DRAWN_SQUARES; ++c) { /* back from where the values were moved to */
    double moved = output[c] * centre[dim];
    if (c == 0) norms = 0;
    norms += centre[first + c] * (2 * moved + centre[first + c]);
    one[c] = 0;
    two[c] = a * (centre[first + c] + moved);
  }
  part->sums[SPREAD_NORMS] += part->sums[SPREAD_SQUARES] * norms;
}

/* n columns of a part are added to the two sums. */
static void spread_add(spread_part *part, int64_t first, int64_t n, int64_t dim, double *one, double *two)
{
  double        memory[2][TWH__STATE_PIECE];
  const double *own = memory[0], *squares = memory[1];

  if (part->own) {
    own = part->own + SPREAD_COLUMNS + first;
    squares = own + dim;
  } else {
    spread_read(part, first, n, dim, memory[0], memory[1]);
  }
  for (int64_t c = 0; c < n; ++c) {
    one[c] += part->factor * own[c];
    two[c] += part->factor * part->factor * squares[c];
  }
}

/* Of squares the column behind the others is the square of the length. */
static void spread_add_norms(spread_part *part, int64_t dim)
{
  double norm;

  if (!part->leaf || part->leaf->role != TWH__DRAWN_SQUARES) return;
  twh__state_read(&norm, part->leaf, part->at, dim, 1, dim);
  part->sums[SPREAD_NORMS] += part->sums[SPREAD_SQUARES] * norm * part->leaf->centre[dim] * part->leaf->centre[dim];
}

void twh__spread_merge(const twh__state *into, const twh__state *const from[TWH__FAN], int64_t row, int64_t dim)
{
  double *to = into->spread + twh__state_at(into, row) * TWH__SPREAD(dim),
         sums[SPREAD_COLUMNS] = { -(double)INFINITY, 0, 0, 0 };
  spread_part part[TWH__FAN];

  for (int i = 0; i < TWH__FAN; ++i) {
    spread_begin(&part[i], from[i], row, dim);
    if (part[i].sums[SPREAD_BASE] != -(double)INFINITY && !(part[i].sums[SPREAD_BASE] <= sums[SPREAD_BASE])) {
      sums[SPREAD_BASE] = part[i].sums[SPREAD_BASE];
    }
  }
  for (int i = 0; i < TWH__FAN; ++i) part[i].factor = exp(part[i].sums[SPREAD_BASE] - sums[SPREAD_BASE]);
  for (int64_t first = 0, n; first < dim; first += n) {
    double one[TWH__STATE_PIECE] = { 0 }, two[TWH__STATE_PIECE] = { 0 };
    n = twh__min(TWH__STATE_PIECE, dim - first);
    for (int i = 0; i < TWH__FAN; ++i) {
      if (part[i].sums[SPREAD_BASE] != -(double)INFINITY) spread_add(&part[i], first, n, dim, one, two);
    }
    memcpy(to + SPREAD_COLUMNS + first, one, (size_t)n * sizeof *to);
    memcpy(to + SPREAD_COLUMNS + dim + first, two, (size_t)n * sizeof *to);
  }
  for (int i = 0; i < TWH__FAN; ++i) {
    if (part[i].sums[SPREAD_BASE] == -(double)INFINITY) continue;
    spread_add_norms(&part[i], dim);
    sums[SPREAD_SUM] += part[i].factor * part[i].sums[SPREAD_SUM];
    sums[SPREAD_SQUARES] += part[i].factor * part[i].factor * part[i].sums[SPREAD_SQUARES];
    sums[SPREAD_NORMS] += part[i].factor * part[i].factor * part[i].sums[SPREAD_NORMS];
  }
  memcpy(to, sums, sizeof sums);
}

/* The variance of the sum of Z_j is that of the samples about their mean, less what a draw without replacement takes away. That takes the
 * row's own sum for known. Where the a_j differ it is too little; with two samples, leaving out each in turn (the jackknife)
 * gives (1 + x) / (1 - x)^2 times that, x the relative variance of their sum. Where one of them is nearly all of it, x is
 * nearly 1: R is about its output, their differences vanish, and nothing is known of the others. */
double twh__spread_error(const twh__state *state, int64_t row, int64_t count, double share, int64_t dim)
{
  const double *spread = state->spread + row * TWH__SPREAD(dim), *out = state->b + row * dim, n = (double)count;
  double        sum = spread[SPREAD_SUM], squares = spread[SPREAD_NORMS], mean = 0, weight, part, x;

  if (share >= 1 || state->a[row] == 0 || sum == 0) return 0;
  if (count < 2) return (double)INFINITY;
  for (int64_t c = 0; c < dim; ++c) {
    double total = spread[SPREAD_COLUMNS + c] - out[c] * sum;
    squares += out[c] * (out[c] * spread[SPREAD_SQUARES] - 2 * spread[SPREAD_COLUMNS + dim + c]);
    mean += total * total / n;
  }
  weight = exp(spread[SPREAD_BASE] - state->m[row]) / state->a[row];
  part = sum * weight;
  x = (n * spread[SPREAD_SQUARES] / (sum * sum) - 1) * part * part / (n - 1);
  squares = (squares - mean) * n / (n - 1) * (1 - share);
  if (isnan(squares)) return squares;
  if (!(x < SPREAD_MOST)) return (double)INFINITY;
  if (!(squares > 0)) return 0;
  return sqrt(squares * (1 + x)) / (1 - x) * weight;
}
