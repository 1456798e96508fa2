/* The small transformer on BLIS by itself, called as an oracle's callback, with weights that are not 0 and 1: against float64,
 * nothing read or written behind its operands, and bits that do not depend on the batch. */
#include "support.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "blis/stack.h"

enum { NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL };

typedef struct stack_shape {
  int64_t layers, heads, length, model_dim, qk_dim, v_dim;
} stack_shape;

static void stack_desc(const stack_shape *shape, twh_transformer_oracle_desc *desc)
{
  twh_transformer_oracle_desc_init(desc);
  desc->layers = shape->layers;
  desc->heads = shape->heads;
  desc->length = shape->length;
  desc->model_dim = shape->model_dim;
  desc->qk_dim = shape->qk_dim;
  desc->v_dim = shape->v_dim;
  desc->dtype = TWH_F32;
  desc->mask_modes = NONE | CAUSAL;
  desc->scale = 1.0;
}

/* Weights and an input of a kernel. */
typedef struct stack_model {
  stack_shape             shape;
  double                  scale;
  twh_transformer_weights weights;
  float                  *memory[5]; /* wq, wk, wv, wo, x */
} stack_model;

/* Bytes mapped for n floats, which end where a page ends behind which nothing is mapped. */
static size_t stack_mapped(int64_t n)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return ((size_t)n * sizeof(float) + page - 1) / page * page;
}

static float *stack_allocate(int64_t n)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = stack_mapped(n);
  char  *memory = (char *)mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  assert_int_equal(mprotect(memory + whole, page, PROT_NONE), 0);
  memset(memory, SUPPORT_POISON, whole);
  return (float *)(void *)(memory + whole) - n;
}

static void stack_free(float *memory, int64_t n)
{
  munmap((char *)(memory + n) - stack_mapped(n), stack_mapped(n) + (size_t)sysconf(_SC_PAGESIZE));
}

static float *stack_random(int64_t n, double size, support_random *random)
{
  float  *to = stack_allocate(n);
  int64_t i;
  for (i = 0; i < n; ++i) to[i] = (float)(support_normal(random) * size);
  return to;
}

static int64_t stack_elements(const stack_model *model)
{
  return model->shape.length * model->shape.model_dim;
}

/* Scores of standard deviation 1, and what a layer adds about as large as x, which is as large as `size`. */
static void stack_model_create(stack_model *model, const stack_shape *shape, double size, support_random *random)
{
  const int64_t in = shape->model_dim, slots = shape->layers * shape->heads;
  const int64_t dims[4] = { shape->qk_dim, shape->qk_dim, shape->v_dim, shape->v_dim };
  twh_operand  *operand = &model->weights.wq;
  int           i;
  model->shape = *shape;
  model->scale = 1.0 / sqrt((double)shape->qk_dim) / size / size;
  twh_transformer_weights_init(&model->weights);
  for (i = 0; i < 4; ++i) {
    model->memory[i] = stack_random(slots * in * dims[i], 1.0 / sqrt((double)(i < 3 ? in : dims[i] * shape->heads)), random);
    operand[i].data = model->memory[i];
    operand[i].row_stride = i < 3 ? dims[i] : in;
    operand[i].slot_stride = in * dims[i];
    operand[i].id = (uint64_t)i + 1;
  }
  model->memory[4] = stack_random(shape->length * in, size, random);
}

static void stack_model_destroy(stack_model *model)
{
  const int64_t in = model->shape.model_dim * model->shape.layers * model->shape.heads;
  int           i;
  for (i = 0; i < 4; ++i) stack_free(model->memory[i], in * (i < 2 ? model->shape.qk_dim : model->shape.v_dim));
  stack_free(model->memory[4], stack_elements(model));
}

/* to (rows, n) = a (rows, k) w (k, n). */
static void stack_multiply(const double *a, const float *w, int64_t rows, int64_t k, int64_t n, double *to)
{
  int64_t i, j, p;
  for (i = 0; i < rows * n; ++i) to[i] = 0.0;
  for (i = 0; i < rows; ++i)
    for (p = 0; p < k; ++p)
      for (j = 0; j < n; ++j) to[i * n + j] += a[i * k + p] * (double)w[p * n + j];
}

