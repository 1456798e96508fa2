/* Activations, in float64 and rounded once. They bring an exponential that compilers vectorise: an MLP's activations are so
 * many that with libm's erf they would take a quarter of a small encoder's time.
 *
 * Tails are computed as what they are, not as 1 + erf or 1 + tanh, so that they keep their digits down to where f32 ends.
 * What a formula cannot take, infinities too, is cut off in a loop of its own, beyond where the result is 0 or the argument
 * in f32; the loops with the formulas have no branches. A NaN passes all comparisons and stays one. */
#include "layers/layers.h"

#include <math.h>
#include <string.h>

/* e^t for |t| <= 700 to a relative 1e-11. t = n ln 2 + r; adding 1.5 2^52 rounds to an integer and leaves it in the low
 * bits. */
static inline double activate_exp(double t)
{
  const double shifted = t * 1.4426950408889634 + 6755399441055744.0;
  const double r = t - (shifted - 6755399441055744.0) * 0.6931471805599453;
  double       power;
  uint64_t     bits;

  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 52) + ((uint64_t)1023 << 52);
  memcpy(&power, &bits, sizeof power);
  return power * (1 + r * (1 + r * (1 / 2.0 + r * (1 / 6.0 + r * (1 / 24.0 + r * (1 / 120.0 + r * (1 / 720.0 + r *
         (1 / 5040.0 + r * (1 / 40320.0 + r * (1 / 362880.0))))))))));
}

/* P(Z > a) e^(a^2 / 2) of a normal Z for 0 <= a <= 20, by a minimax polynomial in s = 3.5 / (3.5 + a): to a relative 7e-11. */
static inline double activate_tail(double a)
{
  const double s = 3.5 / (3.5 + a);
  double       sum = 0.012338850992920595;

  sum = sum * s - 0.087509972649811772;
  sum = sum * s + 0.25768139099678774;
  sum = sum * s - 0.39506144717231309;
  sum = sum * s + 0.33565596276918962;
  sum = sum * s - 0.20291396736613977;
  sum = sum * s + 0.12360235929046628;
  sum = sum * s + 0.032104437438338785;
  sum = sum * s + 0.092323010616879047;
  sum = sum * s + 0.1037216135572706;
  sum = sum * s + 0.11407981757930758;
  sum = sum * s + 0.11397779268012093;
  return sum * s + 1.5123777125657869e-7;
}

/* The three formulas for `low`, an argument with its large negative values cut off, and `both`, with the positive ones too. */

/* max(x, 0) - |x| P(Z > |x|) */
static inline double activate_gelu(double low, double both)
{
  const double a = fabs(both);
  return 0.5 * (low + fabs(low)) - a * (activate_tail(a) * activate_exp(-0.5 * a * a));
}

/* x/2 (1 + tanh u) = x / (1 + e^-2u) */
static inline double activate_gelu_tanh(double low, double both)
{
  return low / (1 + activate_exp(-2 * 0.7978845608028654 * (both + 0.044715 * both * both * both)));
}

static inline double activate_silu(double low, double both)
{
  return low / (1 + activate_exp(-both));
}

/* At most TWH__LAYERS_PIECE values. */
static void activate_piece(int32_t activation, float *x, int64_t n)
{
  const float limit = activation == TWH_SILU ? 700 : 20;
  float       low[TWH__LAYERS_PIECE], both[TWH__LAYERS_PIECE];

  for (int64_t i = 0; i < n; ++i) low[i] = x[i] < -limit ? -limit : x[i];
  for (int64_t i = 0; i < n; ++i) both[i] = low[i] > limit ? limit : low[i];
  if (activation == TWH_GELU) {
    for (int64_t i = 0; i < n; ++i) x[i] = (float)activate_gelu(low[i], both[i]);
  } else if (activation == TWH_GELU_TANH) {
    for (int64_t i = 0; i < n; ++i) x[i] = (float)activate_gelu_tanh(low[i], both[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] = (float)activate_silu(low[i], both[i]);
  }
}

void twh_activate(int32_t activation, float *x, int64_t n)
{
  if (activation == TWH_RELU) {
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? 0 : x[i];
    return;
  }
  for (int64_t first = 0; first < n; first += TWH__LAYERS_PIECE) {
    activate_piece(activation, x + first, n - first < TWH__LAYERS_PIECE ? n - first : TWH__LAYERS_PIECE);
  }
}
