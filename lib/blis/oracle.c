/* twh_blis_oracle_create: a twh_oracle whose callback is slot.c, over the public header as any host would write it. */
#include "blis/arguments.h"
#include "blis/gemm.h"
#include "blis/slot.h"

#include <errno.h>
#include <stdlib.h>

static int32_t oracle_run(void *user, const twh_call *const *calls, int64_t n)
{
  twh__blis_kernel  *kernel = (twh__blis_kernel *)user;
  twh__blis_scratch *scratch = twh__blis_scratch_take(&kernel->scratches);
  if (scratch == NULL) return ENOMEM;
  for (int64_t i = 0; i < n; i++)
    for (int64_t slot = 0; slot < calls[i]->slots; slot++) twh__blis_slot(kernel, calls[i], slot, scratch);
  twh__blis_scratch_give(&kernel->scratches, scratch);
  return 0;
}

static void oracle_release(void *user)
{
  twh__blis_kernel *kernel = (twh__blis_kernel *)user;
  twh__blis_scratches_finish(&kernel->scratches);
  free(kernel);
}

/* What only this kernel refuses; twh_oracle_create checks the rest. */
static twh_status oracle_check_desc(const twh_oracle_desc *desc, twh_error *error)
{
  const int32_t mask = desc->mask_dtype;
  if (desc->run != NULL || desc->submit != NULL || desc->wait != NULL || desc->release != NULL || desc->user != NULL)
    return twh__blis_refuse(error, TWH_E_ARGUMENT,
                            "desc: run, submit, wait, release and user must be NULL, the kernel is BLIS");
  if (desc->dtype != TWH_F32)
    return twh__blis_refuse(error, TWH_E_UNSUPPORTED, "desc->dtype is %d: this kernel has TWH_F32 only", (int)desc->dtype);
  if (desc->out_dtype != 0 && desc->out_dtype != TWH_F32)
    return twh__blis_refuse(error, TWH_E_UNSUPPORTED, "desc->out_dtype is %d: this kernel has TWH_F32 only",
                            (int)desc->out_dtype);
  if (mask != 0 && mask != TWH_BOOL && mask != TWH_F32)
    return twh__blis_refuse(error, TWH_E_UNSUPPORTED, "desc->mask_dtype is %d: this kernel has TWH_BOOL and TWH_F32",
                            (int)mask);
  if (desc->flags & TWH_ORACLE_F16_SCORES)
    return twh__blis_refuse(error, TWH_E_UNSUPPORTED, "desc->flags: this kernel has no TWH_ORACLE_F16_SCORES");
  if (desc->flags & TWH_ORACLE_CONTINUES)
    return twh__blis_refuse(error, TWH_E_UNSUPPORTED, "desc->flags: this kernel has no TWH_ORACLE_CONTINUES");
  return TWH_OK;
}

/* Whether an operand may arrive with rows that overlap or run backwards. */
static int oracle_needs_copies(const twh_oracle_desc *desc)
{
  return (desc->flags & TWH_ORACLE_STRIDED) != 0 || desc->q_row_stride < desc->qk_dim || desc->k_row_stride < desc->qk_dim ||
         desc->v_row_stride < desc->v_dim;
}

/* Everything that follows from the description. */
static twh_status oracle_prepare(twh__blis_kernel *kernel, twh_error *error)
{
  const twh_oracle_desc *desc = &kernel->desc;
  kernel->block_rows = twh__blis_block_rows(desc->q_len, desc->k_len);
  kernel->rows = twh__blis_rows_best();
  if (!twh__blis_scratches_init(&kernel->scratches, kernel->block_rows, desc->k_len, desc->qk_dim, desc->v_dim,
                                oracle_needs_copies(desc), 0))
    return twh__blis_refuse(error, TWH_E_OVERFLOW, "desc: a block of scores, %lld rows of k_len, does not fit memory",
                            (long long)kernel->block_rows);
  kernel->contexts = twh__blis_kernels();
  return TWH_OK;
}

twh_status twh_blis_oracle_create(const twh_context *context, const twh_oracle_desc *desc, const twh_blis_options *options,
                                  twh_oracle **out, twh_error *error)
{
  twh_oracle_desc   full;
  twh_blis_options  hooks;
  twh__blis_kernel *kernel;
  twh_status        status;

  if (out == NULL) return twh__blis_refuse(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (desc == NULL) return twh__blis_refuse(error, TWH_E_ARGUMENT, "desc is NULL");
  status = twh__blis_read(&full, sizeof full, desc, "desc", error);
  if (status == TWH_OK) status = twh__blis_read_options(&hooks, options, error);
  if (status == TWH_OK) status = oracle_check_desc(&full, error);
  if (status != TWH_OK) return status;

  kernel = (twh__blis_kernel *)calloc(1, sizeof *kernel);
  if (kernel == NULL) return twh__blis_refuse(error, TWH_E_MEMORY, "no memory for the kernel");
  if (full.max_concurrent_batches == 0) full.max_concurrent_batches = TWH__BLIS_CONCURRENT_BATCHES;
  if (full.max_calls_per_batch == 0) full.max_calls_per_batch = TWH__BLIS_CALLS_PER_BATCH;
  if (full.alignment == 0) full.alignment = TWH__BLIS_ALIGNMENT;
  full.run = oracle_run;
  full.release = oracle_release;
  full.user = kernel;
  status = twh_oracle_create(context, &full, out, error);
  if (status != TWH_OK) {
    free(kernel);
    return status;
  }

  /* From here on the kernel is the oracle's; nobody runs it before this function returns. */
  twh_oracle_desc_init(&kernel->desc);
  status = twh_oracle_get_desc(*out, &kernel->desc, error);
  if (status == TWH_OK) status = oracle_prepare(kernel, error);
  if (status != TWH_OK) {
    twh_oracle_destroy(*out);
    *out = NULL;
    return status;
  }
  twh__blis_log_kernels(&hooks);
  return TWH_OK;
}
