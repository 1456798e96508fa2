/* Random problems on random kernels, sampled: each row's keys are computed once or drawn once and stand for all that it sees;
 * what is to be exact is; and the result is the estimate that those weights define, within the bounds of one exact call.
 *
 * An estimate is exact attention whose logits have the logarithm of the weight added, so the definition in float64 is asked
 * with the weights as its mask. A failure prints one line, and runs again with TWH_SEED=.. TWH_CASE=.. before the program's
 * name. */
#include "support.h"

enum { RANDOM_CASES = SUPPORT_SANITIZED ? 100 : 350 };

typedef struct random_run {
  support_case     made;
  twh_problem      weighted; /* the problem with a mask tensor for the weights */
  twh_plan_options options;
  support_oracle   oracles[SUPPORT_KERNELS];
  twh_oracle      *list[SUPPORT_KERNELS];
  twh_plan        *plan;
  twh_plan_info    info;
  support_tensors  tensors;
  twh_tensors      given;   /* tensors.all without the mask */
  double          *weights; /* (batch, q_heads, q_rows, k_rows): keys that the pair stands for; 0: not computed */
  int64_t          drawn_tiles, drawn_keys, oracles_used;
  const char      *wrong;
  char             text[200];
} random_run;

/* How many cases that drew keys had what. */
typedef struct random_seen {
  int64_t drew, nothing, f16, bf16, key_bias, alibi, sinks, ragged, stacked, several, strata, hybrid, causal, slots, decode;
} random_seen;

static double *random_weight(random_run *r, int64_t entry, int64_t head, int64_t row, int64_t key)
{
  return r->weights + ((entry * r->made.problem.q_heads + head) * r->tensors.q_rows + row) * r->tensors.k_rows + key;
}

static void random_add(random_run *r, const twh_tile_info *tile, int64_t t, int64_t key, double weight)
{
  int64_t      entry, row = tile->q_begin + t, head;
  twh_sequence sequence = support_sequence(&r->made.problem, tile->sequence, &entry);
  double      *at;
  head = tile->q_head + row / sequence.q_len;
  row %= sequence.q_len;
  if (key < 0 || key >= sequence.k_len || !support_visible(&r->made.problem, &sequence, row, key)) {
    r->wrong = "a row has a key that it does not see";
    return;
  }
  at = random_weight(r, entry, head, sequence.q_begin + row, sequence.k_begin + key);
  if (*at != 0) r->wrong = "a row has a key twice";
  *at = weight;
}

static int32_t random_visit(void *user, const twh_tile_info *tile)
{
  random_run *r = (random_run *)user;
  int         drawn = (tile->flags & TWH_TILE_DRAWN) != 0;
  int64_t     t, j, begin, keys;
  if (drawn) {
    ++r->drawn_tiles;
    if (tile->shape != TWH_SHAPE_UPPER) r->drawn_keys += tile->k_len; /* UPPER: the rest of a rectangle */
    if (tile->sink_len != 0) r->wrong = "sinks stand among what is drawn";
    if (!(tile->log_weight >= 0)) r->wrong = "keys stand for less than themselves";
  } else if (tile->log_weight != 0)
    r->wrong = "an exact tile has a weight";
  r->oracles_used |= (int64_t)1 << tile->oracle; /* the host's tiles are rounded as the kernel's */
  for (t = 0; t < tile->q_len && !r->wrong; ++t) {
    twh_tile_keys(tile, t, &begin, &keys);
    for (j = begin; j < begin + keys; ++j)
      random_add(r, tile, t, drawn ? twh_tile_drawn_key(tile, j - tile->k_begin) : j, exp(tile->log_weight));
    for (j = 0; j < tile->sink_len; ++j) random_add(r, tile, t, tile->sink_begin + j, 1.0);
  }
  return r->wrong != NULL;
}

