// SPDX-License-Identifier: Apache-2.0
// One loop over the workers' pipes. Requests keep their order: one that waits for memory
// is not overtaken for ever.
#include "run/crew.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "run/rooms.h"
#include "run/worker.h"

#define START_SECONDS 600.0 /* importing torch, compiling glue on a busy machine */

enum { NO_JOB = -1, TURN_MS = 1000 };

typedef struct member {
    usc_worker worker;
    int number; /* never given twice */
    bool ready, idle;
    int64_t job;       /* that it works on */
    int64_t searching; /* whose row is here, while its cause is sought */
    char phase[USC_WORKER_NOTE_SIZE];
    double since; /* when that began */
    int64_t said; /* what it had written by itself before the job */
} member;

typedef struct crew {
    const usc_crew_settings *settings;
    const usc_crew_work *work;
    const usc_run_hooks *hooks;
    char *const *command;
    usc_known known;
    usc_line line;
    member **member;
    int n, n_hired;
    int64_t held; /* a job that waits for memory */
    bool met;
    bool answered; /* the device did, to the first worker */
    usc_error *err;
} crew;

double usc_run_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool is_busy(const member *m)
{
    return m->job != NO_JOB || m->searching != NO_JOB;
}

static bool has_work(const crew *c)
{
    return c->held != NO_JOB || c->work->more(c->work->ctx);
}

/* ---- hiring and firing ---- */

static usc_status hire(crew *c)
{
    if (c->command == NULL) c->command = c->hooks->command(c->hooks->ctx, c->err);
    if (c->command == NULL) return c->err != NULL ? c->err->status : USC_E_NOT_FOUND;
    member *m = calloc(1, sizeof *m);
    if (m == NULL) return usc_no_memory("a worker", c->err);
    const usc_status st = usc_worker_start(&m->worker, c->command, c->settings->text,
                                           c->hooks->environment, c->err);
    if (st != USC_OK) {
        free(m);
        return st;
    }
    m->number = c->n_hired++;
    m->job = m->searching = NO_JOB;
    m->since = usc_run_clock();
    (void)strcpy(m->phase, "start");
    c->member[c->n++] = m;
    return USC_OK;
}

/* Where a member has come to since this was looked at; of the last call it says nothing.
 */
static void look(member *m)
{
    char phase[USC_WORKER_NOTE_SIZE];
    double since;
    if (m->job == NO_JOB || !usc_worker_note(&m->worker, phase, &since) ||
        since < m->since)
        return;
    (void)strcpy(m->phase, phase);
    m->since = since;
}

static void tell_known(void *ctx, int who, const char *line)
{
    const crew *c = ctx;
    for (int i = 0; i < c->n; i++)
        if (c->member[i]->number == who) usc_worker_tell(&c->member[i]->worker, line);
}

static usc_known_hearer hearer_of(crew *c)
{
    return (usc_known_hearer){.ctx = c, .tell = tell_known};
}

/* Takes a worker out of the crew; its exit status. The caller frees the member. */
static int fire(crew *c, member *m, bool kill_it)
{
    for (int i = 0; i < c->n; i++)
        if (c->member[i] == m) {
            c->member[i] = c->member[--c->n];
            break;
        }
    const usc_known_hearer hearer = hearer_of(c);
    usc_known_gone(&c->known, m->number, &hearer);
    return usc_worker_end(&m->worker, kill_it);
}

static void close_all(crew *c)
{
    while (c->n > 0) {
        member *m = c->member[--c->n];
        (void)usc_worker_end(&m->worker, true);
        free(m);
    }
    free(c->member);
    usc_known_free(&c->known);
    usc_line_free(&c->line);
}

/* ---- handing out ---- */

static int64_t room_of(const crew *c, int64_t job)
{
    const int64_t need = c->work->room != NULL ? c->work->room(c->work->ctx, job) : 0;
    return need < c->settings->memory ? need : c->settings->memory;
}

