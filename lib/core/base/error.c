/* Statuses, messages, and structs that cross the boundary.
 *
 * One table gives every status its name. A struct of the caller's is read by the rules of the public header: too small is
 * refused, too long must be zero beyond what this library knows, so that an old library never ignores a new request. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/base.h"

typedef struct error_row {
  twh_status  status;
  const char *name;
} error_row;

static const error_row error_table[] = {
  { TWH_OK, "TWH_OK" },
  { TWH_E_ARGUMENT, "TWH_E_ARGUMENT" },
  { TWH_E_MEMORY, "TWH_E_MEMORY" },
  { TWH_E_OVERFLOW, "TWH_E_OVERFLOW" },
  { TWH_E_VERSION, "TWH_E_VERSION" },
  { TWH_E_UNSUPPORTED, "TWH_E_UNSUPPORTED" },
  { TWH_E_ORACLE, "TWH_E_ORACLE" },
  { TWH_E_CANCELLED, "TWH_E_CANCELLED" },
  { TWH_E_RESULT, "TWH_E_RESULT" },
  { TWH_E_PLUGIN, "TWH_E_PLUGIN" },
  { TWH_E_HOOK, "TWH_E_HOOK" },
};

int32_t twh_version(void)
{
  return TWH_VERSION;
}

const char *twh_status_name(twh_status status)
{
  for (size_t i = 0; i < sizeof error_table / sizeof error_table[0]; ++i) {
    if (error_table[i].status == status) return error_table[i].name;
  }
  return "unknown status";
}

twh_status twh__fail(twh_error *error, twh_status status, const char *format, ...)
{
  twh_error own;
  va_list   list;

  if (!error || error->struct_size < sizeof own.struct_size + sizeof own.status) return status;
  memset(&own, 0, sizeof own);
  own.status = status;
  own.call = own.row = -1;
  own.slot = -1;
  va_start(list, format);
  vsnprintf(own.message, sizeof own.message, format, list);
  va_end(list);
  own.struct_size = error->struct_size;
  memcpy(error, &own, error->struct_size < sizeof own ? error->struct_size : sizeof own);
  if (error->struct_size > sizeof own) memset((char *)error + sizeof own, 0, error->struct_size - sizeof own);
  /* an older, shorter message still ends */
  if (error->struct_size < sizeof own && error->struct_size > offsetof(twh_error, message))
    ((char *)error)[error->struct_size - 1] = 0;
  return status;
}

void twh__fail_code(twh_error *error, int32_t code)
{
  if (error && error->struct_size >= offsetof(twh_error, oracle_code) + sizeof error->oracle_code) error->oracle_code = code;
}

/* The size that a caller's struct claims to have; less than the first version's is refused. */
static twh_status error_struct_size(const void *given, size_t least, const char *name, uint32_t *size, twh_error *error)
{
  memcpy(size, given, sizeof *size);
  if (*size == 0) return twh__fail(error, TWH_E_ARGUMENT, "%s.struct_size is 0; use the struct's init function", name);
  if (*size >= least) return TWH_OK;
  return twh__fail(error, TWH_E_VERSION, "%s.struct_size is %u, less than the first version's %zu", name, (unsigned)*size,
                   least);
}

twh_status twh__struct_read(void *to, size_t own, size_t least, const void *given, const char *name, twh_error *error)
{
  uint32_t   size;
  twh_status status = error_struct_size(given, least, name, &size, error);

  if (TWH__FAILED(status)) return status;
  for (size_t i = own; i < size; ++i) {
    if (((const unsigned char *)given)[i] != 0) {
      return twh__fail(error, TWH_E_VERSION, "%s has a field at byte %zu that this version of the library does not know", name,
                       i);
    }
  }
  memset(to, 0, own);
  memcpy(to, given, size < own ? size : own);
  return TWH_OK;
}

twh_status twh__struct_write(void *given, const void *from, size_t own, size_t least, const char *name, twh_error *error)
{
  uint32_t   size;
  twh_status status = error_struct_size(given, least, name, &size, error);

  if (TWH__FAILED(status)) return status;
  memcpy((char *)given + sizeof size, (const char *)from + sizeof size, (size < own ? size : own) - sizeof size);
  if (size > own) memset((char *)given + own, 0, size - own);
  return TWH_OK;
}
