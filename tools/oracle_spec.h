/* What --oracle says about a kernel, before there is one. */
#ifndef TOOLS_ORACLE_SPEC_H
#define TOOLS_ORACLE_SPEC_H

#include "complaint.h"
#include "twoheads.h"

enum { ORACLE_SPEC_BLIS = 1, ORACLE_SPEC_REFERENCE, ORACLE_SPEC_PLUGIN, ORACLE_SPEC_SIM, ORACLE_SPEC_CPU };

enum { ORACLE_SPEC_PORTABLE = 1, ORACLE_SPEC_AVX2, ORACLE_SPEC_AVX512, ORACLE_SPEC_NEON };

typedef struct oracle_spec {
  int      kind;
  char    *path, *options;                  /* plugin: its file, and what is handed to it; else NULL. Owned. */
  int64_t  len, q_len, k_len, slots, qk, v; /* OPTIONS_ABSENT = not given */
  int32_t  dtype;
  uint32_t mask_modes; /* TWH_MASK_* */
  uint32_t flags;      /* TWH_ORACLE_LSE and TWH_ORACLE_LSE_BASE2 */
  int      has_scale;
  double   scale, softcap, cost_us; /* cost_us: 0 = not given */
  int32_t  isa;                     /* cpu: 0 = not given */
  double   batch_us, call_us, gbps; /* sim: of sim_parameters */
  int64_t  depth, batch;            /* sim: the same; and calls in a batch; OPTIONS_ABSENT = not given */
} oracle_spec;

/* Parse NAME[,key=value|flag...]. Every mistake is one of usage. On success the caller calls oracle_spec_finish. */
int  oracle_spec_parse(const char *text, oracle_spec *out, complaint *error);
void oracle_spec_finish(oracle_spec *spec);

#endif
