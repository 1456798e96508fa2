/* A whole model on a real text, with all of its attention through kernels of 64 tokens.
 *
 *     make demo-minilm                                              fetches what is needed and runs
 *     build/minilm model.safetensors reference.safetensors          as it is published, and what it should give
 *
 * all-MiniLM-L6-v2 makes sentence embeddings: a BERT encoder of 6 layers, 12 heads of 32 in each. It is described once (see
 * minilm_load) and run twice: on a kernel that is one attention, and on one that is a small transformer of 2 layers with 4
 * heads, which is an oracle of 8 attentions. Both return nothing but their output. The results are compared with those of the
 * published implementation, and the program exits with 1 if they differ, or if the transformer takes more than an eighth
 * of the attention's calls in any layer. Its last line is JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/safetensors.h"
#include "twoheads_blis.h"
#include "twoheads_layers.h"

enum { LAYERS = 6, HEADS = 12, DIM = 32, MODEL_DIM = HEADS * DIM, TOKENS_MAX = 512 };             /* the model */
enum { SHORT = 64, SMALL_LAYERS = 2, SMALL_HEADS = 4, SMALL_SLOTS = SMALL_LAYERS * SMALL_HEADS }; /* the kernels */

/* Says what went wrong. Returns 1, as everything here that can fail does then; 0 if all is well. */
static int minilm_failed(const char *what, const char *why)
{
  fprintf(stderr, "minilm: %s: %s\n", what, why);
  return 1;
}

/* ---- the model --------------------------------------------------------------------------------------------------------- */

/* A module of torch: the file has it as name.weight and name.bias. */
typedef struct minilm_module {
  twh_matrix weight, bias;
} minilm_module;

enum { WORDS, POSITIONS, TYPES, NORM, EMBEDDING_MODULES };
static const char *const embedding_names[] = {"word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm"};
enum { QUERY, KEY, VALUE, OUT, NORM1, UP, DOWN, NORM2, LAYER_MODULES };
static const char *const layer_names[] = {
  "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "attention.output.LayerNorm",
  "intermediate.dense",   "output.dense",       "output.LayerNorm",
};

/* The library takes descriptions by pointer, and matrices stay where the file was read: all of this has to live as long as the
 * transformer. */
typedef struct minilm_layer {
  minilm_module  modules[LAYER_MODULES];
  twh_norm       norm1, norm2;
  twh_mlp        mlp;
  twh_block      block;
  twh_layer_desc desc;
} minilm_layer;

typedef struct minilm_model {
  minilm_module         modules[EMBEDDING_MODULES];
  twh_norm              norm;
  twh_embedding         embedding;
  minilm_layer          layers[LAYERS];
  const twh_layer_desc *descs[LAYERS];
  twh_transformer_desc  desc;
} minilm_model;

static int minilm_modules(minilm_module *modules, const char *const *names, int n, const safetensors *file, const char *prefix)
{
  for (int i = 0; i < n; i++) {
    char name[80];
    snprintf(name, sizeof name, "%s.%s.bias", prefix, names[i]);
    if (!safetensors_matrix(file, name, &modules[i].bias)) twh_matrix_init(&modules[i].bias); /* refused where it is used */
    snprintf(name, sizeof name, "%s.%s.weight", prefix, names[i]);
    if (!safetensors_matrix(file, name, &modules[i].weight)) return minilm_failed(name, "not in the file");
  }
  return 0;
}

static void minilm_norm(twh_norm *norm, const minilm_module *module)
{
  twh_norm_init(norm);
  norm->kind = TWH_NORM_LAYER, norm->epsilon = 1e-12;
  norm->weight = &module->weight, norm->bias = &module->bias;
}

