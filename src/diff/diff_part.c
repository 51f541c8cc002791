// SPDX-License-Identifier: Apache-2.0
// Which steps two traces have in common, and what one alone has: diff.h.
#include <inttypes.h>
#include <stdio.h>

#include "base/line.h"
#include "diff/diffs.h"

/* Calls one behind the other that are of one step. */
typedef struct stretch {
    int64_t step, end; /* the call behind it */
    bool paired;       /* one of them at least */
} stretch;

static stretch stretch_at(const usc_diff *d, int side, int64_t i)
{
    const usc_diff_list *list = &d->list[side];
    stretch s = {.step = list->call[i].step, .end = i};
    for (; s.end < list->n && list->call[s.end].step == s.step; s.end++)
        s.paired = s.paired || d->row_of[side][s.end] >= 0;
    return s;
}

bool usc_diff_lacks_steps(const usc_diff *d, int side)
{
    for (int64_t i = 0; i < d->list[side].n;) {
        const stretch s = stretch_at(d, side, i);
        if (!s.paired) return true;
        i = s.end;
    }
    return false;
}

static void add_range(usc_line *to, int64_t first, int64_t last, bool begins)
{
    usc_line_add(to, begins ? "%" PRId64 : ", %" PRId64, first);
    if (last > first) usc_line_add(to, "%s%" PRId64, last > first + 1 ? "-" : ", ", last);
}

/* "steps 0, 2, 3": those that have pairs, or those that have none; nothing where there
 * is none of them. */
static void add_steps(usc_line *to, const usc_diff *d, int side, bool paired)
{
    usc_line steps = {0};
    int64_t first = 0, last = 0, n = 0;
    bool begins = true;
    for (int64_t i = 0; i < d->list[side].n;) {
        const stretch s = stretch_at(d, side, i);
        i = s.end;
        if (s.paired != paired) continue;
        if (n > 0 && s.step > last + 1) {
            add_range(&steps, first, last, begins);
            begins = false;
        }
        if (n == 0 || s.step > last + 1) first = s.step;
        last = s.step;
        n++;
    }
    if (n > 0) {
        add_range(&steps, first, last, begins);
        usc_line_add(to, "%s %s", n == 1 ? "step" : "steps",
                     steps.text != NULL ? steps.text : "");
    }
    usc_line_free(&steps);
}

static void add_alone(usc_line *to, const usc_diff *d, int side)
{
    const int64_t n = d->n_alone[side];
    const char *what = d->options.modules ? n == 1 ? "pass" : "passes"
                       : n == 1           ? "call"
                                          : "calls";
    if (n == 0) return;
    usc_line_add(to, "%s%" PRId64 " %s of %c", to->n > 0 ? ", " : "", n, what,
                 "AB"[side]);
    if (!usc_diff_lacks_steps(d, side)) return;
    usc_line_text(to, " (");
    add_steps(to, d, side, false);
    usc_line_text(to, ")");
}

static void give(usc_line *line, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", line->text != NULL ? line->text : "");
    usc_line_free(line);
}

void usc_diff_say_common(const usc_diff *d, char *common, char *alone, size_t size)
{
    usc_line both = {0}, one = {0};
    if (usc_diff_lacks_steps(d, 0) || usc_diff_lacks_steps(d, 1))
        add_steps(&both, d, 0, true);
    for (int side = 0; side < 2; side++)
        add_alone(&one, d, side);
    if (one.n > 0)
        usc_line_text(&one, d->n_alone[0] + d->n_alone[1] == 1 ? " has no partner"
                                                               : " have no partner");
    give(&both, common, size);
    give(&one, alone, size);
}
