/* Promises on scores, each with inputs built so that one property alone decides the result.
 *
 * Queries are nearly always one-hot or constant and keys have few levels, so that a score is one product and two keys of a
 * level have exactly equal scores; values say which level a weight belongs to. */
#include <math.h>
#include <string.h>

#include "core/oracle/check.h"

/* a and b with scale a b = score, of like size, as far as the dtype reaches; in f16 also their product does not overflow. */
static void check_scores_split(const twh__check *check, double score, double *a, double *b)
{
  double product = score / check->scale;
  int    half = check->desc->dtype == TWH_F16 || (check->desc->flags & TWH_ORACLE_F16_SCORES);

  if (half && fabs(product) > 0x1p15) product = copysign(0x1p15, product);
  *a = exp2(floor(log2(fabs(product)) / 2));
  if (check->desc->dtype == TWH_F16) *a = fmin(0x1p10, fmax(0x1p-10, *a));
  *b = product / *a;
}

static void check_scores_one_hot(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  twh__recipe_zero(check, trial, which, slot, row, values);
  values[(slot + row) % trial->blocks[which].dim] = trial->recipe.a;
}

static void check_scores_constant(const twh__trial *trial, int32_t which, double value, double *values)
{
  for (int64_t c = 0; c < trial->blocks[which].dim; ++c) values[c] = value;
}

/* ---- scale: the share of keys that score lower ---- */

static void check_scores_scale_k(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  (void)check;
  (void)slot;
  check_scores_constant(trial, which, row % 2 ? trial->recipe.b : 0, values);
}

static void check_scores_scale_v(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  (void)check;
  (void)slot;
  check_scores_constant(trial, which, row % 2 ? 0 : 1, values);
}

twh_status twh__promise_scale(twh__check *check, twh__finding *finding)
{
  twh__check_shape shape = twh__check_full(check, twh__check_plain_mode(check));
  twh__recipe      recipe = twh__recipe_random(201);
  twh__tolerance   tolerance;
  twh__measure     measure;
  twh_status       status;
  double           score = 8;

  recipe.q = check_scores_one_hot;
  recipe.k = check_scores_scale_k;
  recipe.v = check_scores_scale_v;
  recipe.mask = NULL;
  check_scores_split(check, score, &recipe.a, &recipe.b);
  /* the share is about e^-8: its relative error is that of the score, 8 times its relative one */
  tolerance.scores = 0;
  tolerance.relative = (check->desc->dtype == TWH_F32 ? 8 : 2) * check->score_unit * (1 + score);
  tolerance.relative += 2 * check->out_unit + 0x1p-22 * sqrt((double)shape.k_len);
  tolerance.absolute = check->desc->dtype == TWH_F16 || check->desc->out_dtype == TWH_F16 ? 0x1p-24 * (double)shape.k_len : 0;
  memset(&measure, 0, sizeof measure);
  status = twh__check_measure(check, &shape, &recipe, &tolerance, &measure);
  if (TWH__FAILED(status)) return status;
  measure.lse_ratio[0] = measure.lse_ratio[1] = 0;
  twh__measure_report(check, &measure, finding);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "%.6g, every one of %lld coordinates counts; %.3g of the bound", check->scale,
                     (long long)check->desc->qk_dim, measure.ratio);
  }
  return TWH_OK;
}

/* ---- softcap: three levels of keys, the two upper ones close under a cap and far apart without ---- */

static void check_scores_cap_q(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                               double *values)
{
  static const double factors[4] = { 4, 1, 40, 0.25 };

  check_scores_one_hot(check, trial, which, slot, row, values);
  if (check->desc->softcap > 0) values[(slot + row) % trial->blocks[which].dim] *= factors[(slot + row) % 4];
}

static void check_scores_cap_k(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                               double *values)
{
  double middle = check->desc->softcap > 0 ? 0.5 : 29.0 / 30.0;

  (void)slot;
  check_scores_constant(trial, which, trial->recipe.b * (row % 3 == 0 ? 1 : row % 3 == 1 ? middle : 0), values);
}

static void check_scores_cap_v(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                               double *values)
{
  (void)check;
  (void)slot;
  for (int64_t c = 0; c < trial->blocks[which].dim; ++c) values[c] = row % 3 == 1 - c % 2;
}

