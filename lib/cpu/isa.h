/* Which instructions there are: in this build and in this CPU. */
#ifndef TWH_CPU_ISA_H
#define TWH_CPU_ISA_H

#include "cpu/lanes.h"
#include "twoheads_cpu.h"

/* NULL where this CPU or this build does not have them; BEST is never NULL. */
const twh__cpu_lanes *twh__cpu_isa_lanes(int32_t isa);

#endif
