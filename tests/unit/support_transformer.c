/* Random transformers: what they consist of, and the memory for it. Matrices have no slack, and NaN between their rows, so that a
 * sanitizer or a comparison sees what reads beyond a row.
 *
 * Weights are such that logits of the first layer have about the standard deviation asked for, given rows of mean square 1. */
#include "support_transformer.h"

/* ---- choosing ---- */

static void support_layer_plain(support_layer *layer, support_transformer *t, int64_t number)
{
  int i;
  memset(layer, 0, sizeof *layer);
  layer->of = t;
  layer->number = number;
  twh_layer_desc_init(&layer->desc);
  twh_pattern_init(&layer->pattern);
  layer->desc.q_heads = layer->desc.kv_heads = 2;
  layer->desc.qk_dim = layer->desc.v_dim = 4;
  for (i = 0; i < SUPPORT_MATRICES; ++i) layer->dtypes[i] = TWH_F32;
  layer->heads_dtype = TWH_F32;
  layer->with = SUPPORT_WITH_BIASES | SUPPORT_WITH_BEFORE | SUPPORT_WITH_HEADS | SUPPORT_WITH_AFTER;
}

void support_transformer_plain(support_transformer *t, int64_t layers, int64_t batch, int64_t length)
{
  int64_t i;
  memset(t, 0, sizeof *t);
  t->with = SUPPORT_WITH_EMBED | SUPPORT_WITH_FINISH | SUPPORT_WITH_GEMM;
  t->logit_std = 1.0;
  twh_transformer_desc_init(&t->desc);
  t->desc.model_dim = 12;
  t->desc.n_layers = layers;
  t->desc.batch = batch;
  for (i = 0; i < batch; ++i) t->lengths[i] = length;
  for (i = 0; i < SUPPORT_LAYERS; ++i) support_layer_plain(&t->layers[i], t, i);
}

static void support_layer_pattern(support_layer *layer, support_random *random)
{
  static const uint32_t flags[] = {
    TWH_CAUSAL, TWH_CAUSAL, TWH_CAUSAL | TWH_LEFT, TWH_CAUSAL | TWH_LEFT, TWH_LEFT | TWH_RIGHT, TWH_LEFT | TWH_RIGHT, 0
  };
  twh_pattern *pattern = &layer->pattern;
  if (support_one_in(random, 4)) return;
  pattern->flags = flags[support_below(random, SUPPORT_COUNT(flags))];
  if (pattern->flags & TWH_LEFT) pattern->left = support_below(random, support_one_in(random, 3) ? 40 : 9);
  if (pattern->flags & TWH_RIGHT) pattern->right = support_below(random, 9);
  if ((pattern->flags & TWH_LEFT) && support_one_in(random, 2)) pattern->sink_tokens = support_below(random, 6);
  layer->desc.pattern = pattern;
}

static void support_layer_choose(support_layer *layer, support_random *random)
{
  static const double  scales[] = { 0.5, 0.3, -0.25, 1.0 };
  static const int32_t dtypes[] = { TWH_F32, TWH_F32, TWH_F16, TWH_BF16 }, heads[] = { TWH_F32, TWH_F64, TWH_F16, TWH_BF16 };
  twh_layer_desc      *desc = &layer->desc;
  int                  i;
  desc->kv_heads = support_between(random, 1, 4);
  desc->q_heads = desc->kv_heads * support_between(random, 1, 8 / desc->kv_heads);
  desc->qk_dim = support_between(random, 1, 16);
  desc->v_dim = support_one_in(random, 2) ? desc->qk_dim : support_between(random, 1, 16);
  if (support_one_in(random, 2)) {
    desc->flags |= TWH_LAYER_SCALE;
    desc->scale = scales[support_below(random, SUPPORT_COUNT(scales))];
  }
  support_layer_pattern(layer, random);
  if (support_one_in(random, 2)) desc->flags |= TWH_LAYER_IN_OUT;
  for (i = 0; i < SUPPORT_MATRICES; ++i) {
    layer->dtypes[i] = dtypes[support_below(random, 4)];
    layer->gaps[i] = support_one_in(random, 2) ? support_between(random, -1, 0) : support_below(random, 6);
  }
  layer->heads_dtype = heads[support_below(random, 4)];
  layer->with = support_one_in(random, 3) ? 0 : (uint32_t)support_bits(random) & SUPPORT_WITH_BIASES;
  if (support_one_in(random, 4)) layer->with |= SUPPORT_WITH_SINK_LOGITS;
  if (!support_one_in(random, 3)) layer->with |= SUPPORT_WITH_BEFORE;
  if (support_one_in(random, 2)) layer->with |= SUPPORT_WITH_HEADS;
  if (support_one_in(random, 2)) layer->with |= SUPPORT_WITH_AFTER;
}

