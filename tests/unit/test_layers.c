/* The functions of rows of twoheads-layers against their definitions in long double: every activation over the whole range
 * of f32, norms and rotary positions of every shape, stride, type of weights and magnitude, and what lies between the
 * rows. */
#include "support_layers.h"

enum { LAYERS_PIECE = 256 }; /* twoheads-layers converts weights in such pieces */

static const int32_t layers_dtypes[3] = { TWH_F32, TWH_F16, TWH_BF16 };

/* ---- activations ---- */

static float layers_float(uint32_t bits)
{
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void activations_are_right_to_a_rounding_over_all_of_f32(void **state)
{
  enum { COUNT = 1000 };
  static const int32_t  activations[4] = { TWH_GELU, TWH_GELU_TANH, TWH_SILU, TWH_RELU };
  const uint32_t        step = SUPPORT_SANITIZED ? 65521 : 8191; /* primes: all patterns of the low bits */
  float                 x[COUNT], y[COUNT];
  int64_t               i;
  int                   a;
  (void)state;
  for (a = 0; a < 4; ++a) {
    uint64_t bits = 0;
    double   worst = 0.0;
    while (bits <= UINT32_MAX) {
      int64_t n = 0;
      for (; n < COUNT && bits <= UINT32_MAX; bits += step) x[n++] = layers_float((uint32_t)bits);
      memcpy(y, x, sizeof y);
      twh_activate(activations[a], y, n);
      for (i = 0; i < n; ++i) {
        double want, error;
        if (isnan(x[i]) != isnan(y[i])) fail_msg("activation %d of %g is %g", a, (double)x[i], (double)y[i]);
        if (isnan(x[i])) continue;
        want = support_define_activation(activations[a], (double)x[i]);
        error = (double)y[i] == want ? 0.0 : fabs((double)y[i] - want) / support_ulp(want, TWH_F32);
        if (!(error <= worst)) worst = isnan(error) ? (double)INFINITY : error;
      }
    }
    support_assert_at_most(worst, 0.501, "ulps of an activation");
  }
}

static void activations_are_right_to_a_rounding_where_models_are(void **state)
{
  static const int32_t activations[3] = { TWH_GELU, TWH_GELU_TANH, TWH_SILU };
  static const double  sizes[] = { 0.01, 1.0, 6.0, 16.0, 120.0 };
  support_random       random = support_random_at(support_seed(1), 0);
  float                x, y;
  int64_t              i;
  int                  a, s;
  (void)state;
  for (a = 0; a < 3; ++a) {
    double worst = 0.0;
    for (s = 0; s < SUPPORT_COUNT(sizes); ++s) {
      for (i = 0; i < (SUPPORT_SANITIZED ? 3000 : 20000); ++i) {
        double want, error;
        x = y = (float)(sizes[s] * (2.0 * support_uniform(&random) - 1.0));
        twh_activate(activations[a], &y, 1);
        want = support_define_activation(activations[a], (double)x);
        error = fabs((double)y - want) / support_ulp(want, TWH_F32);
        if (!(error <= worst)) worst = isnan(error) ? (double)INFINITY : error;
      }
    }
    support_assert_at_most(worst, 0.501, "ulps of an activation");
  }
}

static void activations_of_what_is_no_ordinary_number(void **state)
{
  static const int32_t activations[4] = { TWH_GELU, TWH_GELU_TANH, TWH_SILU, TWH_RELU };
  int                  a;
  (void)state;
  for (a = 0; a < 4; ++a) {
    float x[] = { INFINITY, -INFINITY, NAN, 0.0f, -0.0f, FLT_MAX, -FLT_MAX, -200.0f, 1e20f, -1e20f, -20.5f, -700.5f, -1e5f };
    twh_activate(activations[a], x, SUPPORT_COUNT(x));
    assert_true(isinf(x[0]) && x[0] > 0.0f);
    assert_true(x[1] == 0.0f);
    assert_true(isnan(x[2]));
    assert_true(x[3] == 0.0f && x[4] == 0.0f);
    assert_true(x[5] == FLT_MAX && x[6] == 0.0f && x[7] == 0.0f && x[8] == 1e20f && x[9] == 0.0f);
    assert_true(x[11] == 0.0f && x[12] == 0.0f);
    support_assert_at_most(fabs((double)x[10]), 4e-8, "an activation of -20.5"); /* SiLU's is -2.6e-8 */
  }
}

/* Each length about the pieces in which values are worked on: none is left out, none is worked on twice or beyond the end. */
static void activations_work_on_each_value_once(void **state)
{
  static const int64_t lengths[] = { 0, 1, 2, 3, LAYERS_PIECE - 1, LAYERS_PIECE, LAYERS_PIECE + 1, 2 * LAYERS_PIECE + 5 };
  support_block        block;
  int64_t              i, l;
  (void)state;
  for (l = 0; l < SUPPORT_COUNT(lengths); ++l) {
    support_block_create(&block, 1, lengths[l] + 3, 0);
    for (i = 0; i < block.cols; ++i) block.at[i] = 1.0f;
    twh_activate(TWH_SILU, block.at, lengths[l]);
    for (i = 0; i < block.cols; ++i)
      assert_true(i < lengths[l] ? fabs((double)block.at[i] - 0.7310585786300049) < 1e-7 : block.at[i] == 1.0f);
    assert_true(support_block_gaps_untouched(&block));
    support_block_destroy(&block);
  }
}

/* ---- norms ---- */

/* One norm on one block, against the definition, row by row. */
static double layers_norm_error(const twh_norm *norm, support_block *block)
{
  double *want = support_block_read(block), error;
  int64_t r;
  for (r = 0; r < block->rows; ++r) support_define_norm(norm, want + r * block->cols, block->cols);
  support_assert_status(twh_norm_check(norm, block->cols, "norm", NULL), TWH_OK, NULL, NULL);
  twh_norm_apply(norm, block->at, block->rows, block->cols, block->stride);
  assert_true(support_block_gaps_untouched(block));
  error = support_block_error(block, want);
  free(want);
  return error;
}

static void norms_of_all_shapes_types_and_strides(void **state)
{
  static const int64_t dims[] = { 1, 2, 3, 5, 8, 64, LAYERS_PIECE - 1, LAYERS_PIECE, LAYERS_PIECE + 1, 1023 };
  static const int64_t rows[] = { 0, 1, 3, 32, 33, 70 };
  support_random       random = support_random_at(support_seed(2), 0);
  int64_t              d, n, made = 0;
  (void)state;
  for (d = 0; d < SUPPORT_COUNT(dims); ++d) {
    for (n = 0; n < SUPPORT_COUNT(rows); ++n, ++made) {
      const int32_t dtype = layers_dtypes[made % 3];
      const int     layer = made % 2 == 0, weighted = made % 5 != 4;
      support_block block;
      twh_norm      norm;
      twh_norm_init(&norm);
      norm.kind = layer ? TWH_NORM_LAYER : TWH_NORM_RMS;
      norm.epsilon = made % 7 == 0 ? 1e-2 : 1e-6;
      norm.weight_offset = made % 4 == 1 ? 1.0 : 0.0;
      if (weighted) norm.weight = support_weights(&random, 1, dims[d], dtype, made % 3, 1.0, 0.5);
      if (layer && made % 3 != 2) norm.bias = support_weights(&random, 1, dims[d], layers_dtypes[(made + 1) % 3], 0, 0.0, 0.5);
      support_block_create(&block, rows[n], dims[d], made % 4);
      support_block_fill(&block, &random, 0.5, 1.0);
      support_assert_at_most(layers_norm_error(&norm, &block), 6.1e-8, "error of a norm"); /* half an ulp of the largest */
      support_block_destroy(&block);
      support_weights_destroy(norm.weight);
      support_weights_destroy(norm.bias);
    }
  }
}

/* Sums of squares would overflow f32, or vanish in it; a large mean leaves no digits in a variance of one pass. */
static void norms_at_all_magnitudes(void **state)
{
  static const struct {
    double mean, deviation, epsilon;
  } cases[] = { { 0, 1e30, 1e-5 },    { 1e30, 1e29, 1e-5 }, { 0, 1e-30, 0 },   { 0, 1e-30, 1e-62 },  { 1e-38, 1e-39, 0 },
                { 1e4, 1.0, 1e-6 },   { 1e6, 1.0, 1e-6 },   { -3e7, 4, 1e-9 }, { 0, 1e-3, 1e-6 },    { 5.0, 0.0, 1e-5 },
                { 1.7e38, 1e37, 0.0 } };
  support_random random = support_random_at(support_seed(3), 0);
  int64_t        i, kind;
  (void)state;
  for (i = 0; i < SUPPORT_COUNT(cases); ++i) {
    for (kind = TWH_NORM_LAYER; kind <= TWH_NORM_RMS; ++kind) {
      support_block block;
      twh_norm      norm;
      char          what[80];
      twh_norm_init(&norm);
      norm.kind = (int32_t)kind;
      norm.epsilon = cases[i].epsilon;
      norm.weight = support_weights(&random, 1, 384, TWH_F32, 0, 1.0, 0.1);
      support_block_create(&block, 5, 384, 7);
      support_block_fill(&block, &random, cases[i].mean, cases[i].deviation);
      snprintf(what, sizeof what, "error of a norm of kind %d of %g +- %g", (int)kind, cases[i].mean, cases[i].deviation);
      support_assert_at_most(layers_norm_error(&norm, &block), 6.1e-8, what);
      support_block_destroy(&block);
      support_weights_destroy(norm.weight);
    }
  }
}

static void norm_of_zeros_is_the_bias_and_of_nan_is_nan(void **state)
{
  support_random random = support_random_at(support_seed(4), 0);
  twh_norm       norm;
  float          x[12];
  int64_t        c, epsilon;
  (void)state;
  for (epsilon = 0; epsilon < 2; ++epsilon) {
    twh_norm_init(&norm);
    norm.kind = TWH_NORM_LAYER;
    norm.epsilon = epsilon ? 1e-5 : 0.0;
    norm.bias = support_weights(&random, 1, 4, TWH_F32, 0, 0.0, 1.0);
    for (c = 0; c < 12; ++c) x[c] = c < 4 ? 0.0f : c < 8 ? 1.0f : (float)c;
    x[9] = NAN;
    twh_norm_apply(&norm, x, 3, 4, 4);
    for (c = 0; c < 8; ++c) assert_true((double)x[c] == support_matrix_at(norm.bias, 0, c % 4));
    for (c = 8; c < 12; ++c) assert_true(isnan(x[c])); /* and the rows before are not touched by it */
    support_weights_destroy(norm.bias);
  }
}

/* Weights pass through the norm of a row of ones, RMS 1: every number of the narrow types, subnormal ones too, exactly. */
static void every_number_of_the_narrow_types_is_read_exactly(void **state)
{
  enum { COUNT = 65536 };
  uint16_t  *bits = (uint16_t *)malloc(COUNT * sizeof *bits);
  float     *x = (float *)malloc(COUNT * sizeof *x);
  twh_matrix weight;
  twh_norm   norm;
  int64_t    i;
  int        d;
  (void)state;
  assert_non_null(bits);
  assert_non_null(x);
  for (i = 0; i < COUNT; ++i) bits[i] = (uint16_t)i;
  for (d = 1; d < 3; ++d) {
    twh_matrix_init(&weight);
    weight.dtype = layers_dtypes[d];
    weight.data = bits;
    weight.rows = 1;
    weight.cols = COUNT;
    twh_norm_init(&norm);
    norm.kind = TWH_NORM_RMS;
    norm.weight = &weight;
    for (i = 0; i < COUNT; ++i) x[i] = 1.0f;
    twh_norm_apply(&norm, x, 1, COUNT, COUNT);
    for (i = 0; i < COUNT; ++i) {
      double want = support_load(bits, weight.dtype, i);
      if (isnan(want) ? isnan(x[i]) : (double)x[i] == want) continue;
      fail_msg("dtype %d: 0x%04x is read as %.9g, not %.9g", weight.dtype, (unsigned)i, (double)x[i], want);
    }
  }
  free(bits);
  free(x);
}

/* ---- rotary positions ---- */

static void layers_try_rotary(const twh_rotary *rotary, int64_t head_dim, int64_t gap, double size, support_random *random)
{
  static const int64_t positions[] = { 0, 1, 2, 1000, 131071, 1 << 20, 77 };
  enum { ROWS = sizeof positions / sizeof positions[0], HEADS = 3 };
  const int64_t dims = rotary->dims ? rotary->dims : head_dim;
  support_block block;
  double       *want, *given, error;
  int64_t       r, c;
  char          what[120];
  support_block_create(&block, ROWS, HEADS * head_dim, gap);
  support_block_fill(&block, random, 0.0, size);
  want = support_block_read(&block);
  given = support_block_read(&block);
  for (r = 0; r < ROWS; ++r) support_define_rotary(rotary, want + r * block.cols, HEADS, head_dim, positions[r]);
  twh_rotary_apply(rotary, block.at, ROWS, HEADS, head_dim, block.stride, positions);
  error = support_block_error(&block, want);
  snprintf(what, sizeof what, "error of %lld of %lld dims, pairing %d, base %g, size %g", (long long)dims, (long long)head_dim,
           (int)rotary->pairing, rotary->base, size);
  support_assert_at_most(error, 6.1e-8, what);
  assert_true(support_block_gaps_untouched(&block));
  for (r = 0; r < ROWS; ++r) {
    for (c = 0; c < block.cols; ++c) {
      int kept = c % head_dim >= dims || positions[r] == 0;
      if (kept) assert_true((double)block.at[r * block.stride + c] == given[r * block.cols + c]);
    }
  }
  free(want);
  free(given);
  support_block_destroy(&block);
}

static void rotary_of_both_pairings_all_shapes_and_magnitudes(void **state)
{
  static const int64_t shapes[][2] = { { 2, 0 },  { 2, 2 },   { 6, 4 },     { 64, 0 },    { 80, 32 },
                                       { 128, 0 }, { 130, 0 }, { 258, 256 }, { 256, 130 }, { 7, 6 } }; /* head_dim, dims */
  static const double  bases[] = { 0.0, 10000.0, 5e5, 1.5 }, sizes[] = { 1.0, 1e30, 1e-30 };
  support_random       random = support_random_at(support_seed(5), 0);
  int64_t              i, number = 0;
  int32_t              pairing;
  (void)state;
  for (pairing = TWH_ROTARY_HALVES; pairing <= TWH_ROTARY_NEIGHBOURS; ++pairing) {
    for (i = 0; i < SUPPORT_COUNT(shapes); ++i, ++number) {
      twh_rotary rotary;
      twh_rotary_init(&rotary);
      rotary.pairing = pairing;
      rotary.dims = shapes[i][1];
      rotary.base = bases[number % 4];
      layers_try_rotary(&rotary, shapes[i][0], number % 3, sizes[number % 3], &random);
      layers_try_rotary(&rotary, shapes[i][0], 0, 1.0, &random);
    }
  }
}

static void rotary_with_frequencies_of_the_hosts(void **state)
{
  support_random random = support_random_at(support_seed(6), 0);
  double         frequencies[70];
  int64_t        i;
  int32_t        pairing;
  (void)state;
  for (i = 0; i < 70; ++i) frequencies[i] = support_normal(&random); /* negative ones too */
  for (pairing = TWH_ROTARY_HALVES; pairing <= TWH_ROTARY_NEIGHBOURS; ++pairing) {
    twh_rotary rotary;
    twh_rotary_init(&rotary);
    rotary.pairing = pairing;
    rotary.base = 3.0; /* not used */
    rotary.frequencies = frequencies;
    layers_try_rotary(&rotary, 140, 3, 1.0, &random);
    rotary.dims = 12;
    layers_try_rotary(&rotary, 20, 0, 1.0, &random);
  }
}

/* Without rows or heads there is nothing to do, and nothing is read. */
static void nothing_at_all_is_allowed(void **state)
{
  const int64_t position = 5;
  float         x = 3.0f;
  twh_rotary    rotary;
  twh_norm      norm;
  (void)state;
  twh_rotary_init(&rotary);
  rotary.pairing = TWH_ROTARY_HALVES;
  twh_norm_init(&norm);
  norm.kind = TWH_NORM_LAYER;
  twh_rotary_apply(&rotary, NULL, 0, 2, 64, 128, NULL);
  twh_rotary_apply(&rotary, &x, 1, 0, 64, 128, &position);
  twh_norm_apply(&norm, NULL, 0, 64, 64);
  twh_activate(TWH_GELU, NULL, 0);
  twh_activate(TWH_RELU, NULL, 0);
  assert_true(x == 3.0f);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(activations_are_right_to_a_rounding_over_all_of_f32),
    cmocka_unit_test(activations_are_right_to_a_rounding_where_models_are),
    cmocka_unit_test(activations_of_what_is_no_ordinary_number),
    cmocka_unit_test(activations_work_on_each_value_once),
    cmocka_unit_test(norms_of_all_shapes_types_and_strides),
    cmocka_unit_test(norms_at_all_magnitudes),
    cmocka_unit_test(norm_of_zeros_is_the_bias_and_of_nan_is_nan),
    cmocka_unit_test(every_number_of_the_narrow_types_is_read_exactly),
    cmocka_unit_test(rotary_of_both_pairings_all_shapes_and_magnitudes),
    cmocka_unit_test(rotary_with_frequencies_of_the_hosts),
    cmocka_unit_test(nothing_at_all_is_allowed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
