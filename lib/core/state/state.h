/* Partial states: merging them row by row, and the fixed tree that decides in which order.
 *
 * Tiles of a unit finish in any order; their states merge along a tree over the tiles' absolute ordinals. At level 0 the two
 * tiles of one key block come together, at every further level the four nodes of an aligned range; a missing one counts as
 * neutral. So the result depends on nothing but the tiles, and at most some three states per level are alive. The tree is
 * symbolic: it decides which states merge into which, the arithmetic is done afterwards, for any split of the rows. */
#ifndef TWH_CORE_STATE_H
#define TWH_CORE_STATE_H

#include "core/base/base.h"
#include "core/records.h"
#include "core/view/view.h"

enum {
  TWH__FAN = 4,          /* states that merge at once */
  TWH__MISSING = -1,     /* no state */
  TWH__STATE_PIECE = 64, /* columns that are read at once */
  TWH__STATE_ROWS = 16,  /* and rows */
  TWH__LOT = 64,         /* rows that are merged together */
  TWH__PASSING = 8       /* states of a lot */
};

/* Rows [first, last) of the node `into` become those of all states in `from` together, in this order; NULL: missing. into may
 * be one of them. A leaf is neutral for rows that its tile does not place. */
void twh__state_merge(const twh__state *into, const twh__state *const from[TWH__FAN], int64_t first, int64_t last, int64_t dim);

/* to[c] = column first + c of the output at place `at` (twh__state_at), for n <= TWH__STATE_PIECE columns. */
void twh__state_read(double *to, const twh__state *from, int64_t at, int64_t first, int64_t n, int64_t dim);

/* Some rows of TWH__FAN states: m and a are set by the caller, all TWH__STATE_ROWS of them; a = 0: neutral. */
typedef struct twh__weights {
  double m[TWH__FAN][TWH__STATE_ROWS], a[TWH__FAN][TWH__STATE_ROWS];
  double largest[TWH__STATE_ROWS], sum[TWH__STATE_ROWS]; /* sum = (w_0 + w_1) + (w_2 + w_3) of w = a e^(m - largest) */
  double w[TWH__FAN][TWH__STATE_ROWS];                   /* w times 1 / sum; a NaN in m or a is one here */
} twh__weights;

void twh__weights_set(twh__weights *weights);

/* The spreads of the states in `from`, of one row, become that of `into`, which may be one of them. */
void twh__spread_merge(const twh__state *into, const twh__state *const from[TWH__FAN], int64_t row, int64_t dim);

/* The standard error of a row's output, |.|_2, from `count` samples or keys that are a share of those they stand for; The state has a
 * spread. INFINITY: nothing is known. */
double twh__spread_error(const twh__state *state, int64_t row, int64_t count, double share, int64_t dim);

/* Add e^sink to the sum of one row. */
void twh__state_add_sink(const twh__state *state, int64_t row, double sink, int64_t dim);

/* Write the result at place `at` (twh__state_at): a leaf's may stand at `out` already. lse may be NULL. */
void twh__state_write(const twh__state *state, int64_t at, int64_t dim, char *out, int32_t out_dtype, char *lse,
                      int32_t lse_dtype);

typedef struct twh__node {
  int64_t index;   /* at level 0 a tile's ordinal; at level k > 0 it covers key blocks [index 4^(k-1), (index + 1) 4^(k-1)) */
  int32_t level, state;
} twh__node;

typedef struct twh__tree {
  twh__node *nodes;
  int32_t    count, capacity;
  int64_t    rows;  /* of its unit */
  int32_t    small; /* 1: its nodes are small ones */
} twh__tree;

/* Work to be done in this order: the states of `from` (-1: missing) merge into node `into`, or, with into < 0, the state
 * from[0] is the result of unit entry `unit`. Behind the nodes come TWH__PASSING states that are one lot long. */
typedef struct twh__merge {
  int32_t into, from[TWH__FAN], unit;
  int32_t passing; /* 1: the result is read once more, by this agenda, and then never again */
  int64_t rows;    /* of the unit */
} twh__merge;

/* The work of one wave, and the nodes that are free: [1] small ones. States below `leaves` are leaves, which last as long as the
 * wave. */
typedef struct twh__agenda {
  twh__merge *work;
  int64_t     count;
  int32_t    *free_nodes[2];
  int64_t     free_count[2];
  int32_t    *marks;          /* of twh__agenda_pass_on: (nodes) */
  int32_t     leaves, nodes;  /* nodes: of both sizes */
  int32_t     leaf_results;   /* 1: a unit's result may be a leaf; else it becomes a node first */
} twh__agenda;

/* A state has arrived at (level, index), or TWH__MISSING: another one holds what this one would. Plans the merges that become
 * possible. 0 when the tree is full or no node is free. */
int twh__tree_push(twh__tree *tree, int32_t level, int64_t index, int32_t state, twh__agenda *agenda);

/* All states have arrived: plan the merges of what is left and the result, for unit entry `unit`. 0 when there is no state or
 * node. */
int twh__tree_finish(twh__tree *tree, int32_t unit, twh__agenda *agenda);

/* The wave ends: leaves that are still in the tree become nodes. 0 when no node is free. */
int twh__tree_keep(twh__tree *tree, twh__agenda *agenda);

/* The agenda is complete: let results that are needed within it only pass from work to work. */
void twh__agenda_pass_on(twh__agenda *agenda);

/* Nodes that a tree over n consecutive ordinals may need at the same time, with `late` of them out of order. */
int32_t twh__tree_capacity(int64_t n, int32_t late);

#endif
