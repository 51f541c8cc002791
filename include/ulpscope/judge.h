// SPDX-License-Identifier: Apache-2.0
// The judge: a verdict over operands. It never runs an operator; executors hand it what
// the device gave (D), what is true (R, float64), what an honest float32 computation
// gives (Y), and replays of both on perturbed inputs. The rule:
// docs/background/verdict.md; every formula: docs/reference/metrics.md, 2.
//
// Threads: one thread at a time per judge, which may have threads of its own inside a
// call;
//          functions without one are safe while nobody writes their operands.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_JUDGE_H
#define ULPSCOPE_JUDGE_H

#include <ulpscope/alloc.h>
#include <ulpscope/tensor.h>
#include <ulpscope/verdict.h>

USC_BEGIN_DECLS

/* Score histogram: bin 0 holds scores below 2^-8 (but above 0), bin i those in
 * [2^((i-1)/4 - 8), 2^(i/4 - 8)), the last all above. Quarter octaves. */
#define USC_N_SCORE_BINS 160

/** What the judge found for one output. Counts are elements. */
typedef struct usc_judgement {
    usc_verdict verdict;  /* PASS, UNJUDGED, REDUCED, WRONG or NONFINITE */
    bool needs_appeal;    /* only after usc_judge_look: not decided yet */
    bool exact;           /* the operator computed exactly on every replay */
    bool flushes;         /* note: subnormals flushed to zero */
    bool bound;           /* bits is what can be claimed at least: print ">= x" */
    bool yardstick_bound; /* so is yardstick_bits */
    double bits;          /* effective bits: 24 - log2(max(1, q99)); NaN: n_finite is 0 */
    double yardstick_bits; /* the same for Y rounded to D's dtype */
    int64_t n;             /* elements */
    int64_t n_mismatch;    /* score > 0 */
    int64_t n_bad;         /* non-finite where it must not be, or the reverse */
    int64_t n_free;        /* not judged: float32 itself overflows there */
    int64_t n_ill;     /* free: fewer than 4 bits are right, or could be told; 0 if few */
    int64_t n_flushed; /* excused: subnormals flushed to zero */
    int64_t n_finite;  /* truth is finite: elsewhere only NaN and Inf can be checked */
    int64_t n_nan_inf; /* the device gave NaN or Inf, rightly or not */
    double max, mid, q99, rel; /* scores: worst, median, 99th percentile over mismatches;
                                  median relative to max(|R|, N) alone */
    double z, mean_sign;       /* one-sidedness: sum of signs / sqrt(m); mean of signs */
    double spread;             /* max / mid */
    double
        expected_share; /* expected share of mismatches if every element erred like mid */
    double fan_in;      /* F used for the thresholds */
    double t_max, t_mid; /* thresholds used */
    int64_t i_worst;     /* flat row-major index of the worst element, -1 if none */
    int64_t i_bad;       /* first bad element, -1 if none */
    int64_t histogram[USC_N_SCORE_BINS]; /* of scores over mismatches */
    char reason[256]; /* one clause, e.g. "worst element off by 1.2e+05 roundings" */
} usc_judgement;

enum { USC_POSITION_SLICES = 64 }; /* an axis, where positions are told */

/** One element worth showing. */
typedef struct usc_example {
    int64_t index;    /* flat, row-major */
    double device;    /* D, widened */
    double reference; /* R */
    double yardstick; /* Y */
    double score;     /* in float32 roundings of max(|R|, S, N); Inf for bad elements */
} usc_example;

typedef struct usc_judge_options {
    const usc_alloc *alloc; /* NULL: the C library's */
    int n_threads;          /* 0 and 1: the caller's thread only */
    bool pairs; /* complex: the last axis has size 2, real and imaginary part */
} usc_judge_options;

typedef struct usc_judge usc_judge;