twh_status twh__promise_softcap(twh__check *check, twh__finding *finding)
{
  /* loose: the scores are large, and what is looked for is far larger */
  static const twh__tolerance tolerance = { 0, 0.5, 2e-3 };
  twh__check_shape            shape = twh__check_full(check, twh__check_plain_mode(check));
  twh__recipe                 recipe = twh__recipe_random(202);
  twh__measure                measure;
  twh_status                  status;
  double                      cap = check->desc->softcap;

  recipe.q = check_scores_cap_q;
  recipe.k = check_scores_cap_k;
  recipe.v = check_scores_cap_v;
  recipe.mask = NULL;
  check_scores_split(check, cap > 0 ? cap : 60, &recipe.a, &recipe.b);
  memset(&measure, 0, sizeof measure);
  status = twh__check_measure(check, &shape, &recipe, &tolerance, &measure);
  if (TWH__FAILED(status)) return status;
  measure.lse_ratio[0] = measure.lse_ratio[1] = 0;
  twh__measure_report(check, &measure, finding);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    if (cap > 0) twh__finding_set(finding, TWH_CHECK_HOLDS, "%.6g, seen at scores of up to %.4g", cap, 40 * cap);
    else twh__finding_set(finding, TWH_CHECK_HOLDS, "none, seen at scores of %.3g", fabs(check->scale * recipe.a * recipe.b));
  }
  return TWH_OK;
}

/* ---- shift: the same number added to every score of a row ---- */

static void check_scores_shift_q(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  twh__recipe_random_q(check, trial, which, slot, row, values);
  values[0] = (slot + row) % 2 ? -trial->recipe.b : trial->recipe.b;
}

static void check_scores_shift_k(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  twh__recipe_random_k(check, trial, which, slot, row, values);
  /* where there is no other coordinate, sixteenths of the shift make the keys differ */
  values[0] = trial->recipe.c * (trial->blocks[which].dim > 1 ? 1 : 1 + (double)(row % 5) / 16);
}

twh_status twh__promise_shift(twh__check *check, twh__finding *finding)
{
  static const twh__tolerance tolerance = { 1, 0, 0 };
  twh__check_shape            shape = twh__check_full(check, twh__check_plain_mode(check));
  twh__recipe                 recipe = twh__recipe_random(203);
  twh__measure                measure;
  twh_status                  status;

  if (check->desc->softcap > 0) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "capped scores do not shift");
    return TWH_OK;
  }
  recipe.q = check_scores_shift_q;
  recipe.k = check_scores_shift_k;
  recipe.a = 1;
  check_scores_split(check, 24, &recipe.b, &recipe.c);
  memset(&measure, 0, sizeof measure);
  status = twh__check_measure(check, &shape, &recipe, &tolerance, &measure);
  if (TWH__FAILED(status)) return status;
  twh__measure_report(check, &measure, finding);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "all scores moved by +-%.3g: out stays, largest error %.3g%s",
                     fabs(check->scale * recipe.b * recipe.c), measure.error,
                     check->desc->flags & TWH_ORACLE_LSE ? ", and lse moves with them" : "");
  }
  return TWH_OK;
}

/* ---- large scores: levels of plus and minus a thousand ---- */

static void check_scores_large_q(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  twh__recipe_zero(check, trial, which, slot, row, values);
  values[trial->blocks[which].dim > 1 && (slot + row) % 4 > 1] = (slot + row) % 2 ? -trial->recipe.a : trial->recipe.a;
}

/* coordinate 0: of either sign; coordinate 1: all alike */
static void check_scores_large_k(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  twh__recipe_zero(check, trial, which, slot, row, values);
  values[0] = twh__check_random(trial->recipe.seed, slot, row, 0) < 0 ? -trial->recipe.b : trial->recipe.b;
  if (trial->blocks[which].dim > 1) values[1] = trial->recipe.b;
}

