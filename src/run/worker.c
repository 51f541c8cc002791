// SPDX-License-Identifier: Apache-2.0
// Starting, telling, hearing and ending one process.
#include "run/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

enum { END_MS = 10000, PAUSE_MS = 2, LONGEST_WORDS = 200, MOST_READ = 1 << 16 };

/* What a process is given. */
enum { IN, OUT, NOTE, LOG, N_ENDS };

static usc_status refused(const char *what, int code, usc_error *err)
{
    if (code == E2BIG)
        return usc_error_set(err, USC_E_IO, -1,
                             "the command line and the environment are together too long "
                             "for this system; shorten them");
    return usc_error_set(err, USC_E_IO, -1, "%s: %s", what, strerror(code));
}

/* The command with two more arguments. Errors: NULL without memory. */
static char **command_of(char *const command[], char *fd, char *settings)
{
    size_t n = 0;
    while (command[n] != NULL)
        n++;
    char **out = malloc((n + 3) * sizeof *out);
    if (out == NULL) return NULL;
    memcpy(out, command, n * sizeof *out);
    out[n] = fd;
    out[n + 1] = settings;
    out[n + 2] = NULL;
    return out;
}

/* A session of its own: what a terminal sends to us is ours to pass on. */
static int spawn(pid_t *process, char **argv, char *const environment[],
                 const int theirs[N_ENDS])
{
    const int log = theirs[LOG];
    char *none[] = {NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t no_signals;
    (void)sigemptyset(&no_signals);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_adddup2(&files, theirs[OUT], STDERR_FILENO + 1);
    (void)posix_spawn_file_actions_adddup2(&files, theirs[NOTE], USC_WORKER_NOTE);
    (void)posix_spawn_file_actions_adddup2(&files, theirs[IN], STDIN_FILENO);
    (void)posix_spawn_file_actions_adddup2(&files, log, STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&files, log, STDERR_FILENO);
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setsigmask(&how, &no_signals);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    const int code = posix_spawnp(process, argv[0], &files, &how, argv,
                                  environment != NULL ? environment : none);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&how);
    return code;
}

/* A descriptor above those that a process is started with, so that none is overwritten
 * while they are put in their places. */
static int lifted(int fd)
{
    const int above = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    if (above < 0) return fd;
    (void)close(fd);
    return above;
}

static bool open_ends(usc_worker *w, int theirs[N_ENDS])
{
    int in[2], out[2];
    w->note = memfd_create("ulpscope", MFD_CLOEXEC);
    if (w->note < 0) return false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0) return false;
    if (pipe2(out, O_CLOEXEC) != 0) {
        (void)close(in[0]);
        (void)close(in[1]);
        return false;
    }
    w->in = in[0];
    w->out = out[0];
    theirs[IN] = lifted(in[1]);
    theirs[OUT] = lifted(out[1]);
    theirs[NOTE] = lifted(dup(w->note));
    w->log = tmpfile();
    if (w->log == NULL || fcntl(fileno(w->log), F_SETFD, FD_CLOEXEC) != 0) return false;
    theirs[LOG] = lifted(dup(fileno(w->log)));
    return theirs[NOTE] >= 0 && theirs[LOG] >= 0;
}

static void close_ours(usc_worker *w)
{
    if (w->in >= 0) (void)close(w->in);
    if (w->out >= 0) (void)close(w->out);
    if (w->note >= 0) (void)close(w->note);
    if (w->log != NULL) (void)fclose(w->log);
    w->in = w->out = w->note = -1;
    w->log = NULL;
    usc_line_free(&w->buffer);
}

usc_status usc_worker_start(usc_worker *w, char *const command[], const char *settings,
                            char *const environment[], usc_error *err)
{
    int theirs[N_ENDS] = {-1, -1, -1, -1};
    char fd[] = USC_WORKER_FD, *own = strdup(settings);
    *w = (usc_worker){.in = -1, .out = -1, .note = -1};
    char **argv = own != NULL ? command_of(command, fd, own) : NULL;
    usc_status st = USC_OK;
    if (argv == NULL) st = usc_error_set(err, USC_E_NOMEM, -1, "a worker: no memory");
    if (st == USC_OK && !open_ends(w, theirs)) st = refused("a worker", errno, err);
    if (st == USC_OK) {
        const int code = spawn(&w->process, argv, environment, theirs);
        if (code != 0) st = refused(argv[0], code, err);
    }
    for (int i = 0; i < N_ENDS; i++)
        if (theirs[i] >= 0) (void)close(theirs[i]);
    if (st != USC_OK) close_ours(w);
    free(argv);
    free(own);
    return st;
}

