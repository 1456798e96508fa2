/* The promise in numbers for windows and sinks: error at most twice that of one call over the visible keys, plus one ulp of the
 * kernel's dtype at max |out|; windows of 1 to 4096 keys, 0 to 64 sinks, logits of standard deviation 0.1 to 30, in f32, bf16
 * and f16, with and without rounding of the weights before the value product. A kernel whose lse is all that tells of a sum may
 * be off by an ulp of the largest logit besides.
 *
 * 8192 tokens on kernels of 256. Rows are sampled: the first ones, those around the ends of windows and blocks, and random
 * ones; one call of a sampled row is the reference kernel over just the keys that it sees. */
#include "support.h"

enum { WIDE_N = 8192, WIDE_M = 256, WIDE_DIM = 16, WIDE_SAMPLES = 128 };

static const int64_t wide_windows[] = { 1, 16, 60, 255, 256, 257, 4096 }, wide_sinks[] = { 0, 1, 4, 64 };
#if SUPPORT_SANITIZED
static const double wide_stds[] = { 4.0 };
#else
static const double wide_stds[] = { 0.1, 1.0, 4.0, 10.0, 30.0 };
#endif

typedef struct wide_kind {
  const char *name;
  uint32_t    modes;
  int64_t     spare;
  int         lse;
} wide_kind;

static const wide_kind wide_kinds[] = {
  { "causal only", TWH_MASK_CAUSAL, 16, 0 },       { "causal, lse", TWH_MASK_CAUSAL, 16, 1 },
  { "mask, lse", TWH_MASK_TENSOR, 0, 1 },          { "none + causal", TWH_MASK_NONE | TWH_MASK_CAUSAL, 16, 0 },
  { "causal, no coords", TWH_MASK_CAUSAL, 0, 0 },  { "mask, column", TWH_MASK_TENSOR, 3, 0 },
  { "no mask, 16 coords", TWH_MASK_NONE, 16, 0 },
};

/* Inputs, once for all windows: as tensors, as float64 and in the kernel's dtype. */
typedef struct wide_setup {
  twh_problem     problem;
  twh_pattern     pattern;
  support_tensors tensors;
  int32_t         dtype;
  double         *q, *k, *v;    /* (N, dim) */
  char           *qs, *ks, *vs; /* the same in dtype */
  char           *keys, *values; /* what one row sees, gathered */
} wide_setup;

typedef struct wide_errors {
  double one_out, one_lse, out, lse, max_out, max_logit, max_value;
} wide_errors;

static double *wide_numbers(const twh_tensor *tensor, int32_t dtype, char **rounded)
{
  double *copy = (double *)malloc(sizeof *copy * WIDE_N * WIDE_DIM);
  int64_t i;
  *rounded = (char *)malloc((size_t)support_bytes(dtype) * WIDE_N * WIDE_DIM);
  assert_true(copy && *rounded);
  for (i = 0; i < WIDE_N * WIDE_DIM; ++i) {
    copy[i] = support_load(tensor->data, tensor->dtype, i);
    support_store(*rounded, dtype, i, copy[i]);
  }
  return copy;
}

static void wide_begin(wide_setup *s, int32_t dtype, double std)
{
  support_random random = support_random_at(support_seed(8192), (uint64_t)(std * 10.0));
  support_fill   fill;
  memset(s, 0, sizeof *s);
  memset(&fill, 0, sizeof fill);
  s->dtype = dtype;
  twh_problem_init(&s->problem);
  twh_pattern_init(&s->pattern);
  s->pattern.flags = TWH_CAUSAL | TWH_LEFT;
  s->problem.pattern = &s->pattern;
  s->problem.batch = s->problem.q_heads = s->problem.kv_heads = 1;
  s->problem.q_len = s->problem.k_len = WIDE_N;
  s->problem.qk_dim = s->problem.v_dim = WIDE_DIM;
  support_tensors_create(&s->tensors, &s->problem, TWH_F32, SUPPORT_DENSE, SUPPORT_LSE);
  fill.logit_std = std;
  fill.rounding = dtype;
  support_tensors_fill(&s->tensors, &s->problem, &fill, &random);
  s->q = wide_numbers(&s->tensors.q, dtype, &s->qs);
  s->k = wide_numbers(&s->tensors.k, dtype, &s->ks);
  s->v = wide_numbers(&s->tensors.v, dtype, &s->vs);
  s->keys = (char *)malloc((size_t)support_bytes(dtype) * WIDE_N * WIDE_DIM);
  s->values = (char *)malloc((size_t)support_bytes(dtype) * WIDE_N * WIDE_DIM);
  assert_true(s->keys && s->values);
}

static void wide_end(wide_setup *s)
{
  free(s->q);
  free(s->k);
  free(s->v);
  free(s->qs);
  free(s->ks);
  free(s->vs);
  free(s->keys);
  free(s->values);
  support_tensors_destroy(&s->tensors);
}

