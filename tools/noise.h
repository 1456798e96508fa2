/* Arrays of random numbers, for runs that need no files. */
#ifndef TOOLS_NOISE_H
#define TOOLS_NOISE_H

#include "npy.h"

/* Fill an f4 array with numbers of mean 0 and deviation 1, about normal (sums of four uniform ones: none is beyond 3.5). The
 * same seed and stream give the same numbers everywhere. */
void noise_fill(npy_array *array, int64_t seed, int stream);

#endif
