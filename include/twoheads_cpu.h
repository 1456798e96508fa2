/* twoheads-cpu: the attention kernel for hosts that have none, on the CPU, without any other library
 *
 * One function makes a twh_oracle (see twoheads.h) of any shape, with the capabilities that the caller asks for. A tile's
 * scores, their softmax and the product with the values stay in the cache of a core. Keys and values may be f32, bf16 or f16;
 * the arithmetic is f32.
 *
 *     twh_oracle_desc kernel; twh_oracle_desc_init(&kernel);
 *     kernel.slots = 1; kernel.q_len = kernel.k_len = 512; kernel.qk_dim = kernel.v_dim = 64;
 *     kernel.dtype = TWH_F32; kernel.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL; kernel.scale = 0.125;
 *     kernel.flags = TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES | TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS | TWH_ORACLE_FEWER_ROWS |
 *                    TWH_ORACLE_FEWER_KEYS;
 *     twh_oracle *oracle; twh_cpu_oracle_create(NULL, &kernel, NULL, &oracle, NULL);
 *
 * The instructions are chosen when an oracle is made, by what the CPU has. Different ones give results that differ by rounding;
 * the same ones give the same bits for the same call, whatever else runs.
 *
 * It can do all that these flags say, so declare them; they cost nothing.
 *
 * Calls that continue one another with the same rows, neighbours in a batch, are computed as one call with the keys of all of
 * them: what is in between is neither rounded nor stored, and the bits are not those of the same calls in several batches.
 *
 * Threads. A call runs on the thread that makes it; this library starts none. Use several cores through
 * twh_context_desc.parallel_for. */
#ifndef TWOHEADS_CPU_H
#define TWOHEADS_CPU_H

#include "twoheads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Instructions to compute with. */
enum {
  TWH_CPU_ISA_BEST = 0,     /* the fastest of those that this CPU has */
  TWH_CPU_ISA_PORTABLE = 1, /* what the compiler makes of plain C */
  TWH_CPU_ISA_AVX2 = 2,     /* AVX2, FMA and F16C */
  TWH_CPU_ISA_AVX512 = 3,   /* AVX512F */
  TWH_CPU_ISA_NEON = 4      /* of a 64-bit ARM */
};

typedef struct twh_cpu_options {
  uint32_t struct_size;
  uint32_t flags; /* 0 */
  int32_t  isa;   /* TWH_CPU_ISA_* */
} twh_cpu_options;

TWH_DEFINE_INIT(twh_cpu_options)

/* Create a kernel and register it.
 * context: NULL = defaults; must outlive the oracle.
 * desc: the shape and the capabilities wanted, copied; what it declares is what the kernel does. run, submit, wait, release
 *   and user are this library's and must be zero. dtype: TWH_F32, TWH_F16 or TWH_BF16. out_dtype: TWH_F32, or dtype.
 *   mask_dtype: TWH_BOOL, TWH_F32, TWH_F16 or TWH_BF16. All other fields and flags as twh_oracle_create takes them, except
 *   TWH_ORACLE_F16_SCORES. Defaults that differ: max_concurrent_batches 0 = 64 (the kernel has no limit of its own),
 *   max_calls_per_batch 0 = calls of some 2^16 pairs of query and key together, 1 to 16, and with TWH_ORACLE_CONTINUES always
 *   16, so that there is room for chains of calls; alignment 0 = the size of an element (so that the host's memory is used as
 *   it lies wherever possible). Each batch that runs at the same time takes scratch memory (q and out of some blocks of 48
 *   queries, up to 576 KiB, and 128 keys and values in f32 where dtype is another), which the oracle keeps for the next one.
 * options: NULL = defaults. out: receives the oracle; the caller destroys it, after every plan made with it. NULL on failure.
 * Hidden keys get weight exactly 0, and what is not a number in them harms no row that does not see them. A row that sees no
 * key gets out 0, and as lse -inf, or +inf where declared. Rows whose result overflows f32 on the way are computed again in
 * float64. The kernel's own error code is ENOMEM, when scratch memory cannot be allocated.
 * Returns: TWH_OK; TWH_E_UNSUPPORTED (a data type or flag this kernel does not have, or instructions that this CPU or this
 *   build does not have; the message names the field); all of twh_oracle_create. Threads: any. Since 0.1. */
TWH_API TWH_MUST_USE twh_status twh_cpu_oracle_create(const twh_context *context, const twh_oracle_desc *desc,
                                                      const twh_cpu_options *options, twh_oracle **out, twh_error *error);

/* The instructions that TWH_CPU_ISA_BEST stands for on this CPU: one of the other TWH_CPU_ISA_*. Threads: any. Since 0.1. */
TWH_API int32_t twh_cpu_isa_best(void);

/* "portable", "avx2", "avx512", "neon"; for TWH_CPU_ISA_BEST that of the best; NULL for one that this CPU or this build does
 * not have, or that there is not. The string is static. Threads: any. Since 0.1. */
TWH_API const char *twh_cpu_isa_name(int32_t isa);

#ifdef __cplusplus
}
#endif
#endif
