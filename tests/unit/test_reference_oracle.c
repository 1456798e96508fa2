/* The reference kernel: against a plain loop for every capability it can declare, its data types bit by bit, and its
 * independence of what else is in a call. Everything else is tested against this kernel, so it is tested first. */
#include "support_tile.h"

#include <errno.h>

static twh_oracle *reference_oracle(const twh_oracle_desc *desc, int32_t round_weights)
{
  twh_reference_options options;
  twh_oracle           *oracle;
  twh_error             error;
  twh_error_init(&error);
  twh_reference_options_init(&options);
  options.round_weights = round_weights;
  if (twh_reference_oracle_create(NULL, desc, &options, &oracle, &error) < 0) fail_msg("%s", error.message);
  return oracle;
}

static void reference_desc(twh_oracle_desc *desc, int64_t slots, int64_t q_len, int64_t k_len, int64_t qk_dim, int64_t v_dim)
{
  twh_oracle_desc_init(desc);
  desc->slots = slots;
  desc->q_len = q_len;
  desc->k_len = k_len;
  desc->qk_dim = qk_dim;
  desc->v_dim = v_dim;
  desc->dtype = TWH_F32;
  desc->mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL | TWH_MASK_TENSOR;
  desc->scale = 0.25;
  desc->flags = TWH_ORACLE_LSE;
}

typedef struct reference_case {
  const char *name;
  int32_t     dtype, mask_dtype;
  uint32_t    flags, mask_mode;
  int64_t     causal_offset;
  double      softcap, mask_value, hidden;
  int32_t     layout;
} reference_case;

enum { BACKWARDS = TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS };
enum { LSE = TWH_ORACLE_LSE, NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL, TENSOR = TWH_MASK_TENSOR };

static const reference_case reference_cases[] = {
  { "f32", TWH_F32, 0, LSE, NONE, 0, 0, 0, 0, TILE_DECLARED },
  { "f16", TWH_F16, 0, LSE, NONE, 0, 0, 0, 0, TILE_DECLARED },
  { "bf16", TWH_BF16, 0, LSE, NONE, 0, 0, 0, 0, TILE_DECLARED },
  { "causal", TWH_F32, 0, LSE, CAUSAL, 0, 0, 0, 0, TILE_DECLARED },
  { "causal, offset -3", TWH_F16, 0, LSE, CAUSAL, -3, 0, 0, 0, TILE_DECLARED },
  { "causal, offset 4, empty +inf", TWH_F32, 0, LSE | TWH_ORACLE_EMPTY_LSE_POS_INF, CAUSAL, 4, 0, 0, 0, TILE_DECLARED },
  { "causal, offset -9, empty +inf", TWH_BF16, 0, LSE | TWH_ORACLE_EMPTY_LSE_POS_INF, CAUSAL, -9, 0, 0, 0, TILE_DECLARED },
  { "base 2", TWH_F32, 0, LSE | TWH_ORACLE_LSE_BASE2, CAUSAL, -2, 0, 0, 0, TILE_DECLARED },
  { "bool mask", TWH_F32, TWH_BOOL, LSE, TENSOR, 0, 0, 0, 0.4, TILE_DECLARED },
  { "bool mask, empty rows", TWH_F16, TWH_BOOL, LSE, TENSOR, 0, 0, 0, 1.0, TILE_DECLARED },
  { "f32 mask", TWH_BF16, TWH_F32, LSE, TENSOR, 0, 0, 0, 0.4, TILE_DECLARED },
  { "f16 mask, empty rows", TWH_F16, TWH_F16, LSE, TENSOR, 0, 0, 0, 1.0, TILE_DECLARED },
  { "bf16 mask that hides with -1000", TWH_F32, TWH_BF16, LSE, TENSOR, 0, 0, -1000, 1.0, TILE_DECLARED },
  { "f64 mask", TWH_F32, TWH_F64, LSE, TENSOR, 0, 0, 0, 0.2, TILE_DECLARED },
  { "softcap", TWH_F32, TWH_BOOL, LSE, TENSOR, 0, 2, 0, 0.4, TILE_DECLARED },
  { "scale per call", TWH_F32, 0, LSE | TWH_ORACLE_SCALE_PER_CALL, NONE, 0, 0, 0, 0, TILE_DECLARED },
  { "scores in f16", TWH_F16, 0, LSE | TWH_ORACLE_F16_SCORES, NONE, 0, 0, 0, 0, TILE_DECLARED },
  { "gaps", TWH_F16, TWH_F16, LSE | TWH_ORACLE_STRIDED, TENSOR, 0, 0, 0, 0.5, TILE_GAPS },
  { "reversed", TWH_F32, TWH_BOOL, LSE | BACKWARDS, TENSOR, 0, 0, 0, 0.5, TILE_REVERSED },
  { "reversed, causal", TWH_F16, 0, LSE | BACKWARDS, CAUSAL, -1, 0, 0, 0, TILE_REVERSED },
  { "overlap, causal", TWH_BF16, 0, LSE | BACKWARDS, CAUSAL, 0, 0, 0, 0, TILE_OVERLAP },
  { "no lse", TWH_F32, 0, 0, CAUSAL, 0, 0, 0, 0, TILE_DECLARED },
};

