/* Each key and value block is encoded once per order and panel, not once per tile; and not at all where the host's memory will
 * do as it lies, forwards or backwards. Rows that the host computes need no encoding at all. */
#include "support_slot.h"

enum { ENCODING_M = 64, ENCODING_DIM = 16, ENCODING_KV_HEADS = 2 };

typedef struct encoding_case {
  const char *name;
  uint32_t    modes, flags, pattern;
  int32_t     dtype;
  int64_t     spare, q_blocks, k_blocks, workspace_limit;
  int64_t     encoded; /* of one kv head */
} encoding_case;

static const encoding_case encoding_cases[] = {
  { "keys and values once", TWH_MASK_NONE, 0, 0, TWH_F16, 1, 8, 8, 0, 2 * 8 },
  { "values alone need a column", TWH_MASK_NONE, 0, 0, TWH_F32, 1, 8, 8, 0, 8 },
  { "nothing has to change", TWH_MASK_NONE, TWH_ORACLE_LSE, 0, TWH_F32, 0, 8, 8, 0, 0 },
  { "natural and reversed", TWH_MASK_CAUSAL, 0, TWH_CAUSAL, TWH_F16, 1, 8, 8, 0, 2 * (8 + 7) },
  { "a panel of two units", TWH_MASK_NONE, 0, 0, TWH_F16, 1, 1, 256, 900000, 2 * 256 },
};

static void encoding_desc(const encoding_case *row, twh_oracle_desc *desc)
{
  twh_oracle_desc_init(desc);
  desc->slots = 1;
  desc->q_len = desc->k_len = ENCODING_M;
  desc->qk_dim = ENCODING_DIM;
  desc->v_dim = ENCODING_DIM + row->spare;
  desc->dtype = row->dtype;
  desc->flags = row->flags;
  desc->mask_modes = row->modes;
  desc->scale = 0.25;
  desc->alignment = 4;
}

static void encoding_problem(const encoding_case *row, twh_pattern *pattern, twh_problem *problem)
{
  twh_pattern_init(pattern);
  pattern->flags = row->pattern;
  twh_problem_init(problem);
  problem->batch = 1;
  problem->q_heads = 2 * ENCODING_KV_HEADS; /* two query heads share what is encoded */
  problem->kv_heads = ENCODING_KV_HEADS;
  problem->q_len = row->q_blocks * ENCODING_M;
  problem->k_len = row->k_blocks * ENCODING_M;
  problem->qk_dim = problem->v_dim = ENCODING_DIM;
  problem->pattern = pattern;
}

/* Returns the number of encoded blocks. */
static int64_t encoding_execute(const twh_oracle_desc *desc, const twh_problem *problem, int64_t workspace_limit,
                                const support_tensors *tensors)
{
  twh_oracle      *oracle = NULL;
  twh_plan_options limits;
  twh_plan        *plan = NULL;
  twh_run_options  options;
  twh_run_stats    stats;

  twh_plan_options_init(&limits);
  limits.workspace_limit = workspace_limit;
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  assert_int_equal(twh_reference_oracle_create(NULL, desc, NULL, &oracle, NULL), TWH_OK);
  assert_int_equal(twh_plan_create(NULL, problem, &oracle, 1, &limits, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_execute(plan, &tensors->all, &options, NULL), TWH_OK);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  return stats.encoded_blocks;
}

static void encoding_run(const encoding_case *row)
{
  const support_fill fill = { 1, 0, 0, 0, 0, 0 };
  support_random     random = support_random_at(1, 1);
  support_tensors    tensors;
  twh_oracle_desc    desc;
  twh_problem        problem;
  twh_pattern        pattern;
  int64_t            encoded;

  encoding_desc(row, &desc);
  encoding_problem(row, &pattern, &problem);
  support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, 0);
  support_tensors_fill(&tensors, &problem, &fill, &random);
  encoded = encoding_execute(&desc, &problem, row->workspace_limit, &tensors);
  if (encoded != row->encoded * ENCODING_KV_HEADS) print_error("%s\n", row->name);
  assert_int_equal(encoded, row->encoded * ENCODING_KV_HEADS);
  support_tensors_destroy(&tensors);
}

