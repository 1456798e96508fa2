/* What a run with drawn keys says of its own errors: estimates of them, and whether drawn keys may stand for the others. */
#ifndef TOOLS_OUTLOOK_H
#define TOOLS_OUTLOOK_H

#include "complaint.h"
#include "json.h"
#include "npy.h"
#include "setup.h"

typedef struct outlook {
  twh_run_stats stats;
  double        median, p95; /* of rows, their bound / |out|_2; only with an estimate */
} outlook;

/* Fill median and p95 from the run's tensors. A row in which no key was drawn counts 0; a bound that is no number, or that
 * stands beside a row of zeros, is larger than all others. What is not finite is not known. */
int outlook_read(const npy_array *out, const npy_array *error, outlook *view, complaint *failure);

/* Members, and lines. */
void outlook_json(json_object *object, const setup *all, const outlook *view);
void outlook_text(const options *given, const setup *all, const outlook *view);

#endif
