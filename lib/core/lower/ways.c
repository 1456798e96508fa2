/* The ways of lowering, and what they choose from a kernel's description.
 *
 * A way says which mask mode computes a tile that all its rows see whole, and which one a tile that the diagonal cuts.
 * Everything else (grid, reading, treatment of short tiles) follows from the descriptions. */
#include <math.h>
#include <string.h>

#include "core/lower/lower.h"

typedef struct lower_way {
  int32_t full_mode, lower_mode;
} lower_way;

/* Cheapest wins; among equals the earlier one. */
static const lower_way lower_table[] = {
  { TWH_MASK_NONE, TWH_MASK_CAUSAL },
  { TWH_MASK_NONE, TWH_MASK_TENSOR },
  { TWH_MASK_TENSOR, TWH_MASK_TENSOR },
  { TWH_MASK_CAUSAL, TWH_MASK_CAUSAL }, /* whole tiles twice, in natural and in reversed order */
};

int32_t twh__lower_ways(void)
{
  return (int32_t)(sizeof lower_table / sizeof lower_table[0]);
}

static twh_status lower_check_mask(const twh_oracle_desc *desc, const twh__shape *shape, int any_causal, twh_error *error)
{
  uint32_t usable = desc->mask_modes;

  if (shape->mask_dtype != 0) {
    if (!(usable & TWH_MASK_TENSOR)) {
      return twh__fail(error, TWH_E_UNSUPPORTED,
                       "problem.mask_dtype: a mask tensor needs a kernel with TWH_MASK_TENSOR in mask_modes");
    }
    if (shape->mask_dtype != TWH_BOOL && desc->mask_dtype == TWH_BOOL) {
      return twh__fail(error, TWH_E_UNSUPPORTED, "problem.mask_dtype is additive; oracle.mask_dtype is TWH_BOOL");
    }
    return TWH_OK;
  }
  if ((usable & TWH_MASK_CAUSAL) && (desc->causal_offset > 0 || desc->q_len + desc->causal_offset < 1)) {
    usable &= ~(uint32_t)TWH_MASK_CAUSAL;
    if (usable == 0) {
      return twh__fail(error, TWH_E_UNSUPPORTED, "oracle.causal_offset is %lld; only 0 and less, within q_len, can be used",
                       (long long)desc->causal_offset);
    }
  }
  if (any_causal && !(usable & (TWH_MASK_CAUSAL | TWH_MASK_TENSOR))) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "problem.pattern is causal; oracle.mask_modes needs TWH_MASK_CAUSAL (with "
                     "causal_offset <= 0) or TWH_MASK_TENSOR");
  }
  return TWH_OK;
}

twh_status twh__lower_check(const twh_oracle_desc *desc, const twh__shape *shape, int any_causal, twh_error *error)
{
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
  return lower_check_mask(desc, shape, any_causal, error);
}

/* The code of dead pads: queries carry -B, pads +B (or the other way for a negative scale) in one spare coordinate, everything
 * else 0 there; a pad's score is then -|scale| B^2 and its weight exactly 0. 0: the kernel cannot. */
static double lower_dead_code(const twh__lowering *lowering, const twh__shape *shape)
{
  double scale = fabs(lowering->kernel_scale), code;

  if (lowering->qk_dim <= shape->qk_dim || lowering->softcap != 0 || scale == 0) return 0;
  if (lowering->dtype == TWH_F16) {
    code = 0x1p15;
    while (1.5 * code * fmax(1, scale) > 65504) code /= 2;
    return scale * code * code >= 0x1p17 + 256 ? code : 0;
  }
  code = ldexp(1, (int)fmin(60, floor((100 - log2(scale)) / 2)));
  return scale * code * code >= 0x1p64 ? code : 0;
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

int twh__lower_make(twh__lowering *lowering, int32_t way, const twh_oracle_desc *desc, const twh__shape *shape, int any_causal)
{
  const lower_way *row = &lower_table[way];
  uint32_t         needed = (uint32_t)row->full_mode | (any_causal ? (uint32_t)row->lower_mode : 0);
  int64_t          side = twh__min(desc->q_len + desc->causal_offset, desc->k_len);

  if ((needed & desc->mask_modes) != needed) return 0;
  if ((needed & TWH_MASK_CAUSAL) && (desc->causal_offset > 0 || side < 1)) return 0;
  if (shape->mask_dtype != 0 && needed != TWH_MASK_TENSOR) return 0;
  memset(lowering, 0, sizeof *lowering);
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
  lowering->softcap = desc->softcap;
  lowering->lse_base2 = (desc->flags & TWH_ORACLE_LSE_BASE2) != 0;
  lowering->f16_scores = (desc->flags & TWH_ORACLE_F16_SCORES) != 0;
  lowering->full_mode = row->full_mode;
  lowering->lower_mode = row->lower_mode;
  lowering->q_block = desc->q_len;
  lowering->k_block = desc->k_len;
  if (needed & TWH_MASK_CAUSAL) {
    lowering->shift = -desc->causal_offset;
    lowering->q_block = lowering->k_block = side;
  }
  lowering->dead = lower_dead_code(lowering, shape);
  lower_choose_reading(lowering, shape, (desc->flags & TWH_ORACLE_LSE) != 0);
  return 1;
}
