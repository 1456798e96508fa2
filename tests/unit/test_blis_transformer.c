/* The oracle that the library makes of a small transformer on BLIS: against the definition, its own promises, its neighbours
 * in a call, other threads, and descriptions it must refuse. */
#include "support_tile.h"

#include "twoheads_blis.h"

enum { NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL };

typedef struct small_shape {
  int64_t layers, heads, length, model_dim, qk_dim, v_dim;
} small_shape;

static void small_desc(const small_shape *shape, twh_transformer_oracle_desc *desc)
{
  twh_transformer_oracle_desc_init(desc);
  desc->layers = shape->layers;
  desc->heads = shape->heads;
  desc->length = shape->length;
  desc->model_dim = shape->model_dim;
  desc->qk_dim = shape->qk_dim;
  desc->v_dim = shape->v_dim;
  desc->dtype = TWH_F32;
  desc->mask_modes = NONE | CAUSAL;
  desc->scale = 0.3;
}

static twh_oracle *small_oracle(const twh_context *context, int64_t layers, int64_t heads, int64_t length, int64_t qk_dim,
                                int64_t v_dim)
{
  const small_shape           shape = { layers, heads, length, 0, qk_dim, v_dim };
  twh_transformer_oracle_desc desc;
  twh_oracle                 *oracle;
  twh_error                   error;
  twh_error_init(&error);
  small_desc(&shape, &desc);
  if (twh_blis_transformer_create(context, &desc, NULL, &oracle, &error) < 0) fail_msg("%s", error.message);
  return oracle;
}

/* Every slot is the attention it is said to be, however the operands lie, and scores from nearly equal to one-hot. */
static void oracle_equals_the_definition(void **state)
{
  static const int64_t shapes[][5] = {
    { 1, 1, 1, 1, 1 }, { 1, 3, 7, 3, 2 }, { 3, 1, 33, 16, 17 }, { 2, 4, 64, 32, 33 }, { 3, 2, 130, 5, 1 },
  };
  static const double stds[] = { 0.1, 1.0, 30.0, 1000.0 };
  int64_t             n, layout;
  uint32_t            mode;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(shapes); ++n)
    for (mode = NONE; mode <= CAUSAL; ++mode)
      for (layout = TILE_DECLARED; layout <= TILE_OVERLAP; ++layout) {
        support_random random = support_random_at(33, (uint64_t)n);
        tile_shape     shape = { mode, 0, 0, 0, (int32_t)layout, stds[(n + layout) % 4], 0.0 };
        twh_oracle    *oracle = small_oracle(NULL, shapes[n][0], shapes[n][1], shapes[n][2], shapes[n][3], shapes[n][4]);
        support_tile   tile;
        tile_result    got, want;
        char           name[60];
        snprintf(name, sizeof name, "shape %d, mode %u, layout %d", (int)n, (unsigned)mode, (int)layout);
        tile_create(&tile, oracle, &shape, &random);
        tile_run(&got, &tile, oracle);
        tile_truth(&want, &tile);
        support_assert_at_most(tile_out_error(&got, &want), 3.0 * 0x1p-24 * (tile_largest_score(&tile) + 4.0), name);
        tile_result_destroy(&got);
        tile_result_destroy(&want);
        tile_destroy(&tile);
        twh_oracle_destroy(oracle);
      }
}

static void oracle_report(void *user, const char *promise, int32_t verdict, const char *detail)
{
  (void)user;
  if (verdict == TWH_CHECK_UNTRUE) print_error("%s: %s\n", promise, detail);
}

static void oracle_keeps_its_promises(void **state)
{
  static const int64_t shapes[][5] = { { 1, 1, 16, 8, 9 }, { 2, 3, 33, 7, 8 }, { 3, 2, 64, 16, 17 }, { 1, 4, 1, 3, 3 } };
  int64_t              n, untrue;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(shapes); ++n) {
    twh_oracle *oracle = small_oracle(NULL, shapes[n][0], shapes[n][1], shapes[n][2], shapes[n][3], shapes[n][4]);
    untrue = -1;
    assert_int_equal(twh_oracle_check(NULL, oracle, oracle_report, NULL, &untrue, NULL), TWH_OK);
    assert_int_equal(untrue, 0);
    twh_oracle_destroy(oracle);
  }
}

