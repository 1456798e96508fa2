/* Bad transformers, by table: every field of what a caller fills, its status, and what the message must say: the layer first, then
 * the field.
 *
 * A row says where the field is and what is written there; the rest of the setup is valid, which the first test shows. Layers 0
 * and 3 are as they should be: the message must name the one that is not. */
#include "support_transformer.h"

enum { ARGUMENTS_LAYERS = 4, ARGUMENTS_MATRICES = 8 };

typedef struct arguments_setup {
  twh_transformer_desc    desc;
  twh_layer_desc          layers[ARGUMENTS_LAYERS];
  twh_matrix              matrices[ARGUMENTS_MATRICES], bad[ARGUMENTS_MATRICES]; /* bad: of layers 1 and 2 */
  twh_tensor              sinks, slopes, x, out;
  twh_pattern             pattern;
  twh_oracle_desc         kernel;
  twh_plan_options        plan_options;
  twh_transformer_options options;
  twh_transformer_stats   stats;
  int64_t                 lengths[3];
  const twh_layer_desc   *pointers[ARGUMENTS_LAYERS];
  uint32_t                without; /* 1 << i: matrix i of layer 2 is NULL */
  uint32_t                extra;
} arguments_setup;

enum {
  NO_LAYERS = 1,
  NULL_LAYER = 2,
  EMBED = 4,
  PATTERN = 8,
  SLOPES = 16,
  NO_X = 32,
  NO_OUT = 64,
  LENGTHS = 256,
  GIVE_X = 512,
  FULL_KERNEL = 1024
};

static float arguments_numbers[8192];

static int32_t arguments_embed(void *user, const twh_rows *rows)
{
  int64_t i;
  (void)user;
  for (i = 0; i < rows->rows * rows->x_stride; ++i) rows->x[i] = 0.5f;
  return 0;
}

static void arguments_matrix(twh_matrix *matrix, int64_t rows, int64_t cols)
{
  twh_matrix_init(matrix);
  matrix->dtype = TWH_F32;
  matrix->data = arguments_numbers;
  matrix->rows = rows;
  matrix->cols = cols;
}

/* 4 query and 2 key/value heads of 6 and 5, model_dim 10: wq 24 x 10, wk 12 x 10, wv 10 x 10, wo 10 x 20. */
static void arguments_init(arguments_setup *s)
{
  static const int64_t shapes[ARGUMENTS_MATRICES][2] = { { 24, 10 }, { 12, 10 }, { 10, 10 }, { 10, 20 },
                                                         { 1, 24 },  { 1, 12 },  { 1, 10 },  { 1, 10 } };
  int64_t              i;
  memset(s, 0, sizeof *s);
  twh_transformer_desc_init(&s->desc);
  twh_pattern_init(&s->pattern);
  twh_plan_options_init(&s->plan_options);
  twh_transformer_options_init(&s->options);
  twh_transformer_stats_init(&s->stats);
  for (i = 0; i < ARGUMENTS_MATRICES; ++i) {
    arguments_matrix(&s->matrices[i], shapes[i][0], shapes[i][1]);
    arguments_matrix(&s->bad[i], shapes[i][0], shapes[i][1]);
  }
  for (i = 0; i < ARGUMENTS_LAYERS; ++i) {
    twh_layer_desc *d = &s->layers[i];
    twh_layer_desc_init(d);
    d->q_heads = 4;
    d->kv_heads = 2;
    d->qk_dim = 6;
    d->v_dim = 5;
  }
  s->desc.batch = 3;
  s->desc.length = 7;
  s->desc.model_dim = 10;
  s->desc.n_layers = ARGUMENTS_LAYERS;
  twh_tensor_dense(&s->sinks, TWH_F32, arguments_numbers, 4, 1, 1);
  twh_tensor_dense(&s->slopes, TWH_F32, arguments_numbers, 4, 1, 1);
  twh_tensor_dense(&s->x, TWH_F32, arguments_numbers, 1, 21, 10);
  twh_tensor_dense(&s->out, TWH_F32, arguments_numbers + 4096, 1, 21, 10);
  twh_oracle_desc_init(&s->kernel);
  s->kernel.slots = 1;
  s->kernel.q_len = s->kernel.k_len = 8;
  s->kernel.qk_dim = 7;
  s->kernel.v_dim = 6;
  s->kernel.dtype = TWH_F32;
  s->kernel.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL;
  s->kernel.scale = 0.4;
}

