// SPDX-License-Identifier: Apache-2.0
// The rate counts from the first that is done: workers take seconds to start. The thread
// takes no signal, and draws nothing but what cli_progress_wait would.
#include "common/progress.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EVERY_SECONDS 5.0
#define REDRAW_SECONDS 0.1
#define PATIENCE_SECONDS 1.0
#define BEAT_NANOSECONDS 250000000L

/* The one that runs, if any; all of it under the lock. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t thread;
    cli_progress *p;
} beat = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void lock(void)
{
    (void)pthread_mutex_lock(&beat.lock);
}

static void unlock(void)
{
    (void)pthread_mutex_unlock(&beat.lock);
}

double cli_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

const char *cli_grouped(int64_t n, char out[32])
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    int at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

/* Seconds as "1:02" or "1:02:03". */
static void clock_text(double seconds, char *out, size_t size)
{
    const long long s = (long long)seconds, m = s / 60 % 60, h = s / 3600;
    if (h > 0)
        (void)snprintf(out, size, ", %lld:%02lld:%02lld left", h, m, s % 60);
    else
        (void)snprintf(out, size, ", %lld:%02lld left", m, s % 60);
}

/* "cases of 12 operators (34 a second)". */
static void units_text(const cli_progress *p, double now, int64_t timed, char *out,
                       size_t size)
{
    char n[32], rate[40] = "";
    if (timed > 0 && now > p->start)
        (void)snprintf(rate, sizeof rate, " (%.3g a second)",
                       (double)timed / (now - p->start));
    (void)snprintf(out, size, "cases of %s operator%s%s", cli_grouped(p->operators, n),
                   p->operators == 1 ? "" : "s", rate);
}

static bool is_checking(const cli_progress *p)
{
    return p->what == NULL || strcmp(p->what, "checking") == 0;
}

void cli_progress_text(const cli_progress *p, double now, char *out, size_t size)
{
    char a[32], b[32], c[32], flags[64] = "", left[48] = "", cases[96];
    const int64_t timed = p->done - p->first - 1; /* the first sets the clock */
    const double more = p->expected > 0 ? p->expected : (double)(p->total - p->done);
    if (timed > 0) clock_text((now - p->start) / (double)timed * more, left, sizeof left);
    const bool self_test = p->what != NULL && strcmp(p->what, "self-test") == 0;
    const char *what = self_test ? p->what : "";
    const char *units = self_test ? "signatures" : "calls";
    if (is_checking(p) && p->operators > 0) {
        units_text(p, now, timed, cases, sizeof cases);
        units = cases;
    }
    if (is_checking(p))
        (void)snprintf(flags, sizeof flags, ", %s flagged", cli_grouped(p->flagged, c));
    (void)snprintf(out, size, "ulpscope %s: %s%s%s of %s %s%s%s", p->command, what,
                   *what != '\0' ? ": " : "", cli_grouped(p->done, a),
                   cli_grouped(p->total, b), units, flags, left);
}

static void show(cli_progress *p, double now, const char *text)
{
    p->shown = now;
    if (p->terminal)
        (void)fprintf(stderr, "\r\033[K%s", text);
    else
        (void)fprintf(stderr, "%s\n", text);
    (void)fflush(stderr);
    p->drawn = p->terminal;
}

static void tell(cli_progress *p, const char *what, int64_t done, int64_t total,
                 int64_t flagged)
{
    const double now = cli_now();
    p->done = done;
    p->total = total;
    p->flagged = flagged;
    p->moved = now;
    if (p->what == NULL || strcmp(p->what, what) != 0) { /* it begins */
        p->what = what;
        p->first = done > 0 && !is_checking(p) ? done - 1 : done;
        p->start = now;
        if (!p->waited) p->shown = now;
        if (is_checking(p)) return;
        p->expected = 0;
    }
    if (done == p->first + 1) p->start = now;
    if (now - p->shown < (p->terminal ? REDRAW_SECONDS : EVERY_SECONDS)) return;
    char text[200];
    cli_progress_text(p, now, text, sizeof text);
    show(p, now, text);
}

void cli_progress_tell(cli_progress *p, const char *what, int64_t done, int64_t total,
                       int64_t flagged)
{
    lock();
    tell(p, what, done, total, flagged);
    unlock();
}

double cli_progress_clock(void)
{
    static double begun;
    if (begun <= 0) begun = cli_now();
    return begun;
}

bool cli_progress_waits(const cli_progress *p, double now, char *out, size_t size)
{
    const bool starts = p->what == NULL || p->done <= p->first;
    const bool again = p->what != NULL && !is_checking(p);
    const double since = now - (!starts ? p->moved : again ? p->start : p->begun);
    const bool first = starts && !again && !p->waited && p->starts;
    char text[200], seconds[32] = "";
    if (since < PATIENCE_SECONDS) return false;
    if (!first && now - p->shown < (p->terminal ? 1 : EVERY_SECONDS)) return false;
    if (!first) (void)snprintf(seconds, sizeof seconds, " (%.0f s)", since);
    if (starts && !again)
        (void)snprintf(text, sizeof text, "ulpscope %s: %s", p->command,
                       p->starts ? "workers start, which load torch" : "reading");
    else
        cli_progress_text(p, now, text, sizeof text);
    (void)snprintf(out, size, "%s%s", text, seconds);
    return true;
}

static void wait_on(cli_progress *p)
{
    const double now = cli_now();
    char text[240];
    if (!cli_progress_waits(p, now, text, sizeof text)) return;
    p->waited |= p->starts;
    show(p, now, text);
}

void cli_progress_wait(cli_progress *p)
{
    lock();
    p->starts = true;
    wait_on(p);
    unlock();
}

/* ---- from beginning to end ---- */

static void *watch(void *unused)
{
    (void)unused;
    lock();
    while (beat.p != NULL) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += BEAT_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&beat.ended, &beat.lock, &until);
        if (beat.p != NULL) wait_on(beat.p);
    }
    unlock();
    return NULL;
}

/* Signals are for the thread that works. Without another thread it is as silent as what it
 * calls. */
static void start_watch(cli_progress *p)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    beat.p = p;
    if (pthread_create(&beat.thread, NULL, watch, NULL) != 0) beat.p = NULL;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void cli_progress_read(cli_progress *p, const char *command)
{
    const double now = cli_now();
    *p = (cli_progress){.command = command, .begun = cli_progress_clock(), .moved = now};
    p->terminal = isatty(STDERR_FILENO) != 0;
    p->shown = now;
    start_watch(p);
}

void cli_progress_begin(cli_progress *p, const char *command)
{
    char text[80]; /* reading many thousand calls takes seconds, before any worker runs */
    cli_progress_read(p, command);
    if (!p->terminal) return;
    (void)snprintf(text, sizeof text, "ulpscope %s: reading", command);
    lock();
    show(p, cli_now(), text);
    unlock();
}

static void clear(cli_progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    p->drawn = false;
}

void cli_progress_end(cli_progress *p)
{
    lock();
    const bool watched = beat.p == p;
    if (watched) beat.p = NULL;
    clear(p);
    (void)pthread_cond_signal(&beat.ended);
    unlock();
    if (watched) (void)pthread_join(beat.thread, NULL);
}

void cli_progress_hide(void)
{
    lock();
    if (beat.p != NULL) clear(beat.p);
    unlock();
}

void cli_progress_say(cli_progress *p, const char *text)
{
    lock();
    clear(p);
    (void)fprintf(stderr, "ulpscope %s: %s\n", p->command, text);
    (void)fflush(stderr);
    if (beat.p == p) p->shown = cli_now();
    unlock();
}
