// SPDX-License-Identifier: Apache-2.0
// What a CI job shows of a report: one line, and annotations in GitHub's form.
#include "report/report_summary.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 5 };

static int64_t n_new(const usc_report_finding *f)
{
    return f->n_rows - f->n_known;
}

static void put_name(usc_out *o, const char *text)
{
    usc_out_terminal(o, text, strlen(text));
}

static void put_finding(usc_out *o, const usc_report_finding *f)
{
    put_name(o, f->op);
    usc_out_format(o, " %s", usc_verdict_text(f->verdict));
    if (usc_bits_shown(f->verdict, f->bits))
        usc_out_format(o, " (%s%.1f bits)", f->bound ? ">= " : "",
                       f->bits > 0 ? f->bits : 0.0);
}

/* The first finding of an operator and verdict is the worst of them: others of it are not
 * named again. */
static void put_flagged(usc_out *o, usc_report *r, const usc_report_options *options)
{
    int n = 0;
    bool *named = usc_report_take(r, (size_t)r->n_ops * USC_N_VERDICTS);
    for (const usc_report_finding *f = r->findings; f != NULL && named != NULL;
         f = f->next) {
        if (!usc_report_finding_flagged(f, options)) continue;
        const usc_op_sum *op = usc_report_op(r, f->op);
        bool *before = &named[op->i * USC_N_VERDICTS + (int)f->verdict];
        if (*before) continue;
        *before = true;
        if (n < MOST) {
            usc_out_text(o, n == 0 ? ": " : ", ");
            put_finding(o, f);
        }
        n++;
    }
    if (n > MOST) usc_out_format(o, ", and %d more", n - MOST);
}

/* What is neither flagged nor right, so that silence is not taken for success. */
static void put_rest(usc_out *o, const usc_report *r)
{
    if (r->n[USC_VERDICT_INTERNAL] > 0)
        usc_out_format(o, "; %lld not judged for an internal error",
                       (long long)r->n[USC_VERDICT_INTERNAL]);
    const int64_t unjudged = r->n[USC_VERDICT_UNJUDGED];
    const int64_t unsupported = r->n[USC_VERDICT_UNSUPPORTED];
    if (unjudged > 0 && unsupported > 0)
        usc_out_format(o, "; %lld not judged (%lld unsupported, %lld unjudged)",
                       (long long)(unjudged + unsupported), (long long)unsupported,
                       (long long)unjudged);
    else if (unjudged + unsupported > 0)
        usc_out_format(o, "; %lld not judged (%s)", (long long)(unjudged + unsupported),
                       unjudged > 0 ? "unjudged" : "unsupported");
    int64_t n_beside = 0;
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next)
        n_beside += f->beside ? f->n_rows : 0;
    if (n_beside > 0)
        usc_out_format(o, "; %lld with an output that is not judged",
                       (long long)n_beside);
    if (r->n[USC_VERDICT_UNDEFINED] > 0)
        usc_out_format(o, "; %lld undefined", (long long)r->n[USC_VERDICT_UNDEFINED]);
    if (r->excused.n > 0)
        usc_out_format(o, "; %lld with more than 3 %% of an output excused",
                       (long long)r->excused.n);
}

void usc_summary_put(usc_out *o, usc_report *r, const usc_report_options *options)
{
    int64_t n = 0, n_known = 0, n_allowed = 0;
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next) {
        if (usc_report_finding_counts(f, options)) {
            n += n_new(f);
            n_known += f->n_known;
        } else if (usc_report_finding_allowed(f, options)) {
            n_allowed += f->n_rows;
        }
    }
    usc_out_text(o, "ulpscope: ");
    if (r->n_rows == 0) {
        usc_out_text(o, "nothing was checked");
        return;
    }
    if (r->n_rows == 1)
        usc_out_format(o, "the %s is %sflagged", usc_report_noun(r),
                       n == 0 ? "not " : "");
    else if (n == 0)
        usc_out_format(o, "none of %lld %ss flagged", (long long)r->n_rows,
                       usc_report_noun(r));
    else
        usc_out_format(o, "%lld of %lld %ss flagged", (long long)n, (long long)r->n_rows,
                       usc_report_noun(r));
    if (r->has_baseline && n > 0) usc_out_text(o, " as new");
    put_flagged(o, r, options);
    if (n_known > 0) usc_out_format(o, "; %lld known", (long long)n_known);
    if (n_allowed > 0) usc_out_format(o, "; %lld allowed", (long long)n_allowed);
    put_rest(o, r);
    const long n_regions = usc_report_unrecorded(r);
    if (strcmp(usc_report_run(r, "trace_incomplete"), "1") == 0)
        usc_out_text(o, "; the trace is incomplete");
    if (n_regions > 0)
        usc_out_format(o, "; %ld compiled region%s not recorded", n_regions,
                       n_regions == 1 ? "" : "s");
    const char *unmatched = usc_report_run(r, "unmatched");
    if (unmatched[0] != '\0') usc_out_format(o, "; no call matches %s", unmatched);
    const char *idle = usc_report_run(r, "idle_faults");
    if (idle[0] != '\0') usc_out_format(o, "; planted, but fired at no call: %s", idle);
    const bool asked = options != NULL && options->min_judged > 0;
    if (asked && usc_report_thin(r, options))
        usc_out_format(o, "; only %.0f %% judged, less than the %.0f %% of --min-judged",
                       100 * usc_report_judged(r, options),
                       100 * usc_report_wanted(options));
    if (usc_report_unfinished(r))
        usc_out_text(o, usc_report_live(r) ? "; still running" : "; unfinished");
    if (usc_report_over_budget(r)) usc_out_text(o, "; incomplete");
}

usc_status usc_report_summary(usc_report *report, const usc_report_options *options,
                              const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    usc_summary_put(&o, report, options);
    return usc_out_end(&o);
}

/* GitHub reads %25, %0D and %0A back; in a property ':' and ',' end it. */
static void put_escaped(usc_out *o, const char *text, bool property)
{
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f || c == '%' || (property && (c == ':' || c == ',')))
            usc_out_format(o, "%%%02X", c);
        else
            usc_out_bytes(o, text, 1);
    }
}

usc_status usc_report_annotations(usc_report *report, const usc_report_options *options,
                                  const usc_sink *sink, usc_error *err)
{
    usc_out o;
    usc_out_begin(&o, sink, err);
    for (const usc_report_finding *f = report->findings; f != NULL; f = f->next) {
        if (!usc_report_finding_flagged(f, options)) continue;
        usc_out_text(&o, "::error ");
        if (f->source.file[0] != '\0') {
            usc_out_text(&o, "file=");
            put_escaped(&o, f->source.file, true);
            usc_out_format(&o, ",line=%lld,", (long long)f->source.line);
        }
        usc_out_text(&o, "title=");
        put_escaped(&o, f->op, true);
        usc_out_format(&o, " %s::", usc_verdict_text(f->verdict));
        put_escaped(&o, f->sentence[0] != '\0' ? f->sentence : f->cause, false);
        usc_out_format(&o, " (%lld call%s)\n", (long long)n_new(f),
                       n_new(f) == 1 ? "" : "s");
    }
    return usc_out_end(&o);
}
