// SPDX-License-Identifier: Apache-2.0
// What a judge holds, and the passes over its operands. Neighbours: judge.c (life and
// replays), judge_pass.c (passes), judge_rule.c (decision), judge_show.c (examples).
#ifndef USC_JUDGE_STATE_H
#define USC_JUDGE_STATE_H

#include "kernels/walk_load.h"

#define USC_BLOCKS_PER_CHUNK 64 /* what a thread takes at once */
#define USC_JUDGE_THREADS 64    /* most threads of a judge */

/* How the elements are looked at; kept, so that examples show the same scores. */
typedef struct usc_view {
    bool appeal;
    bool exact;         /* S = N = 0 */
    unsigned forgive;   /* elements with one of these flags score 0 */
    bool mark_flush;    /* set USC_FLUSHED_* where flushing explains an element */
    bool count_kept;    /* count n_kept_*; looks at every element, one by one */
    bool only_expected; /* nothing but expected mismatches is asked for */
    double t_fast;      /* T of the first look; 0 where values only move */
    double t_max;       /* T of the worst element */
    double below;       /* |D| up to this is zero where R = 0 */
    double expect;      /* score whose expected mismatches are summed */
    double typical;     /* |R| that an element counts as having at least */
    double leave_out;   /* ill-conditioned elements with scores up to it score 0 */
} usc_view;

/* Everything counted in one pass; all of it independent of order and threads. */
typedef struct usc_tally {
    int64_t n_mismatch, n_bad, n_free, n_nonfinite;
    int64_t n_ill;     /* fewer than 4 bits are right, or could be told */
    int64_t n_failing; /* above the first look's limit, or bad */
    /* failing and explained by flushing: in either way, of the result, inside */
    int64_t n_flushed, n_flushed_out, n_flushed_in;
    int64_t n_kept_out, n_kept_in; /* right, where the same flushing would fail */
    int64_t n_f16_lost;            /* failing: float16 subnormal flushed to zero */
    int64_t n_beyond;              /* above t_max without being one of those */
    int64_t n_over_ulp;            /* further from R than one ulp of the output */
    int64_t n_signs, sum_signs;
    int64_t n_undefined; /* truth is NaN or Inf */
    int64_t n_nan_inf;   /* the device gave NaN or Inf */
    int64_t n_below;     /* R = 0 and D not: needs the typical size of R */
    int64_t i_worst, i_nonfinite;
    double max, rel_max;
    double modulus_max; /* of pairs: largest error in roundings of the whole number */
    int64_t scores[USC_N_SCORE_BINS], rels[USC_N_SCORE_BINS];
    double expected; /* expected mismatches at score view.expect */
} usc_tally;

/* S or N of one block as they are stored. */
typedef union usc_block_sums {
    float narrow[USC_JUDGE_BLOCK];
    double wide[USC_JUDGE_BLOCK]; /* of float64 outputs */
} usc_block_sums;

/* Per thread. */
typedef struct usc_judge_scratch {
    double d[USC_JUDGE_BLOCK], r[USC_JUDGE_BLOCK], y[USC_JUDGE_BLOCK];
    double k[USC_JUDGE_BLOCK], f[USC_JUDGE_BLOCK], score[USC_JUDGE_BLOCK];
    unsigned char narrow[USC_JUDGE_BLOCK * 8];
    uint8_t bins[USC_JUDGE_BLOCK];
    usc_counters counts;
    usc_screened quick;          /* of screened blocks */
    double visible;              /* expected mismatches so far */
    double rel[USC_JUDGE_BLOCK]; /* score relative to max(|R|, N); 0: matches */
    usc_counters rel_counts;
    usc_block_sums s, n; /* of the first replay while they are not stored */
    usc_walk_room room, r_room, k_room;
    usc_tally tally;
} usc_judge_scratch;

