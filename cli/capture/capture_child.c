// SPDX-License-Identifier: Apache-2.0
// The command under `ulpscope capture`: found, started, waited for.
#include "capture/capture.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "common/progress.h"
#include "common/stop.h"

extern char **environ;

enum { GRACE_S = 10, LOOK_NS = 200000000 };

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static bool is_program(const char *path)
{
    return is_file(path) && access(path, X_OK) == 0;
}

bool capture_can_run(const char *name)
{
    const char *at = getenv("PATH");
    if (strchr(name, '/') != NULL) {
        if (is_program(name)) return true;
        at = "";
    }
    if (at == NULL) at = "/bin:/usr/bin";
    for (bool more = *at != '\0'; more;) {
        char path[PATH_MAX];
        const int n = (int)strcspn(at, ":");
        (void)snprintf(path, sizeof path, "%.*s%s%s", n, at, n > 0 ? "/" : "", name);
        if (is_program(path)) return true;
        more = at[n] == ':';
        at += n + more;
    }
    if (is_file(name))
        return cli_fail("%s is not executable; name its interpreter, e.g. -- python %s",
                        name, name) == 0;
    return cli_fail("command not found: %s", name) == 0;
}

/* The signals that we pass on; who was started with one ignored, as under nohup, goes on
 * ignoring it, and so does the command. */
static sigset_t passed_on(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            (void)sigaddset(&set, numbers[i]);
    }
    return set;
}

bool capture_child_start(capture_child *c, char **command)
{
    posix_spawnattr_t attributes;
    sigset_t anew;
    int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    *c = (capture_child){.own_group = isatty(STDIN_FILENO) == 0, .ours = passed_on()};
    if (c->own_group) flags |= POSIX_SPAWN_SETPGROUP; /* else a terminal signals us all */
    (void)signal(SIGCHLD, SIG_DFL); /* or there is nothing to wait for */
    (void)sigaddset(&c->ours, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &c->ours, &c->before);
    (void)sigemptyset(&anew);
    (void)sigaddset(&anew, SIGXFSZ); /* which this program ignores for itself */
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setsigmask(&attributes, &c->before);
    (void)posix_spawnattr_setsigdefault(&attributes, &anew);
    (void)posix_spawnattr_setflags(&attributes, (short)flags);
    const int error =
        posix_spawnp(&c->pid, command[0], NULL, &attributes, command, environ);
    (void)posix_spawnattr_destroy(&attributes);
    if (error == 0) return true;
    (void)sigprocmask(SIG_SETMASK, &c->before, NULL);
    if (error == E2BIG)
        return cli_fail("the command line and the environment are together too long for "
                        "this system; shorten them") == 0;
    return cli_fail("cannot run %s: %s", command[0], strerror(error)) == 0;
}

/* Signals the command, with all that it started where that is known. */
static void send(const capture_child *c, int number)
{
    (void)kill(c->own_group ? -c->pid : c->pid, number);
}

static void pass_on(capture_child *c, int number)
{
    c->interrupted = number;
    /* A terminal has sent Ctrl-C to the command, too. */
    if (number != SIGINT || c->own_group) send(c, number);
}

int capture_child_wait(capture_child *c, bool (*is_over)(void *ctx), void *ctx)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};
    double deadline = 0, next = cli_now() + LOOK_NS / 1e9;
    int status = 0;
    if (cli_stop_asked() != 0) pass_on(c, cli_stop_asked()); /* just before it began */
    while (waitpid(c->pid, &status, WNOHANG) == 0) {
        const int number = sigtimedwait(&c->ours, NULL, &look);
        if (number > 0 && number != SIGCHLD) pass_on(c, number);
        if (cli_now() < next) continue;
        next = cli_now() + LOOK_NS / 1e9;
        if (deadline <= 0) {
            if (is_over(ctx)) deadline = cli_now() + GRACE_S;
        } else if (cli_now() > deadline) {
            send(c, cli_now() > deadline + GRACE_S ? SIGKILL : SIGTERM);
        }
    }
    return status;
}
