/* The values that second moments are made of: of each key its own, moved and scaled, and the square of their length.
 *
 * Sums of a^2 |v - R|^2 are wanted for a result R that is not known yet. Summed as they are, v would lose all in which it differs
 * from a large mean; so each tile's values are moved by their mean c, and scaled by a power of two s, so that the longest is
 * SQUARES_LONGEST / 2 to SQUARES_LONGEST long: its square fits f16, and those of much shorter ones are no zeros there. */
#include <math.h>

#include "core/encode/operand.h"

#define SQUARES_LONGEST 128

static const char *squares_row(const twh__source *source, const twh__tile *tile, int64_t j)
{
  const twh__span *span = twh__source_span(source, tile);
  return twh__view_row(source->v, span->batch, tile->unit.kv_head, twh__tile_key_row(span, tile, twh__tile_key(tile, j)));
}

static double squares_norm(const twh__source *source, const double *centre, const char *from)
{
  int64_t dim = source->shape->v_dim - 1;
  double  sum = 0;

  for (int64_t c = 0; c < dim; ++c) {
    double moved = (twh__load(from, source->v->dtype, c) - centre[c]) / centre[dim];
    sum += moved * moved;
  }
  return sum;
}

static void squares_centre(const twh__source *source, const twh__tile *tile, double *centre)
{
  int64_t dim = source->shape->v_dim - 1;
  double  largest = 0;
  int     exponent;

  for (int64_t c = 0; c <= dim; ++c) centre[c] = 0;
  for (int64_t j = 0; j < tile->keys; ++j) {
    const char *row = squares_row(source, tile, j);
    for (int64_t c = 0; c < dim; ++c) centre[c] += twh__load(row, source->v->dtype, c) / (double)tile->keys;
  }
  for (int64_t j = 0; j < tile->keys; ++j) {
    const char *row = squares_row(source, tile, j);
    for (int64_t c = 0; c < dim; ++c) largest = fmax(largest, fabs(twh__load(row, source->v->dtype, c) - centre[c]));
  }
  centre[dim] = 1;
  if (!(largest > 0 && largest <= 0x1p1000)) return;
  (void)frexp(largest, &exponent);
  centre[dim] = ldexp(1, exponent); /* for now: no square overflows */
  largest = 0;
  for (int64_t j = 0; j < tile->keys; ++j) largest = fmax(largest, squares_norm(source, centre, squares_row(source, tile, j)));
  (void)frexp(sqrt(largest) / SQUARES_LONGEST, &exponent);
  centre[dim] *= ldexp(1, exponent);
}

void twh__encode_centres(const twh__source *source, const twh__slot *slot)
{
  for (int64_t t = 0; t < slot->count; ++t) {
    squares_centre(source, &slot->tiles[t], source->centres + t * TWH__CENTRE(source->shape->v_dim - 1));
  }
}

void twh__squares_read(double *to, const twh__source *source, const double *centre, const char *from, int64_t first, int64_t n)
{
  int64_t dim = source->shape->v_dim - 1;

  for (int64_t c = 0; c < n; ++c) {
    to[c] = first + c == dim ? squares_norm(source, centre, from)
                             : (twh__load(from, source->v->dtype, first + c) - centre[first + c]) / centre[dim];
  }
}
