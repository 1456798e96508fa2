/* Cases that broke other libraries: positions, short tiles, heads, strides and memory that must not be looked at. */
#include "support.h"

static const double positions_powers[] = { 1, 2, 4, 8, 16, 32, 64, 128 };

static void case_C47_the_offset_of_queries_decides_what_they_see(void **state)
{
  static const double late[] = { 3.75, 6.2 }, early[] = { 1.0, 1.5 };
  double              late_lse[] = { log(4.0), log(5.0) }, early_lse[] = { 0.0, log(2.0) };
  support_head        head;
  int64_t             m;
  (void)state;
  support_head_init(&head, 2, 5, 1);
  head.v = positions_powers;
  for (m = 1; m <= 8; ++m) {
    head.problem.q_offset = 3;
    support_head_expect("C47, offset 3", &head, m, late, late_lse, 3.0);
    head.problem.q_offset = 0;
    support_head_expect("C47, offset 0", &head, m, early, early_lse, 3.0);
  }
}

static void case_C48_queries_one_ahead_of_the_diagonal(void **state)
{
  double       out[8], lse[8];
  support_head head;
  int64_t      i, j, n, m;
  (void)state;
  for (i = 0; i < 8; ++i) {
    n = i + 2 < 8 ? i + 2 : 8; /* row 3 sees keys 0 to 4 */
    out[i] = 0.0;
    for (j = 0; j < n; ++j) out[i] += positions_powers[j] / (double)n;
    lse[i] = log((double)n);
  }
  support_head_init(&head, 8, 8, 1);
  head.problem.q_offset = 1;
  head.v = positions_powers;
  for (m = 1; m <= 9; ++m) support_head_expect("C48", &head, m, out, lse, 4.0);
}

static void positions_random(double *data, int64_t n, uint64_t stream)
{
  support_random random = support_random_at(support_seed(4711), stream);
  int64_t        i;
  for (i = 0; i < n; ++i) data[i] = 0.125 * (double)support_between(&random, -16, 16);
}

static void case_C49_the_second_chunk_of_a_prompt(void **state)
{
  double       q[200], k[400], v[400];
  support_head head;
  int64_t      m, offset, rows;
  (void)state;
  positions_random(q, 200, 1);
  positions_random(k, 400, 2);
  positions_random(v, 400, 3);
  for (m = 2; m <= 8; m += 3)
    for (offset = 1; offset <= 12; offset += 4)
      for (rows = 1; rows <= 9; rows += 2) {
        support_head_init(&head, rows, offset + rows, 1);
        head.problem.q_offset = offset;
        head.problem.qk_dim = head.problem.v_dim = 4;
        head.problem.scale = 0.5;
        head.q = q;
        head.k = k;
        head.v = v;
        support_head_expect_truth("C49", &head, m, 4.0);
      }
}

static void case_C52_short_sequences_do_not_see_the_pads(void **state)
{
  static const double out[] = { 1.0, 1.0, 1.0 };
  double              lse[] = { log(3.0), log(3.0), log(3.0) };
  support_head        head;
  int64_t             m;
  (void)state;
  support_head_init(&head, 3, 3, 0);
  for (m = 4; m <= 64; m *= 2) support_head_expect("C52", &head, m, out, lse, 3.0);
}

static void case_C55_lengths_around_multiples_of_the_kernels(void **state)
{
  static const int64_t lengths[] = { 1, 2, 3, 8 };
  double               q[80], k[80], v[80];
  int64_t              i, j;
  int                  causal;
  (void)state;
  positions_random(q, 80, 4);
  positions_random(k, 80, 5);
  positions_random(v, 80, 6);
  for (i = 0; i < SUPPORT_COUNT(lengths); ++i)
    for (causal = 0; causal < 2; ++causal)
      for (j = 0; j < 7; ++j) {
        int64_t      m = lengths[i], sizes[] = { 1, m - 1, m, m + 1, 2 * m - 1, 2 * m, 2 * m + 1 };
        support_head head;
        support_head_init(&head, sizes[j], sizes[j], causal);
        head.problem.qk_dim = head.problem.v_dim = 3;
        head.problem.scale = 0.5;
        head.q = q;
        head.k = k;
        head.v = v;
        support_head_expect_truth("C55", &head, m, 4.0);
      }
}

