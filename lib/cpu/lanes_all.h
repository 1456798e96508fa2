/* All of lanes.h for one instruction set. A file that includes this one defines
 *
 *   VEC           a vector of CPU_LANES floats
 *   CPU_LANES, CPU_ROWS   16, 8 or 4; the rows of a register block, 8 or 4
 *   CPU_NAME(x)   x with the name of the instruction set
 *   CPU_TARGET    attributes that every function needs
 *   V_ZERO, V_SET, V_LOAD, V_STORE (aligned), V_LOAD_FAR, V_STORE_FAR (not), V_ADD, V_SUB, V_MUL, V_DIV
 *   V_LOAD_SOME(from, n)      the first n < CPU_LANES numbers, reading no more, and zeros
 *   V_FMA(a, b, c)            a b + c
 *   V_MAX(a, b)               b where one of the two is NaN
 *   V_IF_GREATER(a, b, x, y)  x where a > b, else y
 *   V_ROUND(t)                to the nearest whole number, for |t| < 2^22; anything for others
 *   V_SCALE(p, whole, t)      p 2^whole; 0 where t < -126
 *   V_FROM_BF16, V_FROM_F16(from), V_TO_BF16, V_TO_F16(to, x)   CPU_LANES numbers
 *   V_FROM_BOOL(from)         0, or -inf where the byte is 0, of CPU_LANES bytes
 *   V_TRANSPOSE(x)            of an array of CPU_LANES vectors, in place */

#include <float.h>
#include <math.h>
#include <string.h>

#include "twoheads_cpu.h"

#define CPU_INLINE CPU_TARGET static inline __attribute__((always_inline))
#define CPU_BLOCK  (TWH__CPU_VECTORS * CPU_LANES)

/* Have the line of a number that may lie outside all arrays come into the cache. */
#if defined(__GNUC__)
#  define CPU_PREFETCH(from, ahead) __builtin_prefetch((const void *)((uintptr_t)(from) + (uintptr_t)(ahead) * sizeof(float)))
#else
#  define CPU_PREFETCH(from, ahead)
#endif

#define EACH_OF(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#define EACH_LANE(i)  EACH_OF(i, CPU_LANES)
#define EACH_OF_1(f) f(0)
#define EACH_OF_2(f) f(0) f(1)
#define EACH_OF_4(f) f(0) f(1) f(2) f(3)
#define EACH_OF_8(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#if CPU_ROWS == 8
#  define EACH_ROW EACH_OF_8
#else
#  define EACH_ROW EACH_OF_4
#endif

static const float CPU_NAME(lane_numbers)[16] __attribute__((aligned(64))) = {
  0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
};
static const float CPU_NAME(ones)[CPU_BLOCK] __attribute__((aligned(64))) = {
  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
#if CPU_LANES >= 8
  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
#endif
#if CPU_LANES >= 16
  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
#endif
};

#include "cpu/lanes_weights.h"

#include "cpu/lanes_scores.h"

#include "cpu/lanes_values.h"

#include "cpu/lanes_rows.h"

#include "cpu/lanes_mask.h"

#include "cpu/lanes_lone.h"

/* In the order of twh__cpu_lanes. */
#define CPU_TABLE                                                                                              \
  {                                                                                                            \
    CPU_BLOCK, CPU_NAME(pack), CPU_NAME(widen), CPU_NAME(scores), CPU_NAME(mask), CPU_NAME(cap),               \
      CPU_NAME(top), CPU_NAME(weights), CPU_NAME(values), CPU_NAME(store), CPU_NAME(lone_pack),                \
      CPU_NAME(lone_scores), CPU_NAME(lone_mask), CPU_NAME(lone_weights), CPU_NAME(lone_values),               \
      CPU_NAME(lone_store)                                                                                     \
  }
