/* Attention by its definition: see truth.h.
 *
 * A plain loop over rows in float64, written from the equations in twoheads.h and sharing nothing with the library, so that
 * the two can be compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "truth.h"
#include "number.h"
#include "order.h"
#include "rounding.h"

enum { TRUTH_ROWS_PER_TASK = 16 };

/* An array (a, b, c, d) of elements of `bytes`; NULL when memory cannot be had. */
static void *truth_array(int64_t bytes, int64_t a, int64_t b, int64_t c, int64_t d)
{
  int64_t factors[5];
  size_t  all;

  factors[0] = a;
  factors[1] = b;
  factors[2] = c;
  factors[3] = d;
  factors[4] = bytes;
  return number_product(factors, 5, &all) ? malloc(all + 1) : NULL;
}

/* What a kernel of this dtype sees of an array: f32 holds every value of any kernel's dtype. *own: a rounded copy, or NULL
 * where the array itself will do. */
static const float *truth_rounded(const npy_array *from, int32_t dtype, float **own)
{
  *own = NULL;
  if (from->dtype == TWH_F32 && dtype == TWH_F32) return (const float *)from->data;
  *own = (float *)truth_array((int64_t)sizeof **own, (int64_t)from->count, 1, 1, 1);
  for (size_t i = 0; *own && i < from->count; ++i) {
    (*own)[i] = (float)rounding_round(rounding_load(from->data, from->dtype, (int64_t)i), dtype);
  }
  return *own;
}

static void truth_gather_queries(truth_sample *sample, int32_t dtype)
{
  const workload  *work = sample->work;
  const npy_array *q = &work->q;
  int64_t          dim = work->problem.qk_dim;
  float           *to = sample->q;

  for (int64_t head = 0; head < work->batch * work->problem.q_heads; ++head) {
    for (int64_t r = 0; r < sample->rows; ++r) {
      int64_t from = (head * work->q_rows + sample->row[r]) * dim;
      for (int64_t c = 0; c < dim; ++c) *to++ = (float)rounding_round(rounding_load(q->data, q->dtype, from + c), dtype);
    }
  }
}

int truth_create(const workload *work, int32_t dtype, int32_t mask_dtype, int64_t rows, truth_sample *out, complaint *error)
{
  const twh_problem *problem = &work->problem;
  int64_t            batch = work->batch, heads = problem->q_heads;

  memset(out, 0, sizeof *out);
  if (rows > work->q_rows) rows = work->q_rows;
  out->work = work;
  out->mask_dtype = mask_dtype;
  out->rows = rows;
  out->row = (int64_t *)truth_array((int64_t)sizeof *out->row, rows, 1, 1, 1);
  out->q = (float *)truth_array((int64_t)sizeof *out->q, batch, heads, rows, problem->qk_dim);
  out->k = truth_rounded(&work->k, dtype, &out->own_k);
  out->v = truth_rounded(&work->v, dtype, &out->own_v);
  out->out = (double *)truth_array((int64_t)sizeof *out->out, batch, heads, rows, problem->v_dim);
  out->lse = (double *)truth_array((int64_t)sizeof *out->lse, batch, heads, rows, 1);
  if (!out->row || !out->q || !out->k || !out->v || !out->out || !out->lse) {
    return complaint_make(error, EXIT_FAILED, "not enough memory for --verify; give fewer rows (--verify=ROWS)");
  }
  for (int64_t r = 0; r < rows; ++r) {
    double last = (double)(work->q_rows - 1);
    out->row[r] = rows == 1 ? work->q_rows - 1 : (int64_t)floor((double)r * last / (double)(rows - 1));
  }
  truth_gather_queries(out, dtype);
  return 0;
}

void truth_finish(truth_sample *sample)
{
  free(sample->row);
  free(sample->q);
  free(sample->own_k);
  free(sample->own_v);
  free(sample->out);
  free(sample->lse);
  memset(sample, 0, sizeof *sample);
}

/* Does the query at absolute position p see the key at j? */
static int truth_sees(const twh_pattern *pattern, int64_t p, int64_t j)
{
  if ((pattern->flags & TWH_CAUSAL) && j > p) return 0;
  if (j < pattern->sink_tokens) return 1;
  if ((pattern->flags & TWH_LEFT) && j < p - pattern->left) return 0;
  return !(pattern->flags & TWH_RIGHT) || j <= p + pattern->right;
}

