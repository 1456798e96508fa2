/* A kernel that does not trust its caller: the reference kernel behind a wrapper that compares every call with the description
 * that was registered, and answers whatever the contract leaves open in the most unpleasant way.
 *
 * "Equal ids mean equal bytes" is checked by a hash of each operand's elements in order of (slot, row, column). */
#include "support.h"

static int64_t support_or(int64_t value, int64_t fallback)
{
  return value ? value : fallback;
}

int support_call_visible(const twh_call *call, const twh_oracle_desc *desc, int64_t s, int64_t i, int64_t j)
{
  double bias, hidden = desc->mask_value != 0.0 ? desc->mask_value : -INFINITY;
  if (call->mask_mode == TWH_MASK_NONE) return 1;
  if (call->mask_mode == TWH_MASK_CAUSAL) return j <= i + desc->causal_offset;
  bias = support_load(call->mask.data, desc->mask_dtype, s * call->mask.slot_stride + i * call->mask.row_stride + j);
  return desc->mask_dtype == TWH_BOOL ? bias != 0.0 : bias > support_round(hidden, desc->mask_dtype);
}

int64_t support_call_seen(const twh_call *call, const twh_oracle_desc *desc, int64_t s, int64_t i)
{
  int64_t j, seen = 0;
  for (j = 0; j < call->k_len; ++j) seen += support_call_visible(call, desc, s, i, j);
  return seen;
}

static void support_break(support_oracle *oracle, const twh_call *call, const char *what, int64_t got, int64_t wanted)
{
  if (!oracle->broken[0])
    snprintf(oracle->broken, sizeof oracle->broken, "call %lld: %s is %lld, declared %lld", (long long)call->index, what,
             (long long)got, (long long)wanted);
}

static void support_expect(support_oracle *oracle, const twh_call *call, const char *what, int64_t got, int64_t wanted)
{
  if (got != wanted) support_break(oracle, call, what, got, wanted);
}

static void support_expect_length(support_oracle *oracle, const twh_call *call, const char *what, int64_t got, int64_t declared,
                                  int fewer, int64_t least, int64_t step)
{
  least = support_or(least, 1);
  step = support_or(step, 1);
  if (!fewer)
    support_expect(oracle, call, what, got, declared);
  else if (got < least || got > declared || (got % step != 0 && got != declared))
    support_break(oracle, call, what, got, declared);
}

static void support_expect_id(support_oracle *oracle, const twh_call *call, const char *what, uint64_t id, uint64_t hash)
{
  int64_t i;
  id ^= call->execute * 0x9E3779B97F4A7C15u; /* ids of different executes have nothing in common */
  for (i = 0; i < oracle->id_count; ++i) {
    if (oracle->ids[2 * i] != id) continue;
    if (oracle->ids[2 * i + 1] != hash) {
      support_break(oracle, call, what, 0, 1);
      snprintf(oracle->broken + strlen(oracle->broken), sizeof oracle->broken - strlen(oracle->broken),
               ", under an id with other bytes");
    }
    return;
  }
  if (oracle->id_count == oracle->id_room) {
    oracle->id_room = oracle->id_room ? 2 * oracle->id_room : 64;
    oracle->ids = (uint64_t *)realloc(oracle->ids, sizeof(uint64_t) * 2 * (size_t)oracle->id_room);
    if (!oracle->ids) abort();
  }
  oracle->ids[2 * oracle->id_count] = id;
  oracle->ids[2 * oracle->id_count++ + 1] = hash;
}

