/* A large transformer: layers of attention, each planned on the kernels, with rows of the residual stream between them.
 *
 * layer.c checks and copies what the caller says of a layer, transformer.c owns the object and plans its layers, activations.c lays out
 * what an execute needs, rows.c works on blocks of rows between two attentions, gemm.c is the product for hosts that give
 * none, and forward.c is the loop over the layers. */
#ifndef TWH_CORE_TRANSFORMER_H
#define TWH_CORE_TRANSFORMER_H

#include <pthread.h>

#include "core/base/base.h"
#include "core/view/view.h"

/* A copy of a layer; the pointers in desc are NULL or point into the copy. */
typedef struct twh__layer {
  twh_layer_desc desc;
  twh_pattern    pattern;
  twh_matrix     matrices[8]; /* wq, wk, wv, wo, bq, bk, bv, bo */
  twh_tensor     sink_logits, alibi_slopes;
  int64_t        plan; /* which of the transformer's plans */
} twh__layer;

struct twh_transformer {
  const twh_context   *context;
  twh_transformer_desc desc; /* lengths and layers are NULL */
  twh_transformer_info info;
  twh_sequence        *sequences;                               /* desc.batch of them */
  twh__layer          *layers;                                  /* desc.n_layers */
  twh_plan           **plans;                                   /* room for desc.n_layers, info.plans of them made */
  int64_t              tasks;                                   /* blocks of rows at the same time */
  int64_t              q_floats, kv_floats, v_floats, a_floats; /* of a row, the most of all layers */
  size_t               plan_bytes, plan_alignment;              /* workspace, the most of all plans */
};

/* Check layer number `index` and copy it. model_dim is the transformer's. */
twh_status twh__layer_read(twh__layer *layer, const twh_layer_desc *desc, int64_t index, int64_t model_dim, twh_error *error);

/* Whether two layers' attentions are the same problem. */
int twh__layer_is_like(const twh__layer *a, const twh__layer *b);

/* Fill `error` with `inner`, the layer in front of its message. Returns inner's status. */
twh_status twh__layer_fail(twh_error *error, const twh_error *inner, int64_t index);

/* What one task works in. */
typedef struct twh__scratch {
  float   *y, *bias, *hooks;
  int64_t *positions;
} twh__scratch;

typedef struct twh__activations {
  float        *x, *q, *k, *v, *a; /* all rows; a: the output of attention, before wo */
  twh__scratch *scratches;
  char         *plan;
} twh__activations;

/* Lay out the memory of an execute from `base` on, or with base NULL only measure it. 0 on overflow. */
int twh__activations_lay_out(const twh_transformer *transformer, char *base, twh__activations *activations, int64_t *bytes,
                             int64_t *alignment);

/* The first block that failed. */
typedef struct twh__row_failure {
  int64_t     block, layer;
  int32_t     code;
  const char *what;
} twh__row_failure;

/* One execute. */
typedef struct twh__forward {
  const twh_transformer  *transformer;
  twh_transformer_options options;
  twh_transformer_stats   stats;
  twh__activations        activations;
  twh__view               x, out;
  int                     has_x;
  pthread_mutex_t         lock;    /* of what follows */
  int64_t                 next;    /* block */
  twh__row_failure        failure; /* what is NULL while nothing has failed */
} twh__forward;

/* All blocks of rows between the attentions of layers `index` - 1 and `index`, in parallel. */
twh_status twh__forward_rows(twh__forward *forward, int64_t index, twh_error *error);

#endif
