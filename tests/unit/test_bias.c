/* Key biases and ALiBi through spare coordinates: against the definition, on kernels that take no mask or only a causal one, in
 * f32, bf16 and f16, and refusals that name the field.
 *
 * The bound is that of one call whose mask operand carries the biases in f32; where biases are so large that this bound says
 * nothing, results are compared with what is left after the part that all keys share is taken away. */
#include "support.h"

typedef struct bias_kernel {
  const char *name;
  uint32_t    modes;
  int         lse;
  int64_t     spare; /* coordinates; -1: as few as will do */
  int32_t     dtype;
} bias_kernel;

static const bias_kernel bias_kernels[] = {
  {"none, f32, column", TWH_MASK_NONE, 0, 16, TWH_F32},
  {"none, f32, lse, few", TWH_MASK_NONE, 1, -1, TWH_F32},
  {"none, f32, few", TWH_MASK_NONE, 0, -1, TWH_F32},
  {"causal, f32, column", TWH_MASK_CAUSAL, 0, 16, TWH_F32},
  {"causal, f32, few", TWH_MASK_CAUSAL, 0, -1, TWH_F32},
  {"none + causal, f32, lse", TWH_MASK_NONE | TWH_MASK_CAUSAL, 1, 6, TWH_F32},
  {"mask, f32, column", TWH_MASK_TENSOR, 0, 4, TWH_F32},
  {"none, bf16, column", TWH_MASK_NONE, 0, 16, TWH_BF16},
  {"causal, bf16, lse", TWH_MASK_CAUSAL, 1, 16, TWH_BF16},
  {"causal, bf16, few", TWH_MASK_CAUSAL, 0, -1, TWH_BF16},
  {"none, f16, column", TWH_MASK_NONE, 0, 16, TWH_F16},
  {"none, f16, lse, few", TWH_MASK_NONE, 1, -1, TWH_F16},
  {"causal, f16, column", TWH_MASK_CAUSAL, 0, 16, TWH_F16},
};

typedef struct bias_setup {
  twh_problem     problem;
  twh_pattern     pattern;
  twh_sequence    sequence;
  twh_oracle_desc desc;
  support_tensors tensors;
} bias_setup;

/* 2 query heads on one kv head, n tokens, a kernel of length m. */
static void bias_problem(bias_setup *s, const bias_kernel *kernel, uint32_t flags, uint32_t pattern, int64_t n, int64_t m)
{
  memset(s, 0, sizeof *s);
  twh_problem_init(&s->problem);
  twh_pattern_init(&s->pattern);
  twh_oracle_desc_init(&s->desc);
  s->pattern.flags = pattern;
  s->problem.pattern = &s->pattern;
  s->problem.flags = flags;
  s->problem.batch = 1;
  s->problem.q_heads = 2;
  s->problem.kv_heads = 1;
  s->problem.q_len = s->problem.k_len = n;
  s->problem.qk_dim = s->problem.v_dim = 6;
  s->desc.slots = 1;
  s->desc.q_len = s->desc.k_len = m;
  s->desc.dtype = kernel->dtype;
  s->desc.qk_dim = 6 + (kernel->spare < 0 ? support_bias_coordinates(&s->desc) : kernel->spare);
  s->desc.v_dim = 6 + !kernel->lse;
  s->desc.flags = kernel->lse ? TWH_ORACLE_LSE : 0;
  s->desc.mask_modes = kernel->modes;
  s->desc.mask_dtype = TWH_F32;
  s->desc.scale = support_scale(&s->problem);
}

static void bias_fill(bias_setup *s, int flags)
{
  support_random random = support_random_at(support_seed(46), (uint64_t)s->desc.dtype);
  support_fill   fill;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1.0;
  fill.mask_share = 0.3;
  fill.rounding = s->desc.dtype;
  support_tensors_create(&s->tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE | flags);
  support_tensors_fill(&s->tensors, &s->problem, &fill, &random);
}

