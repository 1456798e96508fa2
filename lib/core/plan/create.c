/* Making a plan: the cheapest way on the cheapest kernel. */
#include <math.h>
#include <string.h>

#include "core/plan/problem.h"

/* A way that stands later in the table moves more data for each call: it must cost so much less. */
#define CREATE_WORTH_WHILE 0.99

void twh_plan_destroy(twh_plan *plan)
{
  const twh_context *context;

  if (!plan) return;
  context = plan->context;
  twh_plan_destroy(plan->exact);
  twh__release(context, plan->spans, (size_t)plan->spans_count * sizeof *plan->spans);
  twh__release(context, plan, sizeof *plan);
}

/* All spans on one kernel. */
static void create_assign(twh_plan *plan, int32_t kernel)
{
  for (int64_t s = 0; s < plan->spans_count; ++s) twh__plan_assign(plan, &plan->spans[s], kernel);
}

void twh__plan_square(twh_plan *plan, const twh_oracle_desc *desc)
{
  if (plan->estimate != TWH_ESTIMATE_DOUBLED) return;
  plan->kernel_count = 2;
  plan->kernels[1] = plan->kernels[0];
  twh__lower_square(&plan->kernels[1].lowering, desc, &plan->square_shape, &plan->needs);
}

twh_status twh__plan_go(twh_plan *plan, const twh_oracle_desc *desc, int32_t way, double *cost, twh_error *error)
{
  twh__kernel *kernel = &plan->kernels[0];
  twh_status   status;

  plan->kernel_count = 1;
  if (!twh__lower_make(&kernel->lowering, way, desc, &plan->shape, &plan->needs)) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "oracle.mask_modes: no way to compute this pattern on this kernel");
  }
  create_assign(plan, 0);
  twh__plan_square(plan, desc);
  status = twh__plan_count(plan, 0, plan->spans_count, &plan->tally, error);
  if (TWH__FAILED(status)) return status;
  *cost = twh__plan_cost(plan, &plan->tally) +
          TWH__HOST_COST * plan->tally.host_pairs / twh__plan_call_pairs(desc) * kernel->cost_call;
  return TWH_OK;
}

twh_status twh__plan_try(twh_plan *plan, const twh_oracle_desc *desc, double *cost, twh_error *error)
{
  twh_status status = twh__lower_check(desc, &plan->shape, error);
  int32_t    best = -1;

  for (int32_t way = 0; way < twh__lower_ways() && !TWH__FAILED(status); ++way) {
    double     own;
    twh_status gone = twh__plan_go(plan, desc, way, &own, error);
    if (gone == TWH_E_UNSUPPORTED) continue;
    if (TWH__FAILED(gone)) return gone;
    if (best >= 0 && own >= CREATE_WORTH_WHILE * *cost) continue;
    *cost = own;
    best = way;
  }
  if (TWH__FAILED(status)) return status;
  return twh__plan_go(plan, desc, best < 0 ? 0 : best, cost, error);
}

/* Keep a kernel among the candidates: all, or the cheapest ones. */
static void create_keep(twh__kernel *kept, double *costs, int32_t *count, const twh__kernel *kernel, double cost)
{
  int32_t at = *count;

  if (at == TWH__MAX_KERNELS) {
    at = 0;
    for (int32_t k = 1; k < *count; ++k) {
      if (costs[k] > costs[at]) at = k;
    }
    if (cost >= costs[at]) return;
    for (; at + 1 < *count; ++at) { /* the caller's order decides between equals */
      kept[at] = kept[at + 1];
      costs[at] = costs[at + 1];
    }
  } else {
    ++*count;
  }
  kept[at] = *kernel;
  costs[at] = cost;
}

/* Only the cheapest. */
static void create_keep_best(twh__kernel *kept, const double *costs, int32_t *count)
{
  int32_t best = 0;

  for (int32_t k = 1; k < *count; ++k) {
    if (costs[k] < costs[best]) best = k;
  }
  kept[0] = kept[best];
  *count = 1;
}

/* Every span gets the kernel that is cheapest for it alone. */
static twh_status create_assign_best(twh_plan *plan, twh_error *error)
{
  for (int64_t s = 0; s < plan->spans_count; ++s) {
    int32_t best = 0;
    double  least = (double)INFINITY;
    for (int32_t k = 0; k < plan->kernel_count; ++k) {
      twh__tally tally;
      twh_status status;
      double     cost = 0;
      twh__plan_assign(plan, &plan->spans[s], k);
      status = twh__plan_count(plan, s, s + 1, &tally, error);
      if (TWH__FAILED(status)) return status;
      /* shares, not calls: a short sequence takes a part of one */
      for (int32_t i = 0; i < plan->kernel_count; ++i) cost += tally.kernel_shares[i] * plan->kernels[i].cost_call;
      if (cost >= least) continue;
      least = cost;
      best = k;
    }
    twh__plan_assign(plan, &plan->spans[s], best);
  }
  return TWH_OK;
}

