/* What execute, info and describe do with what the caller hands them: tensors by table, workspaces, structs of other sizes,
 * text buffers that are too short. */
#include "support.h"

typedef struct execute_setup {
  support_oracle  oracle;
  twh_plan       *plan;
  twh_plan_info   info;
  twh_problem     problem;
  twh_oracle_desc desc;
  support_tensors tensors;
  support_memory  memory;
  twh_context    *context;
} execute_setup;

static void execute_begin(execute_setup *s, int32_t mask_dtype)
{
  support_fill   fill;
  support_random random = support_random_at(1, 1);
  memset(s, 0, sizeof *s);
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 1.0;
  fill.mask_share = 0.3;
  s->context = support_context(&s->memory, 0, 0);
  twh_problem_init(&s->problem);
  s->problem.batch = 1;
  s->problem.q_heads = s->problem.kv_heads = 2;
  s->problem.q_len = s->problem.k_len = 10;
  s->problem.qk_dim = s->problem.v_dim = 4;
  s->problem.mask_dtype = mask_dtype;
  twh_oracle_desc_init(&s->desc);
  s->desc.slots = 2;
  s->desc.q_len = s->desc.k_len = 4;
  s->desc.qk_dim = 4;
  s->desc.v_dim = 5;
  s->desc.dtype = TWH_F32;
  s->desc.mask_modes = mask_dtype ? TWH_MASK_TENSOR : TWH_MASK_NONE;
  s->desc.scale = 0.5;
  support_oracle_create(&s->oracle, s->context, &s->desc, NULL);
  assert_int_equal(twh_plan_create(s->context, &s->problem, &s->oracle.oracle, 1, NULL, &s->plan, NULL), TWH_OK);
  twh_plan_info_init(&s->info);
  assert_int_equal(twh_plan_get_info(s->plan, &s->info, NULL), TWH_OK);
  support_tensors_create(&s->tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE | SUPPORT_SINKS);
  support_tensors_fill(&s->tensors, &s->problem, &fill, &random);
}

static void execute_end(execute_setup *s)
{
  support_tensors_destroy(&s->tensors);
  twh_plan_destroy(s->plan);
  support_oracle_destroy(&s->oracle);
  twh_context_destroy(s->context);
  assert_int_equal(s->memory.live_blocks, 0);
  assert_int_equal(s->memory.wrong_releases, 0);
}

typedef struct execute_row {
  const char *word;
  int         tensor; /* 0 q, 1 k, 2 v, 3 out, 4 lse, 5 mask, 6 sinks */
  int         change; /* 0 no tensor, 1 no data, 2 dtype = value, 3 struct_size = value */
  int32_t     value;
  twh_status  status;
} execute_row;

static const execute_row execute_rows[] = {
  {"q", 0, 0, 0, TWH_E_ARGUMENT},
  {"k", 1, 0, 0, TWH_E_ARGUMENT},
  {"v", 2, 0, 0, TWH_E_ARGUMENT},
  {"out", 3, 0, 0, TWH_E_ARGUMENT},
  {"mask", 5, 0, 0, TWH_E_ARGUMENT},
  {"q", 0, 1, 0, TWH_E_ARGUMENT},
  {"k", 1, 1, 0, TWH_E_ARGUMENT},
  {"v", 2, 1, 0, TWH_E_ARGUMENT},
  {"out", 3, 1, 0, TWH_E_ARGUMENT},
  {"lse", 4, 1, 0, TWH_E_ARGUMENT},
  {"mask", 5, 1, 0, TWH_E_ARGUMENT},
  {"sink_logits", 6, 1, 0, TWH_E_ARGUMENT},
  {"q", 0, 2, TWH_BOOL, TWH_E_ARGUMENT},
  {"k", 1, 2, 0, TWH_E_ARGUMENT},
  {"v", 2, 2, 17, TWH_E_ARGUMENT},
  {"out", 3, 2, TWH_BOOL, TWH_E_ARGUMENT},
  {"lse", 4, 2, TWH_F16, TWH_E_ARGUMENT},
  {"lse", 4, 2, TWH_BF16, TWH_E_ARGUMENT},
  {"mask", 5, 2, TWH_F16, TWH_E_ARGUMENT},
  {"sink_logits", 6, 2, TWH_BOOL, TWH_E_ARGUMENT},
  {"q", 0, 3, 0, TWH_E_ARGUMENT},
  {"out", 3, 3, 4, TWH_E_VERSION},
};

