/* What a layer must be, and a copy of it that does not depend on the caller's structs. */
#include <stdio.h>
#include <string.h>

#include "core/transformer/transformer.h"

twh_status twh__layer_fail(twh_error *error, const twh_error *inner, int64_t index)
{
  twh_error own = *inner;

  snprintf(own.message, sizeof own.message, "layer %lld: %.*s", (long long)index, (int)(sizeof own.message - 32),
           inner->message);
  twh__fail(error, own.status, "%s", own.message); /* so that an older, shorter struct is filled too */
  if (error && error->struct_size >= offsetof(twh_error, message)) {
    own.struct_size = error->struct_size;
    memcpy(error, &own, offsetof(twh_error, message));
  }
  return own.status;
}

/* Copy a matrix of rows x cols; NULL is allowed where it is optional, and stays NULL. */
static twh_status layer_matrix(twh_matrix *own, const twh_matrix **matrix, int64_t rows, int64_t cols, int optional,
                               const char *name, twh_error *error)
{
  int64_t    bytes;
  twh_status status;

  if (!*matrix) return optional ? TWH_OK : twh__fail(error, TWH_E_ARGUMENT, "%s is NULL", name);
  status = twh__struct_read(own, sizeof *own, sizeof *own, *matrix, name, error);
  if (TWH__FAILED(status)) return status;
  *matrix = own;
  if (own->dtype != TWH_F32 && own->dtype != TWH_F16 && own->dtype != TWH_BF16) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s.dtype is %d; it must be TWH_F32, TWH_F16 or TWH_BF16", name, (int)own->dtype);
  }
  if (own->rows != rows || own->cols != cols) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s is %lld x %lld; it must be %lld x %lld", name, (long long)own->rows,
                     (long long)own->cols, (long long)rows, (long long)cols);
  }
  if (own->row_stride == 0) own->row_stride = cols;
  if (own->row_stride < cols) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s.row_stride is %lld; a row has %lld elements", name, (long long)own->row_stride,
                     (long long)cols);
  }
  if (!own->data) return twh__fail(error, TWH_E_ARGUMENT, "%s.data is NULL", name);
  if ((uintptr_t)own->data % (uintptr_t)twh__dtype_bytes(own->dtype) != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "%s.data is not aligned to its data type", name);
  }
  if (!twh__multiply(rows, own->row_stride, &bytes) || !twh__multiply(bytes, twh__dtype_bytes(own->dtype), &bytes)) {
    return twh__fail(error, TWH_E_OVERFLOW, "%s: rows * row_stride does not fit 63 bits", name);
  }
  return TWH_OK;
}

static twh_status layer_matrices(twh__layer *layer, int64_t model_dim, int64_t q, int64_t k, int64_t v, int64_t a,
                                 twh_error *error)
{
  static const char *const names[8] = { "wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo" };
  twh_layer_desc          *desc = &layer->desc;
  const twh_matrix **matrices[8] = { &desc->wq, &desc->wk, &desc->wv, &desc->wo, &desc->bq, &desc->bk, &desc->bv, &desc->bo };
  const int64_t      in[4] = { model_dim, model_dim, model_dim, a }, out[4] = { q, k, v, model_dim };
  const int          in_out = (desc->flags & TWH_LAYER_IN_OUT) != 0;
  twh_status         status = TWH_OK;

  for (int i = 0; i < 4 && !TWH__FAILED(status); ++i) {
    status =
      layer_matrix(&layer->matrices[i], matrices[i], in_out ? in[i] : out[i], in_out ? out[i] : in[i], 0, names[i], error);
  }
  for (int i = 4; i < 8 && !TWH__FAILED(status); ++i) {
    status = layer_matrix(&layer->matrices[i], matrices[i], 1, out[i - 4], 1, names[i], error);
  }
  return status;
}

static twh_status layer_tensor(twh_tensor *own, const twh_tensor **tensor, int64_t heads, const char *name, twh_error *error)
{
  const int64_t dims[4] = { 1, heads, 1, 1 };
  twh__view     view;
  twh_status    status;

  if (!*tensor) return TWH_OK;
  status = twh__view_make(&view, *tensor, dims, name, error);
  if (TWH__FAILED(status)) return status;
  if (view.dtype == TWH_BOOL) return twh__fail(error, TWH_E_ARGUMENT, "%s.dtype is TWH_BOOL; it must be a float type", name);
  status = twh__struct_read(own, sizeof *own, sizeof *own, *tensor, name, error);
  own->struct_size = (uint32_t)sizeof *own;
  *tensor = own;
  return status;
}

