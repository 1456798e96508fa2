/* Random problems on random small transformers, against the definition, and batches that run at the same time. Chosen problems:
 * test_transformer_oracle_problems.c.
 *
 * A failure of a random problem prints the line that runs it again: TWH_SEED=.. TWH_CASE=.. before the program's name. */
#include "support.h"

enum { PROBLEMS_CASES = SUPPORT_SANITIZED ? 150 : 600, PROBLEMS_BATCHES = 8 };

/* A reference transformer that is counted and watched. */
typedef struct problems_kernel {
  twh_transformer_oracle_desc desc;
  twh_oracle                 *oracle;
  pthread_mutex_t             lock;
  int64_t                     calls, batches, running, most_running;
  const void                 *in_use[PROBLEMS_BATCHES]; /* x of the batches that run */
  const char                 *broken;
} problems_kernel;

static void problems_enter(problems_kernel *kernel, const twh_transformer_call *const *calls, int64_t n)
{
  int64_t i;
  pthread_mutex_lock(&kernel->lock);
  if (kernel->desc.max_calls_per_batch && n > kernel->desc.max_calls_per_batch) kernel->broken = "a batch is too large";
  if (kernel->running >= kernel->desc.max_concurrent_batches) kernel->broken = "too many batches at the same time";
  for (i = 0; i < PROBLEMS_BATCHES; ++i)
    if (kernel->in_use[i] == calls[0]->x) kernel->broken = "two batches share their memory";
  for (i = 0; i < PROBLEMS_BATCHES && kernel->in_use[i]; ++i) continue;
  if (i < PROBLEMS_BATCHES) kernel->in_use[i] = calls[0]->x;
  kernel->calls += n;
  ++kernel->batches;
  if (++kernel->running > kernel->most_running) kernel->most_running = kernel->running;
  pthread_mutex_unlock(&kernel->lock);
}

static int32_t problems_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  problems_kernel *kernel = (problems_kernel *)user;
  int32_t          code;
  int64_t          i;
  problems_enter(kernel, calls, n);
  code = twh_reference_transformer_run(&kernel->desc, calls, n);
  pthread_mutex_lock(&kernel->lock);
  for (i = 0; i < PROBLEMS_BATCHES; ++i)
    if (kernel->in_use[i] == calls[0]->x) kernel->in_use[i] = NULL;
  --kernel->running;
  pthread_mutex_unlock(&kernel->lock);
  return code;
}

/* kernel->desc is set but for run and user. */
static void problems_create(problems_kernel *kernel, const twh_context *context)
{
  twh_error error;
  twh_error_init(&error);
  assert_int_equal(pthread_mutex_init(&kernel->lock, NULL), 0);
  if (kernel->desc.max_concurrent_batches == 0) kernel->desc.max_concurrent_batches = 1;
  kernel->desc.run = problems_run;
  kernel->desc.user = kernel;
  support_assert_status(twh_oracle_from_transformer(context, &kernel->desc, &kernel->oracle, &error), TWH_OK, &error, NULL);
}

static void problems_destroy(problems_kernel *kernel)
{
  twh_oracle_destroy(kernel->oracle);
  pthread_mutex_destroy(&kernel->lock);
}

/* A kernel like a small transformer's oracle, but with one slot. */
static twh_oracle *problems_one_slot(const twh_oracle *like, twh_oracle_desc *desc)
{
  twh_oracle *oracle = NULL;
  twh_oracle_desc_init(desc);
  assert_int_equal(twh_oracle_get_desc(like, desc, NULL), TWH_OK);
  desc->slots = 1;
  desc->run = NULL;
  desc->release = NULL;
  desc->user = NULL;
  desc->q_slot_stride = desc->k_slot_stride = desc->v_slot_stride = desc->out_slot_stride = 0;
  assert_int_equal(twh_reference_oracle_create(NULL, desc, NULL, &oracle, NULL), TWH_OK);
  return oracle;
}

