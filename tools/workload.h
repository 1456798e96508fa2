/* A problem as the user gave it: sizes, or arrays, with the mask and sink logits that go with them. */
#ifndef TOOLS_WORKLOAD_H
#define TOOLS_WORKLOAD_H

#include "complaint.h"
#include "npy.h"
#include "options.h"

/* Points into itself: not to be copied. Tensors whose array has no data are unset. */
typedef struct workload {
  twh_problem problem;
  twh_pattern pattern;
  npy_array   q, k, v, mask, sink_logits;
  twh_tensor  q_tensor, k_tensor, v_tensor, mask_tensor, sink_tensor;
} workload;

/* For plan: everything from options. For run: shapes from the arrays, which are read. On success the caller calls
 * workload_finish; on failure there is nothing to release. */
int  workload_of_sizes(const options *given, workload *out, complaint *error);
int  workload_of_arrays(const options *given, workload *out, complaint *error);
void workload_finish(workload *work);

/* The scale of the problem, given or not. */
double workload_scale(const workload *work);

#endif
