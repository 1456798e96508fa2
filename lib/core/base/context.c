/* The context: the host's hooks, and what stands in where it gave none. */
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "core/base/base.h"

static const twh_context context_default = { { sizeof(twh_context_desc), 0, NULL, NULL, NULL, NULL, NULL, 1 }, NULL };

const twh_context *twh__context_or_default(const twh_context *context)
{
  return context ? context : &context_default;
}

twh_status twh_context_create(const twh_context_desc *desc, twh_context **out, twh_error *error)
{
  twh_context  own = context_default;
  twh_context *made;
  twh_status   status;

  if (!out) return twh__fail(error, TWH_E_ARGUMENT, "out is NULL");
  *out = NULL;
  if (desc) {
    status = twh__struct_read(&own.desc, sizeof own.desc, sizeof own.desc, desc, "desc", error);
    if (TWH__FAILED(status)) return status;
  }
  if (own.desc.flags != 0)
    return twh__fail(error, TWH_E_VERSION, "desc.flags has unknown bits: 0x%x", (unsigned)own.desc.flags);
  if (!own.desc.allocate != !own.desc.release) {
    return twh__fail(error, TWH_E_ARGUMENT, "desc.allocate and desc.release must be given together");
  }
  if (own.desc.parallelism < 0) return twh__fail(error, TWH_E_ARGUMENT, "desc.parallelism is negative");
  if (own.desc.parallelism == 0) own.desc.parallelism = 1;
  if (!own.desc.parallel_for) own.desc.parallelism = twh__min(own.desc.parallelism, TWH__MOST_THREADS + 1);
  made = (twh_context *)twh__allocate(&own, sizeof *made, 0, error);
  if (!made) return TWH_E_MEMORY;
  *made = own;
  if (!own.desc.parallel_for && own.desc.parallelism > 1) {
    made->threads = twh__threads_create(&own, own.desc.parallelism - 1, error);
    if (!made->threads) {
      twh__release(&own, made, sizeof *made);
      return TWH_E_MEMORY;
    }
  }
  *out = made;
  return TWH_OK;
}

void twh_context_destroy(twh_context *context)
{
  if (context) {
    twh_context own = *context;
    twh__threads_destroy(&own, own.threads);
    twh__release(&own, context, sizeof *context);
  }
}

void twh__log(const twh_context *context, int32_t level, const char *format, ...)
{
  char    text[256];
  va_list list;

  if (!context->desc.log) return;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  context->desc.log(context->desc.user, level, text);
}

void twh__parallel_for(const twh_context *context, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
  if (context->desc.parallel_for && n > 1) {
    context->desc.parallel_for(context->desc.user, n, task, arg);
  } else if (context->threads && n > 1) {
    twh__threads_for(context->threads, n, task, arg);
  } else {
    for (int64_t i = 0; i < n; ++i) task(arg, i);
  }
}

double twh__now(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
