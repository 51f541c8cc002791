// SPDX-License-Identifier: Apache-2.0
// See fast.h; included by fast_base.c, fast_avx2.c and fast_avx512.c, which say how many
// LANES a vector has, what the table is called and, where the processor has it, what FUSED
// multiplies and adds in one. Vectors are the compiler's.
#include "fast.h"

#include "base/compiler.h"

#include <math.h>
#include <string.h>

#define WIDE (LANES / 2) /* of doubles in a vector of the same size */

typedef float lanes_t USC_VECTOR(4 * LANES);
typedef double wide_t USC_VECTOR(8 * WIDE);
typedef int64_t bits_t USC_VECTOR(8 * WIDE);
typedef float half_t USC_VECTOR(4 * WIDE);
typedef int32_t mask_t USC_VECTOR(4 * LANES);
typedef int32_t half_mask_t USC_VECTOR(4 * WIDE);

#ifndef WIDEN
#define WIDEN(x) USC_CONVERT_VECTOR(x, wide_t)
#endif

/* a * b + c where either rounding is fine. */
#ifndef MAD
#define MAD(a, b, c) ((a) * (b) + (c))
#endif

static inline lanes_t load(const float *at)
{
    lanes_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static inline void store(float *at, lanes_t v)
{
    memcpy(at, &v, sizeof v);
}

static inline lanes_t all(float x)
{
    return x - (lanes_t){0};
}

/* ---- rows side by side ---------------------------------------------------------------- */

#define BLOCK 8

#ifndef TURN
/* Eight rows of eight terms, turned. */
static inline void turn(const float *from, ptrdiff_t row, float *to, size_t width)
{
    for (size_t i = 0; i < BLOCK; i++)
        for (size_t k = 0; k < BLOCK; k++)
            to[k * width + i] = from[(ptrdiff_t)i * row + (ptrdiff_t)k];
}
#define TURN turn
#endif

static void pack(const fast_rows *rows, size_t n, size_t width, const uint32_t *walk,
                 size_t n_terms, float *to)
{
    if (n < width) memset(to, 0, n_terms * width * sizeof *to);
    if (rows->row == 1) { /* terms are rows of the memory */
        for (size_t k = 0; k < n_terms; k++) {
            const size_t term = walk != NULL ? walk[k] : k;
            const float *from = rows->at + (ptrdiff_t)term * rows->term;
            if (n == LANES)
                store(to + k * width, load(from));
            else
                memcpy(to + k * width, from, n * sizeof *to);
        }
        return;
    }
    const bool plain = walk == NULL && rows->term == 1;
    for (size_t i = 0; i < n;) {
        const float *from = rows->at + (ptrdiff_t)i * rows->row;
        size_t k = 0;
        if (plain && i + BLOCK <= n) {
            for (; k + BLOCK <= n_terms; k += BLOCK)
                TURN(from + k, rows->row, to + k * width + i, width);
            for (size_t j = 0; j < BLOCK; j++)
                for (size_t t = k; t < n_terms; t++)
                    to[t * width + i + j] = from[(ptrdiff_t)j * rows->row + (ptrdiff_t)t];
            i += BLOCK;
            continue;
        }
        for (; k < n_terms; k++) {
            const size_t term = walk != NULL ? walk[k] : k;
            to[k * width + i] = from[(ptrdiff_t)term * rows->term];
        }
        i++;
    }
}

/* ---- sums ------------------------------------------------------------------------------- */

/* FAST_ROWS rows of two vectors: as many sums as registers hold. */
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)

