/* The kernel on BLIS: against the reference kernel over shapes, masks, scales and magnitudes; and the promises of the contract
 * that a fast kernel breaks first: strides, margins, memory that ends where the operand ends, empty rows, NaN, bits that do
 * not depend on the batch or on other threads. */
#include "support_tile.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "twoheads_blis.h"

enum { LSE = TWH_ORACLE_LSE, BASE2 = TWH_ORACLE_LSE_BASE2, POS_INF = TWH_ORACLE_EMPTY_LSE_POS_INF };
enum { STRIDED = TWH_ORACLE_STRIDED, BACKWARDS = TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS };
enum { FEWER = TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_FEWER_SLOTS, PER_CALL = TWH_ORACLE_SCALE_PER_CALL };
enum { NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL, TENSOR = TWH_MASK_TENSOR };

static void blis_desc(twh_oracle_desc *desc, int64_t slots, int64_t q_len, int64_t k_len, int64_t qk_dim, int64_t v_dim)
{
  twh_oracle_desc_init(desc);
  desc->slots = slots;
  desc->q_len = q_len;
  desc->k_len = k_len;
  desc->qk_dim = qk_dim;
  desc->v_dim = v_dim;
  desc->dtype = TWH_F32;
  desc->mask_modes = NONE | CAUSAL | TENSOR;
  desc->mask_dtype = TWH_BOOL;
  desc->scale = 0.3;
  desc->flags = LSE;
}

static twh_oracle *blis_oracle(const twh_oracle_desc *desc)
{
  twh_oracle *oracle;
  twh_error   error;
  twh_error_init(&error);
  if (twh_blis_oracle_create(NULL, desc, NULL, &oracle, &error) < 0) fail_msg("%s", error.message);
  return oracle;
}

/* The same kernel in float64, its output unrounded. */
static twh_oracle *blis_reference(const twh_oracle_desc *desc)
{
  twh_oracle_desc wide = *desc;
  twh_oracle     *oracle;
  twh_error       error;
  twh_error_init(&error);
  wide.out_dtype = TWH_F64;
  if (twh_reference_oracle_create(NULL, &wide, NULL, &oracle, &error) < 0) fail_msg("%s", error.message);
  return oracle;
}

typedef struct blis_case {
  const char *name;
  uint32_t    flags, mask_mode;
  int64_t     slots, q_len, k_len, qk_dim, v_dim, causal_offset;
  int32_t     mask_dtype, layout;
  double      scale, softcap, logit_std, hidden;
} blis_case;

