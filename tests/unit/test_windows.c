/* Sliding windows, sinks and masks on kernels that have none: how many calls they take, against what they may take, and exact
 * results on short problems with the same shapes.
 *
 * The unit of the counts is N / M calls: what a kernel of length M needs to look at every row once. */
#include "support.h"

enum { WINDOWS_N = 65536, WINDOWS_M = 512 };

static int32_t windows_never(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user;
  (void)calls;
  (void)n;
  print_error("planning called the kernel\n");
  return 1;
}

typedef struct windows_setup {
  twh_problem     problem;
  twh_pattern     pattern;
  twh_oracle_desc desc;
} windows_setup;

/* Causal with a window of r keys (0: none), on a kernel of length m with lse or a spare value column, and spare coordinates. */
static void windows_begin(windows_setup *s, int64_t n, int64_t m, int64_t r, int64_t sinks, uint32_t modes, int64_t spare,
                          int lse)
{
  twh_problem_init(&s->problem);
  twh_pattern_init(&s->pattern);
  twh_oracle_desc_init(&s->desc);
  s->pattern.flags = TWH_CAUSAL | (r ? TWH_LEFT : 0);
  s->pattern.left = r ? r - 1 : 0;
  s->pattern.sink_tokens = sinks;
  s->problem.pattern = &s->pattern;
  s->problem.batch = s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.q_len = s->problem.k_len = n;
  s->problem.qk_dim = s->problem.v_dim = 8;
  s->desc.slots = 1;
  s->desc.q_len = s->desc.k_len = m;
  s->desc.qk_dim = 8 + spare;
  s->desc.v_dim = lse ? 8 : 9;
  s->desc.flags = lse ? TWH_ORACLE_LSE : 0;
  s->desc.dtype = TWH_F32;
  s->desc.mask_modes = modes;
  s->desc.scale = support_scale(&s->problem);
}