/* A layer of BERT: both norms come after their sums, and the MLP has one matrix up and one down. */
static int minilm_load_layer(minilm_layer *layer, const safetensors *file, int index, int64_t *scratch_per_row)
{
  const minilm_module *m = layer->modules;
  twh_layer_desc      *desc = &layer->desc;
  char                 prefix[40];
  snprintf(prefix, sizeof prefix, "encoder.layer.%d", index);
  if (minilm_modules(layer->modules, layer_names, LAYER_MODULES, file, prefix)) return 1;
  minilm_norm(&layer->norm1, &m[NORM1]);
  minilm_norm(&layer->norm2, &m[NORM2]);
  twh_mlp_init(&layer->mlp);
  layer->mlp.activation = TWH_GELU;
  layer->mlp.w_up = &m[UP].weight, layer->mlp.b_up = &m[UP].bias;
  layer->mlp.w_down = &m[DOWN].weight, layer->mlp.b_down = &m[DOWN].bias;
  twh_block_init(&layer->block);
  layer->block.attention_sum_norm = &layer->norm1;
  layer->block.mlp = &layer->mlp;
  layer->block.mlp_sum_norm = &layer->norm2;
  twh_layer_desc_init(desc);
  desc->q_heads = desc->kv_heads = HEADS, desc->qk_dim = desc->v_dim = DIM;
  desc->wq = &m[QUERY].weight, desc->wk = &m[KEY].weight, desc->wv = &m[VALUE].weight, desc->wo = &m[OUT].weight;
  desc->bq = &m[QUERY].bias, desc->bk = &m[KEY].bias, desc->bv = &m[VALUE].bias, desc->bo = &m[OUT].bias;
  twh_error error;
  twh_error_init(&error);
  const twh_status status = twh_block_attach(&layer->block, MODEL_DIM, desc, scratch_per_row, &error);
  return status == TWH_OK ? 0 : minilm_failed(prefix, error.message);
}

/* The whole model, for one text of `tokens` tokens. */
static int minilm_load(minilm_model *model, const safetensors *file, int64_t tokens)
{
  twh_transformer_desc *desc = &model->desc;
  twh_transformer_desc_init(desc);
  desc->batch = 1, desc->length = tokens, desc->model_dim = MODEL_DIM;
  desc->n_layers = LAYERS, desc->layers = model->descs;
  desc->gemm = twh_blis_gemm;
  for (int i = 0; i < LAYERS; i++) {
    if (minilm_load_layer(&model->layers[i], file, i, &desc->scratch_per_row)) return 1;
    model->descs[i] = &model->layers[i].desc;
  }
  const minilm_module *m = model->modules;
  if (minilm_modules(model->modules, embedding_names, EMBEDDING_MODULES, file, "embeddings")) return 1;
  minilm_norm(&model->norm, &m[NORM]);
  twh_embedding_init(&model->embedding);
  model->embedding.tokens = &m[WORDS].weight, model->embedding.positions = &m[POSITIONS].weight;
  model->embedding.types = &m[TYPES].weight, model->embedding.norm = &model->norm;
  twh_error error;
  twh_error_init(&error);
  const twh_status status = twh_embedding_attach(&model->embedding, desc, &error);
  return status == TWH_OK ? 0 : minilm_failed("embeddings", error.message);
}

/* ---- the kernels ------------------------------------------------------------------------------------------------------- */

/* One attention of 64 queries and 64 keys. One value column more than the model's: the library reads the sums from it. */
static twh_status minilm_attention(twh_oracle **out, twh_error *error)
{
  twh_oracle_desc kernel;
  twh_oracle_desc_init(&kernel);
  kernel.slots = 1, kernel.q_len = kernel.k_len = SHORT;
  kernel.qk_dim = DIM, kernel.v_dim = DIM + 1;
  kernel.dtype = TWH_F32, kernel.mask_modes = TWH_MASK_NONE;
  kernel.scale = 1.0 / sqrt((double)DIM);
  return twh_blis_oracle_create(NULL, &kernel, NULL, out, error);
}

/* A small transformer with heads of the same dimensions. model_dim stays 0: as large as it takes. */
static twh_status minilm_small_transformer(twh_oracle **out, twh_error *error)
{
  twh_transformer_oracle_desc kernel;
  twh_transformer_oracle_desc_init(&kernel);
  kernel.layers = SMALL_LAYERS, kernel.heads = SMALL_HEADS, kernel.length = SHORT;
  kernel.qk_dim = DIM, kernel.v_dim = DIM + 1;
  kernel.dtype = TWH_F32, kernel.mask_modes = TWH_MASK_NONE;
  kernel.scale = 1.0 / sqrt((double)DIM);
  return twh_blis_transformer_create(NULL, &kernel, NULL, out, error);
}

/* ---- the run and the measure ------------------------------------------------------------------------------------------- */

