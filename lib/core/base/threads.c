/* Threads of a context's own, for hosts that give no parallel_for: they run one loop at a time.
 *
 * One mutex guards everything; a thread takes one index at a time under it. Tasks are long (a batch of kernel calls, a block to
 * encode), so that this costs nothing that could be measured, and there is nothing to get wrong. */
#include <pthread.h>

#include "core/base/base.h"

struct twh__threads {
  pthread_mutex_t lock;
  pthread_cond_t  work, done;
  void (*task)(void *arg, int64_t i);
  void     *arg;
  int64_t   n, next, running; /* of the loop: [next, n) is still to do, `running` are being done */
  int       busy, stop;
  int64_t   count; /* started ones */
  pthread_t ids[TWH__MOST_THREADS];
};

/* Take indices until none is left. Called and left with the lock held. */
static void threads_take(twh__threads *threads)
{
  while (threads->next < threads->n) {
    int64_t i = threads->next++;
    void (*task)(void *, int64_t) = threads->task;
    void *arg = threads->arg;
    ++threads->running;
    pthread_mutex_unlock(&threads->lock);
    task(arg, i);
    pthread_mutex_lock(&threads->lock);
    --threads->running;
  }
  if (threads->running == 0) pthread_cond_signal(&threads->done);
}

static void *threads_run(void *user)
{
  twh__threads *threads = (twh__threads *)user;

  pthread_mutex_lock(&threads->lock);
  while (!threads->stop) {
    if (threads->next < threads->n) {
      threads_take(threads);
    } else {
      pthread_cond_wait(&threads->work, &threads->lock);
    }
  }
  pthread_mutex_unlock(&threads->lock);
  return NULL;
}

static int threads_begin(twh__threads *threads)
{
  if (pthread_mutex_init(&threads->lock, NULL) != 0) return 0;
  if (pthread_cond_init(&threads->work, NULL) != 0) goto lock;
  if (pthread_cond_init(&threads->done, NULL) != 0) goto work;
  return 1;
work:
  pthread_cond_destroy(&threads->work);
lock:
  pthread_mutex_destroy(&threads->lock);
  return 0;
}

twh__threads *twh__threads_create(const twh_context *context, int64_t count, twh_error *error)
{
  twh__threads *threads = (twh__threads *)twh__allocate(context, sizeof *threads, 0, error);

  if (!threads) return NULL;
  if (!threads_begin(threads)) {
    twh__release(context, threads, sizeof *threads);
    (void)twh__fail(error, TWH_E_MEMORY, "the system has no room for another lock");
    return NULL;
  }
  for (; threads->count < count; ++threads->count) {
    if (pthread_create(&threads->ids[threads->count], NULL, threads_run, threads) != 0) {
      (void)twh__fail(error, TWH_E_MEMORY, "the system starts no thread");
      twh__threads_destroy(context, threads);
      return NULL;
    }
  }
  return threads;
}

void twh__threads_destroy(const twh_context *context, twh__threads *threads)
{
  if (!threads) return;
  pthread_mutex_lock(&threads->lock);
  threads->stop = 1;
  pthread_cond_broadcast(&threads->work);
  pthread_mutex_unlock(&threads->lock);
  for (int64_t i = 0; i < threads->count; ++i) pthread_join(threads->ids[i], NULL);
  pthread_cond_destroy(&threads->done);
  pthread_cond_destroy(&threads->work);
  pthread_mutex_destroy(&threads->lock);
  twh__release(context, threads, sizeof *threads);
}

void twh__threads_for(twh__threads *threads, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
  int mine;

  pthread_mutex_lock(&threads->lock);
  mine = !threads->busy;
  if (mine) {
    threads->busy = 1;
    threads->task = task;
    threads->arg = arg;
    threads->next = 0;
    threads->n = n;
    pthread_cond_broadcast(&threads->work);
    threads_take(threads);
    while (threads->running > 0) pthread_cond_wait(&threads->done, &threads->lock);
    threads->next = threads->n = 0;
    threads->busy = 0;
  }
  pthread_mutex_unlock(&threads->lock);
  for (int64_t i = 0; i < n && !mine; ++i) task(arg, i);
}
