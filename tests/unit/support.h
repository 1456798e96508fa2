/* What the tests share: repeatable random numbers, tensors of a problem, its definition evaluated directly in float64, one
 * call of full length to compare with, contexts that count, fail or run threads, a table of kernels, and a wrapper that
 * holds the library to its contract with the kernel in every call.
 *
 * Nothing here uses the library's own arithmetic: conversions, visibility and softmax are written a second time. Every
 * comparison treats NaN as infinitely wrong. Included first by every test. */
#ifndef TWH_TESTS_SUPPORT_H
#define TWH_TESTS_SUPPORT_H

#ifndef _DEFAULT_SOURCE
#  define _DEFAULT_SOURCE 1
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"
#include "twoheads.h"

/* 1 under a sanitizer, where everything takes several times as long and the longest tests do less. */
#if defined(__has_feature)
#  if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#    define SUPPORT_SANITIZED 1
#  endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#  define SUPPORT_SANITIZED 1
#endif
#ifndef SUPPORT_SANITIZED
#  define SUPPORT_SANITIZED 0
#endif

#define SUPPORT_COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

/* Fail the test with a message unless value <= bound; a NaN fails. */
#define support_assert_at_most(value, bound, what) support_at_most((value), (bound), (what), __FILE__, __LINE__)
void support_at_most(double value, double bound, const char *what, const char *file, int line);

/* Fail unless `status` is `expected` and, for failures, the message contains `word` (NULL: any). */
#define support_assert_status(status, expected, error, word) \
  support_status((status), (expected), (error), (word), __FILE__, __LINE__)
void support_status(twh_status status, twh_status expected, const twh_error *error, const char *word, const char *file,
                    int line);

/* ---- random numbers: a counter and a hash, so that case n can be made without cases 0 .. n - 1 ---- */

typedef struct support_random {
  uint64_t key, counter;
} support_random;

support_random support_random_at(uint64_t seed, uint64_t stream);
uint64_t       support_bits(support_random *random);
double         support_uniform(support_random *random); /* in (0, 1) */
double         support_normal(support_random *random);
int64_t        support_below(support_random *random, int64_t n);                /* 0 .. n - 1 */
int64_t        support_between(support_random *random, int64_t lo, int64_t hi); /* lo .. hi */
int            support_one_in(support_random *random, int64_t n);
/* TWH_SEED from the environment, or `fallback`. */
uint64_t       support_seed(uint64_t fallback);

/* ---- numbers ---- */

int64_t support_bytes(int32_t dtype);
double  support_load(const void *data, int32_t dtype, int64_t at);
void    support_store(void *data, int32_t dtype, int64_t at, double value);
double  support_round(double value, int32_t dtype);   /* to nearest even */
double  support_ulp(double magnitude, int32_t dtype); /* distance between neighbours at that magnitude */
double  support_epsilon(int32_t dtype);               /* distance between 1 and the next larger number */

/* ---- the tensors of a problem ---- */

enum { SUPPORT_DENSE = 0, SUPPORT_PACKED_HEADS = 1, SUPPORT_GAPS = 2, SUPPORT_LAYOUTS = 3 };

/* Every byte that is not an element of q, k, v, mask or sink_logits, and all of out and lse, starts as SUPPORT_POISON, which
 * is NaN in every float type. Blocks have no slack, so that a sanitizer sees what reads beyond them. */
#define SUPPORT_POISON 0xff

enum { SUPPORT_TENSORS = 9 }; /* q, k, v, out, lse, mask, sinks, key_bias, slopes: the order of memory and bytes */

typedef struct support_tensors {
  twh_tensor  q, k, v, out, lse, mask, sinks, key_bias, slopes;
  twh_tensors all;                   /* points at those above; never copy the struct */
  int64_t     batch, q_rows, k_rows; /* the extents of the tensors */
  void       *memory[SUPPORT_TENSORS];
  size_t      bytes[SUPPORT_TENSORS];
} support_tensors;

