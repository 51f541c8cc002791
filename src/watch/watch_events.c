// SPDX-License-Identifier: Apache-2.0
// What detectors found, until it is taken: of each step and detector the worst few, the
// rest as a number.
#include "watch/watch_state.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

void usc_watch_note(usc_watch_view *v, double score, double threshold)
{
    const double ratio = isnan(score) || threshold <= 0 ? HUGE_VAL : score / threshold;
    if (ratio > v->w->score) v->w->score = ratio;
}

static usc_watch_said *said_at(usc_watch *w, size_t i)
{
    return &w->said[(w->first_said + i) % w->said_size];
}

/* Doubles the ring, straightened out. */
static bool make_room(usc_watch *w)
{
    if (w->n_said < w->said_size) return true;
    const size_t size = w->said_size > 0 ? 2 * w->said_size : 16;
    usc_watch_said *larger = calloc(size, sizeof *larger);
    if (larger == NULL) return false;
    for (size_t i = 0; i < w->n_said; i++)
        larger[i] = *said_at(w, i);
    free(w->said);
    w->said = larger;
    w->said_size = size;
    w->first_said = 0;
    return true;
}

/* Where the next event goes: a new place, or of those of this step the mildest one's;
 * NULL where it is milder still, or there is no room. */
static usc_watch_said *place_for(usc_watch_view *v, double ratio)
{
    usc_watch *w = v->w;
    /* mode asd logs as it does: by its own cooldown */
    if (v->n_told < USC_WATCH_TOLD || v->detector == USC_WATCH_BY_ASD) {
        if (w->n_said >= USC_WATCH_EVENTS) {
            w->n_lost++;
            return NULL;
        }
        if (!make_room(w)) {
            v->status = usc_no_memory("watch", v->err);
            return NULL;
        }
        v->n_told++;
        return said_at(w, w->n_said++);
    }
    usc_watch_said *mildest = NULL;
    double least = ratio;
    for (size_t i = w->n_said - v->n_told; i < w->n_said; i++) {
        usc_watch_said *s = said_at(w, i);
        const double other = s->event.score / s->event.threshold;
        if (other < least) {
            least = other;
            mildest = s;
        }
    }
    return mildest;
}

void usc_watch_say(usc_watch_view *v, const usc_watch_finding *f, const char *format, ...)
{
    usc_watch_note(v, f->score, f->threshold);
    v->n_found++;
    usc_watch_said *s = place_for(v, f->score / f->threshold);
    if (s == NULL) return;
    char sentence[4096];
    va_list args;
    va_start(args, format);
    (void)usc_format_list(sentence, sizeof sentence, format, args);
    va_end(args);
    s->event = (usc_watch_event){.step = v->step,
                                 .kind = f->kind,
                                 .detector = v->detector,
                                 .tensor = f->tensor,
                                 .rank = f->rank,
                                 .score = f->score,
                                 .threshold = f->threshold};
    usc_line_clear(&s->texts);
    usc_line_text(&s->texts, sentence);
    usc_line_put(&s->texts, "", 1);
    s->action_at = s->texts.n;
    usc_line_text(&s->texts, f->action != NULL ? f->action : "");
    if (s->texts.failed) v->status = usc_no_memory("watch", v->err);
}

void usc_watch_count_more(usc_watch_view *v)
{
    if (v->n_found <= v->n_told || v->n_told == 0) return;
    usc_watch_said *s = said_at(v->w, v->w->n_said - 1);
    usc_line l = {0};
    usc_line_text(&l, s->texts.text);
    usc_line_add(&l, "; and %lld more like it at this step, milder",
                 (long long)(v->n_found - v->n_told));
    usc_line_put(&l, "", 1);
    const size_t action_at = l.n;
    usc_line_text(&l, s->texts.text + s->action_at);
    if (l.failed) {
        usc_line_free(&l);
        return; /* the events themselves stand */
    }
    usc_line_free(&s->texts);
    s->texts = l;
    s->action_at = action_at;
}

bool usc_watch_next(usc_watch *w, usc_watch_event *event)
{
    if (w->n_said == 0) return false;
    usc_watch_said *s = said_at(w, 0);
    const usc_line empty = w->taken;
    w->taken = s->texts; /* the two change places: no memory is asked for */
    s->texts = empty;
    w->first_said = (w->first_said + 1) % w->said_size;
    w->n_said--;
    *event = s->event;
    event->sentence = w->taken.failed ? "" : w->taken.text;
    event->action = w->taken.failed ? "" : w->taken.text + s->action_at;
    event->name = event->tensor >= 0 ? w->tensors[event->tensor].name : "";
    return true;
}

int64_t usc_watch_n_lost(const usc_watch *w)
{
    return w->n_lost;
}
