// SPDX-License-Identifier: Apache-2.0
// How much of a check was judged: what nobody looked at must not look like what passed.
// docs/reference/report.md, "Exit code".
#include "report/report_summary.h"

#include <ulpscope/x/unjudged.h>

#include <stdlib.h>
#include <string.h>

#include "base/words.h"

/* The clause on the next output in "out[0]: WHY; out[1]: WHY"; NULL: there is none. */
static const char *next_output(const char *clause)
{
    static const char *const paths[] = {"out", "args", "kwargs"};
    for (const char *at = clause; (at = strstr(at, "; ")) != NULL;) {
        at += 2;
        for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
            if (strncmp(at, paths[i], strlen(paths[i])) == 0) return at;
    }
    return NULL;
}

bool usc_unjudged_is_told(const char *reason)
{
    while (reason != NULL) {
        const char *ill = strstr(reason, USC_SAID_ILL),
                   *few = strstr(reason, USC_SAID_FEW), *next = next_output(reason);
        const bool told = (ill != NULL && (next == NULL || ill < next)) ||
                          (few != NULL && (next == NULL || few < next));
        if (!told) return false;
        reason = next;
    }
    return true;
}

/* How many have a verdict on their numbers. */
static int64_t judged_of(const int64_t n[USC_N_VERDICTS])
{
    return n[USC_VERDICT_PASS] + n[USC_VERDICT_NONFINITE] + n[USC_VERDICT_WRONG] +
           n[USC_VERDICT_REDUCED] + n[USC_VERDICT_INTERMITTENT];
}

bool usc_report_unseen(const usc_report_finding *f)
{
    return f->beside || usc_verdict_missing(f->verdict);
}

/* What a fuzz says of an operator for which it found no case. */
#define USC_NO_DRAW "the CPU takes none of"

/* Of a case that was drawn and says nothing another of that operator says enough. */
static bool is_drawn_again(const usc_report *r, const usc_report_finding *f)
{
    const usc_op_sum *op = usc_report_op(r, f->op);
    return op != NULL && judged_of(op->n) > 0;
}

int64_t usc_report_left(const usc_report *r, const usc_report_finding *f,
                        const usc_report_options *options)
{
    if (!usc_report_unseen(f) || usc_report_finding_allowed(f, options) ||
        usc_unjudged_is_told(usc_report_finding_reason(f)))
        return 0;
    const bool share = options != NULL && options->min_judged > 0;
    if (!share && usc_report_drawn(r) &&
        (is_drawn_again(r, f) || strstr(f->reason, USC_NO_DRAW) != NULL))
        return 0;
    return f->n_rows - f->n_known;
}

usc_seen usc_report_seen(const usc_report *r, const usc_report_options *options)
{
    usc_seen s = {.n = r->n_rows, .n_judged = judged_of(r->n)};
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next) {
        if (!usc_report_unseen(f)) continue;
        if (usc_report_finding_allowed(f, options)) {
            s.n_allowed += f->n_rows;
        } else {
            s.n_known += f->n_known;
            s.n_open += usc_report_left(r, f, options);
        }
    }
    return s;
}

long usc_report_unrecorded(const usc_report *r)
{
    const long n = strtol(usc_report_run(r, "compiled_regions"), NULL, 10);
    return n > 0 ? n : 0;
}

double usc_report_judged(const usc_report *r, const usc_report_options *options)
{
    const usc_seen s = usc_report_seen(r, options);
    const int64_t n = s.n - s.n_allowed - s.n_known;
    if (s.n_open == 0) return 1.0;
    return n > s.n_open ? (double)(n - s.n_open) / (double)n : 0.0;
}

double usc_report_wanted(const usc_report_options *options)
{
    if (options == NULL || options->min_judged == 0.0) return 1.0;
    return options->min_judged < 0 ? 0.0 : options->min_judged;
}

bool usc_report_thin(const usc_report *r, const usc_report_options *options)
{
    return r->n_rows > 0 && usc_report_judged(r, options) < usc_report_wanted(options);
}

int usc_report_exit_code(const usc_report *report, const usc_report_options *options)
{
    if (report->n[USC_VERDICT_INTERNAL] > 0) return 2; /* not of a cause */
    for (const usc_report_finding *f = report->findings; f != NULL; f = f->next)
        if (usc_report_finding_flagged(f, options)) return 1;
    if (usc_report_seen(report, options).n_judged == 0 || usc_report_unfinished(report))
        return 2;
    if (usc_report_run(report, "unmatched")[0] != '\0') return 2;
    if (usc_report_run(report, "idle_faults")[0] != '\0') return 2;
    if (usc_report_unrecorded(report) > 0 && !(options != NULL && options->unrecorded))
        return 2;
    return usc_report_thin(report, options) ? 2 : 0;
}
