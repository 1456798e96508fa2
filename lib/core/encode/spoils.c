/* Data that must not share a slot. A weight of 0 does not silence a NaN or an infinity, and a code is only as strong as the
 * scores that it stands against are small: such tiles are found before they are encoded.
 *
 * A norm is bounded by the largest number of every column: one pass over a tile's rows, without a sum for each of them. */
#include <math.h>

#include "core/encode/operand.h"

enum { SPOILS_COLUMNS = 64 }; /* looked at together */

/* Of some columns the largest size so far, and a 0 that an infinity or a NaN turns into a NaN. */
typedef struct spoils_columns {
  float largest[SPOILS_COLUMNS], nothing[SPOILS_COLUMNS];
} spoils_columns;

TWH__CLONES static void spoils_add(spoils_columns *columns, const float *value, int64_t n)
{
  float *largest = columns->largest, *nothing = columns->nothing;
  for (int64_t c = 0; c < n; ++c) {
    float size = fabsf(value[c]);
    largest[c] = size > largest[c] ? size : largest[c];
    nothing[c] += size * 0;
  }
}

/* Which rows of the tensors are looked at: those of a tile's queries, or its keys. */
typedef struct spoils_rows {
  const twh__source *source;
  const twh__tile   *tile;
  const twh__view   *view;
  int64_t            count, dim;
  double             factor;
} spoils_rows;

static const char *spoils_row(const spoils_rows *rows, int64_t i)
{
  const twh__tile *tile = rows->tile;
  const twh__span *span = twh__source_span(rows->source, tile);
  int64_t          head, row;

  if (rows->view != rows->source->q) {
    return twh__view_row(rows->view, span->batch, tile->unit.kv_head, twh__tile_key_row(span, tile, tile->key + i));
  }
  twh__unit_row(&tile->unit, span, tile->row + i, &head, &row);
  return twh__view_row(rows->view, span->batch, head, row);
}

/* A bound of the rows' Euclidean norms times `factor`; NaN if some number is not finite in the kernel's dtype. */
static double spoils_norm(const spoils_rows *rows)
{
  int32_t dtype = rows->source->lowering->dtype;
  /* what rounds to infinity: half an ulp above the largest number */
  float   limit = dtype == TWH_F16 ? 65520.0f : dtype == TWH_BF16 ? 0x1.ffp127f : (float)INFINITY;
  int     direct = rows->view->dtype == TWH_F32 && rows->factor == 1;
  double  squares = 0;

  for (int64_t done = 0; done < rows->dim; done += SPOILS_COLUMNS) {
    int64_t        n = twh__min(SPOILS_COLUMNS, rows->dim - done);
    spoils_columns columns = { { 0 }, { 0 } };
    for (int64_t i = 0; i < rows->count; ++i) {
      const char *from = spoils_row(rows, i) + done * rows->view->item;
      float       part[SPOILS_COLUMNS];
      if (!direct) twh__encode_row((char *)part, TWH_F32, from, rows->view->dtype, rows->factor, n);
      spoils_add(&columns, direct ? (const float *)(const void *)from : part, n);
    }
    for (int64_t c = 0; c < n; ++c) {
      if (!(columns.nothing[c] == 0 && columns.largest[c] < limit)) return (double)NAN;
      squares += (double)columns.largest[c] * (double)columns.largest[c];
    }
  }
  return sqrt(squares);
}

/* The largest bias of the tile's keys as the kernel sees it; NaN if the coordinates cannot hold one of them. */
static double spoils_bias(const twh__source *source, const twh__tile *tile)
{
  const twh__lowering *lowering = source->lowering;
  const twh__span     *span = twh__source_span(source, tile);
  double               largest = 0;

  for (int64_t j = 0; lowering->bias_parts > 0 && j < tile->keys; ++j) {
    int64_t row = twh__tile_key_row(span, tile, tile->key + j), ref = twh__bias_ref(span, tile);
    double  bias = fabs(twh__bias_of(source, span, tile->unit.q_head, row, ref) / lowering->kernel_scale);
    if (!(bias <= twh__dtype_max(lowering->dtype))) return (double)NAN;
    if (bias > largest) largest = bias;
  }
  return largest;
}

int twh__encode_spoils(const twh__source *source, const twh__tile *tile)
{
  const twh__shape *shape = source->shape;
  int               codes = tile->mode != TWH_MASK_TENSOR && source->lowering->code != 0;
  double            norm = codes ? source->lowering->code_norm : (double)INFINITY;
  const spoils_rows q = { source, tile, source->q, tile->rows, shape->qk_dim, source->lowering->q_factor };
  const spoils_rows k = { source, tile, source->k, tile->keys, shape->qk_dim, 1 };
  const spoils_rows v = { source, tile, source->v, tile->keys, shape->v_dim - (source->centres != NULL), 1 };

  /* a score must stay within scale norm^2: of rows the norm, of keys what is left for them beside their bias */
  return !(spoils_norm(&q) <= norm) || !(spoils_norm(&k) + spoils_bias(source, tile) / norm <= norm) || isnan(spoils_norm(&v));
}
