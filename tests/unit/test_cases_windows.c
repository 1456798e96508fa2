/* Cases that broke other libraries: windows on either side, sinks inside and outside of them, and positions that a kernel's own
 * mask does not know. What keys outside every window may hold is in test_cases_poison.c.
 *
 * Each runs on every kernel of the table that can do it, over several lengths of the kernel; the neighbours of a case are
 * compared with the definition. */
#include "support.h"

enum { WIN_DIM = 3, WIN_MOST = 80 };

static const int64_t win_lengths[] = { 1, 2, 3, 4, 5, 8, 12, 16, 33 };
static const double  win_powers[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048 };

typedef struct win_row {
  const char *name;
  int64_t     q_len, k_len;
  uint32_t    flags;
  int64_t     left, right, sinks, q_offset;
  int64_t     row, first, last; /* with logits 0, this row is the mean of v[first .. last], and of the sinks before `first` */
} win_row;

static const win_row win_rows[] = {
  {"C11", 16, 64, TWH_RIGHT, 0, 3, 0, 0, 5, 0, 8},
  {"C27", 4, 4, TWH_CAUSAL | TWH_LEFT, 0, 0, 0, 0, 3, 3, 3},
  {"C27", 4, 4, TWH_CAUSAL | TWH_LEFT, 1, 0, 0, 0, 3, 2, 3},
  {"C27", 4, 4, TWH_CAUSAL | TWH_LEFT, 2, 0, 0, 0, 3, 1, 3},
  {"C29", 3, 3, TWH_CAUSAL | TWH_LEFT, 7, 0, 0, 0, 0, 0, 0},
  {"C32", 12, 12, TWH_CAUSAL | TWH_LEFT, 2, 0, 0, 0, 5, 3, 5},
  {"C34", 5, 5, TWH_CAUSAL | TWH_LEFT, 1, 0, 0, 0, 4, 3, 4},
  {"C35", 7, 7, TWH_LEFT | TWH_RIGHT, 1, 2, 0, 0, 3, 2, 5},
  {"C35", 7, 7, TWH_LEFT | TWH_RIGHT, 1, 2, 0, 0, 0, 0, 2},
  {"C35", 7, 7, TWH_LEFT | TWH_RIGHT, 1, 2, 0, 0, 6, 5, 6},
  {"C37", 5, 5, TWH_CAUSAL | TWH_LEFT, 3, 0, 0, 0, 4, 1, 4},
  {"C37", 9, 9, TWH_CAUSAL | TWH_LEFT, 7, 0, 0, 0, 8, 1, 8},
  {"C39", 6, 6, TWH_CAUSAL | TWH_LEFT, 1, 0, 4, 0, 0, 0, 0},
  {"C39", 6, 6, TWH_CAUSAL | TWH_LEFT, 1, 0, 4, 0, 1, 0, 1},
  {"C39", 6, 6, TWH_CAUSAL | TWH_LEFT, 1, 0, 4, 0, 2, 0, 2},
  {"C39", 6, 6, TWH_CAUSAL | TWH_LEFT, 1, 0, 4, 0, 5, 4, 5},
  {"C40", 4, 4, TWH_CAUSAL | TWH_LEFT, 3, 0, 2, 0, 3, 0, 3},
  {"C49", 4, 12, TWH_CAUSAL | TWH_LEFT, 3, 0, 0, 8, 1, 6, 9},
  {"C49", 4, 12, TWH_CAUSAL | TWH_LEFT, 3, 0, 2, 8, 1, 6, 9},
  {"r = N", 9, 9, TWH_CAUSAL | TWH_LEFT, 8, 0, 0, 0, 8, 0, 8},
  {"r > N", 9, 9, TWH_CAUSAL | TWH_LEFT, 20, 0, 0, 0, 8, 0, 8},
  {"r = 1", 9, 9, TWH_CAUSAL | TWH_LEFT, 0, 0, 0, 0, 8, 8, 8},
  {"r = 1 and sinks", 9, 9, TWH_CAUSAL | TWH_LEFT, 0, 0, 2, 0, 7, 7, 7},
  {"sinks > keys", 6, 6, TWH_CAUSAL | TWH_LEFT, 1, 0, 50, 0, 4, 0, 4},
  {"sinks > keys, open to the right", 6, 6, TWH_LEFT, 1, 0, 50, 0, 4, 0, 5},
  {"sinks = keys", 6, 6, TWH_LEFT | TWH_RIGHT, 0, 0, 6, 0, 2, 0, 5},
  {"sinks inside", 9, 9, TWH_CAUSAL | TWH_LEFT, 6, 0, 3, 0, 7, 1, 7},
  {"sinks without a window", 9, 9, TWH_CAUSAL, 0, 0, 3, 0, 7, 0, 7},
  {"a window before all keys", 2, 6, TWH_CAUSAL | TWH_LEFT, 1, 0, 0, 0, 1, 0, 1},
  {"left alone", 7, 7, TWH_LEFT, 2, 0, 0, 0, 5, 3, 6},
  {"right of a causal query", 7, 7, TWH_CAUSAL | TWH_RIGHT, 0, 3, 0, 0, 4, 0, 4},
};

