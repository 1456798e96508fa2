/* How many rows of a window go together.
 *
 * On a causal mask a unit of c rows takes a lower triangle over its own keys and an upper one over those before them, which
 * reach back r - 1; several units share a slot of M positions (Theorem 5.1 without its subtraction). The best c depends on r,
 * the sinks and M alone, and is found by trying all of them. With a mask operand a unit is a band, cut into blocks of keys. */
#include "core/lower/lower.h"

typedef struct chunk_choice {
  double  cost; /* slots per row */
  int64_t chunk;
  int32_t lead;
} chunk_choice;

static int64_t chunk_capacity(const twh__lowering *lowering, int64_t cuts)
{
  return lowering->code != 0 ? twh__code_capacity(TWH_MASK_CAUSAL, lowering->codes - cuts, 0) : 1;
}

/* Slots per patch when as many as fit stand in one. */
static double chunk_share(int64_t room, int64_t width, int64_t capacity)
{
  int64_t together = twh__max(1, twh__min(room / twh__max(1, width), capacity));
  return width <= 0 ? 0 : 1 / (double)together;
}

/* Slots of a rectangle on this kernel. */
static double chunk_rectangle(const twh__lowering *lowering, int64_t rows, int64_t keys)
{
  int64_t m = lowering->grid.k_block, blocks = twh__ceil_div(keys, m), last = keys - (blocks - 1) * m;
  double  each = lowering->full_mode == TWH_MASK_CAUSAL ? 2 : 1;

  if (blocks == 0) return 0;
  if (each == 2 && rows + last <= m + 1) {
    return (double)(blocks - 1) * each + chunk_share(m, rows + last - 1, chunk_capacity(lowering, 0));
  }
  return (double)blocks * each;
}

static void chunk_try_triangles(const twh__lowering *lowering, const twh__needs *needs, int64_t c, int32_t lead,
                                chunk_choice *best)
{
  int64_t m = lowering->grid.k_block, r = needs->width, room = m - (lead ? needs->sinks : 0), cuts = c > r;
  int64_t before = r - 1 <= m ? r - 1 : twh__min(c, m), after = twh__max(0, c - r - 1);
  double  cost;

  if (cuts && (lowering->code == 0 || lowering->codes < 1)) return;
  cost = chunk_share(room, c, chunk_capacity(lowering, cuts));
  if (before + after <= m) {
    cost += chunk_share(m, before + after, twh__max(1, chunk_capacity(lowering, 0) / (after > 0 ? 2 : 1)));
    if (after > 0 && lowering->code == 0) cost += 1;
  } else {
    cost += chunk_share(m, before, chunk_capacity(lowering, 0)) + chunk_share(m, after, chunk_capacity(lowering, 0));
  }
  cost += chunk_rectangle(lowering, c, r - 1 - before);
  if (!lead) cost += chunk_rectangle(lowering, c, needs->sinks);
  cost /= (double)c;
  if (cost > best->cost - 1e-12) return;
  best->cost = cost;
  best->chunk = c;
  best->lead = lead;
}

static void chunk_triangles(const twh__lowering *lowering, const twh__needs *needs, int alibi, chunk_choice *best)
{
  int64_t m = lowering->grid.k_block;

  for (int32_t lead = needs->sinks > 0 && needs->sinks < m && !alibi; lead >= 0; --lead) {
    int64_t most = m - (lead ? needs->sinks : 0);
    if (needs->width - 1 <= m) most = twh__min(most, 2 * needs->width);
    for (int64_t c = needs->width - 1 > m ? most : 1; c <= most; ++c) {
      chunk_try_triangles(lowering, needs, c, lead, best);
    }
  }
}

/* Row i of c sees the keys i .. i + width - 1; block by block, how many rows see it, and how many such tiles share a slot. */
static double chunk_band(const twh__lowering *lowering, const twh__needs *needs, int64_t c, int64_t lead)
{
  int64_t m = lowering->grid.k_block, all = c + needs->width - 1;
  double  cost = 0;

  for (int64_t begin = 0, end; begin < all; begin = end) {
    int64_t room = begin == 0 ? m - lead : m, first, last;
    end = twh__min(all, begin + room);
    first = twh__max(0, begin - needs->width + 1);
    last = twh__min(c, end);
    cost += lowering->mask_value != 0 ? 1 : chunk_share(lowering->q_len, last - first, room / (end - begin));
  }
  if (lead == 0) cost += (double)twh__ceil_div(needs->sinks, m);
  return cost / (double)c;
}

static void chunk_bands(const twh__lowering *lowering, const twh__needs *needs, int alibi, chunk_choice *best)
{
  int64_t m = lowering->grid.k_block, most = lowering->grid.q_block;

  for (int32_t lead = needs->sinks > 0 && needs->sinks < m && !alibi; lead >= 0; --lead) {
    int64_t until = lead ? twh__min(most, m - needs->sinks) : most; /* every row needs a key behind the sinks */
    for (int64_t c = needs->width > 4 * m ? until : 1; c <= until; ++c) {
      double cost = chunk_band(lowering, needs, c, lead ? needs->sinks : 0);
      if (cost > best->cost - 1e-12) continue;
      best->cost = cost;
      best->chunk = c;
      best->lead = lead;
    }
  }
}

void twh__lower_chunk(twh__lowering *lowering, const twh__needs *needs)
{
  chunk_choice best = { (double)INT64_MAX, 1, 0 };
  int          alibi = lowering->alibi;

  lowering->grid.band = lowering->cut_mode == TWH_MASK_TENSOR || needs->width == 1;
  if (needs->width == 1) {
    best.chunk = lowering->grid.q_block; /* the host reads one key per row */
  } else if (lowering->cut_mode == TWH_MASK_TENSOR) {
    chunk_bands(lowering, needs, alibi, &best);
  } else if (lowering->cut_mode == TWH_MASK_CAUSAL) {
    chunk_triangles(lowering, needs, alibi, &best);
  } else {
    best.chunk = twh__min(needs->width, twh__min(lowering->grid.q_block, lowering->grid.k_block));
  }
  lowering->grid.chunk = best.chunk;
  lowering->grid.lead = best.lead;
}
