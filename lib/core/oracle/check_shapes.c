/* Promises on shapes, memory and repetition: calls that are smaller, that lie differently, that come together or again. */
#include <math.h>
#include <string.h>

#include "core/oracle/check.h"

static const twh__tolerance check_shapes_tolerance = { 1, 0, 0 };

static twh_status check_shapes_skip(twh__finding *finding, const char *reason)
{
  twh__finding_set(finding, TWH_CHECK_SKIPPED, "%s", reason);
  return TWH_OK;
}

/* Ordinary inputs in every mask mode, in that shape. */
static twh_status check_shapes_measure(twh__check *check, const twh__check_shape *like, uint64_t seed, twh__measure *measure)
{
  twh__recipe      recipe = twh__recipe_random(seed);
  twh__check_shape shape = *like;
  twh_status       status = TWH_OK;

  for (uint32_t mode = TWH_MASK_NONE; mode <= TWH_MASK_TENSOR && !TWH__FAILED(status); mode <<= 1) {
    shape.mode = mode;
    if (check->desc->mask_modes & mode) status = twh__check_measure(check, &shape, &recipe, &check_shapes_tolerance, measure);
  }
  return status;
}

/* The smallest and the largest length below the full one. */
static twh_status check_shapes_fewer(twh__check *check, uint32_t flag, int64_t full, int64_t least, int64_t step,
                                     twh__check_shape *shape, int64_t *length, uint64_t seed, twh__finding *finding)
{
  twh__measure measure;
  twh_status   status;
  int64_t      lengths[2], n;

  if (!(check->desc->flags & flag)) return check_shapes_skip(finding, "not declared");
  if (least == full) return check_shapes_skip(finding, "there is no smaller number");
  memset(&measure, 0, sizeof measure);
  lengths[0] = least;
  lengths[1] = full - step;
  n = lengths[1] > least ? 2 : 1;
  for (int64_t i = 0; i < n; ++i) {
    *length = lengths[i];
    status = check_shapes_measure(check, shape, seed, &measure);
    if (TWH__FAILED(status)) return status;
  }
  twh__measure_report(check, &measure, finding);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "from %lld to %lld instead of %lld: largest error %.3g", (long long)lengths[0],
                     (long long)lengths[n - 1], (long long)full, measure.error);
  }
  return TWH_OK;
}

twh_status twh__promise_rows(twh__check *check, twh__finding *finding)
{
  const twh_oracle_desc *desc = check->desc;
  twh__check_shape       shape = twh__check_full(check, TWH_MASK_NONE);
  return check_shapes_fewer(check, TWH_ORACLE_FEWER_ROWS, desc->q_len, desc->q_len_min, desc->q_len_step, &shape, &shape.q_len,
                            401, finding);
}

twh_status twh__promise_keys(twh__check *check, twh__finding *finding)
{
  const twh_oracle_desc *desc = check->desc;
  twh__check_shape       shape = twh__check_full(check, TWH_MASK_NONE);
  return check_shapes_fewer(check, TWH_ORACLE_FEWER_KEYS, desc->k_len, desc->k_len_min, desc->k_len_step, &shape, &shape.k_len,
                            402, finding);
}

twh_status twh__promise_slots(twh__check *check, twh__finding *finding)
{
  twh__check_shape shape = twh__check_full(check, TWH_MASK_NONE);
  return check_shapes_fewer(check, TWH_ORACLE_FEWER_SLOTS, check->desc->slots, 1, 1, &shape, &shape.slots, 403, finding);
}

twh_status twh__promise_strides(twh__check *check, twh__finding *finding)
{
  twh__check_shape shape = twh__check_full(check, TWH_MASK_NONE);
  twh__measure     measure;
  twh_status       status = TWH_OK;
  int              backwards = (check->desc->flags & TWH_ORACLE_BACKWARDS) != 0;
  int32_t          last = backwards ? TWH__LAYOUT_BACKWARDS : TWH__LAYOUT_SHARED;

  if (!(check->desc->flags & TWH_ORACLE_STRIDED)) return check_shapes_skip(finding, "not declared");
  memset(&measure, 0, sizeof measure);
  for (shape.layout = TWH__LAYOUT_APART; shape.layout <= last && !TWH__FAILED(status); ++shape.layout) {
    status = check_shapes_measure(check, &shape, 404, &measure);
  }
  if (TWH__FAILED(status)) return status;
  twh__measure_report(check, &measure, finding);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "rows apart, slots inside rows, slots that share inputs%s: largest error %.3g",
                     backwards ? ", rows backwards" : "", measure.error);
  }
  return TWH_OK;
}

