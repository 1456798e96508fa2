/* What a transformer is given and gives: tensors of every type and layout, the caller's workspace, nothing to do at all, logits that need
 * repairs, a NaN that stays in its sequence. */
#include "support_transformer.h"

/* ---- tensors ---- */

static void tensors_of_every_type_hold_the_same_numbers(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F64, TWH_F16, TWH_BF16 };
  int64_t              i, j, r;
  (void)state;
  for (i = 0; i < 4; ++i)
    for (j = 0; j < 4; ++j) {
      support_model m;
      support_way   way;
      support_transformer_choose(&m.t, support_seed(13), (uint64_t)(i * 4 + j));
      m.t.with &= ~(uint32_t)SUPPORT_WITH_EMBED;
      support_model_begin(&m);
      for (r = 0; r < m.t.rows * m.t.desc.model_dim; ++r) m.t.x[r] = support_round(m.t.x[r], dtypes[i]);
      support_model_again(&m, &m.way, NULL, NULL); /* of these numbers in f32 */
      memcpy(m.want, m.got, m.bytes);
      way = m.way;
      way.x_dtype = dtypes[i];
      way.out_dtype = dtypes[j];
      way.gap = i + j;
      way.in_place = i == j;
      way.block_rows = 4;
      support_model_again(&m, &way, NULL, NULL);
      for (r = 0; r < m.t.rows * m.t.desc.model_dim; ++r)
        if (m.got[r] != support_round(m.want[r], dtypes[j])) {
          print_error("x of dtype %d, out of dtype %d: element %lld is %.9g, in f32 %.9g\n", dtypes[i], dtypes[j], (long long)r,
                      m.got[r], m.want[r]);
          fail();
        }
      support_model_end(&m);
    }
}

/* A float64 x is rounded to f32 first: inside everything is f32. */
static void a_double_x_is_rounded_once(void **state)
{
  support_model m;
  support_way   way;
  int64_t       r;
  (void)state;
  support_transformer_choose(&m.t, support_seed(14), 0);
  m.t.with &= ~(uint32_t)SUPPORT_WITH_EMBED;
  support_model_begin(&m);
  for (r = 0; r < m.t.rows * m.t.desc.model_dim; ++r) m.t.x[r] += m.t.x[r] * 0.2 * (double)FLT_EPSILON;
  way = m.way;
  way.x_dtype = TWH_F64;
  support_model_expect_same(&m, &way, "an x of float64", 0);
  support_model_end(&m);
}

/* Rows in reverse order in memory, and all rows the same one. */
static void strides_may_be_negative_or_zero(void **state)
{
  support_model    m;
  twh_transformer *made = NULL;
  twh_tensor       x, out;
  float           *memory, *result, *back;
  int64_t          r, c, dim, rows;
  (void)state;
  support_transformer_plain(&m.t, 2, 2, 9);
  m.t.with = 0;
  support_model_begin(&m);
  dim = m.t.desc.model_dim;
  rows = m.t.rows;
  memory = (float *)malloc(m.bytes);
  result = (float *)malloc(m.bytes);
  back = (float *)malloc(m.bytes);
  assert_true(memory && result && back);
  for (r = 0; r < rows; ++r)
    for (c = 0; c < dim; ++c) memory[(rows - 1 - r) * dim + c] = (float)m.t.x[r * dim + c];
  assert_int_equal(twh_transformer_create(NULL, &m.t.desc, m.way.oracles, 1, NULL, &made, NULL), TWH_OK);
  twh_tensor_dense(&x, TWH_F32, memory + (rows - 1) * dim, 1, rows, dim);
  x.row_stride = -dim;
  twh_tensor_dense(&out, TWH_F32, result + (rows - 1) * dim, 1, rows, dim);
  out.row_stride = -dim;
  m.t.tokens = NULL; /* no input is given */
  assert_int_equal(twh_transformer_execute(made, &x, &out, NULL, NULL), TWH_OK);
  for (r = 0; r < rows; ++r)
    for (c = 0; c < dim; ++c) assert_true((double)result[(rows - 1 - r) * dim + c] == m.want[r * dim + c]);
  x.row_stride = 0;
  assert_int_equal(twh_transformer_execute(made, &x, &out, NULL, NULL), TWH_OK);
  for (r = 0; r < rows; ++r) memcpy(back + r * dim, memory + (rows - 1) * dim, (size_t)dim * sizeof(float));
  twh_tensor_dense(&x, TWH_F32, back, 1, rows, dim);
  assert_int_equal(twh_transformer_execute(made, &x, &x, NULL, NULL), TWH_OK);
  for (r = 0; r < rows; ++r)
    for (c = 0; c < dim; ++c) assert_true(result[(rows - 1 - r) * dim + c] == back[r * dim + c]);
  twh_transformer_destroy(made);
  free(memory);
  free(result);
  free(back);
  support_model_end(&m);
}

