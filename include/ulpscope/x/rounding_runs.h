// SPDX-License-Identifier: Apache-2.0
// What runs on the CPU need that round as another honest device might: sums in other
// orders, steps and terms moved by their roundings, narrower formats, and memory for large
// ones.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_ROUNDING_RUNS_H
#define ULPSCOPE_X_ROUNDING_RUNS_H

#include <ulpscope/judge.h>

USC_BEGIN_DECLS

/* Terms of a float32 sum: at most half an ulp each is lost, 2^-8 of them all. */
enum { USC_NEVER_STALLS = 1 << 16 };

/* How the terms of a sum are added in float32. */
typedef struct usc_order {
    int n_inner;    /* the last so many dimensions are added up; the others are rows */
    int n_parts;    /* accumulators, one after the other in the terms; 0 means 1 */
    bool backwards; /* from the last term to the first */
    bool stalls;    /* a sum that has stopped growing stands */
} usc_order;

/**
 * Sums of float32 numbers, each accumulator from 0 on and rounded after each term; those
 * of the parts are added from the first on. With `centre` the squares of what terms
 * differ from their row's number in it, rounded twice. A sum of more than
 * USC_NEVER_STALLS terms that is off by more than 2^-8 of all their sizes has stopped growing: no device may, and unless
 * it `stalls` the true sum stands in its place.
 *
 * Shapes:  terms of any strides; `centre` (may be NULL) and `out` hold a number a row.
 * Memory:  allocates nothing; `out` must not overlap the terms.
 * Threads: safe while nobody writes the terms.
 * Errors:  USC_E_DTYPE (no float32), USC_E_ARG (more inner dimensions than there are,
 *          parts below 0 or beyond 64); `out` is as it was then.
 */
USC_API USC_NODISCARD usc_status usc_sum_in_order(const usc_tensor *terms,
                                                  const usc_order *order,
                                                  const float *centre, float *out,
                                                  usc_error *err);

/**
 * What usc_perturb gives for all elements of a float32 or narrower tensor, all of which
 * float32 holds.
 *
 * Shapes:  as there; `out` has room for as many floats.
 * Memory:  allocates nothing; `out` must not overlap x.
 * Threads: safe while nobody writes x.
 * Errors:  as there, and USC_E_ARG for float64 or a share.
 */
USC_API USC_NODISCARD usc_status usc_perturb_narrow(const usc_tensor *x,
                                                    const usc_perturbation *how,
                                                    float *out, usc_error *err);

/* What a step of a run gave, element by element. */
typedef struct usc_step {
    const float *out; /* in float32 */
    const double
        *exact; /* in float64; an element as near to it as 2^-31 of itself stays */
    const double
        *flat; /* the same of smaller inputs, of a function at its limit; NULL: of none */
    const int8_t *ulps; /* by which elements move */
    double low, high;   /* the range of the function, which none leaves */
    int64_t n;
} usc_step;

/**
 * A step's results moved by so many ulps, the other way where that would leave the range
 * of the function. What is exact stays; with `flat` what lies near both, and what is 1.
 * *stayed: whether one that is not zero did.
 *
 * Memory:  allocates nothing; `moved` has room for n and may be `out`.
 * Threads: safe while nobody writes what is read.
 */
USC_API void usc_step_moved(const usc_step *step, float *moved, bool *stayed);

/**
 * Terms moved by `ulp` of themselves: up where `up` is 1, down where it is 0. The factors
 * are numbers of float32.
 *
 * Memory:  allocates nothing; `out` has room for n.
 * Threads: safe while nobody writes what is read.
 */
USC_API void usc_terms_moved(const float *x, const uint8_t *up, double ulp, int64_t n,
                             double *out);

/* A binary format of numbers. */
typedef struct usc_number_format {
    int bits; /* of the significand, 2 to 52 */
    int emin,
        emax; /* exponents of its smallest and largest normal numbers, those of float
                       at least */
} usc_number_format;

/**
 * Rounds doubles to a format in their place, to nearest, ties to even. What lies beyond
 * its largest binade becomes infinite; NaN and infinities stay.
 *
 * Memory:  allocates nothing; `x` holds n.
 * Threads: safe while nobody else touches `x`.
 */
USC_API void usc_round_to(const usc_number_format *format, double *x, int64_t n);

/**
 * The largest power of two of which all elements are multiples: 1 where all are zero, 0
 * where one is not finite, or below 2^-97 and not zero: sums of such may leave the normal
 * numbers of float32.
 *
 * Shapes:  any strides; floats that double holds.
 * Memory:  allocates nothing, keeps no pointer.
 * Threads: safe while nobody writes `t`.
 * Errors:  USC_E_DTYPE; *out is 0 then.
 */
USC_API USC_NODISCARD usc_status usc_unit_of(const usc_tensor *t, double *out,
                                             usc_error *err);

/**
 * Whether float32 has no normal number for some element: one beside zero that is smaller
 * than its normal numbers, or finite and larger. What may have been one, `maybe`, is zero
 * or infinite as well.
 *
 * Shapes:  any strides; float32 or float64.
 * Memory:  allocates nothing, keeps no pointer.
 * Threads: safe while nobody writes `t`.
 * Errors:  USC_E_DTYPE; *out is false then.
 */
USC_API USC_NODISCARD usc_status usc_beyond_float32(const usc_tensor *t, bool maybe,
                                                    bool *out, usc_error *err);

/**
 * Asks the system to back memory that nobody has touched by large pages, where it can:
 * most of what a run on a large tensor costs is the handing out of small ones.
 *
 * Memory:  `data` belongs to the caller and holds `size` bytes.
 * Threads: safe.
 */
USC_API void usc_large_pages(void *data, size_t size);

USC_END_DECLS
#endif
