/* One head, written down as numbers: the smallest way to put a case into a test and to run it on every kernel of the table.
 *
 * The tensors are float64, so that what a test writes is what the kernel's dtype is rounded from. */
#include "support.h"

void support_head_init(support_head *head, int64_t q_len, int64_t k_len, int causal)
{
  memset(head, 0, sizeof *head);
  twh_problem_init(&head->problem);
  twh_pattern_init(&head->pattern);
  head->problem.batch = head->problem.q_heads = head->problem.kv_heads = 1;
  head->problem.q_len = q_len;
  head->problem.k_len = k_len;
  head->problem.qk_dim = head->problem.v_dim = 1;
  head->problem.flags = TWH_PROBLEM_SCALE;
  head->problem.scale = 1.0;
  head->pattern.flags = causal ? TWH_CAUSAL : 0;
  head->problem.pattern = &head->pattern;
}

static void support_head_copy(twh_tensor *tensor, const double *from, double otherwise, int64_t rows, int64_t dim)
{
  int64_t i;
  for (i = 0; i < rows * dim; ++i) support_store(tensor->data, tensor->dtype, i, from ? from[i] : otherwise);
}

static void support_head_tensors(const support_head *head, support_tensors *tensors)
{
  const twh_problem *p = &head->problem;
  int64_t            i;
  support_tensors_create(tensors, p, TWH_F64, SUPPORT_DENSE, SUPPORT_LSE | (head->sink ? SUPPORT_SINKS : 0));
  support_head_copy(&tensors->q, head->q, 0.0, p->q_len, p->qk_dim);
  support_head_copy(&tensors->k, head->k, 0.0, p->k_len, p->qk_dim);
  support_head_copy(&tensors->v, head->v, 1.0, p->k_len, p->v_dim);
  if (head->sink) support_store(tensors->sinks.data, TWH_F64, 0, *head->sink);
  if (p->mask_dtype == TWH_BOOL)
    for (i = 0; i < p->q_len * p->k_len; ++i) support_store(tensors->mask.data, TWH_BOOL, i, (double)head->mask[i]);
}

twh_status support_head_run(const char *name, const support_head *head, const twh_oracle_desc *desc, double *out, double *lse,
                            twh_run_stats *stats, twh_error *error)
{
  const twh_problem *p = &head->problem;
  support_tensors    tensors;
  twh_status         status;
  support_head_tensors(head, &tensors);
  status = support_solve(name, p, desc, &tensors, stats, error);
  memcpy(out, tensors.out.data, sizeof *out * (size_t)(p->q_len * p->v_dim));
  if (lse) memcpy(lse, tensors.lse.data, sizeof *lse * (size_t)p->q_len);
  support_tensors_destroy(&tensors);
  return status;
}

static void support_head_compare(const char *name, const char *kernel, const char *what, const double *got, const double *want,
                                 int64_t n, double relative, double absolute)
{
  int64_t i;
  for (i = 0; i < n; ++i) {
    if (got[i] == want[i] || fabs(got[i] - want[i]) <= relative * (1.0 + fabs(want[i])) + absolute) continue;
    print_error("%s, %s: %s[%lld] is %.12g, not %.12g\n", name, kernel, what, (long long)i, got[i], want[i]);
    fail();
  }
}

int64_t support_head_expect(const char *name, const support_head *head, int64_t m, const double *want_out,
                            const double *want_lse, double ulps)
{
  const twh_problem *p = &head->problem;
  double            *out = (double *)malloc(sizeof *out * (size_t)(p->q_len * (p->v_dim + 1) + 1)), *lse;
  double             largest = 1.0, lost = 2.0 * support_ulp(head->height, TWH_F32);
  int64_t            i, ran = 0;
  assert_non_null(out);
  for (i = 0; head->v && i < p->k_len * p->v_dim; ++i) largest = fabs(head->v[i]) > largest ? fabs(head->v[i]) : largest;
  lse = out + p->q_len * p->v_dim;
  for (i = 0; i < support_kernel_count; ++i) {
    const support_kernel *kernel = &support_kernels[i];
    twh_oracle_desc       desc;
    twh_error             error;
    double                bound = ulps * support_epsilon(kernel->dtype);
    if ((head->without >> kernel->dtype & 1u) || (head->avoid & kernel->flags)) continue;
    support_kernel_desc(kernel, p, m, m, &desc);
    if (!support_must_run(p, &desc)) continue;
    twh_error_init(&error);
    if (support_head_run(name, head, &desc, out, lse, NULL, &error) != TWH_OK) {
      print_error("%s, %s: %s\n", name, kernel->name, error.message);
      fail();
    }
    support_head_compare(name, kernel->name, "out", out, want_out, p->q_len * p->v_dim, bound, lost * largest);
    if (want_lse)
      support_head_compare(name, kernel->name, "lse", lse, want_lse, p->q_len, bound + 2.0 * support_epsilon(TWH_F32), lost);
    ++ran;
  }
  free(out);
  assert_true(ran > 0);
  return ran;
}

int64_t support_head_expect_truth(const char *name, const support_head *head, int64_t m, double ulps)
{
  support_tensors tensors;
  support_answer  truth;
  int64_t         ran;
  support_head_tensors(head, &tensors);
  support_answer_truth(&truth, &head->problem, &tensors);
  ran = support_head_expect(name, head, m, truth.out, truth.lse, ulps);
  support_answer_destroy(&truth);
  support_tensors_destroy(&tensors);
  return ran;
}
