/* What goes wrong while a transformer runs: a hook, a product, a kernel's call, memory, a host that cancels. Each time the status
 * and the message say where, nothing goes on behind it, nothing stays allocated, and the transformer is as good as before. */
#include "support_transformer.h"

enum { FAILURES_CODE = -33, FAILURES_BLOCK = 5, FAILURES_LAYERS = 3 };

typedef struct failures_setup {
  support_transformer     t;
  support_memory          memory;
  twh_context            *context;
  support_oracle          oracle;
  twh_transformer        *made;
  twh_transformer_info    info;
  twh_transformer_options options;
  twh_transformer_stats   stats;
  int64_t                 calls[FAILURES_LAYERS]; /* planned for each layer */
  float                  *numbers;
  double                 *want;
  twh_tensor              out;
  twh_error               error;
} failures_setup;

static twh_status failures_run(failures_setup *f)
{
  support_hooks_reset(&f->t);
  support_oracle_reset(&f->oracle);
  twh_error_init(&f->error);
  memset(f->numbers, SUPPORT_POISON, (size_t)(f->t.rows * f->t.desc.model_dim) * sizeof(float));
  return twh_transformer_execute(f->made, NULL, &f->out, &f->options, &f->error);
}

/* All is well: the same numbers as the first time. */
static void failures_expect_good(failures_setup *f)
{
  int64_t i;
  f->t.fail_hook = -1;
  f->oracle.fail_at = -1;
  support_assert_status(failures_run(f), TWH_OK, &f->error, NULL);
  for (i = 0; i < f->t.rows * f->t.desc.model_dim; ++i) assert_true((double)f->numbers[i] == f->want[i]);
}

/* Three layers, the middle one causal; rows 0 .. 25 of two sequences in blocks of 5; a batch is one call. */
static void failures_begin(failures_setup *f, int64_t threads)
{
  twh_oracle_desc  kernel;
  twh_plan_options plan_options;
  int64_t          i;
  memset(f, 0, sizeof *f);
  support_transformer_plain(&f->t, FAILURES_LAYERS, 2, 13);
  f->t.layers[1].pattern.flags = TWH_CAUSAL;
  f->t.layers[1].desc.pattern = &f->t.layers[1].pattern;
  support_transformer_build(&f->t);
  f->t.desc.block_rows = f->t.block_rows = FAILURES_BLOCK;
  f->context = support_context(&f->memory, threads, threads);
  support_long_kernel(&f->t, &kernel);
  kernel.flags = TWH_ORACLE_SCALE_PER_CALL | TWH_ORACLE_LSE;
  kernel.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
  kernel.q_len = kernel.k_len = 6;
  support_oracle_create(&f->oracle, f->context, &kernel, NULL);
  f->oracle.fail_code = FAILURES_CODE;
  twh_plan_options_init(&plan_options);
  plan_options.max_calls_per_batch = 1;
  twh_error_init(&f->error);
  support_assert_status(
    twh_transformer_create(f->context, &f->t.desc, &f->oracle.oracle, 1, &plan_options, &f->made, &f->error), TWH_OK, &f->error,
    NULL);
  twh_transformer_info_init(&f->info);
  assert_int_equal(twh_transformer_get_info(f->made, &f->info, NULL), TWH_OK);
  assert_int_equal(f->info.blocks, 6);
  for (i = 0; i < FAILURES_LAYERS; ++i) {
    twh_plan_info plan;
    twh_plan_info_init(&plan);
    assert_int_equal(twh_plan_get_info(twh_transformer_plan(f->made, i), &plan, NULL), TWH_OK);
    f->calls[i] = plan.calls;
  }
  twh_transformer_stats_init(&f->stats);
  twh_transformer_options_init(&f->options);
  f->options.input = f->t.tokens;
  f->options.stats = &f->stats;
  f->numbers = (float *)malloc((size_t)(f->t.rows * f->t.desc.model_dim) * sizeof(float));
  f->want = (double *)malloc((size_t)(f->t.rows * f->t.desc.model_dim) * sizeof(double));
  assert_true(f->numbers && f->want);
  twh_tensor_dense(&f->out, TWH_F32, f->numbers, 1, f->t.rows, f->t.desc.model_dim);
  support_assert_status(failures_run(f), TWH_OK, &f->error, NULL);
  for (i = 0; i < f->t.rows * f->t.desc.model_dim; ++i) f->want[i] = (double)f->numbers[i];
}

static void failures_end(failures_setup *f)
{
  failures_expect_good(f);
  free(f->numbers);
  free(f->want);
  twh_transformer_destroy(f->made);
  assert_int_equal(f->oracle.broken[0], 0);
  assert_int_equal(f->t.broken[0], 0);
  support_oracle_destroy(&f->oracle);
  support_transformer_destroy(&f->t);
  twh_context_destroy(f->context);
  assert_int_equal(f->memory.live_blocks, 0);
  assert_int_equal(f->memory.wrong_releases, 0);
}

