/* Plans as text, compared with what they should say. The lines about waves, work and workspace are left out: they follow from
 * how an execute is organised, which may change; all others follow from what is computed. */
#include "support.h"

static int32_t describe_never(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user;
  (void)calls;
  (void)n;
  return 1;
}

static void describe_expect(const twh_problem *problem, const twh_oracle_desc *desc, const char *want)
{
  twh_oracle *oracle = NULL;
  twh_plan   *plan = NULL;
  char        text[4096], kept[4096], *line, *end;
  assert_int_equal(twh_oracle_create(NULL, desc, &oracle, NULL), TWH_OK);
  assert_int_equal(twh_plan_create(NULL, problem, &oracle, 1, NULL, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_describe(plan, text, sizeof text, NULL, NULL), TWH_OK);
  kept[0] = 0;
  for (line = text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    if (strncmp(line, "waves", 5) == 0 || strncmp(line, "work", 4) == 0) continue;
    strncat(kept, line, (size_t)(end - line) + 1);
  }
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  assert_string_equal(kept, want);
}

static void describe_begin(twh_problem *problem, twh_oracle_desc *desc, int64_t m, uint32_t modes)
{
  twh_problem_init(problem);
  problem->batch = 1;
  problem->q_heads = problem->kv_heads = 12;
  problem->q_len = problem->k_len = 8192;
  problem->qk_dim = problem->v_dim = 64;
  twh_oracle_desc_init(desc);
  desc->slots = 1;
  desc->q_len = desc->k_len = m;
  desc->qk_dim = desc->v_dim = 64;
  desc->dtype = TWH_F32;
  desc->mask_modes = modes;
  desc->scale = 0.125;
  desc->run = describe_never;
}

static void a_full_plan_with_a_spare_column_and_many_slots(void **state)
{
  twh_problem     problem;
  twh_oracle_desc desc;
  (void)state;
  describe_begin(&problem, &desc, 512, TWH_MASK_NONE);
  desc.slots = 12;
  desc.v_dim = 65;
  desc.dtype = TWH_F16;
  describe_expect(&problem, &desc,
                  "problem   1 sequence, 12 query and 12 kv heads, dims 64 and 64, full, 805306368 pairs\n"
                  "kernel    number 0: 12 slots of 512 x 512, dims 64 and 65, f16: 256 calls at 1 each\n"
                  "way       unmasked tiles\n"
                  "reading   an anchor column: 1 call per tile\n"
                  "tiles     3072 in 3072 slots: 3072 full, 0 lower, 0 upper, 0 bands; 0 on the host\n"
                  "calls     256, at least 256 on this kernel (utilisation 1.000); at most 256 repairs\n"
                  "rounds    1, 2 with repairs\n");
}

static void a_causal_plan_on_a_kernel_with_nothing_but_a_causal_mask(void **state)
{
  twh_problem     problem;
  twh_pattern     pattern;
  twh_oracle_desc desc;
  (void)state;
  describe_begin(&problem, &desc, 512, TWH_MASK_CAUSAL);
  twh_pattern_init(&pattern);
  pattern.flags = TWH_CAUSAL;
  problem.pattern = &pattern;
  describe_expect(&problem, &desc,
                  "problem   1 sequence, 12 query and 12 kv heads, dims 64 and 64, causal, 402702336 pairs\n"
                  "kernel    number 0: 1 slot of 512 x 512, dims 64 and 64, f32: 6144 calls at 1 each\n"
                  "way       tiles under the kernel's causal mask, "
                  "whole ones once in natural and once in reversed order\n"
                  "reading   a bucket call: 2 calls per tile\n"
                  "tiles     3072 in 3072 slots: 0 full, 1632 lower, 1440 upper, 0 bands; 0 on the host\n"
                  "calls     6144, at least 3067 on this kernel (utilisation 0.499); at most 0 repairs\n"
                  "rounds    1, 1 with repairs\n"
                  "advice    with 1 spare value column (oracle.v_dim 65): 3072 calls instead of 6144\n"
                  "advice    if its mask could be switched off: 3264 calls instead of 6144\n"
                  "advice    with a mask operand: 3264 calls instead of 6144\n"
                  "advice    if it returned the log-sum-exp: 3072 calls instead of 6144\n");
}

static void a_ragged_batch_of_stacked_heads_on_a_kernel_with_lse(void **state)
{
  static const twh_sequence sequences[] = {{0, 3, 0, 1000, 997, 0}, {3, 1, 1000, 77, 76, 0}};
  twh_problem               problem;
  twh_oracle_desc           desc;
  (void)state;
  describe_begin(&problem, &desc, 256, TWH_MASK_NONE);
  problem.batch = 2;
  problem.kv_heads = 3;
  problem.sequences = sequences;
  problem.q_len = problem.k_len = 0;
  desc.flags = TWH_ORACLE_LSE;
  desc.v_dim = 32;
  describe_expect(&problem, &desc,
                  "problem   2 sequences, 12 query and 3 kv heads, dims 64 and 64, full, 36924 pairs\n"
                  "kernel    number 0: 1 slot of 256 x 256, dims 64 and 32, f32, returns lse: 30 calls at 1 each\n"
                  "way       unmasked tiles\n"
                  "reading   the kernel's lse: 2 calls per tile, values in 2 slices\n"
                  "tiles     15 in 15 slots: 15 full, 0 lower, 0 upper, 0 bands; 0 on the host\n"
                  "short     6 with fewer keys than the kernel's length: real keys are repeated behind them\n"
                  "calls     30, at least 1 on this kernel (utilisation 0.019); at most 0 repairs\n"
                  "rounds    1, 1 with repairs\n"
                  "advice    with 3 spare coordinates (oracle.qk_dim 67): 26 calls instead of 30\n"
                  "advice    with a mask operand: 26 calls instead of 30\n");
}

static void a_window_with_sinks_on_a_causal_kernel(void **state)
{
  twh_problem     problem;
  twh_pattern     pattern;
  twh_oracle_desc desc;
  (void)state;
  describe_begin(&problem, &desc, 512, TWH_MASK_CAUSAL);
  problem.q_heads = problem.kv_heads = 1;
  twh_pattern_init(&pattern);
  pattern.flags = TWH_CAUSAL | TWH_LEFT;
  pattern.left = 255;
  pattern.sink_tokens = 4;
  problem.pattern = &pattern;
  desc.v_dim = 65;
  desc.qk_dim = 64 + 16;
  describe_expect(&problem, &desc,
                  "problem   1 sequence, 1 query and 1 kv heads, dims 64 and 64, window, 2096250 pairs\n"
                  "kernel    number 0: 1 slot of 512 x 512, dims 80 and 65, f32: 33 calls at 1 each\n"
                  "way       tiles under the kernel's causal mask, "
                  "whole ones once in natural and once in reversed order\n"
                  "reading   an anchor column: 1 call per tile\n"
                  "window    of 256 keys in units of 254 rows; sinks lead the slots\n"
                  "tiles     65 in 33 slots: 0 full, 33 lower, 32 upper, 0 bands; 0 on the host\n"
                  "short     1 with fewer keys than the kernel's length: a spare coordinate gives their pads weight 0\n"
                  "calls     33, at least 16 on this kernel (utilisation 0.484); at most 33 repairs\n"
                  "rounds    1, 2 with repairs\n"
                  "advice    with a mask operand: 26 calls instead of 33\n");
}

static void a_kernel_with_a_choice_of_masks(void **state)
{
  twh_problem     problem;
  twh_pattern     pattern;
  twh_oracle_desc desc;
  (void)state;
  describe_begin(&problem, &desc, 512, 7);
  twh_pattern_init(&pattern);
  pattern.flags = TWH_CAUSAL;
  problem.pattern = &pattern;
  problem.q_heads = problem.kv_heads = 1;
  desc.flags = TWH_ORACLE_LSE;
  describe_expect(&problem, &desc,
                  "problem   1 sequence, 1 query and 1 kv heads, dims 64 and 64, causal, 33558528 pairs\n"
                  "kernel    number 0: 1 slot of 512 x 512, dims 64 and 64, f32, returns lse: 136 calls at 1 each\n"
                  "way       unmasked tiles; what is cut under the kernel's causal mask\n"
                  "reading   the kernel's lse: 1 call per tile\n"
                  "tiles     136 in 136 slots: 120 full, 16 lower, 0 upper, 0 bands; 0 on the host\n"
                  "calls     136, at least 129 on this kernel (utilisation 0.941); at most 0 repairs\n"
                  "rounds    1, 1 with repairs\n"
                  "choice    136 calls by unmasked tiles; what is cut under the kernel's causal mask (taken)\n"
                  "          136 calls by unmasked tiles; what is cut with a mask operand\n"
                  "          136 calls by tiles with a mask operand\n"
                  "          256 calls by tiles under the kernel's causal mask, "
                  "whole ones once in natural and once in reversed order\n");
}

static void short_requests_without_spare_coordinates(void **state)
{
  static const twh_sequence sequences[] = {{0, 30, 0, 30, 0, 0}, {30, 41, 30, 41, 0, 0}, {71, 7, 71, 7, 0, 0}};
  twh_problem               problem;
  twh_pattern               pattern;
  twh_oracle_desc           desc;
  (void)state;
  describe_begin(&problem, &desc, 512, TWH_MASK_CAUSAL);
  twh_pattern_init(&pattern);
  pattern.flags = TWH_CAUSAL;
  problem.pattern = &pattern;
  problem.q_heads = problem.kv_heads = 1;
  problem.batch = 3;
  problem.sequences = sequences;
  problem.q_len = problem.k_len = 0;
  desc.flags = TWH_ORACLE_LSE;
  describe_expect(&problem, &desc,
                  "problem   3 sequences, 1 query and 1 kv heads, dims 64 and 64, causal, 1354 pairs\n"
                  "kernel    number 0: 1 slot of 512 x 512, dims 64 and 64, f32, returns lse: 3 calls at 1 each\n"
                  "way       tiles under the kernel's causal mask, "
                  "whole ones once in natural and once in reversed order\n"
                  "reading   the kernel's lse: 1 call per tile\n"
                  "tiles     3 in 3 slots: 0 full, 3 lower, 0 upper, 0 bands; 0 on the host\n"
                  "short     3 with fewer keys than the kernel's length: no row sees what stands behind their keys\n"
                  "calls     3, at least 1 on this kernel (utilisation 0.003); at most 0 repairs\n"
                  "rounds    1, 1 with repairs\n"
                  "advice    with 2 spare coordinates (oracle.qk_dim 66): 1 calls instead of 3\n"
                  "advice    with a mask operand: 1 calls instead of 3\n");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_full_plan_with_a_spare_column_and_many_slots),
    cmocka_unit_test(a_causal_plan_on_a_kernel_with_nothing_but_a_causal_mask),
    cmocka_unit_test(a_ragged_batch_of_stacked_heads_on_a_kernel_with_lse),
    cmocka_unit_test(a_window_with_sinks_on_a_causal_kernel),
    cmocka_unit_test(a_kernel_with_a_choice_of_masks),
    cmocka_unit_test(short_requests_without_spare_coordinates),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
