/* Chosen problems on a small transformer: against float64 and one long call, their share of the calls of a kernel with one
 * slot, heads that hold what others must not notice, and several executes at the same time. Random problems are in
 * test_transformer_oracle_random.c. */
#include "support.h"

enum { NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL, LENGTH = 16 };

/* Plan and execute on one oracle. */
static void solve_on(const twh_context *context, twh_oracle *oracle, support_tensors *tensors, const twh_problem *problem,
                     twh_plan_info *info, twh_run_stats *stats)
{
  twh_plan       *plan = NULL;
  twh_run_options options;
  twh_error       error;
  twh_error_init(&error);
  support_assert_status(twh_plan_create(context, problem, &oracle, 1, NULL, &plan, &error), TWH_OK, &error, NULL);
  twh_plan_info_init(info);
  twh_run_stats_init(stats);
  assert_int_equal(twh_plan_get_info(plan, info, NULL), TWH_OK);
  twh_run_options_init(&options);
  options.stats = stats;
  support_tensors_clear(tensors);
  support_assert_status(twh_plan_execute(plan, &tensors->all, &options, &error), TWH_OK, &error, NULL);
  assert_int_equal(stats->calls, info->calls + stats->repair_calls);
  twh_plan_destroy(plan);
}

enum { FULL = -2, OPEN = -1 }; /* left: no window; FULL: not causal either */

typedef struct solve_case {
  int32_t  dtype;
  int64_t  layers, heads, q_heads, kv_heads, q_len, k_len, left, sinks;
  int64_t  spare, batch, ragged; /* ragged: a list of sequences, of all lengths up to q_len */
  uint32_t masks;
  double   logit_std;
} solve_case;

static const solve_case solve_cases[] = {
  { TWH_F32, 1, 1, 1, 1, 20, 20, FULL, 0, 0, 1, 0, NONE, 1.5 },
  { TWH_F32, 2, 2, 3, 3, 50, 50, FULL, 0, 0, 1, 0, NONE, 1.5 },
  { TWH_F32, 1, 3, 2, 1, 1, 100, FULL, 0, 0, 3, 0, NONE | CAUSAL, 8.0 },
  { TWH_F32, 2, 4, 12, 12, 64, 64, FULL, 0, 0, 1, 0, NONE | CAUSAL, 1.5 },
  { TWH_F32, 3, 3, 4, 2, 80, 48, FULL, 0, 0, 2, 0, NONE, 0.1 },
  { TWH_BF16, 2, 2, 3, 3, 50, 50, FULL, 0, 0, 1, 0, NONE, 1.5 },
  { TWH_F16, 1, 3, 2, 2, 33, 70, FULL, 0, 1, 1, 0, NONE, 1.5 },
  { TWH_F32, 3, 1, 4, 2, 61, 61, OPEN, 0, 0, 1, 0, CAUSAL, 1.5 },
  { TWH_F32, 3, 4, 6, 3, 45, 45, OPEN, 0, 3, 2, 0, NONE | CAUSAL, 40.0 },
  { TWH_BF16, 2, 2, 4, 1, 40, 40, OPEN, 0, 0, 1, 0, CAUSAL, 1.5 },
  { TWH_F16, 2, 2, 4, 4, 40, 40, OPEN, 0, 6, 1, 0, NONE, 1.5 },
  { TWH_F32, 2, 3, 2, 1, 70, 70, 9, 0, 4, 1, 0, CAUSAL, 1.5 },
  { TWH_F32, 2, 2, 2, 2, 90, 90, 20, 3, 4, 1, 0, NONE | CAUSAL, 1.5 },
  { TWH_F32, 1, 3, 2, 2, 40, 40, 5, 0, 4, 3, 0, NONE, 1.5 },
  { TWH_F32, 2, 2, 2, 2, 40, 40, FULL, 0, 0, 7, 1, NONE, 1.5 },
  { TWH_F32, 2, 3, 4, 2, 50, 50, OPEN, 0, 4, 6, 1, NONE | CAUSAL, 1.5 },
  { TWH_F16, 1, 2, 2, 2, 35, 35, OPEN, 0, 4, 5, 1, CAUSAL, 1.5 },
};

