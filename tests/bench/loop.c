/* The hand-written loop: see loop.h.
 *
 * For each block of m rows, one call for each block of keys that it sees, each merged into the result by its log-sum-exp at
 * once. Threads take one block of rows after another, the longest first. No copies, nothing general. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/bench/loop.h"

enum { LOOP_THREADS = 64 };

typedef struct loop_work {
  twh_oracle_desc kernel;
  const float    *q, *k, *v;
  float          *out;
  int64_t         heads, n, dim, m;
  int             causal, failed;
  int64_t         next; /* block of rows, over all heads */
  pthread_mutex_t lock;
} loop_work;

/* Merge a block's result into what there is, row by row. */
static void loop_merge(const loop_work *work, float *out, float *lse, const float *part, const float *part_lse)
{
  for (int64_t row = 0; row < work->m; ++row) {
    const float  most = fmaxf(lse[row], part_lse[row]), a = expf(lse[row] - most), b = expf(part_lse[row] - most);
    const float  keep = a / (a + b), add = b / (a + b);
    float       *to = out + row * work->dim;
    const float *from = part + row * work->dim;

    for (int64_t c = 0; c < work->dim; ++c) to[c] = keep * to[c] + add * from[c];
    lse[row] = most + logf(a + b);
  }
}

/* All keys of one block of rows. part: m rows and twice m sums. */
static int loop_rows(const loop_work *work, int64_t head, int64_t block, float *part)
{
  const int64_t   base = head * work->n * work->dim, size = work->m * work->dim;
  const int64_t   last = work->causal ? block : work->n / work->m - 1;
  float          *out = work->out + base + block * size, *lse = part + size, *part_lse = lse + work->m;
  twh_call        call;
  const twh_call *calls = &call;

  twh_call_init(&call);
  call.slots = 1;
  call.q_len = call.k_len = work->m;
  call.q.row_stride = call.k.row_stride = call.v.row_stride = call.out_row_stride = work->dim;
  call.scale = work->kernel.scale;
  call.q.data = work->q + base + block * size;
  for (int64_t at = 0; at <= last; ++at) {
    call.mask_mode = work->causal && at == block ? TWH_MASK_CAUSAL : TWH_MASK_NONE;
    call.k.data = work->k + base + at * size;
    call.v.data = work->v + base + at * size;
    call.out = at == 0 ? out : part;
    call.lse = at == 0 ? lse : part_lse;
    if (work->kernel.run(work->kernel.user, &calls, 1) != 0) return 1;
    if (at > 0) loop_merge(work, out, lse, part, part_lse);
  }
  return 0;
}

static void *loop_thread(void *user)
{
  loop_work    *work = (loop_work *)user;
  const int64_t blocks = work->n / work->m;
  float        *part = (float *)aligned_alloc(64, ((size_t)(work->m * (work->dim + 2)) * sizeof *part + 63) / 64 * 64);
  int           failed = part == NULL;

  while (!failed) {
    int64_t i;

    pthread_mutex_lock(&work->lock);
    i = work->next++;
    pthread_mutex_unlock(&work->lock);
    if (i >= work->heads * blocks) break;
    failed = loop_rows(work, i % work->heads, blocks - 1 - i / work->heads, part);
  }
  free(part);
  if (failed) {
    pthread_mutex_lock(&work->lock);
    work->failed = 1;
    pthread_mutex_unlock(&work->lock);
  }
  return NULL;
}

int loop_attention(const twh_oracle *oracle, const float *q, const float *k, const float *v, float *out, int64_t heads,
                   int64_t n, int64_t dim, int64_t m, int causal, int threads)
{
  pthread_t ids[LOOP_THREADS];
  loop_work work;
  int       started = 0;

  twh_oracle_desc_init(&work.kernel);
  if (twh_oracle_get_desc(oracle, &work.kernel, NULL) < 0 || n % m != 0) return 1;
  work.q = q;
  work.k = k;
  work.v = v;
  work.out = out;
  work.heads = heads;
  work.n = n;
  work.dim = dim;
  work.m = m;
  work.causal = causal;
  work.failed = 0;
  work.next = 0;
  pthread_mutex_init(&work.lock, NULL);
  while (started < threads - 1 && started < LOOP_THREADS && pthread_create(&ids[started], NULL, loop_thread, &work) == 0)
    ++started;
  loop_thread(&work);
  while (started > 0) pthread_join(ids[--started], NULL);
  pthread_mutex_destroy(&work.lock);
  return work.failed;
}