/**
 * Opens a judge for one float output, or a complex one as pairs of floats.
 *
 * Shapes:  device, reference and yardstick have equal dims, any strides; empty is
 *          allowed. device any float dtype; reference float64; yardstick float32 or
 *          float64 (exactly widened).
 * options: NULL: their zero value.
 * Memory:  keeps pointers: the three tensors must outlive the judge and stay unchanged.
 *          Owns about 9 bytes an element (float64: 17) once usc_judge_replay was called.
 * Threads: one thread at a time per judge.
 * Errors:  USC_E_SHAPE (where: first axis that differs, or the last where pairs are meant
 *          and it is not 2), USC_E_DTYPE, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_judge_open(const usc_tensor *device,
                                                const usc_tensor *reference,
                                                const usc_tensor *yardstick,
                                                const usc_judge_options *options,
                                                usc_judge **out, usc_error *err);

/** Frees a judge; NULL is allowed. */
USC_API void usc_judge_close(usc_judge *judge);

/**
 * Adds replay k: the float64 and float32 results on one perturbed input (usc_perturb).
 * Accumulates S, N and exactness.
 *
 * Shapes:  as in usc_judge_open. Nothing is kept of the arguments.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_judge_replay(usc_judge *judge,
                                                  const usc_tensor *reference_k,
                                                  const usc_tensor *yardstick_k,
                                                  usc_error *err);

/**
 * The first replay and the first look in one pass: what usc_judge_replay and
 * usc_judge_look give, to the last bit, without storing S and N of outputs that need no
 * second replay.
 *
 * Memory:  keeps pointers to both: they must stay unchanged until usc_judge_replay or
 *          usc_judge_appeal returned, or the judge is closed.
 * Errors:  as both; USC_E_ARG after any replay. *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_judge_first(usc_judge *judge,
                                                 const usc_tensor *reference_1,
                                                 const usc_tensor *yardstick_1,
                                                 usc_judgement *out, usc_error *err);

/**
 * S and N as the replays so far, one at least, make them, in float32 roundings of one;
 * NaN where a replay gave no number. `s` and `n` have room for a double an element,
 * row-major.
 *
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_judge_sums(usc_judge *judge, double *s, double *n,
                                                usc_error *err);

/**
 * Takes S and N, as usc_judge_sums() gives them, in place of replays, of which there may
 * be none before: as if they came from one.
 *
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_judge_set_sums(usc_judge *judge, const double *s,
                                                    const double *n, usc_error *err);

/**
 * First look: PASS, or UNJUDGED where float32 keeps no bits, or needs_appeal. Most good
 * outputs end here. It may come before any replay: replays only widen the scale of a
 * score, so that a PASS stands, with bits that are a lower bound.
 *
 * Numbers: docs/reference/metrics.md, 2. Same bits whatever thread count, ISA and
 *          strides.
 * Errors:  none.
 */
USC_API USC_NODISCARD usc_status usc_judge_look(usc_judge *judge, usc_judgement *out,
                                                usc_error *err);

typedef struct usc_appeal {
    double fan_in;             /* F, at least 1: how many inputs one output depends on */
    bool movement;             /* the operator only moves or selects input values */
    const usc_tensor *flushed; /* float32 replay under flush-to-zero, or NULL */
    double natural; /* size of the inputs where R is nothing beside them; else 0 */
} usc_appeal;

/**
 * The full rule, after more replays.
 *
 * Errors:  USC_E_ARG, USC_E_SHAPE (flushed), *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_judge_appeal(usc_judge *judge,
                                                  const usc_appeal *appeal,
                                                  usc_judgement *out, usc_error *err);

/**
 * The `n` worst elements, worst first, bad elements before all others; of scores that
 * agree to a hundredth the first by index.
 * Uses the scores of the last look or appeal. *n_found <= n. Of a float64 output,
 * `yardstick` shows the reference.
 *
 * Errors:  USC_E_ARG before the first look.
 */
USC_API USC_NODISCARD usc_status usc_judge_worst(usc_judge *judge, int n,
                                                 usc_example *out, int *n_found,
                                                 usc_error *err);

/**
 * Share of float-valued mismatch by position: along each axis up to USC_MAX_DIMS the
 * share of bad or failing elements in each of 64 equal slices, for diagnosis of tails and
 * tiles. `out[axis][slice]`; axes beyond ndim are zero.
 *
 * Errors:  USC_E_ARG before the first look.
 */
USC_API USC_NODISCARD usc_status usc_judge_positions(
    usc_judge *judge, float out[USC_MAX_DIMS][USC_POSITION_SLICES], usc_error *err);

