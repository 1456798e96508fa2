/* Outlines: see sketch.h.
 *
 * A path goes down along the ends of the rows and up along their beginnings. Every row gives points; the pen leaves out those
 * that lie on the line between their neighbours, so that a triangle of a million rows is three points. Where a row is thick
 * enough to be seen the points are the corners of the staircase that the pattern is, elsewhere the middles of its rows. */
#include <math.h>
#include <string.h>

#include "sketch.h"
#include "svg.h"

/* After Okabe and Ito, chosen so that any two differ with every kind of colour blindness, also on white (by 20 and more in CIE
 * Lab). */
const sketch_kind sketch_kinds[SKETCH_KINDS] = {
  { "full", "#56b4e9", "#000", "every row sees all keys" },
  { "lower", "#f0a500", "#000", "up to an end that grows" },
  { "upper", "#007a5a", "#fff", "from a beginning that grows" },
  { "band", "#c95f9b", "#000", "between two such edges" },
  { "host", "#333", "#fff", "computed by the host" },
  { "sampled", "#c30", "#fff", "drawn keys, for all others" },
  { "sinks", "#3b2f8f", "#fff", "sink keys that lead the slot" },
};

int sketch_kind_of(const twh_tile_info *tile)
{
  if (tile->mask_mode == 0) return SKETCH_HOST;
  if (tile->flags & TWH_TILE_DRAWN) return SKETCH_SAMPLED;
  return tile->shape == TWH_SHAPE_LOWER   ? SKETCH_LOWER
         : tile->shape == TWH_SHAPE_UPPER ? SKETCH_UPPER
         : tile->shape == TWH_SHAPE_BAND  ? SKETCH_BAND
                                          : SKETCH_FULL;
}

