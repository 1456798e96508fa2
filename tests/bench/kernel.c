/* The kernel on the CPU alone, and whole runs on it, as shares of the core's peak; and how whole runs scale.
 *
 * Useful operations: 2 (qk_dim + v_dim) for each pair that a row sees. On one thread both the peak and the run are measured in
 * this thread's own time, in turns. */
#include <stdio.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/loop.h"

enum { KERNEL_TURNS = 5 };

/* bf16 is the upper half of an f32; f16 numbers are made between 1/8 and 1/4. */
static void kernel_narrow(const float *from, uint16_t *to, int64_t n, int32_t dtype)
{
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, &from[i], sizeof bits);
    to[i] = (uint16_t)(dtype == TWH_BF16 ? bits >> 16 : 0x3000u | (bits >> 16 & 0x8bffu));
  }
}

static void kernel_call(twh_call *call, const bench_case *it, const void *const operands[3], float *out, float *lse)
{
  twh_call_init(call);
  call->mask_mode = it->pattern == BENCH_CAUSAL ? TWH_MASK_CAUSAL : TWH_MASK_NONE;
  call->slots = 1;
  call->q_len = it->m;
  call->k_len = it->k_len ? it->k_len : it->m;
  call->q.data = operands[0];
  call->k.data = operands[1];
  call->v.data = operands[2];
  call->q.row_stride = call->k.row_stride = it->dim + it->codes;
  call->v.row_stride = call->out_row_stride = it->dim + it->spare;
  call->out = out;
  call->lse = it->spare ? NULL : lse;
}

static int kernel_alone(const bench_case *it, double *figure)
{
  static uint16_t narrow[3][512 * 128];
  static float    lse[1024];
  const double    pairs = it->k_len ? (double)(it->m * it->k_len) : bench_pairs(it);
  const double    flops = 2 * pairs * (double)(2 * it->dim + it->codes + it->spare);
  const int64_t   times = (int64_t)(1e8 / flops) + 1;
  const void     *operands[3];
  twh_oracle     *oracle = bench_oracle(it);
  twh_oracle_desc desc;
  twh_call        call;
  const twh_call *calls = &call;
  double          peak = 0, seconds = 0, begin;
  int             failed = 0;

  twh_oracle_desc_init(&desc);
  if (!oracle || twh_oracle_get_desc(oracle, &desc, NULL) < 0) return 1;
  for (int i = 0; i < 3; ++i) {
    operands[i] = bench_data(i);
    if (it->dtype == TWH_F32) continue;
    kernel_narrow(bench_data(i), narrow[i], it->m * it->dim, it->dtype);
    operands[i] = narrow[i];
  }
  kernel_call(&call, it, operands, bench_data(3), lse);
  call.scale = desc.scale;
  for (int warm = 0; warm < 2; ++warm) failed |= desc.run(desc.user, &calls, 1) != 0;
  for (int turn = 0; turn < KERNEL_TURNS; ++turn) {
    peak += bench_peak(it->isa) / KERNEL_TURNS;
    begin = bench_thread_time();
    for (int64_t n = 0; n < times; ++n) failed |= desc.run(desc.user, &calls, 1) != 0;
    seconds += (bench_thread_time() - begin) / (double)(times * KERNEL_TURNS);
  }
  *figure = 100 * 1e-9 * flops / seconds / peak;
  twh_oracle_destroy(oracle);
  return failed ? bench_fail(it, "the kernel failed") : 0;
}

static int kernel_peak(const bench_case *it, double *figure)
{
  *figure = bench_peak(it->isa);
  return 0;
}

/* One case of the best instructions in f32: q_len, k_len, dim, spare coordinates, spare value columns. */
static void kernel_add(bench_list *list, const int64_t size[5])
{
  bench_case it;

  bench_case_init(&it, "kernel", "% of peak", kernel_alone);
  it.m = size[0];
  it.k_len = size[1];
  it.dim = size[2];
  it.codes = size[3];
  it.spare = (int32_t)size[4];
  bench_add(list, &it, "%s, f32, %d x %d, d %d and %d, full, %s", twh_cpu_isa_name(it.isa), (int)it.m, (int)it.k_len,
            (int)(it.dim + it.codes), (int)it.dim + it.spare, it.spare ? "no lse" : "lse");
}

