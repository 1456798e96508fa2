/* The state of rows between packed scratch memory and out and lse: loaded where a chain continues earlier calls, started from
 * nothing where it does not, and stored behind the last key.
 *
 * A state is relative to a largest score; a loaded one to its lse. That as f32, in other units, would be rounded once more:
 * what is cut off is made the sum, near 1, and divided out again in the end. */
#include "cpu/slot.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const double cpu_state_log2_e = 1.44269504088896340736, cpu_state_ln_2 = 0.69314718055994530942;

char *twh__cpu_out_at(const twh__cpu_work *work, int64_t i)
{
  const twh_call *call = work->calls[0];
  const int64_t   at = work->slot * call->out_slot_stride + i * call->out_row_stride;
  return (char *)call->out + at * twh__cpu_element(work->kernel->desc.out_dtype);
}

float *twh__cpu_lse_at(const twh__cpu_work *work, int64_t i)
{
  const twh_call *call = work->calls[0];
  return call->lse + work->slot * call->lse_slot_stride + i * (work->continues ? call->lse_row_stride : 1);
}

void twh__cpu_load_lse(const twh__cpu_work *work, int64_t i, float *max, float *sum)
{
  const uint32_t flags = work->kernel->desc.flags;
  const float    lse = *twh__cpu_lse_at(work, i);
  const double   exact = flags & TWH_ORACLE_LSE_BASE2 ? (double)lse : (double)lse * cpu_state_log2_e;
  *max = -FLT_MAX;
  *sum = 0.0f;
  if (lse == -INFINITY || (lse == INFINITY && flags & TWH_ORACLE_EMPTY_LSE_POS_INF)) return;
  *sum = NAN;
  if (!(fabs(exact) <= FLT_MAX)) return;
  *max = (float)exact;
  *sum = fabs(exact - *max) <= 0.5 ? (float)exp2(exact - *max) : 1.0f; /* an lse of more than 2^22 is not known so well */
}

/* A row that no call of the chain sees a key for has a sum of 1: it is stored as it was. */
static void cpu_state_load_block(const twh__cpu_work *work, int64_t row, int64_t rows, float *out, float *max, float *sum)
{
  const twh__cpu_kernel *kernel = work->kernel;
  const int64_t          width = kernel->lanes->width;
  twh__cpu_rows          from;
  from.data = twh__cpu_out_at(work, row);
  from.stride = work->calls[0]->out_row_stride;
  from.rows = rows;
  from.dim = kernel->desc.v_dim;
  from.dtype = kernel->desc.out_dtype;
  kernel->lanes->pack(out, &from, 1.0f);
  for (int64_t i = 0; i < rows; i++) {
    twh__cpu_load_lse(work, row + i, &max[i], &sum[i]);
    if (!twh__cpu_sees(work, work->n, row + i)) sum[i] = 1.0f;
  }
  for (int64_t c = 0; c < from.dim; c++)
    for (int64_t i = 0; i < rows; i++) out[c * width + i] = sum[i] == 0.0f ? 0.0f : out[c * width + i] * sum[i];
}

void twh__cpu_load(const twh__cpu_work *work, int64_t block)
{
  const int64_t width = work->kernel->lanes->width, numbers = work->kernel->desc.v_dim * width;
  float        *max = work->scratch->max + block * width, *sum = work->scratch->sum + block * width;
  float        *out = work->scratch->out + block * numbers;
  int64_t       rows;
  const int64_t row = twh__cpu_block(work, block, &rows);
  const int     sees = twh__cpu_sees(work, work->n, row + rows - 1);
  for (int64_t i = 0; i < width; i++) max[i] = -FLT_MAX;
  for (int64_t i = 0; i < width; i++) sum[i] = 0.0f;
  if (sees && work->continues) cpu_state_load_block(work, row, rows, out, max, sum);
  if (!sees) memset(out, 0, (size_t)numbers * sizeof(float));
}

