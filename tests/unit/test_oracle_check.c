/* The check of a kernel against its own description: an honest kernel passes with every capability, and a kernel that breaks
 * one promise is told which.
 *
 * The kernel here rounds its weights to its dtype, as GPU kernels do, or everything on the way, as plain ones do, so that the bounds
 * of the check have something to bear. Each lie is one branch in it. */
#include "support.h"

enum { LIAR_MAX = 64, LIAR_NAME = 24 };

typedef enum liar_lie {
  HONEST,
  ROUNDS_EVERYTHING, /* scores, weights and their quotient: still honest */
  SCALE_OFF,
  SCALE_IGNORED,
  BASE_OF_EXP,
  SCORES_IN_F16,
  ONE_SLOT_WRONG,
  NO_CAP,
  HIDDEN_CAP,
  MASK_BEFORE_CAP,
  NO_MAXIMUM,
  CLAMPED_WEIGHTS,
  LSE_OTHER_BASE,
  LSE_MEAN_KEY,
  EMPTY_OTHER_SIGN,
  EMPTY_ZERO,
  MASK_UP_TO_16,
  MASK_KEY_19_LEAKS,
  MASK_KEY_19_MISSING,
  MASK_VALUES_IGNORED,
  MASK_BYTE_IS_ONE,
  CAUSAL_STRICT,
  CAUSAL_ONE_MORE,
  CAUSAL_NOT_AT_ALL,
  CAUSAL_FROM_THE_END,
  ROWS_AS_DECLARED,
  KEYS_PADDED_WITH_ZEROS,
  SLOTS_SHIFTED,
  STRIDES_AS_DECLARED,
  MASK_STRIDES_DENSE,
  BATCH_LEAKS,
  COUNTS_CALLS,
  SKIPS_LAST_ELEMENT,
  WRITES_BEHIND,
  WRITES_BEFORE,
  WRITES_INPUT,
  READS_BEHIND
} liar_lie;

typedef struct liar {
  twh_oracle     *oracle;
  twh_oracle_desc desc; /* completed */
  liar_lie        lie;
  int64_t         calls, fail_at, keys; /* keys: of the slot at hand */
  int64_t         aligned_twice; /* pointers that are aligned to more than the kernel asked for */
  float           q[LIAR_MAX], k[LIAR_MAX][LIAR_MAX], v[LIAR_MAX][LIAR_MAX], score[LIAR_MAX], out[LIAR_MAX];
} liar;

static void liar_read(const liar *it, const twh_operand *operand, int64_t s, int64_t r, int64_t dim, int64_t dense_rows, float *to)
{
  int     dense = it->lie == STRIDES_AS_DECLARED;
  int64_t slot = dense ? dense_rows * dim : operand->slot_stride, row = dense ? dim : operand->row_stride;
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

static void liar_store(liar *it, const twh_call *call, int64_t s, int64_t i, float lse)
{
  const twh_oracle_desc *d = &it->desc;
  int                    dense = it->lie == STRIDES_AS_DECLARED;
  int64_t                slot = dense ? d->q_len * d->v_dim : call->out_slot_stride, row = dense ? d->v_dim : call->out_row_stride;
  int64_t                last = s == call->slots - 1 && i == call->q_len - 1, at = s * slot + i * row;
  for (int64_t c = 0; c < d->v_dim; ++c) {
    if (it->lie == SKIPS_LAST_ELEMENT && last && c == d->v_dim - 1) continue;
    support_store(call->out, d->out_dtype, at + c, it->out[c]);
  }
  if (it->lie == WRITES_BEHIND && last) support_store(call->out, d->out_dtype, at + d->v_dim, 0.5);
  if (it->lie == WRITES_BEFORE && last) support_store(call->out, d->out_dtype, -1, 0.5);
  if (d->flags & TWH_ORACLE_LSE) call->lse[s * call->lse_slot_stride + i] = lse;
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
    if (it->lie == COUNTS_CALLS && sum > 0) it->out[c] *= 1 + 1e-7f * (float)(it->calls % 5);
  }
  liar_store(it, call, s, i, lse);
}

