/* Loading and rounding, written for the comparison that --verify makes: see rounding.h.
 *
 * The library has conversions of its own, which stay inside it; these are written by arithmetic instead of by bits, so that
 * the two check each other. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "rounding.h"

static double rounding_load_f16(uint16_t bits)
{
  int    exponent = (bits >> 10) & 31;
  double fraction = (double)(bits & 1023), value;

  if (exponent == 31)
    value = fraction > 0 ? (double)NAN : (double)INFINITY;
  else if (exponent == 0)
    value = ldexp(fraction, -24);
  else
    value = ldexp(1024.0 + fraction, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

double rounding_load(const void *data, int32_t dtype, int64_t index)
{
  uint32_t bits;
  float    value;

  switch (dtype) {
  case TWH_F64: return ((const double *)data)[index];
  case TWH_F32: return (double)((const float *)data)[index];
  case TWH_F16: return rounding_load_f16(((const uint16_t *)data)[index]);
  case TWH_BF16:
    bits = (uint32_t)((const uint16_t *)data)[index] << 16;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
  default: return ((const unsigned char *)data)[index] ? 1.0 : 0.0;
  }
}

/* `digits` bits of mantissa with the leading one; no step is finer than 2^finest; `largest` finite value. */
static double rounding_to(double value, int digits, int finest, double largest)
{
  int    exponent, step;
  double rounded;

  if (value == 0.0 || !isfinite(value)) return value;
  frexp(value, &exponent);
  step = exponent - digits > finest ? exponent - digits : finest;
  rounded = ldexp(nearbyint(ldexp(value, -step)), step);
  return fabs(rounded) > largest ? copysign((double)INFINITY, value) : rounded;
}

double rounding_round(double value, int32_t dtype)
{
  switch (dtype) {
  case TWH_F32: return rounding_to(value, 24, -149, (double)FLT_MAX);
  case TWH_F16: return rounding_to(value, 11, -24, 65504.0);
  case TWH_BF16: return rounding_to(value, 8, -133, ldexp(255.0, 120));
  default: return value;
  }
}

const char *rounding_name(int32_t dtype)
{
  switch (dtype) {
  case TWH_F32: return "f32";
  case TWH_F16: return "f16";
  case TWH_BF16: return "bf16";
  case TWH_F64: return "f64";
  case TWH_BOOL: return "bool";
  default: return NULL;
  }
}

int32_t rounding_dtype(const char *name)
{
  for (int32_t dtype = TWH_F32; dtype <= TWH_F64; ++dtype) {
    if (!strcmp(name, rounding_name(dtype))) return dtype;
  }
  return 0;
}