/* Point everything at everything: the matrices of layers 1 and 2 are the bad ones. */
static void arguments_connect(arguments_setup *s)
{
  int64_t i, j;
  for (i = 0; i < ARGUMENTS_LAYERS; ++i) {
    twh_layer_desc    *d = &s->layers[i];
    const twh_matrix  *m = i == 1 || i == 2 ? s->bad : s->matrices;
    const twh_matrix **to[ARGUMENTS_MATRICES];
    to[0] = &d->wq;
    to[1] = &d->wk;
    to[2] = &d->wv;
    to[3] = &d->wo;
    to[4] = &d->bq;
    to[5] = &d->bk;
    to[6] = &d->bv;
    to[7] = &d->bo;
    for (j = 0; j < ARGUMENTS_MATRICES; ++j) *to[j] = i == 2 && (s->without >> j & 1) ? NULL : &m[j];
    s->pointers[i] = i == 1 && (s->extra & NULL_LAYER) ? NULL : d;
  }
  s->layers[2].sink_logits = &s->sinks;
  if (s->extra & SLOPES) s->layers[2].alibi_slopes = &s->slopes;
  if (s->extra & PATTERN) s->layers[2].pattern = &s->pattern;
  if (s->extra & FULL_KERNEL) s->kernel.qk_dim = 6;
  s->desc.layers = s->extra & NO_LAYERS ? NULL : s->pointers;
  if (s->extra & LENGTHS) {
    s->desc.lengths = s->lengths;
    s->desc.length = 0;
  }
  if (s->extra & EMBED) s->desc.embed = arguments_embed;
  s->options.stats = &s->stats;
}

/* Create, then execute; what fails first is returned. */
static twh_status arguments_try(arguments_setup *s, twh_error *error)
{
  twh_oracle      *oracle = NULL;
  twh_transformer *made = NULL;
  twh_status       status;
  arguments_connect(s);
  assert_int_equal(twh_reference_oracle_create(NULL, &s->kernel, NULL, &oracle, NULL), TWH_OK);
  status = twh_transformer_create(NULL, &s->desc, &oracle, 1, &s->plan_options, &made, error);
  if (status < 0) assert_null(made);
  if (status >= 0) {
    int no_x = (s->extra & NO_X) || ((s->extra & EMBED) && !(s->extra & GIVE_X));
    status = twh_transformer_execute(made, no_x ? NULL : &s->x, s->extra & NO_OUT ? NULL : &s->out, &s->options, error);
  }
  twh_transformer_destroy(made);
  twh_oracle_destroy(oracle);
  return status;
}

/* ---- the table ---- */

typedef struct arguments_row {
  int         layer;       /* that the message begins with; -1: none */
  const char *word, *also; /* in the message; also: NULL or another */
  size_t      offset;      /* of the field in the setup */
  char        kind;        /* 'q' int64, 'd' int32 or uint32, 'f' double, 'p' NULL pointer */
  double      value;
  twh_status  status;
  uint32_t    extra;
} arguments_row;

#define AT(field) offsetof(arguments_setup, field)
#define HUGE_SIZE 4611686018427387904.0 /* 2^62 */

