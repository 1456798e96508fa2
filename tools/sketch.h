/* A tile as a shape on paper: its kind and colour, and its outline, row by row from twh_tile_keys. */
#ifndef TOOLS_SKETCH_H
#define TOOLS_SKETCH_H

#include <stdio.h>

#include "twoheads.h"

/* A tile is of one of these kinds; SINKS is the part of it that a lead of sink keys is. */
enum { SKETCH_FULL, SKETCH_LOWER, SKETCH_UPPER, SKETCH_BAND, SKETCH_HOST, SKETCH_SAMPLED, SKETCH_SINKS, SKETCH_KINDS };

typedef struct sketch_kind {
  const char *name, *colour, *ink, *what; /* ink: the colour of letters on it */
} sketch_kind;

extern const sketch_kind sketch_kinds[SKETCH_KINDS];

int sketch_kind_of(const twh_tile_info *tile);

/* Where a tile lies on a plane of rows, downwards, and columns, to the right: its first row, the column of its first key, and
 * that of its first sink. turn_rows, turn_keys: they stand in reverse order. scattered: its keys are drawn ones, each in a
 * column of its own; key 0 of the sequence is in column `origin`. */
typedef struct sketch_tile {
  const twh_tile_info *info;
  int64_t              row, key, sink, origin;
  int                  turn_rows, turn_keys, scattered;
} sketch_tile;

/* The column of key t of a scattered tile, and the rows *first .. *end - 1 of the plane that see it. */
int64_t sketch_key(const sketch_tile *tile, int64_t t, int64_t *first, int64_t *end);

/* The columns *from .. *to - 1 that row `row` of the plane sees, sinks apart; 0 where it sees none. Of scattered ones those
 * between the first and the last. */
int sketch_range(const sketch_tile *tile, int64_t row, int64_t *from, int64_t *to);

/* A part of the plane and where it is on the paper, in pixels. */
typedef struct sketch_view {
  int64_t row, rows, key, keys;
  double  x, y, width, height;
} sketch_view;

/* Fit the view into a box: in proportion, but no side shorter than `least`. */
void sketch_fit(sketch_view *view, double x, double y, double box, double least);

double sketch_x(const sketch_view *view, double key);
double sketch_y(const sketch_view *view, double row);

/* Does the tile reach into the view? */
int sketch_shows(const sketch_view *view, const sketch_tile *tile);

/* Draw what the view shows of the tile; label: a number within it where there is room, or NULL. The text takes no more than the
 * shape needs: rows that change evenly are one line, and rows thinner than half a pixel are passed over. */
void sketch_draw(FILE *to, const sketch_view *view, const sketch_tile *tile, const char *label);

/* The number of a scattered tile, which sketch_draw leaves out, since marks of other tiles would cover it. *x: where the
 * numbers before it end, of tiles over the same rows; 0: there are none. */
void sketch_number(FILE *to, const sketch_view *view, const sketch_tile *tile, const char *label, double *x);

#endif
