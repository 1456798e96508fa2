/* From options and arrays to a problem: see workload.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

static int64_t workload_or(int64_t given, int64_t otherwise)
{
  return given == OPTIONS_ABSENT ? otherwise : given;
}

/* The pattern and what else is given in the same words to plan and run. */
static void workload_pattern(const options *given, workload *out)
{
  twh_pattern *pattern = &out->pattern;

  twh_pattern_init(pattern);
  if (given->causal) pattern->flags |= TWH_CAUSAL;
  if (given->left != -1) {
    pattern->flags |= TWH_LEFT;
    pattern->left = given->left;
  }
  if (given->right != -1) {
    pattern->flags |= TWH_RIGHT;
    pattern->right = given->right;
  }
  pattern->sink_tokens = given->sink_tokens;
  out->problem.pattern = pattern;
  out->problem.q_offset = given->q_offset;
  out->problem.softcap = given->softcap;
  out->problem.scale = given->scale;
  if (given->has_scale) out->problem.flags |= TWH_PROBLEM_SCALE;
}

/* Read an array of numbers, and of booleans where they make sense. */
static int workload_read(const options *given, const char *path, int booleans, npy_array *out, complaint *error)
{
  int failed = npy_read(path, out, error);

  if (failed) return failed;
  if (out->dtype == TWH_BF16 && !given->bf16) {
    return complaint_make(error, EXIT_FAILED, "%s holds u2; give --bf16 if these are the bits of bfloat16", path);
  }
  if (out->dtype == TWH_BOOL && !booleans) return complaint_make(error, EXIT_FAILED, "%s holds booleans, not numbers", path);
  return 0;
}

/* A mask whose last dimension is broadcast, written out: tensors have consecutive elements there. */
static int workload_widen(npy_array *mask, int64_t keys, complaint *error)
{
  npy_array wide;
  int64_t   shape[NPY_RANK_MAX];
  size_t    bytes = npy_element_bytes(mask->dtype);
  int       failed;

  memcpy(shape, mask->shape, sizeof shape);
  shape[mask->rank - 1] = keys;
  failed = npy_allocate("--mask", mask->dtype, mask->rank, shape, &wide, error);
  if (failed) return failed;
  for (size_t i = 0; i < wide.count; ++i) {
    memcpy((char *)wide.data + i * bytes, (const char *)mask->data + i / (size_t)keys * bytes, bytes);
  }
  npy_free(mask);
  *mask = wide;
  return 0;
}

static int workload_mask(const options *given, int widen, workload *out, complaint *error)
{
  const twh_problem *problem = &out->problem;
  npy_array         *mask = &out->mask;
  int64_t            full[4], shape[4] = { 1, 1, 1, 1 }, stride = 1;
  int64_t           *strides[3];
  int                failed = workload_read(given, given->mask, 1, mask, error);

  if (failed) return failed;
  full[0] = problem->batch;
  full[1] = problem->q_heads;
  full[2] = problem->q_len;
  full[3] = problem->k_len;
  if (mask->rank < 2) {
    return complaint_make(error, EXIT_FAILED, "--mask: %s has %d dimensions; 2 to 4 are needed", given->mask, mask->rank);
  }
  for (int i = 0; i < mask->rank; ++i) shape[4 - mask->rank + i] = mask->shape[i];
  for (int i = 0; i < 4; ++i) {
    static const char *const names[] = { "sequences", "query heads", "queries", "keys" };
    if (shape[i] == full[i] || shape[i] == 1) continue;
    return complaint_make(error, EXIT_FAILED, "--mask: %s has %lld %s, the problem has %lld", given->mask, (long long)shape[i],
                          names[i], (long long)full[i]);
  }
  if (widen && shape[3] != full[3]) {
    failed = workload_widen(mask, full[3], error);
    if (failed) return failed;
    shape[3] = full[3];
  }
  twh_tensor_init(&out->mask_tensor);
  strides[0] = &out->mask_tensor.batch_stride;
  strides[1] = &out->mask_tensor.head_stride;
  strides[2] = &out->mask_tensor.row_stride;
  for (int i = 2; i >= 0; --i) {
    stride *= shape[i + 1];
    *strides[i] = shape[i] == 1 ? 0 : stride;
  }
  out->mask_tensor.dtype = out->problem.mask_dtype = mask->dtype;
  out->mask_tensor.data = mask->data;
  return 0;
}

static int workload_sinks(const options *given, workload *out, complaint *error)
{
  npy_array *sinks = &out->sink_logits;
  int        failed = workload_read(given, given->sink_logits, 0, sinks, error);

  if (failed) return failed;
  if (sinks->rank != 1 || sinks->shape[0] != out->problem.q_heads) {
    return complaint_make(error, EXIT_FAILED, "--sink-logits: %s is not of shape [%lld], one number for each query head",
                          given->sink_logits, (long long)out->problem.q_heads);
  }
  twh_tensor_init(&out->sink_tensor);
  out->sink_tensor.dtype = sinks->dtype;
  out->sink_tensor.data = sinks->data;
  out->sink_tensor.head_stride = 1;
  return 0;
}

