/* The pieces of the CPU kernel, with every instruction set that this one has: what happens to scores between the two products,
 * the conversions, and the way from transposed blocks back to rows. What a whole call would hide, because rows that come out
 * wrong are computed again, shows here. */
#include "support_cpu.h"

#include <float.h>

#include "cpu/isa.h"
#include "cpu/slot.h"

enum { WIDTH = TWH__CPU_WIDTH, KEYS = TWH__CPU_KEYS };

/* A block and a tile in memory of their own. */
typedef struct lanes_room {
  const twh__cpu_lanes *lanes;
  twh__cpu_tile         tile;
  float                *memory;
} lanes_room;

static void lanes_room_create(lanes_room *room, int32_t isa, int64_t keys)
{
  void   *memory;
  int64_t i, floats = (KEYS + TWH__CPU_SPARE_KEYS + 5) * WIDTH;
  memset(room, 0, sizeof *room);
  room->lanes = twh__cpu_isa_lanes(isa);
  assert_non_null(room->lanes);
  assert_int_equal(posix_memalign(&memory, 64, (size_t)floats * sizeof(float)), 0);
  room->memory = (float *)memory;
  for (i = 0; i < floats; ++i) room->memory[i] = 0.0f;
  room->tile.top = room->memory;
  room->tile.max = room->memory + WIDTH;
  room->tile.sum = room->memory + 2 * WIDTH;
  room->tile.decay = room->memory + 3 * WIDTH;
  room->tile.scores = room->memory + 5 * WIDTH;
  room->tile.vectors = TWH__CPU_VECTORS;
  for (i = 0; i < TWH__CPU_VECTORS; ++i) room->tile.seen[i] = keys;
  room->tile.limit = keys;
}

/* Weights are powers of two to 2^-22, exactly 1 for 0, exactly 0 below 2^-126, and NaN for NaN; their sum is right. */
static void lanes_weights_are_powers_of_two(void **state)
{
  static const float special[] = { 0.0f, -126.0f, -126.5f, -127.0f, -140.0f, -1e4f, -1e30f, -FLT_MAX, -INFINITY };
  int32_t            isa;
  int64_t            i, j, n;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
    support_random random = support_random_at(14, 0);
    lanes_room     room;
    double         sum[WIDTH] = { 0 };
    float          given[KEYS];
    lanes_room_create(&room, isa, 101);
    n = room.lanes->width;
    for (j = 0; j < 101; ++j) given[j] = j < SUPPORT_COUNT(special) ? special[j] : (float)(-130.0 * support_uniform(&random));
    for (i = 0; i < n; ++i) {
      for (j = 0; j < 101; ++j) room.tile.scores[j * n + i] = given[(j + i) % 101] + (float)i;
      room.tile.top[i] = (float)i;
      room.tile.max[i] = (float)i - 2.0f;
      room.tile.sum[i] = 8.0f;
    }
    room.tile.scores[7 * n + 3] = NAN;
    room.lanes->weights(&room.tile);
    for (i = 0; i < n; ++i) {
      for (j = 0; j < 101; ++j) {
        double t = (double)(given[(j + i) % 101] + (float)i) - (double)i, got = room.tile.scores[j * n + i];
        if (i == 3 && j == 7)
          assert_true(isnan(got));
        else if (t < -126.0)
          assert_true(got == 0.0);
        else if (t == 0.0)
          assert_true(got == 1.0);
        else
          support_assert_at_most(fabs(got / exp2(t) - 1.0), 1.0 / 4194304.0, twh_cpu_isa_name(isa));
        sum[i] += got;
      }
      assert_true(room.tile.max[i] == (float)i && room.tile.decay[i] == 0.25f);
      if (i == 3)
        assert_true(isnan(room.tile.sum[i]));
      else
        support_assert_at_most(fabs(room.tile.sum[i] - sum[i] - 2.0), 1e-5, twh_cpu_isa_name(isa));
    }
    free(room.memory);
  }
}

static double lanes_cap_given(int64_t i, int64_t j)
{
  return (float)((i % 2 ? 1 : -1) * exp((double)(j - 96) / 6.0) * (1 + 0.01 * (double)i));
}

