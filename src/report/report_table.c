// SPDX-License-Identifier: Apache-2.0
// The table for a terminal: findings worst first, then what else was checked and found
// good. Long text wraps at the width that the caller names.
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "report/report_cases.h"
#include "report/report_places.h"
#include "report/report_summary.h"
#include "report/report_table.h"

enum { LABEL = USC_TABLE_LABEL, MAX_FAMILIES = 6, MAX_OPS = 16, MIN_WIDTH = 50 };

static double shown(double bits)
{
    return bits > 0 ? bits : 0; /* less than none is none */
}

static void bits_text(const usc_report_finding *f, char *out, size_t size)
{
    if (!usc_bits_shown(f->verdict, f->bits))
        (void)snprintf(out, size, "-");
    else if (isnan(f->yardstick_bits))
        (void)usc_format(out, size, "%s%.1f", f->bound ? "≥ " : "", shown(f->bits));
    else
        (void)usc_format(out, size, "%s%.1f / %.1f", f->bound ? "≥ " : "", shown(f->bits),
                         shown(f->yardstick_bits));
}

/* Why a finding that looks flagged is not, or not all of it. */
static void mark(usc_table *t, const usc_report_finding *f, int indent)
{
    char words[64] = "";
    if (!usc_report_finding_counts(f, t->options))
        (void)snprintf(words, sizeof words, " (allowed)");
    else if (f->n_known == f->n_rows)
        (void)snprintf(words, sizeof words, " (known)");
    else if (f->n_known > 0)
        (void)snprintf(words, sizeof words, " (%lld of %lld known)",
                       (long long)f->n_known, (long long)f->n_rows);
    usc_table_wrap(t, words, indent);
    if (f->usual)
        usc_table_wrap(t, " (usual: torch's own CPU kernel does no better)", indent);
}

static void loss(usc_table *t, const usc_report_finding *f, int indent)
{
    char words[64];
    (void)usc_format(words, sizeof words, "loss ±%.2g%s", f->loss,
                     f->n_rows > 1 ? " at most, by one call" : "");
    usc_table_new_line(t, indent);
    usc_table_wrap(t, words, indent);
}

static usc_status finding(usc_table *t, const usc_report_finding *f)
{
    static const int columns[] = {14, 14, 7};
    const int indent = t->width >= 80 ? columns[0] + columns[1] + columns[2] + 2 : 4;
    char bits[48], calls[24];
    bits_text(f, bits, sizeof bits);
    (void)snprintf(calls, sizeof calls, "%lld", (long long)f->n_calls);

    t->column = 0;
    usc_table_color(t, usc_table_verdict_color(f->verdict));
    usc_table_cell(t, usc_verdict_text(f->verdict), columns[0], false);
    usc_table_color(t, "0");
    usc_table_cell(t, bits, columns[1], true);
    usc_table_cell(t, calls, columns[2], true);
    usc_out_text(t->o, "  ");
    t->column += 2;
    usc_table_color(t, "1");
    usc_table_put(t, f->op, strlen(f->op));
    if (f->culprit[0] != '\0') {
        const int more = 3 + usc_utf8_width(f->culprit, strlen(f->culprit));
        if (t->column + more > t->width) usc_table_new_line(t, indent - 1);
        usc_table_put(t, " › ", strlen(" › "));
        usc_table_put(t, f->culprit, strlen(f->culprit));
    }
    usc_table_color(t, "0");

    usc_text places = {0};
    const usc_sink sink = usc_text_sink(&places);
    usc_out o;
    usc_out_begin(&o, &sink, t->o->err);
    usc_status st = usc_places_put(&o, t->r, f, MAX_FAMILIES);
    if (st == USC_OK) st = usc_out_end(&o);
    if (st != USC_OK) return st;
    usc_table_new_line(t, indent);
    usc_table_color(t, "2");
    usc_table_put(t, "in ", 3);
    usc_table_wrap(t, places.bytes, indent);
    usc_table_color(t, "0");
    if (!isnan(f->loss)) loss(t, f, indent);
    usc_table_new_line(t, indent);
    usc_table_wrap(t, f->sentence[0] != '\0' ? f->sentence : f->cause, indent);
    if (usc_verdict_flagged(f->verdict)) mark(t, f, indent);
    usc_out_text(t->o, "\n");
    return t->o->status;
}

static bool listed(const usc_report_finding *f)
{
    return !usc_verdict_missing(f->verdict);
}

