/* Random cases: a small problem, kernels that may or may not suit it, and what its inputs look like, all from (seed, number).
 *
 * Sizes cluster around multiples of the first kernel's length, where tails, diagonals and slots meet, and so do windows and
 * sinks. Everything a case consists of is in its one line of text; TWH_SEED and TWH_CASE run it again, alone. */
#include "support.h"

static const int64_t support_lengths[] = { 1, 2, 3, 4, 5, 7, 8, 12, 16 }, support_longer[] = { 20, 24, 32, 48, 64 };

static int64_t support_length(support_random *random, int64_t m)
{
  switch (support_below(random, 6)) {
  case 0: return support_below(random, 3);
  case 1: return m * support_between(random, 1, 3) - 1;
  case 2: return m * support_between(random, 1, 3);
  case 3: return m * support_between(random, 1, 3) + 1;
  default: return support_below(random, 3 * m + 4);
  }
}

/* A window's side or a number of sinks: nothing, next to nothing, around the kernel's length, beyond the problem's. */
static int64_t support_side(support_random *random, int64_t m)
{
  switch (support_below(random, 8)) {
  case 0: return 0;
  case 1: return 1;
  case 2: return m + support_between(random, -2, 2) > 0 ? m + support_between(random, -1, 1) : 0;
  case 3: return m / 2;
  case 4: return 2 * m;
  case 5: return (int64_t)1 << 40;
  default: return support_below(random, 2 * m + 2);
  }
}

static int64_t support_divisor(support_random *random, int64_t n)
{
  int64_t step = support_between(random, 1, n);
  while (n % step != 0) --step;
  return step;
}

static void support_case_kernel(twh_oracle_desc *desc, support_random *random)
{
  static const int32_t dtypes[] = { TWH_F32, TWH_F32, TWH_F16, TWH_BF16 };
  twh_oracle_desc_init(desc);
  desc->k_len = support_one_in(random, 3) ? support_longer[support_below(random, SUPPORT_COUNT(support_longer))]
                                          : support_lengths[support_below(random, SUPPORT_COUNT(support_lengths))];
  desc->q_len = support_one_in(random, 6) ? support_between(random, 1, 12) : desc->k_len;
  desc->slots = support_one_in(random, 2) ? 1 : support_between(random, 1, 5);
  if (support_one_in(random, 10)) desc->slots = 12;
  desc->dtype = dtypes[support_below(random, 4)];
  if (support_one_in(random, 3)) desc->out_dtype = TWH_F32;
  desc->mask_modes = (uint32_t)support_between(random, 1, 7);
  if (support_one_in(random, 3)) desc->mask_modes = support_one_in(random, 2) ? TWH_MASK_CAUSAL : TWH_MASK_NONE;
  if (support_one_in(random, 3)) {
    desc->flags |= TWH_ORACLE_LSE;
    if (support_one_in(random, 2)) desc->flags |= TWH_ORACLE_LSE_BASE2;
    if (support_one_in(random, 2)) desc->flags |= TWH_ORACLE_EMPTY_LSE_POS_INF;
  }
  if (support_one_in(random, 3)) desc->flags |= TWH_ORACLE_STRIDED;
  if (support_one_in(random, 4)) desc->flags |= TWH_ORACLE_FEWER_ROWS;
  if (support_one_in(random, 4)) desc->flags |= TWH_ORACLE_FEWER_KEYS;
  if (support_one_in(random, 4)) desc->flags |= TWH_ORACLE_FEWER_SLOTS;
  if (support_one_in(random, 8)) desc->flags |= TWH_ORACLE_SCALE_PER_CALL;
  if (desc->dtype == TWH_F16 && support_one_in(random, 4)) desc->flags |= TWH_ORACLE_F16_SCORES;
  if ((desc->mask_modes & TWH_MASK_CAUSAL) && support_one_in(random, 3))
    desc->causal_offset = -support_below(random, desc->q_len < 3 ? desc->q_len : 3);
  if ((desc->flags & TWH_ORACLE_FEWER_ROWS) && support_one_in(random, 2)) {
    desc->q_len_step = support_divisor(random, desc->q_len);
    desc->q_len_min = support_between(random, 1, desc->q_len);
  }
  if ((desc->flags & TWH_ORACLE_FEWER_KEYS) && support_one_in(random, 2)) {
    desc->k_len_step = support_divisor(random, desc->k_len);
    desc->k_len_min = support_between(random, 1, desc->k_len);
  }
  desc->max_calls_per_batch = support_one_in(random, 2) ? 0 : support_between(random, 1, 7);
  desc->max_concurrent_batches = support_between(random, 0, 4);
  desc->alignment = support_one_in(random, 3) ? 256 : support_one_in(random, 2) ? 4 : 0;
  desc->cost_per_call = support_one_in(random, 2) ? 0.0 : support_uniform(random);
  if (desc->mask_modes & TWH_MASK_TENSOR) {
    static const int32_t masks[] = { 0, TWH_BOOL, TWH_F32, TWH_F16 };
    desc->mask_dtype = masks[support_below(random, 4)];
    if (desc->mask_dtype != TWH_BOOL && support_one_in(random, 4)) desc->mask_value = -30000.0;
  }
}

