/* The reader of .safetensors files: what is stored is found again, and a hostile file is an error that names it, never a
 * crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../tools/safetensors.h"
#include "../../tools/safetensors_header.h"

static char test_safetensors_folder[] = "/tmp/twoheads-safetensors-XXXXXX";
static char test_safetensors_path[sizeof test_safetensors_folder + 16];

static int test_safetensors_setup(void **state)
{
  (void)state;
  if (!mkdtemp(test_safetensors_folder)) return -1;
  snprintf(test_safetensors_path, sizeof test_safetensors_path, "%s/a", test_safetensors_folder);
  return 0;
}

static int test_safetensors_teardown(void **state)
{
  (void)state;
  unlink(test_safetensors_path);
  return rmdir(test_safetensors_folder); /* fails when something was left behind */
}

static void test_safetensors_put(const void *bytes, size_t n)
{
  FILE *to = fopen(test_safetensors_path, "wb");

  assert_non_null(to);
  assert_int_equal(fwrite(bytes, 1, n, to), n);
  assert_int_equal(fclose(to), 0);
}

/* A file with this header and `data` bytes 0, 1, 2, ...; the first `cut` bytes of it (0: all). Returns its size. */
static size_t test_safetensors_put_header(const char *header, size_t data, size_t cut)
{
  size_t         length = strlen(header), n = 8 + length + data;
  unsigned char *file = (unsigned char *)calloc(1, n);

  assert_non_null(file);
  file[0] = (unsigned char)(length & 255);
  file[1] = (unsigned char)(length >> 8 & 255);
  file[2] = (unsigned char)(length >> 16);
  memcpy(file + 8, header, length);
  for (size_t i = 0; i < data; ++i) file[8 + length + i] = (unsigned char)i;
  test_safetensors_put(file, cut ? cut : n);
  free(file);
  return n;
}

static safetensors *test_safetensors_taken(void)
{
  char         message[300];
  safetensors *file = safetensors_open(test_safetensors_path, message, sizeof message);

  if (!file) fail_msg("%s", message);
  return file;
}

/* Opening fails with one line that names the file and holds `words`. */
static void test_safetensors_refused(const char *words)
{
  char         message[300];
  safetensors *file = safetensors_open(test_safetensors_path, message, sizeof message);

  if (file) fail_msg("taken, where '%s' was expected", words);
  if (!strstr(message, words)) fail_msg("'%s' does not hold '%s'", message, words);
  assert_non_null(strstr(message, test_safetensors_path));
  assert_null(strchr(message, '\n'));
}

static void matrix_of_each_float_type_is_found(void **state)
{
  static const char *const names[] = { "a", "b", "c" };
  static const int32_t     dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };
  static const int64_t     rows[] = { 2, 1, 2 }, cols[] = { 3, 5, 1 };
  static const size_t      begins[] = { 0, 24, 34 }, bytes[] = { 24, 10, 4 };
  safetensors             *file;
  (void)state;

  test_safetensors_put_header("{\"c\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[34,38]},"
                              "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                              "\"b\":{\"dtype\":\"F16\",\"shape\":[5],\"data_offsets\":[24,34]}}   ",
                              38, 0);
  file = test_safetensors_taken();
  for (int i = 0; i < 3; ++i) {
    twh_matrix matrix;
    assert_int_equal(safetensors_matrix(file, names[i], &matrix), 1);
    assert_int_equal(matrix.struct_size, sizeof matrix);
    assert_int_equal(matrix.dtype, dtypes[i]);
    assert_int_equal(matrix.rows, rows[i]);
    assert_int_equal(matrix.cols, cols[i]);
    assert_int_equal(matrix.row_stride, 0);
    for (size_t at = 0; at < bytes[i]; ++at) {
      assert_int_equal(((const unsigned char *)matrix.data)[at], (unsigned char)(begins[i] + at));
    }
  }
  safetensors_close(file);
}

