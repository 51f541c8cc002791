// SPDX-License-Identifier: Apache-2.0
// ulpscope diff: where two runs part, by their traces.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#include "common/hooks.h"
#include "common/progress.h"
#include "diff/diff.h"

/* Of the shorter trace, in percent: less says that they are of two models. Fewer that are
 * LIKELY one call may say so, too. Of the longer one, with a partner: what lies INSIDE of
 * modules is in both. */
enum { LEAST_PAIRED = 10, LEAST_LIKELY = 50, LEAST_INSIDE = 90 };

enum {
    OPT_NO_JUDGE = 256,
    OPT_OWN,
    OPT_AMPLIFY,
    OPT_DEVICE,
    OPT_STATS,
    OPT_PHASE,
    OPT_MODULE,
    OPT_ALLOW,
    OPT_ALL,
    OPT_LIMIT,
    OPT_IMPORT,
    OPT_JSON,
    OPT_HTML
};

static const cli_entry own_options[] = {
    {OPT_NO_JUDGE, "no-judge", NULL, NULL,
     "do not judge the calls that differ: a limit on equal inputs alone tells, which an "
     "honest call may pass where its result cancels; what it does not accuse is not told "
     "to be the same"},
    {OPT_OWN, "own", NULL, NULL,
     "judge every call that differs, also those behind the first that makes an error; "
     "takes as long as a check of both"},
    {OPT_DEVICE, "device", "DEVICE", NULL,
     "run the calls again there and judge what it gives (default: judge what the two "
     "runs "
     "recorded, which needs no device)"},
    {OPT_AMPLIFY, "amplify", "N", NULL,
     "does it matter? replay the step of A N times (3 will do) on the CPU, with other "
     "roundings, and tell how far apart these alone bring the loss, gradients, weights"},
    {OPT_STATS, "stats", NULL, NULL,
     "compare by statistics alone, also where data were kept: faster, coarser"},
    {OPT_PHASE, "phase", "PHASE", NULL,
     "only calls of forward, backward or optimizer (two ranks: optimizer)"},
    {OPT_MODULE, "module", NULL, NULL,
     "compare what goes into and comes out of each module, forward and backward "
     "(gradients of inputs and parameters): eager against compiled, where operators do "
     "not correspond; both captured with --level module"},
    {OPT_ALLOW, "allow", "WORD[:PATTERN]", NULL,
     "calls of which nobody can tell do not decide the exit code. unpaired: that have no "
     "partner, and of which nothing was compared: other metrics, steps that one run "
     "alone "
     "has; unjudged: that differ and could not be judged. PATTERN: globs over operators, "
     "comma-separated, ! excludes"},
    {OPT_ALL, "all", NULL, NULL, "list all pairs, not only where a difference begins"},
    {OPT_LIMIT, "limit", "N", "20", "at most N lines of a list"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this module or FILE.py first: it registers custom operators; may be "
     "repeated"},
    {'j', "jobs", "N", NULL,
     "worker processes that run calls again (default: one per core)"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object"},
    {OPT_HTML, "html", "FILE", NULL,
     "write a page: modules by their error, the way to the loss, both sides' numbers"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

static const char *const elsewhere[] = {
    "--live",
    "a run is held against a trace while it goes by ulpscope capture --until-differs "
    "TRACE "
    "-o trace-new -- COMMAND; then ulpscope diff TRACE trace-new",
    NULL};

const cli_page cmd_diff_page = {
    .command = "diff",
    .usage = "A B [OPTIONS]",
    .about =
        "Pairs the calls of two traces, also where one has calls that the other lacks, "
        "and names the first call that makes an error, not the first that shows a "
        "difference. Calls that differ are judged on their own recorded inputs, on both "
        "sides, as ulpscope check judges, in their order and until the first that is "
        "accused on one side:\n"
        " made      equal inputs, and one side is not right\n"
        " erred     the inputs differ already, and one side is not right on its own\n"
        " grew      of modules, which nobody judges: results differ far more than "
        "inputs\n"
        " entered   data or parameters from outside of the traces differ: one line\n"
        " drew      other random numbers were drawn\n"
        " unpaired  an input was written by a call that the other trace lacks\n"
        " beyond    no call makes it, yet it is more than rounding explains (--amplify)\n"
        "Of two ranks of one job (TRACE/rank-0 TRACE/rank-1) the optimizer's calls are "
        "compared: weights, and gradients after their reduction.\n"
        "Where the traces differ before they begin, the cause lies in a step that "
        "neither "
        "holds: ulpscope capture --until-differs A -o B -- COMMAND runs one of the two "
        "again, goes on until something differs from A and keeps that step; then diff A "
        "B.\n",
    .options = options,
    .elsewhere = elsewhere,
    .examples = "  ulpscope diff trace-cpu trace-npu\n"
                "  ulpscope diff trace-old trace-new --amplify 3\n"
                "  ulpscope capture --until-differs A -o B -- python train.py   the live "
                "way\n"
                "  ulpscope diff trace-cpu trace-npu --all\n"
                "  ulpscope diff trace/rank-0 trace/rank-1\n"
                "  ulpscope diff trace-eager trace-compiled --module\n"
                "  ulpscope diff A B --json | jq .first.sentence\n",
    .codes = "0 the same, or all that differs was judged and stands; 1 a call makes an "
             "error, or a difference begins otherwise; 2 not told (calls that were not "
             "compared or judged are not, but for --allow), or something went wrong",
};

typedef struct arguments {
    usc_pairs_options pairs;
    usc_diff_options diff;
    diff_words words;
    const char *imports[CLI_MAX_IMPORTS];
    const char *html;
    bool json, no_judge;
} arguments;

static bool take_phase(arguments *a)
{
    for (int i = 0; i < USC_N_PHASES; i++)
        if (strcmp(optarg, usc_phase_text((usc_phase)i)) == 0) {
            a->diff.phase = optarg;
            return true;
        }
    cli_fail("--phase '%s': forward, backward or optimizer is needed", optarg);
    return false;
}

static bool take_allow(arguments *a)
{
    return cli_allow_one("unpaired", optarg, &a->diff.allow, "unjudged",
                         &a->diff.allow_unjudged);
}

static bool take(arguments *a, int key)
{
    switch (key) {
    case OPT_ALLOW:
        return take_allow(a);
    case OPT_NO_JUDGE:
        a->no_judge = true;
        return true;
    case OPT_OWN:
        a->words.own = true;
        return true;
    case OPT_AMPLIFY:
        if (!cli_number("--amplify", optarg, &a->words.amplified.n_replays)) return false;
        if (a->words.amplified.n_replays > 0 && a->words.amplified.n_replays <= 100)
            return true;
        cli_fail("--amplify '%s': 1 to 100 replays are needed; 3 will do", optarg);
        return false;
    case OPT_DEVICE:
        a->pairs.device = optarg;
        return true;
    case OPT_STATS:
        a->diff.statistics = true;
        return true;
    case OPT_PHASE:
        return take_phase(a);
    case OPT_MODULE:
        a->diff.modules = true;
        return true;
    case OPT_ALL:
        a->words.all = true;
        return true;
    case OPT_LIMIT:
        return cli_number("--limit", optarg, &a->words.limit);
    case OPT_IMPORT:
        return cli_import(a->imports, &a->pairs.n_imports);
    case 'j':
        return cli_jobs(&a->pairs.jobs);
    case OPT_HTML:
        a->html = optarg;
        return cli_writable("--html", optarg);
    case OPT_JSON:
        a->json = true;
        return true;
    default:
        return false;
    }
}

/* Length of what stands before "/rank-N"; 0: the path does not end so. */
static size_t before_rank(const char *path)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] >= '0' && path[n - 1] <= '9')
        n--;
    return n > 6 && strncmp(path + n - 6, "/rank-", 6) == 0 ? n - 6 : 0;
}

