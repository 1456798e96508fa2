/* The options of sampling: each bad one is refused with its name, the largest good ones are taken, zeros mean the defaults. */
#include "support.h"

typedef struct arguments_row {
  const char *word; /* NULL: the options are good */
  twh_status  status;
  int32_t     method;
  uint64_t    seed;
  int64_t     samples, strata, sinks, window;
} arguments_row;

enum { NO = TWH_METHOD_EXACT, ALL = TWH_METHOD_SAMPLED, SOME = TWH_METHOD_HYBRID, BAD = TWH_E_ARGUMENT };

#define MOST_BLOCKS ((int64_t)1 << 20)
#define MOST_KEYS   ((int64_t)1 << 60)

static const arguments_row arguments_rows[] = {
  { "options.method", TWH_E_VERSION, SOME + 1, 0, 0, 0, 0, 0 },
  { "options.method", TWH_E_VERSION, INT32_MIN, 0, 0, 0, 0, 0 },
  { "options.seed", BAD, NO, (uint64_t)1 << 63, 0, 0, 0, 0 },
  { "options.samples", BAD, NO, 0, 1, 0, 0, 0 },
  { "options.strata", BAD, NO, 0, 0, 1, 0, 0 },
  { "options.exact_sinks", BAD, NO, 0, 0, 0, 1, 0 },
  { "options.exact_window", BAD, NO, 0, 0, 0, 0, 1 },
  { "options.samples", BAD, ALL, 0, -1, 0, 0, 0 },
  { "options.samples", BAD, SOME, 0, MOST_BLOCKS + 1, 0, 0, 0 },
  { "options.samples", BAD, ALL, 0, INT64_MIN, 0, 0, 0 },
  { "options.strata", BAD, ALL, 0, 0, -1, 0, 0 },
  { "options.strata", BAD, SOME, 0, 0, INT64_MAX, 0, 0 },
  { "options.samples", BAD, ALL, 0, 1, 2, 0, 0 },
  { "options.samples", BAD, SOME, 0, 7, 3, 0, 0 },
  { "options.exact_sinks", BAD, ALL, 0, 0, 0, 1, 0 },
  { "options.exact_window", BAD, ALL, 0, 0, 0, 0, 1 },
  { "options.exact_sinks", BAD, SOME, 0, 0, 0, -1, 0 },
  { "options.exact_window", BAD, SOME, 0, 0, 0, 0, -1 },
  { "options.exact_sinks", BAD, SOME, 0, 0, 0, MOST_KEYS + 1, 0 },
  { "options.exact_window", BAD, SOME, 0, 0, 0, 0, INT64_MAX },
  { NULL, TWH_OK, NO, 0, 0, 0, 0, 0 },
  { NULL, TWH_OK, ALL, UINT64_MAX, MOST_BLOCKS, MOST_BLOCKS, 0, 0 },
  { NULL, TWH_OK, SOME, 0, 6, 3, MOST_KEYS, MOST_KEYS },
};

typedef struct arguments_setup {
  twh_problem      problem;
  twh_pattern      pattern;
  twh_oracle_desc  desc;
  twh_plan_options options;
} arguments_setup;

static void arguments_init(arguments_setup *s, int64_t length, uint32_t modes)
{
  memset(s, 0, sizeof *s);
  twh_pattern_init(&s->pattern);
  twh_problem_init(&s->problem);
  s->problem.batch = s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.q_len = s->problem.k_len = length;
  s->problem.qk_dim = s->problem.v_dim = 4;
  s->problem.pattern = &s->pattern;
  twh_oracle_desc_init(&s->desc);
  s->desc.slots = 1;
  s->desc.q_len = s->desc.k_len = 8;
  s->desc.qk_dim = 4;
  s->desc.v_dim = 5;
  s->desc.dtype = TWH_F32;
  s->desc.mask_modes = modes;
  s->desc.scale = 0.5;
  twh_plan_options_init(&s->options);
}

/* What planning returns; info may be NULL. */
static twh_status arguments_try(const arguments_setup *s, twh_plan_info *info, twh_error *error)
{
  twh_oracle *oracle = NULL;
  twh_plan   *plan = NULL;
  twh_status  status;
  assert_int_equal(twh_reference_oracle_create(NULL, &s->desc, NULL, &oracle, NULL), TWH_OK);
  status = twh_plan_create(NULL, &s->problem, &oracle, 1, &s->options, &plan, error);
  assert_true((plan != NULL) == (status >= 0));
  if (plan && info) {
    twh_plan_info_init(info);
    assert_int_equal(twh_plan_get_info(plan, info, NULL), TWH_OK);
  }
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  return status;
}

