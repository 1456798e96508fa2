/* softmax(scale q k^T) v for one slot, a block of query rows at a time.
 *
 * The scale is applied after the row's maximum is subtracted: the difference of two close f32 numbers is exact, so the
 * scale's own rounding acts on what is left of the score and not on its magnitude. The weights are not normalised; the
 * output is divided by their sum, in double.
 * A causal block multiplies only up to the last key that its last row sees; what the earlier rows of the block do not see
 * is weight 0. A row's arithmetic depends on its slot alone, so the rest of the batch cannot change its bits. */
#include "blis/slot.h"

#include "blis/gemm.h"

#include <math.h>

/* Floats in a block of scores (4 MiB), and the limits of its rows. More rows are faster, because BLIS packs
 * the keys and values once for all rows of a block; causal blocks have fewer, because more would be multiplied in vain. */
static const int64_t slot_block_floats = 1 << 20, slot_rows_min = 64, slot_rows_max = 512, slot_rows_causal = 128;

/* How raw products become logits: logit = cap(scale x) + mask, x = what the product with `alpha` gives. */
typedef struct slot_scale {
  double exact; /* >= 0 */
  float  alpha, scale;
} slot_scale;

int64_t twh__blis_block_rows(int64_t q_len, int64_t k_len)
{
  int64_t rows = slot_block_floats / k_len;
  rows = rows < slot_rows_min ? slot_rows_min : rows > slot_rows_max ? slot_rows_max : rows;
  return rows < q_len ? rows : q_len;
}

/* A negative scale negates the product, so that the largest product is the largest logit; a scale of 0 makes it 0. */
static slot_scale slot_scale_of(double scale)
{
  slot_scale result;
  result.exact = fabs(scale);
  result.scale = (float)result.exact;
  result.alpha = scale < 0.0 ? -1.0f : 1.0f;
  if (result.scale == 0.0f) {
    result.alpha = 0.0f;
    result.exact = result.scale = 1.0f;
  }
  return result;
}

/* Keys that row i sees: a prefix, except for a mask operand. */
static int64_t slot_keys_seen(const twh__blis_kernel *kernel, const twh_call *call, int64_t i)
{
  const int64_t k_len = call->k_len, offset = kernel->desc.causal_offset;
  if (call->mask_mode != TWH_MASK_CAUSAL || offset >= k_len) return k_len;
  if (offset < -i) return 0;
  return i + offset + 1 < k_len ? i + offset + 1 : k_len;
}

/* BLIS takes rows that do not overlap, in order. Copy others (broadcast, reversed) to dense ones. */
static const float *slot_operand(const twh_operand *operand, int64_t slot, int64_t row, int64_t rows, int64_t dim, float *copy,
                                 int64_t *stride)
{
  const float *from = (const float *)operand->data + slot * operand->slot_stride + row * operand->row_stride;
  *stride = operand->row_stride;
  if (*stride >= dim) return from;
  *stride = dim;
  if (rows == 1) return from;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < dim; c++) copy[r * dim + c] = from[r * operand->row_stride + c];
  return copy;
}

/* Turn the n products of row i into what weights() takes: capped, masked, padded. Returns the scale still to be applied. */
static float slot_mask(const twh__blis_kernel *kernel, const twh_call *call, int64_t slot, int64_t i, float *x, int64_t n,
                       int64_t padded, float scale)
{
  for (int64_t j = n; j < padded; j++) x[j] = -INFINITY;
  if (kernel->desc.softcap > 0.0) {
    kernel->rows->cap(x, padded, (float)((double)scale / kernel->desc.softcap), (float)kernel->desc.softcap);
    for (int64_t j = n; j < padded; j++) x[j] = -INFINITY;
    scale = 1.0f;
  }
  if (call->mask_mode == TWH_MASK_TENSOR) {
    const int64_t at = slot * call->mask.slot_stride + i * call->mask.row_stride;
    if (kernel->desc.mask_dtype == TWH_BOOL) {
      const unsigned char *mask = (const unsigned char *)call->mask.data + at;
      for (int64_t j = 0; j < n; j++) x[j] = mask[j] != 0 ? x[j] : -INFINITY;
    } else {
      const float *mask = (const float *)call->mask.data + at;
      for (int64_t j = 0; j < n; j++) x[j] = mask[j] > -INFINITY || mask[j] != mask[j] ? x[j] * scale + mask[j] : -INFINITY;
      scale = 1.0f;
    }
  }
  return scale;
}

