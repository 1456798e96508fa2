/* Encoded blocks that are kept for the next tile that needs the same bytes.
 *
 * A cache of one kind of operand: found by key, replaced first in, first out, except what waves at work use. The cache only
 * hands out places; who gets one marked as missing encodes it. */
#ifndef TWH_CORE_RUN_BLOCKS_H
#define TWH_CORE_RUN_BLOCKS_H

#include "core/base/base.h"

enum { TWH__KEY_WORDS = 6 };

typedef struct twh__key {
  int64_t word[TWH__KEY_WORDS];
} twh__key;

typedef struct twh__cache_entry {
  twh__key key;
  int64_t  wave;  /* that used it last; 0: empty */
  uint64_t id;
  int32_t  next;  /* in its chain; -1: last */
} twh__cache_entry;

typedef struct twh__cache {
  twh__cache_entry *entries;
  int32_t          *chains;     /* (chain_count), a power of two */
  int32_t           count, chain_count, hand;
  char             *memory;
  double           *notes;      /* (count): one number of the encoder's with each block */
  int64_t           bytes;      /* of one block */
  uint64_t          serial;
  int64_t           waves;
} twh__cache;

/* Empty it. waves: so many, the current one and those before it, are at work at the same time. */
void twh__cache_begin(twh__cache *cache, int64_t waves);

/* The place of the block of `key`, in use by `wave` (> 0) from now on. */
typedef struct twh__found {
  int      there; /* 1; 0: the caller must encode it */
  char    *block;
  double  *note;
  uint64_t id;
} twh__found;

/* 0 when every place is in use. */
int twh__cache_get(twh__cache *cache, const twh__key *key, int64_t wave, twh__found *found);

#endif
