/* softmax(cap(scale q k^T) + mask) v as the contract in twoheads.h writes it, for one slot.
 *
 * The operands of the slot are converted to float64 once. Query rows go in blocks and keys in chunks, so that a chunk of
 * keys serves a block of rows from the first-level cache; within a row the order of every sum is fixed by the key's index,
 * whatever the block. Dot products run in eight lanes, which fill vector registers without a change of result. */
#include "reference/direct.h"

#include "reference/formats.h"

#include <math.h>
#include <stddef.h>

enum { DIRECT_ROWS = 8, DIRECT_LANES = 8 };
static const int64_t direct_keys = 64;

typedef struct direct_job {
  const twh__reference_kernel *kernel;
  const twh_call              *call;
  int64_t                      slot, first, rows; /* query rows of the block */
  double                      *q, *k, *v;         /* (rows, qk_dim), (k_len, qk_dim), (k_len, v_dim) */
  double                      *scores, *out;      /* (rows, k_len), (rows, v_dim) */
} direct_job;

static int direct_add_product(int64_t *total, int64_t a, int64_t b)
{
  const int64_t most = PTRDIFF_MAX / (int64_t)sizeof(double);
  if (a > most / b || a * b > most - *total) return 0;
  *total += a * b;
  return 1;
}

int64_t twh__reference_scratch(const twh_oracle_desc *desc, const twh_call *call)
{
  int64_t total = 0;
  return direct_add_product(&total, DIRECT_ROWS, desc->qk_dim) && direct_add_product(&total, call->k_len, desc->qk_dim) &&
         direct_add_product(&total, call->k_len, desc->v_dim) && direct_add_product(&total, DIRECT_ROWS, call->k_len) &&
         direct_add_product(&total, DIRECT_ROWS, desc->v_dim) ? total : -1;
}

static double direct_dot(const double *a, const double *b, int64_t n)
{
  double  lane[DIRECT_LANES] = {0}, rest = 0.0;
  int64_t c = 0;
  for (; c + DIRECT_LANES <= n; c += DIRECT_LANES)
    for (int l = 0; l < DIRECT_LANES; l++) lane[l] += a[c + l] * b[c + l];
  for (; c < n; c++) rest += a[c] * b[c];
  return (((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]))) + rest;
}

/* Keys that row i of the call may see: a prefix, before any mask operand. */
static int64_t direct_keys_seen(const direct_job *job, int64_t i)
{
  const int64_t k_len = job->call->k_len, offset = job->kernel->desc.causal_offset;
  if (job->call->mask_mode != TWH_MASK_CAUSAL || offset >= k_len) return k_len;
  if (offset < -i) return 0;
  return i + offset + 1 < k_len ? i + offset + 1 : k_len;
}

static void direct_scores(const direct_job *job)
{
  const int64_t dim = job->kernel->desc.qk_dim, k_len = job->call->k_len;
  for (int64_t from = 0; from < k_len; from += direct_keys) {
    const int64_t to = k_len - from < direct_keys ? k_len : from + direct_keys;
    for (int64_t r = 0; r < job->rows; r++) {
      const int64_t seen = direct_keys_seen(job, job->first + r);
      for (int64_t j = from; j < to && j < seen; j++)
        job->scores[r * k_len + j] = direct_dot(job->q + r * dim, job->k + j * dim, dim);
    }
  }
}

/* Products to logits: scale, cap, f16 rounding, mask. -inf hides a key. */
static void direct_logits(const direct_job *job, int64_t r, int64_t seen)
{
  const twh_oracle_desc *desc = &job->kernel->desc;
  const twh_operand     *mask = &job->call->mask;
  const int64_t          at = job->slot * mask->slot_stride + (job->first + r) * mask->row_stride;
  const double           scale = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? job->call->scale : desc->scale;
  double                *x = job->scores + r * job->call->k_len;
  for (int64_t j = 0; j < seen; j++) {
    x[j] *= scale;
    if (desc->softcap > 0.0) x[j] = desc->softcap * tanh(x[j] / desc->softcap);
    if (desc->flags & TWH_ORACLE_F16_SCORES) x[j] = twh__reference_round(x[j], TWH_F16);
    if (job->call->mask_mode != TWH_MASK_TENSOR) continue;
    if (desc->mask_dtype == TWH_BOOL) {
      if (((const unsigned char *)mask->data)[at + j] == 0) x[j] = -INFINITY;
    } else {
      double bias;
      twh__reference_read(&bias, mask->data, desc->mask_dtype, at + j, 1);
      x[j] = bias == -INFINITY ? -INFINITY : x[j] + bias;
    }
  }
}

/* Logits to weights relative to the largest; *max is -inf and the sum 0 for a row that sees nothing. */
static double direct_weights(const direct_job *job, int64_t r, int64_t seen, double *max)
{
  const int32_t dtype = job->kernel->desc.dtype;
  double       *x = job->scores + r * job->call->k_len, sum = 0.0;
  *max = -INFINITY;
  for (int64_t j = 0; j < seen; j++)
    if (x[j] > *max) *max = x[j];
  for (int64_t j = 0; j < seen; j++) {
    x[j] = x[j] == -INFINITY ? 0.0 : exp(x[j] - *max);
    sum += x[j];
    if (job->kernel->round_weights) x[j] = twh__reference_round(x[j], dtype);
  }
  for (int64_t j = seen; j < job->call->k_len; j++) x[j] = 0.0;
  return sum;
}

