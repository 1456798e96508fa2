/* What a query sees: the pattern, and its cover by patches on a grid.
 *
 * A sequence is first reduced to a span (full, or causal); the cover then cuts the span's rows into units and each unit's keys
 * into blocks, so that every visible pair lies in exactly one patch and no invisible one in any. Analytic: nothing is stored
 * and every question is answered in O(1). */
#ifndef TWH_CORE_PATTERN_H
#define TWH_CORE_PATTERN_H

#include "core/base/base.h"
#include "core/records.h"

/* Check a pattern (NULL = full) and copy it. TWH_E_ARGUMENT, TWH_E_VERSION. */
twh_status twh__pattern_read(twh_pattern *to, const twh_pattern *pattern, twh_error *error);

/* Whether this version can lower it: TWH_OK, or TWH_E_UNSUPPORTED with the reason. */
twh_status twh__pattern_supported(const twh_pattern *pattern, twh_error *error);

/* Reduce a sequence: clip keys that no query sees, and drop `causal` where it cuts nothing off. group > 1 with rows that all
 * see the same keys become stacked. */
void twh__span_reduce(twh__span *span, const twh_pattern *pattern, int64_t group);

/* Pairs of one head that count. */
double twh__span_pairs(const twh__span *span);

/* ---- the cover; q_block and k_block are the grid ---- */

/* Units of one kv head: query head inside, block of rows innermost. */
int64_t twh__cover_units(const twh__span *span, int64_t group, int64_t q_block);
void    twh__cover_unit(const twh__span *span, int64_t group, int64_t q_block, int64_t index, twh__unit *unit);

/* Key blocks that some row of the unit sees; 0: none. They are numbered from the span's first one. */
int64_t twh__cover_blocks(const twh__span *span, const twh__unit *unit, int64_t k_block);
void    twh__cover_patch(const twh__span *span, const twh__unit *unit, int64_t k_block, int64_t index, twh__patch *patch);

/* How many of a unit's patches from number 1 on are whole blocks that every row sees: they differ in their place only. */
int64_t twh__cover_whole(const twh__span *span, const twh__unit *unit, int64_t k_block);

#endif
