/* Patterns: validation, and the reduction of a sequence to what its queries really see. */
#include <string.h>

#include "core/pattern/pattern.h"

twh_status twh__pattern_read(twh_pattern *to, const twh_pattern *pattern, twh_error *error)
{
  twh_status status;

  if (!pattern) {
    twh_pattern_init(to);
    return TWH_OK;
  }
  status = twh__struct_read(to, sizeof *to, sizeof *to, pattern, "problem.pattern", error);
  if (TWH__FAILED(status)) return status;
  if (to->flags & ~(uint32_t)(TWH_CAUSAL | TWH_LEFT | TWH_RIGHT)) {
    return twh__fail(error, TWH_E_VERSION, "problem.pattern.flags has unknown bits: 0x%x", (unsigned)to->flags);
  }
  if (to->left < 0) return twh__fail(error, TWH_E_ARGUMENT, "problem.pattern.left is negative; without TWH_LEFT it is open");
  if (to->right < 0) return twh__fail(error, TWH_E_ARGUMENT, "problem.pattern.right is negative; without TWH_RIGHT it is open");
  if (to->sink_tokens < 0) return twh__fail(error, TWH_E_ARGUMENT, "problem.pattern.sink_tokens is negative");
  if (!(to->flags & TWH_LEFT)) to->left = 0;
  if (!(to->flags & TWH_RIGHT)) to->right = 0;
  /* a window that is open on both sides hides nothing, so sinks add nothing */
  if (!(to->flags & (TWH_LEFT | TWH_RIGHT))) to->sink_tokens = 0;
  /* causal already ends at the own position */
  if (to->flags & TWH_CAUSAL) to->flags &= ~(uint32_t)TWH_RIGHT;
  return TWH_OK;
}

twh_status twh__pattern_supported(const twh_pattern *pattern, twh_error *error)
{
  if (pattern->flags & TWH_LEFT) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "problem.pattern: TWH_LEFT (sliding windows) is not lowered by this version");
  }
  if (pattern->flags & TWH_RIGHT) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "problem.pattern: TWH_RIGHT without TWH_CAUSAL is not lowered by this version");
  }
  return TWH_OK;
}

void twh__span_reduce(twh__span *span, const twh_pattern *pattern, int64_t group)
{
  int64_t last = span->q_offset + span->q_len - 1;  /* positions of the last and first query */
  int64_t first = span->q_offset;

  span->causal = (pattern->flags & TWH_CAUSAL) != 0;
  if (span->q_len == 0 || span->k_len == 0) {
    span->k_len = 0;
    span->causal = 0;
  } else if (span->causal) {
    span->k_len = twh__max(0, twh__min(span->k_len, last - span->k_offset + 1));
    if (first - span->k_offset + 1 >= span->k_len) span->causal = 0;
  }
  span->stacked = !span->causal && group > 1 && span->k_len > 0;
}

double twh__span_pairs(const twh__span *span)
{
  double q = (double)span->q_len, k = (double)span->k_len, start, ramp;

  if (!span->causal) return q * k;
  /* row i sees clamp(i + start, 0, k) keys; by the reduction the last one sees all k */
  start = (double)(span->q_offset - span->k_offset + 1);
  ramp = k - start;                               /* rows from the start on until all keys are seen */
  if (start >= 0) return (q - ramp) * k + ramp * start + ramp * (ramp - 1) / 2;
  return (q + start - k) * k + k * (k - 1) / 2;   /* the first -start rows see nothing */
}
