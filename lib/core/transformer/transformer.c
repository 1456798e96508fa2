/* The transformer object: a checked copy of the description, and one plan for all layers whose attention is alike. */
#include <string.h>

#include "core/transformer/transformer.h"

/* What a problem takes. */
#define TRANSFORMER_MAX_ROWS ((int64_t)1 << 60)

void twh_transformer_destroy(twh_transformer *transformer)
{
  const twh_context *context;

  if (!transformer) return;
  context = transformer->context;
  for (int64_t i = 0; i < transformer->info.plans; ++i) twh_plan_destroy(transformer->plans[i]);
  twh__release(context, transformer->plans, (size_t)transformer->desc.n_layers * sizeof *transformer->plans);
  twh__release(context, transformer->layers, (size_t)transformer->desc.n_layers * sizeof *transformer->layers);
  twh__release(context, transformer->sequences, (size_t)transformer->desc.batch * sizeof *transformer->sequences);
  twh__release(context, transformer, sizeof *transformer);
}

static twh_status transformer_check(const twh_transformer_desc *desc, twh_error *error)
{
  const int64_t     values[6] = { desc->batch,    desc->length,     desc->model_dim,
                                  desc->n_layers, desc->block_rows, desc->scratch_per_row };
  const char *const names[6] = { "batch", "length", "model_dim", "n_layers", "block_rows", "scratch_per_row" };
  const int64_t     least[6] = { 0, 0, 1, 0, 0, 0 };

  if (desc->flags != 0) return twh__fail(error, TWH_E_VERSION, "desc.flags has unknown bits: 0x%x", (unsigned)desc->flags);
  for (int i = 0; i < 6; ++i) {
    if (values[i] >= least[i]) continue;
    return twh__fail(error, TWH_E_ARGUMENT, "desc.%s is %lld; it must be at least %lld", names[i], (long long)values[i],
                     (long long)least[i]);
  }
  if (desc->lengths && desc->length != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "desc.length is %lld, but desc.lengths is given", (long long)desc->length);
  }
  if (desc->n_layers > 0 && !desc->layers) return twh__fail(error, TWH_E_ARGUMENT, "desc.layers is NULL");
  if ((uint64_t)desc->n_layers > (uint64_t)PTRDIFF_MAX / sizeof(twh__layer)) {
    return twh__fail(error, TWH_E_OVERFLOW, "desc.n_layers is %lld; so many do not fit memory", (long long)desc->n_layers);
  }
  if ((uint64_t)desc->batch > (uint64_t)PTRDIFF_MAX / sizeof(twh_sequence)) {
    return twh__fail(error, TWH_E_OVERFLOW, "desc.batch is %lld; so many do not fit memory", (long long)desc->batch);
  }
  return TWH_OK;
}

/* Sequences stand one after the other. */
static twh_status transformer_sequences(twh_transformer *transformer, const int64_t *lengths, twh_error *error)
{
  const twh_transformer_desc *desc = &transformer->desc;
  int64_t                     rows = 0;

  for (int64_t i = 0; i < desc->batch; ++i) {
    twh_sequence *sequence = &transformer->sequences[i];
    int64_t       length = lengths ? lengths[i] : desc->length;
    if (length < 0) {
      return twh__fail(error, TWH_E_ARGUMENT, "desc.lengths[%lld] is %lld; it must be at least 0", (long long)i,
                       (long long)length);
    }
    sequence->q_begin = sequence->k_begin = rows;
    sequence->q_len = sequence->k_len = length;
    if (!twh__add(rows, length, &rows) || rows > TRANSFORMER_MAX_ROWS) {
      return twh__fail(error, TWH_E_OVERFLOW, "desc.%s: at most 2^60 rows of all sequences are supported",
                       lengths ? "lengths" : "length");
    }
  }
  transformer->info.rows = rows;
  return TWH_OK;
}

