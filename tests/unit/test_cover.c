/* Patterns, their spans and their cover: on random patterns and grids every visible pair is in exactly one patch and no
 * invisible one in any, patches keep their bounds, and nothing overflows where positions and windows are as large as they get.
 *
 * A failure prints one line that describes the case and runs it again: TWH_SEED=.. TWH_CASE=.. before the program's name.
 * TWH_CASES sets how many cases are tried. */
#include "support.h"

#include "core/pattern/pattern.h"

enum { COVER_CASES = SUPPORT_SANITIZED ? 10000 : 40000, COVER_MOST = 48 };

typedef struct cover_case {
  twh_problem  problem; /* for support_visible: points at the pattern */
  twh_pattern  pattern;
  twh_sequence sequence;
  twh__grid    grid;
  int64_t      group;
} cover_case;

/* What became of the rows and pairs of a case. */
typedef struct cover_count {
  const cover_case *made;
  unsigned char     units[3 * COVER_MOST], pairs[3 * COVER_MOST * COVER_MOST];
  int64_t           leads, cuts, rests, bands, mirrored;
} cover_count;

static int64_t cover_environment(const char *name, int64_t fallback)
{
  const char *text = getenv(name);
  return text && *text ? (int64_t)strtoll(text, NULL, 0) : fallback;
}

/* Small, middling, or as large as it gets. */
static int64_t cover_reach(support_random *random, int64_t middling)
{
  static const int64_t huge[] = { INT64_MAX, INT64_MAX - 1, (int64_t)1 << 62, ((int64_t)1 << 61) + 3, (int64_t)1 << 40 };
  switch (support_below(random, 5)) {
  case 0: return huge[support_below(random, SUPPORT_COUNT(huge))];
  case 1: return support_below(random, 3);
  case 2: return support_below(random, middling);
  default: return support_below(random, 12);
  }
}

static void cover_make_grid(support_random *random, twh__grid *grid)
{
  grid->q_block = support_between(random, 1, 20);
  grid->k_block = support_between(random, 1, 20);
  if (support_one_in(random, 2)) grid->q_block = grid->k_block;
  grid->chunk = support_between(random, 1, support_one_in(random, 2) ? grid->k_block : 30);
  grid->lead = support_one_in(random, 2);
  grid->band = support_one_in(random, 3);
}

static void cover_make(cover_case *made, uint64_t seed, uint64_t number)
{
  support_random random = support_random_at(seed, number);
  memset(made, 0, sizeof *made);
  twh_problem_init(&made->problem);
  twh_pattern_init(&made->pattern);
  made->pattern.flags = (uint32_t)support_below(&random, 8);
  if (support_one_in(&random, 2)) made->pattern.flags |= TWH_LEFT;
  made->pattern.left = cover_reach(&random, COVER_MOST);
  made->pattern.right = cover_reach(&random, COVER_MOST);
  made->pattern.sink_tokens = support_one_in(&random, 3) ? 0 : cover_reach(&random, 2 * COVER_MOST);
  made->sequence.q_begin = support_below(&random, 5);
  made->sequence.k_begin = support_below(&random, 5);
  made->sequence.q_len = support_one_in(&random, 5) ? support_below(&random, 3) : support_between(&random, 1, COVER_MOST);
  made->sequence.k_len = support_one_in(&random, 8) ? support_below(&random, 3) : support_between(&random, 1, COVER_MOST);
  if (support_one_in(&random, 3)) made->sequence.k_len = made->sequence.q_len;
  made->sequence.k_offset = support_one_in(&random, 2) ? 0 : support_below(&random, 30);
  made->sequence.q_offset = support_one_in(&random, 3) ? made->sequence.k_offset : support_between(&random, -40, 80);
  made->group = support_between(&random, 1, 3);
  cover_make_grid(&random, &made->grid);
}

