/* One thread computes batch after batch; whoever waits for one sleeps until its simulated end. See sim.h. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

enum { SIM_DEPTH_MOST = 64, SIM_CODE_LOST = 901 };

typedef struct sim_batch {
  const twh_call *const *calls;
  int64_t                n;
  double                 submitted, end;
  int32_t                code;
  int                    done;
} sim_batch;

/* Batch number b stands at b % SIM_DEPTH_MOST; no more than depth <= SIM_DEPTH_MOST are there. */
typedef struct sim_device {
  sim_parameters  parameters;
  twh_oracle_desc desc, inner;
  pthread_mutex_t lock;
  pthread_cond_t  changed;
  pthread_t       thread;
  sim_batch       batches[SIM_DEPTH_MOST];
  uint64_t        submitted, computed;
  int             quit;
  double          end; /* of the last batch that was computed */
  sim_figures     figures;
} sim_device;

static double sim_now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void sim_sleep_until(double time)
{
  double rest;

  while ((rest = time - sim_now()) > 0.0) {
    struct timespec step;
    step.tv_sec = (time_t)rest;
    step.tv_nsec = (long)(1e9 * (rest - (double)step.tv_sec));
    (void)nanosleep(&step, NULL);
  }
}

static int64_t sim_item(int32_t dtype)
{
  return dtype == TWH_BOOL ? 1 : dtype == TWH_F16 || dtype == TWH_BF16 ? 2 : dtype == TWH_F64 ? 8 : 4;
}

static double sim_bytes(const twh_oracle_desc *desc, const twh_call *call)
{
  double inputs = (double)(call->q_len + call->k_len) * (double)desc->qk_dim + (double)call->k_len * (double)desc->v_dim;
  double bytes = inputs * (double)sim_item(desc->dtype) +
                 (double)call->q_len * (double)desc->v_dim * (double)sim_item(desc->out_dtype);

  if (call->mask.data) bytes += (double)call->q_len * (double)call->k_len * (double)sim_item(desc->mask_dtype);
  if (call->lse) bytes += 4.0 * (double)call->q_len;
  return bytes * (double)call->slots;
}

static double sim_duration(const sim_device *device, const sim_batch *batch)
{
  double time = 1e-6 * (device->parameters.batch_us + (double)batch->n * device->parameters.call_us), bytes = 0.0;

  for (int64_t i = 0; i < batch->n && device->parameters.gbps > 0.0; ++i) bytes += sim_bytes(&device->desc, batch->calls[i]);
  return device->parameters.gbps > 0.0 ? time + bytes / (1e9 * device->parameters.gbps) : time;
}

static void sim_zero(const twh_oracle_desc *desc, const twh_call *call)
{
  const size_t item = (size_t)sim_item(desc->out_dtype);

  for (int64_t s = 0; s < call->slots; ++s) {
    char *rows = (char *)call->out + (size_t)(s * call->out_slot_stride) * item;
    for (int64_t i = 0; i < call->q_len; ++i) {
      memset(rows + (size_t)(i * call->out_row_stride) * item, 0, (size_t)desc->v_dim * item);
    }
    if (call->lse) memset(call->lse + s * call->lse_slot_stride, 0, (size_t)call->q_len * sizeof(float));
  }
}

static int32_t sim_compute(const sim_device *device, const sim_batch *batch)
{
  const twh_oracle_desc *inner = &device->inner;
  uint64_t               ticket = 0;
  int32_t                code;

  if (!device->parameters.inner) {
    for (int64_t i = 0; i < batch->n; ++i) sim_zero(&device->desc, batch->calls[i]);
    return 0;
  }
  if (inner->run) return inner->run(inner->user, batch->calls, batch->n);
  code = inner->submit(inner->user, batch->calls, batch->n, &ticket);
  return code != 0 ? code : inner->wait(inner->user, ticket);
}

/* The batch is computed: only now is it known when it ends. The lock is held. */
static void sim_account(sim_device *device, sim_batch *batch)
{
  sim_figures *figures = &device->figures;
  double       begin = batch->submitted > device->end ? batch->submitted : device->end, now = sim_now();

  batch->end = begin + sim_duration(device, batch);
  if (device->parameters.inner && batch->end < now) batch->end = now;
  device->end = batch->end;
  if (figures->batches++ == 0) figures->first_begin_s = begin;
  figures->calls += batch->n;
  figures->busy_s += batch->end - begin;
  figures->last_end_s = batch->end;
}

static void *sim_thread(void *user)
{
  sim_device *device = (sim_device *)user;

  pthread_mutex_lock(&device->lock);
  while (!device->quit) {
    sim_batch *batch = &device->batches[device->computed % SIM_DEPTH_MOST];
    if (device->computed == device->submitted) {
      pthread_cond_wait(&device->changed, &device->lock);
      continue;
    }
    pthread_mutex_unlock(&device->lock);
    batch->code = sim_compute(device, batch);
    pthread_mutex_lock(&device->lock);
    sim_account(device, batch);
    batch->done = 1;
    ++device->computed;
    pthread_cond_broadcast(&device->changed);
  }
  pthread_mutex_unlock(&device->lock);
  return NULL;
}

static int32_t sim_submit(void *user, const twh_call *const *calls, int64_t n, uint64_t *ticket)
{
  sim_device *device = (sim_device *)user;
  sim_batch  *batch;

  pthread_mutex_lock(&device->lock);
  *ticket = device->submitted;
  batch = &device->batches[device->submitted++ % SIM_DEPTH_MOST];
  batch->calls = calls;
  batch->n = n;
  batch->done = 0;
  batch->submitted = sim_now();
  pthread_cond_broadcast(&device->changed);
  pthread_mutex_unlock(&device->lock);
  return 0;
}