/* Reads every element: a sanitizer sees what is out of bounds, the poison of allocated memory what was never written. */
static void support_expect_operand(support_oracle *oracle, const twh_call *call, const char *what, const twh_operand *operand,
                                   int64_t rows, int64_t dim, int32_t dtype, int64_t row_stride, int64_t slot_stride)
{
  uint64_t hash = 1469598103934665603u ^ (uint64_t)(rows * 1000003 + dim);
  int64_t  s, r, c, b, size = support_bytes(dtype), alignment = support_or(oracle->desc.alignment, 64);
  int      strided = (oracle->desc.flags & TWH_ORACLE_STRIDED) != 0, check = oracle->finite_only && &call->mask != operand;
  int      backwards = (oracle->desc.flags & TWH_ORACLE_BACKWARDS) != 0 && &call->mask != operand;
  if (!operand->data) {
    support_break(oracle, call, what, 0, 1);
    return;
  }
  support_expect(oracle, call, what, (int64_t)((uintptr_t)operand->data % (uintptr_t)alignment), 0);
  if (!strided) {
    if (rows > 1) support_expect(oracle, call, what, operand->row_stride, row_stride);
    if (call->slots > 1) support_expect(oracle, call, what, operand->slot_stride, slot_stride);
  }
  if (operand->row_stride < 0 && !backwards) support_break(oracle, call, what, operand->row_stride, 0);
  oracle->backwards += operand->row_stride < 0;
  if (operand->slot_stride < 0) support_break(oracle, call, what, operand->slot_stride, 0);
  for (s = 0; s < call->slots; ++s)
    for (r = 0; r < rows; ++r) {
      int64_t              at = s * operand->slot_stride + r * operand->row_stride;
      const unsigned char *bytes = (const unsigned char *)operand->data + at * size;
      for (b = 0; b < dim * size; ++b) hash = (hash ^ bytes[b]) * 1099511628211u;
      for (c = 0; check && c < dim; ++c)
        if (!isfinite(support_load(operand->data, dtype, at + c))) support_break(oracle, call, what, r, -1);
    }
  if (operand->id) support_expect_id(oracle, call, what, operand->id, hash);
}

static void support_check_call(support_oracle *oracle, const twh_call *call)
{
  const twh_oracle_desc *d = &oracle->desc;
  int64_t                alignment = support_or(d->alignment, 64);
  int                    turned = call->flags && (d->flags & TWH_ORACLE_BACKWARDS) && call->lse_row_stride < 0;
  if (call->struct_size < sizeof(twh_call))
    support_break(oracle, call, "struct_size", call->struct_size, (int64_t)sizeof(twh_call));
  if ((call->mask_mode & (call->mask_mode - 1)) || !(call->mask_mode & d->mask_modes))
    support_break(oracle, call, "mask_mode", call->mask_mode, d->mask_modes);
  support_expect_length(oracle, call, "slots", call->slots, d->slots, (d->flags & TWH_ORACLE_FEWER_SLOTS) != 0, 1, 1);
  support_expect_length(oracle, call, "q_len", call->q_len, d->q_len, (d->flags & TWH_ORACLE_FEWER_ROWS) != 0, d->q_len_min,
                        d->q_len_step);
  support_expect_length(oracle, call, "k_len", call->k_len, d->k_len, (d->flags & TWH_ORACLE_FEWER_KEYS) != 0, d->k_len_min,
                        d->k_len_step);
  if (oracle->broken[0]) return; /* sizes that cannot be trusted */
  support_expect_operand(oracle, call, "q", &call->q, call->q_len, d->qk_dim, d->dtype, d->q_row_stride, d->q_slot_stride);
  support_expect_operand(oracle, call, "k", &call->k, call->k_len, d->qk_dim, d->dtype, d->k_row_stride, d->k_slot_stride);
  support_expect_operand(oracle, call, "v", &call->v, call->k_len, d->v_dim, d->dtype, d->v_row_stride, d->v_slot_stride);
  if (call->mask_mode == TWH_MASK_TENSOR) /* no stride of the mask can be declared: rows and slots follow each other */
    support_expect_operand(oracle, call, "mask", &call->mask, call->q_len, call->k_len, d->mask_dtype, call->k_len,
                           call->q_len * call->k_len);
  else if (call->mask.data)
    support_break(oracle, call, "mask without mask mode", 1, 0);
  if (!(d->flags & TWH_ORACLE_SCALE_PER_CALL) && call->scale != d->scale) support_break(oracle, call, "scale", 0, 1);
  if (!call->out || (uintptr_t)call->out % (uintptr_t)alignment) support_break(oracle, call, "out", 0, 1);
  if (!(d->flags & TWH_ORACLE_STRIDED)) {
    if (call->q_len > 1) support_expect(oracle, call, "out_row_stride", call->out_row_stride, d->out_row_stride);
    if (call->slots > 1) support_expect(oracle, call, "out_slot_stride", call->out_slot_stride, d->out_slot_stride);
  }
  if (call->q_len > 1 && (turned ? -call->out_row_stride : call->out_row_stride) < d->v_dim)
    support_break(oracle, call, "out_row_stride", call->out_row_stride, d->v_dim);
  if (d->flags & TWH_ORACLE_LSE) {
    support_expect(oracle, call, "lse_row_stride", call->lse_row_stride, turned ? -1 : 1);
    if (!call->lse || (uintptr_t)call->lse % (uintptr_t)alignment) support_break(oracle, call, "lse", 0, 1);
    if (call->slots > 1 && call->lse_slot_stride < call->q_len)
      support_break(oracle, call, "lse_slot_stride", call->lse_slot_stride, call->q_len);
  } else if (call->lse)
    support_break(oracle, call, "lse without the flag", 1, 0);
}

