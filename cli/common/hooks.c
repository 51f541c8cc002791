// SPDX-License-Identifier: Apache-2.0
// The surroundings of a run. Neighbour: python.c finds the interpreter.
#include "common/hooks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/stop.h"

extern char **environ;

static bool is_stopped(void *ctx)
{
    cli_hooks *h = ctx;
    if (h->hooks.progress != NULL) cli_progress_wait(&h->progress);
    return cli_stop_asked() != 0;
}

static void say(void *ctx, const char *text)
{
    cli_hooks *h = ctx;
    cli_progress_say(&h->progress, text);
}

static void tell(void *ctx, const char *what, int64_t done, int64_t total,
                 int64_t flagged)
{
    cli_hooks *h = ctx;
    cli_progress_tell(&h->progress, what, done, total, flagged);
}

static void cover(void *ctx, int64_t n_operators)
{
    ((cli_hooks *)ctx)->progress.operators = n_operators;
}

static void expect(void *ctx, double n_calls)
{
    ((cli_hooks *)ctx)->progress.expected = n_calls;
}

static char *const *command(void *ctx, usc_error *err)
{
    static char flag[] = "-m", module[64];
    cli_hooks *h = ctx;
    (void)snprintf(module, sizeof module, "%s",
                   h->module != NULL ? h->module : "ulpscope.worker");
    if (!cli_python_find(&h->python, err)) return NULL;
    h->command[0] = h->python.program;
    h->command[1] = flag;
    h->command[2] = module;
    h->command[3] = NULL;
    h->hooks.environment = environ;
    return h->command;
}

/* A thread of OpenMP that is done spins for the next loop; beside other workers it takes
 * the core from those that have work. */
static void let_threads_sleep(void)
{
    static const char *const names[][2] = {
        {"OMP_WAIT_POLICY", "PASSIVE"}, {"GOMP_SPINCOUNT", "0"}, {"KMP_BLOCKTIME", "0"}};
    for (size_t i = 0; i < 3; i++)
        if (getenv(names[i][0]) != NULL) return;
    for (size_t i = 0; i < 3; i++)
        (void)setenv(names[i][0], names[i][1], 1);
}

void cli_hooks_begin(cli_hooks *h, const char *name)
{
    *h = (cli_hooks){0};
    cli_progress_begin(&h->progress, name);
    h->hooks = (usc_run_hooks){.ctx = h,
                               .command = command,
                               .say = say,
                               .progress = tell,
                               .covered = cover,
                               .expected = expect,
                               .stopped = is_stopped};
    let_threads_sleep();
    cli_stop_begin();
}

void cli_hooks_end(cli_hooks *h)
{
    cli_stop_end();
    cli_progress_end(&h->progress);
}

int cli_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int cli_threads(void)
{
    const char *said = getenv("OMP_NUM_THREADS");
    if (said == NULL) return 0;
    said += strspn(said, " ");
    const size_t n = strspn(said, "0123456789");
    const char *rest = said + n + strspn(said + n, " ");
    return n > 0 && n < 6 && (*rest == '\0' || *rest == ',') ? atoi(said) : 0;
}
