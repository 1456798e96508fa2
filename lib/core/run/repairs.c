/* Repairs: slots with rows that could not be read are called once more, with values that tell more.
 *
 * They are packed anew, so that a kernel with many slots is not called for one of them. A repair's queries, keys and masks are those
 * that its slot had. Its results stand where a bundle of the same kernel and class has room for a bucket call and made none:
 * nothing of the first calls is lost. */
#include <string.h>

#include "core/run/run.h"

/* Marked attentions of the wave, by kernel and class, in the order of the wave. They take no more bundles than they had, and no two
 * of these begin with attentions of the same bundle, whose buffers they use. */
static void repairs_pack(const twh__wave *wave, twh__wave *repairs)
{
  const twh__run *run = wave->run;
  const int64_t   slots = run->plan->layout.slots;
  int64_t         open[TWH__MAX_KERNELS][TWH__CLASSES];

  memset(open, -1, sizeof open);
  repairs->count = 0;
  for (int64_t b = 0; b < wave->count; ++b) {
    const twh__bundle *bundle = wave->bundles[b];
    int64_t           *at = &open[bundle->kernel][bundle->class_number];
    for (int64_t s = 0; s < bundle->filled; ++s) {
      twh__bundle *repair;
      if (!bundle->slots[s].repair) continue;
      if (*at < 0 || repairs->bundles[*at]->filled == twh__run_kernel(run, bundle)->lowering.slots) {
        *at = repairs->count++;
        repairs->bundles[*at]->kernel = bundle->kernel;
        repairs->bundles[*at]->class_number = bundle->class_number;
        repairs->bundles[*at]->filled = 0;
        repairs->bundles[*at]->buffers = bundle->buffers;
      }
      repair = repairs->bundles[*at];
      repair->slots[repair->filled] = bundle->slots[s];
      repair->slots[repair->filled++].home = bundle->buffers * slots + s;
    }
  }
}

static void repairs_task(void *arg, int64_t i)
{
  const twh__wave *repairs = (const twh__wave *)arg;
  twh__run        *run = repairs->run;
  const int64_t    slots = run->plan->layout.slots;
  int64_t          s;
  twh__bundle     *bundle;
  twh__attention  *attention = twh__wave_attention(repairs, i, &bundle, &s);
  twh__source      source;

  if (!attention) return;
  twh__run_source(run, bundle, &source);
  source.centres = twh__run_centres(run, bundle, attention->home / slots, attention->home % slots);
  for (int64_t t = 0; t < attention->slot.count; ++t) {
    twh__placement *place = &attention->places[t];
    twh__state     *leaf = &run->work.states[place->leaf];
    twh__result     result;
    if (place->flagged == 0 || attention->tiles[t].host) continue;
    twh__run_result(run, bundle, attention, attention->home / slots, attention->home % slots, t, &source, &result);
    result.buckets = twh__run_buckets(run, bundle, bundle->buffers, s);
    if (run->checked) place->nan_row = twh__decode_find_nan(&result, &place->nan_part);
    if (place->nan_row >= 0) continue;
    place->flagged = twh__decode_repair(&result, leaf);
    if (place->flagged > 0) twh__decode_host(&result, &source, leaf);
  }
}

/* Rows that were not repaired after all. */
static twh_status repairs_collect(twh__run *run, const twh__bundle *bundle, int64_t s, twh_error *error)
{
  const twh__attention *attention = &bundle->slots[s];

  for (int64_t t = 0; t < attention->slot.count; ++t) {
    const twh__placement *place = &attention->places[t];
    if (place->nan_row >= 0) return twh__run_nan(place, &attention->tiles[t], bundle->first_call, s, error);
    if (attention->tiles[t].host) continue;
    run->stats.host_rows += place->flagged;
    run->stats.repaired_rows -= place->flagged;
  }
  return TWH_OK;
}

twh_status twh__wave_repair(twh__wave *wave, twh_error *error)
{
  twh__run  *run = wave->run;
  twh__wave *repairs = &run->work.repairs;
  twh_status status;

  repairs_pack(wave, repairs);
  if (repairs->count == 0) return TWH_OK;
  repairs->number = wave->number;
  status = twh__wave_encode(repairs, error);
  if (TWH__FAILED(status)) return status;
  twh__wave_begin(repairs);
  twh__wave_call(repairs, NULL, NULL);
  status = twh__wave_wait(repairs, error);
  if (!TWH__FAILED(status)) twh__run_parallel(run, repairs->count * run->plan->layout.slots, repairs_task, repairs);
  for (int64_t r = 0; r < repairs->count && !TWH__FAILED(status); ++r) {
    const twh__bundle *bundle = repairs->bundles[r];
    for (int64_t s = 0; s < bundle->filled && !TWH__FAILED(status); ++s) status = repairs_collect(run, bundle, s, error);
  }
  return status;
}
