/* Promises on the whole computation: a call of ordinary inputs in every mask mode, compared with its definition. */
#include <math.h>
#include <string.h>

#include "core/oracle/check.h"

static const twh__tolerance check_softmax_tolerance = { 1, 0, 0 };

twh_status twh__promise_softmax(twh__check *check, twh__finding *finding)
{
  twh__recipe  recipe = twh__recipe_random(101);
  twh__measure measure;
  twh_status   status = TWH_OK;

  memset(&measure, 0, sizeof measure);
  for (uint32_t mode = TWH_MASK_NONE; mode <= TWH_MASK_TENSOR && !TWH__FAILED(status); mode <<= 1) {
    twh__check_shape shape = twh__check_full(check, mode);
    if (check->desc->mask_modes & mode) status = twh__check_measure(check, &shape, &recipe, &check_softmax_tolerance, &measure);
  }
  if (TWH__FAILED(status)) return status;
  for (int base2 = 0; base2 < 2; ++base2) { /* for the promises on the lse; not this one's business */
    check->lse_sum[base2] = measure.lse_sum[base2];
    check->lse_ratio[base2] = measure.lse_ratio[base2];
    check->lse_error[base2] = measure.lse_error[base2];
    measure.lse_ratio[base2] = 0;
  }
  check->lse_rows = measure.rows;
  twh__measure_report(check, &measure, finding);
  return TWH_OK;
}

twh_status twh__promise_lse_base(twh__check *check, twh__finding *finding)
{
  double declared = check->lse_sum[check->base2], other = check->lse_sum[!check->base2];

  if (!(check->desc->flags & TWH_ORACLE_LSE)) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "the kernel declares no lse");
  } else if (check->lse_rows == 0 || (declared == INFINITY && other == INFINITY)) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "the lse is not a number");
  } else if (other < declared) {
    twh__finding_set(finding, TWH_CHECK_UNTRUE, "declared base %s, but read in base %s it is nearer by a factor of %.3g",
                     check->base2 ? "2" : "e", check->base2 ? "e" : "2", declared / other);
    check->base2 = !check->base2;
  } else {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "base %s, mean error %.3g over %lld rows", check->base2 ? "2" : "e",
                     declared / (double)check->lse_rows, (long long)check->lse_rows);
  }
  return TWH_OK;
}

twh_status twh__promise_lse(twh__check *check, twh__finding *finding)
{
  int32_t base2 = check->base2, holds = check->lse_ratio[base2] <= 1;

  if (!(check->desc->flags & TWH_ORACLE_LSE)) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "the kernel declares no lse");
  } else {
    twh__finding_set(finding, holds ? TWH_CHECK_HOLDS : TWH_CHECK_UNTRUE,
                     "largest error %.3g (read in base %s), %.3g of the bound", check->lse_error[base2], base2 ? "2" : "e",
                     check->lse_ratio[base2]);
  }
  return TWH_OK;
}

twh_status twh__promise_scale_per_call(twh__check *check, twh__finding *finding)
{
  static const double factors[] = { 3, -0.5, 0 };
  twh__recipe         recipe = twh__recipe_random(102);
  twh__check_shape    shape = twh__check_full(check, twh__check_plain_mode(check));
  twh__measure        measure;
  twh_status          status;

  if (!(check->desc->flags & TWH_ORACLE_SCALE_PER_CALL)) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "not declared");
    return TWH_OK;
  }
  memset(&measure, 0, sizeof measure);
  for (size_t i = 0; i < sizeof factors / sizeof factors[0]; ++i) {
    shape.scale = factors[i] * check->scale;
    status = twh__check_measure(check, &shape, &recipe, &check_softmax_tolerance, &measure);
    if (TWH__FAILED(status)) return status;
  }
  twh__measure_report(check, &measure, finding);
  return TWH_OK;
}
