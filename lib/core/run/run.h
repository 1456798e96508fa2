/* One execute: its state, and the steps of a wave.
 *
 *     place (place.c)     tiles into bundles until a wave is full
 *     encode (wave.c)     find or encode the blocks that the wave's calls read
 *     call (calls.c)      batches, within the kernels' limits; calls that continue each other (chain.c)
 *     decode (results.c)  states from results, repairs, merges, finished rows
 *
 * execute.c checks the tensors and drives. Where kernels can be left alone with a wave, the host decodes the wave before and encodes the
 * next one meanwhile; on several threads one of them does (crew.c). Nothing that threads do decides an order, so results are bitwise
 * the same however many there are. */
#ifndef TWH_CORE_RUN_H
#define TWH_CORE_RUN_H

#include <pthread.h>

#include "core/run/workspace.h"

typedef struct twh__run {
  const twh_plan *plan;
  twh__view       q, k, v, out, lse, mask, sinks, key_bias, alibi, error;
  int             has_lse, has_mask, has_sinks, has_error, checked;
  twh__workspace  work;
  twh__cursor     cursor;
  twh__tile       tile;                /* the cursor's */
  int             placed;              /* 1: the cursor has come to its end */
  int             waiting;             /* 1: the tile has no place in the wave before */
  int64_t         last_unit, last_group; /* of the tile that was placed last */
  uint64_t        number[TWH__MAX_KERNELS]; /* of this execute, as each kernel counts them */
  int32_t         open[TWH__MAX_KERNELS][TWH__CLASSES]; /* bundle; -1: none */
  int64_t         waves;               /* begun so far */
  int64_t         free_bundles;        /* top of the stack of free bundles */
  int32_t         free_unit;           /* first of the free entries; -1: none */
  int64_t         unique;              /* blocks that no other tile can use, so far */
  int             serial;              /* 1: the host's work is one task beside the kernel's */
  uint8_t        *row_flags;           /* a byte for each row of q: 1: its error is too large; NULL: none is asked for */
  int64_t         first_call;          /* of this run; of an exact one behind those of the run before it */
  int64_t         planned_calls;       /* in all */
  double          begun;
  const twh_run_options *options;
  /* what threads that call the kernel share, under the lock */
  pthread_mutex_t *lock;
  twh__ledger     ledger[TWH__MAX_KERNELS]; /* under the kernels' own locks */
  int64_t         done_calls, batches; /* repairs are not counted as done */
  int64_t         running;             /* batches, since */
  double          running_since;
  int             stop;                /* 1: progress asked for it */
  twh_run_stats   stats;
} twh__run;

static inline const twh__kernel *twh__run_kernel(const twh__run *run, const twh__bundle *bundle)
{
  return &run->plan->kernels[bundle->kernel];
}

/* How a bundle's sums are read, and its calls in the first round. */
static inline int32_t twh__run_reading(const twh__run *run, const twh__bundle *bundle)
{
  return twh__class_reading(&twh__run_kernel(run, bundle)->lowering, bundle->class_number);
}

static inline int64_t twh__run_parts(const twh__run *run, const twh__bundle *bundle)
{
  if (twh__class_is_host(bundle->class_number)) return 0;
  return twh__lower_parts(&twh__run_kernel(run, bundle)->lowering, twh__run_reading(run, bundle));
}

/* What encoding for a kernel, or a bundle's slots, reads. */
void twh__run_kernel_source(const twh__run *run, const twh__kernel *kernel, twh__source *source);
void twh__run_source(const twh__run *run, const twh__bundle *bundle, twh__source *source);

/* Where the centres of slot s of buffers b stand; NULL if the bundle's kernel is none of squares. */
double *twh__run_centres(const twh__run *run, const twh__bundle *bundle, int64_t b, int64_t s);

/* The attention of task i of a parallel step over all slots of a wave, and its bundle; NULL: this slot is not used. */
twh__attention *twh__wave_attention(const twh__wave *wave, int64_t i, twh__bundle **bundle, int64_t *slot);

