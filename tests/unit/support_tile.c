/* Tiles: operands in any layout, and the contract's formula written down once more, as plainly as it goes. */
#include "support_tile.h"

typedef struct tile_place {
  int64_t slots, rows, dim, slot_stride, row_stride;
  int32_t dtype;
} tile_place;

static int64_t tile_index(const tile_place *place, int64_t s, int64_t r, int64_t c)
{
  return s * place->slot_stride + r * place->row_stride + c;
}

/* Memory for all elements, poisoned; *first receives the address of element (0, 0, 0). */
static void *tile_allocate(const tile_place *place, void **first, size_t *bytes)
{
  int64_t slot_span = (place->slots - 1) * place->slot_stride, row_span = (place->rows - 1) * place->row_stride;
  int64_t low = (slot_span < 0 ? slot_span : 0) + (row_span < 0 ? row_span : 0);
  int64_t high = (slot_span > 0 ? slot_span : 0) + (row_span > 0 ? row_span : 0) + place->dim;
  void   *memory;
  *bytes = (size_t)((high - low) * support_bytes(place->dtype));
  memory = malloc(*bytes);
  assert_non_null(memory);
  memset(memory, SUPPORT_POISON, *bytes);
  *first = (char *)memory - low * support_bytes(place->dtype);
  return memory;
}

static void tile_operand(support_tile *tile, int which, twh_operand *operand, const tile_place *place, double size,
                         support_random *random)
{
  void   *first;
  size_t  bytes;
  int64_t s, r, c;
  tile->memory[which] = tile_allocate(place, &first, &bytes);
  for (s = 0; s < place->slots; ++s)
    for (r = 0; r < place->rows; ++r)
      for (c = 0; c < place->dim; ++c)
        support_store(first, place->dtype, tile_index(place, s, r, c), size * support_normal(random));
  operand->data = first;
  operand->slot_stride = place->slot_stride;
  operand->row_stride = place->row_stride;
}

static tile_place tile_layout(int32_t layout, int64_t slots, int64_t rows, int64_t dim, int64_t slot_stride, int64_t row_stride,
                              int32_t dtype)
{
  tile_place place = { 0, 0, 0, 0, 0, 0 };
  place.slots = slots;
  place.rows = rows;
  place.dim = dim;
  place.dtype = dtype;
  place.slot_stride = layout == TILE_DECLARED ? slot_stride : rows * (dim + 3) + 5;
  place.row_stride = layout == TILE_DECLARED ? row_stride : dim + 3;
  return place;
}

static void tile_mask(support_tile *tile, const tile_shape *shape, support_random *random)
{
  const twh_call *call = &tile->call;
  int32_t         dtype = tile->desc.mask_dtype;
  double          hide = tile->desc.mask_value != 0.0 ? tile->desc.mask_value : -INFINITY;
  tile_place      place;
  int64_t         s, i, j;
  void           *first;
  place = tile_layout(shape->layout, call->slots, call->q_len, call->k_len, call->q_len * call->k_len, call->k_len, dtype);
  if (shape->layout >= TILE_REVERSED) place.row_stride = 0;
  tile_operand(tile, 3, &tile->call.mask, &place, 1.0, random);
  first = (void *)(uintptr_t)tile->call.mask.data;
  for (s = 0; s < place.slots; ++s)
    for (i = 0; i < place.rows; ++i)
      for (j = 0; j < place.dim; ++j) {
        int hidden = shape->hidden >= 1.0 ? (i + s) % 2 == 0 : support_uniform(random) < shape->hidden;
        if (dtype == TWH_BOOL) support_store(first, dtype, tile_index(&place, s, i, j), hidden ? 0.0 : 1.0);
        else if (hidden) support_store(first, dtype, tile_index(&place, s, i, j), hide);
      }
}