static void see_replicas(arguments *a)
{
    const char *const *path = a->words.path;
    const size_t n = before_rank(path[0]);
    if (a->diff.phase != NULL || n == 0 || n != before_rank(path[1]) ||
        strncmp(path[0], path[1], n) != 0)
        return;
    a->diff.phase = usc_phase_text(USC_PHASE_OPTIMIZER);
    a->diff.replicas = true;
    a->words.replicas = "two ranks of one job: the optimizer's calls are compared, since "
                        "each rank has data of its own";
}

/* After a sentence where a command is given in place of a trace. */
static bool is_command(int argc, char **argv)
{
    if (optind < 2 || strcmp(argv[optind - 1], "--") != 0 || optind >= argc) return false;
    const bool trace = cli_is_trace(argv[optind]);
    if (trace && argc - optind == 2 && cli_is_trace(argv[optind + 1])) return false;
    cli_fail("a command is held against a trace while it runs by ulpscope capture "
             "--until-differs %s -o trace-new -- %s ...; then ulpscope diff %s trace-new",
             trace ? argv[optind] : "TRACE",
             optind + trace < argc ? argv[optind + trace] : "COMMAND",
             trace ? argv[optind] : "TRACE");
    return true;
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.words = {.limit = 20}, .pairs = {.causes = USC_RUN_CAUSES}};
    for (int key; (key = cli_next(&cmd_diff_page, argc, argv)) != -1;)
        if (!take(a, key)) return false;
    if (is_command(argc, argv)) return false;
    if (argc - optind != 2) {
        cli_fail("two traces are needed, e.g. ulpscope diff trace-cpu trace-npu; see "
                 "ulpscope diff --help");
        return false;
    }
    a->words.path[0] = argv[optind];
    a->words.path[1] = argv[optind + 1];
    see_replicas(a);
    if (a->diff.modules &&
        (a->pairs.device != NULL || a->words.own || a->words.amplified.n_replays > 0)) {
        cli_fail(
            "--module compares what modules were given and gave; no call is judged, as "
            "%s asks for: leave one of them out",
            a->words.own              ? "--own"
            : a->pairs.device != NULL ? "--device"
                                      : "--amplify");
        return false;
    }
    if (a->diff.modules && a->diff.phase != NULL &&
        strcmp(a->diff.phase, "forward") != 0) {
        cli_fail(
            "--module tells a module's backward by its forward, and ranks are compared "
            "by the optimizer, which is no module: leave out --module, or --phase");
        return false;
    }
    if ((a->pairs.device != NULL || a->words.own) && a->no_judge) {
        cli_fail(
            "%s is about calls that are judged, which --no-judge forbids: leave one of "
            "them out",
            a->words.own ? "--own" : "--device");
        return false;
    }
    a->pairs.imports = a->imports;
    a->pairs.cores = cli_cores();
    a->pairs.threads = cli_threads();
    return true;
}