static void encoding_is_done_once_per_order_and_panel(void **state)
{
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(encoding_cases); ++i) encoding_run(&encoding_cases[i]);
}

/* ---- turned triangles: their rows are read backwards where they lie ---- */

typedef struct encoding_turned {
  uint32_t modes, pattern;
  int64_t  left, len;
  int32_t  layout;
} encoding_turned;

enum { NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL };

static const encoding_turned encoding_turned_cases[] = {
  { NONE | CAUSAL, TWH_CAUSAL | TWH_LEFT, ENCODING_M - 1, 8 * ENCODING_M, SUPPORT_DENSE },
  { NONE | CAUSAL, TWH_CAUSAL | TWH_LEFT, ENCODING_M / 2, 8 * ENCODING_M - 13, SUPPORT_GAPS },
  { NONE | CAUSAL, TWH_CAUSAL | TWH_LEFT, 2 * ENCODING_M + 5, 8 * ENCODING_M, SUPPORT_PACKED_HEADS },
  { NONE | CAUSAL, TWH_LEFT | TWH_RIGHT, ENCODING_M, 6 * ENCODING_M + 1, SUPPORT_DENSE },
  { CAUSAL, TWH_CAUSAL, 0, 4 * ENCODING_M, SUPPORT_DENSE },
};

static void rows_that_go_backwards_are_not_encoded(void **state)
{
  const support_fill fill = { 1, 0, 0, 0, 0, 0 };
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(encoding_turned_cases); ++i) {
    const encoding_turned *row = &encoding_turned_cases[i];
    const encoding_case    like = { "turned", row->modes,
                                    TWH_ORACLE_LSE | TWH_ORACLE_STRIDED | TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS,
                                    row->pattern, TWH_F32, 0, 1, 1, 0, 0 };
    support_random         random = support_random_at(2, (uint64_t)i);
    support_tensors        tensors;
    twh_oracle_desc        desc;
    twh_problem            problem;
    twh_pattern            pattern;
    unsigned char         *before;
    encoding_desc(&like, &desc);
    encoding_problem(&like, &pattern, &problem);
    pattern.left = row->left;
    pattern.right = row->pattern & TWH_RIGHT ? row->left : 0;
    problem.q_len = problem.k_len = row->len;
    support_tensors_create(&tensors, &problem, TWH_F32, row->layout, 0);
    support_tensors_fill(&tensors, &problem, &fill, &random);
    assert_true(encoding_execute(&desc, &problem, 0, &tensors) > 0);
    before = (unsigned char *)malloc(tensors.bytes[3]);
    assert_non_null(before);
    memcpy(before, tensors.memory[3], tensors.bytes[3]);
    support_tensors_clear(&tensors);
    desc.flags |= TWH_ORACLE_BACKWARDS;
    assert_int_equal(encoding_execute(&desc, &problem, 0, &tensors), 0);
    assert_memory_equal(before, tensors.memory[3], tensors.bytes[3]);
    free(before);
    support_tensors_destroy(&tensors);
  }
}

/* ---- rows that the host computes: dimensions and keys beyond every piece that it works in ---- */

enum { ENCODING_ROWS = 40, ENCODING_KEYS = 640, ENCODING_QK = 330, ENCODING_V = 90, ENCODING_SLICE = 48 };

typedef struct encoding_host {
  float         q[ENCODING_ROWS][ENCODING_QK], k[ENCODING_KEYS][ENCODING_QK], v[ENCODING_KEYS][ENCODING_V];
  float         out[2][ENCODING_ROWS][ENCODING_SLICE];
  double        m[ENCODING_ROWS], a[ENCODING_ROWS], factor[ENCODING_ROWS];
  twh__lowering lowering;
  twh__shape    shape;
  twh__span     span;
  twh__tile     tile;
  twh__view     views[3];
} encoding_host;