/* Outputs in f64, so that nothing but the order of sums stands between the two. */
static void reference_equals_a_plain_loop(void **state)
{
  static const int64_t shapes[][5] = { { 1, 1, 1, 1, 1 }, { 3, 20, 33, 7, 5 }, { 2, 9, 130, 16, 17 }, { 1, 70, 64, 8, 1 } };
  int64_t n, at;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(reference_cases); ++n)
    for (at = 0; at < SUPPORT_COUNT(shapes); ++at) {
      const reference_case *made = &reference_cases[n];
      support_random        random = support_random_at(1, (uint64_t)(n * 10 + at));
      tile_shape            shape = { made->mask_mode, 0, 0, 0, made->layout, 3.0, made->hidden };
      twh_oracle_desc       desc;
      twh_oracle           *oracle;
      support_tile          tile;
      tile_result           got, want;
      reference_desc(&desc, shapes[at][0], shapes[at][1], shapes[at][2], shapes[at][3], shapes[at][4]);
      if (made->causal_offset <= -desc.q_len || made->causal_offset >= desc.k_len) continue;
      desc.dtype = made->dtype;
      desc.out_dtype = TWH_F64;
      desc.mask_dtype = made->mask_dtype;
      desc.flags = made->flags;
      desc.causal_offset = made->causal_offset;
      desc.softcap = made->softcap;
      desc.mask_value = made->mask_value;
      oracle = reference_oracle(&desc, 0);
      tile_create(&tile, oracle, &shape, &random);
      tile_run(&got, &tile, oracle);
      tile_truth(&want, &tile);
      support_assert_at_most(tile_out_error(&got, &want), 1e-13, made->name);
      if (made->flags & LSE) { /* written as f32; logits are below 100 but for the mask */
        double ulp = support_ulp(made->mask_value != 0 ? 1000.0 : 64.0, TWH_F32);
        support_assert_at_most(tile_lse_error(&got, &want), ulp, made->name);
      }
      tile_result_destroy(&got);
      tile_result_destroy(&want);
      tile_destroy(&tile);
      twh_oracle_destroy(oracle);
    }
}

/* One key: out is its value, read and written. Every value of f16 and bf16 must come back as itself. */
static void reference_returns_every_narrow_value(void **state)
{
  static const int32_t dtypes[] = { TWH_F16, TWH_BF16 };
  static uint16_t      value[65536], out[65536];
  twh_oracle_desc      desc;
  twh_oracle          *oracle;
  uint16_t             one[1] = { 0 };
  twh_call             call;
  const twh_call      *calls = &call;
  int                  i, n;
  (void)state;
  for (i = 0; i < 65536; ++i) value[i] = (uint16_t)i;
  for (n = 0; n < 2; ++n) {
    reference_desc(&desc, 1, 1, 1, 1, 65536);
    desc.flags = 0;
    desc.dtype = dtypes[n];
    oracle = reference_oracle(&desc, 0);
    assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
    twh_call_init(&call);
    call.mask_mode = TWH_MASK_NONE;
    call.slots = call.q_len = call.k_len = 1;
    call.q.data = call.k.data = one;
    call.v.data = value;
    call.q.row_stride = call.k.row_stride = 1;
    call.v.row_stride = call.out_row_stride = 65536;
    call.out = out;
    assert_int_equal(desc.run(desc.user, &calls, 1), 0);
    for (i = 0; i < 65536; ++i) {
      double want = support_load(value, dtypes[n], i), got = support_load(out, dtypes[n], i);
      if (isnan(want) ? !isnan(got) : got != want)
        fail_msg("%s 0x%04x: %g became %g", n ? "bf16" : "f16", (unsigned)i, want, got);
    }
    twh_oracle_destroy(oracle);
  }
}

