/* The embedding's hooks of twoheads-layers, called as a transformer would call them: sums of tables of all types, norms first
 * and last, blocks that begin anywhere, tokens and positions that the tables do not have. */
#include "support_layers.h"

#include <errno.h>

enum { EMBEDDING_TOKENS = 50, EMBEDDING_LENGTH = 20, EMBEDDING_ROWS = 5, EMBEDDING_FIRST = 7 };
enum { POSITIONS = 1, TYPES = 2, NORM = 4, FINAL = 8 };

typedef struct embedding_setup {
  twh_embedding        embedding;
  twh_transformer_desc desc;
  twh_norm             norm, last;
  support_block        x;
  int32_t              tokens[EMBEDDING_FIRST + EMBEDDING_ROWS]; /* of the sequence; the block is its end */
  int64_t              positions[EMBEDDING_ROWS];
  twh_rows             rows;
} embedding_setup;

static const int32_t embedding_dtypes[3] = { TWH_F32, TWH_F16, TWH_BF16 };

static void embedding_norm(twh_norm *norm, int32_t kind, int64_t dim, support_random *random)
{
  twh_norm_init(norm);
  norm->kind = kind;
  norm->epsilon = 1e-5;
  norm->weight = support_weights(random, 1, dim, TWH_BF16, 0, 1.0, 0.2);
}

static void embedding_begin(embedding_setup *s, int parts, int64_t dim, int64_t number, double size, support_random *random)
{
  twh_error error;
  int64_t   r;
  memset(s, 0, sizeof *s);
  twh_embedding_init(&s->embedding);
  s->embedding.tokens = support_weights(random, EMBEDDING_TOKENS, dim, embedding_dtypes[number % 3], number % 2, 0.0, size);
  if (parts & POSITIONS)
    s->embedding.positions = support_weights(random, EMBEDDING_LENGTH, dim, embedding_dtypes[(number + 1) % 3], 3, 0.0, size);
  if (parts & TYPES) s->embedding.types = support_weights(random, 2, dim, embedding_dtypes[(number + 2) % 3], 0, 0.0, size);
  if (parts & NORM) {
    embedding_norm(&s->norm, TWH_NORM_LAYER, dim, random);
    s->embedding.norm = &s->norm;
  }
  if (parts & FINAL) {
    embedding_norm(&s->last, TWH_NORM_RMS, dim, random);
    s->embedding.final_norm = &s->last;
  }
  twh_transformer_desc_init(&s->desc);
  s->desc.batch = 2;
  s->desc.length = EMBEDDING_LENGTH;
  s->desc.model_dim = dim;
  twh_error_init(&error);
  support_assert_status(twh_embedding_attach(&s->embedding, &s->desc, &error), TWH_OK, &error, NULL);
  support_block_create(&s->x, EMBEDDING_ROWS, dim, number % 4);
  for (r = 0; r < EMBEDDING_FIRST; ++r) s->tokens[r] = -1;
  for (r = 0; r < EMBEDDING_ROWS; ++r) {
    s->tokens[EMBEDDING_FIRST + r] = (int32_t)support_below(random, EMBEDDING_TOKENS);
    s->positions[r] = support_below(random, EMBEDDING_LENGTH);
  }
  s->tokens[EMBEDDING_FIRST] = EMBEDDING_TOKENS - 1;
  s->positions[EMBEDDING_ROWS - 1] = EMBEDDING_LENGTH - 1;
  twh_rows_init(&s->rows);
  s->rows.layer = -1;
  s->rows.row_begin = EMBEDDING_FIRST;
  s->rows.rows = EMBEDDING_ROWS;
  s->rows.positions = s->positions;
  s->rows.model_dim = dim;
  s->rows.x = s->x.at;
  s->rows.x_stride = s->x.stride;
  s->rows.input = s->tokens;
}

static void embedding_end(embedding_setup *s)
{
  assert_true(support_block_gaps_untouched(&s->x));
  support_block_destroy(&s->x);
  support_weights_destroy(s->embedding.tokens);
  support_weights_destroy(s->embedding.positions);
  support_weights_destroy(s->embedding.types);
  support_weights_destroy(s->norm.weight);
  support_weights_destroy(s->last.weight);
}

