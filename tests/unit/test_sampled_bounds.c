/* What is known of sampling before and after: bounds from constants of the data, which errors over many seeds keep; whether drawn
 * keys may stand for the others, in words where they may not; and how many would be enough. */
#include "support_estimate.h"

enum { BOUNDS_M = 16, BOUNDS_DIM = 8, BOUNDS_SEEDS = SUPPORT_SANITIZED ? 20 : 200 };

/* ---- the bound beforehand ---- */

typedef struct bounds_row {
  int64_t length, m, samples;
  int     causal, hybrid;
  double  c, d, factor;
} bounds_row;

static const bounds_row bounds_rows[] = {
  { 600, 16, 1, 0, 0, 1, 1, 1 },  { 600, 16, 4, 0, 0, 3, 2, 1 },    { 600, 64, 1, 0, 0, 1.5, 7, 1 },
  { 600, 16, 2, 1, 0, 2, 3, 2 },  { 600, 16, 1, 0, 1, 1.25, 1, 2 }, { 600, 64, 3, 1, 1, 10, 9, 2 },
  { 601, 16, 3, 0, 0, 2, 2, 1 },  { 100, 16, 50, 0, 0, 3, 2, 0 },   { 600, 16, 1, 0, 0, 0, 0, 0 },
  { 100, 128, 1, 1, 0, 3, 2, 0 },
};

static void the_bound_is_the_theorems(void **state)
{
  int64_t i, lse;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(bounds_rows); ++i)
    for (lse = 0; lse < 2; ++lse) {
      const bounds_row *row = &bounds_rows[i];
      support_estimate  s;
      double want = row->factor * row->c * row->c * (1 + row->d) * sqrt(2 * log(40.0) / (double)(row->samples * row->m));
      support_estimate_init(&s, row->length, row->m, BOUNDS_DIM);
      s.pattern.flags = row->causal ? TWH_CAUSAL : 0;
      s.desc.flags = lse ? TWH_ORACLE_LSE : 0;
      s.options.method = row->hybrid ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
      s.options.estimate = TWH_ESTIMATE_NONE;
      s.options.samples = row->samples;
      s.options.bound_c = row->c;
      s.options.bound_d = row->d;
      support_estimate_begin(&s, NULL, 1);
      if (!(fabs(s.info.error_bound - want) <= 1e-12 * want)) fail_msg("row %d: %g, not %g", (int)i, s.info.error_bound, want);
      support_estimate_end(&s);
    }
}

static void bad_bounds_are_refused_by_name(void **state)
{
  static const struct {
    double      c, d;
    int32_t     method;
    twh_status  status;
    const char *word;
  } rows[] = { { 2, 0, TWH_METHOD_SAMPLED, TWH_E_ARGUMENT, "options.bound_d" },
               { 0, 2, TWH_METHOD_HYBRID, TWH_E_ARGUMENT, "options.bound_c" },
               { 0.99, 2, TWH_METHOD_SAMPLED, TWH_E_ARGUMENT, "options.bound_c" },
               { 2, 0.5, TWH_METHOD_SAMPLED, TWH_E_ARGUMENT, "options.bound_d" },
               { -2, 2, TWH_METHOD_SAMPLED, TWH_E_ARGUMENT, "options.bound_c" },
               { (double)NAN, 2, TWH_METHOD_SAMPLED, TWH_E_ARGUMENT, "options.bound_c" },
               { 2, (double)INFINITY, TWH_METHOD_HYBRID, TWH_E_ARGUMENT, "options.bound_d" },
               { 2, 2, TWH_METHOD_EXACT, TWH_E_ARGUMENT, "options.bound_c" },
               { 1, 1, TWH_METHOD_SAMPLED, TWH_OK, NULL } };
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(rows); ++i) {
    support_estimate s;
    twh_oracle      *oracle = NULL;
    twh_plan        *plan = NULL;
    twh_error        error;
    twh_error_init(&error);
    support_estimate_init(&s, 100, BOUNDS_M, BOUNDS_DIM);
    s.options.method = rows[i].method;
    s.options.estimate = TWH_ESTIMATE_NONE;
    s.options.bound_c = rows[i].c;
    s.options.bound_d = rows[i].d;
    assert_int_equal(twh_reference_oracle_create(NULL, &s.desc, NULL, &oracle, NULL), TWH_OK);
    support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), rows[i].status, &error,
                          rows[i].word);
    twh_plan_destroy(plan);
    twh_oracle_destroy(oracle);
  }
}

