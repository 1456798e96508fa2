/* Reading the caller's structs and refusing them. */
#ifndef TWH_CPU_ARGUMENTS_H
#define TWH_CPU_ARGUMENTS_H

#include "twoheads_cpu.h"

/* Fill *error, which may be NULL, and return `status`. */
twh_status twh__cpu_refuse(twh_error *error, twh_status status, const char *format, ...)
#if defined(__GNUC__)
  __attribute__((format(printf, 3, 4)))
#endif
  ;

/* Copy a caller's struct of at least `bytes`; a longer one is from a newer header and must not ask for more than this knows. */
twh_status twh__cpu_read(void *to, size_t bytes, const void *given, const char *name, twh_error *error);

/* The same for options, which may be NULL. */
twh_status twh__cpu_read_options(twh_cpu_options *to, const twh_cpu_options *given, twh_error *error);

#endif