static void liar_call(liar *it, const twh_call *call)
{
  const twh_oracle_desc *d = &it->desc;
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

static void liar_desc(twh_oracle_desc *desc)
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

static void liar_create(liar *it, const twh_oracle_desc *desc, liar_lie lie)
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

typedef struct verdicts {
  char    untrue[400], skipped[400], details[4000]; /* names with ';' behind each */
  int64_t rows, holds;
} verdicts;

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

/* Whether every name of `names` is in one of the lists. */
static int verdicts_within(const char *names, const char *list, const char *also)
{
  char one[LIAR_NAME + 2];
  while (*names) {
    size_t length = strcspn(names, ";") + 1, at;
    int    found = 0;
    assert_true(length < sizeof one - 1);
    memcpy(one, names, length);
    one[length] = 0;
    for (const char *in = list; !found && *in; in += at) {
      at = strcspn(in, ";") + 1;
      found = strncmp(in, one, at) == 0 && at == length;
    }
    for (const char *in = also; !found && *in; in += at) {
      at = strcspn(in, ";") + 1;
      found = strncmp(in, one, at) == 0 && at == length;
    }
    if (!found) return 0;
    names += length;
  }
  return 1;
}

static int64_t verdicts_get(verdicts *all, const twh_oracle *oracle)
{
  int64_t   untrue = -1;
  twh_error error;
  twh_error_init(&error);
  memset(all, 0, sizeof *all);
  support_assert_status(twh_oracle_check(NULL, oracle, verdicts_report, all, &untrue, &error), TWH_OK, &error, NULL);
  return untrue;
}

/* ---- honest kernels ---- */

typedef struct honest_shape {
  int64_t slots, q_len, k_len, qk_dim, v_dim;
} honest_shape;

static const honest_shape honest_shapes[] = {
  { 2, 20, 24, 8, 5 }, { 1, 1, 1, 1, 1 }, { 3, 5, 40, 2, 1 }, { 1, 33, 7, 1, 4 }, { 4, 1, 17, 16, 3 }, { 2, 2, 2, 3, 2 },
};

static void honest_assert(const twh_oracle_desc *desc, liar_lie manner, const char *name)
{
  liar     it;
  verdicts all;
  int64_t  untrue;
  liar_create(&it, desc, manner);
  untrue = verdicts_get(&all, it.oracle);
  twh_oracle_destroy(it.oracle);
  if (untrue == 0) return;
  print_error("%s: %s %lld slots, %lld x %lld, dims %lld, %lld, modes %u, flags 0x%x, softcap %g, scale %g: %s\n%s\n", name,
              desc->dtype == TWH_F32 ? "f32" : desc->dtype == TWH_F16 ? "f16" : "bf16", (long long)desc->slots,
              (long long)desc->q_len, (long long)desc->k_len, (long long)desc->qk_dim, (long long)desc->v_dim,
              (unsigned)desc->mask_modes, (unsigned)desc->flags, desc->softcap, desc->scale, all.untrue, all.details);
  fail();
}

static void oracle_check_honest_kernels_have_nothing_untrue(void **state)
{
  static const int32_t  dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  static const uint32_t lse[] = { 0, TWH_ORACLE_LSE, TWH_ORACLE_LSE | TWH_ORACLE_LSE_BASE2 | TWH_ORACLE_EMPTY_LSE_POS_INF };
  (void)state;
  for (int64_t shape = 0; shape < SUPPORT_COUNT(honest_shapes); ++shape)
    for (int64_t dtype = 0; dtype < 3; ++dtype)
      for (uint32_t modes = 1; modes < 8; ++modes)
        for (int64_t l = 0; l < 3; ++l) {
          const honest_shape *size = &honest_shapes[shape];
          twh_oracle_desc     desc;
          liar_desc(&desc);
          desc.slots = size->slots;
          desc.q_len = size->q_len;
          desc.k_len = size->k_len;
          desc.qk_dim = size->qk_dim;
          desc.v_dim = size->v_dim;
          desc.scale = 1 / sqrt((double)size->qk_dim);
          desc.dtype = dtypes[dtype];
          desc.mask_modes = modes;
          desc.flags = lse[l];
          honest_assert(&desc, (shape + l) % 2 ? ROUNDS_EVERYTHING : HONEST, "plain");
        }
}

static void oracle_check_honest_kernels_with_every_capability_have_nothing_untrue(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 }, masks[] = { TWH_BOOL, TWH_F32, TWH_F16, TWH_BF16, TWH_F64 };
  static const double  scales[] = { 0.125, 1, -0.25, 3, 0.01, 1e-3 }, caps[] = { 0, 5, 0, 50 };
  (void)state;
  for (int64_t i = 0; i < 120; ++i) {
    support_random      random = support_random_at(support_seed(7), (uint64_t)i);
    const honest_shape *size = &honest_shapes[support_below(&random, SUPPORT_COUNT(honest_shapes))];
    twh_oracle_desc     desc;
    liar_desc(&desc);
    desc.slots = size->slots;
    desc.q_len = size->q_len;
    desc.k_len = size->k_len;
    desc.qk_dim = size->qk_dim;
    desc.v_dim = size->v_dim;
    desc.dtype = dtypes[support_below(&random, 3)];
    desc.out_dtype = support_one_in(&random, 3) ? dtypes[support_below(&random, 3)] : 0;
    desc.mask_modes = (uint32_t)support_between(&random, 1, 7);
    desc.mask_dtype = masks[support_below(&random, SUPPORT_COUNT(masks))];
    desc.flags = TWH_ORACLE_STRIDED | TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_FEWER_SLOTS;
    if (support_one_in(&random, 2)) desc.flags |= TWH_ORACLE_LSE;
    if (support_one_in(&random, 3)) desc.flags |= TWH_ORACLE_SCALE_PER_CALL;
    if ((desc.flags & TWH_ORACLE_LSE) && support_one_in(&random, 2)) desc.flags |= TWH_ORACLE_LSE_BASE2;
    desc.scale = scales[support_below(&random, SUPPORT_COUNT(scales))];
    desc.softcap = caps[support_below(&random, SUPPORT_COUNT(caps))];
    if (desc.mask_modes & TWH_MASK_CAUSAL) desc.causal_offset = support_between(&random, 1 - desc.q_len, desc.k_len - 1);
    if ((desc.mask_modes & TWH_MASK_TENSOR) && desc.mask_dtype != TWH_BOOL && support_one_in(&random, 3)) desc.mask_value = -1e4;
    if (desc.q_len % 5 == 0) desc.q_len_step = 5;
    if (desc.k_len > 3) desc.k_len_min = 3;
    desc.alignment = (int64_t)8 << support_below(&random, 5);
    honest_assert(&desc, support_one_in(&random, 2) ? ROUNDS_EVERYTHING : HONEST, "everything");
  }
}

