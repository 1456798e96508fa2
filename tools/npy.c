/* Reading .npy files: see npy.h.
 *
 * Data are read into memory that grows with what has arrived, so that a header which promises more than there is costs nothing,
 * from a pipe as from a file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "npy_header.h"
#include "number.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#  error "the command reads little-endian arrays as they are"
#endif

enum { NPY_HEADER_BYTES_MAX = 1 << 16, NPY_FIRST_CHUNK = 1 << 20 };

typedef struct npy_element {
  const char *descr;
  int32_t     dtype;
  size_t      bytes;
} npy_element;

static const npy_element npy_elements[] = {
  { "<f4", TWH_F32, 4 }, { "<f2", TWH_F16, 2 }, { "<u2", TWH_BF16, 2 }, { "<f8", TWH_F64, 8 }, { "|b1", TWH_BOOL, 1 },
};

enum { NPY_ELEMENTS = sizeof npy_elements / sizeof npy_elements[0] };

size_t npy_element_bytes(int32_t dtype)
{
  for (size_t i = 0; i < NPY_ELEMENTS; ++i) {
    if (npy_elements[i].dtype == dtype) return npy_elements[i].bytes;
  }
  return 0;
}

const char *npy_descr(int32_t dtype)
{
  for (size_t i = 0; i < NPY_ELEMENTS; ++i) {
    if (npy_elements[i].dtype == dtype) return npy_elements[i].descr;
  }
  return "";
}

static int npy_truncated(const char *path, FILE *from, complaint *error)
{
  if (ferror(from)) return complaint_make(error, EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
  return complaint_make(error, EXIT_FAILED, "%s is cut off inside its header", path);
}

static int npy_read_header(const char *path, FILE *from, npy_header *header, complaint *error)
{
  unsigned char start[12];
  char         *text;
  const char   *wrong;
  size_t        length, got = fread(start, 1, 8, from);

  if (got < 8 && ferror(from)) return npy_truncated(path, from, error);
  if (got < 6 || memcmp(start, "\x93NUMPY", 6)) return complaint_make(error, EXIT_FAILED, "%s is no .npy file", path);
  if (got < 8) return npy_truncated(path, from, error);
  if (start[6] < 1 || start[6] > 3) {
    return complaint_make(error, EXIT_FAILED, "%s has version %d.%d of the .npy format, which is not known here", path,
                          start[6], start[7]);
  }
  got = start[6] == 1 ? 2 : 4;
  if (fread(start + 8, 1, got, from) != got) return npy_truncated(path, from, error);
  length = (size_t)start[8] | (size_t)start[9] << 8;
  if (got == 4) length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
  if (length > NPY_HEADER_BYTES_MAX) {
    return complaint_make(error, EXIT_FAILED, "%s has a header of %zu bytes, which is too long", path, length);
  }

  text = (char *)malloc(length + 1);
  if (!text) return complaint_make(error, EXIT_FAILED, "not enough memory for the header of %s", path);
  if (fread(text, 1, length, from) != length) {
    free(text);
    return npy_truncated(path, from, error);
  }
  wrong = npy_header_parse(text, length, header);
  free(text);
  return wrong ? complaint_make(error, EXIT_FAILED, "%s %s", path, wrong) : 0;
}

/* From the header to an array without data. */
static int npy_describe(const char *path, const npy_header *header, npy_array *out, complaint *error)
{
  int64_t factors[NPY_RANK_MAX + 1];

  memset(out, 0, sizeof *out);
  for (size_t i = 0; i < NPY_ELEMENTS; ++i) {
    if (!strcmp(header->descr, npy_elements[i].descr)) out->dtype = npy_elements[i].dtype;
  }
  if (!out->dtype) {
    return complaint_make(error, EXIT_FAILED, "%s has elements of type '%s'; '<f2', '<f4', '<f8', '<u2' and '|b1' are known",
                          path, header->descr);
  }
  if (header->fortran_order) {
    return complaint_make(error, EXIT_FAILED, "%s is in Fortran order; save it in C order (numpy.ascontiguousarray)", path);
  }
  out->rank = header->rank;
  for (int i = 0; i < out->rank; ++i) factors[i] = out->shape[i] = header->shape[i];
  factors[out->rank] = (int64_t)npy_element_bytes(out->dtype);
  if (!number_product(factors, (size_t)out->rank, &out->count) ||
      !number_product(factors, (size_t)out->rank + 1, &out->bytes)) {
    return complaint_make(error, EXIT_FAILED, "%s has a shape with more elements than memory has addresses", path);
  }
  return 0;
}

static int npy_read_data(const char *path, FILE *from, npy_array *out, complaint *error)
{
  size_t room = out->bytes < (size_t)NPY_FIRST_CHUNK ? out->bytes : (size_t)NPY_FIRST_CHUNK, got = 0;

  out->data = malloc(room + 1);
  while (out->data && got < out->bytes) {
    size_t n = fread((char *)out->data + got, 1, room - got, from);
    got += n;
    if (got < room || got == out->bytes) break;
    room = room > out->bytes / 2 ? out->bytes : 2 * room;
    {
      void *larger = realloc(out->data, room + 1);
      if (!larger) free(out->data);
      out->data = larger;
    }
  }
  if (!out->data) return complaint_make(error, EXIT_FAILED, "not enough memory for the %zu bytes of %s", out->bytes, path);
  if (ferror(from)) return complaint_make(error, EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
  if (got < out->bytes) {
    return complaint_make(error, EXIT_FAILED, "%s is cut off: its header promises %zu bytes of data, there are %zu", path,
                          out->bytes, got);
  }
  if (getc(from) != EOF) return complaint_make(error, EXIT_FAILED, "%s has more bytes than its header says", path);
  return 0;
}

int npy_read(const char *path, npy_array *out, complaint *error)
{
  npy_header header;
  FILE      *from = fopen(path, "rb");
  int        failed;

  memset(out, 0, sizeof *out);
  if (!from) return complaint_make(error, EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
  failed = npy_read_header(path, from, &header, error);
  if (!failed) failed = npy_describe(path, &header, out, error);
  if (!failed) failed = npy_read_data(path, from, out, error);
  fclose(from);
  if (failed) npy_free(out);
  return failed;
}

int npy_allocate(const char *name, int32_t dtype, int rank, const int64_t *shape, npy_array *out, complaint *error)
{
  int64_t factors[NPY_RANK_MAX + 1];

  memset(out, 0, sizeof *out);
  for (int i = 0; i < rank; ++i) factors[i] = out->shape[i] = shape[i];
  factors[rank] = (int64_t)npy_element_bytes(dtype);
  out->dtype = dtype;
  out->rank = rank;
  if (!number_product(factors, (size_t)rank, &out->count) || !number_product(factors, (size_t)rank + 1, &out->bytes)) {
    return complaint_make(error, EXIT_FAILED, "%s would have more elements than memory has addresses", name);
  }
  out->data = calloc(out->bytes + 1, 1);
  if (!out->data) return complaint_make(error, EXIT_FAILED, "not enough memory for the %zu bytes of %s", out->bytes, name);
  return 0;
}

void npy_free(npy_array *array)
{
  free(array->data);
  memset(array, 0, sizeof *array);
}
