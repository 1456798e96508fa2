/* Tiny transformers with the outputs of their published implementations, from tests/data/transformers, as the library takes them:
 * five families, one function each that maps the names of weights to layers.
 *
 * GPT-J has hooks of its own, on the plain functions of twoheads_layers.h; the others have ready ones. */
#include "support_golden.h"

enum { GOLDEN_PREFIX = 37 }; /* rows of the second sequence */

/* ---- parts that all families have -------------------------------------------------------------------------------------- */

static twh_matrix *golden_new_matrix(support_golden *model)
{
  assert_in_range(model->n_matrices, 0, SUPPORT_GOLDEN_MATRICES - 1);
  return &model->matrices[model->n_matrices++];
}

/* The weight that is called prefix + name + suffix. */
static const twh_matrix *golden_named(support_golden *model, const char *name, const char *suffix)
{
  twh_matrix *matrix = golden_new_matrix(model);
  char        full[160];

  snprintf(full, sizeof full, "%s%s%s", model->prefix, name, suffix);
  if (!safetensors_matrix(model->file, full, matrix)) fail_msg("there is no %s", full);
  return matrix;
}

static const twh_matrix *golden_weight(support_golden *model, const char *name)
{
  return golden_named(model, name, ".weight");
}

static const twh_matrix *golden_bias(support_golden *model, const char *name)
{
  return golden_named(model, name, ".bias");
}

/* Columns of a matrix, in place: part number `part` of `parts`. */
static const twh_matrix *golden_columns(support_golden *model, const twh_matrix *whole, int64_t part, int64_t parts)
{
  twh_matrix *matrix = golden_new_matrix(model);

  *matrix = *whole;
  matrix->cols = whole->cols / parts;
  matrix->row_stride = whole->cols;
  matrix->data = (const char *)whole->data + part * matrix->cols * support_bytes(whole->dtype);
  return matrix;
}

static const twh_norm *golden_norm(support_golden *model, int32_t kind, double epsilon, double weight_offset, const char *name)
{
  twh_norm *norm = &model->norms[model->n_norms];

  assert_in_range(model->n_norms++, 0, SUPPORT_GOLDEN_NORMS - 1);
  twh_norm_init(norm);
  norm->kind = kind;
  norm->epsilon = epsilon;
  norm->weight_offset = weight_offset;
  norm->weight = golden_weight(model, name);
  if (kind == TWH_NORM_LAYER) norm->bias = golden_bias(model, name);
  return norm;
}

/* Layer l with a block and an MLP, both empty; weights are called format % l and on. */
static twh_layer_desc *golden_layer(support_golden *model, int l, const char *format, int64_t q_heads, int64_t kv_heads,
                                    int64_t dim)
{
  twh_layer_desc *layer = &model->layers[l];

  snprintf(model->prefix, sizeof model->prefix, format, l);
  twh_mlp_init(&model->mlps[l]);
  twh_block_init(&model->blocks[l]);
  model->blocks[l].mlp = &model->mlps[l];
  twh_layer_desc_init(layer);
  layer->q_heads = q_heads;
  layer->kv_heads = kv_heads;
  layer->qk_dim = layer->v_dim = dim;
  model->list[l] = layer;
  model->desc.n_layers = l + 1;
  return layer;
}

static void golden_attach(support_golden *model, int l)
{
  twh_error  error;
  twh_status status;

  twh_error_init(&error);
  status = twh_block_attach(&model->blocks[l], model->desc.model_dim, &model->layers[l], &model->desc.scratch_per_row, &error);
  support_assert_status(status, TWH_OK, &error, NULL);
}

/* ---- the families ------------------------------------------------------------------------------------------------------ */

static void golden_bert(support_golden *model)
{
  model->desc.model_dim = 40;
  snprintf(model->prefix, sizeof model->prefix, "embeddings.");
  model->embedding.tokens = golden_weight(model, "word_embeddings");
  model->embedding.positions = golden_weight(model, "position_embeddings");
  model->embedding.types = golden_weight(model, "token_type_embeddings");
  model->embedding.norm = golden_norm(model, TWH_NORM_LAYER, 1e-12, 0.0, "LayerNorm");
  for (int l = 0; l < 2; ++l) {
    twh_layer_desc *layer = golden_layer(model, l, "encoder.layer.%d.", 4, 4, 10);
    twh_block      *block = &model->blocks[l];
    twh_mlp        *mlp = &model->mlps[l];
    layer->wq = golden_weight(model, "attention.self.query");
    layer->bq = golden_bias(model, "attention.self.query");
    layer->wk = golden_weight(model, "attention.self.key");
    layer->bk = golden_bias(model, "attention.self.key");
    layer->wv = golden_weight(model, "attention.self.value");
    layer->bv = golden_bias(model, "attention.self.value");
    layer->wo = golden_weight(model, "attention.output.dense");
    layer->bo = golden_bias(model, "attention.output.dense");
    block->attention_sum_norm = golden_norm(model, TWH_NORM_LAYER, 1e-12, 0.0, "attention.output.LayerNorm");
    block->mlp_sum_norm = golden_norm(model, TWH_NORM_LAYER, 1e-12, 0.0, "output.LayerNorm");
    mlp->activation = TWH_GELU;
    mlp->w_up = golden_weight(model, "intermediate.dense");
    mlp->b_up = golden_bias(model, "intermediate.dense");
    mlp->w_down = golden_weight(model, "output.dense");
    mlp->b_down = golden_bias(model, "output.dense");
    golden_attach(model, l);
  }
}

