/* What a consistent description of a kernel is.
 *
 * Every field has one rule and one message that names it. Whole numbers and costs stand in tables; everything that
 * relates two fields (strides and lengths, flags and what they speak of) has a function of its own. A field that speaks of
 * something the kernel does not declare is refused, because a description that contradicts itself was meant otherwise. */
#include <float.h>
#include <math.h>

#include "core/oracle/oracle.h"

enum {
  CONTRACT_FLAGS = TWH_ORACLE_LSE | TWH_ORACLE_LSE_BASE2 | TWH_ORACLE_EMPTY_LSE_POS_INF | TWH_ORACLE_STRIDED |
                   TWH_ORACLE_FEWER_ROWS | TWH_ORACLE_FEWER_KEYS | TWH_ORACLE_FEWER_SLOTS | TWH_ORACLE_SCALE_PER_CALL |
                   TWH_ORACLE_F16_SCORES | TWH_ORACLE_BACKWARDS | TWH_ORACLE_CONTINUES,
  CONTRACT_MASKS = TWH_MASK_NONE | TWH_MASK_CAUSAL | TWH_MASK_TENSOR,
  CONTRACT_MAX_ALIGNMENT = 1 << 21 /* a huge page; more is a mistake */
};

typedef struct contract_number {
  const char *name;
  size_t      at;
  int64_t     least;
} contract_number;

#define CONTRACT_NUMBER(field, least) { #field, offsetof(twh_oracle_desc, field), (least) }

static const contract_number contract_numbers[] = {
  CONTRACT_NUMBER(slots, 1),
  CONTRACT_NUMBER(q_len, 1),
  CONTRACT_NUMBER(k_len, 1),
  CONTRACT_NUMBER(qk_dim, 1),
  CONTRACT_NUMBER(v_dim, 1),
  CONTRACT_NUMBER(q_slot_stride, 0),
  CONTRACT_NUMBER(k_slot_stride, 0),
  CONTRACT_NUMBER(v_slot_stride, 0),
  CONTRACT_NUMBER(out_slot_stride, 0),
  CONTRACT_NUMBER(q_row_stride, 0),
  CONTRACT_NUMBER(k_row_stride, 0),
  CONTRACT_NUMBER(v_row_stride, 0),
  CONTRACT_NUMBER(out_row_stride, 0),
  CONTRACT_NUMBER(q_len_min, 0),
  CONTRACT_NUMBER(q_len_step, 0),
  CONTRACT_NUMBER(k_len_min, 0),
  CONTRACT_NUMBER(k_len_step, 0),
  CONTRACT_NUMBER(alignment, 0),
  CONTRACT_NUMBER(max_calls_per_batch, 0),
  CONTRACT_NUMBER(max_concurrent_batches, 0),
};

static twh_status contract_check_numbers(const twh_oracle_desc *desc, twh_error *error)
{
  for (size_t i = 0; i < sizeof contract_numbers / sizeof contract_numbers[0]; ++i) {
    const contract_number *row = &contract_numbers[i];
    int64_t                value = *(const int64_t *)(const void *)((const char *)desc + row->at);
    if (value < row->least) {
      return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s is %lld; it must be at least %lld", row->name, (long long)value,
                       (long long)row->least);
    }
  }
  return TWH_OK;
}