static void direct_values(const direct_job *job)
{
  const int64_t dim = job->kernel->desc.v_dim, k_len = job->call->k_len;
  for (int64_t at = 0; at < job->rows * dim; at++) job->out[at] = 0.0;
  for (int64_t from = 0; from < k_len; from += direct_keys) {
    const int64_t to = k_len - from < direct_keys ? k_len : from + direct_keys;
    for (int64_t r = 0; r < job->rows; r++) {
      const int64_t seen = direct_keys_seen(job, job->first + r);
      double       *out = job->out + r * dim;
      for (int64_t j = from; j < to && j < seen; j++) {
        const double  weight = job->scores[r * k_len + j];
        const double *v = job->v + j * dim;
        for (int64_t c = 0; c < dim; c++) out[c] += weight * v[c];
      }
    }
  }
}

/* Where element (slot, i) of the lse stands. */
static float *direct_lse(const direct_job *job, int64_t i)
{
  const twh_call *call = job->call;
  return call->lse + job->slot * call->lse_slot_stride + i * (call->flags & TWH_CALL_CONTINUES ? call->lse_row_stride : 1);
}

/* A weight that underflows takes an infinite value with it, but not a NaN. */
static double direct_share(double weight, double value)
{
  return weight == 0.0 && isinf(value) ? 0.0 : weight * value;
}

/* What stands in memory and what this call has found alone, weighted by e^lse relative to the larger one. Replaces the latter. */
static void direct_continue(const direct_job *job, double *out, int64_t at, double before, double *lse)
{
  const twh_oracle_desc *desc = &job->kernel->desc;
  const double           top = fmax(before, *lse), old = exp(before - top), own = exp(*lse - top);
  for (int64_t c = 0; c < desc->v_dim; c++) {
    double value;
    twh__reference_read(&value, job->call->out, desc->out_dtype, at + c, 1);
    out[c] = direct_share(old / (old + own), value) + direct_share(own / (old + own), out[c]);
  }
  *lse = top + log(old + own);
}

static void direct_store(const direct_job *job, int64_t r, double max, double sum)
{
  const twh_oracle_desc *desc = &job->kernel->desc;
  const twh_call        *call = job->call;
  const int64_t          i = job->first + r, at = job->slot * call->out_slot_stride + i * call->out_row_stride;
  const double           base = desc->flags & TWH_ORACLE_LSE_BASE2 ? 1.44269504088896340736 : 1.0;
  double                *out = job->out + r * desc->v_dim, lse = max + log(sum);
  const int              continues = (call->flags & TWH_CALL_CONTINUES) != 0;
  if (continues && sum == 0.0) return;
  for (int64_t c = 0; c < desc->v_dim; c++) out[c] = sum == 0.0 ? 0.0 : out[c] / sum;
  if (continues) {
    const double before = (double)*direct_lse(job, i) / base;
    const int    empty = before == -INFINITY || (before == INFINITY && (desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF));
    if (!empty) direct_continue(job, out, at, before, &lse);
  }
  twh__reference_write(call->out, desc->out_dtype, at, out, desc->v_dim);
  if (!(desc->flags & TWH_ORACLE_LSE)) return;
  if (sum == 0.0) lse = desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? INFINITY : -INFINITY;
  *direct_lse(job, i) = (float)(lse * base);
}

static void direct_read_rows(double *to, const twh_operand *operand, int32_t dtype, int64_t slot, int64_t row, int64_t rows,
                             int64_t dim)
{
  for (int64_t r = 0; r < rows; r++)
    twh__reference_read(to + r * dim, operand->data, dtype, slot * operand->slot_stride + (row + r) * operand->row_stride, dim);
}

void twh__reference_slot(const twh__reference_kernel *kernel, const twh_call *call, int64_t slot, double *scratch)
{
  const twh_oracle_desc *desc = &kernel->desc;
  double                 max[DIRECT_ROWS], sum[DIRECT_ROWS];
  direct_job             job = {kernel, call, slot, 0, 0, NULL, NULL, NULL, NULL, NULL};
  job.q = scratch;
  job.k = job.q + DIRECT_ROWS * desc->qk_dim;
  job.v = job.k + call->k_len * desc->qk_dim;
  job.scores = job.v + call->k_len * desc->v_dim;
  job.out = job.scores + DIRECT_ROWS * call->k_len;
  direct_read_rows(job.k, &call->k, desc->dtype, slot, 0, call->k_len, desc->qk_dim);
  direct_read_rows(job.v, &call->v, desc->dtype, slot, 0, call->k_len, desc->v_dim);
  for (job.first = 0; job.first < call->q_len; job.first += DIRECT_ROWS) {
    job.rows = DIRECT_ROWS;
    if (job.rows > call->q_len - job.first) job.rows = call->q_len - job.first;
    direct_read_rows(job.q, &call->q, desc->dtype, slot, job.first, job.rows, desc->qk_dim);
    direct_scores(&job);
    for (int64_t r = 0; r < job.rows; r++) {
      const int64_t seen = direct_keys_seen(&job, job.first + r);
      direct_logits(&job, r, seen);
      sum[r] = direct_weights(&job, r, seen, &max[r]);
    }
    direct_values(&job);
    for (int64_t r = 0; r < job.rows; r++) direct_store(&job, r, max[r], sum[r]);
  }
}
