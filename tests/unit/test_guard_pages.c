/* Nothing is read or written outside the tensors: they end at (or begin after) pages that cannot be touched, buffers have
 * poisoned margins, and rows lie gigabytes apart. */
#include "support.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct guard_block {
  char  *mapping, *data;
  size_t mapped;
} guard_block;

/* `bytes` readable bytes between two pages that are not: flush with the page behind (or the one before). */
static void guard_create(guard_block *block, size_t bytes, int at_start)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (bytes + page - 1) / page * page;
  void  *mapping;
  if (inside == 0) inside = page;
  block->mapped = inside + 2 * page;
  mapping = mmap(NULL, block->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(mapping != MAP_FAILED);
  block->mapping = (char *)mapping;
  assert_int_equal(mprotect(block->mapping + page, inside, PROT_READ | PROT_WRITE), 0);
  memset(block->mapping + page, SUPPORT_POISON, inside);
  block->data = block->mapping + page + (at_start ? 0 : inside - bytes);
}

static void guard_destroy(guard_block *block)
{
  assert_int_equal(munmap(block->mapping, block->mapped), 0);
}

/* Move the memory of tensors between guard pages. */
static void guard_tensors(support_tensors *tensors, guard_block *blocks, int at_start)
{
  twh_tensor *all[SUPPORT_TENSORS];
  int         i;
  all[0] = &tensors->q;
  all[1] = &tensors->k;
  all[2] = &tensors->v;
  all[3] = &tensors->out;
  all[4] = &tensors->lse;
  all[5] = &tensors->mask;
  all[6] = &tensors->sinks;
  all[7] = &tensors->key_bias;
  all[8] = &tensors->slopes;
  for (i = 0; i < SUPPORT_TENSORS; ++i) {
    memset(&blocks[i], 0, sizeof blocks[i]);
    if (!tensors->memory[i]) continue;
    guard_create(&blocks[i], tensors->bytes[i], at_start);
    memcpy(blocks[i].data, tensors->memory[i], tensors->bytes[i]);
    all[i]->data = blocks[i].data;
  }
}

enum { GUARD_FULL, GUARD_CAUSAL, GUARD_WINDOW, GUARD_PATTERNS };

static void guard_problem(twh_problem *problem, twh_pattern *pattern, int kind, int64_t n, int32_t mask_dtype)
{
  twh_problem_init(problem);
  twh_pattern_init(pattern);
  pattern->flags = kind == GUARD_CAUSAL ? TWH_CAUSAL : kind == GUARD_WINDOW ? TWH_LEFT | TWH_RIGHT : 0;
  pattern->left = 4;
  pattern->right = 1;
  pattern->sink_tokens = kind == GUARD_WINDOW ? 2 : 0;
  problem->pattern = pattern;
  problem->batch = 2;
  problem->q_heads = 4;
  problem->kv_heads = 2;
  problem->q_len = n;
  problem->k_len = n + 1;
  problem->qk_dim = 5;
  problem->v_dim = 3;
  problem->mask_dtype = mask_dtype;
}

/* Biases too, where the kernel has the coordinates for them. */
static void guard_biases(twh_problem *problem, const twh_oracle_desc *desc)
{
  problem->flags |= TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI;
  if (!support_must_run(problem, desc)) problem->flags &= ~(uint32_t)(TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI);
}

static void case_C54_tensors_that_end_at_an_unmapped_page(void **state)
{
  static const int64_t lengths[] = { 1, 3, 8, 17 };
  int64_t              i, j;
  int                  at_start, kind, masked;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (j = 0; j < SUPPORT_COUNT(lengths); ++j)
      for (at_start = 0; at_start < 2; ++at_start)
        for (kind = 0; kind < GUARD_PATTERNS; ++kind)
          for (masked = 0; masked < 2; ++masked) {
            twh_problem     problem;
            twh_pattern     pattern;
            twh_oracle_desc desc;
            support_tensors tensors, plain;
            guard_block     blocks[SUPPORT_TENSORS];
            support_random  random = support_random_at(support_seed(54), 1);
            support_fill    fill;
            int             b;
            memset(&fill, 0, sizeof fill);
            fill.logit_std = 30.0;
            fill.mask_share = 0.3;
            guard_problem(&problem, &pattern, kind, lengths[j], masked ? TWH_BOOL : 0);
            support_kernel_desc(&support_kernels[i], &problem, 8, 8, &desc);
            if (!support_must_run(&problem, &desc)) continue;
            guard_biases(&problem, &desc);
            support_tensors_create(&plain, &problem, desc.dtype, SUPPORT_DENSE, SUPPORT_LSE | SUPPORT_SINKS);
            support_tensors_fill(&plain, &problem, &fill, &random);
            support_tensors_create(&tensors, &problem, desc.dtype, SUPPORT_DENSE, SUPPORT_LSE | SUPPORT_SINKS);
            for (b = 0; b < SUPPORT_TENSORS; ++b)
              if (tensors.memory[b]) memcpy(tensors.memory[b], plain.memory[b], plain.bytes[b]);
            guard_tensors(&tensors, blocks, at_start);
            assert_int_equal(support_solve("C54", &problem, &desc, &plain, NULL, NULL), TWH_OK);
            assert_int_equal(support_solve("C54", &problem, &desc, &tensors, NULL, NULL), TWH_OK);
            assert_memory_equal(tensors.out.data, plain.out.data, plain.bytes[3]);
            assert_memory_equal(tensors.lse.data, plain.lse.data, plain.bytes[4]);
            for (b = 0; b < SUPPORT_TENSORS; ++b)
              if (blocks[b].mapping) guard_destroy(&blocks[b]);
            support_tensors_destroy(&tensors);
            support_tensors_destroy(&plain);
          }
}

