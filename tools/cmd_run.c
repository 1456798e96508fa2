/* twoheads run: the attention of arrays, written to a file, with what it took. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "outfile.h"
#include "outlook.h"
#include "setup.h"
#include "sim.h"
#include "timeline.h"
#include "verify.h"
#include "wording.h"

typedef struct cmd_run_result {
  npy_array     out, lse, error; /* those without data: not asked for */
  outlook       view;
  verify_errors errors;
} cmd_run_result;

/* What the library tells while it works: goes to the terminal and to a file, where they are wanted. */
typedef struct cmd_run_host {
  int       shown; /* marks of the bar */
  timeline *trace;
} cmd_run_host;

static void cmd_run_trace(void *user, const twh_trace_event *event)
{
  timeline_event(((cmd_run_host *)user)->trace, event);
}

/* The bar, redrawn only when it grows. */
static int32_t cmd_run_progress(void *user, int64_t done, int64_t planned)
{
  int *shown = &((cmd_run_host *)user)->shown;
  int  marks = planned > 0 && done < planned ? (int)(40.0 * (double)done / (double)planned) : 40;

  if (marks == *shown) return 0;
  *shown = marks;
  fprintf(stderr, "\r[%.*s%*s]", marks, "########################################", 40 - marks, "");
  fflush(stderr);
  return 0;
}

/* Outputs in the shape of q, but for the last dimension, and in its dtype; errors are numbers of the library's own. */
static int cmd_run_allocate(const options *given, const workload *work, cmd_run_result *out, complaint *error)
{
  const npy_array *q = &work->q;
  int64_t          shape[NPY_RANK_MAX];
  int              failed;

  memcpy(shape, q->shape, sizeof shape);
  if (given->lse) {
    failed = npy_allocate("the log-sum-exp", q->dtype == TWH_F64 ? TWH_F64 : TWH_F32, q->rank - 1, shape, &out->lse, error);
    if (failed) return failed;
  }
  if (given->estimate != TWH_ESTIMATE_NONE) {
    failed = npy_allocate("the errors of --estimate", TWH_F64, q->rank - 1, shape, &out->error, error);
    if (failed) return failed;
  }
  shape[q->rank - 1] = work->problem.v_dim;
  return npy_allocate("the output", q->dtype, q->rank, shape, &out->out, error);
}

static int cmd_run_execute(const setup *all, timeline *trace, cmd_run_result *result, complaint *error)
{
  const workload    *work = &all->work;
  const twh_problem *problem = &work->problem;
  twh_tensor         out, lse, row_error;
  twh_tensors        tensors;
  twh_run_options    how;
  twh_error          failure;
  twh_status         status;
  cmd_run_host       host = { -1, trace };

  twh_error_init(&failure);
  twh_tensors_init(&tensors);
  twh_run_options_init(&how);
  twh_run_stats_init(&result->view.stats);
  twh_tensor_dense(&out, result->out.dtype, result->out.data, problem->q_heads, work->q_rows, problem->v_dim);
  twh_tensor_dense(&lse, result->lse.dtype, result->lse.data, problem->q_heads, work->q_rows, 1);
  twh_tensor_dense(&row_error, result->error.dtype, result->error.data, problem->q_heads, work->q_rows, 1);
  tensors.q = &work->q_tensor;
  tensors.k = &work->k_tensor;
  tensors.v = &work->v_tensor;
  tensors.out = &out;
  if (result->lse.data) tensors.lse = &lse;
  if (result->error.data) tensors.error = &row_error;
  workload_tensors(work, &tensors);
  how.stats = &result->view.stats;
  if (isatty(STDERR_FILENO)) how.progress = cmd_run_progress;
  if (trace) how.trace = cmd_run_trace;
  how.user = &host;
  for (int i = 0; i < all->oracles; ++i) {
    if (all->spec[i].kind == ORACLE_SPEC_SIM) sim_reset(all->oracle[i]);
  }
  status = twh_plan_execute(all->plan, &tensors, &how, &failure);
  if (host.shown >= 0) fprintf(stderr, "\r%44s\r", "");
  return status < 0 ? wording_complain(error, &failure, NULL) : 0;
}

/* All simulated devices together; 0: there is none. */
static int cmd_run_devices(const setup *all, sim_figures *sum)
{
  int devices = 0;

  memset(sum, 0, sizeof *sum);
  for (int i = 0; i < all->oracles; ++i) {
    sim_figures one;
    if (all->spec[i].kind != ORACLE_SPEC_SIM) continue;
    sim_stats(all->oracle[i], &one);
    sum->busy_s += one.busy_s;
    sum->idle_s += one.idle_s;
    ++devices;
  }
  return devices;
}

/* The file of what happens when, if one is asked for; else *out stays. */
static int cmd_run_open(const options *given, timeline **out, complaint *error)
{
  timeline *trace;
  int       failed;

  if (!given->trace) return 0;
  trace = (timeline *)malloc(sizeof *trace);
  if (!trace) return complaint_make(error, EXIT_FAILED, "not enough memory for --trace");
  failed = timeline_open(given->trace, given->oracle, trace, error);
  if (failed)
    free(trace);
  else
    *out = trace;
  return failed;
}

/* As outfile_close; NULL is no file. */
static int cmd_run_close(timeline *trace, int failed, complaint *error)
{
  if (trace) failed = timeline_close(trace, failed, error);
  free(trace);
  return failed;
}

