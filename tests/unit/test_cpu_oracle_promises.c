/* The kernel on the CPU: the promises of the contract that a fast kernel breaks first. Hidden keys, numbers that are not finite
 * or overflow on the way, empty rows, memory that ends where the operand ends, bits that do not depend on the batch or on other
 * threads, scratch memory that is used again, and arguments that are refused. */
#include "support_cpu.h"

#include <errno.h>
#include <float.h>
#include <sys/mman.h>
#include <unistd.h>

/* Hidden keys weigh exactly 0: the rows that do not see the last ten keys are what they are without these, though there is
 * nothing but infinities, NaN and numbers that overflow in them. */
static void cpu_hidden_keys_weigh_nothing(int32_t isa, uint32_t mode, int64_t rows, double key, double value)
{
  enum { ALL = 170, SOME = 160, DIM = 19, SLOTS = 2 };
  support_random  random = support_random_at(8, mode);
  tile_shape      shape = { mode, 0, 0, 0, TILE_DECLARED, 1.0, 0.5 };
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  support_tile    tile;
  tile_result     clean, spoilt;
  int64_t         s, i, j, c;
  cpu_desc(&desc, SLOTS, ALL, ALL, DIM, DIM);
  desc.flags |= FEWER;
  oracle = cpu_oracle(&desc, isa);
  tile_create(&tile, oracle, &shape, &random);
  for (s = 0; s < SLOTS; ++s)
    for (j = SOME; j < ALL; ++j) {
      for (c = 0; c < DIM; ++c) ((float *)tile.memory[1])[(s * ALL + j) * DIM + c] = (float)(c % 2 ? key : -key);
      for (c = 0; c < DIM; ++c) ((float *)tile.memory[2])[(s * ALL + j) * DIM + c] = (float)value;
      for (i = 0; i < SOME && mode == TENSOR; ++i) ((unsigned char *)tile.memory[3])[(s * ALL + i) * ALL + j] = 0;
    }
  tile.call.q_len = rows;
  tile_run(&spoilt, &tile, oracle);
  tile.call.k_len = SOME;
  tile_run(&clean, &tile, oracle);
  for (s = 0; s < SLOTS; ++s)
    for (i = s * rows; i < s * rows + (rows < SOME ? rows : SOME); ++i) {
      support_assert_at_most(fabs(spoilt.lse[i] - clean.lse[i]), 1e-6, "lse");
      for (c = 0; c < DIM; ++c)
        support_assert_at_most(fabs(spoilt.out[i * DIM + c] - clean.out[i * DIM + c]), 1e-6, "out");
    }
  tile_result_destroy(&clean);
  tile_result_destroy(&spoilt);
  tile_destroy(&tile);
  twh_oracle_destroy(oracle);
}

static void cpu_hidden_keys_may_hold_anything(void **state)
{
  static const double things[][2] = {
    { 3e38, 3e38 }, { INFINITY, 1 }, { 1, INFINITY }, { NAN, 1 }, { 1, NAN }, { -INFINITY, NAN },
  };
  int32_t             isa;
  int64_t             n;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa))
    for (n = 0; n < SUPPORT_COUNT(things); ++n) {
      cpu_hidden_keys_weigh_nothing(isa, CAUSAL, 170, things[n][0], things[n][1]);
      cpu_hidden_keys_weigh_nothing(isa, TENSOR, 170, things[n][0], things[n][1]);
      cpu_hidden_keys_weigh_nothing(isa, TENSOR, 3, things[n][0], things[n][1]);
    }
}

/* A NaN among the visible scores of a row makes that row NaN, and no other; it does not pass for a row that sees nothing. */
static void cpu_nan_stays_in_its_row(void **state)
{
  int32_t isa;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
    support_random  random = support_random_at(9, 0);
    tile_shape      shape = { TENSOR, 0, 0, 0, TILE_DECLARED, 1.0, 0.0 };
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    support_tile    tile;
    tile_result     got;
    int64_t         j, row, c;
    cpu_desc(&desc, 1, 40, 50, 16, 8);
    oracle = cpu_oracle(&desc, isa);
    tile_create(&tile, oracle, &shape, &random);
    for (c = 0; c < 16; ++c) ((float *)tile.memory[0])[7 * 16 + c] = NAN;  /* all scores of query 7 */
    ((float *)tile.memory[0])[9 * 16] = NAN;                                 /* and of query 9, */
    for (j = 0; j < 50; ++j) ((unsigned char *)tile.memory[3])[9 * 50 + j] = j == 20; /* which sees one key */
    for (j = 0; j < 50; ++j) ((unsigned char *)tile.memory[3])[11 * 50 + j] = 0;      /* query 11 sees none */
    ((float *)tile.memory[1])[30 * 16 + 5] = NAN;                                      /* key 30 only query 13 sees */
    for (row = 0; row < 40; ++row) ((unsigned char *)tile.memory[3])[row * 50 + 30] = row == 13;
    tile_run(&got, &tile, oracle);
    for (row = 0; row < 40; ++row)
      for (c = 0; c < 8; ++c) {
        double out = got.out[row * 8 + c];
        if (row == 7 || row == 9 || row == 13) assert_true(isnan(out) && isnan(got.lse[row]));
        else if (row == 11) assert_true(out == 0.0 && got.lse[row] == -INFINITY);
        else assert_true(isfinite(out) && isfinite(got.lse[row]));
      }
    tile_result_destroy(&got);
    tile_destroy(&tile);
    twh_oracle_destroy(oracle);
  }
}

