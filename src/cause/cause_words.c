// SPDX-License-Identifier: Apache-2.0
// Clauses, made from what was found and the list in cause.h.
#include "cause/cause_state.h"

#include <stdio.h>

#include "base/line.h"
#include "base/number.h"

static const struct {
    const char *code, *words;
    bool seen;
} list[USC_N_CAUSES] = {
#define ROW(id, code, seen, words) [USC_CAUSE_##id] = {code, words, seen},
    USC_CAUSE_LIST(ROW)
#undef ROW
};

const char *usc_cause_code_text(usc_cause_code code)
{
    return code < USC_N_CAUSES ? list[code].code : "";
}

bool usc_cause_tells_place(const char *code)
{
    static const char *const telling[] = {
        "lost", "unchanged", "all_zero", "all_nan", "constant", "shape",   "truncated",
        "tail", "run",       "slices",   "tile",    "content",  "padding", "moved"};
    for (size_t i = 0; i < sizeof telling / sizeof telling[0]; i++)
        if (strcmp(code, telling[i]) == 0) return true;
    return false;
}

static void say_axes(usc_line *l, unsigned axes)
{
    const bool several = (axes & (axes - 1)) != 0;
    const char *before = several ? "[" : "";
    for (int a = 0; a < USC_MAX_DIMS; a++) {
        if ((axes >> a & 1) == 0) continue;
        usc_line_add(l, "%s%d", before, a);
        before = ", ";
    }
    if (several) usc_line_text(l, "]");
}

/* Which slices of an axis; c->b: whether there are other axes. */
static void say_slices(usc_line *l, const clue *c)
{
    const char *flat = c->b != 0 ? "" : " elements";
    if (c->listed != NULL)
        usc_line_add(l, "%s%s of %lld", flat[0] != '\0' ? "elements " : "slices ",
                     c->listed, (long long)c->m);
    else if (c->step != 0)
        usc_line_add(l, "%lld of %lld%s", (long long)c->n, (long long)c->m, flat);
    else if (c->last == c->m - 1)
        usc_line_add(l, "the last %lld of %lld%s", (long long)c->n, (long long)c->m,
                     flat);
    else if (c->first == 0)
        usc_line_add(l, "the first %lld of %lld%s", (long long)c->n, (long long)c->m,
                     flat);
    else if (c->first == c->last)
        usc_line_add(l, "%s %lld of %lld", c->b != 0 ? "slice" : "element",
                     (long long)c->first, (long long)c->m);
    else
        usc_line_add(l, "%s%lld to %lld of %lld", c->b != 0 ? "slices " : "elements ",
                     (long long)c->first, (long long)c->last, (long long)c->m);
    if (c->b != 0) usc_line_add(l, " along axis %lld", (long long)c->a);
}

static void say_place(usc_line *l, const clue *c)
{
    if (c->place == PLACE_AXES)
        say_axes(l, c->axes);
    else if (c->place == PLACE_AXIS)
        say_slices(l, c);
    else
        usc_line_add(l, "rows %lld to %lld, columns %lld to %lld", (long long)c->tile[0],
                     (long long)c->tile[1], (long long)c->tile[2], (long long)c->tile[3]);
}

static void say_content(usc_line *l, const clue *c)
{
    const bool spread = c->code == USC_CAUSE_SPREAD, tail = c->last == c->m - 1;
    if (c->content == HOLDS_ZERO && (spread || c->bare))
        usc_line_text(l, "zero");
    else if (c->content == HOLDS_ZERO)
        usc_line_add(l, "zero: %s",
                     c->code == USC_CAUSE_RUN ? "a tile that was not written"
                     : c->code == USC_CAUSE_SLICES && !(tail && c->step == 0)
                         ? "dropped contribution, not written"
                         : "the tail was not written");
    else if (c->content == HOLDS_STALE)
        usc_line_text(l, c->code == USC_CAUSE_TILE ? "stale: it was not written"
                                                   : "stale: they were not written");
    else if (c->content == HOLDS_NAN)
        usc_line_text(l, spread ? "NaN: spurious NaN" : "NaN: spurious NaN, not written");
    else
        usc_line_add(l, "constant %.6g", c->value);
}

/* Of slices: whether a sentence has one of them. */
static bool is_single(const clue *c)
{
    return c->place == PLACE_AXIS && c->n == 1;
}

static void say_letter(usc_line *l, char letter, const clue *c)
{
    switch (letter) {
    case 'n':
        usc_line_count(l, c->n);
        break;
    case 'm':
        usc_line_count(l, c->m);
        break;
    case 'f':
        usc_line_add(l, "%lld", (long long)c->first);
        break;
    case 'l':
        usc_line_add(l, "%lld", (long long)c->last);
        break;
    case 'a':
        usc_line_add(l, "%lld", (long long)c->a);
        break;
    case 'b':
        usc_line_add(l, "%lld", (long long)c->b);
        break;
    case 'v': /* nearly one is not one */
        usc_line_add(l, fabs(c->v - 1) < 0x1p-14 ? "%.9g" : "%.6g", c->v);
        break;
    case 'u':
        usc_line_add(l, "%.6g", c->u);
        break;
    case 's':
        usc_line_text(l, c->s != NULL ? c->s : "");
        break;
    case 'p':
        say_place(l, c);
        break;
    case 'r':
        usc_line_text(l, is_single(c) ? "is" : "are");
        break;
    case 't':
        usc_line_text(l, is_single(c) ? "s" : "");
        break;
    default:
        if (c->held != NULL)
            usc_line_text(l, c->held);
        else
            say_content(l, c);
    }
}

bool usc_cause_say(usc_cause_found *out, const clue *said)
{
    usc_line l = {0};
    if (list[said->code].seen || said->seen) usc_line_text(&l, "looks like: ");
    for (const char *at = list[said->code].words; *at != '\0'; at++) {
        if (*at == '$' && at[1] != '\0')
            say_letter(&l, *++at, said);
        else
            usc_line_put(&l, at, 1);
    }
    out->code = said->code;
    (void)snprintf(out->text, sizeof out->text, "%s", l.text != NULL ? l.text : "");
    if (l.failed) *out = (usc_cause_found){.left = (double)INFINITY};
    usc_line_free(&l);
    return true;
}
