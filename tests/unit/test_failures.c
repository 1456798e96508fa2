/* What goes wrong on the way: a kernel that fails at any of its calls, a kernel that returns NaN, a host that cancels.
 *
 * test_failures_memory.c lets allocations fail, test_failures_async.c has a kernel that works behind the caller's back. */
#include "support.h"

enum { FAILURES_CODE = -77 };

typedef struct failures_setup {
  support_memory  memory;
  twh_context    *context;
  twh_problem     problem;
  twh_pattern     pattern;
  support_oracle  oracle;
  twh_plan       *plan;
  twh_plan_info   info;
  support_tensors tensors;
  support_answer  truth;
} failures_setup;

/* Three heads of 24 queries and keys on one kernel of the table, full, causal (1) or in a causal window (2); logit_std 40 makes
 * f32 kernels without lse repair tiles. */
static int failures_begin(failures_setup *s, const support_kernel *kernel, int causal, int64_t per_batch, int64_t threads,
                          double logit_std)
{
  twh_oracle_desc  desc;
  twh_plan_options options;
  support_random   random = support_random_at(support_seed(87), 0);
  support_fill     fill;
  memset(s, 0, sizeof *s);
  memset(&fill, 0, sizeof fill);
  fill.logit_std = logit_std;
  twh_problem_init(&s->problem);
  twh_pattern_init(&s->pattern);
  s->pattern.flags = causal ? TWH_CAUSAL | (causal > 1 ? TWH_LEFT : 0) : 0;
  s->pattern.left = 3;
  s->problem.pattern = &s->pattern;
  s->problem.batch = 1;
  s->problem.q_heads = s->problem.kv_heads = 3;
  s->problem.q_len = s->problem.k_len = 24;
  s->problem.qk_dim = s->problem.v_dim = 4;
  support_kernel_desc(kernel, &s->problem, 8, 8, &desc);
  desc.max_concurrent_batches = threads ? threads : 1;
  if (!support_must_run(&s->problem, &desc)) return 0;
  fill.rounding = desc.dtype;
  s->context = support_context(&s->memory, threads, threads);
  support_oracle_create(&s->oracle, s->context, &desc, NULL);
  twh_plan_options_init(&options);
  options.max_calls_per_batch = per_batch;
  assert_int_equal(twh_plan_create(s->context, &s->problem, &s->oracle.oracle, 1, &options, &s->plan, NULL), TWH_OK);
  twh_plan_info_init(&s->info);
  assert_int_equal(twh_plan_get_info(s->plan, &s->info, NULL), TWH_OK);
  support_tensors_create(&s->tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(&s->tensors, &s->problem, &fill, &random);
  support_answer_truth(&s->truth, &s->problem, &s->tensors);
  return 1;
}

static void failures_end(failures_setup *s)
{
  support_answer_destroy(&s->truth);
  support_tensors_destroy(&s->tensors);
  twh_plan_destroy(s->plan);
  assert_int_equal(s->oracle.broken[0], 0);
  support_oracle_destroy(&s->oracle);
  twh_context_destroy(s->context);
  assert_int_equal(s->memory.live_blocks, 0);
  assert_int_equal(s->memory.wrong_releases, 0);
}

/* The result is right to a loose bound: what is tested here is which numbers are used at all. `nan_rows` rows may be NaN: the
 * kernel's own NaN among the values is passed on to its row. */
static void failures_expect_right_but(const failures_setup *s, const char *name, int64_t nan_rows)
{
  support_answer got;
  double         height = s->truth.max_value + s->truth.max_logit * support_epsilon(TWH_F32) * 1e7;
  double         loose = 32.0 * support_epsilon(s->oracle.desc.dtype) * height, error;
  int64_t        r, c, dim;
  support_answer_read(&got, &s->problem, &s->tensors);
  dim = got.dim;
  for (r = 0; r < got.rows; ++r) {
    for (error = 0.0, c = 0; c < dim; ++c) {
      double one = fabs(got.out[r * dim + c] - s->truth.out[r * dim + c]);
      if (!(one <= error)) error = one;
    }
    if (isnan(error) && nan_rows-- > 0) continue;
    support_assert_at_most(error, loose, name);
  }
  support_assert_at_most(support_answer_lse_error(&got, &s->truth), loose * 4.0, name);
  support_answer_destroy(&got);
}

static void failures_expect_right(const failures_setup *s, const char *name)
{
  failures_expect_right_but(s, name, 0);
}

static void case_C87_the_code_of_a_failing_call_reaches_the_caller_and_nothing_follows(void **state)
{
  int64_t i, at, repairs = 0;
  int     causal;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (causal = 0; causal < 3; ++causal) {
      failures_setup  s;
      twh_run_options options;
      twh_run_stats   stats;
      twh_error       error;
      int64_t         calls, live;
      if (!failures_begin(&s, &support_kernels[i], causal, 1, 0, 40.0)) continue;
      twh_error_init(&error);
      twh_run_options_init(&options);
      twh_run_stats_init(&stats);
      options.stats = &stats;
      assert_int_equal(twh_plan_execute(s.plan, &s.tensors.all, &options, NULL), TWH_OK);
      calls = s.oracle.calls;
      repairs += stats.repair_calls;
      assert_int_equal(calls, s.info.calls + stats.repair_calls);
      live = s.memory.live_blocks;
      s.oracle.fail_code = FAILURES_CODE;
      for (at = 0; at <= calls; ++at) {
        support_oracle_reset(&s.oracle);
        support_tensors_clear(&s.tensors);
        s.oracle.fail_at = at;
        if (at == calls) { /* past the last call: as if nothing had been */
          assert_int_equal(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_OK);
          failures_expect_right(&s, support_kernels[i].name);
          continue;
        }
        support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_E_ORACLE, &error, "-77");
        assert_int_equal(error.oracle_code, FAILURES_CODE);
        assert_int_equal(error.call, s.oracle.failed_index);
        assert_true(error.call < calls); /* repair calls, made in between, have the numbers behind the planned ones */
        assert_int_equal(s.oracle.calls_after_failure, 0);
        assert_int_equal(s.oracle.calls, at + 1);
        assert_int_equal(stats.calls, at + 1);
        assert_int_equal(s.memory.live_blocks, live);
      }
      failures_end(&s);
    }
  assert_true(repairs > 0); /* repair calls fail too */
}

