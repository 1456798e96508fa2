/* Merging states row by row: leaves and nodes in any mixture, some missing, one of them the result itself.
 *
 * Whatever the states are, the bits are those of the same states as nodes; and those are close to what one sum says. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/state/state.h"
#include "tests/unit/support.h"

enum { ROWS = 53, GAP = 3, DIM_MOST = 130 };
enum { MISSING, NODE, INTO, LEAF, LEAF_TURNED, LEAF_FACTOR, LEAF_HALF, LEAF_PART, KINDS };

/* One state and its twin, a node with the same content. */
typedef struct merge_state {
  twh__state own, twin;
  double     m[ROWS], a[ROWS], factor[ROWS], b[ROWS * DIM_MOST];
  double     twin_m[ROWS], twin_a[ROWS], twin_b[ROWS * DIM_MOST];
  char       out[ROWS * (DIM_MOST + GAP) * 4];
} merge_state;

static double merge_random(support_random *random)
{
  return 2 * support_uniform(random) - 1;
}

/* Row r stands at place `at`; what a leaf has there. */
static void merge_fill_row(merge_state *state, int kind, int64_t r, int64_t at, int64_t dim, support_random *random)
{
  state->m[at] = 30 * merge_random(random);
  state->a[at] = support_one_in(random, 40) ? 0 : 0.1 + support_uniform(random);
  state->factor[at] = kind == LEAF_FACTOR ? 1 + support_uniform(random) : 1;
  state->twin_m[r] = state->m[at];
  state->twin_a[r] = state->a[at];
  for (int64_t c = 0; c < dim; ++c) {
    char *to = state->out + at * state->own.row_bytes;
    twh__store(to, state->own.dtype, c, merge_random(random));
    state->twin_b[r * dim + c] = state->factor[at] * twh__load(to, state->own.dtype, c);
    state->b[at * dim + c] = state->twin_b[r * dim + c];
  }
}

static void merge_fill(merge_state *state, int kind, int64_t dim, support_random *random)
{
  int node = kind == NODE || kind == INTO;

  memset(state, 0, sizeof *state);
  state->own.m = state->m;
  state->own.a = state->a;
  state->own.b = node ? state->b : NULL;
  state->own.factor = state->factor;
  state->own.out = state->out;
  state->own.dtype = kind == LEAF_HALF ? TWH_F16 : TWH_F32;
  state->own.row_bytes = (dim + GAP) * twh__dtype_bytes(state->own.dtype);
  state->own.slice_dim = dim;
  state->own.row = kind == LEAF_PART ? 20 : 0;
  state->own.rows = kind == LEAF_PART ? ROWS - 25 : ROWS;
  state->own.at = kind == LEAF_TURNED ? ROWS - 1 : 0;
  state->own.at_step = kind == LEAF_TURNED ? -1 : 1;
  state->twin.m = state->twin_m;
  state->twin.a = state->twin_a;
  state->twin.b = state->twin_b;
  for (int64_t r = 0; r < ROWS; ++r) {
    int64_t at = twh__state_at(&state->own, r);
    if (at >= 0) merge_fill_row(state, kind, r, at, dim, random);
  }
}

/* Row r by one sum over all states. */
static void merge_check_row(const merge_state *states, const int *kinds, const twh__state *into, int64_t r, int64_t dim)
{
  double largest = -(double)INFINITY, sum = 0;

  for (int i = 0; i < TWH__FAN; ++i) {
    if (kinds[i] != MISSING && states[i].twin_a[r] != 0) largest = fmax(largest, states[i].twin_m[r]);
  }
  for (int i = 0; i < TWH__FAN; ++i) {
    if (kinds[i] != MISSING && states[i].twin_a[r] != 0) sum += states[i].twin_a[r] * exp(states[i].twin_m[r] - largest);
  }
  assert_true(sum == 0 ? into->a[r] == 0 : fabs(into->a[r] * exp(into->m[r] - largest) / sum - 1) < 1e-14);
  for (int64_t c = 0; sum != 0 && c < dim; ++c) {
    double out = 0;
    for (int i = 0; i < TWH__FAN; ++i) {
      if (kinds[i] == MISSING || states[i].twin_a[r] == 0) continue;
      out += states[i].twin_a[r] * exp(states[i].twin_m[r] - largest) / sum * states[i].twin_b[r * dim + c];
    }
    assert_true(fabs(into->b[r * dim + c] - out) < 1e-14);
  }
}

static void merge_try(merge_state *states, const int *kinds, int64_t dim, support_random *random)
{
  static merge_state result;
  const twh__state  *own[TWH__FAN], *twins[TWH__FAN];
  twh__state         copy, *into = &result.own;
  int64_t            split = support_below(random, ROWS);

  merge_fill(&result, NODE, dim, random);
  memcpy(result.twin_b, result.b, sizeof result.b); /* rows that are neutral keep what stands there */
  for (int i = 0; i < TWH__FAN; ++i) {
    if (kinds[i] != MISSING) merge_fill(&states[i], kinds[i], dim, random);
    own[i] = kinds[i] == MISSING ? NULL : &states[i].own;
    twins[i] = kinds[i] == MISSING ? NULL : &states[i].twin;
    if (kinds[i] == INTO) into = &states[i].own;
  }
  if (into != &result.own) memcpy(result.twin_b, into->b, sizeof result.b);
  copy = result.twin;
  twh__state_merge(into, own, 0, split, dim);
  twh__state_merge(into, own, split, ROWS, dim);
  for (int64_t r = 0; r < ROWS; ++r) twh__state_merge(&copy, twins, r, r + 1, dim); /* one by one: not in blocks */
  assert_memory_equal(into->a, copy.a, ROWS * sizeof *copy.a);
  for (int64_t r = 0; r < ROWS; ++r) {
    if (copy.a[r] == 0) continue;
    assert_memory_equal(&into->m[r], &copy.m[r], sizeof *copy.m);
    assert_memory_equal(into->b + r * dim, copy.b + r * dim, (size_t)dim * sizeof *copy.b);
  }
  for (int64_t r = 0; r < ROWS; ++r) merge_check_row(states, kinds, &copy, r, dim);
}

static void merge_any_states_have_the_bits_of_nodes(void **state)
{
  static const int64_t dims[] = { 1, 8, 64, 65, DIM_MOST };
  static merge_state   states[TWH__FAN];
  support_random       random = support_random_at(6, 1);

  (void)state;
  for (int64_t d = 0; d < SUPPORT_COUNT(dims); ++d) {
    for (int code = 0; code < KINDS * KINDS * KINDS * KINDS; ++code) {
      int kinds[TWH__FAN], into = 0, there = 0;
      for (int i = 0, rest = code; i < TWH__FAN; ++i, rest /= KINDS) {
        kinds[i] = rest % KINDS;
        into += kinds[i] == INTO;
        there += kinds[i] != MISSING;
      }
      if (into <= 1 && there > 0 && (d == 2 || support_one_in(&random, 8))) merge_try(states, kinds, dims[d], &random);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(merge_any_states_have_the_bits_of_nodes) };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
