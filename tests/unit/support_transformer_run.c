/* Running transformers, with everything looked at that must hold whatever the numbers are: what the hooks have seen, what lies between
 * the rows, and the statistics, which must be what the transformer announced: its calls and no other, but for repairs. */
#include "support_transformer.h"

typedef struct support_place { /* a tensor of all rows */
  twh_tensor tensor;
  void      *memory;
  size_t     bytes;
} support_place;

static void support_place_create(support_place *place, const support_transformer *t, int32_t dtype, int64_t gap)
{
  int64_t stride = t->desc.model_dim + gap, last = t->rows > 0 ? (t->rows - 1) * stride + t->desc.model_dim : 0;
  place->bytes = (size_t)(last * support_bytes(dtype));
  place->memory = malloc(place->bytes ? place->bytes : 1);
  assert_non_null(place->memory);
  memset(place->memory, SUPPORT_POISON, place->bytes);
  twh_tensor_dense(&place->tensor, dtype, place->memory, 1, t->rows, t->desc.model_dim);
  place->tensor.row_stride = stride;
}

static void support_place_fill(support_place *place, const support_transformer *t)
{
  int64_t r, c, dim = t->desc.model_dim;
  for (r = 0; r < t->rows; ++r)
    for (c = 0; c < dim; ++c) support_set(&place->tensor, 0, 0, r, c, t->x[r * dim + c]);
}

/* Reads the rows, and looks whether what lies between them is as it was. */
static void support_place_read(const support_place *place, const support_transformer *t, double *out)
{
  const unsigned char *bytes = (const unsigned char *)place->memory;
  int64_t r, c, dim = t->desc.model_dim, size = support_bytes(place->tensor.dtype), stride = place->tensor.row_stride;
  for (r = 0; r < t->rows; ++r) {
    for (c = 0; c < dim; ++c) out[r * dim + c] = support_at(&place->tensor, 0, 0, r, c);
    for (c = dim * size; c < stride * size && r + 1 < t->rows; ++c)
      assert_int_equal(bytes[r * stride * size + c], SUPPORT_POISON);
  }
}

static void support_expect_stats(const support_transformer *t, const twh_transformer_info *info,
                                 const twh_transformer_stats *stats)
{
  int64_t layers = t->desc.n_layers;
  assert_int_equal(info->rows, t->rows);
  assert_int_equal(stats->calls, info->calls + stats->repair_calls);
  assert_true(stats->repair_calls <= info->repair_calls_max);
  assert_true(stats->rounds <= 2 * layers && stats->rounds >= info->rounds && stats->rounds <= info->rounds_max);
  assert_true(info->plans <= layers && (info->plans > 0 || layers == 0));
  assert_int_equal(stats->row_rounds, t->rows > 0 ? layers + 1 : 0);
  assert_int_equal(stats->blocks, info->blocks * stats->row_rounds);
  assert_true(info->blocks * info->block_rows >= t->rows && (info->blocks - 1) * info->block_rows < t->rows);
  assert_true(stats->batches <= stats->calls && (stats->calls == 0 || stats->batches > 0));
  assert_true(stats->oracle_s >= 0.0 && stats->rows_s >= 0.0 && stats->wall_s >= stats->rows_s);
}

static twh_status support_transformer_execute(support_transformer *t, const support_way *way, const twh_transformer *made,
                                              const twh_transformer_info *info, double *out, twh_transformer_stats *stats,
                                              twh_error *error)
{
  support_place           x, to;
  twh_transformer_options options;
  unsigned char          *workspace = NULL;
  size_t                  bytes = (size_t)info->workspace_bytes, alignment = (size_t)info->workspace_alignment, i;
  twh_status              status = TWH_OK;
  int                     again;
  twh_transformer_options_init(&options);
  options.input = t->tokens;
  options.stats = stats;
  if (way->own_workspace) {
    assert_int_equal(posix_memalign((void **)(void *)&workspace, alignment, bytes + 64), 0);
    options.workspace = workspace;
    options.workspace_bytes = bytes;
  }
  support_place_create(&x, t, way->x_dtype ? way->x_dtype : TWH_F32, way->gap);
  support_place_create(&to, t, way->out_dtype ? way->out_dtype : TWH_F32, way->gap);
  for (again = 0; again <= way->repeat && status >= 0; ++again) {
    if (workspace) memset(workspace, SUPPORT_POISON, bytes + 64);
    memset(to.memory, SUPPORT_POISON, to.bytes);
    support_place_fill(&x, t);
    support_hooks_reset(t);
    status =
      twh_transformer_execute(made, t->desc.embed ? NULL : &x.tensor, way->in_place ? &x.tensor : &to.tensor, &options, error);
    if (t->broken[0]) print_error("%s: %s\n", t->text, t->broken);
    assert_int_equal(t->broken[0], 0);
    if (status < 0) break;
    support_expect_stats(t, info, stats);
    support_hooks_expect_all(t);
  }
  if (status >= 0) support_place_read(way->in_place ? &x : &to, t, out);
  for (i = 0; workspace && i < 64; ++i) assert_int_equal(workspace[bytes + i], SUPPORT_POISON);
  free(workspace);
  free(x.memory);
  free(to.memory);
  return status;
}

