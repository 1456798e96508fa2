/* Choosing instructions. The compiler's runtime has read CPUID, and whether the system saves the registers, before any function
 * of this library runs: nothing here is written, so nothing can race. */
#include "cpu/isa.h"

#if defined(__GNUC__) && defined(__x86_64__)
#  include <cpuid.h>

static int isa_has_avx2(void)
{
  unsigned a, b, c, d;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0; /* not every compiler knows F16C by its name */
}

static int isa_has_avx512(void)
{
  return __builtin_cpu_supports("avx512f") != 0;
}

#else

static int isa_has_avx2(void)
{
  return 0;
}

static int isa_has_avx512(void)
{
  return 0;
}

#endif

/* The fastest first. */
static const int32_t isa_order[] = { TWH_CPU_ISA_AVX512, TWH_CPU_ISA_AVX2, TWH_CPU_ISA_NEON, TWH_CPU_ISA_PORTABLE };

int32_t twh_cpu_isa_best(void)
{
  int n = 0;
  while (isa_order[n] != TWH_CPU_ISA_PORTABLE && twh__cpu_isa_lanes(isa_order[n]) == NULL) n++;
  return isa_order[n];
}

const twh__cpu_lanes *twh__cpu_isa_lanes(int32_t isa)
{
  switch (isa) {
  case TWH_CPU_ISA_BEST: return twh__cpu_isa_lanes(twh_cpu_isa_best());
  case TWH_CPU_ISA_PORTABLE: return twh__cpu_portable();
  case TWH_CPU_ISA_AVX2: return isa_has_avx2() ? twh__cpu_avx2() : NULL;
  case TWH_CPU_ISA_AVX512: return isa_has_avx512() ? twh__cpu_avx512() : NULL;
  case TWH_CPU_ISA_NEON: return twh__cpu_neon(); /* part of every 64-bit ARM */
  default: return NULL;
  }
}

const char *twh_cpu_isa_name(int32_t isa)
{
  static const char *const names[] = { "portable", "avx2", "avx512", "neon" };
  if (isa == TWH_CPU_ISA_BEST) isa = twh_cpu_isa_best();
  return twh__cpu_isa_lanes(isa) == NULL ? NULL : names[isa - 1];
}