static void flat_types_are_found_in_any_rank(void **state)
{
  safetensors   *file;
  const int32_t *whole;
  const double  *real;
  double         want;
  unsigned char  eight[8];
  int64_t        n = -1;
  (void)state;

  test_safetensors_put_header("{\"ids\":{\"dtype\":\"I32\",\"shape\":[1,2,1,2],\"data_offsets\":[0,16]},"
                              "\"one\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[16,24]}}",
                              24, 0);
  file = test_safetensors_taken();
  whole = safetensors_i32(file, "ids", &n);
  assert_non_null(whole);
  assert_int_equal(n, 4);
  assert_int_equal(whole[0], 0x03020100);
  assert_int_equal(whole[3], 0x0f0e0d0c);
  real = safetensors_f64(file, "one", &n);
  assert_non_null(real);
  assert_int_equal(n, 1);
  for (int i = 0; i < 8; ++i) eight[i] = (unsigned char)(16 + i);
  memcpy(&want, eight, 8);
  assert_true(*real == want);
  assert_null(safetensors_f64(file, "ids", &n));
  assert_null(safetensors_i32(file, "one", &n));
  safetensors_close(file);
}

/* Other types and ranks may be there, and are no matrices; neither is what is not there. */
static void other_types_and_ranks_are_not_matrices(void **state)
{
  static const char *const names[] = { "u8", "new", "half", "long", "scalar", "cube", "nothing", "", "__metadata__" };
  safetensors             *file;
  (void)state;

  test_safetensors_put_header("{\"__metadata__\":{\"format\":\"pt\",\"\":\"\\u00e9\"},"
                              "\"u8\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[0,1]},"
                              "\"new\":{\"dtype\":\"F32_OF_THE_NEXT_CENTURY\",\"shape\":[4,4],\"data_offsets\":[1,4]},"
                              "\"half\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[4,8]},"
                              "\"long\":{\"dtype\":\"I64\",\"shape\":[1,1],\"data_offsets\":[8,16]},"
                              "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
                              "\"cube\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[20,24]}}",
                              24, 0);
  file = test_safetensors_taken();
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    twh_matrix matrix;
    int64_t    n;
    if (safetensors_matrix(file, names[i], &matrix)) fail_msg("'%s' was taken for a matrix", names[i]);
    assert_null(safetensors_i32(file, names[i], &n));
    assert_null(safetensors_f64(file, names[i], &n));
  }
  safetensors_close(file);
}

static void empty_tensors_and_files_are_taken(void **state)
{
  twh_matrix   matrix;
  safetensors *file;
  int64_t      n = -1;
  (void)state;

  test_safetensors_put_header("{}", 0, 0);
  file = test_safetensors_taken();
  assert_int_equal(safetensors_matrix(file, "a", &matrix), 0);
  safetensors_close(file);
  test_safetensors_put_header("{\"b\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
                              "\"a\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
                              "\"c\":{\"dtype\":\"F64\",\"shape\":[3,0],\"data_offsets\":[4,4]}}",
                              4, 0);
  file = test_safetensors_taken();
  assert_int_equal(safetensors_matrix(file, "a", &matrix), 1);
  assert_int_equal(matrix.rows, 0);
  assert_int_equal(matrix.cols, 7);
  assert_non_null(safetensors_f64(file, "c", &n));
  assert_int_equal(n, 0);
  safetensors_close(file);
  safetensors_close(NULL);
}

/* Wherever the header ends and whatever stands before a tensor, its pointer can be read through. */
static void data_are_aligned_whatever_the_offsets(void **state)
{
  char header[400];
  (void)state;

  for (int pad = 0; pad < 8; ++pad) {
    twh_matrix    matrix;
    const double *real;
    int64_t       n;
    unsigned char byte;
    safetensors  *file;
    snprintf(header, sizeof header,
             "{\"x\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]},"
             "\"m\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[%d,%d]},"
             "\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[%d,%d]}}%.*s",
             pad, pad, pad, pad + 8, pad + 8, pad + 24, pad, "        ");
    test_safetensors_put_header(header, (size_t)pad + 24, 0);
    file = test_safetensors_taken();
    assert_int_equal(safetensors_matrix(file, "m", &matrix), 1);
    assert_int_equal((uintptr_t)matrix.data % sizeof(float), 0);
    memcpy(&byte, (const float *)matrix.data + 1, 1);
    assert_int_equal(byte, pad + 4);
    real = safetensors_f64(file, "d", &n);
    assert_non_null(real);
    assert_int_equal((uintptr_t)real % sizeof(double), 0);
    memcpy(&byte, real + 1, 1);
    assert_int_equal(byte, pad + 16);
    safetensors_close(file);
  }
}

