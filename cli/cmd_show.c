// SPDX-License-Identifier: Apache-2.0
// ulpscope show: the calls of a trace as a list, or one call whole.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/pattern.h>
#include <ulpscope/trace.h>

#include "show.h"

const char cmd_show_help[] =
    "usage: ulpscope show TRACE[#SEQUENCE] [OPTIONS]\n"
    "\n"
    "Lists the calls of a trace: sequence, step, phase, operator, arguments, module. "
    "With\n"
    "a sequence number, one call whole: tensors, statistics, stack.\n"
    "\n"
    "  --ops PATTERN   only these operators: globs, comma-separated, ! excludes\n"
    "  --module GLOB   only modules whose path matches, e.g. 'layers.3.*'\n"
    "  --phase P       forward, backward or optimizer\n"
    "  --step LIST     only these steps, e.g. 2 or 2,5-8\n"
    "  --call SEQ      one call whole; the same as TRACE#SEQ\n"
    "  --stats         statistics of each tensor, below each call\n"
    "  --limit N       at most N calls\n"
    "  --json          one JSON object per call and line\n"
    "\n"
    "examples:\n"
    "  ulpscope show ulpscope-trace --ops '*norm*' --phase backward\n"
    "  ulpscope show ulpscope-trace#412\n"
    "  ulpscope show ulpscope-trace --json | jq .op | sort | uniq -c\n";

typedef struct show_arguments {
    usc_trace_filter filter;
    const char *steps; /* "2,5-8"; NULL: all */
    int64_t call;      /* 0: a list */
    int64_t limit;
    bool stats, json;
    char *trace;
} show_arguments;

/* One part of "2,5-8": its first and last step, and where the next part begins. */
static bool next_steps(const char **text, int64_t *first, int64_t *last)
{
    char *end = NULL;
    errno = 0;
    if (**text < '0' || **text > '9') return false;
    *first = *last = strtoll(*text, &end, 10);
    if (*end == '-' && end[1] >= '0' && end[1] <= '9') *last = strtoll(end + 1, &end, 10);
    const bool more = *end == ',' && end[1] != '\0';
    if (errno != 0 || *last < *first || (*end != '\0' && !more)) return false;
    *text = end + more;
    return true;
}

static bool check_steps(const char *text)
{
    int64_t first, last;
    const char *rest = text;
    do {
        if (next_steps(&rest, &first, &last)) continue;
        cli_fail("--step '%s': no list of steps; write 2 or 2,5-8", text);
        return false;
    } while (*rest != '\0');
    return true;
}

static bool has_step(const char *steps, int64_t step)
{
    int64_t first, last;
    while (steps != NULL && *steps != '\0' && next_steps(&steps, &first, &last))
        if (step >= first && step <= last) return true;
    return steps == NULL;
}

