/* A small transformer as an oracle: what it says of itself, its weights and inputs, the attention of each slot, and the
 * independence of slots. How it refuses and fails is in test_transformer_oracle_failures.c, whole problems on it in
 * test_transformer_oracle_problems.c. */
#include "support_tile.h"

enum { NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL };

static void small_desc(twh_transformer_oracle_desc *desc, int32_t dtype, int64_t layers, int64_t heads, int64_t length)
{
  twh_transformer_oracle_desc_init(desc);
  desc->layers = layers;
  desc->heads = heads;
  desc->length = length;
  desc->qk_dim = 6;
  desc->v_dim = 5;
  desc->model_dim = layers * heads * 2 * (6 + 5);
  desc->dtype = dtype;
  desc->mask_modes = NONE | CAUSAL;
  desc->scale = 0.4;
}

static twh_oracle *small_create(const twh_transformer_oracle_desc *desc)
{
  twh_oracle *oracle = NULL;
  twh_error   error;
  twh_error_init(&error);
  support_assert_status(twh_reference_transformer_create(NULL, desc, &oracle, &error), TWH_OK, &error, NULL);
  return oracle;
}

static void a_small_transformer_has_a_slot_for_each_head(void **state)
{
  twh_transformer_oracle_desc desc;
  twh_oracle                 *oracle;
  twh_oracle_desc             got;
  (void)state;
  small_desc(&desc, TWH_F16, 3, 4, 16);
  desc.model_dim += 7;
  desc.mask_modes = CAUSAL;
  desc.max_calls_per_batch = 9;
  desc.max_concurrent_batches = 3;
  desc.cost_per_call = 2.5;
  desc.cost_per_batch = 0.5;
  oracle = small_create(&desc);
  twh_oracle_desc_init(&got);
  assert_int_equal(twh_oracle_get_desc(oracle, &got, NULL), TWH_OK);
  assert_int_equal(got.slots, 12);
  assert_int_equal(got.q_len, 16);
  assert_int_equal(got.k_len, 16);
  assert_int_equal(got.qk_dim, 6);
  assert_int_equal(got.v_dim, 5);
  assert_int_equal(got.dtype, TWH_F16);
  assert_int_equal(got.out_dtype, TWH_F16);
  assert_int_equal(got.mask_modes, CAUSAL);
  assert_int_equal(got.causal_offset, 0);
  assert_true(got.softcap == 0 && got.scale == 0.4);
  assert_int_equal(got.flags & ~(uint32_t)(TWH_ORACLE_STRIDED | TWH_ORACLE_FEWER_SLOTS), 0); /* no lse, no other lengths */
  assert_int_equal(got.max_calls_per_batch, 9);
  assert_int_equal(got.max_concurrent_batches, 3);
  assert_true(got.cost_per_call == 2.5 && got.cost_per_batch == 0.5);
  twh_oracle_destroy(oracle);
}

/* ---- what the kernel is given ---- */

enum { COLUMN_SPARE, COLUMN_READ, COLUMN_WRITTEN };

/* Kept by load, looked at by run. */
typedef struct small_watch {
  twh_transformer_oracle_desc    desc;
  const twh_transformer_weights *weights;
  uint64_t                       hash; /* of all weights */
  unsigned char                  columns[512];
  int                            loads, releases;
  int64_t                        calls;
} small_watch;

static uint64_t small_hash(const small_watch *watch)
{
  const twh_transformer_oracle_desc *desc = &watch->desc;
  const int64_t                      bytes = desc->layers * desc->heads * desc->model_dim * support_bytes(desc->dtype);
  uint64_t                           hash = 1469598103934665603u;
  int64_t                            w, i;
  for (w = 0; w < 4; ++w)
    for (i = 0; i < bytes * (w < 2 ? desc->qk_dim : desc->v_dim); ++i)
      hash = (hash ^ ((const unsigned char *)(&watch->weights->wq)[w].data)[i]) * 1099511628211u;
  return hash;
}