/* ---- what cannot be told, and what has to be said before ---- */

static bool is_same_trace(usc_trace *const t[2])
{
    const char *a = usc_trace_meta(t[0], "id"), *b = usc_trace_meta(t[1], "id");
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static void warn_of_cuts(usc_trace *const t[2], const arguments *a)
{
    for (int side = 0; side < 2; side++) {
        const char *complete = usc_trace_meta(t[side], "complete");
        const char *lost = usc_trace_meta(t[side], "lost");
        if (complete != NULL && strcmp(complete, "1") == 0) continue;
        (void)fprintf(stderr,
                      "ulpscope diff: %s was cut short%s%s: what it lacks is listed "
                      "without a partner\n",
                      a->words.path[side], lost != NULL ? ": " : "",
                      lost != NULL ? lost : "");
    }
}

/* A few calls pair by chance, whatever the models are. */
static void warn_of_models(const usc_diff_summary *s, bool modules)
{
    const int64_t least = s->n_a < s->n_b ? s->n_a : s->n_b;
    int64_t likely = s->n_how[USC_DIFF_EXACT] + s->n_how[USC_DIFF_GIVEN] +
                     s->n_how[USC_DIFF_DTYPE] + (modules ? s->n_how[USC_DIFF_MODULE] : 0);
    if (likely * 100 >= least * LEAST_LIKELY) return;
    (void)fprintf(stderr,
                  "ulpscope diff: only %lld of %lld calls have a partner of the same "
                  "operator, module and shapes: of two models, what follows says "
                  "nothing%s\n",
                  (long long)likely, (long long)least,
                  modules ? "" : "; eager against compiled is for --module");
}

/* Calls pair by their order of steps: step 1 of A is held against step 0 of B where each
 * has that alone. Other batches and weights are no difference between two devices. */
static void warn_of_steps(const usc_diff *d, usc_trace *const t[2])
{
    int64_t n, step[2] = {0, 0};
    const usc_diff_row *row = usc_diff_rows(d, &n);
    for (int side = 0; side < 2 && n > 0; side++) {
        usc_call call;
        const int64_t sequence = side == 0 ? row->call_a : row->call_b;
        if (usc_trace_read_call(t[side], sequence, &call, NULL) != USC_OK) return;
        step[side] = call.step;
    }
    if (step[0] == step[1]) return;
    (void)fprintf(stderr,
                  "ulpscope diff: step %lld of A is held against step %lld of B: batches "
                  "and weights differ between steps of one run, too; capture the same "
                  "--steps of both\n",
                  (long long)step[0], (long long)step[1]);
}

/* The call at which the runs part, of the side that is accused; else of B. */
static void say_next(const usc_diff *d, const diff_words *w, int64_t first)
{
    int64_t n;
    const usc_diff_row *row = &usc_diff_rows(d, &n)[first];
    const usc_diff_heard *h = usc_diff_heard_of(d, first);
    const bool told = h != NULL && h->verdict[0] != NULL && h->verdict[1] != NULL;
    const bool is_a = row->call_b == 0 || (told && strcmp(h->verdict[1], "pass") == 0 &&
                                           strcmp(h->verdict[0], "pass") != 0);
    cli_next_is("ulpscope repro %s#%lld --device DEVICE", w->path[is_a ? 0 : 1],
                (long long)(is_a ? row->call_a : row->call_b));
}

static int tell(arguments *a, usc_diff *d, usc_trace *const t[2])
{
    usc_error err;
    usc_diff_summary s = usc_diff_sum(d);
    const int64_t least = s.n_a < s.n_b ? s.n_a : s.n_b;
    int code = CLI_SAME;
    if (s.n_paired * 100 < least * LEAST_PAIRED)
        return cli_fail("hardly anything pairs: %lld of %lld and %lld calls; are these "
                        "traces of one model, captured at one level?",
                        (long long)s.n_paired, (long long)s.n_a, (long long)s.n_b);
    if (s.n_kind[USC_DIFF_UNTOLD] == s.n_paired)
        return cli_fail("neither data nor statistics were kept in both traces: nothing "
                        "can be compared; capture them again");
    warn_of_models(&s, a->diff.modules);
    warn_of_steps(d, t);
    a->words.part = a->diff.phase != NULL;
    diff_unjudged unjudged = {0};
    a->words.judged = !a->no_judge && !a->diff.modules;
    a->words.modules = a->diff.modules;
    if (a->words.judged) code = diff_judge(d, &a->words, &a->pairs, &unjudged);
    if (code == CLI_SAME && a->words.amplified.n_replays > 0)
        code = diff_amplify(d, a->words.path[0], a->words.amplified.n_replays,
                            &a->words.amplified);
    usc_status st = USC_OK;
    if (code != CLI_INTERRUPTED)
        st = a->json ? diff_put_json(stdout, d, t, &a->words, &err)
                     : diff_show(d, t, &a->words, unjudged.n_left, &err);
    const bool quiet = a->json || code == CLI_INTERRUPTED || st != USC_OK;
    const usc_status last =
        diff_put_unjudged(&unjudged, quiet, st == USC_OK ? &err : NULL);
    if (code == CLI_INTERRUPTED) return code;
    if (st == USC_OK) st = last;
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (a->html != NULL && diff_put_page(a->html, d, t, &a->words) != CLI_SAME)
        return CLI_TROUBLE;
    s = usc_diff_sum(d);
    if (code == CLI_SAME && !s.same) code = s.first >= 0 ? CLI_DIFFERS : CLI_TROUBLE;
    code = cli_close_output(code);
    if (code == CLI_DIFFERS && !a->json) say_next(d, &a->words, s.first);
    return code;
}

/* Whether most calls of both have a partner: the operators inside of the modules are in
 * both traces, so that they tell what limits do not. */
static bool hold_operators(const usc_diff *calls)
{
    const usc_diff_summary s = usc_diff_sum(calls);
    const int64_t most = s.n_a > s.n_b ? s.n_a : s.n_b;
    return s.n_paired * 100 >= most * LEAST_INSIDE;
}

/* A limit that no module passes says nothing of what is below it, and one that grows may
 * do so rightly. Gives the diff of the calls inside, where these can tell; else `*inside`
 * is NULL. */
static usc_status open_inside(const arguments *a, const usc_diff *d,
                              usc_trace *const t[2], usc_diff **inside, usc_error *err)
{
    int64_t n;
    const usc_diff_summary s = usc_diff_sum(d);
    usc_diff_options calls = a->diff;
    *inside = NULL;
    if (!a->diff.modules || a->no_judge || s.n_kind[USC_DIFF_SAME] == s.n_paired ||
        (s.first >= 0 && usc_diff_rows(d, &n)[s.first].kind != USC_DIFF_GREW))
        return USC_OK;
    calls.modules = false;
    const usc_status st = usc_diff_open(t[0], t[1], &calls, inside, err);
    if (st == USC_E_NOT_FOUND) return USC_OK; /* of modules alone */
    if (st == USC_OK && !hold_operators(*inside)) {
        usc_diff_close(*inside);
        *inside = NULL;
    }
    return st;
}

/* What is told of modules where the calls inside have the last word. */
static usc_status show_modules(arguments *a, usc_diff *d, usc_trace *const t[2],
                               usc_error *err)
{
    a->words.modules = a->words.inside = true;
    const usc_status st = a->json ? USC_OK : diff_show(d, t, &a->words, 0, err);
    a->diff.modules = a->words.inside = false;
    return st;
}

static int compare(arguments *a, usc_trace *const t[2])
{
    usc_diff *d = NULL, *inside = NULL;
    usc_error err;
    if (is_same_trace(t))
        return cli_fail("%s and %s are one trace: two are needed, of two runs",
                        a->words.path[0], a->words.path[1]);
    warn_of_cuts(t, a);
    cli_progress reads;
    cli_progress_read(&reads, "diff");
    usc_status st = usc_diff_open(t[0], t[1], &a->diff, &d, &err);
    if (st == USC_OK) st = open_inside(a, d, t, &inside, &err);
    cli_progress_end(&reads);
    if (st == USC_OK && inside != NULL) st = show_modules(a, d, t, &err);
    const int code =
        st != USC_OK ? cli_fail("%s", err.text) : tell(a, inside != NULL ? inside : d, t);
    usc_diff_close(inside);
    usc_diff_close(d);
    return code;
}

int cmd_diff(int argc, char **argv)
{
    arguments a;
    usc_trace *t[2] = {NULL, NULL};
    usc_error err;
    usc_status st = USC_OK;
    cli_begin("diff");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    for (int side = 0; side < 2 && st == USC_OK; side++)
        st = usc_trace_open(a.words.path[side], NULL, &t[side], &err);
    const int code =
        st == USC_OK ? compare(&a, t) : cli_fail("%s%s", err.text, usc_status_advice(st));
    for (int side = 0; side < 2; side++)
        usc_trace_close(t[side]);
    return code;
}
