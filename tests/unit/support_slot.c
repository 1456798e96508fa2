/* Slots of several tiles, and a kernel for them. */
#include "support_slot.h"

void slot_view(twh__view *view, const void *data, int64_t head_stride, int64_t row_stride)
{
  memset(view, 0, sizeof *view);
  view->data = (const char *)data;
  view->head_stride = head_stride * (int64_t)sizeof(float);
  view->row_stride = row_stride * (int64_t)sizeof(float);
  view->dtype = TWH_F32;
  view->item = (int64_t)sizeof(float);
}

static void slot_fill(slot_case *made, float *data, int64_t n, double size)
{
  for (int64_t i = 0; i < n; ++i) data[i] = (float)(size * support_normal(&made->random));
}

static void slot_tensors(slot_case *made)
{
  support_random *random = &made->random;

  slot_view(&made->q, made->q_data, SLOT_HOST * SLOT_DIM, SLOT_DIM);
  slot_view(&made->k, made->k_data, SLOT_HOST * SLOT_DIM, SLOT_DIM);
  slot_view(&made->v, made->v_data, SLOT_HOST * SLOT_V_DIM, SLOT_V_DIM);
  slot_view(&made->mask, made->mask_data, SLOT_HOST * SLOT_HOST, SLOT_HOST);
  slot_view(&made->key_bias, made->bias_data, SLOT_HOST, 1);
  slot_view(&made->alibi, made->alibi_data, 1, 0);
  slot_fill(made, &made->q_data[0][0][0], SLOT_HEADS * SLOT_HOST * SLOT_DIM, 1.5);
  slot_fill(made, &made->k_data[0][0][0], 2 * SLOT_HOST * SLOT_DIM, 1.5);
  slot_fill(made, &made->v_data[0][0][0], 2 * SLOT_HOST * SLOT_V_DIM, 1);
  slot_fill(made, &made->mask_data[0][0][0], SLOT_HEADS * SLOT_HOST * SLOT_HOST, 1);
  slot_fill(made, &made->bias_data[0][0], SLOT_HEADS * SLOT_HOST, 2);
  slot_fill(made, made->alibi_data, SLOT_HEADS, 0.3);
  for (int64_t i = 0; i < SLOT_HEADS * SLOT_HOST * SLOT_HOST; ++i) {
    if (support_one_in(random, 3)) (&made->mask_data[0][0][0])[i] = -(float)INFINITY;
  }
  made->source.lowering = &made->lowering;
  made->source.shape = &made->shape;
  made->source.spans = made->spans;
  made->source.q = &made->q;
  made->source.k = &made->k;
  made->source.v = &made->v;
  made->source.mask = made->shape.mask_dtype != 0 ? &made->mask : NULL;
  made->source.key_bias = made->shape.key_bias ? &made->key_bias : NULL;
  made->source.alibi = made->shape.alibi ? &made->alibi : NULL;
}

static void slot_spans(slot_case *made)
{
  for (int s = 0; s < 2; ++s) {
    twh__span *span = &made->spans[s];
    span->q_begin = 3 + s;
    span->q_len = 40;
    span->k_begin = 5 - s;
    span->k_len = 38;
    span->q_origin = 7;
    span->k_origin = -2;
    span->sink_key = -3;
    span->sinks = 3;
    span->mirrored = s;
  }
}

