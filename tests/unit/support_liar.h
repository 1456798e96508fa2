/* A kernel that lies on demand, and what the check says about it.
 *
 * Honest, it rounds its weights to its dtype, as GPU kernels do, or everything on the way, as plain ones do, so that the bounds
 * of the check have something to bear. Each lie is one branch in it. */
#ifndef TWH_TESTS_SUPPORT_LIAR_H
#define TWH_TESTS_SUPPORT_LIAR_H

#include "support.h"

enum { LIAR_KEYS = 1024, LIAR_DIM = 16, LIAR_NAME = 24 };

typedef enum liar_lie {
  HONEST,
  ROUNDS_EVERYTHING, /* scores, weights and their quotient: still honest */
  SCALE_OFF,
  SCALE_IGNORED,
  BASE_OF_EXP,
  SCORES_IN_F16,
  ONE_SLOT_WRONG,
  NO_CAP,
  HIDDEN_CAP,
  MASK_BEFORE_CAP,
  NO_MAXIMUM,
  CLAMPED_WEIGHTS,
  LSE_OTHER_BASE,
  LSE_MEAN_KEY,
  EMPTY_OTHER_SIGN,
  EMPTY_ZERO,
  MASK_UP_TO_16,
  MASK_UP_TO_512,
  MASK_KEY_19_LEAKS,
  MASK_KEY_19_MISSING,
  MASK_VALUES_IGNORED,
  MASK_BYTE_IS_ONE,
  CAUSAL_STRICT,
  CAUSAL_ONE_MORE,
  CAUSAL_NOT_AT_ALL,
  CAUSAL_FROM_THE_END,
  ROWS_AS_DECLARED,
  KEYS_PADDED_WITH_ZEROS,
  SLOTS_SHIFTED,
  STRIDES_AS_DECLARED,
  MASK_STRIDES_DENSE,
  SHARED_SLOTS_UNKNOWN,
  BACKWARDS_AS_DECLARED,
  BACKWARDS_AS_FORWARDS,
  CONTINUES_NOT_AT_ALL,
  CONTINUES_IN_OTHER_BASE,
  CONTINUES_FORWARDS,
  CONTINUES_LOSES_EMPTY,
  CONTINUES_TAKES_EMPTY,
  CONTINUES_OVERFLOWS,
  ONE_KEY_HALVED,
  ROW_501_NOT_A_NUMBER,
  LAST_ROW_WRONG,
  BATCH_LEAKS,
  COUNTS_CALLS,
  SKIPS_LAST_ELEMENT,
  WRITES_BEHIND,
  WRITES_BEFORE,
  WRITES_INPUT,
  READS_BEHIND
} liar_lie;

typedef struct liar {
  twh_oracle     *oracle;
  twh_oracle_desc desc; /* completed */
  liar_lie        lie;
  int64_t         calls, fail_at, keys; /* keys: of the slot at hand */
  int64_t         aligned_twice; /* pointers that are aligned to more than the kernel asked for */
  float           q[LIAR_DIM], k[LIAR_KEYS][LIAR_DIM], v[LIAR_KEYS][LIAR_DIM], score[LIAR_KEYS], out[LIAR_DIM];
} liar;

/* An f32 kernel of 2 slots, 20 x 24, dimensions 8 and 5, without masks. */
void liar_desc(twh_oracle_desc *desc);

/* Register `it`, which must stay where it is, with that description. The caller destroys it->oracle. */
void liar_create(liar *it, const twh_oracle_desc *desc, liar_lie lie);

/* What the check said: names with ';' behind each. */
typedef struct verdicts {
  char    untrue[400], skipped[400], details[4000];
  int64_t rows, holds;
} verdicts;

/* Run the check on a kernel; returns what it counted as untrue. TWH_SHOW in the environment prints every row. */
int64_t verdicts_get(verdicts *all, const twh_oracle *oracle);

/* Whether every name of `names` is in one of the lists. */
int verdicts_within(const char *names, const char *list, const char *also);

#endif
