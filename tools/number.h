/* Numbers from text, without the surprises of strtol: the whole text must be the number, and it must fit. */
#ifndef TOOLS_NUMBER_H
#define TOOLS_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* Both return NULL and fill `out`, or return what is wrong with the text ("is not a whole number"). */
const char *number_whole(const char *text, int64_t *out);
const char *number_real(const char *text, double *out);

/* The product of n factors, as a size in bytes or elements; 0 when a factor is negative, or when the product of those that are
 * not zero exceeds PTRDIFF_MAX: strides are products too, also in an array without elements. */
int number_product(const int64_t *factors, size_t n, size_t *out);

#endif
