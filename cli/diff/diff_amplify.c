// SPDX-License-Identifier: Apache-2.0
// `ulpscope diff --amplify N`: a process replays the step of A with other roundings; see
// diff.h and python/ulpscope/session/amplified.py, which writes the lines read here.
#include "diff/diff.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "common/cli_python.h"

#define MARK "ulpscope amplified begins here\n"

enum { MOST_BYTES = 64 << 20 }; /* of lines: a million results */

/* CALL TAB PATH TAB NORM, or ERROR TAB TAB SENTENCE. */
static usc_status take_line(usc_diff *d, char *line, diff_amplified *out, usc_error *err)
{
    char *path = strchr(line, '\t'),
         *number = path != NULL ? strchr(path + 1, '\t') : NULL;
    if (number == NULL) return USC_OK;
    *path++ = '\0';
    *number++ = '\0';
    if (strcmp(line, "error") == 0) return usc_error_set(err, USC_E_IO, -1, "%s", number);
    if (strcmp(line, "fed") == 0) {
        out->n_fed = strtoll(number, NULL, 10);
        return USC_OK;
    }
    out->n_results++;
    return usc_diff_amplify(d, strtoll(line, NULL, 10), path, strtod(number, NULL), err);
}

static usc_status take_lines(usc_diff *d, char *at, diff_amplified *out, usc_error *err)
{
    usc_status st = USC_OK;
    while (*at != '\0' && st == USC_OK) {
        char *end = at + strcspn(at, "\n");
        const bool last = *end == '\0';
        *end = '\0';
        st = take_line(d, at, out, err);
        at = end + !last;
    }
    return st;
}

int diff_amplify(usc_diff *d, const char *trace, int64_t n, diff_amplified *out)
{
    static cli_python python;
    char flag[] = "-m", started[] = "ulpscope.program.started", times[24];
    char module[] = "ulpscope.session.amplified";
    char *path = strdup(trace), *output = malloc(MOST_BYTES);
    usc_error err;
    int code = CLI_TROUBLE;
    *out = (diff_amplified){.n_replays = n};
    (void)snprintf(times, sizeof times, "%" PRId64, n);
    if (path == NULL || output == NULL) {
        cli_fail("no memory");
    } else if (!cli_python_find(&python, &err)) {
        cli_fail("%s", err.text);
    } else {
        char *argv[] = {python.program, flag, started, module, path, times, NULL};
        output[0] = '\0';
        const int left = cli_run(argv, INT_MAX, true, output, MOST_BYTES);
        char *at = strstr(output, MARK);
        if (left == 128 + 2 || left == 130)
            code = CLI_INTERRUPTED;
        else if (at == NULL || left != 0)
            cli_fail("the step of %s could not be replayed (exit code %d); try: %s -m %s "
                     "%s %s",
                     trace, left, python.program, module, trace, times);
        else if (take_lines(d, at + strlen(MARK), out, &err) != USC_OK)
            cli_fail("%s could not be replayed: %s", trace, err.text);
        else
            code = CLI_SAME;
    }
    if (code == CLI_SAME) usc_diff_weigh(d);
    free(path);
    free(output);
    return code;
}
