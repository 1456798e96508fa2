/* The hooks of random transformers: an RMS norm before attention, rotated heads, a bent residual stream after it, an embedding of
 * tokens, a shifted end, and a matrix product. Each looks at what it is given before it works.
 *
 * The functions of a row are written once, in float64: the hooks round their results to f32, the direct evaluation does not. */
#include "support_transformer.h"

#include <sched.h>

const char *const support_hook_names[SUPPORT_HOOKS] = { "embed", "before", "heads", "after", "finish", "gemm" };

enum { SUPPORT_MOST = 256 }; /* columns of a row of anything */

/* ---- functions of a row ---- */

void support_row_embed(const support_transformer *t, int64_t row, double *x)
{
  int64_t c;
  for (c = 0; c < t->desc.model_dim; ++c) {
    support_random random = support_random_at(77, (uint64_t)(t->tokens[row] * 1000 + c));
    x[c] = support_normal(&random) + 0.3 * sin((double)(t->positions[row] * (c + 1)) * 0.07);
  }
}

void support_row_before(const support_layer *layer, const double *x, double *y)
{
  int64_t c, dim = layer->of->desc.model_dim;
  double  sum = 0.0;
  for (c = 0; c < dim; ++c) sum += x[c] * x[c];
  for (c = 0; c < dim; ++c) y[c] = x[c] / sqrt(sum / (double)dim + 1e-5) * (1.0 + 0.2 * cos((double)(c + layer->number)));
}

/* Turn neighbours by an angle that grows with the position. */
static void support_row_turn(int64_t position, int64_t heads, int64_t dim, double *q)
{
  int64_t h, i;
  for (h = 0; h < heads; ++h)
    for (i = 0; i + 1 < dim; i += 2) {
      double *pair = q + h * dim + i, angle = (double)position * pow(100.0, -(double)i / (double)dim), x = pair[0], y = pair[1];
      pair[0] = x * cos(angle) - y * sin(angle);
      pair[1] = x * sin(angle) + y * cos(angle);
    }
}

void support_row_heads(const support_layer *layer, int64_t position, double *q, double *k, double *v)
{
  const twh_layer_desc *d = &layer->desc;
  int64_t               c;
  support_row_turn(position, d->q_heads, d->qk_dim, q);
  support_row_turn(position, d->kv_heads, d->qk_dim, k);
  for (c = 0; c < d->kv_heads * d->v_dim; ++c) v[c] *= 1.0 + 0.1 * cos((double)position);
}

double support_row_bend(double x, double mixed)
{
  return x + 0.4 * tanh(mixed);
}

void support_row_finish(const support_transformer *t, double *x)
{
  int64_t c, dim = t->desc.model_dim;
  double  mean = 0.0;
  for (c = 0; c < dim; ++c) mean += x[c] / (double)dim;
  for (c = 0; c < dim; ++c) x[c] = (x[c] - mean) * (1.0 + 0.1 * sin((double)c));
}

/* ---- what a hook must be given ---- */

static void support_break_rows(support_transformer *t, int hook, const twh_rows *rows, const char *what)
{
  if (!t->broken[0])
    snprintf(t->broken, sizeof t->broken, "%s: layer %lld, rows %lld + %lld: %s", support_hook_names[hook],
             (long long)rows->layer, (long long)rows->row_begin, (long long)rows->rows, what);
}

static int support_rows_lie(const float *data, int64_t stride, int64_t cols)
{
  return data != NULL && stride >= cols;
}

static const char *support_rows_fields(const support_transformer *t, const support_layer *layer, int hook, const twh_rows *rows)
{
  int stream = hook != SUPPORT_HEADS, y = hook == SUPPORT_BEFORE || hook == SUPPORT_AFTER;
  if (stream && !support_rows_lie(rows->x, rows->x_stride, t->desc.model_dim)) return "x";
  if (y ? !support_rows_lie(rows->y, rows->y_stride, t->desc.model_dim) : rows->y != NULL) return "y";
  if (hook != SUPPORT_HEADS) return rows->q || rows->k || rows->v ? "q, k or v is given" : NULL;
  if (!support_rows_lie(rows->q, rows->q_stride, support_width(layer, SUPPORT_WQ))) return "q";
  if (!support_rows_lie(rows->k, rows->k_stride, support_width(layer, SUPPORT_WK))) return "k";
  return support_rows_lie(rows->v, rows->v_stride, support_width(layer, SUPPORT_WV)) ? NULL : "v";
}