static void oracle_check_pointers_are_aligned_to_no_more_than_declared(void **state)
{
  twh_oracle_desc desc;
  verdicts        all;
  liar            it;
  (void)state;
  liar_desc(&desc);
  desc.alignment = 256;
  liar_create(&it, &desc, HONEST);
  assert_int_equal(verdicts_get(&all, it.oracle), 0);
  assert_int_equal(it.aligned_twice, 0);
  assert_true(it.calls > 0);
  twh_oracle_destroy(it.oracle);
}

/* ---- liars ---- */

enum { F = TWH_ORACLE_LSE, M_N = TWH_MASK_NONE, M_C = TWH_MASK_CAUSAL, M_T = TWH_MASK_TENSOR };

typedef struct liar_case {
  const char *name;
  liar_lie    lie;
  uint32_t    flags, mask_modes;
  int32_t     dtype, mask_dtype;
  double      softcap, mask_value;
  const char *untrue; /* what must be found */
  const char *also;   /* what may be found, because it depends on the same thing */
} liar_case;

static const liar_case liar_cases[] = {
  { "scale 2% off", SCALE_OFF, 0, M_N, TWH_F32, 0, 0, 0, "scale;", "softmax;key shift;" },
  { "scale 2% off in bf16", SCALE_OFF, 0, M_N, TWH_BF16, 0, 0, 0, "scale;", "softmax;" },
  { "scale 2% off in f16", SCALE_OFF, 0, M_N, TWH_F16, 0, 0, 0, "scale;", "softmax;" },
  { "scale of the call ignored", SCALE_IGNORED, TWH_ORACLE_SCALE_PER_CALL, M_N, TWH_F32, 0, 0, 0, "scale per call;", "" },
  { "powers of two", BASE_OF_EXP, 0, M_N, TWH_F32, 0, 0, 0, "softmax;", "scale;softcap;key shift;" },
  { "f32 with f16 scores", SCORES_IN_F16, 0, M_N, TWH_F32, 0, 0, 0, "softmax;", "key shift;" },
  { "slot 1 reads slot 0", ONE_SLOT_WRONG, 0, M_N, TWH_F32, 0, 0, 0, "softmax;", "key shift;large scores;underflow;" },
  { "cap declared, not applied", NO_CAP, 0, M_N, TWH_F32, 0, 20, 0, "softcap;", "softmax;scale;" },
  { "cap declared, not applied, f16", NO_CAP, 0, M_N, TWH_F16, 0, 50, 0, "softcap;", "softmax;scale;" },
  { "cap applied, not declared", HIDDEN_CAP, 0, M_N, TWH_F32, 0, 0, 0, "softcap;", "softmax;scale;key shift;underflow;" },
  { "cap applied, not declared, bf16", HIDDEN_CAP, 0, M_N, TWH_BF16, 0, 0, 0, "softcap;", "scale;key shift;underflow;" },
  { "mask added before the cap", MASK_BEFORE_CAP, 0, M_T, TWH_F32, 0, 20, 0, "mask values;", "softmax;" },
  { "no maximum subtracted", NO_MAXIMUM, 0, M_N, TWH_F32, 0, 0, 0, "large scores;", "" },
  { "weights end at e^-60", CLAMPED_WEIGHTS, 0, M_N, TWH_F32, 0, 0, 0, "underflow;", "" },
  { "weights end at e^-60, causal", CLAMPED_WEIGHTS, 0, M_C, TWH_F32, 0, 0, 0, "underflow;", "" },
  { "base 2 where e is declared", LSE_OTHER_BASE, F, M_N | M_T, TWH_F32, 0, 0, 0, "lse base;", "" },
  { "base e where 2 is declared", LSE_OTHER_BASE, F | TWH_ORACLE_LSE_BASE2, M_N, TWH_F32, 0, 0, 0, "lse base;", "" },
  { "base 2 where e is declared, bf16", LSE_OTHER_BASE, F, M_C, TWH_BF16, 0, 0, 0, "lse base;", "" },
  { "mean key subtracted", LSE_MEAN_KEY, F, M_N, TWH_F32, 0, 0, 0, "lse;key shift;", "underflow;" },
  { "mean key subtracted, bf16", LSE_MEAN_KEY, F, M_N, TWH_BF16, 0, 0, 0, "key shift;", "lse;underflow;" },
  { "empty rows with the other sign", EMPTY_OTHER_SIGN, F, M_T, TWH_F32, 0, 0, 0, "empty rows;", "" },
  { "empty rows have -inf, +inf declared", EMPTY_OTHER_SIGN, F | TWH_ORACLE_EMPTY_LSE_POS_INF, M_T, TWH_F32, TWH_BOOL, 0, 0,
    "empty rows;", "" },
  { "empty rows have lse 0", EMPTY_ZERO, F, M_N | M_T, TWH_F32, 0, 0, 0, "empty rows;", "" },
  { "mask honoured up to position 16", MASK_UP_TO_16, 0, M_N | M_T, TWH_F32, TWH_BOOL, 0, 0, "mask positions;", "softmax;mask values;" },
  { "mask honoured up to position 16, f16", MASK_UP_TO_16, 0, M_N | M_T, TWH_F16, TWH_F16, 0, 0,
    "mask positions;", "softmax;mask values;" },
  { "one key shines through", MASK_KEY_19_LEAKS, 0, M_T, TWH_BF16, TWH_BOOL, 0, 0, "mask positions;", "softmax;mask values;" },
  { "one key is never seen", MASK_KEY_19_MISSING, 0, M_N | M_T, TWH_BF16, TWH_BOOL, 0, 0, "mask positions;", "softmax;mask values;" },
  { "additive mask read as a boolean one", MASK_VALUES_IGNORED, 0, M_N | M_T, TWH_F32, TWH_F32, 0, 0, "mask values;", "softmax;" },
  { "only byte 1 shows a key", MASK_BYTE_IS_ONE, 0, M_N | M_T, TWH_F32, TWH_BOOL, 0, 0, "mask values;", "" },
  { "a mask value that hides nothing", HONEST, 0, M_N | M_T, TWH_F32, 0, 0, -3, "mask positions;", "softmax;" },
  { "causal without the diagonal", CAUSAL_STRICT, 0, M_N | M_C, TWH_F32, 0, 0, 0, "causal;", "softmax;" },
  { "causal with one key more", CAUSAL_ONE_MORE, 0, M_N | M_C, TWH_BF16, 0, 0, 0, "causal;", "softmax;" },
  { "causal ignored", CAUSAL_NOT_AT_ALL, 0, M_N | M_C, TWH_F16, 0, 0, 0, "causal;", "softmax;" },
  { "causal counts from the end", CAUSAL_FROM_THE_END, TWH_ORACLE_FEWER_KEYS, M_N | M_C, TWH_F32, 0, 0, 0, "fewer keys;", "" },
  { "causal counts from the end, rows", CAUSAL_FROM_THE_END, TWH_ORACLE_FEWER_ROWS, M_N | M_C, TWH_F32, 0, 0, 0, "fewer rows;", "" },
  { "the last of fewer rows", ROWS_AS_DECLARED, TWH_ORACLE_FEWER_ROWS, M_N, TWH_F32, 0, 0, 0, "fewer rows;every element;", "" },
  { "missing keys are zeros", KEYS_PADDED_WITH_ZEROS, TWH_ORACLE_FEWER_KEYS, M_N, TWH_F32, 0, 0, 0, "fewer keys;", "" },
  { "fewer slots are one", SLOTS_SHIFTED, TWH_ORACLE_FEWER_SLOTS, M_N, TWH_F32, 0, 0, 0, "fewer slots;", "" },
  { "strides ignored", STRIDES_AS_DECLARED, TWH_ORACLE_STRIDED, M_N, TWH_F32, 0, 0, 0, "strides;", "every element;margins;" },
  { "strides of the mask ignored", MASK_STRIDES_DENSE, TWH_ORACLE_STRIDED, M_N | M_T, TWH_F32, TWH_BOOL, 0, 0, "strides;", "" },
  { "a batch is not its calls", BATCH_LEAKS, 0, M_N, TWH_F32, 0, 0, 0, "batch;", "" },
  { "never the same twice", COUNTS_CALLS, 0, M_N, TWH_F32, 0, 0, 0, "batch;determinism;", "" },
  { "one byte too many", WRITES_BEHIND, 0, M_N, TWH_F32, 0, 0, 0, "margins;", "" },
  { "one element too early", WRITES_BEFORE, 0, M_N, TWH_F16, 0, 0, 0, "margins;", "" },
  { "writes into an input", WRITES_INPUT, 0, M_N, TWH_F32, 0, 0, 0, "margins;", "" },
};

