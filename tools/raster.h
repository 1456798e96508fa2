/* Many tiles at once: which kinds of tiles cover which part of a plane, on a raster of a bounded number of cells. */
#ifndef TOOLS_RASTER_H
#define TOOLS_RASTER_H

#include "sketch.h"

enum { RASTER_CELLS = 128 }; /* at most, in each direction */

typedef struct raster {
  int64_t rows, keys; /* of the plane */
  int     down, across;
  double *pairs; /* (down, across, SKETCH_KINDS): visible ones, by the kind of their tile */
} raster;

/* A raster for what the view shows, which is the whole plane. 0 when there is no memory; raster_finish takes also that. */
int  raster_init(raster *out, const sketch_view *view);
void raster_finish(raster *cells);

void raster_add(raster *cells, const sketch_tile *tile);

/* Draw the cells into the view: colours in the proportion of the kinds, stronger where more pairs are
 * seen. */
void raster_draw(FILE *to, const raster *cells, const sketch_view *view);

#endif
