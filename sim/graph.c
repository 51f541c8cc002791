// SPDX-License-Identifier: Apache-2.0
// Captures and graphs. A queue that is captured names its graph; queue.c and event.c ask
// here first. Neighbour: streams.h.
#include "streams.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct kept {
    struct kept *next;
    usc_sim_graph *graph;
    usc_sim_command command;
} kept;

struct usc_sim_graph {
    int n_refs; /* its owner's, and one for each command in a queue */
    usc_sim_stream origin;
    kept *first, *last;
    size_t n_kept;
};

static atomic_int n_captures;

/* ---- a graph ---------------------------------------------------------------------- */

static void graph_delete(usc_sim_graph *g)
{
    for (kept *k = g->first; k != NULL;) {
        kept *next = k->next;
        if (k->command.drop != NULL) k->command.drop(k->command.ctx);
        free(k);
        k = next;
    }
    free(g);
}

void usc_sim_graph_free(usc_sim_graph *g)
{
    if (g == NULL) return;
    usc_sim_lock();
    const bool last = --g->n_refs == 0;
    usc_sim_unlock();
    if (last) graph_delete(g);
}

size_t usc_sim_graph_size(const usc_sim_graph *g)
{
    return g->n_kept;
}

static usc_status run_kept(void *ctx, usc_error *err)
{
    const kept *k = ctx;
    return k->command.run(k->command.ctx, err);
}

static void drop_kept(void *ctx)
{
    usc_sim_graph_free(((const kept *)ctx)->graph);
}

usc_status usc_sim_graph_replay(usc_sim_graph *g, usc_sim_stream stream, usc_error *err)
{
    for (kept *k = g->first; k != NULL; k = k->next) {
        usc_sim_command c = k->command;
        c.run = run_kept;
        c.drop = drop_kept;
        c.ctx = k;
        usc_sim_lock();
        g->n_refs++;
        usc_sim_unlock();
        const usc_status st = usc_sim_submit(stream, &c, err);
        if (st != USC_OK) return st;
    }
    return USC_OK;
}

/* ---- a capture: with the lock held -------------------------------------------------- */

usc_status usc_sim_graph_keep(queue *q, const usc_sim_command *command, usc_error *err)
{
    kept *k = malloc(sizeof *k);
    usc_sim_graph *g = q->captured;
    if (k == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory for a command");
    *k = (kept){NULL, g, *command};
    if (g->last != NULL)
        g->last->next = k;
    else
        g->first = k;
    g->last = k;
    g->n_kept++;
    q->n_unjoined = g->n_kept;
    return USC_OK;
}

/* A queue meets a mark: it joins the mark's capture, or may not wait for it. */
usc_status usc_sim_graph_meet(queue *q, const mark *m, usc_error *err)
{
    queue *from = usc_sim_queue_of(m->stream);
    if (m->graph == NULL) {
        if (m->done) return USC_OK;
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "sim:%d: stream %d is being captured and cannot wait for "
                             "what was launched before; wait before the capture begins",
                             q->stream.device, (int)q->stream.id);
    }
    if (from->captured != m->graph)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "sim: the event was recorded in a capture that has ended; "
                             "record it again");
    if (q->for_ranks)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "sim: what ranks exchange cannot be captured; leave it "
                             "outside of the graph");
    if (q->captured != NULL && q->captured != m->graph)
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "sim: two captures cannot wait for each other");
    if (q->captured == NULL) {
        q->captured = m->graph;
        q->n_unjoined = 0;
    }
    if (q != from && m->n_kept >= from->n_unjoined) from->n_unjoined = 0;
    return USC_OK;
}

void usc_sim_graph_mark(const queue *q, mark *m)
{
    m->graph = q->captured;
    m->n_kept = m->graph != NULL ? m->graph->n_kept : 0;
}

usc_status usc_sim_graph_may_wait(const queue *q, usc_error *err)
{
    if (q == NULL || q->captured == NULL) return USC_OK;
    return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                         "sim:%d: stream %d is being captured: nothing may wait for it "
                         "(item(), cpu(), synchronize()); move that out of the graph",
                         q->stream.device, (int)q->stream.id);
}

/* ---- beginning and end -------------------------------------------------------------- */

static usc_status refuse(usc_sim_stream s, const char *why, usc_error *err)
{
    return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                         "sim:%d: stream %d cannot be captured: %s", s.device, (int)s.id,
                         why);
}

static usc_status begin(queue *q, usc_sim_stream s, usc_sim_graph *g, usc_error *err)
{
    if (q == NULL)
        return usc_error_set(err, USC_E_ARG, -1, "sim:%d has no stream %lld", s.device,
                             (long long)s.id);
    if (s.id == 0)
        return refuse(s, "it is the default stream; make another one current", err);
    if (q->for_ranks) return refuse(s, "it waits for other processes", err);
    if (q->captured != NULL) return refuse(s, "it is captured already", err);
    if (q->n_ended != q->n_submitted)
        return refuse(s, "it has work; synchronize first", err);
    *g = (usc_sim_graph){.n_refs = 1, .origin = s};
    q->captured = g;
    q->n_unjoined = 0;
    n_captures++;
    return USC_OK;
}

usc_status usc_sim_capture_begin(usc_sim_stream s, usc_error *err)
{
    usc_sim_graph *g = malloc(sizeof *g);
    if (g == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory for a graph");
    usc_sim_lock();
    const usc_status st = begin(usc_sim_queue_of(s), s, g, err);
    usc_sim_unlock();
    if (st != USC_OK) free(g);
    return st;
}

/* Lets all queues of a capture go; the stream of one with work that nobody waits for, or
 * its origin. */
static usc_sim_stream let_go(const usc_sim_graph *g)
{
    usc_sim_stream stray = g->origin;
    queue *q;
    for (int i = 0; (q = usc_sim_queue_at(i)) != NULL; i++) {
        if (q->captured != g) continue;
        const bool is_origin =
            q->stream.device == g->origin.device && q->stream.id == g->origin.id;
        if (q->n_unjoined > 0 && !is_origin) stray = q->stream;
        q->captured = NULL;
    }
    return stray;
}

usc_status usc_sim_capture_end(usc_sim_stream s, usc_sim_graph **out, usc_error *err)
{
    *out = NULL;
    usc_sim_lock();
    queue *q = usc_sim_queue_of(s);
    usc_sim_graph *g = q != NULL ? q->captured : NULL;
    if (g != NULL && (g->origin.device != s.device || g->origin.id != s.id)) g = NULL;
    const usc_sim_stream stray = g != NULL ? let_go(g) : s;
    if (g != NULL) n_captures--;
    usc_sim_unlock();
    if (g == NULL)
        return usc_error_set(err, USC_E_ARG, -1,
                             "sim:%d: no capture began with stream %lld", s.device,
                             (long long)s.id);
    if (stray.device != s.device || stray.id != s.id) {
        graph_delete(g);
        return usc_error_set(err, USC_E_UNSUPPORTED, -1,
                             "sim:%d: stream %d was captured with stream %d, which does "
                             "not wait for its last command",
                             stray.device, (int)stray.id, (int)s.id);
    }
    *out = g;
    return USC_OK;
}

bool usc_sim_has_captures(void)
{
    return atomic_load_explicit(&n_captures, memory_order_relaxed) > 0;
}

bool usc_sim_capturing(usc_sim_stream s)
{
    if (!usc_sim_has_captures()) return false;
    usc_sim_lock();
    const queue *q = usc_sim_queue_of(s);
    const bool captured = q != NULL && q->captured != NULL;
    usc_sim_unlock();
    return captured;
}
