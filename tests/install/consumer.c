/* A stranger's program: compiled and linked with what pkg-config says about an installed library, and nothing else. */
#include <stdio.h>

#include <twoheads.h>
#include <twoheads_cpu.h>
#include <twoheads_layers.h>
#ifdef WITH_BLIS
#  include <twoheads_blis.h>
#endif

int main(void)
{
  twh_context *context = NULL;
  twh_error    error;

  twh_error_init(&error);
  if (twh_version() != TWH_VERSION) {
    fprintf(stderr, "header %d, library %d\n", TWH_VERSION, (int)twh_version());
    return 1;
  }
  if (twh_context_create(NULL, &context, &error) < 0) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  {
    twh_norm norm;
    float    x[2] = { 3, 1 };
    twh_norm_init(&norm);
    norm.kind = TWH_NORM_LAYER;
    if (twh_norm_check(&norm, 2, "norm", &error) < 0) {
      fprintf(stderr, "%s\n", error.message);
      return 1;
    }
    twh_norm_apply(&norm, x, 1, 2, 2);
    if (x[0] != 1 || x[1] != -1) {
      fprintf(stderr, "layer norm of 3, 1: %g, %g\n", x[0], x[1]);
      return 1;
    }
  }
  {
    twh_oracle     *oracle = NULL;
    twh_oracle_desc kernel;
    twh_oracle_desc_init(&kernel);
    kernel.slots = kernel.qk_dim = kernel.v_dim = 1;
    kernel.q_len = kernel.k_len = 4;
    kernel.dtype = TWH_F32;
    kernel.mask_modes = TWH_MASK_NONE;
    kernel.scale = 1;
    if (twh_cpu_oracle_create(context, &kernel, NULL, &oracle, &error) < 0) {
      fprintf(stderr, "%s\n", error.message);
      return 1;
    }
    twh_oracle_destroy(oracle);
#ifdef WITH_BLIS
    if (twh_blis_oracle_create(context, &kernel, NULL, &oracle, &error) < 0) {
      fprintf(stderr, "%s\n", error.message);
      return 1;
    }
    twh_oracle_destroy(oracle);
#endif
  }
  twh_context_destroy(context);
  return 0;
}
