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

static void repair_store(const twh__cpu_kernel *kernel, const twh_call *call, int64_t at, double value)
{
  if (kernel->desc.out_dtype == TWH_F32)
    ((float *)call->out)[at] = (float)value;
  else
    ((uint16_t *)call->out)[at] =
      kernel->desc.out_dtype == TWH_BF16 ? twh__cpu_to_bf16((float)value) : twh__cpu_to_f16((float)value);
}

void twh__cpu_repair(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, int64_t i, double *row)
{
  const twh_oracle_desc *desc = &kernel->desc;
  const int64_t          keys = twh__cpu_keys_seen(kernel, call, i);
  const double           unit = desc->flags & TWH_ORACLE_LSE_BASE2 ? 1.44269504088896340736 : 1.0;
  double                 max = -INFINITY, sum = 0.0, lse;
  for (int64_t c = 0; c < desc->v_dim; c++) row[c] = 0.0;
  for (int64_t j = 0; j < keys; j++) {
    const double  score = repair_score(kernel, call, slot, i, j);
    const int64_t v = slot * call->v.slot_stride + j * call->v.row_stride;
    double        weight = 1.0, decay = 1.0;
    if (score == -INFINITY) continue;
    if (score > max) {
      decay = exp(max - score);
      max = score;
    } else
      weight = exp(score - max);
    sum = sum * decay + weight;
    for (int64_t c = 0; c < desc->v_dim; c++)
      row[c] = row[c] * decay + (weight == 0.0 ? 0.0 : weight * repair_number(call->v.data, desc->dtype, v + c));
  }
  for (int64_t c = 0; c < desc->v_dim; c++)
    repair_store(kernel, call, slot * call->out_slot_stride + i * call->out_row_stride + c, sum == 0.0 ? 0.0 : row[c] / sum);
  lse = max + log(sum);
  if (sum == 0.0) lse = desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? INFINITY : -INFINITY;
  if (desc->flags & TWH_ORACLE_LSE) call->lse[slot * call->lse_slot_stride + i] = (float)(lse * unit);
}
