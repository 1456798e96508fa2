/* Merging of partial states: empty ones, in place, any strides and dtypes, and a direct evaluation in float64. */
#include "support.h"

enum { MERGE_MOST = 40 };

typedef struct merge_set {
  int64_t           n, batch, heads, rows, dim;
  twh_tensor        out[MERGE_MOST], lse[MERGE_MOST], result, result_lse;
  const twh_tensor *outs[MERGE_MOST], *lses[MERGE_MOST];
  void             *memory[2 * MERGE_MOST + 2];
  int               blocks;
} merge_set;

/* A tensor whose rows are `gap` elements apart from each other, poisoned. */
static void merge_tensor(merge_set *set, twh_tensor *tensor, int32_t dtype, int64_t dim, int64_t gap)
{
  size_t bytes;
  void  *memory;
  twh_tensor_init(tensor);
  tensor->dtype = dtype;
  tensor->row_stride = dim + gap;
  tensor->head_stride = set->rows * tensor->row_stride + gap;
  tensor->batch_stride = set->heads * tensor->head_stride + gap;
  bytes = (size_t)((set->batch * tensor->batch_stride + 1) * support_bytes(dtype));
  memory = malloc(bytes);
  assert_non_null(memory);
  memset(memory, SUPPORT_POISON, bytes);
  tensor->data = memory;
  set->memory[set->blocks++] = memory;
}

/* n random states; one in four rows of each has seen no key and holds NaN in out. */
static void merge_set_create(merge_set *set, support_random *random, int64_t n, int32_t dtype, int64_t gap)
{
  int64_t i, b, h, r, c;
  memset(set, 0, sizeof *set);
  set->n = n;
  set->batch = 2;
  set->heads = 3;
  set->rows = 5;
  set->dim = 4;
  for (i = 0; i < n; ++i) {
    merge_tensor(set, &set->out[i], dtype ? dtype : (int32_t)support_between(random, TWH_F32, TWH_F64), set->dim, gap);
    merge_tensor(set, &set->lse[i], i % 2 ? TWH_F64 : TWH_F32, 1, gap);
    set->outs[i] = &set->out[i];
    set->lses[i] = &set->lse[i];
    for (b = 0; b < set->batch; ++b)
      for (h = 0; h < set->heads; ++h)
        for (r = 0; r < set->rows; ++r) {
          int empty = support_one_in(random, 4) || r == 0;
          support_set(&set->lse[i], b, h, r, 0, empty ? -INFINITY : 300.0 * support_normal(random));
          for (c = 0; c < set->dim; ++c) support_set(&set->out[i], b, h, r, c, empty ? (double)NAN : support_normal(random));
        }
  }
  merge_tensor(set, &set->result, TWH_F64, set->dim, gap);
  merge_tensor(set, &set->result_lse, TWH_F64, 1, gap);
}

static void merge_set_destroy(merge_set *set)
{
  int i;
  for (i = 0; i < set->blocks; ++i) free(set->memory[i]);
}

static twh_status merge_run(const merge_set *set, const twh_tensor *out, const twh_tensor *lse, uint32_t flags,
                            twh_error *error)
{
  return twh_states_merge(set->n, set->outs, set->lses, set->batch, set->heads, set->rows, set->dim, out, lse, flags, error);
}

static double merge_truth(const merge_set *set, int64_t b, int64_t h, int64_t r, int64_t c, double *lse)
{
  double  most = -INFINITY, sum = 0.0, out = 0.0, one, weight;
  int64_t i;
  for (i = 0; i < set->n; ++i) {
    one = support_at(set->lses[i], b, h, r, 0);
    if (one > most) most = one;
  }
  *lse = -INFINITY;
  if (most == -INFINITY) return 0.0;
  for (i = 0; i < set->n; ++i) {
    one = support_at(set->lses[i], b, h, r, 0);
    if (one == -INFINITY) continue;
    weight = exp(one - most);
    sum += weight;
    out += weight * support_at(set->outs[i], b, h, r, c);
  }
  *lse = most + log(sum);
  return out / sum;
}

