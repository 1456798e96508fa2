/* Sizes: how large a wave is, how many encoded blocks are kept, how many states are alive.
 *
 * A wave is a set of bundles that are encoded, computed and decoded together. Where all key blocks of one kv head fit the
 * workspace limit they are kept while its units pass by, each encoded once; otherwise a panel of units goes through the key
 * blocks together, and each block is encoded once per panel. */
#include "core/plan/plan.h"
#include "core/run/workspace.h"

enum {
  LAYOUT_CALLS_PER_BATCH = 8, /* where neither the kernel nor the caller sets a limit */
  LAYOUT_LEAST_CALLS = 4,     /* of a wave: a unit's tiles, so that few states are kept, but no more: what they wrote is */
  LAYOUT_WAVE_CALLS = 16,     /* to be in the cache still when it is read */
  LAYOUT_MOST_CALLS = 64,     /* of one batch: more would only take memory */
  LAYOUT_MOST_BATCHES = 256,  /* at the same time, whatever the kernel and the context would allow */
  LAYOUT_CREW = 24,           /* threads that one of them can keep busy */
  LAYOUT_SUBMITTED = 4,       /* batches that a kernel has been given and has not finished, if it takes so many */
  LAYOUT_PANEL = 16,
  LAYOUT_CHAINS = 16, /* of calls that continue each other: so many for threads to share */
  LAYOUT_WORKSPACE_LIMIT = 64 << 20,
  LAYOUT_LATE_TILES = 8, /* of one unit, behind others of its own: the diagonal and the short ones */
  LAYOUT_VARIANTS = 3    /* a block's natural, reversed and short forms */
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
static int layout_operand(int64_t alignment, int64_t slots, int64_t slot_stride, int64_t len, int64_t row_stride, int64_t dim,
                          int64_t item, int64_t *block, int64_t *all)
{
  int64_t bytes = layout_rows(len, row_stride, dim, item), gather;

  *block = layout_align(bytes, alignment);
  if (*block < 0 || !twh__multiply(slots - 1, slot_stride, &gather) || !twh__multiply(gather, item, &gather)) return 0;
  *all = twh__add(gather, bytes, &gather) ? layout_align(gather, alignment) : -1;
  /* blocks that lie one slot apart need no gathering */
  if (slots > 1 && slot_stride * item > *block && slot_stride * item % alignment == 0) *block = slot_stride * item;
  return *all >= 0;
}

static int layout_sizes(int64_t alignment, twh__kernel *kernel)
{
  const twh__lowering   *lowering = &kernel->lowering;
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  twh__sizes            *sizes = &kernel->sizes;
  int64_t item = twh__dtype_bytes(lowering->dtype), out_item = twh__dtype_bytes(lowering->out_dtype), all, unused, mask;

  if (!layout_operand(alignment, desc->slots, desc->q_slot_stride, desc->q_len, desc->q_row_stride, desc->qk_dim, item,
                      &sizes->q_bytes, &sizes->q_gather) ||
      !layout_operand(alignment, desc->slots, desc->k_slot_stride, desc->k_len, desc->k_row_stride, desc->qk_dim, item,
                      &sizes->k_bytes, &sizes->k_gather) ||
      !layout_operand(alignment, desc->slots, desc->v_slot_stride, desc->k_len, desc->v_row_stride, desc->v_dim, item,
                      &sizes->v_slice_bytes, &sizes->v_gather) ||
      !layout_operand(alignment, desc->slots, desc->out_slot_stride, desc->q_len, desc->out_row_stride, desc->v_dim, out_item,
                      &unused, &all)) {
    return 0;
  }
  sizes->out_bytes = all;
  all = 0;
  if ((desc->flags & TWH_ORACLE_LSE) &&
      (!twh__multiply(desc->slots, desc->q_len, &all) || !twh__multiply(all, (int64_t)sizeof(float), &all))) {
    return 0;
  }
  sizes->lse_bytes = layout_align(all, alignment);
  sizes->mask_bytes = sizes->mask_gather = 0;
  if (lowering->full_mode == TWH_MASK_TENSOR || lowering->cut_mode == TWH_MASK_TENSOR) {
    mask = layout_rows(desc->q_len, desc->k_len, desc->k_len, twh__dtype_bytes(lowering->mask_dtype));
    if (mask < 0) return 0;
    sizes->mask_any = mask;
    sizes->mask_bytes = layout_align(mask + desc->q_len, alignment);
    if (!twh__multiply(mask, desc->slots, &sizes->mask_gather)) return 0;
    sizes->mask_gather = layout_align(sizes->mask_gather, alignment);
  }
  if (desc->slots == 1) sizes->q_gather = sizes->k_gather = sizes->v_gather = sizes->mask_gather = 0;
  return 1;
}

/* Blocks and calls serve any of the kernels. */
static int layout_most(const twh_plan *plan, twh__layout *layout)
{
  twh__sizes *most = &layout->most;

  layout->slots = layout->parts = layout->rows = layout->node_rows = 1;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    const twh__kernel *kernel = &plan->kernels[k];
    const twh__sizes  *own = &kernel->sizes;
    int64_t            values;
    if (!twh__multiply(own->v_slice_bytes, kernel->lowering.values_parts, &values)) return 0;
    most->q_bytes = twh__max(most->q_bytes, own->q_bytes);
    most->k_bytes = twh__max(most->k_bytes, own->k_bytes);
    most->v_slice_bytes = twh__max(most->v_slice_bytes, values);
    most->mask_bytes = twh__max(most->mask_bytes, own->mask_bytes);
    most->out_bytes = twh__max(most->out_bytes, own->out_bytes);
    most->lse_bytes = twh__max(most->lse_bytes, own->lse_bytes);
    most->q_gather = twh__max(most->q_gather, own->q_gather);
    most->k_gather = twh__max(most->k_gather, own->k_gather);
    most->v_gather = twh__max(most->v_gather, own->v_gather);
    most->mask_gather = twh__max(most->mask_gather, own->mask_gather);
    layout->slots = twh__max(layout->slots, kernel->lowering.slots);
    layout->parts = twh__max(layout->parts, kernel->lowering.values_parts + 1);
    layout->rows = twh__max(layout->rows, kernel->lowering.q_len);
    layout->node_rows = twh__max(layout->node_rows, twh__grid_rows(&kernel->lowering.grid, TWH__SPAN_FULL));
    layout->node_rows = twh__max(layout->node_rows, kernel->lowering.grid.q_block);
  }
  return 1;
}

