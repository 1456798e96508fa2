/* The reference small transformer by itself: any weights against a plain loop, what it rounds, what is not finite, and its
 * independence of what else is in a batch. What small transformers compute in other tests is measured against it. */
#include "support.h"

#include <errno.h>

typedef struct reference_shape {
  int32_t  dtype;
  uint32_t mask_mode;
  int64_t  layers, heads, length, model_dim, qk_dim, v_dim;
  double   scale;
} reference_shape;

static const reference_shape reference_shapes[] = {
  { TWH_F32, TWH_MASK_NONE, 1, 1, 1, 1, 1, 1, 1.0 },      { TWH_F32, TWH_MASK_CAUSAL, 2, 3, 9, 14, 4, 3, 0.4 },
  { TWH_F32, TWH_MASK_NONE, 4, 1, 17, 10, 2, 7, -0.7 },   { TWH_BF16, TWH_MASK_NONE, 2, 2, 8, 12, 3, 3, 0.5 },
  { TWH_BF16, TWH_MASK_CAUSAL, 1, 4, 16, 20, 5, 1, 0.5 }, { TWH_F16, TWH_MASK_NONE, 3, 2, 8, 12, 3, 3, 0.5 },
  { TWH_F16, TWH_MASK_CAUSAL, 2, 2, 31, 9, 3, 3, 0.5 },
};

enum { WQ, WK, WV, WO, X, OPERANDS };

typedef struct reference_model {
  reference_shape             shape;
  twh_transformer_oracle_desc desc;
  twh_transformer_weights     weights;
  void                       *memory[OPERANDS], *out;
  int64_t                     count[OPERANDS]; /* elements */
} reference_model;

/* size: of the weights; of x it is 1. */
static void reference_create(reference_model *m, const reference_shape *shape, double size, uint64_t seed)
{
  const int64_t  slots = shape->layers * shape->heads, dim = shape->model_dim, qk = shape->qk_dim, v = shape->v_dim;
  const int64_t  columns[4] = { qk, qk, v, dim };
  support_random random = support_random_at(11, seed);
  int64_t        w, i;
  memset(m, 0, sizeof *m);
  m->shape = *shape;
  m->count[WQ] = m->count[WK] = slots * dim * qk;
  m->count[WV] = m->count[WO] = slots * dim * v;
  m->count[X] = shape->length * dim;
  twh_transformer_oracle_desc_init(&m->desc);
  m->desc.layers = shape->layers;
  m->desc.heads = shape->heads;
  m->desc.length = shape->length;
  m->desc.model_dim = dim;
  m->desc.qk_dim = qk;
  m->desc.v_dim = v;
  m->desc.dtype = shape->dtype;
  m->desc.mask_modes = shape->mask_mode;
  m->desc.scale = shape->scale;
  twh_transformer_weights_init(&m->weights);
  for (w = 0; w < OPERANDS; ++w) {
    m->memory[w] = malloc((size_t)(m->count[w] * support_bytes(shape->dtype)));
    assert_non_null(m->memory[w]);
    for (i = 0; i < m->count[w]; ++i)
      support_store(m->memory[w], shape->dtype, i, support_normal(&random) * (w == X ? 1.0 : size / sqrt((double)dim)));
    if (w == X) continue;
    (&m->weights.wq)[w].data = m->memory[w];
    (&m->weights.wq)[w].row_stride = columns[w];
    (&m->weights.wq)[w].slot_stride = m->count[w] / slots;
  }
  m->out = malloc((size_t)(m->count[X] * support_bytes(shape->dtype)));
  assert_non_null(m->out);
}

static void reference_destroy(reference_model *m)
{
  int64_t w;
  for (w = 0; w < OPERANDS; ++w) free(m->memory[w]);
  free(m->out);
}

static void reference_call(twh_transformer_call *call, const reference_model *m, void *out)
{
  twh_transformer_call_init(call);
  call->mask_mode = m->shape.mask_mode;
  call->weights = &m->weights;
  call->x = m->memory[X];
  call->out = out;
}

static void reference_run(reference_model *m)
{
  twh_transformer_call        call;
  const twh_transformer_call *calls[1];
  calls[0] = &call;
  reference_call(&call, m, m->out);
  memset(m->out, SUPPORT_POISON, (size_t)(m->count[X] * support_bytes(m->shape.dtype)));
  assert_int_equal(twh_reference_transformer_run(&m->desc, calls, 1), 0);
}

static double reference_weight(const reference_model *m, int w, int64_t number, int64_t row, int64_t column)
{
  const twh_operand *operand = &(&m->weights.wq)[w];
  return support_load(operand->data, m->shape.dtype, number * operand->slot_stride + row * operand->row_stride + column);
}

