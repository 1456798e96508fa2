/* Staircases: triangles on a kernel that has no mask for them.
 *
 * A triangle of n rows and keys is cut into g steps of b keys. One tile computes everything below the stairs: row block u sees
 * the steps before it, and g - 2 codes hide the others. What is left are g triangles of b keys, cut in the same way; several of
 * those share a slot. The last ones the host computes. Sizes are chosen once per plan: a split costs its share of a slot and
 * the triangles inside it; more steps take more codes, which then cannot keep tiles of one slot apart. */
#include "core/lower/lower.h"

enum {
  STAIRS_SIZES = 1024,     /* that a search looks at */
  STAIRS_STEPS_MOST = 40,
  STAIRS_LEAF_MOST = 64,   /* rows of the largest triangle that the host may compute */
  STAIRS_LEVELS = (int)(sizeof ((twh__lowering *)0)->stair_size / sizeof(int64_t)) - 1
};

typedef struct stairs_size {
  int64_t n;
  double  cost;  /* in slots */
  int64_t steps; /* 0: the host */
} stairs_size;

typedef struct stairs_search {
  const twh__lowering *lowering;
  stairs_size          sizes[STAIRS_SIZES];
  int                  count;
} stairs_search;

/* The part of a slot that the stairs of n rows in steps of b take, 0 when the kernel has too few codes. */
static double stairs_share(const twh__lowering *lowering, int64_t n, int64_t b)
{
  int64_t steps = twh__ceil_div(n, b), rows = twh__min(n - b, lowering->q_len), keys = (steps - 1) * b;
  int64_t codes = lowering->code != 0 ? lowering->codes : 0, cuts = steps - 2, together;

  if (cuts > codes || (cuts == codes && cuts > 0 && keys < lowering->k_len)) return 0; /* pads take one too */
  together = twh__min(lowering->q_len / rows, lowering->k_len / keys);
  together = twh__min(together, twh__code_capacity(TWH_MASK_NONE, codes - cuts, 1));
  return (double)twh__lower_parts(lowering, lowering->reading) / (double)together;
}

static double stairs_best(stairs_search *search, int64_t n)
{
  const twh__lowering *lowering = search->lowering;
  stairs_size          best = { n, (double)INT64_MAX, 0 };

  for (int i = 0; i < search->count; ++i) {
    if (search->sizes[i].n == n) return search->sizes[i].cost;
  }
  if (search->count == STAIRS_SIZES) return (double)INT64_MAX; /* halving, which is tried first, has found a way long before */
  if (n <= STAIRS_LEAF_MOST) {
    best.cost = TWH__HOST_COST * (double)n * (double)(n + 1) / 2 / ((double)lowering->q_len * (double)lowering->k_len);
  }
  for (int64_t steps = 2; steps <= twh__min(n, twh__min(lowering->codes + 2, STAIRS_STEPS_MOST)); ++steps) {
    int64_t b = twh__ceil_div(n, steps);
    double  share = stairs_share(lowering, n, b), cost;
    if (share == 0 || share >= best.cost) continue;
    cost = share + (double)steps * stairs_best(search, b);
    if (cost < best.cost) {
      best.cost = cost;
      best.steps = steps;
    }
  }
  if (search->count < STAIRS_SIZES) search->sizes[search->count++] = best;
  return best.cost;
}

static int64_t stairs_steps(const stairs_search *search, int64_t n)
{
  for (int i = 0; i < search->count; ++i) {
    if (search->sizes[i].n == n) return search->sizes[i].steps;
  }
  return 0;
}

void twh__lower_stairs(twh__lowering *lowering, const twh__needs *needs)
{
  int64_t       size = twh__min(lowering->grid.k_block, needs->keys), steps[STAIRS_LEVELS];
  stairs_search search;
  int32_t       levels = 0;

  search.lowering = lowering;
  search.count = 0;
  (void)stairs_best(&search, size);
  while (levels < STAIRS_LEVELS && (steps[levels] = stairs_steps(&search, size)) > 0) {
    size = twh__ceil_div(size, steps[levels]);
    ++levels;
  }
  lowering->stairs = levels;
  lowering->stair_size[levels] = size;
  for (int32_t l = levels; l > 0; --l) lowering->stair_size[l - 1] = lowering->stair_size[l] * steps[l - 1];
}
