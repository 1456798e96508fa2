/* Layer norm and RMS norm: sums in float64, the variance in a second pass, so that neither large numbers nor a large mean cost
 * digits. */
#include "layers/layers.h"

#include <math.h>
#include <stdio.h>

twh_status twh_norm_check(const twh_norm *norm, int64_t dim, const char *name, twh_error *error)
{
  char       field[96];
  twh_status status;

  if (name == NULL) name = "norm";
  if (norm == NULL) return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s is NULL", name);
  status = twh__layers_struct(norm, sizeof *norm, name, error);
  if (status != TWH_OK) return status;
  if (dim < 1) return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s: dim is %lld; it must be at least 1", name, (long long)dim);
  if (norm->kind != TWH_NORM_LAYER && norm->kind != TWH_NORM_RMS)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.kind is %d; it must be TWH_NORM_LAYER or TWH_NORM_RMS", name,
                              (int)norm->kind);
  if (!(norm->epsilon >= 0) || isinf(norm->epsilon))
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.epsilon is %g; it must be finite and at least 0", name, norm->epsilon);
  if (!isfinite(norm->weight_offset))
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.weight_offset is %g; it must be finite", name, norm->weight_offset);
  if (norm->bias != NULL && norm->kind == TWH_NORM_RMS)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.bias is given; an RMS norm has none", name);
  snprintf(field, sizeof field, "%s.weight", name);
  status = twh__layers_matrix(norm->weight, 1, dim, 1, field, error);
  if (status != TWH_OK) return status;
  snprintf(field, sizeof field, "%s.bias", name);
  return twh__layers_matrix(norm->bias, 1, dim, 1, field, error);
}

/* The sum of (x - from)^power, power 1 or 2; four sums, so that an addition need not wait for the one before it. */
static double norm_sum(const float *x, int64_t dim, double from, int power)
{
  double  sums[4] = { 0, 0, 0, 0 };
  int64_t c = 0;

  for (; c + 4 <= dim; c += 4) {
    for (int i = 0; i < 4; ++i) sums[i] += power == 1 ? x[c + i] - from : (x[c + i] - from) * (x[c + i] - from);
  }
  for (; c < dim; ++c) sums[0] += power == 1 ? x[c] - from : (x[c] - from) * (x[c] - from);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* What is taken from each element of a row, and what the rest is multiplied with. */
static void norm_row(const twh_norm *norm, const float *x, int64_t dim, double *mean, double *factor)
{
  double square;

  *mean = norm->kind == TWH_NORM_LAYER ? norm_sum(x, dim, 0, 1) / (double)dim : 0;
  square = norm_sum(x, dim, *mean, 2) / (double)dim + norm->epsilon;
  *factor = square == 0 ? 0 : 1 / sqrt(square); /* without epsilon a row of zeros stays one */
}

/* Some rows at a time, so that weights are converted once for all of them. */
void twh_norm_apply(const twh_norm *norm, float *x, int64_t rows, int64_t dim, int64_t stride)
{
  enum { GROUP = 32 };
  double means[GROUP], factors[GROUP];
  float  weight[TWH__LAYERS_PIECE], bias[TWH__LAYERS_PIECE];

  for (int64_t r0 = 0; r0 < rows; r0 += GROUP) {
    const int64_t group = rows - r0 < GROUP ? rows - r0 : GROUP;
    for (int64_t r = 0; r < group; ++r) norm_row(norm, x + (r0 + r) * stride, dim, &means[r], &factors[r]);
    for (int64_t first = 0; first < dim; first += TWH__LAYERS_PIECE) {
      const int64_t n = dim - first < TWH__LAYERS_PIECE ? dim - first : TWH__LAYERS_PIECE;
      twh__layers_values(norm->weight, 1, 0, first, n, weight);
      twh__layers_values(norm->bias, 0, 0, first, n, bias);
      for (int64_t r = 0; r < group; ++r) {
        float *at = x + (r0 + r) * stride + first;
        for (int64_t c = 0; c < n; ++c)
          at[c] = (float)((at[c] - means[r]) * factors[r] * (weight[c] + norm->weight_offset) + bias[c]);
      }
    }
  }
}
