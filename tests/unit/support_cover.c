/* What a plan's tiles cover, pair by pair: every visible pair once, no invisible one, each tile within its kernel and as its
 * shape says, and all counts those of the plan.
 *
 * The pairs of a tile are asked for through the public header alone; one byte is kept per pair of the problem. */
#include "support.h"

typedef struct support_place { /* of a tile: where it is computed */
  int64_t call, slot, calls, oracle;
  int64_t mask_mode;
} support_place;

typedef struct support_covering {
  support_cover         *cover;
  const twh_problem     *problem;
  const twh_oracle_desc *kernels;
  int64_t                count;
  int64_t               *starts; /* where the counts of a sequence begin */
  unsigned char         *counts; /* per sequence (q_heads, q_len, k_len) */
  support_place         *places;
  int64_t                placed, room;
} support_covering;

static void support_cover_pair(support_covering *c, const twh_tile_info *tile, const twh_sequence *sequence, int64_t head,
                               int64_t row, int64_t key)
{
  unsigned char *count = c->counts + c->starts[tile->sequence] + (head * sequence->q_len + row) * sequence->k_len + key;
  if (!support_visible(c->problem, sequence, row, key)) c->cover->wrong = "a tile shows an invisible pair";
  if (*count < 2) ++*count;
}

/* Whether the keys begin .. end - 1 of row t are what the shape says; *last holds the previous row's. */
static int support_cover_shape(const twh_tile_info *tile, int64_t t, int64_t begin, int64_t end, int64_t *last)
{
  int from_first = begin == tile->k_begin, to_last = end == tile->k_begin + tile->k_len;
  int rises = t == 0 || (begin >= last[0] && end >= last[1]);
  last[0] = begin;
  last[1] = end;
  if (begin == end) return 1; /* nothing but sinks */
  switch (tile->shape) {
  case TWH_SHAPE_FULL: return from_first && to_last;
  case TWH_SHAPE_LOWER: return from_first && rises;
  case TWH_SHAPE_UPPER: return to_last && rises;
  case TWH_SHAPE_BAND: return rises;
  default: return 0;
  }
}

static void support_cover_rows(support_covering *c, const twh_tile_info *tile, const twh_sequence *sequence)
{
  int64_t group = c->problem->q_heads / c->problem->kv_heads, t, j, begin, keys, last[2] = { 0, 0 };
  for (t = 0; t < tile->q_len; ++t) {
    int64_t row = tile->q_begin + t, head = tile->q_head + row / sequence->q_len;
    row %= sequence->q_len;
    if (head >= c->problem->q_heads || head / group != tile->q_head / group) {
      c->cover->wrong = "a tile has rows of another key/value head";
      return;
    }
    twh_tile_keys(tile, t, &begin, &keys);
    if (keys < 0 || (keys > 0 && (begin < tile->k_begin || begin + keys > tile->k_begin + tile->k_len))) {
      c->cover->wrong = "a row sees keys that its tile does not have";
      return;
    }
    if (keys + tile->sink_len < 1) c->cover->wrong = "a tile has a row that sees no key";
    if (!support_cover_shape(tile, t, begin, begin + keys, last)) c->cover->wrong = "a tile is not of its shape";
    for (j = begin; j < begin + keys; ++j) support_cover_pair(c, tile, sequence, head, row, j);
    for (j = tile->sink_begin; j < tile->sink_begin + tile->sink_len; ++j)
      support_cover_pair(c, tile, sequence, head, row, j);
  }
}