static usc_status findings(usc_table *t)
{
    bool any = false;
    for (const usc_report_finding *f = t->r->findings; f != NULL; f = f->next) {
        if (!listed(f)) continue;
        if (!any) {
            usc_table_color(t, "2");
            usc_out_format(t->o, "%-14s%14s%7s  %s", "verdict", "bits / float32", "calls",
                           "operator › culprit");
            usc_table_color(t, "0");
            usc_out_text(t->o, "\n");
        }
        any = true;
        const usc_status st = finding(t, f);
        if (st != USC_OK) return st;
    }
    if (any) usc_out_text(t->o, "\n");
    return t->o->status;
}

/* ---- the summary ---- */

static int64_t n_flagged(const usc_report *r)
{
    int64_t n = 0;
    for (int v = 0; v < USC_N_VERDICTS; v++)
        if (usc_verdict_flagged((usc_verdict)v)) n += r->n[v];
    return n;
}

/* What whoever made the verdicts has to say of all of them, a line each. */
static void remarks(usc_table *t)
{
    const char *rest = usc_report_run(t->r, "remarks"), *name = "note";
    while (*rest != '\0') {
        char words[1024];
        const size_t n = strcspn(rest, "\n");
        (void)snprintf(words, sizeof words, "%.*s", (int)(n < 1000 ? n : 1000), rest);
        usc_table_line(t, name, words);
        name = "";
        rest += n + (rest[n] != '\0');
    }
}

static void checked(usc_table *t)
{
    usc_report *r = t->r;
    usc_text s = {0};
    const usc_sink sink = usc_text_sink(&s);
    usc_out o;
    usc_out_begin(&o, &sink, NULL);
    usc_out_format(&o, "%lld %s%s", (long long)r->n_rows, usc_report_noun(r),
                   r->n_rows == 1 ? "" : "s");
    if (strcmp(usc_report_noun(r), "call") == 0)
        usc_out_format(&o, " of %d operator%s", r->n_ops, r->n_ops == 1 ? "" : "s");
    if (r->n_calls > r->n_rows)
        usc_out_format(&o, ", standing for %lld calls,", (long long)r->n_calls);
    usc_out_text(&o, " of ");
    usc_out_text(&o, usc_report_run(r, "trace"));
    usc_out_text(&o, " on ");
    usc_out_text(&o, usc_report_run(r, "device"));
    const char *standard = usc_report_run(r, "standard");
    if (standard[0] != '\0' && strcmp(standard, "ulpscope") != 0) {
        usc_out_text(&o, " by ");
        usc_out_text(&o, standard);
    }
    const char *faults = usc_report_run(r, "faults");
    if (faults[0] != '\0') {
        usc_out_text(&o, " with planted faults ");
        usc_out_text(&o, faults);
    }
    (void)!usc_out_end(&o);
    usc_table_line(t, "checked", s.bytes);
    const char *left = usc_report_run(r, "left_out");
    if (left[0] != '\0') usc_table_line(t, "", left);
    if (usc_report_live(r)) {
        (void)snprintf(s.bytes, sizeof s.bytes, "so far %lld of %s calls, still running",
                       (long long)r->n_rows, usc_report_run(r, "n_selected"));
        usc_table_line(t, "unfinished", s.bytes);
    } else if (usc_report_unfinished(r)) {
        const char *n = usc_report_run(r, "n_selected");
        (void)snprintf(s.bytes, sizeof s.bytes,
                       "the check was interrupted: %lld of %s selected calls have a "
                       "verdict; the same command goes on",
                       (long long)r->n_rows, n[0] != '\0' ? n : "the");
        usc_table_line(t, "unfinished", s.bytes);
    }
    if (usc_report_over_budget(r)) {
        (void)snprintf(s.bytes, sizeof s.bytes,
                       "the budget was spent: %lld of %s selected calls have a verdict; "
                       "the same command goes on with the rest",
                       (long long)r->n_rows, usc_report_run(r, "n_selected"));
        usc_table_line(t, "incomplete", s.bytes);
    }
}

/* One of several things behind commas; it is not broken over lines. */
static void item(usc_table *t, const char *words, bool first)
{
    const int width = usc_utf8_width(words, strlen(words));
    if (!first) usc_table_put(t, ",", 1);
    if (!first && t->column + 2 + width > t->width)
        usc_table_new_line(t, LABEL);
    else if (!first)
        usc_table_put(t, " ", 1);
    usc_table_put(t, words, strlen(words));
}