/* A layer with the attention of the one before. */
static void support_layer_repeat(support_layer *layer, const support_layer *before)
{
  layer->desc = before->desc;
  layer->pattern = before->pattern;
  if (before->desc.pattern) layer->desc.pattern = &layer->pattern;
}

static void support_transformer_write(support_transformer *t)
{
  int     at, room = (int)sizeof t->text;
  int64_t i;
  at =
    snprintf(t->text, sizeof t->text, "TWH_SEED=%llu TWH_CASE=%llu: model_dim %lld with 0x%x logits +-%g; lengths",
             (unsigned long long)t->seed, (unsigned long long)t->number, (long long)t->desc.model_dim, t->with, t->logit_std);
  for (i = 0; i < t->desc.batch && at < room; ++i)
    at += snprintf(t->text + at, (size_t)(room - at), " %lld", (long long)t->lengths[i]);
  for (i = 0; i < t->desc.n_layers && at < room; ++i) {
    const twh_layer_desc *d = &t->layers[i].desc;
    const twh_pattern    *p = &t->layers[i].pattern;
    at += snprintf(
      t->text + at, (size_t)(room - at),
      "; layer %lld: heads %lld/%lld dims %lld,%lld flags %u scale %g softcap %g with 0x%x pattern %s%u %lld %lld %lld",
      (long long)i, (long long)d->q_heads, (long long)d->kv_heads, (long long)d->qk_dim, (long long)d->v_dim, d->flags,
      d->scale, d->softcap, t->layers[i].with, d->pattern ? "" : "none ", p->flags, (long long)p->left, (long long)p->right,
      (long long)p->sink_tokens);
  }
}

void support_transformer_choose(support_transformer *t, uint64_t seed, uint64_t number)
{
  static const double stds[] = { 0.1, 0.5, 1.0, 3.0, 10.0 };
  support_random      random = support_random_at(seed, number);
  int64_t             i;
  double              softcap = support_one_in(&random, 8) ? 5.0 : 0.0;
  int                 slopes = softcap == 0.0 && support_one_in(&random, 6);
  support_transformer_plain(t, support_between(&random, 1, SUPPORT_LAYERS), support_between(&random, 1, 4), 0);
  t->seed = seed;
  t->number = number;
  t->logit_std = stds[support_below(&random, SUPPORT_COUNT(stds))];
  t->with = (support_one_in(&random, 2) ? SUPPORT_WITH_EMBED : 0) | (support_one_in(&random, 2) ? SUPPORT_WITH_FINISH : 0) |
            (support_one_in(&random, 2) ? SUPPORT_WITH_GEMM : 0);
  t->desc.model_dim = support_between(&random, 8, 48);
  if (support_one_in(&random, 2)) t->desc.batch = 1;
  for (i = 0; i < t->desc.batch; ++i)
    t->lengths[i] =
      support_one_in(&random, 6) && t->desc.batch > 1 ? 0 : support_between(&random, 1, t->desc.batch > 1 ? 30 : 70);
  for (i = 0; i < t->desc.n_layers; ++i) {
    support_layer_choose(&t->layers[i], &random);
    if (i > 0 && support_one_in(&random, 3)) support_layer_repeat(&t->layers[i], &t->layers[i - 1]);
    t->layers[i].desc.softcap = softcap;
    if (slopes && support_one_in(&random, 2)) t->layers[i].with |= SUPPORT_WITH_SLOPES;
  }
}

/* ---- building ---- */

static void *support_transformer_memory(support_transformer *t, int64_t bytes)
{
  void *memory = malloc((size_t)(bytes > 0 ? bytes : 1));
  assert_non_null(memory);
  assert_true(t->blocks < SUPPORT_COUNT(t->memory));
  memset(memory, SUPPORT_POISON, (size_t)(bytes > 0 ? bytes : 1));
  t->memory[t->blocks++] = memory;
  return memory;
}

