/* softmax(scale q k^T) v for one slot: blocks of queries, a tile of keys at a time, never more scores than those of one of
 * each.
 *
 * The blocks take turns at a tile, so that keys and values are converted (bf16, f16) and come into the cache once for all of
 * them. q is packed with the scale and log2(e) in it, so that weights are powers of two and need no more. A causal block stops
 * at the last key that one of its queries sees, and in the tile that the diagonal crosses each register stops on its own.
 * A row's arithmetic depends on its slot alone, so the rest of the batch cannot change its bits. */
#include "cpu/slot.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double cpu_slot_log2_e = 1.44269504088896340736, cpu_slot_ln_2 = 0.69314718055994530942;

/* Numbers of q and out that go through the keys together, 256 KiB in f32: a part of the second-level cache. */
static const int64_t cpu_slot_numbers = 1 << 16, cpu_slot_blocks_max = 12;

int64_t twh__cpu_blocks(const twh_oracle_desc *desc, int64_t width)
{
  const int64_t dim =
    desc->qk_dim > cpu_slot_numbers || desc->v_dim > cpu_slot_numbers ? cpu_slot_numbers : desc->qk_dim + desc->v_dim;
  const int64_t all = (desc->q_len - 1) / width + 1;
  int64_t       blocks = cpu_slot_numbers / (dim * width);
  blocks = blocks < 1                                              ? 1
           : blocks > cpu_slot_blocks_max * TWH__CPU_WIDTH / width ? cpu_slot_blocks_max * TWH__CPU_WIDTH / width
                                                                   : blocks;
  return blocks < all ? blocks : all;
}

int64_t twh__cpu_keys_seen(const twh__cpu_kernel *kernel, const twh_call *call, int64_t i)
{
  const int64_t k_len = call->k_len, offset = kernel->desc.causal_offset;
  if (call->mask_mode != TWH_MASK_CAUSAL || offset >= k_len) return k_len;
  if (offset < -i) return 0;
  return i + offset + 1 < k_len ? i + offset + 1 : k_len;
}

