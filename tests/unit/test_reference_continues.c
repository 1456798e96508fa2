/* Calls of the reference kernel that continue others: chains of them against the contract's formula over all of their keys,
 * single ones on any state that may stand in memory. And the strict kernel of the tests: it lets nothing else pass. */
#include "support_tile.h"

enum { NONE = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL, TENSOR = TWH_MASK_TENSOR };

static twh_oracle *continues_oracle(twh_oracle_desc *desc)
{
  twh_oracle *oracle;
  twh_error   error;
  twh_error_init(&error);
  if (twh_reference_oracle_create(NULL, desc, NULL, &oracle, &error) < 0) fail_msg("%s", error.message);
  assert_int_equal(twh_oracle_get_desc(oracle, desc, NULL), TWH_OK);
  return oracle;
}

static void continues_desc(twh_oracle_desc *desc, int64_t slots, int64_t q_len, int64_t k_len, int64_t qk_dim, int64_t v_dim)
{
  twh_oracle_desc_init(desc);
  desc->slots = slots;
  desc->q_len = q_len;
  desc->k_len = k_len;
  desc->qk_dim = qk_dim;
  desc->v_dim = v_dim;
  desc->dtype = TWH_F32;
  desc->mask_modes = NONE | CAUSAL | TENSOR;
  desc->scale = 0.25;
}

typedef struct continues_chain {
  const char *name;
  int32_t     dtype, mask_dtype;
  uint32_t    flags, mask_mode; /* CAUSAL: of the first call; the others show all keys */
  int64_t     causal_offset, parts;
  double      logit_std, hidden;
} continues_chain;

enum { GOES_ON = TWH_ORACLE_LSE | TWH_ORACLE_CONTINUES, CHAIN_SLOTS = 2, CHAIN_ROWS = 13, CHAIN_KEYS = 60, CHAIN_DIM = 5 };

static const continues_chain continues_chains[] = {
  { "two calls", TWH_F32, 0, GOES_ON, NONE, 0, 2, 3, 0 },
  { "five calls, base 2", TWH_BF16, 0, GOES_ON | TWH_ORACLE_LSE_BASE2, NONE, 0, 5, 3, 0 },
  { "causal first", TWH_F32, 0, GOES_ON, CAUSAL, 0, 3, 3, 0 },
  { "causal first, empty rows", TWH_F16, 0, GOES_ON, CAUSAL, -4, 3, 3, 0 },
  { "causal first, empty +inf", TWH_F32, 0, GOES_ON | TWH_ORACLE_EMPTY_LSE_POS_INF, CAUSAL, -4, 3, 3, 0 },
  { "mask", TWH_F32, TWH_F32, GOES_ON, TENSOR, 0, 4, 3, 0.9 },
  { "mask, base 2, empty +inf", TWH_F32, TWH_BOOL, GOES_ON | TWH_ORACLE_LSE_BASE2 | TWH_ORACLE_EMPTY_LSE_POS_INF, TENSOR, 0, 6,
    3, 0.9 },
  { "mask, empty rows", TWH_F16, TWH_BOOL, GOES_ON, TENSOR, 0, 3, 3, 1.0 },
  { "huge", TWH_F32, 0, GOES_ON, NONE, 0, 3, 2000, 0 },
};

static void *continues_at(const void *data, int64_t elements, int32_t dtype)
{
  return (char *)(uintptr_t)data + elements * support_bytes(dtype);
}

/* Rows first, first + step, ... of a call, and keys from .. to of it. */
static twh_call continues_part(const support_tile *tile, int64_t first, int64_t rows, int64_t step, int64_t from, int64_t to)
{
  const twh_oracle_desc *d = &tile->desc;
  twh_call               call = tile->call;
  call.flags = from > 0 ? TWH_CALL_CONTINUES : 0;
  call.lse_row_stride = from > 0 ? step : 77; /* not looked at */
  call.q_len = rows;
  call.k_len = to - from;
  call.q.data = continues_at(call.q.data, first * call.q.row_stride, d->dtype);
  call.k.data = continues_at(call.k.data, from * call.k.row_stride, d->dtype);
  call.v.data = continues_at(call.v.data, from * call.v.row_stride, d->dtype);
  if (call.mask.data) call.mask.data = continues_at(call.mask.data, first * call.mask.row_stride + from, d->mask_dtype);
  call.out = continues_at(call.out, first * call.out_row_stride, d->out_dtype);
  call.lse += first;
  call.q.row_stride *= step;
  call.mask.row_stride *= step;
  call.out_row_stride *= step;
  return call;
}

