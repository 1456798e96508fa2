/* The encoding half of a wave: which bytes each call reads.
 *
 * The host's own memory is used wherever nothing has to change: same dtype, same dimensions, natural order, whole blocks.
 * Everything else is looked up in the caches; a placement that finds its block missing encodes it, all missing ones at once. */
#include <string.h>

#include "core/run/run.h"

/* Which operand an id belongs to, in its low bits: blocks of different operands never share an id. */
enum { WAVE_Q, WAVE_K, WAVE_V, WAVE_BUCKETS, WAVE_MASK };

void twh__run_source(const twh__run *run, const twh__placement *place, twh__source *source)
{
  source->lowering = &run->plan->lowering;
  source->shape = &run->plan->shape;
  source->span = &run->plan->spans[place->tile.unit.span];
  source->q = &run->q;
  source->k = &run->k;
  source->v = &run->v;
  source->mask = run->has_mask ? &run->mask : NULL;
}

/* Use the host's rows as they are, if strides and alignment suit the kernel. Only `len` rows get an id: fewer of them at the
 * same address would be other bytes. */
static int wave_borrow(const twh__run *run, const twh__view *view, const char *data, int64_t row_stride, int64_t rows,
                       int64_t len, uint64_t kind, twh__operand *operand)
{
  const twh_oracle_desc *desc = &run->plan->oracle->desc;

  if (view->dtype != run->plan->lowering.dtype || (uintptr_t)data % (uintptr_t)desc->alignment != 0) return 0;
  if (rows > 1 && view->row_stride != row_stride * view->item) {
    if (!(desc->flags & TWH_ORACLE_STRIDED) || view->row_stride < 0) return 0;
    operand->block.row_bytes = view->row_stride;
  } else {
    operand->block.row_bytes = row_stride * view->item;
  }
  operand->block.data = data;
  operand->note = NULL;
  operand->id = rows == len ? ((uint64_t)(uintptr_t)data << 3 | kind) << 1 : 0;
  operand->encode = 0;
  return 1;
}

static int wave_cached(twh__run *run, twh__cache *cache, const twh__key *key, int64_t row_bytes, uint64_t kind,
                       twh__operand *operand)
{
  twh__found found;

  if (!twh__cache_get(cache, key, run->waves, &found)) return 0;
  operand->encode = !found.there;
  operand->to = found.block;
  operand->note = found.note;
  operand->id = (found.id << 3 | kind) << 1 | 1; /* odd: never a borrowed one */
  operand->block.data = found.block;
  operand->block.row_bytes = row_bytes;
  return 1;
}

static void wave_key(twh__key *key, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f)
{
  key->word[0] = a;
  key->word[1] = b;
  key->word[2] = c;
  key->word[3] = d;
  key->word[4] = e;
  key->word[5] = f;
}

static int wave_find_queries(twh__run *run, twh__placement *place)
{
  const twh__tile       *tile = &place->tile;
  const twh_oracle_desc *desc = &run->plan->oracle->desc;
  const twh__span       *span = &run->plan->spans[tile->unit.span];
  twh__key               key;
  int64_t                head, row, last_head, last_row;

  twh__unit_row(&tile->unit, span, tile->row, &head, &row);
  twh__unit_row(&tile->unit, span, tile->row + tile->rows - 1, &last_head, &last_row);
  if (run->plan->lowering.q_factor == 1 && desc->qk_dim == run->plan->shape.qk_dim && tile->at == 0 && tile->at_step == 1 &&
      tile->rows == tile->slot_rows && head == last_head &&
      wave_borrow(run, &run->q, twh__view_row(&run->q, span->batch, head, row), desc->q_row_stride, tile->rows, desc->q_len,
                  WAVE_Q, &place->q)) {
    return 1;
  }
  wave_key(&key, tile->unit_index, tile->row, tile->rows, tile->at, tile->at_step, tile->slot_rows);
  return wave_cached(run, &run->work.q, &key, desc->q_row_stride * twh__dtype_bytes(desc->dtype), WAVE_Q, &place->q);
}

static int wave_find_keys(twh__run *run, twh__placement *place)
{
  const twh__tile       *tile = &place->tile;
  const twh_oracle_desc *desc = &run->plan->oracle->desc;
  const twh__span       *span = &run->plan->spans[tile->unit.span];
  twh__key               key;

  if (desc->qk_dim == run->plan->shape.qk_dim && !tile->reversed && tile->keys == tile->slot_keys &&
      wave_borrow(run, &run->k, twh__view_row(&run->k, span->batch, tile->unit.kv_head, span->k_begin + tile->key),
                  desc->k_row_stride, tile->keys, desc->k_len, WAVE_K, &place->k)) {
    return 1;
  }
  wave_key(&key, tile->unit.span, tile->unit.kv_head, tile->key, tile->keys, tile->pads * 2 + tile->reversed, tile->slot_keys);
  return wave_cached(run, &run->work.k, &key, desc->k_row_stride * twh__dtype_bytes(desc->dtype), WAVE_K, &place->k);
}

