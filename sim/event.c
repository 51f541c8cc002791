// SPDX-License-Identifier: Apache-2.0
// Events: an event holds the mark that it was recorded as last; who waits holds it, too,
// so that the event may be recorded anew or freed meanwhile.
#include "blocks.h"
#include "streams.h"

#include <stdlib.h>

struct usc_sim_event {
    bool timing;
    mark *last; /* NULL: never recorded */
};

void usc_sim_mark_drop(mark *m)
{
    if (m != NULL && --m->n_refs == 0) free(m);
}

usc_status usc_sim_event_create(bool timing, usc_sim_event **out, usc_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory for an event");
    (*out)->timing = timing;
    return USC_OK;
}

void usc_sim_event_free(usc_sim_event *event)
{
    if (event == NULL) return;
    usc_sim_lock();
    usc_sim_mark_drop(event->last);
    usc_sim_unlock();
    free(event);
}

/* An entry about `m`, which takes a reference; where it cannot be queued nothing is
 * changed. */
static usc_status push_mark(queue *q, entry_kind kind, mark *m, usc_error *err)
{
    entry *e = calloc(1, sizeof *e);
    if (e == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory for a command");
    e->kind = kind;
    e->point = m;
    m->n_refs++;
    const usc_status st = usc_sim_queue_push(q, e, err);
    if (st != USC_OK) {
        m->n_refs--;
        free(e);
    }
    return st;
}

static bool is_idle(const queue *q)
{
    return q->n_ended == q->n_submitted;
}

/* A new mark at the end of a queue; NULL, and *st says why. */
static mark *record(queue *q, usc_status *st, usc_error *err)
{
    mark *m = calloc(1, sizeof *m);
    *st = USC_OK;
    if (m == NULL) {
        *st = usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory for an event");
        return NULL;
    }
    *m = (mark){.n_refs = 1, .stream = q->stream};
    if (q->captured != NULL) {
        usc_sim_graph_mark(q, m);
    } else if (is_idle(q)) {
        m->done = true;
        m->time = usc_sim_now();
    } else {
        *st = push_mark(q, ENTRY_RECORD, m, err);
    }
    if (*st == USC_OK) return m;
    usc_sim_mark_drop(m);
    return NULL;
}

static usc_status queue_waits(queue *q, mark *m, usc_error *err)
{
    if (m == NULL || m->done) return USC_OK;
    if (q->captured != NULL || m->graph != NULL) return usc_sim_graph_meet(q, m, err);
    return push_mark(q, ENTRY_WAIT, m, err);
}

static usc_status find(usc_sim_stream s, queue **q, usc_error *err)
{
    *q = usc_sim_queue_of(s);
    if (*q != NULL) return USC_OK;
    return usc_error_set(err, USC_E_ARG, -1, "sim:%d has no stream %lld", s.device,
                         (long long)s.id);
}

usc_status usc_sim_event_record(usc_sim_event *event, usc_sim_stream s, usc_error *err)
{
    queue *q;
    usc_sim_lock();
    usc_status st = find(s, &q, err);
    mark *m = st == USC_OK ? record(q, &st, err) : NULL;
    if (m != NULL) {
        usc_sim_mark_drop(event->last);
        event->last = m;
    }
    usc_sim_unlock();
    return st;
}

usc_status usc_sim_stream_wait(usc_sim_stream s, usc_sim_event *event, usc_error *err)
{
    queue *q;
    usc_sim_lock();
    usc_status st = find(s, &q, err);
    if (st == USC_OK && !usc_sim_fault_early("sim::wait_event", s.id))
        st = queue_waits(q, event->last, err);
    usc_sim_unlock();
    return st;
}

usc_status usc_sim_stream_wait_stream(usc_sim_stream s, usc_sim_stream other,
                                      usc_error *err)
{
    queue *q, *from;
    usc_sim_lock();
    usc_status st = find(s, &q, err);
    if (st == USC_OK) st = find(other, &from, err);
    if (st == USC_OK && q != from && !usc_sim_fault_early("sim::wait_stream", s.id)) {
        mark *m = record(from, &st, err);
        if (m != NULL) st = queue_waits(q, m, err);
        usc_sim_mark_drop(m);
    }
    usc_sim_unlock();
    return st;
}

bool usc_sim_event_query(usc_sim_event *event)
{
    usc_sim_lock();
    usc_sim_schedule_asked();
    const bool done = event->last == NULL || event->last->done;
    usc_sim_unlock();
    return done;
}

static bool mark_done(const void *ctx)
{
    return ((const mark *)ctx)->done;
}

usc_status usc_sim_event_synchronize(usc_sim_event *event, usc_error *err)
{
    usc_sim_lock();
    mark *m = event->last;
    usc_status st = USC_OK;
    if (m != NULL && !usc_sim_fault_early("sim::synchronize", m->stream.id)) {
        m->n_refs++;
        st = usc_sim_may_wait(err);
        if (st == USC_OK && m->graph != NULL)
            st = usc_error_set(err, USC_E_UNSUPPORTED, -1,
                               "sim: the event was recorded in a capture and cannot be "
                               "waited for; record one behind the replay");
        if (st == USC_OK) st = usc_sim_wait_until(mark_done, m, err);
        if (st == USC_OK) st = usc_sim_queue_tell(usc_sim_queue_of(m->stream), err);
        usc_sim_mark_drop(m);
    }
    usc_sim_unlock();
    return st;
}

uint64_t usc_sim_queue_ticket(usc_sim_stream s)
{
    usc_sim_lock();
    const queue *q = usc_sim_queue_of(s);
    const uint64_t ticket = q != NULL ? q->n_submitted : 0;
    usc_sim_unlock();
    return ticket;
}

bool usc_sim_queue_passed(usc_sim_stream s, uint64_t ticket)
{
    usc_sim_lock();
    const queue *q = usc_sim_queue_of(s);
    const bool passed = q == NULL || q->n_ended >= ticket;
    usc_sim_unlock();
    return passed;
}

usc_status usc_sim_event_elapsed(usc_sim_event *from, usc_sim_event *to, double *ms,
                                 usc_error *err)
{
    const char *wrong = NULL;
    *ms = 0;
    usc_sim_lock();
    if (!from->timing || !to->timing)
        wrong = "sim: both events must be made with timing (enable_timing=True)";
    else if (from->last == NULL || to->last == NULL)
        wrong = "sim: both events must be recorded before their time is asked for";
    else if (!from->last->done || !to->last->done)
        wrong = "sim: both events must have ended before their time is asked for: "
                "synchronize first";
    else
        *ms = 1e-6 * (double)(to->last->time - from->last->time);
    usc_sim_unlock();
    return wrong == NULL ? USC_OK : usc_error_set(err, USC_E_ARG, -1, "%s", wrong);
}