static void win_head(support_head *head, const win_row *row)
{
  support_head_init(head, row->q_len, row->k_len, 0);
  head->pattern.flags = row->flags;
  head->pattern.left = row->left;
  head->pattern.right = row->right;
  head->pattern.sink_tokens = row->sinks;
  head->problem.q_offset = row->q_offset;
}

static void win_random(double *data, int64_t n, uint64_t stream)
{
  support_random random = support_random_at(support_seed(2740), stream);
  int64_t        i;
  for (i = 0; i < n; ++i) data[i] = 0.125 * (double)support_between(&random, -16, 16);
}

/* The mean that the case says, worked out from the set of keys that it names; then all rows against the definition. */
static void win_expect(const win_row *row)
{
  double       v[WIN_MOST], mean = 0.0, count = 0.0, truth = 0.0, seen = 0.0;
  support_head head;
  twh_sequence sequence;
  int64_t      i, j, entry;
  win_head(&head, row);
  for (j = 0; j < row->k_len; ++j) v[j] = win_powers[j % 12];
  head.v = v;
  for (j = 0; j < row->k_len; ++j)
    if ((j >= row->first && j <= row->last) || (j < row->sinks && j < row->first)) mean += v[j], count += 1.0;
  sequence = support_sequence(&head.problem, 0, &entry);
  for (j = 0; j < row->k_len; ++j)
    if (support_visible(&head.problem, &sequence, row->row, j)) truth += v[j], seen += 1.0;
  assert_true(count > 0.0 && mean / count == truth / seen && count == seen); /* the definition says the same as the case */
  for (i = 0; i < SUPPORT_COUNT(win_lengths); ++i) support_head_expect_truth(row->name, &head, win_lengths[i], 4.0);
}

static void cases_C11_and_C27_to_C40_see_what_they_say(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(win_rows); ++i) win_expect(&win_rows[i]);
}

