/* The command's .npy files: what is written is read back, and a hostile file is an error that names it, never a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../tools/npy.h"
#include "../../tools/npy_header.h"
#include "../../tools/number.h"
#include "../../tools/outfile.h"

static char test_npy_folder[] = "/tmp/twoheads-npy-XXXXXX";
static char test_npy_path[sizeof test_npy_folder + 16];

static int test_npy_setup(void **state)
{
  (void)state;
  if (!mkdtemp(test_npy_folder)) return -1;
  snprintf(test_npy_path, sizeof test_npy_path, "%s/a.npy", test_npy_folder);
  return 0;
}

static int test_npy_teardown(void **state)
{
  (void)state;
  unlink(test_npy_path);
  return rmdir(test_npy_folder); /* fails when something was left behind */
}

/* A file of exactly these bytes. */
static void test_npy_put(const void *bytes, size_t n)
{
  FILE *to = fopen(test_npy_path, "wb");

  assert_non_null(to);
  assert_int_equal(fwrite(bytes, 1, n, to), n);
  assert_int_equal(fclose(to), 0);
}

/* A file of version 1 with this dictionary and `data` bytes of zeros. */
static void test_npy_put_header(const char *dictionary, size_t data)
{
  char   file[1024];
  size_t n = strlen(dictionary);

  assert_true(n + 10 + data <= sizeof file);
  memset(file, 0, sizeof file);
  memcpy(file, "\x93NUMPY\x01\x00", 8);
  file[8] = (char)(n & 255);
  file[9] = (char)(n >> 8);
  memcpy(file + 10, dictionary, n);
  test_npy_put(file, n + 10 + data);
}

/* Reading fails with one line that names the file and holds `words`; nothing is left to release. */
static void test_npy_refused(const char *words)
{
  npy_array array;
  complaint error;

  memset(&array, 0xff, sizeof array);
  memset(&error, 0, sizeof error);
  assert_int_equal(npy_read(test_npy_path, &array, &error), EXIT_FAILED);
  if (!strstr(error.text, words)) fail_msg("'%s' does not hold '%s'", error.text, words);
  assert_non_null(strstr(error.text, test_npy_path));
  assert_null(strchr(error.text, '\n'));
  assert_null(array.data);
}

static void npy_write_then_read_gives_the_same(void **state)
{
  static const int32_t dtypes[] = { TWH_F16, TWH_F32, TWH_F64, TWH_BF16, TWH_BOOL };
  static const int64_t shape[] = { 2, 3, 1, 5 };
  (void)state;
  for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; ++t) {
    for (int rank = 0; rank <= NPY_RANK_MAX; ++rank) {
      npy_array wrote, got;
      complaint error;
      assert_int_equal(npy_allocate("a", dtypes[t], rank, shape, &wrote, &error), 0);
      for (size_t i = 0; i < wrote.bytes; ++i) ((unsigned char *)wrote.data)[i] = (unsigned char)(i * 37 + 1);
      assert_int_equal(npy_write(test_npy_path, &wrote, &error), 0);
      assert_int_equal(npy_read(test_npy_path, &got, &error), 0);
      assert_int_equal(got.dtype, dtypes[t]);
      assert_int_equal(got.rank, rank);
      for (int i = 0; i < rank; ++i) assert_int_equal(got.shape[i], shape[i]);
      assert_int_equal(got.count, wrote.count);
      assert_int_equal(got.bytes, wrote.count * npy_element_bytes(dtypes[t]));
      assert_memory_equal(got.data, wrote.data, wrote.bytes);
      npy_free(&wrote);
      npy_free(&got);
    }
  }
}

