/* Decoding: the kernel's output for one slot becomes a partial state per row.
 *
 * Let A be the sum of a row's exponentials over the tile's keys. A kernel without lse returns only sums of e^s / A. The host
 * scores one or a few real keys itself (the anchors, in float64) and reads the weight p that the kernel gave them from a
 * column of their own: A = sum of e^(s_anchor) / p. Nothing is formed as 1 - x. Where p is too small to trust, a bucket call
 * puts every key in one of v_dim columns; the heaviest column has weight 1 / v_dim or more at any magnitude, and its keys are
 * scored instead. */
#include <math.h>
#include <string.h>

#include "core/encode/score.h"

/* Beyond it an f32 lse does not tell one key from two; such rows (their keys all carry a huge negative bias) go to the host. */
#define DECODE_LARGEST_LSE 0x1p20
#define DECODE_LARGEST     0x1.fffffffffffffp1023 /* what is not larger, and not NaN, is finite */

static double decode_share(const twh__result *result, int64_t position, int64_t column)
{
  const twh__lowering *lowering = result->lowering;
  const char          *slice = result->out + column / lowering->v_dim * result->slice_bytes;
  return twh__load(slice + position * result->out_row_bytes, lowering->out_dtype, column % lowering->v_dim);
}

/* What decoding one tile needs again for every row. */
enum { DECODE_ANCHORS = TWH__MAX_ANCHORS + 2, DECODE_AHEAD = 12 /* rows, whose lines are far apart */ };

typedef struct decode_tile {
  double           mean_count;                  /* pads per copy of the keys: TWH__PAD_MEAN */
  double           counted;                     /* how often the lse counts each key */
  int64_t          anchor_column, share_column; /* -1: none */
  int64_t          anchors;                     /* that were read beforehand; -1: too many for that */
  twh__score_key   anchor[DECODE_ANCHORS], mean;
  twh__score_query query;
} decode_tile;

/* Of a tile with many anchors: those among the keys that the row sees. */
static twh__exp_sum decode_many_anchors(const twh__result *result, const decode_tile *now)
{
  const twh__tile *tile = result->tile;
  int64_t          step = tile->anchor_step, last = tile->keys - 1, i = now->query.row;
  twh__exp_sum     sum = { -(double)INFINITY, 0 };
  double           score;

  if (tile->lead > 0 && twh__score_at(result, &now->query, 0, &score)) twh__exp_sum_add(&sum, score);
  for (int64_t j = twh__round_up(twh__tile_from(tile, i), step); j < twh__tile_seen(tile, i); j += step) {
    if (twh__score_at(result, &now->query, tile->key_at + j, &score)) twh__exp_sum_add(&sum, score);
  }
  if (tile->anchor_last && last % step != 0 && twh__score_at(result, &now->query, tile->key_at + last, &score)) {
    twh__exp_sum_add(&sum, score);
  }
  return sum;
}

/* The sum of e^score over the tile's anchors that the row sees. */
static twh__exp_sum decode_anchors(const twh__result *result, const decode_tile *now)
{
  twh__exp_sum sum = { -(double)INFINITY, 0 };
  double       score;

  if (now->anchors < 0) return decode_many_anchors(result, now);
  for (int64_t a = 0; a < now->anchors; ++a) {
    if (twh__score(result, &now->query, &now->anchor[a], &score)) twh__exp_sum_add(&sum, score);
  }
  return sum;
}

static void decode_read_anchors(const twh__result *result, decode_tile *now)
{
  const twh__tile *tile = result->tile;
  int64_t          step = tile->anchor_step, last = tile->keys - 1, count = twh__ceil_div(tile->keys, step) + (tile->lead > 0);
  int              extra = tile->anchor_last && last % step != 0;

  now->anchors = -1;
  if (count + extra > DECODE_ANCHORS) return;
  now->anchors = 0;
  if (tile->lead > 0) twh__score_read_key(result, 0, &now->anchor[now->anchors++]);
  for (int64_t j = 0; j <= last; j += step) twh__score_read_key(result, tile->key_at + j, &now->anchor[now->anchors++]);
  if (extra) twh__score_read_key(result, tile->key_at + last, &now->anchor[now->anchors++]);
}

