/* Numbers as a kernel sees them: loading an element of any type as a double, and rounding a double to a type. */
#ifndef TOOLS_ROUNDING_H
#define TOOLS_ROUNDING_H

#include "twoheads.h"

/* Element `index` of `data`. */
double rounding_load(const void *data, int32_t dtype, int64_t index);

/* The nearest value of the type, ties to even; beyond the largest, infinity. TWH_F64 and TWH_BOOL: the value itself. */
double rounding_round(double value, int32_t dtype);

/* "f32" and so on; NULL for what is no type of a tensor. And back; 0 for an unknown name. */
const char *rounding_name(int32_t dtype);
int32_t     rounding_dtype(const char *name);

#endif
