/* Sampled plans: how many calls they take, what they draw, what they refuse, sums that are right on average, and results that are
 * the same bits whatever the threads, the size of batches and the workspace. */
#include "support.h"

#include "reference/reference.h"

typedef struct calls_setup {
  twh_problem      problem;
  twh_pattern      pattern;
  twh_oracle_desc  desc;
  twh_plan_options options;
} calls_setup;

static void calls_setup_init(calls_setup *s, int64_t length, int64_t m, int causal)
{
  memset(s, 0, sizeof *s);
  twh_pattern_init(&s->pattern);
  s->pattern.flags = causal ? TWH_CAUSAL : 0;
  twh_problem_init(&s->problem);
  s->problem.batch = s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.q_len = s->problem.k_len = length;
  s->problem.qk_dim = s->problem.v_dim = 4;
  s->problem.pattern = &s->pattern;
  twh_oracle_desc_init(&s->desc);
  s->desc.slots = 1;
  s->desc.q_len = s->desc.k_len = m;
  s->desc.qk_dim = 4;
  s->desc.v_dim = 5;
  s->desc.dtype = TWH_F32;
  s->desc.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
  s->desc.scale = 0.5;
  twh_plan_options_init(&s->options);
  s->options.method = TWH_METHOD_SAMPLED;
}

static twh_plan *calls_plan(const calls_setup *s, twh_oracle **oracle, twh_plan_info *info)
{
  twh_plan *plan = NULL;
  assert_int_equal(twh_reference_oracle_create(NULL, &s->desc, NULL, oracle, NULL), TWH_OK);
  assert_int_equal(twh_plan_create(NULL, &s->problem, oracle, 1, &s->options, &plan, NULL), TWH_OK);
  twh_plan_info_init(info);
  assert_int_equal(twh_plan_get_info(plan, info, NULL), TWH_OK);
  return plan;
}

static twh_plan_info calls_count(const calls_setup *s)
{
  twh_oracle   *oracle = NULL;
  twh_plan_info info;
  twh_plan_destroy(calls_plan(s, &oracle, &info));
  twh_oracle_destroy(oracle);
  return info;
}

static void calls_are_one_for_each_block_of_rows(void **state)
{
  static const int64_t lengths[] = {257, 512, 1000, 8192}, ms[] = {8, 16, 64};
  int64_t              i, j, lse;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(lengths); ++i)
    for (j = 0; j < SUPPORT_COUNT(ms); ++j)
      for (lse = 0; lse < 2; ++lse) {
        calls_setup   s;
        twh_plan_info info;
        int64_t       blocks = (lengths[i] + ms[j] - 1) / ms[j];
        calls_setup_init(&s, lengths[i], ms[j], 0);
        s.desc.flags = lse ? TWH_ORACLE_LSE : 0;
        s.desc.v_dim = lse ? 4 : 5;
        info = calls_count(&s);
        assert_int_equal(info.calls, blocks);
        assert_int_equal(info.drawn_tiles, blocks);
        s.options.samples = 3;
        assert_int_equal(calls_count(&s).calls, 3 * blocks);
        s.problem.q_heads = s.problem.kv_heads = 5;
        s.desc.slots = 4;
        assert_int_equal(calls_count(&s).calls, (15 * blocks + 3) / 4);
        calls_setup_init(&s, lengths[i], ms[j], 1);
        if (lengths[i] % ms[j] == 0) assert_int_equal(calls_count(&s).tiles, 2 * blocks - 1);
        s.options.method = TWH_METHOD_HYBRID;
        s.options.exact_window = 2 * ms[j];
        assert_true(calls_count(&s).calls <= 5 * blocks); /* own block, two before it, the first one, one drawn */
      }
}

static void as_many_samples_as_keys_are_exact(void **state)
{
  calls_setup   s;
  twh_plan_info info, exact;
  (void)state;
  calls_setup_init(&s, 100, 16, 1);
  s.options.samples = 7;
  info = calls_count(&s);
  twh_plan_options_init(&s.options);
  exact = calls_count(&s);
  assert_int_equal(info.drawn_tiles, 0);
  assert_int_equal(info.calls, exact.calls);
  assert_true(info.utilisation == exact.utilisation);
}

