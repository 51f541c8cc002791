// SPDX-License-Identifier: Apache-2.0
// Curves in JSON: an object per line; a list of numbers or of objects; an object of
// lists; the state of a Trainer, whose list is log_history.
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "loss/curve.h"
#include "json/json.h"

enum { MOST_LEVELS = 4 };
static const char wrong[] = "not JSON";

static usc_status parse(usc_curve_maker *m, usc_line *room, const char *text, size_t n,
                        usc_json **out)
{
    return usc_json_parse_python(room, text, n, m->name, wrong, out, m->err);
}

static bool number_of(const usc_json *value, double *out)
{
    int64_t whole;
    const char *text = usc_json_as_text(value);
    if (text != NULL) return usc_curve_number(text, strlen(text), out);
    *out = usc_json_as_integer(value, &whole) ? (double)whole : usc_json_as_number(value);
    return !isnan(*out);
}

/* ---- records ---- */

typedef struct record {
    usc_curve_maker *m;
    bool offer, found;
    int64_t step;
    double value;
} record;

/* A number, or "5/100". The first of several counts. */
static void take_step(record *r, const char *name, size_t n, const usc_json *value)
{
    const char *text = usc_json_as_text(value);
    double number;
    if (r->offer || r->step != USC_NO_STEP) return;
    if (text != NULL)
        (void)usc_curve_step(text, strlen(text), &r->step);
    else if (number_of(value, &number) && number >= 0 && number < 9e15)
        r->step = (int64_t)number;
    if (r->step != USC_NO_STEP) usc_curve_axis(r->m, name, n);
}

/* Members of objects in it are called outer.inner. */
static void look(record *r, const usc_json *object, const char *before, int level)
{
    const char *key;
    const usc_json *value;
    for (void *at = NULL; usc_json_next(object, &at, &key, &value);) {
        char name[USC_CURVE_KEY];
        double number;
        const int n = snprintf(name, sizeof name, "%s%s%s", before,
                               *before != '\0' ? "." : "", key);
        if (n < 0 || (size_t)n >= sizeof name) continue;
        if (usc_json_is_object(value) && level < MOST_LEVELS)
            look(r, value, name, level + 1);
        else if (usc_curve_is_step(name, (size_t)n))
            take_step(r, name, (size_t)n, value);
        else if (!number_of(value, &number))
            continue;
        else if (r->offer)
            usc_curve_offer(r->m, name, (size_t)n, number);
        else if (usc_curve_is_key(r->m, name, (size_t)n))
            r->value = number, r->found = true;
    }
}

static void take_record(usc_curve_maker *m, const usc_json *object, bool offer)
{
    record r = {.m = m, .offer = offer, .step = USC_NO_STEP};
    look(&r, object, "", 0);
    if (r.found) usc_curve_add(m, r.step, r.value);
}

static void take_lines(usc_curve_maker *m, const char *data, size_t size, bool offer)
{
    const char *at = data, *line;
    usc_line sound = {0};
    size_t n;
    long long n_bad = 0;
    while (m->status == USC_OK && usc_curve_line(&at, data + size, &line, &n)) {
        usc_json *root = NULL;
        while (n > 0 && isspace((unsigned char)*line))
            line++, n--;
        if (n == 0) continue;
        const usc_status st = parse(m, &sound, line, n, &root);
        if (st == USC_E_NOMEM) m->status = st;
        n_bad += st == USC_E_CORRUPT;
        if (st == USC_OK) take_record(m, root, offer);
        usc_json_free(root);
    }
    usc_line_free(&sound);
    if (n_bad > 0 && offer)
        usc_curve_note(m, "%lld lines are not JSON and are left out", n_bad);
}

/* ---- documents ---- */

static void take_numbers(usc_curve_maker *m, const usc_json *list, const usc_json *steps)
{
    for (size_t i = 0; i < usc_json_size(list); i++) {
        int64_t step = USC_NO_STEP;
        double value;
        if (!number_of(usc_json_item(list, i), &value)) continue;
        if (i < usc_json_size(steps))
            (void)usc_json_as_integer(usc_json_item(steps, i), &step);
        usc_curve_add(m, step >= 0 ? step : USC_NO_STEP, value);
    }
}

static void take_list(usc_curve_maker *m, const usc_json *list)
{
    double value;
    if (usc_json_size(list) > 0 && number_of(usc_json_item(list, 0), &value)) {
        usc_curve_take(m, "the numbers of the list");
        take_numbers(m, list, NULL);
        return;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < usc_json_size(list); i++)
            take_record(m, usc_json_item(list, i), pass == 0);
        if (pass == 0) usc_curve_choose(m);
    }
}

static void offer_list(usc_curve_maker *m, const char *key, const usc_json *list)
{
    double value;
    for (size_t i = 0; i < usc_json_size(list); i++)
        if (number_of(usc_json_item(list, i), &value))
            usc_curve_offer(m, key, strlen(key), value);
}

/* {"step": [...], "loss": [...]} */
static void take_lists(usc_curve_maker *m, const usc_json *object)
{
    const char *key;
    const usc_json *value, *steps = NULL;
    for (void *at = NULL; usc_json_next(object, &at, &key, &value);) {
        if (!usc_json_is_list(value)) continue;
        if (usc_curve_is_step(key, strlen(key))) {
            steps = value;
            usc_curve_axis(m, key, strlen(key));
            continue;
        }
        offer_list(m, key, value);
    }
    usc_curve_choose(m);
    if (m->key != NULL && m->status == USC_OK)
        take_numbers(m, usc_json_get(object, m->key), steps);
}

static void take_document(usc_curve_maker *m, const usc_json *root)
{
    const usc_json *history = usc_json_get(root, "log_history");
    if (usc_json_is_list(root) || usc_json_is_list(history)) {
        take_list(m, usc_json_is_list(root) ? root : history);
        return;
    }
    take_lists(m, root);
    for (int pass = 0; pass < 2 && m->n == 0; pass++) {
        take_record(m, root, pass == 0);
        if (pass == 0) usc_curve_choose(m);
    }
}

/* ---- which of them ---- */

static const char *past_space(const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    return at;
}

/* Not a log whose lines begin with a time in brackets or with Python's {'loss': ...}. */
bool usc_curve_is_json(const char *data, size_t size)
{
    const char *end = data + size, *at = past_space(data, end);
    while (end > at && isspace((unsigned char)end[-1]))
        end--;
    if (end - at < 2) return false;
    const char next = *past_space(at + 1, end);
    if (*at == '{') return next == '"' || next == '}';
    return *at == '[' && end[-1] == ']' &&
           (next == '{' || next == '-' || next == 'N' || next == ']' ||
            isdigit((unsigned char)next));
}

void usc_curve_json(usc_curve_maker *m, const char *data, size_t size)
{
    const char *const end = data + size, *at = past_space(data, end), *line, *next = at;
    usc_line sound = {0};
    usc_json *root = NULL;
    size_t n = 0;
    m->form = "JSON";
    (void)usc_curve_line(&next, end, &line, &n);
    const bool one = past_space(next, end) == end;
    usc_status st = USC_E_CORRUPT;
    if (*at == '{' && !one) st = parse(m, &sound, line, n, &root);
    usc_json_free(root);
    if (st == USC_OK) {
        take_lines(m, data, size, true);
        usc_curve_choose(m);
        take_lines(m, data, size, false);
    } else {
        m->status = parse(m, &sound, at, (size_t)(end - at), &root);
        if (m->status == USC_OK) take_document(m, root);
        if (m->status == USC_OK) usc_json_free(root);
    }
    usc_line_free(&sound);
}
