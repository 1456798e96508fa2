/* Chained hashing over a ring of entries. */
#include <string.h>

#include "core/run/blocks.h"

static int32_t *blocks_chain(const twh__cache *cache, const twh__key *key)
{
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (int i = 0; i < TWH__KEY_WORDS; ++i) {
    hash = (hash ^ (uint64_t)key->word[i]) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 29;
  }
  return &cache->chains[hash & (uint64_t)(cache->chain_count - 1)];
}

void twh__cache_begin(twh__cache *cache, int64_t waves)
{
  for (int32_t i = 0; i < cache->chain_count; ++i) cache->chains[i] = -1;
  if (cache->count > 0) memset(cache->entries, 0, (size_t)cache->count * sizeof *cache->entries);
  cache->hand = 0;
  cache->serial = 0;
  cache->waves = waves;
}

static void blocks_unlink(const twh__cache *cache, int32_t at)
{
  int32_t *link = blocks_chain(cache, &cache->entries[at].key);
  while (*link != at) link = &cache->entries[*link].next;
  *link = cache->entries[at].next;
}

/* A place for a new block: the first in the ring that no wave at work uses. -1: none. */
static int32_t blocks_evict(twh__cache *cache, int64_t wave)
{
  for (int32_t tried = 0; tried < cache->count; ++tried) {
    int32_t at = cache->hand;
    cache->hand = at + 1 == cache->count ? 0 : at + 1;
    if (cache->entries[at].wave != 0 && cache->entries[at].wave > wave - cache->waves) continue;
    if (cache->entries[at].wave != 0) blocks_unlink(cache, at);
    return at;
  }
  return -1;
}

int twh__cache_get(twh__cache *cache, const twh__key *key, int64_t wave, twh__found *found)
{
  int32_t          *chain = blocks_chain(cache, key), at = *chain;
  twh__cache_entry *entry;

  while (at >= 0 && memcmp(&cache->entries[at].key, key, sizeof *key) != 0) at = cache->entries[at].next;
  found->there = at >= 0;
  if (!found->there) {
    at = blocks_evict(cache, wave);
    if (at < 0) return 0;
    entry = &cache->entries[at];
    entry->key = *key;
    entry->id = ++cache->serial;
    entry->next = *chain;
    *chain = at;
  }
  entry = &cache->entries[at];
  entry->wave = wave;
  found->block = cache->memory + at * cache->bytes;
  found->note = &cache->notes[at];
  found->id = entry->id;
  return 1;
}
