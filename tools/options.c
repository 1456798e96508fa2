/* Parsing the command line by a table: see options.h. */
#include <stddef.h>
#include <string.h>

#include "number.h"
#include "options.h"

/* TEXTS: may be given several times. MAYBE: a flag that may have a whole number behind `=`; MAYBE_TEXT: a flag that may have a
 * text behind `=` or as the next argument. */
enum { OPTIONS_FLAG, OPTIONS_WHOLE, OPTIONS_REAL, OPTIONS_TEXT, OPTIONS_TEXTS, OPTIONS_MAYBE, OPTIONS_MAYBE_TEXT };

typedef struct options_row {
  const char *name;
  int         commands, kind;
  size_t      offset, extra; /* of the field; and of the one that says it is given (TEXTS: how often), 0: there is none */
  const char *value, *help;
} options_row;

#define OPTIONS_FIELD(field) offsetof(options, field)
#define OPTIONS_BOTH         (OPTIONS_PLAN | OPTIONS_RUN)
#define OPTIONS_ALL          (OPTIONS_PLAN | OPTIONS_RUN | OPTIONS_CHECK)

static const options_row options_rows[] = {
  { "--q-len", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(q_len), 0, "N", "queries of a sequence (required without --lens)" },
  { "--kv-len", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(kv_len), 0, "N", "keys of a sequence; default: --q-len" },
  { "--batch", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(batch), 0, "B", "sequences; default: 1" },
  { "--q-heads", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(q_heads), 0, "H", "query heads; default: 1" },
  { "--kv-heads", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(kv_heads), 0, "H", "key/value heads; default: --q-heads" },
  { "--dim", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(dim), 0, "D", "head dimension of queries and keys; default: 64" },
  { "--v-dim", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(v_dim), 0, "D", "head dimension of values; default: --dim" },
  { "--random", OPTIONS_RUN, OPTIONS_WHOLE, OPTIONS_FIELD(random_seed), OPTIONS_FIELD(random), "SEED",
    "in place of files: f4 arrays of the sizes above, about normal, of mean 0 and deviation 1" },
  { "--q", OPTIONS_RUN, OPTIONS_TEXT, OPTIONS_FIELD(q), 0, "FILE",
    "queries, .npy: [N,d], [H,N,d] or [B,H,N,d] (required without --random)" },
  { "--k", OPTIONS_RUN, OPTIONS_TEXT, OPTIONS_FIELD(k), 0, "FILE", "keys (required without --random)" },
  { "--v", OPTIONS_RUN, OPTIONS_TEXT, OPTIONS_FIELD(v), 0, "FILE", "values (required without --random)" },
  { "-o", OPTIONS_RUN, OPTIONS_TEXT, OPTIONS_FIELD(out), 0, "FILE",
    "where the result goes, in the type of the queries (required without --random)" },
  { "--lse", OPTIONS_RUN, OPTIONS_TEXT, OPTIONS_FIELD(lse), 0, "FILE",
    "where the log-sum-exp goes: f4, or f8 where the queries are f8" },
  { "--bf16", OPTIONS_RUN, OPTIONS_FLAG, OPTIONS_FIELD(bf16), 0, NULL, "arrays of u2 hold bfloat16" },
  { "--lens", OPTIONS_BOTH, OPTIONS_TEXT, OPTIONS_FIELD(lens), 0, "L1,L2,...",
    "a ragged batch: self-attentions of these lengths, one behind the other in the arrays" },
  { "--batch-lens", OPTIONS_BOTH, OPTIONS_TEXT, OPTIONS_FIELD(batch_lens), 0, "FILE",
    "the same from a text file: whole numbers, apart by blanks, commas or new lines" },
  { "--causal", OPTIONS_BOTH, OPTIONS_FLAG, OPTIONS_FIELD(causal), 0, NULL, "a query sees the keys up to its own position" },
  { "--left", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(left), 0, "L",
    "keys it sees before its position; -1 = all (default)" },
  { "--right", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(right), 0, "R",
    "keys it sees after its position; -1 = all (default)" },
  { "--sink-tokens", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(sink_tokens), 0, "S",
    "the first S keys are seen despite --left, --right" },
  { "--q-offset", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(q_offset), 0, "P", "position of the first query; default: 0" },
  { "--scale", OPTIONS_BOTH, OPTIONS_REAL, OPTIONS_FIELD(scale), OPTIONS_FIELD(has_scale), "X",
    "default: 1 / sqrt(head dimension)" },
  { "--softcap", OPTIONS_BOTH, OPTIONS_REAL, OPTIONS_FIELD(softcap), 0, "C",
    "scores x are capped to C tanh(x / C); default: 0, not" },
  { "--alibi", OPTIONS_BOTH, OPTIONS_MAYBE_TEXT, OPTIONS_FIELD(slopes), OPTIONS_FIELD(alibi), "[=FILE]",
    "head h adds slope_h (j - p) to the score of query p and key j; FILE: .npy [Hq]; without: 2^(-8h/H), h from 1" },
  { "--key-bias", OPTIONS_BOTH, OPTIONS_TEXT, OPTIONS_FIELD(key_bias), 0, "FILE",
    ".npy, broadcast to [B,Hq,keys]: numbers added to the scores of each key" },
  { "--sink-logits", OPTIONS_BOTH, OPTIONS_TEXT, OPTIONS_FIELD(sink_logits), 0, "FILE",
    ".npy [Hq]: a logit of each head that has no value" },
  { "--mask", OPTIONS_BOTH, OPTIONS_TEXT, OPTIONS_FIELD(mask), 0, "FILE",
    ".npy, broadcast to [B,Hq,N,keys]: bool (true = seen), or numbers added to the scores" },
  { "--oracle", OPTIONS_ALL, OPTIONS_TEXTS, OPTIONS_FIELD(oracle), OPTIONS_FIELD(oracles), "NAME[,...]",
    "the kernel, see below; plan and run take several; default: cpu,lse" },
  { "--method", OPTIONS_BOTH, OPTIONS_TEXT, OPTIONS_FIELD(method_name), 0, "METHOD",
    "exact (default), sampled: keys are drawn and count for others, or hybrid: near and first keys exact besides" },
  { "--seed", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(seed), 0, "S", "of the draws of --method; default: 0" },
  { "--samples", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(samples), 0, "K",
    "blocks of drawn keys for each block of queries; default: --strata" },
  { "--strata", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(strata), 0, "C",
    "parts of the keys that are drawn from apart, --samples / C blocks each; default: 1" },
  { "--exact-sinks", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(exact_sinks), 0, "S",
    "hybrid: the first S keys are exact, in whole blocks; default: 1" },
  { "--exact-window", OPTIONS_BOTH, OPTIONS_WHOLE, OPTIONS_FIELD(exact_window), 0, "W",
    "hybrid: and W keys to either side of each query, in whole blocks; default: 0" },
  { "--estimate", OPTIONS_BOTH, OPTIONS_MAYBE_TEXT, OPTIONS_FIELD(estimate_name), OPTIONS_FIELD(has_estimate), "[=HOW]",
    "tell errors of rows by HOW: replicates of 2 or more --samples, or doubled: in more calls; bare: doubled below 2" },
  { "--target-error", OPTIONS_BOTH, OPTIONS_REAL, OPTIONS_FIELD(target_error), OPTIONS_FIELD(has_target), "E",
    "with --estimate: blocks of queries with one whose relative error is estimated above E are computed exactly" },
  { "--bound-c", OPTIONS_BOTH, OPTIONS_REAL, OPTIONS_FIELD(bound_c), OPTIONS_FIELD(has_c), "C",
    "plan: bound errors if e^logit is in 1/C .. C, but for a factor of each query's own; run: check a few. With --bound-d" },
  { "--bound-d", OPTIONS_BOTH, OPTIONS_REAL, OPTIONS_FIELD(bound_d), OPTIONS_FIELD(has_d), "D",
    "the same: and if no value row is longer than D times a row of the result" },
  { "--measure", OPTIONS_BOTH, OPTIONS_FLAG, OPTIONS_FIELD(measure), 0, NULL,
    "time a few calls of each kernel and plan by that, not by cost_us" },
  { "--verify", OPTIONS_RUN, OPTIONS_MAYBE, OPTIONS_FIELD(verify_rows), OPTIONS_FIELD(verify), "[=ROWS]",
    "compare the result with float64, by rows where keys are drawn, and with one call; ROWS = that many rows of each head" },
  { "--threads", OPTIONS_RUN, OPTIONS_WHOLE, OPTIONS_FIELD(threads), 0, "T", "threads to work with; default: 1" },
  { "--trace", OPTIONS_RUN, OPTIONS_TEXT, OPTIONS_FIELD(trace), 0, "FILE",
    "write what happened when, as Chrome trace events in JSON, which Perfetto opens" },
  { "--svg", OPTIONS_PLAN, OPTIONS_TEXT, OPTIONS_FIELD(svg), 0, "FILE",
    "draw the pattern with its tiles, and how they fill slots" },
  { "--json", OPTIONS_ALL, OPTIONS_FLAG, OPTIONS_FIELD(json), 0, NULL, "print JSON" },
  { "--help", OPTIONS_ALL, OPTIONS_FLAG, OPTIONS_FIELD(help), 0, NULL, "print this" },
};

