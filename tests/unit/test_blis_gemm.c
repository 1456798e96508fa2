/* The matrix product on BLIS: against float64 in every type and orientation of the weights, over shapes and magnitudes; every
 * number of the narrow types; NaN, empty products, strides; and bits that depend on nothing but the row and the column. */
#include "support.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "twoheads_blis.h"

/* A product with memory of its own, behind which nothing is mapped; what lies between rows, and all of c, is poison. */
typedef struct gemm_case {
  twh_gemm gemm;
  float   *a, *c;
  void    *b;
  size_t   a_count, b_bytes, c_count;
  void    *mapping[3];
  size_t   mapped[3];
} gemm_case;

/* Poison that ends where a page ends behind which nothing is mapped. */
static void *gemm_guard(gemm_case *made, int number, size_t bytes)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  char  *memory = (char *)mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  assert_int_equal(mprotect(memory + whole, page, PROT_NONE), 0);
  made->mapping[number] = memory;
  made->mapped[number] = whole + page;
  memset(memory, SUPPORT_POISON, whole);
  return memory + whole - bytes;
}

/* gap: behind every row of a and c, and every row or column of b. */
static void gemm_create(gemm_case *made, int64_t m, int64_t n, int64_t k, int32_t b_dtype, int columns, int64_t gap)
{
  const int64_t b_run = columns ? k : n, b_runs = columns ? n : k;
  twh_gemm_init(&made->gemm);
  made->gemm.m = m;
  made->gemm.n = n;
  made->gemm.k = k;
  made->gemm.b_dtype = b_dtype;
  made->gemm.a_row_stride = k + gap;
  made->gemm.c_row_stride = n + 2 * gap;
  made->gemm.b_row_stride = columns ? 1 : b_run + gap;
  made->gemm.b_col_stride = columns ? b_run + gap : 1;
  made->a_count = m > 0 ? (size_t)((m - 1) * made->gemm.a_row_stride + k) : 0;
  made->c_count = m > 0 ? (size_t)((m - 1) * made->gemm.c_row_stride + n) : 0;
  made->b_bytes = b_runs > 0 ? (size_t)(((b_runs - 1) * (b_run + gap) + b_run) * support_bytes(b_dtype)) : 0;
  made->a = (float *)gemm_guard(made, 0, made->a_count * sizeof(float));
  made->b = gemm_guard(made, 1, made->b_bytes);
  made->c = (float *)gemm_guard(made, 2, made->c_count * sizeof(float));
  made->gemm.a = made->a;
  made->gemm.b = made->b;
  made->gemm.c = made->c;
}

static void gemm_destroy(gemm_case *made)
{
  int n;
  for (n = 0; n < 3; ++n) munmap(made->mapping[n], made->mapped[n]);
}

static int64_t gemm_b_at(const twh_gemm *gemm, int64_t p, int64_t j)
{
  return p * gemm->b_row_stride + j * gemm->b_col_stride;
}

/* Normal numbers times a_size and b_size. */
static void gemm_fill(gemm_case *made, double a_size, double b_size, support_random *random)
{
  const twh_gemm *gemm = &made->gemm;
  int64_t         i, j, p;
  for (i = 0; i < gemm->m; ++i)
    for (p = 0; p < gemm->k; ++p) made->a[i * gemm->a_row_stride + p] = (float)(support_normal(random) * a_size);
  for (p = 0; p < gemm->k; ++p)
    for (j = 0; j < gemm->n; ++j)
      support_store(made->b, gemm->b_dtype, gemm_b_at(gemm, p, j), support_normal(random) * b_size);
}

static void gemm_run(gemm_case *made)
{
  assert_int_equal(twh_blis_gemm(NULL, &made->gemm), 0);
}

/* The largest error in units of 2^-24 times the sum of the absolute terms, divided by 2 + sqrt(k). */
static double gemm_error(const twh_gemm *gemm)
{
  double  worst = 0.0;
  int64_t i, j, p;
  for (i = 0; i < gemm->m; ++i)
    for (j = 0; j < gemm->n; ++j) {
      double want = 0.0, terms = 0.0, error;
      for (p = 0; p < gemm->k; ++p) {
        double term = (double)gemm->a[i * gemm->a_row_stride + p] * support_load(gemm->b, gemm->b_dtype, gemm_b_at(gemm, p, j));
        want += term;
        terms += fabs(term);
      }
      terms += 0x1p-125; /* below that numbers have fewer bits */
      error = fabs((double)gemm->c[i * gemm->c_row_stride + j] - want) / (terms * 0x1p-24 * (2.0 + sqrt((double)gemm->k)));
      if (!(error <= worst)) worst = error == error ? error : INFINITY;
    }
  return worst;
}

