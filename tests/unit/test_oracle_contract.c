/* The oracle contract as an object: what a description must say to be accepted, what is filled in, and who releases what. */
#include "support.h"

static int32_t contract_run(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user, (void)calls, (void)n;
  return 0;
}

static int32_t contract_submit(void *user, const twh_call *const *calls, int64_t n, uint64_t *ticket)
{
  (void)user, (void)calls;
  *ticket = (uint64_t)n;
  return 0;
}

static int32_t contract_wait(void *user, uint64_t ticket)
{
  (void)user;
  (void)ticket;
  return 0;
}

static void contract_release(void *user)
{
  ++*(int *)user;
}

static void contract_desc(twh_oracle_desc *desc)
{
  twh_oracle_desc_init(desc);
  desc->slots = 3;
  desc->q_len = 48;
  desc->k_len = 64;
  desc->qk_dim = 16;
  desc->v_dim = 17;
  desc->dtype = TWH_F16;
  desc->mask_modes = TWH_MASK_NONE;
  desc->scale = 0.25;
  desc->run = contract_run;
}

/* ---- refusals ---- */

#define HUGE_LENGTH ((int64_t)1 << 40)

enum { M_C = TWH_MASK_CAUSAL, M_T = TWH_MASK_TENSOR };

/* One mistake each, against contract_desc. */

