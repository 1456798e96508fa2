/* Cases that broke other libraries: kernels that do not do what they say, and kernels that break outside what they declare.
 *
 * A lie is told by a callback between the library and an honest reference kernel: it changes what that one sees or returns. */
#include "support.h"

enum { LIE_NONE, LIE_BASE, LIE_SHIFT, LIE_MASK, LIE_CRASH };

typedef struct lies_kernel {
  twh_oracle     *inner, *oracle;
  twh_oracle_desc desc;
  int             lie;
  int64_t         calls, crashes;
} lies_kernel;

/* The mean key of each slot is taken away first: the output stays right, and lse loses scale <q, mean of k>. f32 only. */
static int32_t lies_shift(const lies_kernel *kernel, const twh_call *call)
{
  int64_t         s, j, c, n = call->k_len, dim = kernel->desc.qk_dim;
  float          *keys = (float *)malloc(sizeof(float) * (size_t)(call->slots * n * dim));
  twh_call        copy = *call;
  const twh_call *calls[1];
  int32_t         code;
  if (!keys) return 12;
  for (s = 0; s < call->slots; ++s)
    for (c = 0; c < dim; ++c) {
      const float *from = (const float *)call->k.data + s * call->k.slot_stride + c;
      double       mean = 0.0;
      for (j = 0; j < n; ++j) mean += (double)from[j * call->k.row_stride] / (double)n;
      for (j = 0; j < n; ++j) keys[(s * n + j) * dim + c] = (float)((double)from[j * call->k.row_stride] - mean);
    }
  copy.k.data = keys;
  copy.k.row_stride = dim;
  copy.k.slot_stride = n * dim;
  calls[0] = &copy;
  code = kernel->desc.run(kernel->desc.user, calls, 1);
  free(keys);
  return code;
}

/* The mask is read up to position 511; behind it every key is seen. */
static int32_t lies_half_a_mask(const lies_kernel *kernel, const twh_call *call)
{
  int64_t         s, i, n = call->k_len;
  unsigned char  *mask = (unsigned char *)malloc((size_t)(call->slots * call->q_len * n));
  twh_call        copy = *call;
  const twh_call *calls[1];
  int32_t         code;
  if (!mask) return 12;
  for (s = 0; s < call->slots; ++s)
    for (i = 0; i < call->q_len; ++i) {
      unsigned char *row = mask + (s * call->q_len + i) * n;
      memcpy(row, (const unsigned char *)call->mask.data + s * call->mask.slot_stride + i * call->mask.row_stride, (size_t)n);
      if (n > 512) memset(row + 512, 1, (size_t)(n - 512));
    }
  copy.mask.data = mask;
  copy.mask.row_stride = n;
  copy.mask.slot_stride = call->q_len * n;
  calls[0] = &copy;
  code = kernel->desc.run(kernel->desc.user, calls, 1);
  free(mask);
  return code;
}

static int32_t lies_run(void *user, const twh_call *const *calls, int64_t n)
{
  lies_kernel *kernel = (lies_kernel *)user;
  int64_t      i, s, r;
  int32_t      code = 0;
  for (i = 0; i < n && !code; ++i) {
    const twh_call *call = calls[i];
    ++kernel->calls;
    if (kernel->lie == LIE_CRASH && (call->q_len < kernel->desc.q_len_min || call->q_len % kernel->desc.q_len_step != 0)) {
      ++kernel->crashes; /* this is where the kernel that the case is about would have gone down */
      return -11;
    }
    if (kernel->lie == LIE_MASK && call->mask_mode == TWH_MASK_TENSOR)
      code = lies_half_a_mask(kernel, call);
    else if (kernel->lie == LIE_SHIFT)
      code = lies_shift(kernel, call);
    else
      code = kernel->desc.run(kernel->desc.user, calls + i, 1);
    for (s = 0; kernel->lie == LIE_BASE && s < call->slots; ++s)
      for (r = 0; r < call->q_len; ++r) call->lse[s * call->lse_slot_stride + r] *= 1.44269504f;
  }
  return code;
}

