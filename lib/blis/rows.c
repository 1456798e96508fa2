/* The row functions for three register widths, and which of them this CPU can run.
 *
 * The vectors are gcc's and clang's own: with plain loops gcc 12 leaves both reductions scalar, and is ten times slower.
 * Registers of the baseline instruction set hold four floats, AVX2's eight, AVX-512's sixteen: measured 0.9, 0.4 and 0.3 ns
 * for an exponential, beside some 2.5 ns that the two matrix products spend on a pair of dimension 64. */
#include "blis/rows.h"

#include <math.h>
#include <stddef.h>

#ifndef __GNUC__
#  error "twoheads-blis needs the vector types of gcc or clang"
#endif

#define ROWS_WIDTH   4
#define ROWS_CHAINS  4
#define ROWS_NAME(x) x##_4
#define ROWS_TARGET
#include "blis/rows_lanes.h"

#ifdef __x86_64__

#define ROWS_WIDTH   8
#define ROWS_CHAINS  4
#define ROWS_NAME(x) x##_8
#define ROWS_TARGET  __attribute__((target("avx2")))
#include "blis/rows_lanes.h"

#define ROWS_WIDTH   16
#define ROWS_CHAINS  2
#define ROWS_NAME(x) x##_16
#define ROWS_TARGET  __attribute__((target("avx512f")))
#include "blis/rows_lanes.h"

const twh__blis_rows *twh__blis_rows_of(int width)
{
  if (width == 4) return &rows_table_4;
  if (width == 8 && __builtin_cpu_supports("avx2")) return &rows_table_8;
  if (width == 16 && __builtin_cpu_supports("avx512f")) return &rows_table_16;
  return NULL;
}

#else

const twh__blis_rows *twh__blis_rows_of(int width)
{
  return width == 4 ? &rows_table_4 : NULL;
}

#endif

const twh__blis_rows *twh__blis_rows_best(void)
{
  int width = 16;
  while (twh__blis_rows_of(width) == NULL) width /= 2;
  return twh__blis_rows_of(width);
}
