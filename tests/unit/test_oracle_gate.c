/* The gate: the kernel is called by no more threads than it allows and not after a failure, and nobody waits for ever. */
#include "support.h"

#include <sched.h>

#include "core/oracle/oracle.h"

static void gate_desc(twh_oracle_desc *desc)
{
  twh_oracle_desc_init(desc);
  desc->slots = 3;
  desc->q_len = 48;
  desc->k_len = 64;
  desc->qk_dim = 16;
  desc->v_dim = 17;
  desc->dtype = TWH_F16;
  desc->mask_modes = TWH_MASK_NONE;
  desc->scale = 0.25;
}

enum { GATE_THREADS = 8, GATE_ROUNDS = 400 };

typedef struct gate_kernel {
  pthread_mutex_t lock;
  pthread_cond_t  changed;
  int64_t         running, most, calls, gather, fail_at;
} gate_kernel;

static void gate_enter(gate_kernel *kernel)
{
  ++kernel->running;
  if (kernel->running > kernel->most) kernel->most = kernel->running;
  pthread_cond_broadcast(&kernel->changed);
}

/* Stays until `gather` batches have been inside at the same time, once: so the limit is reached, not only kept. */
static int32_t gate_run(void *user, const twh_call *const *calls, int64_t n)
{
  gate_kernel *kernel = (gate_kernel *)user;
  int32_t      code;
  (void)calls;
  pthread_mutex_lock(&kernel->lock);
  gate_enter(kernel);
  while (kernel->most < kernel->gather) pthread_cond_wait(&kernel->changed, &kernel->lock);
  kernel->calls += n;
  code = kernel->calls == kernel->fail_at ? -31 : 0;
  pthread_mutex_unlock(&kernel->lock);
  for (int i = 0; i < 4; ++i) sched_yield(); /* let in whoever may come */
  pthread_mutex_lock(&kernel->lock);
  --kernel->running;
  pthread_mutex_unlock(&kernel->lock);
  return code;
}

static void gate_create(gate_kernel *kernel, int64_t limit, twh_oracle **oracle)
{
  twh_oracle_desc desc;
  twh_error       error;
  twh_error_init(&error);
  memset(kernel, 0, sizeof *kernel);
  pthread_mutex_init(&kernel->lock, NULL);
  pthread_cond_init(&kernel->changed, NULL);
  gate_desc(&desc);
  desc.max_concurrent_batches = limit;
  desc.run = gate_run;
  desc.user = kernel;
  support_assert_status(twh_oracle_create(NULL, &desc, oracle, &error), TWH_OK, &error, NULL);
}

static void gate_destroy(gate_kernel *kernel, twh_oracle *oracle)
{
  twh_oracle_destroy(oracle);
  pthread_cond_destroy(&kernel->changed);
  pthread_mutex_destroy(&kernel->lock);
}

typedef struct gate_worker {
  const twh_oracle *oracle;
  twh__ledger      *ledger;
  int64_t           rounds, refused;
} gate_worker;

static void *gate_work(void *arg)
{
  gate_worker    *worker = (gate_worker *)arg;
  twh_call        call;
  const twh_call *calls[2];
  twh_call_init(&call);
  call.index = 40;
  calls[0] = calls[1] = &call;
  for (int64_t i = 0; i < worker->rounds; ++i)
    worker->refused += twh__oracle_call(worker->oracle, calls, 2, worker->ledger, NULL, NULL) == TWH__BATCH_STOPPED;
  return NULL;
}

static void gate_run_threads(const twh_oracle *oracle, twh__ledger *ledgers, int64_t ledger_count, gate_worker *workers)
{
  pthread_t threads[GATE_THREADS];
  for (int64_t i = 0; i < GATE_THREADS; ++i) {
    memset(&workers[i], 0, sizeof workers[i]);
    workers[i].oracle = oracle;
    workers[i].ledger = &ledgers[i % ledger_count];
    workers[i].rounds = GATE_ROUNDS;
    assert_int_equal(pthread_create(&threads[i], NULL, gate_work, &workers[i]), 0);
  }
  for (int64_t i = 0; i < GATE_THREADS; ++i) pthread_join(threads[i], NULL);
}

static void oracle_call_threads_never_exceed_the_limit(void **state)
{
  static const int64_t limits[] = { 0, 1, 2, 3, 8, 100 };
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(limits); ++i) {
    twh__ledger  ledger = { 0, 0, 0, 0, 0 };
    gate_worker  workers[GATE_THREADS];
    gate_kernel  kernel;
    twh_oracle  *oracle;
    int64_t      limit = limits[i] ? limits[i] : 1;
    gate_create(&kernel, limits[i], &oracle);
    kernel.gather = limit < GATE_THREADS ? limit : GATE_THREADS;
    gate_run_threads(oracle, &ledger, 1, workers);
    assert_int_equal(kernel.most, kernel.gather);
    assert_int_equal(kernel.calls, 2 * GATE_THREADS * GATE_ROUNDS);
    assert_int_equal(ledger.calls, kernel.calls);
    assert_int_equal(ledger.batches, GATE_THREADS * GATE_ROUNDS);
    assert_int_equal(kernel.running, 0);
    assert_int_equal(ledger.code, 0);
    gate_destroy(&kernel, oracle);
  }
}

