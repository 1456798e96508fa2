/* Patterns: validation, and removal of what has no effect. */
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
  /* causal already ends at the own position */
  if (to->flags & TWH_CAUSAL) to->flags &= ~(uint32_t)TWH_RIGHT;
  if (!(to->flags & TWH_LEFT)) to->left = 0;
  if (!(to->flags & TWH_RIGHT)) to->right = 0;
  /* a window that is open on both sides hides nothing, so sinks add nothing */
  if (!(to->flags & (TWH_LEFT | TWH_RIGHT))) to->sink_tokens = 0;
  return TWH_OK;
}
