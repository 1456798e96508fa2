/* twoheads: exact attention over long sequences with a kernel of one fixed length
 *
 * You own a kernel that computes attention for one fixed length M: an NPU graph compiled for 512 tokens, an ASIC, a tuned
 * GPU tile. Your model needs N tokens. This library plans which calls of that kernel are needed, with which inputs, makes
 * them through a callback, and recombines the results into what one call of length N would have returned. The kernel (here
 * called the ORACLE) may return no log-sum-exp, may take no mask or have only a built-in causal one, and is never changed.
 *
 *     static int32_t run(void *user, const twh_call *const *calls, int64_t n) { ... your kernel ... return 0; }
 *
 *     twh_oracle_desc kernel; twh_oracle_desc_init(&kernel);
 *     kernel.slots = 1; kernel.q_len = kernel.k_len = 512; kernel.qk_dim = 64; kernel.v_dim = 65;
 *     kernel.dtype = TWH_F32; kernel.mask_modes = TWH_MASK_NONE; kernel.scale = 0.125; kernel.run = run;
 *     twh_oracle *oracle; twh_oracle_create(NULL, &kernel, &oracle, NULL);
 *
 *     twh_problem problem; twh_problem_init(&problem);
 *     problem.batch = 1; problem.q_heads = problem.kv_heads = 12; problem.q_len = problem.k_len = 8192;
 *     problem.qk_dim = problem.v_dim = 64;
 *     twh_plan *plan; twh_plan_create(NULL, &problem, &oracle, 1, NULL, &plan, NULL);
 *
 *     twh_tensor q, k, v, out;                           ... each (batch, heads, rows, dim), see twh_tensor_dense ...
 *     twh_tensors tensors; twh_tensors_init(&tensors);
 *     tensors.q = &q; tensors.k = &k; tensors.v = &v; tensors.out = &out;
 *     twh_error error; twh_error_init(&error);
 *     if (twh_plan_execute(plan, &tensors, NULL, &error) < 0) puts(error.message);
 *
 *     twh_plan_destroy(plan); twh_oracle_destroy(oracle);
 *
 * What holds everywhere below:
 * - Every function that can fail returns a twh_status (0 is success, errors are negative) and takes a twh_error * as its last
 *   argument, which may be NULL. The library prints nothing, aborts nothing, has no globals and changes no environment.
 * - Structs that the caller fills start with struct_size and are set up by their inline init function; zero in any later
 *   field means the default. They are copied: they may live on the caller's stack. Unknown flag bits, and non-zero bytes
 *   beyond what this library knows, are refused with TWH_E_VERSION.
 * - Structs that the library fills are written for min(struct_size, the library's own size) bytes and zeroed beyond.
 * - Strides are in ELEMENTS of the tensor's dtype. The innermost dimension always has stride 1.
 * - Threads: an object may be used by many threads at once as long as every one of them only reads it (const *). Create,
 *   use and destroy may happen on different threads.
 *
 * Sources in brackets are theorems of Yu & Alman, "Two Heads Are Better than One: Simulating Large Transformers with Small
 * Ones", arXiv 2506.12220, or sections of docs/theory.md.
 */
#ifndef TWOHEADS_H
#define TWOHEADS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version and attributes ---------------------------------------------------------------------------------------- */

#define TWH_VERSION_MAJOR 0
#define TWH_VERSION_MINOR 1
#define TWH_VERSION_PATCH 0
#define TWH_VERSION (TWH_VERSION_MAJOR * 10000 + TWH_VERSION_MINOR * 100 + TWH_VERSION_PATCH)

#if defined(TWH_BUILD_SHARED) && defined(__GNUC__)
#  define TWH_API __attribute__((visibility("default")))
#else
#  define TWH_API
#endif
#if defined(__GNUC__)
#  define TWH_NONNULL(...) __attribute__((nonnull(__VA_ARGS__)))
#  define TWH_MUST_USE     __attribute__((warn_unused_result))
#else
#  define TWH_NONNULL(...)
#  define TWH_MUST_USE
#endif

/* The version of the library that is linked, encoded like TWH_VERSION. Threads: any. Since 0.1. */
TWH_API int32_t twh_version(void);

/* ---- status and errors --------------------------------------------------------------------------------------------- */

typedef int32_t twh_status;

enum {
  TWH_OK            = 0,
  TWH_E_ARGUMENT    = -1,  /* an argument is out of range or contradicts another; the message names it */
  TWH_E_MEMORY      = -2,  /* an allocation failed, or the caller's workspace is too small */
  TWH_E_OVERFLOW    = -3,  /* a product of sizes does not fit the machine's integers */
  TWH_E_VERSION     = -4,  /* a struct size, a flag or a field that this version of the library does not know */
  TWH_E_UNSUPPORTED = -5,  /* valid, but not with the kernel(s) given; the message says what the kernel would need */
  TWH_E_ORACLE      = -6,  /* the kernel's callback failed; its own code is in twh_error.oracle_code */
  TWH_E_CANCELLED   = -7,  /* the progress callback asked to stop */
  TWH_E_RESULT      = -8,  /* TWH_RUN_CHECKED: the kernel returned something that is not a number */
  TWH_E_PLUGIN      = -9,  /* a shared object could not be loaded, or has no entry point of this library */
  TWH_E_HOOK        = -10  /* a hook of a transformer failed; its own code is in twh_error.oracle_code */
};

/* What went wrong. Filled by the function that fails, untouched by one that succeeds. */
typedef struct twh_error {
  uint32_t   struct_size;
  twh_status status;
  int32_t    oracle_code;  /* TWH_E_ORACLE, TWH_E_HOOK: what the kernel's callback or the hook returned, unchanged; else 0 */
  int32_t    slot;         /* TWH_E_RESULT: slot within the call; else -1 */
  int64_t    call;         /* TWH_E_ORACLE: index of the failed batch's first call; TWH_E_RESULT: of the call; else -1 */
  int64_t    row;          /* TWH_E_RESULT: row within the slot; else -1 */
  char       message[232]; /* one line of English, zero-terminated, names the argument */
} twh_error;

/* The name of a status ("TWH_E_MEMORY"), or "unknown status". The string is static. Threads: any. Since 0.1. */
TWH_API const char *twh_status_name(twh_status status);

/* ---- data types and tensors ---------------------------------------------------------------------------------------- */

enum {
  TWH_F32  = 1,
  TWH_F16  = 2, /* IEEE 754 binary16 */
  TWH_BF16 = 3, /* the upper half of a binary32 */
  TWH_F64  = 4,
  TWH_BOOL = 5  /* one byte; masks only: non-zero = the pair counts */
};

/* A tensor of the host, (batch, heads, rows, dim). Element (b, h, r, c) is data[b*batch_stride + h*head_stride +
 * r*row_stride + c]. Strides may be zero (broadcast) or negative. The tensors q, k, v, out, sink_logits, key_bias, alibi_slopes
 * may be F32, F16, BF16 or F64, whatever the kernel's dtype is. Values are rounded to nearest even. */
typedef struct twh_tensor {
  uint32_t struct_size;
  int32_t  dtype;
  void    *data;
  int64_t  batch_stride, head_stride, row_stride;
} twh_tensor;

/* ---- context: memory, logging, threads ----------------------------------------------------------------------------- */

enum { TWH_LOG_WARNING = 1, TWH_LOG_INFO = 2 };

