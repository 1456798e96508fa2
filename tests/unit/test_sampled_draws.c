/* What sampled plans draw: pairs of keys as likely as they should be, strata their share, every unit its own draw, huge numbers
 * of keys, and numbers written down so that another machine or version must agree.
 *
 * Counts are compared with the binomial distribution, five standard deviations wide; seeds are fixed, so nothing is left to
 * luck. */
#include "support.h"

enum { DRAWS_KEYS = 64, DRAWS_TILES = 64, DRAWS_LENGTH = 8 };

typedef struct draws_setup {
  twh_problem      problem;
  twh_pattern      pattern;
  twh_oracle_desc  desc;
  twh_plan_options options;
} draws_setup;

/* Drawn tiles, in the order of the visit. */
typedef struct draws_list {
  int64_t tiles, most;
  int64_t row[DRAWS_TILES], head[DRAWS_TILES], sequence[DRAWS_TILES], begin[DRAWS_TILES], length[DRAWS_TILES];
  double  weight[DRAWS_TILES];
  int64_t keys[DRAWS_TILES][DRAWS_LENGTH];
} draws_list;

static void draws_init(draws_setup *s, int64_t rows, int64_t keys)
{
  memset(s, 0, sizeof *s);
  twh_pattern_init(&s->pattern);
  twh_problem_init(&s->problem);
  s->problem.batch = s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.q_len = rows;
  s->problem.k_len = keys;
  s->problem.qk_dim = s->problem.v_dim = 4;
  s->problem.pattern = &s->pattern;
  twh_oracle_desc_init(&s->desc);
  s->desc.slots = 1;
  s->desc.q_len = s->desc.k_len = DRAWS_LENGTH;
  s->desc.qk_dim = 4;
  s->desc.v_dim = 5;
  s->desc.dtype = TWH_F32;
  s->desc.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
  s->desc.scale = 0.5;
  twh_plan_options_init(&s->options);
  s->options.method = TWH_METHOD_SAMPLED;
}

static int32_t draws_gather(void *user, const twh_tile_info *tile)
{
  draws_list *list = (draws_list *)user;
  int64_t     j, n = list->tiles;
  if (!(tile->flags & TWH_TILE_DRAWN)) return 0;
  if (n == list->most) return 1;
  assert_true(tile->k_len <= DRAWS_LENGTH);
  list->row[n] = tile->q_begin;
  list->head[n] = tile->q_head;
  list->sequence[n] = tile->sequence;
  list->begin[n] = tile->k_begin;
  list->length[n] = tile->k_len;
  list->weight[n] = tile->log_weight;
  for (j = 0; j < tile->k_len; ++j) list->keys[n][j] = twh_tile_drawn_key(tile, j);
  ++list->tiles;
  return 0;
}

