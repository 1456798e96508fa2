/* A small transformer as an oracle: what it says of itself, its weights, the independence of its slots, and the problems that it
 * computes. How it refuses and fails is in test_transformer_oracle_failures.c. */
#include "support.h"

#include "reference/reference.h"

/* Slots of a call, filled by hand; everything float64 until it is stored. */
typedef struct small_call {
  twh_oracle_desc desc;
  twh_call        call;
  void           *q, *k, *v, *out;
} small_call;

static void small_desc(twh_transformer_oracle_desc *desc, int32_t dtype, int64_t layers, int64_t heads, int64_t length)
{
  twh_transformer_oracle_desc_init(desc);
  desc->layers = layers;
  desc->heads = heads;
  desc->length = length;
  desc->qk_dim = 6;
  desc->v_dim = 5;
  desc->model_dim = layers * heads * 2 * (6 + 5);
  desc->dtype = dtype;
  desc->mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
  desc->scale = 0.4;
}

static twh_oracle *small_create(const twh_transformer_oracle_desc *desc)
{
  twh_oracle *oracle = NULL;
  twh_error   error;
  twh_error_init(&error);
  support_assert_status(twh_reference_transformer_create(NULL, desc, &oracle, &error), TWH_OK, &error, NULL);
  return oracle;
}

/* One element, a function of its place alone. */
static double small_value(int which, int64_t slot, int64_t row, int64_t column, double size)
{
  support_random random = support_random_at((uint64_t)(which * 1000 + slot), (uint64_t)(row * 100 + column));
  return size * support_normal(&random);
}

static void small_begin(small_call *c, const twh_oracle *oracle, uint32_t mode)
{
  int64_t slots, rows, s, r, i;
  memset(c, 0, sizeof *c);
  twh_oracle_desc_init(&c->desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &c->desc, NULL), TWH_OK);
  slots = c->desc.slots;
  rows = c->desc.q_len;
  c->q = calloc((size_t)(slots * rows * c->desc.qk_dim), 4);
  c->k = calloc((size_t)(slots * rows * c->desc.qk_dim), 4);
  c->v = calloc((size_t)(slots * rows * c->desc.v_dim), 4);
  c->out = calloc((size_t)(slots * rows * c->desc.v_dim), 4);
  assert_true(c->q && c->k && c->v && c->out);
  for (s = 0; s < slots; ++s)
    for (r = 0; r < rows; ++r) {
      for (i = 0; i < c->desc.qk_dim; ++i) {
        support_store(c->q, c->desc.dtype, (s * rows + r) * c->desc.qk_dim + i, small_value(0, s, r, i, 2));
        support_store(c->k, c->desc.dtype, (s * rows + r) * c->desc.qk_dim + i, small_value(1, s, r, i, 2));
      }
      for (i = 0; i < c->desc.v_dim; ++i)
        support_store(c->v, c->desc.dtype, (s * rows + r) * c->desc.v_dim + i, small_value(2, s, r, i, 3));
    }
  twh_call_init(&c->call);
  c->call.mask_mode = mode;
  c->call.slots = slots;
  c->call.q_len = c->call.k_len = rows;
  c->call.q.data = c->q;
  c->call.k.data = c->k;
  c->call.v.data = c->v;
  c->call.out = c->out;
  c->call.q.row_stride = c->call.k.row_stride = c->desc.qk_dim;
  c->call.v.row_stride = c->call.out_row_stride = c->desc.v_dim;
  c->call.q.slot_stride = c->call.k.slot_stride = rows * c->desc.qk_dim;
  c->call.v.slot_stride = c->call.out_slot_stride = rows * c->desc.v_dim;
  c->call.scale = c->desc.scale;
}

static void small_run(small_call *c)
{
  const twh_call *calls[1];
  calls[0] = &c->call;
  memset(c->out, SUPPORT_POISON, (size_t)(c->desc.slots * c->desc.q_len * c->desc.v_dim * support_bytes(c->desc.dtype)));
  assert_int_equal(c->desc.run(c->desc.user, calls, 1), 0);
}

static void small_end(small_call *c)
{
  free(c->q);
  free(c->k);
  free(c->v);
  free(c->out);
}

/* The largest error of a slot against float64, over the largest value. */
static double small_error(const small_call *c, int64_t slot)
{
  const int32_t dtype = c->desc.dtype;
  const int64_t rows = c->desc.q_len, qk = c->desc.qk_dim, dv = c->desc.v_dim;
  double        worst = 0, largest = 0;
  int64_t       i, j, p;
  for (i = 0; i < rows; ++i) {
    int64_t keys = c->call.mask_mode == TWH_MASK_CAUSAL ? i + 1 : rows;
    double  score[64], most = -INFINITY, sum = 0, out[16] = {0};
    for (j = 0; j < keys; ++j) {
      score[j] = 0;
      for (p = 0; p < qk; ++p)
        score[j] += support_load(c->q, dtype, (slot * rows + i) * qk + p) * support_load(c->k, dtype, (slot * rows + j) * qk + p);
      score[j] *= c->desc.scale;
      if (score[j] > most) most = score[j];
    }
    for (j = 0; j < keys; ++j) {
      double weight = exp(score[j] - most);
      sum += weight;
      for (p = 0; p < dv; ++p) out[p] += weight * support_load(c->v, dtype, (slot * rows + j) * dv + p);
    }
    for (p = 0; p < dv; ++p) {
      double error = fabs(support_load(c->out, dtype, (slot * rows + i) * dv + p) - out[p] / sum);
      if (!(error <= worst)) worst = error;
      if (fabs(out[p] / sum) > largest) largest = fabs(out[p] / sum);
    }
  }
  return worst / largest;
}

