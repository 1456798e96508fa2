/* Data types: f32, f16, bf16, f64, and conversions between them.
 *
 * Rounding is to nearest even, once: from f64 to a 16-bit type through an f32 that was rounded to odd, which keeps the second
 * rounding honest (its 24 bits are more than two above the 11 and 8 that remain). Loops are written so that compilers
 * vectorise them without being told. */
#include <math.h>
#include <string.h>

#include "core/base/base.h"

typedef union dtype_bits {
  float    f;
  uint32_t u;
} dtype_bits;

static inline float dtype_f16_to_f32(uint16_t half)
{
  dtype_bits value, magic, sign;
  value.u = (uint32_t)(half & 0x7fff) << 13; /* exponent and mantissa in f32's places */
  magic.u = (254u - 15u) << 23;              /* 2^(127 - 15): moves the bias, normalises subnormals exactly */
  value.f *= magic.f;
  sign.u = (uint32_t)(half & 0x8000) << 16;
  if ((half & 0x7c00) == 0x7c00) value.u |= 0x7f800000u; /* infinity and NaN */
  value.u |= sign.u;
  return value.f;
}

static inline uint16_t dtype_f32_to_f16(float from)
{
  dtype_bits value, magic;
  uint32_t   sign, normal, tiny, result;
  value.f = from;
  sign = value.u & 0x80000000u;
  value.u ^= sign;
  /* subnormal results: adding 0.5 lets the FPU round at 2^-24 */
  magic.u = 126u << 23;
  magic.f += value.f;
  tiny = magic.u - (126u << 23);
  normal = (value.u + 0xc8000fffu + ((value.u >> 13) & 1u)) >> 13;
  result = value.u < (113u << 23) ? tiny : normal;
  if (value.u >= 0x477ff000u) result = 0x7c00u; /* 65520 and more round to infinity */
  if (value.u > 0x7f800000u) result = 0x7e00u;
  return (uint16_t)(result | (sign >> 16));
}

static inline uint16_t dtype_f32_to_bf16(float from)
{
  dtype_bits value;
  uint32_t   rounded;
  value.f = from;
  rounded = (value.u + 0x7fffu + ((value.u >> 16) & 1u)) >> 16;
  if ((value.u & 0x7fffffffu) > 0x7f800000u) rounded = (value.u >> 16) | 0x40u;
  return (uint16_t)rounded;
}

static inline float dtype_bf16_to_f32(uint16_t from)
{
  dtype_bits value;
  value.u = (uint32_t)from << 16;
  return value.f;
}

/* f64 to f32, inexact results made odd so that a further rounding to 16 bits is the correct one. */
static float dtype_round_to_odd(double from)
{
  dtype_bits value;
  value.f = (float)from;
  if ((double)value.f != from && isfinite(from)) {
    if (isinf(value.f)) return value.f;
    if (fabs((double)value.f) > fabs(from)) --value.u; /* towards zero */
    value.u |= 1u;
  }
  return value.f;
}

int64_t twh__dtype_bytes(int32_t dtype)
{
  switch (dtype) {
  case TWH_F64: return 8;
  case TWH_F32: return 4;
  case TWH_F16:
  case TWH_BF16: return 2;
  case TWH_BOOL: return 1;
  default: return 0;
  }
}

const char *twh__dtype_name(int32_t dtype)
{
  switch (dtype) {
  case TWH_F64: return "f64";
  case TWH_F32: return "f32";
  case TWH_F16: return "f16";
  case TWH_BF16: return "bf16";
  case TWH_BOOL: return "bool";
  default: return "unknown";
  }
}

double twh__dtype_max(int32_t dtype)
{
  switch (dtype) {
  case TWH_F16: return 65504.0;
  case TWH_BF16: return 0x1.fep127;
  case TWH_F32: return 0x1.fffffep127;
  default: return 0x1.fffffffffffffp1023;
  }
}

double twh__load(const void *from, int32_t dtype, int64_t index)
{
  switch (dtype) {
  case TWH_F64: return ((const double *)from)[index];
  case TWH_F32: return (double)((const float *)from)[index];
  case TWH_F16: return (double)dtype_f16_to_f32(((const uint16_t *)from)[index]);
  case TWH_BF16: return (double)dtype_bf16_to_f32(((const uint16_t *)from)[index]);
  default: return (double)(((const unsigned char *)from)[index] != 0);
  }
}

void twh__store(void *to, int32_t dtype, int64_t index, double value)
{
  switch (dtype) {
  case TWH_F64: ((double *)to)[index] = value; break;
  case TWH_F32: ((float *)to)[index] = (float)value; break;
  case TWH_F16: ((uint16_t *)to)[index] = dtype_f32_to_f16(dtype_round_to_odd(value)); break;
  case TWH_BF16: ((uint16_t *)to)[index] = dtype_f32_to_bf16(dtype_round_to_odd(value)); break;
  default: ((unsigned char *)to)[index] = value != 0; break;
  }
}

/* ---- rows: where the plain functions keep compilers from vectorising a loop, the same results without branches ---- */

static inline uint32_t dtype_pick(uint32_t a, uint32_t b, int choose_a)
{
  uint32_t mask = 0u - (uint32_t)choose_a;
  return (a & mask) | (b & ~mask);
}

