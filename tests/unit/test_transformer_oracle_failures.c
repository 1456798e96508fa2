/* A small transformer as an oracle: descriptions that are refused, kernels that fail or lie, memory that is not there. */
#include "support_tile.h"

#include <errno.h>

typedef struct small_kernel {
  twh_transformer_oracle_desc desc;
  int                         released, loaded;
  int32_t                     load_code;
  int64_t                     calls, fail_at; /* the fail_at-th call fails; -1: none */
  int                         nan_calls;      /* 1: results are NaN */
} small_kernel;

/* A transformer whose heads add nothing to x: enough for what is tested here, and quick. */
static int32_t small_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  small_kernel *kernel = (small_kernel *)user;
  const int64_t count = kernel->desc.length * kernel->desc.model_dim;
  int64_t       i, j;
  for (i = 0; i < n; ++i) {
    float *out = (float *)calls[i]->out;
    if (kernel->calls++ == kernel->fail_at) return 77;
    memcpy(out, calls[i]->x, (size_t)count * sizeof *out);
    for (j = 0; kernel->nan_calls && j < count; ++j) out[j] = NAN;
  }
  return 0;
}

static int32_t small_load(void *user, const twh_transformer_weights *weights)
{
  small_kernel *kernel = (small_kernel *)user;
  assert_non_null(weights->wo.data);
  ++kernel->loaded;
  return kernel->load_code;
}

static void small_release(void *user)
{
  ++((small_kernel *)user)->released;
}

static void small_begin(small_kernel *kernel)
{
  memset(kernel, 0, sizeof *kernel);
  twh_transformer_oracle_desc_init(&kernel->desc);
  kernel->desc.layers = 2;
  kernel->desc.heads = 3;
  kernel->desc.length = 8;
  kernel->desc.qk_dim = 4;
  kernel->desc.v_dim = 5;
  kernel->desc.model_dim = 2 * 3 * 2 * (4 + 5);
  kernel->desc.dtype = TWH_F32;
  kernel->desc.mask_modes = TWH_MASK_NONE;
  kernel->desc.scale = 0.5;
  kernel->desc.load = small_load;
  kernel->desc.run = small_run;
  kernel->desc.release = small_release;
  kernel->desc.user = kernel;
  kernel->fail_at = -1;
}

typedef struct small_row {
  const char *word;
  size_t      at;
  int32_t     bytes; /* of the field */
  int64_t     value;
  twh_status  status;
} small_row;

#define SMALL_FIELD(field, value, status) \
  { \
#    field, offsetof(twh_transformer_oracle_desc, field), (int32_t)sizeof(((twh_transformer_oracle_desc *)0)->field), value, \
      status \
  }

static const small_row small_rows[] = {
  SMALL_FIELD(layers, 0, TWH_E_ARGUMENT),
  SMALL_FIELD(layers, INT64_MAX, TWH_E_OVERFLOW),
  SMALL_FIELD(heads, -1, TWH_E_ARGUMENT),
  SMALL_FIELD(heads, INT64_MAX / 2, TWH_E_OVERFLOW),
  SMALL_FIELD(length, 0, TWH_E_ARGUMENT),
  SMALL_FIELD(length, INT64_MAX / 8, TWH_E_OVERFLOW),
  SMALL_FIELD(model_dim, 0, TWH_E_ARGUMENT),
  SMALL_FIELD(model_dim, 107, TWH_E_ARGUMENT),
  SMALL_FIELD(model_dim, INT64_MAX / 16, TWH_E_OVERFLOW),
  SMALL_FIELD(qk_dim, 0, TWH_E_ARGUMENT),
  SMALL_FIELD(qk_dim, INT64_MAX, TWH_E_OVERFLOW),
  SMALL_FIELD(v_dim, -5, TWH_E_ARGUMENT),
  SMALL_FIELD(dtype, TWH_F64, TWH_E_ARGUMENT),
  SMALL_FIELD(dtype, 0, TWH_E_ARGUMENT),
  SMALL_FIELD(mask_modes, 0, TWH_E_ARGUMENT),
  SMALL_FIELD(mask_modes, TWH_MASK_TENSOR, TWH_E_ARGUMENT),
  SMALL_FIELD(flags, 1, TWH_E_VERSION),
  SMALL_FIELD(alignment, 48, TWH_E_ARGUMENT),
  SMALL_FIELD(alignment, -64, TWH_E_ARGUMENT),
  SMALL_FIELD(alignment, INT64_C(1) << 62, TWH_E_ARGUMENT),
  SMALL_FIELD(max_calls_per_batch, -1, TWH_E_ARGUMENT),
  SMALL_FIELD(max_concurrent_batches, -1, TWH_E_ARGUMENT),
  SMALL_FIELD(struct_size, 0, TWH_E_ARGUMENT),
  SMALL_FIELD(struct_size, 16, TWH_E_VERSION),
};

