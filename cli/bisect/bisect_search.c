// SPDX-License-Identifier: Apache-2.0
// Which operators have to be moved: delta debugging over their list. The shortest prefix
// of the list that brings the loss right, beside those found already, ends with an
// operator that is needed; that is found, by halving the list (with several jobs by
// cutting it in more parts), until those found suffice. Then each is left out once: who
// can stay goes.
#include "bisect/bisect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SMALL = 4 }; /* operators that a smaller difference may take */

/* ---- one set ---- */

/* Those found, and the first n of the others. */
static bool prefix_trial(const bisect_run *r, int n, bisect_trial *t)
{
    *t = (bisect_trial){.kind = BISECT_SOME};
    t->moved = calloc((size_t)r->n_operators, sizeof *t->moved);
    if (t->moved == NULL) return cli_fail("out of memory") == 0;
    for (int i = 0; i < r->n_operators; i++)
        t->moved[i] = r->guilty[i] || i < n;
    return true;
}

static int log_of(int n, int base)
{
    int steps = 0;
    for (long long reach = 1; reach < n; reach *= base)
        steps++;
    return steps;
}

/* Cuts low..high in parts and tries each end. *low: too short, *high: enough. */
static bool narrow(bisect_run *r, int *low, int *high)
{
    bisect_trial trials[BISECT_MOST_JOBS];
    int n = *high - *low - 1, ends[BISECT_MOST_JOBS];
    const int first = *low, span = *high - *low;
    if (n > r->options->jobs) n = r->options->jobs;
    bool ok = true;
    int made = 0;
    for (; ok && made < n; made++) {
        ends[made] = first + (int)((long long)span * (made + 1) / (n + 1));
        ok = prefix_trial(r, ends[made], &trials[made]);
    }
    ok = ok && bisect_run_trials(r, trials, n);
    for (int i = n; ok && i-- > 0;)
        if (trials[i].good) *high = ends[i];
    for (int i = 0; ok && i < n; i++)
        if (!trials[i].good && ends[i] < *high) *low = ends[i];
    for (int i = 0; i < made; i++) {
        if (ok)
            bisect_say_trial(r, &trials[i],
                             log_of(*high - *low, r->options->jobs + 1) + 2);
        bisect_trial_free(&trials[i]);
    }
    return ok;
}

/* Whether those found suffice; -1: trouble. */
static int suffices(bisect_run *r, double *distance)
{
    bisect_trial t;
    if (!prefix_trial(r, 0, &t)) return -1;
    const bool ok = bisect_run_trials(r, &t, 1);
    const int good = ok ? t.good : -1;
    if (ok) bisect_say_trial(r, &t, 1);
    *distance = t.distance;
    bisect_trial_free(&t);
    return good;
}

static int count(const bisect_run *r)
{
    int n = 0;
    for (int i = 0; i < r->n_operators; i++)
        n += r->guilty[i];
    return n;
}

/* Leaves out each that was found: one that is not needed goes. */
static bool make_minimal(bisect_run *r)
{
    int n = count(r);
    for (int i = 0; i < r->n_operators; i++) {
        r->without[i] = (double)NAN;
        if (!r->guilty[i]) continue;
        if (n == 1) { /* without it nothing is moved */
            r->without[i] = r->plain;
            continue;
        }
        r->guilty[i] = false;
        const int good = suffices(r, &r->without[i]);
        if (good < 0) return false;
        r->guilty[i] = good == 0;
        n -= good;
    }
    return true;
}

/* Adds the operators that bring the loss within r->limit; at most `most` (0: any number).
 * *distance: what is left then. 1: found, 0: it takes more; -1: trouble. */
static int find_more(bisect_run *r, int most, double *distance)
{
    int end = r->n_operators;
    for (int n = 1; most == 0 || n <= most; n++) {
        int low = 0, high = end;
        while (high - low > 1)
            if (!narrow(r, &low, &high)) return -1;
        r->guilty[high - 1] = true;
        end = high - 1;
        const int good = suffices(r, distance);
        if (good != 0) return good;
        if (end == 0) return 0;
    }
    return 0;
}

/* A large mistake hides a small one: as long as more is left than counts as none, the
 * search goes on for that. What would take many operators is rounding, and is left. */
static bool find_smaller(bisect_run *r)
{
    const double none = r->options->tolerance * r->level;
    double left = r->left;
    while (r->options->n_noise == 0 && left > none) {
        bool *before = calloc((size_t)r->n_operators, sizeof *before);
        const double limit = r->limit;
        if (before == NULL) return cli_fail("out of memory") == 0;
        memcpy(before, r->guilty, (size_t)r->n_operators * sizeof *before);
        r->limit = fmax(none, r->options->within * left);
        const int found = r->best <= r->limit ? find_more(r, MOST_SMALL, &left) : 0;
        if (found == 0) {
            memcpy(r->guilty, before, (size_t)r->n_operators * sizeof *before);
            r->limit = limit;
        } else {
            r->left = left;
        }
        free(before);
        if (found < 0) return false;
        if (found == 0) break;
    }
    return true;
}

int bisect_search(bisect_run *r)
{
    const int found = find_more(r, 0, &r->left);
    if (found < 0) return CLI_TROUBLE;
    if (found == 0)
        return cli_fail(
            "the trials contradict each other: no set of operators brings the "
            "loss right, though all of them do; does COMMAND do the same each "
            "time? --seed and --deterministic may help");
    return find_smaller(r) && make_minimal(r) ? CLI_SAME : CLI_TROUBLE;
}