static twh_status transformer_plan(twh_transformer *transformer, const twh__layer *layer, twh_oracle *const *oracles,
                                   int64_t n_oracles, const twh_plan_options *options, twh_error *error)
{
  const twh_layer_desc *desc = &layer->desc;
  twh_plan_info         info;
  twh_problem           problem;
  twh_plan            **plan = &transformer->plans[transformer->info.plans];
  twh_status            status;

  twh_problem_init(&problem);
  if (desc->flags & TWH_LAYER_SCALE) problem.flags |= TWH_PROBLEM_SCALE;
  if (desc->alibi_slopes) problem.flags |= TWH_PROBLEM_ALIBI;
  problem.batch = transformer->desc.batch;
  problem.q_heads = desc->q_heads;
  problem.kv_heads = desc->kv_heads;
  problem.qk_dim = desc->qk_dim;
  problem.v_dim = desc->v_dim;
  problem.scale = desc->scale;
  problem.softcap = desc->softcap;
  problem.pattern = desc->pattern;
  problem.sequences = transformer->sequences;
  status = twh_plan_create(transformer->context, &problem, oracles, n_oracles, options, plan, error);
  if (TWH__FAILED(status)) return status;
  ++transformer->info.plans;
  twh_plan_info_init(&info);
  status = twh_plan_get_info(*plan, &info, error);
  if (TWH__FAILED(status)) return status;
  transformer->plan_bytes = (size_t)twh__max((int64_t)transformer->plan_bytes, info.workspace_bytes);
  transformer->plan_alignment = (size_t)twh__max((int64_t)transformer->plan_alignment, info.workspace_alignment);
  return TWH_OK;
}

/* A plan for the layer, its own or that of an earlier one. */
static twh_status transformer_plan_layer(twh_transformer *transformer, int64_t index, twh_oracle *const *oracles,
                                         int64_t n_oracles, const twh_plan_options *options, twh_error *error)
{
  twh__layer           *layer = &transformer->layers[index];
  const twh_layer_desc *desc = &layer->desc;
  twh_plan_info         info;
  twh_error             inner;
  twh_status            status;

  layer->plan = transformer->info.plans;
  for (int64_t i = 0; i < index && layer->plan == transformer->info.plans; ++i) {
    if (twh__layer_is_like(layer, &transformer->layers[i])) layer->plan = transformer->layers[i].plan;
  }
  if (layer->plan == transformer->info.plans) {
    twh_error_init(&inner);
    status = transformer_plan(transformer, layer, oracles, n_oracles, options, &inner);
    if (TWH__FAILED(status)) return twh__layer_fail(error, &inner, index);
  }
  twh_plan_info_init(&info);
  status = twh_plan_get_info(transformer->plans[layer->plan], &info, error);
  if (TWH__FAILED(status)) return status;
  if (!twh__add(transformer->info.calls, info.calls, &transformer->info.calls) ||
      !twh__add(transformer->info.repair_calls_max, info.repair_calls_max, &transformer->info.repair_calls_max)) {
    return twh__fail(error, TWH_E_OVERFLOW, "layer %lld: the number of calls does not fit 63 bits", (long long)index);
  }
  transformer->info.rounds += info.rounds;
  transformer->info.rounds_max += info.rounds_max;
  transformer->q_floats = twh__max(transformer->q_floats, desc->q_heads * desc->qk_dim);
  transformer->kv_floats = twh__max(transformer->kv_floats, desc->kv_heads * desc->qk_dim);
  transformer->v_floats = twh__max(transformer->v_floats, desc->kv_heads * desc->v_dim);
  transformer->a_floats = twh__max(transformer->a_floats, desc->q_heads * desc->v_dim);
  return TWH_OK;
}

/* Blocks as long as the first kernel is, so that a host can run its hooks on that length too. */
static twh_status transformer_blocks(twh_transformer *transformer, twh_oracle *const *oracles, int64_t n_oracles,
                                     twh_error *error)
{
  twh_transformer_info *info = &transformer->info;
  twh__activations      activations;

  info->block_rows = transformer->desc.block_rows;
  if (info->block_rows == 0 && oracles && n_oracles > 0 && oracles[0]) {
    twh_oracle_desc desc;
    twh_status      status;
    twh_oracle_desc_init(&desc);
    status = twh_oracle_get_desc(oracles[0], &desc, error);
    if (TWH__FAILED(status)) return status;
    info->block_rows = desc.q_len;
  }
  if (info->block_rows == 0) info->block_rows = 64; /* no layers, no kernel */
  info->block_rows = twh__max(1, twh__min(info->block_rows, info->rows));
  info->blocks = twh__ceil_div(info->rows, info->block_rows);
  transformer->tasks = twh__min(twh__max(1, transformer->context->desc.parallelism), info->blocks);
  if (!twh__activations_lay_out(transformer, NULL, &activations, &info->workspace_bytes, &info->workspace_alignment)) {
    return twh__fail(error, TWH_E_OVERFLOW, "desc: rows, model_dim and scratch_per_row: the workspace does not fit memory");
  }
  return TWH_OK;
}

