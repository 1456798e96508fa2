/* Reading a problem: validation, and what the plan keeps of it. */
#ifndef TWH_CORE_PLAN_PROBLEM_H
#define TWH_CORE_PLAN_PROBLEM_H

#include "core/plan/plan.h"

/* Fill plan->shape, pattern, extents, spans and pairs. What was allocated is released by twh_plan_destroy. */
twh_status twh__problem_read(twh_plan *plan, const twh_problem *problem, twh_error *error);

/* The options of sampling: their defaults filled in, and what contradicts itself refused. */
twh_status twh__sampling_read(twh_plan_options *options, twh_error *error);

/* The number that a variable of Fisher's F distribution with d1 and d2 degrees of freedom keeps below with probability p. */
double twh__f_quantile(double p, double d1, double d2);

/* What follows for the errors from what the caller knows of the data; the plan is complete. */
void twh__sampling_bound(twh_plan *plan);

/* Have the plan's spans sampled as the options say. */
twh_status twh__sampling_set(twh_plan *plan, const twh_plan_options *options, twh_error *error);

#endif
