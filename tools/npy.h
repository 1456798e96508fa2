/* Arrays in NumPy's .npy format, as the command reads and writes them.
 *
 * Element types: f2, f4, f8 (little-endian), bool, and u2, which the command takes for bfloat16 where the user says so; C
 * order; up to four dimensions. Whatever a header claims, the memory taken stays in proportion to the file's bytes. */
#ifndef TOOLS_NPY_H
#define TOOLS_NPY_H

#include "complaint.h"
#include "twoheads.h"

enum { NPY_RANK_MAX = 4 };

typedef struct npy_array {
  int32_t dtype; /* TWH_F16, TWH_F32, TWH_F64, TWH_BOOL; TWH_BF16 for u2 */
  int     rank;
  int64_t shape[NPY_RANK_MAX]; /* the first `rank` count */
  size_t  count, bytes;        /* elements and bytes */
  void   *data;                /* NULL in an empty struct */
} npy_array;

/* Bytes of one element. */
size_t npy_element_bytes(int32_t dtype);

/* What a header calls the type ("<f4"); "" for an unknown one. */
const char *npy_descr(int32_t dtype);

/* Read a file. On success the caller gives `out` to npy_free; on failure there is nothing to free. */
int npy_read(const char *path, npy_array *out, complaint *error);

/* Set up an array of this shape with zero-filled data. `name` is what it is called when there is no memory for it. */
int npy_allocate(const char *name, int32_t dtype, int rank, const int64_t *shape, npy_array *out, complaint *error);

/* Write a file, whole or not at all (outfile.h). */
int npy_write(const char *path, const npy_array *array, complaint *error);

/* Release the data; an empty struct (all zero) is fine. */
void npy_free(npy_array *array);

#endif
