// SPDX-License-Identifier: Apache-2.0
// What the processor says of an instruction that a signal stopped: where it lies, and
// whether it was to read or to write.
#ifndef USC_SIM_TRAP_H
#define USC_SIM_TRAP_H

#include <stdbool.h>
#include <stdint.h>

typedef enum usc_trap_access {
    USC_TRAP_TOUCHES, /* nobody says which */
    USC_TRAP_READS,
    USC_TRAP_WRITES,
} usc_trap_access;

/* `context` is the third argument of the handler, `address` what the signal names. */
const void *usc_trap_code(const void *context); /* NULL: nobody says */
usc_trap_access usc_trap_access_of(const void *context, const void *address);

/* What a load or store of A64 does to memory, by its encoding. */
static inline usc_trap_access usc_trap_of_a64(uint32_t word)
{
    const unsigned kind = word >> 28 & 3, opc = word >> 22 & 3;
    const bool vector = (word >> 26 & 1) != 0, load = (opc & 1) != 0;
    if ((word & 0xffffffe0) == 0xd50b7420) return USC_TRAP_WRITES; /* DC ZVA: zeros */
    if ((word & 0x0a000000) != 0x08000000) return USC_TRAP_TOUCHES;
    bool writes = !load; /* of pairs, structures, exclusive and ordered ones, vectors */
    if (kind == 0 && !vector && (word & 0x00a00000) == 0x00a00000)
        writes = true; /* CAS */
    else if (kind == 0 && !vector && (word & 0x80a00000) == 0x00200000)
        writes = true; /* CASP */
    else if (kind == 1)
        writes = (word & 0x3f000000) == 0x19000000 && opc == 0; /* STLUR; or a literal */
    else if (kind == 3 && (word & 0x3b200c00) == 0x38200000)
        writes = (word & 0x3ffffc00) != 0x38bfc000; /* LDADD, SWP; LDAPR is of them */
    else if (kind == 3 && !vector)
        writes = opc == 0; /* the others extend a sign */
    return writes ? USC_TRAP_WRITES : USC_TRAP_READS;
}

#endif
