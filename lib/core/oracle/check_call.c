/* Calls made by hand for the check: operands between guarded margins, one run through the gate, and what the run left behind.
 *
 * A pointer is aligned to exactly the declared alignment and not to twice that. Inputs are surrounded by NaN, so that an
 * element read beyond the stated shape spoils a result; outputs start as one particular NaN that no arithmetic produces, so
 * that an element that was not written shows. Inputs are hashed before and after. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/oracle/check.h"

enum { CHECK_CALL_MARGIN = 4096, CHECK_CALL_NAN = 0xff, CHECK_CALL_GUARD = 0xa5, CHECK_CALL_BATCH = 4 };

void twh__finding_set(twh__finding *finding, int32_t verdict, const char *format, ...)
{
  va_list list;

  finding->verdict = verdict;
  va_start(list, format);
  vsnprintf(finding->detail, sizeof finding->detail, format, list);
  va_end(list);
}

twh__check_shape twh__check_full(const twh__check *check, uint32_t mode)
{
  twh__check_shape shape;

  shape.slots = check->desc->slots;
  shape.q_len = check->desc->q_len;
  shape.k_len = check->desc->k_len;
  shape.mode = mode;
  shape.layout = TWH__LAYOUT_DECLARED;
  shape.scale = check->scale;
  return shape;
}

uint32_t twh__check_plain_mode(const twh__check *check)
{
  uint32_t modes = check->desc->mask_modes;
  return modes & TWH_MASK_NONE ? TWH_MASK_NONE : modes & TWH_MASK_TENSOR ? TWH_MASK_TENSOR : TWH_MASK_CAUSAL;
}

static unsigned char *check_call_at(const twh__check_block *block, int64_t slot, int64_t row)
{
  return block->memory + block->first + (slot * block->slot_stride + row * block->row_stride) * twh__dtype_bytes(block->dtype);
}

/* The strides given are the declared ones. Pads are odd numbers: only pointers of a call are aligned. */
static void check_call_strides(const twh__check *check, twh__check_block *block, int32_t layout, int64_t row_stride,
                               int64_t slot_stride, int guard)
{
  if (layout == TWH__LAYOUT_SHARED && guard == CHECK_CALL_NAN) slot_stride = 0; /* what the last slot writes is every slot's */
  if (layout == TWH__LAYOUT_APART || layout == TWH__LAYOUT_INTERLEAVED || layout == TWH__LAYOUT_BACKWARDS) {
    row_stride = block->dim == 1 ? 1 : block->dim + 3; /* lse rows have no stride */
    slot_stride = block->rows * row_stride + 5;
  }
  if (layout == TWH__LAYOUT_INTERLEAVED && block->dim > 1) {
    slot_stride = block->dim;
    row_stride = block->slots * block->dim;
  }
  if (layout == TWH__LAYOUT_ALIGNED) {
    row_stride = twh__round_up(block->dim, twh__max(1, check->desc->alignment / twh__dtype_bytes(block->dtype)));
    slot_stride = block->rows * row_stride;
  }
  block->row_stride = row_stride;
  block->slot_stride = slot_stride;
}

/* Strides and memory; `guard` says whether it is an input (NaN) or a result. Rows that go backwards end before the first one,
 * which alone is aligned. */
static twh_status check_call_place(twh__check *check, twh__check_block *block, int32_t layout, int64_t row_stride,
                                   int64_t slot_stride, int guard)
{
  int64_t alignment = check->desc->alignment, item = twh__dtype_bytes(block->dtype), margin, extent, last, bytes;

  check_call_strides(check, block, layout, row_stride, slot_stride, guard);
  margin = twh__round_up(twh__max(CHECK_CALL_MARGIN, block->dim * item), 2 * alignment) + alignment;
  if (!twh__multiply(block->slots - 1, block->slot_stride, &extent) ||
      !twh__multiply(block->rows - 1, block->row_stride, &last) || !twh__add(extent, last, &extent) ||
      !twh__add(extent, block->dim, &extent) || !twh__multiply(extent, item, &bytes) ||
      !twh__add(bytes, 2 * (margin + alignment), &bytes) || (uint64_t)bytes > (uint64_t)PTRDIFF_MAX) {
    return twh__fail(check->error, TWH_E_OVERFLOW, "a call of this kernel with margins is too large for this machine");
  }
  block->memory =
    (unsigned char *)twh__allocate(check->context, (size_t)bytes, (size_t)twh__max(16, 2 * alignment), check->error);
  if (!block->memory) return TWH_E_MEMORY;
  block->bytes = bytes;
  block->first = margin;
  if (layout == TWH__LAYOUT_BACKWARDS) {
    block->first += twh__round_up(last * item, 2 * alignment);
    block->row_stride = -block->row_stride;
  }
  memset(block->memory, guard, (size_t)bytes);
  return TWH_OK;
}

