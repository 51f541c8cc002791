// SPDX-License-Identifier: Apache-2.0
// `ulpscope report TRACE`, `ulpscope export --format perfetto`: one file of a trace, or
// of those of all ranks.
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/report.h>
#include <ulpscope/x/unmatched.h>

#include "cli.h"
#include "common/progress.h"

enum { MOST_RANKS = 4096 };

typedef struct rank_traces {
    int n;
    usc_trace_rank rank[MOST_RANKS];
    char name[MOST_RANKS][16];
    char *path[MOST_RANKS];
} rank_traces;

bool cli_is_trace(const char *folder)
{
    char file[PATH_MAX];
    const int n = snprintf(file, sizeof file, "%s/trace.db", folder);
    if (n > 0 && (size_t)n < sizeof file && usc_trace_is_database(file)) return true;
    return cli_next_rank(folder, -1, "result.db") < 0 &&
           cli_next_rank(folder, -1, "trace.db") >= 0;
}

/* Length of a path without the slashes at its end. */
static size_t trimmed(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* Opens the trace of a rank; of the only one where rank < 0. */
static usc_status open_one(rank_traces *all, const char *trace, long rank, usc_error *err)
{
    const int i = all->n;
    const size_t size = strlen(trace) + 32;
    const int n = (int)trimmed(trace);
    all->path[i] = malloc(size);
    if (all->path[i] == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
    (void)snprintf(all->name[i], sizeof all->name[i], "rank-%ld", rank);
    (void)snprintf(all->path[i], size, "%.*s%s%s", n, trace, rank < 0 ? "" : "/",
                   rank < 0 ? "" : all->name[i]);
    all->rank[i] = (usc_trace_rank){.name = all->name[i], .path = all->path[i]};
    all->n++;
    return usc_trace_open(all->path[i], NULL, &all->rank[i].trace, err);
}

static usc_status open_all(rank_traces *all, const char *trace, usc_error *err)
{
    long rank = cli_next_rank(trace, -1, "trace.db");
    usc_status st = rank < 0 ? open_one(all, trace, -1, err) : USC_OK;
    while (st == USC_OK && rank >= 0 && all->n < MOST_RANKS) {
        st = open_one(all, trace, rank, err);
        rank = cli_next_rank(trace, rank, "trace.db");
    }
    return st;
}

static void close_all(rank_traces *all)
{
    for (int i = 0; i < all->n; i++) {
        usc_trace_close(all->rank[i].trace);
        free(all->path[i]);
    }
    free(all);
}

typedef usc_status writer(const usc_trace_page *traces, const usc_sink *sink,
                          usc_error *err);

static int write_page(const rank_traces *all, writer *write, const char *file)
{
    usc_error err;
    FILE *to = fopen(file, "w");
    if (to == NULL) return cli_fail("%s: %s", file, strerror(errno));
    const usc_sink sink = usc_sink_stream(to);
    const usc_trace_page page = {.rank = all->rank, .n = all->n};
    const usc_status st = write(&page, &sink, &err);
    const bool closed = fclose(to) == 0;
    if (st == USC_OK && closed) return CLI_SAME;
    const int code = cli_fail("%s", st != USC_OK ? err.text : strerror(errno));
    (void)remove(file);
    return code;
}

/* Only what none of the traces has a call of. */
static void unmatched_of_all(const rank_traces *all, const char *ops, char out[256])
{
    char one[256];
    for (int i = 0; i < all->n && (i == 0 || out[0] != '\0'); i++) {
        usc_trace_unmatched(all->rank[i].trace, ops, one, sizeof one);
        if (i == 0)
            memcpy(out, one, sizeof one);
        else
            cli_keep_common(out, one);
    }
}

bool cli_ops_unmatched(const char *trace, const char *ops)
{
    char unmatched[256] = "";
    if (ops == NULL || strchr(ops, ',') == NULL)
        return false; /* one matched, or no call */
    rank_traces *all = calloc(1, sizeof *all);
    if (all == NULL) return false;
    if (open_all(all, trace, NULL) == USC_OK) unmatched_of_all(all, ops, unmatched);
    close_all(all);
    if (unmatched[0] == '\0') return false;
    (void)fprintf(stderr,
                  "ulpscope: no call of %s matches %s of --ops; hence exit code %d\n",
                  trace, unmatched, CLI_TROUBLE);
    return true;
}

/* TRACE.html beside TRACE, which is never changed. */
static void name_page(const char *trace, char *out, size_t size)
{
    (void)snprintf(out, size, "%.*s.html", (int)trimmed(trace), trace);
}

/* Writes the traces of all ranks to one file, and says so. */
static int write_traces(const char *trace, writer *write, const char *file)
{
    usc_error err;
    rank_traces *all = calloc(1, sizeof *all);
    if (all == NULL) return cli_fail("out of memory");
    cli_progress reads;
    cli_progress_read(&reads, write == usc_report_events ? "export" : "report");
    const usc_status st = open_all(all, trace, &err);
    int code = st == USC_OK ? write_page(all, write, file) : CLI_TROUBLE;
    cli_progress_end(&reads);
    if (st != USC_OK) code = cli_fail("%s", err.text);
    if (code == CLI_SAME) {
        if (all->n > 1)
            (void)printf("%s (%d ranks)\n", file, all->n);
        else
            (void)printf("%s\n", file);
    }
    close_all(all);
    return code;
}

int cli_trace_page(const char *trace, const char *file)
{
    char beside[PATH_MAX];
    name_page(trace, beside, sizeof beside);
    const int code = write_traces(trace, usc_report_traces, file != NULL ? file : beside);
    if (code != CLI_SAME) return code;
    (void)printf("next: ulpscope check %s --device DEVICE\n", trace);
    return cli_close_output(code);
}

int cli_trace_events(const char *trace, const char *file)
{
    const int code = write_traces(trace, usc_report_events, file);
    if (code != CLI_SAME) return code;
    puts("next: open it at https://ui.perfetto.dev or in chrome://tracing");
    return cli_close_output(code);
}