static void oracle_check_a_lie_is_named_and_nothing_else(void **state)
{
  int64_t wrong = 0;
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(liar_cases); ++i) {
    const liar_case *row = &liar_cases[i];
    twh_oracle_desc  desc;
    verdicts         all;
    liar             it;
    int64_t          untrue, named = 0;
    liar_desc(&desc);
    desc.slots = row->flags & TWH_ORACLE_FEWER_SLOTS ? 3 : 2;
    desc.flags = row->flags;
    desc.mask_modes = row->mask_modes;
    desc.dtype = row->dtype;
    desc.mask_dtype = row->mask_dtype;
    desc.softcap = row->softcap;
    desc.mask_value = row->mask_value;
    if (getenv("TWH_SHOW")) print_message("%s\n", row->name);
    liar_create(&it, &desc, row->lie);
    untrue = verdicts_get(&all, it.oracle);
    for (const char *at = all.untrue; *at; ++at) named += *at == ';';
    assert_int_equal(untrue, named);
    twh_oracle_destroy(it.oracle);
    if (verdicts_within(row->untrue, all.untrue, "") && verdicts_within(all.untrue, row->untrue, row->also)) continue;
    print_error("%s: untrue is \"%s\", expected \"%s\" and perhaps \"%s\"\n%s\n", row->name, all.untrue, row->untrue, row->also,
                all.details);
    ++wrong;
  }
  assert_int_equal(wrong, 0);
}