/* Hooks of the host. Each may be NULL (allocate and release only together). */
typedef struct twh_context_desc {
  uint32_t struct_size;
  uint32_t flags;                                                    /* 0 */
  void  *(*allocate)(void *user, size_t bytes, size_t alignment);    /* alignment: a power of two; NULL on failure */
  void   (*release)(void *user, void *memory, size_t bytes);
  void   (*log)(void *user, int32_t level, const char *text);        /* one line, no newline at its end */
  /* Run task(arg, i) for every i in [0, n), in any order, on any threads, and return when all are done. A task that has begun may
   * wait, blocking its thread, for others that have begun too, never for one that has not. NULL: threads of the context's own do
   * it, or with parallelism 1 the calling one. Results are bitwise the same however it is done. */
  void   (*parallel_for)(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg);
  void    *user;                                                     /* handed to every hook */
  int64_t  parallelism;  /* how many tasks run at the same time, the calling thread's among them; 0 = 1. With parallel_for a hint for
                          * the size of waves; without it the context starts parallelism - 1 threads, at most 255 */
} twh_context_desc;

typedef struct twh_context twh_context;

/* Create a context.
 * desc: the hooks; NULL = defaults (aligned malloc, no log, one thread). The hooks and desc->user must outlive the context,
 *   and the context everything created with it. Every function that takes a context also takes NULL: the defaults.
 * out: receives the context; the caller destroys it. NULL on failure.
 * Returns: TWH_OK; TWH_E_ARGUMENT (out NULL, only one of allocate and release, parallelism < 0); TWH_E_VERSION; TWH_E_MEMORY (also where
 *   the system starts no thread).
 * Threads: any; hooks may be called from every thread that uses the context. Since 0.1. */
TWH_API TWH_MUST_USE twh_status twh_context_create(const twh_context_desc *desc, twh_context **out, twh_error *error);

/* Destroy a context; NULL is allowed. Everything created with it must have been destroyed. Since 0.1. */
TWH_API void twh_context_destroy(twh_context *context);

/* ---- the oracle contract ------------------------------------------------------------------------------------------- */

/* What masks one call of the kernel can apply: a SET. A kernel whose causal mask is built in and cannot be switched off
 * declares TWH_MASK_CAUSAL alone. */
enum {
  TWH_MASK_NONE   = 1, /* every query of a slot sees every key of it */
  TWH_MASK_CAUSAL = 2, /* row i sees the keys j <= i + causal_offset */
  TWH_MASK_TENSOR = 4  /* row i sees what the mask operand says */
};

enum {
  TWH_ORACLE_LSE               = 1 << 0, /* writes the log-sum-exp of each row, always f32, natural logarithm */
  TWH_ORACLE_LSE_BASE2         = 1 << 1, /* with LSE: log2 of the sum of e^logit instead */
  TWH_ORACLE_EMPTY_LSE_POS_INF = 1 << 2, /* with LSE: a row that sees no key gets +inf instead of -inf */
  TWH_ORACLE_STRIDED           = 1 << 3, /* obeys the strides in each call, a slot stride of 0 too; else declared ones come */
  TWH_ORACLE_FEWER_ROWS        = 1 << 4, /* a call may have fewer query rows than q_len */
  TWH_ORACLE_FEWER_KEYS        = 1 << 5, /* a call may have fewer keys than k_len ("any up to k_len") */
  TWH_ORACLE_FEWER_SLOTS       = 1 << 6, /* a call may have fewer slots */
  TWH_ORACLE_SCALE_PER_CALL    = 1 << 7, /* obeys twh_call.scale; desc.scale is not used */
  TWH_ORACLE_F16_SCORES        = 1 << 8, /* rounds its scores (capped) to f16; the host then does the same to its own */
  TWH_ORACLE_BACKWARDS         = 1 << 9, /* with STRIDED: row strides of q, k and v may be negative too */
  TWH_ORACLE_CONTINUES         = 1 << 10 /* with LSE: a call may go on from what stands in out and lse (TWH_CALL_CONTINUES) */
};

/* The results of earlier calls stand in out and lse, and this one adds its keys to theirs: afterwards both are what one call with
 * all of the keys would have written. A row with an empty sum so far (its lse is that of a row that sees no key) counts for nothing.
 * Only with TWH_ORACLE_CONTINUES. The rows are all or some of those of the first of these calls, with the same q; all of them come in
 * one batch, one behind the other, and are computed in this order. With TWH_ORACLE_BACKWARDS out and lse may run the other way:
 * then out_row_stride is negative and lse_row_stride -1. */
enum { TWH_CALL_CONTINUES = 1 };

/* One operand of a call, (slots, rows, dim): element (s, r, c) is data[s*slot_stride + r*row_stride + c]. Frozen: stands in
 * structs by value and never changes. */
typedef struct twh_operand {
  const void *data;
  int64_t     slot_stride, row_stride;
  uint64_t    id; /* with equal twh_call.execute equal ids mean equal bytes, so that a device can keep what it has; 0: unknown */
} twh_operand;

/* One call: `slots` independent attentions. For every slot s, row i < q_len and value column c < v_dim
 *     z_j          = cap(scale <q[s][i], k[s][j]>) + bias           (bias: from an additive mask operand)
 *     out[s][i][c] = sum over visible keys j of w_j v[s][j][c],     w = softmax of z over the visible keys
 *     lse[s][i]    = log of the sum of e^z over the visible keys    (only with TWH_ORACLE_LSE)
 * with the descriptor's qk_dim, v_dim, scale and softcap. Filled by the library and handed over as a pointer, so that it can
 * grow. Fields that the descriptor's flags do not ask for hold what the descriptor says. */
typedef struct twh_call {
  uint32_t    struct_size;
  uint32_t    mask_mode;        /* exactly one of the descriptor's mask_modes */
  int64_t     index;            /* number of the call in this execute, for messages */
  int64_t     slots, q_len, k_len;
  twh_operand q, k, v;          /* (slots, q_len, qk_dim), (slots, k_len, qk_dim), (slots, k_len, v_dim) */
  twh_operand mask;             /* TWH_MASK_TENSOR: (slots, q_len, k_len) of mask_dtype, dense; else data is NULL */
  double      scale;
  void       *out;              /* (slots, q_len, v_dim) of out_dtype; (s, i, c) at s*out_slot_stride + i*out_row_stride + c */
  int64_t     out_slot_stride, out_row_stride;
  float      *lse;              /* (slots, q_len), (s, i) at s*lse_slot_stride + i*lse_row_stride; NULL without TWH_ORACLE_LSE */
  int64_t     lse_slot_stride;
  uint64_t    execute;          /* number of the execute, never twice for one oracle: ids of two executes have nothing in common */
  uint64_t    flags;            /* TWH_CALL_* */
  int64_t     lse_row_stride;   /* 1; -1 only with TWH_CALL_CONTINUES */
} twh_call;

/* The kernel's description: the contract between the host and the library.
 *
 * What the library guarantees in every call: mask_mode is one of mask_modes; slots, q_len and k_len are the declared ones,
 * or fewer (at least 1, at least the declared minimum, a multiple of the declared step) only where a FEWER_ flag allows it;
 * strides are the declared ones unless TWH_ORACLE_STRIDED; all operands are readable for exactly the stated shapes and data,
 * out and lse are aligned to `alignment`; every element of q, k and v is initialised, and finite if the host's are within the
 * dtype's range. A call with TWH_MASK_NONE or TWH_MASK_CAUSAL never relies on a row that sees no key.
 * What the kernel must do: write every element of out (and lse) for all slots and rows of the stated shapes, and read or
 * write nothing outside them; give the same bits for the same inputs whatever else is in the batch (only then are
 * results bitwise repeatable); keep a weight that underflows at zero, not NaN. A row whose keys are all masked by the mask
 * operand may hold anything in out. A wrong answer cannot always be detected: twh_oracle_check finds the usual ones.
 * Failure: return non-zero; the code reaches the caller of twh_plan_execute untouched, and the kernel is not called
 * again in that execute (other batches that were already running are waited for).
 * Threads: `run` may be called from any thread that executes a plan or that parallel_for uses; never by more than
 * max_concurrent_batches threads at once, over all plans and executes that share the oracle.
 * Lifetime: calls and everything they point to live until `run` (or `wait`) returns. `user` must live until `release` is
 * called. The kernel must not call back into the library with the same oracle. */
