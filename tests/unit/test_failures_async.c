/* A kernel that works behind the caller's back: submit starts a thread that reads its arguments only later, wait collects it.
 *
 * The delays are for the arguments' lifetime, which a sanitizer sees; nothing is measured. */
#include "support.h"

#include <time.h>

enum { ASYNC_TICKETS = 64 };

typedef struct async_ticket {
  pthread_t              thread;
  const twh_call *const *calls;
  int64_t                n;
  int32_t                code;
  int                    busy;
  struct async_kernel   *kernel;
} async_ticket;

typedef struct async_kernel {
  twh_oracle     *inner, *oracle;
  twh_oracle_desc desc;
  pthread_mutex_t lock;
  async_ticket    tickets[ASYNC_TICKETS];
  int64_t         submits, waits, runs, batches, delay_us;
  int64_t         fail_submit, fail_wait; /* number of the batch, or -1 */
} async_kernel;

static void *async_work(void *arg)
{
  async_ticket   *ticket = (async_ticket *)arg;
  struct timespec delay;
  delay.tv_sec = 0;
  delay.tv_nsec = (long)ticket->kernel->delay_us * 1000;
  if (delay.tv_nsec) nanosleep(&delay, NULL);
  ticket->code = ticket->kernel->desc.run(ticket->kernel->desc.user, ticket->calls, ticket->n);
  return NULL;
}

static int32_t async_submit(void *user, const twh_call *const *calls, int64_t n, uint64_t *number)
{
  async_kernel *kernel = (async_kernel *)user;
  async_ticket *ticket = NULL;
  int64_t       i, batch;
  pthread_mutex_lock(&kernel->lock);
  batch = kernel->batches++;
  if (batch == kernel->fail_submit) {
    pthread_mutex_unlock(&kernel->lock);
    return -5;
  }
  ++kernel->submits;
  for (i = 0; i < ASYNC_TICKETS && !ticket; ++i)
    if (!kernel->tickets[i].busy) ticket = &kernel->tickets[i];
  if (!ticket) abort();
  memset(ticket, 0, sizeof *ticket);
  ticket->busy = 1;
  ticket->calls = calls;
  ticket->n = n;
  ticket->kernel = kernel;
  *number = (uint64_t)(ticket - kernel->tickets) + 1000;
  pthread_mutex_unlock(&kernel->lock);
  if (pthread_create(&ticket->thread, NULL, async_work, ticket) != 0) abort();
  return 0;
}

static int32_t async_wait(void *user, uint64_t number)
{
  async_kernel *kernel = (async_kernel *)user;
  async_ticket *ticket;
  int32_t       code;
  if (number < 1000 || number >= 1000 + ASYNC_TICKETS) abort();
  ticket = &kernel->tickets[number - 1000];
  if (!ticket->busy) abort(); /* waited for twice, or never given */
  pthread_join(ticket->thread, NULL);
  pthread_mutex_lock(&kernel->lock);
  code = ticket->code;
  ticket->busy = 0;
  if (kernel->waits++ == kernel->fail_wait) code = -6;
  pthread_mutex_unlock(&kernel->lock);
  return code;
}

static int32_t async_run(void *user, const twh_call *const *calls, int64_t n)
{
  async_kernel *kernel = (async_kernel *)user;
  pthread_mutex_lock(&kernel->lock);
  ++kernel->runs;
  pthread_mutex_unlock(&kernel->lock);
  return kernel->desc.run(kernel->desc.user, calls, n);
}

static void async_create(async_kernel *kernel, const twh_oracle_desc *desc, int with_run)
{
  twh_oracle_desc outer = *desc;
  memset(kernel, 0, sizeof *kernel);
  kernel->fail_submit = kernel->fail_wait = -1;
  pthread_mutex_init(&kernel->lock, NULL);
  assert_int_equal(twh_reference_oracle_create(NULL, desc, NULL, &kernel->inner, NULL), TWH_OK);
  twh_oracle_desc_init(&kernel->desc);
  assert_int_equal(twh_oracle_get_desc(kernel->inner, &kernel->desc, NULL), TWH_OK);
  outer.run = with_run ? async_run : NULL;
  outer.submit = async_submit;
  outer.wait = async_wait;
  outer.user = kernel;
  assert_int_equal(twh_oracle_create(NULL, &outer, &kernel->oracle, NULL), TWH_OK);
}

static void async_destroy(async_kernel *kernel)
{
  int i;
  assert_int_equal(kernel->submits, kernel->waits); /* each ticket is waited for exactly once, on errors too */
  for (i = 0; i < ASYNC_TICKETS; ++i) assert_int_equal(kernel->tickets[i].busy, 0);
  twh_oracle_destroy(kernel->oracle);
  twh_oracle_destroy(kernel->inner);
  pthread_mutex_destroy(&kernel->lock);
}

