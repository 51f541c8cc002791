// SPDX-License-Identifier: Apache-2.0
// How findings of pieces, of further answers make the verdict of one call. Neighbours:
// findings.h.
#include "base/number.h"
#include "case/findings.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SAME_BITS 0.5  /* that two kernels of one kind may differ by */
#define SAME_WORST 4.0 /* the same of their worst elements' errors, as a ratio */

enum { MOST_NOTES = 3 }; /* of all pieces */

/* ---- single findings ---- */

static bool passes(const usc_finding *f)
{
    return f->verdict == USC_VERDICT_PASS;
}

static double largest_score(const usc_finding *f)
{
    return f->numbers == USC_NUMBERS_ALL ? f->judgement.max : (double)INFINITY;
}

bool usc_finding_no_worse(const usc_finding *device, const usc_finding *own)
{
    if (!usc_verdict_flagged(own->verdict) || own->verdict > device->verdict)
        return false;
    return own->bits <= device->bits + SAME_BITS &&
           largest_score(device) <= SAME_WORST * largest_score(own);
}

/* ---- draws ---- */

/* Draws of which no law is known, and no values. */
static bool spread_only(const usc_finding *f)
{
    return passes(f) && f->excused[USC_EXCUSE_SPREAD] > 0;
}

bool usc_findings_want_calm(const usc_findings *f)
{
    const usc_finding *worst = usc_findings_worst(f);
    if (worst == NULL || worst->verdict == USC_VERDICT_UNJUDGED) return worst != NULL;
    for (size_t i = 0; i < f->n && passes(worst); i++)
        if (spread_only(f->items[i])) return true;
    return false;
}

/* What was tested of draws, whose values are judged elsewhere. */
static void forget_numbers(usc_finding *f)
{
    f->numbers = USC_NUMBERS_NONE;
    memset(f->excused, 0, sizeof f->excused);
    f->n_notes = 0;
}

static bool can_lean(const usc_findings *f, const usc_findings *calm)
{
    const usc_finding *worst = usc_findings_worst(calm);
    bool drawn = false;
    for (size_t i = 0; i < f->n; i++) {
        if (!passes(f->items[i]) && !f->items[i]->few) return false;
        drawn = drawn || (passes(f->items[i]) && isnan(f->items[i]->bits));
    }
    return drawn && worst != NULL && passes(worst);
}

/* Findings of the call without chance come first. */
static void put_calm(usc_findings *f, const usc_findings *calm)
{
    usc_finding **const before = f->items;
    const size_t n = f->n;
    f->items = NULL;
    f->n = f->capacity = 0;
    for (size_t i = 0; i < calm->n; i++)
        (void)usc_findings_put(f, f->n, calm->items[i]);
    for (size_t i = 0; i < n; i++) {
        if (!passes(before[i])) continue;
        usc_finding *kept = usc_findings_put(f, f->n, before[i]);
        if (kept != NULL) forget_numbers(kept);
    }
}

usc_status usc_findings_calmed(usc_findings *f, const usc_findings *calm,
                               usc_verdict verdict, const char *set, usc_calmed *out,
                               usc_error *err)
{
    *out = (usc_calmed){.accuses = usc_verdict_flagged(verdict)};
    out->taken = !out->accuses && can_lean(f, calm);
    if (out->accuses)
        (void)snprintf(out->note, sizeof out->note, "seen in the same call with %.160s",
                       set);
    if (!out->taken) return USC_OK;
    (void)snprintf(out->note, sizeof out->note,
                   "bits are those of the same call with %.160s; of the draws only the "
                   "spread was tested",
                   set);
    put_calm(f, calm);
    const usc_status st = usc_findings_status(f, err);
    if (st != USC_OK) *out = (usc_calmed){0};
    return st;
}

usc_status usc_findings_unsaid(usc_findings *f, usc_error *err)
{
    for (size_t i = 0; i < f->n; i++) {
        char why[1024];
        usc_finding *one = f->items[i];
        if (!passes(one) || !isnan(one->bits) || one->n == 0) continue;
        (void)snprintf(why, sizeof why,
                       "differs from its reference, which draws random numbers: %s",
                       one->reason);
        one->verdict = USC_VERDICT_UNJUDGED;
        one->reason = usc_findings_text(f, why);
    }
    return usc_findings_status(f, err);
}

/* ---- pieces ---- */

static bool has_note(const usc_finding *f, const char *note)
{
    for (int i = 0; i < f->n_notes; i++)
        if (strcmp(f->notes[i], note) == 0) return true;
    return false;
}