static void lies_create(lies_kernel *kernel, const twh_oracle_desc *desc, int lie)
{
  twh_oracle_desc outer = *desc;
  memset(kernel, 0, sizeof *kernel);
  kernel->lie = lie;
  assert_int_equal(twh_reference_oracle_create(NULL, desc, NULL, &kernel->inner, NULL), TWH_OK);
  twh_oracle_desc_init(&kernel->desc);
  assert_int_equal(twh_oracle_get_desc(kernel->inner, &kernel->desc, NULL), TWH_OK);
  outer.run = lies_run;
  outer.user = kernel;
  assert_int_equal(twh_oracle_create(NULL, &outer, &kernel->oracle, NULL), TWH_OK);
}

static void lies_destroy(lies_kernel *kernel)
{
  twh_oracle_destroy(kernel->oracle);
  twh_oracle_destroy(kernel->inner);
}

typedef struct lies_report {
  int64_t     untrue;
  const char *word; /* looked for in the names of untrue promises */
  int         found;
} lies_report;

static void lies_hear(void *user, const char *promise, int32_t verdict, const char *detail)
{
  lies_report *report = (lies_report *)user;
  assert_non_null(detail);
  if (verdict != TWH_CHECK_UNTRUE) return;
  ++report->untrue;
  if (report->word && strstr(promise, report->word)) report->found = 1;
}

/* The check must find the lie, under a promise whose name contains `word`, and nothing in the same kernel without it. */
static void lies_check(const twh_oracle_desc *desc, int lie, const char *word)
{
  lies_kernel kernel;
  lies_report report;
  int64_t     untrue;
  int         i;
  for (i = 0; i < 2; ++i) {
    memset(&report, 0, sizeof report);
    report.word = word;
    untrue = -1;
    lies_create(&kernel, desc, i ? lie : LIE_NONE);
    assert_int_equal(twh_oracle_check(NULL, kernel.oracle, lies_hear, &report, &untrue, NULL), TWH_OK);
    assert_int_equal(untrue, report.untrue);
    assert_int_equal(untrue > 0, i);
    assert_int_equal(report.found, i);
    lies_destroy(&kernel);
  }
}

static twh_oracle_desc lies_desc(uint32_t modes, uint32_t flags, int64_t m)
{
  twh_oracle_desc desc;
  twh_oracle_desc_init(&desc);
  desc.flags = flags;
  desc.slots = 1;
  desc.q_len = desc.k_len = m;
  desc.qk_dim = desc.v_dim = 4;
  desc.dtype = TWH_F32;
  desc.mask_modes = modes;
  desc.scale = 0.5;
  return desc;
}

static void case_C14_base_2_declared_as_base_e_is_found(void **state)
{
  twh_oracle_desc desc = lies_desc(TWH_MASK_NONE, TWH_ORACLE_LSE, 16);
  (void)state;
  lies_check(&desc, LIE_BASE, "lse");
}

static void case_C18_a_shifted_lse_is_found(void **state)
{
  twh_oracle_desc desc = lies_desc(TWH_MASK_NONE, TWH_ORACLE_LSE, 16);
  (void)state;
  lies_check(&desc, LIE_SHIFT, "lse");
}

/* The same kernel does no harm to who does not read its lse. */
static void case_C18_a_shift_that_the_output_does_not_show_is_harmless_to_anchors(void **state)
{
  static const double q[] = { 1, 0, 0, 0 }, k[] = { 1, 0, 0, 0, 3, 0, 0, 0, 10, 0, 0, 0, 12, 0, 0, 0 };
  float               query[4], keys[16], v[] = { 1, 2, 3, 4 }, out[1], lse[1];
  twh_oracle_desc     desc = lies_desc(TWH_MASK_NONE, 0, 2);
  lies_kernel         kernel;
  twh_problem         problem;
  twh_plan           *plan = NULL;
  twh_tensor          tq, tk, tv, to, tl;
  twh_tensors         tensors;
  int                 i;
  (void)state;
  for (i = 0; i < 4; ++i) query[i] = (float)q[i];
  for (i = 0; i < 16; ++i) keys[i] = (float)k[i];
  desc.scale = 1.0;
  twh_problem_init(&problem);
  problem.batch = problem.q_heads = problem.kv_heads = problem.q_len = problem.v_dim = 1;
  problem.k_len = problem.qk_dim = 4;
  problem.flags = TWH_PROBLEM_SCALE;
  problem.scale = 1.0;
  twh_tensor_dense(&tq, TWH_F32, query, 1, 1, 4);
  twh_tensor_dense(&tk, TWH_F32, keys, 1, 4, 4);
  twh_tensor_dense(&tv, TWH_F32, v, 1, 4, 1);
  twh_tensor_dense(&to, TWH_F32, out, 1, 1, 1);
  twh_tensor_dense(&tl, TWH_F32, lse, 1, 1, 1);
  twh_tensors_init(&tensors);
  tensors.q = &tq;
  tensors.k = &tk;
  tensors.v = &tv;
  tensors.out = &to;
  tensors.lse = &tl;
  for (i = 0; i < 2; ++i) { /* without lse the anchors read it rightly; with it the shift shows */
    desc.flags = i ? TWH_ORACLE_LSE : 0;
    lies_create(&kernel, &desc, LIE_SHIFT);
    assert_int_equal(twh_plan_create(NULL, &problem, &kernel.oracle, 1, NULL, &plan, NULL), TWH_OK);
    assert_int_equal(twh_plan_execute(plan, &tensors, NULL, NULL), TWH_OK);
    support_assert_at_most(i ? 0.0 : fabs((double)out[0] - 3.8805502888), 1e-5, "out");
    if (i == 0)
      support_assert_at_most(fabs((double)lse[0] - 12.1270514132), 1e-5, "lse");
    else
      assert_true(fabs((double)lse[0] - 12.1270514132) > 0.5);
    twh_plan_destroy(plan);
    lies_destroy(&kernel);
  }
}

