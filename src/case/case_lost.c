// SPDX-License-Identifier: Apache-2.0
// What all elements lose together. The limits of single elements have room for every order
// of adding and for bad luck; a typical element has no need of it. Where every step of a
// call is known, runs of float32 on the very inputs, in each order that kernels use, tell
// what is lost there: who loses several times as much everywhere computes with fewer bits,
// however ill-conditioned the result is. Neighbours: case_state.h; case_hull.c holds single
// elements to the same runs, where they are visibly off, case_part.c rows and heads.
#include "case/case_kept.h"
#include "case/case_shares.h"
#include "case/case_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "judge/slopes.h"

#define ROUNDING 0x1p-24 /* of float32 */
#define LOUD 16.0        /* roundings: what loses no more anywhere is not looked at */
#define MOST 4.0 /* times the root mean square of what runs lose, in the mean; honest */
                 /* kernels: 2.7 at the most, other orders 0.2 to 1 */
#define FEW_TELL 0.125 /* by root n more: of few elements */
#define SHOWS 2.0      /* times: one in twenty of an honest kernel, */
#define SHARE 0.25     /* and of what is accused so many at the least */
#define FAR_MORE                                                                         \
    24.0 /* times, in half a part that is worse than the rest; honest kernels: 10 */
#define CAPPED 16.0    /* times: no element counts for more */
#define MOST_ALONE 8.0 /* times: one element, where nothing is added */
#define FEW_INPUTS 4.0 /* of such a one */
#define MOST_ILL 1.0   /* times, in the mean: what is called ill-conditioned and right */
#define MOST_ILL_ALONE 4.0 /* and one element of it */
#define KNOWS 0.9          /* of the truth: what is off by less has something of it */
#define VISIBLE 0x1p-8     /* of the truth: who is off by less needs no run beside it */
#define TINY 0x1p-10       /* of what elements are: so small a one is no measure */
#define BITS_WRONG 4.5     /* no precision in use computes with fewer */
enum { FEWEST = 8, FEWEST_SHOWN = 3, FEWEST_RUNS = 4 };

/* What all elements have in common: so many times what runs have, where little is right; */
#define MOST_SHARED_ILL 5.0
#define NO_SHARE 2.0 /* what has more of them is no pass there */

static usc_case_stage take_lost, keep_lost;

/* ---- what runs lose ---- */

static bool begin(usc_case *c)
{
    c->lost.squares = usc_case_room(c, c->n, sizeof(double));
    c->d = NULL; /* that of a look may be put right */
    c->lost.n_runs = 0;
    c->lost.shares = c->lost.share_cut = 0;
    c->lost.rows = NULL;
    if (usc_shares_n_rows(c) > 0)
        c->lost.rows = usc_case_room(c, usc_shares_n_rows(c), sizeof(double));
    return c->lost.squares != NULL && usc_case_load(c);
}

static void add_run(usc_case *c, const double *run)
{
    for (int64_t i = 0; i < c->n; i++) {
        const double off = run[i] - c->r[i];
        c->lost.squares[i] += isfinite(off) ? off * off : (double)INFINITY;
    }
    usc_shares_add(c, run);
    c->lost.n_runs++;
}

/* Takes a run; false where there are no more. */
static bool take(usc_case *c)
{
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || c->given.a == NULL ||
        !usc_case_fits(c->given.a, &c->truth))
        return false;
    const double *run = usc_case_wide(c, c->given.a);
    if (run == NULL) return false;
    if ((unsigned)c->given.number == USC_RERUN_CUT) {
        double explained, *cut = usc_case_room(c, c->n, sizeof *cut);
        for (int64_t i = 0; i < c->n && cut != NULL; i++)
            cut[i] = run[i] - c->r[i];
        c->lost.cut = cut;
        c->lost.share_cut = usc_share_of_all(c, run, &explained);
    } else {
        add_run(c, run);
    }
    return true;
}

/* Root mean squares in place of sums; false where too few runs are known. */
static bool settle(usc_case *c)
{
    if (c->y != NULL) add_run(c, c->y);
    if (c->lost.n_runs < FEWEST_RUNS) return false;
    for (int64_t i = 0; i < c->n; i++)
        c->lost.squares[i] = sqrt(c->lost.squares[i] / c->lost.n_runs);
    return true;
}

/* ---- what the device loses, in these ---- */

static bool is_sharp(const usc_case *c)
{
    return c->o.alone == USC_ALONE_SHARP;
}

