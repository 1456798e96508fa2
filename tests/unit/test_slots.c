/* Slots of several tiles: whatever they share, each is read as if it stood alone, and what a row does not see has no weight. */
#include "support_slot.h"

#include "core/state/state.h"

/* The logit of a row of a unit and a row of the key tensor, by the definition; -INFINITY if the mask hides it. */
static double slots_logit(const slot_case *made, const twh__tile *tile, int64_t r, int64_t key)
{
  const twh__span *span = &made->spans[tile->unit.span];
  int64_t          number = tile->unit.first + r, head = tile->unit.q_head + number / span->q_len, row = number % span->q_len;
  double           sum = 0;

  row = span->mirrored ? span->q_begin + span->q_len - 1 - row : span->q_begin + row;
  for (int64_t c = 0; c < SLOT_DIM; ++c) {
    sum += support_round((double)(float)((double)made->q_data[head][row][c] * made->lowering.q_factor), made->lowering.dtype) *
           support_round((double)made->k_data[tile->unit.kv_head][key][c], made->lowering.dtype);
  }
  sum *= made->lowering.kernel_scale;
  if (made->shape.key_bias) sum += (double)made->bias_data[head][key];
  if (made->shape.alibi) sum += (double)made->alibi_data[head] * (double)(key + span->k_origin - row - span->q_origin);
  return made->shape.mask_dtype != 0 ? sum + (double)made->mask_data[head][row][key] : sum;
}

/* By slot position, the row of the key tensor that a row of a tile sees there; -1 where it sees none. */
static void slots_visible(const slot_case *made, const twh__tile *tile, int64_t i, int64_t key[SLOT_ROWS])
{
  const twh__span *span = &made->spans[tile->unit.span];
  int64_t          first = tile->key_at + twh__tile_from(tile, i), last = tile->key_at + twh__tile_seen(tile, i);

  for (int64_t at = 0; at < SLOT_ROWS; ++at) {
    int64_t j = at - tile->key_at, number = tile->reversed ? tile->key + tile->keys - 1 - j : tile->key + j;
    if (at < tile->lead) number = span->sink_key + at;
    key[at] = span->mirrored ? span->k_begin + span->k_len - 1 - number : span->k_begin + number;
    if (!(at < tile->lead || (at >= first && at < last))) key[at] = -1;
    if (key[at] >= 0 && slots_logit(made, tile, tile->row + i, key[at]) == -INFINITY) key[at] = -1;
  }
}

/* One row of the merged state against the definition. */
static void slots_compare(const slot_case *made, const twh__tile *tile, int64_t i, const twh__state *node, const char *way)
{
  int64_t key[SLOT_ROWS], r = tile->row + i;
  double  most = -INFINITY, sum = 0, epsilon = support_epsilon(made->lowering.out_dtype), want, error = 0;

  if (made->poisoned && tile->host) {
    if (!made->shape.mask_dtype) assert_true(isnan(node->a[r]) && isnan(node->b[r * SLOT_V_DIM]));
    return;
  }
  slots_visible(made, tile, i, key);
  for (int64_t at = 0; at < SLOT_ROWS; ++at) {
    if (key[at] >= 0) most = fmax(most, slots_logit(made, tile, r, key[at]));
  }
  for (int64_t at = 0; at < SLOT_ROWS; ++at) {
    if (key[at] >= 0) sum += exp(slots_logit(made, tile, r, key[at]) - most);
  }
  if (sum == 0) {
    if (node->a[r] != 0) fail_msg("%s, %s: row %lld sees nothing, but is not neutral", made->text, way, (long long)r);
    return;
  }
  if (!(fabs(node->m[r] + log(node->a[r]) - most - log(sum)) <= 2 * epsilon + 1e-5)) {
    fail_msg("%s, %s: tile at %lld row %lld: lse %g, not %g", made->text, way, (long long)tile->key_at, (long long)i,
             node->m[r] + log(node->a[r]), most + log(sum));
  }
  for (int64_t c = 0; c < SLOT_V_DIM; ++c) {
    want = 0;
    for (int64_t at = 0; at < SLOT_ROWS; ++at) {
      if (key[at] < 0) continue;
      want += exp(slots_logit(made, tile, r, key[at]) - most) / sum *
              support_round((double)made->v_data[tile->unit.kv_head][key[at]][c], made->lowering.dtype);
    }
    error = fabs(node->b[r * SLOT_V_DIM + c] - want);
    if (!(error <= 4 * epsilon * (1 + fabs(want)) + 1e-5)) fail_msg("%s, %s: an output is off by %g", made->text, way, error);
  }
}