/* Read-only inputs: nothing is written there, not even what was there before. */
static void inputs_are_never_written(void **state)
{
  int64_t i;
  int     kind;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (kind = 0; kind < GUARD_PATTERNS; ++kind) {
      twh_problem     problem;
      twh_pattern     pattern;
      twh_oracle_desc desc;
      support_tensors tensors;
      guard_block     blocks[SUPPORT_TENSORS];
      support_random  random = support_random_at(support_seed(54), 2);
      support_fill    fill;
      int             b;
      memset(&fill, 0, sizeof fill);
      fill.logit_std = 1.0;
      guard_problem(&problem, &pattern, kind, 20, 0);
      support_kernel_desc(&support_kernels[i], &problem, 8, 8, &desc);
      if (!support_must_run(&problem, &desc)) continue;
      support_tensors_create(&tensors, &problem, desc.dtype, SUPPORT_GAPS, SUPPORT_LSE);
      support_tensors_fill(&tensors, &problem, &fill, &random);
      guard_tensors(&tensors, blocks, 0);
      for (b = 0; b < 3; ++b) assert_int_equal(mprotect(blocks[b].mapping, blocks[b].mapped, PROT_READ), 0);
      assert_int_equal(support_solve("read-only", &problem, &desc, &tensors, NULL, NULL), TWH_OK);
      for (b = 0; b < SUPPORT_TENSORS; ++b)
        if (blocks[b].mapping) guard_destroy(&blocks[b]);
      support_tensors_destroy(&tensors);
    }
}