typedef struct twh_oracle_desc {
  uint32_t struct_size;
  uint32_t flags;                   /* TWH_ORACLE_* */
  int64_t  slots, q_len, k_len;     /* >= 1 */
  int64_t  qk_dim, v_dim;           /* >= 1; more than the problem's are spare and save calls (docs/oracle-contract.md) */
  int32_t  dtype;                   /* of q, k, v: TWH_F32, TWH_F16, TWH_BF16 */
  int32_t  out_dtype;               /* of out; 0 = dtype */
  int32_t  mask_dtype;              /* of the mask operand: TWH_BOOL, or a float type that is added to the score; 0 = dtype */
  uint32_t mask_modes;              /* a set of TWH_MASK_* */
  int64_t  causal_offset;           /* TWH_MASK_CAUSAL: row i sees j <= i + causal_offset; the library uses offsets <= 0 */
  double   scale;                   /* what the kernel multiplies <q, k> with; finite, not 0 (unless SCALE_PER_CALL) */
  double   softcap;                 /* the kernel caps scores at c tanh(x / c); 0 = it does not */
  double   mask_value;              /* additive mask: the value that hides a key; 0 = -inf */
  int64_t  q_slot_stride, k_slot_stride, v_slot_stride, out_slot_stride;  /* elements; 0 = dense [slots][len][dim] */
  int64_t  q_row_stride, k_row_stride, v_row_stride, out_row_stride;      /* 0 = dense */
  int64_t  q_len_min, q_len_step;   /* FEWER_ROWS: smallest number of rows and its granularity; 0 = 1 */
  int64_t  k_len_min, k_len_step;   /* FEWER_KEYS: the same for keys */
  int64_t  alignment;               /* bytes, a power of two, of every pointer in a call; 0 = 64 */
  int64_t  max_calls_per_batch;     /* 0 = no limit */
  int64_t  max_concurrent_batches;  /* 0 = 1: not thread-safe */
  double   cost_per_call;           /* in any unit, seconds where a time is to be estimated; 0 = 1 */
  double   cost_per_batch;          /* what a batch costs besides */
  /* Compute n >= 1 calls. Either `run`, or both `submit` and `wait`, or all three. */
  int32_t (*run)(void *user, const twh_call *const *calls, int64_t n);
  /* Start n calls and return a ticket; wait returns when the ticket's calls are done. A ticket is waited for exactly once.
   * A submit that fails (non-zero) has started nothing and gives no ticket. */
  int32_t (*submit)(void *user, const twh_call *const *calls, int64_t n, uint64_t *ticket);
  int32_t (*wait)(void *user, uint64_t ticket);
  void    (*release)(void *user);   /* called once, by twh_oracle_destroy; may be NULL */
  void     *user;
} twh_oracle_desc;

typedef struct twh_oracle twh_oracle;

/* Register a kernel.
 * context: NULL = defaults; must outlive the oracle. desc: copied. out: receives the oracle; the caller destroys it, after
 * every plan made with it. On failure *out is NULL and desc->release has NOT been called: the caller still owns desc->user.
 * Returns: TWH_OK; TWH_E_ARGUMENT (the message names the field); TWH_E_OVERFLOW; TWH_E_VERSION; TWH_E_MEMORY.
 * Threads: any. Since 0.1. Source: Definition 2.2 (what an oracle is). */
TWH_API TWH_MUST_USE twh_status twh_oracle_create(const twh_context *context, const twh_oracle_desc *desc, twh_oracle **out,
                                                  twh_error *error);

/* Destroy an oracle; NULL is allowed. Calls desc.release. Since 0.1. */
TWH_API void twh_oracle_destroy(twh_oracle *oracle);

/* What was registered, with defaults filled in. out->struct_size must be set.
 * Returns: TWH_OK; TWH_E_ARGUMENT (NULL, struct_size). Threads: any. Since 0.1. */
TWH_API twh_status twh_oracle_get_desc(const twh_oracle *oracle, twh_oracle_desc *out, twh_error *error);

/* A kernel in a shared object. The object exports the function named TWH_PLUGIN_ENTRY with this type; it stores a pointer to
 * its descriptor, which must stay valid until the call to twh_oracle_load returns, and returns 0, or non-zero to refuse
 * (TWH_E_ORACLE, its code reaches the caller). If registering fails afterwards, desc->release is called. options: the string
 * given to twh_oracle_load, never NULL. */
typedef int32_t twh_plugin_entry(const char *options, const twh_oracle_desc **desc);
#define TWH_PLUGIN_ENTRY "twh_plugin_oracle"

/* Load a kernel from a shared object and register it.
 * path: as dlopen takes it. options: handed to the plugin; NULL = "". The object is unloaded when the oracle is destroyed.
 * Returns: as twh_oracle_create; TWH_E_PLUGIN (cannot be loaded, has no entry point; the message says why); TWH_E_ORACLE
 * (the entry point refused); TWH_E_UNSUPPORTED (built without dlopen). Threads: any. Since 0.1. */
TWH_API TWH_MUST_USE twh_status twh_oracle_load(const twh_context *context, const char *path, const char *options,
                                                twh_oracle **out, twh_error *error);

enum { TWH_CHECK_HOLDS = 0, TWH_CHECK_UNTRUE = 1, TWH_CHECK_SKIPPED = 2 };

/* Run a kernel against its own description: shapes and margins, softmax, scale and softcap, precision, masks at every
 * position, the causal offset, lse and its base, empty rows, determinism, independence from the batch.
 * report: called for each promise with its name, a verdict and one line of detail (measured figures); may be NULL.
 * untrue: receives the number of promises that do not hold; may be NULL. An untrue promise is a result, not an error.
 * Returns: TWH_OK (all promises were tested); TWH_E_ORACLE (the kernel failed); TWH_E_MEMORY; TWH_E_ARGUMENT.
 * Threads: any, within the kernel's own limit. Since 0.1. */
TWH_API twh_status twh_oracle_check(const twh_context *context, const twh_oracle *oracle,
                                    void (*report)(void *user, const char *promise, int32_t verdict, const char *detail),
                                    void *user, int64_t *untrue, twh_error *error);

/* ---- small transformers as kernels --------------------------------------------------------------------------------- */

/* The weights of a small transformer: (layers * heads) matrices each, head h of layer l at number l * heads + h, dense, in the
 * kernel's dtype, all of them 0 or 1. The same bytes for every call of an oracle: their number does not depend on how long
 * the sequences are. Filled by the library; valid from load until release. */
typedef struct twh_transformer_weights {
  uint32_t    struct_size;
  uint32_t    flags;            /* 0 */
  twh_operand wq, wk, wv, wo;   /* (model_dim, qk_dim), (model_dim, qk_dim), (model_dim, v_dim), (v_dim, model_dim) */
} twh_transformer_weights;

/* One call: x (length, model_dim) through all layers of a small transformer with a residual stream. For each layer
 *     x = x + sum over its heads h of  softmax(scale (x wq_h) (x wk_h)^T) (x wv_h) wo_h
 * with row i seeing the rows j <= i where mask_mode is TWH_MASK_CAUSAL, and nothing else between: no norm, no bias, no MLP. */
typedef struct twh_transformer_call {
  uint32_t    struct_size;
  uint32_t    mask_mode;        /* exactly one of the descriptor's mask_modes, for all layers and heads */
  int64_t     index;            /* as in twh_call */
  const twh_transformer_weights *weights;
  const void *x;                /* (length, model_dim), dense, of dtype */
  void       *out;              /* (length, model_dim), dense, of dtype: x after the last layer; does not overlap x */
} twh_transformer_call;

/* A small transformer of fixed length, as the host's kernel runs it. The kernel must give finite results for finite input, the
 * same bits for the same input, and project exactly when the weights are 0 and 1 (sums of one number and zeros); otherwise
 * what twh_oracle_desc asks of a kernel holds. */
