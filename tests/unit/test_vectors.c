/* Vectors of another project's tests, as many as there are in tests/data/onnx, on kernels much shorter than the problems.
 *
 * Everything comes from the table manifest.tsv. Each vector runs on every kernel that must be able to do it (caps and mask
 * tensors need one that honours them), and none may be left out. TWH_TEST_DATA names another data folder. */
#include "support.h"

#include <inttypes.h>

typedef struct vectors_array {
  int32_t dtype; /* 0: int64 */
  int     rank;
  int64_t shape[4];
  void   *data;
} vectors_array;

typedef struct vectors_row {
  char          name[128], group[32], dtype[16], layout[8];
  int64_t       batch, q_heads, kv_heads, q_len, k_new, past, dim, v_dim, causal, left, right, mask_rank, has_valid;
  double        scale, softcap, rtol, atol;
  int           packed; /* layout BSH */
  vectors_array q, k, v, out, mask, past_k, past_v, valid;
} vectors_row;

static void vectors_path(char *path, size_t bytes, const char *folder, const char *file)
{
  const char *root = getenv("TWH_TEST_DATA");
  snprintf(path, bytes, "%s/onnx/%s%s%s", root ? root : "tests/data", folder, *folder ? "/" : "", file);
}

/* Read NAME/FILE.npy; 0 if there is none. Fails the test when there is one that cannot be read. */
static int vectors_read(const char *name, const char *what, vectors_array *array)
{
  char    path[512], file[32], head[10], *header, *at;
  FILE   *stream;
  size_t  length, count = 1, size;
  int64_t i;
  memset(array, 0, sizeof *array);
  snprintf(file, sizeof file, "%s.npy", what);
  vectors_path(path, sizeof path, name, file);
  stream = fopen(path, "rb");
  if (!stream) return 0;
  assert_int_equal(fread(head, 1, 10, stream), 10);
  assert_memory_equal(head, "\x93NUMPY\x01\x00", 8);
  length = (size_t)(unsigned char)head[8] + 256 * (size_t)(unsigned char)head[9];
  header = (char *)calloc(1, length + 1);
  assert_non_null(header);
  assert_int_equal(fread(header, 1, length, stream), length);
  assert_non_null(strstr(header, "'fortran_order': False"));
  if (strstr(header, "'<f4'"))
    array->dtype = TWH_F32;
  else if (strstr(header, "'<f2'"))
    array->dtype = TWH_F16;
  else if (strstr(header, "'<f8'"))
    array->dtype = TWH_F64;
  else if (strstr(header, "'|b1'"))
    array->dtype = TWH_BOOL;
  else
    assert_non_null(strstr(header, "'<i8'"));
  at = strstr(header, "'shape': (");
  assert_non_null(at);
  for (at += 10; *at && *at != ')'; ++at)
    if (*at >= '0' && *at <= '9') {
      assert_in_range(array->rank, 0, 3);
      array->shape[array->rank++] = (int64_t)strtoll(at, &at, 10);
      --at;
    }
  for (i = 0; i < array->rank; ++i) count *= (size_t)array->shape[i];
  size = array->dtype ? (size_t)support_bytes(array->dtype) : 8;
  array->data = malloc(count * size + 1);
  assert_non_null(array->data);
  assert_int_equal(fread(array->data, size, count, stream), count);
  free(header);
  fclose(stream);
  return 1;
}

/* Element (b, h, r, c) of a q, k, v or out with `heads` heads of `dim`. */
static double vectors_get(const vectors_array *array, int packed, int64_t heads, int64_t dim, int64_t b, int64_t h, int64_t r,
                          int64_t c)
{
  int64_t rows = packed ? array->shape[1] : array->shape[2];
  int64_t at = packed ? ((b * rows + r) * heads + h) * dim + c : ((b * heads + h) * rows + r) * dim + c;
  return support_load(array->data, array->dtype, at);
}

/* The mask's element for (b, h, i, j), broadcast from the right; -INFINITY (or 0 for a boolean one) past its end. */
static double vectors_mask(const vectors_row *row, int64_t b, int64_t h, int64_t i, int64_t j)
{
  const vectors_array *mask = &row->mask;
  int64_t              index[4], at = 0, stride = 1, d, keys = mask->shape[mask->rank - 1];
  index[0] = b;
  index[1] = h;
  index[2] = i;
  index[3] = j;
  if (j >= keys && keys != 1) return mask->dtype == TWH_BOOL ? 0.0 : -INFINITY;
  for (d = mask->rank - 1; d >= 0; --d) {
    if (mask->shape[d] != 1) at += stride * index[4 - mask->rank + d];
    stride *= mask->shape[d];
  }
  return support_load(mask->data, mask->dtype, at);
}

