/* The mask operand: (queries, keys) row by row, where scores are (keys, queries).
 *
 * Masks are mostly runs of one value, and pieces of a row that change nothing are passed over at a glance. What is left is done
 * number by number; a hidden score is overwritten, whatever it was. */
#include "cpu/formats.h"
#include "cpu/slot.h"

#include <math.h>

enum { MASK_PIECE = 8 };

static const double mask_log2_e = 1.44269504088896340736;

/* scores: those of one query. */
static void mask_bool(const unsigned char *mask, int64_t keys, float *scores, int64_t stride)
{
  const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
  for (int64_t j = 0; j < keys; j += MASK_PIECE) {
    const int64_t n = keys - j < MASK_PIECE ? keys - j : MASK_PIECE;
    uint64_t      piece = ones;
    memcpy(&piece, mask + j, (size_t)n);
    if (((piece - ones) & ~piece & tops) == 0) continue; /* no byte is 0 */
    for (int64_t t = j; t < j + n; t++)
      if (mask[t] == 0) scores[t * stride] = -INFINITY;
  }
}

static void mask_add(float *score, float mask)
{
  *score = mask > -INFINITY || mask != mask ? (float)((double)*score + mask_log2_e * (double)mask) : -INFINITY;
}

static void mask_f32(const float *mask, int64_t keys, float *scores, int64_t stride)
{
  for (int64_t j = 0; j < keys; j += MASK_PIECE) {
    const int64_t n = keys - j < MASK_PIECE ? keys - j : MASK_PIECE;
    uint64_t      piece[MASK_PIECE / 2] = { 0 };
    memcpy(piece, mask + j, (size_t)n * sizeof *mask);
    if ((piece[0] | piece[1] | piece[2] | piece[3]) == 0) continue;
    for (int64_t t = j; t < j + n; t++) mask_add(scores + t * stride, mask[t]);
  }
}

static void mask_halves(const uint16_t *mask, int64_t keys, int32_t dtype, float *scores, int64_t stride)
{
  for (int64_t j = 0; j < keys; j += MASK_PIECE) {
    const int64_t n = keys - j < MASK_PIECE ? keys - j : MASK_PIECE;
    uint64_t      piece[MASK_PIECE / 4] = { 0 };
    memcpy(piece, mask + j, (size_t)n * sizeof *mask);
    if ((piece[0] | piece[1]) == 0) continue;
    for (int64_t t = j; t < j + n; t++)
      mask_add(scores + t * stride, dtype == TWH_BF16 ? twh__cpu_from_bf16(mask[t]) : twh__cpu_from_f16(mask[t]));
  }
}

void twh__cpu_mask(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, int64_t i, int64_t begin, int64_t keys,
                   float *scores, int64_t stride)
{
  const int32_t dtype = kernel->desc.mask_dtype;
  const int64_t at = slot * call->mask.slot_stride + i * call->mask.row_stride + begin;
  if (dtype == TWH_BOOL)
    mask_bool((const unsigned char *)call->mask.data + at, keys, scores, stride);
  else if (dtype == TWH_F32)
    mask_f32((const float *)call->mask.data + at, keys, scores, stride);
  else
    mask_halves((const uint16_t *)call->mask.data + at, keys, dtype, scores, stride);
}
