/* Repairs: slots with rows that could not be read are called once more, with values that tell more.
 *
 * They are packed anew, so that a kernel with many slots is not called for one of them. A repair's queries, keys and masks are those
 * that its slot had. Its results stand where a bundle of the same kernel and class has room for a bucket call and made none:
 * nothing of the first calls is lost. */
#include <string.h>

#include "core/run/run.h"

/* Marked attentions of the wave, by kernel and class, in the order of the wave. They take no more bundles than they had, and no two
 * of these begin with attentions of the same bundle, whose buffers they use. */
static void repairs_pack(twh__run *run)
{
  const int64_t slots = run->plan->layout.slots;
  int64_t       open[TWH__MAX_KERNELS][TWH__CLASSES];

  memset(open, -1, sizeof open);
  run->repair_bundles = 0;
  for (int64_t b = 0; b < run->wave_bundles; ++b) {
    const twh__bundle *bundle = twh__run_bundle(run, b);
    int64_t           *at = &open[bundle->kernel][bundle->class_number];
    for (int64_t s = 0; s < bundle->filled; ++s) {
      twh__bundle *repair;
      if (!bundle->slots[s].repair) continue;
      if (*at < 0 || run->work.repairs[*at].filled == twh__run_kernel(run, bundle)->lowering.slots) {
        *at = run->repair_bundles++;
        run->work.repairs[*at].kernel = bundle->kernel;
        run->work.repairs[*at].class_number = bundle->class_number;
        run->work.repairs[*at].filled = 0;
        run->work.repairs[*at].buffers = b;
      }
      repair = &run->work.repairs[*at];
      repair->slots[repair->filled] = bundle->slots[s];
      repair->slots[repair->filled++].home = b * slots + s;
    }
  }
}

static void repairs_task(void *arg, int64_t i)
{
  twh__run          *run = (twh__run *)arg;
  const int64_t      slots = run->plan->layout.slots;
  int64_t            r, s;
  twh__attention    *attention = twh__run_attention(run, i, &r, &s);
  const twh__bundle *bundle = twh__run_bundle(run, r);
  twh__source        source;

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

twh_status twh__wave_repair(twh__run *run, twh_error *error)
{
  twh_status status;

  repairs_pack(run);
  if (run->repair_bundles == 0) return TWH_OK;
  run->repairing = 1;
  status = twh__wave_encode(run, error);
  if (!TWH__FAILED(status)) status = twh__wave_call(run, error);
  if (!TWH__FAILED(status)) {
    twh__parallel_for(run->plan->context, run->repair_bundles * run->plan->layout.slots, repairs_task, run);
  }
  for (int64_t r = 0; r < run->repair_bundles && !TWH__FAILED(status); ++r) {
    const twh__bundle *bundle = twh__run_bundle(run, r);
    for (int64_t s = 0; s < bundle->filled && !TWH__FAILED(status); ++s) status = repairs_collect(run, bundle, s, error);
  }
  run->repairing = 0;
  return status;
}
