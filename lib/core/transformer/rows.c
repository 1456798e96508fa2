/* Between two attentions: blocks of rows, each by itself, in any order.
 *
 * What follows layer l's attention (wo, after) and what comes before layer l + 1's (before, wq, wk, wv, heads) depend on the same row
 * alone, so that a block goes through both while it is in the cache. Before layer 0 stands embed, after the last one finish.
 * Tasks take blocks in order. So when one has failed, all before it have begun and will end, and the first block that fails is
 * the same one whatever the threads. */
#include "core/transformer/transformer.h"

typedef struct rows_block {
  twh__forward       *forward;
  const twh__scratch *scratch;
  int64_t             number, first, rows;
  const char         *what; /* failed */
  int64_t             layer;
  int32_t             code;
} rows_block;

static int rows_done(rows_block *block, int64_t layer, const char *what, int32_t code)
{
  block->layer = layer;
  block->what = what;
  block->code = code;
  return code == 0;
}

/* Positions of the block's rows; sequences may end, and empty ones lie, inside it. */
static void rows_positions(const rows_block *block)
{
  const twh_transformer *transformer = block->forward->transformer;
  int64_t                low = 0, high = transformer->desc.batch;

  while (high - low > 1) { /* the last sequence that begins at or before the first row */
    int64_t middle = low + (high - low) / 2;
    if (transformer->sequences[middle].q_begin <= block->first) {
      low = middle;
    } else {
      high = middle;
    }
  }
  for (int64_t r = 0; r < block->rows; ++r) {
    while (block->first + r >= transformer->sequences[low].q_begin + transformer->sequences[low].q_len) ++low;
    block->scratch->positions[r] = block->first + r - transformer->sequences[low].q_begin;
  }
}

static void rows_describe(const rows_block *block, int64_t layer, twh_rows *rows)
{
  const twh_transformer      *transformer = block->forward->transformer;
  const twh_transformer_desc *desc = &transformer->desc;

  twh_rows_init(rows);
  rows->layer = layer;
  rows->row_begin = block->first;
  rows->rows = block->rows;
  rows->positions = block->scratch->positions;
  rows->model_dim = desc->model_dim;
  rows->x = block->forward->activations.x + block->first * desc->model_dim;
  rows->x_stride = desc->model_dim;
  rows->scratch = block->scratch->hooks;
  rows->scratch_per_row = desc->scratch_per_row;
  rows->input = block->forward->options.input;
  rows->gemm = desc->gemm;
  rows->gemm_user = desc->gemm_user;
  if (layer >= 0 && layer < desc->n_layers) {
    const twh_layer_desc *own = &transformer->layers[layer].desc;
    rows->q_heads = own->q_heads;
    rows->kv_heads = own->kv_heads;
    rows->qk_dim = own->qk_dim;
    rows->v_dim = own->v_dim;
  }
}

/* c = a w + b for the block's rows; w is in the layer's orientation and has n outputs. */
static int32_t rows_project(const rows_block *block, const twh__layer *layer, int which, const float *a, int64_t a_stride,
                            int64_t k, float *c, int64_t n)
{
  const twh_transformer_desc *desc = &block->forward->transformer->desc;
  const twh_matrix           *weight = &layer->matrices[which], *bias = &layer->matrices[which + 4];
  const int                   in_out = (layer->desc.flags & TWH_LAYER_IN_OUT) != 0;
  twh_gemm                    gemm;
  int32_t                     code;

  twh_gemm_init(&gemm);
  gemm.m = block->rows;
  gemm.n = n;
  gemm.k = k;
  gemm.a = a;
  gemm.a_row_stride = a_stride;
  gemm.b = weight->data;
  gemm.b_dtype = weight->dtype;
  gemm.b_row_stride = in_out ? weight->row_stride : 1;
  gemm.b_col_stride = in_out ? 1 : weight->row_stride;
  gemm.c = c;
  gemm.c_row_stride = n;
  code = desc->gemm(desc->gemm_user, &gemm);
  if (code != 0 || !bias->data) return code;
  twh__to_f32(block->scratch->bias, bias->data, bias->dtype, n);
  for (int64_t r = 0; r < block->rows; ++r) {
    for (int64_t j = 0; j < n; ++j) c[r * n + j] += block->scratch->bias[j];
  }
  return 0;
}

/* From the residual stream to the layer's queries, keys and values. */
static int rows_enter(rows_block *block, int64_t index)
{
  const twh_transformer  *transformer = block->forward->transformer;
  const twh__activations *activations = &block->forward->activations;
  const twh__layer       *layer = &transformer->layers[index];
  const twh_layer_desc   *desc = &layer->desc;
  const int64_t dim = transformer->desc.model_dim, q = desc->q_heads * desc->qk_dim, k = desc->kv_heads * desc->qk_dim;
  const int64_t v = desc->kv_heads * desc->v_dim;
  const float  *in = activations->x + block->first * dim;
  float        *to[3];
  twh_rows      rows;

  rows_describe(block, index, &rows);
  if (desc->before) {
    rows.y = block->scratch->y;
    rows.y_stride = dim;
    if (!rows_done(block, index, "before", desc->before(desc->user, &rows))) return 0;
    in = rows.y = block->scratch->y;
  }
  to[0] = activations->q + block->first * q;
  to[1] = activations->k + block->first * k;
  to[2] = activations->v + block->first * v;
  if (!rows_done(block, index, "gemm of wq", rows_project(block, layer, 0, in, dim, dim, to[0], q))) return 0;
  if (!rows_done(block, index, "gemm of wk", rows_project(block, layer, 1, in, dim, dim, to[1], k))) return 0;
  if (!rows_done(block, index, "gemm of wv", rows_project(block, layer, 2, in, dim, dim, to[2], v))) return 0;
  if (!desc->heads) return 1;
  rows.x = rows.y = NULL;
  rows.q = to[0];
  rows.k = to[1];
  rows.v = to[2];
  rows.q_stride = q;
  rows.k_stride = k;
  rows.v_stride = v;
  return rows_done(block, index, "heads", desc->heads(desc->user, &rows));
}

