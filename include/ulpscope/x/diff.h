// SPDX-License-Identifier: Apache-2.0
// Two traces side by side: which call of one is which of the other, and where the first
// difference is made, apart from where it only shows. No operator runs; what a replay
// says of the calls accused is heard afterwards (usc_diff_hear). docs/reference/diff.md
//
// Threads: one thread at a time per diff and its traces; safe else.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_DIFF_H
#define ULPSCOPE_X_DIFF_H

#include <ulpscope/trace.h>

USC_BEGIN_DECLS

/* ---- pairing ---- */

/* How two calls were found to be one, the closest first. name, text */
#define USC_DIFF_HOW_LIST(X)                                                             \
    X(EXACT, "exactly")  /* operator, module, shapes, dtypes, other arguments */         \
    X(GIVEN, "by shape") /* all but what is no tensor among the arguments */             \
    X(DTYPE, "by module and shape")   /* other dtypes */                                 \
    X(MODULE, "by module")            /* operator and module; other shapes */            \
    X(SHAPE, "by operator and shape") /* another module */                               \
    X(OUTPUT, "by output") /* another operator: same module, shape of the results */

typedef enum usc_diff_how {
#define USC_DIFF_HOW_ENUM(id, text) USC_DIFF_##id,
    USC_DIFF_HOW_LIST(USC_DIFF_HOW_ENUM)
#undef USC_DIFF_HOW_ENUM
        USC_N_DIFF_HOW
} usc_diff_how;

/** Text of a way of pairing; "unknown" for other values. Memory: static. */
USC_API const char *usc_diff_how_text(usc_diff_how how);

/** What pairing goes by, of one call: hashes of what it is. Equal is equal. */
typedef struct usc_diff_item {
    uint64_t place; /* step and phase: calls of other places are never paired */
    uint64_t op, module, given;
    uint64_t shape, dtype; /* of all its tensors */
    uint64_t output;       /* shapes of its results */
    uint64_t producers;    /* operators and modules that wrote its inputs */
    uint64_t lineage;      /* all of that, back to what came from outside */
} usc_diff_item;

typedef struct usc_diff_pair {
    int64_t a, b; /* indices into the two lists */
    usc_diff_how how;
} usc_diff_pair;

/**
 * Pairs two lists of calls that were written down in the same order, but for what one has
 * and the other lacks. Calls that are unique in both are anchors (by lineage, producers,
 * themselves, runs of them); what lies between two anchors is aligned by the best sum of
 * likenesses, in a band where it is long. O(n log n) time but for the bands.
 *
 * Memory:  *out has *n pairs, ascending in both lists; freed by the caller, with free().
 *          160 bytes for each call while it works, and up to 256 bytes where nothing of
 *          two long lists is unique.
 * Threads: any.
 * Errors:  USC_E_NOMEM; *out is NULL then.
 */
USC_API USC_NODISCARD usc_status usc_diff_align(const usc_diff_item *a, int64_t n_a,
                                                const usc_diff_item *b, int64_t n_b,
                                                usc_diff_pair **out, int64_t *n,
                                                usc_error *err);

/* ---- comparing ---- */

/* What a paired call did to the difference. name, text:
 *
 * SAME       results are equal; as far as statistics tell, where nothing else was kept
 *
 * ROUNDED    they differ by no more than the order of additions may
 *
 * INHERITED  they differ, and so did the inputs
 *
 * UNTOLD     nothing was kept to compare
 *
 * MADE       inputs are the same, results are not
 *
 * GREW       inputs differ, but far less than the results do
 *
 * ERRED      inputs differ already, and judged on its own inputs one side alone is
 * accused, or both of different things (usc_diff_hear)
 *
 * ASKED      both are right on their own inputs, but arguments that are no tensors differ
 *
 * ENTERED    an input that came from outside differs: data, parameters
 *
 * DREW       it draws random numbers, and drew others
 *
 * UNPAIRED   an input differs that was written by a call without a partner
 *
 * BEYOND     no call makes a difference, but here it is further than rounding, amplified
 * by the model, brings two runs apart
 *
 * HOLDS      a composite call: a call below it is the one */
