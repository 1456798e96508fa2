/* One line for each failure: see complaint.h. */
#include <stdarg.h>
#include <stdio.h>

#include "complaint.h"

static void complaint_to_one_line(char *text)
{
  for (; *text; ++text) {
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
  }
}

int complaint_make(complaint *out, int exit_code, const char *format, ...)
{
  va_list list;

  out->exit_code = exit_code;
  va_start(list, format);
  vsnprintf(out->text, sizeof out->text, format, list);
  va_end(list);
  complaint_to_one_line(out->text);
  return exit_code;
}
