/* The weights of states that merge, for some rows at once.
 *
 * A quarter of what merging costs are exponentials, of numbers that are never above 0. They are computed here, for rows side by side: to
 * 2^-52 or so, and the same bits for one row alone as for many, whatever registers it is done in. */
#include <math.h>
#include <string.h>

#include "core/state/state.h"

/* Of e^r for |r| <= ln 2 / 2, from the last coefficient to the first. */
static const double weights_terms[] = {
  1 / 6227020800.0, 1 / 479001600.0, 1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0, 1 / 5040.0,
  1 / 720.0,        1 / 120.0,       1 / 24.0,       1 / 6.0,       0.5,          1,           1
};

#define WEIGHTS_LOG2E 1.44269504088896340736
#define WEIGHTS_LN2   0x1.62e42feep-1 /* so few bits that small multiples are exact */
#define WEIGHTS_REST  0x1.a39ef35793c76p-33
#define WEIGHTS_WHOLE 0x1.8p52 /* added to a number, it rounds it: the sum's last bits are the whole number */
#define WEIGHTS_LEAST -700.0   /* below, e^x counts as 0 */

TWH__CLONES static void weights_exp(double *to, const double *a, const double *m, const double *largest)
{
  for (int r = 0; r < TWH__STATE_ROWS; ++r) {
    double   x = m[r] - largest[r], whole = x * WEIGHTS_LOG2E + WEIGHTS_WHOLE, k = whole - WEIGHTS_WHOLE, rest, value;
    uint64_t bits, exponent;
    rest = (x - k * WEIGHTS_LN2) - k * WEIGHTS_REST;
    value = weights_terms[0];
    for (int i = 1; i < (int)(sizeof weights_terms / sizeof weights_terms[0]); ++i) value = value * rest + weights_terms[i];
    memcpy(&bits, &value, sizeof bits);
    memcpy(&exponent, &whole, sizeof exponent);
    bits += exponent << 52;
    memcpy(&value, &bits, sizeof value);
    value = x < WEIGHTS_LEAST ? 0 : value;
    value = x == x ? value : x;
    value = m[r] == largest[r] ? 1 : value;
    to[r] = a[r] * value;
  }
}

TWH__CLONES static void weights_largest(twh__weights *weights)
{
  for (int r = 0; r < TWH__STATE_ROWS; ++r) {
    double largest = -(double)INFINITY;
    for (int i = 0; i < TWH__FAN; ++i) {
      double own = weights->a[i][r] == 0 ? -(double)INFINITY : weights->m[i][r];
      weights->m[i][r] = own;
      largest = own > largest ? own : largest;
    }
    weights->largest[r] = largest;
  }
}

TWH__CLONES static void weights_divide(twh__weights *weights)
{
  for (int r = 0; r < TWH__STATE_ROWS; ++r) {
    double sum = (weights->w[0][r] + weights->w[1][r]) + (weights->w[2][r] + weights->w[3][r]), scale = 1 / sum;
    weights->sum[r] = sum;
    for (int i = 0; i < TWH__FAN; ++i) weights->w[i][r] *= scale;
  }
}

void twh__weights_set(twh__weights *weights)
{
  weights_largest(weights);
  for (int i = 0; i < TWH__FAN; ++i) weights_exp(weights->w[i], weights->a[i], weights->m[i], weights->largest);
  weights_divide(weights);
}
