/* Tensors of the host: the only reader of q, k, v and the mask, the only writer of out and lse.
 *
 * A view resolves (batch, head, row) to an address; what lies behind it (strides today) is nobody else's business. */
#ifndef TWH_CORE_VIEW_H
#define TWH_CORE_VIEW_H

#include "core/base/base.h"
#include "core/records.h"

typedef struct twh__view {
  const char *data;
  int64_t     batch_stride, head_stride, row_stride; /* bytes */
  int32_t     dtype;
  int64_t     item;                                  /* bytes of one element */
} twh__view;

/* Check a tensor of `dims` = {batch, heads, rows, dim} and make a view of it. An extent of 0
 * anywhere allows data to be NULL. Fails with TWH_E_ARGUMENT, TWH_E_VERSION or TWH_E_OVERFLOW. */
twh_status twh__view_make(twh__view *view, const twh_tensor *tensor, const int64_t dims[4], const char *name, twh_error *error);

static inline char *twh__view_row(const twh__view *view, int64_t batch, int64_t head, int64_t row)
{
  return (char *)(uintptr_t)view->data + (batch * view->batch_stride + head * view->head_stride + row * view->row_stride);
}

/* The span's key that a tile's key `number` is: itself, or the one that is drawn. */
int64_t twh__sample_key(const twh__sample *sample, int64_t number);

/* A seed made of a seed and a number. */
uint64_t twh__sample_mix(uint64_t seed, uint64_t with);

/* Row of the tensors that holds a tile's key of this number. */
static inline int64_t twh__tile_key_row(const twh__span *span, const twh__tile *tile, int64_t number)
{
  return twh__span_key(span, twh__sample_key(&tile->sample, number));
}

#endif
