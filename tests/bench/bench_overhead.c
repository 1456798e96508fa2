/* What the library adds to the kernel's own time: (wall - kernel) / kernel, medians of interleaved runs.
 *
 * Both times come from the same run, so the ratio holds on a busy machine as far as both suffer alike. One thread, f32,
 * kernels on BLIS. Prints a table; never fails on a figure. */
#include <stdio.h>
#include <stdlib.h>

#include "twoheads.h"
#include "twoheads_blis.h"

enum { BENCH_RUNS = 7 };

typedef struct bench_row {
  const char *name;
  int64_t     m, n, dim;
  uint32_t    flags;    /* of the oracle */
  int64_t     spare;    /* value columns */
  int64_t     codes;    /* spare coordinates */
  uint32_t    pattern;
  int64_t     left, sinks;
  uint32_t    modes;
  double      ratio[BENCH_RUNS], oracle_s[BENCH_RUNS];
} bench_row;

static bench_row bench_rows[] = {
  { "full, lse", 256, 8192, 64, TWH_ORACLE_LSE, 0, 0, 0, 0, 0, TWH_MASK_NONE, { 0 }, { 0 } },
  { "full, one spare value column", 256, 8192, 64, 0, 1, 0, 0, 0, 0, TWH_MASK_NONE, { 0 }, { 0 } },
  { "full, no spare column", 256, 8192, 64, 0, 0, 0, 0, 0, 0, TWH_MASK_NONE, { 0 }, { 0 } },
  { "causal, lse, mask per call", 256, 8192, 64, TWH_ORACLE_LSE, 0, 0, TWH_CAUSAL, 0, 0, TWH_MASK_NONE | TWH_MASK_CAUSAL, { 0 }, { 0 } },
  { "causal, causal-only, spare", 256, 8192, 64, 0, 1, 0, TWH_CAUSAL, 0, 0, TWH_MASK_CAUSAL, { 0 }, { 0 } },
  { "full, lse", 512, 8192, 64, TWH_ORACLE_LSE, 0, 0, 0, 0, 0, TWH_MASK_NONE, { 0 }, { 0 } },
  { "full, one spare value column", 512, 8192, 64, 0, 1, 0, 0, 0, 0, TWH_MASK_NONE, { 0 }, { 0 } },
  { "full, one spare value column", 512, 8192, 128, 0, 1, 0, 0, 0, 0, TWH_MASK_NONE, { 0 }, { 0 } },
  { "full, lse", 64, 2048, 64, TWH_ORACLE_LSE, 0, 0, 0, 0, 0, TWH_MASK_NONE, { 0 }, { 0 } },
  { "full, one spare value column", 64, 2048, 64, 0, 1, 0, 0, 0, 0, TWH_MASK_NONE, { 0 }, { 0 } },
  { "window 256, causal-only, codes", 512, 16384, 64, 0, 1, 16, TWH_CAUSAL | TWH_LEFT, 255, 0, TWH_MASK_CAUSAL, { 0 }, { 0 } },
  { "window 16 and 4 sinks, codes", 512, 16384, 64, 0, 1, 16, TWH_CAUSAL | TWH_LEFT, 15, 4, TWH_MASK_CAUSAL, { 0 }, { 0 } },
  { "window 256, mask operand, lse", 512, 16384, 64, TWH_ORACLE_LSE, 0, 0, TWH_CAUSAL | TWH_LEFT, 255, 0, TWH_MASK_TENSOR, { 0 }, { 0 } },
  { "window 4096, mask per call", 512, 16384, 64, 0, 1, 0, TWH_CAUSAL | TWH_LEFT, 4095, 0,
    TWH_MASK_NONE | TWH_MASK_CAUSAL, { 0 }, { 0 } },
};

enum { BENCH_ROWS = sizeof bench_rows / sizeof bench_rows[0] };

static int bench_compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static float *bench_fill(int64_t n, unsigned seed)
{
  float *data = (float *)malloc((size_t)n * sizeof *data);
  uint64_t state = seed;
  for (int64_t i = 0; data && i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    data[i] = (float)((double)(state >> 40) / (double)(1 << 23) - 1);
  }
  return data;
}

