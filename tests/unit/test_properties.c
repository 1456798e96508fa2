/* Random problems on random kernels: the result equals direct evaluation, every visible pair is in exactly one tile, and the
 * kernel is called as often as the plan says and only as its description allows.
 *
 * A failure prints one line that describes the case and runs it again: TWH_SEED=.. TWH_CASE=.. before the program's name.
 * TWH_CASES sets how many cases are tried. */
#include "support.h"

enum { PROPERTIES_CASES = SUPPORT_SANITIZED ? 1500 : 6000 };

typedef struct properties_cover {
  const support_case *made;
  int64_t             starts[3]; /* where the counts of a sequence begin */
  unsigned char      *counts;    /* per sequence (q_heads, q_len, k_len) */
  int64_t             tiles, calls, full, lower, upper;
  const char         *wrong;
} properties_cover;

static int64_t properties_number(const char *name, int64_t fallback)
{
  const char *text = getenv(name);
  return text && *text ? (int64_t)strtoll(text, NULL, 0) : fallback;
}

static void properties_cover_row(properties_cover *cover, const twh_tile_info *tile, const twh_sequence *sequence, int64_t t)
{
  const twh_problem *problem = &cover->made->problem;
  int64_t            row = tile->q_begin + t, head = tile->q_head, j, from = 0, until = tile->k_len;
  if (sequence->q_len > 0) {
    head += row / sequence->q_len;
    row %= sequence->q_len;
  }
  if (tile->shape == TWH_SHAPE_LOWER && t + tile->diagonal + 1 < until) until = t + tile->diagonal + 1;
  if (tile->shape == TWH_SHAPE_UPPER && t + tile->diagonal > from) from = t + tile->diagonal;
  if (head >= problem->q_heads) {
    cover->wrong = "a tile has rows past the last head";
    return;
  }
  if (head / (problem->q_heads / problem->kv_heads) != tile->q_head / (problem->q_heads / problem->kv_heads))
    cover->wrong = "a tile mixes key/value heads";
  if (from >= until) cover->wrong = "a tile has a row that sees no key";
  for (j = from; j < until; ++j) {
    if (!support_visible(problem, sequence, row, tile->k_begin + j)) cover->wrong = "a tile shows an invisible pair";
    ++cover->counts[cover->starts[tile->sequence] + (head * sequence->q_len + row) * sequence->k_len + tile->k_begin + j];
  }
}

static int32_t properties_cover_tile(void *user, const twh_tile_info *tile)
{
  properties_cover      *cover = (properties_cover *)user;
  const twh_oracle_desc *desc = &cover->made->desc;
  twh_sequence           sequence;
  int64_t                t, entry;
  ++cover->tiles;
  cover->full += tile->shape == TWH_SHAPE_FULL;
  cover->lower += tile->shape == TWH_SHAPE_LOWER;
  cover->upper += tile->shape == TWH_SHAPE_UPPER;
  if (tile->call + tile->calls > cover->calls) cover->calls = tile->call + tile->calls;
  if (tile->sequence < 0 || tile->sequence >= cover->made->problem.batch || tile->calls < 1 || tile->slot < 0 ||
      tile->slot >= desc->slots || tile->q_len < 1 || tile->q_len > desc->q_len || tile->k_len < 1 ||
      tile->k_len > desc->k_len || !(tile->mask_mode & desc->mask_modes)) {
    cover->wrong = "a tile does not fit the kernel";
    return 1;
  }
  sequence = support_sequence(&cover->made->problem, tile->sequence, &entry);
  if (tile->k_begin < 0 || tile->k_begin + tile->k_len > sequence.k_len || tile->q_begin < 0) {
    cover->wrong = "a tile has keys outside its sequence";
    return 1;
  }
  for (t = 0; t < tile->q_len; ++t) properties_cover_row(cover, tile, &sequence, t);
  return 0;
}

