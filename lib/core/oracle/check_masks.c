/* Promises on masks: at every position, not on a sample.
 *
 * With all scores equal a row returns the mean of the values it sees, so that values which identify keys say which keys those
 * were. A mask operand gives every row a set of its own, together covering all positions; under a causal mask values alternate
 * and grow such that one key more or less moves the mean of any row by about the same amount. */
#include <math.h>
#include <string.h>

#include "core/oracle/check.h"

enum { CHECK_MASKS_CALLS = 8 };

/* ---- mask positions ---- */

/* The set of keys that a row sees: those with j mod n equal to it. Rows are numbered through slots and calls. */
static int64_t check_masks_set(const twh__trial *trial, int64_t slot, int64_t row)
{
  int64_t number = slot * trial->call.q_len + row + trial->recipe.shift;
  return (number + number / trial->recipe.n) % trial->recipe.n;
}

static void check_masks_set_mask(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  int64_t set = check_masks_set(trial, slot, row);

  (void)check;
  for (int64_t j = 0; j < trial->blocks[which].dim; ++j) values[j] = j % trial->recipe.n == set ? 0 : -INFINITY;
}

/* The mean of the values of a set, in check->other. Returns how many they are. */
static int64_t check_masks_mean(const twh__check *check, const twh__trial *trial, int64_t slot, int64_t set)
{
  int64_t keys = 0;

  memset(check->other, 0, (size_t)check->desc->v_dim * sizeof *check->other);
  for (int64_t j = set; j < trial->call.k_len; j += trial->recipe.n, ++keys) {
    twh__trial_row(trial, TWH__CHECK_V, slot, j, check->row);
    for (int64_t c = 0; c < check->desc->v_dim; ++c) check->other[c] += check->row[c];
  }
  for (int64_t c = 0; c < check->desc->v_dim; ++c) check->other[c] /= (double)keys;
  return keys;
}

/* Whether out of that row is check->other, up to `bound` and the rounding of out. */
static int check_masks_is_right(const twh__check *check, const twh__trial *trial, int64_t slot, int64_t row, double bound)
{
  twh__trial_row(trial, TWH__CHECK_OUT, slot, row, check->row);
  for (int64_t c = 0; c < check->desc->v_dim; ++c) {
    double wanted = check->other[c], error = fabs(check->row[c] - wanted);
    if (!(error <= bound + 2 * check->out_unit * fabs(wanted))) return 0;
  }
  return 1;
}

/* Counts wrong rows; *first, if it was negative, receives the first key of the first wrong row's set. */
static int64_t check_masks_count_wrong(const twh__check *check, const twh__trial *trial, int64_t *first)
{
  int64_t wrong = 0;

  for (int64_t s = 0; s < trial->call.slots; ++s) {
    for (int64_t i = 0; i < trial->call.q_len; ++i) {
      int64_t set = check_masks_set(trial, s, i), keys = check_masks_mean(check, trial, s, set);
      double  bound = 4 * fmax(check->unit, 0x1p-22) * (1 + 2 / sqrt((double)keys)) + 0x1p-22 * sqrt((double)keys);
      if (check->desc->dtype == TWH_F16) bound += 0x1p-25 * (double)keys;
      if (!check_masks_is_right(check, trial, s, i, bound) && wrong++ == 0 && *first < 0) *first = set;
    }
  }
  return wrong;
}