static const blis_case blis_cases[] = {
  /* shapes: 1, odd, on both sides of 32 keys, of 128 rows (a causal block), and more than one block of any other kind */
  { "one pair", LSE, NONE, 1, 1, 1, 1, 1, 0, TWH_BOOL, TILE_DECLARED, 0.5, 0, 1, 0 },
  { "one key", LSE, NONE, 2, 5, 1, 3, 2, 0, TWH_BOOL, TILE_DECLARED, 0.5, 0, 1, 0 },
  { "one row", LSE, NONE, 2, 1, 300, 64, 65, 0, TWH_BOOL, TILE_DECLARED, 0.125, 0, 1, 0 },
  { "one column", LSE, NONE, 2, 33, 31, 1, 1, 0, TWH_BOOL, TILE_DECLARED, 1, 0, 1, 0 },
  { "odd", LSE, NONE, 3, 17, 33, 7, 5, 0, TWH_BOOL, TILE_DECLARED, 0.3, 0, 1, 0 },
  { "31 keys", LSE, NONE, 1, 64, 31, 16, 16, 0, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "32 keys", LSE, NONE, 1, 65, 32, 16, 17, 0, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "129 rows", LSE, NONE, 1, 129, 64, 64, 64, 0, TWH_BOOL, TILE_DECLARED, 0.125, 0, 1, 0 },
  { "two blocks of 512 rows", LSE, NONE, 1, 600, 33, 24, 8, 0, TWH_BOOL, TILE_DECLARED, 0.2, 0, 1, 0 },
  { "two blocks of 64 rows", LSE, NONE, 1, 70, 16500, 4, 5, 0, TWH_BOOL, TILE_DECLARED, 0.5, 0, 1, 0 },
  { "256", LSE, NONE, 1, 256, 256, 64, 65, 0, TWH_BOOL, TILE_DECLARED, 0.125, 0, 1, 0 },
  { "wide", LSE, NONE, 1, 40, 70, 300, 129, 0, TWH_BOOL, TILE_DECLARED, 0.06, 0, 1, 0 },
  /* causal */
  { "causal", LSE, CAUSAL, 2, 200, 200, 16, 17, 0, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, fewer keys than rows", LSE, CAUSAL, 1, 150, 40, 16, 5, 0, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, empty rows", LSE, CAUSAL, 2, 140, 150, 8, 5, -5, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, empty blocks", LSE | POS_INF, CAUSAL, 2, 300, 300, 8, 5, -270, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal, offset 37", LSE | BASE2, CAUSAL, 1, 90, 150, 8, 5, 37, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0 },
  { "causal without lse", 0, CAUSAL, 1, 129, 129, 8, 5, 0, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0 },
  /* mask operands */
  { "bool mask", LSE, TENSOR, 2, 70, 90, 16, 8, 0, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0.5 },
  { "bool mask, one key in 30", LSE, TENSOR, 2, 70, 90, 16, 8, 0, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 0.97 },
  { "bool mask, empty rows", LSE, TENSOR, 2, 70, 90, 16, 8, 0, TWH_BOOL, TILE_DECLARED, 0.25, 0, 1, 1 },
  { "f32 mask", LSE, TENSOR, 2, 70, 90, 16, 8, 0, TWH_F32, TILE_DECLARED, 0.25, 0, 1, 0.5 },
  { "f32 mask, empty rows", LSE | POS_INF | BASE2, TENSOR, 2, 70, 90, 16, 8, 0, TWH_F32, TILE_DECLARED, 0.25, 0, 1, 1 },
  /* scores */
  { "softcap", LSE, NONE, 1, 70, 90, 16, 8, 0, TWH_BOOL, TILE_DECLARED, 0.25, 3, 4, 0 },
  { "softcap, saturated", LSE, CAUSAL, 1, 70, 90, 16, 8, 0, TWH_BOOL, TILE_DECLARED, 0.25, 50, 1000, 0 },
  { "softcap, nearly linear", LSE, TENSOR, 1, 70, 90, 16, 8, 0, TWH_F32, TILE_DECLARED, -0.25, 1000, 1, 0.5 },
  { "negative scale", LSE, NONE, 1, 70, 90, 16, 8, 0, TWH_BOOL, TILE_DECLARED, -0.7, 0, 4, 0 },
  { "negative scale, bool mask", LSE | BASE2, TENSOR, 1, 70, 90, 16, 8, 0, TWH_BOOL, TILE_DECLARED, -0.7, 0, 4, 0.5 },
  { "scale per call", LSE | PER_CALL, CAUSAL, 1, 70, 90, 16, 8, 0, TWH_BOOL, TILE_DECLARED, 0, 0, 4, 0 },
  { "std 0.1", LSE, NONE, 1, 130, 256, 64, 65, 0, TWH_BOOL, TILE_DECLARED, 0.125, 0, 0.1, 0 },
  { "std 10", LSE, NONE, 1, 130, 256, 64, 65, 0, TWH_BOOL, TILE_DECLARED, 0.125, 0, 10, 0 },
  { "std 100", LSE, CAUSAL, 1, 130, 256, 64, 65, 0, TWH_BOOL, TILE_DECLARED, 0.125, 0, 100, 0 },
  { "std 1000", LSE, NONE, 1, 130, 256, 64, 65, 0, TWH_BOOL, TILE_DECLARED, 0.125, 0, 1000, 0 },
  { "std 1000, f32 mask", LSE, TENSOR, 1, 130, 256, 64, 65, 0, TWH_F32, TILE_DECLARED, 0.125, 0, 1000, 0.5 },
  /* strides */
  { "gaps", LSE | STRIDED, TENSOR, 3, 70, 90, 16, 8, 0, TWH_F32, TILE_GAPS, 0.25, 0, 1, 0.5 },
  { "gaps, causal", LSE | STRIDED, CAUSAL, 3, 170, 190, 16, 8, 0, TWH_BOOL, TILE_GAPS, 0.25, 0, 1, 0 },
  { "reversed", LSE | BACKWARDS, TENSOR, 3, 170, 90, 16, 8, 0, TWH_BOOL, TILE_REVERSED, 0.25, 0, 1, 0.5 },
  { "reversed, causal", LSE | BACKWARDS, CAUSAL, 3, 170, 190, 16, 9, -3, TWH_BOOL, TILE_REVERSED, 0.25, 0, 1, 0 },
  { "reversed, one row", LSE | BACKWARDS, NONE, 3, 1, 1, 16, 9, 0, TWH_BOOL, TILE_REVERSED, 0.25, 0, 1, 0 },
  { "overlap", LSE | BACKWARDS, NONE, 3, 170, 90, 16, 8, 0, TWH_BOOL, TILE_OVERLAP, 0.25, 0, 1, 0 },
  { "overlap, causal", LSE | BACKWARDS, CAUSAL, 2, 170, 190, 16, 9, 2, TWH_BOOL, TILE_OVERLAP, 0.25, 0, 1, 0 },
};

