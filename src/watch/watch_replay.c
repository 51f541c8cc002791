// SPDX-License-Identifier: Apache-2.0
// A log through a watch: a step is decided when a line of a later one comes.
#include <ulpscope/x/watch_log.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "watch/watch_watched.h"

/* The result and what it is made of; `out` comes first. */
typedef struct replay {
    usc_watch_replay out;
    usc_arena texts;
    int64_t *steps;
    double *norms, *scores;
    size_t steps_size;
    usc_watch_event *events;
    size_t events_size;
    usc_watch *watch;
    double sum_sq; /* of the step at hand */
    usc_watched seen;
    usc_watch_config config;
} replay;

static bool grow(void *list, size_t item_size, size_t n)
{
    void **items = list;
    void *larger = realloc(*items, n * item_size);
    if (larger != NULL) *items = larger;
    return larger != NULL;
}

static usc_status keep_event(replay *r, const usc_watch_event *e, usc_error *err)
{
    if (r->out.n_events >= USC_WATCH_REPLAY_EVENTS) {
        r->out.n_lost++;
        return USC_OK;
    }
    if ((size_t)r->out.n_events == r->events_size) {
        const size_t size = r->events_size > 0 ? 2 * r->events_size : 64;
        if (!grow(&r->events, sizeof *r->events, size))
            return usc_no_memory(r->out.name, err);
        r->events_size = size;
    }
    usc_watch_event *kept = &r->events[r->out.n_events];
    *kept = *e;
    kept->name = usc_arena_text(&r->texts, e->name);
    kept->sentence = usc_arena_text(&r->texts, e->sentence);
    kept->action = usc_arena_text(&r->texts, e->action);
    if (r->texts.failed) return usc_no_memory(r->out.name, err);
    r->out.n_events++;
    return USC_OK;
}

static usc_status decide(replay *r, int64_t step, double seconds, usc_error *err)
{
    if ((size_t)r->out.n_steps == r->steps_size) {
        const size_t size = r->steps_size > 0 ? 2 * r->steps_size : 1024;
        if (!grow(&r->steps, sizeof *r->steps, size) ||
            !grow(&r->norms, sizeof *r->norms, size) ||
            !grow(&r->scores, sizeof *r->scores, size))
            return usc_no_memory(r->out.name, err);
        r->steps_size = size;
    }
    usc_status st = usc_watch_step(r->watch, step, seconds, err);
    const int64_t at = r->out.n_steps;
    if (st != USC_OK) return st;
    r->steps[at] = step;
    r->norms[at] = sqrt(r->sum_sq);
    r->scores[at] = usc_watch_score(r->watch);
    r->out.n_steps++;
    r->sum_sq = 0;
    for (usc_watch_event e; st == USC_OK && usc_watch_next(r->watch, &e);)
        st = keep_event(r, &e, err);
    return st;
}

/* Of a curve the value, whatever it is. */
static void add_norms(replay *r, const usc_watch_row *rows, size_t n)
{
    const bool curve = r->out.column[0] != '\0';
    for (size_t i = 0; i < n; i++) {
        if (!curve && rows[i].site != USC_WATCH_GRAD && rows[i].site != USC_WATCH_REDUCED)
            continue;
        r->sum_sq += rows[i].n_nonfinite > 0 ? HUGE_VAL
                     : rows[i].numel > 0     ? rows[i].sum_sq
                                             : rows[i].value * rows[i].value;
    }
}

static usc_status feed_all(replay *r, usc_watch_log *log, usc_error *err)
{
    int64_t step = -1;
    double seconds = 0;
    for (;;) {
        const usc_watch_row *rows;
        size_t n;
        double now;
        usc_status st = usc_watch_log_next(log, &rows, &n, &now, err);
        if (st == USC_OK && step >= 0 && (n == 0 || rows[0].step > step))
            st = decide(r, step, seconds, err);
        if (st != USC_OK || n == 0) return st;
        add_norms(r, rows, n);
        usc_watched_take(&r->seen, rows, n);
        st = usc_watch_feed(r->watch, rows, n, err);
        if (st != USC_OK) return st;
        if (rows[0].step > step) step = rows[0].step; /* a slow rank may come later */
        seconds = now;
    }
}

static usc_status begin(replay *r, const usc_watch_log_info *info,
                        const usc_watch_config *config, usc_error *err)
{
    usc_watch_config c = *config;
    c.world = info->world;
    r->config = c;
    r->out = (usc_watch_replay){
        .name = usc_arena_text(&r->texts, info->name),
        .form = usc_arena_text(&r->texts, info->form),
        .column = usc_arena_text(&r->texts, info->column != NULL ? info->column : ""),
        .world = info->world,
        .n_tensors = info->n_tensors};
    if (r->texts.failed) return usc_no_memory(info->name, err);
    usc_status st = usc_watch_create(&c, &r->watch, err);
    for (int64_t i = 0; st == USC_OK && i < info->n_tensors; i++) {
        int64_t id;
        st = usc_watch_tensor(r->watch, &info->tensors[i], &id, err);
        if (st == USC_OK && id != i)
            st = usc_error_set(err, USC_E_CORRUPT, 1,
                               "%s, line 1: the tensor '%s' stands twice", info->name,
                               info->tensors[i].name);
    }
    return st;
}

/* What was looked at, and what not. */
static usc_status keep_watched(replay *r, usc_error *err)
{
    usc_line watched = {0}, unwatched = {0};
    r->out.judged =
        usc_watched_say(&r->seen, &r->config, r->out.n_steps, &watched, &unwatched);
    const bool failed = watched.failed || unwatched.failed;
    r->out.watched = usc_arena_text(&r->texts, watched.text != NULL ? watched.text : "");
    r->out.unwatched =
        usc_arena_text(&r->texts, unwatched.text != NULL ? unwatched.text : "");
    usc_line_free(&watched);
    usc_line_free(&unwatched);
    return failed || r->texts.failed ? usc_no_memory(r->out.name, err) : USC_OK;
}

usc_status usc_watch_replay_run(const char *path, const char *key,
                                const usc_watch_config *config, usc_watch_replay **out,
                                usc_error *err)
{
    usc_watch_log *log = NULL;
    *out = NULL;
    replay *r = calloc(1, sizeof *r);
    if (r == NULL) return usc_no_memory(path, err);
    r->texts.alloc = usc_libc_alloc;
    usc_status st = usc_watch_log_open(path, key, &log, err);
    if (st == USC_OK) st = begin(r, usc_watch_log_about(log), config, err);
    if (st == USC_OK) st = feed_all(r, log, err);
    if (st == USC_OK) st = keep_watched(r, err);
    if (st == USC_OK) {
        r->out.note = usc_arena_text(&r->texts, usc_watch_log_note(log));
        if (r->texts.failed) st = usc_no_memory(path, err);
    }
    if (st == USC_OK) {
        r->out.n_lost += usc_watch_n_lost(r->watch);
        r->out.n_bytes = usc_watch_bytes(r->watch);
        r->out.steps = r->steps;
        r->out.norms = r->norms;
        r->out.scores = r->scores;
        r->out.events = r->events;
        *out = &r->out;
    } else
        usc_watch_replay_free(&r->out);
    usc_watch_log_close(log);
    return st;
}

void usc_watch_replay_free(usc_watch_replay *out)
{
    replay *r = (replay *)out;
    if (r == NULL) return;
    usc_watch_free(r->watch);
    usc_arena_free(&r->texts);
    free(r->steps);
    free(r->norms);
    free(r->scores);
    free(r->events);
    free(r);
}
