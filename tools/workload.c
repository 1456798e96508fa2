/* From options and arrays to a problem: see workload.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "extras.h"
#include "lens.h"
#include "noise.h"
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
  if (!out->sequences) out->problem.q_offset = given->q_offset; /* sequences have their own */
  out->problem.softcap = given->softcap;
  out->problem.scale = given->scale;
  if (given->has_scale) out->problem.flags |= TWH_PROBLEM_SCALE;
}

int workload_read(const options *given, const char *path, int booleans, npy_array *out, complaint *error)
{
  int failed = npy_read(path, out, error);

  if (failed) return failed;
  if (out->dtype == TWH_BF16 && !given->bf16) {
    return complaint_make(error, EXIT_FAILED, "%s holds u2; give --bf16 if these are the bits of bfloat16", path);
  }
  if (out->dtype == TWH_BOOL && !booleans) return complaint_make(error, EXIT_FAILED, "%s holds booleans, not numbers", path);
  return 0;
}

/* The lengths of the sequences, for tensors of these rows. */
static void workload_lengths(workload *out, int64_t batch, int64_t q_rows, int64_t k_rows)
{
  out->batch = batch;
  out->q_rows = q_rows;
  out->k_rows = k_rows;
  if (out->sequences) return;
  out->problem.batch = batch;
  out->problem.q_len = q_rows;
  out->problem.k_len = k_rows;
}

static int workload_of_sizes(const options *given, int64_t tokens, workload *out, complaint *error)
{
  twh_problem *problem = &out->problem;

  problem->q_heads = workload_or(given->q_heads, 1);
  problem->kv_heads = workload_or(given->kv_heads, problem->q_heads);
  problem->qk_dim = workload_or(given->dim, 64);
  problem->v_dim = workload_or(given->v_dim, problem->qk_dim);
  if (out->sequences)
    workload_lengths(out, 1, tokens, tokens);
  else
    workload_lengths(out, workload_or(given->batch, 1), given->q_len, workload_or(given->kv_len, given->q_len));
  if (problem->qk_dim < 1 || problem->v_dim < 1) { /* the kernel's dimensions follow, and would be blamed */
    return complaint_make(error, EXIT_FAILED, "%s: a head dimension is at least 1", problem->qk_dim < 1 ? "--dim" : "--v-dim");
  }
  return 0;
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

static int workload_of_arrays(const options *given, int64_t tokens, workload *out, complaint *error)
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
  problem->q_heads = q[1];
  problem->kv_heads = k[1];
  problem->qk_dim = q[3];
  problem->v_dim = v[3];
  workload_lengths(out, q[0], q[2], k[2]);
  if (!out->sequences) return 0;
  failed = workload_agree("the batch", given->q, q[0], "a ragged batch", 1, error);
  if (!failed) failed = workload_agree("the number of tokens", given->q, q[2], "all lengths together", tokens, error);
  return failed ? failed : workload_agree("the number of keys", given->k, k[2], "all lengths together", tokens, error);
}

/* Random arrays for a problem of known sizes. */
static int workload_noise(const options *given, workload *out, complaint *error)
{
  const twh_problem *problem = &out->problem;
  npy_array         *arrays[3];
  twh_tensor        *tensors[3];
  int64_t            shape[4];

  arrays[0] = &out->q;
  arrays[1] = &out->k;
  arrays[2] = &out->v;
  tensors[0] = &out->q_tensor;
  tensors[1] = &out->k_tensor;
  tensors[2] = &out->v_tensor;
  shape[0] = out->batch;
  for (int i = 0; i < 3; ++i) {
    int failed;
    shape[1] = i == 0 ? problem->q_heads : problem->kv_heads;
    shape[2] = i == 0 ? out->q_rows : out->k_rows;
    shape[3] = i == 2 ? problem->v_dim : problem->qk_dim;
    for (int j = 0; j < 3; ++j) {
      static const char *const names[] = { "--batch", "a number of heads", "a length" };
      if (shape[j] < 0) return complaint_make(error, EXIT_FAILED, "%s is %lld", names[j], (long long)shape[j]);
    }
    failed = npy_allocate("--random", TWH_F32, 4, shape, arrays[i], error);
    if (failed) return failed;
    noise_fill(arrays[i], given->random_seed, i);
    twh_tensor_dense(tensors[i], TWH_F32, arrays[i]->data, shape[1], shape[2], shape[3]);
  }
  return 0;
}

int workload_create(const options *given, int command, workload *out, complaint *error)
{
  int64_t tokens = 0;
  int     failed;

  memset(out, 0, sizeof *out);
  twh_problem_init(&out->problem);
  failed = lens_read(given, &out->sequences, &out->problem.batch, &tokens, error);
  if (failed) return failed;
  out->problem.sequences = out->sequences;
  workload_pattern(given, out);
  if (options_by_sizes(given, command))
    failed = workload_of_sizes(given, tokens, out, error);
  else
    failed = workload_of_arrays(given, tokens, out, error);
  if (!failed && command == OPTIONS_RUN && given->random) failed = workload_noise(given, out, error);
  if (!failed) failed = extras_read(given, command == OPTIONS_RUN, out, error);
  if (failed) workload_finish(out);
  return failed;
}

void workload_finish(workload *work)
{
  npy_free(&work->q);
  npy_free(&work->k);
  npy_free(&work->v);
  npy_free(&work->mask);
  npy_free(&work->key_bias);
  npy_free(&work->slopes);
  npy_free(&work->sink_logits);
  free(work->sequences);
  work->sequences = NULL;
}

double workload_scale(const workload *work)
{
  return work->problem.flags & TWH_PROBLEM_SCALE ? work->problem.scale : 1.0 / sqrt((double)work->problem.qk_dim);
}

void workload_sequence(const workload *work, int64_t s, twh_sequence *out)
{
  memset(out, 0, sizeof *out);
  if (work->sequences) {
    *out = work->sequences[s];
    return;
  }
  out->q_len = work->problem.q_len;
  out->k_len = work->problem.k_len;
  out->q_offset = work->problem.q_offset;
}

int64_t workload_sequence_of(const workload *work, int64_t batch, int64_t row)
{
  int64_t low = 0, high = work->problem.batch;

  if (!work->sequences) return batch;
  while (high - low > 1) { /* the last one that begins at `row` or before it: the others there are empty */
    int64_t middle = low + (high - low) / 2;
    if (work->sequences[middle].q_begin <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

void workload_tensors(const workload *work, twh_tensors *tensors)
{
  if (work->mask.data) tensors->mask = &work->mask_tensor;
  if (work->key_bias.data) tensors->key_bias = &work->bias_tensor;
  if (work->slopes.data) tensors->alibi_slopes = &work->slopes_tensor;
  if (work->sink_logits.data) tensors->sink_logits = &work->sink_tensor;
}
