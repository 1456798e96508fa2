/* Carving the workspace: one walk, which measures with base NULL and assigns pointers otherwise. */
#include <string.h>

#include "core/run/workspace.h"

typedef struct workspace_carver {
  char   *base;
  int64_t used;
  int     overflow;
} workspace_carver;

static char *workspace_take(workspace_carver *carver, int64_t count, int64_t bytes, int64_t alignment)
{
  int64_t all, begin = 0;

  if (!twh__multiply(count, bytes, &all) || !twh__add(carver->used, alignment - 1, &begin)) carver->overflow = 1;
  begin = begin / alignment * alignment;
  if (carver->overflow || !twh__add(begin, all, &carver->used)) {
    carver->overflow = 1;
    return NULL;
  }
  return carver->base ? carver->base + begin : NULL;
}

/* An array of records. */
#define WORKSPACE_ARRAY(carver, type, count) ((type *)(void *)workspace_take(carver, count, (int64_t)sizeof(type), 64))

static void workspace_cache(workspace_carver *carver, twh__cache *cache, int64_t count, int64_t bytes, int64_t alignment)
{
  int32_t chains = 1;
  while (chains < count && chains < (1 << 30)) chains *= 2;
  cache->count = (int32_t)count;
  cache->chain_count = chains;
  cache->bytes = bytes;
  cache->entries = WORKSPACE_ARRAY(carver, twh__cache_entry, count);
  cache->chains = WORKSPACE_ARRAY(carver, int32_t, chains);
  cache->notes = WORKSPACE_ARRAY(carver, double, count);
  cache->memory = workspace_take(carver, count, bytes, alignment);
}

static void workspace_bundles(workspace_carver *carver, const twh_plan *plan, twh__workspace *workspace)
{
  const twh__layout *layout = &plan->layout;
  int64_t            all = twh__workspace_bundles(plan), share = layout->slot_tiles;

  workspace->bundles = WORKSPACE_ARRAY(carver, twh__bundle, all);
  for (int64_t i = 0; i < all && !carver->overflow; ++i) {
    twh__attention *slots = WORKSPACE_ARRAY(carver, twh__attention, layout->slots);
    twh__tile      *tiles = WORKSPACE_ARRAY(carver, twh__tile, layout->slots * share);
    twh__placement *places = WORKSPACE_ARRAY(carver, twh__placement, layout->slots * share);
    if (!carver->base) continue;
    workspace->bundles[i].slots = slots;
    for (int64_t s = 0; s < layout->slots; ++s) {
      memset(&slots[s], 0, sizeof slots[s]);
      slots[s].tiles = tiles + s * share;
      slots[s].places = places + s * share;
      slots[s].slot.tiles = slots[s].tiles;
    }
  }
  workspace->free_bundles = WORKSPACE_ARRAY(carver, int32_t, all);
}

static void workspace_wave(workspace_carver *carver, const twh_plan *plan, twh__wave *wave)
{
  int64_t calls = plan->layout.bundles * plan->layout.parts;

  wave->bundles = WORKSPACE_ARRAY(carver, twh__bundle *, plan->layout.bundles);
  wave->calls = WORKSPACE_ARRAY(carver, twh_call, calls);
  wave->list = WORKSPACE_ARRAY(carver, const twh_call *, calls);
  wave->batches = WORKSPACE_ARRAY(carver, twh__batch, calls);
}

static void workspace_waves(workspace_carver *carver, const twh_plan *plan, twh__workspace *workspace)
{
  const twh__layout *layout = &plan->layout;
  twh__bundle       *repairs = WORKSPACE_ARRAY(carver, twh__bundle, layout->bundles);

  for (int64_t w = 0; w < layout->waves; ++w) {
    workspace_wave(carver, plan, &workspace->waves[w]);
    workspace->waves[w].buffers = w * layout->bundles;
  }
  workspace_wave(carver, plan, &workspace->repairs);
  workspace->repairs.repair = 1;
  for (int64_t i = 0; i < layout->bundles && !carver->overflow; ++i) {
    twh__attention *slots = WORKSPACE_ARRAY(carver, twh__attention, layout->slots);
    if (!carver->base) continue;
    repairs[i].slots = slots;
    workspace->repairs.bundles[i] = &repairs[i];
  }
}

static void workspace_buffers(workspace_carver *carver, const twh_plan *plan, twh__workspace *workspace)
{
  const twh__layout *layout = &plan->layout;
  const twh__sizes  *most = &layout->most;
  int64_t            rows = 0;

  if (!twh__multiply(layout->slots, layout->rows, &rows)) carver->overflow = 1;
  workspace->buffers = WORKSPACE_ARRAY(carver, twh__buffers, layout->waves * layout->bundles);
  for (int64_t i = 0; i < layout->waves * layout->bundles && !carver->overflow; ++i) {
    twh__buffers buffers;
    buffers.q = workspace_take(carver, 1, most->q_gather, layout->alignment);
    buffers.k = workspace_take(carver, 1, most->k_gather, layout->alignment);
    buffers.v = workspace_take(carver, layout->parts, most->v_gather, layout->alignment);
    buffers.mask = workspace_take(carver, 1, most->mask_gather, layout->alignment);
    buffers.out = workspace_take(carver, layout->parts, most->out_bytes, layout->alignment);
    buffers.lse = workspace_take(carver, layout->parts, most->lse_bytes, layout->alignment);
    if (most->lse_bytes == 0) buffers.lse = NULL;
    buffers.m = WORKSPACE_ARRAY(carver, double, rows);
    buffers.a = WORKSPACE_ARRAY(carver, double, rows);
    buffers.factor = WORKSPACE_ARRAY(carver, double, rows);
    if (carver->base) workspace->buffers[i] = buffers;
  }
}