int64_t twh__plan_calls_per_batch(const twh_oracle_desc *desc, const twh_plan_options *options)
{
  int64_t calls = desc->max_calls_per_batch;

  if (calls == INT64_MAX) calls = LAYOUT_CALLS_PER_BATCH; /* the kernel sets no limit */
  if (options->max_calls_per_batch > 0) calls = twh__min(calls, options->max_calls_per_batch);
  return twh__min(calls, LAYOUT_MOST_CALLS);
}

static void layout_concurrency(const twh_plan *plan, const twh_plan_options *options, twh__kernel *kernel)
{
  const twh_oracle_desc *desc = &kernel->oracle->desc;

  kernel->calls_per_batch = twh__plan_calls_per_batch(desc, options);
  if (desc->submit) { /* half of what it may have goes into a wave, the other half into the next one */
    kernel->concurrency = twh__max(1, twh__min(desc->max_concurrent_batches, LAYOUT_SUBMITTED) / 2);
    return;
  }
  kernel->concurrency = twh__min(desc->max_concurrent_batches, plan->context->desc.parallelism);
  kernel->concurrency = twh__min(kernel->concurrency, LAYOUT_MOST_BATCHES);
}

/* Two waves where the kernel can be left alone, or one of the threads does the host's work. So many that all call the kernel would wait
 * for that one: they do one wave after the other. */
static int64_t layout_count_waves(const twh_plan *plan)
{
  int64_t most = 0, threads = plan->context->desc.parallelism;

  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    if (plan->kernels[k].oracle->desc.submit) return TWH__WAVES;
    most = twh__max(most, plan->kernels[k].concurrency);
  }
  return threads > 1 && most <= LAYOUT_CREW ? TWH__WAVES : 1;
}

/* Of a row. */
static int64_t layout_node_doubles(const twh_plan *plan)
{
  return plan->shape.v_dim + 2 + (plan->estimate ? TWH__SPREAD(plan->shape.v_dim) : 0);
}

/* Of a kernel that sets no limits. */
static int64_t layout_wave_calls(const twh_plan *plan)
{
  int64_t tiles = twh__max(plan->tally.max_unit_tiles, plan->tally.stream_tiles);

  return twh__min(LAYOUT_WAVE_CALLS, twh__max(LAYOUT_LEAST_CALLS, tiles));
}

/* What a bundle takes, with a node for what becomes of it. */
static int64_t layout_bundle_bytes(const twh_plan *plan, int64_t limit)
{
  const twh__sizes *most = &plan->layout.most;
  int64_t bytes = most->q_gather + most->k_gather + most->mask_gather + plan->layout.parts * (most->v_gather + most->out_bytes),
          node;

  if (twh__multiply(plan->layout.node_rows, layout_node_doubles(plan) * (int64_t)sizeof(double), &node))
    bytes += twh__min(node, limit);
  return twh__max(1, bytes);
}

