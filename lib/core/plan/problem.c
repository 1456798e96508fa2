/* Reading a problem. Every refusal names the field; after this file no size is negative and no product of sizes wraps around.
 * */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/plan/problem.h"

/* Positions and lengths stay below this, so that sums of a few of them cannot overflow. */
static const int64_t problem_most = (int64_t)1 << 60;

typedef struct problem_field {
  const char *name;
  int64_t     value, least;
} problem_field;

static twh_status problem_check_fields(const problem_field *fields, int64_t n, const char *where, twh_error *error)
{
  for (int64_t i = 0; i < n; ++i) {
    if (fields[i].value < fields[i].least) {
      return twh__fail(error, TWH_E_ARGUMENT, "%s.%s is %lld; it must be at least %lld", where, fields[i].name,
                       (long long)fields[i].value, (long long)fields[i].least);
    }
    if (fields[i].value > problem_most) {
      return twh__fail(error, TWH_E_OVERFLOW, "%s.%s is %lld; at most 2^60 is supported", where, fields[i].name,
                       (long long)fields[i].value);
    }
  }
  return TWH_OK;
}

static twh_status problem_check(const twh_problem *own, twh_error *error)
{
  const problem_field fields[] = {
    { "batch", own->batch, 0 },   { "q_heads", own->q_heads, 1 }, { "kv_heads", own->kv_heads, 1 },
    { "q_len", own->q_len, 0 },   { "k_len", own->k_len, 0 },     { "q_offset", own->q_offset, -problem_most },
    { "qk_dim", own->qk_dim, 1 }, { "v_dim", own->v_dim, 1 },
  };
  twh_status status = problem_check_fields(fields, (int64_t)(sizeof fields / sizeof fields[0]), "problem", error);

  if (TWH__FAILED(status)) return status;
  if (own->flags & ~(uint32_t)(TWH_PROBLEM_SCALE | TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI)) {
    return twh__fail(error, TWH_E_VERSION, "problem.flags has unknown bits: 0x%x", (unsigned)own->flags);
  }
  if (own->reserved != 0) return twh__fail(error, TWH_E_VERSION, "problem.reserved is not 0");
  if (own->q_heads % own->kv_heads != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "problem.q_heads is %lld, not a multiple of problem.kv_heads %lld",
                     (long long)own->q_heads, (long long)own->kv_heads);
  }
  if ((own->flags & TWH_PROBLEM_SCALE) ? !isfinite(own->scale) : own->scale != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "problem.scale is %g; %s", own->scale,
                     own->flags & TWH_PROBLEM_SCALE ? "it must be finite" : "it is used only with TWH_PROBLEM_SCALE in flags");
  }
  if (!isfinite(own->softcap) || own->softcap < 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "problem.softcap is %g; it must be finite and not negative", own->softcap);
  }
  if (own->softcap > 0 && (own->flags & (TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI))) {
    return twh__fail(error, TWH_E_UNSUPPORTED, "problem.softcap: biases are added behind the cap, where no kernel can be given them");
  }
  if (own->mask_dtype != 0 && twh__dtype_bytes(own->mask_dtype) == 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "problem.mask_dtype is %d, no TWH_ data type", (int)own->mask_dtype);
  }
  return TWH_OK;
}

/* The products behind every address: heads x rows x dim for each sequence, and units of stacked heads. */
static twh_status problem_check_products(const twh_problem *own, int64_t q_rows, int64_t k_rows, int64_t batch,
                                         twh_error *error)
{
  int64_t dim = twh__max(own->qk_dim, own->v_dim), size;

  if (!twh__multiply(q_rows, own->q_heads, &size) || !twh__multiply(size, dim, &size) || !twh__multiply(size, 8, &size) ||
      !twh__multiply(size, twh__max(1, batch), &size)) {
    return twh__fail(error, TWH_E_OVERFLOW,
                     "problem: batch x q_heads x q_len x the larger head dimension does not fit 63 bits");
  }
  if (!twh__multiply(k_rows, own->kv_heads, &size) || !twh__multiply(size, dim, &size) || !twh__multiply(size, 8, &size) ||
      !twh__multiply(size, twh__max(1, batch), &size)) {
    return twh__fail(error, TWH_E_OVERFLOW,
                     "problem: batch x kv_heads x k_len x the larger head dimension does not fit 63 bits");
  }
  return TWH_OK;
}

static twh_status problem_check_sequence(const twh_sequence *from, int64_t number, twh_error *error)
{
  char                name[64];
  const problem_field fields[] = {
    { "q_begin", from->q_begin, 0 }, { "q_len", from->q_len, 0 },       { "k_begin", from->k_begin, 0 },
    { "k_len", from->k_len, 0 },     { "q_offset", from->q_offset, -problem_most }, { "k_offset", from->k_offset, 0 },
  };

  snprintf(name, sizeof name, "problem.sequences[%lld]", (long long)number);
  return problem_check_fields(fields, (int64_t)(sizeof fields / sizeof fields[0]), name, error);
}