static int wave_find_values(twh__run *run, twh__placement *place)
{
  const twh__tile       *tile = &place->tile;
  const twh_oracle_desc *desc = &run->plan->oracle->desc;
  const twh__span       *span = &run->plan->spans[tile->unit.span];
  int                    plain = tile->reading == TWH__READ_LSE || tile->reading == TWH__READ_BUCKET;
  twh__key               key;

  if (plain && desc->v_dim == run->plan->shape.v_dim && !tile->reversed && tile->keys == tile->slot_keys &&
      wave_borrow(run, &run->v, twh__view_row(&run->v, span->batch, tile->unit.kv_head, span->k_begin + tile->key),
                  desc->v_row_stride, tile->keys, desc->k_len, WAVE_V, &place->v)) {
    return 1;
  }
  wave_key(&key, tile->unit.span, tile->unit.kv_head, tile->key, tile->keys,
           (tile->pads * 2 + tile->reversed) * TWH__READINGS + tile->reading, tile->slot_keys);
  return wave_cached(run, &run->work.v, &key, desc->v_row_stride * twh__dtype_bytes(desc->dtype), WAVE_V, &place->v);
}

static int wave_find_buckets(twh__run *run, twh__placement *place)
{
  const twh__tile       *tile = &place->tile;
  const twh_oracle_desc *desc = &run->plan->oracle->desc;
  twh__key               key;

  wave_key(&key, tile->keys, tile->slot_keys, tile->pads, 0, 0, 0);
  return wave_cached(run, &run->work.buckets, &key, desc->v_row_stride * twh__dtype_bytes(desc->dtype), WAVE_BUCKETS,
                     &place->buckets);
}

static int wave_find_mask(twh__run *run, twh__placement *place)
{
  const twh__tile *tile = &place->tile;
  twh__key         key;
  int64_t          item = twh__dtype_bytes(run->plan->lowering.mask_dtype);

  memset(&place->mask, 0, sizeof place->mask);
  if (tile->mode != TWH_MASK_TENSOR) return 1;
  if (run->has_mask) {
    wave_key(&key, tile->unit_index, tile->key, tile->row, tile->seen, tile->keys, tile->slot_rows);
  } else {
    wave_key(&key, -1, tile->seen * 2 + tile->seen_step, tile->rows, tile->keys, tile->slot_keys, tile->slot_rows);
  }
  return wave_cached(run, &run->work.mask, &key, tile->slot_keys * item, WAVE_MASK, &place->mask);
}

static void wave_encode_task(void *arg, int64_t i)
{
  twh__run            *run = (twh__run *)arg;
  twh__bundle         *bundle = twh__run_bundle(run, i / run->plan->lowering.slots);
  twh__placement      *place = &bundle->places[i % run->plan->lowering.slots];
  const twh__lowering *lowering = &run->plan->lowering;
  twh__source          source;

  if (i % lowering->slots >= bundle->filled) return;
  twh__run_source(run, place, &source);
  if (place->q.encode) twh__encode_queries(place->q.to, place->q.block.row_bytes, &source, &place->tile);
  if (place->k.encode) twh__encode_keys(place->k.to, place->k.block.row_bytes, &source, &place->tile);
  if (place->v.encode) {
    *place->v.note =
      twh__encode_values(place->v.to, place->v.block.row_bytes, run->plan->layout.v_slice_bytes, &source, &place->tile);
  }
  if (place->buckets.encode) twh__encode_buckets(place->buckets.to, place->buckets.block.row_bytes, lowering, &place->tile);
  if (place->mask.encode) {
    twh__encode_mask(place->mask.to, place->mask.block.row_bytes, run->plan->layout.mask_any, &source, &place->tile);
  }
  place->q.encode = place->k.encode = place->v.encode = place->buckets.encode = place->mask.encode = 0;
}

twh_status twh__wave_encode(twh__run *run, twh_error *error)
{
  int found = 1;

  for (int64_t b = 0; b < run->wave_bundles; ++b) {
    twh__bundle *bundle = twh__run_bundle(run, b);
    for (int64_t s = 0; s < bundle->filled; ++s) {
      twh__placement *place = &bundle->places[s];
      found = found && wave_find_queries(run, place) && wave_find_keys(run, place) && wave_find_values(run, place) &&
              wave_find_mask(run, place);
      memset(&place->buckets, 0, sizeof place->buckets);
      if (place->tile.reading == TWH__READ_BUCKET) found = found && wave_find_buckets(run, place);
      if (!found) return twh__fail(error, TWH_E_MEMORY, "workspace: no place for an encoded block (a defect of the library)");
      run->stats.encoded_blocks += place->k.encode + place->v.encode;
    }
  }
  twh__parallel_for(run->plan->context, run->wave_bundles * run->plan->lowering.slots, wave_encode_task, run);
  return TWH_OK;
}

twh_status twh__wave_encode_repairs(twh__run *run, twh_error *error)
{
  for (int64_t b = 0; b < run->wave_bundles; ++b) {
    twh__bundle *bundle = twh__run_bundle(run, b);
    if (!bundle->repair) continue;
    for (int64_t s = 0; s < bundle->filled; ++s) {
      if (!wave_find_buckets(run, &bundle->places[s])) {
        return twh__fail(error, TWH_E_MEMORY, "workspace: no place for an encoded block (a defect of the library)");
      }
    }
  }
  twh__parallel_for(run->plan->context, run->wave_bundles * run->plan->lowering.slots, wave_encode_task, run);
  return TWH_OK;
}
