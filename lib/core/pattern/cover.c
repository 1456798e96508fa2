/* The cover: a span's rows in units, a unit's keys in patches.
 *
 * The grid of keys is anchored at span position 0, which is absolute key 0 unless the span is mirrored, so that a key block has
 * the same ordinal whatever the query, the chunk or the shard. Units of causal and window spans are anchored at position 0 too,
 * so that blocks meet the diagonal in their corners; units of full spans start at row 0. How a window's unit is covered is in
 * window.c. */
#include <string.h>

#include "core/pattern/sample.h"
#include "core/pattern/window.h"

static int64_t cover_block_rows(const twh__span *span, const twh__grid *grid)
{
  return span->kind == TWH__SPAN_WINDOW ? twh__window_chunk(span, grid) : twh__grid_rows(grid, span->kind);
}

/* Rows of the first unit of an anchored span: up to the next multiple of `block_rows`. */
static int64_t cover_head_rows(const twh__span *span, int64_t block_rows)
{
  int64_t block = twh__floor_div(span->q_offset, block_rows);
  return twh__min(span->q_len, (block + 1) * block_rows - span->q_offset);
}

static int64_t cover_units_per_head(const twh__span *span, int64_t group, int64_t block_rows)
{
  if (span->kind == TWH__SPAN_FULL) return twh__ceil_div(span->q_len * (span->stacked ? group : 1), block_rows);
  return 1 + twh__ceil_div(span->q_len - cover_head_rows(span, block_rows), block_rows);
}

int64_t twh__cover_units(const twh__span *span, int64_t group, const twh__grid *grid)
{
  return cover_units_per_head(span, group, cover_block_rows(span, grid)) * (span->stacked ? 1 : group);
}

void twh__cover_unit(const twh__span *span, int64_t group, const twh__grid *grid, int64_t index, twh__unit *unit)
{
  int64_t block_rows = cover_block_rows(span, grid), per_head = cover_units_per_head(span, group, block_rows);
  int64_t head = index / per_head, block = index % per_head, rows = span->q_len * (span->stacked ? group : 1);

  unit->q_head = unit->kv_head * group + head;
  unit->first = block * block_rows;
  if (span->kind != TWH__SPAN_FULL) {
    int64_t before = cover_head_rows(span, block_rows);
    if (block == 0) rows = before;
    if (block > 0) unit->first = before + (block - 1) * block_rows;
  }
  unit->rows = twh__min(block_rows, rows - unit->first);
}

void twh__cover_edges(twh__patch *patch, int64_t from, int64_t seen)
{
  static const twh__edge nothing = { 0, 0, 1, 1 };
  int open = from + patch->rows - 1 <= 0, whole = seen >= patch->keys;

  patch->from = patch->seen = nothing;
  patch->seen.start = patch->keys;
  if (!open) {
    patch->from.start = from;
    patch->from.step = 1;
  }
  if (!whole) {
    patch->seen.start = seen;
    patch->seen.step = 1;
  }
  patch->shape = open ? (whole ? TWH_SHAPE_FULL : TWH_SHAPE_LOWER) : whole ? TWH_SHAPE_UPPER : TWH_SHAPE_BAND;
  patch->lead = 0;
  memset(&patch->sample, 0, sizeof patch->sample);
}

int twh__cover_sinks(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, twh__patch *patch)
{
  int64_t k_block = twh__grid_keys(grid, span->kind), before = index * k_block;

  if (before >= span->sinks) return 0;
  patch->row = 0;
  patch->rows = unit->rows;
  patch->key = span->sink_key + before;
  patch->keys = twh__min(k_block, span->sinks - before);
  twh__cover_edges(patch, -patch->rows, patch->keys);
  return 1;
}

/* Key blocks that some row of the unit sees; 0: none. */
static int64_t cover_blocks(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  int64_t end = span->k_offset + span->k_len, k_block = twh__grid_keys(grid, span->kind); /* end: position, exclusive */

  if (span->kind == TWH__SPAN_CAUSAL) end = twh__min(end, span->q_offset + unit->first + unit->rows);
  if (end <= span->k_offset) return 0;
  return (end - 1) / k_block - span->k_offset / k_block + 1;
}

int64_t twh__cover_exact_patches(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  if (span->kind == TWH__SPAN_WINDOW) return twh__window_patches(span, unit, grid);
  return cover_blocks(span, unit, grid) + twh__ceil_div(span->sinks, twh__grid_keys(grid, span->kind));
}

int twh__cover_exact_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, twh__patch *patch)
{
  int64_t k_block = twh__grid_keys(grid, span->kind), block, begin, end, position, row, blocks;

  if (span->kind == TWH__SPAN_WINDOW) return twh__window_patch(span, unit, grid, index, patch);
  blocks = cover_blocks(span, unit, grid);
  if (index >= blocks) {
    if (!twh__cover_sinks(span, unit, grid, index - blocks, patch)) return 0;
    patch->block = (span->k_offset + span->k_len - 1) / k_block + 1 + index - blocks; /* the same in all units */
    return 1;
  }
  block = span->k_offset / k_block + index;
  begin = twh__max(block * k_block, span->k_offset);
  end = twh__min(block * k_block + k_block, span->k_offset + span->k_len);
  row = 0;
  position = end; /* of the first row, where it matters */
  if (span->kind == TWH__SPAN_CAUSAL) {
    position = span->q_offset + unit->first;
    end = twh__min(end, position + unit->rows); /* keys behind the last row are seen by none */
    row = twh__max(0, begin - position);        /* rows before the first key see none */
  }
  patch->block = block;
  patch->row = row;
  patch->rows = unit->rows - row;
  patch->key = begin - span->k_offset;
  patch->keys = end - begin;
  twh__cover_edges(patch, -patch->rows, position + row - begin + 1);
  return 1;
}

int64_t twh__cover_patches(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  if (twh__sample_applies(span, unit, grid)) return twh__sample_patches(span, unit, grid);
  return twh__cover_exact_patches(span, unit, grid);
}

int twh__cover_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, twh__patch *patch)
{
  if (twh__sample_applies(span, unit, grid)) return twh__sample_patch(span, unit, grid, index, patch);
  return twh__cover_exact_patch(span, unit, grid, index, patch);
}

int64_t twh__cover_whole(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  int64_t end = span->k_offset + span->k_len, k_block = twh__grid_keys(grid, span->kind);

  if (span->kind == TWH__SPAN_WINDOW || span->sampling.samples > 0) return 0;
  if (span->kind == TWH__SPAN_CAUSAL) end = twh__min(end, span->q_offset + unit->first + 1); /* what the first row sees */
  return twh__max(0, end / k_block - span->k_offset / k_block - 1);
}
