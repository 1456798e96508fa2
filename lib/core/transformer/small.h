/* A small transformer as an oracle: which columns of its residual stream belong to which slot.
 *
 * selection.c writes the weights that make head (l, h) read and write slot l * heads + h's columns, small.c is the oracle whose calls
 * are calls of the transformer, and alone.c computes one slot in float64 where the transformer must not. */
#ifndef TWH_CORE_TRANSFORMER_SMALL_H
#define TWH_CORE_TRANSFORMER_SMALL_H

#include <pthread.h>

#include "core/base/base.h"

/* Slot s owns the columns s * width + q .. of x: queries, keys, values, output, in this order. */
typedef struct twh__columns {
  int64_t slots, width;
  int64_t q, k, v, out; /* the first column of each, within the slot's */
} twh__columns;

/* Calls of one batch that runs: what the kernel reads and writes, and which slots it must not see. */
typedef struct twh__small_batch {
  struct twh__small_batch     *next;     /* while nobody uses it */
  int64_t                      capacity; /* calls */
  size_t                       bytes;    /* of this, with everything that follows it */
  twh_transformer_call        *calls;
  const twh_transformer_call **pointers;
  unsigned char               *spoiled; /* (capacity, slots) */
  double                      *scores;  /* of one row */
  char                        *x, *out; /* (capacity, length, model_dim) */
} twh__small_batch;

typedef struct twh__small {
  const twh_context          *context;
  twh_transformer_oracle_desc desc;
  twh__columns                columns;
  twh_transformer_weights     weights;
  void                       *weight_memory;
  size_t                      weight_bytes;
  int64_t                     item, x_bytes; /* of an element; of x for one call */
  pthread_mutex_t             lock;          /* of the list */
  twh__small_batch           *idle;
} twh__small;

/* Fails with TWH_E_OVERFLOW if the weights do not fit memory, or TWH_E_MEMORY. */
twh_status twh__selection_make(twh__small *small, twh_error *error);

/* Compute one slot of a call: what the kernel would have, had it been alone in it. scores: room for `length` numbers. */
void twh__alone_compute(const twh__small *small, const twh_call *call, int64_t slot, double *scores);

#endif
