/* Writing .npy files, whole or not at all: see npy.h. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"
#include "npy_header.h"

enum { NPY_WRITE_PLAIN, NPY_WRITE_OTHER };

static int npy_write_failed(const char *path, complaint *error)
{
  return complaint_make(error, EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
}

/* What stands at `path`: nothing or a plain file (to be replaced by renaming), or a device, a pipe, a link. */
static int npy_write_kind(const char *path)
{
  struct stat info;
  return lstat(path, &info) || S_ISREG(info.st_mode) ? NPY_WRITE_PLAIN : NPY_WRITE_OTHER;
}

/* A name beside `path`; the caller frees it. */
static char *npy_write_temporary(const char *path)
{
  size_t room = strlen(path) + 32;
  char  *name = (char *)malloc(room);

  if (name) snprintf(name, room, "%s.%ld.tmp", path, (long)getpid());
  return name;
}

static int npy_write_content(FILE *to, const npy_array *array)
{
  npy_header header;
  char       start[10 + 256];
  size_t     n;

  memset(&header, 0, sizeof header);
  snprintf(header.descr, sizeof header.descr, "%s", npy_descr(array->dtype));
  header.rank = array->rank;
  for (int i = 0; i < array->rank; ++i) header.shape[i] = array->shape[i];
  n = npy_header_format(&header, 10, start + 10, sizeof start - 10);
  memcpy(start, "\x93NUMPY\x01\x00", 8);
  start[8] = (char)(n & 255);
  start[9] = (char)(n >> 8);
  return fwrite(start, 1, n + 10, to) == n + 10 && fwrite(array->data, 1, array->bytes, to) == array->bytes && !fflush(to);
}

int npy_write(const char *path, const npy_array *array, complaint *error)
{
  int   plain = npy_write_kind(path) == NPY_WRITE_PLAIN, good = 0, reason;
  char *temporary = plain ? npy_write_temporary(path) : NULL;
  FILE *to = NULL;
  int   file = -1;

  if (plain && !temporary) return complaint_make(error, EXIT_FAILED, "not enough memory to write %s", path);
  file = plain ? open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666) : open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file >= 0) to = fdopen(file, "wb");
  if (to) {
    good = npy_write_content(to, array);
    if (good && plain) good = !fsync(file);
    reason = errno;
    if (fclose(to) && good) {
      good = 0;
      reason = errno;
    }
    errno = reason;
  } else if (file >= 0) {
    close(file);
  }
  if (good && plain) good = !rename(temporary, path);
  if (!good) {
    npy_write_failed(path, error);
    if (plain && file >= 0) unlink(temporary);
  }
  free(temporary);
  return good ? 0 : EXIT_FAILED;
}

int npy_write_try(const char *path, complaint *error)
{
  struct stat info;
  char       *temporary;
  int         file;

  if (!stat(path, &info) && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return npy_write_failed(path, error);
  }
  if (!access(path, F_OK) && access(path, W_OK)) return npy_write_failed(path, error);
  if (npy_write_kind(path) == NPY_WRITE_OTHER) return 0;
  temporary = npy_write_temporary(path);
  if (!temporary) return complaint_make(error, EXIT_FAILED, "not enough memory to write %s", path);
  file = open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file < 0) {
    npy_write_failed(path, error);
  } else {
    close(file);
    unlink(temporary);
  }
  free(temporary);
  return file < 0 ? EXIT_FAILED : 0;
}
