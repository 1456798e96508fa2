/* Why not write the loop yourself? Because each of these loops looks right, runs, and is wrong:
 *
 *     build/traps
 *
 * It is one loop over the tiles of a 256-token kernel, as one would write it by hand, in a variant for each trap; traps_cases
 * says how they differ. Its error against a direct evaluation in float64 stands beside that of twoheads, with the same kernel
 * and data, and that of one call of a long kernel. In the first row there is no trap: with a kernel that can do everything the
 * loop is fine. The f32 kernel is the one on BLIS; the f16 kernel computes in float64 and rounds what it returns.
 *
 * Prints a table in Markdown. Exits with 1 if twoheads, or the loop of the first row, is off by more than twice the error of
 * the one call, plus one unit in the last place of the largest output, plus, in f32, one of the largest logit times the
 * largest value: what the rounding of a log-sum-exp may cost. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reference/formats.h"
#include "reference/reference.h"
#include "twoheads.h"
#include "twoheads_blis.h"

enum { DIM = 64, LENGTH = 256, ROWS_MAX = 1024, KEYS_MAX = 2048, COLUMNS_MAX = DIM + 1 };
enum { BY_LSE, BY_EXP_LSE, EQUALLY, BY_LEMMA, BY_ONE_KEY }; /* how the loop by hand merges tiles: see traps_add */

typedef struct traps_case {
  const char *name;
  int32_t     dtype;          /* the kernel: LENGTH x LENGTH */
  uint32_t    flags, masks;
  int64_t     v_dim;
  double      spread;         /* the problem: standard deviation of the logits */
  int         causal;
  int64_t     rows, offset, keys;
  int64_t     keys_per_tile;  /* the loop by hand: real keys in a tile; the rest of it is zero */
  int64_t     marked;         /* how many of them, from the first on, have a 1 in the spare column of the values */
  int         merge;
} traps_case;

typedef struct traps_data {
  double q[ROWS_MAX * DIM], k[KEYS_MAX * DIM], v[KEYS_MAX * DIM]; /* (rows or keys, DIM), exact in every data type */
  double exact[ROWS_MAX * DIM], out[ROWS_MAX * DIM];              /* (rows, DIM) */
  double max_logit, max_value, max_out;                           /* absolute */
} traps_data;

/* ---- the traps --------------------------------------------------------------------------------------------------------- */

enum { PLAIN = TWH_MASK_NONE, CAUSAL = TWH_MASK_CAUSAL, LSE = TWH_ORACLE_LSE };

static const traps_case traps_cases[] = {
  {"no trap: an f32 kernel with lse and a causal mask that can be switched off",
   TWH_F32, LSE, PLAIN | CAUSAL, DIM, 1.0, 1, 1024, 0, 1024, LENGTH, 0, BY_LSE},
  {"no lse, so the tiles' outputs are averaged: each was divided by a sum of its own, which is lost",
   TWH_F32, 0, PLAIN, DIM, 1.0, 0, 512, 0, 2048, LENGTH, 0, EQUALLY},
  {"no lse, so the sum is formed as Lemma 3.1 prints it, A = x / (1 - x): x is near 1, 1 - x has few digits",
   TWH_F32, 0, PLAIN, DIM + 1, 1.0, 0, 512, 0, 2040, LENGTH - 1, LENGTH - 1, BY_LEMMA},
  {"the same with logits of standard deviation 4 (elsewhere 1): x rounds to 1, and 1 - x to 0",
   TWH_F32, 0, PLAIN, DIM + 1, 4.0, 0, 512, 0, 2040, LENGTH - 1, LENGTH - 1, BY_LEMMA},
  {"no lse, f16, standard deviation 4; the sum is formed from the weight p of a real key, A = e^s / p: p underflows",
   TWH_F16, 0, PLAIN, DIM + 1, 4.0, 0, 512, 0, 2048, LENGTH, 1, BY_ONE_KEY},
  {"the kernel's lse is in base 2 and is merged as if it were in base e",
   TWH_F32, LSE | TWH_ORACLE_LSE_BASE2, PLAIN, DIM, 1.0, 0, 512, 0, 2048, LENGTH, 0, BY_LSE},
  {"tiles are merged by exp(lse) without subtracting a maximum, standard deviation 30: exp overflows",
   TWH_F32, LSE, PLAIN, DIM, 30.0, 0, 512, 0, 2048, LENGTH, 0, BY_EXP_LSE},
  {"the last tile has 76 keys and is filled up with zero keys: each adds exp(0) = 1 to the sum",
   TWH_F32, LSE, PLAIN, DIM, 1.0, 0, 512, 0, 1100, LENGTH, 0, BY_LSE},
  {"the causal mask cannot be switched off and is left on below the diagonal: half of each block there is lost",
   TWH_F32, LSE, CAUSAL, DIM, 1.0, 1, 1024, 0, 1024, LENGTH, 0, BY_LSE},
  {"second chunk of a prompt, from token 1000 on: the causal mask counts from the tile's corner, 232 keys too few",
   TWH_F32, LSE, PLAIN | CAUSAL, DIM, 1.0, 1, 512, 1000, 1512, LENGTH, 0, BY_LSE},
};

