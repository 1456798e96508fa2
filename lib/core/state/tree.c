/* The tree over ordinals, as bookkeeping: which states exist, and which two become one. */
#include "core/state/state.h"

int32_t twh__tree_capacity(int64_t n, int32_t late)
{
  int32_t levels = 1;
  while (levels < 62 && ((int64_t)1 << levels) < n) ++levels;
  /* an unaligned range of n ordinals falls into at most two aligned ranges per level */
  return (int32_t)twh__min(n, 2 * levels + late) + 1;
}

/* Plan the merge of two states into a node: one of them, if one is a node. -1 when none is free. A node that is taken in is
 * free for the work that comes after. */
static int32_t tree_merge(const twh__tree *tree, twh__agenda *agenda, int32_t x, int32_t y)
{
  twh__merge *merge = &agenda->work[agenda->count];

  if (x >= agenda->leaves) {
    merge->into = x;
    if (y >= agenda->leaves) agenda->free_nodes[agenda->free_count++] = y;
  } else if (y >= agenda->leaves) {
    merge->into = y;
  } else {
    if (agenda->free_count == 0) return -1;
    merge->into = agenda->free_nodes[--agenda->free_count];
  }
  merge->x = x;
  merge->y = y;
  merge->rows = tree->rows;
  ++agenda->count;
  return merge->into;
}

int twh__tree_push(twh__tree *tree, int32_t level, int64_t index, int32_t state, twh__agenda *agenda)
{
  int32_t i = 0;

  while (i < tree->count) {
    twh__node *other = &tree->nodes[i];
    if (other->level != level || other->index != (index ^ 1)) {
      ++i;
      continue;
    }
    state = tree_merge(tree, agenda, index & 1 ? other->state : state, index & 1 ? state : other->state);
    if (state < 0) return 0;
    *other = tree->nodes[--tree->count];
    index >>= 1;
    ++level;
    i = 0;
  }
  if (tree->count == tree->capacity) return 0;
  tree->nodes[tree->count].level = level;
  tree->nodes[tree->count].index = index;
  tree->nodes[tree->count].state = state;
  ++tree->count;
  return 1;
}

static int tree_keep_one(const twh__tree *tree, twh__node *node, twh__agenda *agenda)
{
  twh__merge *copy = &agenda->work[agenda->count];
  int32_t     leaf = node->state;

  if (leaf >= agenda->leaves) return 1;
  if (agenda->free_count == 0) return 0;
  node->state = agenda->free_nodes[--agenda->free_count];
  copy->into = node->state;
  copy->x = leaf;
  copy->y = -1;
  copy->rows = tree->rows;
  ++agenda->count;
  return 1;
}

int twh__tree_keep(twh__tree *tree, twh__agenda *agenda)
{
  for (int32_t i = 0; i < tree->count; ++i) {
    if (!tree_keep_one(tree, &tree->nodes[i], agenda)) return 0;
  }
  return 1;
}

int twh__tree_finish(twh__tree *tree, int32_t unit, twh__agenda *agenda)
{
  twh__merge *result;

  while (tree->count > 1) {
    twh__node lowest;
    int32_t   at = 0;
    for (int32_t i = 1; i < tree->count; ++i) {
      if (tree->nodes[i].level < tree->nodes[at].level) at = i;
    }
    lowest = tree->nodes[at];
    tree->nodes[at] = tree->nodes[--tree->count];
    /* its other half is missing: it is its parent */
    if (!twh__tree_push(tree, lowest.level + 1, lowest.index >> 1, lowest.state, agenda)) return 0;
  }
  if (tree->count == 0 || !tree_keep_one(tree, &tree->nodes[0], agenda)) return 0;
  result = &agenda->work[agenda->count++];
  result->into = -1;
  result->x = tree->nodes[0].state;
  result->y = unit;
  result->rows = tree->rows;
  agenda->free_nodes[agenda->free_count++] = tree->nodes[0].state;
  tree->count = 0;
  return 1;
}
