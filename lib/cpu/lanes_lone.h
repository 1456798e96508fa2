/* One query alone, as in decoding: vectors run along the coordinates, and keys and values are read as they lie.
 *
 * A block of queries would leave all lanes but one idle. CPU_LANES keys are multiplied together, so that one transposition
 * turns their partial sums into a vector of scores. Included by lanes_all.h. */

CPU_INLINE VEC CPU_NAME(lone_scores_of)(const twh__cpu_lone *lone, int64_t j)
{
  const float *rows[CPU_LANES];
  VEC          sum[CPU_LANES];
  int64_t      c = 0;
  EACH_LANE(i)
  {
    rows[i] = lone->k + (j + i < lone->keys ? j + i : lone->keys - 1) * lone->k_stride;
    sum[i] = V_ZERO();
  }
  for (; c + CPU_LANES <= lone->qk_dim; c += CPU_LANES) {
    const VEC q = V_LOAD(lone->q + c);
    EACH_LANE(i) sum[i] = V_FMA(V_LOAD_FAR(rows[i] + c), q, sum[i]);
  }
  if (c < lone->qk_dim) {
    const VEC q = V_LOAD(lone->q + c);
    EACH_LANE(i) sum[i] = V_FMA(V_LOAD_SOME(rows[i] + c, lone->qk_dim - c), q, sum[i]);
  }
  V_TRANSPOSE(sum);
  for (int step = CPU_LANES / 2; step > 0; step /= 2)
    for (int i = 0; i < step; i++) sum[i] = V_ADD(sum[i], sum[i + step]);
  return sum[0];
}

CPU_TARGET static void CPU_NAME(lone_scores)(const twh__cpu_lone *lone)
{
  for (int64_t j = 0; j < lone->keys; j += CPU_LANES) {
    VEC scores = CPU_NAME(lone_scores_of)(lone, j);
    if (lone->cap > 0.0f) scores = V_MUL(CPU_NAME(tanh)(scores), V_SET(lone->cap));
    V_STORE(lone->scores + j, scores);
  }
}

CPU_TARGET static void CPU_NAME(lone_weights)(twh__cpu_lone *lone)
{
  const int64_t end = (lone->keys + CPU_LANES - 1) / CPU_LANES * CPU_LANES;
  float         part[CPU_LANES] __attribute__((aligned(64)));
  float         max = lone->max, sum = 0.0f;
  VEC           vector = V_SET(-INFINITY);
  for (int64_t j = lone->keys; j < end; j++) lone->scores[j] = -INFINITY;
  for (int64_t j = 0; j < end; j += CPU_LANES) vector = V_MAX(V_LOAD(lone->scores + j), vector);
  V_STORE(part, vector);
  for (int i = 0; i < CPU_LANES; i++) max = part[i] > max ? part[i] : max;
  vector = V_ZERO();
  for (int64_t j = 0; j < end; j += CPU_LANES) {
    const VEC weights = CPU_NAME(power)(V_SUB(V_LOAD(lone->scores + j), V_SET(max)));
    V_STORE(lone->scores + j, weights);
    vector = V_ADD(vector, weights);
  }
  V_STORE(part, vector);
  for (int i = 0; i < CPU_LANES; i++) sum += part[i];
  V_STORE(part, CPU_NAME(power)(V_SET(lone->max - max)));
  lone->decay = part[0];
  lone->max = max;
  lone->sum = lone->sum * lone->decay + sum;
}

/* n vectors of columns from c on, two keys at a time; some: only so many numbers of the last one. */
CPU_INLINE void CPU_NAME(lone_values_of)(const twh__cpu_lone *lone, int64_t c, int n, int64_t some)
{
  const VEC decay = V_SET(lone->decay);
  VEC       even[4], odd[4];
  int64_t   j = 0;
  EACH_OF(i, n) even[i] = odd[i] = V_ZERO();
  for (; j < lone->keys; j++) {
    const float *v = lone->v + j * lone->v_stride + c;
    VEC          weight = V_SET(lone->scores[j]);
    EACH_OF(i, n) even[i] = V_FMA(some ? V_LOAD_SOME(v + i * CPU_LANES, some) : V_LOAD_FAR(v + i * CPU_LANES), weight, even[i]);
    if (++j == lone->keys) break;
    v += lone->v_stride;
    weight = V_SET(lone->scores[j]);
    EACH_OF(i, n) odd[i] = V_FMA(some ? V_LOAD_SOME(v + i * CPU_LANES, some) : V_LOAD_FAR(v + i * CPU_LANES), weight, odd[i]);
  }
  EACH_OF(i, n)
  {
    float *out = lone->out + c + i * CPU_LANES;
    V_STORE(out, V_FMA(V_LOAD(out), decay, V_ADD(even[i], odd[i])));
  }
}

CPU_TARGET static void CPU_NAME(lone_values)(const twh__cpu_lone *lone)
{
  int64_t c = 0;
  for (; c + 4 * CPU_LANES <= lone->v_dim; c += 4 * CPU_LANES) CPU_NAME(lone_values_of)(lone, c, 4, 0);
  for (; c + CPU_LANES <= lone->v_dim; c += CPU_LANES) CPU_NAME(lone_values_of)(lone, c, 1, 0);
  if (c < lone->v_dim) CPU_NAME(lone_values_of)(lone, c, 1, lone->v_dim - c);
}

CPU_TARGET static void CPU_NAME(lone_pack)(float *to, const void *from, int32_t dtype, int64_t dim, float factor)
{
  const int64_t element = dtype == TWH_F32 ? 4 : 2;
  for (int64_t c = 0; c < dim; c += CPU_LANES) {
    const int64_t n = dim - c < CPU_LANES ? dim - c : CPU_LANES;
    V_STORE(to + c, V_MUL(CPU_NAME(rows_load)((const char *)from + c * element, dtype, n), V_SET(factor)));
  }
}

CPU_TARGET static int CPU_NAME(lone_store)(void *to, int32_t dtype, const twh__cpu_lone *lone)
{
  const int64_t element = dtype == TWH_F32 ? 4 : 2;
  const VEC     factor = V_SET(lone->sum > 0.0f ? 1.0f / lone->sum : lone->sum * 0.0f);
  VEC           wrong = V_ZERO();
  float         part[CPU_LANES] __attribute__((aligned(64)));
  int           finite = 1;
  for (int64_t c = 0; c < lone->v_dim; c += CPU_LANES) {
    const int64_t n = lone->v_dim - c < CPU_LANES ? lone->v_dim - c : CPU_LANES;
    const VEC     x = V_MUL(V_LOAD(lone->out + c), factor);
    wrong = V_FMA(x, V_ZERO(), wrong);
    if (to != NULL) CPU_NAME(rows_store)((char *)to + c * element, dtype, n, x);
  }
  V_STORE(part, wrong);
  for (int i = 0; i < CPU_LANES; i++) finite &= part[i] == 0.0f;
  return finite;
}
