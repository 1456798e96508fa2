/* What one instruction set does with a block of queries, a tile of keys at a time.
 *
 * Vectors run along queries: a block is TWH__CPU_VECTORS registers of them, and everything of a block is transposed. q is
 * (qk_dim, width), scores are (keys, width), out is (v_dim, width), so that a row of keys or values is only ever read through
 * broadcasts and nothing is summed across a register. Numbers are f32. Scores are in units of log2, relative to nothing.
 *
 * lanes_*.h are the implementation, included by one file for each instruction set. All of them do the same operations in the
 * same order; those without a fused multiply-add round once more. */
#ifndef TWH_CPU_LANES_H
#define TWH_CPU_LANES_H

#include <stddef.h>
#include <stdint.h>

/* Registers of queries in a block; the most queries of a block; keys of a tile; rows of scores behind the last key that may be
 * written; and elements behind the last of a row that `widen` may write. */
enum { TWH__CPU_VECTORS = 3, TWH__CPU_WIDTH = 48, TWH__CPU_KEYS = 128, TWH__CPU_SPARE_KEYS = 8 };

/* Calls of at most so many queries go one query at a time; more are faster as a block, though most of its lanes are idle. */
enum { TWH__CPU_LONE_ROWS = 4 };

/* One block and one tile. Buffers are aligned to 64 bytes, but k and v to their elements. */
typedef struct twh__cpu_tile {
  const float *q;                  /* (qk_dim, width) */
  const float *k, *v;              /* (keys, qk_dim), (keys, v_dim) */
  int64_t      k_stride, v_stride; /* between rows */
  int64_t      qk_dim, v_dim;
  int64_t      vectors;                /* registers of the block that hold queries */
  int64_t      seen[TWH__CPU_VECTORS]; /* keys that some query of each register sees: a prefix, in increasing order */
  int64_t      limit;                  /* query i of the block sees the keys j < limit + i */
  float       *scores;                 /* (TWH__CPU_KEYS + TWH__CPU_SPARE_KEYS, width) */
  float       *top;                    /* (width): the largest score of this tile */
  float       *max, *sum, *decay;      /* (width): of all tiles; what the earlier tiles shrink by */
  float       *out;                    /* (v_dim, width): the sum of weights and values */
  float        cap;                    /* in units of log2 */
  int          fresh;                  /* out holds nothing yet */
} twh__cpu_tile;

/* What there is of a block outside: row i at data + i * stride, `dim` numbers of dtype. */
typedef struct twh__cpu_rows {
  void   *data;
  int64_t stride, rows, dim;
  int32_t dtype;
} twh__cpu_rows;

/* One query and one tile. */
typedef struct twh__cpu_lone {
  const float *q;     /* (qk_dim) and zeros up to a whole vector; aligned to 64 bytes, as are scores and out */
  const float *k, *v; /* as in twh__cpu_tile */
  int64_t      k_stride, v_stride;
  int64_t      qk_dim, v_dim, keys; /* keys: those of the tile that the query sees */
  float       *scores;              /* (keys) and room up to a whole vector */
  float       *out;                 /* (v_dim) and room up to a whole vector */
  float        max, sum, decay, cap;
} twh__cpu_lone;

typedef struct twh__cpu_lanes {
  int64_t width; /* of a block: 3 registers */
  /* to (dim, width) = factor * from^T; queries that are not there become 0. from->data is only read. */
  void (*pack)(float *to, const twh__cpu_rows *from, float factor);
  /* n numbers as f32. */
  void (*widen)(float *to, const void *from, int32_t dtype, int64_t n);
  /* scores = k q, those of unseen keys -inf; top. */
  void (*scores)(const twh__cpu_tile *tile);
  /* Add a mask operand, (rows, keys) of mask->dtype, or hide with it; and top. */
  void (*mask)(const twh__cpu_tile *tile, const twh__cpu_rows *mask);
  /* scores of 2 x / cap to cap tanh(x), all of them; then top is to be found again. */
  void (*cap)(const twh__cpu_tile *tile);
  /* Hide unseen keys again, and top. */
  void (*top)(const twh__cpu_tile *tile);
  /* scores = 2^(scores - max), exactly 0 below 2^-126; max, sum, decay. */
  void (*weights)(const twh__cpu_tile *tile);
  /* out = out * decay + v^T scores, or without the former where there is none. */
  void (*values)(const twh__cpu_tile *tile);
  /* Divide out (dim, width) by sum and store it as rows; 0 where the sum is 0. broken (width): not 0 where a number of the row
   * is not finite. to->data NULL: nothing is stored, only broken. */
  void (*store)(const twh__cpu_rows *to, const float *out, const float *sum, float *broken);
  /* The same for one query; lone_scores caps, too, and lone_store returns whether all numbers of the row are finite, and stores
   * nothing where `to` is NULL. */
  void (*lone_pack)(float *to, const void *from, int32_t dtype, int64_t dim, float factor);
  void (*lone_scores)(const twh__cpu_lone *lone);
  void (*lone_mask)(const twh__cpu_lone *lone, const void *mask, int32_t dtype);
  void (*lone_weights)(twh__cpu_lone *lone);
  void (*lone_values)(const twh__cpu_lone *lone);
  int (*lone_store)(void *to, int32_t dtype, const twh__cpu_lone *lone);
} twh__cpu_lanes;

const twh__cpu_lanes *twh__cpu_portable(void);
/* NULL where this library was built for another processor. They must only be used where the processor has the instructions. */
const twh__cpu_lanes *twh__cpu_avx2(void);
const twh__cpu_lanes *twh__cpu_avx512(void);
const twh__cpu_lanes *twh__cpu_neon(void);

#endif
