/* What the files of the check share: calls made by hand, and the float64 answer they are compared with.
 *
 * A trial is one call with memory of its own: every operand and result stands between guarded margins, and whatever is
 * not an element holds a guard pattern (NaN for inputs). A recipe says what the operands hold; it computes any row of any
 * operand from its position, so that a trial can be made again. check_call.c makes and runs trials,
 * check_recipe.c holds recipes that several promises use, check_reference.c measures results, check_softmax.c, check_scores.c,
 * check_masks.c, check_shapes.c and check_continues.c test promises, check.c lists them. */
#ifndef TWH_CORE_CHECK_H
#define TWH_CORE_CHECK_H

#include "core/oracle/oracle.h"

enum { TWH__CHECK_Q, TWH__CHECK_K, TWH__CHECK_V, TWH__CHECK_MASK, TWH__CHECK_OUT, TWH__CHECK_LSE, TWH__CHECK_BLOCKS };

/* How the rows of a call lie in memory: as declared, apart from each other, with the slots inside the rows, all slots with the
 * same inputs, apart with those of q, k and v in reverse order, or each where a pointer of a call may point. */
enum {
  TWH__LAYOUT_DECLARED,
  TWH__LAYOUT_APART,
  TWH__LAYOUT_INTERLEAVED,
  TWH__LAYOUT_SHARED,
  TWH__LAYOUT_BACKWARDS,
  TWH__LAYOUT_ALIGNED
};

typedef struct twh__check {
  const twh_oracle      *oracle;
  const twh_oracle_desc *desc;
  const twh_context     *context;
  twh_error             *error;
  double                *row, *other; /* scratch: two rows of any operand */
  double                 unit;        /* relative rounding error of the kernel's dtype */
  double                 out_unit;    /* of its output */
  double                 score_unit;  /* relative error that a score may have */
  double                 scale;       /* of calls that do not test the scale */
  double                 hidden;      /* mask values at or below it hide a key */
  int32_t                base2;       /* the lse is read in base 2: as declared, until the kernel shows otherwise */
  /* gathered over all calls */
  int64_t                calls, strays, touched, missed, elements;
  int64_t                first_stray, first_missed; /* numbers of calls */
  /* left by the promise "softmax" for those on the lse; [0]: read in base e, [1]: in base 2 */
  double                 lse_sum[2], lse_ratio[2], lse_error[2];
  int64_t                lse_rows;
} twh__check;

/* What a promise has found. */
typedef struct twh__finding {
  int32_t verdict;
  char    detail[224];
} twh__finding;

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void twh__finding_set(twh__finding *finding, int32_t verdict, const char *format, ...);

/* ---- trials (check_call.c) ---- */

typedef struct twh__trial twh__trial;

/* Compute row `row` of slot `slot` of block `which`: trial->blocks[which].dim values. A mask row holds what is added to the
 * scores, -inf hides; a boolean mask is made from it. */
typedef void twh__recipe_row(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                             double *values);

typedef struct twh__recipe {
  twh__recipe_row *q, *k, *v;
  twh__recipe_row *mask;       /* NULL: every key is visible */
  double           a, b, c;    /* whatever the functions need */
  int64_t          n, shift;
  uint64_t         seed;
  int32_t          empty;      /* the mask hides every key from rows with even (1) or odd (2) slot + row */
  int32_t          odd_bytes;  /* visible keys of a boolean mask are various non-zero bytes */
  const twh__trial *first;     /* not NULL: the call continues that one, row r its row shift + n r; n is 1 or -1 */
} twh__recipe;

typedef struct twh__check_shape {
  int64_t  slots, q_len, k_len;
  uint32_t mode;
  int32_t  layout;
  double   scale;
} twh__check_shape;

typedef struct twh__check_block {
  unsigned char *memory;
  int64_t        bytes, first;             /* of memory; where element (0, 0, 0) stands */
  int64_t        slots, rows, dim;
  int64_t        slot_stride, row_stride;  /* elements */
  int32_t        dtype;
} twh__check_block;

struct twh__trial {
  twh_call         call;
  twh__check_block blocks[TWH__CHECK_BLOCKS];
  twh__recipe      recipe;
  const twh__trial *next; /* of a chain: the next one that continues its first one */
  int64_t          nans;  /* results of the last run that are not a number, rows that see no key left out */
};

/* The full shape in a mask mode. */
twh__check_shape twh__check_full(const twh__check *check, uint32_t mode);

