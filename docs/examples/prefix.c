/* Why a window is not a prefix minus a prefix. The attention of a query to its last 16 keys is the difference of two causal
 * sums: the one up to its own key, less the one up to the key before its window. That is exact on paper:
 *
 *     build/prefix
 *
 * prints what it is in f32, beside the library on a kernel of the same length. Sums begin at the first key that a block of 241
 * rows sees, the latest that calls of 256 tokens allow. There are three ways to come by them:
 * - As the paper's Lemma 3.1 prints it, from a kernel that returns no more than its output: one more key of score 0, and
 *   A = x / (1 - x). The kernel is exact but for one rounding of each number that it returns.
 * - From the same kernel's log-sum-exp, relative to the larger of the two; what follows is in float64.
 * - From nowhere: sums that a kernel would have to keep for it, relative to the query's largest score, added up key by key in
 *   one pass in f32, so that the smaller sum is the larger one before its last 16 terms. That is as good as it can be.
 * The library gets the kernel without log-sum-exp.
 *
 * Prints a table in Markdown: the largest error and the median over rows of a row's largest error, against float64. Exits with
 * 1 if the library is off by more than twice the error of one call over just the keys that a row sees, plus one unit in the
 * last place of the largest output, plus one of the largest logit times the largest value. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/formats.h"
#include "reference/reference.h"
#include "twoheads.h"

enum { DIM = 64, WINDOW = 16, LENGTH = 256, ROWS = 2048, SPARE = 16 };
enum { BLOCK = LENGTH - WINDOW + 1 }; /* rows whose windows lie within LENGTH keys */
enum { BY_LEMMA, BY_CALLS, BY_SUMS, TWOHEADS, ONE_CALL, WAYS };

typedef struct prefix_data {
  float  q[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM];
  double exact[ROWS * DIM];
  float  out[WAYS][ROWS * DIM];
  double max_logit, max_value, max_out; /* absolute */
} prefix_data;

/* Nearly normal with standard deviation 1: the sum of twelve uniform numbers. */
static double prefix_random(uint64_t *seed)
{
  double sum = -6.0;
  for (int i = 0; i < 12; i++) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    sum += (double)(*seed >> 33) / 2147483648.0;
  }
  return sum;
}

static double prefix_score(const prefix_data *data, int64_t row, int64_t key)
{
  double sum = 0.0;
  for (int64_t c = 0; c < DIM; c++) sum += (double)data->q[row * DIM + c] * (double)data->k[key * DIM + c];
  return sum / 8.0; /* sqrt(DIM) */
}

static int64_t prefix_window(int64_t row)
{
  return row < WINDOW ? 0 : row - WINDOW + 1;
}

static void prefix_exact_row(prefix_data *data, int64_t row)
{
  double top = -INFINITY, sum = 0.0, *out = data->exact + row * DIM;
  for (int64_t j = prefix_window(row); j <= row; j++) top = fmax(top, prefix_score(data, row, j));
  memset(out, 0, DIM * sizeof *out);
  for (int64_t j = prefix_window(row); j <= row; j++) {
    const double score = prefix_score(data, row, j), weight = exp(score - top);
    data->max_logit = fmax(data->max_logit, fabs(score));
    sum += weight;
    for (int64_t c = 0; c < DIM; c++) out[c] += weight * (double)data->v[j * DIM + c];
  }
  for (int64_t c = 0; c < DIM; c++) data->max_out = fmax(data->max_out, fabs(out[c] /= sum));
}

static void prefix_fill(prefix_data *data, double spread)
{
  uint64_t seed = 20250612u;
  data->max_logit = data->max_value = data->max_out = 0.0;
  for (int64_t i = 0; i < ROWS * DIM; i++) {
    data->k[i] = (float)prefix_random(&seed);
    data->v[i] = (float)prefix_random(&seed);
    data->q[i] = (float)(spread * prefix_random(&seed));
    data->max_value = fmax(data->max_value, fabs((double)data->v[i]));
  }
  for (int64_t row = 0; row < ROWS; row++) prefix_exact_row(data, row);
  for (int64_t i = 0; i < ROWS * DIM; i++) {
    for (int way = 0; way < WAYS; way++) data->out[way][i] = NAN;
  }
}

/* ---- the ways ----------------------------------------------------------------------------------------------------------- */

