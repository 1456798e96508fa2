/* See support_queue.h. */
#include "support_queue.h"

#include <time.h>

/* The lock is held. */
static void queue_begin(queue_kernel *kernel, const twh_call *const *calls, int64_t n)
{
  if (kernel->over) ++kernel->late;
  if (kernel->planned > 0 && calls[0]->index >= kernel->planned && kernel->running > 0) ++kernel->beside;
  kernel->calls += n;
  if (++kernel->running > kernel->most) kernel->most = kernel->running;
  if (kernel->running > kernel->limit) {
    print_error("%lld batches at a time, %lld declared\n", (long long)kernel->running, (long long)kernel->limit);
    abort();
  }
}

/* The gate is for tests that want two things to happen at the same time: they fail when it does not open. */
static void queue_pass(queue_kernel *kernel, int64_t number)
{
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 20;
  while (number == 0 && kernel->gate > 0 && !kernel->opened && kernel->begun < kernel->gate && !kernel->quit)
    if (pthread_cond_timedwait(&kernel->changed, &kernel->lock, &until) != 0) {
      kernel->waited = 1;
      return;
    }
}

static int32_t queue_compute(queue_kernel *kernel, const twh_call *const *calls, int64_t n, int64_t number)
{
  int32_t code = kernel->desc.run(kernel->desc.user, calls, n);
  if (number == kernel->fail_at && !kernel->fail_submit) code = QUEUE_CODE;
  return code;
}

static void *queue_thread(void *arg)
{
  queue_kernel *kernel = (queue_kernel *)arg;
  pthread_mutex_lock(&kernel->lock);
  while (!kernel->quit) {
    queue_batch *batch = &kernel->batches[kernel->computed % QUEUE_TICKETS];
    int64_t      number = kernel->computed;
    if (number == kernel->begun) {
      pthread_cond_wait(&kernel->changed, &kernel->lock);
      continue;
    }
    queue_pass(kernel, number);
    pthread_mutex_unlock(&kernel->lock);
    batch->code = queue_compute(kernel, batch->calls, batch->n, number);
    pthread_mutex_lock(&kernel->lock);
    batch->done = 1;
    ++kernel->computed;
    pthread_cond_broadcast(&kernel->changed);
  }
  pthread_mutex_unlock(&kernel->lock);
  return NULL;
}

static int32_t queue_submit(void *user, const twh_call *const *calls, int64_t n, uint64_t *ticket)
{
  queue_kernel *kernel = (queue_kernel *)user;
  queue_batch  *batch;
  int32_t       code = 0;
  pthread_mutex_lock(&kernel->lock);
  if (kernel->fail_submit && kernel->submits == kernel->fail_at) {
    ++kernel->failed;
    kernel->over = 1;
    code = QUEUE_CODE;
  } else {
    batch = &kernel->batches[kernel->begun % QUEUE_TICKETS];
    if (batch->used) abort();
    queue_begin(kernel, calls, n);
    ++kernel->submits;
    batch->calls = calls;
    batch->n = n;
    batch->used = 1;
    batch->done = 0;
    *ticket = (uint64_t)kernel->begun++ + 1000;
    pthread_cond_broadcast(&kernel->changed);
  }
  pthread_mutex_unlock(&kernel->lock);
  return code;
}

static int32_t queue_wait(void *user, uint64_t ticket)
{
  queue_kernel *kernel = (queue_kernel *)user;
  queue_batch  *batch = &kernel->batches[(ticket - 1000) % QUEUE_TICKETS];
  int32_t       code;
  pthread_mutex_lock(&kernel->lock);
  if (ticket < 1000 || (int64_t)ticket - 1000 >= kernel->begun || !batch->used) abort(); /* not ours, or waited for before */
  while (!batch->done) pthread_cond_wait(&kernel->changed, &kernel->lock);
  batch->used = 0;
  code = batch->code;
  if (code != 0) {
    ++kernel->failed;
    kernel->over = 1;
  }
  --kernel->running;
  ++kernel->waits;
  pthread_mutex_unlock(&kernel->lock);
  return code;
}

static int32_t queue_run(void *user, const twh_call *const *calls, int64_t n)
{
  queue_kernel *kernel = (queue_kernel *)user;
  int64_t       number;
  int32_t       code;
  pthread_mutex_lock(&kernel->lock);
  queue_begin(kernel, calls, n);
  number = kernel->begun++;
  ++kernel->runs;
  pthread_cond_broadcast(&kernel->changed);
  queue_pass(kernel, number);
  pthread_mutex_unlock(&kernel->lock);
  code = queue_compute(kernel, calls, n, number);
  pthread_mutex_lock(&kernel->lock);
  if (code != 0) ++kernel->failed;
  --kernel->running;
  pthread_mutex_unlock(&kernel->lock);
  return code;
}

void queue_create(queue_kernel *kernel, const twh_oracle_desc *desc, int mode)
{
  twh_oracle_desc outer = *desc;
  memset(kernel, 0, sizeof *kernel);
  kernel->fail_at = -1;
  kernel->limit = desc->max_concurrent_batches > 0 ? desc->max_concurrent_batches : 1;
  pthread_mutex_init(&kernel->lock, NULL);
  pthread_cond_init(&kernel->changed, NULL);
  assert_int_equal(twh_reference_oracle_create(NULL, desc, NULL, &kernel->inner, NULL), TWH_OK);
  twh_oracle_desc_init(&kernel->desc);
  assert_int_equal(twh_oracle_get_desc(kernel->inner, &kernel->desc, NULL), TWH_OK);
  if (mode != QUEUE_SUBMIT) outer.run = queue_run;
  if (mode != QUEUE_RUN) {
    outer.submit = queue_submit;
    outer.wait = queue_wait;
  }
  outer.user = kernel;
  assert_int_equal(twh_oracle_create(NULL, &outer, &kernel->oracle, NULL), TWH_OK);
  assert_int_equal(pthread_create(&kernel->thread, NULL, queue_thread, kernel), 0);
}

void queue_destroy(queue_kernel *kernel)
{
  pthread_mutex_lock(&kernel->lock);
  assert_int_equal(kernel->running, 0);
  assert_int_equal(kernel->submits, kernel->waits);
  kernel->quit = 1;
  pthread_cond_broadcast(&kernel->changed);
  pthread_mutex_unlock(&kernel->lock);
  pthread_join(kernel->thread, NULL);
  twh_oracle_destroy(kernel->oracle);
  twh_oracle_destroy(kernel->inner);
  pthread_cond_destroy(&kernel->changed);
  pthread_mutex_destroy(&kernel->lock);
}

void queue_open(queue_kernel *kernel)
{
  pthread_mutex_lock(&kernel->lock);
  kernel->opened = 1;
  pthread_cond_broadcast(&kernel->changed);
  pthread_mutex_unlock(&kernel->lock);
}

int64_t queue_running(queue_kernel *kernel)
{
  int64_t running;
  pthread_mutex_lock(&kernel->lock);
  running = kernel->running;
  pthread_mutex_unlock(&kernel->lock);
  return running;
}
