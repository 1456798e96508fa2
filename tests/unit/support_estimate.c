/* Estimated errors beside true ones, for both estimates: rows of a block share their draw, so that there are at least 64 blocks of
 * them, and the share of rows that keep their bounds is compared, not single rows. */
#include "support_estimate.h"

enum { /* short names for the table */
       N = TWH_MASK_NONE,
       C = TWH_MASK_CAUSAL,
       B = TWH_MASK_NONE | TWH_MASK_CAUSAL,
       LSE = TWH_ORACLE_LSE,
       F32 = TWH_F32,
       F16 = TWH_F16,
       BF16 = TWH_BF16,
       KEY = TWH_PROBLEM_KEY_BIAS,
       ALIBI = TWH_PROBLEM_ALIBI
};

enum { ESTIMATE_M = 16, ESTIMATE_ROWS = 1024, ESTIMATE_DIM = 8, ESTIMATE_COORDINATES = 16 };

typedef struct estimate_case {
  int32_t  dtype;
  int64_t  v_dim, samples; /* replicates take 2 at least */
  double   std, mean;
  int      causal, hybrid;
  uint32_t masks, flags;
  int64_t  spare, slots, q_heads, kv_heads, length; /* spare: value columns; below 0: slices of that many */
  uint32_t bias;
} estimate_case;

static const estimate_case estimate_cases[] = {
  /* dtype dv samples std mean causal hybrid masks flags spare slots heads length bias */
  { F32, 8, 1, 0.3, 0, 0, 0, B, 0, 1, 1, 1, 1, 1024, 0 },      { F32, 8, 2, 1.0, 10, 0, 0, B, LSE, 1, 1, 1, 1, 1024, 0 },
  { F32, 64, 1, 0.3, 10, 0, 0, N, LSE, 0, 1, 1, 1, 1024, 0 },  { F32, 64, 2, 1.0, 0, 0, 0, B, 0, 2, 1, 1, 1, 1024, 0 },
  { F32, 8, 4, 0.7, 0, 0, 0, N, 0, 0, 3, 1, 1, 1024, 0 },      { F32, 8, 2, 1.0, 10, 0, 0, N, 0, 0, 1, 1, 1, 1024, 0 },
  { BF16, 8, 2, 0.3, 10, 0, 0, B, 0, 1, 1, 1, 1, 1024, 0 },    { BF16, 8, 3, 1.0, 0, 0, 0, B, LSE, 1, 1, 1, 1, 1024, 0 },
  { BF16, 64, 2, 1.0, 10, 0, 0, N, 0, 2, 1, 1, 1, 1024, 0 },   { BF16, 64, 1, 0.5, 0, 0, 0, N, 0, 0, 1, 1, 1, 1024, 0 },
  { F16, 8, 2, 1.0, 10, 0, 0, N, 0, 1, 1, 1, 1, 1024, 0 },     { F16, 64, 1, 0.5, 10, 0, 0, N, LSE, 0, 2, 1, 1, 1024, 0 },
  { F16, 8, 4, 0.5, 0, 1, 1, B, 0, 2, 1, 1, 1, 1024, 0 },      { F32, 8, 4, 1.0, 0, 1, 0, B, 0, 1, 1, 1, 1, 1024, 0 },
  { F32, 64, 2, 1.0, 10, 1, 0, B, LSE, 1, 1, 1, 1, 1024, 0 },  { F32, 8, 3, 0.5, 0, 1, 1, B, 0, 1, 1, 1, 1, 1024, 0 },
  { F32, 8, 2, 0.5, 10, 0, 1, B, 0, 1, 1, 1, 1, 1024, 0 },     { F32, 64, 2, 0.3, 0, 1, 1, N, LSE, 0, 1, 1, 1, 1024, 0 },
  { F32, 8, 2, 0.7, 10, 0, 0, C, 0, 1, 1, 1, 1, 1024, 0 },     { F32, 8, 2, 1.0, 0, 1, 0, C, LSE, 0, 3, 1, 1, 1024, 0 },
  { BF16, 64, 2, 0.5, 10, 1, 1, C, 0, 1, 1, 1, 1, 1024, 0 },   { F32, 8, 2, 0.7, 0, 0, 0, N, 0, 1, 4, 4, 2, 410, 0 },
  { F32, 64, 2, 0.7, 10, 1, 0, B, LSE, 0, 2, 3, 1, 555, 0 },   { F32, 8, 3, 0.5, 10, 0, 0, N, 0, 1, 1, 1, 1, 1024, KEY },
  { F32, 8, 3, 0.5, 0, 1, 0, N, LSE, 1, 1, 2, 1, 777, ALIBI }, { F32, 8, 2, 0.5, 10, 0, 1, N, 0, 0, 1, 2, 2, 777, KEY | ALIBI },
  { F32, 24, 2, 0.7, 10, 0, 0, N, 0, -5, 1, 1, 1, 1024, 0 },   { F32, 9, 2, 0.7, 0, 1, 0, N, LSE, -3, 2, 1, 1, 1024, 0 },
  { F32, 8, 44, 1.0, 0, 0, 0, N, 0, 2, 3, 1, 1, 1024, 0 }, /* most of the keys */
};