/* One row of a head: its weights are numbers of keys that add up to what it sees, and hybrids compute what they should. */
static void random_check_row(random_run *r, const twh_sequence *sequence, int64_t entry, int64_t h, int64_t i)
{
  int     hybrid = r->options.method == TWH_METHOD_HYBRID;
  int64_t j, seen = 0;
  double  sum = 0;
  for (j = 0; j < sequence->k_len; ++j) {
    double  weight = *random_weight(r, entry, h, sequence->q_begin + i, sequence->k_begin + j);
    int64_t apart = llabs((long long)(i + sequence->q_offset - j - sequence->k_offset));
    int     near = apart <= r->options.exact_window;
    sum += weight;
    if (!support_visible(&r->made.problem, sequence, i, j)) continue;
    ++seen;
    if (hybrid && (j < r->options.exact_sinks || near) && weight != 1.0) r->wrong = "a key that is to be exact is not";
  }
  if (!(fabs(sum - (double)seen) <= 1e-9 * (double)seen)) r->wrong = "a row's keys do not stand for all that it sees";
}

static const char *random_check_cover(random_run *r)
{
  const twh_problem *problem = &r->made.problem;
  int64_t            b, h, i, entry;
  (void)twh_plan_visit(r->plan, random_visit, r, NULL);
  if (r->wrong) return r->wrong;
  for (b = 0; b < problem->batch; ++b) {
    twh_sequence sequence = support_sequence(problem, b, &entry);
    for (h = 0; h < problem->q_heads; ++h)
      for (i = 0; i < sequence.q_len; ++i) random_check_row(r, &sequence, entry, h, i);
  }
  if (r->drawn_tiles != r->info.drawn_tiles || r->drawn_keys != r->info.sampled_keys) return "the plan counts wrongly";
  return r->wrong;
}

static const char *random_check_result(random_run *r)
{
  const support_case *made = &r->made;
  support_answer      truth, one_call, got;
  double              error, lse_error = 0, bound = 0, lse_bound = 0;
  int64_t             i, at, row, entry, h;
  for (at = 0; at < r->tensors.batch * made->problem.q_heads * r->tensors.q_rows; ++at) {
    row = at % r->tensors.q_rows;
    h = at / r->tensors.q_rows % made->problem.q_heads;
    entry = at / r->tensors.q_rows / made->problem.q_heads;
    for (i = 0; i < r->tensors.k_rows; ++i)
      support_set(&r->tensors.mask, entry, h, row, i, log(*random_weight(r, entry, h, row, i)));
  }
  support_answer_truth(&truth, &r->weighted, &r->tensors);
  support_answer_read(&got, &r->weighted, &r->tensors);
  error = support_answer_out_error(&got, &truth);
  if (r->tensors.all.lse) lse_error = support_answer_lse_error(&got, &truth);
  for (i = 0; i < made->kernels; ++i) {
    const twh_oracle_desc *desc = &made->desc[i];
    if (!(r->oracles_used >> i & 1) && r->oracles_used) continue;
    support_answer_one_call(&one_call, &r->weighted, &r->tensors, desc, NULL);
    bound = fmax(bound, support_out_bound(&one_call, &truth, desc, 1) + support_ulp(truth.max_out, made->host_dtype));
    lse_bound = fmax(lse_bound, support_lse_bound(&one_call, &truth, desc));
    if (desc->flags & TWH_ORACLE_F16_SCORES) { /* what stands in a coordinate is rounded with the score */
      bound += support_ulp(truth.max_logit, TWH_F16) * truth.max_value;
      lse_bound += support_ulp(truth.max_logit, TWH_F16);
    }
    support_answer_destroy(&one_call);
  }
  snprintf(r->text, sizeof r->text, "out error %.3g of %.3g, lse error %.3g of %.3g", error, bound, lse_error, lse_bound);
  support_answer_destroy(&truth);
  support_answer_destroy(&got);
  return error <= bound && lse_error <= lse_bound ? NULL : r->text;
}

