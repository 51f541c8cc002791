// SPDX-License-Identifier: Apache-2.0
// ulpscope fuzz: random calls, judged as those of a trace are. The drawing and judging is
// the library's (ulpscope/x/fuzz.h, ulpscope/x/run.h).
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ulpscope/version.h>
#include <ulpscope/x/pattern.h>

#include "common/hooks.h"
#include "common/progress.h"
#include "common/stop.h"
#include "fuzz/fuzz.h"

enum {
    OPT_DEVICE = 256,
    OPT_VIA,
    OPT_OPS,
    OPT_TIME,
    OPT_CASES,
    OPT_SEED,
    OPT_STRESS,
    OPT_RELATIONS,
    OPT_PROGRAMS,
    OPT_TRACE,
    OPT_SPEC,
    OPT_CORPUS,
    OPT_MATRIX,
    OPT_PROFILE,
    OPT_FAULTS,
    OPT_TIMEOUT,
    OPT_CAUSES,
    OPT_IMPORT,
    OPT_FORCE,
    OPT_JSON
};

static const cli_entry own_options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "what to test: cuda:0, npu:0, sim:0, cpu, ...; or python:MODULE:FUNCTION"},
    {OPT_VIA, "via", "COMPILER", NULL,
     "test what torch.compile generates for DEVICE with this backend (inductor); with "
     "--device cpu also runtimes that are installed: ulpscope check --help names them"},
    {OPT_OPS, "ops", "PATTERN", NULL,
     "only these operators: globs, comma-separated, ! excludes"},
    {OPT_TIME, "time", "TIME", NULL,
     "stop after 90s, 10m or 1h (default: 10m, or when --cases are done; --budget is the "
     "same)"},
    {OPT_TIME, "budget", "TIME", NULL, NULL},
    {OPT_CASES, "cases", "N", NULL,
     "stop when N cases are judged (default: when the time is over)"},
    {OPT_SEED, "seed", "S", "0", "which cases: those of a seed are always the same"},
    {OPT_STRESS, "stress", NULL, NULL,
     "search: hard values and sizes at boundaries nearly always, and from each case "
     "steps "
     "towards the largest error; with --trace its calls as they are come first"},
    {OPT_RELATIONS, "relations", NULL, NULL,
     "put each case that passes once more, in another form that must give the same: in "
     "place, out=, strided, samples reordered or split, padded, wider, times -2; and "
     "hold gradients to slopes"},
    {OPT_PROGRAMS, "programs", NULL, NULL,
     "short programs of 2 to 6 operators, each judged as one call: what --via fuses"},
    {OPT_TRACE, "trace", "TRACE", NULL,
     "draw from the calls of this trace (default: from the samples of torch's operator "
     "database)"},
    {OPT_SPEC, "spec", "FILE", NULL,
     "draw from the calls that this file specifies, one JSON object a line: "
     "{\"op\": \"my::op\"} probes its schema, \"args\" say more "
     "(docs/reference/fuzz.md)"},
    {OPT_CORPUS, "corpus", "OUT|FILE", NULL,
     "judge first the cases that this file, or OUT/cases.txt, names: those of earlier "
     "findings, of any seed; their results go to OUT-corpus"},
    {OPT_MATRIX, "matrix", NULL, NULL,
     "judge nothing: tell which dtypes and layouts DEVICE refuses of each operator that "
     "the CPU takes, and how; known answers of this version of DEVICE are not asked for "
     "again, but with --force"},
    {OPT_PROFILE, "profile", NULL, NULL,
     "judge nothing: tell how long each operator takes on DEVICE and on the CPU, by the "
     "largest example of it"},
    {OPT_FAULTS, "faults", "SPEC", NULL,
     "plant faults in the simulated device, as ulpscope check does: 'mm:tf32'"},
    {'j', "jobs", "N", NULL, "worker processes (default: one per core)"},
    {OPT_TIMEOUT, "timeout", "S", "30", "seconds that one case may take"},
    {OPT_CAUSES, "causes", "off|S", "2",
     "seconds of CPU time for the cause of one finding"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this module or FILE.py first: it registers custom operators; may be "
     "repeated"},
    {'o', "out", "OUT", "ulpscope-fuzz", "folder of the results"},
    {OPT_FORCE, "force", NULL, NULL, "begin anew, whatever OUT holds"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object a finding, and no table"},
    {0}};

static const cli_entry *const options[] = {own_options, cli_report_options, NULL};

