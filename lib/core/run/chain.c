/* Chains: calls of one unit that continue each other, so that the kernel merges their results and the host merges one for all. Where that
 * one is the unit's, the kernel writes it into the host's tensor, and nothing is left to do.
 *
 * The calls of a chain are neighbours in one batch. The first one is that of the bundle with most rows; the others, later keys first,
 * add theirs to what it wrote, with pointers into its results. Which bundles these are is a matter of the plan and of the data, never of
 * threads. A chain with a row that cannot be read falls apart: the host computes that row of each of its tiles, and every tile has a state
 * again. */
#include <math.h>

#include "core/run/run.h"

/* Whether nothing is read from the results of a bundle's tile but its lse, for all rows alike. */
static int chain_is_plain(const twh__run *run, const twh__bundle *bundle)
{
  const twh__attention *attention = &bundle->slots[0];
  const twh__tile      *tile = &attention->tiles[0];

  if (!twh__run_kernel(run, bundle)->plain || twh__class_is_host(bundle->class_number)) return 0;
  if (bundle->filled != 1 || attention->slot.count != 1 || !tile->alone || tile->host) return 0;
  if (tile->reading != TWH__READ_LSE || tile->pads == TWH__PAD_MEAN || tile->level != 1) return 0;
  if (tile->sample.stratum != 0 || tile->lead != 0 || tile->cut != TWH__CUT_NONE) return 0;
  return tile->mode != TWH_MASK_TENSOR && (!attention->v.note || *attention->v.note == 1);
}

/* Of one unit, and of one range of its key blocks. */
static int chain_is_group(const twh__run *run, const twh__tile *a, const twh__tile *b)
{
  int64_t chain = run->plan->layout.chain;

  return a->unit_index == b->unit_index && a->kernel == b->kernel && a->level == b->level &&
         a->ordinal / chain == b->ordinal / chain;
}

/* Where the rows of a call that continues another stand in the results of that one: its slot position p is `first` + p `step`. 0: not
 * all of them are there. */
static int chain_place(const twh_oracle_desc *desc, const twh__attention *leader, const twh__attention *follower,
                       int64_t *first, int64_t *step)
{
  const twh__tile *to = &leader->tiles[0], *from = &follower->tiles[0];
  int64_t          row = to->at + (from->row - to->row) * to->at_step, last;

  if (from->row < to->row || from->row + from->rows > to->row + to->rows) return 0;
  if (leader->slot.isolation != follower->slot.isolation || (to->at_step != 1 && to->at_step != -1)) return 0;
  if (from->at_step != to->at_step && from->at_step != -to->at_step) return 0;
  *step = from->at_step == to->at_step ? 1 : -1;
  if (*step < 0 && !(desc->flags & TWH_ORACLE_BACKWARDS)) return 0;
  *first = row - *step * from->at;
  last = *first + *step * (from->slot_rows - 1);
  if (twh__min(*first, last) < 0 || twh__max(*first, last) >= to->slot_rows) return 0;
  /* rows that are none of the unit's have to be alike as well */
  return from->rows == from->slot_rows || (*first == 0 && *step == 1 && leader->q.block.data == follower->q.block.data);
}

/* The call of a bundle that has one part. */
static twh_call *chain_call(const twh__wave *wave, int64_t b)
{
  return wave->calls + b * wave->run->plan->layout.parts;
}

/* Whether a bundle's call can continue another's; with `link` it does. */
static int chain_follow(twh__wave *wave, int64_t leading, int64_t following, int link)
{
  twh__bundle           *bundle = wave->bundles[leading];
  const twh__kernel     *kernel = twh__run_kernel(wave->run, bundle);
  const twh_oracle_desc *desc = &kernel->oracle->desc;
  twh__attention        *leader = &bundle->slots[0], *follower = &wave->bundles[following]->slots[0];
  const twh_call        *to = chain_call(wave, leading);
  twh_call              *call = chain_call(wave, following);
  int64_t                first, step, item = twh__dtype_bytes(desc->out_dtype);
  char                  *out;
  float                 *lse;

  if (!kernel->continues || !chain_is_plain(wave->run, wave->bundles[following])) return 0;
  if (!chain_place(desc, leader, follower, &first, &step)) return 0;
  out = (char *)to->out + first * to->out_row_stride * item;
  lse = to->lse + first;
  if ((uintptr_t)out % (uintptr_t)desc->alignment != 0 || (uintptr_t)lse % (uintptr_t)desc->alignment != 0) return 0;
  if (!link) return 1;
  call->flags = TWH_CALL_CONTINUES;
  call->out = out;
  call->lse = lse;
  call->out_row_stride = step * to->out_row_stride;
  call->lse_row_stride = step;
  follower->chain = bundle;
  ++leader->followers;
  return 1;
}

