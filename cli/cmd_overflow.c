// SPDX-License-Identifier: Apache-2.0
// ulpscope overflow: where NaN and Inf are born in a trace, forward and backward, and
// whether an honest computation gives them as well.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#include <ulpscope/version.h>

#include "common/hooks.h"
#include "common/progress.h"
#include "common/scratch.h"
#include "overflow/overflow.h"

enum { MOST_REPLAYED = 1000 };

enum {
    OPT_DEVICE = 256,
    OPT_NO_REPLAY,
    OPT_ALL,
    OPT_STEP,
    OPT_LIMIT,
    OPT_IMPORT,
    OPT_FAULTS,
    OPT_JSON
};

static const cli_entry own_options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "where births are run again (default: the device that the trace is from)"},
    {OPT_NO_REPLAY, "no-replay", NULL, NULL,
     "only tell where they are born: needs no torch and no device"},
    {OPT_STEP, "step", "LIST", NULL, "only births of these steps, e.g. 2 or 2,5-8"},
    {OPT_ALL, "all", NULL, NULL,
     "also what a number asked for: masks of -inf and their like"},
    {OPT_LIMIT, "limit", "N", "50", "at most N of them in words"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this module or FILE.py first: it registers custom operators; may be "
     "repeated"},
    {OPT_FAULTS, "faults", "SPEC", NULL,
     "plant faults in the simulated device, as in ulpscope check"},
    {'j', "jobs", "N", NULL, "worker processes (default: one per core)"},
    {'o', "out", "OUT", NULL, "keep the verdicts on the births in this folder"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object per birth and line"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_overflow_page = {
    .command = "overflow",
    .usage = "TRACE [OPTIONS]",
    .about =
        "Names the calls of a trace at which NaN or Inf is born, of all phases: those "
        "that only carry it on are counted, not accused. Statistics suffice for that. "
        "Each birth is then run again on DEVICE and judged against float64:\n"
        " abnormal  the device's fault: the true result is finite\n"
        " normal    rightly so: beyond the dtype, or float32 overflows as well\n"
        " untold    nobody could tell, and why\n"
        "A call is told by what comes in: where NaN or Inf comes in already, one more "
        "that is born there does not show; mend the first and look again.\n",
    .options = options,
    .examples = "  ulpscope overflow ulpscope-trace\n"
                "  ulpscope overflow ulpscope-trace --no-replay --step 1\n"
                "  ulpscope overflow ulpscope-trace --json | jq 'select(.told == "
                "\"abnormal\")'\n",
    .codes =
        "0 none is born, or all are normal; 1 one is abnormal (with --no-replay: one "
        "is born); 2 one could not be told, or something went wrong",
};

typedef struct arguments {
    usc_check_options check;
    overflow_words words;
    usc_steps *steps;
    const char *imports[CLI_MAX_IMPORTS];
    bool no_replay;
} arguments;

static bool take(arguments *a, int key)
{
    switch (key) {
    case OPT_DEVICE:
        a->check.device = optarg;
        return true;
    case OPT_NO_REPLAY:
        a->no_replay = true;
        return true;
    case OPT_ALL:
        a->words.all = true;
        return true;
    case OPT_JSON:
        a->words.json = true;
        return true;
    case OPT_STEP:
        return cli_steps(&a->steps, &a->words.n_steps);
    case OPT_IMPORT:
        return cli_import(a->imports, &a->check.n_imports);
    case OPT_FAULTS:
        a->check.faults = optarg;
        return true;
    case 'o':
        a->check.out = optarg;
        return true;
    case OPT_LIMIT:
        return cli_number("--limit", optarg, &a->words.limit);
    case 'j':
        return cli_jobs(&a->check.jobs);
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.words = {.limit = 50}, .check = {.call = -1, .force = true}};
    for (int key; (key = cli_next(&cmd_overflow_page, argc, argv)) != -1;)
        if (!take(a, key)) return false;
    const char *why = NULL;
    if (argc - optind != 1)
        why = "one trace is needed, e.g. ulpscope overflow ulpscope-trace";
    else if (a->no_replay && (a->check.device != NULL || a->check.out != NULL))
        why = "--no-replay runs nothing: leave out --device and -o";
    if (why != NULL) {
        cli_fail("%s; see ulpscope overflow --help", why);
        return false;
    }
    a->check.trace = a->words.trace = argv[optind];
    a->check.imports = a->imports;
    a->words.steps = a->steps;
    a->check.cores = cli_cores();
    a->check.threads = cli_threads();
    a->check.version = USC_VERSION;
    return true;
}

/* ---- running births again ---- */

/* The births of the wanted steps, ascending; the number of them. */
static int64_t list_births(const overflow_found *f, const overflow_words *w,
                           int64_t *calls)
{
    int64_t n = 0;
    for (int64_t i = 0; i < f->n && n < MOST_REPLAYED; i++)
        if (overflow_is_birth(&f->source[i]) &&
            usc_steps_have(w->steps, w->n_steps, f->source[i].step))
            calls[n++] = f->source[i].event.call;
    return n;
}

/* Device of the first tensor of a call. Memory: the caller's room. */
static usc_status device_of(usc_trace *t, int64_t sequence, char *out, size_t size,
                            usc_error *err)
{
    usc_call call;
    const usc_status st = usc_trace_read_call(t, sequence, &call, err);
    const char *device = "cpu";
    for (int i = 0; st == USC_OK && i < call.n_args; i++)
        if (call.arg[i].role == USC_ROLE_OUT && call.arg[i].device != NULL) {
            device = call.arg[i].device;
            break;
        }
    (void)snprintf(out, size, "%s", device);
    return st;
}

