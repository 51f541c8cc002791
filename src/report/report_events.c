// SPDX-License-Identifier: Apache-2.0
// Traces as Chrome's trace events, which Perfetto shows. A trace has order and no clock,
// so a call begins at its number, and lasts as many microseconds as calls began inside
// it.
#include <stdlib.h>
#include <string.h>

#include "report/report_trace.h"

/* Tracks of one rank: steps, modules of thread t, calls of thread t. */
enum { TRACK_STEPS = 0, TRACK_MODULES = 1, TRACK_CALLS = 2, MOST_THREADS = 1024 };
enum { MOST_DEPTH = 64 };

/* Parts of a module path that are open on a track. */
typedef struct track {
    char path[512];
    int depth;
    size_t end[MOST_DEPTH]; /* where each part ends in `path` */
    bool named;
} track;

typedef struct events {
    usc_out *o;
    usc_trace *trace;
    int rank;
    bool any;
    const int64_t *call; /* ascending */
    int64_t *last;       /* of each: the last call that began inside it */
    int64_t n, step;
    char phase[32];
    bool in_step;
    track *tracks; /* of modules, by thread */
} events;

static int track_of(int64_t thread, int kind)
{
    const int64_t t = thread < 0 || thread >= MOST_THREADS ? MOST_THREADS - 1 : thread;
    return kind == TRACK_STEPS ? 0 : (int)(2 * t) + kind;
}

/* The head of an event, up to its arguments. */
static void begin(events *e, const char *kind, const char *name, int64_t at, int id)
{
    usc_out_text(e->o, e->any ? ",\n" : "\n");
    e->any = true;
    usc_out_format(e->o, "{\"ph\": \"%s\", \"ts\": %lld, \"pid\": %d, \"tid\": %d", kind,
                   (long long)at, e->rank, id);
    if (name == NULL) return;
    usc_out_text(e->o, ", \"name\": ");
    usc_out_json(e->o, name);
}

static void put_member(events *e, const char *name, const char *text, bool first)
{
    if (text == NULL) text = "";
    usc_out_format(e->o, "%s\"%s\": ", first ? "" : ", ", name);
    usc_out_json(e->o, text);
}

static void name_it(events *e, const char *what, int id, const char *format, int64_t n)
{
    char text[64];
    (void)snprintf(text, sizeof text, format, (long long)n);
    begin(e, "M", what, 0, id);
    usc_out_text(e->o, ", \"args\": {");
    put_member(e, "name", text, true);
    usc_out_text(e->o, "}}");
}

static void simple(events *e, const char *kind, const char *name, int64_t at, int id)
{
    begin(e, kind, name, at, id);
    usc_out_text(e->o, "}");
}

/* Steps and phases follow one another on a track of their own. */
static void follow_step(events *e, const usc_call *call)
{
    char name[32];
    const char *phase = call->phase != NULL ? call->phase : "";
    if (e->in_step && e->step == call->step && strcmp(e->phase, phase) == 0) return;
    const bool other = !e->in_step || e->step != call->step;
    if (e->in_step) simple(e, "E", NULL, call->sequence, TRACK_STEPS);
    if (e->in_step && other) simple(e, "E", NULL, call->sequence, TRACK_STEPS);
    (void)snprintf(name, sizeof name, "step %lld", (long long)call->step);
    if (other) simple(e, "B", name, call->sequence, TRACK_STEPS);
    simple(e, "B", phase, call->sequence, TRACK_STEPS);
    (void)snprintf(e->phase, sizeof e->phase, "%s", phase);
    e->step = call->step;
    e->in_step = true;
}

/* How many parts of a path are open already. */
static int common_of(const track *t, const char *path, size_t n)
{
    int depth = 0;
    while (depth < t->depth) {
        const size_t end = t->end[depth];
        if (end > n || memcmp(t->path, path, end) != 0 ||
            (path[end] != '.' && path[end] != '\0'))
            break;
        depth++;
    }
    return depth;
}

/* Opens and closes modules until those of `path` are open. */
static void follow_module(events *e, track *t, int id, const char *path, int64_t at)
{
    const size_t room = sizeof t->path - 1, whole = strlen(path);
    const size_t n = whole < room ? whole : room;
    const int common = common_of(t, path, n);
    for (; t->depth > common; t->depth--)
        simple(e, "E", NULL, at, id);
    memcpy(t->path, path, n);
    t->path[n] = '\0';
    size_t from = t->depth > 0 ? t->end[t->depth - 1] + 1 : 0;
    while (from < n && t->depth < MOST_DEPTH) {
        const size_t end = from + strcspn(t->path + from, ".");
        char name[sizeof t->path];
        (void)snprintf(name, sizeof name, "%.*s", (int)(end - from), t->path + from);
        simple(e, "B", name, at, id);
        t->end[t->depth++] = end;
        from = end + 1;
    }
}