static void bad_slots(twh_oracle_desc *d) { d->slots = 0; }
static void bad_q_len(twh_oracle_desc *d) { d->q_len = -1; }
static void bad_k_len(twh_oracle_desc *d) { d->k_len = 0; }
static void bad_qk_dim(twh_oracle_desc *d) { d->qk_dim = 0; }
static void bad_v_dim(twh_oracle_desc *d) { d->v_dim = INT64_MIN; }
static void bad_flags(twh_oracle_desc *d) { d->flags = 1u << 11; }
static void bad_flags_high(twh_oracle_desc *d) { d->flags = 1u << 31; }
static void bad_base2_alone(twh_oracle_desc *d) { d->flags = TWH_ORACLE_LSE_BASE2; }
static void bad_empty_alone(twh_oracle_desc *d) { d->flags = TWH_ORACLE_EMPTY_LSE_POS_INF; }
static void bad_backwards_alone(twh_oracle_desc *d) { d->flags = TWH_ORACLE_BACKWARDS; }
static void bad_continues_alone(twh_oracle_desc *d) { d->flags = TWH_ORACLE_CONTINUES; }
static void bad_dtype_zero(twh_oracle_desc *d) { d->dtype = 0; }
static void bad_dtype_f64(twh_oracle_desc *d) { d->dtype = TWH_F64; }
static void bad_dtype_bool(twh_oracle_desc *d) { d->dtype = TWH_BOOL; }
static void bad_out_dtype(twh_oracle_desc *d) { d->out_dtype = TWH_BOOL; }
static void bad_out_dtype_unknown(twh_oracle_desc *d) { d->out_dtype = 17; }
static void bad_mask_dtype(twh_oracle_desc *d) { d->mask_dtype = -1; }
static void bad_no_masks(twh_oracle_desc *d) { d->mask_modes = 0; }
static void bad_masks(twh_oracle_desc *d) { d->mask_modes = TWH_MASK_NONE | 8; }
static void bad_offset_alone(twh_oracle_desc *d) { d->causal_offset = -1; }
static void bad_offset_low(twh_oracle_desc *d) { d->mask_modes = M_C; d->causal_offset = -48; }
static void bad_offset_high(twh_oracle_desc *d) { d->mask_modes = M_C; d->causal_offset = 64; }
static void bad_offset_least(twh_oracle_desc *d) { d->mask_modes = M_C; d->causal_offset = INT64_MIN; }
static void bad_scale_zero(twh_oracle_desc *d) { d->scale = 0; }
static void bad_scale_nan(twh_oracle_desc *d) { d->scale = (double)NAN; }
static void bad_scale_inf(twh_oracle_desc *d) { d->scale = -INFINITY; }
static void bad_scale_large(twh_oracle_desc *d) { d->scale = 1e300; }
static void bad_scale_per_call(twh_oracle_desc *d) { d->flags = TWH_ORACLE_SCALE_PER_CALL; d->scale = (double)NAN; }
static void bad_softcap(twh_oracle_desc *d) { d->softcap = -1; }
static void bad_softcap_nan(twh_oracle_desc *d) { d->softcap = (double)NAN; }
static void bad_softcap_inf(twh_oracle_desc *d) { d->softcap = INFINITY; }
static void bad_value_alone(twh_oracle_desc *d) { d->mask_value = -100; }
static void bad_value_positive(twh_oracle_desc *d) { d->mask_modes = M_T; d->mask_value = 1; }
static void bad_value_nan(twh_oracle_desc *d) { d->mask_modes = M_T; d->mask_value = (double)NAN; }
static void bad_value_inf(twh_oracle_desc *d) { d->mask_modes = M_T; d->mask_value = -INFINITY; }
static void bad_value_large(twh_oracle_desc *d) { d->mask_modes = M_T; d->mask_value = -1e9; }
static void bad_value_bool(twh_oracle_desc *d) { d->mask_modes = M_T; d->mask_dtype = TWH_BOOL; d->mask_value = -1; }
static void bad_q_row(twh_oracle_desc *d) { d->q_row_stride = 15; }
static void bad_k_row(twh_oracle_desc *d) { d->k_row_stride = -16; }
static void bad_v_row(twh_oracle_desc *d) { d->v_row_stride = 16; }
static void bad_out_row(twh_oracle_desc *d) { d->out_row_stride = 1; }
static void bad_q_slot(twh_oracle_desc *d) { d->q_slot_stride = 48 * 16 - 1; }
static void bad_k_slot(twh_oracle_desc *d) { d->k_slot_stride = 15; }
static void bad_v_slot(twh_oracle_desc *d) { d->v_slot_stride = -1; }
static void bad_out_slot(twh_oracle_desc *d) { d->out_slot_stride = 17; }
static void bad_interleaved(twh_oracle_desc *d) { d->k_slot_stride = 16; d->k_row_stride = 47; }
static void bad_q_min_alone(twh_oracle_desc *d) { d->q_len_min = 1; }
static void bad_q_step_alone(twh_oracle_desc *d) { d->q_len_step = 16; }
static void bad_k_min_alone(twh_oracle_desc *d) { d->k_len_min = 1; }
static void bad_k_step_alone(twh_oracle_desc *d) { d->k_len_step = 16; }
static void bad_q_min(twh_oracle_desc *d) { d->flags = TWH_ORACLE_FEWER_ROWS; d->q_len_min = 49; }
static void bad_q_min_negative(twh_oracle_desc *d) { d->flags = TWH_ORACLE_FEWER_ROWS; d->q_len_min = -1; }
static void bad_q_step(twh_oracle_desc *d) { d->flags = TWH_ORACLE_FEWER_ROWS; d->q_len_step = 32; }
static void bad_q_step_negative(twh_oracle_desc *d) { d->flags = TWH_ORACLE_FEWER_ROWS; d->q_len_step = -16; }
static void bad_k_min(twh_oracle_desc *d) { d->flags = TWH_ORACLE_FEWER_KEYS; d->k_len_min = 65; }
static void bad_k_step(twh_oracle_desc *d) { d->flags = TWH_ORACLE_FEWER_KEYS; d->k_len_step = 65; }
static void bad_k_step_negative(twh_oracle_desc *d) { d->flags = TWH_ORACLE_FEWER_KEYS; d->k_len_step = INT64_MIN; }
static void bad_alignment(twh_oracle_desc *d) { d->alignment = 48; }
static void bad_alignment_negative(twh_oracle_desc *d) { d->alignment = -64; }
static void bad_alignment_large(twh_oracle_desc *d) { d->alignment = (int64_t)1 << 40; }
static void bad_batch(twh_oracle_desc *d) { d->max_calls_per_batch = -1; }
static void bad_concurrent(twh_oracle_desc *d) { d->max_concurrent_batches = -2; }
static void bad_cost(twh_oracle_desc *d) { d->cost_per_call = -1; }
static void bad_cost_nan(twh_oracle_desc *d) { d->cost_per_call = (double)NAN; }
static void bad_batch_cost(twh_oracle_desc *d) { d->cost_per_batch = INFINITY; }
static void bad_run(twh_oracle_desc *d) { d->run = NULL; }
static void bad_submit_alone(twh_oracle_desc *d) { d->run = NULL; d->submit = contract_submit; }
static void bad_wait_alone(twh_oracle_desc *d) { d->wait = contract_wait; }
static void bad_huge_q(twh_oracle_desc *d) { d->slots = HUGE_LENGTH; d->q_len = HUGE_LENGTH; }
static void bad_huge_k(twh_oracle_desc *d) { d->slots = HUGE_LENGTH; d->q_len = 1; d->k_len = HUGE_LENGTH; }
static void bad_huge_pairs(twh_oracle_desc *d) { d->q_len = HUGE_LENGTH; d->k_len = HUGE_LENGTH; }
static void bad_huge_mask(twh_oracle_desc *d) { d->slots = d->qk_dim = d->v_dim = 1; d->q_len = HUGE_LENGTH; d->k_len = 1 << 22; }
static void bad_huge_dim(twh_oracle_desc *d) { d->v_dim = INT64_MAX; }
static void bad_huge_stride(twh_oracle_desc *d) { d->q_row_stride = INT64_MAX; }
static void bad_huge_slot_stride(twh_oracle_desc *d) { d->out_slot_stride = INT64_MAX / 2; }
static void bad_huge_bytes(twh_oracle_desc *d) { d->slots = d->q_len = d->qk_dim = d->v_dim = 1; d->k_len = HUGE_LENGTH << 22; }
static void bad_size_zero(twh_oracle_desc *d) { d->struct_size = 0; }
static void bad_size_small(twh_oracle_desc *d) { d->struct_size = (uint32_t)offsetof(twh_oracle_desc, user); }

