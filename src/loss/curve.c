// SPDX-License-Identifier: Apache-2.0
// A curve out of the points that a reader found: which names are losses, steps in order,
// what a resumed run gave twice. docs/reference/loss.md, section 1.
#include "loss/curve.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/number.h"
#include "loss/curve_text.h"

/* ---- the curve ---- */

/* All that usc_curve_free frees, the curve first. */
typedef struct made {
    usc_curve curve;
    char *name, *key, *notes, *axis, *others;
    int64_t *steps;
    double *values;
} made;

void usc_curve_free(usc_curve *curve)
{
    made *c = (made *)curve;
    if (c == NULL) return;
    free(c->name);
    free(c->key);
    free(c->notes);
    free(c->axis);
    free(c->others);
    free(c->steps);
    free(c->values);
    free(c);
}

static int by_step(const void *a, const void *b)
{
    const usc_curve_point *p = a, *q = b;
    if (p->step != q->step) return p->step < q->step ? -1 : 1;
    return p->place < q->place ? -1 : 1;
}

/* What a sentence calls the values: not all that is read here is a loss. */
static const char *called(const usc_curve_maker *m, char out[USC_CURVE_KEY + 2])
{
    if (m->key == NULL) return "the loss"; /* by a regular expression */
    (void)usc_format(out, USC_CURVE_KEY + 2, "'%s'", m->key);
    return out;
}

/* How often what is called a step begins anew, as a counter within each epoch does: from
 * the farther half of its way it goes back to where the file begins, or it is one number
 * all along. A run that was resumed goes back to the middle, ranks that write into one log
 * by a step or two. */
static size_t begins_anew(const usc_curve_maker *m)
{
    int64_t first = USC_NO_STEP, last = USC_NO_STEP, far = USC_NO_STEP;
    size_t n = 0, n_equal = 0;
    for (size_t i = 0; i < m->n; i++) {
        const int64_t step = m->points[i].step;
        if (step != USC_NO_STEP && first == USC_NO_STEP) first = step;
        if (step > last) last = step;
    }
    for (size_t i = 0; i < m->n; i++) {
        const int64_t step = m->points[i].step;
        if (step == USC_NO_STEP) continue;
        const bool back = step <= first && far != USC_NO_STEP;
        if (back && 2 * (far - first) > last - first) n++, far = first;
        n_equal += step == first;
        if (step > far) far = step;
    }
    return first == last ? n_equal - 1 : n;
}

/* Steps that begin anew where each line says its epoch and of how many the step is one:
 * "Epoch [2][50/2000]". False: not all do. */
static bool number_by_epoch(usc_curve_maker *m)
{
    for (size_t i = 0; i < m->n; i++) {
        const usc_curve_point *p = &m->points[i];
        if (p->of <= 0 || p->step > p->of || p->of != m->points[0].of) return false;
    }
    for (size_t i = 0; i < m->n; i++)
        m->points[i].step += m->points[i].epoch * m->points[i].of;
    usc_curve_note(m, "'%s' begins anew with each epoch: counted on with %lld for each",
                   m->axis, (long long)m->points[0].of);
    return true;
}

/* Places for steps that begin anew; a value that is printed twice, as a progress bar does
 * when it ends, counts once. */
static void number_by_place(usc_curve_maker *m, size_t n)
{
    char room[USC_CURVE_KEY + 2];
    size_t kept = 0;
    usc_curve_note(m,
                   "'%s' begins anew %zu times, as within epochs, and numbers nothing: "
                   "the values of %s are numbered by their place",
                   m->axis, n, called(m, room));
    for (size_t i = 0; i < m->n; i++) {
        const usc_curve_point p = m->points[i];
        if (i > 0 && p.step == m->points[kept - 1].step &&
            memcmp(&p.value, &m->points[kept - 1].value, sizeof p.value) == 0)
            continue;
        m->points[kept++] = p;
    }
    m->n = kept;
    for (size_t i = 0; i < m->n; i++)
        m->points[i].step = (int64_t)i;
}

/* Whether the file gives the steps: at least half of the points have one. Those that have none are left
 * out then, else places stand for steps. */
static bool number_points(usc_curve_maker *m)
{
    char room[USC_CURVE_KEY + 2];
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < m->n; i++)
        n += m->points[i].step != USC_NO_STEP;
    const bool numbered = 2 * n >= m->n;
    const size_t n_anew = numbered ? begins_anew(m) : 0;
    if (n_anew > 0 && !number_by_epoch(m)) {
        number_by_place(m, n_anew);
        return false;
    }
    for (size_t i = 0; i < m->n; i++) {
        if (!numbered) m->points[i].step = (int64_t)i;
        if (m->points[i].step != USC_NO_STEP) m->points[kept++] = m->points[i];
    }
    if (kept < m->n)
        usc_curve_note(m, "%zu values of %s stand without a step and are left out",
                       m->n - kept, called(m, room));
    m->n = kept;
    return numbered;
}

/* Commas are decimal; beside points they may stand between thousands instead. */
static usc_status look_at_commas(usc_curve_maker *m)
{
    char plain[USC_CURVE_NUMBER];
    if (m->comma[0] == '\0') return USC_OK;
    if (m->point[0] != '\0')
        return usc_error_set(
            m->err, USC_E_RANGE, -1,
            "%s: some numbers have a comma, '%s', and some a point, '%s': "
            "which of them is decimal? Write them in one way",
            m->name, m->comma, m->point);
    (void)usc_curve_plain(m->comma, strlen(m->comma), plain, sizeof plain);
    usc_curve_note(m, "numbers have a decimal comma: '%s' is read as %s", m->comma,
                   plain);
    return USC_OK;
}

