/* f16 and bf16 by their definition: a value is significand x 2^exponent, so rounding is scaling to units in the last place,
 * rounding that to an integer to nearest even, and scaling back. Subnormals share the exponent of the smallest normal number.
 * The one routine serves all three narrow types; only the speed of f32 asks for the machine's own conversion. */
#include "reference/formats.h"

#include <math.h>
#include <string.h>

typedef struct formats_type {
  int fraction_bits; /* stored bits of the significand */
  int exponent_bits;
} formats_type;

static formats_type formats_of(int32_t dtype)
{
  formats_type type = {23, 8};
  if (dtype == TWH_F16) type.fraction_bits = 10, type.exponent_bits = 5;
  if (dtype == TWH_BF16) type.fraction_bits = 7;
  return type;
}

/* Adding and subtracting 1.5 2^52 rounds to an integer, ties to even, for |x| <= 2^51. */
static double formats_nearest_integer(double x)
{
  const double shift = 6755399441055744.0;
  return (x + shift) - shift;
}

/* The exponent e with 2^e <= |x| < 2^(e+1), at least that of the smallest normal number. x is finite and not 0. */
static int formats_exponent(double x, int bias)
{
  int exponent;
  frexp(x, &exponent);
  return exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
}

static double formats_round(double x, formats_type type)
{
  const int bias = (1 << (type.exponent_bits - 1)) - 1;
  int       unit;
  double    rounded;
  if (x == 0.0 || !isfinite(x)) return x;
  unit = formats_exponent(x, bias) - type.fraction_bits;
  rounded = ldexp(formats_nearest_integer(ldexp(x, -unit)), unit);
  if (fabs(rounded) >= ldexp(1.0, bias + 1)) rounded = INFINITY;
  return copysign(rounded, x);
}

/* The 16 bits of a value that formats_round has made. */
static uint16_t formats_encode(double x, formats_type type)
{
  const int      bias = (1 << (type.exponent_bits - 1)) - 1;
  const uint32_t sign = signbit(x) ? 0x8000u : 0u;
  uint32_t       magnitude = ((1u << type.exponent_bits) - 1u) << type.fraction_bits;
  if (isnan(x)) magnitude |= 1u << (type.fraction_bits - 1);
  else if (x == 0.0) magnitude = 0;
  else if (!isinf(x)) {
    const int exponent = formats_exponent(x, bias);
    const uint32_t significand = (uint32_t)ldexp(fabs(x), type.fraction_bits - exponent);
    /* a normal number's leading 1 adds one to the exponent field; a subnormal number has none */
    magnitude = ((uint32_t)(exponent + bias - 1) << type.fraction_bits) + significand;
  }
  return (uint16_t)(sign | magnitude);
}

static double formats_decode(uint16_t bits, formats_type type)
{
  const int    bias = (1 << (type.exponent_bits - 1)) - 1, mask = (1 << type.exponent_bits) - 1;
  const int    exponent = (bits >> type.fraction_bits) & mask, fraction = bits & ((1 << type.fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == mask) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(fraction, 1 - bias - type.fraction_bits);
  return sign * ldexp(fraction + (1 << type.fraction_bits), exponent - bias - type.fraction_bits);
}

void twh__reference_read(double *to, const void *from, int32_t dtype, int64_t index, int64_t n)
{
  if (dtype == TWH_F32) {
    const float *source = (const float *)from + index;
    for (int64_t i = 0; i < n; i++) to[i] = (double)source[i];
  } else if (dtype == TWH_F64) {
    const double *source = (const double *)from + index;
    for (int64_t i = 0; i < n; i++) to[i] = source[i];
  } else {
    const uint16_t    *source = (const uint16_t *)from + index;
    const formats_type type = formats_of(dtype);
    for (int64_t i = 0; i < n; i++) to[i] = formats_decode(source[i], type);
  }
}

void twh__reference_write(void *to, int32_t dtype, int64_t index, const double *from, int64_t n)
{
  if (dtype == TWH_F32) {
    float *target = (float *)to + index;
    for (int64_t i = 0; i < n; i++) target[i] = (float)from[i];
  } else if (dtype == TWH_F64) {
    double *target = (double *)to + index;
    for (int64_t i = 0; i < n; i++) target[i] = from[i];
  } else {
    uint16_t          *target = (uint16_t *)to + index;
    const formats_type type = formats_of(dtype);
    for (int64_t i = 0; i < n; i++) target[i] = formats_encode(formats_round(from[i], type), type);
  }
}

double twh__reference_round(double x, int32_t dtype)
{
  if (dtype == TWH_F64) return x;
  if (dtype == TWH_F32) return (double)(float)x;
  return formats_round(x, formats_of(dtype));
}
