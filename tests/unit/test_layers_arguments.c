/* What twoheads-layers refuses, by table: every field of what a caller fills, its status, and what the message must name.
 * After a refusal nothing of the caller's is changed.
 *
 * A row says where the field is and what is written there; the rest of the setup is valid, which the first test shows. */
#include "support_layers.h"

enum { DIM = 12, QK = 6, WIDTH = 20, VOCABULARY = 9, LENGTH = 7, ARGUMENTS_NORMS = 8 };
enum { CHECK_NORM, ATTACH_BLOCK, ATTACH_EMBEDDING };

/* norms: in the order of twh_block; the last two also those of the embedding. Pointers point into it: never copy it. */
typedef struct arguments_setup {
  twh_norm             norm, norms[ARGUMENTS_NORMS];
  twh_matrix           weight, bias, head_weight, w_gate, w_up, w_down, b_gate, b_up, b_down, tokens, positions, types;
  twh_rotary           rotary;
  twh_mlp              mlp;
  twh_block            block;
  twh_layer_desc       layer;
  twh_embedding        embedding;
  twh_transformer_desc desc;
  int64_t              dim, model_dim, scratch, lengths[3];
  double               frequencies[QK / 2];
  const int64_t       *use_lengths;
} arguments_setup;

static float arguments_numbers[512];

static void arguments_matrix(twh_matrix *matrix, int64_t rows, int64_t cols)
{
  twh_matrix_init(matrix);
  matrix->dtype = TWH_F16;
  matrix->data = arguments_numbers;
  matrix->rows = rows;
  matrix->cols = cols;
}

static void arguments_norm(twh_norm *norm, const twh_matrix *weight, const twh_matrix *bias)
{
  twh_norm_init(norm);
  norm->kind = bias ? TWH_NORM_LAYER : TWH_NORM_RMS;
  norm->epsilon = 1e-5;
  norm->weight = weight;
  norm->bias = bias;
}

static void arguments_init_block(arguments_setup *s)
{
  int i;
  for (i = 0; i < ARGUMENTS_NORMS; ++i)
    arguments_norm(&s->norms[i], i == 1 || i == 2 ? &s->head_weight : &s->weight, i == 1 || i == 2 ? NULL : &s->bias);
  twh_mlp_init(&s->mlp);
  s->mlp.activation = TWH_SILU;
  s->mlp.w_gate = &s->w_gate;
  s->mlp.w_up = &s->w_up;
  s->mlp.w_down = &s->w_down;
  s->mlp.b_gate = &s->b_gate;
  s->mlp.b_up = &s->b_up;
  s->mlp.b_down = &s->b_down;
  twh_rotary_init(&s->rotary);
  s->rotary.pairing = TWH_ROTARY_NEIGHBOURS;
  s->rotary.frequencies = s->frequencies;
  twh_block_init(&s->block);
  s->block.input_norm = &s->norms[0];
  s->block.q_norm = &s->norms[1];
  s->block.k_norm = &s->norms[2];
  s->block.attention_out_norm = &s->norms[3];
  s->block.attention_sum_norm = &s->norms[4];
  s->block.mlp_input_norm = &s->norms[5];
  s->block.mlp_out_norm = &s->norms[6];
  s->block.mlp_sum_norm = &s->norms[7];
  s->block.rotary = &s->rotary;
  s->block.mlp = &s->mlp;
  twh_layer_desc_init(&s->layer);
  s->layer.q_heads = 4;
  s->layer.kv_heads = 2;
  s->layer.qk_dim = QK;
  s->layer.v_dim = 5;
}

