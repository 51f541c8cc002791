// SPDX-License-Identifier: Apache-2.0
// Random operators. No two devices draw the same numbers, so that draws are judged by
// what all honest draws have in common: values that can be drawn, the law, independence
// of place, two calls that have nothing to do with each other. Nothing here runs an
// operator or draws. What is promised: docs/reference/operators.md; every formula:
// docs/reference/metrics.md, 4.
//
// Numbers: one order on one thread: the same bits whatever the number of threads, the ISA
//          and the float modes of the caller.
// Threads: safe while nobody writes the operands, one thread at a time per list of
//          findings.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_DRAW_H
#define ULPSCOPE_X_DRAW_H

#include <ulpscope/finding.h>

USC_BEGIN_DECLS

/** What an operator was given, by its name in the schema. */
typedef struct usc_draw_argument {
    const char *name;
    double number;
    const usc_tensor *tensor; /* NULL: the number */
} usc_draw_argument;

/** What a device gave for one output, and when it was asked once more. */
typedef struct usc_draw_output {
    const char *path;
    const usc_tensor *first;
    const usc_tensor *again; /* NULL: it was not asked, or gave another shape */
} usc_draw_output;

/** One call of a random operator. */
typedef struct usc_draw_call {
    const char *op; /* bare name: "bernoulli_" of aten::bernoulli_.float */
    const usc_draw_argument *arguments;
    int n_arguments;
    bool complex_parts; /* draws are real and imaginary parts: of variance 1 together */
    const usc_draw_output *outputs; /* in the operator's order */
    int n_outputs;
} usc_draw_call;

/** Whether the law of the operator with that bare name is known. Threads: safe. */
USC_API bool usc_draw_known(const char *op);

/**
 * Adds the findings on the outputs of a call of an operator whose law is known.
 *
 * Shapes:  tensors among the arguments broadcast to the output; those of multinomial are
 *          rows of weights. Any dtype of the table, any strides.
 * Memory:  up to 160 bytes an element of what is looked at, freed on return.
 * Errors:  USC_E_ARG where the law is not known or an argument is missing, USC_E_SHAPE,
 *          USC_E_NOMEM; some findings may have been added then.
 */
USC_API USC_NODISCARD usc_status usc_draw_judge(const usc_draw_call *call,
                                                usc_findings *f, usc_error *err);

/** What a search for masks found. */
typedef struct usc_mask_search {
    int64_t n_blocks; /* that were looked at */
    int64_t n_found;  /* of them: with a mask that explains them */
    int64_t n_right;  /* of those, where the mask is known: the true one */
} usc_mask_search;

/** Zeros and ones that were drawn inside a call, as far as its output shows them. */
typedef struct usc_draw_mask {
    const char *path;                           /* of the output that shows them */
    const usc_tensor *kept;                     /* not 0: a one */
    const usc_tensor *shown;                    /* not 0: to be seen; NULL: all */
    const usc_tensor *kept_again, *shown_again; /* of another answer; NULL */
    double chance;                              /* of a one */
    const usc_tensor *chances;                  /* the same for each; NULL */
    /* Of honest outputs so many were ones among so many, as far as they show them, and so
     * many blocks found: where those left out bend the law, it does not tell. 0: it does.
     */
    int64_t honest_kept, honest_n;
    usc_mask_search honest;
} usc_draw_mask;

/**
 * Adds the finding on a mask.
 *
 * Shapes:  shown that of kept, chances broadcast to it.
 * Memory:  as usc_draw_judge.
 * Errors:  USC_E_SHAPE, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_draw_judge_mask(const usc_draw_mask *mask,
                                                     usc_findings *f, usc_error *err);

/** Blocks of an output, each a sum over zeros and ones that were drawn. */
typedef struct usc_mask_sums {
    const usc_tensor *columns; /* (blocks, equations, unknowns): what a one adds */
    const usc_tensor *base;    /* (blocks, equations): what there is without */
    const usc_tensor *got;     /* the same of the output */
    double eps;                /* of the output's dtype */
    uint8_t *kept, *shown;     /* (blocks, unknowns): a one; the output shows it */
    uint8_t *sure;             /* (blocks): some mask comes near */
    double *left;              /* (blocks): what the mask leaves open, of its size */
    double *open;              /* (blocks): what is left open at the least where each
                                  unknown may also lie between zero and one */
} usc_mask_sums;

