/* The lengths of a ragged batch, as --lens and --batch-lens give them. */
#ifndef TOOLS_LENS_H
#define TOOLS_LENS_H

#include "complaint.h"
#include "options.h"
#include "twoheads.h"

/* Read them into sequences that stand one behind the other, each attending to itself; *sum: all their tokens. *out is NULL
 * where neither option was given; the caller frees it. */
int lens_read(const options *given, twh_sequence **out, int64_t *count, int64_t *sum, complaint *error);

#endif
