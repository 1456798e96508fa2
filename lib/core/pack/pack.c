/* Next fit over classes. A bundle's calls are numbered when it is opened. */
#include <string.h>

#include "core/pack/pack.h"

void twh__pack_begin(twh__pack *pack, int64_t slots)
{
  memset(pack, 0, sizeof *pack);
  pack->slots = slots;
}

int twh__pack_put(twh__pack *pack, int32_t class_number, int64_t parts, int64_t *call, int64_t *slot)
{
  int64_t *filled = &pack->filled[class_number];

  if (*filled == 0) {
    pack->first_call[class_number] = pack->calls;
    pack->calls += parts;
  }
  *call = pack->first_call[class_number];
  *slot = (*filled)++;
  if (*filled < pack->slots) return 0;
  *filled = 0;
  return 1;
}