static void support_case_pattern(support_case *made, support_random *random, int64_t m)
{
  static const uint32_t flags[] = { TWH_CAUSAL,
                                    TWH_CAUSAL,
                                    TWH_CAUSAL | TWH_LEFT,
                                    TWH_CAUSAL | TWH_LEFT,
                                    TWH_CAUSAL | TWH_LEFT,
                                    TWH_LEFT | TWH_RIGHT,
                                    TWH_LEFT | TWH_RIGHT,
                                    TWH_CAUSAL | TWH_LEFT | TWH_RIGHT,
                                    TWH_CAUSAL | TWH_RIGHT,
                                    TWH_LEFT,
                                    TWH_RIGHT,
                                    0 };
  twh_pattern          *pattern = &made->pattern;
  if (support_one_in(random, 4)) return;
  twh_pattern_init(pattern);
  pattern->flags = flags[support_below(random, SUPPORT_COUNT(flags))];
  if (pattern->flags & TWH_LEFT) pattern->left = support_side(random, m);
  if (pattern->flags & TWH_RIGHT) pattern->right = support_side(random, m);
  if ((pattern->flags & TWH_LEFT) && support_one_in(random, 3)) { /* as in use: a short window, a few sinks */
    pattern->left = support_between(random, 0, m / 2 + 1);
    pattern->sink_tokens = support_below(random, 6);
  } else if (support_one_in(random, 4))
    pattern->sink_tokens = support_side(random, m);
  made->problem.pattern = pattern;
  if (support_one_in(random, 2)) made->problem.q_offset = support_between(random, -4, 2 * m);
}

/* Up to three sequences of any length, or many short ones. */
static void support_case_sequences(support_case *made, support_random *random, int64_t m)
{
  twh_problem *problem = &made->problem;
  int          many = support_one_in(random, 2);
  int64_t      b, rows = 0, keys = 0;
  if (many) problem->batch = support_between(random, 4, SUPPORT_SEQUENCES);
  for (b = 0; b < problem->batch; ++b) {
    twh_sequence *sequence = &made->sequences[b];
    sequence->q_begin = rows + (many ? support_below(random, 2) : support_below(random, 3));
    sequence->q_len = many ? support_below(random, m / 2 + 2) : support_length(random, m);
    rows = sequence->q_begin + sequence->q_len;
    sequence->k_begin = many && !support_one_in(random, 8) ? keys : support_below(random, 4); /* keys may be shared */
    sequence->k_len = many && !support_one_in(random, 4) ? sequence->q_len : many ? support_below(random, m + 2)
                                                                                   : support_length(random, m);
    keys = sequence->k_begin + sequence->k_len;
    if (many && !support_one_in(random, 4)) continue;
    sequence->q_offset = support_between(random, -3, 2 * m);
    sequence->k_offset = support_one_in(random, 2) ? 0 : support_below(random, 2 * m);
  }
  problem->sequences = made->sequences;
  problem->q_len = problem->k_len = problem->q_offset = 0;
}

static void support_case_problem(support_case *made, support_random *random)
{
  static const double  scales[] = { 0.5, 0.3, -0.25, 0.0, 1.0 };
  static const int32_t masks[] = { TWH_BOOL, TWH_F32, TWH_F16, TWH_BF16 };
  twh_problem         *problem = &made->problem;
  int64_t              m = made->desc[0].k_len;
  twh_problem_init(problem);
  problem->batch = support_one_in(random, 30) ? 0 : support_between(random, 1, 3);
  problem->kv_heads = support_between(random, 1, 2);
  problem->q_heads = problem->kv_heads * support_between(random, 1, 3);
  problem->qk_dim = support_between(random, 1, 6);
  problem->v_dim = support_between(random, 1, 6);
  problem->q_len = support_length(random, m);
  problem->k_len = support_one_in(random, 2) ? problem->q_len : support_length(random, m);
  support_case_pattern(made, random, m);
  if (support_one_in(random, 3)) support_case_sequences(made, random, m);
  if (support_one_in(random, 3)) {
    problem->flags |= TWH_PROBLEM_SCALE;
    problem->scale = scales[support_below(random, 5)];
  }
  if ((made->desc[0].mask_modes & TWH_MASK_TENSOR) && support_one_in(random, 3))
    problem->mask_dtype = masks[support_below(random, 4)];
  if (support_one_in(random, 8))
    problem->softcap = support_one_in(random, 2) ? 2.0 : 30.0;
  else {
    if (support_one_in(random, 8)) problem->flags |= TWH_PROBLEM_KEY_BIAS;
    if (support_one_in(random, 8)) problem->flags |= TWH_PROBLEM_ALIBI;
  }
}

