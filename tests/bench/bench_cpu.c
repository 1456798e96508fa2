/* How much of a core's peak the kernel on the CPU reaches: useful operations, 4 q_len k_len dim or what of it a causal mask
 * leaves, against fused multiply-adds in registers and nothing else, measured in turns with the kernel.
 *
 * One thread. The peak is that of the instructions that the kernel uses; the portable kernel's is the best one's. Prints a
 * table; never fails on a figure. --quick: fewer rows and runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "twoheads.h"
#include "twoheads_cpu.h"

#if defined(__x86_64__)
#  include <immintrin.h>
#elif defined(__aarch64__)
#  include <arm_neon.h>
#endif

enum { BENCH_RUNS = 9, BENCH_QUICK_RUNS = 5, BENCH_TURNS = 5, BENCH_ROWS = 64, BENCH_ELEMENTS = 2048 * 576 };

typedef struct bench_row {
  int32_t  isa, dtype;
  uint32_t mode;
  int64_t  q_len, k_len, qk_dim, v_dim;
  double   share[BENCH_RUNS], speed[BENCH_RUNS]; /* of the peak; GFLOP/s */
} bench_row;

/* Seconds of this thread's own: others on the machine may have a core for a while. */
static double bench_now(void)
{
  struct timespec at;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* GFLOP/s of `chains` independent multiply-adds of `lanes` numbers. The empty assembly keeps the compiler from seeing that all
 * chains are the same. */
#define BENCH_PEAK(lanes, chains, vector, zero, multiply_add, hold)                              \
  {                                                                                              \
    vector a[chains], x = zero;                                                                  \
    double begin;                                                                                \
    hold(x);                                                                                     \
    for (int i = 0; i < chains; ++i) {                                                           \
      a[i] = zero;                                                                               \
      hold(a[i]);                                                                                \
    }                                                                                            \
    begin = bench_now();                                                                         \
    for (int64_t n = 0; n < turns; ++n) {                                                        \
      _Pragma("GCC unroll 32") for (int i = 0; i < chains; ++i) a[i] = multiply_add(a[i], x, x); \
    }                                                                                            \
    for (int i = 0; i < chains; ++i) hold(a[i]);                                                 \
    return 2e-9 * (double)(lanes) * (chains) * (double)turns / (bench_now() - begin);            \
  }

#if defined(__x86_64__)
#  define BENCH_HOLD(x) __asm__ volatile("" : "+v"(x))

__attribute__((target("avx512f"))) static double bench_peak_avx512(int64_t turns)
  BENCH_PEAK(16, 16, __m512, _mm512_setzero_ps(), _mm512_fmadd_ps, BENCH_HOLD)

__attribute__((target("avx2,fma"))) static double bench_peak_avx2(int64_t turns)
  BENCH_PEAK(8, 12, __m256, _mm256_setzero_ps(), _mm256_fmadd_ps, BENCH_HOLD)
#elif defined(__aarch64__)
#  define BENCH_HOLD(x) __asm__ volatile("" : "+w"(x))

static double bench_peak_neon(int64_t turns)
  BENCH_PEAK(4, 24, float32x4_t, vdupq_n_f32(0), vfmaq_f32, BENCH_HOLD)
#endif

static double bench_peak(int32_t isa)
{
  const int64_t turns = 10000;
  if (isa == TWH_CPU_ISA_PORTABLE) isa = twh_cpu_isa_best();
#if defined(__x86_64__)
  if (isa == TWH_CPU_ISA_AVX512) return bench_peak_avx512(turns);
  if (isa == TWH_CPU_ISA_AVX2) return bench_peak_avx2(turns);
#elif defined(__aarch64__)
  if (isa == TWH_CPU_ISA_NEON) return bench_peak_neon(turns);
#endif
  return 1; /* not known: shares are GFLOP/s */
}

/* Numbers in [-1, 1), in any data type. */
static void bench_fill(void *to, int32_t dtype, int64_t n, uint64_t seed)
{
  for (int64_t i = 0; i < n; ++i) {
    float    x;
    uint32_t bits;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x = (float)((double)(seed >> 40) / (double)(1 << 23) - 1);
    memcpy(&bits, &x, sizeof bits);
    if (dtype == TWH_F32) ((float *)to)[i] = x;
    else if (dtype == TWH_BF16) ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
    else ((uint16_t *)to)[i] = (uint16_t)(0x3000u | (bits >> 16 & 0x8bffu)); /* between 1/8 and 1/4 */
  }
}

static double bench_flops(const bench_row *row)
{
  double pairs = (double)row->q_len * (double)row->k_len;
  if (row->mode == TWH_MASK_CAUSAL) pairs = (double)row->q_len * ((double)row->q_len + 1) / 2;
  return 2.0 * pairs * (double)(row->qk_dim + row->v_dim);
}

/* One run of one row; data: q, k, v, out, lse. Returns non-zero on failure. */
static int bench_once(bench_row *row, int run, void *const data[5])
{
  const double     flops = bench_flops(row);
  const int64_t    times = (int64_t)(1e8 / flops) + 1;
  twh_oracle_desc  desc;
  twh_cpu_options  options;
  twh_oracle      *oracle;
  twh_error        error;
  twh_call         call;
  const twh_call  *calls = &call;
  double           peak = 0, seconds = 0;
  twh_error_init(&error);
  twh_oracle_desc_init(&desc);
  twh_cpu_options_init(&options);
  options.isa = row->isa;
  desc.slots = 1;
  desc.q_len = row->q_len;
  desc.k_len = row->k_len;
  desc.qk_dim = row->qk_dim;
  desc.v_dim = row->v_dim;
  desc.dtype = row->dtype;
  desc.scale = 0.125;
  desc.flags = TWH_ORACLE_LSE;
  desc.mask_modes = row->mode;
  if (twh_cpu_oracle_create(NULL, &desc, &options, &oracle, &error) < 0 || twh_oracle_get_desc(oracle, &desc, &error) < 0) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  twh_call_init(&call);
  call.mask_mode = row->mode;
  call.slots = 1;
  call.q_len = row->q_len;
  call.k_len = row->k_len;
  call.q.data = data[0];
  call.k.data = data[1];
  call.v.data = data[2];
  call.q.row_stride = call.k.row_stride = row->qk_dim;
  call.v.row_stride = call.out_row_stride = row->v_dim;
  call.scale = desc.scale;
  call.out = data[3];
  call.lse = (float *)data[4];
  bench_fill(data[0], row->dtype, row->q_len * row->qk_dim, 1);
  bench_fill(data[1], row->dtype, row->k_len * row->qk_dim, 2);
  bench_fill(data[2], row->dtype, row->k_len * row->v_dim, 3);
  for (int warm = 0; warm < 2; ++warm)
    if (desc.run(desc.user, &calls, 1) != 0) return 1;
  for (int turn = 0; turn < BENCH_TURNS; ++turn) {
    double begin;
    peak += bench_peak(row->isa) / BENCH_TURNS;
    begin = bench_now();
    for (int64_t n = 0; n < times; ++n)
      if (desc.run(desc.user, &calls, 1) != 0) return 1;
    seconds += (bench_now() - begin) / (double)(times * BENCH_TURNS);
  }
  row->speed[run] = 1e-9 * flops / seconds;
  row->share[run] = row->speed[run] / peak;
  twh_oracle_destroy(oracle);
  return 0;
}

static void bench_add(bench_row *rows, int *count, int32_t isa, int32_t dtype, uint32_t mode, const int64_t size[4])
{
  bench_row *row = &rows[*count];
  if (*count == BENCH_ROWS || twh_cpu_isa_name(isa) == NULL) return;
  ++*count;
  row->isa = isa;
  row->dtype = dtype;
  row->mode = mode;
  row->q_len = size[0];
  row->k_len = size[1];
  row->qk_dim = size[2];
  row->v_dim = size[3];
}

static int bench_choose(bench_row *rows, int quick)
{
  static const int32_t isas[] = { TWH_CPU_ISA_AVX512, TWH_CPU_ISA_AVX2, TWH_CPU_ISA_NEON, TWH_CPU_ISA_PORTABLE };
  static const int32_t dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  static const int64_t sizes[][4] = {
    { 512, 512, 64, 64 }, { 512, 512, 128, 128 },  /* in all data types, full and causal */
    { 512, 512, 64, 65 }, { 512, 512, 80, 65 },    /* a spare value column; and code coordinates */
    { 64, 64, 64, 64 },   { 256, 256, 64, 64 },    { 1024, 1024, 128, 128 }, { 512, 512, 576, 512 },
    { 1, 512, 64, 64 },   { 1, 2048, 128, 128 },
  };
  const int best = twh_cpu_isa_best();
  int       count = 0;
  for (int isa = 0; isa < 4; ++isa)
    for (int dtype = 0; dtype < 3; ++dtype)
      for (int size = 0; size < 2; ++size)
        for (uint32_t mode = TWH_MASK_NONE; mode <= TWH_MASK_CAUSAL; ++mode)
          if (dtype == 0 || (!quick && isas[isa] != TWH_CPU_ISA_PORTABLE))
            bench_add(rows, &count, isas[isa], dtypes[dtype], mode, sizes[size]);
  for (size_t size = 2; size < sizeof sizes / sizeof sizes[0] && !quick; ++size)
    bench_add(rows, &count, best, TWH_F32, TWH_MASK_NONE, sizes[size]);
  return count;
}

static int bench_compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
  static bench_row rows[BENCH_ROWS];
  const int        quick = argc > 1 && strcmp(argv[1], "--quick") == 0, runs = quick ? BENCH_QUICK_RUNS : BENCH_RUNS;
  const int        count = bench_choose(rows, quick);
  void            *data[5];
  for (int i = 0; i < 5; ++i)
    if (posix_memalign(&data[i], 64, BENCH_ELEMENTS * sizeof(float)) != 0) return 1;
  for (int run = 0; run < runs; ++run)
    for (int r = 0; r < count; ++r)
      if (bench_once(&rows[r], run, data) != 0) return 1;
  printf("the kernel on the CPU with lse, one thread: share of the core's fused multiply-add peak, median of %d runs\n", runs);
  printf("%-9s %-5s %-7s %6s %6s %6s %6s %9s %8s %8s %8s\n", "isa", "dtype", "mask", "q_len", "k_len", "qk_dim", "v_dim",
         "GFLOP/s", "median", "least", "most");
  for (int r = 0; r < count; ++r) {
    bench_row *row = &rows[r];
    qsort(row->share, (size_t)runs, sizeof row->share[0], bench_compare);
    qsort(row->speed, (size_t)runs, sizeof row->speed[0], bench_compare);
    printf("%-9s %-5s %-7s %6lld %6lld %6lld %6lld %9.1f %7.1f%% %7.1f%% %7.1f%%\n", twh_cpu_isa_name(row->isa),
           row->dtype == TWH_F32 ? "f32" : row->dtype == TWH_BF16 ? "bf16" : "f16",
           row->mode == TWH_MASK_CAUSAL ? "causal" : "none", (long long)row->q_len, (long long)row->k_len,
           (long long)row->qk_dim, (long long)row->v_dim, row->speed[runs / 2], 100 * row->share[runs / 2],
           100 * row->share[0], 100 * row->share[runs - 1]);
  }
  for (int i = 0; i < 5; ++i) free(data[i]);
  return 0;
}
