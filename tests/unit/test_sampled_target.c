/* target_error: blocks of rows whose estimated errors are too large are computed exactly, with the bits of an exact plan; all others keep
 * theirs, however it is run; calls are counted and bounded. */
#include "support_target.h"

enum { TARGET_RANDOM = SUPPORT_SANITIZED ? 25 : 80 };

enum {
  N = TWH_MASK_NONE,
  C = TWH_MASK_CAUSAL,
  B = TWH_MASK_NONE | TWH_MASK_CAUSAL,
  LSE = TWH_ORACLE_LSE,
  DOUBLED = TWH_ESTIMATE_DOUBLED,
  REPLICATES = TWH_ESTIMATE_REPLICATES
};

/* Data on which sampling fails are computed within twice the target, and the run says that they are such data. */
static void data_that_cannot_be_sampled_are_computed_exactly(void **state)
{
  int i;
  (void)state;
  for (i = 0; i < (int)support_target_count; ++i) {
    static support_target_setup t;
    double                      errors[SUPPORT_TARGET_ROWS], exact_errors[SUPPORT_TARGET_ROWS], lengths[SUPPORT_TARGET_ROWS];
    int64_t                     r, exact;
    support_target_begin(&t, &support_target_cases[i], 0, NULL, 30 + (uint64_t)i);
    support_estimate_execute(&t.with);
    exact = support_target_check_rows(&t, i);
    support_target_check_calls(&t, i, exact);
    if (exact < t.rows / 2) fail_msg("case %d: %d exact rows of %d", i, (int)exact, (int)t.rows);
    support_estimate_compare(&t.with, errors, lengths);
    support_estimate_compare(&t.exact, exact_errors, NULL); /* what the kernel's dtype loses: with such logits much in bf16 */
    for (r = 0; r < t.rows; ++r)
      if (!(errors[r] <= 0.02 * lengths[r]) && !(support_target_cases[i].dtype != TWH_F32 && errors[r] == exact_errors[r]))
        fail_msg("case %d, row %d: error %g of %g", i, (int)r, errors[r], lengths[r]);
    assert_int_equal(t.with.stats.assumption, TWH_ASSUMPTION_BROKEN);
    assert_non_null(strstr(t.with.stats.words, "samples"));
    assert_true(t.with.stats.samples_needed > 2);
    support_target_end(&t);
  }
}

/* Of mild data only some blocks. */
static void only_blocks_beyond_the_target_are_computed_again(void **state)
{
  static const double quantiles[] = { 0.5, 0.9, 0.98 };
  int                 i, q;
  (void)state;
  for (i = 0; i < (int)support_target_count; ++i)
    for (q = 0; q < 3; ++q) {
      static support_target_setup t;
      support_target_case         mild = support_target_cases[i];
      int64_t                     exact;
      mild.std = 0.5;
      support_target_begin(&t, &mild, quantiles[q], NULL, 50 + (uint64_t)i);
      support_estimate_execute(&t.with);
      exact = support_target_check_rows(&t, i);
      support_target_check_calls(&t, i, exact);
      if (exact == 0 || (q == 2 && exact > t.rows * 3 / 4))
        fail_msg("case %d: %d exact rows of %d", i, (int)exact, (int)t.rows);
      support_target_end(&t);
    }
}

/* Problems, kernels and targets of all kinds; number 0 and on, or one by TWH_CASE. */
static void target_make(support_target_case *c, support_random *random)
{
  static const int32_t  dtypes[] = { TWH_F32, TWH_F32, TWH_BF16, TWH_F16 };
  static const uint32_t modes[] = { N, B, B, C };
  static const uint32_t flags[] = { TWH_ORACLE_STRIDED, TWH_ORACLE_FEWER_ROWS, TWH_ORACLE_FEWER_KEYS, TWH_ORACLE_FEWER_SLOTS,
                                    0 };
  memset(c, 0, sizeof *c);
  c->std = 0.2 + 2 * support_uniform(random);
  c->dtype = dtypes[support_below(random, 4)];
  c->causal = support_one_in(random, 2);
  c->hybrid = support_one_in(random, 3);
  c->ragged = support_one_in(random, 4);
  c->masks = modes[support_below(random, 4)];
  c->estimate = c->masks == C || support_one_in(random, 2) ? DOUBLED : REPLICATES;
  c->flags = flags[support_below(random, 5)] | flags[support_below(random, 5)] | (support_one_in(random, 3) ? LSE : 0);
  c->spare = support_below(random, 4) - (support_one_in(random, 5) ? 6 : 0);
  c->slots = support_one_in(random, 2) ? 1 : support_between(random, 2, 7);
  c->kv_heads = support_between(random, 1, 2);
  c->q_heads = c->kv_heads * support_between(random, 1, 3);
  c->m = support_between(random, 3, 12);
  c->length = support_between(random, c->m, 8 * c->m);
  c->coordinates = (c->causal && c->masks == N) || support_one_in(random, 5) ? 16 : 0;
  if (c->coordinates && support_one_in(random, 2)) c->problem_flags = TWH_PROBLEM_ALIBI;
  c->samples = support_between(random, c->estimate == REPLICATES ? 2 : 1, 3);
  c->batch_calls = support_one_in(random, 2) ? 0 : support_between(random, 1, 5);
  c->limit = support_one_in(random, 2) ? 0 : support_between(random, 1, 100000);
}

