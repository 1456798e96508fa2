/* The definition of attention, evaluated directly in float64 for some rows: what --verify compares with. */
#ifndef TOOLS_TRUTH_H
#define TOOLS_TRUTH_H

#include "complaint.h"
#include "pool.h"
#include "workload.h"

/* Some query rows of a problem and all its keys and values, rounded to what a kernel sees. */
typedef struct truth_sample {
  const workload *work;
  int32_t         mask_dtype; /* what a float mask is rounded to */
  int64_t         rows;       /* of each head; row r of the sample is row[r] of the arrays */
  int64_t        *row;
  float          *q;     /* (B, Hq, rows, qk_dim) */
  const float    *k, *v; /* (B, Hkv, keys, qk_dim), (B, Hkv, keys, v_dim): the user's arrays where nothing was rounded */
  float          *own_k, *own_v; /* rounded copies, or NULL */
  double         *out, *lse;     /* (B, Hq, rows, v_dim), (B, Hq, rows): by truth_compute */
} truth_sample;

/* Take `rows` evenly spaced rows of each head, the first and the last among them; all of them where `rows` is more. The caller
 * calls truth_finish, also after a failure. */
int  truth_create(const workload *work, int32_t dtype, int32_t mask_dtype, int64_t rows, truth_sample *out, complaint *error);
void truth_finish(truth_sample *sample);

/* Fill out and lse by the equation in twoheads.h. */
int truth_compute(truth_sample *sample, pool *workers, complaint *error);

/* What is added to the score of row `r` of the sample and key `key` of the arrays: -inf where the pair does not count. */
double truth_bias(const truth_sample *sample, int64_t batch, int64_t head, int64_t r, int64_t key);

/* The largest absolute difference from out and lse, NaN where anything compared is; `all`: the array has all rows of the
 * problem, not those of the sample only. */
double truth_out_error(const truth_sample *sample, const npy_array *out, int all);
double truth_lse_error(const truth_sample *sample, const npy_array *lse, int all);

/* The median and the largest of all rows' |o - R|_2 / |R|_2, of out with all rows of the problem; a row of zeros R counts
 * |o|_2. Both are NaN once a row is. */
int truth_row_errors(const truth_sample *sample, const npy_array *out, double *median, double *most, complaint *error);

#endif
