// SPDX-License-Identifier: Apache-2.0
// What a kernel's thread does that the machine stops (memory that is not its own, a division
// by zero) ends the kernel, not the process: the signal goes back to the host's stack, and
// the failure says who it was, where in the source, and what lies there.
#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "blocks.h"
#include "grid_parts.h"
#include "trap.h"

#define ALT_SIZE ((size_t)64 << 10)

enum { N_SIGNALS = 3 };
static const int signals[N_SIGNALS] = {SIGSEGV, SIGBUS, SIGFPE};
static struct sigaction before[N_SIGNALS];
static stack_t before_stack;

static volatile struct {
    bool happened;
    usc_trap_access access;
    int number;
    const char *address;
    const char *code;
} caught;

/* ---- the signal ---------------------------------------------------------------------- */

static void pass_on(int number, siginfo_t *info, void *context)
{
    for (int i = 0; i < N_SIGNALS; i++) {
        if (signals[i] != number) continue;
        if ((before[i].sa_flags & SA_SIGINFO) != 0)
            before[i].sa_sigaction(number, info, context);
        else if (before[i].sa_handler != SIG_DFL && before[i].sa_handler != SIG_IGN)
            before[i].sa_handler(number);
        else
            (void)sigaction(number, &before[i], NULL);
    }
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    if (!usc_grid_inside() || info->si_code <= 0) { /* another thread; somebody sent it */
        pass_on(number, info, context);
        return;
    }
    caught.happened = true;
    caught.number = number;
    caught.address = info->si_addr;
    caught.code = usc_trap_code(context);
    caught.access = usc_trap_access_of(context, info->si_addr);
    usc_grid_stop();
}

bool usc_grid_fault_caught(void)
{
    return caught.happened;
}

void usc_grid_fault_watch(void)
{
    static _Thread_local char *alt;
    caught.happened = false;
    if (alt == NULL) {
        alt = mmap(NULL, ALT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
        if (alt == MAP_FAILED) alt = NULL;
    }
    const stack_t mine = {.ss_sp = alt, .ss_size = ALT_SIZE};
    before_stack = (stack_t){.ss_flags = SS_DISABLE};
    if (alt != NULL) (void)sigaltstack(&mine, &before_stack);
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = on_signal;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&act.sa_mask);
    for (int i = 0; i < N_SIGNALS; i++)
        (void)sigaction(signals[i], &act, &before[i]);
}

void usc_grid_fault_end(void)
{
    for (int i = 0; i < N_SIGNALS; i++)
        (void)sigaction(signals[i], &before[i], NULL);
    (void)sigaltstack(&before_stack, NULL);
}

/* ---- words --------------------------------------------------------------------------- */

void usc_grid_who(char *out, size_t size)
{
    const usc_grid_dim b = usc_grid_now.block, t = usc_grid_now.thread;
    (void)snprintf(out, size, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)",
                   usc_grid.kernel->name, b.x, b.y, b.z, t.x, t.y, t.z);
}

/* The last lines of a program's output: an address and its line. */
static bool ask_addr2line(const char *library, uintptr_t offset, char *out, size_t size)
{
    char command[1024], line[512] = "";
    if (strchr(library, '\'') != NULL) return false;
    const int n =
        snprintf(command, sizeof command, "addr2line -e '%s' 0x%" PRIxPTR " 2>/dev/null",
                 library, offset);
    if (n < 0 || (size_t)n >= sizeof command) return false;
    FILE *answer = popen(command, "r");
    if (answer == NULL) return false;
    const bool got = fgets(line, sizeof line, answer) != NULL;
    (void)pclose(answer);
    line[strcspn(line, " \n")] = '\0'; /* behind it may stand "(discriminator 2)" */
    const char *name = strrchr(line, '/');
    name = name != NULL ? name + 1 : line;
    if (!got || name[0] == '?' || name[0] == '\0') return false;
    (void)snprintf(out, size, "%s", name);
    return true;
}

void usc_grid_line_of(const void *code, char *out, size_t size)
{
    Dl_info where;
    out[0] = '\0';
    if (code == NULL || dladdr(code, &where) == 0 || where.dli_fname == NULL) return;
    const uintptr_t offset = (uintptr_t)code - (uintptr_t)where.dli_fbase;
    if (ask_addr2line(where.dli_fname, offset, out, size)) return;
    if (ask_addr2line(where.dli_fname, (uintptr_t)code, out, size))
        return; /* a program */
    if (where.dli_sname != NULL) (void)snprintf(out, size, "%s", where.dli_sname);
}

/* The argument that lies in the block at `first`; NULL: none. */
static const usc_grid_argument *argument_at(const char *first, const char *end)
{
    const usc_grid_argument *found = NULL;
    const usc_grid_kernel *k = usc_grid.kernel;
    for (size_t i = 0; i < k->n_arguments; i++) {
        const usc_grid_argument *a = &k->arguments[i];
        const char *at = a->address;
        if (at >= first && at < end && (found == NULL || !found->write)) found = a;
    }
    return found;
}

static void seen_from(const char *at, const char *first, const char *end,
                      const usc_grid_argument *a, char *out, size_t size)
{
    char what[64] = "a block that is no argument";
    if (a != NULL) (void)snprintf(what, sizeof what, "argument %d", a->position);
    if (at < first)
        (void)snprintf(out, size, "%zu bytes before %s, a block of %zu bytes",
                       (size_t)(first - at), what, (size_t)(end - first));
    else if (at >= end)
        (void)snprintf(out, size, "%zu bytes behind the end of %s, a block of %zu bytes",
                       (size_t)(at - end), what, (size_t)(end - first));
    else
        (void)snprintf(out, size, "byte %zu of %s%s", (size_t)(at - first), what,
                       a != NULL && !a->write ? ", which is const" : "");
}

void usc_grid_where(const void *address, char *out, size_t size)
{
    const char *first = NULL, *end = NULL, *at = address;
    const size_t page = usc_sim_page_size();
    bool live = false;
    if ((uintptr_t)at < page) {
        (void)snprintf(out, size, "through a null pointer");
    } else if (usc_fiber_overflows(usc_grid.now, at)) {
        (void)snprintf(out, size, "below its stack, which has %zu bytes",
                       USC_GRID_STACK_SIZE);
    } else if (usc_sim_device_of(at) < 0) {
        (void)snprintf(out, size, "%p, which is no memory of the device", address);
    } else if (usc_sim_extent(at, &first, &end, &live) ||
               usc_sim_extent(at - page, &first, &end, &live)) {
        seen_from(at, first, end, argument_at(first, end), out, size);
    } else {
        (void)snprintf(out, size, "%p, where no block is", address);
    }
}

bool usc_grid_fault_told(void)
{
    static const char *const verbs[] = {
        [USC_TRAP_TOUCHES] = "touches",
        [USC_TRAP_READS] = "reads",
        [USC_TRAP_WRITES] = "writes",
    };
    char who[192], line[160], where[160];
    if (!caught.happened) return false;
    caught.happened = false;
    usc_grid_who(who, sizeof who);
    usc_grid_line_of(caught.code, line, sizeof line);
    const char *at = line[0] != '\0' ? " at " : "";
    if (caught.number == SIGFPE) {
        (void)usc_error_set(&usc_grid.failure, USC_E_ARG, -1,
                            "%s: divides an integer by zero%s%s", who, at, line);
        return true;
    }
    usc_grid_where(caught.address, where, sizeof where);
    (void)usc_error_set(&usc_grid.failure, USC_E_ARG, -1, "%s: %s %s%s%s", who,
                        verbs[caught.access], where, at, line);
    return true;
}