enum { OPTIONS_ROWS = sizeof options_rows / sizeof options_rows[0], OPTIONS_THREADS_MAX = 1024 };

typedef struct options_command_row {
  int         command;
  const char *name, *usage, *what;
} options_command_row;

static const options_command_row options_commands[] = {
  { OPTIONS_PLAN, "plan", "PROBLEM ORACLE [--json] [--svg PLAN.svg]",
    "say which calls of a kernel a problem takes, without computing anything" },
  { OPTIONS_RUN, "run", "PROBLEM ORACLE --q Q.npy --k K.npy --v V.npy -o OUT.npy [...], or --random SEED and sizes",
    "compute the attention of arrays; sizes go with --random only" },
  { OPTIONS_CHECK, "check", "ORACLE [--json]", "run a kernel against its own description" },
};

enum { OPTIONS_COMMANDS = sizeof options_commands / sizeof options_commands[0] };

static const char options_plan_help[] =
  "\n"
  "In JSON calls_per_n_over_m is calls / (N / M): N query rows over all sequences and heads, M rows in a slot.\n"
  "Of calls estimate_calls only serve --estimate; with --target-error at most exact_calls_max come on top.\n"
  "error_bound, of --bound-c and --bound-d, is relative to the length of a row of the result; 95 of 100 rows keep it.\n";

