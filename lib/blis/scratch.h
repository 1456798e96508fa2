/* Scratch memory of running batches: one block for each batch that runs at the same time, kept for the next one. */
#ifndef TWH_BLIS_SCRATCH_H
#define TWH_BLIS_SCRATCH_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Buffers of one batch, 64-byte aligned. q, k, v are NULL when the operands are never copied. */
typedef struct twh__blis_scratch {
  struct twh__blis_scratch *next;
  float                    *scores;  /* (block_rows, k_len rounded up to TWH__BLIS_ROW) */
  float                    *out;     /* (block_rows, v_dim) */
  float                    *q, *k, *v;
  float                    *layer;   /* (k_len, layer_width); NULL where that is 0 */
  double                   *sum;     /* (block_rows); of each row: the sum of its weights, and the score they are relative to */
  float                    *max;     /* (block_rows) */
} twh__blis_scratch;

typedef struct twh__blis_scratches {
  pthread_mutex_t    lock;
  twh__blis_scratch *idle;
  size_t             bytes;                                 /* of one block; 0 = the pool is not in use */
  size_t             scores, out, sum, max, q, k, v, layer; /* offsets in it; of the last four 0 = absent */
} twh__blis_scratches;

/* The pool must be zero. copies: also make room for dense q, k and v. layer_width: and for so many numbers for
 * each row of a transformer's layer. 0 when the sizes overflow. */
int  twh__blis_scratches_init(twh__blis_scratches *pool, int64_t block_rows, int64_t k_len, int64_t qk_dim, int64_t v_dim,
                              int copies, int64_t layer_width);
/* A zero pool is allowed. */
void twh__blis_scratches_finish(twh__blis_scratches *pool);

/* NULL when memory ran out. */
twh__blis_scratch *twh__blis_scratch_take(twh__blis_scratches *pool);
void               twh__blis_scratch_give(twh__blis_scratches *pool, twh__blis_scratch *scratch);

#endif