/* What a mask tensor adds. */
static double truth_mask(const truth_sample *sample, int64_t batch, int64_t head, int64_t row, int64_t key)
{
  const twh_tensor *mask = &sample->work->mask_tensor;
  int64_t           at = batch * mask->batch_stride + head * mask->head_stride + row * mask->row_stride + key;
  double            value = rounding_load(mask->data, mask->dtype, at);

  if (mask->dtype == TWH_BOOL) return value != 0.0 ? 0.0 : -(double)INFINITY;
  return rounding_round(value, sample->mask_dtype);
}

/* As truth_bias, for row `row` of the arrays and its sequence. */
static double truth_added(const truth_sample *sample, int64_t batch, int64_t head, int64_t row, int64_t key,
                          const twh_sequence *sequence)
{
  const workload   *work = sample->work;
  const twh_tensor *bias = &work->bias_tensor, *slopes = &work->slopes_tensor;
  int64_t           p = row - sequence->q_begin + sequence->q_offset, j = key - sequence->k_begin + sequence->k_offset;
  double            sum = 0.0;

  if (key < sequence->k_begin || key >= sequence->k_begin + sequence->k_len) return -(double)INFINITY;
  if (!truth_sees(&work->pattern, p, j)) return -(double)INFINITY;
  if (work->mask.data) sum += truth_mask(sample, batch, head, row, key);
  if (work->key_bias.data) {
    int64_t at = batch * bias->batch_stride + head * bias->head_stride + key * bias->row_stride;
    sum += rounding_load(bias->data, bias->dtype, at);
  }
  if (work->slopes.data) sum += rounding_load(slopes->data, slopes->dtype, head) * (double)(j - p);
  return sum;
}

double truth_bias(const truth_sample *sample, int64_t batch, int64_t head, int64_t r, int64_t key)
{
  twh_sequence sequence;

  workload_sequence(sample->work, workload_sequence_of(sample->work, batch, sample->row[r]), &sequence);
  return truth_added(sample, batch, head, sample->row[r], key, &sequence);
}

/* One row: logits of its sequence's keys into `logits`, then the sums. `row` counts in the sample. */
static void truth_row(const truth_sample *sample, int64_t batch, int64_t head, int64_t row, double *logits)
{
  const workload    *work = sample->work;
  const twh_problem *problem = &work->problem;
  const npy_array   *sinks = &work->sink_logits;
  int64_t            dk = problem->qk_dim, dv = problem->v_dim, at = (batch * problem->q_heads + head) * sample->rows + row;
  int64_t            kv_head = batch * problem->kv_heads + head / (problem->q_heads / problem->kv_heads);
  double            *out = sample->out + at * dv;
  double             scale = workload_scale(work), cap = problem->softcap, most = -(double)INFINITY, sum = 0.0;
  const float       *q = sample->q + at * dk, *k, *v;
  twh_sequence       sequence;

  workload_sequence(work, workload_sequence_of(work, batch, sample->row[row]), &sequence);
  k = sample->k + (kv_head * work->k_rows + sequence.k_begin) * dk;
  v = sample->v + (kv_head * work->k_rows + sequence.k_begin) * dv;
  if (sinks->data) most = rounding_load(sinks->data, sinks->dtype, head);
  for (int64_t j = 0; j < sequence.k_len; ++j) {
    double bias = truth_added(sample, batch, head, sample->row[row], sequence.k_begin + j, &sequence), dot = 0.0;
    logits[j] = bias;
    if (bias == -(double)INFINITY) continue;
    for (int64_t c = 0; c < dk; ++c) dot += (double)q[c] * (double)k[j * dk + c];
    dot *= scale;
    if (cap > 0.0) dot = cap * tanh(dot / cap);
    logits[j] = dot + bias;
    if (!(logits[j] <= most)) most = logits[j];
  }
  memset(out, 0, (size_t)dv * sizeof *out);
  sample->lse[at] = -(double)INFINITY;
  if (most == -(double)INFINITY) return;
  if (sinks->data) sum = exp(rounding_load(sinks->data, sinks->dtype, head) - most);
  for (int64_t j = 0; j < sequence.k_len; ++j) {
    double weight;
    if (logits[j] == -(double)INFINITY) continue; /* also keeps 0 * NaN of a hidden value out */
    weight = exp(logits[j] - most);
    sum += weight;
    for (int64_t c = 0; c < dv; ++c) out[c] += weight * (double)v[j * dv + c];
  }
  for (int64_t c = 0; c < dv; ++c) out[c] /= sum;
  sample->lse[at] = most + log(sum);
}

