/* Tiny transformers of five published families with random weights, and what their implementations compute in float64:
 * tests/data/transformers, whose README.md says what is in them. TWH_TEST_DATA names another data folder. */
#ifndef TWH_TESTS_SUPPORT_GOLDEN_H
#define TWH_TESTS_SUPPORT_GOLDEN_H

#include "support.h"

#include "../../tools/safetensors.h"
#include "twoheads_layers.h"

enum { SUPPORT_GOLDEN_LAYERS = 4, SUPPORT_GOLDEN_MATRICES = 80, SUPPORT_GOLDEN_NORMS = 20 };

/* A layer x = x + attention(h) + mlp(h) with h = norm(x), for which there is no ready block. */
typedef struct support_parallel {
  const twh_norm   *norm;
  const twh_rotary *rotary;
  const twh_matrix *w_in, *b_in, *w_out, *b_out;
} support_parallel;

/* A model, ready for twh_transformer_create. Causal models have two sequences of different lengths, the second a beginning of the
 * first, whose rows must be the same. Pointers point into the struct: never copy it. */
typedef struct support_golden {
  twh_transformer_desc  desc;
  int64_t               lengths[2], rows; /* of the sequences, and of those that there are together */
  int32_t               tokens[200];      /* the input of an execute */
  const double         *want;             /* (lengths[0], model_dim): the last hidden state */
  safetensors          *file;
  char                  prefix[64]; /* of the names of weights */
  twh_matrix            matrices[SUPPORT_GOLDEN_MATRICES];
  twh_norm              norms[SUPPORT_GOLDEN_NORMS];
  int                   n_matrices, n_norms;
  twh_rotary            rotary;
  twh_pattern           causal, window;
  twh_mlp               mlps[SUPPORT_GOLDEN_LAYERS];
  twh_block             blocks[SUPPORT_GOLDEN_LAYERS];
  support_parallel      parallels[SUPPORT_GOLDEN_LAYERS];
  twh_layer_desc        layers[SUPPORT_GOLDEN_LAYERS];
  const twh_layer_desc *list[SUPPORT_GOLDEN_LAYERS];
  twh_embedding         embedding;
} support_golden;

/* name: "bert", "llama", "gemma2", "gptj", "gpt2". What is missing or does not fit fails the test. */
void support_golden_open(support_golden *model, const char *name);
void support_golden_close(support_golden *model);

/* The largest error of an output (rows, model_dim), relative to the largest number there should be; NaN is INFINITY. */
double support_golden_error(const support_golden *model, const float *out);

#endif