/* cap tanh(x), given 2 x log2(e), to a few units of the cap, and of x where that is small; infinities give the cap. */
static void lanes_cap_is_a_tangent(void **state)
{
  int32_t isa;
  int64_t i, j, n;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
    lanes_room room;
    lanes_room_create(&room, isa, KEYS);
    n = room.lanes->width;
    room.tile.cap = 10.0f;
    for (j = 0; j < KEYS; ++j)
      for (i = 0; i < n; ++i) room.tile.scores[j * n + i] = (float)lanes_cap_given(i, j);
    room.tile.scores[0] = INFINITY;
    room.tile.scores[1] = -INFINITY;
    room.tile.scores[2] = NAN;
    room.lanes->cap(&room.tile);
    for (j = 0; j < KEYS; ++j)
      for (i = 0; i < n; ++i) {
        double x = lanes_cap_given(i, j) * 0.34657359027997265;
        double want = 10.0 * tanh(x);
        if (j == 0 && i < 3) continue;
        support_assert_at_most(fabs(room.tile.scores[j * n + i] - want), 5e-7 * fabs(want), twh_cpu_isa_name(isa));
      }
    assert_true(room.tile.scores[0] == 10.0f && room.tile.scores[1] == -10.0f && isnan(room.tile.scores[2]));
    free(room.memory);
  }
}

/* What a mask hides is -inf whatever it was; the rest is added; top is the largest of what is left. */
static void lanes_mask_at(int32_t isa, int32_t dtype, int64_t rows, int64_t keys)
{
  support_random random = support_random_at(15, (uint64_t)dtype);
  lanes_room     room;
  twh__cpu_rows  mask;
  float          before[KEYS * WIDTH];
  int64_t        i, j, n, stride = keys + 3;
  lanes_room_create(&room, isa, keys);
  n = room.lanes->width;
  rows = rows < n ? rows : n;
  room.tile.vectors = (rows - 1) / (n / TWH__CPU_VECTORS) + 1;
  mask.data = malloc((size_t)(rows * stride) * 4);
  assert_non_null(mask.data);
  mask.rows = rows;
  mask.dim = keys;
  mask.stride = stride;
  mask.dtype = dtype;
  for (i = 0; i < rows * stride; ++i) {
    int hidden = support_uniform(&random) < 0.4;
    if (dtype == TWH_BOOL)
      ((unsigned char *)mask.data)[i] = (unsigned char)(hidden ? 0 : 1 + i % 255);
    else
      support_store(mask.data, dtype, i, hidden ? -INFINITY : support_normal(&random));
  }
  for (i = 0; i < keys * n; ++i) before[i] = room.tile.scores[i] = i % 7 == 0 ? NAN : (float)support_normal(&random);
  for (i = 0; i < n; ++i) room.tile.top[i] = 1e30f;
  room.lanes->mask(&room.tile, &mask);
  for (i = 0; i < rows; ++i) {
    double top = -INFINITY;
    for (j = 0; j < keys; ++j) {
      double got = room.tile.scores[j * n + i], was = before[j * n + i], value = support_load(mask.data, dtype, i * stride + j);
      if (dtype == TWH_BOOL) value = value != 0.0 ? 0.0 : -INFINITY;
      if (value == -INFINITY)
        assert_true(got == -INFINITY);
      else if (isnan(was))
        assert_true(isnan(got));
      else
        support_assert_at_most(fabs(got - was - value * 1.44269504088896340736), 1e-6, "masked score");
      if (got > top) top = got;
    }
    assert_true(room.tile.top[i] == (float)top);
  }
  free(mask.data);
  free(room.memory);
}

static void lanes_mask_hides_and_adds(void **state)
{
  static const int32_t dtypes[] = { TWH_BOOL, TWH_F32, TWH_F16, TWH_BF16 };
  int32_t              isa;
  int64_t              n;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa))
    for (n = 0; n < 4; ++n) {
      lanes_mask_at(isa, dtypes[n], WIDTH, KEYS);
      lanes_mask_at(isa, dtypes[n], 5, 37);
      lanes_mask_at(isa, dtypes[n], 19, 1);
    }
}