static void bias_check(bias_setup *s, const char *name)
{
  support_answer truth, one_call, got;
  twh_error      error;
  twh_error_init(&error);
  support_assert_status(support_solve(name, &s->problem, &s->desc, &s->tensors, NULL, &error), TWH_OK, &error, NULL);
  support_answer_truth(&truth, &s->problem, &s->tensors);
  support_answer_one_call(&one_call, &s->problem, &s->tensors, &s->desc, NULL);
  support_answer_read(&got, &s->problem, &s->tensors);
  support_assert_at_most(support_answer_out_error(&got, &truth), support_out_bound(&one_call, &truth, &s->desc, 1), name);
  support_assert_at_most(support_answer_lse_error(&got, &truth), support_lse_bound(&one_call, &truth, &s->desc), name);
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  support_answer_destroy(&got);
  support_tensors_destroy(&s->tensors);
}

static void biases_equal_the_definition_on_every_kernel(void **state)
{
  static const uint32_t patterns[] = { 0, TWH_CAUSAL, TWH_CAUSAL | TWH_LEFT, TWH_LEFT | TWH_RIGHT };
  static const uint32_t kinds[] = { TWH_PROBLEM_KEY_BIAS, TWH_PROBLEM_ALIBI, TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI };
  int64_t               i, p, k, broad;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(bias_kernels); ++i)
    for (p = 0; p < SUPPORT_COUNT(patterns); ++p)
      for (k = 0; k < SUPPORT_COUNT(kinds); ++k)
        for (broad = 0; broad < 2; ++broad) {
          bias_setup s;
          char       name[120];
          bias_problem(&s, &bias_kernels[i], kinds[k], patterns[p], 70, 16);
          s.pattern.left = 9;
          s.pattern.right = 3;
          s.pattern.sink_tokens = broad ? 2 : 0;
          bias_fill(&s, broad ? SUPPORT_BROADCAST | SUPPORT_SINKS : 0);
          snprintf(name, sizeof name, "%s, pattern %u, biases %u", bias_kernels[i].name, patterns[p], kinds[k]);
          bias_check(&s, name);
        }
}

/* Keys and queries at 2^20 and beyond: what counts is their distance, and no digit of it may go. */
static void alibi_at_large_positions_loses_no_digits(void **state)
{
  static const int64_t far[][2] = { { 0, 0 }, { 1 << 20, 1 << 20 }, { (1 << 20) + 5, 1 << 20 }, { 1 << 20, 0 } }; /* of q and k */
  int64_t              i, f, h, r, c;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(bias_kernels); ++i)
    for (f = 0; f < SUPPORT_COUNT(far); ++f) {
      bias_setup     s;
      support_answer near_by, got;
      double         shift, ulps = 4.0 * support_epsilon(bias_kernels[i].dtype);
      bias_problem(&s, &bias_kernels[i], TWH_PROBLEM_ALIBI, f < 3 ? TWH_CAUSAL : 0, 50, 16);
      s.sequence.q_len = s.sequence.k_len = 50;
      s.sequence.q_offset = far[f][0];
      s.sequence.k_offset = far[f][1];
      s.problem.sequences = &s.sequence;
      s.problem.q_len = s.problem.k_len = 0;
      bias_fill(&s, 0);
      support_set(&s.tensors.slopes, 0, 0, 0, 0, 0.5);
      support_set(&s.tensors.slopes, 0, 1, 0, 0, 0.0625);
      assert_int_equal(support_solve(bias_kernels[i].name, &s.problem, &s.desc, &s.tensors, NULL, NULL), TWH_OK);
      support_answer_read(&got, &s.problem, &s.tensors);
      /* the same distances but for a constant, which moves lse alone */
      s.sequence.q_offset = f == 3 ? 0 : far[f][0] - far[f][1];
      s.sequence.k_offset = 0;
      support_answer_truth(&near_by, &s.problem, &s.tensors);
      for (h = 0; h < 2; ++h)
        for (r = 0; r < 50; ++r) {
          for (c = 0; c < 6; ++c)
            support_assert_at_most(fabs(got.out[(h * 50 + r) * 6 + c] - near_by.out[(h * 50 + r) * 6 + c]), 4.0 * ulps,
                                   bias_kernels[i].name);
          shift = f == 3 ? -(h ? 0.0625 : 0.5) * (double)far[f][0] : 0.0;
          support_assert_at_most(fabs(got.lse[h * 50 + r] - shift - near_by.lse[h * 50 + r]),
                                 4.0 * ulps + support_ulp(shift, TWH_F32), bias_kernels[i].name);
        }
      support_answer_destroy(&near_by);
      support_answer_destroy(&got);
      support_tensors_destroy(&s.tensors);
    }
}