static void blis_case_desc(const blis_case *made, twh_oracle_desc *desc)
{
  blis_desc(desc, made->slots, made->q_len, made->k_len, made->qk_dim, made->v_dim);
  desc->flags = made->flags;
  desc->causal_offset = made->causal_offset;
  desc->mask_dtype = made->mask_dtype;
  desc->scale = made->scale;
  desc->softcap = made->softcap;
}

/* In units of 2^-24, and with values of standard deviation 1: a score is off by a small part of the sum of its terms, a weight
 * by as much relative to itself; the exponential and the value product add a few units. */
static void blis_equals_the_reference(void **state)
{
  int64_t n;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(blis_cases); ++n) {
    const blis_case *made = &blis_cases[n];
    support_random   random = support_random_at(7, (uint64_t)n);
    tile_shape       shape = { made->mask_mode, 0, 0, 0, made->layout, made->logit_std, made->hidden };
    twh_oracle_desc  desc;
    twh_oracle      *oracle, *reference;
    support_tile     tile;
    tile_result      got, want;
    double           unit = 1.0 / 16777216.0;
    blis_case_desc(made, &desc);
    oracle = blis_oracle(&desc);
    reference = blis_reference(&desc);
    tile_create(&tile, oracle, &shape, &random);
    tile_run(&got, &tile, oracle);
    tile_run(&want, &tile, reference);
    unit *= tile_largest_score(&tile) + 4.0;
    support_assert_at_most(tile_out_error(&got, &want), 3.0 * unit, made->name);
    if (made->flags & LSE) support_assert_at_most(tile_lse_error(&got, &want), 4.0 * unit, made->name);
    tile_result_destroy(&got);
    tile_result_destroy(&want);
    tile_destroy(&tile);
    twh_oracle_destroy(oracle);
    twh_oracle_destroy(reference);
  }
}

/* Hidden keys weigh exactly 0: the rows that do not see the last ten keys are what they are without these, though their scores
 * overflow and their values are huge. Other rows of the same block do see them. */
