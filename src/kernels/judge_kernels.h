// SPDX-License-Identifier: Apache-2.0
// The inner loops of the judge over one block of elements, one table per instruction set,
// equal bits in all of them. Definitions: docs/reference/metrics.md, 2. Neighbours:
// judge_kernels.c (scalar, the definition), judge_kernels_avx2.c, judge_kernels_avx512.c,
// judge_pass.c (the caller).
#ifndef USC_JUDGE_KERNELS_H
#define USC_JUDGE_KERNELS_H

#include <ulpscope/judge.h>

/* Elements a kernel sees at most in one go; part of the definition of the sums. */
#define USC_JUDGE_BLOCK 512
#define USC_JUDGE_LANES 8

/* What usc_judge_kernels.bin writes for a score of zero: the element matches. */
#define USC_BIN_MATCH USC_N_SCORE_BINS

/* Bins of which neighbours are counted in pairs: scores below 2^8. A power of two. */
#define USC_N_LOW_BINS 64

/** What depends on the device's dtype and on the replays so far, not on the element. */
typedef struct usc_score_params {
    double min_power;   /* 2^emin of the device's dtype */
    double half_ulp;    /* half an ulp of 1: 2^-p */
    double ulp_inverse; /* one over an ulp of 1: 2^(p-1) */
    double largest;     /* largest finite value */
    double overflow;    /* smallest value that rounds to Inf */
    double unit;        /* u: one rounding of the working precision */
    double floor;       /* smallest scale */
    double s_factor;    /* accumulator to S; 0 for exact operators */
    double n_factor;    /* accumulator to N; 0 for exact operators */
    double s_unknown;   /* S where a replay left the domain */
    double typical;     /* |R| below it counts as this: what makes four bits of it */
    double leave_out;   /* ill-conditioned elements score 0 up to this score */
    double expect;      /* score for which expected mismatches are summed */
} usc_score_params;

/** What one block adds up to. */
typedef struct usc_score_sums {
    double max;                       /* largest score */
    double expected[USC_JUDGE_LANES]; /* element i of the block goes to lane i mod 8 */
    int64_t n_ill; /* ill-conditioned: fewer than 4 bits are right, or could be told */
    bool special;  /* an element is or rounds to NaN or Inf: score 0 */
} usc_score_sums;

/** A histogram while it is counted: eight of them, so that equal neighbours do not wait
 * for each other's count. */
typedef struct usc_counters {
    int64_t of[8][USC_N_SCORE_BINS + 1];
} usc_counters;

/** Counts eight bins, a byte each. */
static inline void usc_count_eight(uint64_t bins, usc_counters *c)
{
    c->of[0][bins & 0xff]++;
    c->of[1][bins >> 8 & 0xff]++;
    c->of[2][bins >> 16 & 0xff]++;
    c->of[3][bins >> 24 & 0xff]++;
    c->of[4][bins >> 32 & 0xff]++;
    c->of[5][bins >> 40 & 0xff]++;
    c->of[6][bins >> 48 & 0xff]++;
    c->of[7][bins >> 56]++;
}

/** What usc_judge_kernels.screen reads of a block. */
typedef struct usc_screen_operands {
    const void *d;
    const double *r;
    const void *s, *n; /* NULL: those of one replay, namely */
    const double *rk;  /* NULL as well: S = N = 0 */
    const float *yk;
    bool wide; /* S and N are doubles: of a float64 output */
} usc_screen_operands;

/** What it leaves, where it says true. */
typedef struct usc_screened {
    double max; /* largest score seen; a block with a larger one is sent away */
    int64_t n_mismatch;
    /* By bin, where bin 0 holds matches as well. */
    usc_counters counters;
    uint32_t pairs[USC_N_LOW_BINS * USC_N_LOW_BINS]; /* a and b: [a + N b], a, b < N */
} usc_screened;

/** What the appeal forgives and counts, as far as it is the same for all elements. */
typedef struct usc_weigh_rule {
    double t_fast, t_max; /* an element fails above t_fast, is wrong above t_max */
    double below;         /* |D| up to this is zero where R = 0 */
    bool excuse;          /* not exact: what Y gave is no error */
    unsigned forgive;     /* elements with one of these flags score 0 */
    bool mark_flush;      /* set USC_FLUSHED_* where flushing explains an element */
    bool half; /* float16, float8: lost subnormals are counted, not explained */
} usc_weigh_rule;

/** One block of the appeal: score and flags are read and written, rel is written. */
typedef struct usc_weigh_operands {
    const double *d, *r, *y, *y_raw; /* y: y_raw rounded to the device's dtype */
    const double *flushed;           /* NULL: none */
    const float *s, *n;
    uint8_t *flags;
    double *score, *rel;
} usc_weigh_operands;

