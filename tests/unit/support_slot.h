/* Slots of several tiles with the encode stage's own records: made at random, encoded, and computed by a kernel that is written
 * down here. No plan decides what stands where, so that whatever the records can say occurs. */
#ifndef TWH_TESTS_SUPPORT_SLOT_H
#define TWH_TESTS_SUPPORT_SLOT_H

#include "support.h"

#include "core/encode/encode.h"

enum {
  SLOT_ROWS = 40, /* and keys */
  SLOT_TILES = 16,
  SLOT_HOST = 48, /* rows and keys of the tensors */
  SLOT_HEADS = 4, /* two kv heads */
  SLOT_DIM = 5,
  SLOT_V_DIM = 3,
  SLOT_WIDTH = 24, /* room for a kernel's dimensions */
  SLOT_BYTES = SLOT_WIDTH * (int)sizeof(float)
};

/* Pointers point into the struct: never copy it. */
typedef struct slot_case {
  support_random random;
  char           text[256];
  twh__lowering  lowering;
  twh__shape     shape;
  twh__span      spans[2]; /* the second one mirrored */
  twh__tile      tiles[SLOT_TILES];
  twh__slot      slot;
  twh__view      q, k, v, mask, key_bias, alibi;
  twh__source    source;
  float          q_data[SLOT_HEADS][SLOT_HOST][SLOT_DIM], k_data[2][SLOT_HOST][SLOT_DIM], v_data[2][SLOT_HOST][SLOT_V_DIM];
  float          mask_data[SLOT_HEADS][SLOT_HOST][SLOT_HOST], bias_data[SLOT_HEADS][SLOT_HOST], alibi_data[SLOT_HEADS];
  char           q_bytes[SLOT_ROWS][SLOT_BYTES], k_bytes[SLOT_ROWS][SLOT_BYTES];
  char           v_bytes[3][SLOT_ROWS][SLOT_BYTES];
  char           mask_bytes[SLOT_ROWS * SLOT_ROWS * 4 + SLOT_ROWS]; /* the mask, and which of its rows see a key */
  char           out[3][SLOT_ROWS][SLOT_BYTES];
  float          lse[SLOT_ROWS];
  double         weights[SLOT_ROWS][SLOT_ROWS];
  double         lift;
  int            single, poisoned; /* one tile and no codes; all of kv head 1 is NaN */
} slot_case;

/* Some tiles of any kind that a mode allows, as far as they fit. */
void slot_make(slot_case *made, uint64_t number);
/* A slot with as many tiles as the codes can keep apart, each of one row and one key: on a causal kernel the row stands at its
 * key, or, exposed, behind it. */
void slot_make_full(slot_case *made, int32_t mode, int32_t isolation, int32_t exposed);

/* Write all operands over poison. */
void slot_encode(slot_case *made);
/* Weights, outputs and lse, in float64 but for the scores. */
void slot_compute(slot_case *made);
/* What decoding tile t reads. */
void slot_result(slot_case *made, int64_t t, twh__result *result);

/* A dense float tensor of one batch entry. */
void slot_view(twh__view *view, const void *data, int64_t head_stride, int64_t row_stride);

#endif