/* Whether there is memory for a job beside those that are worked on. */
static bool admits(const crew *c, int64_t job)
{
    if (c->settings->memory == 0 || c->work->room == NULL) return true;
    int64_t held = 0;
    for (int i = 0; i < c->n; i++) {
        const member *m = c->member[i];
        if (is_busy(m)) held += room_of(c, m->job != NO_JOB ? m->job : m->searching);
    }
    return usc_room_admits(c->settings->memory, room_of(c, job), held);
}

static usc_status give(crew *c, member *m, int64_t job)
{
    usc_line_clear(&c->line);
    c->work->request(c->work->ctx, job, &c->line);
    if (c->settings->memory > 0 && c->work->room != NULL)
        usc_line_add(&c->line, ", \"room\": %lld", (long long)room_of(c, job));
    usc_line_text(&c->line, "}\n");
    if (c->line.failed) return usc_no_memory("a worker", c->err);
    m->idle = false;
    m->job = job;
    m->said = usc_worker_said(&m->worker);
    (void)strcpy(m->phase, "device");
    m->since = usc_run_clock();
    usc_worker_tell(&m->worker, c->line.text);
    return USC_OK;
}

/* Gives work to those that have none, as far as there is memory for it. */
static usc_status feed(crew *c)
{
    usc_status st = USC_OK;
    for (int i = 0; i < c->n && st == USC_OK; i++) {
        if (!c->member[i]->idle) continue;
        if (!has_work(c)) return USC_OK;
        if (c->held == NO_JOB) c->held = c->work->take(c->work->ctx);
        if (!admits(c, c->held)) return USC_OK;
        const int64_t job = c->held;
        c->held = NO_JOB;
        st = give(c, c->member[i], job);
    }
    return st;
}

static usc_status replace(crew *c)
{
    const usc_status st = has_work(c) ? hire(c) : USC_OK;
    return st == USC_OK ? feed(c) : st;
}

/* Where work may still come: gives out what came, with one more hand for it where all
 * that there are have something to do. */
static usc_status look_for_more(crew *c)
{
    bool free_hand = false;
    for (int i = 0; i < c->n; i++)
        free_hand |= c->member[i]->idle || !c->member[i]->ready;
    if (!free_hand && c->n < c->settings->size && has_work(c)) return hire(c);
    return feed(c);
}

/* ---- hearing ---- */

static usc_status news_of(crew *c, usc_crew_event event, int64_t job, const usc_json *row,
                          const member *m, const char *how, const char *words)
{
    const usc_crew_news news = {.event = event,
                                .job = job,
                                .row = row,
                                .phase = m->phase,
                                .how = how,
                                .words = words,
                                .searching =
                                    event == USC_CREW_ROW && m->searching == job};
    return c->work->hear(c->work->ctx, &news, c->err);
}

/* The worker is gone: it was to be expected only between two calls. */
static usc_status bury(crew *c, member *m)
{
    char how[64], words[256];
    usc_worker_last_words(&m->worker, m->said, words, sizeof words);
    look(m);
    const int status = fire(c, m, false); /* it is going: let it say how */
    usc_worker_death(status, how, sizeof how);
    usc_status st = USC_OK;
    if (!m->ready)
        st = usc_error_set(c->err, USC_E_IO, -1, "a worker %s while starting: %s", how,
                           words);
    else if (m->job != NO_JOB)
        st = news_of(c, USC_CREW_LOST, m->job, NULL, m, how, words);
    else if (m->searching != NO_JOB)
        st = news_of(c, USC_CREW_CAUSE, m->searching, NULL, m, how, words);
    free(m);
    return st == USC_OK ? replace(c) : st;
}

static usc_status give_up(crew *c, member *m)
{
    (void)fire(c, m, true);
    usc_status st = USC_OK;
    if (!m->ready)
        st = usc_error_set(c->err, USC_E_IO, -1, "a worker did not start within %g s",
                           START_SECONDS);
    else if (m->job != NO_JOB)
        st = news_of(c, USC_CREW_LATE, m->job, NULL, m, "", "");
    else if (m->searching != NO_JOB)
        st = news_of(c, USC_CREW_CAUSE, m->searching, NULL, m, "", "");
    free(m);
    return st == USC_OK ? replace(c) : st;
}