/* Byte for byte what NumPy 1.x and 2.x write for numpy.float32([[1, 2, 3]]). */
static void npy_write_is_what_numpy_writes(void **state)
{
  static const float   values[] = { 1, 2, 3 };
  static const int64_t shape[] = { 1, 3 };
  char                 expected[128 + sizeof values], got[sizeof expected + 1];
  npy_array            array;
  complaint            error;
  FILE                *from;
  (void)state;

  memset(expected, ' ', 128);
  memcpy(expected, "\x93NUMPY\x01\x00\x76\x00", 10);
  memcpy(expected + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }", 59);
  expected[127] = '\n';
  memcpy(expected + 128, values, sizeof values);
  assert_int_equal(npy_allocate("a", TWH_F32, 2, shape, &array, &error), 0);
  memcpy(array.data, values, sizeof values);
  assert_int_equal(npy_write(test_npy_path, &array, &error), 0);
  npy_free(&array);
  from = fopen(test_npy_path, "rb");
  assert_non_null(from);
  assert_int_equal(fread(got, 1, sizeof got, from), sizeof expected);
  fclose(from);
  assert_memory_equal(got, expected, sizeof expected);
}

static void npy_read_large_arrives_whole(void **state)
{
  static const int64_t shape[] = { 700000 }; /* more than two of the chunks that reading grows by */
  npy_array            wrote, got;
  complaint            error;
  (void)state;

  assert_int_equal(npy_allocate("a", TWH_F32, 1, shape, &wrote, &error), 0);
  for (int64_t i = 0; i < shape[0]; ++i) ((uint32_t *)wrote.data)[i] = (uint32_t)i * 2654435761u;
  assert_int_equal(npy_write(test_npy_path, &wrote, &error), 0);
  assert_int_equal(npy_read(test_npy_path, &got, &error), 0);
  assert_int_equal(got.bytes, wrote.bytes);
  assert_memory_equal(got.data, wrote.data, wrote.bytes);
  npy_free(&wrote);
  npy_free(&got);
}

static void npy_read_other_spellings_are_taken(void **state)
{
  static const char *const dictionaries[] = {
    "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}",
    "{ 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , 'descr' : '<f4' }   \n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 1, 1), }\n",
  };
  (void)state;
  for (size_t i = 0; i < sizeof dictionaries / sizeof dictionaries[0]; ++i) {
    npy_array array;
    complaint error;
    test_npy_put_header(dictionaries[i], 24);
    if (npy_read(test_npy_path, &array, &error)) fail_msg("%s: %s", dictionaries[i], error.text);
    assert_int_equal(array.count, 6);
    npy_free(&array);
  }
}

/* Versions 2 and 3 have a longer length field. */
static void npy_read_version_2_is_taken(void **state)
{
  static const char dictionary[] = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }";
  char              file[12 + sizeof dictionary - 1 + 3];
  (void)state;

  for (char version = 2; version <= 3; ++version) {
    npy_array array;
    complaint error;
    memset(file, 1, sizeof file);
    memcpy(file, "\x93NUMPY", 6);
    memset(file + 6, 0, 6);
    file[6] = version;
    file[8] = sizeof dictionary - 1;
    memcpy(file + 12, dictionary, sizeof dictionary - 1);
    test_npy_put(file, sizeof file);
    assert_int_equal(npy_read(test_npy_path, &array, &error), 0);
    assert_int_equal(array.dtype, TWH_BOOL);
    assert_int_equal(array.shape[0], 3);
    npy_free(&array);
  }
}

static void npy_read_empty_array_has_no_elements(void **state)
{
  npy_array array;
  complaint error;
  (void)state;

  test_npy_put_header("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 64), }", 0);
  assert_int_equal(npy_read(test_npy_path, &array, &error), 0);
  assert_int_equal(array.count, 0);
  assert_int_equal(array.bytes, 0);
  assert_int_equal(array.shape[1], 64);
  npy_free(&array);
}

typedef struct test_npy_row {
  const char *dictionary, *words;
} test_npy_row;