/* Biases of any height, with more digits than the kernel's dtype has: a constant part shows in lse alone. */
static void key_biases_keep_the_digits_of_f32(void **state)
{
  static const double heights[] = { 0.0, 8.0, 100.0, -1000.0 };
  int64_t             i, t, h, r, c, j;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(bias_kernels); ++i)
    for (t = 0; t < SUPPORT_COUNT(heights); ++t) {
      bias_setup     s;
      support_random random = support_random_at(support_seed(460), (uint64_t)t);
      support_answer truth, got;
      double         ulps = 4.0 * support_epsilon(bias_kernels[i].dtype), lost = 4.0 * support_ulp(heights[t] + 4.0, TWH_F32);
      bias_problem(&s, &bias_kernels[i], TWH_PROBLEM_KEY_BIAS, TWH_CAUSAL, 50, 16);
      bias_fill(&s, 0);
      for (h = 0; h < 2; ++h)
        for (j = 0; j < 50; ++j)
          support_set(&s.tensors.key_bias, 0, h, j, 0, heights[t] + support_normal(&random)); /* 24 digits each */
      assert_int_equal(support_solve(bias_kernels[i].name, &s.problem, &s.desc, &s.tensors, NULL, NULL), TWH_OK);
      support_answer_read(&got, &s.problem, &s.tensors);
      support_answer_truth(&truth, &s.problem, &s.tensors);
      for (h = 0; h < 2; ++h)
        for (r = 0; r < 50; ++r) {
          for (c = 0; c < 6; ++c)
            support_assert_at_most(fabs(got.out[(h * 50 + r) * 6 + c] - truth.out[(h * 50 + r) * 6 + c]), 4.0 * (ulps + lost),
                                   bias_kernels[i].name);
          support_assert_at_most(fabs(got.lse[h * 50 + r] - truth.lse[h * 50 + r]), 4.0 * (ulps + lost), bias_kernels[i].name);
        }
      support_answer_destroy(&truth);
      support_answer_destroy(&got);
      support_tensors_destroy(&s.tensors);
    }
}

static void biases_add_to_a_mask_tensor(void **state)
{
  static const int32_t masks[] = { TWH_BOOL, TWH_F32, TWH_F16 };
  static const int32_t dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  int64_t              i, d;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(masks); ++i)
    for (d = 0; d < SUPPORT_COUNT(dtypes); ++d) {
      bias_kernel kernel = { "mask and biases", TWH_MASK_TENSOR, 0, 8, 0 };
      bias_setup  s;
      kernel.dtype = dtypes[d];
      bias_problem(&s, &kernel, TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI, TWH_CAUSAL, 50, 16);
      s.problem.mask_dtype = masks[i];
      bias_fill(&s, SUPPORT_SINKS);
      bias_check(&s, kernel.name);
    }
}

/* Requests of a ragged batch with biases: positions begin anew in each, and packing has fewer coordinates left. */
static void biases_of_packed_requests(void **state)
{
  static twh_sequence sequences[20];
  int64_t             i, b, rows = 0;
  (void)state;
  for (b = 0; b < SUPPORT_COUNT(sequences); ++b) {
    sequences[b].q_begin = sequences[b].k_begin = rows;
    sequences[b].q_len = sequences[b].k_len = 1 + b * 5 % 11;
    sequences[b].q_offset = sequences[b].k_offset = b % 3 * 1000;
    rows += sequences[b].q_len;
  }
  for (i = 0; i < SUPPORT_COUNT(bias_kernels); ++i) {
    bias_setup s;
    bias_problem(&s, &bias_kernels[i], TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI, TWH_CAUSAL, 0, 32);
    s.problem.batch = SUPPORT_COUNT(sequences);
    s.problem.sequences = sequences;
    bias_fill(&s, 0);
    bias_check(&s, bias_kernels[i].name);
  }
}

