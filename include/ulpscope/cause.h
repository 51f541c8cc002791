// SPDX-License-Identifier: Apache-2.0
// Why an output is accused, as far as the result alone shows it: what is off, what it
// holds, and whether the whole is the truth moved, scaled, clamped or cut to fewer bits.
// No operator is run here; who can run one weighs the numbers of such a run against the
// same output. A cause never changes a verdict. docs/reference/causes.md.
//
// Threads: one thread at a time per usc_cause.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_CAUSE_H
#define ULPSCOPE_CAUSE_H

#include <ulpscope/alloc.h>
#include <ulpscope/tensor.h>
#include <ulpscope/verdict.h>

USC_BEGIN_DECLS

/* id, code, whether it only tells what is seen and is no name, words. In the words stand
 * $n $m counts; $f $l first and last; $a $b axes; $v $u numbers; $s a name; $p a place
 * along an axis, $r "is" or "are" and $t an "s" or none by it; $h what is held there. */
#define USC_CAUSE_LIST(X)                                                                \
    X(NONE, "", 0, "")                                                                   \
    X(LOST, "lost", 0,                                                                   \
      "the in-place result was lost: not written, previous contents are stale")          \
    X(UNCHANGED, "unchanged", 0,                                                         \
      "the result is $s unchanged: it was lost, not written, or the rest of the "        \
      "formula is missing")                                                              \
    X(ALL_ZERO, "all_zero", 0, "the result is all zeros")                                \
    X(ALL_NAN, "all_nan", 0, "the result is all NaN: spurious NaN")                      \
    X(ONLY_INPUT, "unchanged", 0, "the result holds nothing but $s, in every slice")     \
    X(ALWAYS_TRUE, "constant", 0,                                                        \
      "the result is always True (a constant, whatever the input)")                      \
    X(ALWAYS_FALSE, "constant", 0,                                                       \
      "the result is always False (a constant, whatever the input)")                     \
    X(CONSTANT, "constant", 0, "the result is the constant $v everywhere")               \
    X(ANOTHER, "constant", 0, "the result is $v everywhere, where $u is right")          \
    X(TRANSPOSED_SIZES, "shape", 0,                                                      \
      "wrong stride: the result is transposed (its sizes are in another order)")         \
    X(DIMENSIONS, "shape", 0, "wrong shape: $n dimensions instead of $m")                \
    X(OTHER_SIZES, "shape", 0, "wrong shape: sizes $s")                                  \
    X(TOO_MANY, "shape", 0, "wrong size: $n elements too many along axis $a")            \
    X(TOO_FEW, "shape", 0, "wrong size: $n of $m elements along axis $a are missing")    \
    X(LAST_MISSING, "truncated", 0,                                                      \
      "truncated: the last $n of $m elements along axis $a are missing (dropped "        \
      "contribution)")                                                                   \
    X(FIRST_MISSING, "truncated", 0,                                                     \
      "truncated: the first $n of $m elements along axis $a are missing (dropped "       \
      "contribution)")                                                                   \
    X(TAIL, "tail", 0, "the last $n of $m elements are $h")                              \
    X(TAIL_REPEATS, "tail", 0,                                                           \
      "the last $n of $m elements repeat those before: stale tail")                      \
    X(LAST_ZERO, "tail", 0, "the last element is zero")                                  \
    X(LAST_REPEATS, "tail", 0,                                                           \
      "the last element repeats the one before: it is stale, not written")               \
    X(LAST_STALE, "tail", 0, "the last element was not written: it is stale")            \
    X(RUN, "run", 0, "the elements $f to $l of $m in memory are $h")                     \
    X(SLICES, "slices", 0, "$p $r $h")                                                   \
    X(SLICES_REPEAT, "slices", 0, "$p repeat$t a neighbour")                             \
    X(SLICES_INPUT, "slices", 0, "$p hold$t nothing but $s")                             \
    X(SLICES_OF, "slices", 0, "$p hold$t the right values of $s (wrong index)")          \
    X(CLIPPED_BELOW, "identity", 0, "results below $v are $v")                           \
    X(CLIPPED_ABOVE, "identity", 0, "results above $v are $v")                           \
    X(TILE, "tile", 0, "the$s tile ($p) is $h")                                          \
    X(SPREAD, "content", 0, "$n of $m elements are $h")                                  \
    X(PADDED, "padding", 0,                                                              \
      "the rows whose $s is $f are zero: taken for padding (dropped contribution)")      \
    X(SWAPPED, "exchanged", 0, "elements $f and $l change places (exchanged)")           \
    X(SHUFFLED, "exchanged", 0,                                                          \
      "$n elements are exchanged among each other (wrong order or index)")               \
    X(REORDERED, "exchanged", 0,                                                         \
      "elements are exchanged among each other along axis $a: the right values in "      \
      "another order (unsorted, or a wrong index)")                                      \
    X(PERMUTED, "exchanged", 0,                                                          \
      "the right values in another order: axes are exchanged or strides are wrong "      \
      "(permuted)")                                                                      \
    X(OTHER_OUTPUT, "exchanged", 0,                                                      \
      "wrong output: it holds the right values of $s (exchanged, or computed as that)")  \
    X(TIES, "ties", 0, "wrong variant: ties are rounded $s to even (in $n elements)")    \
    X(ONE_FLUSHED, "flushed", 0, "subnormals flushed to zero")                           \
    X(ONE_ZERO, "one_element", 0, "one element is zero")                                 \
    X(ONE_NAN, "one_element", 0, "one element is NaN: spurious NaN")                     \
    X(ONE_NAN_LOST, "one_element", 0, "one NaN is swallowed")                            \
    X(ONE_INF, "one_element", 0, "one element is Inf: spurious Inf")                     \
    X(ONE_SIGN, "one_element", 0, "the sign of one element is flipped (bit flip)")       \
    X(ONE_BIT, "one_element", 0, "bit $f of one element flipped")                        \
    X(WRAPS, "overflow", 0, "overflow: the result wraps around as in $s")                \
    X(HALVES, "moved", 0,                                                                \
      "the halves along axis $a are exchanged (shifted by $n, wrong index)")             \
    X(ROLLED_FAR, "moved", 0, "shifted by $n along axis $a (moved, wrong index)")        \
    X(ROLLED, "moved", 0,                                                                \
      "shifted by $n along axis $a (wrong index: the neighbour's value)")                \
    X(SHIFTED, "moved", 0, "shifted by $n along axis $a, zeros come in")                 \
    X(REVERSED, "moved", 0,                                                              \
      "elements are exchanged: reversed along axis $a (wrong stride or direction)")      \
    X(REVERSED_TWO, "moved", 0,                                                          \
      "elements are exchanged: reversed, or shifted by one, along axis $a (wrong "       \
      "stride or direction)")                                                            \
    X(PAIRS, "moved", 0, "elements are exchanged in pairs along axis $a")                \
    X(INTERLEAVED, "moved", 0, "wrong stride: halves along axis $a interleaved")         \
    X(SPLIT, "moved", 0, "wrong stride: pairs along axis $a split into halves")          \
    X(TRANSPOSED, "moved", 0, "wrong stride: the result is transposed (axes $a and $b)") \
    X(FIRST_FOR_ALL, "moved", 0,                                                         \
      "the first slice along axis $a stands in the place of all (wrong index or "        \
      "stride)")                                                                         \
    X(ABSOLUTE, "sign", 0, "the sign is lost: absolute values")                          \
    X(CONJUGATED, "sign", 0, "the sign of the imaginary part is flipped (conjugated)")   \
    X(INVERTED, "sign", 0, "the result is inverted")                                     \
    X(DOUBLED_BEFORE, "moved", 0,                                                        \
      "every other element repeats the one before it (stale, or wrong stride)")          \
    X(DOUBLED_AFTER, "moved", 0,                                                         \
      "every other element repeats the one after it (stale, or wrong stride)")           \
    X(ROLLED_FLAT, "moved", 0, "shifted by one element in memory (wrong index)")         \
    X(SLID, "moved", 0,                                                                  \
      "shifted by $n along axis $a (moved against the border or padding, wrong index)")  \
    X(SLID_TWO, "moved", 0,                                                              \
      "shifted by $n along axis $a and by $m along axis $b (moved against the border "   \
      "or padding, wrong index)")                                                        \
    X(SATURATED, "saturated", 0, "saturated at $v$s")                                    \
    X(SWALLOWED, "nonfinite", 0, "$s swallowed: $n elements hold $h instead")            \
    X(SWALLOWED_BY, "nonfinite", 0, "saturated at $v: Inf swallowed in $n elements")     \
    X(OVERFLOW, "overflow", 0, "spurious Inf: overflow beyond $v$s")                     \
    X(OVERFLOW_INSIDE, "overflow", 1,                                                    \
      "spurious $s: overflow of intermediates beyond 65504, the maximum of float16")     \
    X(SPURIOUS, "nonfinite", 0, "spurious $s$h")                                         \
    X(OTHER_KIND, "nonfinite", 0,                                                        \
      "spurious $s: $n elements are $s in place of another non-finite value")            \
    X(FACTOR, "factor", 0, "the result is multiplied by $v")                             \
    X(SIGN, "sign", 0, "the sign is flipped: the result is multiplied by -1")            \
    X(AMOUNT, "amount", 0, "$v is added to the result (a constant offset)")              \
    X(FACTOR_OR_AMOUNT, "factor", 0,                                                     \
      "the result is multiplied by $v, or $u is added to the result (a constant "        \
      "offset): these data cannot tell")                                                 \
    X(WHOLE_AMOUNT, "amount", 0,                                                         \
      "$v is added to the result (a constant offset; index shifted)")                    \
    X(SIDE_FACTOR, "factor", 0,                                                          \
      "$s results are multiplied by $v (a slope or scale factor)")                       \
    X(SIDE_SIGN, "sign", 0,                                                              \
      "the sign is flipped: $s results are multiplied by -1 (a slope or scale factor)")  \
    X(SOME_FACTOR, "factor", 0,                                                          \
      "multiplied by $v in $n slices along axis $p (a factor of some results)")          \
    X(NOT_COMPUTED, "content", 0,                                                        \
      "$n of $m slices along axis $p are zero: not computed")                            \
    X(SOME_SIGN, "sign", 0,                                                              \
      "the sign is flipped in $n slices along axis $p (a factor of some results)")       \
    X(PARTIAL_FACTOR, "partial", 1,                                                      \
      "each slice along axis $p is too $s by a factor of its own")                       \
    X(PARTIAL_AMOUNT, "partial", 1,                                                      \
      "each slice along axis $p is too $s by an amount of its own")                      \
    X(STATISTIC_ROUNDED, "format", 1,                                                    \
      "intermediates rounded to $s: the statistic of each slice along axis $p")          \
    X(SLICE_FACTORS, "statistic", 1,                                                     \
      "each slice along axis $p is off by a factor of its own")                          \
    X(SLICE_AMOUNTS, "statistic", 1,                                                     \
      "each slice along axis $p is off by an amount of its own")                         \
    X(ROUNDED_INSIDE, "format", 0, "intermediates rounded to $s")                        \
    X(GRID, "format", 0,                                                                 \
      "intermediates or accumulator rounded to $s: the result has $n significant bits")  \
    X(CUT, "format", 0,                                                                  \
      "the result has $n significant bits: rounded or truncated to $s")                  \
    X(BITS, "format", 1, "the result has $n significant bits")                           \
    X(NOISE, "noise", 0, "looks like noise, of both signs and without a pattern")        \
    X(WHERE, "where", 0, "off only in $s")                                               \
    X(WHERE_FAR, "where", 0, "far off only in $s")

