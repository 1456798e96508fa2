/* The second product: CPU_ROWS value columns x 1 to 3 registers of queries at a time, as in lanes_scores.h.
 *
 * Every tile is summed from zero and added to what the earlier ones gave, so that errors grow with the keys of a tile and the
 * number of tiles, not with all keys. The columns behind the last full strip are taken 4, 2 and 1 at a time: a single spare
 * column costs itself. Where the registers of a block see different numbers of keys, each goes on alone with the
 * keys that the ones before it do not see. Included by lanes_all.h. */

#define VALUES_AHEAD 8 /* rows: each is a line of its own, of which a strip reads a part */
#define VALUES_DECLARE(r) VEC a##r = V_ZERO(), b##r = V_ZERO(), c##r = V_ZERO();
#define VALUES_STEP(r)                                                                      \
  {                                                                                         \
    const VEC x = V_SET(v[r]);                                                              \
    a##r = V_FMA(x, p0, a##r);                                                              \
    if (n > 1) b##r = V_FMA(x, p1, b##r);                                                   \
    if (n > 2) c##r = V_FMA(x, p2, c##r);                                                   \
  }
#define VALUES_STORE(r)                                                                     \
  V_STORE(out + (r) * CPU_BLOCK, a##r);                                                     \
  if (n > 1) V_STORE(out + (r) * CPU_BLOCK + CPU_LANES, b##r);                              \
  if (n > 2) V_STORE(out + (r) * CPU_BLOCK + 2 * CPU_LANES, c##r);
#define VALUES_ADD(r)                                                                       \
  a##r = V_FMA(V_LOAD(out + (r) * CPU_BLOCK), d0, a##r);                                    \
  if (n > 1) b##r = V_FMA(V_LOAD(out + (r) * CPU_BLOCK + CPU_LANES), d1, b##r);             \
  if (n > 2) c##r = V_FMA(V_LOAD(out + (r) * CPU_BLOCK + 2 * CPU_LANES), d2, c##r);

/* As many columns as the list EACH has, from `column` on, over the keys from..to. */
#define VALUES_STRIP(EACH)                                                                  \
  {                                                                                         \
    const float *p = scores, *v = values + column;                                          \
    float       *out = tile->out + column * CPU_BLOCK + first * CPU_LANES;                  \
    EACH(VALUES_DECLARE)                                                                    \
    for (int64_t j = from; j < to; j++) {                                                   \
      const VEC p0 = V_LOAD(p), p1 = n > 1 ? V_LOAD(p + CPU_LANES) : p0, p2 = n > 2 ? V_LOAD(p + 2 * CPU_LANES) : p0; \
      CPU_PREFETCH(v, VALUES_AHEAD * tile->v_stride);                                       \
      EACH(VALUES_STEP)                                                                     \
      p += CPU_BLOCK;                                                                       \
      v += tile->v_stride;                                                                  \
    }                                                                                       \
    if (decay != NULL) {                                                                    \
      EACH(VALUES_ADD)                                                                      \
    }                                                                                       \
    EACH(VALUES_STORE)                                                                      \
  }

/* n registers from `first` on and the keys from..to; what was there shrinks by `decay`, or counts for nothing where that
 * is NULL. */
CPU_INLINE void CPU_NAME(values_keys)(const twh__cpu_tile *tile, const float *decay, int64_t from, int64_t to, int first, int n)
{
  const float *const scores = tile->scores + from * CPU_BLOCK + first * CPU_LANES;
  const float *const values = tile->v + from * tile->v_stride;
  const VEC          d0 = decay != NULL ? V_LOAD(decay) : V_ZERO();
  const VEC          d1 = n > 1 && decay != NULL ? V_LOAD(decay + CPU_LANES) : d0;
  const VEC          d2 = n > 2 && decay != NULL ? V_LOAD(decay + 2 * CPU_LANES) : d0;
  int64_t            column = 0;
  for (; column + CPU_ROWS <= tile->v_dim; column += CPU_ROWS) VALUES_STRIP(EACH_ROW)
#if CPU_ROWS == 8
  if (tile->v_dim & 4) {
    VALUES_STRIP(EACH_OF_4)
    column += 4;
  }
#endif
  if (tile->v_dim & 2) {
    VALUES_STRIP(EACH_OF_2)
    column += 2;
  }
  if (tile->v_dim & 1) VALUES_STRIP(EACH_OF_1)
}

#define VALUES_FULL(n)                                                                                         \
  CPU_TARGET static void CPU_NAME(values_full_##n)(const twh__cpu_tile *tile, const float *decay, int64_t from, int64_t to, \
                                                   int first)                                                          \
  {                                                                                                            \
    CPU_NAME(values_keys)(tile, decay, from, to, first, n);                                                    \
  }
VALUES_FULL(1)
VALUES_FULL(2)
VALUES_FULL(3)

CPU_TARGET static void CPU_NAME(values)(const twh__cpu_tile *tile)
{
  const float *decay = tile->fresh ? NULL : tile->decay;
  int64_t      from = 0;
  for (int first = 0; first < tile->vectors; first++) {
    const int64_t to = tile->seen[first], n = tile->vectors - first;
    if (first > 0 && to == from) continue;
    if (n == 1) CPU_NAME(values_full_1)(tile, decay, from, to, first);
    else if (n == 2) CPU_NAME(values_full_2)(tile, decay, from, to, first);
    else CPU_NAME(values_full_3)(tile, decay, from, to, first);
    decay = CPU_NAME(ones);
    from = to;
  }
}

#undef VALUES_AHEAD
#undef VALUES_DECLARE
#undef VALUES_STEP
#undef VALUES_ADD
#undef VALUES_STORE
#undef VALUES_STRIP
#undef VALUES_FULL
