// SPDX-License-Identifier: Apache-2.0
// Random calls: from an example of an operator's call, other calls of it. Case k of seed
// S is a function of S, k and the example alone, the same on every machine, in any thread
// and order: no draw depends on another case (docs/reference/fuzz.md). Neighbours:
// generate.h (the generator, kinds of values), run.h (the run that judges them).
//
// Threads: safe while nobody writes what a function reads; nothing is kept between calls.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_FUZZ_H
#define ULPSCOPE_X_FUZZ_H

#include <ulpscope/x/generate.h>

USC_BEGIN_DECLS

/* Changes whenever a case of a seed becomes another one. */
#define USC_FUZZ_VERSION 3

enum {
    USC_FUZZ_ATTEMPTS = 5,            /* the last one changes neither sizes nor layouts */
    USC_FUZZ_SYMBOLS = 6,             /* distinct sizes that are varied */
    USC_FUZZ_ELEMENTS = 1 << 14,      /* a resized tensor has no more than these */
    USC_FUZZ_STEP_ELEMENTS = 1 << 16, /* of a case with steps */
    /* The number of a case: a draw, or the example itself, and steps away from it. */
    USC_FUZZ_STEP_BIT = 36, /* this bit and those above it are its steps */
    USC_FUZZ_STEPS = 12     /* each of a size, the kind of values, a layout or dtype */
};
#define USC_FUZZ_AS_IS (UINT64_C(1) << 35) /* example k as it is, with other values */

/** One tensor of a call: of the example, or drawn. */
typedef struct usc_fuzz_tensor {
    usc_dtype dtype;
    int ndim;
    int64_t sizes[USC_MAX_DIMS];
    int64_t strides[USC_MAX_DIMS], offset; /* in elements; none negative */
    int64_t storage;                       /* tensors of one number lie in one storage */
    int64_t room; /* elements of that storage; of the example not read */
    bool written; /* the operator writes it: each element has a place of its own */
} usc_fuzz_tensor;

/** Which integers among the arguments follow a size that changed. */
typedef enum usc_fuzz_numbers {
    USC_FUZZ_NO_NUMBERS,
    USC_FUZZ_LISTED, /* those in lists: view(x, [4, 8]) */
    USC_FUZZ_ALL_NUMBERS,
    USC_FUZZ_N_NUMBERS
} usc_fuzz_numbers;

typedef struct usc_fuzz_case {
    uint64_t seed, number;
    int attempt; /* 0 .. USC_FUZZ_ATTEMPTS - 1: another draw where one is refused */
    bool stress; /* hard values and sizes at boundaries nearly always */
} usc_fuzz_case;

/** What was drawn besides the tensors. */
typedef struct usc_fuzz_recipe {
    usc_stress kind;    /* values of floats */
    usc_dtype from, to; /* floats of dtype `from` became `to` */
    int n_symbols;
    int64_t old_size[USC_FUZZ_SYMBOLS], new_size[USC_FUZZ_SYMBOLS];
    usc_fuzz_numbers numbers;
    int64_t count; /* in place of one count that is no size (topk's k); 0: none */
    int which;     /* of them: modulo how many there are */
} usc_fuzz_recipe;

/**
 * Draws the form of a case: sizes, dtype of floats, memory layouts, kind of values.
 *
 * Shapes:  sizes above 1 that are equal in the example stay equal to each other, so what
 *          broadcasts, contracts or pools there does so here. Tensors that share a
 * storage in the example do so here, as they did; a pair of equal form that nothing
 *          writes may come to share one. Sizes of 0 and 1, of powers of two and those
 *          beside them are frequent.
 *          Each step in the number of the case changes one thing of what is drawn without
 *          it; which one hangs on the draw and the step alone.
 * Memory:  `drawn` has room for `n`, like `example`; allocates nothing.
 * Errors:  USC_E_SHAPE for a negative size or stride or too many axes, USC_E_DTYPE for
 *          what is in no table, USC_E_ARG for dtypes that share a storage, USC_E_RANGE;
 *          `*recipe` is zero then.
 */
USC_API USC_NODISCARD usc_status usc_fuzz_draw(const usc_fuzz_case *which,
                                               const usc_fuzz_tensor *example, int n,
                                               usc_fuzz_tensor *drawn,
                                               usc_fuzz_recipe *recipe, usc_error *err);

/**
 * Fills the storage of a drawn tensor: values of a kind where the tensor lies, and what
 * must not be read (NaN, the largest integer) around it.
 *
 * Shapes:  `out` is the whole storage, `size` its bytes: t->room elements.
 * Numbers: of the case, `i_tensor` and the tensor's form and domain alone.
 * Memory:  allocates nothing.
 * Errors:  USC_E_ARG (size), USC_E_DTYPE for a kind that the dtype cannot have; `out` is
 *          unspecified then.
 */
USC_API USC_NODISCARD usc_status usc_fuzz_fill(const usc_fuzz_case *which, int i_tensor,
                                               const usc_fuzz_tensor *t, usc_stress kind,
                                               const usc_stress_domain *domain, void *out,
                                               size_t size, usc_error *err);

/** Which of `n` operators a case is of: each comes once in every `n` cases, in an order
 * that the seed gives. `n` is at least 1. */
USC_API int64_t usc_fuzz_operator(uint64_t seed, uint64_t number, int64_t n);

/** Which of `n` examples of its operator a case is drawn from. `n` is at least 1. */
USC_API int64_t usc_fuzz_example(uint64_t seed, uint64_t number, int64_t n);

/* ---- programs: a few operators, one after the other ---- */

enum {
    USC_FUZZ_LINES = 6, /* at most; two at the least */
    USC_FUZZ_INPUTS = 3,
    USC_FUZZ_OPERANDS = 3,
    USC_FUZZ_NUMBERS = 2,
    USC_FUZZ_TRIALS = 64 /* of a step, until it fits */
};

/** What a program begins with. */
typedef struct usc_fuzz_program {
    int n_inputs, n_steps;
    int featured; /* the step whose word is given: each operator has its turn */
    usc_fuzz_tensor input[USC_FUZZ_INPUTS];
    usc_stress kind[USC_FUZZ_INPUTS]; /* of their values */
} usc_fuzz_program;

/** One step: which word of a list of words, of which values. */
typedef struct usc_fuzz_step {
    int64_t word;
    int operand[USC_FUZZ_OPERANDS];   /* inputs first, then results of earlier steps */
    int64_t number[USC_FUZZ_NUMBERS]; /* of [0, 2^31): axes, sizes, constants */
} usc_fuzz_step;

/**
 * Draws the inputs of a program, and how many steps it has. `stress` is not asked.
 *
 * Shapes:  0 to 4 axes, at most 2^13 elements; inputs go together: equal, broadcast, the
 *          last axes alone, or the last two swapped.
 * Memory:  allocates nothing. Fill an input with usc_fuzz_fill.
 */
USC_API void usc_fuzz_draw_program(const usc_fuzz_case *which, usc_fuzz_program *out);

/**
 * Draws a step; `trial` < USC_FUZZ_TRIALS is another draw of it. `n_values`: inputs and
 * results so far, at least 1; `n_words` at least 1. A function of its arguments alone.
 */
USC_API void usc_fuzz_draw_step(const usc_fuzz_case *which, int i_step, int trial,
                                int n_values, int64_t n_words, usc_fuzz_step *out);

USC_END_DECLS
#endif