static void case_C87_batches_and_threads_stop_too(void **state)
{
  static const int64_t batches[] = { 1, 2, 3, 7, 0 };
  int64_t              i, j, at, threads;
  (void)state;
  for (i = 0; i < support_kernel_count; i += 3)
    for (j = 0; j < SUPPORT_COUNT(batches); ++j)
      for (threads = 0; threads < 4; threads += 3)
        for (at = 0; at < 9; at += 4) {
          failures_setup s;
          twh_error      error;
          if (!failures_begin(&s, &support_kernels[i], 0, batches[j], threads, 1.0)) continue;
          twh_error_init(&error);
          if (at < s.info.calls) {
            s.oracle.fail_at = at;
            s.oracle.fail_code = 5;
            support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, NULL, &error), TWH_E_ORACLE, &error, NULL);
            assert_int_equal(error.oracle_code, 5);
            assert_int_equal(error.call, s.oracle.failed_index);
            /* a batch may already be on its way on each other thread */
            assert_true(threads > 1 || s.oracle.calls_after_failure == 0);
            /* and others may begin until the failed one has come back, but none of the next wave, of 16 calls here */
            assert_true(s.oracle.batches <= at + 1 + (threads > 1 ? 16 : 0));
          }
          failures_end(&s);
        }
}

/* ---- NaN ---- */

typedef struct failures_nan {
  const support_oracle *oracle;
  int64_t               call, slot, row, from, until; /* columns of out; until < 0: lse */
  int64_t               index;                        /* of the call that got the NaN */
} failures_nan;

static void failures_write_nan(void *user, const twh_call *call, int64_t number)
{
  failures_nan *nan = (failures_nan *)user;
  int64_t       c;
  if (number != nan->call) return;
  nan->index = call->index;
  for (c = nan->from; c < nan->until; ++c)
    support_store(call->out, nan->oracle->desc.out_dtype,
                  nan->slot * call->out_slot_stride + nan->row * call->out_row_stride + c, (double)NAN);
  if (nan->until < 0) call->lse[nan->slot * call->lse_slot_stride + nan->row] = (float)NAN;
}

