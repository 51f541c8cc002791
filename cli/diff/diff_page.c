// SPDX-License-Identifier: Apache-2.0
// `ulpscope diff --html`: the JSON of all rows that differ between the two halves of a
// page (diff_page.html, diff_page.js), which shows it without anything else; see diff.h.
#include "diff/diff.h"

#include "cli.h"
#include "common/html.h"

extern const char usc_page_diff_page_html[], usc_page_diff_page_js[];

int diff_put_page(const char *file, usc_diff *d, usc_trace *const t[2],
                  const diff_words *words)
{
    diff_words all = *words;
    usc_error err;
    all.page = true;
    FILE *json = tmpfile();
    if (json == NULL) return cli_fail("no temporary file can be made");
    const usc_status st = diff_put_json(json, d, t, &all, &err);
    const int code = st == USC_OK ? html_write(file, usc_page_diff_page_html, json,
                                               usc_page_diff_page_js)
                                  : cli_fail("%s", err.text);
    (void)fclose(json);
    return code;
}