/* ---- workspaces, and repairs ---- */

static void a_workspace_must_be_large_enough_and_aligned_and_is_enough(void **state)
{
  support_memory          memory;
  twh_context            *context = support_context(&memory, 0, 0);
  support_model           m;
  twh_transformer        *made = NULL;
  twh_transformer_info    info;
  twh_transformer_options options;
  twh_transformer_stats   stats;
  twh_tensor              out;
  twh_error               error;
  char                   *workspace = NULL;
  int64_t                 allocations;
  float                  *numbers;
  (void)state;
  twh_error_init(&error);
  twh_transformer_info_init(&info);
  twh_transformer_stats_init(&stats);
  twh_transformer_options_init(&options);
  support_transformer_plain(&m.t, 2, 2, 12);
  support_model_begin(&m);
  numbers = (float *)malloc(m.bytes);
  twh_tensor_dense(&out, TWH_F32, numbers, 1, m.t.rows, m.t.desc.model_dim);
  assert_int_equal(twh_transformer_create(context, &m.t.desc, m.way.oracles, 1, NULL, &made, NULL), TWH_OK);
  assert_int_equal(twh_transformer_get_info(made, &info, NULL), TWH_OK);
  assert_true(info.workspace_alignment >= 256 && info.workspace_bytes > 0); /* as the kernel wants it */
  assert_int_equal(
    posix_memalign((void **)(void *)&workspace, (size_t)info.workspace_alignment, (size_t)info.workspace_bytes + 64), 0);
  options.input = m.t.tokens;
  options.stats = &stats;
  options.workspace = workspace;
  options.workspace_bytes = (size_t)info.workspace_bytes - 1;
  support_assert_status(twh_transformer_execute(made, NULL, &out, &options, &error), TWH_E_MEMORY, &error, "workspace_bytes");
  assert_int_equal(stats.blocks, 0);
  options.workspace = workspace + 64;
  options.workspace_bytes = (size_t)info.workspace_bytes;
  support_assert_status(twh_transformer_execute(made, NULL, &out, &options, &error), TWH_E_ARGUMENT, &error, "aligned");
  options.workspace = workspace;
  allocations = memory.allocations;
  support_assert_status(twh_transformer_execute(made, NULL, &out, &options, &error), TWH_OK, &error, NULL);
  assert_true(stats.calls > 0);
  assert_int_equal(memory.allocations, allocations); /* it is all that is needed */
  options.workspace = NULL;
  assert_int_equal(twh_transformer_execute(made, NULL, &out, &options, NULL), TWH_OK);
  assert_int_equal(memory.allocations, allocations + 1);
  free(workspace);
  free(numbers);
  twh_transformer_destroy(made);
  support_model_end(&m);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
}

/* Logits of hundreds: the kernel's sums cannot be read everywhere, and layers take a second level of calls. */
static void repairs_are_a_second_round_of_their_layer(void **state)
{
  support_model         m;
  twh_transformer_stats stats;
  twh_transformer_info  info;
  double               *truth;
  (void)state;
  support_transformer_plain(&m.t, 3, 1, 40);
  m.t.logit_std = 100.0;
  support_model_begin(&m);
  support_model_again(&m, &m.way, &info, &stats);
  assert_true(stats.repair_calls > 0 && stats.repaired_rows > 0);
  assert_true(stats.rounds > info.rounds && stats.rounds <= info.rounds_max);
  assert_int_equal(info.rounds, 3);
  assert_int_equal(info.rounds_max, 6);
  truth = support_model_rows(&m);
  support_transformer_truth(&m.t, 0.0, truth);
  support_assert_at_most(support_transformer_error(&m.t, truth, m.want), 1e-3, "with repairs");
  free(truth);
  support_model_end(&m);
}

/* ---- little or nothing to do ---- */

