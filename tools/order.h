/* Quantiles of numbers. */
#ifndef TOOLS_ORDER_H
#define TOOLS_ORDER_H

#include <stddef.h>

/* Sort n numbers; NaN are the last ones, as if they were the largest. */
void order_sort(double *values, size_t n);

/* The number that a share of n sorted ones lies below, 0 .. 1, on the line between its two neighbours; 0 of none. */
double order_quantile(const double *sorted, size_t n, double share);

#endif