static void bad_descriptions_are_refused_by_name(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(small_rows); ++i) {
    const small_row *row = &small_rows[i];
    small_kernel     kernel;
    support_memory   memory;
    twh_context     *context = support_context(&memory, 0, 0);
    twh_oracle      *oracle = (twh_oracle *)&kernel;
    twh_error        error;
    twh_status       status;
    small_begin(&kernel);
    twh_error_init(&error);
    if (row->bytes == 8) memcpy((char *)&kernel.desc + row->at, &row->value, 8);
    if (row->bytes == 4) *(uint32_t *)(void *)((char *)&kernel.desc + row->at) = (uint32_t)row->value;
    status = twh_oracle_from_transformer(context, &kernel.desc, &oracle, &error);
    if (status != row->status || (row->status != TWH_E_OVERFLOW && !strstr(error.message, row->word)) || oracle)
      fail_msg("%s = %lld: %s, \"%s\"", row->word, (long long)row->value, twh_status_name(status), error.message);
    if (strcmp(row->word, "model_dim") == 0 && row->value == 107) assert_non_null(strstr(error.message, "108"));
    assert_int_equal(kernel.loaded + kernel.released, 0);
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
  }
}

static void scales_and_costs_are_refused_by_name(void **state)
{
  small_kernel kernel;
  twh_oracle  *oracle;
  twh_error    error;
  int          i;
  (void)state;
  twh_error_init(&error);
  for (i = 0; i < 6; ++i) {
    static const char *const words[] = { "scale", "scale", "scale", "cost_per_call", "cost_per_batch", "run" };
    small_begin(&kernel);
    if (i < 3) kernel.desc.scale = i == 0 ? 0 : i == 1 ? (double)NAN : (double)INFINITY;
    if (i == 3) kernel.desc.cost_per_call = -1;
    if (i == 4) kernel.desc.cost_per_batch = NAN;
    if (i == 5) kernel.desc.run = NULL;
    support_assert_status(twh_oracle_from_transformer(NULL, &kernel.desc, &oracle, &error), TWH_E_ARGUMENT, &error, words[i]);
    assert_null(oracle);
    assert_int_equal(kernel.loaded + kernel.released, 0);
  }
  assert_int_equal(twh_oracle_from_transformer(NULL, NULL, &oracle, NULL), TWH_E_ARGUMENT);
  assert_int_equal(twh_oracle_from_transformer(NULL, &kernel.desc, NULL, NULL), TWH_E_ARGUMENT);
}

/* A longer struct of a newer header is taken when what this library does not know is zero. */
static void a_newer_description_must_be_zero_beyond(void **state)
{
  small_kernel  kernel;
  twh_oracle   *oracle = NULL;
  unsigned char longer[sizeof(twh_transformer_oracle_desc) + 16];
  (void)state;
  small_begin(&kernel);
  kernel.desc.struct_size = (uint32_t)sizeof longer;
  memset(longer, 0, sizeof longer);
  memcpy(longer, &kernel.desc, sizeof kernel.desc);
  assert_int_equal(twh_oracle_from_transformer(NULL, (twh_transformer_oracle_desc *)(void *)longer, &oracle, NULL), TWH_OK);
  twh_oracle_destroy(oracle);
  assert_int_equal(kernel.released, 1);
  longer[sizeof longer - 1] = 1;
  assert_int_equal(twh_oracle_from_transformer(NULL, (twh_transformer_oracle_desc *)(void *)longer, &oracle, NULL),
                   TWH_E_VERSION);
}

