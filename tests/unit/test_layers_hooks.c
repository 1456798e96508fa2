/* The ready hooks of twoheads-layers, called as a transformer would call them: blocks as different families have them and
 * embeddings, against the definitions, with poison around everything they may write and NULL where they have no business. */
#include "support_layers.h"

#include <errno.h>

enum { HOOKS_NORMS = 8, HOOKS_DIM = 40, HOOKS_WIDTH = 72, HOOKS_HEADS = 4, HOOKS_KV = 2, HOOKS_QK = 10, HOOKS_V = 6 };

/* Norms in the order of twh_block. */
enum { INPUT = 1, Q = 2, K = 4, ATTENTION_OUT = 8, ATTENTION_SUM = 16, MLP_INPUT = 32, MLP_OUT = 64, MLP_SUM = 128, ALL = 255 };
enum { NO_MLP = 0, PLAIN = 1, GATED = 2 };

typedef struct hooks_family {
  const char *name;
  int         norms;
  int32_t     kind;
  double      offset;
  int32_t     pairing; /* 0 = no rotary positions */
  int64_t     dims;
  int         mlp;
  int32_t     activation, dtype;
  int         biases, in_out;
} hooks_family;

static const hooks_family hooks_families[] = {
  { "llama", INPUT | MLP_INPUT, TWH_NORM_RMS, 0, TWH_ROTARY_HALVES, 0, GATED, TWH_SILU, TWH_F32, 0, 0 },
  { "bert", ATTENTION_SUM | MLP_SUM, TWH_NORM_LAYER, 0, 0, 0, PLAIN, TWH_GELU, TWH_F16, 1, 0 },
  { "gemma", ALL & ~(ATTENTION_SUM | MLP_SUM), TWH_NORM_RMS, 1, TWH_ROTARY_HALVES, 0, GATED, TWH_GELU_TANH, TWH_BF16, 0, 0 },
  { "gpt", INPUT | MLP_INPUT, TWH_NORM_LAYER, 0, 0, 0, PLAIN, TWH_GELU_TANH, TWH_F16, 1, 1 },
  { "all", ALL, TWH_NORM_LAYER, 0, TWH_ROTARY_NEIGHBOURS, 6, GATED, TWH_RELU, TWH_F32, 1, 1 },
  { "q norm alone", Q, TWH_NORM_RMS, 0, 0, 0, NO_MLP, 0, TWH_F32, 0, 0 },
  { "k norm alone", K, TWH_NORM_LAYER, 0, 0, 0, NO_MLP, 0, TWH_BF16, 0, 0 },
  { "no MLP", ATTENTION_OUT, TWH_NORM_RMS, 0, 0, 0, NO_MLP, 0, TWH_F32, 0, 0 },
  { "nothing", 0, 0, 0, 0, 0, NO_MLP, 0, TWH_F32, 0, 0 },
};

/* Pointers point into the struct: never copy it. */
typedef struct hooks_model {
  const hooks_family *family;
  twh_norm            norms[HOOKS_NORMS];
  twh_rotary          rotary;
  twh_mlp             mlp;
  twh_block           block;
  twh_layer_desc      layer;
  int64_t             scratch;
} hooks_model;

static const twh_norm **hooks_norm_at(hooks_model *m, int i)
{
  const twh_norm **at[HOOKS_NORMS];
  at[0] = &m->block.input_norm;
  at[1] = &m->block.q_norm;
  at[2] = &m->block.k_norm;
  at[3] = &m->block.attention_out_norm;
  at[4] = &m->block.attention_sum_norm;
  at[5] = &m->block.mlp_input_norm;
  at[6] = &m->block.mlp_out_norm;
  at[7] = &m->block.mlp_sum_norm;
  return at[i];
}

static const twh_matrix *hooks_weight(const hooks_family *family, support_random *random, int64_t in, int64_t out)
{
  int64_t gap = support_between(random, 0, 2);
  return support_weights(random, family->in_out ? in : out, family->in_out ? out : in, family->dtype, gap, 0.0, 0.2);
}

static const twh_matrix *hooks_bias(const hooks_family *family, support_random *random, int64_t n)
{
  return family->biases ? support_weights(random, 1, n, family->dtype, 0, 0.1, 0.3) : NULL;
}

