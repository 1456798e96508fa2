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
  const twh__cpu_lanes  *lanes = work->kernel->lanes;
  const twh_oracle_desc *desc = &work->kernel->desc;
  const twh_operand     *q = &work->calls[0]->q;
  const int64_t          at = (work->slot * q->slot_stride + i * q->row_stride) * twh__cpu_element(desc->dtype);
  float                 *packed = work->scratch->q + i * cpu_lone_padded(desc->qk_dim);
  memset(lone, 0, sizeof *lone);
  lanes->lone_pack(packed, (const char *)q->data + at, desc->dtype, desc->qk_dim, work->factor);
  lone->q = packed;
  lone->qk_dim = desc->qk_dim;
  lone->v_dim = desc->v_dim;
  lone->scores = work->scratch->scores;
  lone->out = work->scratch->out + i * cpu_lone_padded(desc->v_dim);
  lone->max = -FLT_MAX;
  lone->cap = work->cap;
  memset(lone->out, 0, (size_t)cpu_lone_padded(desc->v_dim) * sizeof(float));
  if (!work->continues) return;
  twh__cpu_load_lse(work, i, &lone->max, &lone->sum);
  if (lone->sum != 0.0f) lanes->lone_pack(lone->out, twh__cpu_out_at(work, i), desc->out_dtype, desc->v_dim, lone->sum);
}

/* As twh__cpu_store does it with a block. */
static void cpu_lone_finish(const twh__cpu_work *work, twh__cpu_lone *lone, int64_t i)
{
  const twh__cpu_lanes  *lanes = work->kernel->lanes;
  const twh_oracle_desc *desc = &work->kernel->desc;
  const int              sees = twh__cpu_sees(work, work->n, i);
  char                  *out = twh__cpu_out_at(work, i);
  float                  lse;
  int                    finite;
  if (work->continues && !sees) return;
  finite = lanes->lone_store(work->continues ? NULL : out, desc->out_dtype, lone);
  twh__cpu_make_lse(desc->flags, &lone->max, &lone->sum, 1, &lse);
  if (!finite || (lone->sum == 0.0f && sees)) {
    lse = twh__cpu_repair(work, i, work->scratch->row);
    for (int64_t c = 0; c < desc->v_dim; c++) lone->out[c] = (float)work->scratch->row[c];
    lone->sum = 1.0f;
    finite = 0;
  }
  if (!finite || work->continues) lanes->lone_store(out, desc->out_dtype, lone);
  if (desc->flags & TWH_ORACLE_LSE) *twh__cpu_lse_at(work, i) = lse;
}

/* The keys of one call. */
static void cpu_lone_walk(const twh__cpu_work *work, twh__cpu_lone *lone)
{
  const twh__cpu_lanes *lanes = work->kernel->lanes;
  const twh_call       *call = work->call;
  const int64_t         rows = call->q_len, seen = twh__cpu_keys_seen(work->kernel, call, rows - 1);
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
}

void twh__cpu_lone_rows(twh__cpu_work *work)
{
  const int64_t rows = work->calls[0]->q_len;
  twh__cpu_lone lone[TWH__CPU_LONE_ROWS];
  for (int64_t i = 0; i < rows; i++) cpu_lone_begin(work, &lone[i], i);
  for (work->at = 0; work->at < work->n; work->at++) {
    work->call = work->calls[work->at];
    cpu_lone_walk(work, lone);
  }
  for (int64_t i = 0; i < rows; i++) cpu_lone_finish(work, &lone[i], i);
}
