// SPDX-License-Identifier: Apache-2.0
// The truth moved about, as wrong indices and strides leave it: each move is a map from
// an element to the one whose value it would hold. Neighbours: cause_weigh.c (decides).
#include "cause/cause_state.h"

#include <string.h>

enum { MOST_ROLLED = 64 };

typedef enum way {
    ROLL,        /* by elements along an axis, what leaves comes in again */
    SHIFT,       /* the same, zeros come in */
    REVERSE,     /* along an axis */
    FIRST,       /* the first along an axis stands for all */
    PAIR,        /* neighbours change places */
    INTERLEAVE,  /* halves become pairs */
    SPLIT_PAIRS, /* pairs become halves */
    TRANSPOSE,   /* two axes, into the old shape */
    DOUBLE,      /* of each two elements in memory one counts */
    ROLL_FLAT,   /* in memory */
    NEGATE,      /* of bool */
    CONJUGATE,
    MAGNITUDE,
    WRAP, /* to a narrower integer */
    OTHER /* another output */
} way;

typedef struct move {
    const usc_cause *c;
    const operand *from;
    way way;
    int axis, other;
    int64_t by, n, inner;
    usc_dtype narrow;
} move;

/* The element along an axis of size n that `at` takes its value from. */
static int64_t along(const move *m, int64_t at)
{
    const int64_t n = m->n, half = n / 2;
    if (m->way == REVERSE) return n - 1 - at;
    if (m->way == FIRST) return 0;
    if (m->way == PAIR) return at ^ 1;
    if (m->way == INTERLEAVE) return at / 2 + (at % 2) * half;
    if (m->way == SPLIT_PAIRS) return at % half * 2 + at / half;
    return ((at - m->by) % n + n) % n;
}

/* Where an element of the transposed truth lies in the truth. */
static int64_t transposed(const move *m, int64_t i)
{
    int64_t at[USC_MAX_DIMS], flat = 0;
    const operand *o = m->from;
    for (int a = o->ndim - 1; a >= 0; a--) {
        const int from = a == m->axis ? m->other : a == m->other ? m->axis : a;
        at[from] = i % o->sizes[from];
        i /= o->sizes[from];
    }
    for (int a = 0; a < o->ndim; a++)
        flat = flat * o->sizes[a] + at[a];
    return flat;
}

static double wrapped(const move *m, double x)
{
    const int bits = 8 * (int)usc_dtype_info_of(m->narrow)->size;
    const bool is_signed = usc_dtype_info_of(m->narrow)->kind == USC_KIND_INT;
    uint64_t v = (uint64_t)(int64_t)x & ((UINT64_C(1) << bits) - 1);
    if (is_signed && v >> (bits - 1) != 0) return (double)v - ldexp(1, bits);
    return (double)v;
}

static double moved(const void *ctx, int64_t i)
{
    const move *m = ctx;
    if (m->way == OTHER) return value_at(m->from, i);
    if (m->way == TRANSPOSE) return value_at(m->from, transposed(m, i));
    if (m->way == DOUBLE) return value_at(m->from, i / 2 * 2 + m->by);
    if (m->way == ROLL_FLAT)
        return value_at(m->from, ((i - m->by) % m->from->n + m->from->n) % m->from->n);
    if (m->way == NEGATE) return value_at(m->from, i) == 0;
    if (m->way == CONJUGATE) return value_at(m->from, i) * (i % 2 == 0 ? 1 : -1);
    if (m->way == MAGNITUDE) return fabs(value_at(m->from, i));
    if (m->way == WRAP) return wrapped(m, value_at(m->from, i));
    const int64_t at = i / m->inner % m->n, source = along(m, at);
    if (m->way == SHIFT && (at - m->by < 0 || at - m->by >= m->n)) return 0;
    return value_at(m->from, i + (source - at) * m->inner);
}