/* What is counted over all pieces. */
static void count_all(usc_finding *f, const usc_whole *w)
{
    f->judgement.n_mismatch = f->judgement.n_bad = 0;
    memset(f->excused, 0, sizeof f->excused);
    f->n_notes = 0;
    for (int i = 0; i < w->n_parts; i++) {
        const usc_finding *part = w->parts[i];
        for (int k = 0; k < USC_N_EXCUSES; k++)
            f->excused[k] += part->excused[k];
        for (int k = 0; k < part->n_notes; k++)
            if (f->n_notes < MOST_NOTES && !has_note(f, part->notes[k]))
                f->notes[f->n_notes++] = part->notes[k];
        if (part->numbers == USC_NUMBERS_NONE) continue;
        f->judgement.n_mismatch += part->judgement.n_mismatch;
        f->judgement.n_bad += part->judgement.n_bad;
        if (f->numbers == USC_NUMBERS_NONE) f->numbers = USC_NUMBERS_COUNT;
    }
}

usc_status usc_findings_join(usc_findings *f, const usc_whole *w, int *decides,
                             usc_error *err)
{
    *decides = 0;
    if (w->n_parts < 1)
        return usc_error_set(err, USC_E_ARG, -1, "an output without pieces");
    for (int i = 1; i < w->n_parts; i++)
        if (usc_finding_before(w->parts[i], w->parts[*decides])) *decides = i;
    usc_finding one = *w->parts[*decides];
    one.n = w->n;
    one.ndim = w->ndim;
    memcpy(one.sizes, w->sizes, sizeof one.sizes);
    one.positions = NULL;
    count_all(&one, w);
    return usc_findings_add(f, &one, err);
}

void usc_findings_place(usc_findings *f, int i, const int64_t *flat, int n)
{
    usc_finding *one = f->items[i];
    for (int k = 0; k < n && k < one->n_examples; k++)
        one->examples[k].index = flat[k];
}

/* ---- several answers ---- */

static const char *name_of(const usc_said_of *said)
{
    switch (said->kind) {
    case USC_RUN_REPLAY:
        return "the replay";
    case USC_RUN_CAPTURED:
        return "the captured run";
    case USC_RUN_AGAIN:
        return "another run of the same call";
    case USC_RUN_FIRST:
        break;
    }
    return "one run";
}

/* How far acceptable answers differ from each other. */
static void note_spread(const usc_said_of *said, int n, usc_settled *out)
{
    static const char text[] = "differs from run to run, within rounding";
    double least = (double)INFINITY, most = -(double)INFINITY;
    char low[32], high[32];
    for (int i = 0; i < n; i++) {
        if (said[i].worst == NULL || isnan(said[i].worst->bits)) continue;
        least = fmin(least, said[i].worst->bits);
        most = fmax(most, said[i].worst->bits);
    }
    (void)usc_format(low, sizeof low, "%.1f", least);
    (void)usc_format(high, sizeof high, "%.1f", most);
    const bool apart = least <= most && strcmp(low, high) != 0;
    (void)snprintf(out->note, sizeof out->note, "%s", text);
    if (apart)
        (void)snprintf(out->note, sizeof out->note,
                       "%s: %s to %s effective bits in %d answers", text, low, high, n);
}

/* Some answers are acceptable, and answer `bad` is not. */
static void say_intermittent(const usc_said_of *said, int n, int bad, usc_settled *out)
{
    int good = 0;
    bool again = false;
    while (usc_verdict_flagged(said[good].verdict))
        good++;
    for (int i = 0; i < n; i++)
        again = again || said[i].kind == USC_RUN_AGAIN;
    const usc_said_of *worse = &said[bad];
    const char *why = worse->worst != NULL ? worse->worst->reason : worse->reason;
    const bool pass = said[good].verdict == USC_VERDICT_PASS;
    out->verdict = USC_VERDICT_INTERMITTENT;
    (void)snprintf(out->reason, sizeof out->reason, "%s is %s, %s %s%s: %s",
                   name_of(worse), usc_verdict_text(worse->verdict), name_of(&said[good]),
                   pass ? "passes" : "is ",
                   pass ? "" : usc_verdict_text(said[good].verdict), why);
    const bool captured =
        worse->kind == USC_RUN_CAPTURED || said[good].kind == USC_RUN_CAPTURED;
    if (captured && !again)
        (void)snprintf(out->note, sizeof out->note,
                       "every run here agrees: the device may have changed since the "
                       "capture");
}

void usc_settle_answers(const usc_said_of *said, int n, usc_settled *out)
{
    assert(n >= 2);
    int n_bad = 0, worst = -1;
    for (int i = 0; i < n; i++) {
        if (!usc_verdict_flagged(said[i].verdict)) continue;
        n_bad++;
        if (worst < 0 || said[i].verdict < said[worst].verdict) worst = i;
    }
    const int i = n_bad > 0 ? worst : 0;
    *out = (usc_settled){.i = i, .verdict = said[i].verdict};
    if (n_bad == 0)
        note_spread(said, n, out);
    else if (n_bad == n)
        (void)snprintf(out->note, sizeof out->note, "differs from run to run");
    else
        say_intermittent(said, n, worst, out);
}