/* Kernels that compute nothing would only take workspace. */
static void create_drop_unused(twh_plan *plan)
{
  int32_t moved[TWH__MAX_KERNELS], used[TWH__MAX_KERNELS] = { 0 }, count = 0;

  for (int64_t s = 0; s < plan->spans_count; ++s) used[plan->spans[s].kernel] = 1;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    if (!used[k] && plan->tally.kernel_calls[k] == 0) continue;
    moved[k] = count;
    plan->kernels[count++] = plan->kernels[k];
  }
  for (int64_t s = 0; s < plan->spans_count; ++s) plan->spans[s].kernel = moved[plan->spans[s].kernel];
  plan->kernel_count = count;
}

static twh_status create_choose(twh_plan *plan, twh_oracle *const *oracles, int64_t n, const twh_plan_options *options,
                                twh_error *error)
{
  twh__kernel  kept[TWH__MAX_KERNELS];
  twh__kernel *kernel = &plan->kernels[0];
  double       costs[TWH__MAX_KERNELS], cost;
  int32_t      count = 0;
  twh_status   first = TWH_OK, status = TWH_OK;

  for (int64_t i = 0; i < n; ++i) {
    twh_error inner;
    twh_error_init(&inner);
    if (!oracles[i]) return twh__fail(error, TWH_E_ARGUMENT, "oracles[%lld] is NULL", (long long)i);
    kernel->oracle = oracles[i];
    kernel->index = i;
    kernel->cost_call = oracles[i]->desc.cost_per_call;
    kernel->cost_batch = oracles[i]->desc.cost_per_batch;
    kernel->calls_per_batch = twh__plan_calls_per_batch(&oracles[i]->desc, options);
    if ((options->flags & TWH_PLAN_MEASURE) && !TWH__FAILED(twh__lower_check(&oracles[i]->desc, &plan->shape, NULL))) {
      status =
        twh__oracle_measure(plan->context, oracles[i], kernel->calls_per_batch, &kernel->cost_call, &kernel->cost_batch, error);
      if (TWH__FAILED(status)) return status;
    }
    status = twh__plan_try(plan, &oracles[i]->desc, &cost, &inner);
    if (!TWH__FAILED(status)) {
      create_keep(kept, costs, &count, kernel, cost);
    } else if (!TWH__FAILED(first)) {
      first = twh__fail(error, status, "%s", inner.message);
    }
  }
  if (count == 0) return first;
  if (plan->estimate == TWH_ESTIMATE_DOUBLED) create_keep_best(kept, costs, &count);
  memcpy(plan->kernels, kept, (size_t)count * sizeof *kept);
  plan->kernel_count = count;
  create_assign(plan, 0);
  twh__plan_square(plan, &plan->kernels[0].oracle->desc);
  status = count > 1 ? create_assign_best(plan, error) : TWH_OK;
  if (!TWH__FAILED(status)) status = twh__plan_count(plan, 0, plan->spans_count, &plan->tally, error);
  if (TWH__FAILED(status) || count == 1) return status;
  create_drop_unused(plan);
  return twh__plan_count(plan, 0, plan->spans_count, &plan->tally, error);
}

/* A rectangle on a causal mask takes two tiles, neither of which is a sample. */
static twh_status create_check_estimate(const twh_plan *plan, twh_error *error)
{
  if (plan->estimate != TWH_ESTIMATE_REPLICATES || plan->tally.drawn_tiles == 0) return TWH_OK;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    if (plan->kernels[k].lowering.full_mode != TWH_MASK_CAUSAL) continue;
    return twh__fail(error, TWH_E_UNSUPPORTED,
                     "options.estimate: TWH_ESTIMATE_REPLICATES needs a kernel that can run unmasked "
                     "(TWH_MASK_NONE in oracle.mask_modes)");
  }
  return TWH_OK;
}

static void create_number_units(twh_plan *plan)
{
  for (int64_t s = 0; s < plan->spans_count; ++s) {
    plan->spans[s].first_unit = plan->units;
    plan->units += twh__plan_units(plan, &plan->spans[s]);
  }
}

