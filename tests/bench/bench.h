/* What the parts of the benchmark share: a case is one row of the table, one figure that is measured once in every run.
 *
 * Figures are ratios wherever a ratio says it, with both sides measured in the same moment, so that they hold on a busy machine. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdint.h>

#include "twoheads.h"
#include "twoheads_cpu.h"

enum { BENCH_RUNS = 15, BENCH_CASES = 256 };
enum { BENCH_FULL, BENCH_CAUSAL, BENCH_WINDOW };         /* window: a row sees itself and the BENCH_LEFT keys before it */
enum { BENCH_LEFT = 511, BENCH_ELEMENTS = 16384 * 128 }; /* the most elements of q, k, v and out */
enum { BENCH_AT_MOST = -1, BENCH_ANY = 0, BENCH_AT_LEAST = 1 };

typedef struct bench_case bench_case;

struct bench_case {
  const char *group;    /* what is measured */
  char        name[72]; /* of which case */
  const char *unit;
  int (*measure)(const bench_case *it, double *figure); /* non-zero: failed, and has printed why */
  int64_t m, n, dim;                                    /* the kernel's length, the problem's, and that of rows */
  int64_t k_len;                                        /* of the kernel, where it is not m; else 0 */
  int64_t codes;                                        /* spare coordinates of the kernel's queries and keys */
  int32_t pattern;                                      /* BENCH_FULL ... */
  int32_t spare;                                        /* 0: the kernel has lse; 1: it has a spare value column instead */
  int32_t apart;                                        /* 1: it has lse, but its calls do not continue each other */
  int32_t dtype, isa;                                   /* of the kernel; TWH_CPU_ISA_* */
  int32_t threads, depth;                               /* depth: batches that an accelerator holds */
  int32_t sense;                                        /* of `wanted`: BENCH_AT_LEAST ... */
  double  wanted;
  double  figure[BENCH_RUNS];
};

/* The list that is being made. Copy a case into it; printf makes its name. Full lists drop it and set `dropped`. */
typedef struct bench_list {
  bench_case *cases;
  int         count, dropped;
  int         quick; /* smaller problems */
} bench_list;

void bench_add(bench_list *list, const bench_case *it, const char *format, ...) __attribute__((format(printf, 3, 4)));
void bench_case_init(bench_case *it, const char *group, const char *unit, int (*measure)(const bench_case *it, double *figure));

/* Each part adds its cases. */
void bench_overhead_cases(bench_list *list);
void bench_kernel_cases(bench_list *list);
void bench_whole_cases(bench_list *list);
void bench_plan_cases(bench_list *list);
void bench_decode_cases(bench_list *list);
void bench_accelerator_cases(bench_list *list);

/* Seconds, of the clock on the wall and of this thread's own: others may have a core for a while. */
double bench_wall(void);
double bench_thread_time(void);

/* GFLOP/s of fused multiply-adds in registers and nothing else, with the instructions of a TWH_CPU_ISA_*; the portable kernel's
 * are the best one's. 1 where it is not known. About a millisecond of this thread's own time. */
double bench_peak(int32_t isa);

/* The operands, BENCH_ELEMENTS floats each: 0 .. 3 are q, k, v, out. */
float *bench_data(int which);

const char *bench_pattern_name(int32_t pattern);
double      bench_pairs(const bench_case *it); /* visible ones, of one head */

/* A case as a problem: one head, f32, on one kernel. */
typedef struct bench_problem {
  twh_context    *context;
  twh_oracle     *oracle;
  twh_plan       *plan;
  twh_pattern     pattern;
  twh_tensor      q, k, v, out;
  twh_tensors     tensors;
  twh_run_options options;
  twh_run_stats   stats;
  void           *workspace;
} bench_problem;

/* context: with the case's number of threads. oracle: NULL = the kernel on the CPU; else it becomes the problem's. Returns non-zero
 * on failure and has then printed why; close in either case. */
int  bench_open(bench_problem *problem, const bench_case *it, twh_oracle *oracle);
int  bench_execute(bench_problem *problem);
void bench_close(bench_problem *problem);

/* The kernel's description, and the kernel, of a case. */
void        bench_describe(twh_oracle_desc *desc, const bench_case *it);
twh_oracle *bench_oracle(const bench_case *it);

/* Print an error and return 1. */
int bench_fail(const bench_case *it, const char *what);

#endif
