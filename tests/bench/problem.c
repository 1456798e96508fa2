/* A case of the benchmark as a problem on the kernel on the CPU: everything up to an execute, which then allocates nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

const char *bench_pattern_name(int32_t pattern)
{
  return pattern == BENCH_FULL ? "full" : pattern == BENCH_CAUSAL ? "causal" : "window 512";
}

double bench_pairs(const bench_case *it)
{
  const double n = (double)it->n, wide = BENCH_LEFT + 1;

  if (it->pattern == BENCH_FULL) return n * n;
  if (it->pattern == BENCH_CAUSAL || n <= wide) return n * (n + 1) / 2;
  return wide * (wide + 1) / 2 + (n - wide) * wide;
}

int bench_fail(const bench_case *it, const char *what)
{
  fprintf(stderr, "%s, %s: %s\n", it->group, it->name, what);
  return 1;
}

void bench_describe(twh_oracle_desc *desc, const bench_case *it)
{
  twh_oracle_desc_init(desc);
  desc->slots = 1;
  desc->q_len = it->m;
  desc->k_len = it->k_len ? it->k_len : it->m;
  desc->qk_dim = it->dim + it->codes;
  desc->v_dim = it->dim + it->spare;
  desc->dtype = it->dtype;
  desc->out_dtype = TWH_F32;
  desc->scale = 1 / sqrt((double)it->dim);
  desc->flags = TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS | TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS |
                TWH_ORACLE_FEWER_SLOTS;
  if (!it->spare) desc->flags |= it->apart ? TWH_ORACLE_LSE : TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES;
  desc->mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
}

twh_oracle *bench_oracle(const bench_case *it)
{
  twh_oracle_desc desc;
  twh_cpu_options options;
  twh_oracle     *oracle = NULL;
  twh_error       error;

  bench_describe(&desc, it);
  twh_cpu_options_init(&options);
  options.isa = it->isa;
  twh_error_init(&error);
  if (twh_cpu_oracle_create(NULL, &desc, &options, &oracle, &error) < 0) bench_fail(it, error.message);
  return oracle;
}

static twh_status problem_plan(bench_problem *problem, const bench_case *it, twh_error *error)
{
  twh_problem what;

  twh_problem_init(&what);
  twh_pattern_init(&problem->pattern);
  problem->pattern.flags = it->pattern == BENCH_FULL ? 0 : it->pattern == BENCH_CAUSAL ? TWH_CAUSAL : TWH_CAUSAL | TWH_LEFT;
  problem->pattern.left = it->pattern == BENCH_WINDOW ? BENCH_LEFT : 0;
  what.pattern = &problem->pattern;
  what.batch = what.q_heads = what.kv_heads = 1;
  what.q_len = what.k_len = it->n;
  what.qk_dim = what.v_dim = it->dim;
  return twh_plan_create(problem->context, &what, &problem->oracle, 1, NULL, &problem->plan, error);
}

/* Memory that was touched: the first use of a page is no part of what is measured. */
static int problem_workspace(bench_problem *problem)
{
  twh_plan_info info;

  twh_plan_info_init(&info);
  if (twh_plan_get_info(problem->plan, &info, NULL) < 0) return 1;
  problem->options.workspace_bytes = (size_t)info.workspace_bytes;
  if (posix_memalign(&problem->workspace, (size_t)(info.workspace_alignment < 64 ? 64 : info.workspace_alignment),
                     (size_t)info.workspace_bytes + 64) != 0)
    return 1;
  memset(problem->workspace, 0, (size_t)info.workspace_bytes);
  problem->options.workspace = problem->workspace;
  return 0;
}

int bench_open(bench_problem *problem, const bench_case *it, twh_oracle *oracle)
{
  twh_context_desc desc;
  twh_error        error;

  memset(problem, 0, sizeof *problem);
  problem->oracle = oracle ? oracle : bench_oracle(it);
  if (!problem->oracle) return 1;
  twh_error_init(&error);
  twh_context_desc_init(&desc);
  desc.parallelism = it->threads;
  if (twh_context_create(&desc, &problem->context, &error) < 0 || problem_plan(problem, it, &error) < 0)
    return bench_fail(it, error.message);
  twh_tensor_dense(&problem->q, TWH_F32, bench_data(0), 1, it->n, it->dim);
  twh_tensor_dense(&problem->k, TWH_F32, bench_data(1), 1, it->n, it->dim);
  twh_tensor_dense(&problem->v, TWH_F32, bench_data(2), 1, it->n, it->dim);
  twh_tensor_dense(&problem->out, TWH_F32, bench_data(3), 1, it->n, it->dim);
  twh_tensors_init(&problem->tensors);
  problem->tensors.q = &problem->q;
  problem->tensors.k = &problem->k;
  problem->tensors.v = &problem->v;
  problem->tensors.out = &problem->out;
  twh_run_options_init(&problem->options);
  twh_run_stats_init(&problem->stats);
  problem->options.stats = &problem->stats;
  return problem_workspace(problem) ? bench_fail(it, "no memory for the workspace") : 0;
}

int bench_execute(bench_problem *problem)
{
  twh_error error;

  twh_error_init(&error);
  if (twh_plan_execute(problem->plan, &problem->tensors, &problem->options, &error) >= 0) return 0;
  fprintf(stderr, "%s\n", error.message);
  return 1;
}

void bench_close(bench_problem *problem)
{
  free(problem->workspace);
  twh_plan_destroy(problem->plan);
  twh_oracle_destroy(problem->oracle);
  twh_context_destroy(problem->context);
}