/* What an element may lose: what runs do, and a rounding of an input or of the result. */
static double scale_of(const usc_case *c, int64_t i, double typical)
{
    const double own = fmax(fabs(c->r[i]), is_sharp(c) ? 0 : TINY * typical);
    const double input = is_sharp(c) ? 0 : c->lost.s[i];
    const double rounding = ROUNDING * fmax(own, input);
    return hypot(c->lost.squares[i], rounding); /* no number where S is none */
}

static bool is_known(const usc_case *c, int64_t i, double scale)
{
    return isfinite(c->d[i]) && isfinite(c->r[i]) && isfinite(scale) && scale > 0;
}

/* How much of what accumulators cut off is in the errors: these have its sign. */
static double share_of_cut(const usc_case *c, double typical)
{
    double eg = 0, gg = 0;
    for (int64_t i = 0; i < c->n && c->lost.cut != NULL; i++) {
        const double scale = scale_of(c, i, typical), g = c->lost.cut[i] / scale;
        if (!is_known(c, i, scale) || !isfinite(g)) continue;
        const double e = fmax(fmin((c->d[i] - c->r[i]) / scale, fabs(g)), -fabs(g));
        eg += e * g;
        gg += g * g;
    }
    return gg > 0 ? fmax(0, fmin(eg / gg, MOST_CUT)) : 0;
}

typedef struct loss {
    double mean; /* root mean square, in what runs lose */
    double most; /* of one element */
    int64_t n_shown, n, i_most;
    double e, r; /* sums of squares, */
    double runs; /* and of what runs lose, or a rounding */
} loss;

/* `each`: a usc_case_loses of each element. */
static loss lost_by_device(const usc_case *c, double typical, uint8_t *each)
{
    const double share = share_of_cut(c, typical);
    loss out = {.i_most = -1};
    double sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double scale = scale_of(c, i, typical);
        each[i] = USC_LOST_UNKNOWN;
        if (!is_known(c, i, scale)) continue;
        const double cut = share > 0 ? share * c->lost.cut[i] : 0;
        const double off =
            isfinite(cut) ? usc_case_distance(c, c->d[i], c->r[i] + cut) : 0;
        const double q = off / scale;
        each[i] = q > FAR_MORE ? USC_LOST_FAR_MORE : USC_LOST_KNOWN;
        if (q > out.most) {
            out.most = q;
            out.i_most = i;
        }
        out.n++;
        out.n_shown += q > SHOWS;
        sum += fmin(q, CAPPED) * fmin(q, CAPPED);
        out.e += (c->d[i] - c->r[i]) * (c->d[i] - c->r[i]);
        out.r += c->r[i] * c->r[i];
        out.runs += scale * scale;
    }
    out.mean = out.n > 0 ? sqrt(sum / (double)out.n) : 0;
    return out;
}

/* ---- the verdict ---- */

static void accuse_all(usc_case *c, const loss *l, double share)
{
    const usc_finding before = c->f;
    const double bits = -log2(fmax(sqrt(l->e / fmax(l->r, 0x1p-1000)), ROUNDING));
    const bool all = before.verdict == USC_VERDICT_UNJUDGED && share != 0;
    if (all)
        usc_case_conclude(c, USC_VERDICT_WRONG,
                          "it is %.3g times what is right, as no run of float32 is",
                          1 + share);
    else if (share > 0)
        usc_case_conclude(
            c, USC_VERDICT_REDUCED,
            "the elements of a row are off by one share, typically %.3g, as "
            "in no run of float32",
            share);
    else
        usc_case_conclude(
            c, USC_VERDICT_REDUCED,
            "what its elements lose is %.3g times what float32 loses there, "
            "in any order",
            l->mean);
    const char *reason = c->f.reason;
    const bool ill = before.verdict == USC_VERDICT_UNJUDGED ||
                     2 * before.excused[USC_EXCUSE_ILL_CONDITIONED] > c->n;
    c->f = before;
    c->f.bits = fmax(0, ill || isnan(before.bits) ? bits : before.bits);
    c->f.verdict =
        all || c->f.bits < BITS_WRONG ? USC_VERDICT_WRONG : USC_VERDICT_REDUCED;
    c->f.reason = reason;
    if (all) c->f.factor = 1 + share;
    c->f.bound = false;
}