static void execute_bad_tensors_are_refused_by_name(void **state)
{
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(execute_rows); ++i) {
    const execute_row *row = &execute_rows[i];
    execute_setup      s;
    twh_error          error;
    twh_tensor        *tensors[7];
    twh_status         status;
    execute_begin(&s, TWH_F32);
    twh_error_init(&error);
    tensors[0] = &s.tensors.q;
    tensors[1] = &s.tensors.k;
    tensors[2] = &s.tensors.v;
    tensors[3] = &s.tensors.out;
    tensors[4] = &s.tensors.lse;
    tensors[5] = &s.tensors.mask;
    tensors[6] = &s.tensors.sinks;
    if (row->change == 1) tensors[row->tensor]->data = NULL;
    if (row->change == 2) tensors[row->tensor]->dtype = row->value;
    if (row->change == 3) tensors[row->tensor]->struct_size = (uint32_t)row->value;
    if (row->change == 0) {
      if (row->tensor == 0) s.tensors.all.q = NULL;
      if (row->tensor == 1) s.tensors.all.k = NULL;
      if (row->tensor == 2) s.tensors.all.v = NULL;
      if (row->tensor == 3) s.tensors.all.out = NULL;
      if (row->tensor == 5) s.tensors.all.mask = NULL;
    }
    status = twh_plan_execute(s.plan, &s.tensors.all, NULL, &error);
    if (status != row->status || !strstr(error.message, row->word))
      print_error("row %lld: %s \"%s\"\n", (long long)i, twh_status_name(status), error.message);
    assert_int_equal(status, row->status);
    assert_non_null(strstr(error.message, row->word));
    assert_int_equal(s.oracle.calls, 0);
    execute_end(&s);
  }
}

static void execute_a_mask_that_the_problem_lacks_is_refused(void **state)
{
  execute_setup s;
  float         mask[100];
  twh_error     error;
  (void)state;
  execute_begin(&s, 0);
  memset(mask, 0, sizeof mask);
  twh_error_init(&error);
  twh_tensor_dense(&s.tensors.mask, TWH_F32, mask, 1, 10, 10);
  s.tensors.all.mask = &s.tensors.mask;
  support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, NULL, &error), TWH_E_ARGUMENT, &error, "mask");
  execute_end(&s);
}

static void execute_unknown_flags_and_sizes_are_refused(void **state)
{
  execute_setup   s;
  twh_run_options options;
  twh_error       error;
  (void)state;
  execute_begin(&s, 0);
  twh_error_init(&error);
  twh_run_options_init(&options);
  options.flags = 1u << 5;
  support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_E_VERSION, &error, "flags");
  twh_run_options_init(&options);
  options.struct_size = 4;
  support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_E_VERSION, &error, "options");
  s.tensors.all.flags = 2;
  support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, NULL, &error), TWH_E_VERSION, &error, "flags");
  s.tensors.all.flags = 0;
  s.tensors.all.struct_size = 0;
  support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, NULL, &error), TWH_E_ARGUMENT, &error, "tensors");
  assert_int_equal(s.oracle.calls, 0);
  execute_end(&s);
}

static void execute_a_workspace_is_measured_and_nothing_else_is_allocated(void **state)
{
  execute_setup   s;
  twh_run_options options;
  twh_error       error;
  int64_t         before;
  char           *room;
  (void)state;
  execute_begin(&s, 0);
  twh_error_init(&error);
  twh_run_options_init(&options);
  assert_true(s.info.workspace_bytes > 0);
  room = (char *)malloc((size_t)(s.info.workspace_bytes + 2 * s.info.workspace_alignment));
  assert_non_null(room);
  options.workspace = room + (s.info.workspace_alignment - (int64_t)((uintptr_t)room % (uintptr_t)s.info.workspace_alignment));
  options.workspace_bytes = (size_t)s.info.workspace_bytes - 1;
  support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_E_MEMORY, &error, "workspace");
  options.workspace_bytes = (size_t)s.info.workspace_bytes;
  before = s.memory.allocations;
  support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_OK, &error, NULL);
  assert_int_equal(s.memory.allocations, before);
  if (s.info.workspace_alignment > 1) {
    options.workspace = (char *)options.workspace + 1;
    support_assert_status(twh_plan_execute(s.plan, &s.tensors.all, &options, &error), TWH_E_ARGUMENT, &error, "workspace");
  }
  free(room);
  execute_end(&s);
}

