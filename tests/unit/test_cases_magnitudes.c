/* Cases that broke other libraries: softcaps, scales, short tiles at great heights, kernels that read their sums from anchors.
 *
 * Where a case asks for the error of one call, that call is the reference kernel of full length with the same arithmetic. */
#include "support.h"

static void case_C66_and_C67_the_cap_comes_before_the_mask_and_is_exact(void **state)
{
  static const double v[] = { 1, 100 }, one[] = { 1.0 }, zero[] = { 0.0 }, q[] = { 100.0 }, k[] = { 100.0, 100.0 },
                      mean[] = { 50.5 };
  static const unsigned char mask[] = { 1, 0 };
  double                     fifty[] = { 50.0 + log(2.0) };
  support_head               head;
  int64_t                    m;
  (void)state;
  for (m = 1; m <= 4; ++m) {
    support_head_init(&head, 1, 2, 0);
    head.problem.softcap = 1.0;
    head.problem.mask_dtype = TWH_BOOL;
    head.mask = mask;
    head.v = v;
    support_head_expect("C66", &head, m, one, zero, 1.0);
    support_head_init(&head, 1, 2, 0);
    head.problem.softcap = head.height = 50.0;
    head.q = q;
    head.k = k;
    head.v = v;
    support_head_expect("C67", &head, m, mean, fifty, 3.0);
  }
}

static void magnitudes_fill(double *data, int64_t n, uint64_t stream, double size)
{
  support_random random = support_random_at(support_seed(75), stream);
  int64_t        i;
  for (i = 0; i < n; ++i) data[i] = support_round(size * support_normal(&random), TWH_BF16);
}

/* Run tensors on a kernel and hold the result to the promise. */
static void magnitudes_check(const char *name, const twh_problem *problem, const twh_oracle_desc *desc,
                             support_tensors *tensors, twh_run_stats *stats)
{
  support_answer truth, one_call, got;
  double         error, bound;
  support_tensors_clear(tensors);
  assert_int_equal(support_solve(name, problem, desc, tensors, stats, NULL), TWH_OK);
  support_answer_truth(&truth, problem, tensors);
  support_answer_one_call(&one_call, problem, tensors, desc, NULL);
  support_answer_read(&got, problem, tensors);
  error = support_answer_out_error(&got, &truth);
  bound = support_out_bound(&one_call, &truth, desc, 0);
  support_assert_at_most(error, bound, name);
  support_assert_at_most(support_answer_lse_error(&got, &truth), support_lse_bound(&one_call, &truth, desc), name);
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  support_answer_destroy(&got);
}

static void magnitudes_kernel(twh_oracle_desc *desc, const twh_problem *problem, int64_t q_len, int64_t k_len, int32_t dtype,
                              int lse, int64_t spare)
{
  twh_oracle_desc_init(desc);
  desc->flags = lse ? TWH_ORACLE_LSE : 0;
  desc->slots = 1;
  desc->q_len = q_len;
  desc->k_len = k_len;
  desc->qk_dim = problem->qk_dim;
  desc->v_dim = problem->v_dim + spare;
  desc->dtype = dtype;
  desc->mask_modes = TWH_MASK_NONE;
  desc->scale = support_scale(problem);
}

static twh_problem magnitudes_problem(int64_t q_len, int64_t k_len, int64_t dim)
{
  twh_problem problem;
  twh_problem_init(&problem);
  problem.batch = problem.q_heads = problem.kv_heads = 1;
  problem.q_len = q_len;
  problem.k_len = k_len;
  problem.qk_dim = problem.v_dim = dim;
  problem.flags = TWH_PROBLEM_SCALE;
  problem.scale = 1.0;
  return problem;
}

static void case_C75_every_position_of_a_tile_is_used(void **state)
{
  int64_t spare;
  (void)state;
  for (spare = 0; spare < 2; ++spare) {
    twh_problem     problem = magnitudes_problem(8, 8, 2);
    twh_oracle_desc desc;
    support_tensors tensors;
    support_random  random = support_random_at(support_seed(75), 0);
    support_fill    fill;
    twh_run_stats   stats;
    memset(&fill, 0, sizeof fill);
    fill.logit_std = 1.0;
    magnitudes_kernel(&desc, &problem, 8, 8, TWH_F32, 0, spare);
    support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
    support_tensors_fill(&tensors, &problem, &fill, &random);
    twh_run_stats_init(&stats);
    magnitudes_check("C75", &problem, &desc, &tensors, &stats);
    assert_int_equal(stats.calls, spare ? 1 : 2);
    support_tensors_destroy(&tensors);
  }
}