static int64_t problems_planned_calls(const twh_problem *problem, twh_oracle *oracle)
{
  twh_plan     *plan = NULL;
  twh_plan_info info;
  twh_error     error;
  twh_error_init(&error);
  twh_plan_info_init(&info);
  support_assert_status(twh_plan_create(NULL, problem, &oracle, 1, NULL, &plan, &error), TWH_OK, &error, NULL);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  twh_plan_destroy(plan);
  return info.calls;
}

/* Plan, execute and count. calls: as planned. */
static twh_status problems_solve(problems_kernel *kernel, const twh_context *context, const twh_problem *problem,
                                 support_tensors *tensors, int64_t *calls, twh_error *error)
{
  twh_plan       *plan = NULL;
  twh_plan_info   info;
  twh_run_options options;
  twh_run_stats   stats;
  twh_status      status = twh_plan_create(context, problem, &kernel->oracle, 1, NULL, &plan, error);
  if (status < 0) return status;
  twh_plan_info_init(&info);
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = &stats;
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  support_tensors_clear(tensors);
  kernel->calls = kernel->batches = 0;
  status = twh_plan_execute(plan, &tensors->all, &options, error);
  twh_plan_destroy(plan);
  if (status < 0) return status;
  *calls = info.calls;
  if (kernel->calls != stats.calls || kernel->batches != stats.batches) kernel->broken = "the statistics are wrong";
  if (stats.calls != info.calls + stats.repair_calls) kernel->broken = "not as many calls as planned";
  return TWH_OK;
}

/* ---- random problems ---- */

static void problems_random_kernel(problems_kernel *kernel, const support_case *made, support_random *random)
{
  const twh_oracle_desc *like = &made->desc[0];
  memset(kernel, 0, sizeof *kernel);
  twh_transformer_oracle_desc_init(&kernel->desc);
  kernel->desc.layers = support_between(random, 1, 3);
  kernel->desc.heads = support_between(random, 1, 4);
  kernel->desc.length = like->k_len;
  kernel->desc.qk_dim = like->qk_dim;
  kernel->desc.v_dim = like->v_dim;
  kernel->desc.model_dim =
    kernel->desc.layers * kernel->desc.heads * 2 * (like->qk_dim + like->v_dim) + support_below(random, 4);
  kernel->desc.dtype = like->dtype;
  kernel->desc.mask_modes = (uint32_t)support_between(random, 1, 3);
  kernel->desc.scale = like->scale;
  kernel->desc.max_calls_per_batch = like->max_calls_per_batch;
}

static const char *problems_error(const support_case *made, const support_tensors *tensors, const twh_oracle_desc *desc)
{
  static char    text[100];
  support_answer truth, one_call, got;
  double         error, bound, lse_error = 0.0, lse_bound;
  support_answer_truth(&truth, &made->problem, tensors);
  support_answer_read(&got, &made->problem, tensors);
  support_answer_one_call(&one_call, &made->problem, tensors, desc, NULL);
  bound = support_out_bound(&one_call, &truth, desc, 1) + support_ulp(truth.max_out, made->host_dtype);
  lse_bound = support_lse_bound(&one_call, &truth, desc);
  error = support_answer_out_error(&got, &truth);
  if (tensors->all.lse) lse_error = support_answer_lse_error(&got, &truth);
  support_answer_destroy(&truth);
  support_answer_destroy(&one_call);
  support_answer_destroy(&got);
  snprintf(text, sizeof text, "out error %.3g of %.3g, lse error %.3g of %.3g", error, bound, lse_error, lse_bound);
  return error <= bound && lse_error <= lse_bound ? NULL : text;
}

/* What is wrong, or NULL; *ran tells whether it had to run. */
static const char *problems_try(problems_kernel *kernel, const support_case *made, support_random *random, int *ran)
{
  support_tensors tensors;
  twh_oracle_desc desc;
  twh_oracle     *one = problems_one_slot(kernel->oracle, &desc);
  twh_error       error;
  twh_status      status;
  int64_t         calls = 0;
  const char     *wrong = NULL;
  twh_error_init(&error);
  support_tensors_create(&tensors, &made->problem, made->host_dtype, made->layout, made->tensor_flags);
  support_tensors_fill(&tensors, &made->problem, &made->fill, random);
  *ran = support_must_run(&made->problem, &desc);
  status = problems_solve(kernel, NULL, &made->problem, &tensors, &calls, &error);
  if (status != (*ran ? TWH_OK : TWH_E_UNSUPPORTED)) {
    print_error("%s\n", error.message);
    wrong = "the status is wrong";
  } else if (*ran) {
    if (calls > problems_planned_calls(&made->problem, one)) wrong = "more calls than with one slot";
    if (!wrong) wrong = problems_error(made, &tensors, &desc);
  }
  if (kernel->broken) wrong = kernel->broken;
  if (!support_tensors_gaps_untouched(&tensors, &made->problem)) wrong = "something was written outside out and lse";
  support_tensors_destroy(&tensors);
  twh_oracle_destroy(one);
  return wrong;
}

