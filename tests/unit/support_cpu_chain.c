/* Chains: every call is a tile of its own with the first one's q, so that the truth is a merge of tiles. */
#include "support_cpu_chain.h"

static int64_t chain_row(const chain_link *link, int64_t p)
{
  return link->rows ? link->first + p * link->step : p;
}

int chain_is_empty(const chain *made, double lse)
{
  return lse == -INFINITY || (lse == INFINITY && made->desc.flags & POS_INF);
}

void chain_merge(const chain *made, double *out, double *lse, const double *more, double more_lse)
{
  double  unit = made->desc.flags & BASE2 ? log(2.0) : 1.0, most, a, b;
  int64_t c;
  if (chain_is_empty(made, more_lse)) return;
  most = chain_is_empty(made, *lse) || more_lse > *lse ? more_lse : *lse;
  a = chain_is_empty(made, *lse) ? 0.0 : exp((*lse - most) * unit);
  b = exp((more_lse - most) * unit);
  for (c = 0; c < made->desc.v_dim; ++c) out[c] = ((a == 0.0 ? 0.0 : out[c] * a) + more[c] * b) / (a + b);
  *lse = most + log(a + b) / unit;
}

void chain_want_again(chain *made)
{
  int64_t n, s, p, q_len = made->made->q_len, dim = made->desc.v_dim;
  tile_result_destroy(&made->want);
  tile_truth(&made->want, &made->tiles[0]);
  for (n = 1; n < made->made->n; ++n) {
    tile_result more;
    int64_t     rows = made->tiles[n].call.q_len;
    tile_truth(&more, &made->tiles[n]);
    for (s = 0; s < made->made->slots; ++s)
      for (p = 0; p < rows; ++p) {
        int64_t to = s * q_len + chain_row(&made->made->links[n], p), from = s * rows + p;
        chain_merge(made, made->want.out + to * dim, &made->want.lse[to], more.out + from * dim, more.lse[from]);
      }
    tile_result_destroy(&more);
  }
}

void chain_use(chain *made, int32_t isa)
{
  twh_oracle_desc *desc = &made->desc;
  twh_oracle_destroy(made->oracle);
  cpu_desc(desc, made->made->slots, made->made->q_len, 300, made->made->qk_dim, made->made->v_dim);
  desc->flags |= made->made->flags | CONTINUES | BACKWARDS | FEWER;
  desc->dtype = made->made->dtype;
  desc->out_dtype = made->made->out_dtype;
  desc->causal_offset = made->made->causal_offset;
  desc->softcap = made->made->softcap;
  desc->scale = 0.125;
  made->oracle = cpu_oracle(desc, isa);
  twh_oracle_desc_init(desc);
  assert_int_equal(twh_oracle_get_desc(made->oracle, desc, NULL), TWH_OK);
}

void chain_create(chain *made, const chain_case *from, uint64_t seed)
{
  support_random random = support_random_at(21, seed);
  int64_t        n;
  memset(made, 0, sizeof *made);
  made->made = from;
  chain_use(made, TWH_CPU_ISA_BEST);
  for (n = 0; n < from->n; ++n) {
    const chain_link *link = &from->links[n];
    tile_shape        shape = { link->mode, 0, link->rows, link->k_len, from->layout, from->logit_std, from->hidden };
    tile_create(&made->tiles[n], made->oracle, &shape, &random);
  }
  made->out_numbers = from->slots * made->tiles[0].call.out_slot_stride;
  made->lse_numbers = from->slots * made->tiles[0].call.lse_slot_stride;
  made->out = (unsigned char *)malloc((size_t)(made->out_numbers * support_bytes(from->out_dtype)));
  made->lse = (float *)malloc((size_t)made->lse_numbers * sizeof(float));
  assert_true(made->out && made->lse);
  for (n = 0; n < from->n; ++n) {
    twh_call       *call = &made->tiles[n].call;
    const twh_call *leader = &made->tiles[0].call;
    int64_t         row = chain_row(&from->links[n], 0), step = from->links[n].step;
    call->q = leader->q;
    call->q.data = (const char *)leader->q.data + row * leader->q.row_stride * support_bytes(from->dtype);
    call->q.row_stride *= step;
    call->out = made->out + row * leader->out_row_stride * support_bytes(from->out_dtype);
    call->lse = made->lse + row;
    call->out_slot_stride = leader->out_slot_stride;
    call->lse_slot_stride = leader->lse_slot_stride;
    call->out_row_stride = leader->out_row_stride * step;
    call->lse_row_stride = step;
    call->flags = n > 0 ? TWH_CALL_CONTINUES : 0;
  }
  made->tiles[0].call.lse_row_stride = 77; /* nobody may look */
  chain_want_again(made);
}

