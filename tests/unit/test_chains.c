/* Calls that continue each other: which ones do, that the results are right, where they are written, and that a row that cannot be read
 * does not take the others with it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

enum { M = 16, DIM = 8, NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL };
enum {
  ALL = TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES | TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS | TWH_ORACLE_FEWER_ROWS |
        TWH_ORACLE_FEWER_KEYS
};

typedef struct chains_case {
  const char *name;
  uint32_t    modes, flags, pattern;
  int64_t     left, heads, q_len, k_len, per_batch;
  int32_t     dtype, layout; /* of the tensors */
  int64_t     calls, continued, direct;
} chains_case;

/* Chains have 1, 2, 4, 8 or 16 calls: as long as there are 16 of them. */
static const chains_case chains_cases[] = {
  { "full", NONE | CAUSAL, ALL, 0, 0, 1, 256, 256, 0, TWH_F32, SUPPORT_DENSE, 256, 240, 256 },
  { "full, two chains for each block of rows", NONE | CAUSAL, ALL, 0, 0, 1, 256, 512, 0, TWH_F32, SUPPORT_DENSE, 512, 480, 0 },
  { "full, four heads", NONE | CAUSAL, ALL, 0, 0, 4, 256, 256, 0, TWH_F32, SUPPORT_PACKED_HEADS, 1024, 960, 1024 },
  { "few calls", NONE | CAUSAL, ALL, 0, 0, 1, 64, 112, 0, TWH_F32, SUPPORT_DENSE, 28, 0, 0 },
  { "batches of five", NONE | CAUSAL, ALL, 0, 0, 4, 256, 256, 5, TWH_F32, SUPPORT_DENSE, 1024, 768, 0 },
  { "batches of one", NONE | CAUSAL, ALL, 0, 0, 4, 256, 256, 1, TWH_F32, SUPPORT_DENSE, 1024, 0, 0 },
  { "causal", NONE | CAUSAL, ALL, TWH_CAUSAL, 0, 1, 256, 256, 0, TWH_F32, SUPPORT_GAPS, 136, 112, 36 },
  { "causal, lengths that are no multiples", NONE | CAUSAL, ALL, TWH_CAUSAL, 0, 2, 251, 245, 0, TWH_F32, SUPPORT_DENSE, 272,
    240, 272 },
  { "window", NONE | CAUSAL, ALL, TWH_CAUSAL | TWH_LEFT, M - 1, 1, 1024, 1024, 0, TWH_F32, SUPPORT_DENSE, 128, 63, 128 },
  { "window, wider", NONE | CAUSAL, ALL, TWH_CAUSAL | TWH_LEFT, 3 * M - 1, 1, 1024, 1024, 0, TWH_F32, SUPPORT_GAPS, 254, 189,
    254 },
  { "window, not backwards", NONE | CAUSAL, ALL & ~TWH_ORACLE_BACKWARDS, TWH_CAUSAL | TWH_LEFT, M - 1, 1, 1024, 1024, 0,
    TWH_F32, SUPPORT_DENSE, 128, 0, 2 },
  { "window to both sides", NONE | CAUSAL, ALL, TWH_LEFT | TWH_RIGHT, M, 1, 1024, 1024, 0, TWH_F32, SUPPORT_DENSE, 190, 126,
    190 },
  { "declared strides", NONE | CAUSAL, TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES, 0, 0, 4, 256, 256, 0, TWH_F32, SUPPORT_GAPS, 1024,
    960, 0 },
  { "a triangle is all there is", CAUSAL, ALL, 0, 0, 4, 128, 128, 0, TWH_F32, SUPPORT_DENSE, 512, 0, 0 },
  { "f64 tensors", NONE | CAUSAL, ALL, 0, 0, 4, 256, 256, 0, TWH_F64, SUPPORT_DENSE, 1024, 960, 0 },
  { "bf16 tensors", NONE | CAUSAL, ALL, TWH_CAUSAL, 0, 8, 256, 256, 0, TWH_BF16, SUPPORT_DENSE, 1088, 960, 0 },
};

/* A kernel, and what of it writes into the host's tensor. */
typedef struct chains_kernel {
  support_oracle         oracle;
  const support_tensors *tensors;
  int64_t                direct, continued;
} chains_kernel;

static void chains_look(void *user, const twh_call *call, int64_t number)
{
  chains_kernel *kernel = (chains_kernel *)user;
  const char    *out = (const char *)call->out, *all = (const char *)kernel->tensors->memory[3];

  (void)number;
  kernel->direct += out >= all && out < all + kernel->tensors->bytes[3];
}

static void chains_problem(const chains_case *row, twh_pattern *pattern, twh_problem *problem)
{
  twh_pattern_init(pattern);
  pattern->flags = row->pattern;
  pattern->left = row->left;
  pattern->right = row->pattern & TWH_RIGHT ? row->left : 0;
  twh_problem_init(problem);
  problem->batch = 1;
  problem->q_heads = problem->kv_heads = row->heads;
  problem->q_len = row->q_len;
  problem->k_len = row->k_len;
  problem->qk_dim = problem->v_dim = DIM;
  problem->pattern = pattern;
}