enum { SMALL, SINGLE, ATTENTION, ORACLES }; /* a small transformer, one of one head, an attention kernel with one slot */

typedef struct solve_setup {
  twh_problem     problem;
  twh_pattern     pattern;
  twh_sequence    sequences[8];
  support_tensors tensors;
  twh_oracle     *oracles[ORACLES];
} solve_setup;

static void solve_problem(solve_setup *s, const solve_case *c, uint64_t number)
{
  support_random random = support_random_at(7, number);
  support_fill   fill;
  int64_t        b, at = 0;
  memset(s, 0, sizeof *s);
  memset(&fill, 0, sizeof fill);
  fill.logit_std = c->logit_std;
  fill.rounding = c->dtype;
  twh_pattern_init(&s->pattern);
  s->pattern.flags = (c->left > FULL ? TWH_CAUSAL : 0u) | (c->left >= 0 ? TWH_LEFT : 0u);
  s->pattern.left = c->left >= 0 ? c->left : 0;
  s->pattern.sink_tokens = c->sinks;
  twh_problem_init(&s->problem);
  s->problem.batch = c->batch;
  s->problem.q_heads = c->q_heads;
  s->problem.kv_heads = c->kv_heads;
  s->problem.q_len = c->ragged ? 0 : c->q_len;
  s->problem.k_len = c->ragged ? 0 : c->k_len;
  s->problem.qk_dim = 8;
  s->problem.v_dim = 7;
  s->problem.pattern = &s->pattern;
  s->problem.sequences = c->ragged ? s->sequences : NULL;
  for (b = 0; c->ragged && b < c->batch; ++b) { /* the second is empty, and rows of none lie between some */
    twh_sequence *sequence = &s->sequences[b];
    sequence->q_len = sequence->k_len = b == 1 ? 0 : 1 + support_below(&random, c->q_len);
    sequence->q_begin = sequence->k_begin = at;
    at += sequence->q_len + b % 2;
  }
  support_tensors_create(&s->tensors, &s->problem, c->dtype, SUPPORT_DENSE, 0);
  support_tensors_fill(&s->tensors, &s->problem, &fill, &random);
}

static void solve_begin(solve_setup *s, const solve_case *c, uint64_t number)
{
  twh_transformer_oracle_desc desc;
  twh_oracle_desc             one;
  solve_problem(s, c, number);
  twh_transformer_oracle_desc_init(&desc);
  twh_oracle_desc_init(&one);
  one.slots = 1;
  desc.length = one.q_len = one.k_len = LENGTH;
  desc.qk_dim = one.qk_dim = 8 + c->spare;
  desc.v_dim = one.v_dim = 8;
  desc.dtype = one.dtype = c->dtype;
  desc.mask_modes = one.mask_modes = c->masks;
  desc.scale = one.scale = 0.3;
  desc.max_calls_per_batch = 7;
  desc.layers = c->layers;
  desc.heads = c->heads;
  desc.model_dim = c->layers * c->heads * 2 * (desc.qk_dim + desc.v_dim);
  assert_int_equal(twh_reference_transformer_create(NULL, &desc, &s->oracles[SMALL], NULL), TWH_OK);
  desc.layers = desc.heads = 1;
  assert_int_equal(twh_reference_transformer_create(NULL, &desc, &s->oracles[SINGLE], NULL), TWH_OK);
  assert_int_equal(twh_reference_oracle_create(NULL, &one, NULL, &s->oracles[ATTENTION], NULL), TWH_OK);
}

static void solve_end(solve_setup *s)
{
  int k;
  for (k = 0; k < ORACLES; ++k) twh_oracle_destroy(s->oracles[k]);
  support_tensors_destroy(&s->tensors);
}

