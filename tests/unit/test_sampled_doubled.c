/* Errors of sampled attention estimated from doubled queries: how often the bound holds, at any magnitude of the values, logits and
 * queries; and where there is none. */
#include "support_estimate.h"

enum { DOUBLED_M = 16, DOUBLED_ROWS = 512, DOUBLED_DIM = 8 };

static void bounds_hold_as_often_as_they_say(void **state)
{
  (void)state;
  assert_true(support_estimate_covers(TWH_ESTIMATE_DOUBLED) >= 24);
}

/* Values become scale * (value + shift), in f32. */
static void doubled_move_values(support_estimate *s, double scale, double shift)
{
  int64_t r, c;
  for (r = 0; r < s->tensors.k_rows; ++r)
    for (c = 0; c < s->problem.v_dim; ++c)
      support_set(&s->tensors.v, 0, 0, r, c, scale * (support_at(&s->tensors.v, 0, 0, r, c) + shift));
}

/* The bounds of values that were moved, times a factor; and how many rows keep them. */
static void doubled_bounds_of(double *bounds, int64_t spare, uint32_t flags, double scale, double shift, double *kept)
{
  double           errors[DOUBLED_ROWS];
  support_estimate s;
  int64_t          r;
  support_estimate_init(&s, DOUBLED_ROWS, DOUBLED_M, DOUBLED_DIM);
  s.desc.v_dim = DOUBLED_DIM + spare;
  s.desc.flags = flags;
  s.options.samples = 2;
  support_estimate_begin(&s, NULL, 3);
  doubled_move_values(&s, scale, shift);
  support_estimate_execute(&s);
  support_estimate_compare(&s, errors, NULL);
  *kept = 0;
  for (r = 0; r < DOUBLED_ROWS; ++r) {
    bounds[r] = s.bounds[r] / scale;
    *kept += (errors[r] <= s.bounds[r]) / (double)DOUBLED_ROWS;
  }
  support_estimate_end(&s);
}

/* Bounds grow as the values do, and do not see what all values share. Far from zero the kernel itself is off by an ulp. */
static void bounds_hold_at_any_magnitude(void **state)
{
  static const struct {
    double scale, shift, loss;
  } rows[] = { { 0x1p100, 0, 1e-9 }, { 0x1p-100, 0, 1e-9 }, { 1e30, 0, 1e-6 }, { 1e-30, 0, 1e-6 },
               { 1, 1e4, 0.01 },     { 1e25, 1e4, 0.01 },   { 1, -1e5, 0.1 } };
  int64_t i, k, r;
  (void)state;
  for (k = 0; k < 4; k += 3) { /* lse and spare columns, neither of them */
    double bounds[DOUBLED_ROWS], plain[DOUBLED_ROWS], kept;
    doubled_bounds_of(plain, k % 2 ? 0 : 2, k < 2 ? TWH_ORACLE_LSE : 0, 1, 0, &kept);
    for (i = 0; i < SUPPORT_COUNT(rows); ++i) {
      doubled_bounds_of(bounds, k % 2 ? 0 : 2, k < 2 ? TWH_ORACLE_LSE : 0, rows[i].scale, rows[i].shift, &kept);
      if (!(kept >= 0.87 && kept <= 0.997)) fail_msg("kernel %d, row %d: %.3f of the bounds hold", (int)k, (int)i, kept);
      for (r = 0; r < DOUBLED_ROWS; ++r) {
        if (fabs(bounds[r] - plain[r]) <= rows[i].loss * plain[r]) continue;
        fail_msg("kernel %d, row %d: bound %g, not %g", (int)k, (int)i, bounds[r], plain[r]);
      }
    }
  }
}

/* Equal values have no error but the kernel's own; huge, tiny and no values too. */
static void equal_values_have_no_error(void **state)
{
  static const double values[] = { 3.7, 0, -1e30, 1e-30, 1e-38 };
  int64_t             i, r, c;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(values); ++i) {
    support_estimate s;
    support_estimate_init(&s, DOUBLED_ROWS, DOUBLED_M, DOUBLED_DIM);
    support_estimate_begin(&s, NULL, 4);
    for (r = 0; r < DOUBLED_ROWS; ++r)
      for (c = 0; c < DOUBLED_DIM; ++c) support_set(&s.tensors.v, 0, 0, r, c, values[i]);
    support_estimate_execute(&s);
    for (r = 0; r < DOUBLED_ROWS; ++r)
      support_assert_at_most(s.bounds[r], 3e-6 * fabs(values[i]) + 1e-44, "bound of equal values");
    support_estimate_end(&s);
  }
}