static void case_C89_a_nan_in_one_lane_is_named_or_repaired(void **state)
{
  int64_t i, kind, at, slot;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (kind = 0; kind < 4; ++kind) { /* a whole row, a value, the last column, lse */
      failures_setup  s;
      twh_run_options options;
      twh_error       error;
      failures_nan    nan;
      if (!failures_begin(&s, &support_kernels[i], 0, 1, 0, 1.0)) continue;
      twh_error_init(&error);
      twh_run_options_init(&options);
      nan.oracle = &s.oracle;
      nan.row = 5;
      nan.from = kind == 2 ? s.oracle.desc.v_dim - 1 : 0;
      nan.until = kind == 3 ? -1 : kind == 1 ? 1 : s.oracle.desc.v_dim;
      s.oracle.spoil = failures_write_nan;
      s.oracle.spoil_user = &nan;
      for (at = 0; at < s.info.calls && (kind < 3 || (s.oracle.desc.flags & TWH_ORACLE_LSE)); at += 3)
        for (slot = 0; slot < s.oracle.desc.slots; slot += s.oracle.desc.slots - (s.oracle.desc.slots > 1)) {
          nan.call = at;
          nan.slot = slot;
          options.flags = TWH_RUN_CHECKED;
          support_oracle_reset(&s.oracle);
          if (twh_plan_execute(s.plan, &s.tensors.all, &options, &error) != TWH_OK) {
            assert_int_equal(error.status, TWH_E_RESULT);
            if (error.call != nan.index)
              print_error("%s: NaN in call %lld: %s\n", support_kernels[i].name, (long long)nan.index, error.message);
            assert_int_equal(error.call, nan.index);
            assert_int_equal(error.slot, slot);
            assert_int_equal(error.row, 5);
          } else {
            /* not looked at: a slot without a tile, a column that nothing is read from, the lse of a further slice */
            assert_true(slot > 0 || kind == 2 || (s.oracle.desc.mask_modes & TWH_MASK_CAUSAL) ||
                        (kind == 3 && s.oracle.desc.v_dim < s.problem.v_dim));
          }
          options.flags = 0;
          support_oracle_reset(&s.oracle);
          support_tensors_clear(&s.tensors);
          support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_OK, &error, NULL);
          failures_expect_right_but(&s, support_kernels[i].name, kind < 3);
        }
      failures_end(&s);
    }
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

static void a_progress_callback_sees_every_wave_and_can_stop_each(void **state)
{
  int64_t i, at, most = 0;
  (void)state;
  for (i = 0; i < support_kernel_count; i += 2) {
    failures_setup    s;
    failures_progress progress;
    twh_run_options   options;
    twh_error         error;
    int64_t           waves, live;
    if (!failures_begin(&s, &support_kernels[i], (int)(i / 2 % 3), 1, 0, 1.0)) continue;
    twh_error_init(&error);
    twh_run_options_init(&options);
    memset(&progress, 0, sizeof progress);
    options.progress = failures_count_waves;
    options.user = &progress;
    assert_int_equal(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_OK);
    assert_int_equal(progress.wrong, 0);
    assert_int_equal(progress.planned, s.info.calls);
    assert_int_equal(progress.last, s.info.calls);
    waves = progress.seen;
    most = waves > most ? waves : most;
    live = s.memory.live_blocks;
    for (at = 1; at <= waves; ++at) {
      int64_t calls_then;
      memset(&progress, 0, sizeof progress);
      progress.stop_at = at;
      support_oracle_reset(&s.oracle);
      support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_E_CANCELLED, &error, NULL);
      calls_then = s.oracle.calls;
      assert_int_equal(progress.seen, at);
      assert_true(calls_then >= progress.last);
      assert_true(at == waves || calls_then < s.info.calls || s.info.host_tiles > 0); /* the host's tiles take waves too */
      assert_int_equal(s.memory.live_blocks, live);
    }
    failures_end(&s);
  }
  assert_true(most > 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C87_the_code_of_a_failing_call_reaches_the_caller_and_nothing_follows),
    cmocka_unit_test(case_C87_batches_and_threads_stop_too),
    cmocka_unit_test(case_C89_a_nan_in_one_lane_is_named_or_repaired),
    cmocka_unit_test(a_progress_callback_sees_every_wave_and_can_stop_each),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