static void products(const float *a, const float *b, size_t from, size_t to, bool fma,
                     float *sums)
{
#define BEGIN(i) lanes_t low##i = {0}, high##i = {0};
#define ADD(i)                                                                           \
    low##i += all(x[i]) * left;                                                          \
    high##i += all(x[i]) * right;
#define FUSE(i)                                                                          \
    low##i = FUSED(all(x[i]), left, low##i);                                             \
    high##i = FUSED(all(x[i]), right, high##i);
#define END(i)                                                                           \
    store(sums + (i)*2 * LANES, low##i);                                                 \
    store(sums + (i)*2 * LANES + LANES, high##i);
    EACH_ROW(BEGIN)
    if (fma) {
#ifdef FUSED
        for (size_t k = from; k < to; k++) {
            const float *x = a + k * FAST_ROWS;
            const lanes_t left = load(b + k * 2 * LANES),
                          right = load(b + k * 2 * LANES + LANES);
            EACH_ROW(FUSE)
        }
#endif
    } else {
        for (size_t k = from; k < to; k++) {
            const float *x = a + k * FAST_ROWS;
            const lanes_t left = load(b + k * 2 * LANES),
                          right = load(b + k * 2 * LANES + LANES);
            EACH_ROW(ADD)
        }
    }
    EACH_ROW(END)
}

static void sums_of(const float *terms, size_t from, size_t to, float *sums)
{
    lanes_t sum = {0};
    for (size_t k = from; k < to; k++)
        sum += load(terms + k * LANES);
    store(sums, sum);
}

static void add(float *to, const float *more, size_t n)
{
    for (size_t i = 0; i < n; i += LANES)
        store(to + i, load(to + i) + load(more + i));
}

static void plus(const float *a, const float *b, size_t n, float *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(out + i, load(a + i) + load(b + i));
    for (; i < n; i++)
        out[i] = a[i] + b[i];
}

/* ---- exponentials ------------------------------------------------------------------------ */

static inline wide_t wide_all(double x)
{
    return x - (wide_t){0};
}

static inline bits_t as_bits(wide_t x)
{
    bits_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static inline wide_t as_wide(bits_t b)
{
    wide_t x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static inline bool any(bits_t mask)
{
    int64_t seen = 0;
    for (size_t i = 0; i < WIDE; i++)
        seen |= mask[i];
    return seen != 0;
}

static inline wide_t wide_choose(bits_t which, wide_t yes, wide_t no)
{
    return as_wide((as_bits(yes) & which) | (as_bits(no) & ~which));
}

/* Where a number of a block is to be asked one by one: it is none, or what stands for it may
 * round to either of two. */
typedef struct doubt_t {
    bits_t odd;
    half_mask_t apart;
} doubt_t;

static inline bool has_doubt(const doubt_t *doubt)
{
    int32_t seen = 0;
    for (size_t i = 0; i < WIDE; i++)
        seen |= doubt->apart[i];
    return seen != 0 || any(doubt->odd);
}

static inline void no_number(wide_t x, doubt_t *doubt)
{
    doubt->odd |= x != x;
}

/* The float32 that a float64 is rounded to which `near` is off from by less than 2^-42 of
 * itself: the same wherever both ends of what that leaves open are rounded alike. */
static inline half_t rounded_near(wide_t near, doubt_t *doubt)
{
    const wide_t off = near * wide_all(0x1p-42);
    const half_t down = USC_CONVERT_VECTOR(near - off, half_t),
                 up = USC_CONVERT_VECTOR(near + off, half_t);
    doubt->apart |= down != up;
    return up; /* -0 less -0 is 0 */
}

/* x = k ln 2 + r: k where the exponent of a double has it, |r| <= ln 2 / 2. */
static inline bits_t exp_parts(wide_t x, wide_t *r)
{
    const wide_t magic = wide_all(0x1.8p52);
    const wide_t shifted = MAD(x, wide_all(0x1.71547652b82fep+0), magic);
    const wide_t whole = shifted - magic;
    *r = MAD(whole, wide_all(-0x1.cf79abc9e3b3ap-40),
             MAD(whole, wide_all(-0x1.62e42fefa0000p-1), x));
    return as_bits(shifted) << 52;
}

/* The series of e^r by halves, so that little waits for each other; off by less than 2^-46 of
 * itself, where -200 <= x <= 100. */
static inline wide_t exp_near(wide_t x)
{
    wide_t r;
    const bits_t k = exp_parts(x, &r);
    const wide_t r2 = r * r, r4 = r2 * r2, r8 = r4 * r4;
#define TWO(low, high) MAD(wide_all(high), r, wide_all(low))
    const wide_t first = MAD(TWO(1. / 2, 1. / 6), r2, TWO(1, 1)),
                 second = MAD(TWO(1. / 720, 1. / 5040), r2, TWO(1. / 24, 1. / 120)),
                 third = MAD(TWO(1. / 3628800, 1. / 39916800), r2,
                             TWO(1. / 40320, 1. / 362880));
#undef TWO
    return as_wide(as_bits(MAD(third, r8, MAD(second, r4, first))) + k);
}

/* The float32 that float64's exp() is rounded to. */
static inline half_t exp_rounded(wide_t x, doubt_t *doubt)
{
    no_number(x, doubt);
    x = wide_choose(x < wide_all(-200), wide_all(-200), x); /* 0 in float32 */
    x = wide_choose(x > wide_all(100), wide_all(100), x);   /* inf */
    return rounded_near(exp_near(x), doubt);
}

static void exponentials(const float *x, double less, size_t n, float *out)
{
    float some[FAST_BLOCK];
    for (size_t i = 0, here; i < n; i += here) {
        here = n - i < FAST_BLOCK ? n - i : FAST_BLOCK;
        const size_t whole = here / WIDE * WIDE;
        doubt_t doubt = {0};
        for (size_t j = 0; j < whole; j += WIDE) {
            half_t narrow;
            memcpy(&narrow, x + i + j, sizeof narrow);
            narrow = exp_rounded(WIDEN(narrow) - wide_all(less), &doubt);
            memcpy(some + j, &narrow, sizeof narrow);
        }
        for (size_t j = has_doubt(&doubt) ? 0 : whole; j < here; j++)
            some[j] = (float)exp((double)x[i + j] - less);
        memcpy(out + i, some, here * sizeof *out);
    }
}

static void wide_exponentials(double *x, double less, size_t n)
{
    double some[FAST_BLOCK];
    for (size_t i = 0, here; i < n; i += here) {
        here = n - i < FAST_BLOCK ? n - i : FAST_BLOCK;
        const size_t whole = here / WIDE * WIDE;
        doubt_t doubt = {0};
        for (size_t j = 0; j < whole; j += WIDE) {
            wide_t away;
            memcpy(&away, x + i + j, sizeof away);
            away = WIDEN(exp_rounded(away - wide_all(less), &doubt));
            memcpy(some + j, &away, sizeof away);
        }
        for (size_t j = has_doubt(&doubt) ? 0 : whole; j < here; j++)
            some[j] = (double)(float)exp(x[i + j] - less);
        memcpy(x + i, some, here * sizeof *x);
    }
}

#ifndef ROOT
static inline half_t root_of(half_t x)
{
    for (size_t i = 0; i < WIDE; i++)
        x[i] = sqrtf(x[i]);
    return x;
}
#define ROOT(x) root_of(x)
#endif

#include "fast_map.h"
#include "fast_step.h"

static void dropped(const float *x, const bool *mask, float scale, size_t n, float *out)
{
    typedef uint8_t bytes_t USC_VECTOR(LANES);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        bytes_t stays;
        memcpy(&stays, mask + i, sizeof stays);
        store(out + i, load(x + i) * USC_CONVERT_VECTOR(stays, lanes_t) * all(scale));
    }
    for (; i < n; i++)
        out[i] = x[i] * (mask[i] ? 1.F : 0.F) * scale;
}

/* ---- along a row ----------------------------------------------------------------------- */

static void scaled(const float *x, float less, float by, size_t n, float *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(out + i, (load(x + i) - all(less)) * all(by));
    for (; i < n; i++)
        out[i] = (x[i] - less) * by;
}

static void shifted(float *x, float by, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, load(x + i) + all(by));
    for (; i < n; i++)
        x[i] += by;
}

static void divided(float *x, float by, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(x + i, load(x + i) / all(by));
    for (; i < n; i++)
        x[i] /= by;
}

static void squares(const float *x, float less, size_t n, float *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const lanes_t away = load(x + i) - all(less);
        store(out + i, away * away);
    }
    for (; i < n; i++)
        out[i] = (x[i] - less) * (x[i] - less);
}

static void affine(float *x, const float *weight, const float *bias, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes_t y = load(x + i);
        if (weight != NULL) y *= load(weight + i);
        if (bias != NULL) y += load(bias + i);
        store(x + i, y);
    }
    for (; i < n; i++) {
        if (weight != NULL) x[i] *= weight[i];
        if (bias != NULL) x[i] += bias[i];
    }
}

