/* Telling people: the plan's figures, and the plan as text. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/plan/plan.h"

static double describe_call_flops(const twh__lowering *lowering)
{
  return 2 * (double)lowering->q_len * (double)lowering->k_len * (double)(lowering->qk_dim + lowering->v_dim) *
         (double)lowering->slots;
}

static void describe_fill(const twh_plan *plan, twh_plan_info *info)
{
  const twh__tally *tally = &plan->tally;
  double            computed = 0, most = 0, scored = plan->pairs - tally->pattern_pairs + tally->sampled_pairs;
  int32_t           main_kernel = 0;

  twh_plan_info_init(info);
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    const twh__kernel *kernel = &plan->kernels[k];
    double             pairs = twh__plan_call_pairs(&kernel->oracle->desc);
    info->oracle_flops += describe_call_flops(&kernel->lowering) * (double)tally->kernel_calls[k];
    computed += pairs * (double)tally->kernel_calls[k];
    if (pairs > most) most = pairs;
    if (tally->kernel_calls[k] > tally->kernel_calls[main_kernel]) main_kernel = k;
  }
  info->calls = tally->calls;
  info->repair_calls_max = tally->repair_calls_max;
  info->rounds = tally->calls > 0;
  info->rounds_max = info->rounds + (tally->repair_calls_max > 0);
  if (plan->exact) {
    info->exact_calls_max = plan->exact->tally.calls + plan->exact->tally.repair_calls_max;
    info->rounds_max += (plan->exact->tally.calls > 0) + (plan->exact->tally.repair_calls_max > 0);
  }
  info->error_bound = plan->error_bound;
  info->tiles = tally->all_tiles;
  info->full_tiles = tally->full_tiles;
  info->lower_tiles = tally->lower_tiles;
  info->upper_tiles = tally->upper_tiles;
  info->band_tiles = tally->band_tiles;
  info->host_tiles = tally->host_tiles;
  info->slots_used = tally->slots_used;
  info->short_tiles = tally->short_tiles;
  info->drawn_tiles = tally->drawn_tiles;
  info->sampled_keys = tally->drawn_keys;
  info->estimate_calls = tally->square_calls;
  info->lower_bound_calls = (int64_t)ceil((scored - tally->host_tile_pairs) / most);
  info->host_pairs = (int64_t)tally->host_pairs;
  info->oracle = plan->kernels[main_kernel].index;
  info->workspace_bytes = plan->layout.bytes;
  info->workspace_alignment = plan->layout.alignment;
  info->visible_pairs = plan->pairs;
  info->host_flops = 2 * tally->host_pairs * (double)plan->shape.qk_dim + tally->host_flops;
  info->utilisation = computed > 0 ? fmin(1, scored / computed) : 1;
  info->cost = twh__plan_cost(plan, tally);
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
  if (lowering->cut_mode == TWH_MASK_NONE) return "; what is cut by staircases of codes, their last steps on the host";
  if (lowering->full_mode == lowering->cut_mode) return "";
  return lowering->cut_mode == TWH_MASK_CAUSAL ? "; what is cut under the kernel's causal mask"
                                               : "; what is cut with a mask operand";
}

static void describe_kernel(const twh_plan *plan, int32_t number, describe_text *text)
{
  const twh__kernel     *kernel = &plan->kernels[number];
  const twh__lowering   *lowering = &kernel->lowering;
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  int64_t                parts = twh__lower_parts(lowering, lowering->reading);

  describe_line(text, "kernel    number %lld: %lld slot%s of %lld x %lld, dims %lld and %lld, %s%s: %lld calls at %g each\n",
                (long long)kernel->index, (long long)lowering->slots, lowering->slots == 1 ? "" : "s",
                (long long)lowering->q_len, (long long)lowering->k_len, (long long)lowering->qk_dim, (long long)lowering->v_dim,
                twh__dtype_name(lowering->dtype), desc->flags & TWH_ORACLE_LSE ? ", returns lse" : "",
                (long long)plan->tally.kernel_calls[number], kernel->cost_call);
  describe_line(text, "way       %s%s\n", describe_full_way(lowering), plan->needs.cuts ? describe_cut_way(lowering) : "");
  describe_line(text, "reading   %s: %lld call%s per tile", twh__lower_reading_name(lowering->reading), (long long)parts,
                parts == 1 ? "" : "s");
  if (lowering->values_parts > 1) describe_line(text, ", values in %lld slices", (long long)lowering->values_parts);
  describe_line(text, "\n");
  if (plan->needs.width > 1) {
    describe_line(text, "window    of %lld keys in units of %lld rows%s\n", (long long)plan->needs.width,
                  (long long)lowering->grid.chunk,
                  plan->needs.sinks == 0 ? ""
                  : lowering->grid.lead  ? "; sinks lead the slots"
                                         : "; sinks in tiles of their own");
  }
}

static void describe_short(const twh_plan *plan, describe_text *text)
{
  const twh__tally *tally = &plan->tally;
  const char       *how = "real keys are repeated behind them";

  if (tally->short_tiles == 0) return;
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    if (plan->kernels[k].lowering.code != 0) how = "a spare coordinate gives their pads weight 0";
  }
  if (tally->unseen_tiles == tally->short_tiles) how = "no row sees what stands behind their keys";
  describe_line(text, "short     %lld with fewer keys than the kernel's length: %s\n", (long long)tally->short_tiles, how);
}

static const char *describe_pattern(const twh_pattern *pattern)
{
  if (pattern->flags & TWH_LEFT) return "window";
  return pattern->flags & TWH_CAUSAL ? "causal" : pattern->flags & TWH_RIGHT ? "to the right bounded" : "full";
}

/* The calls of every way that the main kernel could go; nothing where it has no choice. */
static void describe_ways(const twh_plan *plan, describe_text *text)
{
  enum { DESCRIBE_WAYS = 8 };
  twh__lowering lowering[DESCRIBE_WAYS];
  int64_t       calls[DESCRIBE_WAYS];
  int           chosen[DESCRIBE_WAYS];
  int32_t       ways = twh__lower_ways(), count = 0;

  for (int32_t way = 0; way < ways && count < DESCRIBE_WAYS && plan->needs.cuts; ++way) {
    calls[count] = twh__plan_consider(plan, way, &lowering[count], &chosen[count]);
    if (calls[count] >= 0) ++count;
  }
  for (int32_t i = 0; i < count && count > 1; ++i) {
    describe_line(text, "%-10s%lld calls by %s%s%s\n", i == 0 ? "choice" : "", (long long)calls[i],
                  describe_full_way(&lowering[i]), describe_cut_way(&lowering[i]), chosen[i] ? " (taken)" : "");
  }
}

