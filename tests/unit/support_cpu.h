/* What the tests of the CPU kernel share: its instruction sets, and kernels made for one of them. */
#ifndef TWH_TESTS_SUPPORT_CPU_H
#define TWH_TESTS_SUPPORT_CPU_H

#include "support_tile.h"

#include "twoheads_cpu.h"

enum { LSE = TWH_ORACLE_LSE, BASE2 = TWH_ORACLE_LSE_BASE2, POS_INF = TWH_ORACLE_EMPTY_LSE_POS_INF };
enum { STRIDED = TWH_ORACLE_STRIDED, BACKWARDS = STRIDED | TWH_ORACLE_BACKWARDS, PER_CALL = TWH_ORACLE_SCALE_PER_CALL };
enum { FEWER = TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_FEWER_SLOTS };
enum { NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL, TENSOR = TWH_MASK_TENSOR };

/* for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)): those that this CPU has, the portable one first. */
static inline int32_t cpu_next_isa(int32_t isa)
{
  while (++isa <= TWH_CPU_ISA_NEON)
    if (twh_cpu_isa_name(isa)) return isa;
  return 0;
}

/* Say which are tested and which are not; for the beginning of main. */
static inline void cpu_say_isas(void)
{
  static const char *const names[] = { "portable", "avx2", "avx512", "neon" };
  int32_t                  isa;
  for (isa = TWH_CPU_ISA_PORTABLE; isa <= TWH_CPU_ISA_NEON; ++isa)
    print_message("%s: %s\n", names[isa - 1], twh_cpu_isa_name(isa) ? "tested" : "not in this CPU or this build, skipped");
}

static inline int32_t cpu_first_isa(void)
{
  return cpu_next_isa(0);
}

static inline void cpu_desc(twh_oracle_desc *desc, int64_t slots, int64_t q_len, int64_t k_len, int64_t qk_dim, int64_t v_dim)
{
  twh_oracle_desc_init(desc);
  desc->slots = slots;
  desc->q_len = q_len;
  desc->k_len = k_len;
  desc->qk_dim = qk_dim;
  desc->v_dim = v_dim;
  desc->dtype = TWH_F32;
  desc->mask_modes = NONE | CAUSAL | TENSOR;
  desc->mask_dtype = TWH_BOOL;
  desc->scale = 0.3;
  desc->flags = LSE;
}

static inline twh_oracle *cpu_oracle(const twh_oracle_desc *desc, int32_t isa)
{
  twh_oracle     *oracle;
  twh_cpu_options options;
  twh_error       error;
  twh_error_init(&error);
  twh_cpu_options_init(&options);
  options.isa = isa;
  if (twh_cpu_oracle_create(NULL, desc, &options, &oracle, &error) < 0) fail_msg("%s", error.message);
  return oracle;
}

#endif
