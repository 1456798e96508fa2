/* Whole transformers against what the published implementations compute, five families on kernels of 16 tokens: one attention at a
 * time, and small transformers whose layers and heads each do one.
 *
 * The bound is 1e-6 of the largest output; 1e-7 to 4.4e-7 were measured. In float32 the implementations themselves are off by
 * 3e-7 to 1.5e-6. */
#include "support_golden.h"

enum { GOLDEN_LENGTH = 16 };

typedef struct golden_kernel {
  const char *name;
  uint32_t    mask_modes;
  int64_t     layers, heads; /* 0: an attention of one slot */
  int64_t     spare_qk, spare_v;
  double      scale;      /* relative to that of the model's heads */
  int64_t     block_rows; /* of the transformer; 0 = the kernel's length */
} golden_kernel;

enum { GOLDEN_NONE = TWH_MASK_NONE, GOLDEN_CAUSAL = TWH_MASK_CAUSAL, GOLDEN_BOTH = TWH_MASK_NONE | TWH_MASK_CAUSAL };

static const golden_kernel golden_kernels[] = {
  { "attention, no mask", GOLDEN_NONE, 0, 0, 0, 1, 1.0, 0 },   { "attention, causal", GOLDEN_CAUSAL, 0, 0, 1, 1, 0.5, 7 },
  { "transformer, no mask", GOLDEN_NONE, 2, 2, 0, 1, 1.0, 0 }, { "transformer, causal", GOLDEN_CAUSAL, 2, 2, 3, 2, 2.0, 100 },
  { "transformer, both", GOLDEN_BOTH, 2, 2, 1, 1, 1.0, 5 },
};

static twh_oracle *golden_attention(const golden_kernel *kernel, int64_t dim, twh_error *error)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle = NULL;

  twh_oracle_desc_init(&desc);
  desc.slots = 1;
  desc.q_len = desc.k_len = GOLDEN_LENGTH;
  desc.qk_dim = dim + kernel->spare_qk;
  desc.v_dim = dim + kernel->spare_v;
  desc.dtype = TWH_F32;
  desc.mask_modes = kernel->mask_modes;
  desc.scale = kernel->scale / sqrt((double)dim);
  support_assert_status(twh_reference_oracle_create(NULL, &desc, NULL, &oracle, error), TWH_OK, error, NULL);
  return oracle;
}

static twh_oracle *golden_small(const golden_kernel *kernel, int64_t dim, twh_error *error)
{
  twh_transformer_oracle_desc desc;
  twh_oracle                 *oracle = NULL;

  twh_transformer_oracle_desc_init(&desc);
  desc.layers = kernel->layers;
  desc.heads = kernel->heads;
  desc.length = GOLDEN_LENGTH;
  desc.qk_dim = dim + kernel->spare_qk;
  desc.v_dim = dim + kernel->spare_v;
  desc.model_dim = desc.layers * desc.heads * 2 * (desc.qk_dim + desc.v_dim);
  desc.dtype = TWH_F32;
  desc.mask_modes = kernel->mask_modes;
  desc.scale = kernel->scale / sqrt((double)dim);
  support_assert_status(twh_reference_transformer_create(NULL, &desc, &oracle, error), TWH_OK, error, NULL);
  return oracle;
}

/* A model on a kernel: the output's error. */
static double golden_run(support_golden *model, const golden_kernel *kernel, float *out)
{
  int64_t                 dim = model->layers[0].qk_dim;
  twh_transformer        *transformer = NULL;
  twh_transformer_options options;
  twh_oracle             *oracle;
  twh_tensor              tensor;
  twh_error               error;

  twh_error_init(&error);
  oracle = kernel->layers ? golden_small(kernel, dim, &error) : golden_attention(kernel, dim, &error);
  model->desc.block_rows = kernel->block_rows;
  support_assert_status(twh_transformer_create(NULL, &model->desc, &oracle, 1, NULL, &transformer, &error), TWH_OK, &error,
                        NULL);
  for (int64_t i = 0; i < model->rows * model->desc.model_dim; ++i) out[i] = NAN;
  twh_tensor_dense(&tensor, TWH_F32, out, 1, model->rows, model->desc.model_dim);
  twh_transformer_options_init(&options);
  options.input = model->tokens;
  support_assert_status(twh_transformer_execute(transformer, NULL, &tensor, &options, &error), TWH_OK, &error, NULL);
  twh_transformer_destroy(transformer);
  twh_oracle_destroy(oracle);
  return support_golden_error(model, out);
}

/* A model on every kernel. */
static void golden_all(const char *name, double bound)
{
  support_golden *model = (support_golden *)malloc(sizeof *model);
  float          *out;
  char            what[100];

  assert_non_null(model);
  support_golden_open(model, name);
  out = (float *)malloc((size_t)(model->rows * model->desc.model_dim) * sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < SUPPORT_COUNT(golden_kernels); ++i) {
    double error = golden_run(model, &golden_kernels[i], out);
    snprintf(what, sizeof what, "%s on %s", name, golden_kernels[i].name);
    support_assert_at_most(error, bound, what);
  }
  support_golden_close(model);
  free(out);
  free(model);
}

static void bert_is_what_its_implementation_computes(void **state)
{
  (void)state;
  golden_all("bert", 1e-6);
}

static void llama_is_what_its_implementation_computes(void **state)
{
  (void)state;
  golden_all("llama", 1e-6);
}

static void gemma2_is_what_its_implementation_computes(void **state)
{
  (void)state;
  golden_all("gemma2", 1e-6);
}

static void gptj_is_what_its_implementation_computes(void **state)
{
  (void)state;
  golden_all("gptj", 1e-6);
}

static void gpt2_is_what_its_implementation_computes(void **state)
{
  (void)state;
  golden_all("gpt2", 1e-6);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bert_is_what_its_implementation_computes),   cmocka_unit_test(llama_is_what_its_implementation_computes),
    cmocka_unit_test(gemma2_is_what_its_implementation_computes), cmocka_unit_test(gptj_is_what_its_implementation_computes),
    cmocka_unit_test(gpt2_is_what_its_implementation_computes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