typedef enum usc_cause_code {
#define USC_CAUSE_ENUM(id, code, seen, words) USC_CAUSE_##id,
    USC_CAUSE_LIST(USC_CAUSE_ENUM)
#undef USC_CAUSE_ENUM
        USC_N_CAUSES
} usc_cause_code;

/** The code of a cause, e.g. "tail"; "" beyond the list. Memory: static. */
USC_API const char *usc_cause_code_text(usc_cause_code code);

/** A tensor by name. */
typedef struct usc_cause_named {
    const char *name;
    usc_tensor tensor;
} usc_cause_named;

/* Formats that something else speaks for: bits of usc_cause_operands.formats. */
enum { USC_CAUSE_BF16 = 1, USC_CAUSE_F16 = 2, USC_CAUSE_TF32 = 4 };

/** An accused output and what is known of it. Members may be NULL or 0 but for device,
 * truth and yardstick. */
typedef struct usc_cause_operands {
    const usc_tensor *device;
    const usc_tensor *truth; /* float64 or float32; whole numbers: of device's dtype */
    const usc_tensor *yardstick;   /* what honest float32 gives; or the truth once more */
    const usc_tensor *before;      /* what was there before the call */
    const usc_cause_named *inputs; /* all arguments; others than floats may be indices */
    int n_inputs;
    const usc_cause_named *others; /* the truth of other outputs */
    int n_others;
    bool odd_is_excused; /* NaN and Inf in place of finite numbers are nobody's fault */
    usc_verdict verdict;
    double bits;      /* effective bits of the finding */
    bool adds;        /* the operator adds up many terms */
    bool parts;       /* the last axis is the real and the imaginary part */
    bool heads;       /* four axes are batch, head, token and column */
    unsigned formats; /* that something else speaks for */
    const usc_alloc *alloc;
} usc_cause_operands;

