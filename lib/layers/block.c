/* A block as the three hooks of a layer. Norms that are not there are skipped, so that one description serves all usual
 * models. Between attention and the end of the layer rows->y holds whatever is to be added to x next. */
#include "layers/layers.h"

#include <math.h>
#include <string.h>

static void block_norm(const twh_norm *norm, float *x, int64_t rows, int64_t dim, int64_t stride)
{
  if (norm != NULL) twh_norm_apply(norm, x, rows, dim, stride);
}

/* y = x */
static void block_copy(const twh_rows *rows)
{
  for (int64_t r = 0; r < rows->rows; ++r)
    memcpy(rows->y + r * rows->y_stride, rows->x + r * rows->x_stride, (size_t)rows->model_dim * sizeof *rows->y);
}

static int32_t block_before(void *user, const twh_rows *rows)
{
  const twh_block *block = (const twh_block *)user;

  block_copy(rows);
  twh_norm_apply(block->input_norm, rows->y, rows->rows, rows->model_dim, rows->y_stride);
  return 0;
}

static void block_heads_of(const twh_norm *norm, const twh_rotary *rotary, const twh_rows *rows, float *x, int64_t heads,
                           int64_t stride)
{
  for (int64_t r = 0; norm != NULL && r < rows->rows; ++r)
    twh_norm_apply(norm, x + r * stride, heads, rows->qk_dim, rows->qk_dim);
  if (rotary != NULL) twh_rotary_apply(rotary, x, rows->rows, heads, rows->qk_dim, stride, rows->positions);
}

static int32_t block_heads(void *user, const twh_rows *rows)
{
  const twh_block *block = (const twh_block *)user;

  block_heads_of(block->q_norm, block->rotary, rows, rows->q, rows->q_heads, rows->q_stride);
  block_heads_of(block->k_norm, block->rotary, rows, rows->k, rows->kv_heads, rows->k_stride);
  return 0;
}

/* x = sum_norm(x + out_norm(y)) */
static void block_add(const twh_rows *rows, const twh_norm *out_norm, const twh_norm *sum_norm)
{
  block_norm(out_norm, rows->y, rows->rows, rows->model_dim, rows->y_stride);
  for (int64_t r = 0; r < rows->rows; ++r) {
    const float *y = rows->y + r * rows->y_stride;
    float       *x = rows->x + r * rows->x_stride;
    for (int64_t c = 0; c < rows->model_dim; ++c) x[c] += y[c];
  }
  block_norm(sum_norm, rows->x, rows->rows, rows->model_dim, rows->x_stride);
}

static int32_t block_after(void *user, const twh_rows *rows)
{
  const twh_block *block = (const twh_block *)user;
  int32_t          code;

  block_add(rows, block->attention_out_norm, block->attention_sum_norm);
  if (block->mlp == NULL) return 0;
  block_copy(rows);
  block_norm(block->mlp_input_norm, rows->y, rows->rows, rows->model_dim, rows->y_stride);
  code = twh__mlp_apply(block->mlp, rows);
  if (code == 0) block_add(rows, block->mlp_out_norm, block->mlp_sum_norm);
  return code;
}

static twh_status block_check_rotary(const twh_rotary *rotary, const twh_layer_desc *layer, twh_error *error)
{
  twh_status status = twh__layers_struct(rotary, sizeof *rotary, "block.rotary", error);
  int64_t    dims;

  if (status != TWH_OK) return status;
  if (rotary->pairing != TWH_ROTARY_HALVES && rotary->pairing != TWH_ROTARY_NEIGHBOURS)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "block.rotary.pairing is %d; it must be TWH_ROTARY_*",
                              (int)rotary->pairing);
  dims = rotary->dims != 0 ? rotary->dims : layer->qk_dim;
  if (dims < 0 || dims > layer->qk_dim || dims % 2 != 0)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "block.rotary.dims is %lld; it must be even and at most qk_dim %lld",
                              (long long)dims, (long long)layer->qk_dim);
  if (!(rotary->base >= 0) || isinf(rotary->base))
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "block.rotary.base is %g; it must be finite and at least 0", rotary->base);
  for (int64_t i = 0; rotary->frequencies != NULL && i < dims / 2; ++i) {
    if (isfinite(rotary->frequencies[i])) continue;
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "block.rotary.frequencies[%lld] is not finite", (long long)i);
  }
  return TWH_OK;
}

