/* Plans in figures: calls as formulas, consistent counts, what a visit shows, and planning that costs nothing for any length.
 *
 * No kernel runs here: the callback of these kernels fails the test. */
#include "support.h"

static int32_t plan_never(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user;
  (void)calls;
  (void)n;
  print_error("planning called the kernel\n");
  return 1;
}

static twh_oracle_desc plan_kernel(uint32_t modes, uint32_t flags, int64_t m, int64_t slots, int64_t qk_dim, int64_t v_dim)
{
  twh_oracle_desc desc;
  twh_oracle_desc_init(&desc);
  desc.mask_modes = modes;
  desc.flags = flags;
  desc.q_len = desc.k_len = m;
  desc.slots = slots;
  desc.qk_dim = qk_dim;
  desc.v_dim = v_dim;
  desc.dtype = TWH_F32;
  desc.scale = 0.25;
  desc.run = plan_never;
  return desc;
}

static twh_problem plan_problem(int64_t batch, int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t k_len, int64_t dim)
{
  twh_problem problem;
  twh_problem_init(&problem);
  problem.batch = batch;
  problem.q_heads = q_heads;
  problem.kv_heads = kv_heads;
  problem.q_len = q_len;
  problem.k_len = k_len;
  problem.qk_dim = problem.v_dim = dim;
  return problem;
}

static const twh_pattern *plan_causal(void)
{
  static twh_pattern pattern;
  twh_pattern_init(&pattern);
  pattern.flags = TWH_CAUSAL;
  return &pattern;
}

static int64_t plan_ceil(int64_t a, int64_t b)
{
  return (a + b - 1) / b;
}

/* Plan, look, destroy. */
static twh_plan_info plan_look(const twh_problem *problem, const twh_oracle_desc *desc, const twh_plan_options *options)
{
  twh_oracle   *oracle = NULL;
  twh_plan     *plan = NULL;
  twh_plan_info info;
  twh_error     error;
  twh_error_init(&error);
  twh_plan_info_init(&info);
  support_assert_status(twh_oracle_create(NULL, desc, &oracle, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_plan_create(NULL, problem, &oracle, 1, options, &plan, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_plan_get_info(plan, &info, &error), TWH_OK, &error, NULL);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  assert_true(info.lower_bound_calls <= info.calls || info.host_tiles > 0);
  assert_true(info.utilisation >= 0.0 && info.utilisation <= 1.0 && (info.calls == 0 || info.utilisation > 0.0));
  assert_int_equal(info.tiles, info.full_tiles + info.lower_tiles + info.upper_tiles + info.band_tiles);
  assert_true(info.slots_used <= info.tiles && info.host_tiles >= 0);
  assert_true(info.short_tiles <= info.tiles && info.rounds <= info.rounds_max);
  assert_true(info.workspace_alignment > 0 && (info.workspace_alignment & (info.workspace_alignment - 1)) == 0);
  return info;
}

static const int64_t plan_lengths[] = { 1, 5, 8, 15, 16, 17, 63, 64, 65, 200 };
static const int64_t plan_slots[] = { 1, 3, 5, 12 };
static const int64_t plan_readings[][3] = {
  { 1, 0, 0 }, { 0, 0, 1 }, { 0, 0, 2 }, { 0, 1, 1 }, { 0, 0, 0 }, { 0, 1, 0 }
}; /* lse, spare qk, spare v */

static void full_attention_takes_one_call_per_tile_and_slot(void **state)
{
  int64_t i, j, s, heads, kind;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(plan_lengths); ++i)
    for (j = 0; j < SUPPORT_COUNT(plan_lengths); ++j)
      for (s = 0; s < SUPPORT_COUNT(plan_slots); ++s)
        for (heads = 1; heads < 8; heads += 5)
          for (kind = 0; kind < SUPPORT_COUNT(plan_readings); ++kind) {
            const int64_t  *spare = plan_readings[kind];
            twh_oracle_desc desc =
              plan_kernel(TWH_MASK_NONE, spare[0] ? TWH_ORACLE_LSE : 0, 16, plan_slots[s], 4 + spare[1], 4 + spare[2]);
            twh_problem   problem = plan_problem(2, heads, heads, plan_lengths[i], plan_lengths[j], 4);
            twh_plan_info info = plan_look(&problem, &desc, NULL);
            int64_t       tiles = 2 * heads * plan_ceil(plan_lengths[i], 16) * plan_ceil(plan_lengths[j], 16);
            int64_t       bound = plan_ceil(tiles, plan_slots[s]) * (spare[0] || spare[2] ? 1 : 2);
            if (info.calls == bound) continue;
            print_error("q_len %lld k_len %lld slots %lld heads %lld reading %lld: %lld calls, not %lld\n",
                        (long long)plan_lengths[i], (long long)plan_lengths[j], (long long)plan_slots[s], (long long)heads,
                        (long long)kind, (long long)info.calls, (long long)bound);
            fail();
          }
}

static void values_wider_than_the_kernel_go_in_slices(void **state)
{
  static const int64_t dims[][2] = { { 7, 3 }, { 6, 3 }, { 5, 4 }, { 4, 4 }, { 64, 16 }, { 64, 15 }, { 2, 1 }, { 1, 1 } };
  int64_t              i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(dims); ++i) {
    twh_problem     problem = plan_problem(1, 1, 1, 64, 64, dims[i][0]);
    twh_oracle_desc desc = plan_kernel(TWH_MASK_NONE, 0, 16, 1, dims[i][0], dims[i][1]);
    int64_t         slices = plan_ceil(dims[i][0], dims[i][1]);
    assert_int_equal(plan_look(&problem, &desc, NULL).calls, 16 * (slices + (dims[i][0] % dims[i][1] == 0)));
    desc.flags = TWH_ORACLE_LSE;
    assert_int_equal(plan_look(&problem, &desc, NULL).calls, 16 * slices);
  }
}

