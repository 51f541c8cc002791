// SPDX-License-Identifier: Apache-2.0
// ulpscope show: the calls of a trace as a list, or one call whole.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/pattern.h>

#include "show/show.h"

enum {
    OPT_OPS = 256,
    OPT_MODULE,
    OPT_PHASE,
    OPT_STEP,
    OPT_CALL,
    OPT_STATS,
    OPT_LIMIT,
    OPT_JSON
};

static const cli_entry own_options[] = {
    {OPT_OPS, "ops", "PATTERN", NULL,
     "only these operators: globs, comma-separated, ! excludes"},
    {OPT_MODULE, "module", "GLOB", NULL,
     "only modules whose path matches, e.g. 'layers.3.*'"},
    {OPT_PHASE, "phase", "P", NULL, "forward, backward or optimizer"},
    {OPT_STEP, "step", "LIST", NULL, "only these steps, e.g. 2 or 2,5-8"},
    {OPT_CALL, "call", "SEQ", NULL, "one call whole; the same as TRACE#SEQ"},
    {OPT_STATS, "stats", NULL, NULL, "statistics of each tensor, below each call"},
    {OPT_LIMIT, "limit", "N", NULL, "at most N calls"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object per call and line"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_show_page = {
    .command = "show",
    .usage = "TRACE[#SEQUENCE] [OPTIONS]",
    .about =
        "Lists the calls of a trace: sequence, step, phase, operator, arguments, "
        "module. With a sequence number, one call whole: tensors, statistics, stack.\n",
    .options = options,
    .examples = "  ulpscope show ulpscope-trace --ops '*norm*' --phase backward\n"
                "  ulpscope show ulpscope-trace#412\n"
                "  ulpscope show ulpscope-trace --json | jq .op | sort | uniq -c\n",
    .codes = "0 shown, 2 something went wrong",
};

typedef struct show_arguments {
    usc_trace_filter filter;
    usc_steps *steps;
    size_t n_steps; /* 0: all */
    int64_t call;   /* 0: a list */
    int64_t limit;
    bool stats, json;
    char *trace;
} show_arguments;

static bool parse_option(show_arguments *a, int option)
{
    switch (option) {
    case OPT_OPS: {
        usc_error err;
        a->filter.ops = optarg;
        if (usc_pattern_check(optarg, &err) == USC_OK) return true;
        cli_fail("--ops: %s", err.text);
        return false;
    }
    case OPT_MODULE:
        a->filter.module = optarg;
        return true;
    case OPT_PHASE:
        a->filter.phase = optarg;
        for (int p = 0; p < USC_N_PHASES; p++)
            if (strcmp(optarg, usc_phase_text((usc_phase)p)) == 0) return true;
        cli_fail("--phase '%s': forward, backward or optimizer is needed", optarg);
        return false;
    case OPT_STEP:
        return cli_steps(&a->steps, &a->n_steps);
    case OPT_CALL:
        return cli_number("--call", optarg, &a->call);
    case OPT_LIMIT:
        return cli_number("--limit", optarg, &a->limit);
    case OPT_STATS:
        a->stats = true;
        return true;
    case OPT_JSON:
        a->json = true;
        return true;
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, show_arguments *a)
{
    *a = (show_arguments){.filter = {.step = -1}, .limit = INT64_MAX};
    for (int option; (option = cli_next(&cmd_show_page, argc, argv)) != -1;)
        if (!parse_option(a, option)) return false;
    if (argc - optind != 1) {
        cli_fail(optind == argc ? "show needs a trace, e.g. ulpscope show ulpscope-trace"
                                : "show takes one trace");
        return false;
    }
    a->trace = argv[optind];
    (void)cli_split_call(a->trace, &a->call);
    return true;
}

static usc_status show_call(usc_trace *t, const show_arguments *a, int64_t sequence,
                            usc_error *err)
{
    usc_call call;
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
static usc_status keep_steps(usc_trace *t, const show_arguments *a, int64_t *sequences,
                             int64_t n, int64_t *n_left, usc_error *err)
{
    *n_left = 0;
    for (int64_t i = 0; i < n; i++) {
        usc_call call;
        const usc_status st = usc_trace_read_call(t, sequences[i], &call, err);
        if (st != USC_OK) return st;
        if (usc_steps_have(a->steps, a->n_steps, call.step))
            sequences[(*n_left)++] = sequences[i];
    }
    return USC_OK;
}

/* What a pattern that matches nothing may have meant. */
static void say_likely(usc_trace *t, const char *ops)
{
    char likely[256] = "";
    usc_calls *calls = NULL;
    if (usc_calls_create(&calls, NULL) != USC_OK) return;
    if (usc_trace_read_calls(t, calls, NULL) == USC_OK)
        usc_calls_likely(calls, ops, likely, sizeof likely);
    if (likely[0] != '\0') (void)fprintf(stderr, "; did you mean --ops %s?", likely);
    usc_calls_free(calls);
}

static void say_none(usc_trace *t, const show_arguments *a)
{
    const char *ops = a->filter.ops;
    const bool torch_name =
        ops != NULL && strstr(ops, "::") == NULL &&
        (strchr(ops, '.') != NULL || strpbrk(ops, "ABCDEFGHIJKLMNOPQ"
                                                  "RSTUVWXYZ") != NULL);
    fputs("ulpscope: no call matches", stderr);
    if (torch_name)
        fputs("; operators have names such as aten::mm, aten::add.Tensor", stderr);
    else if (ops != NULL)
        say_likely(t, ops);
    fputc('\n', stderr);
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

static usc_status show_list(usc_trace *t, const show_arguments *a, bool *none,
                            usc_error *err)
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
    if (a->n_steps > 0) st = keep_steps(t, a, sequences, n, &n_left, err);
    const int64_t n_shown = n_left < a->limit ? n_left : a->limit;
    if (!a->json && n_left > 0) show_head();
    for (int64_t i = 0; i < n_shown && st == USC_OK; i++)
        st = show_call(t, a, sequences[i], err);
    if (st == USC_OK && !a->json && n_shown < n_left)
        (void)printf("... and %lld more calls (--limit)\n",
                     (long long)(n_left - n_shown));
    *none = st == USC_OK && n_left == 0;
    if (*none) say_none(t, a);
    free(sequences);
    return st;
}

int cmd_show(int argc, char **argv)
{
    show_arguments a;
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    usc_error err;
    usc_trace *t = NULL;
    bool none = false;
    usc_status st = usc_trace_open(a.trace, NULL, &t, &err);
    if (st == USC_OK)
        st = a.call != 0 ? show_call(t, &a, a.call, &err) : show_list(t, &a, &none, &err);
    if (st == USC_OK) say_incomplete(t);
    const bool lacks = none || (st == USC_OK && cli_ops_unmatched(a.trace, a.filter.ops));
    const int code = st == USC_OK ? cli_close_output(lacks ? CLI_TROUBLE : CLI_SAME)
                                  : cli_fail("%s", err.text);
    usc_trace_close(t);
    free(a.steps);
    return code;
}
