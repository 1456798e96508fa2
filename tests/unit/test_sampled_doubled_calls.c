/* What an estimate from doubled queries costs in calls on kernels of all kinds, and what its tiles look like; that the result and its bits
 * stay what they are without it, and bounds the same bits however they are computed; what is refused. */
#include "support_estimate.h"

enum { DOUBLED_M = 16, DOUBLED_DIM = 8, DOUBLED_LENGTH = 107 };

/* Kernels: mask modes, flags, spare value columns (below 0: slices), slots, coordinates, and the calls that an estimate of one
 * block of rows takes: one with lse and a column, or two columns; two otherwise (more, where values come in slices anyway). */
typedef struct doubled_kernel {
  int32_t  dtype;
  uint32_t masks, flags;
  int64_t  spare, slots, coordinates, more;
} doubled_kernel;

enum { N = TWH_MASK_NONE, C = TWH_MASK_CAUSAL, LSE = TWH_ORACLE_LSE };

static const doubled_kernel doubled_kernels[] = {
  { TWH_F32, N, LSE, 0, 1, 0, 2 },
  { TWH_F32, N, LSE, 1, 1, 0, 1 },
  { TWH_F32, N, 0, 0, 1, 0, 2 },
  { TWH_F32, N, 0, 1, 1, 0, 2 },
  { TWH_F32, N, 0, 2, 1, 0, 1 },
  { TWH_BF16, N | C, 0, 2, 3, 0, 1 },
  { TWH_F16, N | C, LSE, 1, 4, 0, 1 },
  { TWH_F16, N | C, 0, 0, 2, 0, 2 },
  { TWH_F32, C, 0, 1, 1, 0, 0 },
  { TWH_F32, C, LSE, 1, 2, 0, 0 },
  { TWH_BF16, C, 0, 0, 1, 0, 0 },
  { TWH_F32, N, LSE, -3, 2, 0, 3 },
  { TWH_F32, N, 0, -4, 1, 0, 3 },
  { TWH_F32, N, LSE, 1, 2, 16, 1 },
  { TWH_F32, N, LSE | TWH_ORACLE_LSE_BASE2, 1, 1, 0, 1 },
  { TWH_F32, N | C, TWH_ORACLE_SCALE_PER_CALL, 2, 2, 0, 1 },
  { TWH_F32, N, LSE | TWH_ORACLE_STRIDED, 1, 1, 0, 1 },
  { TWH_F16, N, LSE, 1, 2, 16, 1 },
  { TWH_F16, N, 0, 0, 1, 16, 2 },
  { TWH_BF16, N, 0, 2, 1, 16, 1 },
  { TWH_F32, N | C, LSE | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_SLOTS, 1, 5, 0, 1 },
};

static void doubled_init(support_estimate *s, const doubled_kernel *kernel, int causal, int hybrid, int64_t samples)
{
  support_estimate_init(s, DOUBLED_LENGTH, DOUBLED_M, DOUBLED_DIM);
  s->pattern.flags = causal ? TWH_CAUSAL : 0;
  s->problem.q_heads = 4;
  s->problem.kv_heads = 2;
  s->desc.dtype = kernel->dtype;
  s->desc.mask_modes = kernel->masks;
  s->desc.flags = kernel->flags;
  s->desc.v_dim = kernel->spare < 0 ? -kernel->spare : DOUBLED_DIM + kernel->spare;
  s->desc.slots = kernel->slots;
  s->desc.qk_dim += kernel->coordinates;
  s->desc.max_concurrent_batches = 4;
  s->options.method = hybrid ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
  s->options.samples = samples;
  s->tensor_flags = SUPPORT_LSE | SUPPORT_SINKS;
}

static int doubled_is_for(const doubled_kernel *kernel, int causal)
{
  return !causal || (kernel->masks & C) || kernel->coordinates > 0;
}

