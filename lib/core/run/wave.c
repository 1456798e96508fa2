/* The encoding half of a wave: which bytes each call reads.
 *
 * The host's own memory is used wherever nothing has to change: same dtype, same dimensions, natural order, whole blocks.
 * Everything else is looked up in the caches; a placement that finds its block missing encodes it, all missing ones at once. */
#include <string.h>

#include "core/run/run.h"

/* Which operand an id belongs to, in its low bits: blocks of different operands, or that go the other way, never share an id. */
enum { WAVE_Q, WAVE_K, WAVE_V, WAVE_BUCKETS, WAVE_MASK, WAVE_BACKWARDS };

void twh__run_kernel_source(const twh__run *run, const twh__kernel *kernel, twh__source *source)
{
  source->lowering = &kernel->lowering;
  source->shape = twh__plan_kernel_shape(run->plan, kernel);
  source->centres = NULL;
  source->spans = run->plan->spans;
  source->q = &run->q;
  source->k = &run->k;
  source->v = &run->v;
  source->mask = run->has_mask ? &run->mask : NULL;
  source->key_bias = run->plan->shape.key_bias ? &run->key_bias : NULL;
  source->alibi = run->plan->shape.alibi ? &run->alibi : NULL;
}

void twh__run_source(const twh__run *run, const twh__bundle *bundle, twh__source *source)
{
  twh__run_kernel_source(run, twh__run_kernel(run, bundle), source);
}

void twh__run_parallel(const twh__run *run, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
  if (run->serial) {
    for (int64_t i = 0; i < n; ++i) task(arg, i);
  } else {
    twh__parallel_for(run->plan->context, n, task, arg);
  }
}

double *twh__run_centres(const twh__run *run, const twh__bundle *bundle, int64_t b, int64_t s)
{
  const twh__layout *layout = &run->plan->layout;

  if (twh__run_kernel(run, bundle)->lowering.power != 2) return NULL;
  return run->work.centres + (b * layout->slots + s) * layout->slot_tiles * TWH__CENTRE(run->plan->shape.v_dim);
}

twh__attention *twh__wave_attention(const twh__wave *wave, int64_t i, twh__bundle **bundle, int64_t *slot)
{
  *bundle = wave->bundles[i / wave->run->plan->layout.slots];
  *slot = i % wave->run->plan->layout.slots;
  return *slot < (*bundle)->filled ? &(*bundle)->slots[*slot] : NULL;
}

/* Rows of the host as a slot would have them, from `data` on; backwards: towards the tensor's beginning. */
typedef struct wave_rows {
  const twh__view *view;
  const char      *data;
  int64_t          rows;
  int              backwards;
} wave_rows;

/* Use the host's rows as they are, if strides and alignment suit the kernel. Only `len` rows get an id: fewer of them at the
 * same address would be other bytes. */