static const char options_run_help[] =
  "\n"
  "In JSON estimated_error has the median and the 95th percentile over all rows of what --estimate tells: a bound of\n"
  "a row's error that is right in 95 of 100 cases, relative to the length of the row; 0 where no keys were drawn, null\n"
  "(unknown) where one drawn key outweighs all others. exact_rows were computed in further rounds, of exact_calls calls,\n"
  "for --target-error. assumption_holds: whether logits of a few pairs are near enough to each other for drawn keys to\n"
  "stand for all (else assumption_words say why not; samples_needed: what it takes). A key that outweighs the others and\n"
  "is not drawn is in no estimate and no check.\n";

static const char options_oracle_help[] =
  "\n"
  "ORACLE is --oracle NAME[,key=value|flag...]\n"
  "  cpu                    attention tiles on this processor; f32, f16 and bf16\n"
  "  blis                   attention tiles on BLIS, f32\n"
  "  reference              plain loops in float64, rounding to its dtype; slow and exact\n"
  "  sim                    a simulated accelerator in real time; results of reference\n"
  "  plugin:FILE.so         a kernel in a shared object; what follows the name is handed to it\n"
  "  len=M                  its length: q_len and k_len; default: 256\n"
  "  q_len=M, k_len=M       queries and keys of one slot; default: len\n"
  "  slots=S                attentions in one call; default: 1\n"
  "  qk=D, v=D              dimensions; default: the problem's (64 without one); what it does not need is spare\n"
  "  dtype=T                f32 (default), f16, bf16\n"
  "  scale=X, softcap=C     what it does to scores; default: the problem's scale, no cap\n"
  "  cost_us=T              microseconds of one call, for an estimate\n"
  "  isa=I                  cpu: portable, avx2, avx512 or neon; default: the best that there is\n"
  "  batch_us=T, call_us=T  sim: microseconds of each batch, and of each call in it; default: 0\n"
  "  gbps=X                 sim: 10^9 bytes of operands and results in a second; default: no limit\n"
  "  depth=N, batch=N       sim: batches that it holds, default 2; most calls of a batch, default 8\n"
  "  nomask, causal, mask   the masks it has: none, its own causal one, a mask operand; default: all three\n"
  "  lse, lse2              it returns the log-sum-exp, base e or base 2; default: it does not\n";

