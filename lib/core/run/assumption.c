/* May drawn keys stand for the others? A few pairs, scored by the host, tell whether some keys weigh much more than the rest.
 *
 * Of blocks of rows that are spread over the problem some rows are scored with keys that were drawn for them. If a row's logits
 * spread by s about their mean, as normal numbers do, weights have a relative variance of e^(s^2) - 1, and a sum of m of n of them
 * one of (e^(s^2) - 1) (1/m - 1/n). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/run/run.h"

enum { ASSUMPTION_BLOCKS = 64, ASSUMPTION_ROWS = 8, ASSUMPTION_KEYS = 32 };

/* Relative variance of a sum that is too much: 30% squared. */
#define ASSUMPTION_VARIANCE 0.09

typedef struct assumption_block {
  const twh__span *span;
  twh__tile        tile; /* of drawn keys, all of them seen */
  int64_t          drawn, keys;
} assumption_block;

/* A unit of the plan and the keys that are drawn for it; 0: none are. */
static int assumption_find(const twh_plan *plan, int64_t index, assumption_block *block)
{
  int64_t          s = 0, units, patches;
  const twh__grid *grid;
  twh__patch       patch;

  while (s + 1 < plan->spans_count && index >= plan->spans[s + 1].first_unit) ++s;
  block->span = &plan->spans[s];
  grid = &plan->kernels[block->span->kernel].lowering.grid;
  units = twh__cover_units(block->span, plan->shape.group, grid);
  memset(&block->tile, 0, sizeof block->tile);
  block->tile.unit.span = s;
  block->tile.unit.kv_head = (index - block->span->first_unit) / units;
  twh__cover_unit(block->span, plan->shape.group, grid, (index - block->span->first_unit) % units, &block->tile.unit);
  block->drawn = twh__cover_drawn(block->span, &block->tile.unit, grid, &block->keys);
  if (block->drawn == 0) return 0;
  patches = twh__cover_patches(block->span, &block->tile.unit, grid); /* drawn ones are the last; some may be empty */
  while (!twh__cover_patch(block->span, &block->tile.unit, grid, --patches, &patch)) continue;
  if (patch.keys < 2) return 0;
  block->tile.key = patch.key;
  block->tile.rows = block->tile.unit.rows;
  block->tile.keys = twh__min(patch.keys, ASSUMPTION_KEYS);
  block->tile.sample = patch.sample;
  block->tile.at_step = 1;
  block->tile.from.quantum = block->tile.from.unit = block->tile.seen.quantum = block->tile.seen.unit = 1;
  block->tile.seen.start = block->tile.keys;
  return 1;
}

/* Of the checked blocks of one head: the sum of their weights' relative variances (a few blocks with wide logits must not drown in
 * the others), and of the block that needs most how many keys are drawn from how many. */
typedef struct assumption_head {
  int64_t head, drawn, keys, key_block;
  int64_t blocks;
  double  variance;
} assumption_head;

/* What the pairs have shown so far. */
typedef struct assumption_found {
  double          std, range, value, out; /* the last two: the longest value row and the shortest row of out */
  int64_t         std_head, range_head, samples, heads;
  int             broken;
  assumption_head head[ASSUMPTION_BLOCKS];
} assumption_found;

/* A NaN stays. */
static int assumption_is_larger(double *largest, double value)
{
  if (isnan(*largest) || value <= *largest) return 0;
  *largest = value;
  return 1;
}

static double assumption_length(const twh__view *view, const char *row, int64_t dim)
{
  double squares = 0;
  for (int64_t c = 0; c < dim; ++c) squares += twh__load(row, view->dtype, c) * twh__load(row, view->dtype, c);
  return sqrt(squares);
}

static void assumption_values(const twh__run *run, const assumption_block *block, assumption_found *found)
{
  for (int64_t j = 0; j < block->tile.keys; ++j) {
    int64_t     row = twh__tile_key_row(block->span, &block->tile, twh__tile_key(&block->tile, j));
    const char *value = twh__view_row(&run->v, block->span->batch, block->tile.unit.kv_head, row);
    (void)assumption_is_larger(&found->value, assumption_length(&run->v, value, run->plan->shape.v_dim));
  }
}

/* One row's scores: returns the sum of squares about their mean. */
static double assumption_row(const twh__run *run, const assumption_block *block, const twh__source *source, int64_t r,
                             assumption_found *found)
{
  const int64_t n = block->tile.keys;
  double        score[ASSUMPTION_KEYS], mean = 0, squares = 0, least = (double)INFINITY, most = -(double)INFINITY, length;
  int64_t       head, row;

  twh__host_scores(source, &block->tile, r, score);
  for (int64_t k = 0; k < n; ++k) {
    mean += score[k] / (double)n;
    least = fmin(least, score[k]);
    most = fmax(most, score[k]);
  }
  for (int64_t k = 0; k < n; ++k) squares += (score[k] - mean) * (score[k] - mean);
  twh__unit_row(&block->tile.unit, block->span, r, &head, &row);
  if (assumption_is_larger(&found->range, most - least)) found->range_head = head;
  length = assumption_length(&run->out, twh__view_row(&run->out, block->span->batch, head, row), run->plan->shape.v_dim);
  if (!(length >= found->out)) found->out = length;
  return squares;
}