twh_status twh__promise_mask_positions(twh__check *check, twh__finding *finding)
{
  twh__check_shape shape = twh__check_full(check, TWH_MASK_TENSOR);
  twh__recipe      recipe = twh__recipe_random(301);
  int64_t          rows = shape.slots * shape.q_len, calls = twh__min(CHECK_MASKS_CALLS, twh__ceil_div(shape.k_len, rows));
  int64_t          wrong = 0, first = -1;
  twh__trial      *one, trial;
  twh_status       status;

  if (!(check->desc->mask_modes & TWH_MASK_TENSOR)) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "the kernel takes no mask operand");
    return TWH_OK;
  }
  recipe.q = twh__recipe_zero;
  recipe.mask = check_masks_set_mask;
  recipe.n = twh__min(shape.k_len, rows * calls);
  one = &trial;
  for (int64_t i = 0; i < calls; ++i) {
    recipe.shift = i * rows;
    status = twh__trial_create(check, &shape, &recipe, &trial);
    if (TWH__FAILED(status)) return status;
    status = twh__trial_run(check, &one, 1);
    if (!TWH__FAILED(status)) wrong += check_masks_count_wrong(check, &trial, &first);
    twh__trial_destroy(check, &trial);
    if (TWH__FAILED(status)) return status;
  }
  if (wrong > 0) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE,
                     "%lld of %lld rows do not see exactly their keys; the first one should see key %lld", (long long)wrong,
                     (long long)(rows * calls), (long long)first);
  } else {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "%lld rows see exactly their keys, which cover all %lld positions",
                     (long long)(rows * calls), (long long)shape.k_len);
  }
  return TWH_OK;
}

/* ---- mask values ---- */

static void check_masks_bias(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                             double *values)
{
  (void)check;
  for (int64_t j = 0; j < trial->blocks[which].dim; ++j) {
    values[j] = trial->recipe.b * twh__check_random(trial->recipe.seed, slot, row, j);
  }
}

twh_status twh__promise_mask_values(twh__check *check, twh__finding *finding)
{
  static const twh__tolerance tolerance = { 1, 0, 0 };
  twh__check_shape            shape = twh__check_full(check, TWH_MASK_TENSOR);
  twh__recipe                 recipe = twh__recipe_random(302);
  twh__measure                measure;
  twh_status                  status;

  if (!(check->desc->mask_modes & TWH_MASK_TENSOR)) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "the kernel takes no mask operand");
    return TWH_OK;
  }
  recipe.q = twh__recipe_zero;
  recipe.odd_bytes = 1;
  /* beyond a cap: a mask that is added before it would be flattened */
  recipe.b = check->desc->softcap > 0 ? fmin(100, 2 * check->desc->softcap) : 4;
  if (check->desc->mask_value != 0) recipe.b = fmin(recipe.b, -check->desc->mask_value / 2);
  if (check->desc->mask_dtype != TWH_BOOL) recipe.mask = check_masks_bias;
  memset(&measure, 0, sizeof measure);
  status = twh__check_measure(check, &shape, &recipe, &tolerance, &measure);
  if (TWH__FAILED(status)) return status;
  twh__measure_report(check, &measure, finding);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    if (check->desc->mask_dtype == TWH_BOOL) twh__finding_set(finding, TWH_CHECK_HOLDS, "every non-zero byte shows its key");
    else
      twh__finding_set(finding, TWH_CHECK_HOLDS, "added to the scores, up to %.3g: largest error %.3g", recipe.b,
                       measure.error);
  }
  return TWH_OK;
}

/* ---- causal ---- */

/* Key j has value (-1)^j (j + 1) a: the mean of the first n keys is about +-a/2, whatever n. */
static void check_masks_causal_v(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                                 double *values)
{
  (void)check;
  for (int64_t c = 0; c < trial->blocks[which].dim; ++c) {
    values[c] = trial->recipe.a * (double)(row + 1) * ((slot + row + c) % 2 ? -1 : 1);
  }
}

static int64_t check_masks_count_causal(const twh__check *check, const twh__trial *trial, int64_t *rows, int64_t *first)
{
  int64_t wrong = 0;

  for (int64_t s = 0; s < trial->call.slots; ++s) {
    double sum = 0; /* of column 0; odd columns have the other sign */
    for (int64_t i = 0, j = 0; i < trial->call.q_len; ++i) {
      int64_t seen = twh__min(i + check->desc->causal_offset + 1, trial->call.k_len);
      if (seen < 1) continue;
      for (; j < seen; ++j) {
        twh__trial_row(trial, TWH__CHECK_V, s, j, check->row);
        sum += check->row[0];
      }
      for (int64_t c = 0; c < check->desc->v_dim; ++c) check->other[c] = (c % 2 ? -sum : sum) / (double)seen;
      if (!check_masks_is_right(check, trial, s, i, 0.25 * trial->recipe.a) && wrong++ == 0) *first = i;
      ++*rows;
    }
  }
  return wrong;
}