/* Each head reads one column of x for each of its coordinates and writes as many, and no two heads have one in common. */
static void small_look_at_weights(small_watch *watch)
{
  const twh_transformer_oracle_desc *desc = &watch->desc;
  const int64_t                      dim = desc->model_dim, heads = desc->layers * desc->heads;
  int64_t                            h, i, r, c;
  memset(watch->columns, COLUMN_SPARE, sizeof watch->columns);
  for (i = 0; i < 4; ++i) {
    const twh_operand *operand = &(&watch->weights->wq)[i];
    const int64_t      own = i < 2 ? desc->qk_dim : desc->v_dim, row = i < 3 ? 1 : operand->row_stride;
    assert_int_equal(operand->row_stride, i < 3 ? own : dim); /* dense */
    assert_int_equal(operand->slot_stride, own * dim);
    assert_int_equal((uintptr_t)operand->data % (uintptr_t)desc->alignment, 0);
    for (h = 0; h < heads; ++h)
      for (c = 0; c < own; ++c) {
        int ones = 0;
        for (r = 0; r < dim; ++r) {
          int64_t at = h * operand->slot_stride + r * (i < 3 ? operand->row_stride : 1) + c * row;
          double  value = support_load(operand->data, desc->dtype, at);
          assert_true(value == 0 || value == 1);
          if (value == 0) continue;
          ++ones;
          assert_int_equal(watch->columns[r], COLUMN_SPARE);
          watch->columns[r] = i < 3 ? COLUMN_READ : COLUMN_WRITTEN;
        }
        assert_int_equal(ones, 1);
      }
  }
}

static int32_t small_watch_load(void *user, const twh_transformer_weights *weights)
{
  small_watch *watch = (small_watch *)user;
  assert_int_equal(watch->calls, 0);
  assert_int_equal(weights->struct_size, sizeof *weights);
  ++watch->loads;
  watch->weights = weights;
  watch->hash = small_hash(watch);
  small_look_at_weights(watch);
  return 0;
}

/* x holds the slots' operands, all finite, and zero in the columns that are written or nobody's. */
static int32_t small_watch_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  small_watch  *watch = (small_watch *)user;
  const int64_t dim = watch->desc.model_dim, length = watch->desc.length, item = support_bytes(watch->desc.dtype);
  int64_t       i, e;
  assert_int_equal(watch->loads, 1);
  assert_true(small_hash(watch) == watch->hash);
  for (i = 0; i < n; ++i, ++watch->calls) {
    const char *x = (const char *)calls[i]->x, *out = (const char *)calls[i]->out;
    assert_int_equal(calls[i]->struct_size, sizeof *calls[i]);
    assert_ptr_equal(calls[i]->weights, watch->weights);
    assert_int_equal(calls[i]->index, 40 + i);
    assert_int_equal(calls[i]->mask_mode, i % 2 ? CAUSAL : NONE);
    assert_int_equal((uintptr_t)x % (uintptr_t)watch->desc.alignment, 0);
    assert_int_equal((uintptr_t)out % (uintptr_t)watch->desc.alignment, 0);
    assert_true(out + length * dim * item <= x || x + length * dim * item <= out);
    for (e = 0; e < length * dim; ++e) {
      double value = support_load(x, watch->desc.dtype, e);
      assert_true(isfinite(value));
      if (watch->columns[e % dim] != COLUMN_READ) assert_true(value == 0);
    }
  }
  return twh_reference_transformer_run(&watch->desc, calls, n);
}

static void small_watch_release(void *user)
{
  ++((small_watch *)user)->releases;
}