/* Calls of the kernel in the layers before `layer`. */
static int64_t failures_calls_before(const failures_setup *f, int64_t layer)
{
  int64_t i, calls = 0;
  for (i = 0; i < layer; ++i) calls += f->calls[i];
  return calls;
}

/* ---- hooks ---- */

/* The message of a hook that failed. layer -1: of none. */
static void failures_expect_message(const failures_setup *f, const char *what, int64_t layer)
{
  char start[100], rows[100];
  int  told;
  start[0] = 0;
  if (layer >= 0) snprintf(start, sizeof start, "layer %lld: ", (long long)layer);
  snprintf(rows, sizeof rows, "rows %lld to %lld: ", (long long)f->t.failed_begin,
           (long long)(f->t.failed_begin + f->t.failed_rows - 1));
  told = strncmp(f->error.message, start, strlen(start)) == 0 && strstr(f->error.message, rows) &&
         strstr(f->error.message, what) && strstr(f->error.message, "-33") &&
         (layer >= 0) == !strncmp(f->error.message, "layer", 5);
  if (!told) print_error("\"%s\" should say %s%s%s -33\n", f->error.message, start, rows, what);
  assert_true(told);
}

/* Run with the hook failing where t->fail_... says. level: of blocks, which is where the execute must have stopped. */
static void failures_expect_hook(failures_setup *f, const char *what, int64_t layer, int64_t level, int64_t threads)
{
  int64_t live = f->memory.live_blocks, number = f->t.fail_row / FAILURES_BLOCK;
  f->t.fail_code = FAILURES_CODE;
  support_assert_status(failures_run(f), TWH_E_HOOK, &f->error, NULL);
  assert_true(f->t.failed);
  assert_int_equal(f->t.failed_begin, number * FAILURES_BLOCK);
  assert_int_equal(f->t.failed_rows, number == 5 ? 1 : FAILURES_BLOCK);
  assert_int_equal(f->error.oracle_code, FAILURES_CODE);
  assert_int_equal(f->error.call, -1);
  failures_expect_message(f, what, layer);
  assert_int_equal(f->memory.live_blocks, live);
  assert_int_equal(f->oracle.calls, failures_calls_before(f, level));
  assert_int_equal(f->stats.calls, f->oracle.calls);
  assert_int_equal(f->stats.row_rounds, level + 1);
  /* in one block: product, hook, the hook's product, hook, three products, hook */
  assert_true(f->t.after_failure <= 8 * (threads > 1 ? threads - 1 : 0));
  if (threads <= 1) assert_int_equal(f->stats.blocks, level * f->info.blocks + number + 1);
}

static void a_hook_that_fails_is_named_with_its_layer_and_rows(void **state)
{
  int64_t threads, row, layer;
  int     hook;
  (void)state;
  for (threads = 0; threads < 4; threads += 3) {
    failures_setup f;
    failures_begin(&f, threads);
    for (row = 0; row < f.t.rows; row += FAILURES_BLOCK) {
      for (hook = SUPPORT_BEFORE; hook <= SUPPORT_AFTER; ++hook)
        for (layer = 0; layer < FAILURES_LAYERS; ++layer) {
          f.t.fail_hook = hook;
          f.t.fail_layer = layer;
          f.t.fail_row = row;
          failures_expect_hook(&f, support_hook_names[hook], layer, layer + (hook == SUPPORT_AFTER), threads);
        }
      f.t.fail_hook = SUPPORT_EMBED;
      failures_expect_hook(&f, "embed", -1, 0, threads);
      f.t.fail_hook = SUPPORT_FINISH;
      failures_expect_hook(&f, "finish", -1, FAILURES_LAYERS, threads);
    }
    failures_end(&f);
  }
}

static void the_first_block_that_fails_is_named_whatever_the_threads(void **state)
{
  int64_t threads, row;
  int     again;
  (void)state;
  for (threads = 0; threads < 4; ++threads) {
    failures_setup f;
    failures_begin(&f, threads);
    f.t.fail_hook = SUPPORT_HEADS;
    f.t.fail_layer = 1;
    f.t.fail_code = FAILURES_CODE;
    for (row = 0; row < f.t.rows; row += FAILURES_BLOCK)
      for (again = 0; again < 5; ++again) {
        f.t.fail_row = row;
        f.t.fail_behind = 1 + again % 2;
        support_assert_status(failures_run(&f), TWH_E_HOOK, &f.error, NULL);
        f.t.failed_begin = row;
        f.t.failed_rows = row == 25 ? 1 : FAILURES_BLOCK;
        failures_expect_message(&f, "heads", 1);
      }
    failures_end(&f);
  }
}

