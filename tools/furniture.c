/* Axes, legend, captions: see furniture.h. */
#include <stdarg.h>
#include <string.h>

#include "furniture.h"
#include "svg.h"

/* The distance of ticks: a power of two, so that blocks of a kernel's length begin at ticks, and at most about eight of them.
 * */
static int64_t furniture_step(int64_t length)
{
  int64_t step = 1;
  while (step < length / 8) step *= 2;
  return step;
}

static void furniture_tick(FILE *to, const sketch_view *view, double size, int64_t at, int across)
{
  char   text[32];
  double x = across ? sketch_x(view, (double)at) : view->x, y = across ? view->y : sketch_y(view, (double)at);

  snprintf(text, sizeof text, "%lld", (long long)at);
  if (across) {
    svg_line(to, x, y - 5, x, y, "stroke=\"#444\"");
    svg_text(to, x, y - 8, size, 1000, "text-anchor=\"middle\"", text);
  } else {
    svg_line(to, x - 5, y, x, y, "stroke=\"#444\"");
    svg_text(to, x - 8, y + 0.36 * size, size, 1000, "text-anchor=\"end\"", text);
  }
}

static void furniture_ticks(FILE *to, const sketch_view *view, double size, int64_t first, int64_t length, double pixels,
                            int across)
{
  int64_t step = furniture_step(length);

  while (step < length && pixels * (double)step / (double)length < (across ? 4.2 : 1.6) * size) step *= 2;
  for (int64_t at = (first + step - 1) / step * step; at <= first + length; at += step)
    furniture_tick(to, view, size, at, across);
}

void furniture_axes(FILE *to, const sketch_view *view, double size, const char *rows, const char *keys)
{
  char   style[120];
  double left = view->x - 10 - 0.6 * size * (double)snprintf(NULL, 0, "%lld", (long long)(view->row + view->rows)) - size;

  svg_rect(to, view->x, view->y, view->width, view->height, "fill=\"none\" stroke=\"#444\"");
  furniture_ticks(to, view, size, view->key, view->keys, view->width, 1);
  furniture_ticks(to, view, size, view->row, view->rows, view->height, 0);
  svg_text(to, view->x + view->width / 2, view->y - 2.1 * size, size, 1000, "text-anchor=\"middle\"", keys);
  snprintf(style, sizeof style, "text-anchor=\"middle\" transform=\"rotate(-90 %.2f %.2f)\"", left, view->y + view->height / 2);
  svg_text(to, left, view->y + view->height / 2, size, 1000, style, rows);
}

double furniture_legend_height(const int64_t *counts, int shaded)
{
  int shown = 0;
  for (int kind = 0; kind < SKETCH_KINDS; ++kind) shown += counts[kind] != 0;
  return (shown + 1) / 2 * 22 + (shaded ? 20 : 0);
}

void furniture_legend(FILE *to, double x, double y, const int64_t *counts, int shaded)
{
  char style[80], text[120];
  int  shown = 0;

  for (int kind = 0; kind < SKETCH_KINDS; ++kind) {
    const sketch_kind *row = &sketch_kinds[kind];
    double             left = x + shown % 2 * 300, top = y + shown / 2 * 22;
    if (counts[kind] == 0) continue;
    snprintf(style, sizeof style, "class=\"legend\" fill=\"%s\"", row->colour);
    svg_rect(to, left, top, 14, 14, style);
    snprintf(text, sizeof text, "%lld %s: %s", (long long)counts[kind], row->name, row->what);
    svg_text(to, left + 21, top + 11.5, 12, 275, "", text);
    ++shown;
  }
  if (!shaded) return;
  svg_text(to, x, y + (shown + 1) / 2 * 22 + 11.5, 12, 640, "fill=\"#555\"",
           "Each cell: its kinds in proportion; the stronger, the more of its pairs are seen.");
}

/* Append to a text that is cut where it does not fit. */
static void furniture_append(char *text, size_t room, const char *format, ...)
#if defined(__GNUC__)
  __attribute__((format(printf, 3, 4)))
#endif
  ;

static void furniture_append(char *text, size_t room, const char *format, ...)
{
  size_t  n = strlen(text);
  va_list list;

  va_start(list, format);
  vsnprintf(text + n, room - n, format, list);
  va_end(list);
}

void furniture_problem(char *text, size_t room, const workload *work)
{
  const twh_pattern *pattern = &work->pattern;
  const twh_problem *problem = &work->problem;
  int                causal = (pattern->flags & TWH_CAUSAL) != 0, left = (pattern->flags & TWH_LEFT) != 0;
  int                right = (pattern->flags & TWH_RIGHT) != 0;

  snprintf(text, room, "%s", causal ? "Causal" : left || right ? "Window" : "Full attention");
  if (causal && (left || right)) furniture_append(text, room, " window");
  if (left) furniture_append(text, room, ", %lld keys before", (long long)pattern->left);
  if (right) furniture_append(text, room, ", %lld keys after", (long long)pattern->right);
  if (pattern->sink_tokens) furniture_append(text, room, ", %lld sink tokens", (long long)pattern->sink_tokens);
  if (problem->flags & TWH_PROBLEM_ALIBI) furniture_append(text, room, ", ALiBi");
  if (problem->flags & TWH_PROBLEM_KEY_BIAS) furniture_append(text, room, ", key biases");
  furniture_append(text, room, ": %lld %s", (long long)work->q_rows, work->q_rows == 1 ? "query" : "queries");
  furniture_append(text, room, ", %lld %s", (long long)work->k_rows, work->k_rows == 1 ? "key" : "keys");
  if (work->sequences) furniture_append(text, room, " in %lld sequences", (long long)problem->batch);
  if (!work->sequences && problem->batch != 1) furniture_append(text, room, ", batch %lld", (long long)problem->batch);
  furniture_append(text, room, ", %lld %s", (long long)problem->q_heads, problem->q_heads == 1 ? "head" : "heads");
  if (problem->kv_heads != problem->q_heads)
    furniture_append(text, room, " on %lld of keys and values", (long long)problem->kv_heads);
}

void furniture_kernel(char *text, size_t room, const char *name, const twh_oracle *oracle)
{
  twh_oracle_desc desc;

  twh_oracle_desc_init(&desc);
  text[0] = 0;
  if (twh_oracle_get_desc(oracle, &desc, NULL) < 0) return;
  snprintf(text, room, "Kernel %.80s%s: %lld x %lld", name, strlen(name) > 80 ? "..." : "", (long long)desc.q_len,
           (long long)desc.k_len);
  if (desc.slots > 1) furniture_append(text, room, " in %lld slots", (long long)desc.slots);
  furniture_append(text, room, ", dimensions %lld and %lld", (long long)desc.qk_dim, (long long)desc.v_dim);
}