/* Execute with other threads, batches and memory, or exactly where nothing was drawn: the same bits as before. */
static const char *random_check_bits(random_run *r, support_random *random)
{
  support_memory   memory;
  twh_context     *context = support_context(&memory, support_between(random, 1, 4), support_between(random, 1, 6));
  twh_plan_options options = r->options;
  twh_run_options  how;
  twh_plan_info    info;
  twh_plan        *plan = NULL;
  const char      *wrong = NULL;
  void            *workspace = NULL, *out = malloc(r->tensors.bytes[3] + 1), *lse = malloc(r->tensors.bytes[4] + 1);
  int64_t          i;
  int              continues = 0;
  assert_true(out && lse);
  memcpy(out, r->tensors.memory[3], r->tensors.bytes[3]);
  if (r->tensors.all.lse) memcpy(lse, r->tensors.memory[4], r->tensors.bytes[4]);
  for (i = 0; i < r->made.kernels; ++i) continues |= (r->made.desc[i].flags & TWH_ORACLE_CONTINUES) != 0;
  if (!continues) { /* which calls continue each other depends on the options */
    if (r->info.drawn_tiles == 0 && options.method == TWH_METHOD_SAMPLED) twh_plan_options_init(&options);
    options.max_calls_per_batch = support_between(random, 1, 5);
    options.workspace_limit = support_one_in(random, 2) ? 1 : 3000;
  }
  twh_plan_info_init(&info);
  twh_run_options_init(&how);
  assert_int_equal(twh_plan_create(context, &r->made.problem, r->list, r->made.kernels, &options, &plan, NULL), TWH_OK);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  if (info.calls != r->info.calls || info.tiles != r->info.tiles) wrong = "another plan";
  assert_int_equal(posix_memalign(&workspace, (size_t)(info.workspace_alignment < 8 ? 8 : info.workspace_alignment),
                                  (size_t)info.workspace_bytes + 1),
                   0);
  memset(workspace, SUPPORT_POISON, (size_t)info.workspace_bytes);
  how.workspace = workspace;
  how.workspace_bytes = (size_t)info.workspace_bytes;
  for (i = 0; i < r->made.kernels; ++i) support_oracle_reset(&r->oracles[i]);
  support_tensors_clear(&r->tensors);
  if (twh_plan_execute(plan, &r->given, &how, NULL) < 0) wrong = "it fails on threads";
  if (memcmp(out, r->tensors.memory[3], r->tensors.bytes[3]) != 0) wrong = "out has other bits";
  if (r->tensors.all.lse && memcmp(lse, r->tensors.memory[4], r->tensors.bytes[4]) != 0) wrong = "lse has other bits";
  twh_plan_destroy(plan);
  twh_context_destroy(context);
  if (memory.live_blocks != 0) wrong = "memory was not released";
  free(workspace);
  free(out);
  free(lse);
  return wrong;
}

static const char *random_solve(random_run *r, support_random *random)
{
  twh_error   error;
  const char *wrong;
  int64_t     i;
  twh_error_init(&error);
  twh_plan_info_init(&r->info);
  assert_int_equal(twh_plan_get_info(r->plan, &r->info, NULL), TWH_OK);
  r->weighted = r->made.problem;
  r->weighted.mask_dtype = TWH_F64;
  support_tensors_create(&r->tensors, &r->weighted, r->made.host_dtype, r->made.layout,
                         r->made.tensor_flags & ~SUPPORT_BROADCAST);
  support_tensors_fill(&r->tensors, &r->weighted, &r->made.fill, random);
  r->given = r->tensors.all;
  r->given.mask = NULL;
  i = r->tensors.batch * r->made.problem.q_heads * r->tensors.q_rows * r->tensors.k_rows;
  r->weights = (double *)calloc((size_t)(i + 1), sizeof *r->weights);
  assert_non_null(r->weights);
  wrong = random_check_cover(r);
  if (!wrong && twh_plan_execute(r->plan, &r->given, NULL, &error) < 0) {
    snprintf(r->text, sizeof r->text, "%.190s", error.message);
    wrong = r->text;
  }
  if (!wrong) wrong = random_check_result(r);
  if (!wrong) wrong = random_check_bits(r, random);
  for (i = 0; i < r->made.kernels; ++i)
    if (r->oracles[i].broken[0]) {
      snprintf(r->text, sizeof r->text, "%.190s", r->oracles[i].broken);
      wrong = r->text;
    }
  if (!support_tensors_gaps_untouched(&r->tensors, &r->made.problem)) wrong = "something was written outside out and lse";
  free(r->weights);
  support_tensors_destroy(&r->tensors);
  return wrong;
}

