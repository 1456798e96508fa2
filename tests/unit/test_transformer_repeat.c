/* The same bits however a transformer is run: threads, blocks of rows, batches, workspaces, repetition, many at once. And what layers
 * share: plans of equal attention.
 *
 * support_transformer_run compares each run's statistics with what the transformer announced and looks at every hook's rows. */
#include "support_transformer.h"

enum { REPEAT_CASES = SUPPORT_SANITIZED ? 6 : 15 };

static void threads_blocks_and_workspaces_change_no_bit(void **state)
{
  static const int64_t blocks[] = { 1, 3, 16, 1000 };
  uint64_t             number;
  int64_t              i, threads;
  (void)state;
  for (number = 0; number < REPEAT_CASES; ++number) {
    support_model m;
    support_way   way;
    support_transformer_choose(&m.t, support_seed(11), number);
    support_model_begin(&m);
    way = m.way;
    way.own_workspace = way.repeat = 1;
    support_model_expect_same(&m, &way, "the caller's workspace, twice", 0);
    for (i = 0; i < SUPPORT_COUNT(blocks); ++i) {
      way = m.way;
      way.block_rows = blocks[i];
      way.max_calls_per_batch = i;
      support_model_expect_same(&m, &way, "block_rows", blocks[i]);
    }
    support_oracle_destroy(&m.oracle);
    for (threads = 2; threads < 5; ++threads) {
      support_memory memory;
      twh_context   *context = support_context(&memory, threads, threads);
      support_model_kernel(&m, context);
      m.way.block_rows = threads;
      m.way.own_workspace = threads == 3;
      m.way.repeat = 1;
      support_model_expect_same(&m, &m.way, "threads", threads);
      if (threads < 4) {
        support_oracle_destroy(&m.oracle);
        twh_context_destroy(context);
        assert_int_equal(memory.live_blocks, 0);
        continue;
      }
      support_model_end(&m);
      twh_context_destroy(context);
      assert_int_equal(memory.live_blocks, 0);
      assert_int_equal(memory.wrong_releases, 0);
    }
  }
}

/* Many threads, one transformer, each its own out and workspace. */
typedef struct repeat_thread {
  const twh_transformer *made;
  const support_model   *m;
  float                 *x, *out;
  twh_status             status;
} repeat_thread;

static void *repeat_on_thread(void *user)
{
  repeat_thread             *thread = (repeat_thread *)user;
  const support_transformer *t = &thread->m->t;
  twh_transformer_options    options;
  twh_tensor                 x, out;
  int                        again;
  twh_transformer_options_init(&options);
  options.input = t->tokens;
  twh_tensor_dense(&x, TWH_F32, thread->x, 1, t->rows, t->desc.model_dim);
  twh_tensor_dense(&out, TWH_F32, thread->out, 1, t->rows, t->desc.model_dim);
  for (again = 0; again < 3; ++again)
    thread->status = twh_transformer_execute(thread->made, t->desc.embed ? NULL : &x, &out, &options, NULL);
  return NULL;
}

static void many_threads_may_execute_one_transformer(void **state)
{
  uint64_t number;
  int64_t  i, r;
  (void)state;
  for (number = 0; number < 4; ++number) {
    support_model    m;
    repeat_thread    threads[4];
    pthread_t        ids[4];
    twh_transformer *made = NULL;
    support_transformer_choose(&m.t, support_seed(12), number);
    support_model_begin(&m);
    m.t.desc.block_rows = 5;
    m.t.block_rows = 5;
    assert_int_equal(twh_transformer_create(NULL, &m.t.desc, m.way.oracles, 1, NULL, &made, NULL), TWH_OK);
    for (i = 0; i < 4; ++i) {
      threads[i].made = made;
      threads[i].m = &m;
      threads[i].x = (float *)malloc(m.bytes + 1);
      threads[i].out = (float *)malloc(m.bytes + 1);
      assert_true(threads[i].x && threads[i].out);
      for (r = 0; r < m.t.rows * m.t.desc.model_dim; ++r) threads[i].x[r] = (float)m.t.x[r];
      assert_int_equal(pthread_create(&ids[i], NULL, repeat_on_thread, &threads[i]), 0);
    }
    for (i = 0; i < 4; ++i) {
      pthread_join(ids[i], NULL);
      assert_int_equal(threads[i].status, TWH_OK);
      for (r = 0; r < m.t.rows * m.t.desc.model_dim; ++r) assert_true((double)threads[i].out[r] == m.want[r]);
      free(threads[i].x);
      free(threads[i].out);
    }
    assert_int_equal(m.t.broken[0], 0);
    twh_transformer_destroy(made);
    support_model_end(&m);
  }
}

/* ---- plans ---- */

