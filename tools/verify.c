/* Comparing a run with float64 and with one call: see verify.h.
 *
 * What one call of full length does is measured, not assumed: a kernel of the same make and dtype, long enough for all keys,
 * gets the same rounded inputs through the same library, where each head is one tile. What each row sees of which sequence, and
 * what is added to its scores, comes with a mask operand, except where the library can only do it in one way. */
#include <math.h>
#include <string.h>

#include "truth.h"
#include "oracles.h"
#include "verify.h"
#include "wording.h"

/* What all rows share is 1 in the shape of their mask. */
static int verify_is_shared(const twh_tensor *tensor, int64_t stride)
{
  return !tensor->data || stride == 0;
}

/* The mask of the sampled rows, (entries, heads, rows, keys) with 1 for what all share: booleans, or numbers where something is
 * added to scores. */
static int verify_mask(const truth_sample *sample, npy_array *mask, twh_tensor *tensor, complaint *error)
{
  const workload   *work = sample->work;
  const twh_tensor *own = &work->mask_tensor, *bias = &work->bias_tensor;
  int64_t           shape[4], at = 0;
  int               numbers = work->key_bias.data || work->slopes.data || (own->data && own->dtype != TWH_BOOL), failed;

  shape[0] = verify_is_shared(own, own->batch_stride) && verify_is_shared(bias, bias->batch_stride) ? 1 : work->batch;
  shape[1] = work->problem.q_heads;
  if (verify_is_shared(own, own->head_stride) && verify_is_shared(bias, bias->head_stride) && !work->slopes.data) shape[1] = 1;
  shape[2] = sample->rows;
  shape[3] = work->k_rows;
  failed =
    npy_allocate("the mask of --verify (give fewer rows: --verify=ROWS)", numbers ? TWH_F64 : TWH_BOOL, 4, shape, mask, error);
  if (failed) return failed;
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      for (int64_t r = 0; r < shape[2]; ++r) {
        for (int64_t j = 0; j < shape[3]; ++j, ++at) {
          double added = truth_bias(sample, b, h, r, j);
          if (numbers)
            ((double *)mask->data)[at] = added;
          else
            ((unsigned char *)mask->data)[at] = added == 0.0;
        }
      }
    }
  }
  twh_tensor_dense(tensor, mask->dtype, mask->data, shape[1], shape[2], shape[3]);
  if (shape[0] == 1) tensor->batch_stride = 0;
  if (shape[1] == 1) tensor->head_stride = 0;
  return 0;
}

/* The problem of the sampled rows. It is the problem itself where that is one tile on a kernel of full length: all keys, or all
 * rows of causal attention. Else every row of every sequence sees what a mask says. */
static int verify_problem(const truth_sample *sample, twh_problem *problem, npy_array *mask, twh_tensor *mask_tensor,
                          complaint *error)
{
  const workload *work = sample->work;
  int             all = sample->rows == work->q_rows, plain = work->pattern.flags == 0 && !work->sequences;
  int             causal = work->pattern.flags == TWH_CAUSAL && all;

  *problem = work->problem;
  *mask_tensor = work->mask_tensor;
  if (!work->sequences) problem->q_len = sample->rows;
  if (!(problem->flags & (TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI))) {
    if (all && (plain || causal || work->pattern.flags == 0)) return 0;
    if (plain && !work->mask.data) return 0;
  }
  problem->batch = work->batch;
  problem->q_len = sample->rows;
  problem->k_len = work->k_rows;
  problem->q_offset = 0;
  problem->sequences = NULL;
  problem->pattern = NULL;
  problem->flags &= ~(uint32_t)(TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI);
  if (verify_mask(sample, mask, mask_tensor, error)) return EXIT_FAILED;
  problem->mask_dtype = mask_tensor->dtype;
  return 0;
}

/* The longest sequence of a problem. */
static int64_t verify_longest(const twh_problem *problem, int64_t equal, int keys)
{
  int64_t longest = 0;

  if (!problem->sequences) return equal;
  for (int64_t s = 0; s < problem->batch; ++s) {
    int64_t len = keys ? problem->sequences[s].k_len : problem->sequences[s].q_len;
    if (len > longest) longest = len;
  }
  return longest;
}