static void causal_on_a_causal_only_kernel_takes_nb_squared_tiles(void **state)
{
  static const int64_t lengths[] = { 2, 3, 4, 8, 16 };
  int64_t              i, n, m, nb, kind;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(lengths); ++i)
    for (n = 1; n <= 4 * lengths[i]; ++n)
      for (kind = 0; kind < 3; ++kind) {
        twh_problem     problem = plan_problem(1, 2, 2, n, n, 4);
        twh_oracle_desc desc;
        twh_plan_info   info;
        m = lengths[i];
        nb = plan_ceil(n, m);
        desc = plan_kernel(TWH_MASK_CAUSAL, kind == 0 ? TWH_ORACLE_LSE : 0, m, 1, 4, kind == 1 ? 5 : 4);
        problem.pattern = plan_causal();
        info = plan_look(&problem, &desc, NULL);
        if (n % m == 0) assert_int_equal(info.tiles, 2 * nb * nb);
        assert_true(info.tiles <= 2 * nb * nb);
        assert_int_equal(info.calls, kind == 2 ? 2 * info.tiles : info.tiles);
      }
}

static void causal_on_a_kernel_with_a_choice_takes_one_tile_per_block(void **state)
{
  static const uint32_t modes[] = { TWH_MASK_NONE | TWH_MASK_CAUSAL, TWH_MASK_TENSOR, TWH_MASK_NONE | TWH_MASK_TENSOR, 7 };
  int64_t               i, n, nb;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(modes); ++i)
    for (n = 1; n <= 40; ++n) {
      twh_problem     problem = plan_problem(1, 1, 1, n, n, 4);
      twh_oracle_desc desc = plan_kernel(modes[i], TWH_ORACLE_LSE, 8, 1, 4, 4);
      problem.pattern = plan_causal();
      nb = plan_ceil(n, 8);
      assert_int_equal(plan_look(&problem, &desc, NULL).tiles, nb * (nb + 1) / 2);
    }
}