/* Largest error of a result, relative to the spacing of its dtype. */
static double merge_error(const merge_set *set, const twh_tensor *out, const twh_tensor *lse)
{
  double  worst = 0.0, want, want_lse, got, one;
  int64_t b, h, r, c;
  for (b = 0; b < set->batch; ++b)
    for (h = 0; h < set->heads; ++h)
      for (r = 0; r < set->rows; ++r)
        for (c = 0; c < set->dim; ++c) {
          want = merge_truth(set, b, h, r, c, &want_lse);
          one = fabs(support_at(out, b, h, r, c) - want) / (support_ulp(want, out->dtype) + 1e-14);
          if (!(one <= worst)) worst = isnan(one) ? (double)INFINITY : one;
          if (!lse) continue;
          got = support_at(lse, b, h, r, 0);
          one = got == want_lse ? 0.0 : fabs(got - want_lse) / (support_ulp(want_lse, lse->dtype) + 1e-11);
          if (!(one <= worst)) worst = isnan(one) ? (double)INFINITY : one;
        }
  return worst;
}

static void case_C01_merging_empty_states_one_state_and_no_state(void **state)
{
  float             zero[2] = { 5.0f, 6.0f }, none = -INFINITY, one[2] = { 3.0f, -4.0f }, some = 1.25f, result[2], result_lse;
  twh_tensor        empty, empty_lse, full, full_lse, out, lse;
  const twh_tensor *outs[2], *lses[2];
  (void)state;
  twh_tensor_dense(&empty, TWH_F32, zero, 1, 1, 2);
  twh_tensor_dense(&empty_lse, TWH_F32, &none, 1, 1, 1);
  twh_tensor_dense(&full, TWH_F32, one, 1, 1, 2);
  twh_tensor_dense(&full_lse, TWH_F32, &some, 1, 1, 1);
  twh_tensor_dense(&out, TWH_F32, result, 1, 1, 2);
  twh_tensor_dense(&lse, TWH_F32, &result_lse, 1, 1, 1);
  outs[0] = outs[1] = &empty;
  lses[0] = lses[1] = &empty_lse;
  result[0] = result[1] = result_lse = (float)NAN;
  assert_int_equal(twh_states_merge(2, outs, lses, 1, 1, 1, 2, &out, &lse, 0, NULL), TWH_OK);
  assert_true(result[0] == 0.0f && result[1] == 0.0f && result_lse == -INFINITY);
  outs[0] = &full;
  lses[0] = &full_lse;
  assert_int_equal(twh_states_merge(1, outs, lses, 1, 1, 1, 2, &out, &lse, 0, NULL), TWH_OK);
  assert_true(result[0] == 3.0f && result[1] == -4.0f && result_lse == 1.25f);
  result[0] = result[1] = result_lse = (float)NAN;
  assert_int_equal(twh_states_merge(2, outs, lses, 1, 1, 1, 2, &out, &lse, 0, NULL), TWH_OK);
  assert_true(result[0] == 3.0f && result[1] == -4.0f && result_lse == 1.25f);
  result[0] = result[1] = result_lse = (float)NAN;
  assert_int_equal(twh_states_merge(0, NULL, NULL, 1, 1, 1, 2, &out, &lse, 0, NULL), TWH_OK);
  assert_true(result[0] == 0.0f && result[1] == 0.0f && result_lse == -INFINITY);
}

static void case_C04_an_empty_row_with_lse_plus_infinity(void **state)
{
  float      spoiled[1] = { (float)NAN }, nothing[2] = { INFINITY, -INFINITY }, seven = 7.0f, zero = 0.0f, result, result_lse;
  twh_tensor empty, empty_lse, full, full_lse, out, lse;
  const twh_tensor *outs[2], *lses[2];
  int               i;
  (void)state;
  twh_tensor_dense(&empty, TWH_F32, spoiled, 1, 1, 1);
  twh_tensor_dense(&full, TWH_F32, &seven, 1, 1, 1);
  twh_tensor_dense(&full_lse, TWH_F32, &zero, 1, 1, 1);
  twh_tensor_dense(&out, TWH_F32, &result, 1, 1, 1);
  twh_tensor_dense(&lse, TWH_F32, &result_lse, 1, 1, 1);
  for (i = 0; i < 2; ++i) {
    twh_tensor_dense(&empty_lse, TWH_F32, &nothing[i], 1, 1, 1);
    outs[i] = &empty;
    lses[i] = &empty_lse;
    outs[1 - i] = &full;
    lses[1 - i] = &full_lse;
    result = result_lse = (float)NAN;
    assert_int_equal(twh_states_merge(2, outs, lses, 1, 1, 1, 1, &out, &lse, TWH_MERGE_EMPTY_POS_INF, NULL), TWH_OK);
    assert_true(result == 7.0f && result_lse == 0.0f);
    outs[0] = outs[1] = &empty;
    lses[0] = lses[1] = &empty_lse;
    assert_int_equal(twh_states_merge(2, outs, lses, 1, 1, 1, 1, &out, &lse, TWH_MERGE_EMPTY_POS_INF, NULL), TWH_OK);
    assert_true(result == 0.0f && result_lse == -INFINITY);
  }
}

