/* Rows that the first calls of a tile did not tell enough about, read from the bucket call.
 *
 * The bucket call has the tile's queries and keys and one-hot values: column h of its output is the total weight of the keys at
 * positions j with j mod v_dim = h. Its total over all columns is the weight of everything that counts, which also settles
 * tiles whose pads have a weight of their own. */
#include <math.h>

#include "core/encode/score.h"

/* The heaviest of the row's columns, its weight, and the weight of all. */
static int64_t repair_heaviest(const twh__result *result, const char *row, double *most, double *total)
{
  int64_t columns = twh__min(result->lowering->v_dim, twh__tile_used(result->tile)), heaviest = 0;
  float   part[64], best = -1;

  *total = 0;
  if (result->slot->count > 1) columns = result->lowering->v_dim; /* the tile's keys stand anywhere */
  for (int64_t done = 0; done < columns; done += 64) {
    int64_t n = twh__min(64, columns - done);
    twh__to_f32(part, row + done * twh__dtype_bytes(result->lowering->out_dtype), result->lowering->out_dtype, n);
    for (int64_t c = 0; c < n; ++c) {
      *total += (double)part[c];
      if (part[c] > best) {
        best = part[c];
        heaviest = done + c;
      }
    }
  }
  *most = (double)best;
  return heaviest;
}

/* The sum of e^score over the keys in one column that the row sees. */
static twh__exp_sum repair_bucket(const twh__result *result, int64_t i, int64_t column)
{
  const twh__tile *tile = result->tile;
  int64_t          width = result->lowering->v_dim, first = tile->key_at + twh__tile_from(tile, i);
  int64_t          last = tile->key_at + twh__tile_seen(tile, i);
  twh__exp_sum     sum = { -(double)INFINITY, 0 };
  twh__score_query query;
  double           score;

  twh__score_read_query(result, i, &query);
  for (int64_t at = column; at < tile->lead; at += width) {
    if (twh__score_at(result, &query, at, &score)) twh__exp_sum_add(&sum, score);
  }
  for (int64_t at = first + (column - first % width + width) % width; at < last; at += width) {
    if (twh__score_at(result, &query, at, &score)) twh__exp_sum_add(&sum, score);
  }
  return sum;
}

/* The sum of one row, a e^m, and the factor of its outputs. 0 if the kernel gave nothing usable. */
static int repair_row(const twh__result *result, int64_t i, double *m, double *a, double *factor)
{
  const twh__tile *tile = result->tile;
  const char      *row = result->buckets + (tile->at + i * tile->at_step) * result->out_row_bytes;
  double           most, total;
  int64_t          heaviest = repair_heaviest(result, row, &most, &total);
  twh__exp_sum     sum;

  *factor = 1;
  if (!(most >= result->lowering->flag_below) || !isfinite(total)) return 0;
  sum = repair_bucket(result, i, heaviest);
  if (tile->pads == TWH__PAD_MEAN || tile->pads == TWH__PAD_COPIES) {
    *factor = twh__bucket_lift(tile) / result->lift / total;
    most /= total;
  }
  if (!isfinite(sum.largest)) return 0;
  *m = sum.largest;
  *a = sum.sum / most;
  return 1;
}

int64_t twh__decode_repair(const twh__result *result, twh__state *leaf)
{
  const twh__tile *tile = result->tile;
  int64_t          left = 0;

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t at = tile->at + i * tile->at_step;
    if (!isnan(leaf->m[at])) continue;
    if (!twh__tile_is_host(tile) && repair_row(result, i, &leaf->m[at], &leaf->a[at], &leaf->factor[at])) {
      twh__decode_shift(result, leaf, i, i + 1);
    } else {
      ++left;
    }
  }
  return left;
}
