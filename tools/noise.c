/* Noise that costs less than what is done with it: see noise.h.
 *
 * A counter is scrambled by two multiplications, and the four 16-bit parts of the result are added: no logarithm, no cosine,
 * and whole numbers until the last step, so that no compiler makes a difference. */
#include "noise.h"

static uint64_t noise_scramble(uint64_t x)
{
  x ^= x >> 32;
  x *= 6364136223846793005u;
  x ^= x >> 29;
  x *= 6364136223846793005u;
  return x ^ x >> 32;
}

void noise_fill(npy_array *array, int64_t seed, int stream)
{
  uint64_t state = noise_scramble(noise_scramble((uint64_t)seed + 1) + (uint64_t)stream);
  float   *to = (float *)array->data;

  for (size_t i = 0; i < array->count; ++i) {
    uint64_t bits = noise_scramble(state += 1442695040888963407u);
    int64_t  sum = (int64_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    to[i] = (float)(sum - 131070) * (1.0f / 37837.0f); /* 65536 sqrt(4 / 12) */
  }
}
