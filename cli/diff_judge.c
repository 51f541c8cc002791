// SPDX-License-Identifier: Apache-2.0
// Of `ulpscope diff`: the calls at which a difference begins are run again on their
// own inputs, in float64 as well, on both sides; see diff.h.
#include "diff.h"

#include <stdlib.h>
#include <string.h>

#include <ulpscope/result.h>

#include "hooks.h"
#include "scratch.h"

enum { MOST_JUDGED = 50, NOT_HERE = -1 };

/* What was heard of the calls of one side. */
typedef struct hearing {
    usc_trace *trace;
    const int64_t *calls;
    int64_t n;
    char *verdict[MOST_JUDGED], *sentence[MOST_JUDGED];
} hearing;

static usc_status hear_row(void *ctx, const usc_result_row *row, usc_error *err)
{
    hearing *h = ctx;
    for (int64_t i = 0; i < h->n; i++) {
        if (h->verdict[i] != NULL || !cli_lies_below(h->trace, h->calls[i], row->call))
            continue;
        h->verdict[i] = strdup(row->verdict);
        h->sentence[i] = strdup(row->sentence != NULL ? row->sentence : "");
        if (h->verdict[i] == NULL || h->sentence[i] == NULL)
            return usc_error_set(err, USC_E_NOMEM, -1, "diff: no memory");
    }
    return USC_OK;
}

/* Device of the first result of a call. */
static void device_of(usc_trace *t, int64_t sequence, char *out, size_t size)
{
    usc_call call;
    const char *device = "cpu";
    if (usc_trace_read_call(t, sequence, &call, NULL) == USC_OK)
        for (int i = 0; i < call.n_args; i++)
            if (call.arg[i].role != USC_ROLE_IN && call.arg[i].device != NULL) {
                device = call.arg[i].device;
                break;
            }
    (void)snprintf(out, size, "%s", device);
}

static int compare_numbers(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int judge_side(const usc_check_options *given, const char *path, hearing *h)
{
    char home[64], folder[PATH_MAX];
    int64_t wanted[MOST_JUDGED];
    usc_check_options o = *given;
    usc_run_end end = USC_RUN_DONE;
    usc_result *result = NULL;
    usc_error err;
    cli_hooks hooks;
    memcpy(wanted, h->calls, (size_t)h->n * sizeof *wanted);
    qsort(wanted, (size_t)h->n, sizeof *wanted, compare_numbers);
    device_of(h->trace, wanted[0], home, sizeof home);
    if (!cli_scratch_make("ulpscope-diff", folder, sizeof folder)) return CLI_TROUBLE;
    o.trace = path;
    o.out = folder;
    o.calls = wanted;
    o.n_calls = h->n;
    if (o.device == NULL) o.device = home;
    o.faults = cli_faults(o.device, o.faults);
    cli_hooks_begin(&hooks, "diff");
    usc_status st = usc_check_trace(&o, &hooks.hooks, &end, &err);
    cli_hooks_end(&hooks);
    if (st == USC_OK && end == USC_RUN_DONE) st = usc_result_open(folder, &result, &err);
    if (st == USC_OK && result != NULL) st = usc_result_walk(result, hear_row, h, &err);
    usc_result_close(result);
    cli_scratch_remove(folder);
    if (end == USC_RUN_INTERRUPTED) return CLI_INTERRUPTED;
    if (st == USC_OK) return CLI_SAME;
    if (given->device != NULL) {
        cli_fail("%s", err.text);
        return cli_fail(
            "calls of %s could not be run again on %s; --device names another "
            "device, with --no-judge nothing is run",
            path, o.device);
    }
    cli_fail("calls of %s could not be run again on %s, limits alone tell (%s); --device "
             "names a device that is here",
             path, o.device, err.text);
    return NOT_HERE;
}

static int64_t list_rows(const usc_diff *d, int64_t *row, int64_t *const calls[2])
{
    int64_t n, n_found = 0;
    const usc_diff_row *rows = usc_diff_rows(d, &n);
    for (int64_t i = 0; i < n && n_found < MOST_JUDGED; i++) {
        if (rows[i].kind != USC_DIFF_MADE && rows[i].kind != USC_DIFF_GREW) continue;
        if (rows[i].out.basis == USC_DIFF_BY_STATISTICS) continue; /* nothing to run on */
        row[n_found] = i;
        calls[0][n_found] = rows[i].call_a;
        calls[1][n_found++] = rows[i].call_b;
    }
    return n_found;
}

int diff_judge(usc_diff *d, usc_trace *const t[2], const diff_words *words,
               const usc_check_options *options)
{
    int64_t row[MOST_JUDGED], calls_a[MOST_JUDGED], calls_b[MOST_JUDGED];
    int64_t *const calls[2] = {calls_a, calls_b};
    const int64_t n = list_rows(d, row, calls);
    int code = CLI_SAME;
    if (n == 0) return CLI_SAME;
    hearing side[2] = {{.trace = t[0], .calls = calls_a, .n = n},
                       {.trace = t[1], .calls = calls_b, .n = n}};
    for (int i = 0; i < 2 && code == CLI_SAME; i++)
        code = judge_side(options, words->path[i], &side[i]);
    for (int64_t i = 0; i < n; i++) {
        const usc_diff_heard heard = {side[0].verdict[i], side[1].verdict[i],
                                      side[0].sentence[i], side[1].sentence[i]};
        usc_error err;
        if (code == CLI_SAME && usc_diff_hear(d, row[i], &heard, &err) != USC_OK)
            code = cli_fail("%s", err.text);
        for (int k = 0; k < 2; k++) {
            free(side[k].verdict[i]);
            free(side[k].sentence[i]);
        }
    }
    return code == NOT_HERE ? CLI_SAME : code;
}