/* ---- data and truth ---------------------------------------------------------------------------------------------------- */

/* Nearly normal with standard deviation 1: the sum of twelve uniform numbers. Rounded, so that f16 holds it. */
static double traps_random(uint64_t *seed)
{
  double sum = -6.0;
  for (int i = 0; i < 12; i++) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    sum += (double)(*seed >> 33) / 2147483648.0;
  }
  return twh__reference_round(sum, TWH_F16);
}

static double traps_score(const traps_data *data, int64_t row, int64_t key)
{
  double sum = 0.0;
  for (int64_t c = 0; c < DIM; c++) sum += data->q[row * DIM + c] * data->k[key * DIM + c];
  return sum / 8.0; /* sqrt(DIM) */
}

static void traps_exact_row(traps_data *data, int64_t row, int64_t keys)
{
  static double logit[KEYS_MAX];
  double top = -INFINITY, sum = 0.0, *out = data->exact + row * DIM;
  for (int64_t j = 0; j < keys; j++) {
    logit[j] = traps_score(data, row, j);
    top = fmax(top, logit[j]);
    data->max_logit = fmax(data->max_logit, fabs(logit[j]));
  }
  memset(out, 0, DIM * sizeof *out);
  for (int64_t j = 0; j < keys; j++) {
    const double weight = exp(logit[j] - top);
    sum += weight;
    for (int64_t c = 0; c < DIM; c++) out[c] += weight * data->v[j * DIM + c];
  }
  for (int64_t c = 0; c < DIM; c++) {
    out[c] /= sum;
    data->max_out = fmax(data->max_out, fabs(out[c]));
  }
}

static void traps_fill(traps_data *data, const traps_case *trap)
{
  uint64_t seed = 20250612u;
  data->max_logit = data->max_value = data->max_out = 0.0;
  for (int64_t i = 0; i < trap->keys * DIM; i++) {
    data->k[i] = traps_random(&seed);
    data->v[i] = traps_random(&seed);
    data->max_value = fmax(data->max_value, fabs(data->v[i]));
  }
  for (int64_t i = 0; i < trap->rows * DIM; i++)
    data->q[i] = twh__reference_round(trap->spread * traps_random(&seed), TWH_F16);
  for (int64_t row = 0; row < trap->rows; row++)
    traps_exact_row(data, row, trap->causal ? row + trap->offset + 1 : trap->keys);
}

/* The largest error of data->out; rows with an element that is no finite number are counted instead. */
static double traps_error(const traps_data *data, int64_t rows, int64_t *lost)
{
  double error = 0.0;
  *lost = 0;
  for (int64_t row = 0; row < rows; row++) {
    int finite = 1;
    for (int64_t i = row * DIM; i < (row + 1) * DIM; i++) {
      if (isfinite(data->out[i])) error = fmax(error, fabs(data->out[i] - data->exact[i]));
      else finite = 0;
    }
    *lost += !finite;
  }
  return error;
}

