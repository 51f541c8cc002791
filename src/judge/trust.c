// SPDX-License-Identifier: Apache-2.0
// How far a reference can be trusted that nobody has tested yet: whether two runs of it
// gave the same, whether float64 was float64 throughout, whether its steps compute what
// it computes. Whether float32 and float64 compute one function: apart.c.
#include "judge/slopes.h"
#include "kernels/walk_load.h"

#include "base/float_env.h"

#include <assert.h>

#define STEADY 0x1p-16 /* of a result's size: two runs differ by no more */
#define FAR 0x1p-4     /* of an element and of a result's size: other numbers were read */
#define MOST_FAR 0.05  /* of the elements: single steps, and what cancels */
#define SAME 0x1p-20   /* of a result's size: its steps in float64 give it as well */
enum {
    SAMPLE = 4096, /* elements that are looked at */
    FEW = 8        /* of them, no integers, tell nothing */
};

/* The first elements of both, as doubles. */
typedef struct pair {
    const usc_tensor *a, *b;
    int64_t n;
    usc_walk of_a, of_b;
    usc_walk_room rooms[2];
    double values[2][USC_JUDGE_BLOCK];
    const double *x, *y;
} pair;

static size_t load(pair *p, int64_t at, int64_t n)
{
    const size_t count = (size_t)(n - at < USC_JUDGE_BLOCK ? n - at : USC_JUDGE_BLOCK);
    p->x = usc_walk_load(&p->of_a, at, count, &p->rooms[0], p->values[0]);
    p->y = usc_walk_load(&p->of_b, at, count, &p->rooms[1], p->values[1]);
    return count;
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Equal but for roundings: kernels of libraries add in an order that hangs on where in
 * memory the numbers lie. */
static bool is_steady(pair *p)
{
    const double slack = STEADY * usc_judge_typical(&p->of_b, p->n);
    for (int64_t at = 0; at < p->n; at += USC_JUDGE_BLOCK) {
        const size_t count = load(p, at, p->n);
        for (size_t i = 0; i < count; i++)
            if (!same(p->x[i], p->y[i]) && !(fabs(p->x[i] - p->y[i]) <= slack))
                return false;
    }
    return true;
}

/* Whether float32 holds the first elements, of which enough are no integers; where they
 * are those of moved inputs, of which enough have moved. */
static bool is_coarse(pair *p, bool moved)
{
    const int64_t n = p->n < SAMPLE ? p->n : SAMPLE;
    int64_t n_real = 0;
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count = load(p, at, n);
        for (size_t i = 0; i < count; i++) {
            const double x = p->x[i];
            if (!isfinite(x) || x == rint(x) || (moved && x == p->y[i])) continue;
            if ((double)(float)x != x) return false;
            n_real++;
        }
    }
    return n_real >= FEW;
}

/* Whether most of the first elements have moved: of numbers in 8 or 16 bits a few do. */
static bool has_moved(pair *p)
{
    const int64_t n = p->n < SAMPLE ? p->n : SAMPLE;
    int64_t n_live = 0, n_moved = 0;
    for (int64_t at = 0; at < n; at += USC_JUDGE_BLOCK) {
        const size_t count = load(p, at, n);
        for (size_t i = 0; i < count; i++) {
            if (!isfinite(p->y[i]) || p->y[i] == 0) continue;
            n_live++;
            n_moved += p->x[i] != p->y[i];
        }
    }
    return 2 * n_moved > n_live;
}

static bool is_same_function(pair *p)
{
    double off = 0;
    int64_t n_live = 0;
    for (int64_t at = 0; at < p->n; at += USC_JUDGE_BLOCK) {
        const size_t count = load(p, at, p->n);
        for (size_t i = 0; i < count; i++) {
            const double d = p->x[i] - p->y[i];
            if (!isfinite(d)) continue;
            off += d * d;
            n_live++;
        }
    }
    const double size = usc_judge_typical(&p->of_b, p->n);
    return n_live == 0 || sqrt(off / (double)n_live) <= SAME * size;
}

/* How many elements are not near each other, and how many numbers there are. */
static int64_t count_far(pair *p, int64_t *n_live)
{
    const double size = usc_judge_typical(&p->of_b, p->n);
    int64_t n_far = 0;
    for (int64_t at = 0; at < p->n; at += USC_JUDGE_BLOCK) {
        const size_t count = load(p, at, p->n);
        for (size_t i = 0; i < count; i++) {
            const double x = p->x[i], y = p->y[i];
            n_far += !same(x, y) && !(fabs(x - y) <= FAR * (fabs(y) + size));
            *n_live += isfinite(x) && isfinite(y);
        }
    }
    return n_far;
}

/* Most elements are near each other: a kernel that takes float64's bytes for float32's
 * gives others. */
static bool is_alike(pair *p)
{
    int64_t n_live = 0;
    return (double)count_far(p, &n_live) <= MOST_FAR * (double)p->n;
}

/* Three of four numbers are not near each other: a run of another function. */
static bool is_far(pair *p)
{
    int64_t n_live = 0;
    const int64_t n_far = count_far(p, &n_live) - (p->n - n_live);
    return n_live >= FEW && 4 * n_far > 3 * n_live;
}

static bool answer(pair *p, usc_trust question)
{
    switch (question) {
    case USC_TRUST_STEADY:
        return is_steady(p);
    case USC_TRUST_COARSE:
        return is_coarse(p, false);
    case USC_TRUST_STILL_COARSE:
        return is_coarse(p, true) && has_moved(p);
    case USC_TRUST_STEPS:
        return is_same_function(p);
    case USC_TRUST_ALIKE:
        return is_alike(p);
    case USC_TRUST_FAR:
        return is_far(p);
    case USC_N_TRUSTS:
        break;
    }
    return false;
}

const char *usc_trust_text(usc_trust question)
{
    static const char *const texts[] = {"steady", "coarse", "still_coarse",
                                        "steps",  "alike",  "far"};
    return question < USC_N_TRUSTS ? texts[question] : "unknown";
}

usc_status usc_judge_trust(usc_trust question, const usc_tensor *result,
                           const usc_tensor *before, bool *out, usc_error *err)
{
    assert(result && before && out);
    *out = false;
    pair p = {.a = result, .b = before};
    bool fits = result->ndim == before->ndim;
    for (int i = 0; fits && i < result->ndim; i++)
        fits = result->sizes[i] == before->sizes[i];
    if (!fits) return USC_OK; /* another shape: another result */
    const bool floats = usc_dtype_info_of(result->dtype)->kind == USC_KIND_FLOAT &&
                        usc_dtype_info_of(before->dtype)->kind == USC_KIND_FLOAT;
    if (!floats && question != USC_TRUST_STEADY) return USC_OK;
    if (!floats) {
        usc_judgement j;
        const usc_status st = usc_judge_exact(result, before, &j, err);
        *out = st == USC_OK && j.verdict == USC_VERDICT_PASS;
        return st;
    }
    const usc_status st = usc_tensor_numel(result, &p.n, err);
    if (st != USC_OK) return st;
    const usc_float_env env = usc_float_env_enter();
    p.of_a = usc_walk_over(result);
    p.of_b = usc_walk_over(before);
    *out = answer(&p, question);
    usc_float_env_leave(env);
    return USC_OK;
}