/* Run task(arg, i) for every i of n, in parallel unless the kernel's calls are. */
void twh__run_parallel(const twh__run *run, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

/* Prepare an empty wave. */
void twh__place_begin(twh__run *run);

/* Put the run's tile into its bundle. Sets *full when the wave has no room for a further closed bundle. */
twh_status twh__place_tile(twh__run *run, twh__wave *wave, int *full, twh_error *error);

/* Whether the wave has room for the run's tile, and for those that may be of one chain with it. */
int twh__place_fits(const twh__run *run, const twh__wave *wave);

/* Close open bundles until the wave is full or there is none left. */
void twh__place_flush(twh__run *run, twh__wave *wave);

/* The wave is done: its bundles are free. A unit without tiles in flight is given back. */
void twh__place_recycle(twh__run *run, twh__wave *wave);
void twh__place_free_unit(twh__run *run, int32_t entry);

/* Find the wave's blocks and encode the missing ones; of repairs, the values of their bucket calls. */
twh_status twh__wave_encode(twh__wave *wave, twh_error *error);

/* Fill a wave and encode it. It stays empty when there is nothing left. */
twh_status twh__run_prepare(twh__run *run, twh__wave *wave, twh_error *error);

/* Make results of what the kernel has returned for a wave; then it is empty. */
twh_status twh__run_complete(twh__run *run, twh__wave *wave, twh_error *error);

/* Compute all waves on as many threads as there are. */
twh_status twh__run_crew(twh__run *run, twh_error *error);

/* Prepare the wave's calls; those of kernels that can be left alone with them begin. */
void twh__wave_begin(twh__wave *wave);

/* Bundle `first` of the wave and those behind it that may be of one chain with it: have their calls continue each other where they can.
 * order receives them as they are to be called, a chain without a gap. Returns how many there are. */
int64_t twh__chain_link(twh__wave *wave, int64_t first, int64_t order[TWH__CHAIN]);

/* Make the calls that were not begun, on as many threads as the kernels allow, and run host(arg) before them if kernels can be left
 * alone; host may be NULL. */
void twh__wave_call(twh__wave *wave, void (*host)(void *arg), void *arg);

/* Make the calls of one batch that was not begun, on this thread. */
void twh__wave_make(twh__wave *wave, twh__batch *batch);

/* Wait for all of them. TWH_E_ORACLE, TWH_E_CANCELLED. */
twh_status twh__wave_wait(twh__wave *wave, twh_error *error);

/* No further batch begins. */
void twh__run_stop(twh__run *run);

/* Tell the caller of progress, and take a wish to stop from it. The lock is held. */
void twh__run_progress(twh__run *run);

/* Tell the caller what the host has done since `begun`; what a batch has done, the lock being held. */
void twh__run_trace(twh__run *run, int32_t kind, int64_t wave, double begun);
void twh__trace_batch(const twh__wave *wave, const twh__batch *batch, double now);

/* Decode the wave into states and mark slots that need a repair. */
twh_status twh__wave_decode(twh__wave *wave, twh_error *error);

/* Call marked slots once more, packed into calls of their own; rows that are still unread are computed by the host. */
twh_status twh__wave_repair(twh__wave *wave, twh_error *error);

/* What decoding reads of tile t of an attention whose results stand in slot s of the buffers b. */
void twh__run_result(const twh__run *run, const twh__bundle *bundle, const twh__attention *attention, int64_t b, int64_t s,
                     int64_t t, const twh__source *source, twh__result *result);

/* Where the bucket call of buffers b has put slot s. */
const char *twh__run_buckets(const twh__run *run, const twh__bundle *bundle, int64_t b, int64_t s);

/* A NaN that the kernel returned in a tile, in slot s of a call. */
twh_status twh__run_nan(const twh__placement *place, const twh__tile *tile, int64_t call, int64_t s, twh_error *error);

/* Merge the wave's states and write what is complete. */
twh_status twh__wave_merge(twh__wave *wave, twh_error *error);

/* Compute the plan's attention of all units, or of those with a flag, in a workspace. */
twh_status twh__run_units(twh__run *run, char *workspace, const uint8_t *units, twh_error *error);

/* Compute what is flagged exactly. `run` is done; the workspace behind the flags is free. */
twh_status twh__run_exact(twh__run *run, char *workspace, twh_error *error);

/* Look at a few pairs of a run that is done: do they bear sampling? Fills the run's statistics. */
void twh__run_check_assumption(twh__run *run);

/* Write the rows of units that have no tile at all, and of one unit whose tiles were all left out. */
void twh__run_write_empty(twh__run *run);
void twh__run_write_neutral(const twh__run *run, const twh__unit *unit);

#endif