/* What is asked, in the order in which a search goes. */
typedef enum usc_cause_look {
    USC_CAUSE_PLAIN,    /* what stands before any run of an operator */
    USC_CAUSE_KINDS,    /* NaN and Inf out of place */
    USC_CAUSE_SIZE,     /* one factor or amount: a variant of the operator may say more */
    USC_CAUSE_ORDER,    /* the right values in other places */
    USC_CAUSE_CLIP,     /* a number that counts in a minimum or a maximum */
    USC_CAUSE_SIDE,     /* a factor of one sign */
    USC_CAUSE_PLACES,   /* what place, content and size of the errors speak for */
    USC_CAUSE_ANYTHING, /* all of these, one after the other; where no run of the operator
                           has come between, statistics of slices are only seen */
    USC_CAUSE_PLACE     /* which rows, columns or elements are off where that is not most
                           of all; a fact that stands beside any cause, or beside none */
} usc_cause_look;

enum { USC_CAUSE_TEXT = 320 };

typedef struct usc_cause_found {
    usc_cause_code code;       /* USC_CAUSE_NONE: nothing */
    char text[USC_CAUSE_TEXT]; /* a clause; begins "looks like: " where it is no name */
    double left; /* of the error, by a factor or amount; Inf where nothing is known */
} usc_cause_found;