static void blis_hidden_keys_weigh_nothing(void **state)
{
  enum { ALL = 70, SOME = 60, DIM = 16, SLOTS = 2 };
  static const uint32_t modes[] = { CAUSAL, TENSOR };
  int64_t               n, s, i, j, c;
  (void)state;
  for (n = 0; n < 2; ++n) {
    support_random  random = support_random_at(8, (uint64_t)n);
    tile_shape      shape = { modes[n], 0, 0, 0, TILE_DECLARED, 1.0, 0.5 };
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    support_tile    tile;
    tile_result     clean, spoilt;
    blis_desc(&desc, SLOTS, ALL, ALL, DIM, DIM);
    desc.flags |= FEWER;
    oracle = blis_oracle(&desc);
    tile_create(&tile, oracle, &shape, &random);
    for (s = 0; s < SLOTS; ++s)
      for (j = SOME; j < ALL; ++j) {
        for (c = 0; c < DIM; ++c) ((float *)tile.memory[1])[(s * ALL + j) * DIM + c] = c % 2 ? 3e38f : -3e38f;
        for (c = 0; c < DIM; ++c) ((float *)tile.memory[2])[(s * ALL + j) * DIM + c] = 3e38f;
        for (i = 0; i < SOME && modes[n] == TENSOR; ++i) ((unsigned char *)tile.memory[3])[(s * ALL + i) * ALL + j] = 0;
      }
    tile_run(&spoilt, &tile, oracle);
    tile.call.q_len = tile.call.k_len = SOME;
    tile_run(&clean, &tile, oracle);
    for (s = 0; s < SLOTS; ++s)
      for (i = 0; i < SOME; ++i) {
        support_assert_at_most(fabs(spoilt.lse[s * ALL + i] - clean.lse[s * SOME + i]), 1e-6, "lse");
        for (c = 0; c < DIM; ++c)
          support_assert_at_most(fabs(spoilt.out[(s * ALL + i) * DIM + c] - clean.out[(s * SOME + i) * DIM + c]), 1e-6, "out");
      }
    tile_result_destroy(&clean);
    tile_result_destroy(&spoilt);
    tile_destroy(&tile);
    twh_oracle_destroy(oracle);
  }
}

/* A NaN among the visible scores of a row makes that row NaN, and no other; it does not pass for a row that sees nothing. */
static void blis_nan_stays_in_its_row(void **state)
{
  support_random  random = support_random_at(9, 0);
  tile_shape      shape = { TENSOR, 0, 0, 0, TILE_DECLARED, 1.0, 0.0 };
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  support_tile    tile;
  tile_result     got;
  int64_t         j, row, c;
  (void)state;
  blis_desc(&desc, 1, 40, 50, 16, 8);
  oracle = blis_oracle(&desc);
  tile_create(&tile, oracle, &shape, &random);
  for (c = 0; c < 16; ++c) ((float *)tile.memory[0])[7 * 16 + c] = NAN;  /* all scores of query 7 */
  ((float *)tile.memory[0])[9 * 16] = NAN;                                 /* and of query 9, */
  for (j = 0; j < 50; ++j) ((unsigned char *)tile.memory[3])[9 * 50 + j] = j == 20; /* which sees one key */
  for (j = 0; j < 50; ++j) ((unsigned char *)tile.memory[3])[11 * 50 + j] = 0;      /* query 11 sees none */
  tile_run(&got, &tile, oracle);
  for (row = 0; row < 40; ++row)
    for (c = 0; c < 8; ++c) {
      double out = got.out[row * 8 + c];
      if (row == 7 || row == 9) assert_true(isnan(out) && isnan(got.lse[row]));
      else if (row == 11) assert_true(out == 0.0 && got.lse[row] == -INFINITY);
      else assert_true(isfinite(out) && isfinite(got.lse[row]));
    }
  tile_result_destroy(&got);
  tile_destroy(&tile);
  twh_oracle_destroy(oracle);
}

