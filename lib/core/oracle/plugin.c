/* A kernel from a shared object: dlopen, one entry point by name, and the ordinary registration.
 *
 * Until the oracle exists this file owns the library and, once the entry point has handed out a description, also what the
 * description owns; from then on the oracle does. TWH_NO_PLUGINS leaves dlopen out. */
#include "core/oracle/oracle.h"

#ifdef TWH_NO_PLUGINS

twh_status twh_oracle_load(const twh_context *context, const char *path, const char *options, twh_oracle **out,
                           twh_error *error)
{
  (void)context;
  (void)path;
  (void)options;
  if (out) *out = NULL;
  return twh__fail(error, TWH_E_UNSUPPORTED, "this library was built without plugins (TWH_NO_PLUGINS)");
}

void twh__plugin_close(void *library)
{
  (void)library;
}

#else

#include <dlfcn.h>
#include <string.h>

/* dlerror says why, including the path. */
static twh_status plugin_complain(twh_error *error, const char *path)
{
  const char *reason = dlerror();
  return twh__fail(error, TWH_E_PLUGIN, "%s", reason ? reason : path);
}

static twh_status plugin_register(const twh_context *context, const char *path, const char *options, void *library,
                                  twh_oracle **out, twh_error *error)
{
  void                  *symbol = dlsym(library, TWH_PLUGIN_ENTRY);
  twh_plugin_entry      *entry;
  const twh_oracle_desc *desc = NULL;
  twh_status             status;
  int32_t                code;

  if (!symbol) return plugin_complain(error, path);
  memcpy(&entry, &symbol, sizeof entry); /* ISO C has no conversion from void * to a function */
  code = entry(options, &desc);
  if (code != 0) return twh__oracle_fail(error, code, -1, "the plugin's entry point");
  if (!desc) return twh__fail(error, TWH_E_PLUGIN, "%s: %s returned 0, but no description", path, TWH_PLUGIN_ENTRY);
  status = twh_oracle_create(context, desc, out, error);
  /* a description of unknown size has no release that could be trusted */
  if (TWH__FAILED(status) && desc->struct_size >= TWH__ORACLE_DESC_LEAST && desc->release) desc->release(desc->user);
  return status;
}

twh_status twh_oracle_load(const twh_context *context, const char *path, const char *options, twh_oracle **out,
                           twh_error *error)
{
  void      *library;
  twh_status status;

  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!path || !*path) return twh__fail(error, TWH_E_ARGUMENT, "path is %s", path ? "empty" : "NULL");
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return plugin_complain(error, path);
  status = plugin_register(context, path, options ? options : "", library, out, error);
  if (TWH__FAILED(status)) {
    twh__plugin_close(library);
  } else {
    (*out)->library = library;
  }
  return status;
}

void twh__plugin_close(void *library)
{
  if (library) dlclose(library);
}

#endif
