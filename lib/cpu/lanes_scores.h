/* The first product and the largest scores: CPU_ROWS keys x 1 to 3 registers of queries at a time.
 *
 * A register block of 3 x 8 (or 3 x 4 where there are 16 registers) needs 3 loads and 8 broadcasts for 24 multiply-adds. The
 * accumulators are named one by one, because arrays of them stay in memory with some compilers and options. In the last keys of
 * a tile the last one is multiplied again in place of those that are not there: that changes no maximum and needs no second
 * kernel. Included by lanes_all.h. */

#define SCORES_DECLARE(r)                                                                   \
  const float *const k##r = tile->k + (j + r < last ? j + r : last) * tile->k_stride;       \
  VEC                a##r = V_ZERO(), b##r = V_ZERO(), c##r = V_ZERO();
#define SCORES_STEP(r)                                                                      \
  {                                                                                         \
    const VEC x = V_SET(k##r[at]);                                                          \
    a##r = V_FMA(x, q0, a##r);                                                              \
    if (n > 1) b##r = V_FMA(x, q1, b##r);                                                   \
    if (n > 2) c##r = V_FMA(x, q2, c##r);                                                   \
  }
#define SCORES_HIDE(r)                                                                      \
  a##r = V_IF_GREATER(reach, V_SET((float)(r)), a##r, V_SET(-INFINITY));                    \
  if (n > 1) b##r = V_IF_GREATER(reach, V_SET((float)(r - CPU_LANES)), b##r, V_SET(-INFINITY)); \
  if (n > 2) c##r = V_IF_GREATER(reach, V_SET((float)(r - 2 * CPU_LANES)), c##r, V_SET(-INFINITY));
#define SCORES_KEEP(r)                                                                      \
  V_STORE(to + (r) * CPU_BLOCK, a##r);                                                      \
  t0 = V_MAX(a##r, t0);                                                                     \
  if (n > 1) {                                                                              \
    V_STORE(to + (r) * CPU_BLOCK + CPU_LANES, b##r);                                        \
    t1 = V_MAX(b##r, t1);                                                                   \
  }                                                                                         \
  if (n > 2) {                                                                              \
    V_STORE(to + (r) * CPU_BLOCK + 2 * CPU_LANES, c##r);                                    \
    t2 = V_MAX(c##r, t2);                                                                   \
  }

/* Keys j .. j + CPU_ROWS - 1 and n registers from `first` on. hide: not every query sees all of these keys. */
CPU_INLINE void CPU_NAME(scores_block)(const twh__cpu_tile *tile, int64_t j, int64_t last, int first, int n, int hide)
{
  const float *q = tile->q + first * CPU_LANES;
  float       *to = tile->scores + j * CPU_BLOCK + first * CPU_LANES, *top = tile->top + first * CPU_LANES;
  VEC          t0, t1, t2;
  EACH_ROW(SCORES_DECLARE)
  for (int64_t at = 0; at < tile->qk_dim; at++) {
    const VEC q0 = V_LOAD(q), q1 = n > 1 ? V_LOAD(q + CPU_LANES) : q0, q2 = n > 2 ? V_LOAD(q + 2 * CPU_LANES) : q0;
    EACH_ROW(SCORES_STEP)
    q += CPU_BLOCK;
  }
  if (hide) {
    const VEC reach = V_ADD(V_LOAD(CPU_NAME(lane_numbers)), V_SET((float)(tile->limit - j + first * CPU_LANES)));
    EACH_ROW(SCORES_HIDE)
  }
  t0 = V_LOAD(top);
  t1 = n > 1 ? V_LOAD(top + CPU_LANES) : t0;
  t2 = n > 2 ? V_LOAD(top + 2 * CPU_LANES) : t0;
  EACH_ROW(SCORES_KEEP)
  V_STORE(top, t0);
  if (n > 1) V_STORE(top + CPU_LANES, t1);
  if (n > 2) V_STORE(top + 2 * CPU_LANES, t2);
}

/* Keys from..to that all queries of all n registers see. */
#define SCORES_FULL(n)                                                                                         \
  CPU_TARGET static void CPU_NAME(scores_full_##n)(const twh__cpu_tile *tile, int64_t from, int64_t to, int64_t last,      \
                                                   int first)                                                          \
  {                                                                                                            \
    for (int64_t j = from; j < to; j += CPU_ROWS) CPU_NAME(scores_block)(tile, j, last, first, n, 0);           \
  }                                                                                                            \
  CPU_TARGET static void CPU_NAME(scores_part_##n)(const twh__cpu_tile *tile, int64_t j, int64_t last, int first) \
  {                                                                                                            \
    CPU_NAME(scores_block)(tile, j, last, first, n, 1);                                                        \
  }
SCORES_FULL(1)
SCORES_FULL(2)
SCORES_FULL(3)

CPU_TARGET static void CPU_NAME(scores)(const twh__cpu_tile *tile)
{
  const int64_t vectors = tile->vectors, keys = tile->seen[vectors - 1];
  int64_t       full = tile->limit < 0 ? 0 : tile->limit / CPU_ROWS * CPU_ROWS;
  if (tile->limit >= keys) full = keys;
  for (int v = 0; v < vectors; v++) V_STORE(tile->top + v * CPU_LANES, V_SET(-INFINITY));
  if (vectors == 1) CPU_NAME(scores_full_1)(tile, 0, full, keys - 1, 0);
  else if (vectors == 2) CPU_NAME(scores_full_2)(tile, 0, full, keys - 1, 0);
  else CPU_NAME(scores_full_3)(tile, 0, full, keys - 1, 0);
  for (int64_t j = full; j < keys; j += CPU_ROWS) {
    int first = 0;
    while (tile->seen[first] <= j) first++;
    if (vectors - first == 1) CPU_NAME(scores_part_1)(tile, j, keys - 1, first);
    else if (vectors - first == 2) CPU_NAME(scores_part_2)(tile, j, keys - 1, first);
    else CPU_NAME(scores_part_3)(tile, j, keys - 1, first);
  }
}

#undef SCORES_DECLARE
#undef SCORES_STEP
#undef SCORES_HIDE
#undef SCORES_KEEP
#undef SCORES_FULL
