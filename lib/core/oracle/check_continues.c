/* The promise to continue calls: chains of two and three calls, all of them adding to the results of the first one, against the
 * direct evaluation over all of their keys.
 *
 * The chains: each mask mode first, in one batch and in a batch for each call, with rows that see nothing in one call or
 * another; scores that are far apart; fewer rows and keys behind full ones; results that lie apart; rows in reverse order. */
#include <math.h>
#include <string.h>

#include "core/oracle/check.h"

enum { CHECK_CONTINUES_MOST = 3, CHECK_CONTINUES_ALIGNMENT = 1024 /* more would take too much memory */ };

typedef struct check_continues_chain {
  twh__check_shape shape[CHECK_CONTINUES_MOST];
  twh__recipe      recipe[CHECK_CONTINUES_MOST]; /* first: set when it runs */
  int64_t          n, together;                  /* together: in one batch */
} check_continues_chain;

typedef struct check_continues {
  twh__check  *check;
  twh__measure measure;
  int64_t      chains;
} check_continues;

/* The query that stands in the row of the first call. */
static void check_continues_q(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                              double *values)
{
  (void)check;
  twh__trial_row(trial->recipe.first, which, slot, trial->recipe.shift + trial->recipe.n * row, values);
}

/* The mode after that one, in circles. */
static uint32_t check_continues_mode(const twh__check *check, uint32_t mode)
{
  do mode = mode == TWH_MASK_TENSOR ? TWH_MASK_NONE : mode << 1;
  while (!(check->desc->mask_modes & mode));
  return mode;
}

/* n full calls in one batch, if the kernel takes so many, the first one in that mode, those behind it in the plainest. */
static check_continues_chain check_continues_make(const twh__check *check, uint32_t mode, int64_t n)
{
  check_continues_chain chain;

  memset(&chain, 0, sizeof chain);
  chain.n = n;
  chain.together = check->desc->max_calls_per_batch >= n;
  for (int64_t i = 0; i < n; ++i) {
    chain.shape[i] = twh__check_full(check, i == 0 ? mode : twh__check_plain_mode(check));
    chain.recipe[i] = twh__recipe_random(501 + (uint64_t)(10 * i));
    chain.recipe[i].n = 1;
    if (i > 0) chain.recipe[i].q = check_continues_q;
  }
  return chain;
}

static twh_status check_continues_run(check_continues *state, check_continues_chain *chain)
{
  twh__trial                  trials[CHECK_CONTINUES_MOST], *batch[CHECK_CONTINUES_MOST];
  static const twh__tolerance tolerance = { 1, 0, 0 };
  twh__check                 *check = state->check;
  twh_status                  status = TWH_OK;
  int64_t                     made = 0;

  for (; made < chain->n && !TWH__FAILED(status); ++made) {
    batch[made] = &trials[made];
    if (made > 0) chain->recipe[made].first = &trials[0];
    status = twh__trial_create(check, &chain->shape[made], &chain->recipe[made], &trials[made]);
    if (made > 0) trials[made - 1].next = &trials[made];
  }
  if (!TWH__FAILED(status) && chain->together) status = twh__trial_run(check, batch, chain->n);
  for (int64_t i = 0; i < chain->n && !TWH__FAILED(status) && !chain->together; ++i) {
    status = twh__trial_run(check, batch + i, 1);
  }
  if (!TWH__FAILED(status)) status = twh__trial_measure(check, &trials[0], &tolerance, &state->measure);
  ++state->chains;
  while (made > 0) twh__trial_destroy(check, &trials[--made]);
  return status;
}

/* ---- chains ---- */

/* All rows, in every mode. Where a mask operand can, it hides everything from rows of a first call, or of one behind it. */
static twh_status check_continues_modes(check_continues *state)
{
  const twh__check *check = state->check;
  int32_t           can_empty = check->desc->mask_value == 0;
  twh_status        status = TWH_OK;

  for (uint32_t mode = TWH_MASK_NONE; mode <= TWH_MASK_TENSOR && !TWH__FAILED(status); mode <<= 1) {
    check_continues_chain chain;
    if (!(check->desc->mask_modes & mode)) continue;
    chain = check_continues_make(check, mode, 3);
    chain.shape[1].mode = check_continues_mode(check, mode);
    for (int32_t i = 0; i < 3; ++i) chain.recipe[i].empty = can_empty * (1 + i % 2);
    status = check_continues_run(state, &chain);
    if (TWH__FAILED(status)) break;
    chain = check_continues_make(check, check_continues_mode(check, mode), 2);
    chain.together = 0;
    chain.shape[1].mode = mode;
    chain.recipe[1].empty = can_empty;
    status = check_continues_run(state, &chain);
  }
  return status;
}

/* Scores of the first call, or of the second one, up to some hundreds: one is next to nothing beside the other, and e^lse is
 * beyond f32. */
static twh_status check_continues_scores(check_continues *state)
{
  twh_status status = TWH_OK;

  for (int32_t i = 0; i < 2 && !TWH__FAILED(status); ++i) {
    check_continues_chain chain = check_continues_make(state->check, twh__check_plain_mode(state->check), 2);
    chain.recipe[i].a = 100;
    status = check_continues_run(state, &chain);
  }
  return status;
}

/* The largest number of rows, at most `most`, that a call may have; 0: none. */
static int64_t check_continues_legal(const twh_oracle_desc *desc, int64_t most)
{
  if (most >= desc->q_len) return desc->q_len;
  if (!(desc->flags & TWH_ORACLE_FEWER_ROWS)) return 0;
  most -= most % desc->q_len_step;
  return most >= desc->q_len_min ? most : 0;
}