static void solve_check(const solve_case *c, int64_t number)
{
  const int64_t   slots = c->layers * c->heads;
  solve_setup     s;
  support_answer  truth, one_call, got;
  twh_oracle_desc desc;
  twh_plan_info   info[ORACLES];
  twh_run_stats   stats[ORACLES];
  double          bound, error;
  int             k;
  solve_begin(&s, c, (uint64_t)number);
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(s.oracles[ATTENTION], &desc, NULL), TWH_OK);
  support_answer_truth(&truth, &s.problem, &s.tensors);
  support_answer_one_call(&one_call, &s.problem, &s.tensors, &desc, NULL);
  bound = support_out_bound(&one_call, &truth, &desc, 1);
  for (k = 0; k < ORACLES; ++k) {
    solve_on(NULL, s.oracles[k], &s.tensors, &s.problem, &info[k], &stats[k]);
    support_answer_read(&got, &s.problem, &s.tensors);
    error = support_answer_out_error(&got, &truth);
    if (!(error <= bound)) fail_msg("case %d, oracle %d: error %g, bound %g", (int)number, k, error, bound);
    assert_true(support_tensors_gaps_untouched(&s.tensors, &s.problem));
    support_answer_destroy(&got);
  }
  assert_int_equal(info[SINGLE].calls, info[ATTENTION].calls);
  if (c->left == FULL) { /* all tiles are alike, and only the very last call may have slots that are not used */
    assert_int_equal(info[SMALL].calls, (info[ATTENTION].calls + slots - 1) / slots);
  } else if (info[SMALL].calls > info[ATTENTION].calls / slots + 4) { /* each class of tiles ends with a call of its own */
    fail_msg("case %d: %d calls, %d with one slot", (int)number, (int)info[SMALL].calls, (int)info[ATTENTION].calls);
  }
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  solve_end(&s);
}

static void problems_take_a_share_of_the_calls(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(solve_cases); ++i) solve_check(&solve_cases[i], i);
}

/* ---- heads that hold what is not finite, or soon would not be ---- */

enum { HEADS = 4, ROWS = 40, DIM = 7 };

static void solve_spoil(support_tensors *tensors, int64_t head, double value, int everywhere)
{
  int64_t r, c;
  for (r = 0; r < ROWS; ++r)
    for (c = 0; c < DIM; ++c) {
      if (!everywhere && (r != 21 || c != 3)) continue;
      support_set(&tensors->q, 0, head, r, c, value);
      support_set(&tensors->k, 0, head, r, c, value);
      support_set(&tensors->v, 0, head, r, c, value);
    }
}

/* Spoil heads `first` and first + 2; the other two must keep their bits. */
static void solve_expect_others_unchanged(const solve_case *c, double value, int64_t first, int everywhere)
{
  const size_t  bytes = sizeof(float) * ROWS * DIM;
  solve_setup   s;
  float         clean[HEADS][ROWS * DIM];
  twh_plan_info info;
  twh_run_stats stats;
  int64_t       h;
  solve_begin(&s, c, 50);
  solve_on(NULL, s.oracles[SMALL], &s.tensors, &s.problem, &info, &stats);
  memcpy(clean, s.tensors.out.data, sizeof clean);
  for (h = first; h < HEADS; h += 2) solve_spoil(&s.tensors, h, value, everywhere);
  solve_on(NULL, s.oracles[SMALL], &s.tensors, &s.problem, &info, &stats);
  for (h = 1 - first; h < HEADS; h += 2)
    if (memcmp((float *)s.tensors.out.data + h * ROWS * DIM, clean[h], bytes) != 0)
      fail_msg("%g in heads %d and %d: head %d has other bits", value, (int)first, (int)first + 2, (int)h);
  assert_true(memcmp((float *)s.tensors.out.data + first * ROWS * DIM, clean[first], bytes) != 0);
  solve_end(&s);
}

