/* Writing under another name first: see outfile.h. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "outfile.h"

static int outfile_failed(const char *path, complaint *error)
{
  return complaint_make(error, EXIT_FAILED, "cannot write %s: %s", path, errno ? strerror(errno) : "an error");
}

/* What stands at `path`: nothing or a plain file (to be replaced by renaming), or a device, a pipe, a link. */
static int outfile_is_plain(const char *path)
{
  struct stat info;
  return lstat(path, &info) || S_ISREG(info.st_mode);
}

/* A name beside `path`; the caller frees it. */
static char *outfile_temporary(const char *path)
{
  size_t room = strlen(path) + 32;
  char  *name = (char *)malloc(room);

  if (name) snprintf(name, room, "%s.%ld.tmp", path, (long)getpid());
  return name;
}

int outfile_open(const char *path, outfile *out, complaint *error)
{
  int file, failed;

  memset(out, 0, sizeof *out);
  out->path = path;
  if (outfile_is_plain(path)) {
    out->temporary = outfile_temporary(path);
    if (!out->temporary) return complaint_make(error, EXIT_FAILED, "not enough memory to write %s", path);
    file = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
  } else {
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  }
  if (file >= 0) out->to = fdopen(file, "wb");
  if (out->to) {
    errno = 0; /* whatever it says at the end is the reason of a write that failed */
    return 0;
  }
  failed = outfile_failed(path, error);
  if (file >= 0) close(file);
  if (file >= 0 && out->temporary) unlink(out->temporary);
  free(out->temporary);
  out->temporary = NULL;
  return failed;
}

int outfile_close(outfile *out, int failed, complaint *error)
{
  if (!failed && (fflush(out->to) || ferror(out->to) || (out->temporary && fsync(fileno(out->to))))) {
    failed = outfile_failed(out->path, error);
  }
  if (fclose(out->to) && !failed) failed = outfile_failed(out->path, error);
  if (!failed && out->temporary && rename(out->temporary, out->path)) failed = outfile_failed(out->path, error);
  if (failed && out->temporary) unlink(out->temporary);
  free(out->temporary);
  memset(out, 0, sizeof *out);
  return failed;
}

int outfile_try(const char *path, complaint *error)
{
  struct stat info;
  char       *temporary;
  int         file, failed = 0;

  if (!stat(path, &info) && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return outfile_failed(path, error);
  }
  if (!access(path, F_OK) && access(path, W_OK)) return outfile_failed(path, error);
  if (!outfile_is_plain(path)) return 0;
  temporary = outfile_temporary(path);
  if (!temporary) return complaint_make(error, EXIT_FAILED, "not enough memory to write %s", path);
  file = open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file < 0) {
    failed = outfile_failed(path, error);
  } else {
    close(file);
    unlink(temporary);
  }
  free(temporary);
  return failed;
}
