/* The calling half of a wave: operands of whole calls, calls in batches, batches to the kernel. */
#include <string.h>

#include "core/run/run.h"

enum { CALLS_Q, CALLS_K, CALLS_V, CALLS_BUCKETS, CALLS_MASK };

/* Shape of one operand of a call: rows x used per slot, strides as declared, in elements. */
typedef struct calls_shape {
  int     which;
  int64_t rows, used, slot_stride, row_stride, item;
  int64_t part, part_bytes; /* of a value slice: its number and its place in the block */
} calls_shape;

static const twh__operand *calls_slot(const twh__bundle *bundle, int64_t s, int which)
{
  const twh__attention *slot = &bundle->slots[s];
  switch (which) {
  case CALLS_Q: return &slot->q;
  case CALLS_K: return &slot->k;
  case CALLS_V: return &slot->v;
  case CALLS_BUCKETS: return &slot->buckets;
  default: return &slot->mask;
  }
}

/* Whether the slots' blocks can be handed over where they lie, and then how far apart they are. */
static int calls_direct(const twh_oracle_desc *desc, const twh__bundle *bundle, const calls_shape *shape, int64_t *apart)
{
  const twh__block *first = &calls_slot(bundle, 0, shape->which)->block;
  int               strided = (desc->flags & TWH_ORACLE_STRIDED) != 0;

  *apart = shape->slot_stride * shape->item;
  if (desc->slots == 1) return 1; /* a block alone always lies as the kernel wants it */
  if (bundle->filled < desc->slots && !(desc->flags & TWH_ORACLE_FEWER_SLOTS)) return 0;
  if (strided && bundle->filled > 1) {
    *apart = (int64_t)((uintptr_t)calls_slot(bundle, 1, shape->which)->block.data - (uintptr_t)first->data);
    if (*apart < 0 || *apart % shape->item != 0) return 0;
  }
  for (int64_t s = 0; s < bundle->filled; ++s) {
    const twh__block *block = &calls_slot(bundle, s, shape->which)->block;
    if ((uintptr_t)block->data != (uintptr_t)first->data + (uintptr_t)(s * *apart)) return 0;
    if (block->row_bytes != (strided ? first->row_bytes : shape->row_stride * shape->item)) return 0;
  }
  return 1;
}

static void calls_gather(const twh_oracle_desc *desc, const twh__bundle *bundle, const calls_shape *shape, char *gather)
{
  int64_t row_bytes = shape->row_stride * shape->item, used = shape->used * shape->item;

  for (int64_t s = 0; s < desc->slots; ++s) {
    /* slots without a tile repeat the first one */
    const twh__block *from = &calls_slot(bundle, s < bundle->filled ? s : 0, shape->which)->block;
    const char       *data = from->data + shape->part * shape->part_bytes;
    char             *to = gather + s * shape->slot_stride * shape->item;
    for (int64_t r = 0; r < shape->rows; ++r) memcpy(to + r * row_bytes, data + r * from->row_bytes, (size_t)used);
  }
}

static void calls_operand(const twh_oracle_desc *desc, const twh__bundle *bundle, const calls_shape *shape, char *gather,
                          twh_operand *operand)
{
  const twh__operand *first = calls_slot(bundle, 0, shape->which);
  int64_t             apart;

  if (calls_direct(desc, bundle, shape, &apart)) {
    operand->data = first->block.data + shape->part * shape->part_bytes;
    operand->slot_stride = apart / shape->item;
    operand->row_stride = first->block.row_bytes / shape->item;
    operand->id = desc->slots == 1 && shape->part < 128 ? first->id ^ (uint64_t)shape->part << 56 : 0;
  } else {
    calls_gather(desc, bundle, shape, gather);
    operand->data = gather;
    operand->slot_stride = shape->slot_stride;
    operand->row_stride = shape->row_stride;
    operand->id = 0;
  }
}

/* What all calls of a bundle share. */
static void calls_begin(const twh__run *run, const twh__bundle *bundle, const twh__buffers *buffers, twh_call *call)
{
  const twh__kernel     *kernel = twh__run_kernel(run, bundle);
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  const twh__tile       *tile = &bundle->slots[0].tiles[0];
  int64_t                item = twh__dtype_bytes(desc->dtype), mask_item = twh__dtype_bytes(desc->mask_dtype);
  calls_shape            q = { CALLS_Q, tile->slot_rows, desc->qk_dim, desc->q_slot_stride, desc->q_row_stride, item, 0, 0 };
  calls_shape            k = { CALLS_K, tile->slot_keys, desc->qk_dim, desc->k_slot_stride, desc->k_row_stride, item, 0, 0 };
  calls_shape            mask = {
               CALLS_MASK, tile->slot_rows, tile->slot_keys, tile->slot_rows * tile->slot_keys, tile->slot_keys, mask_item, 0, 0
  };

  twh_call_init(call);
  call->mask_mode = (uint32_t)tile->mode;
  call->slots = desc->flags & TWH_ORACLE_FEWER_SLOTS ? bundle->filled : desc->slots;
  call->q_len = tile->slot_rows;
  call->k_len = tile->slot_keys;
  call->scale = kernel->lowering.kernel_scale;
  call->execute = run->number[bundle->kernel];
  calls_operand(desc, bundle, &q, buffers->q, &call->q);
  calls_operand(desc, bundle, &k, buffers->k, &call->k);
  if (tile->mode == TWH_MASK_TENSOR) calls_operand(desc, bundle, &mask, buffers->mask, &call->mask);
  call->out_slot_stride = desc->out_slot_stride;
  call->out_row_stride = desc->out_row_stride;
  call->lse_slot_stride = desc->flags & TWH_ORACLE_LSE ? desc->q_len : 0;
}

