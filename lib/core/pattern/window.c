/* The cover of a window of r keys, by units of c rows (chunks, anchored at position 0).
 *
 * For kernels with triangles only (Theorem 5.1, without its subtraction): the lower triangle over the chunk's own keys, the
 * upper trapezoid over the r - 1 keys before it, rectangles between them where those do not fit one patch. For r < c <= 2r the
 * rows from r on must not see all of the first c - r own keys: that rectangle is cut from the triangle, and the part of it
 * that they do see is an upper triangle of its own. For kernels with a mask (grid->band): the keys that the unit sees, block by
 * block. Sinks lead patch 0 where all rows of the unit are part of it; otherwise they are rectangles behind the rest. */
#include "core/pattern/window.h"

/* Numbers of the patches of a triangle-wise cover; rectangles follow. */
enum { WINDOW_OWN, WINDOW_REST, WINDOW_BEFORE, WINDOW_BETWEEN };

/* A unit in positions. Row p sees the keys p - width + 1 .. p, of k_begin .. k_end - 1. */
typedef struct window_unit {
  const twh__span *span;
  int64_t          width, chunk, block;
  int64_t          start;           /* of the chunk: a multiple of `chunk` */
  int64_t          first, until;    /* rows, the last one exclusive */
  int64_t          k_begin, k_end;
} window_unit;

static int window_may_lead(const twh__span *span, const twh__grid *grid)
{
  return grid->lead && span->sinks > 0 && span->sinks < grid->k_block;
}

int64_t twh__window_chunk(const twh__span *span, const twh__grid *grid)
{
  int64_t chunk = grid->chunk;

  if (grid->band) return chunk;
  chunk = twh__min(chunk, grid->k_block - (window_may_lead(span, grid) ? span->sinks : 0));
  return chunk / 2 >= span->width ? 2 * span->width : chunk;
}

static window_unit window_look(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  window_unit w;

  w.span = span;
  w.width = span->width;
  w.chunk = twh__window_chunk(span, grid);
  w.block = grid->k_block;
  w.first = span->q_offset + unit->first;
  w.until = w.first + unit->rows;
  w.start = twh__floor_div(w.first, w.chunk) * w.chunk;
  w.k_begin = span->k_offset;
  w.k_end = span->k_offset + span->k_len;
  return w;
}

/* The patch of the rows first .. until - 1 and the keys begin .. end - 1, all in positions, of which row p sees from
 * p - reach to p. 0: it is empty. */
static int window_place(const window_unit *w, int64_t first, int64_t until, int64_t begin, int64_t end, int64_t reach,
                        twh__patch *patch)
{
  if (first >= until || begin >= end) return 0;
  patch->row = first - w->first;
  patch->rows = until - first;
  patch->key = begin - w->k_begin;
  patch->keys = end - begin;
  twh__cover_edges(patch, first - reach - begin, first - begin + 1);
  return 1;
}

/* The chunk's own keys. */
static int window_own(const window_unit *w, twh__patch *patch)
{
  int64_t begin = w->start, end = twh__min(w->until, w->k_end), until = w->until, cut = 0;

  if (w->chunk > w->width && w->until > w->start + w->width) cut = w->chunk - w->width;
  if (cut > 0 && w->first >= w->start + w->width) { /* no row sees what is to be cut */
    begin += cut;
    cut = 0;
  }
  if (cut > 0 && end <= begin + cut) {              /* the rows that do not see it see nothing here */
    until = w->start + w->width;
    cut = 0;
  }
  /* apart from the cut, no row's window begins behind `begin` */
  if (!window_place(w, w->first, until, begin, end, w->chunk, patch)) return 0;
  if (cut > 0) {
    const twh__edge from = { w->first - begin, 1, w->width, cut }, seen = { w->first - begin + 1, 1, 1, 1 };
    patch->from = from;
    patch->seen = seen;
    patch->shape = TWH_SHAPE_LOWER;
  }
  return 1;
}

/* What the cut took too much. */
static int window_rest(const window_unit *w, twh__patch *patch)
{
  int64_t first = twh__max(w->first, w->start + w->width), begin = first - w->width + 1;
  int64_t end = twh__min(w->start + w->chunk - w->width, w->k_end);

  return window_place(w, first, twh__min(w->until, end + w->width - 1), begin, end, w->width - 1, patch);
}

