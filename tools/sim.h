/* A simulated accelerator: a device with a queue, in real time, for machines that have none.
 *
 * Batches are computed one behind the other. Batch i begins at max(its submit, the end of i - 1) and lasts
 *     batch_us + calls * call_us + bytes / gbps,        bytes: of the operands and results of its calls
 * A thread computes the results meanwhile, with another kernel; when that takes longer, the batch does. So times are minimal ones
 * and results are right. */
#ifndef TOOLS_SIM_H
#define TOOLS_SIM_H

#include "twoheads.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sim_parameters {
  double      batch_us, call_us; /* >= 0 */
  double      gbps;              /* 10^9 bytes in a second; 0: transfers take no time */
  int64_t     depth;             /* batches that it holds, running and waiting; 1 .. 64; 0 = 2 */
  twh_oracle *inner;             /* computes; of the same description. NULL: nothing is computed, results are zeros */
} sim_parameters;

typedef struct sim_figures {
  int64_t batches, calls;
  double  busy_s;                     /* time of all batches */
  double  idle_s;                     /* between the first one's begin and the last one's end, with nothing to do */
  double  first_begin_s, last_end_s;  /* on the machine's monotonic clock */
} sim_figures;

/* Register the device. desc: what it can do; run, submit, wait, release, user must be zero; max_concurrent_batches, cost_per_call and
 * cost_per_batch follow from the parameters where they are 0. inner is the oracle's on success, and destroyed with it.
 * Returns: as twh_oracle_create; TWH_E_ARGUMENT (names the parameter); TWH_E_MEMORY, also where no thread is to be had. */
twh_status sim_create(const twh_context *context, const twh_oracle_desc *desc, const sim_parameters *parameters,
                      twh_oracle **out, twh_error *error);

/* What it has done since it was made, or since the last reset. Not while batches are in flight. */
void sim_stats(const twh_oracle *oracle, sim_figures *figures);
void sim_reset(const twh_oracle *oracle);

#ifdef __cplusplus
}
#endif
#endif
