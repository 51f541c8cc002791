// SPDX-License-Identifier: Apache-2.0
// What is kept of an output for whoever judges what a device gives for it later, without
// the operator: the operands of a pack by their names there, and what is known of the
// output. A case that keeps (case.h) fills it, a pack reads it back.
// docs/reference/pack-format.md.
#ifndef ULPSCOPE_KEPT_H
#define ULPSCOPE_KEPT_H

#include <ulpscope/tensor.h>

USC_BEGIN_DECLS

/* The call in narrower formats: those of usc_narrow_how that are asked for, in that order. */
#define USC_KEPT_NARROW_LIST(X)                                                          \
    X(narrow_kernel)                                                                     \
    X(narrow_tf32_inputs)                                                                \
    X(narrow_tf32_steps)                                                                 \
    X(narrow_float16_inputs)                                                             \
    X(narrow_float16_steps)                                                              \
    X(narrow_float16_kernel)                                                             \
    X(narrow_bfloat16_inputs)                                                            \
    X(narrow_bfloat16_steps)                                                             \
    X(narrow_bfloat16_kernel)

/* Operands, by the names that they have in files. */
/* The formatter would put the words of a row elsewhere. */
/* clang-format off */
#define USC_KEPT_LIST(X)                                                                 \
    X(reference) /* R; where Y is the same everywhere, Y */                              \
    X(yardstick) /* Y; missing where it is R */                                          \
    X(native)    /* of narrow floats: the CPU's own */                                   \
    X(slope)     /* S of a closed form, and no N */                                      \
    X(s1)        /* S and N after one replay, */                                         \
    X(s2)        /* two */                                                               \
    X(s4)        /* and all; missing where they are nowhere above |R| */                 \
    X(n1)                                                                                \
    X(n2)                                                                                \
    X(n4)                                                                                \
    X(n_far)    /* N where what float32 loses further away counts as well, */            \
    X(n_noise)  /* and what it loses where its steps round otherwise */                  \
    X(flushed1) /* Y with subnormals flushed, in up to three ways */                     \
    X(flushed2)                                                                          \
    X(flushed3)                                                                          \
    X(kinds)       /* where R is none: 1 NaN, 2 Inf, 4 -Inf may stand there; where it is \
                      a number, 8, 16, 32 */                                             \
    X(jump_at)     /* elements where a replay crossed a step, */                         \
    X(jump_values) /* and what it gave */                                                \
    X(near_steps)  /* where steps lie nearby, */                                         \
    X(near_low)    /* and between what the output may lie there */                       \
    X(near_high)                                                                         \
    X(added_low) /* between what one accumulator gives and the truth, */                 \
    X(added_high)                                                                        \
    X(run_low) /* between what runs of float32 lie where they are visibly off */         \
    X(run_high)                                                                          \
    X(run_least)  /* and the least root mean square of the truth and each run; */        \
    X(run_at)     /* elements where such runs are far from the truth, beside it, */      \
    X(run_values) /* and what they gave */                                               \
    X(lost) /* root mean square of what runs of float32 lose, */                         \
    X(lost_cut) /* and what is lost where accumulators of products are cut off */        \
    X(lost_shares) /* by which share all elements are off together in runs, and where    \
                      these are cut off; then those of each row, where rows tell */      \
    X(ties)       /* where a result that no step rounds is halfway: the even one */      \
    X(choice)     /* values to choose among */                                           \
    X(admissible) /* [K, ...]: what K runs with other roundings gave */                  \
    X(unpromised) /* corners, or what the integer type lacks */                          \
    X(side_low)   /* between what a gradient may lie at its corners, */                  \
    X(side_high)                                                                         \
    X(sums_low) /* and its sums over dimensions, one way behind the other */             \
    X(sums_high)                                                                         \
    X(usual)      /* [K, ...]: what conversions give where it is open */                 \
    X(write_at)   /* updates that meet in one place: flat places, */                     \
    X(writes)     /* values, */                                                          \
    X(write_rows) /* the row of each */                                                  \
    X(excepted)   /* elements that may be something else */                              \
    X(own_low)    /* between what torch's own steps lie, */                              \
    X(own_high)                                                                          \
    X(own_nan)      /* and where they may give NaN */                                    \
    X(chain_values) /* [2, 3, ...]: after the first and after all of the runs that round \
                       to 16 bits inside what these lose, their least and their most; */ \
    X(chain_odd)    /* [2, ...]: what they gave that is no number, or many values, */    \
    X(chain_runs)   /* [2, 6] sums of both, and what single ones are off by */ \
    USC_KEPT_NARROW_LIST(X)