/* Sequence `number`, and the spans it is split into. */
static int32_t problem_split(const twh_plan *plan, const twh_problem *own, int64_t number, twh__span spans[TWH__MOST_SPANS])
{
  int64_t      group = plan->shape.key_bias || plan->shape.alibi ? 1 : plan->shape.group; /* a bias is of one head */
  twh_sequence sequence;
  int32_t      count;

  memset(&sequence, 0, sizeof sequence);
  if (own->sequences) {
    sequence = own->sequences[number];
  } else {
    sequence.q_len = own->q_len;
    sequence.k_len = own->k_len;
    sequence.q_offset = own->q_offset;
  }
  count = twh__span_split(&sequence, number, own->sequences ? 0 : number, &plan->pattern, group, spans);
  for (int32_t i = 0; i < count; ++i) {
    spans[i].q_first = sequence.q_begin;
    spans[i].k_first = sequence.k_begin;
  }
  return count;
}

static void problem_need(twh_plan *plan, const twh__span *span)
{
  twh__needs *needs = &plan->needs;

  plan->pairs += twh__span_pairs(span) * (double)plan->shape.q_heads;
  if (span->kind != TWH__SPAN_FULL) needs->keys = twh__max(needs->keys, span->k_len);
  if (span->kind == TWH__SPAN_WINDOW) {
    needs->width = span->width;
    needs->sinks = twh__max(needs->sinks, span->sinks);
    needs->cuts |= span->width > 1;
  } else if (span->kind == TWH__SPAN_CAUSAL) {
    needs->cuts = 1;
  }
}

static twh_status problem_read_spans(twh_plan *plan, const twh_problem *own, twh_error *error)
{
  twh__span  spans[TWH__MOST_SPANS];
  twh_status status;
  int64_t    bytes;

  plan->sequences = own->batch;
  plan->batch = own->sequences ? 1 : own->batch;
  plan->q_rows = own->sequences ? 0 : own->q_len;
  plan->k_rows = own->sequences ? 0 : own->k_len;
  if (!twh__multiply(own->batch, (int64_t)sizeof *plan->spans * TWH__MOST_SPANS, &bytes)) {
    return twh__fail(error, TWH_E_OVERFLOW, "problem.batch is too large");
  }
  for (int64_t s = 0; s < own->batch; ++s) {
    if (own->sequences) {
      const twh_sequence *sequence = &own->sequences[s];
      status = problem_check_sequence(sequence, s, error);
      if (TWH__FAILED(status)) return status;
      plan->q_rows = twh__max(plan->q_rows, sequence->q_begin + sequence->q_len);
      plan->k_rows = twh__max(plan->k_rows, sequence->k_begin + sequence->k_len);
    }
    plan->spans_count += problem_split(plan, own, s, spans);
  }
  plan->spans = (twh__span *)twh__allocate(plan->context, (size_t)plan->spans_count * sizeof *plan->spans, 0, error);
  if (!plan->spans) return TWH_E_MEMORY;
  plan->spans_count = 0;
  for (int64_t s = 0; s < own->batch; ++s) {
    int32_t count = problem_split(plan, own, s, spans);
    for (int32_t i = 0; i < count; ++i) {
      problem_need(plan, &spans[i]);
      plan->spans[plan->spans_count++] = spans[i];
    }
  }
  return problem_check_products(own, plan->q_rows, plan->k_rows, plan->batch, error);
}

twh_status twh__problem_read(twh_plan *plan, const twh_problem *problem, twh_error *error)
{
  twh_problem own;
  twh_status  status;

  if (!problem) return twh__fail(error, TWH_E_ARGUMENT, "problem is NULL");
  status = twh__struct_read(&own, sizeof own, sizeof own, problem, "problem", error);
  if (!TWH__FAILED(status)) status = problem_check(&own, error);
  if (!TWH__FAILED(status)) status = twh__pattern_read(&plan->pattern, own.pattern, error);
  if (!TWH__FAILED(status) && !own.sequences) status = problem_check_products(&own, own.q_len, own.k_len, own.batch, error);
  if (TWH__FAILED(status)) return status;
  plan->shape.q_heads = own.q_heads;
  plan->shape.kv_heads = own.kv_heads;
  plan->shape.group = own.q_heads / own.kv_heads;
  plan->shape.qk_dim = own.qk_dim;
  plan->shape.v_dim = own.v_dim;
  plan->shape.scale = own.flags & TWH_PROBLEM_SCALE ? own.scale : 1 / sqrt((double)own.qk_dim);
  plan->shape.softcap = own.softcap;
  plan->shape.mask_dtype = own.mask_dtype;
  plan->shape.key_bias = (own.flags & TWH_PROBLEM_KEY_BIAS) != 0;
  plan->shape.alibi = (own.flags & TWH_PROBLEM_ALIBI) != 0;
  return problem_read_spans(plan, &own, error);
}