static void case_C60_values_wider_than_keys(void **state)
{
  static const int64_t dims[][2] = { { 4, 7 }, { 7, 4 }, { 1, 9 }, { 9, 1 }, { 17, 5 } };
  double               q[400], k[400], v[400];
  int64_t              i;
  int                  causal;
  (void)state;
  positions_random(q, 400, 7);
  positions_random(k, 400, 8);
  positions_random(v, 400, 9);
  for (i = 0; i < SUPPORT_COUNT(dims); ++i)
    for (causal = 0; causal < 2; ++causal) {
      support_head head;
      support_head_init(&head, 11, 11, causal);
      head.problem.qk_dim = dims[i][0];
      head.problem.v_dim = dims[i][1];
      head.problem.scale = 0.25;
      head.q = q;
      head.k = k;
      head.v = v;
      support_head_expect_truth("C60", &head, 4, 4.0);
    }
}

/* ---- whole tensors ---- */

static twh_problem positions_problem(int64_t q_heads, int64_t kv_heads, int64_t n, const twh_pattern *pattern)
{
  twh_problem problem;
  twh_problem_init(&problem);
  problem.batch = 1;
  problem.q_heads = q_heads;
  problem.kv_heads = kv_heads;
  problem.q_len = problem.k_len = n;
  problem.qk_dim = problem.v_dim = 4;
  problem.pattern = pattern;
  return problem;
}

static void positions_fill(support_tensors *tensors, const twh_problem *problem, uint64_t stream)
{
  support_random random = support_random_at(support_seed(57), stream);
  support_fill   fill;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1.0;
  support_tensors_fill(tensors, problem, &fill, &random);
}

static void case_C57_query_heads_read_their_kv_head(void **state)
{
  int64_t i, h, r, c, m, n;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (m = 2; m <= 8; m += 3)
      for (n = 1; n <= 9; n += 4) {
        twh_problem     problem = positions_problem(4, 2, n, NULL);
        twh_oracle_desc desc;
        support_tensors tensors;
        support_kernel_desc(&support_kernels[i], &problem, m, m, &desc);
        if (!support_must_run(&problem, &desc)) continue;
        support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_PACKED_HEADS, SUPPORT_LSE);
        positions_fill(&tensors, &problem, (uint64_t)i);
        for (h = 0; h < 2; ++h)
          for (r = 0; r < n; ++r)
            for (c = 0; c < 4; ++c) support_set(&tensors.v, 0, h, r, c, (double)h);
        assert_int_equal(support_solve("C57", &problem, &desc, &tensors, NULL, NULL), TWH_OK);
        for (h = 0; h < 4; ++h)
          for (r = 0; r < n; ++r)
            for (c = 0; c < 4; ++c)
              support_assert_at_most(fabs(support_at(&tensors.out, 0, h, r, c) - (double)(h / 2)),
                                     2.0 * support_epsilon(desc.dtype), support_kernels[i].name);
        support_tensors_destroy(&tensors);
      }
}

