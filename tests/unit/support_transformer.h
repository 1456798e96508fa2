/* Random large transformers for tests: what they consist of, hooks that hold the library to its promises about rows, and their
 * direct evaluation in float64.
 *
 * A transformer is chosen (sizes, patterns, types: everything that can be said in a line of text), a test may then change what
 * was chosen, and it is built: weights, tables, inputs. Nothing here uses the library's own arithmetic. */
#ifndef TWH_TESTS_SUPPORT_TRANSFORMER_H
#define TWH_TESTS_SUPPORT_TRANSFORMER_H

#include "support.h"

enum { SUPPORT_LAYERS = 4, SUPPORT_LENGTHS = 6, SUPPORT_BLOCKS = 64 };

enum { SUPPORT_EMBED, SUPPORT_BEFORE, SUPPORT_HEADS, SUPPORT_AFTER, SUPPORT_FINISH, SUPPORT_GEMM, SUPPORT_HOOKS };
extern const char *const support_hook_names[SUPPORT_HOOKS];

enum { SUPPORT_WQ, SUPPORT_WK, SUPPORT_WV, SUPPORT_WO, SUPPORT_BQ, SUPPORT_BK, SUPPORT_BV, SUPPORT_BO, SUPPORT_MATRICES };

enum {                           /* what a layer or a transformer is built with */
       SUPPORT_WITH_BIASES = 15, /* 1 << (SUPPORT_BQ - 4) and so on */
       SUPPORT_WITH_SINK_LOGITS = 1 << 4,
       SUPPORT_WITH_SLOPES = 1 << 5, /* ALiBi */
       SUPPORT_WITH_BEFORE = 1 << 6,
       SUPPORT_WITH_HEADS = 1 << 7,
       SUPPORT_WITH_AFTER = 1 << 8,
       SUPPORT_WITH_EMBED = 1 << 9,
       SUPPORT_WITH_FINISH = 1 << 10,
       SUPPORT_WITH_GEMM = 1 << 11 /* a product of the test's; without it the library's plain one */
};

struct support_transformer;

typedef struct support_layer {
  struct support_transformer *of;
  int64_t                     number;
  twh_layer_desc              desc;
  uint32_t                    with;
  twh_pattern                 pattern; /* used where desc.pattern points at it */
  int32_t                     dtypes[SUPPORT_MATRICES], heads_dtype;
  int64_t                     gaps[SUPPORT_MATRICES];          /* row_stride - cols; -1: row_stride 0 */
  twh_matrix                  matrices[SUPPORT_MATRICES], mix; /* mix: what the hook after multiplies with */
  double                     *weights[5];                      /* wq, wk, wv, wo, mix: (in, out), for the direct evaluation */
  twh_tensor                  sink_logits, alibi_slopes;
} support_layer;

/* Pointers point into the struct: never copy it. */
typedef struct support_transformer {
  uint64_t              seed, number;
  uint32_t              with;
  double                logit_std;
  twh_transformer_desc  desc;
  int64_t               lengths[SUPPORT_LENGTHS];
  support_layer         layers[SUPPORT_LAYERS];
  const twh_layer_desc *pointers[SUPPORT_LAYERS];
  char                  text[2000]; /* one line that says all of it, and how to run it again */

  int64_t  rows, *positions; /* of all sequences */
  int32_t *tokens;           /* the input of an execute with embed */
  double  *x;                /* (rows, model_dim), f32 numbers; without embed */
  void    *memory[80];
  int64_t  blocks; /* of memory */

  /* What the hooks have seen since the last reset. */
  pthread_mutex_t lock;
  int64_t         calls[SUPPORT_HOOKS];
  int64_t         products[SUPPORT_LAYERS][4]; /* rows of products with wq, wk, wv, wo */
  unsigned char  *seen;                        /* (5 hooks, SUPPORT_LAYERS, rows): how often */
  int64_t         block_rows;                  /* the most rows that a block may have; 0: not known */
  char            broken[200];                 /* a promise that the library did not keep */

  /* The hook fail_hook of layer fail_layer returns fail_code for the block that holds row fail_row; -1: none. Of SUPPORT_GEMM
   * the product with fail_matrix does, where blocks come in order. fail_behind: the hook fails for all blocks behind it too,
   * and where there are other threads, 1: for the first block after another one, 2: for the first block first. */
  int32_t fail_hook, fail_code, fail_matrix;
  int64_t fail_layer, fail_row;
  int     failed, fail_behind, lingering;
  int64_t failed_begin, failed_rows, after_failure; /* the block that failed; hooks and products that began after it */
} support_transformer;

