// SPDX-License-Identifier: Apache-2.0
// A case: the escalation of one call, output by output, as a machine that asks. It names
// the operand that it needs next; whoever has one (a worker with torch, a pack, a test
// bench) answers; it ends in findings. Order, thresholds, excuses, ties and words are
// here and nowhere else. The wants in the order in which they come:
// docs/background/case.md; the rule: docs/background/verdict.md.
//
// Threads: one thread at a time per case.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_CASE_H
#define ULPSCOPE_CASE_H

#include <ulpscope/finding.h>
#include <ulpscope/kept.h>

USC_BEGIN_DECLS

/* id, name, whether an output is `unjudged` where the answer fails (else it counts as "no
 * more"). What is given: a, b, c are tensors, [...] an answer in sums (USC_GIVEN_SUMS).
 */
/* The formatter would put the words of a row elsewhere. */
/* clang-format off */
#define USC_WANT_LIST(X)                                                                 \
    X(NOTHING, "nothing", 0)     /* the finding on the output stands */                  \
    X(REFERENCE, "reference", 1) /* a: R, float64 or whole numbers; b: Y, or R; text: a  \
                                    note on the output; c: elements that hang on what    \
                                    the CPU refuses, number: the usc_excuse */           \
    X(DTYPE, "dtype", 1)         /* text: the dtype that the operator gives */           \
    X(NATIVE, "native", 1)       /* a: the CPU's own in the dtypes captured; text */     \
    X(SLOPE, "slope", 0)         /* a: R moved by the slope [S] */                       \
    X(PRODUCTS, "products", 1)   /* number: products that are added, at the least */     \
    X(FUNCTIONS, "functions", 1) /* k; a: R, b: Y, of REPLAY k with its steps [number:   \
                                    1 if float32 computes another function] */           \
    X(REPLAY, "replay", 1)       /* k; a: R, b: Y, of perturbed inputs [S, N] */         \
    X(FAN_IN, "fan_in", 1)       /* number: F; size: the largest input */                \
    X(FLUSHED, "flushed", 0)     /* k; a: Y with subnormals flushed */                   \
    X(LOSS, "loss", 0)           /* k; a: R, b: Y, of inputs k far away; of k = 0 the    \
                                    captured ones [S, N] */                              \
    X(NOISE, "noise", 0)         /* k; a: Y rounded otherwise; number: usc_noise [S, N] */ \
    X(RUN, "run", 0)             /* k; a: Y of the very inputs, rounded or added up      \
                                    otherwise; number: usc_rerun [low, high] */       \
    X(RUN_STEPS, "run_steps", 0) /* after RUN in sums, or none: a: places, b: values,    \
                                    where such runs are far from R */                    \
    X(LOST, "lost", 0)           /* k; a: Y of the very inputs, rounded or added up      \
                                    otherwise, where each step of the call is known;     \
                                    number: usc_rerun, CUT the last [lost, cut] */       \
    X(EXACT, "exact", 0)         /* a: 1 where no step rounds in float32; number: 1 if   \
                                    no order of computing does, but for a cast at the    \
                                    end */                                               \
    X(WHOLE, "whole", 0)         /* number: 1 if no order of adding rounds it */         \
    X(ROUNDED, "rounded", 1)     /* k; a: Y with other roundings [kinds] */              \
    X(OVERFLOWS, "overflows", 1) /* number: 1 if a step inside overflows float32 */      \
    X(INFINITE, "infinite", 0)   /* k; a: Y of the very inputs, with sums in the order   \
                                    that makes them infinite [kinds, 8 times] */         \
    X(STEPS, "steps", 1)         /* a: places, b: values that replays crossed to */      \
    X(NEAR_STEP, "near_step", 0) /* k; a: R of inputs moved by 2^-22 [low, high, where] */ \
    X(NEARER_STEP, "nearer_step", 0) /* k; a: the same, a 4096th of the way */           \
    X(ADDED, "added", 0)   /* k = 0, 1; a: Y of one accumulator that begins with the     \
                              first, the last term [low, high, with the truth] */        \
    X(CHOICE, "choice", 1) /* choice: how an index was chosen */                         \
    X(ADMISSIBLE, "admissible", 1) /* k; a, b: replay k [runs] */                        \
    X(ROUNDING, "rounding", 0)     /* k; a: the call with other roundings, native */     \
    X(HELD, "held", 1)             /* a: bool, what the integer type does not hold */    \
    X(USUAL, "usual", 1)           /* a: [K, ...] what conversions give instead */       \
    X(WRITES, "writes", 1)         /* a: places, b: values [U, R], c: rows [U] */        \
    X(PROBE, "probe", 0)           /* k; a: R of jittered inputs [low, high, where] */   \
    X(NEARER_PROBE, "nearer_probe", 0)     /* k; a: the same of half the jitter */       \
    X(SETTLED_PROBE, "settled_probe", 0)   /* k; a: PROBE k, activations settled */      \
    X(NEARER_SETTLED, "nearer_settled", 0) /* k; a: the same of half the jitter */       \
    X(TIED, "tied", 0) /* after PROBE in sums: a, b: least, most of sums [low, high] */  \
    X(NARROW, "narrow", 0) /* k; a: the call as usc_narrow_how(k) says */                \
    X(UNREAD, "unread", 0) /* a: R, b: Y, text, known: of attention that reads no key    \
                              which its mask hides; c: where such a key may reach */     \
    X(UNWRITTEN, "unwritten", 0) /* a, b, text, known: with 0 where c is: elements that  \
                                    the CPU's kernel leaves as the memory was */         \
    X(READING, "reading", 0)     /* k; a: R, b: Y, text: note, known: of another reading \
                                    of the call, which is as right */                    \
    X(OWN_STEP, "own_step", 0)   /* k; a: what the steps give into which torch takes the \
                                    call apart, each correctly rounded                   \
                                    [low, high, where NaN] */                            \
    X(CHECKSUM, "checksum", 0)   /* a: float64, how far the checksum of each row of a    \
                                    product of matrices is off, measured by the row */   \
    X(PIECE, "piece", 0)         /* k; there is one: its outputs are begun next, then    \
                                    usc_case_go_on */                                    \
    X(CHAIN, "chain", 0)         /* k; a: a callable, whose operators round to 16 bits   \
                                    between them: rounded otherwise, before its own last \
                                    rounding; or in the output's dtype */