/* Whether nothing was written between the rows of c. */
static int gemm_gaps_untouched(const gemm_case *made)
{
  const twh_gemm      *gemm = &made->gemm;
  const unsigned char *c = (const unsigned char *)made->c;
  size_t               at;
  for (at = 0; at < made->c_count * sizeof(float); ++at)
    if ((int64_t)(at / sizeof(float)) % gemm->c_row_stride >= gemm->n && c[at] != SUPPORT_POISON) return 0;
  return 1;
}

static const int32_t gemm_dtypes[] = { TWH_F32, TWH_F16, TWH_BF16 };

static void gemm_equals_float64(void **state)
{
  static const int64_t shapes[][3] = {
    { 1, 1, 1 },  { 1, 1, 300 },   { 1, 300, 1 },  { 300, 1, 1 },    { 2, 3, 1 },     { 7, 5, 3 },     { 1, 64, 64 },
    { 64, 1, 7 }, { 16, 33, 129 }, { 65, 17, 40 }, { 70, 129, 300 }, { 33, 100, 700 }, { 130, 31, 257 },
  };
  support_random random = support_random_at(21, 0);
  int64_t        n, dtype, columns, gap;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(shapes); ++n)
    for (dtype = 0; dtype < 3; ++dtype)
      for (columns = 0; columns < 2; ++columns)
        for (gap = 0; gap < 6; gap += 5) {
          gemm_case made;
          char      name[100];
          snprintf(name, sizeof name, "shape %d, dtype %d, columns %d, gap %d", (int)n, (int)gemm_dtypes[dtype], (int)columns,
                   (int)gap);
          gemm_create(&made, shapes[n][0], shapes[n][1], shapes[n][2], gemm_dtypes[dtype], (int)columns, gap);
          gemm_fill(&made, 1.0, 1.0, &random);
          gemm_run(&made);
          support_assert_at_most(gemm_error(&made.gemm), 1.0, name);
          assert_true(gemm_gaps_untouched(&made));
          gemm_destroy(&made);
        }
}

/* a 1e-30 .. 1e30 and b as large as its type allows; f16 among its denormals, and f32 results that are denormal. */
static void gemm_holds_at_all_magnitudes(void **state)
{
  static const struct { int32_t dtype; double a, b; } sizes[] = {
    { TWH_F32, 1e-30, 1e30 },  { TWH_F32, 1e30, 1e-30 },  { TWH_F32, 1e18, 1e18 }, { TWH_F32, 1e-30, 1e-10 },
    { TWH_F32, 1e30, 1e-38 },  { TWH_F16, 1e30, 1e-6 },   { TWH_F16, 1e-30, 1e-6 }, { TWH_F16, 1e-30, 1e4 },
    { TWH_F16, 1e30, 1e4 },    { TWH_BF16, 1e-30, 1e30 }, { TWH_BF16, 1e30, 1e-30 }, { TWH_BF16, 1e30, 1e-38 },
  };
  support_random random = support_random_at(22, 0);
  int64_t        n, columns;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(sizes); ++n)
    for (columns = 0; columns < 2; ++columns) {
      gemm_case made;
      char      name[100];
      snprintf(name, sizeof name, "dtype %d, a %g, b %g", (int)sizes[n].dtype, sizes[n].a, sizes[n].b);
      gemm_create(&made, 19, 37, 300, sizes[n].dtype, (int)columns, 0);
      gemm_fill(&made, sizes[n].a, sizes[n].b, &random);
      gemm_run(&made);
      support_assert_at_most(gemm_error(&made.gemm), 1.0, name);
      gemm_destroy(&made);
    }
}

/* 1 times each of the 65536 numbers of f16 and bf16 is that number. */
static void gemm_reads_every_narrow_number(void **state)
{
  int64_t dtype, columns, j;
  (void)state;
  for (dtype = 1; dtype < 3; ++dtype)
    for (columns = 0; columns < 2; ++columns) {
      gemm_case made;
      gemm_create(&made, 1, 65536, 1, gemm_dtypes[dtype], (int)columns, 0);
      made.a[0] = 1.0f;
      for (j = 0; j < 65536; ++j) ((uint16_t *)made.b)[j] = (uint16_t)j;
      gemm_run(&made);
      for (j = 0; j < 65536; ++j) {
        double want = support_load(made.b, gemm_dtypes[dtype], j);
        assert_true(want != want ? made.c[j] != made.c[j] : (double)made.c[j] == want);
      }
      gemm_destroy(&made);
    }
}

