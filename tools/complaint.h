/* What the command has to say when it fails: one line and an exit code.
 *
 * Functions of the command that can fail return 0 or an exit code and fill a complaint; only main prints it, so that every
 * failure is one line on standard error, whichever function found it. */
#ifndef TOOLS_COMPLAINT_H
#define TOOLS_COMPLAINT_H

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef struct complaint {
  int  exit_code;
  char text[512];
} complaint;

/* Fill `out` and return `exit_code`. Characters that would break the line are replaced. */
int complaint_make(complaint *out, int exit_code, const char *format, ...)
#if defined(__GNUC__)
  __attribute__((format(printf, 3, 4)))
#endif
  ;

#endif
