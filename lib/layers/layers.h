/* What the files of libtwoheads-layers share: refusing arguments, and reading weights of any float type.
 *
 * norm.c, activate.c and rotary.c are functions of rows, mlp.c two products around an activation, block.c and embedding.c
 * the hooks that put them around a layer's attention and before the first layer. All over public headers. */
#ifndef TWH_LAYERS_H
#define TWH_LAYERS_H

#include "twoheads_layers.h"

/* Fill `error` (NULL allowed) and return `status`. */
twh_status twh__layers_refuse(twh_error *error, twh_status status, const char *format, ...)
#if defined(__GNUC__)
  __attribute__((format(printf, 3, 4)))
#endif
  ;

/* Whether a struct of `bytes` was set up by its init function and asks for nothing that this version does not know. */
twh_status twh__layers_struct(const void *given, size_t bytes, const char *name, twh_error *error);

/* Whether a matrix is one of rows x cols; rows -1: any number, at least 1. NULL is refused unless it is optional. */
twh_status twh__layers_matrix(const twh_matrix *matrix, int64_t rows, int64_t cols, int optional, const char *name,
                              twh_error *error);

/* How many values of a row are converted at a time, on the stack. */
enum { TWH__LAYERS_PIECE = 256 };

/* Elements (row, first) .. (row, first + n - 1) as f32, n <= TWH__LAYERS_PIECE; without a matrix n times `missing`. */
void twh__layers_values(const twh_matrix *matrix, float missing, int64_t row, int64_t first, int64_t n, float *to);

/* ---- mlp.c ---- */

/* scratch: receives the floats for each row that twh__mlp_apply needs. */
twh_status twh__mlp_check(const twh_mlp *mlp, int64_t model_dim, int64_t *scratch, twh_error *error);

/* rows->y = mlp(rows->y), with rows->scratch. Returns 0; ENOMEM, where that is too small; the product's code. */
int32_t twh__mlp_apply(const twh_mlp *mlp, const twh_rows *rows);

#endif
