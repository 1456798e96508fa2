/* Clocks, and the peak that everything is compared with: fused multiply-adds in registers and nothing else.
 *
 * As many chains as hide the latency of the instruction, and as fit in registers with one operand. */
#include <time.h>

#include "tests/bench/bench.h"

#if defined(__x86_64__)
#  include <immintrin.h>
#elif defined(__aarch64__)
#  include <arm_neon.h>
#endif

enum { PEAK_TURNS = 200000 };

static double peak_clock(clockid_t clock)
{
  struct timespec at;

  clock_gettime(clock, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

double bench_wall(void)
{
  return peak_clock(CLOCK_MONOTONIC);
}

double bench_thread_time(void)
{
  return peak_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* The empty assembly keeps the compiler from seeing that all chains are the same. */
#define PEAK_BODY(lanes, chains, vector, zero, multiply_add, hold)                               \
  {                                                                                              \
    vector a[chains], x = zero;                                                                  \
    double begin;                                                                                \
    hold(x);                                                                                     \
    for (int i = 0; i < chains; ++i) {                                                           \
      a[i] = zero;                                                                               \
      hold(a[i]);                                                                                \
    }                                                                                            \
    begin = bench_thread_time();                                                                 \
    for (int64_t n = 0; n < PEAK_TURNS; ++n) {                                                   \
      _Pragma("GCC unroll 32") for (int i = 0; i < chains; ++i) a[i] = multiply_add(a[i], x, x); \
    }                                                                                            \
    for (int i = 0; i < chains; ++i) hold(a[i]);                                                 \
    return 2e-9 * (double)(lanes) * (chains)*PEAK_TURNS / (bench_thread_time() - begin);         \
  }

#if defined(__x86_64__)
#  define PEAK_HOLD(x) __asm__ volatile("" : "+v"(x))

__attribute__((target("avx512f"))) static double peak_avx512(void)
  PEAK_BODY(16, 16, __m512, _mm512_setzero_ps(), _mm512_fmadd_ps, PEAK_HOLD)

__attribute__((target("avx2,fma"))) static double peak_avx2(void)
  PEAK_BODY(8, 12, __m256, _mm256_setzero_ps(), _mm256_fmadd_ps, PEAK_HOLD)
#elif defined(__aarch64__)
#  define PEAK_HOLD(x) __asm__ volatile("" : "+w"(x))

static double peak_neon(void)
  PEAK_BODY(4, 24, float32x4_t, vdupq_n_f32(0), vfmaq_f32, PEAK_HOLD)
#endif

double bench_peak(int32_t isa)
{
  if (isa == TWH_CPU_ISA_BEST || isa == TWH_CPU_ISA_PORTABLE) isa = twh_cpu_isa_best();
#if defined(__x86_64__)
  if (isa == TWH_CPU_ISA_AVX512) return peak_avx512();
  if (isa == TWH_CPU_ISA_AVX2) return peak_avx2();
#elif defined(__aarch64__)
  if (isa == TWH_CPU_ISA_NEON) return peak_neon();
#endif
  return 1;
}
