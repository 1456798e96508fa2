/* Inputs of the check that several promises use: reproducible random rows, scaled to the kernel.
 *
 * Numbers come from a hash of a seed and the position, so that nothing depends on the order in which they are made. Queries and
 * keys share the amplitude, whatever the kernel's scale, as far as its dtype reaches. */
#include <math.h>
#include <string.h>

#include "core/oracle/check.h"

static uint64_t check_recipe_mix(uint64_t x)
{
  x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93u;
  x = (x ^ (x >> 29)) * 0xa3b195354a39b70du;
  return x ^ (x >> 32);
}

/* What a row's numbers have in common, and one of them. */
static uint64_t check_recipe_key(uint64_t seed, int64_t a, int64_t b)
{
  uint64_t x = check_recipe_mix(seed + 0x632be59bd9b4e019u);
  x = check_recipe_mix(x ^ (uint64_t)a);
  return check_recipe_mix(x + 0x9e6c63d0876a9a47u + (uint64_t)b);
}

static double check_recipe_number(uint64_t key, int64_t c)
{
  return (double)(int64_t)(check_recipe_mix(key + (uint64_t)c * 0xbb67ae8584caa73bu) >> 11) * 0x1p-52 - 1;
}

double twh__check_random(uint64_t seed, int64_t a, int64_t b, int64_t c)
{
  return check_recipe_number(check_recipe_key(seed, a, b), c);
}

/* scale <q, k> with independent uniform numbers in [-A, A] has standard deviation |scale| sqrt(qk_dim) A^2 / 3. */
static double check_recipe_amplitude(const twh__check *check, const twh__trial *trial)
{
  double scale = fabs(trial->call.scale), limit = check->desc->dtype == TWH_F16 ? 0x1p14 : 0x1p60, amplitude;

  if (scale == 0) return 1;
  amplitude = sqrt(3 * trial->recipe.a / (scale * sqrt((double)check->desc->qk_dim)));
  return fmin(limit, fmax(1 / limit, amplitude));
}

static void check_recipe_uniform(const twh__trial *trial, int32_t which, int64_t slot, int64_t row, double amplitude,
                                 double *values)
{
  uint64_t key = check_recipe_key(trial->recipe.seed + (uint64_t)which, slot, row);

  for (int64_t c = 0; c < trial->blocks[which].dim; ++c) values[c] = amplitude * check_recipe_number(key, c);
}

void twh__recipe_random_q(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                          double *values)
{
  check_recipe_uniform(trial, which, slot, row, check_recipe_amplitude(check, trial), values);
}

void twh__recipe_random_k(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                          double *values)
{
  check_recipe_uniform(trial, which, slot, row, check_recipe_amplitude(check, trial), values);
}

void twh__recipe_random_v(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                          double *values)
{
  (void)check;
  check_recipe_uniform(trial, which, slot, row, 1, values);
}

void twh__recipe_random_mask(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                             double *values)
{
  const twh__check_block *block = &trial->blocks[which];
  int64_t                 certain = (slot * 7 + row * 3 + 1) % block->dim;

  (void)check;
  check_recipe_uniform(trial, which, slot, row, 1, values);
  for (int64_t j = 0; j < block->dim; ++j) {
    values[j] = values[j] < -0.5 && j != certain ? -INFINITY : block->dtype == TWH_BOOL ? 0 : 2 * values[j];
  }
}

void twh__recipe_zero(const twh__check *check, const twh__trial *trial, int32_t which, int64_t slot, int64_t row,
                      double *values)
{
  (void)check;
  (void)slot;
  (void)row;
  memset(values, 0, (size_t)trial->blocks[which].dim * sizeof *values);
}

twh__recipe twh__recipe_random(uint64_t seed)
{
  twh__recipe recipe;

  memset(&recipe, 0, sizeof recipe);
  recipe.q = twh__recipe_random_q;
  recipe.k = twh__recipe_random_k;
  recipe.v = twh__recipe_random_v;
  recipe.mask = twh__recipe_random_mask;
  recipe.a = 2;
  recipe.seed = seed;
  return recipe;
}
