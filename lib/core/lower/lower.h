/* From patches to tiles: how a set of pairs is computed by a kernel that has only some of the masks, and how its results are
 * read.
 *
 * The ways stand in a const table. A plan tries each one (twh__lower_make), counts the calls and keeps the cheapest; after
 * that every question is arithmetic on the twh__lowering, and tiles are made when they are needed. ways.c chooses what follows
 * from the descriptions, stairs.c the codes of triangles on kernels without masks, chunk.c the rows of a window's units,
 * tiles.c places rows and keys. Sources: Theorems 3.5 and 5.1 for kernels with a built-in causal mask; docs/theory.md. */
#ifndef TWH_CORE_LOWER_H
#define TWH_CORE_LOWER_H

#include "core/base/base.h"
#include "core/records.h"

/* How many pairs a kernel computes while the host scores one. */
enum { TWH__HOST_COST = 32 };

/* What the patterns of a problem ask of a way. */
typedef struct twh__needs {
  int32_t cuts;     /* 1: some patch is no rectangle */
  int64_t width;    /* of windows; 0: there are none */
  int64_t sinks;    /* that go with windows */
  int64_t keys;     /* of the longest span that has patches which are no rectangles */
} twh__needs;

/* Number of ways in the table. */
int32_t twh__lower_ways(void);

/* What every way needs of a kernel for this problem. TWH_E_UNSUPPORTED with the reason. */
twh_status twh__lower_check(const twh_oracle_desc *desc, const twh__shape *shape, twh_error *error);

/* Set up a way; 0 when the kernel cannot go it. The kernel has passed twh__lower_check. */
int twh__lower_make(twh__lowering *lowering, int32_t way, const twh_oracle_desc *desc, const twh__shape *shape,
                    const twh__needs *needs);

/* The same kernel for the same rows and keys, but with doubled queries and the values of squares: shape->v_dim has their column. */
void twh__lower_square(twh__lowering *lowering, const twh_oracle_desc *desc, const twh__shape *shape, const twh__needs *needs);

/* Choose the staircase of a kernel that has no mask for triangles. */
void twh__lower_stairs(twh__lowering *lowering, const twh__needs *needs);

/* Choose chunk, lead and band of windows. */
void twh__lower_chunk(twh__lowering *lowering, const twh__needs *needs);

/* Whether a patch fits this kernel's slots as it is. */
int twh__lower_fits(const twh__lowering *lowering, const twh__patch *patch);

/* Tiles of a patch, at least 1, some of which may be empty; and one of them, 0 when it is empty. The caller fills unit,
 * unit_index, kernel and epoch, decides about `alone`, and adds the lead with twh__lower_lead. */
int64_t twh__lower_count(const twh__lowering *lowering, const twh__patch *patch);
int     twh__lower_tile(const twh__lowering *lowering, const twh__patch *patch, int64_t number, twh__tile *tile);

/* Make place for `lead` sinks before the keys (only tiles of patches that have them), and settle everything that depends on how
 * the tile stands in its slot: lengths, pads, reading, whether it stands alone. */
enum {
  TWH__SHARE_NONE,
  TWH__SHARE_ALIKE, /* it may share its slot with tiles like it */
  TWH__SHARE_ANY    /* or with smaller ones: a window's triangles come in pairs */
};
void twh__lower_finish(const twh__lowering *lowering, int64_t lead, int share, twh__tile *tile);

/* Calls that carry one tile: value slices, and the bucket call of TWH__READ_BUCKET. */
int64_t twh__lower_parts(const twh__lowering *lowering, int32_t reading);

/* Pairs of a tile, its lead apart. */
double twh__lower_visible(const twh__tile *tile);

/* Query-key pairs that the host scores to read a tile, or to compute it. */
double twh__lower_host_pairs(const twh__lowering *lowering, const twh__tile *tile);

const char *twh__lower_reading_name(int32_t reading);

#endif