static void case_C96_structs_of_an_older_or_newer_host_are_filled_as_far_as_they_go(void **state)
{
  execute_setup   s;
  unsigned char   room[1024], want[1024]; /* more than any of them */
  twh_run_options options;
  twh_run_stats   stats;
  uint32_t        size;
  (void)state;
  execute_begin(&s, 0);
  /* info: a struct below the first version's size is refused, a longer one is zeroed beyond */
  size = 24;
  memset(room, 0xaa, sizeof room);
  memcpy(room, &size, sizeof size);
  assert_int_equal(twh_plan_get_info(s.plan, (twh_plan_info *)(void *)room, NULL), TWH_E_VERSION);
  assert_int_equal(room[24], 0xaa);
  size = (uint32_t)sizeof(twh_plan_info) + 16;
  memset(room, 0xaa, sizeof room);
  memcpy(room, &size, sizeof size);
  assert_int_equal(twh_plan_get_info(s.plan, (twh_plan_info *)(void *)room, NULL), TWH_OK);
  memcpy(want, &s.info, sizeof s.info);
  memcpy(want, &size, sizeof size);
  memset(want + sizeof s.info, 0, 16);
  assert_memory_equal(room, want, size);
  assert_int_equal(room[size], 0xaa);
  /* statistics */
  twh_run_options_init(&options);
  twh_run_stats_init(&stats);
  options.stats = (twh_run_stats *)(void *)room;
  size = 16;
  memset(room, 0xaa, sizeof room);
  memcpy(room, &size, sizeof size);
  assert_int_equal(twh_plan_execute(s.plan, &s.tensors.all, &options, NULL), TWH_E_VERSION);
  assert_int_equal(room[16], 0xaa);
  size = (uint32_t)sizeof stats + 16;
  memset(room, 0xaa, sizeof room);
  memcpy(room, &size, sizeof size);
  assert_int_equal(twh_plan_execute(s.plan, &s.tensors.all, &options, NULL), TWH_OK);
  memcpy(&stats, room, sizeof stats);
  assert_int_equal(stats.calls, s.info.calls);
  assert_int_equal(room[size - 1], 0);
  assert_int_equal(room[size], 0xaa);
  /* the descriptor that was registered */
  size = (uint32_t)sizeof(twh_oracle_desc) + 16;
  memset(room, 0xaa, sizeof room);
  memcpy(room, &size, sizeof size);
  assert_int_equal(twh_oracle_get_desc(s.oracle.oracle, (twh_oracle_desc *)(void *)room, NULL), TWH_OK);
  assert_int_equal(room[size - 1], 0);
  assert_int_equal(room[size], 0xaa);
  size = 0;
  memcpy(room, &size, sizeof size);
  assert_int_equal(twh_plan_get_info(s.plan, (twh_plan_info *)(void *)room, NULL), TWH_E_ARGUMENT);
  assert_int_equal(twh_oracle_get_desc(s.oracle.oracle, (twh_oracle_desc *)(void *)room, NULL), TWH_E_ARGUMENT);
  execute_end(&s);
}

static void case_C96_an_error_struct_of_an_older_host_is_not_overrun(void **state)
{
  execute_setup s;
  unsigned char room[sizeof(twh_error) + 16];
  twh_error     error;
  uint32_t      size = 64;
  (void)state;
  execute_begin(&s, 0);
  s.tensors.all.q = NULL;
  memset(room, 0xaa, sizeof room);
  memcpy(room, &size, sizeof size);
  assert_int_equal(twh_plan_execute(s.plan, &s.tensors.all, NULL, (twh_error *)(void *)room), TWH_E_ARGUMENT);
  assert_int_equal(room[64], 0xaa);
  memcpy(&error, room, 64);
  assert_int_equal(error.status, TWH_E_ARGUMENT);
  execute_end(&s);
}