/* One execute of two fails: the other one gets all its calls, and nobody is left waiting. */
static void oracle_call_failure_stops_its_own_execute_only(void **state)
{
  (void)state;
  for (int64_t fail_at = 2; fail_at < 800; fail_at += 38) {
    twh__ledger  ledgers[2] = { { 0, 0, 0, 0, 0 }, { 0, 0, 0, 0, 0 } };
    gate_worker  workers[GATE_THREADS];
    gate_kernel  kernel;
    twh_oracle  *oracle;
    int          failed, healthy;
    int64_t      refused = 0;
    gate_create(&kernel, 2, &oracle);
    kernel.fail_at = fail_at;
    gate_run_threads(oracle, ledgers, 2, workers);
    failed = ledgers[0].code ? 0 : 1;
    healthy = !failed;
    assert_int_equal(ledgers[failed].code, -31);
    assert_int_equal(ledgers[failed].call, 40);
    assert_int_equal(ledgers[healthy].code, 0);
    assert_int_equal(ledgers[0].calls + ledgers[1].calls, kernel.calls);
    for (int64_t i = 0; i < GATE_THREADS; ++i) {
      if (i % 2 == healthy) assert_int_equal(workers[i].refused, 0);
      else refused += workers[i].refused;
    }
    assert_true(refused > 0);
    /* all calls of the healthy one, and of the other one those before the failure and the batch beside it */
    assert_true(kernel.calls >= GATE_THREADS / 2 * GATE_ROUNDS * 2 + 2);
    assert_true(kernel.calls < GATE_THREADS * GATE_ROUNDS * 2);
    assert_int_equal(kernel.running, 0);
    gate_destroy(&kernel, oracle);
  }
}

static void oracle_call_after_a_failure_does_not_reach_the_kernel(void **state)
{
  twh__ledger     ledger = { 0, 0, 0, 0, 0 };
  gate_kernel     kernel;
  twh_oracle     *oracle;
  twh_call        call;
  const twh_call *calls[1];
  (void)state;
  gate_create(&kernel, 1, &oracle);
  kernel.fail_at = 2;
  twh_call_init(&call);
  calls[0] = &call;
  call.index = 6;
  assert_int_equal(twh__oracle_call(oracle, calls, 1, &ledger, NULL, NULL), TWH__BATCH_DONE);
  assert_int_equal(ledger.code, 0);
  call.index = 7;
  assert_int_equal(twh__oracle_call(oracle, calls, 1, &ledger, NULL, NULL), TWH__BATCH_FAILED);
  assert_int_equal(ledger.code, -31);
  call.index = 8;
  assert_int_equal(twh__oracle_call(oracle, calls, 1, &ledger, NULL, NULL), TWH__BATCH_STOPPED);
  assert_int_equal(ledger.call, 7);
  assert_int_equal(ledger.calls, 2);
  assert_int_equal(kernel.calls, 2);
  gate_destroy(&kernel, oracle);
}

/* ---- submit and wait ---- */

typedef struct async_kernel {
  int      submitted, waited;
  uint64_t ticket;
  int32_t  submit_code, wait_code;
} async_kernel;

static int32_t async_submit(void *user, const twh_call *const *calls, int64_t n, uint64_t *ticket)
{
  async_kernel *kernel = (async_kernel *)user;
  (void)calls;
  kernel->submitted += (int)n;
  *ticket = 0xfeedface12345678u;
  return kernel->submit_code;
}

static int32_t async_wait(void *user, uint64_t ticket)
{
  async_kernel *kernel = (async_kernel *)user;
  ++kernel->waited;
  kernel->ticket = ticket;
  return kernel->wait_code;
}

static void oracle_call_without_run_submits_and_waits(void **state)
{
  twh__ledger     ledger = { 0, 0, 0, 0, 0 };
  async_kernel    kernel;
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  twh_error       error;
  twh_call        call;
  const twh_call *calls[2];
  (void)state;
  twh_error_init(&error);
  memset(&kernel, 0, sizeof kernel);
  gate_desc(&desc);
  desc.run = NULL;
  desc.submit = async_submit;
  desc.wait = async_wait;
  desc.user = &kernel;
  support_assert_status(twh_oracle_create(NULL, &desc, &oracle, &error), TWH_OK, &error, NULL);
  twh_call_init(&call);
  calls[0] = calls[1] = &call;
  assert_int_equal(twh__oracle_call(oracle, calls, 2, &ledger, NULL, NULL), TWH__BATCH_DONE);
  assert_int_equal(ledger.code, 0);
  assert_int_equal(kernel.submitted, 2);
  assert_int_equal(kernel.waited, 1);
  assert_true(kernel.ticket == 0xfeedface12345678u);
  kernel.wait_code = 9;
  assert_int_equal(twh__oracle_call(oracle, calls, 2, &ledger, NULL, NULL), TWH__BATCH_FAILED);
  assert_int_equal(ledger.code, 9);
  assert_int_equal(kernel.waited, 2);
  ledger.code = 0;
  kernel.submit_code = 8; /* has started nothing: there is nothing to wait for */
  assert_int_equal(twh__oracle_call(oracle, calls, 2, &ledger, NULL, NULL), TWH__BATCH_FAILED);
  assert_int_equal(ledger.code, 8);
  assert_int_equal(kernel.waited, 2);
  twh_oracle_destroy(oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(oracle_call_threads_never_exceed_the_limit),
    cmocka_unit_test(oracle_call_failure_stops_its_own_execute_only),
    cmocka_unit_test(oracle_call_after_a_failure_does_not_reach_the_kernel),
    cmocka_unit_test(oracle_call_without_run_submits_and_waits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
