// SPDX-License-Identifier: Apache-2.0
// Stacks of their own for threads of a kernel that wait. Made by makecontext(), changed by
// longjmp(): swapcontext() asks the system for the signal mask each time, which is ten times
// as much as all the rest. Kept for the next block, and the next kernel.
#ifndef USC_SIM_FIBER_H
#define USC_SIM_FIBER_H

#include <ulpscope_sim/grid.h>

#include <setjmp.h>
#include <ucontext.h>

#include "base/compiler.h"

/* What sanitizers know is swapcontext(), and TSan only once it is told. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FIBERS_BY_SWAP 1
#else
#define FIBERS_BY_SWAP 0
#endif

#if FIBERS_BY_SWAP
typedef ucontext_t fiber_place;
#elif USC_HAS_PLACES
typedef usc_place fiber_place;
#else
typedef jmp_buf fiber_place;
#endif

typedef struct fiber {
    /* of the kernel's thread that waits on it: all that a switch needs in two lines */
    struct fiber *next; /* in a queue, or among the idle */
    const char *waits_at;
    uint64_t result;
    usc_grid_dim thread;
    unsigned linear;
    bool at_barrier;
    bool fresh; /* its thread has not waited yet: the next one to begin comes behind it */
    bool made;  /* its place is where it stopped; else it begins anew */
    fiber_place place;
    char *stack;
    size_t stack_size;
    void (*body)(void);
#if defined(__SANITIZE_THREAD__)
    void *seen; /* what TSan has of it */
#endif
} fiber;

/** The i-th fiber; what it runs is `body`, which never returns. NULL: no memory. */
fiber *usc_fiber_at(unsigned i, void (*body)(void));

/** Stops `from` and goes on with `to`. */
void usc_fiber_switch(fiber *from, fiber *to);

/** Goes on with `to`, and never with who calls. */
void usc_fiber_leave_for(fiber *to);

/** Each begins anew, wherever it stopped. */
void usc_fiber_forget_all(void);

/** Whether an address lies in the closed page below a fiber's stack. */
bool usc_fiber_overflows(const fiber *f, const void *address);

#endif