/* How many calls in a row continue each other. A matter of the problem and of batches, not of threads: so the bits are the same. */
static int64_t layout_chain(twh_plan *plan, int64_t limit)
{
  int64_t most = twh__min(TWH__CHAIN, limit / 2 / layout_bundle_bytes(plan, limit)), chain = 1;
  int     any = 0;

  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    twh__kernel           *kernel = &plan->kernels[k];
    const twh_oracle_desc *desc = &kernel->oracle->desc;
    kernel->plain = desc->slots == 1 && kernel->lowering.values_parts == 1 && !plan->shape.mask_dtype && !plan->shape.alibi &&
                    !plan->estimate;
    kernel->continues =
      kernel->plain && (desc->flags & TWH_ORACLE_CONTINUES) && (desc->out_dtype == TWH_F32 || desc->out_dtype == TWH_F64);
    if (!kernel->continues) continue;
    most = twh__min(most, kernel->calls_per_batch);
    any = 1;
  }
  while (any && 2 * chain <= most && plan->tally.calls / (2 * chain) >= LAYOUT_CHAINS) chain *= 2;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    twh__kernel *kernel = &plan->kernels[k];
    int          shared = kernel->concurrency > 1 && !kernel->oracle->desc.submit && kernel->cost_batch == 0;
    if (kernel->continues && shared) kernel->calls_per_batch = chain; /* threads share short batches more evenly */
  }
  return chain;
}

/* A wave keeps each kernel as busy as it may be. */
static void layout_waves(const twh_plan *plan, int64_t limit, twh__layout *layout)
{
  int64_t bytes = layout_bundle_bytes(plan, limit), least = 1, bundles = plan->tally.classes;
  int     submits = 0;

  layout->bundles = layout->batch = 1;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    const twh__kernel *kernel = &plan->kernels[k];
    int64_t            parts = twh__lower_parts(&kernel->lowering, kernel->lowering.reading);
    int64_t            calls = kernel->calls_per_batch * kernel->concurrency;
    /* of a kernel that has places for so many batches only, the other wave's must find theirs too */
    submits |= kernel->oracle->desc.submit != NULL;
    if (!kernel->oracle->desc.submit) calls = twh__max(calls, layout_wave_calls(plan));
    layout->bundles = twh__max(layout->bundles, calls / parts);
    least = twh__max(least, kernel->concurrency);
    layout->batch = twh__max(layout->batch, kernel->calls_per_batch / parts);
    for (int32_t c = 0; c < TWH__CLASSES; ++c) bundles += twh__ceil_div(plan->tally.slots[k][c], kernel->lowering.slots);
  }
  layout->bundles = twh__min(layout->bundles, twh__max(1, bundles));
  while (layout->bundles > least && layout->bundles > limit / 2 / bytes) layout->bundles /= 2;
  layout->bundles = twh__max(layout->bundles, layout->chain);
  if (layout->chain > 1) layout->batch = 1;
  layout->early = submits ? layout->bundles : twh__max(LAYOUT_WAVE_CALLS / 2, twh__max(least, layout->bundles / 2));
}

static int layout_blocks(const twh_plan *plan, int64_t limit, twh__layout *layout)
{
  int64_t in_wave = layout->waves * layout->bundles * layout->slots, all, bytes, one, twice = 1;

  if (!twh__add(layout->most.v_slice_bytes, layout->most.k_bytes, &one)) return 0;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    if (plan->kernels[k].lowering.full_mode == TWH_MASK_CAUSAL) twice = 2;
  }
  layout->panel = 1;
  layout->k_blocks = 2 * in_wave;
  if (plan->tally.max_units > 1 || plan->tally.stream_tiles > 1) {
    all = plan->tally.max_blocks * twice + LAYOUT_VARIANTS;
    if (twh__multiply(all, one, &bytes) && bytes <= limit) {
      layout->k_blocks = all + in_wave;
    } else {
      /* each unit of a panel has states that wait; they take no more than the limit either */
      if (!twh__multiply(layout->tree_nodes * (int64_t)sizeof(double), layout_node_doubles(plan), &bytes) ||
          !twh__multiply(bytes, layout->node_rows, &bytes)) {
        return 0;
      }
      layout->panel = twh__max(1, twh__min(twh__min(LAYOUT_PANEL, plan->tally.max_units), limit / bytes));
    }
  }
  layout->k_blocks = twh__min(layout->k_blocks, twh__max(in_wave, plan->tally.all_tiles));
  layout->v_blocks = layout->k_blocks;
  layout->q_blocks = twh__min(LAYOUT_VARIANTS * layout->panel + in_wave, twh__max(in_wave, plan->tally.all_tiles));
  layout->bucket_blocks = layout->waves * in_wave; /* a wave's own, and those of the repairs that are made meanwhile */
  layout->mask_blocks = layout->most.mask_bytes > 0 ? in_wave + LAYOUT_VARIANTS : 0;
  return 1;
}