/* What Llama and Gemma 2 call alike. */
static void golden_gated(support_golden *model, int l, int32_t activation)
{
  twh_layer_desc *layer = &model->layers[l];
  twh_mlp        *mlp = &model->mlps[l];

  layer->pattern = &model->causal;
  layer->wq = golden_weight(model, "self_attn.q_proj");
  layer->wk = golden_weight(model, "self_attn.k_proj");
  layer->wv = golden_weight(model, "self_attn.v_proj");
  layer->wo = golden_weight(model, "self_attn.o_proj");
  model->rotary.pairing = TWH_ROTARY_HALVES;
  model->blocks[l].rotary = &model->rotary;
  mlp->activation = activation;
  mlp->w_gate = golden_weight(model, "mlp.gate_proj");
  mlp->w_up = golden_weight(model, "mlp.up_proj");
  mlp->w_down = golden_weight(model, "mlp.down_proj");
}

static void golden_llama(support_golden *model)
{
  model->desc.model_dim = 48;
  model->embedding.tokens = golden_weight(model, "embed_tokens");
  model->embedding.final_norm = golden_norm(model, TWH_NORM_RMS, 1e-5, 0.0, "norm");
  model->rotary.base = 5000.0;
  for (int l = 0; l < 3; ++l) {
    golden_layer(model, l, "layers.%d.", 4, 2, 12);
    golden_gated(model, l, TWH_SILU);
    model->blocks[l].input_norm = golden_norm(model, TWH_NORM_RMS, 1e-5, 0.0, "input_layernorm");
    model->blocks[l].mlp_input_norm = golden_norm(model, TWH_NORM_RMS, 1e-5, 0.0, "post_attention_layernorm");
    golden_attach(model, l);
  }
}

static void golden_gemma2(support_golden *model)
{
  model->desc.model_dim = 32;
  model->embedding.tokens = golden_weight(model, "embed_tokens");
  model->embedding.scale = sqrt(32.0);
  model->embedding.final_norm = golden_norm(model, TWH_NORM_RMS, 1e-6, 1.0, "norm");
  model->window.flags = TWH_CAUSAL | TWH_LEFT;
  model->window.left = 11 - 1;
  for (int l = 0; l < 4; ++l) {
    twh_layer_desc *layer = golden_layer(model, l, "layers.%d.", 4, 2, 16);
    twh_block      *block = &model->blocks[l];
    golden_gated(model, l, TWH_GELU_TANH);
    layer->flags = TWH_LAYER_SCALE;
    layer->scale = 1.0 / sqrt(24.0);
    if (l % 2 == 0) layer->pattern = &model->window;
    block->input_norm = golden_norm(model, TWH_NORM_RMS, 1e-6, 1.0, "input_layernorm");
    block->attention_out_norm = golden_norm(model, TWH_NORM_RMS, 1e-6, 1.0, "post_attention_layernorm");
    block->mlp_input_norm = golden_norm(model, TWH_NORM_RMS, 1e-6, 1.0, "pre_feedforward_layernorm");
    block->mlp_out_norm = golden_norm(model, TWH_NORM_RMS, 1e-6, 1.0, "post_feedforward_layernorm");
    golden_attach(model, l);
  }
}