typedef struct twh_transformer_oracle_desc {
  uint32_t struct_size;
  uint32_t flags;                   /* 0 */
  int64_t  layers, heads;           /* >= 1 */
  int64_t  length, model_dim;       /* >= 1; model_dim at least layers * heads * 2 (qk_dim + v_dim) */
  int64_t  qk_dim, v_dim;           /* of each head, >= 1; more than the problem's are spare and save calls, as in twh_oracle_desc */
  int32_t  dtype;                   /* of x, out and the weights: TWH_F32, TWH_F16, TWH_BF16 */
  uint32_t mask_modes;              /* a set of TWH_MASK_NONE and TWH_MASK_CAUSAL */
  double   scale;                   /* of the scores; finite, not 0 */
  int64_t  alignment;               /* bytes, a power of two, of x, out and the weights; 0 = 64 */
  int64_t  max_calls_per_batch;     /* as in twh_oracle_desc, all four */
  int64_t  max_concurrent_batches;
  double   cost_per_call, cost_per_batch;
  /* Called once, before any run, by the thread that makes the oracle: the time to send the weights to a device or to compile them
   * in. Non-zero = refuse. May be NULL: every call carries the weights. */
  int32_t (*load)(void *user, const twh_transformer_weights *weights);
  int32_t (*run)(void *user, const twh_transformer_call *const *calls, int64_t n); /* compute n >= 1 calls */
  void    (*release)(void *user);   /* called once, by twh_oracle_destroy; may be NULL */
  void     *user;
} twh_transformer_oracle_desc;

/* Make an oracle of a small transformer: layers * heads slots of length x length, without lse. Each slot owns 2 (qk_dim + v_dim)
 * columns of x: for its queries, keys, values, and its output, which are zero before. The weights of head (l, h) select the
 * columns of slot l * heads + h and add its output to the columns it owns; the residual stream carries the others past. So one
 * call computes layers * heads independent attentions. A slot whose data or result is not finite would reach the others'
 * columns as 0 * inf: such slots are left zero and computed by this library instead, in float64.
 * context: NULL = defaults; must outlive the oracle. desc: copied. out: receives the oracle; the caller destroys it, after every
 *   plan made with it. On failure *out is NULL and desc->release has NOT been called.
 * Memory: the weights, 2 layers * heads (qk_dim + v_dim) model_dim elements, and x and out for each call that runs at the same
 *   time, allocated through the context when first needed and kept.
 * Returns: TWH_OK; TWH_E_ARGUMENT (the message names the field; for model_dim it says how large it must be); TWH_E_OVERFLOW;
 *   TWH_E_VERSION; TWH_E_MEMORY; TWH_E_ORACLE (load refused; its code is in the error).
 * Threads: any. Since 0.1. Source: Theorem 3.4 with Lemma 3.3. */
TWH_API TWH_MUST_USE twh_status twh_oracle_from_transformer(const twh_context *context,
                                                            const twh_transformer_oracle_desc *desc, twh_oracle **out,
                                                            twh_error *error);

/* ---- the problem --------------------------------------------------------------------------------------------------- */

enum { TWH_CAUSAL = 1 << 0, TWH_LEFT = 1 << 1, TWH_RIGHT = 1 << 2 };

/* Which keys a query sees. With p = i + q_offset the absolute position of query i and j that of a key (its index + k_offset),
 *     (not CAUSAL or j <= p)  and  (j < sink_tokens  or  ((not LEFT or j >= p - left) and (not RIGHT or j <= p + right)))
 * All zero = every key. left and right are the numbers of keys before and after the query's own position, >= 0, and used
 * only with their flag. sink_tokens >= 0. The paper's window of size r is CAUSAL | LEFT with left = r - 1.
 * Source: Definitions 2.4 and 2.5; ONNX Attention (opset 25) has the same semantics without sinks. */
typedef struct twh_pattern {
  uint32_t struct_size;
  uint32_t flags;
  int64_t  left, right, sink_tokens;
} twh_pattern;

/* One sequence of a batch: rows q_begin .. q_begin + q_len - 1 of q and out, rows k_begin .. of k and v; the absolute position
 * of query i is i + q_offset, of key j it is j + k_offset (>= 0). Ragged batches, prompt chunks, decode steps and shards are
 * all sequences. Frozen: it stands in arrays. */
typedef struct twh_sequence {
  int64_t q_begin, q_len, k_begin, k_len, q_offset, k_offset;
} twh_sequence;

enum {
  TWH_PROBLEM_SCALE    = 1 << 0, /* `scale` is given; without it the scale is 1 / sqrt(qk_dim) */
  TWH_PROBLEM_KEY_BIAS = 1 << 1, /* tensors.key_bias is added to the scores of each key */
  TWH_PROBLEM_ALIBI    = 1 << 2  /* tensors.alibi_slopes: head h adds slope_h (j - p) to the score of query p and key j */
};

/* Attention to be computed. Query head h reads key/value head h / (q_heads / kv_heads).
 *     logit = cap(scale <q, k>) + mask + bias,  cap(x) = c tanh(x / c) with c = softcap, or x without
 *     L = ln( sum over visible keys of e^logit  [+ e^(sink logit of the head)] ),  out = sum of e^(logit - L) v,  lse = L
 * A query that sees no key and has no sink logit gets out = 0 and lse = -inf. */
typedef struct twh_problem {
  uint32_t struct_size;
  uint32_t flags;                  /* TWH_PROBLEM_* */
  int64_t  batch;                  /* number of sequences, >= 0 */
  int64_t  q_heads, kv_heads;      /* >= 1; q_heads a multiple of kv_heads */
  int64_t  q_len, k_len, q_offset; /* of equal sequences (sequences NULL): sequence b is batch entry b of the tensors */
  int64_t  qk_dim, v_dim;          /* >= 1 */
  double   scale, softcap;         /* softcap >= 0; needs a kernel with the same one, and excludes biases */
  const twh_pattern  *pattern;     /* NULL = every key */
  const twh_sequence *sequences;   /* NULL, or `batch` of them, copied: then tensors have batch 1 and hold all rows */
  int32_t  mask_dtype;             /* 0: no mask tensor; TWH_BOOL or a float type: one is given at execute */
  int32_t  reserved;               /* 0 */
} twh_problem;

/* ---- plan ---------------------------------------------------------------------------------------------------------- */

/* TWH_PLAN_MEASURE: time a few calls of each kernel and use that as its cost, in seconds, in place of cost_per_call and
 * cost_per_batch. The plan then depends on the machine and the moment. */
enum { TWH_PLAN_MEASURE = 1 << 0 };

/* How much of the pattern is computed.
 * EXACT: all of it.
 * SAMPLED: in each block of query rows of a head those keys that not all its rows see, exactly; from the others `samples` blocks of
 *   keys are drawn, and count for all of them. O(N / k_len) calls for any length. Windows are not sampled: they take no more.
 * HYBRID: the same, but the keys near a row's own position and the first ones are exact too.
 * Drawn keys are the same for the same seed on every machine, whatever the threads; each is as likely as any other. A sum of
 * exponentials and a sum of weighted values are then estimated without bias; their ratio, which is out, and the logarithm,
 * which is lse, are not unbiased. Nothing guards against one dominant key that is not drawn. See docs/theory.md. */
enum { TWH_METHOD_EXACT = 0, TWH_METHOD_SAMPLED = 1, TWH_METHOD_HYBRID = 2 };

/* How the errors of sampled rows are estimated, for tensors.error and target_error. An opaque kernel tells nothing of it by itself.
 * REPLICATES: from how much the samples of a block of rows differ: `samples` at least 2, and no more calls than without. Two samples
 *   are enough where a row has many value columns.
 * DOUBLED: from the spread of the drawn keys themselves. Each block of them is computed once more with doubled queries, since
 *   e^(2s) is (e^s)^2, and with v_dim + 1 value columns: at least as many calls again as the samples take, twice as many on a
 *   kernel without spare value columns (plan info: estimate_calls). One sample is enough. Not under a softcap; one kernel does all;
 *   doubled queries must lie within the kernel's range.
 * Both: strata 1. They are right about as often as they say for keys whose weights are of a size; a key that outweighs the others
 * and was not drawn is in no estimate. */