static twh_status contract_check_flags(const twh_oracle_desc *desc, twh_error *error)
{
  if (desc->flags & ~(uint32_t)CONTRACT_FLAGS) {
    return twh__fail(error, TWH_E_VERSION, "oracle.flags has unknown bits: 0x%x",
                     (unsigned)(desc->flags & ~(uint32_t)CONTRACT_FLAGS));
  }
  if (!(desc->flags & TWH_ORACLE_LSE) && (desc->flags & TWH_ORACLE_LSE_BASE2)) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.flags has TWH_ORACLE_LSE_BASE2 without TWH_ORACLE_LSE");
  }
  if (!(desc->flags & TWH_ORACLE_LSE) && (desc->flags & TWH_ORACLE_EMPTY_LSE_POS_INF)) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.flags has TWH_ORACLE_EMPTY_LSE_POS_INF without TWH_ORACLE_LSE");
  }
  if (!(desc->flags & TWH_ORACLE_LSE) && (desc->flags & TWH_ORACLE_CONTINUES)) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.flags has TWH_ORACLE_CONTINUES without TWH_ORACLE_LSE");
  }
  if (!(desc->flags & TWH_ORACLE_STRIDED) && (desc->flags & TWH_ORACLE_BACKWARDS)) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.flags has TWH_ORACLE_BACKWARDS without TWH_ORACLE_STRIDED");
  }
  if (desc->mask_modes & ~(uint32_t)CONTRACT_MASKS) {
    return twh__fail(error, TWH_E_VERSION, "oracle.mask_modes has unknown bits: 0x%x",
                     (unsigned)(desc->mask_modes & ~(uint32_t)CONTRACT_MASKS));
  }
  if (desc->mask_modes == 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.mask_modes is empty; a kernel without masks declares TWH_MASK_NONE");
  }
  return TWH_OK;
}

static int contract_is_float(int32_t dtype)
{
  return dtype == TWH_F32 || dtype == TWH_F16 || dtype == TWH_BF16;
}

static twh_status contract_complete_dtypes(twh_oracle_desc *desc, twh_error *error)
{
  if (!contract_is_float(desc->dtype)) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.dtype is %d; it must be TWH_F32, TWH_F16 or TWH_BF16", (int)desc->dtype);
  }
  if (desc->out_dtype == 0) desc->out_dtype = desc->dtype;
  if (!contract_is_float(desc->out_dtype) && desc->out_dtype != TWH_F64) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.out_dtype is %d; it must be a float type, or 0 for oracle.dtype",
                     (int)desc->out_dtype);
  }
  if (desc->mask_dtype == 0) desc->mask_dtype = desc->dtype;
  if (twh__dtype_bytes(desc->mask_dtype) == 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.mask_dtype is %d; it must be TWH_BOOL, a float type, or 0 for oracle.dtype",
                     (int)desc->mask_dtype);
  }
  return TWH_OK;
}

static twh_status contract_check_masks(const twh_oracle_desc *desc, twh_error *error)
{
  if (desc->causal_offset != 0) {
    if (!(desc->mask_modes & TWH_MASK_CAUSAL)) {
      return twh__fail(error, TWH_E_ARGUMENT, "oracle.causal_offset is %lld, but mask_modes has no TWH_MASK_CAUSAL",
                       (long long)desc->causal_offset);
    }
    if (desc->causal_offset <= -desc->q_len || desc->causal_offset >= desc->k_len) {
      return twh__fail(error, TWH_E_ARGUMENT, "oracle.causal_offset is %lld; it must be above -q_len and below k_len",
                       (long long)desc->causal_offset);
    }
  }
  if (!isfinite(desc->mask_value) || desc->mask_value > 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.mask_value is %g; it must be finite and below 0, or 0 for -inf",
                     desc->mask_value);
  }
  if (desc->mask_value != 0) {
    if (!(desc->mask_modes & TWH_MASK_TENSOR)) {
      return twh__fail(error, TWH_E_ARGUMENT, "oracle.mask_value is %g, but mask_modes has no TWH_MASK_TENSOR",
                       desc->mask_value);
    }
    if (desc->mask_dtype == TWH_BOOL) {
      return twh__fail(error, TWH_E_ARGUMENT, "oracle.mask_value is %g, but mask_dtype is TWH_BOOL", desc->mask_value);
    }
    if (-desc->mask_value > twh__dtype_max(desc->mask_dtype)) {
      return twh__fail(error, TWH_E_ARGUMENT, "oracle.mask_value is %g, which %s cannot hold; leave it 0 for -inf",
                       desc->mask_value, twh__dtype_name(desc->mask_dtype));
    }
  }
  return TWH_OK;
}

