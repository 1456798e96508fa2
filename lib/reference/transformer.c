/* twh_reference_transformer_create: a small transformer in float64, with any weights.
 *
 * Projections, what heads give and x after each layer are rounded to the kernel's dtype, as a kernel in that dtype rounds them.
 * What a kernel that accumulates in f32 cannot hold is infinite here too, and 0 * inf is a NaN: products with the many zeros of
 * selection weights are skipped only where both factors are finite. So whatever gets out of hand in one head is in all
 * columns of its row afterwards, and the wrapper has to see to it that nothing does. */
#include "reference/reference.h"

#include "reference/formats.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one call works in, all of it rows of doubles. */
typedef struct transformer_work {
  double *x, *sum;       /* (length, model_dim): before the layer, and what its heads add up to */
  double *q, *k, *v, *o; /* (length, head dimension) */
  double *weights;       /* one matrix, and then the scores of a row */
} transformer_work;

/* What an f32 accumulator holds of it. */
static double transformer_hold(double sum)
{
  return fabs(sum) > FLT_MAX ? copysign((double)INFINITY, sum) : sum;
}

static int transformer_is_finite(const double *values, int64_t n)
{
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(values[i])) return 0;
  return 1;
}

/* to (rows, n) = from (rows, m) w, rounded. w: matrix `number` of an operand, (m, n). */
static void transformer_project(const twh_transformer_oracle_desc *desc, const double *from, int64_t m,
                                const twh_operand *operand, int64_t number, int64_t n, double *weights, double *to)
{
  int finite;
  for (int64_t p = 0; p < m; p++)
    twh__reference_read(weights + p * n, operand->data, desc->dtype, number * operand->slot_stride + p * operand->row_stride,
                        n);
  finite = transformer_is_finite(weights, m * n);
  for (int64_t i = 0; i < desc->length; i++) {
    double *row = to + i * n;
    memset(row, 0, (size_t)n * sizeof *row);
    for (int64_t p = 0; p < m; p++) {
      const double value = from[i * m + p];
      if (finite && value == 0.0) continue;
      for (int64_t c = 0; c < n; c++) row[c] += value * weights[p * n + c];
    }
    for (int64_t c = 0; c < n; c++) row[c] = twh__reference_round(transformer_hold(row[c]), desc->dtype);
  }
}

static void transformer_attend(const twh_transformer_oracle_desc *desc, int causal, transformer_work *work)
{
  for (int64_t i = 0; i < desc->length; i++) {
    const int64_t keys = causal ? i + 1 : desc->length;
    double       *scores = work->weights, *out = work->o + i * desc->v_dim, most = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
      scores[j] = 0;
      for (int64_t c = 0; c < desc->qk_dim; c++) scores[j] += work->q[i * desc->qk_dim + c] * work->k[j * desc->qk_dim + c];
      scores[j] = transformer_hold(transformer_hold(scores[j]) * desc->scale);
      if (!(scores[j] <= most)) most = scores[j];
    }
    memset(out, 0, (size_t)desc->v_dim * sizeof *out);
    for (int64_t j = 0; j < keys; j++) {
      const double weight = exp(scores[j] - most);
      sum += weight;
      for (int64_t c = 0; c < desc->v_dim; c++) out[c] += weight * work->v[j * desc->v_dim + c];
    }
    for (int64_t c = 0; c < desc->v_dim; c++) out[c] = twh__reference_round(transformer_hold(out[c]) / sum, desc->dtype);
  }
}

/* sum += o wo */
static void transformer_add(const twh_transformer_oracle_desc *desc, const twh_operand *wo, int64_t number,
                            transformer_work *work)
{
  const int64_t dim = desc->model_dim;
  for (int64_t p = 0; p < desc->v_dim; p++)
    twh__reference_read(work->weights + p * dim, wo->data, desc->dtype, number * wo->slot_stride + p * wo->row_stride, dim);
  for (int64_t i = 0; i < desc->length; i++)
    for (int64_t p = 0; p < desc->v_dim; p++)
      for (int64_t c = 0; c < dim; c++) work->sum[i * dim + c] += work->o[i * desc->v_dim + p] * work->weights[p * dim + c];
}