static void the_kernel_gets_weights_of_zero_and_one_that_never_change(void **state)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  int64_t              d, i;
  (void)state;
  for (d = 0; d < 3; ++d) {
    support_random  random = support_random_at(3, (uint64_t)d);
    support_memory  memory;
    twh_context    *context = support_context(&memory, 0, 0);
    tile_shape      shape = { NONE, 0, 0, 0, TILE_DECLARED, 1.0, 0.0 };
    twh_oracle     *oracle = NULL;
    twh_oracle_desc desc;
    support_tile    tile;
    small_watch     watch;
    twh_call        call[4];
    const twh_call *calls[4];
    char           *out[4];
    memset(&watch, 0, sizeof watch);
    small_desc(&watch.desc, dtypes[d], 1 + d, 3, 8);
    watch.desc.model_dim += 3 * d;
    watch.desc.alignment = d ? 256 : 64;
    watch.desc.load = small_watch_load;
    watch.desc.run = small_watch_run;
    watch.desc.release = small_watch_release;
    watch.desc.user = &watch;
    assert_int_equal(twh_oracle_from_transformer(context, &watch.desc, &oracle, NULL), TWH_OK);
    assert_int_equal(watch.loads, 1);
    twh_oracle_desc_init(&desc);
    assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
    tile_create(&tile, oracle, &shape, &random);
    support_store((void *)(uintptr_t)tile.call.q.data, dtypes[d], 1, NAN); /* slot 0 is none for the kernel */
    for (i = 0; i < 4; ++i) {
      call[i] = tile.call;
      call[i].index = 40 + i;
      call[i].mask_mode = i % 2 ? CAUSAL : NONE;
      call[i].out = out[i] = (char *)malloc((size_t)(desc.slots * 8 * 5 * support_bytes(dtypes[d])));
      assert_non_null(out[i]);
      calls[i] = &call[i];
    }
    for (i = 1; i <= 4; ++i) assert_int_equal(desc.run(desc.user, calls, i), 0); /* more calls than ever before, four times */
    assert_int_equal(watch.loads, 1);
    assert_int_equal(watch.calls, 10);
    assert_memory_equal(out[0], out[2], (size_t)(desc.slots * 8 * 5 * support_bytes(dtypes[d])));
    for (i = 0; i < 4; ++i) free(out[i]);
    tile_destroy(&tile);
    assert_int_equal(watch.releases, 0);
    twh_oracle_destroy(oracle);
    assert_int_equal(watch.releases, 1);
    twh_context_destroy(context);
    assert_int_equal(memory.live_blocks, 0);
    assert_int_equal(memory.wrong_releases, 0);
  }
}

/* ---- what the slots give ---- */

/* got and want of one slot: numbers may differ by one rounding of the dtype, at the largest of the slot; what is not finite is
 * the same. */
static int small_agrees(const tile_result *got, const tile_result *want, int64_t slot, const twh_oracle_desc *desc)
{
  const int64_t n = desc->q_len * desc->v_dim;
  const double *a = got->out + slot * n, *b = want->out + slot * n;
  double        largest = 0;
  int64_t       i;
  for (i = 0; i < n; ++i)
    if (isfinite(b[i])) largest = fmax(largest, fabs(b[i]));
  for (i = 0; i < n; ++i) {
    if (isnan(b[i]) ? isnan(a[i]) : a[i] == b[i]) continue;
    if (!(fabs(a[i] - b[i]) <= 0.5 * support_ulp(largest, desc->dtype) * (1 + 1e-6))) return 0;
  }
  return 1;
}

static void small_multiply_values(const support_tile *tile, double factor)
{
  int64_t s, r, c;
  void   *v = (void *)(uintptr_t)tile->call.v.data;
  for (s = 0; s < tile->call.slots; ++s)
    for (r = 0; r < tile->call.k_len; ++r)
      for (c = 0; c < tile->desc.v_dim; ++c) {
        int64_t at = s * tile->call.v.slot_stride + r * tile->call.v.row_stride + c;
        support_store(v, tile->desc.dtype, at, support_load(v, tile->desc.dtype, at) * factor);
      }
}

typedef struct small_shape {
  int32_t dtype;
  int64_t layers, heads, length, qk_dim, v_dim, spare;
} small_shape;

