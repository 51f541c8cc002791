// SPDX-License-Identifier: Apache-2.0
// What the page of a trace has in place of the rows of a check.
#ifndef USC_REPORT_TRACE_H
#define USC_REPORT_TRACE_H

#include "report/report_out.h"

/** The elements of all ranks that the scripts read. */
usc_status usc_trace_page_data(usc_out *o, const usc_trace_page *page);

#endif