/* The figures of the cases themselves, not by way of the definition. */
static void cases_C27_C39_and_C40_in_figures(void **state)
{
  static const double ones[] = { 1, 1, 0, 0 }, sinks[] = { 1.0, 1.5, 7.0 / 3.0 };
  double              left[3][4], want[6], lse[6];
  support_head        head;
  int64_t             i, j, m;
  (void)state;
  for (i = 0; i < 3; ++i) {
    static const double last[] = { 8.0, 6.0, 14.0 / 3.0 };
    for (j = 0; j < 4; ++j) {
      int64_t k, from = j - i < 0 ? 0 : j - i;
      left[i][j] = 0.0;
      for (k = from; k <= j; ++k) left[i][j] += win_powers[k] / (double)(j - from + 1);
      lse[j] = log((double)(j - from + 1));
    }
    assert_true(fabs(left[i][3] - last[i]) < 1e-12);
    support_head_init(&head, 4, 4, 1);
    head.pattern.flags |= TWH_LEFT;
    head.pattern.left = i;
    head.v = win_powers;
    for (m = 1; m <= 8; ++m) support_head_expect("C27", &head, m, left[i], lse, 3.0);
  }
  support_head_init(&head, 6, 6, 1);
  head.pattern.flags |= TWH_LEFT;
  head.pattern.left = 1;
  head.pattern.sink_tokens = 4;
  head.v = win_powers;
  for (j = 0; j < 6; ++j) {
    double count = j < 5 ? (double)j + 1.0 : 6.0;
    want[j] = ((double)((int64_t)1 << (j + 1)) - 1.0) / count;
    lse[j] = log(count);
    if (j < 3) assert_true(fabs(want[j] - sinks[j]) < 1e-12);
  }
  for (m = 1; m <= 8; ++m) support_head_expect("C39", &head, m, want, lse, 4.0);
  support_head_init(&head, 4, 4, 1);
  head.pattern.flags |= TWH_LEFT;
  head.pattern.left = 3;
  head.pattern.sink_tokens = 2;
  head.v = ones;
  for (j = 0; j < 4; ++j) {
    want[j] = j < 2 ? 1.0 : 2.0 / (double)(j + 1);
    lse[j] = log((double)j + 1.0);
  }
  assert_true(want[3] == 0.5);
  for (m = 1; m <= 8; ++m) support_head_expect("C40", &head, m, want, lse, 3.0);
}

static void case_C30_negative_sides_are_refused(void **state)
{
  static const struct {
    uint32_t    flags;
    int64_t     left, right, sinks;
    const char *word;
  } rows[] = {
    {TWH_LEFT, -3, 0, 0, "left"},
    {TWH_LEFT | TWH_RIGHT, 2, -5, 0, "right"},
    {TWH_CAUSAL | TWH_LEFT, 2, 0, -1, "sink_tokens"},
    {TWH_CAUSAL | TWH_LEFT, INT64_MIN, 0, 0, "left"},
  };
  int64_t i, j;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(rows); ++i)
    for (j = 0; j < support_kernel_count; ++j) {
      support_head    head;
      twh_oracle_desc desc;
      twh_error       error;
      double          out[4], lse[4];
      support_head_init(&head, 4, 4, 0);
      head.pattern.flags = rows[i].flags;
      head.pattern.left = rows[i].left;
      head.pattern.right = rows[i].right;
      head.pattern.sink_tokens = rows[i].sinks;
      support_kernel_desc(&support_kernels[j], &head.problem, 4, 4, &desc);
      twh_error_init(&error);
      support_assert_status(support_head_run("C30", &head, &desc, out, lse, NULL, &error), TWH_E_ARGUMENT, &error,
                            rows[i].word);
    }
}

/* Sides that no sum of positions can hold: as good as open, or refused as an overflow. */
static void sides_as_large_as_a_number_can_be(void **state)
{
  static const uint32_t flags[] = { TWH_CAUSAL | TWH_LEFT, TWH_LEFT | TWH_RIGHT, TWH_LEFT, TWH_RIGHT, TWH_CAUSAL };
  int64_t               i, j, r, most = INT64_MAX;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(flags); ++i)
    for (j = 0; j < support_kernel_count; ++j) {
      support_head    head;
      twh_oracle_desc desc;
      twh_error       error;
      twh_status      status;
      double          out[5], lse[5];
      support_head_init(&head, 5, 5, 0);
      head.pattern.flags = flags[i];
      head.pattern.left = head.pattern.right = most;
      head.pattern.sink_tokens = i % 2 ? most : 0;
      support_kernel_desc(&support_kernels[j], &head.problem, 4, 4, &desc);
      twh_error_init(&error);
      status = support_head_run("largest", &head, &desc, out, lse, NULL, &error);
      if (status != TWH_OK) support_assert_status(status, TWH_E_OVERFLOW, &error, NULL);
      for (r = 0; status == TWH_OK && r < 5; ++r) {
        double seen = flags[i] & TWH_CAUSAL ? (double)r + 1.0 : 5.0;
        support_assert_at_most(fabs(out[r] - 1.0), 2.0 * support_epsilon(desc.dtype), support_kernels[j].name);
        support_assert_at_most(fabs(lse[r] - log(seen)), 4.0 * support_epsilon(desc.dtype), support_kernels[j].name);
      }
    }
}

