/* Quantiles: see order.h. */
#include <math.h>
#include <stdlib.h>

#include "order.h"

static int order_compare(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return isnan(x) || isnan(y) ? !!isnan(x) - !!isnan(y) : (x > y) - (x < y);
}

void order_sort(double *values, size_t n)
{
  if (n > 0) qsort(values, n, sizeof *values, order_compare);
}

/* Neighbours are only multiplied where they count: 0 times an infinity is none of them. */
double order_quantile(const double *sorted, size_t n, double share)
{
  double at = n > 0 ? share * (double)(n - 1) : 0.0, part = at - floor(at);
  size_t i = (size_t)at;

  if (n == 0) return 0.0;
  if (part == 0.0 || sorted[i] == sorted[i + 1]) return sorted[i];
  return sorted[i] * (1.0 - part) + sorted[i + 1] * part;
}