/* A NaN of a makes its row of c NaN, one of b its column, and so does infinity times 0; nothing else. */
static void gemm_passes_nan_through(void **state)
{
  support_random random = support_random_at(23, 0);
  int64_t        dtype, columns, i, j;
  (void)state;
  for (dtype = 0; dtype < 3; ++dtype)
    for (columns = 0; columns < 2; ++columns) {
      gemm_case made;
      gemm_create(&made, 20, 40, 70, gemm_dtypes[dtype], (int)columns, 0);
      gemm_fill(&made, 1.0, 1.0, &random);
      for (i = 0; i < 20; ++i) made.a[i * 70 + 9] = 0.0f;
      made.a[7 * 70 + 69] = NAN;
      support_store(made.b, gemm_dtypes[dtype], gemm_b_at(&made.gemm, 3, 11), NAN);
      support_store(made.b, gemm_dtypes[dtype], gemm_b_at(&made.gemm, 9, 39), INFINITY);
      gemm_run(&made);
      for (i = 0; i < 20; ++i)
        for (j = 0; j < 40; ++j) assert_int_equal(!isfinite(made.c[i * 40 + j]), i == 7 || j == 11 || j == 39);
      for (i = 0; i < 20; ++i) assert_true(isnan(made.c[i * 40 + 11]) && isnan(made.c[i * 40 + 39]));
      gemm_destroy(&made);
    }
}

/* k = 0: c is zero. m or n = 0: nothing is written. */
static void gemm_of_nothing(void **state)
{
  gemm_case made;
  int64_t   dtype, i, j;
  (void)state;
  for (dtype = 0; dtype < 3; ++dtype) {
    gemm_create(&made, 5, 7, 0, gemm_dtypes[dtype], 0, 3);
    gemm_run(&made);
    for (i = 0; i < 5; ++i)
      for (j = 0; j < 7; ++j) assert_true(made.c[i * made.gemm.c_row_stride + j] == 0.0f);
    assert_true(gemm_gaps_untouched(&made));
    gemm_destroy(&made);
    gemm_create(&made, 5, 7, 6, gemm_dtypes[dtype], 0, 3);
    made.gemm.m = 0;
    gemm_run(&made);
    made.gemm.m = 5;
    made.gemm.n = 0;
    gemm_run(&made);
    assert_true(gemm_gaps_untouched(&made));
    gemm_destroy(&made);
  }
}

/* Rows of a, and rows or columns of b, that overlap or are all the same, and strides of what is there once. */
static void gemm_takes_rows_that_overlap(void **state)
{
  static const struct { int64_t m, n, k, a, b_row, b_col, c; } strides[] = {
    { 9, 11, 13, 0, 11, 1, 11 }, { 9, 11, 13, 1, 1, 13, 11 },  { 9, 11, 13, -13, 11, 1, 11 }, { 9, 11, 13, 13, 1, 1, 11 },
    { 9, 11, 13, 13, 0, 1, 11 }, { 9, 11, 13, 13, 1, -2, 11 }, { 9, 11, 13, 1, -1, 1, 11 },   { 1, 11, 13, 0, 11, 1, 0 },
    { 9, 11, 1, 1, 0, 1, 11 },   { 9, 1, 13, 13, 1, 0, 1 },    { 9, 1, 13, 13, 1, 1, 1 },     { 9, 11, 1, 1, 1, 1, 11 },
  };
  support_random random = support_random_at(24, 0);
  static float   a[400];
  static char    b[1600];
  float          c[9 * 11];
  int64_t        n, dtype, i;
  (void)state;
  for (i = 0; i < 400; ++i) a[i] = (float)support_normal(&random);
  for (n = 0; n < SUPPORT_COUNT(strides); ++n)
    for (dtype = 0; dtype < 3; ++dtype) {
      twh_gemm gemm;
      for (i = 0; i < 400; ++i) support_store(b, gemm_dtypes[dtype], i, support_normal(&random));
      for (i = 0; i < 99; ++i) c[i] = NAN;
      twh_gemm_init(&gemm);
      gemm.m = strides[n].m;
      gemm.n = strides[n].n;
      gemm.k = strides[n].k;
      gemm.a = a + 200;
      gemm.b = b + 200 * support_bytes(gemm_dtypes[dtype]);
      gemm.c = c;
      gemm.b_dtype = gemm_dtypes[dtype];
      gemm.a_row_stride = strides[n].a;
      gemm.b_row_stride = strides[n].b_row;
      gemm.b_col_stride = strides[n].b_col;
      gemm.c_row_stride = strides[n].c;
      assert_int_equal(twh_blis_gemm(NULL, &gemm), 0);
      support_assert_at_most(gemm_error(&gemm), 1.0, "overlap");
    }
}

