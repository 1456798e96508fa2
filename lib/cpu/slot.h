/* One slot of a call, an attention of q_len x k_len, or of several calls that continue one another. */
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

/* The most blocks of `width` queries that go through the keys together. */
int64_t twh__cpu_blocks(const twh_oracle_desc *desc, int64_t width);

/* One slot of a chain of calls that is being computed. */
typedef struct twh__cpu_work {
  const twh__cpu_kernel *kernel;
  const twh_call *const *calls; /* the chain: q, out and lse are those of the first */
  int64_t                n;
  int64_t                at;        /* the one whose keys are being walked */
  const twh_call        *call;      /* and that call */
  int                    continues; /* there is a state in memory from calls before the first */
  twh__cpu_scratch      *scratch;
  int64_t                slot;
  int64_t                first, rows, blocks; /* queries in memory, and their blocks */
  float                  factor, cap;         /* of packed q; 0 = scores are not capped */
} twh__cpu_work;

/* How many of n >= 1 calls, from the first on, are a chain: each continues the one before with all of its rows. */
int64_t twh__cpu_chain(const twh__cpu_kernel *kernel, const twh_call *const *calls, int64_t n);

/* Compute slot `slot` of a chain of n calls. */
void twh__cpu_slot(const twh__cpu_kernel *kernel, const twh_call *const *calls, int64_t n, int64_t slot,
                   twh__cpu_scratch *scratch);

/* Keys that row i of a call sees: a prefix, except for a mask operand. */
int64_t twh__cpu_keys_seen(const twh__cpu_kernel *kernel, const twh_call *call, int64_t i);

/* Whether row i sees a key in one of the first n calls of the chain. */
int twh__cpu_sees(const twh__cpu_work *work, int64_t n, int64_t i);

/* The same as twh__cpu_slot for at most TWH__CPU_LONE_ROWS queries. */
void twh__cpu_lone_rows(twh__cpu_work *work);

/* Keys and values of a tile in f32: k, v and their strides. */
void twh__cpu_operands(const twh__cpu_work *work, int64_t begin, int64_t keys, twh__cpu_tile *tile);

/* The mask operand's value for row i and key j. */
const void *twh__cpu_mask_at(const twh__cpu_work *work, int64_t i, int64_t j);

/* Queries of a block, from the returned one on, and how many they are. */
int64_t twh__cpu_block(const twh__cpu_work *work, int64_t block, int64_t *rows);

/* Bytes of a number. */
int64_t twh__cpu_element(int32_t dtype);

/* Where row i of the results stands. */
char  *twh__cpu_out_at(const twh__cpu_work *work, int64_t i);
float *twh__cpu_lse_at(const twh__cpu_work *work, int64_t i);

/* Of a row that calls before the chain have left: what its weights are relative to, in units of log2, and the sum of them,
 * which its numbers are to be multiplied by. 0: there is nothing. NaN: only twh__cpu_repair can go on from there. */
void twh__cpu_load_lse(const twh__cpu_work *work, int64_t i, float *max, float *sum);

/* n numbers of lse, from the same two. */
void twh__cpu_make_lse(uint32_t flags, const float *max, const float *sum, int64_t n, float *lse);

/* The packed state of a block before the first key, and its way to out and lse behind the last one. */
void twh__cpu_load(const twh__cpu_work *work, int64_t block);
void twh__cpu_store(const twh__cpu_work *work, int64_t block);

/* Compute one row again over all calls of the chain, and over what stands in memory if they continue, in float64 and without
 * reading what it does not see. row receives its v_dim numbers; returns its lse. */
float twh__cpu_repair(const twh__cpu_work *work, int64_t i, double *row);

#endif