/* Both leave NaN, so that whatever looks at the element is wrong: what must not happen is that nobody notices. */
static void oracle_check_an_unwritten_element_is_noticed(void **state)
{
  twh_oracle_desc desc;
  verdicts        all;
  liar            it;
  (void)state;
  liar_desc(&desc);
  liar_create(&it, &desc, SKIPS_LAST_ELEMENT);
  assert_true(verdicts_get(&all, it.oracle) > 0);
  assert_non_null(strstr(all.untrue, "every element;"));
  assert_null(strstr(all.untrue, "margins;"));
  twh_oracle_destroy(it.oracle);
}

static void oracle_check_a_key_read_beyond_the_end_is_noticed(void **state)
{
  twh_oracle_desc desc;
  verdicts        all;
  liar            it;
  (void)state;
  liar_desc(&desc);
  desc.slots = 1;
  liar_create(&it, &desc, READS_BEHIND);
  assert_true(verdicts_get(&all, it.oracle) > 0);
  assert_non_null(strstr(all.untrue, "softmax;"));
  assert_null(strstr(all.untrue, "every element;"));
  twh_oracle_destroy(it.oracle);
}

static void oracle_check_skips_what_is_not_declared(void **state)
{
  twh_oracle_desc desc;
  verdicts        all;
  liar            it;
  (void)state;
  liar_desc(&desc);
  desc.max_calls_per_batch = 1;
  liar_create(&it, &desc, HONEST);
  assert_int_equal(verdicts_get(&all, it.oracle), 0);
  assert_string_equal(all.skipped, "lse base;lse;scale per call;f16 scores;mask positions;mask values;causal;empty rows;fewer rows;"
                                   "fewer keys;fewer slots;strides;batch;");
  assert_int_equal(all.rows, 22);
  assert_int_equal(all.holds, 9);
  twh_oracle_destroy(it.oracle);
}

