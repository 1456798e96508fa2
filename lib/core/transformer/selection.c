/* Weights of 0 and 1: multiplying by them picks columns, exactly, in every floating point format.
 *
 * A slot's output columns are written by its own head alone and hold zero before, so that x + output is the output; all other columns
 * a layer adds zero to. Nobody else reads output columns, so that what one layer wrote does not matter to the next. */
#include "core/transformer/small.h"

/* (model_dim, dim) for each slot: column `first` + c of the slot goes to c. */
static void selection_in(const twh__small *small, char *to, int64_t first, int64_t dim, twh_operand *operand)
{
  const twh_transformer_oracle_desc *desc = &small->desc;

  operand->data = to;
  operand->row_stride = dim;
  operand->slot_stride = desc->model_dim * dim;
  for (int64_t s = 0; s < small->columns.slots; ++s) {
    for (int64_t c = 0; c < dim; ++c) {
      int64_t row = s * small->columns.width + first + c;
      twh__store(to, desc->dtype, s * operand->slot_stride + row * dim + c, 1.0);
    }
  }
}

/* (v_dim, model_dim) for each slot: c goes to the slot's output column c. */
static void selection_out(const twh__small *small, char *to, twh_operand *operand)
{
  const twh_transformer_oracle_desc *desc = &small->desc;

  operand->data = to;
  operand->row_stride = desc->model_dim;
  operand->slot_stride = desc->v_dim * desc->model_dim;
  for (int64_t s = 0; s < small->columns.slots; ++s) {
    for (int64_t c = 0; c < desc->v_dim; ++c) {
      int64_t column = s * small->columns.width + small->columns.out + c;
      twh__store(to, desc->dtype, s * operand->slot_stride + c * desc->model_dim + column, 1.0);
    }
  }
}

twh_status twh__selection_make(twh__small *small, twh_error *error)
{
  const twh_transformer_oracle_desc *desc = &small->desc;
  const int64_t                      dims[4] = { desc->qk_dim, desc->qk_dim, desc->v_dim, desc->v_dim };
  int64_t                            at[4], bytes = 0, one;

  for (int i = 0; i < 4; ++i) {
    at[i] = bytes;
    if (!twh__multiply(small->columns.slots, desc->model_dim, &one) || !twh__multiply(one, dims[i], &one) ||
        !twh__multiply(one, small->item, &one) || one > INT64_MAX / 8 || !twh__add(bytes, one, &bytes) ||
        bytes > INT64_MAX / 8 || (uint64_t)bytes > (uint64_t)PTRDIFF_MAX / 2) {
      return twh__fail(error, TWH_E_OVERFLOW, "desc: layers * heads weights of model_dim do not fit memory");
    }
    bytes = twh__round_up(bytes, desc->alignment);
  }
  small->weight_bytes = (size_t)bytes;
  small->weight_memory = twh__allocate(small->context, small->weight_bytes, (size_t)desc->alignment, error);
  if (!small->weight_memory) return TWH_E_MEMORY;
  twh_transformer_weights_init(&small->weights);
  selection_in(small, (char *)small->weight_memory + at[0], small->columns.q, dims[0], &small->weights.wq);
  selection_in(small, (char *)small->weight_memory + at[1], small->columns.k, dims[1], &small->weights.wk);
  selection_in(small, (char *)small->weight_memory + at[2], small->columns.v, dims[2], &small->weights.wv);
  selection_out(small, (char *)small->weight_memory + at[3], &small->weights.wo);
  for (int64_t i = 0; i < 4; ++i) (&small->weights.wq)[i].id = (uint64_t)i + 1;
  return TWH_OK;
}