typedef struct contract_refusal {
  const char *name;
  void      (*spoil)(twh_oracle_desc *desc);
  twh_status  status;
  const char *word;
} contract_refusal;

static const contract_refusal contract_refusals[] = {
  { "slots", bad_slots, TWH_E_ARGUMENT, "oracle.slots is 0" },
  { "q_len", bad_q_len, TWH_E_ARGUMENT, "oracle.q_len is -1" },
  { "k_len", bad_k_len, TWH_E_ARGUMENT, "oracle.k_len is 0" },
  { "qk_dim", bad_qk_dim, TWH_E_ARGUMENT, "oracle.qk_dim is 0" },
  { "v_dim", bad_v_dim, TWH_E_ARGUMENT, "oracle.v_dim" },
  { "flags", bad_flags, TWH_E_VERSION, "oracle.flags has unknown bits: 0x800" },
  { "flags high", bad_flags_high, TWH_E_VERSION, "oracle.flags has unknown bits: 0x80000000" },
  { "base 2 without lse", bad_base2_alone, TWH_E_ARGUMENT, "TWH_ORACLE_LSE_BASE2" },
  { "empty lse without lse", bad_empty_alone, TWH_E_ARGUMENT, "TWH_ORACLE_EMPTY_LSE_POS_INF" },
  { "backwards without strided", bad_backwards_alone, TWH_E_ARGUMENT, "TWH_ORACLE_BACKWARDS without TWH_ORACLE_STRIDED" },
  { "continues without lse", bad_continues_alone, TWH_E_ARGUMENT, "TWH_ORACLE_CONTINUES without TWH_ORACLE_LSE" },
  { "dtype 0", bad_dtype_zero, TWH_E_ARGUMENT, "oracle.dtype is 0" },
  { "dtype f64", bad_dtype_f64, TWH_E_ARGUMENT, "oracle.dtype is 4" },
  { "dtype bool", bad_dtype_bool, TWH_E_ARGUMENT, "oracle.dtype is 5" },
  { "out_dtype bool", bad_out_dtype, TWH_E_ARGUMENT, "oracle.out_dtype is 5" },
  { "out_dtype unknown", bad_out_dtype_unknown, TWH_E_ARGUMENT, "oracle.out_dtype is 17" },
  { "mask_dtype", bad_mask_dtype, TWH_E_ARGUMENT, "oracle.mask_dtype is -1" },
  { "mask_modes empty", bad_no_masks, TWH_E_ARGUMENT, "oracle.mask_modes is empty" },
  { "mask_modes", bad_masks, TWH_E_VERSION, "oracle.mask_modes has unknown bits: 0x8" },
  { "causal_offset without causal", bad_offset_alone, TWH_E_ARGUMENT, "oracle.causal_offset is -1" },
  { "causal_offset low", bad_offset_low, TWH_E_ARGUMENT, "oracle.causal_offset is -48" },
  { "causal_offset high", bad_offset_high, TWH_E_ARGUMENT, "oracle.causal_offset is 64" },
  { "causal_offset least", bad_offset_least, TWH_E_ARGUMENT, "oracle.causal_offset" },
  { "scale 0", bad_scale_zero, TWH_E_ARGUMENT, "oracle.scale is 0" },
  { "scale nan", bad_scale_nan, TWH_E_ARGUMENT, "oracle.scale" },
  { "scale inf", bad_scale_inf, TWH_E_ARGUMENT, "oracle.scale is -inf" },
  { "scale beyond f32", bad_scale_large, TWH_E_ARGUMENT, "oracle.scale is 1e+300" },
  { "scale nan with a scale per call", bad_scale_per_call, TWH_E_ARGUMENT, "oracle.scale" },
  { "softcap", bad_softcap, TWH_E_ARGUMENT, "oracle.softcap is -1" },
  { "softcap nan", bad_softcap_nan, TWH_E_ARGUMENT, "oracle.softcap" },
  { "softcap inf", bad_softcap_inf, TWH_E_ARGUMENT, "oracle.softcap is inf" },
  { "mask_value without mask", bad_value_alone, TWH_E_ARGUMENT, "oracle.mask_value is -100" },
  { "mask_value positive", bad_value_positive, TWH_E_ARGUMENT, "oracle.mask_value is 1" },
  { "mask_value nan", bad_value_nan, TWH_E_ARGUMENT, "oracle.mask_value" },
  { "mask_value -inf", bad_value_inf, TWH_E_ARGUMENT, "oracle.mask_value is -inf" },
  { "mask_value beyond f16", bad_value_large, TWH_E_ARGUMENT, "oracle.mask_value is -1e+09, which f16 cannot hold" },
  { "mask_value with bool", bad_value_bool, TWH_E_ARGUMENT, "oracle.mask_value is -1, but mask_dtype" },
  { "q_row_stride", bad_q_row, TWH_E_ARGUMENT, "oracle.q_row_stride is 15" },
  { "k_row_stride", bad_k_row, TWH_E_ARGUMENT, "oracle.k_row_stride is -16" },
  { "v_row_stride", bad_v_row, TWH_E_ARGUMENT, "oracle.v_row_stride is 16" },
  { "out_row_stride", bad_out_row, TWH_E_ARGUMENT, "oracle.out_row_stride is 1" },
  { "q_slot_stride", bad_q_slot, TWH_E_ARGUMENT, "oracle.q_slot_stride 767" },
  { "k_slot_stride", bad_k_slot, TWH_E_ARGUMENT, "oracle.k_slot_stride is 15" },
  { "v_slot_stride", bad_v_slot, TWH_E_ARGUMENT, "oracle.v_slot_stride is -1" },
  { "out_slot_stride", bad_out_slot, TWH_E_ARGUMENT, "oracle.out_slot_stride 17" },
  { "interleaved slots overlap", bad_interleaved, TWH_E_ARGUMENT, "k_row_stride 47" },
  { "q_len_min without flag", bad_q_min_alone, TWH_E_ARGUMENT, "oracle.q_len_min is 1, but flags has no TWH_ORACLE_FEWER_ROWS" },
  { "q_len_step without flag", bad_q_step_alone, TWH_E_ARGUMENT, "oracle.q_len_step is 16" },
  { "k_len_min without flag", bad_k_min_alone, TWH_E_ARGUMENT, "oracle.k_len_min is 1, but flags has no TWH_ORACLE_FEWER_KEYS" },
  { "k_len_step without flag", bad_k_step_alone, TWH_E_ARGUMENT, "oracle.k_len_step is 16" },
  { "q_len_min", bad_q_min, TWH_E_ARGUMENT, "oracle.q_len_min is 49" },
  { "q_len_min negative", bad_q_min_negative, TWH_E_ARGUMENT, "oracle.q_len_min is -1" },
  { "q_len_step", bad_q_step, TWH_E_ARGUMENT, "oracle.q_len_step is 32" },
  { "q_len_step negative", bad_q_step_negative, TWH_E_ARGUMENT, "oracle.q_len_step is -16" },
  { "k_len_min", bad_k_min, TWH_E_ARGUMENT, "oracle.k_len_min is 65" },
  { "k_len_step", bad_k_step, TWH_E_ARGUMENT, "oracle.k_len_step is 65" },
  { "k_len_step negative", bad_k_step_negative, TWH_E_ARGUMENT, "oracle.k_len_step" },
  { "alignment", bad_alignment, TWH_E_ARGUMENT, "oracle.alignment is 48" },
  { "alignment negative", bad_alignment_negative, TWH_E_ARGUMENT, "oracle.alignment is -64" },
  { "alignment large", bad_alignment_large, TWH_E_ARGUMENT, "oracle.alignment" },
  { "max_calls_per_batch", bad_batch, TWH_E_ARGUMENT, "oracle.max_calls_per_batch is -1" },
  { "max_concurrent_batches", bad_concurrent, TWH_E_ARGUMENT, "oracle.max_concurrent_batches is -2" },
  { "cost_per_call", bad_cost, TWH_E_ARGUMENT, "oracle.cost_per_call is -1" },
  { "cost_per_call nan", bad_cost_nan, TWH_E_ARGUMENT, "oracle.cost_per_call" },
  { "cost_per_batch", bad_batch_cost, TWH_E_ARGUMENT, "oracle.cost_per_batch is inf" },
  { "no run", bad_run, TWH_E_ARGUMENT, "oracle.run is NULL" },
  { "submit without wait", bad_submit_alone, TWH_E_ARGUMENT, "oracle.wait is NULL" },
  { "wait without submit", bad_wait_alone, TWH_E_ARGUMENT, "oracle.submit is NULL" },
  { "q does not fit", bad_huge_q, TWH_E_OVERFLOW, "of q" },
  { "k does not fit", bad_huge_k, TWH_E_OVERFLOW, "of k" },
  { "pairs do not fit", bad_huge_pairs, TWH_E_OVERFLOW, "k_len" },
  { "mask does not fit", bad_huge_mask, TWH_E_OVERFLOW, "k_len" },
  { "v does not fit", bad_huge_dim, TWH_E_OVERFLOW, "of v" },
  { "row stride does not fit", bad_huge_stride, TWH_E_OVERFLOW, "of q" },
  { "slot stride does not fit", bad_huge_slot_stride, TWH_E_OVERFLOW, "of out" },
  { "bytes do not fit", bad_huge_bytes, TWH_E_OVERFLOW, "of k" },
  { "struct_size 0", bad_size_zero, TWH_E_ARGUMENT, "oracle.struct_size is 0" },
  { "struct_size below version 1", bad_size_small, TWH_E_VERSION, "oracle.struct_size" },
};