static size_t cpu_slot_element(int32_t dtype)
{
  return dtype == TWH_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Scores are in units of log2; before a cap they are twice what its hyperbolic tangent is taken of, in those units. */
static void cpu_slot_scale(twh__cpu_work *work)
{
  const twh_oracle_desc *desc = &work->kernel->desc;
  const double           scale = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? work->call->scale : desc->scale;
  const int              capped = desc->softcap > 0.0;
  work->factor = (float)(capped ? 2.0 * cpu_slot_log2_e * scale / desc->softcap : cpu_slot_log2_e * scale);
  work->cap = capped ? (float)(cpu_slot_log2_e * desc->softcap) : 0.0f;
}

/* Queries of a block, and how many they are. Four registers of queries at the end are two blocks of two: better than one of
 * three and one that waits for a single chain of sums. */
static int64_t cpu_slot_block(const twh__cpu_work *work, int64_t block, int64_t *rows)
{
  const int64_t width = work->kernel->lanes->width, lane = width / TWH__CPU_VECTORS;
  const int64_t registers = (work->rows - 1) / lane + 1;
  int64_t       begin = block * width, end = begin + width;
  if (registers > 1 && registers % TWH__CPU_VECTORS == 1) {
    if (block >= work->blocks - 2) end = (registers - 2) * lane;
    if (block == work->blocks - 1) {
      begin = end;
      end = work->rows;
    }
  }
  *rows = (end < work->rows ? end : work->rows) - begin;
  return work->first + begin;
}

static void cpu_slot_begin(const twh__cpu_work *work)
{
  const twh__cpu_lanes  *lanes = work->kernel->lanes;
  const twh_oracle_desc *desc = &work->kernel->desc;
  const twh_operand     *q = &work->call->q;
  const int64_t          width = lanes->width;
  const size_t           element = cpu_slot_element(desc->dtype);
  for (int64_t block = 0; block < work->blocks; block++) {
    twh__cpu_rows rows;
    const int64_t row = cpu_slot_block(work, block, &rows.rows), at = work->slot * q->slot_stride + row * q->row_stride;
    rows.data = (void *)(uintptr_t)((const char *)q->data + at * (int64_t)element);
    rows.stride = q->row_stride;
    rows.dim = desc->qk_dim;
    rows.dtype = desc->dtype;
    lanes->pack(work->scratch->q + block * desc->qk_dim * width, &rows, work->factor);
    if (twh__cpu_keys_seen(work->kernel, work->call, row + rows.rows - 1) == 0)
      memset(work->scratch->out + block * desc->v_dim * width, 0, (size_t)(desc->v_dim * width) * sizeof(float));
  }
  memset(work->scratch->sum, 0, (size_t)(work->blocks * width) * sizeof(float));
  for (int64_t i = 0; i < work->blocks * width; i++) work->scratch->max[i] = -FLT_MAX;
}

/* Rows begin .. begin + keys - 1 of k or v: where they lie, or a copy in f32. */
static const float *cpu_slot_operand(const twh__cpu_work *work, const twh_operand *operand, int64_t begin, int64_t keys,
                                     int64_t dim, float *copy, int64_t *stride)
{
  const int32_t dtype = work->kernel->desc.dtype;
  const int64_t at = work->slot * operand->slot_stride + begin * operand->row_stride;
  const char   *from = (const char *)operand->data + at * (int64_t)cpu_slot_element(dtype);
  *stride = operand->row_stride;
  if (dtype == TWH_F32) return (const float *)(const void *)from;
  *stride = dim;
  if (operand->row_stride == dim)
    work->kernel->lanes->widen(copy, from, dtype, keys * dim);
  else
    for (int64_t j = 0; j < keys; j++)
      work->kernel->lanes->widen(copy + j * dim, from + j * operand->row_stride * (int64_t)sizeof(uint16_t), dtype, dim);
  return copy;
}

void twh__cpu_operands(const twh__cpu_work *work, int64_t begin, int64_t keys, twh__cpu_tile *tile)
{
  const twh_call        *call = work->call;
  const twh_oracle_desc *desc = &work->kernel->desc;
  tile->k = cpu_slot_operand(work, &call->k, begin, keys, desc->qk_dim, work->scratch->k, &tile->k_stride);
  tile->v = cpu_slot_operand(work, &call->v, begin, keys, desc->v_dim, work->scratch->v, &tile->v_stride);
}

const void *twh__cpu_mask_at(const twh__cpu_work *work, int64_t i, int64_t j)
{
  const twh_operand *mask = &work->call->mask;
  const int32_t      dtype = work->kernel->desc.mask_dtype;
  const int64_t      at = work->slot * mask->slot_stride + i * mask->row_stride + j;
  return (const char *)mask->data + at * (dtype == TWH_BOOL ? 1 : (int64_t)cpu_slot_element(dtype));
}

/* One block and the tile of keys from `begin` on. */
static void cpu_slot_step(const twh__cpu_work *work, int64_t block, int64_t begin, int64_t keys, twh__cpu_tile *tile)
{
  const twh__cpu_lanes *lanes = work->kernel->lanes;
  const int64_t         width = lanes->width, lane = width / TWH__CPU_VECTORS;
  const int             masked = work->call->mask_mode == TWH_MASK_TENSOR;
  twh__cpu_rows         mask;
  const int64_t         row = cpu_slot_block(work, block, &mask.rows);
  tile->vectors = (mask.rows - 1) / lane + 1;
  for (int64_t n = 0; n < tile->vectors; n++) {
    const int64_t last = n == tile->vectors - 1 ? mask.rows : (n + 1) * lane;
    const int64_t seen = twh__cpu_keys_seen(work->kernel, work->call, row + last - 1) - begin;
    tile->seen[n] = seen < 0 ? 0 : seen < keys ? seen : keys;
  }
  if (tile->seen[tile->vectors - 1] == 0) return;
  tile->limit = keys;
  if (work->call->mask_mode == TWH_MASK_CAUSAL && work->kernel->desc.causal_offset < work->call->k_len) {
    const int64_t limit = row + work->kernel->desc.causal_offset + 1 - begin;
    tile->limit = limit < keys ? limit : keys;
  }
  tile->fresh = begin == 0; /* what a row sees is a prefix */
  tile->q = work->scratch->q + block * tile->qk_dim * width;
  tile->out = work->scratch->out + block * tile->v_dim * width;
  tile->max = work->scratch->max + block * width;
  tile->sum = work->scratch->sum + block * width;
  lanes->scores(tile);
  if (work->cap > 0.0f) lanes->cap(tile);
  if (masked) {
    mask.data = (void *)(uintptr_t)twh__cpu_mask_at(work, row, begin);
    mask.stride = work->call->mask.row_stride;
    mask.dim = keys;
    mask.dtype = work->kernel->desc.mask_dtype;
    lanes->mask(tile, &mask);
  } else if (work->cap > 0.0f)
    lanes->top(tile);
  lanes->weights(tile);
  lanes->values(tile);
}

/* log2 of a positive number, in float64 and vectorisable: 2^e f with f near 1, and the series of the area tangent. */
static double cpu_slot_log2(float x)
{
  uint32_t bits;
  double   f, z, square;
  float    part;
  int32_t  e;
  memcpy(&bits, &x, sizeof bits);
  e = (int32_t)((bits - 0x3f3504f3u) >> 23 << 23);
  bits -= (uint32_t)e;
  memcpy(&part, &bits, sizeof part);
  f = (double)part;
  z = (f - 1.0) / (f + 1.0);
  square = z * z;
  f = 1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0 + square * (1.0 / 11.0)))));
  return (double)(e / 8388608) + 2.0 * cpu_slot_log2_e * z * f;
}

