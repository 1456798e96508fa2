/* The header of a .npy file: a Python dictionary in text form, read by a parser that takes nothing else. */
#ifndef TOOLS_NPY_HEADER_H
#define TOOLS_NPY_HEADER_H

#include <stddef.h>
#include <stdint.h>

enum { NPY_HEADER_RANK_MAX = 4 };

typedef struct npy_header {
  char    descr[16]; /* "<f4"; longer ones are cut, and unknown then */
  int     fortran_order;
  int     rank;
  int64_t shape[NPY_HEADER_RANK_MAX];
} npy_header;

/* Parse `bytes` characters (there need be no zero). Returns NULL, or what is wrong with the header. */
const char *npy_header_parse(const char *text, size_t bytes, npy_header *out);

/* Write the dictionary with its padding and newline, so that `prefix` + the length is a multiple of 64; returns the length, or
 * 0 when `room` is too small. */
size_t npy_header_format(const npy_header *header, size_t prefix, char *text, size_t room);

#endif
