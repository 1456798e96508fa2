/* Arrays for test_cli.sh:
 *
 *   make_npy FILE DESCR KIND SIZE...   write one; DESCR as in a header (<f4); KIND: normal:STD:SEED, constant:X, lower
 *                                      (0 where the last index is at most the one before, else -inf; true and false for |b1),
 *                                      unit (1 where the last two are equal, else 0)
 *   make_npy show FILE                 print "DESCR SIZE... MIN MAX" of one */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../tools/npy.h"
#include "../../tools/rounding.h"

static const int32_t make_npy_dtypes[] = { TWH_F32, TWH_F16, TWH_BF16, TWH_F64, TWH_BOOL };

static void make_npy_store(npy_array *array, int64_t at, double value)
{
  float    narrow = (float)value;
  uint32_t bits;
  uint16_t half;

  switch (array->dtype) {
  case TWH_F64: ((double *)array->data)[at] = value; break;
  case TWH_F32: ((float *)array->data)[at] = narrow; break;
  case TWH_BOOL: ((unsigned char *)array->data)[at] = value == 0.0; break;
  case TWH_BF16:
    memcpy(&bits, &narrow, sizeof bits);
    ((uint16_t *)array->data)[at] = (uint16_t)(bits >> 16);
    break;
  default: /* f16: the largest one that is not above |value|, by bisection over the bit patterns */
    half = 0;
    for (uint16_t bit = 0x4000; bit; bit = (uint16_t)(bit >> 1)) {
      uint16_t more = (uint16_t)(half | bit);
      if (rounding_load(&more, TWH_F16, 0) <= fabs(value)) half = more;
    }
    ((uint16_t *)array->data)[at] = (uint16_t)(half | (value < 0 ? 0x8000 : 0));
  }
}

/* Uniform in (0, 1). */
static double make_npy_random(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static int make_npy_show(const char *path, complaint *error)
{
  npy_array array;
  double    low = INFINITY, high = -INFINITY;
  int       failed = npy_read(path, &array, error);

  if (failed) return failed;
  printf("%s", npy_descr(array.dtype));
  for (int i = 0; i < array.rank; ++i) printf(" %lld", (long long)array.shape[i]);
  for (size_t i = 0; i < array.count; ++i) {
    double value = rounding_load(array.data, array.dtype, (int64_t)i);
    if (!(value >= low)) low = value;
    if (!(value <= high)) high = value;
  }
  printf(" %.9g %.9g\n", low, high);
  npy_free(&array);
  return 0;
}

int main(int argc, char **argv)
{
  npy_array array;
  complaint error;
  int64_t   shape[NPY_RANK_MAX];
  int32_t   dtype = 0;
  int       failed;
  double    number = 0.0;
  uint64_t  seed = 1;

  if (argc == 3 && !strcmp(argv[1], "show")) {
    failed = make_npy_show(argv[2], &error);
    if (failed) fprintf(stderr, "make_npy: %s\n", error.text);
    return failed;
  }
  for (size_t i = 0; argc > 3 && i < sizeof make_npy_dtypes / sizeof make_npy_dtypes[0]; ++i) {
    if (!strcmp(argv[2], npy_descr(make_npy_dtypes[i]))) dtype = make_npy_dtypes[i];
  }
  if (!dtype || argc > 4 + NPY_RANK_MAX) return EXIT_USAGE;
  for (int i = 4; i < argc; ++i) shape[i - 4] = atoll(argv[i]);
  if (npy_allocate("array", dtype, argc - 4, shape, &array, &error)) return EXIT_FAILED;
  if (!strncmp(argv[3], "constant:", 9)) number = atof(argv[3] + 9);
  if (!strncmp(argv[3], "normal:", 7)) {
    char *colon;
    number = strtod(argv[3] + 7, &colon);
    if (*colon == ':') seed = strtoull(colon + 1, NULL, 10);
  }
  for (size_t i = 0; i < array.count; ++i) {
    double value = number;
    if (argv[3][0] == 'n') {
      value *= sqrt(-2.0 * log(make_npy_random(&seed)));
      value *= cos(6.283185307179586 * make_npy_random(&seed));
    }
    if (argv[3][0] == 'l' || argv[3][0] == 'u') {
      int64_t columns = shape[argc - 5], rows = shape[argc - 6], column = (int64_t)i % columns;
      int64_t row = (int64_t)i / columns % rows;
      value = argv[3][0] == 'u' ? (double)(column == row) : column <= row ? 0.0 : -INFINITY;
    }
    make_npy_store(&array, (int64_t)i, value);
  }
  failed = npy_write(argv[1], &array, &error);
  if (failed) fprintf(stderr, "make_npy: %s\n", error.text);
  npy_free(&array);
  return failed;
}