/* The definition for one row, written as the header's formula; the keys it sees are gathered, their number is returned. */
static int64_t wide_truth(const wide_setup *s, int64_t i, double *out, double *lse, wide_errors *errors)
{
  static double logits[WIDE_N];
  twh_sequence  sequence;
  int64_t       entry, j, c, seen = 0;
  size_t        row = (size_t)support_bytes(s->dtype) * WIDE_DIM;
  double        most = -INFINITY, sum = 0.0, weight;
  sequence = support_sequence(&s->problem, 0, &entry);
  for (j = 0; j < WIDE_N; ++j) {
    double dot = 0.0;
    logits[j] = -INFINITY;
    if (!support_visible(&s->problem, &sequence, i, j)) continue;
    for (c = 0; c < WIDE_DIM; ++c) dot += s->q[i * WIDE_DIM + c] * s->k[j * WIDE_DIM + c];
    logits[j] = dot * support_scale(&s->problem);
    most = fmax(most, logits[j]);
    errors->max_logit = fmax(errors->max_logit, fabs(logits[j]));
    memcpy(s->keys + (size_t)seen * row, s->ks + (size_t)j * row, row);
    memcpy(s->values + (size_t)seen * row, s->vs + (size_t)j * row, row);
    ++seen;
  }
  memset(out, 0, sizeof *out * WIDE_DIM);
  for (j = 0; j < WIDE_N; ++j) {
    if (logits[j] == -INFINITY) continue;
    weight = exp(logits[j] - most);
    sum += weight;
    for (c = 0; c < WIDE_DIM; ++c) {
      out[c] += weight * s->v[j * WIDE_DIM + c];
      errors->max_value = fmax(errors->max_value, fabs(s->v[j * WIDE_DIM + c]));
    }
  }
  for (c = 0; c < WIDE_DIM; ++c) {
    out[c] /= sum;
    errors->max_out = fmax(errors->max_out, fabs(out[c]));
  }
  *lse = most + log(sum);
  return seen;
}

static void wide_worse(double *error, double got, double want)
{
  double difference = fabs(got - want);
  if (!(difference <= *error)) *error = isnan(difference) ? (double)INFINITY : difference;
}

static void wide_one_call(const wide_setup *s, const twh_oracle_desc *whole, int64_t i, int64_t seen, const double *want,
                          double lse, wide_errors *errors)
{
  float           out[WIDE_DIM], one_lse = 0.0f;
  twh_call        call;
  const twh_call *calls[1];
  int64_t         c;
  twh_call_init(&call);
  call.mask_mode = TWH_MASK_NONE;
  call.slots = call.q_len = 1;
  call.k_len = seen;
  call.q.data = s->qs + (size_t)(support_bytes(s->dtype) * i * WIDE_DIM);
  call.k.data = s->keys;
  call.v.data = s->values;
  call.q.row_stride = call.k.row_stride = call.v.row_stride = call.out_row_stride = WIDE_DIM;
  call.scale = whole->scale;
  call.out = out;
  call.lse = &one_lse;
  call.lse_slot_stride = 1;
  calls[0] = &call;
  assert_int_equal(whole->run(whole->user, calls, 1), 0);
  for (c = 0; c < WIDE_DIM; ++c) wide_worse(&errors->one_out, support_round((double)out[c], s->dtype), want[c]);
  wide_worse(&errors->one_lse, (double)one_lse, lse);
}

/* Sample number n of the rows: the first eight, then around blocks and the end of the first window, then random ones. */
static int64_t wide_sample(const wide_setup *s, int64_t n)
{
  support_random random = support_random_at(9, (uint64_t)n);
  int64_t        row;
  if (n < 8) return n;
  switch (n % 4) {
  case 0: row = s->pattern.left + n / 4 - 10; break;
  case 1: row = WIDE_M * support_below(&random, WIDE_N / WIDE_M) + support_between(&random, -2, 2); break;
  default: row = support_below(&random, WIDE_N); break;
  }
  return row < 0 ? 0 : row < WIDE_N ? row : WIDE_N - 1;
}

static void wide_measure(wide_setup *s, const twh_oracle *reference, wide_errors *errors)
{
  twh_oracle_desc whole;
  double          out[WIDE_DIM], lse;
  int64_t         n, c, i, seen;
  twh_oracle_desc_init(&whole);
  assert_int_equal(twh_oracle_get_desc(reference, &whole, NULL), TWH_OK);
  memset(errors, 0, sizeof *errors);
  for (n = 0; n < WIDE_SAMPLES; ++n) {
    i = wide_sample(s, n);
    seen = wide_truth(s, i, out, &lse, errors);
    wide_one_call(s, &whole, i, seen, out, lse, errors);
    for (c = 0; c < WIDE_DIM; ++c) wide_worse(&errors->out, support_at(&s->tensors.out, 0, 0, i, c), out[c]);
    wide_worse(&errors->lse, support_at(&s->tensors.lse, 0, 0, i, 0), lse);
  }
}

