// SPDX-License-Identifier: Apache-2.0
// `ulpscope diff --html`: the JSON of all rows that differ between the two halves of a
// page (diff_page.html, diff_page.js), which shows it without anything else; see diff.h.
#include "diff.h"

#include <errno.h>
#include <string.h>

#include "cli.h"

extern const char usc_page_diff_page_html[], usc_page_diff_page_js[];

/* No text of a trace may end the script that holds it. */
static void copy_escaped(FILE *from, FILE *to)
{
    rewind(from);
    for (int c; (c = getc(from)) != EOF;)
        if (c == '<')
            fputs("\\u003c", to);
        else
            putc(c, to);
}

int diff_put_page(const char *file, usc_diff *d, usc_trace *const t[2],
                  const diff_words *words)
{
    diff_words all = *words;
    usc_error err;
    all.page = true;
    FILE *json = tmpfile();
    if (json == NULL) return cli_fail("no temporary file can be made");
    const usc_status st = diff_put_json(json, d, t, &all, &err);
    FILE *to = st == USC_OK ? fopen(file, "w") : NULL;
    int code = CLI_SAME;
    if (to == NULL) {
        code = st != USC_OK ? cli_fail("%s", err.text)
                            : cli_fail("%s: %s", file, strerror(errno));
    } else {
        fputs(usc_page_diff_page_html, to);
        copy_escaped(json, to);
        fputs("</script>\n<script>\n", to);
        fputs(usc_page_diff_page_js, to);
        fputs("</script>\n</html>\n", to);
        const bool failed = ferror(to) != 0;
        if (fclose(to) != 0 || failed) code = cli_fail("%s: %s", file, strerror(errno));
    }
    (void)fclose(json);
    return code;
}