static const small_shape small_shapes[] = {
  { TWH_F32, 1, 1, 1, 1, 1, 0 },    { TWH_F32, 1, 5, 16, 6, 5, 9 },  { TWH_F32, 3, 2, 33, 3, 8, 0 },
  { TWH_F32, 2, 4, 64, 16, 17, 0 }, { TWH_BF16, 2, 2, 16, 8, 9, 1 }, { TWH_BF16, 4, 1, 5, 2, 1, 300 },
  { TWH_F16, 2, 3, 12, 6, 5, 0 },   { TWH_F16, 1, 1, 24, 40, 3, 2 },
};

static void every_slot_computes_its_attention(void **state)
{
  static const double stds[] = { 0.01, 1.0, 30.0, 1000.0 }, sizes[] = { 1.0, 1e-30, 1e30 }, halves[] = { 1.0, 1e-5, 1e4 };
  int64_t             n, i, s;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(small_shapes); ++n)
    for (i = 0; i < 24; ++i) {
      const small_shape          *shape = &small_shapes[n];
      const tile_shape            wanted = { i % 2 ? CAUSAL : NONE, 0, 0, 0, (int32_t)(i / 2 % 4), stds[(i + n) % 4], 0.0 };
      support_random              random = support_random_at(8, (uint64_t)(n * 100 + i));
      twh_transformer_oracle_desc desc;
      twh_oracle                 *oracle;
      support_tile                tile;
      tile_result                 got, want;
      small_desc(&desc, shape->dtype, shape->layers, shape->heads, shape->length);
      desc.qk_dim = shape->qk_dim;
      desc.v_dim = shape->v_dim;
      desc.model_dim = shape->layers * shape->heads * 2 * (shape->qk_dim + shape->v_dim) + shape->spare;
      if (i % 5 == 4) desc.scale = -desc.scale;
      oracle = small_create(&desc);
      tile_create(&tile, oracle, &wanted, &random);
      if (wanted.layout < TILE_REVERSED) small_multiply_values(&tile, (shape->dtype == TWH_F16 ? halves : sizes)[i % 3]);
      tile_run(&got, &tile, oracle);
      tile_truth(&want, &tile);
      for (s = 0; s < tile.call.slots; ++s)
        if (!small_agrees(&got, &want, s, &tile.desc))
          fail_msg("shape %d, tile %d, slot %d: %g", (int)n, (int)i, (int)s, tile_out_error(&got, &want));
      tile_result_destroy(&got);
      tile_result_destroy(&want);
      tile_destroy(&tile);
      twh_oracle_destroy(oracle);
    }
}

/* What a slot is filled with: one number in the queries, one in the keys, one in the values; 0 leaves what is there. all: all
 * numbers of them. */
typedef struct small_spoil {
  double q, k, v;
  int    all;
} small_spoil;

static const small_spoil small_spoils[] = {
  { NAN, 0, 0, 0 },          { 0, NAN, 0, 0 },        { 0, 0, NAN, 0 },
  { INFINITY, 0, 0, 0 },     { 0, -INFINITY, 0, 0 },  { 0, 0, INFINITY, 0 },
  { 0, 0, -INFINITY, 0 },    { 1e38, 1e38, 0, 0 },    { -1e30, 1e30, 0, 0 },
  { 1e19, -1e19, 1e38, 0 },  { 0, 0, 3e38, 0 },       { 6e4, 6e4, 6e4, 0 },
  { 1e-40, 1e38, -1e38, 0 }, { 3e38, 3e38, 3e38, 0 }, { INFINITY, NAN, INFINITY, 0 },
  { 0, 0, 1e38, 1 },         { 0, 0, -3e38, 1 },      { 0, 0, 2e37, 1 },
  { 1e15, 1e15, 6.5e4, 1 },  { 0, 0, NAN, 1 },        { 8.9e18, 8.9e18, 0, 0 },
  { 8.9e18, -8.9e18, 0, 1 },
};

static void small_put(const support_tile *tile, const twh_operand *operand, int64_t dim, int64_t slot, int64_t row,
                      double value, int all)
{
  int64_t r, c;
  for (r = 0; value != 0 && r < tile->call.k_len; ++r)
    for (c = 0; c < dim; ++c)
      if (all || (r == row && c == dim / 2))
        support_store((void *)(uintptr_t)operand->data, tile->desc.dtype,
                      slot * operand->slot_stride + r * operand->row_stride + c, value);
}

