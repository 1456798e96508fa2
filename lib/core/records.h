/* The records that pass between the stages. Plain data: no stage needs another one's header to use them.
 *
 *     span      rows of one sequence that see keys in the same manner: all, up to their own position, or a window
 *     unit      a block of query rows of one head (or of the stacked heads that share a kv head): owner of one result
 *     patch     a set of pairs of one unit: rows, keys, and which of the keys each row sees; without data and without a kernel
 *     lowering  how a plan turns patches into slots of one kernel: decided once, by arithmetic on the descriptions
 *     tile      one attention in one slot: which rows and keys stand where; a slot may hold several
 *     slot      the tiles that share one attention of a call
 *
 * In a tile a row always sees one range of keys, in the order in which they stand in the slot, and behind a lead of sink keys
 * that all tiles of the slot share. Everything after the lowering counts on that. */
#ifndef TWH_CORE_RECORDS_H
#define TWH_CORE_RECORDS_H

#include "twoheads.h"

enum {
  TWH__SPAN_FULL,   /* every row sees all k_len keys (none, if k_len is 0) */
  TWH__SPAN_CAUSAL, /* row at position p sees the keys at positions up to p */
  TWH__SPAN_WINDOW  /* row at position p sees the keys at positions p - width + 1 .. p, as far as there are any */
};

/* How a span's keys are sampled, if they are: samples 0 is exact. */
typedef struct twh__sampling {
  int64_t  samples;          /* blocks of keys that are drawn for each unit */
  int64_t  strata;           /* parts of the keys, from each of which samples / strata blocks are drawn */
  int64_t  sinks, window;    /* HYBRID: first keys, and keys to both sides of a row's position, that are not drawn but exact */
  int32_t  hybrid;
  int32_t  estimate;         /* TWH_ESTIMATE_* */
  uint64_t seed;
} twh__sampling;

/* What a tile of drawn keys is to an estimate of errors: nothing; a sample of several that are compared; or one of a pair, the first
 * with the sums themselves, the second, of doubled queries, with those of their squares. */
enum { TWH__DRAWN_PLAIN, TWH__DRAWN_SAMPLE, TWH__DRAWN_FIRST, TWH__DRAWN_SQUARES };

/* What a tile of drawn keys draws from: the keys skip .. skip + keys + gap_keys - 1 of the span but for gap_keys ones from `gap` on,
 * which leaves `keys`; of these the stratum first .. first + stratum - 1, in the order of a keyed permutation. Key number n of
 * such a tile is the n-th of that order. */
typedef struct twh__sample {
  uint64_t seed;             /* of the permutation: unit and stratum are in it */
  int64_t  stratum, first;   /* stratum 0: the tile's keys are not drawn */
  int64_t  skip, gap, gap_keys;
  double   log_weight;       /* ln of how many keys each drawn one stands for */
  int32_t  role;             /* TWH__DRAWN_* */
} twh__sample;

/* Rows and keys of a span are numbered from 0 in the order that makes it causal: a mirrored span counts the tensors' rows
 * backwards. Positions are the ones that the pattern compares, shifted where the pattern looks ahead: the first row's is
 * q_offset, the first key's k_offset; both may be negative. */
typedef struct twh__span {
  int64_t sequence;          /* of the problem */
  int64_t batch;             /* entry of the tensors' batch dimension */
  int64_t q_begin, q_len;    /* rows of the tensors */
  int64_t k_begin, k_len;    /* keys of the tensors that some row sees, sinks apart */
  int64_t q_offset, k_offset;
  int64_t q_origin, k_origin; /* row r of the tensors has absolute position r + q_origin, key r + k_origin */
  int64_t q_first, k_first;  /* rows of the tensors where its sequence begins */
  int64_t width;             /* WINDOW */
  int64_t sink_key, sinks;   /* keys that every row sees besides, by number: key number n may lie outside 0 .. k_len - 1 */
  int32_t kind, mirrored;
  int32_t stacked;           /* 1: rows of all query heads of a kv head are numbered through, head by head */
  int32_t kernel;            /* of the plan: whose grid it is cut on */
  int64_t first_unit;        /* of the plan: the number of its first unit */
  int32_t streamed;          /* 1: its units pass one after the other, and their tiles may share slots */
  twh__sampling sampling;
} twh__span;