static void check_call_block(twh__check_block *block, int64_t slots, int64_t rows, int64_t dim, int32_t dtype)
{
  block->slots = slots;
  block->rows = rows;
  block->dim = dim;
  block->dtype = dtype;
}

static void check_call_store(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                             double *values)
{
  static const unsigned char visible[4] = { 1, 255, 2, 128 };
  const twh__check_block    *block = &trial->blocks[which];
  unsigned char             *to = check_call_at(block, slot, row);

  if (block->dtype == TWH_BOOL) {
    for (int64_t j = 0; j < block->dim; ++j) {
      to[j] = (unsigned char)(values[j] == -INFINITY ? 0 : trial->recipe.odd_bytes ? visible[(row + j) % 4] : 1);
    }
    return;
  }
  if (which == TWH__CHECK_MASK && check->desc->mask_value != 0) {
    for (int64_t j = 0; j < block->dim; ++j) {
      if (values[j] == -INFINITY) values[j] = check->desc->mask_value;
    }
  }
  twh__convert(to, block->dtype, values, TWH_F64, block->dim);
}

static void check_call_fill(twh__check *check, twh__trial *trial, int32_t which, twh__recipe_row *recipe)
{
  const twh__check_block *block = &trial->blocks[which];

  for (int64_t s = 0; s < block->slots; ++s) {
    for (int64_t r = 0; r < block->rows; ++r) {
      recipe(check, trial, which, s, r, check->row);
      if (which == TWH__CHECK_MASK && twh__trial_empty(check, trial, s, r)) {
        for (int64_t j = 0; j < block->dim; ++j) check->row[j] = -INFINITY;
      }
      check_call_store(check, trial, which, s, r, check->row);
    }
  }
}

static twh_operand check_call_operand(const twh__check_block *block)
{
  twh_operand operand;

  operand.data = block->memory + block->first;
  operand.slot_stride = block->slot_stride;
  operand.row_stride = block->row_stride;
  operand.id = 0;
  return operand;
}

static void check_call_describe(const twh__check *check, const twh__check_shape *shape, twh__trial *trial)
{
  const twh__recipe      *recipe = &trial->recipe;
  const twh__check_block *blocks = recipe->first ? recipe->first->blocks : trial->blocks;
  const twh__check_block *out = &blocks[TWH__CHECK_OUT], *lse = &blocks[TWH__CHECK_LSE];
  int64_t                 row = recipe->first ? recipe->shift : 0, step = recipe->first ? recipe->n : 1;
  twh_call               *call = &trial->call;

  twh_call_init(call);
  if (recipe->first) call->flags = TWH_CALL_CONTINUES;
  call->mask_mode = shape->mode;
  call->slots = shape->slots;
  call->q_len = shape->q_len;
  call->k_len = shape->k_len;
  call->q = check_call_operand(&trial->blocks[TWH__CHECK_Q]);
  call->k = check_call_operand(&trial->blocks[TWH__CHECK_K]);
  call->v = check_call_operand(&trial->blocks[TWH__CHECK_V]);
  if (shape->mode == TWH_MASK_TENSOR) call->mask = check_call_operand(&trial->blocks[TWH__CHECK_MASK]);
  call->scale = shape->scale;
  call->out = check_call_at(out, 0, row);
  call->out_slot_stride = out->slot_stride;
  call->out_row_stride = step * out->row_stride;
  call->lse_row_stride = step;
  if (check->desc->flags & TWH_ORACLE_LSE) {
    call->lse = (float *)(void *)check_call_at(lse, 0, row);
    call->lse_slot_stride = lse->slot_stride;
  }
}

static twh_status check_call_results(twh__check *check, const twh__check_shape *shape, twh__trial *trial, int32_t layout)
{
  const twh_oracle_desc *desc = check->desc;
  twh__check_block      *out = &trial->blocks[TWH__CHECK_OUT], *lse = &trial->blocks[TWH__CHECK_LSE];
  twh_status             status;

  check_call_block(out, shape->slots, shape->q_len, desc->v_dim, desc->out_dtype);
  status = check_call_place(check, out, layout, desc->out_row_stride, desc->out_slot_stride, CHECK_CALL_GUARD);
  if (TWH__FAILED(status) || !(desc->flags & TWH_ORACLE_LSE)) return status;
  check_call_block(lse, shape->slots, shape->q_len, 1, TWH_F32);
  if (layout == TWH__LAYOUT_ALIGNED) layout = TWH__LAYOUT_DECLARED; /* its rows follow each other */
  return check_call_place(check, lse, layout, 1, desc->q_len, CHECK_CALL_GUARD);
}