/* Keys before the chunk that are in patches with a diagonal: all, if they fit one. */
static int64_t window_slanted(const window_unit *w)
{
  return w->width - 1 > w->block ? twh__min(w->width - 1, w->chunk) : w->width - 1;
}

static int window_before(const window_unit *w, twh__patch *patch)
{
  int64_t end = twh__min(w->start - (w->width - 1) + window_slanted(w), w->k_end);

  return window_place(w, w->first, twh__min(w->until, end + w->width - 1), w->first - (w->width - 1), end, w->width - 1, patch);
}

/* Rectangles that hold the rest of the keys before the chunk, up to `end`. */
static int64_t window_rectangles(const window_unit *w, int64_t end)
{
  return twh__ceil_div(twh__min(w->start, end) - (w->start - (w->width - 1) + window_slanted(w)), w->block);
}

static int window_between(const window_unit *w, int64_t index, twh__patch *patch)
{
  int64_t begin = w->start - (w->width - 1) + window_slanted(w) + index * w->block;
  int64_t end = twh__min(begin + w->block, twh__min(w->start, w->k_end));

  return window_place(w, w->first, w->until, begin, end, w->width - 1, patch);
}

/* Whether sinks lead patch 0: all rows must be part of it. */
static int window_leads(const window_unit *w, const twh__grid *grid)
{
  twh__patch own;

  if (!window_may_lead(w->span, grid)) return 0;
  if (!grid->band) return window_own(w, &own) && own.rows == w->until - w->first;
  return w->until - w->width < twh__min(w->k_end, w->first - w->width + 1 + grid->k_block - w->span->sinks);
}

/* Band-wise: keys of the unit's blocks; block 0 may be shorter by the sinks that lead it. */
static int64_t window_keys(const window_unit *w)
{
  return twh__min(w->k_end, w->until) - (w->first - (w->width - 1));
}

static int window_band(const window_unit *w, int64_t index, int64_t lead, twh__patch *patch)
{
  int64_t base = w->first - (w->width - 1), keys = window_keys(w);
  int64_t begin = base + (index > 0 ? index * w->block - lead : 0);
  int64_t end = twh__min(base + (index + 1) * w->block - lead, base + keys);

  return window_place(w, twh__max(w->first, begin), twh__min(w->until, end + w->width - 1), begin, end, w->width - 1, patch);
}

int64_t twh__window_patches(const twh__span *span, const twh__unit *unit, const twh__grid *grid)
{
  window_unit w = window_look(span, unit, grid);
  int64_t     lead = window_leads(&w, grid) ? span->sinks : 0;

  return twh__ceil_div(span->sinks - lead, w.block) +
         (grid->band ? twh__ceil_div(window_keys(&w) + lead, w.block) : WINDOW_BETWEEN + window_rectangles(&w, w.k_end));
}

int twh__window_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, twh__patch *patch)
{
  window_unit w = window_look(span, unit, grid);
  int         leads = window_leads(&w, grid), found;
  int64_t     lead = leads ? span->sinks : 0, block = index, sinks; /* number of the first patch of sinks */

  if (grid->band) {
    sinks = twh__ceil_div(window_keys(&w) + lead, w.block);
  } else {
    sinks = WINDOW_BETWEEN + window_rectangles(&w, w.k_end);
    if (index >= sinks) block += window_rectangles(&w, w.start) + WINDOW_BETWEEN - sinks; /* the same in all units */
  }
  if (index >= sinks) {
    found = !leads && twh__cover_sinks(span, unit, grid, index - sinks, patch);
  } else if (grid->band) {
    found = window_band(&w, index, lead, patch);
  } else {
    found = index == WINDOW_OWN      ? window_own(&w, patch)
            : index == WINDOW_REST   ? window_rest(&w, patch)
            : index == WINDOW_BEFORE ? window_before(&w, patch)
                                     : window_between(&w, index - WINDOW_BETWEEN, patch);
  }
  if (!found) return 0;
  patch->block = block;
  if (index == 0 && leads) {
    patch->lead = 1;
    /* a rectangle might become two tiles, but its sinks must be in one */
    if (!grid->band && patch->shape == TWH_SHAPE_FULL) {
      const twh__edge seen = { w.first - (patch->key + w.k_begin) + 1, 1, 1, 1 };
      patch->seen = seen;
      patch->shape = TWH_SHAPE_LOWER;
    }
  }
  return 1;
}