/* The first part for all rows, the others for the last rows forwards and for the first ones backwards. */
static void continues_run_chain(const support_tile *tile, const twh_oracle_desc *desc, const continues_chain *made)
{
  int64_t length = CHAIN_KEYS / made->parts, split = 4;
  for (int64_t part = 0; part < made->parts; ++part) {
    twh_call        calls[2];
    const twh_call *pointers[2] = { &calls[0], &calls[1] };
    calls[0] = continues_part(tile, 0, CHAIN_ROWS, 1, 0, length);
    if (part > 0) calls[0] = continues_part(tile, split, CHAIN_ROWS - split, 1, part * length, (part + 1) * length);
    calls[1] = continues_part(tile, split - 1, split, -1, part * length, (part + 1) * length);
    if (made->mask_mode == CAUSAL) calls[0].mask_mode = calls[1].mask_mode = part == 0 ? CAUSAL : NONE;
    assert_int_equal(desc->run(desc->user, pointers, part == 0 ? 1 : 2), 0);
  }
}

/* The truth knows one mask: what the first call hides by itself is hidden there by hand. */
static void continues_hide_causal(support_tile *tile, const continues_chain *made)
{
  for (int64_t s = 0; s < CHAIN_SLOTS; ++s)
    for (int64_t i = 0; i < CHAIN_ROWS; ++i)
      for (int64_t j = 0; j < CHAIN_KEYS; ++j)
        ((unsigned char *)(uintptr_t)tile->call.mask.data)[(s * CHAIN_ROWS + i) * CHAIN_KEYS + j] =
          j >= CHAIN_KEYS / made->parts || j <= i + made->causal_offset;
}

static void continues_compare_chain(const continues_chain *made, const double *out, const float *lse, const tile_result *want)
{
  double largest = 1, bound;
  for (int64_t r = 0; r < want->rows; ++r)
    if (fabs(want->lse[r]) < INFINITY) largest = fmax(largest, fabs(want->lse[r]));
  bound = 2 * (double)made->parts * support_ulp(largest, TWH_F32); /* of the lse in f32, and what it moves */
  for (int64_t r = 0; r < want->rows; ++r) {
    if (fabs(want->lse[r]) < INFINITY ? !(fabs((double)lse[r] - want->lse[r]) <= bound) : (double)lse[r] != want->lse[r])
      fail_msg("%s: lse of row %d is %.9g, not %.9g", made->name, (int)r, (double)lse[r], want->lse[r]);
    for (int64_t c = 0; c < want->dim; ++c)
      if (!(fabs(out[r * want->dim + c] - want->out[r * want->dim + c]) <= 4 * bound))
        fail_msg("%s: row %d is %.9g, not %.9g", made->name, (int)r, out[r * want->dim + c], want->out[r * want->dim + c]);
  }
}

static void continues_a_chain_of_calls(void **state)
{
  (void)state;
  for (int64_t n = 0; n < SUPPORT_COUNT(continues_chains); ++n) {
    const continues_chain *made = &continues_chains[n];
    support_random         random = support_random_at(4, (uint64_t)n);
    tile_shape             shape = { made->mask_mode, 0, 0, 0, TILE_DECLARED, made->logit_std, made->hidden };
    double                 out[CHAIN_SLOTS * CHAIN_ROWS * CHAIN_DIM];
    float                  lse[CHAIN_SLOTS * CHAIN_ROWS];
    twh_oracle_desc        desc;
    twh_oracle            *oracle;
    support_tile           tile;
    tile_result            want;
    continues_desc(&desc, CHAIN_SLOTS, CHAIN_ROWS, CHAIN_KEYS, 7, CHAIN_DIM);
    desc.dtype = made->dtype;
    desc.out_dtype = TWH_F64;
    desc.mask_dtype = made->mask_mode == CAUSAL ? TWH_BOOL : made->mask_dtype;
    desc.flags = made->flags;
    desc.causal_offset = made->causal_offset;
    oracle = continues_oracle(&desc);
    if (made->mask_mode == CAUSAL) shape.mask_mode = TENSOR;
    tile_create(&tile, oracle, &shape, &random);
    if (made->mask_mode == CAUSAL) continues_hide_causal(&tile, made);
    tile_truth(&want, &tile);
    memset(out, SUPPORT_POISON, sizeof out);
    memset(lse, SUPPORT_POISON, sizeof lse);
    tile.call.out = out;
    tile.call.lse = lse;
    continues_run_chain(&tile, &desc, made);
    continues_compare_chain(made, out, lse, &want);
    tile_result_destroy(&want);
    tile_destroy(&tile);
    twh_oracle_destroy(oracle);
  }
}

