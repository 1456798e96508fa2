/* The right answer: the problem's definition evaluated directly in float64, and what one call of a kernel as long as the
 * problem gives. The library's promise is stated in terms of both: see the bounds at the end.
 *
 * The visible set is written as the header's formula says, pair by pair, and never as ranges. */
#include "support.h"

twh_sequence support_sequence(const twh_problem *problem, int64_t b, int64_t *entry)
{
  twh_sequence sequence;
  if (problem->sequences) {
    *entry = 0;
    return problem->sequences[b];
  }
  *entry = b;
  sequence.q_begin = sequence.k_begin = sequence.k_offset = 0;
  sequence.q_len = problem->q_len;
  sequence.k_len = problem->k_len;
  sequence.q_offset = problem->q_offset;
  return sequence;
}

int support_visible(const twh_problem *problem, const twh_sequence *sequence, int64_t i, int64_t j)
{
  const twh_pattern *pattern = problem->pattern;
  int64_t            p = i + sequence->q_offset, at = j + sequence->k_offset;
  int                window;
  if (!pattern) return 1;
  if ((pattern->flags & TWH_CAUSAL) && at > p) return 0;
  window =
    (!(pattern->flags & TWH_LEFT) || p - at <= pattern->left) && (!(pattern->flags & TWH_RIGHT) || at - p <= pattern->right);
  return at < pattern->sink_tokens || window;
}

double support_scale(const twh_problem *problem)
{
  return problem->flags & TWH_PROBLEM_SCALE ? problem->scale : 1.0 / sqrt((double)problem->qk_dim);
}

static void support_answer_create(support_answer *answer, const twh_problem *problem, const support_tensors *tensors)
{
  memset(answer, 0, sizeof *answer);
  answer->dim = problem->v_dim;
  answer->rows = tensors->batch * problem->q_heads * tensors->q_rows;
  answer->out = (double *)calloc((size_t)(answer->rows * answer->dim + 1), sizeof *answer->out);
  answer->lse = (double *)calloc((size_t)(answer->rows + 1), sizeof *answer->lse);
  assert_non_null(answer->out);
  assert_non_null(answer->lse);
}

void support_answer_destroy(support_answer *answer)
{
  free(answer->out);
  free(answer->lse);
  memset(answer, 0, sizeof *answer);
}

static int64_t support_answer_row(const twh_problem *problem, const support_tensors *tensors, int64_t entry, int64_t h,
                                  int64_t row)
{
  return (entry * problem->q_heads + h) * tensors->q_rows + row;
}

static double support_larger(double a, double b)
{
  return b > a ? b : a;
}

/* What is added to the score of a visible pair, mask and biases; -INFINITY if the mask hides it. */
static double support_added(const twh_problem *problem, const support_tensors *tensors, const twh_sequence *sequence,
                            int64_t entry, int64_t h, int64_t i, int64_t j)
{
  double added = 0.0, slope;
  if (tensors->all.mask) {
    added = support_at(&tensors->mask, entry, h, sequence->q_begin + i, sequence->k_begin + j);
    if (problem->mask_dtype == TWH_BOOL) added = added != 0.0 ? 0.0 : -INFINITY;
  }
  if (tensors->all.key_bias) added += support_at(&tensors->key_bias, entry, h, sequence->k_begin + j, 0);
  if (tensors->all.alibi_slopes) {
    slope = support_load(tensors->slopes.data, tensors->slopes.dtype, h * tensors->slopes.head_stride);
    added += slope * (double)(j + sequence->k_offset - (i + sequence->q_offset));
  }
  return added;
}

/* Logits of one query row; -INFINITY where it sees nothing. `keys` and `query` are dense float64. */
static void support_logits(double *logits, const twh_problem *problem, const support_tensors *tensors,
                           const twh_sequence *sequence, int64_t entry, int64_t h, int64_t i, const double *query,
                           const double *keys)
{
  double  scale = support_scale(problem), dot, added;
  int64_t j, c, dim = problem->qk_dim;
  for (j = 0; j < sequence->k_len; ++j) {
    logits[j] = -INFINITY;
    if (!support_visible(problem, sequence, i, j)) continue;
    added = support_added(problem, tensors, sequence, entry, h, i, j);
    if (added == -INFINITY) continue;
    dot = 0.0;
    for (c = 0; c < dim; ++c) dot += query[c] * keys[j * dim + c];
    dot *= scale;
    if (problem->softcap > 0.0) dot = problem->softcap * tanh(dot / problem->softcap);
    logits[j] = dot + added;
  }
}

