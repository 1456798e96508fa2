/* Placing: tiles into bundles, bundles into the wave, and the table of units that have tiles in flight. */
#include <string.h>

#include "core/run/run.h"

void twh__place_begin(twh__run *run)
{
  const twh_plan *plan = run->plan;
  twh__agenda    *agenda = &run->work.agenda;

  for (int32_t k = 0; k < TWH__MAX_KERNELS; ++k) {
    for (int32_t c = 0; c < TWH__CLASSES; ++c) run->open[k][c] = -1;
  }
  for (int64_t i = twh__workspace_bundles(plan); i > 0; --i) {
    run->work.free_bundles[run->free_bundles++] = (int32_t)(i - 1);
  }
  for (int64_t i = plan->layout.nodes; i > 0; --i) {
    agenda->free_nodes[0][agenda->free_count[0]++] = (int32_t)(plan->layout.leaves + i - 1);
  }
  for (int64_t i = plan->layout.small_nodes; i > 0; --i) {
    agenda->free_nodes[1][agenda->free_count[1]++] = (int32_t)(plan->layout.leaves + plan->layout.nodes + i - 1);
  }
  for (int32_t i = 0; i < run->work.unit_chain_count; ++i) run->work.unit_chains[i] = -1;
  run->free_unit = 0;
  run->last_unit = -1;
}

static int32_t *place_chain(const twh__run *run, int64_t index)
{
  return &run->work.unit_chains[index & (run->work.unit_chain_count - 1)];
}

/* The entry of a tile's unit; a new one for its first tile; -1: none is free. */
static int32_t place_unit(twh__run *run, const twh__tile *tile)
{
  const twh__span *span = &run->plan->spans[tile->unit.span];
  int32_t         *chain = place_chain(run, tile->unit_index), at = *chain;
  twh__unit_entry *entry;

  while (at >= 0 && run->work.units[at].index != tile->unit_index) at = run->work.units[at].next;
  if (at >= 0 || run->free_unit < 0) return at;
  at = run->free_unit;
  entry = &run->work.units[at];
  run->free_unit = entry->next;
  entry->next = *chain;
  *chain = at;
  entry->index = tile->unit_index;
  entry->unit = tile->unit;
  entry->tiles = entry->tiles_left = entry->tiles_unplaced = twh__plan_unit_tiles(run->plan, span, &tile->unit);
  entry->tree.count = 0;
  entry->tree.rows = tile->unit.rows;
  entry->tree.small = span->streamed;
  return at;
}

void twh__place_free_unit(twh__run *run, int32_t at)
{
  twh__unit_entry *entry = &run->work.units[at];
  int32_t         *link = place_chain(run, entry->index);

  while (*link != at) link = &run->work.units[*link].next;
  *link = entry->next;
  entry->next = run->free_unit;
  entry->tiles_left = -1;
  run->free_unit = at;
}

/* What the codes of a bundle's slots need to know of all their tiles. */
static void place_close(twh__run *run, twh__wave *wave, int32_t kernel, int32_t class_number)
{
  int32_t     *open = &run->open[kernel][class_number];
  twh__bundle *bundle = &run->work.bundles[*open];

  for (int64_t s = 0; s < bundle->filled; ++s) {
    twh__slot       *slot = &bundle->slots[s].slot;
    const twh__tile *first = &slot->tiles[0];
    slot->isolation = twh__pack_isolation(&run->plan->kernels[kernel].lowering, first->mode, first->alone, slot->cuts);
  }
  bundle->buffers = wave->buffers + wave->count;
  wave->bundles[wave->count++] = bundle;
  *open = -1;
}

/* A tile whose pairs the mask tensor hides, all of them: its unit does without it. */
static void place_skip(twh__run *run, int32_t at)
{
  twh__unit_entry *entry = &run->work.units[at];

  if (--entry->tiles_left > 0 || entry->tree.count > 0) return; /* what is in the tree is finished with the next wave */
  twh__run_write_neutral(run, &entry->unit);
  twh__place_free_unit(run, at);
}

/* All tiles of the unit are placed: its states need not wait for the next wave, if this one is large enough. */
static int place_is_enough(const twh__run *run, const twh__wave *wave, int32_t unit)
{
  const twh__layout *layout = &run->plan->layout;

  return run->work.units[unit].tiles_unplaced == 0 && wave->count >= layout->early && wave->count % layout->batch == 0;
}

int twh__place_fits(const twh__run *run, const twh__wave *wave)
{
  const twh__layout *layout = &run->plan->layout;
  const twh__tile   *tile = &run->tile;

  if (wave->count + layout->chain <= layout->bundles || wave->count == 0) return 1;
  return tile->unit_index == run->last_unit && tile->ordinal / layout->chain == run->last_group;
}

twh_status twh__place_tile(twh__run *run, twh__wave *wave, int *full, twh_error *error)
{
  twh__tile   *tile = &run->tile;
  int32_t      unit = place_unit(run, tile), class_number = twh__class_of(tile), *open = &run->open[tile->kernel][class_number];
  twh__bundle *bundle;
  twh__attention *attention;
  twh__placement *placement;
  twh__place      place;

  *full = 0;
  run->last_unit = tile->unit_index;
  run->last_group = tile->ordinal / run->plan->layout.chain;
  if (unit < 0) return twh__fail(error, TWH_E_MEMORY, "workspace: too many units in flight (a defect of the library)");
  --run->work.units[unit].tiles_unplaced;
  if (run->has_mask) {
    twh__source source;
    memset(&source, 0, sizeof source);
    source.spans = run->plan->spans;
    source.mask = &run->mask;
    if (twh__mask_hides_all(&source, tile)) {
      place_skip(run, unit);
      return TWH_OK;
    }
  }
  twh__cursor_place(&run->cursor, tile, &place);
  if (place.closes) place_close(run, wave, tile->kernel, class_number);
  if (*open < 0) {
    *open = run->work.free_bundles[--run->free_bundles];
    run->work.bundles[*open].filled = 0;
  }
  bundle = &run->work.bundles[*open];
  bundle->kernel = tile->kernel;
  bundle->class_number = class_number;
  bundle->first_call = run->first_call + place.call;
  bundle->filled = place.slot + 1;
  attention = &bundle->slots[place.slot];
  attention->chain = NULL;
  attention->followers = 0;
  attention->out = NULL;
  attention->tiles[place.tile] = *tile;
  if (place.tile == 0) attention->slot.cuts = attention->slot.exposed = 0;
  attention->slot.count = place.tile + 1;
  attention->slot.cuts = (int32_t)twh__max(attention->slot.cuts, tile->cuts);
  attention->slot.exposed |= tile->exposed;
  placement = &attention->places[place.tile];
  memset(placement, 0, sizeof *placement);
  placement->unit = unit;
  placement->nan_row = -1;
  if (place.fills) place_close(run, wave, tile->kernel, class_number);
  *full = wave->count == run->plan->layout.bundles || place_is_enough(run, wave, unit);
  return TWH_OK;
}

void twh__place_flush(twh__run *run, twh__wave *wave)
{
  for (int32_t k = 0; k < run->plan->kernel_count; ++k) {
    for (int32_t c = 0; c < TWH__CLASSES; ++c) {
      if (run->open[k][c] >= 0 && wave->count < run->plan->layout.bundles) place_close(run, wave, k, c);
    }
  }
}

void twh__place_recycle(twh__run *run, twh__wave *wave)
{
  for (int64_t b = 0; b < wave->count; ++b) {
    run->work.free_bundles[run->free_bundles++] = (int32_t)(wave->bundles[b] - run->work.bundles);
  }
  wave->count = 0;
}