enum { SUPPORT_LSE = 1, SUPPORT_SINKS = 2, SUPPORT_BROADCAST = 4 };

/* Allocate tensors for a problem and point tensors->all at them; mask, key_bias and slopes where the problem declares them.
 * flags: SUPPORT_LSE, SUPPORT_SINKS; SUPPORT_BROADCAST: all batch entries and heads share one mask and one set of biases. */
void support_tensors_create(support_tensors *tensors, const twh_problem *problem, int32_t dtype, int32_t layout, int flags);
void support_tensors_destroy(support_tensors *tensors);
/* Poison out and lse again. */
void support_tensors_clear(support_tensors *tensors);
/* What the inputs look like: normal q and k such that logits have standard deviation logit_std around logit_mean (all keys
 * share one component), values of standard deviation 1 around value_mean; rounded to `rounding` (0: not). Masks hide single
 * pairs, whole rows and, for every third head, whole blocks of rows and keys. Biases are normal of standard deviation 2, slopes
 * negative powers of two of either sign. */
typedef struct support_fill {
  double  logit_std, logit_mean, value_mean, mask_share; /* share of hidden pairs in the mask */
  int32_t rounding, hidden_as_lowest; /* hide with the lowest finite number, which leaves rows non-empty, instead of -inf */
} support_fill;
void support_tensors_fill(support_tensors *tensors, const twh_problem *problem, const support_fill *fill,
                          support_random *random);
/* Whether out and lse are still poison wherever no sequence has a row. */
int  support_tensors_gaps_untouched(const support_tensors *tensors, const twh_problem *problem);

/* Element address helpers: row r of head h of batch b. */
double support_at(const twh_tensor *tensor, int64_t b, int64_t h, int64_t r, int64_t c);
void   support_set(const twh_tensor *tensor, int64_t b, int64_t h, int64_t r, int64_t c, double value);

/* ---- the right answer ---- */

/* out (B, q_heads, rows, v_dim) and lse (B, q_heads, rows), dense; zero for rows outside all sequences. */
typedef struct support_answer {
  int64_t rows, dim; /* B * q_heads * rows, v_dim */
  double *out, *lse;
  double  max_out, max_logit, max_value; /* largest magnitudes; of the logits and values of visible pairs (truth only) */
} support_answer;

/* Sequence b of a problem, also of one without a list; *entry receives the batch entry of the tensors. */
twh_sequence support_sequence(const twh_problem *problem, int64_t b, int64_t *entry);
int          support_visible(const twh_problem *problem, const twh_sequence *sequence, int64_t i, int64_t j);
double       support_scale(const twh_problem *problem);

/* The definition, row by row, in float64. */
void   support_answer_truth(support_answer *answer, const twh_problem *problem, const support_tensors *tensors);
/* One call per head of a reference kernel with `kernel`'s arithmetic (dtype, scale, softcap, score rounding) that is as long
 * as the problem and takes a mask. */
void   support_answer_one_call(support_answer *answer, const twh_problem *problem, const support_tensors *tensors,
                               const twh_oracle_desc *kernel, const twh_reference_options *options);
/* What out and lse hold now. */
void   support_answer_read(support_answer *answer, const twh_problem *problem, const support_tensors *tensors);
void   support_answer_destroy(support_answer *answer);
/* Largest absolute differences. NaN, or an infinity that the other does not have, is INFINITY. */
double support_answer_out_error(const support_answer *got, const support_answer *want);
double support_answer_lse_error(const support_answer *got, const support_answer *want);
/* What the library promises: twice the error of one call, one ulp of the kernel's dtype at max |out|, and in f32 what an ulp of
 * the largest logit moves. small: one call of so small a problem may be luckier than any tiling; an epsilon of the largest
 * value is added. */
double support_out_bound(const support_answer *one_call, const support_answer *truth, const twh_oracle_desc *kernel, int small);
double support_lse_bound(const support_answer *one_call, const support_answer *truth, const twh_oracle_desc *kernel);