static void verdicts(usc_table *t)
{
    usc_table_label(t, "verdicts");
    bool first = true;
    for (int v = 0; v < USC_N_VERDICTS; v++) {
        if (t->r->n[v] == 0) continue;
        char words[64];
        (void)snprintf(words, sizeof words, "%lld %s", (long long)t->r->n[v],
                       usc_verdict_text((usc_verdict)v));
        item(t, words, first);
        first = false;
    }
    usc_out_text(t->o, "\n");
    char text[128];
    const int64_t flagged = n_flagged(t->r);
    if (t->r->n_rows == 0)
        (void)snprintf(text, sizeof text, "Nothing was checked.");
    else if (flagged == 0)
        (void)snprintf(text, sizeof text, "No %s is accused.", usc_report_noun(t->r));
    else
        (void)snprintf(text, sizeof text, "%lld %s%s accused above; no other is.",
                       (long long)flagged, usc_report_noun(t->r),
                       flagged == 1 ? " is" : "s are");
    usc_table_line(t, "", text);
}

/* Flagged calls of the baseline that have no match: put right, or not looked at. */
static void gone(usc_table *t, bool checked_again, const char *what)
{
    usc_text s = {0};
    const usc_sink sink = usc_text_sink(&s);
    usc_out o;
    int64_t n = 0;
    const char *last = "";
    usc_out_begin(&o, &sink, NULL);
    for (const usc_report_case *c = t->r->cases; c != NULL; c = c->next) {
        if ((c->n > 0) != checked_again) continue;
        for (const usc_known *k = c->known; k != NULL; k = k->next) {
            if (k->used || !usc_verdict_flagged(k->verdict)) continue;
            n++;
            if (strcmp(last, c->op) == 0 || n > 1000) continue;
            usc_out_text(&o, last[0] == '\0' ? "" : ", ");
            usc_out_text(&o, c->op);
            last = c->op;
        }
    }
    (void)!usc_out_end(&o);
    if (n == 0) return;
    char words[sizeof s.bytes + 64];
    (void)snprintf(words, sizeof words, "%lld %s: %s", (long long)n, what, s.bytes);
    usc_table_line(t, "", words);
}

static void baseline(usc_table *t)
{
    int64_t n = 0, n_known = 0;
    for (const usc_report_finding *f = t->r->findings; f != NULL; f = f->next) {
        if (!usc_verdict_flagged(f->verdict)) continue;
        n += f->n_rows;
        n_known += f->n_known;
    }
    char words[96];
    (void)snprintf(words, sizeof words, "%lld of the accused calls known, %lld new",
                   (long long)n_known, (long long)(n - n_known));
    usc_table_line(t, "baseline", words);
    gone(t, true, "no longer accused");
    gone(t, false, "not checked this time");
}

static void reasons(usc_table *t, usc_verdict verdict)
{
    const char *name = usc_verdict_text(verdict);
    for (const usc_report_finding *f = t->r->findings; f != NULL; f = f->next) {
        if (f->verdict != verdict) continue;
        usc_text s = {0};
        const usc_sink sink = usc_text_sink(&s);
        usc_out o;
        usc_out_begin(&o, &sink, NULL);
        usc_out_format(&o, "%lld × ", (long long)f->n_rows);
        usc_out_text(&o, f->op);
        usc_out_text(&o, ": ");
        usc_out_text(&o, usc_report_finding_reason(f));
        (void)!usc_out_end(&o);
        usc_table_line(t, name, s.bytes);
        name = "";
    }
}

static void operators(usc_table *t)
{
    const bool calls = strcmp(usc_report_noun(t->r), "call") == 0;
    usc_table_label(t, calls ? "operators" : "tensors");
    int i = 0;
    for (const usc_op_sum *s = t->r->ops; s != NULL && i < MAX_OPS; s = s->next, i++) {
        int64_t n = 0, bad = 0;
        for (int v = 0; v < USC_N_VERDICTS; v++) {
            n += s->n[v];
            if (usc_verdict_flagged((usc_verdict)v)) bad += s->n[v];
        }
        char words[256], accused[48] = "";
        if (bad > 0)
            (void)snprintf(accused, sizeof accused, " (%lld accused)", (long long)bad);
        (void)snprintf(words, sizeof words, "%s %lld%s", s->op, (long long)n, accused);
        item(t, words, i == 0);
    }
    if (t->r->n_ops > MAX_OPS)
        usc_out_format(t->o, ",\n%*sand %d more in result.csv", LABEL, "",
                       t->r->n_ops - MAX_OPS);
    usc_out_text(t->o, "\n");
}