#define USC_DIFF_KIND_LIST(X)                                                            \
    X(SAME, "same")                                                                      \
    X(ROUNDED, "rounded")                                                                \
    X(INHERITED, "inherited")                                                            \
    X(UNTOLD, "untold")                                                                  \
    X(MADE, "made")                                                                      \
    X(GREW, "grew")                                                                      \
    X(ERRED, "erred")                                                                    \
    X(ASKED, "asked")                                                                    \
    X(ENTERED, "entered")                                                                \
    X(DREW, "drew")                                                                      \
    X(UNPAIRED, "unpaired")                                                              \
    X(BEYOND, "beyond")                                                                  \
    X(HOLDS, "holds")

typedef enum usc_diff_kind {
#define USC_DIFF_KIND_ENUM(id, text) USC_DIFF_##id,
    USC_DIFF_KIND_LIST(USC_DIFF_KIND_ENUM)
#undef USC_DIFF_KIND_ENUM
        USC_N_DIFF_KINDS
} usc_diff_kind;

/** Text of a kind; "unknown" for other values. Memory: static. */
USC_API const char *usc_diff_kind_text(usc_diff_kind kind);

/** Whether a difference begins at a call of this kind: MADE, GREW, ERRED, ASKED, ENTERED,
 * DREW, UNPAIRED, BEYOND. */
USC_API bool usc_diff_begins(usc_diff_kind kind);

/** Whether a call of this kind makes an error: MADE, GREW, ERRED. */
USC_API bool usc_diff_errs(usc_diff_kind kind);

/** What is known of a pair that differs, each call held to what it may lose on its own
 * inputs. */
typedef enum usc_diff_judged {
    USC_DIFF_NOT_JUDGED,
    USC_DIFF_STANDS,    /* both are right */
    USC_DIFF_ERRS,      /* one is accused, or both are, of different things */
    USC_DIFF_ALIKE,     /* both are accused of the same */
    USC_DIFF_NO_VERDICT /* nobody can tell, of one of them at least */
} usc_diff_judged;

/* What two tensors were compared by. */
typedef enum usc_diff_basis {
    USC_DIFF_BY_NOTHING,
    USC_DIFF_BY_STATISTICS,
    USC_DIFF_BY_DATA,
    USC_DIFF_BY_BITS /* equal bytes, by their hash */
} usc_diff_basis;

/** How far two tensors lie apart. All 0 where they are equal. */
typedef struct usc_diff_size {
    usc_diff_basis basis;
    int64_t n, n_differ; /* elements; by statistics n_differ is -1: not known */
    int64_t n_special;   /* NaN or Inf in one and not in the other, or another one */
    bool reshaped;       /* they have other shapes, and nothing else is known */
    double rms;          /* |a - b| / |a|, 2-norms, in roundings (2^-24 for float32) */
    double worst;        /* the largest |a - b| / the largest |a|, likewise */
} usc_diff_size;

/** One pair. */
typedef struct usc_diff_row {
    int64_t call_a, call_b; /* sequence numbers */
    usc_diff_how how;
    usc_diff_kind kind;
    usc_diff_size in, out; /* of the input and the result that lie furthest apart */
    int in_arg, out_arg;   /* of the call's arguments in A; -1: none */
    usc_diff_judged judged;
    bool partly; /* some outputs of it were not */
    bool
        computes; /* a result of it was written by it: it is no view, and holds no call */
    bool
        number; /* the input that lies furthest apart is a Python number beside tensors */
    double limit;        /* what rounding may make of equal inputs, as `out.worst` */
    double noise, apart; /* 2-norms in roundings: what rounding alone, amplified by the
                            model, makes of a result (0: not asked), and what lies
                            between the runs */
    double share;        /* apart by noise, of what is let pass (usc_diff_beyond) */
    int64_t from;        /* row that wrote the input `in`; -1: none */
    int64_t source;      /* row at which this difference began; -1: none */
    int64_t n_carried;   /* rows that inherit from this one */
    int64_t parent;      /* row of the call around it; -1: none */
    int64_t lone[2]; /* UNPAIRED: the call of A, of B, without a partner that wrote the
                        input; 0: none */
} usc_diff_row;

