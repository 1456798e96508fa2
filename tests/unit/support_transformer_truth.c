/* What a transformer's result is, by its definition in float64, one sequence and one row after the other; and the same with everything
 * that is stored between two steps rounded, which is the best that an evaluation in f32 can do. */
#include "support_transformer.h"

/* ---- the definition ---- */

typedef struct support_stream { /* one sequence in one layer */
  const support_layer *layer;
  int64_t              rows;
  double               unit; /* what is stored is an f32 multiple of it; 0: float64 */
  double              *x, *y, *q, *k, *v, *a;
} support_stream;

static void support_stored(const support_stream *s, double *numbers, int64_t n)
{
  int64_t i;
  for (i = 0; i < n && s->unit != 0.0; ++i) numbers[i] = (double)(float)(numbers[i] / s->unit) * s->unit;
}

/* to = from w + b for one row. */
static void support_project(const support_stream *s, int which, const double *from, int64_t inputs, double *to)
{
  const support_layer *layer = s->layer;
  int64_t              i, j, outputs = support_width(layer, which);
  for (j = 0; j < outputs; ++j) to[j] = 0.0;
  for (i = 0; i < inputs; ++i)
    for (j = 0; j < outputs; ++j) to[j] += from[i] * layer->weights[which][i * outputs + j];
  support_stored(s, to, outputs);
  if (!(layer->with >> which & 1)) return;
  for (j = 0; j < outputs; ++j) to[j] += support_matrix_at(&layer->matrices[which + 4], 0, j);
  support_stored(s, to, outputs);
}

/* The logit of query head h at position p and the key at position j, or -INFINITY where it is not visible. */
static double support_logit(const support_stream *s, int64_t h, int64_t p, int64_t j)
{
  const twh_layer_desc *d = &s->layer->desc;
  const twh_pattern    *w = d->pattern;
  const double         *q = s->q + (p * d->q_heads + h) * d->qk_dim;
  const double         *k = s->k + (j * d->kv_heads + h / (d->q_heads / d->kv_heads)) * d->qk_dim;
  double                dot = 0.0;
  int64_t               c;
  if (w) {
    int inside = (!(w->flags & TWH_LEFT) || j >= p - w->left) && (!(w->flags & TWH_RIGHT) || j <= p + w->right);
    if ((w->flags & TWH_CAUSAL) && j > p) return -INFINITY;
    if (!inside && j >= w->sink_tokens) return -INFINITY;
  }
  for (c = 0; c < d->qk_dim; ++c) dot += q[c] * k[c];
  dot *= d->flags & TWH_LAYER_SCALE ? d->scale : 1.0 / sqrt((double)d->qk_dim);
  if (d->softcap > 0.0) dot = d->softcap * tanh(dot / d->softcap);
  if (d->alibi_slopes) dot += support_at(d->alibi_slopes, 0, h, 0, 0) * (double)(j - p);
  return dot;
}

static void support_attend(const support_stream *s, int64_t h, int64_t p, double *logits)
{
  const twh_layer_desc *d = &s->layer->desc;
  const double          sink = d->sink_logits ? support_at(d->sink_logits, 0, h, 0, 0) : -INFINITY;
  double               *a = s->a + (p * d->q_heads + h) * d->v_dim, most = sink, sum;
  int64_t               j, c, kv = h / (d->q_heads / d->kv_heads);
  for (j = 0; j < s->rows; ++j) {
    logits[j] = support_logit(s, h, p, j);
    if (!(logits[j] <= most)) most = logits[j];
  }
  for (c = 0; c < d->v_dim; ++c) a[c] = 0.0;
  if (most == -INFINITY) return;
  sum = exp(sink - most);
  for (j = 0; j < s->rows; ++j) {
    double weight = exp(logits[j] - most);
    sum += weight;
    for (c = 0; c < d->v_dim && weight != 0.0; ++c) a[c] += weight * s->v[(j * d->kv_heads + kv) * d->v_dim + c];
  }
  for (c = 0; c < d->v_dim; ++c) a[c] /= sum;
  support_stored(s, a, d->v_dim);
}

