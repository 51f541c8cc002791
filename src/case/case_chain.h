// SPDX-License-Identifier: Apache-2.0
// What elements come to together, of runs that round otherwise and of a device:
// chain_sums.c. Serves case_chain.c.
#ifndef USC_CASE_CHAIN_H
#define USC_CASE_CHAIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    USC_CHAIN_SURE = 2,         /* that round to nearest come first; then by chance */
    USC_CHAIN_RUNS = 8,         /* after which there is a first decision, */
    USC_CHAIN_ALL = 32,         /* and a last one */
    USC_CHAIN_SAMPLE = 1 << 14, /* elements of which the sizes of errors are compared */
    USC_CHAIN_HOPELESS = 4      /* times what any run comes to */
};

/* Of what one of them is off by: products with the truth, and the sum. */
typedef struct usc_chain_sums {
    double share, size, mean;
    double own, own_share; /* of a device: what its own rounding adds to their squares */
    int64_t n;
} usc_chain_sums;

/* What runs come to: sums of squares over those by chance, and the most of those that
 * round to nearest, whose constants lean to one side. */
typedef struct usc_chain_drifts_of_runs {
    double share, mean;
    double leans_share, leans_mean;
    int n_runs; /* by chance */
} usc_chain_drifts_of_runs;

typedef struct usc_chain_sample {
    double *device, *loss, *room; /* what it is off by, what runs lose, room for n */
    const float *runs;            /* what each is off by, one run behind the other */
    double *off, *truth, *own; /* of a device: with its sign and its own rounding; R; the
                                   * variance of that rounding. 0: it is none of these */
    int n_runs;
    int64_t n;
} usc_chain_sample;

/** Times what runs lose at an element: as far as one of n may lie from the truth. */
double usc_chain_limit(int64_t n);

void usc_chain_add(usc_chain_sums *sums, double off, double r);

/** The variance of a rounding to numbers that lie `ulp` apart; adds to *share what it
 * does to products with the truth. */
double usc_chain_own(double r, double ulp, double *share);

void usc_chain_drift(usc_chain_drifts_of_runs *all, const usc_chain_sums *run,
                     bool chance);

/** The device's share and mean beside those of the runs; above 1: further off. */
double usc_chain_drifts(const usc_chain_drifts_of_runs *all,
                        const usc_chain_sums *device);

/** The same of the sizes of errors, each beside what runs lose there. */
double usc_chain_spread(const usc_chain_sample *s);

/** The same of the share of the truth by which all is off, each element weighed by what
 * it tells: a large one that loses much does not hide what all others have in common. */
double usc_chain_leans(const usc_chain_sample *s);

#endif