int options_command(const char *name)
{
  for (int i = 0; i < OPTIONS_COMMANDS; ++i) {
    if (!strcmp(options_commands[i].name, name)) return options_commands[i].command;
  }
  return 0;
}

static const options_command_row *options_row_of(int command)
{
  const options_command_row *row = options_commands;

  while (row->command != command) ++row;
  return row;
}

const char *options_command_name(int command)
{
  return options_row_of(command)->name;
}

void options_help(FILE *to, int command)
{
  const options_command_row *own = options_row_of(command);

  fprintf(to, "usage: twoheads %s %s\n%s\n\n", own->name, own->usage, own->what);
  for (int i = 0; i < OPTIONS_ROWS; ++i) {
    const options_row *row = &options_rows[i];
    char               left[40];
    if (!(row->commands & command)) continue;
    snprintf(left, sizeof left, "%s%s%s", row->name, row->value && row->value[0] != '[' ? " " : "",
             row->value ? row->value : "");
    fprintf(to, "  %-22s %s\n", left, row->help);
  }
  fputs(options_oracle_help, to);
  if (command == OPTIONS_PLAN) fputs(options_plan_help, to);
  if (command == OPTIONS_RUN) fputs(options_run_help, to);
}

/* The row whose name is the first `length` characters of `text`. */
static const options_row *options_find(const char *text, size_t length)
{
  for (int i = 0; i < OPTIONS_ROWS; ++i) {
    if (strlen(options_rows[i].name) == length && !memcmp(options_rows[i].name, text, length)) return &options_rows[i];
  }
  return NULL;
}

/* Store the value of one option; `value` is NULL where none was given. */
static int options_store(options *out, const options_row *row, const char *value, complaint *error)
{
  char       *field = (char *)out + row->offset;
  int        *extra = (int *)(void *)((char *)out + row->extra); /* used only where row->extra is not 0 */
  const char *wrong = NULL;

  if (row->kind == OPTIONS_FLAG) *(int *)(void *)field = 1;
  if (row->kind == OPTIONS_TEXT || row->kind == OPTIONS_MAYBE_TEXT) *(const char **)(void *)field = value;
  if (row->kind == OPTIONS_TEXTS) {
    if (*extra == OPTIONS_ORACLES_MAX) {
      return complaint_make(error, EXIT_USAGE, "%s is given more than %d times", row->name, (int)OPTIONS_ORACLES_MAX);
    }
    ((const char **)(void *)field)[*extra] = value;
  }
  if (row->kind == OPTIONS_REAL) wrong = number_real(value, (double *)(void *)field);
  if (row->kind == OPTIONS_WHOLE || (row->kind == OPTIONS_MAYBE && value)) {
    wrong = number_whole(value, (int64_t *)(void *)field);
  }
  if (row->extra) ++*extra;
  return wrong ? complaint_make(error, EXIT_USAGE, "%s: '%s' %s", row->name, value, wrong) : 0;
}

int options_by_sizes(const options *given, int command)
{
  return command == OPTIONS_PLAN || given->random;
}

/* What is missing of the problem and where its result goes. */
static const char *options_missing(const options *out, int command)
{
  int ragged = out->lens || out->batch_lens;

  if (command == OPTIONS_RUN && !out->random)
    return !out->q ? "--q" : !out->k ? "--k" : !out->v ? "--v" : !out->out ? "-o" : NULL;
  return command != OPTIONS_CHECK && !ragged && out->q_len == OPTIONS_ABSENT ? "--q-len" : NULL;
}

