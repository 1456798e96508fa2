/* The tree over ordinals, as bookkeeping: which states exist, and which two become one. */
#include "core/state/state.h"

int32_t twh__tree_capacity(int64_t n, int32_t late)
{
  int32_t levels = 1;
  while (levels < 62 && ((int64_t)1 << levels) < n) ++levels;
  /* an unaligned range of n ordinals falls into at most two aligned ranges per level */
  return (int32_t)twh__min(n, 2 * levels + late) + 1;
}

int twh__tree_push(twh__tree *tree, int32_t level, int64_t index, int32_t buffer, twh__merge *merges, int64_t *count)
{
  int32_t i = 0;

  while (i < tree->count) {
    twh__node *other = &tree->nodes[i];
    if (other->level != level || other->index != (index ^ 1)) {
      ++i;
      continue;
    }
    merges[*count].into = index & 1 ? other->buffer : buffer; /* the lower half takes the upper one in */
    merges[*count].from = index & 1 ? buffer : other->buffer;
    buffer = merges[*count].into;
    ++*count;
    *other = tree->nodes[--tree->count];
    index >>= 1;
    ++level;
    i = 0;
  }
  if (tree->count == tree->capacity) return 0;
  tree->nodes[tree->count].level = level;
  tree->nodes[tree->count].index = index;
  tree->nodes[tree->count].buffer = buffer;
  ++tree->count;
  return 1;
}

int32_t twh__tree_finish(twh__tree *tree, twh__merge *merges, int64_t *count)
{
  while (tree->count > 1) {
    twh__node lowest;
    int32_t   at = 0;
    for (int32_t i = 1; i < tree->count; ++i) {
      if (tree->nodes[i].level < tree->nodes[at].level) at = i;
    }
    lowest = tree->nodes[at];
    tree->nodes[at] = tree->nodes[--tree->count];
    /* its other half is missing: it is its parent */
    (void)twh__tree_push(tree, lowest.level + 1, lowest.index >> 1, lowest.buffer, merges, count);
  }
  return tree->count == 1 ? tree->nodes[--tree->count].buffer : -1;
}