void twh__cpu_store_lse(uint32_t flags, const float *max, const float *sum, int64_t n, float *lse)
{
  const double unit = flags & TWH_ORACLE_LSE_BASE2 ? 1.0 : cpu_slot_ln_2;
  const float  empty = flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? INFINITY : -INFINITY;
  for (int64_t i = 0; i < n; i++) lse[i] = (float)(((double)max[i] + cpu_slot_log2(sum[i])) * unit);
  for (int64_t i = 0; i < n; i++) lse[i] = sum[i] > 0.0f ? lse[i] : empty;
}

/* Store out and lse of one block. */
static void cpu_slot_finish(const twh__cpu_work *work, int64_t block)
{
  const twh__cpu_lanes  *lanes = work->kernel->lanes;
  const twh_oracle_desc *desc = &work->kernel->desc;
  const twh_call        *call = work->call;
  const int64_t          width = lanes->width;
  const float           *max = work->scratch->max + block * width, *sum = work->scratch->sum + block * width;
  float                 *broken = work->scratch->top;
  twh__cpu_rows          rows;
  const int64_t          row = cpu_slot_block(work, block, &rows.rows);
  const int64_t          at = work->slot * call->out_slot_stride + row * call->out_row_stride;
  rows.data = (char *)call->out + at * (int64_t)cpu_slot_element(desc->out_dtype);
  rows.stride = call->out_row_stride;
  rows.dim = desc->v_dim;
  rows.dtype = desc->out_dtype;
  lanes->store(&rows, work->scratch->out + block * desc->v_dim * width, sum, broken);
  if (desc->flags & TWH_ORACLE_LSE)
    twh__cpu_store_lse(desc->flags, max, sum, rows.rows, call->lse + work->slot * call->lse_slot_stride + row);
  for (int64_t i = 0; i < rows.rows; i++)
    if (broken[i] != 0.0f || (sum[i] == 0.0f && twh__cpu_keys_seen(work->kernel, call, row + i) > 0))
      twh__cpu_repair(work->kernel, call, work->slot, row + i, work->scratch->row);
}

void twh__cpu_slot(const twh__cpu_kernel *kernel, const twh_call *call, int64_t slot, twh__cpu_scratch *scratch)
{
  const twh_oracle_desc *desc = &kernel->desc;
  const int64_t          width = kernel->lanes->width, most = kernel->blocks * width;
  twh__cpu_tile          tile;
  twh__cpu_work          work;
  memset(&work, 0, sizeof work);
  work.kernel = kernel;
  work.call = call;
  work.scratch = scratch;
  work.slot = slot;
  cpu_slot_scale(&work);
  if (call->q_len <= TWH__CPU_LONE_ROWS) {
    twh__cpu_lone_rows(&work);
    return;
  }
  memset(&tile, 0, sizeof tile);
  tile.qk_dim = desc->qk_dim;
  tile.v_dim = desc->v_dim;
  tile.scores = scratch->scores;
  tile.top = scratch->top;
  tile.decay = scratch->decay;
  tile.cap = work.cap;
  for (work.first = 0; work.first < call->q_len; work.first += most) {
    int64_t seen;
    work.rows = call->q_len - work.first < most ? call->q_len - work.first : most;
    work.blocks = (work.rows - 1) / width + 1;
    seen = twh__cpu_keys_seen(kernel, call, work.first + work.rows - 1);
    cpu_slot_begin(&work);
    for (int64_t begin = 0; begin < seen; begin += TWH__CPU_KEYS) {
      const int64_t keys = seen - begin < TWH__CPU_KEYS ? seen - begin : TWH__CPU_KEYS;
      twh__cpu_operands(&work, begin, keys, &tile);
      for (int64_t block = 0; block < work.blocks; block++) cpu_slot_step(&work, block, begin, keys, &tile);
    }
    for (int64_t block = 0; block < work.blocks; block++) cpu_slot_finish(&work, block);
  }
}
