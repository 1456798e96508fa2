/* Conversions of rows: the same bits as element by element, and those of the definition. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/base.h"
#include "tests/unit/support.h"

enum { PIECE = 1024 };

static const int32_t dtype_all[] = { TWH_F64, TWH_F32, TWH_F16, TWH_BF16 };

static double dtype_f64(uint64_t bits)
{
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* n elements of one dtype to every dtype: as twh__load and twh__store do it. */
static void dtype_check_row(int32_t from_dtype, const void *from, int64_t n)
{
  for (int64_t t = 0; t < SUPPORT_COUNT(dtype_all); ++t) {
    int32_t to_dtype = dtype_all[t];
    int64_t bytes = n * twh__dtype_bytes(to_dtype);
    char    row[PIECE * 8 + 1], one[PIECE * 8 + 1];
    row[bytes] = one[bytes] = 77;
    twh__convert(row, to_dtype, from, from_dtype, n);
    assert_int_equal(row[bytes], 77);
    for (int64_t i = 0; i < n; ++i) twh__store(one, to_dtype, i, twh__load(from, from_dtype, i));
    for (int64_t i = 0; i < n; ++i) {
      double a = twh__load(row, to_dtype, i), b = twh__load(one, to_dtype, i);
      if (isnan(a) && isnan(b)) continue; /* payloads are nobody's promise */
      assert_memory_equal(row + i * twh__dtype_bytes(to_dtype), one + i * twh__dtype_bytes(to_dtype),
                          (size_t)twh__dtype_bytes(to_dtype));
    }
  }
}

static void dtype_every_half(void **state)
{
  (void)state;
  for (int half = 2; half < 4; ++half) {
    for (int64_t first = 0; first < 65536; first += PIECE) {
      uint16_t row[PIECE];
      for (int64_t i = 0; i < PIECE; ++i) row[i] = (uint16_t)(first + i);
      dtype_check_row(dtype_all[half], row, PIECE);
    }
  }
}

/* One in a prime number of all f32, and all around the places where rounding turns. */
static void dtype_many_floats(void **state)
{
  uint32_t row[PIECE];
  int64_t  n = 0;

  (void)state;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 997) {
    row[n++] = (uint32_t)bits;
    if (n < PIECE) continue;
    dtype_check_row(TWH_F32, row, n);
    n = 0;
  }
  dtype_check_row(TWH_F32, row, n);
  for (uint32_t half = 0; half < 65536; half += 1) {
    uint16_t value = (uint16_t)half;
    float    place = (float)twh__load(&value, TWH_F16, 0);
    uint32_t bits;
    memcpy(&bits, &place, sizeof bits);
    n = 0;
    for (uint32_t around = 0; around < 8; ++around) { /* the value, and half way to the next one */
      row[n++] = bits + around - 4;
      row[n++] = bits + 0x1000 + around - 4;
      row[n++] = half << 16 | (around + 0x7ffc);
      row[n++] = (half << 16) + around - 4;
    }
    dtype_check_row(TWH_F32, row, n);
  }
}

/* f64 at and beside each half way of the 16-bit types: rounded once, to the even one. */
static void dtype_half_ways(void **state)
{
  (void)state;
  for (int half = 2; half < 4; ++half) {
    for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
      uint16_t at = (uint16_t)bits, next = (uint16_t)(bits + 1), got[6];
      double   low = twh__load(&at, dtype_all[half], 0), high = twh__load(&next, dtype_all[half], 0), row[6];
      if (!isfinite(high)) high = low + (low - twh__load(&(uint16_t){ (uint16_t)(bits - 1) }, dtype_all[half], 0));
      if (!isfinite(low) || isnan(high)) break;
      row[0] = low + (high - low) / 2;
      row[1] = nextafter(row[0], 0);
      row[2] = nextafter(row[0], INFINITY);
      for (int i = 0; i < 3; ++i) row[3 + i] = -row[i];
      dtype_check_row(TWH_F64, row, 6);
      twh__convert(got, dtype_all[half], row, TWH_F64, 6);
      assert_int_equal(got[0], bits % 2 ? bits + 1 : bits);
      assert_int_equal(got[1], bits);
      assert_int_equal(got[2], bits + 1);
      for (int i = 0; i < 3; ++i) assert_int_equal(got[3 + i], got[i] | 0x8000);
    }
  }
}

static void dtype_any_doubles(void **state)
{
  static const double fixed[] = { 0,        -0.0,      INFINITY, -INFINITY,      NAN,     DBL_MAX, -DBL_MAX,    DBL_MIN,
                                  0x1p-149, 0x1p-1074, FLT_MAX,  0x1.ffffffp127, 0x1p128, 65504,   65519.99999, 65520 };
  support_random      random = support_random_at(3, 2);
  double              row[PIECE];

  (void)state;
  dtype_check_row(TWH_F64, fixed, SUPPORT_COUNT(fixed));
  for (int64_t turn = 0; turn < 1000; ++turn) {
    for (int64_t i = 0; i < PIECE; ++i) { /* any bits, or exponents that f16 and bf16 may have */
      uint64_t bits = support_bits(&random), exponent = (uint64_t)support_between(&random, 1023 - 160, 1023 + 130);
      row[i] = dtype_f64(i % 2 ? bits : (bits & 0x800fffffffffffff) | exponent << 52);
    }
    dtype_check_row(TWH_F64, row, PIECE);
  }
}

/* Rows of any length, anywhere. */
static void dtype_lengths(void **state)
{
  support_random random = support_random_at(3, 3);

  (void)state;
  for (int64_t f = 0; f < SUPPORT_COUNT(dtype_all); ++f) {
    for (int64_t n = 0; n <= 70; ++n) {
      double values[80];
      char   from[80 * 8];
      for (int64_t i = 0; i < 80; ++i) values[i] = support_normal(&random);
      twh__convert(from, dtype_all[f], values, TWH_F64, 80);
      for (int64_t shift = 0; shift < 9; ++shift)
        dtype_check_row(dtype_all[f], from + shift * twh__dtype_bytes(dtype_all[f]), n);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(dtype_every_half), cmocka_unit_test(dtype_many_floats),
                                      cmocka_unit_test(dtype_half_ways), cmocka_unit_test(dtype_any_doubles),
                                      cmocka_unit_test(dtype_lengths) };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