static int wave_borrow(const twh_oracle_desc *desc, const wave_rows *host, int64_t row_stride, int64_t len, uint64_t kind,
                       twh__operand *operand)
{
  int64_t stride = host->backwards ? -host->view->row_stride : host->view->row_stride;

  if (host->view->dtype != desc->dtype || (uintptr_t)host->data % (uintptr_t)desc->alignment != 0) return 0;
  if (host->rows == 1) stride = row_stride * host->view->item;
  if (stride != row_stride * host->view->item && !(desc->flags & TWH_ORACLE_STRIDED)) return 0;
  if (stride < 0 && !(desc->flags & TWH_ORACLE_BACKWARDS)) return 0;
  operand->block.row_bytes = stride;
  operand->block.data = host->data;
  operand->note = NULL;
  if (host->backwards) kind += WAVE_BACKWARDS;
  operand->id = host->rows == len ? ((uint64_t)(uintptr_t)host->data << 3 | kind) << 1 : 0;
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

/* Slots that hold several tiles, codes, sinks or drawn keys are made for one call only. */
static int wave_is_plain(const twh__attention *attention)
{
  const twh__tile *tile = &attention->tiles[0];
  return tile->alone && tile->cut == TWH__CUT_NONE && tile->lead == 0 && tile->sample.stratum == 0;
}

static void wave_unique_key(twh__run *run, twh__key *key)
{
  wave_key(key, -1, ++run->unique, 0, 0, 0, 0);
}

/* What distinguishes the forms of a key block, kernel included. */
static int64_t wave_form(const twh__attention *attention)
{
  const twh__tile *tile = &attention->tiles[0];
  int64_t          form = tile->pads * 2 + tile->reversed;
  return (form * TWH__READINGS + tile->reading) * TWH__MAX_KERNELS + tile->kernel;
}

/* Where a tile's rows lie if they fill the slot, in their order or the other way. */
static int wave_place_rows(const twh__run *run, const twh__tile *tile, const twh__span *span, wave_rows *rows)
{
  int64_t head, row, last_head, last_row;
  int     turned = tile->at_step < 0;

  if (tile->rows != tile->slot_rows || tile->at != (turned ? tile->rows - 1 : 0) ||
      (tile->at_step != 1 && tile->at_step != -1)) {
    return 0;
  }
  twh__unit_row(&tile->unit, span, turned ? tile->row + tile->rows - 1 : tile->row, &head, &row);
  twh__unit_row(&tile->unit, span, turned ? tile->row : tile->row + tile->rows - 1, &last_head, &last_row);
  rows->view = &run->q;
  rows->data = twh__view_row(&run->q, span->batch, head, row);
  rows->rows = tile->rows;
  rows->backwards = last_row < row;
  return head == last_head;
}

static int wave_find_queries(twh__run *run, const twh__kernel *kernel, twh__attention *attention)
{
  const twh__tile       *tile = &attention->tiles[0];
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  const twh__span       *span = &run->plan->spans[tile->unit.span];
  twh__key               key;
  wave_rows              rows;

  wave_unique_key(run, &key);
  if (wave_is_plain(attention)) {
    if (kernel->lowering.q_factor == 1 && desc->qk_dim == run->plan->shape.qk_dim && wave_place_rows(run, tile, span, &rows) &&
        wave_borrow(desc, &rows, desc->q_row_stride, desc->q_len, WAVE_Q, &attention->q)) {
      return 1;
    }
    /* under a mask operand rows carry no codes */
    wave_key(&key, tile->unit_index, tile->row, tile->rows, tile->at, tile->at_step,
             (tile->slot_rows * TWH__MAX_KERNELS + tile->kernel) * 2 + (attention->slot.isolation > 0));
  }
  return wave_cached(run, &run->work.q, &key, desc->q_row_stride * twh__dtype_bytes(desc->dtype), WAVE_Q, &attention->q);
}

/* Biases make a key block one of a query head. */
static int64_t wave_key_head(const twh__run *run, const twh__tile *tile)
{
  return run->plan->shape.key_bias || run->plan->shape.alibi ? tile->unit.q_head : tile->unit.kv_head;
}

/* Where a tile's keys lie in k or v if they fill the slot. */
static int wave_place_keys(const twh__run *run, const twh__tile *tile, const twh__view *view, wave_rows *rows)
{
  const twh__span *span = &run->plan->spans[tile->unit.span];
  int64_t first = twh__span_key(span, twh__tile_key(tile, 0)), last = twh__span_key(span, twh__tile_key(tile, tile->keys - 1));

  rows->view = view;
  rows->data = twh__view_row(view, span->batch, tile->unit.kv_head, first);
  rows->rows = tile->keys;
  rows->backwards = last < first;
  return tile->keys == tile->slot_keys;
}

static int wave_find_keys(twh__run *run, const twh__kernel *kernel, twh__attention *attention)
{
  const twh__tile       *tile = &attention->tiles[0];
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  wave_rows              rows;
  twh__key               key;

  wave_unique_key(run, &key);
  if (wave_is_plain(attention)) {
    if (desc->qk_dim == run->plan->shape.qk_dim && wave_place_keys(run, tile, &run->k, &rows) &&
        wave_borrow(desc, &rows, desc->k_row_stride, desc->k_len, WAVE_K, &attention->k)) {
      return 1;
    }
    wave_key(&key, tile->unit.span, wave_key_head(run, tile), tile->key, tile->keys, wave_form(attention), tile->slot_keys);
  }
  return wave_cached(run, &run->work.k, &key, desc->k_row_stride * twh__dtype_bytes(desc->dtype), WAVE_K, &attention->k);
}

static int wave_find_values(twh__run *run, const twh__kernel *kernel, twh__attention *attention)
{
  const twh__tile       *tile = &attention->tiles[0];
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  wave_rows              rows;
  int                    plain = tile->reading == TWH__READ_LSE || tile->reading == TWH__READ_BUCKET;
  twh__key               key;

  wave_unique_key(run, &key);
  if (wave_is_plain(attention)) {
    if (plain && desc->v_dim == run->plan->shape.v_dim && wave_place_keys(run, tile, &run->v, &rows) &&
        wave_borrow(desc, &rows, desc->v_row_stride, desc->k_len, WAVE_V, &attention->v)) {
      return 1;
    }
    /* the anchors' positions are part of the form: patches of one block may differ in them */
    wave_key(&key, tile->unit.span, tile->unit.kv_head, tile->key, tile->keys, wave_form(attention) * 2 + tile->anchor_last,
             tile->slot_keys * (kernel->lowering.k_len + 1) + tile->anchor_step);
  }
  return wave_cached(run, &run->work.v, &key, desc->v_row_stride * twh__dtype_bytes(desc->dtype), WAVE_V, &attention->v);
}

static int wave_find_buckets(twh__run *run, const twh__kernel *kernel, twh__attention *attention)
{
  const twh__tile       *tile = &attention->tiles[0];
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  twh__key               key;

  wave_unique_key(run, &key);
  if (wave_is_plain(attention)) wave_key(&key, tile->keys, tile->slot_keys, tile->pads, tile->kernel, 0, 0);
  return wave_cached(run, &run->work.buckets, &key, desc->v_row_stride * twh__dtype_bytes(desc->dtype), WAVE_BUCKETS,
                     &attention->buckets);
}

static int wave_find_mask(twh__run *run, const twh__kernel *kernel, twh__attention *attention)
{
  const twh__tile *tile = &attention->tiles[0];
  twh__key         key;

  memset(&attention->mask, 0, sizeof attention->mask);
  if (tile->mode != TWH_MASK_TENSOR) return 1;
  wave_unique_key(run, &key);
  if (wave_is_plain(attention) && !run->has_mask) { /* what it shows is a matter of its edges */
    wave_key(&key, -2 - tile->kernel, tile->rows << 32 | tile->slot_rows, tile->keys << 32 | tile->slot_keys, tile->from.start,
             tile->seen.start, tile->from.step * 4 + tile->seen.step);
  }
  return wave_cached(run, &run->work.mask, &key, tile->slot_keys * twh__dtype_bytes(kernel->lowering.mask_dtype), WAVE_MASK,
                     &attention->mask);
}

/* Whether the data of a slot's tiles could spoil its results: where tiles or cuts or pads that are seen hang on codes, and
 * where a bias may be more than f16 holds. */
static int wave_can_be_spoiled(const twh__lowering *lowering, const twh__attention *attention)
{
  const twh__tile *tile = &attention->tiles[0];

  if (attention->slot.count > 1 || attention->slot.cuts > 0) return 1;
  if (lowering->bias_parts > 0 && lowering->dtype == TWH_F16) return 1;
  return tile->pads == TWH__PAD_DEAD && (tile->mode != TWH_MASK_CAUSAL || tile->exposed);
}

/* Tiles that share their slot, or are cut by codes, must not spoil each other, nor pads them. */
static void wave_inspect(const twh__source *source, twh__attention *attention)
{
  if (!wave_can_be_spoiled(source->lowering, attention)) return;
  for (int64_t t = 0; t < attention->slot.count; ++t) {
    attention->tiles[t].host = twh__encode_spoils(source, &attention->tiles[t]);
  }
}

static void wave_encode_task(void *arg, int64_t i)
{
  const twh__wave  *wave = (const twh__wave *)arg;
  const twh__run   *run = wave->run;
  int64_t           s;
  twh__bundle      *bundle;
  twh__attention   *slot = twh__wave_attention(wave, i, &bundle, &s);
  const twh__sizes *sizes = &twh__run_kernel(run, bundle)->sizes;
  twh__source       source;

  if (!slot || twh__class_is_host(bundle->class_number)) return;
  twh__run_source(run, bundle, &source);
  if (!wave->repair) {
    source.centres = twh__run_centres(run, bundle, bundle->buffers, s);
    if (source.centres) twh__encode_centres(&source, &slot->slot);
    wave_inspect(&source, slot);
  }
  if (slot->q.encode) twh__encode_queries(slot->q.to, slot->q.block.row_bytes, &source, &slot->slot);
  if (slot->k.encode) twh__encode_keys(slot->k.to, slot->k.block.row_bytes, &source, &slot->slot);
  if (slot->v.encode) {
    *slot->v.note = twh__encode_values(slot->v.to, slot->v.block.row_bytes, sizes->v_slice_bytes, &source, &slot->slot);
  }
  if (slot->buckets.encode) twh__encode_buckets(slot->buckets.to, slot->buckets.block.row_bytes, &source, &slot->slot);
  if (slot->mask.encode) twh__encode_mask(slot->mask.to, slot->mask.block.row_bytes, sizes->mask_any, &source, &slot->slot);
  slot->q.encode = slot->k.encode = slot->v.encode = slot->buckets.encode = slot->mask.encode = 0;
}

/* Places for the blocks of all slots, in order; what is missing is encoded at once. */
twh_status twh__wave_encode(twh__wave *wave, twh_error *error)
{
  twh__run *run = wave->run;

  for (int64_t b = 0; b < wave->count; ++b) {
    twh__bundle       *bundle = wave->bundles[b];
    const twh__kernel *kernel = twh__run_kernel(run, bundle);
    if (twh__class_is_host(bundle->class_number)) continue;
    for (int64_t s = 0; s < bundle->filled; ++s) {
      twh__attention *slot = &bundle->slots[s];
      int             found = 1;
      if (!wave->repair) {
        memset(&slot->buckets, 0, sizeof slot->buckets);
        found = wave_find_queries(run, kernel, slot) && wave_find_keys(run, kernel, slot) &&
                wave_find_values(run, kernel, slot) && wave_find_mask(run, kernel, slot);
      }
      if (found && (wave->repair || twh__run_reading(run, bundle) == TWH__READ_BUCKET)) {
        found = wave_find_buckets(run, kernel, slot);
      }
      if (!found) return twh__fail(error, TWH_E_MEMORY, "workspace: no place for an encoded block (a defect of the library)");
      if (!wave->repair) run->stats.encoded_blocks += slot->k.encode + slot->v.encode;
    }
  }
  twh__run_parallel(run, wave->count * run->plan->layout.slots, wave_encode_task, wave);
  return TWH_OK;
}
