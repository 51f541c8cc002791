// SPDX-License-Identifier: Apache-2.0
// Findings, and what they come to: which of them decides a call, which other answer or
// reading stands instead, what is said of it, its row in a result database. Findings
// come from a case (case.h) or from whoever tests draws, collectives, other standards.
//
// Threads: one thread at a time per list.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_FINDING_H
#define ULPSCOPE_FINDING_H

#include <ulpscope/judge.h>
#include <ulpscope/result.h>

USC_BEGIN_DECLS

/* id, code in results, share of an output's elements that it may cover, words of a note.
 * The whole list of excuses, with those that are no elements': docs/reference/excuses.md.
 */
#define USC_EXCUSE_LIST(X)                                                               \
    X(CORNER, "corner", 1 / 32., "a corner of the function")                             \
    X(WRITTEN_TWICE, "written_twice", 1, "several updates write them")                   \
    X(OUT_OF_RANGE, "out_of_range", 1 / 32., "the integer type does not hold the float") \
    X(ILL_CONDITIONED, "ill_conditioned", 0.5,                                           \
      "ill-conditioned, float32 leaves fewer than 4 bits")                               \
    X(STEP, "step", 1, "a rounding or comparison inside may fall either way")            \
    X(ORDER_OF_ADDING, "order_of_adding", 1,                                             \
      "one accumulator loses as much in the order in which the terms come")              \
    X(FLUSHED, "flushed", 1, "subnormals flushed to zero")                               \
    X(DTYPE, "dtype", 1, "its narrower dtype does not hold the number")                  \
    X(ZERO_DIVISION, "zero_division", 1, "integers are divided by zero")                 \
    X(BAD_INDEX, "bad_index", 1, "an index is out of range")                             \
    X(OWN_STEPS, "own_steps", 1, "torch's own steps round there")                        \
    X(ROUNDED_BETWEEN, "rounded_between", 1,                                             \
      "what a callable rounds to 16 bits between its operators costs as much")           \
    X(MASK_UNCLEAR, "mask_unclear", 0.5,                                                 \
      "no mask of the dropout inside could be told there")                               \
    X(SPREAD, "spread", 1, "drawn, and only the spread of the draws was tested")         \
    X(MASKED, "masked", 1, "NaN of a key that a mask hides")                             \
    X(UNWRITTEN, "unwritten", 1, "the CPU's kernel leaves them as the memory was")

typedef enum usc_excuse {
#define USC_EXCUSE_ENUM(id, code, most, words) USC_EXCUSE_##id,
    USC_EXCUSE_LIST(USC_EXCUSE_ENUM)
#undef USC_EXCUSE_ENUM
        USC_N_EXCUSES
} usc_excuse;

typedef struct usc_excuse_info {
    const char *code;
    double most; /* share of an output */
    const char *words;
} usc_excuse_info;

/** The row of an excuse; NULL beyond the list. Memory: static. */
USC_API const usc_excuse_info *usc_excuse_info_of(usc_excuse excuse);

/** The excuse with that code; USC_N_EXCUSES where there is none. */
USC_API usc_excuse usc_excuse_by_code(const char *code);

/* How many numbers of a judgement a finding has. */
typedef enum usc_finding_numbers {
    USC_NUMBERS_NONE,
    USC_NUMBERS_COUNT, /* n_mismatch only */
    USC_NUMBERS_ALL,
} usc_finding_numbers;

enum { USC_FINDING_EXAMPLES = 10, USC_FINDING_NOTES = 12 };

/** What is found of one output, or (path "") of the call. NaN bits: nothing was measured.
 */
typedef struct usc_finding {
    const char *path;
    usc_verdict verdict;
    const char *reason; /* a clause; "" where there is none */
    double bits, yardstick_bits;
    double factor; /* of a `wrong` result: by which the truth is multiplied; else 0 */
    bool bound;
    bool measured; /* by scores, element by element */
    bool wide;     /* float64: the reference knows no more digits */
    bool few;      /* draws too few to tell */
    int64_t n;     /* elements */
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
    usc_finding_numbers numbers;
    usc_judgement judgement;
    int64_t excused[USC_N_EXCUSES]; /* elements that went free, by excuse */
    int n_notes, n_examples;
    const char *notes[USC_FINDING_NOTES];
    usc_example examples[USC_FINDING_EXAMPLES];
    const float *positions; /* failing shares, 64 slices an axis; NULL: it passes */
} usc_finding;

/* ---- a list ---- */

/** The findings of one call. */
typedef struct usc_findings usc_findings;