static void a_small_transformer_has_a_slot_for_each_head(void **state)
{
  twh_transformer_oracle_desc desc;
  twh_oracle                 *oracle;
  twh_oracle_desc             got;
  (void)state;
  small_desc(&desc, TWH_F16, 3, 4, 16);
  desc.model_dim += 7;
  desc.mask_modes = TWH_MASK_CAUSAL;
  desc.max_calls_per_batch = 9;
  desc.cost_per_call = 2.5;
  oracle = small_create(&desc);
  twh_oracle_desc_init(&got);
  assert_int_equal(twh_oracle_get_desc(oracle, &got, NULL), TWH_OK);
  assert_int_equal(got.slots, 12);
  assert_int_equal(got.q_len, 16);
  assert_int_equal(got.k_len, 16);
  assert_int_equal(got.qk_dim, 6);
  assert_int_equal(got.v_dim, 5);
  assert_int_equal(got.dtype, TWH_F16);
  assert_int_equal(got.out_dtype, TWH_F16);
  assert_int_equal(got.mask_modes, TWH_MASK_CAUSAL);
  assert_int_equal(got.flags & TWH_ORACLE_LSE, 0);
  assert_int_equal(got.max_calls_per_batch, 9);
  assert_true(got.cost_per_call == 2.5 && got.scale == 0.4);
  twh_oracle_destroy(oracle);
}

/* What a kernel is given: kept by load, looked at by run. */
typedef struct small_watch {
  twh_transformer_oracle_desc    desc;
  const twh_transformer_weights *weights;
  int                            loads, runs;
} small_watch;

static int32_t small_watch_load(void *user, const twh_transformer_weights *weights)
{
  small_watch *watch = (small_watch *)user;
  assert_int_equal(watch->runs, 0);
  ++watch->loads;
  watch->weights = weights;
  return 0;
}

/* Element (row, column) of matrix `number`. */
static double small_weight(const small_watch *watch, const twh_operand *operand, int64_t number, int64_t row, int64_t column)
{
  return support_load(operand->data, watch->desc.dtype, number * operand->slot_stride + row * operand->row_stride + column);
}

/* Each head reads one column of x for each of its coordinates and writes as many, and no two heads have one in common. */
static int32_t small_watch_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  small_watch   *watch = (small_watch *)user;
  const int64_t  dim = watch->desc.model_dim, heads = watch->desc.layers * watch->desc.heads;
  unsigned char *owned = (unsigned char *)calloc((size_t)dim, 1);
  int64_t        h, i, r, c;
  assert_non_null(owned);
  ++watch->runs;
  for (i = 0; i < n; ++i) {
    assert_ptr_equal(calls[i]->weights, watch->weights);
    assert_int_equal((uintptr_t)calls[i]->x % 64, 0);
    memcpy(calls[i]->out, calls[i]->x, (size_t)(watch->desc.length * dim * support_bytes(watch->desc.dtype)));
  }
  for (h = 0; h < heads; ++h)
    for (i = 0; i < 4; ++i) {
      const twh_operand *operand = &watch->weights->wq + i;
      const int64_t      own = i < 2 ? watch->desc.qk_dim : watch->desc.v_dim;
      for (c = 0; c < own; ++c) {
        int ones = 0;
        for (r = 0; r < dim; ++r) {
          double value = small_weight(watch, operand, h, i < 3 ? r : c, i < 3 ? c : r);
          assert_true(value == 0 || value == 1);
          if (value == 0) continue;
          ++ones;
          assert_int_equal(owned[r]++, 0);
        }
        assert_int_equal(ones, 1);
      }
    }
  free(owned);
  return 0;
}

static void weights_are_ones_that_select_columns(void **state)
{
  small_watch watch;
  twh_oracle *oracle = NULL;
  small_call  call;
  (void)state;
  memset(&watch, 0, sizeof watch);
  small_desc(&watch.desc, TWH_BF16, 2, 3, 8);
  watch.desc.model_dim += 3;
  watch.desc.load = small_watch_load;
  watch.desc.run = small_watch_run;
  watch.desc.user = &watch;
  assert_int_equal(twh_oracle_from_transformer(NULL, &watch.desc, &oracle, NULL), TWH_OK);
  assert_int_equal(watch.loads, 1);
  small_begin(&call, oracle, TWH_MASK_NONE);
  small_run(&call);
  small_run(&call);
  assert_int_equal(watch.loads, 1);
  assert_int_equal(watch.runs, 2);
  assert_true(support_load(call.out, TWH_BF16, 0) == 0); /* output columns are zero before the first layer */
  small_end(&call);
  twh_oracle_destroy(oracle);
}

