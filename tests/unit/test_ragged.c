/* Many short requests in one long kernel: as few calls as their tokens fill, each result what the request alone would get, and
 * nothing that one request holds reaching another.
 *
 * 500 requests of 1 to 128 tokens go through a kernel of 1024. On kernels that keep groups apart by codes, spare coordinates
 * are what it takes; without them the plan says so. */
#include "support.h"

enum { RAGGED_REQUESTS = SUPPORT_SANITIZED ? 60 : 500, RAGGED_M = 1024, RAGGED_DIM = 8 };

typedef struct ragged_setup {
  twh_problem     problem;
  twh_pattern     pattern;
  twh_sequence    sequences[RAGGED_REQUESTS];
  twh_oracle_desc desc;
  int64_t         tokens;
} ragged_setup;

typedef struct ragged_kernel {
  const char *name;
  uint32_t    modes;
  int         lse, causal;
  int64_t     spare;
  int32_t     dtype;
} ragged_kernel;

static const ragged_kernel ragged_kernels[] = {
  {"causal only, spare coordinates", TWH_MASK_CAUSAL, 0, 1, 16, TWH_F32},
  {"no mask, full attention", TWH_MASK_NONE, 0, 0, 16, TWH_F32},
  {"mask input, causal", TWH_MASK_TENSOR, 1, 1, 0, TWH_F32},
  {"mask input, full, bf16", TWH_MASK_TENSOR, 0, 0, 0, TWH_BF16},
  {"causal only, f16, lse", TWH_MASK_CAUSAL, 1, 1, 12, TWH_F16},
  {"no mask, full, bf16, lse", TWH_MASK_NONE, 1, 0, 12, TWH_BF16},
};

static void ragged_begin(ragged_setup *s, const ragged_kernel *kernel, int64_t requests, int64_t m, int64_t longest)
{
  support_random random = support_random_at(support_seed(500), 0);
  int64_t        i;
  memset(s, 0, sizeof *s);
  twh_problem_init(&s->problem);
  twh_pattern_init(&s->pattern);
  twh_oracle_desc_init(&s->desc);
  s->pattern.flags = kernel->causal ? TWH_CAUSAL : 0;
  s->problem.pattern = &s->pattern;
  s->problem.batch = requests;
  s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.qk_dim = s->problem.v_dim = RAGGED_DIM;
  s->problem.sequences = s->sequences;
  for (i = 0; i < requests; ++i) {
    s->sequences[i].q_begin = s->sequences[i].k_begin = s->tokens;
    s->sequences[i].q_len = s->sequences[i].k_len = support_between(&random, 1, longest);
    s->tokens += s->sequences[i].q_len;
  }
  s->desc.slots = 1;
  s->desc.q_len = s->desc.k_len = m;
  s->desc.qk_dim = RAGGED_DIM + kernel->spare;
  s->desc.v_dim = RAGGED_DIM + !kernel->lse;
  s->desc.flags = kernel->lse ? TWH_ORACLE_LSE : 0;
  s->desc.dtype = kernel->dtype;
  s->desc.mask_modes = kernel->modes;
  s->desc.scale = support_scale(&s->problem);
}