static twh_status bench_once(bench_row *row, int run, const float *data[4], twh_error *error)
{
  twh_oracle_desc kernel;
  twh_oracle     *oracle = NULL;
  twh_plan       *plan = NULL;
  twh_problem     problem;
  twh_pattern     pattern;
  twh_tensor      q, k, v, out;
  twh_tensors     tensors;
  twh_run_options options;
  twh_run_stats   stats;
  twh_status      status;

  twh_oracle_desc_init(&kernel);
  kernel.slots = 1;
  kernel.q_len = kernel.k_len = row->m;
  kernel.qk_dim = row->dim + row->codes;
  kernel.v_dim = row->dim + row->spare;
  kernel.dtype = TWH_F32;
  kernel.flags = row->flags;
  kernel.mask_modes = row->modes;
  kernel.scale = row->dim == 64 ? 0.125 : 0.08838834764831845;
  status = twh_blis_oracle_create(NULL, &kernel, NULL, &oracle, error);
  twh_problem_init(&problem);
  twh_pattern_init(&pattern);
  pattern.flags = row->pattern;
  pattern.left = row->left;
  pattern.sink_tokens = row->sinks;
  problem.pattern = &pattern;
  problem.batch = problem.q_heads = problem.kv_heads = 1;
  problem.q_len = problem.k_len = row->n;
  problem.qk_dim = problem.v_dim = row->dim;
  problem.flags = TWH_PROBLEM_SCALE;
  problem.scale = kernel.scale;
  if (status >= 0) status = twh_plan_create(NULL, &problem, &oracle, 1, NULL, &plan, error);
  twh_tensor_dense(&q, TWH_F32, (void *)(uintptr_t)data[0], 1, row->n, row->dim);
  twh_tensor_dense(&k, TWH_F32, (void *)(uintptr_t)data[1], 1, row->n, row->dim);
  twh_tensor_dense(&v, TWH_F32, (void *)(uintptr_t)data[2], 1, row->n, row->dim);
  twh_tensor_dense(&out, TWH_F32, (void *)(uintptr_t)data[3], 1, row->n, row->dim);
  twh_tensors_init(&tensors);
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.out = &out;
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  if (status >= 0) status = twh_plan_execute(plan, &tensors, &options, error);
  row->ratio[run] = (stats.wall_s - stats.oracle_s) / stats.oracle_s;
  row->oracle_s[run] = stats.oracle_s;
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  return status;
}

int main(void)
{
  const float *data[4];
  twh_error    error;
  const char  *arch = twh_blis_recommended_arch();

  if (arch) setenv("BLIS_ARCH_TYPE", arch, 0);
  twh_error_init(&error);
  for (unsigned i = 0; i < 4; ++i) {
    data[i] = bench_fill(8192 * 128, i + 1);
    if (!data[i]) return 1;
  }
  for (int run = 0; run < BENCH_RUNS; ++run) {
    for (int r = 0; r < BENCH_ROWS; ++r) {
      if (bench_once(&bench_rows[r], run, data, &error) < 0) {
        fprintf(stderr, "%s: %s\n", bench_rows[r].name, error.message);
        return 1;
      }
    }
  }
  printf("what the library adds to the kernel's time; BLIS kernels: %s; one thread, f32; median of %d interleaved runs\n",
         twh_blis_kernel_name(), BENCH_RUNS);
  printf("%-32s %6s %6s %5s %9s %9s %9s\n", "case", "M", "N", "dim", "median", "least", "most");
  for (int r = 0; r < BENCH_ROWS; ++r) {
    bench_row *row = &bench_rows[r];
    qsort(row->ratio, BENCH_RUNS, sizeof row->ratio[0], bench_compare);
    printf("%-32s %6lld %6lld %5lld %8.2f%% %8.2f%% %8.2f%%\n", row->name, (long long)row->m, (long long)row->n,
           (long long)row->dim, 100 * row->ratio[BENCH_RUNS / 2], 100 * row->ratio[0], 100 * row->ratio[BENCH_RUNS - 1]);
  }
  for (int i = 0; i < 4; ++i) free((void *)(uintptr_t)data[i]);
  return 0;
}