/* As docs/examples/minilm/reference.py writes it. */
typedef struct minilm_reference {
  const int32_t *tokens;    /* (n_tokens), with [CLS] and [SEP] */
  int64_t        n_tokens;
  const float   *hidden;    /* (n_tokens, MODEL_DIM): what each token has become after the last layer */
  const double  *embedding; /* (MODEL_DIM): the mean of that, normalised */
} minilm_reference;

typedef struct minilm_result {
  double                cosine, error;
  int64_t               calls[LAYERS], planned; /* of the kernel: in each layer and in all, before repairs */
  twh_transformer_stats stats;
} minilm_result;

static int minilm_read_reference(minilm_reference *reference, const safetensors *file)
{
  const char *wrong = "not in the file, or of another type or shape";
  int64_t     n = 0;
  twh_matrix  hidden;
  reference->tokens = safetensors_i32(file, "tokens", &reference->n_tokens);
  if (!reference->tokens || reference->n_tokens < 1 || reference->n_tokens > TOKENS_MAX) return minilm_failed("tokens", wrong);
  if (!safetensors_matrix(file, "hidden", &hidden) || hidden.dtype != TWH_F32) return minilm_failed("hidden", wrong);
  if (hidden.rows != reference->n_tokens || hidden.cols != MODEL_DIM) return minilm_failed("hidden", wrong);
  reference->hidden = (const float *)hidden.data;
  reference->embedding = safetensors_f64(file, "embedding", &n);
  return reference->embedding && n == MODEL_DIM ? 0 : minilm_failed("embedding", wrong);
}

static void minilm_compare(minilm_result *result, const minilm_reference *reference, const float *hidden)
{
  double dot = 0.0, square = 0.0, reference_square = 0.0;
  for (int64_t c = 0; c < MODEL_DIM; c++) {
    double sum = 0.0; /* the mean's length does not matter to a cosine */
    for (int64_t i = c; i < reference->n_tokens * MODEL_DIM; i += MODEL_DIM) {
      const double apart = fabs((double)hidden[i] - (double)reference->hidden[i]);
      sum += (double)hidden[i];
      if (!(apart <= result->error) && !isnan(result->error)) result->error = apart; /* a NaN stays */
    }
    dot += sum * reference->embedding[c];
    square += sum * sum;
    reference_square += reference->embedding[c] * reference->embedding[c];
  }
  result->cosine = dot / sqrt(square * reference_square);
}

/* Make a kernel, plan the model on it, run it, compare. */
static int minilm_run(minilm_result *result, const minilm_model *model, const minilm_reference *reference,
                      twh_status (*make_kernel)(twh_oracle **out, twh_error *error))
{
  static float            hidden[TOKENS_MAX * MODEL_DIM];
  twh_oracle             *oracle = NULL;
  twh_transformer        *transformer = NULL;
  twh_plan_info           info;
  twh_transformer_options options;
  twh_tensor              out;
  twh_error               error;
  twh_plan_info_init(&info);
  twh_transformer_options_init(&options);
  twh_transformer_stats_init(&result->stats);
  twh_error_init(&error);
  options.input = reference->tokens, options.stats = &result->stats;
  for (int64_t i = 0; i < TOKENS_MAX * MODEL_DIM; i++) hidden[i] = NAN;
  twh_tensor_dense(&out, TWH_F32, hidden, 1, reference->n_tokens, MODEL_DIM);

  twh_status status = make_kernel(&oracle, &error);
  if (status == TWH_OK) status = twh_transformer_create(NULL, &model->desc, &oracle, 1, NULL, &transformer, &error);
  for (int i = 0; i < LAYERS && status == TWH_OK; i++) {
    status = twh_plan_get_info(twh_transformer_plan(transformer, i), &info, &error);
    result->calls[i] = info.calls;
    result->planned += info.calls;
  }
  if (status == TWH_OK) status = twh_transformer_execute(transformer, NULL, &out, &options, &error);
  twh_transformer_destroy(transformer);
  twh_oracle_destroy(oracle);
  if (status != TWH_OK) return minilm_failed(twh_status_name(status), error.message);
  minilm_compare(result, reference, hidden);
  return isfinite(result->cosine + result->error) ? 0 : minilm_failed("result", "not all of it, or of the reference, is finite");
}

/* ---- what comes out ---------------------------------------------------------------------------------------------------- */