static void describe_estimate(const twh_plan *plan, const twh_plan_info *info, describe_text *text)
{
  if (plan->estimate == TWH_ESTIMATE_DOUBLED) {
    describe_line(text, "estimate  of errors: %lld calls more, with doubled queries and values in %lld slice%s\n",
                  (long long)info->estimate_calls, (long long)plan->kernels[1].lowering.values_parts,
                  plan->kernels[1].lowering.values_parts == 1 ? "" : "s");
  } else if (plan->estimate == TWH_ESTIMATE_REPLICATES) {
    describe_line(text, "estimate  of errors: from how the %lld samples of a block of rows differ\n", (long long)plan->samples);
  }
  if (plan->exact) {
    describe_line(text, "target    %g: blocks with rows above it are computed exactly, in at most %lld calls more\n",
                  plan->target_error, (long long)info->exact_calls_max);
  }
  if (info->error_bound > 0) {
    describe_line(
      text,
      "bound     %.3g of a row's length in 95 of 100 cases, if e^logit keeps to a factor of %g^2 and values to %g times it\n",
      info->error_bound, plan->bound_c, plan->bound_d);
  }
}

/* What the kernel that makes most calls would need to make fewer. */
static void describe_advice(const twh_plan *plan, const twh_plan_info *info, describe_text *text)
{
  char    what[96];
  int64_t calls;

  for (int32_t a = 0; a < TWH__ADVICES; ++a) {
    if (!twh__plan_advise(plan, a, what, sizeof what, &calls) || calls >= info->calls) continue;
    describe_line(text, "advice    %s: %lld calls instead of %lld\n", what, (long long)calls, (long long)info->calls);
  }
}