static void support_case_write(support_case *made)
{
  const twh_problem *p = &made->problem;
  const twh_pattern *w = &made->pattern;
  int                at, i, room = (int)sizeof made->text;
  at = snprintf(made->text, (size_t)room,
                "TWH_SEED=%llu TWH_CASE=%llu: problem batch %lld heads %lld/%lld q_len %lld k_len %lld q_offset %lld "
                "dims %lld,%lld flags %u scale %g softcap %g pattern %s%u left %lld right %lld sinks %lld mask %d; host %d layout %d "
                "flags %d; logits %g+-%g values %g",
                (unsigned long long)made->seed, (unsigned long long)made->number, (long long)p->batch, (long long)p->q_heads,
                (long long)p->kv_heads, (long long)p->q_len, (long long)p->k_len, (long long)p->q_offset, (long long)p->qk_dim,
                (long long)p->v_dim, p->flags, support_scale(p), p->softcap, p->pattern ? "" : "none ", w->flags,
                (long long)w->left, (long long)w->right, (long long)w->sink_tokens, p->mask_dtype, made->host_dtype,
                made->layout, made->tensor_flags, made->fill.logit_mean, made->fill.logit_std, made->fill.value_mean);
  for (i = 0; i < made->kernels && at < room; ++i) {
    const twh_oracle_desc *d = &made->desc[i];
    at += snprintf(made->text + at, (size_t)(room - at),
                   "; kernel slots %lld %lldx%lld dims %lld,%lld dtype %d/%d/%d modes %u flags 0x%x offset %lld scale %g "
                   "hide %g min/step %lld/%lld %lld/%lld batch %lld",
                   (long long)d->slots, (long long)d->q_len, (long long)d->k_len, (long long)d->qk_dim, (long long)d->v_dim,
                   d->dtype, d->out_dtype, d->mask_dtype, d->mask_modes, d->flags, (long long)d->causal_offset, d->scale,
                   d->mask_value, (long long)d->q_len_min, (long long)d->q_len_step, (long long)d->k_len_min,
                   (long long)d->k_len_step, (long long)d->max_calls_per_batch);
  }
  for (i = 0; p->sequences && i < p->batch && at < room; ++i) {
    const twh_sequence *s = &p->sequences[i];
    at +=
      snprintf(made->text + at, (size_t)(room - at), " [%lld+%lld %lld+%lld %lld %lld]", (long long)s->q_begin,
               (long long)s->q_len, (long long)s->k_begin, (long long)s->k_len, (long long)s->q_offset, (long long)s->k_offset);
  }
}

/* Paddings that a kernel may declare for its own buffers. */
static void support_case_strides(twh_oracle_desc *desc, support_random *random)
{
  if (!support_one_in(random, 4)) return;
  desc->q_row_stride = desc->qk_dim + support_below(random, 3);
  desc->q_slot_stride = desc->q_row_stride * desc->q_len + support_below(random, 5);
  desc->k_row_stride = desc->qk_dim + support_below(random, 3);
  desc->k_slot_stride = desc->k_row_stride * desc->k_len + support_below(random, 5);
  desc->v_row_stride = desc->v_dim + support_below(random, 3);
  desc->v_slot_stride = desc->v_row_stride * desc->k_len + support_below(random, 5);
  desc->out_row_stride = desc->v_dim + support_below(random, 3);
  desc->out_slot_stride = desc->out_row_stride * desc->q_len + support_below(random, 5);
}

/* What of a kernel depends on the problem: dimensions with 0 to 20 spare coordinates, scale, softcap. */
static void support_case_suit(twh_oracle_desc *desc, const twh_problem *problem, support_random *random)
{
  double scale = support_scale(problem);
  desc->scale = scale != 0.0 && !support_one_in(random, 4) ? scale : support_one_in(random, 2) ? 0.25 : 0.7;
  desc->softcap = problem->softcap;
  desc->qk_dim = problem->qk_dim + (support_one_in(random, 3) ? 0 : support_below(random, support_one_in(random, 2) ? 4 : 21));
  desc->v_dim = problem->v_dim + support_below(random, 3);
  if (support_one_in(random, 4)) desc->v_dim = support_between(random, 1, problem->v_dim);
  support_case_strides(desc, random);
}