typedef struct usc_cause usc_cause;

/**
 * Opens the search for one output.
 *
 * Shapes:  truth and yardstick as device, any strides; `before`, inputs and others of
 *          another shape are left out. Not empty.
 * Memory:  keeps pointers to all data, which must stay unchanged; copies what has gaps,
 *          and a sample of at most 2^17 elements. One byte an element when first asked.
 * Errors:  USC_E_SHAPE, USC_E_DTYPE (a dtype that is not in the table), USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_cause_open(const usc_cause_operands *operands,
                                                usc_cause **out, usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_cause_close(usc_cause *c);

/**
 * What one look finds. Time is linear in elements (n log n up to 2^20 of them).
 *
 * Errors:  USC_E_NOMEM; *out is NONE then.
 */
USC_API USC_NODISCARD usc_status usc_cause_ask(usc_cause *c, usc_cause_look look,
                                               usc_cause_found *out, usc_error *err);

/** Whether a cause by its code says itself which elements are off, or that all are. */
USC_API bool usc_cause_tells_place(const char *code);

/**
 * Puts what is found into words: the cause, "cause unknown" where there is none, and
 * which places are off where that is another fact.
 *
 * Errors:  USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_cause_add_place(usc_cause *c, usc_cause_found *io,
                                                     usc_error *err);

/** What sizes tell where they differ from the truth's; NONE where they do not. */
USC_API void usc_cause_shape(const usc_tensor *device, const usc_tensor *truth,
                             usc_cause_found *out);

