/* softmax(scale q k^T) v for one slot: blocks of queries, a tile of keys at a time, never more scores than those of one of
 * each.
 *
 * The blocks take turns at a tile, so that keys and values are converted (bf16, f16) and come into the cache once for all of
 * them. q is packed with the scale and log2(e) in it, so that weights are powers of two and need no more. A causal block stops
 * at the last key that one of its queries sees, and in the tile that the diagonal crosses each register stops on its own.
 *
 * Calls of a batch that continue one another are one walk: q is packed once, the keys of call after call go by, and the state
 * stays packed until it is stored behind the last one. So it is never rounded in between, and a chain's bits are not those of
 * its calls one at a time. A row's arithmetic depends on its slot and its chain alone, and where a chain begins and ends on its
 * own calls: whatever else is in the batch cannot change a bit. */
#include "cpu/slot.h"

#include <math.h>
#include <string.h>

static const double cpu_slot_log2_e = 1.44269504088896340736;

/* Numbers of q and out that go through the keys together, 512 KiB in f32 and an eighth: a good half of the second-level cache. So
 * 512 queries of 128 coordinates walk over the keys once, which in a chain are too many to be in that cache for a second walk. */
static const int64_t cpu_slot_numbers = (1 << 17) + (1 << 14), cpu_slot_blocks_max = 12;

int64_t twh__cpu_blocks(const twh_oracle_desc *desc, int64_t width)
{
  const int64_t dim =
    desc->qk_dim > cpu_slot_numbers || desc->v_dim > cpu_slot_numbers ? cpu_slot_numbers : desc->qk_dim + desc->v_dim;
  const int64_t all = (desc->q_len - 1) / width + 1, most = cpu_slot_blocks_max * TWH__CPU_WIDTH / width;
  int64_t       blocks = cpu_slot_numbers / (dim * width);
  blocks = blocks < 1 ? 1 : blocks < most ? blocks : most;
  return blocks < all ? blocks : all;
}

int64_t twh__cpu_keys_seen(const twh__cpu_kernel *kernel, const twh_call *call, int64_t i)
{
  const int64_t k_len = call->k_len, offset = kernel->desc.causal_offset;
  if (call->mask_mode != TWH_MASK_CAUSAL || offset >= k_len) return k_len;
  if (offset < -i) return 0;
  return i + offset + 1 < k_len ? i + offset + 1 : k_len;
}

int twh__cpu_sees(const twh__cpu_work *work, int64_t n, int64_t i)
{
  for (int64_t at = 0; at < n; at++)
    if (twh__cpu_keys_seen(work->kernel, work->calls[at], i) > 0) return 1;
  return 0;
}

static int cpu_slot_continues(const twh__cpu_kernel *kernel, const twh_call *call)
{
  return kernel->desc.flags & TWH_ORACLE_CONTINUES && call->flags & TWH_CALL_CONTINUES;
}

/* Whether `next` goes on from the results of `call` with the same queries. */
static int cpu_slot_follows(const twh__cpu_kernel *kernel, const twh_call *call, const twh_call *next)
{
  const int64_t stride = cpu_slot_continues(kernel, call) ? call->lse_row_stride : 1;
  if (!cpu_slot_continues(kernel, next) || next->slots != call->slots || next->q_len != call->q_len) return 0;
  if (next->q.data != call->q.data || next->out != call->out || next->lse != call->lse) return 0;
  if (next->q.slot_stride != call->q.slot_stride || next->q.row_stride != call->q.row_stride) return 0;
  if (next->out_slot_stride != call->out_slot_stride || next->out_row_stride != call->out_row_stride) return 0;
  if (next->lse_slot_stride != call->lse_slot_stride || next->lse_row_stride != stride) return 0;
  return !(kernel->desc.flags & TWH_ORACLE_SCALE_PER_CALL) || next->scale == call->scale;
}

int64_t twh__cpu_chain(const twh__cpu_kernel *kernel, const twh_call *const *calls, int64_t n)
{
  int64_t count = 1;
  while (count < n && cpu_slot_follows(kernel, calls[count - 1], calls[count])) count++;
  return count;
}

int64_t twh__cpu_element(int32_t dtype)
{
  return dtype == TWH_F32 ? 4 : 2;
}

/* Scores are in units of log2; before a cap they are twice what its hyperbolic tangent is taken of, in those units. */
static void cpu_slot_scale(twh__cpu_work *work)
{
  const twh_oracle_desc *desc = &work->kernel->desc;
  const double           scale = desc->flags & TWH_ORACLE_SCALE_PER_CALL ? work->calls[0]->scale : desc->scale;
  const int              capped = desc->softcap > 0.0;
  work->factor = (float)(capped ? 2.0 * cpu_slot_log2_e * scale / desc->softcap : cpu_slot_log2_e * scale);
  work->cap = capped ? (float)(cpu_slot_log2_e * desc->softcap) : 0.0f;
}

/* Four registers of queries at the end are two blocks of two: better than one of three and one that waits for a single chain of
 * sums. */
