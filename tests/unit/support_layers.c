/* Norms, activations, rotary positions and MLPs as twoheads_layers.h defines them, in long double; and memory that shows what
 * was written where nothing should be. */
#include "support_layers.h"

enum { LAYERS_MARGIN = 64 }; /* floats of poison before and behind a block */

/* ---- memory ---- */

twh_matrix *support_weights(support_random *random, int64_t rows, int64_t cols, int32_t dtype, int64_t gap, double mean,
                            double deviation)
{
  twh_matrix *matrix = (twh_matrix *)malloc(sizeof *matrix);
  size_t      bytes = (size_t)(rows * (cols + gap) * support_bytes(dtype));
  void       *data = malloc(bytes);
  int64_t     r, c;
  assert_non_null(matrix);
  assert_non_null(data);
  memset(data, SUPPORT_POISON, bytes);
  for (r = 0; r < rows; ++r)
    for (c = 0; c < cols; ++c) support_store(data, dtype, r * (cols + gap) + c, mean + deviation * support_normal(random));
  twh_matrix_init(matrix);
  matrix->dtype = dtype;
  matrix->data = data;
  matrix->rows = rows;
  matrix->cols = cols;
  matrix->row_stride = gap ? cols + gap : 0;
  return matrix;
}

void support_weights_destroy(const twh_matrix *matrix)
{
  if (matrix == NULL) return;
  free((void *)(uintptr_t)matrix->data);
  free((void *)(uintptr_t)matrix);
}

void support_block_create(support_block *block, int64_t rows, int64_t cols, int64_t gap)
{
  void *memory = NULL;
  block->rows = rows;
  block->cols = cols;
  block->stride = cols + gap;
  block->bytes = (size_t)(rows * block->stride + 2 * LAYERS_MARGIN) * sizeof(float);
  assert_int_equal(posix_memalign(&memory, 64, block->bytes), 0);
  memset(memory, SUPPORT_POISON, block->bytes);
  block->memory = (char *)memory;
  block->at = (float *)memory + LAYERS_MARGIN;
}

void support_block_destroy(support_block *block)
{
  free(block->memory);
}

void support_block_fill(support_block *block, support_random *random, double mean, double deviation)
{
  int64_t r, c;
  for (r = 0; r < block->rows; ++r)
    for (c = 0; c < block->cols; ++c) block->at[r * block->stride + c] = (float)(mean + deviation * support_normal(random));
}

double *support_block_read(const support_block *block)
{
  double *read = (double *)malloc((size_t)(block->rows * block->cols + 1) * sizeof *read);
  int64_t r, c;
  assert_non_null(read);
  for (r = 0; r < block->rows; ++r)
    for (c = 0; c < block->cols; ++c) read[r * block->cols + c] = (double)block->at[r * block->stride + c];
  return read;
}

int support_block_gaps_untouched(const support_block *block)
{
  const unsigned char *memory = (const unsigned char *)block->memory;
  int64_t              i, at, count = (int64_t)(block->bytes / sizeof(float));
  int                  b;
  for (i = 0; i < count; ++i) {
    at = i - LAYERS_MARGIN;
    if (at >= 0 && at < block->rows * block->stride && at % block->stride < block->cols) continue;
    for (b = 0; b < 4; ++b)
      if (memory[4 * i + b] != SUPPORT_POISON) return 0;
  }
  return 1;
}

double support_block_error(const support_block *block, const double *want)
{
  double  worst = 0.0;
  int64_t r, c;
  for (r = 0; r < block->rows; ++r) {
    double most = 0.0, size = 0.0;
    for (c = 0; c < block->cols; ++c) {
      double error = fabs((double)block->at[r * block->stride + c] - want[r * block->cols + c]);
      if (!(error <= most)) most = isnan(error) ? (double)INFINITY : error;
      if (fabs(want[r * block->cols + c]) > size) size = fabs(want[r * block->cols + c]);
    }
    if (size != 0.0) most /= size;
    if (!(most <= worst)) worst = most;
  }
  return worst;
}

/* ---- definitions ---- */

static double layers_weight(const twh_matrix *matrix, int64_t c, double missing)
{
  return matrix != NULL ? support_matrix_at(matrix, 0, c) : missing;
}

