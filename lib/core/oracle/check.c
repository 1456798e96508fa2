/* The check: every promise of a kernel's description, one after the other, on calls made by hand.
 *
 * The table is in order: "softmax" leaves what the two promises on the lse read, they settle in which base the others
 * read it, and the last two look back on all calls. Nothing here relies on a promise that an earlier row found untrue. */
#include <math.h>
#include <string.h>

#include "core/oracle/check.h"

typedef struct check_row {
  const char   *name;
  twh__promise *test;
} check_row;

static const check_row check_table[] = {
  { "softmax", twh__promise_softmax },
  { "lse base", twh__promise_lse_base },
  { "lse", twh__promise_lse },
  { "scale", twh__promise_scale },
  { "scale per call", twh__promise_scale_per_call },
  { "softcap", twh__promise_softcap },
  { "key shift", twh__promise_shift },
  { "large scores", twh__promise_large },
  { "underflow", twh__promise_underflow },
  { "f16 scores", twh__promise_f16_scores },
  { "mask positions", twh__promise_mask_positions },
  { "mask values", twh__promise_mask_values },
  { "causal", twh__promise_causal },
  { "empty rows", twh__promise_empty_lse },
  { "fewer rows", twh__promise_rows },
  { "fewer keys", twh__promise_keys },
  { "fewer slots", twh__promise_slots },
  { "strides", twh__promise_strides },
  { "continues", twh__promise_continues },
  { "batch", twh__promise_batch },
  { "determinism", twh__promise_determinism },
  { "every element", twh__promise_written },
  { "margins", twh__promise_margins },
};

/* Relative error of one rounding. */
static double check_unit(int32_t dtype)
{
  switch (dtype) {
    case TWH_F16: return 0x1p-11;
    case TWH_BF16: return 0x1p-8;
    default: return 0x1p-24; /* f64: no kernel computes wider than f32 is asked to */
  }
}

static void check_prepare(twh__check *check, const twh_oracle *oracle)
{
  const twh_oracle_desc *desc = &oracle->desc;
  double                 dot = 0x1p-22 * (1 + sqrt((double)desc->qk_dim) / 16);

  check->oracle = oracle;
  check->desc = desc;
  check->unit = check_unit(desc->dtype);
  check->out_unit = check_unit(desc->out_dtype);
  check->score_unit = fmax(check->unit, dot);
  if (desc->flags & TWH_ORACLE_F16_SCORES) check->score_unit = fmax(check->score_unit, 0x1p-11);
  check->scale = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? 1 / sqrt((double)desc->qk_dim) : desc->scale;
  check->base2 = (desc->flags & TWH_ORACLE_LSE_BASE2) != 0;
  check->hidden = -INFINITY;
  if (desc->mask_value != 0) { /* as the mask operand holds it */
    double rounded[1];
    twh__store(rounded, desc->mask_dtype, 0, desc->mask_value);
    check->hidden = twh__load(rounded, desc->mask_dtype, 0);
  }
}

twh_status twh_oracle_check(const twh_context *context, const twh_oracle *oracle,
                            void (*report)(void *user, const char *promise, int32_t verdict, const char *detail), void *user,
                            int64_t *untrue, twh_error *error)
{
  twh__check   check;
  twh__finding finding;
  twh_status   status = TWH_OK;
  int64_t      dims, found = 0;
  size_t       bytes;

  if (!oracle) return twh__fail(error, TWH_E_ARGUMENT, "oracle is NULL");
  memset(&check, 0, sizeof check);
  check.context = twh__context_or_default(context);
  check.error = error;
  check_prepare(&check, oracle);
  dims = twh__max(oracle->desc.k_len, twh__max(oracle->desc.qk_dim, oracle->desc.v_dim));
  if (dims > PTRDIFF_MAX / (2 * (int64_t)sizeof *check.row)) {
    return twh__fail(error, TWH_E_OVERFLOW, "oracle.k_len, qk_dim or v_dim is too large for a check");
  }
  bytes = 2 * sizeof *check.row * (size_t)dims;
  check.row = (double *)twh__allocate(check.context, bytes, 0, error);
  if (!check.row) return TWH_E_MEMORY;
  check.other = check.row + dims;
  for (size_t i = 0; i < sizeof check_table / sizeof check_table[0]; ++i) {
    memset(&finding, 0, sizeof finding);
    status = check_table[i].test(&check, &finding);
    if (TWH__FAILED(status)) break;
    found += finding.verdict == TWH_CHECK_UNTRUE;
    if (report) report(user, check_table[i].name, finding.verdict, finding.detail);
  }
  twh__release(check.context, check.row, bytes);
  if (!TWH__FAILED(status) && untrue) *untrue = found;
  return status;
}