/* What is wrong with the rows, or NULL. */
static const char *support_rows_wrong(const support_transformer *t, const support_layer *layer, int hook, const twh_rows *rows)
{
  int64_t r, number = layer ? layer->number : hook == SUPPORT_EMBED ? -1 : t->desc.n_layers;
  if (rows->struct_size < sizeof *rows || rows->flags != 0) return "struct_size or flags";
  if (rows->layer != number) return "layer";
  if (rows->rows < 1 || rows->row_begin < 0 || rows->row_begin + rows->rows > t->rows) return "rows";
  if (t->block_rows > 0 && rows->rows > t->block_rows) return "more rows than a block may have";
  for (r = 0; r < rows->rows; ++r)
    if (!rows->positions || rows->positions[r] != t->positions[rows->row_begin + r]) return "positions";
  if (rows->model_dim != t->desc.model_dim) return "model_dim";
  if (layer && (rows->q_heads != layer->desc.q_heads || rows->kv_heads != layer->desc.kv_heads ||
                rows->qk_dim != layer->desc.qk_dim || rows->v_dim != layer->desc.v_dim))
    return "heads or dims";
  if (t->desc.scratch_per_row > 0 && (!rows->scratch || (uintptr_t)rows->scratch % 64 != 0)) return "scratch";
  if (rows->input != (const void *)t->tokens) return "input";
  if (!rows->gemm || rows->gemm_user != t->desc.gemm_user) return "gemm";
  return support_rows_fields(t, layer, hook, rows);
}

/* Of blocks that all fail, on several threads: let another one fail before the first (1), or begin before the first and fail after it
 * (2). Not for ever: there may be no other thread. */
static void support_hook_linger(support_transformer *t, int first)
{
  int i, done = 0;
  for (i = 0; i < 2000 && !done; ++i) {
    pthread_mutex_lock(&t->lock);
    t->lingering |= !first;
    done = first && t->fail_behind == 2 ? t->lingering : t->failed;
    pthread_mutex_unlock(&t->lock);
    sched_yield();
  }
}

/* Returns the code that the hook is to return at once, 0 to go on. */
static int32_t support_hook_enter(support_transformer *t, const support_layer *layer, int hook, const twh_rows *rows)
{
  const char *wrong = support_rows_wrong(t, layer, hook, rows);
  int64_t     r, number = layer ? layer->number : 0;
  int32_t     code = 0;
  int         first = t->fail_row >= rows->row_begin; /* of those that fail */
  int         here = hook == t->fail_hook && (!layer || number == t->fail_layer) && t->fail_row < rows->row_begin + rows->rows;
  if (here && (first ? t->fail_behind > 0 : t->fail_behind == 2)) support_hook_linger(t, first);
  pthread_mutex_lock(&t->lock);
  ++t->calls[hook];
  if (wrong) {
    support_break_rows(t, hook, rows, wrong);
    code = SUPPORT_BROKEN;
  }
  for (r = 0; !wrong && r < rows->rows; ++r) ++t->seen[(hook * SUPPORT_LAYERS + number) * t->rows + rows->row_begin + r];
  if (t->failed) ++t->after_failure;
  if (!wrong && here && (first || t->fail_behind)) {
    code = t->fail_code;
    t->failed = 1;
    t->failed_begin = rows->row_begin;
    t->failed_rows = rows->rows;
  }
  pthread_mutex_unlock(&t->lock);
  if (!wrong && t->desc.scratch_per_row > 0)
    memset(rows->scratch, SUPPORT_POISON, (size_t)(rows->rows * t->desc.scratch_per_row) * sizeof(float));
  return code;
}

static void support_widen(double *to, const float *from, int64_t n)
{
  int64_t c;
  for (c = 0; c < n; ++c) to[c] = (double)from[c];
}

static void support_narrow(float *to, const double *from, int64_t n)
{
  int64_t c;
  for (c = 0; c < n; ++c) to[c] = (float)from[c];
}

/* ---- the hooks ---- */

static int32_t support_hook_embed(void *user, const twh_rows *rows)
{
  support_transformer *t = (support_transformer *)user;
  double               x[SUPPORT_MOST];
  int64_t              r;
  int32_t              code = support_hook_enter(t, NULL, SUPPORT_EMBED, rows);
  for (r = 0; r < rows->rows && code == 0; ++r) {
    support_row_embed(t, rows->row_begin + r, x);
    support_narrow(rows->x + r * rows->x_stride, x, rows->model_dim);
  }
  return code;
}