/* ---- failures ---- */

static void oracle_check_kernel_failure_at_every_call_is_passed_on(void **state)
{
  twh_oracle_desc desc;
  twh_error       error;
  twh_status      status = TWH_E_ORACLE;
  liar            it;
  int64_t         n;
  (void)state;
  liar_desc(&desc);
  desc.mask_modes = M_N | M_C | M_T;
  desc.flags = F | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_STRIDED;
  for (n = 0; n < 1000; ++n) {
    support_memory memory;
    twh_context   *context = support_context(&memory, 0, 0);
    int64_t        live = memory.live_blocks, untrue = -5;
    liar_create(&it, &desc, HONEST);
    it.fail_at = n;
    twh_error_init(&error);
    status = twh_oracle_check(context, it.oracle, NULL, NULL, &untrue, &error);
    assert_int_equal(memory.live_blocks, live);
    twh_context_destroy(context);
    twh_oracle_destroy(it.oracle);
    if (status == TWH_OK) break;
    support_assert_status(status, TWH_E_ORACLE, &error, "-77");
    assert_int_equal(error.oracle_code, -77);
    assert_true(error.call <= n && error.call >= n - 2); /* the first call of its batch */
    assert_int_equal(untrue, -5);
    assert_int_equal(it.calls, n + 1); /* not called again */
  }
  assert_int_equal(status, TWH_OK);
  assert_true(n > 20);
}