/* One query with two coordinates and keys of (size, code): what is finite on paper is finite, and right. */
typedef struct cpu_extreme {
  double q[2], k[4][2], v[4], out, lse;
} cpu_extreme;

static const cpu_extreme cpu_extremes[] = {
  /* scores of 1e30, and one that is less; then a single one that is least */
  { { 1, 0 }, { { 1e30, 0 }, { 1e30, 0 }, { -1e30, 0 }, { 0, 0 } }, { 1, 3, 7, 100 }, 2, 1e30 },
  { { 1, 0 }, { { -1e30, 0 }, { -1e30, 0 }, { -1e30, 0 }, { -1e30, 0 } }, { 1, 3, 5, 7 }, 4, -1e30 },
  /* a code of -1e30 hides a key: its weight is exactly 0 */
  { { 0, 1 }, { { 5, 0 }, { 3, -1e30 }, { 1, 0 }, { 0, -1e30 } }, { 1, 3e38, 3, -3e38 }, 2, 0.69314718055994530942 },
  /* sums of values, and scores, that f32 cannot hold */
  { { 1, 0 }, { { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } }, { 3e38, 3e38, 3e38, 3e38 }, 3e38, 1.38629436111989061883 },
  { { 3e20, 0 }, { { 1e20, 0 }, { 1e20, 0 }, { 1e19, 0 }, { -1e20, 0 } }, { 1, 3, 5, 7 }, 2, INFINITY },
  { { 3e20, 0 }, { { -2e20, 0 }, { -2e20, 0 }, { -3e20, 0 }, { -3e20, 0 } }, { 1, 3, 5, 7 }, 2, -INFINITY },
  /* a single finite weight; weights that underflow */
  { { 1, 0 }, { { 0, 0 }, { -200, 0 }, { -200, 0 }, { -1000, 0 } }, { 7, 3e38, 1e38, 1 }, 7, 0 },
};

/* The query `rows` times. */
static void cpu_extreme_run(const cpu_extreme *made, int32_t isa, uint32_t mode, int64_t rows)
{
  enum { MOST = 20 };
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  twh_call        call;
  const twh_call *calls = &call;
  float           q[2], k[4][2], v[4], out[MOST], lse[MOST];
  int64_t         i, j;
  assert_true(rows <= MOST);
  cpu_desc(&desc, 1, rows, 4, 2, 1);
  desc.scale = 1;
  desc.causal_offset = 3;
  oracle = cpu_oracle(&desc, isa);
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  twh_call_init(&call);
  for (j = 0; j < 2; ++j) q[j] = (float)made->q[j];
  for (j = 0; j < 4; ++j) {
    k[j][0] = (float)made->k[j][0];
    k[j][1] = (float)made->k[j][1];
    v[j] = (float)made->v[j];
  }
  for (i = 0; i < rows; ++i) out[i] = lse[i] = NAN;
  call.mask_mode = mode;
  call.slots = 1;
  call.q_len = rows;
  call.k_len = 4;
  call.q.data = q;
  call.k.data = k;
  call.v.data = v;
  call.k.row_stride = 2;
  call.v.row_stride = call.out_row_stride = 1;
  call.out = out;
  call.lse = lse;
  assert_int_equal(desc.run(desc.user, &calls, 1), 0);
  for (i = 0; i < rows; ++i) {
    support_assert_at_most(fabs((double)out[i] - made->out), 1e-6 * fabs(made->out), "out");
    if (isinf(made->lse)) assert_true(isinf(lse[i]) && (lse[i] > 0) == (made->lse > 0));
    else support_assert_at_most(fabs((double)lse[i] - made->lse), 1e-6 * fabs(made->lse), "lse");
  }
  twh_oracle_destroy(oracle);
}