static void arguments_init(arguments_setup *s)
{
  memset(s, 0, sizeof *s);
  arguments_matrix(&s->weight, 1, DIM);
  arguments_matrix(&s->bias, 1, DIM);
  arguments_matrix(&s->head_weight, 1, QK);
  arguments_matrix(&s->w_gate, WIDTH, DIM);
  arguments_matrix(&s->w_up, WIDTH, DIM);
  arguments_matrix(&s->w_down, DIM, WIDTH);
  arguments_matrix(&s->b_gate, 1, WIDTH);
  arguments_matrix(&s->b_up, 1, WIDTH);
  arguments_matrix(&s->b_down, 1, DIM);
  arguments_matrix(&s->tokens, VOCABULARY, DIM);
  arguments_matrix(&s->positions, LENGTH, DIM);
  arguments_matrix(&s->types, 2, DIM);
  arguments_norm(&s->norm, &s->weight, &s->bias);
  arguments_init_block(s);
  twh_embedding_init(&s->embedding);
  s->embedding.tokens = &s->tokens;
  s->embedding.positions = &s->positions;
  s->embedding.types = &s->types;
  s->embedding.norm = &s->norms[6];
  s->embedding.final_norm = &s->norms[7];
  twh_transformer_desc_init(&s->desc);
  s->desc.batch = 3;
  s->desc.length = LENGTH;
  s->desc.model_dim = DIM;
  s->dim = s->model_dim = DIM;
  s->scratch = 11;
}

static twh_status arguments_try(int what, arguments_setup *s, twh_error *error)
{
  if (s->use_lengths != NULL) s->desc.lengths = s->lengths;
  if (what == CHECK_NORM) return twh_norm_check(&s->norm, s->dim, "the.norm", error);
  if (what == ATTACH_BLOCK) return twh_block_attach(&s->block, s->model_dim, &s->layer, &s->scratch, error);
  return twh_embedding_attach(&s->embedding, &s->desc, error);
}

/* ---- the table ---- */

typedef struct arguments_row {
  int         what;
  const char *word, *also; /* in the message; also: NULL or another */
  size_t      offset;      /* of the field in the setup */
  char        kind;        /* 'q' int64, 'd' int32 or uint32, 'f' double, 'p' NULL pointer, 'o' the pointer and one byte */
  double      value;
  twh_status  status;
} arguments_row;

#define AT(field) offsetof(arguments_setup, field)
#define HUGE_SIZE 4611686018427387904.0 /* 2^62 */
#define NOT_FINITE ((double)INFINITY)

