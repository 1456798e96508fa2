/* Relations that hold for attention whatever the numbers are, on every kernel of the table: permuted keys, a constant added to
 * all scores, duplicated keys, a single key, masked keys against absent ones, linearity in the values, windows seen in a mirror
 * and windows against a mask that says the same.
 *
 * Inputs are small multiples of powers of two, exact in every dtype, so that both sides of a relation get the same bytes. */
#include "support.h"

enum { RELATIONS_DIM = 4, RELATIONS_MOST = 40 };

typedef struct relations_data {
  int64_t q_len, k_len, left, right; /* left and right: of a window, where `window` is 1 */
  int     window;
  double  q[RELATIONS_MOST * RELATIONS_DIM], k[RELATIONS_MOST * RELATIONS_DIM], v[RELATIONS_MOST * RELATIONS_DIM];
  double  out[RELATIONS_MOST * RELATIONS_DIM], lse[RELATIONS_MOST];
  unsigned char mask[RELATIONS_MOST * RELATIONS_MOST];
} relations_data;

static double relations_value(support_random *random, double step)
{
  return step * (double)support_between(random, -16, 16);
}

static void relations_make(relations_data *data, support_random *random, int64_t q_len, int64_t k_len)
{
  int64_t i;
  memset(data, 0, sizeof *data);
  data->q_len = q_len;
  data->k_len = k_len;
  for (i = 0; i < q_len * RELATIONS_DIM; ++i) data->q[i] = relations_value(random, 0.125);
  for (i = 0; i < k_len * RELATIONS_DIM; ++i) data->k[i] = relations_value(random, 0.125);
  for (i = 0; i < k_len * RELATIONS_DIM; ++i) data->v[i] = relations_value(random, 0.0625);
  memset(data->mask, 1, sizeof data->mask);
}

/* One head of `data` on a kernel. Returns 0 when the kernel cannot do it and need not. */
static int relations_solve(relations_data *data, const support_kernel *kernel, int64_t m, int masked)
{
  support_head    head;
  twh_oracle_desc desc;
  twh_error       error;
  support_head_init(&head, data->q_len, data->k_len, 0);
  head.problem.qk_dim = head.problem.v_dim = RELATIONS_DIM;
  head.problem.scale = 0.5;
  head.problem.mask_dtype = masked ? TWH_BOOL : 0;
  head.pattern.flags = data->window ? TWH_LEFT | TWH_RIGHT : 0;
  head.pattern.left = data->left;
  head.pattern.right = data->right;
  head.q = data->q;
  head.k = data->k;
  head.v = data->v;
  head.mask = data->mask;
  support_kernel_desc(kernel, &head.problem, m, m, &desc);
  if (!support_must_run(&head.problem, &desc)) return 0;
  twh_error_init(&error);
  support_assert_status(support_head_run(kernel->name, &head, &desc, data->out, data->lse, NULL, &error), TWH_OK, &error, NULL);
  return 1;
}

/* Compare out and lse up to a difference of `shift` in lse; `ulps` of the kernel's dtype at the size of the values. */
static void relations_compare(const relations_data *a, const relations_data *b, const support_kernel *kernel,
                              const double *shift, double ulps)
{
  double  bound = ulps * support_epsilon(kernel->dtype), error = 0.0, one;
  int64_t i;
  for (i = 0; i < a->q_len * RELATIONS_DIM; ++i) {
    one = fabs(a->out[i] - b->out[i]);
    if (!(one <= error)) error = isnan(one) ? (double)INFINITY : one;
  }
  support_assert_at_most(error, bound, kernel->name);
  bound += 8.0 * support_epsilon(TWH_F32);
  for (i = 0; i < a->q_len; ++i) {
    one = a->lse[i] == b->lse[i] && (!shift || shift[i] == 0.0) ? 0.0 : fabs(a->lse[i] + (shift ? shift[i] : 0.0) - b->lse[i]);
    support_assert_at_most(one, bound * (1.0 + (shift ? fabs(shift[i]) : 0.0)), kernel->name);
  }
}

typedef void relations_test(const support_kernel *kernel, int64_t m, support_random *random);

static void relations_each(relations_test *test, uint64_t stream)
{
  static const int64_t lengths[] = { 1, 3, 8, 12 };
  int64_t              i, j;
  for (i = 0; i < support_kernel_count; ++i)
    for (j = 0; j < SUPPORT_COUNT(lengths); ++j) {
      support_random random = support_random_at(support_seed(77), stream * 1000 + (uint64_t)(i * 4 + j));
      test(&support_kernels[i], lengths[j], &random);
    }
}

