/* Parsing the header of a .safetensors file: see safetensors_header.h.
 *
 * Nothing here recurses and every character is looked at behind a bounds check, so a hostile header can only be refused. Sums and
 * products of what it claims stay below SAFETENSORS_MOST, which pointers can be added to. */
#include <stdlib.h>
#include <string.h>

#include "safetensors_header.h"

#define SAFETENSORS_MOST ((size_t)PTRDIFF_MAX)

typedef struct safetensors_cursor {
  char *at, *end;
} safetensors_cursor;

typedef struct safetensors_type {
  const char *name;
  size_t      item;
} safetensors_type;

static const safetensors_type safetensors_types[] = {
  { "BOOL", 1 }, { "U8", 1 },  { "I8", 1 },  { "F8_E4M3", 1 }, { "F8_E5M2", 1 }, { "F8_E8M0", 1 },
  { "I16", 2 },  { "U16", 2 }, { "F16", 2 }, { "BF16", 2 },    { "I32", 4 },     { "U32", 4 },
  { "F32", 4 },  { "I64", 8 }, { "U64", 8 }, { "F64", 8 },     { "C64", 8 },
};

/* The next character behind white space; 0 at the end. */
static char safetensors_next(safetensors_cursor *in)
{
  while (in->at < in->end && (*in->at == ' ' || *in->at == '\t' || *in->at == '\n' || *in->at == '\r')) ++in->at;
  return in->at < in->end ? *in->at : 0;
}

static int safetensors_accept(safetensors_cursor *in, char c)
{
  if (safetensors_next(in) != c || in->at >= in->end) return 0;
  ++in->at;
  return 1;
}

/* Behind a member of a list: 1 = another follows, 0 = it ends here, -1 = neither. */
static int safetensors_more(safetensors_cursor *in, char close)
{
  if (safetensors_accept(in, ',')) return 1;
  return safetensors_accept(in, close) ? 0 : -1;
}

/* Four hexadecimal digits, or -1. */
static int32_t safetensors_hex(safetensors_cursor *in)
{
  static const char digits[] = "0123456789abcdef0123456789ABCDEF";
  int32_t           code = 0;

  if (in->end - in->at < 4) return -1;
  for (int i = 0; i < 4; ++i) {
    char        c = *in->at++;
    const char *digit = c ? strchr(digits, c) : NULL;
    if (!digit) return -1;
    code = 16 * code + (int32_t)(digit - digits) % 16;
  }
  return code;
}

/* The code point behind \u, as UTF-8; 0 where there is none. It takes fewer bytes than the escape. */
static int safetensors_unicode(safetensors_cursor *in, char **to)
{
  static const int lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
  int32_t          code = safetensors_hex(in);
  int              bytes;

  if (code >= 0xd800 && code < 0xdc00) {
    int32_t low = in->end - in->at > 2 && in->at[0] == '\\' && in->at[1] == 'u' ? (in->at += 2, safetensors_hex(in)) : -1;
    if (low < 0xdc00 || low > 0xdfff) return 0;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code <= 0 || (code >= 0xdc00 && code < 0xe000)) {
    return 0; /* also a zero, which would end the name */
  }
  bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int i = bytes - 1; i > 0; --i, code >>= 6) (*to)[i] = (char)(0x80 | (code & 0x3f));
  (*to)[0] = (char)(lead[bytes] | code);
  *to += bytes;
  return 1;
}

