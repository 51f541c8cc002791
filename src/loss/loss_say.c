// SPDX-License-Identifier: Apache-2.0
// A comparison in words, in block characters and as JSON.
#include "loss/loss_say.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/line.h"
#include "base/number.h"

enum { LEAST_BLOCKS = 10, MOST_BLOCKS = 100, LABEL = 12 };

const char *usc_loss_percent(double share, char out[32])
{
    (void)usc_format(out, 32, isnan(share) ? "of nothing" : "%+.3g %%", 100 * share);
    return out;
}

const char *usc_loss_noise_words(const usc_loss_result *r, char out[96])
{
    if (r->noise == USC_LOSS_NOISE_REPEATS)
        (void)usc_format(out, 96, "what %lld repeated runs differ by among each other",
                         (long long)r->n_repeats + 1);
    else if (r->noise == USC_LOSS_NOISE_DIFFERENCES)
        (void)usc_format(out, 96, "how rough the difference is: the batches are common");
    else if (r->noise == USC_LOSS_NOISE_ROUGHNESS)
        (void)usc_format(out, 96, "how rough A is about its own trend");
    else
        (void)usc_format(out, 96, "float32's rounding alone: too few steps to tell more");
    return out;
}

const char *usc_loss_name(const usc_curve *curve, const usc_curve *other)
{
    return strcmp(curve->name, other->name) == 0 ? curve->key : curve->name;
}

/* "200 steps"; "100 of 200 steps (100 are NaN or Inf in both)": what was looked at, of
 * what the longer run has. */
static const char *looked_at(const usc_loss_result *r, char out[128])
{
    char left_out[64] = "", of[32] = "";
    const int64_t alone = r->n_only_a > r->n_only_b ? r->n_only_a : r->n_only_b;
    if (r->n_left_out > 0)
        (void)usc_format(left_out, sizeof left_out, " (%lld %s NaN or Inf in both)",
                         (long long)r->n_left_out, r->n_left_out == 1 ? "is" : "are");
    if (r->n_left_out + alone > 0)
        (void)usc_format(of, sizeof of, " of %lld",
                         (long long)(r->n + r->n_left_out + alone));
    (void)usc_format(out, 128, "%lld%s steps%s", (long long)r->n, of, left_out);
    return out;
}

void usc_loss_sentence(const usc_curve *a, const usc_curve *b, const usc_loss_result *r,
                       char *out, size_t size)
{
    char percent[32], looked[128];
    const char *of_a = usc_loss_name(a, b), *of_b = usc_loss_name(b, a);
    const usc_loss_point *p = r->first.step >= 0 ? &r->first : &r->largest;
    if (r->bad_step >= 0 && (r->first.step < 0 || r->bad_step <= r->first.step))
        (void)usc_format(out, size,
                         "they differ: %s is NaN or Inf at step %lld, and %s is "
                         "not",
                         r->bad_is_a ? of_a : of_b, (long long)r->bad_step,
                         r->bad_is_a ? of_b : of_a);
    else if (r->n_outside > 0)
        (void)usc_format(
            out, size,
            "they differ: first at step %lld, where %s is %.6g and %s %.6g (%s), "
            "and up to %.3g is noise; %lld of %lld steps lie outside it",
            (long long)p->step, of_a, p->a, of_b, p->b,
            usc_loss_percent(p->relative, percent), p->band, (long long)r->n_outside,
            (long long)r->n);
    else if (r->drifts)
        (void)usc_format(out, size,
                         "they differ: no step lies outside the noise, but over the last "
                         "quarter %s is steadily %.3g %% %s %s (%+.3g; %.3g is noise)",
                         of_b, 100 * fabs(r->drift_relative),
                         r->drift > 0 ? "above" : "below", of_a, r->drift,
                         r->drift_limit);
    else if (p->difference == 0)
        (void)usc_format(out, size, "the same: no digit differs in %s",
                         looked_at(r, looked));
    else
        (void)usc_format(
            out, size,
            "the same within noise: in %s the largest difference is %.3g (%s) at "
            "step %lld, and up to %.3g is noise there",
            looked_at(r, looked), fabs(p->difference),
            usc_loss_percent(p->relative, percent), (long long)p->step, p->band);
}

/* ---- block characters ---- */

typedef struct range {
    double low, high;
} range;

static range range_of(const usc_loss_result *r)
{
    range found = {HUGE_VAL, -HUGE_VAL};
    for (int64_t i = 0; i < r->n; i++) {
        found.low = fmin(found.low, fmin(r->a[i], r->b[i]));
        found.high = fmax(found.high, fmax(r->a[i], r->b[i]));
    }
    return found;
}