/* Execute `problem` on `oracle` with the sample's inputs, which the library only reads. */
static int verify_execute(const setup *all, const truth_sample *sample, const twh_problem *problem, twh_oracle *oracle,
                          const twh_tensor *mask, const npy_array *out, complaint *error)
{
  int64_t     keys = all->work.k_rows;
  twh_tensor  q, k, v, result;
  twh_tensors tensors;
  twh_plan   *plan = NULL;
  twh_error   failure;
  twh_status  status;

  twh_error_init(&failure);
  twh_tensors_init(&tensors);
  twh_tensor_dense(&q, TWH_F32, sample->q, problem->q_heads, sample->rows, problem->qk_dim);
  twh_tensor_dense(&k, TWH_F32, sample->own_k ? sample->own_k : all->work.k.data, problem->kv_heads, keys, problem->qk_dim);
  twh_tensor_dense(&v, TWH_F32, sample->own_v ? sample->own_v : all->work.v.data, problem->kv_heads, keys, problem->v_dim);
  twh_tensor_dense(&result, out->dtype, out->data, problem->q_heads, sample->rows, problem->v_dim);
  tensors.q = &q;
  tensors.k = &k;
  tensors.v = &v;
  tensors.out = &result;
  if (mask->data) tensors.mask = mask;
  if (all->work.sink_tensor.data) tensors.sink_logits = &all->work.sink_tensor;
  status = twh_plan_create(all->host.context, problem, &oracle, 1, NULL, &plan, &failure);
  if (status >= 0) status = twh_plan_execute(plan, &tensors, NULL, &failure);
  twh_plan_destroy(plan);
  return status < 0 ? wording_complain(error, &failure, "one call of full length") : 0;
}

static int verify_one_call(const setup *all, const truth_sample *sample, int32_t dtype, double *result, complaint *error)
{
  const workload *work = &all->work;
  twh_problem     problem;
  twh_tensor      mask_tensor;
  npy_array       mask, out;
  twh_oracle     *oracle = NULL;
  int64_t         shape[4];
  int             failed;

  memset(&mask, 0, sizeof mask);
  shape[0] = work->batch;
  shape[1] = work->problem.q_heads;
  shape[2] = sample->rows;
  shape[3] = work->problem.v_dim;
  failed = npy_allocate("one call of full length", dtype, 4, shape, &out, error);
  if (!failed) failed = verify_problem(sample, &problem, &mask, &mask_tensor, error);
  if (!failed) { /* biases are no data of the kernel: they are added in f32 whatever its dtype is */
    int32_t mask_dtype = work->problem.flags & (TWH_PROBLEM_KEY_BIAS | TWH_PROBLEM_ALIBI) ? TWH_F32 : 0;
    int64_t q_len = verify_longest(&problem, problem.q_len, 0), k_len = verify_longest(&problem, problem.k_len, 1);
    failed = oracles_create_long(&all->spec[all->info.oracle], all->oracle[all->info.oracle], q_len, k_len, problem.qk_dim,
                                 problem.v_dim, mask_dtype, all->host.context, &oracle, error);
  }
  if (!failed) failed = verify_execute(all, sample, &problem, oracle, &mask_tensor, &out, error);
  if (!failed) *result = truth_out_error(sample, &out, 0);
  twh_oracle_destroy(oracle);
  npy_free(&mask);
  npy_free(&out);
  return failed;
}

int verify_run(const setup *all, const npy_array *out, const npy_array *lse, int64_t rows, verify_errors *errors,
               complaint *error)
{
  twh_oracle_desc desc;
  twh_error       failure;
  truth_sample    sample;
  int             failed;

  twh_error_init(&failure);
  twh_oracle_desc_init(&desc);
  errors->max_abs_error = errors->one_call_error = errors->max_lse_error = 0.0;
  errors->median_rel_error = errors->max_rel_error = 0.0;
  if (twh_oracle_get_desc(all->oracle[all->info.oracle], &desc, &failure) < 0)
    return wording_complain(error, &failure, "--verify");
  if (rows == OPTIONS_ABSENT) rows = INT64_MAX;
  failed = truth_create(&all->work, desc.dtype, desc.mask_dtype ? desc.mask_dtype : desc.dtype, rows, &sample, error);
  if (!failed) failed = truth_compute(&sample, all->host.workers, error);
  if (!failed) errors->max_abs_error = truth_out_error(&sample, out, 1);
  if (!failed && all->method != TWH_METHOD_EXACT) {
    failed = truth_row_errors(&sample, out, &errors->median_rel_error, &errors->max_rel_error, error);
  }
  if (!failed && lse->data) errors->max_lse_error = truth_lse_error(&sample, lse, 1);
  if (!failed) failed = verify_one_call(all, &sample, out->dtype, &errors->one_call_error, error);
  truth_finish(&sample);
  return failed;
}