/* Merged states with so many rows each. */
static void workspace_nodes(workspace_carver *carver, const twh_plan *plan, twh__state *states, int64_t count, int64_t least)
{
  int64_t rows = twh__round_up(least, 8), outputs = 0, spread = 0;

  if (!twh__multiply(rows, plan->shape.v_dim, &outputs)) carver->overflow = 1;
  if (plan->estimate && !twh__multiply(rows, TWH__SPREAD(plan->shape.v_dim), &spread)) carver->overflow = 1;
  for (int64_t i = 0; i < count && !carver->overflow; ++i) {
    twh__state state;
    memset(&state, 0, sizeof state);
    state.m = WORKSPACE_ARRAY(carver, double, rows);
    state.a = WORKSPACE_ARRAY(carver, double, rows);
    state.b = WORKSPACE_ARRAY(carver, double, outputs);
    if (plan->estimate) state.spread = WORKSPACE_ARRAY(carver, double, spread);
    if (carver->base) states[i] = state;
  }
}

static void workspace_agenda(workspace_carver *carver, const twh__layout *layout, twh__agenda *agenda)
{
  int64_t nodes = layout->nodes + layout->small_nodes;

  /* a wave plans at most one piece of work per state, and a result per unit */
  agenda->work = WORKSPACE_ARRAY(carver, twh__merge, 2 * layout->leaves + nodes + layout->units);
  agenda->free_nodes[0] = WORKSPACE_ARRAY(carver, int32_t, layout->nodes);
  agenda->free_nodes[1] = WORKSPACE_ARRAY(carver, int32_t, layout->small_nodes);
  agenda->marks = WORKSPACE_ARRAY(carver, int32_t, nodes);
  agenda->leaves = (int32_t)layout->leaves;
  agenda->nodes = (int32_t)nodes;
}

static void workspace_states(workspace_carver *carver, const twh_plan *plan, twh__workspace *workspace)
{
  const twh__layout *layout = &plan->layout;
  int64_t            nodes = layout->nodes + layout->small_nodes;

  workspace->states = WORKSPACE_ARRAY(carver, twh__state, layout->leaves + nodes);
  workspace_nodes(carver, plan, &workspace->neutral, 1, 1);
  workspace_nodes(carver, plan, workspace->states + layout->leaves, layout->nodes, layout->node_rows);
  workspace_nodes(carver, plan, workspace->states + layout->leaves + layout->nodes, layout->small_nodes, layout->small_rows);
  workspace->passing = WORKSPACE_ARRAY(carver, twh__state, layout->row_parts * TWH__PASSING);
  workspace_nodes(carver, plan, workspace->passing, layout->row_parts * TWH__PASSING, TWH__LOT);
  workspace_agenda(carver, layout, &workspace->agenda);
  if (plan->estimate != TWH_ESTIMATE_DOUBLED) return;
  workspace->centres = (double *)(void *)workspace_take(carver, layout->waves * layout->leaves,
                                                        TWH__CENTRE(plan->shape.v_dim) * (int64_t)sizeof(double), 64);
}

static void workspace_units(workspace_carver *carver, const twh_plan *plan, twh__workspace *workspace)
{
  const twh__layout *layout = &plan->layout;
  int32_t            chains = 1;

  while (chains < layout->units && chains < (1 << 30)) chains *= 2;
  workspace->unit_chain_count = chains;
  workspace->unit_chains = WORKSPACE_ARRAY(carver, int32_t, chains);
  workspace->units = WORKSPACE_ARRAY(carver, twh__unit_entry, layout->units);
  for (int64_t i = 0; i < layout->units && !carver->overflow; ++i) {
    twh__node *nodes = WORKSPACE_ARRAY(carver, twh__node, layout->tree_nodes);
    if (!carver->base) continue;
    memset(&workspace->units[i], 0, sizeof workspace->units[i]);
    workspace->units[i].tiles_left = -1;
    workspace->units[i].next = i + 1 < layout->units ? (int32_t)(i + 1) : -1;
    workspace->units[i].tree.nodes = nodes;
    workspace->units[i].tree.capacity = (int32_t)layout->tree_nodes;
  }
}

int64_t twh__workspace_bundles(const twh_plan *plan)
{
  return plan->layout.waves * plan->layout.bundles + plan->tally.classes + 1;
}

int twh__workspace_lay_out(const twh_plan *plan, char *base, twh__workspace *workspace, int64_t *bytes)
{
  const twh__layout *layout = &plan->layout;
  workspace_carver   carver = { base, 0, 0 };
  const twh__sizes  *most = &layout->most;

  memset(workspace, 0, sizeof *workspace);
  workspace_cache(&carver, &workspace->q, layout->q_blocks, most->q_bytes, layout->alignment);
  workspace_cache(&carver, &workspace->k, layout->k_blocks, most->k_bytes, layout->alignment);
  workspace_cache(&carver, &workspace->v, layout->v_blocks, most->v_slice_bytes, layout->alignment);
  workspace_cache(&carver, &workspace->buckets, layout->bucket_blocks, most->v_slice_bytes, layout->alignment);
  workspace_cache(&carver, &workspace->mask, layout->mask_blocks, most->mask_bytes, layout->alignment);
  workspace_bundles(&carver, plan, workspace);
  workspace_waves(&carver, plan, workspace);
  workspace_buffers(&carver, plan, workspace);
  workspace_states(&carver, plan, workspace);
  workspace_units(&carver, plan, workspace);
  *bytes = carver.used;
  return !carver.overflow;
}