/* ---- calls that continue others ---- */

/* The row (slots x q_len) of the first call of a chain that row i of slot s of a call of it continues, or -1. */
static int64_t support_chain_row(const twh_call *first, const twh_call *call, int32_t dtype, int64_t s, int64_t i)
{
  ptrdiff_t bytes = (const char *)call->out - (const char *)first->out;
  int64_t   lse = call->lse - first->lse + s * call->lse_slot_stride + i * call->lse_row_stride;
  int64_t   at = bytes / support_bytes(dtype) + s * call->out_slot_stride + i * call->out_row_stride, slot;
  if (first == call) return s * first->q_len + i;
  for (slot = 0; slot < first->slots && bytes % support_bytes(dtype) == 0; ++slot) {
    int64_t row = lse - slot * first->lse_slot_stride;
    if (row < 0 || row >= first->q_len || at != slot * first->out_slot_stride + row * first->out_row_stride) continue;
    return slot * first->q_len + row;
  }
  return -1;
}

/* Its rows must be those of the first call, none of them twice, with the same queries. */
static void support_check_continues(support_oracle *oracle, const twh_call *first, const twh_call *call)
{
  const twh_oracle_desc *d = &oracle->desc;
  int64_t                s, i, row, size = support_bytes(d->dtype);
  unsigned char         *taken = (unsigned char *)calloc((size_t)(first->slots * first->q_len), 1);
  if (!taken) abort();
  for (s = 0; s < call->slots; ++s)
    for (i = 0; i < call->q_len; ++i) {
      const char *own = (const char *)call->q.data + (s * call->q.slot_stride + i * call->q.row_stride) * size, *other;
      row = support_chain_row(first, call, d->out_dtype, s, i);
      if (row < 0 || taken[row]++) {
        support_break(oracle, call, "a row that the call continues", row, i);
        continue;
      }
      other = (const char *)first->q.data +
              (row / first->q_len * first->q.slot_stride + row % first->q_len * first->q.row_stride) * size;
      if (memcmp(own, other, (size_t)(d->qk_dim * size)) != 0) support_break(oracle, call, "the query of a row", -1, row);
    }
  ++oracle->continued;
  free(taken);
}

/* How many of n calls the first one and those that continue it are. */
static int64_t support_chain_length(const twh_call *const *calls, int64_t n)
{
  int64_t length = 1;
  while (length < n && (calls[length]->flags & TWH_CALL_CONTINUES)) ++length;
  return length;
}

static void support_check_chain(support_oracle *oracle, const twh_call *const *calls, int64_t n)
{
  int64_t i;
  for (i = 0; i < n; ++i) {
    if (calls[i]->flags & ~(uint64_t)TWH_CALL_CONTINUES) support_break(oracle, calls[i], "flags", (int64_t)calls[i]->flags, 0);
    if (calls[i]->flags && !(oracle->desc.flags & TWH_ORACLE_CONTINUES))
      support_break(oracle, calls[i], "flags without TWH_ORACLE_CONTINUES", (int64_t)calls[i]->flags, 0);
  }
  if (calls[0]->flags) support_break(oracle, calls[0], "a call that continues none in its batch", 1, 0);
  for (i = 1; i < n && !oracle->broken[0]; ++i) support_check_continues(oracle, calls[0], calls[i]);
}

/* Rows that have seen no key so far: anything may stand in out; under a built-in mask nothing may be relied on at all, but the
 * kernel relies on its own lse until the chain is over. */
static void support_spoil_empty(const support_oracle *oracle, const twh_call *first, const unsigned char *seen, int over)
{
  int64_t s, i, c;
  for (s = 0; s < first->slots; ++s)
    for (i = 0; i < first->q_len; ++i) {
      if (seen[s * first->q_len + i]) continue;
      for (c = 0; c < oracle->desc.v_dim; ++c)
        support_store(first->out, oracle->desc.out_dtype, s * first->out_slot_stride + i * first->out_row_stride + c,
                      (double)NAN);
      if (over && first->lse && first->mask_mode == TWH_MASK_CAUSAL) first->lse[s * first->lse_slot_stride + i] = (float)NAN;
    }
}