static inline uint16_t dtype_row_f32_to_f16(float from)
{
  dtype_bits value, tiny;
  uint32_t   sign, normal;
  int32_t    size, cut;
  value.f = from;
  sign = value.u & 0x80000000u;
  value.u ^= sign;
  size = (int32_t)value.u;
  cut = size < 0x47800000 ? size : 0x47800000; /* 65536 becomes infinity, and 65520 is rounded up to it */
  tiny.f = value.f + 0.5f;
  normal = ((uint32_t)cut + 0xc8000fffu + (((uint32_t)cut >> 13) & 1u)) >> 13;
  normal = dtype_pick(tiny.u - (126u << 23), normal, size < 113 << 23);
  return (uint16_t)(dtype_pick(0x7e00u, normal, size > 0x7f800000) | sign >> 16);
}

/* Of the 52 bits the upper 12 are kept and made odd if anything is lost: enough for 11 and 8 bits with two to spare, and few
 * enough for f32 to have them down to where bf16 rounds to 0. */
static inline float dtype_row_odd(double from)
{
  union {
    double   f;
    uint64_t u;
  } value;
  const uint64_t lost = ((uint64_t)1 << 40) - 1;
  value.f = from;
  value.u = (value.u | ((value.u & lost) + lost)) & ~lost;
  return (float)value.f;
}

#define DTYPE_ROW(name, to_type, from_type, convert) \
  TWH__CLONES static void name(void *to, const void *from, int64_t n) \
  { \
    to_type         *out = (to_type *)to; \
    const from_type *in = (const from_type *)from; \
    for (int64_t i = 0; i < n; ++i) out[i] = convert(in[i]); \
  }

#define DTYPE_F64_TO_F16(x)  dtype_row_f32_to_f16(dtype_row_odd(x))
#define DTYPE_F64_TO_BF16(x) dtype_f32_to_bf16(dtype_row_odd(x))
#define DTYPE_F16_TO_F64(x)  (double)dtype_f16_to_f32(x)
#define DTYPE_F16_TO_BF16(x) dtype_f32_to_bf16(dtype_f16_to_f32(x))
#define DTYPE_BF16_TO_F64(x) (double)dtype_bf16_to_f32(x)
#define DTYPE_BF16_TO_F16(x) dtype_row_f32_to_f16(dtype_bf16_to_f32(x))

DTYPE_ROW(dtype_f64_f32, float, double, (float))
DTYPE_ROW(dtype_f64_f16, uint16_t, double, DTYPE_F64_TO_F16)
DTYPE_ROW(dtype_f64_bf16, uint16_t, double, DTYPE_F64_TO_BF16)
DTYPE_ROW(dtype_f32_f64, double, float, (double))
DTYPE_ROW(dtype_f32_f16, uint16_t, float, dtype_row_f32_to_f16)
DTYPE_ROW(dtype_f32_bf16, uint16_t, float, dtype_f32_to_bf16)
DTYPE_ROW(dtype_f16_f64, double, uint16_t, DTYPE_F16_TO_F64)
DTYPE_ROW(dtype_f16_f32, float, uint16_t, dtype_f16_to_f32)
DTYPE_ROW(dtype_f16_bf16, uint16_t, uint16_t, DTYPE_F16_TO_BF16)
DTYPE_ROW(dtype_bf16_f64, double, uint16_t, DTYPE_BF16_TO_F64)
DTYPE_ROW(dtype_bf16_f32, float, uint16_t, dtype_bf16_to_f32)
DTYPE_ROW(dtype_bf16_f16, uint16_t, uint16_t, DTYPE_BF16_TO_F16)

void twh__convert(void *to, int32_t to_dtype, const void *from, int32_t from_dtype, int64_t n)
{
  switch (8 * from_dtype + to_dtype) {
  case 8 * TWH_F64 + TWH_F32: dtype_f64_f32(to, from, n); break;
  case 8 * TWH_F64 + TWH_F16: dtype_f64_f16(to, from, n); break;
  case 8 * TWH_F64 + TWH_BF16: dtype_f64_bf16(to, from, n); break;
  case 8 * TWH_F32 + TWH_F64: dtype_f32_f64(to, from, n); break;
  case 8 * TWH_F32 + TWH_F16: dtype_f32_f16(to, from, n); break;
  case 8 * TWH_F32 + TWH_BF16: dtype_f32_bf16(to, from, n); break;
  case 8 * TWH_F16 + TWH_F64: dtype_f16_f64(to, from, n); break;
  case 8 * TWH_F16 + TWH_F32: dtype_f16_f32(to, from, n); break;
  case 8 * TWH_F16 + TWH_BF16: dtype_f16_bf16(to, from, n); break;
  case 8 * TWH_BF16 + TWH_F64: dtype_bf16_f64(to, from, n); break;
  case 8 * TWH_BF16 + TWH_F32: dtype_bf16_f32(to, from, n); break;
  case 8 * TWH_BF16 + TWH_F16: dtype_bf16_f16(to, from, n); break;
  default: memcpy(to, from, (size_t)(n * twh__dtype_bytes(to_dtype))); break;
  }
}

void twh__to_f32(float *to, const void *from, int32_t dtype, int64_t n)
{
  twh__convert(to, TWH_F32, from, dtype, n);
}

void twh__from_f32(void *to, int32_t dtype, const float *from, int64_t n)
{
  twh__convert(to, dtype, from, TWH_F32, n);
}