static void case_C75b_pads_do_not_outweigh_few_keys(void **state)
{
  static const int64_t lengths[] = { 512, 4096 }, keys[] = { 1, 8 };
  static const double  heights[] = { 1000.0, -1000.0 };
  static const int32_t dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  int64_t              i, j, h, d, reading, r;
  (void)state;
  for (i = 0; i < 2; ++i)
    for (j = 0; j < 2; ++j)
      for (h = 0; h < 2; ++h)
        for (d = 0; d < 3; ++d)
          for (reading = 0; reading < 4; ++reading) { /* lse, one spare column, two, none */
            twh_problem     problem = magnitudes_problem(3, keys[j], 2);
            twh_oracle_desc desc;
            support_tensors tensors;
            support_random  random = support_random_at(support_seed(752), (uint64_t)(j * 2 + h));
            magnitudes_kernel(&desc, &problem, 3, lengths[i], dtypes[d], reading == 0, reading == 3 ? 0 : reading);
            support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
            for (r = 0; r < 3; ++r) {
              support_set(&tensors.q, 0, 0, r, 0, 1.0);
              support_set(&tensors.q, 0, 0, r, 1, support_round(support_normal(&random), TWH_BF16));
            }
            for (r = 0; r < keys[j]; ++r) {
              support_set(&tensors.k, 0, 0, r, 0, heights[h]);
              support_set(&tensors.k, 0, 0, r, 1, support_round(support_normal(&random), TWH_BF16));
              support_set(&tensors.v, 0, 0, r, 0, support_round(support_normal(&random), TWH_BF16));
              support_set(&tensors.v, 0, 0, r, 1, support_round(support_normal(&random), TWH_BF16));
            }
            magnitudes_check("C75b", &problem, &desc, &tensors, NULL);
            support_tensors_destroy(&tensors);
          }
}

static void case_C75c_flat_weights_of_a_long_f16_tile_are_read(void **state)
{
  twh_problem     problem = magnitudes_problem(32, 2048, 4);
  twh_oracle_desc desc;
  support_tensors tensors;
  support_random  random = support_random_at(support_seed(753), 0);
  support_fill    fill;
  twh_run_stats   stats;
  (void)state;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 0.1;
  fill.rounding = TWH_F16;
  magnitudes_kernel(&desc, &problem, 32, 2048, TWH_F16, 0, 1);
  support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(&tensors, &problem, &fill, &random);
  twh_run_stats_init(&stats);
  magnitudes_check("C75c", &problem, &desc, &tensors, &stats);
  assert_true(stats.repaired_rows + stats.host_rows < 16);
  support_tensors_destroy(&tensors);
}

/* 0: tiles of constant values, +1 at logit +1000 and -1 at -1000; 1: one key that outweighs all others; 2: keys of mean zero
 * and huge norm. */
static void magnitudes_extreme(support_tensors *tensors, int64_t kind, int64_t m, int64_t n)
{
  double  noise[400];
  int64_t r, c;
  magnitudes_fill(noise, 400, (uint64_t)kind, 1.0);
  for (r = 0; r < 5; ++r)
    for (c = 0; c < 2; ++c) support_set(&tensors->q, 0, 0, r, c, c == 0 ? 1.0 : noise[r]);
  for (r = 0; r < n; ++r) {
    double first = 0.0, second = noise[100 + r];
    if (kind == 0) first = r / m % 2 ? -1000.0 : 1000.0;
    if (kind == 1 && r == n / 2) first = 200.0;
    if (kind == 2) first = r % 2 ? 20000.0 : -20000.0, second = 0.0;
    support_set(&tensors->k, 0, 0, r, 0, first);
    support_set(&tensors->k, 0, 0, r, 1, second);
    for (c = 0; c < 2; ++c)
      support_set(&tensors->v, 0, 0, r, c, kind == 0 ? (r / m % 2 ? -1.0 : 1.0) : noise[200 + 2 * (r % 90) + c]);
  }
}

static void case_C75d_extreme_tiles(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  int64_t              kind, d, reading, m, n;
  (void)state;
  for (kind = 0; kind < 3; ++kind)
    for (d = 0; d < 3; ++d)
      for (reading = 0; reading < 4; ++reading)
        for (m = 4; m <= 16; m += 6)
          for (n = 2 * m - 3; n <= 5 * m; n += 2 * m + 1) {
            twh_problem     problem = magnitudes_problem(5, n, 2);
            twh_oracle_desc desc;
            support_tensors tensors;
            magnitudes_kernel(&desc, &problem, 5, m, dtypes[d], reading == 0, reading == 3 ? 0 : reading);
            support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
            magnitudes_extreme(&tensors, kind, m, n);
            magnitudes_check("C75d", &problem, &desc, &tensors, NULL);
            support_tensors_destroy(&tensors);
          }
}

