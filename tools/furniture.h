/* What stands around a picture: axes, legend, and the pattern in words. */
#ifndef TOOLS_FURNITURE_H
#define TOOLS_FURNITURE_H

#include <stdio.h>

#include "setup.h"
#include "sketch.h"

/* A frame around the view, ticks in tokens above and at its left, and what the axes are. `size`: of the letters. */
void furniture_axes(FILE *to, const sketch_view *view, double size, const char *rows, const char *keys);

/* Kinds with their colours and counts, as far as there are any. shaded: the strength of a colour means something. */
void   furniture_legend(FILE *to, double x, double y, const int64_t *counts, int shaded);
double furniture_legend_height(const int64_t *counts, int shaded);

/* The problem: pattern, lengths, heads. */
void furniture_problem(char *text, size_t room, const workload *work);

/* A kernel: what the user calls it, and its shape. */
void furniture_kernel(char *text, size_t room, const char *name, const twh_oracle *oracle);

#endif
