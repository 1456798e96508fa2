/* Patterns, spans and covers by example: what small patterns are split into, and where the patches of one unit lie. That they
 * cover what they should is tested on random ones in test_cover.c. */
#include "support.h"

#include "core/pattern/pattern.h"

static int32_t examples_split(uint32_t flags, int64_t left, int64_t right, int64_t sinks, twh_sequence sequence, int64_t group,
                              twh__span *spans)
{
  twh_pattern pattern, read;
  twh_pattern_init(&pattern);
  pattern.flags = flags;
  pattern.left = left;
  pattern.right = right;
  pattern.sink_tokens = sinks;
  assert_int_equal(twh__pattern_read(&read, &pattern, NULL), TWH_OK);
  return twh__span_split(&sequence, 0, 0, &read, group, spans);
}

static void assert_span(const twh__span *span, int32_t kind, int64_t q_len, int64_t k_len, int64_t sinks)
{
  assert_int_equal(span->kind, kind);
  assert_int_equal(span->q_len, q_len);
  assert_int_equal(span->k_len, k_len);
  assert_int_equal(span->sinks, sinks);
}

static void patterns_split_into_the_spans_they_are_made_of(void **state)
{
  const twh_sequence square = { 0, 20, 0, 20, 0, 0 }, early = { 0, 20, 0, 20, -3, 0 }, step = { 0, 1, 0, 20, 19, 0 },
                     shard = { 0, 40, 0, 10, 0, 20 };
  twh__span spans[TWH__MOST_SPANS];
  (void)state;
  assert_int_equal(examples_split(TWH_CAUSAL, 0, 0, 0, square, 1, spans), 1);
  assert_span(&spans[0], TWH__SPAN_CAUSAL, 20, 20, 0);
  assert_int_equal(examples_split(TWH_CAUSAL, 0, 0, 0, early, 1, spans), 2);
  assert_span(&spans[0], TWH__SPAN_FULL, 3, 0, 0);
  assert_span(&spans[1], TWH__SPAN_CAUSAL, 17, 17, 0);
  assert_int_equal(examples_split(TWH_CAUSAL | TWH_LEFT, 3, 0, 2, square, 1, spans), 2);
  assert_span(&spans[0], TWH__SPAN_CAUSAL, 5, 5, 0); /* their windows begin among the sinks or before key 0 */
  assert_span(&spans[1], TWH__SPAN_WINDOW, 15, 18, 2);
  assert_int_equal(spans[1].width, 4);
  assert_int_equal(spans[1].sink_key, -2);
  assert_int_equal(examples_split(TWH_LEFT | TWH_RIGHT, 3, 2, 0, square, 1, spans), 2);
  assert_span(&spans[0], TWH__SPAN_CAUSAL, 3, 5, 0);
  assert_span(&spans[1], TWH__SPAN_WINDOW, 17, 20, 0);
  assert_int_equal(examples_split(TWH_LEFT, 3, 0, 0, square, 1, spans), 1);
  assert_span(&spans[0], TWH__SPAN_CAUSAL, 20, 20, 0);
  assert_true(spans[0].mirrored);
  assert_int_equal(examples_split(TWH_RIGHT, 0, 2, 0, square, 4, spans), 1);
  assert_span(&spans[0], TWH__SPAN_CAUSAL, 20, 20, 0);
  assert_int_equal(examples_split(TWH_LEFT, 30, 0, 0, square, 2, spans), 1);
  assert_span(&spans[0], TWH__SPAN_FULL, 20, 20, 0);
  assert_true(spans[0].stacked);
  assert_int_equal(examples_split(TWH_CAUSAL | TWH_LEFT, 5, 0, 0, step, 4, spans), 1);
  assert_span(&spans[0], TWH__SPAN_FULL, 1, 6, 0);
  assert_int_equal(spans[0].k_begin, 14);
  assert_int_equal(examples_split(TWH_CAUSAL | TWH_LEFT, 5, 0, 4, step, 1, spans), 1);
  assert_span(&spans[0], TWH__SPAN_WINDOW, 1, 6, 4);
  assert_int_equal(examples_split(TWH_CAUSAL | TWH_LEFT, 5, 0, 4, step, 4, spans), 1);
  assert_span(&spans[0], TWH__SPAN_FULL, 1, 6, 4);
  assert_true(spans[0].stacked);
  assert_int_equal(examples_split(TWH_CAUSAL | TWH_LEFT, 5, 0, 22, shard, 1, spans), 4);
  assert_span(&spans[0], TWH__SPAN_FULL, 20, 0, 0);
  assert_span(&spans[1], TWH__SPAN_CAUSAL, 7, 7, 0);
  assert_span(&spans[2], TWH__SPAN_WINDOW, 8, 8, 2);
  assert_span(&spans[3], TWH__SPAN_FULL, 5, 2, 0);
}

