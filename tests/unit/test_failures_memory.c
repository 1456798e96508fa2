/* Every allocation fails once: in creating a context, a kernel, a plan, and in executing. Each time the status says so, nothing
 * stays allocated, and the same objects work afterwards. */
#include "support.h"

enum { MEMORY_STAGES = 4 };

static int32_t memory_run(void *user, const twh_call *const *calls, int64_t n)
{
  const twh_oracle_desc *inner = (const twh_oracle_desc *)user;
  return inner->run(inner->user, calls, n);
}

/* Create everything on a context whose `fail_at`-th allocation fails, and execute if that works. Returns how far it got. */
static int memory_try(const twh_problem *problem, const twh_oracle_desc *kernel, const twh_oracle_desc *inner,
                      support_tensors *tensors, int64_t fail_at, int64_t threads, support_memory *memory)
{
  twh_context_desc hooks;
  twh_oracle_desc  desc = *kernel;
  twh_context     *context = NULL;
  twh_oracle      *oracle = NULL;
  twh_plan        *plan = NULL;
  twh_error        error;
  twh_status       status;
  int64_t          live;
  int              stage = 0;
  twh_error_init(&error);
  support_context_desc(memory, threads, threads, &hooks);
  memory->fail_at = fail_at;
  desc.run = memory_run;
  desc.user = (void *)(uintptr_t)inner;
  status = twh_context_create(&hooks, &context, &error);
  if (status >= 0) ++stage, status = twh_oracle_create(context, &desc, &oracle, &error);
  if (status >= 0) ++stage, status = twh_plan_create(context, problem, &oracle, 1, NULL, &plan, &error);
  if (status >= 0) {
    ++stage;
    live = memory->live_blocks;
    status = twh_plan_execute(plan, &tensors->all, NULL, &error);
    assert_int_equal(memory->live_blocks, live);
    if (status >= 0) {
      ++stage;
    } else { /* the plan is as good as before */
      support_assert_status(status, TWH_E_MEMORY, &error, NULL);
      assert_int_equal(twh_plan_execute(plan, &tensors->all, NULL, NULL), TWH_OK);
      assert_int_equal(memory->live_blocks, live);
    }
  }
  if (stage < MEMORY_STAGES) support_assert_status(status, TWH_E_MEMORY, &error, NULL);
  if (stage < 1) assert_null(context);
  if (stage < 2) assert_null(oracle);
  if (stage < 3) assert_null(plan);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  twh_context_destroy(context);
  assert_int_equal(memory->live_blocks, 0);
  assert_int_equal(memory->wrong_releases, 0);
  return stage;
}

static void any_allocation_may_fail(void **state)
{
  static const twh_sequence sequences[] = {{0, 7, 0, 9, 2, 0}, {7, 3, 9, 20, 17, 0}};
  int64_t                   i, at, threads;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (threads = 0; threads < 3; threads += 2) {
      twh_problem     problem;
      twh_pattern     pattern;
      twh_oracle_desc desc, inner;
      twh_oracle     *reference = NULL;
      support_tensors tensors;
      support_memory  memory;
      support_random  random = support_random_at(support_seed(1), (uint64_t)i);
      support_fill    fill;
      int             stage = 0, reached = 0;
      memset(&fill, 0, sizeof fill);
      fill.logit_std = 40.0; /* so that repairs happen */
      twh_pattern_init(&pattern);
      pattern.flags = TWH_CAUSAL | (i % 2 ? TWH_LEFT : 0);
      pattern.left = 2;
      pattern.sink_tokens = i % 4 == 3;
      twh_problem_init(&problem);
      problem.batch = 2;
      problem.q_heads = 2;
      problem.kv_heads = 1;
      problem.qk_dim = problem.v_dim = 4;
      problem.sequences = sequences;
      support_kernel_desc(&support_kernels[i], &problem, 4, 4, &desc);
      problem.pattern = &pattern;
      if (!support_must_run(&problem, &desc)) problem.pattern = NULL;
      assert_int_equal(twh_reference_oracle_create(NULL, &desc, NULL, &reference, NULL), TWH_OK);
      twh_oracle_desc_init(&inner);
      assert_int_equal(twh_oracle_get_desc(reference, &inner, NULL), TWH_OK);
      support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
      support_tensors_fill(&tensors, &problem, &fill, &random);
      for (at = 0; stage < MEMORY_STAGES; ++at) {
        assert_true(at < 1000);
        stage = memory_try(&problem, &desc, &inner, &tensors, at, threads, &memory);
        reached |= 1 << stage;
      }
      assert_int_equal(reached, 31); /* the context, the kernel, the plan and the execute were all denied memory once */
      support_tensors_destroy(&tensors);
      twh_oracle_destroy(reference);
    }
}

static int memory_wanted;

static void *memory_never(void *user, size_t bytes, size_t alignment)
{
  (void)user;
  (void)bytes;
  (void)alignment;
  ++memory_wanted;
  return NULL;
}

static void memory_release_never(void *user, void *memory, size_t bytes)
{
  (void)user;
  (void)bytes;
  assert_null(memory);
}

static void a_context_without_memory_is_not_made(void **state)
{
  twh_context_desc desc;
  twh_context     *context = NULL;
  twh_error        error;
  (void)state;
  twh_error_init(&error);
  twh_context_desc_init(&desc);
  desc.allocate = memory_never;
  desc.release = memory_release_never;
  memory_wanted = 0;
  support_assert_status(twh_context_create(&desc, &context, &error), TWH_E_MEMORY, &error, NULL);
  assert_null(context);
  assert_int_equal(memory_wanted, 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_allocation_may_fail),
    cmocka_unit_test(a_context_without_memory_is_not_made),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
