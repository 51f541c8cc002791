// SPDX-License-Identifier: Apache-2.0
// `ulpscope diff --json`: docs/reference/diff.md, "JSON"; see diff.h.
#include "cli.h"
#include "diff/diff.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <ulpscope/report.h>
#include <ulpscope/verdict.h>

enum { ROOM = 1024, MOST_ROWS = 20000 };

static void put_number(FILE *to, double value)
{
    if (isfinite(value))
        (void)fprintf(to, "%.6g", value);
    else
        fputs("null", to);
}

static void put_size(FILE *to, const char *name, const usc_diff_size *s, const char *path)
{
    static const char *const basis[] = {"nothing", "statistics", "data", "bits"};
    (void)fprintf(to, ", \"%s\": ", name);
    if (path == NULL) {
        fputs("null", to);
        return;
    }
    fputs("{\"path\": ", to);
    cli_put_text(to, path);
    (void)fprintf(to,
                  ", \"basis\": \"%s\", \"n\": %" PRId64 ", \"n_differ\": %" PRId64
                  ", \"n_special\": %" PRId64 ", \"reshaped\": %s, \"rms\": ",
                  basis[s->basis], s->n, s->n_differ, s->n_special,
                  s->reshaped ? "true" : "false");
    put_number(to, s->rms);
    fputs(", \"worst\": ", to);
    put_number(to, s->worst);
    putc('}', to);
}

/* Statistics of the result that differs most, for two columns. */
static void put_statistics(FILE *to, const char *name, const usc_call_arg *arg)
{
    static const char *const names[] = {"n", "n_nan", "min", "max", "mean", "l2"};
    (void)fprintf(to, ", \"%s\": {", name);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        double value;
        (void)fprintf(to, "%s\"%s\": ", i > 0 ? ", " : "", names[i]);
        put_number(to, usc_call_arg_stat(arg, names[i], &value) ? value : (double)NAN);
    }
    putc('}', to);
}

static usc_status put_both(FILE *to, usc_trace *b, const usc_diff_row *row,
                           const usc_call_arg *arg, usc_error *err)
{
    usc_call c;
    put_statistics(to, "result_a", arg);
    char path[128];
    const usc_role role = arg->role;
    (void)snprintf(path, sizeof path, "%s", arg->path);
    const usc_status st = usc_trace_read_call(b, row->call_b, &c, err);
    for (int i = 0; st == USC_OK && i < c.n_args; i++)
        if (c.arg[i].role == role && strcmp(c.arg[i].path, path) == 0) {
            put_statistics(to, "result_b", &c.arg[i]);
            break;
        }
    return st;
}

/* "made", or what a replay says of both sides: "wrong". */
static const char *verdict_of(const usc_diff *d, int64_t i, usc_diff_kind kind)
{
    const usc_diff_heard *h = usc_diff_heard_of(d, i);
    if (h == NULL || h->verdict[0] == NULL || h->verdict[1] == NULL)
        return usc_diff_kind_text(kind);
    return usc_verdict_flagged(usc_verdict_by_text(h->verdict[1])) ? h->verdict[1]
                                                                   : h->verdict[0];
}

static void put_heard(FILE *to, const usc_diff_heard *h, usc_diff_judged judged)
{
    static const char *const words[] = {"no", "stands", "errs", "alike", "untold"};
    cli_put_member(to, "judged", words[judged]);
    for (int side = 0; side < 2; side++) {
        char name[24];
        (void)snprintf(name, sizeof name, "verdict_%c", 'a' + side);
        cli_put_member(to, name, h != NULL ? h->verdict[side] : NULL);
        (void)fprintf(to, ", \"bits_%c\": ", 'a' + side);
        put_number(to, h != NULL ? h->bits[side] : (double)NAN);
        (void)snprintf(name, sizeof name, "cause_%c", 'a' + side);
        cli_put_member(to, name, h != NULL ? h->cause[side] : NULL);
    }
}

static void put_weight(FILE *to, const usc_diff_row *row)
{
    fputs(", \"noise\": ", to);
    put_number(to, row->noise > 0 ? row->noise : (double)NAN);
    fputs(", \"apart\": ", to);
    put_number(to, row->noise > 0 ? row->apart : (double)NAN);
}

usc_status diff_put_row(FILE *to, usc_diff *d, usc_trace *const t[2], int64_t i,
                        usc_error *err)
{
    int64_t n;
    char said[ROOM];
    usc_call c;
    const usc_diff_row *row = &usc_diff_rows(d, &n)[i];
    usc_status st = usc_diff_say(d, i, said, sizeof said, err);
    if (st == USC_OK) st = usc_trace_read_call(t[0], row->call_a, &c, err);
    if (st != USC_OK) return st;
    (void)fprintf(to,
                  "{\"call_a\": %" PRId64 ", \"call_b\": %" PRId64 ", \"step\": %" PRId64,
                  row->call_a, row->call_b, c.step);
    cli_put_member(to, "phase", c.phase);
    cli_put_member(to, "op", c.op);
    cli_put_member(to, "module", c.module_path);
    cli_put_member(to, "module_class", c.module_class);
    cli_put_member(to, "how", usc_diff_how_text(row->how));
    cli_put_member(to, "kind", usc_diff_kind_text(row->kind));
    cli_put_member(to, "verdict", verdict_of(d, i, row->kind));
    put_heard(to, usc_diff_heard_of(d, i), row->judged);
    put_size(to, "in", &row->in, row->in_arg >= 0 ? c.arg[row->in_arg].path : NULL);
    put_size(to, "out", &row->out, row->out_arg >= 0 ? c.arg[row->out_arg].path : NULL);
    fputs(", \"limit\": ", to);
    put_number(to, row->limit);
    put_weight(to, row);
    (void)fprintf(to, ", \"carried\": %" PRId64, row->n_carried);
    const usc_diff_row *rows = usc_diff_rows(d, &n);
    (void)fprintf(to, ", \"from\": %" PRId64 ", \"source\": %" PRId64,
                  row->from >= 0 ? rows[row->from].call_a : 0,
                  row->source >= 0 ? rows[row->source].call_a : 0);
    if (row->out_arg >= 0) st = put_both(to, t[1], row, &c.arg[row->out_arg], err);
    cli_put_member(to, "sentence", said);
    putc('}', to);
    return st;
}