/* Positions far out, where sums of an offset and a side leave the range of a number: right, or refused as an overflow. */
static void positions_as_large_as_a_number_can_be(void **state)
{
  static const uint32_t flags[] = { TWH_CAUSAL, TWH_CAUSAL | TWH_LEFT, TWH_LEFT | TWH_RIGHT, TWH_LEFT, TWH_RIGHT };
  static const int64_t  sides[] = { 2, (int64_t)1 << 60, INT64_MAX }, sinks[] = { 0, 3, (int64_t)1 << 60, INT64_MAX };
  int64_t               i, o, k, d, kernel, ran = 0;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(flags); ++i)
    for (o = 0; o < 6; ++o)
      for (k = 0; k < 4; ++k)
        for (d = 0; d < 3; ++d) {
          twh_sequence    sequence = { 0, 9, 0, 9, 0, 0 };
          support_head    head;
          twh_oracle_desc desc;
          twh_error       error;
          twh_status      status;
          support_tensors tensors;
          support_answer  truth, got;
          int64_t         far = (int64_t)1 << (o % 3 == 0 ? 20 : o % 3 == 1 ? 40 : 59);
          kernel = (i * 7 + o * 3 + k * 5 + d) % support_kernel_count;
          support_head_init(&head, 0, 0, 0);
          head.pattern.flags = flags[i];
          head.pattern.left = head.pattern.right = sides[d];
          head.pattern.sink_tokens = sinks[k];
          sequence.q_offset = o < 3 ? far : -far;
          sequence.k_offset = o < 3 && k % 2 == 0 ? far - 2 : 0;
          head.problem.sequences = &sequence;
          support_kernel_desc(&support_kernels[kernel], &head.problem, 4, 4, &desc);
          support_tensors_create(&tensors, &head.problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
          memset(tensors.q.data, 0, tensors.bytes[0]);
          memset(tensors.k.data, 0, tensors.bytes[1]);
          memset(tensors.v.data, 0, tensors.bytes[2]);
          twh_error_init(&error);
          status = support_solve("far out", &head.problem, &desc, &tensors, NULL, &error);
          if (status != TWH_OK) support_assert_status(status, TWH_E_OVERFLOW, &error, NULL);
          if (status == TWH_OK) {
            support_answer_truth(&truth, &head.problem, &tensors);
            support_answer_read(&got, &head.problem, &tensors);
            support_assert_at_most(support_answer_out_error(&got, &truth), 0.0, "far out");
            support_assert_at_most(support_answer_lse_error(&got, &truth), 4.0 * support_epsilon(desc.dtype), "far out");
            support_answer_destroy(&truth);
            support_answer_destroy(&got);
            ++ran;
          }
          support_tensors_destroy(&tensors);
        }
  assert_true(ran > 100);
}

