/* softmax(scale q k^T) v for a slot of few queries, one after the other within a tile of keys: what slot.c does, with vectors
 * along the coordinates. */
#include "cpu/slot.h"

#include <float.h>
#include <string.h>

/* Rows of packed q and of out begin at whole vectors of the widest registers. */
static int64_t cpu_lone_padded(int64_t dim)
{
  return (dim + 15) / 16 * 16;
}

static void cpu_lone_begin(const twh__cpu_work *work, twh__cpu_lone *lone, int64_t i)
{
  const twh_oracle_desc *desc = &work->kernel->desc;
  const twh_operand     *q = &work->call->q;
  const int64_t          at = (work->slot * q->slot_stride + i * q->row_stride) * (desc->dtype == TWH_F32 ? 4 : 2);
  float                 *packed = work->scratch->q + i * cpu_lone_padded(desc->qk_dim);
  memset(lone, 0, sizeof *lone);
  work->kernel->lanes->lone_pack(packed, (const char *)q->data + at, desc->dtype, desc->qk_dim, work->factor);
  lone->q = packed;
  lone->qk_dim = desc->qk_dim;
  lone->v_dim = desc->v_dim;
  lone->scores = work->scratch->scores;
  lone->out = work->scratch->out + i * cpu_lone_padded(desc->v_dim);
  lone->max = -FLT_MAX;
  lone->cap = work->cap;
  memset(lone->out, 0, (size_t)cpu_lone_padded(desc->v_dim) * sizeof(float));
}

static void cpu_lone_finish(const twh__cpu_work *work, const twh__cpu_lone *lone, int64_t i)
{
  const twh_oracle_desc *desc = &work->kernel->desc;
  const twh_call        *call = work->call;
  const int64_t          at = work->slot * call->out_slot_stride + i * call->out_row_stride;
  char                  *out = (char *)call->out + at * (desc->out_dtype == TWH_F32 ? 4 : 2);
  const int              finite = work->kernel->lanes->lone_store(out, desc->out_dtype, lone);
  if (desc->flags & TWH_ORACLE_LSE)
    twh__cpu_store_lse(desc->flags, &lone->max, &lone->sum, 1, call->lse + work->slot * call->lse_slot_stride + i);
  if (!finite || (lone->sum == 0.0f && twh__cpu_keys_seen(work->kernel, call, i) > 0))
    twh__cpu_repair(work->kernel, call, work->slot, i, work->scratch->row);
}

void twh__cpu_lone_rows(const twh__cpu_work *work)
{
  const twh__cpu_lanes *lanes = work->kernel->lanes;
  const twh_call       *call = work->call;
  const int64_t         rows = call->q_len, seen = twh__cpu_keys_seen(work->kernel, call, rows - 1);
  twh__cpu_lone         lone[TWH__CPU_LONE_ROWS];
  for (int64_t i = 0; i < rows; i++) cpu_lone_begin(work, &lone[i], i);
  for (int64_t begin = 0; begin < seen; begin += TWH__CPU_KEYS) {
    const int64_t keys = seen - begin < TWH__CPU_KEYS ? seen - begin : TWH__CPU_KEYS;
    twh__cpu_tile tile;
    twh__cpu_operands(work, begin, keys, &tile);
    for (int64_t i = 0; i < rows; i++) {
      const int64_t left = twh__cpu_keys_seen(work->kernel, call, i) - begin;
      if (left <= 0) continue;
      lone[i].keys = left < keys ? left : keys;
      lone[i].k = tile.k;
      lone[i].v = tile.v;
      lone[i].k_stride = tile.k_stride;
      lone[i].v_stride = tile.v_stride;
      lanes->lone_scores(&lone[i]);
      if (call->mask_mode == TWH_MASK_TENSOR)
        lanes->lone_mask(&lone[i], twh__cpu_mask_at(work, i, begin), work->kernel->desc.mask_dtype);
      lanes->lone_weights(&lone[i]);
      lanes->lone_values(&lone[i]);
    }
  }
  for (int64_t i = 0; i < rows; i++) cpu_lone_finish(work, &lone[i], i);
}
