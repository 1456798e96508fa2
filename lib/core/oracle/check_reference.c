/* The direct evaluation that the check compares a kernel with, in float64, of a sample of rows.
 *
 * Keys are visited once per slot and every sampled row of the slot is advanced by them (running maximum, sums rescaled when it
 * rises), so that memory is a few numbers per sampled row and nothing grows with the length. Beside the answer each row
 * gathers what its error may be: with p the weights, u a relative rounding error and s the scores,
 *     |error of out| <= 4 u ( 2 sqrt(sum p^2 (1 + |s|)^2 max|v|^2) + (1 + sum p |s|) |out| ) + rounding of out, once per call
 * errors of single weights being independent. Large errors of lying kernels are far beyond it, those of honest ones, also with
 * weights rounded to the kernel's dtype, well within. */
#include <math.h>
#include <string.h>

#include "core/oracle/check.h"

enum { CHECK_REFERENCE_SLOTS = 64, CHECK_REFERENCE_ROWS = 256, CHECK_REFERENCE_WORK = 1 << 24 };

/* The rows of one slot that are compared, and their sums. Weights are relative to e^m. */
typedef struct check_reference_row {
  int64_t row, keys;  /* keys: visible ones */
  int64_t continued;  /* calls that go on from results that were rounded */
  double  m, a;       /* largest score; sum of weights */
  double  squares;    /* sum of squares of weight x (1 + scores |s|) x max |v| */
  double  scores;     /* sum of weight x |s| */
  double  values;     /* sum of weight x max |v| */
  double *q, *b;      /* (qk_dim) the query; (v_dim) sum of weight x value */
} check_reference_row;

typedef struct check_reference {
  check_reference_row *rows;
  double              *numbers, *k, *v;
  int64_t              count;
  size_t               rows_bytes, numbers_bytes;
} check_reference;

static void check_reference_finish(const twh__check *check, check_reference *reference)
{
  twh__release(check->context, reference->rows, reference->rows_bytes);
  twh__release(check->context, reference->numbers, reference->numbers_bytes);
}

static twh_status check_reference_start(const twh__check *check, const twh__trial *trial, int64_t slots,
                                        check_reference *reference)
{
  int64_t dims = check->desc->qk_dim + check->desc->v_dim, count, bytes;
  int64_t per_row = twh__max(1, trial->call.k_len) * twh__min(dims, 1 << 20);

  memset(reference, 0, sizeof *reference);
  count = twh__max(4, CHECK_REFERENCE_WORK / twh__max(1, per_row) / slots);
  count = twh__min(trial->call.q_len, twh__min(CHECK_REFERENCE_ROWS, count));
  reference->count = count;
  if (!twh__multiply(dims, (count + 1) * (int64_t)sizeof(double), &bytes)) {
    return twh__fail(check->error, TWH_E_OVERFLOW, "oracle.qk_dim and v_dim are too large for a check");
  }
  reference->numbers_bytes = (size_t)bytes;
  reference->rows_bytes = (size_t)count * sizeof *reference->rows;
  reference->rows = (check_reference_row *)twh__allocate(check->context, reference->rows_bytes, 0, check->error);
  reference->numbers = (double *)twh__allocate(check->context, reference->numbers_bytes, 0, check->error);
  if (!reference->rows || !reference->numbers) {
    check_reference_finish(check, reference);
    return TWH_E_MEMORY;
  }
  reference->k = reference->numbers + count * dims;
  reference->v = reference->k + check->desc->qk_dim;
  for (int64_t i = 0; i < count; ++i) {
    reference->rows[i].q = reference->numbers + i * dims;
    reference->rows[i].b = reference->rows[i].q + check->desc->qk_dim;
  }
  return TWH_OK;
}

/* The first, the last, and one from each part of those between. */
static int64_t check_reference_pick(int64_t i, int64_t count, int64_t n, uint64_t seed)
{
  int64_t from = i * n / count, to = (i + 1) * n / count;
  double  share = 0.5 + 0.5 * twh__check_random(seed, n, count, i);

  if (i == 0) return 0;
  if (i == count - 1) return n - 1;
  return from + twh__min(to - from - 1, (int64_t)(share * (double)(to - from)));
}

/* -inf: hidden. */
static double check_reference_bias(const twh__check *check, const twh__trial *trial, int64_t slot, int64_t row, int64_t j)
{
  const twh_call *call = &trial->call;
  double          value;

  if (call->mask_mode == TWH_MASK_NONE) return 0;
  if (call->mask_mode == TWH_MASK_CAUSAL) return j <= row + check->desc->causal_offset ? 0 : -INFINITY;
  value = twh__load(call->mask.data, check->desc->mask_dtype, slot * call->mask.slot_stride + row * call->mask.row_stride + j);
  if (check->desc->mask_dtype == TWH_BOOL) return value != 0 ? 0 : -INFINITY;
  return value > check->hidden ? value : -INFINITY;
}