static void ragged_tensors(const ragged_setup *s, support_tensors *tensors, double std)
{
  support_random random = support_random_at(support_seed(501), 0);
  support_fill   fill;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = std;
  fill.rounding = s->desc.dtype;
  support_tensors_create(tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(tensors, &s->problem, &fill, &random);
}

/* Plan and execute; a kernel that is given numbers that are not finite is no failure here. */
static void ragged_solve(const ragged_setup *s, support_tensors *tensors, twh_plan_info *info, twh_run_stats *stats)
{
  support_oracle  oracle;
  twh_plan       *plan = NULL;
  twh_run_options options;
  twh_error       error;
  twh_error_init(&error);
  twh_plan_info_init(info);
  twh_run_options_init(&options);
  twh_run_stats_init(stats);
  options.stats = stats;
  support_oracle_create(&oracle, NULL, &s->desc, NULL);
  oracle.finite_only = 0;
  support_assert_status(twh_plan_create(NULL, &s->problem, &oracle.oracle, 1, NULL, &plan, &error), TWH_OK, &error, NULL);
  assert_int_equal(twh_plan_get_info(plan, info, NULL), TWH_OK);
  support_assert_status(twh_plan_execute(plan, &tensors->all, &options, &error), TWH_OK, &error, NULL);
  if (oracle.broken[0]) print_error("%s\n", oracle.broken);
  assert_int_equal(oracle.broken[0], 0);
  twh_plan_destroy(plan);
  support_oracle_destroy(&oracle);
}

/* Request i of s on its own, on the same kernel; its results must be those in `tensors` to a few ulps. */
static void ragged_alone(const ragged_setup *s, const support_tensors *tensors, int64_t i, const char *name)
{
  ragged_setup        one = *s;
  const twh_sequence *sequence = &s->sequences[i];
  support_tensors     alone;
  twh_plan_info       info;
  twh_run_stats       stats;
  int64_t             r, c;
  double              ulps = 4.0 * support_ulp(3.0, s->desc.dtype), difference; /* at the size of the values */
  one.problem.batch = 1;
  one.problem.sequences = NULL;
  one.problem.pattern = &one.pattern;
  one.problem.q_len = one.problem.k_len = sequence->q_len;
  support_tensors_create(&alone, &one.problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  for (r = 0; r < sequence->q_len; ++r)
    for (c = 0; c < RAGGED_DIM; ++c) {
      support_set(&alone.q, 0, 0, r, c, support_at(&tensors->q, 0, 0, sequence->q_begin + r, c));
      support_set(&alone.k, 0, 0, r, c, support_at(&tensors->k, 0, 0, sequence->k_begin + r, c));
      support_set(&alone.v, 0, 0, r, c, support_at(&tensors->v, 0, 0, sequence->k_begin + r, c));
    }
  ragged_solve(&one, &alone, &info, &stats);
  for (r = 0; r < sequence->q_len; ++r) {
    for (c = 0; c < RAGGED_DIM; ++c) {
      difference = support_at(&alone.out, 0, 0, r, c) - support_at(&tensors->out, 0, 0, sequence->q_begin + r, c);
      support_assert_at_most(fabs(difference), ulps, name);
    }
    difference = support_at(&alone.lse, 0, 0, r, 0) - support_at(&tensors->lse, 0, 0, sequence->q_begin + r, 0);
    support_assert_at_most(fabs(difference), ulps + 1e-5, name);
  }
  support_tensors_destroy(&alone);
}

static void ragged_check(const ragged_setup *s, const support_tensors *tensors, const char *name)
{
  support_answer truth, one_call, got;
  support_answer_truth(&truth, &s->problem, tensors);
  support_answer_one_call(&one_call, &s->problem, tensors, &s->desc, NULL);
  support_answer_read(&got, &s->problem, tensors);
  support_assert_at_most(support_answer_out_error(&got, &truth), support_out_bound(&one_call, &truth, &s->desc, 1), name);
  support_assert_at_most(support_answer_lse_error(&got, &truth), support_lse_bound(&one_call, &truth, &s->desc), name);
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  support_answer_destroy(&got);
}

static void requests_share_calls_and_come_out_as_if_alone(void **state)
{
  int64_t i, j;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(ragged_kernels); ++i) {
    const ragged_kernel *kernel = &ragged_kernels[i];
    ragged_setup        *s = (ragged_setup *)malloc(sizeof *s);
    support_tensors      tensors;
    twh_plan_info        info;
    twh_run_stats        stats;
    double               full;
    assert_non_null(s);
    ragged_begin(s, kernel, RAGGED_REQUESTS, RAGGED_M, 128);
    ragged_tensors(s, &tensors, 1.0);
    ragged_solve(s, &tensors, &info, &stats);
    full = (double)s->tokens / RAGGED_M;
    print_message("  %s: %lld calls for %lld tokens, %.3f of what they fill\n", kernel->name, (long long)info.calls,
                  (long long)s->tokens, (double)info.calls / full);
    support_assert_at_most((double)info.calls, SUPPORT_SANITIZED ? ceil(1.15 * full) : 1.15 * full, kernel->name);
    assert_int_equal(stats.calls, info.calls + stats.repair_calls);
    ragged_check(s, &tensors, kernel->name);
    for (j = 0; j < RAGGED_REQUESTS; j += 97) ragged_alone(s, &tensors, j, kernel->name);
    support_tensors_destroy(&tensors);
    free(s);
  }
}

/* Of the plan's text, whether one line has both words. */
static int ragged_says(const ragged_setup *s, const char *first, const char *second)
{
  support_oracle oracle;
  twh_plan      *plan = NULL;
  char           text[4096], *line, *end;
  int            found = 0;
  support_oracle_create(&oracle, NULL, &s->desc, NULL);
  assert_int_equal(twh_plan_create(NULL, &s->problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_describe(plan, text, sizeof text, NULL, NULL), TWH_OK);
  for (line = text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    *end = 0;
    found |= strstr(line, first) != NULL && strstr(line, second) != NULL;
  }
  if (!found) print_message("%s\n", text);
  twh_plan_destroy(plan);
  support_oracle_destroy(&oracle);
  return found;
}

static void without_spare_coordinates_the_plan_says_what_packing_would_need(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < 2; ++i) {
    ragged_kernel   kernel = ragged_kernels[i];
    ragged_setup   *s = (ragged_setup *)malloc(sizeof *s);
    support_tensors tensors;
    twh_plan_info   info;
    twh_run_stats   stats;
    assert_non_null(s);
    kernel.spare = 0;
    ragged_begin(s, &kernel, 40, 64, 16);
    ragged_tensors(s, &tensors, 1.0);
    ragged_solve(s, &tensors, &info, &stats);
    ragged_check(s, &tensors, kernel.name);
    assert_int_equal(info.slots_used, info.tiles - info.host_tiles);
    assert_true(ragged_says(s, "spare", "coordinate"));
    support_tensors_destroy(&tensors);
    free(s);
  }
}

/* What every other row has must be the same bits as in a clean run. */
static void ragged_others_unchanged(const ragged_setup *s, const support_tensors *clean, const support_tensors *spoilt,
                                    int64_t except, const char *name)
{
  int64_t i, r, c;
  for (i = 0; i < s->problem.batch; ++i) {
    if (i == except) continue;
    for (r = s->sequences[i].q_begin; r < s->sequences[i].q_begin + s->sequences[i].q_len; ++r) {
      for (c = 0; c < RAGGED_DIM; ++c)
        if (support_at(&clean->out, 0, 0, r, c) != support_at(&spoilt->out, 0, 0, r, c)) {
          print_error("%s: request %lld row %lld: %.9g became %.9g\n", name, (long long)i, (long long)r,
                      support_at(&clean->out, 0, 0, r, c), support_at(&spoilt->out, 0, 0, r, c));
          fail();
        }
      assert_true(support_at(&clean->lse, 0, 0, r, 0) == support_at(&spoilt->lse, 0, 0, r, 0));
    }
  }
}

static void what_one_request_holds_never_reaches_another(void **state)
{
  static const double poison[] = { (double)NAN, (double)INFINITY, -(double)INFINITY, 1e30 };
  int64_t             i, p, where, victim = 17, c, at;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(ragged_kernels); ++i)
    for (p = 0; p < SUPPORT_COUNT(poison); ++p)
      for (where = 0; where < 3; ++where) { /* in a query, a key, a value */
        const ragged_kernel *kernel = &ragged_kernels[i];
        ragged_setup        *s = (ragged_setup *)malloc(sizeof *s);
        support_tensors      clean, spoilt;
        twh_plan_info        info;
        twh_run_stats        stats, later;
        char                 name[100];
        assert_non_null(s);
        ragged_begin(s, kernel, 40, 128, 16);
        ragged_tensors(s, &clean, 1.0);
        ragged_tensors(s, &spoilt, 1.0);
        at = s->sequences[victim].q_begin + s->sequences[victim].q_len / 2;
        for (c = 0; c < RAGGED_DIM; c += 3)
          support_set(where == 0 ? &spoilt.q : where == 1 ? &spoilt.k : &spoilt.v, 0, 0, at, c, poison[p]);
        snprintf(name, sizeof name, "%s, %g in a %s", kernel->name, poison[p],
                 where == 0 ? "query" : where == 1 ? "key" : "value");
        ragged_solve(s, &clean, &info, &stats);
        ragged_solve(s, &spoilt, &info, &later);
        assert_true(info.slots_used < info.tiles - info.host_tiles); /* otherwise there is nothing to reach */
        ragged_others_unchanged(s, &clean, &spoilt, victim, name);
        if (where > 0 && p < 3) { /* the kernel cannot have computed that request beside others */
          if (later.host_rows < stats.host_rows + 1) print_error("%s: %lld host rows\n", name, (long long)later.host_rows);
          assert_true(later.host_rows >= stats.host_rows + 1);
        }
        support_tensors_destroy(&clean);
        support_tensors_destroy(&spoilt);
        free(s);
      }
}