static void escapes_in_names_are_resolved(void **state)
{
  static const char *const spelled[] = { "a\\u0062c",      "\\\"\\\\\\/", "\\b\\f\\n\\r\\t", "\\u00e9\\u20AC",
                                         "\\ud83D\\uDe00", "caf\xc3\xa9", "\\u007f\\u0080",  "\\u07ff\\u0800\\uffff" };
  static const char *const names[] = { "abc",
                                       "\"\\/",
                                       "\b\f\n\r\t",
                                       "\xc3\xa9\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "caf\xc3\xa9",
                                       "\x7f\xc2\x80",
                                       "\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf" };
  char                     header[200];
  (void)state;

  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    safetensors *file;
    int64_t      n;
    snprintf(header, sizeof header, "{\"%s\":{\"d\\u0074ype\":\"I\\u00332\",\"shape\":[1],\"data_offsets\":[0,4]}}",
             spelled[i]);
    test_safetensors_put_header(header, 4, 0);
    file = test_safetensors_taken();
    if (!safetensors_i32(file, names[i], &n)) fail_msg("%s was not found", spelled[i]);
    safetensors_close(file);
  }
}

typedef struct test_safetensors_row {
  const char *header, *words;
} test_safetensors_row;

/* A tensor named a. */
#define TENSOR(text)         "{\"a\":{" text "}}"
#define SHAPE(text)          TENSOR("\"dtype\":\"F32\",\"shape\":" text ",\"data_offsets\":[0,4]")
#define OFFSETS(text)        TENSOR("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" text)
#define I8(name, begin, end) "\"" name "\":{\"dtype\":\"I8\",\"shape\":[" begin "],\"data_offsets\":[" end "]}"