void chain_destroy(chain *made)
{
  int64_t n;
  for (n = 0; n < made->made->n; ++n) tile_destroy(&made->tiles[n]);
  tile_result_destroy(&made->want);
  free(made->out);
  free(made->lse);
  twh_oracle_destroy(made->oracle);
}

void chain_run(chain *made, unsigned cuts)
{
  const twh_call *calls[CHAIN_MOST];
  int64_t         n, first = 0;
  for (n = 0; n < CHAIN_MOST; ++n) calls[n] = &made->tiles[n].call;
  if (!(calls[0]->flags & TWH_CALL_CONTINUES)) {
    memset(made->out, SUPPORT_POISON, (size_t)(made->out_numbers * support_bytes(made->desc.out_dtype)));
    memset(made->lse, SUPPORT_POISON, (size_t)made->lse_numbers * sizeof(float));
  }
  for (n = 0; n < made->made->n; ++n) {
    if (n + 1 < made->made->n && !(cuts >> n & 1u)) continue;
    assert_int_equal(made->desc.run(made->desc.user, calls + first, n + 1 - first), 0);
    first = n + 1;
  }
}

double chain_out(const chain *made, int64_t s, int64_t row, int64_t c)
{
  const twh_call *call = &made->tiles[0].call;
  return support_load(made->out, made->desc.out_dtype, s * call->out_slot_stride + row * call->out_row_stride + c);
}

double chain_lse(const chain *made, int64_t s, int64_t row)
{
  return made->lse[s * made->tiles[0].call.lse_slot_stride + row];
}

void chain_compare(const chain *made, double unit, int64_t writes, const char *isa)
{
  int64_t s, row, c, dim = made->desc.v_dim, q_len = made->made->q_len;
  double  rounding = made->desc.out_dtype == TWH_F32 ? 0.0 : (double)writes * support_epsilon(made->desc.out_dtype);
  for (s = 0; s < made->made->slots; ++s)
    for (row = 0; row < q_len; ++row) {
      double want = made->want.lse[s * q_len + row], got = chain_lse(made, s, row);
      if (!(got == want || fabs(got - want) <= (3.0 + (double)writes) * unit))
        fail_msg("%s, %s: lse of row %lld is %.9g, not %.9g", made->made->name, isa, (long long)row, got, want);
      for (c = 0; c < dim; ++c) {
        want = made->want.out[(s * q_len + row) * dim + c];
        got = chain_out(made, s, row, c);
        if (!(fabs(got - want) <= (2.0 + (double)writes) * unit + rounding * (fabs(want) + (writes > 1 ? 1.0 : 1e-4))))
          fail_msg("%s, %s, %lld writes: row %lld, column %lld is %.9g, not %.9g", made->made->name, isa, (long long)writes,
                   (long long)row, (long long)c, got, want);
      }
    }
}

void chain_gaps_are_untouched(const chain *made)
{
  const twh_call *call = &made->tiles[0].call;
  int64_t         at, b, bytes = support_bytes(made->desc.out_dtype);
  for (at = 0; at < made->out_numbers; ++at) {
    int64_t in_slot = at % call->out_slot_stride;
    if (in_slot < made->made->q_len * call->out_row_stride && in_slot % call->out_row_stride < made->desc.v_dim) continue;
    for (b = 0; b < bytes; ++b) assert_int_equal(made->out[at * bytes + b], SUPPORT_POISON);
  }
  for (at = 0; at < made->lse_numbers * 4; ++at)
    if (at / 4 % call->lse_slot_stride >= made->made->q_len)
      assert_int_equal(((const unsigned char *)made->lse)[at], SUPPORT_POISON);
}

double chain_unit(const chain *made)
{
  double  largest = 0.0;
  int64_t n;
  for (n = 0; n < made->made->n; ++n) {
    double score = tile_largest_score(&made->tiles[n]);
    if (score > largest) largest = score;
  }
  return (largest + 4.0) / 16777216.0;
}

int64_t chain_writes(const chain_case *made, unsigned cuts)
{
  int64_t n, writes = 1;
  for (n = 1; n < made->n; ++n) writes += (cuts >> (n - 1) & 1u) || made->links[n].rows || made->links[n - 1].rows;
  return writes;
}

float *chain_element(const twh_operand *operand, int64_t s, int64_t r, int64_t c)
{
  return (float *)(uintptr_t)operand->data + s * operand->slot_stride + r * operand->row_stride + c;
}
