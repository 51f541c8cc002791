// SPDX-License-Identifier: Apache-2.0
// Classes of places and scores of draws, for draw_class.c (which sums scores by class).
// Layouts and scores: draw_place.c; words: draw_class_say.c.
#ifndef USC_DRAW_DRAW_PLACE_H
#define USC_DRAW_DRAW_PLACE_H

#include "draw/draws.h"

#include "draw/draw_special.h"

/** What one draw counts. */
typedef struct usc_score {
    const float *y; /* by place; of mean 0; NaN: unknown */
    enum {
        USC_SCORE_HITS, /* ones less their probability */
        USC_SCORE_LEVEL,
        USC_SCORE_SPREAD,
        USC_SCORE_BIT, /* `bit` of a whole number */
        USC_SCORE_ODD, /* categories of odd numbers */
    } kind;
    int bit;
    double variance, slack;
    double least, most; /* how far one can lie to each side; 0: no wider than normal */
    double chance;      /* of ones, if they are: their tail is known; else 0 */
    bool together;      /* whether the evenness of classes is tested; then also: */
    double kurtosis, enough; /* excess; variance of a class */
} usc_score;

enum { USC_MOST_SCORES = 6 };

struct usc_scores {
    usc_score of[USC_MOST_SCORES];
    int n;
};

/** The scores of draws, the first that of their level; NULL without memory. Kept in
 * `d`. */
const usc_scores *usc_scores_of(usc_draws *d);

/** Element i is of class (i % cycle) / run; with a table of columns, of class
 * (i % cycle) / run * n_columns + columns[i % width]. */
typedef struct usc_layout {
    enum {
        USC_BY_AXIS,
        USC_BY_RESIDUE, /* of the number of the element */
        USC_BY_STRETCH, /* of so many elements */
        USC_BY_TILE,    /* of `edge` rows and columns */
        USC_BY_THREAD,  /* the place in such a tile */
    } kind;
    int axis;
    int64_t edge;
    int64_t cycle, run, n;
    int64_t width, n_columns; /* 0: no table */
    const int32_t *columns;
    bool residues; /* those of the class are looked at as well */
    bool exact;    /* but of a divisor alone: the classes are residues themselves */
} usc_layout;

typedef struct usc_class_sum {
    double sum;
    int64_t n;
} usc_class_sum;

enum { USC_MOST_LAYOUTS = USC_MAX_DIMS + 32 };

typedef struct usc_places {
    usc_layout layouts[USC_MOST_LAYOUTS];
    int n;
    int64_t n_levels; /* of all */
    usc_class_sum *sums, *room;
} usc_places;

/** All layouts of the places of draws, with room for sums; false without memory. */
bool usc_places_lay_out(usc_draws *d, usc_places *out);

/** A class that is off. */
typedef struct usc_odd_class {
    double beyond; /* below 0: the logarithm of how far below the bound its chance is */
    usc_class_sum sum;
    const usc_score *score;
    const usc_layout *layout;
    usc_layout layout_of; /* that of what was found */
    int64_t modulus;      /* 0: none */
    int64_t from, size;
    bool all, too_even;
    double trend; /* in standard deviations; 0: it is none */
} usc_odd_class;

/** Says where and how; always true. */
bool usc_odd_class_say(const usc_draws *d, const usc_odd_class *odd, usc_clause *out);

#endif