/* Rows that see `width` keys each. */
static void encoding_host_make(encoding_host *made, int64_t width, int64_t dim, int64_t v_dim, int64_t rows)
{
  const twh__edge one = { 0, 1, 1, 1 };
  support_random  random = support_random_at(28, (uint64_t)width);

  memset(made, 0, sizeof *made);
  for (int64_t i = 0; i < ENCODING_ROWS * ENCODING_QK; ++i) (&made->q[0][0])[i] = (float)(0.1 * support_normal(&random));
  for (int64_t i = 0; i < ENCODING_KEYS * ENCODING_QK; ++i) (&made->k[0][0])[i] = (float)support_normal(&random);
  for (int64_t i = 0; i < ENCODING_KEYS * ENCODING_V; ++i) (&made->v[0][0])[i] = (float)support_normal(&random);
  slot_view(&made->views[0], made->q, 0, ENCODING_QK);
  slot_view(&made->views[1], made->k, 0, ENCODING_QK);
  slot_view(&made->views[2], made->v, 0, ENCODING_V);
  made->lowering.dtype = made->lowering.out_dtype = TWH_F32;
  made->lowering.kernel_scale = made->lowering.q_factor = made->lowering.power = 1;
  made->lowering.v_dim = ENCODING_SLICE;
  made->shape.qk_dim = dim;
  made->shape.v_dim = v_dim;
  made->span.q_len = made->tile.rows = made->tile.unit.rows = rows;
  made->span.k_len = made->tile.keys = rows + width - 1;
  made->tile.at_step = 1;
  made->tile.from = made->tile.seen = one;
  made->tile.seen.start = width;
  made->tile.mode = TWH__MODE_HOST;
}

static void encoding_host_run(encoding_host *made)
{
  twh__source source;
  twh__result result;
  twh__state  leaf;

  memset(&source, 0, sizeof source);
  memset(&result, 0, sizeof result);
  memset(&leaf, 0, sizeof leaf);
  source.lowering = result.lowering = &made->lowering;
  source.shape = result.shape = &made->shape;
  source.spans = &made->span;
  source.q = &made->views[0];
  source.k = &made->views[1];
  source.v = &made->views[2];
  result.tile = &made->tile;
  result.out = (char *)made->out;
  result.out_row_bytes = sizeof made->out[0][0];
  result.slice_bytes = sizeof made->out[0];
  leaf.m = made->m;
  leaf.a = made->a;
  leaf.factor = made->factor;
  twh__decode_all_host(&result, &source, &leaf);
}

static double encoding_weight(const encoding_host *made, int64_t r, int64_t j)
{
  double sum = 0;
  for (int64_t c = 0; c < made->shape.qk_dim; ++c) sum += (double)made->q[r][c] * (double)made->k[j][c];
  return exp(sum);
}

static void encoding_host_check(int64_t width, int64_t dim, int64_t v_dim, int64_t rows)
{
  static encoding_host made;
  static double        want[ENCODING_V];

  encoding_host_make(&made, width, dim, v_dim, rows);
  encoding_host_run(&made);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    memset(want, 0, sizeof want);
    for (int64_t j = r; j < r + width; ++j) {
      double weight = encoding_weight(&made, r, j);
      sum += weight;
      for (int64_t c = 0; c < v_dim; ++c) want[c] += weight * (double)made.v[j][c];
    }
    support_assert_at_most(fabs(made.m[r] + log(made.a[r]) - log(sum)), 1e-12, "lse");
    for (int64_t c = 0; c < v_dim; ++c) {
      double got = (double)made.out[c / ENCODING_SLICE][r][c % ENCODING_SLICE];
      support_assert_at_most(fabs(got - want[c] / sum), 1e-6, "output");
    }
  }
}

static void rows_of_the_host_have_any_width(void **state)
{
  (void)state;
  encoding_host_check(1, 5, 3, 40);
  encoding_host_check(3, 330, 90, 6);
  encoding_host_check(600, 7, 70, 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(encoding_is_done_once_per_order_and_panel),
    cmocka_unit_test(rows_that_go_backwards_are_not_encoded),
    cmocka_unit_test(rows_of_the_host_have_any_width),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
