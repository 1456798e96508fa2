/* Composing the picture: see picture.h.
 *
 * The plan is visited several times and never stored: to count, to draw (each tile, or all of them on a raster), for an inset
 * where there are too many to be told apart, and to fill a few slots. */
#include <string.h>

#include "furniture.h"
#include "outfile.h"
#include "picture.h"
#include "raster.h"
#include "slots.h"
#include "svg.h"
#include "wording.h"

enum {
  PICTURE_TILES_MAX = 300,
  PICTURE_MARKS_MAX = 4096, /* of drawn keys */
  PICTURE_WIDTH = 1216,
  PICTURE_LEFT = 84,
  PICTURE_TOP = 136,
  PICTURE_BOX = 640,
  PICTURE_RIGHT = 796
};

typedef struct picture {
  FILE        *to;
  const setup *all;
  int64_t      heads;                  /* drawn one below the other: 1, or the stacked ones of a kv head */
  int64_t      counts[SKETCH_KINDS];   /* over the whole plan */
  int64_t      tiles_one, tiles_group; /* of the first head, and of those that share its kv head */
  int64_t      marks_one, marks_group; /* keys drawn in them */
  int64_t      number_row;             /* of the last number above drawn keys in a visit; and where it ends */
  double       number_x;
  int          stacked, many; /* many: too many tiles to draw each */
  raster       cells;
  sketch_view  view, inset;                  /* inset.rows 0: none */
  int64_t      middle;                       /* a row, of which the inset shows the surroundings; what its tiles are like: */
  int64_t      unit, from, to_key, diagonal; /* longest side; keys that the row sees; the key at its own position */
  slots_sheet  sheet;
  double       slots_top, bottom;
} picture;

/* Where a tile lies among the rows and keys of the arrays; 0 when it belongs to another head or sequence than what is drawn. */
static int picture_place(const picture *own, const twh_tile_info *tile, sketch_tile *out)
{
  twh_sequence sequence;

  if (tile->q_head >= own->heads || (!own->all->work.sequences && tile->sequence != 0)) return 0;
  workload_sequence(&own->all->work, tile->sequence, &sequence);
  out->info = tile;
  out->row = sequence.q_begin * own->heads + tile->q_head * sequence.q_len + tile->q_begin;
  out->key = sequence.k_begin + tile->k_begin;
  out->sink = sequence.k_begin + tile->sink_begin;
  out->turn_rows = out->turn_keys = 0;
  out->origin = sequence.k_begin;
  out->scattered = (tile->flags & TWH_TILE_DRAWN) != 0;
  return 1;
}

/* ---- visits -------------------------------------------------------------------------------------------------------------- */

static int32_t picture_count(void *user, const twh_tile_info *tile)
{
  picture           *own = (picture *)user;
  const twh_problem *problem = &own->all->work.problem;
  twh_sequence       sequence;

  ++own->counts[sketch_kind_of(tile)];
  own->counts[SKETCH_SINKS] += tile->sink_len > 0;
  if (tile->q_head >= problem->q_heads / problem->kv_heads || (!own->all->work.sequences && tile->sequence != 0)) return 0;
  ++own->tiles_group;
  own->tiles_one += tile->q_head == 0;
  if (tile->flags & TWH_TILE_DRAWN) {
    own->marks_group += tile->k_len;
    if (tile->q_head == 0) own->marks_one += tile->k_len;
  }
  workload_sequence(&own->all->work, tile->sequence, &sequence);
  if (tile->q_begin + tile->q_len > sequence.q_len) own->stacked = 1;
  return 0;
}

static int32_t picture_draw_tile(void *user, const twh_tile_info *tile)
{
  picture    *own = (picture *)user;
  sketch_tile placed;
  char        label[32];

  if (!picture_place(own, tile, &placed)) return 0;
  snprintf(label, sizeof label, "%lld", (long long)tile->call);
  sketch_draw(own->to, &own->view, &placed, tile->call >= 0 ? label : NULL);
  return 0;
}

static int32_t picture_cover(void *user, const twh_tile_info *tile)
{
  picture    *own = (picture *)user;
  sketch_tile placed;

  if (picture_place(own, tile, &placed)) raster_add(&own->cells, &placed);
  return 0;
}

