/* The careful way for single rows: those whose sums overflowed f32, or whose block met an infinity or NaN that they may not
 * see.
 *
 * Everything is float64, one key at a time, and what a row does not see is not read. Rows get here when a number of theirs is
 * not finite, or no weight is left of scores that there are; what is not finite by right stays so. */
#include "cpu/formats.h"
#include "cpu/slot.h"

#include <math.h>

static double repair_number(const void *data, int32_t dtype, int64_t at)
{
  if (dtype == TWH_F32) return (double)((const float *)data)[at];
  if (dtype == TWH_BOOL) return ((const unsigned char *)data)[at] != 0 ? 0.0 : -INFINITY;
  return (double)(dtype == TWH_BF16 ? twh__cpu_from_bf16(((const uint16_t *)data)[at])
                                    : twh__cpu_from_f16(((const uint16_t *)data)[at]));
}

/* The score of key j, -inf where it is hidden. */
static double repair_score(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, int64_t i, int64_t j)
{
  const twh_oracle_desc *desc = &kernel->desc;
  const double           scale = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? call->scale : desc->scale;
  const int64_t          q = slot * call->q.slot_stride + i * call->q.row_stride;
  const int64_t          k = slot * call->k.slot_stride + j * call->k.row_stride;
  double                 score = 0.0, mask = 0.0;
  if (call->mask_mode == TWH_MASK_TENSOR)
    mask = repair_number(call->mask.data, desc->mask_dtype, slot * call->mask.slot_stride + i * call->mask.row_stride + j);
  if (mask == -INFINITY) return mask;
  for (int64_t c = 0; c < desc->qk_dim; c++)
    score += repair_number(call->q.data, desc->dtype, q + c) * repair_number(call->k.data, desc->dtype, k + c);
  score *= scale;
  if (desc->softcap > 0.0) score = desc->softcap * tanh(score / desc->softcap);
  return score + mask;
}

/* A softmax on its way, relative to the largest score so far. */
typedef struct repair_sum {
  double  max, sum, *row;
  int64_t dim;
} repair_sum;

/* One more score, and the numbers from `at` on that it is the weight of. */
static void repair_add(repair_sum *to, double score, const void *data, int32_t dtype, int64_t at)
{
  double weight = 1.0, decay = 1.0;
  if (score == -INFINITY) return;
  if (score > to->max) {
    decay = exp(to->max - score);
    to->max = score;
  } else
    weight = exp(score - to->max);
  to->sum = to->sum * decay + weight;
  for (int64_t c = 0; c < to->dim; c++)
    to->row[c] = to->row[c] * decay + (weight == 0.0 ? 0.0 : weight * repair_number(data, dtype, at + c));
}

/* What earlier calls have left is a key like any other, and its lse the score. */
static void repair_add_state(repair_sum *to, const twh__cpu_work *work, int64_t i, double unit)
{
  const twh_oracle_desc *desc = &work->kernel->desc;
  const float            lse = *twh__cpu_lse_at(work, i);
  if (lse == INFINITY && desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF) return;
  repair_add(to, (double)lse / unit, twh__cpu_out_at(work, i), desc->out_dtype, 0);
}

float twh__cpu_repair(const twh__cpu_work *work, int64_t i, double *row)
{
  const twh_oracle_desc *desc = &work->kernel->desc;
  const double           unit = desc->flags & TWH_ORACLE_LSE_BASE2 ? 1.44269504088896340736 : 1.0;
  repair_sum             all;
  all.max = -INFINITY;
  all.sum = 0.0;
  all.row = row;
  all.dim = desc->v_dim;
  for (int64_t c = 0; c < all.dim; c++) row[c] = 0.0;
  if (work->continues) repair_add_state(&all, work, i, unit);
  for (int64_t n = 0; n < work->n; n++) {
    const twh_call *call = work->calls[n];
    const int64_t   keys = twh__cpu_keys_seen(work->kernel, call, i);
    for (int64_t j = 0; j < keys; j++)
      repair_add(&all, repair_score(work->kernel, call, work->slot, i, j), call->v.data, desc->dtype,
                 work->slot * call->v.slot_stride + j * call->v.row_stride);
  }
  if (all.sum == 0.0) return desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? INFINITY : -INFINITY;
  for (int64_t c = 0; c < all.dim; c++) row[c] /= all.sum;
  return (float)((all.max + log(all.sum)) * unit);
}