static const arguments_row arguments_rows[] = {
  { -1, "flags", NULL, AT(desc.flags), 'd', 1, TWH_E_VERSION, 0 },
  { -1, "batch", NULL, AT(desc.batch), 'q', -1, TWH_E_ARGUMENT, 0 },
  { -1, "batch", NULL, AT(desc.batch), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0 },
  { -1, "length", NULL, AT(desc.length), 'q', -1, TWH_E_ARGUMENT, 0 },
  { -1, "lengths[2]", "-4", AT(lengths[2]), 'q', -4, TWH_E_ARGUMENT, LENGTHS },
  { -1, "lengths", NULL, AT(lengths[0]), 'q', 9.2e18, TWH_E_OVERFLOW, LENGTHS },
  { -1, "length", NULL, AT(lengths[0]), 'q', HUGE_SIZE, TWH_E_OVERFLOW, LENGTHS },
  { -1, "", NULL, AT(desc.length), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0 },
  { -1, "model_dim", NULL, AT(desc.model_dim), 'q', 0, TWH_E_ARGUMENT, 0 },
  { -1, "model_dim", NULL, AT(desc.model_dim), 'q', -10, TWH_E_ARGUMENT, 0 },
  { 0, "wq", "24 x 11", AT(desc.model_dim), 'q', 11, TWH_E_ARGUMENT, 0 },
  { -1, "n_layers", NULL, AT(desc.n_layers), 'q', -1, TWH_E_ARGUMENT, 0 },
  { -1, "n_layers", NULL, AT(desc.n_layers), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0 },
  { -1, "layers", NULL, AT(extra), 'd', NO_LAYERS, TWH_E_ARGUMENT, NO_LAYERS },
  { 1, "NULL", NULL, AT(extra), 'd', NULL_LAYER, TWH_E_ARGUMENT, NULL_LAYER },
  { -1, "block_rows", NULL, AT(desc.block_rows), 'q', -1, TWH_E_ARGUMENT, 0 },
  { -1, "scratch_per_row", NULL, AT(desc.scratch_per_row), 'q', -1, TWH_E_ARGUMENT, 0 },
  { -1, "scratch_per_row", NULL, AT(desc.scratch_per_row), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0 },
  { 2, "flags", NULL, AT(layers[2].flags), 'd', 1 << 9, TWH_E_VERSION, 0 },
  { 2, "q_heads", NULL, AT(layers[2].q_heads), 'q', 0, TWH_E_ARGUMENT, 0 },
  { 1, "q_heads", NULL, AT(layers[1].q_heads), 'q', -4, TWH_E_ARGUMENT, 0 },
  { 1, "q_heads", NULL, AT(layers[1].q_heads), 'q', 5, TWH_E_ARGUMENT, 0 },
  { 2, "kv_heads", NULL, AT(layers[2].kv_heads), 'q', 0, TWH_E_ARGUMENT, 0 },
  { 2, "kv_heads", NULL, AT(layers[2].kv_heads), 'q', 3, TWH_E_ARGUMENT, 0 },
  { 2, "qk_dim", NULL, AT(layers[2].qk_dim), 'q', 0, TWH_E_ARGUMENT, 0 },
  { 2, "v_dim", NULL, AT(layers[2].v_dim), 'q', -5, TWH_E_ARGUMENT, 0 },
  { 2, "", NULL, AT(layers[2].qk_dim), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0 },
  { 2, "wq", "28 x 10", AT(layers[2].qk_dim), 'q', 7, TWH_E_ARGUMENT, 0 },
  { 2, "wv", "8 x 10", AT(layers[2].v_dim), 'q', 4, TWH_E_ARGUMENT, 0 },
  { 2, "wk", "24 x 10", AT(layers[2].kv_heads), 'q', 4, TWH_E_ARGUMENT, 0 },
  { 2, "wq", "10 x 24", AT(layers[2].flags), 'd', TWH_LAYER_IN_OUT, TWH_E_ARGUMENT, 0 },
  { 2, "scale", NULL, AT(layers[2].scale), 'f', 0.25, TWH_E_ARGUMENT, 0 },
  { 2, "softcap", NULL, AT(layers[2].softcap), 'f', -1, TWH_E_ARGUMENT, 0 },
  { 2, "softcap", NULL, AT(layers[2].softcap), 'f', (double)NAN, TWH_E_ARGUMENT, 0 },
  { 2, "softcap", NULL, AT(layers[2].softcap), 'f', 30, TWH_E_UNSUPPORTED, 0 }, /* which the kernel lacks */
  { 0, "softcap", NULL, AT(kernel.softcap), 'f', 30, TWH_E_UNSUPPORTED, 0 },
  { 0, "qk_dim", NULL, AT(kernel.qk_dim), 'q', 5, TWH_E_UNSUPPORTED, 0 },
  { 2, "qk_dim", NULL, AT(extra), 'd', SLOPES | FULL_KERNEL, TWH_E_UNSUPPORTED, SLOPES | FULL_KERNEL },
  { 2, "pattern", "flags", AT(pattern.flags), 'd', 1 << 9, TWH_E_VERSION, PATTERN },
  { 2, "left", NULL, AT(pattern.left), 'q', -3, TWH_E_ARGUMENT, PATTERN },
  { 2, "right", NULL, AT(pattern.right), 'q', -3, TWH_E_ARGUMENT, PATTERN },
  { 2, "sink_tokens", NULL, AT(pattern.sink_tokens), 'q', -1, TWH_E_ARGUMENT, PATTERN },
  { 2, "pattern", "struct_size", AT(pattern.struct_size), 'd', 4, TWH_E_VERSION, PATTERN },
  { 2, "pattern", "struct_size", AT(pattern.struct_size), 'd', 0, TWH_E_ARGUMENT, PATTERN },
  { 2, "wq", "NULL", AT(without), 'd', 1, TWH_E_ARGUMENT, 0 },
  { 2, "wk", "NULL", AT(without), 'd', 2, TWH_E_ARGUMENT, 0 },
  { 2, "wv", "NULL", AT(without), 'd', 4, TWH_E_ARGUMENT, 0 },
  { 2, "wo", "NULL", AT(without), 'd', 8, TWH_E_ARGUMENT, 0 },
  { 1, "wk", "13 x 10; it must be 12 x 10", AT(bad[1].rows), 'q', 13, TWH_E_ARGUMENT, 0 },
  { 1, "wk", "12 x 9; it must be 12 x 10", AT(bad[1].cols), 'q', 9, TWH_E_ARGUMENT, 0 },
  { 1, "wo", "it must be 10 x 20", AT(bad[3].cols), 'q', 24, TWH_E_ARGUMENT, 0 },
  { 1, "wo", "it must be 10 x 20", AT(bad[3].rows), 'q', -10, TWH_E_ARGUMENT, 0 },
  { 1, "bq", "it must be 1 x 24", AT(bad[4].rows), 'q', 2, TWH_E_ARGUMENT, 0 },
  { 1, "bk", "it must be 1 x 12", AT(bad[5].cols), 'q', 24, TWH_E_ARGUMENT, 0 },
  { 1, "bv", "it must be 1 x 10", AT(bad[6].cols), 'q', 0, TWH_E_ARGUMENT, 0 },
  { 1, "bo", "it must be 1 x 10", AT(bad[7].cols), 'q', 20, TWH_E_ARGUMENT, 0 },
  { 1, "wq", "row_stride", AT(bad[0].row_stride), 'q', 9, TWH_E_ARGUMENT, 0 },
  { 1, "wq", "row_stride", AT(bad[0].row_stride), 'q', -10, TWH_E_ARGUMENT, 0 },
  { 1, "wv", "row_stride", AT(bad[2].row_stride), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0 },
  { 1, "wv", "dtype", AT(bad[2].dtype), 'd', 0, TWH_E_ARGUMENT, 0 },
  { 1, "wo", "dtype", AT(bad[3].dtype), 'd', TWH_F64, TWH_E_ARGUMENT, 0 },
  { 1, "bo", "dtype", AT(bad[7].dtype), 'd', TWH_BOOL, TWH_E_ARGUMENT, 0 },
  { 1, "bk", "dtype", AT(bad[5].dtype), 'd', 77, TWH_E_ARGUMENT, 0 },
  { 1, "wk", "data", AT(bad[1].data), 'p', 0, TWH_E_ARGUMENT, 0 },
  { 1, "bq", "data", AT(bad[4].data), 'p', 0, TWH_E_ARGUMENT, 0 },
  { 1, "wk", "struct_size", AT(bad[1].struct_size), 'd', 0, TWH_E_ARGUMENT, 0 },
  { 1, "bv", "struct_size", AT(bad[6].struct_size), 'd', 8, TWH_E_VERSION, 0 },
  { 2, "sink_logits", "dtype", AT(sinks.dtype), 'd', TWH_BOOL, TWH_E_ARGUMENT, 0 },
  { 2, "sink_logits", "dtype", AT(sinks.dtype), 'd', 9, TWH_E_ARGUMENT, 0 },
  { 2, "sink_logits", "data", AT(sinks.data), 'p', 0, TWH_E_ARGUMENT, 0 },
  { 2, "sink_logits", "struct_size", AT(sinks.struct_size), 'd', 4, TWH_E_VERSION, 0 },
  { 2, "alibi_slopes", "dtype", AT(slopes.dtype), 'd', TWH_BOOL, TWH_E_ARGUMENT, SLOPES },
  { 2, "alibi_slopes", "data", AT(slopes.data), 'p', 0, TWH_E_ARGUMENT, SLOPES },
  { 2, "struct_size", NULL, AT(layers[2].struct_size), 'd', 0, TWH_E_ARGUMENT, 0 },
  { 2, "struct_size", NULL, AT(layers[2].struct_size), 'd', 16, TWH_E_VERSION, 0 },
  { -1, "struct_size", NULL, AT(desc.struct_size), 'd', 0, TWH_E_ARGUMENT, 0 },
  { -1, "struct_size", NULL, AT(desc.struct_size), 'd', 16, TWH_E_VERSION, 0 },
  { 0, "flags", NULL, AT(plan_options.flags), 'd', 2, TWH_E_VERSION, 0 },
  { 0, "workspace_limit", NULL, AT(plan_options.workspace_limit), 'q', -1, TWH_E_ARGUMENT, 0 },
  { -1, "x is given", NULL, AT(extra), 'd', EMBED | GIVE_X, TWH_E_ARGUMENT, EMBED | GIVE_X },
  { -1, "x is NULL", NULL, AT(extra), 'd', NO_X, TWH_E_ARGUMENT, NO_X },
  { -1, "out is NULL", NULL, AT(extra), 'd', NO_OUT, TWH_E_ARGUMENT, NO_OUT },
  { -1, "x.dtype", NULL, AT(x.dtype), 'd', TWH_BOOL, TWH_E_ARGUMENT, 0 },
  { -1, "x.data", NULL, AT(x.data), 'p', 0, TWH_E_ARGUMENT, 0 },
  { -1, "x.struct_size", NULL, AT(x.struct_size), 'd', 4, TWH_E_VERSION, 0 },
  { -1, "x", NULL, AT(x.row_stride), 'q', HUGE_SIZE, TWH_E_OVERFLOW, 0 },
  { -1, "out.dtype", NULL, AT(out.dtype), 'd', 11, TWH_E_ARGUMENT, 0 },
  { -1, "out.data", NULL, AT(out.data), 'p', 0, TWH_E_ARGUMENT, 0 },
  { -1, "options.flags", NULL, AT(options.flags), 'd', 1 << 4, TWH_E_VERSION, 0 },
  { -1, "options", "struct_size", AT(options.struct_size), 'd', 4, TWH_E_VERSION, 0 },
  { -1, "options", "struct_size", AT(options.struct_size), 'd', 0, TWH_E_ARGUMENT, 0 },
  { -1, "stats", "struct_size", AT(stats.struct_size), 'd', 0, TWH_E_ARGUMENT, 0 },
};