static void slot_lowering(slot_case *made, int32_t mode)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  support_random      *random = &made->random;
  twh__lowering       *lowering = &made->lowering;

  lowering->dtype = dtypes[support_below(random, 3)];
  lowering->out_dtype = support_one_in(random, 2) ? TWH_F32 : lowering->dtype;
  lowering->kernel_scale = support_one_in(random, 2) ? 0.5 : -0.375;
  lowering->q_factor = support_one_in(random, 2) ? 1 : 0.75;
  lowering->power = 1;
  lowering->flag_below = lowering->dtype == TWH_F16 || lowering->out_dtype == TWH_F16 ? 0x1p-13 : 1e-30;
  lowering->v_dim = support_one_in(random, 3) ? 5 : support_one_in(random, 2) ? 4 : 2; /* leave 2, 1 and 1 columns */
  lowering->values_parts = lowering->v_dim == 2 ? 2 : 1;
  lowering->lse_base2 = support_one_in(random, 2);
  lowering->mask_dtype = TWH_F32;
  if (mode == TWH_MASK_CAUSAL) lowering->shift = support_below(random, 2);
  made->shape.qk_dim = SLOT_DIM;
  made->shape.v_dim = SLOT_V_DIM;
  made->shape.key_bias = support_one_in(random, 3);
  made->shape.alibi = support_one_in(random, 3);
  made->shape.mask_dtype = mode == TWH_MASK_TENSOR && support_one_in(random, 2) ? TWH_F32 : 0;
  if (made->shape.key_bias || made->shape.alibi) lowering->bias_parts = lowering->dtype == TWH_F32 ? 1 : 3;
}

/* Rows and keys of a tile of some kind that the mode allows; positions from `at` on. */
static void slot_place(slot_case *made, twh__tile *tile, int64_t at)
{
  support_random *random = &made->random;
  int64_t         size = support_between(random, 1, 2), steps = support_between(random, 2, 4), shift = made->lowering.shift;
  twh__edge       none = { 0, 0, 1, 1 };

  tile->key_at = at;
  tile->at = at;
  tile->at_step = 1;
  tile->rows = support_between(random, 1, 5);
  tile->keys = support_between(random, 1, 5);
  tile->from = tile->seen = none;
  tile->seen.start = tile->keys;
  tile->anchor_step = support_between(random, 1, tile->keys);
  tile->reversed = (int32_t)support_below(random, 2);
  if (made->single) {
    if (tile->mode == TWH_MASK_CAUSAL) tile->at = shift + at + tile->keys - 1; /* rows that see pads */
  } else if (tile->mode == TWH_MASK_TENSOR) { /* a band */
    tile->keys += support_below(random, 10);
    tile->rows = twh__min(tile->rows, tile->keys);
    tile->from.step = tile->seen.step = 1;
    tile->from.start = tile->keys - tile->rows; /* the last row sees the last key only */
    if (support_one_in(random, 2)) tile->from.start = support_below(random, tile->keys - tile->rows + 1);
    tile->anchor_step = support_between(random, 1, 3);
    tile->seen.start = tile->from.start + tile->anchor_step;
    tile->anchor_last = 1;
  } else if (tile->mode == TWH_MASK_NONE && support_one_in(random, 3)) { /* stairs */
    tile->cut = TWH__CUT_STAIR;
    tile->cuts = (int32_t)steps - 1;
    tile->keys = steps * size;
    tile->rows = steps * 2;
    tile->seen.start = tile->seen.quantum = 2;
    tile->seen.step = 1;
    tile->seen.unit = size;
  } else if (tile->mode == TWH_MASK_CAUSAL) {
    int kind = (int)support_below(random, 3);
    tile->at = shift + at + tile->keys - 1;
    if (kind == 0) { /* a rectangle whose rows see what follows */
      tile->exposed = tile->rows > 1;
    } else if (kind == 1) { /* the strict upper triangle, reversed */
      tile->reversed = 1;
      tile->keys += 1;
      tile->rows = twh__min(tile->rows, tile->keys - 1);
      tile->at = shift + at + tile->keys - 2;
      tile->at_step = tile->seen.step = -1;
      tile->seen.start = tile->keys - 1;
    } else { /* the lower one */
      tile->keys = tile->rows + support_below(random, 2);
      tile->seen.start = tile->seen.step = 1;
      tile->at = shift + at;
      tile->anchor_last = 1;
    }
  }
  if (!made->single && tile->mode != TWH_MASK_TENSOR && tile->cut == TWH__CUT_NONE && tile->seen.step == 0 &&
      tile->rows > 1 && tile->keys > 2 && support_one_in(random, 2)) { /* a corner of the rectangle */
    tile->cut = TWH__CUT_CORNER;
    tile->cuts = 1;
    tile->reversed = 0;
    tile->from.step = tile->anchor_step = 1;
    tile->from.quantum = (tile->rows + 1) / 2;
    tile->from.unit = support_between(random, 1, 2);
  }
}