enum { TWH_ESTIMATE_NONE = 0, TWH_ESTIMATE_REPLICATES = 1, TWH_ESTIMATE_DOUBLED = 2 };

typedef struct twh_plan_options {
  uint32_t struct_size;
  uint32_t flags;                  /* TWH_PLAN_* */
  int64_t  workspace_limit;        /* bytes that encoded key blocks may take; 0 = 64 MiB. More memory, less encoding. */
  int64_t  max_calls_per_batch;    /* lowers the kernel's own limit; 0 = the kernel's */
  int32_t  method;                 /* TWH_METHOD_*; the fields below are 0 with EXACT */
  int32_t  estimate;               /* TWH_ESTIMATE_* */
  uint64_t seed;                   /* of the draws */
  int64_t  samples;                /* blocks of drawn keys for each block of query rows; 0 = as many as strata */
  int64_t  strata;                 /* parts of equal length, from each of which samples / strata blocks are drawn; 0 = 1 */
  int64_t  exact_sinks;            /* HYBRID: so many first keys are exact, in whole blocks of k_len; 0 = 1 */
  int64_t  exact_window;           /* HYBRID: and so many keys to either side of each row, in whole blocks */
  double   target_error;           /* with an estimate: blocks of rows with one whose estimated |out - R|_2 / |out|_2 is larger are
                                    * computed exactly, in at most two more rounds; 0 = none */
  double   bound_c, bound_d;       /* what is known of the data, for twh_plan_info.error_bound: but for a factor that a row's keys
                                    * share, every e^logit lies in 1/bound_c .. bound_c (>= 1), and no value row is longer than
                                    * bound_d |R|_2 (>= 1) for any result R, and there are no sink logits. Checked on a few pairs
                                    * (twh_run_stats). 0 = nothing */
} twh_plan_options;

typedef struct twh_plan twh_plan;

/* Plan a problem on a kernel: validates everything and chooses how to lower it; computes no attention.
 * oracles: n_oracles >= 1 kernels, which must outlive the plan. For each sequence the cheapest that can do it makes the grid,
 *   and others of the same dtype and scale may compute single tiles of it where that is cheaper.
 * options: NULL = defaults. out: receives the plan; the caller destroys it; NULL on failure. No tensor is needed: a plan is
 *   immutable, printable, and may be executed any number of times, by many threads at once.
 * Memory and time: O(batch), whatever the lengths (time O(batch + length / k_len), narrow windows O(batch + length / width)).
 * Returns: TWH_OK; TWH_E_ARGUMENT (names the field); TWH_E_OVERFLOW; TWH_E_VERSION; TWH_E_UNSUPPORTED (says what the kernel
 *   lacks); TWH_E_MEMORY.
 * Threads: any. Since 0.1. Source: Theorems 3.4, 3.5, 4.1, 4.2, 5.1; docs/theory.md. */
TWH_API TWH_MUST_USE twh_status twh_plan_create(const twh_context *context, const twh_problem *problem,
                                                twh_oracle *const *oracles, int64_t n_oracles,
                                                const twh_plan_options *options, twh_plan **out, twh_error *error);

/* Destroy a plan; NULL is allowed. No execute may be running. Since 0.1. */
TWH_API void twh_plan_destroy(twh_plan *plan);

typedef struct twh_plan_info {
  uint32_t struct_size;
  uint32_t flags;                 /* 0 */
  int64_t  calls;                 /* planned calls of the kernel; repairs come on top, tiles that a mask tensor hides are left out */
  int64_t  repair_calls_max;      /* at most that many repair calls, data decide how many */
  int64_t  rounds, rounds_max;    /* levels of dependent calls: without and with repairs */
  int64_t  tiles;                 /* attentions placed into slots or computed by the host */
  int64_t  full_tiles, lower_tiles, upper_tiles, band_tiles; /* by the shape of what their rows see */
  int64_t  short_tiles;           /* tiles with fewer keys than the kernel's length */
  int64_t  lower_bound_calls;     /* visible pairs, host tiles' apart / (slots x the pairs one slot can hold), rounded up; where
                                   * keys are drawn, of the pairs that are computed */
  int64_t  host_pairs;            /* query-key pairs that the host scores, to read the kernel's results and in its own tiles */
  int64_t  oracle;                /* index of the kernel that makes most of the calls */
  int64_t  workspace_bytes, workspace_alignment;
  double   visible_pairs;         /* over all heads, drawn or not */
  double   oracle_flops;          /* 2 q_len k_len (qk_dim + v_dim) for every slot of every planned call */
  double   host_flops;            /* reading and merging */
  double   utilisation;           /* the same pairs / those that the planned calls have room for, 0 to 1 */
  double   cost;                  /* calls x cost_per_call + batches x cost_per_batch, over all kernels */
  int64_t  host_tiles;            /* tiles that the host computes itself: no call; their pairs are in host_pairs */
  int64_t  slots_used;            /* of all planned calls; fewer than tiles where several share one */
  int64_t  drawn_tiles;           /* tiles of drawn keys */
  int64_t  sampled_keys;          /* keys that are drawn, over all units */
  int64_t  estimate_calls;        /* of `calls` those that only serve an estimate of errors */
  int64_t  exact_calls_max;       /* with target_error: at most that many calls come on top, repairs included */
  double   error_bound;           /* with bound_c and bound_d: |out - R|_2 / |R|_2 of a row exceeds it in at most 5 of 100 cases; else 0 */
} twh_plan_info;

/* The plan in figures. out->struct_size must be set. Returns: TWH_OK; TWH_E_ARGUMENT. Threads: any. Since 0.1. */
TWH_API twh_status twh_plan_get_info(const twh_plan *plan, twh_plan_info *out, twh_error *error);

/* The plan as text, some twenty lines, ending in a newline. Its advice lines take a few more counts of the whole problem.
 * buffer: receives at most `bytes` - 1 characters and a zero; may be NULL with bytes 0. needed: receives the bytes that the
 * whole text takes with its zero; may be NULL. Returns: TWH_OK, also when the text was cut; TWH_E_ARGUMENT. Since 0.1. */
TWH_API twh_status twh_plan_describe(const twh_plan *plan, char *buffer, size_t bytes, size_t *needed, twh_error *error);

/* FULL: every row sees all keys of the tile. LOWER: from the first key up to an end that does not fall from row to row; UPPER:
 * from a beginning that does not fall up to the last key; BAND: from such a beginning to such an end. */
enum { TWH_SHAPE_FULL = 0, TWH_SHAPE_LOWER = 1, TWH_SHAPE_UPPER = 2, TWH_SHAPE_BAND = 3 };

/* What else a tile is. DRAWN: its keys do not lie side by side; twh_tile_drawn_key tells them, and k_begin and twh_tile_keys count in
 * the order in which they were drawn. */
enum {
  TWH_TILE_DRAWN   = 1 << 0,
  TWH_TILE_DOUBLED = 1 << 1  /* of doubled queries, for an estimate: no part of the result; DRAWN is set too */
};