/* What is drawn for each unit, gathered from a visit. */
typedef struct calls_drawn {
  int64_t       length, units, visited, first[4];
  unsigned char seen[4096];
  int64_t       counts[4096];
} calls_drawn;

static int32_t calls_gather(void *user, const twh_tile_info *tile)
{
  calls_drawn *drawn = (calls_drawn *)user;
  int64_t      j;
  if (!(tile->flags & TWH_TILE_DRAWN)) return 0;
  if (tile->k_begin == 0) memset(drawn->seen, 0, sizeof drawn->seen); /* the first sample of a unit */
  if (drawn->units < 4) drawn->first[drawn->units] = twh_tile_drawn_key(tile, 0);
  ++drawn->units;
  for (j = 0; j < tile->k_len; ++j) {
    int64_t key = twh_tile_drawn_key(tile, j);
    if (key < 0 || key >= drawn->length || drawn->seen[key]) return 1; /* twice, or no key */
    drawn->seen[key] = 1;
    ++drawn->counts[key];
  }
  ++drawn->visited;
  return 0;
}

static void every_key_is_as_likely_as_any_other(void **state)
{
  static calls_drawn   drawn;
  static const int64_t lengths[] = {37, 64, 100, 1000};
  int64_t              i, seed, k;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(lengths); ++i) {
    calls_setup s;
    double      expected, chi = 0;
    memset(&drawn, 0, sizeof drawn);
    drawn.length = lengths[i];
    for (seed = 0; seed < 400; ++seed) {
      twh_oracle   *oracle = NULL;
      twh_plan_info info;
      twh_plan     *plan;
      calls_setup_init(&s, lengths[i], 8, 0);
      s.options.seed = (uint64_t)seed;
      s.options.samples = 2;
      plan = calls_plan(&s, &oracle, &info);
      assert_int_equal(twh_plan_visit(plan, calls_gather, &drawn, NULL), TWH_OK);
      assert_int_equal(drawn.visited, drawn.units);
      twh_plan_destroy(plan);
      twh_oracle_destroy(oracle);
    }
    expected = (double)(drawn.units * 8) / (double)lengths[i];
    for (k = 0; k < lengths[i]; ++k) chi += (double)drawn.counts[k] * (double)drawn.counts[k] / expected;
    chi -= expected * (double)lengths[i];
    chi /= 1 - 16.0 / (double)lengths[i]; /* a draw without replacement varies less */
    if (!(fabs(chi - (double)lengths[i]) < 5 * sqrt(2.0 * (double)lengths[i])))
      fail_msg("%d keys: chi square %g", (int)lengths[i], chi);
  }
}

/* Written down, so that another machine or version must agree; another seed, head or block draws others. */
static void draws_are_the_same_everywhere(void **state)
{
  static calls_drawn drawn;
  calls_setup        s;
  twh_oracle        *oracle = NULL;
  twh_plan_info      info;
  twh_plan          *plan;
  (void)state;
  memset(&drawn, 0, sizeof drawn);
  drawn.length = 1000;
  calls_setup_init(&s, 1000, 64, 0);
  s.options.seed = 2024;
  plan = calls_plan(&s, &oracle, &info);
  assert_int_equal(twh_plan_visit(plan, calls_gather, &drawn, NULL), TWH_OK);
  assert_int_equal(drawn.first[0], 639);
  assert_int_equal(drawn.first[1], 970);
  assert_int_equal(drawn.first[2], 941);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
}