static void files(usc_table *t)
{
    static const char *const names[] = {"report.html", "result.csv", "details.csv",
                                        "result.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        usc_table_label(t, i == 0 ? "files" : "");
        usc_table_put(t, t->r->folder, strlen(t->r->folder));
        usc_out_format(t->o, "/%s\n", names[i]);
    }
}

/* Whether the rows are calls of a trace that was replayed here: of a running program, of
 * a fuzz run or of files there is nothing that repro takes by TRACE#N. */
static bool is_replayed(const usc_report *r)
{
    return strncmp(usc_report_run(r, "trace"), "live: ", 6) != 0 &&
           !usc_report_drawn(r) &&
           strlen(usc_report_run(r, "environment")) > strlen("{}");
}

/* What to type next: the worst call that is accused made small, or, where none is, what
 * the passes would have caught. */
static void next(usc_table *t)
{
    const usc_report_finding *f = t->r->findings;
    while (f != NULL && !usc_report_finding_flagged(f, t->options))
        f = f->next;
    const bool clean = f == NULL && t->r->n[USC_VERDICT_PASS] > 0;
    const char *faults = usc_report_run(t->r, "faults");
    const char *device = usc_report_run(t->r, "device");
    if (strstr(device, " via ") != NULL || !is_replayed(t->r) ||
        usc_report_unfinished(t->r) || usc_report_live(t->r) ||
        (f == NULL && (!clean || t->r->self_test != NULL)))
        return;
    const char *trace = usc_report_run(t->r, "trace");
    const char *quote = strpbrk(trace, " \t'\"$`\\*?[]()<>|&;") != NULL ? "'" : "";
    usc_table_label(t, "next");
    if (faults[0] != '\0') usc_out_format(t->o, "ULPSCOPE_SIM_FAULTS='%s' ", faults);
    usc_out_format(t->o, "ulpscope %s %s", f != NULL ? "repro" : "check", quote);
    usc_out_terminal(t->o, trace, strlen(trace));
    if (f != NULL) usc_out_format(t->o, "#%lld", (long long)f->worst_call);
    usc_out_format(t->o, "%s --device ", quote);
    usc_out_terminal(t->o, device, strlen(device));
    usc_out_text(t->o, f != NULL ? "\n" : " --self-test\n");
}

/* What was not judged, on a line of its own where there is any. */
static usc_status last_line(usc_table *t)
{
    usc_text s = {0};
    const usc_sink sink = usc_text_sink(&s);
    const usc_status st = usc_report_unjudged(t->r, t->options, &sink, t->o->err);
    if (st != USC_OK) return st;
    usc_out_text(t->o, s.bytes);
    return usc_out_end(t->o);
}

usc_status usc_report_table(usc_report *report, const usc_report_options *options,
                            const usc_sink *sink, usc_error *err)
{
    static const usc_report_options defaults;
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_table t = {
        .o = &o, .r = report, .options = options != NULL ? options : &defaults};
    t.width = t.options->width > 0 ? t.options->width : 100;
    if (t.width < MIN_WIDTH) t.width = MIN_WIDTH;

    if (t.options->by_loss) {
        const usc_status sorted = usc_findings_by_loss(report, err);
        if (sorted != USC_OK) return sorted;
    }
    const usc_status st = findings(&t);
    if (st != USC_OK) return st;
    checked(&t);
    remarks(&t);
    verdicts(&t);
    usc_table_odd_inputs(&t);
    usc_table_excused(&t);
    usc_table_low(&t);
    if (report->has_baseline) baseline(&t);
    reasons(&t, USC_VERDICT_INTERNAL);
    reasons(&t, USC_VERDICT_UNJUDGED);
    reasons(&t, USC_VERDICT_UNSUPPORTED);
    if (report->n_ops > 0) operators(&t);
    usc_table_time(&t);
    usc_table_self_test(&t);
    usc_table_standards(&t);
    if (!t.options->no_files) files(&t);
    next(&t);
    usc_out_text(&o, "\n");
    usc_summary_put(&o, report, t.options);
    usc_out_text(&o, "\n");
    return t.options->more ? usc_out_end(&o) : last_line(&t);
}
