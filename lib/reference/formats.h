/* Reading and writing the data types of the contract as float64. */
#ifndef TWH_REFERENCE_FORMATS_H
#define TWH_REFERENCE_FORMATS_H

#include "twoheads.h"

/* n consecutive elements from `index` on. dtype: TWH_F32, TWH_F16, TWH_BF16 or TWH_F64. */
void twh__reference_read(double *to, const void *from, int32_t dtype, int64_t index, int64_t n);
/* Rounded once, to nearest even. */
void twh__reference_write(void *to, int32_t dtype, int64_t index, const double *from, int64_t n);
/* The value that writing and reading again gives. */
double twh__reference_round(double x, int32_t dtype);

#endif
