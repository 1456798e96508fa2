/* Random problems on random kernels: the result equals direct evaluation, every visible pair is in exactly one tile, and the
 * kernels are called as often as the plan says and only as their descriptions allow.
 *
 * A failure prints one line that describes the case and runs it again: TWH_SEED=.. TWH_CASE=.. before the program's name.
 * TWH_CASES sets how many cases are tried. */
#include "support.h"

enum { PROPERTIES_CASES = SUPPORT_SANITIZED ? 1500 : 6000 };

typedef struct properties_run {
  support_case    made;
  support_oracle  oracles[SUPPORT_KERNELS];
  support_memory  memory;
  twh_context    *context;
  support_tensors tensors;
  twh_plan       *plan;
  twh_plan_info   info;
  support_cover   cover;
  twh_error       error;
  char            text[200];
} properties_run;

/* How many cases had what. */
typedef struct properties_seen {
  int64_t ran, shared, hosted, led, bands, biased, masked, several, packed_codes, backwards, continued;
} properties_seen;

static int64_t properties_number(const char *name, int64_t fallback)
{
  const char *text = getenv(name);
  return text && *text ? (int64_t)strtoll(text, NULL, 0) : fallback;
}

/* Logits so moderate, and a dtype so wide, that every sum can be read from the kernel. */
static int properties_is_tame(const support_case *made)
{
  int64_t i;
  for (i = 0; i < made->kernels; ++i)
    if (made->desc[i].dtype == TWH_F16 || made->desc[i].out_dtype == TWH_F16) return 0;
  return made->fill.logit_std <= 1.0 && made->fill.logit_mean == 0.0 && !made->fill.hidden_as_lowest &&
         !(made->problem.flags & (TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI));
}

/* Rows that the host may compute in place of repairs: of each call one in 32 of its slots' rows. */
static int64_t properties_host_repairs(const properties_run *r)
{
  int64_t i, most = 0;
  for (i = 0; i < r->made.kernels; ++i) {
    int64_t few = r->made.desc[i].slots * r->made.desc[i].q_len / 32;
    if (few > most) most = few;
  }
  return most * r->info.calls;
}

static const char *properties_counts(properties_run *r, const twh_run_stats *stats)
{
  const support_case *made = &r->made;
  int64_t             calls = 0, batches = 0, i;
  for (i = 0; i < made->kernels; ++i) {
    if (r->oracles[i].broken[0]) return r->oracles[i].broken;
    calls += r->oracles[i].calls;
    batches += r->oracles[i].batches;
  }
  if (calls != stats->calls || batches != stats->batches) return "the statistics are wrong";
  if (stats->repair_calls > r->info.repair_calls_max) return "more repair calls than the plan allows";
  if (calls > r->info.calls + stats->repair_calls) return "the kernels were called more often than planned";
  if (!made->problem.mask_dtype && calls != r->info.calls + stats->repair_calls)
    return "the kernels were not called as often as planned";
  if (properties_is_tame(made) && stats->host_rows > r->cover.host_rows + properties_host_repairs(r))
    return "rows of an easy problem were left to the host";
  if (!made->problem.mask_dtype && stats->host_rows < r->cover.host_rows) return "rows of the host's tiles were not counted";
  return NULL;
}

static const char *properties_check_run(properties_run *r)
{
  twh_run_options options;
  twh_run_stats   stats;
  support_random  random = support_random_at(r->made.seed, r->made.number ^ 0xabcdef);
  void           *workspace = NULL;
  const char     *wrong;
  twh_status      status;
  int64_t         i;
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  if (support_one_in(&random, 3) && r->info.workspace_bytes > 0) {
    if (posix_memalign(&workspace, (size_t)(r->info.workspace_alignment < 8 ? 8 : r->info.workspace_alignment),
                       (size_t)r->info.workspace_bytes))
      return "no memory";
    memset(workspace, SUPPORT_POISON, (size_t)r->info.workspace_bytes);
    options.workspace = workspace;
    options.workspace_bytes = (size_t)r->info.workspace_bytes;
  }
  for (i = 0; i < r->made.kernels; ++i) support_oracle_reset(&r->oracles[i]);
  status = twh_plan_execute(r->plan, &r->tensors.all, &options, &r->error);
  free(workspace);
  for (i = 0; i < r->made.kernels; ++i)
    if (r->oracles[i].broken[0]) return r->oracles[i].broken;
  if (status < 0) return r->error.message;
  wrong = properties_counts(r, &stats);
  if (wrong) return wrong;
  if (!support_tensors_gaps_untouched(&r->tensors, &r->made.problem)) return "something was written outside out and lse";
  return NULL;
}

