/* twh_reference_oracle_create: a twh_oracle whose callback is direct.c. It keeps nothing between batches, so any number of
 * threads may run it; the scratch memory of a batch is allocated and freed by the batch. */
#include "reference/reference.h"

#include "reference/direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int32_t reference_run(void *user, const twh_call *const *calls, int64_t n)
{
  const twh__reference_kernel *kernel = (const twh__reference_kernel *)user;
  int64_t                      most = 0;
  double                      *scratch;
  for (int64_t i = 0; i < n; i++) {
    const int64_t needed = twh__reference_scratch(&kernel->desc, calls[i]);
    if (needed < 0) return ENOMEM;
    if (needed > most) most = needed;
  }
  scratch = (double *)malloc((size_t)most * sizeof(double));
  if (scratch == NULL) return ENOMEM;
  for (int64_t i = 0; i < n; i++)
    for (int64_t slot = 0; slot < calls[i]->slots; slot++) twh__reference_slot(kernel, calls[i], slot, scratch);
  free(scratch);
  return 0;
}

static twh_status reference_refuse(twh_error *error, twh_status status, const char *message)
{
  twh_error filled;
  if (error == NULL || error->struct_size == 0) return status;
  twh_error_init(&filled);
  filled.struct_size = error->struct_size;
  filled.status = status;
  filled.slot = -1;
  filled.call = filled.row = -1;
  strncpy(filled.message, message, sizeof filled.message - 1);
  memset(error, 0, filled.struct_size);
  memcpy(error, &filled, filled.struct_size < sizeof filled ? filled.struct_size : sizeof filled);
  return status;
}

twh_status twh_reference_oracle_create(const twh_context *context, const twh_oracle_desc *desc,
                                       const twh_reference_options *options, twh_oracle **out, twh_error *error)
{
  twh_oracle_desc        full;
  twh__reference_kernel *kernel;
  twh_status             status;

  if (out == NULL) return reference_refuse(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (desc == NULL) return reference_refuse(error, TWH_E_ARGUMENT, "desc is NULL");
  if (desc->struct_size != sizeof full)
    return reference_refuse(error, TWH_E_VERSION, "desc->struct_size is not this version's");
  if (options != NULL && options->struct_size != sizeof *options)
    return reference_refuse(error, TWH_E_VERSION, "options->struct_size is not this version's");
  if (desc->run != NULL || desc->submit != NULL || desc->wait != NULL || desc->release != NULL || desc->user != NULL)
    return reference_refuse(error, TWH_E_ARGUMENT, "desc: run, submit, wait, release and user must be NULL");

  kernel = (twh__reference_kernel *)calloc(1, sizeof *kernel);
  if (kernel == NULL) return reference_refuse(error, TWH_E_MEMORY, "no memory for the kernel");
  kernel->round_weights = options != NULL && options->round_weights != 0;
  full = *desc;
  if (full.max_concurrent_batches == 0) full.max_concurrent_batches = 1024;
  full.run = reference_run;
  full.release = free;
  full.user = kernel;
  status = twh_oracle_create(context, &full, out, error);
  if (status != TWH_OK) {
    free(kernel);
    return status;
  }
  /* Nobody runs the kernel before this function returns. */
  twh_oracle_desc_init(&kernel->desc);
  status = twh_oracle_get_desc(*out, &kernel->desc, error);
  if (status != TWH_OK) {
    twh_oracle_destroy(*out);
    *out = NULL;
  }
  return status;
}