/* Blocks are as long as the caller says or else as the first kernel is, but never longer than all rows. */
static void support_expect_blocks(const support_transformer *t, const support_way *way, const twh_transformer_info *info)
{
  int64_t         most = way->block_rows;
  twh_oracle_desc kernel;
  twh_oracle_desc_init(&kernel);
  if (most == 0 && way->n_oracles == 0) return;
  if (most == 0) {
    assert_int_equal(twh_oracle_get_desc(way->oracles[0], &kernel, NULL), TWH_OK);
    most = kernel.q_len;
  }
  if (t->rows > 0) assert_int_equal(info->block_rows, t->rows < most ? t->rows : most);
}

twh_status support_transformer_run(support_transformer *t, const support_way *way, double *out, twh_transformer_info *info,
                                   twh_transformer_stats *stats, twh_error *error)
{
  twh_transformer_info  own_info;
  twh_transformer_stats own_stats;
  twh_plan_options      options;
  twh_transformer      *made = NULL;
  twh_status            status;
  if (!info) info = &own_info;
  if (!stats) stats = &own_stats;
  twh_transformer_info_init(info);
  twh_transformer_stats_init(stats);
  twh_plan_options_init(&options);
  options.max_calls_per_batch = way->max_calls_per_batch;
  t->desc.block_rows = way->block_rows;
  status = twh_transformer_create(way->context, &t->desc, way->oracles, way->n_oracles, &options, &made, error);
  if (status < 0) {
    assert_null(made);
    return status;
  }
  assert_int_equal(twh_transformer_get_info(made, info, error), TWH_OK);
  support_expect_blocks(t, way, info);
  t->block_rows = info->block_rows;
  status = support_transformer_execute(t, way, made, info, out, stats, error);
  twh_transformer_destroy(made);
  return status;
}

/* ---- a model on a kernel ---- */

double *support_model_rows(const support_model *m)
{
  double *rows = (double *)calloc(1, m->bytes + 1);
  assert_non_null(rows);
  return rows;
}

void support_model_kernel(support_model *m, const twh_context *context)
{
  support_long_kernel(&m->t, &m->kernel);
  m->kernel.flags = TWH_ORACLE_SCALE_PER_CALL;
  m->kernel.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
  m->kernel.q_len = m->kernel.k_len = 8;
  m->kernel.qk_dim += 1;
  m->kernel.v_dim += 1;
  m->kernel.slots = 2;
  m->kernel.max_concurrent_batches = 4;
  m->kernel.alignment = 256;
  support_oracle_create(&m->oracle, context, &m->kernel, NULL);
  memset(&m->way, 0, sizeof m->way);
  m->way.context = context;
  m->way.oracles = &m->oracle.oracle;
  m->way.n_oracles = 1;
}

void support_model_begin(support_model *m)
{
  twh_error  error;
  twh_status status;
  twh_error_init(&error);
  support_transformer_build(&m->t);
  m->bytes = (size_t)(m->t.rows * m->t.desc.model_dim) * sizeof(double);
  m->want = support_model_rows(m);
  m->got = support_model_rows(m);
  support_model_kernel(m, NULL);
  status = support_transformer_run(&m->t, &m->way, m->want, NULL, NULL, &error);
  if (m->oracle.broken[0]) print_error("%s: %s\n", m->t.text, m->oracle.broken);
  support_assert_status(status, TWH_OK, &error, NULL);
}

void support_model_end(support_model *m)
{
  assert_int_equal(m->oracle.broken[0], 0);
  assert_int_equal(m->t.broken[0], 0);
  support_oracle_destroy(&m->oracle);
  free(m->want);
  free(m->got);
  support_transformer_destroy(&m->t);
}

void support_model_again(support_model *m, const support_way *way, twh_transformer_info *info, twh_transformer_stats *stats)
{
  twh_error error;
  twh_error_init(&error);
  support_assert_status(support_transformer_run(&m->t, way, m->got, info, stats, &error), TWH_OK, &error, NULL);
}

void support_model_expect_same(support_model *m, const support_way *way, const char *how, int64_t value)
{
  support_model_again(m, way, NULL, NULL);
  if (memcmp(m->want, m->got, m->bytes) == 0) return;
  print_error("%s: other bits with %s %lld\n", m->t.text, how, (long long)value);
  fail();
}
