/* What every stage stands on: errors, memory, checked sizes, data types, the context.
 *
 * Nothing here knows about attention. Only memory.c names malloc and free; only checked helpers multiply sizes. */
#ifndef TWH_CORE_BASE_H
#define TWH_CORE_BASE_H

#include <limits.h> /* names the C library, for TWH__CLONES */

#include "twoheads.h"

/* ---- errors: fill `error` (NULL allowed) and return `status` ---- */

twh_status twh__fail(twh_error *error, twh_status status, const char *format, ...)
#if defined(__GNUC__)
  __attribute__((format(printf, 3, 4)))
#endif
  ;

/* Add what a callback of the host's returned to a failure that twh__fail has filled. */
void twh__fail_code(twh_error *error, int32_t code);

/* Forward a failure: if (TWH__FAILED(status = f())) goto fail; */
#define TWH__FAILED(expression) ((expression) < 0)

/* Check a struct that a caller filled and bring it to this library's size: copies min(given, own) bytes over zeros. A given
 * size of 0 is TWH_E_ARGUMENT, one below `least` (the first version's) or non-zero bytes beyond `own` TWH_E_VERSION. */
twh_status twh__struct_read(void *to, size_t own, size_t least, const void *given, const char *name, twh_error *error);

/* Write `own` bytes of `from` into a caller's struct that starts with its struct_size, which is kept. */
twh_status twh__struct_write(void *given, const void *from, size_t own, size_t least, const char *name, twh_error *error);

/* ---- context and memory ---- */

/* Threads that run one loop at a time; a loop that comes while another one runs is done by its caller. */
typedef struct twh__threads twh__threads;

enum { TWH__MOST_THREADS = 255 };

struct twh_context {
  twh_context_desc desc;
  twh__threads    *threads; /* NULL: the host has its own, or none are wanted */
};

twh__threads *twh__threads_create(const twh_context *context, int64_t count, twh_error *error);
void          twh__threads_destroy(const twh_context *context, twh__threads *threads);
void          twh__threads_for(twh__threads *threads, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

/* Never NULL; `context` NULL = the defaults. */
const twh_context *twh__context_or_default(const twh_context *context);

/* Zero-filled, aligned to `alignment` (a power of two; 0 = max_align). NULL with `error` filled on failure. */
void *twh__allocate(const twh_context *context, size_t bytes, size_t alignment, twh_error *error);
/* The same, not filled: for what is written before it is read. */
void *twh__allocate_raw(const twh_context *context, size_t bytes, size_t alignment, twh_error *error);
void  twh__release(const twh_context *context, void *memory, size_t bytes);

void twh__log(const twh_context *context, int32_t level, const char *format, ...)
#if defined(__GNUC__)
  __attribute__((format(printf, 3, 4)))
#endif
  ;

void twh__parallel_for(const twh_context *context, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

/* Monotonic seconds. */
double twh__now(void);

/* ---- wide registers ----
 *
 * TWH__CLONES before a function with a hot loop has the compiler make it for wider registers as well; the loader picks by CPU.
 * The results are the same bits: same operations in the same order, and no fused multiplication and addition. Only where the
 * loader can do that; not under sanitizers, whose runtime starts later than the loader's choice. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TWH_NO_CLONES)
#  define TWH__CLONES
#elif defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#  define TWH__CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#  define TWH__CLONES
#endif

/* Before a loop whose turns do not depend on each other: what one writes, no other one reads. */
#if defined(__clang__)
#  define TWH__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#  define TWH__INDEPENDENT _Pragma("GCC ivdep")
#else
#  define TWH__INDEPENDENT
#endif

/* Have the line at `address`, which may lie outside all objects, come into the cache. */
#if defined(__GNUC__)
#  define TWH__PREFETCH(address) __builtin_prefetch((const void *)(address))
#else
#  define TWH__PREFETCH(address) ((void)(address))
#endif

/* ---- checked sizes: 1 on success, 0 on overflow (then *result is unspecified); operands must be >= 0 ---- */

int twh__multiply(int64_t a, int64_t b, int64_t *result);
int twh__add(int64_t a, int64_t b, int64_t *result);

static inline int64_t twh__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t twh__max(int64_t a, int64_t b) { return a > b ? a : b; }
/* Floor division for b > 0; a may be negative. */
static inline int64_t twh__floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
static inline int64_t twh__ceil_div(int64_t a, int64_t b) { return a <= 0 ? 0 : (a - 1) / b + 1; }
static inline int64_t twh__round_up(int64_t a, int64_t b) { return twh__ceil_div(a, b) * b; }

/* ---- data types ---- */

int64_t     twh__dtype_bytes(int32_t dtype); /* 0 for an unknown one */
const char *twh__dtype_name(int32_t dtype);

/* Convert n values, rounding to nearest even once. */
void twh__to_f32(float *to, const void *from, int32_t dtype, int64_t n);
void twh__from_f32(void *to, int32_t dtype, const float *from, int64_t n);
void twh__convert(void *to, int32_t to_dtype, const void *from, int32_t from_dtype, int64_t n);

/* One value; of TWH_BOOL 0 or 1. */
double twh__load(const void *from, int32_t dtype, int64_t index);
void   twh__store(void *to, int32_t dtype, int64_t index, double value);

/* The largest finite value. */
double twh__dtype_max(int32_t dtype);

#endif
