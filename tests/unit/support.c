/* Test support: assertions, random numbers, data types, and tensors that are poisoned wherever the library has no business.
 *
 * Conversions go through frexp and rint, slowly and obviously, so that they share nothing with the library's. */
#include "support.h"

void support_at_most(double value, double bound, const char *what, const char *file, int line)
{
  if (value <= bound) return;
  print_error("%s: %.9g is not at most %.9g\n", what, value, bound);
  _fail(file, line);
}

void support_status(twh_status status, twh_status expected, const twh_error *error, const char *word, const char *file,
                    int line)
{
  const char *message = error && status < 0 ? error->message : "";
  int         right = status == expected;
  if (right && expected < 0 && error) right = error->status == expected && (!word || strstr(message, word) != NULL);
  if (right) return;
  print_error("status %s, expected %s with \"%s\" in the message; the message is \"%s\"\n", twh_status_name(status),
              twh_status_name(expected), word ? word : "", message);
  _fail(file, line);
}

/* ---- random numbers ---- */

static uint64_t support_mix(uint64_t x)
{
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

support_random support_random_at(uint64_t seed, uint64_t stream)
{
  support_random random;
  random.key = support_mix(support_mix(seed) ^ stream);
  random.counter = 0;
  return random;
}

uint64_t support_bits(support_random *random)
{
  return support_mix(random->key ^ support_mix(random->counter++));
}

double support_uniform(support_random *random)
{
  return ((double)(support_bits(random) >> 12) + 0.5) / 4503599627370496.0;
}

double support_normal(support_random *random)
{
  double radius = sqrt(-2.0 * log(support_uniform(random)));
  return radius * cos(6.283185307179586 * support_uniform(random));
}

int64_t support_below(support_random *random, int64_t n)
{
  return (int64_t)(support_bits(random) % (uint64_t)n);
}

int64_t support_between(support_random *random, int64_t lo, int64_t hi)
{
  return lo + support_below(random, hi - lo + 1);
}

int support_one_in(support_random *random, int64_t n)
{
  return support_below(random, n) == 0;
}

uint64_t support_seed(uint64_t fallback)
{
  const char *text = getenv("TWH_SEED");
  return text && *text ? (uint64_t)strtoull(text, NULL, 0) : fallback;
}

/* ---- numbers ---- */

typedef union support_word {
  float    f;
  uint32_t u;
} support_word;

int64_t support_bytes(int32_t dtype)
{
  return dtype == TWH_F64 ? 8 : dtype == TWH_F32 ? 4 : dtype == TWH_BOOL ? 1 : 2;
}

static int support_digits(int32_t dtype)
{
  return dtype == TWH_F64 ? 53 : dtype == TWH_F32 ? 24 : dtype == TWH_F16 ? 11 : 8;
}

static int support_least_exponent(int32_t dtype)
{
  return dtype == TWH_F64 ? -1022 : dtype == TWH_F16 ? -14 : -126;
}

double support_epsilon(int32_t dtype)
{
  return ldexp(1.0, 1 - support_digits(dtype));
}

double support_ulp(double magnitude, int32_t dtype)
{
  int exponent = support_least_exponent(dtype), e;
  if (magnitude != 0.0 && isfinite(magnitude)) {
    (void)frexp(magnitude, &e);
    if (e - 1 > exponent) exponent = e - 1;
  }
  return ldexp(1.0, exponent - support_digits(dtype) + 1);
}

double support_round(double value, int32_t dtype)
{
  double step, largest;
  if (dtype == TWH_F64 || dtype == 0 || dtype == TWH_BOOL || value == 0.0 || !isfinite(value)) return value;
  step = support_ulp(value, dtype);
  value = rint(value / step) * step;
  largest = dtype == TWH_F16 ? 65504.0 : ldexp(2.0 - support_epsilon(dtype), 127);
  return fabs(value) > largest ? copysign(INFINITY, value) : value;
}

double support_load(const void *data, int32_t dtype, int64_t at)
{
  support_word word;
  uint16_t     half;
  int          exponent, fraction;
  switch (dtype) {
  case TWH_F64: return ((const double *)data)[at];
  case TWH_F32: return (double)((const float *)data)[at];
  case TWH_BOOL: return ((const unsigned char *)data)[at] ? 1.0 : 0.0;
  case TWH_BF16: word.u = (uint32_t)((const uint16_t *)data)[at] << 16; return (double)word.f;
  default: break;
  }
  half = ((const uint16_t *)data)[at];
  exponent = (half >> 10) & 31;
  fraction = half & 1023;
  if (exponent == 31) return fraction ? (double)NAN : half & 0x8000 ? -INFINITY : INFINITY;
  return (half & 0x8000 ? -1.0 : 1.0) * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

void support_store(void *data, int32_t dtype, int64_t at, double value)
{
  support_word word;
  double       rounded = support_round(value, dtype), magnitude = fabs(rounded);
  uint16_t     half;
  int          exponent;
  switch (dtype) {
  case TWH_F64: ((double *)data)[at] = value; return;
  case TWH_F32: ((float *)data)[at] = (float)value; return;
  case TWH_BOOL: ((unsigned char *)data)[at] = value != 0.0; return;
  case TWH_BF16:
    word.f = (float)rounded;
    ((uint16_t *)data)[at] = (uint16_t)(word.u >> 16);
    return;
  default: break;
  }
  if (isnan(value))
    half = 0x7e00;
  else if (isinf(rounded))
    half = 0x7c00;
  else if (magnitude < ldexp(1.0, -14))
    half = (uint16_t)ldexp(magnitude, 24);
  else {
    (void)frexp(magnitude, &exponent);
    half = (uint16_t)(((exponent + 14) << 10) + (int)ldexp(magnitude, 11 - exponent) - 1024);
  }
  ((uint16_t *)data)[at] = (uint16_t)(half | (signbit(value) ? 0x8000 : 0));
}

/* ---- tensors ---- */

double support_at(const twh_tensor *tensor, int64_t b, int64_t h, int64_t r, int64_t c)
{
  return support_load(tensor->data, tensor->dtype,
                      b * tensor->batch_stride + h * tensor->head_stride + r * tensor->row_stride + c);
}

void support_set(const twh_tensor *tensor, int64_t b, int64_t h, int64_t r, int64_t c, double value)
{
  support_store(tensor->data, tensor->dtype, b * tensor->batch_stride + h * tensor->head_stride + r * tensor->row_stride + c,
                value);
}

/* Strides and memory for one tensor. The gaps are odd numbers, so that nothing stays aligned by accident. */
static void support_tensor_place(support_tensors *tensors, int which, twh_tensor *tensor, int32_t dtype, int32_t layout,
                                 int64_t heads, int64_t rows, int64_t dim)
{
  int64_t batch = tensors->batch, last;
  twh_tensor_init(tensor);
  tensor->dtype = dtype;
  if (layout == SUPPORT_PACKED_HEADS) {
    tensor->head_stride = dim;
    tensor->row_stride = heads * dim;
    tensor->batch_stride = rows * heads * dim;
  } else {
    tensor->row_stride = dim + (layout == SUPPORT_GAPS ? 3 : 0);
    tensor->head_stride = rows * tensor->row_stride + (layout == SUPPORT_GAPS ? 5 : 0);
    tensor->batch_stride = heads * tensor->head_stride + (layout == SUPPORT_GAPS ? 7 : 0);
  }
  last = (batch - 1) * tensor->batch_stride + (heads - 1) * tensor->head_stride + (rows - 1) * tensor->row_stride + dim;
  if (batch <= 0 || rows <= 0) last = 0;
  tensors->bytes[which] = (size_t)(last * support_bytes(dtype));
  tensors->memory[which] = malloc(tensors->bytes[which] ? tensors->bytes[which] : 1);
  assert_non_null(tensors->memory[which]);
  memset(tensors->memory[which], SUPPORT_POISON, tensors->bytes[which]);
  tensor->data = tensors->memory[which];
}

/* What has one number per head. */
static void support_tensors_heads(support_tensors *tensors, const twh_problem *problem, int32_t dtype, int32_t layout,
                                  int flags)
{
  int64_t batch = tensors->batch;
  tensors->batch = 1;
  if (flags & SUPPORT_SINKS) {
    support_tensor_place(tensors, 6, &tensors->sinks, dtype, layout, problem->q_heads, 1, 1);
    tensors->all.sink_logits = &tensors->sinks;
  }
  if (problem->flags & TWH_PROBLEM_ALIBI) {
    support_tensor_place(tensors, 8, &tensors->slopes, dtype, layout, problem->q_heads, 1, 1);
    tensors->all.alibi_slopes = &tensors->slopes;
  }
  tensors->batch = batch;
}

void support_tensors_create(support_tensors *tensors, const twh_problem *problem, int32_t dtype, int32_t layout, int flags)
{
  int64_t      b, entry;
  twh_sequence sequence;
  memset(tensors, 0, sizeof *tensors);
  tensors->batch = problem->sequences ? 1 : problem->batch;
  for (b = 0; b < problem->batch; ++b) {
    sequence = support_sequence(problem, b, &entry);
    if (sequence.q_begin + sequence.q_len > tensors->q_rows) tensors->q_rows = sequence.q_begin + sequence.q_len;
    if (sequence.k_begin + sequence.k_len > tensors->k_rows) tensors->k_rows = sequence.k_begin + sequence.k_len;
  }
  support_tensor_place(tensors, 0, &tensors->q, dtype, layout, problem->q_heads, tensors->q_rows, problem->qk_dim);
  support_tensor_place(tensors, 1, &tensors->k, dtype, layout, problem->kv_heads, tensors->k_rows, problem->qk_dim);
  support_tensor_place(tensors, 2, &tensors->v, dtype, layout, problem->kv_heads, tensors->k_rows, problem->v_dim);
  support_tensor_place(tensors, 3, &tensors->out, dtype, layout, problem->q_heads, tensors->q_rows, problem->v_dim);
  twh_tensors_init(&tensors->all);
  tensors->all.q = &tensors->q;
  tensors->all.k = &tensors->k;
  tensors->all.v = &tensors->v;
  tensors->all.out = &tensors->out;
  if (flags & SUPPORT_LSE) {
    support_tensor_place(tensors, 4, &tensors->lse, dtype == TWH_F64 ? TWH_F64 : TWH_F32, layout, problem->q_heads,
                         tensors->q_rows, 1);
    tensors->all.lse = &tensors->lse;
  }
  if (problem->mask_dtype) {
    support_tensor_place(tensors, 5, &tensors->mask, problem->mask_dtype, layout == SUPPORT_GAPS ? layout : SUPPORT_DENSE,
                         problem->q_heads, tensors->q_rows, tensors->k_rows);
    tensors->all.mask = &tensors->mask;
  }
  support_tensors_heads(tensors, problem, dtype, layout, flags);
  if (problem->flags & TWH_PROBLEM_KEY_BIAS) {
    support_tensor_place(tensors, 7, &tensors->key_bias, dtype, layout, problem->q_heads, tensors->k_rows, 1);
    tensors->all.key_bias = &tensors->key_bias;
  }
  if (flags & SUPPORT_BROADCAST)
    tensors->mask.batch_stride = tensors->mask.head_stride = tensors->key_bias.batch_stride = tensors->key_bias.head_stride = 0;
}

void support_tensors_destroy(support_tensors *tensors)
{
  int i;
  for (i = 0; i < SUPPORT_TENSORS; ++i) free(tensors->memory[i]);
  memset(tensors, 0, sizeof *tensors);
}

void support_tensors_clear(support_tensors *tensors)
{
  int i;
  for (i = 3; i < 5; ++i)
    if (tensors->memory[i]) memset(tensors->memory[i], SUPPORT_POISON, tensors->bytes[i]);
}

static void support_fill_mask(support_tensors *tensors, const twh_problem *problem, const support_fill *fill,
                              support_random *random)
{
  int64_t b, h, i, j;
  double  lowest = problem->mask_dtype == TWH_F16 ? -65504.0 : problem->mask_dtype == TWH_F32 ? -(double)FLT_MAX : -3e38;
  int     hidden;
  for (b = 0; b < tensors->batch; ++b)
    for (h = 0; h < problem->q_heads; ++h) {
      int64_t        block = support_one_in(random, 3) ? support_between(random, 1, 20) : 0;
      support_random regions = *random; /* the same for all rows of a block */
      for (i = 0; i < tensors->q_rows; ++i) {
        double share = support_one_in(random, 5) ? 1.0 : fill->mask_share; /* some rows lose every key */
        for (j = 0; j < tensors->k_rows; ++j) {
          hidden = support_uniform(random) < share;
          if (block > 0) {
            regions.counter = (uint64_t)(i / block * 1000 + j / block) << 20;
            hidden |= support_one_in(&regions, 2);
          }
          if (problem->mask_dtype == TWH_BOOL)
            support_set(&tensors->mask, b, h, i, j, hidden ? 0.0 : 1.0);
          else if (hidden)
            support_set(&tensors->mask, b, h, i, j, fill->hidden_as_lowest ? lowest : -INFINITY);
          else
            support_set(&tensors->mask, b, h, i, j, support_round(support_normal(random), TWH_BF16));
        }
      }
    }
}

static void support_fill_biases(support_tensors *tensors, const twh_problem *problem, support_random *random)
{
  int64_t b, h, j;
  for (b = 0; tensors->all.key_bias && b < tensors->batch; ++b)
    for (h = 0; h < problem->q_heads; ++h)
      for (j = 0; j < tensors->k_rows; ++j) support_set(&tensors->key_bias, b, h, j, 0, 2.0 * support_normal(random));
  for (h = 0; tensors->all.alibi_slopes && h < problem->q_heads; ++h)
    support_set(&tensors->slopes, 0, h, 0, 0,
                ldexp(support_one_in(random, 4) ? -1.0 : 1.0, -(int)support_below(random, 9))); /* 1 to 1 / 256 */
}

void support_tensors_fill(support_tensors *tensors, const twh_problem *problem, const support_fill *fill,
                          support_random *random)
{
  double  scale = support_scale(problem), dim = (double)problem->qk_dim, unit, mean;
  int64_t b, h, r, c;
  /* <q, k> of independent normals of variances s_q^2 and s_k^2 has variance dim s_q^2 s_k^2 */
  if (scale == 0.0) scale = 1.0;
  unit = sqrt(fill->logit_std / (fabs(scale) * sqrt(dim)));
  mean = unit > 0.0 ? fill->logit_mean / (scale * dim * unit) : 0.0; /* all keys gain `mean` in every column, queries `unit` */
  for (b = 0; b < tensors->batch; ++b) {
    for (h = 0; h < problem->q_heads; ++h)
      for (r = 0; r < tensors->q_rows; ++r)
        for (c = 0; c < problem->qk_dim; ++c)
          support_set(&tensors->q, b, h, r, c,
                      support_round(unit * support_normal(random) + (mean != 0.0 ? unit : 0.0), fill->rounding));
    for (h = 0; h < problem->kv_heads; ++h)
      for (r = 0; r < tensors->k_rows; ++r) {
        for (c = 0; c < problem->qk_dim; ++c)
          support_set(&tensors->k, b, h, r, c, support_round(unit * support_normal(random) + mean, fill->rounding));
        for (c = 0; c < problem->v_dim; ++c)
          support_set(&tensors->v, b, h, r, c, support_round(support_normal(random) + fill->value_mean, fill->rounding));
      }
  }
  if (tensors->all.mask) support_fill_mask(tensors, problem, fill, random);
  support_fill_biases(tensors, problem, random);
  if (tensors->all.sink_logits)
    for (h = 0; h < problem->q_heads; ++h)
      support_set(&tensors->sinks, 0, h, 0, 0,
                  support_one_in(random, 3) ? -INFINITY : support_round(support_normal(random), fill->rounding));
}

/* Marks the bytes of rows that belong to a sequence, then looks at all others. */
static int support_gaps(const twh_tensor *tensor, const unsigned char *memory, size_t bytes, const twh_problem *problem,
                        int64_t dim)
{
  unsigned char *ours = (unsigned char *)calloc(bytes ? bytes : 1, 1);
  int64_t        b, entry, h, r, size = support_bytes(tensor->dtype);
  size_t         at;
  int            untouched = 1;
  assert_non_null(ours);
  for (b = 0; b < problem->batch; ++b) {
    twh_sequence sequence = support_sequence(problem, b, &entry);
    for (h = 0; h < problem->q_heads; ++h)
      for (r = sequence.q_begin; r < sequence.q_begin + sequence.q_len; ++r)
        memset(ours + (entry * tensor->batch_stride + h * tensor->head_stride + r * tensor->row_stride) * size, 1,
               (size_t)(dim * size));
  }
  for (at = 0; at < bytes; ++at)
    if (!ours[at] && memory[at] != SUPPORT_POISON) untouched = 0;
  free(ours);
  return untouched;
}

int support_tensors_gaps_untouched(const support_tensors *tensors, const twh_problem *problem)
{
  int out = support_gaps(&tensors->out, (const unsigned char *)tensors->memory[3], tensors->bytes[3], problem, problem->v_dim);
  int lse =
    !tensors->all.lse || support_gaps(&tensors->lse, (const unsigned char *)tensors->memory[4], tensors->bytes[4], problem, 1);
  return out && lse;
}
