// SPDX-License-Identifier: Apache-2.0
// Finds and runs the Python side; see cli_python.h. Neighbour: python/ulpscope.
#include "common/cli_python.h"

#include "cli.h"
#include "common/stop.h"

#include <errno.h>
#include <fcntl.h>
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

typedef enum { CLOSED, LATE, STOPPED } collected;

/* Reads until the child closes its output. */
static collected collect(int fd, int64_t deadline, bool stops, char *output, size_t size)
{
    enum { LOOK_MS = 200 }; /* how often to look whether it is to stop */
    size_t n = 0;
    for (;;) {
        const int64_t left = deadline - now_ms();
        const int wait = left > LOOK_MS && stops ? LOOK_MS : (int)left;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0) return LATE;
        if (stops && cli_stop_asked() != 0) return STOPPED;
        const int ready = poll(&p, 1, wait);
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        if (ready < 0) return LATE;
        char rest[512];
        const bool full = n + 1 >= size;
        const ssize_t got =
            read(fd, full ? rest : output + n, full ? sizeof rest : size - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return CLOSED;
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

static void block_interrupt(int how, sigset_t *before)
{
    sigset_t interrupt;
    (void)sigemptyset(&interrupt);
    (void)sigaddset(&interrupt, SIGINT);
    (void)sigprocmask(how, &interrupt, before);
}

/* In a group of its own: what ends it ends grandchildren, too. */
static int start(char *const argv[], bool talks, int output, pid_t *child)
{
    sigset_t before;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, output, 1);
    if (!talks)
        (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (talks) block_interrupt(SIG_BLOCK, &before);
    const int failed = posix_spawnp(child, argv[0], &actions, &attributes, argv, environ);
    if (talks) (void)sigprocmask(SIG_SETMASK, &before, NULL);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return failed;
}

int cli_run(char *const argv[], int timeout_ms, bool talks, char *output, size_t size)
{
    enum { GRACE_MS = 5000 };
    int ends[2];
    if (size > 0) output[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    pid_t child = 0;
    const int failed = start(argv, talks, ends[1], &child);
    (void)close(ends[1]);

    int code = -1;
    if (failed == 0) {
        collected how = collect(ends[0], now_ms() + timeout_ms, talks, output, size);
        const bool late = how == LATE;
        if (how == STOPPED) {
            (void)kill(-child, SIGINT);
            how = collect(ends[0], now_ms() + GRACE_MS, false, NULL, 0);
        }
        if (how == LATE) (void)kill(-child, SIGKILL);
        code = reap(child);
        if (late) code = -2;
    }
    (void)close(ends[0]);
    return code;
}

#define MARK "ulpscope lies in "

/* Finding the spec imports nothing: the answer comes in tens of milliseconds. A site may
 * print when Python starts: the answer is the exit code, and what follows the mark. */
static bool has_package(cli_python *python)
{
    enum { MOST_OF_A_SITE = 16384, TIMEOUT_MS = 20000 };
    char program[PATH_MAX], output[PATH_MAX + MOST_OF_A_SITE];
    (void)snprintf(program, sizeof program, "%s", python->program);
    char flag[] = "-c";
    char code[] = "import importlib.util as u, os\n"
                  "s = u.find_spec('ulpscope')\n"
                  "if s is None or s.origin is None: os._exit(41)\n"
                  "f = os.path.dirname(os.path.abspath(s.origin))\n"
                  "os.write(1, b'\\n" MARK "' + os.fsencode(f) + b'\\n'); os._exit(40)";
    char *argv[] = {program, flag, code, NULL};
    if (cli_run(argv, TIMEOUT_MS, false, output, sizeof output) != 40) return false;
    const char *at = strstr(output, "\n" MARK);
    if (at == NULL) return false;
    at += sizeof MARK;
    const int n = (int)strcspn(at, "\n");
    return (size_t)snprintf(python->package, PATH_MAX, "%.*s", n, at) < PATH_MAX;
}

bool cli_own_program(char *path, size_t size)
{
    const ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n <= 0) return false;
    path[n] = '\0';
    return true;
}

static bool beside_program(char *path, size_t size)
{
    static const char name[] = "python3";
    if (!cli_own_program(path, size - sizeof name)) return false;
    char *slash = strrchr(path, '/');
    if (slash == NULL) return false;
    memcpy(slash + 1, name, sizeof name);
    return access(path, X_OK) == 0;
}

bool cli_python_find(cli_python *out, usc_error *err)
{
    const char *wanted = getenv("ULPSCOPE_PYTHON");
    if (wanted != NULL && *wanted != '\0') {
        (void)snprintf(out->program, PATH_MAX, "%s", wanted);
        if (has_package(out)) return true;
        (void)usc_error_set(
            err, USC_E_NOT_FOUND, -1,
            "ULPSCOPE_PYTHON is '%s', which does not run or has no package "
            "'ulpscope'; name the interpreter that it is installed in",
            wanted);
        return false;
    }
    if (beside_program(out->program, PATH_MAX) && has_package(out)) return true;
    (void)snprintf(out->program, PATH_MAX, "%s", USC_PYTHON);
    if (has_package(out)) return true;
    (void)snprintf(out->program, PATH_MAX, "python3");
    if (has_package(out)) return true;
    (void)usc_error_set(
        err, USC_E_NOT_FOUND, -1,
        "no Python with the package 'ulpscope' found (tried the one beside "
        "this program, %s, and python3); set ULPSCOPE_PYTHON to the "
        "interpreter that it is installed in",
        USC_PYTHON);
    return false;
}

int cli_python_exec(const char *module, const char *const *words)
{
    cli_python python;
    usc_error err;
    size_t n = 0, at = 0;
    if (!cli_python_find(&python, &err)) return cli_fail("%s", err.text);
    while (words[n] != NULL)
        n++;
    const char *const first[] = {python.program, "-m", "ulpscope.program.started",
                                 module};
    char **command = calloc(n + 5, sizeof *command); /* copies: exec takes no const */
    bool ok = command != NULL;
    for (; ok && at < 4 + n; at++)
        ok = (command[at] = strdup(at < 4 ? first[at] : words[at - 4])) != NULL;
    if (!ok) return cli_fail("out of memory");
    block_interrupt(SIG_BLOCK, NULL); /* until ulpscope.program.started can answer it */
    (void)execvp(python.program, command);
    const int error = errno;
    block_interrupt(SIG_UNBLOCK, NULL);
    return cli_fail("cannot run %s: %s", python.program, strerror(error));
}
