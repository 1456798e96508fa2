/* Events are written as they come. Those of one track must not cross each other, so that a batch that was in flight beside another
 * one goes to the first track of its kernel that is free since before it began: see timeline.h. */
#include <string.h>

#include "timeline.h"

enum { TIMELINE_PROCESS = 1, TIMELINE_HOST = 1, TIMELINE_FIRST_LANE = 10 };

/* Text in a JSON string; nothing in it needs more than these. */
static void timeline_text(FILE *to, const char *text)
{
  for (; *text; ++text) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      fprintf(to, "\\%c", c);
    else if (c < 32)
      fprintf(to, "\\u%04x", c);
    else
      fputc(c, to);
  }
}

static void timeline_name(FILE *to, const char *what, int track, const char *name, int lane)
{
  fprintf(to, ",\n{\"name\": \"%s\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": \"", what, TIMELINE_PROCESS, track);
  timeline_text(to, name);
  if (lane > 0) fprintf(to, " (%d)", lane + 1);
  fputs("\"}}", to);
  fprintf(to, ",\n{\"name\": \"thread_sort_index\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": {\"sort_index\": %d}}",
          TIMELINE_PROCESS, track, track);
}

int timeline_open(const char *path, const char *const *kernels, timeline *out, complaint *error)
{
  int failed;

  memset(out, 0, sizeof *out);
  failed = outfile_open(path, &out->file, error);
  if (failed) return failed;
  out->kernels = kernels;
  fprintf(out->file.to,
          "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
          "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": \"twoheads\"}}",
          TIMELINE_PROCESS, TIMELINE_HOST);
  timeline_name(out->file.to, "thread_name", TIMELINE_HOST, "host", 0);
  return 0;
}

/* The lane that a batch goes to; the last one takes what finds none. */
static int timeline_lane(timeline *line, const twh_trace_event *event)
{
  int lane = 0, before = 0;

  for (; lane < line->lanes; ++lane) {
    if (line->kernel[lane] != event->oracle) continue;
    if (line->end_s[lane] <= event->begin_s) break;
    ++before;
  }
  if (lane == TIMELINE_LANES) return TIMELINE_LANES - 1;
  if (lane == line->lanes) {
    line->kernel[line->lanes++] = event->oracle;
    timeline_name(line->file.to, "thread_name", TIMELINE_FIRST_LANE + lane, line->kernels[event->oracle], before);
  }
  line->end_s[lane] = event->end_s;
  return lane;
}

static void timeline_begin(timeline *line, const twh_trace_event *event, const char *category, int track)
{
  fprintf(line->file.to, "\"cat\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"wave\": %lld",
          category, TIMELINE_PROCESS, track, 1e6 * event->begin_s, 1e6 * (event->end_s - event->begin_s), (long long)event->wave);
}

static void timeline_batch(timeline *line, const twh_trace_event *event)
{
  FILE *to = line->file.to;
  int   track = TIMELINE_FIRST_LANE + timeline_lane(line, event);

  fprintf(to, ",\n{\"name\": \"%lld call%s\", ", (long long)event->calls, event->calls == 1 ? "" : "s");
  timeline_begin(line, event, "kernel", track);
  fprintf(to, ", \"batch\": %lld, \"first_call\": %lld, \"calls\": %lld, \"tiles\": [", (long long)event->batch,
          (long long)event->first_call, (long long)event->calls);
  for (int64_t i = 0; i < event->tiles; ++i) {
    twh_tile_info tile;
    twh_tile_info_init(&tile);
    if (twh_trace_tile(event, i, &tile, NULL) < 0) break;
    fprintf(to, "%s{\"call\": %lld, \"slot\": %lld, \"sequence\": %lld, \"head\": %lld, \"rows\": [%lld, %lld], \"keys\": [%lld, %lld]}",
            i > 0 ? ", " : "", (long long)tile.call, (long long)tile.slot, (long long)tile.sequence, (long long)tile.q_head,
            (long long)tile.q_begin, (long long)tile.q_len, (long long)tile.k_begin, (long long)tile.k_len);
  }
  fputs("]}}", to);
}

void timeline_event(timeline *line, const twh_trace_event *event)
{
  const char *name = event->kind == TWH_TRACE_ENCODE ? "encode" : event->kind == TWH_TRACE_DECODE ? "decode" : "merge";

  if (event->kind == TWH_TRACE_BATCH) {
    timeline_batch(line, event);
    return;
  }
  fprintf(line->file.to, ",\n{\"name\": \"%s\", ", name);
  timeline_begin(line, event, "host", TIMELINE_HOST);
  fputs("}}", line->file.to);
}

int timeline_close(timeline *line, int failed, complaint *error)
{
  if (!failed) fputs("\n]}\n", line->file.to);
  return outfile_close(&line->file, failed, error);
}
