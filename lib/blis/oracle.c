/* twh_blis_oracle_create: a twh_oracle whose callback is slot.c, over the public header as any host would write it. */
#include "blis/gemm.h"
#include "blis/slot.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small batches: nothing is gained by large ones on a CPU, and what a call wrote is still in the cache when it is read. */
enum { ORACLE_CONCURRENT_BATCHES = 64, ORACLE_CALLS_PER_BATCH = 4 };

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static twh_status oracle_refuse(twh_error *error, twh_status status, const char *format, ...)
{
  twh_error filled;
  va_list   arguments;
  if (error == NULL || error->struct_size == 0) return status;
  twh_error_init(&filled);
  filled.struct_size = error->struct_size;
  filled.status = status;
  filled.slot = -1;
  filled.call = filled.row = -1;
  va_start(arguments, format);
  vsnprintf(filled.message, sizeof filled.message, format, arguments);
  va_end(arguments);
  memset(error, 0, filled.struct_size);
  memcpy(error, &filled, filled.struct_size < sizeof filled ? filled.struct_size : sizeof filled);
  return status;
}

/* Copy a caller's struct of at least `bytes`; a longer one is from a newer header and must not ask for more than this knows. */
static twh_status oracle_read(void *to, size_t bytes, const void *given, const char *name, twh_error *error)
{
  uint32_t size;
  memcpy(&size, given, sizeof size);
  if (size == 0) return oracle_refuse(error, TWH_E_ARGUMENT, "%s->struct_size is 0: call its init function", name);
  if (size < bytes) return oracle_refuse(error, TWH_E_VERSION, "%s->struct_size %u is too small", name, (unsigned)size);
  for (size_t at = bytes; at < size; at++)
    if (((const unsigned char *)given)[at] != 0)
      return oracle_refuse(error, TWH_E_VERSION, "%s has fields that this version does not know", name);
  memcpy(to, given, bytes);
  size = (uint32_t)bytes;
  memcpy(to, &size, sizeof size);
  return TWH_OK;
}

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
    return oracle_refuse(error, TWH_E_ARGUMENT, "desc: run, submit, wait, release and user must be NULL, the kernel is BLIS");
  if (desc->dtype != TWH_F32)
    return oracle_refuse(error, TWH_E_UNSUPPORTED, "desc->dtype is %d: this kernel has TWH_F32 only", (int)desc->dtype);
  if (desc->out_dtype != 0 && desc->out_dtype != TWH_F32)
    return oracle_refuse(error, TWH_E_UNSUPPORTED, "desc->out_dtype is %d: this kernel has TWH_F32 only", (int)desc->out_dtype);
  if (mask != 0 && mask != TWH_BOOL && mask != TWH_F32)
    return oracle_refuse(error, TWH_E_UNSUPPORTED, "desc->mask_dtype is %d: this kernel has TWH_BOOL and TWH_F32", (int)mask);
  if (desc->flags & TWH_ORACLE_F16_SCORES)
    return oracle_refuse(error, TWH_E_UNSUPPORTED, "desc->flags: this kernel has no TWH_ORACLE_F16_SCORES");
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
                                oracle_needs_copies(desc)))
    return oracle_refuse(error, TWH_E_OVERFLOW, "desc: a block of scores, %lld rows of k_len, does not fit memory",
                         (long long)kernel->block_rows);
  kernel->contexts = twh__blis_kernels();
  return TWH_OK;
}

static void oracle_log_kernels(const twh_blis_options *options)
{
  const char *name = twh_blis_kernel_name(), *arch = twh_blis_recommended_arch();
  char        text[200];
  if (options->log == NULL) return;
  if (strcmp(name, "generic") != 0)
    snprintf(text, sizeof text, "BLIS %s runs its %s kernels", twh__blis_version(), name);
  else if (arch != NULL)
    snprintf(text, sizeof text, "BLIS %s does not know this CPU and runs its generic kernels, several times slower than "
             "others: set BLIS_ARCH_TYPE=%s before the first call of BLIS", twh__blis_version(), arch);
  else
    snprintf(text, sizeof text, "BLIS %s runs its generic kernels, which are slow", twh__blis_version());
  options->log(options->user, strcmp(name, "generic") != 0 ? TWH_LOG_INFO : TWH_LOG_WARNING, text);
}

twh_status twh_blis_oracle_create(const twh_context *context, const twh_oracle_desc *desc, const twh_blis_options *options,
                                  twh_oracle **out, twh_error *error)
{
  twh_oracle_desc   full;
  twh_blis_options  hooks;
  twh__blis_kernel *kernel;
  twh_status        status;

  if (out == NULL) return oracle_refuse(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (desc == NULL) return oracle_refuse(error, TWH_E_ARGUMENT, "desc is NULL");
  twh_blis_options_init(&hooks);
  status = oracle_read(&full, sizeof full, desc, "desc", error);
  if (status == TWH_OK && options != NULL) status = oracle_read(&hooks, sizeof hooks, options, "options", error);
  if (status == TWH_OK && hooks.flags != 0)
    status = oracle_refuse(error, TWH_E_VERSION, "options->flags has bits that this version does not know");
  if (status == TWH_OK) status = oracle_check_desc(&full, error);
  if (status != TWH_OK) return status;

  kernel = (twh__blis_kernel *)calloc(1, sizeof *kernel);
  if (kernel == NULL) return oracle_refuse(error, TWH_E_MEMORY, "no memory for the kernel");
  if (full.max_concurrent_batches == 0) full.max_concurrent_batches = ORACLE_CONCURRENT_BATCHES;
  if (full.max_calls_per_batch == 0) full.max_calls_per_batch = ORACLE_CALLS_PER_BATCH;
  if (full.alignment == 0) full.alignment = (int64_t)sizeof(float);
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
  oracle_log_kernels(&hooks);
  return TWH_OK;
}
