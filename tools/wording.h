/* The library's messages in the words of the command line: who typed --q-heads has never heard of problem.q_heads. */
#ifndef TOOLS_WORDING_H
#define TOOLS_WORDING_H

#include "complaint.h"
#include "twoheads.h"

/* Make a complaint of a failure of the library; `doing` is what was being done, or NULL. Returns EXIT_FAILED. */
int wording_complain(complaint *out, const twh_error *error, const char *doing);

/* Copy a text of the library to `to` (of `room` bytes, cut to fit) in those words. */
void wording_translate(const char *from, char *to, size_t room);

#endif
