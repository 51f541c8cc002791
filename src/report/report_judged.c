// SPDX-License-Identifier: Apache-2.0
// How much of a check was judged: a pass that covers little of a model must not look like
// one that covers it. docs/reference/report.md, "Exit code".
#include "report/report_summary.h"

static bool is_missing(usc_verdict verdict)
{
    return verdict == USC_VERDICT_UNDEFINED || usc_verdict_missing(verdict);
}

double usc_report_judged(const usc_report *r, const usc_report_options *options)
{
    usc_report_options all = {0};
    if (options != NULL) all = *options;
    all.strict = true; /* else nothing has to allow them */
    int64_t n_missing = 0;
    for (int v = 0; v < USC_N_VERDICTS; v++)
        n_missing += is_missing((usc_verdict)v) ? r->n[v] : 0;
    int64_t n = r->n_rows;
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next)
        if (f->beside) {
            n_missing += usc_report_finding_allowed(f, &all) ? 0 : f->n_rows;
        } else if (is_missing(f->verdict) && usc_report_finding_allowed(f, &all)) {
            n_missing -= f->n_rows;
            n -= f->n_rows;
        }
    return n > 0 ? (double)(n - n_missing) / (double)n : 1.0;
}

double usc_report_wanted(const usc_report_options *options)
{
    if (options == NULL || options->min_judged == 0.0) return 0.5;
    return options->min_judged < 0 ? 0.0 : options->min_judged;
}

bool usc_report_thin(const usc_report *r, const usc_report_options *options)
{
    return r->n_rows > 0 && usc_report_judged(r, options) < usc_report_wanted(options);
}

int64_t usc_report_alone(const usc_report *r, const usc_report_options *options)
{
    usc_report_options all = {0};
    if (options != NULL) all = *options;
    if (all.min_judged != 0.0) return 0;
    all.strict = true; /* else nothing has to allow them */
    int64_t n = 0;
    for (const usc_report_finding *f = r->findings; f != NULL; f = f->next)
        if (f->lacks[0] != '\0' && !usc_report_finding_allowed(f, &all)) n += f->n_rows;
    return n;
}

int usc_report_exit_code(const usc_report *report, const usc_report_options *options)
{
    if (report->n[USC_VERDICT_INTERNAL] > 0) return 2; /* not of a cause */
    for (const usc_report_finding *f = report->findings; f != NULL; f = f->next)
        if (usc_report_finding_flagged(f, options)) return 1;
    const int64_t n_judged =
        report->n[USC_VERDICT_PASS] + report->n[USC_VERDICT_NONFINITE] +
        report->n[USC_VERDICT_WRONG] + report->n[USC_VERDICT_REDUCED] +
        report->n[USC_VERDICT_INTERMITTENT];
    if (n_judged == 0 || usc_report_unfinished(report)) return 2;
    if (usc_report_run(report, "unmatched")[0] != '\0') return 2;
    if (usc_report_run(report, "idle_faults")[0] != '\0') return 2;
    return usc_report_thin(report, options) || usc_report_alone(report, options) > 0 ? 2
                                                                                     : 0;
}