static void a_workspace_is_used_from_its_first_to_its_last_byte_at_most(void **state)
{
  int64_t i;
  int     kind;
  (void)state;
  for (i = 0; i < support_kernel_count; ++i)
    for (kind = 0; kind < GUARD_PATTERNS; ++kind) {
      twh_problem     problem;
      twh_pattern     pattern;
      twh_oracle_desc desc;
      support_oracle  oracle;
      support_tensors tensors;
      twh_plan       *plan = NULL;
      twh_plan_info   info;
      twh_run_options options;
      guard_block     block;
      size_t          bytes;
      support_random  random = support_random_at(support_seed(54), 3);
      support_fill    fill;
      memset(&fill, 0, sizeof fill);
      fill.logit_std = 40.0;
      guard_problem(&problem, &pattern, kind, 20, 0);
      support_kernel_desc(&support_kernels[i], &problem, 8, 8, &desc);
      if (!support_must_run(&problem, &desc)) continue;
      support_oracle_create(&oracle, NULL, &desc, NULL);
      assert_int_equal(twh_plan_create(NULL, &problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
      twh_plan_info_init(&info);
      assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
      support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
      support_tensors_fill(&tensors, &problem, &fill, &random);
      /* the end of the workspace stands at the page, rounded up to what keeps its start aligned */
      bytes = ((size_t)info.workspace_bytes + (size_t)info.workspace_alignment - 1) / (size_t)info.workspace_alignment *
              (size_t)info.workspace_alignment;
      guard_create(&block, bytes, 0);
      twh_run_options_init(&options);
      options.workspace = block.data;
      options.workspace_bytes = (size_t)info.workspace_bytes;
      assert_int_equal(twh_plan_execute(plan, &tensors.all, &options, NULL), TWH_OK);
      for (; bytes > (size_t)info.workspace_bytes; --bytes)
        assert_int_equal((unsigned char)block.data[bytes - 1], SUPPORT_POISON);
      assert_int_equal(oracle.broken[0], 0);
      guard_destroy(&block);
      twh_plan_destroy(plan);
      support_tensors_destroy(&tensors);
      support_oracle_destroy(&oracle);
    }
}

/* Three rows of 4.4 GB each, of which a page is touched. */
static void case_C64_rows_gigabytes_apart(void **state)
{
  const int64_t stride = 1100000000;
  const size_t  bytes = (size_t)(2 * stride + 8) * sizeof(float);
  float        *memory[4];
  int64_t       i, b, r, c;
  (void)state;
  for (b = 0; b < 4; ++b) {
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) { /* an address space that is limited: nothing to be tested here */
      while (b-- > 0) (void)munmap(memory[b], bytes);
      skip();
    }
    memory[b] = (float *)mapping;
  }
  for (i = 0; i < support_kernel_count; ++i) {
    twh_problem     problem;
    twh_oracle_desc desc;
    support_tensors compact, sparse;
    support_random  random = support_random_at(support_seed(64), (uint64_t)i);
    support_fill    fill;
    memset(&fill, 0, sizeof fill);
    fill.logit_std = 1.0;
    twh_problem_init(&problem);
    problem.batch = problem.q_heads = problem.kv_heads = 1;
    problem.q_len = problem.k_len = 3;
    problem.qk_dim = problem.v_dim = 4;
    support_kernel_desc(&support_kernels[i], &problem, 2, 2, &desc);
    if (!support_must_run(&problem, &desc)) continue;
    support_tensors_create(&compact, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
    support_tensors_fill(&compact, &problem, &fill, &random);
    assert_int_equal(support_solve("C64", &problem, &desc, &compact, NULL, NULL), TWH_OK);
    support_tensors_create(&sparse, &problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
    sparse.q.data = memory[0];
    sparse.k.data = memory[1];
    sparse.v.data = memory[2];
    sparse.out.data = memory[3];
    sparse.q.row_stride = sparse.k.row_stride = sparse.v.row_stride = sparse.out.row_stride = stride;
    for (r = 0; r < 3; ++r)
      for (c = 0; c < 4; ++c) {
        support_set(&sparse.q, 0, 0, r, c, support_at(&compact.q, 0, 0, r, c));
        support_set(&sparse.k, 0, 0, r, c, support_at(&compact.k, 0, 0, r, c));
        support_set(&sparse.v, 0, 0, r, c, support_at(&compact.v, 0, 0, r, c));
        support_set(&sparse.out, 0, 0, r, c, (double)NAN);
      }
    {
      support_oracle oracle;
      twh_plan      *plan = NULL;
      support_oracle_create(&oracle, NULL, &desc, NULL);
      assert_int_equal(twh_plan_create(NULL, &problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
      assert_int_equal(twh_plan_execute(plan, &sparse.all, NULL, NULL), TWH_OK);
      assert_int_equal(oracle.broken[0], 0);
      twh_plan_destroy(plan);
      support_oracle_destroy(&oracle);
    }
    for (r = 0; r < 3; ++r)
      for (c = 0; c < 4; ++c) assert_true(support_at(&sparse.out, 0, 0, r, c) == support_at(&compact.out, 0, 0, r, c));
    assert_memory_equal(sparse.lse.data, compact.lse.data, compact.bytes[4]);
    support_tensors_destroy(&compact);
    support_tensors_destroy(&sparse);
  }
  for (b = 0; b < 4; ++b) assert_int_equal(munmap(memory[b], bytes), 0);
}

static void case_C64_strides_that_overflow_are_refused(void **state)
{
  twh_problem     problem;
  twh_oracle_desc desc;
  support_oracle  oracle;
  support_tensors tensors;
  support_random  random = support_random_at(1, 1);
  support_fill    fill;
  twh_plan       *plan = NULL;
  twh_error       error;
  (void)state;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1.0;
  twh_error_init(&error);
  twh_problem_init(&problem);
  problem.batch = problem.q_heads = problem.kv_heads = 2;
  problem.q_len = problem.k_len = 3;
  problem.qk_dim = problem.v_dim = 4;
  support_kernel_desc(&support_kernels[0], &problem, 2, 2, &desc);
  support_oracle_create(&oracle, NULL, &desc, NULL);
  assert_int_equal(twh_plan_create(NULL, &problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
  support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, 0);
  support_tensors_fill(&tensors, &problem, &fill, &random);
  tensors.k.head_stride = INT64_MAX / 2;
  support_assert_status(twh_plan_execute(plan, &tensors.all, NULL, &error), TWH_E_OVERFLOW, &error, "k");
  tensors.k.head_stride = 12;
  tensors.out.batch_stride = INT64_MAX - 3;
  support_assert_status(twh_plan_execute(plan, &tensors.all, NULL, &error), TWH_E_OVERFLOW, &error, "out");
  tensors.out.batch_stride = 24;
  tensors.q.row_stride = INT64_MIN;
  support_assert_status(twh_plan_execute(plan, &tensors.all, NULL, &error), TWH_E_OVERFLOW, &error, "q");
  tensors.q.row_stride = 4;
  support_assert_status(twh_plan_execute(plan, &tensors.all, NULL, &error), TWH_OK, &error, NULL);
  twh_plan_destroy(plan);
  support_tensors_destroy(&tensors);
  support_oracle_destroy(&oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(case_C54_tensors_that_end_at_an_unmapped_page),
    cmocka_unit_test(inputs_are_never_written),
    cmocka_unit_test(a_workspace_is_used_from_its_first_to_its_last_byte_at_most),
    cmocka_unit_test(case_C64_rows_gigabytes_apart),
    cmocka_unit_test(case_C64_strides_that_overflow_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
