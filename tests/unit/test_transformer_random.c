/* Random transformers on short kernels: as close to float64 as twice the error of the direct evaluation in f32.
 *
 * The direct evaluation is the definition with every tensor rounded to f32 and nothing else: plain loops, one softmax for each row.
 * So only what the library adds can make its error larger. Errors are the largest difference over the largest result. An error of
 * the direct evaluation is the largest of a few, whose tensors are stored in other units: a single one may be lucky. */
#include "support_transformer.h"

enum { RANDOM_CASES = SUPPORT_SANITIZED ? 24 : 126, RANDOM_KERNELS = 3, RANDOM_UNITS = 6, RANDOM_MOST = 2 };

/* A small case is lucky where its own roundings cancel: one unit of f32 on top. */
#define RANDOM_FLOOR ((double)FLT_EPSILON)

typedef struct random_case {
  support_transformer t;
  double             *truth, *got;
  double              direct; /* error of the direct evaluation */
} random_case;

static double *random_rows(const support_transformer *t)
{
  double *rows = (double *)calloc((size_t)(t->rows * t->desc.model_dim + 1), sizeof(double));
  assert_non_null(rows);
  return rows;
}

static void random_begin(random_case *c, uint64_t number, void (*change)(support_transformer *t))
{
  int i;
  support_transformer_choose(&c->t, support_seed(1), number);
  if (change) change(&c->t);
  support_transformer_build(&c->t);
  c->truth = random_rows(&c->t);
  c->got = random_rows(&c->t);
  support_transformer_truth(&c->t, 0.0, c->truth);
  c->direct = 0.0;
  for (i = 0; i < RANDOM_UNITS; ++i) {
    double error;
    support_transformer_truth(&c->t, pow(2.0, (double)i / RANDOM_UNITS), c->got);
    error = support_transformer_error(&c->t, c->truth, c->got);
    if (!(error <= c->direct)) c->direct = error;
  }
  support_assert_at_most(c->direct, 0.01, c->t.text); /* both are the same function */
}

static void random_end(random_case *c)
{
  free(c->truth);
  free(c->got);
  support_transformer_destroy(&c->t);
}

/* ---- kernels ---- */

static void random_kernel(const support_transformer *t, support_random *random, twh_oracle_desc *desc)
{
  static const int64_t  lengths[] = { 8, 16, 24 };
  static const uint32_t modes[] = { TWH_MASK_NONE,
                                    TWH_MASK_NONE,
                                    TWH_MASK_CAUSAL,
                                    TWH_MASK_CAUSAL,
                                    TWH_MASK_TENSOR,
                                    TWH_MASK_NONE | TWH_MASK_CAUSAL,
                                    TWH_MASK_NONE | TWH_MASK_TENSOR };
  const twh_layer_desc *d = &t->layers[support_below(random, t->desc.n_layers)].desc;
  support_long_kernel(t, desc); /* dims and softcap */
  desc->flags = support_one_in(random, 2) ? TWH_ORACLE_LSE : 0;
  if (support_one_in(random, 3)) desc->flags |= TWH_ORACLE_SCALE_PER_CALL;
  if (support_one_in(random, 3)) desc->flags |= TWH_ORACLE_STRIDED;
  if (support_one_in(random, 4)) desc->flags |= TWH_ORACLE_FEWER_ROWS;
  if (support_one_in(random, 4)) desc->flags |= TWH_ORACLE_FEWER_KEYS;
  if (support_one_in(random, 4)) desc->flags |= TWH_ORACLE_FEWER_SLOTS;
  desc->k_len = lengths[support_below(random, 3)];
  desc->q_len = support_one_in(random, 6) ? support_between(random, 1, 24) : desc->k_len;
  desc->slots = support_between(random, 1, 4);
  desc->mask_modes = modes[support_below(random, SUPPORT_COUNT(modes))];
  desc->qk_dim += support_one_in(random, 2) ? 0 : support_below(random, 10);
  desc->v_dim += support_below(random, 3);
  if (support_one_in(random, 6)) desc->v_dim = support_between(random, 1, desc->v_dim);
  desc->scale = support_one_in(random, 4) ? 0.7 : d->flags & TWH_LAYER_SCALE ? d->scale : 1.0 / sqrt((double)d->qk_dim);
  if (support_one_in(random, 3)) desc->max_calls_per_batch = support_between(random, 1, 5);
}

