/* Executing a transformer: rows, attention, rows, attention, ..., rows. */
#include <string.h>

#include "core/transformer/transformer.h"

static twh_status forward_tensor(twh__view *view, const twh_tensor *tensor, const twh_transformer *transformer,
                                 const char *name, twh_error *error)
{
  const int64_t dims[4] = { 1, 1, transformer->info.rows, transformer->desc.model_dim };
  twh_status    status = twh__view_make(view, tensor, dims, name, error);

  if (!TWH__FAILED(status) && view->dtype == TWH_BOOL) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s.dtype is TWH_BOOL; it must be a float type", name);
  }
  return status;
}

static twh_status forward_read(twh__forward *forward, const twh_tensor *x, const twh_tensor *out, twh_error *error)
{
  const twh_transformer *transformer = forward->transformer;
  const uint32_t         flags = forward->options.flags;
  twh_status             status;

  if (flags & ~(uint32_t)TWH_RUN_CHECKED) {
    return twh__fail(error, TWH_E_VERSION, "options.flags has unknown bits: 0x%x", (unsigned)flags);
  }
  if (x && transformer->desc.embed) return twh__fail(error, TWH_E_ARGUMENT, "x is given; the transformer has an embed hook");
  forward->has_x = !transformer->desc.embed;
  if (forward->has_x) {
    status = forward_tensor(&forward->x, x, transformer, "x", error);
    if (TWH__FAILED(status)) return status;
  }
  return forward_tensor(&forward->out, out, transformer, "out", error);
}

/* Progress of one layer, told as that of all. */
typedef struct forward_progress {
  const twh__forward *forward;
  int64_t             before;
} forward_progress;

static int32_t forward_progress_task(void *user, int64_t done, int64_t planned)
{
  const forward_progress        *progress = (const forward_progress *)user;
  const twh_transformer_options *options = &progress->forward->options;

  (void)planned;
  return options->progress(options->user, progress->before + done, progress->forward->transformer->info.calls);
}

static void forward_rows_tensor(twh_tensor *tensor, float *data, int64_t heads, int64_t dim)
{
  twh_tensor_init(tensor);
  tensor->dtype = TWH_F32;
  tensor->data = data;
  tensor->head_stride = dim;
  tensor->row_stride = heads * dim;
}

static void forward_add(twh_transformer_stats *sum, const twh_run_stats *one)
{
  sum->calls += one->calls;
  sum->batches += one->batches;
  sum->repair_calls += one->repair_calls;
  sum->repaired_rows += one->repaired_rows;
  sum->host_rows += one->host_rows;
  sum->encoded_blocks += one->encoded_blocks;
  sum->oracle_s += one->oracle_s;
  sum->rounds += one->repair_calls > 0 ? 2 : one->calls > 0 ? 1 : 0;
}

static twh_status forward_attention(twh__forward *forward, int64_t index, twh_error *error)
{
  const twh_transformer  *transformer = forward->transformer;
  const twh__layer       *layer = &transformer->layers[index];
  const twh_layer_desc   *desc = &layer->desc;
  const twh__activations *activations = &forward->activations;
  forward_progress        progress = { forward, forward->stats.calls - forward->stats.repair_calls };
  twh_tensor              q, k, v, a;
  twh_tensors             tensors;
  twh_run_options         options;
  twh_run_stats           stats;
  twh_error               inner;
  twh_status              status;

  forward_rows_tensor(&q, activations->q, desc->q_heads, desc->qk_dim);
  forward_rows_tensor(&k, activations->k, desc->kv_heads, desc->qk_dim);
  forward_rows_tensor(&v, activations->v, desc->kv_heads, desc->v_dim);
  forward_rows_tensor(&a, activations->a, desc->q_heads, desc->v_dim);
  twh_tensors_init(&tensors);
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.out = &a;
  tensors.sink_logits = desc->sink_logits;
  tensors.alibi_slopes = desc->alibi_slopes;
  twh_run_stats_init(&stats);
  twh_run_options_init(&options);
  options.flags = forward->options.flags;
  options.workspace = activations->plan;
  options.workspace_bytes = transformer->plan_bytes;
  options.progress = forward->options.progress ? forward_progress_task : NULL;
  options.user = &progress;
  options.stats = &stats;
  twh_error_init(&inner);
  status = twh_plan_execute(transformer->plans[layer->plan], &tensors, &options, &inner);
  forward_add(&forward->stats, &stats);
  return TWH__FAILED(status) ? twh__layer_fail(error, &inner, index) : TWH_OK;
}

static twh_status forward_all(twh__forward *forward, twh_error *error)
{
  const int64_t layers = forward->transformer->desc.n_layers;
  twh_status    status = TWH_OK;

  if (forward->transformer->info.rows == 0) return TWH_OK;
  for (int64_t l = 0; l <= layers && !TWH__FAILED(status); ++l) {
    status = twh__forward_rows(forward, l, error);
    if (l < layers && !TWH__FAILED(status)) status = forward_attention(forward, l, error);
  }
  return status;
}

static twh_status forward_in_workspace(twh__forward *forward, twh_error *error)
{
  const twh_transformer         *transformer = forward->transformer;
  const twh_transformer_options *options = &forward->options;
  const size_t                   bytes = (size_t)transformer->info.workspace_bytes;
  const size_t                   alignment = (size_t)transformer->info.workspace_alignment;
  char                          *memory = (char *)options->workspace;
  int64_t                        used, aligned;
  twh_status                     status;

  if (memory && options->workspace_bytes < bytes) {
    return twh__fail(error, TWH_E_MEMORY, "options.workspace_bytes is %zu; the transformer needs %zu", options->workspace_bytes,
                     bytes);
  }
  if (memory && (uintptr_t)memory % alignment != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "options.workspace is not aligned to %zu bytes", alignment);
  }
  if (!memory) memory = (char *)twh__allocate_raw(transformer->context, bytes, alignment, error);
  if (!memory) return TWH_E_MEMORY;
  (void)twh__activations_lay_out(transformer, memory, &forward->activations, &used, &aligned);
  status = forward_all(forward, error);
  if (!options->workspace) twh__release(transformer->context, memory, bytes);
  return status;
}

twh_status twh_transformer_execute(const twh_transformer *transformer, const twh_tensor *x, const twh_tensor *out,
                                   const twh_transformer_options *options, twh_error *error)
{
  const double begun = twh__now();
  twh__forward forward;
  twh_status   status = TWH_OK;

  if (!transformer) return twh__fail(error, TWH_E_ARGUMENT, "transformer is NULL");
  memset(&forward, 0, sizeof forward);
  twh_transformer_options_init(&forward.options);
  if (options) {
    status = twh__struct_read(&forward.options, sizeof forward.options, sizeof forward.options, options, "options", error);
    if (TWH__FAILED(status)) return status;
  }
  twh_transformer_stats_init(&forward.stats);
  forward.transformer = transformer;
  status = forward_read(&forward, x, out, error);
  if (!TWH__FAILED(status) && pthread_mutex_init(&forward.lock, NULL) != 0) {
    status = twh__fail(error, TWH_E_MEMORY, "the system has no room for another lock");
  } else if (!TWH__FAILED(status)) {
    status = forward_in_workspace(&forward, error);
    pthread_mutex_destroy(&forward.lock);
  }
  forward.stats.wall_s = twh__now() - begun;
  if (forward.options.stats) {
    twh_status written = twh__struct_write(forward.options.stats, &forward.stats, sizeof forward.stats, sizeof forward.stats,
                                           "options.stats", TWH__FAILED(status) ? NULL : error);
    if (!TWH__FAILED(status)) status = written;
  }
  return status;
}
