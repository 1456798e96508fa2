/* The memory of an execute, carved in one walk: with base NULL it measures, otherwise it assigns. */
#include "core/transformer/transformer.h"

typedef struct activations_carver {
  char   *base;
  int64_t used;
  int     fits;
} activations_carver;

static void *activations_take(activations_carver *carver, int64_t count, int64_t each, int64_t item, int64_t alignment)
{
  int64_t bytes, begin;

  if (!twh__multiply(count, each, &bytes) || !twh__multiply(bytes, item, &bytes) || bytes > INT64_MAX / 4) carver->fits = 0;
  if (!carver->fits) return NULL;
  begin = twh__round_up(carver->used, alignment);
  carver->used = begin + bytes;
  if (carver->used > INT64_MAX / 4 || (uint64_t)carver->used > (uint64_t)PTRDIFF_MAX) carver->fits = 0;
  return carver->base && carver->fits ? carver->base + begin : NULL;
}

static float *activations_floats(activations_carver *carver, int64_t rows, int64_t each)
{
  return (float *)activations_take(carver, rows, each, (int64_t)sizeof(float), 64);
}

int twh__activations_lay_out(const twh_transformer *transformer, char *base, twh__activations *activations, int64_t *bytes,
                             int64_t *alignment)
{
  const twh_transformer_desc *desc = &transformer->desc;
  const int64_t               rows = transformer->info.rows, block = transformer->info.block_rows;
  const int64_t               widest =
    twh__max(desc->model_dim, twh__max(transformer->q_floats, twh__max(transformer->kv_floats, transformer->v_floats)));
  activations_carver carver;

  carver.base = base;
  carver.used = 0;
  carver.fits = 1;
  *alignment = twh__max(64, (int64_t)transformer->plan_alignment);
  activations->x = activations_floats(&carver, rows, desc->model_dim);
  activations->q = activations_floats(&carver, rows, transformer->q_floats);
  activations->k = activations_floats(&carver, rows, transformer->kv_floats);
  activations->v = activations_floats(&carver, rows, transformer->v_floats);
  activations->a = activations_floats(&carver, rows, transformer->a_floats);
  activations->scratches = (twh__scratch *)activations_take(&carver, transformer->tasks, 1, (int64_t)sizeof(twh__scratch), 64);
  for (int64_t t = 0; t < transformer->tasks && carver.fits; ++t) {
    twh__scratch scratch;
    scratch.y = activations_floats(&carver, block, desc->model_dim);
    scratch.bias = activations_floats(&carver, 1, widest);
    scratch.hooks = activations_floats(&carver, block, desc->scratch_per_row);
    scratch.positions = (int64_t *)activations_take(&carver, block, 1, (int64_t)sizeof(int64_t), 64);
    if (base) activations->scratches[t] = scratch;
  }
  activations->plan = (char *)activations_take(&carver, (int64_t)transformer->plan_bytes, 1, 1, *alignment);
  *bytes = carver.used;
  return carver.fits;
}
