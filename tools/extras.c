/* Broadcasting by strides, and the slopes of ALiBi: see extras.h. */
#include <math.h>
#include <string.h>

#include "extras.h"

/* Fit an array to `full`, aligned at the right: the stride of each dimension, 0 where the array has one element for all. */
static int extras_broadcast(const char *option, const char *path, const npy_array *array, int dims, const int64_t *full,
                            const char *const *names, int64_t *strides, complaint *error)
{
  int64_t stride = 1;

  if (array->rank > dims) {
    return complaint_make(error, EXIT_FAILED, "%s: %s has %d dimensions; at most %d are needed", option, path, array->rank,
                          dims);
  }
  for (int i = dims - 1; i >= 0; --i) {
    int64_t size = i < dims - array->rank ? 1 : array->shape[i - (dims - array->rank)];
    if (size != full[i] && size != 1) {
      return complaint_make(error, EXIT_FAILED, "%s: %s has %lld %s, the problem has %lld", option, path, (long long)size,
                            names[i], (long long)full[i]);
    }
    strides[i] = size == 1 ? 0 : stride;
    stride *= size;
  }
  return 0;
}

/* A mask whose last dimension is broadcast, written out: tensors have consecutive elements there. */
static int extras_widen(npy_array *mask, int64_t keys, complaint *error)
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

static int extras_mask(const options *given, int widen, workload *out, complaint *error)
{
  static const char *const names[] = { "sequences", "query heads", "queries", "keys" };
  npy_array               *mask = &out->mask;
  int64_t                  full[4], strides[4];
  int                      failed = workload_read(given, given->mask, 1, mask, error);

  if (failed) return failed;
  full[0] = out->batch;
  full[1] = out->problem.q_heads;
  full[2] = out->q_rows;
  full[3] = out->k_rows;
  if (mask->rank < 2) {
    return complaint_make(error, EXIT_FAILED, "--mask: %s has %d dimensions; 2 to 4 are needed", given->mask, mask->rank);
  }
  failed = extras_broadcast("--mask", given->mask, mask, 4, full, names, strides, error);
  if (!failed && widen && mask->shape[mask->rank - 1] != full[3]) {
    failed = extras_widen(mask, full[3], error);
    if (!failed) failed = extras_broadcast("--mask", given->mask, mask, 4, full, names, strides, error);
  }
  if (failed) return failed;
  twh_tensor_init(&out->mask_tensor);
  out->mask_tensor.dtype = out->problem.mask_dtype = mask->dtype;
  out->mask_tensor.data = mask->data;
  out->mask_tensor.batch_stride = strides[0];
  out->mask_tensor.head_stride = strides[1];
  out->mask_tensor.row_stride = strides[2];
  return 0;
}

static int extras_key_bias(const options *given, workload *out, complaint *error)
{
  static const char *const names[] = { "sequences", "query heads", "keys" };
  int64_t                  full[3], strides[3];
  int                      failed = workload_read(given, given->key_bias, 0, &out->key_bias, error);

  full[0] = out->batch;
  full[1] = out->problem.q_heads;
  full[2] = out->k_rows;
  if (!failed && out->key_bias.rank < 1) {
    return complaint_make(error, EXIT_FAILED, "--key-bias: %s is a single number", given->key_bias);
  }
  if (!failed) failed = extras_broadcast("--key-bias", given->key_bias, &out->key_bias, 3, full, names, strides, error);
  if (failed) return failed;
  twh_tensor_init(&out->bias_tensor);
  out->bias_tensor.dtype = out->key_bias.dtype;
  out->bias_tensor.data = out->key_bias.data;
  out->bias_tensor.batch_stride = strides[0];
  out->bias_tensor.head_stride = strides[1];
  out->bias_tensor.row_stride = strides[2];
  out->problem.flags |= TWH_PROBLEM_KEY_BIAS;
  return 0;
}

/* One number for each query head. */
static int extras_of_heads(const options *given, const char *option, const char *path, int64_t heads, npy_array *array,
                           twh_tensor *tensor, complaint *error)
{
  int failed = workload_read(given, path, 0, array, error);

  if (failed) return failed;
  if (array->rank != 1 || array->shape[0] != heads) {
    return complaint_make(error, EXIT_FAILED, "%s: %s is not of shape [%lld], one number for each query head", option, path,
                          (long long)heads);
  }
  twh_tensor_init(tensor);
  tensor->dtype = array->dtype;
  tensor->data = array->data;
  tensor->head_stride = 1;
  return 0;
}

/* The slopes of Press, Smith and Lewis, "Train Short, Test Long": a geometric sequence from 2^(-8/H) on for H heads, H a power
 * of two; for others that of the next smaller power, and then every second one of the next larger. */
static int extras_slopes(workload *out, complaint *error)
{
  int64_t heads = out->problem.q_heads, power = 1;
  double *slopes;
  int     failed = npy_allocate("--alibi", TWH_F64, 1, &heads, &out->slopes, error);

  if (failed) return failed;
  slopes = (double *)out->slopes.data;
  while (power <= heads / 2) power *= 2;
  for (int64_t h = 0; h < heads; ++h) {
    double step = h < power ? (double)(h + 1) : (double)(h - power) + 0.5;
    slopes[h] = exp2(-8.0 * step / (double)power);
  }
  twh_tensor_init(&out->slopes_tensor);
  out->slopes_tensor.dtype = TWH_F64;
  out->slopes_tensor.data = slopes;
  out->slopes_tensor.head_stride = 1;
  return 0;
}

int extras_read(const options *given, int widen, workload *out, complaint *error)
{
  int64_t heads = out->problem.q_heads;
  int     failed = 0;

  if (given->mask) failed = extras_mask(given, widen, out, error);
  if (!failed && given->key_bias) failed = extras_key_bias(given, out, error);
  if (!failed && given->sink_logits) {
    failed = extras_of_heads(given, "--sink-logits", given->sink_logits, heads, &out->sink_logits, &out->sink_tensor, error);
  }
  if (failed || !given->alibi) return failed;
  out->problem.flags |= TWH_PROBLEM_ALIBI;
  if (!given->slopes) return extras_slopes(out, error);
  return extras_of_heads(given, "--alibi", given->slopes, heads, &out->slopes, &out->slopes_tensor, error);
}