twh_status twh__promise_causal(twh__check *check, twh__finding *finding)
{
  twh__check_shape shape = twh__check_full(check, TWH_MASK_CAUSAL);
  twh__recipe      recipe = twh__recipe_random(303);
  int64_t          wrong = 0, rows = 0, first = 0;
  long long        offset = (long long)check->desc->causal_offset;
  twh__trial      *one, trial;
  twh_status       status;

  if (!(check->desc->mask_modes & TWH_MASK_CAUSAL)) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "the kernel has no causal mask");
    return TWH_OK;
  }
  recipe.q = twh__recipe_zero;
  recipe.v = check_masks_causal_v;
  recipe.a = 1;
  while (recipe.a * (double)shape.k_len > 4096) recipe.a /= 2;
  one = &trial;
  status = twh__trial_create(check, &shape, &recipe, &trial);
  if (TWH__FAILED(status)) return status;
  status = twh__trial_run(check, &one, 1);
  if (!TWH__FAILED(status)) wrong = check_masks_count_causal(check, &trial, &rows, &first);
  twh__trial_destroy(check, &trial);
  if (TWH__FAILED(status)) return status;
  if (wrong > 0) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE, "%lld of %lld rows do not see exactly the keys j <= i %+lld, row %lld first",
                     (long long)wrong, (long long)rows, offset, (long long)first);
  } else {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "%lld rows see exactly the keys j <= i %+lld", (long long)rows, offset);
  }
  return TWH_OK;
}

/* ---- empty rows ---- */

/* Rows without a key whose lse is not the declared infinity; *rows: how many there are. */
static int64_t check_masks_count_filled(const twh__check *check, const twh__trial *trial, int64_t *rows)
{
  double  declared = check->desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? INFINITY : -INFINITY;
  int64_t wrong = 0;

  for (int64_t s = 0; s < trial->call.slots; ++s) {
    for (int64_t i = 0; i < trial->call.q_len; ++i) {
      if (!twh__trial_empty(check, trial, s, i)) continue;
      wrong += !(twh__trial_lse(check, trial, s, i) == declared);
      ++*rows;
    }
  }
  return wrong;
}

twh_status twh__promise_empty_lse(twh__check *check, twh__finding *finding)
{
  static const twh__tolerance tolerance = { 1, 0, 0 };
  twh__check_shape            shape = twh__check_full(check, TWH_MASK_TENSOR);
  twh__recipe                 recipe = twh__recipe_random(304);
  const char                 *sign = check->desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? "+" : "-";
  int64_t                     wrong = 0, rows = 0;
  twh__trial                 *one, trial;
  twh__measure                measure;
  twh_status                  status;

  if (!(check->desc->mask_modes & TWH_MASK_TENSOR) || !(check->desc->flags & TWH_ORACLE_LSE) || check->desc->mask_value != 0) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "%s",
                     !(check->desc->mask_modes & TWH_MASK_TENSOR) ? "the kernel takes no mask operand, which alone empties rows"
                     : !(check->desc->flags & TWH_ORACLE_LSE)     ? "the kernel declares no lse"
                                                                  : "hidden keys have a finite mask value: no row is empty");
    return TWH_OK;
  }
  recipe.empty = 1;
  one = &trial;
  memset(&measure, 0, sizeof measure);
  status = twh__trial_create(check, &shape, &recipe, &trial);
  if (TWH__FAILED(status)) return status;
  status = twh__trial_run(check, &one, 1);
  if (!TWH__FAILED(status)) {
    wrong = check_masks_count_filled(check, &trial, &rows);
    status = twh__trial_measure(check, &trial, &tolerance, &measure);
  }
  twh__trial_destroy(check, &trial);
  if (TWH__FAILED(status)) return status;
  twh__measure_report(check, &measure, finding); /* the rows beside them */
  if (wrong > 0) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE, "%lld of %lld rows without a key have an lse that is not %sinf",
                     (long long)wrong, (long long)rows, sign);
  } else if (finding->verdict == TWH_CHECK_HOLDS) {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "%lld rows without a key have lse %sinf", (long long)rows, sign);
  }
  return TWH_OK;
}