static void random_note(const random_run *r, random_seen *seen)
{
  const twh_problem *problem = &r->made.problem;
  if (r->info.drawn_tiles == 0) {
    ++seen->nothing;
    return;
  }
  ++seen->drew;
  seen->f16 += r->made.desc[0].dtype == TWH_F16;
  seen->bf16 += r->made.desc[0].dtype == TWH_BF16;
  seen->key_bias += (problem->flags & TWH_PROBLEM_KEY_BIAS) != 0;
  seen->alibi += (problem->flags & TWH_PROBLEM_ALIBI) != 0;
  seen->sinks += (r->made.tensor_flags & SUPPORT_SINKS) != 0;
  seen->ragged += problem->sequences != NULL && problem->batch > 1;
  seen->stacked += problem->q_heads > problem->kv_heads;
  seen->several += (r->oracles_used & (r->oracles_used - 1)) != 0;
  seen->strata += r->options.strata > 1;
  seen->hybrid += r->options.method == TWH_METHOD_HYBRID;
  seen->causal += problem->pattern && (problem->pattern->flags & TWH_CAUSAL);
  seen->slots += r->made.desc[0].slots > 1;
  seen->decode += !problem->sequences && problem->q_len == 1;
}

static void random_options(random_run *r, support_random *random)
{
  twh_plan_options_init(&r->options);
  r->options.method = support_one_in(random, 2) ? TWH_METHOD_HYBRID : TWH_METHOD_SAMPLED;
  r->options.seed = support_bits(random);
  r->options.strata = support_one_in(random, 2) ? 1 : support_between(random, 1, 3);
  r->options.samples = r->options.strata * (support_one_in(random, 3) ? support_between(random, 1, 3) : 1);
  if (r->options.method != TWH_METHOD_HYBRID) return;
  r->options.exact_sinks = support_one_in(random, 2) ? 1 : support_between(random, 1, 20);
  r->options.exact_window = support_one_in(random, 2) ? 0 : support_between(random, 0, 30);
}

/* What is sampled, more often than in passing: no left end of a window, and keys for many blocks. */
static void random_lengthen(support_case *made, support_random *random)
{
  twh_problem *problem = &made->problem;
  int64_t      m = made->desc[0].k_len < 24 ? made->desc[0].k_len : 24;
  problem->mask_dtype = 0;
  if (!support_one_in(random, 5)) {
    made->pattern.flags &= ~(uint32_t)TWH_LEFT;
    made->pattern.sink_tokens = 0;
  }
  if (problem->sequences || support_one_in(random, 3)) return;
  problem->k_len = support_between(random, 2 * m, 7 * m);
  if (support_one_in(random, 20)) { /* decoding */
    problem->q_len = 1;
    problem->k_len = support_between(random, 1000, 2000);
    problem->q_offset = problem->k_len - 1;
  } else if (support_one_in(random, 2))
    problem->q_len = problem->k_len;
}

