/* Blocks of rows whose estimated errors are too large are computed once more, with no key drawn.
 *
 * Which rows these are was noted as they were written. A plan of its own, of the same problem, makes blocks of them; those with such a
 * row are executed, and write over what stood there. */
#include <string.h>

#include "core/run/run.h"

/* 1: some row of the unit is flagged. */
static int exact_is_wanted(const twh__run *run, const twh__span *span, const twh__unit *unit)
{
  const twh_plan *plan = run->plan;

  for (int64_t r = 0; r < unit->rows; ++r) {
    int64_t head, row;
    twh__unit_row(unit, span, r, &head, &row);
    if (run->row_flags[(span->batch * plan->shape.q_heads + head) * plan->q_rows + row]) return 1;
  }
  return 0;
}

/* Flags of the exact plan's units. Returns how many rows those have. */
static int64_t exact_flag_units(const twh__run *run, uint8_t *flags)
{
  const twh_plan *exact = run->plan->exact;
  int64_t         rows = 0;
  twh__unit       unit;

  for (unit.span = 0; unit.span < exact->spans_count; ++unit.span) {
    const twh__span *span = &exact->spans[unit.span];
    const twh__grid *grid = &exact->kernels[span->kernel].lowering.grid;
    int64_t          units = twh__cover_units(span, exact->shape.group, grid);
    for (unit.kv_head = 0; unit.kv_head < exact->shape.kv_heads; ++unit.kv_head) {
      for (int64_t u = 0; u < units; ++u) {
        uint8_t *flag = &flags[span->first_unit + unit.kv_head * units + u];
        twh__cover_unit(span, exact->shape.group, grid, u, &unit);
        *flag = (uint8_t)exact_is_wanted(run, span, &unit);
        rows += *flag ? unit.rows : 0;
      }
    }
  }
  return rows;
}

static void exact_add_stats(twh_run_stats *to, const twh_run_stats *more)
{
  to->calls += more->calls;
  to->batches += more->batches;
  to->repair_calls += more->repair_calls;
  to->repaired_rows += more->repaired_rows;
  to->host_rows += more->host_rows;
  to->encoded_blocks += more->encoded_blocks;
  to->oracle_s += more->oracle_s;
}

twh_status twh__run_exact(twh__run *run, char *workspace, twh_error *error)
{
  const twh_plan *plan = run->plan;
  uint8_t        *units = run->row_flags + plan->batch * plan->shape.q_heads * plan->q_rows;
  int64_t         rows = exact_flag_units(run, units);
  twh__run        again;
  twh_status      status;

  if (rows == 0) return TWH_OK;
  memset(&again, 0, sizeof again);
  twh_run_stats_init(&again.stats);
  again.plan = plan->exact;
  again.q = run->q;
  again.k = run->k;
  again.v = run->v;
  again.out = run->out;
  again.lse = run->lse;
  again.sinks = run->sinks;
  again.key_bias = run->key_bias;
  again.alibi = run->alibi;
  again.error = run->error;
  again.has_lse = run->has_lse;
  again.has_sinks = run->has_sinks;
  again.has_error = run->has_error;
  again.checked = run->checked;
  again.first_call = plan->tally.calls + run->stats.repair_calls;
  again.done_calls = run->done_calls;
  again.batches = run->batches;
  again.waves = run->waves;
  again.begun = run->begun;
  again.options = run->options;
  again.lock = run->lock;
  again.planned_calls = run->planned_calls + plan->exact->tally.calls;
  status = twh__run_units(&again, workspace, units, error);
  exact_add_stats(&run->stats, &again.stats);
  if (!TWH__FAILED(status)) run->stats.exact_rows = rows;
  return status;
}
