/* twoheads check: does a kernel do what its description says? */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "json.h"
#include "oracles.h"
#include "setup.h"
#include "wording.h"

typedef struct cmd_check_row {
  char   *promise, *detail;
  int32_t verdict;
} cmd_check_row;

/* Rows are kept until all are there: the width of a column is known at the end only. */
typedef struct cmd_check_table {
  cmd_check_row *rows;
  size_t         count, room;
  int            incomplete; /* a row could not be kept */
} cmd_check_table;

static char *cmd_check_copy(const char *text)
{
  size_t bytes = strlen(text) + 1;
  char  *copy = (char *)malloc(bytes);

  if (copy) memcpy(copy, text, bytes);
  return copy;
}

static void cmd_check_report(void *user, const char *promise, int32_t verdict, const char *detail)
{
  cmd_check_table *table = (cmd_check_table *)user;
  cmd_check_row   *row;

  if (table->count == table->room) {
    size_t room = table->room ? 2 * table->room : 32;
    row = (cmd_check_row *)realloc(table->rows, room * sizeof *row);
    if (!row) {
      table->incomplete = 1;
      return;
    }
    table->rows = row;
    table->room = room;
  }
  row = &table->rows[table->count];
  row->promise = cmd_check_copy(promise);
  row->detail = cmd_check_copy(detail ? detail : "");
  row->verdict = verdict;
  ++table->count;
  if (!row->promise || !row->detail) table->incomplete = 1;
}

static const char *cmd_check_verdict(int32_t verdict)
{
  return verdict == TWH_CHECK_HOLDS ? "holds" : verdict == TWH_CHECK_SKIPPED ? "skipped" : "UNTRUE";
}

static void cmd_check_print(const cmd_check_table *table, int64_t untrue)
{
  size_t width = strlen("promise"), skipped = 0;

  for (size_t i = 0; i < table->count; ++i) {
    if (strlen(table->rows[i].promise) > width) width = strlen(table->rows[i].promise);
    skipped += table->rows[i].verdict == TWH_CHECK_SKIPPED;
  }
  printf("%-*s  %-7s  %s\n", (int)width, "promise", "verdict", "detail");
  for (size_t i = 0; i < table->count; ++i) {
    const cmd_check_row *row = &table->rows[i];
    printf("%-*s  %-7s  %s\n", (int)width, row->promise, cmd_check_verdict(row->verdict), row->detail);
  }
  printf("%zu hold, %lld untrue, %zu skipped\n", table->count - skipped - (size_t)untrue, (long long)untrue, skipped);
}

static void cmd_check_json(const cmd_check_table *table)
{
  for (size_t i = 0; i < table->count; ++i) {
    json_object object;
    fputs(i ? ",\n " : "[", stdout);
    json_open(&object, stdout);
    json_text(&object, "promise", table->rows[i].promise);
    json_text(&object, "verdict", cmd_check_verdict(table->rows[i].verdict));
    json_text(&object, "detail", table->rows[i].detail);
    json_close(&object);
  }
  puts(table->count ? "]" : "[]");
}

static int cmd_check_run(const options *given, const twh_context *context, const twh_oracle *oracle, complaint *error)
{
  cmd_check_table table;
  twh_error       failure;
  twh_status      status;
  int64_t         untrue = 0;
  int             failed = 0;

  memset(&table, 0, sizeof table);
  twh_error_init(&failure);
  status = twh_oracle_check(context, oracle, cmd_check_report, &table, &untrue, &failure);
  if (status < 0)
    failed = wording_complain(error, &failure, NULL);
  else if (table.incomplete)
    failed = complaint_make(error, EXIT_FAILED, "not enough memory for the table");
  else if (given->json)
    cmd_check_json(&table);
  else
    cmd_check_print(&table, untrue);
  for (size_t i = 0; i < table.count; ++i) {
    free(table.rows[i].promise);
    free(table.rows[i].detail);
  }
  free(table.rows);
  return failed ? failed : untrue ? EXIT_FAILED : 0;
}

int cmd_check(const options *given, complaint *error)
{
  oracles_default from;
  oracle_spec     spec;
  setup_host      host;
  twh_oracle     *oracle = NULL;
  int             failed = oracle_spec_parse(given->oracle[0], &spec, error);

  if (failed) return failed;
  memset(&from, 0, sizeof from);
  from.qk_dim = from.v_dim = 64;
  from.scale = (double)NAN;
  from.concurrent = 1;
  failed = setup_host_create(1, &host, error);
  if (!failed) failed = oracles_create(&spec, &from, host.context, &oracle, error);
  if (!failed) failed = cmd_check_run(given, host.context, oracle, error);
  twh_oracle_destroy(oracle);
  setup_host_destroy(&host);
  oracle_spec_finish(&spec);
  return failed;
}
