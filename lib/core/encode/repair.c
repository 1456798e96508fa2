/* Rows that the first calls of a tile did not tell enough about: read from the bucket call, or computed by the host.
 *
 * The bucket call has the tile's queries and keys and one-hot values: column h of its output is the total weight of the keys at
 * positions j with j mod v_dim = h. Its total over all columns is the weight of everything that counts, which also settles
 * tiles whose pads have a weight of their own. */
#include <math.h>

#include "core/encode/score.h"

/* The heaviest of the row's columns, its weight, and the weight of all. */
static int64_t repair_heaviest(const twh__result *result, const char *row, double *most, double *total)
{
  int64_t columns = twh__min(result->lowering->v_dim, result->tile->keys), heaviest = 0;
  float   part[64], best = -1;

  *total = 0;
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

/* The sum of one row, a e^m, and the factor of its outputs. 0 if the kernel gave nothing usable. */
static int repair_row(const twh__result *result, int64_t i, double *m, double *a, double *factor)
{
  const twh__tile *tile = result->tile;
  const char      *row = result->buckets + (tile->at + i * tile->at_step) * result->out_row_bytes;
  double           most, total, score;
  int64_t          heaviest = repair_heaviest(result, row, &most, &total);
  twh__exp_sum     sum = { -(double)INFINITY, 0 };
  twh__score_query query;

  *factor = 1;
  if (!(most >= result->lowering->flag_below) || !isfinite(total)) return 0;
  twh__score_read_query(result, i, &query);
  for (int64_t at = heaviest; at < tile->keys; at += result->lowering->v_dim) {
    if (twh__score_at(result, &query, at, &score)) twh__exp_sum_add(&sum, score);
  }
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
    int64_t row = tile->row + i;
    if (!isnan(leaf->m[row])) continue;
    if (!repair_row(result, i, &leaf->m[row], &leaf->a[row], &leaf->factor[row])) ++left;
  }
  return left;
}

/* Columns [first, first + n) of a row's output, n <= REPAIR_COLUMNS, by weights e^(score - largest) / total. */
enum { REPAIR_COLUMNS = 64 };

static void repair_host_columns(const twh__result *result, const twh__source *source, const twh__score_query *query,
                                const twh__exp_sum *sum, int64_t first, int64_t n)
{
  const twh__tile *tile = result->tile;
  char            *out = result->out + (tile->at + query->row * tile->at_step) * result->out_row_bytes;
  double           total[REPAIR_COLUMNS] = { 0 }, score;

  for (int64_t at = 0; at < tile->keys; ++at) {
    int64_t     number = source->span->k_begin + (tile->reversed ? tile->key + tile->keys - 1 - at : tile->key + at);
    const char *v = twh__view_row(source->v, source->span->batch, tile->unit.kv_head, number);
    double      weight;
    if (!twh__score_at(result, query, at, &score)) continue;
    weight = (score == sum->largest ? 1 : exp(score - sum->largest)) / sum->sum;
    for (int64_t c = 0; c < n; ++c) total[c] += weight * twh__load(v, source->v->dtype, first + c);
  }
  for (int64_t c = 0; c < n; ++c) {
    int64_t column = first + c, dim = result->lowering->v_dim;
    twh__store(out + column / dim * result->slice_bytes, result->lowering->out_dtype, column % dim, total[c]);
  }
}

void twh__decode_host(const twh__result *result, const twh__source *source, twh__state *leaf)
{
  const twh__tile *tile = result->tile;
  int64_t          dim = result->shape->v_dim;

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t          row = tile->row + i;
    twh__exp_sum     sum = { -(double)INFINITY, 0 };
    twh__score_query query;
    double           score;
    if (!isnan(leaf->m[row])) continue;
    twh__score_read_query(result, i, &query);
    for (int64_t at = 0; at < tile->keys; ++at) {
      if (twh__score_at(result, &query, at, &score)) twh__exp_sum_add(&sum, score);
    }
    leaf->m[row] = sum.largest;
    leaf->a[row] = sum.sum; /* NaN in, NaN out */
    leaf->factor[row] = 1;
    for (int64_t c = 0; c < dim; c += REPAIR_COLUMNS) {
      repair_host_columns(result, source, &query, &sum, c, twh__min(REPAIR_COLUMNS, dim - c));
    }
  }
}
