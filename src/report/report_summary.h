// SPDX-License-Identifier: Apache-2.0
// The one line that says it all, also the last of the table.
#ifndef USC_REPORT_SUMMARY_H
#define USC_REPORT_SUMMARY_H

#include "report/report_model.h"

/** Writes the line, without its line feed. */
void usc_summary_put(usc_out *o, usc_report *r, const usc_report_options *options);

/** Whether nobody looked at what a finding counts: calls that are internal, unjudged or
 * unsupported, outputs that were not judged beside others. Where nothing is promised
 * (undefined) the rest was judged. */
bool usc_report_unseen(const usc_report_finding *f);

/** How many rows there are, and of those at which nobody looked how many --allow excuses,
 * how many of the others a baseline knows, and how many are left. */
typedef struct usc_seen {
    int64_t n, n_allowed, n_known, n_open;
    int64_t n_judged; /* that have a verdict on their numbers */
} usc_seen;

usc_seen usc_report_seen(const usc_report *r, const usc_report_options *options);

/** How many rows of a finding are left like that. Of a fuzz, which draws its cases
 * itself, none where a case of that operator was judged, unless a share is asked for. */
int64_t usc_report_left(const usc_report *r, const usc_report_finding *f,
                        const usc_report_options *options);

/** How many compiled regions ran that the trace does not hold. */
long usc_report_unrecorded(const usc_report *r);

/** Share of the calls that somebody looked at; those that are allowed or known do not
 * count. 1 where there are no calls. */
double usc_report_judged(const usc_report *r, const usc_report_options *options);

/** The share that options->min_judged asks for. */
double usc_report_wanted(const usc_report_options *options);

/** Whether fewer calls are judged than that. */
bool usc_report_thin(const usc_report *r, const usc_report_options *options);

#endif