/* The files that belong to a problem whose sizes are known. */
static int workload_extras(const options *given, int widen, workload *out, complaint *error)
{
  int failed = 0;

  if (given->mask) failed = workload_mask(given, widen, out, error);
  if (!failed && given->sink_logits) failed = workload_sinks(given, out, error);
  return failed;
}

int workload_of_sizes(const options *given, workload *out, complaint *error)
{
  twh_problem *problem = &out->problem;
  int          failed;

  memset(out, 0, sizeof *out);
  twh_problem_init(problem);
  workload_pattern(given, out);
  problem->batch = workload_or(given->batch, 1);
  problem->q_heads = workload_or(given->q_heads, 1);
  problem->kv_heads = workload_or(given->kv_heads, problem->q_heads);
  problem->q_len = given->q_len;
  problem->k_len = workload_or(given->kv_len, given->q_len);
  problem->qk_dim = workload_or(given->dim, 64);
  problem->v_dim = workload_or(given->v_dim, problem->qk_dim);
  if (problem->qk_dim < 1 || problem->v_dim < 1) { /* the kernel's dimensions follow, and would be blamed */
    return complaint_make(error, EXIT_FAILED, "%s: a head dimension is at least 1", problem->qk_dim < 1 ? "--dim" : "--v-dim");
  }
  failed = workload_extras(given, 0, out, error);
  if (failed) workload_finish(out);
  return failed;
}

/* One of the arrays as (batch, heads, rows, dim): leading dimensions that it lacks are 1. */
static int workload_tensor(const options *given, const char *path, npy_array *array, twh_tensor *tensor, int64_t shape[4],
                           complaint *error)
{
  int failed = workload_read(given, path, 0, array, error);

  if (failed) return failed;
  if (array->rank < 2) {
    return complaint_make(error, EXIT_FAILED, "%s has %d dimensions; [N,d], [H,N,d] or [B,H,N,d] is needed", path, array->rank);
  }
  for (int i = 0; i < 4; ++i) shape[i] = i < 4 - array->rank ? 1 : array->shape[i - 4 + array->rank];
  if (shape[3] < 1) return complaint_make(error, EXIT_FAILED, "%s has vectors of no elements", path);
  twh_tensor_dense(tensor, array->dtype, array->data, shape[1], shape[2], shape[3]);
  return 0;
}

/* Two sizes that must be the same. */
static int workload_agree(const char *what, const char *path, int64_t size, const char *other, int64_t needed, complaint *error)
{
  if (size == needed) return 0;
  return complaint_make(error, EXIT_FAILED, "%s: %s is %lld, but %lld in %s", path, what, (long long)size, (long long)needed,
                        other);
}

static int workload_shapes(const options *given, workload *out, complaint *error)
{
  twh_problem *problem = &out->problem;
  int64_t      q[4], k[4], v[4];
  int          failed = workload_tensor(given, given->q, &out->q, &out->q_tensor, q, error);

  if (!failed) failed = workload_tensor(given, given->k, &out->k, &out->k_tensor, k, error);
  if (!failed) failed = workload_tensor(given, given->v, &out->v, &out->v_tensor, v, error);
  if (!failed) failed = workload_agree("the batch", given->k, k[0], given->q, q[0], error);
  if (!failed) failed = workload_agree("the batch", given->v, v[0], given->q, q[0], error);
  if (!failed) failed = workload_agree("the number of heads", given->v, v[1], given->k, k[1], error);
  if (!failed) failed = workload_agree("the number of keys", given->v, v[2], given->k, k[2], error);
  if (!failed) failed = workload_agree("the head dimension", given->k, k[3], given->q, q[3], error);
  if (failed) return failed;
  if (k[1] < 1 || q[1] % k[1]) {
    return complaint_make(error, EXIT_FAILED, "%s has %lld heads, which is no multiple of the %lld in %s", given->q,
                          (long long)q[1], (long long)k[1], given->k);
  }
  problem->batch = q[0];
  problem->q_heads = q[1];
  problem->kv_heads = k[1];
  problem->q_len = q[2];
  problem->k_len = k[2];
  problem->qk_dim = q[3];
  problem->v_dim = v[3];
  return 0;
}

int workload_of_arrays(const options *given, workload *out, complaint *error)
{
  int failed;

  memset(out, 0, sizeof *out);
  twh_problem_init(&out->problem);
  workload_pattern(given, out);
  failed = workload_shapes(given, out, error);
  if (!failed) failed = workload_extras(given, 1, out, error);
  if (failed) workload_finish(out);
  return failed;
}

void workload_finish(workload *work)
{
  npy_free(&work->q);
  npy_free(&work->k);
  npy_free(&work->v);
  npy_free(&work->mask);
  npy_free(&work->sink_logits);
}

double workload_scale(const workload *work)
{
  return work->problem.flags & TWH_PROBLEM_SCALE ? work->problem.scale : 1.0 / sqrt((double)work->problem.qk_dim);
}