/* What meets the middle row: the size of the tiles there, and the keys seen. */
static int32_t picture_look(void *user, const twh_tile_info *tile)
{
  picture     *own = (picture *)user;
  sketch_tile  placed;
  twh_sequence sequence;
  int64_t      from, to;

  if (!picture_place(own, tile, &placed) || own->middle < placed.row || own->middle >= placed.row + tile->q_len) return 0;
  if (!sketch_range(&placed, own->middle, &from, &to)) return 0;
  workload_sequence(&own->all->work, tile->sequence, &sequence);
  if (own->unit == 0 || from < own->from) own->from = from;
  if (own->unit == 0 || to > own->to_key) own->to_key = to;
  if (tile->q_len > own->unit) own->unit = tile->q_len;
  if (tile->k_len > own->unit) own->unit = tile->k_len;
  own->diagonal = own->middle - placed.row + tile->q_begin + sequence.q_offset - sequence.k_offset;
  if (own->diagonal >= sequence.k_len) own->diagonal = sequence.k_len - 1;
  if (own->diagonal < 0) own->diagonal = 0;
  own->diagonal += sequence.k_begin;
  slots_take(&own->sheet, tile);
  return 0;
}

static int32_t picture_draw_inset(void *user, const twh_tile_info *tile)
{
  picture    *own = (picture *)user;
  sketch_tile placed;
  char        label[32];

  if (!picture_place(own, tile, &placed) || !sketch_shows(&own->inset, &placed)) return 0;
  snprintf(label, sizeof label, "%lld", (long long)tile->call);
  sketch_draw(own->to, &own->inset, &placed, tile->call >= 0 ? label : NULL);
  return 0;
}

/* Numbers of drawn keys' tiles, above all marks, in the view or in the inset. */
static void picture_number(picture *own, const sketch_view *view, const twh_tile_info *tile)
{
  sketch_tile placed;
  char        label[32];

  if (tile->call < 0 || !picture_place(own, tile, &placed) || !placed.scattered || !sketch_shows(view, &placed)) return;
  if (placed.row != own->number_row) own->number_x = 0.0;
  own->number_row = placed.row;
  snprintf(label, sizeof label, "%lld", (long long)tile->call);
  sketch_number(own->to, view, &placed, label, &own->number_x);
}

static int32_t picture_number_tile(void *user, const twh_tile_info *tile)
{
  picture *own = (picture *)user;
  picture_number(own, &own->view, tile);
  return 0;
}

static int32_t picture_number_inset(void *user, const twh_tile_info *tile)
{
  picture *own = (picture *)user;
  picture_number(own, &own->inset, tile);
  return 0;
}

/* The slots to be shown: of tiles in the inset, or the first ones. Stops when there are enough. */
static int32_t picture_take_slot(void *user, const twh_tile_info *tile)
{
  picture    *own = (picture *)user;
  sketch_tile placed;

  if (!own->many || (picture_place(own, tile, &placed) && sketch_shows(&own->inset, &placed))) slots_take(&own->sheet, tile);
  return own->sheet.count == own->sheet.most;
}

static int32_t picture_fill_slot(void *user, const twh_tile_info *tile)
{
  picture *own = (picture *)user;
  slots_draw(own->to, &own->sheet, own->all, tile);
  return 0;
}

typedef struct picture_pass {
  picture *own;
  int32_t (*visit)(void *, const twh_tile_info *);
} picture_pass;

/* Tiles that only serve an estimate are left out: they lie where those lie whose errors they tell. */
static int32_t picture_filter(void *user, const twh_tile_info *tile)
{
  picture_pass *pass = (picture_pass *)user;
  return tile->flags & TWH_TILE_DOUBLED ? 0 : pass->visit(pass->own, tile);
}

static int picture_visit(picture *own, int32_t (*visit)(void *, const twh_tile_info *), complaint *error)
{
  picture_pass pass = { own, visit };
  twh_error    failure;

  twh_error_init(&failure);
  own->number_row = -1;
  return twh_plan_visit(own->all->plan, picture_filter, &pass, &failure) < 0 ? wording_complain(error, &failure, "--svg") : 0;
}