/* C and D of data: e^(half the widest range of a row's logits), and the longest value row by the shortest result. */
static void bounds_of_data(const support_estimate *s, const double *lengths, double *c, double *d)
{
  double  widest = 0, longest = 0, shortest = (double)INFINITY, scale = support_scale(&s->problem);
  int64_t i, j, k;
  for (i = 0; i < s->rows; ++i) {
    double least = (double)INFINITY, most = -(double)INFINITY;
    for (j = 0; j < s->problem.k_len && (j <= i || !(s->pattern.flags & TWH_CAUSAL)); ++j) {
      double score = 0;
      for (k = 0; k < BOUNDS_DIM; ++k)
        score += scale * support_at(&s->tensors.q, 0, 0, i, k) * support_at(&s->tensors.k, 0, 0, j, k);
      least = fmin(least, score);
      most = fmax(most, score);
    }
    widest = fmax(widest, most - least);
    shortest = fmin(shortest, lengths[i]);
  }
  for (j = 0; j < s->problem.k_len; ++j) {
    double squares = 0;
    for (k = 0; k < s->problem.v_dim; ++k)
      squares += support_at(&s->tensors.v, 0, 0, j, k) * support_at(&s->tensors.v, 0, 0, j, k);
    longest = fmax(longest, sqrt(squares));
  }
  *c = exp(widest / 2);
  *d = longest / shortest;
}

typedef struct bounds_trial {
  const char *name;
  int         causal, hybrid;
  double      std, mean;
  int64_t     two;   /* > 0: values are mean, and minus mean for one key in `two` */
  double      least; /* that part of the bound the largest error must be */
} bounds_trial;

static const bounds_trial bounds_trials[] = {
  { "full", 0, 0, 0.3, 10, 0, 1e-4 },
  { "full, near zero", 0, 0, 0.1, 0.5, 0, 0.05 },
  { "full, two values", 0, 0, 0.01, 1, 4, 0.5 },
  { "causal", 1, 0, 0.3, 10, 0, 1e-4 },
  { "hybrid", 0, 1, 0.3, 10, 0, 1e-4 },
  { "both, two values", 1, 1, 0.05, 1, 4, 0.1 },
};

static void bounds_begin_trial(support_estimate *s, const bounds_trial *trial, uint64_t number)
{
  support_random random = support_random_at(9, number);
  int64_t        r, c;
  support_estimate_init(s, 256, BOUNDS_M, BOUNDS_DIM);
  s->pattern.flags = trial->causal ? TWH_CAUSAL : 0;
  s->fill.logit_std = trial->std;
  s->fill.value_mean = trial->mean;
  s->options.method = trial->hybrid ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
  s->options.estimate = TWH_ESTIMATE_NONE;
  support_estimate_begin(s, NULL, 7);
  for (r = 0; r < 256 && trial->two > 0; ++r) {
    int minus = support_one_in(&random, trial->two);
    for (c = 0; c < BOUNDS_DIM; ++c) support_set(&s->tensors.v, 0, 0, r, c, minus ? -trial->mean : trial->mean);
  }
}

/* Another draw: how many rows are beyond the bound, and what the largest error is. */
static void bounds_try(support_estimate *s, const support_answer *truth, const double *lengths, int64_t *beyond,
                       double *largest)
{
  int64_t r, c;
  twh_plan_destroy(s->plan);
  ++s->options.seed;
  assert_int_equal(twh_plan_create(NULL, &s->problem, &s->oracle.oracle, 1, &s->options, &s->plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_get_info(s->plan, &s->info, NULL), TWH_OK);
  support_estimate_execute(s);
  assert_true(s->stats.measured_c <= s->options.bound_c);
  for (r = 0; r < s->rows; ++r) {
    double squares = 0, relative;
    for (c = 0; c < BOUNDS_DIM; ++c) {
      double error = support_at(&s->tensors.out, 0, 0, r, c) - truth->out[r * BOUNDS_DIM + c];
      squares += error * error;
    }
    relative = sqrt(squares) / lengths[r];
    *beyond += !(relative <= s->info.error_bound);
    *largest = fmax(*largest, relative);
  }
}

/* Of plans whose data keep C and D no more rows are beyond the bound than it says, over many seeds. Where weights are next to equal and
 * values of two kinds, as far apart as C and D allow, the largest error is a sizeable part of it. */
static void errors_keep_the_bound(void **state)
{
  int64_t i, seed;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(bounds_trials); ++i) {
    const bounds_trial *trial = &bounds_trials[i];
    double              lengths[256], errors[256], largest = 0;
    support_answer      truth;
    support_estimate    s;
    int64_t             beyond = 0;
    bounds_begin_trial(&s, trial, (uint64_t)i);
    support_estimate_execute(&s);
    support_answer_truth(&truth, &s.problem, &s.tensors);
    support_estimate_compare(&s, errors, lengths);
    bounds_of_data(&s, lengths, &s.options.bound_c, &s.options.bound_d);
    s.options.bound_c *= 1.0001; /* the check reads queries as the kernel gets them */
    for (seed = 0; seed < BOUNDS_SEEDS; ++seed) bounds_try(&s, &truth, lengths, &beyond, &largest);
    if (getenv("TWH_VERBOSE"))
      print_message("%s: C %g, D %g, bound %g, largest error %g, beyond %d\n", trial->name, s.options.bound_c,
                    s.options.bound_d, s.info.error_bound, largest, (int)beyond);
    if (!((double)beyond <= 0.05 * 256 * BOUNDS_SEEDS)) fail_msg("%s: %d rows beyond the bound", trial->name, (int)beyond);
    if (!(largest > trial->least * s.info.error_bound))
      fail_msg("%s: the largest error is %g, the bound %g", trial->name, largest, s.info.error_bound);
    support_answer_destroy(&truth);
    support_estimate_end(&s);
  }
}

