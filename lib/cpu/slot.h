/* One slot of a call: an attention of q_len x k_len. */
#ifndef TWH_CPU_SLOT_H
#define TWH_CPU_SLOT_H

#include "cpu/lanes.h"
#include "cpu/scratch.h"
#include "twoheads_cpu.h"

/* What every call of one oracle has in common. */
typedef struct twh__cpu_kernel {
  twh_oracle_desc       desc; /* with defaults filled in */
  int32_t               isa;  /* TWH_CPU_ISA_*, never BEST */
  const twh__cpu_lanes *lanes;
  int64_t               blocks; /* most blocks of queries that are in memory at the same time */
  twh__cpu_scratches    scratches;
} twh__cpu_kernel;

/* Blocks of `width` queries that go through the keys together. */
int64_t twh__cpu_blocks(const twh_oracle_desc *desc, int64_t width);

/* Compute slot `slot` of `call`. */
void twh__cpu_slot(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, twh__cpu_scratch *scratch);

/* Keys that row i of a call sees: a prefix, except for a mask operand. */
int64_t twh__cpu_keys_seen(const twh__cpu_kernel *kernel, const twh_call *call, int64_t i);

/* Add a mask operand to the scores of a tile, or hide with it: those of the rows first .. and the keys begin .. */
void twh__cpu_mask(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, int64_t first, int64_t rows,
                   int64_t begin, const twh__cpu_tile *tile);

/* Compute one row again, in float64 and without reading what it does not see. */
void twh__cpu_repair(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, int64_t i, double *row);

#endif
