/* Bad input, by table: every field of what a caller fills, its status, and the word that the message must contain.
 *
 * A row says where the field is and what is written there; the rest of the setup is valid, which the first test shows. */
#include "support.h"

typedef struct arguments_setup {
  twh_context_desc context;
  twh_oracle_desc  desc;
  twh_pattern      pattern;
  twh_sequence     sequences[2];
  twh_problem      problem;
  twh_plan_options options;
  uint32_t         use_sequences, extra; /* extra: bits for what no field can say, see arguments_try */
} arguments_setup;

enum { SKIP_RUN = 1, SUBMIT_ONLY = 2, PATTERN = 4 };

static int32_t arguments_run(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user;
  (void)calls;
  (void)n;
  return 1;
}

static int32_t arguments_submit(void *user, const twh_call *const *calls, int64_t n, uint64_t *ticket)
{
  (void)user;
  (void)calls;
  (void)n;
  *ticket = 0;
  return 1;
}

static void arguments_init(arguments_setup *s)
{
  memset(s, 0, sizeof *s);
  twh_context_desc_init(&s->context);
  twh_oracle_desc_init(&s->desc);
  twh_pattern_init(&s->pattern);
  twh_problem_init(&s->problem);
  twh_plan_options_init(&s->options);
  s->desc.slots = 2;
  s->desc.q_len = s->desc.k_len = 8;
  s->desc.qk_dim = 4;
  s->desc.v_dim = 5;
  s->desc.dtype = TWH_F32;
  s->desc.mask_modes = 7;
  s->desc.scale = 0.5;
  s->problem.batch = 2;
  s->problem.q_heads = s->problem.kv_heads = 2;
  s->problem.q_len = s->problem.k_len = 16;
  s->problem.qk_dim = s->problem.v_dim = 4;
  s->sequences[0].q_len = s->sequences[0].k_len = 5;
  s->sequences[1].q_begin = s->sequences[1].k_begin = 5;
  s->sequences[1].q_len = s->sequences[1].k_len = 7;
}

/* Create everything; what fails first is returned. */
static twh_status arguments_try(arguments_setup *s, twh_error *error)
{
  twh_context *context = NULL;
  twh_oracle  *oracle = NULL;
  twh_plan    *plan = NULL;
  twh_status   status;
  if (!(s->extra & SKIP_RUN)) s->desc.run = arguments_run;
  if (s->extra & SUBMIT_ONLY) s->desc.submit = arguments_submit;
  if (s->use_sequences) {
    s->problem.sequences = s->sequences;
    s->problem.q_len = s->problem.k_len = 0;
  }
  if (s->pattern.flags || (s->extra & PATTERN)) s->problem.pattern = &s->pattern;
  status = twh_context_create(&s->context, &context, error);
  if (status >= 0) status = twh_oracle_create(context, &s->desc, &oracle, error);
  else assert_null(context);
  if (status >= 0) status = twh_plan_create(context, &s->problem, &oracle, 1, &s->options, &plan, error);
  else assert_null(oracle);
  if (status < 0) assert_null(plan);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  twh_context_destroy(context);
  return status;
}

typedef struct arguments_row {
  const char *word;   /* in the message */
  size_t      offset; /* of the field in the setup */
  char        kind;   /* 'q' int64, 'd' int32 or uint32, 'f' double */
  double      value;
  twh_status  status;
  uint32_t    sequences, extra, causal;
} arguments_row;

#define AT(field) offsetof(arguments_setup, field)
#define HUGE_SIZE 4611686018427387904.0 /* 2^62 */

