/* twoheads: plan and run attention over long sequences with a kernel of fixed length, and check such a kernel.
 *
 * The command is a host like any other: it uses the library's public headers. Here the subcommand is found, and whatever
 * goes wrong below becomes one line on standard error and an exit code: 1, or 2 for usage. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "twoheads.h"

static void main_help(FILE *to)
{
  fputs("usage: twoheads COMMAND ...\n"
        "exact attention over long sequences with a kernel of one fixed length\n"
        "\n"
        "  plan    say which calls of a kernel a problem takes, without computing anything\n"
        "  run     compute the attention of arrays in .npy files\n"
        "  check   run a kernel against its own description\n"
        "\n"
        "  twoheads COMMAND --help, twoheads --version\n"
        "\n"
        "for example: causal attention over 8192 tokens, 12 heads, with a 512-token kernel that returns no log-sum-exp\n"
        "  twoheads plan --q-len 8192 --q-heads 12 --causal --oracle blis,len=512,causal\n",
        to);
}

static void main_version(FILE *to)
{
  int version = (int)twh_version();
  fprintf(to, "twoheads %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
}

static int main_command(int argc, char **argv, complaint *error)
{
  options given;
  int     command, failed;

  if (argc < 2) return complaint_make(error, EXIT_USAGE, "no command given (twoheads --help)");
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
    main_help(stdout);
    return 0;
  }
  if (!strcmp(argv[1], "--version")) {
    main_version(stdout);
    return 0;
  }
  command = options_command(argv[1]);
  if (!command) return complaint_make(error, EXIT_USAGE, "'%s' is no command (twoheads --help)", argv[1]);
  failed = options_parse(argc - 2, argv + 2, command, &given, error);
  if (failed) return failed;
  if (given.help) {
    options_help(stdout, command);
    return 0;
  }
  return command == OPTIONS_PLAN  ? cmd_plan(&given, error)
         : command == OPTIONS_RUN ? cmd_run(&given, error)
                                  : cmd_check(&given, error);
}

int main(int argc, char **argv)
{
  complaint error;
  int       code;

  memset(&error, 0, sizeof error);
  code = main_command(argc, argv, &error);
  errno = 0;
  if ((fflush(stdout) || ferror(stdout)) && !error.text[0]) {
    code = complaint_make(&error, EXIT_FAILED, "cannot write to standard output: %s", errno ? strerror(errno) : "an error");
  }
  if (error.text[0]) fprintf(stderr, "twoheads: %s\n", error.text);
  return code;
}
