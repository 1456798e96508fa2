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

void twh__cache_begin(twh__cache *cache)
{
  for (int32_t i = 0; i < cache->chain_count; ++i) cache->chains[i] = -1;
  if (cache->count > 0) memset(cache->entries, 0, (size_t)cache->count * sizeof *cache->entries);
  cache->hand = 0;
  cache->serial = 0;
}

static void blocks_unlink(const twh__cache *cache, int32_t at)
{
  int32_t *link = blocks_chain(cache, &cache->entries[at].key);
  while (*link != at) link = &cache->entries[*link].next;
  *link = cache->entries[at].next;
}

int twh__cache_get(twh__cache *cache, const twh__key *key, int64_t wave, char **block, uint64_t *id)
{
  int32_t          *chain = blocks_chain(cache, key), at;
  twh__cache_entry *entry;

  for (at = *chain; at >= 0; at = cache->entries[at].next) {
    entry = &cache->entries[at];
    if (memcmp(&entry->key, key, sizeof *key) != 0) continue;
    entry->wave = wave;
    *block = cache->memory + at * cache->bytes;
    *id = entry->id;
    return 1;
  }
  for (int32_t tried = 0; ; ++tried) {
    if (tried == cache->count) return -1;
    at = cache->hand;
    cache->hand = at + 1 == cache->count ? 0 : at + 1;
    if (cache->entries[at].wave != wave) break;
  }
  entry = &cache->entries[at];
  if (entry->wave != 0) blocks_unlink(cache, at);
  entry->key = *key;
  entry->wave = wave;
  entry->id = ++cache->serial;
  entry->next = *chain;
  *chain = at;
  *block = cache->memory + at * cache->bytes;
  *id = entry->id;
  return 0;
}