/* Whether any number stands where something is off: NaN is the same from anywhere. */
static bool holds_numbers(const usc_cause *c, const marks *far)
{
    for (int64_t i = 0; i < c->d.n; i++)
        if (far->at[i] && !isnan(value_at(&c->d, i))) return true;
    return !c->floats;
}

/* Whether a move changes places; of a few values most moves leave most as it is. */
static bool is_told(usc_cause *c, const move *m)
{
    const bool place = m->way < NEGATE || m->way == OTHER;
    const marks *far = usc_cause_far(c);
    return !place || c->d.kind == USC_KIND_BOOL || far == NULL ||
           (holds_numbers(c, far) && usc_cause_tells(c, far->at));
}

static bool explains(usc_cause *c, const move *m, const clue *say, usc_cause_found *out)
{
    return is_told(c, m) && usc_cause_left(c, moved, m) <= USC_CAUSE_LEFT_MOST &&
           usc_cause_say(out, say);
}

static bool along_axis(usc_cause *c, int axis, way w, int64_t by, usc_cause_code code,
                       usc_cause_found *out)
{
    const move m = {.c = c,
                    .from = &c->t,
                    .way = w,
                    .axis = axis,
                    .by = by,
                    .n = c->d.sizes[axis],
                    .inner = usc_cause_inner(c, axis)};
    return explains(c, &m, &(clue){.code = code, .n = by < 0 ? -by : by, .a = axis}, out);
}

static bool rolled(usc_cause *c, int axis, usc_cause_found *out)
{
    static const int near[] = {1, -1, 2, -2};
    const int64_t size = c->d.sizes[axis];
    const int64_t most = size - 2 < MOST_ROLLED ? size - 2 : MOST_ROLLED;
    if (size % 2 == 0 && size > 2 &&
        along_axis(c, axis, ROLL, size / 2, USC_CAUSE_HALVES, out))
        return true;
    for (int64_t by = 3; by < most; by++)
        if (along_axis(c, axis, ROLL, by, USC_CAUSE_ROLLED_FAR, out)) return true;
    for (int i = 0; i < 4 && size > 2; i++)
        if (along_axis(c, axis, ROLL, near[i], USC_CAUSE_ROLLED, out) ||
            along_axis(c, axis, SHIFT, near[i], USC_CAUSE_SHIFTED, out))
            return true;
    return false;
}

static bool turned(usc_cause *c, int axis, usc_cause_found *out)
{
    const int64_t size = c->d.sizes[axis];
    if (size > 1 &&
        along_axis(c, axis, REVERSE, 0,
                   size == 2 ? USC_CAUSE_REVERSED_TWO : USC_CAUSE_REVERSED, out))
        return true;
    return size % 2 == 0 && size > 2 &&
           (along_axis(c, axis, PAIR, 0, USC_CAUSE_PAIRS, out) ||
            along_axis(c, axis, INTERLEAVE, 0, USC_CAUSE_INTERLEAVED, out) ||
            along_axis(c, axis, SPLIT_PAIRS, 0, USC_CAUSE_SPLIT, out));
}

static bool exchanged_axes(usc_cause *c, usc_cause_found *out)
{
    for (int a = 0; a < c->d.ndim; a++)
        for (int b = a + 1; b < c->d.ndim; b++) {
            const move m = {
                .c = c, .from = &c->t, .way = TRANSPOSE, .axis = a, .other = b};
            if (c->d.sizes[a] > 1 && c->d.sizes[b] > 1 &&
                explains(c, &m, &(clue){.code = USC_CAUSE_TRANSPOSED, .a = a, .b = b},
                         out))
                return true;
        }
    return false;
}

static bool wraps(usc_cause *c, usc_cause_found *out)
{
    static const usc_dtype narrow[] = {USC_I8, USC_U8, USC_I16, USC_I32};
    if (c->d.dtype != USC_I64 && c->d.dtype != USC_I32) return false;
    for (int i = 0; i < 4; i++) {
        const move m = {.c = c, .from = &c->t, .way = WRAP, .narrow = narrow[i]};
        const clue say = {.code = USC_CAUSE_WRAPS,
                          .s = usc_dtype_info_of(narrow[i])->name};
        if (narrow[i] != c->d.dtype && explains(c, &m, &say, out)) return true;
    }
    return false;
}