/* The first layer that none of the kernels can do, or n_layers. */
static int64_t random_refused(const support_transformer *t, const twh_oracle_desc *descs, int64_t n)
{
  int64_t l, i;
  for (l = 0; l < t->desc.n_layers; ++l) {
    twh_problem problem;
    support_layer_problem(&t->layers[l], &problem);
    for (i = 0; i < n && !support_must_run(&problem, &descs[i]); ++i) continue;
    if (i == n) break;
  }
  return l;
}

/* Run on kernels, whatever they are, and compare. refused: the layer that must be refused, or n_layers. */
static void random_expect(random_case *c, const char *name, twh_oracle *const *oracles, int64_t n, int64_t block_rows,
                          int64_t refused)
{
  char        text[3000], layer[40];
  support_way way;
  twh_error   error;
  twh_status  status;
  twh_error_init(&error);
  memset(&way, 0, sizeof way);
  way.oracles = oracles;
  way.n_oracles = n;
  way.block_rows = block_rows;
  status = support_transformer_run(&c->t, &way, c->got, NULL, NULL, &error);
  if (refused < c->t.desc.n_layers) {
    snprintf(layer, sizeof layer, "layer %lld: ", (long long)refused);
    support_assert_status(status, TWH_E_UNSUPPORTED, &error, layer);
    return;
  }
  snprintf(text, sizeof text, "%s; on %s, direct %.3g", c->t.text, name, c->direct);
  if (status < 0) print_error("%s\n", text);
  support_assert_status(status, TWH_OK, &error, NULL);
  support_assert_at_most(support_transformer_error(&c->t, c->truth, c->got), 2.0 * c->direct + RANDOM_FLOOR, text);
}

static void random_run(random_case *c, const twh_oracle_desc *descs, int64_t n, int64_t block_rows)
{
  char           name[500];
  support_oracle oracles[RANDOM_MOST];
  twh_oracle    *pointers[RANDOM_MOST];
  int64_t        i;
  int            at = 0;
  for (i = 0; i < n; ++i) {
    support_oracle_create(&oracles[i], NULL, &descs[i], NULL);
    pointers[i] = oracles[i].oracle;
    at += snprintf(name + at, sizeof name - (size_t)at, "[slots %lld %lldx%lld dims %lld,%lld modes %u flags 0x%x scale %g]",
                   (long long)descs[i].slots, (long long)descs[i].q_len, (long long)descs[i].k_len, (long long)descs[i].qk_dim,
                   (long long)descs[i].v_dim, descs[i].mask_modes, descs[i].flags, descs[i].scale);
  }
  random_expect(c, name, pointers, n, block_rows, random_refused(&c->t, descs, n));
  for (i = 0; i < n; ++i) {
    if (oracles[i].broken[0]) print_error("%s; on %s: %s\n", c->t.text, name, oracles[i].broken);
    assert_int_equal(oracles[i].broken[0], 0);
    support_oracle_destroy(&oracles[i]);
  }
}

static void random_on_kernels(random_case *c, support_random *random)
{
  twh_oracle_desc descs[RANDOM_MOST];
  int             i;
  support_long_kernel(&c->t, &descs[0]);
  random_run(c, descs, 1, 0);
  for (i = 0; i < RANDOM_KERNELS; ++i) {
    int64_t j, n = support_one_in(random, 4) ? RANDOM_MOST : 1;
    for (j = 0; j < n; ++j) random_kernel(&c->t, random, &descs[j]);
    random_run(c, descs, n, support_one_in(random, 2) ? 0 : support_between(random, 1, 20));
  }
}