/* out and lse keep their bits, and the plan says what comes on top. */
static void an_estimate_changes_no_result_and_counts_its_calls(void **state)
{
  int64_t k;
  int     way;
  (void)state;
  for (k = 0; k < SUPPORT_COUNT(doubled_kernels); ++k)
    for (way = 0; way < 4; ++way) {
      const doubled_kernel *kernel = &doubled_kernels[k];
      support_estimate      with, without;
      int64_t               units;
      if (!doubled_is_for(kernel, way % 2)) continue;
      doubled_init(&with, kernel, way % 2, way / 2, 2);
      doubled_init(&without, kernel, way % 2, way / 2, 2);
      without.options.estimate = TWH_ESTIMATE_NONE;
      support_estimate_begin(&with, NULL, 8);
      support_estimate_begin(&without, NULL, 8);
      support_estimate_execute(&with);
      support_estimate_execute(&without);
      units = without.info.drawn_tiles;
      if (with.info.calls != without.info.calls + with.info.estimate_calls || without.info.estimate_calls != 0)
        fail_msg("kernel %d way %d: %d calls, %d of them for the estimate, and %d without one", (int)k, way,
                 (int)with.info.calls, (int)with.info.estimate_calls, (int)without.info.calls);
      if (kernel->more > 0 && with.info.estimate_calls != (units + kernel->slots - 1) / kernel->slots * kernel->more)
        fail_msg("kernel %d way %d: %d calls for the estimate of %d tiles in %d slots", (int)k, way,
                 (int)with.info.estimate_calls, (int)units, (int)kernel->slots);
      assert_int_equal(with.info.sampled_keys, without.info.sampled_keys);
      assert_int_equal(with.stats.calls - with.stats.repair_calls, with.info.calls);
      assert_true(with.stats.repair_calls <= with.info.repair_calls_max);
      assert_memory_equal(with.tensors.memory[3], without.tensors.memory[3], with.tensors.bytes[3]);
      assert_memory_equal(with.tensors.memory[4], without.tensors.memory[4], with.tensors.bytes[4]);
      support_estimate_end(&with);
      support_estimate_end(&without);
    }
}

static void doubled_check_bits(const doubled_kernel *kernel, int causal, int32_t estimate)
{
  double  first[4 * DOUBLED_LENGTH];
  int64_t i;
  for (i = 0; i < 3; ++i) {
    support_memory   memory;
    support_estimate s;
    twh_context     *context = support_context(&memory, i > 0 ? 4 : 0, i > 0 ? 4 : 1);
    doubled_init(&s, kernel, causal, causal, 3);
    s.options.estimate = estimate;
    s.options.max_calls_per_batch = i < 2 ? 1 : 7;
    s.options.workspace_limit = i < 2 ? 0 : 1;
    support_estimate_begin(&s, context, 8);
    support_estimate_execute(&s);
    assert_int_equal(s.rows * (int64_t)sizeof(double), sizeof first);
    if (i == 0) memcpy(first, s.bounds, sizeof first);
    if (memcmp(first, s.bounds, sizeof first) != 0)
      fail_msg("kernel %d, causal %d, estimate %d, way %d: other bits", (int)(kernel - doubled_kernels), causal, (int)estimate,
               (int)i);
    support_estimate_end(&s);
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
    assert_int_equal(memory.wrong_releases, 0);
  }
}

static void bounds_are_the_same_bits_however_they_are_computed(void **state)
{
  int64_t k;
  int     causal;
  (void)state;
  for (k = 0; k < SUPPORT_COUNT(doubled_kernels); ++k)
    for (causal = 0; causal < 2; ++causal) {
      if (!doubled_is_for(&doubled_kernels[k], causal)) continue;
      doubled_check_bits(&doubled_kernels[k], causal, TWH_ESTIMATE_DOUBLED);
      if (doubled_kernels[k].masks != C) doubled_check_bits(&doubled_kernels[k], causal, TWH_ESTIMATE_REPLICATES);
    }
}

/* Nothing of what is computed besides is NaN, and bounds are the same in f32 but for rounding. */
static void checked_runs_pass_and_bounds_come_in_f32_too(void **state)
{
  int64_t k, r;
  (void)state;
  for (k = 0; k < SUPPORT_COUNT(doubled_kernels); ++k) {
    static float     single[4 * DOUBLED_LENGTH];
    support_estimate s;
    twh_run_options  options;
    twh_error        error;
    twh_tensor       other;
    twh_error_init(&error);
    twh_run_options_init(&options);
    options.flags = TWH_RUN_CHECKED;
    doubled_init(&s, &doubled_kernels[k], 0, 0, 1);
    support_estimate_begin(&s, NULL, 2);
    support_estimate_execute(&s);
    twh_tensor_dense(&other, TWH_F32, single, 4, DOUBLED_LENGTH, 1);
    s.tensors.all.error = &other;
    support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_OK, &error, NULL);
    for (r = 0; r < s.rows; ++r) assert_true(s.bounds[r] > 0 && single[r] == (float)s.bounds[r]);
    s.tensors.all.error = NULL; /* nobody wants them: the result is the same */
    support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_OK, &error, NULL);
    support_estimate_end(&s);
  }
}