/* A norm that may be missing. */
static twh_status block_check_norm(const twh_norm *norm, int64_t dim, const char *name, twh_error *error)
{
  return norm == NULL ? TWH_OK : twh_norm_check(norm, dim, name, error);
}

static twh_status block_check_norms(const twh_block *block, int64_t model_dim, const twh_layer_desc *layer, twh_error *error)
{
  const twh_norm *const norms[8] = { block->input_norm, block->attention_out_norm, block->attention_sum_norm,
                                     block->mlp_input_norm, block->mlp_out_norm, block->mlp_sum_norm, block->q_norm,
                                     block->k_norm };
  static const char *const names[8] = { "block.input_norm", "block.attention_out_norm", "block.attention_sum_norm",
                                        "block.mlp_input_norm", "block.mlp_out_norm", "block.mlp_sum_norm", "block.q_norm",
                                        "block.k_norm" };
  twh_status status = TWH_OK;

  for (int i = 0; i < 8 && status == TWH_OK; ++i) {
    status = block_check_norm(norms[i], i < 6 ? model_dim : layer->qk_dim, names[i], error);
    if (status == TWH_OK && i >= 3 && i < 6 && norms[i] != NULL && block->mlp == NULL)
      status = twh__layers_refuse(error, TWH_E_ARGUMENT, "%s is given without block.mlp", names[i]);
  }
  return status;
}

twh_status twh_block_attach(const twh_block *block, int64_t model_dim, twh_layer_desc *layer, int64_t *scratch_per_row,
                            twh_error *error)
{
  int64_t    scratch = 0;
  twh_status status;

  if (block == NULL) return twh__layers_refuse(error, TWH_E_ARGUMENT, "block is NULL");
  if (layer == NULL) return twh__layers_refuse(error, TWH_E_ARGUMENT, "layer is NULL");
  if (scratch_per_row == NULL) return twh__layers_refuse(error, TWH_E_ARGUMENT, "scratch_per_row is NULL");
  status = twh__layers_struct(block, sizeof *block, "block", error);
  if (status == TWH_OK) status = twh__layers_struct(layer, sizeof *layer, "layer", error);
  if (status != TWH_OK) return status;
  if (block->flags != 0)
    return twh__layers_refuse(error, TWH_E_VERSION, "block.flags has unknown bits: 0x%x", (unsigned)block->flags);
  if (model_dim < 1)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "model_dim is %lld; it must be at least 1", (long long)model_dim);
  if (layer->qk_dim < 1)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "layer.qk_dim is %lld; set it first", (long long)layer->qk_dim);
  status = block_check_norms(block, model_dim, layer, error);
  if (status == TWH_OK && block->rotary != NULL) status = block_check_rotary(block->rotary, layer, error);
  if (status == TWH_OK && block->mlp != NULL) status = twh__mlp_check(block->mlp, model_dim, &scratch, error);
  if (status != TWH_OK) return status;
  layer->before = block->input_norm != NULL ? block_before : NULL;
  layer->heads = block->q_norm != NULL || block->k_norm != NULL || block->rotary != NULL ? block_heads : NULL;
  layer->after = NULL; /* x + y, if that is all */
  if (block->mlp != NULL || block->attention_out_norm != NULL || block->attention_sum_norm != NULL) layer->after = block_after;
  layer->user = (void *)(uintptr_t)block;
  if (*scratch_per_row < scratch) *scratch_per_row = scratch;
  return TWH_OK;
}
