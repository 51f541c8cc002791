// SPDX-License-Identifier: Apache-2.0
// See trap.h.
#include "trap.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#if defined(__aarch64__) && !defined(ESR_MAGIC)
#include <asm/sigcontext.h>
#endif

const void *usc_trap_code(const void *context)
{
    const ucontext_t *c = context;
#if defined(__x86_64__) && defined(REG_RIP)
    return (const void *)(uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (const void *)(uintptr_t)c->uc_mcontext.pc;
#else
    (void)c;
    return NULL;
#endif
}

#if defined(__aarch64__)

enum { ABORT_BELOW = 0x24, ABORT_HERE = 0x25 }; /* of data, by the exception's class */

/* The syndrome, which the system puts among its records; false: this one does not. */
static bool syndrome(const ucontext_t *c, uint64_t *out)
{
    const unsigned char *at = (const unsigned char *)c->uc_mcontext.__reserved;
    size_t left = sizeof c->uc_mcontext.__reserved;
    struct _aarch64_ctx head;
    struct esr_context record;
    while (left >= sizeof record) {
        memcpy(&head, at, sizeof head);
        if (head.size < sizeof head || head.size > left) return false;
        if (head.magic == ESR_MAGIC) {
            memcpy(&record, at, sizeof record);
            *out = record.esr;
            return true;
        }
        at += head.size;
        left -= head.size;
    }
    return false;
}

usc_trap_access usc_trap_access_of(const void *context, const void *address)
{
    const void *code = usc_trap_code(context);
    uint64_t esr;
    uint32_t word;
    if (syndrome(context, &esr)) {
        const unsigned class = esr >> 26 & 0x3f;
        const bool writes = (class == ABORT_BELOW || class == ABORT_HERE) && (esr & 64);
        return writes ? USC_TRAP_WRITES : USC_TRAP_READS;
    }
    /* It went to where no code is: there is nothing to be read there. */
    if (code == address || ((uintptr_t)code & 3) != 0) return USC_TRAP_READS;
    memcpy(&word, code, sizeof word);
    return usc_trap_of_a64(word);
}

#else

usc_trap_access usc_trap_access_of(const void *context, const void *address)
{
    const ucontext_t *c = context;
    (void)address;
#if defined(__x86_64__) && defined(REG_ERR)
    return (c->uc_mcontext.gregs[REG_ERR] & 2) != 0 ? USC_TRAP_WRITES : USC_TRAP_READS;
#else
    (void)c;
    return USC_TRAP_TOUCHES;
#endif
}

#endif
