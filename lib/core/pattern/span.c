/* Spans: a sequence split by the manner in which its rows see keys.
 *
 * The row at absolute position p sees the sinks and the band p - left .. p + right, as far as there are such keys. Both ends of
 * the band only move forward with p, so the manner changes where an end of the band passes an end of the keys or the last
 * sink: at five positions at most. One row of each interval between them is classified.
 *
 * A band becomes a causal window by shifting the rows' positions by `right`, so that the grid of keys stays anchored at
 * absolute key 0. A band without a right end is mirrored, which makes it causal. */
#include <string.h>

#include "core/pattern/pattern.h"

/* Wider than any two positions are apart, and small enough to be added to them. */
static const int64_t span_open = (int64_t)1 << 62;

/* The pattern on the keys of one sequence, in absolute positions. */
typedef struct span_view {
  int64_t left, right;          /* span_open: no end */
  int64_t begin, end, sink_end; /* keys begin .. end - 1, of which those before sink_end are sinks */
  int32_t causal;
} span_view;

/* Rows that see keys in one manner. */
typedef struct span_run {
  int64_t first, last;   /* positions */
  int64_t until;         /* FULL: they see view.begin .. until - 1 */
  int32_t kind, mirrored;
} span_run;

static span_view span_look(const twh_sequence *sequence, const twh_pattern *pattern)
{
  span_view view;

  view.causal = (pattern->flags & TWH_CAUSAL) != 0;
  view.left = pattern->flags & TWH_LEFT ? twh__min(pattern->left, span_open) : span_open;
  view.right = view.causal ? 0 : pattern->flags & TWH_RIGHT ? twh__min(pattern->right, span_open) : span_open;
  view.begin = sequence->k_offset;
  view.end = sequence->k_offset + sequence->k_len;
  view.sink_end = twh__max(view.begin, twh__min(view.end, pattern->sink_tokens));
  return view;
}

static span_run span_classify(const span_view *view, int64_t first, int64_t last)
{
  int64_t  from = twh__max(view->begin, first - view->left), until = twh__min(view->end, first + view->right + 1);
  int64_t  sink_end = view->sink_end;
  span_run run = { first, last, 0, TWH__SPAN_FULL, 0 };

  if (view->causal) sink_end = twh__max(view->begin, twh__min(sink_end, first + 1));
  run.until = sink_end;
  if (until <= from) return run;                /* sinks at most */
  if (first - view->left >= sink_end) {         /* the left end of the band is one of the keys behind the sinks */
    run.kind = TWH__SPAN_WINDOW;
    /* no right end shows; but unless it is wider than all keys, a window is better for sinks, which can share a tile with it */
    if (until == view->end && (sink_end == view->begin || view->left + view->right >= view->end - view->begin)) {
      run.kind = TWH__SPAN_CAUSAL;
      run.mirrored = 1;
    }
  } else if (until == view->end) {
    run.until = until;
  } else if (until > sink_end || view->causal) {
    run.kind = TWH__SPAN_CAUSAL;
  }
  return run;
}

/* Whether a run goes on with the next one; *run becomes what both are. */
static int span_join(const span_view *view, span_run *run, const span_run *next)
{
  int same = run->kind == next->kind && run->mirrored == next->mirrored;
  int all = run->kind == TWH__SPAN_FULL && run->until == view->end;
  int next_all = next->kind == TWH__SPAN_FULL && next->until == view->end;

  if (same) {
    if (run->kind == TWH__SPAN_FULL && run->until != next->until) return 0;
  } else if (all && next->mirrored && view->sink_end == view->begin) {
    run->kind = next->kind; /* rows that see all keys fill the last unit of a causal span */
    run->mirrored = 1;
  } else if (!(run->kind == TWH__SPAN_WINDOW && next->mirrored) &&
             !(next_all && run->kind == TWH__SPAN_CAUSAL && !run->mirrored)) {
    return 0;
  }
  run->last = next->last;
  return 1;
}

/* Runs of the rows first .. end - 1, in order. Returns their number. */
static int32_t span_runs(const span_view *view, int64_t first, int64_t end, span_run *runs)
{
  int64_t cuts[] = { first, end, view->begin - view->right, view->sink_end - view->right, view->end - view->right - 1,
                     view->sink_end + view->left, view->end + view->left };
  int32_t count = 0, n = (int32_t)(sizeof cuts / sizeof cuts[0]);

  for (int32_t i = 1; i < n; ++i) {
    int64_t cut = twh__max(first, twh__min(cuts[i], end));
    int32_t at = i;
    for (; at > 0 && cuts[at - 1] > cut; --at) cuts[at] = cuts[at - 1];
    cuts[at] = cut;
  }
  for (int32_t i = 0; i + 1 < n; ++i) {
    span_run run;
    if (cuts[i] == cuts[i + 1]) continue;
    run = span_classify(view, cuts[i], cuts[i + 1] - 1);
    if (count == 0 || !span_join(view, &runs[count - 1], &run)) runs[count++] = run;
  }
  return count;
}

