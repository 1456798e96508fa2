/* Rows that the host computes itself: of tiles that no kernel computes, of tiles whose data would spoil others, and single rows
 * that no reading got hold of.
 *
 * Straight from the host's tensors, so that it needs no call and no encoded operand, but with every number rounded as encoding
 * rounds it: the result is what an exact kernel would have returned. Scores of a few hundred keys are kept, more are computed
 * again for each piece of the output's columns. */
#include <math.h>
#include <string.h>

#include "core/encode/score.h"

enum { HOST_PIECE = 64, HOST_DIMS = 256, HOST_KEYS = 256 };

typedef struct host_row {
  const twh__result *result;
  const twh__source *source;
  const twh__tile   *tile;
  const twh__span   *span;
  int64_t            row;         /* placed row */
  int64_t            from, count; /* keys that it may see: the lead, then from key number `from` of the tile on */
  int64_t            position;    /* absolute */
  const char        *q, *mask;
  float              query[HOST_DIMS];
} host_row;

/* n <= HOST_PIECE numbers from column `first` on of a host's row as the kernel sees them: in `piece`, or where they lie. */
static const float *host_read(float *piece, int32_t dtype, const char *from, const twh__view *view, double factor,
                              int64_t first, int64_t n)
{
  float rounded[HOST_PIECE]; /* room for any dtype of kernels */

  from += first * view->item;
  if (dtype == TWH_F32) {
    if (view->dtype == TWH_F32 && factor == 1) return (const float *)(const void *)from;
    twh__encode_row((char *)piece, TWH_F32, from, view->dtype, factor, n);
    return piece;
  }
  twh__encode_row((char *)rounded, dtype, from, view->dtype, factor, n);
  twh__to_f32(piece, rounded, dtype, n);
  return piece;
}

static void host_begin_row(host_row *row, int64_t i)
{
  const twh__lowering *lowering = row->result->lowering;
  const twh__tile     *tile = row->tile;
  int64_t              head, number, dim = row->result->shape->qk_dim;

  row->row = i;
  row->from = twh__tile_from(tile, i);
  row->count = tile->lead + twh__max(0, twh__tile_seen(tile, i) - row->from);
  twh__unit_row(&tile->unit, row->span, tile->row + i, &head, &number);
  row->position = number + row->span->q_origin;
  row->q = twh__view_row(row->source->q, row->span->batch, head, number);
  row->mask = row->source->mask ? twh__view_row(row->source->mask, row->span->batch, head, number) : NULL;
  for (int64_t c = 0; c < twh__min(dim, HOST_DIMS); c += HOST_PIECE) {
    int64_t      n = twh__min(HOST_PIECE, dim - c);
    const float *piece = host_read(row->query + c, lowering->dtype, row->q, row->source->q, lowering->q_factor, c, n);
    for (int64_t k = 0; k < n; ++k) row->query[c + k] = piece[k];
  }
}

/* The row of the tensors with a key that the row may see. */
static int64_t host_key(const host_row *row, int64_t k)
{
  int64_t lead = row->tile->lead;
  if (k < lead) return twh__span_key(row->span, row->span->sink_key + k);
  return twh__tile_key_row(row->span, row->tile, twh__tile_key(row->tile, row->from + k - lead));
}

/* As the mask's own dtype holds it. */
static double host_rounded(int32_t dtype, double bias)
{
  unsigned char bytes[8];

  if (bias == 0 || dtype == 0 || dtype == TWH_BOOL) return bias;
  twh__store(bytes, dtype, 0, bias);
  return twh__load(bytes, dtype, 0);
}

/* -inf: hidden by the mask. */
static double host_score(const host_row *row, int64_t k)
{
  const twh__lowering *lowering = row->result->lowering;
  int64_t              number = host_key(row, k), dim = row->result->shape->qk_dim;
  const char          *key = twh__view_row(row->source->k, row->span->batch, row->tile->unit.kv_head, number);
  double               product = 0, bias = 0;
  float                query[HOST_PIECE], piece[HOST_PIECE];

  if (row->mask && !twh__mask_read(row->source, row->mask, number, &bias)) return -(double)INFINITY;
  for (int64_t c = 0; c < dim; c += HOST_PIECE) {
    int64_t      n = twh__min(HOST_PIECE, dim - c);
    const float *q = row->query + c;
    if (c >= HOST_DIMS) q = host_read(query, lowering->dtype, row->q, row->source->q, lowering->q_factor, c, n);
    product += twh__score_dot_rows(q, host_read(piece, lowering->dtype, key, row->source->k, 1, c, n), n);
  }
  bias = host_rounded(lowering->mask_dtype, bias);
  bias += twh__bias_of(row->source, row->span, row->tile->unit.q_head, number, row->position);
  return twh__score_of(lowering, product) + lowering->power * bias;
}

/* Scores of the keys [first, first + HOST_KEYS), as far as there are any; returns how many. */
static int64_t host_scores(const host_row *row, int64_t first, double score[HOST_KEYS])
{
  int64_t n = twh__min(HOST_KEYS, row->count - first);
  for (int64_t k = 0; k < n; ++k) score[k] = host_score(row, first + k);
  return n;
}