/* out and lse of one row from its logits; `sink` is -INFINITY for none. */
static void support_softmax(const double *logits, int64_t n, double sink, const double *values, int64_t dim, double *out,
                            double *lse)
{
  double  most = sink, sum = 0.0, weight;
  int64_t j, c;
  for (j = 0; j < n; ++j) most = support_larger(most, logits[j]);
  for (c = 0; c < dim; ++c) out[c] = 0.0;
  *lse = -INFINITY;
  if (most == -INFINITY) return;
  if (sink != -INFINITY) sum = exp(sink - most);
  for (j = 0; j < n; ++j) {
    if (logits[j] == -INFINITY) continue;
    weight = exp(logits[j] - most);
    sum += weight;
    for (c = 0; c < dim; ++c) out[c] += weight * values[j * dim + c];
  }
  for (c = 0; c < dim; ++c) out[c] /= sum;
  *lse = most + log(sum);
}

static double *support_copy(const twh_tensor *tensor, int64_t entry, int64_t h, int64_t begin, int64_t rows, int64_t dim)
{
  double *copy = (double *)malloc(sizeof *copy * (size_t)(rows * dim + 1));
  int64_t r, c;
  assert_non_null(copy);
  for (r = 0; r < rows; ++r)
    for (c = 0; c < dim; ++c) copy[r * dim + c] = support_at(tensor, entry, h, begin + r, c);
  return copy;
}

static double support_sink(const support_tensors *tensors, int64_t h)
{
  return tensors->all.sink_logits ? support_load(tensors->sinks.data, tensors->sinks.dtype, h * tensors->sinks.head_stride)
                                  : -INFINITY;
}

void support_answer_truth(support_answer *answer, const twh_problem *problem, const support_tensors *tensors)
{
  int64_t b, h, i, j, c, entry, row, group = problem->q_heads / problem->kv_heads;
  support_answer_create(answer, problem, tensors);
  for (b = 0; b < problem->batch; ++b) {
    twh_sequence sequence = support_sequence(problem, b, &entry);
    double      *logits = (double *)malloc(sizeof *logits * (size_t)(sequence.k_len + 1));
    assert_non_null(logits);
    for (h = 0; h < problem->q_heads; ++h) {
      double *q = support_copy(&tensors->q, entry, h, sequence.q_begin, sequence.q_len, problem->qk_dim);
      double *k = support_copy(&tensors->k, entry, h / group, sequence.k_begin, sequence.k_len, problem->qk_dim);
      double *v = support_copy(&tensors->v, entry, h / group, sequence.k_begin, sequence.k_len, problem->v_dim);
      for (i = 0; i < sequence.q_len; ++i) {
        row = support_answer_row(problem, tensors, entry, h, sequence.q_begin + i);
        support_logits(logits, problem, tensors, &sequence, entry, h, i, q + i * problem->qk_dim, k);
        support_softmax(logits, sequence.k_len, support_sink(tensors, h), v, problem->v_dim, answer->out + row * answer->dim,
                        answer->lse + row);
        for (c = 0; c < answer->dim; ++c)
          answer->max_out = support_larger(answer->max_out, fabs(answer->out[row * answer->dim + c]));
        for (j = 0; j < sequence.k_len; ++j) {
          if (logits[j] == -INFINITY) continue;
          answer->max_logit = support_larger(answer->max_logit, fabs(logits[j]));
          for (c = 0; c < answer->dim; ++c) answer->max_value = support_larger(answer->max_value, fabs(v[j * answer->dim + c]));
        }
      }
      free(q);
      free(k);
      free(v);
    }
    free(logits);
  }
}

/* ---- one call of full length ---- */

typedef struct support_operands {
  void   *q, *k, *v, *mask, *out;
  float  *lse;
  int64_t kept; /* keys that at least one row could see */
} support_operands;