static void oracle_create_every_bad_field_is_refused_by_name(void **state)
{
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(contract_refusals); ++i) {
    const contract_refusal *row = &contract_refusals[i];
    support_memory          memory;
    twh_context            *context = support_context(&memory, 0, 0);
    int64_t                 live = memory.live_blocks;
    twh_oracle_desc         desc;
    twh_oracle             *oracle = (twh_oracle *)(uintptr_t)1;
    twh_error               error;
    twh_status              status;
    int                     released = 0;
    twh_error_init(&error);
    contract_desc(&desc);
    desc.release = contract_release;
    desc.user = &released;
    row->spoil(&desc);
    status = twh_oracle_create(context, &desc, &oracle, &error);
    if (status != row->status) print_error("case: %s\n", row->name);
    support_assert_status(status, row->status, &error, row->word);
    assert_null(oracle);
    assert_int_equal(released, 0); /* still the caller's */
    assert_int_equal(memory.live_blocks, live);
    assert_int_equal(twh_oracle_create(context, &desc, &oracle, NULL), row->status);
    twh_context_destroy(context);
  }
}

static void oracle_create_null_arguments_are_refused(void **state)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle = (twh_oracle *)(uintptr_t)1;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  contract_desc(&desc);
  support_assert_status(twh_oracle_create(NULL, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "desc is NULL");
  assert_null(oracle);
  support_assert_status(twh_oracle_create(NULL, &desc, NULL, &error), TWH_E_ARGUMENT, &error, "out is NULL");
  twh_oracle_destroy(NULL);
}