/* f32 in, narrow out: ties, neighbours of ties, subnormal results, overflow, and random bits. */
static void reference_rounds_once_to_nearest_even(void **state)
{
  enum { MANY = 20000 };
  static float    value[MANY];
  static uint16_t out[MANY], want[1];
  support_random  random = support_random_at(2, 0);
  int32_t         dtype;
  int             i;
  (void)state;
  for (i = 0; i < MANY; ++i) {
    double ulp, base = ldexp(1.0 + support_uniform(&random), (int)support_between(&random, -30, 17));
    ulp = support_ulp(base, i % 2 ? TWH_F16 : TWH_BF16);
    base = (floor(base / ulp) + 0.5) * ulp;
    value[i] = (float)(support_one_in(&random, 2) ? base : -base);
    if (i % 3 == 1) value[i] = nextafterf(value[i], 0.0f);
    if (i % 3 == 2) value[i] = nextafterf(value[i], INFINITY);
  }
  for (dtype = TWH_F16; dtype <= TWH_BF16; ++dtype) {
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    float           one = 1.0f;
    twh_call        call;
    const twh_call *calls = &call;
    reference_desc(&desc, 1, 1, 1, 1, MANY);
    desc.flags = 0;
    desc.out_dtype = dtype;
    oracle = reference_oracle(&desc, 0);
    assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
    twh_call_init(&call);
    call.mask_mode = TWH_MASK_NONE;
    call.slots = call.q_len = call.k_len = 1;
    call.q.data = call.k.data = &one;
    call.v.data = value;
    call.out = out;
    assert_int_equal(desc.run(desc.user, &calls, 1), 0);
    for (i = 0; i < MANY; ++i) {
      support_store(want, dtype, 0, (double)value[i]);
      if (out[i] != want[0]) fail_msg("%a to dtype %d: 0x%04x, not 0x%04x", (double)value[i], (int)dtype, out[i], want[0]);
    }
    twh_oracle_destroy(oracle);
  }
}

/* Weights are e^(s - max) rounded to f16, their sum is not: with logits 0 and -ln 3, values 1 and 0. */
static void reference_rounds_weights_where_asked(void **state)
{
  twh_oracle_desc desc;
  twh_call        call;
  const twh_call *calls = &call;
  float           q[1] = { 1 }, k[2] = { 0, (float)-1.0986122886681098 }, v[2] = { 0, 1 };
  double          out[2];
  int32_t         round_weights;
  (void)state;
  for (round_weights = 0; round_weights < 2; ++round_weights) {
    uint16_t    narrow_q[1], narrow_k[2], narrow_v[2];
    twh_oracle *oracle;
    reference_desc(&desc, 1, 1, 2, 1, 1);
    desc.flags = 0;
    desc.scale = 1.0;
    desc.dtype = TWH_F16;
    desc.out_dtype = TWH_F64;
    oracle = reference_oracle(&desc, round_weights);
    assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
    support_store(narrow_q, TWH_F16, 0, (double)q[0]);
    support_store(narrow_k, TWH_F16, 0, (double)k[0]);
    support_store(narrow_k, TWH_F16, 1, (double)k[1]);
    support_store(narrow_v, TWH_F16, 0, (double)v[0]);
    support_store(narrow_v, TWH_F16, 1, (double)v[1]);
    twh_call_init(&call);
    call.mask_mode = TWH_MASK_NONE;
    call.slots = call.q_len = 1;
    call.k_len = 2;
    call.q.data = narrow_q;
    call.k.data = narrow_k;
    call.v.data = narrow_v;
    call.q.row_stride = call.k.row_stride = call.v.row_stride = call.out_row_stride = 1;
    call.out = &out[round_weights];
    assert_int_equal(desc.run(desc.user, &calls, 1), 0);
    {
      double weight = exp(support_load(narrow_k, TWH_F16, 1));
      double used = round_weights ? support_round(weight, TWH_F16) : weight;
      support_assert_at_most(fabs(out[round_weights] - used / (1.0 + weight)), 1e-15, "weight");
    }
    twh_oracle_destroy(oracle);
  }
  assert_true(out[0] != out[1]);
}