static void async_problem(twh_problem *problem)
{
  twh_problem_init(problem);
  problem->batch = 1;
  problem->q_heads = problem->kv_heads = 2;
  problem->q_len = problem->k_len = 20;
  problem->qk_dim = problem->v_dim = 4;
}

static void async_fill(support_tensors *tensors, const twh_problem *problem)
{
  support_random random = support_random_at(support_seed(83), 0);
  support_fill   fill;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 40.0;
  support_tensors_create(tensors, problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(tensors, problem, &fill, &random);
}

static void case_C83_arguments_live_until_wait_returns_and_delays_change_nothing(void **state)
{
  static const int64_t delays[] = { 0, 100, 10000 };
  int64_t              i, d, threads, run, batch;
  (void)state;
  for (i = 0; i < support_kernel_count; i += 4)
    for (run = 0; run < 2; ++run)
      for (threads = 0; threads < 3; threads += 2)
        for (d = 0; d < (threads ? 3 : 2); ++d) {
          twh_problem      problem;
          twh_oracle_desc  desc;
          support_tensors  plain, late;
          support_memory   memory;
          twh_context     *context;
          async_kernel     kernel;
          twh_plan        *plan = NULL;
          twh_plan_options options;
          batch = d == 2 ? 2 : 3;
          async_problem(&problem);
          support_kernel_desc(&support_kernels[i], &problem, 8, 8, &desc);
          if (!support_must_run(&problem, &desc)) continue;
          async_fill(&plain, &problem);
          async_fill(&late, &problem);
          assert_int_equal(support_solve("C83", &problem, &desc, &plain, NULL, NULL), TWH_OK);
          desc.max_concurrent_batches = threads ? threads : 1;
          context = support_context(&memory, threads, threads);
          async_create(&kernel, &desc, (int)run);
          kernel.delay_us = delays[d];
          twh_plan_options_init(&options);
          options.max_calls_per_batch = batch;
          assert_int_equal(twh_plan_create(context, &problem, &kernel.oracle, 1, &options, &plan, NULL), TWH_OK);
          assert_int_equal(twh_plan_execute(plan, &late.all, NULL, NULL), TWH_OK);
          assert_true(kernel.submits > 1);
          assert_int_equal(kernel.runs, 0); /* it need not be waited for */
          assert_memory_equal(plain.out.data, late.out.data, plain.bytes[3]);
          assert_memory_equal(plain.lse.data, late.lse.data, plain.bytes[4]);
          twh_plan_destroy(plan);
          async_destroy(&kernel);
          twh_context_destroy(context);
          assert_int_equal(memory.live_blocks, 0);
          support_tensors_destroy(&plain);
          support_tensors_destroy(&late);
        }
}

static void case_C87_a_submit_or_wait_that_fails_ends_the_execute(void **state)
{
  int64_t at, threads;
  int     waits;
  (void)state;
  for (waits = 0; waits < 2; ++waits)
    for (threads = 0; threads < 3; threads += 2)
      for (at = 0; at < 5; ++at) {
        twh_problem      problem;
        twh_oracle_desc  desc;
        support_tensors  tensors;
        support_memory   memory;
        twh_context     *context = support_context(&memory, threads, threads);
        async_kernel     kernel;
        twh_plan        *plan = NULL;
        twh_plan_options options;
        twh_error        error;
        twh_error_init(&error);
        async_problem(&problem);
        support_kernel_desc(&support_kernels[0], &problem, 8, 8, &desc);
        desc.max_concurrent_batches = threads ? threads : 1;
        async_fill(&tensors, &problem);
        async_create(&kernel, &desc, 0);
        if (waits)
          kernel.fail_wait = at;
        else
          kernel.fail_submit = at;
        twh_plan_options_init(&options);
        options.max_calls_per_batch = 1;
        assert_int_equal(twh_plan_create(context, &problem, &kernel.oracle, 1, &options, &plan, NULL), TWH_OK);
        support_assert_status(twh_plan_execute(plan, &tensors.all, NULL, &error), TWH_E_ORACLE, &error, waits ? "-6" : "-5");
        assert_int_equal(error.oracle_code, waits ? -6 : -5);
        if (!threads) assert_int_equal(error.call, at);
        twh_plan_destroy(plan);
        async_destroy(&kernel);
        twh_context_destroy(context);
        assert_int_equal(memory.live_blocks, 0);
        support_tensors_destroy(&tensors);
      }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C83_arguments_live_until_wait_returns_and_delays_change_nothing),
    cmocka_unit_test(case_C87_a_submit_or_wait_that_fails_ends_the_execute),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
