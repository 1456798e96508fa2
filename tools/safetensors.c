/* Reading .safetensors files: see safetensors.h.
 *
 * The data are read to the beginning of a block of their own, so that a tensor is aligned if its offset is a multiple of its
 * element. The format does not promise that; those of which it is not true are copied when the file is opened. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complaint.h"
#include "safetensors.h"
#include "safetensors_header.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#  error "little-endian data are read as they are"
#endif

enum { SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000 }; /* the format's own limit */

struct safetensors {
  char              *text; /* of the header */
  char              *data;
  void             **moved; /* of each record: its copy, or NULL */
  safetensors_header header;
};

static int safetensors_lack(const char *path, complaint *error)
{
  return complaint_make(error, EXIT_FAILED, "not enough memory for %s", path);
}

static int safetensors_read(const char *path, FILE *from, void *to, size_t bytes, complaint *error)
{
  if (fread(to, 1, bytes, from) == bytes) return 0;
  return complaint_make(error, EXIT_FAILED, "cannot read %s: %s", path, ferror(from) ? strerror(errno) : "it is cut off");
}

/* The bytes of the header and of the data; they add up to the file's, with 8 more. */
static int safetensors_sizes(const char *path, FILE *from, size_t *header, size_t *data, complaint *error)
{
  unsigned char start[8];
  uint64_t      length = 0, size;
  off_t         end;
  int           failed = safetensors_read(path, from, start, sizeof start, error);

  if (failed) return failed;
  for (int i = 7; i >= 0; --i) length = length << 8 | start[i];
  if (fseeko(from, 0, SEEK_END) || (end = ftello(from)) < 8 || fseeko(from, 8, SEEK_SET)) {
    return complaint_make(error, EXIT_FAILED, "cannot read %s: it is no file of known length", path);
  }
  size = (uint64_t)end - 8;
  if (length > SAFETENSORS_HEADER_MAX) {
    return complaint_make(error, EXIT_FAILED, "%s has a header that would be too long, %llu bytes: is it a .safetensors file?",
                          path, (unsigned long long)length);
  }
  if (length > size) return complaint_make(error, EXIT_FAILED, "%s is cut off inside its header", path);
  if (size > (uint64_t)PTRDIFF_MAX - 8) return safetensors_lack(path, error);
  *header = (size_t)length;
  *data = (size_t)(size - length);
  return 0;
}

static int safetensors_parse(const char *path, safetensors *file, size_t header, size_t data, complaint *error)
{
  const char *wrong = safetensors_header_parse(file->text, header, data, &file->header);

  if (!wrong) return 0;
  if (!file->header.culprit) return complaint_make(error, EXIT_FAILED, "%s %s", path, wrong);
  return complaint_make(error, EXIT_FAILED, "%s: tensor '%.80s' %s", path, file->header.culprit, wrong);
}

/* Copy what is not aligned. */
static int safetensors_align(const char *path, safetensors *file, complaint *error)
{
  file->moved = (void **)calloc(file->header.count + 1, sizeof *file->moved);
  if (!file->moved) return safetensors_lack(path, error);
  for (size_t i = 0; i < file->header.count; ++i) {
    const safetensors_record *record = &file->header.records[i];
    size_t                    bytes = record->end - record->begin;
    if (!record->item || record->begin % record->item == 0) continue;
    file->moved[i] = malloc(bytes + 1);
    if (!file->moved[i]) return safetensors_lack(path, error);
    memcpy(file->moved[i], file->data + record->begin, bytes);
  }
  return 0;
}

static int safetensors_fill(const char *path, FILE *from, safetensors *file, complaint *error)
{
  size_t header = 0, data = 0;
  int    failed = safetensors_sizes(path, from, &header, &data, error);

  if (failed) return failed;
  file->text = (char *)malloc(header + 1);
  if (!file->text) return safetensors_lack(path, error);
  failed = safetensors_read(path, from, file->text, header, error);
  if (!failed) failed = safetensors_parse(path, file, header, data, error);
  if (failed) return failed;
  file->data = (char *)malloc(data + 1);
  if (!file->data) return safetensors_lack(path, error);
  failed = safetensors_read(path, from, file->data, data, error);
  return failed ? failed : safetensors_align(path, file, error);
}

safetensors *safetensors_open(const char *path, char *message, size_t bytes)
{
  complaint    error;
  FILE        *from = fopen(path, "rb");
  safetensors *file = from ? (safetensors *)calloc(1, sizeof *file) : NULL;
  int          failed;

  if (!from) {
    failed = complaint_make(&error, EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
  } else {
    failed = file ? safetensors_fill(path, from, file, &error) : safetensors_lack(path, &error);
    fclose(from);
  }
  if (!failed) return file;
  safetensors_close(file);
  if (bytes) snprintf(message, bytes, "%s", error.text);
  return NULL;
}

void safetensors_close(safetensors *file)
{
  if (!file) return;
  for (size_t i = 0; file->moved && i < file->header.count; ++i) free(file->moved[i]);
  free(file->moved);
  safetensors_header_free(&file->header);
  free(file->data);
  free(file->text);
  free(file);
}

static const void *safetensors_data(const safetensors *file, const safetensors_record *record)
{
  const void *moved = file->moved[record - file->header.records];

  return moved ? moved : file->data + record->begin;
}

int safetensors_matrix(const safetensors *file, const char *name, twh_matrix *matrix)
{
  const safetensors_record *record = safetensors_header_find(&file->header, name);
  int32_t                   dtype = 0;

  if (!record || record->rank < 1 || record->rank > 2) return 0;
  if (!strcmp(record->dtype, "F32")) dtype = TWH_F32;
  if (!strcmp(record->dtype, "F16")) dtype = TWH_F16;
  if (!strcmp(record->dtype, "BF16")) dtype = TWH_BF16;
  if (!dtype) return 0;
  twh_matrix_init(matrix);
  matrix->dtype = dtype;
  matrix->data = safetensors_data(file, record);
  matrix->rows = record->rank == 2 ? record->shape[0] : 1;
  matrix->cols = record->shape[record->rank - 1];
  return 1;
}

/* All elements of a tensor of that type, or NULL. */
static const void *safetensors_flat(const safetensors *file, const char *name, const char *dtype, int64_t *n)
{
  const safetensors_record *record = safetensors_header_find(&file->header, name);

  if (!record || strcmp(record->dtype, dtype)) return NULL;
  *n = (int64_t)record->count;
  return safetensors_data(file, record);
}

const int32_t *safetensors_i32(const safetensors *file, const char *name, int64_t *n)
{
  return (const int32_t *)safetensors_flat(file, name, "I32", n);
}

const double *safetensors_f64(const safetensors *file, const char *name, int64_t *n)
{
  return (const double *)safetensors_flat(file, name, "F64", n);
}
