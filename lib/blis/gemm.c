/* BLIS sgemm on one thread, and the choice of BLIS's kernels.
 *
 * Four things make this more than one call. (1) BLIS built with threads would start some: its runtime object rntm_t
 * is passed with one thread, which holds whatever the environment or the host set globally. (2) The kernels for small
 * matrices (sup) read the transposed operand k column by column; packing it is faster once some rows share the work, and much
 * slower for a handful. They also round otherwise at the edge of a matrix than inside. (3) Those of BLIS 0.9 for AVX2 read
 * behind their operands in some shapes. (4) Which set of kernels BLIS runs on a CPU it does not know: "generic", unless its
 * table of contexts can be asked for another set. The function that does is not exported from libblis.so, but is there in
 * libblis.a: hence the weak reference under a name of our own, which also does without blis.h declaring it. */
#include "blis/gemm.h"

#include <blis.h>
#include <stdlib.h>

/* From that many query rows on, packing k pays (measured with 512 keys of 64). */
enum { GEMM_PACK_ROWS = 16 };

#if defined(__ELF__) && defined(__GNUC__)
/* Looks like BLIS's own function for this purpose up to 1.0; later ones have none of that name, and the address is NULL. */
extern const cntx_t *gemm_lookup(arch_t arch) __asm__("bli_gks_lookup_nat_cntx") __attribute__((weak));
#  define GEMM_LOOKUP gemm_lookup
#else
#  define GEMM_LOOKUP ((const cntx_t *(*)(arch_t))NULL)
#endif

/* Kernels that need AVX2 and FMA only, under any of their names. */
#if defined(BLIS_CONFIG_HASWELL)
#  define GEMM_AVX2_ARCH BLIS_ARCH_HASWELL
#elif defined(BLIS_CONFIG_ZEN)
#  define GEMM_AVX2_ARCH BLIS_ARCH_ZEN
#else
#  define GEMM_AVX2_ARCH BLIS_ARCH_GENERIC
#endif

/* The best kernels in BLIS for the instructions this CPU has; BLIS_ARCH_GENERIC if none fit. */
static arch_t gemm_best_arch(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
#  ifdef BLIS_CONFIG_SKX
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")) return BLIS_ARCH_SKX;
#  endif
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return GEMM_AVX2_ARCH;
#endif
  return BLIS_ARCH_GENERIC;
}

/* Whether BLIS would find kernels by itself. It cannot be asked without fixing its choice, so this is what its versions up
 * to 2.0 do: Intel by features, AMD by family, nothing else. */
static int gemm_is_known_cpu(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
#  ifdef BLIS_CONFIG_ZEN3
  if (__builtin_cpu_is("amdfam19h")) return 1;
#  endif
  return __builtin_cpu_is("intel") || __builtin_cpu_is("amdfam15h") || __builtin_cpu_is("amdfam17h");
#else
  return 1;
#endif
}

const void *twh__blis_kernels(void)
{
  const cntx_t *context = NULL;
  bli_init();
  if (bli_arch_query_id() == BLIS_ARCH_GENERIC && getenv("BLIS_ARCH_TYPE") == NULL && GEMM_LOOKUP != NULL)
    context = GEMM_LOOKUP(gemm_best_arch());
  return context;
}

const char *twh__blis_version(void)
{
  return bli_info_get_version_str();
}

const char *twh_blis_kernel_name(void)
{
  return bli_arch_string(twh__blis_kernels() != NULL ? gemm_best_arch() : bli_arch_query_id());
}

/* BLIS_ARCH_TYPE is the number of an arch_t in decimal. */
#define GEMM_DECIMAL(n) {(char)('0' + ((n) < 10 ? (n) : (n) / 10)), (char)((n) < 10 ? 0 : '0' + (n) % 10), 0}

const char *twh_blis_recommended_arch(void)
{
  static const char skx[] = GEMM_DECIMAL(BLIS_ARCH_SKX), avx2[] = GEMM_DECIMAL(GEMM_AVX2_ARCH);
  const arch_t best = gemm_best_arch();
  if (GEMM_LOOKUP != NULL || gemm_is_known_cpu()) return NULL;
  return best == BLIS_ARCH_GENERIC ? NULL : best == BLIS_ARCH_SKX ? skx : avx2;
}

/* Where sup reads nothing behind a and b, found by trying all small shapes against unmapped memory: where it goes along rows of
 * b; along columns only if k is a multiple of its 8 lanes. Where beta is not 0 it reads behind c. */
static int gemm_sup_is_safe(int64_t k, int64_t b_row_stride, float beta)
{
  return beta == 0.0f && (b_row_stride != 1 || k % 8 == 0);
}

/* c = alpha a b + beta c. BLIS only reads a, b, alpha and beta, but does not say const. */
static void gemm_multiply(const void *kernels, int sup, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                          int64_t a_stride, const float *b, int64_t b_row_stride, int64_t b_col_stride, float beta, float *c,
                          int64_t c_stride)
{
  rntm_t runtime = BLIS_RNTM_INITIALIZER;
  bli_rntm_set_num_threads(1, &runtime);
  bli_rntm_set_l3_sup(sup && gemm_sup_is_safe(k, b_row_stride, beta) ? TRUE : FALSE, &runtime);
  bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, (dim_t)m, (dim_t)n, (dim_t)k, &alpha, (float *)(uintptr_t)a,
               (inc_t)a_stride, 1, (float *)(uintptr_t)b, (inc_t)b_row_stride, (inc_t)b_col_stride, &beta, c, (inc_t)c_stride,
               1, (cntx_t *)(uintptr_t)kernels, &runtime);
}

void twh__blis_scores(const void *kernels, int64_t q_len, int64_t k_len, int64_t dim, float alpha, const float *q,
                      int64_t q_stride, const float *k, int64_t k_stride, float *scores, int64_t scores_stride)
{
  gemm_multiply(kernels, q_len < GEMM_PACK_ROWS, q_len, k_len, dim, alpha, q, q_stride, k, 1, k_stride, 0.0f, scores,
                scores_stride);
}

void twh__blis_multiply(const void *kernels, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_stride, const float *b,
                        int64_t b_stride, float *c, int64_t c_stride)
{
  gemm_multiply(kernels, 1, m, n, k, 1.0f, a, a_stride, b, b_stride, 1, 0.0f, c, c_stride);
}

void twh__blis_multiply_packed(const void *kernels, int64_t m, int64_t n, int64_t k, const float *a, int64_t a_stride,
                               const float *b, int64_t b_row_stride, int64_t b_col_stride, float beta, float *c,
                               int64_t c_stride)
{
  gemm_multiply(kernels, 0, m, n, k, 1.0f, a, a_stride, b, b_row_stride, b_col_stride, beta, c, c_stride);
}