twh_status twh_plan_describe(const twh_plan *plan, char *buffer, size_t bytes, size_t *needed, twh_error *error)
{
  describe_text text = { buffer, bytes, 0 };
  twh_plan_info info;

  if (!plan) return twh__fail(error, TWH_E_ARGUMENT, "plan is NULL");
  if (!buffer && bytes > 0) return twh__fail(error, TWH_E_ARGUMENT, "buffer is NULL");
  describe_fill(plan, &info);
  describe_line(&text, "problem   %lld sequence%s, %lld query and %lld kv heads, dims %lld and %lld, %s, %.0f pairs\n",
                (long long)plan->sequences, plan->sequences == 1 ? "" : "s", (long long)plan->shape.q_heads,
                (long long)plan->shape.kv_heads, (long long)plan->shape.qk_dim, (long long)plan->shape.v_dim,
                describe_pattern(&plan->pattern), plan->pairs);
  for (int32_t k = 0; k < plan->kernel_count; ++k) {
    if (plan->kernels[k].lowering.power == 1 && (plan->tally.kernel_calls[k] > 0 || plan->kernel_count == 1)) {
      describe_kernel(plan, k, &text);
    }
  }
  describe_line(&text, "tiles     %lld in %lld slots: %lld full, %lld lower, %lld upper, %lld bands; %lld on the host\n",
                (long long)info.tiles, (long long)info.slots_used, (long long)info.full_tiles, (long long)info.lower_tiles,
                (long long)info.upper_tiles, (long long)info.band_tiles, (long long)info.host_tiles);
  describe_short(plan, &text);
  if (info.drawn_tiles > 0) {
    describe_line(&text,
                  "sampled   %lld keys in %lld tiles stand for the keys that all rows of a block see; results are estimates\n",
                  (long long)info.sampled_keys, (long long)info.drawn_tiles);
  }
  describe_estimate(plan, &info, &text);
  describe_line(&text, "calls     %lld, at least %lld on %s (utilisation %.3f); at most %lld repairs\n", (long long)info.calls,
                (long long)info.lower_bound_calls,
                plan->kernel_count == 1 || plan->estimate == TWH_ESTIMATE_DOUBLED ? "this kernel"
                                                                                  : "the kernel that holds most",
                info.utilisation, (long long)info.repair_calls_max);
  for (int32_t k = 0; k < plan->kernel_count && plan->kernels[k].lowering.power == 1; ++k) {
    describe_line(&text, "waves     calls per batch: %lld, batches at a time: %lld, units per panel: %lld\n",
                  (long long)plan->kernels[k].calls_per_batch, (long long)plan->kernels[k].concurrency,
                  (long long)plan->layout.panel);
  }
  describe_line(&text, "rounds    %lld, %lld with repairs%s\n", (long long)info.rounds, (long long)info.rounds_max,
                plan->exact ? " and exact blocks" : "");
  describe_line(&text, "work      kernel %.3g flops, host %.3g flops\n", info.oracle_flops, info.host_flops);
  describe_line(&text, "workspace %lld bytes, aligned to %lld\n", (long long)info.workspace_bytes,
                (long long)info.workspace_alignment);
  describe_ways(plan, &text);
  describe_advice(plan, &info, &text);
  if (needed) *needed = text.used + 1;
  return TWH_OK;
}
