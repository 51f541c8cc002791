// SPDX-License-Identifier: Apache-2.0
// A violation of memory tells who: one sentence on standard error, then the signal as it
// would have come. A fault at any other address goes to the handler that was there.
#include "blocks.h"
#include "trap.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct sigaction before_segv, before_bus;

/* Who touched it: a kernel on this thread, or one that has the block open (its helper
 * threads carry no label), or the host. */
static const char *who(const block *b)
{
    const char *label = usc_sim_get_label();
    if (label[0] != '\0') return label;
    if (b != NULL && b->n_readers + b->n_writers > 0 && b->opened[0] != '\0')
        return b->opened;
    return "the host";
}

static const char *by(const char *label)
{
    return label[0] != '\0' ? label : "the host";
}

/* Where an address lies, seen from a block. */
static void place_of(const block *b, const char *at, char *out, size_t size)
{
    const char *end = b->user + b->asked;
    if (b->user == NULL)
        (void)snprintf(out, size, "in memory that was never handed out");
    else if (at < b->user)
        (void)snprintf(out, size, "%zu bytes before a block of %zu bytes",
                       (size_t)(b->user - at), b->asked);
    else if (at >= end)
        (void)snprintf(out, size, "%zu bytes behind a block of %zu bytes",
                       (size_t)(at - end), b->asked);
    else
        (void)snprintf(out, size, "byte %zu of a block of %zu bytes",
                       (size_t)(at - b->user), b->asked);
}

/* Of this thread, or of the thread that has the block open. */
static const usc_sim_launch *launch_at(const block *b)
{
    const usc_sim_launch *l = usc_sim_launch_now();
    return l != NULL || b == NULL ? l : b->opener;
}

static void launched_at(const usc_sim_launch *l, char *out, size_t size)
{
    char place[USC_SIM_PLACE_TEXT] = "";
    out[0] = '\0';
    if (l != NULL && l->place != NULL) l->place(l->ctx, place, sizeof place);
    if (place[0] != '\0') (void)snprintf(out, size, ", launched at %s,", place);
}

static void history_of(const block *b, char *out, size_t size)
{
    out[0] = '\0';
    if (b == NULL || b->user == NULL) return;
    if (b->live)
        (void)snprintf(out, size, ", allocated by %s", by(b->allocated));
    else
        (void)snprintf(out, size, ", allocated by %s, freed by %s", by(b->allocated),
                       by(b->freed));
}

static void tell(const block *b, const char *at, const char *what, const char *why)
{
    char text[2048], place[128], history[2 * USC_SIM_LABEL_TEXT + 64];
    char launched[USC_SIM_PLACE_TEXT + 32], argument[768] = "";
    const usc_sim_launch *l = launch_at(b);
    (void)snprintf(place, sizeof place, "where no block is");
    if (b != NULL) place_of(b, at, place, sizeof place);
    history_of(b, history, sizeof history);
    launched_at(l, launched, sizeof launched);
    if (l != NULL) usc_sim_launch_tell(l, b, at, argument, sizeof argument);
    const int n = snprintf(text, sizeof text, "ulpscope: sim:%d: %s%s %s %s%p%s, %s%s\n",
                           usc_sim_device_of(at), who(b), launched, what, argument,
                           (const void *)at, why, place, history);
    const size_t length = n < 0                     ? 0
                          : (size_t)n < sizeof text ? (size_t)n
                                                    : sizeof text - 1;
    if (write(STDERR_FILENO, text, length) < 0) return; /* there is nobody to tell */
}

static const char *why(const block *b, bool writes)
{
    if (b == NULL || !b->live) return "";
    if (writes && b->n_readers > 0 && b->n_writers == 0)
        return " (open for reading only)";
    return b->n_readers + b->n_writers == 0 ? " (closed)" : "";
}

static void tell_fault(const char *at, const void *context)
{
    static const char *const verbs[] = {
        [USC_TRAP_TOUCHES] = "touches",
        [USC_TRAP_READS] = "reads",
        [USC_TRAP_WRITES] = "writes to",
    };
    const usc_trap_access access = usc_trap_access_of(context, at);
    /* Behind a block that ends at it lies the closed page. */
    const block *b = usc_sim_block_of(at);
    if (b == NULL) b = usc_sim_block_of(at - usc_sim_page_size());
    tell(b, at, verbs[access], why(b, access == USC_TRAP_WRITES));
}

/* Prints, which a handler should not: the process is about to end. Whoever had the signal
 * before has it then; without a handler the instruction faults once more, and a signal
 * that somebody sent is sent again. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = number == SIGSEGV ? &before_segv : &before_bus;
    if (info->si_code > 0 && usc_sim_device_of(info->si_addr) >= 0)
        tell_fault(info->si_addr, context);
    if ((before->sa_flags & SA_SIGINFO) != 0) {
        before->sa_sigaction(number, info, context);
    } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    } else {
        (void)sigaction(number, before, NULL);
        if (info->si_code <= 0) (void)raise(number);
    }
}

void usc_sim_violation_watch(void)
{
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = on_fault;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&act.sa_mask);
    (void)sigaction(SIGSEGV, &act, &before_segv);
    (void)sigaction(SIGBUS, &act, &before_bus);
}

void usc_sim_violation_red_zone(const block *b, const char *at)
{
    tell(b, at, "wrote to", "");
    usc_sim_crash();
}