/* Values up to the largest that a kernel takes, and those of a few keys much larger than all others. */
static void huge_and_uneven_values_have_finite_bounds(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  static const double  most[] = { 1e38, 6e4, 1e38 };
  int64_t              i, r, c;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(dtypes); ++i) {
    double           errors[DOUBLED_ROWS], kept = 0;
    support_random   random = support_random_at(7, (uint64_t)i);
    support_estimate s;
    support_estimate_init(&s, DOUBLED_ROWS, DOUBLED_M, DOUBLED_DIM);
    s.desc.dtype = dtypes[i];
    s.options.samples = 2;
    support_estimate_begin(&s, NULL, 4);
    for (r = 0; r < DOUBLED_ROWS; r += 3)
      for (c = 0; c < DOUBLED_DIM; ++c) support_set(&s.tensors.v, 0, 0, r, c, support_one_in(&random, 2) ? most[i] : -most[i]);
    support_estimate_execute(&s);
    support_estimate_compare(&s, errors, NULL);
    for (r = 0; r < DOUBLED_ROWS; ++r) {
      if (!(s.bounds[r] > 1e-3 * most[i] && s.bounds[r] < 10 * most[i]))
        fail_msg("dtype %d: bound %g", (int)dtypes[i], s.bounds[r]);
      kept += (errors[r] <= s.bounds[r]) / (double)DOUBLED_ROWS;
    }
    if (!(kept >= 0.85)) fail_msg("dtype %d: %.3f of the bounds hold", (int)dtypes[i], kept);
    support_estimate_end(&s);
  }
}

/* Logits far from zero, as softmax does not see them, and weights whose squares fit no f32 beside 1. */
static void logits_of_any_height_have_the_same_bounds(void **state)
{
  static const double means[] = { 0, 60, -300 };
  int64_t             i, r;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(means); ++i) {
    double           errors[DOUBLED_ROWS], kept = 0;
    support_estimate s;
    support_estimate_init(&s, DOUBLED_ROWS, DOUBLED_M, DOUBLED_DIM);
    s.fill.logit_mean = means[i];
    s.options.samples = 2;
    support_estimate_begin(&s, NULL, 4);
    support_estimate_execute(&s);
    support_estimate_compare(&s, errors, NULL);
    for (r = 0; r < DOUBLED_ROWS; ++r) {
      if (!(s.bounds[r] > 0 && s.bounds[r] < 100)) fail_msg("mean %g: bound %g", means[i], s.bounds[r]);
      kept += (errors[r] <= s.bounds[r]) / (double)DOUBLED_ROWS;
    }
    if (!(kept >= (i == 0 ? 0.87 : 0.5))) fail_msg("mean %g: %.3f of the bounds hold", means[i], kept);
    support_estimate_end(&s);
  }
}

/* Queries up to half of what the kernel's dtype holds, with keys that are as small; and beyond that, where doubled ones are infinite: the
 * result is what it is without an estimate, and no bound is a small number for that reason. */
static void queries_may_be_huge(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  static const double  most[] = { 3e38, 6e4, 3e38 };
  int64_t              i, r, c;
  int                  half;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(dtypes); ++i)
    for (half = 1; half >= 0; --half) {
      double           errors[DOUBLED_ROWS], kept = 0, by = most[i] / (half ? 4 : 3), limit = half ? most[i] / 2 : most[i];
      support_estimate s;
      support_estimate_init(&s, DOUBLED_ROWS, DOUBLED_M, DOUBLED_DIM);
      s.desc.dtype = dtypes[i];
      s.desc.scale = 1 / sqrt((double)DOUBLED_DIM);
      s.options.samples = 2;
      support_estimate_begin(&s, NULL, 4);
      s.oracle.finite_only = half;
      for (r = 0; r < DOUBLED_ROWS; ++r)
        for (c = 0; c < DOUBLED_DIM; ++c) {
          support_set(&s.tensors.q, 0, 0, r, c, fmax(-limit, fmin(limit, by * support_at(&s.tensors.q, 0, 0, r, c))));
          support_set(&s.tensors.k, 0, 0, r, c, support_at(&s.tensors.k, 0, 0, r, c) / by);
        }
      support_estimate_execute(&s);
      support_estimate_compare(&s, errors, NULL);
      for (r = 0; r < DOUBLED_ROWS; ++r) {
        if (half && !(s.bounds[r] > 0 && s.bounds[r] < 100))
          fail_msg("dtype %d, row %d: bound %g", (int)dtypes[i], (int)r, s.bounds[r]);
        kept += !(errors[r] > s.bounds[r]) / (double)DOUBLED_ROWS;
      }
      if (!(kept >= 0.85)) fail_msg("dtype %d: %.3f of the bounds hold", (int)dtypes[i], kept);
      support_estimate_end(&s);
    }
}

/* One drawn key that outweighs the others by so much that nothing can be said of those, or the only one that is drawn: the bound is
 * infinite, not next to 0. */
