// SPDX-License-Identifier: Apache-2.0
// `ulpscope check TRACE` where TRACE holds a trace for each rank: one check after the
// other, OUT/rank-N each.
#include <stdlib.h>
#include <string.h>

#include "common/hooks.h"
#include "common/progress.h"

enum { MOST_RANKS = 4096 };

typedef struct rank_list {
    int n;
    long rank[MOST_RANKS];
    bool kept[MOST_RANKS]; /* done in a job that was cut short */
} rank_list;

static void find_ranks(const char *trace, rank_list *list)
{
    list->n = 0;
    for (long rank = -1; list->n < MOST_RANKS;) {
        rank = cli_next_rank(trace, rank, "trace.db");
        if (rank < 0) return;
        list->kept[list->n] = false;
        list->rank[list->n++] = rank;
    }
}

/* A job that was cut short goes on with the ranks that are not done. Where all are done,
 * or what computed is not the same for all, nothing is kept. */
static void find_kept(const usc_check_options *o, rank_list *list)
{
    char folder[PATH_MAX], *inputs = NULL, *first = NULL;
    int n_done = 0;
    bool same = !o->force;
    for (int i = 0; i < list->n; i++) {
        (void)snprintf(folder, sizeof folder, "%s/rank-%ld", o->out, list->rank[i]);
        const usc_check_state state = usc_check_state_of(folder, &inputs);
        list->kept[i] = state == USC_CHECK_DONE;
        n_done += state == USC_CHECK_DONE || state == USC_CHECK_CHANGED;
        if (inputs != NULL && first != NULL) same &= strcmp(inputs, first) == 0;
        if (inputs != NULL && first == NULL) {
            first = inputs;
            inputs = NULL;
        }
        free(inputs);
    }
    free(first);
    for (int i = 0; (!same || n_done == list->n) && i < list->n; i++)
        list->kept[i] = false;
}

static int check_rank(const usc_check_options *o, const cli_report *report, long rank,
                      bool kept,
                      int (*check)(const usc_check_options *, const cli_report *))
{
    char trace[PATH_MAX], out[PATH_MAX];
    usc_check_options one = *o;
    cli_rank_report shown;
    (void)snprintf(trace, sizeof trace, "%s/rank-%ld", o->trace, rank);
    (void)snprintf(out, sizeof out, "%s/rank-%ld", o->out, rank);
    one.trace = trace;
    one.out = out;
    cli_report_of_rank(report, rank, &shown);
    cli_shares *shares = cli_shares_found();
    if (shares != NULL && kept) cli_shares_leave(shares, out); /* nobody works on it */
    return kept ? cli_report_show(&shown.report, out) : check(&one, &shown.report);
}

int cli_check_ranks(const usc_check_options *options, const cli_report *report,
                    int (*check)(const usc_check_options *, const cli_report *))
{
    rank_list *list = malloc(sizeof *list);
    if (list == NULL) return cli_fail("out of memory");
    find_ranks(options->trace, list);
    int worst = CLI_SAME;
    if (options->call >= 0) {
        worst = cli_fail("%s holds a trace for each rank: name the rank of call %lld, "
                         "%s/rank-%ld#%lld",
                         options->trace, (long long)options->call, options->trace,
                         list->rank[0], (long long)options->call);
        free(list);
        return worst;
    }
    const cli_shares *shares = cli_shares_found();
    if (shares == NULL || shares->ranks.rank == 0) find_kept(options, list);
    const double end = cli_now() + options->budget;
    for (int i = 0; i < list->n && worst != CLI_INTERRUPTED; i++) {
        usc_check_options part = *options;
        (void)fprintf(stderr, "ulpscope check: rank-%ld, %d of %d\n", list->rank[i],
                      i + 1, list->n);
        if (options->budget > 0) { /* what is left, in equal shares */
            part.budget = (end - cli_now()) / (list->n - i);
            if (part.budget < 0.001) part.budget = 0.001;
        }
        const int code = check_rank(&part, report, list->rank[i], list->kept[i], check);
        if (code > worst) worst = code;
    }
    free(list);
    return worst;
}