static void the_description_is_cut_at_the_buffer_and_says_its_length(void **state)
{
  execute_setup s;
  char          whole[4096], cut[4096];
  size_t        needed = 0, again = 0, bytes;
  int64_t       lines = 0;
  (void)state;
  execute_begin(&s, 0);
  assert_int_equal(twh_plan_describe(s.plan, NULL, 0, &needed, NULL), TWH_OK);
  assert_true(needed > 100 && needed <= sizeof whole);
  assert_int_equal(twh_plan_describe(s.plan, whole, sizeof whole, &again, NULL), TWH_OK);
  assert_int_equal(needed, again);
  assert_int_equal(strlen(whole) + 1, needed);
  assert_int_equal(whole[needed - 2], '\n');
  for (bytes = 0; bytes < needed; ++bytes) lines += whole[bytes] == '\n';
  assert_true(lines >= 5 && lines <= 20);
  for (bytes = 1; bytes <= needed; ++bytes) {
    memset(cut, 'x', sizeof cut);
    assert_int_equal(twh_plan_describe(s.plan, cut, bytes, &again, NULL), TWH_OK);
    assert_int_equal(again, needed);
    assert_int_equal(strlen(cut), bytes - 1);
    assert_memory_equal(cut, whole, bytes - 1);
    assert_int_equal(cut[bytes], 'x');
  }
  execute_end(&s);
}

static void equal_problems_make_equal_plans(void **state)
{
  execute_setup a, b;
  char          one[4096], two[4096];
  (void)state;
  execute_begin(&a, 0);
  execute_begin(&b, 0);
  assert_int_equal(twh_plan_describe(a.plan, one, sizeof one, NULL, NULL), TWH_OK);
  assert_int_equal(twh_plan_describe(b.plan, two, sizeof two, NULL, NULL), TWH_OK);
  assert_string_equal(one, two);
  execute_end(&a);
  execute_end(&b);
}

static void status_names_are_known_and_unknown(void **state)
{
  (void)state;
  assert_string_equal(twh_status_name(TWH_OK), "TWH_OK");
  assert_string_equal(twh_status_name(TWH_E_MEMORY), "TWH_E_MEMORY");
  assert_string_equal(twh_status_name(TWH_E_PLUGIN), "TWH_E_PLUGIN");
  assert_string_equal(twh_status_name(1), "unknown status");
  assert_string_equal(twh_status_name(-1000), "unknown status");
  assert_int_equal(twh_version(), TWH_VERSION);
}

static void execute_every_task_here(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
  (void)user;
  for (int64_t i = 0; i < n; ++i) task(arg, i);
}

/* A hint and a limit that say "any number" must not make a wave of any size. */
static void execute_unbounded_parallelism_makes_a_bounded_wave(void **state)
{
  execute_setup    s;
  twh_context_desc hooks;
  twh_context     *context = NULL;
  twh_oracle      *oracle = NULL;
  twh_plan        *plan = NULL;
  twh_plan_info    info;
  size_t           bytes;
  void            *first;
  (void)state;
  execute_begin(&s, 0);
  bytes = 2 * 10 * 4 * sizeof(float); /* out: (1, 2, 10, 4) */
  first = malloc(bytes);
  assert_non_null(first);
  assert_int_equal(twh_plan_execute(s.plan, &s.tensors.all, NULL, NULL), TWH_OK);
  memcpy(first, s.tensors.out.data, bytes);
  twh_context_desc_init(&hooks);
  hooks.parallel_for = execute_every_task_here;
  hooks.parallelism = INT64_MAX;
  assert_int_equal(twh_context_create(&hooks, &context, NULL), TWH_OK);
  s.desc.max_concurrent_batches = INT64_MAX;
  assert_int_equal(twh_reference_oracle_create(context, &s.desc, NULL, &oracle, NULL), TWH_OK);
  s.problem.batch = 1;
  s.problem.k_len = (int64_t)1 << 24; /* far more calls than a wave should hold */
  assert_int_equal(twh_plan_create(context, &s.problem, &oracle, 1, NULL, &plan, NULL), TWH_OK);
  twh_plan_info_init(&info);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  assert_true(info.workspace_bytes > 0 && info.workspace_bytes < (int64_t)256 << 20);
  twh_plan_destroy(plan);
  s.problem.k_len = 10;
  assert_int_equal(twh_plan_create(context, &s.problem, &oracle, 1, NULL, &plan, NULL), TWH_OK);
  support_tensors_clear(&s.tensors);
  assert_int_equal(twh_plan_execute(plan, &s.tensors.all, NULL, NULL), TWH_OK);
  assert_memory_equal(first, s.tensors.out.data, bytes);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  twh_context_destroy(context);
  free(first);
  execute_end(&s);
}