/* Errors against the definition; the bounds are those of the kernel with the widest ones. */
static const char *properties_check_result(properties_run *r)
{
  const support_case *made = &r->made;
  support_answer      truth, one_call, got;
  double              error, lse_error = 0.0, bound = 0.0, lse_bound = 0.0;
  int64_t             i;
  support_answer_truth(&truth, &made->problem, &r->tensors);
  support_answer_read(&got, &made->problem, &r->tensors);
  error = support_answer_out_error(&got, &truth);
  if (r->tensors.all.lse) lse_error = support_answer_lse_error(&got, &truth);
  for (i = 0; i < made->kernels; ++i) {
    const twh_oracle_desc *desc = &made->desc[i];
    if (made->kernels > 1 && !support_must_run(&made->problem, desc)) continue;
    support_answer_one_call(&one_call, &made->problem, &r->tensors, desc, NULL);
    bound = fmax(bound, support_out_bound(&one_call, &truth, desc, 1) + support_ulp(truth.max_out, made->host_dtype));
    lse_bound = fmax(lse_bound, support_lse_bound(&one_call, &truth, desc));
    if ((desc->flags & TWH_ORACLE_F16_SCORES) && (made->problem.flags & (TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI))) {
      /* what stands in a coordinate is rounded with the score; one call adds it afterwards */
      bound += support_ulp(truth.max_logit, TWH_F16) * truth.max_value;
      lse_bound += support_ulp(truth.max_logit, TWH_F16);
    } else if (made->kernels == 1 && (desc->flags & TWH_ORACLE_F16_SCORES) && !(made->tensor_flags & SUPPORT_SINKS) &&
               r->tensors.all.lse) {
      /* the host rounds its scores as the kernel does, so nothing of that rounding is left between the two */
      lse_error = support_answer_lse_error(&got, &one_call);
      lse_bound = 3.0 * support_epsilon(desc->dtype) + 4.0 * support_ulp(truth.max_logit + 1.0, TWH_F32);
    }
    support_answer_destroy(&one_call);
  }
  snprintf(r->text, sizeof r->text, "out error %.3g of %.3g, lse error %.3g of %.3g", error, bound, lse_error, lse_bound);
  support_answer_destroy(&truth);
  support_answer_destroy(&got);
  return error <= bound && lse_error <= lse_bound ? NULL : r->text;
}

/* Plan, look at the tiles, execute, compare. Returns what is wrong, or NULL; *ran is 0 where no kernel can do it. */
static const char *properties_solve(properties_run *r, support_random *random, int *ran)
{
  const support_case *made = &r->made;
  twh_oracle         *oracles[SUPPORT_KERNELS];
  const char         *wrong;
  int64_t             i;
  int                 must = 0;
  for (i = 0; i < made->kernels; ++i) {
    must |= support_must_run(&made->problem, &made->desc[i]);
    oracles[i] = r->oracles[i].oracle;
  }
  *ran = 0;
  if (twh_plan_create(r->context, &made->problem, oracles, made->kernels, NULL, &r->plan, &r->error) < 0)
    return must || r->error.status != TWH_E_UNSUPPORTED ? r->error.message : NULL;
  *ran = 1;
  support_tensors_create(&r->tensors, &made->problem, made->host_dtype, made->layout, made->tensor_flags);
  support_tensors_fill(&r->tensors, &made->problem, &made->fill, random);
  assert_int_equal(twh_plan_get_info(r->plan, &r->info, NULL), TWH_OK);
  wrong = support_cover_check(&r->cover, &made->problem, r->plan, made->desc, made->kernels);
  if (!wrong) wrong = properties_check_run(r);
  if (!wrong) wrong = properties_check_result(r);
  support_tensors_destroy(&r->tensors);
  return wrong;
}

