/* Sampled and hybrid attention: the estimate that the plan's own tiles define, computed in float64 from a visit; how many calls;
 * what is exact; the draws themselves; and that sums are estimated without bias. */
#include "support.h"

#include "reference/reference.h"

typedef struct sampled_case {
  int64_t  q_heads, kv_heads, length, k_len; /* k_len 0: length */
  int      causal, hybrid;
  int64_t  samples, strata, sinks, window, slots;
  uint32_t masks, flags;
  int64_t  spare;                            /* coordinates */
} sampled_case;

enum { SAMPLED_M = 16, SAMPLED_DIM = 6 };

static const sampled_case sampled_cases[] = {
  {1, 1, 200, 0, 0, 0, 1, 1, 0, 0, 1, TWH_MASK_NONE, 0, 0},
  {2, 1, 203, 0, 0, 0, 2, 1, 0, 0, 1, TWH_MASK_NONE, TWH_ORACLE_LSE, 0},
  {3, 3, 130, 90, 0, 0, 2, 2, 0, 0, 4, TWH_MASK_NONE | TWH_MASK_CAUSAL, 0, 0},
  {2, 2, 200, 0, 1, 0, 1, 1, 0, 0, 1, TWH_MASK_NONE | TWH_MASK_CAUSAL, TWH_ORACLE_LSE, 0},
  {2, 2, 199, 0, 1, 0, 3, 3, 0, 0, 1, TWH_MASK_CAUSAL, 0, 0},
  {4, 2, 150, 0, 1, 0, 1, 1, 0, 0, 3, TWH_MASK_NONE, 0, 6},
  {2, 2, 201, 0, 1, 1, 1, 1, 0, 0, 1, TWH_MASK_NONE | TWH_MASK_CAUSAL, 0, 0},
  {2, 1, 260, 0, 1, 1, 2, 1, 20, 10, 2, TWH_MASK_CAUSAL, 0, 2},
  {2, 1, 260, 0, 0, 1, 2, 2, 3, 18, 1, TWH_MASK_NONE, TWH_ORACLE_LSE, 0},
  {1, 1, 40, 500, 0, 1, 3, 1, 1, 0, 1, TWH_MASK_NONE | TWH_MASK_TENSOR, 0, 0},
};

typedef struct sampled_setup {
  const sampled_case *c;
  twh_problem         problem;
  twh_pattern         pattern;
  twh_plan_options    options;
  twh_oracle_desc     desc;
  support_oracle      oracle;
  support_tensors     tensors;
  twh_plan           *plan;
  twh_plan_info       info;
  /* (q_heads, rows): sums over the plan's tiles, in float64 */
  double *a, *b, *pairs;
} sampled_setup;