static void cover_describe(const cover_case *made, char *text, size_t bytes)
{
  const twh_pattern  *p = &made->pattern;
  const twh_sequence *s = &made->sequence;
  const twh__grid    *g = &made->grid;
  snprintf(text, bytes,
           "%s%s%s left %lld right %lld sinks %lld; q %lld at %lld, k %lld at %lld, group %lld; "
           "q_block %lld k_block %lld chunk %lld lead %d band %d",
           p->flags & TWH_CAUSAL ? "causal " : "", p->flags & TWH_LEFT ? "LEFT " : "", p->flags & TWH_RIGHT ? "RIGHT " : "",
           (long long)p->left, (long long)p->right, (long long)p->sink_tokens, (long long)s->q_len, (long long)s->q_offset,
           (long long)s->k_len, (long long)s->k_offset, (long long)made->group, (long long)g->q_block, (long long)g->k_block,
           (long long)g->chunk, (int)g->lead, (int)g->band);
}

/* Keys that row i of a patch sees, by the letter of the records. */
static void cover_range(const twh__patch *patch, int64_t i, int64_t *from, int64_t *until)
{
  *from = twh__edge_at(&patch->from, i, patch->keys);
  *until = twh__edge_at(&patch->seen, i, patch->keys);
}

static int cover_has_shape(const twh__patch *patch, int64_t low, int64_t high)
{
  switch (patch->shape) {
  case TWH_SHAPE_FULL: return low && high;
  case TWH_SHAPE_LOWER: return low && (!high || patch->lead || patch->from.step > 0); /* a rectangle is FULL */
  case TWH_SHAPE_UPPER: return high && !low;
  default: return !low && !high;
  }
}

static const char *cover_check_patch(const twh__span *span, const twh__unit *unit, const twh__grid *grid,
                                     const twh__patch *patch)
{
  int64_t i, from, until, before = 0, seen = 0, reached = 0, low = 1, high = 1;
  if (patch->row < 0 || patch->rows < 1 || patch->row + patch->rows > unit->rows || patch->keys < 1 || patch->block < 0)
    return "a patch leaves its unit";
  if (patch->keys + (patch->lead ? span->sinks : 0) > grid->k_block) return "a patch has too many keys";
  if (patch->lead && (span->sinks == 0 || !grid->lead || patch->row != 0 || patch->rows != unit->rows))
    return "sinks lead a patch that not all rows are part of";
  for (i = 0; i < patch->rows; ++i) {
    cover_range(patch, i, &from, &until);
    if (from >= until) return "a row of a patch sees no key";
    if (from < before || until < seen) return "an edge falls";
    if (from > reached) return "no row sees some key of a patch";
    before = from;
    seen = until;
    if (until > reached) reached = until;
    low = low && (from == 0 || (patch->shape == TWH_SHAPE_LOWER && from == patch->from.unit)); /* the latter is a cut */
    high = high && until == patch->keys;
  }
  cover_range(patch, 0, &from, &until);
  if (from > 0 || reached < patch->keys) return "no row sees some key at the end of a patch";
  if (!cover_has_shape(patch, low, high)) return "a patch has not its shape";
  return patch->shape == TWH_SHAPE_BAND && !grid->band ? "a band was not asked for" : NULL;
}

/* Sequence row (counted on over the heads of the group) of a unit's row, by the letter of the records; -1: none. */
static int64_t cover_row(const cover_case *made, const twh__span *span, const twh__unit *unit, int64_t r)
{
  int64_t head = unit->q_head + (unit->first + r) / span->q_len - unit->kv_head * made->group;
  int64_t row = twh__span_row(span, (unit->first + r) % span->q_len) - made->sequence.q_begin;
  if (head < 0 || head >= made->group || row < 0 || row >= made->sequence.q_len) return -1;
  return head * made->sequence.q_len + row;
}

static const char *cover_count_pairs(cover_count *count, const twh__span *span, int64_t row, int64_t key, int64_t keys)
{
  const twh_sequence *sequence = &count->made->sequence;
  int64_t             n, index;
  for (n = key; n < key + keys; ++n) {
    index = twh__span_key(span, n) - sequence->k_begin;
    if (index < 0 || index >= sequence->k_len) return "a patch has a key outside the sequence";
    ++count->pairs[row * COVER_MOST + index];
  }
  return NULL;
}