/* The same slot alone, in another place of the call, and among other slots: the same bits. */
static void blis_bits_do_not_depend_on_the_batch(void **state)
{
  static const uint32_t modes[] = { NONE, CAUSAL, TENSOR };
  int64_t               n, s;
  (void)state;
  for (n = 0; n < 3; ++n) {
    support_random  random = support_random_at(10, (uint64_t)n);
    tile_shape      shape = { modes[n], 0, 0, 0, TILE_DECLARED, 2.0, 0.3 };
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    support_tile    tile;
    tile_result     all, one;
    blis_desc(&desc, 5, 133, 150, 24, 25);
    desc.flags |= FEWER;
    oracle = blis_oracle(&desc);
    tile_create(&tile, oracle, &shape, &random);
    tile_run(&all, &tile, oracle);
    for (s = 0; s < 5; ++s) {
      support_tile part = tile;
      part.call.slots = 1;
      part.call.q.data = (const float *)tile.call.q.data + s * tile.call.q.slot_stride;
      part.call.k.data = (const float *)tile.call.k.data + s * tile.call.k.slot_stride;
      part.call.v.data = (const float *)tile.call.v.data + s * tile.call.v.slot_stride;
      if (tile.memory[3]) part.call.mask.data = (const unsigned char *)tile.call.mask.data + s * tile.call.mask.slot_stride;
      tile_run(&one, &part, oracle);
      assert_memory_equal(one.out, all.out + s * one.rows * one.dim, (size_t)(one.rows * one.dim) * sizeof(double));
      assert_memory_equal(one.lse, all.lse + s * one.rows, (size_t)one.rows * sizeof(double));
      tile_result_destroy(&one);
    }
    tile_result_destroy(&all);
    tile_destroy(&tile);
    twh_oracle_destroy(oracle);
  }
}

typedef struct blis_thread {
  const support_tile *tile;
  const twh_oracle   *oracle;
  const tile_result  *want;
  int                 different;
} blis_thread;

static void *blis_thread_run(void *arg)
{
  blis_thread *thread = (blis_thread *)arg;
  tile_result  got;
  int          n;
  for (n = 0; n < 40; ++n) {
    tile_run(&got, thread->tile, thread->oracle);
    thread->different |= memcmp(got.out, thread->want->out, (size_t)(got.rows * got.dim) * sizeof(double)) != 0;
    thread->different |= memcmp(got.lse, thread->want->lse, (size_t)got.rows * sizeof(double)) != 0;
    tile_result_destroy(&got);
  }
  return NULL;
}

/* One oracle, two threads, two inputs. */
static void blis_runs_on_threads_at_once(void **state)
{
  support_random  random = support_random_at(11, 0);
  tile_shape      shape = { CAUSAL, 0, 0, 0, TILE_DECLARED, 2.0, 0.0 };
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  support_tile    tile[2];
  tile_result     want[2];
  blis_thread     thread[2];
  pthread_t       handle[2];
  int             n;
  (void)state;
  blis_desc(&desc, 2, 150, 150, 32, 33);
  oracle = blis_oracle(&desc);
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  assert_true(desc.max_concurrent_batches >= 2);
  for (n = 0; n < 2; ++n) {
    tile_create(&tile[n], oracle, &shape, &random);
    tile_run(&want[n], &tile[n], oracle);
    thread[n].tile = &tile[n];
    thread[n].oracle = oracle;
    thread[n].want = &want[n];
    thread[n].different = 0;
  }
  for (n = 0; n < 2; ++n) assert_int_equal(pthread_create(&handle[n], NULL, blis_thread_run, &thread[n]), 0);
  for (n = 0; n < 2; ++n) assert_int_equal(pthread_join(handle[n], NULL), 0);
  for (n = 0; n < 2; ++n) {
    assert_int_equal(thread[n].different, 0);
    tile_result_destroy(&want[n]);
    tile_destroy(&tile[n]);
  }
  twh_oracle_destroy(oracle);
}

/* A copy of `from` (NULL: zeros) that ends where a page ends behind which nothing is mapped. */
static float *blis_guard(const void *from, size_t bytes, void **mapping, size_t *mapped)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  char  *memory = (char *)mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  assert_int_equal(mprotect(memory + whole, page, PROT_NONE), 0);
  if (from) memcpy(memory + whole - bytes, from, bytes);
  *mapping = memory;
  *mapped = whole + page;
  return (float *)(void *)(memory + whole - bytes);
}

