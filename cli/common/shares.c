// SPDX-License-Identifier: Apache-2.0
// The other ranks of a check, asked through the Python process that started this one
// (ulpscope.shares, which has the store): a line there, a line back.
//
//   meet AREA       "0", or -2: there is nothing to do, -3: rank 0 is gone
//   claim N AREA    a share below N, or -1: later, -2: all are done, -3: nobody can tell;
//                   N 0, none is wanted: -2 as soon as nothing more comes from the others
//   done K AREA     "0"
//   leave AREA      "0": nothing more comes from here
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/hooks.h"
#include "common/stop.h"

#define VARIABLE "ULPSCOPE_SHARES"
#define SHARE_OF_MEMORY 0.75

/* One line back, as a number; USC_SHARE_LOST where none comes. */
static int64_t answer(cli_shares *s)
{
    char line[32];
    size_t n = 0;
    while (n + 1 < sizeof line) {
        const ssize_t got = read(s->in, line + n, 1);
        if (got < 0 && errno == EINTR && cli_stop_asked() == 0) continue;
        if (got <= 0) return USC_SHARE_LOST;
        if (line[n++] == '\n') break;
    }
    line[n] = '\0';
    char *end;
    const long long number = strtoll(line, &end, 10);
    return end != line && *end == '\n' ? number : USC_SHARE_LOST;
}

static int64_t ask(cli_shares *s, const char *format, ...) USC_PRINTF(2, 3);

static int64_t ask(cli_shares *s, const char *format, ...)
{
    char line[PATH_MAX + 64];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line || write(s->out, line, (size_t)n) != n)
        return USC_SHARE_LOST;
    return answer(s);
}

static int meet(void *ctx)
{
    cli_shares *s = ctx;
    return (int)ask(s, "meet %s\n", s->area);
}

static int64_t claim(void *ctx, int64_t n)
{
    cli_shares *s = ctx;
    return ask(s, "claim %lld %s\n", (long long)n, s->area);
}

static void done(void *ctx, int64_t share)
{
    cli_shares *s = ctx;
    (void)ask(s, "done %lld %s\n", (long long)share, s->area);
}

void cli_shares_leave(cli_shares *s, const char *out)
{
    (void)ask(s, "leave %s\n", out);
}

/* A rank that is killed has its program stop, with what it found. Between its fork and this
 * it may be gone already. */
static void end_with(pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) (void)raise(SIGTERM);
}

/* Seven numbers: rank, ranks, place on this machine, how many there, two descriptors, the
 * process that keeps the store. */
cli_shares *cli_shares_found(void)
{
    static cli_shares shares;
    static bool looked, found;
    if (looked) return found ? &shares : NULL;
    looked = true;
    const char *said = getenv(VARIABLE);
    int parent = 0;
    shares = (cli_shares){
        .ranks = {.ctx = &shares, .meet = meet, .claim = claim, .done = done}};
    found =
        said != NULL &&
        sscanf(said, "%d %d %d %d %d %d %d", &shares.ranks.rank, &shares.ranks.n,
               &shares.local, &shares.n_local, &shares.in, &shares.out, &parent) == 7 &&
        shares.ranks.n > 1 && fcntl(shares.in, F_SETFD, FD_CLOEXEC) == 0 &&
        fcntl(shares.out, F_SETFD, FD_CLOEXEC) == 0;
    (void)unsetenv(VARIABLE); /* no child's business */
    if (found) end_with(parent);
    return found ? &shares : NULL;
}

void cli_shares_divide(cli_shares *s, usc_check_options *o)
{
    static const char *const single[] = {"cpu", "sim", "meta", "mps"};
    bool several = strchr(o->device, ':') == NULL;
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++)
        several &= strcmp(o->device, single[i]) != 0;
    o->cores = o->cores / s->n_local > 0 ? o->cores / s->n_local : 1;
    if (o->memory == 0)
        o->memory = (int64_t)(SHARE_OF_MEMORY * (double)usc_memory_free()) / s->n_local;
    if (several && (size_t)snprintf(s->device, sizeof s->device, "%s:%d", o->device,
                                    s->local) < sizeof s->device)
        o->runs_on = s->device;
}
