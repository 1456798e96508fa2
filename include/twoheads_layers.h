/* twoheads-layers: what stands between the attentions of real encoders and decoders
 *
 * Norms, activations, rotary and learned positions, MLPs, as plain functions over blocks of rows, and as ready hooks for
 * twh_transformer (see twoheads.h). Optional: a host with its own row-wise kernels does not need it. Everything is f32 with
 * weights of any float type; norms accumulate in float64, rotary angles are computed in float64. Nothing is allocated.
 *
 * A block describes what the layers of most models have around the attention; norms that are NULL are left out:
 *     y = input_norm(x)
 *     q, k, v = y wq, y wk, y wv;  q, k = q_norm, k_norm of each head;  q, k = rotary(q, k)
 *     y = attention wo;  x = attention_sum_norm(x + attention_out_norm(y))
 *     y = mlp(mlp_input_norm(x));  x = mlp_sum_norm(x + mlp_out_norm(y))
 * Llama and its relatives have input_norm and mlp_input_norm, BERT attention_sum_norm and mlp_sum_norm, Gemma 2 all but the two
 * sum norms.
 *
 *     twh_block block; twh_block_init(&block);
 *     block.input_norm = &norm1; block.rotary = &rotary; block.mlp_input_norm = &norm2; block.mlp = &mlp;
 *     twh_block_attach(&block, model_dim, &layer, &scratch_per_row, NULL);  ... sets the layer's three hooks and user ...
 */
#ifndef TWOHEADS_LAYERS_H
#define TWOHEADS_LAYERS_H

#include "twoheads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- functions of rows: x is (rows, dim), element (r, c) at x[r * stride + c], changed in place ---------------------------- */

enum { TWH_NORM_LAYER = 1, TWH_NORM_RMS = 2 };

/* LAYER: (x - mean) / sqrt(variance + epsilon) * weight + bias, the variance over dim, not dim - 1.
 * RMS: x / sqrt(mean of x^2 + epsilon) * weight. */
typedef struct twh_norm {
  uint32_t struct_size;
  int32_t  kind;                    /* TWH_NORM_* */
  double   epsilon;                 /* >= 0 */
  double   weight_offset;           /* added to each weight: 1 for models that store weight - 1 (Gemma); else 0 */
  const twh_matrix *weight, *bias;  /* one row of dim; NULL = 1 and 0; bias only with TWH_NORM_LAYER */
} twh_norm;

/* Threads: any. The norm must have passed twh_norm_check. Since 0.1. */
TWH_API void twh_norm_apply(const twh_norm *norm, float *x, int64_t rows, int64_t dim, int64_t stride);

/* Whether a norm is one of rows of dim. name: what the message calls it. Returns: TWH_OK; TWH_E_ARGUMENT (names the field);
 * TWH_E_VERSION; TWH_E_OVERFLOW. Since 0.1. */
TWH_API twh_status twh_norm_check(const twh_norm *norm, int64_t dim, const char *name, twh_error *error);

enum { TWH_GELU = 1, TWH_GELU_TANH = 2, TWH_SILU = 3, TWH_RELU = 4 };

/* GELU: x/2 (1 + erf(x / sqrt 2)); GELU_TANH: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); SILU: x / (1 + e^-x); RELU: max(x, 0).
 * n values. activation: one of the four. Threads: any. Since 0.1. */
TWH_API void twh_activate(int32_t activation, float *x, int64_t n);

/* Which two elements of a head of `dims` rotated dimensions make a pair. HALVES: i and i + dims / 2 (GPT-NeoX, Llama as torch
 * models have it); NEIGHBOURS: 2 i and 2 i + 1 (RoFormer, GPT-J). */
enum { TWH_ROTARY_HALVES = 1, TWH_ROTARY_NEIGHBOURS = 2 };

/* Rotary positions: pair i of a row at position p is turned by the angle p * frequency_i. */
typedef struct twh_rotary {
  uint32_t struct_size;
  int32_t  pairing;                 /* TWH_ROTARY_* */
  int64_t  dims;                    /* the first dims of each head are rotated: even; 0 = all of qk_dim */
  double   base;                    /* frequency_i = base^(-2 i / dims); > 0; 0 = 10000 */
  const double *frequencies;        /* or NULL; dims / 2 of them, for whatever a model does to them; then base is not used */
} twh_rotary;