static bool in_memory(usc_cause *c, usc_cause_found *out)
{
    move m = {.c = c, .from = &c->t, .way = DOUBLE};
    for (m.by = 0; m.by < 2 && c->d.n % 2 == 0 && c->d.n > 4; m.by++)
        if (explains(c, &m,
                     &(clue){.code = m.by == 0 ? USC_CAUSE_DOUBLED_BEFORE
                                               : USC_CAUSE_DOUBLED_AFTER},
                     out))
            return true;
    m.way = ROLL_FLAT;
    for (m.by = 1; m.by >= -1 && c->d.n > 2 && c->d.ndim > 1; m.by -= 2)
        if (explains(c, &m, &(clue){.code = USC_CAUSE_ROLLED_FLAT}, out)) return true;
    return false;
}

bool usc_cause_moved(usc_cause *c, usc_cause_found *out)
{
    if (wraps(c, out)) return true;
    for (int axis = 0; axis < c->d.ndim; axis++)
        if (rolled(c, axis, out) || turned(c, axis, out)) return true;
    const marks *far = usc_cause_far(c);
    const bool many =
        far != NULL && 4 * far->n >= c->d.n; /* few are off: they are alike */
    for (int axis = 0; axis < c->d.ndim && many; axis++)
        if (c->d.sizes[axis] > 2 &&
            along_axis(c, axis, FIRST, 0, USC_CAUSE_FIRST_FOR_ALL, out))
            return true;
    if (exchanged_axes(c, out)) return true;
    move m = {.c = c, .from = &c->t, .way = MAGNITUDE};
    if (c->floats && explains(c, &m, &(clue){.code = USC_CAUSE_ABSOLUTE}, out))
        return true;
    m.way = CONJUGATE;
    if (c->parts && explains(c, &m, &(clue){.code = USC_CAUSE_CONJUGATED}, out))
        return true;
    m.way = NEGATE;
    if (c->d.kind == USC_KIND_BOOL &&
        explains(c, &m, &(clue){.code = USC_CAUSE_INVERTED}, out))
        return true;
    return in_memory(c, out);
}

bool usc_cause_exchanged_outputs(usc_cause *c, usc_cause_found *out)
{
    for (int i = 0; i < c->n_others; i++) {
        const operand *o = &c->others[i];
        const move m = {.c = c, .from = o, .way = OTHER};
        if (o->ndim == c->d.ndim && o->kind == c->t.kind &&
            memcmp(o->sizes, c->d.sizes, (size_t)o->ndim * sizeof o->sizes[0]) == 0 &&
            explains(c, &m, &(clue){.code = USC_CAUSE_OTHER_OUTPUT, .s = o->name}, out))
            return true;
    }
    return false;
}

/* ---- slid along one or two axes, whatever came in at the border ---- */

typedef struct slide {
    int axis[2];
    int64_t by[2];
    int n;
} slide;

/* The element that element i takes its value from; -1 where that is beyond the border. */
static int64_t slid_from(const usc_cause *c, const slide *s, int64_t i)
{
    int64_t from = i;
    for (int k = 0; k < s->n; k++) {
        const int64_t inner = usc_cause_inner(c, s->axis[k]), n = c->d.sizes[s->axis[k]];
        const int64_t at = i / inner % n - s->by[k];
        if (at < 0 || at >= n) return -1;
        from -= s->by[k] * inner;
    }
    return from;
}