/* Run a problem with sharp logits on a kernel of 32 tokens without lse; out: room for 4 heads, 100 rows, 8 columns. */
static void execute_sharp(int64_t slots, float *out, twh_run_stats *stats)
{
  support_fill    fill;
  support_random  random = support_random_at(3, 1);
  support_oracle  oracle;
  support_tensors tensors;
  twh_oracle_desc desc;
  twh_problem     problem;
  twh_plan       *plan = NULL;
  twh_run_options options;
  memset(&fill, 0, sizeof fill);
  fill.logit_std = 25.0;
  twh_problem_init(&problem);
  problem.batch = 1;
  problem.q_heads = problem.kv_heads = 4;
  problem.q_len = problem.k_len = 100;
  problem.qk_dim = problem.v_dim = 8;
  twh_oracle_desc_init(&desc);
  desc.slots = slots;
  desc.q_len = desc.k_len = 32;
  desc.qk_dim = 8;
  desc.v_dim = 9;
  desc.dtype = TWH_F32;
  desc.mask_modes = TWH_MASK_NONE;
  desc.scale = 0.35;
  desc.max_calls_per_batch = 100; /* all in one wave */
  support_oracle_create(&oracle, NULL, &desc, NULL);
  assert_int_equal(twh_plan_create(NULL, &problem, &oracle.oracle, 1, NULL, &plan, NULL), TWH_OK);
  support_tensors_create(&tensors, &problem, TWH_F32, SUPPORT_DENSE, 0);
  support_tensors_fill(&tensors, &problem, &fill, &random);
  twh_run_stats_init(stats);
  twh_run_options_init(&options);
  options.stats = stats;
  assert_int_equal(twh_plan_execute(plan, &tensors.all, &options, NULL), TWH_OK);
  assert_string_equal(oracle.broken, "");
  memcpy(out, tensors.out.data, 4 * 100 * 8 * sizeof *out);
  support_tensors_destroy(&tensors);
  twh_plan_destroy(plan);
  support_oracle_destroy(&oracle);
}

/* A call of five slots is not repeated for one of them. */
static void execute_repairs_share_calls(void **state)
{
  static float  one[4 * 100 * 8], many[4 * 100 * 8];
  twh_run_stats single, packed;
  (void)state;
  execute_sharp(1, one, &single);
  execute_sharp(5, many, &packed);
  assert_true(single.repair_calls > 20); /* several calls' worth, */
  assert_true(single.repair_calls < 60); /* but not all of the 64 tiles */
  assert_int_equal(packed.repair_calls, (single.repair_calls + 4) / 5);
  assert_int_equal(packed.calls - packed.repair_calls, 13);
  assert_int_equal(packed.repaired_rows, single.repaired_rows);
  assert_int_equal(packed.host_rows, single.host_rows);
  assert_true(single.host_rows > 0); /* tiles with one such row are not called again */
  assert_memory_equal(one, many, sizeof one);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(execute_repairs_share_calls),
    cmocka_unit_test(execute_bad_tensors_are_refused_by_name),
    cmocka_unit_test(execute_a_mask_that_the_problem_lacks_is_refused),
    cmocka_unit_test(execute_unknown_flags_and_sizes_are_refused),
    cmocka_unit_test(execute_unbounded_parallelism_makes_a_bounded_wave),
    cmocka_unit_test(execute_a_workspace_is_measured_and_nothing_else_is_allocated),
    cmocka_unit_test(case_C96_structs_of_an_older_or_newer_host_are_filled_as_far_as_they_go),
    cmocka_unit_test(case_C96_an_error_struct_of_an_older_host_is_not_overrun),
    cmocka_unit_test(the_description_is_cut_at_the_buffer_and_says_its_length),
    cmocka_unit_test(equal_problems_make_equal_plans),
    cmocka_unit_test(status_names_are_known_and_unknown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
