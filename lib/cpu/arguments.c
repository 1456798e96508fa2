/* Reading structs and refusing them, as the core does it, for a library that sees no more of the core than its header. */
#include "cpu/arguments.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

twh_status twh__cpu_refuse(twh_error *error, twh_status status, const char *format, ...)
{
  twh_error filled;
  va_list   arguments;
  if (error == NULL || error->struct_size == 0) return status;
  twh_error_init(&filled);
  filled.struct_size = error->struct_size;
  filled.status = status;
  filled.slot = -1;
  filled.call = filled.row = -1;
  va_start(arguments, format);
  vsnprintf(filled.message, sizeof filled.message, format, arguments);
  va_end(arguments);
  memset(error, 0, filled.struct_size);
  memcpy(error, &filled, filled.struct_size < sizeof filled ? filled.struct_size : sizeof filled);
  return status;
}

twh_status twh__cpu_read(void *to, size_t bytes, const void *given, const char *name, twh_error *error)
{
  uint32_t size;
  memcpy(&size, given, sizeof size);
  if (size == 0) return twh__cpu_refuse(error, TWH_E_ARGUMENT, "%s->struct_size is 0: call its init function", name);
  if (size < bytes) return twh__cpu_refuse(error, TWH_E_VERSION, "%s->struct_size %u is too small", name, (unsigned)size);
  for (size_t at = bytes; at < size; at++)
    if (((const unsigned char *)given)[at] != 0)
      return twh__cpu_refuse(error, TWH_E_VERSION, "%s has fields that this version does not know", name);
  memcpy(to, given, bytes);
  size = (uint32_t)bytes;
  memcpy(to, &size, sizeof size);
  return TWH_OK;
}

twh_status twh__cpu_read_options(twh_cpu_options *to, const twh_cpu_options *given, twh_error *error)
{
  twh_status status;
  twh_cpu_options_init(to);
  if (given == NULL) return TWH_OK;
  status = twh__cpu_read(to, sizeof *to, given, "options", error);
  if (status == TWH_OK && to->flags != 0)
    status = twh__cpu_refuse(error, TWH_E_VERSION, "options->flags has bits that this version does not know");
  return status;
}