static void put_curve(usc_line *l, const char *name, const usc_loss_result *r,
                      const double *values, range whole, int64_t width)
{
    usc_line_add(l, "  %-*s", LABEL, name);
    for (int64_t k = 0; k < width; k++) {
        const int64_t first = k * r->n / width, end = (k + 1) * r->n / width;
        double sum = 0;
        for (int64_t i = first; i < end; i++)
            sum += values[i];
        usc_line_block(l, whole.high > whole.low
                              ? (sum / (double)(end - first) - whole.low) /
                                    (whole.high - whole.low)
                              : 0);
    }
    usc_line_add(l, "  %.6g .. %.6g\n", values[0], values[r->n - 1]);
}

/* The largest |difference| of each column, a full block where it is outside the band. */
static void put_difference(usc_line *l, const usc_loss_result *r, int64_t width)
{
    usc_line_add(l, "  %-*s", LABEL, "difference");
    for (int64_t k = 0; k < width; k++) {
        double most = 0;
        for (int64_t i = k * r->n / width; i < (k + 1) * r->n / width; i++)
            most = fmax(most, fabs(r->b[i] - r->a[i]) / r->band[i]);
        usc_line_block(l, most > 1 ? 1 : most * 7 / 8);
    }
    usc_line_add(l, "  %s\n", "█ outside the noise");
}

static void put_curves(usc_line *l, const usc_loss_result *r, int width)
{
    int64_t columns = width - LABEL - 30;
    if (columns < LEAST_BLOCKS) columns = LEAST_BLOCKS;
    if (columns > MOST_BLOCKS) columns = MOST_BLOCKS;
    if (columns > r->n) columns = r->n;
    if (r->n < 2) return;
    const range whole = range_of(r);
    put_curve(l, "A", r, r->a, whole, columns);
    put_curve(l, "B", r, r->b, whole, columns);
    put_difference(l, r, columns);
    usc_line_text(l, "\n");
}

/* ---- the table ---- */

static const char *form_words(const usc_curve *c)
{
    return strchr("CJm", c->form[0]) != NULL ? c->form
           : c->form[0] == 'l'               ? "a log"
                                             : "an event file";
}

/* "'loss' of a.csv (CSV, 120 values at steps 1 to 120 by 'step')" */
static void put_side(usc_line *l, const usc_curve *c)
{
    usc_line_add(l, "'%s' of %s (%s, %lld values", c->key, c->name, form_words(c),
                 (long long)c->n);
    if (c->numbered)
        usc_line_add(l, ", steps %lld to %lld by '%s')", (long long)c->steps[0],
                     (long long)c->steps[c->n - 1], c->axis);
    else
        usc_line_text(l, ", numbered by their place)");
}

static void put_others(usc_line *l, const char *which, const usc_curve *c)
{
    if (c->others[0] != '\0')
        usc_line_add(l, "  %-*s%s: %s; another with --key\n", LABEL, which, "not taken",
                     c->others);
}

static void put_point(usc_line *l, const char *name, const usc_loss_point *p)
{
    char percent[32];
    if (p->step < 0) return;
    usc_line_add(l, "  %-*sstep %lld: %.6g against %.6g, %+.3g (%s); noise %.3g\n", LABEL,
                 name, (long long)p->step, p->b, p->a, p->difference,
                 usc_loss_percent(p->relative, percent), p->band);
}

static void put_steps(usc_line *l, const usc_curve *a, const usc_curve *b,
                      const usc_loss_result *r)
{
    usc_line_add(l, "  %-*s%lld in common", LABEL, "steps", (long long)r->n);
    if (r->n_only_a > 0) usc_line_add(l, ", %lld of A alone", (long long)r->n_only_a);
    if (r->n_only_b > 0) usc_line_add(l, ", %lld of B alone", (long long)r->n_only_b);
    if (r->n_left_out > 0)
        usc_line_add(l, ", %lld left out (NaN or Inf in both)", (long long)r->n_left_out);
    if (a->numbered != b->numbered)
        usc_line_text(l, "; one of them gives no steps: matched by their place");
    usc_line_text(l, "\n");
}

static usc_status write_line(usc_line *l, FILE *to, usc_error *err)
{
    usc_status st = USC_OK;
    if (l->failed)
        st = usc_no_memory("loss", err);
    else if (fwrite(l->text, 1, l->n, to) != l->n)
        st = usc_error_set(err, USC_E_IO, -1, "cannot write: %s", strerror(errno));
    usc_line_free(l);
    return st;
}

