// SPDX-License-Identifier: Apache-2.0
// A replay in words and block characters, as JSON, and as a page with a picture.
#include <ulpscope/x/watch_log.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/line.h"

enum { LABEL = 10, LEAST_BLOCKS = 10, MOST_BLOCKS = 100, MOST_SHOWN = 40 };

static usc_status write_line(usc_line *l, FILE *to, usc_error *err)
{
    usc_status st = USC_OK;
    if (l->failed)
        st = usc_no_memory("watch", err);
    else if (fwrite(l->text, 1, l->n, to) != l->n)
        st = usc_error_set(err, USC_E_IO, -1, "cannot write: %s", strerror(errno));
    usc_line_free(l);
    return st;
}

/* "3 ranks", "1 rank", behind `before`. */
static void put_count(usc_line *l, const char *before, int64_t n, const char *what)
{
    usc_line_text(l, before);
    usc_line_count(l, n);
    usc_line_add(l, " %s%s", what, n == 1 ? "" : "s");
}

static void put_size(usc_line *l, const usc_watch_replay *r)
{
    usc_line_add(l, "%s", r->form);
    put_count(l, ", ", r->n_steps, "step");
    put_count(l, ", ", r->n_tensors, "tensor");
    put_count(l, ", ", r->world, "rank");
}

/* ---- columns: the largest of the steps that fall into each ---- */

typedef struct columns {
    const double *values;
    int64_t n_steps, n;
} columns;

static double largest(const columns *c, int64_t k)
{
    double most = -HUGE_VAL;
    for (int64_t i = k * c->n_steps / c->n; i < (k + 1) * c->n_steps / c->n; i++)
        if (c->values[i] > most) most = c->values[i];
    return most;
}

/* Of norms the place between the smallest and the largest finite one, in log2. */
typedef struct scale {
    double low, high;
} scale;

static scale scale_of(const columns *c)
{
    scale s = {HUGE_VAL, -HUGE_VAL};
    for (int64_t i = 0; i < c->n_steps; i++) {
        const double bits = log2(c->values[i]);
        if (!isfinite(bits)) continue;
        s.low = fmin(s.low, bits);
        s.high = fmax(s.high, bits);
    }
    return s;
}

static double share_of(const scale *s, double value)
{
    const double bits = log2(value);
    if (isnan(bits) || !(s->high > s->low)) return isnan(bits) ? (double)NAN : 0.5;
    return fmin(fmax((bits - s->low) / (s->high - s->low), 0), 1);
}

/* A score by its distance to the threshold: half of the way is a fourth of it. */
static double share_of_score(double score)
{
    return score > 1 ? 1 : fmax(0, 0.875 * score);
}

static void put_blocks(usc_line *l, const char *label, const columns *c, const scale *s)
{
    usc_line_add(l, "  %-*s", LABEL, label);
    for (int64_t k = 0; k < c->n; k++) {
        const double value = largest(c, k);
        usc_line_block(l, s != NULL ? share_of(s, value) : share_of_score(value));
    }
}

static void put_picture(usc_line *l, const usc_watch_replay *r, int width)
{
    int64_t n = width - LABEL - 30;
    if (n < LEAST_BLOCKS) n = LEAST_BLOCKS;
    if (n > MOST_BLOCKS) n = MOST_BLOCKS;
    if (n > r->n_steps) n = r->n_steps;
    if (r->n_steps < 2) return;
    const columns norms = {r->norms, r->n_steps, n}, scores = {r->scores, r->n_steps, n};
    const scale s = scale_of(&norms);
    if (s.high > -HUGE_VAL) {
        put_blocks(l,
                   r->column[0] == '\0'        ? "gradient"
                   : strlen(r->column) < LABEL ? r->column
                                               : "values",
                   &norms, &s);
        usc_line_add(l, "  %.3g .. %.3g (log)\n", exp2(s.low), exp2(s.high));
    }
    put_blocks(l, "score", &scores, NULL);
    usc_line_text(l, "  █ above the threshold\n\n");
}

/* ---- the table ---- */

static void put_event(usc_line *l, const usc_watch_event *e)
{
    usc_line_add(l, "  step %-8lld %-12s %-11s %s\n", (long long)e->step,
                 usc_watch_detector_text(e->detector), usc_watch_kind_text(e->kind),
                 e->sentence);
}

static void put_watched(usc_line *l, const usc_watch_replay *r)
{
    if (r->watched[0] != '\0') {
        usc_line_add(l, "  watched by %s", r->watched);
        if (r->column[0] != '\0')
            usc_line_add(l, ": the level of '%s' alone, and NaN", r->column);
        usc_line_text(l, "\n");
    }
    const bool short_list = r->column[0] != '\0' && r->judged;
    if (r->unwatched[0] != '\0' && !short_list)
        usc_line_add(l, "  not by %s\n", r->unwatched);
    if (r->column[0] != '\0')
        usc_line_text(l,
                      "  not watched: elements, weights, optimizer state, products and "
                      "other ranks, which are not in it; ulpscope run --watch "
                      "--watch-log FILE records them\n");
}