static void slot_tile(slot_case *made, int64_t t, int32_t mode, int32_t reading, int64_t lead, int64_t at)
{
  support_random *random = &made->random;
  twh__tile      *tile = &made->tiles[t];
  int             biased = made->shape.key_bias || made->shape.alibi;

  tile->mode = mode;
  tile->reading = reading;
  tile->lead = lead;
  tile->slot_rows = tile->slot_keys = SLOT_ROWS;
  slot_place(made, tile, at);
  tile->unit.span = lead > 0 ? made->tiles[0].unit.span : support_below(random, 2);
  tile->unit.kv_head = lead > 0 ? 0 : support_below(random, 2);
  tile->unit.q_head = 2 * tile->unit.kv_head;
  tile->unit.rows = 20;
  tile->unit.first = biased ? 11 : 31; /* these go on in the next head */
  tile->row = support_below(random, tile->unit.rows - tile->rows + 1);
  tile->key = support_below(random, 38 - tile->keys + 1);
}

/* Codes that keep the tiles apart, or what else a kernel without spare coordinates can do with a short tile. */
static void slot_settle(slot_case *made, int32_t mode)
{
  twh__slot *slot = &made->slot;
  twh__tile *first = &made->tiles[0];

  slot->exposed |= mode == TWH_MASK_NONE;
  if (made->single) {
    first->pads = mode == TWH_MASK_NONE ? TWH__PAD_MEAN : mode == TWH_MASK_CAUSAL ? TWH__PAD_COPIES : TWH__PAD_MASKED;
    if (mode == TWH_MASK_TENSOR) made->lowering.mask_value = -0x1p14;
    if (mode == TWH_MASK_CAUSAL && first->reading == TWH__READ_LSE) first->reading = TWH__READ_LSE_SHARE;
    if (mode == TWH_MASK_CAUSAL && first->reading == TWH__READ_ANCHOR) {
      first->reading = made->lowering.v_dim == 5 ? TWH__READ_ANCHOR_SHARE : TWH__READ_BUCKET;
    }
  } else if (mode != TWH_MASK_TENSOR) {
    made->lowering.code = made->lowering.dtype == TWH_F16 ? 0x1p10 : 0x1p40;
    for (int64_t t = 0; t < slot->count; ++t) {
      slot->cuts = (int32_t)twh__max(slot->cuts, made->tiles[t].cuts);
      made->tiles[t].pads = TWH__PAD_DEAD;
    }
    slot->isolation = 1;
    while (twh__code_capacity(mode, slot->isolation, slot->exposed) < slot->count) ++slot->isolation;
  }
  made->lowering.qk_dim = SLOT_DIM + made->lowering.bias_parts + slot->cuts + slot->isolation;
}

/* Leave some tiles to the host. */
static void slot_spoil(slot_case *made, int64_t number)
{
  int64_t count = made->slot.count;

  if (count == 1 || support_one_in(&made->random, 2)) return;
  made->poisoned = made->tiles[0].lead == 0 && support_one_in(&made->random, 2);
  if (!made->poisoned) {
    int all = support_one_in(&made->random, 4);
    for (int64_t t = 0; t < count; ++t) made->tiles[t].host = all || t == number % count;
    return;
  }
  memset(made->q_data[2], SUPPORT_POISON, 2 * sizeof made->q_data[2]);
  memset(made->k_data[1], SUPPORT_POISON, sizeof made->k_data[1]);
  memset(made->v_data[1], SUPPORT_POISON, sizeof made->v_data[1]);
  for (int64_t t = 0; t < count; ++t) made->tiles[t].host = made->tiles[t].unit.kv_head == 1;
}