static void assert_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, int32_t shape,
                         const int64_t expected[6])
{
  twh__patch patch;
  int64_t    from, until;
  assert_int_equal(twh__cover_patch(span, unit, grid, index, &patch), 1);
  assert_int_equal(patch.shape, shape);
  assert_int_equal(patch.row, expected[0]);
  assert_int_equal(patch.rows, expected[1]);
  assert_int_equal(patch.key + span->k_begin, expected[2]);
  assert_int_equal(patch.keys, expected[3]);
  from = twh__edge_at(&patch.from, patch.rows - 1, patch.keys);
  until = twh__edge_at(&patch.seen, patch.rows - 1, patch.keys);
  assert_int_equal(from, expected[4]);
  assert_int_equal(until, expected[5]);
}

/* Width 4 in chunks of 6: rows 12 .. 17 see keys 9 .. 17. */
static void a_chunk_wider_than_the_window_is_cut(void **state)
{
  const twh_sequence sequence = { 0, 20, 0, 20, 0, 0 };
  const int64_t      own[] = { 0, 6, 12, 6, 2, 6 }, rest[] = { 4, 1, 13, 1, 0, 1 }, before[] = { 0, 3, 9, 3, 2, 3 };
  twh__grid          grid = { 8, 8, 6, 0, 0, 0, 0 };
  twh__span          spans[TWH__MOST_SPANS];
  twh__unit          unit;
  (void)state;
  assert_int_equal(examples_split(TWH_CAUSAL | TWH_LEFT, 3, 0, 0, sequence, 1, spans), 2);
  memset(&unit, 0, sizeof unit);
  assert_int_equal(twh__cover_units(&spans[1], 1, &grid), 4);
  twh__cover_unit(&spans[1], 1, &grid, 2, &unit);
  assert_int_equal(unit.first, 9);
  assert_int_equal(unit.rows, 6);
  assert_int_equal(twh__cover_patches(&spans[1], &unit, &grid), 3);
  assert_patch(&spans[1], &unit, &grid, 0, TWH_SHAPE_LOWER, own);
  assert_patch(&spans[1], &unit, &grid, 1, TWH_SHAPE_FULL, rest);
  assert_patch(&spans[1], &unit, &grid, 2, TWH_SHAPE_UPPER, before);
}

/* Width 20 in chunks of 4 and blocks of 8: an upper triangle, two rectangles before the chunk, and the chunk itself. */
static void a_wide_window_has_rectangles_between_its_triangles(void **state)
{
  const twh_sequence sequence = { 0, 64, 0, 64, 0, 0 };
  const int64_t      own[] = { 0, 4, 40, 4, 0, 4 }, before[] = { 0, 4, 21, 4, 3, 4 };
  const int64_t      first[] = { 0, 4, 25, 8, 0, 8 }, second[] = { 0, 4, 33, 7, 0, 7 };
  twh__grid          grid = { 8, 8, 4, 0, 0, 0, 0 };
  twh__span          spans[TWH__MOST_SPANS];
  twh__patch         patch;
  twh__unit          unit;
  (void)state;
  assert_int_equal(examples_split(TWH_CAUSAL | TWH_LEFT, 19, 0, 0, sequence, 1, spans), 2);
  memset(&unit, 0, sizeof unit);
  twh__cover_unit(&spans[1], 1, &grid, 6, &unit);
  assert_int_equal(unit.first, 21);
  assert_int_equal(twh__cover_patches(&spans[1], &unit, &grid), 5);
  assert_patch(&spans[1], &unit, &grid, 0, TWH_SHAPE_LOWER, own);
  assert_int_equal(twh__cover_patch(&spans[1], &unit, &grid, 1, &patch), 0);
  assert_patch(&spans[1], &unit, &grid, 2, TWH_SHAPE_UPPER, before);
  assert_patch(&spans[1], &unit, &grid, 3, TWH_SHAPE_FULL, first);
  assert_patch(&spans[1], &unit, &grid, 4, TWH_SHAPE_FULL, second);
  grid.k_block = 19; /* as long as the keys before a chunk */
  assert_int_equal(twh__cover_patches(&spans[1], &unit, &grid), 3);
}

static void what_has_no_effect_is_removed_from_a_pattern(void **state)
{
  twh_pattern pattern, read;
  (void)state;
  twh_pattern_init(&pattern);
  pattern.flags = TWH_CAUSAL | TWH_RIGHT;
  pattern.left = pattern.right = pattern.sink_tokens = 9;
  assert_int_equal(twh__pattern_read(&read, &pattern, NULL), TWH_OK);
  assert_int_equal(read.flags, TWH_CAUSAL);
  assert_true(read.left == 0 && read.right == 0 && read.sink_tokens == 0);
  pattern.flags = TWH_LEFT;
  assert_int_equal(twh__pattern_read(&read, &pattern, NULL), TWH_OK);
  assert_true(read.left == 9 && read.right == 0 && read.sink_tokens == 9);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(patterns_split_into_the_spans_they_are_made_of),
    cmocka_unit_test(a_chunk_wider_than_the_window_is_cut),
    cmocka_unit_test(a_wide_window_has_rectangles_between_its_triangles),
    cmocka_unit_test(what_has_no_effect_is_removed_from_a_pattern),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
