/* The table of kernels that tests run over, what the library must be able to do with them, and one-shot solving.
 *
 * The table names each way to read a sum (lse in both bases, spare value columns, buckets, slices), each set of masks, each
 * dtype and each liberty a kernel can give, not their product: random cases mix them freely. */
#include "support.h"

enum { /* short names for the table */
  N = TWH_MASK_NONE, C = TWH_MASK_CAUSAL, T = TWH_MASK_TENSOR,
  LSE = TWH_ORACLE_LSE, TWO = TWH_ORACLE_LSE_BASE2, INF = TWH_ORACLE_EMPTY_LSE_POS_INF, STRIDED = TWH_ORACLE_STRIDED,
  ROWS = TWH_ORACLE_FEWER_ROWS, KEYS = TWH_ORACLE_FEWER_KEYS, SLOTS = TWH_ORACLE_FEWER_SLOTS, EACH = TWH_ORACLE_SCALE_PER_CALL,
  HALF = TWH_ORACLE_F16_SCORES, F32 = TWH_F32, F16 = TWH_F16, BF16 = TWH_BF16, BIT = TWH_BOOL
};

const support_kernel support_kernels[] = {
  /* name                      modes      flags                          dtype  out  mask   slots  qk  v  slice  off  ratio */
  {"none, lse",               N,         LSE,                           F32,   0,   0,        1,  0, 0,     0,   0,    0.0},
  {"none, lse base 2",        N,         LSE | TWO,                     F32,   0,   0,        3,  1, 0,     0,   0,    0.0},
  {"none, one spare column",  N,         0,                             F32,   0,   0,        2,  0, 1,     0,   0,    0.0},
  {"none, two spare columns", N,         0,                             F32,   0,   0,        1,  0, 2,     0,   0,    0.5},
  {"none, spare everywhere",  N,         0,                             F32,   0,   0,       12,  1, 1,     0,   0,    0.0},
  {"none, buckets",           N,         0,                             F32,   0,   0,        1,  0, 0,     0,   0,    0.0},
  {"none, buckets, coord",    N,         STRIDED,                       F32,   0,   0,        5,  1, 0,     0,   0,    2.0},
  {"none, slices of 1",       N,         0,                             F32,   0,   0,        1,  0, 0,     1,   0,    0.0},
  {"none, slices of 2, lse",  N,         LSE,                           F32,   0,   0,        2,  0, 0,     2,   0,    0.0},
  {"none, any keys",          N,         KEYS,                          F32,   0,   0,        1,  0, 1,     0,   0,    0.0},
  {"none, any sizes",         N,         KEYS | ROWS | SLOTS | STRIDED, F32,   0,   0,        3,  0, 0,     0,   0,    0.0},
  {"causal, lse",             C,         LSE,                           F32,   0,   0,        1,  0, 0,     0,   0,    0.0},
  {"causal, lse, +inf",       C,         LSE | INF,                     F32,   0,   0,        2,  1, 0,     0,  -1,    0.0},
  {"causal, spare column",    C,         0,                             F32,   0,   0,        1,  0, 1,     0,   0,    0.0},
  {"causal, two columns",     C,         0,                             F32,   0,   0,        3,  0, 2,     0,  -1,    0.0},
  {"causal, buckets",         C,         0,                             F32,   0,   0,        1,  0, 0,     0,   0,    0.0},
  {"causal, buckets, coord",  C,         ROWS,                          F32,   0,   0,        1,  1, 0,     0,   0,    0.0},
  {"causal, slices of 2",     C,         0,                             F32,   0,   0,        1,  0, 0,     2,   0,    0.0},
  {"mask, lse",               T,         LSE,                           F32,   0,   0,        1,  0, 0,     0,   0,    0.0},
  {"mask, lse, +inf, bool",   T,         LSE | INF,                     F32,   0,   BIT,      2,  0, 0,     0,   0,    0.0},
  {"mask, spare column",      T,         0,                             F32,   0,   0,        1,  0, 1,     0,   0,    0.0},
  {"mask, buckets, bool",     T,         0,                             F32,   0,   BIT,      3,  0, 0,     0,   0,    0.0},
  {"none + causal, lse",      N | C,     LSE,                           F32,   0,   0,        1,  0, 0,     0,   0,    0.0},
  {"none + causal, column",   N | C,     EACH,                          F32,   0,   0,        1,  0, 1,     0,   0,    0.0},
  {"none + causal, buckets",  N | C,     0,                             F32,   0,   0,        2,  0, 0,     0,   0,    0.0},
  {"all modes, column",       N | C | T, 0,                             F32,   0,   0,        1,  0, 1,     0,   0,    0.0},
  {"all modes, f16, lse",     N | C | T, LSE,                           F16,   0,   0,        1,  0, 0,     0,   0,    0.0},
  {"none, f16, column",       N,         0,                             F16,   F32, 0,        1,  0, 1,     0,   0,    0.0},
  {"none, f16, buckets",      N,         0,                             F16,   0,   0,        1,  0, 0,     0,   0,    0.0},
  {"causal, f16, column",     C,         0,                             F16,   0,   0,        1,  1, 1,     0,   0,    0.0},
  {"causal, f16, scores",     C,         HALF,                          F16,   0,   0,        1,  0, 2,     0,   0,    0.0},
  {"none, bf16, column",      N,         0,                             BF16,  0,   0,        1,  0, 1,     0,   0,    0.0},
  {"none, bf16, buckets",     N,         0,                             BF16,  F32, 0,        2,  1, 0,     0,   0,    0.0},
  {"causal, bf16, buckets",   C,         0,                             BF16,  0,   0,        1,  0, 0,     0,   0,    0.0},
  {"mask, bf16, column",      T,         0,                             BF16,  0,   F32,      1,  0, 1,     0,   0,    0.0},
  {"none, 16 coords, column", N,         0,                             F32,   0,   0,        1, 16, 1,     0,   0,    0.0},
  {"none, 10 coords, lse",    N,         LSE,                           F32,   0,   0,        3, 10, 0,     0,   0,   -1.0},
  {"none, 4 coords, buckets", N,         0,                             F32,   0,   0,        1,  4, 0,     0,   0,    0.0},
  {"none, 6, any sizes",      N,         KEYS | ROWS | EACH,            F32,   0,   0,        1,  6, 2,     0,   0,    0.0},
  {"causal, 16, column",      C,         0,                             F32,   0,   0,        1, 16, 1,     0,   0,    0.0},
  {"causal, 3, lse",          C,         LSE,                           F32,   0,   0,        2,  3, 0,     0,   0,    0.0},
  {"none + causal, 8, lse",   N | C,     LSE,                           F32,   0,   0,        1,  8, 0,     0,   0,    0.0},
  {"mask, 5 coords, column",  T,         STRIDED,                       F32,   0,   0,        2,  5, 1,     0,   0,    0.0},
  {"none, f16, 12, lse",      N,         LSE,                           F16,   0,   0,        1, 12, 0,     0,   0,    0.0},
  {"causal, f16, 9, column",  C,         0,                             F16,   F32, 0,        1,  9, 1,     0,   0,    0.0},
  {"none, bf16, 12, column",  N,         0,                             BF16,  0,   0,        1, 12, 1,     0,   0,    0.0},
  {"causal, bf16, 8, lse",    C,         LSE,                           BF16,  F32, 0,        1,  8, 0,     0,  -1,    0.0}
};