/* A tile that a kernel computes: it fits, and where it stands is remembered. */
static void support_cover_place(support_covering *c, const twh_tile_info *tile)
{
  const twh_oracle_desc *kernel = &c->kernels[tile->oracle];
  support_place         *place;
  if (tile->calls < 1 || tile->call < 0 || tile->slot < 0 || tile->slot >= kernel->slots || tile->q_len > kernel->q_len ||
      tile->k_len + tile->sink_len > kernel->k_len || !(tile->mask_mode & kernel->mask_modes) || tile->q_at < 0 ||
      tile->q_at >= kernel->q_len || tile->k_at < 0 || tile->k_at >= kernel->k_len) {
    c->cover->wrong = "a tile does not fit the kernel";
    return;
  }
  if (c->placed == c->room) {
    c->room = c->room ? 2 * c->room : 64;
    c->places = (support_place *)realloc(c->places, sizeof *c->places * (size_t)c->room);
    assert_non_null(c->places);
  }
  place = &c->places[c->placed++];
  place->call = tile->call;
  place->slot = tile->slot;
  place->calls = tile->calls;
  place->oracle = tile->oracle;
  place->mask_mode = tile->mask_mode;
}

static int32_t support_cover_tile(void *user, const twh_tile_info *tile)
{
  support_covering *c = (support_covering *)user;
  support_cover    *cover = c->cover;
  twh_sequence      sequence;
  int64_t           entry;
  if (tile->sequence < 0 || tile->sequence >= c->problem->batch || tile->oracle < 0 || tile->oracle >= c->count) {
    cover->wrong = "a tile names a sequence or kernel that there is not";
    return 1;
  }
  sequence = support_sequence(c->problem, tile->sequence, &entry);
  if (tile->k_len < 0 || tile->k_begin < 0 || tile->k_begin + tile->k_len > sequence.k_len || tile->q_begin < 0 ||
      tile->q_len < 1 || sequence.q_len < 1 || tile->q_head < 0 || tile->q_head >= c->problem->q_heads ||
      tile->sink_len < 0 || (tile->sink_len > 0 && tile->sink_begin < 0) ||
      (tile->sink_len > 0 && tile->sink_begin + tile->sink_len > sequence.k_len)) {
    cover->wrong = "a tile has rows or keys outside its sequence";
    return 1;
  }
  ++cover->tiles;
  ++cover->shapes[tile->shape & 3];
  cover->led += tile->sink_len > 0;
  if (tile->mask_mode == 0) {
    ++cover->host_tiles;
    cover->host_rows += tile->q_len;
    if (tile->call != -1 || tile->slot != -1 || tile->calls != 0) cover->wrong = "a tile of the host has a call";
  } else {
    support_cover_place(c, tile);
  }
  support_cover_rows(c, tile, &sequence);
  return cover->wrong != NULL;
}

/* The first tile with which something is wrong ends the visit, and is written down. */
static int32_t support_cover_visit(void *user, const twh_tile_info *tile)
{
  support_covering *c = (support_covering *)user;
  int32_t           stop = support_cover_tile(user, tile);
  if (!c->cover->wrong) return stop;
  snprintf(c->cover->text, sizeof c->cover->text,
           "%s: kernel %lld mode %u call %lld+%lld slot %lld, sequence %lld head %lld rows %lld+%lld keys %lld+%lld sinks "
           "%lld+%lld at %lld and %lld, shape %d%s",
           c->cover->wrong, (long long)tile->oracle, tile->mask_mode, (long long)tile->call, (long long)tile->calls,
           (long long)tile->slot, (long long)tile->sequence, (long long)tile->q_head, (long long)tile->q_begin,
           (long long)tile->q_len, (long long)tile->k_begin, (long long)tile->k_len, (long long)tile->sink_begin,
           (long long)tile->sink_len, (long long)tile->q_at, (long long)tile->k_at, tile->shape,
           tile->reversed ? ", reversed" : "");
  c->cover->wrong = c->cover->text;
  return 1;
}