static bool is_beyond(const usc_case *c, int64_t i, double typical)
{
    const double scale = scale_of(c, i, typical);
    return is_known(c, i, scale) &&
           usc_case_distance(c, c->d[i], c->r[i]) > MOST_ALONE * scale;
}

/* Whether single elements are held to what runs lose there: an input's share of it is
 * known badly where a result cancels, so that of several steps only what is far off is. */
static bool may_be_one(const usc_case *c)
{
    return is_sharp(c) ||
           (c->f.judgement.max > LOUD && c->f.judgement.fan_in <= FEW_INPUTS);
}

static void accuse_some(usc_case *c, double typical)
{
    for (int64_t i = 0; i < c->n; i++)
        c->open[i] = is_beyond(c, i, typical);
    usc_case_differ(c, &c->device, &c->truth);
}

/* What is called ill-conditioned, and loses no more than runs of float32 do, is right: it
 * has something of the truth, as these have, or is not visibly off. Other numbers of the
 * truth's size are no nearer to it than nothing is; and where runs lose nearly all of it
 * nobody can tell what is right from what is not. */
static bool is_right(const usc_case *c, const loss *l)
{
    const bool near = l->e <= KNOWS * KNOWS * l->r && l->runs <= KNOWS * KNOWS * l->r;
    return l->n == c->f.judgement.n_finite && l->n >= FEWEST && l->mean <= MOST_ILL &&
           l->most <= MOST_ILL_ALONE && usc_shares_all(c, NO_SHARE) == 0 &&
           (near || l->e <= VISIBLE * VISIBLE * l->r);
}

/* Within all sets, which say nothing there. */
static void say_unknown(usc_case *c, const loss *l)
{
    if (l->mean > MOST_ILL || l->most > MOST_ILL_ALONE || l->runs <= KNOWS * KNOWS * l->r)
        return;
    char text[160];
    (void)usc_format(
        text, sizeof text,
        "%s; its runs lose nearly all there, and it loses no more than these",
        c->f.reason);
    c->f.reason = usc_case_text(c, text);
}

static void acquit(usc_case *c)
{
    const int64_t n = c->f.judgement.n_ill;
    c->f.verdict = USC_VERDICT_PASS;
    c->f.reason = "float32 leaves few bits there, and it loses no more than float32 does";
    c->f.bits = c->f.yardstick_bits = (double)NAN;
    c->f.bound = false;
    c->f.excused[USC_EXCUSE_ILL_CONDITIONED] = 0;
    usc_case_excuse(c, USC_EXCUSE_ILL_CONDITIONED, n);
}

static usc_status weigh(usc_case *c)
{
    const usc_walk walk = usc_walk_over(&c->truth);
    const double typical = usc_judge_typical(&walk, c->n);
    uint8_t *each = usc_case_room(c, c->n, 1);
    c->open = usc_case_room(c, c->n, 1);
    if (each == NULL || c->open == NULL) return USC_OK; /* the driver tells */
    const loss l = lost_by_device(c, typical, each);
    const bool many = l.n >= FEWEST && l.n_shown >= FEWEST_SHOWN &&
                      (double)l.n_shown >= SHARE * (double)l.n;
    const bool passes = c->f.verdict == USC_VERDICT_PASS;
    const double share = passes ? usc_shares_rows(c) : usc_shares_all(c, MOST_SHARED_ILL);
    const double most =
        MOST * (1 + FEW_TELL / sqrt(fmax((double)l.n, 1))); /* few tell less */
    if ((many && l.mean > most) || share != 0)
        accuse_all(c, &l, many && l.mean > most ? 0 : share);
    else if (passes && may_be_one(c) && l.most > MOST_ALONE)
        accuse_some(c, typical);
    else if (usc_case_part_loses(c, each, c->open))
        usc_case_differ(c, &c->device, &c->truth);
    else if (!passes && is_right(c, &l))
        acquit(c);
    else if (!passes)
        say_unknown(c, &l);
    return usc_case_pass(c, USC_STAGE_END);
}

/* ---- stages ---- */

static usc_status take_sums(usc_case *c, usc_error *err)
{
    const usc_tensor *a = c->given.a, *b = c->given.b;
    if (a == NULL || !usc_case_fits(a, &c->truth) ||
        (b != NULL && !usc_case_fits(b, &c->truth)))
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: what runs lose does not fit",
                             c->o.path);
    const double *lost = usc_case_wide(c, a);
    if (lost == NULL) return USC_OK; /* the driver tells */
    usc_shares_take(c, c->given.c);
    memcpy(c->lost.squares, lost, (size_t)c->n * sizeof *lost);
    c->lost.cut = b != NULL ? usc_case_wide(c, b) : NULL;
    return weigh(c);
}