/* What a worker asks or tells of findings that are alike; whether that was it. */
static bool share(crew *c, const member *m, const usc_json *message)
{
    const usc_known_hearer hearer = hearer_of(c);
    const char *group = usc_json_as_text(usc_json_get(message, "group"));
    const char *found = usc_json_as_text(usc_json_get(message, "found"));
    const char *text = usc_json_as_text(usc_json_get(message, "text"));
    int64_t heard = 0, most = 0;
    if (group != NULL) {
        (void)usc_json_as_integer(usc_json_get(message, "heard"), &heard);
        (void)usc_json_as_integer(usc_json_get(message, "most"), &most);
        usc_known_ask(&c->known, m->number, group, heard, most, &hearer);
    } else if (found != NULL) {
        usc_known_found(&c->known, found, text != NULL ? text : "", &hearer);
    }
    return group != NULL || found != NULL;
}

/* What ends something: that a worker is ready, a row, its cause. */
static usc_status take_in(crew *c, member *m, const usc_json *message)
{
    usc_status st = USC_OK;
    const usc_json *ready = usc_json_get(message, "ready");
    const usc_json *row = usc_json_get(message, "row");
    const usc_json *cause = usc_json_get(message, "cause");
    const bool answers = usc_json_is_true(usc_json_get(message, "answers"));
    m->ready = true;
    if (ready != NULL && c->answered && !answers)
        return usc_error_set(c->err, USC_E_ARG, -1,
                             "the device is lost: it answered when this began, and does "
                             "not any more, in a new process, too; ulpscope doctor looks "
                             "for what is missing");
    if (ready != NULL && !c->met) {
        c->met = true;
        c->answered = answers;
        if (c->work->ready != NULL) st = c->work->ready(c->work->ctx, message, c->err);
    }
    if (st == USC_OK && row != NULL && m->job != NO_JOB) {
        const int64_t job = m->job;
        m->job = NO_JOB;
        if (usc_json_is_true(usc_json_get(message, "searching"))) {
            m->searching = job;
            m->since = usc_run_clock();
        }
        st = news_of(c, USC_CREW_ROW, job, row, m, "", "");
    }
    if (st == USC_OK && cause != NULL && m->searching != NO_JOB) {
        const int64_t job = m->searching;
        m->searching = NO_JOB;
        st = news_of(c, USC_CREW_CAUSE, job, cause, m, "", "");
    }
    m->idle = !is_busy(m) && !usc_json_is_true(usc_json_get(message, "leaving"));
    return st;
}

static usc_status understand(crew *c, member *m, const usc_json *message)
{
    const char *fatal = usc_json_as_text(usc_json_get(message, "fatal"));
    const char *words = usc_json_as_text(usc_json_get(message, "say"));
    if (fatal != NULL) return usc_error_set(c->err, USC_E_ARG, -1, "%s", fatal);
    if (words != NULL) {
        if (c->hooks->say != NULL) c->hooks->say(c->hooks->ctx, words);
    } else if (!share(c, m, message)) {
        return take_in(c, m, message);
    }
    return c->known.failed ? usc_no_memory("a worker", c->err) : USC_OK;
}

static usc_status hear(crew *c, member *m)
{
    if (!usc_worker_read(&m->worker))
        return m->worker.buffer.failed ? usc_no_memory("a worker", c->err) : bury(c, m);
    usc_status st = USC_OK;
    for (char *line; st == USC_OK && (line = usc_worker_line(&m->worker)) != NULL;) {
        usc_json *message = NULL;
        st = usc_json_parse(line, strlen(line), "a worker",
                            "said what is no line of ours", &message, c->err);
        if (st == USC_OK) st = understand(c, m, message);
        usc_json_free(message);
    }
    return st == USC_OK ? feed(c) : st;
}