static int safetensors_escape(safetensors_cursor *in, char **to)
{
  static const char escapes[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  const char       *found;
  char              c = 0;

  if (in->at < in->end) c = *in->at++;
  if (c == 'u') return safetensors_unicode(in, to);
  found = c ? strchr(escapes, c) : NULL;
  if (!found) return 0;
  *(*to)++ = values[found - escapes];
  return 1;
}

/* A string, resolved in place and ended with a zero where its quote was at the latest. NULL: there is none. */
static const char *safetensors_string(safetensors_cursor *in)
{
  char *start, *to;

  if (!safetensors_accept(in, '"')) return NULL;
  start = to = in->at;
  while (in->at < in->end) {
    unsigned char c = (unsigned char)*in->at++;
    if (c == '"') {
      *to = 0;
      return start;
    }
    if (c < 0x20) return NULL;
    if (c != '\\') {
      *to++ = (char)c;
    } else if (!safetensors_escape(in, &to)) {
      return NULL;
    }
  }
  return NULL;
}

static int safetensors_whole(safetensors_cursor *in, size_t *out)
{
  size_t value = 0;
  char   first = safetensors_next(in), *start = in->at;

  for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; ++in->at) {
    size_t digit = (size_t)(*in->at - '0');
    if (value > (SAFETENSORS_MOST - digit) / 10) return 0;
    value = 10 * value + digit;
  }
  *out = value;
  return in->at != start && (first != '0' || in->at == start + 1);
}

static const char *safetensors_shape(safetensors_cursor *in, safetensors_record *out)
{
  static const char wrong[] = "has a shape that is no list of whole numbers";
  size_t            product = 1; /* of all but the zeros: strides are products too */
  int               empty = 0, more;

  if (!safetensors_accept(in, '[')) return wrong;
  for (more = !safetensors_accept(in, ']'); more > 0; more = safetensors_more(in, ']')) {
    size_t extent;
    if (!safetensors_whole(in, &extent)) return wrong;
    if (out->rank < 2) out->shape[out->rank] = (int64_t)extent;
    ++out->rank;
    empty |= !extent;
    if (extent && product > SAFETENSORS_MOST / extent) return "has a shape with more elements than memory has addresses";
    product *= extent ? extent : 1;
  }
  out->count = empty ? 0 : product;
  return more < 0 ? wrong : NULL;
}

static const char *safetensors_offsets(safetensors_cursor *in, safetensors_record *out)
{
  if (safetensors_accept(in, '[') && safetensors_whole(in, &out->begin) && safetensors_accept(in, ',') &&
      safetensors_whole(in, &out->end) && safetensors_accept(in, ']')) {
    return NULL;
  }
  return "has data_offsets that are no two whole numbers";
}

static const char *safetensors_dtype(safetensors_cursor *in, safetensors_record *out)
{
  const char *text = safetensors_string(in);
  size_t      n;

  if (!text) return "has a dtype that is no text";
  n = strlen(text);
  memcpy(out->dtype, text, n < sizeof out->dtype ? n : sizeof out->dtype - 1);
  for (size_t i = 0; i < sizeof safetensors_types / sizeof safetensors_types[0]; ++i) {
    if (!strcmp(text, safetensors_types[i].name)) out->item = safetensors_types[i].item;
  }
  return NULL;
}

/* The object behind a tensor's name. */
static const char *safetensors_tensor(safetensors_cursor *in, safetensors_record *out)
{
  unsigned seen = 0;
  int      more;

  if (!safetensors_accept(in, '{')) return "is no object";
  for (more = !safetensors_accept(in, '}'); more > 0; more = safetensors_more(in, '}')) {
    const char *key = safetensors_string(in), *wrong;
    unsigned    bit;
    if (!key || !safetensors_accept(in, ':')) return "is no object";
    bit = !strcmp(key, "dtype") ? 1u : !strcmp(key, "shape") ? 2u : !strcmp(key, "data_offsets") ? 4u : 0u;
    if (!bit) return "has an unknown key";
    if (seen & bit) return "has a key twice";
    seen |= bit;
    wrong = bit == 1 ? safetensors_dtype(in, out) : bit == 2 ? safetensors_shape(in, out) : safetensors_offsets(in, out);
    if (wrong) return wrong;
  }
  if (more < 0) return "is no object";
  return seen == 7 ? NULL : "lacks one of dtype, shape and data_offsets";
}

/* Text about the file, which is of no use here. */
static const char *safetensors_metadata(safetensors_cursor *in)
{
  static const char wrong[] = "has metadata that are no object of texts";
  int               more;

  if (!safetensors_accept(in, '{')) return wrong;
  for (more = !safetensors_accept(in, '}'); more > 0; more = safetensors_more(in, '}')) {
    if (!safetensors_string(in) || !safetensors_accept(in, ':') || !safetensors_string(in)) return wrong;
  }
  return more < 0 ? wrong : NULL;
}

