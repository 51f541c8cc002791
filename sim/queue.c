// SPDX-License-Identifier: Apache-2.0
// Streams: queues of commands, each worked off by a thread of its own that is made when
// the first command comes. Neighbours: event.c, schedule.c; streams.h is what they share.
#include "blocks.h"
#include "streams.h"

#include <ulpscope/x/aside.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FIRST_HIGH (1 + USC_SIM_POOL_STREAMS)
#define FIRST_FOR_RANKS (FIRST_HIGH + USC_SIM_POOL_STREAMS)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* something has */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static queue queues[USC_SIM_MOST_DEVICES][USC_SIM_N_STREAMS];
static queue *with_thread[USC_SIM_MOST_DEVICES * USC_SIM_N_STREAMS];
static int n_with_thread;
static int n_waiting; /* for `ended` */
static int n_handed_out[USC_SIM_MOST_DEVICES][3];
static bool launch_blocking;
static atomic_bool has_worked;
static bool bad_fork; /* the parent had threads, which this child lacks */
static _Thread_local int64_t current[USC_SIM_MOST_DEVICES];
static _Thread_local bool in_command;
static _Thread_local const char *place; /* of the command */

/* ---- the lock, and what a fork does to it ---------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

/* What was queued is the parent's to run; its memory stays as it is. */
static void in_child(void)
{
    queue *q;
    pthread_cond_init(&ended, NULL);
    n_with_thread = n_waiting = 0;
    for (int i = 0; (q = usc_sim_queue_at(i)) != NULL; i++) {
        bad_fork = bad_fork || q->has_thread || q->head != NULL;
        q->has_thread = q->running = false;
        q->head = q->tail = NULL;
        q->captured = NULL;
        q->n_ended = q->n_submitted;
        pthread_cond_init(&q->wake, NULL);
    }
    pthread_mutex_unlock(&lock);
}

static void set_up(void)
{
    for (int d = 0; d < USC_SIM_MOST_DEVICES; d++)
        for (int i = 0; i < USC_SIM_N_STREAMS; i++) {
            queue *q = &queues[d][i];
            q->stream = (usc_sim_stream){d, i};
            q->high = i >= FIRST_HIGH && i < FIRST_FOR_RANKS;
            q->for_ranks = i >= FIRST_FOR_RANKS;
            pthread_cond_init(&q->wake, NULL);
        }
    pthread_atfork(before_fork, in_parent, in_child);
}

void usc_sim_lock_once(void)
{
    pthread_once(&once, set_up);
}

void usc_sim_lock(void)
{
    usc_sim_lock_once();
    pthread_mutex_lock(&lock);
}

void usc_sim_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

int64_t usc_sim_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- which stream ---------------------------------------------------------------- */

bool usc_sim_stream_exists(usc_sim_stream s)
{
    return s.device >= 0 && s.device < usc_sim_device_count() && s.id >= 0 &&
           s.id < USC_SIM_N_STREAMS;
}

bool usc_sim_stream_is_high(usc_sim_stream s)
{
    return usc_sim_stream_exists(s) && s.id >= FIRST_HIGH && s.id < FIRST_FOR_RANKS;
}

usc_sim_stream usc_sim_stream_next(int device, bool high)
{
    if (!usc_sim_stream_exists((usc_sim_stream){device, 0})) return (usc_sim_stream){0};
    usc_sim_lock();
    const int i = n_handed_out[device][high]++ % USC_SIM_POOL_STREAMS;
    usc_sim_unlock();
    return (usc_sim_stream){device, 1 + i + (high ? USC_SIM_POOL_STREAMS : 0)};
}

usc_sim_stream usc_sim_stream_next_for_ranks(int device)
{
    if (!usc_sim_stream_exists((usc_sim_stream){device, 0})) return (usc_sim_stream){0};
    usc_sim_lock();
    const int i = n_handed_out[device][2]++ % USC_SIM_RANK_STREAMS;
    usc_sim_unlock();
    return (usc_sim_stream){device, FIRST_FOR_RANKS + i};
}

usc_sim_stream usc_sim_stream_current(int device)
{
    usc_sim_stream s = {device, 0};
    if (usc_sim_stream_exists(s)) s.id = current[device];
    return s;
}

void usc_sim_stream_set_current(usc_sim_stream s)
{
    if (usc_sim_stream_exists(s)) current[s.device] = s.id;
}

