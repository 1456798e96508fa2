/* Scores of the host: dot products in float64 over the encoded operands, then what the kernel does to its own. */
#include <math.h>

#include "core/encode/score.h"

enum { SCORE_PIECE = 256 };

/* Eight sums at once, added in a fixed order: fast, and the same on every machine. */
static double score_dot(const float *a, const float *b, int64_t n)
{
  double  sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, rest = 0;
  int64_t i = 0;

  for (; i + 8 <= n; i += 8) {
    for (int64_t t = 0; t < 8; ++t) sum[t] += (double)a[i + t] * (double)b[i + t];
  }
  for (; i < n; ++i) rest += (double)a[i] * (double)b[i];
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])) + rest;
}

static double score_rows(const char *query, const char *key, int32_t dtype, int64_t dim)
{
  float   query_piece[SCORE_PIECE], key_piece[SCORE_PIECE];
  int64_t item = twh__dtype_bytes(dtype);
  double  sum = 0;

  if (dtype == TWH_F32) return score_dot((const float *)(const void *)query, (const float *)(const void *)key, dim);
  for (int64_t done = 0; done < dim; done += SCORE_PIECE) {
    int64_t count = twh__min(SCORE_PIECE, dim - done);
    twh__to_f32(query_piece, query + done * item, dtype, count);
    twh__to_f32(key_piece, key + done * item, dtype, count);
    sum += score_dot(query_piece, key_piece, count);
  }
  return sum;
}

int twh__score(const twh__result *result, int64_t i, int64_t at, double *score)
{
  const twh__lowering *lowering = result->lowering;
  const twh__tile     *tile = result->tile;
  int64_t              position = tile->at + i * tile->at_step;

  if (at < tile->keys && at >= twh__tile_seen(tile, i)) return 0;
  *score = lowering->kernel_scale * score_rows(result->q.data + position * result->q.row_bytes,
                                               result->k.data + at * result->k.row_bytes, lowering->dtype, result->shape->qk_dim);
  if (lowering->f16_scores) {
    uint16_t half;
    twh__store(&half, TWH_F16, 0, *score);
    *score = twh__load(&half, TWH_F16, 0);
  }
  if (lowering->softcap != 0) *score = lowering->softcap * tanh(*score / lowering->softcap);
  if (result->mask.data) {
    double bias = twh__load(result->mask.data + position * result->mask.row_bytes, lowering->mask_dtype, at);
    if (lowering->mask_dtype == TWH_BOOL) return bias != 0;
    if (bias == (lowering->mask_value != 0 ? lowering->mask_value : -(double)INFINITY)) return 0;
    *score += bias;
  }
  return 1;
}

void twh__log_sum_add(twh__log_sum *sum, double term)
{
  if (term > sum->largest) {
    sum->sum = sum->sum * exp(sum->largest - term) + 1;
    sum->largest = term;
  } else if (term > -(double)INFINITY) {
    sum->sum += exp(term - sum->largest);
  } else if (isnan(term)) {
    sum->sum = sum->largest = term;
  }
}

double twh__log_sum_value(const twh__log_sum *sum)
{
  return sum->sum == 1 ? sum->largest : sum->largest + log(sum->sum);
}