static void npy_read_hostile_header_is_refused(void **state)
{
  static const test_npy_row rows[] = {
    { "", "no dictionary" },
    { "{", "no dictionary" },
    { "{}", "lacks one of" },
    { "[]", "no dictionary" },
    { "{'descr': '<f4', 'fortran_order': False, }", "lacks one of" },
    { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "twice" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1, }", "unknown key" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } 1", "behind the dictionary" },
    { "{'descr': '<f4', 'fortran_order': False 'shape': (1,), }", "no dictionary" },
    { "{'descr': '<f4', 'fortran_order': maybe, 'shape': (1,), }", "neither True nor False" },
    { "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1), }", "Fortran order" },
    { "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "'>f4'" },
    { "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", "'<i4'" },
    { "{'descr': '<f4444444444444444444444', 'fortran_order': False, 'shape': (1,), }", "type" },
    { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "records" },
    { "{'descr': '<f4, 'fortran_order': False, 'shape': (1,), }", "" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "negative" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1, -9223372036854775808), }", "negative" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", "does not fit 64 bits" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999999,), }", "does not fit 64 bits" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,), }", "more elements than" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "more elements than" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296), }", "more elements than" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,), }", "more elements than" },
    { "{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846975,), }", "cut off" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1), }", "more than 4 dimensions" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': [1], }", "no tuple" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }", "no tuple" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (,), }", "no tuple" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,), }", "no tuple" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1", "no tuple" },
    { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "cut off" },
  };
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    test_npy_put_header(rows[i].dictionary, 0);
    test_npy_refused(rows[i].words);
  }
}

/* Every beginning of a good file is refused, and the file with a byte more. */
static void npy_read_every_truncation_is_refused(void **state)
{
  static const int64_t shape[] = { 3, 2 };
  char                 file[256];
  npy_array            array;
  complaint            error;
  FILE                *from;
  size_t               n;
  (void)state;

  assert_int_equal(npy_allocate("a", TWH_F32, 2, shape, &array, &error), 0);
  assert_int_equal(npy_write(test_npy_path, &array, &error), 0);
  npy_free(&array);
  from = fopen(test_npy_path, "rb");
  assert_non_null(from);
  n = fread(file, 1, sizeof file, from);
  fclose(from);
  assert_int_equal(n, 128 + 24);
  for (size_t length = 0; length < n; ++length) {
    test_npy_put(file, length);
    test_npy_refused(length < 6 ? "no .npy file" : "cut off");
  }
  file[n] = 0;
  test_npy_put(file, n + 1);
  test_npy_refused("more bytes");
}

static void npy_read_other_files_are_refused(void **state)
{
  npy_array array;
  complaint error;
  (void)state;

  test_npy_put("PK\x03\x04 something else altogether", 28);
  test_npy_refused("no .npy file");
  test_npy_put("\x93NUMPY\x07\x00\x10\x00................", 26);
  test_npy_refused("version 7.0");
  test_npy_put("\x93NUMPY\x02\x00\xff\xff\xff\xff................", 28);
  test_npy_refused("too long");
  unlink(test_npy_path);
  test_npy_refused("No such file");
  assert_int_equal(npy_read(test_npy_folder, &array, &error), EXIT_FAILED);
  assert_non_null(strstr(error.text, test_npy_folder));
}

/* Random changes of a good header: whatever comes out, nothing is read beyond and what is taken is consistent. */
static void npy_header_mutated_never_crashes(void **state)
{
  static const char good[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (12, 34, 5, 6), }\n";
  static const char alphabet[] = "{}()[],:'\"0123456789-+. LTF<f4|b1\n\\xdescr";
  uint32_t          seed = 1;
  (void)state;

  for (int round = 0; round < 20000; ++round) {
    npy_header  header;
    size_t      n = sizeof good - 1;
    char       *text; /* of exactly the size, so that reading past its end is seen */
    const char *wrong;
    seed = seed * 1664525u + 1013904223u;
    if (seed >> 31) n = (seed >> 8) % sizeof good;
    text = (char *)malloc(n + !n);
    assert_non_null(text);
    memcpy(text, good, n);
    for (int change = 0; n && change < round % 4; ++change) {
      seed = seed * 1664525u + 1013904223u;
      text[(seed >> 16) % n] = alphabet[(seed >> 4) % (sizeof alphabet - 1)];
    }
    wrong = npy_header_parse(text, n, &header);
    if (!wrong) {
      assert_in_range(header.rank, 0, NPY_HEADER_RANK_MAX);
      for (int i = 0; i < header.rank; ++i) assert_true(header.shape[i] >= 0);
      assert_non_null(memchr(header.descr, 0, sizeof header.descr));
    } else {
      assert_true(wrong[0] != 0);
    }
    free(text);
  }
}

