/* One slot of a call in float64, for data that the transformer must not see: 0 * inf is NaN, and with weights of 0 such a number
 * would reach every column of its row, and through the next layer's scores every row. */
#include <math.h>

#include "core/transformer/small.h"

static double alone_value(const twh__small *small, const twh_operand *operand, int64_t slot, int64_t row, int64_t column)
{
  return twh__load(operand->data, small->desc.dtype, slot * operand->slot_stride + row * operand->row_stride + column);
}

/* Weights of the first `keys` keys for one row; returns their sum. */
static double alone_weights(const twh__small *small, const twh_call *call, int64_t slot, int64_t row, int64_t keys,
                            double *weights)
{
  double most = -(double)INFINITY, sum = 0;

  for (int64_t j = 0; j < keys; ++j) {
    double score = 0;
    for (int64_t c = 0; c < small->desc.qk_dim; ++c) {
      score += alone_value(small, &call->q, slot, row, c) * alone_value(small, &call->k, slot, j, c);
    }
    weights[j] = score * small->desc.scale;
    if (!(weights[j] <= most)) most = weights[j]; /* a NaN stays, and makes the row NaN */
  }
  for (int64_t j = 0; j < keys; ++j) {
    weights[j] = exp(weights[j] - most);
    sum += weights[j];
  }
  return sum;
}

void twh__alone_compute(const twh__small *small, const twh_call *call, int64_t slot, double *scores)
{
  const int64_t length = small->desc.length;

  for (int64_t i = 0; i < length; ++i) {
    int64_t keys = call->mask_mode == TWH_MASK_CAUSAL ? i + 1 : length;
    double  sum = alone_weights(small, call, slot, i, keys, scores);
    for (int64_t c = 0; c < small->desc.v_dim; ++c) {
      double value = 0;
      for (int64_t j = 0; j < keys; ++j) value += scores[j] * alone_value(small, &call->v, slot, j, c);
      twh__store(call->out, small->desc.dtype, slot * call->out_slot_stride + i * call->out_row_stride + c, value / sum);
    }
  }
}
