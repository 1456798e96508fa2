/* The options of sampling, and which spans they are for. */
#include <math.h>

#include "core/plan/problem.h"

enum { SAMPLING_MOST = 1 << 20 /* blocks of drawn keys for one block of rows, strata */ };

static twh_status sampling_read_estimate(const twh_plan_options *options, twh_error *error)
{
  if (options->estimate == TWH_ESTIMATE_NONE) return TWH_OK;
  if (options->estimate != TWH_ESTIMATE_REPLICATES) {
    return twh__fail(error, TWH_E_VERSION, "options.estimate is %d, no TWH_ESTIMATE_ of this version", (int)options->estimate);
  }
  if (options->method == TWH_METHOD_EXACT) {
    return twh__fail(error, TWH_E_ARGUMENT, "options.estimate: nothing is to be estimated with TWH_METHOD_EXACT");
  }
  if (options->samples < 2 || options->strata != 1) {
    return twh__fail(error, TWH_E_ARGUMENT,
                     "options.estimate: TWH_ESTIMATE_REPLICATES takes samples of 2 or more, and strata 1");
  }
  return TWH_OK;
}

twh_status twh__sampling_read(twh_plan_options *options, twh_error *error)
{
  const int64_t     values[4] = { options->samples, options->strata, options->exact_sinks, options->exact_window };
  const char *const names[4] = { "samples", "strata", "exact_sinks", "exact_window" };
  const int64_t     most[4] = { SAMPLING_MOST, SAMPLING_MOST, (int64_t)1 << 60, (int64_t)1 << 60 };
  const int         hybrid = options->method == TWH_METHOD_HYBRID, exact = options->method == TWH_METHOD_EXACT;

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
  return sampling_read_estimate(options, error);
}

/* Not for windows: they have spans of all kinds. */
static int sampling_is_for(const twh_plan *plan, const twh__span *span)
{
  return !(plan->pattern.flags & TWH_LEFT) && (span->kind == TWH__SPAN_FULL || span->kind == TWH__SPAN_CAUSAL);
}

twh_status twh__sampling_set(twh_plan *plan, const twh_plan_options *options, twh_error *error)
{
  if (options->method == TWH_METHOD_EXACT) return TWH_OK;
  if (options->estimate != TWH_ESTIMATE_NONE) {
    const double columns = (double)plan->shape.v_dim;
    plan->estimate = 1;
    plan->error_quantile = sqrt(twh__f_quantile(0.95, columns, columns * (double)(options->samples - 1)));
  }
  if (plan->shape.mask_dtype != 0) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "options.method: keys cannot be drawn under a mask tensor (problem.mask_dtype)");
  }
  for (int64_t s = 0; s < plan->spans_count; ++s) {
    twh__span *span = &plan->spans[s];
    if (!sampling_is_for(plan, span)) continue;
    span->sampling.samples = options->samples;
    span->sampling.strata = options->strata;
    span->sampling.seed = options->seed;
    span->sampling.hybrid = options->method == TWH_METHOD_HYBRID;
    span->sampling.sinks = options->exact_sinks;
    span->sampling.window = options->exact_window;
    if (span->sampling.hybrid) span->stacked = 0; /* rows of one head, which have positions side by side */
  }
  return TWH_OK;
}