/* Windows of every width around the kernel's length, with sinks and without, looking back, ahead and both ways. */
static void neighbours_of_the_cases_equal_the_definition(void **state)
{
  static const int64_t offsets[] = { 0, 0, 3, -2 };
  double               q[WIN_MOST * WIN_DIM], k[WIN_MOST * WIN_DIM], v[WIN_MOST * WIN_DIM];
  int64_t              m, r, turn = 0;
  (void)state;
  win_random(q, WIN_MOST * WIN_DIM, 1);
  win_random(k, WIN_MOST * WIN_DIM, 2);
  win_random(v, WIN_MOST * WIN_DIM, 3);
  for (m = 1; m <= 9; m += 4)
    for (r = 1; r <= 2 * m + 2; ++r, ++turn) {
      static const uint32_t flags[] = { TWH_CAUSAL | TWH_LEFT, TWH_LEFT | TWH_RIGHT, TWH_RIGHT, TWH_CAUSAL | TWH_LEFT };
      support_head          head;
      char                  name[100];
      support_head_init(&head, 3 * m + turn % 3, 3 * m + turn % 5, 0);
      head.pattern.flags = flags[turn % 4];
      head.pattern.left = r - 1;
      head.pattern.right = (r * 5) % (m + 2);
      head.pattern.sink_tokens = turn % 3 ? 0 : turn % 7;
      head.problem.q_offset = offsets[turn / 2 % 4];
      head.problem.qk_dim = head.problem.v_dim = WIN_DIM;
      head.problem.scale = turn % 6 == 5 ? -0.5 : 0.5;
      head.q = q;
      head.k = k;
      head.v = v;
      snprintf(name, sizeof name, "m %lld, left %lld right %lld sinks %lld flags %u offset %lld", (long long)m,
               (long long)head.pattern.left, (long long)head.pattern.right, (long long)head.pattern.sink_tokens,
               head.pattern.flags, (long long)head.problem.q_offset);
      support_head_expect_truth(name, &head, m, 6.0);
    }
}

static void case_C78_windows_at_scales_below_zero_and_zero(void **state)
{
  static const double scales[] = { -0.5, -1.0, 0.0, -0.001 };
  double              q[60], k[60], v[60];
  int64_t             m, s, pattern;
  (void)state;
  win_random(q, 60, 4);
  win_random(k, 60, 5);
  win_random(v, 60, 6);
  for (s = 0; s < SUPPORT_COUNT(scales); ++s)
    for (m = 1; m <= 16; m += 5)
      for (pattern = 0; pattern < 3; ++pattern) {
        support_head head;
        support_head_init(&head, 20, 20, pattern < 2);
        head.pattern.flags |= TWH_LEFT | (pattern == 2 ? TWH_RIGHT : 0);
        head.pattern.left = 2 + pattern;
        head.pattern.right = 1;
        head.pattern.sink_tokens = pattern ? 2 : 0;
        head.problem.scale = scales[s];
        head.problem.qk_dim = head.problem.v_dim = WIN_DIM;
        head.q = q;
        head.k = k;
        head.v = v;
        support_head_expect_truth("C78", &head, m, 6.0);
      }
}