/* Row of the tensors that holds a span's row or key of this number. */
static inline int64_t twh__span_row(const twh__span *span, int64_t number)
{
  return span->mirrored ? span->q_begin + span->q_len - 1 - number : span->q_begin + number;
}

static inline int64_t twh__span_key(const twh__span *span, int64_t number)
{
  return span->mirrored ? span->k_begin + span->k_len - 1 - number : span->k_begin + number;
}

/* The problem as every stage after validation sees it. */
typedef struct twh__shape {
  int64_t q_heads, kv_heads, group; /* group = q_heads / kv_heads */
  int64_t qk_dim, v_dim;
  double  scale, softcap;
  int32_t mask_dtype;               /* 0: no mask tensor */
  int32_t key_bias, alibi;          /* 1: keys have biases; heads have slopes */
} twh__shape;

typedef struct twh__unit {
  int64_t span, kv_head;
  int64_t q_head;     /* of row 0 */
  int64_t first;      /* row r of the unit is row (first + r) % q_len of head q_head + (first + r) / q_len */
  int64_t rows;
} twh__unit;

/* A number that changes with the row in even steps: floor((start + i step) / quantum) unit, kept within 0 .. most. */
typedef struct twh__edge {
  int64_t start, step, quantum, unit;
} twh__edge;

static inline int64_t twh__edge_at(const twh__edge *edge, int64_t i, int64_t most)
{
  int64_t value = edge->start + i * edge->step, quotient = value;
  if (edge->quantum > 1) quotient = value >= 0 ? value / edge->quantum : -((edge->quantum - 1 - value) / edge->quantum);
  value = quotient * edge->unit;
  return value < 0 ? 0 : value < most ? value : most;
}

typedef struct twh__patch {
  int64_t   block;       /* what ordinals are made of: the absolute number of its key block, or of a window's parts */
  int64_t   row, rows;   /* rows of the unit; each sees at least one key */
  int64_t   key, keys;   /* keys of the span, by number */
  twh__edge from, seen;  /* row `row + i` sees the keys key + from(i) .. key + seen(i) - 1 */
  int32_t   shape;       /* TWH_SHAPE_*: FULL all keys; LOWER from the first one on, or from `from.unit` on for rows that have
                          * passed from.quantum (a cut); UPPER up to the last one; BAND neither */
  int32_t   lead;        /* 1: the span's sinks belong to it: each of its rows sees them too */
  twh__sample sample;    /* of drawn keys; then `key` counts in their order */
} twh__patch;

/* The grid on which a cover is made: what a lowering proposes. */
typedef struct twh__grid {
  int64_t q_block, k_block; /* of causal spans; k_block also bounds the keys of a window's patches, lead included */
  int64_t chunk;            /* rows of a window's units */
  int32_t lead;             /* 1: sinks lead the patch of a window's own keys; 0: they are a patch of their own */
  int32_t band;             /* 1: windows in patches of any shape; 0: as lower and upper triangles and rectangles */
  int64_t full_q, full_k;   /* of full spans, whose blocks need not be square to meet a diagonal; 0: q_block, k_block */
} twh__grid;

static inline int64_t twh__grid_rows(const twh__grid *grid, int32_t kind)
{
  return kind == TWH__SPAN_FULL && grid->full_q > 0 ? grid->full_q : grid->q_block;
}

static inline int64_t twh__grid_keys(const twh__grid *grid, int32_t kind)
{
  return kind == TWH__SPAN_FULL && grid->full_k > 0 ? grid->full_k : grid->k_block;
}

/* How the sum of a tile's exponentials is read from the kernel's results. */
enum { TWH__READ_LSE, TWH__READ_LSE_SHARE, TWH__READ_ANCHOR, TWH__READ_ANCHOR_SHARE, TWH__READ_BUCKET, TWH__READINGS };

/* What stands behind the keys of a slot that has fewer than its length. */
enum {
  TWH__PAD_UNSEEN, /* zeros: a mask hides them from every row */
  TWH__PAD_MASKED, /* the keys again, hidden by a mask with a finite value: their scores must not exceed those of real keys */
  TWH__PAD_DEAD,   /* a code gives them weight 0 */
  TWH__PAD_MEAN,   /* all keys as often as they fit, with their values; then the mean key with value 0 */
  TWH__PAD_COPIES  /* the keys again, with value 0: of each key only the first copy counts */
};

