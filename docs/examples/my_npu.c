/* Stands in for a compiled graph on an accelerator: attention of exactly 12 heads x 512 tokens x 64 in IEEE binary16, scale
 * 1/8, without masks, returning nothing but its output. Slow, but right: it computes in f32 and rounds once, at the end.
 * Like a device it runs one call at a time. readme.c shows how such a kernel is described and called. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { SLOTS = 12, LEN = 512, DIM = 64 };

void my_npu_run(const void *q, const void *k, const void *v, void *out);

/* The factor moves the half's exponent to where a float has it; subnormal halves become normal floats on the way. */
static float my_npu_widen(uint16_t half)
{
  const uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
  float value;
  memcpy(&value, &bits, sizeof value);
  value *= 0x1p112f;
  if ((half & 0x7c00) == 0x7c00) value = (half & 0x3ff) ? NAN : INFINITY;
  return (half & 0x8000) ? -value : value;
}

/* To nearest, ties to even. */
static uint16_t my_npu_narrow(float value)
{
  const uint32_t sign = signbit(value) ? 0x8000 : 0;
  const float size = fabsf(value);
  if (isnan(value)) return (uint16_t)(sign | 0x7e00);
  if (size >= 65520.0f) return (uint16_t)(sign | 0x7c00);
  if (size < 0x1p-14f) return (uint16_t)(sign | (uint32_t)nearbyintf(size * 0x1p24f));
  uint32_t bits;
  memcpy(&bits, &size, sizeof bits);
  bits += 0xfff + ((bits >> 13) & 1);
  return (uint16_t)(sign | ((bits >> 13) - (112u << 10)));
}

/* One head. Keys are turned first, so that every inner loop runs over neighbouring floats. */
static void my_npu_head(const uint16_t *q, const uint16_t *k, const uint16_t *v, uint16_t *out) /* (LEN, DIM) each */
{
  static float turned[DIM][LEN], values[LEN][DIM];
  for (int j = 0; j < LEN; j++) {
    for (int c = 0; c < DIM; c++) {
      turned[c][j] = my_npu_widen(k[j * DIM + c]);
      values[j][c] = my_npu_widen(v[j * DIM + c]);
    }
  }
  for (int i = 0; i < LEN; i++) {
    float score[LEN] = {0}, row[DIM] = {0}, sum = 0.0f;
    for (int c = 0; c < DIM; c++) {
      const float x = my_npu_widen(q[i * DIM + c]) * 0.125f;
      for (int j = 0; j < LEN; j++) score[j] += x * turned[c][j];
    }
    float top = score[0];
    for (int j = 1; j < LEN; j++) top = fmaxf(top, score[j]);
    for (int j = 0; j < LEN; j++) {
      const float weight = expf(score[j] - top);
      sum += weight;
      for (int c = 0; c < DIM; c++) row[c] += weight * values[j][c];
    }
    for (int c = 0; c < DIM; c++) out[i * DIM + c] = my_npu_narrow(row[c] / sum);
  }
}

void my_npu_run(const void *q, const void *k, const void *v, void *out)
{
  for (size_t at = 0; at < (size_t)SLOTS * LEN * DIM; at += (size_t)LEN * DIM) {
    my_npu_head((const uint16_t *)q + at, (const uint16_t *)k + at, (const uint16_t *)v + at, (uint16_t *)out + at);
  }
}