static twh_status contract_complete_scores(twh_oracle_desc *desc, twh_error *error)
{
  if (!isfinite(desc->scale) || fabs(desc->scale) > (double)FLT_MAX) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.scale is %g; it must be a finite f32", desc->scale);
  }
  if (desc->scale == 0 && !(desc->flags & TWH_ORACLE_SCALE_PER_CALL)) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.scale is 0; only TWH_ORACLE_SCALE_PER_CALL goes without one");
  }
  if (!isfinite(desc->softcap) || desc->softcap < 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.softcap is %g; it must be finite and at least 0", desc->softcap);
  }
  if (!isfinite(desc->cost_per_call) || desc->cost_per_call < 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.cost_per_call is %g; it must be finite and at least 0",
                     desc->cost_per_call);
  }
  if (!isfinite(desc->cost_per_batch) || desc->cost_per_batch < 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.cost_per_batch is %g; it must be finite and at least 0",
                     desc->cost_per_batch);
  }
  if (desc->cost_per_call == 0) desc->cost_per_call = 1;
  return TWH_OK;
}

/* One operand, (slots, rows, dim). Two layouts do not overlap: slots one after the other, and rows one after the other with the
 * slots interleaved inside them, as in (rows, heads x dim). */
static twh_status contract_complete_strides(const char *name, int64_t slots, int64_t rows, int64_t dim, int32_t dtype,
                                            int64_t *row_stride, int64_t *slot_stride, twh_error *error)
{
  int64_t slot_extent, row_extent, extent, bytes;

  if (*row_stride == 0) *row_stride = dim;
  if (*row_stride < dim) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s_row_stride is %lld; a row has %lld elements", name,
                     (long long)*row_stride, (long long)dim);
  }
  if (*slot_stride == 0 && !twh__multiply(rows, *row_stride, slot_stride)) goto overflow;
  if (*slot_stride < dim) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s_slot_stride is %lld; a row has %lld elements", name,
                     (long long)*slot_stride, (long long)dim);
  }
  if (!twh__multiply(rows - 1, *row_stride, &slot_extent) || !twh__add(slot_extent, dim, &slot_extent)) goto overflow;
  if (!twh__multiply(slots - 1, *slot_stride, &row_extent) || !twh__add(row_extent, slot_extent, &extent)) goto overflow;
  if (!twh__multiply(extent, twh__dtype_bytes(dtype), &bytes) || (uint64_t)bytes > (uint64_t)PTRDIFF_MAX) goto overflow;
  row_extent += dim;
  if (*slot_stride < slot_extent && *row_stride < row_extent) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s_slot_stride %lld and %s_row_stride %lld let slots overlap", name,
                     (long long)*slot_stride, name, (long long)*row_stride);
  }
  return TWH_OK;
overflow:
  return twh__fail(error, TWH_E_OVERFLOW, "oracle.slots, the length and the dimension of %s: the product does not fit", name);
}

static twh_status contract_check_products(const twh_oracle_desc *desc, twh_error *error)
{
  int64_t rows, pairs, bytes;

  if (!twh__multiply(desc->slots, desc->q_len, &rows) || !twh__multiply(rows, desc->k_len, &pairs) ||
      !twh__multiply(pairs, twh__dtype_bytes(desc->mask_dtype), &bytes) ||
      !twh__multiply(rows, (int64_t)sizeof(float), &bytes)) {
    return twh__fail(error, TWH_E_OVERFLOW, "oracle.slots, q_len and k_len: the product does not fit");
  }
  return TWH_OK;
}

static twh_status contract_complete_length(const char *name, const char *flag, int fewer, int64_t length, int64_t *least,
                                           int64_t *step, twh_error *error)
{
  if (!fewer) {
    if (*least != 0 && *least != length) {
      return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s_min is %lld, but flags has no %s", name, (long long)*least, flag);
    }
    if (*step != 0 && *step != length) {
      return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s_step is %lld, but flags has no %s", name, (long long)*step, flag);
    }
    *least = *step = length;
    return TWH_OK;
  }
  if (*step == 0) *step = 1;
  if (*least == 0) *least = 1;
  if (*least > length) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s_min is %lld, more than %s %lld", name, (long long)*least, name,
                     (long long)length);
  }
  if (length % *step != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s_step is %lld; %s %lld must be a multiple of it", name, (long long)*step,
                     name, (long long)length);
  }
  *least = twh__round_up(*least, *step);
  return TWH_OK;
}

