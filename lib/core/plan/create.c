/* Making a plan: the cheapest way on the cheapest kernel. */
#include <math.h>
#include <string.h>

#include "core/plan/problem.h"

void twh_plan_destroy(twh_plan *plan)
{
  const twh_context *context;

  if (!plan) return;
  context = plan->context;
  twh__release(context, plan->spans, (size_t)plan->spans_count * sizeof *plan->spans);
  twh__release(context, plan->first_unit, ((size_t)plan->spans_count + 1) * sizeof *plan->first_unit);
  twh__release(context, plan, sizeof *plan);
}

/* What the planned calls cost in the kernel's own unit. */
static double create_cost(const twh_oracle_desc *desc, const twh_plan_options *options, const twh__tally *tally)
{
  double per_batch = (double)twh__plan_calls_per_batch(desc, options);
  return (double)tally->calls * desc->cost_per_call + ceil((double)tally->calls / per_batch) * desc->cost_per_batch;
}

/* Try every way on one kernel; the first kernel's reason for not being able to is the one that is reported. */
static twh_status create_try(twh_plan *plan, const twh_oracle *oracle, int32_t number, const twh_plan_options *options,
                             double *best, twh_error *error)
{
  twh_status    status = twh__lower_check(&oracle->desc, &plan->shape, plan->any_causal, error);
  twh__lowering lowering;
  twh__tally    tally;

  if (TWH__FAILED(status)) return status;
  status = twh__fail(error, TWH_E_UNSUPPORTED, "oracle.mask_modes: no way to compute this pattern on this kernel");
  for (int32_t way = 0; way < twh__lower_ways(); ++way) {
    twh_status counted;
    if (!twh__lower_make(&lowering, way, &oracle->desc, &plan->shape, plan->any_causal)) continue;
    counted = twh__plan_count(plan, &lowering, &tally, error);
    if (TWH__FAILED(counted)) return counted;
    status = TWH_OK;
    if (create_cost(&oracle->desc, options, &tally) >= *best) continue;
    *best = create_cost(&oracle->desc, options, &tally);
    plan->oracle = oracle;
    plan->oracle_index = number;
    plan->lowering = lowering;
    plan->tally = tally;
  }
  return status;
}

static twh_status create_choose(twh_plan *plan, twh_oracle *const *oracles, int64_t n, const twh_plan_options *options,
                                twh_error *error)
{
  double     best = (double)INFINITY;
  twh_status first = TWH_OK;

  for (int64_t i = 0; i < n; ++i) {
    twh_error  inner;
    twh_status status;
    twh_error_init(&inner);
    if (!oracles[i]) return twh__fail(error, TWH_E_ARGUMENT, "oracles[%lld] is NULL", (long long)i);
    status = create_try(plan, oracles[i], (int32_t)i, options, &best, &inner);
    if (TWH__FAILED(status) && !TWH__FAILED(first)) first = twh__fail(error, status, "%s", inner.message);
  }
  return plan->oracle ? TWH_OK : first;
}

static twh_status create_number_units(twh_plan *plan, twh_error *error)
{
  plan->first_unit =
    (int64_t *)twh__allocate(plan->context, ((size_t)plan->spans_count + 1) * sizeof *plan->first_unit, 0, error);
  if (!plan->first_unit) return TWH_E_MEMORY;
  for (int64_t s = 0; s < plan->spans_count; ++s) {
    plan->first_unit[s + 1] = plan->first_unit[s] + twh__plan_units(plan, &plan->spans[s]);
  }
  return TWH_OK;
}

/* Pairs that one slot of the kernel can compute at most. */
static double create_slot_pairs(const twh_oracle_desc *desc)
{
  double rows = (double)desc->q_len, keys = (double)desc->k_len, first = (double)desc->causal_offset + 1, ramp;

  if (desc->mask_modes != TWH_MASK_CAUSAL) return rows * keys;
  if (first < 0) {
    rows += first; /* the first rows see nothing */
    first = 0;
  }
  ramp = fmax(0, fmin(rows, keys - first)); /* rows that see first, first + 1, ... keys; the rest see all */
  return ramp * first + ramp * (ramp - 1) / 2 + (rows - ramp) * keys;
}

static twh_status create_read_options(twh_plan_options *own, const twh_plan_options *options, twh_error *error)
{
  twh_plan_options_init(own);
  if (options) {
    twh_status status = twh__struct_read(own, sizeof *own, sizeof *own, options, "options", error);
    if (TWH__FAILED(status)) return status;
  }
  if (own->flags != 0) return twh__fail(error, TWH_E_VERSION, "options.flags has unknown bits: 0x%x", (unsigned)own->flags);
  if (own->workspace_limit < 0) return twh__fail(error, TWH_E_ARGUMENT, "options.workspace_limit is negative");
  if (own->max_calls_per_batch < 0) return twh__fail(error, TWH_E_ARGUMENT, "options.max_calls_per_batch is negative");
  return TWH_OK;
}

twh_status twh_plan_create(const twh_context *context, const twh_problem *problem, twh_oracle *const *oracles,
                           int64_t n_oracles, const twh_plan_options *options, twh_plan **out, twh_error *error)
{
  twh_plan        *plan;
  twh_plan_options own;
  twh_status       status;

  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!oracles) return twh__fail(error, TWH_E_ARGUMENT, "oracles is NULL");
  if (n_oracles < 1 || n_oracles > INT32_MAX)
    return twh__fail(error, TWH_E_ARGUMENT, "n_oracles is %lld", (long long)n_oracles);
  status = create_read_options(&own, options, error);
  if (TWH__FAILED(status)) return status;
  context = twh__context_or_default(context);
  plan = (twh_plan *)twh__allocate(context, sizeof *plan, 0, error);
  if (!plan) return TWH_E_MEMORY;
  plan->context = context;
  status = twh__problem_read(plan, problem, error);
  if (!TWH__FAILED(status)) status = create_choose(plan, oracles, n_oracles, &own, error);
  if (!TWH__FAILED(status)) status = create_number_units(plan, error);
  if (!TWH__FAILED(status)) status = twh__plan_lay_out(plan, &own, error);
  if (TWH__FAILED(status)) goto fail;
  plan->call_pairs = create_slot_pairs(&plan->oracle->desc) * (double)plan->lowering.slots;
  *out = plan;
  return TWH_OK;
fail:
  twh_plan_destroy(plan);
  return status;
}
