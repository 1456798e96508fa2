/* twoheads-blis: the attention kernel for hosts that have none, on the CPU, by BLIS
 *
 * One function makes a twh_oracle (see twoheads.h) of any fixed length, with the capabilities that the caller asks for: a
 * tile is a matrix product for the scores, a vectorised softmax, and a matrix product for the values, in f32.
 *
 *     twh_oracle_desc kernel; twh_oracle_desc_init(&kernel);
 *     kernel.slots = 1; kernel.q_len = kernel.k_len = 512; kernel.qk_dim = kernel.v_dim = 64;
 *     kernel.dtype = TWH_F32; kernel.flags = TWH_ORACLE_LSE; kernel.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
 *     kernel.scale = 0.125;
 *     twh_oracle *oracle; twh_blis_oracle_create(NULL, &kernel, NULL, &oracle, NULL);
 *
 * Speed. BLIS picks its kernels once per process, by CPU. A BLIS that is older than the CPU may not know it and then runs
 * plain C kernels, called "generic", which are three to five times slower. BLIS 0.9.0 (Debian 12) does so on AMD Zen 5 and
 * on every x86 that is neither Intel nor AMD.
 * - Linked with the archive libblis.a this library notices and uses the right kernels itself, for its own calls only.
 * - Linked with libblis.so it cannot. The cure is the environment variable BLIS_ARCH_TYPE, which BLIS reads in its first
 *   call, so the host decides, at the start of main, before it makes threads and before anything calls BLIS:
 *       const char *arch = twh_blis_recommended_arch();
 *       if (arch != NULL) setenv("BLIS_ARCH_TYPE", arch, 0);
 *   This library never changes the environment. It warns through twh_blis_options.log, and twh_blis_kernel_name says what
 *   is in use. BLIS_ARCH_TYPE, when set, is always obeyed.
 *
 * Threads. A call runs on the thread that makes it; BLIS starts none of its own, whatever it was built with and whatever
 * BLIS_NUM_THREADS says. Use several cores through twh_context_desc.parallel_for.
 * BLIS itself ends the process when it cannot allocate its packing buffers (a few MiB in each thread). */
#ifndef TWOHEADS_BLIS_H
#define TWOHEADS_BLIS_H

#include "twoheads.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct twh_blis_options {
  uint32_t struct_size;
  uint32_t flags;                                             /* 0 */
  void   (*log)(void *user, int32_t level, const char *text); /* as in twh_context_desc, during create only; may be NULL */
  void    *user;                                              /* handed to log */
} twh_blis_options;

TWH_DEFINE_INIT(twh_blis_options)

/* Create a kernel on BLIS and register it.
 * context: NULL = defaults; must outlive the oracle.
 * desc: the shape and the capabilities wanted, copied; what it declares is what the kernel does. run, submit, wait, release
 *   and user are this library's and must be zero. dtype and out_dtype: TWH_F32. mask_dtype: TWH_BOOL or TWH_F32. All other
 *   fields and flags as twh_oracle_create takes them, except TWH_ORACLE_F16_SCORES. Defaults that differ:
 *   max_concurrent_batches 0 = 64 (the kernel has no limit of its own), max_calls_per_batch 0 = 4, alignment 0 = 4 (so that
 *   the host's memory is used as it lies wherever possible). Each batch that runs at the same time takes scratch memory,
 *   mostly for a block of scores (at most 4 MiB, or 64 rows of k_len), which the oracle keeps for the next one.
 * options: NULL = defaults. out: receives the oracle; the caller destroys it, after every plan made with it. NULL on failure.
 * Hidden keys get weight exactly 0. A row that sees no key gets out 0, and as lse -inf, or +inf where declared.
 * The kernel's own error code is ENOMEM, when scratch memory cannot be allocated.
 * Returns: TWH_OK; TWH_E_UNSUPPORTED (a data type or flag this kernel does not have; the message names the field); all of
 *   twh_oracle_create. Threads: any. Since 0.1. */
TWH_API TWH_MUST_USE twh_status twh_blis_oracle_create(const twh_context *context, const twh_oracle_desc *desc,
                                                       const twh_blis_options *options, twh_oracle **out, twh_error *error);

/* A small transformer on BLIS, as an oracle: twh_oracle_from_transformer with a kernel that runs any number of layers and heads.
 * desc: the shape wanted, copied; load, run, release and user are this library's and must be zero. dtype: TWH_F32. model_dim 0 = as
 *   many as it needs, layers * heads * 2 (qk_dim + v_dim). Defaults of the limits as above.
 * The kernel multiplies with all its weights, as a transformer does; an attention kernel with as many slots is faster.
 * context, options, out, the kernel's error code: as above. Returns: TWH_OK; TWH_E_UNSUPPORTED; all of
 *   twh_oracle_from_transformer. Threads: any. Since 0.1. Source: Theorem 3.4, Lemma 3.3. */
TWH_API TWH_MUST_USE twh_status twh_blis_transformer_create(const twh_context *context, const twh_transformer_oracle_desc *desc,
                                                            const twh_blis_options *options, twh_oracle **out,
                                                            twh_error *error);

/* Matrix products on BLIS, for twh_transformer_desc.gemm (its gemm_user may be NULL). b may be f32, f16 or bf16; the latter two are
 * converted in pieces. Returns 0; ENOMEM. Threads: any; BLIS starts none of its own. Since 0.1. */
TWH_API int32_t twh_blis_gemm(void *user, const twh_gemm *gemm);

/* The name of the BLIS kernels that this library uses, as BLIS calls them ("zen3", "skx", "haswell"); "generic" are the
 * slow ones. Initialises BLIS: after this call BLIS_ARCH_TYPE comes too late. The string is static. Threads: any. Since 0.1. */
TWH_API const char *twh_blis_kernel_name(void);

/* What to set BLIS_ARCH_TYPE to, so that BLIS does not run its generic kernels on this CPU; NULL when nothing need be done:
 * BLIS knows the CPU, or has no better kernels for it, or this library picks them itself. Reads CPUID only and does not
 * initialise BLIS. The string is static. Threads: any. Since 0.1. */
TWH_API const char *twh_blis_recommended_arch(void);

#ifdef __cplusplus
}
#endif
#endif