static void check_reference_advance(const twh__check *check, const twh__trial *trial, check_reference_row *row, const double *k,
                                    const double *v, double largest, double bias, double grow)
{
  double score = 0, cap = check->desc->softcap, weight, term;

  if (bias == -INFINITY) return;
  for (int64_t c = 0; c < check->desc->qk_dim; ++c) score += row->q[c] * k[c];
  score *= trial->call.scale;
  if (cap > 0) score = cap * tanh(score / cap);
  score += bias;
  if (score > row->m) {
    double factor = exp(row->m - score);
    row->a *= factor;
    row->squares *= factor * factor;
    row->scores *= factor;
    row->values *= factor;
    for (int64_t c = 0; c < check->desc->v_dim; ++c) row->b[c] *= factor;
    row->m = score;
  }
  weight = exp(score - row->m);
  term = weight * (1 + grow * fabs(score)) * largest;
  row->a += weight;
  row->squares += term * term;
  row->scores += weight * fabs(score);
  row->values += weight * largest;
  for (int64_t c = 0; c < check->desc->v_dim; ++c) row->b[c] += weight * v[c];
  ++row->keys;
}

/* The row of a trial that continues others which is that row of the first one; -1: none. */
static int64_t check_reference_place(const twh__trial *trial, int64_t row)
{
  int64_t place = trial->recipe.first ? (row - trial->recipe.shift) * trial->recipe.n : row;
  return place < trial->call.q_len ? place : -1;
}

static void check_reference_keys(const twh__check *check, const twh__trial *trial, int64_t slot, double grow,
                                 check_reference *reference)
{
  for (int64_t j = 0; j < trial->call.k_len; ++j) {
    double largest = 0;
    twh__trial_row(trial, TWH__CHECK_K, slot, j, reference->k);
    twh__trial_row(trial, TWH__CHECK_V, slot, j, reference->v);
    for (int64_t c = 0; c < check->desc->v_dim; ++c) largest = fmax(largest, fabs(reference->v[c]));
    for (int64_t i = 0; i < reference->count; ++i) {
      check_reference_row *row = &reference->rows[i];
      int64_t              place = check_reference_place(trial, row->row);
      double               bias = place < 0 ? -INFINITY : check_reference_bias(check, trial, slot, place, j);
      check_reference_advance(check, trial, row, reference->k, reference->v, largest, bias, grow);
    }
  }
}

static void check_reference_slot(const twh__check *check, const twh__trial *trial, int64_t slot, double grow,
                                 check_reference *reference)
{
  for (int64_t i = 0; i < reference->count; ++i) {
    check_reference_row *row = &reference->rows[i];
    row->row = check_reference_pick(i, reference->count, trial->call.q_len, trial->recipe.seed + (uint64_t)slot);
    row->keys = row->continued = 0;
    row->m = -INFINITY;
    row->a = row->squares = row->scores = row->values = 0;
    memset(row->b, 0, (size_t)check->desc->v_dim * sizeof *row->b);
    twh__trial_row(trial, TWH__CHECK_Q, slot, row->row, row->q);
    for (const twh__trial *next = trial->next; next; next = next->next) {
      row->continued += check_reference_place(next, row->row) >= 0;
    }
  }
  for (const twh__trial *at = trial; at; at = at->next) check_reference_keys(check, at, slot, grow, reference);
}

/* As check.h says; n keys were added up in at least f32. */
static double check_reference_bound(const twh__check *check, const check_reference_row *row, const twh__tolerance *tolerance,
                                    double out)
{
  double noise = sqrt(row->squares) / row->a, values = row->values / row->a, n = (double)row->keys, bound;

  if (tolerance->relative > 0) return tolerance->relative * out + tolerance->absolute;
  bound = 8 * check->score_unit * noise + 4 * check->score_unit * (1 + tolerance->scores * row->scores / row->a) * out;
  bound += 0x1p-22 * sqrt(n) * (out + noise) + 2 * check->out_unit * out;
  /* weights in f16 end at 2^-24, and so do results */
  if (check->desc->dtype == TWH_F16) bound += 0x1p-25 * n * values;
  if (check->desc->out_dtype == TWH_F16) bound += 0x1p-24 * (double)(1 + row->continued);
  bound += check->out_unit * values * (double)row->continued;
  return bound + 0x1p-126;
}

/* error / bound, where not being a number is infinitely wrong. */
static double check_reference_ratio(double error, double bound)
{
  if (error == 0) return 0;
  return error <= bound ? error / bound : error < INFINITY ? fmax(error / bound, 1 + 0x1p-20) : INFINITY;
}

