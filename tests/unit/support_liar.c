/* The kernel that lies, one function for each step of attention, and the collection of verdicts. */
#include "support_liar.h"

static void liar_read(const liar *it, const twh_operand *operand, int64_t s, int64_t r, int64_t dim, int64_t dense_rows,
                      float *to)
{
  int     dense = it->lie == STRIDES_AS_DECLARED;
  int64_t slot = dense ? dense_rows * dim : operand->slot_stride, row = dense ? dim : operand->row_stride;
  if (it->lie == SHARED_SLOTS_UNKNOWN && slot == 0) slot = dense_rows * dim;
  if (it->lie == BACKWARDS_AS_DECLARED && row < 0) row = dim;
  if (it->lie == BACKWARDS_AS_FORWARDS && row < 0) row = -row;
  for (int64_t c = 0; c < dim; ++c) to[c] = (float)support_load(operand->data, it->desc.dtype, s * slot + r * row + c);
}

/* What is added to a score; -inf hides. */
static float liar_bias(const liar *it, const twh_call *call, int64_t s, int64_t i, int64_t j)
{
  const twh_oracle_desc *d = &it->desc;
  int64_t                offset = d->causal_offset, at, size = support_bytes(d->mask_dtype);
  double                 value;
  if (call->mask_mode == TWH_MASK_NONE) return 0;
  if (call->mask_mode == TWH_MASK_CAUSAL) {
    if (it->lie == CAUSAL_NOT_AT_ALL) return 0;
    if (it->lie == CAUSAL_STRICT && i > 0) offset -= 1;
    if (it->lie == CAUSAL_ONE_MORE) offset += 1;
    if (it->lie == CAUSAL_FROM_THE_END) offset += (call->k_len - d->k_len) - (call->q_len - d->q_len);
    return j <= i + offset ? 0 : -INFINITY;
  }
  if (it->lie == MASK_UP_TO_16 && j >= 16) return 0;
  if (it->lie == MASK_UP_TO_512 && j >= 512) return 0;
  if (it->lie == MASK_KEY_19_LEAKS && j == 19) return 0;
  if (it->lie == MASK_KEY_19_MISSING && j == 19) return -INFINITY;
  at = it->lie == MASK_STRIDES_DENSE ? (s * call->q_len + i) * call->k_len + j
                                     : s * call->mask.slot_stride + i * call->mask.row_stride + j;
  if (d->mask_dtype == TWH_BOOL) {
    unsigned char byte = ((const unsigned char *)call->mask.data)[at * size];
    return (it->lie == MASK_BYTE_IS_ONE ? byte == 1 : byte != 0) ? 0 : -INFINITY;
  }
  value = support_load(call->mask.data, d->mask_dtype, at);
  if (it->lie == MASK_VALUES_IGNORED && value > -100) value = 0;
  return (float)value;
}

static float liar_cap(const liar *it, float score, float bias)
{
  float cap = it->lie == NO_CAP ? 0 : it->lie == HIDDEN_CAP ? 50 : (float)it->desc.softcap;
  if (it->lie == MASK_BEFORE_CAP && bias != -INFINITY) return cap * tanhf((score + bias) / cap);
  return (cap > 0 ? cap * tanhf(score / cap) : score) + bias;
}

static void liar_scores(liar *it, const twh_call *call, int64_t s, int64_t i)
{
  float scale = (float)(it->desc.flags & TWH_ORACLE_SCALE_PER_CALL ? call->scale : it->desc.scale);
  if (it->lie == SCALE_OFF) scale *= 1.02f;
  if (it->lie == SCALE_IGNORED) scale = 1 / sqrtf((float)it->desc.qk_dim);
  for (int64_t j = 0; j < it->keys; ++j) {
    float dot = 0, bias = j < call->k_len ? liar_bias(it, call, s, i, j) : 0;
    for (int64_t c = 0; c < it->desc.qk_dim; ++c) dot += it->q[c] * it->k[j][c];
    dot *= scale;
    if (it->lie == SCORES_IN_F16) dot = (float)support_round(dot, TWH_F16);
    if (it->lie == ROUNDS_EVERYTHING) dot = (float)support_round(dot, it->desc.dtype);
    it->score[j] = liar_cap(it, dot, bias);
  }
}

