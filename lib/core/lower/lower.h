/* From patches to tiles: how a shape is computed by a kernel that has only some of the masks, and how its results are read.
 *
 * The ways stand in a const table. A plan tries each one (twh__lower_make), counts the calls and keeps the cheapest; after
 * that every question is arithmetic on the twh__lowering, and tiles are made when they are needed. Sources: Theorem 3.5 for
 * kernels with a built-in causal mask; docs/theory.md for readings and short tiles. */
#ifndef TWH_CORE_LOWER_H
#define TWH_CORE_LOWER_H

#include "core/base/base.h"
#include "core/records.h"

/* Number of ways in the table. */
int32_t twh__lower_ways(void);

/* What every way needs of a kernel for this problem. TWH_E_UNSUPPORTED with the reason; `any_causal`: some span is causal. */
twh_status twh__lower_check(const twh_oracle_desc *desc, const twh__shape *shape, int any_causal, twh_error *error);

/* Set up a way; 0 when the kernel cannot go it. The kernel has passed twh__lower_check. */
int twh__lower_make(twh__lowering *lowering, int32_t way, const twh_oracle_desc *desc, const twh__shape *shape, int any_causal);

/* Tiles of a patch, at least 1, and one of them. The caller fills unit and unit_index. */
int64_t twh__lower_count(const twh__lowering *lowering, const twh__patch *patch);
void    twh__lower_tile(const twh__lowering *lowering, const twh__patch *patch, int64_t number, twh__tile *tile);

/* Calls that carry one tile: value slices, and the bucket call of TWH__READ_BUCKET. */
int64_t twh__lower_parts(const twh__lowering *lowering, int32_t reading);

/* Query-key pairs that the host scores to read a tile. */
int64_t twh__lower_host_pairs(const twh__lowering *lowering, const twh__tile *tile);

const char *twh__lower_reading_name(int32_t reading);

#endif