static bool parse_option(show_arguments *a, int option)
{
    switch (option) {
    case 'o': {
        usc_error err;
        a->filter.ops = optarg;
        if (usc_pattern_check(optarg, &err) == USC_OK) return true;
        cli_fail("--ops: %s", err.text);
        return false;
    }
    case 'm':
        a->filter.module = optarg;
        return true;
    case 'p':
        a->filter.phase = optarg;
        for (int p = 0; p < USC_N_PHASES; p++)
            if (strcmp(optarg, usc_phase_text((usc_phase)p)) == 0) return true;
        cli_fail("--phase '%s': forward, backward or optimizer is needed", optarg);
        return false;
    case 's':
        a->steps = optarg;
        return check_steps(optarg);
    case 'c':
        return cli_number("--call", optarg, &a->call);
    case 'l':
        return cli_number("--limit", optarg, &a->limit);
    case 't':
        a->stats = true;
        return true;
    case 'j':
        a->json = true;
        return true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, show_arguments *a)
{
    static const struct option longs[] = {{"ops", required_argument, NULL, 'o'},
                                          {"module", required_argument, NULL, 'm'},
                                          {"phase", required_argument, NULL, 'p'},
                                          {"step", required_argument, NULL, 's'},
                                          {"call", required_argument, NULL, 'c'},
                                          {"limit", required_argument, NULL, 'l'},
                                          {"stats", no_argument, NULL, 't'},
                                          {"json", no_argument, NULL, 'j'},
                                          {0}};
    *a = (show_arguments){.filter = {.step = -1}, .limit = INT64_MAX};
    for (int option; (option = cli_option(argc, argv, ":", longs)) != -1;)
        if (!parse_option(a, option)) return false;
    if (argc - optind != 1) {
        cli_fail(optind == argc ? "show needs a trace, e.g. ulpscope show ulpscope-trace"
                                : "show takes one trace");
        return false;
    }
    a->trace = argv[optind];
    char *hash = strrchr(a->trace, '#');
    /* A folder may have a # in its name. */
    if (hash != NULL && strchr(hash, '/') == NULL && access(a->trace, F_OK) != 0) {
        if (!cli_number("call", hash + 1, &a->call)) return false;
        *hash = '\0';
    }
    return true;
}

static usc_status show_call(usc_trace *t, const show_arguments *a, int64_t sequence,
                            usc_error *err)
{
    usc_trace_call call;
    const usc_status st = usc_trace_read_call(t, sequence, &call, err);
    if (st != USC_OK) return st;
    if (a->json)
        show_json(&call);
    else if (a->call != 0)
        show_whole(&call);
    else
        show_line(&call, a->stats);
    return USC_OK;
}

/* Leaves the calls of these steps. */
static usc_status keep_steps(usc_trace *t, const char *steps, int64_t *sequences,
                             int64_t n, int64_t *n_left, usc_error *err)
{
    *n_left = 0;
    for (int64_t i = 0; i < n; i++) {
        usc_trace_call call;
        const usc_status st = usc_trace_read_call(t, sequences[i], &call, err);
        if (st != USC_OK) return st;
        if (has_step(steps, call.step)) sequences[(*n_left)++] = sequences[i];
    }
    return USC_OK;
}

static void say_none(const show_arguments *a)
{
    const char *ops = a->filter.ops;
    const bool torch_name =
        ops != NULL && strstr(ops, "::") == NULL &&
        (strchr(ops, '.') != NULL || strpbrk(ops, "ABCDEFGHIJKLMNOPQ"
                                                  "RSTUVWXYZ") != NULL);
    (void)fprintf(stderr, "ulpscope: no call matches%s\n",
                  torch_name ? "; operators have names such as aten::mm, aten::add.Tensor"
                             : "");
}

static void say_incomplete(usc_trace *t)
{
    const char *lost = usc_trace_meta(t, "lost");
    if (lost != NULL) {
        fputs("ulpscope: the trace is incomplete: ", stderr);
        show_plain_to(stderr, lost);
        fputc('\n', stderr);
        return;
    }
    const char *complete = usc_trace_meta(t, "complete");
    if (complete != NULL && strcmp(complete, "0") == 0)
        fputs("ulpscope: the trace is incomplete: the program ended or died before its "
              "last step was over; calls that follow are missing\n",
              stderr);
    const char *text = usc_trace_meta(t, "compiled_regions");
    const long n = text != NULL ? strtol(text, NULL, 10) : 0;
    if (n > 0)
        (void)fprintf(stderr,
                      "ulpscope: %ld compiled region%s ran and %s not recorded; capture "
                      "--no-compile records what is inside\n",
                      n, n == 1 ? "" : "s", n == 1 ? "was" : "were");
}

static usc_status show_list(usc_trace *t, const show_arguments *a, usc_error *err)
{
    const int64_t *found;
    int64_t n;
    usc_status st = usc_trace_select(t, &a->filter, &found, &n, err);
    if (st != USC_OK) return st;
    int64_t *sequences = calloc((size_t)n + 1, sizeof *sequences); /* next call frees */
    if (sequences == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
    for (int64_t i = 0; i < n; i++)
        sequences[i] = found[i];

    int64_t n_left = n;
    if (a->steps != NULL) st = keep_steps(t, a->steps, sequences, n, &n_left, err);
    const int64_t n_shown = n_left < a->limit ? n_left : a->limit;
    if (!a->json && n_left > 0) show_head();
    for (int64_t i = 0; i < n_shown && st == USC_OK; i++)
        st = show_call(t, a, sequences[i], err);
    if (st == USC_OK && !a->json && n_shown < n_left)
        (void)printf("... and %lld more calls (--limit)\n",
                     (long long)(n_left - n_shown));
    if (st == USC_OK && n_left == 0) say_none(a);
    free(sequences);
    return st;
}

int cmd_show(int argc, char **argv)
{
    show_arguments a;
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    usc_error err;
    usc_trace *t = NULL;
    usc_status st = usc_trace_open(a.trace, NULL, &t, &err);
    if (st == USC_OK)
        st = a.call != 0 ? show_call(t, &a, a.call, &err) : show_list(t, &a, &err);
    if (st == USC_OK) say_incomplete(t);
    const int code = st == USC_OK ? cli_close_output(CLI_SAME) : cli_fail("%s", err.text);
    usc_trace_close(t);
    return code;
}