void bench_kernel_cases(bench_list *list)
{
  static const int64_t sizes[][5] = {
    { 512, 512, 64, 0, 1 },    { 512, 512, 64, 16, 1 },  { 64, 64, 64, 0, 0 }, { 256, 256, 64, 0, 0 },
    { 1024, 1024, 128, 0, 0 }, { 512, 512, 512, 64, 0 }, { 1, 512, 64, 0, 0 }, { 1, 2048, 128, 0, 0 },
  };
  static const int32_t isas[] = { TWH_CPU_ISA_AVX512, TWH_CPU_ISA_AVX2, TWH_CPU_ISA_NEON, TWH_CPU_ISA_PORTABLE };
  static const int32_t dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  static const char   *names[] = { "f32", "bf16", "f16" };

  for (int isa = 0; isa < 4; ++isa) {
    bench_case it;

    if (!twh_cpu_isa_name(isas[isa])) continue;
    bench_case_init(&it, "peak", "GFLOP/s", kernel_peak);
    it.isa = isas[isa];
    if (isas[isa] != TWH_CPU_ISA_PORTABLE) bench_add(list, &it, "%s, one core", twh_cpu_isa_name(isas[isa]));
    for (int dtype = 0; dtype < (list->quick || isas[isa] == TWH_CPU_ISA_PORTABLE ? 1 : 3); ++dtype) {
      for (int64_t dim = 64; dim <= 128; dim *= 2) {
        for (int32_t pattern = BENCH_FULL; pattern <= BENCH_CAUSAL; ++pattern) {
          bench_case_init(&it, "kernel", "% of peak", kernel_alone);
          it.m = it.n = 512;
          it.dim = dim;
          it.pattern = pattern;
          it.isa = isas[isa];
          it.dtype = dtypes[dtype];
          if (dtype == 0 && pattern == BENCH_FULL && it.isa != TWH_CPU_ISA_PORTABLE) {
            it.sense = BENCH_AT_LEAST;
            it.wanted = it.isa == TWH_CPU_ISA_AVX2 ? 70 : dim == 64 ? 80 : 85;
          }
          bench_add(list, &it, "%s, %s, 512 x 512, d %d, %s, lse", twh_cpu_isa_name(it.isa), names[dtype], (int)dim,
                    bench_pattern_name(pattern));
        }
      }
    }
  }
  for (size_t size = 0; size < sizeof sizes / sizeof sizes[0] && !list->quick; ++size) kernel_add(list, sizes[size]);
}

static int whole_share(const bench_case *it, double *figure)
{
  bench_problem problem;
  double        peak = 0, seconds = 0;
  int           failed = bench_open(&problem, it, NULL);

  for (int turn = 0; turn < KERNEL_TURNS && !failed; ++turn) peak += bench_peak(it->isa);
  if (!failed) {
    const double begin = bench_thread_time();
    failed = bench_execute(&problem);
    seconds = bench_thread_time() - begin;
  }
  for (int turn = 0; turn < KERNEL_TURNS && !failed; ++turn) peak += bench_peak(it->isa);
  peak /= 2 * KERNEL_TURNS;
  if (!failed) *figure = 100 * 4e-9 * bench_pairs(it) * (double)it->dim / seconds / peak;
  bench_close(&problem);
  return failed;
}

/* One execute: the thread's own time where there is one, else the time on the wall. */
static int whole_seconds(bench_problem *problem, int32_t threads, double *seconds)
{
  const double begin = threads == 1 ? bench_thread_time() : bench_wall();
  const int    failed = bench_execute(problem);

  *seconds = (threads == 1 ? bench_thread_time() : bench_wall()) - begin;
  return failed;
}