/* A task: a block of rows of one head. */
typedef struct truth_work {
  const truth_sample *sample;
  int64_t             blocks; /* of each head */
  int                 failed; /* some task had no memory; written atomically */
} truth_work;

static void truth_task(void *arg, int64_t i)
{
  truth_work         *work = (truth_work *)arg;
  const truth_sample *sample = work->sample;
  const twh_problem  *problem = &sample->work->problem;
  int64_t             head = i / work->blocks, first = i % work->blocks * TRUTH_ROWS_PER_TASK;
  double             *logits = (double *)truth_array((int64_t)sizeof *logits, sample->work->k_rows, 1, 1, 1);

  if (!logits) {
    __atomic_store_n(&work->failed, 1, __ATOMIC_RELAXED);
    return;
  }
  for (int64_t r = first; r < sample->rows && r < first + TRUTH_ROWS_PER_TASK; ++r) {
    truth_row(sample, head / problem->q_heads, head % problem->q_heads, r, logits);
  }
  free(logits);
}

int truth_compute(truth_sample *sample, pool *workers, complaint *error)
{
  truth_work work;

  work.sample = sample;
  work.blocks = (sample->rows + TRUTH_ROWS_PER_TASK - 1) / TRUTH_ROWS_PER_TASK;
  work.failed = 0;
  pool_parallel_for(workers, sample->work->batch * sample->work->problem.q_heads * work.blocks, truth_task, &work);
  return work.failed ? complaint_make(error, EXIT_FAILED, "not enough memory for --verify") : 0;
}

/* The larger of an error so far and |a - b|; NaN once there is one. Equal infinities differ by nothing. */
static double truth_worse(double so_far, double a, double b)
{
  double difference = a == b ? 0.0 : fabs(a - b);
  return isnan(so_far) || difference <= so_far ? so_far : difference;
}

/* Compare rows of `dim` elements. */
static double truth_error(const truth_sample *sample, const double *right, const npy_array *array, int64_t dim, int all)
{
  const twh_problem *problem = &sample->work->problem;
  double             error = 0.0;

  for (int64_t head = 0; head < sample->work->batch * problem->q_heads; ++head) {
    for (int64_t r = 0; r < sample->rows; ++r) {
      int64_t from = (all ? head * sample->work->q_rows + sample->row[r] : head * sample->rows + r) * dim;
      for (int64_t c = 0; c < dim; ++c) {
        error = truth_worse(error, rounding_load(array->data, array->dtype, from + c), *right++);
      }
    }
  }
  return error;
}

double truth_out_error(const truth_sample *sample, const npy_array *out, int all)
{
  return truth_error(sample, sample->out, out, sample->work->problem.v_dim, all);
}

double truth_lse_error(const truth_sample *sample, const npy_array *lse, int all)
{
  return truth_error(sample, sample->lse, lse, 1, all);
}

/* |a - b|_2 / |b|_2 of a row; where b is 0, |a|_2. Numbers of f32 have squares that double holds. */
static double truth_relative(const npy_array *array, int64_t from, const double *right, int64_t dim)
{
  double difference = 0.0, norm = 0.0;

  for (int64_t c = 0; c < dim; ++c) {
    double a = rounding_load(array->data, array->dtype, from + c), b = right[c];
    if (a != b) difference += (a - b) * (a - b); /* equal infinities differ by nothing */
    norm += b * b;
  }
  return difference == 0.0 ? 0.0 : norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}

int truth_row_errors(const truth_sample *sample, const npy_array *out, double *median, double *most, complaint *error)
{
  const workload *work = sample->work;
  int64_t         heads = work->batch * work->problem.q_heads, rows = sample->rows, n = heads * rows, dim = work->problem.v_dim;
  double         *errors = (double *)truth_array((int64_t)sizeof *errors, heads, rows, 1, 1);
  int             nan = 0;

  *median = *most = 0.0;
  if (!errors) return complaint_make(error, EXIT_FAILED, "not enough memory for --verify; give fewer rows (--verify=ROWS)");
  for (int64_t i = 0; i < n; ++i) {
    int64_t row = i / rows * work->q_rows + sample->row[i % rows];
    errors[i] = truth_relative(out, row * dim, sample->out + i * dim, dim);
    nan |= isnan(errors[i]);
  }
  if (nan) {
    *median = *most = (double)NAN;
  } else if (n > 0) {
    order_sort(errors, (size_t)n);
    *median = order_quantile(errors, (size_t)n, 0.5);
    *most = errors[n - 1];
  }
  free(errors);
  return 0;
}