/* From the residual stream to queries, keys and values. */
static void support_enter(const support_stream *s, const int64_t *positions)
{
  const support_layer *layer = s->layer;
  int64_t              r, dim = layer->of->desc.model_dim;
  int64_t              nq = support_width(layer, SUPPORT_WQ), nk = support_width(layer, SUPPORT_WK);
  int64_t              nv = support_width(layer, SUPPORT_WV);
  for (r = 0; r < s->rows; ++r) {
    const double *y = s->x + r * dim;
    if (layer->with & SUPPORT_WITH_BEFORE) {
      support_row_before(layer, y, s->y);
      support_stored(s, s->y, dim);
      y = s->y;
    }
    support_project(s, SUPPORT_WQ, y, dim, s->q + r * nq);
    support_project(s, SUPPORT_WK, y, dim, s->k + r * nk);
    support_project(s, SUPPORT_WV, y, dim, s->v + r * nv);
    if (!(layer->with & SUPPORT_WITH_HEADS)) continue;
    support_row_heads(layer, positions[r], s->q + r * nq, s->k + r * nk, s->v + r * nv);
    support_stored(s, s->q + r * nq, nq);
    support_stored(s, s->k + r * nk, nk);
    support_stored(s, s->v + r * nv, nv);
  }
}

/* And back. mixed: room for a row. */
static void support_leave(const support_stream *s, double *mixed)
{
  const support_layer *layer = s->layer;
  int64_t              r, c, i, dim = layer->of->desc.model_dim, na = layer->desc.q_heads * layer->desc.v_dim;
  for (r = 0; r < s->rows; ++r) {
    double *x = s->x + r * dim;
    support_project(s, SUPPORT_WO, s->a + r * na, na, s->y);
    for (c = 0; c < dim; ++c) x[c] += s->y[c];
    support_stored(s, x, dim);
    if (!(layer->with & SUPPORT_WITH_AFTER)) continue;
    for (c = 0; c < dim; ++c) mixed[c] = 0.0;
    for (i = 0; i < dim; ++i)
      for (c = 0; c < dim; ++c) mixed[c] += x[i] * layer->weights[4][i * dim + c];
    support_stored(s, mixed, dim);
    for (c = 0; c < dim; ++c) x[c] = support_row_bend(x[c], mixed[c]);
    support_stored(s, x, dim);
  }
}

static double *support_numbers(int64_t rows, int64_t cols)
{
  double *numbers = (double *)calloc((size_t)(rows * cols + 1), sizeof(double));
  assert_non_null(numbers);
  return numbers;
}

static void support_layer_truth(support_stream *s, const support_layer *layer, const int64_t *positions)
{
  int64_t r, h, dim = layer->of->desc.model_dim;
  double *work = support_numbers(1, s->rows + dim);
  s->layer = layer;
  s->y = support_numbers(1, dim);
  s->q = support_numbers(s->rows, support_width(layer, SUPPORT_WQ));
  s->k = support_numbers(s->rows, support_width(layer, SUPPORT_WK));
  s->v = support_numbers(s->rows, support_width(layer, SUPPORT_WV));
  s->a = support_numbers(s->rows, layer->desc.q_heads * layer->desc.v_dim);
  support_enter(s, positions);
  for (r = 0; r < s->rows; ++r)
    for (h = 0; h < layer->desc.q_heads; ++h) support_attend(s, h, r, work);
  support_leave(s, work);
  free(s->y);
  free(s->q);
  free(s->k);
  free(s->v);
  free(s->a);
  free(work);
}

void support_transformer_truth(const support_transformer *t, double unit, double *out)
{
  support_stream s;
  int64_t        b, r, l, first = 0, dim = t->desc.model_dim;
  memset(&s, 0, sizeof s);
  s.unit = unit;
  for (b = 0; b < t->desc.batch; ++b) {
    s.rows = t->lengths[b];
    s.x = out + first * dim;
    for (r = 0; r < s.rows; ++r)
      if (t->with & SUPPORT_WITH_EMBED)
        support_row_embed(t, first + r, s.x + r * dim);
      else
        memcpy(s.x + r * dim, t->x + (first + r) * dim, (size_t)dim * sizeof(double));
    support_stored(&s, s.x, s.rows * dim);
    for (l = 0; l < t->desc.n_layers; ++l) support_layer_truth(&s, &t->layers[l], t->positions + first);
    for (r = 0; r < s.rows && (t->with & SUPPORT_WITH_FINISH); ++r) support_row_finish(t, s.x + r * dim);
    support_stored(&s, s.x, s.rows * dim);
    first += s.rows;
  }
}

double support_transformer_error(const support_transformer *t, const double *truth, const double *got)
{
  double  error = 0.0, most = 0.0;
  int64_t i;
  for (i = 0; i < t->rows * t->desc.model_dim; ++i) {
    double one = fabs(got[i] - truth[i]);
    if (!(one < INFINITY)) return INFINITY;
    if (one > error) error = one;
    if (fabs(truth[i]) > most) most = fabs(truth[i]);
  }
  return error > 0.0 ? error / most : 0.0;
}