static void chains_describe(const chains_case *row, uint32_t flags, twh_oracle_desc *desc)
{
  twh_oracle_desc_init(desc);
  desc->slots = 1;
  desc->q_len = desc->k_len = M;
  desc->qk_dim = desc->v_dim = DIM;
  desc->dtype = TWH_F32;
  desc->flags = flags;
  desc->mask_modes = row->modes;
  desc->scale = 0.4;
  desc->alignment = 4;
  desc->max_calls_per_batch = 16;
  desc->max_concurrent_batches = 64;
}

/* Execute on so many threads; returns the plan's calls. */
static int64_t chains_execute(const chains_case *row, uint32_t flags, int64_t threads, support_tensors *tensors,
                              chains_kernel *kernel, twh_run_stats *stats)
{
  support_memory   memory;
  twh_context     *context = support_context(&memory, threads, threads);
  twh_pattern      pattern;
  twh_problem      problem;
  twh_oracle_desc  desc;
  twh_plan_options limits;
  twh_plan        *plan = NULL;
  twh_plan_info    info;
  twh_run_options  options;

  chains_problem(row, &pattern, &problem);
  chains_describe(row, flags, &desc);
  support_oracle_create(&kernel->oracle, context, &desc, NULL);
  kernel->tensors = tensors;
  kernel->direct = 0;
  kernel->oracle.finite_only = 0;
  kernel->oracle.spoil = chains_look;
  kernel->oracle.spoil_user = kernel;
  twh_plan_options_init(&limits);
  limits.max_calls_per_batch = row->per_batch;
  twh_run_options_init(&options);
  twh_run_stats_init(stats);
  options.stats = stats;
  twh_plan_info_init(&info);
  assert_int_equal(twh_plan_create(context, &problem, &kernel->oracle.oracle, 1, &limits, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  assert_int_equal(twh_plan_execute(plan, &tensors->all, &options, NULL), TWH_OK);
  assert_string_equal(kernel->oracle.broken, "");
  kernel->continued = kernel->oracle.continued;
  twh_plan_destroy(plan);
  support_oracle_destroy(&kernel->oracle);
  twh_context_destroy(context);
  return info.calls;
}

static void chains_fill(const chains_case *row, int flags, uint64_t stream, support_tensors *tensors)
{
  const support_fill fill = { 1.5, 0, 0, 0, 0, 0 };
  support_random     random = support_random_at(41, stream);
  twh_pattern        pattern;
  twh_problem        problem;

  chains_problem(row, &pattern, &problem);
  support_tensors_create(tensors, &problem, row->dtype, row->layout, flags);
  support_tensors_fill(tensors, &problem, &fill, &random);
}

static void chains_compare(const chains_case *row, const support_tensors *tensors)
{
  support_answer  truth, one_call, got;
  twh_pattern     pattern;
  twh_problem     problem;
  twh_oracle_desc desc;

  chains_problem(row, &pattern, &problem);
  chains_describe(row, TWH_ORACLE_LSE, &desc);
  support_answer_truth(&truth, &problem, tensors);
  support_answer_one_call(&one_call, &problem, tensors, &desc, NULL);
  support_answer_read(&got, &problem, tensors);
  support_assert_at_most(support_answer_out_error(&got, &truth),
                         support_out_bound(&one_call, &truth, &desc, 1) + support_ulp(truth.max_out, row->dtype), row->name);
  if (tensors->all.lse)
    support_assert_at_most(support_answer_lse_error(&got, &truth), support_lse_bound(&one_call, &truth, &desc), row->name);
  if (!support_tensors_gaps_untouched(tensors, &problem)) fail_msg("%s: something beside the results was written", row->name);
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  support_answer_destroy(&got);
}

static void chains_expect(const chains_case *row, const char *what, int64_t is, int64_t wanted)
{
  if (is != wanted) fail_msg("%s: %s are %lld, not %lld", row->name, what, (long long)is, (long long)wanted);
}

static void chains_continue_and_are_right(void **state)
{
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(chains_cases); ++i) {
    const chains_case *row = &chains_cases[i];
    support_tensors    tensors;
    chains_kernel      kernel;
    twh_run_stats      stats;
    chains_fill(row, i % 2 ? SUPPORT_LSE : 0, (uint64_t)i, &tensors);
    chains_expect(row, "calls", chains_execute(row, row->flags, 1, &tensors, &kernel, &stats), row->calls);
    chains_expect(row, "continuing calls", kernel.continued, row->continued);
    chains_expect(row, "calls that write into the host's tensor", kernel.direct, row->direct);
    chains_expect(row, "rows of the host", stats.host_rows, 0);
    chains_compare(row, &tensors);
    support_tensors_destroy(&tensors);
  }
}

/* Out and lse are the same bits for any number of threads. */
static void chains_have_the_same_bits_on_any_threads(void **state)
{
  static const int64_t threads[] = { 2, 3, 5, 32 };
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(chains_cases); ++i) {
    const chains_case *row = &chains_cases[i];
    support_tensors    tensors;
    chains_kernel      kernel;
    twh_run_stats      stats;
    void              *before[2];
    chains_fill(row, SUPPORT_LSE, (uint64_t)i, &tensors);
    chains_execute(row, row->flags, 1, &tensors, &kernel, &stats);
    for (int t = 0; t < 2; ++t) {
      before[t] = malloc(tensors.bytes[3 + t]);
      assert_non_null(before[t]);
      memcpy(before[t], tensors.memory[3 + t], tensors.bytes[3 + t]);
    }
    for (int64_t n = 0; n < SUPPORT_COUNT(threads); ++n) {
      support_tensors_clear(&tensors);
      chains_execute(row, row->flags, threads[n], &tensors, &kernel, &stats);
      for (int t = 0; t < 2; ++t) assert_memory_equal(before[t], tensors.memory[3 + t], tensors.bytes[3 + t]);
    }
    free(before[0]);
    free(before[1]);
    support_tensors_destroy(&tensors);
  }
}

