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
  call->lse_row_stride = 1;
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

static void calls_build_task(void *arg, int64_t b)
{
  const twh__wave    *wave = (const twh__wave *)arg;
  const twh__run     *run = wave->run;
  const twh__bundle  *bundle = wave->bundles[b];
  const twh__buffers *buffers = &run->work.buffers[bundle->buffers];
  int64_t             values = twh__run_kernel(run, bundle)->lowering.values_parts, parts = twh__run_parts(run, bundle);
  twh_call           *calls = wave->calls + b * run->plan->layout.parts;

  if (parts == 0) return;
  calls_begin(run, bundle, buffers, &calls[0]);
  for (int64_t p = wave->repair ? values : 0; p < (wave->repair ? values + 1 : parts); ++p) {
    if (p > 0) calls[p] = calls[0];
    calls_part(run, bundle, buffers, p, p == values, &calls[p]);
    calls[p].index = bundle->first_call + p;
  }
}

/* The calls of a bundle, behind those that are listed. Returns how many are. */
static int64_t calls_list_bundle(twh__wave *wave, int64_t b, int64_t listed)
{
  twh__run    *run = wave->run;
  twh__bundle *bundle = wave->bundles[b];
  int64_t      values = twh__run_kernel(run, bundle)->lowering.values_parts, parts = twh__run_parts(run, bundle);
  twh_call    *calls = wave->calls + b * run->plan->layout.parts;

  if (wave->repair) {
    bundle->first_call = run->first_call + run->plan->tally.calls + run->stats.repair_calls++;
    calls[values].index = bundle->first_call;
    wave->list[listed++] = &calls[values];
  }
  for (int64_t p = 0; !wave->repair && p < parts; ++p) wave->list[listed++] = &calls[p];
  return listed;
}

/* The calls of one kernel, in the order of the wave but for chains. */
static int64_t calls_list(twh__wave *wave, int32_t kernel, int64_t listed)
{
  for (int64_t b = 0, n; b < wave->count; b += n) {
    int64_t order[TWH__CHAIN];
    n = 1;
    if (wave->bundles[b]->kernel != kernel) continue;
    n = twh__chain_link(wave, b, order);
    for (int64_t i = 0; i < n; ++i) listed = calls_list_bundle(wave, order[i], listed);
  }
  return listed;
}

/* n calls of the list from `first` on, or fewer so that no chain is cut; or one that is longer. */
static int64_t calls_cut(const twh__wave *wave, int64_t first, int64_t n, int64_t listed)
{
  int64_t whole = n;

  while (first + whole < listed && whole > 0 && wave->list[first + whole]->flags & TWH_CALL_CONTINUES) --whole;
  if (whole > 0) return whole;
  while (first + n < listed && wave->list[first + n]->flags & TWH_CALL_CONTINUES) ++n;
  return n;
}

static void calls_make_batches(twh__wave *wave)
{
  const twh_plan *plan = wave->run->plan;
  int64_t         listed = 0;

  wave->batch_count = wave->next = 0;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    const twh__kernel *kernel = &plan->kernels[k];
    int64_t            first = listed, size;
    listed = calls_list(wave, k, listed);
    size = twh__max(1, twh__min(kernel->calls_per_batch, twh__ceil_div(listed - first, kernel->concurrency)));
    for (int64_t n; first < listed; first += n) {
      twh__batch *batch = &wave->batches[wave->batch_count++];
      n = calls_cut(wave, first, twh__min(size, listed - first), listed);
      batch->kernel = k;
      batch->running = 0;
      batch->first = first;
      batch->n = n;
    }
  }
}

typedef struct calls_batch {
  twh__run   *run;
  twh__batch *batch;
} calls_batch;

/* A batch goes to the kernel. */
static void calls_enter(void *arg)
{
  const calls_batch *entering = (const calls_batch *)arg;
  twh__run          *run = entering->run;

  pthread_mutex_lock(run->lock);
  entering->batch->number = run->batches++;
  entering->batch->begun = twh__now();
  if (run->running++ == 0) run->running_since = entering->batch->begun;
  pthread_mutex_unlock(run->lock);
}

/* It could not be started after all. */
static void calls_undo(twh__run *run)
{
  pthread_mutex_lock(run->lock);
  --run->batches;
  --run->running;
  pthread_mutex_unlock(run->lock);
}

/* It is done, or has failed. */
static void calls_leave(twh__wave *wave, const twh__batch *batch, int found)
{
  twh__run *run = wave->run;
  double    now = twh__now();

  pthread_mutex_lock(run->lock);
  if (--run->running == 0) run->stats.oracle_s += now - run->running_since;
  if (run->options->trace) twh__trace_batch(wave, batch, now);
  if (found == TWH__BATCH_DONE) {
    if (!wave->repair) run->done_calls += batch->n;
    twh__run_progress(run);
  }
  pthread_mutex_unlock(run->lock);
}

void twh__run_stop(twh__run *run)
{
  for (int32_t k = 0; k < run->plan->kernel_count; ++k) twh__oracle_stop(run->plan->kernels[k].oracle, &run->ledger[k]);
}

void twh__run_progress(twh__run *run)
{
  const twh_run_options *options = run->options;

  if (run->stop || !options->progress) return;
  if (options->progress(options->user, run->done_calls, run->planned_calls) == 0) return;
  run->stop = 1;
  twh__run_stop(run);
}