static void sampled_begin(sampled_setup *s, const sampled_case *c, uint64_t seed, double std)
{
  support_fill   fill;
  support_random random = support_random_at(11, 3);
  int64_t        rows = c->q_heads * c->length;
  memset(s, 0, sizeof *s);
  memset(&fill, 0, sizeof fill);
  s->c = c;
  fill.logit_std = std;
  twh_pattern_init(&s->pattern);
  s->pattern.flags = c->causal ? TWH_CAUSAL : 0;
  twh_problem_init(&s->problem);
  s->problem.batch = 1;
  s->problem.q_heads = c->q_heads;
  s->problem.kv_heads = c->kv_heads;
  s->problem.q_len = c->length;
  s->problem.k_len = c->k_len ? c->k_len : c->length;
  s->problem.qk_dim = s->problem.v_dim = SAMPLED_DIM;
  s->problem.pattern = &s->pattern;
  twh_plan_options_init(&s->options);
  s->options.method = c->hybrid ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
  s->options.seed = seed;
  s->options.samples = c->samples;
  s->options.strata = c->strata;
  s->options.exact_sinks = c->sinks;
  s->options.exact_window = c->window;
  twh_oracle_desc_init(&s->desc);
  s->desc.slots = c->slots;
  s->desc.q_len = s->desc.k_len = SAMPLED_M;
  s->desc.qk_dim = SAMPLED_DIM + c->spare;
  s->desc.v_dim = SAMPLED_DIM + 1;
  s->desc.dtype = TWH_F32;
  s->desc.mask_modes = c->masks;
  s->desc.flags = c->flags;
  s->desc.scale = 0.4;
  support_oracle_create(&s->oracle, NULL, &s->desc, NULL);
  assert_int_equal(twh_plan_create(NULL, &s->problem, &s->oracle.oracle, 1, &s->options, &s->plan, NULL), TWH_OK);
  twh_plan_info_init(&s->info);
  assert_int_equal(twh_plan_get_info(s->plan, &s->info, NULL), TWH_OK);
  support_tensors_create(&s->tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  support_tensors_fill(&s->tensors, &s->problem, &fill, &random);
  s->a = calloc((size_t)rows, sizeof *s->a);
  s->b = calloc((size_t)(rows * SAMPLED_DIM), sizeof *s->b);
  s->pairs = calloc((size_t)rows, sizeof *s->pairs);
  assert_true(s->a && s->b && s->pairs);
}

static void sampled_end(sampled_setup *s)
{
  free(s->a);
  free(s->b);
  free(s->pairs);
  support_tensors_destroy(&s->tensors);
  twh_plan_destroy(s->plan);
  support_oracle_destroy(&s->oracle);
}

static double sampled_score(const sampled_setup *s, int64_t head, int64_t row, int64_t key)
{
  double  score = 0;
  int64_t c;
  for (c = 0; c < SAMPLED_DIM; ++c)
    score += support_at(&s->tensors.q, 0, head, row, c) *
             support_at(&s->tensors.k, 0, head / (s->c->q_heads / s->c->kv_heads), key, c);
  return score / sqrt((double)SAMPLED_DIM);
}

/* Add what a tile's rows see, with the weights that the plan says. */
static int32_t sampled_add(void *user, const twh_tile_info *tile)
{
  sampled_setup *s = (sampled_setup *)user;
  int64_t        t, j, c;
  for (t = 0; t < tile->q_len; ++t) {
    int64_t head = tile->q_head + (tile->q_begin + t) / s->c->length, row = (tile->q_begin + t) % s->c->length;
    int64_t begin, len, at = head * s->c->length + row;
    twh_tile_keys(tile, t, &begin, &len);
    for (j = begin; j < begin + len; ++j) {
      int64_t key = tile->flags & TWH_TILE_DRAWN ? twh_tile_drawn_key(tile, j - tile->k_begin) : j;
      double  weight = exp(sampled_score(s, head, row, key) + tile->log_weight);
      assert_true(key >= 0 && key < s->problem.k_len && (!s->c->causal || key <= row));
      s->a[at] += weight;
      s->pairs[at] += exp(tile->log_weight);
      for (c = 0; c < SAMPLED_DIM; ++c)
        s->b[at * SAMPLED_DIM + c] += weight * support_at(&s->tensors.v, 0, head / (s->c->q_heads / s->c->kv_heads), key, c);
    }
  }
  return 0;
}

/* A plan's sampled result is the estimate that its tiles define, to the kernel's precision; each row's keys stand for as many as it
 * sees. */
static void results_are_the_estimates_that_the_tiles_define(void **state)
{
  int64_t i, at, c;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(sampled_cases); ++i) {
    const sampled_case *row = &sampled_cases[i];
    sampled_setup       s;
    sampled_begin(&s, row, 77, 1.0);
    assert_true(s.info.drawn_tiles > 0 && s.info.sampled_keys > 0);
    assert_int_equal(twh_plan_visit(s.plan, sampled_add, &s, NULL), TWH_OK);
    assert_int_equal(twh_plan_execute(s.plan, &s.tensors.all, NULL, NULL), TWH_OK);
    assert_string_equal(s.oracle.broken, "");
    for (at = 0; at < row->q_heads * row->length; ++at) {
      int64_t head = at / row->length, r = at % row->length;
      double  lse = support_at(&s.tensors.lse, 0, head, r, 0);
      if (!(fabs(lse - log(s.a[at])) < 4e-6))
        fail_msg("case %d head %d row %d: lse %g, not %g", (int)i, (int)head, (int)r, lse, log(s.a[at]));
      if (!(fabs(s.pairs[at] - (double)(row->causal ? r + 1 : s.problem.k_len)) < 1e-9 * s.pairs[at]))
        fail_msg("case %d head %d row %d: its keys stand for %g", (int)i, (int)head, (int)r, s.pairs[at]);
      for (c = 0; c < SAMPLED_DIM; ++c) {
        double out = support_at(&s.tensors.out, 0, head, r, c), want = s.b[at * SAMPLED_DIM + c] / s.a[at];
        if (!(fabs(out - want) < 4e-6)) fail_msg("case %d head %d row %d: %g, not %g", (int)i, (int)head, (int)r, out, want);
      }
    }
    sampled_end(&s);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(results_are_the_estimates_that_the_tiles_define),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
