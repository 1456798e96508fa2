/* The row functions of the kernel on BLIS: the softmax's exponential, sum and maximum, and the cap, against libm and on every
 * width of register against each other. */
#include "support.h"

#include "blis/rows.h"

enum { ROW = 512 };

/* All widths of register that this CPU has give the same bits, whatever is in the row. */
static void rows_are_the_same_on_any_registers(void **state)
{
  static float          row[2][ROW] __attribute__((aligned(64)));
  const twh__blis_rows *rows[2];
  support_random        random = support_random_at(13, 0);
  double                sum[2];
  float                 max[2];
  int64_t               n, j, length;
  int                   w;
  (void)state;
  rows[0] = twh__blis_rows_of(4);
  assert_non_null(rows[0]);
  assert_null(twh__blis_rows_of(5));
  for (n = 0; n < 600; ++n) {
    float size = (float)ldexp(1.0, (int)support_between(&random, -10, 12));
    rows[1] = twh__blis_rows_of(n % 2 ? 8 : 16);
    if (rows[1] == NULL) continue;
    length = TWH__BLIS_ROW * support_between(&random, 1, ROW / TWH__BLIS_ROW);
    for (j = 0; j < length; ++j) {
      float x = size * (float)support_normal(&random);
      if (support_one_in(&random, 20)) x = support_one_in(&random, 2) ? -INFINITY : 0.0f;
      row[0][j] = row[1][j] = x;
    }
    for (w = 0; w < 2; ++w) {
      if (n % 3 == 0) rows[w]->cap(row[w], length, 0.3f, 7.0f);
      max[w] = rows[w]->max(row[w], length);
      sum[w] = rows[w]->weights(row[w], length, max[w], 0.7f);
    }
    assert_memory_equal(&max[0], &max[1], sizeof(float));
    assert_memory_equal(&sum[0], &sum[1], sizeof(double));
    assert_memory_equal(row[0], row[1], (size_t)length * sizeof(float));
  }
}

/* The exponential to 2^-23, the sum to a little more, tanh to 3 ulp; what comes in as -inf leaves as 0, NaN as NaN. */
static void rows_match_libm(void **state)
{
  static float          row[ROW] __attribute__((aligned(64))), x[ROW];
  const twh__blis_rows *rows = twh__blis_rows_best();
  support_random        random = support_random_at(14, 0);
  double                sum, want, wanted_sum;
  int64_t               n, j;
  (void)state;
  for (n = 0; n < 400; ++n) {
    double size = ldexp(87.0, -(int)(n % 20));
    for (j = 0; j < ROW; ++j) row[j] = x[j] = j == 0 ? 0.0f : (float)(-size * support_uniform(&random));
    sum = rows->weights(row, ROW, 0.0f, 1.0f);
    for (j = 0, wanted_sum = 0.0; j < ROW; ++j) {
      want = exp((double)x[j]);
      wanted_sum += want;
      support_assert_at_most(fabs((double)row[j] - want), want / 8388608.0, "exp");
    }
    support_assert_at_most(fabs(sum - wanted_sum), 3e-7 * wanted_sum, "sum");
    for (j = 0; j < ROW; ++j) row[j] = x[j] = x[j] * (j % 2 ? 1.0f : -1.0f);
    rows->cap(row, ROW, 0.2f, 1.0f);
    for (j = 0; j < ROW; ++j) {
      want = tanh((double)x[j] * (double)0.2f);
      support_assert_at_most(fabs((double)row[j] - want), 3.0 * support_ulp(want, TWH_F32), "tanh");
    }
  }
  for (j = 0; j < ROW; ++j) row[j] = j == 0 ? -INFINITY : j == 1 ? (float)NAN : j == 2 ? 5.0f : -FLT_MAX;
  assert_true(rows->max(row, ROW) == 5.0f);
  sum = rows->weights(row, ROW, 5.0f, 1.0f);
  assert_true(row[0] == 0.0f && isnan(row[1]) && row[2] == 1.0f && row[3] == 0.0f && isnan(sum));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_the_same_on_any_registers),
    cmocka_unit_test(rows_match_libm),
  };
  return cmocka_run_group_tests_name("rows of the kernel on BLIS", tests, NULL, NULL);
}
