// SPDX-License-Identifier: Apache-2.0
// Pieces of result.json that the HTML page embeds as well.
#ifndef USC_REPORT_JSON_H
#define USC_REPORT_JSON_H

#include "report/report_model.h"

/* Each writes `"key": value` members without the braces around them. */
usc_status usc_json_head(usc_out *o, usc_report *r);

/** What a list of calls shows. */
void usc_json_brief(usc_out *o, const usc_result_row *row);

/** What the page of one call shows besides. */
void usc_json_details(usc_out *o, usc_report *r, const usc_result_row *row);

#endif