/**
 * Exact comparison of an integer or bool output (also used for raw storages): PASS or
 * WRONG with n_mismatch, i_worst = first differing element, bits 24 or 0.
 *
 * Shapes:  equal dims, equal dtypes, any strides.
 * Errors:  USC_E_SHAPE; USC_E_DTYPE where they differ, or for USC_DTYPE_NONE, the size of
 *          whose elements nobody knows: complex numbers come as pairs of reals, other
 * bytes as uint8. *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_judge_exact(const usc_tensor *device,
                                                 const usc_tensor *reference,
                                                 usc_judgement *out, usc_error *err);

/**
 * A verdict on one output in memory where nobody can replay the operator: device against
 * reference alone. What `ulpscope judge DEVICE REFERENCE` says of one tensor.
 *
 * The scale of an error is |reference|, or `scale` where that is larger (of a matrix
 * product |A| |B|, of a sum the sum of magnitudes); one float32 rounding at that scale is
 * the unit, and the limits are those of fan-in 1. Without a scale this is right for
 * elementwise functions and too strict where large terms cancel: `ulpscope judge` calls a
 * tensor unjudged there. Integers and bool must
 * be equal (options->pairs and scale do not matter then).
 *
 * Shapes:  equal dims, any strides; empty is allowed. Floats: device any float dtype,
 *          reference and scale float64, or float32 where the device's output is not
 *          float64; what a float32 reference has lost itself counts as the device's.
 *          Others: the same dtype.
 * Units:   scores in float32 roundings of max(|R|, S), docs/reference/metrics.md, 2.
 * Memory:  keeps nothing; takes up to 41 bytes an element (float64: 49) while it runs.
 *          options NULL: the C library's allocator, the caller's thread.
 * Threads: safe while nobody writes the tensors.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE, USC_E_NOMEM; *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_judge_pair(const usc_tensor *device,
                                                const usc_tensor *reference,
                                                const usc_tensor *scale,
                                                const usc_judge_options *options,
                                                usc_judgement *out, usc_error *err);

/**
 * Whether any element of a perturbed replay moved by more than 2^-12 of max(|truth|,
 * root mean square of the finite truth), or out of the finite: it may have crossed a
 * step. Elements whose truth is not finite do not count.
 *
 * Shapes:  float64, equal dims, any strides; empty is allowed (false).
 * Memory:  allocates nothing.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE; *out is false then.
 */
USC_API USC_NODISCARD usc_status usc_judge_steep(const usc_tensor *truth,
                                                 const usc_tensor *moved, bool *out,
                                                 usc_error *err);

/* How far inputs are moved that look for steps, and the part of the way that a second run
 * goes to tell a step from a slope. */
#define USC_NEAR_REACH 0x1p-22
#define USC_NEARER_PART 0x1p-12

/** Fewer numbers than that have no median: what is typical of them says nothing, and each
 * is held to what runs of float32 lose there. */
#define USC_FEW_NUMBERS 8

/**
 * A pair of replays with every step that it crossed replaced by the slope beside it:
 * `wide` for `moved`, `low` for `narrow`. `crossed`: 1 where the input lies beside such a
 * step, not upon it. *any: whether there was a step; else the replays stand.
 *
 * Shapes:  equal dims, any strides; truth and moved float64, yardstick, narrow and nearer
 *          (the result on inputs moved USC_NEARER_PART as far) float64 or float32. The
 *          others have room for as many elements, row-major.
 * Memory:  allocates nothing, keeps no pointer.
 * Threads: safe while nobody writes the tensors.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE; *any is false then.
 */
USC_API USC_NODISCARD usc_status usc_judge_free_steps(
    const usc_tensor *truth, const usc_tensor *yardstick, const usc_tensor *moved,
    const usc_tensor *narrow, const usc_tensor *nearer, double *wide, double *low,
    uint8_t *crossed, bool *any, usc_error *err);

/* What a reference is asked that nobody has tested yet. */
typedef enum usc_trust {
    USC_TRUST_STEADY,       /* a second run gives the first, but for roundings */
    USC_TRUST_COARSE,       /* float32 holds the float64 result */
    USC_TRUST_STILL_COARSE, /* also on inputs that it does not hold, which moved it */
    USC_TRUST_STEPS,        /* step by step float64 gives the same */
    USC_TRUST_ALIKE, /* most are of one sign and size: the same numbers were read */
    USC_TRUST_FAR,   /* three of four are of another sign or size */
    USC_N_TRUSTS
} usc_trust;