/** What was said of both calls of a row, [0] of A. */
typedef struct usc_diff_heard {
    const char *verdict[2];  /* NULL: not judged */
    const char *sentence[2]; /* why, NULL: nothing to say */
    const char *cause[2];    /* NULL: none is known */
    bool partly;             /* of one of them some outputs were not judged */
    double bits[2];          /* effective; NaN: not known */
} usc_diff_heard;

/** Whether what both calls of a pair are accused of is one thing, by texts of verdicts
 * and effective bits (NaN: not known): what both sides do alike is no difference. Neither
 * text is NULL. Threads: any. */
USC_API bool usc_diff_alike(const char *const verdict[2], const double bits[2]);

typedef struct usc_diff usc_diff;

typedef struct usc_diff_options {
    bool statistics; /* compare by statistics alone, also where data were kept */
    bool modules; /* forward and backward passes of modules in place of calls; they were
                       recorded by capture --level module */
    const char *phase; /* only calls of it: what others wrote comes from outside then;
                          NULL: all. Not copied */
    bool one_step;     /* only calls of `step` */
    int64_t step;
    const char
        *allow; /* operators that need no partner, a pattern; NULL: none. Not copied */
    const char *allow_unjudged; /* that nobody needs to have judged, likewise */
    bool replicas; /* they hold the same weights: where what enters differs, they part */
} usc_diff_options;

/**
 * Pairs the calls of two traces and compares what they did.
 *
 * Numbers: docs/reference/diff.md.
 * options: NULL: their zero value.
 * Memory:  *out is freed by usc_diff_close and needs both traces until then; about 400
 *          bytes for each call. Traces are read from; what they handed out is invalid.
 * Threads: one thread at a time per diff and its traces.
 * Errors:  those of reading the traces; USC_E_NOT_FOUND where one has no calls.
 */
