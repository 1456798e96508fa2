/* Several threads for one execute: each takes what is next, a batch of calls or the host's own work.
 *
 * Two waves are under way in turn. The host's work, by one thread at a time: a wave whose calls are all done is made results of, then it is
 * filled anew. All others make calls, of the older wave before the newer one, so that nobody waits for a wave to end. A loop that runs its
 * tasks one after the other works as well: the first one does everything. */
#include "core/run/run.h"

typedef struct run_crew {
  twh__run      *run;
  pthread_cond_t changed;
  int64_t        most, calling;     /* threads that may call the kernels at the same time, and do */
  int64_t        oldest, under_way; /* waves oldest, oldest + 1, .. (in a ring): their calls may be made */
  int64_t        left[TWH__WAVES];  /* batches of each that are not done */
  int            hosting, drained, over;
  twh_status     status;
  twh_error     *error;
} run_crew;

static int64_t crew_ring(int64_t wave)
{
  return wave % TWH__WAVES;
}

/* What the host would do: with room for a wave it fills one, with the oldest one's calls done it makes results of it. */
static int crew_can_fill(const run_crew *crew)
{
  return !crew->drained && crew->under_way < TWH__WAVES;
}

static int crew_can_complete(const run_crew *crew)
{
  return crew->under_way > 0 && crew->left[crew->oldest] == 0;
}

/* Both are called and left with the lock held, and work without it. */
static void crew_fill(run_crew *crew)
{
  twh__run  *run = crew->run;
  int64_t    at = crew_ring(crew->oldest + crew->under_way);
  twh__wave *wave = &run->work.waves[at];
  twh_status status;

  pthread_mutex_unlock(run->lock);
  status = twh__run_prepare(run, wave, crew->error);
  if (!TWH__FAILED(status) && wave->count > 0) twh__wave_begin(wave);
  if (TWH__FAILED(status)) twh__run_stop(run);
  pthread_mutex_lock(run->lock);
  crew->status = status;
  if (TWH__FAILED(status)) return;
  if (wave->count == 0) {
    crew->drained = 1;
    return;
  }
  crew->left[at] = wave->batch_count;
  ++crew->under_way;
}

static void crew_complete(run_crew *crew)
{
  twh__run  *run = crew->run;
  twh__wave *wave = &run->work.waves[crew->oldest];
  twh_status status;

  pthread_mutex_unlock(run->lock);
  status = twh__wave_wait(wave, crew->error);
  if (!TWH__FAILED(status)) status = twh__run_complete(run, wave, crew->error);
  if (TWH__FAILED(status)) twh__run_stop(run);
  pthread_mutex_lock(run->lock);
  crew->status = status;
  crew->oldest = crew_ring(crew->oldest + 1);
  --crew->under_way;
}

static void crew_host(run_crew *crew)
{
  crew->hosting = 1;
  if (crew_can_fill(crew)) {
    crew_fill(crew);
  } else {
    crew_complete(crew);
  }
  crew->hosting = 0;
  crew->over = TWH__FAILED(crew->status) || (crew->drained && crew->under_way == 0);
}

/* The wave with the next batch; NULL: none may be made now. */
static twh__wave *crew_next(const run_crew *crew)
{
  for (int64_t i = 0; i < crew->under_way && crew->calling < crew->most; ++i) {
    twh__wave *wave = &crew->run->work.waves[crew_ring(crew->oldest + i)];
    if (wave->next < wave->batch_count) return wave;
  }
  return NULL;
}

static void crew_call(run_crew *crew, twh__wave *wave)
{
  twh__run   *run = crew->run;
  twh__batch *batch = &wave->batches[wave->next++];

  ++crew->calling;
  pthread_mutex_unlock(run->lock);
  twh__wave_make(wave, batch);
  pthread_mutex_lock(run->lock);
  --crew->calling;
  --crew->left[wave - run->work.waves];
}

static void crew_task(void *arg, int64_t i)
{
  run_crew  *crew = (run_crew *)arg;
  twh__run  *run = crew->run;
  twh__wave *wave;

  (void)i;
  pthread_mutex_lock(run->lock);
  while (!crew->over) {
    if (!crew->hosting && (crew_can_fill(crew) || crew_can_complete(crew))) {
      crew_host(crew);
    } else if ((wave = crew_next(crew)) != NULL) {
      crew_call(crew, wave);
    } else {
      pthread_cond_wait(&crew->changed, run->lock);
      continue;
    }
    pthread_cond_broadcast(&crew->changed);
  }
  pthread_mutex_unlock(run->lock);
}

twh_status twh__run_crew(twh__run *run, twh_error *error)
{
  const twh_plan *plan = run->plan;
  run_crew        crew = { 0 };

  if (pthread_cond_init(&crew.changed, NULL) != 0) {
    return twh__fail(error, TWH_E_MEMORY, "the system has no room for another condition variable");
  }
  crew.run = run;
  crew.error = error;
  for (int32_t k = 0; k < plan->kernel_count; ++k) crew.most = twh__max(crew.most, plan->kernels[k].concurrency);
  run->serial = 1;
  twh__parallel_for(plan->context, twh__min(crew.most + 1, plan->context->desc.parallelism), crew_task, &crew);
  run->serial = 0;
  pthread_cond_destroy(&crew.changed);
  return crew.status;
}