static const char *cover_count_patch(cover_count *count, const twh__span *span, const twh__unit *unit, const twh__patch *patch)
{
  const char *wrong = cover_check_patch(span, unit, &count->made->grid, patch);
  int64_t     i, from, until;
  for (i = 0; i < patch->rows && !wrong; ++i) {
    int64_t row = cover_row(count->made, span, unit, patch->row + i);
    cover_range(patch, i, &from, &until);
    wrong = cover_count_pairs(count, span, row, patch->key + from, until - from);
    if (!wrong && patch->lead) wrong = cover_count_pairs(count, span, row, span->sink_key, span->sinks);
  }
  count->leads += patch->lead;
  count->cuts += patch->shape == TWH_SHAPE_LOWER && patch->from.unit > 0 && patch->from.step > 0;
  count->rests += span->kind == TWH__SPAN_WINDOW && !count->made->grid.band && patch->block == 1;
  count->bands += patch->shape == TWH_SHAPE_BAND;
  return wrong;
}

/* A window's own keys carry the sinks wherever they fit and keys have not ended. */
static const char *cover_check_lead(const twh__span *span, const twh__unit *unit, const twh__grid *grid,
                                    const twh__patch *patch)
{
  int64_t until = span->q_offset + unit->first + unit->rows;
  int     fits = span->kind == TWH__SPAN_WINDOW && !grid->band && span->sinks > 0 && span->sinks < grid->k_block;
  return fits && grid->lead && !patch->lead && until <= span->k_offset + span->k_len ? "sinks do not lead" : NULL;
}

static const char *cover_check_patches(cover_count *count, const twh__span *span, const twh__unit *unit)
{
  const twh__grid *grid = &count->made->grid;
  int64_t          patches = twh__cover_patches(span, unit, grid), whole = twh__cover_whole(span, unit, grid);
  int64_t          i, block = -1;
  const char      *wrong = NULL;
  for (i = 0; i < patches && !wrong; ++i) {
    twh__patch patch, untouched;
    memset(&patch, 0x5a, sizeof patch);
    untouched = patch;
    if (!twh__cover_patch(span, unit, grid, i, &patch)) {
      if (memcmp(&patch, &untouched, sizeof patch) != 0) return "an empty patch was written";
      if (span->kind != TWH__SPAN_WINDOW) return "a patch is empty";
      continue;
    }
    if (patch.block <= block) return "blocks do not ascend";
    block = patch.block;
    wrong = cover_count_patch(count, span, unit, &patch);
    if (!wrong && i == 0) wrong = cover_check_lead(span, unit, grid, &patch);
    if (i >= 1 && i <= whole &&
        (patch.shape != TWH_SHAPE_FULL || patch.keys != grid->k_block || patch.rows != unit->rows || patch.lead))
      return "a patch is not whole";
  }
  return whole < 0 || (whole > 0 && whole >= patches) ? "more whole patches than patches" : wrong;
}

/* Rows of a whole unit, by the letter of the grid. */
static int64_t cover_unit_rows(const twh__span *span, const twh__grid *grid)
{
  int64_t chunk = grid->chunk, most = grid->k_block;
  if (span->kind != TWH__SPAN_WINDOW) return grid->q_block;
  if (grid->band) return chunk;
  if (grid->lead && span->sinks < most) most -= span->sinks;
  if (chunk > most) chunk = most;
  return span->width < chunk && 2 * span->width < chunk ? 2 * span->width : chunk;
}

static const char *cover_check_unit(cover_count *count, const twh__span *span, const twh__unit *unit)
{
  int64_t rows = cover_unit_rows(span, &count->made->grid), end = span->q_len * (span->stacked ? count->made->group : 1), r;
  if (unit->rows < 1 || unit->first + unit->rows > end) return "a unit has no rows, or leaves its head";
  if (span->kind != TWH__SPAN_FULL && unit->first > 0 && (span->q_offset + unit->first) % rows != 0)
    return "a unit is not on the grid";
  if (unit->rows > rows || (unit->first > 0 && unit->first + unit->rows < end && unit->rows != rows))
    return "a unit has not the rows of its grid";
  for (r = 0; r < unit->rows; ++r) {
    int64_t row = cover_row(count->made, span, unit, r);
    if (row < 0) return "a unit has a row outside the sequence";
    ++count->units[row];
  }
  return cover_check_patches(count, span, unit);
}

