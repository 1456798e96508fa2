/* A pool that grows to the number of batches that ever ran at the same time, and shrinks only when the oracle goes.
 *
 * Taking a block from a locked list costs nanoseconds where a tile costs microseconds; thread-local storage would outlive
 * the oracle, and allocating for every batch would touch fresh pages every time. */
#include "blis/scratch.h"

#include "blis/rows.h"

#include <stdlib.h>

/* Reserve rows x columns elements, 64-byte aligned; returns their offset. *ok becomes 0 on overflow. */
static size_t scratch_reserve(size_t *bytes, int64_t rows, int64_t columns, size_t element, int *ok)
{
  const size_t most = (size_t)PTRDIFF_MAX / 4, at = *bytes;
  const size_t n = (size_t)rows, width = (size_t)columns * element;
  if ((uint64_t)columns > most / element || (width != 0 && n > most / width) || n * width + 64 > most - at) *ok = 0;
  else *bytes = at + (n * width + 63) / 64 * 64;
  return at;
}

int twh__blis_scratches_init(twh__blis_scratches *pool, int64_t block_rows, int64_t k_len, int64_t qk_dim, int64_t v_dim,
                             int copies, int64_t layer_width)
{
  int ok = k_len <= INT64_MAX - TWH__BLIS_ROW;
  if (!ok) return 0;
  pool->bytes = (sizeof(twh__blis_scratch) + 63) / 64 * 64;
  pool->scores = scratch_reserve(&pool->bytes, block_rows, (k_len + TWH__BLIS_ROW - 1) / TWH__BLIS_ROW * TWH__BLIS_ROW,
                                 sizeof(float), &ok);
  pool->out = scratch_reserve(&pool->bytes, block_rows, v_dim, sizeof(float), &ok);
  pool->sum = scratch_reserve(&pool->bytes, block_rows, 1, sizeof(double), &ok);
  pool->max = scratch_reserve(&pool->bytes, block_rows, 1, sizeof(float), &ok);
  pool->q = copies ? scratch_reserve(&pool->bytes, block_rows, qk_dim, sizeof(float), &ok) : 0;
  pool->k = copies ? scratch_reserve(&pool->bytes, k_len, qk_dim, sizeof(float), &ok) : 0;
  pool->v = copies ? scratch_reserve(&pool->bytes, k_len, v_dim, sizeof(float), &ok) : 0;
  pool->layer = layer_width > 0 ? scratch_reserve(&pool->bytes, k_len, layer_width, sizeof(float), &ok) : 0;
  ok = ok && pthread_mutex_init(&pool->lock, NULL) == 0;
  if (!ok) pool->bytes = 0;
  return ok;
}

void twh__blis_scratches_finish(twh__blis_scratches *pool)
{
  if (pool->bytes == 0) return;
  while (pool->idle != NULL) {
    twh__blis_scratch *next = pool->idle->next;
    free(pool->idle);
    pool->idle = next;
  }
  pthread_mutex_destroy(&pool->lock);
}

twh__blis_scratch *twh__blis_scratch_take(twh__blis_scratches *pool)
{
  twh__blis_scratch *scratch;
  void              *memory = NULL;
  char              *base;
  pthread_mutex_lock(&pool->lock);
  scratch = pool->idle;
  if (scratch != NULL) pool->idle = scratch->next;
  pthread_mutex_unlock(&pool->lock);
  if (scratch != NULL) return scratch;

  if (posix_memalign(&memory, 64, pool->bytes) != 0) return NULL;
  base = (char *)memory;
  scratch = (twh__blis_scratch *)memory;
  scratch->scores = (float *)(void *)(base + pool->scores);
  scratch->out = (float *)(void *)(base + pool->out);
  scratch->sum = (double *)(void *)(base + pool->sum);
  scratch->max = (float *)(void *)(base + pool->max);
  scratch->q = pool->q == 0 ? NULL : (float *)(void *)(base + pool->q);
  scratch->k = pool->k == 0 ? NULL : (float *)(void *)(base + pool->k);
  scratch->v = pool->v == 0 ? NULL : (float *)(void *)(base + pool->v);
  scratch->layer = pool->layer == 0 ? NULL : (float *)(void *)(base + pool->layer);
  return scratch;
}

void twh__blis_scratch_give(twh__blis_scratches *pool, twh__blis_scratch *scratch)
{
  pthread_mutex_lock(&pool->lock);
  scratch->next = pool->idle;
  pool->idle = scratch;
  pthread_mutex_unlock(&pool->lock);
}