/* Cuts of a tile by codes: each takes one spare coordinate, in which some rows carry -B and some keys +B. */
enum {
  TWH__CUT_NONE,
  TWH__CUT_STAIR, /* seen.quantum > 1: keys in steps of seen.unit; coordinate t hides step t + 1 from rows that see no more than
                   * t + 1 steps */
  TWH__CUT_CORNER /* one coordinate hides the first from.unit keys from the rows with from(i) > 0 */
};

enum { TWH__MAX_ANCHORS = 4, TWH__MAX_KERNELS = 4, TWH__MODE_HOST = 0 /* a tile that no kernel computes */ };

typedef struct twh__lowering {
  /* the kernel */
  int64_t slots, q_len, k_len, qk_dim, v_dim;
  int64_t q_len_min, q_len_step, k_len_min, k_len_step; /* min 0: always q_len (k_len) */
  int64_t shift;         /* causal: the row at slot position shift + i sees the keys 0 .. i */
  int32_t dtype, out_dtype, mask_dtype;
  double  mask_value;
  double  kernel_scale;  /* what the kernel multiplies with */
  double  q_factor;      /* what queries are multiplied with when encoded */
  double  power;         /* 2: of doubled queries, whose exponentials are squares; else 1 */
  double  softcap;
  int32_t lse_base2, f16_scores;
  /* the choice */
  int32_t way;                        /* its number */
  int32_t full_mode, cut_mode;        /* TWH_MASK_*; full_mode CAUSAL: rectangles as a triangle and a reversed one; cut_mode NONE:
                                       * triangles by staircases of codes */
  twh__grid grid;
  int64_t values_parts;               /* value slices */
  int32_t reading, share_reading;     /* of ordinary tiles, and of tiles with TWH__PAD_COPIES */
  int32_t anchors;                    /* number of keys that the host scores per row, at least */
  double  flag_below;                 /* a share read from the kernel below that is not trusted */
  int32_t alibi;                      /* 1: keys have a bias that depends on where their tile begins */
  int32_t bias_parts;                 /* coordinates qk_dim .. of the problem that carry a key's bias; 0: no biases */
  int32_t codes;                      /* spare coordinates, behind those */
  double  code;                       /* B, a power of two; 0: the kernel takes no codes */
  double  code_norm;                  /* a row or key of a larger norm might outweigh a code */
  int32_t stairs;                     /* levels of a staircase, 0: none; level l cuts triangles of stair_size[l] keys into */
  int64_t stair_size[16];             /* triangles of stair_size[l + 1]; the host computes those of stair_size[stairs] */
} twh__lowering;

typedef struct twh__tile {
  twh__unit unit;
  int64_t   unit_index;          /* number of the unit in the plan */
  int64_t   ordinal;             /* absolute: decides where in its unit's tree the tile merges, */
  int32_t   level;               /* together with the level: a patch of two tiles has both at 0, others are at 1 */
  int32_t   kernel;              /* of the plan */
  int64_t   row, rows;           /* rows of the unit that are placed */
  int64_t   at, at_step;         /* row `row + i` stands at slot position at + i * at_step */
  int64_t   key, keys;           /* slot position key_at + j holds key number key + j, reversed: key + keys - 1 - j */
  int64_t   key_at;
  int64_t   lead;                /* keys at slot positions 0 .. lead - 1: the span's sinks, seen by every row */
  twh__edge from, seen;          /* row `row + i` sees slot positions key_at + from(i) .. key_at + seen(i) - 1, and the lead */
  int64_t   anchor_step;         /* anchors are the keys at key_at + a anchor_step, */
  int32_t   anchor_last;         /* with 1 the last key too; every row sees at least one (or the lead's first) */
  int32_t   mode;                /* TWH_MASK_* of the call, or TWH__MODE_HOST */
  int32_t   reading, pads, reversed, shape;
  int32_t   cut, cuts;           /* TWH__CUT_*, and how many coordinates it takes */
  int64_t   width;               /* slot positions that rows and keys share on a causal mask */
  int32_t   exposed;             /* 1: some row's slot position lies behind the tile's keys (causal) */
  int32_t   alone;               /* 1: shares its slot with no other */
  int64_t   epoch;               /* tiles of different epochs do not share a slot */
  int32_t   host;                /* 1: its data would spoil results: the host computes it, and among other tiles it is not placed */
  int64_t   slot_rows, slot_keys; /* lengths of the call */
  twh__sample sample;            /* of drawn keys; then `key` counts in their order */
} twh__tile;

