/* Drawing slots: see slots.h. */
#include <string.h>

#include "slots.h"
#include "svg.h"

static slots_slot *slots_find(slots_sheet *sheet, const twh_tile_info *tile)
{
  for (int i = 0; i < sheet->count; ++i) {
    if (sheet->slot[i].call == tile->call && sheet->slot[i].slot == tile->slot) return &sheet->slot[i];
  }
  return NULL;
}

void slots_take(slots_sheet *sheet, const twh_tile_info *tile)
{
  slots_slot *slot;

  if (tile->mask_mode == 0 || sheet->count == sheet->most || slots_find(sheet, tile)) return;
  slot = &sheet->slot[sheet->count++];
  memset(slot, 0, sizeof *slot);
  slot->call = tile->call;
  slot->slot = tile->slot;
  slot->calls = tile->calls;
  slot->oracle = tile->oracle;
}

/* One scale for all: kernels of different lengths show their proportion. */
double slots_lay_out(slots_sheet *sheet, const setup *all, double x, double y, double box, int across)
{
  int64_t longest = 1;
  double  height = 0, row = 0;

  for (int i = 0; i < sheet->count; ++i) {
    slots_slot     *slot = &sheet->slot[i];
    twh_oracle_desc desc;
    twh_oracle_desc_init(&desc);
    (void)twh_oracle_get_desc(all->oracle[slot->oracle], &desc, NULL);
    slot->view.rows = desc.q_len;
    slot->view.keys = desc.k_len;
    if (desc.q_len > longest) longest = desc.q_len;
    if (desc.k_len > longest) longest = desc.k_len;
  }
  for (int i = 0; i < sheet->count; ++i) {
    sketch_view *view = &sheet->slot[i].view;
    int64_t      longer = view->rows > view->keys ? view->rows : view->keys;
    if (i % across == 0) {
      height += row;
      row = 0;
    }
    sketch_fit(view, x + i % across * (box + 22), y + height, box * (double)longer / (double)longest, 14);
    if (view->height + 40 > row) row = view->height + 40;
  }
  return height + row;
}

void slots_begin(FILE *to, const slots_sheet *sheet)
{
  for (int i = 0; i < sheet->count; ++i) {
    const sketch_view *view = &sheet->slot[i].view;
    svg_rect(to, view->x, view->y, view->width, view->height, "fill=\"#eee\"");
  }
}

/* Under a causal mask rows further down see more. */
static int slots_turns(const twh_tile_info *tile)
{
  int64_t begin, first, last;

  twh_tile_keys(tile, 0, &begin, &first);
  twh_tile_keys(tile, tile->q_len - 1, &begin, &last);
  return tile->mask_mode == TWH_MASK_CAUSAL && first > last;
}

void slots_draw(FILE *to, slots_sheet *sheet, const setup *all, const twh_tile_info *tile)
{
  slots_slot  *slot = slots_find(sheet, tile);
  sketch_tile  placed;
  twh_sequence sequence;
  char         label[32];

  if (!slot || tile->mask_mode == 0) return;
  ++slot->tiles;
  placed.info = tile;
  placed.row = tile->q_at;
  placed.key = tile->k_at;
  placed.sink = placed.origin = 0;
  placed.scattered = 0;
  placed.turn_keys = tile->reversed;
  placed.turn_rows = slots_turns(tile);
  workload_sequence(&all->work, tile->sequence, &sequence);
  snprintf(label, sizeof label, "%lld", (long long)(sequence.q_begin + tile->q_begin));
  sketch_draw(to, &slot->view, &placed, label);
}

void slots_end(FILE *to, const slots_sheet *sheet, const setup *all)
{
  for (int i = 0; i < sheet->count; ++i) {
    const slots_slot *slot = &sheet->slot[i];
    char              text[160];
    size_t            n;
    svg_rect(to, slot->view.x, slot->view.y, slot->view.width, slot->view.height, "fill=\"none\" stroke=\"#444\"");
    snprintf(text, sizeof text, "call %lld", (long long)slot->call);
    n = strlen(text);
    if (slot->calls > 1) n += (size_t)snprintf(text + n, sizeof text - n, "-%lld", (long long)(slot->call + slot->calls - 1));
    if (slot->slot > 0) n += (size_t)snprintf(text + n, sizeof text - n, " slot %lld", (long long)slot->slot);
    if (all->oracles > 1) n += (size_t)snprintf(text + n, sizeof text - n, ", kernel %lld", (long long)slot->oracle);
    snprintf(text + n, sizeof text - n, ": %lld %s", (long long)slot->tiles, slot->tiles == 1 ? "tile" : "tiles");
    svg_text(to, slot->view.x, slot->view.y + slot->view.height + 15, 11, 200, "", text);
  }
}
