// SPDX-License-Identifier: Apache-2.0
// ulpscope coverage: which operators of a run a device has, and which to write next.
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/coverage.h>

#include "common/hooks.h"
#include "common/html.h"
#include "show/show.h"

extern const char usc_page_coverage_page_html[], usc_page_coverage_page_js[];

enum {
    OPT_DEVICE = 256,
    OPT_OPS,
    OPT_SHARE,
    OPT_ALL,
    OPT_FRESH,
    OPT_IMPORT,
    OPT_FAULTS,
    OPT_JSON,
    OPT_HTML
};

static const cli_entry own_options[] = {
    {OPT_DEVICE, "device", "DEVICE", NULL, "the device to ask, e.g. npu:0 or sim:0"},
    {OPT_OPS, "ops", "PATTERN", NULL,
     "only these operators: globs, comma-separated, ! excludes"},
    {OPT_SHARE, "share", "PERCENT", "90",
     "how much of the step is to run natively with what is written next"},
    {OPT_ALL, "all", NULL, NULL, "also list what runs natively"},
    {OPT_FRESH, "fresh", NULL, NULL,
     "ask the device again also for what is known of this version of it"},
    {OPT_IMPORT, "import", "MODULE", NULL,
     "import this module or FILE.py first: it registers custom operators; may be "
     "repeated"},
    {OPT_FAULTS, "faults", "SPEC", NULL,
     "plant faults in the simulated device: mm:lacking, softmax:cpu_fallback"},
    {'j', "jobs", "N", NULL, "worker processes (default: one)"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object, with every operator and dtype"},
    {OPT_HTML, "html", "FILE", NULL,
     "write a page: operators by dtypes, what to write next"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_coverage_page = {
    .command = "coverage",
    .usage = "TRACE --device DEVICE [OPTIONS]",
    .about =
        "Tries one call of each signature of a trace on DEVICE and tells which operators "
        "run there. Nothing is judged, that is ulpscope check. Statistics suffice "
        "(capture --data stats).\n"
        " native    by a kernel of the device\n"
        " fallback  on the CPU, with copies there and back\n"
        " refused   the device has the operator, not for this dtype or layout\n"
        " lacking   the device has no such operator\n"
        " died      the process that tried it died or hung\n"
        " untold    the call could not be made again\n"
        "A device falls back where the dispatcher hands the operator to the CPU or a "
        "warning says so. Shares of time are those of this machine's CPU. What is known "
        "of a "
        "device is kept in $ULPSCOPE_CACHE for as long as torch, driver and device stay "
        "what they are.\n",
    .options = options,
    .examples =
        "  ulpscope coverage ulpscope-trace --device npu:0\n"
        "  ulpscope coverage ulpscope-trace --device npu:0 --share 99 --json\n"
        "  ulpscope coverage ulpscope-trace --device npu:0 --html coverage.html\n",
    .codes = "0 all run natively, 1 some do not, 2 something went wrong",
};

typedef struct arguments {
    usc_coverage_options coverage;
    const char *imports[CLI_MAX_IMPORTS];
    double share;
    const char *html;
    bool all, json;
} arguments;

static bool take(arguments *a, int key)
{
    switch (key) {
    case OPT_DEVICE:
        a->coverage.device = optarg;
        return true;
    case OPT_OPS:
        a->coverage.ops = optarg;
        return true;
    case OPT_SHARE:
        if (cli_real(optarg, &a->share) && a->share >= 0 && a->share <= 100) return true;
        cli_fail("--share '%s': percent are needed, from 0 to 100", optarg);
        return false;
    case OPT_ALL:
        a->all = true;
        return true;
    case OPT_FRESH:
        a->coverage.fresh = true;
        return true;
    case OPT_IMPORT:
        return cli_import(a->imports, &a->coverage.n_imports);
    case OPT_FAULTS:
        a->coverage.faults = optarg;
        return true;
    case 'j':
        return cli_jobs(&a->coverage.jobs);
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

static bool parse(int argc, char **argv, arguments *a)
{
    *a = (arguments){.share = 90, .coverage = {.cores = cli_cores()}};
    for (int key; (key = cli_next(&cmd_coverage_page, argc, argv)) != -1;)
        if (!take(a, key)) return false;
    const char *why = NULL;
    if (argc - optind != 1)
        why = "one trace is needed, e.g. ulpscope coverage ulpscope-trace --device npu:0";
    else if (a->coverage.device == NULL)
        why = "--device is needed: whom to ask, e.g. --device npu:0";
    if (why != NULL) {
        cli_fail("%s; see ulpscope coverage --help", why);
        return false;
    }
    a->coverage.trace = argv[optind];
    a->coverage.imports = a->imports;
    return cli_faults(a->coverage.device, a->coverage.faults, &a->coverage.faults);
}

/* ---- what is printed ---- */

typedef struct told {
    const usc_coverage *found;
    const char **next;
    int64_t n_next;
} told;

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void put_row(const told *t, const usc_covered *r)
{
    (void)printf("%-8s  %7" PRId64 " %s  %5.1f %%  ", usc_way_text(r->way), r->n_calls,
                 r->n_calls == 1 ? "call " : "calls",
                 percent(r->seconds, t->found->seconds));
    show_plain(r->op);
    (void)printf("%s%s%s", r->dtypes[0] != '\0' ? " (" : "", r->dtypes,
                 r->dtypes[0] != '\0' ? ")" : "");
    if (r->why[0] != '\0') {
        fputs(": ", stdout);
        show_plain(r->why);
    }
    fputs("\n", stdout);
}

static void put_sum(const told *t, const char *device)
{
    int64_t calls[USC_N_WAYS] = {0};
    double seconds = 0;
    for (int64_t i = 0; i < t->found->n; i++) {
        const usc_covered *r = &t->found->row[i];
        calls[r->way] += r->n_calls;
        if (r->way == USC_WAY_NATIVE) seconds += r->seconds;
    }
    (void)printf("%s runs %" PRId64 " of %" PRId64
                 " calls natively, with %.1f %% of the CPU time",
                 device, calls[USC_WAY_NATIVE], t->found->n_calls,
                 percent(seconds, t->found->seconds));
    for (int way = USC_WAY_FALLBACK; way < USC_N_WAYS; way++)
        if (calls[way] > 0)
            (void)printf("; %s: %" PRId64, usc_way_text((usc_way)way), calls[way]);
    fputs("\n", stdout);
    if (t->found->n_within > 0)
        (void)printf("%" PRId64 " were captured: %" PRId64 " of them %s made of others, "
                     "which were tried\n",
                     t->found->n_calls + t->found->n_within, t->found->n_within,
                     t->found->n_within == 1 ? "is" : "are");
}

static void put_text(const told *t, const arguments *a)
{
    for (int way = USC_N_WAYS - 1; way >= (a->all ? 0 : 1); way--)
        for (int64_t i = 0; i < t->found->n; i++)
            if ((int)t->found->row[i].way == way) put_row(t, &t->found->row[i]);
    put_sum(t, a->coverage.device);
    if (t->n_next == 0) return;
    (void)printf("for %g %% of the step write next:", a->share);
    for (int64_t i = 0; i < t->n_next; i++) {
        fputs(i > 0 ? ", " : " ", stdout);
        show_plain(t->next[i]);
    }
    fputs("\n", stdout);
}

static void put_json(FILE *to, const told *t, const arguments *a)
{
    fputs("{\"device\": ", to);
    cli_put_text(to, a->coverage.device);
    (void)fprintf(
        to, ", \"calls\": %" PRId64 ", \"cpu_seconds\": %.9g, \"share\": %g, \"next\": [",
        t->found->n_calls, t->found->seconds, a->share / 100);
    for (int64_t i = 0; i < t->n_next; i++) {
        if (i > 0) fputs(", ", to);
        cli_put_text(to, t->next[i]);
    }
    fputs("], \"operators\": [", to);
    for (int64_t i = 0; i < t->found->n; i++) {
        const usc_covered *r = &t->found->row[i];
        (void)fprintf(to, "%s{\"calls\": %" PRId64 ", \"cpu_seconds\": %.9g",
                      i > 0 ? ", " : "", r->n_calls, r->seconds);
        cli_put_member(to, "op", r->op);
        cli_put_member(to, "dtypes", r->dtypes);
        cli_put_member(to, "way", usc_way_text(r->way));
        cli_put_member(to, "why", r->why);
        fputs("}", to);
    }
    fputs("]}\n", to);
}

static int put_page(const told *t, const arguments *a)
{
    FILE *json = tmpfile();
    if (json == NULL) return cli_fail("no temporary file can be made");
    put_json(json, t, a);
    const int code =
        html_write(a->html, usc_page_coverage_page_html, json, usc_page_coverage_page_js);
    (void)fclose(json);
    return code;
}

static int tell(const arguments *a, const usc_coverage *found)
{
    told t = {.found = found};
    usc_error err;
    if (usc_coverage_next(found, a->share / 100, &t.next, &t.n_next, &err) != USC_OK)
        return cli_fail("%s", err.text);
    if (a->json)
        put_json(stdout, &t, a);
    else
        put_text(&t, a);
    const int page = a->html != NULL ? put_page(&t, a) : CLI_SAME;
    free(t.next);
    if (page != CLI_SAME) return page;
    bool worked = false, all = true;
    for (int64_t i = 0; i < found->n; i++) {
        worked |= found->row[i].way != USC_WAY_UNTOLD;
        all &= found->row[i].way == USC_WAY_NATIVE || found->row[i].way == USC_WAY_UNTOLD;
    }
    return cli_close_output(!worked ? CLI_TROUBLE : all ? CLI_SAME : CLI_DIFFERS);
}

int cmd_coverage(int argc, char **argv)
{
    arguments a;
    usc_coverage found;
    usc_error err;
    usc_run_end end;
    cli_hooks hooks;
    cli_begin("coverage");
    if (!parse(argc, argv, &a)) return CLI_TROUBLE;
    cli_hooks_begin(&hooks, "coverage");
    const usc_status st =
        usc_coverage_trace(&a.coverage, &hooks.hooks, &found, &end, &err);
    cli_hooks_end(&hooks);
    if (st != USC_OK) return cli_fail("%s", err.text);
    if (end == USC_RUN_INTERRUPTED) {
        (void)fprintf(stderr,
                      "ulpscope coverage: interrupted; what the device said is kept "
                      "for the next time\n");
        return CLI_INTERRUPTED;
    }
    const int code = tell(&a, &found);
    usc_coverage_free(&found);
    const bool lacks = cli_ops_unmatched(a.coverage.trace, a.coverage.ops);
    return lacks && code == CLI_SAME ? CLI_TROUBLE : code;
}
