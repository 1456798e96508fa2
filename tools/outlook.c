/* Telling errors of sampled rows: see outlook.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "order.h"
#include "outlook.h"
#include "rounding.h"
#include "wording.h"

/* |x|_2 of elements from `first` on, of any magnitude: only quotients of them are squared. */
static double outlook_length(const npy_array *array, int64_t first, int64_t dim)
{
  double largest = 0.0, squares = 0.0;

  for (int64_t c = 0; c < dim; ++c) {
    double x = fabs(rounding_load(array->data, array->dtype, first + c));
    if (isnan(x) || x > largest) largest = x; /* NaN stays */
  }
  if (!(largest > 0.0) || isinf(largest)) return largest;
  for (int64_t c = 0; c < dim; ++c) {
    double x = rounding_load(array->data, array->dtype, first + c) / largest;
    squares += x * x;
  }
  return largest * sqrt(squares);
}

int outlook_read(const npy_array *out, const npy_array *error, outlook *view, complaint *failure)
{
  size_t  rows = error->count;
  int64_t dim = out->shape[out->rank - 1];
  double *ratios = (double *)malloc((rows > 0 ? rows : 1) * sizeof *ratios);

  if (!ratios) return complaint_make(failure, EXIT_FAILED, "not enough memory for --estimate");
  for (size_t i = 0; i < rows; ++i) {
    double bound = rounding_load(error->data, error->dtype, (int64_t)i);
    ratios[i] = bound == 0.0 ? 0.0 : bound / outlook_length(out, (int64_t)i * dim, dim);
  }
  order_sort(ratios, rows);
  view->median = order_quantile(ratios, rows, 0.5);
  view->p95 = order_quantile(ratios, rows, 0.95);
  free(ratios);
  return 0;
}

enum { OUTLOOK_NUMBER = 24 };

/* Writes an estimate to `text`. Of rows that one drawn key outweighs, nothing is known. */
static const char *outlook_number(double value, char *text)
{
  if (!isfinite(value)) return "unknown";
  snprintf(text, OUTLOOK_NUMBER, "%.3g", value);
  return text;
}

/* Calls of the rounds in which rows were computed exactly, without repairs. */
static int64_t outlook_exact_calls(const setup *all, const outlook *view)
{
  return view->stats.calls - view->stats.repair_calls - all->info.calls;
}

void outlook_json(json_object *object, const setup *all, const outlook *view)
{
  const twh_run_stats *stats = &view->stats;
  char                 words[2 * sizeof stats->words];
  json_object          inner;

  if (all->method == TWH_METHOD_EXACT) return;
  if (all->estimate != TWH_ESTIMATE_NONE) {
    json_inner(object, "estimated_error", &inner);
    json_real(&inner, "median", view->median);
    json_real(&inner, "p95", view->p95);
    json_close(&inner);
  }
  json_whole(object, "exact_rows", stats->exact_rows);
  json_whole(object, "exact_calls", outlook_exact_calls(all, view));
  json_truth(object, "assumption_holds",
             stats->assumption == TWH_ASSUMPTION_UNCHECKED ? -1 : stats->assumption == TWH_ASSUMPTION_HOLDS);
  json_whole(object, "samples_needed", stats->samples_needed);
  json_real(object, "logit_std", stats->logit_std);
  json_real(object, "measured_c", stats->measured_c);
  json_real(object, "measured_d", stats->measured_d);
  wording_translate(stats->words, words, sizeof words);
  json_text(object, "assumption_words", words);
}

void outlook_text(const options *given, const setup *all, const outlook *view)
{
  const twh_run_stats *stats = &view->stats;
  char                 words[2 * sizeof stats->words], median[OUTLOOK_NUMBER], p95[OUTLOOK_NUMBER];

  if (all->method == TWH_METHOD_EXACT || all->info.drawn_tiles == 0) return;
  if (all->estimate != TWH_ESTIMATE_NONE) {
    printf("estimated error    %10s   of a row, relative, in the median; of 95 of 100 rows at most %s\n",
           outlook_number(view->median, median), outlook_number(view->p95, p95));
  }
  if (given->has_target) {
    printf("rows made exact    %10lld   in %lld more calls, where blocks had rows with estimates above %g\n",
           (long long)stats->exact_rows, (long long)outlook_exact_calls(all, view), given->target_error);
  }
  if (stats->assumption == TWH_ASSUMPTION_HOLDS) {
    printf("drawn keys suffice        yes   logits spread by %.3g about a row's mean; samples that it takes: %lld\n",
           stats->logit_std, (long long)stats->samples_needed);
  } else if (stats->assumption == TWH_ASSUMPTION_BROKEN) {
    wording_translate(stats->words, words, sizeof words);
    printf("drawn keys suffice         no   %s\n", words);
  }
}