/* ---- acceptance and defaults ---- */

static void contract_accept(const twh_oracle_desc *desc, twh_oracle_desc *completed)
{
  twh_oracle *oracle;
  twh_error   error;
  twh_error_init(&error);
  support_assert_status(twh_oracle_create(NULL, desc, &oracle, &error), TWH_OK, &error, NULL);
  twh_oracle_desc_init(completed);
  support_assert_status(twh_oracle_get_desc(oracle, completed, &error), TWH_OK, &error, NULL);
  twh_oracle_destroy(oracle);
}

static void oracle_get_desc_has_the_defaults_filled_in(void **state)
{
  twh_oracle_desc desc, got, again;
  (void)state;
  contract_desc(&desc);
  contract_accept(&desc, &got);
  assert_int_equal(got.out_dtype, TWH_F16);
  assert_int_equal(got.mask_dtype, TWH_F16);
  assert_int_equal(got.q_row_stride, 16);
  assert_int_equal(got.k_row_stride, 16);
  assert_int_equal(got.v_row_stride, 17);
  assert_int_equal(got.out_row_stride, 17);
  assert_int_equal(got.q_slot_stride, 48 * 16);
  assert_int_equal(got.k_slot_stride, 64 * 16);
  assert_int_equal(got.v_slot_stride, 64 * 17);
  assert_int_equal(got.out_slot_stride, 48 * 17);
  assert_int_equal(got.q_len_min, 48);
  assert_int_equal(got.q_len_step, 48);
  assert_int_equal(got.k_len_min, 64);
  assert_int_equal(got.k_len_step, 64);
  assert_int_equal(got.alignment, 64);
  assert_int_equal(got.max_calls_per_batch, INT64_MAX);
  assert_int_equal(got.max_concurrent_batches, 1);
  assert_true(got.cost_per_call == 1 && got.cost_per_batch == 0 && got.mask_value == 0);
  contract_accept(&got, &again);
  assert_memory_equal(&got, &again, sizeof got); /* completing a completed description changes nothing */
}