static void merging_random_states_equals_direct_evaluation(void **state)
{
  static const int64_t counts[] = { 1, 2, 3, 7, MERGE_MOST };
  uint64_t             seed = support_seed(20250901), i;
  (void)state;
  for (i = 0; i < 50; ++i) {
    support_random random = support_random_at(seed, i);
    merge_set      set;
    merge_set_create(&set, &random, counts[i % 5], i % 2 ? TWH_F32 : 0, (int64_t)(i % 3));
    assert_int_equal(merge_run(&set, &set.result, &set.result_lse, 0, NULL), TWH_OK);
    support_assert_at_most(merge_error(&set, &set.result, &set.result_lse), 8.0, "error in ulp");
    assert_int_equal(merge_run(&set, &set.result, NULL, 0, NULL), TWH_OK);
    support_assert_at_most(merge_error(&set, &set.result, NULL), 8.0, "error in ulp without lse");
    merge_set_destroy(&set);
  }
}

static void merging_rounds_once_to_the_result_dtype(void **state)
{
  static const int32_t dtypes[] = { TWH_F16, TWH_BF16, TWH_F32 };
  int                  i;
  (void)state;
  for (i = 0; i < 3; ++i) {
    support_random random = support_random_at(support_seed(3), (uint64_t)i);
    merge_set      set;
    twh_tensor     out, lse;
    merge_set_create(&set, &random, 5, dtypes[i], 0);
    merge_tensor(&set, &out, dtypes[i], set.dim, 3);
    merge_tensor(&set, &lse, TWH_F32, 1, 2);
    assert_int_equal(merge_run(&set, &out, &lse, 0, NULL), TWH_OK);
    support_assert_at_most(merge_error(&set, &out, &lse), 0.5001, "error in ulp");
    merge_set_destroy(&set);
  }
}

typedef struct merge_thread {
  const merge_set *set;
  double           out[2 * 3 * 5 * 4], lse[2 * 3 * 5];
  twh_status       status;
} merge_thread;

static void *merge_in_thread(void *arg)
{
  merge_thread *job = (merge_thread *)arg;
  twh_tensor    out, lse;
  int           i;
  twh_tensor_dense(&out, TWH_F64, job->out, 3, 5, 4);
  twh_tensor_dense(&lse, TWH_F64, job->lse, 3, 5, 1);
  for (i = 0; i < 50; ++i) job->status = merge_run(job->set, &out, &lse, 0, NULL);
  return NULL;
}

