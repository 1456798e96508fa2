/* A kernel of one fixed size, 12 heads x 512 tokens x 64 in f16, that takes no mask and returns no log-sum-exp, computes the
 * attention of 2048 tokens. my_npu_run stands for your kernel: my_npu.c holds a slow one. */
#include <stdio.h>
#include <stdlib.h>
#include "twoheads.h"

void my_npu_run(const void *q, const void *k, const void *v, void *out); /* (12, 512, 64) f16 each; scale 1/8 built in */

static int32_t run(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user;
  for (int64_t i = 0; i < n; i++) my_npu_run(calls[i]->q.data, calls[i]->k.data, calls[i]->v.data, calls[i]->out);
  return 0; /* anything else ends the execute and is handed to its caller */
}

int main(void)
{
  twh_oracle_desc kernel; /* what the kernel is */
  twh_oracle_desc_init(&kernel);
  kernel.slots = 12;
  kernel.q_len = kernel.k_len = 512;
  kernel.qk_dim = kernel.v_dim = 64; /* v_dim 65, one column more than the problem has, would need 16 calls instead of 32 */
  kernel.dtype = TWH_F16;
  kernel.mask_modes = TWH_MASK_NONE;
  kernel.scale = 0.125;
  kernel.run = run;

  twh_problem problem; /* what is to be computed */
  twh_problem_init(&problem);
  problem.batch = 1;
  problem.q_heads = problem.kv_heads = 12;
  problem.q_len = problem.k_len = 2048;
  problem.qk_dim = problem.v_dim = 64;

  const size_t count = (size_t)12 * 2048 * 64;
  float *data = (float *)malloc(4 * count * sizeof *data);
  if (!data) return 1;
  for (size_t i = 0; i < 3 * count; i++) data[i] = (float)rand() / (float)RAND_MAX * 4.0f - 2.0f;
  twh_tensor q, k, v, out; /* the library converts between the host's f32 and the kernel's f16 */
  twh_tensor_dense(&q, TWH_F32, data, 12, 2048, 64);
  twh_tensor_dense(&k, TWH_F32, data + count, 12, 2048, 64);
  twh_tensor_dense(&v, TWH_F32, data + 2 * count, 12, 2048, 64);
  twh_tensor_dense(&out, TWH_F32, data + 3 * count, 12, 2048, 64);
  twh_tensors tensors;
  twh_tensors_init(&tensors);
  tensors.q = &q, tensors.k = &k, tensors.v = &v, tensors.out = &out;

  twh_run_stats stats;
  twh_run_stats_init(&stats);
  twh_run_options options;
  twh_run_options_init(&options);
  options.stats = &stats;

  twh_error error;
  twh_error_init(&error);
  twh_oracle *oracle = NULL;
  twh_plan *plan = NULL;
  twh_status status = twh_oracle_create(NULL, &kernel, &oracle, &error);
  if (status == TWH_OK) status = twh_plan_create(NULL, &problem, &oracle, 1, NULL, &plan, &error);
  if (status == TWH_OK) status = twh_plan_execute(plan, &tensors, &options, &error);
  if (status == TWH_OK) printf("2048 tokens, %lld calls of a 512-token kernel\n", (long long)stats.calls);
  else printf("%s: %s\n", twh_status_name(status), error.message);

  twh_plan_destroy(plan);
  twh_oracle_destroy(oracle);
  free(data);
  return status == TWH_OK ? 0 : 1;
}