/* Whether most elements are so alike that no move would show. */
static bool flat(usc_cause *c, int64_t step)
{
    double *d = usc_cause_room(c, 2 * MOST_MIDDLED, sizeof *d);
    int64_t n = 0, near = 0, all = 0;
    if (d == NULL) return true;
    for (int64_t i = 0; i < c->d.n; i += step) {
        const double v = value_at(&c->d, i);
        if (isfinite(v)) d[n++] = v;
        all++;
    }
    const double middle = usc_cause_middle(d, n);
    for (int64_t i = 0; i < n; i++)
        near += fabs(d[i] - middle) <= 0x1p-5 * fabs(middle);
    return 2 * near > all;
}

typedef struct overlap {
    int64_t all, near, bad, near_bad;
    double moved, own; /* medians of what is left and of the error where it is off */
} overlap;

static overlap measure(usc_cause *c, const marks *m, const slide *s, int64_t most)
{
    overlap o = {0};
    const int64_t step = usc_cause_step(c->d.n, most);
    double *moved_error = usc_cause_room(c, 2 * most, sizeof *moved_error);
    if (moved_error == NULL) return o;
    double *own_error = moved_error + most;
    for (int64_t i = 0; i < c->d.n; i += step) {
        const int64_t from = slid_from(c, s, i);
        if (from < 0) continue;
        const double d = value_at(&c->d, i), t = rounded(c, value_at(&c->t, from));
        const bool near = fabs(d - t) <= 0x1p-6 * fabs(t) || same(d, t);
        o.all++;
        o.near += near;
        if (!m->at[i]) continue;
        const double left = fabs(d - t), own = fabs(d - rounded(c, value_at(&c->t, i)));
        moved_error[o.bad] = isnan(left) ? 0 : left;
        own_error[o.bad++] = isnan(own) ? (double)INFINITY : own;
        o.near_bad += near;
    }
    o.moved = usc_cause_middle(moved_error, o.bad);
    o.own = usc_cause_middle(own_error, o.bad);
    return o;
}

static bool overlaps(usc_cause *c, const marks *m, const slide *s)
{
    const overlap quick = measure(c, m, s, 256);
    if ((double)quick.near < 0.8 * (double)quick.all || quick.all == 0) return false;
    const overlap o = measure(c, m, s, MOST_MIDDLED);
    return o.bad >= 4 && (double)o.bad >= 0.2 * (double)o.all &&
           o.moved <= o.own / 8 && /* else so near that the neighbour says nothing */
           (double)o.near_bad >= 0.97 * (double)o.bad &&
           (double)o.near >= 0.97 * (double)o.all &&
           !flat(c, usc_cause_step(c->d.n, MOST_MIDDLED));
}

static bool try_slide(usc_cause *c, const marks *m, const slide *s, usc_cause_found *out)
{
    for (int k = 0; k < s->n; k++)
        if (c->d.sizes[s->axis[k]] <= 3 * (s->by[k] < 0 ? -s->by[k] : s->by[k]))
            return false;
    if (!overlaps(c, m, s)) return false;
    const clue say = {.code = s->n == 1 ? USC_CAUSE_SLID : USC_CAUSE_SLID_TWO,
                      .n = s->by[0] < 0 ? -s->by[0] : s->by[0],
                      .m = s->by[1] < 0 ? -s->by[1] : s->by[1],
                      .a = s->axis[0],
                      .b = s->axis[1]};
    return usc_cause_say(out, &say);
}

bool usc_cause_slid(usc_cause *c, usc_cause_found *out)
{
    static const int near[] = {1, -1, 2, -2};
    const marks *m = usc_cause_far(c);
    if (m == NULL || m->n < 4) return false;
    for (int a = 0; a < c->d.ndim; a++)
        for (int k = 0; k < 4; k++)
            if (try_slide(c, m, &(slide){{a, 0}, {near[k], 0}, 1}, out)) return true;
    for (int a = 0; a < c->d.ndim; a++)
        for (int b = a + 1; b < c->d.ndim; b++)
            for (int k = 0; k < 4; k++)
                if (try_slide(c, m, &(slide){{a, b}, {near[k / 2], near[k % 2]}, 2}, out))
                    return true;
    return false;
}
