/* The options of sampling, and which spans they are for. */
#include <math.h>

#include "core/plan/problem.h"

#define SAMPLING_RISK 0.05

enum {
  SAMPLING_MOST = 1 << 20, /* blocks of drawn keys for one block of rows, strata */
  SAMPLING_MANY = 1 << 20  /* degrees of freedom that are as good as known */
};

static twh_status sampling_read_estimate(const twh_plan_options *options, twh_error *error)
{
  if (options->estimate == TWH_ESTIMATE_NONE) return TWH_OK;
  if (options->estimate < TWH_ESTIMATE_NONE || options->estimate > TWH_ESTIMATE_DOUBLED) {
    return twh__fail(error, TWH_E_VERSION, "options.estimate is %d, no TWH_ESTIMATE_ of this version", (int)options->estimate);
  }
  if (options->method == TWH_METHOD_EXACT) {
    return twh__fail(error, TWH_E_ARGUMENT, "options.estimate: nothing is to be estimated with TWH_METHOD_EXACT");
  }
  if (options->strata != 1) return twh__fail(error, TWH_E_ARGUMENT, "options.estimate takes strata 1");
  if (options->estimate == TWH_ESTIMATE_REPLICATES && options->samples < 2) {
    return twh__fail(error, TWH_E_ARGUMENT, "options.estimate: TWH_ESTIMATE_REPLICATES takes samples of 2 or more");
  }
  return TWH_OK;
}

static twh_status sampling_read_bounds(const twh_plan_options *options, twh_error *error)
{
  const double      values[2] = { options->bound_c, options->bound_d };
  const char *const names[2] = { "bound_c", "bound_d" };

  if (!(options->target_error >= 0 && isfinite(options->target_error))) {
    return twh__fail(error, TWH_E_ARGUMENT, "options.target_error is %g", options->target_error);
  }
  if (options->target_error != 0 && options->estimate == TWH_ESTIMATE_NONE) {
    return twh__fail(error, TWH_E_ARGUMENT, "options.target_error needs an estimate");
  }
  for (int i = 0; i < 2; ++i) {
    if (values[i] == 0 && values[1 - i] == 0) return TWH_OK;
    if (options->method == TWH_METHOD_EXACT) {
      return twh__fail(error, TWH_E_ARGUMENT, "options.%s is used only with TWH_METHOD_SAMPLED or HYBRID in method", names[i]);
    }
    if (!(values[i] >= 1 && isfinite(values[i]))) {
      return twh__fail(error, TWH_E_ARGUMENT, "options.%s is %g; bound_c and bound_d are given together, each 1 or more",
                       names[i], values[i]);
    }
  }
  return TWH_OK;
}

twh_status twh__sampling_read(twh_plan_options *options, twh_error *error)
{
  const int64_t     values[4] = { options->samples, options->strata, options->exact_sinks, options->exact_window };
  const char *const names[4] = { "samples", "strata", "exact_sinks", "exact_window" };
  const int64_t     most[4] = { SAMPLING_MOST, SAMPLING_MOST, (int64_t)1 << 60, (int64_t)1 << 60 };
  const int         hybrid = options->method == TWH_METHOD_HYBRID, exact = options->method == TWH_METHOD_EXACT;
  twh_status        status;

  if (options->method < TWH_METHOD_EXACT || options->method > TWH_METHOD_HYBRID) {
    return twh__fail(error, TWH_E_VERSION, "options.method is %d, no TWH_METHOD_ of this version", (int)options->method);
  }
  for (int i = 0; i < 4; ++i) {
    if (values[i] < 0 || values[i] > most[i]) {
      return twh__fail(error, TWH_E_ARGUMENT, "options.%s is %lld; it must be 0 to %lld", names[i], (long long)values[i],
                       (long long)most[i]);
    }
    if (values[i] != 0 && (exact || (i >= 2 && !hybrid))) {
      return twh__fail(error, TWH_E_ARGUMENT, "options.%s is %lld; it is used only with %s in method", names[i],
                       (long long)values[i], i < 2 ? "TWH_METHOD_SAMPLED or HYBRID" : "TWH_METHOD_HYBRID");
    }
  }
  if (exact && options->seed != 0) {
    return twh__fail(error, TWH_E_ARGUMENT,
                     "options.seed is given; it is used only with TWH_METHOD_SAMPLED or HYBRID in method");
  }
  if (options->strata == 0) options->strata = 1;
  if (options->samples == 0) options->samples = options->strata;
  if (options->samples % options->strata != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "options.samples is %lld; it must be a multiple of strata %lld",
                     (long long)options->samples, (long long)options->strata);
  }
  if (hybrid && options->exact_sinks == 0) options->exact_sinks = 1;
  status = sampling_read_estimate(options, error);
  return TWH__FAILED(status) ? status : sampling_read_bounds(options, error);
}

