/* Products and sums of sizes that cannot wrap around. */
#include "core/base/base.h"

int twh__multiply(int64_t a, int64_t b, int64_t *result)
{
  if (a < 0 || b < 0 || (b > 0 && a > INT64_MAX / b)) return 0;
  *result = a * b;
  return 1;
}

int twh__add(int64_t a, int64_t b, int64_t *result)
{
  if (a < 0 || b < 0 || a > INT64_MAX - b) return 0;
  *result = a + b;
  return 1;
}
