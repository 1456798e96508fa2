/* A file that is written whole or not at all.
 *
 * It is written under a temporary name beside its own and renamed at the end, so that a failure leaves an existing file as it
 * was. What exists and is not a plain file (a device, a pipe, a link) is written to directly. */
#ifndef TOOLS_OUTFILE_H
#define TOOLS_OUTFILE_H

#include <stdio.h>

#include "complaint.h"

typedef struct outfile {
  FILE       *to;
  const char *path;
  char       *temporary; /* NULL: `path` itself is written to */
} outfile;

/* Open for writing; `path` must live until outfile_close. Errors name the file. */
int outfile_open(const char *path, outfile *out, complaint *error);

/* Finish what outfile_open began. failed: 0, or the exit code of a complaint that was made meanwhile, which is returned: then
 * the file is given up. What could not be written is found here: there is no need to look at each fprintf. */
int outfile_close(outfile *out, int failed, complaint *error);

/* See whether a file could be written there, before hours of work are spent on what goes into it. */
int outfile_try(const char *path, complaint *error);

#endif