TWH__CLONES static void host_add(double *total, const float *value, double weight, int64_t n)
{
  for (int64_t c = 0; c < n; ++c) total[c] += weight * (double)value[c];
}

static void host_store(const host_row *row, int64_t first, int64_t n, const double *total)
{
  const twh__result *result = row->result;
  int64_t            dim = result->lowering->v_dim, item = twh__dtype_bytes(result->lowering->out_dtype);
  char              *out = result->out + (row->tile->at + row->row * row->tile->at_step) * result->out_row_bytes;

  for (int64_t done = 0, count; done < n; done += count) { /* slice by slice */
    int64_t slice = (first + done) / dim, column = (first + done) % dim;
    count = twh__min(n - done, dim - column);
    twh__convert(out + slice * result->slice_bytes + column * item, result->lowering->out_dtype, total + done, TWH_F64, count);
  }
}

/* n columns of a key's values, as the kernel sees them. */
static const float *host_value(float *piece, const host_row *row, const char *from, int64_t first, int64_t n)
{
  const twh__lowering *lowering = row->result->lowering;
  double               wide[HOST_PIECE];
  float                rounded[HOST_PIECE];

  if (!row->result->centre) return host_read(piece, lowering->dtype, from, row->source->v, 1, first, n);
  twh__squares_read(wide, row->source, row->result->centre, from, first, n);
  twh__convert(rounded, lowering->dtype, wide, TWH_F64, n);
  twh__to_f32(piece, rounded, lowering->dtype, n);
  return piece;
}

/* `score` holds what host_scores made last: everything, if the row sees few keys. */
static void host_columns(const host_row *row, const twh__exp_sum *sum, double score[HOST_KEYS], int64_t first, int64_t n)
{
  double total[HOST_PIECE] = { 0 };
  float  piece[HOST_PIECE];

  for (int64_t k = 0, count; k < row->count; k += count) {
    count = row->count <= HOST_KEYS ? row->count : host_scores(row, k, score);
    for (int64_t t = 0; t < count; ++t) {
      const char *v;
      double      weight;
      if (score[t] == -(double)INFINITY) continue; /* whatever its value is */
      weight = (score[t] == sum->largest ? 1 : exp(score[t] - sum->largest)) / sum->sum;
      v = twh__view_row(row->source->v, row->span->batch, row->tile->unit.kv_head, host_key(row, k + t));
      host_add(total, host_value(piece, row, v, first, n), weight, n);
    }
  }
  host_store(row, first, n, total);
}

void twh__decode_host(const twh__result *result, const twh__source *source, twh__state *leaf)
{
  const twh__tile *tile = result->tile;
  host_row         row;
  double           score[HOST_KEYS];

  row.result = result;
  row.source = source;
  row.tile = tile;
  row.span = twh__source_span(source, tile);
  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t      at = tile->at + i * tile->at_step;
    twh__exp_sum sum = { -(double)INFINITY, 0 };
    if (!isnan(leaf->m[at])) continue;
    host_begin_row(&row, i);
    for (int64_t k = 0, n; k < row.count; k += n) {
      n = host_scores(&row, k, score);
      for (int64_t t = 0; t < n; ++t) twh__exp_sum_add(&sum, score[t]);
    }
    leaf->m[at] = sum.largest + result->lowering->power * tile->sample.log_weight;
    leaf->a[at] = sum.sum; /* NaN in, NaN out */
    leaf->factor[at] = 1;
    if (sum.sum == 0) continue;
    for (int64_t c = 0; c < result->shape->v_dim; c += HOST_PIECE) {
      host_columns(&row, &sum, score, c, twh__min(HOST_PIECE, result->shape->v_dim - c));
    }
  }
}

void twh__decode_all_host(const twh__result *result, const twh__source *source, twh__state *leaf)
{
  twh__decode_place(result, leaf);
  for (int64_t i = 0; i < leaf->rows; ++i) leaf->m[leaf->at + i * leaf->at_step] = (double)NAN;
  twh__decode_host(result, source, leaf);
}

int64_t twh__decode_some_host(const twh__result *result, const twh__source *source, const twh__state *of, twh__state *leaf)
{
  int64_t count = 0;

  twh__decode_place(result, leaf);
  for (int64_t i = 0; i < leaf->rows; ++i) {
    int64_t at = leaf->at + i * leaf->at_step;
    int     wanted = isnan(of->m[twh__state_at(of, leaf->row + i)]) != 0;
    leaf->m[at] = wanted ? (double)NAN : -(double)INFINITY;
    leaf->a[at] = leaf->factor[at] = wanted;
    count += wanted;
  }
  twh__decode_host(result, source, leaf);
  return count;
}

void twh__host_scores(const twh__source *source, const twh__tile *tile, int64_t row, double *scores)
{
  twh__result result;
  host_row    own;

  memset(&result, 0, sizeof result);
  result.lowering = source->lowering;
  result.shape = source->shape;
  result.tile = tile;
  own.result = &result;
  own.source = source;
  own.tile = tile;
  own.span = twh__source_span(source, tile);
  host_begin_row(&own, row);
  for (int64_t k = 0; k < own.count; ++k) scores[k] = host_score(&own, k);
}
