/* A kernel that a test can watch: by submit and wait behind a queue and a thread of its own, by run, or both. It counts what is in
 * flight, and breaks when that is more than declared, when a ticket is waited for twice, or when it is called after it has failed. */
#ifndef TWH_TESTS_SUPPORT_QUEUE_H
#define TWH_TESTS_SUPPORT_QUEUE_H

#include "support.h"

enum { QUEUE_RUN, QUEUE_SUBMIT, QUEUE_BOTH, QUEUE_MODES };
enum { QUEUE_TICKETS = 64, QUEUE_CODE = -77 };

typedef struct queue_batch {
  const twh_call *const *calls;
  int64_t                n;
  int32_t                code;
  int                    used, done;
} queue_batch;

typedef struct queue_kernel {
  twh_oracle     *oracle, *inner;
  twh_oracle_desc desc; /* of the inner one */
  pthread_mutex_t lock;
  pthread_cond_t  changed;
  pthread_t       thread;
  queue_batch     batches[QUEUE_TICKETS]; /* number i stands at i % QUEUE_TICKETS */
  int64_t         begun, computed;        /* submitted, and done by the thread: numbers */
  int             quit;
  int64_t         limit, running, most, calls, runs, submits, waits, late;
  int64_t         fail_at, failed;   /* number of the batch that fails, in wait, run or (fail_submit) submit; how many did */
  int             fail_submit, over; /* over: no batch may begin any more */
  int64_t         planned, beside;   /* calls from `planned` on are repairs; how many were begun with others in flight */
  int64_t         gate;              /* the first batch is not done before this many have begun, or open is called; 0: no gate */
  int             opened, waited;    /* waited: the gate was not opened in time */
} queue_kernel;

void    queue_create(queue_kernel *kernel, const twh_oracle_desc *desc, int mode);
/* Fails where something is still in flight. */
void    queue_destroy(queue_kernel *kernel);
void    queue_open(queue_kernel *kernel);
int64_t queue_running(queue_kernel *kernel);

#endif