static double traps_unit(double largest, int32_t dtype)
{
  return ldexp(1.0, ilogb(largest) - (dtype == TWH_F16 ? 10 : 23));
}

/* ---- the kernel and the loop by hand ----------------------------------------------------------------------------------- */

/* One call: q (q_len, DIM), k (k_len, DIM), v (k_len, v_dim), out (q_len, v_dim), lse (q_len) if the kernel has it. */
static int traps_call(const twh_oracle_desc *kernel, uint32_t mask, const double *q, const double *k, const double *v,
                      double *out, float *lse)
{
  static float raw_q[ROWS_MAX * DIM], raw_k[KEYS_MAX * DIM], raw_v[KEYS_MAX * COLUMNS_MAX], raw_out[ROWS_MAX * COLUMNS_MAX];
  twh__reference_write(raw_q, kernel->dtype, 0, q, kernel->q_len * DIM);
  twh__reference_write(raw_k, kernel->dtype, 0, k, kernel->k_len * DIM);
  twh__reference_write(raw_v, kernel->dtype, 0, v, kernel->k_len * kernel->v_dim);
  twh_call call;
  twh_call_init(&call);
  call.mask_mode = mask;
  call.slots = 1;
  call.q_len = kernel->q_len, call.k_len = kernel->k_len;
  call.q.data = raw_q, call.k.data = raw_k, call.v.data = raw_v;
  call.out = raw_out, call.lse = kernel->flags & LSE ? lse : NULL;
  call.q.row_stride = call.k.row_stride = DIM;
  call.v.row_stride = call.out_row_stride = kernel->v_dim;
  call.scale = kernel->scale;
  const twh_call *calls[1] = {&call};
  const int failed = kernel->run(kernel->user, calls, 1) != 0;
  twh__reference_read(out, raw_out, kernel->dtype, 0, kernel->q_len * kernel->v_dim);
  return failed;
}

typedef struct traps_sum {
  float shift, weights, values[DIM]; /* the query's result is values / weights; both are relative to e^shift */
} traps_sum;

/* Adds one query's result in one tile: out (v_dim). first_score: the score of the tile's first key, computed by the loop. */
static void traps_add(traps_sum *sum, int merge, const double *out, float lse, double first_score)
{
  /* The weight that the kernel gave to the first key, in the spare column, is e^first_score / e^lse. */
  if (merge == BY_ONE_KEY) lse = (float)(first_score - log(out[DIM]));
  const float shift = merge == BY_LSE || merge == BY_ONE_KEY ? fmaxf(sum->shift, lse) : 0.0f;
  const float keep = expf(sum->shift - shift);
  float weight = merge == EQUALLY ? 1.0f : expf(lse - shift), value_weight = weight;
  if (merge == BY_LEMMA) {
    /* With one more key, zero, whose score is therefore 0, a column that is 1 on the real keys returns x = A / (1 + A). */
    const float x = (float)out[DIM];
    weight = x / (1.0f - x);
    value_weight = 1.0f + weight;
  }
  sum->shift = shift;
  sum->weights = sum->weights * keep + weight;
  for (int c = 0; c < DIM; c++) sum->values[c] = sum->values[c] * keep + value_weight * (float)out[c];
}

typedef struct traps_tile {
  double q[LENGTH * DIM], k[LENGTH * DIM], v[LENGTH * COLUMNS_MAX], out[LENGTH * COLUMNS_MAX];
  float  lse[LENGTH];
} traps_tile;

static void traps_tile_keys(traps_tile *tile, const traps_case *trap, const traps_data *data, int64_t first, int64_t keys)
{
  memset(tile->k, 0, sizeof tile->k);
  memset(tile->v, 0, sizeof tile->v);
  memcpy(tile->k, data->k + first * DIM, (size_t)(keys * DIM) * sizeof *tile->k);
  for (int64_t j = 0; j < keys; j++) {
    memcpy(tile->v + j * trap->v_dim, data->v + (first + j) * DIM, DIM * sizeof *tile->v);
    if (j < trap->marked) tile->v[j * trap->v_dim + DIM] = 1.0;
  }
}

