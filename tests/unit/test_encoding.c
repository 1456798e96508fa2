/* Each key and value block is encoded once per order and panel, not once per tile; and not at all where the host's memory will
 * do as it lies. */
#include "support.h"

enum { ENCODING_M = 64, ENCODING_DIM = 16, ENCODING_KV_HEADS = 2 };

typedef struct encoding_case {
  const char *name;
  uint32_t    modes, flags, pattern;
  int32_t     dtype;
  int64_t     spare, q_blocks, k_blocks, workspace_limit;
  int64_t     encoded; /* of one kv head */
} encoding_case;

static const encoding_case encoding_cases[] = {
  { "keys and values once", TWH_MASK_NONE, 0, 0, TWH_F16, 1, 8, 8, 0, 2 * 8 },
  { "values alone need a column", TWH_MASK_NONE, 0, 0, TWH_F32, 1, 8, 8, 0, 8 },
  { "nothing has to change", TWH_MASK_NONE, TWH_ORACLE_LSE, 0, TWH_F32, 0, 8, 8, 0, 0 },
  { "natural and reversed", TWH_MASK_CAUSAL, 0, TWH_CAUSAL, TWH_F16, 1, 8, 8, 0, 2 * (8 + 7) },
  { "a panel of two units", TWH_MASK_NONE, 0, 0, TWH_F16, 1, 1, 256, 900000, 2 * 256 },
};

static void encoding_run(const encoding_case *row)
{
  const support_fill fill = { 1, 0, 0, 0, 0, 0 };
  support_random     random = support_random_at(1, 1);
  support_tensors    tensors;
  twh_oracle_desc    desc;
  twh_oracle        *oracle = NULL;
  twh_problem        problem;
  twh_pattern        pattern;
  twh_plan_options   limits;
  twh_plan          *plan = NULL;
  twh_run_options    options;
  twh_run_stats      stats;

  twh_oracle_desc_init(&desc);
  desc.slots = 1;
  desc.q_len = desc.k_len = ENCODING_M;
  desc.qk_dim = ENCODING_DIM;
  desc.v_dim = ENCODING_DIM + row->spare;
  desc.dtype = row->dtype;
  desc.flags = row->flags;
  desc.mask_modes = row->modes;
  desc.scale = 0.25;
  desc.alignment = 4;
  twh_pattern_init(&pattern);
  pattern.flags = row->pattern;
  twh_problem_init(&problem);
  problem.batch = 1;
  problem.q_heads = 2 * ENCODING_KV_HEADS; /* two query heads share what is encoded */
  problem.kv_heads = ENCODING_KV_HEADS;
  problem.q_len = row->q_blocks * ENCODING_M;
  problem.k_len = row->k_blocks * ENCODING_M;
  problem.qk_dim = problem.v_dim = ENCODING_DIM;
  problem.pattern = &pattern;
  twh_plan_options_init(&limits);
  limits.workspace_limit = row->workspace_limit;
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, 0);
  support_tensors_fill(&tensors, &problem, &fill, &random);
  assert_int_equal(twh_reference_oracle_create(NULL, &desc, NULL, &oracle, NULL), TWH_OK);
  assert_int_equal(twh_plan_create(NULL, &problem, &oracle, 1, &limits, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_execute(plan, &tensors.all, &options, NULL), TWH_OK);
  if (stats.encoded_blocks != row->encoded * ENCODING_KV_HEADS) print_error("%s\n", row->name);
  assert_int_equal(stats.encoded_blocks, row->encoded * ENCODING_KV_HEADS);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  support_tensors_destroy(&tensors);
}

static void encoding_is_done_once_per_order_and_panel(void **state)
{
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(encoding_cases); ++i) encoding_run(&encoding_cases[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(encoding_is_done_once_per_order_and_panel) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