/* out (length, v_dim) = attention of one head. */
static void stack_attend(const stack_model *model, uint32_t mask_mode, const double *q, const double *k, const double *v,
                         double *scores, double *out)
{
  const stack_shape *shape = &model->shape;
  int64_t            i, j, c;
  for (i = 0; i < shape->length; ++i) {
    int64_t keys = mask_mode == CAUSAL ? i + 1 : shape->length;
    double  most = -INFINITY, sum = 0.0;
    for (j = 0; j < keys; ++j) {
      scores[j] = 0.0;
      for (c = 0; c < shape->qk_dim; ++c) scores[j] += q[i * shape->qk_dim + c] * k[j * shape->qk_dim + c];
      scores[j] *= model->scale;
      most = fmax(most, scores[j]);
    }
    for (j = 0; j < keys; ++j) sum += scores[j] = exp(scores[j] - most);
    for (c = 0; c < shape->v_dim; ++c) {
      double value = 0.0;
      for (j = 0; j < keys; ++j) value += scores[j] * v[j * shape->v_dim + c];
      out[i * shape->v_dim + c] = value / sum;
    }
  }
}

/* x (length, model_dim) after the last layer, in float64. */
static double *stack_truth(const stack_model *model, uint32_t mask_mode)
{
  const stack_shape *shape = &model->shape;
  const int64_t      rows = shape->length, dim = shape->model_dim, qk = shape->qk_dim, vd = shape->v_dim;
  double            *x = (double *)malloc((size_t)(rows * (4 * dim + 2 * qk + 2 * vd + 1)) * sizeof(double));
  double            *sum = x + rows * dim, *one = sum + rows * dim;
  double            *q = one + rows * dim, *k = q + rows * qk, *v = k + rows * qk, *out = v + rows * vd;
  double            *scores = out + rows * vd;
  int64_t            l, h, i;
  assert_non_null(x);
  for (i = 0; i < rows * dim; ++i) x[i] = (double)model->memory[4][i];
  for (l = 0; l < shape->layers; ++l) {
    for (i = 0; i < rows * dim; ++i) sum[i] = x[i];
    for (h = l * shape->heads; h < (l + 1) * shape->heads; ++h) {
      stack_multiply(x, model->memory[0] + h * dim * qk, rows, dim, qk, q);
      stack_multiply(x, model->memory[1] + h * dim * qk, rows, dim, qk, k);
      stack_multiply(x, model->memory[2] + h * dim * vd, rows, dim, vd, v);
      stack_attend(model, mask_mode, q, k, v, scores, out);
      stack_multiply(out, model->memory[3] + h * dim * vd, rows, vd, dim, one);
      for (i = 0; i < rows * dim; ++i) sum[i] += one[i];
    }
    for (i = 0; i < rows * dim; ++i) x[i] = sum[i];
  }
  return x;
}

static void stack_stack_create(twh__blis_stack *stack, const stack_model *model)
{
  memset(stack, 0, sizeof *stack);
  stack_desc(&model->shape, &stack->desc);
  stack->desc.scale = model->scale;
  assert_int_equal(twh__blis_stack_init(stack), 1);
}

static void stack_call(twh_transformer_call *call, const stack_model *model, uint32_t mask_mode, float *out)
{
  twh_transformer_call_init(call);
  call->mask_mode = mask_mode;
  call->weights = &model->weights;
  call->x = model->memory[4];
  call->out = out;
}

static const stack_shape stack_shapes[] = {
  { 1, 1, 1, 1, 1, 1 },    { 1, 1, 7, 5, 3, 2 },   { 3, 1, 1, 9, 2, 4 },      { 2, 3, 33, 1, 4, 4 },   { 3, 4, 17, 57, 8, 9 },
  { 2, 3, 70, 101, 16, 5 }, { 1, 5, 130, 33, 7, 20 }, { 2, 1, 150, 300, 64, 65 }, { 2, 2, 530, 21, 6, 5 },
  { 2, 2, 20, 3, 1, 1 },   { 1, 3, 40, 14, 2, 3 },
};

/* In units of 2^-24 of the largest number, for each layer: what rounding does to scores of a few units, times what a layer
 * makes of an error of its input. */
