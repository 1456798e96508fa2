/* The plan: what was asked for, how it is lowered on which kernel, and every figure that execution needs beforehand.
 *
 * create.c reads the problem and chooses a way, tally.c counts without storing a tile, cursor.c makes tiles one at a time,
 * layout.c decides sizes, describe.c tells people. Immutable after creation. */
#ifndef TWH_CORE_PLAN_H
#define TWH_CORE_PLAN_H

#include "core/base/base.h"
#include "core/lower/lower.h"
#include "core/oracle/oracle.h"
#include "core/pack/pack.h"
#include "core/pattern/pattern.h"
#include "core/records.h"

/* Everything that is counted about a problem on one lowering. */
typedef struct twh__tally {
  int64_t tiles[TWH__CLASSES];
  int64_t units, all_tiles, calls, repair_calls_max;
  int64_t full_tiles, lower_tiles, upper_tiles, short_tiles, unseen_tiles; /* unseen: short ones whose pads a mask hides */
  int64_t classes;         /* that have tiles */
  int64_t max_unit_tiles;  /* of one unit */
  int64_t max_blocks;      /* key blocks of one sequence */
  int64_t max_units;       /* of one kv head */
  double  host_pairs, host_flops;
} twh__tally;

/* Sizes of what an execute works in; see run/workspace.h. */
typedef struct twh__layout {
  int64_t alignment;
  int64_t calls_per_batch, concurrency;  /* batches at the same time */
  int64_t bundles;                       /* in one wave */
  int64_t panel;                         /* units that go through the key blocks together */
  int64_t units, tree_nodes;
  int64_t leaves, nodes;                 /* states: of a wave's tiles, and merged ones */
  int64_t q_blocks, k_blocks, v_blocks, bucket_blocks, mask_blocks;            /* entries of the caches */
  int64_t q_bytes, k_bytes, v_slice_bytes, mask_bytes, out_bytes, lse_bytes; /* of one */
  int64_t q_gather, k_gather, v_gather, mask_gather;                           /* per bundle; 0 when a call has one slot */
  int64_t mask_any;                      /* where in a mask block the bytes of empty rows begin */
  int64_t bytes;
} twh__layout;

struct twh_plan {
  const twh_context *context;
  twh__shape         shape;
  twh_pattern        pattern;
  int64_t            batch, q_rows, k_rows;  /* extents of the tensors: batch entries, and rows of q and k */
  int64_t            spans_count;
  twh__span         *spans;                  /* (spans_count) */
  int64_t           *first_unit;             /* (spans_count + 1): number of each span's first unit */
  double             pairs;                  /* visible, over all heads */
  const twh_oracle  *oracle;
  int32_t            oracle_index, any_causal;
  twh__lowering      lowering;
  twh__tally         tally;
  twh__layout        layout;
  double             call_pairs;             /* that one call of the kernel can compute at most */
};

/* Units of a span over all its kv heads. */
int64_t twh__plan_units(const twh_plan *plan, const twh__span *span);

/* Count the problem on a lowering. TWH_E_OVERFLOW when a figure does not fit. */
twh_status twh__plan_count(const twh_plan *plan, const twh__lowering *lowering, twh__tally *tally, twh_error *error);

/* Tiles of one unit. */
int64_t twh__plan_unit_tiles(const twh__lowering *lowering, const twh__span *span, const twh__unit *unit);

/* Calls that go into one batch: the kernel's limit, the caller's, or this library's default. */
int64_t twh__plan_calls_per_batch(const twh_oracle_desc *desc, const twh_plan_options *options);

/* Decide sizes for the chosen lowering. */
twh_status twh__plan_lay_out(twh_plan *plan, const twh_plan_options *options, twh_error *error);

/* Walk all tiles in the order of execution: spans, kv heads, panels of units, key blocks, units. */
typedef struct twh__cursor {
  const twh_plan *plan;
  int64_t         span, kv_head, panel, block, number, unit; /* unit: within the panel */
} twh__cursor;

void twh__cursor_begin(twh__cursor *cursor, const twh_plan *plan);
int  twh__cursor_next(twh__cursor *cursor, twh__tile *tile); /* 0 at the end; O(1) memory */

#endif
