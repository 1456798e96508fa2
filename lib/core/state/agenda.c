/* Which results of an agenda pass on at once: later work of the same agenda takes them in, and nothing reads them after it. They need
 * no node. Rows are merged a lot at a time, all work on one lot before the next, so that a passing state is one lot long and stays in the
 * cache. */
#include "core/state/state.h"

enum { AGENDA_NOWHERE = -1 };

/* Mark the results that are read once more before their node is written again. */
static void agenda_mark(const twh__agenda *agenda)
{
  int32_t *read = agenda->marks;

  for (int64_t w = 0; w < agenda->count; ++w) {
    const twh__merge *work = &agenda->work[w];
    if (work->into >= 0) read[work->into - agenda->leaves] = 0;
    for (int i = 0; i < TWH__FAN; ++i) {
      if (work->from[i] >= agenda->leaves) read[work->from[i] - agenda->leaves] = 0;
    }
  }
  for (int64_t w = agenda->count; w > 0; --w) {
    twh__merge *work = &agenda->work[w - 1];
    work->passing = work->into >= 0 && read[work->into - agenda->leaves];
    if (work->into >= 0) read[work->into - agenda->leaves] = 0;
    for (int i = 0; i < TWH__FAN; ++i) {
      if (work->from[i] >= agenda->leaves) read[work->from[i] - agenda->leaves] = 1;
    }
  }
}

void twh__agenda_pass_on(twh__agenda *agenda)
{
  int32_t *place = agenda->marks, free_places[TWH__PASSING], free_count = TWH__PASSING;

  agenda_mark(agenda);
  for (int32_t i = 0; i < TWH__PASSING; ++i) free_places[i] = TWH__PASSING - 1 - i;
  for (int64_t w = 0; w < agenda->count; ++w) {
    twh__merge *work = &agenda->work[w];
    if (work->into >= 0) place[work->into - agenda->leaves] = AGENDA_NOWHERE;
    for (int i = 0; i < TWH__FAN; ++i) {
      if (work->from[i] >= agenda->leaves) place[work->from[i] - agenda->leaves] = AGENDA_NOWHERE;
    }
  }
  for (int64_t w = 0; w < agenda->count; ++w) {
    twh__merge *work = &agenda->work[w];
    for (int i = 0; i < TWH__FAN; ++i) {
      int32_t node = work->from[i] - agenda->leaves;
      if (node < 0 || place[node] == AGENDA_NOWHERE) continue;
      work->from[i] = agenda->leaves + agenda->nodes + place[node];
      free_places[free_count++] = place[node];
      place[node] = AGENDA_NOWHERE;
    }
    if (!work->passing || free_count == 0) continue; /* no place: a node does as well */
    place[work->into - agenda->leaves] = free_places[--free_count];
    work->into = agenda->leaves + agenda->nodes + free_places[free_count];
  }
}