void usc_worker_send(usc_worker *w, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (w->in >= 0 && size > 0) {
        const ssize_t n = send(w->in, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return;
        at += n;
        size -= (size_t)n;
    }
}

void usc_worker_tell(usc_worker *w, const char *line)
{
    usc_worker_send(w, line, strlen(line));
}

bool usc_worker_read(usc_worker *w)
{
    char bytes[1 << 16];
    ssize_t n;
    do
        n = read(w->out, bytes, sizeof bytes);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return false;
    if (w->taken > 0) {
        memmove(w->buffer.text, w->buffer.text + w->taken, w->buffer.n - w->taken + 1);
        w->buffer.n -= w->taken;
        w->taken = 0;
    }
    usc_line_put(&w->buffer, bytes, (size_t)n);
    return !w->buffer.failed;
}

char *usc_worker_line(usc_worker *w)
{
    if (w->buffer.text == NULL) return NULL;
    char *line = w->buffer.text + w->taken;
    char *end = memchr(line, '\n', w->buffer.n - w->taken);
    if (end == NULL) return NULL;
    *end = '\0';
    w->taken += (size_t)(end - line) + 1;
    return line;
}

bool usc_worker_bytes(usc_worker *w, void *out, size_t size)
{
    const size_t there = w->buffer.n - w->taken;
    const size_t first = there < size ? there : size;
    if (first > 0) memcpy(out, w->buffer.text + w->taken, first);
    w->taken += first;
    for (size_t got = first; got < size;) {
        const ssize_t n = read(w->out, (char *)out + got, size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        got += (size_t)n;
    }
    return true;
}

bool usc_worker_note(const usc_worker *w, char name[USC_WORKER_NOTE_SIZE], double *since)
{
    char text[USC_WORKER_NOTE_SIZE] = "", *end = NULL;
    const ssize_t n = pread(w->note, text, sizeof text - 1, 0);
    char *gap = n > 0 ? strchr(text, ' ') : NULL;
    if (gap == NULL || gap == text) return false;
    *gap = '\0';
    *since =
        (double)strtoll(gap + 1, &end, 10) / 1e9; /* no number with a locale's point */
    if (end == gap + 1 || *end != '\n') return false;
    (void)strcpy(name, text);
    return true;
}

static int reap(pid_t process, int limit_ms)
{
    int status = 0;
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    for (int spent = 0; spent < limit_ms; spent += PAUSE_MS) {
        const pid_t got = waitpid(process, &status, WNOHANG);
        if (got == process) return status;
        (void)nanosleep(&pause, NULL);
    }
    (void)kill(process, SIGKILL);
    while (waitpid(process, &status, 0) < 0)
        if (errno != EINTR) break;
    return status;
}

int usc_worker_end(usc_worker *w, bool kill_it)
{
    if (w->in >= 0) (void)close(w->in);
    w->in = -1;
    const int status = reap(w->process, kill_it ? 0 : END_MS);
    close_ours(w);
    return status;
}

int64_t usc_worker_said(const usc_worker *w)
{
    struct stat told;
    return fstat(fileno(w->log), &told) == 0 ? (int64_t)told.st_size : 0;
}

/* The text of a line without what no terminal and no report should be given. */
static void put_plain(const char *line, char *out, size_t size)
{
    size_t n = 0;
    const size_t room = size < LONGEST_WORDS ? size : LONGEST_WORDS;
    for (size_t step; *line != '\0'; line += step) {
        uint32_t code = 0;
        step = usc_utf8_next(line, &code);
        const bool is_text = step > 0 && code >= ' ' && code != 0x7f && code != 0xfffd;
        if (step == 0) step = 1;
        if (!is_text) continue;
        if (n + step >= room) break;
        memcpy(out + n, line, step);
        n += step;
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

void usc_worker_last_words(usc_worker *w, int64_t from, char *out, size_t size)
{
    char line[512], words[LONGEST_WORDS];
    const int64_t end = usc_worker_said(w);
    out[0] = '\0';
    if (end - from > MOST_READ) from = end - MOST_READ;
    if (fseek(w->log, (long)from, SEEK_SET) != 0) return;
    while (fgets(line, sizeof line, w->log) != NULL) {
        put_plain(line + strspn(line, " \t\r\n"), words, sizeof words);
        if (words[0] != '\0') (void)snprintf(out, size, "%s", words);
    }
}

void usc_worker_death(int status, char *out, size_t size)
{
    if (!WIFSIGNALED(status)) {
        (void)snprintf(out, size, "left with exit code %d", WEXITSTATUS(status));
        return;
    }
    const char *name = usc_signal_name(WTERMSIG(status));
    if (name != NULL)
        (void)snprintf(out, size, "died of SIG%s", name);
    else
        (void)snprintf(out, size, "died of signal %d", WTERMSIG(status));
}
