/* The tiles of a unit, each on the kernel that computes it most cheaply. */
#include "core/plan/plan.h"

enum { TILES_HEADS_APART = 1024 /* units of one head */ };

int64_t twh__plan_units(const twh_plan *plan, const twh__span *span)
{
  return twh__cover_units(span, plan->shape.group, &plan->kernels[span->kernel].lowering.grid) * plan->shape.kv_heads;
}

void twh__plan_assign(const twh_plan *plan, twh__span *span, int32_t kernel)
{
  const twh__lowering *lowering = &plan->kernels[kernel].lowering;
  int64_t              rows = span->q_len * (span->stacked ? plan->shape.group : 1);

  span->kernel = kernel;
  span->streamed = span->kind == TWH__SPAN_WINDOW || (span->kind == TWH__SPAN_CAUSAL && lowering->cut_mode == TWH_MASK_NONE) ||
                   (2 * rows <= twh__grid_rows(&lowering->grid, span->kind) &&
                    2 * span->k_len <= twh__grid_keys(&lowering->grid, span->kind) && span->k_len > 0);
}

int twh__plan_heads_apart(const twh_plan *plan, const twh__span *span)
{
  return span->streamed && plan->shape.q_heads > 1 &&
         twh__cover_units(span, plan->shape.group, &plan->kernels[span->kernel].lowering.grid) >=
           TILES_HEADS_APART * (span->stacked ? 1 : plan->shape.group);
}

double twh__plan_share(const twh__lowering *lowering, const twh__tile *tile)
{
  double rows = (double)tile->rows / (double)lowering->q_len, keys = (double)tile->keys / (double)lowering->k_len;
  double whole = (double)twh__lower_parts(lowering, tile->reading) / (double)lowering->slots;

  if (tile->mode == TWH__MODE_HOST) return 0;
  if (tile->alone) return whole;
  if (tile->mode == TWH_MASK_CAUSAL) return whole * (double)tile->width / (double)lowering->grid.k_block;
  return whole * (rows > keys ? rows : keys);
}

static int tiles_may_share(const twh__span *span)
{
  if (!span->streamed) return TWH__SHARE_NONE;
  return span->kind == TWH__SPAN_WINDOW ? TWH__SHARE_ANY : TWH__SHARE_ALIKE;
}

static double tiles_patch_cost(const twh_plan *plan, const twh__span *span, int32_t kernel, const twh__patch *patch)
{
  const twh__lowering *lowering = &plan->kernels[kernel].lowering;
  double               cost = 0;
  twh__tile            tile;

  for (int64_t number = 0; number < twh__lower_count(lowering, patch); ++number) {
    if (!twh__lower_tile(lowering, patch, number, &tile)) continue;
    twh__lower_finish(lowering, 0, tiles_may_share(span), &tile);
    cost += twh__plan_share(lowering, &tile);
  }
  return cost * plan->kernels[kernel].cost_call;
}

/* Kernels whose tiles may merge: they see the same bits of a query. At logits of a thousand one more rounding of it would change
 * all weights of a tile beside those of the others. */
static int tiles_are_alike(const twh__lowering *a, const twh__lowering *b)
{
  return a->dtype == b->dtype && a->q_factor == b->q_factor && a->kernel_scale == b->kernel_scale &&
         a->f16_scores == b->f16_scores;
}

int32_t twh__plan_kernel(const twh_plan *plan, const twh__span *span, const twh__patch *patch)
{
  int32_t best = span->kernel;
  double  least;

  if (plan->estimate == TWH_ESTIMATE_DOUBLED) return patch->sample.role == TWH__DRAWN_SQUARES ? 1 : 0;
  if (plan->kernel_count == 1 || span->kind == TWH__SPAN_WINDOW) return best;
  least = tiles_patch_cost(plan, span, best, patch);
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    double cost;
    if (k == span->kernel || !tiles_are_alike(&plan->kernels[k].lowering, &plan->kernels[span->kernel].lowering) ||
        !twh__lower_fits(&plan->kernels[k].lowering, patch)) {
      continue;
    }
    /* a staircase has many tiles, and only spans whose own kernel needs one have ordinals for them */
    if (patch->shape != TWH_SHAPE_FULL && plan->kernels[k].lowering.cut_mode == TWH_MASK_NONE) continue;
    cost = tiles_patch_cost(plan, span, k, patch);
    if (cost >= least) continue;
    least = cost;
    best = k;
  }
  return best;
}

int64_t twh__plan_patch_tiles(const twh_plan *plan, const twh__span *span, const twh__patch *patch)
{
  return twh__lower_count(&plan->kernels[twh__plan_kernel(plan, span, patch)].lowering, patch);
}

int twh__plan_tile(const twh_plan *plan, const twh__span *span, const twh__patch *patch, int64_t number, twh__tile *tile)
{
  const twh__lowering *lowering;

  tile->kernel = twh__plan_kernel(plan, span, patch);
  lowering = &plan->kernels[tile->kernel].lowering;
  if (number >= twh__lower_count(lowering, patch) || !twh__lower_tile(lowering, patch, number, tile)) return 0;
  twh__lower_finish(lowering, patch->lead ? span->sinks : 0, tiles_may_share(span), tile);
  return 1;
}

int32_t twh__plan_shape(const twh__span *span, const twh__tile *tile)
{
  if (!span->mirrored) return tile->shape;
  return tile->shape == TWH_SHAPE_LOWER ? TWH_SHAPE_UPPER : tile->shape == TWH_SHAPE_UPPER ? TWH_SHAPE_LOWER : tile->shape;
}

int64_t twh__plan_unit_tiles(const twh_plan *plan, const twh__span *span, const twh__unit *unit)
{
  const twh__grid *grid = &plan->kernels[span->kernel].lowering.grid;
  int64_t          patches = twh__cover_patches(span, unit, grid), whole = twh__cover_whole(span, unit, grid), tiles = 0;
  twh__patch       patch;
  twh__tile        tile;

  tile.unit = *unit;
  for (int64_t index = 0, like; index < patches; index += like) {
    like = index == 1 && whole > 0 ? twh__min(whole, patches - 1) : 1;
    if (!twh__cover_patch(span, unit, grid, index, &patch)) continue;
    for (int64_t n = 0; n < twh__plan_patch_tiles(plan, span, &patch); ++n) {
      tiles += like * twh__plan_tile(plan, span, &patch, n, &tile);
    }
  }
  return tiles;
}
