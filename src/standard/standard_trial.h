// SPDX-License-Identifier: Apache-2.0
// What the rules of the standards share: an output with its operands read in blocks, and
// the opinion being formed. Neighbours: standard.c (names, dispatch), standard_*.c
// (rules).
#ifndef USC_STANDARD_TRIAL_H
#define USC_STANDARD_TRIAL_H

#include <ulpscope/standard.h>

#include "kernels/walk_load.h"

/* Reads one operand as doubles, rounded to a dtype where that is asked for. */
typedef struct usc_trial_reader {
    usc_walk walk;
    double values[USC_JUDGE_BLOCK];
    usc_walk_room room; /* behind doubles: conversions want it aligned */
    usc_dtype dtype;    /* of the values given */
    bool rounds;
} usc_trial_reader;

/* One output under a rule. */
typedef struct usc_trial {
    const usc_standard *standard;
    const usc_standard_operands *in;
    usc_dtype dtype; /* the device's */
    bool is_float, is_low;
    const char *failed; /* what this standard calls an output that fails */
    int64_t n;
    usc_opinion *out;
} usc_trial;

/* What an operand is wanted for; each has a list of operands that can serve. */
typedef enum usc_trial_role {
    USC_ROLE_DEVICE,
    USC_ROLE_TRUE,     /* the reference as it is */
    USC_ROLE_EXPECTED, /* the CPU's answer in the device's dtype */
    USC_ROLE_RAISED,   /* the CPU one precision up: float32, float64 for float32 */
    USC_ROLE_SECOND,   /* another device's answer in the device's dtype */
} usc_trial_role;

/* Opens a reader for a role. False where the opinion is formed already: nothing serves,
 * or what serves has other dims or, expected in the device's dtype, another dtype. */
bool usc_trial_open(usc_trial *c, usc_trial_role role, usc_trial_reader *out);

/* `count` <= USC_JUDGE_BLOCK elements from `at` on. */
const double *usc_trial_load(usc_trial_reader *r, int64_t at, size_t count);

/* How many elements the block at `at` has. */
size_t usc_trial_count(const usc_trial *c, int64_t at);

/* Ends a rule: PASS or WRONG with a clause. `status` NULL: "pass" or c->failed. */
void usc_trial_decide(usc_trial *c, bool pass, const char *status, const char *format,
                      ...) USC_PRINTF(4, 5);

void usc_trial_unjudged(usc_trial *c, const char *format, ...) USC_PRINTF(2, 3);

/* Whether the output is float8, of which the peer has no rule: it is unjudged then. */
bool usc_trial_no_rule(usc_trial *c);

void usc_trial_metric(usc_trial *c, const char *name, double value);

/* How many elements of an integer or bool output differ from what is expected; -1 with
 * the opinion formed where they cannot be compared. */
int64_t usc_trial_differing(usc_trial *c);

/* The whole rule where integers must be equal. */
void usc_trial_integers(usc_trial *c);

/* Whether a tensor has the shape of the device's; where not, that is the opinion. */
bool usc_trial_shapes_agree(const usc_trial *c, const usc_tensor *t, const char *what);

/* Whether the operator is one of `names` (NULL at the end), which are bare: "mm". A name
 * that ends in * stands for all that begin so. */
bool usc_trial_op_is(const usc_trial *c, const char *const *names);

/* Sum over fixed lanes: element i of a block goes to lane i mod 8. */
typedef struct usc_trial_sum {
    double lane[USC_JUDGE_LANES];
} usc_trial_sum;

double usc_trial_total(const usc_trial_sum *s);

/* Largest |x|, NaN where one is NaN. */
double usc_trial_largest(const usc_trial *c, usc_trial_reader *r);

/* Cosine of two readers whose largest |x| are given; NaN where something is not finite.
 */
double usc_trial_cosine(const usc_trial *c, usc_trial_reader *a, usc_trial_reader *b,
                        double max_a, double max_b);

/* One element's error as msprobe computes it: in float32 unless `wide`. */
typedef struct usc_ascend_error {
    double absolute, relative, divisor;
} usc_ascend_error;

usc_ascend_error usc_ascend_error_of(double device, double raised, double eps, bool wide);

/* What is added to |raised|, of dtype `raised`, before dividing by it. */
double usc_ascend_eps(usc_dtype device, usc_dtype raised);

/* The rules; each forms an opinion over at least one element. */
void usc_rule_torch_close(usc_trial *c);
void usc_rule_allclose(usc_trial *c);
void usc_rule_kernelbench(usc_trial *c);
void usc_rule_inductor(usc_trial *c);
void usc_rule_ulp(usc_trial *c);
void usc_rule_bitwise(usc_trial *c);
void usc_rule_cosine(usc_trial *c);
void usc_rule_ggml(usc_trial *c);
void usc_rule_neuron(usc_trial *c);
void usc_rule_ascend_v1(usc_trial *c);
void usc_rule_ascend_absolute(usc_trial *c);
void usc_rule_ascend_ulp(usc_trial *c);
void usc_rule_ascend_benchmark(usc_trial *c);

#endif
