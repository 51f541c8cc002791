// SPDX-License-Identifier: Apache-2.0
// Opinions in words, and which of several decides. Neighbour: standard.c, which forms
// them.
#include <ulpscope/standard.h>

#include "base/words.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void usc_opinion_text(const usc_standard *standard, const usc_opinion *o,
                      const char *path, char *out, size_t size)
{
    const bool judged = o->verdict != USC_VERDICT_UNJUDGED;
    const bool named = path[0] != '\0' && strcmp(path, "out[0]") != 0;
    const bool stood_in = o->stand_in[0] != '\0';
    (void)snprintf(out, size, "%s says %s%s%s%s%s%s%s%s", standard->name,
                   judged ? o->status : "", judged ? ", " : "", o->reason,
                   named ? " in " : "", named ? path : "", stood_in ? " (" : "",
                   o->stand_in, stood_in ? ")" : "");
}

void usc_opinion_metric_name(const usc_standard *standard, const char *metric, char *out,
                             size_t size)
{
    (void)snprintf(out, size, "%s.%s", standard->name, metric);
}

/* ---- of a call whose outputs are not held to it ---- */

static void say(usc_opinion *out, usc_verdict verdict, const char *status)
{
    *out = (usc_opinion){.verdict = verdict};
    (void)snprintf(out->status, sizeof out->status, "%s", status);
}

static const struct {
    const char *name, *reason;
} reasons[] = {
#define REASON_ROW(id, name, reason) {name, reason},
    USC_NO_OPINION_LIST(REASON_ROW)
#undef REASON_ROW
};

const char *usc_no_opinion_text(usc_no_opinion why)
{
    return why < USC_N_NO_OPINIONS ? reasons[why].name : "unknown";
}

void usc_opinion_without(usc_no_opinion why, usc_opinion *out)
{
    const bool pass = why == USC_NO_OPINION_NO_OUTPUT;
    assert(why < USC_N_NO_OPINIONS);
    say(out, pass ? USC_VERDICT_PASS : USC_VERDICT_UNJUDGED, pass ? "pass" : "unjudged");
    (void)snprintf(out->reason, sizeof out->reason, "%s", reasons[why].reason);
}

void usc_opinion_miscounted(const usc_standard *standard, int64_t n_given, int64_t n_due,
                            usc_opinion *out)
{
    const bool ascend = strncmp(standard->name, "ascend", strlen("ascend")) == 0;
    say(out, USC_VERDICT_WRONG, ascend ? "error" : "fail");
    (void)snprintf(out->reason, sizeof out->reason, USC_MISCOUNTED, (long long)n_given,
                   (long long)n_due);
}

/* ---- which decides ---- */

/* Statuses of all standards, the worst first. */
static int rank(const char *status)
{
    static const char *const order[] = {"error", "fail", "warning", "unjudged", "pass"};
    const int n = sizeof order / sizeof order[0];
    int i = 0;
    while (i < n && strcmp(order[i], status) != 0)
        i++;
    return i;
}

int usc_opinions_worst(const usc_opinion *opinions, int n)
{
    assert(n > 0);
    int worst = 0;
    for (int i = 1; i < n; i++) {
        const usc_opinion *a = &opinions[i], *b = &opinions[worst];
        if (a->verdict < b->verdict ||
            (a->verdict == b->verdict && rank(a->status) < rank(b->status)))
            worst = i;
    }
    return worst;
}
