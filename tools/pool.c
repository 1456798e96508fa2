/* A thread pool for one loop at a time: see pool.h.
 *
 * One mutex guards everything; a thread takes one index at a time under it. The library's tasks are long (a batch of kernel
 * calls, a block to encode), so that this costs nothing that could be measured, and there is nothing to get wrong. */
#include <pthread.h>
#include <stdlib.h>

#include "pool.h"

struct pool {
  pthread_mutex_t lock;
  pthread_cond_t  work, done;
  void (*task)(void *arg, int64_t i);
  void      *arg;
  int64_t    n, next, running; /* of the loop: [next, n) is still to do, `running` are being done */
  int        busy, stop;
  int64_t    threads; /* started ones */
  pthread_t *ids;
};

/* Take indices until none is left. Called and left with the lock held. */
static void pool_take(pool *workers)
{
  while (workers->next < workers->n) {
    int64_t i = workers->next++;
    void (*task)(void *, int64_t) = workers->task;
    void *arg = workers->arg;
    ++workers->running;
    pthread_mutex_unlock(&workers->lock);
    task(arg, i);
    pthread_mutex_lock(&workers->lock);
    --workers->running;
  }
  if (workers->running == 0) pthread_cond_signal(&workers->done);
}

static void *pool_thread(void *user)
{
  pool *workers = (pool *)user;

  pthread_mutex_lock(&workers->lock);
  while (!workers->stop) {
    if (workers->next < workers->n)
      pool_take(workers);
    else
      pthread_cond_wait(&workers->work, &workers->lock);
  }
  pthread_mutex_unlock(&workers->lock);
  return NULL;
}

pool *pool_create(int64_t threads)
{
  pool *workers = (pool *)calloc(1, sizeof *workers);

  if (!workers) return NULL;
  pthread_mutex_init(&workers->lock, NULL);
  pthread_cond_init(&workers->work, NULL);
  pthread_cond_init(&workers->done, NULL);
  workers->ids = (pthread_t *)calloc((size_t)threads, sizeof *workers->ids);
  if (!workers->ids) goto fail;
  while (workers->threads < threads - 1) {
    if (pthread_create(&workers->ids[workers->threads], NULL, pool_thread, workers)) goto fail;
    ++workers->threads;
  }
  return workers;

fail:
  pool_destroy(workers);
  return NULL;
}

void pool_destroy(pool *workers)
{
  if (!workers) return;
  pthread_mutex_lock(&workers->lock);
  workers->stop = 1;
  pthread_cond_broadcast(&workers->work);
  pthread_mutex_unlock(&workers->lock);
  for (int64_t i = 0; i < workers->threads; ++i) pthread_join(workers->ids[i], NULL);
  pthread_cond_destroy(&workers->done);
  pthread_cond_destroy(&workers->work);
  pthread_mutex_destroy(&workers->lock);
  free(workers->ids);
  free(workers);
}

void pool_parallel_for(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
  pool *workers = (pool *)user;
  int   mine = 0;

  if (workers) {
    pthread_mutex_lock(&workers->lock);
    mine = !workers->busy && n > 1;
  }
  if (mine) {
    workers->busy = 1;
    workers->task = task;
    workers->arg = arg;
    workers->next = 0;
    workers->n = n;
    pthread_cond_broadcast(&workers->work);
    pool_take(workers);
    while (workers->running > 0) pthread_cond_wait(&workers->done, &workers->lock);
    workers->next = workers->n = 0;
    workers->busy = 0;
  }
  if (workers) pthread_mutex_unlock(&workers->lock);
  if (!mine) {
    for (int64_t i = 0; i < n; ++i) task(arg, i);
  }
}