/* Units with some of their tiles done, and the states that they keep from wave to wave. */
static int layout_states(const twh_plan *plan, twh__layout *layout)
{
  const twh__tally *tally = &plan->tally;
  int64_t           waiting, kept, share = layout->slot_tiles, streamed, each;

  /* with a mask tensor, or where not all units are wanted, tiles are left out, and others move up into their slots */
  streamed = tally->stream_classes * layout->slots * (plan->shape.mask_dtype != 0 || plan->partial ? share : tally->slot_units);
  waiting = layout->panel + (layout->slots - 1) * tally->classes; /* the panel, and those in bundles that are not full yet */
  if (!twh__multiply(layout->bundles * layout->slots, share, &layout->leaves)) return 0;
  layout->units = twh__min(waiting + streamed + layout->waves * layout->leaves + 1, twh__max(1, tally->units));
  if (!twh__multiply(twh__min(waiting, layout->units), twh__min(layout->tree_nodes, twh__max(1, tally->max_unit_tiles)),
                     &kept)) {
    return 0;
  }
  if (!twh__add(kept, layout->bundles * layout->slots + 1, &layout->nodes)) return 0;
  layout->nodes = twh__min(layout->nodes, twh__max(1, tally->all_tiles));
  /* four tiles or fewer merge only when the last of them is there */
  layout->row_parts = twh__max(1, twh__min(plan->context->desc.parallelism, layout->node_rows / TWH__LOT));
  layout->small_rows = twh__max(1, tally->stream_rows);
  each = tally->stream_tiles <= TWH__FAN ? twh__max(0, tally->stream_tiles - 1) : layout->tree_nodes;
  if (!twh__multiply(twh__min(streamed + waiting, layout->units), each, &layout->small_nodes)) return 0;
  layout->small_nodes += 2 + (tally->stream_tiles <= TWH__FAN ? 0 : layout->leaves);
  layout->small_nodes = twh__min(layout->small_nodes, twh__max(2, tally->all_tiles));
  return layout->nodes + layout->small_nodes <= INT32_MAX - layout->leaves && layout->k_blocks <= INT32_MAX &&
         layout->units <= INT32_MAX;
}

/* The workspace serves the plan and its exact one, one after the other. */
static int layout_flags(twh_plan *plan)
{
  twh__layout *layout = &plan->layout;
  int64_t      units, rows;

  if (!plan->exact) return 1;
  units = plan->exact->units;
  if (!twh__multiply(plan->batch, plan->shape.q_heads, &rows) || !twh__multiply(rows, plan->q_rows, &rows)) return 0;
  layout->alignment = twh__max(layout->alignment, plan->exact->layout.alignment);
  layout->flag_bytes = twh__add(rows, units, &rows) ? layout_align(rows, layout->alignment) : -1;
  return layout->flag_bytes >= 0 &&
         twh__add(twh__max(layout->bytes, plan->exact->layout.bytes), layout->flag_bytes, &layout->bytes);
}

twh_status twh__plan_lay_out(twh_plan *plan, const twh_plan_options *options, twh_error *error)
{
  twh__layout   *layout = &plan->layout;
  twh__workspace unused;
  int64_t        limit = options->workspace_limit > 0 ? options->workspace_limit : LAYOUT_WORKSPACE_LIMIT;
  int64_t        tiles = twh__max(1, twh__max(plan->tally.max_unit_tiles, plan->tally.stream_tiles));

  layout->alignment = 64;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    layout->alignment = twh__max(layout->alignment, plan->kernels[k].oracle->desc.alignment);
  }
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    layout_concurrency(plan, options, &plan->kernels[k]);
    if (!layout_sizes(layout->alignment, &plan->kernels[k])) goto overflow;
  }
  if (!layout_most(plan, layout)) goto overflow;
  layout->slot_tiles = plan->tally.slot_tiles;
  layout->waves = layout_count_waves(plan);
  layout->chain = layout_chain(plan, limit);
  layout_waves(plan, limit, layout);
  layout->tree_nodes = twh__tree_capacity(tiles, LAYOUT_LATE_TILES);
  if (!layout_blocks(plan, limit, layout) || !layout_states(plan, layout)) goto overflow;
  if (!twh__workspace_lay_out(plan, NULL, &unused, &layout->bytes) || !layout_flags(plan)) goto overflow;
  return TWH_OK;
overflow:
  return twh__fail(error, TWH_E_OVERFLOW, "oracle: the workspace for its calls does not fit this machine's sizes");
}