/* ---- time ---- */

/* A start and a search have limits of their own; a search has its own within. */
static double limit_of(const crew *c, const member *m)
{
    const bool patient = !m->ready || m->searching != NO_JOB;
    return patient && c->settings->timeout < START_SECONDS ? START_SECONDS
                                                           : c->settings->timeout;
}

static double left_of(const crew *c, const member *m)
{
    return limit_of(c, m) - (usc_run_clock() - m->since);
}

/* Milliseconds until the next worker would be late, at most a second. */
static int patience(const crew *c)
{
    double least = 1.0;
    for (int i = 0; i < c->n; i++) {
        const member *m = c->member[i];
        if ((is_busy(m) || !m->ready) && left_of(c, m) < least) least = left_of(c, m);
    }
    return least > 0 ? (int)(least * TURN_MS) + 1 : 0;
}

static usc_status dismiss_late(crew *c)
{
    for (int i = 0; i < c->n; i++) {
        member *m = c->member[i];
        if ((is_busy(m) || !m->ready) && left_of(c, m) < 0) look(m);
        if ((is_busy(m) || !m->ready) && left_of(c, m) < 0) return give_up(c, m);
    }
    return USC_OK;
}

static usc_status turn(crew *c)
{
    struct pollfd *fds = calloc((size_t)c->n + 1, sizeof *fds);
    member **who = calloc((size_t)c->n + 1, sizeof *who);
    const int n = c->n;
    usc_status st = USC_OK;
    if (fds == NULL || who == NULL) st = usc_no_memory("a worker", c->err);
    for (int i = 0; st == USC_OK && i < n; i++) {
        who[i] = c->member[i];
        fds[i] = (struct pollfd){.fd = who[i]->worker.out, .events = POLLIN};
    }
    if (st == USC_OK && poll(fds, (nfds_t)n, patience(c)) > 0)
        for (int i = 0; st == USC_OK && i < n; i++)
            if (fds[i].revents != 0) st = hear(c, who[i]);
    if (st == USC_OK) st = dismiss_late(c);
    if (st == USC_OK && c->work->waits != NULL) st = look_for_more(c);
    free(fds);
    free(who);
    return st;
}

static bool goes_on(const crew *c, bool meet)
{
    bool busy = false;
    for (int i = 0; i < c->n; i++)
        busy |= is_busy(c->member[i]);
    const bool waits = c->work->waits != NULL && c->work->waits(c->work->ctx);
    return busy || has_work(c) || waits || (meet && !c->met);
}

static bool is_stopped(const usc_run_hooks *hooks)
{
    return hooks->stopped != NULL && hooks->stopped(hooks->ctx);
}

usc_status usc_crew_run(const usc_crew_settings *settings, const usc_crew_work *work,
                        const usc_run_hooks *hooks, bool *stopped, usc_error *err)
{
    usc_error own;
    crew c = {.settings = settings,
              .work = work,
              .hooks = hooks,
              .held = NO_JOB,
              .err = err != NULL ? err : &own};
    const bool any = work->more(work->ctx), meet = settings->meet && !any;
    usc_status st = USC_OK;
    *stopped = false;
    usc_known_begin(&c.known);
    c.member = calloc((size_t)settings->size + 1, sizeof *c.member);
    if (c.member == NULL) st = usc_no_memory("a worker", c.err);
    for (int i = 0; st == USC_OK && i < (any ? settings->size : meet); i++)
        st = hire(&c);
    while (st == USC_OK && goes_on(&c, meet)) {
        *stopped = is_stopped(hooks);
        if (*stopped) break;
        st = turn(&c);
        /* Ctrl-C reaches workers as well: one that dies of it while starting is no error.
         */
        *stopped = st != USC_OK && is_stopped(hooks);
        if (*stopped) st = USC_OK;
        if (*stopped) break;
    }
    close_all(&c);
    return st;
}