static twh_plan_info windows_look(const windows_setup *s)
{
  twh_oracle_desc desc = s->desc;
  twh_oracle     *oracle = NULL;
  twh_plan       *plan = NULL;
  twh_plan_info   info;
  twh_error       error;
  twh_error_init(&error);
  twh_plan_info_init(&info);
  desc.run = windows_never;
  support_assert_status(twh_oracle_create(NULL, &desc, &oracle, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_plan_create(NULL, &s->problem, &oracle, 1, NULL, &plan, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_plan_get_info(plan, &info, &error), TWH_OK, &error, NULL);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  return info;
}

typedef struct windows_row {
  int64_t  r, sinks;
  uint32_t modes;
  int64_t  spare;
  int      lse;
  double   most; /* calls / (N / M) */
} windows_row;

static const windows_row windows_rows[] = {
  {1, 0, TWH_MASK_CAUSAL, 16, 0, 0.0},
  {16, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {60, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {256, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {300, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {340, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {400, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {511, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {512, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {513, 0, TWH_MASK_CAUSAL, 16, 0, 2.1},
  {256, 4, TWH_MASK_CAUSAL, 16, 0, 2.15},
  {16, 64, TWH_MASK_CAUSAL, 16, 0, 2.3},
  {4096, 0, TWH_MASK_CAUSAL, 16, 0, 16.5},
  {4096, 0, TWH_MASK_NONE | TWH_MASK_CAUSAL, 16, 0, 9.5},
  {256, 0, TWH_MASK_TENSOR, 0, 1, 2.05},
};

static void windows_take_no_more_calls_than_they_may(void **state)
{
  int64_t i, failures = 0;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(windows_rows); ++i) {
    const windows_row *row = &windows_rows[i];
    windows_setup      s;
    twh_plan_info      info;
    double             ratio;
    windows_begin(&s, WINDOWS_N, WINDOWS_M, row->r, row->sinks, row->modes, row->spare, row->lse);
    info = windows_look(&s);
    ratio = (double)info.calls / (WINDOWS_N / WINDOWS_M);
    print_message("  r %4lld, %2lld sinks, modes %u: %.4f of at most %g\n", (long long)row->r, (long long)row->sinks,
                  row->modes, ratio, row->most);
    if (ratio <= row->most) continue;
    print_error("r %lld with %lld sinks, modes %u: %lld calls, %.4f N / M, which is more than %g\n", (long long)row->r,
                (long long)row->sinks, row->modes, (long long)info.calls, ratio, row->most);
    ++failures;
  }
  assert_int_equal(failures, 0);
}

/* Every window up to the kernel's length, not only those with names; and none falls below what the kernel could do at best. */
static void windows_of_every_width_take_two_calls_per_block(void **state)
{
  int64_t r, failures = 0;
  (void)state;
  for (r = 2; r <= WINDOWS_M + 1; ++r) {
    windows_setup s;
    twh_plan_info info;
    windows_begin(&s, WINDOWS_N, WINDOWS_M, r, 0, TWH_MASK_CAUSAL, 16, 0);
    info = windows_look(&s);
    if ((double)info.calls / (WINDOWS_N / WINDOWS_M) <= 2.1 && info.calls >= info.lower_bound_calls) continue;
    print_error("r %lld: %lld calls, at least %lld\n", (long long)r, (long long)info.calls, (long long)info.lower_bound_calls);
    ++failures;
  }
  assert_int_equal(failures, 0);
}

static void causal_without_any_mask_takes_few_calls_per_diagonal_block(void **state)
{
  static const int64_t rows[][2] = { { 10, 496 + 5 * 32 }, { 16, 496 + 3 * 32 } }; /* spare coordinates, calls */
  int64_t              i;
  int                  lse;
  (void)state;
  for (i = 0; i < 2; ++i)
    for (lse = 0; lse < 2; ++lse) {
      windows_setup s;
      twh_plan_info info;
      windows_begin(&s, 8192, 256, 0, 0, TWH_MASK_NONE, rows[i][0], lse);
      info = windows_look(&s);
      print_message("  %lld coordinates: %lld calls of at most %lld\n", (long long)rows[i][0], (long long)info.calls,
                    (long long)rows[i][1]);
      assert_true(info.calls <= rows[i][1]);
      assert_true(info.calls >= 496);
    }
}

/* A plan's memory and its workspace do not grow with the length. */
static void windows_stream_whatever_the_length(void **state)
{
  static const int64_t windows[][2] = { { 4096, 4 }, { 256, 0 }, { 60, 64 } }; /* r, sinks */
  static const uint32_t modes[] = { TWH_MASK_CAUSAL, TWH_MASK_NONE, TWH_MASK_TENSOR, TWH_MASK_NONE | TWH_MASK_CAUSAL };
  int64_t               i, j, log;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(windows); ++i)
    for (j = 0; j < SUPPORT_COUNT(modes); ++j) {
      int64_t first = 0;
      for (log = 16; log <= 22; log += 3) {
        windows_setup s;
        twh_plan_info info;
        windows_begin(&s, (int64_t)1 << log, 512, windows[i][0], windows[i][1], modes[j], 16, 0);
        info = windows_look(&s);
        if (!first) first = info.workspace_bytes;
        if (info.workspace_bytes > first + first / 8 + 65536)
          print_error("r %lld modes %u: %lld bytes at 2^16, %lld at 2^%lld\n", (long long)windows[i][0], modes[j],
                      (long long)first, (long long)info.workspace_bytes, (long long)log);
        assert_true(info.workspace_bytes <= first + first / 8 + 65536);
      }
    }
}

/* ---- the same on short problems, with results ---- */

static void windows_exact(const char *name, windows_setup *s, double std)
{
  support_random  random = support_random_at(support_seed(4), (uint64_t)s->pattern.left);
  support_fill    fill;
  support_tensors tensors;
  support_answer  truth, one_call, got;
  twh_error       error;
  twh_oracle     *oracle = NULL;
  twh_plan       *plan = NULL;
  support_cover   cover;
  const char     *wrong;
  twh_error_init(&error);
  memset(&fill, 0, sizeof fill);
  fill.logit_std = std;
  fill.rounding = s->desc.dtype;
  support_tensors_create(&tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(&tensors, &s->problem, &fill, &random);
  assert_int_equal(twh_reference_oracle_create(NULL, &s->desc, NULL, &oracle, NULL), TWH_OK);
  support_assert_status(twh_plan_create(NULL, &s->problem, &oracle, 1, NULL, &plan, &error), TWH_OK, &error, NULL);
  wrong = support_cover_check(&cover, &s->problem, plan, &s->desc, 1);
  if (wrong) print_error("%s: %s\n", name, wrong);
  assert_null(wrong);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  support_assert_status(support_solve(name, &s->problem, &s->desc, &tensors, NULL, &error), TWH_OK, &error, NULL);
  support_answer_truth(&truth, &s->problem, &tensors);
  support_answer_one_call(&one_call, &s->problem, &tensors, &s->desc, NULL);
  support_answer_read(&got, &s->problem, &tensors);
  support_assert_at_most(support_answer_out_error(&got, &truth), support_out_bound(&one_call, &truth, &s->desc, 1), name);
  support_assert_at_most(support_answer_lse_error(&got, &truth), support_lse_bound(&one_call, &truth, &s->desc), name);
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  support_answer_destroy(&got);
  support_tensors_destroy(&tensors);
}

static void windows_are_exact_on_every_set_of_masks(void **state)
{
  static const int64_t  windows[] = { 0, 1, 2, 5, 15, 16, 17, 31, 32, 33, 40, 64, 100, 150, 151, 400 };
  static const int64_t  sinks[] = { 0, 4, 40, 500 }, spares[] = { 0, 1, 4, 6, 10, 16 };
  static const uint32_t modes[] = { TWH_MASK_CAUSAL, TWH_MASK_NONE, TWH_MASK_TENSOR, TWH_MASK_NONE | TWH_MASK_CAUSAL };
  static const int32_t  dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  int64_t               i, j, k, m = 32;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(windows); ++i)
    for (j = 0; j < SUPPORT_COUNT(sinks); ++j)
      for (k = 0; k < SUPPORT_COUNT(modes); ++k) {
        int64_t       turn = i * 7 + j * 3 + k, spare = spares[turn % SUPPORT_COUNT(spares)];
        windows_setup s;
        char          name[120];
        windows_begin(&s, 150, m, windows[i], sinks[j], modes[k], spare, (int)(turn / 2 % 2));
        s.desc.dtype = dtypes[turn % 3];
        s.problem.q_heads = 2;
        snprintf(name, sizeof name, "r %lld, %lld sinks, modes %u, %lld coordinates, dtype %d, lse %d", (long long)windows[i],
                 (long long)sinks[j], modes[k], (long long)spare, s.desc.dtype, (int)(turn / 2 % 2));
        windows_exact(name, &s, turn % 5 ? 1.0 : 10.0);
      }
}

static void causal_without_any_mask_is_exact_with_few_coordinates_and_none(void **state)
{
  static const int64_t spares[] = { 0, 1, 4, 6, 10, 16 }, lengths[] = { 8, 32, 64 };
  static const int32_t dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  int64_t              i, j, k;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(spares); ++i)
    for (j = 0; j < SUPPORT_COUNT(lengths); ++j)
      for (k = 0; k < 3; ++k) {
        windows_setup s;
        char          name[80];
        windows_begin(&s, 2 * lengths[j] + 3, lengths[j], 0, 0, TWH_MASK_NONE, spares[i], (int)((i + j + k) % 2));
        s.desc.dtype = dtypes[k];
        snprintf(name, sizeof name, "no mask, %lld coordinates, M %lld, dtype %d", (long long)spares[i], (long long)lengths[j],
                 s.desc.dtype);
        windows_exact(name, &s, 1.0);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_take_no_more_calls_than_they_may),
    cmocka_unit_test(windows_of_every_width_take_two_calls_per_block),
    cmocka_unit_test(causal_without_any_mask_takes_few_calls_per_diagonal_block),
    cmocka_unit_test(windows_stream_whatever_the_length),
    cmocka_unit_test(windows_are_exact_on_every_set_of_masks),
    cmocka_unit_test(causal_without_any_mask_is_exact_with_few_coordinates_and_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
