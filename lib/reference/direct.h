/* The attention of one slot in float64. */
#ifndef TWH_REFERENCE_DIRECT_H
#define TWH_REFERENCE_DIRECT_H

#include "twoheads.h"

typedef struct twh__reference_kernel {
  twh_oracle_desc desc; /* with defaults filled in */
  int32_t         round_weights;
} twh__reference_kernel;

/* Doubles of scratch memory that a call needs; -1 on overflow. */
int64_t twh__reference_scratch(const twh_oracle_desc *desc, const twh_call *call);

void twh__reference_slot(const twh__reference_kernel *kernel, const twh_call *call, int64_t slot, double *scratch);

#endif
