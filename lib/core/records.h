/* The records that pass between the stages. Plain data: no stage needs another one's header to use them.
 *
 *     span      one sequence of the problem, with what its queries see reduced to "all keys" or "keys up to their own position"
 *     unit      a block of query rows of one head (or of the stacked heads that share a kv head): owner of one result
 *     patch     the keys of one block that a unit sees: a shape, without data and without a kernel
 *     lowering  how this plan turns patches into slots of this kernel: decided once, by arithmetic on the descriptions
 *     tile      one attention in one slot: which rows and keys stand where
 *
 * In a slot the keys that a row sees are always the first `seen` ones: triangles above the diagonal are turned into ones
 * below it by reversing the keys. Everything after the lowering counts on that. */
#ifndef TWH_CORE_RECORDS_H
#define TWH_CORE_RECORDS_H

#include "twoheads.h"

typedef struct twh__span {
  int64_t batch;             /* entry of the tensors' batch dimension */
  int64_t q_begin, q_len;    /* rows of the tensors */
  int64_t k_begin, k_len;    /* k_len is clipped to the keys that some query sees */
  int64_t q_offset, k_offset;
  int32_t causal;            /* 0: every query sees all k_len keys */
  int32_t stacked;           /* 1: rows of all query heads of a kv head are numbered through, head by head */
} twh__span;

/* The problem as every stage after validation sees it. */
typedef struct twh__shape {
  int64_t q_heads, kv_heads, group; /* group = q_heads / kv_heads */
  int64_t qk_dim, v_dim;
  double  scale, softcap;
  int32_t mask_dtype;               /* 0: no mask tensor */
} twh__shape;

typedef struct twh__unit {
  int64_t span, kv_head;
  int64_t q_head;     /* of row 0 */
  int64_t first;      /* row r of the unit is row (first + r) % q_len of head q_head + (first + r) / q_len */
  int64_t rows;
} twh__unit;

typedef struct twh__patch {
  int64_t block;      /* absolute number of its key block: what ordinals are made of */
  int64_t row, rows;  /* rows of the unit; each sees at least one key */
  int64_t key, keys;  /* keys of the sequence */
  int32_t shape;      /* TWH_SHAPE_FULL or TWH_SHAPE_LOWER */
  int64_t seen;       /* LOWER: the first row sees the first `seen` keys, every further one a key more, at most all */
} twh__patch;

/* How the sum of a tile's exponentials is read from the kernel's results. */
enum { TWH__READ_LSE, TWH__READ_LSE_SHARE, TWH__READ_ANCHOR, TWH__READ_ANCHOR_SHARE, TWH__READ_BUCKET, TWH__READINGS };

/* What stands behind the keys of a tile that has fewer than its slot. */
enum {
  TWH__PAD_UNSEEN, /* zeros: a mask hides them from every row */
  TWH__PAD_MASKED, /* the keys again, hidden by a mask with a finite value: their scores must not exceed those of real keys */
  TWH__PAD_DEAD,   /* a spare coordinate gives them weight 0 */
  TWH__PAD_MEAN,   /* all keys as often as they fit, with their values; then the mean key with value 0 */
  TWH__PAD_COPIES  /* the keys again, with value 0: of each key only the first copy counts */
};

enum { TWH__MAX_ANCHORS = 4 };

typedef struct twh__lowering {
  /* the kernel */
  int64_t slots, q_len, k_len, qk_dim, v_dim;
  int64_t q_len_min, q_len_step, k_len_min, k_len_step; /* min 0: always q_len (k_len) */
  int64_t shift;         /* causal: the row at slot position shift + i sees the keys 0 .. i */
  int32_t dtype, out_dtype, mask_dtype;
  double  mask_value;
  double  kernel_scale;  /* what the kernel multiplies with */
  double  q_factor;      /* what queries are multiplied with when encoded */
  double  softcap;
  int32_t lse_base2, f16_scores;
  /* the choice */
  int32_t full_mode, lower_mode;      /* TWH_MASK_*; full_mode CAUSAL: as a triangle and a reversed one */
  int64_t q_block, k_block;           /* the grid */
  int64_t values_parts;               /* value slices */
  int32_t reading, share_reading;     /* of ordinary tiles, and of tiles with TWH__PAD_COPIES */
  int32_t anchors;                    /* number of keys that the host scores per row */
  double  dead;                       /* |code| of dead pads; 0: none */
  double  flag_below;                 /* a share read from the kernel below that is not trusted */
} twh__lowering;

typedef struct twh__tile {
  twh__unit unit;
  int64_t unit_index;           /* number of the unit in the plan */
  int64_t ordinal;              /* absolute: decides where in its unit's tree the tile merges, */
  int32_t level;                /* together with the level: a patch of two tiles has both at 0, one of one tile has it at 1 */
  int64_t row, rows;            /* rows of the unit that are placed */
  int64_t at, at_step;          /* row `row + i` stands at slot position at + i * at_step */
  int64_t seen, seen_step;      /* and sees the first clamp(seen + i * seen_step, 0, keys) keys of the slot */
  int64_t key, keys;            /* keys of the sequence; slot position j holds key + j, reversed: key + keys - 1 - j */
  int64_t slot_rows, slot_keys; /* lengths of the call */
  int32_t mode, reading, pads, reversed, shape;
} twh__tile;

/* A partial state of the rows of a unit: over the keys so far, row r has the sum of exponentials a e^m and the output b.
 * Outputs are kept divided by their sums, so that no product of a weight and a value can overflow. Neutral: a = 0, whatever b
 * is.
 *
 * A leaf is the state of one tile: its outputs are not copied but stay where the kernel wrote them, in its dtype and in
 * slices, to be multiplied with `factor`. A node has outputs of its own, in float64: merging adds no error that an f32 kernel
 * would show. */
typedef struct twh__state {
  double     *m, *a;                   /* (rows) */
  double     *b;                       /* node: (rows, v_dim); leaf: NULL */
  double     *factor;                  /* leaf: (rows) */
  const char *out; /* leaf: unit row `row + i` at out + (at + i at_step) row_bytes, slices slice_bytes apart */
  int64_t     row_bytes, slice_bytes, slice_dim;
  int64_t     row, rows, at, at_step;
  int32_t     dtype;
} twh__state;

static inline int64_t twh__tile_seen(const twh__tile *tile, int64_t i)
{
  int64_t seen = tile->seen + i * tile->seen_step;
  return seen < tile->keys ? seen : tile->keys;
}

/* Slot positions of the anchors of a tile with `keys` keys: position 0 first. */
static inline int64_t twh__anchor_at(int64_t keys, int32_t anchors, int64_t a)
{
  return keys * a / anchors;
}

#endif
