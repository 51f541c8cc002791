// SPDX-License-Identifier: Apache-2.0
// Draws as the tests see them: each as an even number on [0, 1). Laws make them
// (draw_law.c, draw_choice.c, draw_mask.c), tests look at them (draw_even.c,
// draw_count.c), draw_finding.c says what came of it.
#ifndef USC_DRAW_DRAWS_H
#define USC_DRAW_DRAWS_H

#include <ulpscope/x/draw.h>

#include "base/arena.h"
#include "base/words.h"

/* Each test has a chance of about CHANCE of a false alarm; all of one call together stay
 * near 1e-6 (docs/reference/operators.md, "Random operators"). */
#define USC_DRAW_CHANCE 1e-7
#define USC_DRAW_SIGMAS 5.33 /* the same of one normal deviate, either side */
/* What a family of many tests shares: classes of places, pairs, digits, tails, repeats.
 */
#define USC_DRAW_FAMILY 2e-8

enum {
    USC_DRAW_ENOUGH = 32,   /* below it a law cannot be told from another */
    USC_DRAW_MOST = 1 << 22 /* more tell nothing more: the first and last of them */
};

/* What is said of fewer draws than USC_DRAW_ENOUGH; a format of how many. */
#define USC_DRAW_FEW "draws random numbers: %s " USC_SAID_FEW

/** A clause on what is odd; "" for nothing. */
typedef struct usc_clause {
    char text[240];
} usc_clause;

/** Writes a clause, in the locale "C"; always true. */
bool usc_clause_set(usc_clause *out, const char *format, ...) USC_PRINTF(2, 3);

typedef struct usc_scores usc_scores; /* draw_place.h */

/** The draws that one output shows. */
typedef struct usc_draws {
    usc_arena *arena;     /* where all of it lies */
    int64_t n;            /* elements of the output */
    int64_t n_known;      /* whose draws it shows */
    int64_t n_impossible; /* values that are never drawn: the first, and where */
    double impossible;
    int64_t at;
    double *u; /* even numbers of the first and last of them; NaN: unknown */
    int64_t n_u;
    float *mid;     /* the middle of each one's part: hangs on the value alone */
    int64_t n_seen; /* known ones among these */
    double freedom; /* sum of what the middles vary by, (1 - length^2) / 12 each */
    double lengths; /* their sum: on average the chance of two draws to be one */
    double longest; /* part */
    bool varies;    /* the law is not the same for all */
    double family;  /* what a family of tests has of false alarms: USC_DRAW_FAMILY */
    int ndim;       /* of the output, whose axes the draws have; 0: none is known */
    int64_t sizes[USC_MAX_DIMS];
    uint64_t *whole;      /* how far each whole number lies above the least; NULL */
    double range;         /* so many there are */
    int first_bit;        /* that the dtype holds of all of them */
    bool once;            /* each of them comes once */
    float *parity;        /* 1 or 0 less its chance of each category to be odd; NULL */
    double parity_spread; /* the sum of their variances */
    double *values;       /* of a continuous law, as many; NULL where values come again */
    double slack;         /* how far rounding may shift the law */
    double atom;          /* the largest chance of one value */
    unsigned char *hits;  /* the known draws of one probability `chance`; NULL */
    int64_t n_hits;
    double chance;
    double *came, *due; /* how often each category did and should; NULL */
    int64_t n_cells;
    usc_scores *scores; /* what tests count; NULL: not yet */
    usc_clause outside; /* why else no honest draw can be so */
    usc_clause odd;     /* what no honest draws together can be */
} usc_draws;

/** Begins with room for the even numbers of n elements, all unknown. */
void usc_draws_begin(usc_draws *d, usc_arena *arena, int64_t n);

/** Elements `from` to from + n - 1 of a tensor, as another dtype holds them. */
void usc_draws_read(const usc_tensor *t, usc_dtype dtype, int64_t from, int64_t n,
                    double *out);

/** How far roundings may move what is made of draws in a dtype, as a share of it; 0 of
 * whole numbers. And so much of the root mean square beside it. */
double usc_draws_share(usc_dtype dtype);
#define USC_DRAWS_LEAST 0x1p-14

/** Says which axes the draws have: those of `t`, if they are its elements. */
void usc_draws_shape(usc_draws *d, const usc_tensor *t);

/** The element whose even number lies at a place. */
int64_t usc_draws_element(const usc_draws *d, int64_t place);

/** The place of element i among the even numbers; -1 where it is not looked at. */
int64_t usc_draws_place(const usc_draws *d, int64_t i);

/** Element i is a draw from [low, high) of [0, 1): a point at chance in it. */
void usc_draws_put(usc_draws *d, uint64_t stream, int64_t i, double low, double high);

/** Notes a value that is never drawn; the first is told, the others counted. */
void usc_draws_refuse(usc_draws *d, int64_t i, double value);

/** Which number the points of a further answer come from. */
enum { USC_DRAW_FIRST, USC_DRAW_AGAIN };

/* ---- tests; each tells whether something is odd, and what ---- */

/** Of even numbers: average, spread, distribution, blocks, correlation at any lag. */
bool usc_draws_uneven(usc_draws *d, usc_clause *out);

/** Of even numbers: the tails, and smooth waves over [0, 1). */
bool usc_draws_bent(usc_draws *d, usc_clause *out);