/* Turns scores into weights, returns their sum. */
static float liar_weights(liar *it, float top)
{
  float sum = 0;
  for (int64_t j = 0; j < it->keys; ++j) {
    float x = it->score[j] - top;
    if (it->lie == CLAMPED_WEIGHTS && x < -60 && it->score[j] != -INFINITY) x = -60;
    it->score[j] = it->lie == BASE_OF_EXP ? exp2f(x) : expf(x);
    sum += it->score[j];
  }
  for (int64_t j = 0; j < it->keys; ++j) {
    if (it->lie == ROUNDS_EVERYTHING) it->score[j] /= sum;
    it->score[j] = (float)support_round(it->score[j], it->desc.dtype);
  }
  return sum;
}

static float liar_lse(const liar *it, const twh_call *call, float top, float sum)
{
  int   base2 = (it->desc.flags & TWH_ORACLE_LSE_BASE2) != 0, plus = (it->desc.flags & TWH_ORACLE_EMPTY_LSE_POS_INF) != 0;
  float lse = logf(sum) + top;
  (void)call;
  if (it->lie == LSE_OTHER_BASE) base2 = !base2;
  if (it->lie == EMPTY_OTHER_SIGN) plus = !plus;
  if (!(sum > 0)) return it->lie == EMPTY_ZERO ? 0 : plus ? INFINITY : -INFINITY;
  return base2 ? lse * 1.44269504f : lse;
}

/* Adds what stands in memory to it->out and *lse; 0: this call adds nothing, and memory is right as it is. */
static int liar_continue(liar *it, const twh_call *call, int64_t s, int64_t i, float *lse)
{
  const twh_oracle_desc *d = &it->desc;
  int                    plus = (d->flags & TWH_ORACLE_EMPTY_LSE_POS_INF) != 0, base2 = (d->flags & TWH_ORACLE_LSE_BASE2) != 0;
  double                 unit = base2 == (it->lie == CONTINUES_IN_OTHER_BASE) ? 1 : log(2.0), top, old, own;
  float empty = plus ? INFINITY : -INFINITY, before = call->lse[s * call->lse_slot_stride + i * call->lse_row_stride];
  if (*lse == empty && it->lie != CONTINUES_LOSES_EMPTY) return 0;
  if (*lse == empty || before == empty) {
    if (before != empty || it->lie != CONTINUES_TAKES_EMPTY) return 1;
    before = 0;
  }
  top = it->lie == CONTINUES_OVERFLOWS ? 0 : fmax((double)before, (double)*lse);
  old = exp(((double)before - top) * unit);
  own = exp(((double)*lse - top) * unit);
  if (it->lie == CONTINUES_OVERFLOWS) old = (double)(float)old, own = (double)(float)own;
  for (int64_t c = 0; c < d->v_dim; ++c) {
    double value = support_load(call->out, d->out_dtype, s * call->out_slot_stride + i * call->out_row_stride + c);
    it->out[c] = (float)(old / (old + own) * value + own / (old + own) * (double)it->out[c]);
  }
  *lse = (float)(top + log(old + own) / unit);
  return 1;
}

static void liar_store(liar *it, const twh_call *call, int64_t s, int64_t i, float lse)
{
  const twh_oracle_desc *d = &it->desc;
  int                    dense = it->lie == STRIDES_AS_DECLARED;
  int64_t slot = dense ? d->q_len * d->v_dim : call->out_slot_stride, row = dense ? d->v_dim : call->out_row_stride;
  int64_t last = s == call->slots - 1 && i == call->q_len - 1, at = s * slot + i * row;
  if ((call->flags & TWH_CALL_CONTINUES) && it->lie != CONTINUES_NOT_AT_ALL && !liar_continue(it, call, s, i, &lse)) return;
  for (int64_t c = 0; c < d->v_dim; ++c) {
    if (it->lie == SKIPS_LAST_ELEMENT && last && c == d->v_dim - 1) continue;
    support_store(call->out, d->out_dtype, at + c, it->out[c]);
  }
  if (it->lie == WRITES_BEHIND && last) support_store(call->out, d->out_dtype, at + d->v_dim, 0.5);
  if (it->lie == WRITES_BEFORE && last) support_store(call->out, d->out_dtype, -1, 0.5);
  if (d->flags & TWH_ORACLE_LSE) call->lse[s * call->lse_slot_stride + i * call->lse_row_stride] = lse;
}