twh_status twh__trial_create(twh__check *check, const twh__check_shape *shape, const twh__recipe *recipe, twh__trial *trial)
{
  const twh_oracle_desc *desc = check->desc;
  twh__check_block      *blocks = trial->blocks;
  int32_t                layout = shape->layout, mask = shape->mode == TWH_MASK_TENSOR;
  int32_t                forwards = layout == TWH__LAYOUT_BACKWARDS ? TWH__LAYOUT_APART : layout; /* mask and results */
  twh_status             status;

  memset(trial, 0, sizeof *trial);
  trial->recipe = *recipe;
  check_call_block(&blocks[TWH__CHECK_Q], shape->slots, shape->q_len, desc->qk_dim, desc->dtype);
  check_call_block(&blocks[TWH__CHECK_K], shape->slots, shape->k_len, desc->qk_dim, desc->dtype);
  check_call_block(&blocks[TWH__CHECK_V], shape->slots, shape->k_len, desc->v_dim, desc->dtype);
  status = check_call_place(check, &blocks[TWH__CHECK_Q], layout, desc->q_row_stride, desc->q_slot_stride, CHECK_CALL_NAN);
  if (TWH__FAILED(status)) goto fail;
  status = check_call_place(check, &blocks[TWH__CHECK_K], layout, desc->k_row_stride, desc->k_slot_stride, CHECK_CALL_NAN);
  if (TWH__FAILED(status)) goto fail;
  status = check_call_place(check, &blocks[TWH__CHECK_V], layout, desc->v_row_stride, desc->v_slot_stride, CHECK_CALL_NAN);
  if (TWH__FAILED(status)) goto fail;
  if (mask) {
    check_call_block(&blocks[TWH__CHECK_MASK], shape->slots, shape->q_len, shape->k_len, desc->mask_dtype);
    status =
      check_call_place(check, &blocks[TWH__CHECK_MASK], forwards, shape->k_len, shape->q_len * shape->k_len, CHECK_CALL_NAN);
    if (TWH__FAILED(status)) goto fail;
  }
  if (!recipe->first) {
    status = check_call_results(check, shape, trial, forwards);
    if (TWH__FAILED(status)) goto fail;
  }
  check_call_describe(check, shape, trial);
  check_call_fill(check, trial, TWH__CHECK_Q, recipe->q);
  check_call_fill(check, trial, TWH__CHECK_K, recipe->k);
  check_call_fill(check, trial, TWH__CHECK_V, recipe->v);
  if (mask) check_call_fill(check, trial, TWH__CHECK_MASK, recipe->mask ? recipe->mask : twh__recipe_zero);
  return TWH_OK;
fail:
  twh__trial_destroy(check, trial);
  return status;
}

void twh__trial_destroy(twh__check *check, twh__trial *trial)
{
  for (int32_t i = 0; i < TWH__CHECK_BLOCKS; ++i) {
    twh__release(check->context, trial->blocks[i].memory, (size_t)trial->blocks[i].bytes);
    trial->blocks[i].memory = NULL;
  }
}

/* ---- running ---- */

static uint64_t check_call_hash(const twh__trial *trial)
{
  uint64_t hash = 0, word;

  for (int32_t i = TWH__CHECK_Q; i <= TWH__CHECK_MASK; ++i) {
    const twh__check_block *block = &trial->blocks[i];
    for (int64_t at = 0; at < block->bytes; at += (int64_t)sizeof word) {
      word = 0;
      memcpy(&word, block->memory + at, (size_t)twh__min((int64_t)sizeof word, block->bytes - at));
      hash = (hash ^ word) * 0x9fb21c651e98df25u;
      hash ^= hash >> 32;
    }
  }
  return hash;
}

static void check_call_prefill(const twh__check_block *block)
{
  for (int64_t s = 0; block->memory && s < block->slots; ++s) {
    for (int64_t r = 0; r < block->rows; ++r) {
      memset(check_call_at(block, s, r), CHECK_CALL_NAN, (size_t)(block->dim * twh__dtype_bytes(block->dtype)));
    }
  }
}

static int64_t check_call_altered(const unsigned char *from, const unsigned char *to)
{
  int64_t altered = 0;

  for (; from < to; ++from) altered += *from != CHECK_CALL_GUARD;
  return altered;
}

/* Bytes between the rows and around them that are no longer the guard: rows are visited in the order of their addresses. */
static int64_t check_call_strays(const twh__check_block *block)
{
  int                  slots_outside = block->slot_stride >= block->row_stride;
  int64_t              outer = slots_outside ? block->slots : block->rows, inner = slots_outside ? block->rows : block->slots;
  int64_t              strays = 0;
  const unsigned char *at = block->memory;

  for (int64_t o = 0; block->memory && o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const unsigned char *row = check_call_at(block, slots_outside ? o : i, slots_outside ? i : o);
      strays += check_call_altered(at, row);
      at = row + block->dim * twh__dtype_bytes(block->dtype);
    }
  }
  return block->memory ? strays + check_call_altered(at, block->memory + block->bytes) : 0;
}

