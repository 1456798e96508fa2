/* The oracle object: a copy of the kernel's description, its gate, and for a plugin the shared object that holds its code. */
#include "core/oracle/oracle.h"

twh_status twh_oracle_create(const twh_context *context, const twh_oracle_desc *desc, twh_oracle **out, twh_error *error)
{
  const twh_context *own_context = twh__context_or_default(context);
  twh_oracle_desc    own;
  twh_oracle        *oracle;
  twh_status         status;

  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!desc) return twh__fail(error, TWH_E_ARGUMENT, "desc is NULL");
  status = twh__struct_read(&own, sizeof own, TWH__ORACLE_DESC_LEAST, desc, "oracle", error);
  if (TWH__FAILED(status)) return status;
  own.struct_size = (uint32_t)sizeof own;
  if (TWH__FAILED(status = twh__contract_complete(&own, error))) return status;
  oracle = (twh_oracle *)twh__allocate(own_context, sizeof *oracle, 0, error);
  if (!oracle) return TWH_E_MEMORY;
  oracle->context = own_context;
  status = twh__gate_create(own_context, own.max_concurrent_batches, &oracle->gate, error);
  if (TWH__FAILED(status)) {
    twh_oracle_destroy(oracle); /* without a description it releases nothing of the caller's */
    return status;
  }
  oracle->desc = own;
  *out = oracle;
  return TWH_OK;
}

void twh_oracle_destroy(twh_oracle *oracle)
{
  if (oracle) {
    const twh_context *context = oracle->context;
    void              *library = oracle->library;
    if (oracle->desc.release) oracle->desc.release(oracle->desc.user);
    twh__gate_destroy(context, oracle->gate);
    twh__release(context, oracle, sizeof *oracle);
    twh__plugin_close(library); /* last: release is code of the plugin */
  }
}

twh_status twh_oracle_get_desc(const twh_oracle *oracle, twh_oracle_desc *out, twh_error *error)
{
  if (!oracle) return twh__fail(error, TWH_E_ARGUMENT, "oracle is NULL");
  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  return twh__struct_write(out, &oracle->desc, sizeof oracle->desc, TWH__ORACLE_DESC_LEAST, "out", error);
}

twh_status twh__oracle_fail(twh_error *error, int32_t code, int64_t call, const char *what)
{
  twh__fail(error, TWH_E_ORACLE, "%s returned %d", what, (int)code);
  twh__fail_code(error, code);
  if (error && error->struct_size >= offsetof(twh_error, call) + sizeof error->call) error->call = call;
  return TWH_E_ORACLE;
}