int64_t twh__cpu_block(const twh__cpu_work *work, int64_t block, int64_t *rows)
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
  const twh_oracle_desc *desc = &work->kernel->desc;
  const twh_operand     *q = &work->calls[0]->q;
  for (int64_t block = 0; block < work->blocks; block++) {
    twh__cpu_rows rows;
    const int64_t row = twh__cpu_block(work, block, &rows.rows), at = work->slot * q->slot_stride + row * q->row_stride;
    if (twh__cpu_sees(work, work->n, row + rows.rows - 1)) {
      rows.data = (void *)(uintptr_t)((const char *)q->data + at * twh__cpu_element(desc->dtype));
      rows.stride = q->row_stride;
      rows.dim = desc->qk_dim;
      rows.dtype = desc->dtype;
      work->kernel->lanes->pack(work->scratch->q + block * desc->qk_dim * work->kernel->lanes->width, &rows, work->factor);
    }
    twh__cpu_load(work, block);
  }
}

/* Rows begin .. begin + keys - 1 of k or v: where they lie, or a copy in f32. */
static const float *cpu_slot_operand(const twh__cpu_work *work, const twh_operand *operand, int64_t begin, int64_t keys,
                                     int64_t dim, float *copy, int64_t *stride)
{
  const int32_t dtype = work->kernel->desc.dtype;
  const int64_t at = work->slot * operand->slot_stride + begin * operand->row_stride;
  const char   *from = (const char *)operand->data + at * twh__cpu_element(dtype);
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
  return (const char *)mask->data + at * (dtype == TWH_BOOL ? 1 : twh__cpu_element(dtype));
}

/* One block and the tile of keys from `begin` on. */
static void cpu_slot_step(const twh__cpu_work *work, int64_t block, int64_t begin, int64_t keys, twh__cpu_tile *tile)
{
  const twh__cpu_lanes *lanes = work->kernel->lanes;
  const int64_t         width = lanes->width, lane = width / TWH__CPU_VECTORS;
  const int             masked = work->call->mask_mode == TWH_MASK_TENSOR;
  twh__cpu_rows         mask;
  const int64_t         row = twh__cpu_block(work, block, &mask.rows);
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
  /* What a row sees of a call is a prefix. */
  tile->fresh = begin == 0 && !work->continues && !twh__cpu_sees(work, work->at, row + mask.rows - 1);
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

/* The keys of one call, for all queries in memory. */
static void cpu_slot_walk(const twh__cpu_work *work, twh__cpu_tile *tile)
{
  const int64_t seen = twh__cpu_keys_seen(work->kernel, work->call, work->first + work->rows - 1);
  for (int64_t begin = 0; begin < seen; begin += TWH__CPU_KEYS) {
    const int64_t keys = seen - begin < TWH__CPU_KEYS ? seen - begin : TWH__CPU_KEYS;
    twh__cpu_operands(work, begin, keys, tile);
    for (int64_t block = 0; block < work->blocks; block++) cpu_slot_step(work, block, begin, keys, tile);
  }
}

/* The queries in memory, and all keys of the chain. */
static void cpu_slot_group(twh__cpu_work *work, twh__cpu_tile *tile)
{
  cpu_slot_begin(work);
  for (work->at = 0; work->at < work->n; work->at++) {
    work->call = work->calls[work->at];
    cpu_slot_walk(work, tile);
  }
  for (int64_t block = 0; block < work->blocks; block++) twh__cpu_store(work, block);
}

/* As few groups as there can be, all of them alike. */
static void cpu_slot_groups(twh__cpu_work *work)
{
  const twh__cpu_kernel *kernel = work->kernel;
  const int64_t          q_len = work->calls[0]->q_len, width = kernel->lanes->width;
  int64_t                blocks = (q_len - 1) / width + 1, groups = (blocks - 1) / kernel->blocks + 1;
  twh__cpu_tile          tile;
  memset(&tile, 0, sizeof tile);
  tile.qk_dim = kernel->desc.qk_dim;
  tile.v_dim = kernel->desc.v_dim;
  tile.scores = work->scratch->scores;
  tile.top = work->scratch->top;
  tile.decay = work->scratch->decay;
  tile.cap = work->cap;
  for (; groups > 0; groups--) {
    work->blocks = (blocks - 1) / groups + 1;
    work->rows = groups == 1 ? q_len - work->first : work->blocks * width;
    cpu_slot_group(work, &tile);
    blocks -= work->blocks;
    work->first += work->rows;
  }
}

void twh__cpu_slot(const twh__cpu_kernel *kernel, const twh_call *const *calls, int64_t n, int64_t slot,
                   twh__cpu_scratch *scratch)
{
  twh__cpu_work work;
  memset(&work, 0, sizeof work);
  work.kernel = kernel;
  work.calls = calls;
  work.n = n;
  work.continues = cpu_slot_continues(kernel, calls[0]);
  work.scratch = scratch;
  work.slot = slot;
  cpu_slot_scale(&work);
  if (calls[0]->q_len <= TWH__CPU_LONE_ROWS)
    twh__cpu_lone_rows(&work);
  else
    cpu_slot_groups(&work);
}
