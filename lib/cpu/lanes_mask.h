/* The mask operand, (queries, keys) row by row, onto scores that are (keys, queries): a square at a time, transposed. What
 * hides a key becomes -inf whatever its score was; all else is added. Included by lanes_all.h. */

/* n <= CPU_LANES values to be added; 0 behind them. */
CPU_INLINE VEC CPU_NAME(mask_load)(const void *from, int32_t dtype, int64_t n)
{
  unsigned char part[CPU_LANES];
  if (dtype != TWH_BOOL) return CPU_NAME(rows_load)(from, dtype, n);
  if (n == CPU_LANES) return V_FROM_BOOL((const unsigned char *)from);
  memset(part, 1, sizeof part);
  memcpy(part, from, (size_t)n);
  return V_FROM_BOOL(part);
}

/* Scores are in units of log2. A NaN stays one. */
CPU_INLINE VEC CPU_NAME(mask_add)(VEC score, VEC mask)
{
  const VEC sum = V_FMA(mask, V_SET(1.44269504f), score);
  return V_IF_GREATER(V_SET(-FLT_MAX), mask, V_SET(-INFINITY), sum);
}

CPU_INLINE void CPU_NAME(mask_as)(const twh__cpu_tile *tile, const twh__cpu_rows *mask, int32_t dtype)
{
  const int64_t element = dtype == TWH_BOOL ? 1 : dtype == TWH_F32 ? 4 : 2;
  for (int64_t first = 0; first < mask->rows; first += CPU_LANES) {
    VEC top = V_SET(-INFINITY);
    for (int64_t j = 0; j < mask->dim; j += CPU_LANES) {
      const int64_t n = mask->dim - j < CPU_LANES ? mask->dim - j : CPU_LANES;
      const char   *at = (const char *)mask->data + (first * mask->stride + j) * element;
      float        *to = tile->scores + j * CPU_BLOCK + first;
      VEC           x[CPU_LANES];
      EACH_LANE(i)
      {
        x[i] = first + i < mask->rows ? CPU_NAME(mask_load)(at, dtype, n) : V_ZERO();
        at += mask->stride * element;
      }
      V_TRANSPOSE(x);
      EACH_LANE(i)
      {
        if (i < n) {
          x[i] = CPU_NAME(mask_add)(V_LOAD(to), x[i]);
          V_STORE(to, x[i]);
          top = V_MAX(x[i], top);
        }
        to += CPU_BLOCK;
      }
    }
    V_STORE(tile->top + first, top);
  }
}

CPU_TARGET static void CPU_NAME(mask)(const twh__cpu_tile *tile, const twh__cpu_rows *mask)
{
  if (mask->dtype == TWH_BOOL) CPU_NAME(mask_as)(tile, mask, TWH_BOOL);
  else if (mask->dtype == TWH_F32) CPU_NAME(mask_as)(tile, mask, TWH_F32);
  else if (mask->dtype == TWH_BF16) CPU_NAME(mask_as)(tile, mask, TWH_BF16);
  else CPU_NAME(mask_as)(tile, mask, TWH_F16);
}

CPU_TARGET static void CPU_NAME(lone_mask)(const twh__cpu_lone *lone, const void *mask, int32_t dtype)
{
  const int64_t element = dtype == TWH_BOOL ? 1 : dtype == TWH_F32 ? 4 : 2;
  for (int64_t j = 0; j < lone->keys; j += CPU_LANES) {
    const int64_t n = lone->keys - j < CPU_LANES ? lone->keys - j : CPU_LANES;
    const VEC     x = CPU_NAME(mask_load)((const char *)mask + j * element, dtype, n);
    V_STORE(lone->scores + j, CPU_NAME(mask_add)(V_LOAD(lone->scores + j), x));
  }
}