/** Says in what follows that other formats, too, are spoken for (USC_CAUSE_BF16 ...). */
USC_API void usc_cause_hint(usc_cause *c, bool adds, unsigned formats);

/**
 * The most bits of the significand that any finite element but 0 of a float tensor uses;
 * 0 where fewer than `least` elements tell.
 *
 * Errors:  USC_E_DTYPE, those of usc_tensor_numel.
 */
USC_API USC_NODISCARD usc_status usc_cause_grid(const usc_tensor *t, int64_t least,
                                                int *out, usc_error *err);

/* ---- what runs of the operator are weighed by ---- */

#define USC_CAUSE_LEFT_MOST (1 / 8.0) /* of the error, where a run explains it */

/** How a run with a mistake is held against the device. */
typedef enum usc_cause_weight {
    USC_CAUSE_LEFT,       /* share of the error that it leaves; 0: same bits; Inf: none */
    USC_CAUSE_NEAR,       /* 1 where a look at a few elements leaves room for it */
    USC_CAUSE_REPRODUCES, /* 1 where it gives the device's numbers, nearly everywhere */
    USC_CAUSE_SAME_BITS,  /* 1 where it gives every bit, also where little is off */
    USC_CAUSE_CONTRADICTS, /* 1 where it spoils what the device got right */
    USC_CAUSE_UNMOVED,     /* 1 where it leaves the truth as it is */
    USC_CAUSE_FOLLOWS,     /* correlation of its errors with the device's, -1 to 1 */
    USC_CAUSE_NEARER, /* 1: clearly nearer to the device than `narrow`, -1: the other way
                         round, 0: the elements that they differ on do not tell */
} usc_cause_weight;

/**
 * Weighs the numbers `run` of a run; `narrow` is the same in float32, or NULL
 * (USC_CAUSE_REPRODUCES only; of USC_CAUSE_NEARER another run). Another shape than the
 * device's explains nothing.
 *
 * Errors:  USC_E_DTYPE, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_cause_weigh(usc_cause *c, usc_cause_weight weight,
                                                 const usc_tensor *run,
                                                 const usc_tensor *narrow, double *out,
                                                 usc_error *err);

/** Whether the errors are of the size that `n` runs give which differ in chance alone.
 * Errors: USC_E_DTYPE, USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_cause_of_size(usc_cause *c, const usc_tensor *runs,
                                                   int n, bool *out, usc_error *err);

/** What the errors are like. */
typedef struct usc_cause_errors {
    int64_t independent; /* errors of their own: elements, or slices that share one */
    int64_t far;         /* elements that are nowhere near what float32 gives */
    int64_t finite;      /* of those looked at: off, and numbers here as in the truth */
    bool mixed;          /* of both signs in most rows and columns, as noise is */
    bool one_sided;      /* most make results larger, or most smaller */
    bool few_values;     /* so few numbers in the truth that errors come as factors */
} usc_cause_errors;

/** Errors: USC_E_NOMEM; *out is zero then. */
USC_API USC_NODISCARD usc_status usc_cause_errors_of(usc_cause *c, usc_cause_errors *out,
                                                     usc_error *err);

/** The elements that are looked at, as flat positions and as whether they are off.
 * Memory: the search's, until it is closed; *places is NULL where it is all of them. */
USC_API int64_t usc_cause_sample(const usc_cause *c, const int64_t **places,
                                 const uint8_t **off);

USC_END_DECLS
#endif