static void a_product_that_fails_is_named_with_its_weight(void **state)
{
  static const char *const names[] = { "wq", "wk", "wv", "wo" };
  int64_t                  row, layer;
  failures_setup           f;
  (void)state;
  failures_begin(&f, 0);
  for (row = 2; row < f.t.rows; row += 6)
    for (layer = 0; layer < FAILURES_LAYERS; ++layer) {
      int which;
      for (which = 0; which < 4; ++which) {
        f.t.fail_hook = SUPPORT_GEMM;
        f.t.fail_layer = layer;
        f.t.fail_row = row;
        f.t.fail_matrix = which;
        failures_expect_hook(&f, names[which], layer, layer + (which == SUPPORT_WO), 0);
        assert_non_null(strstr(f.error.message, "gemm"));
      }
    }
  failures_end(&f);
}

static void an_error_struct_is_not_needed(void **state)
{
  failures_setup f;
  (void)state;
  failures_begin(&f, 0);
  f.t.fail_hook = SUPPORT_AFTER;
  f.t.fail_layer = 1;
  f.t.fail_row = 7;
  f.t.fail_code = 5;
  f.options.stats = NULL;
  support_hooks_reset(&f.t);
  support_oracle_reset(&f.oracle);
  assert_int_equal(twh_transformer_execute(f.made, NULL, &f.out, &f.options, NULL), TWH_E_HOOK);
  f.options.stats = &f.stats;
  failures_end(&f);
}

/* ---- the kernel ---- */

static int64_t failures_layer_of(const failures_setup *f, int64_t call)
{
  int64_t layer = 0;
  while (call >= failures_calls_before(f, layer + 1)) ++layer;
  return layer;
}

static void a_call_that_fails_is_named_with_its_layer(void **state)
{
  int64_t        at, layer;
  char           start[40];
  failures_setup f;
  (void)state;
  failures_begin(&f, 0);
  for (at = 0; at < f.info.calls; ++at) {
    int64_t live = f.memory.live_blocks;
    f.oracle.fail_at = at;
    layer = failures_layer_of(&f, at);
    snprintf(start, sizeof start, "layer %lld: ", (long long)layer);
    support_assert_status(failures_run(&f), TWH_E_ORACLE, &f.error, start);
    assert_int_equal(strncmp(f.error.message, start, strlen(start)), 0);
    assert_int_equal(f.error.oracle_code, FAILURES_CODE);
    assert_int_equal(f.error.call, f.oracle.failed_index);
    assert_int_equal(f.oracle.calls, at + 1);
    assert_int_equal(f.oracle.calls_after_failure, 0);
    assert_int_equal(f.stats.calls, at + 1);
    assert_int_equal(f.stats.row_rounds, layer + 1);
    assert_int_equal(f.t.calls[SUPPORT_HEADS], (layer + 1) * f.info.blocks); /* and no hook behind it */
    assert_int_equal(f.t.calls[SUPPORT_AFTER], layer * f.info.blocks);
    assert_int_equal(f.t.calls[SUPPORT_FINISH], 0);
    assert_int_equal(f.memory.live_blocks, live);
  }
  failures_end(&f);
}

typedef struct failures_nan {
  int64_t number, index;
} failures_nan;

static void failures_write_nan(void *user, const twh_call *call, int64_t number)
{
  failures_nan *nan = (failures_nan *)user;
  if (number != nan->number) return;
  nan->index = call->index;
  support_store(call->out, TWH_F32, 2 * call->out_row_stride + 1, (double)NAN);
}

static void a_nan_from_the_kernel_is_named_with_its_layer(void **state)
{
  int64_t        layer;
  failures_setup f;
  failures_nan   nan;
  (void)state;
  failures_begin(&f, 0);
  f.options.flags = TWH_RUN_CHECKED;
  f.oracle.spoil_user = &nan;
  for (layer = 0; layer < FAILURES_LAYERS; ++layer) {
    char start[40];
    f.oracle.spoil = failures_write_nan;
    nan.number = failures_calls_before(&f, layer) + 1;
    snprintf(start, sizeof start, "layer %lld: ", (long long)layer);
    support_assert_status(failures_run(&f), TWH_E_RESULT, &f.error, start);
    assert_int_equal(f.error.call, nan.index);
    assert_int_equal(f.error.row, 2);
    assert_int_equal(f.error.slot, 0);
    assert_int_equal(f.t.calls[SUPPORT_AFTER], layer * f.info.blocks);
    f.oracle.spoil = NULL;
    failures_expect_good(&f);
  }
  failures_end(&f);
}

/* ---- cancelling ---- */

typedef struct failures_progress {
  int64_t seen, stop_at, last, planned, wrong;
} failures_progress;

