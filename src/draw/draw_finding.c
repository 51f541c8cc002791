// SPDX-License-Identifier: Apache-2.0
// What is said of draws: which test speaks first, and what a finding on them is.
#include "draw/draws.h"

#include "case/findings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static usc_status add(usc_findings *f, usc_finding *one, const usc_tensor *t,
                      usc_error *err)
{
    const usc_status st = usc_tensor_numel(t, &one->n, err);
    if (st != USC_OK) return st;
    one->ndim = t->ndim;
    memcpy(one->sizes, t->sizes, sizeof one->sizes);
    return usc_findings_add(f, one, err);
}

usc_status usc_draws_say(usc_findings *f, usc_verdict verdict, const char *path,
                         const usc_tensor *t, const char *reason, bool few,
                         usc_error *err)
{
    usc_finding one = {.path = path,
                       .verdict = verdict,
                       .reason = reason,
                       .bits = (double)NAN,
                       .yardstick_bits = (double)NAN,
                       .few = few};
    if (usc_verdict_flagged(verdict)) {
        one.bits = 0;
        one.yardstick_bits = 24;
    }
    return add(f, &one, t, err);
}

/* Yes and no of one probability. */
static bool hits_odd(usc_draws *d, usc_clause *out)
{
    int64_t k = 0;
    for (int64_t i = 0; i < d->n_hits; i++)
        k += d->hits[i] != 0;
    if (usc_count_odd(k, d->n_hits, d->chance, 0))
        return usc_draws_off_in_part(d, out) ||
               usc_clause_set(out, "%s ones or kept among %s draws of probability %.6g",
                              usc_count(k).text, usc_count(d->n_hits).text, d->chance);
    return usc_runs_odd(d->hits, d->n_hits, false, 1 - d->chance, out) ||
           usc_runs_odd(d->hits, d->n_hits, true, d->chance, out);
}

/* What draws together cannot be. */
static bool draws_odd(usc_draws *d, usc_clause *out)
{
    if (d->odd.text[0] != '\0' || d->n_known < USC_DRAW_ENOUGH) {
        *out = d->odd;
        return d->odd.text[0] != '\0';
    }
    return (d->hits != NULL && hits_odd(d, out)) ||
           (d->came != NULL && usc_counts_odd(d->came, d->due, d->n_cells, out)) ||
           (d->values != NULL && usc_values_repeat(d, out)) || usc_draws_uneven(d, out) ||
           usc_draws_bent(d, out) || usc_draws_digits_odd(d, out) ||
           usc_draws_placed(d, out) || usc_draws_paired(d, out);
}

/* What no draw can be. */
static bool outside(const usc_draws *d, usc_clause *out)
{
    *out = d->outside;
    if (out->text[0] != '\0' || d->n_impossible == 0) return out->text[0] != '\0';
    const double v = d->impossible;
    if (isnan(v)) /* whose sign is nobody's matter */
        (void)usc_clause_set(out, "nan at element %s", usc_count(d->at).text);
    else
        (void)usc_clause_set(out, "%.6g at element %s", v, usc_count(d->at).text);
    const usc_clause first = *out;
    if (d->n_impossible == 1)
        return usc_clause_set(out, "%.200s, which it never draws", first.text);
    return usc_clause_set(out, "%.180s and %s more, which it never draws", first.text,
                          usc_count(d->n_impossible - 1).text);
}

/* Whether that is no number. */
static bool no_number(const usc_draws *d)
{
    return d->outside.text[0] == '\0' && !isfinite(d->impossible);
}

static bool problem_of(usc_draws *d, usc_draws *again, usc_clause *out, bool *odd_number)
{
    *odd_number = no_number(d);
    if (outside(d, out)) return true;
    *odd_number = false;
    if (draws_odd(d, out)) return true;
    const bool twice = again != NULL && again->n == d->n;
    if (twice && usc_draws_related(d, again, out)) return true;
    if (d->n_known >= USC_DRAW_ENOUGH && usc_draws_again(d, twice ? again : NULL, out))
        return true;
    if (!twice) return false;
    *odd_number = no_number(again);
    return outside(again, out);
}

usc_status usc_draws_finding(usc_findings *f, const char *path, const usc_tensor *t,
                             usc_draws *d, usc_draws *again, usc_error *err)
{
    bool odd_number;
    usc_clause why;
    const bool problem = problem_of(d, again, &why, &odd_number);
    if (d->arena->failed) return usc_error_set(err, USC_E_NOMEM, -1, "draws: no memory");
    if (problem)
        return usc_draws_say(f, odd_number ? USC_VERDICT_NONFINITE : USC_VERDICT_WRONG,
                             path, t, why.text, false, err);
    if (d->n_known > 0 && d->n_known < USC_DRAW_ENOUGH) {
        (void)usc_clause_set(&why, USC_DRAW_FEW, usc_count(d->n_known).text);
        return usc_draws_say(f, USC_VERDICT_UNJUDGED, path, t, why.text,
                             d->n_known == d->n, err);
    }
    (void)usc_clause_set(&why, "drawn by its law");
    if (d->n_known > 0)
        (void)usc_clause_set(&why, "drawn by its law, as far as %s draws tell",
                             usc_count(d->n_known).text);
    return usc_draws_say(f, USC_VERDICT_PASS, path, t, why.text, false, err);
}