static twh_status contract_complete_calls(twh_oracle_desc *desc, twh_error *error)
{
  if (desc->alignment == 0) desc->alignment = 64;
  if ((desc->alignment & (desc->alignment - 1)) != 0 || desc->alignment > CONTRACT_MAX_ALIGNMENT) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.alignment is %lld; it must be a power of two, at most %d",
                     (long long)desc->alignment, (int)CONTRACT_MAX_ALIGNMENT);
  }
  /* at least what the types in a call need */
  desc->alignment = twh__max(desc->alignment, twh__max(twh__dtype_bytes(desc->dtype), twh__dtype_bytes(desc->out_dtype)));
  if (desc->mask_modes & TWH_MASK_TENSOR) desc->alignment = twh__max(desc->alignment, twh__dtype_bytes(desc->mask_dtype));
  if (desc->flags & TWH_ORACLE_LSE) desc->alignment = twh__max(desc->alignment, (int64_t)sizeof(float));
  if (desc->max_calls_per_batch == 0) desc->max_calls_per_batch = INT64_MAX;
  if (desc->max_concurrent_batches == 0) desc->max_concurrent_batches = 1;
  if (!desc->submit != !desc->wait) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.%s is NULL; submit and wait must be given together",
                     desc->submit ? "wait" : "submit");
  }
  if (!desc->run && !desc->submit) {
    return twh__fail(error, TWH_E_ARGUMENT, "oracle.run is NULL; give run, or submit and wait");
  }
  return TWH_OK;
}

static twh_status contract_complete_operands(twh_oracle_desc *desc, twh_error *error)
{
  twh_status status;

  status = contract_complete_strides("q", desc->slots, desc->q_len, desc->qk_dim, desc->dtype, &desc->q_row_stride,
                                     &desc->q_slot_stride, error);
  if (TWH__FAILED(status)) return status;
  status = contract_complete_strides("k", desc->slots, desc->k_len, desc->qk_dim, desc->dtype, &desc->k_row_stride,
                                     &desc->k_slot_stride, error);
  if (TWH__FAILED(status)) return status;
  status = contract_complete_strides("v", desc->slots, desc->k_len, desc->v_dim, desc->dtype, &desc->v_row_stride,
                                     &desc->v_slot_stride, error);
  if (TWH__FAILED(status)) return status;
  return contract_complete_strides("out", desc->slots, desc->q_len, desc->v_dim, desc->out_dtype, &desc->out_row_stride,
                                   &desc->out_slot_stride, error);
}

static twh_status contract_complete_lengths(twh_oracle_desc *desc, twh_error *error)
{
  int        rows = (desc->flags & TWH_ORACLE_FEWER_ROWS) != 0, keys = (desc->flags & TWH_ORACLE_FEWER_KEYS) != 0;
  twh_status status;

  status = contract_complete_length("q_len", "TWH_ORACLE_FEWER_ROWS", rows, desc->q_len, &desc->q_len_min, &desc->q_len_step,
                                    error);
  if (TWH__FAILED(status)) return status;
  return contract_complete_length("k_len", "TWH_ORACLE_FEWER_KEYS", keys, desc->k_len, &desc->k_len_min, &desc->k_len_step,
                                  error);
}

twh_status twh__contract_complete(twh_oracle_desc *desc, twh_error *error)
{
  twh_status status;

  if (TWH__FAILED(status = contract_check_numbers(desc, error))) return status;
  if (TWH__FAILED(status = contract_check_flags(desc, error))) return status;
  if (TWH__FAILED(status = contract_complete_dtypes(desc, error))) return status;
  if (TWH__FAILED(status = contract_check_masks(desc, error))) return status;
  if (TWH__FAILED(status = contract_complete_scores(desc, error))) return status;
  if (TWH__FAILED(status = contract_complete_operands(desc, error))) return status;
  if (TWH__FAILED(status = contract_check_products(desc, error))) return status;
  if (TWH__FAILED(status = contract_complete_lengths(desc, error))) return status;
  return contract_complete_calls(desc, error);
}