const cli_page cmd_fuzz_page = {
    .command = "fuzz",
    .usage = "[replay|minimize CASE|FILE] --device DEVICE [OPTIONS]",
    .about =
        "Draws calls of operators nobody made, runs them on DEVICE and judges each as "
        "ulpscope check does: other sizes (0, 1, powers of two and those beside them), "
        "dtypes, memory layouts (strided, offset, expanded, shared) and values (ties, "
        "subnormals, near overflow, NaN, cancelling ones, ...) than the example they are "
        "drawn from. Examples are samples of torch's operator database or the calls of "
        "--trace. A case that the CPU refuses is drawn again; one that crashes or hangs "
        "the device costs that case.\n"
        "A case is named SEED:CASE and is the same on every machine with that torch. The "
        "same command goes on where the last one stopped. OUT is read by ulpscope "
        "report; "
        "OUT/cases.txt names the findings.\n"
        " replay CASE|FILE     judges cases again: 7:123, or those of OUT/cases.txt\n"
        " minimize CASE        writes a folder to hand on: the case made small, a "
        "script\n"
        "                      of at most 25 lines that torch alone runs, seen to fail,\n"
        "                      and a bug report; give the options of the run\n",
    .options = options,
    .examples =
        "  ulpscope fuzz --device npu:0                     ten minutes of everything\n"
        "  ulpscope fuzz --device cuda:0 --ops '*norm*,softmax' --time 1m\n"
        "  ulpscope fuzz --device sim:0 --faults 'mm:tf32' --cases 2000\n"
        "  ulpscope fuzz --device npu:0 --trace ulpscope-trace --stress\n"
        "  ulpscope fuzz --device cuda:0 --programs --via inductor    what is fused\n"
        "  ulpscope fuzz --device npu:0 --matrix            which dtypes it refuses\n"
        "  ulpscope fuzz --device npu:0 --spec mine.jsonl --profile\n"
        "  ulpscope fuzz replay ulpscope-fuzz/cases.txt --device npu:0   mended?\n"
        "  ulpscope fuzz minimize 0:1234 --device npu:0\n",
    .codes = "1 when a case is crashed, timeout, nonfinite, wrong, reduced or "
             "intermittent and not allowed, with --matrix when something is "
             "refused; 2 when no case of an operator could be judged and that is not "
             "allowed (--allow, --min-judged), or something went wrong; else 0",
};

typedef enum verb { FUZZ, REPLAY, MINIMIZE } verb;

typedef struct arguments {
    usc_check_options check;
    usc_fuzz_options fuzz;
    cli_report report;
    const char *imports[CLI_MAX_IMPORTS];
    fuzz_source from;
    const char *faults, *what, *out, *corpus;
    char examples[PATH_MAX];
    verb verb;
    bool json, timed, matrix, profile;
} arguments;

/* ---- options ---- */

static bool read_seed(arguments *a)
{
    int64_t n;
    if (!cli_number("--seed", optarg, &n)) return false;
    a->fuzz.seed = (uint64_t)n;
    return true;
}

static bool read_cases(arguments *a)
{
    if (!cli_number("--cases", optarg, &a->fuzz.n_cases)) return false;
    if (a->fuzz.n_cases >= 1 && a->fuzz.n_cases <= USC_FUZZ_CASES) return true;
    return cli_fail("--cases must be 1 or more") == 0;
}

static bool take_text(arguments *a, int key)
{
    switch (key) {
    case OPT_DEVICE:
        a->check.device = optarg;
        return true;
    case OPT_VIA:
        a->check.via = optarg;
        return true;
    case OPT_OPS:
        a->check.ops = optarg;
        return true;
    case OPT_TRACE:
        a->from.trace = optarg;
        return true;
    case OPT_SPEC:
        a->from.spec = optarg;
        return true;
    case OPT_CORPUS:
        a->corpus = optarg;
        return true;
    case OPT_FAULTS:
        a->faults = optarg;
        return true;
    case 'o':
        a->out = optarg;
        return true;
    default:
        return false;
    }
}

static bool take(arguments *a, int key)
{
    switch (key) {
    case OPT_TIME:
        a->timed = true;
        return cli_time("--time", optarg, &a->check.budget);
    case OPT_CASES:
        return read_cases(a);
    case OPT_SEED:
        return read_seed(a);
    case OPT_STRESS:
        return a->fuzz.stress = true;
    case OPT_RELATIONS:
        return a->fuzz.relations = true;
    case OPT_PROGRAMS:
        return a->fuzz.programs = true;
    case OPT_MATRIX:
        return a->matrix = true;
    case OPT_PROFILE:
        return a->profile = true;
    case OPT_TIMEOUT:
        return cli_seconds("timeout", optarg, false, &a->check.timeout);
    case OPT_CAUSES:
        return cli_seconds("causes", optarg, true, &a->check.causes);
    case OPT_IMPORT:
        return cli_import(a->imports, &a->check.n_imports);
    case OPT_FORCE:
        return a->check.force = true;
    case OPT_JSON:
        return a->json = true;
    case 'j':
        return cli_jobs(&a->check.jobs);
    default:
        return take_text(a, key) || cli_report_option(&a->report, key);
    }
}

