// SPDX-License-Identifier: Apache-2.0
// The bug report on a call as a text that a page can hold.
#ifndef USC_REPORT_MARKDOWN_H
#define USC_REPORT_MARKDOWN_H

#include "report/report_model.h"

/** What usc_report_markdown writes on a row of the report; NULL without memory. Memory:
 * the report's. */
const char *usc_markdown_text(usc_report *r, const usc_result_row *row);

#endif