static void arguments_write(arguments_setup *s, const arguments_row *row)
{
  char    *at = (char *)s + row->offset;
  int64_t  q = (int64_t)row->value;
  uint32_t d = row->value < 0 ? (uint32_t)(int32_t)row->value : (uint32_t)(row->kind == 'd' ? row->value : 0.0);
  void    *p = NULL;
  s->extra = row->extra;
  if (row->kind == 'q')
    memcpy(at, &q, sizeof q);
  else if (row->kind == 'd')
    memcpy(at, &d, sizeof d);
  else if (row->kind == 'p')
    memcpy(at, &p, sizeof p);
  else
    memcpy(at, &row->value, sizeof row->value);
}

static void the_setup_itself_is_valid(void **state)
{
  static const uint32_t extras[] = { 0, PATTERN, SLOPES, EMBED, LENGTHS, EMBED | LENGTHS | PATTERN | SLOPES };
  int64_t               i;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(extras); ++i) {
    arguments_setup s;
    twh_error       error;
    twh_error_init(&error);
    arguments_init(&s);
    s.extra = extras[i];
    s.pattern.flags = TWH_CAUSAL;
    support_assert_status(arguments_try(&s, &error), TWH_OK, &error, NULL);
    assert_int_equal(error.status, TWH_OK); /* untouched by what succeeds */
    assert_true(s.stats.calls > 0 || (extras[i] & LENGTHS));
  }
}