static void prefix_describe(twh_oracle_desc *desc, int64_t q_len, int64_t k_len)
{
  twh_oracle_desc_init(desc);
  desc->slots = 1;
  desc->q_len = q_len, desc->k_len = k_len;
  desc->qk_dim = desc->v_dim = DIM;
  desc->dtype = TWH_F32;
  desc->flags = TWH_ORACLE_LSE;
  desc->mask_modes = q_len > 1 ? TWH_MASK_CAUSAL : TWH_MASK_NONE;
  desc->scale = 0.125;
}

static int prefix_call(const twh_oracle_desc *kernel, const float *q, const float *k, const float *v, float *out, float *lse)
{
  twh_call call;
  twh_call_init(&call);
  call.mask_mode = kernel->mask_modes;
  call.slots = 1;
  call.q_len = kernel->q_len, call.k_len = kernel->k_len;
  call.q.data = q, call.k.data = k, call.v.data = v;
  call.q.row_stride = call.k.row_stride = call.v.row_stride = call.out_row_stride = DIM;
  call.scale = kernel->scale;
  call.out = out, call.lse = lse;
  const twh_call *calls[1] = {&call};
  return kernel->run(kernel->user, calls, 1) != 0;
}

typedef struct prefix_slot {
  float q[LENGTH * DIM], k[LENGTH * DIM], v[LENGTH * DIM], out[LENGTH * DIM], lse[LENGTH];
} prefix_slot;

/* Rows first .. last - 1 at slot positions at, at + 1, ...: each sees the slot's keys up to its position. */
static int prefix_sums(const prefix_data *data, const twh_oracle_desc *kernel, prefix_slot *slot, int64_t first, int64_t last,
                       int64_t at)
{
  memset(slot->q, 0, sizeof slot->q);
  memcpy(slot->q + at * DIM, data->q + first * DIM, (size_t)((last - first) * DIM) * sizeof(float));
  return prefix_call(kernel, slot->q, slot->k, slot->v, slot->out, slot->lse);
}

/* Two calls for each block of rows. Returns how many were made, or -1. */
static int64_t prefix_by_calls(prefix_data *data, const twh_oracle_desc *kernel)
{
  static prefix_slot whole, before; /* sums up to the row's own key, and up to the key before its window */
  int64_t made = 0;
  for (int64_t first = 0; first < ROWS; first += BLOCK, made += 2) {
    const int64_t last = first + BLOCK < ROWS ? first + BLOCK : ROWS, begin = prefix_window(first);
    const int64_t cut = first < WINDOW ? WINDOW : first + 1; /* the first row with keys before its window */
    memset(&whole, 0, sizeof whole);
    memcpy(whole.k, data->k + begin * DIM, (size_t)((last - begin) * DIM) * sizeof(float));
    memcpy(whole.v, data->v + begin * DIM, (size_t)((last - begin) * DIM) * sizeof(float));
    before = whole;
    if (prefix_sums(data, kernel, &whole, first, last, first - begin)) return -1;
    if (prefix_sums(data, kernel, &before, cut, last, cut - begin - WINDOW)) return -1;
    for (int64_t row = first; row < last; row++) {
      const int64_t at = row - begin, under = at - WINDOW;
      const double  more = row < cut ? -INFINITY : (double)before.lse[under] - (double)whole.lse[at]; /* <= 0 */
      for (int64_t c = 0; c < DIM; c++) {
        const double rest = row < cut ? 0.0 : exp(more) * (double)before.out[under * DIM + c];
        data->out[BY_CALLS][row * DIM + c] = (float)(((double)whole.out[at * DIM + c] - rest) / -expm1(more));
      }
    }
  }
  return made;
}

/* Where the sums of a row begin. */
static int64_t prefix_begin(int64_t row)
{
  return prefix_window(row / BLOCK * BLOCK);
}

static void prefix_by_sums(prefix_data *data)
{
  static float score[LENGTH];
  for (int64_t row = 0; row < ROWS; row++) {
    const int64_t begin = prefix_begin(row);
    float         sum[DIM + 1] = {0}, before[DIM + 1] = {0}, top = -INFINITY;
    for (int64_t j = begin; j <= row; j++) {
      score[j - begin] = (float)prefix_score(data, row, j);
      top = fmaxf(top, score[j - begin]);
    }
    for (int64_t j = begin; j <= row; j++) {
      const float weight = expf(score[j - begin] - top);
      if (j == prefix_window(row)) memcpy(before, sum, sizeof sum);
      for (int64_t c = 0; c < DIM; c++) sum[c] += weight * data->v[j * DIM + c];
      sum[DIM] += weight;
    }
    for (int64_t c = 0; c < DIM; c++) data->out[BY_SUMS][row * DIM + c] = (sum[c] - before[c]) / (sum[DIM] - before[DIM]);
  }
}

