// SPDX-License-Identifier: Apache-2.0
// What the page of a trace has in place of the rows of a check.
#ifndef USC_REPORT_TRACE_H
#define USC_REPORT_TRACE_H

#include "base/line.h"
#include "report/report_out.h"

/** What the statistics of the tensors on one side of a call come to. */
typedef struct usc_trace_side {
    double n_nan, n_inf, min, max;
    bool any; /* min and max are known */
} usc_trace_side;

/** That of its results, or of its arguments. */
usc_trace_side usc_trace_side_of(const usc_call *call, bool results);

/** What is seen of a call without judging it: "captured", "born" (results hold NaN or Inf
 * and arguments do not), "carried" (both do), or a status that is not ok. */
const char *usc_trace_look(const usc_call *call);

/** "float32[8, 16], int64[3]": what a call returned or wrote. */
void usc_trace_results(const usc_call *call, usc_line *to);

/** The elements of all ranks that the scripts read. */
usc_status usc_trace_page_data(usc_out *o, const usc_trace_page *page);

#endif
