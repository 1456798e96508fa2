/* The ways of lowering, and what they choose from a kernel's description.
 *
 * A way says which mask mode computes a tile that all its rows see whole, and which one a tile that the diagonal cuts.
 * Everything else (grid, reading, treatment of short tiles) follows from the descriptions. */
#include <math.h>
#include <string.h>

#include "core/lower/lower.h"

typedef struct lower_way {
  int32_t full_mode, cut_mode;
} lower_way;

/* The cheapest wins; a later one must be cheaper by more than a trifle. */
static const lower_way lower_table[] = {
  { TWH_MASK_NONE, TWH_MASK_CAUSAL },
  { TWH_MASK_NONE, TWH_MASK_TENSOR },
  { TWH_MASK_TENSOR, TWH_MASK_TENSOR },
  { TWH_MASK_CAUSAL, TWH_MASK_CAUSAL }, /* whole tiles twice, in natural and in reversed order */
  { TWH_MASK_NONE, TWH_MASK_NONE },     /* triangles as staircases of codes */
};

int32_t twh__lower_ways(void)
{
  return (int32_t)(sizeof lower_table / sizeof lower_table[0]);
}

/* Whether the causal mask, if there is one, is one that lower triangles can use. */
static int lower_has_causal(const twh_oracle_desc *desc)
{
  return (desc->mask_modes & TWH_MASK_CAUSAL) && desc->causal_offset <= 0 && desc->q_len + desc->causal_offset >= 1;
}

static twh_status lower_check_mask(const twh_oracle_desc *desc, const twh__shape *shape, twh_error *error)
{
  if (shape->mask_dtype != 0) {
    if (!(desc->mask_modes & TWH_MASK_TENSOR)) {
      return twh__fail(error, TWH_E_UNSUPPORTED,
                       "problem.mask_dtype: a mask tensor needs a kernel with TWH_MASK_TENSOR in mask_modes");
    }
    if (shape->mask_dtype != TWH_BOOL && desc->mask_dtype == TWH_BOOL) {
      return twh__fail(error, TWH_E_UNSUPPORTED, "problem.mask_dtype is additive; oracle.mask_dtype is TWH_BOOL");
    }
  } else if (desc->mask_modes == TWH_MASK_CAUSAL && !lower_has_causal(desc)) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "oracle.causal_offset is %lld; only 0 and less, within q_len, can be used",
                     (long long)desc->causal_offset);
  }
  return TWH_OK;
}

/* Coordinates that carry a key's bias with the accuracy of f32: as many as the dtype's mantissas add up to 24 bits. */
static int32_t lower_bias_parts(const twh_oracle_desc *desc, const twh__shape *shape)
{
  if (!shape->key_bias && !shape->alibi) return 0;
  return desc->dtype == TWH_F32 ? 1 : 3;
}

static twh_status lower_check_bias(const twh_oracle_desc *desc, const twh__shape *shape, twh_error *error)
{
  const char *name = shape->alibi ? "TWH_PROBLEM_ALIBI" : "TWH_PROBLEM_KEY_BIAS";
  int64_t     parts = lower_bias_parts(desc, shape);

  if (parts == 0) return TWH_OK;
  if (desc->qk_dim < shape->qk_dim + parts) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "problem.flags: %s needs %lld spare coordinate%s: oracle.qk_dim is %lld, "
                     "problem.qk_dim %lld", name, (long long)parts, parts == 1 ? "" : "s", (long long)desc->qk_dim,
                     (long long)shape->qk_dim);
  }
  if (shape->scale == 0 && (desc->flags & TWH_ORACLE_SCALE_PER_CALL)) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "problem.scale is 0: %s reaches the scores through the kernel's scale", name);
  }
  return TWH_OK;
}

twh_status twh__lower_check(const twh_oracle_desc *desc, const twh__shape *shape, twh_error *error)
{
  twh_status status;

  if (desc->qk_dim < shape->qk_dim) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "oracle.qk_dim is %lld, less than problem.qk_dim %lld", (long long)desc->qk_dim,
                     (long long)shape->qk_dim);
  }
  if (desc->softcap != shape->softcap) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "problem.softcap is %g, the kernel's (oracle.softcap) is %g", shape->softcap,
                     desc->softcap);
  }
  if (!(desc->flags & TWH_ORACLE_SCALE_PER_CALL) && !isfinite(shape->scale / desc->scale)) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "problem.scale / oracle.scale is not finite");
  }
  status = lower_check_bias(desc, shape, error);
  return TWH__FAILED(status) ? status : lower_check_mask(desc, shape, error);
}

/* Codes: in one spare coordinate some queries carry -B and some keys B (or the other way for a negative scale), everything else
 * 0; the pairs of those get a score of -|scale| B^2 more, and their weight is exactly 0. B depends on the dtype and the scale
 * alone. */
static void lower_choose_code(twh__lowering *lowering, const twh__shape *shape)
{
  double scale = fabs(lowering->kernel_scale), code;

  lowering->codes = (int32_t)twh__min(lowering->qk_dim - shape->qk_dim - lowering->bias_parts, 1 << 20);
  if (lowering->codes < 1 || lowering->softcap != 0 || scale == 0) return;
  if (lowering->dtype == TWH_F16) {
    code = 0x1p15;
    while (1.5 * code * fmax(1, scale) > 65504) code /= 2;
    if (scale * code * code < 0x1p17 + 256) return;
  } else {
    code = ldexp(1, (int)fmin(60, floor((100 - log2(scale)) / 2)));
    if (scale * code * code < 0x1p64) return;
  }
  lowering->code = code;
  /* two scores of rows and keys up to this norm differ by less than a code hides */
  lowering->code_norm = sqrt((code * code - 256 / scale) / 2);
}