/* sum: of e^score v, and of e^score behind them. Becomes what Lemma 3.1 makes of the kernel's f32 results. */
static void prefix_through_lemma(const double *sum, float *result)
{
  const float x = (float)(sum[DIM] / (1.0 + sum[DIM]));
  result[DIM] = x / (1.0f - x);
  for (int64_t c = 0; c < DIM; c++) result[c] = (1.0f + result[DIM]) * (float)(sum[c] / (1.0 + sum[DIM]));
}

static void prefix_by_lemma(prefix_data *data)
{
  for (int64_t row = 0; row < ROWS; row++) {
    double sum[DIM + 1] = {0};
    float  whole[DIM + 1], before[DIM + 1] = {0};
    for (int64_t j = prefix_begin(row); j <= row; j++) {
      const double weight = exp(prefix_score(data, row, j));
      if (j == prefix_window(row)) prefix_through_lemma(sum, before);
      for (int64_t c = 0; c < DIM; c++) sum[c] += weight * (double)data->v[j * DIM + c];
      sum[DIM] += weight;
    }
    prefix_through_lemma(sum, whole);
    for (int64_t c = 0; c < DIM; c++) {
      data->out[BY_LEMMA][row * DIM + c] = (whole[c] - before[c]) / (whole[DIM] - before[DIM]);
    }
  }
}

static int prefix_by_one_call(prefix_data *data, twh_oracle_desc *short_kernels) /* one for each number of keys */
{
  float lse;
  for (int64_t row = 0; row < ROWS; row++) {
    const int64_t begin = prefix_window(row);
    if (prefix_call(&short_kernels[row - begin], data->q + row * DIM, data->k + begin * DIM, data->v + begin * DIM,
                    data->out[ONE_CALL] + row * DIM, &lse)) return -1;
  }
  return 0;
}

static twh_status prefix_by_twoheads(prefix_data *data, twh_oracle *oracle, int64_t *calls, twh_error *error)
{
  twh_pattern pattern;
  twh_pattern_init(&pattern);
  pattern.flags = TWH_CAUSAL | TWH_LEFT;
  pattern.left = WINDOW - 1;
  twh_problem problem;
  twh_problem_init(&problem);
  problem.batch = problem.q_heads = problem.kv_heads = 1;
  problem.q_len = problem.k_len = ROWS;
  problem.qk_dim = problem.v_dim = DIM;
  problem.pattern = &pattern;
  twh_tensor q, k, v, out;
  twh_tensor_dense(&q, TWH_F32, data->q, 1, ROWS, DIM);
  twh_tensor_dense(&k, TWH_F32, data->k, 1, ROWS, DIM);
  twh_tensor_dense(&v, TWH_F32, data->v, 1, ROWS, DIM);
  twh_tensor_dense(&out, TWH_F32, data->out[TWOHEADS], 1, ROWS, DIM);
  twh_tensors tensors;
  twh_tensors_init(&tensors);
  tensors.q = &q, tensors.k = &k, tensors.v = &v, tensors.out = &out;
  twh_run_stats stats;
  twh_run_stats_init(&stats);
  twh_run_options options;
  twh_run_options_init(&options);
  options.stats = &stats;
  twh_plan  *plan = NULL;
  twh_status status = twh_plan_create(NULL, &problem, &oracle, 1, NULL, &plan, error);
  if (status == TWH_OK) status = twh_plan_execute(plan, &tensors, &options, error);
  *calls = stats.calls;
  twh_plan_destroy(plan);
  return status;
}

/* ---- the table --------------------------------------------------------------------------------------------------------- */

