/* Sampled spans: of the key blocks that all rows of a unit see some are exact, and from the others keys are drawn.
 *
 * Exact are the blocks in which rows see different keys, and for hybrids those with the first keys and those about the rows' own
 * positions: whole blocks, since a block is what a call costs. They are patches of the ordinary cover. The drawn keys come
 * behind them, in blocks of the grid's length, each with the weight of the keys it stands for. */
#include <math.h>
#include <string.h>

#include "core/pattern/sample.h"
#include "core/pattern/window.h"
#include "core/view/view.h"

/* Key blocks of a unit, by their number in the ordinary cover: 0 .. sinks - 1 and from .. to - 1 are exact. */
typedef struct sample_blocks {
  int64_t sinks, from, to;
  int64_t all;  /* with blocks of the pattern's own sinks behind them */
  int64_t keys; /* blocks without those */
} sample_blocks;

static int64_t sample_clamp(int64_t value, int64_t least, int64_t most)
{
  return value < least ? least : value > most ? most : value;
}

static sample_blocks sample_split(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  const twh__sampling *sampling = &span->sampling;
  const int64_t        k_block = twh__grid_keys(grid, span->kind), origin = span->k_offset / k_block;
  const int64_t        own = twh__span_row(span, unit->first) + span->q_origin; /* absolute position of the first row */
  sample_blocks        blocks;

  blocks.all = twh__cover_exact_patches(span, unit, grid);
  blocks.keys = blocks.all - twh__ceil_div(span->sinks, k_block);
  blocks.sinks = 0;
  blocks.from = blocks.to = blocks.keys;
  if (span->kind == TWH__SPAN_CAUSAL)
    blocks.from = sample_clamp((span->q_offset + unit->first + 1) / k_block - origin, 0, blocks.keys);
  if (!sampling->hybrid) return blocks;
  blocks.sinks = twh__min(blocks.keys, twh__ceil_div(span->k_offset - origin * k_block + sampling->sinks, k_block));
  blocks.from = sample_clamp(twh__floor_div(own - sampling->window, k_block) - origin, blocks.sinks, blocks.from);
  if (span->kind == TWH__SPAN_FULL) {
    const int64_t last = own + unit->rows - 1 + sampling->window;
    blocks.to = sample_clamp(twh__floor_div(last, k_block) + 1 - origin, blocks.from, blocks.keys);
  }
  return blocks;
}

/* Number of the span's key with which a block begins, kept within the span. */
static int64_t sample_key_of(const twh__span *span, const twh__grid *grid, int64_t block)
{
  const int64_t k_block = twh__grid_keys(grid, span->kind);
  return sample_clamp((span->k_offset / k_block + block) * k_block - span->k_offset, 0, span->k_len);
}

int twh__sample_applies(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  sample_blocks blocks;

  if (span->sampling.samples == 0) return 0;
  blocks = sample_split(span, unit, grid);
  return blocks.from - blocks.sinks + blocks.keys - blocks.to > span->sampling.samples;
}

int64_t twh__sample_patches(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  const sample_blocks blocks = sample_split(span, unit, grid);
  const int64_t       draws = span->sampling.samples * (span->sampling.estimate == TWH_ESTIMATE_DOUBLED ? 2 : 1);
  return blocks.sinks + blocks.to - blocks.from + blocks.all - blocks.keys + draws;
}

/* Keys that are drawn from. */
static int64_t sample_keys(const twh__span *span, const twh__grid *grid, const sample_blocks *blocks)
{
  return sample_key_of(span, grid, blocks->from) - sample_key_of(span, grid, blocks->sinks) +
         sample_key_of(span, grid, blocks->keys) - sample_key_of(span, grid, blocks->to);
}

int64_t twh__cover_drawn(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t *keys)
{
  sample_blocks blocks;

  *keys = 0;
  if (!twh__sample_applies(span, unit, grid)) return 0;
  blocks = sample_split(span, unit, grid);
  *keys = sample_keys(span, grid, &blocks);
  return twh__min(*keys, span->sampling.samples * twh__grid_keys(grid, span->kind));
}

/* Of sample number s. */
static int32_t sample_role(const twh__sampling *sampling, int64_t s)
{
  switch (sampling->estimate) {
  case TWH_ESTIMATE_REPLICATES: return TWH__DRAWN_SAMPLE;
  case TWH_ESTIMATE_DOUBLED: return s < sampling->samples ? TWH__DRAWN_FIRST : TWH__DRAWN_SQUARES;
  default: return TWH__DRAWN_PLAIN;
  }
}

/* Sample number s of a unit; from `samples` on once more, for the squares. */
static int sample_draw(const twh__span *span, const twh__unit *unit, const twh__grid *grid, const sample_blocks *blocks,
                       int64_t s, twh__patch *patch)
{
  const twh__sampling *sampling = &span->sampling;
  const int64_t        k_block = twh__grid_keys(grid, span->kind), strata = sampling->strata;
  const int64_t        draw = s % sampling->samples, per_stratum = sampling->samples / strata * k_block;
  const int64_t        number = draw % strata, begin = draw / strata * k_block;
  const int64_t        skip = sample_key_of(span, grid, blocks->sinks), gap = sample_key_of(span, grid, blocks->from);
  const int64_t        gap_end = sample_key_of(span, grid, blocks->to);
  const int64_t        keys = sample_keys(span, grid, blocks);
  const int64_t        stratum = keys / strata + (number < keys % strata);
  twh__sample         *sample = &patch->sample;

  if (begin >= stratum) return 0;
  patch->block = span->k_offset / k_block + blocks->all + s;
  patch->row = 0;
  patch->rows = unit->rows;
  patch->key = begin;
  patch->keys = twh__min(k_block, stratum - begin);
  twh__cover_edges(patch, -patch->rows, patch->keys);
  sample->skip = skip;
  sample->gap = gap;
  sample->gap_keys = gap_end - gap;
  sample->first = keys / strata * number + twh__min(number, keys % strata);
  sample->stratum = stratum;
  sample->seed = twh__sample_mix(sampling->seed, (uint64_t)span->sequence);
  sample->seed = twh__sample_mix(sample->seed, (uint64_t)unit->q_head);
  sample->seed = twh__sample_mix(sample->seed, (uint64_t)unit->first);
  sample->seed = twh__sample_mix(sample->seed, (uint64_t)number);
  sample->role = sample_role(sampling, s);
  sample->log_weight = log((double)stratum / (double)twh__min(stratum, per_stratum));
  return 1;
}

int twh__sample_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, twh__patch *patch)
{
  const sample_blocks blocks = sample_split(span, unit, grid);

  if (index < blocks.sinks) return twh__cover_exact_patch(span, unit, grid, index, patch);
  index -= blocks.sinks;
  if (index < blocks.to - blocks.from) return twh__cover_exact_patch(span, unit, grid, blocks.from + index, patch);
  index -= blocks.to - blocks.from;
  if (index < blocks.all - blocks.keys) return twh__cover_exact_patch(span, unit, grid, blocks.keys + index, patch);
  return sample_draw(span, unit, grid, &blocks, index - (blocks.all - blocks.keys), patch);
}