twh_status twh__promise_large(twh__check *check, twh__finding *finding)
{
  static const twh__tolerance tolerance = { 0, 0, 0 };
  twh__check_shape            shape = twh__check_full(check, twh__check_plain_mode(check));
  twh__recipe                 recipe = twh__recipe_random(204);
  twh__trial                 *one, trial;
  twh__measure                measure;
  twh_status                  status;

  recipe.q = check_scores_large_q;
  recipe.k = check_scores_large_k;
  recipe.mask = NULL;
  check_scores_split(check, 1000, &recipe.a, &recipe.b);
  memset(&measure, 0, sizeof measure);
  status = twh__trial_create(check, &shape, &recipe, &trial);
  if (TWH__FAILED(status)) return status;
  one = &trial;
  status = twh__trial_run(check, &one, 1);
  if (!TWH__FAILED(status)) status = twh__trial_measure(check, &trial, &tolerance, &measure);
  twh__trial_destroy(check, &trial);
  if (TWH__FAILED(status)) return status;
  if (measure.lse_error[check->base2] < INFINITY) measure.lse_ratio[0] = measure.lse_ratio[1] = 0; /* finite is enough here */
  twh__measure_report(check, &measure, finding);
  if (trial.nans > 0) twh__finding_set(finding, TWH_CHECK_UNTRUE, "%lld results are not a number", (long long)trial.nans);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "scores of +-%.4g: nothing but numbers, largest error %.3g",
                     fabs(check->scale * recipe.a * recipe.b), measure.error);
  }
  return TWH_OK;
}

/* ---- underflow: keys that a spare coordinate takes out of a row, with values that nobody could overlook ---- */

/* The code of a dead key: a power of two whose square is finite in every dtype's arithmetic, or 0. */
static double check_scores_code(const twh__check *check)
{
  double scale = fabs(check->scale), code;

  if (check->desc->dtype == TWH_F16) {
    code = 0x1p15;
    while (1.5 * code * fmax(1, scale) > 65504) code /= 2;
    return scale * code * code >= 0x1p17 + 256 ? code : 0;
  }
  code = exp2(fmin(60, floor((100 - log2(scale)) / 2)));
  return scale * code * code >= 0x1p64 ? code : 0;
}

static int check_scores_is_dead(const twh__check *check, const twh__trial *trial, int64_t key)
{
  (void)check;
  /* under a causal mask every row keeps key 0; else the whole first half is dead, and with it whole tiles of the kernel */
  return trial->call.mask_mode == TWH_MASK_CAUSAL ? key % 2 == 1 : key < trial->call.k_len / 2;
}

static void check_scores_dead_q(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                double *values)
{
  twh__recipe_zero(check, trial, which, slot, row, values);
  values[0] = (slot + row) % 2 == 0 ? -trial->recipe.b : 0;
}

static void check_scores_dead_k(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                double *values)
{
  twh__recipe_random_k(check, trial, which, slot, row, values);
  values[0] = !check_scores_is_dead(check, trial, row) ? 0 : check->scale < 0 ? -trial->recipe.b : trial->recipe.b;
}

static void check_scores_dead_v(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                double *values)
{
  twh__recipe_random_v(check, trial, which, slot, row, values);
  if (check_scores_is_dead(check, trial, row)) check_scores_constant(trial, which, trial->recipe.c, values);
}

twh_status twh__promise_underflow(twh__check *check, twh__finding *finding)
{
  static const twh__tolerance tolerance = { 0, 0, 0 };
  twh__check_shape            shape = twh__check_full(check, twh__check_plain_mode(check));
  twh__recipe                 recipe = twh__recipe_random(205);
  twh__measure                measure;
  twh_status                  status;
  double                      code = check->desc->softcap > 0 ? 0 : check_scores_code(check);

  if (code == 0 || check->desc->qk_dim < 2 || shape.k_len < 2) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "%s",
                     check->desc->softcap > 0 ? "capped scores do not reach that far"
                     : code == 0              ? "with this scale no score reaches that far"
                                              : "needs two coordinates and two keys");
    return TWH_OK;
  }
  recipe.q = check_scores_dead_q;
  recipe.k = check_scores_dead_k;
  recipe.v = check_scores_dead_v;
  recipe.mask = NULL;
  recipe.a = 1;
  recipe.b = code;
  recipe.c = check->desc->dtype == TWH_F16 || check->desc->out_dtype == TWH_F16 ? 0x1p12 : 0x1p100;
  memset(&measure, 0, sizeof measure);
  status = twh__check_measure(check, &shape, &recipe, &tolerance, &measure);
  if (TWH__FAILED(status)) return status;
  twh__measure_report(check, &measure, finding);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "a score of %.3g has weight 0", -fabs(check->scale) * code * code);
  }
  return TWH_OK;
}

twh_status twh__promise_f16_scores(twh__check *check, twh__finding *finding)
{
  twh__finding_set(finding, TWH_CHECK_SKIPPED, "%s",
                   check->desc->flags & TWH_ORACLE_F16_SCORES ? "a kernel's inner rounding cannot be seen from outside"
                                                              : "not declared");
  return TWH_OK;
}
