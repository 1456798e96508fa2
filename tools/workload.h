/* A problem as the user gave it: sizes, or arrays, with the mask, biases and sink logits that go with them. */
#ifndef TOOLS_WORKLOAD_H
#define TOOLS_WORKLOAD_H

#include "complaint.h"
#include "npy.h"
#include "options.h"

/* Points into itself: not to be copied. Tensors whose array has no data are unset. */
typedef struct workload {
  twh_problem   problem;
  twh_pattern   pattern;
  twh_sequence *sequences;             /* NULL: equal ones, sequence b is batch entry b of the arrays */
  int64_t       batch, q_rows, k_rows; /* extents of the arrays; with sequences: 1 entry that holds all of them */
  npy_array     q, k, v, mask, key_bias, slopes, sink_logits;
  twh_tensor    q_tensor, k_tensor, v_tensor, mask_tensor, bias_tensor, slopes_tensor, sink_tensor;
} workload;

/* Everything that `given` says: for plan sizes; for run arrays, or sizes and random arrays. On success the caller calls
 * workload_finish; on failure there is nothing to release. */
int  workload_create(const options *given, int command, workload *out, complaint *error);
void workload_finish(workload *work);

/* Read an array of numbers, and of booleans where they make sense. */
int workload_read(const options *given, const char *path, int booleans, npy_array *out, complaint *error);

/* The scale of the problem, given or not. */
double workload_scale(const workload *work);

/* Sequence s of problem.batch. Equal ones begin at row 0, of their own batch entry. */
void workload_sequence(const workload *work, int64_t s, twh_sequence *out);

/* The sequence to which a row of a batch entry belongs. */
int64_t workload_sequence_of(const workload *work, int64_t batch, int64_t row);

/* Set the tensors that the problem has besides q, k, v and out. */
void workload_tensors(const workload *work, twh_tensors *tensors);

#endif