/* One call like `together`, on its own, in memory of its own: *row receives the first row that differs, or -1. */
static twh_status check_shapes_alone(twh__check *check, const twh__check_shape *shape, const twh__trial *together, int64_t *row)
{
  twh__trial *one, trial;
  twh_status  status = twh__trial_create(check, shape, &together->recipe, &trial);

  if (TWH__FAILED(status)) return status;
  one = &trial;
  status = twh__trial_run(check, &one, 1);
  if (!TWH__FAILED(status)) *row = twh__trial_compare(check, together, &trial);
  twh__trial_destroy(check, &trial);
  return status;
}

/* n calls as one batch, then each of them `times` times alone: the same bits. */
static twh_status check_shapes_repeat(twh__check *check, int64_t n, int64_t times, uint64_t seed, const char *holds,
                                      twh__finding *finding)
{
  twh__check_shape shape = twh__check_full(check, twh__check_plain_mode(check));
  twh__trial       trials[3], *batch[3];
  twh_status       status = TWH_OK;
  int64_t          made = 0, row = -1;

  for (; made < n && !TWH__FAILED(status); ++made) {
    twh__recipe recipe = twh__recipe_random(seed + (uint64_t)(10 * made));
    batch[made] = &trials[made];
    status = twh__trial_create(check, &shape, &recipe, &trials[made]); /* empty on failure: destroyed below all the same */
  }
  if (!TWH__FAILED(status)) status = twh__trial_run(check, batch, n);
  twh__finding_set(finding, TWH_CHECK_HOLDS, "%s", holds);
  for (int64_t i = 0; i < n * times && !TWH__FAILED(status) && row < 0; ++i) {
    status = check_shapes_alone(check, &shape, &trials[i % n], &row);
    if (row >= 0) {
      twh__finding_set(finding, TWH_CHECK_UNTRUE, "call %lld of %lld: slot %lld, row %lld has other bits when run again alone",
                       (long long)(i % n), (long long)n, (long long)(row / shape.q_len), (long long)(row % shape.q_len));
    }
  }
  while (made > 0) twh__trial_destroy(check, &trials[--made]);
  return status;
}

twh_status twh__promise_batch(twh__check *check, twh__finding *finding)
{
  if (check->desc->max_calls_per_batch < 2) return check_shapes_skip(finding, "the kernel takes one call at a time");
  return check_shapes_repeat(check, twh__min(3, check->desc->max_calls_per_batch), 1, 405,
                             "several calls in a batch return the bits that each returns alone", finding);
}

twh_status twh__promise_determinism(twh__check *check, twh__finding *finding)
{
  return check_shapes_repeat(check, 1, 2, 406, "the same call returns the same bits three times", finding);
}

/* ---- looking back ---- */

twh_status twh__promise_written(twh__check *check, twh__finding *finding)
{
  if (check->missed > 0) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE, "%lld of %lld elements were not written, first in call %lld",
                     (long long)check->missed, (long long)check->elements, (long long)check->first_missed);
  } else {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "%lld elements written in %lld calls", (long long)check->elements,
                     (long long)check->calls);
  }
  return TWH_OK;
}

twh_status twh__promise_margins(twh__check *check, twh__finding *finding)
{
  if (check->strays > 0) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE, "%lld bytes beside the results were overwritten, first in call %lld",
                     (long long)check->strays, (long long)check->first_stray);
  } else if (check->touched > 0) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE, "the inputs of %lld calls were changed", (long long)check->touched);
  } else {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "nothing beside the results was written in %lld calls", (long long)check->calls);
  }
  return TWH_OK;
}