static int32_t failures_count_waves(void *user, int64_t done, int64_t planned)
{
  failures_progress *progress = (failures_progress *)user;
  if (done < progress->last || done > planned || (progress->seen && planned != progress->planned)) progress->wrong = 1;
  progress->last = done;
  progress->planned = planned;
  return ++progress->seen == progress->stop_at;
}

static void a_progress_callback_sees_all_layers_and_can_stop_anywhere(void **state)
{
  int64_t           at, waves;
  failures_setup    f;
  failures_progress progress;
  (void)state;
  failures_begin(&f, 0);
  memset(&progress, 0, sizeof progress);
  f.options.progress = failures_count_waves;
  f.options.user = &progress;
  failures_expect_good(&f);
  assert_int_equal(progress.wrong, 0);
  assert_int_equal(progress.planned, f.info.calls);
  assert_int_equal(progress.last, f.info.calls);
  waves = progress.seen;
  assert_true(waves >= FAILURES_LAYERS);
  for (at = 1; at <= waves; ++at) {
    int64_t live = f.memory.live_blocks, layer;
    memset(&progress, 0, sizeof progress);
    progress.stop_at = at;
    support_assert_status(failures_run(&f), TWH_E_CANCELLED, &f.error, "progress");
    assert_int_equal(progress.seen, at);
    layer = failures_layer_of(&f, progress.last - 1);
    assert_int_equal(f.stats.calls, f.oracle.calls);
    assert_true(f.oracle.calls >= progress.last && f.oracle.calls <= failures_calls_before(&f, layer + 1));
    assert_int_equal(f.stats.row_rounds, layer + 1);
    assert_int_equal(f.t.calls[SUPPORT_AFTER], layer * f.info.blocks);
    assert_int_equal(f.memory.live_blocks, live);
  }
  memset(&progress, 0, sizeof progress);
  failures_end(&f);
}

/* ---- memory ---- */

enum { MEMORY_STAGES = 3 };

/* Create everything on a context whose fail_at-th allocation fails, and execute if that works. Returns how far it got. */
static int failures_try_memory(support_transformer *t, twh_oracle *oracle, const twh_tensor *out, int64_t fail_at,
                               int64_t threads)
{
  support_memory          memory;
  twh_context_desc        hooks;
  twh_context            *context = NULL;
  twh_transformer        *made = NULL;
  twh_transformer_options options;
  twh_error               error;
  twh_status              status;
  int                     stage = 0;
  twh_error_init(&error);
  twh_transformer_options_init(&options);
  options.input = t->tokens;
  support_context_desc(&memory, threads, threads, &hooks);
  memory.fail_at = fail_at;
  status = twh_context_create(&hooks, &context, &error);
  if (status >= 0) ++stage, status = twh_transformer_create(context, &t->desc, &oracle, 1, NULL, &made, &error);
  if (status >= 0) {
    int64_t live = memory.live_blocks;
    ++stage;
    support_hooks_reset(t);
    status = twh_transformer_execute(made, NULL, out, &options, &error);
    assert_int_equal(memory.live_blocks, live);
    if (status >= 0)
      ++stage;
    else
      assert_int_equal(twh_transformer_execute(made, NULL, out, &options, NULL), TWH_OK); /* as good as before */
  }
  if (stage < MEMORY_STAGES) support_assert_status(status, TWH_E_MEMORY, &error, NULL);
  if (stage < 2) assert_null(made);
  twh_transformer_destroy(made);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
  assert_int_equal(memory.wrong_releases, 0);
  assert_int_equal(t->broken[0], 0);
  return stage;
}

static void any_allocation_may_fail(void **state)
{
  int64_t threads, at;
  (void)state;
  for (threads = 0; threads < 3; threads += 2) {
    failures_setup f;
    int            stage = 0, reached = 0;
    failures_begin(&f, 0);
    for (at = 0; stage < MEMORY_STAGES; ++at) {
      assert_true(at < 1000);
      stage = failures_try_memory(&f.t, f.oracle.oracle, &f.out, at, threads);
      reached |= 1 << stage;
    }
    assert_int_equal(reached, 15);
    assert_true(at > 6); /* the context, the transformer, its layers, its plans, its sequences, the execute */
    failures_end(&f);
  }
  twh_transformer_destroy(NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_hook_that_fails_is_named_with_its_layer_and_rows),
    cmocka_unit_test(the_first_block_that_fails_is_named_whatever_the_threads),
    cmocka_unit_test(a_product_that_fails_is_named_with_its_weight),
    cmocka_unit_test(an_error_struct_is_not_needed),
    cmocka_unit_test(a_call_that_fails_is_named_with_its_layer),
    cmocka_unit_test(a_nan_from_the_kernel_is_named_with_its_layer),
    cmocka_unit_test(a_progress_callback_sees_all_layers_and_can_stop_anywhere),
    cmocka_unit_test(any_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
