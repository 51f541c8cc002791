// SPDX-License-Identifier: Apache-2.0
// What cannot be told of two curves, and what would tell it: docs/reference/loss.md,
// section 3. No rule says that they differ; "the same" is said only where something was
// looked at that would have shown a fault.
#include "loss/loss_say.h"

#include <math.h>
#include <string.h>

#include "base/number.h"

enum { DOUBTFUL = 5 }; /* standard errors of a mean difference */

/* What float32 may make of a loss before small errors can grow: 64 of its roundings.
 * Other threads and other last bits of the weights give 1e-6 at most. */
#define EXACT 0x1p-18

/* The largest unit of a last digit, of the loss, at which curves can be the same. */
#define COARSEST 0.01

static double level_of(const usc_loss_result *r)
{
    double sum = 0;
    for (int64_t i = 0; i < r->n; i++)
        sum += fabs(r->a[i]);
    return r->n > 0 ? sum / (double)r->n : 0;
}

static bool too_few_digits(const usc_curve *a, const usc_curve *b,
                           const usc_loss_result *r, char *out, size_t size)
{
    const double grain = fmax(a->grain, b->grain), level = level_of(r);
    if (r->n > 0 && !(level > 0)) {
        (void)usc_format(out, size,
                         "not told: '%s' is 0 at every step that both have, which is no "
                         "loss to compare runs by; name another with --key",
                         a->key);
        return true;
    }
    if (!(grain > COARSEST * level)) return false;
    (void)usc_format(
        out, size,
        "not told: %s prints so few digits that a unit of the last is %.2g %% "
        "of the loss; log more of them, or give what holds all: JSON, an "
        "event file, CSV of the values",
        b->grain >= a->grain ? b->name : a->name, 100 * grain / level);
    return true;
}

static bool little_in_common(const usc_curve *a, const usc_curve *b,
                             const usc_loss_result *r, char *out, size_t size)
{
    const int64_t n = a->n < b->n ? a->n : b->n, both = r->n + r->n_left_out;
    if (r->n > 0 && 2 * both >= n) return false;
    if (r->n == 0)
        (void)usc_format(out, size,
                         "not told: of %lld common steps none has a finite loss on both "
                         "sides; look for the first NaN with ulpscope run --nan",
                         (long long)both);
    else
        (void)usc_format(out, size,
                         "not told: only %lld steps are in common, of %lld and %lld; log "
                         "both at the same steps",
                         (long long)both, (long long)a->n, (long long)b->n);
    return true;
}

/* How many steps of the longer run lie where both ran: a run that logs every tenth step
 * covers those between. */
static int64_t covered(const usc_curve *a, const usc_curve *b)
{
    const usc_curve *of = a->n > b->n ? a : b, *by = of == a ? b : a;
    int64_t n = 0;
    if (!of->numbered || !by->numbered) return by->n; /* by their places */
    for (int64_t i = 0; i < of->n; i++)
        n += of->steps[i] >= by->steps[0] && of->steps[i] <= by->steps[by->n - 1];
    return n;
}

static bool ends_early(const usc_curve *a, const usc_curve *b, char *out, size_t size)
{
    const usc_curve *of = a->n > b->n ? a : b, *by = of == a ? b : a;
    const int64_t n = covered(a, b);
    if (2 * n >= of->n) return false;
    (void)usc_format(out, size,
                     "not told: nothing differs where both ran, but that is %lld of %lld "
                     "steps of %s; run %s as long as that, or give the first steps of %s "
                     "alone",
                     (long long)n, (long long)of->n, usc_loss_name(of, by),
                     usc_loss_name(by, of), usc_loss_name(of, by));
    return true;
}

