// SPDX-License-Identifier: Apache-2.0
// ulpscope watch: recorded statistics of a run through detectors of silent corruption,
// and what those would see of a flipped bit.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/watch_log.h>

enum {
    OPT_DETECTOR = 256,
    OPT_CONFIG,
    OPT_KEY,
    OPT_HTML,
    OPT_JSON,
    OPT_EXPLAIN,
    OPT_DTYPE
};

static const cli_entry own_options[] = {
    {OPT_DETECTOR, "detector", "NAME[,NAME...]", "those of mode sound",
     "temporal, ranks, replicas, weights, collectives, matmuls, dead, ratio, moments, "
     "audit; of other tools asd, asd-v2, megatron, turbulence, zscore, nan"},
    {OPT_CONFIG, "config", "K:V[,K:V...]", NULL,
     "keys of NPU_ASD_CONFIG and of docs/watch.md, e.g. mode:asd,strikes_num:2"},
    {OPT_KEY, "key", "NAME", "grad_norm",
     "column, JSON key or tag of the gradient norms, where LOG is no log of a watch"},
    {OPT_HTML, "html", "FILE", NULL, "write a page with pictures"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object with all events"},
    {OPT_EXPLAIN, "explain", NULL, NULL,
     "which flipped bits of a gradient each detector would see, on the levels of LOG"},
    {OPT_DTYPE, "dtype", "DTYPE", "that of LOG, else bfloat16",
     "with --explain: the gradients' dtype"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_watch_page = {
    .command = "watch",
    .usage = "LOG [OPTIONS] | --explain [LOG]",
    .about =
        "Replays the statistics that a watched run has recorded (docs/watch.md) through "
        "detectors of silent corruption: what was abnormal, at which step, in which "
        "tensor, on which rank.\n"
        "\n"
        "LOG is a log of a watch, or gradient norms as CSV, JSON lines or an event file "
        "of TensorBoard; of these the level alone can be judged.\n",
    .options = options,
    .examples = "  ulpscope watch run.watch.jsonl --html watch.html\n"
                "  ulpscope watch run.watch.jsonl --detector temporal,asd,megatron\n"
                "  ulpscope watch run.watch.jsonl --config mode:asd,enable:true\n"
                "  ulpscope watch metrics.csv --key train/grad_norm\n"
                "  ulpscope watch --explain --dtype bfloat16\n",
    .codes = "0 nothing abnormal, 1 something was, 2 something went wrong",
};

typedef struct arguments {
    usc_watch_config config;
    const char *log, *key, *html;
    usc_dtype dtype;
    uint32_t detectors; /* 0: not said */
    bool json, explain;
} arguments;

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
        return usc_watch_config_parse(&a->config, optarg, &err) == USC_OK ||
               cli_fail("--config: %s", err.text) == 0;
    case OPT_KEY:
        a->key = optarg;
        return true;
    case OPT_HTML:
        a->html = optarg;
        return true;
    case OPT_JSON:
        a->json = true;
        return true;
    case OPT_EXPLAIN:
        a->explain = true;
        return true;
    case OPT_DTYPE:
        return take_dtype(a);
    default:
        return false;
    }
}

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){0};
    usc_watch_config_init(&a->config, USC_WATCH_SOUND);
    for (int key; (key = cli_next(&cmd_watch_page, argc, argv)) != -1;)
        if (!take(a, key)) return false;
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
static const usc_watch_level usual_levels[] = {{1e-3, 0.43, 1 << 20},
                                               {1e-4, 0.43, 1 << 20},
                                               {1e-5, 0.43, 1 << 22},
                                               {1e-4, 0.43, 1024}};

/* The detectors that look at gradients before the reduction. */
static const uint32_t of_gradients =
    1u << USC_WATCH_BY_TEMPORAL | 1u << USC_WATCH_BY_RANKS | 1u << USC_WATCH_BY_ASD |
    1u << USC_WATCH_BY_ASD2 | 1u << USC_WATCH_BY_MEGATRON |
    1u << USC_WATCH_BY_TURBULENCE | 1u << USC_WATCH_BY_ZSCORE | 1u << USC_WATCH_BY_NAN;

