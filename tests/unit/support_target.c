/* Blocks of rows are told apart by the tiles of an exact plan: rows of a tile are computed together. */
#include "support_target.h"

enum {
  N = TWH_MASK_NONE,
  C = TWH_MASK_CAUSAL,
  B = TWH_MASK_NONE | TWH_MASK_CAUSAL,
  LSE = TWH_ORACLE_LSE,
  DOUBLED = TWH_ESTIMATE_DOUBLED,
  REPLICATES = TWH_ESTIMATE_REPLICATES
};

const support_target_case support_target_cases[] = {
  /* estimate dtype std causal hybrid ragged masks flags spare slots heads length coordinates flags m samples batch limit */
  { DOUBLED, TWH_F32, 4, 0, 0, 0, N, LSE, 1, 1, 1, 1, 600, 0, 0, 0, 0, 0, 0 },
  { DOUBLED, TWH_F32, 4, 1, 0, 0, B, 0, 2, 1, 2, 2, 333, 0, 0, 0, 0, 0, 0 },
  { REPLICATES, TWH_F32, 4, 0, 0, 0, N, 0, 1, 3, 4, 2, 203, 0, 0, 0, 0, 0, 0 },
  { REPLICATES, TWH_F32, 4, 1, 1, 0, B, LSE, 0, 1, 2, 1, 300, 0, 0, 0, 0, 0, 0 },
  { DOUBLED, TWH_F32, 4, 0, 1, 0, N, 0, 0, 2, 4, 1, 150, 0, 0, 0, 0, 0, 0 },
  { DOUBLED, TWH_F32, 4, 1, 0, 1, C, 0, 1, 1, 4, 2, 0, 0, 0, 0, 0, 0, 0 },
  { REPLICATES, TWH_F32, 4, 0, 0, 1, N, LSE, 1, 4, 2, 2, 0, 0, 0, 0, 0, 0, 0 },
  { DOUBLED, TWH_F32, 4, 1, 1, 1, B, 0, 1, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0 },
  { DOUBLED, TWH_F32, 4, 0, 0, 0, N, 0, 2, 1, 2, 1, 203, 16, TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI, 0, 0, 0, 0 },
  { DOUBLED, TWH_F32, 4, 1, 0, 0, N, LSE, 1, 2, 2, 1, 203, 16, TWH_PROBLEM_ALIBI, 0, 0, 0, 0 },
  { REPLICATES, TWH_BF16, 4, 0, 0, 0, N, 0, 1, 1, 1, 1, 400, 0, 0, 0, 0, 0, 0 },
  { DOUBLED, TWH_F16, 4, 1, 0, 0, B, LSE, 1, 2, 2, 2, 300, 0, 0, 0, 0, 0, 0 },
};

const int64_t support_target_count = SUPPORT_COUNT(support_target_cases);

/* Prompts of any length, two of them short, and a decode step. */
static const twh_sequence target_sequences[] = { { 0, 130, 0, 130, 0, 0 },
                                                 { 130, 7, 130, 9, 2, 0 },
                                                 { 137, 0, 139, 30, 0, 0 },
                                                 { 137, 1, 169, 211, 210, 0 },
                                                 { 138, 97, 380, 150, 53, 0 } };

