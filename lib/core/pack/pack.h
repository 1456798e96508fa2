/* Packing: tiles into slots, slots into calls, next fit.
 *
 * Tiles that may share a call have the same kernel, mask mode and reading: a class, which further keeps apart tiles that stand
 * alone in their slots, tiles that sinks lead, lower triangles and the rest, because like widths fill a slot best. Each class
 * has one open bundle: one set of queries and keys, and as many calls as its tiles need parts. A tile that may share takes the
 * next free positions of the bundle's last slot, or else a new slot; a bundle without a free slot is closed. Numbering is all
 * that happens here, in O(1) memory, so that plans can be counted and walked without being executed. */
#ifndef TWH_CORE_PACK_H
#define TWH_CORE_PACK_H

#include "core/base/base.h"
#include "core/records.h"

enum { TWH__CLASSES = 4 * 4 * 2 }; /* modes, kinds, and whether there are copies */

int32_t twh__class_of(const twh__tile *tile);

/* How the class's sums are read. */
static inline int32_t twh__class_reading(const twh__lowering *lowering, int32_t class_number)
{
  return class_number % 2 ? lowering->share_reading : lowering->reading;
}

/* Whether the host computes the class's tiles. */
static inline int twh__class_is_host(int32_t class_number)
{
  return class_number < 4 * 2;
}

/* The open bundle of a class. */
typedef struct twh__open {
  int64_t first_call;
  int64_t slots;             /* taken; 0: no bundle is open */
  int64_t tiles, units;      /* in the last slot */
  int64_t unit_span, unit_head, unit_first; /* of its last tile */
  int64_t rows, keys;        /* the last slot's free positions begin there */
  int64_t epoch, sequence, head, lead; /* what its tiles share */
  int32_t cuts, exposed;
} twh__open;

/* The open bundles of one kernel. */
typedef struct twh__pack {
  int64_t   most_tiles;          /* that may share a slot */
  int64_t   slots[TWH__CLASSES]; /* opened so far */
  twh__open open[TWH__CLASSES];
} twh__pack;

/* Where a tile went. */
typedef struct twh__place {
  int64_t call, slot, tile; /* first call of its bundle, slot in it, number in the slot */
  int64_t units;            /* that have tiles in the slot so far */
  int     closes;           /* 1: the class's open bundle had no room and is closed; the tile is the first of a new one */
  int     fills;            /* 1: nothing more fits into the tile's bundle, which is closed */
} twh__place;

void twh__pack_begin(twh__pack *pack, int64_t most_tiles);

/* Give a tile its place: its slot positions become those in the slot. parts: calls of a bundle of its class; `calls` counts them
 * over all kernels. sequence: of its span, for the lead. */
void twh__pack_put(twh__pack *pack, const twh__lowering *lowering, int64_t parts, int64_t sequence, twh__tile *tile,
                   int64_t *calls, twh__place *place);

/* Coordinates that keep a slot's tiles apart and its pads dead. */
int32_t twh__pack_isolation(const twh__lowering *lowering, int32_t mode, int alone, int32_t cuts);

#endif
