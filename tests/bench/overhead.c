/* What the library adds to the kernel's own time: (whole - kernel) / kernel of one execute, on one thread.
 *
 * Both are measured in this thread's own time, around the kernel too, so that it does not matter who else has the core for a
 * while. With the core for itself that is the time on the wall. */
#include "tests/bench/bench.h"

typedef struct overhead_kernel {
  twh_oracle_desc inner;
  double          seconds;
} overhead_kernel;

static int32_t overhead_run(void *user, const twh_call *const *calls, int64_t n)
{
  overhead_kernel *kernel = (overhead_kernel *)user;
  const double     begin = bench_thread_time();
  const int32_t    code = kernel->inner.run(kernel->inner.user, calls, n);

  kernel->seconds += bench_thread_time() - begin;
  return code;
}

static int overhead_measure(const bench_case *it, double *figure)
{
  twh_oracle     *inner = bench_oracle(it), *oracle = NULL;
  overhead_kernel kernel;
  twh_oracle_desc desc;
  bench_problem   problem;
  double          begin, seconds;
  int             failed;

  twh_oracle_desc_init(&kernel.inner);
  if (!inner || twh_oracle_get_desc(inner, &kernel.inner, NULL) < 0) return 1;
  desc = kernel.inner;
  desc.run = overhead_run;
  desc.release = NULL;
  desc.user = &kernel;
  if (twh_oracle_create(NULL, &desc, &oracle, NULL) < 0) return bench_fail(it, "no kernel");
  failed = bench_open(&problem, it, oracle);
  kernel.seconds = 0;
  begin = bench_thread_time();
  failed = failed || bench_execute(&problem);
  seconds = bench_thread_time() - begin;
  *figure = 100 * (seconds - kernel.seconds) / kernel.seconds;
  bench_close(&problem);
  twh_oracle_destroy(inner);
  return failed;
}

void bench_overhead_cases(bench_list *list)
{
  static const int64_t lengths[] = { 64, 128, 256, 512 };

  for (int length = 0; length < 4; ++length) {
    for (int64_t dim = 64; dim <= 128; dim *= 2) {
      for (int32_t pattern = BENCH_FULL; pattern <= BENCH_WINDOW; ++pattern) {
        for (int kind = 0; kind < 3; ++kind) {
          static const char *const names[] = { "lse, continues", "lse", "no lse, a spare column" };
          const int32_t            spare = kind == 2;
          bench_case               it;

          bench_case_init(&it, "overhead", "% of kernel", overhead_measure);
          it.m = lengths[length];
          it.n = pattern == BENCH_WINDOW ? 16384 : 8192;
          if (list->quick) it.n = 1024;
          it.dim = dim;
          it.pattern = pattern;
          it.spare = spare;
          it.apart = kind == 1;
          if (it.m >= 256) {
            it.sense = BENCH_AT_MOST;
            it.wanted = it.m == 512 ? (spare ? 4 : 2) : (spare ? 7 : 4);
          }
          bench_add(list, &it, "M %d, N %d, d %d, %s, %s", (int)it.m, (int)it.n, (int)dim, bench_pattern_name(pattern),
                    names[kind]);
        }
      }
    }
  }
}