/* ---- measuring ----------------------------------------------------------------------------------------------------------- */

/* The surroundings of the middle row: three to six tiles wide and all that the row sees, if that is possible; else the
 * diagonal. */
static void picture_frame_inset(picture *own)
{
  int64_t side = (own->to_key - own->from) / 3 * 4, centre = own->diagonal;

  if (side < 3 * own->unit) side = 3 * own->unit;
  if (side > 6 * own->unit)
    side = 6 * own->unit;
  else
    centre = own->from + (own->to_key - own->from) / 2;
  own->inset.rows = side < own->view.rows ? side : own->view.rows;
  own->inset.keys = side < own->view.keys ? side : own->view.keys;
  own->inset.row = own->middle - own->inset.rows / 2;
  own->inset.key = centre - own->inset.keys / 2;
  if (own->inset.row < 0) own->inset.row = 0;
  if (own->inset.key < 0) own->inset.key = 0;
  if (own->inset.row > own->view.rows - own->inset.rows) own->inset.row = own->view.rows - own->inset.rows;
  if (own->inset.key > own->view.keys - own->inset.keys) own->inset.key = own->view.keys - own->inset.keys;
  sketch_fit(&own->inset, PICTURE_RIGHT, PICTURE_TOP, 380, 40);
}

/* Everything that decides where things are. */
static int picture_measure(picture *own, complaint *error)
{
  const twh_problem *problem = &own->all->work.problem;
  double             left, right = PICTURE_TOP - 36;
  int                failed = picture_visit(own, picture_count, error);

  own->heads = own->stacked ? problem->q_heads / problem->kv_heads : 1;
  own->many = (own->stacked ? own->tiles_group : own->tiles_one) > PICTURE_TILES_MAX ||
              (own->stacked ? own->marks_group : own->marks_one) > PICTURE_MARKS_MAX;
  own->view.rows = own->all->work.q_rows * own->heads;
  own->view.keys = own->all->work.k_rows;
  own->middle = own->view.rows / 2;
  own->sheet.most = own->many ? 3 : SLOTS_MAX;
  sketch_fit(&own->view, PICTURE_LEFT, PICTURE_TOP, PICTURE_BOX, 60);
  if (!failed && own->many) failed = picture_visit(own, picture_look, error);
  if (own->unit > 0) {
    picture_frame_inset(own);
    right = own->inset.y + own->inset.height + 16;
  }
  if (!failed) failed = picture_visit(own, picture_take_slot, error);
  own->slots_top = right;
  right += 42 + slots_lay_out(&own->sheet, own->all, PICTURE_RIGHT, right + 42, own->many ? 112 : 180, own->many ? 3 : 2);
  left = own->view.y + own->view.height + 20 + furniture_legend_height(own->counts, own->many);
  own->bottom = (left > right ? left : right) + 14;
  return failed;
}

/* ---- parts of the picture ------------------------------------------------------------------------------------------------ */

static void picture_captions(const picture *own, const options *given)
{
  const setup         *all = own->all;
  const twh_plan_info *info = &all->info;
  double               room = PICTURE_WIDTH - 48;
  char                 text[512], more[80] = "", sampled[160] = "", heads[80] = "query head 0";

  furniture_problem(text, sizeof text, &all->work);
  svg_text(own->to, 24, 32, 18, room, "font-weight=\"bold\"", text);
  furniture_kernel(text, sizeof text, given->oracle[info->oracle], all->oracle[info->oracle]);
  svg_text(own->to, 24, 54, 13, room, "", text);
  if (all->oracles > 1) snprintf(more, sizeof more, " (%lld on this kernel)", (long long)all->calls[info->oracle]);
  if (all->method != TWH_METHOD_EXACT) {
    snprintf(sampled, sizeof sampled, "; %s: %lld keys drawn", options_method_name(all->method), (long long)info->sampled_keys);
  }
  if (info->estimate_calls > 0) {
    size_t n = strlen(sampled);
    snprintf(sampled + n, sizeof sampled - n, ", once more in %lld calls for an estimate", (long long)info->estimate_calls);
  }
  snprintf(text, sizeof text,
           "%lld calls%s, at least %lld for any plan; %.4g for each block of query rows; %lld tiles in %lld slots%s",
           (long long)info->calls, more, (long long)info->lower_bound_calls, setup_calls_per_block(all), (long long)info->tiles,
           (long long)info->slots_used, sampled);
  svg_text(own->to, 24, 73, 13, room, "", text);
  if (own->heads > 1) snprintf(heads, sizeof heads, "query heads 0 to %lld, one below the other", (long long)(own->heads - 1));
  snprintf(text, sizeof text, "Shown: %s, %s. Numbers are those of calls.",
           all->work.sequences ? "all sequences" : "sequence 0", heads);
  svg_text(own->to, 24, 91, 12, room, "fill=\"#555\"", text);
}

