/* The subcommands. Each returns 0 or the exit code that its complaint says. */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

#include "complaint.h"
#include "options.h"

int cmd_plan(const options *given, complaint *error);
int cmd_run(const options *given, complaint *error);

/* A promise of the kernel that is untrue is no complaint, but makes the exit code EXIT_FAILED: the text stays empty. */
int cmd_check(const options *given, complaint *error);

#endif