/* Where a kernel spoils what it returns for the estimate: CHECKED tells, and without it no result is touched. */
static void doubled_spoil(void *user, const twh_call *call, int64_t number)
{
  const support_estimate *s = (const support_estimate *)user;
  if (number == s->info.calls - 1)
    support_store(call->out, s->oracle.desc.out_dtype, 3 * call->out_row_stride + 2, (double)NAN);
}

static void a_nan_in_an_estimate_stays_there(void **state)
{
  support_estimate s, good;
  twh_run_options  options;
  twh_error        error;
  int64_t          r, nans = 0;
  (void)state;
  twh_error_init(&error);
  doubled_init(&s, &doubled_kernels[1], 0, 0, 1);
  doubled_init(&good, &doubled_kernels[1], 0, 0, 1);
  support_estimate_begin(&s, NULL, 2);
  support_estimate_begin(&good, NULL, 2);
  support_estimate_execute(&good);
  s.oracle.spoil = doubled_spoil;
  s.oracle.spoil_user = &s;
  support_estimate_execute(&s);
  for (r = 0; r < s.rows; ++r) nans += !(s.bounds[r] == good.bounds[r]);
  assert_int_equal(nans, 1);
  assert_memory_equal(s.tensors.memory[3], good.tensors.memory[3], s.tensors.bytes[3]);
  assert_memory_equal(s.tensors.memory[4], good.tensors.memory[4], s.tensors.bytes[4]);
  twh_run_options_init(&options);
  options.flags = TWH_RUN_CHECKED;
  support_oracle_reset(&s.oracle);
  support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_E_RESULT, &error, "NaN");
  assert_int_equal(error.call, s.info.calls - 1);
  assert_int_equal(error.row, 3);
  support_estimate_end(&good);
  support_estimate_end(&s);
}

/* Each drawn tile has one of doubled queries, with the same rows and keys. */
typedef struct doubled_tiles {
  int64_t       drawn, doubled, others;
  twh_tile_info seen[400];
} doubled_tiles;

static int32_t doubled_gather(void *user, const twh_tile_info *tile)
{
  doubled_tiles *tiles = (doubled_tiles *)user;
  int64_t        i, j;
  if (!(tile->flags & TWH_TILE_DRAWN)) {
    assert_int_equal(tile->flags, 0);
    ++tiles->others;
    return 0;
  }
  if (!(tile->flags & TWH_TILE_DOUBLED)) {
    assert_true(tiles->drawn < SUPPORT_COUNT(tiles->seen));
    tiles->seen[tiles->drawn++] = *tile;
    return 0;
  }
  for (i = 0; i < tiles->drawn; ++i) {
    twh_tile_info *of = &tiles->seen[i];
    if (of->flags & TWH_TILE_DOUBLED || of->sequence != tile->sequence || of->q_head != tile->q_head) continue;
    if (of->q_begin != tile->q_begin || of->k_begin != tile->k_begin) continue;
    assert_int_equal(of->q_len, tile->q_len);
    assert_int_equal(of->k_len, tile->k_len);
    for (j = 0; j < tile->k_len; ++j) assert_int_equal(twh_tile_drawn_key(of, j), twh_tile_drawn_key(tile, j));
    of->flags |= TWH_TILE_DOUBLED; /* found */
    ++tiles->doubled;
    return 0;
  }
  return 1;
}

static void every_drawn_tile_has_a_doubled_one(void **state)
{
  static doubled_tiles tiles;
  int64_t              k;
  int                  way;
  (void)state;
  for (k = 0; k < SUPPORT_COUNT(doubled_kernels); ++k)
    for (way = 0; way < 4; ++way) {
      support_estimate s;
      if ((doubled_kernels[k].masks & ~(uint32_t)C) == 0 || !doubled_is_for(&doubled_kernels[k], way % 2)) continue;
      doubled_init(&s, &doubled_kernels[k], way % 2, way / 2, 3);
      support_estimate_begin(&s, NULL, 2);
      memset(&tiles, 0, sizeof tiles);
      assert_int_equal(twh_plan_visit(s.plan, doubled_gather, &tiles, NULL), TWH_OK);
      assert_true(tiles.drawn > 0);
      assert_int_equal(tiles.drawn, tiles.doubled);
      assert_int_equal(tiles.drawn + tiles.doubled + tiles.others, s.info.tiles);
      support_estimate_end(&s);
    }
}

