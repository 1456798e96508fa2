/* From options to a plan: see setup.h. */
#include <stdio.h>
#include <string.h>

#include "oracles.h"
#include "setup.h"
#include "wording.h"

static void setup_log(void *user, int32_t level, const char *text)
{
  (void)user;
  if (level <= TWH_LOG_WARNING) fprintf(stderr, "twoheads: warning: %s\n", text);
}

int setup_host_create(int64_t threads, setup_host *out, complaint *error)
{
  twh_context_desc desc;
  twh_error        failure;

  memset(out, 0, sizeof *out);
  twh_error_init(&failure);
  twh_context_desc_init(&desc);
  desc.log = setup_log;
  if (threads > 1) {
    out->workers = pool_create(threads);
    if (!out->workers) {
      return complaint_make(error, EXIT_FAILED, "--threads: %lld threads cannot be started", (long long)threads);
    }
    desc.parallel_for = pool_parallel_for;
    desc.parallelism = threads;
    desc.user = out->workers;
  }
  if (twh_context_create(&desc, &out->context, &failure) < 0) return wording_complain(error, &failure, NULL);
  return 0;
}

void setup_host_destroy(setup_host *host)
{
  twh_context_destroy(host->context);
  pool_destroy(host->workers);
}

/* The kernels, with what --oracle leaves open taken from the problem. */
static int setup_oracles(const options *given, setup *out, complaint *error)
{
  oracles_default from;
  int             failed = 0;

  memset(&from, 0, sizeof from);
  from.qk_dim = out->work.problem.qk_dim;
  from.v_dim = out->work.problem.v_dim;
  from.scale = workload_scale(&out->work);
  from.concurrent = given->threads;
  for (int i = 0; i < out->oracles && !failed; ++i) {
    failed = oracles_create(&out->spec[i], &from, out->host.context, &out->oracle[i], error);
  }
  return failed;
}

/* Counts the calls of each kernel. A call gets its number when its first tile is placed, so that one with a number above all
 * before it is new. */
typedef struct setup_counter {
  setup  *all;
  int64_t next;
} setup_counter;

static int32_t setup_count(void *user, const twh_tile_info *tile)
{
  setup_counter *counter = (setup_counter *)user;

  if (tile->call < counter->next || tile->oracle < 0 || tile->oracle >= counter->all->oracles) return 0;
  counter->all->calls[tile->oracle] += tile->calls;
  counter->next = tile->call + tile->calls;
  return 0;
}

/* What was not given is 0, the library's default. */
static void setup_method(const options *given, twh_plan_options *how)
{
  how->method = given->method;
  if (given->seed != OPTIONS_ABSENT) how->seed = (uint64_t)given->seed;
  if (given->samples != OPTIONS_ABSENT) how->samples = given->samples;
  if (given->strata != OPTIONS_ABSENT) how->strata = given->strata;
  if (given->exact_sinks != OPTIONS_ABSENT) how->exact_sinks = given->exact_sinks;
  if (given->exact_window != OPTIONS_ABSENT) how->exact_window = given->exact_window;
  how->estimate = given->estimate;
  how->target_error = given->target_error;
  how->bound_c = given->bound_c;
  how->bound_d = given->bound_d;
}

static int setup_plan(const options *given, setup *out, complaint *error)
{
  twh_plan_options how;
  twh_error        failure;
  twh_status       status;
  setup_counter    counter;

  twh_error_init(&failure);
  twh_plan_info_init(&out->info);
  twh_plan_options_init(&how);
  if (given->measure) how.flags |= TWH_PLAN_MEASURE;
  setup_method(given, &how);
  out->method = given->method;
  out->estimate = given->estimate;
  out->measured = given->measure;
  status = twh_plan_create(out->host.context, &out->work.problem, out->oracle, out->oracles, &how, &out->plan, &failure);
  if (status >= 0) status = twh_plan_get_info(out->plan, &out->info, &failure);
  if (status < 0) return wording_complain(error, &failure, NULL);
  if (out->oracles == 1) {
    out->calls[0] = out->info.calls;
    return 0;
  }
  counter.all = out;
  counter.next = 0;
  status = twh_plan_visit(out->plan, setup_count, &counter, &failure);
  return status < 0 ? wording_complain(error, &failure, NULL) : 0;
}