/* Not for windows: they have spans of all kinds. */
static int sampling_is_for(const twh_plan *plan, const twh__span *span)
{
  return !(plan->pattern.flags & TWH_LEFT) && (span->kind == TWH__SPAN_FULL || span->kind == TWH__SPAN_CAUSAL);
}

/* Columns pool what few samples do not know. */
static double sampling_quantile(const twh_plan *plan, const twh_plan_options *options)
{
  const double columns = (double)plan->shape.v_dim;

  if (options->estimate == TWH_ESTIMATE_NONE) return 0;
  if (options->estimate == TWH_ESTIMATE_DOUBLED) return sqrt(twh__f_quantile(0.95, columns, SAMPLING_MANY));
  return sqrt(twh__f_quantile(0.95, columns, columns * (double)(options->samples - 1)));
}

twh_status twh__sampling_set(twh_plan *plan, const twh_plan_options *options, twh_error *error)
{
  if (options->method == TWH_METHOD_EXACT) return TWH_OK;
  plan->estimate = options->estimate;
  plan->seed = options->seed;
  plan->samples = options->samples;
  plan->bound_c = options->bound_c;
  plan->bound_d = options->bound_d;
  plan->error_quantile = sampling_quantile(plan, options);
  if (options->estimate == TWH_ESTIMATE_DOUBLED && plan->shape.softcap != 0) {
    return twh__fail(error, TWH_E_UNSUPPORTED,
                     "options.estimate: TWH_ESTIMATE_DOUBLED cannot square exponentials under a softcap (problem.softcap)");
  }
  plan->square_shape = plan->shape;
  ++plan->square_shape.v_dim;
  if (plan->shape.mask_dtype != 0) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "options.method: keys cannot be drawn under a mask tensor (problem.mask_dtype)");
  }
  for (int64_t s = 0; s < plan->spans_count; ++s) {
    twh__span *span = &plan->spans[s];
    if (!sampling_is_for(plan, span)) continue;
    span->sampling.samples = options->samples;
    span->sampling.strata = options->strata;
    span->sampling.seed = options->seed;
    span->sampling.estimate = options->estimate;
    span->sampling.hybrid = options->method == TWH_METHOD_HYBRID;
    span->sampling.sinks = options->exact_sinks;
    span->sampling.window = options->exact_window;
    if (span->sampling.hybrid) span->stacked = 0; /* rows of one head, which have positions side by side */
  }
  return TWH_OK;
}

/* With m drawn keys, Z_j = a_j (v_j - R) and weights a within 1/C .. C: a mean of Z is longer than C W sqrt(2 ln(2/p) / m) with
 * probability p at most, W the largest |v - R| <= (1 + D) |R| (Hoeffding's bound holds for vectors, and for draws without replacement).
 * The drawn weights' mean is 1/C or more. Where all keys are drawn from, the mean of Z is 0; otherwise twice as much lies
 * between a Z and it. */
void twh__sampling_bound(twh_plan *plan)
{
  for (int64_t s = 0; s < plan->spans_count && plan->bound_c > 0 && plan->tally.drawn_tiles > 0; ++s) {
    const twh__span *span = &plan->spans[s];
    int64_t          block = twh__grid_keys(&plan->kernels[span->kernel].lowering.grid, span->kind);
    double           drawn = (double)span->sampling.samples * (double)block, bound;
    if (span->sampling.samples == 0) continue;
    bound = plan->bound_c * plan->bound_c * (1 + plan->bound_d) * sqrt(2 * log(2 / SAMPLING_RISK) / drawn);
    if (span->kind != TWH__SPAN_FULL || span->sampling.hybrid || span->sinks > 0) bound *= 2;
    plan->error_bound = fmax(plan->error_bound, bound);
  }
}
