/* The plan: what was asked for, how it is lowered on which kernels, and every figure that execution needs beforehand.
 *
 * create.c reads the problem and chooses kernels and ways, tiles.c makes the tiles of a unit, tally.c counts them without storing
 * one, cursor.c walks them, layout.c decides sizes, describe.c tells people. Immutable after creation. */
#ifndef TWH_CORE_PLAN_H
#define TWH_CORE_PLAN_H

#include "core/base/base.h"
#include "core/lower/lower.h"
#include "core/oracle/oracle.h"
#include "core/pack/pack.h"
#include "core/pattern/pattern.h"
#include "core/records.h"

/* Everything that is counted about a problem on its kernels. */
typedef struct twh__tally {
  int64_t slots[TWH__MAX_KERNELS][TWH__CLASSES];
  int64_t kernel_calls[TWH__MAX_KERNELS];
  double  kernel_shares[TWH__MAX_KERNELS]; /* calls that the tiles take if all of them are full */
  int64_t units, all_tiles, calls, repair_calls_max, slots_used;
  int64_t full_tiles, lower_tiles, upper_tiles, band_tiles, host_tiles;
  int64_t short_tiles, unseen_tiles; /* unseen: short ones whose pads a mask hides */
  int64_t classes;         /* that have tiles */
  int64_t max_unit_tiles;  /* of one unit of a span that is not streamed */
  int64_t max_blocks;      /* patches of one unit */
  int64_t max_units;       /* of one kv head, of spans that are not streamed */
  int64_t stream_classes;  /* that have tiles which share slots */
  int64_t stream_tiles, stream_rows; /* most of one streamed unit */
  int64_t slot_tiles;      /* most that share a slot, at least 1 */
  int64_t slot_units;      /* most units that have tiles in one slot */
  double  host_pairs, host_flops;
  double  host_tile_pairs; /* of host_pairs those that no kernel computes */
  int64_t drawn_tiles, drawn_keys; /* without those of squares */
  int64_t square_calls;
  double  sampled_pairs;   /* of tiles of sampled spans, */
  double  pattern_pairs;   /* and what the pattern has there */
} twh__tally;

/* Bytes of one kernel's operands. */
typedef struct twh__sizes {
  int64_t q_bytes, k_bytes, v_slice_bytes, mask_bytes, out_bytes, lse_bytes; /* of a block; out and lse of a call */
  int64_t q_gather, k_gather, v_gather, mask_gather;                           /* of a call; 0 when it has one slot */
  int64_t mask_any;                      /* where in a mask block the bytes of empty rows begin */
} twh__sizes;

/* A kernel as the plan uses it. */
typedef struct twh__kernel {
  const twh_oracle *oracle;
  int64_t           index;               /* among those the caller gave */
  double            cost_call, cost_batch;
  int64_t           calls_per_batch, concurrency; /* batches of a wave at the same time */
  int32_t           plain;               /* 1: what it returns for a tile that is read by its lse alone is a result as it is, */
  int32_t           continues;           /* and such calls may continue each other */
  twh__lowering     lowering;
  twh__sizes        sizes;
} twh__kernel;

enum { TWH__CHAIN = 16 }; /* calls that continue each other, at most */

/* Sizes of what an execute works in; see run/workspace.h. */
typedef struct twh__layout {
  int64_t alignment;
  int64_t waves;                         /* at the same time: 2 where the host can work while the kernel does */
  int64_t bundles;                       /* in one wave, */
  int64_t early, batch;                  /* which so many, a multiple of `batch`, are enough for where a unit's tiles end */
  int64_t chain;                         /* key blocks of a unit whose calls may continue each other: an aligned range of so many */
  int64_t panel;                         /* units that go through the key blocks together */
  int64_t units, tree_nodes;
  int64_t slots, slot_tiles, parts;      /* most of one bundle, of one slot, and calls with buckets of one bundle */
  int64_t rows;                          /* of the longest slot */
  int64_t leaves, nodes, small_nodes;    /* states: of a wave's tiles, merged ones, and merged ones of streamed units */
  int64_t node_rows, small_rows;
  int64_t row_parts;                     /* into which rows are split for merging */
  int64_t q_blocks, k_blocks, v_blocks, bucket_blocks, mask_blocks; /* entries of the caches */
  twh__sizes most;                       /* over all kernels; v_slice_bytes: all slices of a block */
  int64_t bytes;                         /* of everything; the first of them are */
  int64_t flag_bytes;                    /* with plan->exact: a byte for each row of q, and one for each unit of plan->exact */
} twh__layout;

struct twh_plan {
  const twh_context *context;
  twh__shape         shape;
  twh_pattern        pattern;
  int64_t            batch, q_rows, k_rows;  /* extents of the tensors: batch entries, and rows of q and k */
  int64_t            sequences;
  int64_t            spans_count;
  twh__span         *spans;                  /* (spans_count) */
  int64_t            units;                  /* over all spans */
  double             pairs;                  /* visible, over all heads */
  int32_t            estimate;               /* TWH_ESTIMATE_*: how errors of sampled rows are estimated; */
  double             error_quantile;         /* so many times the standard error is the bound */
  uint64_t           seed;
  int64_t            samples;                /* of a block of rows */
  double             target_error;           /* rows with a larger one are computed exactly, */
  twh_plan          *exact;                  /* by this plan, of which only some units are executed; NULL: none are */
  int32_t            partial;                /* 1: this is such a plan */
  double             bound_c, bound_d;       /* stated bounds; 0: none, */
  double             error_bound;            /* and what follows from them */
  twh__shape         square_shape;           /* DOUBLED: of its second kernel, the first one with the values of squares */
  twh__needs         needs;
  int32_t            kernel_count;
  twh__kernel        kernels[TWH__MAX_KERNELS];
  twh__tally         tally;
  twh__layout        layout;
};