static void oracle_create_fewer_lengths_get_a_step_and_a_minimum_on_it(void **state)
{
  twh_oracle_desc desc, got, again;
  (void)state;
  contract_desc(&desc);
  desc.flags = TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_FEWER_SLOTS;
  desc.k_len_step = 16;
  desc.k_len_min = 17;
  contract_accept(&desc, &got);
  assert_int_equal(got.q_len_min, 1);
  assert_int_equal(got.q_len_step, 1);
  assert_int_equal(got.k_len_min, 32);
  assert_int_equal(got.k_len_step, 16);
  contract_accept(&got, &again);
  assert_memory_equal(&got, &again, sizeof got);
}

static void oracle_create_layouts_that_do_not_overlap_are_accepted(void **state)
{
  twh_oracle_desc desc, got;
  (void)state;
  contract_desc(&desc);
  desc.q_row_stride = 20; /* rows apart: a slot is as long as its rows */
  desc.k_slot_stride = 16;
  desc.k_row_stride = 48; /* (rows, slots x dim) */
  desc.v_slot_stride = 64 * 17 + 5;
  desc.out_row_stride = 18;
  desc.out_slot_stride = 47 * 18 + 17; /* the gap behind the last row belongs to nobody */
  contract_accept(&desc, &got);
  assert_int_equal(got.q_slot_stride, 48 * 20);
  assert_int_equal(got.k_slot_stride, 16);
  assert_int_equal(got.out_slot_stride, 47 * 18 + 17);
  desc.slots = 1; /* then the slot stride is used by nobody */
  desc.v_slot_stride = 17;
  contract_accept(&desc, &got);
}