/* One tile of a plan: which rows meet which keys in which slot of which call. */
typedef struct twh_tile_info {
  uint32_t struct_size;
  uint32_t mask_mode;              /* TWH_MASK_* of the call; 0: the host computes the tile, call and slot are -1 */
  int64_t  call, slot;             /* index of its first call; `calls` consecutive calls carry its parts */
  int64_t  calls;                  /* value slices, and a bucket call where the kernel gives no other way to read a sum */
  int64_t  oracle;                 /* index of the kernel */
  int64_t  sequence, q_head;       /* first query head of the tile */
  int64_t  q_begin, q_len;         /* rows within the sequence; rows past its q_len go on in the next head (stacked heads) */
  int64_t  k_begin, k_len;         /* keys within the sequence */
  int64_t  sink_begin, sink_len;   /* keys within the sequence that every row of the tile sees besides */
  int64_t  q_at, k_at;             /* slot positions of the row that is placed first and of the key that is placed first */
  int32_t  shape;                  /* TWH_SHAPE_* */
  int32_t  reversed;               /* 1: the keys stand in reverse order in the slot */
  int64_t  visible[10];            /* which keys each row sees, for twh_tile_keys */
  uint32_t flags;                  /* TWH_TILE_* */
  int32_t  reserved;
  double   log_weight;             /* DRAWN: ln of how many keys each of them stands for */
  int64_t  drawn[8];               /* for twh_tile_drawn_key */
} twh_tile_info;

/* The keys of the tile that row q_begin + t sees, sinks apart: *k_begin .. *k_begin + *k_len - 1 within the sequence. t is in
 * 0 .. tile->q_len - 1. Threads: any. Since 0.1. */
TWH_API TWH_NONNULL(1, 3, 4) void twh_tile_keys(const twh_tile_info *tile, int64_t t, int64_t *k_begin, int64_t *k_len);

/* The key within the sequence that is number k_begin + t of a tile with TWH_TILE_DRAWN. t is in 0 .. tile->k_len - 1. Threads:
 * any. Since 0.1. */
TWH_API TWH_NONNULL(1) int64_t twh_tile_drawn_key(const twh_tile_info *tile, int64_t t);

/* Visit the tiles in the order in which they are placed, made one at a time: no memory grows with their number.
 * visit: returns 0 to go on; any other value stops the visit. Returns: TWH_OK, also when stopped; TWH_E_ARGUMENT. Since 0.1. */
TWH_API twh_status twh_plan_visit(const twh_plan *plan, int32_t (*visit)(void *user, const twh_tile_info *tile), void *user,
                                  twh_error *error);

/* ---- execute ------------------------------------------------------------------------------------------------------- */

/* The tensors of one execute; pointers are not kept. Shapes with B = batch (1 when the problem has a list of sequences):
 *   q (B, q_heads, rows, qk_dim)   k (B, kv_heads, keys, qk_dim)   v (B, kv_heads, keys, v_dim)   out (B, q_heads, rows, v_dim)
 *   lse (B, q_heads, rows), F32 or F64; may be NULL
 *   mask (B, q_heads, rows, keys), with the problem's mask_dtype, broadcast by strides of 0; only if the problem declares one
 *   sink_logits (q_heads), at data[h * head_stride]; may be NULL; -inf = none for that head
 *   key_bias (B, q_heads, keys, 1), finite, broadcast by strides of 0, and alibi_slopes (q_heads), finite, at data[h * head_stride]:
 *     each only if the problem declares it
 *   error (B, q_heads, rows), F32 or F64, only with options.estimate: a bound that |out - R|_2 of the row keeps in about 95 of 100
 *     cases, R the exact result; 0 where no key was drawn, INFINITY where one drawn sample or key outweighs all others so far
 *     that nothing can be said; may be NULL
 * out, lse and error must not overlap any input. Rows and keys outside all sequences are neither read nor written. */
typedef struct twh_tensors {
  uint32_t struct_size;
  uint32_t flags;                  /* 0 */
  const twh_tensor *q, *k, *v, *out, *lse, *mask, *sink_logits, *key_bias, *alibi_slopes, *error;
} twh_tensors;

/* Whether drawn keys may stand for the others. */
enum { TWH_ASSUMPTION_UNCHECKED = 0, TWH_ASSUMPTION_HOLDS = 1, TWH_ASSUMPTION_BROKEN = 2 };

/* What an execute did. Filled also when it fails.
 * Where keys were drawn and it succeeded, the last fields tell what a few pairs have shown, eight rows with 32 drawn keys of each of up
 * to 64 blocks of rows, which the host scores: whether the sampling assumption holds, that no key weighs much more than the others.
 * It is broken where pairs exceed the plan's bound_c or bound_d; or where sums of exponentials are off by more than 30% as a
 * rule, if logits spread about a row's mean as normal numbers do. No such check sees a dominant key that is not among its pairs. */
typedef struct twh_run_stats {
  uint32_t struct_size;
  uint32_t flags;                  /* 0 */
  int64_t  calls, batches;         /* calls include repair_calls */
  int64_t  repair_calls;           /* extra calls for tiles with rows that could not be read from the first */
  int64_t  repaired_rows;          /* rows of tiles that they replaced */
  int64_t  host_rows;              /* rows of tiles that the host computed itself, in float64 */
  int64_t  encoded_blocks;         /* key and value blocks that were encoded; fewer where the host's memory is used as it is */
  double   wall_s;                 /* of the whole execute */
  double   oracle_s;               /* during which kernel calls were running */
  int64_t  exact_rows;             /* target_error: rows that were computed exactly in further rounds */
  int32_t  assumption;             /* TWH_ASSUMPTION_* */
  int32_t  reserved;               /* 0 */
  int64_t  samples_needed;         /* samples for each block of rows with which it would hold, also where it does; 0: not checked */
  double   logit_std, measured_c, measured_d; /* of the checked pairs: the largest standard deviation in a block's rows; e^(half the
                                               * widest range of a row's logits); the longest value row / the shortest row of out */
  char     words[232];             /* BROKEN: what was found, one line of English; else empty */
} twh_run_stats;

/* BATCH: calls of the kernel, from when they were handed over until they were done. The others are the host's work on a wave, that
 * is on the batches that go together: ENCODE with the placing of their tiles, DECODE with repairs, MERGE. */
enum { TWH_TRACE_BATCH = 1, TWH_TRACE_ENCODE = 2, TWH_TRACE_DECODE = 3, TWH_TRACE_MERGE = 4 };

/* Something that an execute has done. Filled by the library, valid during the callback. */
typedef struct twh_trace_event {
  uint32_t    struct_size;
  int32_t     kind;                /* TWH_TRACE_* */
  double      begin_s, end_s;      /* since the execute began */
  int64_t     wave;                /* from 1 on */
  int64_t     batch, oracle;       /* BATCH: its number, from 0 on, and the index of the kernel; else -1 */
  int64_t     first_call, calls;   /* BATCH; else -1 and 0 */
  int64_t     tiles;               /* BATCH: over all its calls, those that carry parts of one tile each count it */
  const void *inside;              /* for twh_trace_tile */
} twh_trace_event;

/* Tile i of 0 .. event->tiles - 1 of a TWH_TRACE_BATCH; tile->call is the call that carries it. out->struct_size must be set.
 * Returns: TWH_OK; TWH_E_ARGUMENT. Threads: the callback's, before it returns. Since 0.1. */
TWH_API twh_status twh_trace_tile(const twh_trace_event *event, int64_t i, twh_tile_info *out, twh_error *error);

/* TWH_RUN_CHECKED: a NaN in anything that the kernel returned is an error, TWH_E_RESULT. Without it, a sum that cannot be
 * read is repaired or computed by the host, and a NaN in an output reaches that row of out. */
enum { TWH_RUN_CHECKED = 1 << 0 };

typedef struct twh_run_options {
  uint32_t struct_size;
  uint32_t flags;                  /* TWH_RUN_* */
  void    *workspace;              /* aligned to workspace_alignment; NULL: allocated through the context, and released */
  size_t   workspace_bytes;        /* at least the plan's; execute then allocates nothing */
  /* After each batch, never by two threads at once: calls done, and planned in all. Non-zero = stop: no further batch begins, those
   * that are running are waited for. May be NULL. */
  int32_t (*progress)(void *user, int64_t done, int64_t planned);
  void    *user;                   /* handed to progress and trace */
  twh_run_stats *stats;            /* may be NULL; its struct_size must be set */
  void   (*trace)(void *user, const twh_trace_event *event); /* what happened when; never by two threads at once; may be NULL */
} twh_run_options;