/* ---- small transformers ---- */

/* Fewer and smaller heads, for a small transformer computes with all of its columns in each head, and no cap, which it lacks. */
static void random_shrink(support_transformer *t)
{
  int64_t i;
  for (i = 0; i < t->desc.n_layers; ++i) {
    twh_layer_desc *d = &t->layers[i].desc;
    d->softcap = 0.0;
    d->qk_dim = (d->qk_dim + 1) / 2;
    d->v_dim = (d->v_dim + 1) / 2;
  }
  for (i = 0; i < t->desc.batch; ++i) t->lengths[i] = (t->lengths[i] + 1) / 2;
}

static void random_on_small_transformers(random_case *c, support_random *random)
{
  static const uint32_t       modes[] = { TWH_MASK_NONE, TWH_MASK_CAUSAL, TWH_MASK_NONE | TWH_MASK_CAUSAL };
  twh_transformer_oracle_desc small;
  twh_oracle_desc             desc;
  twh_oracle                 *oracle = NULL;
  twh_error                   error;
  char                        name[300];
  int                         i;
  for (i = 0; i < 2; ++i) {
    random_kernel(&c->t, random, &desc);
    twh_transformer_oracle_desc_init(&small);
    small.layers = support_between(random, 1, 3);
    small.heads = support_between(random, 1, 4);
    small.length = desc.k_len;
    small.qk_dim = desc.qk_dim;
    small.v_dim = desc.v_dim;
    small.model_dim = small.layers * small.heads * 2 * (small.qk_dim + small.v_dim) + support_below(random, 4);
    small.dtype = TWH_F32;
    small.mask_modes = modes[support_below(random, 3)];
    small.scale = desc.scale;
    small.max_calls_per_batch = desc.max_calls_per_batch;
    snprintf(name, sizeof name, "a transformer of %lld layers, %lld heads, length %lld, dims %lld,%lld modes %u scale %g",
             (long long)small.layers, (long long)small.heads, (long long)small.length, (long long)small.qk_dim,
             (long long)small.v_dim, small.mask_modes, small.scale);
    twh_error_init(&error);
    support_assert_status(twh_reference_transformer_create(NULL, &small, &oracle, &error), TWH_OK, &error, NULL);
    twh_oracle_desc_init(&desc);
    assert_int_equal(twh_oracle_get_desc(oracle, &desc, NULL), TWH_OK);
    assert_int_equal(desc.slots, small.layers * small.heads);
    random_expect(c, name, &oracle, 1, 0, random_refused(&c->t, &desc, 1));
    twh_oracle_destroy(oracle);
  }
}

/* TWH_CASE runs one case alone. */
static void random_cases(void (*one)(random_case *c, support_random *random), void (*change)(support_transformer *t),
                         uint64_t cases)
{
  const char *only = getenv("TWH_CASE");
  uint64_t    number, first = only ? strtoull(only, NULL, 0) : 0, last = only ? first + 1 : cases;
  for (number = first; number < last; ++number) {
    support_random random = support_random_at(support_seed(1) + 2, number);
    random_case    c;
    random_begin(&c, number, change);
    one(&c, &random);
    random_end(&c);
  }
}

static void on_short_kernels_the_error_is_at_most_twice_the_direct_one(void **state)
{
  (void)state;
  random_cases(random_on_kernels, NULL, RANDOM_CASES);
}

static void on_small_transformers_the_error_is_at_most_twice_the_direct_one(void **state)
{
  (void)state;
  random_cases(random_on_small_transformers, random_shrink, RANDOM_CASES / 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(on_short_kernels_the_error_is_at_most_twice_the_direct_one),
    cmocka_unit_test(on_small_transformers_the_error_is_at_most_twice_the_direct_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
