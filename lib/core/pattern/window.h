/* The cover of window spans, for the rest of the cover. Arguments and answers as of the function of the same name there. */
#ifndef TWH_CORE_WINDOW_H
#define TWH_CORE_WINDOW_H

#include "core/pattern/pattern.h"

/* Rows of a whole unit: the grid's chunk, or less where a patch's keys would not fit k_block. */
int64_t twh__window_chunk(const twh__span *span, const twh__grid *grid);

int64_t twh__window_patches(const twh__span *span, const twh__unit *unit, const twh__grid *grid);
int     twh__window_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index,
                          twh__patch *patch);

/* Edges and shape of a patch whose rows and keys are set: row i sees the keys from `from` + i on, and the first `seen` + i. */
void twh__cover_edges(twh__patch *patch, int64_t from, int64_t seen);

/* Rectangle number `index` of k_block sinks each, for all rows of the unit; without its block. 0: there is none. */
int twh__cover_sinks(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, twh__patch *patch);

#endif