static void decode_begin(const twh__result *result, decode_tile *now)
{
  const twh__tile *tile = result->tile;
  int64_t          used = twh__tile_used(tile), copies = tile->pads == TWH__PAD_MEAN ? tile->slot_keys / used : 1;
  int              anchor = tile->reading == TWH__READ_ANCHOR || tile->reading == TWH__READ_ANCHOR_SHARE;
  int              share = tile->reading == TWH__READ_LSE_SHARE || tile->reading == TWH__READ_ANCHOR_SHARE;

  now->mean_count = tile->pads == TWH__PAD_MEAN ? (double)(tile->slot_keys - copies * used) / (double)copies : 0;
  now->counted = (double)copies;
  now->anchor_column = anchor ? result->shape->v_dim : -1;
  now->share_column = share ? result->shape->v_dim + anchor : -1;
  /* the share column holds the lift in place of 1: beside an anchor column it cancels, beside an lse it does not */
  if (tile->reading == TWH__READ_LSE_SHARE) now->counted = result->lift;
  now->anchors = 0;
  if (anchor) decode_read_anchors(result, now);
  if (now->mean_count > 0) twh__score_read_key(result, tile->slot_keys - 1, &now->mean);
}

/* The sum of one row, a e^m, and the factor of its outputs. 0 if it cannot be read. */
static int decode_row(const twh__result *result, decode_tile *now, int64_t i, double *m, double *a, double *factor)
{
  const twh__lowering *lowering = result->lowering;
  int64_t              position = result->tile->at + i * result->tile->at_step;

  *factor = 1;
  if (now->anchors != 0 || now->mean_count > 0) twh__score_read_query(result, i, &now->query);
  if (now->anchor_column >= 0) {
    double       weight = decode_share(result, position, now->anchor_column);
    twh__exp_sum sum = decode_anchors(result, now);
    if (!(weight >= lowering->flag_below)) return 0;
    *m = sum.largest;
    *a = sum.sum / weight;
  } else {
    *m = (double)result->lse[position] * (lowering->lse_base2 ? 0.693147180559945309417 : 1);
    *a = 1 / now->counted;
    if (!(fabs(*m) <= DECODE_LARGEST_LSE)) return 0;
  }
  if (now->share_column >= 0) {
    double share = decode_share(result, position, now->share_column);
    if (!(share >= lowering->flag_below)) return 0;
    *a *= share;
    *factor = 1 / share;
  }
  if (now->mean_count > 0) {
    /* of the sum that was read, u belongs to the mean keys: at most 1/2 but for their rounding */
    double score, u;
    if (!twh__score(result, &now->query, &now->mean, &score)) return 0;
    u = now->mean_count * exp(score - *m) / *a;
    if (!(u <= 0.75)) return 0;
    *a *= 1 - u;
    *factor /= 1 - u;
  }
  return isfinite(*m) && *a > 0 && isfinite(*a);
}

void twh__decode_place(const twh__result *result, twh__state *leaf)
{
  leaf->b = NULL;
  leaf->out = result->out;
  leaf->row_bytes = result->out_row_bytes;
  leaf->slice_bytes = result->slice_bytes;
  leaf->slice_dim = result->lowering->v_dim;
  leaf->row = result->tile->row;
  leaf->rows = result->tile->rows;
  leaf->at = result->tile->at;
  leaf->at_step = result->tile->at_step;
  leaf->dtype = result->lowering->out_dtype;
  leaf->role = result->tile->sample.role;
  leaf->centre = result->centre;
  leaf->spread = NULL;
  if (!twh__tile_is_host(result->tile)) return;
  for (int64_t i = 0; i < leaf->rows; ++i) {
    leaf->m[leaf->at + i * leaf->at_step] = (double)NAN;
    leaf->a[leaf->at + i * leaf->at_step] = leaf->factor[leaf->at + i * leaf->at_step] = 1;
  }
}

/* The plainest reading, most rows of kernels that return lse: no host score, no share, nothing hidden. */
TWH__CLONES static int64_t decode_lse(const twh__result *result, const decode_tile *now, twh__state *leaf)
{
  const twh__tile *tile = result->tile;
  double           unit = result->lowering->lse_base2 ? 0.693147180559945309417 : 1, a = 1 / now->counted;
  int64_t          flagged = 0;

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t position = tile->at + i * tile->at_step;
    double  m = (double)result->lse[position] * unit;
    int     good = fabs(m) <= DECODE_LARGEST_LSE;
    leaf->m[position] = good ? m : (double)NAN;
    leaf->a[position] = good ? a : 1;
    leaf->factor[position] = 1;
    flagged += !good;
  }
  return flagged;
}

/* The plainest reading of kernels that return none: one anchor that every row sees, f32, scores that are only scaled. */
static int decode_is_plain_anchor(const twh__result *result, const decode_tile *now)
{
  const twh__lowering *lowering = result->lowering;
  return result->tile->reading == TWH__READ_ANCHOR && now->anchors == 1 && now->mean_count == 0 && !result->any &&
         lowering->dtype == TWH_F32 && lowering->out_dtype == TWH_F32 && lowering->softcap == 0 && !lowering->f16_scores &&
         twh__score_dim(result) <= TWH__SCORE_PIECE;
}

