/* What the functions of this library that make an oracle do alike: read the caller's structs, refuse, log. */
#ifndef TWH_BLIS_ARGUMENTS_H
#define TWH_BLIS_ARGUMENTS_H

#include "twoheads_blis.h"

/* Defaults of the limits. Small batches: nothing is gained by large ones on a CPU, and what a call wrote is still in the cache
 * when it is read. */
enum { TWH__BLIS_CONCURRENT_BATCHES = 64, TWH__BLIS_CALLS_PER_BATCH = 4, TWH__BLIS_ALIGNMENT = (int)sizeof(float) };

/* Fill *error, which may be NULL, and return `status`. */
twh_status twh__blis_refuse(twh_error *error, twh_status status, const char *format, ...)
#if defined(__GNUC__)
  __attribute__((format(printf, 3, 4)))
#endif
  ;

/* Copy a caller's struct of at least `bytes`; a longer one is from a newer header and must not ask for more than this knows. */
twh_status twh__blis_read(void *to, size_t bytes, const void *given, const char *name, twh_error *error);

/* The same for options, which may be NULL. */
twh_status twh__blis_read_options(twh_blis_options *to, const twh_blis_options *given, twh_error *error);

/* Say through options->log which kernels BLIS runs, and warn about slow ones. */
void twh__blis_log_kernels(const twh_blis_options *options);

#endif