/* clang-format on */

typedef enum usc_want_kind {
#define USC_WANT_ENUM(id, text, must) USC_WANT_##id,
    USC_WANT_LIST(USC_WANT_ENUM)
#undef USC_WANT_ENUM
        USC_N_WANTS
} usc_want_kind;

/* Which reading of the call a want is about, or asks for. */
enum {
    USC_READING_OWN,
    USC_READING_UNREAD,
    USC_READING_UNWRITTEN,
    USC_READING_OTHERS /* READING k: so many and k */
};

/* What is known of a run with other roundings, as a sum. */
typedef enum usc_noise {
    USC_NOISE_OWN_STEPS = 1, /* the call's own steps: what they lose is believed */
    USC_NOISE_ROUGH = 2,     /* functions miss their limits */
} usc_noise;

/* What a RUN is; each is of the very inputs unless it says otherwise. */
typedef enum usc_rerun {
    USC_RERUN_OTHERWISE, /* of the very inputs, rounded or added up otherwise */
    USC_RERUN_NEARBY,    /* the truth and what float32 loses on inputs nearby */
    USC_RERUN_CUT,       /* with sums whose accumulators are cut off: of few numbers */
} usc_rerun;

/** What a case needs next. */
typedef struct usc_want {
    usc_want_kind kind;
    int k;    /* which of several, from 0 */
    int upto; /* REPLAY, LOSS, NOISE: how many replays the next look comes after: 1, 2, 4 */
    int reading; /* USC_READING_OWN, ... */
} usc_want;

/** Name of a want, e.g. "replay"; "unknown" otherwise. Memory: static. Threads: safe. */
USC_API const char *usc_want_text(usc_want_kind kind);

/**
 * What is emulated for NARROW k: "kernel" (the operator's own in that dtype), "inputs" (R
 * of rounded inputs), "arithmetic" (the result of every step rounded); "" where nobody is
 * asked, NULL beyond the last. `*format`: "TF32", "float16", "bfloat16", or "" for the
 * dtypes of the call. Memory: static. Threads: safe.
 */
USC_API const char *usc_narrow_how(int k, const char **format);

