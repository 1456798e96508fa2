/* What plan and run have in common: a problem, a kernel, and a plan made of them, with the command as the library's host. */
#ifndef TOOLS_SETUP_H
#define TOOLS_SETUP_H

#include "complaint.h"
#include "json.h"
#include "options.h"
#include "oracle_spec.h"
#include "pool.h"
#include "workload.h"

/* The hooks that the command gives to the library: threads, and warnings on standard error. */
typedef struct setup_host {
  pool        *workers; /* NULL: one thread */
  twh_context *context;
} setup_host;

int  setup_host_create(int64_t threads, setup_host *out, complaint *error);
void setup_host_destroy(setup_host *host);

typedef struct setup {
  setup_host    host;
  workload      work;
  int           oracles; /* how many were asked for */
  oracle_spec   spec[OPTIONS_ORACLES_MAX];
  twh_oracle   *oracle[OPTIONS_ORACLES_MAX];
  int64_t       calls[OPTIONS_ORACLES_MAX]; /* planned ones of each */
  twh_plan     *plan;
  twh_plan_info info;
  int           measured;         /* info.cost is in seconds */
  int32_t       method, estimate; /* TWH_METHOD_*, TWH_ESTIMATE_* */
} setup;

/* Everything that `given` asks for; `command` says whether sizes or arrays. Destroy it also after a failure. */
int  setup_create(const options *given, int command, setup *out, complaint *error);
void setup_destroy(setup *all);

/* The time that the planned calls take, in seconds: measured, or by cost_us; 0 where it was not given for each kernel used. */
double setup_estimate(const setup *all);

/* calls / (N / M): N query rows over all sequences and heads, M rows in a slot of the kernel that makes most of the calls. 0
 * where there are no rows. */
double setup_calls_per_block(const setup *all);

/* The members that plan and run have in common. */
void setup_json(json_object *object, const setup *all);

#endif