static void a_head_changes_no_bit_of_the_others(void **state)
{
  static const double values[] = { NAN, INFINITY, -INFINITY, 1e19, 1e38, 3e38 };
  solve_case          c = { TWH_F32, 2, 3, HEADS, HEADS, ROWS, ROWS, FULL, 0, 0, 1, 0, NONE | CAUSAL, 1.5 };
  int64_t             n;
  (void)state;
  for (n = 0; n < 8 * SUPPORT_COUNT(values); n += SUPPORT_SANITIZED ? 5 : 1) {
    c.left = n & 1 ? OPEN : FULL;
    solve_expect_others_unchanged(&c, values[n / 8], n >> 1 & 1, (int)(n >> 2 & 1));
  }
}

/* ---- executes at the same time ---- */

static const solve_case solve_threaded = { TWH_F32, 1, 2, 3, 3, 60, 60, FULL, 0, 0, 1, 0, NONE, 1.5 };

typedef struct solve_thread {
  pthread_t       thread;
  solve_setup     s;
  const twh_plan *plan;
  float           first[3 * 60 * DIM];
  int             wrong;
} solve_thread;

static void *solve_thread_run(void *arg)
{
  solve_thread *own = (solve_thread *)arg;
  int           i;
  for (i = 0; i < 3; ++i) {
    support_tensors_clear(&own->s.tensors);
    own->wrong += twh_plan_execute(own->plan, &own->s.tensors.all, NULL, NULL) != TWH_OK;
    own->wrong += memcmp(own->first, own->s.tensors.out.data, sizeof own->first) != 0;
  }
  return NULL;
}

static twh_oracle *solve_threaded_oracle(const twh_context *context)
{
  twh_transformer_oracle_desc desc;
  twh_oracle                 *oracle = NULL;
  twh_transformer_oracle_desc_init(&desc);
  desc.layers = 1;
  desc.heads = 2;
  desc.length = 8;
  desc.qk_dim = desc.v_dim = 8;
  desc.model_dim = 64;
  desc.dtype = TWH_F32;
  desc.mask_modes = NONE;
  desc.scale = 0.3;
  desc.max_calls_per_batch = 2;
  desc.max_concurrent_batches = 2;
  assert_int_equal(twh_reference_transformer_create(context, &desc, &oracle, NULL), TWH_OK);
  return oracle;
}

/* Three threads execute one plan, each with data of its own, on a kernel that takes two batches at once. */
static void executes_share_an_oracle(void **state)
{
  support_memory memory;
  twh_context   *context = support_context(&memory, 0, 0);
  twh_oracle    *oracle = solve_threaded_oracle(context);
  twh_plan      *plan = NULL;
  solve_thread  *threads = (solve_thread *)calloc(3, sizeof *threads);
  int            i;
  (void)state;
  assert_non_null(threads);
  for (i = 0; i < 3; ++i) {
    solve_problem(&threads[i].s, &solve_threaded, 10 + (uint64_t)i);
    if (i == 0) assert_int_equal(twh_plan_create(context, &threads[0].s.problem, &oracle, 1, NULL, &plan, NULL), TWH_OK);
    threads[i].plan = plan;
    assert_int_equal(twh_plan_execute(plan, &threads[i].s.tensors.all, NULL, NULL), TWH_OK);
    memcpy(threads[i].first, threads[i].s.tensors.out.data, sizeof threads[i].first);
  }
  assert_memory_not_equal(threads[0].first, threads[1].first, sizeof threads[0].first);
  for (i = 0; i < 3; ++i) assert_int_equal(pthread_create(&threads[i].thread, NULL, solve_thread_run, &threads[i]), 0);
  for (i = 0; i < 3; ++i) pthread_join(threads[i].thread, NULL);
  for (i = 0; i < 3; ++i) {
    assert_int_equal(threads[i].wrong, 0);
    support_tensors_destroy(&threads[i].s.tensors);
  }
  free(threads);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
  assert_int_equal(memory.wrong_releases, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(problems_take_a_share_of_the_calls),
    cmocka_unit_test(a_head_changes_no_bit_of_the_others),
    cmocka_unit_test(executes_share_an_oracle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
