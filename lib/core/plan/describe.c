/* Telling people: the plan's figures, the plan as text, and its tiles one by one. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/plan/plan.h"

static double describe_oracle_flops(const twh_plan *plan)
{
  const twh__lowering *lowering = &plan->lowering;
  return 2 * (double)lowering->q_len * (double)lowering->k_len * (double)(lowering->qk_dim + lowering->v_dim) *
         (double)lowering->slots * (double)plan->tally.calls;
}

static void describe_fill(const twh_plan *plan, twh_plan_info *info)
{
  const twh__tally      *tally = &plan->tally;
  const twh_oracle_desc *desc = &plan->oracle->desc;
  double                 per_batch = (double)plan->layout.calls_per_batch;

  twh_plan_info_init(info);
  info->calls = tally->calls;
  info->repair_calls_max = tally->repair_calls_max;
  info->rounds = tally->calls > 0;
  info->rounds_max = info->rounds + (tally->repair_calls_max > 0);
  info->tiles = tally->all_tiles;
  info->full_tiles = tally->full_tiles;
  info->lower_tiles = tally->lower_tiles;
  info->upper_tiles = tally->upper_tiles;
  info->short_tiles = tally->short_tiles;
  info->lower_bound_calls = (int64_t)ceil(plan->pairs / plan->call_pairs);
  info->host_pairs = (int64_t)tally->host_pairs;
  info->oracle = plan->oracle_index;
  info->workspace_bytes = plan->layout.bytes;
  info->workspace_alignment = plan->layout.alignment;
  info->visible_pairs = plan->pairs;
  info->oracle_flops = describe_oracle_flops(plan);
  info->host_flops = 2 * tally->host_pairs * (double)plan->shape.qk_dim + tally->host_flops;
  info->utilisation = tally->calls > 0 ? plan->pairs / (plan->call_pairs * (double)tally->calls) : 1;
  info->cost = (double)tally->calls * desc->cost_per_call + ceil((double)tally->calls / per_batch) * desc->cost_per_batch;
}

twh_status twh_plan_get_info(const twh_plan *plan, twh_plan_info *out, twh_error *error)
{
  twh_plan_info info;

  if (!plan || !out) return twh__fail(error, TWH_E_ARGUMENT, "%s is NULL", plan ? "out" : "plan");
  describe_fill(plan, &info);
  return twh__struct_write(out, &info, sizeof info, sizeof info, "out", error);
}

typedef struct describe_text {
  char  *buffer;
  size_t bytes, used;
} describe_text;

static void describe_line(describe_text *text, const char *format, ...)
#if defined(__GNUC__)
  __attribute__((format(printf, 2, 3)))
#endif
  ;

static void describe_line(describe_text *text, const char *format, ...)
{
  size_t  room = text->used < text->bytes ? text->bytes - text->used : 0;
  int     n;
  va_list list;

  va_start(list, format);
  n = vsnprintf(room > 0 ? text->buffer + text->used : NULL, room, format, list);
  va_end(list);
  if (n > 0) text->used += (size_t)n;
}

static const char *describe_full_way(const twh__lowering *lowering)
{
  switch (lowering->full_mode) {
    case TWH_MASK_NONE: return "unmasked tiles";
    case TWH_MASK_TENSOR: return "tiles with a mask operand";
    default: return "tiles under the kernel's causal mask, whole ones once in natural and once in reversed order";
  }
}

static const char *describe_cut_way(const twh__lowering *lowering)
{
  if (lowering->full_mode == lowering->lower_mode) return "";
  return lowering->lower_mode == TWH_MASK_CAUSAL ? "; on the diagonal the kernel's causal mask"
                                                 : "; on the diagonal a mask operand";
}

static void describe_kernel(const twh_plan *plan, describe_text *text)
{
  const twh__lowering   *lowering = &plan->lowering;
  const twh_oracle_desc *desc = &plan->oracle->desc;

  describe_line(text, "kernel    number %d: %lld slot%s of %lld x %lld, dims %lld and %lld, %s%s\n", (int)plan->oracle_index,
                (long long)lowering->slots, lowering->slots == 1 ? "" : "s", (long long)lowering->q_len,
                (long long)lowering->k_len, (long long)lowering->qk_dim, (long long)lowering->v_dim,
                twh__dtype_name(lowering->dtype), desc->flags & TWH_ORACLE_LSE ? ", returns lse" : "");
  describe_line(text, "way       %s%s\n", describe_full_way(lowering), plan->any_causal ? describe_cut_way(lowering) : "");
  describe_line(text, "reading   %s: %lld call%s per tile", twh__lower_reading_name(lowering->reading),
                (long long)twh__lower_parts(lowering, lowering->reading),
                twh__lower_parts(lowering, lowering->reading) == 1 ? "" : "s");
  if (lowering->values_parts > 1) describe_line(text, ", values in %lld slices", (long long)lowering->values_parts);
  if (lowering->reading == TWH__READ_BUCKET) describe_line(text, "; with one spare value column one less");
  describe_line(text, "\n");
}

static void describe_short(const twh_plan *plan, describe_text *text)
{
  const twh__tally *tally = &plan->tally;
  const char       *how =
    plan->lowering.dead != 0 ? "a spare coordinate gives their pads weight 0" : "real keys are repeated behind them";

  if (tally->short_tiles == 0) return;
  if (tally->unseen_tiles == tally->short_tiles) how = "no row sees what stands behind their keys";
  describe_line(text, "short     %lld with fewer keys than the kernel's length: %s\n", (long long)tally->short_tiles,
                how);
}

twh_status twh_plan_describe(const twh_plan *plan, char *buffer, size_t bytes, size_t *needed, twh_error *error)
{
  describe_text text = { buffer, bytes, 0 };
  twh_plan_info info;

  if (!plan) return twh__fail(error, TWH_E_ARGUMENT, "plan is NULL");
  if (!buffer && bytes > 0) return twh__fail(error, TWH_E_ARGUMENT, "buffer is NULL");
  describe_fill(plan, &info);
  describe_line(&text, "problem   %lld sequence%s, %lld query and %lld kv heads, dims %lld and %lld, %s, %.0f pairs\n",
                (long long)plan->spans_count, plan->spans_count == 1 ? "" : "s", (long long)plan->shape.q_heads,
                (long long)plan->shape.kv_heads, (long long)plan->shape.qk_dim, (long long)plan->shape.v_dim,
                plan->pattern.flags & TWH_CAUSAL ? "causal" : "full", plan->pairs);
  describe_kernel(plan, &text);
  describe_line(&text, "tiles     %lld: %lld full, %lld lower, %lld upper\n", (long long)info.tiles, (long long)info.full_tiles,
                (long long)info.lower_tiles, (long long)info.upper_tiles);
  describe_short(plan, &text);
  describe_line(&text, "calls     %lld, at least %lld on this kernel (utilisation %.3f); at most %lld repairs\n",
                (long long)info.calls, (long long)info.lower_bound_calls, info.utilisation, (long long)info.repair_calls_max);
  describe_line(&text, "waves     calls per batch: %lld, batches at a time: %lld, units per panel: %lld\n",
                (long long)plan->layout.calls_per_batch, (long long)plan->layout.concurrency, (long long)plan->layout.panel);
  describe_line(&text, "rounds    %lld, %lld with repairs\n", (long long)info.rounds, (long long)info.rounds_max);
  describe_line(&text, "work      kernel %.3g flops, host %.3g flops\n", info.oracle_flops, info.host_flops);
  describe_line(&text, "workspace %lld bytes, aligned to %lld\n", (long long)info.workspace_bytes,
                (long long)info.workspace_alignment);
  if (needed) *needed = text.used + 1;
  return TWH_OK;
}

twh_status twh_plan_visit(const twh_plan *plan, int32_t (*visit)(void *user, const twh_tile_info *tile), void *user,
                          twh_error *error)
{
  twh__cursor   cursor;
  twh__pack     pack;
  twh__tile     tile;
  twh_tile_info info;

  if (!plan || !visit) return twh__fail(error, TWH_E_ARGUMENT, "%s is NULL", plan ? "visit" : "plan");
  twh__cursor_begin(&cursor, plan);
  twh__pack_begin(&pack, plan->lowering.slots);
  twh_tile_info_init(&info);
  while (twh__cursor_next(&cursor, &tile)) {
    info.calls = twh__lower_parts(&plan->lowering, tile.reading);
    (void)twh__pack_put(&pack, twh__class_of(tile.mode, tile.reading), info.calls, &info.call, &info.slot);
    info.mask_mode = (uint32_t)tile.mode;
    info.sequence = tile.unit.span;
    info.q_head = tile.unit.q_head;
    info.q_begin = tile.unit.first + tile.row;
    info.q_len = tile.rows;
    info.k_begin = tile.key;
    info.k_len = tile.keys;
    info.shape = tile.shape;
    info.reversed = tile.reversed;
    /* reversed: row t sees the last `seen` - t keys, those from keys - seen + t on */
    info.diagonal = tile.shape == TWH_SHAPE_FULL ? 0 : tile.reversed ? tile.keys - tile.seen : tile.seen - 1;
    if (visit(user, &info) != 0) break;
  }
  return TWH_OK;
}