static const arguments_row arguments_rows[] = {
  {"parallelism", AT(context.parallelism), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"flags", AT(context.flags), 'd', 1, TWH_E_VERSION, 0, 0, 0},
  {"slots", AT(desc.slots), 'q', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"slots", AT(desc.slots), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_len", AT(desc.q_len), 'q', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"k_len", AT(desc.k_len), 'q', -8, TWH_E_ARGUMENT, 0, 0, 0},
  {"qk_dim", AT(desc.qk_dim), 'q', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"v_dim", AT(desc.v_dim), 'q', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"dtype", AT(desc.dtype), 'd', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"dtype", AT(desc.dtype), 'd', TWH_F64, TWH_E_ARGUMENT, 0, 0, 0},
  {"dtype", AT(desc.dtype), 'd', TWH_BOOL, TWH_E_ARGUMENT, 0, 0, 0},
  {"dtype", AT(desc.dtype), 'd', 99, TWH_E_ARGUMENT, 0, 0, 0},
  {"out_dtype", AT(desc.out_dtype), 'd', TWH_BOOL, TWH_E_ARGUMENT, 0, 0, 0},
  {"out_dtype", AT(desc.out_dtype), 'd', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"mask_dtype", AT(desc.mask_dtype), 'd', 6, TWH_E_ARGUMENT, 0, 0, 0},
  {"mask_modes", AT(desc.mask_modes), 'd', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"mask_modes", AT(desc.mask_modes), 'd', 9, TWH_E_VERSION, 0, 0, 0},
  {"flags", AT(desc.flags), 'd', 1 << 30, TWH_E_VERSION, 0, 0, 0},
  {"causal_offset", AT(desc.causal_offset), 'q', 8, TWH_E_ARGUMENT, 0, 0, 0},
  {"causal_offset", AT(desc.causal_offset), 'q', -8, TWH_E_ARGUMENT, 0, 0, 0},
  {"scale", AT(desc.scale), 'f', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"scale", AT(desc.scale), 'f', (double)INFINITY, TWH_E_ARGUMENT, 0, 0, 0},
  {"scale", AT(desc.scale), 'f', (double)NAN, TWH_E_ARGUMENT, 0, 0, 0},
  {"softcap", AT(desc.softcap), 'f', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"softcap", AT(desc.softcap), 'f', (double)NAN, TWH_E_ARGUMENT, 0, 0, 0},
  {"mask_value", AT(desc.mask_value), 'f', (double)NAN, TWH_E_ARGUMENT, 0, 0, 0},
  {"mask_value", AT(desc.mask_value), 'f', 1, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_row_stride", AT(desc.q_row_stride), 'q', 3, TWH_E_ARGUMENT, 0, 0, 0},
  {"k_row_stride", AT(desc.k_row_stride), 'q', -4, TWH_E_ARGUMENT, 0, 0, 0},
  {"v_row_stride", AT(desc.v_row_stride), 'q', 4, TWH_E_ARGUMENT, 0, 0, 0},
  {"out_row_stride", AT(desc.out_row_stride), 'q', 1, TWH_E_ARGUMENT, 0, 0, 0},
  {"out_slot_stride", AT(desc.out_slot_stride), 'q', 5, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_slot_stride", AT(desc.q_slot_stride), 'q', -32, TWH_E_ARGUMENT, 0, 0, 0},
  {"of k", AT(desc.k_slot_stride), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0, 0, 0},
  {"q_len_min", AT(desc.q_len_min), 'q', 9, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_len_min", AT(desc.q_len_min), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_len_step", AT(desc.q_len_step), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"k_len_min", AT(desc.k_len_min), 'q', 9, TWH_E_ARGUMENT, 0, 0, 0},
  {"k_len_step", AT(desc.k_len_step), 'q', -2, TWH_E_ARGUMENT, 0, 0, 0},
  {"alignment", AT(desc.alignment), 'q', 3, TWH_E_ARGUMENT, 0, 0, 0},
  {"alignment", AT(desc.alignment), 'q', -64, TWH_E_ARGUMENT, 0, 0, 0},
  {"max_calls_per_batch", AT(desc.max_calls_per_batch), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"max_concurrent_batches", AT(desc.max_concurrent_batches), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"cost_per_call", AT(desc.cost_per_call), 'f', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"cost_per_batch", AT(desc.cost_per_batch), 'f', (double)NAN, TWH_E_ARGUMENT, 0, 0, 0},
  {"run", AT(extra), 'd', SKIP_RUN, TWH_E_ARGUMENT, 0, 0, 0},
  {"wait", AT(extra), 'd', SUBMIT_ONLY, TWH_E_ARGUMENT, 0, 0, 0},
  {"", AT(desc.k_len), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0, 0, 0},
  {"", AT(desc.slots), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0, 0, 0},
  {"batch", AT(problem.batch), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_heads", AT(problem.q_heads), 'q', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_heads", AT(problem.q_heads), 'q', -2, TWH_E_ARGUMENT, 0, 0, 0},
  {"kv_heads", AT(problem.kv_heads), 'q', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_heads", AT(problem.q_heads), 'q', 3, TWH_E_ARGUMENT, 0, 0, 0},
  {"q_len", AT(problem.q_len), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"k_len", AT(problem.k_len), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"qk_dim", AT(problem.qk_dim), 'q', 0, TWH_E_ARGUMENT, 0, 0, 0},
  {"v_dim", AT(problem.v_dim), 'q', -4, TWH_E_ARGUMENT, 0, 0, 0},
  {"qk_dim", AT(problem.qk_dim), 'q', 5, TWH_E_UNSUPPORTED, 0, 0, 0},
  {"softcap", AT(problem.softcap), 'f', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"softcap", AT(problem.softcap), 'f', (double)NAN, TWH_E_ARGUMENT, 0, 0, 0},
  {"softcap", AT(problem.softcap), 'f', 30, TWH_E_UNSUPPORTED, 0, 0, 0},
  {"softcap", AT(desc.softcap), 'f', 30, TWH_E_UNSUPPORTED, 0, 0, 0},
  {"flags", AT(problem.flags), 'd', 1 << 7, TWH_E_VERSION, 0, 0, 0},
  {"mask_dtype", AT(problem.mask_dtype), 'd', 42, TWH_E_ARGUMENT, 0, 0, 0},
  {"reserved", AT(problem.reserved), 'd', 1, TWH_E_VERSION, 0, 0, 0},
  {"q_offset", AT(problem.q_offset), 'q', 9.2e18, TWH_E_OVERFLOW, 0, 0, TWH_CAUSAL},
  {"q_offset", AT(problem.q_offset), 'q', 9.2e18, TWH_E_OVERFLOW, 0, 0, TWH_LEFT},
  {"q_offset", AT(problem.q_offset), 'q', -9.2e18, TWH_E_ARGUMENT, 0, 0, TWH_RIGHT},
  {"", AT(problem.q_len), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0, 0, 0},
  {"", AT(problem.batch), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0, 0, 0},
  {"", AT(problem.q_heads), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0, 0, 0},
  {"flags", AT(pattern.flags), 'd', 1 << 9, TWH_E_VERSION, 0, 0, 0},
  {"sink_tokens", AT(pattern.sink_tokens), 'q', -1, TWH_E_ARGUMENT, 0, PATTERN, 0},
  {"left", AT(pattern.left), 'q', -1, TWH_E_ARGUMENT, 0, PATTERN, TWH_LEFT},
  {"right", AT(pattern.right), 'q', -1, TWH_E_ARGUMENT, 0, PATTERN, TWH_RIGHT},
  {"qk_dim", AT(problem.flags), 'd', TWH_PROBLEM_KEY_BIAS, TWH_E_UNSUPPORTED, 0, 0, 0},
  {"qk_dim", AT(problem.flags), 'd', TWH_PROBLEM_ALIBI, TWH_E_UNSUPPORTED, 0, 0, TWH_CAUSAL},
  {"q_len", AT(sequences[0].q_len), 'q', -1, TWH_E_ARGUMENT, 1, 0, 0},
  {"k_len", AT(sequences[1].k_len), 'q', -1, TWH_E_ARGUMENT, 1, 0, 0},
  {"q_begin", AT(sequences[1].q_begin), 'q', -1, TWH_E_ARGUMENT, 1, 0, 0},
  {"k_begin", AT(sequences[0].k_begin), 'q', -3, TWH_E_ARGUMENT, 1, 0, 0},
  {"k_offset", AT(sequences[0].k_offset), 'q', -1, TWH_E_ARGUMENT, 1, 0, 0},
  {"", AT(sequences[0].k_offset), 'q', 9.2e18, TWH_E_OVERFLOW, 1, 0, TWH_CAUSAL},
  {"", AT(sequences[1].q_begin), 'q', 9.223372036854775e18, TWH_E_OVERFLOW, 1, 0, 0},
  {"flags", AT(options.flags), 'd', 2, TWH_E_VERSION, 0, 0, 0},
  {"workspace_limit", AT(options.workspace_limit), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
  {"max_calls_per_batch", AT(options.max_calls_per_batch), 'q', -1, TWH_E_ARGUMENT, 0, 0, 0},
};

static void arguments_write(arguments_setup *s, const arguments_row *row)
{
  char    *at = (char *)s + row->offset;
  int64_t  q;
  uint32_t d;
  s->use_sequences = row->sequences;
  s->extra |= row->extra;
  s->pattern.flags |= row->causal;
  switch (row->kind) {
  case 'q':
    q = (int64_t)row->value;
    memcpy(at, &q, sizeof q);
    break;
  case 'd':
    d = row->value < 0 ? (uint32_t)(int32_t)row->value : (uint32_t)row->value;
    memcpy(at, &d, sizeof d);
    break;
  default: memcpy(at, &row->value, sizeof row->value); break;
  }
}

static void the_setup_itself_is_valid(void **state)
{
  arguments_setup s;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  arguments_init(&s);
  support_assert_status(arguments_try(&s, &error), TWH_OK, &error, NULL);
  arguments_init(&s);
  s.use_sequences = 1;
  s.pattern.flags = TWH_CAUSAL;
  support_assert_status(arguments_try(&s, &error), TWH_OK, &error, NULL);
  assert_int_equal(error.status, TWH_OK); /* untouched by what succeeds */
  arguments_init(&s);
  s.desc.scale = 0.0;
  s.desc.flags = TWH_ORACLE_SCALE_PER_CALL;
  support_assert_status(arguments_try(&s, &error), TWH_OK, &error, NULL);
}

static void every_bad_field_has_its_status_and_is_named(void **state)
{
  int64_t i, failures = 0;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(arguments_rows); ++i) {
    const arguments_row *row = &arguments_rows[i];
    arguments_setup      s;
    twh_error            error;
    twh_status           status;
    twh_error_init(&error);
    arguments_init(&s);
    arguments_write(&s, row);
    status = arguments_try(&s, &error);
    if (status == row->status && error.status == status && strstr(error.message, row->word) && error.message[0] &&
        !strchr(error.message, '\n') && error.call == -1 && error.row == -1 && error.slot == -1 && error.oracle_code == 0)
      continue;
    print_error("row %lld, %s = %g: %s \"%s\", expected %s\n", (long long)i, row->word, row->value, twh_status_name(status),
                error.message, twh_status_name(row->status));
    ++failures;
  }
  assert_int_equal(failures, 0);
}

static void one_hook_of_a_pair_is_refused(void **state)
{
  support_memory   memory;
  twh_context_desc desc;
  twh_context     *context = NULL;
  twh_error        error;
  (void)state;
  twh_error_init(&error);
  support_context_desc(&memory, 0, 0, &desc);
  desc.release = NULL;
  support_assert_status(twh_context_create(&desc, &context, &error), TWH_E_ARGUMENT, &error, "release");
  support_context_desc(&memory, 0, 0, &desc);
  desc.allocate = NULL;
  support_assert_status(twh_context_create(&desc, &context, &error), TWH_E_ARGUMENT, &error, "allocate");
  support_assert_status(twh_context_create(&desc, NULL, &error), TWH_E_ARGUMENT, &error, "out");
  assert_null(context);
}

static void a_kernel_that_masks_too_little_is_refused_where_it_has_nothing_else(void **state)
{
  arguments_setup s;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  arguments_init(&s);
  s.desc.causal_offset = 1;
  s.pattern.flags = TWH_CAUSAL;
  support_assert_status(arguments_try(&s, &error), TWH_OK, &error, NULL); /* it has a mask operand */
  s.desc.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
  support_assert_status(arguments_try(&s, &error), TWH_OK, &error, NULL); /* it can run unmasked */
  s.desc.mask_modes = TWH_MASK_CAUSAL;
  support_assert_status(arguments_try(&s, &error), TWH_E_UNSUPPORTED, &error, "causal_offset");
}

static void null_where_it_is_not_allowed_is_refused(void **state)
{
  arguments_setup s;
  twh_oracle     *oracle = NULL, *none = NULL;
  twh_plan       *plan = NULL;
  twh_plan_info   info;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  twh_plan_info_init(&info);
  arguments_init(&s);
  s.desc.run = arguments_run;
  support_assert_status(twh_oracle_create(NULL, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "desc");
  support_assert_status(twh_oracle_create(NULL, &s.desc, NULL, &error), TWH_E_ARGUMENT, &error, "out");
  support_assert_status(twh_oracle_create(NULL, &s.desc, &oracle, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_oracle_get_desc(oracle, NULL, &error), TWH_E_ARGUMENT, &error, "out");
  support_assert_status(twh_oracle_get_desc(NULL, &s.desc, &error), TWH_E_ARGUMENT, &error, "oracle");
  support_assert_status(twh_plan_create(NULL, NULL, &oracle, 1, NULL, &plan, &error), TWH_E_ARGUMENT, &error, "problem");
  support_assert_status(twh_plan_create(NULL, &s.problem, NULL, 1, NULL, &plan, &error), TWH_E_ARGUMENT, &error, "oracles");
  support_assert_status(twh_plan_create(NULL, &s.problem, &none, 1, NULL, &plan, &error), TWH_E_ARGUMENT, &error, "oracles");
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 0, NULL, &plan, &error), TWH_E_ARGUMENT, &error,
                        "n_oracles");
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, -1, NULL, &plan, &error), TWH_E_ARGUMENT, &error,
                        "n_oracles");
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "out");
  assert_null(plan);
  support_assert_status(twh_plan_create(NULL, &s.problem, &oracle, 1, NULL, &plan, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_plan_get_info(plan, NULL, &error), TWH_E_ARGUMENT, &error, "out");
  support_assert_status(twh_plan_get_info(NULL, &info, &error), TWH_E_ARGUMENT, &error, "plan");
  support_assert_status(twh_plan_describe(NULL, NULL, 0, NULL, &error), TWH_E_ARGUMENT, &error, "plan");
  support_assert_status(twh_plan_describe(plan, NULL, 8, NULL, &error), TWH_E_ARGUMENT, &error, "buffer");
  support_assert_status(twh_plan_visit(plan, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "visit");
  support_assert_status(twh_plan_execute(NULL, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "plan");
  support_assert_status(twh_plan_execute(plan, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "tensors");
  assert_int_equal(twh_plan_execute(plan, NULL, NULL, NULL), TWH_E_ARGUMENT); /* an error struct is never needed */
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  twh_plan_destroy(NULL);
  twh_oracle_destroy(NULL);
  twh_context_destroy(NULL);
}

static void a_negative_side_is_a_mistake_and_an_unused_one_is_not(void **state)
{
  static const struct {
    uint32_t    flags;
    int64_t     left, right, sinks;
    twh_status  status;
    const char *word;
  } rows[] = {
    {TWH_LEFT, -3, 0, 0, TWH_E_ARGUMENT, "left"},
    {TWH_LEFT | TWH_RIGHT, 2, -5, 0, TWH_E_ARGUMENT, "right"},
    {TWH_CAUSAL | TWH_LEFT, -1, 0, 0, TWH_E_ARGUMENT, "left"},
    {TWH_CAUSAL | TWH_LEFT, 2, 0, -1, TWH_E_ARGUMENT, "sink_tokens"},
    {TWH_CAUSAL | TWH_LEFT, 2, 0, 0, TWH_OK, NULL},
    {TWH_LEFT | TWH_RIGHT, 0, 0, 0, TWH_OK, NULL},
    {TWH_CAUSAL | TWH_LEFT | TWH_RIGHT, 2, 3, 4, TWH_OK, NULL},
    {TWH_CAUSAL, 2, 3, 0, TWH_OK, NULL}, /* used only with their flags */
  };
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(rows); ++i) {
    arguments_setup s;
    twh_error       error;
    twh_error_init(&error);
    arguments_init(&s);
    s.pattern.flags = rows[i].flags;
    s.pattern.left = rows[i].left;
    s.pattern.right = rows[i].right;
    s.pattern.sink_tokens = rows[i].sinks;
    support_assert_status(arguments_try(&s, &error), rows[i].status, &error, rows[i].word);
  }
}

/* ---- struct sizes ---- */

typedef struct arguments_long {
  arguments_setup setup; /* only for its alignment */
  unsigned char   room[sizeof(twh_oracle_desc) + 64];
} arguments_long;

typedef twh_status arguments_use(arguments_setup *s, void *given, twh_error *error);

static twh_status arguments_use_context(arguments_setup *s, void *given, twh_error *error)
{
  twh_context *context = NULL;
  twh_status   status = twh_context_create((const twh_context_desc *)given, &context, error);
  (void)s;
  twh_context_destroy(context);
  return status;
}

static twh_status arguments_use_desc(arguments_setup *s, void *given, twh_error *error)
{
  twh_oracle *oracle = NULL;
  twh_status  status = twh_oracle_create(NULL, (const twh_oracle_desc *)given, &oracle, error);
  (void)s;
  twh_oracle_destroy(oracle);
  return status;
}

static twh_status arguments_use_plan(arguments_setup *s, const twh_problem *problem, const twh_plan_options *options,
                                     twh_error *error)
{
  twh_oracle *oracle = NULL;
  twh_plan   *plan = NULL;
  twh_status  status;
  assert_int_equal(twh_oracle_create(NULL, &s->desc, &oracle, NULL), TWH_OK);
  status = twh_plan_create(NULL, problem, &oracle, 1, options, &plan, error);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  return status;
}

static twh_status arguments_use_problem(arguments_setup *s, void *given, twh_error *error)
{
  return arguments_use_plan(s, (const twh_problem *)given, NULL, error);
}

static twh_status arguments_use_options(arguments_setup *s, void *given, twh_error *error)
{
  return arguments_use_plan(s, &s->problem, (const twh_plan_options *)given, error);
}

static twh_status arguments_use_pattern(arguments_setup *s, void *given, twh_error *error)
{
  s->problem.pattern = (const twh_pattern *)given;
  return arguments_use_plan(s, &s->problem, NULL, error);
}

static void case_C97_unknown_struct_sizes_are_answered_not_trusted(void **state)
{
  static const struct {
    arguments_use *use;
    size_t         offset, size;
  } rows[] = {
    {arguments_use_context, AT(context), sizeof(twh_context_desc)},
    {arguments_use_desc, AT(desc), sizeof(twh_oracle_desc)},
    {arguments_use_problem, AT(problem), sizeof(twh_problem)},
    {arguments_use_options, AT(options), sizeof(twh_plan_options)},
    {arguments_use_pattern, AT(pattern), sizeof(twh_pattern)},
  };
  int64_t i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(rows); ++i) {
    arguments_setup s;
    arguments_long *given = (arguments_long *)calloc(1, sizeof *given);
    uint32_t        size;
    twh_error       error;
    assert_non_null(given);
    twh_error_init(&error);
    arguments_init(&s);
    s.desc.run = arguments_run;
    memcpy(given->room, (char *)&s + rows[i].offset, rows[i].size);
    assert_int_equal(rows[i].use(&s, given->room, &error), TWH_OK);
    size = 0;
    memcpy(given->room, &size, sizeof size);
    assert_int_equal(rows[i].use(&s, given->room, &error), TWH_E_ARGUMENT);
    size = 4;
    memcpy(given->room, &size, sizeof size);
    support_assert_status(rows[i].use(&s, given->room, &error), TWH_E_VERSION, &error, "struct_size");
    size = (uint32_t)rows[i].size + 64;
    memcpy(given->room, &size, sizeof size);
    assert_int_equal(rows[i].use(&s, given->room, &error), TWH_OK);
    given->room[rows[i].size + 63] = 1;
    assert_int_equal(rows[i].use(&s, given->room, &error), TWH_E_VERSION);
    free(given);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_setup_itself_is_valid),
    cmocka_unit_test(every_bad_field_has_its_status_and_is_named),
    cmocka_unit_test(one_hook_of_a_pair_is_refused),
    cmocka_unit_test(a_kernel_that_masks_too_little_is_refused_where_it_has_nothing_else),
    cmocka_unit_test(null_where_it_is_not_allowed_is_refused),
    cmocka_unit_test(a_negative_side_is_a_mistake_and_an_unused_one_is_not),
    cmocka_unit_test(case_C97_unknown_struct_sizes_are_answered_not_trusted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