static void put_end(usc_line *l, const usc_watch_replay *r)
{
    if (r->n_events > MOST_SHOWN)
        usc_line_add(l, "  and %lld more; --json has them all\n",
                     (long long)(r->n_events - MOST_SHOWN));
    if (r->n_lost > 0) usc_line_add(l, "  %lld more had no room\n", (long long)r->n_lost);
    put_watched(l, r);
    if (r->n_events == 0 && !r->judged)
        usc_line_text(l, "nothing can be told: nothing in this log could be judged\n");
    else if (r->n_events == 0)
        usc_line_text(l, "nothing abnormal in what was watched\n");
    if (r->n_events == 0) return;
    put_count(l, "\n", r->n_events, "event");
    usc_line_add(l, "; the first at step %lld", (long long)r->events[0].step);
    if (r->events[0].name[0] != '\0') usc_line_add(l, ", '%s'", r->events[0].name);
    if (r->events[0].rank >= 0) usc_line_add(l, ", rank %ld", (long)r->events[0].rank);
    usc_line_text(l, "\n");
}

usc_status usc_watch_replay_table(const usc_watch_replay *r, int width, FILE *to,
                                  usc_error *err)
{
    usc_line l = {0};
    usc_line_add(&l, "  %-*s'%s': ", LABEL, "log", r->name);
    put_size(&l, r);
    usc_line_text(&l, "\n");
    if (r->note[0] != '\0') usc_line_add(&l, "  %-*s%s\n", LABEL, "note", r->note);
    usc_line_text(&l, "\n");
    put_picture(&l, r, width);
    for (int64_t i = 0; i < r->n_events && i < MOST_SHOWN; i++)
        put_event(&l, &r->events[i]);
    put_end(&l, r);
    return write_line(&l, to, err);
}

/* ---- JSON ---- */

static void put_number(usc_line *l, const char *name, double value)
{
    usc_line_add(l, isfinite(value) ? ", \"%s\": %.17g" : ", \"%s\": null", name, value);
}

static void put_event_json(usc_line *l, const usc_watch_event *e)
{
    usc_line_add(l,
                 "{\"step\": %lld, \"detector\": \"%s\", \"kind\": \"%s\", \"level\": "
                 "\"%s\", \"tensor\": ",
                 (long long)e->step, usc_watch_detector_text(e->detector),
                 usc_watch_kind_text(e->kind), usc_watch_kind_level(e->kind));
    if (e->tensor >= 0)
        usc_line_json(l, e->name);
    else
        usc_line_text(l, "null");
    usc_line_add(l, e->rank >= 0 ? ", \"rank\": %ld" : ", \"rank\": null", (long)e->rank);
    put_number(l, "score", e->score);
    put_number(l, "threshold", e->threshold);
    usc_line_text(l, ", \"sentence\": ");
    usc_line_json(l, e->sentence);
    usc_line_text(l, ", \"action\": ");
    usc_line_json(l, e->action);
    usc_line_text(l, "}");
}

usc_status usc_watch_replay_json(const usc_watch_replay *r, FILE *to, usc_error *err)
{
    usc_line l = {0};
    usc_line_text(&l, "{\"version\": 1, \"file\": ");
    usc_line_json(&l, r->name);
    usc_line_add(
        &l,
        ", \"form\": \"%s\", \"steps\": %lld, \"tensors\": %lld, \"world\": %ld, "
        "\"bytes\": %lld, \"lost\": %lld, \"note\": ",
        r->form, (long long)r->n_steps, (long long)r->n_tensors, (long)r->world,
        (long long)r->n_bytes, (long long)r->n_lost);
    usc_line_json(&l, r->note);
    usc_line_add(&l, ", \"judged\": %s, \"watched\": ", r->judged ? "true" : "false");
    usc_line_json(&l, r->watched);
    usc_line_text(&l, ", \"not_watched\": ");
    usc_line_json(&l, r->unwatched);
    usc_line_text(&l, ", \"events\": [");
    for (int64_t i = 0; i < r->n_events; i++) {
        if (i > 0) usc_line_text(&l, ", ");
        put_event_json(&l, &r->events[i]);
    }
    usc_line_text(&l, "]}\n");
    return write_line(&l, to, err);
}

/* ---- the page ---- */