static void fill(usc_curve_maker *m, made *c)
{
    char room[USC_CURVE_KEY + 2];
    usc_curve *curve = &c->curve;
    for (size_t i = 0; i < m->n; i++) {
        const bool again = i + 1 < m->n && m->points[i + 1].step == m->points[i].step;
        curve->n_again += again;
        if (again) continue;
        if (!isfinite(m->points[i].value) && curve->first_bad < 0)
            curve->first_bad = m->points[i].step;
        c->steps[curve->n] = m->points[i].step;
        c->values[curve->n++] = m->points[i].value;
    }
    curve->grain = m->printed ? pow(10, -m->digits) : 0;
    if (curve->n_again > 0)
        usc_curve_note(
            m,
            "%lld values of %s stand twice or more for their step, as in a run "
            "that was resumed: the last one counts",
            (long long)curve->n_again, called(m, room));
    if (curve->first_bad >= 0)
        usc_curve_note(m, "%s is NaN or Inf at step %lld, for the first time",
                       called(m, room), (long long)curve->first_bad);
}

static usc_status none_found(usc_curve_maker *m)
{
    const char *key = m->options->key, *names = m->n_names > 0 ? m->names.text : NULL;
    if (m->options->regex != NULL)
        return usc_error_set(m->err, USC_E_RANGE, -1,
                             "%s: no line fits --regex '%s' with a number for the loss",
                             m->name, m->options->regex);
    if (key != NULL)
        return usc_error_set(m->err, USC_E_RANGE, -1,
                             "%s: nothing called '%s' with a "
                             "number in this %s%s%s",
                             m->name, key, m->form, names != NULL ? "; there are " : "",
                             names != NULL ? names : "");
    if (names != NULL)
        return usc_error_set(
            m->err, USC_E_RANGE, -1,
            "%s: nothing in this %s is called loss; name one with --key: "
            "there are %s",
            m->name, m->form, names);
    return usc_error_set(
        m->err, USC_E_RANGE, -1,
        "%s: no loss with a number in this %s; say how it is written, "
        "e.g. --key 'lm loss' or --regex 'loss[=: ]+(?P<loss>[-+.0-9eE]+)'",
        m->name, m->form);
}

static usc_status make(usc_curve_maker *m, usc_curve **out)
{
    if (m->status != USC_OK) return m->status;
    if (m->n == 0) return none_found(m);
    m->status = look_at_commas(m);
    if (m->status != USC_OK) return m->status;
    made *c = calloc(1, sizeof *c);
    if (c == NULL) return usc_no_memory(m->name, m->err);
    const bool numbered = number_points(m);
    if (numbered) qsort(m->points, m->n, sizeof *m->points, by_step);
    c->steps = calloc(m->n, sizeof *c->steps);
    c->values = calloc(m->n, sizeof *c->values);
    c->curve.first_bad = -1;
    if (c->steps != NULL && c->values != NULL) fill(m, c);
    c->name = strdup(m->name);
    c->key = strdup(m->options->regex != NULL ? m->options->regex : m->key);
    c->axis = strdup(numbered ? m->axis : "");
    c->others = strdup(m->others != NULL ? m->others : "");
    c->notes = strdup(m->notes.text != NULL ? m->notes.text : "");
    const bool ok = c->steps != NULL && c->values != NULL && c->name != NULL &&
                    c->key != NULL && c->notes != NULL && c->axis != NULL &&
                    c->others != NULL && !m->notes.failed;
    c->curve.numbered = numbered;
    c->curve.held_out = ok && m->options->key == NULL && m->options->regex == NULL &&
                        usc_curve_is_held_out(c->key);
    c->curve.form = m->form;
    c->curve.name = c->name;
    c->curve.key = c->key;
    c->curve.notes = c->notes;
    c->curve.axis = c->axis;
    c->curve.others = c->others;
    c->curve.digest = m->digest;
    c->curve.steps = c->steps;
    c->curve.values = c->values;
    *out = ok ? &c->curve : NULL;
    if (!ok) usc_curve_free(&c->curve);
    return ok ? USC_OK : usc_no_memory(m->name, m->err);
}

/* ---- which kind of file ---- */

static void read_any(usc_curve_maker *m, const char *data, size_t size)
{
    size_t space = 0;
    while (space < size && isspace((unsigned char)data[space]))
        space++;
    if (space == size)
        m->status = usc_error_set(m->err, USC_E_RANGE, -1, "%s is empty", m->name);
    else if (usc_curve_is_events(data, size))
        usc_curve_events(m, data, size);
    else if (usc_curve_is_binary(data, size))
        m->status = usc_curve_no_text(m->name, data, size, m->err);
    else if (m->options->regex != NULL)
        usc_curve_log(m, data, size);
    else if (usc_curve_is_json(data, size))
        usc_curve_json(m, data, size);
    else if (usc_curve_is_metric(data, size))
        usc_curve_metric(m, data, size);
    else if (usc_curve_is_table(m->options, data, size))
        usc_curve_table(m, data, size);
    else
        usc_curve_log(m, data, size);
}

usc_status usc_curve_parse(const char *name, const void *data, size_t size,
                           const usc_curve_options *options, usc_curve **out,
                           usc_error *err)
{
    static const usc_curve_options usual;
    usc_curve_maker m = {.name = name,
                         .options = options != NULL ? options : &usual,
                         .form = "log",
                         .err = err};
    usc_curve_bytes text;
    *out = NULL;
    m.status = usc_curve_text_of(name, data, size, &text, err);
    m.digest = usc_hash64_bytes(text.data, text.size);
    if (m.status == USC_OK) read_any(&m, text.data, text.size);
    const usc_status st = make(&m, out);
    free(text.own);
    free(m.points);
    usc_line_free(&m.notes);
    usc_line_free(&m.names);
    free(m.candidates);
    free(m.others);
    return st;
}