/* Options that say the same thing in two ways; NULL where there are none. */
static const char *options_excluded(const options *out, int command)
{
  int sizes = out->q_len != OPTIONS_ABSENT || out->kv_len != OPTIONS_ABSENT || out->batch != OPTIONS_ABSENT;
  int more = out->q_heads != OPTIONS_ABSENT || out->kv_heads != OPTIONS_ABSENT || out->dim != OPTIONS_ABSENT ||
             out->v_dim != OPTIONS_ABSENT;

  if (command == OPTIONS_RUN && !out->random && (sizes || more)) return "sizes go with --random; arrays have their own";
  if (out->random && (out->q || out->k || out->v)) return "--random and --q, --k, --v exclude each other";
  if (out->lens && out->batch_lens) return "--lens and --batch-lens exclude each other";
  if ((out->lens || out->batch_lens) && sizes) return "--q-len, --kv-len and --batch follow from --lens";
  if (out->lse && out->out && !strcmp(out->lse, out->out)) return "-o and --lse are the same file";
  if (out->trace && ((out->out && !strcmp(out->trace, out->out)) || (out->lse && !strcmp(out->trace, out->lse)))) {
    return "--trace is the same file as -o or --lse";
  }
  if (command == OPTIONS_CHECK && out->oracles > 1) return "--oracle is given twice; check takes one";
  return NULL;
}

static const char *const options_methods[] = { "exact", "sampled", "hybrid" }; /* by TWH_METHOD_ */

enum { OPTIONS_METHODS = sizeof options_methods / sizeof options_methods[0] };

const char *options_method_name(int32_t method)
{
  return options_methods[method];
}

static const char *const options_estimates[] = { "none", "replicates", "doubled" }; /* by TWH_ESTIMATE_ */

enum { OPTIONS_ESTIMATES = sizeof options_estimates / sizeof options_estimates[0] };

const char *options_estimate_name(int32_t estimate)
{
  return options_estimates[estimate];
}

/* Replicates cost no calls, but one sample is none. */
static int options_read_estimate(options *out, complaint *error)
{
  int64_t samples = out->samples != OPTIONS_ABSENT ? out->samples : out->strata;

  if (!out->has_estimate) return 0;
  if (!out->estimate_name) out->estimate = samples < 2 ? TWH_ESTIMATE_DOUBLED : TWH_ESTIMATE_REPLICATES;
  while (out->estimate_name && out->estimate < OPTIONS_ESTIMATES &&
         strcmp(out->estimate_name, options_estimates[out->estimate]))
    ++out->estimate;
  if (out->estimate < OPTIONS_ESTIMATES) return 0;
  return complaint_make(error, EXIT_USAGE, "--estimate: '%s' is none of none, replicates, doubled", out->estimate_name);
}

/* The estimate by its name, and what is said of errors. */
static int options_errors(options *out, complaint *error)
{
  const char *const names[] = { "--estimate", "--target-error", "--bound-c", "--bound-d" };
  const double      values[] = { 1.0, out->target_error, out->bound_c, out->bound_d };
  int               failed = options_read_estimate(out, error);
  const int         given[] = { out->estimate != TWH_ESTIMATE_NONE, out->has_target, out->has_c, out->has_d };

  for (int i = 0; i < 4 && !failed; ++i) {
    if (!given[i]) continue;
    if (out->method == TWH_METHOD_EXACT) {
      return complaint_make(error, EXIT_USAGE, "%s goes with --method sampled or hybrid", names[i]);
    }
    if (i == 1 && !(values[i] > 0.0)) return complaint_make(error, EXIT_USAGE, "%s: %g is not above 0", names[i], values[i]);
    if (i > 1 && !(values[i] >= 1.0)) return complaint_make(error, EXIT_USAGE, "%s: %g is less than 1", names[i], values[i]);
  }
  if (failed) return failed;
  if (out->has_target && out->estimate == TWH_ESTIMATE_NONE) {
    return complaint_make(error, EXIT_USAGE, "--target-error goes with --estimate");
  }
  if (!out->has_c != !out->has_d) return complaint_make(error, EXIT_USAGE, "--bound-c and --bound-d go together");
  return 0;
}