/* A second kernel of half the length, cheap enough for tiles that are short. */
static void random_halve(support_case *made)
{
  twh_oracle_desc *half = &made->desc[1];
  *half = made->desc[0];
  half->q_len = (half->q_len + 1) / 2;
  half->k_len = (half->k_len + 1) / 2;
  half->q_len_min = half->q_len_step = half->k_len_min = half->k_len_step = half->causal_offset = 0;
  half->q_row_stride = half->k_row_stride = half->v_row_stride = half->out_row_stride = 0;
  half->q_slot_stride = half->k_slot_stride = half->v_slot_stride = half->out_slot_stride = 0;
  half->cost_per_call = (made->desc[0].cost_per_call > 0 ? made->desc[0].cost_per_call : 1) / 3;
}

static void random_case(uint64_t seed, uint64_t number, random_seen *seen)
{
  static random_run r;
  support_random    random = support_random_at(seed ^ 0x5a5a, number);
  const char       *wrong = NULL;
  int64_t           i;
  memset(&r, 0, sizeof r);
  support_case_make(&r.made, seed, number);
  random_lengthen(&r.made, &random);
  if (r.made.kernels > 1 && support_one_in(&random, 2)) random_halve(&r.made);
  random_options(&r, &random);
  for (i = 0; i < r.made.kernels; ++i) {
    support_oracle_create(&r.oracles[i], NULL, &r.made.desc[i], NULL);
    r.list[i] = r.oracles[i].oracle;
  }
  if (twh_plan_create(NULL, &r.made.problem, r.list, r.made.kernels, &r.options, &r.plan, NULL) >= 0) {
    wrong = random_solve(&r, &random);
    random_note(&r, seen);
  }
  if (wrong)
    print_error("%s\nmethod %d samples %lld strata %lld sinks %lld window %lld; pattern without LEFT: %d\n%s\n", wrong,
                r.options.method, (long long)r.options.samples, (long long)r.options.strata, (long long)r.options.exact_sinks,
                (long long)r.options.exact_window, !(r.made.pattern.flags & TWH_LEFT), r.made.text);
  twh_plan_destroy(r.plan);
  for (i = 0; i < r.made.kernels; ++i) support_oracle_destroy(&r.oracles[i]);
  if (wrong) fail();
}

static void random_problems_are_estimated_as_their_tiles_say(void **state)
{
  const char *one = getenv("TWH_CASE");
  uint64_t seed = support_seed(50), number = one ? strtoull(one, NULL, 0) : 0, end = one ? number + 1 : (uint64_t)RANDOM_CASES;
  random_seen seen;
  (void)state;
  memset(&seen, 0, sizeof seen);
  for (; number < end; ++number) random_case(seed, number, &seen);
  if (one || getenv("TWH_SEED") || SUPPORT_SANITIZED) return;
  print_message(
    "drew %d, nothing to draw %d, f16 %d, bf16 %d, key bias %d, ALiBi %d, sinks %d, ragged %d, heads in groups %d\n",
    (int)seen.drew, (int)seen.nothing, (int)seen.f16, (int)seen.bf16, (int)seen.key_bias, (int)seen.alibi, (int)seen.sinks,
    (int)seen.ragged, (int)seen.stacked);
  print_message("several kernels %d, strata %d, hybrid %d, causal %d, slots %d, one row %d\n", (int)seen.several,
                (int)seen.strata, (int)seen.hybrid, (int)seen.causal, (int)seen.slots, (int)seen.decode);
  assert_true(seen.drew > RANDOM_CASES / 10 && seen.nothing > RANDOM_CASES / 10 && seen.f16 > 0 && seen.bf16 > 0);
  assert_true(seen.key_bias > 0 && seen.alibi > 0 && seen.sinks > 0 && seen.ragged > 0 && seen.stacked > 0);
  assert_true(seen.several > 0 && seen.strata > 0 && seen.hybrid > 0 && seen.causal > 0 && seen.slots > 0 && seen.decode > 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_problems_are_estimated_as_their_tiles_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
