/* The dictionary of a .npy header: see npy_header.h.
 *
 * The format says that any Python literal may stand there; what NumPy writes is three known keys with a string, a boolean and a
 * tuple of whole numbers, and that is what is taken. Every character is looked at behind a bounds check, so that a hostile
 * header can only be refused. */
#include <stdio.h>
#include <string.h>

#include "npy_header.h"

typedef struct npy_header_cursor {
  const char *at, *end;
} npy_header_cursor;

static void npy_header_skip(npy_header_cursor *in)
{
  while (in->at < in->end && (*in->at == ' ' || *in->at == '\t' || *in->at == '\n' || *in->at == '\r')) ++in->at;
}

/* Past white space and `c`; 0 when something else stands there. */
static int npy_header_accept(npy_header_cursor *in, char c)
{
  npy_header_skip(in);
  if (in->at >= in->end || *in->at != c) return 0;
  ++in->at;
  return 1;
}

static int npy_header_word(npy_header_cursor *in, const char *word)
{
  size_t n = strlen(word);

  npy_header_skip(in);
  if ((size_t)(in->end - in->at) < n || memcmp(in->at, word, n)) return 0;
  in->at += n;
  return 1;
}

/* A quoted string without escapes, cut to fit. */
static int npy_header_quoted(npy_header_cursor *in, char *out, size_t room)
{
  char   quote;
  size_t n = 0;

  npy_header_skip(in);
  if (in->at >= in->end || (*in->at != '\'' && *in->at != '"')) return 0;
  quote = *in->at++;
  for (; in->at < in->end && *in->at != quote; ++in->at) {
    if (n + 1 < room) out[n++] = *in->at;
  }
  out[n] = 0;
  if (in->at >= in->end) return 0;
  ++in->at;
  return 1;
}

static const char *npy_header_dimension(npy_header_cursor *in, int64_t *out)
{
  const char *start;
  int64_t     value = 0;

  npy_header_skip(in);
  if (in->at < in->end && *in->at == '-') return "has a negative dimension";
  for (start = in->at; in->at < in->end && *in->at >= '0' && *in->at <= '9'; ++in->at) {
    int digit = *in->at - '0';
    if (value > (INT64_MAX - digit) / 10) return "has a dimension that does not fit 64 bits";
    value = 10 * value + digit;
  }
  if (in->at == start) return "has a shape that is no tuple of whole numbers";
  *out = value;
  return NULL;
}

static const char *npy_header_shape(npy_header_cursor *in, npy_header *out)
{
  if (!npy_header_accept(in, '(')) return "has a shape that is no tuple of whole numbers";
  for (out->rank = 0; !npy_header_accept(in, ')'); ++out->rank) {
    const char *wrong;
    if (out->rank == NPY_HEADER_RANK_MAX) return "has more than 4 dimensions";
    if ((wrong = npy_header_dimension(in, &out->shape[out->rank])) != NULL) return wrong;
    if (!npy_header_accept(in, ',') && !(in->at < in->end && *in->at == ')')) {
      return "has a shape that is no tuple of whole numbers";
    }
  }
  return NULL;
}

/* One key with its value; `seen` collects the keys. */
static const char *npy_header_member(npy_header_cursor *in, npy_header *out, unsigned *seen)
{
  char     key[16];
  unsigned bit;

  if (!npy_header_quoted(in, key, sizeof key) || !npy_header_accept(in, ':')) return "has a header that is no dictionary";
  bit = !strcmp(key, "descr") ? 1u : !strcmp(key, "fortran_order") ? 2u : !strcmp(key, "shape") ? 4u : 0u;
  if (!bit) return "has an unknown key in its header";
  if (*seen & bit) return "has a key twice in its header";
  *seen |= bit;
  if (bit == 4) return npy_header_shape(in, out);
  if (bit == 2) {
    out->fortran_order = npy_header_word(in, "True");
    return out->fortran_order || npy_header_word(in, "False") ? NULL : "has a fortran_order that is neither True nor False";
  }
  if (npy_header_quoted(in, out->descr, sizeof out->descr)) return NULL;
  return npy_header_accept(in, '[') ? "has records as elements; an array of numbers is needed"
                                    : "has a header without element type";
}

const char *npy_header_parse(const char *text, size_t bytes, npy_header *out)
{
  npy_header_cursor in;
  unsigned          seen = 0;

  memset(out, 0, sizeof *out);
  in.at = text;
  in.end = text + bytes;
  if (!npy_header_accept(&in, '{')) return "has a header that is no dictionary";
  while (!npy_header_accept(&in, '}')) {
    const char *wrong = npy_header_member(&in, out, &seen);
    if (wrong) return wrong;
    if (npy_header_accept(&in, ',')) continue;
    if (npy_header_accept(&in, '}')) break;
    return "has a header that is no dictionary";
  }
  npy_header_skip(&in);
  if (in.at != in.end) return "has something behind the dictionary in its header";
  return seen == 7 ? NULL : "lacks one of descr, fortran_order and shape in its header";
}

size_t npy_header_format(const npy_header *header, size_t prefix, char *text, size_t room)
{
  size_t n;
  int    wrote = snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", header->descr);

  for (int i = 0; i < header->rank && wrote >= 0 && (size_t)wrote < room; ++i) {
    const char *after = i + 1 < header->rank ? ", " : header->rank == 1 ? "," : "";
    wrote += snprintf(text + wrote, room - (size_t)wrote, "%lld%s", (long long)header->shape[i], after);
  }
  if (wrote >= 0 && (size_t)wrote < room) wrote += snprintf(text + wrote, room - (size_t)wrote, "), }");
  if (wrote < 0 || (size_t)wrote + 64 >= room) return 0;
  for (n = (size_t)wrote; (prefix + n + 1) % 64; ++n) text[n] = ' ';
  text[n++] = '\n';
  return n;
}
