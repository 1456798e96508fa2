/* The kernel as the library sees it: a validated description, and the one place from which it is called.
 *
 * contract.c says what a consistent description is and fills in its defaults, oracle.c owns the object, gate.c keeps the
 * declared limit of concurrent batches over all plans that share the oracle and makes sure that a failed execute calls the
 * kernel no more, plugin.c loads a kernel from a shared object, measure.c times one, and check.c runs one against its own description. */
#ifndef TWH_CORE_ORACLE_H
#define TWH_CORE_ORACLE_H

#include "core/base/base.h"

typedef struct twh__gate twh__gate;

struct twh_oracle {
  const twh_context *context;
  twh_oracle_desc    desc;     /* completed by twh__contract_complete */
  twh__gate         *gate;     /* counts running batches; never NULL */
  void              *library;  /* of a plugin: its dlopen handle; else NULL */
};

/* The size that twh_oracle_desc had in its first version. */
#define TWH__ORACLE_DESC_LEAST (offsetof(twh_oracle_desc, user) + sizeof(void *))

/* Check a description and fill in what was left 0: out_dtype, mask_dtype, strides, alignment (never less than the types in a
 * call need), the limits (INT64_MAX where there is none) and costs. Lengths that may be fewer get their step, and a minimum
 * that is a multiple of it; lengths that may not get min = step = the length. Completing a completed description changes
 * nothing. */
twh_status twh__contract_complete(twh_oracle_desc *desc, twh_error *error);

twh_status twh__gate_create(const twh_context *context, int64_t limit, twh__gate **out, twh_error *error);
void       twh__gate_destroy(const twh_context *context, twh__gate *gate);

/* A number for twh_call.execute. */
uint64_t twh__oracle_begin(const twh_oracle *oracle);

/* What one execute has asked of the kernel, and its first failure: what the kernel returned, and the index of the first call of
 * that batch. Starts zeroed. While batches run it is read and written under the gate's lock only; once its code is non-zero, or
 * it was told to stop, the kernel is not called any more. */
typedef struct twh__ledger {
  int64_t calls, batches;
  int32_t code, stop;
  int64_t call;
} twh__ledger;

/* What became of a batch. STOPPED: it was not begun, because the execute is over. */
enum { TWH__BATCH_STOPPED, TWH__BATCH_DONE, TWH__BATCH_FAILED, TWH__BATCH_FULL };

/* Run one batch within the kernel's limits; waits while as many batches as the kernel allows are running, then calls entered(arg), which
 * may be NULL. A caller that holds batches of its own must not wait here: others may wait for those. */
int twh__oracle_call(const twh_oracle *oracle, const twh_call *const *calls, int64_t n, twh__ledger *ledger,
                     void (*entered)(void *arg), void *arg);

/* Start one batch of a kernel that has `submit`. holding: the caller has batches running, and FULL is returned instead of waiting for a
 * place: it is to wait for one of its own first. FAILED: entered was called, but nothing was started. */
int twh__oracle_submit(const twh_oracle *oracle, const twh_call *const *calls, int64_t n, int holding, twh__ledger *ledger,
                       uint64_t *ticket, void (*entered)(void *arg), void *arg);

/* Wait for a batch that was started; first_call: the index of its first call. */
int twh__oracle_wait(const twh_oracle *oracle, uint64_t ticket, int64_t first_call, twh__ledger *ledger);

/* The execute is over. Any thread. */
void twh__oracle_stop(const twh_oracle *oracle, twh__ledger *ledger);

/* The ledger's code and call, while batches may be running. */
int32_t twh__oracle_code(const twh_oracle *oracle, const twh__ledger *ledger, int64_t *call);

/* Time a few calls, batches of up to calls_per_batch among them: seconds that a call takes, and what a batch takes besides. */
twh_status twh__oracle_measure(const twh_context *context, const twh_oracle *oracle, int64_t calls_per_batch, double *per_call,
                               double *per_batch, twh_error *error);

/* TWH_E_ORACLE with the kernel's own code and the index of the call (-1: none); `what` returned it. */
twh_status twh__oracle_fail(twh_error *error, int32_t code, int64_t call, const char *what);

/* Unload a plugin; NULL is allowed. */
void twh__plugin_close(void *library);

#endif
