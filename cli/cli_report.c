// SPDX-License-Identifier: Apache-2.0
// The options that decide how findings are shown and what counts, and the showing: for
// every command that ends with a report.
#include "cli.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_report_begin(cli_report *r)
{
    *r = (cli_report){.when = "auto"};
}

static bool add_allow(cli_report *r, const char *text)
{
    usc_error err;
    if (r->options.n_allow == CLI_MAX_ALLOW) {
        cli_fail("more than %d --allow", CLI_MAX_ALLOW);
        return false;
    }
    if (usc_allow_parse(text, &r->allow[r->options.n_allow], &err) != USC_OK) {
        cli_fail("--allow: %s", err.text);
        return false;
    }
    r->options.n_allow++;
    return true;
}

static bool set_order(cli_report *r, const char *by)
{
    r->options.by_loss = strcmp(by, "loss") == 0;
    if (r->options.by_loss || strcmp(by, "verdict") == 0) return true;
    cli_fail("--sort: '%s' is no order; try verdict or loss", by);
    return false;
}

/* "50%" or "50"; none of it for 0. */
static bool set_min_judged(cli_report *r, const char *text)
{
    int64_t percent = 0;
    char number[16] = "";
    const size_t n = strlen(text), cut = n > 0 && text[n - 1] == '%' ? n - 1 : n;
    if (cut > 0 && cut < 4) memcpy(number, text, cut);
    if (strspn(number, "0123456789") != strlen(number) || number[0] == '\0' ||
        (percent = atoi(number)) > 100) {
        cli_fail("--min-judged '%s': a share from 0%% to 100%% is needed", text);
        return false;
    }
    r->options.min_judged = percent > 0 ? (double)percent / 100 : -1;
    return true;
}

bool cli_report_option(cli_report *r, int option)
{
    switch (option) {
    case 'c':
        r->when = optarg;
        return true;
    case 's':
        r->options.strict = true;
        return true;
    case 'n':
        r->options.no_files = true;
        return true;
    case 'b':
        r->baseline = optarg;
        return true;
    case 'j':
        r->junit = optarg;
        return true;
    case 'g':
        r->annotate = true;
        return true;
    case 'm':
        return set_min_judged(r, optarg);
    case 'r':
        return set_order(r, optarg);
    case 'a':
        return add_allow(r, optarg);
    default:
        return false;
    }
}

bool cli_report_ready(cli_report *r)
{
    const int color = cli_color(r->when);
    r->options.color = color == 1;
    r->options.width = cli_width();
    r->options.allow = r->allow;
    return color >= 0;
}

/* Everything that the options ask for, the files first. */
static usc_status render(usc_report *report, const cli_report *r, usc_error *err)
{
    const usc_sink sink = usc_sink_stream(stdout);
    usc_status st = USC_OK;
    usc_report_mark(report, &r->options);
    if (r->baseline != NULL) st = usc_report_baseline(report, r->baseline, err);
    if (st == USC_OK && !r->options.no_files) st = usc_report_write_files(report, err);
    if (st == USC_OK && r->junit != NULL)
        st = usc_report_write_junit(report, &r->options, r->junit, err);
    if (st == USC_OK && r->annotate)
        st = usc_report_annotations(report, &r->options, &sink, err);
    return st == USC_OK ? usc_report_table(report, &r->options, &sink, err) : st;
}

static int show_one(const cli_report *r, const char *out)
{
    usc_error err;
    usc_report *report = NULL;
    usc_status st = usc_report_open(out, NULL, &report, &err);
    if (st == USC_OK) st = render(report, r, &err);
    const int code = st == USC_OK
                         ? cli_close_output(usc_report_exit_code(report, &r->options))
                         : cli_fail("%s", err.text);
    usc_report_close(report);
    return code;
}

/* The number of "rank-N"; -1 for other names. */
static long rank_of(const char *name)
{
    char *end = NULL;
    if (strncmp(name, "rank-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    const long n = strtol(name + 5, &end, 10);
    return *end == '\0' ? n : -1;
}

static bool has_results(const char *folder, const char *name)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s%s%s/result.db", folder,
                           name[0] != '\0' ? "/" : "", name);
    return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

/* The rank after `last` that has results in the folder; -1 where there is none. */
static long next_rank(const char *folder, long last)
{
    long found = -1;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        const long n = rank_of(e->d_name);
        if (n > last && (found < 0 || n < found) && has_results(folder, e->d_name))
            found = n;
    }
    if (dir != NULL) (void)closedir(dir);
    return found;
}

/* "ulpscope.xml" as "ulpscope.rank-3.xml": each rank has its own. */
static const char *file_of_rank(const char *file, long rank, char *out, size_t size)
{
    if (file == NULL) return NULL;
    const char *slash = strrchr(file, '/');
    const char *dot = strrchr(slash != NULL ? slash : file, '.');
    const size_t stem = dot != NULL ? (size_t)(dot - file) : strlen(file);
    (void)snprintf(out, size, "%.*s.rank-%ld%s", (int)stem, file, rank,
                   dot != NULL ? dot : "");
    return out;
}

static int show_rank(const cli_report *r, const char *out, long rank)
{
    char folder[PATH_MAX], junit[PATH_MAX], baseline[PATH_MAX], name[32];
    cli_report one = *r;
    (void)snprintf(name, sizeof name, "rank-%ld", rank);
    (void)snprintf(folder, sizeof folder, "%s/%s", out, name);
    one.options.allow = one.allow;
    one.junit = file_of_rank(r->junit, rank, junit, sizeof junit);
    if (r->baseline != NULL && has_results(r->baseline, name)) {
        (void)snprintf(baseline, sizeof baseline, "%s/%s", r->baseline, name);
        one.baseline = baseline;
    }
    (void)printf("%s\n\n", name);
    return show_one(&one, folder);
}

int cli_report_show(const cli_report *r, const char *out)
{
    long rank = has_results(out, "") ? -1 : next_rank(out, -1);
    if (rank < 0) return show_one(r, out);
    int worst = CLI_SAME;
    while (rank >= 0) {
        const int code = show_rank(r, out, rank);
        if (code > worst) worst = code;
        rank = next_rank(out, rank);
        if (rank >= 0) putchar('\n');
    }
    return worst;
}
