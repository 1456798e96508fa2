/* Biases in spare coordinates: q' = [q, 1, 1], k' = [k, x0, x1] with x0 + x1 = bias / scale.
 *
 * Each part is what the parts before it leave, rounded to the kernel's dtype, so that two or three narrow numbers hold a bias
 * as well as one of f32. ALiBi's bias is relative to a position near the keys, where it is small; what a row is off by that is
 * the same for all its keys, so it is added to the state of the row. */
#include "core/encode/operand.h"

double twh__bias_slope(const twh__source *source, int64_t head)
{
  if (!source->shape->alibi) return 0;
  return twh__load(twh__view_row(source->alibi, 0, head, 0), source->alibi->dtype, 0);
}

double twh__bias_of(const twh__source *source, const twh__span *span, int64_t head, int64_t row, int64_t ref)
{
  double bias = 0;

  if (source->shape->key_bias) {
    bias = twh__load(twh__view_row(source->key_bias, span->batch, head, row), source->key_bias->dtype, 0);
  }
  if (source->shape->alibi) bias += twh__bias_slope(source, head) * (double)(row + span->k_origin - ref);
  return bias;
}

int64_t twh__bias_ref(const twh__span *span, const twh__tile *tile)
{
  return twh__tile_key_row(span, tile, tile->key) + span->k_origin;
}

void twh__bias_put(char *row, const twh__source *source, double bias)
{
  const twh__lowering *lowering = source->lowering;
  double               left = bias / lowering->kernel_scale, most = twh__dtype_max(lowering->dtype);

  for (int64_t p = 0; p < lowering->bias_parts; ++p) {
    int64_t column = source->shape->qk_dim + p;
    double  part = left > most ? most : left < -most ? -most : left; /* NaN stays */
    twh__store(row, lowering->dtype, column, part);
    left -= twh__load(row, lowering->dtype, column);
  }
}
