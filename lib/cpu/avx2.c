/* AVX2 with FMA and F16C: registers of 8 queries, 12 accumulators.
 *
 * Functions have the target in an attribute, so that the file is compiled with the flags of all others. */
#include "cpu/lanes.h"

#if defined(__GNUC__) && defined(__x86_64__)

#  include <immintrin.h>
#  include <math.h>

#  define CPU_TARGET  __attribute__((target("avx2,fma,f16c")))
#  define CPU_LANES   8
#  define CPU_ROWS    4
#  define CPU_NAME(x) avx2_##x

#  define VEC          __m256
#  define V_ZERO       _mm256_setzero_ps
#  define V_SET        _mm256_set1_ps
#  define V_LOAD       _mm256_load_ps
#  define V_STORE      _mm256_store_ps
#  define V_LOAD_FAR   _mm256_loadu_ps
#  define V_LOAD_SOME  avx2_load_some
#  define V_STORE_FAR  _mm256_storeu_ps
#  define V_ADD        _mm256_add_ps
#  define V_SUB        _mm256_sub_ps
#  define V_MUL        _mm256_mul_ps
#  define V_DIV        _mm256_div_ps
#  define V_FMA        _mm256_fmadd_ps
#  define V_MAX        _mm256_max_ps
#  define V_ROUND(t)   _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#  define V_IF_GREATER(a, b, x, y) _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ))
#  define V_SCALE      avx2_scale
#  define V_FROM_F16(from) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from)))
#  define V_TO_F16(to, x) \
    _mm_storeu_si128((__m128i *)(void *)(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#  define V_FROM_BOOL  avx2_from_bool
#  define V_FROM_BF16  avx2_from_bf16
#  define V_TO_BF16    avx2_to_bf16
#  define V_TRANSPOSE  avx2_transpose
#  define AVX2         CPU_TARGET static inline __attribute__((always_inline))

AVX2 __m256 avx2_load_some(const float *from, int64_t n)
{
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes));
}

/* Adding 1.5 2^23 + 127 leaves whole + 127 in the low bits, where a shift makes it the exponent of 2^whole. The comparison is
 * "not less", which a NaN passes. */
AVX2 __m256 avx2_scale(__m256 p, __m256 whole, __m256 t)
{
  const __m256i bits = _mm256_castps_si256(_mm256_add_ps(whole, _mm256_set1_ps(12582912.0f + 127.0f)));
  const __m256  power = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
  return _mm256_and_ps(_mm256_mul_ps(p, power), _mm256_cmp_ps(t, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ));
}

AVX2 __m256 avx2_from_bool(const unsigned char *from)
{
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from));
  return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(bytes, _mm256_setzero_si256())), _mm256_set1_ps(-INFINITY));
}

AVX2 __m256 avx2_from_bf16(const uint16_t *from)
{
  const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)from);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* To nearest even; what is cut off a NaN could be all that made it one, so a bit is set. */
AVX2 void avx2_to_bf16(uint16_t *to, __m256 x)
{
  const __m256i bits = _mm256_castps_si256(x), cut = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(cut, _mm256_set1_epi32(1)), quiet = _mm256_or_si256(cut, _mm256_set1_epi32(0x40));
  const __m256i near = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff)), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)), upper = _mm256_blendv_epi8(near, quiet, nan);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(upper, upper), 0x08);
  _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(packed));
}

AVX2 void avx2_transpose(__m256 *x)
{
  __m256 y[8];
  for (int i = 0; i < 8; i += 4) {
    const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(x[i], x[i + 1]));
    const __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(x[i], x[i + 1]));
    const __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(x[i + 2], x[i + 3]));
    const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(x[i + 2], x[i + 3]));
    y[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
    y[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
    y[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
    y[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
  }
  for (int i = 0; i < 4; i++) {
    x[i] = _mm256_permute2f128_ps(y[i], y[i + 4], 0x20);
    x[i + 4] = _mm256_permute2f128_ps(y[i], y[i + 4], 0x31);
  }
}

#  include "cpu/lanes_all.h"

static const twh__cpu_lanes avx2_table = CPU_TABLE;

const twh__cpu_lanes *twh__cpu_avx2(void)
{
  return &avx2_table;
}

#else

const twh__cpu_lanes *twh__cpu_avx2(void)
{
  return NULL;
}

#endif