static void a_kernel_of_length_one_has_no_strict_upper_triangle(void **state)
{
  twh_problem     problem = plan_problem(1, 1, 1, 9, 9, 4);
  twh_oracle_desc desc = plan_kernel(TWH_MASK_CAUSAL, TWH_ORACLE_LSE, 1, 1, 4, 4);
  (void)state;
  problem.pattern = plan_causal();
  assert_int_equal(plan_look(&problem, &desc, NULL).tiles, 45);
}

static void a_decode_step_takes_one_tile_per_key_block(void **state)
{
  twh_problem     problem = plan_problem(1, 1, 1, 1, 65536, 64);
  twh_oracle_desc desc = plan_kernel(TWH_MASK_CAUSAL, TWH_ORACLE_LSE, 512, 1, 64, 64);
  (void)state;
  assert_int_equal(plan_look(&problem, &desc, NULL).calls, 128);
  problem.pattern = plan_causal();
  problem.q_offset = 65535;
  assert_int_equal(plan_look(&problem, &desc, NULL).calls, 128);
  desc.v_dim = 65;
  desc.flags = 0;
  assert_int_equal(plan_look(&problem, &desc, NULL).calls, 128);
}

static void query_heads_of_a_kv_head_are_stacked(void **state)
{
  static const int64_t lengths[] = { 1, 3, 8, 20 };
  int64_t              i, group;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(lengths); ++i)
    for (group = 1; group <= 6; ++group) {
      twh_problem     problem = plan_problem(3, 2 * group, 2, lengths[i], 50, 4);
      twh_oracle_desc desc = plan_kernel(TWH_MASK_NONE, TWH_ORACLE_LSE, 16, 1, 4, 4);
      assert_int_equal(plan_look(&problem, &desc, NULL).calls, 3 * 2 * plan_ceil(group * lengths[i], 16) * 4);
    }
}

static void figures_follow_from_the_plan(void **state)
{
  twh_problem      problem = plan_problem(2, 3, 3, 40, 50, 4);
  twh_oracle_desc  desc = plan_kernel(TWH_MASK_NONE | TWH_MASK_CAUSAL, TWH_ORACLE_LSE, 16, 4, 6, 8);
  twh_plan_options options;
  twh_plan_info    info;
  (void)state;
  desc.cost_per_call = 0.5;
  desc.cost_per_batch = 0.125;
  twh_plan_options_init(&options);
  options.max_calls_per_batch = 1;
  info = plan_look(&problem, &desc, &options);
  assert_true(info.visible_pairs == 2.0 * 3 * 40 * 50);
  assert_int_equal(info.lower_bound_calls, plan_ceil(2 * 3 * 40 * 50, 4 * 16 * 16));
  assert_true(info.oracle_flops == 2.0 * 16 * 16 * (6 + 8) * 4 * (double)info.calls);
  support_assert_at_most(fabs(info.utilisation - info.visible_pairs / (256.0 * 4 * (double)info.calls)), 1e-12, "utilisation");
  assert_true(info.cost == (0.5 + 0.125) * (double)info.calls);
  assert_int_equal(info.oracle, 0);
  assert_int_equal(info.repair_calls_max, 0);
  problem.pattern = plan_causal();
  info = plan_look(&problem, &desc, NULL);
  assert_true(info.visible_pairs == 2.0 * 3 * 40 * 41 / 2);
  problem.q_offset = -10;
  assert_true(plan_look(&problem, &desc, NULL).visible_pairs == 2.0 * 3 * 30 * 31 / 2);
  problem.q_offset = 10;
  assert_true(plan_look(&problem, &desc, NULL).visible_pairs == 2.0 * 3 * (40 * 41 / 2 + 40 * 10));
  problem.q_offset = 49;
  assert_true(plan_look(&problem, &desc, NULL).visible_pairs == 2.0 * 3 * 40 * 50);
}