static void oracle_create_everything_that_may_be_declared_is_accepted(void **state)
{
  twh_oracle_desc desc, got;
  (void)state;
  contract_desc(&desc);
  desc.flags = (1u << 11) - 1;
  desc.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL | TWH_MASK_TENSOR;
  desc.scale = 0; /* one per call */
  desc.softcap = 30;
  desc.causal_offset = -47;
  desc.mask_dtype = TWH_F32;
  desc.mask_value = -1e9;
  desc.out_dtype = TWH_F64;
  desc.alignment = (int64_t)1 << 21;
  desc.max_calls_per_batch = 7;
  desc.max_concurrent_batches = INT64_MAX;
  desc.cost_per_batch = 3;
  desc.submit = contract_submit;
  desc.wait = contract_wait;
  contract_accept(&desc, &got);
  desc.causal_offset = 63;
  desc.scale = -2;
  desc.alignment = 1;
  desc.run = NULL;
  contract_accept(&desc, &got);
  assert_int_equal(got.alignment, 8); /* of the widest type in a call: out's here, */
  desc.out_dtype = 0;
  contract_accept(&desc, &got);
  assert_int_equal(got.alignment, 4); /* the mask's, */
  desc.mask_modes = TWH_MASK_NONE;
  desc.mask_value = 0;
  desc.causal_offset = 0;
  desc.mask_dtype = 0;
  contract_accept(&desc, &got);
  assert_int_equal(got.alignment, 4); /* lse's, */
  desc.flags = 0;
  contract_accept(&desc, &got);
  assert_int_equal(got.alignment, 2); /* q's */
}

/* ---- sizes of structs ---- */

typedef struct contract_longer {
  twh_oracle_desc desc;
  unsigned char   tail[24];
} contract_longer;

static void oracle_create_longer_struct_must_be_zero_behind(void **state)
{
  contract_longer longer;
  twh_oracle     *oracle;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  memset(&longer, 0, sizeof longer);
  contract_desc(&longer.desc);
  longer.desc.struct_size = (uint32_t)sizeof longer;
  support_assert_status(twh_oracle_create(NULL, &longer.desc, &oracle, &error), TWH_OK, &error, NULL);
  twh_oracle_destroy(oracle);
  for (size_t i = 0; i < sizeof longer.tail; ++i) {
    longer.tail[i] = 1;
    support_assert_status(twh_oracle_create(NULL, &longer.desc, &oracle, &error), TWH_E_VERSION, &error, "oracle has a field");
    assert_null(oracle);
    longer.tail[i] = 0;
  }
}

