/* What happens to the scores of a tile between the two products. Included by lanes_all.h. */

/* 2^t for t <= 0: a degree 5 polynomial on [-1/2, 1/2] whose own error is 9e-8, with 2^0 exactly 1. 0 below 2^-126, so that no
 * product is slow on denormal numbers. NaN stays NaN. */
CPU_INLINE VEC CPU_NAME(power)(VEC t)
{
  const VEC whole = V_ROUND(t), r = V_SUB(t, whole);
  VEC       p = V_FMA(V_SET(0.0013264728477f), r, V_SET(0.00967151299f));
  p = V_FMA(p, r, V_SET(0.055507335812f));
  p = V_FMA(p, r, V_SET(0.240222424269f));
  p = V_FMA(p, r, V_SET(0.693147003651f));
  p = V_FMA(p, r, V_SET(1.0f));
  return V_SCALE(p, whole, t);
}

/* The weights of one register of queries for `keys` keys, four chains at a time. */
CPU_INLINE VEC CPU_NAME(weights_of)(float *scores, int64_t keys, VEC max)
{
  VEC     s0 = V_ZERO(), s1 = s0, s2 = s0, s3 = s0;
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) {
    float    *at = scores + j * CPU_BLOCK;
    const VEC p0 = CPU_NAME(power)(V_SUB(V_LOAD(at), max)), p1 = CPU_NAME(power)(V_SUB(V_LOAD(at + CPU_BLOCK), max));
    const VEC p2 = CPU_NAME(power)(V_SUB(V_LOAD(at + 2 * CPU_BLOCK), max));
    const VEC p3 = CPU_NAME(power)(V_SUB(V_LOAD(at + 3 * CPU_BLOCK), max));
    V_STORE(at, p0);
    V_STORE(at + CPU_BLOCK, p1);
    V_STORE(at + 2 * CPU_BLOCK, p2);
    V_STORE(at + 3 * CPU_BLOCK, p3);
    s0 = V_ADD(s0, p0);
    s1 = V_ADD(s1, p1);
    s2 = V_ADD(s2, p2);
    s3 = V_ADD(s3, p3);
  }
  for (; j < keys; j++) {
    const VEC p = CPU_NAME(power)(V_SUB(V_LOAD(scores + j * CPU_BLOCK), max));
    V_STORE(scores + j * CPU_BLOCK, p);
    s0 = V_ADD(s0, p);
  }
  return V_ADD(V_ADD(s0, s1), V_ADD(s2, s3));
}

CPU_TARGET static void CPU_NAME(weights)(const twh__cpu_tile *tile)
{
  for (int v = 0; v < tile->vectors; v++) {
    const int at = v * CPU_LANES;
    const VEC old = V_LOAD(tile->max + at), max = V_MAX(V_LOAD(tile->top + at), old);
    const VEC decay = CPU_NAME(power)(V_SUB(old, max));
    const VEC sum = CPU_NAME(weights_of)(tile->scores + at, tile->seen[v], max);
    V_STORE(tile->max + at, max);
    V_STORE(tile->decay + at, decay);
    V_STORE(tile->sum + at, V_FMA(V_LOAD(tile->sum + at), decay, sum));
  }
}

/* tanh(x) from u = 2 x log2(e): an odd polynomial where 1 - 2^-|u| would cancel, else 1 - 2 e / (1 + e), e = 2^-|u|. */
CPU_INLINE VEC CPU_NAME(tanh)(VEC u)
{
  const VEC size = V_MAX(u, V_SUB(V_ZERO(), u)), x = V_MUL(size, V_SET(0.34657359f)), square = V_MUL(x, x);
  const VEC e = CPU_NAME(power)(V_SUB(V_ZERO(), size));
  const VEC far = V_SUB(V_SET(1.0f), V_DIV(V_ADD(e, e), V_ADD(e, V_SET(1.0f))));
  VEC       near = V_FMA(square, V_SET(-0.00627424f), V_SET(0.02107168f)), result;
  near = V_FMA(near, square, V_SET(-0.05385231f));
  near = V_FMA(near, square, V_SET(0.13332586f));
  near = V_FMA(near, square, V_SET(-0.33333318f));
  near = V_FMA(V_MUL(near, square), x, x);
  result = V_IF_GREATER(V_SET(0.55f), x, near, far);
  return V_IF_GREATER(V_ZERO(), u, V_SUB(V_ZERO(), result), result);
}

CPU_TARGET static void CPU_NAME(cap)(const twh__cpu_tile *tile)
{
  const VEC cap = V_SET(tile->cap);
  for (int v = 0; v < tile->vectors; v++)
    for (int64_t j = 0; j < tile->seen[v]; j++) {
      float *at = tile->scores + j * CPU_BLOCK + v * CPU_LANES;
      V_STORE(at, V_MUL(CPU_NAME(tanh)(V_LOAD(at)), cap));
    }
}

CPU_TARGET static void CPU_NAME(top)(const twh__cpu_tile *tile)
{
  for (int v = 0; v < tile->vectors; v++) {
    const VEC     lane = V_ADD(V_LOAD(CPU_NAME(lane_numbers)), V_SET((float)(v * CPU_LANES)));
    const int64_t keys = tile->seen[v];
    VEC           top = V_SET(-INFINITY);
    for (int64_t j = 0; j < keys; j++) {
      float *at = tile->scores + j * CPU_BLOCK + v * CPU_LANES;
      VEC    x = V_LOAD(at);
      if (j >= tile->limit + v * CPU_LANES) {
        x = V_IF_GREATER(lane, V_SET((float)(j - tile->limit)), x, V_SET(-INFINITY));
        V_STORE(at, x);
      }
      top = V_MAX(x, top);
    }
    V_STORE(tile->top + v * CPU_LANES, top);
  }
}