static void properties_note(const properties_run *r, properties_seen *seen)
{
  int shared = r->cover.slots < r->cover.tiles - r->cover.host_tiles;
  ++seen->ran;
  seen->shared += shared;
  seen->packed_codes += shared && !(r->made.desc[0].mask_modes & TWH_MASK_TENSOR);
  seen->hosted += r->cover.host_tiles > 0;
  seen->led += r->cover.led > 0;
  seen->bands += r->cover.shapes[TWH_SHAPE_BAND] > 0;
  seen->biased += (r->made.problem.flags & (TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI)) != 0;
  seen->masked += r->made.problem.mask_dtype != 0;
  seen->several += r->made.kernels > 1;
  for (int64_t i = 0; i < r->made.kernels; ++i) {
    seen->backwards += r->oracles[i].backwards > 0;
    seen->continued += r->oracles[i].continued > 0;
  }
}

/* Returns 1 when the case ran, 0 when no kernel can do it, -1 after printing what went wrong. */
static int properties_try(uint64_t seed, uint64_t number, properties_seen *seen)
{
  properties_run r;
  support_random random = support_random_at(seed, number ^ 0x777);
  const char    *wrong;
  int64_t        i;
  int            ran;
  memset(&r, 0, sizeof r);
  twh_error_init(&r.error);
  twh_plan_info_init(&r.info);
  r.context = support_context(&r.memory, support_one_in(&random, 3) ? 2 : 0, support_below(&random, 4));
  support_case_make(&r.made, seed, number);
  for (i = 0; i < r.made.kernels; ++i) support_oracle_create(&r.oracles[i], r.context, &r.made.desc[i], NULL);
  wrong = properties_solve(&r, &random, &ran);
  if (ran && !wrong) properties_note(&r, seen);
  if (wrong) print_error("%s\n  %s\n", wrong, r.made.text);
  twh_plan_destroy(r.plan);
  for (i = 0; i < r.made.kernels; ++i) support_oracle_destroy(&r.oracles[i]);
  twh_context_destroy(r.context);
  assert_int_equal(r.memory.live_blocks, 0);
  assert_int_equal(r.memory.wrong_releases, 0);
  return wrong ? -1 : ran;
}

static void random_cases_equal_direct_evaluation(void **state)
{
  uint64_t        seed = support_seed(20251001);
  int64_t         only = properties_number("TWH_CASE", -1), count = properties_number("TWH_CASES", PROPERTIES_CASES);
  int64_t         i, failed = 0;
  properties_seen seen;
  (void)state;
  memset(&seen, 0, sizeof seen);
  for (i = only < 0 ? 0 : only; i < (only < 0 ? count : only + 1) && failed < 10; ++i)
    failed += properties_try(seed, (uint64_t)i, &seen) < 0;
  print_message("%lld of %lld cases can be run by their kernels: shared slots %lld (by codes %lld), tiles of the host %lld, "
                "leading sinks %lld, bands %lld, biases %lld, mask tensors %lld, several kernels %lld, rows backwards %lld, chains %lld\n",
                (long long)seen.ran, (long long)i, (long long)seen.shared, (long long)seen.packed_codes, (long long)seen.hosted,
                (long long)seen.led, (long long)seen.bands, (long long)seen.biased, (long long)seen.masked,
                (long long)seen.several, (long long)seen.backwards, (long long)seen.continued);
  assert_int_equal(failed, 0);
  if (only >= 0 || count < PROPERTIES_CASES) return;
  assert_true(seen.ran * 10 > count * 7); /* the generator makes what can be run, and of everything something */
  assert_true(seen.shared * 10 > seen.ran && seen.packed_codes * 20 > seen.ran && seen.hosted * 20 > seen.ran);
  assert_true(seen.led * 100 > seen.ran && seen.bands * 20 > seen.ran && seen.biased * 20 > seen.ran);
  assert_true(seen.masked * 20 > seen.ran && seen.several * 20 > seen.ran && seen.backwards * 300 > seen.ran);
  assert_true(seen.continued * 300 > seen.ran);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(random_cases_equal_direct_evaluation) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
