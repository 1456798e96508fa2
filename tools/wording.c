/* Replacing the names of fields by those of options: see wording.h.
 *
 * A plain list of texts, longer ones before their beginnings. A message that the list does not know stays as it is: it is
 * still one line that says what is wrong. */
#include <stdio.h>
#include <string.h>

#include "wording.h"

typedef struct wording_row {
  const char *library, *command;
} wording_row;

static const wording_row wording_rows[] = {
  { "problem.flags: TWH_PROBLEM_KEY_BIAS", "--key-bias" },
  { "problem.flags: TWH_PROBLEM_ALIBI", "--alibi" },
  { "TWH_PROBLEM_KEY_BIAS", "--key-bias" },
  { "TWH_PROBLEM_ALIBI", "--alibi" },
  { "tensors.key_bias", "--key-bias" },
  { "tensors.alibi_slopes", "--alibi" },
  { "tensors.sink_logits", "--sink-logits" },
  { "tensors.mask", "--mask" },
  { "problem.mask_dtype: a mask tensor needs a kernel with TWH_MASK_TENSOR in mask_modes", "--mask: --oracle needs mask" },
  { "problem.pattern.left", "--left" },
  { "problem.pattern.right", "--right" },
  { "problem.pattern.sink_tokens", "--sink-tokens" },
  { "without TWH_LEFT it is open", "-1 is open" },
  { "without TWH_RIGHT it is open", "-1 is open" },
  { "problem.batch", "--batch" },
  { "problem.q_heads", "--q-heads" },
  { "problem.kv_heads", "--kv-heads" },
  { "problem.q_len", "--q-len" },
  { "problem.k_len", "--kv-len" },
  { "problem.q_offset", "--q-offset" },
  { "problem.qk_dim", "--dim" },
  { "problem.v_dim", "--v-dim" },
  { "problem.scale", "--scale" },
  { "problem.softcap", "--softcap" },
  { "problem.mask_dtype", "--mask" },
  { "options.method", "--method" },
  { "options.samples", "--samples" },
  { "options.strata", "--strata" },
  { "options.exact_sinks", "--exact-sinks" },
  { "options.exact_window", "--exact-window" },
  { "must be a multiple of strata", "must be a multiple of --strata" },
  { "options.estimate takes strata 1", "--estimate takes --strata 1" },
  { "TWH_ESTIMATE_REPLICATES takes samples of", "replicates takes --samples" },
  { "needs a kernel that can run unmasked (TWH_MASK_NONE in oracle.mask_modes)", "needs --oracle nomask; doubled does not" },
  { "options.estimate", "--estimate" },
  { "TWH_ESTIMATE_REPLICATES", "replicates" },
  { "TWH_ESTIMATE_DOUBLED", "doubled" },
  { "with bound_c", "with --bound-c" },
  { "bound_d is", "--bound-d is" },
  { "oracle.scale is 0; only TWH_ORACLE_SCALE_PER_CALL goes without one",
    "--oracle scale is 0; a kernel that ignores its scores is of no use" },
  { "oracle.mask_modes: no way", "--oracle: no way" },
  { "oracle.qk_dim", "--oracle qk" },
  { "oracle.v_dim", "--oracle v" },
  { "oracle.", "--oracle " },
  { "TWH_MASK_NONE", "nomask" },
  { "TWH_MASK_CAUSAL", "causal" },
  { "TWH_MASK_TENSOR", "mask" },
};

enum { WORDING_ROWS = sizeof wording_rows / sizeof wording_rows[0] };

void wording_translate(const char *from, char *to, size_t room)
{
  size_t n = 0;

  while (*from && n + 1 < room) {
    const wording_row *row = wording_rows, *end = wording_rows + WORDING_ROWS;
    while (row < end && strncmp(from, row->library, strlen(row->library))) ++row;
    if (row == end) {
      to[n++] = *from++;
    } else {
      int wrote = snprintf(to + n, room - n, "%s", row->command);
      n = n + (size_t)wrote < room ? n + (size_t)wrote : room - 1;
      from += strlen(row->library);
    }
  }
  to[n] = 0;
}

int wording_complain(complaint *out, const twh_error *error, const char *doing)
{
  char code[48] = "", text[2 * sizeof error->message];

  if (error->oracle_code) snprintf(code, sizeof code, " (the kernel's code is %d)", (int)error->oracle_code);
  wording_translate(error->message, text, sizeof text);
  if (doing && !strncmp(text, doing, strlen(doing))) doing = NULL; /* the message says so itself */
  return complaint_make(out, EXIT_FAILED, "%s%s%s%s", doing ? doing : "", doing ? ": " : "", text, code);
}
