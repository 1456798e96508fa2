/* A few threads that wait for work: what --threads puts behind the library's parallel_for hook. */
#ifndef TOOLS_POOL_H
#define TOOLS_POOL_H

#include <stdint.h>

typedef struct pool pool;

/* NULL when threads or memory cannot be had. The calling thread counts as one of the `threads`. */
pool *pool_create(int64_t threads);
void  pool_destroy(pool *workers);

/* The hook: run task(arg, i) for every i in [0, n) and return when all are done. `user` is the pool, or NULL: one thread. A
 * call made while another is running (from a task, or from another thread) does its work on the calling thread. */
void pool_parallel_for(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg);

#endif