static void case_C24_merge_in_place_and_by_many_threads_is_bitwise_equal(void **state)
{
  support_random random = support_random_at(support_seed(24), 0);
  merge_set      set;
  merge_thread   jobs[8];
  pthread_t      threads[8];
  twh_tensor     out, lse;
  double         want[120], want_lse[30];
  int64_t        i, b, h, r, c;
  (void)state;
  merge_set_create(&set, &random, 6, TWH_F64, 1);
  twh_tensor_dense(&out, TWH_F64, want, 3, 5, 4);
  twh_tensor_dense(&lse, TWH_F64, want_lse, 3, 5, 1);
  assert_int_equal(merge_run(&set, &out, &lse, 0, NULL), TWH_OK);
  memset(jobs, SUPPORT_POISON, sizeof jobs);
  for (i = 0; i < 8; ++i) {
    jobs[i].set = &set;
    assert_int_equal(pthread_create(&threads[i], NULL, merge_in_thread, &jobs[i]), 0);
  }
  for (i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
  for (i = 0; i < 8; ++i) {
    assert_int_equal(jobs[i].status, TWH_OK);
    assert_memory_equal(jobs[i].out, want, sizeof want);
    assert_memory_equal(jobs[i].lse, want_lse, sizeof want_lse);
  }
  for (i = 1; i < 6; i += 2) { /* the f64 lse tensors are the odd ones; each time the inputs are as they were */
    merge_set again;
    random = support_random_at(support_seed(24), 0);
    merge_set_create(&again, &random, 6, TWH_F64, 1);
    assert_int_equal(merge_run(&again, &again.out[i], &again.lse[i], 0, NULL), TWH_OK);
    for (b = 0; b < 2; ++b)
      for (h = 0; h < 3; ++h)
        for (r = 0; r < 5; ++r) {
          for (c = 0; c < 4; ++c) assert_true(support_at(&again.out[i], b, h, r, c) == want[((b * 3 + h) * 5 + r) * 4 + c]);
          assert_true(support_at(&again.lse[i], b, h, r, 0) == want_lse[(b * 3 + h) * 5 + r]);
        }
    merge_set_destroy(&again);
  }
  merge_set_destroy(&set);
}

static void merging_writes_nothing_between_rows(void **state)
{
  support_random random = support_random_at(support_seed(5), 0);
  merge_set      set;
  const double  *data;
  int64_t        r;
  (void)state;
  merge_set_create(&set, &random, 3, TWH_F32, 2);
  assert_int_equal(merge_run(&set, &set.result, &set.result_lse, 0, NULL), TWH_OK);
  data = (const double *)set.result.data;
  for (r = 0; r < set.rows; ++r) assert_true(!isnan(data[r * 6 + 3]) && isnan(data[r * 6 + 4]) && isnan(data[r * 6 + 5]));
  data = (const double *)set.result_lse.data;
  for (r = 0; r < set.rows; ++r) assert_true(!isnan(data[r * 3]) && isnan(data[r * 3 + 1]) && isnan(data[r * 3 + 2]));
  merge_set_destroy(&set);
}

static void merging_nothing_writes_nothing(void **state)
{
  support_random random = support_random_at(support_seed(6), 0);
  merge_set      set;
  (void)state;
  merge_set_create(&set, &random, 3, TWH_F32, 0);
  set.rows = 0;
  assert_int_equal(merge_run(&set, &set.result, &set.result_lse, 0, NULL), TWH_OK);
  set.rows = 5;
  set.batch = 0;
  assert_int_equal(merge_run(&set, &set.result, &set.result_lse, 0, NULL), TWH_OK);
  assert_true(isnan(*(const double *)set.result.data) && isnan(*(const double *)set.result_lse.data));
  merge_set_destroy(&set);
}

static void merging_bad_arguments_is_refused(void **state)
{
  support_random random = support_random_at(support_seed(7), 0);
  merge_set      set;
  twh_error      error;
  twh_tensor     bad;
  (void)state;
  twh_error_init(&error);
  merge_set_create(&set, &random, 2, TWH_F32, 0);
  set.n = -1;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "n");
  set.n = 2;
  set.rows = -1;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "rows");
  set.rows = 5;
  set.heads = -1;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "heads");
  set.heads = 3;
  set.batch = -2;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "batch");
  set.batch = 2;
  set.dim = -1;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "dim");
  set.dim = 4;
  support_assert_status(merge_run(&set, NULL, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "out");
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 1u << 31, &error), TWH_E_VERSION, &error, "flags");
  bad = set.result;
  bad.dtype = 77;
  support_assert_status(merge_run(&set, &bad, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "dtype");
  bad = set.result;
  bad.data = NULL;
  support_assert_status(merge_run(&set, &bad, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "out");
  set.lses[1] = NULL;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "lses");
  set.lses[1] = &set.lse[1];
  set.outs[0] = NULL;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "outs");
  set.outs[0] = &bad;
  bad = set.out[0];
  bad.dtype = TWH_BOOL;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "dtype");
  bad = set.out[0];
  bad.struct_size = 0;
  support_assert_status(merge_run(&set, &set.result, &set.result_lse, 0, &error), TWH_E_ARGUMENT, &error, "outs");
  merge_set_destroy(&set);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C01_merging_empty_states_one_state_and_no_state),
    cmocka_unit_test(case_C04_an_empty_row_with_lse_plus_infinity),
    cmocka_unit_test(case_C24_merge_in_place_and_by_many_threads_is_bitwise_equal),
    cmocka_unit_test(merging_random_states_equals_direct_evaluation),
    cmocka_unit_test(merging_rounds_once_to_the_result_dtype),
    cmocka_unit_test(merging_writes_nothing_between_rows),
    cmocka_unit_test(merging_nothing_writes_nothing),
    cmocka_unit_test(merging_bad_arguments_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