static usc_status put_call(events *e, const usc_call *call, int64_t last, usc_error *err)
{
    char given[512];
    usc_line results = {0};
    const int64_t dur = last - call->sequence + 1;
    const int id = track_of(call->thread, TRACK_CALLS);
    const usc_trace_side out = usc_trace_side_of(call, true);
    const char *look = usc_trace_look(call);
    usc_status st = usc_call_summary(call, given, sizeof given, err);
    if (st != USC_OK) return st;
    usc_trace_results(call, &results);
    begin(e, "X", call->op != NULL ? call->op : "", call->sequence, id);
    usc_out_format(e->o, ", \"dur\": %lld, ", (long long)dur);
    put_member(e, "cat", call->phase, true);
    usc_out_format(e->o, ", \"args\": {\"call\": %lld", (long long)call->sequence);
    put_member(e, "module", call->module_path, false);
    put_member(e, "class", call->module_class, false);
    put_member(e, "arguments", given, false);
    put_member(e, "results", results.text, false);
    put_member(e, "seen", look, false);
    if (out.any) {
        usc_out_text(e->o, ", \"min\": ");
        usc_out_json_number(e->o, out.min);
        usc_out_text(e->o, ", \"max\": ");
        usc_out_json_number(e->o, out.max);
    }
    usc_out_format(e->o, ", \"nan\": %.0f, \"inf\": %.0f}}", out.n_nan, out.n_inf);
    if (strcmp(look, "born") == 0) {
        begin(e, "i", "NaN or Inf is born", call->sequence, id);
        usc_out_text(e->o, ", \"s\": \"t\"}");
    }
    if (results.failed) st = usc_error_set(err, USC_E_NOMEM, -1, "events: no memory");
    usc_line_free(&results);
    return st;
}

static int64_t place_of(const events *e, int64_t sequence)
{
    int64_t low = 0, high = e->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (e->call[middle] < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low < e->n && e->call[low] == sequence ? low : -1;
}

/* Where each call ends: with the last one that began inside it. */
static usc_status find_ends(events *e, usc_error *err)
{
    for (int64_t i = 0; i < e->n; i++)
        e->last[i] = e->call[i];
    for (int64_t i = e->n - 1; i >= 0; i--) { /* what is inside began later */
        usc_call call;
        const usc_status st = usc_trace_read_call(e->trace, e->call[i], &call, err);
        if (st != USC_OK) return st;
        const int64_t at = call.parent > 0 ? place_of(e, call.parent) : -1;
        if (at >= 0 && at < i && e->last[at] < e->last[i]) e->last[at] = e->last[i];
    }
    return USC_OK;
}

static usc_status put_calls(events *e, usc_error *err)
{
    for (int64_t i = 0; i < e->n; i++) {
        usc_call call;
        usc_status st = usc_trace_read_call(e->trace, e->call[i], &call, err);
        if (st != USC_OK) return st;
        const int modules = track_of(call.thread, TRACK_MODULES);
        track *t = &e->tracks[modules / 2];
        if (!t->named) {
            name_it(e, "thread_name", modules, "modules, thread %lld", call.thread);
            name_it(e, "thread_name", modules + 1, "calls, thread %lld", call.thread);
        }
        t->named = true;
        follow_step(e, &call);
        follow_module(e, t, modules, call.module_path != NULL ? call.module_path : "",
                      call.sequence);
        st = put_call(e, &call, e->last[i], err);
        if (st == USC_OK) st = e->o->status;
        if (st != USC_OK) return st;
    }
    return USC_OK;
}

/* What is open ends behind the last call. */
static void close_all(events *e)
{
    const int64_t end = e->n > 0 ? e->call[e->n - 1] + 1 : 0;
    for (int i = 0; i < MOST_THREADS; i++)
        follow_module(e, &e->tracks[i], 2 * i + TRACK_MODULES, "", end);
    for (int i = 0; e->in_step && i < 2; i++)
        simple(e, "E", NULL, end, TRACK_STEPS);
}

static usc_status put_rank(events *e, const usc_trace_rank *rank, usc_error *err)
{
    begin(e, "M", "process_name", 0, 0);
    usc_out_text(e->o, ", \"args\": {");
    put_member(e, "name", rank->path, true);
    usc_out_text(e->o, "}}");
    name_it(e, "thread_name", TRACK_STEPS, "steps (1 us is one call, not time)", 0);
    usc_status st = usc_trace_select(e->trace, NULL, &e->call, &e->n, err);
    if (st != USC_OK) return st;
    e->last = malloc((size_t)(e->n + 1) * sizeof *e->last);
    e->tracks = calloc(MOST_THREADS, sizeof *e->tracks);
    st = e->last == NULL || e->tracks == NULL
             ? usc_error_set(err, USC_E_NOMEM, -1, "events: no memory")
             : find_ends(e, err);
    if (st == USC_OK) st = put_calls(e, err);
    if (st == USC_OK) close_all(e);
    free(e->last);
    free(e->tracks);
    return st;
}

usc_status usc_report_events(const usc_trace_page *traces, const usc_sink *sink,
                             usc_error *err)
{
    usc_out o;
    bool any = false;
    usc_status st = USC_OK;
    usc_out_begin(&o, sink, err);
    usc_out_text(&o, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
    for (int i = 0; st == USC_OK && i < traces->n; i++) {
        events e = {.o = &o, .trace = traces->rank[i].trace, .rank = i, .any = any};
        st = put_rank(&e, &traces->rank[i], err);
        any = true;
    }
    usc_out_text(&o, "]}\n");
    return st == USC_OK ? usc_out_end(&o) : st;
}