/* Over 200 seeds the sums are right on average: A = e^lse and B = A out, pooled over rows and columns, and row by row. */
static void sums_are_right_on_average(void **state)
{
  enum { ROWS = 480, SEEDS = 200, DIM = 4 };
  static const double means[] = {0, 10};
  int64_t             i, seed, r, c;
  (void)state;
  for (i = 0; i < 2; ++i) {
    static double   a[ROWS], a2[ROWS], b[ROWS], b2[ROWS]; /* of the sum of a row's columns */
    calls_setup     s;
    support_tensors tensors;
    support_answer  truth;
    support_fill    fill;
    support_random  random = support_random_at(21, (uint64_t)i);
    double          pooled = 0, pooled2 = 0;
    int64_t         beyond = 0;
    memset(a, 0, sizeof a);
    memset(a2, 0, sizeof a2);
    memset(b, 0, sizeof b);
    memset(b2, 0, sizeof b2);
    memset(&fill, 0, sizeof fill);
    fill.logit_std = 1;
    fill.value_mean = means[i];
    calls_setup_init(&s, ROWS, 8, 0);
    support_tensors_create(&tensors, &s.problem, TWH_F64, SUPPORT_DENSE, SUPPORT_LSE);
    support_tensors_fill(&tensors, &s.problem, &fill, &random);
    support_answer_truth(&truth, &s.problem, &tensors);
    for (seed = 0; seed < SEEDS; ++seed) {
      twh_oracle   *oracle = NULL;
      twh_plan_info info;
      twh_plan     *plan;
      double        all = 0;
      s.options.seed = (uint64_t)seed;
      plan = calls_plan(&s, &oracle, &info);
      support_tensors_clear(&tensors);
      assert_int_equal(twh_plan_execute(plan, &tensors.all, NULL, NULL), TWH_OK);
      for (r = 0; r < ROWS; ++r) {
        double own = exp(support_at(&tensors.lse, 0, 0, r, 0) - truth.lse[r]), sum = 0, want = 0;
        for (c = 0; c < DIM; ++c) {
          sum += own * support_at(&tensors.out, 0, 0, r, c);
          want += truth.out[r * DIM + c];
        }
        a[r] += own - 1;
        a2[r] += (own - 1) * (own - 1);
        b[r] += sum - want;
        b2[r] += (sum - want) * (sum - want);
        all += own - 1 + (sum - want);
      }
      pooled += all;
      pooled2 += all * all;
      twh_plan_destroy(plan);
      twh_oracle_destroy(oracle);
    }
    assert_true(fabs(pooled) < 3 * sqrt(pooled2));
    for (r = 0; r < ROWS; ++r) beyond += !(fabs(a[r]) < 3 * sqrt(a2[r])) + !(fabs(b[r]) < 3 * sqrt(b2[r]));
    assert_true(beyond <= 2 * ROWS / 100);
    support_answer_destroy(&truth);
    support_tensors_destroy(&tensors);
  }
}

static void results_are_the_same_bits_however_they_are_computed(void **state)
{
  calls_setup     s;
  support_tensors tensors;
  support_fill    fill;
  support_random  random = support_random_at(4, 4);
  unsigned char   first[2 * 200 * 4 * sizeof(float)];
  int64_t         i;
  (void)state;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1;
  calls_setup_init(&s, 200, 16, 1);
  s.problem.q_heads = s.problem.kv_heads = 2;
  s.options.method = TWH_METHOD_HYBRID;
  s.options.samples = 2;
  s.options.seed = 9;
  s.desc.max_concurrent_batches = 4;
  support_tensors_create(&tensors, &s.problem, TWH_F32, SUPPORT_DENSE, 0);
  support_tensors_fill(&tensors, &s.problem, &fill, &random);
  for (i = 0; i < 4; ++i) {
    support_memory memory;
    twh_context   *context = support_context(&memory, i % 2 ? 4 : 0, i % 2 ? 4 : 1);
    twh_oracle    *oracle = NULL;
    twh_plan      *plan = NULL;
    s.options.max_calls_per_batch = i < 2 ? 1 : 7;
    s.options.workspace_limit = i < 2 ? 0 : 1;
    assert_int_equal(twh_reference_oracle_create(context, &s.desc, NULL, &oracle, NULL), TWH_OK);
    assert_int_equal(twh_plan_create(context, &s.problem, &oracle, 1, &s.options, &plan, NULL), TWH_OK);
    support_tensors_clear(&tensors);
    assert_int_equal(twh_plan_execute(plan, &tensors.all, NULL, NULL), TWH_OK);
    if (i == 0) memcpy(first, tensors.out.data, sizeof first);
    assert_memory_equal(first, tensors.out.data, sizeof first);
    twh_plan_destroy(plan);
    twh_oracle_destroy(oracle);
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
  }
  support_tensors_destroy(&tensors);
}