/* The heaviest of v_dim buckets weighs 1 / v_dim or more at any magnitude: nothing is left for the host to compute. */
static void case_C75d_buckets_read_every_row_at_any_magnitude(void **state)
{
  static const double stds[] = {1.0, 100.0, 1000.0};
  int64_t             i, s, m;
  int                 causal;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (s = 0; s < SUPPORT_COUNT(stds); ++s)
      for (m = 2; m <= 9; m += 7)
        for (causal = 0; causal < 2; ++causal) {
          twh_problem     problem = magnitudes_problem(9, 9, 4);
          twh_pattern     pattern;
          twh_oracle_desc desc;
          support_tensors tensors;
          support_random  random = support_random_at(support_seed(754), (uint64_t)s);
          support_fill    fill;
          twh_run_stats   stats;
          memset(&fill, 0, sizeof fill);
          twh_pattern_init(&pattern);
          pattern.flags = causal ? TWH_CAUSAL : 0;
          problem.pattern = &pattern;
          problem.scale = 0.5;
          support_kernel_desc(&support_kernels[i], &problem, m, m, &desc);
          if (!support_must_run(&problem, &desc) || desc.flags & (TWH_ORACLE_LSE | TWH_ORACLE_F16_SCORES)) continue;
          fill.logit_std = stds[s];
          fill.rounding = desc.dtype;
          support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
          support_tensors_fill(&tensors, &problem, &fill, &random);
          twh_run_stats_init(&stats);
          magnitudes_check(support_kernels[i].name, &problem, &desc, &tensors, &stats);
          /* without any mask the host computes what is left of a triangle by plan */
          if (!causal || (desc.mask_modes & (TWH_MASK_CAUSAL | TWH_MASK_TENSOR))) assert_int_equal(stats.host_rows, 0);
          support_tensors_destroy(&tensors);
        }
}

/* Keys that round to the same side everywhere: their mean key outweighs them all, and only the host can tell. */
static void case_C75b_a_mean_key_that_rounding_made_the_heaviest(void **state)
{
  enum { KEYS = 9, DIM = 16 };
  int64_t reading, r, c;
  (void)state;
  for (reading = 0; reading < 2; ++reading) { /* lse; one spare column */
    twh_problem     problem = magnitudes_problem(2, KEYS, DIM);
    twh_oracle_desc desc;
    support_tensors tensors;
    support_random  random = support_random_at(support_seed(755), 0);
    twh_run_stats   stats;
    problem.v_dim = 1;
    magnitudes_kernel(&desc, &problem, 2, 16, TWH_BF16, reading == 0, reading);
    support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
    for (r = 0; r < 2; ++r)
      for (c = 0; c < DIM; ++c) support_set(&tensors.q, 0, 0, r, c, 64.0);
    for (r = 0; r < KEYS; ++r) {
      for (c = 0; c < DIM; ++c) /* five of nine are above: the mean rounds up */
        support_set(&tensors.k, 0, 0, r, c, (r + c) % KEYS < 5 ? 1.0 + 0x1p-7 : 1.0);
      support_set(&tensors.v, 0, 0, r, 0, support_round(support_normal(&random), TWH_BF16));
    }
    twh_run_stats_init(&stats);
    magnitudes_check("C75b", &problem, &desc, &tensors, &stats);
    assert_int_equal(stats.host_rows + stats.repaired_rows, 2);
    support_tensors_destroy(&tensors);
  }
}

typedef struct magnitudes_anchor {
  int64_t calls, wrong;
} magnitudes_anchor;

/* The spare column of an f32 kernel with v_dim 3 for values of 2 columns: 1 at position 0, 0 elsewhere. */
static void magnitudes_look_at_anchor(void *user, const twh_call *call, int64_t number)
{
  magnitudes_anchor *watch = (magnitudes_anchor *)user;
  int64_t            j;
  (void)number;
  ++watch->calls;
  for (j = 0; j < call->k_len; ++j)
    watch->wrong += support_load(call->v.data, TWH_F32, j * call->v.row_stride + 2) != (j == 0 ? 1.0 : 0.0);
}

static int32_t magnitudes_see_tile(void *user, const twh_tile_info *tile)
{
  int64_t *rows = (int64_t *)user;
  rows[tile->reversed ? 1 : 0] += tile->q_len;
  return 0;
}