void support_define_norm(const twh_norm *norm, double *x, int64_t dim)
{
  long double mean = 0.0L, square = 0.0L, divisor;
  int64_t     c;
  if (norm == NULL) return;
  for (c = 0; c < dim && norm->kind == TWH_NORM_LAYER; ++c) mean += (long double)x[c];
  mean /= (long double)dim;
  for (c = 0; c < dim; ++c) square += ((long double)x[c] - mean) * ((long double)x[c] - mean);
  divisor = sqrtl(square / (long double)dim + (long double)norm->epsilon);
  for (c = 0; c < dim; ++c) {
    long double weight = (long double)layers_weight(norm->weight, c, 1.0) + (long double)norm->weight_offset;
    x[c] = (double)(((long double)x[c] - mean) / divisor * weight + (long double)layers_weight(norm->bias, c, 0.0));
  }
}

double support_define_activation(int32_t activation, double x)
{
  const long double z = (long double)x;
  if (isinf(x)) return x > 0.0 ? x : 0.0;
  if (activation == TWH_GELU) return (double)(z * erfcl(-z / sqrtl(2.0L)) / 2.0L);
  if (activation == TWH_SILU) return (double)(z / (1.0L + expl(-z)));
  if (activation == TWH_RELU) return x > 0.0 ? x : 0.0 * x;
  /* 1 + tanh u = 2 / (1 + e^-2u) */
  return (double)(z / (1.0L + expl(-2.0L * sqrtl(2.0L / acosl(-1.0L)) * (z + 0.044715L * z * z * z))));
}

void support_define_rotary(const twh_rotary *rotary, double *x, int64_t n_heads, int64_t head_dim, int64_t position)
{
  const int64_t dims = rotary->dims ? rotary->dims : head_dim;
  int64_t       h, i;
  for (h = 0; h < n_heads; ++h) {
    for (i = 0; i < dims / 2; ++i) {
      long double base = rotary->base != 0.0 ? (long double)rotary->base : 10000.0L;
      long double frequency = powl(base, -2.0L * (long double)i / (long double)dims);
      long double angle = (long double)position * (rotary->frequencies ? (long double)rotary->frequencies[i] : frequency);
      double     *head = x + h * head_dim;
      double     *a = rotary->pairing == TWH_ROTARY_HALVES ? &head[i] : &head[2 * i];
      double     *b = rotary->pairing == TWH_ROTARY_HALVES ? &head[i + dims / 2] : &head[2 * i + 1];
      long double first = (long double)*a, second = (long double)*b;
      *a = (double)(first * cosl(angle) - second * sinl(angle));
      *b = (double)(first * sinl(angle) + second * cosl(angle));
    }
  }
}

/* Output j of x w + b. */
static double layers_product(const twh_mlp *mlp, const twh_matrix *w, const twh_matrix *b, const double *x, int64_t n,
                             int64_t j)
{
  double  sum = layers_weight(b, j, 0.0);
  int64_t i;
  for (i = 0; i < n; ++i)
    sum += x[i] * (mlp->flags & TWH_LAYER_IN_OUT ? support_matrix_at(w, i, j) : support_matrix_at(w, j, i));
  return sum;
}

void support_define_mlp(const twh_mlp *mlp, double *x, int64_t dim)
{
  const int64_t width = mlp->flags & TWH_LAYER_IN_OUT ? mlp->w_up->cols : mlp->w_up->rows;
  double       *hidden = (double *)malloc((size_t)width * sizeof *hidden);
  int64_t       j;
  assert_non_null(hidden);
  for (j = 0; j < width; ++j) {
    hidden[j] = layers_product(mlp, mlp->w_up, mlp->b_up, x, dim, j);
    if (mlp->w_gate == NULL)
      hidden[j] = support_define_activation(mlp->activation, hidden[j]);
    else
      hidden[j] *= support_define_activation(mlp->activation, layers_product(mlp, mlp->w_gate, mlp->b_gate, x, dim, j));
  }
  for (j = 0; j < dim; ++j) x[j] = layers_product(mlp, mlp->w_down, mlp->b_down, hidden, width, j);
  free(hidden);
}