static int32_t sim_wait(void *user, uint64_t ticket)
{
  sim_device *device = (sim_device *)user;
  sim_batch  *batch = &device->batches[ticket % SIM_DEPTH_MOST];
  double      end;
  int32_t     code;

  pthread_mutex_lock(&device->lock);
  if (ticket >= device->submitted || device->submitted - ticket > SIM_DEPTH_MOST) {
    pthread_mutex_unlock(&device->lock);
    return SIM_CODE_LOST;
  }
  while (!batch->done) pthread_cond_wait(&device->changed, &device->lock);
  end = batch->end;
  code = batch->code;
  pthread_mutex_unlock(&device->lock);
  sim_sleep_until(end);
  return code;
}

static void sim_free(sim_device *device)
{
  pthread_cond_destroy(&device->changed);
  pthread_mutex_destroy(&device->lock);
  free(device);
}

static void sim_stop(sim_device *device)
{
  pthread_mutex_lock(&device->lock);
  device->quit = 1;
  pthread_cond_broadcast(&device->changed);
  pthread_mutex_unlock(&device->lock);
  pthread_join(device->thread, NULL);
}

static void sim_release(void *user)
{
  sim_device *device = (sim_device *)user;

  sim_stop(device);
  twh_oracle_destroy(device->parameters.inner);
  sim_free(device);
}

static twh_status sim_fail(twh_error *error, twh_status status, const char *text)
{
  if (error) {
    error->status = status;
    error->oracle_code = 0;
    error->slot = -1;
    error->call = error->row = -1;
    snprintf(error->message, sizeof error->message, "%s", text);
  }
  return status;
}

static twh_status sim_check(const sim_parameters *parameters, const twh_oracle_desc *desc, twh_error *error)
{
  if (desc->max_concurrent_batches > SIM_DEPTH_MOST)
    return sim_fail(error, TWH_E_ARGUMENT, "max_concurrent_batches is more than 64");
  if (!(parameters->batch_us >= 0.0) || isinf(parameters->batch_us))
    return sim_fail(error, TWH_E_ARGUMENT, "batch_us is no time");
  if (!(parameters->call_us >= 0.0) || isinf(parameters->call_us))
    return sim_fail(error, TWH_E_ARGUMENT, "call_us is no time");
  if (!(parameters->gbps >= 0.0) || isinf(parameters->gbps)) return sim_fail(error, TWH_E_ARGUMENT, "gbps is no rate");
  if (parameters->depth < 0 || parameters->depth > SIM_DEPTH_MOST)
    return sim_fail(error, TWH_E_ARGUMENT, "depth is not in 1..64");
  return TWH_OK;
}

twh_status sim_create(const twh_context *context, const twh_oracle_desc *desc, const sim_parameters *parameters,
                      twh_oracle **out, twh_error *error)
{
  twh_oracle_desc own = *desc;
  sim_device     *device;
  twh_status      status = sim_check(parameters, desc, error);

  *out = NULL;
  if (status < 0) return status;
  device = (sim_device *)calloc(1, sizeof *device);
  if (!device) return sim_fail(error, TWH_E_MEMORY, "not enough memory for a simulated device");
  device->parameters = *parameters;
  twh_oracle_desc_init(&device->inner);
  if (parameters->inner) (void)twh_oracle_get_desc(parameters->inner, &device->inner, NULL);
  (void)pthread_mutex_init(&device->lock, NULL);
  (void)pthread_cond_init(&device->changed, NULL);
  if (own.max_concurrent_batches == 0) own.max_concurrent_batches = parameters->depth > 0 ? parameters->depth : 2;
  if (own.cost_per_call == 0.0) own.cost_per_call = 1e-6 * parameters->call_us;
  if (own.cost_per_batch == 0.0) own.cost_per_batch = 1e-6 * parameters->batch_us;
  own.submit = sim_submit;
  own.wait = sim_wait;
  own.release = sim_release;
  own.user = device;
  if (pthread_create(&device->thread, NULL, sim_thread, device) != 0) {
    sim_free(device);
    return sim_fail(error, TWH_E_MEMORY, "the system starts no thread");
  }
  status = twh_oracle_create(context, &own, out, error);
  if (status < 0) { /* inner stays the caller's */
    sim_stop(device);
    sim_free(device);
    return status;
  }
  twh_oracle_desc_init(&device->desc);
  (void)twh_oracle_get_desc(*out, &device->desc, NULL);
  return TWH_OK;
}

static sim_device *sim_of(const twh_oracle *oracle)
{
  twh_oracle_desc desc;
  twh_oracle_desc_init(&desc);
  (void)twh_oracle_get_desc(oracle, &desc, NULL);
  return (sim_device *)desc.user;
}

void sim_stats(const twh_oracle *oracle, sim_figures *figures)
{
  sim_device *device = sim_of(oracle);

  pthread_mutex_lock(&device->lock);
  *figures = device->figures;
  pthread_mutex_unlock(&device->lock);
  figures->idle_s = figures->last_end_s - figures->first_begin_s - figures->busy_s;
  if (!(figures->idle_s > 0.0)) figures->idle_s = 0.0; /* not below zero by rounding */
}

void sim_reset(const twh_oracle *oracle)
{
  sim_device *device = sim_of(oracle);

  pthread_mutex_lock(&device->lock);
  memset(&device->figures, 0, sizeof device->figures);
  pthread_mutex_unlock(&device->lock);
}