static int support_compare_places(const void *a, const void *b)
{
  const support_place *x = (const support_place *)a, *y = (const support_place *)b;
  if (x->call != y->call) return x->call < y->call ? -1 : 1;
  return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* Tiles by call: those of a call agree on it, calls follow each other without gaps, slots are counted. */
static void support_cover_calls(support_covering *c)
{
  support_cover *cover = c->cover;
  int64_t        i, next = 0;
  if (c->placed > 0) qsort(c->places, (size_t)c->placed, sizeof *c->places, support_compare_places);
  for (i = 0; i < c->placed; ++i) {
    const support_place *place = &c->places[i], *before = i ? place - 1 : NULL;
    if (before && before->call == place->call) {
      if (before->calls != place->calls || before->oracle != place->oracle || before->mask_mode != place->mask_mode)
        cover->wrong = "tiles of one call do not agree on what it is";
      if (before->slot == place->slot) continue;
    } else {
      if (place->call != next) cover->wrong = "calls do not follow each other";
      next = place->call + place->calls;
    }
    ++cover->slots;
  }
  cover->calls = next;
}

static void support_cover_pairs(support_covering *c)
{
  int64_t b, h, i, j, entry;
  for (b = 0; b < c->problem->batch; ++b) {
    twh_sequence sequence = support_sequence(c->problem, b, &entry);
    for (h = 0; h < c->problem->q_heads; ++h)
      for (i = 0; i < sequence.q_len; ++i)
        for (j = 0; j < sequence.k_len; ++j) {
          int seen = support_visible(c->problem, &sequence, i, j);
          c->cover->pairs += seen;
          if (c->counts[c->starts[b] + (h * sequence.q_len + i) * sequence.k_len + j] != seen)
            c->cover->wrong = "a visible pair is not in exactly one tile";
        }
  }
}

static const char *support_cover_compare(const support_cover *cover, const twh_plan_info *info)
{
  if (cover->wrong) return cover->wrong;
  if (cover->tiles != info->tiles) return "the number of tiles is not the plan's";
  if (cover->host_tiles != info->host_tiles) return "the number of the host's tiles is not the plan's";
  if (cover->calls != info->calls) return "the last tile's last call is not the plan's last";
  if (cover->slots != info->slots_used) return "the number of slots used is not the plan's";
  if (cover->shapes[0] != info->full_tiles || cover->shapes[1] != info->lower_tiles || cover->shapes[2] != info->upper_tiles ||
      cover->shapes[3] != info->band_tiles)
    return "tiles by shape are not the plan's";
  if (cover->pairs != info->visible_pairs) return "the number of visible pairs is not the plan's";
  if (cover->host_tiles == 0 && info->lower_bound_calls > info->calls) return "fewer calls than the lower bound";
  return NULL;
}

const char *support_cover_check(support_cover *cover, const twh_problem *problem, const twh_plan *plan,
                                const twh_oracle_desc *kernels, int64_t count)
{
  support_covering c;
  twh_plan_info    info;
  int64_t          b, entry, total = 0;
  memset(cover, 0, sizeof *cover);
  memset(&c, 0, sizeof c);
  c.cover = cover;
  c.problem = problem;
  c.kernels = kernels;
  c.count = count;
  c.starts = (int64_t *)calloc((size_t)problem->batch + 1, sizeof *c.starts);
  assert_non_null(c.starts);
  for (b = 0; b < problem->batch; ++b) {
    twh_sequence sequence = support_sequence(problem, b, &entry);
    c.starts[b] = total;
    total += problem->q_heads * sequence.q_len * sequence.k_len;
  }
  c.counts = (unsigned char *)calloc((size_t)total + 1, 1);
  assert_non_null(c.counts);
  twh_plan_info_init(&info);
  assert_int_equal(twh_plan_get_info(plan, &info, NULL), TWH_OK);
  assert_int_equal(twh_plan_visit(plan, support_cover_visit, &c, NULL), TWH_OK);
  if (!cover->wrong) support_cover_calls(&c);
  if (!cover->wrong) support_cover_pairs(&c);
  free(c.places);
  free(c.starts);
  free(c.counts);
  return support_cover_compare(cover, &info);
}
