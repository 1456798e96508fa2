/* How far the drawn keys of a row differ, and what that says of the error of its result.
 *
 * Drawn are j = 1 .. n, each with a sum a_j and an output o_j: samples of several keys that the kernel was called for, or single keys,
 * whose squares a second tile brings. With Z_j = a_j (o_j - R) the error of the row's result R is about the sum of Z_j over its own sum.
 * What is needed of them are sums, which add up along the tree as the results do, with an exponent of their own. */
#include <math.h>
#include <string.h>

#include "core/state/state.h"

enum { SPREAD_BASE, SPREAD_SUM, SPREAD_SQUARES, SPREAD_NORMS, SPREAD_COLUMNS };

/* What one of the states adds: a node its sums, a leaf what its role is. */
typedef struct spread_part {
  const twh__state *leaf; /* NULL: a node, or nothing */
  const double     *own;  /* of a node */
  int64_t           at;
  double            base;     /* -inf: it adds nothing */
  double            one, two; /* factors of first powers and of squares */
} spread_part;

static spread_part spread_begin(const twh__state *from, int64_t row, int64_t dim)
{
  spread_part part = { NULL, NULL, -1, -(double)INFINITY, 0, 0 };

  if (!from) return part;
  part.at = twh__state_at(from, row);
  if (from->b) {
    part.own = from->spread + part.at * TWH__SPREAD(dim);
    part.base = part.own[SPREAD_BASE];
  } else if (part.at >= 0 && from->role != TWH__DRAWN_PLAIN && from->a[part.at] != 0) {
    part.leaf = from;
    part.base = from->role == TWH__DRAWN_SQUARES ? from->m[part.at] / 2 : from->m[part.at];
  }
  return part;
}

static void spread_weigh(spread_part *part, double base)
{
  double factor = part->base == base ? 1 : exp(part->base - base), a;

  part->one = factor;
  part->two = factor * factor;
  if (!part->leaf) return;
  a = part->leaf->a[part->at];
  if (part->leaf->role == TWH__DRAWN_SQUARES) {
    part->one = 0;
    part->two *= a;
  } else {
    part->one *= a;
    part->two = part->leaf->role == TWH__DRAWN_SAMPLE ? part->one * part->one : 0;
  }
}

/* n columns of one part, from `first` on: first powers and squares are added to the two sums. Returns its sum of squares times |o|^2. */
static double spread_add(const spread_part *part, int64_t first, int64_t n, int64_t dim, double *one, double *two)
{
  double        output[TWH__STATE_PIECE], norms = 0;
  const double *own = part->own ? part->own + SPREAD_COLUMNS + first : NULL, *centre;

  if (own) {
    for (int64_t c = 0; c < n; ++c) {
      one[c] += part->one * own[c];
      two[c] += part->two * own[dim + c];
    }
    return 0;
  }
  twh__state_read(output, part->leaf, part->at, 1, first, n, dim);
  if (part->leaf->role == TWH__DRAWN_SQUARES) { /* back from where the values were moved to */
    centre = part->leaf->centre;
    for (int64_t c = 0; c < n; ++c) {
      double moved = output[c] * centre[dim];
      norms += centre[first + c] * (2 * moved + centre[first + c]);
      two[c] += part->two * (centre[first + c] + moved);
    }
    return part->two * norms;
  }
  for (int64_t c = 0; c < n; ++c) {
    one[c] += part->one * output[c];
    two[c] += part->two * output[c];
    norms += output[c] * output[c];
  }
  return part->two * norms;
}

/* The sums that are no columns. */
static void spread_add_sums(const spread_part *part, int64_t dim, double sums[SPREAD_COLUMNS])
{
  if (part->own) {
    sums[SPREAD_SUM] += part->one * part->own[SPREAD_SUM];
    sums[SPREAD_SQUARES] += part->two * part->own[SPREAD_SQUARES];
    sums[SPREAD_NORMS] += part->two * part->own[SPREAD_NORMS];
  } else {
    sums[SPREAD_SUM] += part->one;
    sums[SPREAD_SQUARES] += part->two;
    if (part->leaf->role == TWH__DRAWN_SQUARES) {
      double norm;
      twh__state_read(&norm, part->leaf, part->at, 1, dim, 1, dim);
      sums[SPREAD_NORMS] += part->two * norm * part->leaf->centre[dim] * part->leaf->centre[dim];
    }
  }
}

void twh__spread_merge(const twh__state *into, const twh__state *const from[TWH__FAN], int64_t row, int64_t dim)
{
  double     *to = into->spread + row * TWH__SPREAD(dim), sums[SPREAD_COLUMNS] = { -(double)INFINITY, 0, 0, 0 };
  spread_part part[TWH__FAN];

  for (int i = 0; i < TWH__FAN; ++i) {
    part[i] = spread_begin(from[i], row, dim);
    if (part[i].base != -(double)INFINITY && !(part[i].base <= sums[SPREAD_BASE])) sums[SPREAD_BASE] = part[i].base;
  }
  for (int i = 0; i < TWH__FAN; ++i) {
    if (part[i].base == -(double)INFINITY) continue;
    spread_weigh(&part[i], sums[SPREAD_BASE]);
    spread_add_sums(&part[i], dim, sums);
  }
  for (int64_t first = 0, n; first < dim; first += n) {
    double one[TWH__STATE_PIECE] = { 0 }, two[TWH__STATE_PIECE] = { 0 };
    n = twh__min(TWH__STATE_PIECE, dim - first);
    for (int i = 0; i < TWH__FAN; ++i) {
      if (part[i].base != -(double)INFINITY) sums[SPREAD_NORMS] += spread_add(&part[i], first, n, dim, one, two);
    }
    memcpy(to + SPREAD_COLUMNS + first, one, (size_t)n * sizeof *to);
    memcpy(to + SPREAD_COLUMNS + dim + first, two, (size_t)n * sizeof *to);
  }
  memcpy(to, sums, sizeof sums);
}

/* The variance of the sum of Z_j is that of the samples about their mean, less what a draw without replacement takes away. That takes the
 * row's own sum for known. Where the a_j differ it is too little; with two samples, leaving out each in turn (the jackknife)
 * gives (1 + x) / (1 - x)^2 times that, x the relative variance of their sum. */
double twh__spread_error(const twh__state *state, int64_t row, int64_t count, double share, int64_t dim)
{
  const double *spread = state->spread + row * TWH__SPREAD(dim), *out = state->b + row * dim, n = (double)count;
  double        sum = spread[SPREAD_SUM], squares = spread[SPREAD_NORMS], mean = 0, weight, part, x;

  if (count < 2 || share >= 1 || state->a[row] == 0) return 0;
  for (int64_t c = 0; c < dim; ++c) {
    double total = spread[SPREAD_COLUMNS + c] - out[c] * sum;
    squares += out[c] * (out[c] * spread[SPREAD_SQUARES] - 2 * spread[SPREAD_COLUMNS + dim + c]);
    mean += total * total / n;
  }
  weight = exp(spread[SPREAD_BASE] - state->m[row]) / state->a[row];
  part = sum * weight;
  x = (n * spread[SPREAD_SQUARES] / (sum * sum) - 1) * part * part / (n - 1);
  x = x < 0.9 ? x : 0.9;
  squares = (squares - mean) * n / (n - 1) * (1 - share);
  if (!(squares > 0)) return isnan(squares) ? squares : 0;
  return sqrt(squares * (1 + x)) / (1 - x) * weight;
}