queue *usc_sim_queue_of(usc_sim_stream s)
{
    return usc_sim_stream_exists(s) ? &queues[s.device][s.id] : NULL;
}

queue *usc_sim_queue_at(int i)
{
    if (i >= USC_SIM_MOST_DEVICES * USC_SIM_N_STREAMS) return NULL;
    return &queues[i / USC_SIM_N_STREAMS][i % USC_SIM_N_STREAMS];
}

/* ---- running --------------------------------------------------------------------- */

static bool head_is_ready(const queue *q)
{
    return q->head != NULL && !q->running &&
           (q->head->kind != ENTRY_WAIT || q->head->point->done);
}

bool usc_sim_queue_could_run(const queue *q)
{
    if (!head_is_ready(q)) return false;
    if (q->high) return true;
    for (int i = FIRST_HIGH; i < FIRST_FOR_RANKS; i++)
        if (head_is_ready(&queues[q->stream.device][i])) return false;
    return true;
}

static void wake_threads(void)
{
    for (int i = 0; i < n_with_thread; i++)
        if (with_thread[i]->head != NULL) pthread_cond_signal(&with_thread[i]->wake);
}

const char *usc_sim_command_place(void)
{
    return place;
}

/* Who waits for the command is told; nobody does: the next who waits for the stream. */
static void note_failure(queue *q, const entry *e, usc_status st, const usc_error *err)
{
    const usc_sim_command *c = &e->command;
    usc_error *to = e->told != NULL ? e->told_text : &q->failure;
    if (e->told != NULL)
        *e->told = st;
    else if (q->failure.status != USC_OK)
        return;
    (void)usc_error_set(to, st, err->where, "%s%s%s: %s", c->name,
                        c->place[0] != '\0' ? ", launched at " : "", c->place, err->text);
}

static void run_command(queue *q, entry *e)
{
    usc_error err = {.status = USC_OK, .where = -1, .text = ""};
    const bool outer = in_command, scheduled = usc_sim_scheduled();
    const usc_sim_stream chosen = usc_sim_stream_current(q->stream.device);
    usc_sim_unlock();
    const char *outer_place = place;
    in_command = true;
    place = e->command.place;
    usc_sim_stream_set_current(q->stream); /* what it allocates is the stream's */
    const usc_sim_launched outer_launched = usc_sim_timeline_set_launched(e->launched);
    const int64_t begin = usc_sim_timeline_begin();
    usc_sim_keep_begin(!scheduled);
    const usc_status st = e->command.run(e->command.ctx, &err);
    usc_sim_lock(); /* what was queued meanwhile counts */
    const bool more = q->head != NULL && q->head->kind == ENTRY_COMMAND;
    usc_sim_unlock();
    usc_sim_keep_end(more && !scheduled);
    usc_sim_timeline_end(e->command.name, q->stream, begin);
    (void)usc_sim_timeline_set_launched(outer_launched);
    if (e->command.drop != NULL) e->command.drop(e->command.ctx);
    in_command = outer;
    place = outer_place;
    usc_sim_stream_set_current(chosen);
    usc_sim_lock();
    if (st != USC_OK) note_failure(q, e, st, &err);
}

void usc_sim_queue_run_head(queue *q)
{
    entry *e = q->head;
    q->head = e->next;
    if (q->head == NULL) q->tail = NULL;
    q->running = true;
    if (q->high) wake_threads(); /* those that it held up */
    if (e->kind == ENTRY_COMMAND) run_command(q, e);
    if (e->kind == ENTRY_RECORD) {
        e->point->time = usc_sim_now();
        e->point->done = true;
    }
    if (e->point != NULL) usc_sim_mark_drop(e->point);
    free(e);
    q->running = false;
    q->n_ended++;
    wake_threads();
    if (n_waiting > 0) pthread_cond_broadcast(&ended);
}

static void *work(void *its_queue)
{
    queue *q = its_queue;
    usc_sim_lock();
    for (;;) {
        while ((usc_sim_scheduled() && !q->for_ranks) || !usc_sim_queue_could_run(q))
            pthread_cond_wait(&q->wake, &lock);
        usc_sim_queue_run_head(q);
    }
    return NULL;
}