/* What the words without a dash say; a sentence or NULL. */
static const char *read_words(arguments *a, int n, char **word)
{
    if (n == 0) return NULL;
    if (strcmp(word[0], "replay") == 0)
        a->verb = REPLAY;
    else if (strcmp(word[0], "minimize") == 0)
        a->verb = MINIMIZE;
    else
        return "what comes first is replay or minimize, or nothing";
    if (n != 2)
        return a->verb == REPLAY
                   ? "one case or file of cases is needed, e.g. ulpscope "
                     "fuzz replay 0:1234 --device npu:0"
                   : "one case is needed, e.g. ulpscope fuzz minimize 0:1234 "
                     "--device npu:0";
    a->what = word[1];
    return NULL;
}

static const char *contradiction(const arguments *a)
{
    usc_error err;
    if (a->check.device == NULL || a->check.device[0] == '\0')
        return "--device DEVICE is needed, e.g. --device npu:0";
    if (a->from.spec != NULL && a->from.trace != NULL)
        return "--trace and --spec both say what to draw from: give one of them";
    if (a->faults != NULL && a->faults[0] != '\0' &&
        !cli_same_type(a->check.device, "sim"))
        return "--faults: only the simulated device has planted faults; use --device "
               "sim:0";
    if (a->corpus != NULL && a->verb != FUZZ)
        return "--corpus is judged before new cases: leave it out, or replay and "
               "minimize";
    if (a->fuzz.programs && (a->from.trace != NULL || a->from.spec != NULL))
        return "--programs are made of operators of their own: leave --trace and --spec "
               "out";
    if (a->fuzz.programs && a->fuzz.relations)
        return "--relations hold single calls to other forms of them: leave them or "
               "--programs out";
    if ((a->matrix || a->profile) &&
        (a->matrix == a->profile || a->verb != FUZZ || a->fuzz.programs ||
         a->fuzz.relations || a->fuzz.stress || a->corpus != NULL))
        return "--matrix and --profile judge nothing: give one of them, with what to "
               "draw from (--ops, --trace, --spec) alone";
    if ((a->matrix || a->profile) && cli_same_type(a->check.device, "cpu") &&
        (a->check.via == NULL || a->check.via[0] == '\0'))
        return "--matrix and --profile hold a device beside the CPU, and cpu is the CPU "
               "itself: name another, or a compiler with --via";
    if (a->check.ops != NULL && usc_pattern_check(a->check.ops, &err) != USC_OK)
        return "--ops is no PATTERN: names and globs with commas between, e.g. "
               "'mm,*norm*'";
    return NULL;
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.fuzz = {.n_cases = USC_FUZZ_CASES},
                     .check = {.call = -1, .causes = USC_RUN_CAUSES, .timeout = 30}};
    cli_report_begin(&a->report);
    for (int key; (key = cli_next(&cmd_fuzz_page, argc, argv)) != -1;)
        if (!take(a, key)) return false;
    const char *why = read_words(a, argc - optind, argv + optind);
    if (why == NULL) why = contradiction(a);
    if (why != NULL) return cli_fail("%s; see ulpscope fuzz --help", why) == 0;
    if (!a->timed && a->fuzz.n_cases == USC_FUZZ_CASES) a->check.budget = 600;
    a->check.imports = a->imports;
    if (!cli_faults(a->check.device, a->faults, &a->check.faults)) return false;
    a->fuzz.signatures = a->fuzz.stress && a->from.trace != NULL;
    a->check.fuzz = &a->fuzz;
    a->check.cores = cli_cores();
    a->check.threads = cli_threads();
    a->check.version = USC_VERSION;
    return cli_report_reachable(&a->report) && cli_report_ready(&a->report);
}

/* ---- doing it ---- */

static int run(arguments *a)
{
    usc_error err;
    usc_run_end end;
    cli_hooks hooks;
    cli_hooks_begin(&hooks, "fuzz");
    const usc_status st = usc_check_trace(&a->check, &hooks.hooks, &end, &err);
    cli_hooks_end(&hooks);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (end == USC_RUN_INTERRUPTED) return CLI_INTERRUPTED;
    a->report.options.more = true;
    const int code = a->json ? cli_report_write(&a->report, a->check.out)
                             : cli_report_show(&a->report, a->check.out);
    if (code != CLI_TROUBLE && !fuzz_tell(&a->check, &a->from, a->json))
        return CLI_TROUBLE;
    const int last =
        cli_report_unjudged(&a->report, a->check.out, a->json ? stderr : stdout);
    return last == CLI_SAME ? code : CLI_TROUBLE;
}

