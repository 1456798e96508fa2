/* twh_oracle_from_transformer: an oracle each call of which is one call of a small transformer.
 *
 * The slots' operands are copied into their columns of x, the transformer runs, and each slot's output columns are copied out.
 * What is not finite in one slot would spoil the others: such a slot's columns are left zero, and it is computed alone. The same where
 * scores, or values that are added up before they are divided, could overflow inside the kernel, and where a result is not finite. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/transformer/small.h"

/* ---- scratch of the batches that run ---- */

static twh__small_batch *small_batch_create(const twh__small *small, int64_t n)
{
  const size_t      slots = (size_t)small->columns.slots, length = (size_t)small->desc.length, calls = (size_t)n;
  const size_t      alignment = (size_t)small->desc.alignment, x_bytes = (size_t)small->x_bytes;
  size_t            at[6], bytes = sizeof(twh__small_batch);
  const size_t      sizes[6] = { calls * sizeof(twh_transformer_call),
                                 calls * sizeof(void *),
                                 length * sizeof(double),
                                 calls * slots,
                                 calls * x_bytes,
                                 calls * x_bytes };
  twh__small_batch *batch;

  if ((uint64_t)n > (uint64_t)PTRDIFF_MAX / 4 / (2 * x_bytes + slots + sizeof(twh_transformer_call) + sizeof(void *)))
    return NULL;
  for (int i = 0; i < 6; ++i) {
    size_t unit = i < 4 ? 64 : alignment;
    at[i] = (bytes + unit - 1) / unit * unit;
    bytes = at[i] + sizes[i];
  }
  batch = (twh__small_batch *)twh__allocate_raw(small->context, bytes, (size_t)twh__max(64, small->desc.alignment), NULL);
  if (!batch) return NULL;
  batch->capacity = n;
  batch->bytes = bytes;
  batch->calls = (twh_transformer_call *)(void *)((char *)batch + at[0]);
  batch->pointers = (const twh_transformer_call **)(void *)((char *)batch + at[1]);
  batch->scores = (double *)(void *)((char *)batch + at[2]);
  batch->spoiled = (unsigned char *)batch + at[3];
  batch->x = (char *)batch + at[4];
  batch->out = (char *)batch + at[5];
  return batch;
}

static twh__small_batch *small_batch_take(twh__small *small, int64_t n)
{
  twh__small_batch *batch;

  pthread_mutex_lock(&small->lock);
  batch = small->idle;
  if (batch) small->idle = batch->next;
  pthread_mutex_unlock(&small->lock);
  if (batch && batch->capacity < n) {
    twh__release(small->context, batch, batch->bytes);
    batch = NULL;
  }
  return batch ? batch : small_batch_create(small, n);
}

static void small_batch_give(twh__small *small, twh__small_batch *batch)
{
  pthread_mutex_lock(&small->lock);
  batch->next = small->idle;
  small->idle = batch;
  pthread_mutex_unlock(&small->lock);
}

/* ---- slots to columns and back ---- */

/* The largest magnitude of n values: infinite if one of them is infinite or NaN. */
static double small_largest(const char *data, int32_t dtype, int64_t n)
{
  const uint32_t infinite = dtype == TWH_F16 ? 0x7c00u : 0x7f80u;
  uint32_t       most = 0;
  uint16_t       most16;

  if (dtype == TWH_F32) {
    for (int64_t i = 0; i < n; ++i) {
      uint32_t bits;
      memcpy(&bits, data + i * 4, sizeof bits);
      bits &= 0x7fffffffu; /* of magnitudes the bits are in order */
      most = bits > most ? bits : most;
    }
    return most >= 0x7f800000u ? (double)INFINITY : fabs(twh__load(&most, dtype, 0));
  }
  for (int64_t i = 0; i < n; ++i) {
    uint16_t bits;
    memcpy(&bits, data + i * 2, sizeof bits);
    bits &= 0x7fffu;
    most = bits > most ? bits : most;
  }
  most16 = (uint16_t)most;
  return most >= infinite ? (double)INFINITY : fabs(twh__load(&most16, dtype, 0));
}