static void vectors_load(vectors_row *row)
{
  row->packed = strcmp(row->layout, "BSH") == 0;
  assert_true(vectors_read(row->name, "q", &row->q));
  assert_true(vectors_read(row->name, "k", &row->k));
  assert_true(vectors_read(row->name, "v", &row->v));
  assert_true(vectors_read(row->name, "out", &row->out));
  assert_int_equal(vectors_read(row->name, "mask", &row->mask), row->mask_rank > 0);
  assert_int_equal(vectors_read(row->name, "past_k", &row->past_k), row->past > 0);
  assert_int_equal(vectors_read(row->name, "past_v", &row->past_v), row->past > 0);
  assert_int_equal(vectors_read(row->name, "kv_valid_len", &row->valid), row->has_valid);
}

static void vectors_release(vectors_row *row)
{
  free(row->q.data);
  free(row->k.data);
  free(row->v.data);
  free(row->out.data);
  free(row->mask.data);
  free(row->past_k.data);
  free(row->past_v.data);
  free(row->valid.data);
}

/* The problem of batch entry `entry`, or of the whole batch if that is -1. */
static void vectors_problem(const vectors_row *row, int64_t entry, twh_problem *problem, twh_pattern *pattern)
{
  twh_problem_init(problem);
  twh_pattern_init(pattern);
  problem->batch = entry < 0 ? row->batch : 1;
  problem->q_heads = row->q_heads;
  problem->kv_heads = row->kv_heads;
  problem->q_len = row->q_len;
  problem->k_len = row->past + row->k_new;
  problem->q_offset = row->past;
  if (entry >= 0) {
    problem->k_len = ((const int64_t *)row->valid.data)[entry];
    problem->q_offset = problem->k_len - row->q_len;
  }
  problem->qk_dim = row->dim;
  problem->v_dim = row->v_dim;
  problem->flags = TWH_PROBLEM_SCALE;
  problem->scale = row->scale;
  problem->softcap = row->softcap;
  problem->pattern = pattern;
  problem->mask_dtype = row->mask_rank ? row->mask.dtype : 0;
  if (row->causal) pattern->flags |= TWH_CAUSAL;
  if (row->left >= 0) pattern->flags |= TWH_LEFT;
  if (row->right >= 0) pattern->flags |= TWH_RIGHT;
  pattern->left = row->left < 0 ? 0 : row->left;
  pattern->right = row->right < 0 ? 0 : row->right;
}

static void vectors_fill(const vectors_row *row, int64_t entry, const twh_problem *problem, support_tensors *tensors)
{
  int64_t b, from, h, r, c;
  for (b = 0; b < problem->batch; ++b) {
    from = entry < 0 ? b : entry;
    for (h = 0; h < row->q_heads; ++h)
      for (r = 0; r < row->q_len; ++r) {
        for (c = 0; c < row->dim; ++c)
          support_set(&tensors->q, b, h, r, c, vectors_get(&row->q, row->packed, row->q_heads, row->dim, from, h, r, c));
        for (c = 0; row->mask_rank && c < problem->k_len; ++c)
          support_set(&tensors->mask, b, h, r, c, vectors_mask(row, from, h, r, c));
      }
    for (h = 0; h < row->kv_heads; ++h)
      for (r = 0; r < problem->k_len; ++r) {
        int     past = r < row->past, packed = row->packed && !past;
        int64_t at = past ? r : r - row->past;
        for (c = 0; c < row->dim; ++c)
          support_set(&tensors->k, b, h, r, c,
                      vectors_get(past ? &row->past_k : &row->k, packed, row->kv_heads, row->dim, from, h, at, c));
        for (c = 0; c < row->v_dim; ++c)
          support_set(&tensors->v, b, h, r, c,
                      vectors_get(past ? &row->past_v : &row->v, packed, row->kv_heads, row->v_dim, from, h, at, c));
      }
  }
}

/* Compare out, each row times `factor` 1 / (1 + e^(sink - lse)) for a sink logit, with the vector. */
static int vectors_equal(const vectors_row *row, int64_t entry, const twh_problem *problem, const support_tensors *tensors,
                         double sink, const support_answer *without)
{
  int64_t b, from, h, r, c;
  double  rtol = fmax(row->rtol, 1e-5), atol = fmax(row->atol, 1e-6);
  for (b = 0; b < problem->batch; ++b) {
    from = entry < 0 ? b : entry;
    for (h = 0; h < row->q_heads; ++h)
      for (r = 0; r < row->q_len; ++r)
        for (c = 0; c < row->v_dim; ++c) {
          double want = vectors_get(&row->out, row->packed, row->q_heads, row->v_dim, from, h, r, c);
          double got = support_at(&tensors->out, b, h, r, c);
          if (sink != -INFINITY) want /= 1.0 + exp(sink - without->lse[(b * row->q_heads + h) * row->q_len + r]);
          if (!(fabs(got - want) <= atol + rtol * fabs(want))) return 0;
        }
  }
  return 1;
}

