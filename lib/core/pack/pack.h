/* Packing: tiles into slots, slots into calls, next fit.
 *
 * Tiles that may share a call have the same mask mode and the same reading: a class. Each class has one open bundle; a tile
 * takes its next slot, and a full bundle is closed. A bundle is one set of queries and keys and as many calls as its tiles
 * need parts. Numbering is all that happens here, in O(1) memory, so that plans can be counted and walked without being
 * executed. */
#ifndef TWH_CORE_PACK_H
#define TWH_CORE_PACK_H

#include "core/base/base.h"
#include "core/records.h"

enum { TWH__CLASSES = 3 * TWH__READINGS };

static inline int32_t twh__class_of(int32_t mode, int32_t reading)
{
  return (mode == TWH_MASK_NONE ? 0 : mode == TWH_MASK_CAUSAL ? 1 : 2) * TWH__READINGS + reading;
}

typedef struct twh__pack {
  int64_t slots;
  int64_t calls;                    /* numbered so far */
  int64_t first_call[TWH__CLASSES]; /* of the open bundle */
  int64_t filled[TWH__CLASSES];     /* its slots that are taken; 0: none is open */
} twh__pack;

void twh__pack_begin(twh__pack *pack, int64_t slots);

/* Give a tile of this class its place. Returns 1 when that closed the bundle. */
int twh__pack_put(twh__pack *pack, int32_t class_number, int64_t parts, int64_t *call, int64_t *slot);

#endif