void support_target_init(support_estimate *s, const support_target_case *c)
{
  support_estimate_init(s, c->length, c->m ? c->m : SUPPORT_TARGET_M, SUPPORT_TARGET_DIM);
  s->pattern.flags = c->causal ? TWH_CAUSAL : 0;
  s->problem.q_heads = c->q_heads;
  s->problem.kv_heads = c->kv_heads;
  s->problem.flags = c->problem_flags;
  if (c->ragged) {
    s->problem.sequences = target_sequences;
    s->problem.batch = SUPPORT_COUNT(target_sequences);
    s->problem.q_len = s->problem.k_len = 0;
  }
  s->key_bias = 0.5;
  s->slope = 0.002;
  s->fill.logit_std = c->std;
  s->desc.dtype = c->dtype;
  s->desc.mask_modes = c->masks;
  s->desc.flags = c->flags;
  s->desc.slots = c->slots;
  s->desc.v_dim = c->spare < 0 ? -c->spare : SUPPORT_TARGET_DIM + c->spare;
  s->desc.qk_dim = SUPPORT_TARGET_DIM + c->coordinates;
  s->desc.max_concurrent_batches = 4;
  s->options.method = c->hybrid ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
  s->options.estimate = c->estimate;
  s->options.samples = c->samples ? c->samples : c->estimate == REPLICATES ? 2 : 1;
  s->options.max_calls_per_batch = c->batch_calls;
  s->options.workspace_limit = c->limit;
  s->tensor_flags = SUPPORT_LSE | (c->slots > 1 ? SUPPORT_SINKS : 0);
}

static int64_t target_root(const support_target_setup *t, int64_t row)
{
  while (t->block[row] != row) row = t->block[row];
  return row;
}

/* Rows of a tile are of one block. */
static int32_t target_join(void *user, const twh_tile_info *tile)
{
  support_target_setup *t = (support_target_setup *)user;
  const twh_problem    *problem = &t->exact.problem;
  int64_t               entry, i, first = -1;
  twh_sequence          sequence = support_sequence(problem, tile->sequence, &entry);
  for (i = 0; i < tile->q_len; ++i) {
    int64_t head = tile->q_head + (tile->q_begin + i) / sequence.q_len, row = (tile->q_begin + i) % sequence.q_len;
    int64_t at = target_root(t, head * t->exact.tensors.q_rows + sequence.q_begin + row);
    if (first < 0) first = at;
    if (at < first) t->block[first] = at, first = at;
    t->block[at] = first;
  }
  return 0;
}

static int target_compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double target_relative(const support_estimate *s, int64_t at)
{
  int64_t head = at / s->tensors.q_rows, row = at % s->tensors.q_rows, c;
  double  squares = 0;
  for (c = 0; c < SUPPORT_TARGET_DIM; ++c)
    squares += support_at(&s->tensors.out, 0, head, row, c) * support_at(&s->tensors.out, 0, head, row, c);
  return s->bounds[at] == 0 ? 0 : s->bounds[at] / sqrt(squares);
}

void support_target_begin(support_target_setup *t, const support_target_case *c, double quantile, const twh_context *context,
                          uint64_t seed)
{
  double  target = 0.01, sorted[SUPPORT_TARGET_ROWS];
  int64_t i, count = 0;
  memset(t, 0, sizeof *t);
  support_target_init(&t->without, c);
  support_target_init(&t->exact, c);
  support_target_init(&t->with, c);
  support_estimate_begin(&t->without, NULL, seed);
  support_estimate_execute(&t->without);
  t->rows = t->without.rows;
  assert_true(t->rows <= SUPPORT_TARGET_ROWS);
  for (i = 0; i < t->rows; ++i) {
    t->relative[i] = target_relative(&t->without, i);
    if (t->relative[i] > 0 && isfinite(t->relative[i])) sorted[count++] = t->relative[i];
  }
  qsort(sorted, (size_t)count, sizeof *sorted, target_compare);
  i = (int64_t)(quantile * (double)(count - 1));
  if (quantile > 0 && count > 1) target = (sorted[i] + sorted[i + 1]) / 2; /* between two rows: no matter of rounding */
  t->exact.options.method = TWH_METHOD_EXACT;
  t->exact.options.estimate = TWH_ESTIMATE_NONE;
  t->exact.options.samples = 0;
  support_estimate_begin(&t->exact, NULL, seed);
  support_estimate_execute(&t->exact);
  t->with.options.target_error = target;
  support_estimate_begin(&t->with, context, seed);
  for (i = 0; i < t->rows; ++i) t->block[i] = i;
  assert_int_equal(twh_plan_visit(t->exact.plan, target_join, t, NULL), TWH_OK);
}