/* Copy one operand of a slot into its columns; returns the largest magnitude. */
static double small_scatter(const twh__small *small, const twh_operand *operand, int64_t slot, int64_t column, int64_t dim,
                            char *x)
{
  const int64_t item = small->item;
  const char   *from = (const char *)operand->data + slot * operand->slot_stride * item;
  double        largest = 0;

  x += (slot * small->columns.width + column) * item;
  for (int64_t r = 0; r < small->desc.length; ++r) {
    const char *row = from + r * operand->row_stride * item;
    largest = fmax(largest, small_largest(row, small->desc.dtype, dim));
    memcpy(x + r * small->desc.model_dim * item, row, (size_t)(dim * item));
  }
  return largest;
}

static void small_clear(const twh__small *small, int64_t slot, char *x)
{
  const int64_t item = small->item;

  x += slot * small->columns.width * item;
  for (int64_t r = 0; r < small->desc.length; ++r) {
    memset(x + r * small->desc.model_dim * item, 0, (size_t)(small->columns.width * item));
  }
}

/* x of one call. A NaN cannot hide in fmax: its magnitude is infinite. */
static void small_fill(const twh__small *small, const twh_call *call, char *x, unsigned char *spoiled)
{
  const twh_transformer_oracle_desc *desc = &small->desc;
  const twh__columns                *columns = &small->columns;

  memset(x, 0, (size_t)small->x_bytes);
  for (int64_t s = 0; s < call->slots; ++s) {
    double q = small_scatter(small, &call->q, s, columns->q, desc->qk_dim, x);
    double k = small_scatter(small, &call->k, s, columns->k, desc->qk_dim, x);
    double v = small_scatter(small, &call->v, s, columns->v, desc->v_dim, x);
    double score = q * k * fmax(1.0, fabs(desc->scale)) * (double)desc->qk_dim;
    spoiled[s] = !(v * (double)desc->length < (double)FLT_MAX / 4 && score < (double)FLT_MAX / 4);
    if (spoiled[s]) small_clear(small, s, x);
  }
}

static void small_read(const twh__small *small, const twh_call *call, const char *out, const unsigned char *spoiled,
                       double *scores)
{
  const int64_t item = small->item, bytes = small->desc.v_dim * item;

  for (int64_t s = 0; s < call->slots; ++s) {
    const char *from = out + (s * small->columns.width + small->columns.out) * item;
    char       *to = (char *)call->out + s * call->out_slot_stride * item;
    double      largest = spoiled[s] ? (double)INFINITY : 0;
    for (int64_t r = 0; r < small->desc.length && largest <= DBL_MAX; ++r) {
      const char *row = from + r * small->desc.model_dim * item;
      largest = fmax(largest, small_largest(row, small->desc.dtype, small->desc.v_dim));
      memcpy(to + r * call->out_row_stride * item, row, (size_t)bytes);
    }
    if (!(largest <= DBL_MAX)) twh__alone_compute(small, call, s, scores);
  }
}

static int32_t small_run(void *user, const twh_call *const *calls, int64_t n)
{
  twh__small       *small = (twh__small *)user;
  twh__small_batch *batch = small_batch_take(small, n);
  const int64_t     slots = small->columns.slots;
  int32_t           code;

  if (!batch) return ENOMEM;
  for (int64_t i = 0; i < n; ++i) {
    twh_transformer_call *call = &batch->calls[i];
    twh_transformer_call_init(call);
    call->mask_mode = calls[i]->mask_mode;
    call->index = calls[i]->index;
    call->weights = &small->weights;
    call->x = batch->x + i * small->x_bytes;
    call->out = batch->out + i * small->x_bytes;
    batch->pointers[i] = call;
    small_fill(small, calls[i], batch->x + i * small->x_bytes, batch->spoiled + i * slots);
  }
  code = small->desc.run(small->desc.user, batch->pointers, n);
  for (int64_t i = 0; i < n && code == 0; ++i) {
    small_read(small, calls[i], batch->out + i * small->x_bytes, batch->spoiled + i * slots, batch->scores);
  }
  small_batch_give(small, batch);
  return code;
}

