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
  { "sinks", "#3b2f8f", "#fff", "sink keys that lead the slot" },
};

int sketch_kind_of(const twh_tile_info *tile)
{
  if (tile->mask_mode == 0) return SKETCH_HOST;
  return tile->shape == TWH_SHAPE_LOWER   ? SKETCH_LOWER
         : tile->shape == TWH_SHAPE_UPPER ? SKETCH_UPPER
         : tile->shape == TWH_SHAPE_BAND  ? SKETCH_BAND
                                          : SKETCH_FULL;
}

int sketch_range(const sketch_tile *tile, int64_t row, int64_t *from, int64_t *to)
{
  const twh_tile_info *info = tile->info;
  int64_t              begin, len, t = tile->turn_rows ? tile->row + info->q_len - 1 - row : row - tile->row;

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