static void hooks_begin(hooks_model *m, const hooks_family *family, support_random *random)
{
  int i;
  memset(m, 0, sizeof *m);
  m->family = family;
  twh_block_init(&m->block);
  twh_layer_desc_init(&m->layer);
  m->layer.q_heads = HOOKS_HEADS;
  m->layer.kv_heads = HOOKS_KV;
  m->layer.qk_dim = HOOKS_QK;
  m->layer.v_dim = HOOKS_V;
  for (i = 0; i < HOOKS_NORMS; ++i) {
    const int64_t dim = i == 1 || i == 2 ? HOOKS_QK : HOOKS_DIM;
    if (!(family->norms >> i & 1)) continue;
    twh_norm_init(&m->norms[i]);
    m->norms[i].kind = family->kind;
    m->norms[i].epsilon = 1e-6;
    m->norms[i].weight_offset = family->offset;
    m->norms[i].weight = support_weights(random, 1, dim, family->dtype, 0, 1.0 - family->offset, 0.3);
    if (family->kind == TWH_NORM_LAYER) m->norms[i].bias = support_weights(random, 1, dim, family->dtype, 0, 0.0, 0.3);
    *hooks_norm_at(m, i) = &m->norms[i];
  }
  twh_rotary_init(&m->rotary);
  m->rotary.pairing = family->pairing;
  m->rotary.dims = family->dims;
  if (family->pairing) m->block.rotary = &m->rotary;
  if (family->mlp == NO_MLP) return;
  twh_mlp_init(&m->mlp);
  m->mlp.flags = family->in_out ? TWH_LAYER_IN_OUT : 0;
  m->mlp.activation = family->activation;
  m->mlp.w_up = hooks_weight(family, random, HOOKS_DIM, HOOKS_WIDTH);
  m->mlp.w_down = hooks_weight(family, random, HOOKS_WIDTH, HOOKS_DIM);
  m->mlp.b_up = hooks_bias(family, random, HOOKS_WIDTH);
  m->mlp.b_down = hooks_bias(family, random, HOOKS_DIM);
  if (family->mlp == GATED) {
    m->mlp.w_gate = hooks_weight(family, random, HOOKS_DIM, HOOKS_WIDTH);
    m->mlp.b_gate = hooks_bias(family, random, HOOKS_WIDTH);
  }
  m->block.mlp = &m->mlp;
}

static void hooks_end(hooks_model *m)
{
  int i;
  for (i = 0; i < HOOKS_NORMS; ++i) {
    support_weights_destroy(m->norms[i].weight);
    support_weights_destroy(m->norms[i].bias);
  }
  support_weights_destroy(m->mlp.w_up);
  support_weights_destroy(m->mlp.w_gate);
  support_weights_destroy(m->mlp.w_down);
  support_weights_destroy(m->mlp.b_up);
  support_weights_destroy(m->mlp.b_gate);
  support_weights_destroy(m->mlp.b_down);
}

static void hooks_attach(hooks_model *m)
{
  twh_error error;
  twh_error_init(&error);
  support_assert_status(twh_block_attach(&m->block, HOOKS_DIM, &m->layer, &m->scratch, &error), TWH_OK, &error, NULL);
}

/* ---- the product ---- */

typedef struct hooks_product {
  int64_t rows, calls, fail_at; /* fail_at: number of the call, from 1; 0: none */
  int32_t code;
} hooks_product;

static int32_t hooks_gemm(void *user, const twh_gemm *gemm)
{
  hooks_product *product = (hooks_product *)user;
  const float   *a_end = gemm->a + (gemm->m - 1) * gemm->a_row_stride + gemm->k;
  const float   *c_end = gemm->c + (gemm->m - 1) * gemm->c_row_stride + gemm->n;
  if (++product->calls == product->fail_at) return product->code;
  assert_true(gemm->struct_size == sizeof *gemm && gemm->m == product->rows); /* blocks, not rows */
  assert_true(a_end <= gemm->c || c_end <= gemm->a);
  return twh_gemm_plain(NULL, gemm);
}

/* ---- a call of each hook ---- */

typedef struct hooks_call {
  hooks_product product;
  support_block x, y, q, k, v, scratch;
  int64_t      *positions;
  twh_rows      rows;
} hooks_call;

