/* The cover of spans whose keys are sampled, for the rest of the cover. Arguments and answers as of the function of the same name
 * there. */
#ifndef TWH_CORE_SAMPLE_H
#define TWH_CORE_SAMPLE_H

#include "core/pattern/pattern.h"

/* Whether the unit's keys are sampled: not where that would take as many patches as computing them all. */
int twh__sample_applies(const twh__span *span, const twh__unit *unit, const twh__grid *grid);

int64_t twh__sample_patches(const twh__span *span, const twh__unit *unit, const twh__grid *grid);
int     twh__sample_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index, twh__patch *patch);

/* The cover as if nothing was sampled. */
int64_t twh__cover_exact_patches(const twh__span *span, const twh__unit *unit, const twh__grid *grid);
int     twh__cover_exact_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid, int64_t index,
                               twh__patch *patch);

#endif