/* Operands and outputs end at an unmapped page, for shapes that leave remainders in every kernel. */
static void blis_reads_and_writes_nothing_beyond(void **state)
{
  static const int64_t shapes[][4] = {
    { 1, 1, 1, 1 },   { 5, 7, 3, 2 },  { 17, 33, 65, 65 }, { 70, 50, 63, 17 }, { 131, 129, 16, 9 },
    { 1, 33, 67, 2 }, { 4, 40, 5, 3 }, { 7, 70, 130, 1 },  { 13, 16, 2, 10 },  { 40, 31, 9, 1 },
    { 3, 300, 8, 2 }, { 33, 530, 24, 3 },
  };
  int64_t              n, mode;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(shapes); ++n)
    for (mode = NONE; mode <= CAUSAL; ++mode) {
      support_random  random = support_random_at(12, (uint64_t)n);
      tile_shape      shape = { (uint32_t)mode, 0, 0, 0, TILE_DECLARED, 1.0, 0.0 };
      twh_oracle_desc desc;
      twh_oracle     *oracle;
      support_tile    tile;
      tile_result     want;
      twh_call        call;
      const twh_call *calls = &call;
      void           *mapping[5];
      size_t          mapped[5], m, k;
      int64_t         i;
      blis_desc(&desc, 1, shapes[n][0], shapes[n][1], shapes[n][2], shapes[n][3]);
      desc.alignment = 4;
      oracle = blis_oracle(&desc);
      tile_create(&tile, oracle, &shape, &random);
      tile_run(&want, &tile, oracle);
      twh_oracle_desc_init(&desc);
      assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
      m = (size_t)desc.q_len * sizeof(float);
      k = (size_t)desc.k_len * sizeof(float);
      call = tile.call;
      call.q.data = blis_guard(call.q.data, m * (size_t)desc.qk_dim, &mapping[0], &mapped[0]);
      call.k.data = blis_guard(call.k.data, k * (size_t)desc.qk_dim, &mapping[1], &mapped[1]);
      call.v.data = blis_guard(call.v.data, k * (size_t)desc.v_dim, &mapping[2], &mapped[2]);
      call.out = blis_guard(NULL, m * (size_t)desc.v_dim, &mapping[3], &mapped[3]);
      call.lse = blis_guard(NULL, m, &mapping[4], &mapped[4]);
      assert_int_equal(desc.run(desc.user, &calls, 1), 0);
      for (i = 0; i < want.rows * want.dim; ++i) assert_true((double)((float *)call.out)[i] == want.out[i]);
      for (i = 0; i < want.rows; ++i) assert_true((double)call.lse[i] == want.lse[i]);
      for (i = 0; i < 5; ++i) munmap(mapping[i], mapped[i]);
      tile_result_destroy(&want);
      tile_destroy(&tile);
      twh_oracle_destroy(oracle);
    }
}

typedef struct blis_log {
  int  lines, warnings;
  char text[256];
} blis_log;

static void blis_log_line(void *user, int32_t level, const char *text)
{
  blis_log *log = (blis_log *)user;
  log->lines++;
  log->warnings += level == TWH_LOG_WARNING;
  snprintf(log->text, sizeof log->text, "%s", text);
}

/* The log says which kernels BLIS runs, and warns about the generic ones. */
static void blis_create_logs_the_kernels(void **state)
{
  twh_oracle_desc  desc;
  twh_blis_options options;
  twh_oracle      *oracle;
  blis_log         log;
  const char      *name = twh_blis_kernel_name(), *arch = twh_blis_recommended_arch();
  (void)state;
  memset(&log, 0, sizeof log);
  blis_desc(&desc, 1, 4, 4, 4, 4);
  twh_blis_options_init(&options);
  options.log = blis_log_line;
  options.user = &log;
  assert_int_equal(twh_blis_oracle_create(NULL, &desc, &options, &oracle, NULL), TWH_OK);
  twh_oracle_destroy(oracle);
  assert_int_equal(log.lines, 1);
  assert_int_equal(log.warnings, strcmp(name, "generic") == 0);
  assert_non_null(strstr(log.text, name));
  if (arch != NULL) assert_true(arch[0] >= '0' && arch[0] <= '9');
}