/* Every visible pair once, no invisible one. Returns what is wrong, or NULL. */
static const char *properties_check_cover(const support_case *made, const twh_plan *plan, const twh_plan_info *info)
{
  properties_cover cover;
  int64_t          b, h, i, j, entry, total = 0, pairs = 0;
  memset(&cover, 0, sizeof cover);
  cover.made = made;
  for (b = 0; b < made->problem.batch; ++b) {
    twh_sequence sequence = support_sequence(&made->problem, b, &entry);
    cover.starts[b] = total;
    total += made->problem.q_heads * sequence.q_len * sequence.k_len;
  }
  cover.counts = (unsigned char *)calloc((size_t)total + 1, 1);
  assert_non_null(cover.counts);
  assert_int_equal(twh_plan_visit(plan, properties_cover_tile, &cover, NULL), TWH_OK);
  for (b = 0; b < made->problem.batch; ++b) {
    twh_sequence sequence = support_sequence(&made->problem, b, &entry);
    for (h = 0; h < made->problem.q_heads; ++h)
      for (i = 0; i < sequence.q_len; ++i)
        for (j = 0; j < sequence.k_len; ++j) {
          int seen = support_visible(&made->problem, &sequence, i, j);
          pairs += seen;
          if (cover.counts[cover.starts[b] + (h * sequence.q_len + i) * sequence.k_len + j] != seen && !cover.wrong)
            cover.wrong = seen ? "a visible pair is not in exactly one tile" : "an invisible pair is in a tile";
        }
  }
  free(cover.counts);
  if (cover.wrong) return cover.wrong;
  if (cover.tiles != info->tiles) return "the number of tiles is not the plan's";
  if (cover.calls != info->calls) return "the last tile's last call is not the plan's last";
  if (cover.full != info->full_tiles || cover.lower != info->lower_tiles || cover.upper != info->upper_tiles)
    return "tiles by shape are not the plan's";
  if ((double)pairs != info->visible_pairs) return "the number of visible pairs is not the plan's";
  if (info->lower_bound_calls > info->calls) return "fewer calls than the lower bound";
  return NULL;
}

/* Logits so moderate, and a dtype so wide, that every sum can be read from the kernel. */
static int properties_is_tame(const support_case *made)
{
  return made->desc.dtype != TWH_F16 && made->desc.out_dtype != TWH_F16 && made->fill.logit_std <= 1.0 &&
         made->fill.logit_mean == 0.0 && !made->fill.hidden_as_lowest;
}

static const char *properties_check_run(const support_case *made, support_oracle *oracle, const twh_plan *plan,
                                        const twh_plan_info *info, support_tensors *tensors, twh_error *error)
{
  twh_run_options options;
  twh_run_stats   stats;
  support_random  random = support_random_at(made->seed, made->number ^ 0xabcdef);
  void           *workspace = NULL;
  twh_status      status;
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  if (support_one_in(&random, 3) && info->workspace_bytes > 0) {
    if (posix_memalign(&workspace, (size_t)(info->workspace_alignment < 8 ? 8 : info->workspace_alignment),
                       (size_t)info->workspace_bytes))
      return "no memory";
    memset(workspace, SUPPORT_POISON, (size_t)info->workspace_bytes);
    options.workspace = workspace;
    options.workspace_bytes = (size_t)info->workspace_bytes;
  }
  support_oracle_reset(oracle);
  status = twh_plan_execute(plan, &tensors->all, &options, error);
  free(workspace);
  if (oracle->broken[0]) return oracle->broken;
  if (status < 0) return error->message;
  if (oracle->calls != info->calls + stats.repair_calls) return "the kernel was not called as often as planned";
  if (oracle->calls != stats.calls || oracle->batches != stats.batches) return "the statistics are wrong";
  if (stats.repair_calls > info->repair_calls_max) return "more repair calls than the plan allows";
  if (properties_is_tame(made) && stats.host_rows > 0) return "rows of an easy problem were left to the host";
  if (!support_tensors_gaps_untouched(tensors, &made->problem)) return "something was written outside out and lse";
  return NULL;
}

