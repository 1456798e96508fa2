/* twh_states_merge: partial results of any origin, merged row by row in float64.
 *
 * Weights are computed twice instead of stored, so that any number of inputs needs no memory, and every output column is
 * finished before it is written, so that the output may be one of the inputs. */
#include <math.h>

#include "core/state/state.h"

enum { MERGE_PIECE = 64 };

typedef struct merge_job {
  int64_t                  n;
  const twh_tensor *const *outs, *const *lses;
  const twh_tensor *out, *lse;
  uint32_t          flags;
} merge_job;

static int64_t merge_at(const twh_tensor *tensor, int64_t b, int64_t h, int64_t r)
{
  return b * tensor->batch_stride + h * tensor->head_stride + r * tensor->row_stride;
}

static double merge_lse(const merge_job *job, int64_t i, int64_t b, int64_t h, int64_t r)
{
  double lse = twh__load(job->lses[i]->data, job->lses[i]->dtype, merge_at(job->lses[i], b, h, r));
  if ((job->flags & TWH_MERGE_EMPTY_POS_INF) && lse == (double)INFINITY) return -(double)INFINITY;
  return lse;
}

static void merge_row(const merge_job *job, int64_t b, int64_t h, int64_t r, int64_t dim)
{
  double  largest = -(double)INFINITY, total = 0;
  int64_t at = merge_at(job->out, b, h, r), item = twh__dtype_bytes(job->out->dtype);

  for (int64_t i = 0; i < job->n; ++i) {
    double lse = merge_lse(job, i, b, h, r);
    if (!(lse <= largest)) largest = lse;
  }
  for (int64_t i = 0; i < job->n; ++i) {
    double lse = merge_lse(job, i, b, h, r);
    if (lse != -(double)INFINITY) total += lse == largest ? 1 : exp(lse - largest);
  }
  for (int64_t done = 0; done < dim; done += MERGE_PIECE) {
    int64_t count = twh__min(MERGE_PIECE, dim - done);
    double  sum[MERGE_PIECE];
    for (int64_t c = 0; c < count; ++c) sum[c] = 0;
    for (int64_t i = 0; i < job->n; ++i) {
      const twh_tensor *from = job->outs[i];
      double            lse = merge_lse(job, i, b, h, r), weight;
      if (lse == -(double)INFINITY) continue;
      weight = (lse == largest ? 1 : exp(lse - largest)) / total;
      for (int64_t c = 0; c < count; ++c)
        sum[c] += weight * twh__load(from->data, from->dtype, merge_at(from, b, h, r) + done + c);
    }
    for (int64_t c = 0; c < count; ++c) twh__store((char *)job->out->data + (at + done) * item, job->out->dtype, c, sum[c]);
  }
  if (job->lse) {
    twh__store(job->lse->data, job->lse->dtype, merge_at(job->lse, b, h, r),
               total == 0 ? -(double)INFINITY : largest + log(total));
  }
}

static twh_status merge_check(const twh_tensor *tensor, const int64_t dims[4], const char *name, int64_t i, twh_error *error)
{
  twh__view  view;
  twh_error  inner;
  twh_status status;

  twh_error_init(&inner);
  status = twh__view_make(&view, tensor, dims, name, &inner);
  if (!TWH__FAILED(status) && tensor->dtype == TWH_BOOL) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s[%lld].dtype is TWH_BOOL", name, (long long)i);
  }
  return TWH__FAILED(status) ? twh__fail(error, status, "%s (number %lld)", inner.message, (long long)i) : TWH_OK;
}

twh_status twh_states_merge(int64_t n, const twh_tensor *const *outs, const twh_tensor *const *lses, int64_t batch,
                            int64_t heads, int64_t rows, int64_t dim, const twh_tensor *out, const twh_tensor *lse,
                            uint32_t flags, twh_error *error)
{
  const int64_t dims[4] = { batch, heads, rows, dim }, row_dims[4] = { batch, heads, rows, 1 };
  merge_job     job = { n, outs, lses, out, lse, flags };
  twh_status    status;

  if (n < 0) return twh__fail(error, TWH_E_ARGUMENT, "n is negative");
  if (n > 0 && (!outs || !lses)) return twh__fail(error, TWH_E_ARGUMENT, "%s is NULL", outs ? "lses" : "outs");
  if (batch < 0 || heads < 0 || rows < 0 || dim < 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s is negative",
                     batch < 0   ? "batch"
                     : heads < 0 ? "heads"
                     : rows < 0  ? "rows"
                                 : "dim");
  }
  if (flags & ~(uint32_t)TWH_MERGE_EMPTY_POS_INF)
    return twh__fail(error, TWH_E_VERSION, "flags has unknown bits: 0x%x", (unsigned)flags);
  status = merge_check(out, dims, "out", 0, error);
  if (!TWH__FAILED(status) && lse) status = merge_check(lse, row_dims, "lse", 0, error);
  for (int64_t i = 0; i < n && !TWH__FAILED(status); ++i) {
    status = merge_check(outs[i], dims, "outs", i, error);
    if (!TWH__FAILED(status)) status = merge_check(lses[i], row_dims, "lses", i, error);
  }
  if (TWH__FAILED(status)) return status;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t r = 0; r < rows; ++r) merge_row(&job, b, h, r, dim);
    }
  }
  return TWH_OK;
}
