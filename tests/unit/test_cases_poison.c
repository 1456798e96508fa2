/* What keys and values hold that a row does not see never reaches the row: numbers that are not finite outside every window,
 * and inside the window of others, in tiles that share a slot with theirs; and scores that no code could hide.
 *
 * Under a mask operand, a row of a tile that holds such a key may be lost with it where the row does not see it: 0 times NaN is
 * NaN in most kernels. Codes are the library's own, and rows of all other tiles may never be lost. */
#include "support.h"

enum { POISON_DIM = 4 };

typedef struct poison_row {
  uint32_t flags;
  int64_t  left, right, sinks, q_len, k_len, q_offset;
} poison_row;

static const poison_row poison_rows[] = {
  {TWH_CAUSAL | TWH_LEFT, 3, 0, 0, 9, 40, 20},  {TWH_CAUSAL | TWH_LEFT, 3, 0, 2, 9, 40, 20},
  {TWH_CAUSAL | TWH_LEFT, 0, 0, 0, 5, 20, 11},  {TWH_LEFT | TWH_RIGHT, 2, 2, 0, 6, 30, 9},
  {TWH_LEFT | TWH_RIGHT, 0, 5, 3, 7, 33, 12},   {TWH_RIGHT, 0, 4, 0, 10, 40, -2},
  {TWH_LEFT, 6, 0, 1, 8, 40, 25},               {TWH_CAUSAL | TWH_LEFT, 15, 0, 0, 30, 60, 22},
  {TWH_CAUSAL | TWH_LEFT, 40, 0, 5, 12, 64, 50},
};

static void poison_problem(twh_problem *problem, twh_pattern *pattern, const poison_row *row)
{
  twh_problem_init(problem);
  twh_pattern_init(pattern);
  pattern->flags = row->flags;
  pattern->left = row->left;
  pattern->right = row->right;
  pattern->sink_tokens = row->sinks;
  problem->pattern = pattern;
  problem->batch = 1;
  problem->q_heads = 2;
  problem->kv_heads = 1;
  problem->q_len = row->q_len;
  problem->k_len = row->k_len;
  problem->q_offset = row->q_offset;
  problem->qk_dim = problem->v_dim = POISON_DIM;
}