static assumption_head *assumption_head_of(assumption_found *found, int64_t number)
{
  assumption_head *head = found->head;

  while (head < found->head + found->heads && head->head != number) ++head;
  if (head < found->head + found->heads) return head;
  ++found->heads;
  memset(head, 0, sizeof *head);
  head->head = number;
  return head;
}

static void assumption_check_block(const twh__run *run, const assumption_block *block, assumption_found *found)
{
  const twh__kernel *kernel = &run->plan->kernels[block->span->kernel];
  int64_t            rows = twh__min(ASSUMPTION_ROWS, block->tile.rows);
  assumption_head   *head = assumption_head_of(found, block->tile.unit.q_head);
  double             squares = 0, variance;
  twh__source        source;

  twh__run_kernel_source(run, kernel, &source);
  for (int64_t i = 0; i < rows; ++i) {
    squares += assumption_row(run, block, &source, (2 * i + 1) * block->tile.rows / (2 * rows), found);
  }
  variance = squares / (double)(rows * (block->tile.keys - 1));
  if (assumption_is_larger(&found->std, sqrt(variance))) found->std_head = head->head;
  head->variance += expm1(variance);
  ++head->blocks;
  assumption_values(run, block, found);
  if (head->drawn > 0 && 1 / (double)block->drawn - 1 / (double)block->keys <= 1 / (double)head->drawn - 1 / (double)head->keys)
    return;
  head->drawn = block->drawn;
  head->keys = block->keys;
  head->key_block = twh__grid_keys(&kernel->lowering.grid, block->span->kind);
}

static void assumption_check_head(const assumption_head *head, assumption_found *found)
{
  double  variance = head->variance / (double)head->blocks;
  int64_t needed;

  found->broken |= !(variance * (1 / (double)head->drawn - 1 / (double)head->keys) <= ASSUMPTION_VARIANCE);
  if (isnan(variance)) return;
  needed = (int64_t)ceil(1 / (ASSUMPTION_VARIANCE / variance + 1 / (double)head->keys) / (double)head->key_block);
  found->samples = twh__max(found->samples, needed);
}

static void assumption_say(const twh_plan *plan, const assumption_found *found, twh_run_stats *stats)
{
  char  *words = stats->words;
  size_t bytes = sizeof stats->words;

  stats->assumption = TWH_ASSUMPTION_BROKEN;
  if (!isfinite(found->std) || !isfinite(found->range)) {
    snprintf(words, bytes, "head %lld has logits that are not finite: drawn keys say nothing of the others",
             (long long)found->std_head);
  } else if (found->broken) {
    snprintf(
      words, bytes,
      "head %lld: logits spread by up to %.3g about a row's mean, so that a few keys weigh more than all others: it would take %lld "
      "samples of drawn keys for each block of rows, and the plan has %lld",
      (long long)found->std_head, found->std, (long long)found->samples, (long long)plan->samples);
  } else if (plan->bound_c > 0 && !(stats->measured_c <= plan->bound_c)) {
    snprintf(words, bytes, "head %lld: e^logit varies by a factor of %.3g within a row; with bound_c %g it is at most %.3g",
             (long long)found->range_head, exp(found->range), plan->bound_c, plan->bound_c * plan->bound_c);
  } else if (plan->bound_d > 0 && !(stats->measured_d <= plan->bound_d)) {
    snprintf(words, bytes, "a value row of length %.3g stands beside a result of length %.3g; bound_d is %g", found->value,
             found->out, plan->bound_d);
  } else {
    stats->assumption = TWH_ASSUMPTION_HOLDS;
  }
}

void twh__run_check_assumption(twh__run *run)
{
  const twh_plan  *plan = run->plan;
  const int64_t    units = plan->units, tries = twh__min(units, 8 * ASSUMPTION_BLOCKS);
  assumption_found found;
  int64_t          blocks = 0;

  if (plan->tally.drawn_tiles == 0) return;
  memset(&found, 0, sizeof found);
  found.out = (double)INFINITY;
  found.samples = 1;
  for (int64_t i = 0; i < tries && blocks < ASSUMPTION_BLOCKS; ++i) {
    assumption_block block;
    int64_t          index = i; /* or any: a stride would see the same part of each head */
    if (units > ASSUMPTION_BLOCKS) index = (int64_t)(twh__sample_mix(plan->seed, (uint64_t)i) % (uint64_t)units);
    if (!assumption_find(plan, index, &block)) continue;
    assumption_check_block(run, &block, &found);
    ++blocks;
  }
  if (blocks == 0) return;
  for (int64_t h = 0; h < found.heads; ++h) assumption_check_head(&found.head[h], &found);
  run->stats.samples_needed = found.samples;
  run->stats.logit_std = found.std;
  run->stats.measured_c = exp(found.range / 2);
  run->stats.measured_d = found.value > 0 ? found.value / found.out : 0;
  assumption_say(plan, &found, &run->stats);
}