static void stack_equals_float64(void **state)
{
  static const double sizes[] = { 1.0, 1e-15, 1e15 };
  int64_t             n, s, i;
  uint32_t            mode;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(stack_shapes); ++n)
    for (s = 0; s < (n == 4 || n == 5 ? 3 : 1); ++s)
      for (mode = NONE; mode <= CAUSAL; ++mode) {
        support_random              random = support_random_at(31, (uint64_t)n);
        stack_model                 model;
        twh__blis_stack             stack;
        twh_transformer_call        call;
        const twh_transformer_call *calls = &call;
        float                      *out;
        double                     *want, worst = 0.0, most = 0.0;
        char                        name[80];
        stack_model_create(&model, &stack_shapes[n], sizes[s], &random);
        stack_stack_create(&stack, &model);
        out = stack_allocate(stack_elements(&model));
        stack_call(&call, &model, mode, out);
        assert_int_equal(twh__blis_stack_run(&stack, &calls, 1), 0);
        want = stack_truth(&model, mode);
        for (i = 0; i < stack_elements(&model); ++i) {
          double error = fabs((double)out[i] - want[i]);
          if (!(error <= worst)) worst = error == error ? error : INFINITY;
          most = fmax(most, fmax(fabs(want[i]), fabs((double)model.memory[4][i])));
        }
        snprintf(name, sizeof name, "shape %d, size %g, mode %u", (int)n, sizes[s], (unsigned)mode);
        support_assert_at_most(worst / most * 16777216.0, 6.0 * (double)model.shape.layers, name);
        free(want);
        stack_free(out, stack_elements(&model));
        twh__blis_stack_finish(&stack);
        stack_model_destroy(&model);
      }
}

/* Calls of one batch do not know of each other, of what ran before, or of whose weights they are. */
static void stack_bits_do_not_depend_on_the_batch(void **state)
{
  enum { CALLS = 3 };
  support_random              random = support_random_at(32, 0);
  stack_model                 model[CALLS];
  twh__blis_stack             stack;
  twh_transformer_call        call[CALLS];
  const twh_transformer_call *calls[CALLS];
  float                      *out[CALLS], *alone;
  int                         n;
  (void)state;
  for (n = 0; n < CALLS; ++n) {
    stack_model_create(&model[n], &stack_shapes[5], 1.0, &random);
    out[n] = stack_allocate(stack_elements(&model[n]));
    stack_call(&call[n], &model[n], n == 1 ? CAUSAL : NONE, out[n]);
    calls[n] = &call[n];
  }
  model[2].memory[4][17] = NAN;
  stack_stack_create(&stack, &model[0]);
  assert_int_equal(twh__blis_stack_run(&stack, calls, CALLS), 0);
  for (n = 0; n < 2; ++n) {
    alone = stack_allocate(stack_elements(&model[n]));
    call[n].out = alone;
    assert_int_equal(twh__blis_stack_run(&stack, &calls[n], 1), 0);
    assert_memory_equal(alone, out[n], (size_t)stack_elements(&model[n]) * sizeof(float));
    stack_free(alone, stack_elements(&model[n]));
  }
  twh__blis_stack_finish(&stack);
  for (n = 0; n < CALLS; ++n) {
    stack_free(out[n], stack_elements(&model[n]));
    stack_model_destroy(&model[n]);
  }
}

/* Scratch memory of 2^48 bytes cannot be had: the kernel says so with its code, and touches nothing. */
static void stack_returns_its_code_without_memory(void **state)
{
  stack_shape                 shape = { 1, 1, (int64_t)1 << 40, 4, 1, 1 };
  twh__blis_stack             stack;
  twh_transformer_call        call;
  const twh_transformer_call *calls = &call;
  (void)state;
#if SUPPORT_SANITIZED
  skip(); /* their malloc ends the process */
#endif
  memset(&stack, 0, sizeof stack);
  stack_desc(&shape, &stack.desc);
  assert_int_equal(twh__blis_stack_init(&stack), 1);
  twh_transformer_call_init(&call);
  assert_int_equal(twh__blis_stack_run(&stack, &calls, 1), ENOMEM);
  twh__blis_stack_finish(&stack);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(stack_equals_float64),
    cmocka_unit_test(stack_bits_do_not_depend_on_the_batch),
    cmocka_unit_test(stack_returns_its_code_without_memory),
  };
  return cmocka_run_group_tests_name("kernel of a small transformer on BLIS", tests, NULL, NULL);
}