static void hooks_call_begin(hooks_call *call, const hooks_model *m, int64_t rows, int64_t gap, double size,
                             support_random *random)
{
  int64_t r;
  memset(call, 0, sizeof *call);
  call->product.rows = rows;
  support_block_create(&call->x, rows, HOOKS_DIM, gap);
  support_block_create(&call->y, rows, HOOKS_DIM, 2 * gap);
  support_block_create(&call->q, rows, HOOKS_HEADS * HOOKS_QK, gap);
  support_block_create(&call->k, rows, HOOKS_KV * HOOKS_QK, 3 * gap);
  support_block_create(&call->v, rows, HOOKS_KV * HOOKS_V, gap);
  support_block_create(&call->scratch, 1, rows * m->scratch, 0);
  support_block_fill(&call->x, random, 0.2 * size, size);
  support_block_fill(&call->y, random, 0.0, size);
  support_block_fill(&call->q, random, 0.0, size);
  support_block_fill(&call->k, random, 0.0, size);
  support_block_fill(&call->v, random, 0.0, size);
  call->positions = (int64_t *)malloc((size_t)rows * sizeof *call->positions);
  assert_non_null(call->positions);
  for (r = 0; r < rows; ++r) call->positions[r] = support_below(random, 3000);
  twh_rows_init(&call->rows);
  call->rows.rows = rows;
  call->rows.positions = call->positions;
  call->rows.model_dim = HOOKS_DIM;
  call->rows.q_heads = HOOKS_HEADS;
  call->rows.kv_heads = HOOKS_KV;
  call->rows.qk_dim = HOOKS_QK;
  call->rows.v_dim = HOOKS_V;
  call->rows.gemm = hooks_gemm;
  call->rows.gemm_user = &call->product;
}

static void hooks_call_end(hooks_call *call)
{
  support_block *blocks[6];
  int            i;
  blocks[0] = &call->x;
  blocks[1] = &call->y;
  blocks[2] = &call->q;
  blocks[3] = &call->k;
  blocks[4] = &call->v;
  blocks[5] = &call->scratch;
  for (i = 0; i < 6; ++i) {
    assert_true(support_block_gaps_untouched(blocks[i]));
    support_block_destroy(blocks[i]);
  }
  free(call->positions);
}

/* As core calls it: only what the hook is said to use is there. */
static int32_t hooks_before(const hooks_model *m, hooks_call *call)
{
  twh_rows rows = call->rows;
  rows.x = call->x.at;
  rows.x_stride = call->x.stride;
  rows.y = call->y.at;
  rows.y_stride = call->y.stride;
  return m->layer.before(m->layer.user, &rows);
}

static int32_t hooks_heads(const hooks_model *m, hooks_call *call)
{
  twh_rows rows = call->rows;
  rows.q = call->q.at;
  rows.k = call->k.at;
  rows.v = call->v.at;
  rows.q_stride = call->q.stride;
  rows.k_stride = call->k.stride;
  rows.v_stride = call->v.stride;
  return m->layer.heads(m->layer.user, &rows);
}

static int32_t hooks_after(const hooks_model *m, hooks_call *call, int64_t first, int64_t n)
{
  twh_rows rows = call->rows;
  rows.rows = n;
  rows.positions += first;
  rows.x = call->x.at + first * call->x.stride;
  rows.x_stride = call->x.stride;
  rows.y = call->y.at + first * call->y.stride;
  rows.y_stride = call->y.stride;
  rows.scratch = call->scratch.at;
  rows.scratch_per_row = m->scratch;
  return m->layer.after(m->layer.user, &rows);
}

/* ---- what they should do ---- */

static void hooks_define_heads(const twh_norm *norm, const twh_rotary *rotary, double *x, int64_t heads, int64_t position)
{
  int64_t h;
  for (h = 0; h < heads; ++h) support_define_norm(norm, x + h * HOOKS_QK, HOOKS_QK);
  if (rotary != NULL) support_define_rotary(rotary, x, heads, HOOKS_QK, position);
}

static void hooks_define_after(const twh_block *block, double *x, double *y)
{
  int64_t c;
  support_define_norm(block->attention_out_norm, y, HOOKS_DIM);
  for (c = 0; c < HOOKS_DIM; ++c) x[c] += y[c];
  support_define_norm(block->attention_sum_norm, x, HOOKS_DIM);
  if (block->mlp == NULL) return;
  memcpy(y, x, HOOKS_DIM * sizeof *y);
  support_define_norm(block->mlp_input_norm, y, HOOKS_DIM);
  support_define_mlp(block->mlp, y, HOOKS_DIM);
  support_define_norm(block->mlp_out_norm, y, HOOKS_DIM);
  for (c = 0; c < HOOKS_DIM; ++c) x[c] += y[c];
  support_define_norm(block->mlp_sum_norm, x, HOOKS_DIM);
}

static void hooks_expect(const hooks_model *m, const char *hook, const support_block *block, double *want)
{
  char what[100];
  snprintf(what, sizeof what, "%s: error of %s", m->family->name, hook);
  support_assert_at_most(support_block_error(block, want), 2e-6, what);
  free(want);
}