/* Pattern, scale and softcap are left to the planning of the attention. */
static twh_status layer_read(twh__layer *layer, const twh_layer_desc *given, int64_t model_dim, twh_error *error)
{
  twh_layer_desc *desc = &layer->desc;
  int64_t         q, k, v, a;
  twh_status      status;

  if (!given) return twh__fail(error, TWH_E_ARGUMENT, "desc.layers has NULL for it");
  status = twh__struct_read(desc, sizeof *desc, sizeof *desc, given, "desc", error);
  if (TWH__FAILED(status)) return status;
  if (desc->flags & ~(uint32_t)(TWH_LAYER_SCALE | TWH_LAYER_IN_OUT)) {
    return twh__fail(error, TWH_E_VERSION, "flags has unknown bits: 0x%x", (unsigned)desc->flags);
  }
  if (desc->q_heads < 1)
    return twh__fail(error, TWH_E_ARGUMENT, "q_heads is %lld; it must be at least 1", (long long)desc->q_heads);
  if (desc->kv_heads < 1 || desc->q_heads % desc->kv_heads != 0) {
    return twh__fail(error, TWH_E_ARGUMENT, "kv_heads is %lld; it must be at least 1 and divide q_heads %lld",
                     (long long)desc->kv_heads, (long long)desc->q_heads);
  }
  if (desc->qk_dim < 1)
    return twh__fail(error, TWH_E_ARGUMENT, "qk_dim is %lld; it must be at least 1", (long long)desc->qk_dim);
  if (desc->v_dim < 1) return twh__fail(error, TWH_E_ARGUMENT, "v_dim is %lld; it must be at least 1", (long long)desc->v_dim);
  if (!twh__multiply(desc->q_heads, desc->qk_dim, &q) || !twh__multiply(desc->kv_heads, desc->qk_dim, &k) ||
      !twh__multiply(desc->kv_heads, desc->v_dim, &v) || !twh__multiply(desc->q_heads, desc->v_dim, &a)) {
    return twh__fail(error, TWH_E_OVERFLOW, "heads and dims: the product does not fit 63 bits");
  }
  status = layer_matrices(layer, model_dim, q, k, v, a, error);
  if (!TWH__FAILED(status)) {
    status = layer_tensor(&layer->sink_logits, &desc->sink_logits, desc->q_heads, "sink_logits", error);
  }
  if (!TWH__FAILED(status)) {
    status = layer_tensor(&layer->alibi_slopes, &desc->alibi_slopes, desc->q_heads, "alibi_slopes", error);
  }
  if (TWH__FAILED(status) || !desc->pattern) return status;
  status = twh__struct_read(&layer->pattern, sizeof layer->pattern, sizeof layer->pattern, desc->pattern, "pattern", error);
  layer->pattern.struct_size = (uint32_t)sizeof layer->pattern;
  desc->pattern = &layer->pattern;
  return status;
}

twh_status twh__layer_read(twh__layer *layer, const twh_layer_desc *desc, int64_t index, int64_t model_dim, twh_error *error)
{
  twh_error  inner;
  twh_status status;

  twh_error_init(&inner);
  status = layer_read(layer, desc, model_dim, &inner);
  return TWH__FAILED(status) ? twh__layer_fail(error, &inner, index) : TWH_OK;
}

int twh__layer_is_like(const twh__layer *a, const twh__layer *b)
{
  const twh_layer_desc *p = &a->desc, *q = &b->desc;

  if (p->q_heads != q->q_heads || p->kv_heads != q->kv_heads || p->qk_dim != q->qk_dim || p->v_dim != q->v_dim) return 0;
  if ((p->flags & TWH_LAYER_SCALE) != (q->flags & TWH_LAYER_SCALE) || !p->alibi_slopes != !q->alibi_slopes) return 0;
  if (p->scale != q->scale || p->softcap != q->softcap || !p->pattern != !q->pattern) return 0;
  if (!p->pattern) return 1;
  return a->pattern.flags == b->pattern.flags && a->pattern.left == b->pattern.left && a->pattern.right == b->pattern.right &&
         a->pattern.sink_tokens == b->pattern.sink_tokens;
}
