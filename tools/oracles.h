/* Kernels as --oracle names them. */
#ifndef TOOLS_ORACLES_H
#define TOOLS_ORACLES_H

#include "complaint.h"
#include "oracle_spec.h"

/* What a kernel takes from the problem where --oracle says nothing. */
typedef struct oracles_default {
  int64_t qk_dim, v_dim;
  double  scale;      /* NaN: none, 1 / sqrt(the kernel's qk_dim) */
  int64_t concurrent; /* batches at the same time */
} oracles_default;

/* Register the kernel; the caller destroys it. */
int oracles_create(const oracle_spec *spec, const oracles_default *from, const twh_context *context, twh_oracle **out,
                   complaint *error);

/* The kernel that one call of full length is measured on: what `like` is (the reference, where `like` is a plugin) with these
 * lengths and dimensions, every mask and the log-sum-exp. mask_dtype: of its mask operand; 0 = its dtype. */
int oracles_create_long(const oracle_spec *spec, const twh_oracle *like, int64_t q_len, int64_t k_len, int64_t qk_dim,
                        int64_t v_dim, int32_t mask_dtype, const twh_context *context, twh_oracle **out, complaint *error);

#endif
