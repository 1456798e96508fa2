/* One number of bf16 or f16 as f32 and back, rounded to nearest even. For what is not worth a vector. */
#ifndef TWH_CPU_FORMATS_H
#define TWH_CPU_FORMATS_H

#include <stdint.h>
#include <string.h>

static inline float twh__cpu_float_of(uint32_t bits)
{
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint32_t twh__cpu_bits_of(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float twh__cpu_from_bf16(uint16_t half)
{
  return twh__cpu_float_of((uint32_t)half << 16);
}

/* What is cut off a NaN could be all that made it one, so a bit is set. */
static inline uint16_t twh__cpu_to_bf16(float x)
{
  const uint32_t bits = twh__cpu_bits_of(x);
  if (x != x) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float twh__cpu_from_f16(uint16_t half)
{
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, size = half & 0x7fffu;
  if (size < 0x400u) return twh__cpu_float_of(twh__cpu_bits_of((float)size * 0x1p-24f) | sign);
  return twh__cpu_float_of(((size << 13) + (size < 0x7c00u ? 112u << 23 : 224u << 23)) | sign);
}

static inline uint16_t twh__cpu_to_f16(float x)
{
  const uint32_t bits = twh__cpu_bits_of(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  uint32_t       half;
  if (size > 0x7f800000u)
    half = 0x7e00u;
  else if (size >= 0x477ff000u)
    half = 0x7c00u; /* 65520 and more */
  else if (size < 0x38800000u)
    half = twh__cpu_bits_of(twh__cpu_float_of(size) + 0.5f) - 0x3f000000u; /* 2^-14: units of 2^-24 */
  else
    half = (size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13;
  return (uint16_t)(half | sign);
}

#endif