/* Merge a tile's leaf into a node of its unit: rows that it does not place stay neutral. */
static void slots_check(const slot_case *made, const twh__tile *tile, const twh__state *leaf, const char *way)
{
  double            m[20], a[20], b[20 * SLOT_V_DIM];
  twh__state        node;
  const twh__state *from[TWH__FAN] = { NULL, leaf, NULL, NULL };

  memset(&node, 0, sizeof node);
  node.m = m;
  node.a = a;
  node.b = b;
  twh__state_merge(&node, from, 0, tile->unit.rows, SLOT_V_DIM);
  for (int64_t r = 0; r < tile->unit.rows; ++r) {
    if (r >= tile->row && r < tile->row + tile->rows) {
      slots_compare(made, tile, r - tile->row, &node, way);
    } else if (a[r] != 0) {
      fail_msg("%s, %s: row %lld is no row of the tile", made->text, way, (long long)r);
    }
  }
}

static void slots_forget(const twh__tile *tile, twh__state *leaf)
{
  for (int64_t i = 0; i < tile->rows; ++i) leaf->m[tile->at + i * tile->at_step] = NAN;
}

/* Whether the first calls tell enough about every row: scores are small here. */
static int slots_must_be_read(const slot_case *made, const twh__tile *tile)
{
  return !tile->host && tile->pads != TWH__PAD_MEAN && made->shape.mask_dtype == 0 && made->lowering.flag_below < 1e-20;
}

/* Read one tile in every way that there is. */
static void slots_read(slot_case *made, int64_t t)
{
  const twh__tile *tile = &made->tiles[t];
  twh__tile        alone = *tile;
  double           m[SLOT_ROWS], a[SLOT_ROWS], factor[SLOT_ROWS];
  twh__state       leaf;
  twh__result      result;
  int64_t          part, flagged;

  memset(&leaf, 0, sizeof leaf);
  leaf.m = m;
  leaf.a = a;
  leaf.factor = factor;
  for (int64_t r = 0; r < SLOT_ROWS; ++r) m[r] = a[r] = factor[r] = -77;
  alone.mode = TWH__MODE_HOST;
  slot_result(made, t, &result);
  assert_int_equal(twh__decode_find_nan(&result, &part), -1);
  flagged = twh__decode(&result, &leaf);
  if (slots_must_be_read(made, tile)) assert_int_equal(flagged, 0);
  if (flagged > 0 && twh__decode_repair(&result, &leaf) > 0) twh__decode_host(&result, &made->source, &leaf);
  slots_check(made, tile, &leaf, "read");
  for (int64_t i = 0; i < tile->rows; ++i) m[tile->at + i * tile->at_step] = a[tile->at + i * tile->at_step] = -77;
  for (int64_t r = 0; r < SLOT_ROWS; ++r) assert_true(m[r] == -77 && a[r] == -77);
  if (!made->shape.mask_dtype) { /* rows without keys would look unread */
    slots_forget(tile, &leaf);
    if (twh__decode_repair(&result, &leaf) > 0) twh__decode_host(&result, &made->source, &leaf);
    slots_check(made, tile, &leaf, "buckets");
  }
  result.tile = &alone;
  result.slot = NULL;
  result.q.data = result.k.data = NULL;
  twh__decode_all_host(&result, &made->source, &leaf);
  slots_check(made, tile, &leaf, "host");
}

/* Whatever a row does not see has a weight of exactly 0. */
static void slots_check_weights(const slot_case *made, const twh__tile *tile)
{
  int64_t key[SLOT_ROWS];

  for (int64_t i = 0; i < tile->rows; ++i) {
    int64_t r = tile->at + i * tile->at_step, seen = 0;
    slots_visible(made, tile, i, key);
    for (int64_t at = 0; at < SLOT_ROWS; ++at) seen += key[at] >= 0;
    for (int64_t at = 0; at < (made->single ? tile->lead + tile->keys : SLOT_ROWS) && seen > 0; ++at) {
      if (key[at] < 0 && !(made->weights[r][at] == 0)) {
        fail_msg("%s: the row at %lld sees position %lld", made->text, (long long)r, (long long)at);
      }
    }
  }
}

