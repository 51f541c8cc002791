// SPDX-License-Identifier: Apache-2.0
// What the files of the search share. cause_open.c opens it, cause_memory.c holds what it
// reads; cause.c knows the order of questions; cause_words.c has the words; cause_marks.c says which elements are off and what they
// hold; cause_damage.c and cause_region.c name damage to some elements; cause_order.c,
// cause_moved.c and cause_limits.c what concerns places and kinds; cause_where.c says
// which places are off, whatever they hold; cause_size.c and cause_slices.c factors and
// amounts; cause_noise.c formats; cause_evidence.c and cause_weigh.c hold numbers against
// the device.
#ifndef USC_CAUSE_STATE_H
#define USC_CAUSE_STATE_H

#include <ulpscope/cause.h>

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/line.h"

enum {
    FEW = 64,                /* so few elements are looked at one by one */
    MOST_SAMPLED = 1 << 17,  /* elements that numbers are held against */
    MOST_MIDDLED = 1 << 15,  /* elements that a median or a factor is taken of */
    MOST_SORTED = 1 << 20,   /* elements that are put in order */
    MOST_COMPARED = 1 << 13, /* elements whose errors are correlated */
    LEAST_WRITTEN = 4,       /* zeros that tell that something was not written */
};

/* Elements one behind the other. */
typedef struct operand {
    const unsigned char *data;
    usc_dtype dtype;
    usc_kind kind;
    size_t size; /* bytes of an element */
    const char *name;
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
    int64_t n;
} operand;

/* What the elements of a part hold. */
typedef enum content {
    HOLDS_OTHER,
    HOLDS_ZERO,
    HOLDS_STALE,
    HOLDS_NAN,
    HOLDS_ONE
} content;

typedef enum place_kind { PLACE_AXIS, PLACE_AXES, PLACE_TILE } place_kind;

/* What a clause is made from; the letters are those of USC_CAUSE_LIST. */
typedef struct clue {
    usc_cause_code code;
    int64_t n, m, first, last, a, b;
    double v, u;
    const char *s;
    const char *held; /* $h; NULL: made from `content` */
    content content;
    double value;       /* that all hold */
    bool bare;          /* so few that nothing is said of how they came to hold it */
    const char *listed; /* numbers of slices that are not together; NULL: a pattern */
    place_kind place;
    int64_t step; /* of slices that are not together; 0: they are */
    unsigned axes;
    int64_t tile[4]; /* rows, columns: first and last */
    bool seen;       /* no name whatever the list says */
} clue;

/* Which elements are off. */
typedef struct marks {
    uint8_t *at; /* NULL until they are asked for */
    int64_t n;
} marks;

/* Numbers at the places that are looked at, of the whole output or of a sample. */
typedef struct evidence {
    int64_t n;
    int64_t *places; /* NULL: all */
    double *device, *truth, *rounded;
    double *slack; /* what rounding may do; NaN where the truth is no number */
    uint8_t *off;
    int64_t n_off;
    bool low; /* the dtype is narrower than float32 */
    int64_t *glance;
    int n_glance, n_far; /* places to look at first: the first n_far are far off */
    int64_t independent; /* 0: not counted yet */
    double *scratch;     /* 4 n numbers and n bytes, of the run at hand; or NULL */
} evidence;

struct usc_cause {
    usc_arena kept, work; /* of the search; of one question */
    operand d, t, y, before;
    operand *inputs, *others;
    int n_inputs, n_others;
    bool has_before, floats, adds, heads, parts;
    bool alone; /* nobody runs the operator between the questions */
    unsigned formats, formats_barred;
    usc_verdict verdict;
    double effective;            /* bits */
    int bits, emin;              /* of the device's format; float32's where it is wider */
    double least_normal, safely; /* between them a number is rounded to bits; or 0 */
    marks far, fine;
    bool small;    /* what is off may be so for its size, not for its place */
    content held;  /* what the last part that was looked at holds */
    int told_bits; /* see usc_cause_told_bits; 0: not asked yet */
    evidence e;
};

/* A number in the place of flat element i. */
typedef double candidate(const void *ctx, int64_t i);

static inline double value_at(const operand *o, int64_t i)
{
    double x = 0;
    const unsigned char *at = o->data + (size_t)i * o->size;
    if (o->dtype == USC_F32) return (double)((const float *)(const void *)o->data)[i];
    if (o->dtype == USC_F64) return ((const double *)(const void *)o->data)[i];
    if (o->dtype == USC_BF16) { /* a float32 without its last bits */
        const uint32_t bits = (uint32_t) * (const uint16_t *)(const void *)at << 16;
        float wide;
        memcpy(&wide, &bits, sizeof wide);
        return (double)wide;
    }
    usc_dtype_widen(o->dtype, at, &x, 1);
    return x;
}

static inline bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/** `x` rounded once to the device's dtype. */
static inline double rounded(const usc_cause *c, double x)
{
    double out = x;
    unsigned char bytes[16];
    if (c->d.dtype == USC_F32) return (double)(float)x;
    if (c->d.dtype == USC_F64) return x;
    if (fabs(x) >= c->least_normal && fabs(x) < c->safely) { /* ties to even, in place */
        const int drop = 53 - c->bits;
        uint64_t u;
        memcpy(&u, &x, sizeof u);
        u += (u >> drop & 1) + (UINT64_C(1) << (drop - 1)) - 1;
        u &= ~((UINT64_C(1) << drop) - 1);
        memcpy(&out, &u, sizeof out);
        return out;
    }
    usc_dtype_narrow(c->d.dtype, &x, bytes, 1);
    usc_dtype_widen(c->d.dtype, bytes, &out, 1);
    return out;
}