static twh_status transformer_make(twh_transformer *transformer, const twh_transformer_desc *desc, twh_oracle *const *oracles,
                                   int64_t n_oracles, const twh_plan_options *options, twh_error *error)
{
  const twh_context *context = transformer->context;
  const size_t       layers = (size_t)desc->n_layers, batch = (size_t)desc->batch;
  twh_status         status;

  transformer->layers = (twh__layer *)twh__allocate(context, layers * sizeof *transformer->layers, 0, error);
  if (!transformer->layers) return TWH_E_MEMORY;
  transformer->plans = (twh_plan **)twh__allocate(context, layers * sizeof *transformer->plans, 0, error);
  if (!transformer->plans) return TWH_E_MEMORY;
  transformer->sequences = (twh_sequence *)twh__allocate(context, batch * sizeof *transformer->sequences, 0, error);
  if (!transformer->sequences) return TWH_E_MEMORY;
  status = transformer_sequences(transformer, desc->lengths, error);
  for (int64_t l = 0; l < desc->n_layers && !TWH__FAILED(status); ++l) {
    status = twh__layer_read(&transformer->layers[l], desc->layers[l], l, desc->model_dim, error);
  }
  for (int64_t l = 0; l < desc->n_layers && !TWH__FAILED(status); ++l) {
    status = transformer_plan_layer(transformer, l, oracles, n_oracles, options, error);
  }
  return TWH__FAILED(status) ? status : transformer_blocks(transformer, oracles, n_oracles, error);
}

twh_status twh_transformer_create(const twh_context *context, const twh_transformer_desc *desc, twh_oracle *const *oracles,
                                  int64_t n_oracles, const twh_plan_options *options, twh_transformer **out, twh_error *error)
{
  const twh_context   *own_context = twh__context_or_default(context);
  twh_transformer_desc own;
  twh_transformer     *transformer;
  twh_status           status;

  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!desc) return twh__fail(error, TWH_E_ARGUMENT, "desc is NULL");
  status = twh__struct_read(&own, sizeof own, sizeof own, desc, "desc", error);
  if (!TWH__FAILED(status)) status = transformer_check(&own, error);
  if (TWH__FAILED(status)) return status;
  transformer = (twh_transformer *)twh__allocate(own_context, sizeof *transformer, 0, error);
  if (!transformer) return TWH_E_MEMORY;
  transformer->context = own_context;
  transformer->desc = own;
  transformer->desc.layers = NULL;
  transformer->desc.lengths = NULL;
  if (!own.gemm) transformer->desc.gemm = twh_gemm_plain;
  twh_transformer_info_init(&transformer->info);
  status = transformer_make(transformer, &own, oracles, n_oracles, options, error);
  if (TWH__FAILED(status)) {
    twh_transformer_destroy(transformer);
    return status;
  }
  *out = transformer;
  return TWH_OK;
}

const twh_plan *twh_transformer_plan(const twh_transformer *transformer, int64_t layer)
{
  if (!transformer || layer < 0 || layer >= transformer->desc.n_layers) return NULL;
  return transformer->plans[transformer->layers[layer].plan];
}

twh_status twh_transformer_get_info(const twh_transformer *transformer, twh_transformer_info *out, twh_error *error)
{
  if (!transformer) return twh__fail(error, TWH_E_ARGUMENT, "transformer is NULL");
  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  return twh__struct_write(out, &transformer->info, sizeof transformer->info, sizeof transformer->info, "out", error);
}