/* Bits of a slot do not change when its neighbours are absent, huge, infinite or NaN. */
static void oracle_slots_are_independent(void **state)
{
  static const float others[] = { 0.0f, 1e15f, INFINITY, NAN };
  uint32_t           mode;
  int64_t            n, s, i, c;
  (void)state;
  for (mode = NONE; mode <= CAUSAL; ++mode) {
    support_random random = support_random_at(34, mode);
    tile_shape     shape = { mode, 0, 0, 0, TILE_DECLARED, 2.0, 0.0 };
    twh_oracle    *oracle = small_oracle(NULL, 2, 3, 50, 13, 11);
    support_tile   tile;
    tile_result    all, one;
    tile_create(&tile, oracle, &shape, &random);
    tile_run(&all, &tile, oracle);
    for (s = 1; s <= 6; ++s) { /* the first s slots alone */
      tile.call.slots = s;
      tile_run(&one, &tile, oracle);
      assert_memory_equal(one.out, all.out, (size_t)(one.rows * one.dim) * sizeof(double));
      tile_result_destroy(&one);
    }
    for (n = 0; n < SUPPORT_COUNT(others); ++n) { /* spoil all but slot 2 */
      for (s = 0; s < 6; s += s == 1 ? 2 : 1)
        for (i = 0; i < 3; ++i)
          for (c = 0; c < 50 * (i < 2 ? 13 : 11); ++c)
            ((float *)tile.memory[i])[s * 50 * (i < 2 ? 13 : 11) + c] = others[n] * (float)(c % 7 - 3);
      tile_run(&one, &tile, oracle);
      assert_memory_equal(one.out + 2 * 50 * 11, all.out + 2 * 50 * 11, (size_t)(50 * 11) * sizeof(double));
      tile_result_destroy(&one);
    }
    for (s = 0; s < 6; s += s == 1 ? 2 : 1) { /* finite, but not when they are added up */
      for (c = 0; c < 50 * 13; ++c) ((float *)tile.memory[0])[s * 50 * 13 + c] = ((float *)tile.memory[1])[s * 50 * 13 + c] = 0;
      for (c = 0; c < 50 * 11; ++c) ((float *)tile.memory[2])[s * 50 * 11 + c] = 1e38f;
    }
    tile_run(&one, &tile, oracle);
    assert_memory_equal(one.out + 2 * 50 * 11, all.out + 2 * 50 * 11, (size_t)(50 * 11) * sizeof(double));
    assert_true(fabs(one.out[0] / 1e38 - 1) < 1e-6);
    tile_result_destroy(&one);
    tile_result_destroy(&all);
    tile_destroy(&tile);
    twh_oracle_destroy(oracle);
  }
}

typedef struct small_thread {
  const support_tile *tile;
  const twh_oracle   *oracle;
  const tile_result  *want;
  int                 different;
} small_thread;

static void *small_thread_run(void *arg)
{
  small_thread *thread = (small_thread *)arg;
  tile_result   got;
  int           n;
  for (n = 0; n < 30; ++n) {
    tile_run(&got, thread->tile, thread->oracle);
    thread->different |= memcmp(got.out, thread->want->out, (size_t)(got.rows * got.dim) * sizeof(double)) != 0;
    tile_result_destroy(&got);
  }
  return NULL;
}

