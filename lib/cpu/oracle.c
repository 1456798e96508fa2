/* twh_cpu_oracle_create: a twh_oracle whose callback is slot.c, over the public header as any host would write it. */
#include "cpu/arguments.h"
#include "cpu/isa.h"
#include "cpu/slot.h"

#include <errno.h>
#include <stdlib.h>

/* Defaults of the limits. Batches are just so large that handing them over costs nothing to speak of: threads share small ones evenly. */
enum { ORACLE_CONCURRENT_BATCHES = 64, ORACLE_CALLS_PER_BATCH = 16, ORACLE_PAIRS_PER_BATCH = 1 << 16 };

static int64_t cpu_oracle_calls_per_batch(const twh_oracle_desc *desc)
{
  double calls = ORACLE_PAIRS_PER_BATCH / ((double)desc->slots * (double)desc->q_len * (double)desc->k_len);

  /* The calls of a chain have to be of one batch, however large they are: that is what saves packing and storing. */
  if (desc->flags & TWH_ORACLE_CONTINUES) return ORACLE_CALLS_PER_BATCH;
  if (!(calls > 1)) return 1;
  return calls < ORACLE_CALLS_PER_BATCH ? (int64_t)calls : ORACLE_CALLS_PER_BATCH;
}

static int32_t cpu_oracle_run(void *user, const twh_call *const *calls, int64_t n)
{
  twh__cpu_kernel  *kernel = (twh__cpu_kernel *)user;
  twh__cpu_scratch *scratch = twh__cpu_scratch_take(&kernel->scratches);
  if (scratch == NULL) return ENOMEM;
  for (int64_t i = 0; i < n;) {
    const int64_t chain = twh__cpu_chain(kernel, calls + i, n - i);
    for (int64_t slot = 0; slot < calls[i]->slots; slot++) twh__cpu_slot(kernel, calls + i, chain, slot, scratch);
    i += chain;
  }
  twh__cpu_scratch_give(&kernel->scratches, scratch);
  return 0;
}

static void cpu_oracle_release(void *user)
{
  twh__cpu_kernel *kernel = (twh__cpu_kernel *)user;
  twh__cpu_scratches_finish(&kernel->scratches);
  free(kernel);
}

static int cpu_oracle_is_float(int32_t dtype)
{
  return dtype == TWH_F32 || dtype == TWH_F16 || dtype == TWH_BF16;
}

/* What only this kernel refuses; twh_oracle_create checks the rest. */
static twh_status cpu_oracle_check(const twh_oracle_desc *desc, const twh_cpu_options *options, twh_error *error)
{
  const int32_t out = desc->out_dtype, mask = desc->mask_dtype;
  if (desc->run != NULL || desc->submit != NULL || desc->wait != NULL || desc->release != NULL || desc->user != NULL)
    return twh__cpu_refuse(error, TWH_E_ARGUMENT,
                           "desc: run, submit, wait, release and user must be NULL, the kernel is this library's");
  if (!cpu_oracle_is_float(desc->dtype))
    return twh__cpu_refuse(error, TWH_E_UNSUPPORTED, "desc->dtype is %d: this kernel has TWH_F32, TWH_F16 and TWH_BF16",
                           (int)desc->dtype);
  if (out != 0 && out != TWH_F32 && out != desc->dtype)
    return twh__cpu_refuse(error, TWH_E_UNSUPPORTED, "desc->out_dtype is %d: this kernel has TWH_F32 and its dtype", (int)out);
  if (mask != 0 && mask != TWH_BOOL && !cpu_oracle_is_float(mask))
    return twh__cpu_refuse(error, TWH_E_UNSUPPORTED,
                           "desc->mask_dtype is %d: this kernel has TWH_BOOL, TWH_F32, TWH_F16 and TWH_BF16", (int)mask);
  if (desc->flags & TWH_ORACLE_F16_SCORES)
    return twh__cpu_refuse(error, TWH_E_UNSUPPORTED, "desc->flags: this kernel has no TWH_ORACLE_F16_SCORES");
  if (options->isa < TWH_CPU_ISA_BEST || options->isa > TWH_CPU_ISA_NEON)
    return twh__cpu_refuse(error, TWH_E_ARGUMENT, "options->isa is %d: not one of TWH_CPU_ISA_*", (int)options->isa);
  if (twh__cpu_isa_lanes(options->isa) == NULL)
    return twh__cpu_refuse(error, TWH_E_UNSUPPORTED, "options->isa is %d: this CPU or this build does not have it",
                           (int)options->isa);
  return TWH_OK;
}

/* Everything that follows from the description. */
static twh_status cpu_oracle_prepare(twh__cpu_kernel *kernel, int32_t isa, twh_error *error)
{
  const twh_oracle_desc *desc = &kernel->desc;
  kernel->lanes = twh__cpu_isa_lanes(isa);
  kernel->blocks = twh__cpu_blocks(desc, kernel->lanes->width);
  if (!twh__cpu_scratches_init(&kernel->scratches, kernel->blocks, desc->qk_dim, desc->v_dim, desc->dtype != TWH_F32))
    return twh__cpu_refuse(error, TWH_E_OVERFLOW, "desc: a block of queries, of qk_dim and v_dim, does not fit memory");
  return TWH_OK;
}

twh_status twh_cpu_oracle_create(const twh_context *context, const twh_oracle_desc *desc, const twh_cpu_options *options,
                                 twh_oracle **out, twh_error *error)
{
  twh_oracle_desc  full;
  twh_cpu_options  chosen;
  twh__cpu_kernel *kernel;
  twh_status       status;

  if (out == NULL) return twh__cpu_refuse(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (desc == NULL) return twh__cpu_refuse(error, TWH_E_ARGUMENT, "desc is NULL");
  status = twh__cpu_read(&full, sizeof full, desc, "desc", error);
  if (status == TWH_OK) status = twh__cpu_read_options(&chosen, options, error);
  if (status == TWH_OK) status = cpu_oracle_check(&full, &chosen, error);
  if (status != TWH_OK) return status;

  kernel = (twh__cpu_kernel *)calloc(1, sizeof *kernel);
  if (kernel == NULL) return twh__cpu_refuse(error, TWH_E_MEMORY, "no memory for the kernel");
  if (full.max_concurrent_batches == 0) full.max_concurrent_batches = ORACLE_CONCURRENT_BATCHES;
  if (full.max_calls_per_batch == 0) full.max_calls_per_batch = cpu_oracle_calls_per_batch(&full);
  if (full.alignment == 0) full.alignment = 1; /* no more than the elements need, which is added by twh_oracle_create */
  full.run = cpu_oracle_run;
  full.release = cpu_oracle_release;
  full.user = kernel;
  status = twh_oracle_create(context, &full, out, error);
  if (status != TWH_OK) {
    free(kernel);
    return status;
  }

  /* From here on the kernel is the oracle's; nobody runs it before this function returns. */
  twh_oracle_desc_init(&kernel->desc);
  status = twh_oracle_get_desc(*out, &kernel->desc, error);
  if (status == TWH_OK) status = cpu_oracle_prepare(kernel, chosen.isa, error);
  if (status != TWH_OK) {
    twh_oracle_destroy(*out);
    *out = NULL;
    return status;
  }
  return TWH_OK;
}
