// SPDX-License-Identifier: Apache-2.0
// Pieces of result.json that the HTML page embeds as well.
#ifndef USC_REPORT_JSON_H
#define USC_REPORT_JSON_H

#include "report/report_model.h"

/* Each writes `"key": value` members without the braces around them. */

/** What is said of all calls, with the first `at_most` findings that accuse and as many
 * of the others, which get their place in the list. */
usc_status usc_report_json_head(usc_out *o, usc_report *r, int64_t at_most);

/** What is said of few calls: stack, metrics, examples. */
void usc_report_json_numbers(usc_out *o, const usc_result_row *row);

#endif