int setup_create(const options *given, int command, setup *out, complaint *error)
{
  int failed = 0;

  memset(out, 0, sizeof *out);
  for (; out->oracles < given->oracles && !failed; ++out->oracles) {
    failed = oracle_spec_parse(given->oracle[out->oracles], &out->spec[out->oracles], error);
  }
  if (!failed) failed = workload_create(given, command, &out->work, error);
  if (!failed) failed = setup_host_create(given->threads, &out->host, error);
  if (!failed) failed = setup_oracles(given, out, error);
  return failed ? failed : setup_plan(given, out, error);
}

void setup_destroy(setup *all)
{
  twh_plan_destroy(all->plan);
  for (int i = 0; i < all->oracles; ++i) twh_oracle_destroy(all->oracle[i]);
  setup_host_destroy(&all->host);
  workload_finish(&all->work);
  for (int i = 0; i < all->oracles; ++i) oracle_spec_finish(&all->spec[i]);
}

double setup_estimate(const setup *all)
{
  double microseconds = 0.0;

  if (all->measured) return all->info.cost;
  for (int i = 0; i < all->oracles; ++i) {
    if (all->calls[i] > 0 && !(all->spec[i].cost_us > 0)) return 0.0;
    microseconds += (double)all->calls[i] * all->spec[i].cost_us;
  }
  return microseconds / 1e6;
}

double setup_calls_per_block(const setup *all)
{
  const workload *work = &all->work;
  twh_oracle_desc desc;
  double          rows = (double)work->batch * (double)work->q_rows * (double)work->problem.q_heads;

  twh_oracle_desc_init(&desc);
  if (!(rows > 0) || twh_oracle_get_desc(all->oracle[all->info.oracle], &desc, NULL) < 0) return 0.0;
  return (double)all->info.calls / (rows / (double)desc.q_len);
}

void setup_json(json_object *object, const setup *all)
{
  const twh_plan_info *info = &all->info;

  json_whole(object, "calls", info->calls);
  json_whole(object, "repair_calls_max", info->repair_calls_max);
  json_whole(object, "rounds", info->rounds);
  json_whole(object, "rounds_max", info->rounds_max);
  json_whole(object, "tiles", info->tiles);
  json_whole(object, "full_tiles", info->full_tiles);
  json_whole(object, "lower_tiles", info->lower_tiles);
  json_whole(object, "upper_tiles", info->upper_tiles);
  json_whole(object, "band_tiles", info->band_tiles);
  json_whole(object, "short_tiles", info->short_tiles);
  json_whole(object, "host_tiles", info->host_tiles);
  json_whole(object, "slots_used", info->slots_used);
  json_whole(object, "lower_bound_calls", info->lower_bound_calls);
  json_real(object, "calls_per_n_over_m", setup_calls_per_block(all));
  json_whole(object, "oracle", info->oracle);
  json_wholes(object, "calls_by_oracle", all->calls, all->oracles);
  if (setup_estimate(all) > 0) json_real(object, "estimated_s", setup_estimate(all));
  json_real(object, "utilisation", info->utilisation);
  json_whole(object, "workspace_bytes", info->workspace_bytes);
  json_real(object, "oracle_flops", info->oracle_flops);
  json_real(object, "host_flops", info->host_flops);
  json_whole(object, "host_pairs", info->host_pairs);
  json_real(object, "visible_pairs", info->visible_pairs);
  json_text(object, "method", options_method_name(all->method));
  json_whole(object, "sampled_keys", info->sampled_keys);
  json_whole(object, "drawn_tiles", info->drawn_tiles);
  json_text(object, "estimate", options_estimate_name(all->estimate));
  json_whole(object, "estimate_calls", info->estimate_calls);
  json_whole(object, "exact_calls_max", info->exact_calls_max);
  json_real(object, "error_bound", info->error_bound);
}