/* Coordinate c of row i of x w, x in float64. */
static double reference_project(const reference_model *m, const double *x, int w, int64_t number, int64_t i, int64_t c)
{
  double  sum = 0.0;
  int64_t p;
  for (p = 0; p < m->shape.model_dim; ++p) sum += x[i * m->shape.model_dim + p] * reference_weight(m, w, number, p, c);
  return support_round(sum, m->shape.dtype);
}

/* What head `number` makes of row i, times wo, is added to `sum`; q, k, v: its projections. */
static void reference_head_row(const reference_model *m, int64_t number, int64_t i, const double *q, const double *k,
                               const double *v, double *sum)
{
  const reference_shape *shape = &m->shape;
  const int64_t          keys = shape->mask_mode == TWH_MASK_CAUSAL ? i + 1 : shape->length;
  int64_t                j, c, p;
  double                 total = 0.0, out[16] = { 0.0 };
  for (j = 0; j < keys; ++j) {
    double score = 0.0;
    for (c = 0; c < shape->qk_dim; ++c) score += q[i * shape->qk_dim + c] * k[j * shape->qk_dim + c];
    score = exp(score * shape->scale); /* small scores: no maximum is needed */
    total += score;
    for (c = 0; c < shape->v_dim; ++c) out[c] += score * v[j * shape->v_dim + c];
  }
  for (c = 0; c < shape->v_dim; ++c)
    for (p = 0; p < shape->model_dim; ++p)
      sum[i * shape->model_dim + p] += support_round(out[c] / total, shape->dtype) * reference_weight(m, WO, number, c, p);
}

/* x after the last layer. */
static double *reference_truth(const reference_model *m)
{
  const reference_shape *shape = &m->shape;
  const int64_t          n = shape->length, count = m->count[X];
  double                *x = (double *)calloc((size_t)(2 * count + n * (2 * shape->qk_dim + shape->v_dim)), sizeof *x);
  double                *sum = x + count, *q = sum + count, *k = q + n * shape->qk_dim, *v = k + n * shape->qk_dim;
  int64_t                l, h, i, c;
  assert_non_null(x);
  for (i = 0; i < count; ++i) x[i] = support_load(m->memory[X], shape->dtype, i);
  for (l = 0; l < shape->layers; ++l) {
    for (i = 0; i < count; ++i) sum[i] = 0.0;
    for (h = l * shape->heads; h < (l + 1) * shape->heads; ++h) {
      for (i = 0; i < n; ++i) {
        for (c = 0; c < shape->qk_dim; ++c) q[i * shape->qk_dim + c] = reference_project(m, x, WQ, h, i, c);
        for (c = 0; c < shape->qk_dim; ++c) k[i * shape->qk_dim + c] = reference_project(m, x, WK, h, i, c);
        for (c = 0; c < shape->v_dim; ++c) v[i * shape->v_dim + c] = reference_project(m, x, WV, h, i, c);
      }
      for (i = 0; i < n; ++i) reference_head_row(m, h, i, q, k, v, sum);
    }
    for (i = 0; i < count; ++i) x[i] = support_round(x[i] + sum[i], shape->dtype);
  }
  return x;
}

/* A sum that lies next to where rounding turns may be rounded to the other side: an ulp of the dtype in each layer. */
static void any_weights_are_obeyed(void **state)
{
  int64_t n, i;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(reference_shapes); ++n) {
    const reference_shape *shape = &reference_shapes[n];
    reference_model        m;
    double                *want, largest = 0.0, worst = 0.0;
    reference_create(&m, shape, 1.5, (uint64_t)n);
    want = reference_truth(&m);
    reference_run(&m);
    for (i = 0; i < m.count[X]; ++i) {
      double error = fabs(support_load(m.out, shape->dtype, i) - want[i]);
      if (!(error <= worst)) worst = error;
      largest = fmax(largest, fabs(want[i]));
    }
    if (!(worst <= (double)shape->layers * support_ulp(largest, shape->dtype)))
      fail_msg("shape %d: %g of %g", (int)n, worst, largest);
    free(want);
    reference_destroy(&m);
  }
}

/* A number that is not finite meets every weight, the zeros too. */
static void what_is_not_finite_spreads(void **state)
{
  static const double spoils[] = { NAN, INFINITY, -INFINITY };
  int64_t             n, s, i;
  (void)state;
  for (n = 1; n < SUPPORT_COUNT(reference_shapes); ++n)
    for (s = 0; s < SUPPORT_COUNT(spoils); ++s) {
      const reference_shape *shape = &reference_shapes[n];
      const int64_t          dim = shape->model_dim, row = shape->length / 2;
      reference_model        m;
      reference_create(&m, shape, 0.0, (uint64_t)n); /* weights of zero: x passes, unless */
      reference_run(&m);
      assert_memory_equal(m.out, m.memory[X], (size_t)(m.count[X] * support_bytes(shape->dtype)));
      support_store(m.memory[X], shape->dtype, row * dim + dim - 1, spoils[s]);
      reference_run(&m);
      for (i = 0; i < m.count[X]; ++i) {
        const int spoiled = i / dim >= row || shape->mask_mode == TWH_MASK_NONE;
        assert_int_equal(isnan(support_load(m.out, shape->dtype, i)) != 0, spoiled);
      }
      reference_destroy(&m);
    }
}

