// SPDX-License-Identifier: Apache-2.0
// Finds and runs the Python side; see cli_python.h. Neighbour: python/ulpscope.
#include "cli_python.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Reads until the child closes its output; false when time is up. */
static bool collect(int fd, int64_t deadline, char *output, size_t size)
{
    size_t n = 0;
    for (;;) {
        const int64_t left = deadline - now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int ready = poll(&p, 1, left > 0 ? (int)left : 0);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        char rest[512];
        const bool full = n + 1 >= size;
        const ssize_t got =
            read(fd, full ? rest : output + n, full ? sizeof rest : size - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return true;
        if (!full) n += (size_t)got;
        if (size > 0) output[n] = '\0';
    }
}

static int reap(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int cli_run(char *const argv[], int timeout_ms, char *output, size_t size)
{
    int ends[2];
    if (size > 0) output[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;

    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawnattr_init(
        &attributes); /* own group: a timeout ends grandchildren too */
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    pid_t child = 0;
    const int failed =
        posix_spawnp(&child, argv[0], &actions, &attributes, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    (void)close(ends[1]);

    int code = -1;
    if (failed == 0) {
        const bool in_time = collect(ends[0], now_ms() + timeout_ms, output, size);
        if (!in_time) (void)kill(-child, SIGKILL);
        code = reap(child);
        if (!in_time) code = -2;
    }
    (void)close(ends[0]);
    return code;
}

/* Finding the spec imports nothing: the answer comes in tens of milliseconds. It is the
 * exit code: what a site prints when Python starts is nothing to us. */
static bool has_package(const char *python)
{
    char program[PATH_MAX];
    (void)snprintf(program, sizeof program, "%s", python);
    char flag[] = "-c";
    char code[] = "import importlib.util as u, os; "
                  "os._exit(40 if u.find_spec('ulpscope') is not None else 41)";
    char *argv[] = {program, flag, code, NULL};
    char output[8];
    return cli_run(argv, 20000, output, sizeof output) == 40;
}

static bool beside_program(char *path, size_t size)
{
    static const char name[] = "python3";
    const ssize_t n = readlink("/proc/self/exe", path, size - sizeof name - 1);
    if (n <= 0) return false;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL) return false;
    memcpy(slash + 1, name, sizeof name);
    return access(path, X_OK) == 0;
}

bool cli_python_find(char *path, size_t size, usc_error *err)
{
    const char *wanted = getenv("ULPSCOPE_PYTHON");
    if (wanted != NULL && *wanted != '\0') {
        (void)snprintf(path, size, "%s", wanted);
        if (has_package(path)) return true;
        (void)usc_error_set(
            err, USC_E_NOT_FOUND, -1,
            "ULPSCOPE_PYTHON is '%s', which does not run or has no package "
            "'ulpscope'; name the interpreter that it is installed in",
            wanted);
        return false;
    }
    if (beside_program(path, size) && has_package(path)) return true;
    (void)snprintf(path, size, "%s", USC_PYTHON);
    if (has_package(path)) return true;
    (void)snprintf(path, size, "python3");
    if (has_package(path)) return true;
    (void)usc_error_set(
        err, USC_E_NOT_FOUND, -1,
        "no Python with the package 'ulpscope' found (tried the one beside "
        "this program, %s, and python3); set ULPSCOPE_PYTHON to the "
        "interpreter that it is installed in",
        USC_PYTHON);
    return false;
}

static void block_interrupt(int how)
{
    sigset_t interrupt;
    (void)sigemptyset(&interrupt);
    (void)sigaddset(&interrupt, SIGINT);
    (void)sigprocmask(how, &interrupt, NULL);
}

/* Copies of all parts of a command line; NULL without memory. */
static char **command_line(const char *const *parts, size_t n, char **words)
{
    size_t n_words = 0;
    while (words[n_words] != NULL)
        n_words++;
    char **out = calloc(n + n_words + 1, sizeof *out);
    for (size_t i = 0; out != NULL && i < n + n_words; i++)
        out[i] = i < n ? strdup(parts[i]) : words[i - n];
    return out;
}

int cli_python_exec(const char *module, const char *const *values, size_t n_values,
                    char **words)
{
    enum { MOST_VALUES = 16, N_FIRST = 4 };
    char python[PATH_MAX];
    usc_error err;
    const char *parts[N_FIRST + MOST_VALUES] = {python, "-m", "ulpscope.sources.started",
                                                module};
    if (!cli_python_find(python, sizeof python, &err)) return cli_fail("%s", err.text);
    for (size_t i = 0; i < n_values && i < MOST_VALUES; i++)
        parts[N_FIRST + i] = values[i];
    char **command = command_line(parts, N_FIRST + n_values, words);
    if (command == NULL) return cli_fail("out of memory");
    block_interrupt(SIG_BLOCK); /* until ulpscope.sources.started can answer it */
    (void)execvp(python, command);
    const int error = errno;
    block_interrupt(SIG_UNBLOCK);
    if (error == E2BIG)
        return cli_fail("the command line and the environment are together too long for "
                        "this system; shorten them");
    return cli_fail("cannot run %s: %s", python, strerror(error));
}