void support_target_end(support_target_setup *t)
{
  support_estimate_end(&t->with);
  support_estimate_end(&t->without);
  support_estimate_end(&t->exact);
}

int support_target_is_same(const support_estimate *a, const support_estimate *b, int64_t at)
{
  size_t out = SUPPORT_TARGET_DIM * sizeof(float), lse = sizeof(float);
  return memcmp((const char *)a->tensors.memory[3] + (size_t)at * out, (const char *)b->tensors.memory[3] + (size_t)at * out,
                out) == 0 &&
         memcmp((const char *)a->tensors.memory[4] + (size_t)at * lse, (const char *)b->tensors.memory[4] + (size_t)at * lse,
                lse) == 0;
}

static int target_has_row(const support_target_setup *t, int64_t at)
{
  int64_t b, entry, row = at % t->with.tensors.q_rows;
  for (b = 0; b < t->with.problem.batch; ++b) {
    twh_sequence sequence = support_sequence(&t->with.problem, b, &entry);
    if (row >= sequence.q_begin && row < sequence.q_begin + sequence.q_len) return 1;
  }
  return 0;
}

int64_t support_target_check_rows(const support_target_setup *t, int number)
{
  static int wanted[SUPPORT_TARGET_ROWS];
  int64_t    i, exact = 0;
  memset(wanted, 0, sizeof wanted);
  for (i = 0; i < t->rows; ++i) {
    if (t->without.bounds[i] == 0) continue;
    if (!(t->relative[i] <= t->with.options.target_error)) wanted[target_root(t, i)] = 1;
  }
  for (i = 0; i < t->rows; ++i) {
    int again = wanted[target_root(t, i)];
    if (!target_has_row(t, i)) continue;
    exact += again;
    if (!support_target_is_same(&t->with, again ? &t->exact : &t->without, i))
      fail_msg("case %d, row %d is not that of the %s plan", number, (int)i, again ? "exact" : "sampled");
    if (!(t->with.bounds[i] == (again ? 0 : t->without.bounds[i])))
      fail_msg("case %d, row %d: bound %g after %g", number, (int)i, t->with.bounds[i], t->without.bounds[i]);
  }
  if (t->with.stats.exact_rows != exact)
    fail_msg("case %d: %d exact rows, not %d", number, (int)t->with.stats.exact_rows, (int)exact);
  return exact;
}

void support_target_check_calls(const support_target_setup *t, int number, int64_t exact_rows)
{
  const twh_plan_info *info = &t->with.info, *exact = &t->exact.info;
  int64_t              more = t->with.stats.calls - t->without.stats.calls;
  assert_int_equal(info->calls, t->without.info.calls);
  assert_int_equal(t->without.info.exact_calls_max, 0);
  if (info->drawn_tiles == 0) {
    assert_int_equal(info->exact_calls_max, 0);
    assert_int_equal(more, 0);
    return;
  }
  assert_int_equal(info->exact_calls_max, exact->calls + exact->repair_calls_max);
  if (more < (exact_rows > 0) || more > info->exact_calls_max ||
      t->with.stats.calls > info->calls + info->repair_calls_max + info->exact_calls_max)
    fail_msg("case %d: %d calls more, of %d", number, (int)more, (int)info->exact_calls_max);
  if (t->with.desc.slots == 1 && exact->calls > 20 && exact_rows > 0 && exact_rows < t->rows / 4 && !(more < exact->calls))
    fail_msg("case %d: %d calls more for %d of %d rows, all take %d", number, (int)more, (int)exact_rows, (int)t->rows,
             (int)exact->calls);
  if (exact_rows == t->rows) assert_int_equal(t->with.stats.calls - t->with.stats.repair_calls, info->calls + exact->calls);
  assert_true(info->rounds_max > t->without.info.rounds_max && info->rounds_max <= t->without.info.rounds_max + 2);
}