/* Bundles first .. last of a group: -1 if none can lead a chain. */
static int64_t chain_leader(const twh__wave *wave, int64_t first, int64_t last)
{
  int64_t leader = -1, most = 0;

  for (int64_t b = last; b >= first; --b) {
    const twh__tile *tile = &wave->bundles[b]->slots[0].tiles[0];
    if (!chain_is_plain(wave->run, wave->bundles[b]) || tile->rows <= most) continue;
    most = tile->rows;
    leader = b;
  }
  return leader;
}

/* The rows of a tile that fill its slot, in the host's tensor; NULL: they do not, or not as a kernel can write them. */
static char *chain_rows(const twh__run *run, const twh_oracle_desc *desc, const twh__tile *tile)
{
  const twh__view *out = &run->out;
  const twh__span *span = &run->plan->spans[tile->unit.span];
  int64_t          head, row, last_head, last_row, stride = out->row_stride / out->item;
  char            *data;

  if (tile->rows != tile->slot_rows || tile->at != 0 || tile->at_step != 1) return NULL;
  if (out->dtype != desc->out_dtype || desc->v_dim != run->plan->shape.v_dim) return NULL;
  twh__unit_row(&tile->unit, span, tile->row, &head, &row);
  twh__unit_row(&tile->unit, span, tile->row + tile->rows - 1, &last_head, &last_row);
  data = twh__view_row(out, span->batch, head, row);
  if (head != last_head || last_row < row || (uintptr_t)data % (uintptr_t)desc->alignment != 0) return NULL;
  if (stride != desc->out_row_stride && (stride < desc->v_dim || !(desc->flags & TWH_ORACLE_STRIDED))) return NULL;
  return data;
}

/* If bundles first .. last are all of a unit, and one chain, the kernel may write where the host wants the result. */
static void chain_write_directly(twh__wave *wave, int64_t leader, int64_t first, int64_t last)
{
  const twh__run *run = wave->run;
  twh__bundle    *bundle = wave->bundles[leader];
  twh__attention *attention = &bundle->slots[0];
  twh_call       *call = chain_call(wave, leader);
  char           *out;

  if (run->has_sinks || run->plan->partial || run->work.units[attention->places[0].unit].tiles != last - first + 1) return;
  out = chain_rows(run, &twh__run_kernel(run, bundle)->oracle->desc, &attention->tiles[0]);
  for (int64_t b = first; b <= last && out; ++b) {
    if (b != leader && !chain_follow(wave, leader, b, 0)) out = NULL;
  }
  if (!out) return;
  attention->out = out;
  call->out = out;
  call->out_row_stride = run->out.row_stride / run->out.item;
}

int64_t twh__chain_link(twh__wave *wave, int64_t first, int64_t order[TWH__CHAIN])
{
  const twh__run *run = wave->run;
  int64_t         last = first, leader, count = 0;

  while (run->plan->layout.chain > 1 && !wave->repair && last + 1 < twh__min(wave->count, first + TWH__CHAIN) &&
         chain_is_group(run, &wave->bundles[first]->slots[0].tiles[0], &wave->bundles[last + 1]->slots[0].tiles[0])) {
    ++last;
  }
  leader = wave->repair ? -1 : chain_leader(wave, first, last);
  if (leader >= 0) order[count++] = leader;
  if (leader >= 0) chain_write_directly(wave, leader, first, last);
  for (int64_t b = last; b >= first && leader >= 0; --b) {
    if (b != leader && chain_follow(wave, leader, b, 1)) order[count++] = b;
  }
  for (int64_t b = first; b <= last; ++b) {
    if (b != leader && !wave->bundles[b]->slots[0].chain) order[count++] = b;
  }
  return count;
}