static int32_t support_hook_before(void *user, const twh_rows *rows)
{
  support_layer *layer = (support_layer *)user;
  double         x[SUPPORT_MOST], y[SUPPORT_MOST];
  int64_t        r;
  int32_t        code = support_hook_enter(layer->of, layer, SUPPORT_BEFORE, rows);
  for (r = 0; r < rows->rows && code == 0; ++r) {
    support_widen(x, rows->x + r * rows->x_stride, rows->model_dim);
    support_row_before(layer, x, y);
    support_narrow(rows->y + r * rows->y_stride, y, rows->model_dim);
  }
  return code;
}

static int32_t support_hook_heads(void *user, const twh_rows *rows)
{
  support_layer *layer = (support_layer *)user;
  double         q[SUPPORT_MOST], k[SUPPORT_MOST], v[SUPPORT_MOST];
  int64_t        r, nq = support_width(layer, SUPPORT_WQ), nk = support_width(layer, SUPPORT_WK);
  int64_t        nv = support_width(layer, SUPPORT_WV);
  int32_t        code = support_hook_enter(layer->of, layer, SUPPORT_HEADS, rows);
  for (r = 0; r < rows->rows && code == 0; ++r) {
    support_widen(q, rows->q + r * rows->q_stride, nq);
    support_widen(k, rows->k + r * rows->k_stride, nk);
    support_widen(v, rows->v + r * rows->v_stride, nv);
    support_row_heads(layer, rows->positions[r], q, k, v);
    support_narrow(rows->q + r * rows->q_stride, q, nq);
    support_narrow(rows->k + r * rows->k_stride, k, nk);
    support_narrow(rows->v + r * rows->v_stride, v, nv);
  }
  return code;
}

/* Through the model's own product, with its result in scratch. */
static int32_t support_hook_after(void *user, const twh_rows *rows)
{
  support_layer *layer = (support_layer *)user;
  twh_gemm       gemm;
  int64_t        r, c, dim = rows->model_dim;
  int32_t        code = support_hook_enter(layer->of, layer, SUPPORT_AFTER, rows);
  if (code != 0) return code;
  for (r = 0; r < rows->rows; ++r)
    for (c = 0; c < dim; ++c) rows->x[r * rows->x_stride + c] += rows->y[r * rows->y_stride + c];
  twh_gemm_init(&gemm);
  gemm.m = rows->rows;
  gemm.n = gemm.k = dim;
  gemm.a = rows->x;
  gemm.a_row_stride = rows->x_stride;
  gemm.b = layer->mix.data;
  gemm.b_dtype = TWH_F32;
  gemm.b_row_stride = dim;
  gemm.b_col_stride = 1;
  gemm.c = rows->scratch;
  gemm.c_row_stride = dim;
  code = rows->gemm(rows->gemm_user, &gemm);
  for (r = 0; r < rows->rows && code == 0; ++r)
    for (c = 0; c < dim; ++c) {
      float *x = rows->x + r * rows->x_stride + c;
      *x = (float)support_row_bend((double)*x, (double)rows->scratch[r * dim + c]);
    }
  return code;
}

static int32_t support_hook_finish(void *user, const twh_rows *rows)
{
  support_transformer *t = (support_transformer *)user;
  double               x[SUPPORT_MOST];
  int64_t              r;
  int32_t              code = support_hook_enter(t, NULL, SUPPORT_FINISH, rows);
  for (r = 0; r < rows->rows && code == 0; ++r) {
    support_widen(x, rows->x + r * rows->x_stride, rows->model_dim);
    support_row_finish(t, x);
    support_narrow(rows->x + r * rows->x_stride, x, rows->model_dim);
  }
  return code;
}

/* ---- the product ---- */

/* Which weight it is with: layer and matrix; 0 for a product that a hook asks for. */
static int support_product_find(const support_transformer *t, const twh_gemm *gemm, int64_t *layer, int *which)
{
  for (*layer = 0; *layer < t->desc.n_layers; ++*layer)
    for (*which = 0; *which < 4; ++*which)
      if (t->layers[*layer].matrices[*which].data == gemm->b) return 1;
  return 0;
}

