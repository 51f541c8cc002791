// SPDX-License-Identifier: Apache-2.0
// See html.h.
#include "common/html.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "cli.h"

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

int html_write(const char *file, const char *head, FILE *json, const char *script)
{
    FILE *to = fopen(file, "w");
    if (to == NULL) return cli_fail("%s: %s", file, strerror(errno));
    fputs(head, to);
    copy_escaped(json, to);
    fputs("</script>\n<script>\n", to);
    fputs(script, to);
    fputs("</script>\n</html>\n", to);
    const bool failed = ferror(to) != 0 || ferror(json) != 0;
    if (fclose(to) != 0 || failed) return cli_fail("%s: %s", file, strerror(errno));
    return CLI_SAME;
}