/* Kernel sets that were seen to keep it; BLIS promises it for none. */
static int gemm_kernels_are_known(void)
{
  static const char *const names[] = { "generic", "sandybridge", "haswell", "zen", "zen2", "zen3", "skx" };
  int64_t                  n;
  for (n = 0; n < SUPPORT_COUNT(names); ++n)
    if (strcmp(names[n], twh_blis_kernel_name()) == 0) return 1;
  return 0;
}

/* An element of c is the same bits whatever else is multiplied with it, however b lies, and in whatever pieces it is
 * converted. */
static void gemm_bits_depend_on_row_and_column_alone(void **state)
{
  static const int64_t shapes[][2] = { { 40, 30 }, { 129, 300 }, { 65, 700 }, { 40, 33000 } };
  static const int64_t rows[] = { 1, 3, 6, 17, 64 };
  support_random       random = support_random_at(25, 0);
  int64_t              n, i, p, j, dtype;
  (void)state;
  if (!gemm_kernels_are_known()) skip();
  for (n = 0; n < SUPPORT_COUNT(shapes); ++n) {
    const int64_t wide = shapes[n][0], k = shapes[n][1], m = k > 4000 ? 19 : 70; /* of the last, several pieces */
    gemm_case     whole;
    gemm_create(&whole, m, wide, k, TWH_F32, 0, 0);
    gemm_fill(&whole, 1.0, 1.0, &random);
    for (p = 0; p < k * wide; ++p) ((float *)whole.b)[p] = (float)(int)(8.0f * ((float *)whole.b)[p]); /* exact in all types */
    gemm_run(&whole);
    for (dtype = 0; dtype < 3; ++dtype)
      for (i = k > 4000 ? 6 : 0; i < (k > 4000 ? 8 : 2 * SUPPORT_COUNT(rows)); ++i) {
        const int columns = (int)(i % 2);
        gemm_case part;
        gemm_create(&part, rows[i / 2] < m ? rows[i / 2] : m, wide - i, k, gemm_dtypes[dtype], columns, 3);
        for (p = 0; p < k; ++p)
          for (j = 0; j < part.gemm.n; ++j)
            support_store(part.b, gemm_dtypes[dtype], gemm_b_at(&part.gemm, p, j), ((float *)whole.b)[p * wide + j]);
        part.gemm.a = whole.a + (m - part.gemm.m) * k;
        part.gemm.a_row_stride = k;
        gemm_run(&part);
        for (p = 0; p < part.gemm.m; ++p)
          assert_memory_equal(part.c + p * part.gemm.c_row_stride, whole.c + (m - part.gemm.m + p) * wide,
                              (size_t)part.gemm.n * sizeof(float));
        gemm_destroy(&part);
      }
    gemm_destroy(&whole);
  }
}

/* Pieces that cannot be had, or counted. */
static void gemm_returns_its_code_without_memory(void **state)
{
  gemm_case made;
  (void)state;
#if SUPPORT_SANITIZED
  skip(); /* their malloc ends the process */
#endif
  gemm_create(&made, 1, 1, 1, TWH_F16, 0, 0);
  made.gemm.k = (int64_t)1 << 50;
  assert_int_equal(twh_blis_gemm(NULL, &made.gemm), ENOMEM);
  made.gemm.k = INT64_MAX;
  made.gemm.a_row_stride = INT64_MAX;
  assert_int_equal(twh_blis_gemm(NULL, &made.gemm), ENOMEM);
  gemm_destroy(&made);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(gemm_equals_float64),
    cmocka_unit_test(gemm_holds_at_all_magnitudes),
    cmocka_unit_test(gemm_reads_every_narrow_number),
    cmocka_unit_test(gemm_passes_nan_through),
    cmocka_unit_test(gemm_of_nothing),
    cmocka_unit_test(gemm_takes_rows_that_overlap),
    cmocka_unit_test(gemm_bits_depend_on_row_and_column_alone),
    cmocka_unit_test(gemm_returns_its_code_without_memory),
  };
  return cmocka_run_group_tests_name("products on BLIS", tests, NULL, NULL);
}