static void hooks_try_before(const hooks_model *m, hooks_call *call)
{
  double *x = support_block_read(&call->x), *want = support_block_read(&call->x);
  int64_t r;
  for (r = 0; r < call->x.rows; ++r) support_define_norm(m->block.input_norm, want + r * HOOKS_DIM, HOOKS_DIM);
  assert_int_equal(hooks_before(m, call), 0);
  hooks_expect(m, "before", &call->y, want);
  assert_true(support_block_error(&call->x, x) == 0.0);
  free(x);
}

static void hooks_try_heads(const hooks_model *m, hooks_call *call)
{
  double *q = support_block_read(&call->q), *k = support_block_read(&call->k), *v = support_block_read(&call->v);
  int64_t r;
  for (r = 0; r < call->q.rows; ++r) {
    hooks_define_heads(m->block.q_norm, m->block.rotary, q + r * call->q.cols, HOOKS_HEADS, call->positions[r]);
    hooks_define_heads(m->block.k_norm, m->block.rotary, k + r * call->k.cols, HOOKS_KV, call->positions[r]);
  }
  assert_int_equal(hooks_heads(m, call), 0);
  hooks_expect(m, "heads in q", &call->q, q);
  hooks_expect(m, "heads in k", &call->k, k);
  assert_true(support_block_error(&call->v, v) == 0.0);
  free(v);
}

static void hooks_try_after(const hooks_model *m, hooks_call *call)
{
  double *x = support_block_read(&call->x), *y = support_block_read(&call->y);
  int64_t r;
  for (r = 0; r < call->x.rows; ++r) hooks_define_after(&m->block, x + r * HOOKS_DIM, y + r * HOOKS_DIM);
  assert_int_equal(hooks_after(m, call, 0, call->x.rows), 0);
  hooks_expect(m, "after", &call->x, x);
  assert_int_equal(call->product.calls, m->family->mlp == NO_MLP ? 0 : m->family->mlp == GATED ? 3 : 2);
  free(y);
}

static void blocks_of_all_families_do_what_the_header_says(void **state)
{
  static const int64_t counts[] = { 1, 5, 65 };
  static const double  sizes[] = { 1.0, 1e-30, 1e30 };
  support_random       random = support_random_at(support_seed(1), 0);
  int64_t              f, n, s;
  (void)state;
  for (f = 0; f < SUPPORT_COUNT(hooks_families); ++f) {
    hooks_model m;
    hooks_begin(&m, &hooks_families[f], &random);
    hooks_attach(&m);
    for (n = 0; n < SUPPORT_COUNT(counts); ++n) {
      for (s = 0; s < (n == 1 ? 3 : 1); ++s) {
        hooks_call call;
        hooks_call_begin(&call, &m, counts[n], n, sizes[s], &random);
        if (m.layer.before) hooks_try_before(&m, &call);
        if (m.layer.heads) hooks_try_heads(&m, &call);
        support_block_fill(&call.y, &random, 0.0, sizes[s]);
        if (m.layer.after) hooks_try_after(&m, &call);
        hooks_call_end(&call);
      }
    }
    hooks_end(&m);
  }
}

static int32_t hooks_stale(void *user, const twh_rows *rows)
{
  (void)user;
  (void)rows;
  return 99;
}

/* Those that are not needed are NULL, also where another block had set them. */
static void attach_sets_the_hooks_that_are_needed(void **state)
{
  support_random random = support_random_at(support_seed(2), 0);
  int64_t        f;
  (void)state;
  for (f = 0; f < SUPPORT_COUNT(hooks_families); ++f) {
    const hooks_family *family = &hooks_families[f];
    hooks_model         m;
    hooks_begin(&m, family, &random);
    m.layer.before = m.layer.heads = m.layer.after = hooks_stale;
    hooks_attach(&m);
    assert_true((m.layer.before != NULL) == ((family->norms & INPUT) != 0));
    assert_true((m.layer.heads != NULL) == ((family->norms & (Q | K)) != 0 || family->pairing != 0));
    assert_true((m.layer.after != NULL) == ((family->norms & ~(INPUT | Q | K)) != 0 || family->mlp != NO_MLP));
    assert_true(m.layer.before != hooks_stale && m.layer.heads != hooks_stale && m.layer.after != hooks_stale);
    assert_ptr_equal(m.layer.user, &m.block);
    hooks_end(&m);
  }
}