/* One row, one key of score 0 and value 3: before it, nothing, a NaN, weights that are everything or nothing. */
static void continues_from_any_state(void **state)
{
  static const struct {
    uint32_t flags;
    float    lse, out, want_lse, want_out;
  } rows[] = {
    { GOES_ON, -INFINITY, NAN, 0, 3 },
    { GOES_ON | TWH_ORACLE_EMPTY_LSE_POS_INF, INFINITY, NAN, 0, 3 },
    { GOES_ON, 0, 5, 0.693147182f, 4 },
    { GOES_ON | TWH_ORACLE_LSE_BASE2, 0, 5, 1, 4 },
    { GOES_ON, 3e38f, 5, 3e38f, 5 },
    { GOES_ON, -3e38f, 5, 0, 3 },
    { GOES_ON, 0, 3e38f, 0.693147182f, 1.5e38f },
    { GOES_ON, -3e38f, INFINITY, 0, 3 },
    { GOES_ON, NAN, 5, NAN, NAN },
    { GOES_ON, 0, NAN, 0.693147182f, NAN },
    { GOES_ON, 0, INFINITY, 0.693147182f, INFINITY },
  };
  (void)state;
  for (int64_t n = 0; n < SUPPORT_COUNT(rows); ++n) {
    float           zero = 0, three = 3, out = rows[n].out, lse = rows[n].lse;
    unsigned char   hidden = 0;
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    twh_call        call;
    const twh_call *calls = &call;
    continues_desc(&desc, 1, 1, 1, 1, 1);
    desc.flags = rows[n].flags;
    desc.mask_dtype = TWH_BOOL;
    oracle = continues_oracle(&desc);
    twh_call_init(&call);
    call.mask_mode = TENSOR; /* a call that shows nothing changes nothing */
    call.flags = TWH_CALL_CONTINUES;
    call.slots = call.q_len = call.k_len = call.lse_row_stride = 1;
    call.q.data = call.k.data = &zero;
    call.v.data = &three;
    call.mask.data = &hidden;
    call.out = &out;
    call.lse = &lse;
    assert_int_equal(desc.run(desc.user, &calls, 1), 0);
    assert_memory_equal(&out, &rows[n].out, sizeof out);
    assert_memory_equal(&lse, &rows[n].lse, sizeof lse);
    call.mask_mode = NONE;
    assert_int_equal(desc.run(desc.user, &calls, 1), 0);
    if (isnan(rows[n].want_out) ? !isnan(out) : out != rows[n].want_out) fail_msg("%d: out is %g", (int)n, (double)out);
    if (isnan(rows[n].want_lse) ? !isnan(lse) : lse != rows[n].want_lse) fail_msg("%d: lse is %g", (int)n, (double)lse);
    twh_oracle_destroy(oracle);
  }
}

/* ---- the strict kernel of the tests ---- */

enum { STRICT_ROWS = 4, STRICT_DIM = 2 };

typedef struct strict_calls {
  twh_call first, next; /* next: rows 0 .. 2 of the first one */
  float    q[2][STRICT_ROWS * STRICT_DIM], out[2][STRICT_ROWS * STRICT_DIM], lse[2][STRICT_ROWS];
} strict_calls;

static void strict_right(strict_calls *c)
{
  (void)c;
}
static void strict_last_rows(strict_calls *c)
{
  c->next.out = c->out[0] + STRICT_DIM, ++c->next.lse, c->next.q.data = c->q[0] + STRICT_DIM;
}
static void strict_backwards(strict_calls *c)
{
  c->next.out = c->out[0] + 2 * STRICT_DIM;
  c->next.lse += 2;
  c->next.q.data = c->q[0] + 2 * STRICT_DIM;
  c->next.q.row_stride = c->next.out_row_stride = -STRICT_DIM;
  c->next.lse_row_stride = -1;
}
static void strict_alone(strict_calls *c)
{
  c->first.flags = TWH_CALL_CONTINUES;
}
static void strict_flags(strict_calls *c)
{
  c->next.flags |= 2;
}
static void strict_other_query(strict_calls *c)
{
  c->next.q.data = c->q[1];
}
static void strict_other_out(strict_calls *c)
{
  c->next.out = c->out[1];
}
static void strict_other_lse(strict_calls *c)
{
  c->next.lse = c->lse[1];
}
static void strict_other_row(strict_calls *c)
{
  c->next.out = c->out[0] + STRICT_DIM;
}
static void strict_between_rows(strict_calls *c)
{
  c->next.out = c->out[0] + 1;
}
static void strict_behind(strict_calls *c)
{
  c->next.out = c->out[0] + 2 * STRICT_DIM, c->next.lse += 2;
}
static void strict_no_row_stride(strict_calls *c)
{
  c->next.lse_row_stride = 0;
}
static void strict_half_backwards(strict_calls *c)
{
  strict_backwards(c), c->next.lse_row_stride = 1;
}
static void strict_first_backwards(strict_calls *c)
{
  c->first.lse_row_stride = -1;
}

