// SPDX-License-Identifier: Apache-2.0
// Sections of the table that only some runs have: inputs that were NaN or Inf, the
// self-test, other standards.
#include "report/report_table.h"

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "report/report_selftest.h"
#include "report/report_standards.h"

void usc_table_odd_inputs(usc_table *t)
{
    char words[320];
    const usc_odd_inputs *odd = &t->r->odd;
    if (odd->n == 0) return;
    (void)snprintf(
        words, sizeof words,
        "%lld call%s NaN or Inf among the inputs (%lld NaN), the first is call "
        "%lld; %lld of them pass%s: where the truth is NaN or Inf, no number is "
        "compared",
        (long long)odd->n, odd->n == 1 ? " has" : "s have", (long long)odd->n_nan,
        (long long)odd->first, (long long)odd->n_pass, odd->n_pass == 1 ? "es" : "");
    usc_table_line(t, "non-finite", words);
}

void usc_table_excused(usc_table *t)
{
    char words[320];
    const usc_excused *e = &t->r->excused;
    if (e->n == 0) return;
    (void)usc_format(words, sizeof words,
                     "%lld call%s more than 3 %% of an output excused, at most %.0f %% "
                     "(%.100s), the first is call %lld",
                     (long long)e->n, e->n == 1 ? " has" : "s have", 100 * e->most,
                     e->excuse, (long long)e->first);
    usc_table_line(t, "excused", words);
}

void usc_table_low(usc_table *t)
{
    char words[320];
    const usc_low_passes *low = &t->r->low;
    if (low->n == 0) return;
    (void)usc_format(
        words, sizeof words,
        "passes with < %d of 24 bits: %lld, the lowest: call %lld %.200s %.1f",
        USC_LOW_BITS, (long long)low->n, (long long)low->call, low->op,
        low->bits > 0 ? low->bits : 0.0);
    usc_table_line(t, "low", words);
}

/* ---- self-test ---- */

static void size_text(double bits, char *out, size_t size)
{
    if (isnan(bits))
        (void)snprintf(out, size, "none");
    else
        (void)usc_format(out, size, "%.1e", exp2(-bits));
}

static void probe(usc_table *t, const usc_self_test *s)
{
    enum { OP = 34, WIDTH = 10 };
    char text[32];
    t->column = 0;
    usc_table_put(t, s->op, strlen(s->op));
    if (t->column >= OP) usc_table_new_line(t, OP);
    usc_table_cell(t, "", OP - t->column, false);
    (void)snprintf(text, sizeof text, "%lld", (long long)s->n_pass);
    usc_table_cell(t, text, 7, true);
    if (s->skipped[0] != '\0') {
        usc_table_put(t, "  ", 2);
        usc_table_wrap(t, s->skipped, OP + 9);
        usc_out_text(t->o, "\n");
        return;
    }
    const double sizes[] = {s->noise, s->element, s->factor};
    for (int i = 0; i < 3; i++) {
        size_text(sizes[i], text, sizeof text);
        usc_table_cell(t, text, WIDTH, true);
    }
    (void)snprintf(text, sizeof text, "%d of %d", s->n_caught, s->n_caught + s->n_unseen);
    usc_table_cell(t, text, WIDTH + 2, true);
    if (s->n_unseen > 0) {
        usc_table_new_line(t, 4);
        usc_table_put(t, "unseen: ", 8);
        usc_table_wrap(t, s->unseen, 4);
    }
    usc_out_text(t->o, "\n");
}

void usc_table_self_test(usc_table *t)
{
    if (t->r->self_test == NULL) return;
    usc_table_color(t, "2");
    usc_out_text(t->o, "\nself-test: the smallest relative error that the verdict would "
                       "have caught\n");
    usc_out_format(t->o, "%-34s%7s%10s%10s%10s%12s\n", "operator", "pass", "noise",
                   "one elem.", "factor", "mistakes");
    usc_table_color(t, "0");
    for (const usc_self_test *s = t->r->self_test; s != NULL; s = s->next)
        probe(t, s);
    if (!usc_standards_compared(t->r)) usc_out_text(t->o, "\n");
}