static void npy_write_where_it_cannot_is_an_error(void **state)
{
  static const int64_t shape[] = { 1 };
  npy_array            array;
  complaint            error;
  (void)state;

  assert_int_equal(npy_allocate("a", TWH_F32, 1, shape, &array, &error), 0);
  assert_int_equal(npy_write("/nonexistent/folder/a.npy", &array, &error), EXIT_FAILED);
  assert_non_null(strstr(error.text, "/nonexistent/folder/a.npy"));
  assert_int_equal(outfile_try("/nonexistent/folder/a.npy", &error), EXIT_FAILED);
  assert_int_equal(outfile_try(test_npy_folder, &error), EXIT_FAILED);
  assert_int_equal(npy_write(test_npy_folder, &array, &error), EXIT_FAILED);
  if (!access("/dev/full", W_OK)) { /* a device is written to, not replaced, and its error is reported */
    struct stat info;
    assert_int_equal(outfile_try("/dev/full", &error), 0);
    assert_int_equal(npy_write("/dev/full", &array, &error), EXIT_FAILED);
    assert_non_null(strstr(error.text, "No space left"));
    assert_int_equal(stat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
  }
  npy_free(&array);
}

static void outfile_try_leaves_nothing_behind(void **state)
{
  complaint error;
  (void)state;

  unlink(test_npy_path);
  assert_int_equal(outfile_try(test_npy_path, &error), 0);
  assert_int_equal(access(test_npy_path, F_OK), -1);
  test_npy_put("kept", 4);
  assert_int_equal(outfile_try(test_npy_path, &error), 0);
  test_npy_refused("no .npy file"); /* still the four bytes */
}

static void number_whole_takes_whole_numbers_only(void **state)
{
  static const char *const bad[] = {
    "", " 1", "1 ", "1.0", "1e3", "0x10", "nan", "9223372036854775808", "-9223372036854775809", "-", "+", "--1",
  };
  int64_t                  value = 7;
  (void)state;

  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    if (!number_whole(bad[i], &value)) fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(value, 7);
  }
  assert_null(number_whole("-9223372036854775808", &value));
  assert_true(value == INT64_MIN);
  assert_null(number_whole("0012", &value));
  assert_int_equal(value, 12);
}

static void number_real_takes_finite_numbers_only(void **state)
{
  static const char *const bad[] = { "", " 1", "1 ", "1x", "nan", "inf", "-inf", "1e999", ".", "-", "1,5" };
  double                   value = 7;
  (void)state;

  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    if (!number_real(bad[i], &value)) fail_msg("'%s' was taken", bad[i]);
    assert_true(value == 7);
  }
  assert_null(number_real("-.5e1", &value));
  assert_true(value == -5.0);
  assert_null(number_real("1e-999", &value));
  assert_true(value == 0.0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(npy_write_then_read_gives_the_same),
    cmocka_unit_test(npy_write_is_what_numpy_writes),
    cmocka_unit_test(npy_read_large_arrives_whole),
    cmocka_unit_test(npy_read_other_spellings_are_taken),
    cmocka_unit_test(npy_read_version_2_is_taken),
    cmocka_unit_test(npy_read_empty_array_has_no_elements),
    cmocka_unit_test(npy_read_hostile_header_is_refused),
    cmocka_unit_test(npy_read_every_truncation_is_refused),
    cmocka_unit_test(npy_read_other_files_are_refused),
    cmocka_unit_test(npy_header_mutated_never_crashes),
    cmocka_unit_test(npy_write_where_it_cannot_is_an_error),
    cmocka_unit_test(outfile_try_leaves_nothing_behind),
    cmocka_unit_test(number_whole_takes_whole_numbers_only),
    cmocka_unit_test(number_real_takes_finite_numbers_only),
  };
  return cmocka_run_group_tests(tests, test_npy_setup, test_npy_teardown);
}
