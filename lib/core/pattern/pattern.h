/* What a query sees: the pattern, and its cover by patches on a grid.
 *
 * A sequence is first split into spans, whose rows see keys in one manner; the cover then cuts a span's rows into units and
 * each unit's keys into patches, so that every visible pair lies in exactly one patch and no invisible one in any. Analytic:
 * nothing is stored and every question is answered in O(1). */
#ifndef TWH_CORE_PATTERN_H
#define TWH_CORE_PATTERN_H

#include "core/base/base.h"
#include "core/records.h"

/* Check a pattern (NULL = full) and copy it. TWH_E_ARGUMENT, TWH_E_VERSION. */
twh_status twh__pattern_read(twh_pattern *to, const twh_pattern *pattern, twh_error *error);

enum { TWH__MOST_SPANS = 16 };

/* Split a sequence into spans: in row order, every row in exactly one. spans: (TWH__MOST_SPANS). Returns how many; 0 without
 * rows. With group > 1, rows that all see the same keys are a span of their own, and stacked. */
int32_t twh__span_split(const twh_sequence *sequence, int64_t number, int64_t batch, const twh_pattern *pattern, int64_t group,
                        twh__span *spans);

/* Pairs of one head that count. */
double twh__span_pairs(const twh__span *span);

/* ---- the cover ---- */

/* Units of one kv head: query head inside, block of rows innermost. twh__cover_unit leaves unit->span to the caller and reads
 * unit->kv_head. */
int64_t twh__cover_units(const twh__span *span, int64_t group, const twh__grid *grid);
void    twh__cover_unit(const twh__span *span, int64_t group, const twh__grid *grid, int64_t index, twh__unit *unit);

/* Patches of a unit; some may be empty: then twh__cover_patch returns 0 and writes nothing, otherwise 1. The blocks of a unit's
 * patches are >= 0 and ascend. */
int64_t twh__cover_patches(const twh__span *span, const twh__unit *unit, const twh__grid *grid);
int     twh__cover_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, twh__patch *patch);

/* How many of a unit's patches from number 1 on are whole blocks that every row sees: they differ in their place only. */
int64_t twh__cover_whole(const twh__span *span, const twh__unit *unit, const twh__grid *grid);

/* How many keys are drawn for a unit, and from how many; 0 and 0 where none are. */
int64_t twh__cover_drawn(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t *keys);

#endif
