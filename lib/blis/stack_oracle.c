/* twh_blis_transformer_create: a twh_oracle on the small transformer of stack.c, over the public header as any host would write
 * it. */
#include "blis/arguments.h"
#include "blis/stack.h"

#include <stdlib.h>

static void stack_oracle_release(void *user)
{
  twh__blis_stack_finish((twh__blis_stack *)user);
  free(user);
}

/* What only this kernel refuses; twh_oracle_from_transformer checks the rest. */
static twh_status stack_oracle_check_desc(const twh_transformer_oracle_desc *desc, twh_error *error)
{
  if (desc->load != NULL || desc->run != NULL || desc->release != NULL || desc->user != NULL)
    return twh__blis_refuse(error, TWH_E_ARGUMENT, "desc: load, run, release and user must be NULL, the kernel is BLIS");
  if (desc->dtype != TWH_F32)
    return twh__blis_refuse(error, TWH_E_UNSUPPORTED, "desc->dtype is %d: this kernel has TWH_F32 only", (int)desc->dtype);
  return TWH_OK;
}

/* The least model_dim; any number where there is none, because another field is to blame. */
static int64_t stack_oracle_columns(const twh_transformer_oracle_desc *desc)
{
  int64_t columns = 2, factors[3];
  factors[0] = desc->layers;
  factors[1] = desc->heads;
  factors[2] = desc->v_dim > 0 && desc->qk_dim <= INT64_MAX - desc->v_dim ? desc->qk_dim + desc->v_dim : 0;
  for (int i = 0; i < 3; i++) {
    if (factors[i] < 1 || columns > INT64_MAX / factors[i]) return 1;
    columns *= factors[i];
  }
  return columns;
}

twh_status twh_blis_transformer_create(const twh_context *context, const twh_transformer_oracle_desc *desc,
                                       const twh_blis_options *options, twh_oracle **out, twh_error *error)
{
  twh_transformer_oracle_desc full;
  twh_blis_options            hooks;
  twh__blis_stack            *stack;
  twh_status                  status;

  if (out == NULL) return twh__blis_refuse(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (desc == NULL) return twh__blis_refuse(error, TWH_E_ARGUMENT, "desc is NULL");
  status = twh__blis_read(&full, sizeof full, desc, "desc", error);
  if (status == TWH_OK) status = twh__blis_read_options(&hooks, options, error);
  if (status == TWH_OK) status = stack_oracle_check_desc(&full, error);
  if (status != TWH_OK) return status;

  stack = (twh__blis_stack *)calloc(1, sizeof *stack);
  if (stack == NULL) return twh__blis_refuse(error, TWH_E_MEMORY, "no memory for the kernel");
  if (full.model_dim == 0) full.model_dim = stack_oracle_columns(&full);
  if (full.max_concurrent_batches == 0) full.max_concurrent_batches = TWH__BLIS_CONCURRENT_BATCHES;
  if (full.max_calls_per_batch == 0) full.max_calls_per_batch = TWH__BLIS_CALLS_PER_BATCH;
  if (full.alignment == 0) full.alignment = TWH__BLIS_ALIGNMENT;
  full.run = twh__blis_stack_run;
  full.release = stack_oracle_release;
  full.user = stack;
  status = twh_oracle_from_transformer(context, &full, out, error);
  if (status != TWH_OK) {
    free(stack);
    return status;
  }

  /* From here on the kernel is the oracle's; nobody runs it before this function returns. */
  stack->desc = full;
  if (!twh__blis_stack_init(stack)) {
    twh_oracle_destroy(*out);
    *out = NULL;
    return twh__blis_refuse(error, TWH_E_MEMORY, "no memory for the kernel's scratch, or no room for its lock");
  }
  twh__blis_log_kernels(&hooks);
  return TWH_OK;
}
