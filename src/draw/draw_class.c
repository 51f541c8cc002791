// SPDX-License-Identifier: Apache-2.0
// Whether draws hang on their place: the elements of an index, of some neighbours or of a
// residue along any axis, of a tile, of a stretch, must be even among themselves. Places
// are laid out here (draw_place.h) and summed; what is said of a class that is off is in
// draw_class_say.c. Formulas: docs/reference/metrics.md, 4.
#include "draw/draw_place.h"

#include "case/findings.h"

#include <math.h>
#include <string.h>

enum {
    LEAST = 16,       /* elements of a class */
    EVEN_ENOUGH = 32, /* of a class whose evenness with others is tested, and classes */
    MOST_RESIDUES = 4096,
    SMALL = 4, /* so many of a part at the most are all: else all of them are off */
    MOST_PERIOD = 128, /* of residues by what is no power of two */
    TREND = 8,         /* classes at the least that rise or fall */
    TRENDS = USC_MAX_DIMS * USC_MOST_SCORES,
    LEVELS = 230, /* ways to put the classes of one layout together, at the most */
};

#define PLAINER 3.0      /* by so much a later, less plain class has to be worse */
#define EVEN_SHARE 0.125 /* of a family's false alarms: how even classes are together */

/* ---- chances ---- */

/* The logarithm of a bound of the chance that n scores add up to so much: Chernoff's for
 * ones, Hoeffding's for even numbers, which are no wider than a normal variable of their
 * variance, Bernstein's for all others. */
static double log_chance(const usc_score *s, double sum, double n, double variance)
{
    if (s->chance > 0) return usc_count_log_chance(sum + n * s->chance, n, s->chance);
    const double off = fmax(fabs(sum) - n * s->slack, 0);
    const double most = sum > 0 ? s->most : s->least;
    return -off * off / (2 * (variance + most * off / 3));
}

/* ---- one way to put classes together ---- */

typedef struct level {
    usc_class_sum *sums;
    int64_t n;
} level;

typedef struct search {
    const usc_draws *d;
    const usc_score *score;
    const usc_layout *layout;
    double levels;
    double log_share; /* of the false alarms: that of one level */
    usc_odd_class *worst;
} search;

/* The class of a level that is furthest off. */
static void look_at_classes(const search *s, level l, int64_t modulus, int64_t block)
{
    const double bar = s->log_share - log(2 * (double)(l.n + 1));
    for (int64_t k = 0; k < l.n; k++) {
        const usc_class_sum *c = &l.sums[k];
        if (c->n < LEAST) continue;
        const double chance =
            log_chance(s->score, c->sum, (double)c->n, (double)c->n * s->score->variance);
        const double needed = s->worst->beyond < 0 ? s->worst->beyond - PLAINER : 0;
        if (!(chance - bar < needed)) continue;
        *s->worst = (usc_odd_class){.beyond = chance - bar,
                                    .sum = *c,
                                    .score = s->score,
                                    .layout = s->layout,
                                    .modulus = modulus,
                                    .from = k * block,
                                    .size = block};
    }
}

/* Squares of all classes together: too large where each is off a little, too small where
 * somebody sees to it that each gets its share. Their mean and variance are exact; a
 * gamma variable that has both stands for their sum. */
static void look_at_all(const search *s, level l, int64_t block)
{
    const usc_score *score = s->score;
    double sum = 0, mean = 0, variance = 0;
    for (int64_t k = 0; k < l.n; k++) {
        const usc_class_sum *c = &l.sums[k];
        const double n = (double)c->n;
        if (c->n < EVEN_ENOUGH || n * score->variance < score->enough) continue;
        sum += c->sum * c->sum / (n * score->variance);
        mean += 1;
        variance += 2 + score->kurtosis / n;
    }
    if (mean < EVEN_ENOUGH) return;
    const double above = usc_gamma_above(mean * mean / variance, sum * mean / variance);
    const double bar = log(EVEN_SHARE * s->d->family / s->levels);
    const double chance = log(fmin(above, 1 - above + 1e-300) + 1e-300);
    if (!(chance < bar) || !(chance - bar < s->worst->beyond)) return;
    *s->worst = (usc_odd_class){.beyond = chance - bar,
                                .score = score,
                                .layout = s->layout,
                                .size = block,
                                .all = true,
                                .too_even = above > 0.5};
}

static level pairs_of(level l)
{
    const int64_t half = (l.n + 1) / 2;
    for (int64_t k = 0; k < half; k++) {
        usc_class_sum c = l.sums[2 * k];
        if (2 * k + 1 < l.n) {
            c.sum += l.sums[2 * k + 1].sum;
            c.n += l.sums[2 * k + 1].n;
        }
        l.sums[k] = c;
    }
    return (level){l.sums, half};
}

/* Neighbours, twice as many each time. */
static void look_at_blocks(const search *s, level l, int64_t modulus)
{
    for (int64_t block = 1; l.n > 1; block *= 2, l = pairs_of(l)) {
        look_at_classes(s, l, modulus, block);
        if (modulus == 0 && s->score->together) look_at_all(s, l, block);
    }
}

/* Whether scores rise or fall with the index of an axis: each index for itself may be off
 * by too little. */