/* All tiles on a raster. */
static int picture_draw_many(picture *own, complaint *error)
{
  int failed;

  if (!raster_init(&own->cells, &own->view)) {
    return complaint_make(error, EXIT_FAILED, "--svg: not enough memory for a raster");
  }
  failed = picture_visit(own, picture_cover, error);
  if (!failed) raster_draw(own->to, &own->cells, &own->view);
  raster_finish(&own->cells);
  return failed;
}

/* The inset, and where it is in the picture. */
static int picture_draw_part(picture *own, complaint *error)
{
  const sketch_view *view = &own->view, *inset = &own->inset;
  int                failed;
  double             x = sketch_x(view, (double)inset->key) - 2, y = sketch_y(view, (double)inset->row) - 2;

  svg_begin(own->to, "inset");
  failed = picture_visit(own, picture_draw_inset, error);
  if (!failed && own->counts[SKETCH_SAMPLED]) failed = picture_visit(own, picture_number_inset, error);
  svg_end(own->to);
  furniture_axes(own->to, inset, 10, "", "magnified: the part that is framed at the left");
  svg_rect(own->to, x, y, sketch_x(view, (double)(inset->key + inset->keys)) + 2 - x,
           sketch_y(view, (double)(inset->row + inset->rows)) + 2 - y, "fill=\"none\" stroke=\"#000\" stroke-width=\"1.5\"");
  return failed;
}

static int picture_draw_slots(picture *own, complaint *error)
{
  int failed;

  svg_text(own->to, PICTURE_RIGHT, own->slots_top + 14, 12, 420, "",
           own->many ? "How tiles stand in the slots of some of these calls"
                     : "How tiles stand in the slots of the first calls");
  svg_text(own->to, PICTURE_RIGHT, own->slots_top + 30, 11, 420, "fill=\"#555\"",
           "positions of queries down, of keys to the right; numbers: first rows");
  svg_begin(own->to, "slots");
  slots_begin(own->to, &own->sheet);
  failed = picture_visit(own, picture_fill_slot, error);
  slots_end(own->to, &own->sheet, own->all);
  svg_end(own->to);
  return failed;
}

static int picture_draw(picture *own, const options *given, complaint *error)
{
  int failed;

  svg_begin(own->to, own->many ? "raster" : "tiles");
  failed = own->many ? picture_draw_many(own, error) : picture_visit(own, picture_draw_tile, error);
  if (!failed && !own->many && own->counts[SKETCH_SAMPLED]) failed = picture_visit(own, picture_number_tile, error);
  svg_end(own->to);
  furniture_axes(own->to, &own->view, 11, "queries", "keys");
  picture_captions(own, given);
  furniture_legend(own->to, PICTURE_LEFT, own->view.y + own->view.height + 20, own->counts, own->many);
  if (!failed && own->inset.rows > 0) failed = picture_draw_part(own, error);
  if (!failed && own->sheet.count > 0) failed = picture_draw_slots(own, error);
  return failed;
}

int picture_write(const options *given, const setup *all, complaint *error)
{
  picture own;
  outfile file;
  int     failed;

  memset(&own, 0, sizeof own);
  own.all = all;
  failed = picture_measure(&own, error);
  if (!failed) failed = outfile_open(given->svg, &file, error);
  if (failed) return failed;
  own.to = file.to;
  svg_open(file.to, PICTURE_WIDTH, own.bottom, "twoheads plan");
  failed = picture_draw(&own, given, error);
  svg_close(file.to);
  return outfile_close(&file, failed, error);
}