static void blis_create_refuses_what_it_cannot_do(void **state)
{
  twh_oracle_desc  desc;
  twh_blis_options options;
  twh_oracle      *oracle;
  twh_error        error;
  (void)state;
  twh_error_init(&error);
#define REFUSED(change, status, word)                                                                                  \
  blis_desc(&desc, 1, 4, 4, 4, 4);                                                                                     \
  twh_blis_options_init(&options);                                                                                     \
  change;                                                                                                              \
  support_assert_status(twh_blis_oracle_create(NULL, &desc, &options, &oracle, &error), status, &error, word);         \
  assert_null(oracle)
  REFUSED(desc.dtype = TWH_F16, TWH_E_UNSUPPORTED, "dtype");
  REFUSED(desc.out_dtype = TWH_BF16, TWH_E_UNSUPPORTED, "out_dtype");
  REFUSED(desc.mask_dtype = TWH_F16, TWH_E_UNSUPPORTED, "mask_dtype");
  REFUSED(desc.flags |= TWH_ORACLE_F16_SCORES, TWH_E_UNSUPPORTED, "F16_SCORES");
  REFUSED(desc.flags |= LSE | TWH_ORACLE_CONTINUES, TWH_E_UNSUPPORTED, "CONTINUES");
  REFUSED(desc.user = &desc, TWH_E_ARGUMENT, "user");
  REFUSED(desc.struct_size = 0, TWH_E_ARGUMENT, "struct_size");
  REFUSED(desc.struct_size = 8, TWH_E_VERSION, "struct_size");
  REFUSED(options.struct_size = 4, TWH_E_VERSION, "struct_size");
  REFUSED(options.flags = 1, TWH_E_VERSION, "flags");
  /* what twh_oracle_create refuses */
  REFUSED(desc.slots = 0, TWH_E_ARGUMENT, "slots");
  REFUSED(desc.mask_modes = 0, TWH_E_ARGUMENT, "mask_modes");
  REFUSED(desc.flags |= 1u << 30, TWH_E_VERSION, "flags");
#undef REFUSED
  support_assert_status(twh_blis_oracle_create(NULL, NULL, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "desc");
  support_assert_status(twh_blis_oracle_create(NULL, &desc, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "out");
}

/* Scratch memory of 2^48 bytes cannot be had: the kernel says so with its code. */
static void blis_returns_its_code_without_memory(void **state)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  twh_call        call;
  const twh_call *calls = &call;
  float           one = 1.0f, out = 0.0f, lse = 0.0f;
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip(); /* their malloc ends the process */
#endif
  blis_desc(&desc, 1, 64, (int64_t)1 << 40, 1, 1);
  desc.flags |= FEWER;
  oracle = blis_oracle(&desc);
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  twh_call_init(&call);
  call.mask_mode = NONE;
  call.slots = call.q_len = call.k_len = 1;
  call.q.data = call.k.data = call.v.data = &one;
  call.out = &out;
  call.lse = &lse;
  assert_int_equal(desc.run(desc.user, &calls, 1), ENOMEM);
  assert_true(out == 0.0f && lse == 0.0f);
  twh_oracle_destroy(oracle);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(blis_equals_the_reference),
    cmocka_unit_test(blis_hidden_keys_weigh_nothing),
    cmocka_unit_test(blis_nan_stays_in_its_row),
    cmocka_unit_test(blis_bits_do_not_depend_on_the_batch),
    cmocka_unit_test(blis_runs_on_threads_at_once),
    cmocka_unit_test(blis_reads_and_writes_nothing_beyond),
    cmocka_unit_test(blis_returns_its_code_without_memory),
    cmocka_unit_test(blis_create_logs_the_kernels),
    cmocka_unit_test(blis_create_refuses_what_it_cannot_do),
  };
  return cmocka_run_group_tests_name("kernel on BLIS", tests, NULL, NULL);
}