static void no_layers_leave_embed_and_finish(void **state)
{
  support_model m;
  support_way   way;
  double       *truth;
  (void)state;
  support_transformer_plain(&m.t, 0, 3, 7);
  support_model_begin(&m);
  truth = support_model_rows(&m);
  support_transformer_truth(&m.t, 1.0, truth);
  assert_memory_equal(truth, m.want, m.bytes);
  memset(&way, 0, sizeof way); /* no kernel either */
  support_model_expect_same(&m, &way, "no kernel", 0);
  free(truth);
  support_model_end(&m);
  support_transformer_plain(&m.t, 0, 1, 5);
  m.t.with = 0;
  support_model_begin(&m);
  assert_memory_equal(m.want, m.t.x, m.bytes);
  m.way.in_place = 1;
  support_model_expect_same(&m, &m.way, "x as out", 0);
  support_model_end(&m);
}

static void no_rows_and_no_sequences_are_nothing_to_do(void **state)
{
  int64_t batch;
  (void)state;
  for (batch = 0; batch < 4; ++batch) {
    support_model         m;
    twh_transformer_info  info;
    twh_transformer_stats stats;
    support_transformer_plain(&m.t, 3, batch, 0);
    support_model_begin(&m);
    support_model_again(&m, &m.way, &info, &stats);
    assert_int_equal(info.rows, 0);
    assert_int_equal(info.calls, 0);
    assert_int_equal(info.blocks, 0);
    assert_int_equal(stats.calls + stats.batches + stats.rounds + stats.row_rounds + stats.blocks, 0);
    m.t.desc.lengths = NULL;
    m.t.desc.length = 7;
    if (batch == 0) support_model_again(&m, &m.way, &info, &stats);
    m.t.desc.lengths = m.t.lengths;
    m.t.desc.length = 0;
    support_model_end(&m);
  }
}

static void one_length_is_as_good_as_a_list(void **state)
{
  support_model m;
  (void)state;
  support_transformer_plain(&m.t, 2, 3, 11);
  m.t.layers[1].pattern.flags = TWH_CAUSAL;
  m.t.layers[1].desc.pattern = &m.t.layers[1].pattern;
  support_model_begin(&m);
  m.t.desc.lengths = NULL;
  m.t.desc.length = 11;
  support_model_expect_same(&m, &m.way, "length", 11);
  support_model_end(&m);
}

/* ---- NaN ---- */

static void a_nan_stays_in_its_sequence(void **state)
{
  uint64_t number;
  int64_t  r, c, b, first;
  (void)state;
  for (number = 0; number < 12; ++number) {
    support_model m;
    double       *truth;
    support_transformer_choose(&m.t, support_seed(15), number);
    m.t.with &= ~(uint32_t)SUPPORT_WITH_EMBED;
    m.t.desc.batch = 4;
    for (b = 0; b < 4; ++b) m.t.lengths[b] = 3 + (int64_t)(number * 5 + (uint64_t)b * 7) % 12;
    support_model_begin(&m);
    truth = support_model_rows(&m);
    support_transformer_truth(&m.t, 0.0, truth);
    b = (int64_t)(number % 4);
    for (first = 0, r = 0; r < b; ++r) first += m.t.lengths[r];
    m.t.x[(first + 1) * m.t.desc.model_dim + 2] = number % 3 ? (double)NAN : -INFINITY;
    m.oracle.finite_only = 0; /* what the host hands over is not finite */
    support_model_again(&m, &m.way, NULL, NULL);
    for (r = 0; r < m.t.rows; ++r)
      for (c = 0; c < m.t.desc.model_dim; ++c) {
        double got = m.got[r * m.t.desc.model_dim + c];
        if (r < first || r >= first + m.t.lengths[b])
          support_assert_at_most(fabs(got - truth[r * m.t.desc.model_dim + c]), 1e-4, m.t.text);
        else if (r == first + 1)
          assert_true(!isfinite(got) || (c != 2 && !(m.t.layers[0].with & SUPPORT_WITH_AFTER)));
      }
    free(truth);
    support_model_end(&m);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensors_of_every_type_hold_the_same_numbers),
    cmocka_unit_test(a_double_x_is_rounded_once),
    cmocka_unit_test(strides_may_be_negative_or_zero),
    cmocka_unit_test(a_workspace_must_be_large_enough_and_aligned_and_is_enough),
    cmocka_unit_test(repairs_are_a_second_round_of_their_layer),
    cmocka_unit_test(no_layers_leave_embed_and_finish),
    cmocka_unit_test(no_rows_and_no_sequences_are_nothing_to_do),
    cmocka_unit_test(one_length_is_as_good_as_a_list),
    cmocka_unit_test(a_nan_stays_in_its_sequence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