/* From the layer's attention back to the residual stream. */
static int rows_leave(rows_block *block, int64_t index)
{
  const twh_transformer  *transformer = block->forward->transformer;
  const twh__activations *activations = &block->forward->activations;
  const twh__layer       *layer = &transformer->layers[index];
  const twh_layer_desc   *desc = &layer->desc;
  const int64_t           dim = transformer->desc.model_dim, a = desc->q_heads * desc->v_dim;
  float                  *y = block->scratch->y, *x = activations->x + block->first * dim;
  twh_rows                rows;

  if (!rows_done(block, index, "gemm of wo", rows_project(block, layer, 3, activations->a + block->first * a, a, a, y, dim)))
    return 0;
  if (desc->after) {
    rows_describe(block, index, &rows);
    rows.y = y;
    rows.y_stride = dim;
    return rows_done(block, index, "after", desc->after(desc->user, &rows));
  }
  for (int64_t i = 0; i < block->rows * dim; ++i) x[i] += y[i];
  return 1;
}

static int rows_begin(rows_block *block)
{
  const twh__forward         *forward = block->forward;
  const twh_transformer_desc *desc = &forward->transformer->desc;
  twh_rows                    rows;

  if (forward->has_x) {
    for (int64_t r = block->first; r < block->first + block->rows; ++r) {
      twh__convert(forward->activations.x + r * desc->model_dim, TWH_F32, twh__view_row(&forward->x, 0, 0, r), forward->x.dtype,
                   desc->model_dim);
    }
    return 1;
  }
  rows_describe(block, -1, &rows);
  return rows_done(block, -1, "embed", desc->embed(desc->user, &rows));
}

static int rows_end(rows_block *block)
{
  const twh__forward         *forward = block->forward;
  const twh_transformer_desc *desc = &forward->transformer->desc;
  twh_rows                    rows;

  rows_describe(block, desc->n_layers, &rows);
  if (desc->finish && !rows_done(block, desc->n_layers, "finish", desc->finish(desc->user, &rows))) return 0;
  for (int64_t r = block->first; r < block->first + block->rows; ++r) {
    twh__convert(twh__view_row(&forward->out, 0, 0, r), forward->out.dtype, forward->activations.x + r * desc->model_dim,
                 TWH_F32, desc->model_dim);
  }
  return 1;
}

typedef struct rows_round {
  twh__forward *forward;
  int64_t       index;
} rows_round;

static void rows_work(const rows_round *round, rows_block *block)
{
  twh__forward          *forward = round->forward;
  const twh_transformer *transformer = forward->transformer;
  int                    good;

  block->first = block->number * transformer->info.block_rows;
  block->rows = twh__min(transformer->info.block_rows, transformer->info.rows - block->first);
  rows_positions(block);
  good = round->index == 0 ? rows_begin(block) : rows_leave(block, round->index - 1);
  if (good) good = round->index == transformer->desc.n_layers ? rows_end(block) : rows_enter(block, round->index);
  pthread_mutex_lock(&forward->lock);
  ++forward->stats.blocks;
  if (!good && (!forward->failure.what || block->number < forward->failure.block)) {
    forward->failure.block = block->number;
    forward->failure.layer = block->layer;
    forward->failure.code = block->code;
    forward->failure.what = block->what;
  }
  pthread_mutex_unlock(&forward->lock);
}

static void rows_task(void *arg, int64_t task)
{
  const rows_round *round = (const rows_round *)arg;
  twh__forward     *forward = round->forward;
  rows_block        block;

  block.forward = forward;
  block.scratch = &forward->activations.scratches[task];
  for (;;) {
    pthread_mutex_lock(&forward->lock);
    block.number = forward->failure.what ? forward->transformer->info.blocks : forward->next++;
    pthread_mutex_unlock(&forward->lock);
    if (block.number >= forward->transformer->info.blocks) return;
    rows_work(round, &block);
  }
}

static twh_status rows_fail(const twh__forward *forward, twh_error *error)
{
  const twh_transformer  *transformer = forward->transformer;
  const twh__row_failure *failure = &forward->failure;
  const int64_t           first = failure->block * transformer->info.block_rows;
  const int64_t           last = twh__min(first + transformer->info.block_rows, transformer->info.rows) - 1;

  if (failure->layer >= 0 && failure->layer < transformer->desc.n_layers) {
    twh__fail(error, TWH_E_HOOK, "layer %lld: rows %lld to %lld: %s returned %d", (long long)failure->layer, (long long)first,
              (long long)last, failure->what, (int)failure->code);
  } else {
    twh__fail(error, TWH_E_HOOK, "rows %lld to %lld: %s returned %d", (long long)first, (long long)last, failure->what,
              (int)failure->code);
  }
  twh__fail_code(error, failure->code);
  return TWH_E_HOOK;
}

twh_status twh__forward_rows(twh__forward *forward, int64_t index, twh_error *error)
{
  const double begun = twh__now();
  rows_round   round;

  round.forward = forward;
  round.index = index;
  forward->next = 0;
  ++forward->stats.row_rounds;
  twh__parallel_for(forward->transformer->context, forward->transformer->tasks, rows_task, &round);
  forward->stats.rows_s += twh__now() - begun;
  return forward->failure.what ? rows_fail(forward, error) : TWH_OK;
}