/* A signal from outside is for the program's own threads. */
static int start_thread(queue *q)
{
    pthread_attr_t attr;
    sigset_t outside, before;
    pthread_t thread;
    sigfillset(&outside);
    sigdelset(&outside, SIGSEGV);
    sigdelset(&outside, SIGBUS);
    sigdelset(&outside, SIGFPE);
    sigdelset(&outside, SIGILL);
    sigdelset(&outside, SIGABRT);
    if (pthread_attr_init(&attr) != 0) return ENOMEM;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_BLOCK, &outside, &before);
    const int failed = pthread_create(&thread, &attr, work, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    q->has_thread = failed == 0;
    if (q->has_thread) with_thread[n_with_thread++] = q;
    return failed;
}

usc_status usc_sim_queue_push(queue *q, entry *e, usc_error *err)
{
    if (bad_fork)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "sim: streams cannot be used in a forked child of a process "
                             "that used them; start children with 'spawn'");
    const bool scheduled = usc_sim_scheduled();
    const bool needs = q->for_ranks || !scheduled;
    const int failed = !needs || q->has_thread ? 0 : start_thread(q);
    if (failed != 0)
        return usc_error_set(err, USC_E_IO, -1, "sim:%d: no thread for stream %d: %s",
                             q->stream.device, (int)q->stream.id, strerror(failed));
    if (q->tail != NULL)
        q->tail->next = e;
    else
        q->head = e;
    q->tail = e;
    q->n_submitted++;
    has_worked = true;
    if (q->has_thread) pthread_cond_signal(&q->wake);
    if (scheduled) usc_sim_schedule_submitted();
    return USC_OK;
}

/* ---- waiting --------------------------------------------------------------------- */

/* Until something has ended or the next question is due; whether the wait is interrupted. */
static bool wait_a_while(void)
{
    struct timespec until;
    const bool asked = usc_sim_is_asked();
    if (asked) usc_sim_next_question(&until);
    n_waiting++;
    const int why = asked ? pthread_cond_timedwait(&ended, &lock, &until)
                          : pthread_cond_wait(&ended, &lock);
    n_waiting--;
    if (!asked || why != ETIMEDOUT) return false;
    pthread_mutex_unlock(&lock);
    const bool now = usc_sim_interrupts();
    pthread_mutex_lock(&lock);
    return now;
}

usc_status usc_sim_wait_until(bool (*met)(const void *), const void *ctx, usc_error *err)
{
    while (!met(ctx) && !bad_fork) {
        if (usc_sim_scheduled() && usc_sim_schedule_step()) continue;
        if (wait_a_while() && !met(ctx))
            return usc_error_set(err, USC_E_IO, -1,
                                 "sim: interrupted while it waits for a stream");
    }
    return USC_OK;
}

typedef struct goal {
    const queue *q;
    uint64_t n_ended;
} goal;

static bool goal_reached(const void *ctx)
{
    const goal *g = ctx;
    return g->q->n_ended >= g->n_ended;
}

static usc_status wait_for(const queue *q, usc_error *err)
{
    const goal g = {q, q->n_submitted};
    return usc_sim_wait_until(goal_reached, &g, err);
}

static usc_status no_such_stream(usc_sim_stream s, usc_error *err)
{
    return usc_error_set(err, USC_E_ARG, -1, "sim:%d has no stream %lld", s.device,
                         (long long)s.id);
}

usc_status usc_sim_may_wait(usc_error *err)
{
    if (!in_command) return USC_OK;
    return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                         "sim: a command of a stream waits for a stream or an event");
}

usc_status usc_sim_queue_tell(queue *q, usc_error *err)
{
    const usc_error f = q->failure;
    if (!usc_is_aside())
        q->failure.status = USC_OK; /* else the program is told as well */
    return f.status != USC_OK ? usc_error_set(err, f.status, f.where, "%s", f.text)
                              : USC_OK;
}

void usc_sim_stream_fail(usc_sim_stream s, const char *name, const usc_error *why)
{
    usc_sim_lock();
    queue *q = usc_sim_queue_of(s);
    if (q != NULL && q->failure.status == USC_OK)
        (void)usc_error_set(&q->failure, why->status, why->where, "%s: %s", name,
                            why->text);
    usc_sim_unlock();
}

bool usc_sim_has_worked(void)
{
    return atomic_load_explicit(&has_worked, memory_order_relaxed);
}