static void cpu_extremes_are_finite_and_right(void **state)
{
  int32_t isa;
  int64_t n;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa))
    for (n = 0; n < SUPPORT_COUNT(cpu_extremes); ++n) {
      cpu_extreme_run(&cpu_extremes[n], isa, NONE, 1);
      cpu_extreme_run(&cpu_extremes[n], isa, NONE, 20);
      cpu_extreme_run(&cpu_extremes[n], isa, CAUSAL, 20);
    }
}

static void cpu_bits_at(int32_t isa, uint32_t mode, int32_t dtype)
{
  support_random  random = support_random_at(10, mode);
  tile_shape      shape = { mode, 0, 0, 0, TILE_DECLARED, 2.0, 0.3 };
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  support_tile    tile;
  tile_result     all, one;
  int64_t         s, item = dtype == TWH_F32 ? 4 : 2;
  cpu_desc(&desc, 5, 133, 150, 24, 25);
  desc.dtype = dtype;
  desc.flags |= FEWER;
  oracle = cpu_oracle(&desc, isa);
  tile_create(&tile, oracle, &shape, &random);
  tile_run(&all, &tile, oracle);
  for (s = 0; s < 5; ++s) {
    support_tile part = tile;
    part.call.slots = 1;
    part.call.q.data = (const char *)tile.call.q.data + s * tile.call.q.slot_stride * item;
    part.call.k.data = (const char *)tile.call.k.data + s * tile.call.k.slot_stride * item;
    part.call.v.data = (const char *)tile.call.v.data + s * tile.call.v.slot_stride * item;
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

/* The same slot alone, in another place of the call, and among other slots, in scratch memory that another slot has used: the
 * same bits. */
static void cpu_bits_do_not_depend_on_the_batch(void **state)
{
  int32_t isa;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
    cpu_bits_at(isa, NONE, TWH_F32);
    cpu_bits_at(isa, CAUSAL, TWH_BF16);
    cpu_bits_at(isa, TENSOR, TWH_F16);
  }
}

typedef struct cpu_thread {
  const support_tile *tile;
  const twh_oracle   *oracle;
  const tile_result  *want;
  int                 different;
} cpu_thread;

static void *cpu_thread_run(void *arg)
{
  cpu_thread *thread = (cpu_thread *)arg;
  tile_result got;
  int         n;
  for (n = 0; n < 40; ++n) {
    tile_run(&got, thread->tile, thread->oracle);
    thread->different |= memcmp(got.out, thread->want->out, (size_t)(got.rows * got.dim) * sizeof(double)) != 0;
    thread->different |= memcmp(got.lse, thread->want->lse, (size_t)got.rows * sizeof(double)) != 0;
    tile_result_destroy(&got);
  }
  return NULL;
}

/* One oracle, two threads, two inputs. */
static void cpu_runs_on_threads_at_once(void **state)
{
  support_random  random = support_random_at(11, 0);
  tile_shape      shape = { CAUSAL, 0, 0, 0, TILE_DECLARED, 2.0, 0.0 };
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  support_tile    tile[2];
  tile_result     want[2];
  cpu_thread      thread[2];
  pthread_t       handle[2];
  int             n;
  (void)state;
  cpu_desc(&desc, 2, 150, 150, 32, 33);
  desc.dtype = TWH_BF16;
  oracle = cpu_oracle(&desc, TWH_CPU_ISA_BEST);
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  assert_int_equal(desc.max_concurrent_batches, 64);
  for (n = 0; n < 2; ++n) {
    tile_create(&tile[n], oracle, &shape, &random);
    tile_run(&want[n], &tile[n], oracle);
    thread[n].tile = &tile[n];
    thread[n].oracle = oracle;
    thread[n].want = &want[n];
    thread[n].different = 0;
  }
  for (n = 0; n < 2; ++n) assert_int_equal(pthread_create(&handle[n], NULL, cpu_thread_run, &thread[n]), 0);
  for (n = 0; n < 2; ++n) assert_int_equal(pthread_join(handle[n], NULL), 0);
  for (n = 0; n < 2; ++n) {
    assert_int_equal(thread[n].different, 0);
    tile_result_destroy(&want[n]);
    tile_destroy(&tile[n]);
  }
  twh_oracle_destroy(oracle);
}

typedef struct cpu_guard {
  void  *mapping;
  size_t bytes;
} cpu_guard;

/* A copy of `from` (NULL: zeros) that ends where a page ends behind which nothing is mapped. */
static void *cpu_guard_copy(cpu_guard *guard, const void *from, int64_t bytes)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = ((size_t)bytes + page - 1) / page * page;
  char  *memory = (char *)mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  assert_int_equal(mprotect(memory + whole, page, PROT_NONE), 0);
  if (from) memcpy(memory + whole - (size_t)bytes, from, (size_t)bytes);
  guard->mapping = memory;
  guard->bytes = whole + page;
  return memory + whole - (size_t)bytes;
}