/* One oracle, two threads, two inputs. */
static void oracle_runs_on_threads_at_once(void **state)
{
  support_random  random = support_random_at(35, 0);
  tile_shape      shape = { CAUSAL, 0, 0, 0, TILE_DECLARED, 2.0, 0.0 };
  twh_oracle     *oracle = small_oracle(NULL, 2, 2, 70, 16, 17);
  twh_oracle_desc desc;
  support_tile    tile[2];
  tile_result     want[2];
  small_thread    thread[2];
  pthread_t       handle[2];
  int             n;
  (void)state;
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  assert_int_equal(desc.max_concurrent_batches, 64);
  assert_int_equal(desc.max_calls_per_batch, 4);
  for (n = 0; n < 2; ++n) {
    tile_create(&tile[n], oracle, &shape, &random);
    tile_run(&want[n], &tile[n], oracle);
    thread[n].tile = &tile[n];
    thread[n].oracle = oracle;
    thread[n].want = &want[n];
    thread[n].different = 0;
  }
  for (n = 0; n < 2; ++n) assert_int_equal(pthread_create(&handle[n], NULL, small_thread_run, &thread[n]), 0);
  for (n = 0; n < 2; ++n) assert_int_equal(pthread_join(handle[n], NULL), 0);
  for (n = 0; n < 2; ++n) {
    assert_int_equal(thread[n].different, 0);
    tile_result_destroy(&want[n]);
    tile_destroy(&tile[n]);
  }
  twh_oracle_destroy(oracle);
}

static int32_t small_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  (void)user;
  (void)calls;
  return (int32_t)n;
}

static int32_t small_load(void *user, const twh_transformer_weights *weights)
{
  (void)user;
  return weights == NULL;
}

static void small_release(void *user)
{
  (void)user;
}