/* g * y of a norm's gradient, g = grad * weight, y the row normed; g itself in `out`. */
static void norm_terms(const fast_norm_row *r, float *out, float *along)
{
    size_t i = 0;
    for (; i + LANES <= r->n; i += LANES) {
        const lanes_t y = (load(r->x + i) - all(r->mean)) * all(r->scale);
        lanes_t g = load(r->grad + i);
        if (r->weight != NULL) g *= load(r->weight + i);
        store(out + i, g);
        store(along + i, g * y);
    }
    for (; i < r->n; i++) {
        out[i] = r->weight != NULL ? r->grad[i] * r->weight[i] : r->grad[i];
        along[i] = out[i] * ((r->x[i] - r->mean) * r->scale);
    }
}

/* scale * (g - (y * along + sum) / n), in place of g. */
static void norm_gradient(const fast_norm_row *r, float along, float sum, float *out)
{
    const float n = (float)r->n;
    size_t i = 0;
    for (; i + LANES <= r->n; i += LANES) {
        const lanes_t y = (load(r->x + i) - all(r->mean)) * all(r->scale);
        const lanes_t less = (y * all(along) + all(sum)) / all(n);
        store(out + i, all(r->scale) * (load(out + i) - less));
    }
    for (; i < r->n; i++) {
        const float y = (r->x[i] - r->mean) * r->scale;
        out[i] = r->scale * (out[i] - (y * along + sum) / n);
    }
}

static float most_of(const float *x, size_t n, bool *has_nan)
{
    lanes_t most = all(-INFINITY);
    mask_t odd = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const lanes_t v = load(x + i);
        most = choose(v > most, v, most);
        odd |= v != v;
    }
    float best = -INFINITY;
    for (size_t k = 0; k < LANES; k++) {
        if (most[k] > best) best = most[k];
        *has_nan = *has_nan || odd[k] != 0;
    }
    for (; i < n; i++) {
        if (x[i] > best) best = x[i];
        *has_nan = *has_nan || isnan(x[i]);
    }
    return best;
}

const fast_isa TABLE = {
    .name = NAME,
    .lanes = LANES,
#ifdef FUSED
    .fused = true,
#endif
    .pack = pack,
    .products = products,
    .sums = sums_of,
    .add = add,
    .plus = plus,
    .exponentials = exponentials,
    .wide_exponentials = wide_exponentials,
    .map = map_block,
    .dropped = dropped,
    .adam = adam,
    .sgd = sgd,
    .scaled = scaled,
    .shifted = shifted,
    .divided = divided,
    .squares = squares,
    .affine = affine,
    .norm_terms = norm_terms,
    .norm_gradient = norm_gradient,
    .most = most_of,
};