/* Into data->out: queries in blocks (trap->rows fills them), each with every block of keys it sees. */
static int traps_by_hand(traps_data *data, const traps_case *trap, const twh_oracle_desc *kernel)
{
  static traps_tile tile;
  static traps_sum sums[LENGTH];
  int failed = 0;
  for (int64_t begin = 0; begin < trap->rows; begin += LENGTH) {
    const int64_t diagonal = (begin + trap->offset) / LENGTH;
    memcpy(tile.q, data->q + begin * DIM, sizeof tile.q);
    memset(sums, 0, sizeof sums);
    for (int64_t r = 0; r < LENGTH; r++) sums[r].shift = -INFINITY;
    for (int64_t b = 0; b * trap->keys_per_tile < trap->keys && (!trap->causal || b <= diagonal); b++) {
      const int64_t first = b * trap->keys_per_tile, left = trap->keys - first;
      const int plain = (trap->masks & PLAIN) != 0 && !(trap->causal && b == diagonal);
      traps_tile_keys(&tile, trap, data, first, left < trap->keys_per_tile ? left : trap->keys_per_tile);
      failed |= traps_call(kernel, plain ? PLAIN : CAUSAL, tile.q, tile.k, tile.v, tile.out, tile.lse);
      for (int64_t r = 0; r < LENGTH; r++)
        traps_add(&sums[r], trap->merge, tile.out + r * trap->v_dim, tile.lse[r], traps_score(data, begin + r, first));
    }
    for (int64_t i = 0; i < LENGTH * DIM; i++)
      data->out[begin * DIM + i] = (double)(sums[i / DIM].values[i % DIM] / sums[i / DIM].weights);
  }
  return failed;
}

/* ---- one long call, and the library ------------------------------------------------------------------------------------ */

/* A kernel as the trap has it, or `longer`: of the problem's length. */
static twh_status traps_oracle(const traps_case *trap, int longer, twh_oracle **out, twh_oracle_desc *desc, twh_error *error)
{
  twh_oracle_desc_init(desc);
  desc->slots = 1;
  desc->q_len = desc->k_len = LENGTH;
  desc->qk_dim = DIM, desc->v_dim = trap->v_dim;
  desc->dtype = trap->dtype;
  desc->flags = trap->flags;
  desc->mask_modes = trap->masks;
  desc->scale = 0.125;
  if (longer) {
    desc->q_len = trap->rows, desc->k_len = trap->keys;
    desc->v_dim = DIM;
    desc->flags = 0;
    desc->mask_modes = trap->causal ? CAUSAL : PLAIN;
    desc->causal_offset = trap->offset;
  }
  const twh_status status = trap->dtype == TWH_F32 ? twh_blis_oracle_create(NULL, desc, NULL, out, error)
                                                   : twh_reference_oracle_create(NULL, desc, NULL, out, error);
  return status == TWH_OK ? twh_oracle_get_desc(*out, desc, error) : status;
}

static twh_status traps_twoheads(traps_data *data, const traps_case *trap, twh_oracle *oracle, twh_error *error)
{
  twh_pattern pattern;
  twh_pattern_init(&pattern);
  pattern.flags = trap->causal ? TWH_CAUSAL : 0;
  twh_problem problem;
  twh_problem_init(&problem);
  problem.batch = problem.q_heads = problem.kv_heads = 1;
  problem.q_len = trap->rows, problem.q_offset = trap->offset, problem.k_len = trap->keys;
  problem.qk_dim = problem.v_dim = DIM;
  problem.pattern = &pattern;
  for (int64_t i = 0; i < trap->rows * DIM; i++) data->out[i] = NAN;
  twh_tensor q, k, v, out;
  twh_tensor_dense(&q, TWH_F64, data->q, 1, trap->rows, DIM);
  twh_tensor_dense(&k, TWH_F64, data->k, 1, trap->keys, DIM);
  twh_tensor_dense(&v, TWH_F64, data->v, 1, trap->keys, DIM);
  twh_tensor_dense(&out, TWH_F64, data->out, 1, trap->rows, DIM);
  twh_tensors tensors;
  twh_tensors_init(&tensors);
  tensors.q = &q, tensors.k = &k, tensors.v = &v, tensors.out = &out;
  twh_plan *plan = NULL;
  twh_status status = twh_plan_create(NULL, &problem, &oracle, 1, NULL, &plan, error);
  if (status == TWH_OK) status = twh_plan_execute(plan, &tensors, NULL, error);
  twh_plan_destroy(plan);
  return status;
}