/**
 * The place of NARROW k among those that are asked for, as they are kept (kept.h); -1 of one
 * that is none of these. Threads: safe.
 */
USC_API int usc_narrow_place(int k);

typedef enum usc_given_form {
    USC_GIVEN_NONE, /* there is none, or no more of them */
    USC_GIVEN_AS_ASKED,
    USC_GIVEN_SUMS,   /* no single run, but what all of them come to: [...] */
    USC_GIVEN_FAILED, /* whatever makes it raised: `text` says what */
} usc_given_form;

/**
 * An answer. Tensors may be NULL where the list above has none of that letter.
 *
 * Sums:  S of a slope (a); S and N (a, b: float32 or float64, in float32 roundings of
 *        one, docs/reference/metrics.md, 2; NULL where they are 0) of all replays up to
 * want.upto, of these and all losses, all noises; for ROUNDED a uint8 of kinds that may stand
 * where the truth is none (1 NaN, 2 Inf, 4 -Inf); for PROBE both sides of every corner
 *        (float64) and where there is one (uint8 or bool), and for NEAR_STEP of steps;
 *        for ADMISSIBLE all that runs gave, along a first axis.
 */
typedef struct usc_given {
    usc_given_form form;
    const usc_tensor *a, *b, *c;
    double number, size;
    const char *text;
    const usc_choice *choice;
    const struct usc_case_output *known; /* the output as that reading has it: flags, and
                                            `device` where it lies otherwise (NULL: the
                                            same) */
} usc_given;

/* The form of an output. */
typedef struct usc_case_form_of {
    const char *path;
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
} usc_case_form_of;

/* Where an output of a piece lies in the whole one: `many` places of `length`, from
 * `first` on, each of `inner` elements; of a product that is judged on some rows those of
 * usc_case_rows. The zero value is all of it. */
typedef struct usc_case_part {
    int64_t inner, length, first, many;
} usc_case_part;

/** A call as a whole, before its outputs: whether it is judged in pieces. */
typedef struct usc_case_call {
    const char *op;
    int64_t number; /* of the call: what is by chance is the same each time */
    const usc_case_form_of *outputs;
    int n_outputs;
    int64_t n_inputs; /* elements of its largest argument */
    int64_t n_rows;   /* of a product of matrices, along the last dimension but one of the
                         one output; 0: it is none, or no rows may be chosen */
    double n_products; /* of two numbers, that one element of it adds up */
} usc_case_call;

/* How far each element of an output is computed by itself: */
typedef enum usc_alone {
    USC_ALONE_NOT,
    USC_ALONE_STEADY, /* nothing is added, nor grows a rounding of an input or constant, */
    USC_ALONE_SHARP, /* and functions alone are computed, known to some units everywhere */
} usc_alone;

/** One output of a device, and what is known of it before anything is asked. The zero
 * value of all but path and device is an operator that rounds and of which nothing else
 * is known. */
typedef struct usc_case_output {
    const char *path;
    const usc_tensor *device;
    const usc_tensor *bytes; /* dtype USC_DTYPE_NONE: the same as uint8 */
    const char *dtype;       /* as it is to be shown; NULL: that of `device` */
    usc_case_part part;      /* of an output of a piece */
    const char *captured;    /* the dtype that the call gave when captured, or NULL */
    bool free;               /* the operator promises no values */
    bool exact;              /* held to the CPU's own bits, also if it is a float */
    bool pairs;              /* complex, the last axis has real and imaginary part */
    bool never_rounds; /* the operator gives the only right value, to the last bit */
    int alone;         /* usc_alone */
    bool rounding;     /* the operator gives the exact value, whatever the input */
    bool carries;      /* elements lie elsewhere, nothing is computed: NATIVE is asked
                          before REFERENCE, and its very bytes are right */
    bool linear;       /* a sum of products: SLOPE may be asked */
    bool adds;         /* a plain sum or mean */
    bool products;     /* matrices are multiplied inside */
    bool chained;      /* rounded to 16 bits between its operators, as the yardstick is */
    bool gradient;     /* PROBE may be asked */
    bool single;       /* the call is one operator, no callable of several */
    bool admissible;   /* whole numbers that hang on roundings: ADMISSIBLE may be asked */
    bool any_float;    /* the reference is somebody else's: NATIVE tells its dtype */
    bool two_functions; /* float32 and float64 are known to compute two */
    bool narrow;        /* NARROW may be asked */
    bool readings;      /* UNREAD, UNWRITTEN, READING, OWN_STEP, CHAIN may be asked */
    bool bare;          /* nothing is known but the reference, and maybe a scale: REPLAY
                           is answered in sums of S alone, and nothing is excused */
    bool keep; /* `device` is nobody's output but has the form of a right one: nothing is
                  judged, all is asked that may be asked of any output, and what the
                  answers come to is kept (usc_case_kept) */
} usc_case_output;