static void liar_row(liar *it, const twh_call *call, int64_t s, int64_t i)
{
  const twh_oracle_desc *d = &it->desc;
  float                  top = -INFINITY, sum, lse;
  if (it->lie == ROWS_AS_DECLARED && i == call->q_len - 1 && call->q_len < d->q_len) i = call->q_len / 2;
  liar_read(it, &call->q, s, i, d->qk_dim, d->q_len, it->q);
  liar_scores(it, call, s, i);
  for (int64_t j = 0; j < it->keys; ++j)
    if (it->score[j] > top) top = it->score[j];
  if (it->lie == NO_MAXIMUM) top = 0;
  sum = top == -INFINITY ? 0 : liar_weights(it, top);
  lse = liar_lse(it, call, top, sum);
  if (it->lie == LSE_MEAN_KEY) {
    for (int64_t c = 0; c < d->qk_dim; ++c) {
      float mean = 0;
      for (int64_t j = 0; j < call->k_len; ++j) mean += it->k[j][c] / (float)call->k_len;
      lse -= (float)d->scale * it->q[c] * mean;
    }
  }
  for (int64_t c = 0; c < d->v_dim; ++c) {
    float total = 0;
    for (int64_t j = 0; j < it->keys; ++j) total += it->score[j] * it->v[j][c];
    it->out[c] = sum > 0 ? it->lie == ROUNDS_EVERYTHING ? total : total / sum : NAN;
    if (it->lie == ONE_KEY_HALVED && call->k_len == 1) it->out[c] /= 2;
    if (it->lie == ROW_501_NOT_A_NUMBER && i == 501 && fabsf(top) > 500) it->out[c] = NAN;
    if (it->lie == LAST_ROW_WRONG && i == d->q_len - 1) it->out[c] = 0;
    if (it->lie == COUNTS_CALLS && sum > 0) it->out[c] *= 1 + 1e-7f * (float)(it->calls % 5);
  }
  liar_store(it, call, s, i, lse);
}

/* Takes rows that come backwards for those that begin at the lower address. */
static void liar_turn(twh_call *call, int32_t dtype)
{
  if (call->lse_row_stride >= 0) return;
  call->out = (char *)call->out + (call->q_len - 1) * call->out_row_stride * support_bytes(dtype);
  call->lse -= call->q_len - 1;
  call->out_row_stride = -call->out_row_stride;
  call->lse_row_stride = 1;
}

static void liar_call(liar *it, const twh_call *asked)
{
  twh_call               own = *asked, *call = &own;
  const twh_oracle_desc *d = &it->desc;
  if (!(call->flags & TWH_CALL_CONTINUES)) call->lse_row_stride = 1;
  if (it->lie == CONTINUES_FORWARDS) liar_turn(call, d->out_dtype);
  for (int64_t s = 0; s < call->slots; ++s) {
    int64_t from = it->lie == ONE_SLOT_WRONG && s == 1 ? 0 : s;
    if (it->lie == SLOTS_SHIFTED && call->slots < d->slots) from = 0;
    it->keys = call->k_len + (it->lie == READS_BEHIND);
    for (int64_t j = 0; j < it->keys; ++j) {
      liar_read(it, &call->k, from, j, d->qk_dim, d->k_len, it->k[j]);
      liar_read(it, &call->v, from, j, d->v_dim, d->k_len, it->v[j]);
    }
    if (it->lie == KEYS_PADDED_WITH_ZEROS) {
      for (; it->keys < d->k_len; ++it->keys) {
        memset(it->k[it->keys], 0, sizeof it->k[0]);
        memset(it->v[it->keys], 0, sizeof it->v[0]);
      }
    }
    for (int64_t i = 0; i < call->q_len; ++i) liar_row(it, call, s, i);
  }
  if (it->lie == WRITES_INPUT) ((unsigned char *)(uintptr_t)call->v.data)[0] ^= 1;
}