/* ---- the check afterwards ---- */

enum { CHECK_M = 64, CHECK_DIM = 32, CHECK_ROWS = 1024 };

static void check_init(support_estimate *s, double std, int causal, int hybrid)
{
  support_estimate_init(s, CHECK_ROWS, CHECK_M, 4);
  s->pattern.flags = causal ? TWH_CAUSAL : 0;
  s->problem.qk_dim = s->desc.qk_dim = CHECK_DIM;
  s->desc.scale = 0.2;
  s->fill.logit_std = std;
  s->options.method = hybrid ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
  s->options.estimate = TWH_ESTIMATE_NONE;
}

static void mild_data_hold_and_wild_data_are_told_of(void **state)
{
  static const double stds[] = { 0.3, 1, 4 };
  int64_t             i, seed;
  int                 way;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(stds); ++i)
    for (way = 0; way < 4; ++way)
      for (seed = 0; seed < 2; ++seed) {
        support_estimate     s;
        const twh_run_stats *stats = &s.stats;
        check_init(&s, stds[i], way % 2, way / 2);
        support_estimate_begin(&s, NULL, 20 + (uint64_t)seed);
        support_estimate_execute(&s);
        if (stats->assumption != (i < 2 ? TWH_ASSUMPTION_HOLDS : TWH_ASSUMPTION_BROKEN))
          fail_msg("std %g, way %d: assumption %d: %s", stds[i], way, (int)stats->assumption, stats->words);
        if (!(stats->logit_std > 0.9 * stds[i] && stats->logit_std < 1.6 * stds[i]))
          fail_msg("std %g, way %d: measured %g", stds[i], way, stats->logit_std);
        assert_true(stats->measured_c > exp(stds[i]) && stats->measured_c < exp(5.5 * stds[i]));
        assert_true(stats->measured_d > 1 && stats->measured_d < 1000);
        if (i < 2) {
          assert_string_equal(stats->words, "");
          assert_int_equal(stats->samples_needed, 1);
        } else {
          assert_non_null(strstr(stats->words, "head 0"));
          assert_non_null(strstr(stats->words, "samples"));
          assert_true(stats->samples_needed > 10 && stats->samples_needed <= CHECK_ROWS / CHECK_M);
        }
        support_estimate_end(&s);
      }
}

/* Samples of 16 of n keys with which sums are off by 30% at most, logits of that standard deviation. */
static int64_t check_needed(double std, double n)
{
  double k2 = expm1(std * std);
  return (int64_t)fmax(1, ceil(k2 / (0.09 + k2 / n) / 16));
}

static void check_begin(support_estimate *s, double std, int64_t rows, int causal, int64_t samples)
{
  check_init(s, std, causal, 0);
  s->problem.q_len = rows;
  s->desc.q_len = s->desc.k_len = 16;
  s->options.samples = samples;
  support_estimate_begin(s, NULL, 3);
}