static int run_births(arguments *a, overflow_found *f, usc_trace *t)
{
    char home[64], folder[PATH_MAX] = "";
    usc_error err;
    usc_run_end end = USC_RUN_DONE;
    cli_hooks hooks;
    usc_status st = device_of(t, a->check.calls[0], home, sizeof home, &err);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (a->check.device == NULL) a->check.device = home;
    if (!cli_faults(a->check.device, a->check.faults, &a->check.faults))
        return CLI_TROUBLE;
    if (a->check.out == NULL) {
        if (!cli_scratch_make("ulpscope-overflow", folder, sizeof folder))
            return CLI_TROUBLE;
        a->check.out = folder;
    }
    cli_hooks_begin(&hooks, "overflow");
    st = usc_check_trace(&a->check, &hooks.hooks, &end, &err);
    cli_hooks_end(&hooks);
    if (st == USC_OK && end == USC_RUN_DONE)
        st =
            overflow_hear(f, t, a->check.out, cli_same_type(home, a->check.device), &err);
    if (folder[0] != '\0') cli_scratch_remove(folder);
    if (end == USC_RUN_INTERRUPTED) return CLI_INTERRUPTED;
    if (st == USC_OK) return CLI_SAME;
    cli_fail("%s", err.text);
    return cli_fail("births could not be run again on %s; --device names another device, "
                    "--no-replay tells only where they are",
                    a->check.device);
}

/* ---- the whole ---- */

static int code_of(const overflow_found *f, const arguments *a)
{
    int code = CLI_SAME;
    for (int64_t i = 0; i < f->n; i++) {
        const overflow_source *s = &f->source[i];
        if (!overflow_is_birth(s) ||
            !usc_steps_have(a->words.steps, a->words.n_steps, s->step))
            continue;
        if (a->no_replay || s->told == OVERFLOW_ABNORMAL) return CLI_DIFFERS;
        if (s->told == OVERFLOW_UNTOLD) code = CLI_TROUBLE;
    }
    return code;
}

/* Whether the trace has calls of a step that was asked for; else what is said of none is
 * said of nothing. */
static bool has_steps(const arguments *a, usc_trace *t)
{
    usc_calls *calls = NULL;
    bool has = a->words.n_steps == 0;
    if (has) return true;
    int64_t n = 0;
    if (usc_calls_create(&calls, NULL) != USC_OK) return true;
    const bool read = usc_trace_read_calls(t, calls, NULL) == USC_OK;
    const usc_call *call = usc_calls_list(calls, &n);
    for (int64_t i = 0; read && !has && i < n; i++)
        has = usc_steps_have(a->words.steps, a->words.n_steps, call[i].step);
    usc_calls_free(calls);
    return has || !read;
}

static void say_next(const overflow_found *f, const arguments *a)
{
    for (int64_t i = 0; !a->no_replay && i < f->n; i++) {
        if (f->source[i].told != OVERFLOW_ABNORMAL) continue;
        cli_next_is("ulpscope repro %s#%lld --device %s", a->check.trace,
                    (long long)f->source[i].event.call, a->check.device);
        return;
    }
    cli_next_is("ulpscope overflow %s --device DEVICE, which tells whose fault it is",
                a->check.trace);
}

static int tell(arguments *a, overflow_found *f, usc_trace *t)
{
    usc_error err;
    int trouble = CLI_SAME;
    if (f->n_calls > 0 && !f->statistics)
        return cli_fail("%s has no statistics of its tensors: it cannot tell; capture it "
                        "again",
                        a->check.trace);
    if (!has_steps(a, t))
        return cli_fail("%s holds no call of a step that --step names: ulpscope show "
                        "lists its steps",
                        a->check.trace);
    int64_t *calls = malloc(MOST_REPLAYED * sizeof *calls);
    if (calls == NULL) return cli_fail("out of memory");
    a->check.calls = calls;
    a->check.n_calls = list_births(f, &a->words, calls);
    if (!a->no_replay && a->check.n_calls > 0) trouble = run_births(a, f, t);
    free(calls);
    if (trouble == CLI_INTERRUPTED) return trouble;
    const usc_status st = overflow_say(f, t, &a->words, &err);
    if (st != USC_OK) return cli_fail("%s", err.text);
    const int code = cli_close_output(trouble != CLI_SAME ? trouble : code_of(f, a));
    if (code == CLI_DIFFERS && !a->words.json) say_next(f, a);
    return code;
}

int cmd_overflow(int argc, char **argv)
{
    arguments a;
    overflow_found found = {0};
    usc_trace *t = NULL;
    usc_error err;
    cli_begin("overflow");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    cli_progress reads;
    cli_progress_read(&reads, "overflow");
    usc_status st = usc_trace_open(a.check.trace, NULL, &t, &err);
    if (st == USC_OK) st = overflow_find(t, &found, &err);
    cli_progress_end(&reads);
    const int code = st == USC_OK ? tell(&a, &found, t) : cli_fail("%s", err.text);
    overflow_free(&found);
    usc_trace_close(t);
    free(a.steps);
    return code;
}
