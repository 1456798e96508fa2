/* What a kernel's calls cost: a few of them are made and timed. */
#include <string.h>

#include "core/oracle/oracle.h"

enum { MEASURE_CALLS = 4, MEASURE_TIMES = 3, MEASURE_BLOCKS = 6 };

typedef struct measure_work {
  const twh_oracle *oracle;
  char             *memory;
  size_t            bytes;
  size_t            at[MEASURE_BLOCKS]; /* q, k, v, mask, and of each call out and lse */
  size_t            out_bytes, lse_bytes;
} measure_work;

/* Bytes of (slots, rows, dim) with strides; 0 on overflow. */
static int64_t measure_bytes(int64_t slots, int64_t slot_stride, int64_t rows, int64_t row_stride, int64_t dim, int64_t item)
{
  int64_t before, here;
  if (!twh__multiply(slots - 1, slot_stride, &before) || !twh__multiply(rows - 1, row_stride, &here)) return 0;
  if (!twh__add(before, here, &here) || !twh__add(here, dim, &here) || !twh__multiply(here, item, &here)) return 0;
  return here > INT64_MAX / 16 ? 0 : here;
}

static twh_status measure_allocate(const twh_context *context, measure_work *work, twh_error *error)
{
  const twh_oracle_desc *d = &work->oracle->desc;
  int64_t item = twh__dtype_bytes(d->dtype), sizes[MEASURE_BLOCKS], total = 0;

  sizes[0] = measure_bytes(d->slots, d->q_slot_stride, d->q_len, d->q_row_stride, d->qk_dim, item);
  sizes[1] = measure_bytes(d->slots, d->k_slot_stride, d->k_len, d->k_row_stride, d->qk_dim, item);
  sizes[2] = measure_bytes(d->slots, d->v_slot_stride, d->k_len, d->v_row_stride, d->v_dim, item);
  sizes[3] = measure_bytes(d->slots, d->q_len * d->k_len, d->q_len, d->k_len, d->k_len, twh__dtype_bytes(d->mask_dtype));
  sizes[4] = measure_bytes(d->slots, d->out_slot_stride, d->q_len, d->out_row_stride, d->v_dim, twh__dtype_bytes(d->out_dtype));
  sizes[5] = measure_bytes(d->slots, d->q_len, d->q_len, 1, 1, (int64_t)sizeof(float));
  for (int i = 0; i < MEASURE_BLOCKS; ++i) {
    int64_t copies = i >= 4 ? MEASURE_CALLS : 1;
    if (sizes[i] == 0) return twh__fail(error, TWH_E_OVERFLOW, "oracle: its operands do not fit this machine's sizes");
    sizes[i] = twh__round_up(sizes[i], d->alignment);
    work->at[i] = (size_t)total;
    if (!twh__multiply(sizes[i], copies, &copies) || !twh__add(total, copies, &total)) {
      return twh__fail(error, TWH_E_OVERFLOW, "oracle: its operands do not fit this machine's sizes");
    }
  }
  work->out_bytes = (size_t)sizes[4];
  work->lse_bytes = (size_t)sizes[5];
  work->bytes = (size_t)total;
  work->memory = (char *)twh__allocate(context, work->bytes, (size_t)d->alignment, error);
  if (!work->memory) return TWH_E_MEMORY;
  if (d->mask_dtype == TWH_BOOL) memset(work->memory + work->at[3], 1, (size_t)sizes[3]);
  return TWH_OK;
}

static void measure_operand(twh_operand *operand, const char *data, int64_t slot_stride, int64_t row_stride)
{
  operand->data = data;
  operand->slot_stride = slot_stride;
  operand->row_stride = row_stride;
}

static void measure_call(const measure_work *work, int64_t index, twh_call *call)
{
  const twh_oracle_desc *d = &work->oracle->desc;
  uint32_t               modes = d->mask_modes;

  twh_call_init(call);
  call->mask_mode = modes & TWH_MASK_NONE ? TWH_MASK_NONE : modes & TWH_MASK_CAUSAL ? TWH_MASK_CAUSAL : TWH_MASK_TENSOR;
  call->index = index;
  call->slots = d->slots;
  call->q_len = d->q_len;
  call->k_len = d->k_len;
  measure_operand(&call->q, work->memory + work->at[0], d->q_slot_stride, d->q_row_stride);
  measure_operand(&call->k, work->memory + work->at[1], d->k_slot_stride, d->k_row_stride);
  measure_operand(&call->v, work->memory + work->at[2], d->v_slot_stride, d->v_row_stride);
  if (call->mask_mode == TWH_MASK_TENSOR) {
    measure_operand(&call->mask, work->memory + work->at[3], d->q_len * d->k_len, d->k_len);
  }
  call->scale = d->flags & TWH_ORACLE_SCALE_PER_CALL ? 1 : d->scale;
  call->out = work->memory + work->at[4] + (size_t)index * work->out_bytes;
  call->out_slot_stride = d->out_slot_stride;
  call->out_row_stride = d->out_row_stride;
  if (d->flags & TWH_ORACLE_LSE) {
    call->lse = (float *)(void *)(work->memory + work->at[5] + (size_t)index * work->lse_bytes);
    call->lse_slot_stride = d->q_len;
    call->lse_row_stride = 1;
  }
}

/* The shortest of a few batches of n calls. */
static twh_status measure_batch(const measure_work *work, int64_t n, double *seconds, twh_error *error)
{
  twh_call        calls[MEASURE_CALLS];
  const twh_call *list[MEASURE_CALLS];
  twh__ledger     ledger;

  memset(&ledger, 0, sizeof ledger);
  for (int64_t i = 0; i < n; ++i) {
    measure_call(work, i, &calls[i]);
    list[i] = &calls[i];
  }
  for (int time = 0; time <= MEASURE_TIMES; ++time) { /* the first one warms up */
    double begun = twh__now(), taken;
    (void)twh__oracle_call(work->oracle, list, n, &ledger, NULL, NULL);
    if (ledger.code != 0) return twh__oracle_fail(error, ledger.code, ledger.call, "the kernel");
    taken = twh__now() - begun;
    if (time <= 1 || taken < *seconds) *seconds = taken;
  }
  return TWH_OK;
}

twh_status twh__oracle_measure(const twh_context *context, const twh_oracle *oracle, int64_t calls_per_batch, double *per_call,
                               double *per_batch, twh_error *error)
{
  int64_t      n = twh__min(MEASURE_CALLS, calls_per_batch);
  double       one = 0, all = 0;
  measure_work work;
  twh_status   status;

  memset(&work, 0, sizeof work);
  work.oracle = oracle;
  status = measure_allocate(context, &work, error);
  if (!TWH__FAILED(status)) status = measure_batch(&work, 1, &one, error);
  if (!TWH__FAILED(status) && n > 1) status = measure_batch(&work, n, &all, error);
  twh__release(context, work.memory, work.bytes);
  if (TWH__FAILED(status)) return status;
  *per_call = n > 1 ? (all - one) / (double)(n - 1) : one;
  if (!(*per_call > 0)) *per_call = one; /* batches side by side, or a clock too coarse to tell */
  if (!(*per_call > 0)) *per_call = 1e-9;
  *per_batch = one > *per_call ? one - *per_call : 0;
  return TWH_OK;
}