static void empty_problems_have_no_calls(void **state)
{
  static const int64_t sizes[][3] = { { 0, 5, 5 }, { 2, 0, 7 }, { 2, 3, 0 } };
  int64_t              i;
  (void)state;
  for (i = 0; i < 3; ++i) {
    twh_problem     problem = plan_problem(sizes[i][0], 1, 1, sizes[i][1], sizes[i][2], 4);
    twh_oracle_desc desc = plan_kernel(TWH_MASK_NONE, 0, 16, 1, 4, 5);
    twh_plan_info   info = plan_look(&problem, &desc, NULL);
    assert_int_equal(info.calls, 0);
    assert_int_equal(info.tiles, 0);
    assert_int_equal(info.lower_bound_calls, 0);
  }
}

static void the_cheapest_kernel_is_chosen(void **state)
{
  twh_problem     problem = plan_problem(1, 1, 1, 128, 128, 4);
  twh_oracle_desc desc = plan_kernel(TWH_MASK_NONE, TWH_ORACLE_LSE, 16, 1, 4, 4);
  twh_oracle     *oracles[3] = { NULL, NULL, NULL };
  twh_plan       *plan = NULL;
  twh_plan_info   info;
  twh_error       error;
  int             i;
  (void)state;
  twh_error_init(&error);
  for (i = 0; i < 3; ++i) {
    desc.q_len = desc.k_len = i == 1 ? 64 : 16; /* 64 calls of cost 1, 4 calls of cost 3, and one that is too narrow */
    desc.cost_per_call = i == 1 ? 3.0 : 1.0;
    desc.qk_dim = i == 2 ? 3 : 4;
    support_assert_status(twh_oracle_create(NULL, &desc, &oracles[i], &error), TWH_OK, &error, NULL);
  }
  twh_plan_info_init(&info);
  support_assert_status(twh_plan_create(NULL, &problem, oracles, 3, NULL, &plan, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_plan_get_info(plan, &info, &error), TWH_OK, &error, NULL);
  assert_int_equal(info.oracle, 1);
  assert_int_equal(info.calls, 4);
  twh_plan_destroy(plan);
  support_assert_status(twh_plan_create(NULL, &problem, oracles + 2, 1, NULL, &plan, &error), TWH_E_UNSUPPORTED, &error,
                        "qk_dim");
  assert_null(plan);
  for (i = 0; i < 3; ++i) twh_oracle_destroy(oracles[i]);
}

static void the_workspace_limit_bounds_encoded_keys(void **state)
{
  twh_problem      problem = plan_problem(1, 4, 4, 4096, 4096, 64);
  twh_oracle_desc  desc = plan_kernel(TWH_MASK_CAUSAL, 0, 64, 1, 64, 65);
  twh_plan_options options;
  twh_plan_info    small, large;
  (void)state;
  twh_plan_options_init(&options);
  options.workspace_limit = 65536;
  small = plan_look(&problem, &desc, &options);
  options.workspace_limit = 0;
  large = plan_look(&problem, &desc, &options);
  assert_true(small.workspace_bytes < large.workspace_bytes);
  assert_true(large.workspace_bytes <= (int64_t)80 << 20);
  assert_int_equal(small.calls, large.calls);
}

typedef struct plan_visit {
  int64_t seen, stop_at, calls, call, slot;
} plan_visit;

static int32_t plan_count_tile(void *user, const twh_tile_info *tile)
{
  plan_visit *visit = (plan_visit *)user;
  assert_true(tile->call > visit->call || (tile->call == visit->call && tile->slot > visit->slot));
  visit->call = tile->call;
  visit->slot = tile->slot;
  if (tile->call + tile->calls > visit->calls) visit->calls = tile->call + tile->calls;
  return ++visit->seen == visit->stop_at;
}

static void a_visit_shows_every_tile_once_in_order_and_can_stop(void **state)
{
  twh_problem     problem = plan_problem(2, 4, 2, 50, 50, 4);
  twh_oracle_desc desc = plan_kernel(TWH_MASK_CAUSAL, 0, 8, 5, 4, 4);
  twh_oracle     *oracle = NULL;
  twh_plan       *plan = NULL;
  twh_plan_info   info;
  plan_visit      visit = { 0, 0, 0, -1, -1 };
  (void)state;
  problem.pattern = plan_causal();
  twh_plan_info_init(&info);
  assert_int_equal(twh_oracle_create(NULL, &desc, &oracle, NULL), TWH_OK);
  assert_int_equal(twh_plan_create(NULL, &problem, &oracle, 1, NULL, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  assert_int_equal(twh_plan_visit(plan, plan_count_tile, &visit, NULL), TWH_OK);
  assert_int_equal(visit.seen, info.tiles);
  assert_int_equal(visit.calls, info.calls);
  memset(&visit, 0, sizeof visit);
  visit.call = visit.slot = -1;
  visit.stop_at = 7;
  assert_int_equal(twh_plan_visit(plan, plan_count_tile, &visit, NULL), TWH_OK);
  assert_int_equal(visit.seen, 7);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
}

static void case_C64_and_C90_planning_takes_little_memory_at_any_length(void **state)
{
  int64_t logs[] = { 20, 28, 40, 50, 61 }, i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(logs); ++i) {
    int64_t         n = (int64_t)1 << logs[i];
    twh_problem     problem = plan_problem(1, 1, 1, n, n, 64);
    twh_oracle_desc desc = plan_kernel(TWH_MASK_CAUSAL, 0, 512, 1, 64, 65);
    twh_plan_info   info;
    support_memory  memory;
    twh_context    *context = support_context(&memory, 0, 0);
    twh_oracle     *oracle = NULL;
    twh_plan       *plan = NULL;
    twh_status      status;
    problem.pattern = plan_causal();
    twh_plan_info_init(&info);
    assert_int_equal(twh_oracle_create(context, &desc, &oracle, NULL), TWH_OK);
    status = twh_plan_create(context, &problem, &oracle, 1, NULL, &plan, NULL);
    assert_true(status == TWH_OK || (logs[i] >= 40 && status == TWH_E_OVERFLOW && !plan));
    assert_true(memory.peak_bytes < (int64_t)1 << 20);
    if (status == TWH_OK) {
      assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
      assert_true(info.workspace_bytes < (int64_t)512 << 20);
      if (logs[i] == 20) assert_int_equal(info.tiles, (int64_t)2048 * 2048);
    }
    twh_plan_destroy(plan);
    twh_oracle_destroy(oracle);
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
  }
}

static void case_C90_a_switch_or_a_mask_halves_the_tiles_of_a_million_tokens(void **state)
{
  twh_problem     problem = plan_problem(1, 1, 1, 1 << 20, 1 << 20, 64);
  twh_oracle_desc desc = plan_kernel(TWH_MASK_NONE | TWH_MASK_CAUSAL, 0, 512, 1, 64, 65);
  (void)state;
  problem.pattern = plan_causal();
  assert_int_equal(plan_look(&problem, &desc, NULL).tiles, 2098176);
  desc.mask_modes = TWH_MASK_TENSOR;
  assert_int_equal(plan_look(&problem, &desc, NULL).tiles, 2098176);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(full_attention_takes_one_call_per_tile_and_slot),
    cmocka_unit_test(values_wider_than_the_kernel_go_in_slices),
    cmocka_unit_test(causal_on_a_causal_only_kernel_takes_nb_squared_tiles),
    cmocka_unit_test(causal_on_a_kernel_with_a_choice_takes_one_tile_per_block),
    cmocka_unit_test(a_kernel_of_length_one_has_no_strict_upper_triangle),
    cmocka_unit_test(a_decode_step_takes_one_tile_per_key_block),
    cmocka_unit_test(query_heads_of_a_kv_head_are_stacked),
    cmocka_unit_test(figures_follow_from_the_plan),
    cmocka_unit_test(empty_problems_have_no_calls),
    cmocka_unit_test(the_cheapest_kernel_is_chosen),
    cmocka_unit_test(the_workspace_limit_bounds_encoded_keys),
    cmocka_unit_test(a_visit_shows_every_tile_once_in_order_and_can_stop),
    cmocka_unit_test(case_C64_and_C90_planning_takes_little_memory_at_any_length),
    cmocka_unit_test(case_C90_a_switch_or_a_mask_halves_the_tiles_of_a_million_tokens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
