/* One execute: its state, and the steps of a wave.
 *
 *     place (execute.c)   tiles into bundles until a wave is full
 *     encode (wave.c)     find or encode the blocks that the wave's calls read, and build the calls
 *     call (calls.c)      batches, within the kernel's limits
 *     decode (results.c)  states from results, repairs, merges, finished rows
 *
 * Within a step everything may run in parallel; between steps it does not. Nothing that threads do decides an order, so
 * results are bitwise the same however many there are. */
#ifndef TWH_CORE_RUN_H
#define TWH_CORE_RUN_H

#include "core/run/workspace.h"

typedef struct twh__run {
  const twh_plan *plan;
  twh__view       q, k, v, out, lse, mask, sinks;
  int             has_lse, has_mask, has_sinks, checked;
  twh__workspace  work;
  twh__pack       pack;
  twh__ledger     ledger;
  int32_t         open[TWH__CLASSES];  /* bundle; -1: none */
  int64_t         wave_bundles, waves; /* bundles in this wave, and its number from 1 */
  int64_t         free_bundles;        /* top of the stack of free bundles */
  int64_t         parallel_rows;       /* parts into which rows are split for merging */
  twh_run_stats   stats;
} twh__run;

static inline twh__bundle *twh__run_bundle(const twh__run *run, int64_t i)
{
  return &run->work.bundles[run->work.wave[i]];
}

/* Calls of a bundle in the first round. */
static inline int64_t twh__run_parts(const twh__run *run, const twh__bundle *bundle)
{
  return twh__lower_parts(&run->plan->lowering, bundle->class_number % TWH__READINGS);
}

/* What encoding a placement reads. */
void twh__run_source(const twh__run *run, const twh__placement *place, twh__source *source);

/* Find the wave's blocks and encode the missing ones. */
twh_status twh__wave_encode(twh__run *run, twh_error *error);
/* The blocks of the bucket calls of bundles that need a repair. */
twh_status twh__wave_encode_repairs(twh__run *run, twh_error *error);

/* Make the wave's calls, or only those of its repairs. */
twh_status twh__wave_call(twh__run *run, int repairs, twh_error *error);

/* Decode the wave into states and mark bundles that need a repair; returns through `repairs` how many. */
twh_status twh__wave_decode(twh__run *run, int64_t *repairs, twh_error *error);
/* Decode repairs; rows that are still unread are computed by the host. */
twh_status twh__wave_repair(twh__run *run, int64_t repairs, twh_error *error);
/* Merge the wave's states and write what is complete. */
twh_status twh__wave_merge(twh__run *run, twh_error *error);

/* Write the rows of units that have no tile at all. */
void twh__run_write_empty(twh__run *run);

#endif