/* ---- the oracle ---- */

static void small_destroy(twh__small *small)
{
  const twh_context *context = small->context;

  while (small->idle) {
    twh__small_batch *batch = small->idle;
    small->idle = batch->next;
    twh__release(context, batch, batch->bytes);
  }
  twh__release(context, small->weight_memory, small->weight_bytes);
  pthread_mutex_destroy(&small->lock);
  twh__release(context, small, sizeof *small);
}

static void small_release(void *user)
{
  twh__small *small = (twh__small *)user;

  if (small->desc.release) small->desc.release(small->desc.user);
  small_destroy(small);
}

static twh_status small_check_shape(const twh_transformer_oracle_desc *desc, twh__columns *columns, twh_error *error)
{
  const int64_t     values[6] = { desc->layers, desc->heads, desc->length, desc->model_dim, desc->qk_dim, desc->v_dim };
  const char *const names[6] = { "layers", "heads", "length", "model_dim", "qk_dim", "v_dim" };
  int64_t           needed, elements, bytes;

  for (int i = 0; i < 6; ++i) {
    if (values[i] >= 1) continue;
    return twh__fail(error, TWH_E_ARGUMENT, "desc.%s is %lld; it must be at least 1", names[i], (long long)values[i]);
  }
  columns->q = 0;
  columns->k = desc->qk_dim;
  if (!twh__add(desc->qk_dim, desc->qk_dim, &columns->v) || !twh__add(columns->v, desc->v_dim, &columns->out) ||
      !twh__add(columns->out, desc->v_dim, &columns->width) || !twh__multiply(desc->layers, desc->heads, &columns->slots) ||
      !twh__multiply(columns->slots, columns->width, &needed)) {
    return twh__fail(error, TWH_E_OVERFLOW, "desc: layers * heads * 2 (qk_dim + v_dim) does not fit 63 bits");
  }
  if (desc->model_dim < needed) {
    return twh__fail(error, TWH_E_ARGUMENT, "desc.model_dim is %lld; %lld layers * %lld heads * 2 (qk_dim + v_dim) need %lld",
                     (long long)desc->model_dim, (long long)desc->layers, (long long)desc->heads, (long long)needed);
  }
  if (!twh__multiply(desc->length, desc->model_dim, &elements) || !twh__multiply(elements, 4, &bytes) ||
      bytes > INT64_MAX / 8 || (uint64_t)bytes > (uint64_t)PTRDIFF_MAX / 8) {
    return twh__fail(error, TWH_E_OVERFLOW, "desc: length * model_dim does not fit memory");
  }
  return TWH_OK;
}

static twh_status small_check(twh_transformer_oracle_desc *desc, twh__columns *columns, twh_error *error)
{
  if (desc->flags != 0) return twh__fail(error, TWH_E_VERSION, "desc.flags has unknown bits: 0x%x", (unsigned)desc->flags);
  if (desc->dtype != TWH_F32 && desc->dtype != TWH_F16 && desc->dtype != TWH_BF16) {
    return twh__fail(error, TWH_E_ARGUMENT, "desc.dtype is %d; it must be TWH_F32, TWH_F16 or TWH_BF16", (int)desc->dtype);
  }
  if (desc->mask_modes & ~(uint32_t)(TWH_MASK_NONE | TWH_MASK_CAUSAL)) {
    return twh__fail(error, TWH_E_ARGUMENT, "desc.mask_modes is 0x%x; a transformer has TWH_MASK_NONE and TWH_MASK_CAUSAL",
                     (unsigned)desc->mask_modes);
  }
  if (desc->alignment == 0) desc->alignment = 64;
  if (desc->alignment < 0 || (desc->alignment & (desc->alignment - 1)) != 0 || desc->alignment > 1 << 21) {
    return twh__fail(error, TWH_E_ARGUMENT, "desc.alignment is %lld; it must be a power of two, at most %d",
                     (long long)desc->alignment, 1 << 21);
  }
  desc->alignment = twh__max(desc->alignment, twh__dtype_bytes(desc->dtype));
  if (!desc->run) return twh__fail(error, TWH_E_ARGUMENT, "desc.run is NULL");
  return small_check_shape(desc, columns, error);
}