struct usc_judge {
    usc_alloc alloc;
    int n_threads;
    usc_tensor device; /* the view as given: positions need its axes */
    usc_walk d, r, y;
    usc_dtype dtype;
    bool pairs; /* elements 2k and 2k + 1 are one complex number */
    bool small; /* float16, float8: subnormals are numbers that models use */
    bool wide;  /* float64: accumulators are doubles, the yardstick is no excuse */
    const usc_judge_kernels *kernels;
    usc_score_params params;
    int64_t n;
    int n_replays;
    bool exact;      /* Y = R so far, on every replay */
    void *s, *n_acc; /* float or, where wide, double */
    uint8_t *flags;
    bool lazy;                  /* one replay came, and s, n_acc are not stored: */
    usc_walk rk, yk;            /* its operands */
    usc_judge_scratch *scratch; /* n_threads of them */
    double *chunk_sums;
    bool looked; /* view is that of a look or appeal */
    usc_view view;
};

/** One element as the examples need it. */
typedef struct usc_element {
    int64_t index;
    double d, r, y, score;
    bool bad;
} usc_element;

typedef void usc_element_function(void *ctx, const usc_element *element);

/** Runs `work(ctx, thread, first, last)` over the chunks, on the judge's threads. */
void usc_judge_split(const usc_judge *j,
                     void (*work)(void *ctx, int thread, int64_t first, int64_t last),
                     void *ctx);

int64_t usc_judge_n_chunks(const usc_judge *j);

/** Checks one operand: dims as the device's output, dtype among those allowed. */
usc_status usc_judge_check(const char *what, const usc_tensor *t,
                           const usc_tensor *device, bool float32_too, usc_error *err);

/** Whether a and b are equal in all elements, NaN equal to NaN. */
bool usc_judge_equal(usc_judge *j, const usc_walk *a, const usc_walk *b);

/** Bytes of the stored S, and of N. */
size_t usc_judge_acc_size(const usc_judge *j);

/** Takes room for S, N and flags, and stores S and N of a lazy first replay. */
usc_status usc_judge_store(usc_judge *j, usc_error *err);

/** S and N of a block as they are stored: floats or, where wide, doubles. */
typedef struct usc_scales {
    const void *s, *n;
} usc_scales;

/** One of them, in units of its factor. */
static inline double usc_judge_stored(const usc_judge *j, const void *sums, int64_t i)
{
    return j->wide ? ((const double *)sums)[i] : (double)((const float *)sums)[i];
}

/** The scales of a block whose R is loaded; uses the scratch's k and y. */
usc_scales usc_judge_scales(const usc_judge *j, usc_judge_scratch *s, bool exact,
                            int64_t at, size_t count, const double *r);

/** Kernel parameters for a view. */
usc_score_params usc_judge_params(const usc_judge *j, const usc_view *view);

/** One pass under `view`; `flushed` may be NULL. */
void usc_judge_pass(usc_judge *j, const usc_view *view, const usc_tensor *flushed,
                    usc_tally *out);

/** Calls back for each element that does not match, in index order. */
void usc_judge_each(usc_judge *j, const usc_view *view, usc_element_function *call,
                    void *ctx);

/** Median of |R| over finite elements that are not zero, to a quarter of a binade below;
 * 0 where there is none. */
double usc_judge_median_size(usc_judge *j);

/** Root mean square of R where the output is one whole that reacts evenly to its inputs,
 * as a Fourier transform or a product of matrices is: the median of S is within a factor
 * of 16 of it, that of the scale at most 2^12 of it. Then what cancels beside larger
 * elements is no less certain than they are. 0 for all others. */
double usc_judge_common_size(usc_judge *j, const usc_view *view);

/** Scores of Y rounded to the device's dtype, over at most 64 blocks spread evenly. */
void usc_judge_yardstick(usc_judge *j, const usc_view *view, int64_t *n_mismatch,
                         double *max, int64_t scores[USC_N_SCORE_BINS]);

/** What the output's form tells; counts are elements. */
typedef struct usc_form {
    int64_t n_long, n_long_truth; /* float32: need more than 11 significand bits */
    int64_t n_subnormal, n_zero;  /* float16: the truth is subnormal; 0 stands for it */
} usc_form;

/** Looks at D and R once; zero for other dtypes. */
usc_form usc_judge_form(usc_judge *j);

/** The value at share `q` of `m` scores counted in `bins` whose largest is `max`. */
double usc_judge_quantile(const int64_t bins[USC_N_SCORE_BINS], int64_t m, double max,
                          double q);

#endif