/* log2 of a positive number, in float64 and vectorisable: 2^e f with f near 1, and the series of the area tangent. */
static double cpu_state_log2(float x)
{
  uint32_t bits;
  double   f, z, square;
  float    part;
  int32_t  e;
  memcpy(&bits, &x, sizeof bits);
  e = (int32_t)((bits - 0x3f3504f3u) >> 23 << 23);
  bits -= (uint32_t)e;
  memcpy(&part, &bits, sizeof part);
  f = (double)part;
  z = (f - 1.0) / (f + 1.0);
  square = z * z;
  f = 1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square * (1.0 / 9.0 + square * (1.0 / 11.0)))));
  return (double)(e / 8388608) + 2.0 * cpu_state_log2_e * z * f;
}

void twh__cpu_make_lse(uint32_t flags, const float *max, const float *sum, int64_t n, float *lse)
{
  const double unit = flags & TWH_ORACLE_LSE_BASE2 ? 1.0 : cpu_state_ln_2;
  const float  empty = flags & TWH_ORACLE_EMPTY_LSE_POS_INF ? INFINITY : -INFINITY;
  for (int64_t i = 0; i < n; i++) lse[i] = (float)(((double)max[i] + cpu_state_log2(sum[i])) * unit);
  for (int64_t i = 0; i < n; i++) lse[i] = sum[i] > 0.0f ? lse[i] : empty;
}

/* Rows that are not finite, or that no weight is left of, are computed again in their places of the packed block. Where the
 * chain continues a repair reads what stands in memory: there nothing is stored before. */
static int cpu_state_repair(const twh__cpu_work *work, int64_t row, int64_t rows, float *out, float *sum, float *lse)
{
  const int64_t width = work->kernel->lanes->width;
  const float  *broken = work->scratch->top;
  int           repaired = 0;
  for (int64_t i = 0; i < rows; i++) {
    if (broken[i] == 0.0f && (sum[i] != 0.0f || !twh__cpu_sees(work, work->n, row + i))) continue;
    lse[i] = twh__cpu_repair(work, row + i, work->scratch->row);
    sum[i] = 1.0f;
    for (int64_t c = 0; c < work->kernel->desc.v_dim; c++) out[c * width + i] = (float)work->scratch->row[c];
    repaired = 1;
  }
  return repaired;
}

void twh__cpu_store(const twh__cpu_work *work, int64_t block)
{
  const twh__cpu_lanes  *lanes = work->kernel->lanes;
  const twh_oracle_desc *desc = &work->kernel->desc;
  float                 *max = work->scratch->max + block * lanes->width, *sum = work->scratch->sum + block * lanes->width;
  float                 *out = work->scratch->out + block * desc->v_dim * lanes->width, *lse = work->scratch->decay;
  twh__cpu_rows          rows;
  const int64_t          row = twh__cpu_block(work, block, &rows.rows);
  if (work->continues && !twh__cpu_sees(work, work->n, row + rows.rows - 1)) return;
  rows.data = work->continues ? NULL : twh__cpu_out_at(work, row);
  rows.stride = work->calls[0]->out_row_stride;
  rows.dim = desc->v_dim;
  rows.dtype = desc->out_dtype;
  lanes->store(&rows, out, sum, work->scratch->top);
  twh__cpu_make_lse(desc->flags, max, sum, rows.rows, lse);
  if (cpu_state_repair(work, row, rows.rows, out, sum, lse) || work->continues) {
    rows.data = twh__cpu_out_at(work, row);
    lanes->store(&rows, out, sum, work->scratch->top);
  }
  if (!(desc->flags & TWH_ORACLE_LSE)) return;
  for (int64_t i = 0; i < rows.rows; i++)
    if (!work->continues || twh__cpu_sees(work, work->n, row + i)) *twh__cpu_lse_at(work, row + i) = lse[i];
}