/* The method by its name, and the options that go with some methods only. */
static int options_method(options *out, complaint *error)
{
  const char *const names[] = { "--seed", "--samples", "--strata", "--exact-sinks", "--exact-window" };
  const int64_t     values[] = { out->seed, out->samples, out->strata, out->exact_sinks, out->exact_window };
  const int64_t     least[] = { INT64_MIN, 1, 1, 1, 0 };

  while (out->method_name && out->method < OPTIONS_METHODS && strcmp(out->method_name, options_methods[out->method]))
    ++out->method;
  if (out->method == OPTIONS_METHODS) {
    return complaint_make(error, EXIT_USAGE, "--method: '%s' is none of exact, sampled, hybrid", out->method_name);
  }
  for (int i = 0; i < 5; ++i) {
    if (values[i] == OPTIONS_ABSENT) continue;
    if (out->method == TWH_METHOD_EXACT || (i >= 3 && out->method != TWH_METHOD_HYBRID)) {
      return complaint_make(error, EXIT_USAGE, "%s goes with --method %shybrid", names[i], i < 3 ? "sampled or " : "");
    }
    if (values[i] < least[i]) {
      return complaint_make(error, EXIT_USAGE, "%s: %lld is less than %lld", names[i], (long long)values[i],
                            (long long)least[i]);
    }
  }
  return 0;
}

/* What is missing, or of no use. */
static int options_complete(options *out, int command, complaint *error)
{
  const char *missing = options_missing(out, command), *excluded = options_excluded(out, command);

  if (!out->oracles) out->oracle[out->oracles++] = "cpu,lse";
  if (excluded) return complaint_make(error, EXIT_USAGE, "%s", excluded);
  if (missing) {
    const char *name = options_command_name(command);
    return complaint_make(error, EXIT_USAGE, "%s needs %s (twoheads %s --help)", name, missing, name);
  }
  if (out->threads < 1 || out->threads > OPTIONS_THREADS_MAX) {
    return complaint_make(error, EXIT_USAGE, "--threads: %lld is not in 1..%d", (long long)out->threads,
                          (int)OPTIONS_THREADS_MAX);
  }
  if (out->verify_rows != OPTIONS_ABSENT && out->verify_rows < 1) {
    return complaint_make(error, EXIT_USAGE, "--verify: %lld rows are none to compare", (long long)out->verify_rows);
  }
  return options_method(out, error) ? EXIT_USAGE : options_errors(out, error);
}

static void options_default(options *out)
{
  memset(out, 0, sizeof *out);
  out->left = out->right = -1;
  out->batch = out->q_heads = out->kv_heads = out->q_len = out->kv_len = out->dim = out->v_dim = OPTIONS_ABSENT;
  out->verify_rows = OPTIONS_ABSENT;
  out->seed = out->samples = out->strata = out->exact_sinks = out->exact_window = OPTIONS_ABSENT;
  out->threads = 1;
}

int options_parse(int argc, char **argv, int command, options *out, complaint *error)
{
  const char *name = options_command_name(command);
  uint64_t    given = 0;

  options_default(out);
  for (int i = 0; i < argc; ++i) {
    const char        *equals = strchr(argv[i], '='), *value = NULL;
    size_t             length = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
    const options_row *row = options_find(argv[i], length);
    int                failed;

    if (!strcmp(argv[i], "-h")) row = options_find("--help", 6);
    if (argv[i][0] != '-') return complaint_make(error, EXIT_USAGE, "'%s' is no option (twoheads %s --help)", argv[i], name);
    if (!row) return complaint_make(error, EXIT_USAGE, "'%s' is not known (twoheads %s --help)", argv[i], name);
    if (!(row->commands & command)) {
      return complaint_make(error, EXIT_USAGE, "%s is no option of %s (twoheads %s --help)", row->name, name, name);
    }
    if (row->kind != OPTIONS_TEXTS && given >> (row - options_rows) & 1)
      return complaint_make(error, EXIT_USAGE, "%s is given twice", row->name);
    given |= (uint64_t)1 << (row - options_rows);
    if (equals) value = equals + 1;
    if (row->kind == OPTIONS_FLAG && equals) return complaint_make(error, EXIT_USAGE, "%s takes no value", row->name);
    if (row->kind == OPTIONS_MAYBE_TEXT && !equals && i + 1 < argc && argv[i + 1][0] != '-') value = argv[++i];
    if (row->kind != OPTIONS_FLAG && row->kind != OPTIONS_MAYBE && row->kind != OPTIONS_MAYBE_TEXT && !equals) {
      if (i + 1 == argc) return complaint_make(error, EXIT_USAGE, "%s needs a value: %s", row->name, row->value);
      value = argv[++i];
    }
    failed = options_store(out, row, value, error);
    if (failed) return failed;
    if (out->help) return 0;
  }
  return options_complete(out, command, error);
}