const int64_t support_kernel_count = SUPPORT_COUNT(support_kernels);

void support_kernel_desc(const support_kernel *kernel, const twh_problem *problem, int64_t q_len, int64_t k_len,
                         twh_oracle_desc *desc)
{
  double scale = support_scale(problem);
  twh_oracle_desc_init(desc);
  desc->flags = kernel->flags;
  desc->slots = kernel->slots;
  desc->q_len = q_len;
  desc->k_len = k_len;
  desc->qk_dim = problem->qk_dim + kernel->spare_qk;
  desc->v_dim = kernel->v_slice ? kernel->v_slice : problem->v_dim + kernel->spare_v;
  desc->dtype = kernel->dtype;
  desc->out_dtype = kernel->out_dtype;
  desc->mask_dtype = kernel->mask_dtype;
  desc->mask_modes = kernel->mask_modes;
  desc->causal_offset = kernel->causal_offset;
  desc->scale = (scale == 0.0 ? 1.0 : scale) * (kernel->scale_ratio != 0.0 ? kernel->scale_ratio : 1.0);
  desc->softcap = problem->softcap;
}

int64_t support_bias_coordinates(const twh_oracle_desc *desc)
{
  return desc->dtype == TWH_F32 ? 1 : 3;
}

int support_must_run(const twh_problem *problem, const twh_oracle_desc *desc)
{
  uint32_t modes = desc->mask_modes;
  int      causal_fits = (modes & TWH_MASK_CAUSAL) && desc->causal_offset <= 0 && desc->q_len + desc->causal_offset >= 1;
  if (desc->softcap != problem->softcap || desc->qk_dim < problem->qk_dim) return 0;
  if (problem->flags & (TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI)) { /* they reach the scores through the kernel's scale */
    if ((desc->flags & TWH_ORACLE_SCALE_PER_CALL) && support_scale(problem) == 0.0) return 0;
    if (desc->softcap > 0.0 || desc->qk_dim - problem->qk_dim < support_bias_coordinates(desc)) return 0;
  }
  if (problem->mask_dtype) {
    int adds = desc->mask_dtype != TWH_BOOL;
    return (modes & TWH_MASK_TENSOR) && (adds || problem->mask_dtype == TWH_BOOL);
  }
  return causal_fits || (modes & (TWH_MASK_NONE | TWH_MASK_TENSOR)) != 0;
}