/* clang-format on */

#define USC_KEPT_FLAG_LIST(X)                                                            \
    X(adds)         /* a plain sum or mean */                                            \
    X(carries)      /* elements lie elsewhere: the CPU's very bytes are right */         \
    X(exact)        /* held to the reference's bits, also if it is a float */            \
    X(free)         /* the operator promises no values */                                \
    X(functions)    /* float32 and float64 compute two functions */                      \
    X(linear)       /* a sum of products */                                              \
    X(multiplies)   /* matrices are multiplied inside */                                 \
    X(never_rounds) /* the operator gives the only right value, to the last bit */       \
    X(overflows)    /* a step inside overflows float32 */                                \
    X(pairs)        /* complex, the last axis has real and imaginary part */             \
    X(rounding)     /* the operator gives the exact value, whatever the input */         \
    X(whole)        /* no order of adding rounds */

#define USC_KEPT_COUNT_LIST(X)                                                           \
    X(replays) /* that s4 and n4 come from */                                            \
    X(far)     /* losses that n_far has besides */                                       \
    X(noise)   /* and n_noise besides these */                                           \
    X(alone)   /* usc_alone */

#define USC_KEPT_NUMBER_LIST(X)                                                          \
    X(fan_in)                                                                            \
    X(products) /* fan-in of the closed form; 0: there is none */                        \
    X(natural)  /* size of the inputs where the truth is nothing beside them */

#define USC_KEPT_FLAG(name) bool name;
#define USC_KEPT_COUNT(name) int name;
#define USC_KEPT_NUMBER(name) double name;

/* Flags, counts and numbers as members of a struct. */
#define USC_KEPT_FACTS                                                                   \
    USC_KEPT_FLAG_LIST(USC_KEPT_FLAG)                                                    \
    USC_KEPT_COUNT_LIST(USC_KEPT_COUNT)                                                  \
    USC_KEPT_NUMBER_LIST(USC_KEPT_NUMBER)

enum { USC_POOLED = 3 };

/** How an index output chose. */
typedef struct usc_choice {
    const usc_tensor *values; /* NULL: the output is no index */
    int dim;                  /* -1: over all values, flattened */
    bool once;                /* no index comes twice along dim */
    bool cumulative;          /* an index is not behind its own place */
    bool counts;              /* values that come as often are as good (mode) */
    double slack;             /* values that differ by this share are equal */
    int n_window;             /* pooled dimensions, the last ones; 0: no pooling */
    /* -1: kernel anywhere, 0: adaptive */
    int64_t kernel[USC_POOLED], stride[USC_POOLED];
    int64_t padding[USC_POOLED], dilation[USC_POOLED];
} usc_choice;

/** What is kept of one output. Tensors are contiguous, NULL where there is none. */
typedef struct usc_kept {
    const char *path;
    const char *unjudged;         /* why there is nothing to judge by; NULL: there is */
    const char *reading;          /* the want that asks for it; NULL: the call's own */
    const char *refused;          /* code of the excuse for `excepted`; NULL: none */
    const char *note;             /* what is to be said where this reading stands */
    const char *captured, *dtype; /* dtypes that are right; NULL: nobody knows */
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
    usc_choice how; /* its values are `choice` */
    USC_KEPT_FACTS
    struct usc_kept_tensors {
#define USC_KEPT_FIELD(name) const usc_tensor *name;
        USC_KEPT_LIST(USC_KEPT_FIELD)
#undef USC_KEPT_FIELD
    } of;
    const struct usc_kept *next; /* another reading of the same output; NULL: none */
} usc_kept;

USC_END_DECLS
#endif