static const struct {
  const char *name;
  void (*spoil)(strict_calls *calls);
  uint32_t    without; /* flags that are not declared */
  const char *broken;  /* NULL: nothing is */
} strict_cases[] = {
  { "right", strict_right, 0, NULL },
  { "last rows", strict_last_rows, 0, NULL },
  { "backwards", strict_backwards, 0, NULL },
  { "not declared", strict_right, TWH_ORACLE_CONTINUES, "flags without" },
  { "backwards not declared", strict_backwards, TWH_ORACLE_BACKWARDS, "" },
  { "nothing before it", strict_alone, 0, "continues none" },
  { "other flags", strict_flags, 0, "flags" },
  { "other queries", strict_other_query, 0, "query" },
  { "other results", strict_other_out, 0, "a row" },
  { "other lse", strict_other_lse, 0, "a row" },
  { "out of another row", strict_other_row, 0, "a row" },
  { "between rows", strict_between_rows, 0, "a row" },
  { "rows behind", strict_behind, 0, "a row" },
  { "no row stride", strict_no_row_stride, 0, "lse_row_stride" },
  { "half backwards", strict_half_backwards, 0, "" },
  { "first call backwards", strict_first_backwards, 0, "lse_row_stride" },
};

static void strict_make(strict_calls *made)
{
  twh_call *call = &made->first;
  memset(made, 0, sizeof *made);
  for (int64_t i = 0; i < STRICT_ROWS * STRICT_DIM; ++i) made->q[0][i] = (float)(i / STRICT_DIM); /* rows differ */
  twh_call_init(call);
  call->mask_mode = NONE;
  call->slots = call->k_len = call->lse_row_stride = 1;
  call->q_len = STRICT_ROWS;
  call->q.data = call->k.data = call->v.data = made->q[0];
  call->q.row_stride = call->k.row_stride = call->v.row_stride = call->out_row_stride = STRICT_DIM;
  call->scale = 0.25;
  call->out = made->out[0];
  call->lse = made->lse[0];
  made->next = made->first;
  made->next.flags = TWH_CALL_CONTINUES;
  made->next.q_len = STRICT_ROWS - 1;
}

static void continues_strictly(void **state)
{
  (void)state;
  for (int64_t n = 0; n < SUPPORT_COUNT(strict_cases); ++n) {
    const char     *broken = strict_cases[n].broken;
    strict_calls    made;
    const twh_call *calls[2] = { &made.first, &made.next };
    twh_oracle_desc desc;
    support_oracle  kernel;
    int32_t         code;
    continues_desc(&desc, 1, STRICT_ROWS, 1, STRICT_DIM, STRICT_DIM);
    desc.flags = (GOES_ON | TWH_ORACLE_STRIDED | TWH_ORACLE_BACKWARDS | TWH_ORACLE_FEWER_ROWS) & ~strict_cases[n].without;
    desc.alignment = 1;
    support_oracle_create(&kernel, NULL, &desc, NULL);
    strict_make(&made);
    strict_cases[n].spoil(&made);
    code = kernel.desc.run(kernel.desc.user, calls, 2);
    if (!broken && (code || kernel.broken[0] || kernel.continued != 1)) fail_msg("%s: %s", strict_cases[n].name, kernel.broken);
    if (broken && (code != SUPPORT_BROKEN || !strstr(kernel.broken, broken)))
      fail_msg("%s: \"%s\" has no \"%s\"", strict_cases[n].name, kernel.broken, broken);
    support_oracle_destroy(&kernel);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(continues_a_chain_of_calls),
    cmocka_unit_test(continues_from_any_state),
    cmocka_unit_test(continues_strictly),
  };
  return cmocka_run_group_tests_name("reference kernel, calls that continue others", tests, NULL, NULL);
}
