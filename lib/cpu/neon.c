/* NEON of a 64-bit ARM, where it is always there: registers of 4 queries, 24 accumulators. */
#include "cpu/lanes.h"

#if defined(__GNUC__) && defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)

#  include <arm_neon.h>
#  include <math.h>

#  define CPU_TARGET
#  define CPU_LANES   4
#  define CPU_ROWS    8
#  define CPU_NAME(x) neon_##x

#  define VEC                      float32x4_t
#  define V_ZERO()                 vdupq_n_f32(0.0f)
#  define V_SET                    vdupq_n_f32
#  define V_LOAD                   vld1q_f32
#  define V_STORE                  vst1q_f32
#  define V_LOAD_FAR               vld1q_f32
#  define V_LOAD_SOME              neon_load_some
#  define V_STORE_FAR              vst1q_f32
#  define V_ADD                    vaddq_f32
#  define V_SUB                    vsubq_f32
#  define V_MUL                    vmulq_f32
#  define V_DIV                    vdivq_f32
#  define V_FMA(a, b, c)           vfmaq_f32(c, a, b)
#  define V_MAX                    vmaxnmq_f32 /* the number where one is NaN */
#  define V_IF_GREATER(a, b, x, y) vbslq_f32(vcgtq_f32(a, b), x, y)
#  define V_ROUND                  vrndnq_f32
#  define V_SCALE                  neon_scale
#  define V_FROM_BOOL              neon_from_bool
#  define V_FROM_BF16(from)        vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from), 16))
#  define V_TO_BF16                neon_to_bf16
#  define V_FROM_F16(from)         vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)))
#  define V_TO_F16(to, x)          vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(x)))
#  define V_TRANSPOSE              neon_transpose
#  define NEON                     static inline __attribute__((always_inline))

NEON float32x4_t neon_load_some(const float *from, int64_t n)
{
  float part[4] = { 0.0f };
  for (int64_t i = 0; i < n; i++) part[i] = from[i];
  return vld1q_f32(part);
}

NEON float32x4_t neon_from_bool(const unsigned char *from)
{
  float part[4];
  for (int i = 0; i < 4; i++) part[i] = from[i] != 0 ? 0.0f : -INFINITY;
  return vld1q_f32(part);
}

/* Adding 1.5 2^23 + 127 leaves whole + 127 in the low bits, where a shift makes it the exponent of 2^whole. */
NEON float32x4_t neon_scale(float32x4_t p, float32x4_t whole, float32x4_t t)
{
  const uint32x4_t bits = vreinterpretq_u32_f32(vaddq_f32(whole, vdupq_n_f32(12582912.0f + 127.0f)));
  const uint32x4_t scaled = vreinterpretq_u32_f32(vmulq_f32(p, vreinterpretq_f32_u32(vshlq_n_u32(bits, 23))));
  return vreinterpretq_f32_u32(vbicq_u32(scaled, vcltq_f32(t, vdupq_n_f32(-126.0f))));
}

/* To nearest even; what is cut off a NaN could be all that made it one, so a bit is set. */
NEON void neon_to_bf16(uint16_t *to, float32x4_t x)
{
  const uint32x4_t bits = vreinterpretq_u32_f32(x), cut = vshrq_n_u32(bits, 16);
  const uint32x4_t near = vaddq_u32(bits, vaddq_u32(vandq_u32(cut, vdupq_n_u32(1)), vdupq_n_u32(0x7fff)));
  const uint32x4_t is_number = vceqq_f32(x, x);
  vst1_u16(to, vmovn_u32(vbslq_u32(is_number, vshrq_n_u32(near, 16), vorrq_u32(cut, vdupq_n_u32(0x40)))));
}

NEON void neon_transpose(float32x4_t *x)
{
  const float32x4_t a = vtrn1q_f32(x[0], x[1]), b = vtrn2q_f32(x[0], x[1]);
  const float32x4_t c = vtrn1q_f32(x[2], x[3]), d = vtrn2q_f32(x[2], x[3]);
  x[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(c));
  x[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(d));
  x[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(c));
  x[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(d));
}

#  include "cpu/lanes_all.h"

static const twh__cpu_lanes neon_table = CPU_TABLE;

const twh__cpu_lanes *twh__cpu_neon(void)
{
  return &neon_table;
}

#else

const twh__cpu_lanes *twh__cpu_neon(void)
{
  return NULL;
}

#endif
