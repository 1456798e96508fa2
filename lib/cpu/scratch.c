/* A pool that grows to the number of batches that ever ran at the same time, and shrinks only when the oracle goes.
 *
 * Taking a block from a locked list costs nanoseconds where a tile costs microseconds; thread-local storage would outlive
 * the oracle, and allocating for every batch would touch fresh pages every time. */
#include "cpu/scratch.h"

#include "cpu/lanes.h"

#include <stdlib.h>

/* Reserve rows x columns elements, 64-byte aligned; returns their offset. *ok becomes 0 on overflow. */
static size_t cpu_scratch_reserve(size_t *bytes, int64_t rows, int64_t columns, size_t element, int *ok)
{
  const size_t most = (size_t)PTRDIFF_MAX / 4, at = *bytes;
  const size_t n = (size_t)rows, width = (size_t)columns * element;
  if ((uint64_t)columns > most / element || (width != 0 && n > most / width) || n * width + 64 > most - at)
    *ok = 0;
  else
    *bytes = at + (n * width + 63) / 64 * 64;
  return at;
}

int twh__cpu_scratches_init(twh__cpu_scratches *pool, int64_t blocks, int64_t qk_dim, int64_t v_dim, int copies)
{
  int ok = qk_dim < INT64_MAX / TWH__CPU_WIDTH - 16 && v_dim < INT64_MAX / TWH__CPU_WIDTH - 16;
  if (!ok) return 0;
  pool->bytes = (sizeof(twh__cpu_scratch) + 63) / 64 * 64;
  pool->q = cpu_scratch_reserve(&pool->bytes, blocks, (qk_dim + 16) * TWH__CPU_WIDTH, sizeof(float), &ok);
  pool->out = cpu_scratch_reserve(&pool->bytes, blocks, (v_dim + 16) * TWH__CPU_WIDTH, sizeof(float), &ok);
  pool->max = cpu_scratch_reserve(&pool->bytes, blocks, TWH__CPU_WIDTH, sizeof(float), &ok);
  pool->sum = cpu_scratch_reserve(&pool->bytes, blocks, TWH__CPU_WIDTH, sizeof(float), &ok);
  pool->scores = cpu_scratch_reserve(&pool->bytes, TWH__CPU_KEYS + TWH__CPU_SPARE_KEYS, TWH__CPU_WIDTH, sizeof(float), &ok);
  pool->top = cpu_scratch_reserve(&pool->bytes, 1, TWH__CPU_WIDTH, sizeof(float), &ok);
  pool->decay = cpu_scratch_reserve(&pool->bytes, 1, TWH__CPU_WIDTH, sizeof(float), &ok);
  pool->k = copies ? cpu_scratch_reserve(&pool->bytes, TWH__CPU_KEYS, qk_dim, sizeof(float), &ok) : 0;
  pool->v = copies ? cpu_scratch_reserve(&pool->bytes, TWH__CPU_KEYS, v_dim, sizeof(float), &ok) : 0;
  pool->row = cpu_scratch_reserve(&pool->bytes, 1, v_dim, sizeof(double), &ok);
  ok = ok && pthread_mutex_init(&pool->lock, NULL) == 0;
  if (!ok) pool->bytes = 0;
  return ok;
}

void twh__cpu_scratches_finish(twh__cpu_scratches *pool)
{
  if (pool->bytes == 0) return;
  while (pool->idle != NULL) {
    twh__cpu_scratch *next = pool->idle->next;
    free(pool->idle);
    pool->idle = next;
  }
  pthread_mutex_destroy(&pool->lock);
}

twh__cpu_scratch *twh__cpu_scratch_take(twh__cpu_scratches *pool)
{
  twh__cpu_scratch *scratch;
  void             *memory = NULL;
  char             *base;
  pthread_mutex_lock(&pool->lock);
  scratch = pool->idle;
  if (scratch != NULL) pool->idle = scratch->next;
  pthread_mutex_unlock(&pool->lock);
  if (scratch != NULL) return scratch;

  if (posix_memalign(&memory, 64, pool->bytes) != 0) return NULL;
  base = (char *)memory;
  scratch = (twh__cpu_scratch *)memory;
  scratch->q = (float *)(void *)(base + pool->q);
  scratch->out = (float *)(void *)(base + pool->out);
  scratch->max = (float *)(void *)(base + pool->max);
  scratch->sum = (float *)(void *)(base + pool->sum);
  scratch->scores = (float *)(void *)(base + pool->scores);
  scratch->top = (float *)(void *)(base + pool->top);
  scratch->decay = (float *)(void *)(base + pool->decay);
  scratch->k = pool->k == 0 ? NULL : (float *)(void *)(base + pool->k);
  scratch->v = pool->v == 0 ? NULL : (float *)(void *)(base + pool->v);
  scratch->row = (double *)(void *)(base + pool->row);
  return scratch;
}

void twh__cpu_scratch_give(twh__cpu_scratches *pool, twh__cpu_scratch *scratch)
{
  pthread_mutex_lock(&pool->lock);
  scratch->next = pool->idle;
  pool->idle = scratch;
  pthread_mutex_unlock(&pool->lock);
}