static void attach_raises_scratch_to_what_the_widest_needs(void **state)
{
  support_random random = support_random_at(support_seed(3), 0);
  int64_t        scratch = 0;
  int            f;
  static const int     order[] = { 8, 1, 7, 0, 3, 1 };
  static const int64_t after[] = { 0, HOOKS_WIDTH, HOOKS_WIDTH, 2 * HOOKS_WIDTH, 2 * HOOKS_WIDTH, 2 * HOOKS_WIDTH };
  (void)state;
  for (f = 0; f < SUPPORT_COUNT(order); ++f) {
    hooks_model m;
    hooks_begin(&m, &hooks_families[order[f]], &random);
    support_assert_status(twh_block_attach(&m.block, HOOKS_DIM, &m.layer, &scratch, NULL), TWH_OK, NULL, NULL);
    assert_int_equal(scratch, after[f]);
    hooks_end(&m);
  }
}

static void a_row_has_the_same_bits_in_any_block(void **state)
{
  enum { ROWS = 33 };
  support_random random = support_random_at(support_seed(4), 0);
  int64_t        f, at, n, r;
  (void)state;
  for (f = 0; f < 5; ++f) {
    support_random same[2];
    hooks_model    m;
    hooks_call     one, many;
    hooks_begin(&m, &hooks_families[f], &random);
    hooks_attach(&m);
    same[0] = same[1] = random;
    hooks_call_begin(&one, &m, ROWS, 1, 1.0, &same[0]);
    hooks_call_begin(&many, &m, ROWS, 1, 1.0, &same[1]);
    assert_int_equal(hooks_after(&m, &one, 0, ROWS), 0);
    for (at = 0; at < ROWS; at += n) {
      n = ROWS - at < 4 ? ROWS - at : 1 + at % 4;
      many.product.rows = n;
      assert_int_equal(hooks_after(&m, &many, at, n), 0);
    }
    for (r = 0; r < ROWS; ++r)
      assert_memory_equal(one.x.at + r * one.x.stride, many.x.at + r * many.x.stride, HOOKS_DIM * sizeof(float));
    hooks_call_end(&one);
    hooks_call_end(&many);
    hooks_end(&m);
  }
}

static void a_product_that_fails_ends_the_hook_with_its_code(void **state)
{
  support_random random = support_random_at(support_seed(5), 0);
  int64_t        f, fail_at;
  (void)state;
  for (f = 0; f < 2; ++f) { /* gated, plain */
    hooks_model m;
    hooks_begin(&m, &hooks_families[f], &random);
    hooks_attach(&m);
    for (fail_at = 1; fail_at <= (f == 0 ? 3 : 2); ++fail_at) {
      hooks_call call;
      hooks_call_begin(&call, &m, 3, 1, 1.0, &random);
      call.product.fail_at = fail_at;
      call.product.code = fail_at == 2 ? INT32_MIN : -77;
      assert_int_equal(hooks_after(&m, &call, 0, 3), call.product.code);
      assert_int_equal(call.product.calls, fail_at);
      hooks_call_end(&call);
    }
    hooks_end(&m);
  }
}

/* As where a host forgets twh_transformer_desc.scratch_per_row, or sets it too small. */
static void too_little_scratch_is_an_error_and_not_written_to(void **state)
{
  support_random random = support_random_at(support_seed(6), 0);
  int64_t        f, less;
  (void)state;
  for (f = 0; f < 2; ++f) {
    hooks_model m;
    hooks_begin(&m, &hooks_families[f], &random);
    hooks_attach(&m);
    for (less = 0; less < 2; ++less) {
      hooks_call call;
      int64_t    given = less ? m.scratch - 1 : 0, enough = m.scratch;
      m.scratch = given;
      hooks_call_begin(&call, &m, 3, 0, 1.0, &random);
      if (given == 0) call.scratch.at = NULL;
      assert_int_equal(hooks_after(&m, &call, 0, 3), ENOMEM);
      assert_int_equal(call.product.calls, 0);
      hooks_call_end(&call);
      m.scratch = enough;
    }
    hooks_end(&m);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_of_all_families_do_what_the_header_says),
    cmocka_unit_test(attach_sets_the_hooks_that_are_needed),
    cmocka_unit_test(attach_raises_scratch_to_what_the_widest_needs),
    cmocka_unit_test(a_row_has_the_same_bits_in_any_block),
    cmocka_unit_test(a_product_that_fails_ends_the_hook_with_its_code),
    cmocka_unit_test(too_little_scratch_is_an_error_and_not_written_to),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