/** Of any class of places: an index or some neighbours of an axis, a residue, a tile, a
 * stretch: those in it lie off together, or all classes lie too even. */
bool usc_draws_placed(usc_draws *d, usc_clause *out);

/** Says where draws that are odd together are, if only a part of them is. */
bool usc_draws_off_in_part(usc_draws *d, usc_clause *out);

/** Of pairs: what two places that are far apart by a power of two have to do with each
 * other, be it not in proportion. */
bool usc_draws_paired(usc_draws *d, usc_clause *out);

/** Of digits: every stretch of bits of whole numbers and of even numbers, residues. */
bool usc_draws_digits_odd(usc_draws *d, usc_clause *out);

/** The chance that bits [bit, bit + width) of an even whole number of [0, range) are
 * `digit`. */
double usc_digit_chance(double range, int bit, int width, int64_t digit);

/** Of a stretch that comes again, in the other answer, too, if there is one (NULL). */
bool usc_draws_again(usc_draws *d, const usc_draws *other, usc_clause *out);

/** Of two answers to one call. */
bool usc_draws_related(const usc_draws *a, const usc_draws *b, usc_clause *out);

/** Of k hits among n at probability p: the exact binomial tail. chance 0: CHANCE on
 * either side. */
bool usc_count_odd(int64_t k, int64_t n, double p, double chance);

/** The same, as the logarithm of a bound of the tail on the side of k (Chernoff). */
double usc_count_log_chance(double k, double n, double p);

/** Of hits of probability p each: a run of `what` that is too long. */
bool usc_runs_odd(const unsigned char *hits, int64_t n, bool what, double p,
                  usc_clause *out);

/** Of counts against what is due: chi-square. */
bool usc_counts_odd(const double *came, const double *due, int64_t n, usc_clause *out);

/** Of values of a continuous law: one that comes too often, or fills the end. */
bool usc_values_repeat(usc_draws *d, usc_clause *out);

/* ---- laws; docs/reference/metrics.md, 4 ---- */

typedef struct usc_law usc_law;

/** A parameter: a number, or a tensor that broadcasts to the output. */
typedef struct usc_parameter {
    double number;
    const usc_tensor *tensor; /* NULL: the number */
} usc_parameter;

enum { USC_LAW_PARAMETERS = 2 };

/** What was drawn. */
typedef struct usc_law_values {
    const usc_tensor *tensor;
    const usc_tensor *shown; /* which of them are draws: not 0; NULL: all */
    bool truth;              /* of the values only whether they are zero */
    uint64_t stream;         /* USC_DRAW_FIRST or USC_DRAW_AGAIN */
} usc_law_values;

/** Draws of a law, element by element. */
USC_NODISCARD usc_status usc_draws_of_law(usc_draws *d, const usc_law *law,
                                          const usc_parameter *p,
                                          const usc_law_values *values, usc_error *err);

extern const usc_law usc_law_even, usc_law_even_closed, usc_law_normal, usc_law_whole,
    usc_law_bernoulli, usc_law_exponential, usc_law_cauchy, usc_law_log_normal,
    usc_law_geometric, usc_law_poisson;

/** Keeps the whole numbers of [low, low + range) that were drawn, bit for bit. */
USC_NODISCARD usc_status usc_draws_take_whole(usc_draws *d, const usc_tensor *t,
                                              double low, double range, usc_error *err);

/** Draws of a permutation of 0 to n - 1: which places come where. */
USC_NODISCARD usc_status usc_draws_of_permutation(usc_draws *d, const usc_tensor *t,
                                                  uint64_t stream, usc_error *err);

/** Draws of categories by their weights, with or without putting them back. */
USC_NODISCARD usc_status usc_draws_of_categories(usc_draws *d, const usc_tensor *t,
                                                 const usc_tensor *weights, bool back,
                                                 uint64_t stream, usc_error *err);

/** Draws of ones and zeros as one answer shows them. */
USC_NODISCARD usc_status usc_draws_of_mask(usc_draws *d, const usc_draw_mask *mask,
                                           uint64_t stream, usc_error *err);

/** Doubles of a whole tensor, row-major; NULL where there is no memory. */
double *usc_draws_doubles(usc_arena *arena, const usc_tensor *t, int64_t n);

/** A view of `t` with the shape of `like`, as broadcasting gives it. */
USC_NODISCARD usc_status usc_draws_broadcast(const usc_tensor *t, const usc_tensor *like,
                                             usc_tensor *out, usc_error *err);

/* ---- findings ---- */

/** Adds the finding on draws of an output of the form of `t`; `again`: of another answer
 * to the same call, or NULL. */
USC_NODISCARD usc_status usc_draws_finding(usc_findings *f, const char *path,
                                           const usc_tensor *t, usc_draws *d,
                                           usc_draws *again, usc_error *err);

/** Adds a pass on which only the draws were tested, or what else is said of it: it has no
 * bits. */
USC_NODISCARD usc_status usc_draws_say(usc_findings *f, usc_verdict verdict,
                                       const char *path, const usc_tensor *t,
                                       const char *reason, bool few, usc_error *err);

/**
 * Whether the draws of a crowd are the same n numbers in other orders, and the device's
 * are not: in the whole, at an index of an axis, or slice by slice. Not looked at in more
 * than 2^20 elements. Memory: in the arena.
 */
bool usc_draw_order_odd(const usc_draw_crowd *of, int64_t n, usc_arena *arena,
                        usc_clause *out);

#endif