void slot_make(slot_case *made, uint64_t number)
{
  static const int32_t modes[] = { TWH_MASK_NONE, TWH_MASK_CAUSAL, TWH_MASK_TENSOR };
  static const int32_t readings[] = { TWH__READ_LSE, TWH__READ_ANCHOR, TWH__READ_BUCKET };
  int32_t              mode = modes[number % 3], reading;
  int64_t              at, count, lead = 0;

  memset(made, 0, sizeof *made);
  made->random = support_random_at(26, number);
  made->single = number / 3 % 4 == 0;
  slot_lowering(made, mode);
  slot_spans(made);
  slot_tensors(made);
  reading = readings[support_below(&made->random, 3)];
  count = made->single ? 1 : support_between(&made->random, 1, 6);
  if (!made->shape.alibi) lead = support_below(&made->random, 4);
  made->slot.tiles = made->tiles;
  at = lead;
  while (made->slot.count < count && at < SLOT_ROWS - 14) {
    twh__tile *tile = &made->tiles[made->slot.count];
    slot_tile(made, made->slot.count++, mode, reading, lead, at);
    made->slot.exposed |= tile->exposed;
    at = twh__max(tile->key_at + tile->keys, twh__max(tile->at, tile->at + (tile->rows - 1) * tile->at_step) + 1);
    at += support_below(&made->random, 2);
  }
  slot_settle(made, mode);
  slot_spoil(made, (int64_t)number);
  snprintf(made->text, sizeof made->text,
           "slot %llu: mode %d, reading %d, dtype %d to %d, scale %g, %lld tiles, lead %lld, %d cuts, %d isolation, bias %d %d, "
           "mask %d", (unsigned long long)number, (int)mode, (int)made->tiles[0].reading, (int)made->lowering.dtype,
           (int)made->lowering.out_dtype, made->lowering.kernel_scale, (long long)made->slot.count, (long long)lead,
           (int)made->slot.cuts, (int)made->slot.isolation, (int)made->shape.key_bias, (int)made->shape.alibi,
           (int)made->shape.mask_dtype);
}

void slot_encode(slot_case *made)
{
  memset(made->q_bytes, SUPPORT_POISON, sizeof made->q_bytes);
  memset(made->k_bytes, SUPPORT_POISON, sizeof made->k_bytes);
  memset(made->v_bytes, SUPPORT_POISON, sizeof made->v_bytes);
  twh__encode_queries(made->q_bytes[0], SLOT_BYTES, &made->source, &made->slot);
  twh__encode_keys(made->k_bytes[0], SLOT_BYTES, &made->source, &made->slot);
  made->lift = twh__encode_values(made->v_bytes[0][0], SLOT_BYTES, sizeof made->v_bytes[0], &made->source, &made->slot);
  twh__encode_buckets(made->v_bytes[made->lowering.values_parts][0], SLOT_BYTES, &made->source, &made->slot);
  if (made->tiles[0].mode == TWH_MASK_TENSOR) {
    twh__encode_mask(made->mask_bytes, SLOT_ROWS * 4, SLOT_ROWS * SLOT_ROWS * 4, &made->source, &made->slot);
  }
}

