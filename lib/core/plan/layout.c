/* Sizes: how large a wave is, how many encoded blocks are kept, how many states are alive.
 *
 * A wave is a set of bundles that are encoded, computed and decoded together. Where all key blocks of one kv head fit the
 * workspace limit they are kept while its units pass by, each encoded once; otherwise a panel of units goes through the key
 * blocks together, and each block is encoded once per panel. */
#include "core/plan/plan.h"
#include "core/run/workspace.h"

enum {
  LAYOUT_CALLS_PER_BATCH = 8,     /* where neither the kernel nor the caller sets a limit */
  LAYOUT_MOST_CALLS = 64,         /* of one batch: more would only take memory */
  LAYOUT_MOST_BATCHES = 256,      /* at the same time, whatever the kernel and the context would allow */
  LAYOUT_PANEL = 16,
  LAYOUT_WORKSPACE_LIMIT = 64 << 20,
  LAYOUT_LATE_TILES = 8,          /* of one unit, behind others of its own: the diagonal and the short ones */
  LAYOUT_VARIANTS = 3             /* a block's natural, reversed and short forms */
};

/* Bytes of `count` rows at `stride` elements, the last one `dim` long; -1 on overflow. */
static int64_t layout_rows(int64_t count, int64_t stride, int64_t dim, int64_t item)
{
  int64_t bytes;
  if (!twh__multiply(count - 1, stride, &bytes) || !twh__add(bytes, dim, &bytes) || !twh__multiply(bytes, item, &bytes))
    return -1;
  return bytes;
}

static int64_t layout_align(int64_t bytes, int64_t alignment)
{
  return bytes < 0 || bytes > INT64_MAX - alignment ? -1 : twh__round_up(bytes, alignment);
}

/* One operand: bytes of a block, and of all slots of a call. */
static int layout_operand(const twh__layout *layout, int64_t slots, int64_t slot_stride, int64_t len, int64_t row_stride,
                          int64_t dim, int64_t item, int64_t *block, int64_t *all)
{
  int64_t bytes = layout_rows(len, row_stride, dim, item), gather;

  *block = layout_align(bytes, layout->alignment);
  if (*block < 0 || !twh__multiply(slots - 1, slot_stride, &gather) || !twh__multiply(gather, item, &gather)) return 0;
  *all = twh__add(gather, bytes, &gather) ? layout_align(gather, layout->alignment) : -1;
  /* blocks that lie one slot apart need no gathering */
  if (slots > 1 && slot_stride * item > *block && slot_stride * item % layout->alignment == 0) *block = slot_stride * item;
  return *all >= 0;
}

static int layout_sizes(const twh_plan *plan, twh__layout *layout)
{
  const twh__lowering   *lowering = &plan->lowering;
  const twh_oracle_desc *desc = &plan->oracle->desc;
  int64_t item = twh__dtype_bytes(lowering->dtype), out_item = twh__dtype_bytes(lowering->out_dtype), all, unused, mask;

  if (!layout_operand(layout, desc->slots, desc->q_slot_stride, desc->q_len, desc->q_row_stride, desc->qk_dim, item,
                      &layout->q_bytes, &layout->q_gather) ||
      !layout_operand(layout, desc->slots, desc->k_slot_stride, desc->k_len, desc->k_row_stride, desc->qk_dim, item,
                      &layout->k_bytes, &layout->k_gather) ||
      !layout_operand(layout, desc->slots, desc->v_slot_stride, desc->k_len, desc->v_row_stride, desc->v_dim, item,
                      &layout->v_slice_bytes, &layout->v_gather) ||
      !layout_operand(layout, desc->slots, desc->out_slot_stride, desc->q_len, desc->out_row_stride, desc->v_dim, out_item,
                      &unused, &all)) {
    return 0;
  }
  layout->out_bytes = all;
  all = 0;
  if ((desc->flags & TWH_ORACLE_LSE) && (!twh__multiply(desc->slots, desc->q_len, &all) ||
                                         !twh__multiply(all, (int64_t)sizeof(float), &all))) {
    return 0;
  }
  layout->lse_bytes = layout_align(all, layout->alignment);
  if (desc->mask_modes & TWH_MASK_TENSOR) {
    mask = layout_rows(desc->q_len, desc->k_len, desc->k_len, twh__dtype_bytes(lowering->mask_dtype));
    if (mask < 0) return 0;
    layout->mask_any = mask;
    layout->mask_bytes = layout_align(mask + desc->q_len, layout->alignment);
    if (!twh__multiply(mask, desc->slots, &layout->mask_gather)) return 0;
    layout->mask_gather = layout_align(layout->mask_gather, layout->alignment);
  }
  if (desc->slots == 1) layout->q_gather = layout->k_gather = layout->v_gather = layout->mask_gather = 0;
  return 1;
}

int64_t twh__plan_calls_per_batch(const twh_oracle_desc *desc, const twh_plan_options *options)
{
  int64_t calls = desc->max_calls_per_batch;

  if (calls == INT64_MAX) calls = LAYOUT_CALLS_PER_BATCH; /* the kernel sets no limit */
  if (options->max_calls_per_batch > 0) calls = twh__min(calls, options->max_calls_per_batch);
  return twh__min(calls, LAYOUT_MOST_CALLS);
}

