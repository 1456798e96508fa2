/* Telling the caller what happened when. */
#include <string.h>

#include "core/run/run.h"

/* What twh_trace_tile needs. */
typedef struct trace_inside {
  const twh__wave  *wave;
  const twh__batch *batch;
} trace_inside;

static const twh__bundle *trace_bundle(const twh__wave *wave, const twh_call *call)
{
  return wave->bundles[(call - wave->calls) / wave->run->plan->layout.parts];
}

static void trace_begin(const twh__run *run, int32_t kind, int64_t wave, double begun, double now, twh_trace_event *event)
{
  twh_trace_event_init(event);
  event->kind = kind;
  event->begin_s = begun - run->begun;
  event->end_s = now - run->begun;
  event->wave = wave;
  event->batch = event->oracle = event->first_call = -1;
}

void twh__run_trace(twh__run *run, int32_t kind, int64_t wave, double begun)
{
  twh_trace_event event;

  if (!run->options->trace) return;
  pthread_mutex_lock(run->lock);
  trace_begin(run, kind, wave, begun, twh__now(), &event);
  run->options->trace(run->options->user, &event);
  pthread_mutex_unlock(run->lock);
}

void twh__trace_batch(const twh__wave *wave, const twh__batch *batch, double now)
{
  const twh__run    *run = wave->run;
  const trace_inside inside = { wave, batch };
  twh_trace_event    event;

  trace_begin(run, TWH_TRACE_BATCH, wave->number, batch->begun, now, &event);
  event.batch = batch->number;
  event.oracle = run->plan->kernels[batch->kernel].index;
  event.first_call = wave->list[batch->first]->index;
  event.calls = batch->n;
  for (int64_t c = 0; c < batch->n; ++c) {
    const twh__bundle *bundle = trace_bundle(wave, wave->list[batch->first + c]);
    for (int64_t s = 0; s < bundle->filled; ++s) event.tiles += bundle->slots[s].slot.count;
  }
  event.inside = &inside;
  run->options->trace(run->options->user, &event);
}

twh_status twh_trace_tile(const twh_trace_event *event, int64_t i, twh_tile_info *out, twh_error *error)
{
  const trace_inside *inside;

  if (!event || !out) return twh__fail(error, TWH_E_ARGUMENT, "%s is NULL", event ? "out" : "event");
  if (!event->inside || i < 0 || i >= event->tiles)
    return twh__fail(error, TWH_E_ARGUMENT, "i is %lld; the event has %lld tiles", (long long)i, (long long)event->tiles);
  inside = (const trace_inside *)event->inside;
  for (int64_t c = 0; c < inside->batch->n; ++c) {
    const twh_call    *call = inside->wave->list[inside->batch->first + c];
    const twh__bundle *bundle = trace_bundle(inside->wave, call);
    for (int64_t s = 0; s < bundle->filled; ++s) {
      const twh__slot *slot = &bundle->slots[s].slot;
      twh_tile_info    info;
      if (i >= slot->count) {
        i -= slot->count;
        continue;
      }
      twh_tile_info_init(&info);
      twh__plan_tell(inside->wave->run->plan, &slot->tiles[i], call->index, s, &info);
      info.calls = 1;
      return twh__struct_write(out, &info, sizeof info, sizeof info, "out", error);
    }
  }
  return twh__fail(error, TWH_E_ARGUMENT, "event is not as it came");
}