static void lower_choose_reading(twh__lowering *lowering, const twh__shape *shape, int lse)
{
  int64_t spare;

  lowering->values_parts = twh__ceil_div(shape->v_dim, lowering->v_dim);
  spare = lowering->values_parts * lowering->v_dim - shape->v_dim;
  if (lse) {
    lowering->reading = TWH__READ_LSE;
    lowering->share_reading = spare >= 1 ? TWH__READ_LSE_SHARE : TWH__READ_BUCKET;
  } else {
    lowering->reading = spare >= 1 ? TWH__READ_ANCHOR : TWH__READ_BUCKET;
    lowering->share_reading = spare >= 2 ? TWH__READ_ANCHOR_SHARE : TWH__READ_BUCKET;
  }
  if (lowering->dtype == TWH_F16 || lowering->out_dtype == TWH_F16) {
    lowering->flag_below = 0x1p-13; /* f16 holds weights down to 2^-14 with all their bits */
    lowering->anchors = TWH__MAX_ANCHORS;
  } else {
    lowering->flag_below = 1e-30;
    lowering->anchors = 1;
  }
}

static void lower_read_kernel(twh__lowering *lowering, const twh_oracle_desc *desc, const twh__shape *shape)
{
  lowering->slots = desc->slots;
  lowering->q_len = desc->q_len;
  lowering->k_len = desc->k_len;
  lowering->qk_dim = desc->qk_dim;
  lowering->v_dim = desc->v_dim;
  if (desc->slots == 1) { /* a call has one length for all its slots */
    if (desc->flags & TWH_ORACLE_FEWER_ROWS) lowering->q_len_min = twh__max(1, desc->q_len_min);
    if (desc->flags & TWH_ORACLE_FEWER_KEYS) lowering->k_len_min = twh__max(1, desc->k_len_min);
  }
  lowering->q_len_step = twh__max(1, desc->q_len_step);
  lowering->k_len_step = twh__max(1, desc->k_len_step);
  lowering->dtype = desc->dtype;
  lowering->out_dtype = desc->out_dtype;
  lowering->mask_dtype = desc->mask_dtype;
  if (desc->mask_value != 0 && desc->mask_dtype != TWH_BOOL) { /* as the mask's own dtype holds it */
    unsigned char bytes[8];
    twh__store(bytes, desc->mask_dtype, 0, desc->mask_value);
    lowering->mask_value = twh__load(bytes, desc->mask_dtype, 0);
  }
  lowering->kernel_scale = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? shape->scale : desc->scale;
  lowering->q_factor = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? 1 : shape->scale / desc->scale;
  lowering->power = 1;
  lowering->softcap = desc->softcap;
  lowering->lse_base2 = (desc->flags & TWH_ORACLE_LSE_BASE2) != 0;
  lowering->f16_scores = (desc->flags & TWH_ORACLE_F16_SCORES) != 0;
  lowering->alibi = shape->alibi;
  lowering->bias_parts = lower_bias_parts(desc, shape);
}

int twh__lower_make(twh__lowering *lowering, int32_t way, const twh_oracle_desc *desc, const twh__shape *shape,
                    const twh__needs *needs)
{
  const lower_way *row = &lower_table[way];
  uint32_t         needed = (uint32_t)row->full_mode | (needs->cuts ? (uint32_t)row->cut_mode : 0);
  int64_t          side = twh__min(desc->q_len + desc->causal_offset, desc->k_len);

  if ((needed & desc->mask_modes) != needed) return 0;
  if ((needed & TWH_MASK_CAUSAL) && !lower_has_causal(desc)) return 0;
  /* stairs take a mask's place, and leave work to the host: not where there is a mask */
  if (needs->cuts && row->cut_mode == TWH_MASK_NONE && (lower_has_causal(desc) || (desc->mask_modes & TWH_MASK_TENSOR))) return 0;
  if (shape->mask_dtype != 0 && needed != TWH_MASK_TENSOR) return 0;
  memset(lowering, 0, sizeof *lowering);
  lower_read_kernel(lowering, desc, shape);
  lowering->way = way;
  lowering->full_mode = row->full_mode;
  lowering->cut_mode = needs->cuts ? row->cut_mode : TWH_MASK_NONE;
  lowering->grid.q_block = desc->q_len;
  lowering->grid.k_block = desc->k_len;
  lowering->grid.chunk = 1;
  if (row->full_mode != TWH_MASK_CAUSAL) {
    lowering->grid.full_q = desc->q_len;
    lowering->grid.full_k = desc->k_len;
  }
  if (needed & TWH_MASK_CAUSAL) {
    lowering->shift = -desc->causal_offset;
    lowering->grid.q_block = lowering->grid.k_block = side;
  }
  lower_choose_code(lowering, shape);
  lower_choose_reading(lowering, shape, (desc->flags & TWH_ORACLE_LSE) != 0);
  if (needs->cuts && row->cut_mode == TWH_MASK_NONE) twh__lower_stairs(lowering, needs);
  if (needs->width > 0) twh__lower_chunk(lowering, needs);
  return 1;
}

void twh__lower_square(twh__lowering *lowering, const twh_oracle_desc *desc, const twh__shape *shape, const twh__needs *needs)
{
  (void)twh__lower_make(lowering, lowering->way, desc, shape, needs); /* it has been made before */
  lowering->power = 2;
  lowering->q_factor *= 2;
}