static void one_key_that_outweighs_the_others_leaves_all_open(void **state)
{
  static const double by[] = { 0, 30, 500 };
  int64_t             i, r;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(by); ++i) {
    support_estimate s;
    int64_t          infinite = 0;
    support_estimate_init(&s, DOUBLED_ROWS, DOUBLED_M, DOUBLED_DIM);
    s.problem.flags = TWH_PROBLEM_KEY_BIAS;
    s.desc.qk_dim += 16;
    s.options.samples = 2;
    support_estimate_begin(&s, NULL, 5);
    for (r = 0; r < DOUBLED_ROWS; ++r) support_set(&s.tensors.key_bias, 0, 0, r, 0, r % 64 == 5 ? by[i] : 0);
    support_estimate_execute(&s);
    for (r = 0; r < DOUBLED_ROWS; ++r) {
      assert_true(s.bounds[r] > 0);
      infinite += isinf(s.bounds[r]) != 0;
    }
    if (!(i == 0 ? infinite == 0 : infinite > DOUBLED_ROWS / 8)) fail_msg("by %g: %d rows", by[i], (int)infinite);
    support_estimate_end(&s);
  }
  for (i = 0; i < 2; ++i) {
    support_estimate s;
    support_estimate_init(&s, 40, 8, DOUBLED_DIM);
    s.desc.k_len = 1;
    s.desc.flags = i ? TWH_ORACLE_LSE : 0;
    support_estimate_begin(&s, NULL, 5);
    support_estimate_execute(&s);
    for (r = 0; r < 40; ++r) assert_true(isinf(s.bounds[r]));
    support_estimate_end(&s);
  }
}

/* Bounds are those of the data, whichever way a kernel's sums are read, and where the host computes rows that it could not read. */
static void all_readings_give_the_same_bounds(void **state)
{
  static const struct {
    uint32_t flags;
    int64_t  spare;
  } rows[] = { { TWH_ORACLE_LSE, 1 }, { 0, 2 }, { 0, 1 }, { 0, 0 }, { TWH_ORACLE_LSE, -3 }, { 0, -4 } };
  static double first[DOUBLED_ROWS], bounds[DOUBLED_ROWS];
  int64_t       i, r, host_rows = 0, repaired = 0;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(rows); ++i) {
    support_estimate s;
    support_estimate_init(&s, DOUBLED_ROWS, 64, DOUBLED_DIM); /* so long that the host takes single rows */
    s.problem.flags = TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI;
    s.fill.logit_std = 2;
    s.key_bias = 2;
    s.slope = 0.01;
    s.desc.dtype = TWH_F16;
    s.desc.out_dtype = TWH_F32;
    s.desc.qk_dim += 16;
    s.desc.flags = rows[i].flags;
    s.desc.v_dim = rows[i].spare < 0 ? -rows[i].spare : DOUBLED_DIM + rows[i].spare;
    s.options.samples = 3;
    support_estimate_begin(&s, NULL, 5);
    support_estimate_execute(&s);
    host_rows += s.stats.host_rows;
    repaired += s.stats.repaired_rows;
    memcpy(i ? bounds : first, s.bounds, sizeof bounds);
    for (r = 0; i > 0 && r < DOUBLED_ROWS; ++r) {
      double most = isinf(first[r]) ? bounds[r] : first[r];
      if (isinf(first[r]) || isinf(bounds[r]) ? most > 10 : fabs(bounds[r] - first[r]) <= 0.02 * (1 + first[r])) continue;
      fail_msg("kernel %d, row %d: bound %g, not %g", (int)i, (int)r, bounds[r], first[r]);
    }
    support_estimate_end(&s);
  }
  assert_true(host_rows > 10 && repaired > 10);
}

static void bounds_follow_the_errors(void **state)
{
  static const struct {
    int64_t samples;
    double  std;
  } rows[3] = { { 1, 0.5 }, { 4, 0.5 }, { 1, 1.5 } };
  double           mean[3] = { 0, 0, 0 };
  support_estimate s;
  int64_t          i, r;
  (void)state;
  for (i = 0; i < 3; ++i) {
    support_estimate_init(&s, 2 * DOUBLED_ROWS, DOUBLED_M, DOUBLED_DIM);
    s.fill.logit_std = rows[i].std;
    s.options.samples = rows[i].samples;
    support_estimate_begin(&s, NULL, 6);
    support_estimate_execute(&s);
    for (r = 0; r < s.rows; ++r) mean[i] += s.bounds[r] / (double)s.rows;
    support_estimate_end(&s);
  }
  assert_true(mean[1] < 0.53 * mean[0] && mean[1] > 0.4 * mean[0]); /* four times the keys: half the error */
  assert_true(mean[2] > 1.5 * mean[0]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bounds_hold_as_often_as_they_say),
    cmocka_unit_test(bounds_hold_at_any_magnitude),
    cmocka_unit_test(equal_values_have_no_error),
    cmocka_unit_test(huge_and_uneven_values_have_finite_bounds),
    cmocka_unit_test(logits_of_any_height_have_the_same_bounds),
    cmocka_unit_test(queries_may_be_huge),
    cmocka_unit_test(one_key_that_outweighs_the_others_leaves_all_open),
    cmocka_unit_test(all_readings_give_the_same_bounds),
    cmocka_unit_test(bounds_follow_the_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
