// SPDX-License-Identifier: Apache-2.0
// Opinions in words, and which of several decides. Neighbour: standard.c, which forms
// them.
#include <ulpscope/standard.h>

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