/** Name of a question, e.g. "steady"; "unknown" otherwise. Memory: static. Threads: safe.
 */
USC_API const char *usc_trust_text(usc_trust question);

/**
 * Answers a question about `result` beside the one `before`.
 *
 * Shapes:  any; of another shape nothing is true. Others than floats: one dtype, of which
 *          every element counts for STEADY, and nothing else is true.
 * Memory:  allocates nothing, keeps no pointer.
 * Threads: safe while nobody writes the tensors.
 * Errors:  USC_E_DTYPE, USC_E_SHAPE; *out is false then.
 */
USC_API USC_NODISCARD usc_status usc_judge_trust(usc_trust question,
                                                 const usc_tensor *result,
                                                 const usc_tensor *before, bool *out,
                                                 usc_error *err);

/**
 * Perturbed inputs of replay k: out_i = float32(x_i (1 + delta h s_i)) with s_i = +-1
 * from (seed, k, i) alone, i the flat logical index, and h = H4[k mod 4][argument mod 4];
 * x_i where that overflows. `share` < 1: only that share of the elements moves (drawn
 * from (seed, k, argument, i)), by the full factor (1 + delta), in float64, for fan-in.
 *
 * Shapes:  x any float dtype, any strides; `out` has room for as many doubles as x has
 *          elements, and gets them in row-major order.
 * Memory:  allocates nothing; `out` must not overlap x.
 * Threads: safe while nobody writes x.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE (x is no float), USC_E_ARG.
 */
typedef struct usc_perturbation {
    uint64_t seed;
    int replay;   /* k */
    int argument; /* number of the float argument among the float arguments */
    double delta; /* 0 means 2^-20 */
    double share; /* 0 means 1: every element */
} usc_perturbation;
USC_API USC_NODISCARD usc_status usc_perturb(const usc_tensor *x,
                                             const usc_perturbation *how, double *out,
                                             usc_error *err);

/**
 * Whether float32 lies further from float64 than it seldom does, at more than one element
 * of 20: *far. Both may compute another function then, unless usc_judge_explain tells
 * why.
 *
 * Shapes:  equal dims, any strides; float32 or float64. `marks` has room for a byte an
 *          element, row-major: 1 where it does.
 * Memory:  allocates nothing, keeps no pointer.
 * Threads: safe while nobody writes the tensors.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE; *far is false then.
 */
USC_API USC_NODISCARD usc_status usc_judge_apart(const usc_tensor *truth,
                                                 const usc_tensor *yardstick,
                                                 uint8_t *marks, bool *far,
                                                 usc_error *err);

/**
 * Takes the marks from elements that a rounding of the inputs or of the steps inside
 * moves as much: from `was` to `moved`, 16 times. *far: whether too many are left.
 *
 * Shapes, Memory, Threads, Errors: as usc_judge_apart.
 */
USC_API USC_NODISCARD usc_status usc_judge_explain(const usc_tensor *truth,
                                                   const usc_tensor *yardstick,
                                                   const usc_tensor *moved,
                                                   const usc_tensor *was, uint8_t *marks,
                                                   bool *far, usc_error *err);

/**
 * Whether an output has the very errors of an emulation, the same call in a narrower
 * format: 95 % of all elements that either has moved lie 8 times nearer to it than it
 * lies to the truth, and by 24 bits in all, which no other mistake does by chance.
 *
 * Shapes:  equal dims, any strides; device, yardstick and emulated any float dtype, truth
 *          float64. `same` has room for a byte an element, row-major: 1 where the error
 *          is the emulation's own.
 * Numbers: the emulation counts rounded to the device's dtype, and as it is.
 * Memory:  allocates nothing, keeps no pointer.
 * Threads: safe while nobody writes the tensors.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE; *out is false then, and `same` unset.
 */
USC_API USC_NODISCARD usc_status usc_judge_same_errors(
    const usc_tensor *device, const usc_tensor *truth, const usc_tensor *yardstick,
    const usc_tensor *emulated, uint8_t *same, bool *out, usc_error *err);

USC_END_DECLS
#endif
