/* Drawn keys: a keyed permutation of any number of keys, one key at a time.
 *
 * A Feistel network permutes the numbers of an even number of bits; a number that comes out too large is put in again until one
 * is not, which leaves a permutation of the rest. Nothing is stored, and the same seed gives the same keys on every machine. */
#include "core/view/view.h"

enum { SAMPLE_ROUNDS = 6, SAMPLE_HALF_BITS = 4 /* at least: few bits mix badly */ };

uint64_t twh__sample_mix(uint64_t seed, uint64_t with)
{
  uint64_t x = seed + 0x9e3779b97f4a7c15u * (with + 1);

  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Number `number` of the permutation of 0 .. n - 1. */
static int64_t sample_permute(uint64_t seed, int64_t n, int64_t number)
{
  uint64_t value = (uint64_t)number;
  int      half = SAMPLE_HALF_BITS;

  while (half < 31 && (int64_t)1 << 2 * half < n) ++half;
  do {
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t       left = value >> half, right = value & mask;
    for (int round = 0; round < SAMPLE_ROUNDS; ++round) {
      const uint64_t next = left ^ (twh__sample_mix(seed, right << 3 | (uint64_t)round) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= (uint64_t)n);
  return (int64_t)value;
}

int64_t twh__sample_key(const twh__sample *sample, int64_t number)
{
  int64_t key = number;

  if (sample->stratum == 0) return number;
  key = sample->skip + sample->first + sample_permute(sample->seed, sample->stratum, number);
  return key < sample->gap ? key : key + sample->gap_keys;
}