static void create_refuses_what_it_cannot_do(void **state)
{
  static const small_shape    shape = { 2, 3, 8, 0, 4, 5 };
  twh_transformer_oracle_desc desc;
  twh_blis_options            options;
  twh_oracle                 *oracle;
  twh_error                   error;
  (void)state;
  twh_error_init(&error);
#define REFUSED(change, status, word)                                                                                  \
  small_desc(&shape, &desc);                                                                                           \
  twh_blis_options_init(&options);                                                                                     \
  change;                                                                                                              \
  support_assert_status(twh_blis_transformer_create(NULL, &desc, &options, &oracle, &error), status, &error, word);    \
  assert_null(oracle)
  REFUSED(desc.dtype = TWH_F16, TWH_E_UNSUPPORTED, "dtype");
  REFUSED(desc.dtype = 0, TWH_E_UNSUPPORTED, "dtype");
  REFUSED(desc.user = &desc, TWH_E_ARGUMENT, "user");
  REFUSED(desc.run = small_run, TWH_E_ARGUMENT, "run");
  REFUSED(desc.load = small_load, TWH_E_ARGUMENT, "load");
  REFUSED(desc.release = small_release, TWH_E_ARGUMENT, "release");
  REFUSED(desc.struct_size = 0, TWH_E_ARGUMENT, "struct_size");
  REFUSED(desc.struct_size = 8, TWH_E_VERSION, "struct_size");
  REFUSED(options.struct_size = 4, TWH_E_VERSION, "struct_size");
  REFUSED(options.flags = 1, TWH_E_VERSION, "flags");
  /* what twh_oracle_from_transformer refuses */
  REFUSED(desc.model_dim = 107, TWH_E_ARGUMENT, "108");
  REFUSED(desc.model_dim = -1, TWH_E_ARGUMENT, "model_dim");
  REFUSED(desc.layers = 0, TWH_E_ARGUMENT, "layers");
  REFUSED(desc.heads = -3, TWH_E_ARGUMENT, "heads");
  REFUSED(desc.length = 0, TWH_E_ARGUMENT, "length");
  REFUSED(desc.qk_dim = 0, TWH_E_ARGUMENT, "qk_dim");
  REFUSED(desc.v_dim = INT64_MIN, TWH_E_ARGUMENT, "v_dim");
  REFUSED(desc.mask_modes = 0, TWH_E_ARGUMENT, "mask_modes");
  REFUSED(desc.mask_modes = TWH_MASK_TENSOR, TWH_E_ARGUMENT, "mask_modes");
  REFUSED(desc.scale = 0.0, TWH_E_ARGUMENT, "scale");
  REFUSED(desc.flags = 1, TWH_E_VERSION, "flags");
  REFUSED(desc.qk_dim = INT64_MAX, TWH_E_OVERFLOW, "qk_dim");
  REFUSED(desc.layers = INT64_MAX / 16, TWH_E_OVERFLOW, "layers");
  REFUSED(desc.length = (int64_t)1 << 40, TWH_E_OVERFLOW, NULL);
#undef REFUSED
  support_assert_status(twh_blis_transformer_create(NULL, NULL, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "desc");
  support_assert_status(twh_blis_transformer_create(NULL, &desc, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "out");
}

static void small_log_line(void *user, int32_t level, const char *text)
{
  (void)level;
  if (strstr(text, twh_blis_kernel_name()) != NULL) ++*(int *)user;
}

/* model_dim may be more than the least, and the log says which kernels BLIS runs. */
static void create_takes_spare_columns_and_logs(void **state)
{
  static const small_shape    shape = { 2, 3, 8, 121, 4, 5 };
  support_random              random = support_random_at(36, 0);
  tile_shape                  made = { NONE, 0, 0, 0, TILE_DECLARED, 1.0, 0.0 };
  twh_transformer_oracle_desc desc;
  twh_blis_options            options;
  twh_oracle                 *oracle, *least = small_oracle(NULL, 2, 3, 8, 4, 5);
  support_tile                tile;
  tile_result                 got, want;
  int                         lines = 0;
  (void)state;
  small_desc(&shape, &desc);
  twh_blis_options_init(&options);
  options.log = small_log_line;
  options.user = &lines;
  assert_int_equal(twh_blis_transformer_create(NULL, &desc, &options, &oracle, NULL), TWH_OK);
  assert_int_equal(lines, 1);
  tile_create(&tile, oracle, &made, &random);
  tile_run(&got, &tile, oracle);
  tile_run(&want, &tile, least);
  support_assert_at_most(tile_out_error(&got, &want), 0.0, "spare columns");
  tile_result_destroy(&got);
  tile_result_destroy(&want);
  tile_destroy(&tile);
  twh_oracle_destroy(oracle);
  twh_oracle_destroy(least);
}

/* Each allocation of the context's fails in turn: a status, and nothing is left. */
static void create_without_memory_leaves_nothing(void **state)
{
  static const small_shape    shape = { 2, 2, 8, 0, 4, 5 };
  support_memory              memory;
  twh_context                *context = support_context(&memory, 0, 0);
  twh_transformer_oracle_desc desc;
  twh_oracle                 *oracle;
  twh_error                   error;
  twh_status                  status = TWH_E_MEMORY;
  int64_t                     fail_at, before = memory.live_blocks;
  (void)state;
  twh_error_init(&error);
  small_desc(&shape, &desc);
  for (fail_at = 0; status != TWH_OK && fail_at < 20; ++fail_at) {
    memory.fail_at = memory.allocations + fail_at;
    status = twh_blis_transformer_create(context, &desc, NULL, &oracle, &error);
    if (status == TWH_OK) break;
    support_assert_status(status, TWH_E_MEMORY, &error, NULL);
    assert_null(oracle);
    assert_int_equal(memory.live_blocks, before);
  }
  assert_int_equal(status, TWH_OK);
  assert_true(fail_at > 0);
  twh_oracle_destroy(oracle);
  assert_int_equal(memory.live_blocks, before);
  twh_context_destroy(context);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(oracle_equals_the_definition),
    cmocka_unit_test(oracle_keeps_its_promises),
    cmocka_unit_test(oracle_slots_are_independent),
    cmocka_unit_test(oracle_runs_on_threads_at_once),
    cmocka_unit_test(create_refuses_what_it_cannot_do),
    cmocka_unit_test(create_takes_spare_columns_and_logs),
    cmocka_unit_test(create_without_memory_leaves_nothing),
  };
  return cmocka_run_group_tests_name("small transformer on BLIS", tests, NULL, NULL);
}