static void equal_layers_share_a_plan(void **state)
{
  support_model        m;
  twh_transformer_info info;
  twh_transformer     *made = NULL;
  twh_plan_info        plan, other;
  int64_t              i;
  (void)state;
  support_transformer_plain(&m.t, 4, 1, 30);
  for (i = 1; i < 4; i += 2) { /* window, full, window, full: in and out, weights' types and hooks do not matter */
    m.t.layers[i].pattern.flags = TWH_CAUSAL | TWH_LEFT;
    m.t.layers[i].pattern.left = 4;
    m.t.layers[i].desc.pattern = &m.t.layers[i].pattern;
    m.t.layers[i].desc.flags = i == 1 ? TWH_LAYER_IN_OUT : 0;
    m.t.layers[i].dtypes[SUPPORT_WK] = i == 1 ? TWH_F16 : TWH_F32;
    m.t.layers[i].with ^= i == 1 ? SUPPORT_WITH_HEADS | SUPPORT_WITH_SINK_LOGITS : 0;
  }
  support_model_begin(&m);
  support_model_again(&m, &m.way, &info, NULL);
  assert_int_equal(info.plans, 2);
  assert_int_equal(twh_transformer_create(NULL, &m.t.desc, m.way.oracles, 1, NULL, &made, NULL), TWH_OK);
  assert_ptr_equal(twh_transformer_plan(made, 0), twh_transformer_plan(made, 2));
  assert_ptr_equal(twh_transformer_plan(made, 1), twh_transformer_plan(made, 3));
  assert_ptr_not_equal(twh_transformer_plan(made, 0), twh_transformer_plan(made, 1));
  assert_null(twh_transformer_plan(made, -1));
  assert_null(twh_transformer_plan(made, 4));
  assert_null(twh_transformer_plan(NULL, 0));
  twh_plan_info_init(&plan);
  twh_plan_info_init(&other);
  assert_int_equal(twh_plan_get_info(twh_transformer_plan(made, 0), &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_get_info(twh_transformer_plan(made, 1), &other, NULL), TWH_OK);
  assert_int_equal(info.calls, 2 * (plan.calls + other.calls));
  assert_int_equal(info.repair_calls_max, 2 * (plan.repair_calls_max + other.repair_calls_max));
  assert_int_equal(info.rounds, 2 * (plan.rounds + other.rounds));
  assert_int_equal(info.rounds_max, 2 * (plan.rounds_max + other.rounds_max));
  assert_true(info.workspace_bytes > plan.workspace_bytes && info.workspace_bytes > other.workspace_bytes);
  twh_transformer_destroy(made);
  support_model_end(&m);
}

/* What makes a plan of its own, one thing after the other. */
static void repeat_change(support_layer *layer, int change)
{
  switch (change) {
  case 1: layer->desc.pattern = NULL; break;
  case 2: layer->pattern.left = 4; break;
  case 3: layer->pattern.right = 4; break;
  case 4: layer->pattern.sink_tokens = 1; break;
  case 5: layer->pattern.flags |= TWH_CAUSAL; break;
  case 6: layer->desc.q_heads = 4; break;
  case 7: layer->desc.kv_heads = 1; break;
  case 8: layer->desc.qk_dim = 5; break;
  case 9: layer->desc.v_dim = 5; break;
  case 10: layer->desc.scale = 0.4; break;
  case 11: layer->desc.flags = 0, layer->desc.scale = 0.0; break;
  case 12: layer->with |= SUPPORT_WITH_SLOPES; break;
  case 13: layer->desc.softcap = 3.0; break;
  default: break;
  }
}

static void layers_that_differ_do_not_share(void **state)
{
  int change;
  (void)state;
  for (change = 0; change < 14; ++change) {
    support_model        m;
    twh_transformer_info info;
    support_oracle       capped; /* by what one layer wants */
    twh_oracle          *oracles[2];
    double              *truth;
    int                  l;
    support_transformer_plain(&m.t, 2, 1, 20);
    for (l = 0; l < 2; ++l) {
      support_layer *layer = &m.t.layers[l];
      layer->pattern.flags = TWH_LEFT | TWH_RIGHT;
      layer->pattern.left = layer->pattern.right = 3;
      layer->desc.pattern = &layer->pattern;
      layer->desc.flags = TWH_LAYER_SCALE;
      layer->desc.scale = 0.3;
    }
    repeat_change(&m.t.layers[1], change == 13 ? 0 : change);
    support_model_begin(&m);
    if (change == 13) repeat_change(&m.t.layers[1], change);
    m.kernel.softcap = 3.0;
    support_oracle_create(&capped, NULL, &m.kernel, NULL);
    oracles[0] = m.oracle.oracle;
    oracles[1] = capped.oracle;
    m.way.oracles = oracles;
    m.way.n_oracles = 2;
    support_model_again(&m, &m.way, &info, NULL);
    assert_int_equal(info.plans, change ? 2 : 1);
    assert_true((capped.calls > 0) == (change == 13));
    truth = support_model_rows(&m);
    support_transformer_truth(&m.t, 0.0, truth);
    support_assert_at_most(support_transformer_error(&m.t, truth, m.got), 1e-6, "layers that differ");
    free(truth);
    support_oracle_destroy(&capped);
    support_model_end(&m);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_blocks_and_workspaces_change_no_bit),
    cmocka_unit_test(many_threads_may_execute_one_transformer),
    cmocka_unit_test(equal_layers_share_a_plan),
    cmocka_unit_test(layers_that_differ_do_not_share),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