/* As many samples as are said to be needed are about enough, and the figures fit each other: of one block of rows exactly. */
static void samples_that_are_needed_are_enough(void **state)
{
  static const double stds[] = { 0.3, 1.2, 1.6, 1.8, 2.2, 5 };
  int64_t             i, needed;
  int                 causal;
  support_estimate    s;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(stds); ++i) {
    check_begin(&s, stds[i], 16, 0, 1);
    support_estimate_execute(&s);
    assert_int_equal(s.stats.samples_needed, check_needed(s.stats.logit_std, CHECK_ROWS));
    support_estimate_end(&s);
    for (causal = 0; causal < 2; ++causal) {
      check_begin(&s, stds[i], CHECK_ROWS, causal, 1);
      support_estimate_execute(&s);
      needed = s.stats.samples_needed;
      if (!causal && needed < check_needed(0.9 * stds[i], CHECK_ROWS)) fail_msg("std %g: %d samples", stds[i], (int)needed);
      assert_true(needed <= check_needed(s.stats.logit_std, CHECK_ROWS));
      assert_int_equal(s.stats.assumption, needed > 1 ? TWH_ASSUMPTION_BROKEN : TWH_ASSUMPTION_HOLDS);
      support_estimate_end(&s);
      check_begin(&s, stds[i], CHECK_ROWS, causal, 2 * needed); /* other pairs are checked, which may spread more */
      support_estimate_execute(&s);
      if (s.stats.assumption != (s.info.drawn_tiles > 0 ? TWH_ASSUMPTION_HOLDS : TWH_ASSUMPTION_UNCHECKED))
        fail_msg("std %g: assumption %d with %d samples: %s", stds[i], (int)s.stats.assumption, (int)s.options.samples,
                 s.stats.words);
      support_estimate_end(&s);
    }
  }
}

/* A few blocks of rows that cannot be sampled are told of among many that can. */
static void a_few_hard_blocks_are_enough(void **state)
{
  support_estimate s;
  int64_t          r, c;
  (void)state;
  check_begin(&s, 0.3, CHECK_ROWS, 0, 4);
  for (r = 0; r < CHECK_ROWS; ++r)
    for (c = 0; c < CHECK_DIM && r / 16 % 8 == 5; ++c)
      support_set(&s.tensors.q, 0, 0, r, c, 10 * support_at(&s.tensors.q, 0, 0, r, c));
  support_estimate_execute(&s);
  assert_int_equal(s.stats.assumption, TWH_ASSUMPTION_BROKEN);
  assert_true(s.stats.logit_std > 2.5 && s.stats.samples_needed > 8);
  support_estimate_end(&s);
}

/* Data that break what was stated of them are told of, whichever it is. */
static void stated_bounds_are_checked(void **state)
{
  static const struct {
    double      c, d;
    const char *word; /* NULL: they hold */
  } rows[] = { { 100, 100, NULL }, { 1.5, 100, "bound_c" }, { 100, 1.02, "bound_d" }, { 1.5, 1, "bound_c" } };
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(rows); ++i) {
    support_estimate s;
    check_init(&s, 0.5, 0, 0);
    s.fill.value_mean = 10;
    s.options.bound_c = rows[i].c;
    s.options.bound_d = rows[i].d;
    support_estimate_begin(&s, NULL, 5);
    support_estimate_execute(&s);
    assert_int_equal(s.stats.assumption, rows[i].word ? TWH_ASSUMPTION_BROKEN : TWH_ASSUMPTION_HOLDS);
    if (rows[i].word)
      assert_non_null(strstr(s.stats.words, rows[i].word));
    else
      assert_string_equal(s.stats.words, "");
    assert_true(s.stats.measured_c > 1.5 && s.stats.measured_c < 100 && s.stats.measured_d > 1.02 && s.stats.measured_d < 100);
    support_estimate_end(&s);
  }
}

/* Of several heads the worst counts, and is named; biases are logits too. */
static void the_worst_head_counts(void **state)
{
  int64_t head, r, c;
  (void)state;
  for (head = 0; head < 5; ++head) {
    support_estimate s;
    char             name[20];
    check_init(&s, 0.3, 1, 0);
    s.problem.q_len = s.problem.k_len = 512;
    s.desc.q_len = s.desc.k_len = 16;
    s.problem.q_heads = 4;
    s.problem.kv_heads = 2;
    s.problem.flags = TWH_PROBLEM_KEY_BIAS;
    s.desc.qk_dim += 16;
    s.key_bias = 0.1;
    support_estimate_begin(&s, NULL, 3);
    if (head < 4)
      for (r = 0; r < 512; ++r) { /* its queries, or the biases of its keys */
        if (head % 2) support_set(&s.tensors.key_bias, 0, head, r, 0, 30 * support_at(&s.tensors.key_bias, 0, head, r, 0));
        for (c = 0; c < CHECK_DIM && head % 2 == 0; ++c)
          support_set(&s.tensors.q, 0, head, r, c, 10 * support_at(&s.tensors.q, 0, head, r, c));
      }
    support_estimate_execute(&s);
    if (s.stats.assumption != (head < 4 ? TWH_ASSUMPTION_BROKEN : TWH_ASSUMPTION_HOLDS))
      fail_msg("head %d: %s", (int)head, s.stats.words);
    snprintf(name, sizeof name, "head %d:", (int)head);
    if (head < 4) assert_non_null(strstr(s.stats.words, name));
    support_estimate_end(&s);
  }
}