/* Weights of one row, scores in f32 as most kernels have them. */
static void slot_softmax(slot_case *made, int64_t r)
{
  const twh__lowering *lowering = &made->lowering;
  int32_t              mode = made->tiles[0].mode;
  double               score[SLOT_ROWS], most = -INFINITY, sum = 0;

  for (int64_t j = 0; j < SLOT_ROWS; ++j) {
    float dot = 0;
    for (int64_t c = 0; c < lowering->qk_dim; ++c) {
      dot += (float)support_load(made->q_bytes[r], lowering->dtype, c) *
             (float)support_load(made->k_bytes[j], lowering->dtype, c);
    }
    score[j] = (double)(float)(lowering->kernel_scale * (double)dot);
    if (mode == TWH_MASK_TENSOR) score[j] += support_load(made->mask_bytes, TWH_F32, r * SLOT_ROWS + j);
    if (mode == TWH_MASK_CAUSAL && j > r - lowering->shift) score[j] = -INFINITY;
    if (!(score[j] <= most)) most = score[j];
  }
  if (made->shape.mask_dtype == 0 && r >= lowering->shift) assert_true(most > -INFINITY); /* no row is empty */
  for (int64_t j = 0; j < SLOT_ROWS; ++j) {
    made->weights[r][j] = most == -INFINITY ? 0 : exp(score[j] - most);
    sum += made->weights[r][j];
  }
  for (int64_t j = 0; j < SLOT_ROWS && sum != 0; ++j) made->weights[r][j] /= sum;
  made->lse[r] = (float)((most + log(sum)) / (lowering->lse_base2 ? log(2) : 1));
}

void slot_compute(slot_case *made)
{
  const twh__lowering *lowering = &made->lowering;

  for (int64_t r = 0; r < SLOT_ROWS; ++r) {
    slot_softmax(made, r);
    for (int64_t s = 0; s <= lowering->values_parts; ++s) {
      for (int64_t c = 0; c < lowering->v_dim; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < SLOT_ROWS; ++j) {
          sum += made->weights[r][j] * support_load(made->v_bytes[s][j], lowering->dtype, c);
        }
        support_store(made->out[s][r], lowering->out_dtype, c, sum);
      }
    }
  }
}

void slot_result(slot_case *made, int64_t t, twh__result *result)
{
  memset(result, 0, sizeof *result);
  result->lowering = &made->lowering;
  result->shape = &made->shape;
  result->source = &made->source;
  result->slot = &made->slot;
  result->tile = &made->tiles[t];
  result->q.data = made->q_bytes[0];
  result->k.data = made->k_bytes[0];
  result->q.row_bytes = result->k.row_bytes = SLOT_BYTES;
  if (made->shape.mask_dtype != 0) {
    result->mask.data = made->mask_bytes;
    result->mask.row_bytes = SLOT_ROWS * 4;
    result->any = made->mask_bytes + SLOT_ROWS * SLOT_ROWS * 4;
  }
  result->lift = made->lift;
  result->out = made->out[0][0];
  result->buckets = made->out[made->lowering.values_parts][0];
  result->out_row_bytes = SLOT_BYTES;
  result->slice_bytes = sizeof made->out[0];
  result->lse = made->lse;
}

void slot_make_full(slot_case *made, int32_t mode, int32_t isolation, int32_t exposed)
{
  int64_t count = twh__code_capacity(mode, isolation, exposed);

  memset(made, 0, sizeof *made);
  made->random = support_random_at(27, 0);
  slot_spans(made);
  slot_lowering(made, TWH_MASK_NONE);
  memset(&made->shape, 0, sizeof made->shape);
  made->shape.qk_dim = SLOT_DIM;
  made->shape.v_dim = SLOT_V_DIM;
  made->lowering.bias_parts = 0;
  slot_tensors(made);
  made->slot.tiles = made->tiles;
  made->slot.count = count;
  made->slot.isolation = isolation;
  made->slot.exposed = exposed;
  made->lowering.code = 0x1p10;
  made->lowering.qk_dim = SLOT_DIM + isolation;
  assert_true(count <= SLOT_TILES);
  for (int64_t t = 0; t < count; ++t) {
    twh__tile *tile = &made->tiles[t];
    tile->mode = mode;
    tile->unit.rows = tile->rows = tile->keys = tile->at_step = tile->anchor_step = 1;
    tile->unit.first = t;
    tile->seen.start = tile->seen.quantum = tile->seen.unit = tile->from.quantum = 1;
    tile->key = t;
    tile->key_at = 2 * t;
    tile->at = 2 * t + exposed;
    tile->slot_rows = tile->slot_keys = SLOT_ROWS;
  }
}
