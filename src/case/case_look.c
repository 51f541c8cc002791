// SPDX-License-Identifier: Apache-2.0
// Looks at a float output: at R alone, at the slopes of a sum of products, after one
// replay, two and four, then the appeal and both halves of the last. Each only saves what
// comes after it where it already shows that the output is good. Neighbours:
// case_state.h.
#include "case/case_state.h"
#include "judge/slopes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOSS_WEIGHT 2    /* a few among the replays: about their root mean square */
#define MOST_BITS_LESS 3 /* what only other roundings excuse does not decide alone */
#define LOUD_ALONE 8.0   /* roundings: 4 units in the last place, or more */
#define FEWEST_BITS 4.5  /* of what is reduced: no precision in use has fewer */
#define HOPELESS 64      /* times the limit: no other run of a sum widens its scale so */
#define NOTHING 0x1p-40  /* of the inputs: a sum that float64 cannot tell from zero */
#define REACTS 0x1p10    /* times its size: how it reacts to its inputs */

static usc_case_stage feed, at_loss;

static bool accused(const usc_judgement *j)
{
    return j->verdict == USC_VERDICT_WRONG || j->verdict == USC_VERDICT_REDUCED;
}

/* ---- judges ---- */

static usc_status open_judge(usc_case *c, const usc_tensor three[3], usc_error *err)
{
    usc_judge_close(c->look.judge);
    c->look.judge = NULL;
    const usc_judge_options options = {
        .alloc = &c->alloc, .n_threads = c->n_threads, .pairs = c->o.pairs};
    return usc_judge_open(&three[0], &three[1], &three[2], &options, &c->look.judge, err);
}

static void take_three(const usc_case *c, usc_tensor out[3])
{
    out[0] = c->look.device;
    out[1] = c->truth;
    /* Its shape hangs on values: no closer truth is to be had. */
    out[2] = usc_case_fits(&c->truth, &c->yardstick) ? c->yardstick : c->truth;
}