/* The first row, of the tile's, where what it sees ends (ends: 1) or begins behind key `key`: neither ever falls. */
static int64_t sketch_behind(const twh_tile_info *info, int64_t key, int ends)
{
  int64_t low = 0, high = info->q_len, begin, len;

  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    twh_tile_keys(info, middle, &begin, &len);
    if (begin + (ends ? len : 0) > key)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

int64_t sketch_key(const sketch_tile *tile, int64_t t, int64_t *first, int64_t *end)
{
  *first = tile->row + sketch_behind(tile->info, tile->info->k_begin + t, 1);
  *end = tile->row + sketch_behind(tile->info, tile->info->k_begin + t, 0);
  return tile->origin + twh_tile_drawn_key(tile->info, t);
}

int sketch_range(const sketch_tile *tile, int64_t row, int64_t *from, int64_t *to)
{
  const twh_tile_info *info = tile->info;
  int64_t              begin, len, t = tile->turn_rows ? tile->row + info->q_len - 1 - row : row - tile->row;

  if (tile->scattered) {
    *from = INT64_MAX;
    *to = INT64_MIN;
    for (t = 0; t < info->k_len; ++t) {
      int64_t key = tile->origin + twh_tile_drawn_key(info, t);
      if (key < *from) *from = key;
      if (key >= *to) *to = key + 1;
    }
    return info->k_len > 0;
  }
  twh_tile_keys(info, t, &begin, &len);
  begin -= info->k_begin;
  *from = tile->key + (tile->turn_keys ? info->k_len - begin - len : begin);
  *to = *from + len;
  return len > 0;
}

void sketch_fit(sketch_view *view, double x, double y, double box, double least)
{
  double rows = (double)view->rows, keys = (double)view->keys, longer = rows > keys ? rows : keys;

  view->x = x;
  view->y = y;
  view->width = fmax(least, longer > 0 ? box * keys / longer : box);
  view->height = fmax(least, longer > 0 ? box * rows / longer : box);
}

double sketch_x(const sketch_view *view, double key)
{
  return view->keys > 0 ? view->x + (key - (double)view->key) * view->width / (double)view->keys : view->x;
}

double sketch_y(const sketch_view *view, double row)
{
  return view->rows > 0 ? view->y + (row - (double)view->row) * view->height / (double)view->rows : view->y;
}

static int64_t sketch_min(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t sketch_max(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/* As sketch_range, cut to the view. */
static int sketch_cut(const sketch_view *view, const sketch_tile *tile, int64_t row, int64_t *from, int64_t *to)
{
  if (!sketch_range(tile, row, from, to)) return 0;
  *from = sketch_max(*from, view->key);
  *to = sketch_min(*to, view->key + view->keys);
  return *from < *to;
}

/* The rows of the tile that the view shows, and how many rows there are to a point. */
static int64_t sketch_rows(const sketch_view *view, const sketch_tile *tile, int64_t *first, int64_t *end)
{
  double step = view->height > 0 ? ceil(0.5 * (double)view->rows / view->height) : 1.0;

  *first = sketch_max(tile->row, view->row);
  *end = sketch_min(tile->row + tile->info->q_len, view->row + view->rows);
  return step > 1.0 ? (int64_t)step : 1;
}

int sketch_shows(const sketch_view *view, const sketch_tile *tile)
{
  const twh_tile_info *info = tile->info;
  int64_t              from, to, first, end, step = sketch_rows(view, tile, &first, &end);

  if (info->sink_len > 0 && first < end && tile->sink < view->key + view->keys && tile->sink + info->sink_len > view->key)
    return 1;
  if (tile->scattered) {
    for (int64_t t = 0; t < info->k_len && first < end; ++t) {
      int64_t key = tile->origin + twh_tile_drawn_key(info, t);
      if (key >= view->key && key < view->key + view->keys) return 1;
    }
    return 0;
  }
  if (tile->key >= view->key + view->keys || tile->key + info->k_len <= view->key) return 0;
  for (; first < end; first += step) {
    if (sketch_cut(view, tile, first, &from, &to)) return 1;
  }
  return 0;
}

/* ---- the pen ------------------------------------------------------------------------------------------------------------- */

typedef struct sketch_pen {
  FILE              *to;
  const sketch_view *view;
  double             x[2], y[2]; /* the last two points: the first of them is written */
  int                points;
} sketch_pen;

static void sketch_put(sketch_pen *pen, int first, double x, double y)
{
  fputs(first ? "M" : "L", pen->to);
  svg_number(pen->to, x);
  putc(' ', pen->to);
  svg_number(pen->to, y);
}

static void sketch_put_rect(FILE *to, double x, double y, double width, double height)
{
  const double numbers[5] = { x, y, width, height, -width };

  for (int i = 0; i < 5; ++i) {
    putc("M hvh"[i], to);
    svg_number(to, numbers[i]);
  }
  putc('z', to);
}

static void sketch_point(sketch_pen *pen, double key, double row)
{
  double x = sketch_x(pen->view, key), y = sketch_y(pen->view, row);
  double ax = pen->x[1] - pen->x[0], ay = pen->y[1] - pen->y[0], bx = x - pen->x[1], by = y - pen->y[1];

  if (pen->points > 0 && fabs(bx) + fabs(by) < 1e-3) return;
  if (pen->points == 0) sketch_put(pen, 1, x, y);
  if (pen->points > 1 && (fabs(ax * by - ay * bx) > 1e-3 * (fabs(bx) + fabs(by)) || ax * bx + ay * by < 0)) {
    sketch_put(pen, 0, pen->x[1], pen->y[1]);
    pen->x[0] = pen->x[1];
    pen->y[0] = pen->y[1];
  }
  if (pen->points == 0) {
    pen->x[0] = x;
    pen->y[0] = y;
  }
  pen->x[1] = x;
  pen->y[1] = y;
  ++pen->points;
}

static void sketch_pen_up(sketch_pen *pen)
{
  if (pen->points > 1) sketch_put(pen, 0, pen->x[1], pen->y[1]);
  fputs("Z", pen->to);
  pen->points = 0;
}

/* Where the row ends (down: 1) or begins, within the view. */
static double sketch_edge(const sketch_pen *pen, const sketch_tile *tile, int64_t row, int down)
{
  int64_t from, to;

  (void)sketch_cut(pen->view, tile, row, &from, &to);
  return (double)(down ? to : from);
}

/* One side of the rows first, first + step, ... below end, downwards along their ends or upwards along their beginnings. Rows
 * too thin to be seen are joined at their middles, but for jumps: those of more keys than there are rows. */
static void sketch_side(sketch_pen *pen, const sketch_tile *tile, int64_t first, int64_t end, int64_t step, int down)
{
  int64_t last = first + (end - 1 - first) / step * step;
  int     corners = pen->view->height >= 4.0 * (double)pen->view->rows,
      jumps = 1; /* at the row's near side, then at its far side */
  double key = sketch_edge(pen, tile, down ? first : last, down), next = key;

  for (int64_t row = down ? first : last; down ? row <= last : row >= first; row += down ? step : -step) {
    int64_t after = down ? row + step : row - step;
    double  top = (double)row, bottom = (double)sketch_min(row + step, end);
    int     more = down ? after <= last : after >= first;
    if (jumps || corners) sketch_point(pen, key, down ? top : bottom);
    if (more) next = sketch_edge(pen, tile, after, down);
    jumps = !more || fabs(next - key) > (double)step;
    if (!corners) sketch_point(pen, key, (top + bottom) / 2);
    if (jumps || corners) sketch_point(pen, key, down ? bottom : top);
    key = next;
  }
}

/* The path of rows that all see something. */
static void sketch_run(sketch_pen *pen, const sketch_tile *tile, int64_t first, int64_t end, int64_t step)
{
  sketch_side(pen, tile, first, end, step, 1);
  sketch_side(pen, tile, first, end, step, 0);
  sketch_pen_up(pen);
}

/* ---- labels -------------------------------------------------------------------------------------------------------------- */

/* Write a number where the shape is thickest: at its centre of mass, if a line of text fits into the rows around it. */
static void sketch_label(FILE *to, const sketch_view *view, const sketch_tile *tile, const char *label)
{
  int64_t first, end, step = sketch_rows(view, tile, &first, &end), from, until;
  double  mass = 0.0, centre = 0.0, row_height = view->height / (double)view->rows;
  char    style[60];

  for (int64_t row = first; row < end; row += step) {
    if (!sketch_cut(view, tile, row, &from, &until)) continue;
    mass += (double)(until - from);
    centre += (double)(until - from) * ((double)row + 0.5 * (double)step);
  }
  if (!(mass > 0.0)) return;
  centre /= mass;
  snprintf(style, sizeof style, "text-anchor=\"middle\" fill=\"%s\"", sketch_kinds[sketch_kind_of(tile->info)].ink);
  for (double size = 12.0; size > 6.5; size -= 1.0) {
    double  half = 0.45 * size / row_height, left = (double)view->key, right = (double)(view->key + view->keys);
    int64_t top = (int64_t)floor(centre - half), bottom = (int64_t)ceil(centre + half);
    int     fits = top >= first && bottom <= end;
    for (int64_t row = top; row < bottom && fits; row += step) {
      fits = sketch_cut(view, tile, row, &from, &until);
      left = fmax(left, (double)from);
      right = fmin(right, (double)until);
    }
    if (!fits || sketch_x(view, right) - sketch_x(view, left) < 0.64 * size * (double)strlen(label) + 2.0) continue;
    svg_text(to, sketch_x(view, (left + right) / 2), sketch_y(view, centre) + 0.36 * size, size, 1000.0, style, label);
    return;
  }
}

/* ---- drawn keys ---------------------------------------------------------------------------------------------------------- */

enum { SKETCH_MARKS = 1024 };

void sketch_number(FILE *to, const sketch_view *view, const sketch_tile *tile, const char *label, double *x)
{
  int64_t first, end, from, until;
  double  y, height, size, width, left;

  (void)sketch_rows(view, tile, &first, &end);
  if (first >= end || !sketch_cut(view, tile, first, &from, &until)) return;
  y = sketch_y(view, (double)first);
  height = sketch_y(view, (double)end) - y;
  size = fmin(12.0, height / 1.1);
  width = 0.64 * size * (double)strlen(label) + 2.0;
  left = fmax(sketch_x(view, (double)from) + 3.0, *x);
  if (size < 6.5 || left + width > sketch_x(view, (double)until)) return;
  svg_rect(to, left, y + (height - size) / 2, width, size, "fill=\"#fff\" fill-opacity=\"0.85\"");
  svg_text(to, left + width / 2, y + height / 2 + 0.36 * size, size, 1000.0, "text-anchor=\"middle\" fill=\"#000\"", label);
  *x = left + width + 4.0;
}

/* Of one of the columns that a view is cut into: the rows that have a mark there. */
typedef struct sketch_cell {
  int64_t first, end;
} sketch_cell;

enum { SKETCH_CELLS = 1024 };

static void sketch_mark(const sketch_view *view, const sketch_tile *tile, sketch_cell *cells, int n)
{
  int64_t top, bottom;

  (void)sketch_rows(view, tile, &top, &bottom);
  for (int64_t t = 0; t < tile->info->k_len; ++t) {
    int64_t      first, end, key = sketch_key(tile, t, &first, &end) - view->key;
    sketch_cell *cell;
    first = sketch_max(first, top);
    end = sketch_min(end, bottom);
    if (first >= end || key < 0 || key >= view->keys) continue;
    cell = &cells[n == view->keys ? (int)key : (int)((double)key * ((double)n / (double)view->keys))];
    cell->first = cell->end > 0 ? sketch_min(first, cell->first) : first;
    cell->end = sketch_max(end, cell->end);
  }
}

/* A mark for each key over the rows that see it. None is thinner than a pixel, and those side by side are one, so that the text
 * does not grow with the number of keys. */
static void sketch_marks(FILE *to, const sketch_view *view, const sketch_tile *tile)
{
  const sketch_kind *kind = &sketch_kinds[sketch_kind_of(tile->info)];
  sketch_cell        cells[SKETCH_CELLS + 1];
  int                n = (int)fmin((double)view->keys, fmin(fmax(view->width, 1.0), SKETCH_CELLS)), drawn = 0;
  double             width = view->width / (double)n, y;

  memset(cells, 0, sizeof cells);
  sketch_mark(view, tile, cells, n);
  for (int i = 0, next; i < n; i = next) {
    for (next = i + 1; cells[next].first == cells[i].first && cells[next].end == cells[i].end && next < n;) ++next;
    if (cells[i].end == 0) continue;
    if (!drawn++) fprintf(to, "<path class=\"%s\" fill=\"%s\" d=\"", kind->name, kind->colour);
    y = sketch_y(view, (double)cells[i].first);
    sketch_put_rect(to, view->x + i * width, y, (next - i) * width, sketch_y(view, (double)cells[i].end) - y);
  }
  if (drawn) fputs("\"/>\n", to);
}

/* ---- drawing ------------------------------------------------------------------------------------------------------------- */

static void sketch_sinks(FILE *to, const sketch_view *view, const sketch_tile *tile, int64_t first, int64_t end)
{
  int64_t from = sketch_max(tile->sink, view->key),
          until = sketch_min(tile->sink + tile->info->sink_len, view->key + view->keys);
  char   style[80];
  double width;

  if (from >= until || first >= end) return;
  snprintf(style, sizeof style, "class=\"sinks\" fill=\"%s\"", sketch_kinds[SKETCH_SINKS].colour);
  width = sketch_x(view, (double)until) - sketch_x(view, (double)from);
  svg_rect(to, sketch_x(view, (double)from), sketch_y(view, (double)first), fmax(width, 1.5),
           sketch_y(view, (double)end) - sketch_y(view, (double)first), style);
}

/* A line around the shape parts it from its neighbours, if it is thick enough to have one. */
static const char *sketch_stroke(const sketch_view *view, const sketch_tile *tile, int64_t first, int64_t end)
{
  int64_t from, to;
  double  height = sketch_y(view, (double)end) - sketch_y(view, (double)first);

  if (!sketch_cut(view, tile, first + (end - first) / 2, &from, &to)) return "";
  if (height < 5.0 || sketch_x(view, (double)to) - sketch_x(view, (double)from) < 5.0) return "";
  return " stroke=\"#fff\" stroke-width=\"0.7\"";
}

void sketch_draw(FILE *to, const sketch_view *view, const sketch_tile *tile, const char *label)
{
  const sketch_kind *kind = &sketch_kinds[sketch_kind_of(tile->info)];
  int64_t            first, end, step = sketch_rows(view, tile, &first, &end), from, until;
  sketch_pen         pen;
  int                drawn = 0;

  if (tile->info->sink_len > 0) sketch_sinks(to, view, tile, first, end);
  if (tile->scattered) {
    sketch_marks(to, view, tile);
    return;
  }
  memset(&pen, 0, sizeof pen);
  pen.to = to;
  pen.view = view;
  for (int64_t row = first; row < end;) {
    int64_t begin = row;
    while (row < end && sketch_cut(view, tile, row, &from, &until)) row += step;
    if (row > begin) {
      if (!drawn++)
        fprintf(to, "<path class=\"%s\" fill=\"%s\"%s d=\"", kind->name, kind->colour, sketch_stroke(view, tile, first, end));
      sketch_run(&pen, tile, begin, sketch_min(row, end), step);
    } else {
      row += step;
    }
  }
  if (!drawn) return;
  fputs("\"/>\n", to);
  if (label) sketch_label(to, view, tile, label);
}
