/* The cover: a span's rows in units, a unit's keys in patches, on a grid anchored at absolute position 0.
 *
 * The grid of keys is anchored at absolute key 0, so that a key block has the same ordinal whatever the query, the chunk or the
 * shard. Causal units are anchored at absolute position 0 too, so that blocks meet the diagonal in their corners; units of full
 * spans start at row 0. */
#include "core/pattern/pattern.h"

/* Rows of the first unit of a causal span: up to the next multiple of q_block. */
static int64_t cover_head_rows(const twh__span *span, int64_t q_block)
{
  int64_t block = twh__floor_div(span->q_offset, q_block);
  return twh__min(span->q_len, (block + 1) * q_block - span->q_offset);
}

static int64_t cover_units_per_head(const twh__span *span, int64_t group, int64_t q_block)
{
  if (!span->causal) return twh__ceil_div(span->q_len * (span->stacked ? group : 1), q_block);
  return 1 + twh__ceil_div(span->q_len - cover_head_rows(span, q_block), q_block);
}

int64_t twh__cover_units(const twh__span *span, int64_t group, int64_t q_block)
{
  return cover_units_per_head(span, group, q_block) * (span->stacked ? 1 : group);
}

void twh__cover_unit(const twh__span *span, int64_t group, int64_t q_block, int64_t index, twh__unit *unit)
{
  int64_t per_head = cover_units_per_head(span, group, q_block);
  int64_t head = index / per_head, block = index % per_head, rows = span->q_len * (span->stacked ? group : 1);

  unit->q_head = unit->kv_head * group + head;
  if (span->causal) {
    int64_t before = cover_head_rows(span, q_block);
    unit->first = block == 0 ? 0 : before + (block - 1) * q_block;
    unit->rows = block == 0 ? before : twh__min(q_block, rows - unit->first);
  } else {
    unit->first = block * q_block;
    unit->rows = twh__min(q_block, rows - unit->first);
  }
}

int64_t twh__cover_blocks(const twh__span *span, const twh__unit *unit, int64_t k_block)
{
  int64_t end = span->k_offset + span->k_len; /* absolute, exclusive */

  if (span->causal) end = twh__min(end, span->q_offset + unit->first + unit->rows);
  if (end <= span->k_offset) return 0;
  return (end - 1) / k_block - span->k_offset / k_block + 1;
}

void twh__cover_patch(const twh__span *span, const twh__unit *unit, int64_t k_block, int64_t index, twh__patch *patch)
{
  int64_t begin, end, position;

  patch->block = span->k_offset / k_block + index;
  begin = twh__max(patch->block * k_block, span->k_offset);
  end = twh__min(patch->block * k_block + k_block, span->k_offset + span->k_len);
  patch->row = 0;
  patch->shape = TWH_SHAPE_FULL;
  if (span->causal) {
    position = span->q_offset + unit->first;
    end = twh__min(end, position + unit->rows);      /* keys behind the last row are seen by none */
    if (position < begin) {                          /* rows before the first key see none */
      patch->row = begin - position;
      position = begin;
    }
    if (position < end - 1) patch->shape = TWH_SHAPE_LOWER;
    patch->seen = position - begin + 1;
  }
  patch->rows = unit->rows - patch->row;
  patch->key = begin - span->k_offset;
  patch->keys = end - begin;
  if (patch->shape == TWH_SHAPE_FULL) patch->seen = patch->keys;
}

int64_t twh__cover_whole(const twh__span *span, const twh__unit *unit, int64_t k_block)
{
  int64_t end = span->k_offset + span->k_len;

  if (span->causal) end = twh__min(end, span->q_offset + unit->first + 1); /* what the first row sees */
  return twh__max(0, twh__floor_div(end, k_block) - span->k_offset / k_block - 1);
}
