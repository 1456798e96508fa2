/* Writing .npy files: see npy.h. */
#include <stdio.h>
#include <string.h>

#include "npy.h"
#include "npy_header.h"
#include "outfile.h"

int npy_write(const char *path, const npy_array *array, complaint *error)
{
  npy_header header;
  outfile    file;
  char       start[10 + 256];
  size_t     n;
  int        failed = outfile_open(path, &file, error);

  if (failed) return failed;
  memset(&header, 0, sizeof header);
  snprintf(header.descr, sizeof header.descr, "%s", npy_descr(array->dtype));
  header.rank = array->rank;
  for (int i = 0; i < array->rank; ++i) header.shape[i] = array->shape[i];
  n = npy_header_format(&header, 10, start + 10, sizeof start - 10);
  memcpy(start, "\x93NUMPY\x01\x00", 8);
  start[8] = (char)(n & 255);
  start[9] = (char)(n >> 8);
  fwrite(start, 1, n + 10, file.to);
  fwrite(array->data, 1, array->bytes, file.to);
  return outfile_close(&file, 0, error);
}