static int prefix_less(const void *a, const void *b)
{
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The largest error, the median of the rows' largest ones, and how many rows hold something that is no finite number. */
static int64_t prefix_error(const prefix_data *data, int way, double *largest, double *median)
{
  static double errors[ROWS];
  int64_t       lost = 0;
  for (int64_t row = 0; row < ROWS; row++) {
    double error = 0.0;
    for (int64_t i = row * DIM; i < (row + 1) * DIM; i++) {
      const double off = (double)data->out[way][i] - data->exact[i];
      error = fmax(error, isfinite(off) ? fabs(off) : INFINITY);
    }
    lost += isinf(error) != 0;
    errors[row] = error;
  }
  qsort(errors, ROWS, sizeof *errors, prefix_less);
  *largest = lost < ROWS ? errors[ROWS - 1 - lost] : INFINITY;
  *median = errors[ROWS / 2];
  return lost;
}

static double prefix_unit(double largest)
{
  return ldexp(1.0, ilogb(largest) - 23);
}

/* Prints one row. Returns 0 if the library is right. */
static int prefix_row(const prefix_data *data, double spread)
{
  double largest[WAYS], median;
  printf("| %g |", spread);
  for (int way = 0; way < WAYS; way++) {
    const int64_t lost = prefix_error(data, way, &largest[way], &median);
    if (2 * lost < ROWS) printf(" %.1e, %.1e", largest[way], median);
    if (lost > 0) printf("%s %lld of %d rows are not numbers", 2 * lost < ROWS ? ";" : "", (long long)lost, (int)ROWS);
    printf(" |");
    if (lost > 0) largest[way] = INFINITY;
  }
  /* A yardstick that is wrong itself would allow anything. */
  const double unit = prefix_unit(data->max_out), of_logit = prefix_unit(data->max_logit) * data->max_value;
  const int    right = largest[ONE_CALL] <= unit && largest[TWOHEADS] <= 2.0 * largest[ONE_CALL] + unit + of_logit;
  puts(right ? "" : " WRONG");
  return !right;
}

int main(void)
{
  static const double spreads[] = {0.1, 1.0, 2.0, 4.0, 10.0};
  static prefix_data data;
  twh_oracle        *prefix = NULL, *oracle = NULL, *one_call[WINDOW] = {NULL};
  twh_oracle_desc    desc, short_kernels[WINDOW];
  twh_error          error;
  int64_t            made = 0, calls = 0;
  int                failed = 0;
  twh_error_init(&error);
  prefix_describe(&desc, LENGTH, LENGTH);
  twh_status status = twh_reference_oracle_create(NULL, &desc, NULL, &prefix, &error);
  desc.flags = 0;
  desc.qk_dim = DIM + SPARE, desc.v_dim = DIM + 1;
  if (status == TWH_OK) status = twh_reference_oracle_create(NULL, &desc, NULL, &oracle, &error);
  if (status == TWH_OK) status = twh_oracle_get_desc(prefix, &desc, &error);
  for (int64_t n = 1; n <= WINDOW && status == TWH_OK; n++) {
    prefix_describe(&short_kernels[n - 1], 1, n);
    status = twh_reference_oracle_create(NULL, &short_kernels[n - 1], NULL, &one_call[n - 1], &error);
    if (status == TWH_OK) status = twh_oracle_get_desc(one_call[n - 1], &short_kernels[n - 1], &error);
  }
  puts("| logit std | as printed | from lse | from sums | twoheads | one call |\n| --- | --- | --- | --- | --- | --- |");
  for (size_t i = 0; i < sizeof spreads / sizeof spreads[0] && status == TWH_OK && made >= 0; i++) {
    prefix_fill(&data, spreads[i]);
    made = prefix_by_calls(&data, &desc);
    prefix_by_lemma(&data);
    prefix_by_sums(&data);
    if (prefix_by_one_call(&data, short_kernels) != 0) made = -1;
    status = prefix_by_twoheads(&data, oracle, &calls, &error);
    failed |= status == TWH_OK && made >= 0 ? prefix_row(&data, spreads[i]) : 1;
  }
  if (status != TWH_OK) fprintf(stderr, "prefix: %s %s\n", twh_status_name(status), error.message);
  else printf("\ncalls of %d tokens: %lld by prefixes, %lld by twoheads\n", (int)LENGTH, (long long)made, (long long)calls);
  for (int n = 0; n < WINDOW; n++) twh_oracle_destroy(one_call[n]);
  twh_oracle_destroy(oracle);
  twh_oracle_destroy(prefix);
  return failed || status != TWH_OK;
}
