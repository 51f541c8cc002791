// SPDX-License-Identifier: Apache-2.0
// What a user asks of a list of calls: steps, one call with those below it, operators by
// names that are nearly theirs.
#include "call/calls.h"

#include <ulpscope/x/pattern.h>
#include <ulpscope/x/unmatched.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- steps ---- */

enum { MOST_STEPS = 1000000 };

static const char *skip_spaces(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

/* A number of at most 18 digits; false where there is none. */
static bool read_number(const char **p, int64_t *out)
{
    *p = skip_spaces(*p);
    const size_t n = strspn(*p, "0123456789");
    if (n == 0 || n > 18) return false;
    *out = strtoll(*p, NULL, 10);
    *p = skip_spaces(*p + n);
    return true;
}

static usc_status read_range(const char *text, const char *part, int n_part,
                             usc_steps *out, usc_error *err)
{
    const char *p = part;
    bool good = read_number(&p, &out->first);
    out->last = out->first;
    if (good && *p == '-') {
        p++;
        good = read_number(&p, &out->last);
    }
    if (!good || p < part + n_part || (*p != '\0' && *p != ','))
        return usc_error_set(err, USC_E_ARG, part - text,
                             "steps '%.100s': '%.*s' is neither a number nor a range",
                             text, n_part, part);
    if (out->last < out->first)
        return usc_error_set(err, USC_E_ARG, part - text,
                             "steps '%.100s': the range %.*s runs backwards", text,
                             n_part, part);
    if (out->last - out->first >= MOST_STEPS)
        return usc_error_set(err, USC_E_ARG, part - text,
                             "steps '%.100s': more than 1,000,000 steps", text);
    return USC_OK;
}

static size_t n_parts(const char *text)
{
    size_t n = 1;
    for (; *text != '\0'; text++)
        n += *text == ',';
    return n;
}

usc_status usc_steps_read(const char *text, usc_steps **out, size_t *n, usc_error *err)
{
    usc_steps *list = malloc(n_parts(text) * sizeof *list);
    usc_status st = USC_OK;
    size_t count = 0;
    if (list == NULL) st = usc_error_set(err, USC_E_NOMEM, -1, "steps: no memory");
    for (const char *part = text; st == USC_OK; part++) {
        const size_t size = strcspn(part, ",");
        st = read_range(text, part, (int)size, &list[count++], err);
        part += size;
        if (*part == '\0') break;
    }
    if (n != NULL) *n = st == USC_OK ? count : 0;
    if (out != NULL) *out = st == USC_OK ? list : NULL;
    if (out == NULL || st != USC_OK) free(list);
    return st;
}

/* ---- one call, some steps ---- */

bool usc_steps_have(const usc_steps *steps, size_t n, int64_t step)
{
    for (size_t i = 0; i < n; i++)
        if (steps[i].first <= step && step <= steps[i].last) return true;
    return n == 0;
}

static bool is_in(const int64_t *list, int64_t n, int64_t call)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (list[mid] < call)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && list[low] == call;
}

/* Whether a call is one of the list or lies below one. */
static bool is_near(const usc_calls *c, const usc_call *call, const int64_t *of,
                    int64_t n)
{
    while (call != NULL && !is_in(of, n, call->sequence))
        call = call->parent != 0 && call->parent < call->sequence
                   ? usc_calls_find(c, call->parent)
                   : NULL;
    return call != NULL;
}

void usc_calls_wanted(const usc_calls *calls, const usc_wanted *w, int64_t *out,
                      int64_t *n)
{
    *n = 0;
    for (int64_t i = 0; i < w->n_matching; i++) {
        const usc_call *one = usc_calls_find(calls, w->matching[i]);
        if (one != NULL && usc_steps_have(w->steps, w->n_steps, one->step) &&
            (w->call < 0 || is_near(calls, one, &w->call, 1)) &&
            (w->calls == NULL || is_near(calls, one, w->calls, w->n_calls)))
            out[(*n)++] = one->sequence;
    }
}

/* ---- names that are nearly an operator's ---- */

enum { MOST_LIKELY = 3, WORD_SIZE = 96 };

/* The name in `text`, in small letters, without underscores around it: "mm" of
 * "aten::mm.out", "linear" of "torch.nn.functional.linear". */
