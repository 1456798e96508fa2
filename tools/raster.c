/* Adding up and drawing: see raster.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "raster.h"
#include "svg.h"

enum { RASTER_PARTS = 5 }; /* of a cell's height, a pixel each at least; and of a colour's strength */

/* Cells of a length that takes so many pixels. */
static int raster_cells(int64_t length, double pixels)
{
  int most = pixels < RASTER_PARTS * RASTER_CELLS ? (int)(pixels / RASTER_PARTS) : RASTER_CELLS;
  return length < most ? (int)length : most;
}

int raster_init(raster *out, const sketch_view *view)
{
  out->rows = view->rows;
  out->keys = view->keys;
  out->down = raster_cells(view->rows, view->height);
  out->across = raster_cells(view->keys, view->width);
  out->pairs = (double *)calloc((size_t)out->down * (size_t)out->across * SKETCH_KINDS + 1, sizeof *out->pairs);
  return out->pairs != NULL;
}

void raster_finish(raster *cells)
{
  free(cells->pairs);
  cells->pairs = NULL;
}

/* `weight` rows of keys from .. to - 1 in one row of cells. */
static void raster_row(raster *cells, int down, int64_t from, int64_t to, double weight, int kind)
{
  double  per_cell = (double)cells->keys / (double)cells->across;
  double *row = cells->pairs + (int64_t)down * cells->across * SKETCH_KINDS;

  for (int cell = (int)((double)from / per_cell); cell < cells->across && (double)cell * per_cell < (double)to; ++cell) {
    double begin = fmax((double)from, (double)cell * per_cell), end = fmin((double)to, (double)(cell + 1) * per_cell);
    if (end > begin) row[cell * SKETCH_KINDS + kind] += (end - begin) * weight;
  }
}

/* Key by key; rows in the same row of cells together. */
static void raster_scatter(raster *cells, const sketch_tile *tile)
{
  double per_cell = (double)cells->rows / (double)cells->down;

  for (int64_t t = 0; t < tile->info->k_len; ++t) {
    int64_t row, end, n, key = sketch_key(tile, t, &row, &end);
    for (; row < end; row += n) {
      int down = (int)((double)row / per_cell);
      if (down >= cells->down) down = cells->down - 1;
      n = (int64_t)ceil((double)(down + 1) * per_cell) - row;
      if (n < 1) n = 1;
      if (n > end - row) n = end - row;
      raster_row(cells, down, key, key + 1, (double)n, sketch_kind_of(tile->info));
    }
  }
}

/* Some rows stand for all: at least sixteen of a tile, and four in a cell. */
void raster_add(raster *cells, const sketch_tile *tile)
{
  const twh_tile_info *info = tile->info;
  double               per_cell = (double)cells->rows / (double)cells->down;
  int64_t              step = info->q_len / 16, finest = (int64_t)(per_cell / 4), from, to;

  if (tile->scattered) {
    raster_scatter(cells, tile);
    return;
  }
  if (step > finest) step = finest;
  if (step < 1) step = 1;
  for (int64_t t = 0; t < info->q_len; t += step) {
    int64_t n = step < info->q_len - t ? step : info->q_len - t, row = tile->row + t + n / 2;
    int     down = (int)((double)row / per_cell);
    if (down >= cells->down) down = cells->down - 1;
    if (sketch_range(tile, row, &from, &to)) raster_row(cells, down, from, to, (double)n, sketch_kind_of(info));
    if (info->sink_len > 0) raster_row(cells, down, tile->sink, tile->sink + info->sink_len, (double)n, SKETCH_SINKS);
  }
}

/* What a cell looks like: of each kind, the parts of its height from .. to - 1; and the strength of its colours, 0 for none. */
typedef struct raster_look {
  int from[SKETCH_KINDS], to[SKETCH_KINDS], strength;
} raster_look;

static void raster_look_at(const raster *cells, int down, int across, raster_look *look)
{
  const double *pairs = cells->pairs + ((int64_t)down * cells->across + across) * SKETCH_KINDS;
  double        area = (double)cells->rows / (double)cells->down * ((double)cells->keys / (double)cells->across);
  double        sum = 0.0;
  int           parts[SKETCH_KINDS], all = 0, most = 0;

  memset(look, 0, sizeof *look);
  for (int kind = 0; kind < SKETCH_KINDS; ++kind) sum += pairs[kind];
  if (!(sum > 0.0)) return;
  for (int kind = 0; kind < SKETCH_KINDS; ++kind) { /* a kind that is there shows */
    parts[kind] = pairs[kind] > 0.0 ? (int)fmax(1.0, floor(pairs[kind] / sum * RASTER_PARTS + 0.5)) : 0;
    all += parts[kind];
    if (pairs[kind] > pairs[most]) most = kind;
  }
  parts[most] += RASTER_PARTS - all;
  for (int kind = 0; kind < SKETCH_KINDS; ++kind) {
    look->from[kind] = kind ? look->to[kind - 1] : 0;
    look->to[kind] = look->from[kind] + parts[kind];
  }
  look->strength = (int)fmin(RASTER_PARTS, ceil(sum / area * RASTER_PARTS));
}

/* Parts from .. to - 1 of the cells first .. end - 1 of a row. Edges are whole pixels, so that no gap shows between neighbours.
 * */
static void raster_run(FILE *to, const raster *cells, const sketch_view *view, int down, int first, int end, const int parts[2])
{
  double width = view->width / cells->across, height = view->height / cells->down / RASTER_PARTS;
  double x = floor(view->x + first * width + 0.5), x_end = floor(view->x + end * width + 0.5);
  double y = floor(view->y + (down * RASTER_PARTS + parts[0]) * height + 0.5);
  double y_end = floor(view->y + (down * RASTER_PARTS + parts[1]) * height + 0.5);

  fprintf(to, "M%.0f %.0fh%.0fv%.0fh-%.0fz", x, y, x_end - x, y_end - y, x_end - x);
}

/* All that is of one colour is one path; cells side by side that look alike are one rectangle of it. */
static void raster_layer(FILE *to, const raster *cells, const sketch_view *view, int kind, int strength)
{
  int drawn = 0;

  for (int down = 0; down < cells->down; ++down) {
    int parts[2] = { 0, 0 }, first = 0;
    for (int across = 0; across <= cells->across; ++across) {
      raster_look look;
      int         next[2] = { 0, 0 };
      if (across < cells->across) {
        raster_look_at(cells, down, across, &look);
        if (look.strength == strength) {
          next[0] = look.from[kind];
          next[1] = look.to[kind];
        }
      }
      if (next[0] == parts[0] && next[1] == parts[1]) continue;
      if (parts[1] > parts[0]) {
        if (!drawn++) {
          fprintf(to, "<path class=\"%s\" fill=\"%s\" fill-opacity=\"%.2f\" d=\"", sketch_kinds[kind].name,
                  sketch_kinds[kind].colour, 0.4 + 0.6 * strength / RASTER_PARTS);
        }
        raster_run(to, cells, view, down, first, across, parts);
      }
      parts[0] = next[0];
      parts[1] = next[1];
      first = across;
    }
  }
  if (drawn) fputs("\"/>\n", to);
}

void raster_draw(FILE *to, const raster *cells, const sketch_view *view)
{
  fputs("<g shape-rendering=\"crispEdges\">\n", to);
  for (int kind = 0; kind < SKETCH_KINDS; ++kind) {
    for (int strength = 1; strength <= RASTER_PARTS; ++strength) raster_layer(to, cells, view, kind, strength);
  }
  fputs("</g>\n", to);
}
