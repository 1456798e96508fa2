/* A small transformer of any weights: layers of heads with a residual stream, and nothing else. */
#ifndef TWH_BLIS_STACK_H
#define TWH_BLIS_STACK_H

#include "blis/slot.h"
#include "twoheads_blis.h"

/* What every call of one transformer has in common. */
typedef struct twh__blis_stack {
  twh_transformer_oracle_desc desc;
  twh__blis_kernel            attention; /* of all heads of one layer */
} twh__blis_stack;

/* stack->desc must be set to a description that twh_oracle_from_transformer accepts, all else must be zero. 0 when scratch
 * memory would not fit the address space, or the system has no room for another lock. */
int  twh__blis_stack_init(twh__blis_stack *stack);
/* A zero stack is allowed. */
void twh__blis_stack_finish(twh__blis_stack *stack);

/* twh_transformer_oracle_desc.run; user is the stack. Takes the weights of each call as they are. Returns 0; ENOMEM. */
int32_t twh__blis_stack_run(void *user, const twh_transformer_call *const *calls, int64_t n);

#endif
