/* How busy the library keeps an accelerator: the command's simulated one, which here computes nothing.
 *
 * What is measured is the time of all batches over that of the whole execute on the wall, its beginning and end included. Only
 * kernels with lse: a sum of zero in a value column would be repaired. */
#include "tests/bench/bench.h"
#include "tools/sim.h"

enum { ACCELERATOR_TURNS = 3, ACCELERATOR_CALLS = 8 };

static twh_oracle *accelerator_oracle(const bench_case *it)
{
  const sim_parameters parameters = { 0, 50, 0, it->depth, NULL };
  twh_oracle_desc      desc;
  twh_oracle          *oracle = NULL;
  twh_error            error;

  bench_describe(&desc, it);
  desc.max_calls_per_batch = ACCELERATOR_CALLS;
  desc.alignment = 4;
  twh_error_init(&error);
  if (sim_create(NULL, &desc, &parameters, &oracle, &error) < 0) bench_fail(it, error.message);
  return oracle;
}

/* The best of some turns: whatever else runs on the machine can only make the host late. */
static int accelerator_busy(const bench_case *it, double *figure)
{
  twh_oracle   *oracle = accelerator_oracle(it);
  bench_problem problem;
  sim_figures   figures;
  int           failed;

  if (!oracle) return 1;
  failed = bench_open(&problem, it, oracle);
  *figure = 0;
  for (int turn = 0; turn < ACCELERATOR_TURNS && !failed; ++turn) {
    double busy;
    sim_reset(oracle);
    failed = bench_execute(&problem);
    sim_stats(oracle, &figures);
    busy = 100 * figures.busy_s / problem.stats.wall_s;
    if (busy > *figure) *figure = busy;
  }
  bench_close(&problem);
  return failed;
}

void bench_accelerator_cases(bench_list *list)
{
  for (int32_t depth = 1; depth <= 4; depth *= 2) {
    for (int64_t dim = 64; dim <= 128; dim *= 2) {
      for (int32_t pattern = BENCH_FULL; pattern <= BENCH_CAUSAL; ++pattern) {
        bench_case it;

        bench_case_init(&it, "accelerator", "% busy", accelerator_busy);
        it.m = 512;
        it.n = list->quick ? 2048 : 16384;
        it.dim = dim;
        it.pattern = pattern;
        it.depth = depth;
        if (depth > 1 && dim == 64) {
          it.sense = BENCH_AT_LEAST;
          it.wanted = 97;
        }
        bench_add(list, &it, "50 us calls, batches of 8, %d in flight, d %d, %s", (int)depth, (int)dim,
                  bench_pattern_name(pattern));
      }
    }
  }
}
