/* Memory: the only file that names malloc and free.
 *
 * The default allocator keeps nothing; alignment beyond malloc's comes from aligned_alloc. */
#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"

static void *memory_default_allocate(void *user, size_t bytes, size_t alignment)
{
  size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  (void)user;
  if (rounded < bytes) return NULL;
  return alignment <= sizeof(void *) * 2 ? malloc(bytes) : aligned_alloc(alignment, rounded);
}

static void memory_default_release(void *user, void *memory, size_t bytes)
{
  (void)user;
  (void)bytes;
  free(memory);
}

void *twh__allocate_raw(const twh_context *context, size_t bytes, size_t alignment, twh_error *error)
{
  const twh_context_desc *desc = &context->desc;
  void                   *memory;

  if (bytes == 0) bytes = 1;
  if (alignment == 0) alignment = sizeof(void *) * 2;
  memory = desc->allocate ? desc->allocate(desc->user, bytes, alignment) : memory_default_allocate(NULL, bytes, alignment);
  if (!memory) twh__fail(error, TWH_E_MEMORY, "cannot allocate %zu bytes", bytes);
  return memory;
}

void *twh__allocate(const twh_context *context, size_t bytes, size_t alignment, twh_error *error)
{
  void *memory = twh__allocate_raw(context, bytes, alignment, error);
  if (memory) memset(memory, 0, bytes);
  return memory;
}

void twh__release(const twh_context *context, void *memory, size_t bytes)
{
  const twh_context_desc *desc = &context->desc;

  if (!memory) return;
  if (bytes == 0) bytes = 1;
  if (desc->release) {
    desc->release(desc->user, memory, bytes);
  } else {
    memory_default_release(NULL, memory, bytes);
  }
}
