/* twoheads plan: which calls a problem takes, in text or figures. */
#include <stdlib.h>

#include "commands.h"
#include "picture.h"
#include "setup.h"
#include "wording.h"

/* The library's own text of the plan, and what it does not know: how the user called the kernels, and what time they take. */
static int cmd_plan_text(const options *given, const setup *all, complaint *error)
{
  twh_error failure;
  size_t    bytes = 0;
  char     *text;

  twh_error_init(&failure);
  if (twh_plan_describe(all->plan, NULL, 0, &bytes, &failure) < 0) return wording_complain(error, &failure, NULL);
  text = (char *)malloc(bytes + 1);
  if (!text) return complaint_make(error, EXIT_FAILED, "not enough memory for the text of the plan");
  if (twh_plan_describe(all->plan, text, bytes, NULL, &failure) < 0) {
    free(text);
    return wording_complain(error, &failure, NULL);
  }
  fputs(text, stdout);
  free(text);
  for (int i = 0; i < all->oracles && all->oracles > 1; ++i) {
    printf("number %-2d %lld calls: %s\n", i, (long long)all->calls[i], given->oracle[i]);
  }
  if (setup_estimate(all) > 0) {
    printf("time      %.6g s %s\n", setup_estimate(all), all->measured ? "by measured calls" : "estimated by cost_us");
  }
  return 0;
}

int cmd_plan(const options *given, complaint *error)
{
  setup all;
  int   failed = setup_create(given, OPTIONS_PLAN, &all, error);

  if (!failed && given->svg) failed = picture_write(given, &all, error);
  if (!failed && given->json) {
    json_object object;
    json_open(&object, stdout);
    setup_json(&object, &all);
    json_close(&object);
    putchar('\n');
  } else if (!failed) {
    failed = cmd_plan_text(given, &all, error);
  }
  setup_destroy(&all);
  return failed;
}
