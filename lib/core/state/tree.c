/* The tree over ordinals, as bookkeeping: which states exist, and which of them become one. */
#include "core/state/state.h"

enum { TREE_FULL = -2 /* no node is free */ };

/* Nodes that become one at this level. */
static int32_t tree_width(int32_t level)
{
  return level == 0 ? 2 : TWH__FAN;
}

int32_t twh__tree_capacity(int64_t n, int32_t late)
{
  int32_t levels = 2; /* level 0 and one more */
  for (int64_t covered = 1; covered < n && levels < 40; covered *= TWH__FAN) ++levels;
  /* an unaligned range of n ordinals leaves at most three nodes per level at each of its ends */
  return (int32_t)twh__min(n, 6 * levels + late) + 1;
}

/* A node for a result: a member that is one, else a free one. Members that are nodes are free for the work that comes after. */
static int32_t tree_merge(const twh__tree *tree, twh__agenda *agenda, const int32_t members[TWH__FAN])
{
  twh__merge *merge = &agenda->work[agenda->count];

  merge->into = -1;
  for (int i = 0; i < TWH__FAN; ++i) {
    merge->from[i] = members[i];
    if (members[i] < agenda->leaves) continue; /* a leaf, or missing */
    if (merge->into < 0) {
      merge->into = members[i];
    } else {
      agenda->free_nodes[tree->small][agenda->free_count[tree->small]++] = members[i];
    }
  }
  if (merge->into < 0) {
    if (agenda->free_count[tree->small] == 0) return TREE_FULL;
    merge->into = agenda->free_nodes[tree->small][--agenda->free_count[tree->small]];
  }
  merge->unit = -1;
  merge->passing = 0;
  merge->rows = tree->rows;
  ++agenda->count;
  return merge->into;
}

/* What members come to: a single one is the result as it is. */
static int32_t tree_join(const twh__tree *tree, twh__agenda *agenda, const int32_t members[TWH__FAN])
{
  int32_t only = TWH__MISSING, count = 0;

  for (int i = 0; i < TWH__FAN; ++i) {
    if (members[i] == TWH__MISSING) continue;
    only = members[i];
    ++count;
  }
  return count < 2 ? only : tree_merge(tree, agenda, members);
}

/* Take the nodes that share a parent with (level, index) out of the tree, if there are at least `least`: their states in order.
 * Returns how many there were. */
static int32_t tree_take(twh__tree *tree, int32_t level, int64_t index, int32_t least, int32_t members[TWH__FAN])
{
  int32_t width = tree_width(level), found = 0;
  int64_t first = index - index % width;

  for (int i = 0; i < TWH__FAN; ++i) members[i] = TWH__MISSING;
  for (int32_t i = 0; i < tree->count; ++i) {
    const twh__node *node = &tree->nodes[i];
    if (node->level == level && node->index >= first && node->index < first + width) ++found;
  }
  if (found < least) return found;
  for (int32_t i = 0; i < tree->count;) {
    twh__node *node = &tree->nodes[i];
    if (node->level == level && node->index >= first && node->index < first + width) {
      members[node->index - first] = node->state;
      *node = tree->nodes[--tree->count];
    } else {
      ++i;
    }
  }
  return found;
}

int twh__tree_push(twh__tree *tree, int32_t level, int64_t index, int32_t state, twh__agenda *agenda)
{
  int32_t members[TWH__FAN];

  while (tree_take(tree, level, index, tree_width(level) - 1, members) == tree_width(level) - 1) {
    members[index % tree_width(level)] = state;
    state = tree_join(tree, agenda, members);
    if (state == TREE_FULL) return 0;
    index /= tree_width(level);
    ++level;
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
  int32_t members[TWH__FAN] = { TWH__MISSING, TWH__MISSING, TWH__MISSING, TWH__MISSING };

  if (node->state >= agenda->leaves || node->state == TWH__MISSING) return 1;
  members[0] = node->state;
  node->state = tree_merge(tree, agenda, members);
  return node->state != TREE_FULL;
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
    int32_t   members[TWH__FAN], at = 0, found;
    twh__node lowest;
    for (int32_t i = 1; i < tree->count; ++i) {
      if (tree->nodes[i].level < tree->nodes[at].level) at = i;
    }
    lowest = tree->nodes[at];
    found = tree_take(tree, lowest.level, lowest.index, 1, members);
    /* the others of the range are missing: what is there is their parent */
    if (found > 1) lowest.state = tree_join(tree, agenda, members);
    if (lowest.state == TREE_FULL) return 0;
    if (!twh__tree_push(tree, lowest.level + 1, lowest.index / tree_width(lowest.level), lowest.state, agenda)) return 0;
  }
  if (tree->count == 0 || tree->nodes[0].state == TWH__MISSING) return 0;
  if (!agenda->leaf_results && !tree_keep_one(tree, &tree->nodes[0], agenda)) return 0;
  result = &agenda->work[agenda->count++];
  result->into = -1;
  for (int i = 0; i < TWH__FAN; ++i) result->from[i] = i == 0 ? tree->nodes[0].state : TWH__MISSING;
  result->unit = unit;
  result->passing = 0;
  result->rows = tree->rows;
  if (tree->nodes[0].state >= agenda->leaves) {
    agenda->free_nodes[tree->small][agenda->free_count[tree->small]++] = tree->nodes[0].state;
  }
  tree->count = 0;
  return 1;
}