/* Part `part` of a bundle: a value slice, or the buckets. */
static void calls_part(const twh__run *run, const twh__bundle *bundle, const twh__buffers *buffers, int64_t part, int buckets,
                       twh_call *call)
{
  const twh__kernel     *kernel = twh__run_kernel(run, bundle);
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  const twh__sizes      *sizes = &kernel->sizes;
  calls_shape            v = {
               buckets ? CALLS_BUCKETS : CALLS_V, call->k_len,        desc->v_dim,         desc->v_slot_stride, desc->v_row_stride,
    twh__dtype_bytes(desc->dtype),     buckets ? 0 : part, sizes->v_slice_bytes
  };

  calls_operand(desc, bundle, &v, buffers->v + part * sizes->v_gather, &call->v);
  call->out = buffers->out + part * sizes->out_bytes;
  if (desc->flags & TWH_ORACLE_LSE) call->lse = (float *)(void *)(buffers->lse + part * sizes->lse_bytes);
}

typedef struct calls_batches {
  twh__run *run;
  int32_t   kernel;
  int64_t   count, size; /* calls, and calls per batch */
} calls_batches;

static void calls_build_task(void *arg, int64_t b)
{
  const calls_batches *batches = (const calls_batches *)arg;
  const twh__run      *run = batches->run;
  const twh__bundle   *bundle = twh__run_bundle(run, b);
  const twh__buffers  *buffers = &run->work.buffers[bundle->buffers];
  int64_t              values = twh__run_kernel(run, bundle)->lowering.values_parts, parts = twh__run_parts(run, bundle);
  twh_call            *calls = run->work.calls + b * run->plan->layout.parts;

  if (parts == 0) return;
  calls_begin(run, bundle, buffers, &calls[0]);
  for (int64_t p = run->repairing ? values : 0; p < (run->repairing ? values + 1 : parts); ++p) {
    if (p > 0) calls[p] = calls[0];
    calls_part(run, bundle, buffers, p, p == values, &calls[p]);
    calls[p].index = bundle->first_call + p;
  }
}

static void calls_batch_task(void *arg, int64_t i)
{
  const calls_batches *batches = (const calls_batches *)arg;
  twh__run            *run = batches->run;
  int64_t              first = i * batches->size, n = twh__min(batches->size, batches->count - first);

  (void)twh__oracle_call(run->plan->kernels[batches->kernel].oracle, run->work.call_list + first, n,
                         &run->ledger[batches->kernel]);
}

/* The calls of one kernel, in the order of the wave. */
static void calls_list(calls_batches *batches)
{
  twh__run *run = batches->run;

  batches->count = 0;
  for (int64_t b = 0; b < twh__run_bundles(run); ++b) {
    twh__bundle *bundle = twh__run_bundle(run, b);
    int64_t      values = twh__run_kernel(run, bundle)->lowering.values_parts, parts = twh__run_parts(run, bundle);
    twh_call    *calls = run->work.calls + b * run->plan->layout.parts;
    if (bundle->kernel != batches->kernel) continue;
    if (run->repairing) {
      bundle->first_call = run->first_call + run->plan->tally.calls + run->stats.repair_calls++;
      calls[values].index = bundle->first_call;
      run->work.call_list[batches->count++] = &calls[values];
    }
    for (int64_t p = 0; !run->repairing && p < parts; ++p) run->work.call_list[batches->count++] = &calls[p];
  }
}

static void calls_run(const calls_batches *batches)
{
  const twh_plan *plan = batches->run->plan;
  int64_t         n = twh__ceil_div(batches->count, batches->size);

  if (plan->kernels[batches->kernel].concurrency > 1) {
    twh__parallel_for(plan->context, n, calls_batch_task, (void *)batches);
  } else {
    for (int64_t i = 0; i < n; ++i) calls_batch_task((void *)batches, i);
  }
}

twh_status twh__wave_call(twh__run *run, twh_error *error)
{
  twh_status    status = TWH_OK;
  calls_batches batches = { run, 0, 0, 0 };
  double        begun;

  twh__parallel_for(run->plan->context, twh__run_bundles(run), calls_build_task, &batches);
  begun = twh__now();
  run->stats.calls = run->stats.batches = 0;
  for (int32_t k = 0; k < run->plan->kernel_count; ++k) {
    const twh__kernel *kernel = &run->plan->kernels[k];
    twh__ledger       *ledger = &run->ledger[k];
    batches.kernel = k;
    calls_list(&batches);
    batches.size = twh__max(1, twh__min(kernel->calls_per_batch, twh__ceil_div(batches.count, kernel->concurrency)));
    if (!TWH__FAILED(status) && batches.count > 0) calls_run(&batches);
    run->stats.calls += ledger->calls;
    run->stats.batches += ledger->batches;
    if (ledger->code != 0 && !TWH__FAILED(status)) status = twh__oracle_fail(error, ledger->code, ledger->call, "the kernel");
  }
  run->stats.oracle_s += twh__now() - begun;
  return status;
}
