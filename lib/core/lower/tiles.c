/* Tiles of a patch: where rows and keys stand in a slot, and what becomes of a short one.
 *
 * On a kernel whose causal mask cannot be switched off, a rectangle is a lower triangle in natural order and the strict upper
 * one with its keys reversed (Theorem 3.5): row t stands at position keys - 2 - t there and sees the keys after its own
 * number. If rows and keys together fit one slot, the rows stand behind all keys instead, and one tile does it. */
#include "core/lower/lower.h"

static const char *const lower_reading_names[TWH__READINGS] = {
  "the kernel's lse",
  "the kernel's lse and a column that tells real keys from their copies",
  "an anchor column",
  "an anchor column and one that tells real keys from their copies",
  "a bucket call",
};

const char *twh__lower_reading_name(int32_t reading)
{
  return lower_reading_names[reading];
}

int64_t twh__lower_parts(const twh__lowering *lowering, int32_t reading)
{
  return lowering->values_parts + (reading == TWH__READ_BUCKET);
}

int64_t twh__lower_host_pairs(const twh__lowering *lowering, const twh__tile *tile)
{
  int64_t scored = tile->pads == TWH__PAD_MEAN;

  if (tile->reading == TWH__READ_BUCKET) scored += twh__ceil_div(tile->keys, lowering->v_dim);
  if (tile->reading == TWH__READ_ANCHOR || tile->reading == TWH__READ_ANCHOR_SHARE) scored += lowering->anchors;
  return tile->rows * scored;
}

/* A rectangle on a causal-only kernel that needs one slot only. */
static int lower_is_single(const twh__lowering *lowering, const twh__patch *patch)
{
  return patch->keys == 1 || patch->rows + patch->keys <= lowering->k_block + 1;
}

int64_t twh__lower_count(const twh__lowering *lowering, const twh__patch *patch)
{
  if (patch->shape != TWH_SHAPE_FULL || lowering->full_mode != TWH_MASK_CAUSAL) return 1;
  return lower_is_single(lowering, patch) ? 1 : 2;
}

static void lower_place_causal(const twh__lowering *lowering, const twh__patch *patch, int64_t number, twh__tile *tile)
{
  tile->mode = TWH_MASK_CAUSAL;
  tile->seen_step = 1;
  if (patch->shape == TWH_SHAPE_LOWER) {
    tile->seen = patch->seen;
  } else if (patch->rows + patch->keys <= lowering->k_block + 1) {
    tile->seen = patch->keys;
  } else if (number == 0) {
    tile->shape = patch->keys == 1 ? TWH_SHAPE_FULL : TWH_SHAPE_LOWER;
    tile->seen = 1;
  } else {
    tile->shape = TWH_SHAPE_UPPER;
    tile->reversed = 1;
    tile->rows = twh__min(patch->rows, patch->keys - 1);
    tile->seen = patch->keys - 1;
    tile->seen_step = -1;
  }
  tile->at = lowering->shift + tile->seen - 1;
  tile->at_step = tile->seen_step;
}

/* Short tiles: what stands in the positions behind the keys. */
static int32_t lower_pads(const twh__lowering *lowering, const twh__tile *tile)
{
  int64_t farthest = tile->seen + (tile->seen_step > 0 ? tile->rows - 1 : 0); /* of a causal slot */

  if (tile->keys == tile->slot_keys) return TWH__PAD_UNSEEN;
  if (tile->mode == TWH_MASK_TENSOR) return lowering->mask_value != 0 ? TWH__PAD_MASKED : TWH__PAD_UNSEEN;
  if (lowering->dead != 0) return TWH__PAD_DEAD;
  if (tile->mode == TWH_MASK_NONE) return TWH__PAD_MEAN;
  return farthest > tile->keys ? TWH__PAD_COPIES : TWH__PAD_UNSEEN;
}

void twh__lower_tile(const twh__lowering *lowering, const twh__patch *patch, int64_t number, twh__tile *tile)
{
  int64_t last;

  tile->level = twh__lower_count(lowering, patch) == 1;
  tile->ordinal = tile->level ? patch->block : 2 * patch->block + number;
  tile->row = patch->row;
  tile->rows = patch->rows;
  tile->key = patch->key;
  tile->keys = patch->keys;
  tile->shape = patch->shape;
  tile->reversed = 0;
  tile->mode = patch->shape == TWH_SHAPE_FULL ? lowering->full_mode : lowering->lower_mode;
  if (tile->mode == TWH_MASK_CAUSAL) {
    lower_place_causal(lowering, patch, number, tile);
  } else {
    tile->at = 0;
    tile->at_step = 1;
    tile->seen = patch->seen;
    tile->seen_step = patch->shape == TWH_SHAPE_LOWER;
  }
  last = twh__max(tile->at, tile->at + (tile->rows - 1) * tile->at_step) + 1;
  tile->slot_rows = lowering->q_len;
  if (lowering->q_len_min > 0) tile->slot_rows = twh__max(lowering->q_len_min, twh__round_up(last, lowering->q_len_step));
  tile->slot_keys = lowering->k_len;
  if (lowering->k_len_min > 0) tile->slot_keys = twh__max(lowering->k_len_min, twh__round_up(tile->keys, lowering->k_len_step));
  tile->pads = lower_pads(lowering, tile);
  tile->reading = tile->pads == TWH__PAD_COPIES ? lowering->share_reading : lowering->reading;
}