static int32_t liar_run(void *user, const twh_call *const *calls, int64_t n)
{
  liar *it = (liar *)user;
  for (int64_t i = 0; i < n; ++i) {
    if (it->calls++ == it->fail_at) return -77;
    it->aligned_twice += (uintptr_t)calls[i]->q.data % (2 * (uintptr_t)it->desc.alignment) == 0;
    liar_call(it, calls[i]);
    if (it->lie == BATCH_LEAKS && i > 0) support_store(calls[i]->out, it->desc.out_dtype, 0, 0.25);
  }
  return 0;
}

void liar_desc(twh_oracle_desc *desc)
{
  twh_oracle_desc_init(desc);
  desc->slots = 2;
  desc->q_len = 20;
  desc->k_len = 24;
  desc->qk_dim = 8;
  desc->v_dim = 5;
  desc->dtype = TWH_F32;
  desc->mask_modes = TWH_MASK_NONE;
  desc->scale = 0.35;
  desc->run = liar_run;
}

void liar_create(liar *it, const twh_oracle_desc *desc, liar_lie lie)
{
  twh_oracle_desc own = *desc;
  twh_error       error;
  twh_error_init(&error);
  memset(it, 0, sizeof *it);
  it->lie = lie;
  it->fail_at = -1;
  own.user = it;
  support_assert_status(twh_oracle_create(NULL, &own, &it->oracle, &error), TWH_OK, &error, NULL);
  twh_oracle_desc_init(&it->desc);
  support_assert_status(twh_oracle_get_desc(it->oracle, &it->desc, &error), TWH_OK, &error, NULL);
}

/* ---- what the check said ---- */

static void verdicts_append(char *text, size_t room, const char *name, const char *detail)
{
  size_t used = strlen(text);
  snprintf(text + used, room - used, "%s%s%s;", name, detail ? ": " : "", detail ? detail : "");
}

static void verdicts_report(void *user, const char *promise, int32_t verdict, const char *detail)
{
  verdicts *all = (verdicts *)user;
  ++all->rows;
  assert_true(strlen(promise) > 0 && strlen(promise) < LIAR_NAME && strlen(detail) > 0);
  if (verdict == TWH_CHECK_HOLDS) ++all->holds;
  if (verdict == TWH_CHECK_UNTRUE) verdicts_append(all->untrue, sizeof all->untrue, promise, NULL);
  if (verdict == TWH_CHECK_SKIPPED) verdicts_append(all->skipped, sizeof all->skipped, promise, NULL);
  if (verdict != TWH_CHECK_SKIPPED) verdicts_append(all->details, sizeof all->details, promise, detail);
  if (getenv("TWH_SHOW")) print_message("  %-16s %d %s\n", promise, (int)verdict, detail);
}

static int verdicts_have(const char *list, const char *name, size_t length)
{
  for (; *list; list += strcspn(list, ";") + 1)
    if (strncmp(list, name, length) == 0) return 1;
  return 0;
}

int verdicts_within(const char *names, const char *list, const char *also)
{
  for (size_t length; *names; names += length) {
    length = strcspn(names, ";") + 1;
    if (!verdicts_have(list, names, length) && !verdicts_have(also, names, length)) return 0;
  }
  return 1;
}

int64_t verdicts_get(verdicts *all, const twh_oracle *oracle)
{
  int64_t   untrue = -1;
  twh_error error;
  twh_error_init(&error);
  memset(all, 0, sizeof *all);
  support_assert_status(twh_oracle_check(NULL, oracle, verdicts_report, all, &untrue, &error), TWH_OK, &error, NULL);
  return untrue;
}
