/* The check of a kernel against its own description: a kernel that breaks one promise is told which, a kernel or a memory that
 * fails leaves nothing behind. */
#include "support_liar.h"

enum { F = TWH_ORACLE_LSE, GOES_ON = TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES };
enum { M_N = TWH_MASK_NONE, M_C = TWH_MASK_CAUSAL, M_T = TWH_MASK_TENSOR };
enum { TURNS = TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS | TWH_ORACLE_FEWER_ROWS }; /* enough to see rows go backwards */

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
  { "mask up to position 16", MASK_UP_TO_16, 0, M_N | M_T, TWH_F32, TWH_BOOL, 0, 0, "mask positions;", "softmax;mask values;" },
  { "mask up to position 16, f16", MASK_UP_TO_16, 0, M_N | M_T, TWH_F16, TWH_F16, 0, 0,
    "mask positions;", "softmax;mask values;" },
  { "one key shines through", MASK_KEY_19_LEAKS, 0, M_T, TWH_BF16, TWH_BOOL, 0, 0, "mask positions;", "softmax;mask values;" },
  { "one key never seen", MASK_KEY_19_MISSING, 0, M_N | M_T, TWH_BF16, TWH_BOOL, 0, 0, "mask positions;", "softmax;mask values;" },
  { "additive read as boolean", MASK_VALUES_IGNORED, 0, M_N | M_T, TWH_F32, TWH_F32, 0, 0, "mask values;", "softmax;" },
  { "only byte 1 shows a key", MASK_BYTE_IS_ONE, 0, M_N | M_T, TWH_F32, TWH_BOOL, 0, 0, "mask values;", "" },
  { "a mask value that hides nothing", HONEST, 0, M_N | M_T, TWH_F32, 0, 0, -3, "softmax;mask positions;", "" },
  { "causal without the diagonal", CAUSAL_STRICT, 0, M_N | M_C, TWH_F32, 0, 0, 0, "causal;", "softmax;" },
  { "causal with one key more", CAUSAL_ONE_MORE, 0, M_N | M_C, TWH_BF16, 0, 0, 0, "causal;", "softmax;" },
  { "causal ignored", CAUSAL_NOT_AT_ALL, 0, M_N | M_C, TWH_F16, 0, 0, 0, "causal;", "softmax;" },
  { "causal counts from the end", CAUSAL_FROM_THE_END, TWH_ORACLE_FEWER_KEYS, M_N | M_C, TWH_F32, 0, 0, 0, "fewer keys;", "" },
  { "causal from the end, rows", CAUSAL_FROM_THE_END, TWH_ORACLE_FEWER_ROWS, M_N | M_C, TWH_F32, 0, 0, 0, "fewer rows;", "" },
  { "the last of fewer rows", ROWS_AS_DECLARED, TWH_ORACLE_FEWER_ROWS, M_N, TWH_F32, 0, 0, 0, "fewer rows;every element;", "" },
  { "missing keys are zeros", KEYS_PADDED_WITH_ZEROS, TWH_ORACLE_FEWER_KEYS, M_N, TWH_F32, 0, 0, 0, "fewer keys;", "" },
  { "fewer slots are one", SLOTS_SHIFTED, TWH_ORACLE_FEWER_SLOTS, M_N, TWH_F32, 0, 0, 0, "fewer slots;", "" },
  { "strides ignored", STRIDES_AS_DECLARED, TWH_ORACLE_STRIDED, M_N, TWH_F32, 0, 0, 0, "strides;", "every element;margins;" },
  { "strides of the mask ignored", MASK_STRIDES_DENSE, TWH_ORACLE_STRIDED, M_N | M_T, TWH_F32, TWH_BOOL, 0, 0, "strides;", "" },
  { "a slot stride of 0 ignored", SHARED_SLOTS_UNKNOWN, TWH_ORACLE_STRIDED, M_N, TWH_F32, 0, 0, 0, "strides;", "" },
  { "backwards as declared", BACKWARDS_AS_DECLARED, TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS, M_N, TWH_F32, 0, 0, 0,
    "strides;", "" },
  { "backwards as forwards", BACKWARDS_AS_FORWARDS, TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS, M_N, TWH_F32, 0, 0, 0,
    "strides;", "" },
  { "backwards as forwards, f16", BACKWARDS_AS_FORWARDS, TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS, M_C | M_T, TWH_F16, 0, 0, 0,
    "strides;", "" },
  { "backwards not declared", BACKWARDS_AS_FORWARDS, TWH_ORACLE_STRIDED, M_N, TWH_F32, 0, 0, 0, "", "" },
  { "continues nothing", CONTINUES_NOT_AT_ALL, GOES_ON, M_N, TWH_F32, 0, 0, 0, "continues;", "" },
  { "continues nothing, f16", CONTINUES_NOT_AT_ALL, GOES_ON, M_C | M_T, TWH_F16, 0, 0, 0, "continues;", "" },
  { "continues in base 2", CONTINUES_IN_OTHER_BASE, GOES_ON, M_N, TWH_F32, 0, 0, 0, "continues;", "" },
  { "continues in base e", CONTINUES_IN_OTHER_BASE, GOES_ON | TWH_ORACLE_LSE_BASE2, M_C, TWH_BF16, 0, 0, 0, "continues;", "" },
  { "continues forwards", CONTINUES_FORWARDS, GOES_ON | TURNS, M_N, TWH_F32, 0, 0, 0, "continues;", "" },
  { "continues forwards, bf16", CONTINUES_FORWARDS, GOES_ON | TURNS, M_C | M_T, TWH_BF16, 0, 0, 0, "continues;", "" },
  { "continues forwards what never turns", CONTINUES_FORWARDS, GOES_ON | TWH_ORACLE_STRIDED, M_N, TWH_F32, 0, 0, 0, "", "" },
  { "a state that sees no key is lost", CONTINUES_LOSES_EMPTY, GOES_ON, M_T, TWH_F32, 0, 0, 0, "continues;", "" },
  { "a state that sees no key is lost, f16", CONTINUES_LOSES_EMPTY, GOES_ON | TWH_ORACLE_EMPTY_LSE_POS_INF, M_N | M_T,
    TWH_F16, TWH_BOOL, 0, 0, "continues;", "" },
  { "an empty state counts as one key", CONTINUES_TAKES_EMPTY, GOES_ON, M_N | M_T, TWH_F32, 0, 0, 0, "continues;", "" },
  { "sums of a state beyond f32", CONTINUES_OVERFLOWS, GOES_ON, M_N, TWH_F32, 0, 0, 0, "continues;", "" },
  { "continues nothing, not declared", CONTINUES_NOT_AT_ALL, F, M_N, TWH_F32, 0, 0, 0, "", "" },
  { "one key alone is halved", ONE_KEY_HALVED, TWH_ORACLE_FEWER_KEYS, M_N, TWH_F32, 0, 0, 0, "fewer keys;", "" },
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