/* Let the results of the first call lie so that as many rows as possible may be handed over. */
static void check_continues_align(const twh_oracle_desc *desc, check_continues_chain *chain)
{
  if ((desc->flags & TWH_ORACLE_STRIDED) && desc->alignment <= CHECK_CONTINUES_ALIGNMENT) {
    chain->shape[0].layout = TWH__LAYOUT_ALIGNED;
  }
}

/* Whether results may be handed over from that row on: both of its addresses are aligned. */
static int check_continues_aligned(const twh_oracle_desc *desc, const check_continues_chain *chain, int64_t row)
{
  int64_t out = chain->shape[0].layout == TWH__LAYOUT_ALIGNED ? 0 : desc->out_row_stride * twh__dtype_bytes(desc->out_dtype);

  return row * (int64_t)sizeof(float) % desc->alignment == 0 && row * out % desc->alignment == 0;
}

/* Fewer rows behind a full first call, from the last row on that they can begin with; 0: there are none. */
static int check_continues_fewer_rows(const twh_oracle_desc *desc, check_continues_chain *chain)
{
  int64_t first = desc->q_len - desc->q_len_min;

  if (!(desc->flags & TWH_ORACLE_FEWER_ROWS) || first == 0) return 0;
  check_continues_align(desc, chain);
  while (!check_continues_aligned(desc, chain, first)) --first; /* row 0 is */
  chain->recipe[1].shift = first;
  chain->shape[1].q_len = check_continues_legal(desc, desc->q_len - first);
  chain->shape[2].q_len = check_continues_legal(desc, desc->q_len - 1);
  return 1;
}

static twh_status check_continues_fewer(check_continues *state)
{
  const twh_oracle_desc *desc = state->check->desc;
  int                    rows, keys = (desc->flags & TWH_ORACLE_FEWER_KEYS) && desc->k_len_min < desc->k_len;
  twh_status             status = TWH_OK;

  for (uint32_t mode = TWH_MASK_NONE; mode <= TWH_MASK_TENSOR && !TWH__FAILED(status); mode <<= 1) {
    check_continues_chain chain = check_continues_make(state->check, mode, 3);
    if (!(desc->mask_modes & mode)) continue;
    chain.shape[1].mode = chain.shape[2].mode = mode;
    rows = check_continues_fewer_rows(desc, &chain);
    if (keys) chain.shape[1].k_len = desc->k_len_min;
    if (rows || keys) status = check_continues_run(state, &chain);
  }
  return status;
}

static twh_status check_continues_strides(check_continues *state)
{
  twh_status status = TWH_OK;

  if (!(state->check->desc->flags & TWH_ORACLE_STRIDED)) return TWH_OK;
  for (int32_t layout = TWH__LAYOUT_APART; layout <= TWH__LAYOUT_INTERLEAVED && !TWH__FAILED(status); ++layout) {
    check_continues_chain chain = check_continues_make(state->check, twh__check_plain_mode(state->check), 2);
    chain.shape[0].layout = chain.shape[1].layout = layout;
    status = check_continues_run(state, &chain);
  }
  return status;
}

/* As many rows as there can be, from one that is aligned back to row 0 or near it. *turned: there are at least two. */
static twh_status check_continues_backwards(check_continues *state, int *turned)
{
  const twh_oracle_desc *desc = state->check->desc;
  check_continues_chain  chain = check_continues_make(state->check, twh__check_plain_mode(state->check), 3);
  int64_t                row = desc->q_len - 1, rows = 0;

  *turned = 0;
  if (!(desc->flags & TWH_ORACLE_BACKWARDS)) return TWH_OK;
  check_continues_align(desc, &chain);
  for (; row > 0; --row) {
    rows = check_continues_legal(desc, row + 1);
    if (check_continues_aligned(desc, &chain, row) && rows > 1) break;
  }
  if (row == 0) return TWH_OK;
  *turned = 1;
  chain.recipe[1].shift = row;
  chain.recipe[1].n = -1;
  chain.shape[1].q_len = rows;
  chain.shape[1].layout = TWH__LAYOUT_BACKWARDS;
  chain.shape[1].mode = check_continues_mode(state->check, chain.shape[0].mode);
  return check_continues_run(state, &chain);
}

twh_status twh__promise_continues(twh__check *check, twh__finding *finding)
{
  check_continues state;
  twh_status      status;
  int             turned = 0;

  if (!(check->desc->flags & TWH_ORACLE_CONTINUES)) {
    twh__finding_set(finding, TWH_CHECK_SKIPPED, "not declared");
    return TWH_OK;
  }
  memset(&state, 0, sizeof state);
  state.check = check;
  status = check_continues_modes(&state);
  if (!TWH__FAILED(status)) status = check_continues_scores(&state);
  if (!TWH__FAILED(status)) status = check_continues_fewer(&state);
  if (!TWH__FAILED(status)) status = check_continues_strides(&state);
  if (!TWH__FAILED(status)) status = check_continues_backwards(&state, &turned);
  if (TWH__FAILED(status)) return status;
  twh__measure_report(check, &state.measure, finding);
  if (finding->verdict == TWH_CHECK_HOLDS) {
    twh__finding_set(finding, TWH_CHECK_HOLDS, "%lld chains of calls%s: largest error %.3g", (long long)state.chains,
                     turned ? ", rows backwards in one" : "", state.measure.error);
  }
  return TWH_OK;
}
