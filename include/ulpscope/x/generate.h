// SPDX-License-Identifier: Apache-2.0
// Made-up data. A counter-based generator: element i of a stream is a function of (seed,
// number, i), the same on every machine, thread and order. On it stand stand-ins, tensors
// drawn from the statistics of real ones (docs/reference/stand-ins.md), and values on
// which kernels break.
//
// Threads: safe while nobody writes what a function reads; nothing is kept between calls.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_GENERATE_H
#define ULPSCOPE_X_GENERATE_H

#include <ulpscope/alloc.h>
#include <ulpscope/call.h>
#include <ulpscope/stats.h>

USC_BEGIN_DECLS

/* ---- the generator ---- */

/** A stream of draws: 2^64 seeds, 2^64 streams of each, 2^64 elements of each. */
typedef struct usc_stream {
    uint64_t seed, number;
} usc_stream;

/**
 * The four words of element `i`: Philox 4x32-10 (Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3", 2011), key `seed`, counter (i, number), lower words first.
 */
USC_API void usc_stream_words(usc_stream d, uint64_t i, uint32_t out[4]);

/** A double of [0, 1) from words 0 and 1 of element `i`: a multiple of 2^-53. */
USC_API double usc_stream_uniform(usc_stream d, uint64_t i);

/**
 * A double of N(0, 1) from element `i`, by Box and Muller. Numbers: of IEEE additions,
 * products, divisions and square roots alone, so that the bits are the same everywhere.
 */
USC_API double usc_stream_normal(usc_stream d, uint64_t i);

/** The place of `i` < `n` in a permutation of 0 .. n - 1: no place comes twice. `n` is
 * at most 2^63. */
USC_API uint64_t usc_stream_place(usc_stream d, uint64_t i, uint64_t n);

/* ---- stand-ins ---- */

/* What an operator asks of an argument beyond what statistics say. */
typedef enum usc_need {
    USC_NEED_NOTHING,
    USC_NEED_INDEX,      /* whole numbers below `limit`, from -limit on where allowed */
    USC_NEED_DEFINITE,   /* symmetric positive definite matrices: cholesky */
    USC_NEED_TRIANGULAR, /* matrices with heavy diagonals: triangular solves */
} usc_need;

typedef struct usc_stand_in_options {
    usc_need need;
    int64_t limit;    /* INDEX: size of the axis that is indexed; 0: not known */
    bool has_ignored; /* INDEX: one value stands for "none" and is kept as it is */
    int64_t ignored;
    const usc_alloc *alloc; /* NULL: the C library's */
} usc_stand_in_options;

/**
 * What the operator of `call` asks of its argument `arg`, one of the call's. Operators
 * that are not in the table ask nothing. `args` and `arg[...].sizes` of the call are
 * read.
 *
 * Memory:  what arguments need while they are read; nothing is kept.
 * Errors:  USC_E_NOMEM, USC_E_CORRUPT (arguments that cannot be read); *out is empty.
 */
USC_API USC_NODISCARD usc_status usc_stand_in_need(const usc_call *call,
                                                   const usc_call_arg *arg,
                                                   usc_stand_in_options *out,
                                                   usc_error *err);

/**
 * The stream from which an argument is drawn. With a fingerprint in the statistics it
 * depends on them and on nothing else: equal tensors stay equal, in whichever call,
 * argument or trace they stand. Without one, on trace, call and path.
 */
USC_API usc_stream usc_stand_in_stream(const usc_stats *stats, const char *trace,
                                       int64_t call, const char *path);

/**
 * Fills `out` with a stand-in for a tensor of the form of `like` (whose data are not
 * looked at) from its statistics.
 *
 * Shapes:  any; `out` gets the elements in the order in which statistics see them, one
 *          behind the other: floats in memory order, broadcast axes once; others in
 *          row-major order. `size` is their number times the element's size
 *          (usc_stand_in_size).
 * Numbers: docs/reference/stand-ins.md. Counts of NaN, Inf, zero, subnormals and binades
 *          are exact where the statistics counted every element; min and max are met
 *          exactly.
 * options: NULL: their zero value.
 * Memory:  allocates while it runs 64 KiB and what one row needs.
 * Errors:  USC_E_CORRUPT for statistics that no tensor of that form has (what and how
 *          many), USC_E_ARG (size), USC_E_DTYPE, USC_E_SHAPE, USC_E_RANGE, USC_E_NOMEM;
 *          `out` is unspecified then.
 */