static void a_refusing_load_keeps_its_user(void **state)
{
  small_kernel   kernel;
  support_memory memory;
  twh_context   *context = support_context(&memory, 0, 0);
  twh_oracle    *oracle = NULL;
  twh_error      error;
  (void)state;
  small_begin(&kernel);
  twh_error_init(&error);
  kernel.load_code = -9;
  assert_int_equal(twh_oracle_from_transformer(context, &kernel.desc, &oracle, &error), TWH_E_ORACLE);
  assert_int_equal(error.oracle_code, -9);
  assert_null(oracle);
  assert_int_equal(kernel.loaded, 1);
  assert_int_equal(kernel.released, 0);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
}

/* Plan and execute on one oracle. */
static twh_status small_solve(twh_context *context, twh_oracle *oracle, support_tensors *tensors, const twh_problem *problem,
                              twh_plan_info *info, twh_run_stats *stats, twh_error *error)
{
  twh_plan       *plan = NULL;
  twh_run_options options;
  twh_status      status = twh_plan_create(context, problem, &oracle, 1, NULL, &plan, error);
  if (status < 0) return status;
  twh_plan_info_init(info);
  assert_int_equal(twh_plan_get_info(plan, info, NULL), TWH_OK);
  twh_run_options_init(&options);
  options.stats = stats;
  status = twh_plan_execute(plan, &tensors->all, &options, error);
  twh_plan_destroy(plan);
  return status;
}

static void small_problem(twh_problem *problem, support_tensors *tensors)
{
  support_fill   fill;
  support_random random = support_random_at(5, 5);
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1;
  twh_problem_init(problem);
  problem->batch = 1;
  problem->q_heads = problem->kv_heads = 3;
  problem->q_len = problem->k_len = 20;
  problem->qk_dim = 4;
  problem->v_dim = 4;
  support_tensors_create(tensors, problem, TWH_F32, SUPPORT_DENSE, 0);
  support_tensors_fill(tensors, problem, &fill, &random);
}

static void a_failing_kernel_tells_its_code_and_call(void **state)
{
  small_kernel    kernel;
  support_tensors tensors;
  twh_problem     problem;
  twh_plan_info   info;
  twh_run_stats   stats;
  twh_error       error;
  int64_t         at;
  (void)state;
  small_problem(&problem, &tensors);
  for (at = 0; at < 5; ++at) {
    support_memory memory;
    twh_context   *context = support_context(&memory, 0, 0);
    twh_oracle    *oracle = NULL;
    small_begin(&kernel);
    kernel.fail_at = at;
    kernel.desc.max_calls_per_batch = 1;
    twh_error_init(&error);
    twh_run_stats_init(&stats);
    assert_int_equal(twh_oracle_from_transformer(context, &kernel.desc, &oracle, NULL), TWH_OK);
    assert_int_equal(small_solve(context, oracle, &tensors, &problem, &info, &stats, &error), TWH_E_ORACLE);
    assert_int_equal(error.oracle_code, 77);
    assert_true(error.call >= 0 && error.call < 13); /* its number in the plan, which is not the order of calls */
    assert_int_equal(kernel.calls, at + 1);
    twh_oracle_destroy(oracle);
    assert_int_equal(kernel.released, 1);
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
    assert_int_equal(memory.wrong_releases, 0);
  }
  support_tensors_destroy(&tensors);
}