static void estimates_are_refused_where_there_can_be_none(void **state)
{
  support_estimate s;
  twh_plan        *plan = NULL;
  twh_oracle      *oracle = NULL;
  twh_error        error;
  (void)state;
  twh_error_init(&error);
  support_estimate_init(&s, 100, 8, 4);
  s.desc.softcap = s.problem.softcap = 20;
  assert_int_equal(twh_reference_oracle_create(NULL, &s.desc, NULL, &oracle, NULL), TWH_OK);
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_UNSUPPORTED, &error,
                        "softcap");
  assert_null(plan);
  s.options.estimate = TWH_ESTIMATE_NONE;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_OK, &error, NULL);
  twh_plan_destroy(plan);
  s.options.estimate = TWH_ESTIMATE_DOUBLED;
  s.options.samples = s.options.strata = 2;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_ARGUMENT, &error,
                        "strata");
  s.options.samples = s.options.strata = 0;
  s.options.method = TWH_METHOD_EXACT;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_ARGUMENT, &error,
                        "estimate");
  s.options.method = TWH_METHOD_SAMPLED;
  s.options.estimate = TWH_ESTIMATE_DOUBLED + 1;
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, &s.options, &plan, &error), TWH_E_VERSION, &error,
                        "estimate");
  twh_oracle_destroy(oracle);
}

/* A plan whose keys are all computed estimates nothing and costs nothing. */
static void nothing_drawn_is_nothing_estimated(void **state)
{
  support_estimate s;
  int64_t          r;
  (void)state;
  support_estimate_init(&s, 100, DOUBLED_M, DOUBLED_DIM);
  s.options.samples = 50;
  support_estimate_begin(&s, NULL, 1);
  support_estimate_execute(&s);
  assert_int_equal(s.info.estimate_calls, 0);
  for (r = 0; r < s.rows; ++r) assert_true(s.bounds[r] == 0);
  support_estimate_end(&s);
}

/* Returns 1 when no allocation failed any more. */
static int doubled_try(const support_estimate *s, const twh_tensors *tensors, int64_t fail_at, int64_t threads)
{
  support_memory   memory;
  twh_context_desc hooks;
  twh_context     *context = NULL;
  twh_oracle      *oracle = NULL;
  twh_plan        *plan = NULL;
  twh_error        error;
  twh_status       status;
  twh_error_init(&error);
  support_context_desc(&memory, threads, threads > 0 ? threads : 1, &hooks);
  assert_int_equal(twh_context_create(&hooks, &context, NULL), TWH_OK);
  assert_int_equal(twh_reference_oracle_create(context, &s->desc, NULL, &oracle, NULL), TWH_OK);
  memory.fail_at = memory.allocations + fail_at;
  status = twh_plan_create(context, &s->problem, &oracle, 1, &s->options, &plan, &error);
  if (status >= 0) status = twh_plan_execute(plan, tensors, NULL, &error);
  if (status < 0) support_assert_status(status, TWH_E_MEMORY, &error, NULL);
  memory.fail_at = -1;
  if (plan) assert_int_equal(twh_plan_execute(plan, tensors, NULL, NULL), TWH_OK);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
  assert_int_equal(memory.wrong_releases, 0);
  return status >= 0;
}

static void any_allocation_may_fail(void **state)
{
  int64_t at, k;
  (void)state;
  for (k = 0; k < SUPPORT_COUNT(doubled_kernels); k += 3) {
    support_estimate s;
    doubled_init(&s, &doubled_kernels[k], 0, 0, 1);
    s.problem.q_heads = s.problem.kv_heads = 1;
    s.options.target_error = k % 2 ? 0.1 : 0;
    support_estimate_begin(&s, NULL, 1);
    for (at = 0; !doubled_try(&s, &s.tensors.all, at, k % 4); ++at) assert_true(at < 100);
    assert_true(at >= 3); /* the plan, its lists, the workspace */
    support_estimate_end(&s);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_estimate_changes_no_result_and_counts_its_calls),
    cmocka_unit_test(bounds_are_the_same_bits_however_they_are_computed),
    cmocka_unit_test(checked_runs_pass_and_bounds_come_in_f32_too),
    cmocka_unit_test(a_nan_in_an_estimate_stays_there),
    cmocka_unit_test(every_drawn_tile_has_a_doubled_one),
    cmocka_unit_test(estimates_are_refused_where_there_can_be_none),
    cmocka_unit_test(nothing_drawn_is_nothing_estimated),
    cmocka_unit_test(any_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