static void support_operands_create(support_operands *o, const twh_problem *problem, const support_tensors *tensors,
                                    const twh_sequence *sequence, int64_t entry, int64_t h, const twh_oracle_desc *desc)
{
  int64_t i, j, c, kv = h / (problem->q_heads / problem->kv_heads), nq = sequence->q_len, nk = sequence->k_len;
  double  ratio = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? 1.0 : support_scale(problem) / desc->scale, bias;
  size_t  size = (size_t)support_bytes(desc->dtype);
  o->q = malloc((size_t)(nq * problem->qk_dim) * size);
  o->k = malloc((size_t)(nk * problem->qk_dim) * size);
  o->v = malloc((size_t)(nk * problem->v_dim) * size);
  o->mask = malloc((size_t)(nq * nk) * 4);
  o->out = malloc((size_t)(nq * problem->v_dim) * (size_t)support_bytes(desc->out_dtype ? desc->out_dtype : desc->dtype));
  o->lse = (float *)malloc((size_t)nq * sizeof(float));
  assert_true(o->q && o->k && o->v && o->mask && o->out && o->lse);
  for (i = 0; i < nq; ++i)
    for (c = 0; c < problem->qk_dim; ++c)
      support_store(o->q, desc->dtype, i * problem->qk_dim + c,
                    ratio * support_at(&tensors->q, entry, h, sequence->q_begin + i, c));
  for (j = 0; j < nk; ++j) {
    for (c = 0; c < problem->qk_dim; ++c)
      support_store(o->k, desc->dtype, j * problem->qk_dim + c, support_at(&tensors->k, entry, kv, sequence->k_begin + j, c));
    for (c = 0; c < problem->v_dim; ++c)
      support_store(o->v, desc->dtype, j * problem->v_dim + c, support_at(&tensors->v, entry, kv, sequence->k_begin + j, c));
  }
  for (i = 0; i < nq; ++i)
    for (j = 0; j < nk; ++j) {
      bias = support_visible(problem, sequence, i, j) ? support_added(problem, tensors, sequence, entry, h, i, j) : -INFINITY;
      ((float *)o->mask)[i * nk + j] = (float)bias;
    }
}

static void support_operands_destroy(support_operands *o)
{
  free(o->q);
  free(o->k);
  free(o->v);
  free(o->mask);
  free(o->out);
  free(o->lse);
}