/* A sink logit is added to what a chain has summed up; the result is not written by the kernel then. */
static void chains_leave_sinks_to_the_host(void **state)
{
  const chains_case row = { "sinks", NONE | CAUSAL, ALL, 0, 0, 4, 256, 256, 0, TWH_F32, SUPPORT_DENSE, 1024, 960, 0 };
  support_tensors   tensors;
  chains_kernel     kernel;
  twh_run_stats     stats;

  (void)state;
  chains_fill(&row, SUPPORT_LSE | SUPPORT_SINKS, 100, &tensors);
  chains_execute(&row, row.flags, 1, &tensors, &kernel, &stats);
  chains_expect(&row, "continuing calls", kernel.continued, row.continued);
  chains_expect(&row, "calls that write into the host's tensor", kernel.direct, 0);
  chains_compare(&row, &tensors);
  support_tensors_destroy(&tensors);
}

/* Rows whose lse is too large to be told from another are the host's, in each of their tiles; all others are still the kernel's. */
static void chains_fall_apart_where_a_row_cannot_be_read(void **state)
{
  static const int64_t rows[] = { 0, 17, 18, 200 };
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(chains_cases); ++i) {
    const chains_case *row = &chains_cases[i];
    support_tensors    tensors;
    chains_kernel      kernel;
    twh_run_stats      stats, plain;
    if (row->q_len < 201 || row->dtype != TWH_F32) continue;
    chains_fill(row, SUPPORT_LSE, 200 + (uint64_t)i, &tensors);
    for (int64_t r = 0; r < SUPPORT_COUNT(rows); ++r) {
      for (int64_t c = 0; c < DIM; ++c) support_set(&tensors.q, 0, row->heads - 1, rows[r], c, (double)(c + 1) * 3e7);
    }
    chains_execute(row, row->flags & ~(uint32_t)TWH_ORACLE_CONTINUES, 1, &tensors, &kernel, &plain);
    support_tensors_clear(&tensors);
    chains_execute(row, row->flags, 1, &tensors, &kernel, &stats);
    chains_expect(row, "continuing calls", kernel.continued, row->continued);
    if (stats.host_rows < plain.host_rows) chains_expect(row, "rows of the host", stats.host_rows, plain.host_rows);
    for (int64_t r = 0; r < SUPPORT_COUNT(rows); ++r) {
      support_answer truth, got;
      twh_pattern    pattern;
      twh_problem    problem;
      chains_problem(row, &pattern, &problem);
      support_answer_truth(&truth, &problem, &tensors);
      support_answer_read(&got, &problem, &tensors);
      for (int64_t c = 0; c < DIM; ++c) {
        int64_t at = (((row->heads - 1) * row->q_len) + rows[r]) * DIM + c;
        support_assert_at_most(fabs(got.out[at] - truth.out[at]), 1e-6, row->name);
      }
      support_answer_destroy(&truth);
      support_answer_destroy(&got);
    }
    support_tensors_destroy(&tensors);
  }
}

/* A key that is not a number spoils the rows that see it, and no other. */
static void chains_keep_a_nan_to_its_rows(void **state)
{
  const chains_case row = { "causal, NaN", NONE | CAUSAL, ALL, TWH_CAUSAL, 0, 1, 256, 256, 0,
                            TWH_F32,       SUPPORT_DENSE, 136, 112,        36 };
  support_tensors   tensors;
  chains_kernel     kernel;
  twh_run_stats     stats;

  (void)state;
  chains_fill(&row, 0, 300, &tensors);
  support_set(&tensors.k, 0, 0, 100, 3, (double)NAN);
  chains_execute(&row, row.flags, 2, &tensors, &kernel, &stats);
  for (int64_t r = 0; r < row.q_len; ++r) {
    for (int64_t c = 0; c < DIM; ++c) assert_int_equal(isnan(support_at(&tensors.out, 0, 0, r, c)) != 0, r >= 100);
  }
  support_tensors_destroy(&tensors);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(chains_continue_and_are_right),  cmocka_unit_test(chains_have_the_same_bits_on_any_threads),
    cmocka_unit_test(chains_leave_sinks_to_the_host), cmocka_unit_test(chains_fall_apart_where_a_row_cannot_be_read),
    cmocka_unit_test(chains_keep_a_nan_to_its_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