static void golden_gpt2(support_golden *model)
{
  model->desc.model_dim = 36;
  model->embedding.tokens = golden_weight(model, "wte");
  model->embedding.positions = golden_weight(model, "wpe");
  model->embedding.final_norm = golden_norm(model, TWH_NORM_LAYER, 1e-5, 0.0, "ln_f");
  for (int l = 0; l < 2; ++l) {
    twh_layer_desc   *layer = golden_layer(model, l, "h.%d.", 3, 3, 12);
    twh_block        *block = &model->blocks[l];
    twh_mlp          *mlp = &model->mlps[l];
    const twh_matrix *weight = golden_weight(model, "attn.c_attn"), *bias = golden_bias(model, "attn.c_attn");
    layer->flags = TWH_LAYER_IN_OUT;
    layer->pattern = &model->causal;
    layer->wq = golden_columns(model, weight, 0, 3);
    layer->bq = golden_columns(model, bias, 0, 3);
    layer->wk = golden_columns(model, weight, 1, 3);
    layer->bk = golden_columns(model, bias, 1, 3);
    layer->wv = golden_columns(model, weight, 2, 3);
    layer->bv = golden_columns(model, bias, 2, 3);
    layer->wo = golden_weight(model, "attn.c_proj");
    layer->bo = golden_bias(model, "attn.c_proj");
    block->input_norm = golden_norm(model, TWH_NORM_LAYER, 1e-5, 0.0, "ln_1");
    block->mlp_input_norm = golden_norm(model, TWH_NORM_LAYER, 1e-5, 0.0, "ln_2");
    mlp->flags = TWH_LAYER_IN_OUT;
    mlp->activation = TWH_GELU_TANH;
    mlp->w_up = golden_weight(model, "mlp.c_fc");
    mlp->b_up = golden_bias(model, "mlp.c_fc");
    mlp->w_down = golden_weight(model, "mlp.c_proj");
    mlp->b_down = golden_bias(model, "mlp.c_proj");
    golden_attach(model, l);
  }
}

/* ---- GPT-J, with hooks of its own on the plain functions ------------------------------------------------------------------ */

/* y = norm(x), rows of y_stride. */
static void golden_normed(const support_parallel *own, const twh_rows *rows, float *y, int64_t y_stride)
{
  for (int64_t r = 0; r < rows->rows; ++r) {
    memcpy(y + r * y_stride, rows->x + r * rows->x_stride, (size_t)rows->model_dim * sizeof *y);
  }
  twh_norm_apply(own->norm, y, rows->rows, rows->model_dim, y_stride);
}

/* c = a w^T + b, a and c dense. */
static int32_t golden_linear(const twh_rows *rows, const float *a, const twh_matrix *w, const twh_matrix *b, float *c)
{
  twh_gemm gemm;
  int32_t  failed;

  twh_gemm_init(&gemm);
  gemm.b_dtype = w->dtype;
  gemm.m = rows->rows;
  gemm.n = gemm.c_row_stride = w->rows;
  gemm.k = gemm.a_row_stride = gemm.b_col_stride = w->cols;
  gemm.b_row_stride = 1;
  gemm.a = a;
  gemm.b = w->data;
  gemm.c = c;
  failed = rows->gemm(rows->gemm_user, &gemm);
  for (int64_t i = 0; i < rows->rows * w->rows; ++i) c[i] += (float)support_load(b->data, b->dtype, i % w->rows);
  return failed;
}

static int32_t golden_before(void *user, const twh_rows *rows)
{
  golden_normed((const support_parallel *)user, rows, rows->y, rows->y_stride);
  return 0;
}

static int32_t golden_rotate(void *user, const twh_rows *rows)
{
  const twh_rotary *rotary = ((const support_parallel *)user)->rotary;

  twh_rotary_apply(rotary, rows->q, rows->rows, rows->q_heads, rows->qk_dim, rows->q_stride, rows->positions);
  twh_rotary_apply(rotary, rows->k, rows->rows, rows->kv_heads, rows->qk_dim, rows->k_stride, rows->positions);
  return 0;
}

static int32_t golden_after(void *user, const twh_rows *rows)
{
  const support_parallel *own = (const support_parallel *)user;
  float                  *h = rows->scratch, *inner = h + rows->rows * rows->model_dim;
  int32_t                 failed;

  golden_normed(own, rows, h, rows->model_dim);
  failed = golden_linear(rows, h, own->w_in, own->b_in, inner);
  twh_activate(TWH_GELU_TANH, inner, rows->rows * own->w_in->rows);
  if (!failed) failed = golden_linear(rows, inner, own->w_out, own->b_out, h);
  for (int64_t r = 0; r < rows->rows; ++r) {
    for (int64_t c = 0; c < rows->model_dim; ++c) {
      rows->x[r * rows->x_stride + c] += rows->y[r * rows->y_stride + c] + h[r * rows->model_dim + c];
    }
  }
  return failed;
}