/* ---- making ---- */

void support_transformer_choose(support_transformer *t, uint64_t seed, uint64_t number);
/* One layer of 2 heads, everything given and every hook, ready to be changed: for tests of single things. */
void support_transformer_plain(support_transformer *t, int64_t layers, int64_t batch, int64_t length);
void support_transformer_build(support_transformer *t);
void support_transformer_destroy(support_transformer *t);

/* Element (r, c) of a matrix. */
double support_matrix_at(const twh_matrix *matrix, int64_t r, int64_t c);

/* The attention of a layer, for support_must_run; sequences are those of the transformer. */
void support_layer_problem(const support_layer *layer, twh_problem *problem);
/* A reference kernel as long as the longest sequence, of dims that suit every layer. */
void support_long_kernel(const support_transformer *t, twh_oracle_desc *desc);

/* ---- hooks: functions of one row in float64, which the hooks round to f32 and the direct evaluation does not ---- */

int64_t support_width(const support_layer *layer, int which); /* outputs of wq, wk, wv, wo */
void    support_row_embed(const support_transformer *t, int64_t row, double *x);
void    support_row_before(const support_layer *layer, const double *x, double *y);
void    support_row_heads(const support_layer *layer, int64_t position, double *q, double *k, double *v);
double  support_row_bend(double x, double mixed); /* after: x += y, then x = bend(x, x mix) */
void    support_row_finish(const support_transformer *t, double *x);

/* Point the descriptors at the hooks that `with` asks for. */
void support_hooks_attach(support_transformer *t);
void support_hooks_reset(support_transformer *t); /* before each execute */
/* After an execute that succeeded: whether each hook and product has had each row once. Fails the test otherwise. */
void support_hooks_expect_all(const support_transformer *t);

/* ---- the right answer, and running ---- */

/* out (rows, model_dim): the definition in float64. unit: 0; or every number that stands between two steps is rounded to an f32
 * multiple of it, as in an evaluation with f32 tensors whose products and attentions are exact inside and round once. */
void support_transformer_truth(const support_transformer *t, double unit, double *out);

/* Largest |got - truth| / largest |truth|; INFINITY for anything that is not a number. */
double support_transformer_error(const support_transformer *t, const double *truth, const double *got);

/* How to run a transformer: context NULL = the defaults, and what else is not asked for 0. */
typedef struct support_way {
  const twh_context *context;
  twh_oracle *const *oracles;
  int64_t            n_oracles, block_rows, max_calls_per_batch;
  int                own_workspace;
  int32_t            x_dtype, out_dtype; /* 0 = f32 */
  int64_t            gap;                /* row_stride - model_dim of x and out */
  int                in_place, repeat;   /* repeat: execute twice; the second result is returned */
} support_way;

/* Create, execute and destroy; out (rows, model_dim). Checks the statistics against the information of the transformer, what the
 * hooks have seen and that gaps were left alone. info, stats: may be NULL. Returns the status of what failed. */
twh_status support_transformer_run(support_transformer *t, const support_way *way, double *out, twh_transformer_info *info,
                                   twh_transformer_stats *stats, twh_error *error);

/* ---- a model: a transformer on a kernel, and its result ---- */

typedef struct support_model {
  support_transformer t;
  support_oracle      oracle;
  twh_oracle_desc     kernel;
  support_way         way;
  double             *want, *got; /* (rows, model_dim) */
  size_t              bytes;      /* of each */
} support_model;

/* Build what was chosen in m->t and run it, plainly: m->want. */
void    support_model_begin(support_model *m);
void    support_model_end(support_model *m);
double *support_model_rows(const support_model *m); /* another result, zero; the caller's to free */
/* The model's kernel, 8 x 8 with two slots, in m->oracle, and m->way to use it: without lse, so that there can be repairs, unmasked and
 * causal, with one spare coordinate. */
void    support_model_kernel(support_model *m, const twh_context *context);
/* Run once more: m->got. */
void    support_model_again(support_model *m, const support_way *way, twh_transformer_info *info, twh_transformer_stats *stats);
void    support_model_expect_same(support_model *m, const support_way *way, const char *how,
                                  int64_t value); /* the bits of m->want */

#endif