static void support_matrix_build(support_transformer *t, twh_matrix *matrix, int32_t dtype, int64_t rows, int64_t cols,
                                 int64_t gap, double std, support_random *random)
{
  int64_t r, c, stride = cols + (gap > 0 ? gap : 0);
  void   *data = support_transformer_memory(t, ((rows - 1) * stride + cols) * support_bytes(dtype));
  for (r = 0; r < rows; ++r)
    for (c = 0; c < cols; ++c) support_store(data, dtype, r * stride + c, std * support_normal(random));
  twh_matrix_init(matrix);
  matrix->dtype = dtype;
  matrix->data = data;
  matrix->rows = rows;
  matrix->cols = cols;
  matrix->row_stride = gap < 0 ? 0 : stride;
}

/* One number for each query head, every second element. */
static void support_heads_build(support_transformer *t, const support_layer *layer, twh_tensor *tensor, int slopes,
                                support_random *random)
{
  int64_t h, heads = layer->desc.q_heads;
  twh_tensor_init(tensor);
  tensor->dtype = layer->heads_dtype;
  tensor->data = support_transformer_memory(t, (2 * heads - 1) * support_bytes(tensor->dtype));
  tensor->head_stride = 2;
  for (h = 0; h < heads; ++h)
    support_set(tensor, 0, h, 0, 0,
                slopes                      ? ldexp(support_one_in(random, 4) ? -1.0 : 1.0, -(int)support_below(random, 9))
                : support_one_in(random, 4) ? -INFINITY
                                            : support_normal(random));
}

static double *support_weights_build(support_transformer *t, const twh_matrix *matrix, int in_out)
{
  int64_t i, j, in = in_out ? matrix->rows : matrix->cols, out = in_out ? matrix->cols : matrix->rows;
  double *weights = (double *)support_transformer_memory(t, in * out * (int64_t)sizeof(double));
  for (i = 0; i < in; ++i)
    for (j = 0; j < out; ++j) weights[i * out + j] = in_out ? support_matrix_at(matrix, i, j) : support_matrix_at(matrix, j, i);
  return weights;
}

static void support_layer_build(support_transformer *t, support_layer *layer, support_random *random)
{
  const twh_matrix **given[SUPPORT_MATRICES];
  twh_layer_desc    *d = &layer->desc;
  int64_t            dim = t->desc.model_dim, in;
  double             scale = d->flags & TWH_LAYER_SCALE ? d->scale : 1.0 / sqrt((double)d->qk_dim), unit, std;
  int                i, in_out = (d->flags & TWH_LAYER_IN_OUT) != 0;
  given[0] = &d->wq;
  given[1] = &d->wk;
  given[2] = &d->wv;
  given[3] = &d->wo;
  given[4] = &d->bq;
  given[5] = &d->bk;
  given[6] = &d->bv;
  given[7] = &d->bo;
  unit = sqrt(t->logit_std / (fabs(scale == 0.0 ? 1.0 : scale) * sqrt((double)d->qk_dim)));
  for (i = 0; i < SUPPORT_MATRICES; ++i) {
    int64_t out = support_width(layer, i % 4);
    *given[i] = &layer->matrices[i];
    in = i == SUPPORT_WO ? d->q_heads * d->v_dim : dim;
    std = (i % 4 < 2 ? unit : i == SUPPORT_WO ? 0.7 : 1.0) / sqrt((double)in);
    if (i < 4)
      support_matrix_build(t, &layer->matrices[i], layer->dtypes[i], in_out ? in : out, in_out ? out : in, layer->gaps[i], std,
                           random);
    else if (layer->with & (1u << (i - 4)))
      support_matrix_build(t, &layer->matrices[i], layer->dtypes[i], 1, out, layer->gaps[i], i < 6 ? 0.3 * unit : 0.3, random);
    else
      *given[i] = NULL;
  }
  support_matrix_build(t, &layer->mix, TWH_F32, dim, dim, 0, 1.0 / sqrt((double)dim), random);
  for (i = 0; i < 5; ++i)
    layer->weights[i] = support_weights_build(t, i < 4 ? &layer->matrices[i] : &layer->mix, i < 4 ? in_out : 1);
  d->sink_logits = d->alibi_slopes = NULL;
  if (layer->with & SUPPORT_WITH_SINK_LOGITS) {
    support_heads_build(t, layer, &layer->sink_logits, 0, random);
    d->sink_logits = &layer->sink_logits;
  }
  if (layer->with & SUPPORT_WITH_SLOPES) {
    support_heads_build(t, layer, &layer->alibi_slopes, 1, random);
    d->alibi_slopes = &layer->alibi_slopes;
  }
}