/* What a kind promises: every row sees a key, and what is clipped or could be simpler is not left as it was. */
static const char *cover_check_kind(const twh__span *span)
{
  int64_t last = span->q_offset + span->q_len - 1, end = span->k_offset + span->k_len;
  if (span->k_offset < 0) return "a key has a negative position";
  if (span->kind == TWH__SPAN_FULL) return (span->sinks > 0 && span->q_len > 1) || span->mirrored ? "a full span has sinks" : NULL;
  if (span->kind == TWH__SPAN_CAUSAL) {
    if (span->q_offset < span->k_offset || last < end - 1) return "a causal span has a row without keys, or an unseen key";
    return span->q_offset >= end - 1 && span->sinks == 0 ? "a causal span is full" : NULL;
  }
  if (span->mirrored || span->q_offset - span->width + 1 != span->k_offset) return "a window does not begin at key 0";
  if (span->k_len < span->q_len || end - 1 > last) return "a window has a row without keys, or an unseen key";
  return span->q_len == 1 && span->sinks == 0 ? "a window is full" : NULL;
}

static const char *cover_check_span(cover_count *count, const twh__span *span)
{
  const cover_case *made = count->made;
  int64_t           units = twh__cover_units(span, made->group, &made->grid), u;
  const char       *wrong = NULL;
  if (span->sequence != 7 || span->batch != 5) return "a span is of another sequence";
  if (span->q_origin + made->sequence.q_begin != made->sequence.q_offset ||
      span->k_origin + made->sequence.k_begin != made->sequence.k_offset)
    return "an origin is wrong";
  if (span->stacked !=
      (span->kind == TWH__SPAN_FULL && span->k_len > 0 && made->group > 1 && span->q_len == made->sequence.q_len))
    return "heads are stacked where they should not, or not where they should";
  wrong = cover_check_kind(span);
  count->mirrored += span->mirrored;
  for (u = 0; u < units && !wrong; ++u) {
    twh__unit unit;
    memset(&unit, 0, sizeof unit);
    unit.kv_head = 2;
    twh__cover_unit(span, made->group, &made->grid, u, &unit);
    wrong = cover_check_unit(count, span, &unit);
  }
  return wrong;
}

static const char *cover_check_counts(const cover_count *count, double pairs)
{
  const twh_sequence *sequence = &count->made->sequence;
  int64_t             i, j, n = 0;
  for (i = 0; i < count->made->group * sequence->q_len; ++i) {
    if (count->units[i] != 1) return "a row is not in exactly one unit";
    for (j = 0; j < sequence->k_len; ++j) {
      int visible = support_visible(&count->made->problem, sequence, i % sequence->q_len, j);
      n += visible;
      if (count->pairs[i * COVER_MOST + j] != visible)
        return visible ? "a visible pair is not in exactly one patch" : "an invisible pair is in a patch";
    }
  }
  return pairs * (double)count->made->group == (double)n ? NULL : "the number of pairs is wrong";
}

static const char *cover_check(const cover_case *made, cover_count *count)
{
  twh_pattern pattern;
  twh__span   spans[TWH__MOST_SPANS];
  const char *wrong = NULL;
  double      pairs = 0.0;
  int64_t     row = made->sequence.q_begin;
  int32_t     s, n;
  memset(count, 0, sizeof *count);
  count->made = made;
  if (twh__pattern_read(&pattern, &made->pattern, NULL) != TWH_OK) return "the pattern was refused";
  n = twh__span_split(&made->sequence, 7, 5, &pattern, made->group, spans);
  for (s = 0; s < n && !wrong; ++s) {
    if (spans[s].q_begin != row || spans[s].q_len < 1) return "spans are not in row order";
    row += spans[s].q_len;
    pairs += twh__span_pairs(&spans[s]);
    wrong = cover_check_span(count, &spans[s]);
  }
  if (!wrong && row != made->sequence.q_begin + made->sequence.q_len) wrong = "a row is in no span";
  return wrong ? wrong : cover_check_counts(count, pairs);
}

