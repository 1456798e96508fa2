/* Comparing a run with float64 and with one call: see verify.h.
 *
 * What one call of full length does is measured, not assumed: a kernel of the same make and dtype, long enough for all keys,
 * gets the same rounded inputs through the same library, where each head is one tile. When only some rows are compared, the
 * call holds only these, and a mask operand says what each of them sees. */
#include <math.h>
#include <string.h>

#include "truth.h"
#include "oracles.h"
#include "verify.h"
#include "wording.h"

/* The mask of the sampled rows, (sequences, heads, rows, keys) with 1 for what all share: booleans, or numbers where the user's
 * are. */
static int verify_mask(const truth_sample *sample, npy_array *mask, twh_tensor *tensor, complaint *error)
{
  const workload    *work = sample->work;
  const twh_problem *problem = &work->problem;
  const twh_tensor  *own = &work->mask_tensor;
  int64_t            shape[4], at = 0;
  int                numbers = own->data && own->dtype != TWH_BOOL, failed;

  shape[0] = own->data && own->batch_stride ? problem->batch : 1;
  shape[1] = own->data && own->head_stride ? problem->q_heads : 1;
  shape[2] = sample->rows;
  shape[3] = problem->k_len;
  failed = npy_allocate("the mask of --verify", numbers ? TWH_F64 : TWH_BOOL, 4, shape, mask, error);
  if (failed) return failed;
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      for (int64_t r = 0; r < shape[2]; ++r) {
        for (int64_t j = 0; j < shape[3]; ++j, ++at) {
          double bias = truth_bias(sample, b, h, sample->row[r], j);
          if (numbers)
            ((double *)mask->data)[at] = bias;
          else
            ((unsigned char *)mask->data)[at] = bias == 0.0;
        }
      }
    }
  }
  twh_tensor_dense(tensor, mask->dtype, mask->data, shape[1], shape[2], shape[3]);
  if (shape[0] == 1) tensor->batch_stride = 0;
  if (shape[1] == 1) tensor->head_stride = 0;
  return 0;
}

/* The problem of the sampled rows. Where these are all rows it is the problem itself; else the mask says what is seen. */
static int verify_problem(const truth_sample *sample, twh_problem *problem, npy_array *mask, twh_tensor *mask_tensor,
                          complaint *error)
{
  const workload *work = sample->work;
  int             plain = !work->mask_tensor.data && !work->pattern.flags;

  *problem = work->problem;
  problem->q_len = sample->rows;
  *mask_tensor = work->mask_tensor;
  if (plain || sample->rows == work->problem.q_len) return 0;
  problem->pattern = NULL;
  problem->q_offset = 0;
  if (verify_mask(sample, mask, mask_tensor, error)) return EXIT_FAILED;
  problem->mask_dtype = mask_tensor->dtype;
  return 0;
}

/* Execute `problem` on `oracle` with the sample's inputs. */
static int verify_execute(const setup *all, const truth_sample *sample, const twh_problem *problem, twh_oracle *oracle,
                          const twh_tensor *mask, const npy_array *out, complaint *error)
{
  twh_tensor  q, k, v, result;
  twh_tensors tensors;
  twh_plan   *plan = NULL;
  twh_error   failure;
  twh_status  status;

  twh_error_init(&failure);
  twh_tensors_init(&tensors);
  twh_tensor_dense(&q, TWH_F64, sample->q, problem->q_heads, sample->rows, problem->qk_dim);
  twh_tensor_dense(&k, TWH_F64, sample->k, problem->kv_heads, problem->k_len, problem->qk_dim);
  twh_tensor_dense(&v, TWH_F64, sample->v, problem->kv_heads, problem->k_len, problem->v_dim);
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
  const twh_problem *whole = &all->work.problem;
  twh_problem        problem;
  twh_tensor         mask_tensor;
  npy_array          mask, out;
  twh_oracle        *oracle = NULL;
  int64_t            shape[4];
  int                failed;

  memset(&mask, 0, sizeof mask);
  shape[0] = whole->batch;
  shape[1] = whole->q_heads;
  shape[2] = sample->rows;
  shape[3] = whole->v_dim;
  failed = npy_allocate("one call of full length", dtype, 4, shape, &out, error);
  if (!failed) failed = verify_problem(sample, &problem, &mask, &mask_tensor, error);
  if (!failed) {
    failed = oracles_create_long(&all->spec, all->oracle, problem.q_len, problem.k_len, problem.qk_dim, problem.v_dim,
                                 all->host.context, &oracle, error);
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
  if (twh_oracle_get_desc(all->oracle, &desc, &failure) < 0) return wording_complain(error, &failure, "--verify");
  if (rows == OPTIONS_ABSENT) rows = INT64_MAX;
  failed = truth_create(&all->work, desc.dtype, desc.mask_dtype ? desc.mask_dtype : desc.dtype, rows, &sample, error);
  if (!failed) failed = truth_compute(&sample, all->host.workers, error);
  if (!failed) errors->max_abs_error = truth_out_error(&sample, out, 1);
  if (!failed && lse->data) errors->max_lse_error = truth_lse_error(&sample, lse, 1);
  if (!failed) failed = verify_one_call(all, &sample, out->dtype, &errors->one_call_error, error);
  truth_finish(&sample);
  return failed;
}
