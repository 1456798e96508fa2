/* For the tests of twoheads-layers: weights of any type, blocks of rows with poison around them, and what the header
 * defines, written down in long double and one row at a time. */
#ifndef TWH_TESTS_SUPPORT_LAYERS_H
#define TWH_TESTS_SUPPORT_LAYERS_H

#include "support_transformer.h"

#include "twoheads_layers.h"

/* Normal numbers around `mean`, `gap` elements of poison behind each row. Destroyed by support_weights_destroy, which also
 * takes NULL. */
twh_matrix *support_weights(support_random *random, int64_t rows, int64_t cols, int32_t dtype, int64_t gap, double mean,
                            double deviation);
void        support_weights_destroy(const twh_matrix *matrix);

/* Rows of f32 at `at`, aligned to 64 bytes. */
typedef struct support_block {
  float  *at;
  int64_t rows, cols, stride;
  char   *memory;
  size_t  bytes;
} support_block;

void support_block_create(support_block *block, int64_t rows, int64_t cols, int64_t gap);
void support_block_destroy(support_block *block);
/* Normal numbers of that size. */
void support_block_fill(support_block *block, support_random *random, double mean, double deviation);
/* All numbers of a block, dense, as float64; the caller's to free. */
double *support_block_read(const support_block *block);
/* Whether what is before, between and behind the rows still is poison. */
int     support_block_gaps_untouched(const support_block *block);
/* The largest error over the magnitude of the row of `want` that it is in (1 where that is 0). NaN: INFINITY. */
double  support_block_error(const support_block *block, const double *want);

/* ---- the definitions; a NULL norm changes nothing ---- */

void   support_define_norm(const twh_norm *norm, double *x, int64_t dim);
double support_define_activation(int32_t activation, double x);
void   support_define_rotary(const twh_rotary *rotary, double *x, int64_t n_heads, int64_t head_dim, int64_t position);
void   support_define_mlp(const twh_mlp *mlp, double *x, int64_t dim);

#endif
