/* What happens to one row of scores between the two matrix products.
 *
 * Rows are 64-byte aligned and padded to a multiple of TWH__BLIS_ROW floats; padding is part of a row and holds -inf. There
 * are three implementations, for vector registers of 4, 8 and 16 floats. They give the same bits: there is no fused
 * multiply-add in any, and sums run in 16 lanes whatever the width of a register. */
#ifndef TWH_BLIS_ROWS_H
#define TWH_BLIS_ROWS_H

#include <stdint.h>

enum { TWH__BLIS_ROW = 32 };

typedef struct twh__blis_rows {
  /* The largest of x[0..n). NaN are passed over: the result is then any of the numbers, or -inf. */
  float (*max)(const float *x, int64_t n);
  /* x[j] = e^(scale (x[j] - max)), 0 below 1e-38; returns their sum. max must be the row's, and scale > 0. */
  double (*weights)(float *x, int64_t n, float max, float scale);
  /* x[j] = cap tanh(factor x[j]). */
  void (*cap)(float *x, int64_t n, float factor, float cap);
} twh__blis_rows;

/* For registers of 4, 8 or 16 floats; NULL where this CPU has none. 4 is always there. */
const twh__blis_rows *twh__blis_rows_of(int width);
/* The fastest one that this CPU can run. */
const twh__blis_rows *twh__blis_rows_best(void);

#endif