/* All numbers of 16 bits as f32; and f32 as 16 bits, rounded as the core rounds, around every border there is. */
static void lanes_convert(const twh__cpu_lanes *lanes, int32_t dtype)
{
  enum { ALL = 65536, PROBES = 48000, DIM = 24 };
  uint16_t     *halves = (uint16_t *)malloc(ALL * sizeof *halves);
  float        *wide = (float *)malloc(ALL * sizeof *wide), *block = NULL;
  void         *memory;
  int64_t       i, c, n, width = lanes->width;
  twh__cpu_rows rows;
  float         sum[WIDTH], broken[WIDTH];
  assert_true(halves && wide);
  for (i = 0; i < ALL; ++i) halves[i] = (uint16_t)i;
  for (n = ALL - 3; n <= ALL; n += 3) lanes->widen(wide, halves, dtype, n);
  for (i = 0; i < ALL; ++i) {
    double want = support_load(halves, dtype, i);
    assert_true(isnan(want) ? isnan(wide[i]) : (double)wide[i] == want && !signbit(wide[i]) == !signbit(want));
  }
  assert_int_equal(posix_memalign(&memory, 64, DIM * WIDTH * sizeof(float) + 2 * WIDTH * sizeof(float)), 0);
  block = (float *)memory;
  rows.data = halves;
  rows.stride = rows.dim = DIM;
  rows.rows = width;
  rows.dtype = dtype;
  for (n = 0; n < PROBES; n += width * DIM) {
    float *probes = wide; /* next to and half way between neighbours */
    for (i = 0; i < width; ++i)
      for (c = 0; c < DIM; ++c) {
        uint32_t bits = (uint32_t)(((n + i * DIM + c) * 2654435761u) >> 3);
        float    x;
        if (dtype == TWH_F16)
          bits = (bits & 0x8fffe000u) + 0x33000000u + ((bits & 3u) == 0 ? 0x1000u : (bits & 1u) ? 0x0fffu : 0x1001u);
        else
          bits = (bits & 0xffff0000u) + ((bits & 3u) == 0 ? 0x8000u : (bits & 1u) ? 0x7fffu : 0x8001u);
        memcpy(&x, &bits, sizeof x);
        block[c * width + i] = probes[i * DIM + c] = x;
      }
    for (i = 0; i < WIDTH; ++i) sum[i] = 1.0f;
    memcpy(block + DIM * WIDTH, sum, sizeof sum);
    lanes->store(&rows, block, block + DIM * WIDTH, block + DIM * WIDTH + WIDTH);
    memcpy(broken, block + DIM * WIDTH + WIDTH, sizeof broken);
    for (i = 0; i < width; ++i) {
      int finite = 1;
      for (c = 0; c < DIM; ++c) {
        double got = support_load(halves, dtype, i * DIM + c), want = support_round(probes[i * DIM + c], dtype);
        assert_true(isnan(want) ? isnan(got) : got == want);
        finite &= isfinite(probes[i * DIM + c]) != 0;
      }
      assert_int_equal(finite, broken[i] == 0.0f);
    }
  }
  free(memory);
  free(wide);
  free(halves);
}

static void lanes_round_to_nearest_even(void **state)
{
  int32_t isa;
  (void)state;
  for (isa = cpu_first_isa(); isa; isa = cpu_next_isa(isa)) {
    lanes_convert(twh__cpu_isa_lanes(isa), TWH_F16);
    lanes_convert(twh__cpu_isa_lanes(isa), TWH_BF16);
  }
}

/* 512 queries of up to 128 coordinates go through the keys once. */
static void lanes_walks_are_few(void **state)
{
  static const int64_t want[][5] = {
    /* queries, coordinates of keys and values, width, most blocks in memory */
    { 512, 64, 64, 48, 11 },  { 512, 64, 64, 24, 22 },      { 512, 128, 128, 48, 11 }, { 512, 64, 65, 48, 11 },
    { 512, 256, 256, 48, 6 }, { 100, 64, 64, 48, 3 },       { 4096, 64, 64, 48, 12 },  { 4096, 8, 8, 48, 12 },
    { 4096, 8, 8, 12, 48 },   { 4096, 1 << 20, 64, 48, 1 },
  };
  int64_t n;
  (void)state;
  for (n = 0; n < SUPPORT_COUNT(want); ++n) {
    twh_oracle_desc desc;
    cpu_desc(&desc, 1, want[n][0], 100, want[n][1], want[n][2]);
    assert_int_equal(twh__cpu_blocks(&desc, want[n][3]), want[n][4]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(lanes_weights_are_powers_of_two),
    cmocka_unit_test(lanes_cap_is_a_tangent),
    cmocka_unit_test(lanes_mask_hides_and_adds),
    cmocka_unit_test(lanes_round_to_nearest_even),
    cmocka_unit_test(lanes_walks_are_few),
  };
  cpu_say_isas();
  return cmocka_run_group_tests_name("pieces of the kernel on the CPU", tests, NULL, NULL);
}