static void case_C37_a_window_of_one_block_on_many_threads(void **state)
{
  int64_t i, m, r, c;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (m = 4; m <= 8; m += 4) {
      support_memory  memory;
      twh_context    *context = support_context(&memory, 4, 4);
      support_head    head;
      twh_oracle_desc desc;
      support_oracle  oracle;
      support_tensors tensors;
      twh_plan       *plan = NULL;
      twh_plan_info   info;
      twh_run_stats   stats;
      twh_run_options options;
      support_head_init(&head, m + 1, m + 1, 1);
      head.pattern.flags |= TWH_LEFT;
      head.pattern.left = m - 1;
      support_kernel_desc(&support_kernels[i], &head.problem, m, m, &desc);
      desc.max_concurrent_batches = 4;
      support_oracle_create(&oracle, context, &desc, NULL);
      support_tensors_create(&tensors, &head.problem, TWH_F64, SUPPORT_DENSE, SUPPORT_LSE);
      for (r = 0; r <= m; ++r) {
        support_set(&tensors.q, 0, 0, r, 0, 0.0);
        support_set(&tensors.k, 0, 0, r, 0, 0.0);
        support_set(&tensors.v, 0, 0, r, 0, win_powers[r]);
      }
      twh_plan_info_init(&info);
      twh_run_stats_init(&stats);
      twh_run_options_init(&options);
      options.stats = &stats;
      assert_int_equal(twh_plan_create(context, &head.problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
      assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
      assert_int_equal(twh_plan_execute(plan, &tensors.all, &options, NULL), TWH_OK);
      assert_int_equal(oracle.calls, info.calls + stats.repair_calls);
      for (r = 0; r <= m; ++r) {
        double want = 0.0, from = r < m ? 0.0 : 1.0;
        for (c = (int64_t)from; c <= r; ++c) want += win_powers[c] / ((double)r + 1.0 - from);
        support_assert_at_most(fabs(support_at(&tensors.out, 0, 0, r, 0) - want),
                               4.0 * support_epsilon(desc.dtype) * (1.0 + want), support_kernels[i].name);
      }
      twh_plan_destroy(plan);
      support_tensors_destroy(&tensors);
      support_oracle_destroy(&oracle);
      twh_context_destroy(context);
      assert_int_equal(memory.live_blocks, 0);
    }
}

static void case_C90_a_million_tokens_are_planned_in_little_memory(void **state)
{
  static const uint32_t modes[] = { TWH_MASK_CAUSAL, TWH_MASK_NONE, TWH_MASK_TENSOR, TWH_MASK_NONE | TWH_MASK_CAUSAL };
  int64_t               i, n = (int64_t)1 << 20;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(modes); ++i) {
    support_head    head;
    twh_oracle_desc desc;
    support_memory  memory;
    twh_context    *context = support_context(&memory, 0, 0);
    twh_oracle     *oracle = NULL;
    twh_plan       *plan = NULL;
    twh_plan_info   info;
    support_head_init(&head, n, n, 1);
    head.pattern.flags |= TWH_LEFT;
    head.pattern.left = 4096;
    head.pattern.sink_tokens = 4;
    head.problem.qk_dim = head.problem.v_dim = 64;
    twh_oracle_desc_init(&desc);
    desc.slots = 1;
    desc.q_len = desc.k_len = 512;
    desc.qk_dim = 80;
    desc.v_dim = 65;
    desc.dtype = TWH_F32;
    desc.mask_modes = modes[i];
    desc.scale = 1.0;
    twh_plan_info_init(&info);
    assert_int_equal(twh_reference_oracle_create(context, &desc, NULL, &oracle, NULL), TWH_OK);
    assert_int_equal(twh_plan_create(context, &head.problem, &oracle, 1, NULL, &plan, NULL), TWH_OK);
    assert_true(memory.peak_bytes < (int64_t)1 << 20);
    assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
    assert_true(info.workspace_bytes < (int64_t)256 << 20);
    assert_true(info.calls > 2048 * 8 && info.calls < 2048 * 24);
    /* rows 0 .. 4096 see all before them; sinks are inside the window of the first 4096 + 4 rows */
    assert_true(info.visible_pairs == 4097.0 * 4098.0 / 2.0 + ((double)n - 4097.0) * 4097.0 + 4.0 * ((double)n - 4097.0) - 6.0);
    twh_plan_destroy(plan);
    twh_oracle_destroy(oracle);
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(cases_C11_and_C27_to_C40_see_what_they_say),
    cmocka_unit_test(cases_C27_C39_and_C40_in_figures),
    cmocka_unit_test(case_C30_negative_sides_are_refused),
    cmocka_unit_test(sides_as_large_as_a_number_can_be),
    cmocka_unit_test(positions_as_large_as_a_number_can_be),
    cmocka_unit_test(neighbours_of_the_cases_equal_the_definition),
    cmocka_unit_test(case_C78_windows_at_scales_below_zero_and_zero),
    cmocka_unit_test(case_C37_a_window_of_one_block_on_many_threads),
    cmocka_unit_test(case_C90_a_million_tokens_are_planned_in_little_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