static usc_status take_lost(usc_case *c, usc_error *err)
{
    if (usc_case_given(c, USC_GIVEN_SUMS)) return take_sums(c, err);
    if (take(c)) return usc_case_ask(c, USC_WANT_LOST, c->want.k + 1, take_lost);
    if (c->lost.n_runs == 0 || !settle(c)) return usc_case_pass(c, USC_STAGE_END);
    return weigh(c);
}

/* Excused elements were put right, and tell nothing of the others' loss. */
static bool excuses_any(const usc_finding *f)
{
    for (int i = 0; i < USC_N_EXCUSES; i++)
        if (i != USC_EXCUSE_ILL_CONDITIONED && f->excused[i] > 0) return true;
    return f->judgement.flushes;
}

/* What passes in pieces is held to its losses in one of them: as large a whole is not at
 * all, for the runs take longer than everything else together. */
static bool is_to_be_held(usc_case *c)
{
    return c->f.verdict != USC_VERDICT_PASS || usc_case_is_sample(c);
}

bool usc_case_may_lose(usc_case *c)
{
    const usc_finding *f = &c->f;
    const bool off = f->judgement.max > LOUD || c->look.loud ||
                     f->excused[USC_EXCUSE_ILL_CONDITIONED] > 0;
    const bool passes = f->verdict == USC_VERDICT_PASS && off;
    const bool ill = f->verdict == USC_VERDICT_UNJUDGED && f->judgement.n_ill > 0 &&
                     f->judgement.n_free == 0;
    return !c->lost.tried && c->lost.scaled && !c->narrow.weighing && c->kept == NULL &&
           !c->o.bare && !c->o.pairs && !c->o.chained && !c->o.never_rounds &&
           c->device.dtype == USC_F32 && f->numbers == USC_NUMBERS_ALL &&
           !f->judgement.exact && c->n >= FEWEST && (passes || ill) && !excuses_any(f) &&
           is_to_be_held(c);
}

usc_status usc_case_lost(usc_case *c, usc_error *err)
{
    (void)err;
    c->lost.tried = true;
    if (!begin(c)) return USC_OK; /* the driver tells */
    return usc_case_ask(c, USC_WANT_LOST, 0, take_lost);
}

usc_status usc_case_lost_scale(usc_case *c, usc_error *err)
{
    const usc_judgement *j = &c->look.j;
    c->lost.scaled = false;
    if (!(j->max > LOUD) && !c->look.loud && j->n_ill + j->n_mismatch == 0) return USC_OK;
    if (c->kept != NULL || c->o.bare || c->device.dtype != USC_F32 || c->n < FEWEST ||
        !c->look.scaled || c->look.turned)
        return USC_OK;
    if (c->lost.s == NULL) c->lost.s = usc_case_room(c, c->n, sizeof(double));
    if (c->low == NULL) c->low = usc_case_room(c, c->n, sizeof *c->low);
    if (c->lost.s == NULL || c->low == NULL) return USC_OK; /* the driver tells */
    c->lost.scaled = true;
    return usc_judge_sums(c->look.judge, c->lost.s, c->low, err);
}

/* ---- of an output that is kept ---- */

static usc_status keep_lost(usc_case *c, usc_error *err)
{
    (void)err;
    if (take(c)) return usc_case_ask(c, USC_WANT_LOST, c->want.k + 1, keep_lost);
    if (c->lost.n_runs > 0 && settle(c)) {
        const double *shares = usc_shares_of_runs(c);
        if (shares == NULL) return USC_OK; /* the driver tells */
        usc_case_keep_lost(c, c->lost.squares, c->lost.cut, shares, usc_shares_n(c));
    }
    return usc_case_pass(c, USC_STAGE_KEEP_EXACT);
}

usc_status usc_case_keep_loss(usc_case *c, usc_error *err)
{
    (void)err;
    if (c->device.dtype != USC_F32 || c->n < FEWEST || c->o.pairs || c->o.chained ||
        c->o.never_rounds)
        return usc_case_pass(c, USC_STAGE_KEEP_EXACT);
    if (!begin(c)) return USC_OK; /* the driver tells */
    return usc_case_ask(c, USC_WANT_LOST, 0, keep_lost);
}