/* ---- refusals ---- */

static twh_status bias_plan(bias_setup *s, twh_error *error)
{
  support_oracle oracle;
  twh_plan      *plan = NULL;
  twh_status     status;
  support_oracle_create(&oracle, NULL, &s->desc, NULL);
  status = twh_plan_create(NULL, &s->problem, &oracle.oracle, 1, NULL, &plan, error);
  if (status < 0) assert_null(plan);
  twh_plan_destroy(plan);
  support_oracle_destroy(&oracle);
  return status;
}

static void biases_that_a_kernel_cannot_carry_are_refused(void **state)
{
  static const uint32_t kinds[] = { TWH_PROBLEM_KEY_BIAS, TWH_PROBLEM_ALIBI };
  int64_t               i, k;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(bias_kernels); ++i)
    for (k = 0; k < 2; ++k) {
      bias_setup s;
      twh_error  error;
      twh_error_init(&error);
      if (bias_kernels[i].modes & TWH_MASK_TENSOR) continue;
      bias_problem(&s, &bias_kernels[i], kinds[k], TWH_CAUSAL, 20, 8);
      s.desc.qk_dim = s.problem.qk_dim;
      support_assert_status(bias_plan(&s, &error), TWH_E_UNSUPPORTED, &error, "qk_dim");
      bias_problem(&s, &bias_kernels[i], kinds[k], TWH_CAUSAL, 20, 8);
      s.problem.softcap = s.desc.softcap = 10.0;
      assert_true(bias_plan(&s, &error) < 0);
      assert_non_null(strstr(error.message, "softcap"));
    }
}

static void bias_tensors_that_do_not_suit_are_refused_by_name(void **state)
{
  static const struct {
    uint32_t    flags;
    int         change; /* 0 missing, 1 no data, 2 a bool, 3 given but not declared */
    const char *word;
  } rows[] = {
    {TWH_PROBLEM_KEY_BIAS, 0, "key_bias"}, {TWH_PROBLEM_KEY_BIAS, 1, "key_bias"}, {TWH_PROBLEM_KEY_BIAS, 2, "key_bias"},
    {TWH_PROBLEM_KEY_BIAS, 3, "key_bias"}, {TWH_PROBLEM_ALIBI, 0, "alibi_slopes"}, {TWH_PROBLEM_ALIBI, 1, "alibi_slopes"},
    {TWH_PROBLEM_ALIBI, 2, "alibi_slopes"}, {TWH_PROBLEM_ALIBI, 3, "alibi_slopes"},
  };
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(rows); ++i) {
    bias_setup  s;
    twh_error   error;
    twh_tensor *tensor;
    twh_error_init(&error);
    bias_problem(&s, &bias_kernels[0], rows[i].flags, TWH_CAUSAL, 20, 8);
    bias_fill(&s, 0);
    tensor = rows[i].flags == TWH_PROBLEM_ALIBI ? &s.tensors.slopes : &s.tensors.key_bias;
    if (rows[i].change == 0) s.tensors.all.key_bias = s.tensors.all.alibi_slopes = NULL;
    if (rows[i].change == 1) tensor->data = NULL;
    if (rows[i].change == 2) tensor->dtype = TWH_BOOL;
    if (rows[i].change == 3) s.problem.flags = 0;
    support_assert_status(support_solve("refused", &s.problem, &s.desc, &s.tensors, NULL, &error), TWH_E_ARGUMENT, &error,
                          rows[i].word);
    support_tensors_destroy(&s.tensors);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(biases_equal_the_definition_on_every_kernel),
    cmocka_unit_test(alibi_at_large_positions_loses_no_digits),
    cmocka_unit_test(key_biases_keep_the_digits_of_f32),
    cmocka_unit_test(biases_add_to_a_mask_tensor),
    cmocka_unit_test(biases_of_packed_requests),
    cmocka_unit_test(biases_that_a_kernel_cannot_carry_are_refused),
    cmocka_unit_test(bias_tensors_that_do_not_suit_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