/* Compute the plan's attention: out and lse as twh_problem defines them.
 * options: NULL = defaults. The workspace is the caller's until execute returns; its content does not matter.
 * Returns: TWH_OK; TWH_E_ARGUMENT (names the tensor or field); TWH_E_VERSION; TWH_E_OVERFLOW; TWH_E_MEMORY; TWH_E_ORACLE (the
 *   kernel's code and the call are in error); TWH_E_CANCELLED; TWH_E_RESULT. On failure out and lse hold unspecified values.
 * Results are bitwise the same for a fixed plan whatever the threads, the size of batches and the workspace.
 * Threads: many may execute one plan at once, each with its own out, lse, workspace and stats. Since 0.1. */
TWH_API twh_status twh_plan_execute(const twh_plan *plan, const twh_tensors *tensors, const twh_run_options *options,
                                    twh_error *error);

/* ---- large transformers -------------------------------------------------------------------------------------------- */

/* A matrix of the host's, row by row: element (r, c) is data[r * row_stride + c]. A vector is a matrix of one row. */
typedef struct twh_matrix {
  uint32_t    struct_size;
  int32_t     dtype;            /* TWH_F32, TWH_F16 or TWH_BF16 */
  const void *data;
  int64_t     rows, cols;
  int64_t     row_stride;       /* elements, at least cols; 0 = cols */
} twh_matrix;

/* c = a b: a (m, k) and c (m, n) in f32, row by row; b (k, n) of b_dtype, element (p, j) at b[p * b_row_stride + j * b_col_stride],
 * one of the two strides 1, the others any. All of c is overwritten. Filled by the library and handed over as a pointer, so that
 * it can grow. */
typedef struct twh_gemm {
  uint32_t     struct_size;
  int32_t      b_dtype;
  int64_t      m, n, k;
  const float *a;
  const void  *b;
  float       *c;
  int64_t      a_row_stride, b_row_stride, b_col_stride, c_row_stride;
} twh_gemm;

/* A matrix product on the host's own BLAS or device. Returns 0, or a code of its own that ends the execute. Called from several
 * threads at once where parallel_for does so. */
typedef int32_t twh_gemm_hook(void *user, const twh_gemm *gemm);

/* The product that is used where no hook is given: plain C, correct and slow, accumulates in float64. user: not used. Returns 0.
 * Threads: any. Since 0.1. */
TWH_API int32_t twh_gemm_plain(void *user, const twh_gemm *gemm);

/* A block of rows of the residual stream, as hooks get it. Everything is f32, row by row; element (r, c) of x is
 * x[r * x_stride + c], and so on. Filled by the library and handed over as a pointer, so that it can grow; valid during the
 * hook. Fields that a hook is not said to use hold NULL. */
typedef struct twh_rows {
  uint32_t       struct_size;
  uint32_t       flags;         /* 0 */
  int64_t        layer;         /* 0 .. n_layers - 1; of embed -1, of finish n_layers */
  int64_t        row_begin;     /* of all rows, sequence after sequence */
  int64_t        rows;          /* at most block_rows */
  const int64_t *positions;     /* of each row, from 0 on in each sequence */
  int64_t        model_dim;
  float         *x;             /* (rows, model_dim): the residual stream */
  int64_t        x_stride;
  float         *y;             /* (rows, model_dim); before: to be filled; after: the output of attention, after wo;
                                 * free to be changed */
  int64_t        y_stride;
  float         *q, *k, *v;     /* heads: (rows, q_heads * qk_dim), (rows, kv_heads * qk_dim), (rows, kv_heads * v_dim) */
  int64_t        q_stride, k_stride, v_stride;
  int64_t        q_heads, kv_heads, qk_dim, v_dim; /* of the layer */
  float         *scratch;       /* rows * scratch_per_row floats, aligned to 64 bytes, the hook's own until it returns */
  const void    *input;         /* twh_transformer_options.input */
  twh_gemm_hook *gemm;          /* the model's product, never NULL, and its user */
  void          *gemm_user;
  int64_t        scratch_per_row; /* floats, as the transformer's description says */
} twh_rows;

/* Everything that is not attention: a function of each row alone. Returns 0, or a code of its own that ends the execute. Blocks
 * of one layer run in any order, on any threads, several at once where parallel_for does so. */
typedef int32_t twh_row_hook(void *user, const twh_rows *rows);

enum {
  TWH_LAYER_SCALE  = 1 << 0, /* `scale` is given; without it the scale is 1 / sqrt(qk_dim) */
  TWH_LAYER_IN_OUT = 1 << 1  /* weights are (in, out), y = x w; without it they are (out, in), y = x w^T, as torch stores them */
};

/* One layer. With x the residual stream, row by row,
 *     y = before(x), or x without it;   q = y wq + bq, k = y wk + bk, v = y wv + bv;   heads(q, k, v)
 *     y = attention(q, k, v) wo + bo;   after(x, y), or x = x + y without it
 * q is (rows, q_heads * qk_dim) with head h in columns h * qk_dim and on; k, v and the input of wo alike. */
typedef struct twh_layer_desc {
  uint32_t struct_size;
  uint32_t flags;                   /* TWH_LAYER_* */
  int64_t  q_heads, kv_heads, qk_dim, v_dim; /* as in twh_problem */
  double   scale, softcap;          /* as in twh_problem */
  const twh_pattern *pattern;       /* NULL = every row sees all rows of its sequence */
  const twh_matrix  *wq, *wk, *wv, *wo;
  const twh_matrix  *bq, *bk, *bv, *bo;          /* one row each; NULL = none */
  const twh_tensor  *sink_logits, *alibi_slopes; /* as in twh_tensors; NULL = none */
  twh_row_hook      *before, *heads, *after;     /* each may be NULL */
  void              *user;          /* handed to the three */
} twh_layer_desc;

/* A transformer and the sequences it is to run on. Structs are copied; data of matrices and tensors, and users, must outlive the
 * transformer. */
typedef struct twh_transformer_desc {
  uint32_t struct_size;
  uint32_t flags;                   /* 0 */
  int64_t  batch;                   /* number of sequences, >= 0; their rows stand one sequence after the other */
  int64_t  length;                  /* of each sequence, where lengths is NULL */
  const int64_t *lengths;           /* `batch` of them, each >= 0; or NULL */
  int64_t  model_dim;               /* >= 1 */
  int64_t  n_layers;                /* >= 0 */
  const twh_layer_desc *const *layers;
  twh_row_hook  *embed;             /* fills x, from rows->input; NULL: x comes as a tensor */
  twh_row_hook  *finish;            /* after the last layer, changes x; NULL = nothing */
  void          *user;              /* handed to the two */
  twh_gemm_hook *gemm;              /* NULL = twh_gemm_plain */
  void          *gemm_user;
  int64_t  block_rows;              /* the most rows that a hook gets; 0 = the length of the first kernel, q_len */
  int64_t  scratch_per_row;         /* floats of scratch that hooks want for each row of a block */
} twh_transformer_desc;

typedef struct twh_transformer twh_transformer;

/* Plan a whole transformer on kernels of attention: checks all shapes and plans the attention of every layer; equal layers share a
 * plan. oracles, n_oracles, options: as twh_plan_create takes them; the oracles must outlive the transformer.
 * out: receives the transformer; the caller destroys it; NULL on failure. It is immutable and may be executed any number of
 *   times, by many threads at once.
 * Returns: TWH_OK; TWH_E_UNSUPPORTED (no kernel can do a layer's attention); TWH_E_ARGUMENT; TWH_E_OVERFLOW; TWH_E_VERSION;
 *   TWH_E_MEMORY. The message begins with the layer ("layer 3: wk ...") and names the field.
 * Threads: any. Since 0.1. Source: Theorems 3.4 and 3.5; docs/theory.md. */
