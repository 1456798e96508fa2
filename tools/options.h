/* The command line: one table of options for all subcommands, which is what is parsed and what --help prints. */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "complaint.h"
#include "twoheads.h"

/* Subcommands, as a set where an option belongs to several. */
enum { OPTIONS_PLAN = 1, OPTIONS_RUN = 2, OPTIONS_CHECK = 4 };

/* A whole number that was not given. */
#define OPTIONS_ABSENT INT64_MIN

/* Kernels of one plan. */
enum { OPTIONS_ORACLES_MAX = 16 };

typedef struct options {
  int         causal, bf16, json, help, verify, has_scale, measure, alibi, random;
  int64_t     left, right, sink_tokens, q_offset; /* left, right: -1 = open */
  int64_t     batch, q_heads, kv_heads, q_len, kv_len, dim, v_dim;
  double      scale, softcap;
  const char *sink_logits, *mask, *key_bias, *slopes, *lens, *batch_lens; /* as given; NULL = not given */
  const char *q, *k, *v, *out, *lse, *svg, *trace;
  const char *oracle[OPTIONS_ORACLES_MAX];
  int         oracles;                                          /* that were given */
  int64_t     verify_rows, threads;                             /* rows: OPTIONS_ABSENT = all */
  int64_t     random_seed;                                      /* with random */
  int32_t     method;                                           /* TWH_METHOD_* */
  const char *method_name;                                      /* as given */
  int64_t     seed, samples, strata, exact_sinks, exact_window; /* of twh_plan_options; OPTIONS_ABSENT: not given */
  int32_t     estimate;                                         /* TWH_ESTIMATE_* */
  const char *estimate_name;                                    /* as given; NULL: without a name */
  int         has_estimate, has_target, has_c, has_d;
  double      target_error, bound_c, bound_d;
} options;

/* Parse what follows the subcommand's name. Everything that can be known to be wrong without the files is found here. */
int options_parse(int argc, char **argv, int command, options *out, complaint *error);

/* The subcommand of that name, or 0. And back. */
int         options_command(const char *name);
const char *options_command_name(int command);

/* Is the problem given by sizes, not by arrays? */
int options_by_sizes(const options *given, int command);

/* The names that --method and --estimate have for a method and an estimate. */
const char *options_method_name(int32_t method);
const char *options_estimate_name(int32_t estimate);

/* The help of a subcommand. */
void options_help(FILE *to, int command);

#endif