static double small_load(const support_tile *tile, const twh_operand *operand, int64_t slot, int64_t row, int64_t column)
{
  return support_load(operand->data, tile->desc.dtype, slot * operand->slot_stride + row * operand->row_stride + column);
}

/* Row i of a slot as the formula gives it for numbers that are not finite too; keys that it does not see are not in it. */
static void small_truth_row(const support_tile *tile, int64_t slot, int64_t i, double *out)
{
  const twh_call *call = &tile->call;
  const int64_t   keys = call->mask_mode == CAUSAL ? i + 1 : call->k_len;
  double          weights[64], most = -INFINITY, sum = 0.0;
  int64_t         j, c;
  assert_true(keys <= 64);
  for (j = 0; j < keys; ++j) {
    weights[j] = 0.0;
    for (c = 0; c < tile->desc.qk_dim; ++c)
      weights[j] += small_load(tile, &call->q, slot, i, c) * small_load(tile, &call->k, slot, j, c);
    weights[j] *= tile->desc.scale;
    most = fmax(most, weights[j]);
  }
  for (j = 0; j < keys; ++j) sum += weights[j] = exp(weights[j] - most);
  for (c = 0; c < tile->desc.v_dim; ++c) {
    out[c] = 0.0;
    for (j = 0; j < keys; ++j) out[c] += weights[j] / sum * small_load(tile, &call->v, slot, j, c);
  }
}

/* Spoil the slots in the set `which`; the others must keep their bits, and those must be what the definition says. */
static void small_expect_others_unchanged(const support_tile *tile, const twh_oracle *oracle, const tile_result *clean,
                                          const small_spoil *spoil, uint32_t which)
{
  const int64_t n = tile->desc.q_len * tile->desc.v_dim;
  tile_result   got, want;
  int64_t       s, i;
  for (s = 0; s < tile->call.slots; ++s) {
    if (!(which >> s & 1)) continue;
    small_put(tile, &tile->call.q, tile->desc.qk_dim, s, s % tile->call.q_len, spoil->q, spoil->all);
    small_put(tile, &tile->call.k, tile->desc.qk_dim, s, (s + 2) % tile->call.k_len, spoil->k, spoil->all);
    small_put(tile, &tile->call.v, tile->desc.v_dim, s, (s + 3) % tile->call.k_len, spoil->v, spoil->all);
  }
  tile_run(&got, tile, oracle);
  tile_truth(&want, tile);
  for (s = 0; s < tile->call.slots; ++s) {
    for (i = 0; i < tile->call.q_len; ++i) small_truth_row(tile, s, i, want.out + s * n + i * tile->desc.v_dim);
    if (which >> s & 1 ? !small_agrees(&got, &want, s, &tile->desc)
                       : memcmp(got.out + s * n, clean->out + s * n, (size_t)n * sizeof(double)) != 0)
      fail_msg("dtype %d, mode %u, %g %g %g in slots %x: slot %d is wrong", tile->desc.dtype, tile->call.mask_mode, spoil->q,
               spoil->k, spoil->v, which, (int)s);
  }
  tile_result_destroy(&got);
  tile_result_destroy(&want);
}

/* The reference kernel, whose output must be finite: whatever is not would be in all columns of its row, and then there is no
 * slot left that the kernel computes. */
static int32_t small_finite_run(void *user, const twh_transformer_call *const *calls, int64_t n)
{
  const twh_transformer_oracle_desc *desc = (const twh_transformer_oracle_desc *)user;
  int32_t                            code = twh_reference_transformer_run(user, calls, n);
  int64_t                            i, e;
  for (i = 0; i < n && code == 0; ++i)
    for (e = 0; e < desc->length * desc->model_dim; ++e) assert_true(isfinite(support_load(calls[i]->out, desc->dtype, e)));
  return code;
}