/* The same numbers in three layouts give the same bits. */
static void case_C21_and_C62_strides_are_obeyed(void **state)
{
  static twh_pattern causal;
  int64_t            i, h, r, c;
  int                layout, pattern;
  (void)state;
  twh_pattern_init(&causal);
  causal.flags = TWH_CAUSAL;
  for (i = 0; i < support_kernel_count; ++i)
    for (pattern = 0; pattern < 2; ++pattern) {
      twh_problem     problem = positions_problem(4, 2, 16, pattern ? &causal : NULL);
      twh_oracle_desc desc;
      support_tensors dense;
      support_kernel_desc(&support_kernels[i], &problem, 5, 5, &desc);
      if (!support_must_run(&problem, &desc)) continue;
      support_tensors_create(&dense, &problem, desc.dtype, SUPPORT_DENSE, SUPPORT_LSE);
      positions_fill(&dense, &problem, (uint64_t)i);
      assert_int_equal(support_solve("C62", &problem, &desc, &dense, NULL, NULL), TWH_OK);
      for (layout = 1; layout < SUPPORT_LAYOUTS; ++layout) {
        support_tensors other;
        support_tensors_create(&other, &problem, desc.dtype, layout, SUPPORT_LSE);
        positions_fill(&other, &problem, (uint64_t)i);
        assert_int_equal(support_solve("C62", &problem, &desc, &other, NULL, NULL), TWH_OK);
        for (h = 0; h < 4; ++h)
          for (r = 0; r < 16; ++r) {
            for (c = 0; c < 4; ++c) assert_true(support_at(&dense.out, 0, h, r, c) == support_at(&other.out, 0, h, r, c));
            assert_true(support_at(&dense.lse, 0, h, r, 0) == support_at(&other.lse, 0, h, r, 0));
          }
        support_tensors_destroy(&other);
      }
      support_tensors_destroy(&dense);
    }
}

static void case_C62_rows_in_reverse_and_heads_that_share_memory(void **state)
{
  int64_t i, h, r, c, n = 13;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i) {
    twh_problem     problem = positions_problem(2, 2, n, NULL);
    twh_oracle_desc desc;
    support_tensors plain, other;
    char           *data;
    support_kernel_desc(&support_kernels[i], &problem, 4, 4, &desc);
    if (!support_must_run(&problem, &desc)) continue;
    support_tensors_create(&plain, &problem, desc.dtype, SUPPORT_DENSE, SUPPORT_LSE);
    support_tensors_create(&other, &problem, desc.dtype, SUPPORT_DENSE, SUPPORT_LSE);
    positions_fill(&plain, &problem, 1);
    for (r = 0; r < n; ++r)
      for (c = 0; c < 4; ++c)
        for (h = 0; h < 2; ++h) {
          support_set(&plain.k, 0, h, r, c, support_at(&plain.k, 0, 0, r, c)); /* both heads have head 0's keys */
          support_set(&other.k, 0, 0, n - 1 - r, c, support_at(&plain.k, 0, 0, r, c));
          support_set(&other.q, 0, h, r, c, support_at(&plain.q, 0, h, r, c));
          support_set(&other.v, 0, h, r, c, support_at(&plain.v, 0, h, r, c));
        }
    data = (char *)other.k.data + (n - 1) * 4 * support_bytes(desc.dtype);
    other.k.data = data;
    other.k.row_stride = -4;
    other.k.head_stride = 0;
    assert_int_equal(support_solve("C62", &problem, &desc, &plain, NULL, NULL), TWH_OK);
    assert_int_equal(support_solve("C62", &problem, &desc, &other, NULL, NULL), TWH_OK);
    assert_memory_equal(plain.out.data, other.out.data, plain.bytes[3]);
    assert_memory_equal(plain.lse.data, other.lse.data, plain.bytes[4]);
    support_tensors_destroy(&plain);
    support_tensors_destroy(&other);
  }
}

