/* How tiles stand in the slots of a kernel: small pictures of a few slots, filled while a plan is visited. */
#ifndef TOOLS_SLOTS_H
#define TOOLS_SLOTS_H

#include <stdio.h>

#include "setup.h"
#include "sketch.h"

enum { SLOTS_MAX = 6 };

typedef struct slots_slot {
  int64_t     call, slot, calls, oracle, tiles; /* tiles: placed in it so far */
  sketch_view view;                             /* of query and key positions */
} slots_slot;

typedef struct slots_sheet {
  slots_slot slot[SLOTS_MAX];
  int        count, most; /* taken, and wanted */
} slots_sheet;

/* Take the slot that a tile stands in, if there is a place left and it is not taken yet. */
void slots_take(slots_sheet *sheet, const twh_tile_info *tile);

/* Place the slots on the paper, `across` in a row of boxes; returns the height. */
double slots_lay_out(slots_sheet *sheet, const setup *all, double x, double y, double box, int across);

/* Draw the slots empty; then each tile of the plan, of which those appear that stand in one of them; then frames and captions.
 * */
void slots_begin(FILE *to, const slots_sheet *sheet);
void slots_draw(FILE *to, slots_sheet *sheet, const setup *all, const twh_tile_info *tile);
void slots_end(FILE *to, const slots_sheet *sheet, const setup *all);

#endif