/* Every allocation of create and of the first execute in turn. */
static void missing_memory_is_reported_and_nothing_leaks(void **state)
{
  support_tensors tensors;
  twh_problem     problem;
  int64_t         at, failures = 0, good = 0;
  (void)state;
  small_problem(&problem, &tensors);
  for (at = 0; !good; ++at) {
    small_kernel   kernel;
    support_memory memory;
    twh_context   *context = support_context(&memory, 0, 0);
    twh_oracle    *oracle = NULL;
    twh_plan_info  info;
    twh_run_stats  stats;
    twh_status     status;
    twh_error      error;
    small_begin(&kernel);
    twh_error_init(&error);
    twh_run_stats_init(&stats);
    memory.fail_at = memory.allocations + at;
    status = twh_oracle_from_transformer(context, &kernel.desc, &oracle, &error);
    assert_true(status == TWH_OK || status == TWH_E_MEMORY);
    assert_int_equal(kernel.loaded, status == TWH_OK);
    if (status == TWH_OK) status = small_solve(context, oracle, &tensors, &problem, &info, &stats, &error);
    if (status == TWH_E_ORACLE) assert_int_equal(error.oracle_code, ENOMEM); /* the kernel's own memory */
    assert_true(status == TWH_OK || status == TWH_E_MEMORY || status == TWH_E_ORACLE);
    failures += status != TWH_OK;
    good = status == TWH_OK;
    twh_oracle_destroy(oracle);
    memory.fail_at = -1;
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
    assert_int_equal(memory.wrong_releases, 0);
  }
  assert_true(failures >= 6); /* oracle, its gate, weights; plan, its spans; workspace, scratch */
  support_tensors_destroy(&tensors);
}

/* What the kernel must not return is computed without it. */
static void a_kernel_that_returns_nan_is_replaced_by_the_host(void **state)
{
  small_kernel    kernel;
  support_tensors tensors;
  support_answer  truth, got;
  twh_problem     problem;
  twh_plan_info   info;
  twh_run_stats   stats;
  twh_oracle     *oracle = NULL;
  (void)state;
  small_problem(&problem, &tensors);
  small_begin(&kernel);
  kernel.nan_calls = 1;
  twh_run_stats_init(&stats);
  assert_int_equal(twh_oracle_from_transformer(NULL, &kernel.desc, &oracle, NULL), TWH_OK);
  assert_int_equal(small_solve(NULL, oracle, &tensors, &problem, &info, &stats, NULL), TWH_OK);
  support_answer_truth(&truth, &problem, &tensors);
  support_answer_read(&got, &problem, &tensors);
  assert_true(support_answer_out_error(&got, &truth) < 1e-6);
  support_answer_destroy(&got);
  support_answer_destroy(&truth);
  twh_oracle_destroy(oracle);
  support_tensors_destroy(&tensors);
}

/* ---- a kernel that lies ---- */

/* The reference kernel, whose output is then spoiled in one row of the columns that slot 1 writes. */
typedef struct small_liar {
  twh_transformer_oracle_desc desc;
  double                      lie; /* 0: none */
} small_liar;

static int32_t small_liar_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  const small_liar *liar = (const small_liar *)user;
  int32_t           code = twh_reference_transformer_run(user, calls, n);
  int64_t           i, c;
  for (i = 0; i < n && code == 0 && liar->lie != 0; ++i) {
    const twh_operand *wo = &calls[i]->weights->wo;
    for (c = 0; c < liar->desc.model_dim; ++c)
      if (support_load(wo->data, liar->desc.dtype, wo->slot_stride + c) != 0)
        support_store(calls[i]->out, liar->desc.dtype, 4 * liar->desc.model_dim + c, liar->lie);
  }
  return code;
}

