/* --verify: how far a result is from the truth, and how far one call of full length would have been. */
#ifndef TOOLS_VERIFY_H
#define TOOLS_VERIFY_H

#include "complaint.h"
#include "npy.h"
#include "setup.h"

typedef struct verify_errors {
  double max_abs_error, one_call_error;   /* of the output: of this run, and of one call of full length */
  double max_lse_error;                   /* only where the lse was computed */
  double median_rel_error, max_rel_error; /* of rows, |o - R|_2 / |R|_2: only where keys may be drawn */
} verify_errors;

/* Compare `rows` rows of each head (OPTIONS_ABSENT: all). lse may be without data. Where a plan has several kernels, inputs are
 * rounded to the dtype of the one that makes most of the calls. */
int verify_run(const setup *all, const npy_array *out, const npy_array *lse, int64_t rows, verify_errors *errors,
               complaint *error);

#endif
