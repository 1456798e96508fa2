/* x + sum over heads of softmax(scale (x wq) (x wk)^T) (x wv) wo, layer after layer.
 *
 * out is the residual stream: it begins as x, and a layer adds to it when all its heads have read it. Between, one matrix
 * holds what the heads made of each row, [q of all heads | k | v | output], so that attention runs on it as on any strided
 * operand, and the outputs of all heads, side by side, times the heads' wo, one below the other as they lie, is their sum in
 * one product. To put wq, wk and wv side by side as well would take a copy of them to save a tenth of the time. */
#include "blis/gemm.h"
#include "blis/stack.h"

#include <errno.h>
#include <string.h>

int twh__blis_stack_init(twh__blis_stack *stack)
{
  const twh_transformer_oracle_desc *desc = &stack->desc;
  twh__blis_kernel                  *attention = &stack->attention;
  twh_oracle_desc_init(&attention->desc);
  attention->desc.slots = desc->heads;
  attention->desc.q_len = attention->desc.k_len = desc->length;
  attention->desc.qk_dim = desc->qk_dim;
  attention->desc.v_dim = desc->v_dim;
  attention->desc.dtype = attention->desc.out_dtype = TWH_F32;
  attention->desc.mask_modes = desc->mask_modes;
  attention->desc.scale = desc->scale;
  attention->contexts = twh__blis_kernels();
  attention->rows = twh__blis_rows_best();
  attention->block_rows = twh__blis_block_rows(desc->length, desc->length);
  return twh__blis_scratches_init(&attention->scratches, attention->block_rows, desc->length, desc->qk_dim, desc->v_dim, 0,
                                  desc->heads * 2 * (desc->qk_dim + desc->v_dim));
}

void twh__blis_stack_finish(twh__blis_stack *stack)
{
  twh__blis_scratches_finish(&stack->attention.scratches);
}

/* The weights of head h of layer l. */
static const float *stack_weights(const twh__blis_stack *stack, const twh_operand *operand, int64_t l, int64_t h)
{
  return (const float *)operand->data + (l * stack->desc.heads + h) * operand->slot_stride;
}

/* x w of all heads of a layer, side by side. */
static void stack_project(const twh__blis_stack *stack, const twh_operand *operand, int64_t l, int64_t dim, const float *x,
                          float *to, int64_t width)
{
  const twh_transformer_oracle_desc *desc = &stack->desc;
  for (int64_t h = 0; h < desc->heads; h++)
    twh__blis_multiply(stack->attention.contexts, desc->length, dim, desc->model_dim, x, desc->model_dim,
                       stack_weights(stack, operand, l, h), operand->row_stride, to + h * dim, width);
}

static void stack_layer(const twh__blis_stack *stack, const twh_transformer_call *call, int64_t l, float *x,
                        twh__blis_scratch *scratch)
{
  const twh_transformer_oracle_desc *desc = &stack->desc;
  const twh_transformer_weights     *weights = call->weights;
  const int64_t heads = desc->heads, qk_dim = desc->qk_dim, v_dim = desc->v_dim, width = heads * 2 * (qk_dim + v_dim);
  float        *q = scratch->layer, *k = q + heads * qk_dim, *v = k + heads * qk_dim, *out = v + heads * v_dim;
  twh_call      attention;

  stack_project(stack, &weights->wq, l, qk_dim, x, q, width);
  stack_project(stack, &weights->wk, l, qk_dim, x, k, width);
  stack_project(stack, &weights->wv, l, v_dim, x, v, width);
  twh_call_init(&attention);
  attention.mask_mode = call->mask_mode;
  attention.slots = heads;
  attention.q_len = attention.k_len = desc->length;
  attention.scale = desc->scale;
  attention.q.data = q;
  attention.k.data = k;
  attention.v.data = v;
  attention.out = out;
  attention.q.row_stride = attention.k.row_stride = attention.v.row_stride = attention.out_row_stride = width;
  attention.q.slot_stride = attention.k.slot_stride = qk_dim;
  attention.v.slot_stride = attention.out_slot_stride = v_dim;
  for (int64_t h = 0; h < heads; h++) twh__blis_slot(&stack->attention, &attention, h, scratch);
  twh__blis_multiply_packed(stack->attention.contexts, desc->length, desc->model_dim, heads * v_dim, out, width,
                            stack_weights(stack, &weights->wo, l, 0), weights->wo.row_stride, 1, 1.0f, x, desc->model_dim);
}

int32_t twh__blis_stack_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  twh__blis_stack   *stack = (twh__blis_stack *)user;
  const size_t       bytes = (size_t)stack->desc.length * (size_t)stack->desc.model_dim * sizeof(float);
  twh__blis_scratch *scratch = twh__blis_scratch_take(&stack->attention.scratches);
  if (scratch == NULL) return ENOMEM;
  for (int64_t i = 0; i < n; i++) {
    memcpy(calls[i]->out, calls[i]->x, bytes);
    for (int64_t l = 0; l < stack->desc.layers; l++) stack_layer(stack, calls[i], l, (float *)calls[i]->out, scratch);
  }
  twh__blis_scratch_give(&stack->attention.scratches, scratch);
  return 0;
}