/* How many tiles codes of so many coordinates can keep apart in one slot. A row of a causal slot must be kept from earlier keys
 * only, which any two subsets do if the larger one comes first; pads that rows see take the full set. Without a mask both ways
 * count: subsets of one size. */
static inline int64_t twh__code_capacity(int32_t mode, int64_t coordinates, int32_t exposed)
{
  int64_t r = coordinates < 20 ? coordinates : 20, n = 1;
  if (r < 1) return 1;
  if (mode == TWH_MASK_CAUSAL) return ((int64_t)1 << r) - (exposed != 0);
  for (int64_t i = 1; i <= r / 2; ++i) n = n * (r - r / 2 + i) / i;
  return n;
}

/* The tiles that share an attention. Codes of a slot: coordinates 0 .. cuts - 1 of the lowering's `codes` cut tiles; the next
 * `isolation` ones keep tiles apart and make pads dead. */
typedef struct twh__slot {
  const twh__tile *tiles;        /* (count), in the order of their key positions */
  int64_t          count;
  int32_t          cuts, isolation, exposed;
} twh__slot;

static inline int64_t twh__tile_from(const twh__tile *tile, int64_t i)
{
  return twh__edge_at(&tile->from, i, tile->keys);
}

static inline int64_t twh__tile_seen(const twh__tile *tile, int64_t i)
{
  return twh__edge_at(&tile->seen, i, tile->keys);
}

/* The number of the key at position key_at + j. */
static inline int64_t twh__tile_key(const twh__tile *tile, int64_t j)
{
  return tile->reversed ? tile->key + tile->keys - 1 - j : tile->key + j;
}

/* A partial state of the rows of a unit: over the keys so far, row r has the sum of exponentials a e^m and the output b.
 * Outputs are kept divided by their sums, so that no product of a weight and a value can overflow. Neutral: a = 0, whatever b
 * is.
 *
 * A leaf is the state of one tile: its outputs are not copied but stay where the kernel wrote them, in its dtype and in
 * slices, to be multiplied with `factor`. A node has outputs of its own, in float64: merging adds no error that an f32 kernel
 * would show. */
typedef struct twh__state {
  double     *m, *a;                   /* node: (rows of the unit); leaf: (rows of the slot) */
  double     *b;                       /* node: (rows, v_dim), from unit row `row` on; leaf: NULL */
  double     *factor;                  /* leaf: (rows of the slot) */
  const char *out; /* leaf: unit row `row + i` at slot position at + i at_step, row_bytes apart; slices slice_bytes apart */
  int64_t     row_bytes, slice_bytes, slice_dim;
  int64_t     row, rows, at, at_step;
  int32_t     dtype;
  int32_t     role;                    /* leaf: TWH__DRAWN_*; of squares it is neutral and has v_dim + 1 columns */
  const double *centre;                /* leaf of squares: (TWH__CENTRE(v_dim)) */
  double     *spread;                  /* node, where errors are estimated: (rows, TWH__SPREAD(v_dim)) */
} twh__state;

/* What a node knows of the drawn samples or keys j, each with a sum a_j e^base and an output o_j: base, sum a, sum a^2,
 * sum a^2 |o|^2, and by column sum a o and sum a^2 o. */
#define TWH__SPREAD(v_dim) (4 + 2 * (v_dim))

/* Values of squares are (v - c) s and |(v - c) s|^2: c by column, then 1 / s. */
#define TWH__CENTRE(v_dim) ((v_dim) + 1)

/* Where a state holds a unit's row, in m, a and factor: -1 if it says nothing about the row. */
static inline int64_t twh__state_at(const twh__state *state, int64_t row)
{
  if (state->b) return row - state->row;
  if (row < state->row || row >= state->row + state->rows) return -1;
  return state->at + (row - state->row) * state->at_step;
}

#endif