USC_API USC_NODISCARD usc_status usc_stand_in_make(const usc_tensor *like,
                                                   const usc_stats *stats,
                                                   const usc_stand_in_options *options,
                                                   usc_stream stream, void *out,
                                                   size_t size, usc_error *err);

/** Bytes that usc_stand_in_make writes. Errors: USC_E_SHAPE, USC_E_RANGE; *out is 0. */
USC_API USC_NODISCARD usc_status usc_stand_in_size(const usc_tensor *like, size_t *out,
                                                   usc_error *err);

/* ---- hard cases ---- */

/* Kinds of values on which kernels break. Id, text, the recipe in stress.c, whether
 * floats and whether integers may have them. Their order is a promise: case k of a seed.
 */
#define USC_STRESS_LIST(X)                                                               \
    X(WIDE, "wide-exponents", wide, true, false)                                         \
    X(CANCELLATION, "cancellation", cancelling, true, false)                             \
    X(COMMON_OFFSET, "common-offset", common_offset, true, false)                        \
    X(ZEROS, "zeros", zeros, true, false)                                                \
    X(ALL_ZEROS, "all-zeros", all_zeros, true, true)                                     \
    X(SUBNORMALS, "subnormals", subnormals, true, false)                                 \
    X(NEAR_OVERFLOW, "near-overflow", near_overflow, true, false)                        \
    X(TIES, "ties", ties, true, false)                                                   \
    X(OUTLIERS, "outliers", outliers, true, false)                                       \
    X(NAN, "nan", with_nan, true, false)                                                 \
    X(INF, "inf", with_inf, true, false)                                                 \
    X(NORMAL, "normal", normal_at, true, false)                                          \
    X(INDEX, "index", indices, false, true)                                              \
    X(MASK, "mask", mask, true, true)                                                    \
    X(ONE_HOT, "one-hot", one_hot, true, true)                                           \
    X(SORTED, "sorted", sorted, true, true)                                              \
    X(DEFINITE, "positive-definite", definite, true, false)

typedef enum usc_stress {
#define USC_STRESS_ENUM(id, text, recipe, floats, integers) USC_STRESS_##id,
    USC_STRESS_LIST(USC_STRESS_ENUM)
#undef USC_STRESS_ENUM
        USC_N_STRESS
} usc_stress;

/** Text of a kind, "unknown" for other values; and back, USC_N_STRESS for others and for
 * NULL. Memory: static. */
USC_API const char *usc_stress_text(usc_stress kind);
USC_API usc_stress usc_stress_by_text(const char *text);

/** What values of a tensor keep to. */
typedef struct usc_stress_domain {
    bool positive, unit;     /* floats: never negative; in [0, 1] */
    int64_t lowest, highest; /* integers: both ends are taken */
} usc_stress_domain;

/**
 * Fills `out` with values of a kind for a tensor of the form of `like`, an example that
 * says the domain: what is never negative stays so, what lies in [0, 1] stays there,
 * integers do not exceed the largest one.
 *
 * Shapes:  any; `out` is contiguous, of like's dtype, `size` its bytes.
 * Numbers: of `stream`, like's form and domain alone; no finite float beyond the dtype's.
 * Memory:  allocates nothing.
 * Errors:  USC_E_DTYPE for a kind that the dtype cannot have, USC_E_ARG (size), and those
 *          of usc_stats_compute; `out` is unspecified then.
 */
USC_API USC_NODISCARD usc_status usc_stress_make(usc_stress kind, const usc_tensor *like,
                                                 usc_stream stream, void *out,
                                                 size_t size, usc_error *err);

USC_END_DECLS
#endif
