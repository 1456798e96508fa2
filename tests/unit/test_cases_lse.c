/* Cases that broke other libraries: the log-sum-exp, its base, its shift, and sums of many equal weights. */
#include "support.h"

static void case_C13_base2_lse_is_converted(void **state)
{
  static const double out[] = { 2.0 };
  double              v[16], lse[] = { log(16.0) };
  support_head        head;
  int64_t             i, m;
  (void)state;
  for (i = 0; i < 16; ++i) v[i] = i < 12 ? 1.0 : 5.0;
  support_head_init(&head, 1, 16, 0);
  head.v = v;
  support_head_expect("C13", &head, 12, out, lse, 2.0);
  for (m = 1; m <= 17; ++m) support_head_expect("C13", &head, m, out, lse, 4.0);
}

static void case_C16_large_logits_one_key_per_tile(void **state)
{
  static const double q[] = { 1, 1, 1, 1 }, k[] = { 800, 0, 800, -1 }, v[] = { 1, 3 };
  static const double out[] = { 1.5378828427, 1.5378828427 }, lse[] = { 800.3132616875, 800.3132616875 };
  support_head        head;
  int64_t             m;
  (void)state;
  support_head_init(&head, 2, 2, 0);
  head.problem.qk_dim = 2;
  head.height = 800.0;
  head.q = q;
  head.k = k;
  head.v = v;
  for (m = 1; m <= 4; ++m) support_head_expect("C16", &head, m, out, lse, 2.0);
}

static void case_C18_an_output_and_lse_that_a_shift_would_betray(void **state)
{
  static const double q[] = { 1 }, k[] = { 1, 3, 10, 12 }, v[] = { 1, 2, 3, 4 }, out[] = { 3.8805502888 },
                      lse[] = { 12.1270514132 };
  support_head head;
  int64_t      m;
  (void)state;
  support_head_init(&head, 1, 4, 0);
  head.q = q;
  head.k = k;
  head.v = v;
  for (m = 1; m <= 5; ++m) support_head_expect("C18", &head, m, out, lse, 3.0);
}

/* Below what f16 can hold; in bf16 the two keys are one apart only through a second column. */
static void case_C19_logits_below_any_finite_sentinel(void **state)
{
  static const double q[] = { 1, 1, 1 }, k[] = { -66560, -294, 0, -66560, -294, -1 }, v[] = { 1, 3 };
  static const double out[] = { 1.5378828427 }, lse[] = { -66853.6867382 };
  support_head        head;
  int64_t             m;
  (void)state;
  support_head_init(&head, 1, 2, 0);
  head.problem.qk_dim = 3;
  head.height = 66854.0;
  head.without = 1u << TWH_F16;
  head.q = q;
  head.k = k;
  head.v = v;
  for (m = 1; m <= 3; ++m) support_head_expect("C19", &head, m, out, lse, 3.0);
}

static void case_C26_equal_values_come_out_as_they_are(void **state)
{
  static const int64_t lengths[] = { 100, 512, 1000 };
  double               k[4096 * 2], q[8 * 2], out[8], lse[8];
  support_random       random = support_random_at(support_seed(26), 0);
  int64_t              i, j;
  (void)state;
  for (i = 0; i < 4096 * 2; ++i) k[i] = support_round(support_normal(&random), TWH_F16);
  for (i = 0; i < 16; ++i) q[i] = support_round(support_normal(&random), TWH_F16);
  for (j = 0; j < SUPPORT_COUNT(lengths); ++j)
    for (i = 0; i < 4; ++i) { /* lse, a spare column, two, none */
      twh_oracle_desc desc;
      support_head    head;
      int64_t         r;
      support_head_init(&head, 8, 4096, 0);
      head.problem.qk_dim = 2;
      head.q = q;
      head.k = k;
      twh_oracle_desc_init(&desc);
      desc.flags = i == 0 ? TWH_ORACLE_LSE : 0;
      desc.slots = 1;
      desc.q_len = 8;
      desc.k_len = lengths[j];
      desc.qk_dim = 2;
      desc.v_dim = i == 1 ? 2 : i == 2 ? 3 : 1;
      desc.dtype = TWH_F16;
      desc.mask_modes = TWH_MASK_NONE;
      desc.scale = 1.0;
      assert_int_equal(support_head_run("C26", &head, &desc, out, lse, NULL, NULL), TWH_OK);
      for (r = 0; r < 8; ++r) support_assert_at_most(fabs(out[r] - 1.0), support_epsilon(TWH_F16), "C26");
    }
}

static void case_C69_large_values_stay_within_f16(void **state)
{
  double       v[64], out[64];
  support_head head;
  int64_t      i, m;
  (void)state;
  for (i = 0; i < 64; ++i) v[i] = out[i] = 60000.0;
  support_head_init(&head, 64, 64, 0);
  head.v = v;
  head.without = 1u << TWH_BF16; /* it has no 60000 */
  for (m = 7; m <= 64; m += 19) support_head_expect("C69", &head, m, out, NULL, 2.0);
  support_head_init(&head, 64, 64, 1);
  head.v = v;
  head.without = 1u << TWH_BF16;
  for (m = 7; m <= 64; m += 19) support_head_expect("C69", &head, m, out, NULL, 2.0);
}

static void case_C73_lse_of_equal_keys_at_any_height(void **state)
{
  static const double heights[] = { -20.0, -1000.0, 1000.0, 0.0 };
  double              q[] = { 1.0 }, k[4], out[1], lse[1];
  int64_t             h, m, i;
  (void)state;
  for (h = 0; h < SUPPORT_COUNT(heights); ++h)
    for (m = 1; m <= 9; ++m)
      for (i = 0; i < support_kernel_count; ++i) {
        support_head    head;
        twh_oracle_desc desc;
        double          relative;
        support_head_init(&head, 1, 4, 0);
        support_kernel_desc(&support_kernels[i], &head.problem, m, m, &desc);
        if (desc.dtype != TWH_F32 || !support_must_run(&head.problem, &desc)) continue;
        k[0] = k[1] = k[2] = k[3] = heights[h];
        head.q = q;
        head.k = k;
        assert_int_equal(support_head_run("C73", &head, &desc, out, lse, NULL, NULL), TWH_OK);
        relative = fabs(expm1(lse[0] - heights[h] - log(4.0)));
        support_assert_at_most(relative, fabs(heights[h]) > 100.0 ? 1e-4 : 1e-5, support_kernels[i].name);
        support_assert_at_most(fabs(out[0] - 1.0), 1e-6 + support_ulp(heights[h], TWH_F32), support_kernels[i].name);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C13_base2_lse_is_converted),
    cmocka_unit_test(case_C16_large_logits_one_key_per_tile),
    cmocka_unit_test(case_C18_an_output_and_lse_that_a_shift_would_betray),
    cmocka_unit_test(case_C19_logits_below_any_finite_sentinel),
    cmocka_unit_test(case_C26_equal_values_come_out_as_they_are),
    cmocka_unit_test(case_C69_large_values_stay_within_f16),
    cmocka_unit_test(case_C73_lse_of_equal_keys_at_any_height),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