/* The mode with the fewest hidden keys that the kernel has. */
uint32_t twh__check_plain_mode(const twh__check *check);

/* On failure the trial is empty; destroy takes empty ones too. One that continues another has no results of its own. */
twh_status twh__trial_create(twh__check *check, const twh__check_shape *shape, const twh__recipe *recipe, twh__trial *trial);
void       twh__trial_destroy(twh__check *check, twh__trial *trial);

/* Prefill the results, run n (at most 4) trials as one batch, and inspect margins and results. A trial that continues another
 * runs behind it, in the same batch or a later one. */
twh_status twh__trial_run(twh__check *check, twh__trial *const *trials, int64_t n);

/* Convert one row of results, or of operands, to float64. */
void   twh__trial_row(const twh__trial *trial, int32_t which, int64_t slot, int64_t row, double *values);
double twh__trial_lse(const twh__check *check, const twh__trial *trial, int64_t slot, int64_t row); /* natural logarithm */

/* Whether a row sees no key. */
int twh__trial_empty(const twh__check *check, const twh__trial *trial, int64_t slot, int64_t row);

/* The number of the first row (slots x rows) whose results are not the same bytes in both, or -1. Rows that see no key are
 * left out. */
int64_t twh__trial_compare(const twh__check *check, const twh__trial *a, const twh__trial *b);

/* ---- recipes that several promises use ---- */

/* A counter-based generator, uniform in [-1, 1): the same numbers for the same counters. */
double twh__check_random(uint64_t seed, int64_t a, int64_t b, int64_t c);

/* Independent random rows: q and k such that logits have standard deviation recipe.a, values in [-1, 1); a mask that hides a
 * quarter of the keys and, if it is additive, moves the others by up to 2. */
void twh__recipe_random_q(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                          double *values);
void twh__recipe_random_k(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                          double *values);
void twh__recipe_random_v(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                          double *values);
void twh__recipe_random_mask(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                             double *values);
void twh__recipe_zero(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                      double *values);

twh__recipe twh__recipe_random(uint64_t seed);

/* ---- the float64 answer (check_reference.c) ---- */

/* What may differ. scores: by how much the bound grows with the scores (0: equal scores are exactly equal, whatever their
 * size). relative > 0: instead, out may differ by that fraction of itself plus `absolute`. */
typedef struct twh__tolerance {
  double scores, relative, absolute;
} twh__tolerance;

/* The worst of all measured rows. A ratio is error / bound: at most 1 is right; what is not a number is infinitely wrong. */
typedef struct twh__measure {
  int64_t  rows;
  double   ratio, error, largest;           /* of out; largest |out| that is right */
  uint32_t mode;
  int64_t  slot, row, column;               /* of the worst element */
  double   got, wanted;
  double   lse_ratio[2], lse_error[2], lse_sum[2]; /* read in base e and in base 2; sum of |errors| */
} twh__measure;

/* Compare a sample of rows with a direct evaluation, over the keys of the whole chain; adds to `measure`, which starts
 * zeroed. */
twh_status twh__trial_measure(twh__check *check, const twh__trial *trial, const twh__tolerance *tolerance,
                              twh__measure *measure);

/* Create, run, measure and destroy one trial. */
twh_status twh__check_measure(twh__check *check, const twh__check_shape *shape, const twh__recipe *recipe,
                              const twh__tolerance *tolerance, twh__measure *measure);

/* HOLDS with the precision reached, or UNTRUE with the worst element; lse included if the kernel returns one. */
void twh__measure_report(const twh__check *check, const twh__measure *measure, twh__finding *finding);

/* ---- promises: each says what it found; what cannot be tested on this kernel is SKIPPED with the reason ---- */

typedef twh_status twh__promise(twh__check *check, twh__finding *finding);

/* check_softmax.c */
twh__promise twh__promise_softmax, twh__promise_lse_base, twh__promise_lse, twh__promise_scale_per_call;
/* check_scores.c */
twh__promise twh__promise_scale, twh__promise_softcap, twh__promise_shift, twh__promise_large, twh__promise_underflow,
  twh__promise_f16_scores;
/* check_masks.c */
twh__promise twh__promise_mask_positions, twh__promise_mask_values, twh__promise_causal, twh__promise_empty_lse;
/* check_continues.c */
twh__promise twh__promise_continues;
/* check_shapes.c */
twh__promise twh__promise_rows, twh__promise_keys, twh__promise_slots, twh__promise_strides, twh__promise_batch,
  twh__promise_determinism, twh__promise_margins, twh__promise_written;

#endif