static safetensors_record *safetensors_add(safetensors_header *header, const char *name)
{
  safetensors_record *record;

  if (header->count == header->room) {
    size_t room = header->room ? 2 * header->room : 16;
    void  *larger = room > SAFETENSORS_MOST / sizeof *record ? NULL : realloc(header->records, room * sizeof *record);
    if (!larger) return NULL;
    header->records = (safetensors_record *)larger;
    header->room = room;
  }
  record = &header->records[header->count++];
  memset(record, 0, sizeof *record);
  record->name = name;
  return record;
}

static int safetensors_by_name(const void *a, const void *b)
{
  return strcmp(((const safetensors_record *)a)->name, ((const safetensors_record *)b)->name);
}

/* Those without data stand before the one that begins at the same place. */
static int safetensors_by_place(const void *a, const void *b)
{
  const safetensors_record *one = (const safetensors_record *)a, *two = (const safetensors_record *)b;

  if (one->begin != two->begin) return one->begin < two->begin ? -1 : 1;
  return one->end == two->end ? 0 : one->end < two->end ? -1 : 1;
}

/* What the records say of each other and of the data. Leaves them sorted by name. */
static const char *safetensors_check(safetensors_header *header, size_t data_bytes)
{
  size_t end = 0;

  if (header->count) qsort(header->records, header->count, sizeof *header->records, safetensors_by_place);
  for (size_t i = 0; i < header->count; ++i) {
    const safetensors_record *record = &header->records[i];
    size_t                    bytes = record->end - record->begin;
    header->culprit = record->name;
    if (record->begin > record->end) return "ends before it begins";
    if (record->end > data_bytes) return "ends behind the end of the file";
    if (record->begin != end) return record->begin < end ? "overlaps another" : "has a gap before it";
    if (record->item && (bytes / record->item != record->count || bytes % record->item)) {
      return "has another number of bytes than its shape says";
    }
    end = record->end;
  }
  header->culprit = NULL;
  if (end != data_bytes) return "has data that belong to no tensor";

  if (header->count) qsort(header->records, header->count, sizeof *header->records, safetensors_by_name);
  for (size_t i = 1; i < header->count; ++i) {
    header->culprit = header->records[i].name;
    if (!strcmp(header->records[i - 1].name, header->culprit)) return "is there twice";
  }
  header->culprit = NULL;
  return NULL;
}

const char *safetensors_header_parse(char *text, size_t bytes, size_t data_bytes, safetensors_header *out)
{
  static const char  no_object[] = "has a header that is no JSON object";
  safetensors_cursor in;
  int                more;

  memset(out, 0, sizeof *out);
  in.at = text;
  in.end = text + bytes;
  if (!bytes || *text != '{') return no_object;
  ++in.at;
  for (more = !safetensors_accept(&in, '}'); more > 0; more = safetensors_more(&in, '}')) {
    const char         *name = safetensors_string(&in), *wrong;
    safetensors_record *record;
    if (!name || !safetensors_accept(&in, ':')) return no_object;
    if (!strcmp(name, "__metadata__")) {
      wrong = safetensors_metadata(&in);
    } else {
      record = safetensors_add(out, name);
      if (!record) return "has more tensors than there is memory for";
      out->culprit = name;
      wrong = safetensors_tensor(&in, record);
    }
    if (wrong) return wrong;
    out->culprit = NULL;
  }
  if (more < 0) return no_object;
  if (safetensors_next(&in) || in.at != in.end) return "has something behind the object in its header";
  return safetensors_check(out, data_bytes);
}

const safetensors_record *safetensors_header_find(const safetensors_header *header, const char *name)
{
  safetensors_record key;

  if (!header->count) return NULL;
  memset(&key, 0, sizeof key);
  key.name = name;
  return (const safetensors_record *)bsearch(&key, header->records, header->count, sizeof key, safetensors_by_name);
}

void safetensors_header_free(safetensors_header *header)
{
  free(header->records);
  memset(header, 0, sizeof *header);
}
