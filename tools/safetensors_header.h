/* The header of a .safetensors file: JSON of exactly one form,
 *     {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"text": "text", ...}}
 * with offsets into the data, which they cover without overlap or gap. Anything else is refused. */
#ifndef TOOLS_SAFETENSORS_HEADER_H
#define TOOLS_SAFETENSORS_HEADER_H

#include <stddef.h>
#include <stdint.h>

typedef struct safetensors_record {
  const char *name;
  char        dtype[16];   /* cut to fit */
  size_t      item;        /* bytes of an element; 0 where the type is unknown, or its elements are no whole bytes */
  size_t      rank, count; /* dimensions, and elements of all of them */
  int64_t     shape[2];    /* of the first two */
  size_t      begin, end;  /* bytes of the data */
} safetensors_record;

typedef struct safetensors_header {
  safetensors_record *records; /* sorted by name; names point into the text that was parsed */
  size_t              count, room;
  const char         *culprit; /* name of the tensor that is wrong, or NULL: the header itself is */
} safetensors_header;

/* Parse `bytes` of text, which is changed (escapes are resolved in place), for a file with data_bytes of data. NULL, or what is
 * wrong. The caller gives `out` to safetensors_header_free either way. */
const char *safetensors_header_parse(char *text, size_t bytes, size_t data_bytes, safetensors_header *out);

/* The record of a name, or NULL. */
const safetensors_record *safetensors_header_find(const safetensors_header *header, const char *name);

void safetensors_header_free(safetensors_header *header);

#endif