static void oracle_get_desc_writes_what_fits_and_zeroes_the_rest(void **state)
{
  contract_longer longer;
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  twh_error       error;
  (void)state;
  twh_error_init(&error);
  contract_desc(&desc);
  support_assert_status(twh_oracle_create(NULL, &desc, &oracle, &error), TWH_OK, &error, NULL);
  memset(&longer, 0x5a, sizeof longer);
  longer.desc.struct_size = (uint32_t)sizeof longer;
  support_assert_status(twh_oracle_get_desc(oracle, &longer.desc, &error), TWH_OK, &error, NULL);
  assert_int_equal(longer.desc.struct_size, sizeof longer);
  assert_int_equal(longer.desc.v_dim, 17);
  for (size_t i = 0; i < sizeof longer.tail; ++i) assert_int_equal(longer.tail[i], 0);
  longer.desc.struct_size = 0;
  support_assert_status(twh_oracle_get_desc(oracle, &longer.desc, &error), TWH_E_ARGUMENT, &error, "struct_size");
  longer.desc.struct_size = 8;
  support_assert_status(twh_oracle_get_desc(oracle, &longer.desc, &error), TWH_E_VERSION, &error, "struct_size");
  support_assert_status(twh_oracle_get_desc(oracle, NULL, &error), TWH_E_ARGUMENT, &error, "out");
  support_assert_status(twh_oracle_get_desc(NULL, &desc, &error), TWH_E_ARGUMENT, &error, "oracle");
  twh_oracle_destroy(oracle);
}

/* ---- ownership ---- */

static void oracle_destroy_releases_once(void **state)
{
  twh_oracle_desc desc;
  twh_oracle     *oracle;
  twh_error       error;
  int             released = 0;
  (void)state;
  twh_error_init(&error);
  contract_desc(&desc);
  desc.release = contract_release;
  desc.user = &released;
  support_assert_status(twh_oracle_create(NULL, &desc, &oracle, &error), TWH_OK, &error, NULL);
  memset(&desc, 0x5a, sizeof desc); /* was copied */
  assert_int_equal(released, 0);
  twh_oracle_destroy(oracle);
  assert_int_equal(released, 1);
}

static void oracle_create_allocation_failure_at_every_point_leaks_nothing(void **state)
{
  twh_status status = TWH_E_MEMORY;
  int64_t    n;
  (void)state;
  for (n = 0; n < 20 && status != TWH_OK; ++n) {
    support_memory  memory;
    twh_context    *context = support_context(&memory, 0, 0);
    int64_t         live = memory.live_blocks;
    twh_oracle_desc desc;
    twh_oracle     *oracle;
    twh_error       error;
    int             released = 0;
    twh_error_init(&error);
    contract_desc(&desc);
    desc.release = contract_release;
    desc.user = &released;
    memory.fail_at = memory.allocations + n;
    status = twh_oracle_create(context, &desc, &oracle, &error);
    if (status != TWH_OK) {
      support_assert_status(status, TWH_E_MEMORY, &error, "allocate");
      assert_null(oracle);
      assert_int_equal(released, 0);
    }
    twh_oracle_destroy(oracle);
    assert_int_equal(memory.live_blocks, live);
    assert_int_equal(memory.wrong_releases, 0);
    twh_context_destroy(context);
  }
  assert_int_equal(status, TWH_OK);
  assert_true(n > 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(oracle_create_every_bad_field_is_refused_by_name),
    cmocka_unit_test(oracle_create_null_arguments_are_refused),
    cmocka_unit_test(oracle_get_desc_has_the_defaults_filled_in),
    cmocka_unit_test(oracle_create_fewer_lengths_get_a_step_and_a_minimum_on_it),
    cmocka_unit_test(oracle_create_layouts_that_do_not_overlap_are_accepted),
    cmocka_unit_test(oracle_create_everything_that_may_be_declared_is_accepted),
    cmocka_unit_test(oracle_create_longer_struct_must_be_zero_behind),
    cmocka_unit_test(oracle_get_desc_writes_what_fits_and_zeroes_the_rest),
    cmocka_unit_test(oracle_destroy_releases_once),
    cmocka_unit_test(oracle_create_allocation_failure_at_every_point_leaks_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