static void random_problems_are_right_or_refused(void **state)
{
  const char *only = getenv("TWH_CASE");
  uint64_t    seed = support_seed(44), number, first = only ? strtoull(only, NULL, 0) : 0;
  int64_t     all = 0;
  (void)state;
  for (number = first; number < (only ? first + 1 : PROBLEMS_CASES); ++number) {
    support_case    made;
    support_random  random = support_random_at(seed + 1, number);
    problems_kernel kernel;
    const char     *wrong;
    int             ran;
    support_case_make(&made, seed, number);
    problems_random_kernel(&kernel, &made, &random);
    problems_create(&kernel, NULL);
    wrong = problems_try(&kernel, &made, &random, &ran);
    all += ran;
    if (wrong)
      fail_msg("%s: %s; on a transformer of %d layers, %d heads, modes %u", made.text, wrong, (int)kernel.desc.layers,
               (int)kernel.desc.heads, kernel.desc.mask_modes);
    problems_destroy(&kernel);
  }
  if (!only) assert_true(all > PROBLEMS_CASES / 4 && all < PROBLEMS_CASES);
}

/* ---- several threads ---- */

/* As many batches at once as the description allows, each with memory of its own, and always the same bits. */
static void batches_run_at_the_same_time(void **state)
{
  support_memory  memory;
  twh_context    *context = support_context(&memory, 4, 4);
  support_tensors tensors;
  support_fill    fill;
  support_random  random = support_random_at(46, 0);
  twh_problem     problem;
  float           first[3 * 40 * 4];
  int             most;
  (void)state;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1.0;
  twh_problem_init(&problem);
  problem.batch = 1;
  problem.q_heads = problem.kv_heads = 3;
  problem.q_len = problem.k_len = 40;
  problem.qk_dim = problem.v_dim = 4;
  support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, 0);
  support_tensors_fill(&tensors, &problem, &fill, &random);
  for (most = 1; most <= 4; ++most) {
    problems_kernel kernel;
    int64_t         calls;
    memset(&kernel, 0, sizeof kernel);
    twh_transformer_oracle_desc_init(&kernel.desc);
    kernel.desc.layers = 1;
    kernel.desc.heads = 2;
    kernel.desc.length = 4;
    kernel.desc.qk_dim = 4;
    kernel.desc.v_dim = 5;
    kernel.desc.model_dim = 36;
    kernel.desc.dtype = TWH_F32;
    kernel.desc.mask_modes = TWH_MASK_NONE;
    kernel.desc.scale = 0.5;
    kernel.desc.max_calls_per_batch = most == 4 ? 1 : 3;
    kernel.desc.max_concurrent_batches = most;
    problems_create(&kernel, context);
    assert_int_equal(problems_solve(&kernel, context, &problem, &tensors, &calls, NULL), TWH_OK);
    if (kernel.broken) fail_msg("at most %d: %s", most, kernel.broken);
    assert_true(kernel.most_running >= 1 && kernel.most_running <= most);
    if (most == 1) memcpy(first, tensors.out.data, sizeof first);
    assert_memory_equal(first, tensors.out.data, sizeof first);
    problems_destroy(&kernel);
  }
  twh_context_destroy(context);
  assert_int_equal(memory.live_blocks, 0);
  assert_int_equal(memory.wrong_releases, 0);
  support_tensors_destroy(&tensors);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_problems_are_right_or_refused),
    cmocka_unit_test(batches_run_at_the_same_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