usc_status usc_loss_table(const usc_curve *a, const usc_curve *b,
                          const usc_loss_result *r, int width, FILE *to, usc_error *err)
{
    usc_line l = {0};
    char words[96], percent[32];
    usc_line_text(&l, "A: ");
    put_side(&l, a);
    usc_line_text(&l, "; B: ");
    put_side(&l, b);
    usc_line_text(&l, "\n");
    put_others(&l, "of A", a);
    put_others(&l, "of B", b);
    put_steps(&l, a, b, r);
    usc_line_text(&l, "\n");
    put_curves(&l, r, width);
    usc_line_add(&l, "  %-*s%s\n", LABEL, "noise", usc_loss_noise_words(r, words));
    put_point(&l, "first", &r->first);
    put_point(&l, "largest", &r->largest);
    put_point(&l, "last", &r->last);
    if (r->n > 1)
        usc_line_add(&l, "  %-*s%.4g between the curves, %.3g a step\n", LABEL, "area",
                     r->area, r->mean);
    if (isfinite(r->mean_relative))
        usc_line_add(&l, "  %-*s%.3g %% on average; teams accept below %.0f %%\n", LABEL,
                     "relative", 100 * r->mean_relative, 100 * USC_LOSS_USUAL_LIMIT);
    if (r->drift_limit > 0)
        usc_line_add(&l,
                     "  %-*s%+.3g (%s) over the last quarter; noise %.3g; the difference "
                     "wavers by %.3g in the first quarter\n",
                     LABEL, "drift", r->drift,
                     usc_loss_percent(r->drift_relative, percent), r->drift_limit,
                     r->early_noise);
    usc_line_add(&l, "\n%s\n", r->sentence);
    return write_line(&l, to, err);
}

/* ---- JSON ---- */

/* null where it is no number: JSON has no NaN. */
static void put_number(usc_line *l, const char *name, double value)
{
    usc_line_add(l, isfinite(value) ? ", \"%s\": %.17g" : ", \"%s\": null", name, value);
}

static void put_curve_json(usc_line *l, const char *name, const usc_curve *c)
{
    usc_line_add(l, ", \"%s\": {\"file\": ", name);
    usc_line_json(l, c->name);
    usc_line_add(l, ", \"form\": \"%s\", \"key\": ", c->form);
    usc_line_json(l, c->key);
    usc_line_text(l, ", \"axis\": ");
    usc_line_json(l, c->axis);
    usc_line_add(l, ", \"n\": %lld, \"first_bad\": ", (long long)c->n);
    usc_line_add(l, c->first_bad >= 0 ? "%lld" : "null", (long long)c->first_bad);
    usc_line_text(l, "}");
}

static void put_point_json(usc_line *l, const char *name, const usc_loss_point *p)
{
    usc_line_add(l, ", \"%s\": ", name);
    if (p->step < 0) {
        usc_line_text(l, "null");
        return;
    }
    usc_line_add(l, "{\"step\": %lld", (long long)p->step);
    put_number(l, "a", p->a);
    put_number(l, "b", p->b);
    put_number(l, "difference", p->difference);
    put_number(l, "relative", p->relative);
    put_number(l, "band", p->band);
    usc_line_text(l, "}");
}

usc_status usc_loss_json(const usc_curve *a, const usc_curve *b, const usc_loss_result *r,
                         FILE *to, usc_error *err)
{
    usc_line l = {0};
    usc_line_add(&l, "{\"version\": 1, \"differ\": %s, \"told\": %s, \"sentence\": ",
                 r->differ ? "true" : "false", r->told ? "true" : "false");
    usc_line_json(&l, r->sentence);
    usc_line_add(&l, ", \"noise\": \"%s\"", usc_loss_noise_text(r->noise));
    put_curve_json(&l, "a", a);
    put_curve_json(&l, "b", b);
    usc_line_add(&l,
                 ", \"n\": %lld, \"n_outside\": %lld, \"n_only_a\": %lld, "
                 "\"n_only_b\": %lld, \"bad_step\": ",
                 (long long)r->n, (long long)r->n_outside, (long long)r->n_only_a,
                 (long long)r->n_only_b);
    usc_line_add(&l, r->bad_step >= 0 ? "%lld" : "null", (long long)r->bad_step);
    put_point_json(&l, "first", &r->first);
    put_point_json(&l, "largest", &r->largest);
    put_point_json(&l, "last", &r->last);
    put_number(&l, "area", r->area);
    put_number(&l, "mean", r->mean);
    put_number(&l, "drift", r->drift);
    put_number(&l, "drift_relative", r->drift_relative);
    put_number(&l, "drift_limit", r->drift_limit);
    put_number(&l, "early_noise", r->early_noise);
    put_number(&l, "mean_relative", r->mean_relative);
    put_number(&l, "early_relative", r->early_relative);
    put_number(&l, "common", r->common);
    usc_line_add(&l, ", \"drifts\": %s}\n", r->drifts ? "true" : "false");
    return write_line(&l, to, err);
}