/* All of them with four bytes of data. */
static const test_safetensors_row test_safetensors_rows[] = {
  { "", "no JSON object" },
  { " {}", "no JSON object" },
  { "[]", "no JSON object" },
  { "null", "no JSON object" },
  { "{", "no JSON object" },
  { "{\"a", "no JSON object" },
  { "{\"a\"}", "no JSON object" },
  { "{\"a\":", "is no object" },
  { "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "is no object" },
  { "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{", "unknown key" },
  { "{\"a\":7}", "is no object" },
  { "{a:{}}", "no JSON object" },
  { "{,}", "no JSON object" },
  { "{}", "belong to no tensor" },
  { "{} {}", "behind the object" },
  { "{}x", "behind the object" },
  { "{\"__metadata__\":{\"a\":1}}", "metadata" },
  { "{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", "metadata" },
  { "{\"__metadata__\":[]}", "metadata" },
  { "{\"__metadata__\":{\"a\":\"b\",}}", "metadata" },
  { TENSOR(""), "lacks one of" },
  { TENSOR("\"dtype\":\"F32\",\"shape\":[1]"), "lacks one of" },
  { TENSOR("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), "a key twice" },
  { TENSOR("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1"), "unknown key" },
  { TENSOR("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],"), "no object" },
  { TENSOR("\"dtype\":\"F32\" \"shape\":[1],\"data_offsets\":[0,4]"), "no object" },
  { TENSOR("\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]"), "dtype that is no text" },
  { TENSOR("\"dtype\":\"F32"), "dtype that is no text" },
  { SHAPE("1"), "no list" },
  { SHAPE("[1"), "no list" },
  { SHAPE("[1 1]"), "no list" },
  { SHAPE("[1,]"), "no list" },
  { SHAPE("[,1]"), "no list" },
  { SHAPE("[-1]"), "no list" },
  { SHAPE("[1.0]"), "no list" },
  { SHAPE("[1e0]"), "no list" },
  { SHAPE("[01]"), "no list" },
  { SHAPE("[[1]]"), "no list" },
  { SHAPE("[\"1\"]"), "no list" },
  { SHAPE("[9223372036854775808]"), "no list" },
  { SHAPE("[18446744073709551617]"), "no list" },
  { SHAPE("[99999999999999999999999999999999]"), "no list" },
  { SHAPE("[4611686018427387905]"), "another number of bytes" }, /* 4 n is 4 modulo 2^64 */
  { SHAPE("[4294967296,4294967296]"), "more elements than" },
  { SHAPE("[0,4294967296,4294967296]"), "more elements than" },
  { SHAPE("[4294967296,4294967296,0]"), "more elements than" },
  { SHAPE("[2]"), "another number of bytes" },
  { SHAPE("[0]"), "another number of bytes" },
  { SHAPE("[1,1,1,1,1,1,1,2]"), "another number of bytes" },
  { OFFSETS("[0,3]"), "another number of bytes" },
  { "{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,3]}," I8("b", "1", "3,4") "}", "'a' has another number" },
  { OFFSETS("[0,5]"), "behind the end" },
  { OFFSETS("[4,8]"), "behind the end" },
  { OFFSETS("[4,0]"), "ends before it begins" },
  { OFFSETS("[-4,0]"), "no two whole numbers" },
  { OFFSETS("[0,9223372036854775807]"), "behind the end" },
  { OFFSETS("[0,18446744073709551615]"), "no two whole numbers" },
  { OFFSETS("[0]"), "no two whole numbers" },
  { OFFSETS("[0,2,4]"), "no two whole numbers" },
  { OFFSETS("0"), "no two whole numbers" },
  { "{" I8("a", "3", "0,3") "}", "belong to no tensor" },
  { "{" I8("a", "3", "1,4") "}", "gap" },
  { "{" I8("a", "1", "0,1") "," I8("b", "2", "2,4") "}", "'b' has a gap" },
  { "{" I8("a", "3", "0,3") "," I8("b", "2", "2,4") "}", "'b' overlaps" },
  { "{" I8("a", "4", "0,4") "," I8("b", "4", "0,4") "}", "overlaps" },
  { "{" I8("a", "0", "2,2") "," I8("b", "4", "0,4") "}", "'a' overlaps" },
  { "{" I8("a", "2", "0,2") "," I8("a", "2", "2,4") "}", "'a' is there twice" },
  { "{" I8("a", "1", "0,1") "," I8("b", "1", "1,2") "," I8("\\u0061", "2", "2,4") "}", "'a' is there twice" },
  { "{" I8("a\\u0000b", "4", "0,4") "}", "no JSON object" },
  { "{" I8("\\ud800", "4", "0,4") "}", "no JSON object" },
  { "{" I8("\\ud800\\u0041", "4", "0,4") "}", "no JSON object" },
  { "{" I8("\\udc00", "4", "0,4") "}", "no JSON object" },
  { "{" I8("\\u12g4", "4", "0,4") "}", "no JSON object" },
  { "{" I8("\\x41", "4", "0,4") "}", "no JSON object" },
  { "{" I8("a\nb", "4", "0,4") "}", "no JSON object" },
  { "{" I8("a\\nb", "3", "0,4") "}", "'a?b' has another number" },
  { "{\"\\u00", "no JSON object" },
  { "{\"\\", "no JSON object" },
  { "{\"\\ud800\\u", "no JSON object" },
};

static void hostile_header_is_refused(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof test_safetensors_rows / sizeof test_safetensors_rows[0]; ++i) {
    test_safetensors_put_header(test_safetensors_rows[i].header, 4, 0);
    test_safetensors_refused(test_safetensors_rows[i].words);
  }
}

/* Every beginning of a good file is refused, and the file with a byte more. */
static void every_truncation_is_refused(void **state)
{
  static const char header[] = "{\"b\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[8,16]},"
                               "\"a\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  size_t            n = test_safetensors_put_header(header, 16, 0);
  (void)state;

  safetensors_close(test_safetensors_taken());
  for (size_t cut = 1; cut < n; ++cut) {
    test_safetensors_put_header(header, 16, cut);
    test_safetensors_refused(cut < 8 + sizeof header - 1 ? "cut off" : "behind the end of the file");
  }
  test_safetensors_put_header(header, 17, 0);
  test_safetensors_refused("belong to no tensor");
}

static void other_files_are_refused(void **state)
{
  static const unsigned char lengths[][8] = { { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
                                              { 0, 0, 0, 0, 0, 0, 0, 0x80 },
                                              { 0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0 },
                                              { 0x00, 0xe1, 0xf5, 0x05, 0, 0, 0, 0 },
                                              { 3, 0, 0, 0, 0, 0, 0, 0 } };
  static const char *const   words[] = { "too long", "too long", "too long", "cut off inside", "cut off inside" };
  char                       file[10], message[200];
  (void)state;

  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) {
    memcpy(file, lengths[i], 8);
    memcpy(file + 8, "{}", 2);
    test_safetensors_put(file, sizeof file);
    test_safetensors_refused(words[i]);
  }
  test_safetensors_put("PK\x03\x04 something else altogether", 28);
  test_safetensors_refused("is it a .safetensors file?");
  test_safetensors_put("", 0);
  test_safetensors_refused("cut off");
  unlink(test_safetensors_path);
  test_safetensors_refused("No such file");
  assert_null(safetensors_open(test_safetensors_folder, message, sizeof message));
  assert_non_null(strstr(message, test_safetensors_folder));
  assert_null(safetensors_open("/dev/null", message, sizeof message));
  assert_null(safetensors_open("/dev/zero", message, sizeof message));
  memset(message, 'x', sizeof message);
  assert_null(safetensors_open(test_safetensors_path, message, 8));
  assert_int_equal(strlen(message), 7);
  assert_int_equal(message[8], 'x');
  assert_null(safetensors_open(test_safetensors_path, NULL, 0));
}

/* Objects and lists as deep as a header can be are refused without recursion. */
static void deep_nesting_is_refused(void **state)
{
  enum { DEEP = 1000000 };
  static const char *const begins[] = { "{\"a\":", "{\"a\":{\"shape\":", "{\"__metadata__\":", "" };
  char                    *header = (char *)malloc(DEEP + 32);
  (void)state;

  assert_non_null(header);
  for (size_t i = 0; i < sizeof begins / sizeof begins[0]; ++i) {
    for (int brace = 0; brace < 2; ++brace) {
      size_t n = strlen(begins[i]);
      memcpy(header, begins[i], n);
      memset(header + n, brace ? '{' : '[', DEEP);
      header[n + DEEP] = 0;
      test_safetensors_put_header(header, 0, 0);
      test_safetensors_refused(test_safetensors_path);
    }
  }
  free(header);
}

/* Random changes of a good header: whatever comes out, nothing is read beyond and what is taken lies within the data. */
static void mutated_header_never_crashes(void **state)
{
  static const char good[] = "{\"\\u00e9\\n\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[8,16]},"
                             "\"__metadata__\":{\"k\":\"v\"},"
                             "\"a\":{\"shape\":[2],\"data_offsets\":[0,8],\"dtype\":\"I32\"}}";
  static const char alphabet[] = "{}[],:\"\\u0123456789-+. eadtypsh__FI\n";
  uint32_t          seed = 1;
  int               taken = 0;
  (void)state;

  for (int round = 0; round < 20000; ++round) {
    safetensors_header header;
    size_t             n = sizeof good - 1;
    char              *text; /* of exactly the size, so that reading past its end is seen */
    const char        *wrong;
    seed = seed * 1664525u + 1013904223u;
    if (seed >> 31) n = (seed >> 8) % sizeof good;
    text = (char *)malloc(n + !n);
    assert_non_null(text);
    memcpy(text, good, n);
    for (int change = 0; n && change < round % 4; ++change) {
      seed = seed * 1664525u + 1013904223u;
      text[(seed >> 16) % n] = alphabet[(seed >> 4) % (sizeof alphabet - 1)];
    }
    wrong = safetensors_header_parse(text, n, 16, &header);
    taken += !wrong;
    for (size_t i = 0; !wrong && i < header.count; ++i) {
      const safetensors_record *record = &header.records[i];
      assert_true(record->begin <= record->end && record->end <= 16);
      assert_true(strlen(record->name) < n);
      assert_non_null(memchr(record->dtype, 0, sizeof record->dtype));
      if (record->item) assert_int_equal(record->count * record->item, record->end - record->begin);
      assert_ptr_equal(safetensors_header_find(&header, record->name), record);
    }
    if (wrong && header.culprit) assert_true(strlen(header.culprit) < n);
    safetensors_header_free(&header);
    free(text);
  }
  assert_in_range(taken, 1000, 19000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(matrix_of_each_float_type_is_found),
    cmocka_unit_test(flat_types_are_found_in_any_rank),
    cmocka_unit_test(other_types_and_ranks_are_not_matrices),
    cmocka_unit_test(empty_tensors_and_files_are_taken),
    cmocka_unit_test(data_are_aligned_whatever_the_offsets),
    cmocka_unit_test(escapes_in_names_are_resolved),
    cmocka_unit_test(hostile_header_is_refused),
    cmocka_unit_test(every_truncation_is_refused),
    cmocka_unit_test(other_files_are_refused),
    cmocka_unit_test(deep_nesting_is_refused),
    cmocka_unit_test(mutated_header_never_crashes),
  };
  return cmocka_run_group_tests(tests, test_safetensors_setup, test_safetensors_teardown);
}