static void layout_waves(const twh_plan *plan, const twh_plan_options *options, int64_t limit, twh__layout *layout)
{
  const twh_oracle_desc *desc = &plan->oracle->desc;
  int64_t parts = twh__lower_parts(&plan->lowering, plan->lowering.reading), bytes;

  layout->calls_per_batch = twh__plan_calls_per_batch(desc, options);
  layout->concurrency = twh__min(desc->max_concurrent_batches, plan->context->desc.parallelism);
  layout->concurrency = twh__min(layout->concurrency, LAYOUT_MOST_BATCHES);
  layout->bundles = twh__max(1, layout->calls_per_batch * layout->concurrency / parts);
  layout->bundles =
    twh__min(layout->bundles, twh__max(1, twh__ceil_div(plan->tally.all_tiles, desc->slots) + plan->tally.classes));
  bytes = layout->q_gather + layout->k_gather + layout->mask_gather +
          (plan->lowering.values_parts + 1) * (layout->v_gather + layout->out_bytes);
  while (layout->bundles > layout->concurrency && layout->bundles > limit / 2 / twh__max(1, bytes)) layout->bundles /= 2;
}

static int layout_blocks(const twh_plan *plan, int64_t limit, twh__layout *layout)
{
  int64_t in_wave = layout->bundles * plan->oracle->desc.slots, all, bytes, one;

  if (!twh__multiply(plan->lowering.values_parts, layout->v_slice_bytes, &one) || !twh__add(one, layout->k_bytes, &one))
    return 0;
  layout->panel = 1;
  layout->k_blocks = 2 * in_wave;
  if (plan->tally.max_units > 1) {
    all = plan->tally.max_blocks * (plan->lowering.full_mode == TWH_MASK_CAUSAL ? 2 : 1) + LAYOUT_VARIANTS;
    if (twh__multiply(all, one, &bytes) && bytes <= limit) {
      layout->k_blocks = all + in_wave;
    } else {
      /* each unit of a panel has states that wait; they take no more than the limit either */
      if (!twh__multiply(layout->tree_nodes * (int64_t)sizeof(double), plan->shape.v_dim + 2, &bytes) ||
          !twh__multiply(bytes, plan->lowering.q_block, &bytes)) {
        return 0;
      }
      layout->panel = twh__max(1, twh__min(twh__min(LAYOUT_PANEL, plan->tally.max_units), limit / bytes));
    }
  }
  layout->k_blocks = twh__min(layout->k_blocks, twh__max(in_wave, plan->tally.all_tiles));
  layout->v_blocks = layout->k_blocks;
  layout->q_blocks = twh__min(LAYOUT_VARIANTS * layout->panel + in_wave, twh__max(in_wave, plan->tally.all_tiles));
  layout->bucket_blocks = in_wave;
  layout->mask_blocks = layout->mask_bytes > 0 ? in_wave + LAYOUT_VARIANTS : 0;
  return 1;
}

twh_status twh__plan_lay_out(twh_plan *plan, const twh_plan_options *options, twh_error *error)
{
  twh__layout   *layout = &plan->layout;
  twh__workspace unused;
  int64_t        limit = options->workspace_limit > 0 ? options->workspace_limit : LAYOUT_WORKSPACE_LIMIT, waiting, kept;
  int64_t        slots = plan->oracle->desc.slots, tiles = twh__max(1, plan->tally.max_unit_tiles);

  layout->alignment = twh__max(64, plan->oracle->desc.alignment);
  if (!layout_sizes(plan, layout)) goto overflow;
  layout_waves(plan, options, limit, layout);
  layout->tree_nodes = twh__tree_capacity(tiles, LAYOUT_LATE_TILES);
  if (!layout_blocks(plan, limit, layout)) goto overflow;
  /* units with some of their tiles done: the panel, and those that wait in bundles that are not full yet */
  waiting = layout->panel + (slots - 1) * plan->tally.classes;
  layout->units = twh__min(waiting + layout->bundles * slots + 1, twh__max(1, plan->tally.units));
  if (!twh__multiply(twh__min(waiting, layout->units), twh__min(layout->tree_nodes, tiles), &kept)) goto overflow;
  layout->leaves = layout->bundles * slots;
  if (!twh__add(kept, layout->leaves + 1, &layout->nodes)) goto overflow;
  layout->nodes = twh__min(layout->nodes, twh__max(1, plan->tally.all_tiles));
  if (layout->nodes > INT32_MAX - layout->leaves || layout->k_blocks > INT32_MAX || layout->units > INT32_MAX) goto overflow;
  if (!twh__workspace_lay_out(plan, NULL, &unused, &layout->bytes)) goto overflow;
  return TWH_OK;
overflow:
  return twh__fail(error, TWH_E_OVERFLOW, "oracle: the workspace for its calls does not fit this machine's sizes");
}