/**
 * Finds the mask that explains each block best: as much of it ones as possible.
 *
 * Shapes:  as above, contiguous room behind the pointers; any floats, any strides.
 * Errors:  USC_E_SHAPE, USC_E_RANGE, USC_E_NOMEM; nothing has been written then.
 */
USC_API USC_NODISCARD usc_status usc_draw_find_masks(const usc_mask_sums *sums,
                                                     usc_error *err);

enum { USC_MASK_TRIED = 4 }; /* unknowns of a block whose values are all tried */

/** What all masks of small blocks give, and what a device gave. */
typedef struct usc_mask_tries {
    const usc_tensor *given; /* (2^unknowns, blocks, equations): all ones first, the last
                                unknown turns first */
    const usc_tensor *got;   /* (blocks, equations) */
    const usc_tensor *noise; /* (blocks): how far the call's own roundings put honest
                                results from these, each number counted in the largest
                                that a mask gives it; NULL: by no more than eps */
    double eps;              /* of the output's dtype */
    double least;            /* its smallest normal number: what no mask makes as large,
                                and may be flushed, tells none */
    uint8_t *kept, *shown;   /* (blocks, unknowns) */
} usc_mask_tries;

/**
 * The mask that comes nearest to each block. An element is shown where the results of two
 * masks that differ in it lie further apart than 16 eps and 3 times the noise.
 *
 * Shapes:  as above, float64, contiguous; USC_MASK_TRIED unknowns at the most.
 * Errors:  USC_E_SHAPE, USC_E_RANGE; nothing has been written then.
 */
USC_API USC_NODISCARD usc_status usc_draw_try_masks(const usc_mask_tries *tries,
                                                    usc_error *err);

/** The most that the mask of a block may leave open and yet explain it, from what those
 * of `n` honest blocks leave; NaN for none. Memory: sorts `left`. */
USC_API double usc_draw_mask_limit(double *left, int64_t n);

/** Whether a search can be trusted that found this of honest outputs. */
USC_API bool usc_draw_search_sound(const usc_mask_search *honest);

/** Whether far fewer blocks of an output have a mask than of honest ones. */
USC_API bool usc_draw_search_odd(const usc_mask_search *honest,
                                 const usc_mask_search *found);

/** Adds `wrong` where that is so. Errors: USC_E_NOMEM, those of usc_tensor_numel. */
USC_API USC_NODISCARD usc_status usc_draw_judge_search(const usc_mask_search *honest,
                                                       const usc_mask_search *found,
                                                       const char *path,
                                                       const usc_tensor *output,
                                                       usc_findings *f, usc_error *err);

/** Whether so much of a mask is shown that its own law is tested, not that of any draws;
 * else both. */
USC_API bool usc_draw_mask_tells(int64_t n_shown, int64_t n);

/** One answer among draws of the CPU, where no law is known. */
typedef struct usc_draw_crowd {
    const char *path;
    const usc_tensor *device;
    const usc_tensor *again; /* the answer to the same call once more; NULL */
    const usc_tensor *draws; /* each of another seed */
    int n_draws;
} usc_draw_crowd;

enum { USC_DRAW_CROWD = 40 }; /* draws that make one */

/**
 * Adds the finding on an output whose law nobody wrote down: it must lie where the draws
 * do. `unjudged` where their shapes differ, or few elements tell nothing.
 *
 * Shapes:  any, any strides, any dtypes of the table.
 * Memory:  looks at 65,536 elements at the most; frees all on return.
 * Errors:  USC_E_ARG for fewer than 3 draws, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_draw_judge_crowd(const usc_draw_crowd *crowd,
                                                      usc_findings *f, usc_error *err);

/** Whether k hits of n are too many or too few for probability p: the exact binomial
 * tail, with a chance of 1e-7 of a false alarm on either side. Threads: safe. */
USC_API bool usc_draw_count_odd(int64_t k, int64_t n, double p);

USC_END_DECLS
#endif
