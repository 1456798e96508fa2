/* JSON output: see json.h. */
#include <math.h>
#include <stdlib.h>

#include "json.h"

static void json_string(FILE *to, const char *text)
{
  putc('"', to);
  for (; *text; ++text) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') {
      putc('\\', to);
      putc(c, to);
    } else if (c < 0x20 || c == 0x7f) {
      fprintf(to, "\\u%04x", (unsigned)c);
    } else {
      putc(c, to);
    }
  }
  putc('"', to);
}

static void json_key(json_object *object, const char *key)
{
  fputs(object->members++ ? ", " : "", object->to);
  json_string(object->to, key);
  fputs(": ", object->to);
}

void json_open(json_object *object, FILE *to)
{
  object->to = to;
  object->members = 0;
  putc('{', to);
}

void json_whole(json_object *object, const char *key, int64_t value)
{
  json_key(object, key);
  fprintf(object->to, "%lld", (long long)value);
}

void json_real(json_object *object, const char *key, double value)
{
  char text[40];

  json_key(object, key);
  if (!isfinite(value)) {
    fputs("null", object->to);
    return;
  }
  for (int digits = 15; digits <= 17; ++digits) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  fputs(text, object->to);
}

void json_wholes(json_object *object, const char *key, const int64_t *values, int n)
{
  json_key(object, key);
  for (int i = 0; i < n; ++i) fprintf(object->to, "%s%lld", i ? ", " : "[", (long long)values[i]);
  fputs(n > 0 ? "]" : "[]", object->to);
}

void json_text(json_object *object, const char *key, const char *value)
{
  json_key(object, key);
  json_string(object->to, value);
}

void json_truth(json_object *object, const char *key, int value)
{
  json_key(object, key);
  fputs(value < 0 ? "null" : value ? "true" : "false", object->to);
}

void json_inner(json_object *object, const char *key, json_object *inner)
{
  json_key(object, key);
  json_open(inner, object->to);
}

void json_close(json_object *object)
{
  putc('}', object->to);
}