/* One entry (or the whole batch) on one kernel: as it is, with a sink logit of -inf, and with one of 0.5. */
static void vectors_run(const vectors_row *row, int64_t entry, const support_kernel *kernel, int64_t m, int64_t *ran)
{
  static const double sinks[] = { -INFINITY, -INFINITY, 0.5 };
  twh_problem         problem;
  twh_pattern         pattern;
  twh_oracle_desc     desc;
  support_answer      without;
  int64_t             h;
  int                 with;
  int32_t             host = row->q.dtype, layout = row->packed ? SUPPORT_PACKED_HEADS : SUPPORT_DENSE;
  vectors_problem(row, entry, &problem, &pattern);
  support_kernel_desc(kernel, &problem, m, m, &desc);
  if (!support_must_run(&problem, &desc)) return;
  memset(&without, 0, sizeof without);
  for (with = 0; with < 3; ++with) {
    support_tensors tensors;
    support_tensors_create(&tensors, &problem, host, layout, SUPPORT_LSE | (with ? SUPPORT_SINKS : 0));
    vectors_fill(row, entry, &problem, &tensors);
    for (h = 0; with && h < row->q_heads; ++h) support_set(&tensors.sinks, 0, h, 0, 0, sinks[with]);
    assert_int_equal(support_solve(row->name, &problem, &desc, &tensors, NULL, NULL), TWH_OK);
    if (!with) support_answer_read(&without, &problem, &tensors);
    if (!vectors_equal(row, entry, &problem, &tensors, sinks[with], &without)) {
      print_error("%s, entry %" PRId64 ", kernel \"%s\" of length %" PRId64 ", sink %g: a wrong result\n", row->name, entry,
                  kernel->name, m, sinks[with]);
      fail();
    }
    support_tensors_destroy(&tensors);
  }
  support_answer_destroy(&without);
  ++*ran;
}

static int vectors_parse(char *line, vectors_row *row)
{
  char   *fields[32], *at = line;
  int64_t n = 0;
  memset(row, 0, sizeof *row);
  line[strcspn(line, "\r\n")] = 0;
  while (at && n < 32) {
    fields[n++] = at;
    at = strchr(at, '\t');
    if (at) *at++ = 0;
  }
  if (n != 25) return 0;
  snprintf(row->name, sizeof row->name, "%s", fields[0]);
  snprintf(row->group, sizeof row->group, "%s", fields[1]);
  snprintf(row->dtype, sizeof row->dtype, "%s", fields[3]);
  snprintf(row->layout, sizeof row->layout, "%s", fields[4]);
  {
    int64_t *numbers[] = { &row->batch, &row->q_heads, &row->kv_heads, &row->q_len, &row->k_new, &row->past,
                           &row->dim,   &row->v_dim,   &row->causal,   &row->left,  &row->right };
    for (n = 0; n < SUPPORT_COUNT(numbers); ++n) *numbers[n] = (int64_t)strtoll(fields[5 + n], NULL, 10);
  }
  row->scale = strtod(fields[16], NULL);
  row->softcap = strtod(fields[17], NULL);
  row->mask_rank = (int64_t)strtoll(fields[20], NULL, 10);
  row->has_valid = (int64_t)strtoll(fields[21], NULL, 10);
  row->rtol = strtod(fields[23], NULL);
  row->atol = strtod(fields[24], NULL);
  return strtod(fields[18], NULL) == 1.0; /* probabilities as they are */
}

static void onnx_vectors_come_out_on_short_kernels(void **state)
{
  static const int64_t lengths[] = { 2, 3, 8 };
  char                 path[512], line[1024];
  FILE                *table;
  int64_t              rows = 0, left_out = 0, i, j, entry;
  (void)state;
  vectors_path(path, sizeof path, "", "manifest.tsv");
  table = fopen(path, "r");
  if (!table) print_error("cannot open %s; run from the top folder or set TWH_TEST_DATA\n", path);
  assert_non_null(table);
  assert_non_null(fgets(line, (int)sizeof line, table));
  while (fgets(line, (int)sizeof line, table)) {
    vectors_row row;
    int64_t     ran = 0;
    assert_true(vectors_parse(line, &row));
    vectors_load(&row);
    for (i = 0; i < support_kernel_count; ++i)
      for (j = 0; j < SUPPORT_COUNT(lengths); ++j) {
        int32_t dtype = support_kernels[i].dtype;
        if (dtype != TWH_F32 && dtype != row.q.dtype) continue;
        if (!row.has_valid) vectors_run(&row, -1, &support_kernels[i], lengths[j], &ran);
        for (entry = 0; row.has_valid && entry < row.batch; ++entry)
          vectors_run(&row, entry, &support_kernels[i], lengths[j], &ran);
      }
    if (ran == 0) print_error("%s ran on no kernel\n", row.name);
    left_out += ran == 0;
    ++rows;
    vectors_release(&row);
  }
  fclose(table);
  assert_int_equal(rows, 62);
  assert_int_equal(left_out, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = { cmocka_unit_test(onnx_vectors_come_out_on_short_kernels) };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
