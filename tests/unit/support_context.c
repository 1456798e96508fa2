/* Contexts for tests: an allocator that counts, fails on demand, poisons what it hands out and notices releases that do not
 * match, and a parallel_for on plain threads that hand out indices one at a time, so that no order can be relied on. */
#include "support.h"

typedef struct support_header { /* at the start of each block; its address stands right before what the caller gets */
  size_t  bytes;
  int64_t guard;
} support_header;

#define SUPPORT_GUARD 0x7477685f67756172

static void *support_allocate(void *user, size_t bytes, size_t alignment)
{
  support_memory *memory = (support_memory *)user;
  size_t          room = sizeof(support_header) + sizeof(void *) + alignment;
  char           *base = NULL, *at;
  support_header *header;
  int64_t         number;
  pthread_mutex_lock(&memory->lock);
  number = memory->allocations++;
  pthread_mutex_unlock(&memory->lock);
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) return NULL;
  if (number == memory->fail_at || bytes > SIZE_MAX - room) return NULL;
  base = (char *)malloc(bytes + room);
  if (!base) return NULL;
  at = base + sizeof(support_header) + sizeof(void *);
  at += (alignment - (uintptr_t)at % alignment) % alignment;
  memset(at, SUPPORT_POISON, bytes);
  header = (support_header *)(void *)base;
  memcpy(at - sizeof(void *), &base, sizeof base);
  header->bytes = bytes;
  header->guard = SUPPORT_GUARD;
  pthread_mutex_lock(&memory->lock);
  ++memory->live_blocks;
  memory->live_bytes += (int64_t)bytes;
  if (memory->live_bytes > memory->peak_bytes) memory->peak_bytes = memory->live_bytes;
  pthread_mutex_unlock(&memory->lock);
  return at;
}

static void support_release(void *user, void *block, size_t bytes)
{
  support_memory *memory = (support_memory *)user;
  support_header *header;
  char           *base;
  if (!block) return;
  memcpy(&base, (char *)block - sizeof(void *), sizeof base);
  header = (support_header *)(void *)base;
  pthread_mutex_lock(&memory->lock);
  if (header->guard != SUPPORT_GUARD || header->bytes != bytes) ++memory->wrong_releases;
  --memory->live_blocks;
  memory->live_bytes -= (int64_t)header->bytes;
  pthread_mutex_unlock(&memory->lock);
  header->guard = 0;
  free(base);
}

typedef struct support_job {
  pthread_mutex_t lock;
  int64_t         next, n;
  void (*task)(void *arg, int64_t i);
  void *arg;
} support_job;

static void *support_worker(void *arg)
{
  support_job *job = (support_job *)arg;
  for (;;) {
    int64_t i;
    pthread_mutex_lock(&job->lock);
    i = job->next < job->n ? job->next++ : -1;
    pthread_mutex_unlock(&job->lock);
    if (i < 0) return NULL;
    job->task(job->arg, i);
  }
}

static void support_parallel_for(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
  support_memory *memory = (support_memory *)user;
  pthread_t       threads[64];
  support_job     job;
  int64_t         i, started = 0, wanted = memory->threads < n ? memory->threads : n;
  if (wanted > SUPPORT_COUNT(threads)) wanted = SUPPORT_COUNT(threads);
  pthread_mutex_init(&job.lock, NULL);
  job.next = 0;
  job.n = n;
  job.task = task;
  job.arg = arg;
  for (i = 1; i < wanted; ++i)
    if (pthread_create(&threads[started], NULL, support_worker, &job) == 0) ++started;
  (void)support_worker(&job);
  for (i = 0; i < started; ++i) pthread_join(threads[i], NULL);
  pthread_mutex_destroy(&job.lock);
}

void support_context_desc(support_memory *memory, int64_t threads, int64_t parallelism, twh_context_desc *desc)
{
  memset(memory, 0, sizeof *memory);
  pthread_mutex_init(&memory->lock, NULL);
  memory->fail_at = -1;
  memory->threads = threads;
  twh_context_desc_init(desc);
  desc->allocate = support_allocate;
  desc->release = support_release;
  desc->parallel_for = threads > 0 ? support_parallel_for : NULL;
  desc->parallelism = parallelism;
  desc->user = memory;
}

twh_context *support_context(support_memory *memory, int64_t threads, int64_t parallelism)
{
  twh_context_desc desc;
  twh_context     *context = NULL;
  twh_error        error;
  twh_error_init(&error);
  support_context_desc(memory, threads, parallelism, &desc);
  support_assert_status(twh_context_create(&desc, &context, &error), TWH_OK, &error, NULL);
  return context;
}
