/* Scratch memory of running batches: one block for each batch that runs at the same time, kept for the next one. */
#ifndef TWH_CPU_SCRATCH_H
#define TWH_CPU_SCRATCH_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Buffers of one batch, 64-byte aligned; see lanes.h. Those of `blocks` blocks lie one behind the other. */
typedef struct twh__cpu_scratch {
  struct twh__cpu_scratch *next;
  float                   *q, *out;     /* (blocks, qk_dim, width), (blocks, v_dim, width) */
  float                   *max, *sum;   /* (blocks, width) */
  float                   *scores;      /* of one block and tile */
  float                   *top, *decay; /* (width) */
  float                   *k, *v;       /* a tile as f32; NULL where keys and values are f32 already */
  double                  *row;         /* (v_dim) */
} twh__cpu_scratch;

typedef struct twh__cpu_scratches {
  pthread_mutex_t   lock;
  twh__cpu_scratch *idle;
  size_t            bytes;                                           /* of one block; 0 = the pool is not in use */
  size_t            q, out, max, sum, scores, top, decay, k, v, row; /* offsets in it; of k and v 0 = absent */
} twh__cpu_scratches;

/* The pool must be zero. copies: keys and values are to be converted. 0 when the sizes overflow. */
int  twh__cpu_scratches_init(twh__cpu_scratches *pool, int64_t blocks, int64_t qk_dim, int64_t v_dim, int copies);
/* A zero pool is allowed. */
void twh__cpu_scratches_finish(twh__cpu_scratches *pool);

/* NULL when memory ran out. */
twh__cpu_scratch *twh__cpu_scratch_take(twh__cpu_scratches *pool);
void              twh__cpu_scratch_give(twh__cpu_scratches *pool, twh__cpu_scratch *scratch);

#endif
