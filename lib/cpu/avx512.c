/* AVX-512: registers of 16 queries, 24 accumulators. Only AVX512F is used.
 *
 * Functions have the target in an attribute, so that the file is compiled with the flags of all others. */
#include "cpu/lanes.h"

#if defined(__GNUC__) && defined(__x86_64__)

#  include <immintrin.h>
#  include <math.h>

#  if !defined(__OPTIMIZE__) && !defined(__clang__)
#    pragma GCC diagnostic ignored "-Wsign-conversion" /* then <immintrin.h> has macros that are not clean */
#  endif

#  define CPU_TARGET  __attribute__((target("avx512f")))
#  define CPU_LANES   16
#  define CPU_ROWS    8
#  define CPU_NAME(x) avx512_##x

#  define VEC              __m512
#  define V_ZERO           _mm512_setzero_ps
#  define V_SET            _mm512_set1_ps
#  define V_LOAD           _mm512_load_ps
#  define V_STORE          _mm512_store_ps
#  define V_LOAD_FAR       _mm512_loadu_ps
#  define V_LOAD_SOME(from, n) _mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1u), from)
#  define V_STORE_FAR      _mm512_storeu_ps
#  define V_ADD            _mm512_add_ps
#  define V_SUB            _mm512_sub_ps
#  define V_MUL            _mm512_mul_ps
#  define V_DIV            _mm512_div_ps
#  define V_FMA            _mm512_fmadd_ps
#  define V_MAX            _mm512_max_ps
#  define V_ROUND(t)       _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#  define V_IF_GREATER(a, b, x, y) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x)
/* Not "not less": a NaN must stay. */
#  define V_SCALE(p, whole, t) \
    _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), p, whole)
#  define V_FROM_F16(from) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from)))
#  define V_TO_F16(to, x) \
    _mm256_storeu_si256((__m256i *)(void *)(to), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#  define V_FROM_BOOL avx512_from_bool
#  define V_FROM_BF16 avx512_from_bf16
#  define V_TO_BF16   avx512_to_bf16
#  define V_TRANSPOSE avx512_transpose
#  define AVX512      CPU_TARGET static inline __attribute__((always_inline))

AVX512 __m512 avx512_from_bool(const unsigned char *from)
{
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
  return _mm512_mask_blend_ps(_mm512_test_epi32_mask(bytes, bytes), _mm512_set1_ps(-INFINITY), _mm512_setzero_ps());
}

AVX512 __m512 avx512_from_bf16(const uint16_t *from)
{
  const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* To nearest even; what is cut off a NaN could be all that made it one, so a bit is set. */
AVX512 void avx512_to_bf16(uint16_t *to, __m512 x)
{
  const __m512i   bits = _mm512_castps_si512(x), cut = _mm512_srli_epi32(bits, 16);
  const __m512i   odd = _mm512_and_si512(cut, _mm512_set1_epi32(1));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  __m512i         upper = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff)), 16);
  upper = _mm512_mask_or_epi32(upper, nan, cut, _mm512_set1_epi32(0x40));
  _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtepi32_epi16(upper));
}

AVX512 void avx512_transpose(__m512 *x)
{
  __m512 y[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(x[i], x[i + 1]));
    const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(x[i], x[i + 1]));
    const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(x[i + 2], x[i + 3]));
    const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(x[i + 2], x[i + 3]));
    y[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    y[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    y[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    y[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  for (int i = 0; i < 4; i++) {
    const __m512 a = _mm512_shuffle_f32x4(y[i], y[i + 4], 0x88), b = _mm512_shuffle_f32x4(y[i], y[i + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(y[i + 8], y[i + 12], 0x88), d = _mm512_shuffle_f32x4(y[i + 8], y[i + 12], 0xdd);
    x[i] = _mm512_shuffle_f32x4(a, c, 0x88);
    x[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
    x[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    x[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

#  include "cpu/lanes_all.h"

static const twh__cpu_lanes avx512_table = CPU_TABLE;

const twh__cpu_lanes *twh__cpu_avx512(void)
{
  return &avx512_table;
}

#else

const twh__cpu_lanes *twh__cpu_avx512(void)
{
  return NULL;
}

#endif
