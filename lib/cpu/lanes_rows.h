/* Between rows of numbers in memory and the transposed blocks that the products work on, a square of CPU_LANES x CPU_LANES
 * numbers at a time. Included by lanes_all.h. */

/* n <= CPU_LANES numbers; 0 behind them. */
CPU_INLINE VEC CPU_NAME(rows_load)(const void *from, int32_t dtype, int64_t n)
{
  union {
    float    numbers[CPU_LANES];
    uint16_t halves[CPU_LANES];
  } part;
  if (n < CPU_LANES) {
    memset(&part, 0, sizeof part);
    memcpy(&part, from, (size_t)n * (dtype == TWH_F32 ? sizeof(float) : sizeof(uint16_t)));
    from = &part;
  }
  if (dtype == TWH_F32) return V_LOAD_FAR((const float *)from);
  return dtype == TWH_BF16 ? V_FROM_BF16((const uint16_t *)from) : V_FROM_F16((const uint16_t *)from);
}

CPU_INLINE void CPU_NAME(rows_store)(void *to, int32_t dtype, int64_t n, VEC x)
{
  union {
    float    numbers[CPU_LANES];
    uint16_t halves[CPU_LANES];
  } part;
  void *at = n < CPU_LANES ? (void *)&part : to;
  if (dtype == TWH_F32) V_STORE_FAR((float *)at, x);
  else if (dtype == TWH_BF16) V_TO_BF16((uint16_t *)at, x);
  else V_TO_F16((uint16_t *)at, x);
  if (n < CPU_LANES) memcpy(to, &part, (size_t)n * (dtype == TWH_F32 ? sizeof(float) : sizeof(uint16_t)));
}

CPU_INLINE void CPU_NAME(pack_as)(float *to, const twh__cpu_rows *from, float factor, int32_t dtype)
{
  const size_t element = dtype == TWH_F32 ? sizeof(float) : sizeof(uint16_t);
  const VEC    scale = V_SET(factor);
  for (int64_t first = 0; first < from->rows; first += CPU_LANES) {
    for (int64_t c = 0; c < from->dim; c += CPU_LANES) {
      const int64_t n = from->dim - c < CPU_LANES ? from->dim - c : CPU_LANES;
      const char   *at = (const char *)from->data + (first * from->stride + c) * (int64_t)element;
      VEC           x[CPU_LANES];
      EACH_LANE(i)
      {
        x[i] = first + i < from->rows ? V_MUL(CPU_NAME(rows_load)(at, dtype, n), scale) : V_ZERO();
        at += from->stride * (int64_t)element;
      }
      V_TRANSPOSE(x);
      for (int64_t i = 0; i < n; i++) V_STORE(to + (c + i) * CPU_BLOCK + first, x[i]);
    }
  }
}

CPU_TARGET static void CPU_NAME(pack)(float *to, const twh__cpu_rows *from, float factor)
{
  if (from->dtype == TWH_F32) CPU_NAME(pack_as)(to, from, factor, TWH_F32);
  else if (from->dtype == TWH_BF16) CPU_NAME(pack_as)(to, from, factor, TWH_BF16);
  else CPU_NAME(pack_as)(to, from, factor, TWH_F16);
}

CPU_TARGET static void CPU_NAME(widen)(float *to, const void *from, int32_t dtype, int64_t n)
{
  const uint16_t *halves = (const uint16_t *)from;
  int64_t         at = 0;
  if (dtype == TWH_BF16)
    for (; at + CPU_LANES <= n; at += CPU_LANES) V_STORE_FAR(to + at, V_FROM_BF16(halves + at));
  else
    for (; at + CPU_LANES <= n; at += CPU_LANES) V_STORE_FAR(to + at, V_FROM_F16(halves + at));
  if (at < n) CPU_NAME(rows_store)(to + at, TWH_F32, n - at, CPU_NAME(rows_load)(halves + at, dtype, n - at));
}

CPU_INLINE void CPU_NAME(store_as)(const twh__cpu_rows *to, const float *out, const float *sum, float *broken, int32_t dtype)
{
  const size_t element = dtype == TWH_F32 ? sizeof(float) : sizeof(uint16_t);
  for (int64_t first = 0; first < to->rows; first += CPU_LANES) {
    const VEC     total = V_LOAD(sum + first);
    const VEC     factor = V_IF_GREATER(total, V_ZERO(), V_DIV(V_SET(1.0f), total), V_MUL(total, V_ZERO()));
    const int64_t rows = to->rows - first < CPU_LANES ? to->rows - first : CPU_LANES;
    VEC           wrong = V_ZERO();
    for (int64_t c = 0; c < to->dim; c += CPU_LANES) {
      const int64_t n = to->dim - c < CPU_LANES ? to->dim - c : CPU_LANES;
      char         *at = (char *)to->data;
      VEC           x[CPU_LANES];
      EACH_LANE(i)
      {
        x[i] = i < n ? V_MUL(V_LOAD(out + (c + i) * CPU_BLOCK + first), factor) : V_ZERO();
        wrong = V_FMA(x[i], V_ZERO(), wrong);
      }
      if (at == NULL) continue;
      at += (first * to->stride + c) * (int64_t)element;
      V_TRANSPOSE(x);
      EACH_LANE(i)
      {
        if (i < rows) CPU_NAME(rows_store)(at, dtype, n, x[i]);
        at += to->stride * (int64_t)element;
      }
    }
    V_STORE(broken + first, wrong);
  }
}

CPU_TARGET static void CPU_NAME(store)(const twh__cpu_rows *to, const float *out, const float *sum, float *broken)
{
  if (to->dtype == TWH_F32) CPU_NAME(store_as)(to, out, sum, broken, TWH_F32);
  else if (to->dtype == TWH_BF16) CPU_NAME(store_as)(to, out, sum, broken, TWH_BF16);
  else CPU_NAME(store_as)(to, out, sum, broken, TWH_F16);
}
