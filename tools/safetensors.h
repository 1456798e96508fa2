/* Tensors by name from a .safetensors file, as models are published: for the examples and the tests.
 *
 * A file is 8 bytes with the length of its header, the header (JSON: name to dtype, shape and extent) and the data. A file is
 * taken whole or not at all: whatever it claims is compared with its size first, and the memory taken stays in proportion to
 * its bytes. Tensors of other types and ranks than those below are allowed to be there, and are not found. */
#ifndef TOOLS_SAFETENSORS_H
#define TOOLS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "twoheads.h"

typedef struct safetensors safetensors;

/* Read a file. NULL: `message` (at most `bytes` with its zero) says why in one line that names the file. */
safetensors *safetensors_open(const char *path, char *message, size_t bytes);

/* Release everything, also what was returned below; NULL is fine. */
void safetensors_close(safetensors *file);

/* A tensor of type F32, F16 or BF16 with one dimension (a matrix of one row) or two. 1 = filled, 0 = there is none. */
int safetensors_matrix(const safetensors *file, const char *name, twh_matrix *matrix);

/* All elements of a tensor of type I32 or F64 in C order, of any rank; `n` receives how many. NULL = there is none. */
const int32_t *safetensors_i32(const safetensors *file, const char *name, int64_t *n);
const double  *safetensors_f64(const safetensors *file, const char *name, int64_t *n);

#endif
