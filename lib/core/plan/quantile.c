/* Quantiles of the F distribution: how many times its estimate a squared error stays below. */
#include <math.h>

#include "core/plan/problem.h"

enum { QUANTILE_TERMS = 400, QUANTILE_HALVINGS = 80 };

/* The continued fraction of the incomplete beta function, by Lentz's method; converges where x is below a / (a + b). */
static double quantile_fraction(double a, double b, double x)
{
  const double tiny = 1e-300;
  double       c = 1, d = 1 - (a + b) * x / (a + 1), value;

  d = 1 / (fabs(d) < tiny ? tiny : d);
  value = d;
  for (int i = 1; i <= QUANTILE_TERMS; ++i) {
    for (int odd = 0; odd < 2; ++odd) {
      double term =
        odd ? -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1)) : i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i));
      d = 1 + term * d;
      c = 1 + term / c;
      d = 1 / (fabs(d) < tiny ? tiny : d);
      if (fabs(c) < tiny) c = tiny;
      value *= d * c;
    }
    if (fabs(d * c - 1) < 1e-14) break;
  }
  return value;
}

/* The regularised incomplete beta function. */
static double quantile_beta(double a, double b, double x)
{
  const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * quantile_fraction(a, b, x) / a : 1 - front * quantile_fraction(b, a, 1 - x) / b;
}

double twh__f_quantile(double p, double d1, double d2)
{
  double low = 0, high = 1;

  for (int i = 0; i < QUANTILE_HALVINGS; ++i) { /* of x = d1 F / (d1 F + d2) */
    double middle = low + (high - low) / 2;
    if (quantile_beta(d1 / 2, d2 / 2, middle) < p) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return d2 * low / (d1 * (1 - low));
}