enum { WIDTH = 900, HEIGHT = 200, LEFT = 70, ACROSS = 800 };

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>ulpscope "
    "watch</title>\n<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em "
    "auto;max-width:60em;color:#222}svg{display:block;margin:.5em 0}svg "
    "text{font-size:12px;fill:#666}.a{stroke:#2563a8;fill:none;stroke-width:1.5}"
    ".limit,.event{stroke:#c23b22;stroke-dasharray:3 3}.axis{stroke:#ccc}"
    "td,th{text-align:left;vertical-align:top;padding:.2em .8em .2em 0}"
    "</style>\n<h1>Watch</h1>\n";

static double y_of(double share)
{
    return 10 + (1 - share) * (HEIGHT - 40);
}

/* Events and a line: norms in log2, or scores up to twice the threshold. */
static void put_curve(usc_line *l, const usc_watch_replay *r, const double *values,
                      bool norms)
{
    const columns c = {values, r->n_steps, r->n_steps < ACROSS ? r->n_steps : ACROSS};
    const scale s = scale_of(&c);
    if (norms && !(s.high > -HUGE_VAL)) return;
    usc_line_add(l, "<h2>%s</h2>\n<svg width=\"%d\" height=\"%d\" role=\"img\">\n",
                 norms ? r->column[0] != '\0' ? "The values (log)" : "Gradient norm (log)"
                       : "Score against the threshold",
                 WIDTH, HEIGHT);
    for (int64_t i = 0; i < r->n_events && i < ACROSS; i++) {
        int64_t at = 0;
        while (at + 1 < r->n_steps && r->steps[at] < r->events[i].step)
            at++;
        usc_line_add(l, "<path class=\"event\" d=\"M%.1f 10V%d\"/>\n",
                     LEFT + (double)at / (double)r->n_steps * ACROSS, HEIGHT - 30);
    }
    usc_line_text(l, "<polyline class=\"a\" points=\"");
    for (int64_t k = 0; k < c.n; k++) {
        const double value = largest(&c, k);
        const double share = norms ? share_of(&s, value) : fmin(value / 2, 1);
        if (!isnan(share))
            usc_line_add(l, "%.1f,%.1f ", LEFT + (double)k / (double)c.n * ACROSS,
                         y_of(share));
    }
    usc_line_text(l, "\"/>\n");
    if (norms)
        usc_line_add(l,
                     "<text x=\"4\" y=\"14\">%.3g</text><text x=\"4\" y=\"%d\">%.3g"
                     "</text>\n",
                     exp2(s.high), HEIGHT - 30, exp2(s.low));
    else
        usc_line_add(l,
                     "<path class=\"limit\" d=\"M%d %.1fH%d\"/><text x=\"4\" "
                     "y=\"%.1f\">threshold</text>\n",
                     LEFT, y_of(0.5), LEFT + ACROSS, y_of(0.5) + 4);
    usc_line_add(l,
                 "<text x=\"%d\" y=\"%d\">step %lld</text><text x=\"%d\" y=\"%d\" "
                 "text-anchor=\"end\">step %lld</text>\n</svg>\n",
                 LEFT, HEIGHT - 8, (long long)r->steps[0], LEFT + ACROSS, HEIGHT - 8,
                 (long long)r->steps[r->n_steps - 1]);
}

usc_status usc_watch_replay_html(const usc_watch_replay *r, FILE *to, usc_error *err)
{
    usc_line l = {0};
    usc_line_text(&l, head);
    usc_line_text(&l, "<p>");
    usc_line_html(&l, r->name);
    usc_line_text(&l, ": ");
    put_size(&l, r);
    put_count(&l, ", ", r->n_events, "event");
    usc_line_text(&l, ". ");
    usc_line_html(&l, r->note);
    usc_line_text(&l, "</p>\n<p>Watched by ");
    usc_line_html(&l, r->watched[0] != '\0' ? r->watched : "nothing");
    usc_line_text(&l, ". Not by ");
    usc_line_html(&l, r->unwatched[0] != '\0' ? r->unwatched : "nothing");
    usc_line_text(&l, ".</p>\n");
    if (r->n_steps > 1) {
        put_curve(&l, r, r->norms, true);
        put_curve(&l, r, r->scores, false);
    }
    usc_line_text(&l, r->n_events == 0
                          ? "<p>Nothing abnormal in what was watched.</p>\n<table>\n"
                          : "<table><tr><th>step<th>detector<th>kind<th>what was seen\n");
    for (int64_t i = 0; i < r->n_events; i++) {
        const usc_watch_event *e = &r->events[i];
        usc_line_add(&l, "<tr><td>%lld<td>%s<td>%s<td>", (long long)e->step,
                     usc_watch_detector_text(e->detector), usc_watch_kind_text(e->kind));
        usc_line_html(&l, e->sentence);
        usc_line_text(&l, "\n");
    }
    usc_line_text(&l, "</table>\n</html>\n");
    return write_line(&l, to, err);
}