static void random_patterns_are_covered_exactly(void **state)
{
  uint64_t seed = support_seed(20251003);
  int64_t  only = cover_environment("TWH_CASE", -1), cases = cover_environment("TWH_CASES", COVER_CASES), i, failed = 0;
  int64_t  leads = 0, cuts = 0, rests = 0, bands = 0, mirrored = 0;
  (void)state;
  for (i = only < 0 ? 0 : only; i < (only < 0 ? cases : only + 1) && failed < 10; ++i) {
    cover_case  made;
    cover_count count;
    char        text[400];
    const char *wrong;
    cover_make(&made, seed, (uint64_t)i);
    made.problem.pattern = &made.pattern;
    wrong = cover_check(&made, &count);
    leads += count.leads;
    cuts += count.cuts;
    rests += count.rests;
    bands += count.bands;
    mirrored += count.mirrored;
    if (!wrong) continue;
    ++failed;
    cover_describe(&made, text, sizeof text);
    print_error("TWH_SEED=%llu TWH_CASE=%lld: %s: %s\n", (unsigned long long)seed, (long long)i, wrong, text);
  }
  assert_int_equal(failed, 0);
  /* the generator makes what there is */
  if (only < 0 && cases >= 1000) assert_true(leads > 100 && cuts > 100 && rests > 100 && bands > 100 && mirrored > 100);
}

/* ---- positions and windows as large as they get: single pairs ---- */

/* The unit of a span that holds a row of the span; 0: none. */
static int cover_find_unit(const twh__span *span, const twh__grid *grid, int64_t number, twh__unit *unit)
{
  int64_t low = 0, high = twh__cover_units(span, 1, grid) - 1;
  memset(unit, 0, sizeof *unit);
  while (low <= high) {
    int64_t middle = low + (high - low) / 2;
    twh__cover_unit(span, 1, grid, middle, unit);
    if (number >= unit->first && number < unit->first + unit->rows) return 1;
    if (number < unit->first) high = middle - 1;
    else low = middle + 1;
  }
  return 0;
}

/* How many patches hold the pair of a span's row and the sequence's key; -1: no unit has the row, or too many patches. */
static int64_t cover_patches_of_pair(const cover_case *made, const twh__span *span, int64_t row, int64_t key)
{
  int64_t    number = span->mirrored ? span->q_begin + span->q_len - 1 - row : row - span->q_begin, found = 0, i, from, until;
  int64_t    name = key + made->sequence.k_begin;
  twh__unit  unit;
  twh__patch patch;
  if (!cover_find_unit(span, &made->grid, number, &unit) || twh__cover_patches(span, &unit, &made->grid) > 100000) return -1;
  name = span->mirrored ? span->k_begin + span->k_len - 1 - name : name - span->k_begin;
  for (i = 0; i < twh__cover_patches(span, &unit, &made->grid); ++i) {
    int64_t in;
    if (!twh__cover_patch(span, &unit, &made->grid, i, &patch)) continue;
    in = number - unit.first - patch.row;
    if (in < 0 || in >= patch.rows) continue;
    cover_range(&patch, in, &from, &until);
    found += name >= patch.key + from && name < patch.key + until;
    found += patch.lead && name >= span->sink_key && name < span->sink_key + span->sinks;
  }
  return found;
}