static void relations_permute(const support_kernel *kernel, int64_t m, support_random *random)
{
  relations_data a, b;
  int64_t        i, j, c;
  double         t;
  relations_make(&a, random, support_between(random, 1, 20), support_between(random, 1, 30));
  b = a;
  for (i = b.k_len - 1; i > 0; --i) {
    j = support_below(random, i + 1);
    for (c = 0; c < RELATIONS_DIM; ++c) {
      t = b.k[i * RELATIONS_DIM + c], b.k[i * RELATIONS_DIM + c] = b.k[j * RELATIONS_DIM + c], b.k[j * RELATIONS_DIM + c] = t;
      t = b.v[i * RELATIONS_DIM + c], b.v[i * RELATIONS_DIM + c] = b.v[j * RELATIONS_DIM + c], b.v[j * RELATIONS_DIM + c] = t;
    }
  }
  if (relations_solve(&a, kernel, m, 0) && relations_solve(&b, kernel, m, 0)) relations_compare(&a, &b, kernel, NULL, 4.0);
}

static void relations_shift(const support_kernel *kernel, int64_t m, support_random *random)
{
  relations_data a, b;
  double         shift[RELATIONS_MOST], constant[RELATIONS_DIM];
  int64_t        i, c;
  relations_make(&a, random, support_between(random, 1, 20), support_between(random, 1, 30));
  b = a;
  for (c = 0; c < RELATIONS_DIM; ++c) constant[c] = relations_value(random, 0.5);
  for (i = 0; i < b.k_len; ++i)
    for (c = 0; c < RELATIONS_DIM; ++c) b.k[i * RELATIONS_DIM + c] += constant[c];
  for (i = 0; i < a.q_len; ++i) {
    shift[i] = 0.0;
    for (c = 0; c < RELATIONS_DIM; ++c) shift[i] += 0.5 * a.q[i * RELATIONS_DIM + c] * constant[c];
  }
  if (kernel->flags & TWH_ORACLE_F16_SCORES) return; /* scores of other sizes are rounded otherwise */
  if (relations_solve(&a, kernel, m, 0) && relations_solve(&b, kernel, m, 0)) relations_compare(&a, &b, kernel, shift, 6.0);
}

static void relations_duplicate(const support_kernel *kernel, int64_t m, support_random *random)
{
  relations_data a, b;
  double         shift[RELATIONS_MOST];
  int64_t        i;
  relations_make(&a, random, support_between(random, 1, 20), support_between(random, 1, 20));
  b = a;
  b.k_len = 2 * a.k_len;
  memcpy(b.k + a.k_len * RELATIONS_DIM, a.k, sizeof(double) * (size_t)(a.k_len * RELATIONS_DIM));
  memcpy(b.v + a.k_len * RELATIONS_DIM, a.v, sizeof(double) * (size_t)(a.k_len * RELATIONS_DIM));
  for (i = 0; i < RELATIONS_MOST; ++i) shift[i] = log(2.0);
  if (relations_solve(&a, kernel, m, 0) && relations_solve(&b, kernel, m, 0)) relations_compare(&a, &b, kernel, shift, 4.0);
}

static void relations_single(const support_kernel *kernel, int64_t m, support_random *random)
{
  relations_data a;
  int64_t        i, c;
  double         dot;
  relations_make(&a, random, support_between(random, 1, 20), 1);
  if (!relations_solve(&a, kernel, m, 0)) return;
  for (i = 0; i < a.q_len; ++i) {
    dot = 0.0;
    for (c = 0; c < RELATIONS_DIM; ++c) {
      dot += 0.5 * a.q[i * RELATIONS_DIM + c] * a.k[c];
      support_assert_at_most(fabs(a.out[i * RELATIONS_DIM + c] - a.v[c]), support_epsilon(kernel->dtype), kernel->name);
    }
    if (kernel->flags & TWH_ORACLE_F16_SCORES) dot = support_round(dot, TWH_F16);
    support_assert_at_most(fabs(a.lse[i] - dot), 2.0 * support_epsilon(kernel->dtype) * (1.0 + fabs(dot)), kernel->name);
  }
}

static void relations_masked(const support_kernel *kernel, int64_t m, support_random *random)
{
  relations_data a, b;
  int64_t        i, j, c, kept = 0;
  relations_make(&a, random, support_between(random, 1, 20), support_between(random, 1, 30));
  b = a;
  for (j = 0; j < a.k_len; ++j) {
    if (support_one_in(random, 2)) {
      for (i = 0; i < a.q_len; ++i) a.mask[i * a.k_len + j] = 0;
      continue;
    }
    for (c = 0; c < RELATIONS_DIM; ++c) {
      b.k[kept * RELATIONS_DIM + c] = a.k[j * RELATIONS_DIM + c];
      b.v[kept * RELATIONS_DIM + c] = a.v[j * RELATIONS_DIM + c];
    }
    ++kept;
  }
  b.k_len = kept;
  if (relations_solve(&a, kernel, m, 1) && relations_solve(&b, kernel, m, 0)) relations_compare(&a, &b, kernel, NULL, 4.0);
}