void tile_create(support_tile *tile, const twh_oracle *oracle, const tile_shape *shape, support_random *random)
{
  twh_oracle_desc *desc = &tile->desc;
  twh_call        *call = &tile->call;
  double           scale, unit;
  tile_place       place;
  memset(tile, 0, sizeof *tile);
  twh_oracle_desc_init(desc);
  assert_int_equal(twh_oracle_get_desc(oracle, desc, NULL), TWH_OK);
  twh_call_init(call);
  call->mask_mode = shape->mask_mode;
  call->slots = shape->slots ? shape->slots : desc->slots;
  call->q_len = shape->q_len ? shape->q_len : desc->q_len;
  call->k_len = shape->k_len ? shape->k_len : desc->k_len;
  call->scale = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? -0.3 : desc->scale;
  scale = fabs(call->scale);
  unit = sqrt(shape->logit_std / (scale * sqrt((double)desc->qk_dim)));

  place = tile_layout(shape->layout, call->slots, call->q_len, desc->qk_dim, desc->q_slot_stride, desc->q_row_stride,
                      desc->dtype);
  if (shape->layout == TILE_REVERSED) place.row_stride = -place.row_stride;
  if (shape->layout == TILE_OVERLAP) place.row_stride = 0;
  tile_operand(tile, 0, &call->q, &place, unit, random);
  place = tile_layout(shape->layout, call->slots, call->k_len, desc->qk_dim, desc->k_slot_stride, desc->k_row_stride,
                      desc->dtype);
  if (shape->layout == TILE_REVERSED) place.slot_stride = 0;
  if (shape->layout == TILE_OVERLAP) place.row_stride = 1;
  tile_operand(tile, 1, &call->k, &place, unit, random);
  place = tile_layout(shape->layout, call->slots, call->k_len, desc->v_dim, desc->v_slot_stride, desc->v_row_stride,
                      desc->dtype);
  if (shape->layout == TILE_REVERSED) place.row_stride = -desc->v_dim;
  if (shape->layout == TILE_OVERLAP) place.row_stride = -1;
  tile_operand(tile, 2, &call->v, &place, 1.0, random);
  if (shape->mask_mode == TWH_MASK_TENSOR) tile_mask(tile, shape, random);
  call->out_row_stride = shape->layout == TILE_DECLARED ? desc->out_row_stride : desc->v_dim + 2;
  call->out_slot_stride = shape->layout == TILE_DECLARED ? desc->out_slot_stride : call->q_len * call->out_row_stride + 3;
  call->lse_slot_stride = call->q_len + (shape->layout == TILE_DECLARED ? 0 : 4);
}

void tile_destroy(support_tile *tile)
{
  int i;
  for (i = 0; i < 4; ++i) free(tile->memory[i]);
}

static void tile_result_create(tile_result *result, const support_tile *tile)
{
  result->rows = tile->call.slots * tile->call.q_len;
  result->dim = tile->desc.v_dim;
  result->out = (double *)malloc((size_t)(result->rows * result->dim) * sizeof(double));
  result->lse = (double *)malloc((size_t)result->rows * sizeof(double));
  assert_true(result->out && result->lse);
}

void tile_result_destroy(tile_result *result)
{
  free(result->out);
  free(result->lse);
}

/* Take the elements out of what a kernel wrote, leaving poison; then nothing else may be left. */
static void tile_collect(double *to, const tile_place *place, void *first, const unsigned char *memory, size_t bytes)
{
  int64_t s, r, c, size = support_bytes(place->dtype);
  size_t  at;
  for (s = 0; s < place->slots; ++s)
    for (r = 0; r < place->rows; ++r)
      for (c = 0; c < place->dim; ++c) {
        *to++ = support_load(first, place->dtype, tile_index(place, s, r, c));
        memset((char *)first + tile_index(place, s, r, c) * size, SUPPORT_POISON, (size_t)size);
      }
  for (at = 0; at < bytes; ++at)
    if (memory[at] != SUPPORT_POISON) fail_msg("the kernel wrote outside its rows, at byte %zu of %zu", at, bytes);
}

void tile_run(tile_result *result, const support_tile *tile, const twh_oracle *oracle)
{
  twh_oracle_desc desc;
  twh_call        call = tile->call;
  const twh_call *calls = &call;
  tile_place      out, lse;
  void           *out_memory, *lse_memory, *first;
  size_t          out_bytes, lse_bytes;
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  tile_result_create(result, tile);
  out = tile_layout(TILE_DECLARED, call.slots, call.q_len, desc.v_dim, call.out_slot_stride, call.out_row_stride,
                    desc.out_dtype);
  out_memory = tile_allocate(&out, &call.out, &out_bytes);
  lse = tile_layout(TILE_DECLARED, call.slots, 1, call.q_len, call.lse_slot_stride, call.q_len, TWH_F32);
  lse_memory = tile_allocate(&lse, &first, &lse_bytes);
  if (desc.flags & TWH_ORACLE_LSE) call.lse = (float *)first;
  assert_int_equal(desc.run(desc.user, &calls, 1), 0);
  tile_collect(result->out, &out, call.out, (const unsigned char *)out_memory, out_bytes);
  tile_collect(result->lse, &lse, first, (const unsigned char *)lse_memory, lse_bytes);
  free(out_memory);
  free(lse_memory);
}

