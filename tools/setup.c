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

/* The kernel, with what --oracle leaves open taken from the problem. */
static int setup_oracle(const options *given, setup *out, complaint *error)
{
  oracles_default from;

  memset(&from, 0, sizeof from);
  from.qk_dim = out->work.problem.qk_dim;
  from.v_dim = out->work.problem.v_dim;
  from.scale = workload_scale(&out->work);
  from.concurrent = given->threads;
  return oracles_create(&out->spec, &from, out->host.context, &out->oracle, error);
}

int setup_create(const options *given, int command, setup *out, complaint *error)
{
  twh_error failure;
  int       failed;

  memset(out, 0, sizeof *out);
  twh_error_init(&failure);
  twh_plan_info_init(&out->info);
  failed = oracle_spec_parse(given->oracle, &out->spec, error);
  if (!failed) {
    failed =
      command == OPTIONS_PLAN ? workload_of_sizes(given, &out->work, error) : workload_of_arrays(given, &out->work, error);
  }
  if (!failed) failed = setup_host_create(given->threads, &out->host, error);
  if (!failed) failed = setup_oracle(given, out, error);
  if (failed) return failed;
  if (twh_plan_create(out->host.context, &out->work.problem, &out->oracle, 1, NULL, &out->plan, &failure) < 0 ||
      twh_plan_get_info(out->plan, &out->info, &failure) < 0) {
    return wording_complain(error, &failure, NULL);
  }
  return 0;
}

void setup_destroy(setup *all)
{
  twh_plan_destroy(all->plan);
  twh_oracle_destroy(all->oracle);
  setup_host_destroy(&all->host);
  workload_finish(&all->work);
  oracle_spec_finish(&all->spec);
}

double setup_estimate(const setup *all)
{
  return (double)all->info.calls * all->spec.cost_us * 1e-6;
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
  json_whole(object, "short_tiles", info->short_tiles);
  json_whole(object, "lower_bound_calls", info->lower_bound_calls);
  if (all->spec.cost_us > 0) json_real(object, "estimated_s", setup_estimate(all));
  json_real(object, "utilisation", info->utilisation);
  json_whole(object, "workspace_bytes", info->workspace_bytes);
  json_real(object, "oracle_flops", info->oracle_flops);
  json_real(object, "host_flops", info->host_flops);
  json_whole(object, "host_pairs", info->host_pairs);
  json_real(object, "visible_pairs", info->visible_pairs);
}
