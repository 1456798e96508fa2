/* One slot of a call: an attention of q_len x k_len. */
#ifndef TWH_BLIS_SLOT_H
#define TWH_BLIS_SLOT_H

#include "blis/rows.h"
#include "blis/scratch.h"
#include "twoheads_blis.h"

/* What every call of one oracle has in common. */
typedef struct twh__blis_kernel {
  twh_oracle_desc       desc;       /* with defaults filled in */
  const void           *contexts;   /* twh__blis_kernels */
  const twh__blis_rows *rows;
  int64_t               block_rows; /* most query rows whose scores are in memory at the same time */
  twh__blis_scratches   scratches;
} twh__blis_kernel;

/* Query rows per block for a kernel of k_len keys. */
int64_t twh__blis_block_rows(int64_t q_len, int64_t k_len);

/* Compute slot `slot` of `call`. */
void twh__blis_slot(const twh__blis_kernel *kernel, const twh_call *call, int64_t slot, twh__blis_scratch *scratch);

#endif