static void check_reference_compare_lse(const twh__check *check, const twh__trial *trial, int64_t slot,
                                        const check_reference_row *row, twh__measure *measure)
{
  double got, wanted = row->m + log(row->a), bound;

  twh__trial_row(trial, TWH__CHECK_LSE, slot, row->row, &got);
  bound = 0x1p-20 * (1 + fabs(wanted)) + 4 * check->score_unit * (1 + row->scores / row->a);
  for (int32_t base2 = 0; base2 < 2; ++base2) {
    double error = fabs((base2 ? got * 0.69314718055994530942 : got) - wanted);
    if (!(error < INFINITY)) error = INFINITY;
    measure->lse_sum[base2] += error;
    measure->lse_error[base2] = fmax(measure->lse_error[base2], error);
    measure->lse_ratio[base2] = fmax(measure->lse_ratio[base2], check_reference_ratio(error, bound));
  }
}

static void check_reference_compare(const twh__check *check, const twh__trial *trial, int64_t slot,
                                    const check_reference_row *row, const twh__tolerance *tolerance, twh__measure *measure)
{
  twh__trial_row(trial, TWH__CHECK_OUT, slot, row->row, check->row);
  for (int64_t c = 0; c < check->desc->v_dim; ++c) {
    double wanted = row->b[c] / row->a, got = check->row[c], error = fabs(got - wanted), ratio;
    if (!(error < INFINITY)) error = INFINITY;
    ratio = check_reference_ratio(error, check_reference_bound(check, row, tolerance, fabs(wanted)));
    measure->largest = fmax(measure->largest, fabs(wanted));
    measure->error = fmax(measure->error, error);
    if (ratio > measure->ratio || measure->rows == 0) {
      measure->ratio = ratio;
      measure->mode = trial->call.mask_mode;
      measure->slot = slot;
      measure->row = row->row;
      measure->column = c;
      measure->got = got;
      measure->wanted = wanted;
    }
  }
  if (trial->blocks[TWH__CHECK_LSE].memory) check_reference_compare_lse(check, trial, slot, row, measure);
  ++measure->rows;
}

twh_status twh__trial_measure(twh__check *check, const twh__trial *trial, const twh__tolerance *tolerance,
                              twh__measure *measure)
{
  int64_t         slots = twh__min(trial->call.slots, CHECK_REFERENCE_SLOTS);
  check_reference reference;
  twh_status      status = check_reference_start(check, trial, slots, &reference);

  if (TWH__FAILED(status)) return status;
  for (int64_t i = 0; i < slots; ++i) {
    int64_t slot = check_reference_pick(i, slots, trial->call.slots, trial->recipe.seed);
    check_reference_slot(check, trial, slot, tolerance->scores, &reference);
    for (int64_t r = 0; r < reference.count; ++r) {
      if (reference.rows[r].keys > 0) check_reference_compare(check, trial, slot, &reference.rows[r], tolerance, measure);
    }
  }
  check_reference_finish(check, &reference);
  return TWH_OK;
}

twh_status twh__check_measure(twh__check *check, const twh__check_shape *shape, const twh__recipe *recipe,
                              const twh__tolerance *tolerance, twh__measure *measure)
{
  twh__trial *one, trial;
  twh_status  status = twh__trial_create(check, shape, recipe, &trial);

  if (TWH__FAILED(status)) return status;
  one = &trial;
  status = twh__trial_run(check, &one, 1);
  if (!TWH__FAILED(status)) status = twh__trial_measure(check, &trial, tolerance, measure);
  twh__trial_destroy(check, &trial);
  return status;
}

/* The distance between neighbours of that size. */
static double check_reference_ulp(const twh__check *check, double size)
{
  int exponent = -126;

  if (size > 0x1p-126) exponent = ilogb(size);
  return ldexp(2 * check->out_unit, exponent);
}

void twh__measure_report(const twh__check *check, const twh__measure *measure, twh__finding *finding)
{
  int32_t     lse = (check->desc->flags & TWH_ORACLE_LSE) != 0, base2 = check->base2;
  const char *mode = measure->mode == TWH_MASK_NONE ? "no mask" : measure->mode == TWH_MASK_CAUSAL ? "causal" : "mask operand";

  if (!(measure->ratio <= 1)) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE,
                     "%s: slot %lld, row %lld, column %lld is %.6g, should be %.6g: %.3g times the bound", mode,
                     (long long)measure->slot, (long long)measure->row, (long long)measure->column, measure->got,
                     measure->wanted, measure->ratio);
  } else if (lse && !(measure->lse_ratio[base2] <= 1)) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE, "out is right, lse is off by up to %.6g", measure->lse_error[base2]);
  } else {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "%lld rows, largest error %.3g (%.2g ulps at %.3g)", (long long)measure->rows,
                     measure->error, measure->error / check_reference_ulp(check, measure->largest), measure->largest);
  }
}