/* ---- contexts ---- */

/* Counts what is allocated, fails the fail_at-th allocation (from 0; -1: none), fills memory with poison. */
typedef struct support_memory {
  pthread_mutex_t lock;
  int64_t         allocations, fail_at, live_blocks, live_bytes, peak_bytes;
  int64_t         threads; /* of parallel_for; 0 = no hook */
  int64_t         wrong_releases;
} support_memory;

/* A context on `memory`, whose counters are reset. threads: 0 = none. parallelism: as in twh_context_desc. */
twh_context *support_context(support_memory *memory, int64_t threads, int64_t parallelism);
/* The descriptor only, for tests that let context creation fail. */
void         support_context_desc(support_memory *memory, int64_t threads, int64_t parallelism, twh_context_desc *desc);

/* ---- kernels ---- */

/* A kernel relative to a problem. */
typedef struct support_kernel {
  const char *name;
  uint32_t    mask_modes, flags;
  int32_t     dtype, out_dtype, mask_dtype;
  int64_t     slots, spare_qk, spare_v; /* spare_v: v_dim - dv where v_slice is 0 */
  int64_t     v_slice;                  /* v_dim; 0 = dv + spare_v */
  int64_t     causal_offset;
  double      scale_ratio; /* kernel's scale / problem's; 0 = 1 */
} support_kernel;

extern const support_kernel support_kernels[];
extern const int64_t        support_kernel_count;

/* The descriptor of a kernel for a problem; its run is not set. */
void    support_kernel_desc(const support_kernel *kernel, const twh_problem *problem, int64_t q_len, int64_t k_len,
                            twh_oracle_desc *desc);
/* Whether the library must be able to run the problem on that kernel; it must refuse all others. */
int     support_must_run(const twh_problem *problem, const twh_oracle_desc *desc);
/* Where biases are carried by spare coordinates, the library says how many it wants: with fewer than this it may refuse. */
int64_t support_bias_coordinates(const twh_oracle_desc *desc);
/* Whether row i of slot s of a call sees key j, and how many keys it sees. */
int     support_call_visible(const twh_call *call, const twh_oracle_desc *desc, int64_t s, int64_t i, int64_t j);
int64_t support_call_seen(const twh_call *call, const twh_oracle_desc *desc, int64_t s, int64_t i);

/* A reference kernel behind a wrapper that checks every call against the description: shapes, strides, alignment, finite
 * operands, ids, the limits of batches and of concurrency. Rows that see no key are answered with NaN wherever the contract
 * lets a kernel do so. A broken promise makes the call fail with SUPPORT_BROKEN and stands in `broken`. */
#define SUPPORT_BROKEN (-424242)

typedef struct support_oracle {
  twh_oracle     *oracle, *inner;
  twh_oracle_desc desc;                                                /* as registered, defaults filled in */
  int32_t (*run)(void *user, const twh_call *const *calls, int64_t n); /* of inner */
  void           *user;
  pthread_mutex_t lock;
  int64_t         calls, batches, running, most_running; /* since the last reset */
  int64_t         fail_at;                               /* number of the call that fails; -1: none */
  int32_t         fail_code;
  int64_t         failed_index, calls_after_failure; /* twh_call.index of the first call of the batch that failed */
  int             failed;
  int             finite_only;                       /* refuse operands that are not finite; set by create */
  int64_t         backwards;                         /* operands whose rows went backwards, since the last reset */
  int64_t         continued;                         /* calls that continued others, since the last reset */
  /* Called after the inner kernel with the number of the call, under the lock; may change what the kernel returned. */
  void (*spoil)(void *user, const twh_call *call, int64_t number);
  void     *spoil_user;
  uint64_t *ids;
  int64_t   id_count, id_room;
  char      broken[200];
} support_oracle;

void support_oracle_create(support_oracle *oracle, const twh_context *context, const twh_oracle_desc *desc,
                           const twh_reference_options *options);
