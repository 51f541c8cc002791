// SPDX-License-Identifier: Apache-2.0
// Standards: the rules by which other tools pass or accuse an output, each by its name,
// so that a team can hold its own rule, ours and everybody else's against one output.
// They are reproduced as they are, known defects included: docs/reference/metrics.md, 3.
// Neighbour: judge.h holds our own rule.
//
// Threads: safe while nobody writes the operands.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_STANDARD_H
#define ULPSCOPE_STANDARD_H

#include <ulpscope/tensor.h>
#include <ulpscope/verdict.h>

USC_BEGIN_DECLS

/* name, text in Python and messages, what it is */
#define USC_OPERAND_LIST(X)                                                              \
    X(REFERENCE, "reference", "the truth, computed in float64 and not rounded")          \
    X(NATIVE, "native", "the CPU's own run in the device's dtypes")                      \
    X(YARDSTICK, "yardstick", "the CPU's run in float32, not rounded")                   \
    X(BENCHMARK, "benchmark", "what another device gave")

typedef enum usc_operand {
#define USC_OPERAND_ENUM(id, name, meaning) USC_OPERAND_##id,
    USC_OPERAND_LIST(USC_OPERAND_ENUM)
#undef USC_OPERAND_ENUM
        USC_N_OPERANDS
} usc_operand;

/** Text of an operand, e.g. "native"; "unknown" otherwise. Memory: static. */
USC_API const char *usc_operand_text(usc_operand operand);

/** What a standard is, for help texts and for whoever prepares its operands. */
typedef struct usc_standard_info {
    const char *name;       /* "allclose" */
    const char *parameters; /* how they are written: ":ATOL,RTOL"; "" where it has none */
    const char *summary;    /* one line */
    unsigned needs;         /* bit 1 << usc_operand for each operand that it reads */
} usc_standard_info;

/**
 * All standards, `ulpscope` first. *n is their number.
 *
 * Memory:  static, never freed.
 * Threads: safe.
 */
USC_API const usc_standard_info *usc_standard_list(int *n);

enum { USC_STANDARD_PARAMETERS = 2 };

/** A standard with its parameters. Holds no memory; copy it freely. */
typedef struct usc_standard {
    const usc_standard_info *info;
    double parameters[USC_STANDARD_PARAMETERS];
    char name[64]; /* as written: "allclose:1e-3,1e-3" */
} usc_standard;

/**
 * Parses "torch-close", "allclose:1e-3,1e-3", "ulp:4".
 *
 * Errors:  USC_E_ARG (unknown name: the text lists the known ones; parameters that are
 *          missing, too many or no numbers >= 0); *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_standard_parse(const char *text, usc_standard *out,
                                                    usc_error *err);

/** One output, and what it is held against. */
typedef struct usc_standard_operands {
    const usc_tensor *device;             /* what the device under test gave */
    const usc_tensor *of[USC_N_OPERANDS]; /* NULL where there is none */
    const char *op; /* the operator, "aten::mm"; some rules depend on it. NULL: unknown */
} usc_standard_operands;

typedef struct usc_opinion_metric {
    const char *name; /* static; docs/reference/metrics.md, 3 */
    double value;
} usc_opinion_metric;

enum { USC_OPINION_METRICS = 12 };

/** What a standard says of one output. */
typedef struct usc_opinion {
    usc_verdict verdict; /* PASS, WRONG, or UNJUDGED where the rule does not apply */
    char status[16];     /* in the standard's own words: "pass", "warning", "error" */
    char reason[192];    /* one clause with the number that decided */
    char stand_in[128];  /* which operand stood in for which; "" for none */
    int n_metrics;
    usc_opinion_metric metrics[USC_OPINION_METRICS];
} usc_opinion;

/**
 * Holds one output to a standard.
 *
 * An operand that the standard reads and that is NULL is replaced by the nearest other
 * one, rounded where the dtype asks for it; `stand_in` says so. The list is in
 * docs/reference/metrics.md, 3.
 *
 * Shapes:  any strides, empty is allowed. An operand whose dims differ from the device's
 *          is a WRONG output (reference, native, benchmark alike), not an error. device:
 *          any dtype of the table. Floats may come in any float dtype.
 * Numbers: docs/reference/metrics.md, 3. Same bits whatever the strides and the thread's
 *          modes.
 * Memory:  allocates nothing, keeps no pointer; needs 64 KiB of stack.
 * Threads: safe while nobody writes the operands.
 * Errors:  USC_E_UNSUPPORTED for `ulpscope` (usc_judge_open is that rule), USC_E_ARG
 *          where no operand is there to compare with, USC_E_DTYPE, USC_E_SHAPE (a tensor
 *          that is no tensor); *out is zero then.
 */
USC_API USC_NODISCARD usc_status usc_standard_judge(const usc_standard *standard,
                                                    const usc_standard_operands *operands,
                                                    usc_opinion *out, usc_error *err);

/* Why no output is held to a standard. */
#define USC_NO_OPINION_LIST(X)                                                           \
    X(NO_ANSWER, "no_answer", "the device gave no answer")                               \
    X(RANDOM, "random", "draws random numbers")                                          \
    X(NO_VALUES, "no_values", "the operator promises no values")                         \
    X(NO_TRUTH, "no_truth", "the CPU gives nothing to compare with")                     \
    X(NO_OUTPUT, "no_output", "no output to compare")

typedef enum usc_no_opinion {
#define USC_NO_OPINION_ENUM(id, name, reason) USC_NO_OPINION_##id,
    USC_NO_OPINION_LIST(USC_NO_OPINION_ENUM)
#undef USC_NO_OPINION_ENUM
        USC_N_NO_OPINIONS
} usc_no_opinion;

/** Name of such a reason, e.g. "random"; "unknown" otherwise. Memory: static. */
USC_API const char *usc_no_opinion_text(usc_no_opinion why);

/** What a standard says of a call of which no output is held to it: PASS where it has
 * none, else UNJUDGED. */
USC_API void usc_opinion_without(usc_no_opinion why, usc_opinion *out);

/** What it says of a call of which the device gave `n_given` outputs, and the operator
 * has `n_due`, or others: WRONG. */
USC_API void usc_opinion_miscounted(const usc_standard *standard, int64_t n_given,
                                    int64_t n_due, usc_opinion *out);

/** An opinion as one clause: the standard, its status, why, in which output ("out[0]" and
 * "" go without saying), and what stood in; cut where it does not fit. */
USC_API void usc_opinion_text(const usc_standard *standard, const usc_opinion *opinion,
                              const char *path, char *out, size_t size);

/** The name that a number of an opinion has among the metrics of a call, behind that of
 * its standard: "ulp:1.max_ulp"; cut where it does not fit. */
USC_API void usc_opinion_metric_name(const usc_standard *standard, const char *metric,
                                     char *out, size_t size);

/** Which of the opinions on the outputs of a call is the worst, the first of equals. n is
 * 1 at the least. */
USC_API int usc_opinions_worst(const usc_opinion *opinions, int n);

USC_END_DECLS
#endif