static void relations_linear(const support_kernel *kernel, int64_t m, support_random *random)
{
  relations_data a, b, both;
  int64_t        i;
  relations_make(&a, random, support_between(random, 1, 20), support_between(random, 1, 30));
  both = b = a;
  for (i = 0; i < a.k_len * RELATIONS_DIM; ++i) b.v[i] = relations_value(random, 0.0625);
  for (i = 0; i < a.k_len * RELATIONS_DIM; ++i) both.v[i] = 0.5 * a.v[i] + 0.25 * b.v[i];
  if (!relations_solve(&a, kernel, m, 0) || !relations_solve(&b, kernel, m, 0) || !relations_solve(&both, kernel, m, 0)) return;
  for (i = 0; i < a.q_len * RELATIONS_DIM; ++i) a.out[i] = 0.5 * a.out[i] + 0.25 * b.out[i];
  relations_compare(&a, &both, kernel, NULL, 4.0);
}

static void relations_flip(double *row, int64_t n)
{
  int64_t i, c;
  for (i = 0; i < n / 2; ++i)
    for (c = 0; c < RELATIONS_DIM; ++c) {
      double t = row[i * RELATIONS_DIM + c];
      row[i * RELATIONS_DIM + c] = row[(n - 1 - i) * RELATIONS_DIM + c];
      row[(n - 1 - i) * RELATIONS_DIM + c] = t;
    }
}

static void relations_mirror(const support_kernel *kernel, int64_t m, support_random *random)
{
  relations_data a, b;
  int64_t        n = support_between(random, 1, 30), i;
  double         t;
  relations_make(&a, random, n, n);
  a.window = 1;
  a.left = support_below(random, m + 3);
  a.right = support_one_in(random, 3) ? 100 : support_below(random, m + 3);
  b = a;
  b.left = a.right;
  b.right = a.left;
  relations_flip(b.q, n);
  relations_flip(b.k, n);
  relations_flip(b.v, n);
  if (!relations_solve(&a, kernel, m, 0) || !relations_solve(&b, kernel, m, 0)) return;
  relations_flip(b.out, n);
  for (i = 0; i < n / 2; ++i) t = b.lse[i], b.lse[i] = b.lse[n - 1 - i], b.lse[n - 1 - i] = t;
  relations_compare(&a, &b, kernel, NULL, 4.0);
}

static void relations_window_mask(const support_kernel *kernel, int64_t m, support_random *random)
{
  relations_data a, b;
  int64_t        i, j;
  relations_make(&a, random, support_between(random, 1, 20), support_between(random, 1, 30));
  a.left = support_below(random, m + 3);
  a.right = support_below(random, m + 3);
  b = a;
  a.window = 1;
  for (i = 0; i < b.q_len; ++i)
    for (j = 0; j < b.k_len; ++j) b.mask[i * b.k_len + j] = i - j <= b.left && j - i <= b.right;
  if (relations_solve(&a, kernel, m, 0) && relations_solve(&b, kernel, m, 1)) relations_compare(&a, &b, kernel, NULL, 4.0);
}

static void permuting_the_keys_changes_nothing(void **state)
{
  (void)state;
  relations_each(relations_permute, 1);
}

static void a_constant_added_to_all_scores_moves_lse_alone(void **state)
{
  (void)state;
  relations_each(relations_shift, 2);
}

static void duplicated_keys_add_the_log_of_two_to_lse(void **state)
{
  (void)state;
  relations_each(relations_duplicate, 3);
}

static void a_single_key_returns_its_value(void **state)
{
  (void)state;
  relations_each(relations_single, 4);
}

static void masked_keys_are_as_good_as_absent(void **state)
{
  (void)state;
  relations_each(relations_masked, 5);
}

static void the_result_is_linear_in_the_values(void **state)
{
  (void)state;
  relations_each(relations_linear, 6);
}

static void a_window_in_the_mirror_is_a_window(void **state)
{
  (void)state;
  relations_each(relations_mirror, 7);
}

static void a_window_is_a_mask_that_says_the_same(void **state)
{
  (void)state;
  relations_each(relations_window_mask, 8);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(permuting_the_keys_changes_nothing),
    cmocka_unit_test(a_constant_added_to_all_scores_moves_lse_alone),
    cmocka_unit_test(duplicated_keys_add_the_log_of_two_to_lse),
    cmocka_unit_test(a_single_key_returns_its_value),
    cmocka_unit_test(masked_keys_are_as_good_as_absent),
    cmocka_unit_test(the_result_is_linear_in_the_values),
    cmocka_unit_test(a_window_in_the_mirror_is_a_window),
    cmocka_unit_test(a_window_is_a_mask_that_says_the_same),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