static int arguments_said(const arguments_row *row, twh_status status, const twh_error *error)
{
  char layer[40] = "";
  if (row->layer >= 0) snprintf(layer, sizeof layer, "layer %d: ", row->layer);
  if (row->layer < 0 && strncmp(error->message, "layer", 5) == 0) return 0;
  return status == row->status && error->status == status && strncmp(error->message, layer, strlen(layer)) == 0 &&
         strstr(error->message, row->word) && (!row->also || strstr(error->message, row->also)) && error->message[0] &&
         !strchr(error->message, '\n') && error->call == -1 && error->row == -1 && error->slot == -1 && error->oracle_code == 0;
}

static void every_bad_field_has_its_status_and_is_named_with_its_layer(void **state)
{
  int64_t i, failures = 0;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(arguments_rows); ++i) {
    const arguments_row *row = &arguments_rows[i];
    arguments_setup      s;
    twh_error            error;
    twh_status           status;
    twh_error_init(&error);
    arguments_init(&s);
    arguments_write(&s, row);
    status = arguments_try(&s, &error);
    if (arguments_said(row, status, &error)) continue;
    print_error("row %lld, layer %d, %s = %g: %s \"%s\", expected %s\n", (long long)i, row->layer, row->word, row->value,
                twh_status_name(status), error.message, twh_status_name(row->status));
    ++failures;
  }
  assert_int_equal(failures, 0);
}

