/* What another ability of a kernel would save: the same problem, planned for the kernel as it might be. */
#include <stdio.h>
#include <string.h>

#include "core/plan/plan.h"

enum { ADVISE_V_DIM, ADVISE_CODES, ADVISE_NONE, ADVISE_CAUSAL, ADVISE_TENSOR, ADVISE_LSE };

static const int64_t advise_codes[] = { 1, 2, 3, 4, 6, 8, 12, 16 };

enum { ADVISE_CODE_STEPS = (int)(sizeof advise_codes / sizeof advise_codes[0]) };

static const twh__kernel *advise_main(const twh_plan *plan)
{
  int32_t most = 0;
  for (int32_t k = 1; k < plan->kernel_count; ++k) {
    if (plan->kernels[k].lowering.power == 1 && plan->tally.kernel_calls[k] > plan->tally.kernel_calls[most]) most = k;
  }
  return &plan->kernels[most];
}

/* A plan like this one that may be changed, on its main kernel alone. 0: there is no memory for it. */
static int advise_begin(const twh_plan *plan, twh_plan *scratch)
{
  size_t bytes = (size_t)plan->spans_count * sizeof *plan->spans;

  *scratch = *plan;
  scratch->kernels[0] = *advise_main(plan);
  scratch->spans = (twh__span *)twh__allocate(plan->context, bytes, 0, NULL);
  if (scratch->spans && bytes > 0) memcpy(scratch->spans, plan->spans, bytes);
  return scratch->spans != NULL;
}

static void advise_end(twh_plan *scratch)
{
  twh__release(scratch->context, scratch->spans, (size_t)scratch->spans_count * sizeof *scratch->spans);
}

/* Calls of the whole problem on a kernel of this description; -1 when they cannot be counted. */
static int64_t advise_count(const twh_plan *plan, const twh_oracle_desc *desc)
{
  twh_plan scratch;
  int64_t  calls = -1;
  double   cost;

  if (!advise_begin(plan, &scratch)) return -1;
  if (!TWH__FAILED(twh__plan_try(&scratch, desc, &cost, NULL))) calls = scratch.tally.calls;
  advise_end(&scratch);
  return calls;
}

int64_t twh__plan_consider(const twh_plan *plan, int32_t way, twh__lowering *lowering, int *chosen)
{
  const twh__kernel *kernel = advise_main(plan);
  twh_plan           scratch;
  int64_t            calls = -1;
  double             cost;

  if (!advise_begin(plan, &scratch)) return -1;
  if (!TWH__FAILED(twh__plan_go(&scratch, &kernel->oracle->desc, way, &cost, NULL))) {
    calls = scratch.tally.calls;
    *lowering = scratch.kernels[0].lowering;
    *chosen = lowering->full_mode == kernel->lowering.full_mode && lowering->cut_mode == kernel->lowering.cut_mode;
  }
  advise_end(&scratch);
  return calls;
}

static void advise_widen_qk(twh_oracle_desc *desc, int64_t more)
{
  desc->qk_dim += more;
  desc->q_row_stride += more;
  desc->k_row_stride += more;
}

/* The fewest coordinates that save as much as the most. */
static int advise_fewest_codes(const twh_plan *plan, const twh_oracle_desc *desc, char *what, size_t bytes, int64_t *calls)
{
  int64_t best = -1;

  for (int i = ADVISE_CODE_STEPS - 1; i >= 0; --i) {
    twh_oracle_desc changed = *desc;
    int64_t         counted;
    advise_widen_qk(&changed, advise_codes[i]);
    counted = advise_count(plan, &changed);
    if (counted < 0 || (best >= 0 && counted > best)) break;
    best = counted;
    snprintf(what, bytes, "with %lld %sspare coordinate%s (oracle.qk_dim %lld)", (long long)advise_codes[i],
             desc->qk_dim > plan->shape.qk_dim ? "more " : "", advise_codes[i] == 1 ? "" : "s", (long long)changed.qk_dim);
  }
  *calls = best;
  return best >= 0;
}

/* Give a description an ability that it has not; 0: it has. */
static int advise_change(const twh__kernel *kernel, const twh_plan *plan, int32_t advice, twh_oracle_desc *desc, char *what,
                         size_t bytes)
{
  static const struct {
    uint32_t    mode;
    const char *what;
  } modes[] = { { TWH_MASK_NONE, "if its mask could be switched off" },
                { TWH_MASK_CAUSAL, "with a causal mask of its own" },
                { TWH_MASK_TENSOR, "with a mask operand" } };

  switch (advice) {
    case ADVISE_V_DIM:
      if (kernel->lowering.reading != TWH__READ_BUCKET) return 0;
      desc->v_dim = kernel->lowering.values_parts * desc->v_dim == plan->shape.v_dim ? desc->v_dim + 1 : desc->v_dim;
      snprintf(what, bytes, "with 1 spare value column (oracle.v_dim %lld)", (long long)desc->v_dim);
      return 1;
    case ADVISE_LSE:
      if (desc->flags & TWH_ORACLE_LSE) return 0;
      desc->flags |= TWH_ORACLE_LSE;
      snprintf(what, bytes, "if it returned the log-sum-exp");
      return 1;
    default:
      if (desc->mask_modes & modes[advice - ADVISE_NONE].mode) return 0;
      desc->mask_modes |= modes[advice - ADVISE_NONE].mode;
      if (advice == ADVISE_CAUSAL) desc->causal_offset = 0;
      snprintf(what, bytes, "%s", modes[advice - ADVISE_NONE].what);
      return 1;
  }
}

int twh__plan_advise(const twh_plan *plan, int32_t advice, char *what, size_t bytes, int64_t *calls)
{
  const twh__kernel *kernel = advise_main(plan);
  twh_oracle_desc    desc = kernel->oracle->desc;

  if (plan->tally.calls == 0) return 0;
  if (advice == ADVISE_CODES) {
    return desc.softcap == 0 && advise_fewest_codes(plan, &desc, what, bytes, calls);
  }
  if (!advise_change(kernel, plan, advice, &desc, what, bytes)) return 0;
  *calls = advise_count(plan, &desc);
  return *calls >= 0;
}