/* A request whose data go to the host has the answer that the definition has: keys of huge norm, all alike, so that each row is
 * the mean of the values that it sees. */
static void a_request_that_outweighs_the_codes_is_still_right(void **state)
{
  int64_t i, c, r, j, seen, victim = 17;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(ragged_kernels); ++i) {
    const ragged_kernel *kernel = &ragged_kernels[i];
    ragged_setup        *s = (ragged_setup *)malloc(sizeof *s);
    const twh_sequence  *sequence = &s->sequences[victim];
    support_tensors      clean, huge;
    twh_plan_info        info;
    twh_run_stats        stats;
    assert_non_null(s);
    ragged_begin(s, kernel, 40, 128, 16);
    ragged_tensors(s, &clean, 1.0);
    ragged_tensors(s, &huge, 1.0);
    for (r = sequence->k_begin; r < sequence->k_begin + sequence->k_len; ++r)
      for (c = 0; c < RAGGED_DIM; ++c) {
        support_set(&huge.k, 0, 0, r, c, support_round(kernel->dtype == TWH_F16 ? 60000.0 : 1e18, kernel->dtype));
        support_set(&huge.q, 0, 0, r, c, 1.0);
      }
    ragged_solve(s, &clean, &info, &stats);
    ragged_solve(s, &huge, &info, &stats);
    ragged_others_unchanged(s, &clean, &huge, victim, kernel->name);
    for (r = 0; r < sequence->q_len; ++r)
      for (c = 0; c < RAGGED_DIM; ++c) {
        double mean = 0.0;
        seen = kernel->causal ? r + 1 : sequence->k_len;
        for (j = 0; j < seen; ++j) mean += support_at(&huge.v, 0, 0, sequence->k_begin + j, c) / (double)seen;
        support_assert_at_most(fabs(support_at(&huge.out, 0, 0, sequence->q_begin + r, c) - mean),
                               2.0 * support_ulp(3.0, kernel->dtype), kernel->name);
      }
    support_tensors_destroy(&clean);
    support_tensors_destroy(&huge);
    free(s);
  }
}

