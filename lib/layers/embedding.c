/* Token embeddings as the first hook of a transformer, the final norm as its last. */
#include "layers/layers.h"

#include <errno.h>
#include <math.h>

/* The three tables' rows, added in float64. */
static void embedding_row(const twh_embedding *embedding, int64_t token, int64_t position, float *x, int64_t dim)
{
  const double scale = embedding->scale != 0 ? embedding->scale : 1;
  float        of_token[TWH__LAYERS_PIECE], of_position[TWH__LAYERS_PIECE], of_type[TWH__LAYERS_PIECE];

  for (int64_t first = 0; first < dim; first += TWH__LAYERS_PIECE) {
    const int64_t n = dim - first < TWH__LAYERS_PIECE ? dim - first : TWH__LAYERS_PIECE;
    twh__layers_values(embedding->tokens, 0, token, first, n, of_token);
    twh__layers_values(embedding->positions, 0, position, first, n, of_position);
    twh__layers_values(embedding->types, 0, 0, first, n, of_type);
    for (int64_t c = 0; c < n; ++c) x[first + c] = (float)(scale * of_token[c] + of_position[c] + of_type[c]);
  }
}

static int32_t embedding_embed(void *user, const twh_rows *rows)
{
  const twh_embedding *embedding = (const twh_embedding *)user;
  const int32_t       *tokens = (const int32_t *)rows->input;

  if (tokens == NULL) return EINVAL;
  for (int64_t r = 0; r < rows->rows; ++r) {
    const int32_t token = tokens[rows->row_begin + r];
    if (token < 0 || token >= embedding->tokens->rows) return ERANGE;
    if (embedding->positions != NULL && rows->positions[r] >= embedding->positions->rows) return ERANGE;
    embedding_row(embedding, token, rows->positions[r], rows->x + r * rows->x_stride, rows->model_dim);
  }
  if (embedding->norm != NULL) twh_norm_apply(embedding->norm, rows->x, rows->rows, rows->model_dim, rows->x_stride);
  return 0;
}

static int32_t embedding_finish(void *user, const twh_rows *rows)
{
  const twh_embedding *embedding = (const twh_embedding *)user;

  twh_norm_apply(embedding->final_norm, rows->x, rows->rows, rows->model_dim, rows->x_stride);
  return 0;
}

static twh_status embedding_check_lengths(const twh_embedding *embedding, const twh_transformer_desc *desc, twh_error *error)
{
  const int64_t different = desc->lengths != NULL || desc->batch < 1 ? desc->batch : 1;

  for (int64_t b = 0; embedding->positions != NULL && b < different; ++b) {
    const int64_t length = desc->lengths != NULL ? desc->lengths[b] : desc->length;
    if (length <= embedding->positions->rows) continue;
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "embedding.positions has %lld rows; sequence %lld has %lld tokens",
                              (long long)embedding->positions->rows, (long long)b, (long long)length);
  }
  return TWH_OK;
}

twh_status twh_embedding_attach(const twh_embedding *embedding, twh_transformer_desc *desc, twh_error *error)
{
  twh_status status;

  if (embedding == NULL) return twh__layers_refuse(error, TWH_E_ARGUMENT, "embedding is NULL");
  if (desc == NULL) return twh__layers_refuse(error, TWH_E_ARGUMENT, "desc is NULL");
  status = twh__layers_struct(embedding, sizeof *embedding, "embedding", error);
  if (status == TWH_OK) status = twh__layers_struct(desc, sizeof *desc, "desc", error);
  if (status != TWH_OK) return status;
  if (embedding->flags != 0)
    return twh__layers_refuse(error, TWH_E_VERSION, "embedding.flags has unknown bits: 0x%x", (unsigned)embedding->flags);
  if (!isfinite(embedding->scale))
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "embedding.scale is %g; it must be finite", embedding->scale);
  if (desc->model_dim < 1)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "desc.model_dim is %lld; set it first", (long long)desc->model_dim);
  status = twh__layers_matrix(embedding->tokens, -1, desc->model_dim, 0, "embedding.tokens", error);
  if (status == TWH_OK) status = twh__layers_matrix(embedding->positions, -1, desc->model_dim, 1, "embedding.positions", error);
  if (status == TWH_OK) status = twh__layers_matrix(embedding->types, -1, desc->model_dim, 1, "embedding.types", error);
  if (status == TWH_OK && embedding->norm != NULL)
    status = twh_norm_check(embedding->norm, desc->model_dim, "embedding.norm", error);
  if (status == TWH_OK && embedding->final_norm != NULL)
    status = twh_norm_check(embedding->final_norm, desc->model_dim, "embedding.final_norm", error);
  if (status == TWH_OK) status = embedding_check_lengths(embedding, desc, error);
  if (status != TWH_OK) return status;
  desc->embed = embedding_embed;
  desc->finish = embedding->final_norm != NULL ? embedding_finish : NULL;
  desc->user = (void *)(uintptr_t)embedding;
  return TWH_OK;
}