static void golden_gptj(support_golden *model)
{
  model->desc.model_dim = 36;
  model->desc.scratch_per_row = 36 + 100;
  model->embedding.tokens = golden_weight(model, "wte");
  model->embedding.final_norm = golden_norm(model, TWH_NORM_LAYER, 1e-5, 0.0, "ln_f");
  model->rotary.pairing = TWH_ROTARY_NEIGHBOURS;
  model->rotary.dims = 8;
  for (int l = 0; l < 2; ++l) {
    twh_layer_desc   *layer = golden_layer(model, l, "h.%d.", 2, 2, 18);
    support_parallel *own = &model->parallels[l];
    layer->pattern = &model->causal;
    layer->wq = golden_weight(model, "attn.q_proj");
    layer->wk = golden_weight(model, "attn.k_proj");
    layer->wv = golden_weight(model, "attn.v_proj");
    layer->wo = golden_weight(model, "attn.out_proj");
    own->norm = golden_norm(model, TWH_NORM_LAYER, 1e-5, 0.0, "ln_1");
    own->rotary = &model->rotary;
    own->w_in = golden_weight(model, "mlp.fc_in");
    own->b_in = golden_bias(model, "mlp.fc_in");
    own->w_out = golden_weight(model, "mlp.fc_out");
    own->b_out = golden_bias(model, "mlp.fc_out");
    layer->before = golden_before;
    layer->heads = golden_rotate;
    layer->after = golden_after;
    layer->user = own;
  }
}

/* ---- reading them ---------------------------------------------------------------------------------------------------------- */

typedef struct golden_family {
  const char *name;
  void (*describe)(support_golden *model);
} golden_family;

static const golden_family golden_families[] = {
  { "bert", golden_bert }, { "llama", golden_llama }, { "gemma2", golden_gemma2 },
  { "gptj", golden_gptj }, { "gpt2", golden_gpt2 },
};

/* Tokens and outputs, and two sequences where the model is causal. */
static void golden_sequences(support_golden *model, int causal)
{
  int64_t        n, count;
  const int32_t *ids = safetensors_i32(model->file, "input_ids", &n);

  assert_non_null(ids);
  assert_in_range(n, GOLDEN_PREFIX + 1, SUPPORT_COUNT(model->tokens) - GOLDEN_PREFIX);
  memcpy(model->tokens, ids, (size_t)n * sizeof *ids);
  memcpy(model->tokens + n, ids, GOLDEN_PREFIX * sizeof *ids);
  model->lengths[0] = n;
  model->lengths[1] = GOLDEN_PREFIX;
  model->rows = n + (causal ? GOLDEN_PREFIX : 0);
  model->desc.batch = causal ? 2 : 1;
  model->desc.lengths = model->lengths;
  model->want = safetensors_f64(model->file, "last_hidden_state", &count);
  assert_non_null(model->want);
  assert_int_equal(count, n * model->desc.model_dim);
}

void support_golden_open(support_golden *model, const char *name)
{
  const char *root = getenv("TWH_TEST_DATA");
  char        path[512], message[600];
  twh_error   error;

  memset(model, 0, sizeof *model);
  snprintf(path, sizeof path, "%s/transformers/%s.safetensors", root ? root : "tests/data", name);
  model->file = safetensors_open(path, message, sizeof message);
  if (!model->file) fail_msg("%s", message);
  twh_pattern_init(&model->causal);
  model->causal.flags = TWH_CAUSAL;
  twh_pattern_init(&model->window);
  twh_rotary_init(&model->rotary);
  twh_embedding_init(&model->embedding);
  twh_transformer_desc_init(&model->desc);
  model->desc.layers = model->list;
  for (size_t i = 0; i < sizeof golden_families / sizeof golden_families[0]; ++i) {
    if (!strcmp(name, golden_families[i].name)) golden_families[i].describe(model);
  }
  assert_in_range(model->desc.n_layers, 1, SUPPORT_GOLDEN_LAYERS);
  golden_sequences(model, model->layers[0].pattern != NULL);
  twh_error_init(&error);
  support_assert_status(twh_embedding_attach(&model->embedding, &model->desc, &error), TWH_OK, &error, NULL);
}

void support_golden_close(support_golden *model)
{
  safetensors_close(model->file);
}

double support_golden_error(const support_golden *model, const float *out)
{
  int64_t dim = model->desc.model_dim, n = model->lengths[0] * dim;
  double  largest = 0.0, worst = 0.0;

  for (int64_t i = 0; i < n; ++i) largest = fmax(largest, fabs(model->want[i]));
  for (int64_t i = 0; i < model->rows * dim; ++i) {
    double error = fabs((double)out[i] - model->want[i < n ? i : i - n]);
    if (!(error <= worst)) worst = error >= 0.0 ? error : INFINITY;
  }
  return worst / largest;
}