TWH_API TWH_MUST_USE twh_status twh_transformer_create(const twh_context *context, const twh_transformer_desc *desc,
                                                       twh_oracle *const *oracles, int64_t n_oracles,
                                                       const twh_plan_options *options, twh_transformer **out,
                                                       twh_error *error);

/* Destroy a transformer; NULL is allowed. No execute may be running. Since 0.1. */
TWH_API void twh_transformer_destroy(twh_transformer *transformer);

/* The plan of one layer's attention, for twh_plan_get_info, twh_plan_describe and twh_plan_visit; it belongs to the transformer and
 * may be that of other layers too. NULL where there is no such layer. Threads: any. Since 0.1. */
TWH_API const twh_plan *twh_transformer_plan(const twh_transformer *transformer, int64_t layer);

typedef struct twh_transformer_info {
  uint32_t struct_size;
  uint32_t flags;                   /* 0 */
  int64_t  rows;                    /* of all sequences */
  int64_t  calls, repair_calls_max; /* of the kernels, over all layers */
  int64_t  rounds, rounds_max;      /* levels of dependent kernel calls, over all layers: without and with repairs */
  int64_t  plans;                   /* different ones */
  int64_t  block_rows, blocks;      /* the most rows of a block, and the blocks of each layer */
  int64_t  workspace_bytes, workspace_alignment;
} twh_transformer_info;

/* The transformer in figures. out->struct_size must be set. Returns: TWH_OK; TWH_E_ARGUMENT. Threads: any. Since 0.1. */
TWH_API twh_status twh_transformer_get_info(const twh_transformer *transformer, twh_transformer_info *out, twh_error *error);

/* What an execute did. Filled also when it fails. */
typedef struct twh_transformer_stats {
  uint32_t struct_size;
  uint32_t flags;                   /* 0 */
  int64_t  calls, batches, repair_calls, repaired_rows, host_rows, encoded_blocks; /* as in twh_run_stats, over all layers */
  int64_t  rounds;                  /* levels of dependent kernel calls that there were: at most 2 in each layer */
  int64_t  row_rounds;              /* levels of dependent blocks of rows: one before the first layer and one after each; within
                                     * one, all may run in parallel */
  int64_t  blocks;                  /* of rows that were worked on, over all levels */
  double   wall_s, oracle_s;        /* as in twh_run_stats */
  double   rows_s;                  /* during which blocks of rows were worked on: hooks and products */
} twh_transformer_stats;

typedef struct twh_transformer_options {
  uint32_t    struct_size;
  uint32_t    flags;                /* TWH_RUN_* */
  const void *input;                /* handed to hooks: the tokens of this execute, or whatever embed reads */
  void       *workspace;            /* as in twh_run_options */
  size_t      workspace_bytes;
  int32_t   (*progress)(void *user, int64_t done, int64_t planned); /* kernel calls; non-zero = stop; may be NULL */
  void       *user;
  twh_transformer_stats *stats;     /* may be NULL; its struct_size must be set */
} twh_transformer_options;

/* Run the transformer: out = finish(layers(x)).
 * x: (1, 1, rows, model_dim), F32, F16, BF16 or F64; NULL if and only if there is an embed hook. out: the same shape; may be x
 *   with the same strides, else must not overlap it. Rows of all sequences stand one after the other. Inside everything is f32.
 * Returns: as twh_plan_execute, with the layer in front of the message, and TWH_E_HOOK: a hook returned non-zero; the message names the
 *   hook, the layer and the rows, oracle_code is the hook's. On failure out holds unspecified values, and nothing of this
 *   execute runs any more when the function returns.
 * Results are bitwise the same whatever the threads, if gemm and hooks compute the same bits for the same rows.
 * Threads: many may execute one transformer at once, each with its own out, workspace and stats. Since 0.1. */
TWH_API twh_status twh_transformer_execute(const twh_transformer *transformer, const twh_tensor *x, const twh_tensor *out,
                                           const twh_transformer_options *options, twh_error *error);

/* ---- states -------------------------------------------------------------------------------------------------------- */

enum { TWH_MERGE_EMPTY_POS_INF = 1 << 0 }; /* an lse of +inf also means: this row saw no key */

/* Merge n partial results over disjoint sets of keys into the result over their union, per row:
 *     lse = ln( sum_i e^lse_i ),   out = sum_i e^(lse_i - lse) out_i
 * where an input with lse_i = -inf contributes nothing, whatever its out_i is. None visible: out 0, lse -inf.
 * outs, lses: n pointers each to tensors (batch, heads, rows, dim) and (batch, heads, rows); n >= 0. out may be one of outs and
 * lse one of lses (with the same strides); lse may be NULL. flags: TWH_MERGE_*.
 * Accumulates in float64. Allocates nothing.
 * Returns: TWH_OK; TWH_E_ARGUMENT; TWH_E_VERSION. Threads: any. Since 0.1. Source: docs/theory.md, merging. */
TWH_API twh_status twh_states_merge(int64_t n, const twh_tensor *const *outs, const twh_tensor *const *lses, int64_t batch,
                                    int64_t heads, int64_t rows, int64_t dim, const twh_tensor *out, const twh_tensor *lse,
                                    uint32_t flags, twh_error *error);

/* ---- initialisers: zero the struct and set its size ---------------------------------------------------------------- */

static inline void twh_zero_fill(void *object, size_t bytes)
{
  unsigned char *at = (unsigned char *)object;
  while (bytes-- > 0) *at++ = 0;
}

#define TWH_DEFINE_INIT(type) \
  static inline void type##_init(type *object) \
  { \
    twh_zero_fill(object, sizeof *object); \
    object->struct_size = (uint32_t)sizeof *object; \
  }

TWH_DEFINE_INIT(twh_error)
TWH_DEFINE_INIT(twh_tensor)
TWH_DEFINE_INIT(twh_context_desc)
TWH_DEFINE_INIT(twh_call)
TWH_DEFINE_INIT(twh_oracle_desc)
TWH_DEFINE_INIT(twh_pattern)
TWH_DEFINE_INIT(twh_problem)
TWH_DEFINE_INIT(twh_plan_options)
TWH_DEFINE_INIT(twh_plan_info)
TWH_DEFINE_INIT(twh_tile_info)
TWH_DEFINE_INIT(twh_tensors)
TWH_DEFINE_INIT(twh_run_stats)
TWH_DEFINE_INIT(twh_run_options)
TWH_DEFINE_INIT(twh_trace_event)
TWH_DEFINE_INIT(twh_transformer_weights)
TWH_DEFINE_INIT(twh_transformer_call)
TWH_DEFINE_INIT(twh_transformer_oracle_desc)
TWH_DEFINE_INIT(twh_matrix)
TWH_DEFINE_INIT(twh_gemm)
TWH_DEFINE_INIT(twh_rows)
TWH_DEFINE_INIT(twh_layer_desc)
TWH_DEFINE_INIT(twh_transformer_desc)
TWH_DEFINE_INIT(twh_transformer_info)
TWH_DEFINE_INIT(twh_transformer_stats)
TWH_DEFINE_INIT(twh_transformer_options)

/* A dense tensor (batch, heads, rows, dim) in C order. For lse give dim = 1; for (rows, heads x dim) layouts set strides
 * yourself. */
static inline void twh_tensor_dense(twh_tensor *tensor, int32_t dtype, void *data, int64_t heads, int64_t rows, int64_t dim)
{
  twh_tensor_init(tensor);
  tensor->dtype = dtype;
  tensor->data = data;
  tensor->row_stride = dim;
  tensor->head_stride = rows * dim;
  tensor->batch_stride = heads * rows * dim;
}

#ifdef __cplusplus
}
#endif
#endif
