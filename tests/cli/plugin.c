/* A kernel in a shared object, for test_cli.sh: plain loops, length 8, no mask, returns its log-sum-exp.
 *
 * Options: "" behaves; "lie" declares the logarithm to base e and returns base 2; "fail" fails with -77 in every call;
 * "refuse" refuses to be loaded. */
#include <math.h>
#include <string.h>

#include "twoheads.h"

twh_plugin_entry twh_plugin_oracle; /* the type of the function below, checked */

typedef struct plugin_behaviour {
  int lie, fail;
} plugin_behaviour;

static plugin_behaviour plugin_mode;

static void plugin_row(const twh_call *call, int64_t slot, int64_t row)
{
  const float *q = (const float *)call->q.data + slot * call->q.slot_stride + row * call->q.row_stride;
  const float *k = (const float *)call->k.data + slot * call->k.slot_stride;
  const float *v = (const float *)call->v.data + slot * call->v.slot_stride;
  float       *out = (float *)call->out + slot * call->out_slot_stride + row * call->out_row_stride;
  double       scores[8], most = -INFINITY, sum = 0.0;

  for (int64_t j = 0; j < 8; ++j) {
    scores[j] = 0.0;
    for (int64_t c = 0; c < 4; ++c) scores[j] += 0.5 * (double)q[c] * (double)k[j * call->k.row_stride + c];
    if (scores[j] > most) most = scores[j];
  }
  for (int64_t j = 0; j < 8; ++j) sum += scores[j] = exp(scores[j] - most);
  for (int64_t c = 0; c < 4; ++c) {
    double value = 0.0;
    for (int64_t j = 0; j < 8; ++j) value += scores[j] * (double)v[j * call->v.row_stride + c];
    out[c] = (float)(value / sum);
  }
  call->lse[slot * call->lse_slot_stride + row] = (float)((most + log(sum)) * (plugin_mode.lie ? 1.4426950408889634 : 1.0));
}

static int32_t plugin_run(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user;
  if (plugin_mode.fail) return -77;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t s = 0; s < calls[i]->slots; ++s) {
      for (int64_t r = 0; r < calls[i]->q_len; ++r) plugin_row(calls[i], s, r);
    }
  }
  return 0;
}

int32_t twh_plugin_oracle(const char *options, const twh_oracle_desc **desc)
{
  static twh_oracle_desc own;

  if (!strcmp(options, "refuse")) return -5;
  plugin_mode.lie = !strcmp(options, "lie");
  plugin_mode.fail = !strcmp(options, "fail");
  twh_oracle_desc_init(&own);
  own.flags = TWH_ORACLE_LSE;
  own.slots = 1;
  own.q_len = own.k_len = 8;
  own.qk_dim = own.v_dim = 4;
  own.dtype = TWH_F32;
  own.mask_modes = TWH_MASK_NONE;
  own.scale = 0.5;
  own.run = plugin_run;
  *desc = &own;
  return 0;
}