static void bare_name(const char *op, char *out)
{
    const char *colon = strstr(op, "::");
    const char *dot = strrchr(op, '.');
    const char *p = colon != NULL ? colon + 2 : dot != NULL ? dot + 1 : op;
    while (*p == '_')
        p++;
    size_t n = strcspn(p, ".");
    while (n > 0 && p[n - 1] == '_')
        n--;
    if (n >= WORD_SIZE) n = WORD_SIZE - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)tolower((unsigned char)p[i]);
    out[n] = '\0';
}

typedef struct likely {
    const usc_calls *calls;
    int n;
    const char *op[MOST_LIKELY];
} likely;

/* Adds the operators whose bare name is `name`, in the order of their names. */
static void add_named(likely *l, const char *name)
{
    const char *last = "";
    while (l->n < MOST_LIKELY) {
        const char *next = NULL;
        for (int64_t i = 0; i < l->calls->n; i++) {
            const char *op = l->calls->call[i].op;
            char bare[WORD_SIZE];
            bare_name(op, bare);
            if (strcmp(bare, name) == 0 && strcmp(op, last) > 0 &&
                (next == NULL || strcmp(op, next) < 0))
                next = op;
        }
        if (next == NULL) return;
        last = next;
        bool there = false;
        for (int i = 0; i < l->n; i++)
            there |= strcmp(l->op[i], next) == 0;
        if (!there) l->op[l->n++] = next;
    }
}

/* The bare name that is nearest to a word, "" where none is near. */
static void nearest(const usc_calls *c, const char *word, char *out)
{
    double best = 0.75;
    out[0] = '\0';
    for (int64_t i = 0; i < c->n; i++) {
        char bare[WORD_SIZE];
        bare_name(c->call[i].op, bare);
        const double like = usc_likeness(word, bare);
        if (like < best || (like == best && out[0] != '\0')) continue;
        best = like;
        memcpy(out, bare, sizeof bare);
    }
}

static bool is_name(const usc_calls *c, const char *word)
{
    char near[WORD_SIZE];
    nearest(c, word, near);
    return strcmp(near, word) == 0;
}

/* Words of one glob: "torch", "mm" of "torch.mm*"; those that are names, else what is
 * near to any. */
static void add_part(likely *l, const char *part, size_t n)
{
    static const char apart[] = ".:*!? \t";
    for (int only_near = 0; only_near < 2; only_near++) {
        const int before = l->n;
        for (size_t at = 0; at < n;) {
            at += strspn(part + at, apart);
            char word[WORD_SIZE], raw[WORD_SIZE], near[WORD_SIZE];
            size_t size = strcspn(part + at, ".:*!? \t,");
            if (at >= n || size == 0) break;
            (void)snprintf(raw, sizeof raw, "%.*s", (int)size, part + at);
            bare_name(raw, word);
            at += size;
            if (word[0] == '\0' || (!only_near && !is_name(l->calls, word))) continue;
            nearest(l->calls, word, near);
            if (near[0] != '\0') add_named(l, near);
        }
        if (l->n > before) return;
    }
}

void usc_calls_likely(const usc_calls *calls, const char *pattern, char *out, size_t size)
{
    likely l = {.calls = calls};
    if (size == 0) return;
    out[0] = '\0';
    for (const char *part = pattern; *part != '\0';) {
        const size_t n = strcspn(part, ",");
        add_part(&l, part, n);
        part += n + (part[n] == ',');
    }
    size_t used = 0;
    for (int i = 0; i < l.n; i++) {
        const int n =
            snprintf(out + used, size - used, "%s%s", i > 0 ? "," : "", l.op[i]);
        if (n < 0 || (size_t)n >= size - used) return;
        used += (size_t)n;
    }
}

void usc_calls_unmatched(const usc_calls *calls, const char *pattern, char *out,
                         size_t size)
{
    const char **names = calloc((size_t)calls->n + 1, sizeof *names);
    if (size > 0) out[0] = '\0';
    if (names == NULL) return;
    for (int64_t i = 0; i < calls->n; i++)
        names[i] = calls->call[i].op;
    usc_pattern_unmatched(pattern, names, calls->n, out, size);
    free(names);
}
