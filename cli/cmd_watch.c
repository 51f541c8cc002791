// SPDX-License-Identifier: Apache-2.0
// ulpscope watch: recorded statistics of a run through detectors of silent corruption,
// and what those would see of a flipped bit.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/x/watch_log.h>

#include "common/progress.h"
#include "common/scratch.h"
#include "run/run.h"

enum {
    OPT_DETECTOR = 256,
    OPT_CONFIG,
    OPT_KEY,
    OPT_HTML,
    OPT_JSON,
    OPT_EXPLAIN,
    OPT_DTYPE,
    OPT_STEPS
};

static const cli_entry own_options[] = {
    {OPT_DETECTOR, "detector", "NAME[,NAME...]", "those of mode sound",
     "temporal, ranks, replicas, weights, collectives, matmuls, dead, ratio, moments, "
     "audit; of other tools asd, asd-v2, megatron, turbulence, zscore, nan"},
    {OPT_CONFIG, "config", "K:V[,K:V...]", NULL,
     "keys of NPU_ASD_CONFIG and of docs/reference/watch-reference.md, e.g. "
     "mode:asd,strikes_num:2"},
    {OPT_KEY, "key", "NAME", "grad_norm, else the loss",
     "column, JSON key, tag or word of a log where LOG is no log of a watch"},
    {OPT_HTML, "html", "FILE", NULL, "write a page with pictures"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object with all events"},
    {OPT_EXPLAIN, "explain", NULL, NULL,
     "which flipped bits of a gradient each detector would see, on the levels of LOG, or "
     "of the gradients that COMMAND has"},
    {OPT_DTYPE, "dtype", "DTYPE", "that of LOG, else bfloat16",
     "with --explain: the gradients' dtype"},
    {OPT_STEPS, "steps", "N", "50",
     "with --explain -- COMMAND: it is ended after so many steps of its optimizer"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_watch_page = {
    .command = "watch",
    .usage = "LOG [OPTIONS] | --explain [LOG | -- COMMAND [ARGS]...]",
    .about =
        "Replays the statistics that a watched run has recorded "
        "(docs/background/watch.md) through "
        "detectors of silent corruption: what was abnormal, at which step, in which "
        "tensor, on which rank.\n"
        "\n"
        "LOG is a log of a watch (ulpscope run --watch --watch-log LOG), or gradient "
        "norms, for want of them losses, in whatever ulpscope loss reads: a trainer's "
        "log, CSV, JSON lines, event files of TensorBoard; of these the level alone can "
        "be judged. What could not is said "
        "at the "
        "end. COMMAND (python "
        "train.py, torchrun) is run unmodified, watched as by ulpscope run --watch.\n",
    .options = options,
    .examples = "  ulpscope watch run.watch.jsonl --html watch.html\n"
                "  ulpscope watch run.watch.jsonl --detector temporal,asd,megatron\n"
                "  ulpscope watch run.watch.jsonl --config mode:asd,enable:true\n"
                "  ulpscope watch metrics.csv --key train/grad_norm\n"
                "  ulpscope watch --explain -- python train.py\n"
                "  ulpscope watch --explain --dtype bfloat16\n",
    .codes = "0 nothing abnormal in what was watched, 1 something was, 2 nothing could "
             "be judged, or "
             "something went wrong",
};

typedef struct arguments {
    usc_watch_config config;
    const char *log, *key, *html, *given; /* given: the configuration as it was typed */
    char **command;                       /* ends with NULL; NULL: none */
    int64_t steps;
    usc_dtype dtype;
    uint32_t detectors; /* 0: not said */
    bool json, explain;
} arguments;

enum { LEAST_STEPS = 10 };

static bool take_dtype(arguments *a)
{
    a->dtype = usc_dtype_by_name(optarg);
    if (usc_dtype_info_of(a->dtype)->kind == USC_KIND_FLOAT) return true;
    return cli_fail("--dtype '%s': a float is needed, e.g. bfloat16", optarg) == 0;
}

static bool take(arguments *a, int key)
{
    usc_error err;
    switch (key) {
    case OPT_DETECTOR:
        return usc_watch_detectors_parse(optarg, &a->detectors, &err) == USC_OK ||
               cli_fail("--detector: %s", err.text) == 0;
    case OPT_CONFIG:
        a->given = optarg;
        if (usc_watch_config_parse(&a->config, optarg, &err) != USC_OK)
            return cli_fail("--config: %s", err.text) == 0;
        if (a->config.remark[0] != '\0')
            (void)fprintf(stderr, "ulpscope watch: --config: %s\n", a->config.remark);
        return true;
    case OPT_KEY:
        a->key = optarg;
        return true;
    case OPT_HTML:
        a->html = optarg;
        return cli_writable("--html", optarg);
    case OPT_JSON:
        a->json = true;
        return true;
    case OPT_EXPLAIN:
        a->explain = true;
        return true;
    case OPT_DTYPE:
        return take_dtype(a);
    case OPT_STEPS:
        return cli_number("--steps", optarg, &a->steps) &&
               (a->steps >= LEAST_STEPS ||
                cli_fail("--steps: a level and how it moves take %d steps or more",
                         LEAST_STEPS) == 0);
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.steps = 50};
    usc_watch_config_init(&a->config, USC_WATCH_SOUND);
    for (int key; (key = cli_next(&cmd_watch_page, argc, argv)) != -1;)
        if (!take(a, key)) return false;
    if (a->explain && optind < argc && strcmp(argv[optind - 1], "--") == 0) {
        a->command = argv + optind;
        optind = argc;
    }
    if (optind < argc) a->log = argv[optind++];
    if (optind < argc)
        return cli_fail("one log is read, not '%s', too", argv[optind]) == 0;
    if (a->log == NULL && !a->explain)
        return cli_fail("a log is needed, e.g. ulpscope watch run.watch.jsonl; see "
                        "ulpscope watch --help") == 0;
    if (a->detectors != 0) a->config.detectors = a->detectors;
    a->config.enable = true; /* who types this wants it */
    return true;
}

/* ---- what would be seen ---- */

enum { MOST_LEVELS = 8 };

/* Gradients as a model of 100 million parameters has them. */
static const usc_watch_level usual_levels[] = {
    {.rms = 1e-3, .wander = 0.43, .numel = 1 << 20},
    {.rms = 1e-4, .wander = 0.43, .numel = 1 << 20},
    {.rms = 1e-5, .wander = 0.43, .numel = 1 << 22},
    {.rms = 1e-4, .wander = 0.43, .numel = 1024}};

/* The detectors that look at gradients before the reduction. */
static const uint32_t of_gradients =
    1u << USC_WATCH_BY_TEMPORAL | 1u << USC_WATCH_BY_RANKS | 1u << USC_WATCH_BY_ASD |
    1u << USC_WATCH_BY_ASD2 | 1u << USC_WATCH_BY_MEGATRON |
    1u << USC_WATCH_BY_TURBULENCE | 1u << USC_WATCH_BY_ZSCORE | 1u << USC_WATCH_BY_NAN;

static void print_shares(const double *share, int n)
{
    for (int b = 0; b < n; b++)
        printf("%s%.4g", b > 0 ? ", " : "", share[b]);
    puts("]}");
}

static void print_seen_json(const usc_watch_seen *s)
{
    printf("{\"detector\": \"%s\", \"mean\": %.4g, \"clean\": %.4g, \"share\": [",
           usc_watch_detector_text(s->detector), s->mean, s->clean);
    print_shares(s->share, s->n_bits);
}

/* The head of a table from bit `top` down; a line of 16 bits. */
static void print_bits(const char *what, int width, int top)
{
    printf("  %-*s", width, what);
    for (int b = top; b >= 0 && b > top - 16; b--)
        printf("%4d", b);
}

static void print_line(const char *name, int width, const double *share, int top)
{
    printf("  %-*.*s", width, width, name);
    for (int b = top; b >= 0 && b > top - 16; b--)
        printf("%4.0f", 100 * share[b]);
}

/* From the sign down. */
static void print_seen(const usc_watch_seen *seen, size_t n)
{
    for (int top = seen[0].n_bits - 1; top >= 0; top -= 16) {
        print_bits("bit", 12, top);
        puts(top < 16 ? "  mean  clean" : "");
        for (size_t i = 0; i < n; i++) {
            print_line(usc_watch_detector_text(seen[i].detector), 12, seen[i].share, top);
            if (top < 16) printf("%6.1f%7.1f", 100 * seen[i].mean, 100 * seen[i].clean);
            puts("");
        }
        if (top >= 16) puts("");
    }
}

typedef struct explained {
    usc_watch_level levels[MOST_LEVELS];
    size_t n_levels, n_seen;
    usc_dtype dtype;
    usc_watch_config config;
    usc_watch_seen seen[USC_N_WATCH_DETECTORS];
    double best[MOST_LEVELS][64]; /* of each tensor, by bit */
} explained;

/* Of each tensor the best of our detectors: its flips alone. */
static usc_status explain_tensors(explained *e, usc_error *err)
{
    usc_watch_seen seen[USC_N_WATCH_DETECTORS];
    usc_watch_config config = e->config;
    usc_status st = USC_OK;
    config.detectors &= 1u << USC_WATCH_BY_TEMPORAL | 1u << USC_WATCH_BY_RANKS;
    for (size_t i = 0; st == USC_OK && i < e->n_levels; i++) {
        size_t n = 0;
        for (size_t k = 0; k < e->n_levels; k++)
            e->levels[k].spared = k != i;
        st = usc_watch_explain(e->levels, e->n_levels, e->dtype, &config, seen, &n, err);
        for (size_t d = 0; d < n; d++)
            for (int b = 0; b < seen[d].n_bits; b++)
                if (seen[d].share[b] > e->best[i][b]) e->best[i][b] = seen[d].share[b];
    }
    return st;
}

static void print_tensors(const explained *e)
{
    const int n_bits = e->seen[0].n_bits;
    puts("\nBy tensor, the better of temporal and ranks (rms, then from the sign "
         "down):\n");
    for (int top = n_bits - 1; top >= 0; top -= 16) {
        print_bits("bit", 33, top);
        puts("");
        for (size_t i = 0; i < e->n_levels; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%-24.24s %8.2g", e->levels[i].name,
                           e->levels[i].rms);
            print_line(name, 33, e->best[i], top);
            puts("");
        }
        if (top >= 16) puts("");
    }
}

/* The bits whose flips are seen this often at the least, of the best detector: "30, 27 to
 * 25"; whether there is one. */
static bool put_bits(const double *best, int n_bits, double least, double below)
{
    bool any = false;
    for (int b = n_bits - 1; b >= 0; b--) {
        const int first = b;
        if (best[b] < least || best[b] >= below) continue;
        while (b > 0 && best[b - 1] >= least && best[b - 1] < below)
            b--;
        printf(first == b ? "%s%d" : "%s%d to %d", any ? ", " : "", first, b);
        any = true;
    }
    return any;
}

static bool is_ours(usc_watch_detector d)
{
    return d == USC_WATCH_BY_TEMPORAL || d == USC_WATCH_BY_RANKS;
}

/* What the table comes to, of all tensors together: the best of our detectors, which
 * alarm for flips alone; of those that were asked for where ours are not among them. */
static void print_sentence(const explained *e)
{
    const int n_bits = e->seen[0].n_bits;
    double best[64] = {0};
    bool ours = false;
    for (size_t i = 0; i < e->n_seen; i++)
        ours = ours || is_ours(e->seen[i].detector);
    for (size_t i = 0; i < e->n_seen; i++)
        for (int b = 0; b < n_bits; b++)
            if ((!ours || is_ours(e->seen[i].detector)) && e->seen[i].share[b] > best[b])
                best[b] = e->seen[i].share[b];
    printf("Of the bits of a gradient's element (%d is the sign) a flip is seen by %s 19 "
           "times of 20: ",
           n_bits - 1, ours ? "temporal or ranks" : "these");
    if (!put_bits(best, n_bits, 0.95, 2)) fputs("none", stdout);
    fputs("; now and then: ", stdout);
    if (!put_bits(best, n_bits, 0.01, 0.95)) fputs("none", stdout);
    fputs("; hardly ever: ", stdout);
    if (!put_bits(best, n_bits, -1, 0.01)) fputs("none", stdout);
    puts(".\n");
}

static void print_explained(const arguments *a, const explained *e, const char *on)
{
    const bool by_tensor = e->levels[0].name[0] != '\0';
    for (size_t i = 0; a->json && i < e->n_seen; i++)
        print_seen_json(&e->seen[i]);
    for (size_t i = 0; a->json && by_tensor && i < e->n_levels; i++) {
        const usc_sink out = usc_sink_stream(stdout);
        fputs("{\"tensor\": ", stdout);
        (void)!usc_sink_json(&out, e->levels[i].name, NULL);
        printf(", \"rms\": %.4g, \"share\": [", e->levels[i].rms);
        print_shares(e->best[i], e->seen[0].n_bits);
    }
    if (a->json) return;
    print_sentence(e);
    printf("Per cent of flipped bits in %s gradients that are seen, one element of one "
           "rank of %d, %d flips a bit, on %s:\n\n",
           usc_dtype_info_of(e->dtype)->name, (int)e->config.world, USC_WATCH_TRIALS, on);
    print_seen(e->seen, e->n_seen);
    if (by_tensor) print_tensors(e);
    puts("\nclean: alarms where nothing was flipped. What is not seen lies within what "
         "gradients\ndo by themselves; checks of matmuls, copies and weights see flips "
         "that no statistic\nof a gradient does: docs/background/watch.md.");
}

/* `on`: what the levels of `log` are of, in words. */
static int explain(const arguments *a, const char *log, const char *on)
{
    explained e = {.n_levels = sizeof usual_levels / sizeof usual_levels[0],
                   .dtype = USC_BF16,
                   .config = a->config};
    usc_error err;
    e.config.world = 4;
    memcpy(e.levels, usual_levels, sizeof usual_levels);
    if (log != NULL &&
        usc_watch_log_levels(log, a->key, e.levels, MOST_LEVELS, &e.n_levels, &e.dtype,
                             &e.config.world, &err) != USC_OK)
        return cli_fail("%s", err.text);
    if (e.config.world > 4) e.config.world = 4;
    if (a->dtype != USC_DTYPE_NONE) e.dtype = a->dtype;
    e.config.detectors = a->detectors != 0 ? a->detectors : of_gradients;
    if (usc_watch_explain(e.levels, e.n_levels, e.dtype, &e.config, e.seen, &e.n_seen,
                          &err) != USC_OK)
        return cli_fail("%s", err.text);
    if (e.levels[0].name[0] != '\0' && explain_tensors(&e, &err) != USC_OK)
        return cli_fail("%s", err.text);
    print_explained(a, &e, on);
    return cli_close_output(CLI_SAME);
}

/* ---- a command, watched for that ---- */

/* Has the command run and its rows written to `log`; another exit code than CLI_SAME after
 * a sentence: of a signal its own. What it prints goes to stderr: what is explained alone
 * is the result. */
static int watch_command(const arguments *a, const char *log)
{
    char config[512];
    (void)snprintf(config, sizeof config, "%.400s%sstop_after:%lld",
                   a->given != NULL ? a->given : "", a->given != NULL ? "," : "",
                   (long long)a->steps);
    const int out = dup(STDOUT_FILENO);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    const int code = run_watched(config, log, a->command);
    (void)dup2(out, STDOUT_FILENO);
    (void)close(out);
    if (code == CLI_SAME || code == CLI_DIFFERS) return CLI_SAME;
    if (code != CLI_TROUBLE)
        (void)cli_fail("%s ended with %d; nothing is explained", a->command[0], code);
    return code > 128 ? code : CLI_TROUBLE;
}

static int explain_command(const arguments *a)
{
    char folder[PATH_MAX], log[PATH_MAX + 32];
    if (!cli_scratch_make("ulpscope-explain", folder, sizeof folder)) return CLI_TROUBLE;
    (void)snprintf(log, sizeof log, "%s/watch.jsonl", folder);
    int code = watch_command(a, log);
    if (code == CLI_SAME) code = explain(a, log, "those of the command");
    cli_scratch_remove(folder);
    return code;
}

/* ---- a replay ---- */

/* Where there is no log, what makes one. */
static int no_log(const arguments *a, const usc_error *err)
{
    if (err->status != USC_E_NOT_FOUND) return cli_fail("%s", err->text);
    return cli_fail("%s; ulpscope run --watch --watch-log %s -- COMMAND writes one",
                    err->text, a->log);
}

static bool write_page(const arguments *a, const usc_watch_replay *r)
{
    usc_error err;
    FILE *to = fopen(a->html, "w");
    if (to == NULL) return cli_fail("%s: %s", a->html, strerror(errno)) == 0;
    usc_status st = usc_watch_replay_html(r, to, &err);
    if (fclose(to) != 0 && st == USC_OK)
        st = usc_error_set(&err, USC_E_IO, -1, "cannot write: %s", strerror(errno));
    return st == USC_OK || cli_fail("%s: %s", a->html, err.text) == 0;
}

static int replay(const arguments *a)
{
    usc_error err;
    usc_watch_replay *r;
    cli_progress reads;
    cli_progress_read(&reads, "watch");
    const usc_status run = usc_watch_replay_run(a->log, a->key, &a->config, &r, &err);
    cli_progress_end(&reads);
    if (run != USC_OK) return no_log(a, &err);
    int code = r->n_events > 0 || r->n_lost > 0 ? CLI_DIFFERS
               : r->judged                      ? CLI_SAME
                                                : CLI_TROUBLE;
    const usc_status st = a->json ? usc_watch_replay_json(r, stdout, &err)
                                  : usc_watch_replay_table(r, cli_width(), stdout, &err);
    if (st != USC_OK)
        code = cli_fail("%s", err.text);
    else if (a->html != NULL && !write_page(a, r))
        code = CLI_TROUBLE;
    usc_watch_replay_free(r);
    const int closed = cli_close_output(code);
    return code == CLI_TROUBLE ? code : closed;
}

int cmd_watch(int argc, char **argv)
{
    arguments a;
    cli_begin("watch");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    if (a.command != NULL) return explain_command(&a);
    const char *on = a.log != NULL ? a.log : "gradients of 1e-5 to 1e-3";
    return a.explain ? explain(&a, a.log, on) : replay(&a);
}
