/* What an execute did when, as a file of Chrome trace events, which Perfetto and chrome://tracing open: a track for the host's work,
 * and for each kernel one, or as many as it had batches in flight. */
#ifndef TOOLS_TIMELINE_H
#define TOOLS_TIMELINE_H

#include "outfile.h"
#include "twoheads.h"

enum { TIMELINE_LANES = 256 };

typedef struct timeline {
  outfile            file;
  const char *const *kernels;               /* what the kernels are called, by their index */
  int                lanes;                 /* that batches took so far */
  int64_t            kernel[TIMELINE_LANES]; /* of each lane */
  double             end_s[TIMELINE_LANES];  /* of its last batch */
} timeline;

/* `path` and `kernels` must live until timeline_close. */
int timeline_open(const char *path, const char *const *kernels, timeline *out, complaint *error);

/* Write one event; for twh_run_options.trace. */
void timeline_event(timeline *line, const twh_trace_event *event);

/* As outfile_close. */
int timeline_close(timeline *line, int failed, complaint *error);

#endif
