/* A kernel in a shared object, so that it can be tried without a host: plain f32 attention of 64 queries and 64 keys, head
 * dimension 64 and one value column to spare, without masks.
 *
 *     cc -O2 -shared -fPIC -I include docs/examples/plugin.c -o plugin_example.so -lm
 *     twoheads check --oracle plugin:./plugin_example.so
 *
 * Options, as twh_oracle_load hands them over: "" or "lse", which makes the kernel return the log-sum-exp too. Anything else is
 * refused. docs/oracle-contract.md explains every line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "twoheads.h"

enum { LEN = 64, QK_DIM = 64, V_DIM = 65, REFUSED = 1, NO_MEMORY = 2 };

/* What the kernel owns; a real one would keep its device here. */
typedef struct plugin_kernel {
  twh_oracle_desc desc;
  int64_t         calls;
} plugin_kernel;

/* One query: q (QK_DIM), k (LEN, QK_DIM), v (LEN, V_DIM), out (V_DIM). Returns the log-sum-exp. */
static float plugin_row(const float *q, const float *k, const float *v, float scale, float *out)
{
  float score[LEN], top = -INFINITY, sum = 0;

  for (int j = 0; j < LEN; ++j) {
    score[j] = 0;
    for (int c = 0; c < QK_DIM; ++c) score[j] += q[c] * k[j * QK_DIM + c];
    score[j] *= scale;
    if (score[j] > top) top = score[j];
  }
  for (int c = 0; c < V_DIM; ++c) out[c] = 0;
  for (int j = 0; j < LEN; ++j) {
    const float weight = expf(score[j] - top);
    sum += weight;
    for (int c = 0; c < V_DIM; ++c) out[c] += weight * v[j * V_DIM + c];
  }
  for (int c = 0; c < V_DIM; ++c) out[c] /= sum;
  return top + logf(sum);
}

/* This kernel declares one slot, dense rows and no smaller lengths, so there is nothing to look up in the call. */
static int32_t plugin_run(void *user, const twh_call *const *calls, int64_t n)
{
  plugin_kernel *kernel = (plugin_kernel *)user;

  for (int64_t at = 0; at < n; ++at) {
    const twh_call *call = calls[at];
    for (int i = 0; i < LEN; ++i) {
      const float lse = plugin_row((const float *)call->q.data + i * QK_DIM, (const float *)call->k.data,
                                   (const float *)call->v.data, (float)call->scale, (float *)call->out + i * V_DIM);
      if (call->lse) call->lse[i] = lse;
    }
  }
  kernel->calls += n; /* one batch at a time: nothing to lock */
  return 0;
}

static void plugin_release(void *user)
{
  free(user);
}

/* The only symbol that twoheads looks for, and the only one that has to be visible. Declared with the header's type, so that
 * the compiler compares. */
#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
twh_plugin_entry twh_plugin_oracle;

int32_t twh_plugin_oracle(const char *options, const twh_oracle_desc **desc)
{
  plugin_kernel *kernel;

  if (strcmp(options, "") != 0 && strcmp(options, "lse") != 0) return REFUSED;
  kernel = (plugin_kernel *)calloc(1, sizeof *kernel);
  if (!kernel) return NO_MEMORY;
  twh_oracle_desc_init(&kernel->desc);
  if (strcmp(options, "lse") == 0) kernel->desc.flags = TWH_ORACLE_LSE;
  kernel->desc.slots = 1;
  kernel->desc.q_len = kernel->desc.k_len = LEN;
  kernel->desc.qk_dim = QK_DIM;
  kernel->desc.v_dim = V_DIM;
  kernel->desc.dtype = TWH_F32;
  kernel->desc.mask_modes = TWH_MASK_NONE;
  kernel->desc.scale = 0.125;
  kernel->desc.run = plugin_run;
  kernel->desc.release = plugin_release;
  kernel->desc.user = kernel;
  *desc = &kernel->desc;
  return 0;
}
