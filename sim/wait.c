// SPDX-License-Identifier: Apache-2.0
// Whether a wait is to end before what it waits for does: the program is asked, whose signals
// nobody else sees to meanwhile.
#include "streams.h"

#include <stdatomic.h>
#include <time.h>

enum { ASK_NS = 200000000 };

static bool (*_Atomic on_wait)(void);
static atomic_bool interrupted;

void usc_sim_on_wait(bool (*asked)(void))
{
    atomic_store(&on_wait, asked);
}

bool usc_sim_is_asked(void)
{
    return atomic_load(&on_wait) != NULL;
}

bool usc_sim_was_interrupted(void)
{
    return atomic_load(&interrupted);
}

bool usc_sim_interrupts(void)
{
    bool (*const asked)(void) = atomic_load(&on_wait);
    const bool now = asked != NULL && asked();
    if (now) atomic_store(&interrupted, true);
    return now;
}

void usc_sim_wait_for_nothing(void)
{
    const struct timespec pause = {.tv_nsec = ASK_NS};
    while (!usc_sim_interrupts())
        (void)nanosleep(&pause, NULL);
}

void usc_sim_next_question(struct timespec *when)
{
    clock_gettime(CLOCK_REALTIME, when);
    when->tv_nsec += ASK_NS;
    when->tv_sec += when->tv_nsec / 1000000000;
    when->tv_nsec %= 1000000000;
}