static void poison_tensors(const twh_problem *problem, support_tensors *tensors)
{
  support_random random = support_random_at(support_seed(53), 0);
  support_fill   fill;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1.0;
  support_tensors_create(tensors, problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(tensors, problem, &fill, &random);
}

static int poison_seen(const twh_problem *problem, int64_t key)
{
  twh_sequence sequence;
  int64_t      i, entry;
  sequence = support_sequence(problem, 0, &entry);
  for (i = 0; i < sequence.q_len; ++i)
    if (support_visible(problem, &sequence, i, key)) return 1;
  return 0;
}

static void case_C53_keys_outside_every_window_may_hold_anything(void **state)
{
  static const int64_t lengths[] = { 3, 8, 32 };
  int64_t              i, j, m, r, c;
  int                  spoil;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (j = 0; j < SUPPORT_COUNT(poison_rows); ++j)
      for (m = 0; m < SUPPORT_COUNT(lengths); ++m) {
        twh_problem     problem;
        twh_pattern     pattern;
        twh_oracle_desc desc;
        support_tensors tensors[2];
        int64_t         unseen = 0;
        poison_problem(&problem, &pattern, &poison_rows[j]);
        support_kernel_desc(&support_kernels[i], &problem, lengths[m], lengths[m], &desc);
        if (!support_must_run(&problem, &desc)) continue;
        for (spoil = 0; spoil < 2; ++spoil) {
          poison_tensors(&problem, &tensors[spoil]);
          for (r = 0; spoil && r < problem.k_len; ++r) {
            if (poison_seen(&problem, r)) continue;
            ++unseen;
            for (c = 0; c < POISON_DIM; ++c) {
              support_set(&tensors[1].k, 0, 0, r, c, r % 2 ? (double)NAN : (double)INFINITY);
              support_set(&tensors[1].v, 0, 0, r, c, r % 3 ? (double)NAN : -(double)INFINITY);
            }
          }
          assert_int_equal(support_solve("C53", &problem, &desc, &tensors[spoil], NULL, NULL), TWH_OK);
        }
        assert_true(unseen > 0);
        assert_memory_equal(tensors[0].out.data, tensors[1].out.data, tensors[0].bytes[3]);
        assert_memory_equal(tensors[0].lse.data, tensors[1].lse.data, tensors[0].bytes[4]);
        for (r = 0; r < problem.q_len; ++r) assert_true(fabs(support_at(&tensors[0].out, 0, 1, r, 0)) < 100.0);
        support_tensors_destroy(&tensors[0]);
        support_tensors_destroy(&tensors[1]);
      }
}

/* ---- a key that some rows see ---- */

typedef struct poison_touch {
  int64_t       key, q_len;
  unsigned char touched[2 * 200]; /* (q_heads, q_len) */
  int64_t       rows;
} poison_touch;

static int32_t poison_mark(void *user, const twh_tile_info *tile)
{
  poison_touch *touch = (poison_touch *)user;
  int64_t       t;
  int           holds = touch->key >= tile->k_begin && touch->key < tile->k_begin + tile->k_len;
  holds |= touch->key >= tile->sink_begin && touch->key < tile->sink_begin + tile->sink_len;
  for (t = 0; holds && t < tile->q_len; ++t) {
    unsigned char *at = &touch->touched[tile->q_head * touch->q_len + tile->q_begin + t];
    touch->rows += !*at;
    *at = 1;
  }
  return 0;
}

static void poison_solve(const twh_problem *problem, const twh_oracle_desc *desc, support_tensors *tensors, poison_touch *touch,
                         twh_run_stats *stats)
{
  support_oracle  oracle;
  twh_run_options options;
  twh_plan       *plan = NULL;
  twh_error       error;
  twh_error_init(&error);
  twh_run_options_init(&options);
  options.stats = stats;
  support_oracle_create(&oracle, NULL, desc, NULL);
  oracle.finite_only = 0;
  support_assert_status(twh_plan_create(NULL, problem, &oracle.oracle, 1, NULL, &plan, &error), TWH_OK, &error, NULL);
  if (touch) assert_int_equal(twh_plan_visit(plan, poison_mark, touch, NULL), TWH_OK);
  support_assert_status(twh_plan_execute(plan, &tensors->all, &options, &error), TWH_OK, &error, NULL);
  if (oracle.broken[0]) print_error("%s\n", oracle.broken);
  assert_int_equal(oracle.broken[0], 0);
  twh_plan_destroy(plan);
  support_oracle_destroy(&oracle);
}

/* Rows that do not see the key, and under a mask operand those whose tiles do not hold it. Returns how many there were. */
static int64_t poison_compare(const char *name, const poison_touch *touch, const twh_problem *problem, int operand,
                              const support_tensors *clean, const support_tensors *spoilt, double tolerance)
{
  twh_sequence sequence;
  int64_t      h, r, c, entry, compared = 0;
  sequence = support_sequence(problem, 0, &entry);
  for (h = 0; h < 2; ++h)
    for (r = 0; r < touch->q_len; ++r) {
      if (operand && touch->touched[h * touch->q_len + r]) continue;
      if (support_visible(problem, &sequence, r, touch->key)) continue;
      ++compared;
      for (c = 0; c < POISON_DIM; ++c)
        if (!(fabs(support_at(&clean->out, 0, h, r, c) - support_at(&spoilt->out, 0, h, r, c)) <= tolerance)) {
          print_error("%s: head %lld row %lld: %g became %g\n", name, (long long)h, (long long)r,
                      support_at(&clean->out, 0, h, r, c), support_at(&spoilt->out, 0, h, r, c));
          fail();
        }
      support_assert_at_most(fabs(support_at(&clean->lse, 0, h, r, 0) - support_at(&spoilt->lse, 0, h, r, 0)), tolerance, name);
    }
  return compared;
}

static void keys_of_one_tile_never_reach_the_others_of_its_slot(void **state)
{
  static const double  poison[] = { (double)NAN, (double)INFINITY, -(double)INFINITY, 3e38 };
  /* left, right, sinks */
  static const int64_t windows[][3] = { { 3, 0, 0 }, { 7, 0, 2 }, { 2, 2, 0 }, { 31, 0, 0 }, { -1, 0, 0 } };
  int64_t              i, w, p, c, compared = 0;
  int                  value;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (w = 0; w < SUPPORT_COUNT(windows); ++w)
      for (p = 0; p < SUPPORT_COUNT(poison); ++p)
        for (value = 0; value < 2; ++value) {
          poison_row      row = { TWH_CAUSAL, 0, 0, 0, 100, 100, 0 };
          twh_problem     problem;
          twh_pattern     pattern;
          twh_oracle_desc desc;
          support_tensors clean, spoilt;
          poison_touch    touch;
          twh_run_stats   stats, later;
          char            name[120];
          if (windows[w][0] >= 0) row.flags |= TWH_LEFT;
          if (windows[w][1] > 0) row.flags = TWH_LEFT | TWH_RIGHT;
          row.left = windows[w][0] < 0 ? 0 : windows[w][0];
          row.right = windows[w][1];
          row.sinks = windows[w][2];
          poison_problem(&problem, &pattern, &row);
          support_kernel_desc(&support_kernels[i], &problem, 32, 32, &desc);
          if (!support_must_run(&problem, &desc)) continue;
          memset(&touch, 0, sizeof touch);
          touch.key = 61;
          touch.q_len = 100;
          twh_run_stats_init(&stats);
          twh_run_stats_init(&later);
          poison_tensors(&problem, &clean);
          poison_tensors(&problem, &spoilt);
          for (c = 0; c < POISON_DIM; c += 2) support_set(value ? &spoilt.v : &spoilt.k, 0, 0, touch.key, c, poison[p]);
          poison_solve(&problem, &desc, &clean, NULL, &stats);
          poison_solve(&problem, &desc, &spoilt, &touch, &later);
          assert_true(touch.rows > 0);
          snprintf(name, sizeof name, "%s, window %lld, %g in a %s", support_kernels[i].name, (long long)w, poison[p],
                   value ? "value" : "key");
          compared += poison_compare(name, &touch, &problem, (desc.mask_modes & TWH_MASK_TENSOR) != 0, &clean, &spoilt,
                                     8.0 * support_epsilon(desc.dtype));
          support_tensors_destroy(&clean);
          support_tensors_destroy(&spoilt);
        }
  assert_true(compared > 1000);
}

/* What one query holds is its own affair, though key blocks are encoded once and used by many: short ones, whose pads codes make
 * dead, are looked at together with each unit's queries. */
static void a_query_never_reaches_other_rows(void **state)
{
  static const double  poison[] = { (double)NAN, (double)INFINITY, 3e38, 1e30 };
  static const int64_t lengths[][2] = { { 100, 50 }, { 100, 5 }, { 100, 100 } };
  int64_t              i, l, p, c, r, h;
  int                  causal;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (l = 0; l < SUPPORT_COUNT(lengths); ++l)
      for (p = 0; p < SUPPORT_COUNT(poison); ++p)
        for (causal = 0; causal < 2; ++causal) {
          poison_row      row = { causal ? TWH_CAUSAL : 0u, 0, 0, 0, lengths[l][0], lengths[l][1], 0 };
          twh_problem     problem;
          twh_pattern     pattern;
          twh_oracle_desc desc;
          support_tensors clean, spoilt;
          twh_run_stats   stats;
          poison_problem(&problem, &pattern, &row);
          support_kernel_desc(&support_kernels[i], &problem, 32, 32, &desc);
          if (!support_must_run(&problem, &desc)) continue;
          twh_run_stats_init(&stats);
          poison_tensors(&problem, &clean);
          poison_tensors(&problem, &spoilt);
          for (c = 0; c < POISON_DIM; ++c) support_set(&spoilt.q, 0, 0, 5, c, poison[p]);
          poison_solve(&problem, &desc, &clean, NULL, &stats);
          poison_solve(&problem, &desc, &spoilt, NULL, &stats);
          for (h = 0; h < 2; ++h)
            for (r = 0; r < lengths[l][0]; ++r)
              for (c = 0; c < POISON_DIM && (h > 0 || r != 5); ++c)
                support_assert_at_most(fabs(support_at(&clean.out, 0, h, r, c) - support_at(&spoilt.out, 0, h, r, c)),
                                       8.0 * support_epsilon(desc.dtype), support_kernels[i].name);
          support_tensors_destroy(&clean);
          support_tensors_destroy(&spoilt);
        }
}

/* All keys alike and huge, queries of either sign: every row is the mean of the values that it sees, whatever its scores. */
static void scores_beyond_any_code_are_right(void **state)
{
  static const uint32_t flags[] = { 0, TWH_CAUSAL, TWH_CAUSAL | TWH_LEFT, TWH_LEFT | TWH_RIGHT };
  double                q[30], k[30], v[30], want[30];
  int64_t               i, j, m, p, narrow;
  (void)state;
  for (narrow = 0; narrow < 2; ++narrow)
    for (p = 0; p < SUPPORT_COUNT(flags); ++p)
      for (m = 3; m <= 32; m += 29) {
        support_head head;
        twh_sequence sequence;
        int64_t      entry;
        support_head_init(&head, 30, 30, 0);
        head.pattern.flags = flags[p];
        head.pattern.left = 6;
        head.pattern.right = 2;
        head.pattern.sink_tokens = p == 2 ? 2 : 0;
        head.problem.scale = 0.5;
        head.q = q;
        head.k = k;
        head.v = v;
        head.avoid = TWH_ORACLE_F16_SCORES; /* such scores are infinite there */
        head.without = narrow ? 1u << TWH_F32 | 1u << TWH_BF16 : 1u << TWH_F16;
        sequence = support_sequence(&head.problem, 0, &entry);
        for (i = 0; i < 30; ++i) {
          double seen = 0.0;
          k[i] = narrow ? 32768.0 : ldexp(1.0, 60);
          q[i] = i % 3 ? k[i] : -k[i];
          v[i] = 0.25 * (double)(i * 7 % 11);
          want[i] = 0.0;
          for (j = 0; j < 30; ++j) seen += support_visible(&head.problem, &sequence, i, j);
          for (j = 0; j < 30; ++j)
            if (support_visible(&head.problem, &sequence, i, j)) want[i] += 0.25 * (double)(j * 7 % 11) / seen;
        }
        support_head_expect(narrow ? "beyond the codes of f16" : "beyond the codes of f32", &head, m, want, NULL, 8.0);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C53_keys_outside_every_window_may_hold_anything),
    cmocka_unit_test(keys_of_one_tile_never_reach_the_others_of_its_slot),
    cmocka_unit_test(a_query_never_reaches_other_rows),
    cmocka_unit_test(scores_beyond_any_code_are_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