/* The shortest of some times on the wall with one thread and with many, in turns: nothing else tells what threads bring, and
 * whatever else runs on the machine can only make it longer. */
static int whole_speedup(const bench_case *it, double *figure)
{
  bench_problem one, many;
  bench_case    alone = *it;
  double        seconds, least_one = 1e9, least_many = 1e9, begin;
  int           failed;

  alone.threads = 1;
  failed = bench_open(&one, &alone, NULL) | bench_open(&many, it, NULL);
  for (int turn = 0; turn < KERNEL_TURNS && !failed; ++turn) {
    begin = bench_wall();
    failed = bench_execute(&one);
    seconds = bench_wall() - begin;
    if (seconds < least_one) least_one = seconds;
    failed = failed || whole_seconds(&many, it->threads, &seconds);
    if (seconds < least_many) least_many = seconds;
  }
  *figure = least_one / least_many;
  bench_close(&one);
  bench_close(&many);
  return failed;
}

/* Both on the same kernel, in turns, the shortest time of each. */
static int whole_loop(const bench_case *it, double *figure)
{
  bench_problem problem;
  double        least = 1e9, least_loop = 1e9, seconds, begin;
  int           failed = bench_open(&problem, it, NULL);

  for (int turn = 0; turn < KERNEL_TURNS && !failed; ++turn) {
    failed = whole_seconds(&problem, it->threads, &seconds);
    if (seconds < least) least = seconds;
    begin = it->threads == 1 ? bench_thread_time() : bench_wall();
    failed = failed || loop_attention(problem.oracle, bench_data(0), bench_data(1), bench_data(2), bench_data(3), 1, it->n,
                                      it->dim, it->m, it->pattern == BENCH_CAUSAL, it->threads);
    seconds = (it->threads == 1 ? bench_thread_time() : bench_wall()) - begin;
    if (seconds < least_loop) least_loop = seconds;
  }
  *figure = least_loop / least;
  bench_close(&problem);
  return failed;
}

/* All lengths, dimensions and patterns of a figure. wanted: d 64 full and causal, d 128 full and causal. */
static void whole_add(bench_list *list, const bench_case *pattern_of, const int64_t *lengths, const double *wanted)
{
  for (; *lengths; ++lengths) {
    for (int64_t dim = 64; dim <= 128; dim *= 2) {
      for (int32_t pattern = BENCH_FULL; pattern <= BENCH_CAUSAL; ++pattern) {
        bench_case it = *pattern_of;

        it.m = 512;
        it.n = *lengths;
        it.dim = dim;
        it.pattern = pattern;
        if (it.n != 8192) it.sense = BENCH_ANY;
        it.wanted = wanted[2 * (dim == 128) + pattern];
        if (list->quick && it.n > 2048) continue;
        bench_add(list, &it, "M 512, N %d, d %d, %s, lse, threads %d", (int)it.n, (int)dim, bench_pattern_name(pattern),
                  (int)it.threads);
      }
    }
  }
}

void bench_whole_cases(bench_list *list)
{
  static const int64_t all[] = { 1024, 2048, 4096, 8192, 16384, 0 }, some[] = { 2048, 8192, 0 };
  static const double  share[] = { 72, 65, 80, 72 }, speedup[] = { 1.85, 1.85, 1.85, 1.85 }, loop[] = { 1, 1, 1, 1 };
  bench_case           it;

  bench_case_init(&it, "whole run", "% of peak", whole_share);
  it.sense = BENCH_AT_LEAST;
  whole_add(list, &it, all, share);
  bench_case_init(&it, "speed-up", "x one thread", whole_speedup);
  it.sense = BENCH_AT_LEAST;
  it.threads = 2;
  whole_add(list, &it, some, speedup);
  bench_case_init(&it, "hand-written loop", "x our time", whole_loop);
  it.sense = BENCH_AT_LEAST;
  for (it.threads = 1; it.threads <= 2; ++it.threads) whole_add(list, &it, some, loop);
}