/* Rotate n_heads heads of head_dim in each of `rows` rows. dims 0 = head_dim. Threads: any. Since 0.1. */
TWH_API void twh_rotary_apply(const twh_rotary *rotary, float *x, int64_t rows, int64_t n_heads, int64_t head_dim, int64_t stride,
                              const int64_t *positions);

/* gate NULL: activation(x w_up + b_up) w_down + b_down. Else: (activation(x w_gate + b_gate) * (x w_up + b_up)) w_down + b_down. */
typedef struct twh_mlp {
  uint32_t struct_size;
  uint32_t flags;                   /* 0 or TWH_LAYER_IN_OUT, for all three */
  int32_t  activation;              /* TWH_GELU, ... */
  int32_t  reserved;                /* 0 */
  const twh_matrix *w_gate, *w_up, *w_down;
  const twh_matrix *b_gate, *b_up, *b_down; /* one row each; NULL = none */
} twh_mlp;

/* ---- hooks for twh_transformer ----------------------------------------------------------------------------------------- */

/* What stands around the attention of a layer: see above. It and what it points to must outlive the transformer. */
typedef struct twh_block {
  uint32_t struct_size;
  uint32_t flags;                   /* 0 */
  const twh_norm   *input_norm, *q_norm, *k_norm, *attention_out_norm, *attention_sum_norm;
  const twh_norm   *mlp_input_norm, *mlp_out_norm, *mlp_sum_norm;
  const twh_rotary *rotary;         /* NULL = none */
  const twh_mlp    *mlp;            /* NULL = no MLP; then the three norms about it are NULL too */
} twh_block;

/* Check a block against a layer and make it the layer's: sets layer->before, heads, after (those that it needs) and user.
 * layer: its flags, heads and dims must be set. scratch_per_row: raised to what the hooks need, for
 *   twh_transformer_desc.scratch_per_row: start with 0 and pass it for all layers; may not be NULL. With a smaller one the MLP's
 *   hook fails with ENOMEM.
 * Returns: TWH_OK; TWH_E_ARGUMENT (the message names the field); TWH_E_VERSION; TWH_E_OVERFLOW. Then nothing is changed. Since 0.1. */
TWH_API TWH_MUST_USE twh_status twh_block_attach(const twh_block *block, int64_t model_dim, twh_layer_desc *layer,
                                                 int64_t *scratch_per_row, twh_error *error);

/* Token embedding with learned positions: row r of x = norm(scale * tokens[input[r]] + positions[position of r] + types[0]).
 * The input of an execute is an array of int32_t, a token for each row of all sequences. */
typedef struct twh_embedding {
  uint32_t struct_size;
  uint32_t flags;                   /* 0 */
  double   scale;                   /* of tokens; 0 = 1 */
  const twh_matrix *tokens;         /* (vocabulary, model_dim) */
  const twh_matrix *positions;      /* (longest sequence, model_dim); NULL = none */
  const twh_matrix *types;          /* (1 or more, model_dim); NULL = none */
  const twh_norm   *norm;           /* NULL = none */
  const twh_norm   *final_norm;     /* applied after the last layer; NULL = none */
} twh_embedding;

/* Check an embedding and make it the transformer's: sets desc->embed, desc->finish (if there is a final norm) and desc->user.
 * desc: its model_dim, batch, length and lengths must be set; a sequence longer than the table of positions is refused.
 * A token outside the vocabulary makes the hook fail with ERANGE when the transformer runs; a missing input with EINVAL.
 * Returns: TWH_OK; TWH_E_ARGUMENT (names the field); TWH_E_VERSION; TWH_E_OVERFLOW. Then nothing is changed. Since 0.1. */
TWH_API TWH_MUST_USE twh_status twh_embedding_attach(const twh_embedding *embedding, twh_transformer_desc *desc, twh_error *error);

TWH_DEFINE_INIT(twh_norm)
TWH_DEFINE_INIT(twh_rotary)
TWH_DEFINE_INIT(twh_mlp)
TWH_DEFINE_INIT(twh_block)
TWH_DEFINE_INIT(twh_embedding)

#ifdef __cplusplus
}
#endif
#endif
