/* The gate: never more batches inside the kernel than it allows, and none after a failure.
 *
 * One lock and one condition per oracle. Whoever leaves wakes everybody who waits, because a waiter may belong to an execute
 * that has failed meanwhile: it goes home without taking the place, and a single wake-up would be lost with it. Batches
 * last far longer than a wake-up. */
#include <pthread.h>

#include "core/oracle/oracle.h"

struct twh__gate {
  pthread_mutex_t lock;
  pthread_cond_t  left; /* a batch has left the kernel */
  int64_t         running, limit;
  uint64_t        executes; /* so far */
};

twh_status twh__gate_create(const twh_context *context, int64_t limit, twh__gate **out, twh_error *error)
{
  twh__gate *gate = (twh__gate *)twh__allocate(context, sizeof *gate, 0, error);

  *out = NULL;
  if (!gate) return TWH_E_MEMORY;
  gate->limit = limit;
  if (pthread_mutex_init(&gate->lock, NULL) != 0) goto fail;
  if (pthread_cond_init(&gate->left, NULL) != 0) {
    pthread_mutex_destroy(&gate->lock);
    goto fail;
  }
  *out = gate;
  return TWH_OK;
fail:
  twh__release(context, gate, sizeof *gate);
  return twh__fail(error, TWH_E_MEMORY, "the system has no room for another lock");
}

void twh__gate_destroy(const twh_context *context, twh__gate *gate)
{
  if (gate) {
    pthread_cond_destroy(&gate->left);
    pthread_mutex_destroy(&gate->lock);
    twh__release(context, gate, sizeof *gate);
  }
}

uint64_t twh__oracle_begin(const twh_oracle *oracle)
{
  twh__gate *gate = oracle->gate;
  uint64_t   number;

  pthread_mutex_lock(&gate->lock);
  number = ++gate->executes;
  pthread_mutex_unlock(&gate->lock);
  return number;
}

/* Wait for a place and take it; 0: this execute calls the kernel no more. The lock is held. */
static int gate_enter(twh__gate *gate, int64_t n, twh__ledger *ledger)
{
  while (ledger->code == 0 && !ledger->stop && gate->running >= gate->limit) pthread_cond_wait(&gate->left, &gate->lock);
  if (ledger->code != 0 || ledger->stop) return 0;
  ++gate->running;
  ledger->calls += n;
  ++ledger->batches;
  return 1;
}

static void gate_leave(twh__gate *gate, int32_t code, int64_t call, twh__ledger *ledger)
{
  --gate->running;
  if (code != 0 && ledger->code == 0) {
    ledger->code = code;
    ledger->call = call;
  }
  pthread_cond_broadcast(&gate->left);
}

static int32_t gate_call_kernel(const twh_oracle_desc *desc, const twh_call *const *calls, int64_t n)
{
  uint64_t ticket = 0;
  int32_t  code;

  if (desc->run) return desc->run(desc->user, calls, n);
  code = desc->submit(desc->user, calls, n, &ticket);
  return code != 0 ? code : desc->wait(desc->user, ticket);
}

int twh__oracle_call(const twh_oracle *oracle, const twh_call *const *calls, int64_t n, twh__ledger *ledger,
                     void (*entered)(void *arg), void *arg)
{
  twh__gate *gate = oracle->gate;
  int32_t    code = 0;
  int        found;

  pthread_mutex_lock(&gate->lock);
  found = gate_enter(gate, n, ledger) ? TWH__BATCH_DONE : TWH__BATCH_STOPPED;
  pthread_mutex_unlock(&gate->lock);
  if (found == TWH__BATCH_STOPPED) return found;
  if (entered) entered(arg);
  code = gate_call_kernel(&oracle->desc, calls, n);
  pthread_mutex_lock(&gate->lock);
  gate_leave(gate, code, calls[0]->index, ledger);
  pthread_mutex_unlock(&gate->lock);
  return code == 0 ? TWH__BATCH_DONE : TWH__BATCH_FAILED;
}

int twh__oracle_submit(const twh_oracle *oracle, const twh_call *const *calls, int64_t n, int holding, twh__ledger *ledger,
                       uint64_t *ticket, void (*entered)(void *arg), void *arg)
{
  twh__gate *gate = oracle->gate;
  int32_t    code;
  int        found;

  pthread_mutex_lock(&gate->lock);
  if (holding && gate->running >= gate->limit) {
    pthread_mutex_unlock(&gate->lock);
    return TWH__BATCH_FULL;
  }
  found = gate_enter(gate, n, ledger) ? TWH__BATCH_DONE : TWH__BATCH_STOPPED;
  pthread_mutex_unlock(&gate->lock);
  if (found == TWH__BATCH_STOPPED) return found;
  if (entered) entered(arg);
  code = oracle->desc.submit(oracle->desc.user, calls, n, ticket);
  if (code == 0) return found;
  pthread_mutex_lock(&gate->lock);
  gate_leave(gate, code, calls[0]->index, ledger);
  ledger->calls -= n; /* nothing was started */
  --ledger->batches;
  pthread_mutex_unlock(&gate->lock);
  return TWH__BATCH_FAILED;
}

int twh__oracle_wait(const twh_oracle *oracle, uint64_t ticket, int64_t first_call, twh__ledger *ledger)
{
  twh__gate *gate = oracle->gate;
  int32_t    code = oracle->desc.wait(oracle->desc.user, ticket);

  pthread_mutex_lock(&gate->lock);
  gate_leave(gate, code, first_call, ledger);
  pthread_mutex_unlock(&gate->lock);
  return code == 0 ? TWH__BATCH_DONE : TWH__BATCH_FAILED;
}

void twh__oracle_stop(const twh_oracle *oracle, twh__ledger *ledger)
{
  pthread_mutex_lock(&oracle->gate->lock);
  ledger->stop = 1;
  pthread_cond_broadcast(&oracle->gate->left);
  pthread_mutex_unlock(&oracle->gate->lock);
}

int32_t twh__oracle_code(const twh_oracle *oracle, const twh__ledger *ledger, int64_t *call)
{
  int32_t code;

  pthread_mutex_lock(&oracle->gate->lock);
  code = ledger->code;
  *call = ledger->call;
  pthread_mutex_unlock(&oracle->gate->lock);
  return code;
}