/* ---- the table --------------------------------------------------------------------------------------------------------- */

enum { BY_HAND, TWOHEADS, ONE_CALL, WAYS };

/* The error of each way, and how many rows it lost: (WAYS) each. */
static twh_status traps_measure(traps_data *data, const traps_case *trap, double *worst, int64_t *lost, twh_error *error)
{
  twh_oracle_desc kernel, long_kernel;
  twh_oracle *oracle = NULL, *long_oracle = NULL;
  twh_status status = traps_oracle(trap, 0, &oracle, &kernel, error);
  if (status == TWH_OK) status = traps_oracle(trap, 1, &long_oracle, &long_kernel, error);
  if (status == TWH_OK) {
    int failed = traps_by_hand(data, trap, &kernel);
    worst[BY_HAND] = traps_error(data, trap->rows, &lost[BY_HAND]);
    failed |= traps_call(&long_kernel, long_kernel.mask_modes, data->q, data->k, data->v, data->out, NULL);
    worst[ONE_CALL] = traps_error(data, trap->rows, &lost[ONE_CALL]);
    status = failed ? TWH_E_ORACLE : traps_twoheads(data, trap, oracle, error);
    worst[TWOHEADS] = traps_error(data, trap->rows, &lost[TWOHEADS]);
  }
  twh_oracle_destroy(long_oracle);
  twh_oracle_destroy(oracle);
  return status;
}

/* Prints one row. Returns 0 if what has to be right is right. */
static int traps_row(traps_data *data, const traps_case *trap)
{
  double worst[WAYS];
  int64_t lost[WAYS];
  twh_error error;
  twh_error_init(&error);
  const twh_status status = traps_measure(data, trap, worst, lost, &error);
  if (status != TWH_OK) {
    fprintf(stderr, "traps: %s: %s %s\n", trap->name, twh_status_name(status), error.message);
    return 1;
  }
  const double unit = traps_unit(data->max_out, trap->dtype);
  const double of_logit = trap->dtype == TWH_F32 ? traps_unit(data->max_logit, TWH_F32) * data->max_value : 0.0;
  const double allowed = 2.0 * worst[ONE_CALL] + unit + of_logit;
  /* A yardstick that is wrong itself would allow anything: one call has to be good to 64 units. */
  int right = lost[ONE_CALL] + lost[TWOHEADS] == 0 && worst[ONE_CALL] <= 64.0 * unit + of_logit && worst[TWOHEADS] <= allowed;
  if (trap == traps_cases) right = right && lost[BY_HAND] == 0 && worst[BY_HAND] <= allowed;
  printf("| %s |", trap->name);
  for (int way = 0; way < WAYS; way++) {
    if (lost[way] == 0) printf(" %.1e |", worst[way]);
    else printf(" %lld of %lld rows are not numbers |", (long long)lost[way], (long long)trap->rows);
  }
  puts(right ? "" : " WRONG");
  return !right;
}

int main(void)
{
  static traps_data data;
  int failed = 0;
  puts("| trap | by hand | twoheads | one long call |\n| --- | --- | --- | --- |");
  for (size_t i = 0; i < sizeof traps_cases / sizeof traps_cases[0]; i++) {
    traps_fill(&data, &traps_cases[i]);
    failed |= traps_row(&data, &traps_cases[i]);
  }
  return failed;
}