/** Whether a number is not what rounding the truth gives. */
static inline bool differs(const evidence *e, int64_t k, double own)
{
    const double right = e->rounded[k];
    return !(same(own, right) || (!e->low && fabs(own - right) <= e->slack[k]));
}

/* ---- cause_memory.c, cause_words.c ---- */

/** Room for n items of one question; NULL where there is no memory, which is told. */
void *usc_cause_room(usc_cause *c, int64_t n, size_t size);

bool usc_cause_operand(const usc_tensor *t, usc_arena *arena, operand *out);

/** Writes the clause; always true. */
bool usc_cause_say(usc_cause_found *out, const clue *said);

/* ---- numbers (cause_marks.c) ---- */

/** Element k of `x` in rising order, NaN last; moves the elements about. */
double usc_cause_nth(double *x, int64_t n, int64_t k);

/** The lower median; 0 of none. */
double usc_cause_middle(double *x, int64_t n);

/** A step that visits at most `most` of n elements: odd, so that no row is favoured. */
int64_t usc_cause_step(int64_t n, int64_t most);

/** Product of the sizes behind an axis. */
int64_t usc_cause_inner(const usc_cause *c, int axis);

/* Elements by slice: those share a number that agree in all axes but those `within`. */
typedef struct groups {
    const usc_cause *c;
    int64_t n;                  /* slices */
    int64_t step[USC_MAX_DIMS]; /* of a slice's number, by axis */
    int64_t at[USC_MAX_DIMS];   /* of the element at hand */
    int64_t row;                /* its slice */
} groups;

/** Begins at the first element. */
groups usc_cause_groups(const usc_cause *c, uint32_t within);

/** Goes to the next element; behind the last, to the first. */
void usc_cause_advance(groups *g);

/* ---- which elements ---- */

/** Elements nowhere near what float32 gives, and (fine) those further off than float32
 * and one more rounding take them; NULL where there is no memory. */
const marks *usc_cause_far(usc_cause *c);
const marks *usc_cause_fine(usc_cause *c);

/** Share of elements that are far off `t(ctx)`, as far as they are off the truth (*any:
 * some of these are near it). */
double usc_cause_far_share(usc_cause *c, candidate *t, candidate *y, const void *ctx,
                           bool *any);

/** What the device holds where `mask` says so. */
content usc_cause_holds(usc_cause *c, const uint8_t *mask, double *value);

/** Whether where `mask` says so most is off by a good part of its size, of whole numbers
 * by more than one. */
bool usc_cause_stands_out(const usc_cause *c, const uint8_t *mask);

/** Whether what is off is off by a good part of its size. */
bool usc_cause_gross(usc_cause *c, const marks *m);

/** Whether what is not far off is off as well, beyond what float32 does. */
bool usc_cause_noisy(usc_cause *c, const marks *m);

/* ---- patterns: each says true where it has filled in `out` ---- */

typedef bool usc_cause_pattern(usc_cause *c, usc_cause_found *out);

usc_cause_pattern usc_cause_lost, usc_cause_uniform, usc_cause_shuffled,
    usc_cause_reordered, usc_cause_slid, usc_cause_spread, usc_cause_padded,
    usc_cause_moved, usc_cause_exchanged_outputs, usc_cause_saturated, usc_cause_kinds,
    usc_cause_by_slices, usc_cause_by_sign, usc_cause_size, usc_cause_format,
    usc_cause_likely, usc_cause_zero_slices, usc_cause_where, usc_cause_clipped,
    usc_cause_ties;

/** Damage to some elements of which the content tells. */
bool usc_cause_damage(usc_cause *c, const marks *m, usc_cause_found *out);
bool usc_cause_region(usc_cause *c, const marks *m, usc_cause_found *out);

/** Writes the numbers of the slices that are hit ("4 and 20", "31 of every 32", "from 57
 * on"); false where they are too many to list and no pattern. */
bool usc_cause_number(usc_line *l, const uint8_t *hit, int64_t n, int64_t n_hit);

/** The element of a tensor that is broadcast to the output which stands at element i. */
int64_t usc_cause_broadcast(const usc_cause *c, const operand *o, int64_t i);

/** Bits that one value of the result tells: those of the significands that the right
 * values have. Of a count, a code or a step these are few, whatever the dtype. */
int usc_cause_told_bits(usc_cause *c);

/** Whether so many different values stand where `mask` says so (NULL: everywhere), or so
 * many wrong ones, that they are not equal to others by chance. */
bool usc_cause_tells(usc_cause *c, const uint8_t *mask);

bool usc_cause_kinds_differ(const usc_cause *c);

/** Whether every NaN and Inf that is off is the right one with the other sign. */
bool usc_cause_opposite(const usc_cause *c);

/* ---- factors (cause_rooms.c, cause_size.c) ---- */

/** Elements that are finite in all, and how far rounding may have moved each. */
typedef struct rooms {
    double *d, *t, *room;
    int64_t n;
} rooms;

bool usc_cause_rooms(usc_cause *c, bool shrunk, rooms *out);

/** Whether the truth holds so few numbers, seen as finely as the error is large, that
 * each error comes back as a factor. */
bool usc_cause_few_values(usc_cause *c);

/** Share of the elements that one factor suits; 0 where none does. */
double usc_cause_factor(usc_cause *c, const rooms *r, double *factor);

/* ---- evidence ---- */

bool usc_cause_gather(usc_cause *c); /* cause_evidence.c: all of `e`; false: no memory */

/** What numbers leave of the error (USC_CAUSE_LEFT). */
double usc_cause_left(usc_cause *c, candidate *value, const void *ctx);

int64_t usc_cause_independent(usc_cause *c);

#endif