static void wide_desc(const wide_setup *s, twh_oracle_desc *desc)
{
  twh_oracle_desc_init(desc);
  desc->slots = 1;
  desc->qk_dim = desc->v_dim = WIDE_DIM;
  desc->dtype = s->dtype;
  desc->scale = support_scale(&s->problem);
}

/* Run one window on one kind of kernel. Returns error / bound, the worse of out and lse. */
static double wide_ratio(wide_setup *s, const wide_kind *kind, int32_t rounded)
{
  twh_reference_options reference;
  twh_oracle_desc       desc;
  twh_oracle           *oracle = NULL, *whole = NULL;
  twh_plan             *plan = NULL;
  twh_error             error;
  wide_errors           e;
  double                bound, lse_bound;
  twh_error_init(&error);
  twh_reference_options_init(&reference);
  reference.round_weights = rounded;
  wide_desc(s, &desc);
  desc.q_len = 1;
  desc.k_len = WIDE_N;
  desc.flags = TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_LSE;
  desc.mask_modes = TWH_MASK_NONE;
  desc.out_dtype = TWH_F32;
  support_assert_status(twh_reference_oracle_create(NULL, &desc, &reference, &whole, &error), TWH_OK, &error, NULL);
  wide_desc(s, &desc);
  desc.q_len = desc.k_len = WIDE_M;
  desc.qk_dim += kind->spare;
  desc.v_dim += !kind->lse;
  desc.flags = kind->lse ? TWH_ORACLE_LSE : 0;
  desc.mask_modes = kind->modes;
  support_assert_status(twh_reference_oracle_create(NULL, &desc, &reference, &oracle, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_plan_create(NULL, &s->problem, &oracle, 1, NULL, &plan, &error), TWH_OK, &error, NULL);
  support_tensors_clear(&s->tensors);
  support_assert_status(twh_plan_execute(plan, &s->tensors.all, NULL, &error), TWH_OK, &error, NULL);
  wide_measure(s, whole, &e);
  bound = 2.0 * e.one_out + support_ulp(e.max_out, s->dtype);
  if (s->dtype == TWH_F32 && kind->lse) bound += support_ulp(e.max_logit, TWH_F32) * e.max_value; /* what an f32 lse can say */
  lse_bound = 2.0 * e.one_lse + 2.0 * support_epsilon(s->dtype) + 4.0 * support_ulp(e.max_logit + 1.0, TWH_F32);
  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  twh_oracle_destroy(whole);
  return e.lse / lse_bound > e.out / bound ? e.lse / lse_bound : e.out / bound;
}

static void wide_run(int32_t dtype, const char *name)
{
  int64_t i, w, sinks, turn = dtype, failures = 0;
  int32_t rounded;
  print_message("%s: error / bound for each window, its sinks and kernel\n", name);
  for (i = 0; i < SUPPORT_COUNT(wide_stds); ++i) {
    wide_setup s;
    wide_begin(&s, dtype, wide_stds[i]);
    for (w = 0; w < SUPPORT_COUNT(wide_windows); ++w, ++turn) {
      const wide_kind *kind = &wide_kinds[turn % SUPPORT_COUNT(wide_kinds)];
      double           ratio;
      if (wide_windows[w] == 4096 && i % 2) continue; /* as much work as all others together */
      if (wide_windows[w] == 4096 && kind->modes == TWH_MASK_NONE) kind = &wide_kinds[0];
      sinks = wide_sinks[(i + w + dtype) % SUPPORT_COUNT(wide_sinks)];
      s.pattern.left = wide_windows[w] - 1;
      s.pattern.sink_tokens = sinks;
      rounded = dtype != TWH_F32 && (turn / 2) % 2;
      ratio = wide_ratio(&s, kind, rounded);
      print_message("  std %4g  r %4lld  sinks %2lld  %-18s%s  %.2f\n", wide_stds[i], (long long)wide_windows[w],
                    (long long)sinks, kind->name, rounded ? " rounded" : "        ", ratio);
      failures += !(ratio <= 1.0);
    }
    ++turn; /* so that each window meets each kind */
    wide_end(&s);
  }
  assert_int_equal(failures, 0);
}

static void windows_in_f32(void **state)
{
  (void)state;
  wide_run(TWH_F32, "f32");
}

static void windows_in_f16(void **state)
{
  (void)state;
  wide_run(TWH_F16, "f16");
}

static void windows_in_bf16(void **state)
{
  (void)state;
  wide_run(TWH_BF16, "bf16");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_in_f32),
    cmocka_unit_test(windows_in_f16),
    cmocka_unit_test(windows_in_bf16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