static void bad_options_are_refused_by_name(void **state)
{
  static const int64_t lengths[] = { 0, 5, 500 };
  int64_t              i, l;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(arguments_rows); ++i)
    for (l = 0; l < SUPPORT_COUNT(lengths); ++l) {
      const arguments_row *row = &arguments_rows[i];
      arguments_setup      s;
      twh_error            error;
      twh_error_init(&error);
      arguments_init(&s, lengths[l], TWH_MASK_NONE);
      s.options.method = row->method;
      s.options.seed = row->seed;
      s.options.samples = row->samples;
      s.options.strata = row->strata;
      s.options.exact_sinks = row->sinks;
      s.options.exact_window = row->window;
      support_assert_status(arguments_try(&s, NULL, &error), row->status, &error, row->word);
    }
}

static void a_mask_tensor_cannot_be_sampled(void **state)
{
  static const int32_t dtypes[] = { TWH_BOOL, TWH_F32 };
  int64_t              i;
  int32_t              method;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(dtypes); ++i)
    for (method = NO; method <= SOME; ++method) {
      arguments_setup s;
      twh_error       error;
      twh_error_init(&error);
      arguments_init(&s, 100, TWH_MASK_TENSOR);
      s.problem.mask_dtype = dtypes[i];
      s.options.method = method;
      support_assert_status(arguments_try(&s, NULL, &error), method == NO ? TWH_OK : TWH_E_UNSUPPORTED, &error, "mask");
    }
}

static void zeros_mean_the_defaults(void **state)
{
  arguments_setup s;
  twh_plan_info   zero, said;
  (void)state;
  arguments_init(&s, 400, TWH_MASK_NONE);
  s.options.method = ALL;
  assert_int_equal(arguments_try(&s, &zero, NULL), TWH_OK);
  s.options.samples = s.options.strata = 1;
  assert_int_equal(arguments_try(&s, &said, NULL), TWH_OK);
  assert_int_equal(zero.calls, 50);
  assert_memory_equal(&zero, &said, sizeof zero);
  s.options.samples = 0; /* as many as strata */
  s.options.strata = 3;
  assert_int_equal(arguments_try(&s, &zero, NULL), TWH_OK);
  assert_int_equal(zero.calls, 150);
  s.options.method = SOME;
  s.options.strata = 0;
  assert_int_equal(arguments_try(&s, &zero, NULL), TWH_OK);
  s.options.exact_sinks = 1;
  assert_int_equal(arguments_try(&s, &said, NULL), TWH_OK);
  assert_memory_equal(&zero, &said, sizeof zero);
  assert_int_equal(zero.calls, 50 * 3 - 1); /* first keys, own ones and drawn ones; the first unit's own are the first */
}

/* Blocks and keys without end are all keys. */
static void the_largest_options_leave_nothing_to_draw(void **state)
{
  static const int64_t lengths[] = { 1, 8, 9, 400 };
  int64_t              i;
  uint32_t             pattern;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(lengths); ++i)
    for (pattern = 0; pattern < 2; ++pattern) {
      arguments_setup s;
      twh_plan_info   exact, all;
      arguments_init(&s, lengths[i], TWH_MASK_NONE | TWH_MASK_CAUSAL);
      s.pattern.flags = pattern ? TWH_CAUSAL : 0;
      assert_int_equal(arguments_try(&s, &exact, NULL), TWH_OK);
      s.options.method = ALL;
      s.options.samples = MOST_BLOCKS;
      assert_int_equal(arguments_try(&s, &all, NULL), TWH_OK);
      assert_int_equal(all.drawn_tiles, 0);
      assert_int_equal(all.calls, exact.calls);
      s.options.method = SOME;
      s.options.samples = 1;
      s.options.exact_sinks = MOST_KEYS;
      assert_int_equal(arguments_try(&s, &all, NULL), TWH_OK);
      assert_int_equal(all.drawn_tiles, 0);
      assert_int_equal(all.calls, exact.calls);
      s.options.exact_sinks = 0;
      s.options.exact_window = MOST_KEYS;
      assert_int_equal(arguments_try(&s, &all, NULL), TWH_OK);
      assert_int_equal(all.drawn_tiles, 0);
      assert_int_equal(all.calls, exact.calls);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bad_options_are_refused_by_name),
    cmocka_unit_test(a_mask_tensor_cannot_be_sampled),
    cmocka_unit_test(zeros_mean_the_defaults),
    cmocka_unit_test(the_largest_options_leave_nothing_to_draw),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
