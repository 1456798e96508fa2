/* The promise in numbers: error at most twice that of one call of full length, plus one ulp of the kernel's dtype at max |out|,
 * without lse, over logits of standard deviation 0.1 to 1000, in f32, f16 and bf16.
 *
 * 2048 keys of dimension 64. Full attention with 256 query rows; causal with all 2048, on kernels with nothing but a causal
 * mask and on kernels that can choose. Kernels of 256 and of 1024, with and without a spare value column, with and without
 * rounding of the weights before the value product (one call has the same arithmetic). Prints the ratio error / bound. */
#include "support.h"

enum { ACCURACY_KEYS = 2048, ACCURACY_ROWS = 256, ACCURACY_DIM = 64 };

#if SUPPORT_SANITIZED
static const double accuracy_stds[] = {1, 30}; /* what a sanitizer looks for does not depend on them */
#else
static const double accuracy_stds[] = {0.1, 1, 4, 10, 30, 100, 1000};
#endif

typedef struct accuracy_setup {
  twh_problem     problem;
  twh_pattern     pattern;
  support_tensors tensors;
  support_answer  truth;
  int32_t         dtype;
  double          std;
} accuracy_setup;

static void accuracy_begin(accuracy_setup *s, int32_t dtype, double std, int causal)
{
  support_random random = support_random_at(support_seed(2048), (uint64_t)(std * 10.0));
  support_fill   fill;
  memset(s, 0, sizeof *s);
  memset(&fill, 0, sizeof fill);
  s->dtype = dtype;
  s->std = std;
  twh_problem_init(&s->problem);
  twh_pattern_init(&s->pattern);
  s->pattern.flags = causal ? TWH_CAUSAL : 0;
  s->problem.pattern = &s->pattern;
  s->problem.batch = s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.q_len = causal ? ACCURACY_KEYS : ACCURACY_ROWS;
  s->problem.k_len = ACCURACY_KEYS;
  s->problem.qk_dim = s->problem.v_dim = ACCURACY_DIM;
  support_tensors_create(&s->tensors, &s->problem, TWH_F32, SUPPORT_DENSE, 0);
  fill.logit_std = std;
  fill.rounding = dtype;
  support_tensors_fill(&s->tensors, &s->problem, &fill, &random);
  support_answer_truth(&s->truth, &s->problem, &s->tensors);
}

static void accuracy_end(accuracy_setup *s)
{
  support_answer_destroy(&s->truth);
  support_tensors_destroy(&s->tensors);
}

/* Run on one kernel; returns error / bound. */
static double accuracy_ratio(accuracy_setup *s, const support_answer *one_call, uint32_t modes, int64_t q_len, int64_t k_len,
                             int64_t spare, const twh_reference_options *reference, twh_run_stats *stats)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle = NULL;
  twh_plan       *plan = NULL;
  twh_run_options options;
  support_memory  memory;
  twh_context    *context = support_context(&memory, 2, 2);
  support_answer  got;
  double          error, bound;
  twh_oracle_desc_init(&desc);
  desc.slots = 1;
  desc.q_len = q_len;
  desc.k_len = k_len;
  desc.qk_dim = ACCURACY_DIM;
  desc.v_dim = ACCURACY_DIM + spare;
  desc.dtype = s->dtype;
  desc.mask_modes = modes;
  desc.scale = support_scale(&s->problem);
  twh_run_options_init(&options);
  options.stats = stats;
  assert_int_equal(twh_reference_oracle_create(context, &desc, reference, &oracle, NULL), TWH_OK);
  assert_int_equal(twh_plan_create(context, &s->problem, &oracle, 1, NULL, &plan, NULL), TWH_OK);
  support_tensors_clear(&s->tensors);
  assert_int_equal(twh_plan_execute(plan, &s->tensors.all, &options, NULL), TWH_OK);
  support_answer_read(&got, &s->problem, &s->tensors);
  error = support_answer_out_error(&got, &s->truth);
  bound = 2.0 * support_answer_out_error(one_call, &s->truth) + support_ulp(s->truth.max_out, s->dtype);
  support_answer_destroy(&got);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  twh_context_destroy(context);
  return error / bound;
}

static void accuracy_run(int32_t dtype, int causal, const char *name)
{
  static const int64_t lengths[] = { 256, 1024 };
  int64_t              i, j, spare, kind, failures = 0;
  int32_t              rounds;
  print_message("%s: error / bound, and rows repaired; M = 256 and 1024, each without and with a spare value column\n", name);
  for (i = 0; i < SUPPORT_COUNT(accuracy_stds); ++i) {
    accuracy_setup s;
    accuracy_begin(&s, dtype, accuracy_stds[i], causal);
    for (rounds = 0; rounds < (dtype == TWH_F32 ? 1 : 2); ++rounds) { /* in f32 it is lost in what is rounded anyway */
      twh_reference_options reference;
      twh_oracle_desc       kernel;
      support_answer        one_call;
      twh_reference_options_init(&reference);
      reference.round_weights = rounds;
      twh_oracle_desc_init(&kernel);
      kernel.dtype = dtype;
      kernel.scale = support_scale(&s.problem);
      support_answer_one_call(&one_call, &s.problem, &s.tensors, &kernel, &reference);
      for (kind = 0; kind < (causal && !rounds ? 2 : 1); ++kind) {
        uint32_t modes = !causal ? TWH_MASK_NONE : kind ? TWH_MASK_NONE | TWH_MASK_CAUSAL : TWH_MASK_CAUSAL;
        print_message("  std %6g%s%s:", accuracy_stds[i],
                      !causal ? ""
                      : kind  ? " none + causal"
                              : " causal only  ",
                      rounds ? ", rounded weights" : "                 ");
        for (j = 0; j < SUPPORT_COUNT(lengths); ++j)
          for (spare = 0; spare < 2; ++spare) {
            twh_run_stats stats;
            double        ratio;
            int64_t       q_len = causal ? lengths[j] : (int64_t)ACCURACY_ROWS;
            twh_run_stats_init(&stats);
            ratio = accuracy_ratio(&s, &one_call, modes, q_len, lengths[j], spare, &reference, &stats);
            print_message("  %.2f %6lld", ratio, (long long)(stats.repaired_rows + stats.host_rows));
            failures += !(ratio <= 1.0);
          }
        print_message("\n");
      }
      support_answer_destroy(&one_call);
    }
    accuracy_end(&s);
  }
  assert_int_equal(failures, 0);
}

static void full_attention_in_f32(void **state)
{
  (void)state;
  accuracy_run(TWH_F32, 0, "full, f32");
}

static void full_attention_in_f16(void **state)
{
  (void)state;
  accuracy_run(TWH_F16, 0, "full, f16");
}

static void full_attention_in_bf16(void **state)
{
  (void)state;
  accuracy_run(TWH_BF16, 0, "full, bf16");
}

static void causal_attention_in_f32(void **state)
{
  (void)state;
  accuracy_run(TWH_F32, 1, "causal, f32");
}

static void causal_attention_in_f16(void **state)
{
  (void)state;
  accuracy_run(TWH_F16, 1, "causal, f16");
}

static void causal_attention_in_bf16(void **state)
{
  (void)state;
  accuracy_run(TWH_BF16, 1, "causal, bf16");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(full_attention_in_f32),
    cmocka_unit_test(full_attention_in_f16),
    cmocka_unit_test(full_attention_in_bf16),
    cmocka_unit_test(causal_attention_in_f32),
    cmocka_unit_test(causal_attention_in_f16),
    cmocka_unit_test(causal_attention_in_bf16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
