/* Making views: a tensor's strides become bytes, after it is certain that no address can wrap around. */
#include <string.h>

#include "core/view/view.h"

/* |stride| * (extent - 1) * item must fit, and so must the sum over the dimensions. */
static int view_reach(int64_t stride, int64_t extent, int64_t item, int64_t *reach)
{
  int64_t far;
  if (stride == INT64_MIN) return 0;
  if (!twh__multiply(stride < 0 ? -stride : stride, twh__max(extent - 1, 0), &far)) return 0;
  return twh__multiply(far, item, &far) && twh__add(*reach, far, reach);
}

twh_status twh__view_make(twh__view *view, const twh_tensor *tensor, const int64_t dims[4], const char *name, twh_error *error)
{
  twh_tensor own;
  twh_status status;
  int64_t    reach = 0;
  int        empty = dims[0] == 0 || dims[1] == 0 || dims[2] == 0 || dims[3] == 0;

  if (!tensor) return twh__fail(error, TWH_E_ARGUMENT, "%s is NULL", name);
  status = twh__struct_read(&own, sizeof own, sizeof own, tensor, name, error);
  if (TWH__FAILED(status)) return status;
  if (twh__dtype_bytes(own.dtype) == 0)
    return twh__fail(error, TWH_E_ARGUMENT, "%s.dtype is %d, no TWH_ data type", name, (int)own.dtype);
  if (!own.data && !empty) return twh__fail(error, TWH_E_ARGUMENT, "%s.data is NULL", name);
  memset(view, 0, sizeof *view);
  view->dtype = own.dtype;
  view->item = twh__dtype_bytes(own.dtype);
  view->data = (const char *)own.data;
  if (empty) return TWH_OK;
  if ((uintptr_t)own.data % (uintptr_t)view->item != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s.data is not aligned to its data type", name);
  }
  if (!view_reach(own.batch_stride, dims[0], view->item, &reach) || !view_reach(own.head_stride, dims[1], view->item, &reach) ||
      !view_reach(own.row_stride, dims[2], view->item, &reach) || !view_reach(1, dims[3], view->item, &reach)) {
    return twh__fail(error, TWH_E_OVERFLOW, "%s: strides times extents do not fit 63 bits", name);
  }
  view->batch_stride = dims[0] > 1 ? own.batch_stride * view->item : 0;
  view->head_stride = dims[1] > 1 ? own.head_stride * view->item : 0;
  view->row_stride = dims[2] > 1 ? own.row_stride * view->item : 0;
  return TWH_OK;
}