void twh__wave_make(twh__wave *wave, twh__batch *batch)
{
  twh__run   *run = wave->run;
  calls_batch entering = { run, batch };
  int         found = twh__oracle_call(run->plan->kernels[batch->kernel].oracle, wave->list + batch->first, batch->n,
                                       &run->ledger[batch->kernel], calls_enter, &entering);

  if (found != TWH__BATCH_STOPPED) calls_leave(wave, batch, found);
}

/* Wait for the first batch of a wave that is running; 0: none is. */
static int calls_wait(twh__wave *wave)
{
  twh__run *run = wave->run;

  for (int64_t b = 0; b < wave->next; ++b) {
    twh__batch *batch = &wave->batches[b];
    if (!batch->running) continue;
    batch->running = 0;
    calls_leave(wave, batch,
                twh__oracle_wait(run->plan->kernels[batch->kernel].oracle, batch->ticket, wave->list[batch->first]->index,
                                 &run->ledger[batch->kernel]));
    return 1;
  }
  return 0;
}

/* Whoever holds batches waits for those before it waits for a place: others may be waiting for just these. */
static int calls_wait_any(twh__run *run)
{
  for (int64_t w = 0; w < run->plan->layout.waves; ++w) {
    if (calls_wait(&run->work.waves[w])) return 1;
  }
  return calls_wait(&run->work.repairs);
}

static int calls_is_holding(const twh__run *run)
{
  for (int64_t w = 0; w <= run->plan->layout.waves; ++w) {
    const twh__wave *wave = w < run->plan->layout.waves ? &run->work.waves[w] : &run->work.repairs;
    for (int64_t b = 0; b < wave->next; ++b) {
      if (wave->batches[b].running) return 1;
    }
  }
  return 0;
}

static const twh_oracle *calls_oracle(const twh__wave *wave, int64_t b)
{
  return wave->run->plan->kernels[wave->batches[b].kernel].oracle;
}

/* Begin the next batches, as long as their kernel can be left alone with them; if there is no place for one, wait for one of our own, or
 * do without. */
static void calls_submit(twh__wave *wave, int patient)
{
  twh__run *run = wave->run;

  while (wave->next < wave->batch_count && calls_oracle(wave, wave->next)->desc.submit) {
    twh__batch *batch = &wave->batches[wave->next];
    calls_batch entering = { run, batch };
    int found = twh__oracle_submit(calls_oracle(wave, wave->next), wave->list + batch->first, batch->n, calls_is_holding(run),
                                   &run->ledger[batch->kernel], &batch->ticket, calls_enter, &entering);
    batch->running = found == TWH__BATCH_DONE;
    if (found == TWH__BATCH_FAILED) calls_undo(run);
    if (found != TWH__BATCH_FULL) {
      ++wave->next;
    } else if (!patient || !calls_wait_any(run)) {
      return;
    }
  }
}

void twh__wave_begin(twh__wave *wave)
{
  twh__run_parallel(wave->run, wave->count, calls_build_task, wave);
  calls_make_batches(wave);
  calls_submit(wave, 0);
}

/* Take batches until none is left. */
static void calls_make_all(twh__wave *wave)
{
  for (;;) {
    int64_t b;
    pthread_mutex_lock(wave->run->lock);
    b = wave->next < wave->batch_count ? wave->next++ : -1;
    pthread_mutex_unlock(wave->run->lock);
    if (b < 0) return;
    twh__wave_make(wave, &wave->batches[b]);
  }
}

static void calls_make_task(void *arg, int64_t i)
{
  (void)i;
  calls_make_all((twh__wave *)arg);
}

/* Some kernel can be left alone: the host works first, then waits for places. */
static void calls_after(twh__wave *wave, void (*host)(void *arg), void *arg)
{
  calls_submit(wave, 0); /* what had no place beside the wave before */
  if (host) host(arg);
  while (wave->next < wave->batch_count) {
    if (calls_oracle(wave, wave->next)->desc.submit) {
      calls_submit(wave, 1);
    } else {
      twh__wave_make(wave, &wave->batches[wave->next++]);
    }
  }
}

void twh__wave_call(twh__wave *wave, void (*host)(void *arg), void *arg)
{
  twh__run       *run = wave->run;
  const twh_plan *plan = run->plan;
  int64_t         callers = 1;

  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    if (plan->kernels[k].oracle->desc.submit) {
      calls_after(wave, host, arg);
      return;
    }
    callers = twh__max(callers, plan->kernels[k].concurrency);
  }
  callers = twh__min(callers, wave->batch_count);
  if (run->serial || callers <= 1) { /* serial: repairs, beside other waves */
    calls_make_all(wave);
  } else {
    twh__parallel_for(plan->context, callers, calls_make_task, wave);
  }
}

twh_status twh__wave_wait(twh__wave *wave, twh_error *error)
{
  const twh__run *run = wave->run;
  int64_t         done;
  int             stop;

  while (calls_wait(wave)) continue;
  for (int32_t k = 0; k < run->plan->kernel_count; ++k) {
    int64_t call;
    int32_t code = twh__oracle_code(run->plan->kernels[k].oracle, &run->ledger[k], &call);
    if (code != 0) return twh__oracle_fail(error, code, call, "the kernel");
  }
  pthread_mutex_lock(run->lock);
  stop = run->stop;
  done = run->done_calls;
  pthread_mutex_unlock(run->lock);
  if (!stop) return TWH_OK;
  return twh__fail(error, TWH_E_CANCELLED, "options.progress asked to stop after %lld calls", (long long)done);
}