static void a_scale_that_is_not_finite_is_refused(void **state)
{
  static const double scales[] = { (double)INFINITY, (double)NAN };
  int64_t             i;
  (void)state;
  for (i = 0; i < 2; ++i) {
    arguments_setup s;
    twh_error       error;
    twh_error_init(&error);
    arguments_init(&s);
    s.layers[3].flags = TWH_LAYER_SCALE;
    s.layers[3].scale = scales[i];
    support_assert_status(arguments_try(&s, &error), TWH_E_ARGUMENT, &error, "scale");
    assert_int_equal(strncmp(error.message, "layer 3: ", 9), 0);
  }
}

static void a_cap_and_slopes_exclude_each_other(void **state)
{
  arguments_setup s;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  arguments_init(&s);
  s.extra = SLOPES;
  s.layers[0].softcap = s.layers[1].softcap = s.layers[2].softcap = s.layers[3].softcap = s.kernel.softcap = 20.0;
  support_assert_status(arguments_try(&s, &error), TWH_E_UNSUPPORTED, &error, "layer 2: ");
  assert_non_null(strstr(error.message, "softcap"));
}

/* ---- pointers ---- */

static void null_where_it_is_not_allowed_is_refused(void **state)
{
  arguments_setup      s;
  twh_oracle          *oracle = NULL, *none = NULL;
  twh_transformer     *made = NULL;
  twh_transformer_info info;
  twh_error            error;
  (void)state;
  twh_error_init(&error);
  twh_transformer_info_init(&info);
  arguments_init(&s);
  arguments_connect(&s);
  assert_int_equal(twh_reference_oracle_create(NULL, &s.kernel, NULL, &oracle, NULL), TWH_OK);
  support_assert_status(twh_transformer_create(NULL, NULL, &oracle, 1, NULL, &made, &error), TWH_E_ARGUMENT, &error, "desc");
  support_assert_status(twh_transformer_create(NULL, &s.desc, &oracle, 1, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "out");
  support_assert_status(twh_transformer_create(NULL, &s.desc, NULL, 1, NULL, &made, &error), TWH_E_ARGUMENT, &error, "oracles");
  support_assert_status(twh_transformer_create(NULL, &s.desc, &none, 1, NULL, &made, &error), TWH_E_ARGUMENT, &error,
                        "oracles");
  support_assert_status(twh_transformer_create(NULL, &s.desc, &oracle, 0, NULL, &made, &error), TWH_E_ARGUMENT, &error,
                        "n_oracles");
  assert_null(made);
  support_assert_status(twh_transformer_create(NULL, &s.desc, &oracle, 1, NULL, &made, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_transformer_get_info(made, NULL, &error), TWH_E_ARGUMENT, &error, "out");
  support_assert_status(twh_transformer_get_info(NULL, &info, &error), TWH_E_ARGUMENT, &error, "transformer");
  info.struct_size = 0;
  support_assert_status(twh_transformer_get_info(made, &info, &error), TWH_E_ARGUMENT, &error, "struct_size");
  support_assert_status(twh_transformer_execute(NULL, &s.x, &s.out, NULL, &error), TWH_E_ARGUMENT, &error, "transformer");
  assert_int_equal(twh_transformer_execute(made, NULL, &s.out, NULL, NULL), TWH_E_ARGUMENT); /* an error is never needed */
  assert_int_equal(twh_transformer_execute(made, &s.x, &s.out, NULL, NULL), TWH_OK);
  twh_transformer_destroy(made);
  twh_oracle_destroy(oracle);
  twh_transformer_destroy(NULL);
}

/* Everything that is said is copied: only numbers, users and oracles must live on. */
static void descriptions_are_copied(void **state)
{
  arguments_setup *s = (arguments_setup *)malloc(sizeof *s), kept;
  twh_oracle      *oracle = NULL;
  twh_transformer *made = NULL;
  (void)state;
  assert_non_null(s);
  arguments_init(s);
  s->extra = PATTERN | SLOPES | LENGTHS;
  s->lengths[1] = 21;
  arguments_connect(s);
  assert_int_equal(twh_reference_oracle_create(NULL, &s->kernel, NULL, &oracle, NULL), TWH_OK);
  assert_int_equal(twh_transformer_create(NULL, &s->desc, &oracle, 1, NULL, &made, NULL), TWH_OK);
  kept = *s;
  memset(s, SUPPORT_POISON, sizeof *s);
  free(s);
  assert_int_equal(twh_transformer_execute(made, &kept.x, &kept.out, NULL, NULL), TWH_OK);
  twh_transformer_destroy(made);
  twh_oracle_destroy(oracle);
}

/* ---- struct sizes: a newer caller's structs are longer, an older library's shorter ---- */

static void longer_structs_must_be_zero_beyond_what_is_known(void **state)
{
  static const struct {
    size_t      offset, size;
    const char *word;
  } rows[] = {
    { AT(desc), sizeof(twh_transformer_desc), "desc" },          { AT(layers[2]), sizeof(twh_layer_desc), "layer 2: " },
    { AT(bad[3]), sizeof(twh_matrix), "layer 1: wo" },           { AT(sinks), sizeof(twh_tensor), "layer 2: sink_logits" },
    { AT(options), sizeof(twh_transformer_options), "options" },
  };
  int64_t i, tail;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(rows); ++i)
    for (tail = 0; tail < 2; ++tail) {
      arguments_setup  s;
      unsigned char   *given = (unsigned char *)calloc(1, rows[i].size + 64);
      uint32_t         size = (uint32_t)rows[i].size + 64;
      twh_oracle      *oracle = NULL;
      twh_transformer *made = NULL;
      twh_error        error;
      twh_status       status;
      assert_non_null(given);
      twh_error_init(&error);
      arguments_init(&s);
      arguments_connect(&s);
      memcpy(given, (char *)&s + rows[i].offset, rows[i].size);
      memcpy(given, &size, sizeof size);
      given[rows[i].size + 63] = (unsigned char)tail;
      if (i == 1) s.pointers[2] = (const twh_layer_desc *)(void *)given;
      if (i == 2) s.layers[1].wo = (const twh_matrix *)(void *)given;
      if (i == 3) s.layers[2].sink_logits = (const twh_tensor *)(void *)given;
      assert_int_equal(twh_reference_oracle_create(NULL, &s.kernel, NULL, &oracle, NULL), TWH_OK);
      status = twh_transformer_create(NULL, i == 0 ? (const twh_transformer_desc *)(void *)given : &s.desc, &oracle, 1, NULL,
                                      &made, &error);
      if (status >= 0)
        status = twh_transformer_execute(made, &s.x, &s.out, i == 4 ? (twh_transformer_options *)(void *)given : NULL, &error);
      support_assert_status(status, tail ? TWH_E_VERSION : TWH_OK, &error, rows[i].word);
      twh_transformer_destroy(made);
      twh_oracle_destroy(oracle);
      free(given);
    }
}

static void what_is_filled_is_as_long_as_the_caller_says(void **state)
{
  struct {
    twh_transformer_info info;
    unsigned char        more[32];
  } longer;
  arguments_setup  s;
  twh_oracle      *oracle = NULL;
  twh_transformer *made = NULL;
  int64_t          i;
  (void)state;
  arguments_init(&s);
  arguments_connect(&s);
  assert_int_equal(twh_reference_oracle_create(NULL, &s.kernel, NULL, &oracle, NULL), TWH_OK);
  assert_int_equal(twh_transformer_create(NULL, &s.desc, &oracle, 1, NULL, &made, NULL), TWH_OK);
  memset(&longer, SUPPORT_POISON, sizeof longer);
  longer.info.struct_size = (uint32_t)sizeof longer;
  assert_int_equal(twh_transformer_get_info(made, &longer.info, NULL), TWH_OK);
  assert_int_equal(longer.info.struct_size, sizeof longer);
  assert_int_equal(longer.info.rows, 21);
  for (i = 0; i < 32; ++i) assert_int_equal(longer.more[i], 0);
  twh_transformer_destroy(made);
  twh_oracle_destroy(oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_setup_itself_is_valid),
    cmocka_unit_test(every_bad_field_has_its_status_and_is_named_with_its_layer),
    cmocka_unit_test(a_scale_that_is_not_finite_is_refused),
    cmocka_unit_test(a_cap_and_slopes_exclude_each_other),
    cmocka_unit_test(null_where_it_is_not_allowed_is_refused),
    cmocka_unit_test(descriptions_are_copied),
    cmocka_unit_test(longer_structs_must_be_zero_beyond_what_is_known),
    cmocka_unit_test(what_is_filled_is_as_long_as_the_caller_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
