/* Reading a problem: validation, and what the plan keeps of it. */
#ifndef TWH_CORE_PLAN_PROBLEM_H
#define TWH_CORE_PLAN_PROBLEM_H

#include "core/plan/plan.h"

/* Fill plan->shape, pattern, extents, spans and pairs. What was allocated is released by twh_plan_destroy. */
twh_status twh__problem_read(twh_plan *plan, const twh_problem *problem, twh_error *error);

#endif