/* Runs on other batches: a fault smaller than their noise is not seen. */
static bool other_batches(const usc_loss_result *r, char *out, size_t size)
{
    char percent[32];
    if (r->noise != USC_LOSS_NOISE_ROUGHNESS) return false;
    (void)usc_format(
        out, size,
        "not told: the differences waver as much as runs on other batches do (%.2g of "
        "it), "
        "by up to %.3g (%s) at step %lld, which hides a fault of that size. Run both "
        "with "
        "the same seed and data, or give runs like A with other seeds as --noise",
        r->common, fabs(r->largest.difference),
        usc_loss_percent(r->largest.relative, percent), (long long)r->largest.step);
    return true;
}

static bool early(const usc_loss_result *r, double tolerance, char *out, size_t size)
{
    if (r->noise != USC_LOSS_NOISE_DIFFERENCES || !(r->early_relative > tolerance))
        return false;
    (void)usc_format(
        out, size,
        "not told: they are %.3g %% apart in the first %lld steps already, before small "
        "errors can grow: a fault, or other weights, seeds or dropout (ulpscope env "
        "diff). If these are equal, ulpscope bisect finds the operator; else give runs "
        "like A with other seeds as --noise",
        100 * r->early_relative, (long long)r->n_early);
    return true;
}

/* Without a tolerance of the user's: what float32 does not explain is the rounding of 16
 * bits, or a fault, and nothing here knows which. Of printed digits half a unit counts as
 * none. */
static bool coarse(const usc_curve *a, const usc_curve *b, const usc_loss_result *r,
                   char *out, size_t size)
{
    const double level = level_of(r), grain = fmax(a->grain, b->grain);
    if (r->noise != USC_LOSS_NOISE_DIFFERENCES || !(level > 0) ||
        !(r->early_relative > EXACT + grain / 2 / level))
        return false;
    (void)usc_format(
        out, size,
        "not told: they are %.2g %% apart in the first %lld steps already, more than "
        "float32 makes of equal runs: the rounding of 16 bits (bfloat16, float16, TF32), "
        "or a fault of that size. Where both compute so, say --tolerance 0.001, or give "
        "runs like A with other seeds as --noise; else ulpscope bisect finds the "
        "operator",
        100 * r->early_relative, (long long)r->n_early);
    return true;
}

static bool small_drift(const usc_curve *a, const usc_curve *b, const usc_loss_result *r,
                        double tolerance, char *out, size_t size)
{
    const double drift = fabs(r->drift);
    if (!(r->drift_noise > 0) || !(fabs(r->drift_relative) > tolerance) ||
        drift <= DOUBTFUL * r->drift_noise)
        return false;
    (void)usc_format(
        out, size,
        "not told: over the last quarter %s is %.3g %% %s %s, %.1f times what the "
        "differences' own wavering explains: a fault, or small errors that have grown. "
        "Give A run again with another number of threads, or other seeds, as --noise",
        usc_loss_name(b, a), 100 * fabs(r->drift_relative),
        r->drift > 0 ? "above" : "below", usc_loss_name(a, b), drift / r->drift_noise);
    return true;
}

static bool far_on_average(const usc_loss_result *r, char *out, size_t size)
{
    if (r->noise == USC_LOSS_NOISE_REPEATS || !(r->mean_relative > USC_LOSS_USUAL_LIMIT))
        return false;
    (void)usc_format(
        out, size,
        "not told: the differences have no direction, but are %.3g %% of the loss on "
        "average, where teams accept %.0f %%. Give runs like A with other seeds as "
        "--noise",
        100 * r->mean_relative, 100 * USC_LOSS_USUAL_LIMIT);
    return true;
}

bool usc_loss_doubt(const usc_curve *a, const usc_curve *b, const usc_loss_result *r,
                    double tolerance, bool given, char *out, size_t size)
{
    return little_in_common(a, b, r, out, size) || too_few_digits(a, b, r, out, size) ||
           other_batches(r, out, size) || early(r, tolerance, out, size) ||
           small_drift(a, b, r, tolerance, out, size) || far_on_average(r, out, size) ||
           (!given && coarse(a, b, r, out, size)) || ends_early(a, b, out, size);
}