static void draws_list_of(draws_list *list, const draws_setup *s, int64_t most)
{
  twh_oracle *oracle = NULL;
  twh_plan   *plan = NULL;
  memset(list, 0, sizeof *list);
  list->most = most;
  assert_int_equal(twh_reference_oracle_create(NULL, &s->desc, NULL, &oracle, NULL), TWH_OK);
  assert_int_equal(twh_plan_create(NULL, &s->problem, &oracle, 1, &s->options, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_visit(plan, draws_gather, list, NULL), TWH_OK);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
}

static void draws_expect_count(double count, double trials, double probability, const char *what)
{
  double mean = trials * probability, deviation = sqrt(mean * (1 - probability));
  if (!(fabs(count - mean) <= 5 * deviation)) fail_msg("%s: %g of %g, expected %g +- %g", what, count, trials, mean, deviation);
}

/* Unbiased sums need each key to be as likely as any other; that errors can be estimated needs it of pairs of keys as well. */
static void pairs_of_keys_are_as_likely_as_any_others(void **state)
{
  static const int64_t lengths[] = { 17, 20, 32, 43 };
  static draws_list    list;
  int64_t              l, seed, t, i, j;
  (void)state;
  for (l = 0; l < SUPPORT_COUNT(lengths); ++l) {
    static double count[DRAWS_KEYS][DRAWS_KEYS], at[DRAWS_LENGTH][DRAWS_KEYS];
    double        trials = 0, n = (double)lengths[l], m = DRAWS_LENGTH;
    draws_setup   s;
    memset(count, 0, sizeof count);
    memset(at, 0, sizeof at);
    draws_init(&s, 8 * DRAWS_TILES, lengths[l]);
    for (seed = 0; seed < 150; ++seed) {
      s.options.seed = (uint64_t)seed << (seed % 50); /* seeds that differ in any bits */
      draws_list_of(&list, &s, DRAWS_TILES);
      assert_int_equal(list.tiles, DRAWS_TILES);
      for (t = 0; t < list.tiles; ++t, ++trials)
        for (i = 0; i < DRAWS_LENGTH; ++i) {
          ++at[i][list.keys[t][i]];
          for (j = 0; j < DRAWS_LENGTH; ++j) ++count[list.keys[t][i]][list.keys[t][j]];
        }
    }
    for (i = 0; i < lengths[l]; ++i)
      for (j = 0; j < lengths[l]; ++j)
        draws_expect_count(count[i][j], trials, i == j ? m / n : m * (m - 1) / (n * (n - 1)), "a pair of keys");
    for (i = 0; i < DRAWS_LENGTH; ++i)
      for (j = 0; j < lengths[l]; ++j) draws_expect_count(at[i][j], trials, 1 / n, "a key at a place of the draw");
  }
}

static void every_stratum_has_its_share(void **state)
{
  static const int64_t lengths[] = { 100, 128, 203 }, strata[] = { 2, 3, 5 };
  static draws_list    list;
  int64_t              l, k, t, j;
  (void)state;
  for (l = 0; l < SUPPORT_COUNT(lengths); ++l)
    for (k = 0; k < SUPPORT_COUNT(strata); ++k) {
      draws_setup s;
      int64_t     blocks[5] = { 0 }, each = strata[k] == 5 ? 1 : 2;
      draws_init(&s, DRAWS_LENGTH, lengths[l]);
      s.options.strata = strata[k];
      s.options.samples = each * strata[k];
      s.options.seed = 3;
      draws_list_of(&list, &s, DRAWS_TILES);
      assert_int_equal(list.tiles, s.options.samples);
      for (t = 0; t < list.tiles; ++t) {
        int64_t stratum = -1, own = lengths[l] / strata[k];
        for (j = 0; j < DRAWS_LENGTH; ++j) { /* parts of equal length, the longer ones first */
          int64_t longer = lengths[l] % strata[k], key = list.keys[t][j];
          int64_t in = key < longer * (own + 1) ? key / (own + 1) : longer + (key - longer * (own + 1)) / own;
          if (j == 0) {
            stratum = in;
            own += in < longer; /* keys of this stratum */
            support_assert_at_most(fabs(list.weight[t] - log((double)own / (double)(each * DRAWS_LENGTH))), 1e-14, "weight");
            own = lengths[l] / strata[k];
          }
          assert_int_equal(in, stratum);
        }
        ++blocks[stratum];
      }
      for (j = 0; j < strata[k]; ++j) assert_int_equal(blocks[j], each);
    }
}

/* Two draws of m of n keys share m^2 / n keys on average, whatever tells them apart. */
static void heads_units_sequences_strata_and_seeds_draw_on_their_own(void **state)
{
  static draws_list lists[8];
  int64_t           seed, a, b, i, j, pairs = 0, shared = 0;
  double            m = DRAWS_LENGTH, n = DRAWS_KEYS, mean = m * m / n, variance = mean * (1 - m / n) * (n - m) / (n - 1);
  (void)state;
  for (seed = 0; seed < 8; ++seed) {
    draws_setup s;
    draws_init(&s, 4 * DRAWS_LENGTH, 2 * DRAWS_KEYS);
    s.problem.batch = 2;
    s.problem.q_heads = s.problem.kv_heads = 3;
    s.options.strata = s.options.samples = 2;
    s.options.seed = (uint64_t)seed;
    draws_list_of(&lists[seed], &s, DRAWS_TILES);
    assert_int_equal(lists[seed].tiles, 2 * 3 * 4 * 2);
  }
  for (a = 0; a < 8 * 48; ++a)
    for (b = 0; b < a; ++b) {
      const int64_t *one = lists[a / 48].keys[a % 48], *other = lists[b / 48].keys[b % 48];
      int64_t        same = 0;
      for (i = 0; i < DRAWS_LENGTH; ++i)
        for (j = 0; j < DRAWS_LENGTH; ++j) same += one[i] % DRAWS_KEYS == other[j] % DRAWS_KEYS; /* places in their strata */
      assert_true(same < DRAWS_LENGTH);
      shared += same;
      ++pairs;
    }
  support_assert_at_most(fabs((double)shared - (double)pairs * mean), 5 * sqrt((double)pairs * variance), "shared keys");
}

/* A plan made a second time, or for a kernel of another dtype, with lse or with several slots, draws the same. */
static void draws_depend_on_the_seed_and_not_on_the_plan(void **state)
{
  static draws_list first, again;
  draws_setup       s;
  int64_t           i;
  (void)state;
  draws_init(&s, 100, 333);
  s.problem.q_heads = s.problem.kv_heads = 2;
  s.options.seed = 0xfedcba9876543210u;
  s.options.samples = 2;
  draws_list_of(&first, &s, DRAWS_TILES);
  assert_int_equal(first.tiles, 2 * 2 * 13);
  for (i = 0; i < 4; ++i) {
    if (i == 1) s.desc.dtype = TWH_BF16;
    if (i == 2) s.desc.flags = TWH_ORACLE_LSE;
    if (i == 3) s.desc.slots = 5;
    draws_list_of(&again, &s, DRAWS_TILES);
    assert_memory_equal(&first, &again, sizeof first);
  }
  s.options.seed ^= (uint64_t)1 << 63;
  draws_list_of(&again, &s, DRAWS_TILES);
  assert_memory_not_equal(first.keys, again.keys, sizeof first.keys);
}

/* More keys than an int32 counts: they are spread over all of them, and none comes twice. */
static void huge_numbers_of_keys_are_drawn_from(void **state)
{
  static const int64_t lengths[] = { (int64_t)3000000000, ((int64_t)1 << 40) + 1, (int64_t)1 << 50 };
  static draws_list    list;
  int64_t              l, t, i, j;
  (void)state;
  for (l = 0; l < SUPPORT_COUNT(lengths); ++l) {
    double      sum = 0, count = DRAWS_TILES * DRAWS_LENGTH;
    draws_setup s;
    draws_init(&s, DRAWS_TILES * DRAWS_LENGTH, lengths[l]);
    draws_list_of(&list, &s, DRAWS_TILES);
    assert_int_equal(list.tiles, DRAWS_TILES);
    for (t = 0; t < list.tiles; ++t)
      for (i = 0; i < DRAWS_LENGTH; ++i) {
        assert_true(list.keys[t][i] >= 0 && list.keys[t][i] < lengths[l]);
        sum += (double)list.keys[t][i] / (double)lengths[l] - 0.5;
        for (j = 0; j < i; ++j) assert_true(list.keys[t][i] != list.keys[t][j]);
      }
    support_assert_at_most(fabs(sum), 5 * sqrt(count / 12), "the middle of what is drawn");
  }
}

/* Written down: full, causal, and a hybrid whose keys have a gap, with strata; from a
 * second writing of the permutation, not from this one. */
static void draws_are_those_that_are_written_down(void **state)
{
  static const int64_t full[] = { 68, 466, 116, 817, 480, 79, 577, 232 }, causal[] = { 3, 18, 27, 14, 19, 10, 11, 9 },
                       hybrid[] = { 174, 145, 160, 128, 176, 187, 150, 163 };
  static draws_list list;
  draws_setup       s;
  (void)state;
  draws_init(&s, 16, 1001);
  s.options.seed = 7;
  draws_list_of(&list, &s, 1);
  assert_memory_equal(full, list.keys[0], sizeof full);
  draws_init(&s, 40, 40);
  s.pattern.flags = TWH_CAUSAL;
  s.options.seed = 7;
  draws_list_of(&list, &s, DRAWS_TILES);
  assert_int_equal(list.tiles, 3);
  assert_memory_equal(causal, list.keys[2], sizeof causal);
  draws_init(&s, 200, 200);
  s.options.method = TWH_METHOD_HYBRID;
  s.options.seed = 7;
  s.options.samples = s.options.strata = 2;
  s.options.exact_sinks = 9;
  s.options.exact_window = 5;
  draws_list_of(&list, &s, 30);
  assert_memory_equal(hybrid, list.keys[29], sizeof hybrid);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(pairs_of_keys_are_as_likely_as_any_others),
    cmocka_unit_test(every_stratum_has_its_share),
    cmocka_unit_test(heads_units_sequences_strata_and_seeds_draw_on_their_own),
    cmocka_unit_test(draws_depend_on_the_seed_and_not_on_the_plan),
    cmocka_unit_test(huge_numbers_of_keys_are_drawn_from),
    cmocka_unit_test(draws_are_those_that_are_written_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
