/* Parsing --oracle NAME[,key=value|flag...] by a table: see oracle_spec.h.
 *
 * A plugin describes itself: what follows its name goes to it as it stands, except cost_us, which only the command knows. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "options.h"
#include "oracle_spec.h"
#include "rounding.h"

enum { ORACLE_SPEC_WHOLE, ORACLE_SPEC_REAL, ORACLE_SPEC_DTYPE, ORACLE_SPEC_MASK, ORACLE_SPEC_LSE, ORACLE_SPEC_ISA };

typedef struct oracle_spec_row {
  const char *key;
  int         kind;
  size_t      offset; /* of the field */
  uint32_t    bits;   /* MASK, LSE: what the flag adds; others: 1 = of sim only */
} oracle_spec_row;

#define ORACLE_SPEC_FIELD(field) offsetof(oracle_spec, field)

static const oracle_spec_row oracle_spec_rows[] = {
  { "len", ORACLE_SPEC_WHOLE, ORACLE_SPEC_FIELD(len), 0 },
  { "q_len", ORACLE_SPEC_WHOLE, ORACLE_SPEC_FIELD(q_len), 0 },
  { "k_len", ORACLE_SPEC_WHOLE, ORACLE_SPEC_FIELD(k_len), 0 },
  { "slots", ORACLE_SPEC_WHOLE, ORACLE_SPEC_FIELD(slots), 0 },
  { "qk", ORACLE_SPEC_WHOLE, ORACLE_SPEC_FIELD(qk), 0 },
  { "v", ORACLE_SPEC_WHOLE, ORACLE_SPEC_FIELD(v), 0 },
  { "dtype", ORACLE_SPEC_DTYPE, ORACLE_SPEC_FIELD(dtype), 0 },
  { "scale", ORACLE_SPEC_REAL, ORACLE_SPEC_FIELD(scale), 0 },
  { "softcap", ORACLE_SPEC_REAL, ORACLE_SPEC_FIELD(softcap), 0 },
  { "cost_us", ORACLE_SPEC_REAL, ORACLE_SPEC_FIELD(cost_us), 0 },
  { "isa", ORACLE_SPEC_ISA, ORACLE_SPEC_FIELD(isa), 0 },
  { "batch_us", ORACLE_SPEC_REAL, ORACLE_SPEC_FIELD(batch_us), 1 },
  { "call_us", ORACLE_SPEC_REAL, ORACLE_SPEC_FIELD(call_us), 1 },
  { "gbps", ORACLE_SPEC_REAL, ORACLE_SPEC_FIELD(gbps), 1 },
  { "depth", ORACLE_SPEC_WHOLE, ORACLE_SPEC_FIELD(depth), 1 },
  { "batch", ORACLE_SPEC_WHOLE, ORACLE_SPEC_FIELD(batch), 1 },
  { "nomask", ORACLE_SPEC_MASK, ORACLE_SPEC_FIELD(mask_modes), TWH_MASK_NONE },
  { "causal", ORACLE_SPEC_MASK, ORACLE_SPEC_FIELD(mask_modes), TWH_MASK_CAUSAL },
  { "mask", ORACLE_SPEC_MASK, ORACLE_SPEC_FIELD(mask_modes), TWH_MASK_TENSOR },
  { "lse", ORACLE_SPEC_LSE, ORACLE_SPEC_FIELD(flags), TWH_ORACLE_LSE },
  { "lse2", ORACLE_SPEC_LSE, ORACLE_SPEC_FIELD(flags), TWH_ORACLE_LSE | TWH_ORACLE_LSE_BASE2 },
};

enum { ORACLE_SPEC_ROWS = sizeof oracle_spec_rows / sizeof oracle_spec_rows[0] };

static const oracle_spec_row *oracle_spec_find(const char *key, size_t length)
{
  for (int i = 0; i < ORACLE_SPEC_ROWS; ++i) {
    const char *known = oracle_spec_rows[i].key;
    if (strlen(known) == length && !memcmp(known, key, length)) return &oracle_spec_rows[i];
  }
  return NULL;
}

/* ORACLE_SPEC_* by its name; 0: there is none of that name. Whether this CPU has it is found when the kernel is made. */
static int32_t oracle_spec_isa(const char *name)
{
  static const char *const names[] = { "portable", "avx2", "avx512", "neon" };

  for (int i = 0; i < 4; ++i) {
    if (!strcmp(name, names[i])) return ORACLE_SPEC_PORTABLE + i;
  }
  return 0;
}