typedef struct usc_case_options {
    const usc_alloc *alloc; /* NULL: the C library's; copied */
    int n_threads;          /* 0 and 1: the caller's thread only */
    usc_findings *findings; /* where they go, outliving the case; NULL: its own */
    /* For tests of what large calls go through; 0: the rule's own. */
    int64_t large; /* elements of a call that falls into pieces */
    double work;   /* products of two numbers, from which rows are chosen */
    int fewest;    /* rows by chance; at most as many that stand out */
} usc_case_options;

typedef struct usc_case usc_case;

/**
 * Opens the case of one call, without outputs.
 *
 * Memory:  *out is the caller's until usc_case_close.
 * Errors:  USC_E_NOMEM; *out is NULL then.
 */
USC_API USC_NODISCARD usc_status usc_case_open(const usc_case_options *options,
                                               usc_case **out, usc_error *err);

/** Frees a case with its findings; NULL is allowed. */
USC_API void usc_case_close(usc_case *c);

/**
 * Begins a call as a whole. Where it is judged in pieces the case asks for them, PIECE 0,
 * 1 and so on until there are no more: after each answer, and NOTHING, come its outputs,
 * one by one, as of a call of its own, and then usc_case_go_on. When there are no more
 * pieces, findings on whole outputs take the place of those on pieces. NOTHING at once,
 * or no PIECE 0: outputs are begun as they are.
 *
 * Memory:  copies all that it is given.
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_case_begin_call(usc_case *c,
                                                     const usc_case_call *call,
                                                     usc_error *err);

/** All outputs of a piece were judged: the next is asked for. *decides: whether the
 * verdict is that of this piece, so far. Errors: USC_E_ARG where there was none. */
USC_API USC_NODISCARD usc_status usc_case_go_on(usc_case *c, bool *decides,
                                                usc_error *err);

/** The rows of a product that are judged, in order; NULL where it is judged whole.
 * Memory: the case's. */
USC_API const int64_t *usc_case_rows(const usc_case *c, int64_t *n);

/**
 * Begins the next output. The one before must have come to NOTHING, or is dropped.
 *
 * Memory:  keeps pointers to the data of `device` and `bytes`, to `dtype` and `captured`,
 *          which must stay unchanged until the finding stands; copies all else.
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_case_begin(usc_case *c, const usc_case_output *o,
                                                usc_error *err);

/**
 * What the case needs next: NOTHING where the finding on the output stands, the same want
 * again where it was not answered.
 *
 * Errors:  USC_E_NOMEM; those of the judge where an operand does not fit, which is
 *          then the answerer's mistake.
 */
USC_API USC_NODISCARD usc_status usc_case_next(usc_case *c, usc_want *out,
                                               usc_error *err);

/**
 * Answers the last want.
 *
 * Memory: the data of REFERENCE, UNREAD, UNWRITTEN, READING, NATIVE, SLOPE, CHOICE and of
 *         the first REPLAY must stay unchanged until the finding stands, of all others
 *         until usc_case_next returned. The structs themselves, and `text`, are copied.
 * Errors: USC_E_ARG where nothing was asked.
 */
USC_API USC_NODISCARD usc_status usc_case_give(usc_case *c, const usc_given *given,
                                               usc_error *err);

/** What was kept of output `i` of those that were to be kept, in the order in which they
 * were begun; NULL beyond. Memory: the case's, until it is closed. */
USC_API const usc_kept *usc_case_kept(const usc_case *c, int i);

/** Its findings, in the order in which outputs were begun. Memory: the case's, or those
 * of the options. */
USC_API usc_findings *usc_case_findings(usc_case *c);

USC_END_DECLS
#endif