static const int32_t small_dtypes[] = {TWH_F32, TWH_BF16, TWH_F16};

static void every_slot_computes_its_attention(void **state)
{
  int64_t d, causal, s;
  (void)state;
  for (d = 0; d < 3; ++d)
    for (causal = 0; causal < 2; ++causal) {
      twh_transformer_oracle_desc desc;
      twh_oracle                 *oracle;
      small_call                  call;
      small_desc(&desc, small_dtypes[d], 1 + d, 3 - d, 16);
      oracle = small_create(&desc);
      small_begin(&call, oracle, causal ? TWH_MASK_CAUSAL : TWH_MASK_NONE);
      small_run(&call);
      for (s = 0; s < call.desc.slots; ++s) {
        double error = small_error(&call, s);
        if (!(error <= 2 * support_epsilon(small_dtypes[d]))) fail_msg("dtype %d slot %d: %g", small_dtypes[d], (int)s, error);
      }
      small_end(&call);
      twh_oracle_destroy(oracle);
    }
}

/* What is put into every slot but number 2. */
static void small_spoil(small_call *c, double q, double k, double v)
{
  const int64_t rows = c->desc.q_len;
  int64_t       s;
  for (s = 0; s < c->desc.slots; ++s) {
    if (s == 2) continue;
    support_store(c->q, c->desc.dtype, (s * rows + 3) * c->desc.qk_dim + 1, q);
    support_store(c->k, c->desc.dtype, (s * rows + 5) * c->desc.qk_dim + 1, k);
    support_store(c->v, c->desc.dtype, (s * rows + 7) * c->desc.v_dim + 1, v);
  }
}

static void what_other_slots_hold_changes_no_bit(void **state)
{
  static const double spoils[][3] = {
    {NAN, 1, 1}, {1, NAN, 1}, {1, 1, NAN}, {INFINITY, 1, 1}, {1, -INFINITY, 1}, {1, 1, INFINITY},
    {1e38, 1e38, 1}, {-1e30, 1e30, 1}, {1e19, -1e19, 1e38}, {0, 0, 3e38},
  };
  int64_t n, i;
  (void)state;
  for (n = 0; n < 6; ++n) {
    int64_t                     d = n / 2;
    twh_transformer_oracle_desc desc;
    twh_oracle                 *oracle;
    small_call                  call;
    unsigned char               alone[16 * 5 * 4];
    size_t                      bytes;
    small_desc(&desc, small_dtypes[d], 2, 2, 16);
    oracle = small_create(&desc);
    small_begin(&call, oracle, n % 2 ? TWH_MASK_CAUSAL : TWH_MASK_NONE);
    bytes = (size_t)(16 * 5 * support_bytes(small_dtypes[d]));
    small_run(&call);
    memcpy(alone, (char *)call.out + 2 * bytes, bytes);
    for (i = 0; i < SUPPORT_COUNT(spoils); ++i) {
      double error;
      small_spoil(&call, spoils[i][0], spoils[i][1], spoils[i][2]);
      small_run(&call);
      assert_memory_equal(alone, (char *)call.out + 2 * bytes, bytes);
      error = small_error(&call, 1);
      if (isfinite(spoils[i][0] + spoils[i][1] + spoils[i][2]) && small_dtypes[d] != TWH_F16 &&
          !(error <= 2 * support_epsilon(small_dtypes[d])))
        fail_msg("dtype %d, spoil %d: the spoiled slot has error %g", small_dtypes[d], (int)i, error);
    }
    /* a NaN in one query is one row's */
    small_spoil(&call, NAN, 1, 1);
    small_run(&call);
    assert_true(isnan(support_load(call.out, small_dtypes[d], 3 * 5)));
    assert_true(isfinite(support_load(call.out, small_dtypes[d], 4 * 5)));
    small_end(&call);
    twh_oracle_destroy(oracle);
  }
}

static void small_report(void *user, const char *promise, int32_t verdict, const char *detail)
{
  (void)user;
  if (verdict == TWH_CHECK_UNTRUE) print_message("%s: %s\n", promise, detail);
}

static void the_check_finds_nothing_untrue(void **state)
{
  int64_t d;
  (void)state;
  for (d = 0; d < 3; ++d) {
    twh_transformer_oracle_desc desc;
    twh_oracle                 *oracle;
    int64_t                     untrue = -1;
    small_desc(&desc, small_dtypes[d], 2, 2, 12);
    oracle = small_create(&desc);
    assert_int_equal(twh_oracle_check(NULL, oracle, small_report, NULL, &untrue, NULL), TWH_OK);
    assert_int_equal(untrue, 0);
    twh_oracle_destroy(oracle);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_small_transformer_has_a_slot_for_each_head),
    cmocka_unit_test(weights_are_ones_that_select_columns),
    cmocka_unit_test(every_slot_computes_its_attention),
    cmocka_unit_test(what_other_slots_hold_changes_no_bit),
    cmocka_unit_test(the_check_finds_nothing_untrue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