typedef struct usc_weighed {
    int64_t n_below, n_failing, n_f16_lost, n_beyond, n_over_ulp, n_signs;
    int64_t n_flushed, n_flushed_out, n_flushed_in, sum_signs;
    double max, rel_max;
} usc_weighed;

typedef struct usc_judge_kernels {
    /* Scores of n <= USC_JUDGE_BLOCK elements: device d against reference r. */
    void (*score)(const usc_score_params *p, const double *d, const double *r,
                  const float *s, const float *n, size_t count, double *score,
                  usc_score_sums *sums);
    /* Histogram bin of each score, USC_BIN_MATCH for zero. */
    void (*bin)(const double *score, size_t count, uint8_t *bins);
    /* Adds replay (rk, yk) to the accumulators s and n. False where yk differs from rk
     * anywhere. */
    bool (*accumulate)(const double *r, const double *rk, const double *yk, size_t count,
                       float *s, float *n);
    /* A quicker score and bin for blocks of ordinary elements whose scores are at most
     * out->max; NULL where there is none. `dtype` is how o->d is read: one of
     * usc_screens(), or float64 for all others, widened. Adds to *out. False, and *out as
     * it was, where an element is special, ill-conditioned or above that, or count is no
     * multiple of 16. */
    bool (*screen)(const usc_score_params *p, usc_dtype dtype,
                   const usc_screen_operands *o, size_t count, usc_screened *out);
    /* The appeal over n elements, n % 4 == 0, none of which is special; NULL where there
     * is none. The definition is usc_judge_element(). */
    void (*weigh)(const usc_score_params *p, const usc_weigh_rule *rule,
                  const usc_weigh_operands *o, size_t n, usc_weighed *out);
    /* Rounds n numbers that float32 holds to bfloat16 or float16; NULL as above. */
    void (*round)(usc_dtype dtype, const double *x, size_t n, double *out);
} usc_judge_kernels;

/* Accumulators hold S and N times 2^-16: float's range then covers those of a float32
 * output. One factor for both: the larger may be taken before it is rounded. */
#define USC_STORED 0x1p-16
#define USC_FOUR_BITS 0x1p-4 /* of |R|: an error beyond it leaves fewer than 4 bits */
#define USC_DELTA 0x1p-20
#define USC_FLUSHED_OUT 1u /* flags: a subnormal result that became zero */
#define USC_FLUSHED_IN 2u  /* flags: what the flushed replay gives as well */

/* Flushing matters where it moves the result by more than so many roundings. */
#define USC_FLUSH_SHOWS 16.0

/* Whether `screen` reads a device's output of this dtype as it is. */
static inline bool usc_screens(usc_dtype dtype)
{
    return dtype == USC_F32 || dtype == USC_F16 || dtype == USC_BF16 ||
           dtype == USC_F8_E4M3 || dtype == USC_F8_E5M2;
}

extern const usc_judge_kernels usc_judge_kernels_scalar;
#if defined(__x86_64__)
extern const usc_judge_kernels usc_judge_kernels_avx2, usc_judge_kernels_avx512;

/* In files of their own; `screen`, `weigh` and `round` of the tables above. */
bool usc_judge_screen_avx2(const usc_score_params *p, usc_dtype dtype,
                           const usc_screen_operands *o, size_t count, usc_screened *out);
bool usc_judge_screen_f32_avx2(const usc_score_params *p, const usc_screen_operands *o,
                               size_t count, usc_screened *out);
bool usc_judge_screen_avx512(const usc_score_params *p, usc_dtype dtype,
                             const usc_screen_operands *o, size_t count,
                             usc_screened *out);
bool usc_judge_screen_f32_avx512(const usc_score_params *p, const usc_screen_operands *o,
                                 size_t count, usc_screened *out);
void usc_judge_weigh_avx2(const usc_score_params *p, const usc_weigh_rule *rule,
                          const usc_weigh_operands *o, size_t n, usc_weighed *out);
void usc_judge_round_avx2(usc_dtype dtype, const double *x, size_t n, double *out);
#endif

/** The table for the instruction set that the library uses. */
const usc_judge_kernels *usc_judge_kernels_active(void);

/* The same for float64 outputs, whose accumulators are doubles: scalar only. */
void usc_judge_score_wide(const usc_score_params *p, const double *d, const double *r,
                          const double *s, const double *n, size_t count, double *score,
                          usc_score_sums *sums);
bool usc_judge_accumulate_wide(const double *r, const double *rk, const double *yk,
                               size_t count, double *s, double *n);

#endif