TWH__CLONES static int64_t decode_plain_anchor(const twh__result *result, const decode_tile *now, twh__state *leaf)
{
  const twh__tile *tile = result->tile;
  int64_t          slice = now->anchor_column / result->lowering->v_dim, column = now->anchor_column % result->lowering->v_dim;
  const char      *out = result->out + slice * result->slice_bytes;
  int64_t          dim = twh__score_dim(result), flagged = 0;

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t      position = tile->at + i * tile->at_step;
    const float *query = (const float *)(const void *)(result->q.data + position * result->q.row_bytes);
    const float *weights = (const float *)(const void *)(out + position * result->out_row_bytes);
    double       weight = (double)weights[column];
    double       m = result->lowering->kernel_scale * twh__score_dot(query, now->anchor[0].value, dim);
    int          good = weight >= result->lowering->flag_below && fabs(m) <= DECODE_LARGEST && weight <= DECODE_LARGEST;
    leaf->m[position] = good ? m : (double)NAN;
    leaf->a[position] = good ? 1 / weight : 1;
    leaf->factor[position] = 1;
    flagged += !good;
    TWH__PREFETCH((uintptr_t)(weights + column) + (uintptr_t)(DECODE_AHEAD * tile->at_step * result->out_row_bytes));
  }
  return flagged;
}

void twh__decode_shift(const twh__result *result, twh__state *leaf, int64_t first, int64_t last)
{
  const twh__tile *tile = result->tile;
  double           power = result->lowering->power;

  if (!result->shape->alibi && tile->sample.log_weight == 0) return;
  for (int64_t i = first; i < last; ++i) {
    const twh__span *span = twh__source_span(result->source, tile);
    int64_t          head, row;
    twh__unit_row(&tile->unit, span, tile->row + i, &head, &row);
    leaf->m[tile->at + i * tile->at_step] += power * tile->sample.log_weight;
    if (!result->shape->alibi) continue;
    leaf->m[tile->at + i * tile->at_step] +=
      power * twh__bias_slope(result->source, head) * (double)(twh__bias_ref(span, tile) - row - span->q_origin);
  }
}

/* Any reading, row by row. */
static int64_t decode_rows(const twh__result *result, decode_tile *now, twh__state *leaf)
{
  const twh__tile *tile = result->tile;
  int64_t          flagged = 0;

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t position = tile->at + i * tile->at_step;
    double *m = &leaf->m[position], *a = &leaf->a[position], *factor = &leaf->factor[position];
    if (result->any && !result->any[position]) {
      *m = -(double)INFINITY;
      *a = 0;
      *factor = 1;
    } else if (tile->reading == TWH__READ_BUCKET || !decode_row(result, now, i, m, a, factor)) {
      *m = (double)NAN;
      *a = *factor = 1;
      ++flagged;
    }
  }
  return flagged;
}

int64_t twh__decode(const twh__result *result, twh__state *leaf)
{
  const twh__tile *tile = result->tile;
  int64_t          flagged;
  decode_tile      now;

  twh__decode_place(result, leaf);
  if (twh__tile_is_host(tile)) return tile->rows;
  decode_begin(result, &now);
  if (tile->reading == TWH__READ_LSE && !result->any && now.mean_count == 0) {
    flagged = decode_lse(result, &now, leaf);
  } else if (decode_is_plain_anchor(result, &now)) {
    flagged = decode_plain_anchor(result, &now, leaf);
  } else {
    flagged = decode_rows(result, &now, leaf);
  }
  twh__decode_shift(result, leaf, 0, tile->rows);
  return tile->reading == TWH__READ_BUCKET ? twh__decode_repair(result, leaf) : flagged;
}

int64_t twh__decode_find_nan(const twh__result *result, int64_t *part)
{
  const twh__lowering *lowering = result->lowering;
  const twh__tile     *tile = result->tile;
  int64_t              parts = lowering->values_parts + (result->buckets != NULL);

  if (twh__tile_is_host(tile)) return -1;
  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t position = tile->at + i * tile->at_step;
    if (result->any && !result->any[position]) continue;
    *part = 0;
    if (result->lse && isnan(result->lse[position])) return i;
    for (*part = 0; *part < parts; ++*part) {
      const char *row = result->out + *part * result->slice_bytes + position * result->out_row_bytes;
      for (int64_t c = 0; c < lowering->v_dim; ++c) {
        if (isnan(twh__load(row, lowering->out_dtype, c))) return i;
      }
    }
  }
  return -1;
}