void support_estimate_init(support_estimate *s, int64_t length, int64_t m, int64_t v_dim)
{
  memset(s, 0, sizeof *s);
  s->fill.logit_std = 1;
  twh_pattern_init(&s->pattern);
  twh_problem_init(&s->problem);
  s->problem.batch = s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.q_len = s->problem.k_len = length;
  s->problem.qk_dim = ESTIMATE_DIM;
  s->problem.v_dim = v_dim;
  s->problem.pattern = &s->pattern;
  twh_oracle_desc_init(&s->desc);
  s->desc.slots = 1;
  s->desc.q_len = s->desc.k_len = m;
  s->desc.qk_dim = ESTIMATE_DIM;
  s->desc.v_dim = v_dim + 1;
  s->desc.dtype = F32;
  s->desc.mask_modes = B;
  s->desc.scale = 0.3;
  twh_plan_options_init(&s->options);
  s->options.method = TWH_METHOD_SAMPLED;
  s->options.estimate = TWH_ESTIMATE_DOUBLED;
}

void support_estimate_begin(support_estimate *s, const twh_context *context, uint64_t seed)
{
  support_random random = support_random_at(seed, 9);
  twh_error      error;
  int64_t        j, h;
  twh_error_init(&error);
  s->options.seed = s->options.method == TWH_METHOD_EXACT ? 0 : seed;
  support_oracle_create(&s->oracle, context, &s->desc, NULL);
  support_assert_status(twh_plan_create(context, &s->problem, &s->oracle.oracle, 1, &s->options, &s->plan, &error), TWH_OK,
                        &error, NULL);
  twh_plan_info_init(&s->info);
  assert_int_equal(twh_plan_get_info(s->plan, &s->info, NULL), TWH_OK);
  support_tensors_create(&s->tensors, &s->problem, F32, SUPPORT_DENSE, s->tensor_flags);
  support_tensors_fill(&s->tensors, &s->problem, &s->fill, &random);
  for (h = 0; s->tensors.all.key_bias && h < s->problem.q_heads; ++h)
    for (j = 0; j < s->tensors.k_rows; ++j)
      support_set(&s->tensors.key_bias, 0, h, j, 0, s->key_bias * support_normal(&random));
  for (h = 0; s->tensors.all.alibi_slopes && h < s->problem.q_heads; ++h)
    support_set(&s->tensors.slopes, 0, h, 0, 0, h % 2 ? -s->slope : s->slope);
  s->rows = s->tensors.batch * s->problem.q_heads * s->tensors.q_rows;
  s->bounds = (double *)calloc((size_t)s->rows, sizeof *s->bounds);
  assert_non_null(s->bounds);
  twh_tensor_dense(&s->error, TWH_F64, s->bounds, s->problem.q_heads, s->tensors.q_rows, 1);
  if (s->options.estimate) s->tensors.all.error = &s->error;
}

void support_estimate_execute(support_estimate *s)
{
  twh_run_options options;
  twh_error       error;
  int64_t         r;
  twh_error_init(&error);
  twh_run_options_init(&options);
  twh_run_stats_init(&s->stats);
  options.stats = &s->stats;
  for (r = 0; r < s->rows; ++r) s->bounds[r] = (double)NAN;
  support_tensors_clear(&s->tensors);
  support_oracle_reset(&s->oracle);
  support_assert_status(twh_plan_execute(s->plan, &s->tensors.all, &options, &error), TWH_OK, &error, NULL);
  assert_string_equal(s->oracle.broken, "");
  assert_int_equal(s->stats.calls, s->oracle.calls);
}