static void negative_scales_and_zero_are_packed_rightly_or_not_at_all(void **state)
{
  static const double scales[] = { -0.35, 0.0, -1.0, 1e-6, 30.0 };
  int64_t             i, j;
  int                 each;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(ragged_kernels); ++i)
    for (j = 0; j < SUPPORT_COUNT(scales); ++j)
      for (each = 0; each < 2; ++each) {
        ragged_setup   *s = (ragged_setup *)malloc(sizeof *s);
        support_tensors tensors;
        twh_plan_info   info;
        twh_run_stats   stats;
        assert_non_null(s);
        ragged_begin(s, &ragged_kernels[i], 40, 64, 16);
        s->problem.flags |= TWH_PROBLEM_SCALE;
        s->problem.scale = scales[j];
        s->desc.scale = scales[j] != 0.0 ? scales[j] : -0.25;
        if (each) s->desc.flags |= TWH_ORACLE_SCALE_PER_CALL;
        ragged_tensors(s, &tensors, 1.0);
        ragged_solve(s, &tensors, &info, &stats);
        ragged_check(s, &tensors, ragged_kernels[i].name);
        if (scales[j] == -0.35 && s->desc.dtype != TWH_F16) /* codes work below zero */
          assert_true(info.slots_used < info.tiles - info.host_tiles);
        support_tensors_destroy(&tensors);
        free(s);
      }
}