static void print_seen_json(const usc_watch_seen *s)
{
    printf("{\"detector\": \"%s\", \"mean\": %.4g, \"clean\": %.4g, \"share\": [",
           usc_watch_detector_text(s->detector), s->mean, s->clean);
    for (int b = 0; b < s->n_bits; b++)
        printf("%s%.4g", b > 0 ? ", " : "", s->share[b]);
    puts("]}");
}

/* From the sign down; a line of 16 bits. */
static void print_seen(const usc_watch_seen *seen, size_t n)
{
    for (int top = seen[0].n_bits - 1; top >= 0; top -= 16) {
        printf("  %-12s", "bit");
        for (int b = top; b >= 0 && b > top - 16; b--)
            printf("%4d", b);
        puts(top < 16 ? "  mean  clean" : "");
        for (size_t i = 0; i < n; i++) {
            printf("  %-12s", usc_watch_detector_text(seen[i].detector));
            for (int b = top; b >= 0 && b > top - 16; b--)
                printf("%4.0f", 100 * seen[i].share[b]);
            if (top < 16) printf("%6.1f%7.1f", 100 * seen[i].mean, 100 * seen[i].clean);
            puts("");
        }
        if (top >= 16) puts("");
    }
}

static int explain(const arguments *a)
{
    usc_watch_level levels[MOST_LEVELS];
    size_t n_levels = sizeof usual_levels / sizeof usual_levels[0], n = 0;
    usc_dtype dtype = USC_BF16;
    usc_watch_seen seen[USC_N_WATCH_DETECTORS];
    usc_watch_config config = a->config;
    usc_error err;
    memcpy(levels, usual_levels, sizeof usual_levels);
    if (a->log != NULL && usc_watch_log_levels(a->log, a->key, levels, MOST_LEVELS,
                                               &n_levels, &dtype, &err) != USC_OK)
        return cli_fail("%s", err.text);
    if (a->dtype != USC_DTYPE_NONE) dtype = a->dtype;
    config.detectors = a->detectors != 0 ? a->detectors : of_gradients;
    if (usc_watch_explain(levels, n_levels, dtype, &config, seen, &n, &err) != USC_OK)
        return cli_fail("%s", err.text);
    if (!a->json)
        printf(
            "Per cent of flipped bits in %s gradients that are seen, one element of one "
            "of four ranks, %d flips a bit, on %s:\n\n",
            usc_dtype_info_of(dtype)->name, USC_WATCH_TRIALS,
            a->log != NULL ? a->log : "gradients of 1e-5 to 1e-3");
    for (size_t i = 0; a->json && i < n; i++)
        print_seen_json(&seen[i]);
    if (!a->json) {
        print_seen(seen, n);
        puts("\nclean: alarms where nothing was flipped. What is not seen lies within "
             "what "
             "gradients\ndo by themselves; checks of matmuls, copies and weights see "
             "flips "
             "that no statistic\nof a gradient does: docs/watch.md.");
    }
    return cli_close_output(CLI_SAME);
}

/* ---- a replay ---- */

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
    if (usc_watch_replay_run(a->log, a->key, &a->config, &r, &err) != USC_OK)
        return cli_fail("%s", err.text);
    int code = r->n_events > 0 || r->n_lost > 0 ? CLI_DIFFERS : CLI_SAME;
    const usc_status st = a->json ? usc_watch_replay_json(r, stdout, &err)
                                  : usc_watch_replay_table(r, cli_width(), stdout, &err);
    if (st != USC_OK)
        code = cli_fail("%s", err.text);
    else if (a->html != NULL && !write_page(a, r))
        code = CLI_TROUBLE;
    usc_watch_replay_free(r);
    return code == CLI_TROUBLE ? code : cli_close_output(code);
}

int cmd_watch(int argc, char **argv)
{
    arguments a;
    cli_begin("watch");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    return a.explain ? explain(&a) : replay(&a);
}