/* Run a call and those that continue it, one by one. */
static int32_t support_run_chain(support_oracle *oracle, const twh_call *const *calls, int64_t n)
{
  unsigned char *seen = (unsigned char *)calloc((size_t)(calls[0]->slots * calls[0]->q_len), 1);
  int64_t        at, s, i;
  int32_t        code = 0;
  if (!seen) abort();
  for (at = 0; at < n && !code; ++at) {
    code = oracle->run(oracle->user, calls + at, 1);
    for (s = 0; s < calls[at]->slots && !code; ++s)
      for (i = 0; i < calls[at]->q_len; ++i)
        if (calls[at]->mask_mode == TWH_MASK_NONE || support_call_seen(calls[at], &oracle->desc, s, i) > 0)
          seen[support_chain_row(calls[0], calls[at], oracle->desc.out_dtype, s, i)] = 1;
    if (!code) support_spoil_empty(oracle, calls[0], seen, at == n - 1);
  }
  free(seen);
  return code;
}

static int32_t support_oracle_run(void *user, const twh_call *const *calls, int64_t n)
{
  support_oracle *oracle = (support_oracle *)user;
  int64_t         i, first, limit, length;
  int32_t         code = 0;
  pthread_mutex_lock(&oracle->lock);
  if (oracle->failed) oracle->calls_after_failure += n;
  first = oracle->calls;
  oracle->calls += n;
  ++oracle->batches;
  if (++oracle->running > oracle->most_running) oracle->most_running = oracle->running;
  limit = oracle->desc.max_calls_per_batch;
  if (n < 1 || (limit > 0 && n > limit)) support_break(oracle, calls[0], "calls in a batch", n, limit);
  if (oracle->running > support_or(oracle->desc.max_concurrent_batches, 1))
    support_break(oracle, calls[0], "concurrent batches", oracle->running, 1);
  for (i = 0; i < n; ++i) support_check_call(oracle, calls[i]);
  for (i = 0; i < n && !oracle->broken[0]; i += length) {
    length = support_chain_length(calls + i, n - i);
    support_check_chain(oracle, calls + i, length);
  }
  if (oracle->broken[0]) code = SUPPORT_BROKEN;
  if (oracle->fail_at >= first && oracle->fail_at < first + n) code = oracle->fail_code;
  pthread_mutex_unlock(&oracle->lock);
  for (i = 0; i < n && !code; i += length) {
    length = support_chain_length(calls + i, n - i);
    code = support_run_chain(oracle, calls + i, length);
  }
  pthread_mutex_lock(&oracle->lock);
  for (i = 0; i < n && !code && oracle->spoil; ++i) oracle->spoil(oracle->spoil_user, calls[i], first + i);
  --oracle->running;
  if (code && !oracle->failed) oracle->failed_index = calls[0]->index;
  if (code) oracle->failed = 1;
  pthread_mutex_unlock(&oracle->lock);
  return code;
}

void support_oracle_create(support_oracle *oracle, const twh_context *context, const twh_oracle_desc *desc,
                           const twh_reference_options *options)
{
  twh_oracle_desc outer;
  twh_error       error;
  twh_error_init(&error);
  memset(oracle, 0, sizeof *oracle);
  pthread_mutex_init(&oracle->lock, NULL);
  oracle->fail_at = -1;
  oracle->finite_only = 1;
  support_assert_status(twh_reference_oracle_create(context, desc, options, &oracle->inner, &error), TWH_OK, &error, NULL);
  twh_oracle_desc_init(&oracle->desc);
  support_assert_status(twh_oracle_get_desc(oracle->inner, &oracle->desc, &error), TWH_OK, &error, NULL);
  oracle->run = oracle->desc.run;
  oracle->user = oracle->desc.user;
  outer = *desc;
  outer.run = support_oracle_run;
  outer.user = oracle;
  support_assert_status(twh_oracle_create(context, &outer, &oracle->oracle, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_oracle_get_desc(oracle->oracle, &oracle->desc, &error), TWH_OK, &error, NULL);
}

void support_oracle_reset(support_oracle *oracle)
{
  oracle->calls = oracle->batches = oracle->running = oracle->most_running = 0;
  oracle->calls_after_failure = oracle->id_count = oracle->backwards = oracle->continued = 0;
  oracle->failed = 0;
  oracle->broken[0] = 0;
}

void support_oracle_destroy(support_oracle *oracle)
{
  twh_oracle_destroy(oracle->oracle);
  twh_oracle_destroy(oracle->inner);
  pthread_mutex_destroy(&oracle->lock);
  free(oracle->ids);
  memset(oracle, 0, sizeof *oracle);
}
