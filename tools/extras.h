/* The files that belong to a problem whose sizes are known: mask, biases, sink logits. */
#ifndef TOOLS_EXTRAS_H
#define TOOLS_EXTRAS_H

#include "workload.h"

/* Read what `given` names, check its shape, and declare it in the problem. widen: make the arrays such that they can be
 * executed, not only planned. What was read is released by workload_finish, also after a failure. */
int extras_read(const options *given, int widen, workload *out, complaint *error);

#endif