/* Positions, tokens and x of all rows. */
static void support_rows_build(support_transformer *t, support_random *random)
{
  int64_t b, r, c, at = 0, dim = t->desc.model_dim;
  for (b = 0; b < t->desc.batch; ++b) t->rows += t->lengths[b];
  t->positions = (int64_t *)support_transformer_memory(t, t->rows * (int64_t)sizeof(int64_t));
  t->tokens = (int32_t *)support_transformer_memory(t, t->rows * (int64_t)sizeof(int32_t));
  t->x = (double *)support_transformer_memory(t, t->rows * dim * (int64_t)sizeof(double));
  t->seen = (unsigned char *)support_transformer_memory(t, 5 * SUPPORT_LAYERS * t->rows);
  for (b = 0; b < t->desc.batch; ++b)
    for (r = 0; r < t->lengths[b]; ++r, ++at) {
      t->positions[at] = r;
      t->tokens[at] = (int32_t)support_below(random, 50);
      for (c = 0; c < dim; ++c) t->x[at * dim + c] = support_round(support_normal(random), TWH_F32);
    }
}

void support_transformer_build(support_transformer *t)
{
  support_random random = support_random_at(t->seed + 1, t->number);
  int64_t        i;
  support_transformer_write(t);
  pthread_mutex_init(&t->lock, NULL);
  for (i = 0; i < t->desc.n_layers; ++i) {
    support_layer_build(t, &t->layers[i], &random);
    t->pointers[i] = &t->layers[i].desc;
  }
  support_rows_build(t, &random);
  t->desc.lengths = t->lengths;
  t->desc.layers = t->pointers;
  t->fail_hook = -1;
  support_hooks_attach(t);
  support_hooks_reset(t);
}

void support_transformer_destroy(support_transformer *t)
{
  int64_t i;
  for (i = 0; i < t->blocks; ++i) free(t->memory[i]);
  pthread_mutex_destroy(&t->lock);
  memset(t, 0, sizeof *t);
}

/* ---- reading ---- */

double support_matrix_at(const twh_matrix *matrix, int64_t r, int64_t c)
{
  return support_load(matrix->data, matrix->dtype, r * (matrix->row_stride ? matrix->row_stride : matrix->cols) + c);
}

int64_t support_width(const support_layer *layer, int which)
{
  const twh_layer_desc *d = &layer->desc;
  if (which == SUPPORT_WO) return layer->of->desc.model_dim;
  return which == SUPPORT_WQ ? d->q_heads * d->qk_dim : d->kv_heads * (which == SUPPORT_WK ? d->qk_dim : d->v_dim);
}

void support_layer_problem(const support_layer *layer, twh_problem *problem)
{
  const twh_layer_desc *d = &layer->desc;
  twh_problem_init(problem);
  if (d->flags & TWH_LAYER_SCALE) problem->flags |= TWH_PROBLEM_SCALE;
  if (layer->with & SUPPORT_WITH_SLOPES) problem->flags |= TWH_PROBLEM_ALIBI;
  problem->batch = layer->of->desc.batch;
  problem->q_heads = d->q_heads;
  problem->kv_heads = d->kv_heads;
  problem->qk_dim = d->qk_dim;
  problem->v_dim = d->v_dim;
  problem->scale = d->scale;
  problem->softcap = d->softcap;
  problem->pattern = d->pattern;
}

void support_long_kernel(const support_transformer *t, twh_oracle_desc *desc)
{
  int64_t i;
  twh_oracle_desc_init(desc);
  desc->flags = TWH_ORACLE_LSE | TWH_ORACLE_STRIDED | TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_SCALE_PER_CALL;
  desc->slots = desc->q_len = desc->k_len = desc->qk_dim = desc->v_dim = 1;
  for (i = 0; i < t->desc.batch; ++i)
    if (t->lengths[i] > desc->q_len) desc->q_len = desc->k_len = t->lengths[i];
  for (i = 0; i < t->desc.n_layers; ++i) {
    const twh_layer_desc *d = &t->layers[i].desc;
    int64_t               qk = d->qk_dim + (t->layers[i].with & SUPPORT_WITH_SLOPES ? 1 : 0);
    if (qk > desc->qk_dim) desc->qk_dim = qk;
    if (d->v_dim > desc->v_dim) desc->v_dim = d->v_dim;
    desc->softcap = d->softcap;
  }
  desc->dtype = TWH_F32;
  desc->mask_modes = TWH_MASK_NONE | TWH_MASK_TENSOR;
}