static void cover_make_far(cover_case *made, support_random *random)
{
  const int64_t far = (int64_t)1 << 60;
  twh_pattern_init(&made->pattern);
  made->pattern.flags = (uint32_t)support_below(random, 8);
  made->pattern.left = support_one_in(random, 3) ? cover_reach(random, 100) : support_below(random, far);
  made->pattern.right = support_one_in(random, 3) ? cover_reach(random, 100) : support_below(random, far);
  made->pattern.sink_tokens = support_one_in(random, 2) ? cover_reach(random, 100) : support_below(random, far);
  made->sequence.q_len = support_between(random, 1, far);
  made->sequence.k_len = support_between(random, 1, far);
  made->sequence.q_offset = support_between(random, -far, far);
  made->sequence.k_offset = support_one_in(random, 2) ? 0 : support_below(random, far);
  made->group = 1;
  made->grid.q_block = made->grid.k_block = far >> support_between(random, 1, 8);
  made->grid.chunk = support_between(random, made->grid.k_block / 4, made->grid.k_block / 2);
  made->grid.lead = support_one_in(random, 2);
  made->grid.band = support_one_in(random, 3);
}

/* A pair at or near an edge of what is visible. */
static void cover_make_pair(const cover_case *made, support_random *random, int64_t *row, int64_t *key)
{
  const twh_sequence *sequence = &made->sequence;
  const int64_t       most = (int64_t)1 << 60, left = made->pattern.left, right = made->pattern.right;
  const int64_t       edges[] = { sequence->q_offset, sequence->k_offset, sequence->k_offset + sequence->k_len };
  *row = support_below(random, sequence->q_len);
  if (support_one_in(random, 3)) *row = edges[support_below(random, 3)] - sequence->q_offset + support_between(random, -2, 2);
  *key = *row + sequence->q_offset - sequence->k_offset;
  switch (support_below(random, 4)) {
  case 0: *key -= left <= most ? left : 0; break;
  case 1: *key += right <= most ? right : 0; break;
  case 2: *key = support_below(random, sequence->k_len); break;
  default: break;
  }
  *key += support_between(random, -1, 1);
}

static const char *cover_check_far(const cover_case *made, support_random *random, int64_t *checked)
{
  const twh_sequence *sequence = &made->sequence;
  twh__span           spans[TWH__MOST_SPANS];
  twh_pattern         pattern;
  int64_t             tries, s, n, row, key;
  assert_int_equal(twh__pattern_read(&pattern, &made->pattern, NULL), TWH_OK);
  n = twh__span_split(sequence, 0, 0, &pattern, 1, spans);
  for (tries = 0; tries < 20; ++tries) {
    int64_t found = -1, visible;
    cover_make_pair(made, random, &row, &key);
    if (row < 0 || row >= sequence->q_len || key < 0 || key >= sequence->k_len) continue;
    for (s = 0; s < n; ++s) {
      if (row >= spans[s].q_begin && row < spans[s].q_begin + spans[s].q_len)
        found = cover_patches_of_pair(made, &spans[s], row, key);
      if (!(twh__span_pairs(&spans[s]) >= 0.0)) return "the number of pairs is negative";
    }
    visible = support_visible(&made->problem, sequence, row, key);
    checked[visible] += 1;
    if (found != visible) return "a pair is not in as many patches as it should be";
  }
  return NULL;
}

static void nothing_overflows_at_the_largest_lengths(void **state)
{
  uint64_t seed = support_seed(20251004);
  int64_t  i, failed = 0, checked[2] = { 0, 0 };
  (void)state;
  for (i = 0; i < 3000 && failed < 10; ++i) {
    support_random random = support_random_at(seed, (uint64_t)i);
    cover_case     made;
    char           text[400];
    const char    *wrong;
    memset(&made, 0, sizeof made);
    twh_problem_init(&made.problem);
    made.problem.pattern = &made.pattern;
    cover_make_far(&made, &random);
    wrong = cover_check_far(&made, &random, checked);
    if (!wrong) continue;
    ++failed;
    cover_describe(&made, text, sizeof text);
    print_error("case %lld: %s: %s\n", (long long)i, wrong, text);
  }
  assert_int_equal(failed, 0);
  assert_true(checked[0] > 3000 && checked[1] > 3000);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_patterns_are_covered_exactly),
    cmocka_unit_test(nothing_overflows_at_the_largest_lengths),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