double twh__plan_call_pairs(const twh_oracle_desc *desc)
{
  double rows = (double)desc->q_len, keys = (double)desc->k_len, first = (double)desc->causal_offset + 1, ramp;

  if (desc->mask_modes != TWH_MASK_CAUSAL) return rows * keys * (double)desc->slots;
  if (first < 0) {
    rows += first; /* the first rows see nothing */
    first = 0;
  }
  ramp = fmax(0, fmin(rows, keys - first)); /* rows that see first, first + 1, ... keys; the rest see all */
  return (ramp * first + ramp * (ramp - 1) / 2 + (rows - ramp) * keys) * (double)desc->slots;
}

static twh_status create_read_options(twh_plan_options *own, const twh_plan_options *options, twh_error *error)
{
  twh_plan_options_init(own);
  if (options) {
    twh_status status = twh__struct_read(own, sizeof *own, sizeof *own, options, "options", error);
    if (TWH__FAILED(status)) return status;
  }
  if (own->flags & ~(uint32_t)TWH_PLAN_MEASURE)
    return twh__fail(error, TWH_E_VERSION, "options.flags has unknown bits: 0x%x", (unsigned)own->flags);
  if (own->workspace_limit < 0) return twh__fail(error, TWH_E_ARGUMENT, "options.workspace_limit is negative");
  if (own->max_calls_per_batch < 0) return twh__fail(error, TWH_E_ARGUMENT, "options.max_calls_per_batch is negative");
  return twh__sampling_read(own, error);
}

static twh_status create_plan(const twh_context *context, const twh_problem *problem, twh_oracle *const *oracles,
                              int64_t n_oracles, const twh_plan_options *options, int partial, twh_plan **out,
                              twh_error *error);

/* What is computed where the errors of drawn keys are too large. */
static twh_status create_exact(twh_plan *plan, const twh_problem *problem, twh_oracle *const *oracles, int64_t n_oracles,
                               const twh_plan_options *options, twh_error *error)
{
  twh_plan_options exact;

  if (options->target_error == 0 || plan->tally.drawn_tiles == 0) return TWH_OK;
  twh_plan_options_init(&exact);
  exact.flags = options->flags;
  exact.workspace_limit = options->workspace_limit;
  exact.max_calls_per_batch = options->max_calls_per_batch;
  plan->target_error = options->target_error;
  return create_plan(plan->context, problem, oracles, n_oracles, &exact, 1, &plan->exact, error);
}

/* options: checked, with defaults filled in. */
static twh_status create_plan(const twh_context *context, const twh_problem *problem, twh_oracle *const *oracles,
                              int64_t n_oracles, const twh_plan_options *options, int partial, twh_plan **out, twh_error *error)
{
  twh_plan  *plan = (twh_plan *)twh__allocate(context, sizeof *plan, 0, error);
  twh_status status;

  if (!plan) return TWH_E_MEMORY;
  plan->context = context;
  plan->partial = partial;
  status = twh__problem_read(plan, problem, error);
  if (!TWH__FAILED(status)) status = twh__sampling_set(plan, options, error);
  if (!TWH__FAILED(status)) status = create_choose(plan, oracles, n_oracles, options, error);
  if (!TWH__FAILED(status)) status = create_check_estimate(plan, error);
  if (!TWH__FAILED(status)) create_number_units(plan);
  if (!TWH__FAILED(status)) status = create_exact(plan, problem, oracles, n_oracles, options, error);
  if (!TWH__FAILED(status)) status = twh__plan_lay_out(plan, options, error);
  if (TWH__FAILED(status)) goto fail;
  twh__sampling_bound(plan);
  *out = plan;
  return TWH_OK;
fail:
  twh_plan_destroy(plan);
  return status;
}

twh_status twh_plan_create(const twh_context *context, const twh_problem *problem, twh_oracle *const *oracles,
                           int64_t n_oracles, const twh_plan_options *options, twh_plan **out, twh_error *error)
{
  twh_plan_options own;
  twh_status       status;

  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!oracles) return twh__fail(error, TWH_E_ARGUMENT, "oracles is NULL");
  if (n_oracles < 1 || n_oracles > INT32_MAX)
    return twh__fail(error, TWH_E_ARGUMENT, "n_oracles is %lld", (long long)n_oracles);
  status = create_read_options(&own, options, error);
  if (TWH__FAILED(status)) return status;
  return create_plan(twh__context_or_default(context), problem, oracles, n_oracles, &own, 0, out, error);
}