static void look_at_trend(const search *s, level l)
{
    double n = 0, at = 0, sum = 0, all = 0, squares = 0, furthest = 0;
    for (int64_t k = 0; k < l.n; k++) {
        n += (double)l.sums[k].n;
        at += (double)l.sums[k].n * (double)k;
    }
    if (n < LEAST * (double)TREND) return;
    at /= n;
    for (int64_t k = 0; k < l.n; k++) {
        const double away = (double)k - at;
        sum += l.sums[k].sum * away;
        all += l.sums[k].sum;
        squares += (double)l.sums[k].n * away * away;
        furthest = fmax(furthest, fabs(away));
    }
    if (!(squares > 0)) return;
    const double most = fmax(s->score->most, fmax(s->score->least, s->score->chance > 0));
    const double variance = squares * s->score->variance;
    const double off = fabs(sum) - s->score->slack * furthest * n;
    if (off <= 0) return;
    const double chance = -off * off / (2 * (variance + furthest * most * off / 3));
    const double bar = log(EVEN_SHARE * s->d->family / TRENDS);
    if (!(chance < bar) || !(chance - bar < s->worst->beyond)) return;
    *s->worst = (usc_odd_class){.beyond = chance - bar,
                                .sum = {.sum = all, .n = (int64_t)n},
                                .score = s->score,
                                .layout = s->layout,
                                .size = l.n,
                                .trend = sum / sqrt(variance)};
}

static level copied(level l, usc_class_sum *room)
{
    memcpy(room, l.sums, (size_t)l.n * sizeof *room);
    return (level){room, l.n};
}

static level folded(level l, int64_t modulus, usc_class_sum *room)
{
    memset(room, 0, (size_t)modulus * sizeof *room);
    for (int64_t k = 0; k < l.n; k++) {
        room[k % modulus].sum += l.sums[k].sum;
        room[k % modulus].n += l.sums[k].n;
    }
    return (level){room, modulus};
}

/* The last 1, 2, 4 ... classes. */
static void look_at_ends(const search *s, level l, usc_class_sum *room)
{
    level ends = {room, 0};
    usc_class_sum c = {0};
    for (int64_t k = 1, next = 1; k <= l.n / 2; k++) {
        c.sum += l.sums[l.n - k].sum;
        c.n += l.sums[l.n - k].n;
        if (k < next) continue;
        room[ends.n++] = c;
        next *= 2;
    }
    const double before = s->worst->beyond;
    look_at_classes(s, ends, 0, 1);
    if (!(s->worst->beyond < before)) return;
    s->worst->size = (int64_t)1 << s->worst->from;
    s->worst->from = l.n - s->worst->size;
}

static void look_at_layout(const search *s, level l, usc_class_sum *room)
{
    look_at_ends(s, l, room);
    if (s->layout->kind == USC_BY_AXIS) look_at_trend(s, l);
    look_at_blocks(s, copied(l, room), 0);
    for (int64_t m = 2; m < l.n && m <= MOST_RESIDUES && s->layout->residues; m *= 2)
        if (!s->layout->exact || l.n % m == 0) look_at_blocks(s, folded(l, m, room), m);
    for (int64_t m = 3; m < l.n && m <= MOST_PERIOD && s->layout->residues; m++)
        if ((m & (m - 1)) != 0 && (!s->layout->exact || l.n % m == 0))
            look_at_classes(s, folded(l, m, room), m, 1);
}

/* ---- sums ---- */

/* Sums the scores of places [from, end), whose elements follow each other. */
static void sum_places(const usc_draws *d, const usc_score *s, const usc_layout *l,
                       int64_t from, int64_t end, usc_class_sum *sums)
{
    const int64_t first = usc_draws_element(d, from), in_cycle = first % l->cycle;
    int64_t k = in_cycle / l->run, left = l->run - in_cycle % l->run;
    int64_t to_wrap = l->cycle - in_cycle, column = l->width > 0 ? first % l->width : 0;
    for (int64_t i = from; i < end; i++) {
        const int64_t at = l->width > 0 ? k * l->n_columns + l->columns[column] : k;
        if (!isnan(s->y[i])) {
            sums[at].sum += (double)s->y[i];
            sums[at].n++;
        }
        if (l->width > 0 && ++column == l->width) column = 0;
        left--;
        if (--to_wrap == 0) {
            to_wrap = l->cycle;
            k = 0;
            left = l->run;
        } else if (left == 0) {
            k++;
            left = l->run;
        }
    }
}

static void look_at_score(const usc_draws *d, const usc_score *score, usc_places *p,
                          usc_odd_class *worst)
{
    for (int i = 0; i < p->n; i++) {
        const usc_layout *l = &p->layouts[i];
        const double levels = (double)p->n_levels;
        const search s = {d, score, l, levels, log(d->family / levels), worst};
        memset(p->sums, 0, (size_t)l->n * sizeof *p->sums);
        const int64_t middle = d->n == d->n_u ? d->n_u : d->n_u / 2;
        sum_places(d, score, l, 0, middle, p->sums);
        sum_places(d, score, l, middle, d->n_u, p->sums);
        look_at_layout(&s, (level){p->sums, l->n}, p->room);
    }
}

/* The class that is furthest off; false: none is. */
static bool find(usc_draws *d, usc_odd_class *worst)
{
    usc_places places;
    *worst = (usc_odd_class){0};
    const usc_scores *scores = usc_scores_of(d);
    if (scores == NULL || !usc_places_lay_out(d, &places)) return false;
    places.n_levels = (int64_t)places.n * scores->n * LEVELS;
    for (int i = 0; i < scores->n; i++)
        look_at_score(d, &scores->of[i], &places, worst);
    if (!(worst->beyond < 0)) return false;
    worst->layout_of = *worst->layout;
    worst->layout = &worst->layout_of;
    return true;
}

bool usc_draws_placed(usc_draws *d, usc_clause *out)
{
    usc_odd_class worst;
    return find(d, &worst) && usc_odd_class_say(d, &worst, out);
}

bool usc_draws_off_in_part(usc_draws *d, usc_clause *out)
{
    usc_odd_class worst;
    return find(d, &worst) && !worst.all && worst.trend == 0 &&
           SMALL * worst.sum.n <= d->n_seen && usc_odd_class_say(d, &worst, out);
}