static void liar_assert_found(const twh_oracle_desc *desc, liar_lie lie, const char *promise)
{
  verdicts all;
  liar     it;
  liar_create(&it, desc, lie);
  (void)verdicts_get(&all, it.oracle);
  twh_oracle_destroy(it.oracle);
  if (verdicts_within(promise, all.untrue, "")) return;
  print_error("untrue is \"%s\", expected \"%s\"\n%s\n", all.untrue, promise, all.details);
  fail();
}

static void oracle_check_mask_honoured_up_to_position_512_is_found(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(dtypes); ++i) {
    twh_oracle_desc desc;
    liar_desc(&desc);
    desc.k_len = 600;
    desc.dtype = dtypes[i];
    desc.mask_dtype = TWH_BOOL;
    desc.mask_modes = M_N | M_T;
    liar_assert_found(&desc, MASK_UP_TO_512, "mask positions;");
  }
}

/* One coordinate, two keys: there the shift is all that there is to see. */
static void oracle_check_mean_key_of_two_keys_is_found(void **state)
{
  twh_oracle_desc desc;
  (void)state;
  liar_desc(&desc);
  desc.slots = desc.qk_dim = desc.v_dim = 1;
  desc.q_len = desc.k_len = 2;
  desc.flags = TWH_ORACLE_LSE;
  desc.scale = 1;
  liar_assert_found(&desc, LSE_MEAN_KEY, "lse;key shift;");
}

/* With fewer rows than keys it takes several calls to show every key alone. */
static void oracle_check_mask_positions_are_covered_by_few_rows(void **state)
{
  (void)state;
  for (int64_t rows = 1; rows < 8; ++rows) {
    twh_oracle_desc desc;
    liar_desc(&desc);
    desc.slots = 1;
    desc.q_len = rows;
    desc.mask_modes = M_N | M_T;
    liar_assert_found(&desc, MASK_KEY_19_MISSING, "mask positions;");
    liar_assert_found(&desc, MASK_KEY_19_LEAKS, "mask positions;");
  }
}

static void oracle_check_underflow_is_seen_whatever_the_scale(void **state)
{
  static const double scales[] = { 1, -1, 0.125, -0.125, 1e-6, 50 };
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(scales); ++i) {
    twh_oracle_desc desc;
    liar_desc(&desc);
    desc.scale = scales[i];
    liar_assert_found(&desc, CLAMPED_WEIGHTS, "underflow;");
    desc.dtype = TWH_BF16;
    liar_assert_found(&desc, CLAMPED_WEIGHTS, "underflow;");
  }
}

/* Only a sample of many rows is evaluated: the first and the last always; and all of them are asked to be numbers. */
static void oracle_check_rows_between_the_samples_are_not_forgotten(void **state)
{
  twh_oracle_desc desc;
  (void)state;
  liar_desc(&desc);
  desc.q_len = 1000;
  liar_assert_found(&desc, LAST_ROW_WRONG, "softmax;");
  liar_assert_found(&desc, ROW_501_NOT_A_NUMBER, "large scores;");
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
  assert_string_equal(all.skipped,
                      "lse base;lse;scale per call;f16 scores;mask positions;mask values;causal;empty rows;fewer rows;"
                      "fewer keys;fewer slots;strides;continues;batch;");
  assert_int_equal(all.rows, 23);
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
  desc.flags = GOES_ON | TURNS | TWH_ORACLE_FEWER_KEYS;
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
  desc.flags = GOES_ON | TURNS | TWH_ORACLE_FEWER_KEYS;
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
    cmocka_unit_test(oracle_check_a_lie_is_named_and_nothing_else),
    cmocka_unit_test(oracle_check_mask_honoured_up_to_position_512_is_found),
    cmocka_unit_test(oracle_check_mean_key_of_two_keys_is_found),
    cmocka_unit_test(oracle_check_mask_positions_are_covered_by_few_rows),
    cmocka_unit_test(oracle_check_underflow_is_seen_whatever_the_scale),
    cmocka_unit_test(oracle_check_rows_between_the_samples_are_not_forgotten),
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