static void transformer_call(const twh_transformer_oracle_desc *desc, const twh_transformer_call *call, transformer_work *work)
{
  const twh_transformer_weights *weights = call->weights;
  const int64_t                  dim = desc->model_dim, count = desc->length * dim;
  twh__reference_read(work->x, call->x, desc->dtype, 0, count);
  for (int64_t l = 0; l < desc->layers; l++) {
    memset(work->sum, 0, (size_t)count * sizeof *work->sum);
    for (int64_t h = 0; h < desc->heads; h++) {
      const int64_t number = l * desc->heads + h;
      transformer_project(desc, work->x, dim, &weights->wq, number, desc->qk_dim, work->weights, work->q);
      transformer_project(desc, work->x, dim, &weights->wk, number, desc->qk_dim, work->weights, work->k);
      transformer_project(desc, work->x, dim, &weights->wv, number, desc->v_dim, work->weights, work->v);
      transformer_attend(desc, call->mask_mode == TWH_MASK_CAUSAL, work);
      transformer_add(desc, &weights->wo, number, work);
    }
    for (int64_t i = 0; i < count; i++) work->x[i] = twh__reference_round(work->x[i] + work->sum[i], desc->dtype);
  }
  twh__reference_write(call->out, desc->dtype, 0, work->x, count);
}

int32_t twh_reference_transformer_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  const twh_transformer_oracle_desc *desc = (const twh_transformer_oracle_desc *)user;
  const size_t length = (size_t)desc->length, dim = (size_t)desc->model_dim, qk = (size_t)desc->qk_dim, v = (size_t)desc->v_dim;
  const size_t matrix = dim * (qk > v ? qk : v), most = matrix > length ? matrix : length;
  double      *memory = (double *)calloc(2 * length * dim + 2 * length * (qk + v) + most, sizeof(double));
  transformer_work work;
  if (memory == NULL) return ENOMEM;
  work.x = memory;
  work.sum = work.x + length * dim;
  work.q = work.sum + length * dim;
  work.k = work.q + length * qk;
  work.v = work.k + length * qk;
  work.o = work.v + length * v;
  work.weights = work.o + length * v;
  for (int64_t i = 0; i < n; i++) transformer_call(desc, calls[i], &work);
  free(memory);
  return 0;
}

static twh_status transformer_refuse(twh_error *error, twh_status status, const char *message)
{
  twh_error filled;
  if (error == NULL || error->struct_size == 0) return status;
  twh_error_init(&filled);
  filled.struct_size = error->struct_size;
  filled.status = status;
  filled.slot = -1;
  filled.call = filled.row = -1;
  strncpy(filled.message, message, sizeof filled.message - 1);
  memset(error, 0, filled.struct_size);
  memcpy(error, &filled, filled.struct_size < sizeof filled ? filled.struct_size : sizeof filled);
  return status;
}

twh_status twh_reference_transformer_create(const twh_context *context, const twh_transformer_oracle_desc *desc,
                                            twh_oracle **out, twh_error *error)
{
  twh_transformer_oracle_desc full, *kept;
  twh_status                  status;

  if (out == NULL) return transformer_refuse(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (desc == NULL) return transformer_refuse(error, TWH_E_ARGUMENT, "desc is NULL");
  if (desc->struct_size != sizeof full)
    return transformer_refuse(error, TWH_E_VERSION, "desc->struct_size is not this version's");
  if (desc->load != NULL || desc->run != NULL || desc->release != NULL || desc->user != NULL)
    return transformer_refuse(error, TWH_E_ARGUMENT, "desc: load, run, release and user must be NULL");

  kept = (twh_transformer_oracle_desc *)malloc(sizeof *kept);
  if (kept == NULL) return transformer_refuse(error, TWH_E_MEMORY, "no memory for the kernel");
  full = *desc;
  if (full.max_concurrent_batches == 0) full.max_concurrent_batches = 1024;
  full.run = twh_reference_transformer_run;
  full.release = free;
  full.user = kept;
  *kept = full;
  status = twh_oracle_from_transformer(context, &full, out, error);
  if (status != TWH_OK) free(kept);
  return status;
}