void support_estimate_end(support_estimate *s)
{
  free(s->bounds);
  support_tensors_destroy(&s->tensors);
  twh_plan_destroy(s->plan);
  support_oracle_destroy(&s->oracle);
}

void support_estimate_compare(const support_estimate *s, double *errors, double *lengths)
{
  support_answer truth, got;
  int64_t        r, c, dim = s->problem.v_dim;
  support_answer_truth(&truth, &s->problem, &s->tensors);
  support_answer_read(&got, &s->problem, &s->tensors);
  assert_int_equal(truth.rows, s->rows);
  for (r = 0; r < s->rows; ++r) {
    double squares = 0, length = 0;
    for (c = 0; c < dim; ++c) {
      double want = truth.out[r * dim + c], error = got.out[r * dim + c] - want;
      squares += error * error;
      length += want * want;
    }
    errors[r] = sqrt(squares);
    if (lengths) lengths[r] = sqrt(length);
  }
  support_answer_destroy(&got);
  support_answer_destroy(&truth);
}

static void estimate_begin_case(support_estimate *s, const estimate_case *row, int32_t estimate, uint64_t seed)
{
  support_estimate_init(s, row->length, ESTIMATE_M, row->v_dim);
  s->pattern.flags = row->causal ? TWH_CAUSAL : 0;
  s->problem.q_heads = row->q_heads;
  s->problem.kv_heads = row->kv_heads;
  s->problem.flags = row->bias;
  s->key_bias = 0.5;
  s->slope = 0.002;
  s->fill.logit_std = row->std;
  s->fill.value_mean = row->mean;
  s->desc.dtype = row->dtype;
  s->desc.mask_modes = row->masks;
  s->desc.flags = row->flags;
  s->desc.slots = row->slots;
  s->desc.v_dim = row->spare < 0 ? -row->spare : row->v_dim + row->spare;
  s->desc.qk_dim += row->bias || (row->causal && row->masks == N) ? ESTIMATE_COORDINATES : 0;
  s->options.method = row->hybrid ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
  s->options.estimate = estimate;
  s->options.samples = estimate == TWH_ESTIMATE_REPLICATES && row->samples < 2 ? 2 : row->samples;
  support_estimate_begin(s, NULL, seed);
}

static void estimate_check_case(support_estimate *s, int64_t number)
{
  double *errors = (double *)malloc((size_t)s->rows * sizeof *errors), covered;
  int64_t r, kept = 0, counted = 0;
  assert_non_null(errors);
  support_estimate_execute(s);
  support_estimate_compare(s, errors, NULL);
  for (r = 0; r < s->rows; ++r) {
    if (!(s->bounds[r] >= 0 && s->bounds[r] < 1e6)) fail_msg("case %d: bound %g", (int)number, s->bounds[r]);
    if (s->bounds[r] == 0) continue;
    ++counted;
    kept += errors[r] <= s->bounds[r];
  }
  free(errors);
  covered = (double)kept / (double)counted;
  if (getenv("TWH_VERBOSE")) print_message("case %d: %.1f%% of %d rows\n", (int)number, 100 * covered, (int)counted);
  if (!(counted >= (s->pattern.flags & TWH_CAUSAL ? 900 : 1024) && covered >= 0.87 && covered <= 0.997))
    fail_msg("case %d: %.1f%% of %d rows keep their bounds", (int)number, 100 * covered, (int)counted);
}

int64_t support_estimate_covers(int32_t estimate)
{
  int64_t i, ran = 0;
  for (i = 0; i < SUPPORT_COUNT(estimate_cases); ++i) {
    static support_estimate s;
    if (estimate == TWH_ESTIMATE_REPLICATES && estimate_cases[i].masks == C) continue; /* a sample takes two tiles there */
    estimate_begin_case(&s, &estimate_cases[i], estimate, 40 + (uint64_t)i);
    estimate_check_case(&s, i);
    support_estimate_end(&s);
    ++ran;
  }
  return ran;
}