static void cmd_run_json(const options *given, const setup *all, const cmd_run_result *result)
{
  const twh_run_stats *stats = &result->view.stats;
  json_object          object;
  sim_figures          devices;

  json_open(&object, stdout);
  setup_json(&object, all);
  json_whole(&object, "batches", stats->batches);
  json_whole(&object, "repair_calls", stats->repair_calls);
  json_whole(&object, "repaired_rows", stats->repaired_rows);
  json_whole(&object, "host_rows", stats->host_rows);
  json_whole(&object, "encoded_blocks", stats->encoded_blocks);
  json_real(&object, "wall_s", stats->wall_s);
  json_real(&object, "oracle_s", stats->oracle_s);
  outlook_json(&object, all, &result->view);
  if (cmd_run_devices(all, &devices)) {
    json_real(&object, "busy_s", devices.busy_s);
    json_real(&object, "idle_s", devices.idle_s);
  }
  if (given->verify) {
    json_real(&object, "max_abs_error", result->errors.max_abs_error);
    json_real(&object, "one_call_error", result->errors.one_call_error);
    if (given->lse) json_real(&object, "max_lse_error", result->errors.max_lse_error);
    if (given->method != TWH_METHOD_EXACT) {
      json_real(&object, "median_rel_error", result->errors.median_rel_error);
      json_real(&object, "max_rel_error", result->errors.max_rel_error);
    }
  }
  json_close(&object);
  putchar('\n');
}

static void cmd_run_text(const options *given, const setup *all, const cmd_run_result *result)
{
  const twh_run_stats *stats = &result->view.stats;
  sim_figures          devices;

  printf("calls              %10lld   at least %lld for any plan\n", (long long)all->info.calls,
         (long long)all->info.lower_bound_calls);
  for (int i = 0; i < all->oracles && all->oracles > 1; ++i) {
    printf("  on kernel %-2d     %10lld   %s\n", i, (long long)all->calls[i], given->oracle[i]);
  }
  if (all->info.estimate_calls > 0) printf("  for the estimate %10lld\n", (long long)all->info.estimate_calls);
  printf("repair calls       %10lld   replacing %lld rows\n", (long long)stats->repair_calls, (long long)stats->repaired_rows);
  printf("rows on the host   %10lld\n", (long long)stats->host_rows);
  if (given->method != TWH_METHOD_EXACT) {
    printf("keys drawn         %10lld   results are %s\n", (long long)all->info.sampled_keys,
           all->info.drawn_tiles > 0 ? "estimates" : "exact: there was nothing to gain by drawing");
  }
  outlook_text(given, all, &result->view);
  printf("time             %10.4f s   %.4f s of it in the kernel\n", stats->wall_s, stats->oracle_s);
  if (cmd_run_devices(all, &devices)) {
    printf("accelerator      %10.4f s   busy, and idle between batches for %.4f s\n", devices.busy_s, devices.idle_s);
  }
  if (!given->verify) return;
  printf("largest error      %10.3g   one call of full length: %.3g\n", result->errors.max_abs_error,
         result->errors.one_call_error);
  if (given->method != TWH_METHOD_EXACT) {
    printf("error of a row     %10.3g   in the median, relative; largest: %.3g\n", result->errors.median_rel_error,
           result->errors.max_rel_error);
  }
  if (given->lse) printf("largest lse error  %10.3g\n", result->errors.max_lse_error);
}

/* A NaN that a comparison met is a failure, whatever else went well. */
static int cmd_run_judge(const options *given, const cmd_run_result *result, complaint *error)
{
  if (!given->verify) return 0;
  if (isnan(result->errors.max_abs_error) || isnan(result->errors.max_lse_error) || isnan(result->errors.max_rel_error)) {
    return complaint_make(error, EXIT_FAILED, "--verify: the result, or what it is compared with, holds NaN");
  }
  if (isnan(result->errors.one_call_error)) {
    return complaint_make(error, EXIT_FAILED, "--verify: one call of full length gives NaN");
  }
  return 0;
}

/* The trace stays open until nothing else can fail: a command that fails leaves none. */
int cmd_run(const options *given, complaint *error)
{
  setup          all;
  cmd_run_result result;
  timeline      *trace = NULL;
  int            failed, judged, closed;

  memset(&result, 0, sizeof result);
  failed = setup_create(given, OPTIONS_RUN, &all, error);
  if (!failed && given->out) failed = outfile_try(given->out, error);
  if (!failed && given->lse) failed = outfile_try(given->lse, error);
  if (!failed && given->trace) failed = outfile_try(given->trace, error);
  if (!failed) failed = cmd_run_allocate(given, &all.work, &result, error);
  if (!failed) failed = cmd_run_open(given, &trace, error);
  if (!failed) failed = cmd_run_execute(&all, trace, &result, error);
  if (!failed && result.error.data) failed = outlook_read(&result.out, &result.error, &result.view, error);
  if (!failed && given->out) failed = npy_write(given->out, &result.out, error);
  if (!failed && given->lse) failed = npy_write(given->lse, &result.lse, error);
  if (!failed && given->verify) failed = verify_run(&all, &result.out, &result.lse, given->verify_rows, &result.errors, error);
  judged = failed ? failed : cmd_run_judge(given, &result, error);
  closed = cmd_run_close(trace, judged, error);
  if (!failed && closed == judged) { /* figures are shown also where they are judged a failure */
    if (given->json)
      cmd_run_json(given, &all, &result);
    else
      cmd_run_text(given, &all, &result);
  }
  npy_free(&result.out);
  npy_free(&result.lse);
  npy_free(&result.error);
  setup_destroy(&all);
  return closed;
}