/* ---- other standards ---- */

static void standard_group(usc_table *t, const usc_standard_group *g)
{
    enum { OP = 30, INDENT = 14 + 7 + 2 + OP + 1 };
    char calls[24], words[1200];
    t->column = 0;
    (void)snprintf(calls, sizeof calls, "%lld", (long long)g->n_rows);
    usc_table_color(t, usc_table_verdict_color(g->verdict));
    usc_table_cell(t, usc_verdict_text(g->verdict), 14, false);
    usc_table_color(t, "0");
    usc_table_cell(t, calls, 7, true);
    usc_out_text(t->o, "  ");
    t->column += 2;
    usc_table_put(t, g->op, strlen(g->op));
    if (t->column >= INDENT)
        usc_table_new_line(t, INDENT);
    else
        usc_table_cell(t, "", INDENT - t->column, false);
    const bool none = g->accused[0] == '\0', judged = g->unjudged[0] == '\0';
    (void)snprintf(words, sizeof words, "%s%s%s%s", none && judged ? "none" : g->accused,
                   none || judged ? "" : "; ", judged ? "" : "unjudged by ", g->unjudged);
    usc_table_wrap(t, words, INDENT);
    usc_out_text(t->o, "\n");
}

void usc_table_standards(usc_table *t)
{
    if (!usc_standards_compared(t->r)) return;
    usc_table_color(t, "2");
    usc_out_format(t->o, "\n%-14s%7s  %-30s %s\n", "verdict", "calls", "operator",
                   "accused by");
    usc_table_color(t, "0");
    for (const usc_standard_group *g = t->r->groups; g != NULL; g = g->next)
        standard_group(t, g);
    usc_table_color(t, "2");
    usc_out_format(t->o, "\n%-20s%9s%9s%9s%10s   of %lld calls\n", "standard", "accuses",
                   "misses", "extra", "unjudged", (long long)t->r->n_rows);
    usc_table_color(t, "0");
    for (const usc_standard_sum *s = t->r->standards; s != NULL; s = s->next) {
        usc_table_cell(t, s->name, 20, false);
        usc_out_format(t->o, "%9lld%9lld%9lld%10lld\n", (long long)s->n_wrong,
                       (long long)s->n_missed, (long long)s->n_extra,
                       (long long)usc_standard_unjudged(t->r, s));
    }
    usc_table_label(t, "");
    usc_table_wrap(
        t,
        "misses: calls accused above that the standard passes; extra: calls that it "
        "accuses and that pass above",
        USC_TABLE_LABEL);
    usc_out_text(t->o, "\n\n");
}

void usc_table_time(usc_table *t)
{
    const usc_times *s = &t->r->times;
    if (s->total <= 0) return;
    const double total = (double)s->total, each = total / 1e6 / (double)t->r->n_rows;
    const int64_t known = s->device + s->reference + s->perturbed + s->judge + s->causes;
    const double rest = known < s->total ? (double)(s->total - known) : 0;
    char text[256];
    if (usc_report_of_files(t->r) || known == s->causes) {
        int n = usc_format(text, sizeof text, "%.1f s of judging (%.1f ms a %s)",
                           total / 1e9, each, usc_report_noun(t->r));
        if (s->causes > 0)
            (void)usc_format(text + n, sizeof text - (size_t)n,
                             ", %.0f %% of it for causes",
                             100 * (double)s->causes / total);
        usc_table_line(t, "time", text);
        return;
    }
    (void)usc_format(
        text, sizeof text,
        "%.1f s in workers (%.1f ms a call): device %.0f %%, reference %.0f %%, "
        "perturbed replays %.0f %%, judge %.0f %%, causes %.0f %%, overhead %.0f %%",
        total / 1e9, each, 100 * (double)s->device / total,
        100 * (double)s->reference / total, 100 * (double)s->perturbed / total,
        100 * (double)s->judge / total, 100 * (double)s->causes / total,
        100 * rest / total);
    usc_table_line(t, "time", text);
}