static void slots_of_several_tiles_are_read_as_if_each_stood_alone(void **state)
{
  static slot_case made;

  (void)state;
  for (uint64_t number = 0; number < 1200; ++number) {
    slot_make(&made, number);
    slot_encode(&made);
    slot_compute(&made);
    for (int64_t t = 0; t < made.slot.count; ++t) {
      if (!made.tiles[t].host) slots_check_weights(&made, &made.tiles[t]);
      slots_read(&made, t);
    }
  }
}

static void slots_check_full(slot_case *made, int32_t mode, int32_t isolation, int32_t exposed)
{
  slot_make_full(made, mode, isolation, exposed);
  slot_encode(made);
  slot_compute(made);
  for (int64_t t = 0; t < made->slot.count; ++t) slots_check_weights(made, &made->tiles[t]);
}

static void codes_keep_as_many_tiles_apart_as_they_are_said_to(void **state)
{
  static slot_case made;

  (void)state;
  assert_int_equal(twh__code_capacity(TWH_MASK_NONE, 4, 1), 6);
  assert_int_equal(twh__code_capacity(TWH_MASK_CAUSAL, 4, 1), 15);
  assert_int_equal(twh__code_capacity(TWH_MASK_CAUSAL, 4, 0), 16);
  assert_int_equal(twh__code_capacity(TWH_MASK_NONE, 64, 1), 184756);
  for (int32_t isolation = 1; isolation <= 4; ++isolation) {
    slots_check_full(&made, TWH_MASK_NONE, isolation, 1);
    slots_check_full(&made, TWH_MASK_CAUSAL, isolation, 1);
    slots_check_full(&made, TWH_MASK_CAUSAL, isolation, 0);
  }
}

static int slots_spoils_with(slot_case *made, float *place, float value)
{
  float kept = *place;
  int   spoils;

  *place = value;
  spoils = twh__encode_spoils(&made->source, &made->tiles[0]);
  *place = kept;
  return spoils;
}

static void data_that_would_spoil_a_slot_is_found(void **state)
{
  static slot_case made;
  float           *places[3];

  (void)state;
  slot_make_full(&made, TWH_MASK_NONE, 1, 1);
  made.lowering.code_norm = 100;
  made.lowering.q_factor = 1;
  places[0] = &made.q_data[0][made.spans[0].q_begin][SLOT_DIM - 1];
  places[1] = &made.k_data[0][made.spans[0].k_begin][0];
  places[2] = &made.v_data[0][made.spans[0].k_begin][SLOT_V_DIM - 1];
  for (int i = 0; i < 3; ++i) {
    made.lowering.dtype = TWH_F16;
    assert_int_equal(slots_spoils_with(&made, places[i], 1), 0);
    assert_int_equal(slots_spoils_with(&made, places[i], NAN), 1);
    assert_int_equal(slots_spoils_with(&made, places[i], -INFINITY), 1);
    assert_int_equal(slots_spoils_with(&made, places[i], 65520), 1); /* rounds to infinity */
    assert_int_equal(slots_spoils_with(&made, places[i], 101), i < 2);
    made.tiles[0].mode = TWH_MASK_TENSOR; /* no codes: only what is not finite counts */
    assert_int_equal(slots_spoils_with(&made, places[i], 65519), 0);
    made.lowering.dtype = TWH_F32;
    assert_int_equal(slots_spoils_with(&made, places[i], 65520), 0);
    made.tiles[0].mode = TWH_MASK_NONE;
  }
  made.shape.key_bias = 1;
  made.lowering.bias_parts = 1;
  made.source.key_bias = &made.key_bias;
  assert_int_equal(slots_spoils_with(&made, &made.bias_data[0][made.spans[0].k_begin], 1), 0);
  assert_int_equal(slots_spoils_with(&made, &made.bias_data[0][made.spans[0].k_begin], 1e5f), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(slots_of_several_tiles_are_read_as_if_each_stood_alone),
    cmocka_unit_test(codes_keep_as_many_tiles_apart_as_they_are_said_to),
    cmocka_unit_test(data_that_would_spoil_a_slot_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
