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

/* One slot of a call that is being computed. */
typedef struct twh__cpu_work {
  const twh__cpu_kernel *kernel;
  const twh_call        *call;
  twh__cpu_scratch      *scratch;
  int64_t                slot;
  int64_t                first, rows, blocks; /* queries in memory, and their blocks */
  float                  factor, cap;         /* of packed q; 0 = scores are not capped */
} twh__cpu_work;

/* Compute slot `slot` of `call`. */
void twh__cpu_slot(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, twh__cpu_scratch *scratch);

/* Keys that row i of a call sees: a prefix, except for a mask operand. */
int64_t twh__cpu_keys_seen(const twh__cpu_kernel *kernel, const twh_call *call, int64_t i);

/* The same for a call of at most TWH__CPU_LONE_ROWS queries. */
void twh__cpu_lone_rows(const twh__cpu_work *work);

/* Keys and values of a tile in f32: k, v and their strides. */
void twh__cpu_operands(const twh__cpu_work *work, int64_t begin, int64_t keys, twh__cpu_tile *tile);

/* n rows of lse, from what their weights are relative to, in units of log2, and the sums of them. */
void twh__cpu_store_lse(uint32_t flags, const float *max, const float *sum, int64_t n, float *lse);

/* The mask operand's value for row i and key j. */
const void *twh__cpu_mask_at(const twh__cpu_work *work, int64_t i, int64_t j);

/* Compute one row again, in float64 and without reading what it does not see. */
void twh__cpu_repair(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, int64_t i, double *row);

#endif