/* Weights, their sum and their maximum for one row; 0 behind the n keys it sees, up to `keys`. */
static void slot_row(const twh__blis_kernel *kernel, const twh_call *call, int64_t slot, int64_t i, const slot_scale *scale,
                     float *x, int64_t n, int64_t keys, float *max, double *sum)
{
  const int64_t padded = (n + TWH__BLIS_ROW - 1) / TWH__BLIS_ROW * TWH__BLIS_ROW;
  *max = -INFINITY;
  *sum = 0.0;
  if (n > 0) {
    const float left = slot_mask(kernel, call, slot, i, x, n, padded, scale->scale);
    *max = kernel->rows->max(x, padded);
    if (*max > -INFINITY) *sum = kernel->rows->weights(x, padded, *max, left);
    else for (int64_t j = 0; j < n; j++) {
      *sum += x[j] != x[j] ? x[j] : 0.0f; /* nothing but hidden keys and NaN: a NaN must not pass for an empty row */
      x[j] = 0.0f;
    }
  }
  for (int64_t j = *max > -INFINITY ? padded : n; j < keys; j++) x[j] = 0.0f;
}

/* Divide by the sums and store out and lse of `rows` rows from `first` on. */
static void slot_store(const twh__blis_kernel *kernel, const twh_call *call, int64_t slot, int64_t first, int64_t rows,
                       const slot_scale *scale, const twh__blis_scratch *scratch)
{
  const uint32_t flags = kernel->desc.flags;
  const int64_t  dim = kernel->desc.v_dim;
  const double   unit = flags & TWH_ORACLE_LSE_BASE2 ? 1.44269504088896340736 : 1.0;
  const int      added = call->mask_mode == TWH_MASK_TENSOR && kernel->desc.mask_dtype != TWH_BOOL;
  const double   left = kernel->desc.softcap > 0.0 || added ? 1.0 : scale->exact; /* what slot_mask has not applied */
  for (int64_t r = 0; r < rows; r++) {
    const int64_t i = first + r;
    const double  sum = scratch->sum[r], factor = sum == 0.0 ? 0.0 : 1.0 / sum;
    const float  *from = scratch->out + r * dim;
    float        *to = (float *)call->out + slot * call->out_slot_stride + i * call->out_row_stride;
    for (int64_t c = 0; c < dim; c++) to[c] = (float)(from[c] * factor);
    if (flags & TWH_ORACLE_LSE) {
      double lse = left * (double)scratch->max[r] + log(sum);
      if (sum == 0.0) lse = flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? INFINITY : -INFINITY;
      call->lse[slot * call->lse_slot_stride + i] = (float)(lse * unit);
    }
  }
}

void twh__blis_slot(const twh__blis_kernel *kernel, const twh_call *call, int64_t slot, twh__blis_scratch *scratch)
{
  const twh_oracle_desc *desc = &kernel->desc;
  const slot_scale       scale = slot_scale_of(desc->flags & TWH_ORACLE_SCALE_PER_CALL ? call->scale : desc->scale);
  const int64_t          k_len = slot_keys_seen(kernel, call, call->q_len - 1);
  int64_t                q_stride, k_stride, v_stride, block = kernel->block_rows;
  const float *k = slot_operand(&call->k, slot, 0, k_len, desc->qk_dim, scratch->k, &k_stride);
  const float *v = slot_operand(&call->v, slot, 0, k_len, desc->v_dim, scratch->v, &v_stride);

  if (call->mask_mode == TWH_MASK_CAUSAL && block > slot_rows_causal) block = slot_rows_causal;
  for (int64_t first = 0; first < call->q_len; first += block) {
    const int64_t rows = call->q_len - first < block ? call->q_len - first : block;
    const int64_t keys = slot_keys_seen(kernel, call, first + rows - 1);
    const int64_t width = (keys + TWH__BLIS_ROW - 1) / TWH__BLIS_ROW * TWH__BLIS_ROW;
    if (keys > 0) {
      const float *q = slot_operand(&call->q, slot, first, rows, desc->qk_dim, scratch->q, &q_stride);
      twh__blis_scores(kernel->contexts, rows, keys, desc->qk_dim, scale.alpha, q, q_stride, k, k_stride, scratch->scores,
                       width);
    }
    for (int64_t r = 0; r < rows; r++)
      slot_row(kernel, call, slot, first + r, &scale, scratch->scores + r * width, slot_keys_seen(kernel, call, first + r),
               keys, &scratch->max[r], &scratch->sum[r]);
    if (keys > 0)
      twh__blis_multiply(kernel->contexts, rows, desc->v_dim, keys, scratch->scores, width, v, v_stride, scratch->out,
                         desc->v_dim);
    else
      for (int64_t at = 0; at < rows * desc->v_dim; at++) scratch->out[at] = 0.0f;
    slot_store(kernel, call, slot, first, rows, &scale, scratch);
  }
}
