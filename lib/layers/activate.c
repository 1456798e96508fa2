/* Activations, in float64 and rounded once. erfc keeps the digits of GELU's far negative tail, where 1 + erf would have none; the
 * other two are written so that their tails keep them too. */
#include "layers/layers.h"

#include <math.h>

static double activate_gelu(double x)
{
  const double half_root = 0.70710678118654752440; /* 1 / sqrt 2 */
  const double weight = x < 0 ? 0.5 * erfc(-x * half_root) : 0.5 + 0.5 * erf(x * half_root);
  return weight == 0 ? 0 : x * weight; /* -inf gives 0, and not -inf * 0 */
}

/* x/2 (1 + tanh u) = x / (1 + e^-2u) */
static double activate_gelu_tanh(double x)
{
  const double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
  return x < -1e30 ? 0 : x / (1 + exp(-2 * u)); /* -inf gives 0, and not -inf / inf */
}

static double activate_silu(double x)
{
  return x < -1000 ? 0 : x / (1 + exp(-x));
}

void twh_activate(int32_t activation, float *x, int64_t n)
{
  switch (activation) {
    case TWH_GELU:
      for (int64_t i = 0; i < n; ++i) x[i] = (float)activate_gelu(x[i]);
      break;
    case TWH_GELU_TANH:
      for (int64_t i = 0; i < n; ++i) x[i] = (float)activate_gelu_tanh(x[i]);
      break;
    case TWH_SILU:
      for (int64_t i = 0; i < n; ++i) x[i] = (float)activate_silu(x[i]);
      break;
    default: /* TWH_RELU; a NaN stays one */
      for (int64_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? 0 : x[i];
      break;
  }
}