USC_API USC_NODISCARD usc_status usc_diff_open(usc_trace *a, usc_trace *b,
                                               const usc_diff_options *options,
                                               usc_diff **out, usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_diff_close(usc_diff *d);

/* What differs between one step of two traces. */
typedef struct usc_step_difference {
    bool there;      /* the other trace has such a step */
    int64_t call;    /* the first that differs, from 1 on within the step; 0: none does */
    char text[1024]; /* in a sentence; "": nothing differs */
} usc_step_difference;

/**
 * Whether anything differs between one step of two traces: bit by bit, or by statistics
 * where one has no data.
 *
 * Errors:  those of opening and reading the traces.
 */
USC_API USC_NODISCARD usc_status usc_diff_step(const char *path, const char *other,
                                               int64_t step, usc_step_difference *out,
                                               usc_error *err);

/** Tensors that came from outside of the traces, and how many of them differ. */
typedef struct usc_diff_entered {
    int64_t n_parameters, n_parameters_differ;
    int64_t n_others, n_others_differ; /* data, states of an optimizer */
} usc_diff_entered;

/** Calls without a partner of which nothing was compared: no call that has one reads
 * what came of them, and the other side has no such bits; or the other side lacks that
 * step as a whole. */
typedef struct usc_diff_unseen {
    int64_t n[2], first[2]; /* of A, of B: how many, the first */
    int64_t n_allowed[2];   /* beside these, of what usc_diff_options.allow names */
} usc_diff_unseen;

/** What the comparison came to. Calls that only hold others count as all do. */
typedef struct usc_diff_summary {
    int64_t n_a, n_b, n_paired;
    int64_t n_how[USC_N_DIFF_HOW], n_kind[USC_N_DIFF_KINDS];
    int64_t first; /* row of the first call that makes an error; where none does, of the
                      first at which a difference begins otherwise, but for what entered
                      (of replicas: that, too); -1: none */
    int64_t n_unpaired_a, n_unpaired_b;
    usc_diff_entered entered;
    int64_t n_differ; /* calls that compute and give other results, and of these: */
    int64_t n_stand, n_alike,
        n_untold;       /* both are right; accused of the same; the rest */
    int64_t n_accepted; /* beside these, of what usc_diff_options.allow_unjudged names */
    usc_diff_basis basis; /* the weakest that a difference was told by */
    usc_diff_unseen unseen;
    bool same;    /* whatever differs was looked at and stands, and nothing that differs
                     much entered */
    bool partial; /* it would be `same`, but for what was `unseen` */
    bool lacking; /* a step of one side has no partner at all */
} usc_diff_summary;

/** The sum of all rows. Memory: copied. */
USC_API usc_diff_summary usc_diff_sum(const usc_diff *d);

/**
 * What both have and what one alone has, in words: "step 1", the steps of A that have
 * pairs, which is empty where every step has; "345 calls of A (steps 0, 2, 3) have no
 * partner", with those that have none at all, which is empty where every call has one.
 *
 * Memory:  at most `size` bytes with the zero go to each; what does not fit is cut.
 */
USC_API void usc_diff_say_common(const usc_diff *d, char *common, char *alone,
                                 size_t size);

/** The pairs in the order of the calls of A. Memory: until usc_diff_close. */
USC_API const usc_diff_row *usc_diff_rows(const usc_diff *d, int64_t *n);

/** The calls of one side (0: A, 1: B) that have no partner, ascending. Memory: until
 * usc_diff_close. */
USC_API const int64_t *usc_diff_alone(const usc_diff *d, int side, int64_t *n);

/** Whether a pair is to be judged: its calls compute, and give other results, of which
 * data were kept. */
USC_API bool usc_diff_wants_verdicts(const usc_diff *d, int64_t row);

/**
 * Takes verdicts on both calls of a row, of which usc_diff_row.judged becomes what they
 * come to. Of one that stands the difference is rounding, if its inputs are equal, or
 * inherited; one that errs MADE the difference, or ERRED where its inputs differ. Where
 * nobody can tell, MADE stays, for a limit says so. Texts are copied.
 *
 * Errors:  USC_E_NOMEM, USC_E_ARG for a row that is not there.
 */
USC_API USC_NODISCARD usc_status usc_diff_hear(usc_diff *d, int64_t row,
                                               const usc_diff_heard *heard,
                                               usc_error *err);

/** What was heard of a row; NULL where nothing. Memory: until usc_diff_close. */
USC_API const usc_diff_heard *usc_diff_heard_of(const usc_diff *d, int64_t row);

/** How many times as far apart as replays with other roundings a tensor of `n` numbers
 * may be. */
USC_API double usc_diff_beyond(int64_t n);

/**
 * Takes how far replays of the step of A, with other roundings, brought one result: of
 * call `call` of A, at `path` ("out[0]", "args[0]"), `noise` in roundings of its dtype,
 * as a 2-norm. Where the call has no partner, or none of its data were kept, nothing
 * happens.
 *
 * Errors:  those of reading the traces.
 */
USC_API USC_NODISCARD usc_status usc_diff_amplify(usc_diff *d, int64_t call,
                                                  const char *path, double noise,
                                                  usc_error *err);

/** All was taken: where no call begins a difference, the first that lies beyond what
 * rounding makes does (BEYOND). */
USC_API void usc_diff_weigh(usc_diff *d);

/**
 * What a row says in one sentence: "inputs are the same, out[0] differs by 4.1e+03
 * roundings of float32 in 512 of 512 elements".
 *
 * Memory:  at most `size` bytes with the zero go to `out`; what does not fit is cut.
 * Errors:  those of reading the call; `out` is empty then.
 */
USC_API USC_NODISCARD usc_status usc_diff_say(usc_diff *d, int64_t row, char *out,
                                              size_t size, usc_error *err);

USC_END_DECLS
#endif
