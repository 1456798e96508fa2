/* Making the kernel that --oracle names: see oracles.h. */
#ifndef _POSIX_C_SOURCE
#  define _POSIX_C_SOURCE 200809L
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"
#include "oracles.h"
#include "reference/reference.h"
#include "rounding.h"
#include "sim.h"
#include "wording.h"
#include "twoheads_cpu.h"
#ifdef TWH_WITH_BLIS
#  include "twoheads_blis.h"
#endif

static int64_t oracles_or(int64_t given, int64_t otherwise)
{
  return given == OPTIONS_ABSENT ? otherwise : given;
}

/* What --oracle says, with defaults filled in. */
static void oracles_describe(const oracle_spec *spec, const oracles_default *from, twh_oracle_desc *desc)
{
  int64_t len = oracles_or(spec->len, 256);
  double  scale = from->scale;

  twh_oracle_desc_init(desc);
  desc->slots = oracles_or(spec->slots, 1);
  desc->q_len = oracles_or(spec->q_len, len);
  desc->k_len = oracles_or(spec->k_len, len);
  desc->qk_dim = oracles_or(spec->qk, from->qk_dim);
  desc->v_dim = oracles_or(spec->v, from->v_dim);
  desc->dtype = spec->dtype;
  desc->mask_modes = spec->mask_modes;
  desc->flags = spec->flags;
  if (scale == 0.0) scale = 1.0; /* a kernel cannot ignore its scores; the library zeroes the queries */
  desc->scale = spec->has_scale ? spec->scale : scale;
  desc->softcap = spec->softcap;
  desc->cost_per_call = spec->cost_us * 1e-6;
  desc->max_concurrent_batches = from->concurrent;
}

static twh_status oracles_blis(const twh_context *context, const twh_oracle_desc *desc, twh_oracle **out, twh_error *failure)
{
#ifdef TWH_WITH_BLIS
  /* BLIS reads this in its first call; a value that the user has set is kept. */
  const char *arch = twh_blis_recommended_arch();
  if (arch) setenv("BLIS_ARCH_TYPE", arch, 0);
  return twh_blis_oracle_create(context, desc, NULL, out, failure);
#else
  (void)context;
  (void)desc;
  *out = NULL;
  failure->status = TWH_E_UNSUPPORTED;
  strcpy(failure->message, "this command was built without BLIS");
  return TWH_E_UNSUPPORTED;
#endif
}

/* BLIS has one type only; said here in the words of --oracle. */
static int oracles_possible(const oracle_spec *spec, complaint *error)
{
  if (spec->kind != ORACLE_SPEC_BLIS || spec->dtype == TWH_F32) return 0;
  return complaint_make(error, EXIT_FAILED, "--oracle: blis has no dtype=%s, only f32", rounding_name(spec->dtype));
}

static twh_status oracles_register(const oracle_spec *spec, const twh_context *context, const twh_oracle_desc *desc,
                                   twh_oracle **out, twh_error *failure)
{
  static const int32_t isa[] = { TWH_CPU_ISA_BEST, TWH_CPU_ISA_PORTABLE, TWH_CPU_ISA_AVX2, TWH_CPU_ISA_AVX512, TWH_CPU_ISA_NEON };
  twh_cpu_options      cpu;

  if (spec->kind == ORACLE_SPEC_BLIS) return oracles_blis(context, desc, out, failure);
  if (spec->kind == ORACLE_SPEC_CPU) {
    twh_cpu_options_init(&cpu);
    cpu.isa = isa[spec->isa];
    return twh_cpu_oracle_create(context, desc, &cpu, out, failure);
  }
  return twh_reference_oracle_create(context, desc, NULL, out, failure);
}

/* The device and what it computes with have the same description, but for how many batches they take. */
static twh_status oracles_sim(const oracle_spec *spec, const twh_context *context, const twh_oracle_desc *desc, twh_oracle **out,
                              twh_error *failure)
{
  sim_parameters  parameters = { spec->batch_us, spec->call_us, spec->gbps, oracles_or(spec->depth, 2), NULL };
  twh_oracle_desc own = *desc;
  twh_status      status;

  own.max_concurrent_batches = 0;
  own.max_calls_per_batch = oracles_or(spec->batch, 8);
  status = twh_reference_oracle_create(context, &own, NULL, &parameters.inner, failure);
  if (status < 0) return status;
  if (spec->cost_us == 0.0) own.cost_per_call = 0.0;
  status = sim_create(context, &own, &parameters, out, failure);
  if (status < 0) twh_oracle_destroy(parameters.inner);
  return status;
}

/* Load a plugin. A name without a slash is a file here first; dlopen would look for it among the system's libraries only. */
static twh_status oracles_load(const oracle_spec *spec, const twh_context *context, twh_oracle **out, twh_error *failure)
{
  char here[4096];

  if (!strchr(spec->path, '/') && strlen(spec->path) + 3 <= sizeof here && !access(spec->path, F_OK)) {
    snprintf(here, sizeof here, "./%s", spec->path);
    return twh_oracle_load(context, here, spec->options, out, failure);
  }
  return twh_oracle_load(context, spec->path, spec->options, out, failure);
}

int oracles_create(const oracle_spec *spec, const oracles_default *from, const twh_context *context, twh_oracle **out,
                   complaint *error)
{
  twh_oracle_desc desc;
  twh_error       failure;
  twh_status      status;

  *out = NULL;
  twh_error_init(&failure);
  if (spec->kind == ORACLE_SPEC_PLUGIN) {
    status = oracles_load(spec, context, out, &failure);
  } else {
    oracles_default own = *from;
    if (oracles_possible(spec, error)) return EXIT_FAILED;
    if (!(own.scale == own.scale)) own.scale = 1.0 / sqrt((double)oracles_or(spec->qk, own.qk_dim));
    oracles_describe(spec, &own, &desc);
    status = spec->kind == ORACLE_SPEC_SIM ? oracles_sim(spec, context, &desc, out, &failure)
                                           : oracles_register(spec, context, &desc, out, &failure);
  }
  return status < 0 ? wording_complain(error, &failure, "--oracle") : 0;
}

int oracles_create_long(const oracle_spec *spec, const twh_oracle *like, int64_t q_len, int64_t k_len, int64_t qk_dim,
                        int64_t v_dim, int32_t mask_dtype, const twh_context *context, twh_oracle **out, complaint *error)
{
  twh_oracle_desc desc, own;
  twh_error       failure;

  *out = NULL;
  twh_error_init(&failure);
  twh_oracle_desc_init(&desc);
  twh_oracle_desc_init(&own);
  if (twh_oracle_get_desc(like, &own, &failure) < 0) return wording_complain(error, &failure, "one call of full length");
  desc.flags = TWH_ORACLE_LSE | (own.flags & TWH_ORACLE_F16_SCORES);
  desc.slots = 1;
  desc.q_len = q_len > 0 ? q_len : 1;
  desc.k_len = k_len > 0 ? k_len : 1;
  desc.qk_dim = qk_dim;
  desc.v_dim = v_dim;
  desc.dtype = own.dtype;
  desc.out_dtype = own.out_dtype;
  desc.mask_dtype = mask_dtype;
  desc.mask_modes = TWH_MASK_NONE | TWH_MASK_CAUSAL | TWH_MASK_TENSOR;
  desc.scale = own.scale != 0.0 ? own.scale : 1.0;
  desc.softcap = own.softcap;
  desc.max_concurrent_batches = own.max_concurrent_batches;
  if (oracles_register(spec, context, &desc, out, &failure) < 0) {
    return wording_complain(error, &failure, "one call of full length");
  }
  return 0;
}