/* Fewer slots, rows and keys: the rows that are left keep every bit. */
static void reference_rows_do_not_depend_on_the_call(void **state)
{
  support_random  random = support_random_at(3, 0);
  tile_shape      shape = { TWH_MASK_CAUSAL, 0, 0, 0, TILE_DECLARED, 2.0, 0.0 };
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  support_tile    tile;
  tile_result     all, one;
  int64_t         s, first, rows, full_slots, full_rows;
  (void)state;
  reference_desc(&desc, 3, 21, 90, 12, 6);
  desc.flags = LSE | TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_SLOTS | TWH_ORACLE_FEWER_KEYS;
  oracle = reference_oracle(&desc, 0);
  tile_create(&tile, oracle, &shape, &random);
  tile_run(&all, &tile, oracle);
  full_slots = tile.call.slots;
  full_rows = tile.call.q_len;
  for (s = 0; s < full_slots; ++s) {
    support_tile part = tile;
    part.call.slots = 1;
    part.call.q.data = (const float *)tile.call.q.data + s * tile.call.q.slot_stride;
    part.call.k.data = (const float *)tile.call.k.data + s * tile.call.k.slot_stride;
    part.call.v.data = (const float *)tile.call.v.data + s * tile.call.v.slot_stride;
    for (rows = 1; rows <= full_rows; rows += 5) {
      part.call.q_len = rows;
      part.call.k_len = rows; /* a causal row does not see more */
      tile_run(&one, &part, oracle);
      first = s * full_rows;
      assert_memory_equal(one.out, all.out + first * all.dim, (size_t)(rows * all.dim) * sizeof(double));
      assert_memory_equal(one.lse, all.lse + first, (size_t)rows * sizeof(double));
      tile_result_destroy(&one);
    }
  }
  tile_result_destroy(&all);
  tile_destroy(&tile);
  twh_oracle_destroy(oracle);
}

/* Keys whose conversion would not fit memory: the kernel says so with its code, before it reads anything. */
static void reference_returns_its_code_without_memory(void **state)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  twh_call        call;
  const twh_call *calls = &call;
  (void)state;
  reference_desc(&desc, 1, 4, 4, 4, 4);
  oracle = reference_oracle(&desc, 0);
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  twh_call_init(&call);
  call.slots = call.q_len = 1;
  call.k_len = (int64_t)1 << 59;
  assert_int_equal(desc.run(desc.user, &calls, 1), ENOMEM);
  twh_oracle_destroy(oracle);
}

static void reference_create_refuses_a_callers_kernel(void **state)
{
  twh_oracle_desc       desc;
  twh_reference_options options;
  twh_oracle           *oracle;
  twh_error             error;
  int                   user;
  (void)state;
  twh_error_init(&error);
  reference_desc(&desc, 1, 4, 4, 4, 4);
  desc.user = &user;
  support_assert_status(twh_reference_oracle_create(NULL, &desc, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "user");
  assert_null(oracle);
  reference_desc(&desc, 1, 0, 4, 4, 4); /* twh_oracle_create refuses it: nothing may leak */
  support_assert_status(twh_reference_oracle_create(NULL, &desc, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "q_len");
  assert_null(oracle);
  reference_desc(&desc, 1, 4, 4, 4, 4);
  memset(&options, 0, sizeof options);
  support_assert_status(twh_reference_oracle_create(NULL, &desc, &options, &oracle, &error), TWH_E_VERSION, &error, "options");
  support_assert_status(twh_reference_oracle_create(NULL, NULL, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "desc");
  support_assert_status(twh_reference_oracle_create(NULL, &desc, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "out");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(reference_equals_a_plain_loop),
    cmocka_unit_test(reference_returns_every_narrow_value),
    cmocka_unit_test(reference_rounds_once_to_nearest_even),
    cmocka_unit_test(reference_rounds_weights_where_asked),
    cmocka_unit_test(reference_rows_do_not_depend_on_the_call),
    cmocka_unit_test(reference_returns_its_code_without_memory),
    cmocka_unit_test(reference_create_refuses_a_callers_kernel),
  };
  return cmocka_run_group_tests_name("reference kernel", tests, NULL, NULL);
}