/* Judges cases by their names, into the folder `out`. */
static int replay(arguments *a, const char *out)
{
    fuzz_cases *cases;
    size_t n;
    int worst = CLI_SAME;
    a->check.out = out;
    a->check.force = true;
    a->check.budget = 0;
    if (!fuzz_same_kind(a->what, &a->check, &a->from)) return CLI_TROUBLE;
    if (!fuzz_read_cases(a->what, &cases, &n)) worst = CLI_TROUBLE;
    for (size_t i = 0; worst < CLI_TROUBLE && i < n; i++) {
        a->fuzz.seed = cases[i].seed;
        a->fuzz.list = cases[i].number;
        a->fuzz.n_cases = cases[i].n;
        a->check.partial = a->check.partial || n > 1;
        const int code = run(a);
        if (code > worst) worst = code;
    }
    fuzz_free_cases(cases, n);
    return worst;
}

/* The cases of the corpus, then new ones: the worse of both codes. */
static int with_corpus(arguments *a)
{
    char what[PATH_MAX], folder[PATH_MAX];
    struct stat is;
    const bool is_folder = stat(a->corpus, &is) == 0 && S_ISDIR(is.st_mode);
    arguments first = *a;
    if ((size_t)snprintf(what, sizeof what, "%s%s", a->corpus,
                         is_folder ? "/cases.txt" : "") >= sizeof what ||
        (size_t)snprintf(folder, sizeof folder, "%s-corpus", a->check.out) >=
            sizeof folder)
        return cli_fail("--corpus or -o has too long a name");
    first.what = what;
    first.check.fuzz = &first.fuzz;
    first.check.imports = first.imports;
    first.check.partial = true;
    const int old = replay(&first, folder);
    if (old >= CLI_TROUBLE) return old;
    a->check.partial = old != CLI_SAME; /* a fault has fired there */
    const int found = run(a);
    return found > old ? found : old;
}

/* The Python side (ulpscope.fuzzer.fuzz_repro) writes the folder. */
static int minimize(arguments *a)
{
    fuzz_cases *cases;
    size_t n;
    char out[64], seed[24], number[24], example[24];
    int64_t call = 0;
    usc_error err;
    if (!fuzz_read_cases(a->what, &cases, &n)) return CLI_TROUBLE;
    a->fuzz.seed = cases[0].seed;
    const int64_t k = cases[0].number[0];
    const bool several = n > 1 || cases[0].n > 1;
    fuzz_free_cases(cases, n);
    if (several)
        return cli_fail("%s names several cases; minimize takes one, e.g. %" PRIu64
                        ":%" PRId64,
                        a->what, a->fuzz.seed, k);
    (void)snprintf(out, sizeof out, "repro-%" PRIu64 "-%" PRId64, a->fuzz.seed, k);
    if (a->out == NULL) a->out = out;
    if (access(a->out, F_OK) == 0)
        return cli_fail("%s is there already; name another folder with -o", a->out);
    cli_progress reads; /* of the examples of 900 operators: seconds */
    cli_progress_begin(&reads, "fuzz");
    const usc_status st = usc_fuzz_find(a->check.trace, a->fuzz.seed, k, &call, &err);
    cli_progress_end(&reads);
    if (st != USC_OK) return cli_fail("%s", err.text);
    (void)snprintf(seed, sizeof seed, "%" PRIu64, a->fuzz.seed);
    (void)snprintf(number, sizeof number, "%" PRId64, k);
    (void)snprintf(example, sizeof example, "%" PRId64, call);
    const char *word[CLI_MAX_IMPORTS + 10] = {a->check.trace,
                                              example,
                                              a->check.device,
                                              a->out,
                                              seed,
                                              number,
                                              a->fuzz.programs ? "programs"
                                              : a->fuzz.stress ? "stress"
                                                               : "",
                                              a->check.faults != NULL ? a->check.faults
                                                                      : "",
                                              a->check.via != NULL ? a->check.via : ""};
    for (int i = 0; i < a->check.n_imports; i++)
        word[9 + i] = a->imports[i];
    return cli_python_exec("ulpscope.fuzzer.fuzz_repro", word);
}

int cmd_fuzz(int argc, char **argv)
{
    arguments a;
    cli_begin("fuzz");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    a.check.trace = a.from.trace;
    if (a.from.trace == NULL) {
        if (!fuzz_examples(a.fuzz.programs, a.from.spec, a.check.ops, a.imports,
                           a.examples, sizeof a.examples))
            return cli_stop_asked() != 0 ? 128 + cli_stop_asked() : CLI_TROUBLE;
        a.check.trace = a.examples;
    }
    if (a.matrix || a.profile) return fuzz_sides(&a.check, a.profile, a.json);
    if (a.verb == REPLAY) return replay(&a, a.out != NULL ? a.out : "ulpscope-replay");
    if (a.verb == MINIMIZE) return minimize(&a);
    a.check.out = a.out != NULL ? a.out : "ulpscope-fuzz";
    return a.corpus != NULL ? with_corpus(&a) : run(&a);
}
