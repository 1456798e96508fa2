/* Chains of calls of the CPU kernel that continue one another, for the tests of these: their operands, what they have to leave
 * by the contract's formula in float64 and a merge of the calls' results, and ways to run them. */
#ifndef TWH_TESTS_SUPPORT_CPU_CHAIN_H
#define TWH_TESTS_SUPPORT_CPU_CHAIN_H

#include "support_cpu.h"

enum { CONTINUES = TWH_ORACLE_CONTINUES, CHAIN_MOST = 5 };

/* One call: position p is row first + p step of the first call's; rows 0 = all of them. */
typedef struct chain_link {
  uint32_t mode;
  int64_t  k_len, first, rows, step;
} chain_link;

typedef struct chain_case {
  const char *name;
  uint32_t    flags;
  int64_t     slots, q_len, qk_dim, v_dim, causal_offset;
  int32_t     dtype, out_dtype, layout;
  double      softcap, logit_std, hidden;
  int64_t     n;
  chain_link  links[CHAIN_MOST];
} chain_case;

/* The calls of a case, what stands before them, and what they have to leave. */
typedef struct chain {
  const chain_case *made;
  twh_oracle       *oracle;
  twh_oracle_desc   desc;
  support_tile      tiles[CHAIN_MOST];
  int64_t           out_numbers, lse_numbers;
  unsigned char    *out;
  float            *lse;
  tile_result       want;
} chain;

/* Operands of all calls, with the first one's q, out and lse, and the best instruction set. The first one does not continue; to
 * let it, set its flags and lse_row_stride. */
void chain_create(chain *made, const chain_case *from, uint64_t seed);
void chain_destroy(chain *made);

/* Change the instruction set. */
void chain_use(chain *made, int32_t isa);

/* Find `want` again, for operands that were changed; without what stands before the first call. */
void chain_want_again(chain *made);

/* Add one row of v_dim numbers to another, in float64. */
void chain_merge(const chain *made, double *out, double *lse, const double *more, double more_lse);
/* Whether this is the lse of a row without keys. */
int  chain_is_empty(const chain *made, double lse);

/* Run all calls; a batch ends behind call n where bit n of `cuts` is set. Where the first call does not continue there is
 * poison before. */
void    chain_run(chain *made, unsigned cuts);
/* How often the rows are stored then: chains of calls with all rows in one batch store once. */
int64_t chain_writes(const chain_case *made, unsigned cuts);

/* In units of rounding, see chain_unit, and with so many writes. */
void   chain_compare(const chain *made, double unit, int64_t writes, const char *isa);
double chain_unit(const chain *made);
/* Between the rows and slots there is still poison. */
void   chain_gaps_are_untouched(const chain *made);

/* Results, and element (s, r, c) of k or v in f32. */
double chain_out(const chain *made, int64_t s, int64_t row, int64_t c);
double chain_lse(const chain *made, int64_t s, int64_t row);
float *chain_element(const twh_operand *operand, int64_t s, int64_t r, int64_t c);

#endif