static void oracle_check_allocation_failure_at_every_point_leaks_nothing(void **state)
{
  twh_oracle_desc desc;
  twh_error       error;
  twh_status      status = TWH_E_MEMORY;
  liar            it;
  int64_t         n;
  (void)state;
  liar_desc(&desc);
  desc.q_len = desc.k_len = 4;
  desc.mask_modes = M_N | M_C | M_T;
  desc.flags = F | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_STRIDED;
  liar_create(&it, &desc, HONEST);
  for (n = 0; n < 5000 && status != TWH_OK; ++n) {
    support_memory memory;
    twh_context   *context = support_context(&memory, 0, 0);
    int64_t        live = memory.live_blocks, untrue = -5;
    memory.fail_at = memory.allocations + n;
    twh_error_init(&error);
    status = twh_oracle_check(context, it.oracle, NULL, NULL, &untrue, &error);
    assert_int_equal(memory.live_blocks, live);
    assert_int_equal(memory.wrong_releases, 0);
    twh_context_destroy(context);
    if (status == TWH_OK) {
      assert_int_equal(untrue, 0);
    } else {
      support_assert_status(status, TWH_E_MEMORY, &error, "allocate");
      assert_int_equal(untrue, -5);
    }
  }
  assert_int_equal(status, TWH_OK);
  assert_true(n > 50);
  twh_oracle_destroy(it.oracle);
}

static void oracle_check_null_oracle_is_refused(void **state)
{
  twh_error error;
  (void)state;
  twh_error_init(&error);
  support_assert_status(twh_oracle_check(NULL, NULL, NULL, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "oracle");
}

static void oracle_check_works_without_report_count_and_error(void **state)
{
  twh_oracle_desc desc;
  liar            it;
  (void)state;
  liar_desc(&desc);
  liar_create(&it, &desc, SCALE_OFF);
  assert_int_equal(twh_oracle_check(NULL, it.oracle, NULL, NULL, NULL, NULL), TWH_OK);
  it.fail_at = it.calls;
  assert_int_equal(twh_oracle_check(NULL, it.oracle, NULL, NULL, NULL, NULL), TWH_E_ORACLE);
  twh_oracle_destroy(it.oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(oracle_check_honest_kernels_have_nothing_untrue),
    cmocka_unit_test(oracle_check_honest_kernels_with_every_capability_have_nothing_untrue),
    cmocka_unit_test(oracle_check_pointers_are_aligned_to_no_more_than_declared),
    cmocka_unit_test(oracle_check_a_lie_is_named_and_nothing_else),
    cmocka_unit_test(oracle_check_an_unwritten_element_is_noticed),
    cmocka_unit_test(oracle_check_a_key_read_beyond_the_end_is_noticed),
    cmocka_unit_test(oracle_check_skips_what_is_not_declared),
    cmocka_unit_test(oracle_check_kernel_failure_at_every_call_is_passed_on),
    cmocka_unit_test(oracle_check_allocation_failure_at_every_point_leaks_nothing),
    cmocka_unit_test(oracle_check_null_oracle_is_refused),
    cmocka_unit_test(oracle_check_works_without_report_count_and_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