/* Rows that may go backwards, mostly where the host's will do as they lie; from numbers of its own. */
static void support_case_backwards(support_case *made)
{
  support_random random = support_random_at(made->seed ^ 0xbac4, made->number);
  for (int64_t i = 0; i < made->kernels; ++i) {
    twh_oracle_desc *desc = &made->desc[i];
    if (!(desc->flags & TWH_ORACLE_STRIDED) || support_one_in(&random, 4)) continue;
    desc->flags |= TWH_ORACLE_BACKWARDS;
    if (support_one_in(&random, 4)) continue;
    desc->flags |= TWH_ORACLE_LSE;
    desc->qk_dim = made->problem.qk_dim;
    desc->v_dim = made->problem.v_dim;
    desc->v_row_stride = desc->v_slot_stride = desc->out_row_stride = desc->out_slot_stride = 0;
    desc->alignment = 1;
    made->host_dtype = desc->dtype;
  }
}

/* So short, with batches so long, that there are chains of calls. */
static void support_case_short(twh_oracle_desc *desc, support_random *random)
{
  desc->q_len = desc->k_len = support_between(random, 2, 4);
  desc->q_len_min = desc->q_len_step = desc->k_len_min = desc->k_len_step = 0;
  desc->q_slot_stride = desc->k_slot_stride = desc->v_slot_stride = desc->out_slot_stride = 0;
  desc->causal_offset = 0;
  desc->mask_modes |= TWH_MASK_NONE;
  desc->out_dtype = TWH_F32;
  desc->alignment = 1;
  desc->max_calls_per_batch = support_between(random, 2, 20);
}

/* Kernels that merge their calls themselves; some of those whose rows may go backwards made such that they do. From numbers of its
 * own. */
static void support_case_continues(support_case *made)
{
  support_random random = support_random_at(made->seed ^ 0xc047, made->number);
  for (int64_t i = 0; i < made->kernels; ++i) {
    twh_oracle_desc *desc = &made->desc[i];
    if (!(desc->flags & TWH_ORACLE_LSE)) continue;
    if (!support_one_in(&random, desc->flags & TWH_ORACLE_BACKWARDS ? 2 : 3)) continue;
    desc->flags |= TWH_ORACLE_CONTINUES;
    if (made->problem.mask_dtype || support_one_in(&random, 4)) continue;
    desc->slots = 1;
    desc->mask_modes = TWH_MASK_CAUSAL;
    desc->mask_dtype = 0;
    desc->mask_value = 0.0;
    if (!(desc->flags & TWH_ORACLE_BACKWARDS) || support_one_in(&random, 2)) support_case_short(desc, &random);
  }
}

void support_case_make(support_case *made, uint64_t seed, uint64_t number)
{
  static const int32_t hosts[] = { TWH_F32, TWH_F32, TWH_F64, TWH_F16, TWH_BF16 };
  static const double  stds[] = { 0.1, 1.0, 1.0, 4.0, 10.0, 30.0, 100.0, 1000.0 };
  support_random       random = support_random_at(seed, number);
  int64_t              i;
  int                  exact = 1; /* whether every kernel carries the lowest float as it is: others clamp, and sum otherwise */
  memset(made, 0, sizeof *made);
  made->seed = seed;
  made->number = number;
  made->kernels = support_one_in(&random, 5) ? support_between(&random, 2, SUPPORT_KERNELS) : 1;
  for (i = 0; i < made->kernels; ++i) support_case_kernel(&made->desc[i], &random);
  support_case_problem(made, &random);
  for (i = 0; i < made->kernels; ++i) {
    const twh_oracle_desc *desc = &made->desc[i];
    support_case_suit(&made->desc[i], &made->problem, &random);
    exact &= desc->mask_value == 0.0 && (desc->mask_dtype ? desc->mask_dtype : desc->dtype) == TWH_F32;
  }
  made->host_dtype = hosts[support_below(&random, 5)];
  support_case_backwards(made);
  support_case_continues(made);
  made->layout = (int32_t)support_below(&random, SUPPORT_LAYOUTS);
  made->tensor_flags = support_one_in(&random, 6) ? 0 : SUPPORT_LSE;
  if (support_one_in(&random, 5)) made->tensor_flags |= SUPPORT_SINKS;
  if (support_one_in(&random, 2)) made->tensor_flags |= SUPPORT_BROADCAST;
  made->fill.logit_std = stds[support_below(&random, SUPPORT_COUNT(stds))];
  if (support_one_in(&random, 8)) made->fill.logit_mean = support_one_in(&random, 2) ? 200.0 : -1000.0;
  if (support_one_in(&random, 8)) made->fill.value_mean = 50.0;
  made->fill.rounding = support_one_in(&random, 4) ? 0 : made->desc[0].dtype;
  made->fill.mask_share = support_uniform(&random);
  made->fill.hidden_as_lowest = support_one_in(&random, 4) && exact;
  support_case_write(made);
}
