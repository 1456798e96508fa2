/* Plain C with the compiler's vectors of 4 floats: runs wherever the compiler has a target. There is no fused multiply-add in
 * it, so that a compiler need not call a function for it. */
#include "cpu/formats.h"
#include "cpu/lanes.h"

#include <math.h>

typedef float    portable_vector __attribute__((vector_size(16)));
typedef uint32_t portable_bits __attribute__((vector_size(16)));

#define CPU_TARGET
#define CPU_LANES   4
#define CPU_ROWS    4
#define CPU_NAME(x) portable_##x
#define PORTABLE    static inline __attribute__((always_inline))

#define VEC                      portable_vector
#define V_ZERO()                 portable_set(0.0f)
#define V_SET                    portable_set
#define V_LOAD(from)             (*(const portable_vector *)(const void *)(from))
#define V_STORE(to, x)           (*(portable_vector *)(void *)(to) = (x))
#define V_LOAD_FAR               portable_load
#define V_LOAD_SOME              portable_load_some
#define V_STORE_FAR              portable_store_far
#define V_ADD(a, b)              ((a) + (b))
#define V_SUB(a, b)              ((a) - (b))
#define V_MUL(a, b)              ((a) * (b))
#define V_DIV(a, b)              ((a) / (b))
#define V_FMA(a, b, c)           ((a) * (b) + (c))
#define V_MAX(a, b)              portable_if_greater(a, b, a, b)
#define V_IF_GREATER(a, b, x, y) portable_if_greater(a, b, x, y)
#define V_ROUND(t)               (((t) + 12582912.0f) - 12582912.0f)
#define V_SCALE                  portable_scale
#define V_FROM_BOOL              portable_from_bool
#define V_FROM_BF16              portable_from_bf16
#define V_FROM_F16               portable_from_f16
#define V_TO_BF16                portable_to_bf16
#define V_TO_F16                 portable_to_f16
#define V_TRANSPOSE              portable_transpose

PORTABLE portable_vector portable_set(float x)
{
  portable_vector v = { x, x, x, x };
  return v;
}

PORTABLE portable_vector portable_load(const float *from)
{
  portable_vector v;
  memcpy(&v, from, sizeof v);
  return v;
}

PORTABLE void portable_store_far(float *to, portable_vector x)
{
  memcpy(to, &x, sizeof x);
}

PORTABLE portable_vector portable_if_greater(portable_vector a, portable_vector b, portable_vector x, portable_vector y)
{
  const portable_bits greater = (portable_bits)(a > b);
  return (portable_vector)(((portable_bits)x & greater) | ((portable_bits)y & ~greater));
}

PORTABLE portable_vector portable_load_some(const float *from, int64_t n)
{
  float part[4] = { 0.0f };
  for (int64_t i = 0; i < n; i++) part[i] = from[i];
  return portable_load(part);
}

PORTABLE portable_vector portable_from_bool(const unsigned char *from)
{
  portable_vector v;
  for (int i = 0; i < 4; i++) v[i] = from[i] != 0 ? 0.0f : -INFINITY;
  return v;
}

/* Adding 1.5 2^23 + 127 leaves whole + 127 in the low bits, where a shift makes it the exponent of 2^whole. */
PORTABLE portable_vector portable_scale(portable_vector p, portable_vector whole, portable_vector t)
{
  const portable_vector power = (portable_vector)((portable_bits)(whole + (12582912.0f + 127.0f)) << 23);
  return (portable_vector)((portable_bits)(p * power) & ~(portable_bits)(t < -126.0f));
}

PORTABLE portable_vector portable_from_bf16(const uint16_t *from)
{
  portable_vector v = { twh__cpu_from_bf16(from[0]), twh__cpu_from_bf16(from[1]), twh__cpu_from_bf16(from[2]),
                        twh__cpu_from_bf16(from[3]) };
  return v;
}

PORTABLE portable_vector portable_from_f16(const uint16_t *from)
{
  portable_vector v = { twh__cpu_from_f16(from[0]), twh__cpu_from_f16(from[1]), twh__cpu_from_f16(from[2]),
                        twh__cpu_from_f16(from[3]) };
  return v;
}

PORTABLE void portable_to_bf16(uint16_t *to, portable_vector x)
{
  for (int i = 0; i < 4; i++) to[i] = twh__cpu_to_bf16(x[i]);
}

PORTABLE void portable_to_f16(uint16_t *to, portable_vector x)
{
  for (int i = 0; i < 4; i++) to[i] = twh__cpu_to_f16(x[i]);
}

PORTABLE void portable_transpose(portable_vector *x)
{
  const portable_vector a = x[0], b = x[1], c = x[2], d = x[3];
  for (int i = 0; i < 4; i++) {
    const portable_vector row = { a[i], b[i], c[i], d[i] };
    x[i] = row;
  }
}

#include "cpu/lanes_all.h"

static const twh__cpu_lanes portable_table = CPU_TABLE;

const twh__cpu_lanes *twh__cpu_portable(void)
{
  return &portable_table;
}