static void support_one_call(support_answer *answer, const twh_problem *problem, const support_tensors *tensors,
                             const twh_sequence *sequence, int64_t entry, int64_t h, const twh_oracle_desc *kernel,
                             const twh_reference_options *options)
{
  twh_oracle_desc  desc;
  twh_oracle      *oracle = NULL;
  twh_error        error;
  twh_call         call;
  const twh_call  *calls[1];
  support_operands operands;
  int64_t          i, c, row;
  double           lse, sink, share;
  twh_error_init(&error);
  twh_oracle_desc_init(&desc);
  desc.flags = TWH_ORACLE_LSE | (kernel->flags & (TWH_ORACLE_SCALE_PER_CALL | TWH_ORACLE_F16_SCORES));
  desc.slots = 1;
  desc.q_len = sequence->q_len;
  desc.k_len = sequence->k_len;
  desc.qk_dim = problem->qk_dim;
  desc.v_dim = problem->v_dim;
  desc.dtype = kernel->dtype;
  desc.out_dtype = kernel->out_dtype;
  desc.mask_dtype = TWH_F32;
  desc.mask_modes = TWH_MASK_TENSOR;
  desc.scale = kernel->scale;
  desc.softcap = kernel->softcap;
  support_assert_status(twh_reference_oracle_create(NULL, &desc, options, &oracle, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_oracle_get_desc(oracle, &desc, &error), TWH_OK, &error, NULL);
  support_operands_create(&operands, problem, tensors, sequence, entry, h, &desc);
  twh_call_init(&call);
  call.mask_mode = TWH_MASK_TENSOR;
  call.slots = 1;
  call.q_len = desc.q_len;
  call.k_len = desc.k_len;
  call.q.data = operands.q;
  call.k.data = operands.k;
  call.v.data = operands.v;
  call.mask.data = operands.mask;
  call.q.row_stride = call.k.row_stride = desc.qk_dim;
  call.v.row_stride = call.out_row_stride = desc.v_dim;
  call.mask.row_stride = desc.k_len;
  call.scale = desc.flags & TWH_ORACLE_SCALE_PER_CALL ? support_scale(problem) : desc.scale;
  call.out = operands.out;
  call.lse = operands.lse;
  call.lse_slot_stride = desc.q_len;
  calls[0] = &call;
  assert_int_equal(desc.run(desc.user, calls, 1), 0);
  for (i = 0; i < sequence->q_len; ++i) {
    row = support_answer_row(problem, tensors, entry, h, sequence->q_begin + i);
    lse = (double)operands.lse[i];
    sink = support_sink(tensors, h);
    share = lse == -INFINITY ? 0.0 : 1.0;
    if (sink != -INFINITY) {
      double most = support_larger(sink, lse), sum = exp(sink - most) + (share > 0.0 ? exp(lse - most) : 0.0);
      share = share > 0.0 ? exp(lse - most) / sum : 0.0;
      lse = most + log(sum);
    }
    answer->lse[row] = lse;
    for (c = 0; c < desc.v_dim; ++c)
      answer->out[row * answer->dim + c] =
        share > 0.0 ? share * support_load(operands.out, desc.out_dtype, i * desc.v_dim + c) : 0.0;
  }
  support_operands_destroy(&operands);
  twh_oracle_destroy(oracle);
}

void support_answer_one_call(support_answer *answer, const twh_problem *problem, const support_tensors *tensors,
                             const twh_oracle_desc *kernel, const twh_reference_options *options)
{
  int64_t b, h, i, entry, row;
  support_answer_create(answer, problem, tensors);
  for (b = 0; b < problem->batch; ++b) {
    twh_sequence sequence = support_sequence(problem, b, &entry);
    for (h = 0; h < problem->q_heads; ++h) {
      if (sequence.q_len > 0 && sequence.k_len > 0) {
        support_one_call(answer, problem, tensors, &sequence, entry, h, kernel, options);
        continue;
      }
      for (i = 0; i < sequence.q_len; ++i) {
        row = support_answer_row(problem, tensors, entry, h, sequence.q_begin + i);
        answer->lse[row] = support_sink(tensors, h);
      }
    }
  }
}

void support_answer_read(support_answer *answer, const twh_problem *problem, const support_tensors *tensors)
{
  int64_t b, h, i, c, entry, row;
  support_answer_create(answer, problem, tensors);
  for (b = 0; b < problem->batch; ++b) {
    twh_sequence sequence = support_sequence(problem, b, &entry);
    for (h = 0; h < problem->q_heads; ++h)
      for (i = 0; i < sequence.q_len; ++i) {
        row = support_answer_row(problem, tensors, entry, h, sequence.q_begin + i);
        for (c = 0; c < answer->dim; ++c)
          answer->out[row * answer->dim + c] = support_at(&tensors->out, entry, h, sequence.q_begin + i, c);
        if (tensors->all.lse) answer->lse[row] = support_at(&tensors->lse, entry, h, sequence.q_begin + i, 0);
      }
  }
}

/* ---- comparisons ---- */

static double support_difference(const double *got, const double *want, int64_t n)
{
  double  error = 0.0, one;
  int64_t i;
  for (i = 0; i < n; ++i) {
    if (got[i] == want[i]) continue; /* also equal infinities */
    one = fabs(got[i] - want[i]);
    if (!(one < INFINITY)) return INFINITY;
    error = support_larger(error, one);
  }
  return error;
}

double support_answer_out_error(const support_answer *got, const support_answer *want)
{
  return support_difference(got->out, want->out, want->rows * want->dim);
}

double support_answer_lse_error(const support_answer *got, const support_answer *want)
{
  return support_difference(got->lse, want->lse, want->rows);
}

double support_out_bound(const support_answer *one_call, const support_answer *truth, const twh_oracle_desc *kernel, int small)
{
  double bound = 2.0 * support_answer_out_error(one_call, truth) + support_ulp(truth->max_out, kernel->dtype);
  if (kernel->dtype == TWH_F32) bound += support_ulp(truth->max_logit, TWH_F32) * truth->max_value;
  if (small) bound += support_epsilon(kernel->dtype) * truth->max_value; /* half for a tile's output, half for its weight */
  return bound;
}

double support_lse_bound(const support_answer *one_call, const support_answer *truth, const twh_oracle_desc *kernel)
{
  /* a sum is read from two weights of the kernel at most, each within half an ulp of its dtype, and lse is stored as f32 */
  return 2.0 * support_answer_lse_error(one_call, truth) + 2.0 * support_epsilon(kernel->dtype) +
         4.0 * support_ulp(truth->max_logit + 1.0, TWH_F32);
}