static void what_is_not_drawn_is_not_checked(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < 3; ++i) {
    support_estimate s;
    check_init(&s, 4, 0, 0);
    if (i == 0) s.options.samples = CHECK_ROWS;
    if (i == 1) s.options.method = TWH_METHOD_EXACT;
    if (i == 2) { /* nothing to compare a key with */
      s.problem.q_len = s.problem.k_len = 40;
      s.desc.k_len = 1;
      s.desc.flags = TWH_ORACLE_LSE;
    }
    support_estimate_begin(&s, NULL, 3);
    support_estimate_execute(&s);
    assert_int_equal(s.stats.assumption, TWH_ASSUMPTION_UNCHECKED);
    assert_int_equal(s.stats.samples_needed, 0);
    assert_string_equal(s.stats.words, "");
    support_estimate_end(&s);
  }
}

/* Logits that are no numbers say nothing of the others; values of any size are fine. */
static void what_is_not_finite_is_told_of(void **state)
{
  support_estimate s;
  int64_t          r, c;
  (void)state;
  check_init(&s, 0.3, 0, 0);
  support_estimate_begin(&s, NULL, 3);
  s.oracle.finite_only = 0;
  for (r = 0; r < CHECK_ROWS; ++r) support_set(&s.tensors.q, 0, 0, r, 1, (double)NAN);
  support_estimate_execute(&s);
  assert_int_equal(s.stats.assumption, TWH_ASSUMPTION_BROKEN);
  assert_non_null(strstr(s.stats.words, "not finite"));
  assert_true(s.stats.samples_needed >= 0);
  support_estimate_end(&s);
  check_init(&s, 0.3, 0, 0);
  support_estimate_begin(&s, NULL, 3);
  for (r = 0; r < CHECK_ROWS; ++r)
    for (c = 0; c < 4; ++c) support_set(&s.tensors.v, 0, 0, r, c, 1e30 * support_at(&s.tensors.v, 0, 0, r, c));
  support_estimate_execute(&s);
  assert_int_equal(s.stats.assumption, TWH_ASSUMPTION_HOLDS);
  assert_true(s.stats.measured_d > 1 && s.stats.measured_d < 1000);
  support_estimate_end(&s);
}

/* The check sees the same pairs on any number of threads, and stays within the workspace. */
static void the_check_is_the_same_however_it_runs(void **state)
{
  twh_run_stats first;
  int64_t       i;
  (void)state;
  memset(&first, 0, sizeof first);
  for (i = 0; i < 3; ++i) {
    support_memory   memory;
    support_estimate s;
    twh_context     *context = support_context(&memory, i ? 4 : 0, i ? 4 : 1);
    check_init(&s, 1, 1, 1);
    s.desc.max_concurrent_batches = 4;
    s.options.max_calls_per_batch = i == 1 ? 1 : 0;
    support_estimate_begin(&s, context, 3);
    support_estimate_execute(&s);
    if (i == 0) first = s.stats;
    assert_true(first.logit_std == s.stats.logit_std && first.measured_c == s.stats.measured_c);
    assert_true(first.measured_d == s.stats.measured_d && first.samples_needed == s.stats.samples_needed);
    support_estimate_end(&s);
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_bound_is_the_theorems),
    cmocka_unit_test(bad_bounds_are_refused_by_name),
    cmocka_unit_test(errors_keep_the_bound),
    cmocka_unit_test(mild_data_hold_and_wild_data_are_told_of),
    cmocka_unit_test(samples_that_are_needed_are_enough),
    cmocka_unit_test(a_few_hard_blocks_are_enough),
    cmocka_unit_test(stated_bounds_are_checked),
    cmocka_unit_test(the_worst_head_counts),
    cmocka_unit_test(what_is_not_drawn_is_not_checked),
    cmocka_unit_test(what_is_not_finite_is_told_of),
    cmocka_unit_test(the_check_is_the_same_however_it_runs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