static const char *properties_check_result(const support_case *made, const support_tensors *tensors, char *text, size_t bytes)
{
  support_answer truth, one_call, got;
  double         error, bound, lse_error = 0.0, lse_bound = 0.0;
  support_answer_truth(&truth, &made->problem, tensors);
  support_answer_one_call(&one_call, &made->problem, tensors, &made->desc, NULL);
  support_answer_read(&got, &made->problem, tensors);
  error = support_answer_out_error(&got, &truth);
  bound = support_out_bound(&one_call, &truth, &made->desc, 1) + support_ulp(truth.max_out, made->host_dtype);
  if (tensors->all.lse) {
    lse_error = support_answer_lse_error(&got, &truth);
    lse_bound = support_lse_bound(&one_call, &truth, &made->desc);
  }
  if (made->desc.flags & TWH_ORACLE_F16_SCORES && !(made->tensor_flags & SUPPORT_SINKS) && tensors->all.lse) {
    /* the host rounds its scores as the kernel does, so nothing of that rounding is left between the two */
    lse_error = support_answer_lse_error(&got, &one_call);
    lse_bound = 3.0 * support_epsilon(made->desc.dtype) + 4.0 * support_ulp(truth.max_logit + 1.0, TWH_F32);
  }
  snprintf(text, bytes, "out error %.3g of %.3g (one call %.3g), lse error %.3g of %.3g", error, bound,
           support_answer_out_error(&one_call, &truth), lse_error, lse_bound);
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  support_answer_destroy(&got);
  return error <= bound && lse_error <= lse_bound ? NULL : text;
}

/* Returns 1 when the case ran, 0 when the kernel legitimately cannot do it, -1 after printing what went wrong. */
static int properties_try(uint64_t seed, uint64_t number)
{
  support_case    made;
  support_oracle  oracle;
  support_memory  memory;
  support_tensors tensors;
  support_random  random = support_random_at(seed, number ^ 0x777);
  twh_context    *context = support_context(&memory, support_one_in(&random, 3) ? 2 : 0, support_below(&random, 4));
  twh_plan       *plan = NULL;
  twh_plan_info   info;
  twh_error       error;
  const char     *wrong = NULL;
  char            text[200];
  int             ran = 1, must;
  twh_error_init(&error);
  twh_plan_info_init(&info);
  support_case_make(&made, seed, number);
  must = support_must_run(&made.problem, &made.desc);
  support_oracle_create(&oracle, context, &made.desc, NULL);
  if (twh_plan_create(context, &made.problem, &oracle.oracle, 1, NULL, &plan, &error) < 0) {
    ran = 0;
    if (must || error.status != TWH_E_UNSUPPORTED) wrong = error.message;
  } else {
    support_tensors_create(&tensors, &made.problem, made.host_dtype, made.layout, made.tensor_flags);
    support_tensors_fill(&tensors, &made.problem, &made.fill, &random);
    assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
    wrong = properties_check_cover(&made, plan, &info);
    if (!wrong) wrong = properties_check_run(&made, &oracle, plan, &info, &tensors, &error);
    if (!wrong) wrong = properties_check_result(&made, &tensors, text, sizeof text);
    support_tensors_destroy(&tensors);
  }
  if (wrong) print_error("%s\n  %s\n", wrong, made.text);
  twh_plan_destroy(plan);
  support_oracle_destroy(&oracle);
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
  assert_int_equal(memory.wrong_releases, 0);
  return wrong ? -1 : ran;
}

static void random_cases_equal_direct_evaluation(void **state)
{
  uint64_t seed = support_seed(20251001);
  int64_t  only = properties_number("TWH_CASE", -1), count = properties_number("TWH_CASES", PROPERTIES_CASES), i, ran = 0,
          failed = 0;
  int result;
  (void)state;
  for (i = only < 0 ? 0 : only; i < (only < 0 ? count : only + 1) && failed < 10; ++i) {
    result = properties_try(seed, (uint64_t)i);
    ran += result > 0;
    failed += result < 0;
  }
  print_message("%lld of %lld cases can be run by their kernel\n", (long long)ran, (long long)i);
  assert_int_equal(failed, 0);
  if (only < 0) assert_true(ran * 10 > count * 6); /* the generator makes what can be run */
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(random_cases_equal_direct_evaluation) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
