/* Numbers from text, and products that do not wrap: see number.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "number.h"

/* strtoll and strtod skip white space and take much else; a number here starts like one. */
static int number_starts(const char *text)
{
  if (*text == '-' || *text == '+') ++text;
  if (*text == '.') ++text;
  return *text >= '0' && *text <= '9';
}

const char *number_whole(const char *text, int64_t *out)
{
  char     *end;
  long long value;

  if (!number_starts(text)) return "is not a whole number";
  errno = 0;
  value = strtoll(text, &end, 10);
  if (end == text || *end) return "is not a whole number";
  if (errno == ERANGE) return "does not fit 64 bits";
  *out = (int64_t)value;
  return NULL;
}

const char *number_real(const char *text, double *out)
{
  char  *end;
  double value;

  if (!number_starts(text)) return "is not a finite number";
  errno = 0;
  value = strtod(text, &end);
  if (end == text || *end) return "is not a finite number";
  if (!isfinite(value)) return "is too large for a number";
  *out = value;
  return NULL;
}

int number_product(const int64_t *factors, size_t n, size_t *out)
{
  size_t product = 1;
  int    empty = 0;

  for (size_t i = 0; i < n; ++i) {
    if (factors[i] < 0) return 0;
    if (factors[i] == 0) {
      empty = 1;
      continue;
    }
    if ((uint64_t)factors[i] > (uint64_t)PTRDIFF_MAX / product) return 0;
    product *= (size_t)factors[i];
  }
  *out = empty ? 0 : product;
  return 1;
}