twh_status support_solve(const char *name, const twh_problem *problem, const twh_oracle_desc *desc, support_tensors *tensors,
                         twh_run_stats *stats, twh_error *error)
{
  support_oracle  oracle;
  twh_plan       *plan = NULL;
  twh_plan_info   info;
  twh_run_options options;
  twh_run_stats   own;
  twh_error       unused;
  twh_status      status;
  const char     *wrong = NULL;
  twh_error_init(&unused);
  twh_run_stats_init(&own);
  if (!stats) stats = &own;
  if (!error) error = &unused;
  support_oracle_create(&oracle, NULL, desc, NULL);
  status = twh_plan_create(NULL, problem, &oracle.oracle, 1, NULL, &plan, error);
  if (status < 0) {
    if (plan) wrong = "a plan was returned with an error";
  } else {
    twh_plan_info_init(&info);
    (void)twh_plan_get_info(plan, &info, error);
    twh_run_options_init(&options);
    options.stats = stats;
    status = twh_plan_execute(plan, &tensors->all, &options, error);
    if (status >= 0 && !problem->mask_dtype && oracle.calls != info.calls + stats->repair_calls)
      wrong = "calls differ from the plan's";
    if (oracle.calls > info.calls + stats->repair_calls) wrong = "more calls than planned";
    if (status >= 0 && (stats->calls != oracle.calls || stats->batches != oracle.batches))
      wrong = "calls differ from the statistics";
    if (stats->repair_calls > info.repair_calls_max) wrong = "more repairs than the plan says";
    if (!support_tensors_gaps_untouched(tensors, problem)) wrong = "something was written outside out and lse";
    twh_plan_destroy(plan);
  }
  if (oracle.broken[0]) {
    print_error("%s: the contract was broken: %s\n", name, oracle.broken);
    fail();
  }
  support_oracle_destroy(&oracle);
  if (wrong) {
    print_error("%s: %s\n", name, wrong);
    fail();
  }
  return status;
}
