/* Next fit. */
#include <string.h>

#include "core/pack/pack.h"

enum { PACK_ALONE, PACK_LEAD, PACK_LOWER, PACK_OTHER, PACK_KINDS };

int32_t twh__class_of(const twh__tile *tile)
{
  int32_t mode = tile->mode == TWH_MASK_NONE ? 1 : tile->mode == TWH_MASK_CAUSAL ? 2 : tile->mode == TWH_MASK_TENSOR ? 3 : 0;
  int32_t kind = PACK_OTHER;

  if (tile->alone) {
    kind = PACK_ALONE;
  } else if (tile->lead > 0) {
    kind = PACK_LEAD;
  } else if (tile->shape != TWH_SHAPE_FULL && !tile->reversed) {
    kind = PACK_LOWER;
  }
  return (mode * PACK_KINDS + kind) * 2 + (tile->pads == TWH__PAD_COPIES);
}

void twh__pack_begin(twh__pack *pack, int64_t most_tiles)
{
  memset(pack, 0, sizeof *pack);
  pack->most_tiles = most_tiles;
}

int32_t twh__pack_isolation(const twh__lowering *lowering, int32_t mode, int alone, int32_t cuts)
{
  if (lowering->code == 0 || mode == TWH_MASK_TENSOR || mode == TWH__MODE_HOST) return 0;
  return alone ? lowering->codes > cuts : (int32_t)twh__min(20, lowering->codes - cuts);
}

/* Positions that the tile takes of a slot's rows and keys, which are one on a causal mask. */
static void pack_extent(const twh__tile *tile, int64_t *rows, int64_t *keys)
{
  *rows = tile->rows;
  *keys = tile->mode == TWH__MODE_HOST ? 0 : tile->keys;
  if (tile->mode == TWH_MASK_CAUSAL) *rows = *keys = tile->width;
}

/* Whose sinks a tile sees: biases make keys those of a query head. */
static int64_t pack_lead_head(const twh__lowering *lowering, const twh__tile *tile)
{
  return lowering->bias_parts > 0 ? tile->unit.q_head : tile->unit.kv_head;
}

static int pack_fits(const twh__open *open, const twh__lowering *lowering, int64_t sequence, const twh__tile *tile)
{
  int64_t rows, keys, codes = lowering->codes - twh__max(open->cuts, tile->cuts);

  pack_extent(tile, &rows, &keys);
  if (open->epoch != tile->epoch || open->lead != tile->lead) return 0;
  if (tile->lead > 0 && (open->sequence != sequence || open->head != pack_lead_head(lowering, tile))) return 0;
  if (tile->mode == TWH_MASK_CAUSAL) {
    if (open->keys + keys > lowering->grid.k_block) return 0;
  } else if (open->rows + rows > lowering->q_len || open->keys + keys > lowering->k_len) {
    return 0;
  }
  if (tile->mode == TWH_MASK_TENSOR || tile->mode == TWH__MODE_HOST) return 1;
  return open->tiles + 1 <= twh__code_capacity(tile->mode, codes, open->exposed || tile->exposed);
}

static void pack_open_slot(twh__pack *pack, twh__open *open, const twh__lowering *lowering, int32_t class_number,
                           int64_t sequence, const twh__tile *tile)
{
  ++open->slots;
  ++pack->slots[class_number];
  open->tiles = open->units = open->rows = 0;
  open->unit_span = -1;
  open->keys = open->lead = tile->lead;
  open->epoch = tile->epoch;
  open->sequence = sequence;
  open->head = pack_lead_head(lowering, tile);
  open->cuts = open->exposed = 0;
}

void twh__pack_put(twh__pack *pack, const twh__lowering *lowering, int64_t parts, int64_t sequence, twh__tile *tile,
                   int64_t *calls, twh__place *place)
{
  int32_t    class_number = twh__class_of(tile);
  twh__open *open = &pack->open[class_number];
  int64_t    rows, keys;

  place->closes = place->fills = 0;
  if (open->slots == 0 || tile->alone || open->tiles == pack->most_tiles || !pack_fits(open, lowering, sequence, tile)) {
    if (open->slots == lowering->slots) {
      place->closes = 1;
      open->slots = 0;
    }
    if (open->slots == 0) {
      open->first_call = *calls;
      *calls += parts;
    }
    pack_open_slot(pack, open, lowering, class_number, sequence, tile);
  }
  place->call = open->first_call;
  place->slot = open->slots - 1;
  place->tile = open->tiles++;
  if (open->unit_span != tile->unit.span || open->unit_head != tile->unit.q_head || open->unit_first != tile->unit.first) {
    open->unit_span = tile->unit.span;
    open->unit_head = tile->unit.q_head;
    open->unit_first = tile->unit.first;
    ++open->units;
  }
  place->units = open->units;
  pack_extent(tile, &rows, &keys);
  if (tile->mode == TWH_MASK_CAUSAL) {
    tile->at += open->keys - tile->lead;
  } else {
    tile->at += open->rows;
  }
  tile->key_at += open->keys - tile->lead;
  open->rows += rows;
  open->keys += keys;
  open->cuts = (int32_t)twh__max(open->cuts, tile->cuts);
  open->exposed |= tile->exposed;
  if (tile->alone && open->slots == lowering->slots) {
    open->slots = 0;
    place->fills = 1;
  }
}