/**
 * Opens a list without findings; alloc NULL: the C library's.
 *
 * Memory: *out is the caller's until usc_findings_close, and so is all that it hands out.
 * Errors: USC_E_NOMEM; *out is NULL then.
 */
USC_API USC_NODISCARD usc_status usc_findings_open(const usc_alloc *alloc,
                                                   usc_findings **out, usc_error *err);

/** Frees a list; NULL is allowed. */
USC_API void usc_findings_close(usc_findings *f);

/** Adds a finding; copies what it points to. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_findings_add(usc_findings *f, const usc_finding *one,
                                                  usc_error *err);

/** Adds `wrong`: a device gave `n_given` outputs of an operator that has `n_due`, or
 * others. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_findings_miscounted(usc_findings *f, int64_t n_given,
                                                         int64_t n_due, usc_error *err);

/** Adds `wrong` where an output has another shape than `want`, or, where `dtype` counts,
 * another dtype: *wrong. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_findings_misformed(usc_findings *f, const char *path,
                                                        const usc_tensor *got,
                                                        const usc_tensor *want,
                                                        bool dtype, bool *wrong,
                                                        usc_error *err);

/** Adds a finding without numbers: what is known of the call itself, or of an output that
 * cannot be judged. Copies `path` and `reason`. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_findings_say(usc_findings *f, usc_verdict verdict,
                                                  const char *path, const char *reason,
                                                  usc_error *err);

/** How many findings there are. */
USC_API int usc_findings_count(const usc_findings *f);

/** Whether `a` decides rather than `b`: the worse verdict, then fewer bits. */
USC_API bool usc_finding_before(const usc_finding *a, const usc_finding *b);

/** Finding i; NULL where there is none. Memory: the list's, also after another took its
 * place. */
USC_API const usc_finding *usc_findings_at(const usc_findings *f, int i);

/**
 * Adds the finding on an output that must be `want`, but for elements without a mark:
 * what differs, with the first as examples, or a pass.
 *
 * Shapes:  equal dims, any strides; marks bool or uint8.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_findings_differ(usc_findings *f, const char *path,
                                                     const usc_tensor *got,
                                                     const usc_tensor *want,
                                                     const usc_tensor *marks,
                                                     usc_error *err);

/**
 * Adds a pass on an output that equals the CPU's own in every bit: `form` says its path,
 * n and sizes. float_size: bytes of an element, 0 of what is no float; n_odd: elements
 * that are NaN or Inf.
 *
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_findings_same(usc_findings *f,
                                                   const usc_finding *form,
                                                   int float_size, int64_t n_odd,
                                                   usc_error *err);

/* ---- what they come to ---- */

/** The finding that decides: the worst, but for outputs in which float32 keeps no bits as
 * long as they hold no more than half of what was judged. NULL where there is none.
 * Memory: the list's. */
USC_API const usc_finding *usc_findings_worst(const usc_findings *f);

/**
 * The notes of all findings, each once and in order.
 *
 * Memory:  the list's.
 * Errors:  USC_E_NOMEM; *n is 0 then.
 */
USC_API USC_NODISCARD usc_status usc_findings_notes(usc_findings *f,
                                                    const char *const **out, int *n,
                                                    usc_error *err);

/**
 * Which outputs nobody judged beside those that decide, and why: "out[1]: ill-conditioned
 * ..."; "" where there is none. It belongs to the verdict of the call (usc_said), and
 * counts where calls that are not judged do.
 *
 * Memory:  the list's; "" where there is none.
 */
USC_API const char *usc_findings_left_out(usc_findings *f);

/** Adds a note to finding i; without effect where it has USC_FINDING_NOTES. Errors:
 * USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_findings_note(usc_findings *f, int i,
                                                   const char *note, usc_error *err);

/** Says which output finding i is of. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_findings_rename(usc_findings *f, int i,
                                                     const char *path, usc_error *err);

/** Counts elements of finding i that were excused, and notes it where they are many; of a
 * pass of which they are the most bits are not known (NaN) then. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_findings_excuse(usc_findings *f, int i,
                                                     usc_excuse excuse, int64_t n,
                                                     usc_error *err);

/* What the same call without chance says beside draws of it. */
typedef struct usc_calmed {
    bool accuses;   /* its verdict stands for both */
    bool taken;     /* the draws pass, with its bits */
    char note[256]; /* what is to be said of it then */
} usc_calmed;

