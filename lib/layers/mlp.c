/* An MLP on a block of rows: one product up, or two, an activation, one product down. What is between stands in the hook's
 * scratch, `up` before `gate`; the output takes the input's place, since the last product does not read it any more. */
#include "layers/layers.h"

#include <errno.h>

/* out columns from in columns, in the orientation that the flags say. */
static twh_status mlp_weight(const twh_mlp *mlp, const twh_matrix *weight, int64_t in, int64_t out, const char *name,
                             twh_error *error)
{
  if (mlp->flags & TWH_LAYER_IN_OUT) return twh__layers_matrix(weight, in, out, 0, name, error);
  return twh__layers_matrix(weight, out, in, 0, name, error);
}

static int64_t mlp_width(const twh_mlp *mlp)
{
  return mlp->flags & TWH_LAYER_IN_OUT ? mlp->w_up->cols : mlp->w_up->rows;
}

/* Floats of each row; fits, since the 4 width bytes of a row or column of w_up do. */
static int64_t mlp_scratch(const twh_mlp *mlp)
{
  return mlp->w_gate != NULL ? 2 * mlp_width(mlp) : mlp_width(mlp);
}

twh_status twh__mlp_check(const twh_mlp *mlp, int64_t model_dim, int64_t *scratch, twh_error *error)
{
  twh_status status = twh__layers_struct(mlp, sizeof *mlp, "block.mlp", error);
  int64_t    width;

  if (status != TWH_OK) return status;
  if (mlp->flags & ~(uint32_t)TWH_LAYER_IN_OUT)
    return twh__layers_refuse(error, TWH_E_VERSION, "block.mlp.flags has unknown bits: 0x%x", (unsigned)mlp->flags);
  if (mlp->reserved != 0) return twh__layers_refuse(error, TWH_E_VERSION, "block.mlp.reserved is not 0");
  if (mlp->activation < TWH_GELU || mlp->activation > TWH_RELU)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "block.mlp.activation is %d; it must be TWH_GELU, ...",
                              (int)mlp->activation);
  if (mlp->w_up == NULL) return twh__layers_refuse(error, TWH_E_ARGUMENT, "block.mlp.w_up is NULL");
  if (mlp->b_gate != NULL && mlp->w_gate == NULL)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "block.mlp.b_gate is given without block.mlp.w_gate");
  status = twh__layers_struct(mlp->w_up, sizeof *mlp->w_up, "block.mlp.w_up", error);
  if (status != TWH_OK) return status;
  width = mlp_width(mlp);
  if (width < 1) return twh__layers_refuse(error, TWH_E_ARGUMENT, "block.mlp.w_up has no outputs");
  status = mlp_weight(mlp, mlp->w_up, model_dim, width, "block.mlp.w_up", error);
  if (status == TWH_OK && mlp->w_gate != NULL)
    status = mlp_weight(mlp, mlp->w_gate, model_dim, width, "block.mlp.w_gate", error);
  if (status == TWH_OK) status = mlp_weight(mlp, mlp->w_down, width, model_dim, "block.mlp.w_down", error);
  if (status == TWH_OK) status = twh__layers_matrix(mlp->b_up, 1, width, 1, "block.mlp.b_up", error);
  if (status == TWH_OK) status = twh__layers_matrix(mlp->b_gate, 1, width, 1, "block.mlp.b_gate", error);
  if (status == TWH_OK) status = twh__layers_matrix(mlp->b_down, 1, model_dim, 1, "block.mlp.b_down", error);
  if (status == TWH_OK) *scratch = mlp_scratch(mlp);
  return status;
}

static void mlp_add_bias(const twh_matrix *bias, float *c, int64_t rows, int64_t n, int64_t stride)
{
  float piece[TWH__LAYERS_PIECE];

  for (int64_t first = 0; first < n; first += TWH__LAYERS_PIECE) {
    const int64_t part = n - first < TWH__LAYERS_PIECE ? n - first : TWH__LAYERS_PIECE;
    twh__layers_values(bias, 0, 0, first, part, piece);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < part; ++j) c[r * stride + first + j] += piece[j];
    }
  }
}

/* c (rows, n) = a (rows, k) w + b; w is in the MLP's orientation. */
static int32_t mlp_product(const twh_mlp *mlp, const twh_rows *rows, const twh_matrix *weight, const twh_matrix *bias,
                           const float *a, int64_t a_stride, int64_t k, float *c, int64_t c_stride, int64_t n)
{
  const int64_t stride = weight->row_stride != 0 ? weight->row_stride : weight->cols;
  const int     in_out = (mlp->flags & TWH_LAYER_IN_OUT) != 0;
  twh_gemm      gemm;
  int32_t       code;

  twh_gemm_init(&gemm);
  gemm.m = rows->rows;
  gemm.n = n;
  gemm.k = k;
  gemm.a = a;
  gemm.a_row_stride = a_stride;
  gemm.b = weight->data;
  gemm.b_dtype = weight->dtype;
  gemm.b_row_stride = in_out ? stride : 1;
  gemm.b_col_stride = in_out ? 1 : stride;
  gemm.c = c;
  gemm.c_row_stride = c_stride;
  code = rows->gemm(rows->gemm_user, &gemm);
  if (code == 0 && bias != NULL) mlp_add_bias(bias, c, rows->rows, n, c_stride);
  return code;
}

int32_t twh__mlp_apply(const twh_mlp *mlp, const twh_rows *rows)
{
  const int64_t dim = rows->model_dim, width = mlp_width(mlp), count = rows->rows * width;
  float        *up = rows->scratch, *gate = mlp->w_gate != NULL ? rows->scratch + count : NULL;
  int32_t       code;

  if (rows->scratch_per_row < mlp_scratch(mlp)) return ENOMEM;
  code = mlp_product(mlp, rows, mlp->w_up, mlp->b_up, rows->y, rows->y_stride, dim, up, width, width);
  if (code != 0) return code;
  if (mlp->w_gate != NULL) {
    code = mlp_product(mlp, rows, mlp->w_gate, mlp->b_gate, rows->y, rows->y_stride, dim, gate, width, width);
    if (code != 0) return code;
    twh_activate(mlp->activation, gate, count);
    for (int64_t i = 0; i < count; ++i) up[i] *= gate[i];
  } else {
    twh_activate(mlp->activation, up, count);
  }
  return mlp_product(mlp, rows, mlp->w_down, mlp->b_down, up, width, width, rows->y, rows->y_stride, dim);
}