static void case_C79_a_mask_that_is_honoured_up_to_position_512_is_found(void **state)
{
  twh_oracle_desc desc = lies_desc(TWH_MASK_TENSOR, 0, 520);
  (void)state;
  desc.mask_dtype = TWH_BOOL;
  lies_check(&desc, LIE_MASK, "mask");
  desc.q_len = 3;
  desc.flags = TWH_ORACLE_LSE;
  lies_check(&desc, LIE_MASK, "mask");
}

static void case_C82_declared_limits_on_rows_are_respected(void **state)
{
  static const int64_t limits[][3] = {
    { 8, 1, 1 }, { 8, 4, 2 }, { 8, 8, 1 }, { 8, 2, 4 }, { 12, 1, 3 }, { 12, 5, 6 }
  }; /* q_len, min, step */
  int64_t i, n;
  int     causal;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(limits); ++i)
    for (n = 1; n <= 30; ++n)
      for (causal = 0; causal < 2; ++causal) {
        twh_oracle_desc desc = lies_desc(TWH_MASK_NONE | TWH_MASK_CAUSAL, TWH_ORACLE_FEWER_ROWS, 8);
        twh_problem     problem;
        twh_pattern     pattern;
        twh_plan       *plan = NULL;
        lies_kernel     kernel;
        support_tensors tensors;
        support_random  random = support_random_at(support_seed(82), (uint64_t)n);
        support_fill    fill;
        memset(&fill, 0, sizeof fill);
        fill.logit_std = 1.0;
        desc.q_len = limits[i][0];
        desc.q_len_min = limits[i][1];
        desc.q_len_step = limits[i][2];
        twh_pattern_init(&pattern);
        pattern.flags = causal ? TWH_CAUSAL : 0;
        twh_problem_init(&problem);
        problem.batch = 1;
        problem.q_heads = 3;
        problem.kv_heads = 1;
        problem.q_len = problem.k_len = n;
        problem.qk_dim = problem.v_dim = 4;
        problem.pattern = &pattern;
        lies_create(&kernel, &desc, LIE_CRASH);
        support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, 0);
        support_tensors_fill(&tensors, &problem, &fill, &random);
        assert_int_equal(twh_plan_create(NULL, &problem, &kernel.oracle, 1, NULL, &plan, NULL), TWH_OK);
        assert_int_equal(twh_plan_execute(plan, &tensors.all, NULL, NULL), TWH_OK);
        assert_true(kernel.calls > 0 || n < 5); /* a few keys are nothing that a kernel is needed for */
        assert_int_equal(kernel.crashes, 0);
        twh_plan_destroy(plan);
        support_tensors_destroy(&tensors);
        lies_destroy(&kernel);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C14_base_2_declared_as_base_e_is_found),
    cmocka_unit_test(case_C18_a_shifted_lse_is_found),
    cmocka_unit_test(case_C18_a_shift_that_the_output_does_not_show_is_harmless_to_anchors),
    cmocka_unit_test(case_C79_a_mask_that_is_honoured_up_to_position_512_is_found),
    cmocka_unit_test(case_C82_declared_limits_on_rows_are_respected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