typedef struct calls_row {
  const char *word;
  int32_t     method;
  uint64_t    seed;
  int64_t     samples, strata, sinks, window;
  int32_t     mask;
  twh_status  status;
} calls_row;

static const calls_row calls_rows[] = {
  {"method", 3, 0, 0, 0, 0, 0, 0, TWH_E_VERSION},
  {"method", -1, 0, 0, 0, 0, 0, 0, TWH_E_VERSION},
  {"seed", TWH_METHOD_EXACT, 1, 0, 0, 0, 0, 0, TWH_E_ARGUMENT},
  {"samples", TWH_METHOD_EXACT, 0, 1, 0, 0, 0, 0, TWH_E_ARGUMENT},
  {"samples", TWH_METHOD_SAMPLED, 0, -1, 0, 0, 0, 0, TWH_E_ARGUMENT},
  {"samples", TWH_METHOD_SAMPLED, 0, (int64_t)1 << 40, 0, 0, 0, 0, TWH_E_ARGUMENT},
  {"samples", TWH_METHOD_SAMPLED, 0, 3, 2, 0, 0, 0, TWH_E_ARGUMENT},
  {"strata", TWH_METHOD_EXACT, 0, 0, 2, 0, 0, 0, TWH_E_ARGUMENT},
  {"strata", TWH_METHOD_SAMPLED, 0, 0, -2, 0, 0, 0, TWH_E_ARGUMENT},
  {"exact_sinks", TWH_METHOD_SAMPLED, 0, 0, 0, 1, 0, 0, TWH_E_ARGUMENT},
  {"exact_window", TWH_METHOD_SAMPLED, 0, 0, 0, 0, 1, 0, TWH_E_ARGUMENT},
  {"exact_window", TWH_METHOD_HYBRID, 0, 0, 0, 0, -1, 0, TWH_E_ARGUMENT},
  {"mask", TWH_METHOD_SAMPLED, 0, 0, 0, 0, 0, TWH_BOOL, TWH_E_UNSUPPORTED},
};

static void what_contradicts_itself_is_refused_by_name(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(calls_rows); ++i) {
    const calls_row *row = &calls_rows[i];
    calls_setup      s;
    twh_oracle      *oracle = NULL;
    twh_plan        *plan = NULL;
    twh_error        error;
    twh_error_init(&error);
    calls_setup_init(&s, 100, 8, 0);
    s.desc.mask_modes |= TWH_MASK_TENSOR;
    s.problem.mask_dtype = row->mask;
    s.options.method = row->method;
    s.options.seed = row->seed;
    s.options.samples = row->samples;
    s.options.strata = row->strata;
    s.options.exact_sinks = row->sinks;
    s.options.exact_window = row->window;
    assert_int_equal(twh_reference_oracle_create(NULL, &s.desc, NULL, &oracle, NULL), TWH_OK);
    support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), row->status, &error, row->word);
    assert_null(plan);
    twh_oracle_destroy(oracle);
  }
}

/* A window takes O(N / M) calls anyway. */
static void windows_are_not_sampled(void **state)
{
  calls_setup s;
  (void)state;
  calls_setup_init(&s, 500, 16, 1);
  s.pattern.flags |= TWH_LEFT;
  s.pattern.left = 40;
  assert_int_equal(calls_count(&s).drawn_tiles, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(calls_are_one_for_each_block_of_rows),
    cmocka_unit_test(as_many_samples_as_keys_are_exact),
    cmocka_unit_test(every_key_is_as_likely_as_any_other),
    cmocka_unit_test(draws_are_the_same_everywhere),
    cmocka_unit_test(sums_are_right_on_average),
    cmocka_unit_test(results_are_the_same_bits_however_they_are_computed),
    cmocka_unit_test(what_contradicts_itself_is_refused_by_name),
    cmocka_unit_test(windows_are_not_sampled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