static void random_problems_keep_and_recompute_what_they_should(void **state)
{
  const char *one = getenv("TWH_CASE");
  uint64_t seed = support_seed(51), number = one ? strtoull(one, NULL, 0) : 0, end = one ? number + 1 : (uint64_t)TARGET_RANDOM;
  int64_t  some = 0;
  (void)state;
  for (; number < end; ++number) {
    static support_target_setup t;
    support_random              random = support_random_at(seed, number);
    support_target_case         c;
    support_memory              memory;
    int64_t                     threads = support_below(&random, 2) * 3, exact;
    twh_context                *context = support_context(&memory, threads, threads > 0 ? threads : 1);
    target_make(&c, &random);
    support_target_begin(&t, &c, 0.05 + 0.94 * support_uniform(&random), context, number);
    support_estimate_execute(&t.with);
    exact = support_target_check_rows(&t, (int)number);
    support_target_check_calls(&t, (int)number, exact);
    some += exact > 0 && exact < t.rows;
    support_target_end(&t);
    twh_context_destroy(context);
    if (memory.live_blocks != 0 || memory.wrong_releases != 0) fail_msg("case %d: memory was not released", (int)number);
  }
  if (!one) assert_true(some > TARGET_RANDOM / 3);
}

/* A target that all rows keep costs nothing, and neither does one where nothing is drawn. */
static void a_target_that_is_kept_costs_nothing(void **state)
{
  static support_target_setup t;
  support_target_case         mild = support_target_cases[0];
  support_estimate            s;
  (void)state;
  mild.std = 0.5;
  support_target_begin(&t, &mild, 0.5, NULL, 1);
  support_estimate_end(&t.with);
  support_target_init(&t.with, &mild);
  t.with.options.target_error = 1e6;
  support_estimate_begin(&t.with, NULL, 1);
  support_estimate_execute(&t.with);
  assert_int_equal(support_target_check_rows(&t, 0), 0);
  assert_int_equal(t.with.stats.calls, t.without.stats.calls);
  support_target_end(&t);
  support_estimate_init(&s, 100, SUPPORT_TARGET_M, SUPPORT_TARGET_DIM);
  s.options.samples = 50;
  s.options.target_error = 1e-6;
  support_estimate_begin(&s, NULL, 1);
  support_estimate_execute(&s);
  assert_int_equal(s.info.exact_calls_max, 0);
  assert_int_equal(s.stats.exact_rows, 0);
  support_estimate_end(&s);
}

/* The same bits, and the same rows, whatever the threads, the batches and the workspace. */
static void results_are_the_same_bits_however_they_are_computed(void **state)
{
  int c, i;
  (void)state;
  for (c = 0; c < (int)support_target_count; ++c)
    for (i = 0; i < 3; ++i) {
      static support_target_setup t;
      support_target_case         mild = support_target_cases[c];
      support_memory              memory;
      twh_context                *context = support_context(&memory, i ? 4 : 0, i ? 4 : 1);
      double                      target;
      mild.std = 0.5;
      support_target_begin(&t, &mild, 0.8, NULL, 70 + (uint64_t)c);
      target = t.with.options.target_error;
      support_estimate_end(&t.with);
      support_target_init(&t.with, &mild);
      t.with.options.target_error = target;
      t.with.options.max_calls_per_batch = i == 1 ? 1 : 5;
      t.with.options.workspace_limit = i == 1 ? 0 : 1;
      support_estimate_begin(&t.with, context, 70 + (uint64_t)c);
      t.with.tensors.all.error = i == 2 ? NULL : &t.with.error; /* wanted or not */
      support_estimate_execute(&t.with);
      if (i < 2) (void)support_target_check_rows(&t, c);
      support_target_end(&t);
      twh_context_destroy(context);
      assert_int_equal(memory.live_blocks, 0);
      assert_int_equal(memory.wrong_releases, 0);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(data_that_cannot_be_sampled_are_computed_exactly),
    cmocka_unit_test(only_blocks_beyond_the_target_are_computed_again),
    cmocka_unit_test(random_problems_keep_and_recompute_what_they_should),
    cmocka_unit_test(a_target_that_is_kept_costs_nothing),
    cmocka_unit_test(results_are_the_same_bits_however_they_are_computed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
