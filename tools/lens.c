/* Whole numbers in a text: see lens.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lens.h"
#include "number.h"

static const char   *lens_apart = " ,\t\r\n";
static const int64_t lens_most = (int64_t)1 << 60; /* the library takes no more */

typedef struct lens_list {
  twh_sequence *sequences;
  size_t        count, room;
  int64_t       sum, q_offset;
} lens_list;

/* A whole file as text; the caller frees it. Memory grows with what has arrived. */
static int lens_file(const char *path, char **out, complaint *error)
{
  FILE  *from = fopen(path, "rb");
  size_t room = 1 << 12, got = 0, n;
  char  *text = from ? (char *)malloc(room) : NULL;
  int    failed = 0;

  if (!from) return complaint_make(error, EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
  while (text && (n = fread(text + got, 1, room - 1 - got, from)) > 0) {
    char *larger;
    got += n;
    if (got + 1 < room) continue;
    room *= 2;
    larger = (char *)realloc(text, room);
    if (!larger) free(text);
    text = larger;
  }
  if (!text) {
    failed = complaint_make(error, EXIT_FAILED, "not enough memory for %s", path);
  } else if (ferror(from)) {
    failed = complaint_make(error, EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
  } else if (memchr(text, 0, got)) {
    failed = complaint_make(error, EXIT_FAILED, "%s is no text file of lengths", path);
  } else {
    text[got] = 0;
  }
  fclose(from);
  if (failed) free(text);
  *out = failed ? NULL : text;
  return failed;
}

/* NULL, or what is wrong with the number. */
static const char *lens_add(lens_list *list, const char *text)
{
  twh_sequence *at;
  int64_t       len;
  const char   *wrong = number_whole(text, &len);

  if (wrong) return wrong;
  if (len < 0) return "is no length";
  if (len > lens_most - list->sum) return "makes the batch larger than 2^60 tokens";
  if (list->count == list->room) {
    size_t room = list->room ? 2 * list->room : 64;
    at = (twh_sequence *)realloc(list->sequences, room * sizeof *at);
    if (!at) return "is one more than memory has room for";
    list->sequences = at;
    list->room = room;
  }
  at = &list->sequences[list->count++];
  memset(at, 0, sizeof *at);
  at->q_begin = at->k_begin = list->sum;
  at->q_len = at->k_len = len;
  at->q_offset = list->q_offset;
  list->sum += len;
  return NULL;
}

/* The numbers of a text, which is changed. */
static int lens_parse(const char *name, int exit_code, char *text, lens_list *list, complaint *error)
{
  for (text += strspn(text, lens_apart); *text; text += strspn(text, lens_apart)) {
    char       *end = text + strcspn(text, lens_apart), last = *end;
    const char *wrong;
    *end = 0;
    wrong = lens_add(list, text);
    if (wrong) return complaint_make(error, exit_code, "%s: '%s' %s", name, text, wrong);
    *end = last;
    text = end;
  }
  return list->count ? 0 : complaint_make(error, exit_code, "%s: there are no lengths", name);
}

int lens_read(const options *given, twh_sequence **out, int64_t *count, int64_t *sum, complaint *error)
{
  lens_list list;
  char     *text = NULL;
  int       failed = 0;

  *out = NULL;
  *count = *sum = 0;
  if (!given->lens && !given->batch_lens) return 0;
  memset(&list, 0, sizeof list);
  list.q_offset = given->q_offset;
  if (given->batch_lens) {
    failed = lens_file(given->batch_lens, &text, error);
  } else {
    text = (char *)malloc(strlen(given->lens) + 1);
    if (!text) failed = complaint_make(error, EXIT_FAILED, "not enough memory for --lens");
    if (text) memcpy(text, given->lens, strlen(given->lens) + 1);
  }
  if (!failed && given->batch_lens) failed = lens_parse(given->batch_lens, EXIT_FAILED, text, &list, error);
  if (!failed && given->lens) failed = lens_parse("--lens", EXIT_USAGE, text, &list, error);
  free(text);
  if (failed) free(list.sequences);
  if (failed) return failed;
  *out = list.sequences;
  *count = (int64_t)list.count;
  *sum = list.sum;
  return 0;
}