void support_oracle_reset(support_oracle *oracle); /* counters and ids; before each execute */
void support_oracle_destroy(support_oracle *oracle);

/* Plan a problem on a kernel, execute it, and compare the number of calls with the plan's: equal but for repairs, and at most
 * that where a mask tensor may hide whole tiles. Returns the status of planning or
 * executing; anything else that goes wrong fails the test with `name`. stats may be NULL. */
twh_status support_solve(const char *name, const twh_problem *problem, const twh_oracle_desc *desc, support_tensors *tensors,
                         twh_run_stats *stats, twh_error *error);

/* ---- what a plan covers ---- */

typedef struct support_cover {
  int64_t     tiles, host_tiles, host_rows, calls, slots; /* tiles: the host's too; host_rows: of those */
  int64_t     shapes[4], led;                             /* tiles by TWH_SHAPE_*; with sinks before their keys */
  double      pairs;
  const char *wrong;
  char        text[300]; /* what is wrong and the tile that shows it */
} support_cover;

/* Visit all tiles of a plan: each must fit its kernel, each visible pair must be in exactly one and no invisible pair in any,
 * and all counts must be the plan's. kernels: the descriptions of its `count` kernels. Returns what is wrong, or NULL. */
const char *support_cover_check(support_cover *cover, const twh_problem *problem, const twh_plan *plan,
                                const twh_oracle_desc *kernels, int64_t count);

/* ---- one head, written down as numbers ---- */

/* A problem of one head whose tensors are plain arrays of double. NULL: q and k are zero, v is one, no mask, no lse. */
typedef struct support_head {
  twh_problem          problem; /* batch 1, one head, dims 1, scale 1 after init; tests change what they need */
  twh_pattern          pattern;
  const double        *q, *k, *v; /* (q_len, qk_dim), (k_len, qk_dim), (k_len, v_dim) */
  const unsigned char *mask;      /* (q_len, k_len), used where problem.mask_dtype is TWH_BOOL */
  const double        *sink;      /* one number, or NULL */
  double               height;    /* largest |logit|: what an f32 lse of that size loses is allowed for; 0 = small */
  uint32_t             without;   /* dtypes of kernels to be left out: bits 1 << dtype */
  uint32_t             avoid;     /* flags of kernels to be left out */
} support_head;

/* Never copy the struct when causal: the problem points at its own pattern. */
void       support_head_init(support_head *head, int64_t q_len, int64_t k_len, int causal);
/* out (q_len, v_dim), lse (q_len): filled with NaN first. A broken contract fails the test with `name`. */
twh_status support_head_run(const char *name, const support_head *head, const twh_oracle_desc *desc, double *out, double *lse,
                            twh_run_stats *stats, twh_error *error);
/* Run it on every kernel of the table that must be able to, with q_len = k_len = m, and compare: `ulps` epsilons of the
 * kernel's dtype relative to 1 + |want|, and what the height costs. want_lse may be NULL. Returns the number of kernels that
 * ran. */
int64_t    support_head_expect(const char *name, const support_head *head, int64_t m, const double *want_out,
                               const double *want_lse, double ulps);
/* The same against the definition in float64. */
int64_t    support_head_expect_truth(const char *name, const support_head *head, int64_t m, double ulps);

/* ---- random cases ---- */

enum { SUPPORT_SEQUENCES = 24, SUPPORT_KERNELS = 3 };

/* A problem, one to three kernels and inputs, all made from (seed, number). Pointers point into the struct: never copy it. */
typedef struct support_case {
  uint64_t        seed, number;
  twh_problem     problem;
  twh_pattern     pattern;
  twh_sequence    sequences[SUPPORT_SEQUENCES];
  twh_oracle_desc desc[SUPPORT_KERNELS];
  int64_t         kernels;
  support_fill    fill;
  int32_t         host_dtype, layout, tensor_flags;
  char            text[3000]; /* one line that says all of it, and how to run it again */
} support_case;

void support_case_make(support_case *made, uint64_t seed, uint64_t number);

#endif