static double *embedding_define(const embedding_setup *s)
{
  const twh_embedding *e = &s->embedding;
  const int64_t        dim = s->desc.model_dim;
  double              *want = (double *)malloc((size_t)(EMBEDDING_ROWS * dim) * sizeof *want);
  int64_t              r, c;
  assert_non_null(want);
  for (r = 0; r < EMBEDDING_ROWS; ++r) {
    for (c = 0; c < dim; ++c) {
      double *to = &want[r * dim + c];
      *to = (e->scale != 0.0 ? e->scale : 1.0) * support_matrix_at(e->tokens, s->tokens[EMBEDDING_FIRST + r], c);
      if (e->positions) *to += support_matrix_at(e->positions, s->positions[r], c);
      if (e->types) *to += support_matrix_at(e->types, 0, c);
    }
    support_define_norm(e->norm, want + r * dim, dim);
  }
  return want;
}

static void embeddings_are_the_sums_of_their_tables(void **state)
{
  static const int64_t dims[] = { 1, 7, 256, 257, 600 };
  static const double  scales[] = { 0.0, 1.0, 22.627416997969522, -0.1 }, sizes[] = { 1.0, 1e-4, 1e4 };
  support_random       random = support_random_at(support_seed(1), 0);
  int64_t              d, number = 0;
  int                  parts;
  (void)state;
  for (parts = 0; parts < 16; ++parts) {
    for (d = 0; d < SUPPORT_COUNT(dims); ++d, ++number) {
      embedding_setup s;
      double         *want;
      int64_t         r;
      /* the layer norm of one number is 0 and nothing of it is left to compare */
      if (dims[d] == 1 && (parts & NORM)) continue;
      embedding_begin(&s, parts, dims[d], number, sizes[number % 3], &random);
      s.embedding.scale = scales[number % 4];
      want = embedding_define(&s);
      assert_int_equal(s.desc.embed(s.desc.user, &s.rows), 0);
      support_assert_at_most(support_block_error(&s.x, want), parts & NORM ? 2e-6 : 6.1e-8, "error of an embedding");
      assert_true((s.desc.finish != NULL) == ((parts & FINAL) != 0));
      if (parts & FINAL) {
        s.rows.input = NULL;
        s.rows.positions = NULL;
        for (r = 0; r < EMBEDDING_ROWS; ++r) support_define_norm(&s.last, want + r * dims[d], dims[d]);
        assert_int_equal(s.desc.finish(s.desc.user, &s.rows), 0);
        support_assert_at_most(support_block_error(&s.x, want), 2e-6, "error after the last norm");
      }
      free(want);
      embedding_end(&s);
    }
  }
}

static void tokens_outside_the_vocabulary_are_out_of_range(void **state)
{
  static const int32_t bad[] = { -1, EMBEDDING_TOKENS, INT32_MIN, INT32_MAX };
  support_random       random = support_random_at(support_seed(2), 0);
  int64_t              i, r;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(bad); ++i) {
    for (r = 0; r < EMBEDDING_ROWS; ++r) {
      embedding_setup s;
      embedding_begin(&s, POSITIONS | TYPES, 8, i, 1.0, &random);
      s.tokens[EMBEDDING_FIRST + r] = bad[i];
      assert_int_equal(s.desc.embed(s.desc.user, &s.rows), ERANGE);
      embedding_end(&s);
    }
  }
}

static void no_tokens_at_all_are_invalid(void **state)
{
  support_random  random = support_random_at(support_seed(3), 0);
  embedding_setup s;
  (void)state;
  embedding_begin(&s, 0, 8, 0, 1.0, &random);
  s.rows.input = NULL;
  assert_int_equal(s.desc.embed(s.desc.user, &s.rows), EINVAL);
  embedding_end(&s);
}

/* A transformer that was made longer after the embedding was attached. */
static void positions_behind_the_table_are_out_of_range(void **state)
{
  support_random  random = support_random_at(support_seed(4), 0);
  embedding_setup s;
  (void)state;
  embedding_begin(&s, POSITIONS, 8, 0, 1.0, &random);
  s.positions[2] = EMBEDDING_LENGTH;
  assert_int_equal(s.desc.embed(s.desc.user, &s.rows), ERANGE);
  embedding_end(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(embeddings_are_the_sums_of_their_tables),
    cmocka_unit_test(tokens_outside_the_vocabulary_are_out_of_range),
    cmocka_unit_test(no_tokens_at_all_are_invalid),
    cmocka_unit_test(positions_behind_the_table_are_out_of_range),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