static const arguments_row arguments_rows[] = {
  { CHECK_NORM, "the.norm.struct_size", NULL, AT(norm.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.struct_size", NULL, AT(norm.struct_size), 'd', 8, TWH_E_VERSION },
  { CHECK_NORM, "the.norm.kind", NULL, AT(norm.kind), 'd', 0, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.kind", "3", AT(norm.kind), 'd', 3, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.epsilon", NULL, AT(norm.epsilon), 'f', -1e-9, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.epsilon", NULL, AT(norm.epsilon), 'f', NOT_FINITE, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.epsilon", NULL, AT(norm.epsilon), 'f', (double)NAN, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight_offset", NULL, AT(norm.weight_offset), 'f', NOT_FINITE, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight_offset", NULL, AT(norm.weight_offset), 'f', (double)NAN, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.bias", NULL, AT(norm.kind), 'd', TWH_NORM_RMS, TWH_E_ARGUMENT },
  { CHECK_NORM, "dim", "0", AT(dim), 'q', 0, TWH_E_ARGUMENT },
  { CHECK_NORM, "dim", "-12", AT(dim), 'q', -12, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight", "1 x 12; it must be 1 x 13", AT(dim), 'q', 13, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight", "it must be 1 x 12", AT(weight.rows), 'q', 2, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight", "it must be 1 x 12", AT(weight.cols), 'q', 11, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight.dtype", NULL, AT(weight.dtype), 'd', TWH_F64, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight.row_stride", NULL, AT(weight.row_stride), 'q', 11, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight.data", "NULL", AT(weight.data), 'p', 0, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight.data", "aligned", AT(weight.data), 'o', 0, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight.struct_size", NULL, AT(weight.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.weight.struct_size", NULL, AT(weight.struct_size), 'd', 16, TWH_E_VERSION },
  { CHECK_NORM, "the.norm.bias", "it must be 1 x 12", AT(bias.cols), 'q', 24, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.bias.dtype", NULL, AT(bias.dtype), 'd', TWH_BOOL, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.bias.dtype", NULL, AT(bias.dtype), 'd', 0, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.bias.data", "NULL", AT(bias.data), 'p', 0, TWH_E_ARGUMENT },
  { CHECK_NORM, "the.norm.bias", NULL, AT(bias.row_stride), 'q', HUGE_SIZE, TWH_E_OVERFLOW },

  { ATTACH_BLOCK, "block.struct_size", NULL, AT(block.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.struct_size", NULL, AT(block.struct_size), 'd', 40, TWH_E_VERSION },
  { ATTACH_BLOCK, "layer.struct_size", NULL, AT(layer.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "layer.struct_size", NULL, AT(layer.struct_size), 'd', 40, TWH_E_VERSION },
  { ATTACH_BLOCK, "block.flags", "0x1", AT(block.flags), 'd', 1, TWH_E_VERSION },
  { ATTACH_BLOCK, "model_dim", NULL, AT(model_dim), 'q', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "model_dim", NULL, AT(model_dim), 'q', -12, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.input_norm.weight", "it must be 1 x 13", AT(model_dim), 'q', 13, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "layer.qk_dim", NULL, AT(layer.qk_dim), 'q', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "layer.qk_dim", NULL, AT(layer.qk_dim), 'q', -6, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.q_norm.weight", "it must be 1 x 8", AT(layer.qk_dim), 'q', 8, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.input_norm.kind", NULL, AT(norms[0].kind), 'd', 7, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.q_norm.kind", NULL, AT(norms[1].kind), 'd', -1, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.k_norm.epsilon", NULL, AT(norms[2].epsilon), 'f', -1, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.attention_out_norm.kind", NULL, AT(norms[3].kind), 'd', 7, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.attention_sum_norm.bias", NULL, AT(norms[4].kind), 'd', TWH_NORM_RMS, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp_input_norm.struct_size", NULL, AT(norms[5].struct_size), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp_out_norm.struct_size", NULL, AT(norms[6].struct_size), 'd', 9, TWH_E_VERSION },
  { ATTACH_BLOCK, "block.mlp_sum_norm.weight_offset", NULL, AT(norms[7].weight_offset), 'f', NOT_FINITE, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.q_norm.weight", "it must be 1 x 6", AT(head_weight.cols), 'q', 12, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp_input_norm", "block.mlp", AT(block.mlp), 'p', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.struct_size", NULL, AT(rotary.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.struct_size", NULL, AT(rotary.struct_size), 'd', 12, TWH_E_VERSION },
  { ATTACH_BLOCK, "block.rotary.pairing", NULL, AT(rotary.pairing), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.pairing", "3", AT(rotary.pairing), 'd', 3, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.dims", "5", AT(rotary.dims), 'q', 5, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.dims", "8", AT(rotary.dims), 'q', 8, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.dims", NULL, AT(rotary.dims), 'q', -2, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.base", NULL, AT(rotary.base), 'f', -1, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.base", NULL, AT(rotary.base), 'f', NOT_FINITE, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.base", NULL, AT(rotary.base), 'f', (double)NAN, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.frequencies[2]", NULL, AT(frequencies[2]), 'f', (double)NAN, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.rotary.frequencies[0]", NULL, AT(frequencies[0]), 'f', -NOT_FINITE, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.struct_size", NULL, AT(mlp.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.struct_size", NULL, AT(mlp.struct_size), 'd', 20, TWH_E_VERSION },
  { ATTACH_BLOCK, "block.mlp.flags", NULL, AT(mlp.flags), 'd', TWH_LAYER_SCALE, TWH_E_VERSION },
  { ATTACH_BLOCK, "block.mlp.reserved", NULL, AT(mlp.reserved), 'd', 1, TWH_E_VERSION },
  { ATTACH_BLOCK, "block.mlp.activation", NULL, AT(mlp.activation), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.activation", "5", AT(mlp.activation), 'd', 5, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_up", "NULL", AT(mlp.w_up), 'p', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_down", "NULL", AT(mlp.w_down), 'p', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.b_gate", "w_gate", AT(mlp.w_gate), 'p', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_up", "20 x 12; it must be 12 x 12", AT(mlp.flags), 'd', TWH_LAYER_IN_OUT, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_up", "no outputs", AT(w_up.rows), 'q', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_up", NULL, AT(w_up.rows), 'q', -20, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_up", "it must be 20 x 12", AT(w_up.cols), 'q', 13, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_gate", "it must be 21 x 12", AT(w_up.rows), 'q', 21, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_up", NULL, AT(w_up.rows), 'q', HUGE_SIZE, TWH_E_OVERFLOW },
  { ATTACH_BLOCK, "block.mlp.w_up.struct_size", NULL, AT(w_up.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_up.struct_size", NULL, AT(w_up.struct_size), 'd', 12, TWH_E_VERSION },
  { ATTACH_BLOCK, "block.mlp.w_gate", "it must be 20 x 12", AT(w_gate.rows), 'q', 12, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_gate.dtype", NULL, AT(w_gate.dtype), 'd', 77, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_down", "it must be 12 x 20", AT(w_down.rows), 'q', 20, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_down.row_stride", NULL, AT(w_down.row_stride), 'q', -20, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.w_down", NULL, AT(w_down.row_stride), 'q', HUGE_SIZE / 2, TWH_E_OVERFLOW },
  { ATTACH_BLOCK, "block.mlp.b_gate", "it must be 1 x 20", AT(b_gate.cols), 'q', 12, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.b_up", "it must be 1 x 20", AT(b_up.rows), 'q', 20, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.b_up.data", "NULL", AT(b_up.data), 'p', 0, TWH_E_ARGUMENT },
  { ATTACH_BLOCK, "block.mlp.b_down", "it must be 1 x 12", AT(b_down.cols), 'q', 20, TWH_E_ARGUMENT },

  { ATTACH_EMBEDDING, "embedding.struct_size", NULL, AT(embedding.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.struct_size", NULL, AT(embedding.struct_size), 'd', 24, TWH_E_VERSION },
  { ATTACH_EMBEDDING, "desc.struct_size", NULL, AT(desc.struct_size), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "desc.struct_size", NULL, AT(desc.struct_size), 'd', 24, TWH_E_VERSION },
  { ATTACH_EMBEDDING, "embedding.flags", NULL, AT(embedding.flags), 'd', 2, TWH_E_VERSION },
  { ATTACH_EMBEDDING, "embedding.scale", NULL, AT(embedding.scale), 'f', NOT_FINITE, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.scale", NULL, AT(embedding.scale), 'f', (double)NAN, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "desc.model_dim", NULL, AT(desc.model_dim), 'q', 0, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.tokens", "13 columns", AT(desc.model_dim), 'q', 13, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.tokens", "NULL", AT(embedding.tokens), 'p', 0, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.tokens", "0 x 12", AT(tokens.rows), 'q', 0, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.tokens", NULL, AT(tokens.rows), 'q', -1, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.tokens.dtype", NULL, AT(tokens.dtype), 'd', TWH_F64, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.tokens.data", "NULL", AT(tokens.data), 'p', 0, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.tokens", NULL, AT(tokens.rows), 'q', HUGE_SIZE, TWH_E_OVERFLOW },
  { ATTACH_EMBEDDING, "embedding.positions", "12 columns", AT(positions.cols), 'q', 11, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.positions", "6 rows; sequence 0 has 7", AT(positions.rows), 'q', 6, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.positions", "sequence 0 has 8", AT(desc.length), 'q', 8, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.types", "12 columns", AT(types.cols), 'q', 24, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.types", NULL, AT(types.rows), 'q', 0, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.norm.kind", NULL, AT(norms[6].kind), 'd', 0, TWH_E_ARGUMENT },
  { ATTACH_EMBEDDING, "embedding.final_norm.epsilon", NULL, AT(norms[7].epsilon), 'f', -1, TWH_E_ARGUMENT },
};

static void arguments_write(arguments_setup *s, const arguments_row *row)
{
  char       *at = (char *)s + row->offset;
  int64_t     q = (int64_t)(row->kind == 'q' ? row->value : 0.0);
  int32_t     d = (int32_t)(row->kind == 'd' ? row->value : 0.0);
  const void *p = row->kind == 'o' ? (const char *)arguments_numbers + 1 : NULL;
  switch (row->kind) {
  case 'q': memcpy(at, &q, sizeof q); break;
  case 'd': memcpy(at, &d, sizeof d); break;
  case 'f': memcpy(at, &row->value, sizeof row->value); break;
  default: memcpy(at, &p, sizeof p); break;
  }
}

static void the_setup_itself_is_valid(void **state)
{
  int what;
  (void)state;
  for (what = CHECK_NORM; what <= ATTACH_EMBEDDING; ++what) {
    arguments_setup s;
    twh_error       error;
    twh_error_init(&error);
    arguments_init(&s);
    support_assert_status(arguments_try(what, &s, &error), TWH_OK, &error, NULL);
    assert_int_equal(error.status, TWH_OK); /* untouched by what succeeds */
    arguments_init(&s);
    support_assert_status(arguments_try(what, &s, NULL), TWH_OK, NULL, NULL);
    assert_int_equal(s.scratch, what == ATTACH_BLOCK ? 2 * WIDTH : 11);
  }
}

static int arguments_said(const arguments_row *row, twh_status status, const twh_error *error)
{
  return status == row->status && error->status == status && strstr(error->message, row->word) &&
         (!row->also || strstr(error->message, row->also)) && !strchr(error->message, '\n') && error->call == -1 &&
         error->row == -1 && error->slot == -1 && error->oracle_code == 0;
}

static void every_bad_field_is_named_and_nothing_is_changed(void **state)
{
  int64_t i, failures = 0;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(arguments_rows); ++i) {
    const arguments_row *row = &arguments_rows[i];
    arguments_setup      s;
    unsigned char        before[sizeof s];
    twh_error            error;
    twh_status           status;
    twh_error_init(&error);
    arguments_init(&s);
    arguments_write(&s, row);
    memcpy(before, &s, sizeof s);
    status = arguments_try(row->what, &s, &error);
    if (arguments_said(row, status, &error) && memcmp(before, &s, sizeof s) == 0) {
      assert_int_equal(arguments_try(row->what, &s, NULL), status);
      continue;
    }
    print_error("row %lld, %s = %g: %s \"%s\", expected %s\n", (long long)i, row->word, row->value, twh_status_name(status),
                error.message, twh_status_name(row->status));
    ++failures;
  }
  assert_int_equal(failures, 0);
}

static void arguments_that_are_null_are_named(void **state)
{
  arguments_setup s;
  twh_error       error;
  (void)state;
  arguments_init(&s);
  twh_error_init(&error);
  support_assert_status(twh_norm_check(NULL, DIM, "the.norm", &error), TWH_E_ARGUMENT, &error, "the.norm is NULL");
  support_assert_status(twh_norm_check(NULL, DIM, NULL, &error), TWH_E_ARGUMENT, &error, "norm is NULL");
  support_assert_status(twh_block_attach(NULL, DIM, &s.layer, &s.scratch, &error), TWH_E_ARGUMENT, &error, "block is NULL");
  support_assert_status(twh_block_attach(&s.block, DIM, NULL, &s.scratch, &error), TWH_E_ARGUMENT, &error, "layer is NULL");
  support_assert_status(twh_block_attach(&s.block, DIM, &s.layer, NULL, &error), TWH_E_ARGUMENT, &error, "scratch_per_row");
  support_assert_status(twh_embedding_attach(NULL, &s.desc, &error), TWH_E_ARGUMENT, &error, "embedding is NULL");
  support_assert_status(twh_embedding_attach(&s.embedding, NULL, &error), TWH_E_ARGUMENT, &error, "desc is NULL");
}

/* Each of the three norms about an MLP that is not there. */
static void norms_of_an_mlp_need_one(void **state)
{
  static const char *const words[3] = { "block.mlp_input_norm", "block.mlp_out_norm", "block.mlp_sum_norm" };
  int                      i;
  (void)state;
  for (i = 0; i < 3; ++i) {
    arguments_setup s;
    twh_error       error;
    twh_error_init(&error);
    arguments_init(&s);
    s.block.mlp = NULL;
    if (i != 0) s.block.mlp_input_norm = NULL;
    if (i != 1) s.block.mlp_out_norm = NULL;
    if (i != 2) s.block.mlp_sum_norm = NULL;
    support_assert_status(arguments_try(ATTACH_BLOCK, &s, &error), TWH_E_ARGUMENT, &error, words[i]);
  }
}

/* dims 0 are all of qk_dim, which may be odd. */
static void rotary_of_an_odd_head_is_refused(void **state)
{
  arguments_setup s;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  arguments_init(&s);
  s.block.q_norm = s.block.k_norm = NULL;
  s.rotary.frequencies = NULL;
  s.layer.qk_dim = 7;
  support_assert_status(arguments_try(ATTACH_BLOCK, &s, &error), TWH_E_ARGUMENT, &error, "block.rotary.dims");
  s.rotary.dims = 6;
  support_assert_status(arguments_try(ATTACH_BLOCK, &s, &error), TWH_OK, &error, NULL);
}

static void lengths_of_each_sequence_count(void **state)
{
  arguments_setup s;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  arguments_init(&s);
  s.desc.length = 1000; /* not used where there are lengths */
  s.lengths[0] = LENGTH;
  s.use_lengths = s.lengths;
  support_assert_status(arguments_try(ATTACH_EMBEDDING, &s, &error), TWH_OK, &error, NULL);
  s.lengths[2] = LENGTH + 1;
  support_assert_status(arguments_try(ATTACH_EMBEDDING, &s, &error), TWH_E_ARGUMENT, &error, "sequence 2 has 8");
  s.embedding.positions = NULL;
  support_assert_status(arguments_try(ATTACH_EMBEDDING, &s, &error), TWH_OK, &error, NULL);
  arguments_init(&s);
  s.desc.length = 1000;
  s.desc.batch = 0;
  support_assert_status(arguments_try(ATTACH_EMBEDDING, &s, &error), TWH_OK, &error, NULL);
}

/* ---- structs of newer headers ---- */

typedef struct arguments_longer {
  union {
    twh_norm             norm;
    twh_matrix           matrix;
    twh_rotary           rotary;
    twh_mlp              mlp;
    twh_block            block;
    twh_layer_desc       layer;
    twh_embedding        embedding;
    twh_transformer_desc desc;
    unsigned char        bytes[512];
  } as;
} arguments_longer;

/* Put a longer copy of the struct in the place of it. */
static void *arguments_lengthen(arguments_longer *longer, const void *given, size_t bytes, unsigned char last)
{
  const uint32_t size = (uint32_t)bytes + 24;
  memset(longer, 0, sizeof *longer);
  memcpy(longer, given, bytes);
  memcpy(longer, &size, sizeof size);
  longer->as.bytes[size - 1] = last;
  return longer;
}

static void longer_structs_must_be_zero_beyond_what_is_known(void **state)
{
  int i, last;
  (void)state;
  for (i = 0; i < 8; ++i) {
    for (last = 0; last < 2; ++last) {
      const twh_status expected = last ? TWH_E_VERSION : TWH_OK;
      arguments_setup  s;
      arguments_longer l;
      twh_error        error;
      twh_status       status;
      void            *longer = &l;
      const char      *word = "block.input_norm";
      twh_error_init(&error);
      arguments_init(&s);
#define LENGTHEN(object) arguments_lengthen(&l, &(object), sizeof(object), (unsigned char)last)
      if (i == 0) s.block.input_norm = (const twh_norm *)LENGTHEN(s.norms[0]);
      if (i == 1) s.norms[0].weight = (const twh_matrix *)LENGTHEN(s.weight);
      if (i == 2) s.block.rotary = (const twh_rotary *)LENGTHEN(s.rotary), word = "block.rotary";
      if (i == 3) s.block.mlp = (const twh_mlp *)LENGTHEN(s.mlp), word = "block.mlp";
      if (i == 4) LENGTHEN(s.block), word = "block";
      if (i == 5) LENGTHEN(s.layer), word = "layer";
      if (i == 6) LENGTHEN(s.embedding), word = "embedding";
      if (i == 7) LENGTHEN(s.desc), word = "desc";
#undef LENGTHEN
      if (i == 4)
        status = twh_block_attach((const twh_block *)longer, DIM, &s.layer, &s.scratch, &error);
      else if (i == 5)
        status = twh_block_attach(&s.block, DIM, (twh_layer_desc *)longer, &s.scratch, &error);
      else if (i == 6)
        status = twh_embedding_attach((const twh_embedding *)longer, &s.desc, &error);
      else if (i == 7)
        status = twh_embedding_attach(&s.embedding, (twh_transformer_desc *)longer, &error);
      else
        status = arguments_try(ATTACH_BLOCK, &s, &error);
      support_assert_status(status, expected, &error, word);
    }
  }
}

/* An error of an older header is filled as far as it goes, one of a newer header zeroed beyond. */
static void errors_of_other_sizes_are_filled_as_far_as_they_go(void **state)
{
  enum { NEWER = (int)sizeof(twh_error) + 40 };
  union {
    twh_error     error;
    unsigned char bytes[NEWER + 8];
  } given;
  static const size_t sizes[] = { 0,  4, 8, 16, offsetof(twh_error, message), offsetof(twh_error, message) + 10,
                                  sizeof(twh_error), NEWER };
  size_t              i, b;
  (void)state;
  for (i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    memset(&given, SUPPORT_POISON, sizeof given);
    given.error.struct_size = (uint32_t)sizes[i];
    support_assert_status(twh_norm_check(NULL, DIM, "the.norm", &given.error), TWH_E_ARGUMENT, NULL, NULL);
    assert_int_equal(given.error.struct_size, sizes[i]);
    if (sizes[i] >= 8) assert_int_equal(given.error.status, TWH_E_ARGUMENT);
    if (sizes[i] == offsetof(twh_error, message) + 10) assert_string_equal(given.error.message, "the.norm ");
    for (b = sizes[i] < 4 ? 4 : sizes[i]; b < sizeof given; ++b) assert_int_equal(given.bytes[b], SUPPORT_POISON);
    for (b = sizeof(twh_error); b < sizes[i]; ++b) assert_int_equal(given.bytes[b], 0);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_setup_itself_is_valid),
    cmocka_unit_test(every_bad_field_is_named_and_nothing_is_changed),
    cmocka_unit_test(arguments_that_are_null_are_named),
    cmocka_unit_test(norms_of_an_mlp_need_one),
    cmocka_unit_test(rotary_of_an_odd_head_is_refused),
    cmocka_unit_test(lengths_of_each_sequence_count),
    cmocka_unit_test(longer_structs_must_be_zero_beyond_what_is_known),
    cmocka_unit_test(errors_of_other_sizes_are_filled_as_far_as_they_go),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