/**
 * The same call with its chances set to nothing (`set`: to what, as `dropout_p=0`), whose
 * findings are `calm` and whose verdict is `verdict`, beside draws of which only the
 * spread was tested. Where it is accused that stands for both; where both pass, its
 * findings come first, and the values of the draws count as judged there. Outputs of too
 * few draws lean on the others.
 *
 * Errors:  USC_E_NOMEM; *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_findings_calmed(usc_findings *f,
                                                     const usc_findings *calm,
                                                     usc_verdict verdict, const char *set,
                                                     usc_calmed *out, usc_error *err);

/** Whether findings on draws rest on their spread alone, or on less. */
USC_API bool usc_findings_want_calm(const usc_findings *f);

/** Draws that an operator does not admit: values that nothing but their spread speaks for
 * do not acquit what was accused. Errors: USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_findings_unsaid(usc_findings *f, usc_error *err);

/** An output of which `parts` are the findings, piece by piece. */
typedef struct usc_whole {
    const usc_finding *const *parts;
    int n_parts;
    int64_t n;
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
} usc_whole;

/** Adds the finding on a whole output: that on the piece that decides (*decides), with
 * what is counted over all. Its examples lie where they do in that piece until
 * usc_findings_place. Errors: USC_E_NOMEM, USC_E_ARG without parts. */
USC_API USC_NODISCARD usc_status usc_findings_join(usc_findings *f,
                                                   const usc_whole *whole, int *decides,
                                                   usc_error *err);

/** Says where the examples of finding i lie in the output, in their order. */
USC_API void usc_findings_place(usc_findings *f, int i, const int64_t *flat, int n);

/** Whether an output that is accused is no worse than `own`, what the CPU's own kernel
 * gives in the same dtypes: its verdict, its bits, its worst element. */
USC_API bool usc_finding_no_worse(const usc_finding *device, const usc_finding *own);

/* ---- several answers to one call ---- */

typedef enum usc_run_kind {
    USC_RUN_FIRST,
    USC_RUN_REPLAY,   /* the first, where a captured one is known */
    USC_RUN_CAPTURED, /* when the trace was made */
    USC_RUN_AGAIN,
} usc_run_kind;

/** One answer and what is said of it. */
typedef struct usc_said_of {
    usc_run_kind kind;
    usc_verdict verdict;
    const usc_finding *worst; /* NULL where there is none */
    const char *reason;       /* where there is no finding */
} usc_said_of;

/** What is said of all answers. */
typedef struct usc_settled {
    int i;               /* whose findings stand */
    usc_verdict verdict; /* INTERMITTENT where some are acceptable and some are not */
    char reason[1024];   /* of the call; "": none but the finding's */
    char note[256];      /* "": none */
} usc_settled;

/** Settles answers of one device to one call, no two of which are the same, the first run
 * first. n is 2 at the least. */
USC_API void usc_settle_answers(const usc_said_of *said, int n, usc_settled *out);

/* ---- words and rows ---- */

/** What a sentence on a call is made from. Members that are NULL say nothing. */
typedef struct usc_said {
    const char *op;
    usc_verdict verdict;
    const usc_finding *worst;
    const char *reason;  /* of the call as a whole, instead of the worst finding's */
    const char *culprit; /* the operator in it that is to blame */
    const char *cause;
    const char *left_out; /* usc_findings_left_out */
} usc_said;

/**
 * The bits that are told of a verdict by its finding (NULL: none), and those of float32
 * (may be NULL): NaN where nothing was judged, and of a pass where nothing could be seen,
 * as where all results are beyond the largest number.
 */
USC_API double usc_said_bits(usc_verdict verdict, const usc_finding *f,
                             double *yardstick);

/** One English sentence on the verdict of a call; cut where it does not fit. */
USC_API void usc_said_sentence(const usc_said *said, char *out, size_t size);

/**
 * Fills in what a result database keeps of a call: the verdict, the bits and the output
 * that decided, the sentence, the notes, how many elements were judged; as metrics the
 * numbers of calls that are accused, what went free and why nothing was judged; the worst
 * elements. `row` brings what is known besides: `notes` come behind those of the
 * findings, its metrics behind theirs.
 *
 * Memory:  what `row` points to is the list's, or as it came.
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_findings_row(usc_findings *f, const usc_said *said,
                                                  usc_result_row *row, usc_error *err);

/** Row-major index as coordinates, as many as the finding has dimensions. */
USC_API void usc_position(const usc_finding *f, int64_t flat, int64_t at[USC_MAX_DIMS]);

/** The same as text, e.g. "[3, 17]". */
USC_API void usc_position_text(const usc_finding *f, int64_t flat, char *out,
                               size_t size);

USC_END_DECLS
#endif