/* Only the slot in which it stands is computed without the kernel. */
static void a_slot_that_is_not_finite_is_computed_alone(void **state)
{
  static const double  lies[] = { NAN, INFINITY, -INFINITY };
  static const int32_t dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  int64_t              n, i;
  (void)state;
  for (n = 0; n < 9; ++n) {
    small_liar     liar;
    small_kernel   kernel;
    support_tile   tile;
    tile_result    honest, got, want;
    tile_shape     shape = { TWH_MASK_NONE, 0, 0, 0, TILE_GAPS, 2.0, 0.0 };
    support_random random = support_random_at(6, (uint64_t)n);
    twh_oracle    *oracle = NULL;
    small_begin(&kernel);
    memset(&liar, 0, sizeof liar);
    liar.desc = kernel.desc;
    liar.desc.dtype = dtypes[n / 3];
    liar.desc.run = small_liar_run;
    liar.desc.load = NULL;
    liar.desc.release = NULL;
    liar.desc.user = &liar;
    assert_int_equal(twh_oracle_from_transformer(NULL, &liar.desc, &oracle, NULL), TWH_OK);
    tile_create(&tile, oracle, &shape, &random);
    tile_run(&honest, &tile, oracle);
    liar.lie = lies[n % 3];
    tile_run(&got, &tile, oracle);
    tile_truth(&want, &tile);
    for (i = 0; i < got.rows * got.dim; ++i) {
      const int64_t slot = i / (8 * got.dim);
      if (slot != 1) assert_true(got.out[i] == honest.out[i]);
      assert_true(fabs(got.out[i] - want.out[i]) <= 0.5001 * support_ulp(want.out[i], dtypes[n / 3]));
    }
    tile_result_destroy(&honest);
    tile_result_destroy(&got);
    tile_result_destroy(&want);
    tile_destroy(&tile);
    twh_oracle_destroy(oracle);
  }
}

/* By a kernel that changes nothing a slot gets 0; the host's own slots are the attention. So it shows which slots of which call
 * the host computed: those with a NaN, each in its own call. */
static void each_call_has_its_own_slots_computed_alone(void **state)
{
  small_kernel    kernel;
  support_tile    tile[3];
  support_random  random = support_random_at(4, 4);
  tile_shape      shape = { TWH_MASK_NONE, 0, 0, 0, TILE_DECLARED, 1.0, 0.0 };
  twh_oracle     *oracle = NULL;
  const twh_call *calls[3];
  float          *out[3];
  int64_t         i, s;
  int             again;
  (void)state;
  small_begin(&kernel);
  assert_int_equal(twh_oracle_from_transformer(NULL, &kernel.desc, &oracle, NULL), TWH_OK);
  for (i = 0; i < 3; ++i) {
    tile_create(&tile[i], oracle, &shape, &random);
    out[i] = (float *)malloc(sizeof(float) * 6 * 8 * 5);
    assert_non_null(out[i]);
    tile[i].call.out = out[i];
    calls[i] = &tile[i].call;
    ((float *)tile[i].memory[0])[(2 * i + 1) * 8 * 4] = NAN; /* row 0 of slot 1, 3, 5 */
  }
  for (again = 0; again < 2; ++again) { /* then the calls in another order, with the same memory */
    assert_int_equal(tile[0].desc.run(tile[0].desc.user, calls, 3), 0);
    for (i = 0; i < 3; ++i)
      for (s = 0; s < 6; ++s) {
        assert_int_equal(isnan(out[i][s * 40]) != 0, s == 2 * i + 1);
        assert_int_equal(out[i][s * 40 + 39] != 0, s == 2 * i + 1);
      }
    calls[0] = &tile[2].call;
    calls[2] = &tile[0].call;
  }
  for (i = 0; i < 3; ++i) {
    free(out[i]);
    tile_destroy(&tile[i]);
  }
  twh_oracle_destroy(oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(bad_descriptions_are_refused_by_name),
    cmocka_unit_test(scales_and_costs_are_refused_by_name),
    cmocka_unit_test(a_newer_description_must_be_zero_beyond),
    cmocka_unit_test(a_refusing_load_keeps_its_user),
    cmocka_unit_test(a_failing_kernel_tells_its_code_and_call),
    cmocka_unit_test(missing_memory_is_reported_and_nothing_leaks),
    cmocka_unit_test(a_kernel_that_returns_nan_is_replaced_by_the_host),
    cmocka_unit_test(a_slot_that_is_not_finite_is_computed_alone),
    cmocka_unit_test(each_call_has_its_own_slots_computed_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