static void check_call_inspect(twh__check *check, twh__trial *run, int32_t which)
{
  static const unsigned char untouched[8] = { 255, 255, 255, 255, 255, 255, 255, 255 };
  const twh__trial          *trial = run->recipe.first ? run->recipe.first : run; /* whose results these are */
  const twh__check_block    *block = &trial->blocks[which];
  size_t                     item = (size_t)twh__dtype_bytes(block->dtype);
  int64_t                    strays = check_call_strays(block);

  if (strays > 0 && check->strays == 0) check->first_stray = run->call.index;
  check->strays += strays;
  for (int64_t s = 0; block->memory && s < block->slots; ++s) {
    for (int64_t r = 0; r < block->rows; ++r) {
      if (twh__trial_empty(check, trial, s, r)) continue;
      twh__trial_row(trial, which, s, r, check->row);
      check->elements += block->dim;
      for (int64_t c = 0; c < block->dim; ++c) {
        if (!isnan(check->row[c])) continue;
        ++run->nans;
        if (memcmp(check_call_at(block, s, r) + (size_t)c * item, untouched, item) != 0) continue;
        if (check->missed++ == 0) check->first_missed = run->call.index;
      }
    }
  }
}

twh_status twh__trial_run(twh__check *check, twh__trial *const *trials, int64_t n)
{
  const twh_call *calls[CHECK_CALL_BATCH] = { NULL, NULL, NULL, NULL };
  uint64_t        hashes[CHECK_CALL_BATCH] = { 0, 0, 0, 0 };
  twh__ledger     ledger = { 0, 0, 0, 0, 0 };

  for (int64_t i = 0; i < n; ++i) {
    check_call_prefill(&trials[i]->blocks[TWH__CHECK_OUT]);
    check_call_prefill(&trials[i]->blocks[TWH__CHECK_LSE]);
    trials[i]->call.index = check->calls++;
    trials[i]->nans = 0;
    hashes[i] = check_call_hash(trials[i]);
    calls[i] = &trials[i]->call;
  }
  (void)twh__oracle_call(check->oracle, calls, n, &ledger, NULL, NULL);
  if (ledger.code != 0) return twh__oracle_fail(check->error, ledger.code, ledger.call, "the kernel");
  for (int64_t i = 0; i < n; ++i) {
    check->touched += check_call_hash(trials[i]) != hashes[i];
    if (trials[i]->recipe.first && i > 0) continue; /* its results stand in one that was inspected */
    check_call_inspect(check, trials[i], TWH__CHECK_OUT);
    check_call_inspect(check, trials[i], TWH__CHECK_LSE);
  }
  return TWH_OK;
}

/* ---- results ---- */

void twh__trial_row(const twh__trial *trial, int32_t which, int64_t slot, int64_t row, double *values)
{
  const twh__check_block *block = &trial->blocks[which];
  twh__convert(values, TWH_F64, check_call_at(block, slot, row), block->dtype, block->dim);
}

double twh__trial_lse(const twh__check *check, const twh__trial *trial, int64_t slot, int64_t row)
{
  double value;
  twh__trial_row(trial, TWH__CHECK_LSE, slot, row, &value);
  return check->base2 ? value * 0.69314718055994530942 : value;
}

int twh__trial_empty(const twh__check *check, const twh__trial *trial, int64_t slot, int64_t row)
{
  if (trial->call.mask_mode == TWH_MASK_CAUSAL) return row + check->desc->causal_offset < 0;
  return trial->call.mask_mode == TWH_MASK_TENSOR && trial->recipe.empty &&
         (slot + row) % 2 == trial->recipe.empty - 1;
}

int64_t twh__trial_compare(const twh__check *check, const twh__trial *a, const twh__trial *b)
{
  for (int32_t which = TWH__CHECK_OUT; which <= TWH__CHECK_LSE; ++which) {
    const twh__check_block *block = &a->blocks[which];
    size_t                  bytes = (size_t)(block->dim * twh__dtype_bytes(block->dtype));
    for (int64_t s = 0; block->memory && s < block->slots; ++s) {
      for (int64_t r = 0; r < block->rows; ++r) {
        if (twh__trial_empty(check, a, s, r)) continue;
        if (memcmp(check_call_at(block, s, r), check_call_at(&b->blocks[which], s, r), bytes) != 0) return s * block->rows + r;
      }
    }
  }
  return -1;
}
