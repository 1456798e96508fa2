/* Rows that the first calls of a tile did not tell enough about: read from the bucket call, or computed by the host.
 *
 * The bucket call has the tile's queries and keys and one-hot values: column h of its output is the total weight of the keys at
 * positions j with j mod v_dim = h. Its total over all columns is the weight of everything that counts, which also settles tiles
 * whose pads have a weight of their own. */
#include <math.h>
#include <string.h>

#include "core/encode/score.h"

/* ln A of one row and the factor of its outputs; NaN if the kernel gave nothing usable. */
static double repair_row(const twh__result *result, int64_t i, double *factor)
{
  const twh__lowering *lowering = result->lowering;
  const twh__tile     *tile = result->tile;
  const char          *row = result->buckets + (tile->at + i * tile->at_step) * result->out_row_bytes;
  int64_t              columns = twh__min(lowering->v_dim, tile->keys), heaviest = 0;
  double               most = -1, total = 0, score;
  twh__log_sum         sum = { -(double)INFINITY, 0 };

  for (int64_t c = 0; c < columns; ++c) {
    double weight = twh__load(row, lowering->out_dtype, c);
    total += weight;
    if (weight > most) {
      most = weight;
      heaviest = c;
    }
  }
  *factor = 1;
  if (!(most >= lowering->flag_below) || !isfinite(total)) return (double)NAN;
  for (int64_t at = heaviest; at < tile->keys; at += lowering->v_dim) {
    if (twh__score(result, i, at, &score)) twh__log_sum_add(&sum, score);
  }
  if (tile->pads == TWH__PAD_MEAN || tile->pads == TWH__PAD_COPIES) {
    *factor = 1 / total;
    most /= total;
  }
  score = twh__log_sum_value(&sum) - log(most);
  return isfinite(score) ? score : (double)NAN;
}

int64_t twh__decode_repair(const twh__result *result, const twh__state *state)
{
  const twh__tile *tile = result->tile;
  int64_t          dim = result->shape->v_dim, left = 0;

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t row = tile->row + i;
    double  factor;
    if (!isnan(state->m[row])) continue;
    state->m[row] = repair_row(result, i, &factor);
    if (isnan(state->m[row])) {
      ++left;
    } else if (factor != 1) {
      for (int64_t c = 0; c < dim; ++c) state->b[row * dim + c] = (float)(state->b[row * dim + c] * factor);
    }
  }
  return left;
}

void twh__decode_host(const twh__result *result, const twh__source *source, const twh__state *state)
{
  const twh__tile *tile = result->tile;
  int64_t          dim = result->shape->v_dim;

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t row = tile->row + i;
    double  score, largest = -(double)INFINITY, total = 0;
    float  *b = state->b + row * dim;
    if (!isnan(state->m[row])) continue;
    for (int64_t at = 0; at < tile->keys; ++at) {
      if (twh__score(result, i, at, &score) && !(score <= largest)) largest = score;
    }
    memset(b, 0, (size_t)dim * sizeof *b);
    for (int64_t at = 0; at < tile->keys; ++at) {
      int64_t     number = source->span->k_begin + (tile->reversed ? tile->key + tile->keys - 1 - at : tile->key + at);
      const char *v = twh__view_row(source->v, source->span->batch, tile->unit.kv_head, number);
      double      weight;
      if (!twh__score(result, i, at, &score)) continue;
      weight = score == largest ? 1 : exp(score - largest);
      total += weight;
      for (int64_t c = 0; c < dim; ++c) {
        /* the running mean: no sum of products that could overflow */
        b[c] += (float)((twh__load(v, source->v->dtype, c) - b[c]) * (weight / total));
      }
    }
    state->m[row] = total == 0 ? -(double)INFINITY : largest + log(total); /* NaN in, NaN out */
    state->a[row] = total != 0;
  }
}
