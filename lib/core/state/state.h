/* Partial states: merging them row by row, and the fixed tree that decides in which order.
 *
 * Tiles of a unit finish in any order; their states merge along a binary tree over the tiles' absolute ordinals, where a node
 * covers an aligned range and a missing half counts as neutral. So the result depends on nothing but the tiles, and at most
 * about two states per level are alive. The tree is symbolic: it decides which buffer merges into which, the arithmetic is
 * done afterwards, for any split of the rows. */
#ifndef TWH_CORE_STATE_H
#define TWH_CORE_STATE_H

#include "core/base/base.h"
#include "core/records.h"
#include "core/view/view.h"

/* Merge rows [first, last) of `from` into `into`. */
void twh__state_merge(const twh__state *into, const twh__state *from, int64_t first, int64_t last, int64_t dim);

/* Add e^sink to the sum of one row. */
void twh__state_add_sink(const twh__state *state, int64_t row, double sink, int64_t dim);

/* Write one row's result; lse may be NULL. */
void twh__state_write(const twh__state *state, int64_t row, int64_t dim, char *out, int32_t out_dtype, char *lse,
                      int32_t lse_dtype);

typedef struct twh__node {
  int64_t index;   /* covers ordinals [index << level, (index + 1) << level) */
  int32_t level, buffer;
} twh__node;

typedef struct twh__tree {
  twh__node *nodes;
  int32_t    count, capacity;
} twh__tree;

/* One merge to be done: buffer `from` into buffer `into`; from is free afterwards. */
typedef struct twh__merge {
  int32_t into, from;
} twh__merge;

/* A state has arrived at (level, index): appends the merges that become possible to merges[*count..]. 0 when the tree is
 * full. */
int twh__tree_push(twh__tree *tree, int32_t level, int64_t index, int32_t buffer, twh__merge *merges, int64_t *count);

/* All states have arrived: merge what is left. Returns the buffer of the result, or -1 if there was none. */
int32_t twh__tree_finish(twh__tree *tree, twh__merge *merges, int64_t *count);

/* Nodes that a tree over n consecutive ordinals may need at the same time, with `late` of them out of order. */
int32_t twh__tree_capacity(int64_t n, int32_t late);

#endif
