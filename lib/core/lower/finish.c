/* What follows from where a tile stands: the call's lengths, what stands behind short keys, how the sum is read, which keys the
 * host scores for that, and whether other tiles may share the slot. */
#include "core/lower/lower.h"

static const char *const finish_reading_names[TWH__READINGS] = {
  "the kernel's lse",
  "the kernel's lse and a column that tells real keys from their copies",
  "an anchor column",
  "an anchor column and one that tells real keys from their copies",
  "a bucket call",
};

const char *twh__lower_reading_name(int32_t reading)
{
  return finish_reading_names[reading];
}

int64_t twh__lower_parts(const twh__lowering *lowering, int32_t reading)
{
  return lowering->values_parts + (reading == TWH__READ_BUCKET);
}

double twh__lower_visible(const twh__tile *tile)
{
  double pairs = 0;
  for (int64_t i = 0; i < tile->rows; ++i) pairs += (double)(twh__tile_seen(tile, i) - twh__tile_from(tile, i));
  return pairs;
}

double twh__lower_host_pairs(const twh__lowering *lowering, const twh__tile *tile)
{
  double scored = tile->pads == TWH__PAD_MEAN;

  if (tile->mode == TWH__MODE_HOST) return twh__lower_visible(tile);
  if (tile->reading == TWH__READ_BUCKET) scored += (double)twh__ceil_div(tile->lead + tile->keys, lowering->v_dim);
  if (tile->reading == TWH__READ_ANCHOR || tile->reading == TWH__READ_ANCHOR_SHARE) {
    scored += lowering->anchors + (tile->lead > 0);
  }
  return (double)tile->rows * scored;
}

/* Anchors: some key that every row sees, and with lowering.anchors > 1 about as many of them. */
static void finish_anchors(const twh__lowering *lowering, twh__tile *tile)
{
  int64_t few = lowering->anchors, width, step = twh__ceil_div(tile->keys, few);

  tile->anchor_last = 0;
  if (tile->cut == TWH__CUT_CORNER) {
    /* rows from quantum on see the keys unit .. quantum (unit <= quantum), those before see key 0 */
    int64_t r = tile->from.quantum;
    step = twh__ceil_div(r, few);
    if (r / step * step < tile->from.unit) step = r;
    tile->anchor_last = tile->keys <= r;
  } else if (tile->from.step > 0 && tile->seen.step == 0) {
    tile->anchor_last = 1; /* all rows see the last key */
  } else if (tile->from.step != 0) {
    width = tile->seen.start - tile->from.start; /* of a band's row where it is not cut off */
    step = twh__max(1, twh__ceil_div(width, few));
    tile->anchor_last = 1;
  }
  tile->anchor_step = step;
}

static int32_t finish_pads(const twh__lowering *lowering, const twh__tile *tile)
{
  if (tile->lead + tile->keys == tile->slot_keys && tile->alone) return TWH__PAD_UNSEEN;
  if (tile->mode == TWH__MODE_HOST) return TWH__PAD_UNSEEN;
  if (tile->mode == TWH_MASK_TENSOR) return lowering->mask_value != 0 ? TWH__PAD_MASKED : TWH__PAD_UNSEEN;
  if (lowering->code != 0 && lowering->codes > tile->cuts) return TWH__PAD_DEAD;
  if (tile->mode == TWH_MASK_NONE) return TWH__PAD_MEAN;
  return tile->exposed ? TWH__PAD_COPIES : TWH__PAD_UNSEEN;
}

/* Whether two tiles like this one could share a slot, or this one and a smaller one. */
static int finish_could_share(const twh__lowering *lowering, int share, const twh__tile *tile)
{
  int64_t codes = lowering->code != 0 ? lowering->codes - tile->cuts : 0;
  int64_t width = tile->width + (share == TWH__SHARE_ANY ? 1 : tile->width);

  if (share == TWH__SHARE_NONE) return 0;
  if (tile->mode == TWH__MODE_HOST) return 2 * tile->rows <= lowering->q_len;
  if (tile->mode == TWH_MASK_CAUSAL) {
    return tile->lead + width <= lowering->grid.k_block &&
           twh__code_capacity(tile->mode, codes, tile->exposed) >= 2;
  }
  if (2 * tile->rows > lowering->q_len || tile->lead + 2 * tile->keys > lowering->k_len) return 0;
  return tile->mode == TWH_MASK_TENSOR ? lowering->mask_value == 0 : twh__code_capacity(tile->mode, codes, 1) >= 2;
}

void twh__lower_finish(const twh__lowering *lowering, int64_t lead, int share, twh__tile *tile)
{
  int64_t last;

  tile->lead = lead;
  tile->key_at += lead;
  if (tile->mode == TWH_MASK_CAUSAL) tile->at += lead;
  last = twh__max(tile->at, tile->at + (tile->rows - 1) * tile->at_step) + 1;
  tile->width = tile->keys;
  if (tile->mode == TWH_MASK_CAUSAL) tile->width = twh__max(tile->keys, last - lowering->shift - tile->key_at);
  tile->exposed = tile->width > tile->keys;
  tile->alone = !finish_could_share(lowering, share, tile);
  tile->slot_rows = lowering->q_len;
  tile->slot_keys = lowering->k_len;
  if (tile->alone && lowering->q_len_min > 0) {
    tile->slot_rows = twh__max(lowering->q_len_min, twh__round_up(last, lowering->q_len_step));
  }
  if (tile->alone && lowering->k_len_min > 0) {
    tile->slot_keys = twh__max(lowering->k_len_min, twh__round_up(lead + tile->keys, lowering->k_len_step));
  }
  tile->pads = finish_pads(lowering, tile);
  tile->reading = tile->pads == TWH__PAD_COPIES ? lowering->share_reading : lowering->reading;
  finish_anchors(lowering, tile);
}