static void cpu_guarded(int32_t isa, const int64_t *size, uint32_t mode, int32_t dtype)
{
  support_random  random = support_random_at(12, (uint64_t)size[0]);
  tile_shape      shape = { mode, 0, 0, 0, TILE_DECLARED, 1.0, 0.3 };
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  support_tile    tile;
  tile_result     want;
  twh_call        call;
  const twh_call *calls = &call;
  cpu_guard       guard[6];
  int64_t         i, item = dtype == TWH_F32 ? 4 : 2, pairs = size[0] * size[1];
  cpu_desc(&desc, 1, size[0], size[1], size[2], size[3]);
  desc.dtype = dtype;
  desc.mask_dtype = dtype == TWH_BF16 ? TWH_BOOL : dtype;
  oracle = cpu_oracle(&desc, isa);
  tile_create(&tile, oracle, &shape, &random);
  tile_run(&want, &tile, oracle);
  twh_oracle_desc_init(&desc);
  assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
  call = tile.call;
  call.q.data = cpu_guard_copy(&guard[0], call.q.data, size[0] * size[2] * item);
  call.k.data = cpu_guard_copy(&guard[1], call.k.data, size[1] * size[2] * item);
  call.v.data = cpu_guard_copy(&guard[2], call.v.data, size[1] * size[3] * item);
  call.out = cpu_guard_copy(&guard[3], NULL, size[0] * size[3] * item);
  call.lse = (float *)cpu_guard_copy(&guard[4], NULL, size[0] * 4);
  call.mask.data = cpu_guard_copy(&guard[5], call.mask.data, pairs * (desc.mask_dtype == TWH_BOOL ? 1 : item));
  assert_int_equal(desc.run(desc.user, &calls, 1), 0);
  for (i = 0; i < want.rows * want.dim; ++i) assert_true(support_load(call.out, dtype, i) == want.out[i]);
  for (i = 0; i < want.rows; ++i) assert_true((double)call.lse[i] == want.lse[i]);
  for (i = 0; i < 6; ++i) munmap(guard[i].mapping, guard[i].bytes);
  tile_result_destroy(&want);
  tile_destroy(&tile);
  twh_oracle_destroy(oracle);
}

/* Operands and outputs end at an unmapped page, for shapes that leave remainders everywhere. */
static void cpu_reads_and_writes_nothing_beyond(void **state)
{
  static const int64_t shapes[][4] = {
    { 1, 1, 1, 1 },   { 5, 7, 3, 2 },  { 17, 33, 65, 65 }, { 70, 50, 63, 17 }, { 131, 129, 16, 9 },
    { 1, 33, 67, 2 }, { 4, 40, 5, 3 }, { 7, 70, 130, 1 },  { 13, 16, 2, 10 },  { 40, 31, 9, 1 },
    { 3, 300, 8, 6 }, { 49, 257, 24, 7 },
  };
  static const uint32_t modes[] = { NONE, CAUSAL, TENSOR };
  static const int32_t  dtypes[] = { TWH_F32, TWH_BF16, TWH_F16 };
  int32_t               isa;
  int64_t               n, m;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa))
    for (n = 0; n < SUPPORT_COUNT(shapes); ++n)
      for (m = 0; m < 9; ++m) cpu_guarded(isa, shapes[n], modes[m / 3], dtypes[m % 3]);
}

