// SPDX-License-Identifier: Apache-2.0
// The one line that says it all, also the last of the table.
#ifndef USC_REPORT_SUMMARY_H
#define USC_REPORT_SUMMARY_H

#include "report/report_model.h"

/** Writes the line, without its line feed. */
void usc_summary_put(usc_out *o, usc_report *r, const usc_report_options *options);

#endif