static int oracle_spec_store(oracle_spec *out, const oracle_spec_row *row, const char *value, complaint *error)
{
  void       *field = (char *)out + row->offset;
  const char *wrong = NULL;
  int         flag = row->kind == ORACLE_SPEC_MASK || row->kind == ORACLE_SPEC_LSE;

  if (!flag && row->bits && out->kind != ORACLE_SPEC_SIM) {
    return complaint_make(error, EXIT_USAGE, "--oracle: '%s' goes with sim only", row->key);
  }
  if (flag && value) return complaint_make(error, EXIT_USAGE, "--oracle: '%s' takes no value", row->key);
  if (!flag && !value) return complaint_make(error, EXIT_USAGE, "--oracle: '%s' needs a value: %s=...", row->key, row->key);
  if (row->kind == ORACLE_SPEC_LSE && out->flags) {
    return complaint_make(error, EXIT_USAGE, "--oracle: 'lse' and 'lse2' exclude each other");
  }
  if (flag) *(uint32_t *)field |= row->bits;
  if (row->kind == ORACLE_SPEC_WHOLE) wrong = number_whole(value, (int64_t *)field);
  if (row->kind == ORACLE_SPEC_REAL) wrong = number_real(value, (double *)field);
  if (row->kind == ORACLE_SPEC_ISA) {
    if (out->kind != ORACLE_SPEC_CPU) return complaint_make(error, EXIT_USAGE, "--oracle: 'isa' goes with cpu only");
    out->isa = oracle_spec_isa(value);
    if (!out->isa) wrong = "is not portable, avx2, avx512 or neon";
  }
  if (row->kind == ORACLE_SPEC_DTYPE) {
    out->dtype = rounding_dtype(value);
    if (!out->dtype || out->dtype == TWH_F64) wrong = "is not f32, f16 or bf16";
  }
  if (!wrong && !strcmp(row->key, "cost_us") && !(out->cost_us > 0)) wrong = "is not above zero";
  if (!wrong && row->bits && row->kind == ORACLE_SPEC_REAL && !(*(double *)field >= 0)) wrong = "is less than zero";
  if (!wrong && !strcmp(row->key, "depth") && (out->depth < 1 || out->depth > 64)) wrong = "is not in 1..64";
  if (!wrong && !strcmp(row->key, "batch") && out->batch < 1) wrong = "is less than 1";
  if (!wrong && !strcmp(row->key, "scale")) out->has_scale = 1;
  return wrong ? complaint_make(error, EXIT_USAGE, "--oracle: %s: '%s' %s", row->key, value, wrong) : 0;
}

/* One item, which is changed. `seen` collects the rows. */
static int oracle_spec_item(oracle_spec *out, char *item, uint32_t *seen, complaint *error)
{
  char                  *equals = strchr(item, '=');
  const oracle_spec_row *row = oracle_spec_find(item, equals ? (size_t)(equals - item) : strlen(item));

  if (!row) return complaint_make(error, EXIT_USAGE, "--oracle: '%s' is no key or flag of a kernel", item);
  if (*seen >> (row - oracle_spec_rows) & 1) {
    return complaint_make(error, EXIT_USAGE, "--oracle: '%s' is given twice", row->key);
  }
  *seen |= (uint32_t)1 << (row - oracle_spec_rows);
  return oracle_spec_store(out, row, equals ? equals + 1 : NULL, error);
}

/* Items up to the end of the text, which is changed. For a plugin all but cost_us are joined again into its options. */
static int oracle_spec_items(oracle_spec *out, char *text, complaint *error)
{
  uint32_t seen = 0;
  char    *to = out->options;

  while (text) {
    char *comma = strchr(text, ',');
    int   own;
    if (comma) *comma = 0;
    own = out->kind != ORACLE_SPEC_PLUGIN || !strncmp(text, "cost_us=", 8);
    if (own) {
      int failed = oracle_spec_item(out, text, &seen, error);
      if (failed) return failed;
    } else {
      if (to > out->options) *to++ = ',';
      memcpy(to, text, strlen(text) + 1);
      to += strlen(text);
    }
    text = comma ? comma + 1 : NULL;
  }
  return 0;
}

static int oracle_spec_name(oracle_spec *out, char *name, complaint *error)
{
  if (!strcmp(name, "blis")) {
    out->kind = ORACLE_SPEC_BLIS;
  } else if (!strcmp(name, "reference")) {
    out->kind = ORACLE_SPEC_REFERENCE;
  } else if (!strcmp(name, "cpu")) {
    out->kind = ORACLE_SPEC_CPU;
  } else if (!strcmp(name, "sim")) {
    out->kind = ORACLE_SPEC_SIM;
  } else if (!strncmp(name, "plugin:", 7) && name[7]) {
    out->kind = ORACLE_SPEC_PLUGIN;
    out->path = name + 7;
  } else {
    return complaint_make(error, EXIT_USAGE, "--oracle: '%s' is not cpu, blis, reference, sim or plugin:FILE.so", name);
  }
  return 0;
}

int oracle_spec_parse(const char *text, oracle_spec *out, complaint *error)
{
  size_t bytes = strlen(text) + 1;
  char  *copy = (char *)malloc(bytes), *comma;
  int    failed;

  memset(out, 0, sizeof *out);
  out->len = out->q_len = out->k_len = out->slots = out->qk = out->v = out->depth = out->batch = OPTIONS_ABSENT;
  out->dtype = TWH_F32;
  out->options = (char *)calloc(bytes, 1);
  if (!copy || !out->options) {
    failed = complaint_make(error, EXIT_FAILED, "not enough memory for --oracle");
  } else {
    memcpy(copy, text, bytes);
    comma = strchr(copy, ',');
    if (comma) *comma = 0;
    failed = oracle_spec_name(out, copy, error);
    if (!failed) failed = oracle_spec_items(out, comma ? comma + 1 : NULL, error);
  }
  if (!failed && out->path) { /* the copy's start becomes the path */
    memmove(copy, out->path, strlen(out->path) + 1);
    out->path = copy;
    copy = NULL;
  } else {
    out->path = NULL;
  }
  free(copy);
  if (!out->mask_modes) out->mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL | TWH_MASK_TENSOR;
  if (failed) oracle_spec_finish(out);
  return failed;
}

void oracle_spec_finish(oracle_spec *spec)
{
  free(spec->path);
  free(spec->options);
  spec->path = spec->options = NULL;
}