static void minilm_print(const minilm_result *a, const minilm_result *t, double n)
{
  const char  *row = "%-46s%16.0f%16.0f\n";
  const char  *json = "%s{\"cosine\": %.15g, \"max_abs_error\": %.4g, \"calls\": %lld, \"repair_calls\": %lld}%s";
  const double paper = n * n / (SHORT * SHORT) * HEADS * LAYERS;
  printf("%4.0f tokens through kernels of %-16d%16s%16s\n", n, SHORT, "attention", "transformer");
  for (int i = 0; i < LAYERS; i++)
    printf("calls in layer %-31d%16lld%16lld\n", i, (long long)a->calls[i], (long long)t->calls[i]);
  printf(row, "calls in all", (double)a->planned, (double)t->planned);
  printf(row, "  (N/M)^2 H L / (H' L')", paper, paper / SMALL_SLOTS);
  printf(row, "repair calls on top", (double)a->stats.repair_calls, (double)t->stats.repair_calls);
  printf(row, "rows of tiles that the host computed", (double)a->stats.host_rows, (double)t->stats.host_rows);
  printf(row, "rounds of calls, one after the other", (double)a->stats.rounds, (double)t->stats.rounds);
  printf("%-46s%16.12f%16.12f\n", "embedding: cosine to the reference", a->cosine, t->cosine);
  printf("%-46s%16.1e%16.1e\n", "hidden states: largest error of any token", a->error, t->error);
  printf(row, "milliseconds", 1e3 * a->stats.wall_s, 1e3 * t->stats.wall_s);
  printf(row, "  in the kernel", 1e3 * a->stats.oracle_s, 1e3 * t->stats.oracle_s);
  printf(row, "  in embedding, projections, norms, MLPs", 1e3 * a->stats.rows_s, 1e3 * t->stats.rows_s);
  printf(json, "{\"attention\": ", a->cosine, a->error, (long long)a->stats.calls, (long long)a->stats.repair_calls, ", ");
  printf(json, "\"transformer\": ", t->cosine, t->error, (long long)t->stats.calls, (long long)t->stats.repair_calls, "}\n");
}

/* Whether all is as it must be. What was called is what was planned, and repairs, which the data ask for, are told. */
static int minilm_check(const minilm_result *a, const minilm_result *t)
{
  int bad = 0;
  if (!(a->cosine >= 0.999999 && t->cosine >= 0.999999)) bad = minilm_failed("a cosine", "below 0.999999");
  if (!(a->error <= 1e-4 && t->error <= 1e-4)) bad = minilm_failed("a largest error", "above 1e-4");
  for (int i = 0; i < LAYERS; i++) {
    const int64_t most = (a->calls[i] + SMALL_SLOTS - 1) / SMALL_SLOTS;
    if (t->calls[i] > most) bad = minilm_failed("transformer", "more calls in a layer than the attention's / 8");
  }
  if (t->stats.calls > (a->stats.calls + SMALL_SLOTS - 1) / SMALL_SLOTS)
    bad = minilm_failed("transformer", "more calls than the attention's / 8, repairs included");
  if (a->stats.calls != a->planned + a->stats.repair_calls || t->stats.calls != t->planned + t->stats.repair_calls)
    bad = minilm_failed("calls", "others than planned were made");
  return bad;
}

int main(int argc, char **argv)
{
  static minilm_model  model;
  static minilm_result a, t; /* on the attention, on the small transformer */
  minilm_reference     reference;
  char                 message[256] = "two are wanted, model.safetensors and reference.safetensors";
  const char          *arch = twh_blis_recommended_arch();
  if (arch) setenv("BLIS_ARCH_TYPE", arch, 0); /* BLIS reads it in its first call */
  safetensors *weights = argc == 3 ? safetensors_open(argv[1], message, sizeof message) : NULL;
  safetensors *expected = weights ? safetensors_open(argv[2], message, sizeof message) : NULL;
  int failed = expected ? 0 : minilm_failed("files", message);
  failed = failed || minilm_read_reference(&reference, expected) || minilm_load(&model, weights, reference.n_tokens);
  failed = failed || minilm_run(&a, &model, &reference, minilm_attention);
  failed = failed || minilm_run(&t, &model, &reference, minilm_small_transformer);
  if (!failed) minilm_print(&a, &t, (double)reference.n_tokens);
  failed = failed || minilm_check(&a, &t);
  safetensors_close(expected);
  safetensors_close(weights);
  return failed;
}