static int32_t support_product_enter(support_transformer *t, const twh_gemm *gemm)
{
  int64_t layer;
  int32_t code = 0;
  int     which;
  pthread_mutex_lock(&t->lock);
  ++t->calls[SUPPORT_GEMM];
  if (gemm->struct_size < sizeof *gemm || gemm->m < 1 || gemm->n < 1 || gemm->k < 1 || !gemm->a || !gemm->b || !gemm->c ||
      gemm->a_row_stride < gemm->k || gemm->c_row_stride < gemm->n || (gemm->b_row_stride != 1 && gemm->b_col_stride != 1)) {
    if (!t->broken[0]) snprintf(t->broken, sizeof t->broken, "gemm: a field is wrong");
    code = SUPPORT_BROKEN;
  }
  if (t->failed) ++t->after_failure;
  if (code == 0 && support_product_find(t, gemm, &layer, &which)) {
    int64_t done = t->products[layer][which];
    t->products[layer][which] += gemm->m;
    if (t->fail_hook == SUPPORT_GEMM && layer == t->fail_layer && which == t->fail_matrix && t->fail_row >= done &&
        t->fail_row < done + gemm->m) {
      code = t->fail_code;
      t->failed = 1;
      t->failed_begin = done;
      t->failed_rows = gemm->m;
    }
  }
  pthread_mutex_unlock(&t->lock);
  return code;
}

static int32_t support_product(void *user, const twh_gemm *gemm)
{
  double  column[SUPPORT_MOST], sum;
  int64_t i, j, p;
  int32_t code = support_product_enter((support_transformer *)user, gemm);
  for (j = 0; j < gemm->n && code == 0; ++j) {
    for (p = 0; p < gemm->k; ++p)
      column[p] = support_load(gemm->b, gemm->b_dtype, p * gemm->b_row_stride + j * gemm->b_col_stride);
    for (i = 0; i < gemm->m; ++i) {
      for (sum = 0.0, p = 0; p < gemm->k; ++p) sum += (double)gemm->a[i * gemm->a_row_stride + p] * column[p];
      gemm->c[i * gemm->c_row_stride + j] = (float)sum;
    }
  }
  return code;
}

/* ---- attaching and counting ---- */

void support_hooks_attach(support_transformer *t)
{
  int64_t i;
  t->desc.scratch_per_row = 0;
  for (i = 0; i < t->desc.n_layers; ++i) {
    support_layer *layer = &t->layers[i];
    layer->desc.before = layer->with & SUPPORT_WITH_BEFORE ? support_hook_before : NULL;
    layer->desc.heads = layer->with & SUPPORT_WITH_HEADS ? support_hook_heads : NULL;
    layer->desc.after = layer->with & SUPPORT_WITH_AFTER ? support_hook_after : NULL;
    layer->desc.user = layer;
    if (layer->desc.after) t->desc.scratch_per_row = t->desc.model_dim;
  }
  t->desc.embed = t->with & SUPPORT_WITH_EMBED ? support_hook_embed : NULL;
  t->desc.finish = t->with & SUPPORT_WITH_FINISH ? support_hook_finish : NULL;
  t->desc.user = t;
  t->desc.gemm = t->with & SUPPORT_WITH_GEMM ? support_product : NULL;
  t->desc.gemm_user = t->with & SUPPORT_WITH_GEMM ? t : NULL;
}

void support_hooks_reset(support_transformer *t)
{
  memset(t->calls, 0, sizeof t->calls);
  memset(t->products, 0, sizeof t->products);
  memset(t->seen, 0, (size_t)(5 * SUPPORT_LAYERS * t->rows));
  t->broken[0] = 0;
  t->failed = t->lingering = 0;
  t->failed_begin = t->failed_rows = t->after_failure = 0;
}

static void support_hooks_expect(const support_transformer *t, int hook, int64_t layer, int given)
{
  int64_t r;
  for (r = 0; r < t->rows; ++r)
    if (t->seen[(hook * SUPPORT_LAYERS + layer) * t->rows + r] != given) {
      print_error("%s: layer %lld: %s had row %lld %d times\n", t->text, (long long)layer, support_hook_names[hook],
                  (long long)r, t->seen[(hook * SUPPORT_LAYERS + layer) * t->rows + r]);
      fail();
    }
}

void support_hooks_expect_all(const support_transformer *t)
{
  int64_t i;
  int     which;
  support_hooks_expect(t, SUPPORT_EMBED, 0, t->desc.embed != NULL);
  support_hooks_expect(t, SUPPORT_FINISH, 0, t->desc.finish != NULL);
  for (i = 0; i < t->desc.n_layers; ++i) {
    support_hooks_expect(t, SUPPORT_BEFORE, i, t->layers[i].desc.before != NULL);
    support_hooks_expect(t, SUPPORT_HEADS, i, t->layers[i].desc.heads != NULL);
    support_hooks_expect(t, SUPPORT_AFTER, i, t->layers[i].desc.after != NULL);
    for (which = 0; which < 4 && t->desc.gemm; ++which) assert_int_equal(t->products[i][which], t->rows);
  }
}