static inline const twh__shape *twh__plan_kernel_shape(const twh_plan *plan, const twh__kernel *kernel)
{
  return kernel->lowering.power == 2 ? &plan->square_shape : &plan->shape;
}

/* Give the plan its second kernel, where it needs one for squares. */
void twh__plan_square(twh_plan *plan, const twh_oracle_desc *desc);

/* Units of a span over all its kv heads. */
int64_t twh__plan_units(const twh_plan *plan, const twh__span *span);

/* Have a kernel of the plan make a span's grid. */
void twh__plan_assign(const twh_plan *plan, twh__span *span, int32_t kernel);

/* Count spans [first, last) on the kernels they are assigned to. TWH_E_OVERFLOW when a figure does not fit. */
twh_status twh__plan_count(const twh_plan *plan, int64_t first, int64_t last, twh__tally *tally, twh_error *error);

/* What a tally costs: calls of each kernel and, with batches, those. */
double twh__plan_cost(const twh_plan *plan, const twh__tally *tally);

/* Pairs that one call of a kernel can compute at most. */
double twh__plan_call_pairs(const twh_oracle_desc *desc);

/* ---- tiles of a unit: patches in order, of each patch its tiles ---- */

/* The kernel that computes a patch, and the tiles it takes, some of which may be empty. */
int32_t twh__plan_kernel(const twh_plan *plan, const twh__span *span, const twh__patch *patch);
int64_t twh__plan_patch_tiles(const twh_plan *plan, const twh__span *span, const twh__patch *patch);

/* One of them, all but unit_index, epoch and its place; tile->unit is set. 0: it is empty. */
int twh__plan_tile(const twh_plan *plan, const twh__span *span, const twh__patch *patch, int64_t number, twh__tile *tile);

/* A tile's shape as the caller counts rows and keys. */
int32_t twh__plan_shape(const twh__span *span, const twh__tile *tile);

/* The part of a call that a tile takes, over all calls that carry its parts. */
double twh__plan_share(const twh__lowering *lowering, const twh__tile *tile);

/* Tiles of one unit. */
int64_t twh__plan_unit_tiles(const twh_plan *plan, const twh__span *span, const twh__unit *unit);

/* Of a streamed span with very many units the heads are packed apart, so that they are alike. */
int twh__plan_heads_apart(const twh_plan *plan, const twh__span *span);

/* Calls that go into one batch: the kernel's limit, the caller's, or this library's default. */
int64_t twh__plan_calls_per_batch(const twh_oracle_desc *desc, const twh_plan_options *options);

/* One way of plan->kernels[0], which has an oracle and costs, for the whole problem; the best of them. The plan's kernels, spans
 * and tally become its. TWH_E_UNSUPPORTED: the kernel cannot go it, or any, with the reason. */
twh_status twh__plan_go(twh_plan *plan, const twh_oracle_desc *desc, int32_t way, double *cost, twh_error *error);
twh_status twh__plan_try(twh_plan *plan, const twh_oracle_desc *desc, double *cost, twh_error *error);

/* Calls of the whole problem on the kernel that makes most calls, by one of the ways; -1: it cannot go it. *chosen: whether it is
 * the plan's. `lowering` receives the way. */
int64_t twh__plan_consider(const twh_plan *plan, int32_t way, twh__lowering *lowering, int *chosen);

/* What another ability of the kernel that makes most calls would be worth: describes number `advice` of TWH__ADVICES in `what`, and
 * counts the calls of the problem on that kernel with it. 0: it has that ability, or it cannot be counted. */
enum { TWH__ADVICES = 6 };
int twh__plan_advise(const twh_plan *plan, int32_t advice, char *what, size_t bytes, int64_t *calls);

/* A tile as the caller counts rows and keys; call and slot: where it is. */
void twh__plan_tell(const twh_plan *plan, const twh__tile *tile, int64_t call, int64_t slot, twh_tile_info *info);

/* Decide sizes for the chosen lowerings. */
twh_status twh__plan_lay_out(twh_plan *plan, const twh_plan_options *options, twh_error *error);

/* Walk all tiles in the order of execution: spans, kv heads, panels of units, groups of layout.chain patches, units, patches. Each has
 * its place. */
typedef struct twh__cursor {
  const twh_plan *plan;
  int64_t         span, kv_head, panel, group, unit, block, number; /* unit: within the panel, block: within the group */
  int64_t         epoch, ordinal, calls;
  int32_t         entered;                                    /* 1: the epoch of this panel is settled */
  const uint8_t  *units;                                      /* which units are wanted; NULL: all */
  twh__pack       pack[TWH__MAX_KERNELS];
} twh__cursor;

void twh__cursor_begin(twh__cursor *cursor, const twh_plan *plan);
int  twh__cursor_next(twh__cursor *cursor, twh__tile *tile); /* 0 at the end; O(1) memory */

/* Give the tile that was found last its place. */
void twh__cursor_place(twh__cursor *cursor, twh__tile *tile, twh__place *place);

#endif
