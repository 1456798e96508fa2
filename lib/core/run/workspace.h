/* What an execute works in: one block of memory, carved the same way when it is measured and when it is used. */
#ifndef TWH_CORE_RUN_WORKSPACE_H
#define TWH_CORE_RUN_WORKSPACE_H

#include "core/encode/encode.h"
#include "core/plan/plan.h"
#include "core/run/blocks.h"
#include "core/state/state.h"

/* One operand of one slot: where its block lies, and the number by which a device may know it. */
typedef struct twh__operand {
  twh__block block;
  uint64_t   id;
  int32_t    encode;  /* 1: this placement found the block missing and has it encoded */
  char      *to;      /* where */
  double    *note;    /* of values: their lift */
} twh__operand;

/* What becomes of a tile. */
typedef struct twh__placement {
  int32_t unit;                  /* entry of the table of units */
  int32_t leaf;                  /* state that it is decoded into */
  int64_t flagged;               /* rows that could not be read */
  int64_t nan_row, nan_part;     /* checked runs: the first row with a NaN, or -1, and the part that returned it */
} twh__placement;

/* One attention of a bundle: its tiles, and the operands they share. */
struct twh__bundle;

typedef struct twh__attention {
  twh__slot       slot;
  twh__tile      *tiles;         /* (layout.slot_tiles), slot.count of them placed */
  twh__placement *places;
  twh__operand    q, k, v, buckets, mask;
  int32_t         repair;        /* 1: has rows that a bucket call is to read */
  int64_t         home;          /* of a repair: where its results stand, buffers * layout.slots + slot */
  struct twh__bundle *chain;     /* the bundle whose call this one's continues, and whose results are those of both; or NULL */
  int64_t         followers;     /* bundles with this one as their `chain` */
  char           *out;           /* where the call writes its results in the host's tensor; NULL: into its buffer */
} twh__attention;

/* Attentions that go into the same calls. */
typedef struct twh__bundle {
  int32_t         kernel, class_number;
  int64_t         filled, first_call;
  int64_t         buffers;       /* number of those that its calls use */
  twh__attention *slots;         /* (layout.slots), `filled` of them in use */
} twh__bundle;

/* Buffers of a bundle's place in the wave. */
typedef struct twh__buffers {
  char   *q, *k, *v, *mask;      /* gathered operands; v: layout.parts of them */
  char   *out;                   /* layout.parts, the last one of a kernel for buckets */
  char   *lse;                   /* one for each part; the first one's is read */
  double *m, *a, *factor;        /* of leaves: layout.rows for each slot */
} twh__buffers;

/* A unit that has tiles in flight. */
typedef struct twh__unit_entry {
  int64_t   index, tiles, tiles_left; /* tiles_left: to be merged; < 0: free */
  int64_t   tiles_unplaced;
  int32_t   next;                /* in its chain, or of the free ones; -1: last */
  twh__unit unit;
  twh__tree tree;
} twh__unit_entry;

/* Calls that go to the kernel together. */
typedef struct twh__batch {
  int32_t  kernel;
  int32_t  running;              /* 1: started, not waited for */
  int64_t  first, n, number;     /* in the wave's list; of the execute */
  uint64_t ticket;
  double   begun;
} twh__batch;

/* Bundles that are encoded, called and decoded together. */
typedef struct twh__wave {
  struct twh__run *run;
  twh__bundle    **bundles;      /* (layout.bundles) */
  int64_t          count, number; /* bundles, and its number from 1 */
  int64_t          buffers;      /* of its first bundle */
  int32_t          repair;       /* 1: of attentions that are called once more */
  twh_call        *calls;        /* layout.parts of each bundle */
  const twh_call **list;         /* those that are made, kernel by kernel */
  twh__batch      *batches;
  int64_t          batch_count, next; /* next: the first that is not begun */
} twh__wave;

enum { TWH__WAVES = 2 }; /* at most: one that the kernel computes, and one that the host works on */

typedef struct twh__workspace {
  twh__cache        q, k, v, buckets, mask;
  twh__bundle      *bundles;       /* of waves, and the open ones */
  twh__wave         waves[TWH__WAVES], repairs; /* repairs: of bundles of its own, copies of attentions */
  int32_t          *free_bundles;
  twh__buffers     *buffers;       /* (layout.waves, layout.bundles) */
  twh__unit_entry  *units;         /* (layout.units) */
  int32_t          *unit_chains;   /* (unit_chain_count), a power of two */
  int32_t           unit_chain_count;
  twh__state       *states;        /* (layout.leaves + layout.nodes + layout.small_nodes) */
  twh__state       *passing;       /* (layout.row_parts, TWH__PASSING) */
  double           *centres;       /* of squares: TWH__CENTRE(v_dim) for each tile of all buffers */
  twh__state        neutral;       /* one row, for rows that see nothing */
  twh__agenda       agenda;
} twh__workspace;

/* Bundles of waves and open ones. */
int64_t twh__workspace_bundles(const twh_plan *plan);

/* Carve base (NULL: only measure). 0 on overflow. */
int twh__workspace_lay_out(const twh_plan *plan, char *base, twh__workspace *workspace, int64_t *bytes);

#endif