static void put_alone(FILE *to, const usc_diff *d, int side)
{
    int64_t n;
    const int64_t *calls = usc_diff_alone(d, side, &n);
    (void)fprintf(to, ", \"unpaired_%c\": [", 'a' + side);
    for (int64_t i = 0; i < n; i++)
        (void)fprintf(to, "%s%" PRId64, i > 0 ? ", " : "", calls[i]);
    putc(']', to);
}

static void put_counts(FILE *to, const usc_diff_summary *s)
{
    const char *between = "";
    (void)fprintf(to,
                  ", \"calls_a\": %" PRId64 ", \"calls_b\": %" PRId64
                  ", \"paired\": %" PRId64 ", \"how\": {",
                  s->n_a, s->n_b, s->n_paired);
    for (int i = 0; i < USC_N_DIFF_HOW; i++, between = ", ")
        (void)fprintf(to, "%s\"%s\": %" PRId64, between,
                      usc_diff_how_text((usc_diff_how)i), s->n_how[i]);
    between = "";
    fputs("}, \"kinds\": {", to);
    for (int i = 0; i < USC_N_DIFF_KINDS; i++, between = ", ")
        (void)fprintf(to, "%s\"%s\": %" PRId64, between,
                      usc_diff_kind_text((usc_diff_kind)i), s->n_kind[i]);
    putc('}', to);
}

static void put_told(FILE *to, const usc_diff_summary *s)
{
    const usc_diff_entered *e = &s->entered;
    (void)fprintf(
        to,
        ", \"entered\": {\"parameters\": %" PRId64 ", \"parameters_differ\": %" PRId64
        ", \"others\": %" PRId64 ", \"others_differ\": %" PRId64 "}",
        e->n_parameters, e->n_parameters_differ, e->n_others, e->n_others_differ);
    (void)fprintf(to,
                  ", \"differ\": %" PRId64 ", \"stand\": %" PRId64 ", \"alike\": %" PRId64
                  ", \"untold\": %" PRId64 ", \"accepted\": %" PRId64,
                  s->n_differ, s->n_stand, s->n_alike, s->n_untold, s->n_accepted);
}

static usc_status put_rows(FILE *to, usc_diff *d, usc_trace *const t[2],
                           const diff_words *w, usc_error *err)
{
    int64_t n;
    const usc_diff_row *rows = usc_diff_rows(d, &n);
    const char *between = "";
    int64_t n_put = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!w->all && !diff_is_listed(&rows[i], w) &&
            !(w->page && rows[i].kind != USC_DIFF_SAME && n_put < MOST_ROWS))
            continue;
        n_put++;
        fputs(between, to);
        const usc_status st = diff_put_row(to, d, t, i, err);
        if (st != USC_OK) return st;
        between = ",\n ";
    }
    return USC_OK;
}

usc_status diff_put_json(FILE *to, usc_diff *d, usc_trace *const t[2],
                         const diff_words *w, usc_error *err)
{
    static const char *const basis[] = {"nothing", "statistics", "data", "bits"};
    const usc_diff_summary s = usc_diff_sum(d);
    usc_status st = USC_OK;
    fputs("{\"version\": 1, \"a\": ", to);
    cli_put_text(to, w->path[0]);
    cli_put_member(to, "b", w->path[1]);
    (void)fprintf(to, ", \"same\": %s, \"basis\": \"%s\", \"first\": ",
                  s.same ? "true" : "false", basis[s.basis]);
    if (s.first >= 0)
        st = diff_put_row(to, d, t, s.first, err);
    else
        fputs("null", to);
    put_counts(to, &s);
    put_told(to, &s);
    (void)fprintf(to, ", \"not_compared_a\": %" PRId64 ", \"not_compared_b\": %" PRId64,
                  s.unseen.n[0], s.unseen.n[1]);
    (void)fprintf(to, ", \"replays\": %" PRId64 ", \"fed\": %" PRId64,
                  w->amplified.n_replays, w->amplified.n_fed);
    for (int side = 0; side < 2; side++)
        put_alone(to, d, side);
    if (st == USC_OK) {
        (void)fprintf(to, ", \"%s\": [", w->all || w->page ? "rows" : "beginnings");
        st = put_rows(to, d, t, w, err);
    }
    fputs("]}\n", to);
    return st;
}
