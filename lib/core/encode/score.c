/* Scores of the host: dot products in float64 over the encoded operands, then what the kernel does to its own. */
#include <math.h>

#include "core/encode/score.h"

TWH__CLONES static double score_dot(const float *query, const double *key, int64_t n)
{
  return twh__score_dot(query, key, n);
}

TWH__CLONES double twh__score_dot_rows(const float *query, const float *key, int64_t n)
{
  double  sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, rest = 0;
  int64_t i = 0;

  for (; i + 8 <= n; i += 8) {
    for (int64_t t = 0; t < 8; ++t) sum[t] += (double)query[i + t] * (double)key[i + t];
  }
  for (; i < n; ++i) rest += (double)query[i] * (double)key[i];
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])) + rest;
}

static const char *score_query_row(const twh__result *result, int64_t i)
{
  return result->q.data + (result->tile->at + i * result->tile->at_step) * result->q.row_bytes;
}

void twh__score_read_query(const twh__result *result, int64_t i, twh__score_query *query)
{
  const char *row = score_query_row(result, i);

  query->row = i;
  query->value = query->piece;
  if (result->lowering->dtype == TWH_F32) {
    query->value = (const float *)(const void *)row;
  } else {
    twh__to_f32(query->piece, row, result->lowering->dtype, twh__min(TWH__SCORE_PIECE, twh__score_dim(result)));
  }
}

void twh__score_read_key(const twh__result *result, int64_t at, twh__score_key *key)
{
  const char *row = result->k.data + at * result->k.row_bytes;
  int64_t     count = twh__min(TWH__SCORE_PIECE, twh__score_dim(result));
  float       part[32];

  key->at = at;
  for (int64_t done = 0; done < count; done += 32) {
    int64_t n = twh__min(32, count - done);
    twh__to_f32(part, row + done * twh__dtype_bytes(result->lowering->dtype), result->lowering->dtype, n);
    for (int64_t c = 0; c < n; ++c) key->value[done + c] = (double)part[c];
  }
}

double twh__score_of(const twh__lowering *lowering, double product)
{
  double score = lowering->kernel_scale * product;

  if (lowering->softcap != 0) score = lowering->softcap * tanh(score / lowering->softcap);
  if (lowering->f16_scores) {
    uint16_t half;
    twh__store(&half, TWH_F16, 0, score);
    score = twh__load(&half, TWH_F16, 0);
  }
  return score;
}

/* The score, and what the mask does to it. */
static int score_finish(const twh__result *result, int64_t i, int64_t at, double product, double *score)
{
  const twh__lowering *lowering = result->lowering;

  *score = twh__score_of(lowering, product);
  if (result->mask.data) {
    int64_t position = result->tile->at + i * result->tile->at_step;
    double  bias = twh__load(result->mask.data + position * result->mask.row_bytes, lowering->mask_dtype, at);
    if (lowering->mask_dtype == TWH_BOOL) return bias != 0;
    if (bias == (lowering->mask_value != 0 ? lowering->mask_value : -(double)INFINITY)) return 0;
    *score += bias;
  }
  return 1;
}

/* Dimensions beyond the piece that was converted. */
static double score_rest(const twh__result *result, int64_t i, int64_t at)
{
  int32_t     dtype = result->lowering->dtype;
  const char *query = score_query_row(result, i), *key = result->k.data + at * result->k.row_bytes;
  double      product = 0;

  for (int64_t c = TWH__SCORE_PIECE; c < twh__score_dim(result); ++c)
    product += twh__load(query, dtype, c) * twh__load(key, dtype, c);
  return product;
}

/* Pads beyond the keys count as seen: the mean key of TWH__PAD_MEAN is one. */
static int score_is_seen(const twh__result *result, int64_t i, int64_t at)
{
  const twh__tile *tile = result->tile;

  if (at < tile->lead) return 1;
  at -= tile->key_at;
  return at >= tile->keys || (at >= twh__tile_from(tile, i) && at < twh__tile_seen(tile, i));
}

int twh__score(const twh__result *result, const twh__score_query *query, const twh__score_key *key, double *score)
{
  int64_t dim = twh__score_dim(result);
  double  product;

  if (!score_is_seen(result, query->row, key->at)) return 0;
  product = score_dot(query->value, key->value, twh__min(TWH__SCORE_PIECE, dim));
  if (dim > TWH__SCORE_PIECE) product += score_rest(result, query->row, key->at);
  return score_finish(result, query->row, key->at, product, score);
}

int twh__score_at(const twh__result *result, const twh__score_query *query, int64_t at, double *score)
{
  int64_t     dim = twh__score_dim(result), count = twh__min(TWH__SCORE_PIECE, dim);
  const char *key = result->k.data + at * result->k.row_bytes;
  float       piece[TWH__SCORE_PIECE];
  double      product;

  if (!score_is_seen(result, query->row, at)) return 0;
  if (result->lowering->dtype == TWH_F32) {
    product = twh__score_dot_rows(query->value, (const float *)(const void *)key, count);
  } else {
    twh__to_f32(piece, key, result->lowering->dtype, count);
    product = twh__score_dot_rows(query->value, piece, count);
  }
  if (dim > TWH__SCORE_PIECE) product += score_rest(result, query->row, at);
  return score_finish(result, query->row, at, product, score);
}

void twh__exp_sum_add(twh__exp_sum *sum, double term)
{
  if (sum->sum == 0) { /* the first one: no exponential */
    if (term == -(double)INFINITY) return;
    sum->largest = term;
    sum->sum = 1;
  } else if (term > sum->largest) {
    sum->sum = sum->sum * exp(sum->largest - term) + 1;
    sum->largest = term;
  } else if (term > -(double)INFINITY) {
    sum->sum += exp(term - sum->largest);
  } else if (isnan(term)) {
    sum->sum = sum->largest = term;
  }
}