bool usc_sim_stream_query(usc_sim_stream s)
{
    usc_sim_lock();
    usc_sim_schedule_asked();
    const queue *q = usc_sim_queue_of(s);
    const bool idle = q == NULL || q->n_ended == q->n_submitted;
    usc_sim_unlock();
    return idle;
}

usc_status usc_sim_stream_synchronize(usc_sim_stream s, usc_error *err)
{
    usc_sim_lock();
    queue *q = usc_sim_queue_of(s);
    usc_status st = q != NULL ? usc_sim_may_wait(err) : no_such_stream(s, err);
    if (st == USC_OK) st = usc_sim_graph_may_wait(q, err);
    if (st == USC_OK) st = wait_for(q, err);
    if (st == USC_OK) st = usc_sim_queue_tell(q, err);
    usc_sim_unlock();
    return st;
}

usc_status usc_sim_device_synchronize(int device, usc_error *err)
{
    if (device < -1 || device >= usc_sim_device_count())
        return usc_error_set(err, USC_E_ARG, -1, "sim: there is no device %d", device);
    if (device >= 0 && usc_sim_fault_early("sim::synchronize", -1)) return USC_OK;
    usc_sim_lock();
    usc_status st = usc_sim_may_wait(err);
    queue *q;
    for (int i = 0; st == USC_OK && (q = usc_sim_queue_at(i)) != NULL; i++)
        if (q->stream.device == device) st = usc_sim_graph_may_wait(q, err);
    for (int i = 0; st == USC_OK && (q = usc_sim_queue_at(i)) != NULL; i++)
        if (device == -1 || q->stream.device == device) st = wait_for(q, err);
    for (int i = 0; st == USC_OK && (q = usc_sim_queue_at(i)) != NULL; i++)
        if (device == -1 || q->stream.device == device) st = usc_sim_queue_tell(q, err);
    usc_sim_unlock();
    return st;
}

/* ---- submitting ------------------------------------------------------------------ */

/* With launch blocking on an idle stream there is nobody to hand the command to: it runs
 * here, and a program that never leaves anything pending has no thread. */
static usc_status run_here(queue *q, entry *e)
{
    usc_status st = USC_OK;
    e->told = &st;
    q->head = q->tail = e;
    q->n_submitted++;
    usc_sim_queue_run_head(q);
    return st;
}

/* *queued: the entry is no longer the caller's. */
static usc_status submit(queue *q, entry *e, bool *queued, usc_error *err)
{
    usc_status its = USC_OK;
    const bool wait = launch_blocking && !in_command && !q->for_ranks;
    e->told_text = err;
    *queued = true;
    if (wait && q->head == NULL && !q->running && !bad_fork) return run_here(q, e);
    if (wait) e->told = &its;
    const usc_status st = usc_sim_queue_push(q, e, err);
    *queued = st == USC_OK;
    const usc_status waited = wait && *queued ? wait_for(q, err) : USC_OK;
    if (waited == USC_OK) return *queued ? its : st;
    e->told = NULL; /* it is there yet, and these are not when it ends */
    e->told_text = NULL;
    return waited;
}

usc_status usc_sim_submit(usc_sim_stream s, const usc_sim_command *command,
                          usc_error *err)
{
    usc_status st;
    bool queued = false, kept = false;
    entry *e = calloc(1, sizeof *e);
    if (e == NULL) {
        st = usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory for a command");
    } else {
        *e = (entry){.kind = ENTRY_COMMAND,
                     .command = *command,
                     .launched = usc_sim_timeline_launched()};
        usc_sim_lock();
        queue *q = usc_sim_queue_of(s);
        if (q == NULL)
            st = no_such_stream(s, err);
        else if (q->captured == NULL)
            st = submit(q, e, &queued, err);
        else
            st = usc_sim_graph_keep(q, command, err);
        kept = q != NULL && q->captured != NULL && st == USC_OK;
        usc_sim_unlock();
    }
    if (queued) return st;
    free(e);
    if (!kept && command->drop != NULL) command->drop(command->ctx);
    return st;
}

void usc_sim_set_launch_blocking(bool on)
{
    usc_sim_lock();
    launch_blocking = on;
    usc_sim_unlock();
}

bool usc_sim_launch_blocking(void)
{
    usc_sim_lock();
    const bool on = launch_blocking;
    usc_sim_unlock();
    return on;
}