/* Logit of a pair; -INFINITY if it is hidden. */
static double tile_logit(const support_tile *tile, int64_t s, int64_t i, int64_t j)
{
  const twh_oracle_desc *desc = &tile->desc;
  const twh_call        *call = &tile->call;
  double                 dot = 0.0, x, mask;
  int64_t                c;
  if (call->mask_mode == TWH_MASK_CAUSAL && j > i + desc->causal_offset) return -INFINITY;
  for (c = 0; c < desc->qk_dim; ++c)
    dot += support_load(call->q.data, desc->dtype, s * call->q.slot_stride + i * call->q.row_stride + c) *
           support_load(call->k.data, desc->dtype, s * call->k.slot_stride + j * call->k.row_stride + c);
  x = dot * (desc->flags & TWH_ORACLE_SCALE_PER_CALL ? call->scale : desc->scale);
  if (desc->softcap > 0.0) x = desc->softcap * tanh(x / desc->softcap);
  if (desc->flags & TWH_ORACLE_F16_SCORES) x = support_round(x, TWH_F16);
  if (call->mask_mode != TWH_MASK_TENSOR) return x;
  mask = support_load(call->mask.data, desc->mask_dtype, s * call->mask.slot_stride + i * call->mask.row_stride + j);
  if (desc->mask_dtype == TWH_BOOL) return mask != 0.0 ? x : -INFINITY;
  return x + mask;
}

static void tile_truth_row(const support_tile *tile, int64_t s, int64_t i, double *logits, double *out, double *lse)
{
  const twh_oracle_desc *desc = &tile->desc;
  const twh_call        *call = &tile->call;
  double                 most = -INFINITY, sum = 0.0, v;
  int64_t                j, c;
  for (j = 0; j < call->k_len; ++j) {
    logits[j] = tile_logit(tile, s, i, j);
    if (logits[j] > most) most = logits[j];
  }
  for (c = 0; c < desc->v_dim; ++c) out[c] = 0.0;
  *lse = desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? INFINITY : -INFINITY;
  if (most == -INFINITY) return;
  for (j = 0; j < call->k_len; ++j) sum += exp(logits[j] - most);
  for (c = 0; c < desc->v_dim; ++c) {
    for (j = 0; j < call->k_len; ++j) {
      v = support_load(call->v.data, desc->dtype, s * call->v.slot_stride + j * call->v.row_stride + c);
      out[c] += exp(logits[j] - most) / sum * v;
    }
  }
  *lse = most + log(sum);
  if (desc->flags & TWH_ORACLE_LSE_BASE2) *lse /= log(2.0);
}

void tile_truth(tile_result *result, const support_tile *tile)
{
  double *logits = (double *)malloc((size_t)tile->call.k_len * sizeof(double));
  int64_t s, i, row = 0;
  assert_non_null(logits);
  tile_result_create(result, tile);
  for (s = 0; s < tile->call.slots; ++s)
    for (i = 0; i < tile->call.q_len; ++i, ++row)
      tile_truth_row(tile, s, i, logits, result->out + row * result->dim, &result->lse[row]);
  free(logits);
}

double tile_largest_score(const support_tile *tile)
{
  const twh_oracle_desc *desc = &tile->desc;
  const twh_call        *call = &tile->call;
  double                 largest = 0.0, terms;
  int64_t                s, i, j, c;
  for (s = 0; s < call->slots; ++s)
    for (i = 0; i < call->q_len; ++i)
      for (j = 0; j < call->k_len; ++j) {
        if (tile_logit(tile, s, i, j) == -INFINITY) continue;
        for (terms = 0.0, c = 0; c < desc->qk_dim; ++c)
          terms += fabs(support_load(call->q.data, desc->dtype, s * call->q.slot_stride + i * call->q.row_stride + c) *
                        support_load(call->k.data, desc->dtype, s * call->k.slot_stride + j * call->k.row_stride + c));
        terms *= fabs(desc->flags & TWH_ORACLE_SCALE_PER_CALL ? call->scale : desc->scale);
        if (terms > largest) largest = terms;
      }
  return largest;
}

static double tile_error(const double *got, const double *want, int64_t n)
{
  double  worst = 0.0, difference;
  int64_t i;
  for (i = 0; i < n; ++i) {
    if (got[i] == want[i]) continue;
    difference = fabs(got[i] - want[i]);
    if (!(difference <= DBL_MAX)) return INFINITY;
    if (difference > worst) worst = difference;
  }
  return worst;
}

double tile_out_error(const tile_result *got, const tile_result *want)
{
  return tile_error(got->out, want->out, want->rows * want->dim);
}

double tile_lse_error(const tile_result *got, const tile_result *want)
{
  return tile_error(got->lse, want->lse, want->rows);
}