static twh_status small_register(const twh_context *context, twh__small *small, twh_oracle **out, twh_error *error)
{
  const twh_transformer_oracle_desc *desc = &small->desc;
  twh_oracle_desc                    oracle;

  twh_oracle_desc_init(&oracle);
  oracle.flags = TWH_ORACLE_STRIDED | TWH_ORACLE_FEWER_SLOTS;
  oracle.slots = small->columns.slots;
  oracle.q_len = oracle.k_len = desc->length;
  oracle.qk_dim = desc->qk_dim;
  oracle.v_dim = desc->v_dim;
  oracle.dtype = desc->dtype;
  oracle.mask_modes = desc->mask_modes;
  oracle.scale = desc->scale;
  oracle.alignment = small->item; /* operands are copied */
  oracle.max_calls_per_batch = desc->max_calls_per_batch;
  oracle.max_concurrent_batches = desc->max_concurrent_batches;
  oracle.cost_per_call = desc->cost_per_call;
  oracle.cost_per_batch = desc->cost_per_batch;
  oracle.run = small_run;
  oracle.release = small_release;
  oracle.user = small;
  return twh_oracle_create(context, &oracle, out, error);
}

static twh_status small_load(twh__small *small, twh_error *error)
{
  int32_t code = small->desc.load ? small->desc.load(small->desc.user, &small->weights) : 0;

  if (code == 0) return TWH_OK;
  twh__fail(error, TWH_E_ORACLE, "desc.load returned %d", (int)code);
  twh__fail_code(error, code);
  return TWH_E_ORACLE;
}

twh_status twh_oracle_from_transformer(const twh_context *context, const twh_transformer_oracle_desc *desc, twh_oracle **out,
                                       twh_error *error)
{
  const twh_context          *own_context = twh__context_or_default(context);
  twh_transformer_oracle_desc own;
  twh__columns                columns;
  twh__small                 *small;
  twh_status                  status;

  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!desc) return twh__fail(error, TWH_E_ARGUMENT, "desc is NULL");
  status = twh__struct_read(&own, sizeof own, sizeof own, desc, "desc", error);
  if (!TWH__FAILED(status)) status = small_check(&own, &columns, error);
  if (TWH__FAILED(status)) return status;
  small = (twh__small *)twh__allocate(own_context, sizeof *small, 0, error);
  if (!small) return TWH_E_MEMORY;
  small->context = own_context;
  small->desc = own;
  small->columns = columns;
  small->item = twh__dtype_bytes(own.dtype);
  small->x_bytes = twh__round_up(own.length * own.model_dim * small->item, own.alignment);
  if (pthread_mutex_init(&small->lock, NULL) != 0) {
    twh__release(own_context, small, sizeof *small);
    return twh__fail(error, TWH_E_MEMORY, "the system has no room for another lock");
  }
  status = twh__selection_make(small, error);
  if (!TWH__FAILED(status)) status = small_register(context, small, out, error);
  if (TWH__FAILED(status)) {
    small_destroy(small);
    return status;
  }
  status = small_load(small, error); /* last: nothing can fail after it */
  if (TWH__FAILED(status)) {
    small->desc.release = NULL; /* still the caller's */
    twh_oracle_destroy(*out);
    *out = NULL;
  }
  return status;
}
