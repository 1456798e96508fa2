/* Elements of an SVG 1.1 file. Coordinates are in pixels; `style` is attributes as they stand in the file, or "". What cannot
 * be written shows when the file is closed (outfile.h). */
#ifndef TOOLS_SVG_H
#define TOOLS_SVG_H

#include <stdio.h>

void svg_open(FILE *to, double width, double height, const char *title);
void svg_close(FILE *to);

/* What stands between is a group of this name. */
void svg_begin(FILE *to, const char *id);
void svg_end(FILE *to);

/* A coordinate, in as few characters as two decimals take. */
void svg_number(FILE *to, double value);

void svg_rect(FILE *to, double x, double y, double width, double height, const char *style);
void svg_line(FILE *to, double x1, double y1, double x2, double y2, const char *style);

/* One line of text; what is not printable ASCII becomes `?`. `room`: its end is cut to fit that many pixels, at the given size.
 * */
void svg_text(FILE *to, double x, double y, double size, double room, const char *style, const char *text);

#endif
