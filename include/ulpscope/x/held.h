// SPDX-License-Identifier: Apache-2.0
// What some operators leave free in their outputs together: the order of values that
// nobody sorted, signs and rotations of the vectors of a decomposition. A device's
// outputs are brought to the order and the gauge of what they are held to before a case
// judges them one by one. docs/reference/excuses.md, rows `order` and `gauge`.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_HELD_H
#define ULPSCOPE_X_HELD_H

#include <ulpscope/alloc.h>
#include <ulpscope/tensor.h>

USC_BEGIN_DECLS

enum { USC_GAUGE_SIDES = 2 };

/** Results of a decomposition, by number. */
typedef struct usc_gauge {
    const char *name; /* of the operator, bare */
    int n_sides;      /* results that hold vectors, which turn together */
    int side[USC_GAUGE_SIDES];
    bool rows[USC_GAUGE_SIDES]; /* they are its rows, conjugated; else its columns */
    int values;                 /* the result that holds values; -1: none */
    bool unordered;             /* values come in any order */
    bool null; /* vectors of value 0 turn in each result for themselves */
} usc_gauge;

/**
 * The gauge of an operator of that bare name; NULL where it is no decomposition.
 *
 * Memory:  static.
 * Threads: safe.
 */
USC_API const usc_gauge *usc_gauge_by_name(const char *name);

/** What is free; all zero: nothing. */
typedef struct usc_freedom {
    bool unsorted;          /* values lie in any order along `dim`, */
    int dim;                /* and so does all that has their form, */
    int inverse;            /* but a result that holds places among them; -1: none */
    const usc_gauge *gauge; /* NULL: no decomposition */
    int ndim;               /* of the matrices that are taken apart */
    int64_t fewest;         /* of their last two sizes the smaller one */
    double rounding;        /* of their dtype: the distance of 1 to the next number */
} usc_freedom;

/** What holds the outputs that were changed. */
typedef struct usc_held_room usc_held_room;

/** One output, and what it is held to. Both lie in rows without gaps. */
typedef struct usc_held {
    const char *path; /* "out[1]" */
    usc_tensor device, truth;
} usc_held;

/**
 * Brings `device` of outputs to the order and the gauge of `truth`; of those that change
 * its data lie elsewhere from then on.
 *
 * Numbers: an order by values, a turn where it makes the distance half as large at least.
 *          Outputs of another form or that hold no number stay as they are.
 * Memory:  `*keep` holds what is changed until usc_held_free; NULL there: nothing was.
 * Threads: safe for different outputs.
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_held_bring(const usc_freedom *what,
                                                usc_held *outputs, int n,
                                                const usc_alloc *alloc,
                                                usc_held_room **keep, usc_error *err);

/** Takes NULL. Threads: safe for different rooms. */
USC_API void usc_held_free(usc_held_room *keep);

USC_END_DECLS
#endif
