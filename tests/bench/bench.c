/* The benchmark: one table, and the same as JSON, whose name is the last line printed.
 *
 * Every run measures every case once, so that cases share good and bad moments; a row shows the median of the runs, the least
 * and the most. What is wanted stands beside it; no figure makes the program fail. --quick: small problems, one run.
 * usage: bench [--quick] [--runs N] [--only GROUP] [--json FILE] */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

typedef struct bench_options {
  int         quick, runs;
  const char *only, *json;
} bench_options;

static float     *bench_operands[4];
static bench_case bench_table[BENCH_CASES];

float *bench_data(int which)
{
  return bench_operands[which];
}

void bench_case_init(bench_case *it, const char *group, const char *unit, int (*measure)(const bench_case *it, double *figure))
{
  memset(it, 0, sizeof *it);
  it->group = group;
  it->unit = unit;
  it->measure = measure;
  it->dtype = TWH_F32;
  it->isa = TWH_CPU_ISA_BEST;
  it->threads = 1;
}

void bench_add(bench_list *list, const bench_case *it, const char *format, ...)
{
  va_list rest;

  if (list->count == BENCH_CASES) {
    list->dropped = 1;
    return;
  }
  list->cases[list->count] = *it;
  va_start(rest, format);
  vsnprintf(list->cases[list->count].name, sizeof list->cases[list->count].name, format, rest);
  va_end(rest);
  ++list->count;
}

/* Numbers in [-1, 1). */
static int bench_fill(void)
{
  uint64_t state = 1;

  for (int which = 0; which < 4; ++which) {
    if (posix_memalign((void **)&bench_operands[which], 64, BENCH_ELEMENTS * sizeof(float)) != 0) return 1;
    for (int64_t i = 0; i < BENCH_ELEMENTS; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      bench_operands[which][i] = (float)((double)(state >> 40) / (double)(1 << 23) - 1);
    }
  }
  return 0;
}

static int bench_compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static const char *bench_verdict(const bench_case *it, double median)
{
  if (it->sense == BENCH_ANY) return "";
  return (it->sense == BENCH_AT_MOST ? median <= it->wanted : median >= it->wanted) ? "yes" : "NO";
}

/* Sorts the figures. */
static void bench_print(bench_case *cases, int count, int runs)
{
  printf("%-18s %-54s %10s %10s %10s  %-22s %9s %s\n", "what", "case", "median", "least", "most", "unit", "wanted", "met");
  for (int i = 0; i < count; ++i) {
    bench_case *it = &cases[i];
    char        wanted[16] = "";

    qsort(it->figure, (size_t)runs, sizeof it->figure[0], bench_compare);
    if (it->sense) snprintf(wanted, sizeof wanted, "%s %.4g", it->sense == BENCH_AT_MOST ? "<=" : ">=", it->wanted);
    printf("%-18s %-54s %10.2f %10.2f %10.2f  %-22s %9s %s\n", it->group, it->name, it->figure[runs / 2], it->figure[0],
           it->figure[runs - 1], it->unit, wanted, bench_verdict(it, it->figure[runs / 2]));
  }
}

/* Names are the program's own: nothing in them needs escaping. */
static int bench_write(const char *path, const bench_case *cases, int count, const bench_options *options)
{
  FILE *file = fopen(path, "w");

  if (!file) return 1;
  fprintf(file, "{\n  \"version\": \"%d.%d.%d\", \"instructions\": \"%s\", \"runs\": %d, \"quick\": %s,\n  \"rows\": [",
          TWH_VERSION_MAJOR, TWH_VERSION_MINOR, TWH_VERSION_PATCH, twh_cpu_isa_name(TWH_CPU_ISA_BEST), options->runs,
          options->quick ? "true" : "false");
  for (int i = 0; i < count; ++i) {
    const bench_case *it = &cases[i];
    const double      median = it->figure[options->runs / 2];

    fprintf(file,
            "%s\n    {\"what\": \"%s\", \"case\": \"%s\", \"unit\": \"%s\", \"median\": %.6g, \"least\": %.6g, \"most\": %.6g",
            i ? "," : "", it->group, it->name, it->unit, median, it->figure[0], it->figure[options->runs - 1]);
    if (it->sense)
      fprintf(file, ", \"%s\": %.6g, \"met\": %s", it->sense == BENCH_AT_MOST ? "at_most" : "at_least", it->wanted,
              bench_verdict(it, median)[0] == 'y' ? "true" : "false");
    fprintf(file, "}");
  }
  fprintf(file, "\n  ]\n}\n");
  return fclose(file) != 0;
}

static int bench_read(int argc, char **argv, bench_options *options)
{
  options->quick = 0;
  options->runs = 0;
  options->only = NULL;
  options->json = "bench.json";
  for (int i = 1; i < argc; ++i) {
    const int more = i + 1 < argc;
    if (strcmp(argv[i], "--quick") == 0)
      options->quick = 1;
    else if (strcmp(argv[i], "--runs") == 0 && more)
      options->runs = atoi(argv[++i]);
    else if (strcmp(argv[i], "--only") == 0 && more)
      options->only = argv[++i];
    else if (strcmp(argv[i], "--json") == 0 && more)
      options->json = argv[++i];
    else
      return 1;
  }
  if (options->runs == 0) options->runs = options->quick ? 1 : 7;
  return options->runs < 1 || options->runs > BENCH_RUNS;
}

static int bench_collect(bench_list *list, const bench_options *options)
{
  int kept = 0;

  bench_overhead_cases(list);
  bench_kernel_cases(list);
  bench_whole_cases(list);
  bench_plan_cases(list);
  bench_decode_cases(list);
  bench_accelerator_cases(list);
  for (int i = 0; i < list->count; ++i)
    if (!options->only || strcmp(options->only, list->cases[i].group) == 0) list->cases[kept++] = list->cases[i];
  list->count = kept;
  return list->dropped || kept == 0;
}

int main(int argc, char **argv)
{
  bench_options options;
  bench_list    list = { bench_table, 0, 0, 0 };

  if (bench_read(argc, argv, &options)) {
    fprintf(stderr, "usage: bench [--quick] [--runs 1..%d] [--only GROUP] [--json FILE]\n", BENCH_RUNS);
    return 2;
  }
  list.quick = options.quick;
  if (bench_collect(&list, &options)) {
    fprintf(stderr, "bench: no such group, or too many cases\n");
    return 2;
  }
  if (bench_fill()) return 1;
  for (int run = 0; run < options.runs; ++run)
    for (int i = 0; i < list.count; ++i)
      if (list.cases[i].measure(&list.cases[i], &list.cases[i].figure[run])) return 1;
  printf("the kernel on the CPU: %s; f32 where nothing else is said; median of %d interleaved runs\n",
         twh_cpu_isa_name(TWH_CPU_ISA_BEST), options.runs);
  bench_print(list.cases, list.count, options.runs);
  for (int i = 0; i < 4; ++i) free(bench_operands[i]);
  if (bench_write(options.json, list.cases, list.count, &options)) {
    fprintf(stderr, "bench: cannot write %s\n", options.json);
    return 1;
  }
  printf("%s\n", options.json);
  return 0;
}