static void case_C77_a_kernel_with_a_softcap_is_never_packed_by_codes(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(ragged_kernels); ++i) {
    ragged_setup   *s = (ragged_setup *)malloc(sizeof *s);
    support_tensors tensors;
    twh_plan_info   info;
    twh_run_stats   stats;
    assert_non_null(s);
    ragged_begin(s, &ragged_kernels[i], 40, 64, 16);
    s->problem.softcap = s->desc.softcap = 3.0;
    ragged_tensors(s, &tensors, 2.0);
    ragged_solve(s, &tensors, &info, &stats);
    ragged_check(s, &tensors, ragged_kernels[i].name);
    if (!(s->desc.mask_modes & TWH_MASK_TENSOR)) assert_int_equal(info.slots_used, info.tiles - info.host_tiles);
    support_tensors_destroy(&tensors);
    free(s);
  }
}

/* Stacked query heads, windows and sinks inside requests: what is packed is what the pattern says. */
static void requests_with_windows_and_shared_heads(void **state)
{
  /* left, right, sinks */
  static const int64_t patterns[][3] = { { 3, -1, 0 }, { 0, 2, 2 }, { 5, 5, 1 }, { -1, -1, 4 }, { 2, 0, 30 } };
  int64_t              i, j;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(ragged_kernels); ++i)
    for (j = 0; j < SUPPORT_COUNT(patterns); ++j) {
      ragged_setup   *s = (ragged_setup *)malloc(sizeof *s);
      support_tensors tensors;
      twh_plan_info   info;
      twh_run_stats   stats;
      assert_non_null(s);
      ragged_begin(s, &ragged_kernels[i], 30, 64, 24);
      s->problem.q_heads = 4;
      s->problem.kv_heads = 2;
      s->pattern.flags |= (patterns[j][0] >= 0 ? TWH_LEFT : 0) | (patterns[j][1] >= 0 ? TWH_RIGHT : 0);
      s->pattern.left = patterns[j][0] < 0 ? 0 : patterns[j][0];
      s->pattern.right = patterns[j][1] < 0 ? 0 : patterns[j][1];
      s->pattern.sink_tokens = patterns[j][2];
      ragged_tensors(s, &tensors, 1.0);
      ragged_solve(s, &tensors, &info, &stats);
      ragged_check(s, &tensors, ragged_kernels[i].name);
      support_tensors_destroy(&tensors);
      free(s);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(requests_share_calls_and_come_out_as_if_alone),
    cmocka_unit_test(without_spare_coordinates_the_plan_says_what_packing_would_need),
    cmocka_unit_test(what_one_request_holds_never_reaches_another),
    cmocka_unit_test(a_request_that_outweighs_the_codes_is_still_right),
    cmocka_unit_test(negative_scales_and_zero_are_packed_rightly_or_not_at_all),
    cmocka_unit_test(case_C77_a_kernel_with_a_softcap_is_never_packed_by_codes),
    cmocka_unit_test(requests_with_windows_and_shared_heads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