static void what_other_slots_hold_changes_no_bit(void **state)
{
  static const int32_t  dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  static const uint32_t sets[] = { 1, 0x20, 0x2a, 0x37, 0x3f };
  int64_t               n, i, w;
  (void)state;
  for (n = 0; n < 6; ++n) {
    const tile_shape            shape = { n % 2 ? CAUSAL : NONE, 0, 0, 0, n < 3 ? TILE_DECLARED : TILE_GAPS, 3.0, 0.0 };
    support_random              random = support_random_at(9, (uint64_t)n), again;
    twh_transformer_oracle_desc desc;
    twh_oracle                 *oracle = NULL;
    support_tile                tile;
    tile_result                 clean, few;
    small_desc(&desc, dtypes[n / 2], n % 4 < 2 ? 3 : 2, n % 4 < 2 ? 2 : 3, 16);
    desc.model_dim += n;
    if (n % 2) desc.scale = n == 1 ? 5 : -5;
    desc.run = small_finite_run;
    desc.user = &desc;
    assert_int_equal(twh_oracle_from_transformer(NULL, &desc, &oracle, NULL), TWH_OK);
    again = random;
    tile_create(&tile, oracle, &shape, &random);
    tile_run(&clean, &tile, oracle);
    for (i = 1; i <= 6; ++i) { /* the first slots alone */
      tile.call.slots = i;
      tile_run(&few, &tile, oracle);
      assert_memory_equal(few.out, clean.out, (size_t)(few.rows * few.dim) * sizeof(double));
      tile_result_destroy(&few);
    }
    tile_destroy(&tile);
    for (i = 0; i < SUPPORT_COUNT(small_spoils); ++i)
      for (w = 0; w < SUPPORT_COUNT(sets); ++w) {
        random = again;
        tile_create(&tile, oracle, &shape, &random);
        small_expect_others_unchanged(&tile, oracle, &clean, &small_spoils[i], sets[w]);
        tile_destroy(&tile);
      }
    tile_result_destroy(&clean);
    twh_oracle_destroy(oracle);
  }
}

/* ---- its promises ---- */

typedef struct small_verdicts {
  int64_t counts[3];
} small_verdicts;

static void small_report(void *user, const char *promise, int32_t verdict, const char *detail)
{
  ++((small_verdicts *)user)->counts[verdict];
  if (verdict == TWH_CHECK_UNTRUE) print_error("%s: %s\n", promise, detail);
}

static void the_check_finds_nothing_untrue(void **state)
{
  int64_t n, modes;
  (void)state;
  for (n = 1; n < SUPPORT_COUNT(small_shapes); ++n)
    for (modes = NONE; modes <= (NONE | CAUSAL); ++modes) {
      twh_transformer_oracle_desc desc;
      twh_oracle                 *oracle;
      small_verdicts              verdicts = { { 0, 0, 0 } };
      int64_t                     untrue = -1;
      small_desc(&desc, small_shapes[n].dtype, small_shapes[n].layers, small_shapes[n].heads, 12);
      desc.model_dim += small_shapes[n].spare;
      desc.mask_modes = (uint32_t)modes;
      oracle = small_create(&desc);
      assert_int_equal(twh_oracle_check(NULL, oracle, small_report, &verdicts, &untrue, NULL), TWH_OK);
      assert_int_equal(untrue, 0);
      assert_int_equal(verdicts.counts[TWH_CHECK_UNTRUE], 0);
      /* softmax, scale, key shift, large scores, underflow, fewer slots, strides, batch, determinism, every element, margins */
      assert_true(verdicts.counts[TWH_CHECK_HOLDS] >= 11 + (modes & CAUSAL ? 1 : 0));
      twh_oracle_destroy(oracle);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_small_transformer_has_a_slot_for_each_head),
    cmocka_unit_test(the_kernel_gets_weights_of_zero_and_one_that_never_change),
    cmocka_unit_test(every_slot_computes_its_attention),
    cmocka_unit_test(what_other_slots_hold_changes_no_bit),
    cmocka_unit_test(the_check_finds_nothing_untrue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