/* Which keys a run's rows see, and where both stand. */
static void span_place(twh__span *span, const span_view *view, const twh_sequence *sequence, int64_t group,
                       const span_run *run)
{
  int64_t from = view->begin, until = run->until;

  span->kind = run->kind;
  if (run->kind != TWH__SPAN_FULL) {
    /* keys that no row sees are clipped, and what cuts nothing off is FULL */
    int slanted = run->kind == TWH__SPAN_WINDOW || run->mirrored; /* the rows begin at different keys */
    int first_sees_last = run->first + view->right + 1 >= view->end || run->first == run->last;
    int last_sees_first = 1;
    until = twh__min(view->end, run->last + view->right + 1);
    if (slanted) {
      from = twh__max(from, run->first - view->left);
      last_sees_first = run->last - view->left <= from;
      span->sinks = view->sink_end - view->begin;
    }
    if (first_sees_last && last_sees_first && span->sinks == 0) span->kind = TWH__SPAN_FULL;
    /* a decode step: its heads are stacked, which is worth more than a place for the sinks beside the window's keys */
    if (run->first == run->last && sequence->q_len == 1 && group > 1) span->kind = TWH__SPAN_FULL;
  }
  span->mirrored = run->mirrored && span->kind == TWH__SPAN_CAUSAL;
  span->width = span->kind == TWH__SPAN_WINDOW ? view->left + view->right + 1 : 0;
  span->k_begin = sequence->k_begin + from - view->begin;
  span->k_len = until - from;
  span->k_offset = run->kind == TWH__SPAN_WINDOW && span->kind == TWH__SPAN_FULL ? 0 : from; /* its blocks begin with it */
  span->q_offset = run->first;
  if (span->mirrored) {
    span->k_offset = 0;
    span->q_offset = until - 1 + view->left - run->last;
  } else if (span->kind != TWH__SPAN_FULL) {
    span->q_offset = run->first + view->right;
  }
  if (span->sinks > 0) span->sink_key = span->mirrored ? until - view->sink_end : view->begin - from;
}

int32_t twh__span_split(const twh_sequence *sequence, int64_t number, int64_t batch, const twh_pattern *pattern, int64_t group,
                        twh__span *spans)
{
  span_view view = span_look(sequence, pattern);
  span_run  runs[TWH__MOST_SPANS];
  int32_t   count = span_runs(&view, sequence->q_offset, sequence->q_offset + sequence->q_len, runs);

  for (int32_t i = 0; i < count; ++i) {
    twh__span *span = &spans[i];
    memset(span, 0, sizeof *span);
    span->sequence = number;
    span->batch = batch;
    span->q_begin = sequence->q_begin + runs[i].first - sequence->q_offset;
    span->q_len = runs[i].last - runs[i].first + 1;
    span->q_origin = sequence->q_offset - sequence->q_begin;
    span->k_origin = sequence->k_offset - sequence->k_begin;
    span_place(span, &view, sequence, group, &runs[i]);
    span->stacked = span->kind == TWH__SPAN_FULL && group > 1 && span->k_len > 0 && count == 1;
  }
  return count;
}

double twh__span_pairs(const twh__span *span)
{
  double  q = (double)span->q_len, k = (double)span->k_len, sinks = q * (double)span->sinks, start, ramp, whole;
  int64_t rows;

  if (span->kind == TWH__SPAN_FULL) return q * k + sinks;
  if (span->kind == TWH__SPAN_CAUSAL) {
    /* row i sees min(i + start, k) keys, and the last one all k */
    start = (double)(span->q_offset - span->k_offset + 1);
    ramp = k - start;
    return (q - ramp) * k + ramp * start + ramp * (ramp - 1) / 2 + sinks;
  }
  /* row i sees the keys from i on: `width` of them, until they end */
  rows = twh__min(span->q_len, twh__max(0, span->k_len - span->width + 1));
  whole = (double)rows;
  ramp = q - whole;
  return whole * (double)span->width + ramp * (k - whole) - ramp * (ramp - 1) / 2 + sinks;
}