static void case_C76_a_causal_kernel_without_lse_has_its_anchor_in_front(void **state)
{
  static twh_pattern causal;
  twh_problem        problem = magnitudes_problem(8, 8, 2);
  twh_oracle_desc    desc;
  support_oracle     oracle;
  support_tensors    tensors;
  support_random     random = support_random_at(support_seed(76), 0);
  support_fill       fill;
  magnitudes_anchor  watch = { 0, 0 };
  twh_plan          *plan = NULL;
  twh_plan_info      info;
  int64_t            rows[2] = { 0, 0 };
  (void)state;
  twh_pattern_init(&causal);
  causal.flags = TWH_CAUSAL;
  problem.pattern = &causal;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1.0;
  magnitudes_kernel(&desc, &problem, 4, 4, TWH_F32, 0, 1);
  desc.mask_modes = TWH_MASK_CAUSAL;
  support_oracle_create(&oracle, NULL, &desc, NULL);
  oracle.spoil = magnitudes_look_at_anchor;
  oracle.spoil_user = &watch;
  support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(&tensors, &problem, &fill, &random);
  assert_int_equal(twh_plan_create(NULL, &problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
  twh_plan_info_init(&info);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  assert_int_equal(info.tiles, 4);
  assert_int_equal(twh_plan_visit(plan, magnitudes_see_tile, rows, NULL), TWH_OK);
  assert_int_equal(rows[0], 12); /* three triangles of four rows */
  assert_int_equal(rows[1], 3);  /* the strict upper one: its last row sees nothing */
  assert_int_equal(twh_plan_execute(plan, &tensors.all, NULL, NULL), TWH_OK);
  assert_int_equal(watch.calls, 4);
  assert_int_equal(watch.wrong, 0);
  twh_plan_destroy(plan);
  support_tensors_destroy(&tensors);
  support_oracle_destroy(&oracle);
}

static void case_C77_a_kernel_with_a_softcap_of_its_own(void **state)
{
  double       q[60], k[60], v[60];
  support_head head;
  int64_t      m;
  int          causal;
  (void)state;
  magnitudes_fill(q, 60, 77, 3.0);
  magnitudes_fill(k, 60, 78, 3.0);
  magnitudes_fill(v, 60, 79, 0.5);
  for (m = 1; m <= 10; m += 3)
    for (causal = 0; causal < 2; ++causal) {
      support_head_init(&head, 13, 13, causal);
      head.problem.softcap = 5.0;
      head.problem.qk_dim = head.problem.v_dim = 3;
      head.q = q;
      head.k = k;
      head.v = v;
      support_head_expect_truth("C77", &head, m, 6.0);
    }
}

static void case_C78_scales_below_zero_and_zero(void **state)
{
  static const double scales[] = { -0.5, -1.0, 0.0, -0.001 };
  double              q[60], k[60], v[60];
  support_head        head;
  int64_t             m, s;
  int                 causal;
  (void)state;
  magnitudes_fill(q, 60, 80, 1.0);
  magnitudes_fill(k, 60, 81, 1.0);
  magnitudes_fill(v, 60, 82, 0.5);
  for (s = 0; s < SUPPORT_COUNT(scales); ++s)
    for (m = 1; m <= 10; m += 3)
      for (causal = 0; causal < 2; ++causal) {
        support_head_init(&head, 13, 13, causal);
        head.problem.scale = scales[s];
        head.problem.qk_dim = head.problem.v_dim = 3;
        head.q = q;
        head.k = k;
        head.v = v;
        support_head_expect_truth("C78", &head, m, 6.0);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C66_and_C67_the_cap_comes_before_the_mask_and_is_exact),
    cmocka_unit_test(case_C75_every_position_of_a_tile_is_used),
    cmocka_unit_test(case_C75b_pads_do_not_outweigh_few_keys),
    cmocka_unit_test(case_C75b_a_mean_key_that_rounding_made_the_heaviest),
    cmocka_unit_test(case_C75d_buckets_read_every_row_at_any_magnitude),
    cmocka_unit_test(case_C75c_flat_weights_of_a_long_f16_tile_are_read),
    cmocka_unit_test(case_C75d_extreme_tiles),
    cmocka_unit_test(case_C76_a_causal_kernel_without_lse_has_its_anchor_in_front),
    cmocka_unit_test(case_C77_a_kernel_with_a_softcap_of_its_own),
    cmocka_unit_test(case_C78_scales_below_zero_and_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