/* Rows before, between and behind the sequences hold NaN; so does the workspace. */
static void case_C53_what_belongs_to_no_sequence_is_never_looked_at(void **state)
{
  static const twh_sequence sequences[] = { { 2, 5, 3, 9, 4, 0 }, { 9, 3, 15, 7, 30, 2 }, { 14, 8, 23, 8, 0, 0 } };
  static twh_pattern        causal;
  int64_t                   i, h, r, c, b;
  int                       pattern, spoil;
  (void)state;
  twh_pattern_init(&causal);
  causal.flags = TWH_CAUSAL;
  for (i = 0; i < support_kernel_count; ++i)
    for (pattern = 0; pattern < 2; ++pattern) {
      twh_problem     problem = positions_problem(2, 1, 0, pattern ? &causal : NULL);
      twh_oracle_desc desc;
      support_tensors tensors[2];
      problem.batch = 3;
      problem.sequences = sequences;
      support_kernel_desc(&support_kernels[i], &problem, 4, 4, &desc);
      if (!support_must_run(&problem, &desc)) continue;
      for (spoil = 0; spoil < 2; ++spoil) {
        support_tensors_create(&tensors[spoil], &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
        positions_fill(&tensors[spoil], &problem, (uint64_t)i);
        for (r = 0; spoil && r < tensors[1].k_rows; ++r) {
          int used = 0;
          for (b = 0; b < 3; ++b) used |= r >= sequences[b].k_begin && r < sequences[b].k_begin + sequences[b].k_len;
          for (c = 0; !used && c < 4; ++c) {
            support_set(&tensors[1].k, 0, 0, r, c, (double)NAN);
            support_set(&tensors[1].v, 0, 0, r, c, (double)INFINITY);
          }
        }
        assert_int_equal(support_solve("C53", &problem, &desc, &tensors[spoil], NULL, NULL), TWH_OK);
      }
      for (b = 0; b < 3; ++b)
        for (h = 0; h < 2; ++h)
          for (r = sequences[b].q_begin; r < sequences[b].q_begin + sequences[b].q_len; ++r)
            for (c = 0; c < 4; ++c)
              assert_true(support_at(&tensors[0].out, 0, h, r, c) == support_at(&tensors[1].out, 0, h, r, c));
      support_tensors_destroy(&tensors[0]);
      support_tensors_destroy(&tensors[1]);
    }
}

/* Keys behind what the last query sees are not read, so what they hold does not matter. */
static void case_C53_keys_that_no_query_sees_may_hold_anything(void **state)
{
  static twh_pattern causal;
  int64_t            i, r, c, n, seen;
  int                spoil;
  (void)state;
  twh_pattern_init(&causal);
  causal.flags = TWH_CAUSAL;
  for (i = 0; i < support_kernel_count; ++i)
    for (n = 1; n <= 9; ++n) {
      twh_problem     problem = positions_problem(1, 1, n, &causal);
      twh_oracle_desc desc;
      support_tensors tensors[2];
      problem.k_len = 20;
      problem.q_offset = 2;
      seen = n + 2;
      support_kernel_desc(&support_kernels[i], &problem, 4, 4, &desc);
      if (!support_must_run(&problem, &desc)) continue;
      for (spoil = 0; spoil < 2; ++spoil) {
        support_tensors_create(&tensors[spoil], &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
        positions_fill(&tensors[spoil], &problem, (uint64_t)i);
        for (r = seen; spoil && r < 20; ++r)
          for (c = 0; c < 4; ++c) {
            support_set(&tensors[1].k, 0, 0, r, c, (double)NAN);
            support_set(&tensors[1].v, 0, 0, r, c, (double)NAN);
          }
        assert_int_equal(support_solve("C53", &problem, &desc, &tensors[spoil], NULL, NULL), TWH_OK);
      }
      assert_memory_equal(tensors[0].out.data, tensors[1].out.data, tensors[0].bytes[3]);
      assert_memory_equal(tensors[0].lse.data, tensors[1].lse.data, tensors[0].bytes[4]);
      assert_true(fabs(support_at(&tensors[0].out, 0, 0, n - 1, 0)) < 100.0);
      support_tensors_destroy(&tensors[0]);
      support_tensors_destroy(&tensors[1]);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C21_and_C62_strides_are_obeyed),
    cmocka_unit_test(case_C47_the_offset_of_queries_decides_what_they_see),
    cmocka_unit_test(case_C48_queries_one_ahead_of_the_diagonal),
    cmocka_unit_test(case_C49_the_second_chunk_of_a_prompt),
    cmocka_unit_test(case_C52_short_sequences_do_not_see_the_pads),
    cmocka_unit_test(case_C53_what_belongs_to_no_sequence_is_never_looked_at),
    cmocka_unit_test(case_C53_keys_that_no_query_sees_may_hold_anything),
    cmocka_unit_test(case_C55_lengths_around_multiples_of_the_kernels),
    cmocka_unit_test(case_C57_query_heads_read_their_kv_head),
    cmocka_unit_test(case_C60_values_wider_than_keys),
    cmocka_unit_test(case_C62_rows_in_reverse_and_heads_that_share_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
