// SPDX-License-Identifier: Apache-2.0
// The one line that says it all, also the last of the table.
#ifndef USC_REPORT_SUMMARY_H
#define USC_REPORT_SUMMARY_H

#include "report/report_model.h"

/** Writes the line, without its line feed. */
void usc_summary_put(usc_out *o, usc_report *r, const usc_report_options *options);

/** Share of the calls that have a verdict on their numbers; of those that have none
 * (undefined, unjudged, unsupported) the allowed ones do not count. 1 where there are no
 * calls. */
double usc_report_judged(const usc_report *r, const usc_report_options *options);

/** The share that options->min_judged asks for. */
double usc_report_wanted(const usc_report_options *options);

/** Whether fewer calls are judged than that. */
bool usc_report_thin(const usc_report *r, const usc_report_options *options);

/** How many rows were to be judged of which nobody gave one side: an output of a call of a
 * pack, a reference, or none that serves; or the scale that decides. Allowed ones do not count, and a share that was
 * asked for decides alone: 0 then. */
int64_t usc_report_alone(const usc_report *r, const usc_report_options *options);

#endif