/* So does a weight: infinity times a number of x that is zero. */
static void weights_that_are_not_finite_are_not_skipped(void **state)
{
  int w;
  (void)state;
  for (w = WQ; w <= WO; ++w) {
    reference_model m;
    int64_t         i;
    reference_create(&m, &reference_shapes[1], 0.0, 1);
    for (i = 0; i < m.count[X]; ++i) support_store(m.memory[X], TWH_F32, i, 0.0);
    support_store(m.memory[w], TWH_F32, 0, INFINITY);
    reference_run(&m);
    for (i = 0; i < m.count[X]; ++i) assert_true(isnan(support_load(m.out, TWH_F32, i))); /* of wo: in the second layer */
    reference_destroy(&m);
  }
}

/* With weights of one, x the same in all rows: scores of x x and values of x, as an f32 kernel holds them. */
static void sums_beyond_f32_are_infinite(void **state)
{
  static const double xs[] = { 1e18, 1e19, 2e19, 1e38, 3e38 };
  int64_t             n, i;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(xs); ++n) {
    const reference_shape shape = { TWH_F32, TWH_MASK_NONE, 1, 1, 4, 1, 1, 1, 1.0 };
    reference_model       m;
    reference_create(&m, &shape, 0.0, 0);
    support_store(m.memory[WV], TWH_F32, 0, 1.0);
    support_store(m.memory[WQ], TWH_F32, 0, n < 3 ? 1.0 : 0.0);
    support_store(m.memory[WK], TWH_F32, 0, n < 3 ? 1.0 : 0.0);
    support_store(m.memory[WO], TWH_F32, 0, 0.5);
    for (i = 0; i < 4; ++i) support_store(m.memory[X], TWH_F32, i, xs[n]);
    reference_run(&m);
    for (i = 0; i < 4; ++i) {
      double got = support_load(m.out, TWH_F32, i);
      if (n < 2) assert_true(fabs(got / xs[n] - 1.5) < 1e-6);
      if (n == 2) assert_true(isnan(got));     /* scores of inf, inf - inf */
      if (n > 2) assert_true(got == INFINITY); /* four weights of 1 */
    }
    reference_destroy(&m);
  }
}

static void a_call_is_the_same_in_any_batch(void **state)
{
  reference_model             m;
  twh_transformer_call        call[3];
  const twh_transformer_call *calls[3];
  float                      *out[3];
  size_t                      bytes;
  int                         i;
  (void)state;
  reference_create(&m, &reference_shapes[1], 1.0, 5);
  reference_run(&m);
  bytes = (size_t)m.count[X] * sizeof(float);
  for (i = 0; i < 3; ++i) {
    out[i] = (float *)malloc(bytes);
    assert_non_null(out[i]);
    reference_call(&call[i], &m, out[i]);
    calls[i] = &call[i];
  }
  assert_int_equal(twh_reference_transformer_run(&m.desc, calls, 3), 0);
  for (i = 0; i < 3; ++i) {
    assert_memory_equal(out[i], m.out, bytes);
    free(out[i]);
  }
  reference_destroy(&m);
}

static void what_is_the_kernels_must_be_zero(void **state)
{
  const char *const words[] = { "out", "desc", "struct_size", "run", "model_dim" };
  int               i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(words); ++i) {
    reference_model m;
    twh_oracle     *oracle = (twh_oracle *)&m;
    twh_error       error;
    twh_status      status;
    reference_create(&m, &reference_shapes[1], 1.0, 0); /* its model_dim is too small for an oracle */
    twh_error_init(&error);
    if (i == 2) m.desc.struct_size += 8;
    if (i == 3) m.desc.run = twh_reference_transformer_run;
    status = twh_reference_transformer_create(NULL, i == 1 ? NULL : &m.desc, i == 0 ? NULL : &oracle, &error);
    support_assert_status(status, i == 2 ? TWH_E_VERSION : TWH_E_ARGUMENT, &error, words[i]);
    if (i > 0) assert_null(oracle);
    reference_destroy(&m);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_weights_are_obeyed),
    cmocka_unit_test(what_is_not_finite_spreads),
    cmocka_unit_test(weights_that_are_not_finite_are_not_skipped),
    cmocka_unit_test(sums_beyond_f32_are_infinite),
    cmocka_unit_test(a_call_is_the_same_in_any_batch),
    cmocka_unit_test(what_is_the_kernels_must_be_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
