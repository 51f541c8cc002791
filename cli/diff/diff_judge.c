// SPDX-License-Identifier: Apache-2.0
// Of `ulpscope diff`: calls that differ are judged on both sides, each on its own
// recorded inputs as ulpscope check judges, in their order and until the first that makes
// an error; see diff.h.
#include "diff/diff.h"

#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/pairs.h>

#include "common/hooks.h"

/* Pairs in work, and the rows that they are. */
typedef struct hearing {
    usc_diff *diff;
    int64_t *row;
    diff_unjudged *unjudged;
    bool all; /* also behind the first that errs */
    usc_status status;
    usc_error err;
} hearing;

/* ---- what was not judged ---- */

/* A sentence of a row is "OP is VERDICT: WHY" or "OP: WHY". */
static bool add_unjudged(diff_unjudged *u, const char *sentence, const char *verdict)
{
    char is[64], *op = strdup(sentence);
    usc_unjudged *more = realloc(u->item, (u->n + 1) * sizeof *more);
    if (more != NULL) u->item = more;
    if (op == NULL || more == NULL) {
        free(op);
        return false;
    }
    (void)snprintf(is, sizeof is, " is %s", verdict);
    char *why = strstr(op, ": "), *end = strstr(op, is);
    if (end == NULL || (why != NULL && why < end)) end = why;
    if (end != NULL) *end = '\0';
    u->item[u->n++] = (usc_unjudged){op, why != NULL ? why + 2 : "", 1, NULL};
    return true;
}

/* Of a call that was judged, the outputs that were not: its sentence begins with the
 * operator's name. */
static bool add_left_out(diff_unjudged *u, const char *sentence, const char *left_out)
{
    const size_t n = strcspn(sentence, " ");
    char *text = malloc(n + strlen(left_out) + 2);
    usc_unjudged *more = realloc(u->item, (u->n + 1) * sizeof *more);
    if (more != NULL) u->item = more;
    if (text == NULL || more == NULL) {
        free(text);
        return false;
    }
    memcpy(text, sentence, n);
    text[n] = '\0';
    strcpy(text + n + 1, left_out);
    u->item[u->n++] = (usc_unjudged){text, text + n + 1, 1, NULL};
    return true;
}

/* The first side that was not judged, or not all of it; texts may be NULL. */
static bool keep_unjudged(diff_unjudged *u, const usc_paired found[2])
{
    for (int side = 0; side < 2; side++) {
        const usc_paired *one = &found[side];
        if (one->verdict == NULL || one->sentence == NULL) continue;
        if (usc_verdict_missing(usc_verdict_by_text(one->verdict)))
            return add_unjudged(u, one->sentence, one->verdict);
        if (one->not_judged != NULL && one->not_judged[0] != '\0')
            return add_left_out(u, one->sentence, one->not_judged);
    }
    return true;
}

usc_status diff_put_unjudged(diff_unjudged *u, bool quiet, usc_error *err)
{
    const usc_sink sink = usc_sink_stream(stdout);
    usc_status st = quiet ? USC_OK : usc_unjudged_put(u->item, u->n, &sink, err);
    if (st == USC_OK && !quiet && u->n > 0) (void)fputc('\n', stdout);
    for (size_t i = 0; i < u->n; i++)
        free((void *)(uintptr_t)u->item[i].op);
    free(u->item);
    *u = (diff_unjudged){0};
    return st;
}

/* ---- judging ---- */

static bool hear(void *ctx, int64_t i, const usc_paired found[2])
{
    hearing *h = ctx;
    usc_diff_heard heard = {0};
    int64_t n;
    for (int side = 0; side < 2; side++) {
        heard.verdict[side] = found[side].verdict;
        heard.sentence[side] = found[side].sentence;
        heard.cause[side] = found[side].cause;
        heard.bits[side] = found[side].bits;
        heard.partly = heard.partly || (found[side].not_judged != NULL &&
                                        found[side].not_judged[0] != '\0' &&
                                        !usc_unjudged_is_told(found[side].not_judged));
    }
    if (h->status == USC_OK)
        h->status = usc_diff_hear(h->diff, h->row[i], &heard, &h->err);
    if (h->status == USC_OK && !keep_unjudged(h->unjudged, found))
        h->status = usc_error_set(&h->err, USC_E_NOMEM, -1, "diff: no memory");
    return h->status == USC_OK &&
           (h->all || !usc_diff_errs(usc_diff_rows(h->diff, &n)[h->row[i]].kind));
}

/* What is to be judged, in the order of A's calls; *n of them. False: no memory. */
static bool list_pairs(hearing *h, usc_pair **pair, int64_t *n)
{
    int64_t n_rows;
    const usc_diff_row *rows = usc_diff_rows(h->diff, &n_rows);
    *n = 0;
    *pair = calloc((size_t)n_rows + 1, sizeof **pair);
    h->row = calloc((size_t)n_rows + 1, sizeof *h->row);
    if (*pair == NULL || h->row == NULL) return false;
    for (int64_t i = 0; i < n_rows; i++) {
        const usc_diff_row *row = &rows[i];
        if (!usc_diff_wants_verdicts(h->diff, i)) continue;
        const bool equal = !(row->in.worst > 0) && row->in.n_special == 0;
        (*pair)[*n] = (usc_pair){.call = {row->call_a, row->call_b},
                                 .equal = equal && row->how == USC_DIFF_EXACT};
        h->row[(*n)++] = i;
    }
    return true;
}

static int judge(hearing *h, const usc_pair *pair, int64_t n, const diff_words *words,
                 const usc_pairs_options *given, int64_t *n_left)
{
    usc_pairs_options o = *given;
    usc_run_end end = USC_RUN_DONE;
    usc_error err;
    cli_hooks hooks;
    for (int side = 0; side < 2; side++)
        o.trace[side] = words->path[side];
    o.ctx = h;
    o.heard = hear;
    cli_hooks_begin(&hooks, "diff");
    const usc_status st = usc_pairs_judge(&o, pair, n, &hooks.hooks, n_left, &end, &err);
    cli_hooks_end(&hooks);
    if (end == USC_RUN_INTERRUPTED) return CLI_INTERRUPTED;
    if (st == USC_OK && h->status == USC_OK) return CLI_SAME;
    cli_fail("%s", st != USC_OK ? err.text : h->err.text);
    return cli_fail(
        "the calls that differ could not be judged%s%s; with --no-judge limits "
        "alone tell",
        o.device != NULL ? " on " : "", o.device != NULL ? o.device : "");
}

int diff_judge(usc_diff *d, const diff_words *words, const usc_pairs_options *options,
               diff_unjudged *unjudged)
{
    int64_t n = 0;
    usc_pair *pair = NULL;
    hearing h = {.diff = d, .unjudged = unjudged, .all = words->own || words->all};
    int code = list_pairs(&h, &pair, &n) ? CLI_SAME : cli_fail("no memory");
    if (code == CLI_SAME && n > 0)
        code = judge(&h, pair, n, words, options, &unjudged->n_left);
    free(pair);
    free(h.row);
    return code;
}