/* The dimensions in the order of memory. */
static void memory_order(const usc_tensor *t, int order[USC_MAX_DIMS])
{
    for (int i = 0; i < t->ndim; i++) {
        int at = i;
        for (; at > 0 && t->strides[order[at - 1]] < t->strides[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* The same elements with the dimensions in the order of memory, where all tensors share
 * it: those of a transposed result are read many times faster so. Places get lost; not
 * for pairs of reals, whose axis is the last. Whether that changed them. */
static bool turn(const usc_case *c, usc_tensor *tensors, int n)
{
    int order[USC_MAX_DIMS];
    if (c->o.pairs || usc_tensor_contiguous(&tensors[0])) return false;
    memory_order(&tensors[0], order);
    usc_tensor turned[4];
    for (int k = 0; k < n; k++) {
        turned[k] = tensors[k];
        for (int i = 0; i < tensors[k].ndim; i++) {
            turned[k].sizes[i] = tensors[k].sizes[order[i]];
            turned[k].strides[i] = tensors[k].strides[order[i]];
        }
        if (!usc_tensor_contiguous(&turned[k])) return false;
    }
    memcpy(tensors, turned, (size_t)n * sizeof *tensors);
    return true;
}

/* A judge that has seen no replay and knows places. */
usc_status usc_case_renew_judge(usc_case *c, usc_error *err)
{
    usc_tensor three[3];
    take_three(c, three);
    c->look.fresh = true;
    c->look.turned = false;
    return open_judge(c, three, err);
}

/* ---- what is found ---- */

static usc_status keep_worst(usc_case *c, usc_error *err)
{
    usc_finding *f = &c->f;
    float shares[USC_MAX_DIMS][USC_POSITION_SLICES];
    usc_status st = usc_judge_worst(c->look.judge, USC_FINDING_EXAMPLES, f->examples,
                                    &f->n_examples, err);
    if (st == USC_OK) st = usc_judge_positions(c->look.judge, shares, err);
    if (st != USC_OK) return st;
    const size_t size = (size_t)f->ndim * sizeof shares[0];
    float *room = usc_arena_take(&c->work, size + 1);
    if (room != NULL) memcpy(room, shares, size);
    f->positions = room;
    return USC_OK;
}

/* Of few numbers what needed an appeal may be off by more than some roundings. */
static void note_few(usc_case *c)
{
    const usc_judgement *j = &c->look.j;
    c->few_off |= c->n < USC_FEW_NUMBERS &&
                  (j->max > USC_FEW_ROUNDINGS || c->look.losses != USC_WANT_NOTHING);
}

/* Whether what passes, or what nobody can judge, may be visibly off: beside |R| alone
 * nothing is. */
static bool is_to_hold(const usc_case *c, const usc_judgement *j)
{
    const bool ill = j->verdict == USC_VERDICT_UNJUDGED && j->n_free == 0;
    return (j->verdict == USC_VERDICT_PASS || ill) && c->look.scaled && !c->o.bare &&
           !c->o.never_rounds && !c->o.chained && c->device.dtype != USC_F64 &&
           j->n_mismatch + j->n_ill > 0;
}

/* What is called ill-conditioned may have left the range of float32. */
static void say_underflow(usc_case *c)
{
    int64_t others;
    if (c->f.verdict != USC_VERDICT_UNJUDGED || c->look.j.n_free > 0) return;
    const int64_t n = usc_case_underflows(c, NULL, &others);
    if (n < c->look.j.n_ill || n == 0) return;
    char text[128];
    (void)snprintf(text, sizeof text, "float32 itself underflows at %s of %s elements",
                   usc_count(n).text, usc_count(c->n).text);
    c->f.reason = usc_case_text(c, text);
}

/* The look is over. */
static usc_status done(usc_case *c, usc_error *err)
{
    const usc_judgement *j = &c->look.j;
    usc_case_conclude(c, j->verdict, "%s", j->reason);
    usc_finding *f = &c->f;
    f->bits = j->bits;
    f->yardstick_bits = j->yardstick_bits;
    f->bound = j->bound;
    f->measured = true;
    f->numbers = USC_NUMBERS_ALL;
    f->judgement = *j;
    say_underflow(c);
    if (f->verdict != USC_VERDICT_UNJUDGED) /* which says it itself */
        usc_case_excuse(c, USC_EXCUSE_ILL_CONDITIONED, j->n_ill);
    if (j->flushes) usc_case_note(c, "flushes subnormals");
    usc_case_excuse(c, USC_EXCUSE_FLUSHED, j->n_flushed);
    usc_findings_noted_odd(c->found, f, j->n - j->n_finite);
    note_few(c);
    usc_status st = usc_case_lost_scale(c, err);
    if (st == USC_OK && f->verdict != USC_VERDICT_PASS) st = keep_worst(c, err);
    usc_judge_close(c->look.judge);
    c->look.judge = NULL;
    if (st != USC_OK) return st;
    return is_to_hold(c, j) ? usc_case_hold(c) : usc_case_go(c, c->look.after);
}

/* ---- sums of replays ---- */

static double at(const usc_tensor *t, const void *data, int64_t i)
{
    if (data == NULL) return 0;
    return t->dtype == USC_F64 ? ((const double *)data)[i]
                               : (double)((const float *)data)[i];
}

/* Room for a replay that is made here, one for all looks. */
static bool make_room(usc_case *c, usc_tensor replay[2])
{
    if (c->wide == NULL) c->wide = usc_case_room(c, c->n, sizeof *c->wide);
    if (c->low == NULL) c->low = usc_case_room(c, c->n, sizeof *c->low);
    const int ndim = c->truth.ndim;
    const int64_t *sizes = c->truth.sizes;
    return c->wide != NULL && c->low != NULL && usc_case_load(c) &&
           usc_tensor_make(&replay[0], c->wide, USC_F64, ndim, sizes, NULL) == USC_OK &&
           usc_tensor_make(&replay[1], c->low, USC_F64, ndim, sizes, NULL) == USC_OK;
}

/* Where nothing is known but the reference, N = |R| / 2: the operator counts as inexact
 * and no scale changes. */
static double lost_at(const usc_case *c, const void *n, int64_t i)
{
    return c->o.bare ? fabs(c->r[i]) * 0.5 : at(c->given.b, n, i);
}

static bool is_sum(const usc_case *c, const usc_tensor *t)
{
    return t == NULL ||
           (usc_case_fits(t, &c->truth) && (t->dtype == USC_F64 || t->dtype == USC_F32));
}

static usc_status feed_sums(usc_case *c, usc_error *err)
{
    usc_tensor room[2];
    const usc_tensor *a = c->given.a, *b = c->given.b;
    if (!is_sum(c, a) || !is_sum(c, b))
        return usc_error_set(err, USC_E_SHAPE, -1,
                             "%s: S and N are no floats of the output's shape",
                             c->o.path);
    const void *s = a != NULL ? usc_case_plain(c, a) : NULL;
    const void *n = b != NULL ? usc_case_plain(c, b) : NULL;
    usc_status st = usc_case_renew_judge(c, err);
    if (st != USC_OK || !make_room(c, room)) return st; /* the driver tells */
    for (int64_t i = 0; i < c->n; i++) {
        c->wide[i] = at(a, s, i);
        c->low[i] = lost_at(c, n, i);
    }
    st = usc_judge_set_sums(c->look.judge, c->wide, c->low, err);
    return st == USC_OK ? usc_judge_look(c->look.judge, &c->look.j, err) : st;
}

/* ---- the appeal ---- */

static usc_status ask_loss(usc_case *c, int k)
{
    const usc_status st = usc_case_ask(c, c->look.losses, k, at_loss);
    c->want.upto = c->look.fed;
    return st;
}

static usc_status appeal(usc_case *c, const usc_tensor *flushed, usc_error *err)
{
    const usc_appeal a = {.fan_in = c->look.fan_in,
                          .movement = c->look.movement,
                          .flushed = flushed,
                          .natural = c->look.natural};
    return usc_judge_appeal(c->look.judge, &a, &c->look.j, err);
}

/* Bits are counted without what only other roundings excuse: a device's own functions are
 * no yardstick. */
static usc_status after_appeal(usc_case *c, usc_error *err)
{
    usc_judgement *j = &c->look.j;
    if (!accused(j) || c->o.never_rounds || c->o.bare) return done(c, err);
    if (usc_case_may_chain(c)) return usc_case_chain(c, after_appeal);
    /* What a sum loses is no more than its terms do: S has that. */
    if ((c->o.linear || c->o.adds) && j->max > HOPELESS * j->t_max) return done(c, err);
    if (c->look.losses == USC_WANT_NOISE) {
        j->bits = fmax(fmin(c->look.bits_before, j->bits), j->bits - MOST_BITS_LESS);
        if (accused(j) && j->bits < FEWEST_BITS) j->verdict = USC_VERDICT_WRONG;
        return done(c, err);
    }
    c->look.bits_before = j->bits;
    c->look.losses = c->look.losses == USC_WANT_NOTHING ? USC_WANT_LOSS : USC_WANT_NOISE;
    return ask_loss(c, 0);
}

static usc_status appeal_flushed(usc_case *c, usc_error *err)
{
    const int k = c->want.k;
    const bool more = usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL;
    if (!more && k > 0) return after_appeal(c, err);
    const usc_status st = appeal(c, more ? c->given.a : NULL, err);
    if (st != USC_OK) return st;
    if (!more || c->look.j.verdict == USC_VERDICT_PASS) return after_appeal(c, err);
    return usc_case_ask(c, USC_WANT_FLUSHED, k + 1, appeal_flushed);
}

/* Whether a result reacts to its inputs far more than it is large: rounding does, and no
 * function of huge inputs. */
static bool is_noise(usc_case *c, usc_error *err)
{
    double *s = usc_case_room(c, c->n, sizeof *s), *n = usc_case_room(c, c->n, sizeof *n);
    double moved = 0, size = 0;
    if (s == NULL || n == NULL || usc_judge_sums(c->look.judge, s, n, err) != USC_OK)
        return false;
    for (int64_t i = 0; i < c->n; i++) {
        if (!isfinite(c->r[i]) || !isfinite(s[i])) continue;
        moved += s[i];
        size += fabs(c->r[i]);
    }
    return moved >= REACTS * size;
}

/* The size of the inputs where a result is nothing but the rounding of float64 beside
 * them, zero in truth (the gradient of a bias that a norm takes away again). */
static double natural_size(usc_case *c, double largest, usc_error *err)
{
    double most = 0;
    bool any = false;
    if (!usc_case_load(c)) return 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (!isfinite(c->r[i])) continue;
        any = true;
        most = fmax(most, fabs(c->r[i]));
    }
    return any && most <= NOTHING * largest && is_noise(c, err) ? largest : 0;
}

static usc_status at_fan_in(usc_case *c, usc_error *err)
{
    c->look.fan_in = c->given.number >= 1 ? c->given.number : 1;
    c->look.natural = natural_size(c, c->given.size, err);
    return usc_case_ask(c, USC_WANT_FLUSHED, 0, appeal_flushed);
}

static usc_status begin_appeal(usc_case *c)
{
    c->look.movement =
        c->look.losses == USC_WANT_NOTHING && c->look.j.exact && c->o.never_rounds;
    return usc_case_ask(c, USC_WANT_FAN_IN, 0, at_fan_in);
}

/* A loss of float32, as a replay that did not move. */
usc_status usc_case_feed_loss(usc_case *c, bool *fed, usc_error *err)
{
    usc_tensor replay[2];
    *fed = !c->look.odd && usc_case_fits(c->given.a, &c->truth);
    if (!*fed) return USC_OK;
    const void *wide = usc_case_plain(c, &c->first[0]);
    const void *narrow = usc_case_plain(c, &c->first[1]);
    if (wide == NULL || narrow == NULL || !make_room(c, replay))
        return USC_OK; /* the driver tells */
    *fed = usc_case_find_loss(c, c->low);
    if (!*fed) return USC_OK;
    for (int64_t i = 0; i < c->n; i++) {
        c->low[i] = at(&c->first[0], wide, i) + LOSS_WEIGHT * c->low[i];
        if (!isfinite(c->low[i])) c->low[i] = at(&c->first[1], narrow, i);
    }
    return usc_judge_replay(c->look.judge, &c->first[0], &replay[1], err);
}

static usc_status at_loss(usc_case *c, usc_error *err)
{
    const int k = c->want.k;
    const bool more = usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL;
    bool fed;
    usc_status st = USC_OK;
    if (usc_case_given(c, USC_GIVEN_SUMS))
        st = feed_sums(c, err);
    else if (more)
        st = usc_case_feed_loss(c, &fed, err);
    if (st != USC_OK) return st;
    return more ? ask_loss(c, k + 1) : begin_appeal(c);
}

/* ---- replays ---- */

static usc_status ask_replay(usc_case *c, int k)
{
    const usc_status st = usc_case_ask(c, USC_WANT_REPLAY, k, feed);
    c->want.upto = k < 1 ? 1 : k < 2 ? 2 : USC_CASE_REPLAYS;
    return st;
}

static usc_status decide(usc_case *c, usc_error *err)
{
    if (!c->look.j.needs_appeal) return after_appeal(c, err);
    return c->look.fed < USC_CASE_REPLAYS ? ask_replay(c, c->look.fed) : begin_appeal(c);
}

/* A replay; where the operator's shape depends on values, the unperturbed result stands
 * in for it. */
usc_status usc_case_feed_replay(usc_case *c, usc_error *err)
{
    usc_tensor three[3];
    take_three(c, three);
    const usc_tensor *a = c->given.a, *b = c->given.b;
    const bool fits = a != NULL && b != NULL && usc_case_fits(a, &c->truth) &&
                      usc_case_fits(b, &c->truth);
    const usc_tensor *wide = fits ? a : &three[1], *narrow = fits ? b : &three[2];
    if (c->look.fed++ > 0) return usc_judge_replay(c->look.judge, wide, narrow, err);
    c->look.odd = !fits;
    c->first[0] = *wide;
    c->first[1] = *narrow;
    usc_status st = USC_OK;
    if (!c->look.fresh) st = usc_case_renew_judge(c, err);
    return st == USC_OK ? usc_judge_first(c->look.judge, &c->first[0], &c->first[1],
                                          &c->look.j, err)
                        : st;
}

static usc_status feed(usc_case *c, usc_error *err)
{
    if (usc_case_given(c, USC_GIVEN_SUMS)) {
        const usc_status st = feed_sums(c, err);
        c->look.fed = c->want.upto;
        return st == USC_OK ? decide(c, err) : st;
    }
    usc_status st = usc_case_feed_replay(c, err);
    if (st != USC_OK || c->look.fed == 3) return st == USC_OK ? ask_replay(c, 3) : st;
    if (c->look.fed > 1) st = usc_judge_look(c->look.judge, &c->look.j, err);
    return st == USC_OK ? decide(c, err) : st;
}

static usc_status first_replay(usc_case *c, usc_error *err)
{
    (void)err;
    if (c->trust.known == ANOTHER_FUNCTION) {
        usc_case_conclude(c, USC_VERDICT_UNJUDGED,
                          "the reference hangs on the dtype: float32 and float64 compute "
                          "another function there");
        return usc_case_go(c, c->look.after);
    }
    return ask_replay(c, 0);
}

/* ---- before any replay ---- */

/* Without N, bits are a lower bound. */
static usc_status after_slope(usc_case *c, usc_error *err)
{
    usc_judgement *j = &c->look.j;
    if (j->verdict != USC_VERDICT_PASS || j->needs_appeal)
        return usc_case_trust(c, first_replay, err);
    j->bound = j->n_mismatch > 0;
    return done(c, err);
}

static usc_status at_products(usc_case *c, usc_error *err)
{
    const usc_appeal a = {.fan_in = c->given.number >= 1 ? c->given.number : 1};
    const usc_status st = usc_judge_appeal(c->look.judge, &a, &c->look.j, err);
    return st == USC_OK ? after_slope(c, err) : st;
}

static usc_status judge_slope(usc_case *c, usc_error *err)
{
    if (usc_case_given(c, USC_GIVEN_SUMS)) return feed_sums(c, err);
    usc_tensor four[4];
    take_three(c, four);
    four[3] = *c->given.a;
    c->look.turned = turn(c, four, 4);
    const usc_status st = open_judge(c, four, err);
    c->first[0] = four[3];
    return st == USC_OK ? usc_judge_first(c->look.judge, &c->first[0], &c->first[0],
                                          &c->look.j, err)
                        : st;
}

static usc_status at_slope(usc_case *c, usc_error *err)
{
    const bool one = usc_case_given(c, USC_GIVEN_AS_ASKED) && c->given.a != NULL &&
                     usc_case_fits(c->given.a, &c->truth);
    if (!one && !usc_case_given(c, USC_GIVEN_SUMS))
        return usc_case_trust(c, first_replay, err);
    c->look.fresh = false;
    const usc_status st = judge_slope(c, err);
    c->look.fresh = false; /* the judge is used up */
    if (st != USC_OK) return st;
    if (c->look.j.needs_appeal) return usc_case_ask(c, USC_WANT_PRODUCTS, 0, at_products);
    return after_slope(c, err);
}

usc_status usc_case_look(usc_case *c, const usc_tensor *device, usc_case_stage *after,
                         usc_error *err)
{
    usc_tensor three[3];
    usc_judge *const before = c->look.judge;
    c->look = (usc_look){.device = *device, .after = after, .judge = before};
    take_three(c, three);
    c->look.turned = turn(c, three, 3);
    c->look.fresh = !c->look.turned;
    usc_status st = open_judge(c, three, err);
    if (st == USC_OK) st = usc_judge_look(c->look.judge, &c->look.j, err);
    if (st != USC_OK) return st;
    usc_case_see(c, &c->look.j);
    /* beside |R| alone */
    c->look.loud = c->o.alone >= USC_ALONE_STEADY && c->look.j.max > LOUD_ALONE;
    const bool passes = c->look.j.verdict == USC_VERDICT_PASS;
    if ((passes && !c->look.loud) || c->sight) return done(c, err);
    c->look.scaled = true;
    if (c->o.linear) return usc_case_ask(c, USC_WANT_SLOPE, 0, at_slope);
    return usc_case_trust(c, first_replay, err);
}