static void cpu_create_refuses_what_it_cannot_do(void **state)
{
  twh_oracle_desc desc;
  twh_cpu_options options;
  twh_oracle     *oracle;
  twh_error       error;
  int32_t         isa;
  (void)state;
  twh_error_init(&error);
#define REFUSED(change, status, word)                                                                                  \
  cpu_desc(&desc, 1, 4, 4, 4, 4);                                                                                      \
  twh_cpu_options_init(&options);                                                                                      \
  change;                                                                                                              \
  support_assert_status(twh_cpu_oracle_create(NULL, &desc, &options, &oracle, &error), status, &error, word);          \
  assert_null(oracle)
  REFUSED(desc.dtype = TWH_F64, TWH_E_UNSUPPORTED, "dtype");
  REFUSED(desc.out_dtype = TWH_BF16, TWH_E_UNSUPPORTED, "out_dtype");
  REFUSED(desc.mask_dtype = TWH_F64, TWH_E_UNSUPPORTED, "mask_dtype");
  REFUSED(desc.flags |= TWH_ORACLE_F16_SCORES, TWH_E_UNSUPPORTED, "F16_SCORES");
  REFUSED(desc.user = &desc, TWH_E_ARGUMENT, "user");
  REFUSED(desc.struct_size = 0, TWH_E_ARGUMENT, "desc->struct_size");
  REFUSED(desc.struct_size = 8, TWH_E_VERSION, "desc->struct_size");
  REFUSED(options.struct_size = 0, TWH_E_ARGUMENT, "options->struct_size");
  REFUSED(options.struct_size = 4, TWH_E_VERSION, "options->struct_size");
  REFUSED(options.flags = 1, TWH_E_VERSION, "options->flags");
  REFUSED(options.isa = -1, TWH_E_ARGUMENT, "options->isa");
  REFUSED(options.isa = TWH_CPU_ISA_NEON + 1, TWH_E_ARGUMENT, "options->isa");
  for (isa = TWH_CPU_ISA_PORTABLE; isa <= TWH_CPU_ISA_NEON; ++isa)
    if (!twh_cpu_isa_name(isa)) { REFUSED(options.isa = isa, TWH_E_UNSUPPORTED, "options->isa"); }
  /* what twh_oracle_create refuses */
  REFUSED(desc.slots = 0, TWH_E_ARGUMENT, "slots");
  REFUSED(desc.mask_modes = 0, TWH_E_ARGUMENT, "mask_modes");
  REFUSED(desc.flags |= 1u << 30, TWH_E_VERSION, "flags");
  REFUSED(desc.q_len = desc.k_len = 1; desc.qk_dim = (int64_t)1 << 59, TWH_E_OVERFLOW, "");
#undef REFUSED
  support_assert_status(twh_cpu_oracle_create(NULL, NULL, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "desc");
  support_assert_status(twh_cpu_oracle_create(NULL, &desc, NULL, NULL, &error), TWH_E_ARGUMENT, &error, "out");
}

/* Limits that are not given, and alignment: no more than the elements need. */
static void cpu_defaults_are_as_the_header_says(void **state)
{
  static const int64_t want[][5] = { /* data type, flags, tokens, then alignment and calls per batch */
    { TWH_F32, LSE, 4, 4, 16 }, { TWH_BF16, 0, 100, 2, 6 }, { TWH_F16, LSE, 256, 4, 1 }, { TWH_F32, LSE, 300, 4, 1 }
  };
  int64_t              n;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(want); ++n) {
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    cpu_desc(&desc, 1, want[n][2], want[n][2], 4, 4);
    desc.dtype = (int32_t)want[n][0];
    desc.flags = (uint32_t)want[n][1];
    oracle = cpu_oracle(&desc, TWH_CPU_ISA_BEST);
    twh_oracle_desc_init(&desc);
    assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
    assert_int_equal(desc.alignment, want[n][3]);
    assert_int_equal(desc.max_concurrent_batches, 64);
    assert_int_equal(desc.max_calls_per_batch, want[n][4]);
    twh_oracle_destroy(oracle);
  }
}

/* Scratch memory of 2^48 bytes cannot be had: the kernel says so with its code. */
static void cpu_returns_its_code_without_memory(void **state)
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
  cpu_desc(&desc, 1, 1, 1, (int64_t)1 << 40, 1);
  oracle = cpu_oracle(&desc, TWH_CPU_ISA_BEST);
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
    cmocka_unit_test(cpu_hidden_keys_may_hold_anything),
    cmocka_unit_test(cpu_nan_stays_in_its_row),
    cmocka_unit_test(cpu_extremes_are_finite_and_right),
    cmocka_unit_test(cpu_bits_do_not_depend_on_the_batch),
    cmocka_unit_test(cpu_runs_on_threads_at_once),
    cmocka_unit_test(cpu_reads_and_writes_nothing_beyond),
    cmocka_unit_test(cpu_create_refuses_what_it_cannot_do),
    cmocka_unit_test(cpu_defaults_are_as_the_header_says),
    cmocka_unit_test(cpu_returns_its_code_without_memory),
  };
  cpu_say_isas();
  return cmocka_run_group_tests_name("promises of the kernel on the CPU", tests, NULL, NULL);
}
